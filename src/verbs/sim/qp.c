#include <stdlib.h>
#include <string.h>

#include "fabric.h"

#define LOCAL_LENGTH 1 /* ibv_wc_status */

static struct sim_port *port_numbered(struct verbs_device *device, uint8_t number)
{
    base_list_for_each (node, &((struct sim_handle *)device)->device->ports) {
        struct sim_port *port = base_list_entry(node, struct sim_port, node);
        if (port->number == number)
            return port;
    }
    return NULL;
}

static int options_check(const struct verbs_qp_options *options, const struct sim_port *port, const char *name,
                         struct penstock_error *error)
{
    if (!port)
        return base_error_set(error, PENSTOCK_EINVAL, "%s has no port %u", name, options->port);
    if (options->depth == 0 || options->depth > port->options.work_requests_max ||
        options->sges_max > port->options.sges_max)
        return base_error_set(
            error, PENSTOCK_EINVAL, "ibv_create_qp on %s: %u work requests of %u SGEs: at most %u of %u", name,
            options->depth, options->sges_max, port->options.work_requests_max, port->options.sges_max);
    return 0;
}

static void qp_destroy(struct sim_qp *qp)
{
    free(qp->work);
    free(qp->sges);
    free(qp);
}

static struct sim_qp *qp_create(const struct verbs_qp_options *options)
{
    struct sim_qp *qp = calloc(1, sizeof *qp);
    if (!qp)
        return NULL;
    uint32_t sges_max = options->sges_max ? options->sges_max : 1;
    qp->options = *options;
    qp->options.sges_max = sges_max;
    qp->work = calloc(options->depth, sizeof *qp->work);
    qp->sges = calloc((size_t)options->depth * sges_max, sizeof *qp->sges);
    if (!qp->work || !qp->sges) {
        qp_destroy(qp);
        return NULL;
    }
    for (uint32_t i = 0; i < options->depth; i++)
        qp->work[i].sges = &qp->sges[(size_t)i * sges_max];
    return qp;
}

int sim_qp_new(struct verbs_pd *pd, struct verbs_cq *cq, const struct verbs_qp_options *options, struct verbs_qp **out,
               struct penstock_error *error)
{
    struct sim_world *host = sim_world_of(pd->device);
    struct sim_fabric *fabric = host->fabric;
    pthread_mutex_lock(&fabric->lock);
    int code = sim_called(host, SIM_QP_NEW, pd->device->name, error);
    struct sim_port *port = port_numbered(pd->device, options->port);
    if (code == 0)
        code = options_check(options, port, pd->device->name, error);
    if (code == 0 && cq->device != pd->device)
        sim_misused(fabric, "a QP on %s with a CQ of another device", pd->device->name);
    struct sim_qp *qp = code == 0 ? qp_create(options) : NULL;
    if (code == 0 && !qp)
        code = base_error_set(error, PENSTOCK_ENOMEM, "no memory for a QP on %s", pd->device->name);
    if (code == 0) {
        qp->base = (struct verbs_qp){ .pd = pd, .cq = cq, .qpn = ++fabric->last_qpn };
        qp->port = port;
        base_list_append(&fabric->qps, &qp->node);
        ((struct sim_pd *)pd)->n_qps++;
        ((struct sim_cq *)cq)->n_qps++;
        host->objects.qps++;
        *out = &qp->base;
    }
    pthread_mutex_unlock(&fabric->lock);
    return code;
}

void sim_qp_free(struct verbs_qp *base)
{
    struct sim_qp *qp = (struct sim_qp *)base;
    struct sim_world *host = sim_world_of(base->pd->device);
    pthread_mutex_lock(&host->fabric->lock);
    base_list_remove(&qp->node);
    sim_cq_forget((struct sim_cq *)base->cq, qp);
    ((struct sim_pd *)base->pd)->n_qps--;
    ((struct sim_cq *)base->cq)->n_qps--;
    host->objects.qps--;
    pthread_mutex_unlock(&host->fabric->lock);
    qp_destroy(qp);
}

static int connect_check(const struct sim_qp *qp, const struct verbs_qp_link *link, struct penstock_error *error)
{
    const struct sim_port_options *o = &qp->port->options;
    const char *name = qp->port->device->name;
    if (link->mtu < 1 || link->mtu > o->mtu)
        return base_error_set(error, PENSTOCK_EINVAL, "ibv_modify_qp (RTR) on %s: path MTU %u, the port's is %u", name,
                              link->mtu, o->mtu);
    if (link->reads_in > o->reads_in)
        return base_error_set(error, PENSTOCK_EINVAL, "ibv_modify_qp (RTR) on %s: %u READs to take, at most %u", name,
                              link->reads_in, o->reads_in);
    if (link->reads_out > o->reads_out)
        return base_error_set(error, PENSTOCK_EINVAL, "ibv_modify_qp (RTS) on %s: %u READs outstanding, at most %u",
                              name, link->reads_out, o->reads_out);
    return 0;
}

static int connect_in(struct sim_qp *qp, const struct verbs_qp_link *link, struct penstock_error *error)
{
    struct sim_world *host = qp->port->device->world;
    int code = sim_called(host, SIM_QP_CONNECT, qp->port->device->name, error);
    if (code == 0)
        code = connect_check(qp, link, error);
    if (code != 0)
        return code;
    if (qp->state != SIM_INIT)
        sim_misused(host->fabric, "QP %u of %s is connected twice", qp->base.qpn, qp->port->device->name);
    base_vec_for_each (gid, &qp->port->gids) {
        if (gid->index != qp->options.gid_index)
            continue;
        memcpy(qp->gid, gid->raw, sizeof qp->gid);
        qp->link = *link;
        qp->state = SIM_RTS;
        return 0;
    }
    return base_error_set(error, PENSTOCK_EINVAL, "ibv_modify_qp (RTR) on %s: there is no GID %u",
                          qp->port->device->name, qp->options.gid_index);
}

int sim_qp_connect(struct verbs_qp *qp, const struct verbs_qp_link *link, struct penstock_error *error)
{
    struct sim_fabric *fabric = sim_fabric_of(qp->pd->device);
    pthread_mutex_lock(&fabric->lock);
    int code = connect_in((struct sim_qp *)qp, link, error);
    pthread_mutex_unlock(&fabric->lock);
    return code;
}

int sim_qp_query(struct verbs_qp *base, struct verbs_qp_state *state, struct penstock_error *error)
{
    static const char names[][sizeof state->state] = { [SIM_INIT] = "INIT", [SIM_RTS] = "RTS", [SIM_ERR] = "ERR" };
    struct sim_qp *qp = (struct sim_qp *)base;
    struct sim_world *host = sim_world_of(base->pd->device);
    pthread_mutex_lock(&host->fabric->lock);
    int code = sim_called(host, SIM_QP_QUERY, base->pd->device->name, error);
    if (code == 0) {
        *state = (struct verbs_qp_state){ .mtu = qp->link.mtu,
                                          .reads_out = qp->link.reads_out,
                                          .reads_in = qp->link.reads_in };
        memcpy(state->state, names[qp->state], sizeof state->state);
    }
    pthread_mutex_unlock(&host->fabric->lock);
    return code;
}

/* ---- posting ---- */

static int post_one(struct sim_qp *qp, const struct verbs_request *request, struct penstock_error *error)
{
    struct sim_device *device = qp->port->device;
    int code = sim_called(device->world, SIM_POST, device->name, error);
    if (code != 0)
        return code;
    if (qp->tail - qp->free == qp->options.depth)
        return base_error_set(error, PENSTOCK_ENOMEM, "ibv_post_send on %s: the send queue of %u is full", device->name,
                              qp->options.depth);
    if (request->n_sges > qp->options.sges_max)
        return base_error_set(error, PENSTOCK_EINVAL, "ibv_post_send on %s: %u SGEs, at most %u", device->name,
                              request->n_sges, qp->options.sges_max);
    struct sim_work *work = sim_work_at(qp, qp->tail);
    struct verbs_sge *sges = work->sges;
    *work = (struct sim_work){ .opcode = request->opcode,
                               .signaled = request->signaled,
                               .remote = request->remote,
                               .rkey = request->rkey,
                               .n_sges = request->n_sges,
                               .context = request->context,
                               .sges = sges };
    for (uint32_t i = 0; i < request->n_sges; i++) {
        sges[i] = request->sges[i];
        work->len_bytes += sges[i].len_bytes;
    }
    if (work->len_bytes > qp->port->options.message_bytes_max)
        work->status = LOCAL_LENGTH;
    qp->tail++;
    qp->port->counters.work_requests++;
    qp->port->counters.signaled += request->signaled;
    return 0;
}

static int post_in(struct sim_qp *qp, const struct verbs_request *requests, size_t n, size_t *posted,
                   struct penstock_error *error)
{
    struct sim_world *host = qp->port->device->world;
    struct sim_fabric *fabric = host->fabric;
    const char *name = qp->port->device->name;
    *posted = 0;
    if (n == 0 || n > VERBS_CHAIN_MAX)
        sim_misused(fabric, "%zu work requests posted at once on %s", n, name);
    if (qp->state == SIM_INIT) {
        sim_misused(fabric, "QP %u of %s is posted to before it is connected", qp->base.qpn, name);
        return base_error_set(error, PENSTOCK_EINVAL, "ibv_post_send on %s: the QP is in INIT", name);
    }
    if (qp->rejects)
        return base_error_set(error, PENSTOCK_EINVAL, "ibv_post_send on %s: a post to this QP has failed before", name);
    sim_wire_run(fabric, fabric->now_ps + (int64_t)n * host->costs.post_ns * SIM_PS);
    qp->port->counters.doorbells++;
    int code = 0;
    for (; code == 0 && *posted < n; *posted += code == 0)
        code = post_one(qp, &requests[*posted], error);
    qp->rejects = code != 0;
    if (qp->state == SIM_ERR)
        sim_wire_fail(fabric, qp, VERBS_STATUS_FLUSHED);
    else
        sim_wire_issue(fabric, qp);
    return code;
}

int sim_post(struct verbs_qp *qp, const struct verbs_request *requests, size_t n, size_t *posted,
             struct penstock_error *error)
{
    struct sim_fabric *fabric = sim_fabric_of(qp->pd->device);
    pthread_mutex_lock(&fabric->lock);
    int code = post_in((struct sim_qp *)qp, requests, n, posted, error);
    pthread_mutex_unlock(&fabric->lock);
    return code;
}
