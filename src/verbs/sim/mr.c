#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric.h"

#define LOCAL_PROTECTION 4 /* ibv_wc_status */
#define REMOTE_ACCESS 10

uint32_t sim_lkey(uint32_t key)
{
    return key << 8 | 0x11;
}

uint32_t sim_rkey(uint32_t key)
{
    return key << 8 | 0x22; /* another than the lkey, so that mixing them up shows */
}

static struct sim_mr *mr_by_key(struct sim_fabric *fabric, uint32_t key)
{
    return key < fabric->mrs.n ? fabric->mrs.at[key] : NULL;
}

static uint8_t *bytes_at(const struct sim_mr *mr, const struct verbs_pd *pd, uint64_t address, uint64_t len_bytes,
                         unsigned access)
{
    if (!mr || mr->base.pd != pd || (mr->access & access) != access)
        return NULL;
    if (address < mr->base.base || len_bytes > mr->base.len_bytes ||
        address - mr->base.base > mr->base.len_bytes - len_bytes)
        return NULL;
    return mr->bytes + (address - mr->base.base);
}

uint8_t *sim_mr_local(struct sim_fabric *fabric, const struct verbs_sge *sge, const struct verbs_pd *pd,
                      unsigned access, int *status)
{
    struct sim_mr *mr = mr_by_key(fabric, sge->lkey >> 8);
    if (mr && mr->base.lkey != sge->lkey)
        mr = NULL;
    uint8_t *bytes = bytes_at(mr, pd, sge->address, sge->len_bytes, access);
    *status = bytes ? 0 : LOCAL_PROTECTION;
    return bytes;
}

uint8_t *sim_mr_remote(struct sim_fabric *fabric, uint64_t address, uint64_t len_bytes, uint32_t rkey,
                       const struct verbs_pd *pd, unsigned access, int *status)
{
    struct sim_mr *mr = mr_by_key(fabric, rkey >> 8);
    if (mr && mr->base.rkey != rkey)
        mr = NULL;
    uint8_t *bytes = bytes_at(mr, pd, address, len_bytes, access);
    *status = bytes ? 0 : REMOTE_ACCESS;
    return bytes;
}

static const struct sim_port_options *options_of(const struct verbs_pd *pd)
{
    const struct sim_device *device = ((const struct sim_handle *)pd->device)->device;
    return &base_list_entry(device->ports.next, struct sim_port, node)->options;
}

static int mr_add(struct verbs_pd *pd, const struct sim_mr *wanted, struct verbs_mr **out, struct penstock_error *error)
{
    struct sim_world *host = sim_world_of(pd->device);
    struct sim_fabric *fabric = host->fabric;
    uint64_t len = wanted->base.len_bytes;
    if (len == 0)
        return base_error_set(error, PENSTOCK_EINVAL, "ibv_reg_mr on %s: 0 bytes", pd->device->name);
    if (len > options_of(pd)->mr_bytes_max)
        return base_error_set(error, PENSTOCK_ELIMIT, "ibv_reg_mr on %s: %llu bytes are above the device's limit",
                              pd->device->name, (unsigned long long)len);
    if (len > host->memlock_bytes || host->objects.mr_bytes > host->memlock_bytes - len)
        return base_error_set(error, PENSTOCK_ELIMIT,
                              "ibv_reg_mr on %s: %llu bytes are above the memlock limit (ulimit -l)", pd->device->name,
                              (unsigned long long)len);
    struct sim_mr *mr = malloc(sizeof *mr);
    if (!mr || !(fabric->mrs.n > 0 || base_vec_push(&fabric->mrs, NULL)) || !base_vec_push(&fabric->mrs, mr)) {
        free(mr);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for an MR on %s", pd->device->name);
    }
    uint32_t key = (uint32_t)(fabric->mrs.n - 1); /* from 1 on */
    *mr = *wanted;
    mr->base.pd = pd;
    mr->base.lkey = sim_lkey(key);
    mr->base.rkey = sim_rkey(key);
    ((struct sim_pd *)pd)->n_mrs++;
    host->objects.mrs++;
    host->objects.mr_bytes += len;
    *out = &mr->base;
    return 0;
}

int sim_mr_new(struct verbs_pd *pd, void *address, uint64_t len_bytes, unsigned access, struct verbs_mr **mr,
               struct penstock_error *error)
{
    struct sim_world *host = sim_world_of(pd->device);
    struct sim_mr wanted = { .base = { .base = (uintptr_t)address, .len_bytes = len_bytes },
                             .bytes = address,
                             .access = access };
    pthread_mutex_lock(&host->fabric->lock);
    int code = sim_called(host, SIM_MR_NEW, pd->device->name, error);
    if (code == 0)
        code = mr_add(pd, &wanted, mr, error);
    pthread_mutex_unlock(&host->fabric->lock);
    return code;
}

/* The device's own view of the memory: whoever exported it may have its pages out of everybody's reach. */
static int dmabuf_map(struct verbs_pd *pd, int dmabuf_fd, uint64_t offset_bytes, uint64_t len_bytes,
                      struct sim_mr *wanted, struct penstock_error *error)
{
    if (options_of(pd)->no_dmabuf)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "ibv_reg_dmabuf_mr: %s cannot", pd->device->name);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), lead = offset_bytes % page;
    size_t len = (size_t)(lead + len_bytes);
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, dmabuf_fd, (off_t)(offset_bytes - lead));
    if (at == MAP_FAILED)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "ibv_reg_dmabuf_mr on %s: not memory that it can map",
                              pd->device->name);
    wanted->bytes = (uint8_t *)at + lead;
    wanted->mapping = at;
    wanted->mapping_bytes = len;
    return 0;
}

int sim_mr_dmabuf_new(struct verbs_pd *pd, int dmabuf_fd, uint64_t offset_bytes, uint64_t len_bytes, unsigned access,
                      struct verbs_mr **mr, struct penstock_error *error)
{
    struct sim_world *host = sim_world_of(pd->device);
    struct sim_mr wanted = { .base = { .len_bytes = len_bytes }, .access = access };
    pthread_mutex_lock(&host->fabric->lock);
    int code = sim_called(host, SIM_MR_DMABUF_NEW, pd->device->name, error);
    if (code == 0)
        code = dmabuf_map(pd, dmabuf_fd, offset_bytes, len_bytes, &wanted, error);
    if (code == 0)
        code = mr_add(pd, &wanted, mr, error);
    pthread_mutex_unlock(&host->fabric->lock);
    if (code != 0 && wanted.mapping)
        munmap(wanted.mapping, wanted.mapping_bytes);
    return code;
}

/* What may still be written to or read from at this end. */
static bool in_use(struct sim_fabric *fabric, const struct sim_mr *mr)
{
    base_list_for_each (node, &fabric->qps) {
        struct sim_qp *qp = base_list_entry(node, struct sim_qp, node);
        for (uint64_t at = qp->head; at < qp->tail; at++) {
            const struct sim_work *work = sim_work_at(qp, at);
            for (uint32_t i = 0; i < work->n_sges; i++)
                if (work->sges[i].lkey == mr->base.lkey)
                    return true;
        }
    }
    return false;
}

void sim_mr_free(struct verbs_mr *base)
{
    struct sim_mr *mr = (struct sim_mr *)base;
    struct sim_world *host = sim_world_of(base->pd->device);
    pthread_mutex_lock(&host->fabric->lock);
    if (in_use(host->fabric, mr)) {
        sim_misused(host->fabric, "an MR of %s is freed that work under way lands in", base->pd->device->name);
    } else {
        host->fabric->mrs.at[base->lkey >> 8] = NULL;
        ((struct sim_pd *)base->pd)->n_mrs--;
        host->objects.mrs--;
        host->objects.mr_bytes -= base->len_bytes;
        if (mr->mapping)
            munmap(mr->mapping, mr->mapping_bytes);
        free(mr);
    }
    pthread_mutex_unlock(&host->fabric->lock);
}
