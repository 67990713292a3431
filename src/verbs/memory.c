#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/error.h"
#include "ibverbs.h"

int verbs_ib_pd_new(struct verbs_device *device, struct verbs_pd **pd, struct penstock_error *error)
{
    struct verbs_ib_pd *p = malloc(sizeof *p);
    if (!p)
        return base_error_sys(error, ENOMEM, "%s: protection domain", device->name);
    p->base.device = device;
    errno = 0;
    p->pd = verbs_ib_api(device)->alloc_pd(verbs_ib_device(device)->context);
    if (!p->pd) {
        int e = verbs_ib_null_errno();
        free(p);
        return base_error_sys(error, e, "%s: ibv_alloc_pd", device->name);
    }
    *pd = &p->base;
    return 0;
}

void verbs_ib_pd_free(struct verbs_pd *pd)
{
    struct verbs_ib_pd *p = VERBS_IB_CAST(struct verbs_ib_pd, pd);
    (void)verbs_ib_api(pd->device)->dealloc_pd(p->pd);
    free(p);
}

unsigned verbs_ib_access(unsigned access)
{
    int flags = (access & VERBS_LOCAL_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0) |
                (access & VERBS_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0) |
                (access & VERBS_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0);
    return (unsigned)flags;
}

/* Bytes may cross the PCI bus in any order where nobody looks at them before a completion, which stays behind them: on
 * some hosts that is a good part of the line rate. What the other side WRITEs has no completion here. libibverbs drops
 * the flag where device or kernel do not know it. */
static struct ibv_mr *register_memory(const struct verbs_ib_api *api, struct ibv_pd *pd, void *address,
                                      uint64_t len_bytes, unsigned access)
{
    unsigned flags = verbs_ib_access(access);
    if (!api->reg_mr_iova2 || access & VERBS_REMOTE_WRITE)
        return api->reg_mr(pd, address, len_bytes, (int)flags);
    return api->reg_mr_iova2(pd, address, len_bytes, (uintptr_t)address, flags | IBV_ACCESS_RELAXED_ORDERING);
}

const char *verbs_ib_memlock_words(int sys_errno, char *out, size_t size)
{
    struct rlimit limit;
    char kib[32] = "unlimited";
    *out = 0;
    if (sys_errno != ENOMEM && sys_errno != EPERM)
        return out;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(kib, sizeof kib, "%llu KiB", (unsigned long long)limit.rlim_cur / 1024); /* as ulimit -l counts */
    snprintf(out, size,
             ": the memlock limit (ulimit -l) is %s and has to cover all that is registered: raise it, or "
             "LimitMEMLOCK=infinity in the systemd unit",
             kib);
    return out;
}

/* What = "ibv_reg_mr of 123 bytes". Each errno has one usual cause. */
static int register_error(const struct verbs_device *device, const char *what, int sys_errno,
                          struct penstock_error *error)
{
    int code = PENSTOCK_ESYS;
    char limit[VERBS_IB_MEMLOCK_WORDS];
    switch (sys_errno) {
    case ENOMEM:
    case EPERM:
        code = PENSTOCK_ELIMIT;
        (void)base_error_sys(error, sys_errno, "%s%s; else memory or the device's %d regions have run out: %s",
                             device->name, verbs_ib_memlock_words(sys_errno, limit, sizeof limit),
                             VERBS_IB_CAST(const struct verbs_ib_device, device)->attr.max_mr, what);
        break;
    case EFAULT:
        code = PENSTOCK_EUNSUPPORTED;
        (void)base_error_sys(error, sys_errno,
                             "%s: the kernel cannot register this memory with this access (a shared read-only "
                             "mapping of a file needs Linux 6.2): %s",
                             device->name, what);
        break;
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
    case ENOSYS:
        code = PENSTOCK_EUNSUPPORTED;
        (void)base_error_sys(error, sys_errno, "%s: this kind of memory cannot be registered here: %s", device->name,
                             what);
        break;
    default:
        (void)base_error_sys(error, sys_errno, "%s: %s", device->name, what);
        break;
    }
    if (error)
        error->code = code;
    return code;
}

/* Both ways to one, but for the call itself. */
struct registration {
    const char *call; /* for messages */
    void *address;
    int dmabuf_fd; /* -1: memory of ours, at address */
    uint64_t offset_bytes, len_bytes;
    unsigned access;
};

static int make(struct verbs_pd *pd, const struct registration *r, struct verbs_mr **mr, struct penstock_error *error)
{
    struct verbs_device *device = pd->device;
    const struct verbs_ib_api *api = verbs_ib_api(device);
    struct ibv_pd *ib = VERBS_IB_CAST(struct verbs_ib_pd, pd)->pd;
    char what[64];
    snprintf(what, sizeof what, "%s of %llu bytes", r->call, (unsigned long long)r->len_bytes);
    uint64_t most = verbs_ib_device(device)->attr.max_mr_size;
    if (r->len_bytes > most)
        return base_error_set(error, PENSTOCK_ELIMIT, "%s: %s: the device registers at most %llu at once", device->name,
                              what, (unsigned long long)most);
    struct verbs_ib_mr *m = malloc(sizeof *m);
    if (!m)
        return base_error_sys(error, ENOMEM, "%s: memory region", device->name);
    errno = 0;
    if (r->dmabuf_fd < 0)
        m->mr = register_memory(api, ib, r->address, r->len_bytes, r->access);
    else
        m->mr = api->reg_dmabuf_mr(ib, r->offset_bytes, r->len_bytes, 0, r->dmabuf_fd, (int)verbs_ib_access(r->access));
    if (!m->mr) {
        int e = verbs_ib_null_errno();
        free(m);
        return register_error(device, what, e, error);
    }
    m->base = (struct verbs_mr){
        .pd = pd, .base = (uintptr_t)r->address, .len_bytes = r->len_bytes, .lkey = m->mr->lkey, .rkey = m->mr->rkey
    };
    *mr = &m->base;
    return 0;
}

int verbs_ib_mr_new(struct verbs_pd *pd, void *address, uint64_t len_bytes, unsigned access, struct verbs_mr **mr,
                    struct penstock_error *error)
{
    const struct registration r = {
        .call = "ibv_reg_mr", .address = address, .dmabuf_fd = -1, .len_bytes = len_bytes, .access = access
    };
    return make(pd, &r, mr, error);
}

int verbs_ib_mr_dmabuf_new(struct verbs_pd *pd, int dmabuf_fd, uint64_t offset_bytes, uint64_t len_bytes,
                           unsigned access, struct verbs_mr **mr, struct penstock_error *error)
{
    if (!verbs_ib_api(pd->device)->reg_dmabuf_mr)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "%s: this libibverbs cannot register device memory: ibv_reg_dmabuf_mr came with "
                              "rdma-core 34",
                              pd->device->name);
    const struct registration r = { .call = "ibv_reg_dmabuf_mr",
                                    .dmabuf_fd = dmabuf_fd,
                                    .offset_bytes = offset_bytes,
                                    .len_bytes = len_bytes,
                                    .access = access };
    return make(pd, &r, mr, error);
}

void verbs_ib_mr_free(struct verbs_mr *mr)
{
    struct verbs_ib_mr *m = VERBS_IB_CAST(struct verbs_ib_mr, mr);
    (void)verbs_ib_api(mr->pd->device)->dereg_mr(m->mr);
    free(m);
}
