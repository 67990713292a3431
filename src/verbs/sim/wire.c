#include <string.h>

#include "fabric.h"

/* ibv_wc_status */
#define LOCAL_LENGTH 1
#define REMOTE_INVALID 9
#define REMOTE_ACCESS 10
#define RETRIES_EXCEEDED 12

#define PSN_MASK 0xffffffu

struct sim_qp *sim_wire_numbered(const struct sim_fabric *fabric, uint32_t qpn)
{
    for (const struct base_list *node = fabric->qps.next; node != &fabric->qps; node = node->next) {
        struct sim_qp *qp = base_list_entry(node, struct sim_qp, node);
        if (qp->base.qpn == qpn)
            return qp;
    }
    return NULL;
}

static bool is_up(const struct sim_port *port)
{
    return port->active && !port->device->gone && !port->device->world->killed;
}

struct sim_qp *sim_wire_peer(struct sim_fabric *fabric, const struct sim_qp *qp)
{
    const struct verbs_qp_link *link = &qp->link;
    struct sim_qp *peer = sim_wire_numbered(fabric, link->peer_qpn);
    if (!peer || peer->state != SIM_RTS || !is_up(qp->port) || !is_up(peer->port))
        return NULL;
    bool paired = peer->link.peer_qpn == qp->base.qpn && memcmp(peer->gid, link->peer_gid, sizeof peer->gid) == 0 &&
                  memcmp(qp->gid, peer->link.peer_gid, sizeof qp->gid) == 0;
    bool in_step = ((link->own_psn ^ peer->link.peer_psn) & PSN_MASK) == 0 &&
                   ((link->peer_psn ^ peer->link.own_psn) & PSN_MASK) == 0;
    return paired && in_step ? peer : NULL;
}

/* ---- onto the wire ---- */

static int64_t latest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* Both ports' lines are taken for as long as the slower one needs. The answer to a READ takes the peer's outgoing
 * line half a round trip before it takes ours. */
static int64_t schedule(struct sim_fabric *fabric, struct sim_qp *qp, struct sim_qp *peer, const struct sim_work *work)
{
    struct sim_port *own = qp->port, *far = peer->port;
    double gbps = own->options.gbps < far->options.gbps ? own->options.gbps : far->options.gbps;
    int64_t takes_ps = (int64_t)((double)work->len_bytes * 8000 / gbps);
    int64_t half_ps = fabric->options.rtt_ns * SIM_PS / 2, end;
    if (work->opcode == VERBS_READ) {
        int64_t start = latest(fabric->now_ps + half_ps, latest(far->out_free_ps, own->in_free_ps - half_ps));
        end = far->out_free_ps = start + takes_ps;
        own->in_free_ps = end + half_ps;
    } else {
        int64_t start = latest(fabric->now_ps, latest(own->out_free_ps, far->in_free_ps - half_ps));
        own->out_free_ps = start + takes_ps;
        end = far->in_free_ps = start + takes_ps + half_ps;
    }
    end += half_ps + own->delay_ps + far->delay_ps;
    if (own->jitter_ps > 0)
        end += (int64_t)(random_next(&own->random) % (uint64_t)own->jitter_ps);
    return end;
}

static void launch(struct sim_fabric *fabric, struct sim_qp *qp, struct sim_work *work)
{
    const struct sim_qp *other = sim_wire_numbered(fabric, qp->link.peer_qpn);
    struct sim_qp *peer = sim_wire_peer(fabric, qp);
    if (work->status != 0) {
        work->ends_ps = fabric->now_ps;
    } else if (qp->port->drop || (other && other->port->drop)) {
        work->ends_ps = SIM_NEVER;
    } else if (!peer) {
        work->ends_ps = fabric->now_ps + fabric->options.retry_ns * SIM_PS;
        work->status = RETRIES_EXCEEDED;
    } else {
        work->ends_ps = schedule(fabric, qp, peer, work);
        if (qp->link.mtu != peer->link.mtu)
            work->status = LOCAL_LENGTH;
        else if (work->opcode == VERBS_READ && qp->reads_on_wire >= peer->link.reads_in)
            work->status = REMOTE_INVALID;
    }
    /* In the order posted. */
    qp->last_ps = work->ends_ps = latest(work->ends_ps, qp->last_ps);
}

void sim_wire_issue(struct sim_fabric *fabric, struct sim_qp *qp)
{
    for (; qp->state == SIM_RTS && qp->wire < qp->tail; qp->wire++) {
        struct sim_work *work = sim_work_at(qp, qp->wire);
        if (work->opcode == VERBS_READ && qp->reads_on_wire >= qp->link.reads_out)
            return; /* and what is behind it waits too */
        launch(fabric, qp, work);
        qp->reads_on_wire += work->opcode == VERBS_READ;
        uint32_t on_wire = (uint32_t)(qp->wire + 1 - qp->head);
        if (on_wire > qp->port->counters.wire_max)
            qp->port->counters.wire_max = on_wire;
    }
}

/* ---- off the wire ---- */

static void complete(struct sim_qp *qp, const struct sim_work *work, int status)
{
    struct sim_counters *counters = &qp->port->counters;
    qp->head++;
    if (status == 0) {
        counters->completed++;
        counters->bytes += work->len_bytes;
    } else {
        counters->failed++;
    }
    if (status == 0 && !work->signaled)
        return;
    struct sim_cqe cqe = { .completion = { .context = work->context,
                                           .status = status,
                                           .vendor_error = status ? 0x80u + (uint32_t)status : 0 },
                           .qp = qp,
                           .ends = qp->head };
    sim_cq_push((struct sim_cq *)qp->base.cq, &cqe);
}

void sim_wire_fail(struct sim_fabric *fabric, struct sim_qp *qp, int status)
{
    (void)fabric;
    qp->state = SIM_ERR;
    for (; qp->head < qp->tail; status = VERBS_STATUS_FLUSHED)
        complete(qp, sim_work_at(qp, qp->head), status);
    qp->wire = qp->tail;
    qp->reads_on_wire = 0;
}

/* Checks all of a work request, and only then moves its bytes. */
static int move(struct sim_fabric *fabric, const struct sim_qp *qp, const struct sim_qp *peer,
                const struct sim_work *work)
{
    bool is_read = work->opcode == VERBS_READ;
    unsigned far_access = is_read ? VERBS_REMOTE_READ : VERBS_REMOTE_WRITE;
    unsigned own_access = is_read ? VERBS_LOCAL_WRITE : 0;
    int status = 0;
    for (uint32_t i = 0; i < work->n_sges; i++)
        if (!sim_mr_local(fabric, &work->sges[i], qp->base.pd, own_access, &status))
            return status;
    uint8_t *far = sim_mr_remote(fabric, work->remote, work->len_bytes, work->rkey, peer->base.pd, far_access, &status);
    if (!far || !(peer->options.access & far_access))
        return REMOTE_ACCESS;
    if (fabric->options.no_copy)
        return 0;
    for (uint32_t i = 0; i < work->n_sges; i++) {
        const struct verbs_sge *sge = &work->sges[i];
        uint8_t *own = sim_mr_local(fabric, sge, qp->base.pd, own_access, &status);
        memmove(is_read ? own : far, is_read ? far : own, sge->len_bytes);
        far += sge->len_bytes;
    }
    return 0;
}

/* The oldest request of the QP is over, or found to have nobody to answer it. */
static void end_one(struct sim_fabric *fabric, struct sim_qp *qp)
{
    struct sim_world *host = qp->port->device->world;
    struct sim_work *work = sim_work_at(qp, qp->head);
    struct sim_qp *peer = sim_wire_peer(fabric, qp);
    if (work->status == 0 && !peer) {
        work->status = RETRIES_EXCEEDED;
        work->ends_ps = fabric->now_ps + fabric->options.retry_ns * SIM_PS;
        return;
    }
    int status = work->status;
    if (++host->ended == host->fail_completion)
        status = host->fail_status;
    if (status == 0)
        status = move(fabric, qp, peer, work);
    if (status != 0) {
        sim_wire_fail(fabric, qp, status);
        return;
    }
    qp->reads_on_wire -= work->opcode == VERBS_READ;
    complete(qp, work, 0);
    sim_wire_issue(fabric, qp);
}

static struct sim_qp *next_to_end(const struct sim_fabric *fabric, int64_t *at_ps)
{
    struct sim_qp *first = NULL;
    *at_ps = SIM_NEVER;
    for (const struct base_list *node = fabric->qps.next; node != &fabric->qps; node = node->next) {
        struct sim_qp *qp = base_list_entry(node, struct sim_qp, node);
        if (qp->head < qp->wire && sim_work_at(qp, qp->head)->ends_ps < *at_ps) {
            first = qp;
            *at_ps = sim_work_at(qp, qp->head)->ends_ps;
        }
    }
    return first;
}

int64_t sim_wire_next(const struct sim_fabric *fabric)
{
    int64_t at_ps;
    next_to_end(fabric, &at_ps);
    return at_ps;
}

void sim_wire_run(struct sim_fabric *fabric, int64_t until_ps)
{
    int64_t at_ps;
    struct sim_qp *qp;
    while ((qp = next_to_end(fabric, &at_ps)) && at_ps <= until_ps) {
        fabric->now_ps = latest(fabric->now_ps, at_ps);
        end_one(fabric, qp);
    }
    fabric->now_ps = latest(fabric->now_ps, until_ps);
}
