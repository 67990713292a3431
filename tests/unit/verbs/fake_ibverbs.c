#include "fake_ibverbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED struct fake_ibverbs fake_ibverbs;
#define fake fake_ibverbs

/* Exported by the real one, and so not declared anywhere as a function of this name. */
#undef ibv_query_port
#undef ibv_reg_mr

static bool fails(const char *call, const struct ibv_device *device)
{
    if (!fake.fail || strcmp(fake.fail, call) != 0 || (fake.fail_device && strcmp(fake.fail_device, device->name) != 0))
        return false;
    if (fake.fail_after > 0) {
        fake.fail_after--;
        return false;
    }
    errno = fake.fail_how == FAKE_ERRNO_RETURNED ? 0 : fake.fail_errno;
    return true;
}

static int failure(void)
{
    switch (fake.fail_how) {
    case FAKE_MINUS_ONE:
        return -1;
    case FAKE_NEGATIVE:
        return -fake.fail_errno;
    default:
        return fake.fail_errno;
    }
}

static void *no_pointer(void)
{
    errno = fake.fail_errno;
    return NULL;
}

#define FAIL_INT(call, device)                                                                                         \
    if (fails(call, device))                                                                                           \
    return failure()
#define FAIL_POINTER(call, device)                                                                                     \
    if (fails(call, device))                                                                                           \
    return no_pointer()

/* ---- devices ---- */

static struct ibv_device devices[FAKE_DEVICES_MAX];

EXPORTED struct ibv_device **ibv_get_device_list(int *n)
{
    FAIL_POINTER("ibv_get_device_list", NULL);
    struct ibv_device **list = calloc(FAKE_DEVICES_MAX + 1, sizeof *list);
    for (int i = 0; i < fake.n_devices; i++) {
        struct ibv_device *d = list[i] = &devices[i];
        d->transport_type = fake.iwarp && i + 1 == fake.n_devices ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
        snprintf(d->name, sizeof d->name, "fake%d", i);
        snprintf(d->dev_name, sizeof d->dev_name, "uverbs%d", i);
        snprintf(d->ibdev_path, sizeof d->ibdev_path, "%s/fake%d", fake.sysfs ? fake.sysfs : "/nowhere", i);
    }
    if (n)
        *n = fake.n_devices;
    fake.lists++;
    return list;
}

EXPORTED void ibv_free_device_list(struct ibv_device **list)
{
    fake.lists--;
    free(list);
}

static int query_port(struct ibv_context *context, uint8_t number, struct ibv_port_attr *attr, size_t size)
{
    FAIL_INT("ibv_query_port", context->device);
    (void)number;
    memcpy(attr, &fake.port, size);
    return 0;
}

EXPORTED int ibv_query_port(struct ibv_context *context, uint8_t number, struct _compat_ibv_port_attr *attr)
{
    /* The old structure ends before flags. */
    return query_port(context, number, (struct ibv_port_attr *)(void *)attr, offsetof(struct ibv_port_attr, flags));
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs)
{
    if (fails("ibv_poll_cq", cq->context->device))
        return -2;
    int take = n < fake.n_completions ? n : fake.n_completions;
    memcpy(wcs, fake.completions, (size_t)take * sizeof *wcs);
    fake.n_completions -= take;
    memmove(fake.completions, fake.completions + take, (size_t)fake.n_completions * sizeof *wcs);
    return take;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    FAIL_INT("ibv_req_notify_cq", cq->context->device);
    fake.notified += solicited_only ? 1000 : 1;
    return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    bool failing = fails("ibv_post_send", qp->context->device);
    fake.doorbells++;
    fake.n_posted = 0;
    for (; wr; wr = wr->next) {
        if (failing && fake.n_posted == fake.post_takes) {
            if (!fake.post_names_none)
                *bad = wr;
            return failure();
        }
        fake.posted[fake.n_posted++] = *wr;
    }
    return 0;
}

EXPORTED struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    FAIL_POINTER("ibv_open_device", device);
    struct verbs_context *v = calloc(1, sizeof *v);
    v->sz = sizeof *v;
    v->query_port = query_port;
    v->context =
        (struct ibv_context){ .device = device,
                              .ops = { .poll_cq = poll_cq, .req_notify_cq = req_notify_cq, .post_send = post_send },
                              .async_fd = eventfd(0, 0),
                              .abi_compat = fake.old_contexts ? NULL : __VERBS_ABI_IS_EXTENDED };
    fake.contexts++;
    return &v->context;
}

EXPORTED int ibv_close_device(struct ibv_context *context)
{
    fake.contexts--;
    (void)close(context->async_fd);
    free((char *)context - offsetof(struct verbs_context, context));
    return 0;
}

EXPORTED int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    FAIL_INT("ibv_query_device", context->device);
    *attr = fake.attr;
    return 0;
}

EXPORTED int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
    FAIL_INT("ibv_query_gid", context->device);
    (void)port;
    *gid = fake.gids[index];
    return 0;
}

EXPORTED ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
                                      uint32_t flags, size_t size)
{
    size_t n = 0;
    if (fails("_ibv_query_gid_table", context->device) || flags != 0 || size != sizeof *entries)
        return -EOPNOTSUPP;
    for (uint32_t port = 1; port <= fake.attr.phys_port_cnt; port++)
        for (uint32_t i = 0; i < 4 && n < max; i++)
            if (fake.gids[i].global.interface_id)
                entries[n++] = (struct ibv_gid_entry){
                    .gid = fake.gids[i], .gid_index = i, .port_num = port, .gid_type = fake.gid_types[i]
                };
    return (ssize_t)n;
}

EXPORTED int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    if (fails("ibv_get_async_event", context->device)) {
        errno = fake.fail_errno;
        return -1;
    }
    if (fake.n_async_events == 0) {
        errno = EAGAIN;
        return -1;
    }
    *event = fake.async_events[--fake.n_async_events];
    fake.async_unacknowledged++;
    return 0;
}

EXPORTED void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
    fake.async_unacknowledged--;
}

/* ---- memory ---- */

EXPORTED struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    FAIL_POINTER("ibv_alloc_pd", context->device);
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    pd->context = context;
    fake.pds++;
    return pd;
}

EXPORTED int ibv_dealloc_pd(struct ibv_pd *pd)
{
    fake.pds--;
    free(pd);
    return 0;
}

static struct ibv_mr *region(struct ibv_pd *pd, size_t length, int access)
{
    struct ibv_mr *mr = calloc(1, sizeof *mr);
    *mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .length = length, .lkey = 0x11, .rkey = 0x22 };
    fake.access = access;
    fake.mrs++;
    return mr;
}

EXPORTED struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
    FAIL_POINTER("ibv_reg_mr", pd->context->device);
    (void)address;
    return region(pd, length, access);
}

/* Fails under the name of the other. */
EXPORTED struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                                         unsigned int access)
{
    fake.iova = iova;
    return ibv_reg_mr(pd, address, length, (int)access);
}

EXPORTED struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                                          int access)
{
    FAIL_POINTER("ibv_reg_dmabuf_mr", pd->context->device);
    fake.offset = offset;
    fake.iova = iova;
    fake.dmabuf_fd = fd;
    return region(pd, length, access);
}

EXPORTED int ibv_dereg_mr(struct ibv_mr *mr)
{
    fake.mrs--;
    free(mr);
    return 0;
}

/* ---- completions ---- */

EXPORTED struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    FAIL_POINTER("ibv_create_comp_channel", context->device);
    struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
    *channel = (struct ibv_comp_channel){ .context = context, .fd = eventfd(0, 0) };
    fake.channels++;
    return channel;
}

EXPORTED int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    fake.channels--;
    (void)close(channel->fd);
    free(channel);
    return 0;
}

EXPORTED struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                      struct ibv_comp_channel *channel, int vector)
{
    FAIL_POINTER("ibv_create_cq", context->device);
    (void)vector;
    struct ibv_cq *cq = calloc(1, sizeof *cq);
    cq->context = context;
    cq->channel = channel;
    cq->cq_context = cq_context;
    cq->cqe = cqe;
    fake.cqs++;
    return cq;
}

/* The real one waits here for ever. */
EXPORTED int ibv_destroy_cq(struct ibv_cq *cq)
{
    if (fake.unacknowledged != 0)
        abort();
    fake.cqs--;
    free(cq);
    return 0;
}

EXPORTED int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    (void)cq;
    (void)cq_context;
    if (fails("ibv_get_cq_event", channel->context->device)) {
        errno = fake.fail_errno;
        return -1;
    }
    if (fake.cq_events == 0) {
        errno = EAGAIN;
        return -1;
    }
    fake.cq_events--;
    fake.unacknowledged++;
    return 0;
}

EXPORTED void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
    (void)cq;
    fake.unacknowledged -= (int)n;
}

/* ---- queue pairs ---- */

EXPORTED struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    FAIL_POINTER("ibv_create_qp", pd->context->device);
    struct ibv_qp *qp = calloc(1, sizeof *qp);
    qp->context = pd->context;
    qp->qp_num = 0x123;
    fake.init = *init;
    fake.qps++;
    return qp;
}

EXPORTED int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    FAIL_INT("ibv_modify_qp", qp->context->device);
    fake.modified[fake.n_modified] = *attr;
    fake.masks[fake.n_modified++] = mask;
    return 0;
}

EXPORTED int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    FAIL_INT("ibv_query_qp", qp->context->device);
    (void)mask;
    (void)init;
    *attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .path_mtu = IBV_MTU_2048, .max_rd_atomic = 7, .max_dest_rd_atomic = 9
    };
    return 0;
}

EXPORTED int ibv_destroy_qp(struct ibv_qp *qp)
{
    if (fails("ibv_destroy_qp", qp->context->device)) {
        fake.fail = NULL;
        return failure();
    }
    fake.qps--;
    free(qp);
    return 0;
}
