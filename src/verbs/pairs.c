#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "ibverbs.h"

static_assert(sizeof(struct verbs_sge) == sizeof(struct ibv_sge) &&
                  offsetof(struct verbs_sge, address) == offsetof(struct ibv_sge, addr) &&
                  offsetof(struct verbs_sge, len_bytes) == offsetof(struct ibv_sge, length) &&
                  offsetof(struct verbs_sge, lkey) == offsetof(struct ibv_sge, lkey),
              "post hands our lists to libibverbs as they are");

/* Frozen (protocol 1.3). */
#define HOP_LIMIT 64
#define MIN_RNR_TIMER 12
#define TIMEOUT 14
#define RETRY_COUNT 6
#define RNR_RETRY 7
#define PSN_MASK 0xFFFFFFu

static struct verbs_ib_qp *ours(struct verbs_qp *qp)
{
    return VERBS_IB_CAST(struct verbs_ib_qp, qp);
}

static int to_init(struct verbs_ib_qp *q, unsigned access, struct penstock_error *error)
{
    const struct verbs_device *device = q->base.pd->device;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .pkey_index = 0, .port_num = q->port, .qp_access_flags = verbs_ib_access(access)
    };
    int e = verbs_ib_errno(verbs_ib_api(device)->modify_qp(
        q->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    return e == 0 ? 0 : base_error_sys(error, e, "%s port %u: ibv_modify_qp to INIT", device->name, q->port);
}

int verbs_ib_qp_new(struct verbs_pd *pd, struct verbs_cq *cq, const struct verbs_qp_options *options,
                    struct verbs_qp **qp, struct penstock_error *error)
{
    const struct verbs_device *device = pd->device;
    const struct ibv_device_attr *attr = &verbs_ib_device(pd->device)->attr;
    struct ibv_cq *ib_cq = VERBS_IB_CAST(struct verbs_ib_cq, cq)->cq;
    struct verbs_ib_qp *q = calloc(1, sizeof *q);
    if (!q)
        return base_error_sys(error, ENOMEM, "%s: queue pair", device->name);
    *q = (struct verbs_ib_qp){ .base = { .pd = pd, .cq = cq }, .port = options->port, .gid_index = options->gid_index };
    /* Nothing is received, and a peer sends nothing; one of each, since some providers take 0 for a mistake. */
    struct ibv_qp_init_attr init = { .send_cq = ib_cq,
                                     .recv_cq = ib_cq,
                                     .cap = { .max_send_wr = options->depth ? options->depth : 1,
                                              .max_recv_wr = 1,
                                              .max_send_sge = options->sges_max ? options->sges_max : 1,
                                              .max_recv_sge = 1 },
                                     .qp_type = IBV_QPT_RC };
    errno = 0;
    q->qp = verbs_ib_api(device)->create_qp(VERBS_IB_CAST(struct verbs_ib_pd, pd)->pd, &init);
    if (!q->qp) {
        char limit[VERBS_IB_MEMLOCK_WORDS];
        int e = verbs_ib_null_errno();
        free(q);
        return base_error_sys(error, e,
                              "%s port %u%s: ibv_create_qp of %u work requests with %u pieces (the device has %d QPs "
                              "of %d with %d)",
                              device->name, options->port, verbs_ib_memlock_words(e, limit, sizeof limit),
                              options->depth, options->sges_max, attr->max_qp, attr->max_qp_wr, attr->max_sge);
    }
    q->base.qpn = q->qp->qp_num;
    int code = to_init(q, options->access, error);
    if (code != 0) {
        verbs_ib_qp_free(&q->base);
        return code;
    }
    *qp = &q->base;
    return 0;
}

void verbs_ib_qp_free(struct verbs_qp *qp)
{
    struct verbs_ib_qp *q = ours(qp);
    const struct verbs_ib_api *api = verbs_ib_api(qp->pd->device);
    if (api->destroy_qp(q->qp) != 0) {
        /* It must touch no memory from here on, even where it cannot be destroyed. */
        struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
        (void)api->modify_qp(q->qp, &attr, IBV_QP_STATE);
        (void)api->destroy_qp(q->qp);
    }
    free(q);
}

/* Why RTR was refused, as far as the port can tell: the errno alone rarely does. */
static void explain(struct verbs_ib_qp *q, const struct verbs_qp_link *link, int sys_errno, char *out, size_t size)
{
    const struct verbs_ib_api *api = verbs_ib_api(q->base.pd->device);
    struct ibv_context *context = verbs_ib_device(q->base.pd->device)->context;
    static const union ibv_gid none;
    struct ibv_port_attr port;
    union ibv_gid own = none;
    char peer[INET6_ADDRSTRLEN] = "";
    (void)inet_ntop(AF_INET6, link->peer_gid, peer, sizeof peer);
    if (verbs_ib_query_port(api, context, q->port, &port) != 0)
        snprintf(out, size, "the port is gone");
    else if (port.state != IBV_PORT_ACTIVE)
        snprintf(out, size, "the port is %s: check its link (ip link, rdma link)", verbs_ib_port_state(port.state));
    else if (link->mtu > (uint8_t)port.active_mtu)
        snprintf(out, size, "a path MTU of %u is above the port's %u", verbs_mtu_bytes(link->mtu),
                 verbs_mtu_bytes((uint8_t)port.active_mtu));
    else if (api->query_gid(context, q->port, (int)q->gid_index, &own) != 0 || memcmp(&own, &none, sizeof own) == 0)
        snprintf(out, size, "GID %u of the port is empty: its address has been taken away", q->gid_index);
    else if (sys_errno == EINVAL || sys_errno == ENETUNREACH || sys_errno == EHOSTUNREACH || sys_errno == ETIMEDOUT)
        snprintf(out, size, "no way from GID %u to GID %s: both must be of one network, or routed (--rail DEVICE:GID)",
                 q->gid_index, peer);
    else
        snprintf(out, size, "to GID %s", peer);
}

static int to_rtr(struct verbs_ib_qp *q, const struct verbs_qp_link *link, struct penstock_error *error)
{
    const struct verbs_device *device = q->base.pd->device;
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
                                .path_mtu = (enum ibv_mtu)link->mtu,
                                .dest_qp_num = link->peer_qpn,
                                .rq_psn = link->peer_psn & PSN_MASK,
                                .max_dest_rd_atomic = link->reads_in,
                                .min_rnr_timer = MIN_RNR_TIMER,
                                .ah_attr = { .is_global = 1,
                                             .port_num = q->port,
                                             .grh = { .hop_limit = HOP_LIMIT, .sgid_index = (uint8_t)q->gid_index } } };
    memcpy(attr.ah_attr.grh.dgid.raw, link->peer_gid, sizeof link->peer_gid);
    int e = verbs_ib_errno(verbs_ib_api(device)->modify_qp(q->qp, &attr,
                                                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                                               IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    if (e == 0)
        return 0;
    char why[200];
    explain(q, link, e, why, sizeof why);
    return base_error_sys(error, e, "%s port %u: %s: ibv_modify_qp to RTR", device->name, q->port, why);
}

static int to_rts(struct verbs_ib_qp *q, const struct verbs_qp_link *link, struct penstock_error *error)
{
    const struct verbs_device *device = q->base.pd->device;
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS,
                                .sq_psn = link->own_psn & PSN_MASK,
                                .timeout = TIMEOUT,
                                .retry_cnt = RETRY_COUNT,
                                .rnr_retry = RNR_RETRY,
                                .max_rd_atomic = link->reads_out };
    int e = verbs_ib_errno(verbs_ib_api(device)->modify_qp(
        q->qp, &attr,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
    return e == 0 ? 0
                  : base_error_sys(error, e, "%s port %u: ibv_modify_qp to RTS with %u READs outstanding", device->name,
                                   q->port, link->reads_out);
}

int verbs_ib_qp_connect(struct verbs_qp *qp, const struct verbs_qp_link *link, struct penstock_error *error)
{
    struct verbs_ib_qp *q = ours(qp);
    const struct verbs_device *device = qp->pd->device;
    const struct ibv_device_attr *attr = &verbs_ib_device(qp->pd->device)->attr;
    /* Said here, since a device says no more than EINVAL. */
    if (link->reads_in > attr->max_qp_rd_atom)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "%s port %u: the device takes %d READs of a QP at once, and the other side may send %u",
                              device->name, q->port, attr->max_qp_rd_atom, link->reads_in);
    if (link->reads_out > attr->max_qp_init_rd_atom)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "%s port %u: the device has at most %d READs of a QP outstanding, not %u", device->name,
                              q->port, attr->max_qp_init_rd_atom, link->reads_out);
    int code = to_rtr(q, link, error);
    return code != 0 ? code : to_rts(q, link, error);
}

int verbs_ib_qp_query(struct verbs_qp *qp, struct verbs_qp_state *state, struct penstock_error *error)
{
    static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR" };
    struct verbs_ib_qp *q = ours(qp);
    struct ibv_qp_attr attr = { 0 };
    struct ibv_qp_init_attr init = { 0 };
    int e = verbs_ib_errno(
        verbs_ib_api(qp->pd->device)
            ->query_qp(q->qp, &attr,
                       IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC, &init));
    if (e != 0)
        return base_error_sys(error, e, "%s port %u: ibv_query_qp", qp->pd->device->name, q->port);
    *state = (struct verbs_qp_state){ .mtu = (uint8_t)attr.path_mtu,
                                      .reads_out = attr.max_rd_atomic,
                                      .reads_in = attr.max_dest_rd_atomic };
    size_t at = (size_t)attr.qp_state;
    snprintf(state->state, sizeof state->state, "%s", at < sizeof names / sizeof *names ? names[at] : "unknown");
    return 0;
}

static void describe(const struct verbs_request *request, struct ibv_send_wr *next, struct ibv_send_wr *wr)
{
    /* Not the whole of it: a work request is 128 bytes, most of which are about other opcodes. */
    wr->wr_id = (uintptr_t)request->context;
    wr->next = next;
    wr->sg_list = (struct ibv_sge *)(uintptr_t)request->sges;
    wr->num_sge = (int)request->n_sges;
    wr->opcode = request->opcode == VERBS_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    wr->send_flags = request->signaled ? IBV_SEND_SIGNALED : 0;
    wr->wr.rdma.remote_addr = request->remote;
    wr->wr.rdma.rkey = request->rkey;
}

int verbs_ib_post(struct verbs_qp *qp, const struct verbs_request *requests, size_t n, size_t *posted,
                  struct penstock_error *error)
{
    struct ibv_send_wr wrs[VERBS_CHAIN_MAX], *bad = NULL;
    *posted = 0;
    if (n == 0 || n > VERBS_CHAIN_MAX)
        return base_error_set(error, PENSTOCK_EINVAL, "a chain of %zu work requests, not 1 to %d", n, VERBS_CHAIN_MAX);
    for (size_t i = 0; i < n; i++)
        describe(&requests[i], i + 1 < n ? &wrs[i + 1] : NULL, &wrs[i]);
    int e = verbs_ib_errno(ibv_post_send(ours(qp)->qp, wrs, &bad));
    if (e == 0) {
        *posted = n;
        return 0;
    }
    /* The first that was not taken; a provider that names none took none. */
    if (bad >= wrs && bad < wrs + n)
        *posted = (size_t)(bad - wrs);
    return base_error_sys(error, e, "%s port %u: ibv_post_send took %zu of %zu work requests", qp->pd->device->name,
                          ours(qp)->port, *posted, n);
}
