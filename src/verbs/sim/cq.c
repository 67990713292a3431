#include <stdlib.h>

#include "fabric.h"

int sim_cq_new(struct verbs_device *device, uint32_t depth, struct verbs_cq **out, struct penstock_error *error)
{
    struct sim_world *host = sim_world_of(device);
    pthread_mutex_lock(&host->fabric->lock);
    int code = sim_called(host, SIM_CQ_NEW, device->name, error);
    struct sim_cq *cq = NULL;
    if (code == 0) {
        cq = calloc(1, sizeof *cq);
        if (cq)
            cq->ring = calloc(depth, sizeof *cq->ring);
        if (!cq || !cq->ring || depth == 0)
            code = base_error_set(error, PENSTOCK_ENOMEM, "ibv_create_cq on %s: depth %u", device->name, depth);
    }
    if (code == 0) {
        cq->base = (struct verbs_cq){ .device = device, .fd = -1 };
        cq->depth = depth;
        ((struct sim_handle *)device)->n_cqs++;
        host->objects.cqs++;
        *out = &cq->base;
    } else if (cq) {
        free(cq->ring);
        free(cq);
    }
    pthread_mutex_unlock(&host->fabric->lock);
    return code;
}

void sim_cq_free(struct verbs_cq *base)
{
    struct sim_cq *cq = (struct sim_cq *)base;
    struct sim_world *host = sim_world_of(base->device);
    pthread_mutex_lock(&host->fabric->lock);
    if (cq->n_qps > 0) {
        sim_misused(host->fabric, "a CQ of %s is freed before its %u QPs", base->device->name, cq->n_qps);
    } else {
        host->unpolled -= cq->n;
        ((struct sim_handle *)base->device)->n_cqs--;
        host->objects.cqs--;
        free(cq->ring);
        free(cq);
    }
    pthread_mutex_unlock(&host->fabric->lock);
}

int sim_cq_arm(struct verbs_cq *cq, struct penstock_error *error)
{
    struct sim_world *host = sim_world_of(cq->device);
    pthread_mutex_lock(&host->fabric->lock);
    int code = sim_called(host, SIM_CQ_ARM, cq->device->name, error);
    pthread_mutex_unlock(&host->fabric->lock);
    return code;
}

void sim_cq_push(struct sim_cq *cq, const struct sim_cqe *cqe)
{
    struct sim_world *host = sim_world_of(cq->base.device);
    if (cq->n == cq->depth) {
        cq->overrun = true;
        sim_misused(host->fabric, "a CQ of %s is overrun: its depth of %u is too small", cq->base.device->name,
                    cq->depth);
        return;
    }
    cq->ring[(cq->first + cq->n++) % cq->depth] = *cqe;
    host->unpolled++;
}

void sim_cq_forget(struct sim_cq *cq, const struct sim_qp *qp)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cq->n; i++) {
        const struct sim_cqe *cqe = &cq->ring[(cq->first + i) % cq->depth];
        if (cqe->qp != qp)
            cq->ring[(cq->first + kept++) % cq->depth] = *cqe;
    }
    sim_world_of(cq->base.device)->unpolled -= cq->n - kept;
    cq->n = kept;
}

static int take(struct sim_cq *cq, struct verbs_completion *completions, int max)
{
    struct sim_world *host = sim_world_of(cq->base.device);
    uint64_t ended = 0;
    int n = 0;
    for (; n < max && cq->n > 0; n++) {
        const struct sim_cqe *cqe = &cq->ring[cq->first];
        completions[n] = cqe->completion;
        ended += cqe->ends - cqe->qp->free;
        cqe->qp->free = cqe->ends;
        cq->first = (cq->first + 1) % cq->depth;
        cq->n--;
    }
    host->unpolled -= (uint64_t)n;
    if (ended > 0 && host->costs.completion_ns > 0)
        sim_wire_run(host->fabric, host->fabric->now_ps + (int64_t)ended * host->costs.completion_ns * SIM_PS);
    return n;
}

int sim_cq_poll(struct verbs_cq *base, struct verbs_completion *completions, int max, struct penstock_error *error)
{
    struct sim_cq *cq = (struct sim_cq *)base;
    struct sim_world *host = sim_world_of(base->device);
    struct sim_fabric *fabric = host->fabric;
    pthread_mutex_lock(&fabric->lock);
    int n = sim_called(host, SIM_CQ_POLL, "this host", error);
    if (n == 0 && cq->overrun)
        n = base_error_set(error, PENSTOCK_ECLOSED, "ibv_poll_cq on %s: the CQ is overrun", base->device->name);
    if (n == 0 && cq->n == 0 && fabric->options.automatic) {
        int64_t next = sim_wire_next(fabric);
        if (next != SIM_NEVER)
            sim_wire_run(fabric, next);
    }
    if (n == 0)
        n = take(cq, completions, max);
    pthread_mutex_unlock(&fabric->lock);
    return n;
}
