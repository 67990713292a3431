#include "fabric.h"

#define RETRIES_EXCEEDED 12 /* ibv_wc_status */

static struct sim_fabric *lock(struct sim_world *host)
{
    pthread_mutex_lock(&host->fabric->lock);
    return host->fabric;
}

static void unlock(struct sim_fabric *fabric)
{
    pthread_mutex_unlock(&fabric->lock);
}

void sim_fail_calls(struct verbs_world *world, enum sim_call call, uint64_t first, uint64_t n, int code)
{
    struct sim_world *host = (struct sim_world *)world;
    struct sim_fabric *fabric = lock(host);
    host->calls[call].fail_from = host->calls[call].calls + first;
    host->calls[call].fail_to = host->calls[call].fail_from + n;
    host->calls[call].code = code;
    unlock(fabric);
}

uint64_t sim_calls(const struct verbs_world *world, enum sim_call call)
{
    const struct sim_world *host = (const struct sim_world *)world;
    pthread_mutex_lock(&host->fabric->lock);
    uint64_t n = host->calls[call].calls;
    pthread_mutex_unlock(&host->fabric->lock);
    return n;
}

void sim_fail_completion(struct verbs_world *world, uint64_t nth, int status)
{
    struct sim_world *host = (struct sim_world *)world;
    struct sim_fabric *fabric = lock(host);
    host->fail_completion = host->ended + nth;
    host->fail_status = status;
    unlock(fabric);
}

static bool goes_through(const struct sim_port *end, const struct sim_port *port, const struct sim_world *host)
{
    return port ? end == port : end->device->world == host; /* one of both is given */
}

/* What is under way through a port, or to and from a host, is lost: never heard of again, or given up after the
 * retries. */
static void cut(struct sim_fabric *fabric, const struct sim_port *port, const struct sim_world *host)
{
    base_list_for_each (node, &fabric->qps) {
        struct sim_qp *qp = base_list_entry(node, struct sim_qp, node);
        const struct sim_qp *peer = sim_wire_numbered(fabric, qp->link.peer_qpn);
        bool lost = qp->port->drop || (peer && peer->port->drop);
        if (!goes_through(qp->port, port, host) && !(peer && goes_through(peer->port, port, host)))
            continue;
        int64_t ends_ps = lost ? SIM_NEVER : fabric->now_ps + fabric->options.retry_ns * SIM_PS;
        for (uint64_t at = qp->head; at < qp->wire; at++) {
            sim_work_at(qp, at)->ends_ps = qp->last_ps = ends_ps;
            sim_work_at(qp, at)->status = RETRIES_EXCEEDED;
        }
    }
}

static void raise_event(struct sim_port *port, enum verbs_event event)
{
    base_list_for_each (node, &port->device->handles) {
        struct sim_handle *handle = base_list_entry(node, struct sim_handle, node);
        if (handle->n_events == SIM_EVENTS_MAX)
            continue;
        handle->events[handle->n_events].event = event;
        handle->events[handle->n_events++].port = port->number;
    }
}

void sim_port_drop(struct sim_port *port, bool drop)
{
    struct sim_fabric *fabric = lock(port->device->world);
    port->drop = drop;
    if (drop)
        cut(fabric, port, NULL);
    unlock(fabric);
}

void sim_port_down(struct sim_port *port)
{
    struct sim_fabric *fabric = lock(port->device->world);
    port->active = false;
    raise_event(port, VERBS_EVENT_PORT_DOWN);
    cut(fabric, port, NULL);
    unlock(fabric);
}

void sim_port_up(struct sim_port *port)
{
    struct sim_fabric *fabric = lock(port->device->world);
    port->active = true;
    raise_event(port, VERBS_EVENT_OTHER);
    unlock(fabric);
}

static int64_t stretched(const struct sim_fabric *fabric, int64_t ps, double by)
{
    int64_t left_ps = ps - fabric->now_ps;
    return ps == SIM_NEVER || left_ps <= 0 ? ps : fabric->now_ps + (int64_t)((double)left_ps * by);
}

/* What is on the wire takes longer, or less, in proportion. The lines at its other ends are taken for as long. */
void sim_port_rate(struct sim_port *port, double gbps)
{
    struct sim_fabric *fabric = lock(port->device->world);
    double by = port->options.gbps / gbps;
    port->options.gbps = gbps;
    port->in_free_ps = stretched(fabric, port->in_free_ps, by);
    port->out_free_ps = stretched(fabric, port->out_free_ps, by);
    base_list_for_each (node, &fabric->qps) {
        struct sim_qp *qp = base_list_entry(node, struct sim_qp, node);
        const struct sim_qp *peer = sim_wire_numbered(fabric, qp->link.peer_qpn);
        if (qp->port != port && !(peer && peer->port == port))
            continue;
        for (uint64_t at = qp->head; at < qp->wire; at++)
            sim_work_at(qp, at)->ends_ps = stretched(fabric, sim_work_at(qp, at)->ends_ps, by);
        qp->last_ps = stretched(fabric, qp->last_ps, by);
    }
    unlock(fabric);
}

void sim_port_delay(struct sim_port *port, int64_t ns)
{
    struct sim_fabric *fabric = lock(port->device->world);
    port->delay_ps = ns * SIM_PS;
    unlock(fabric);
}

void sim_port_jitter(struct sim_port *port, int64_t max_ns, uint64_t seed)
{
    struct sim_fabric *fabric = lock(port->device->world);
    port->jitter_ps = max_ns * SIM_PS;
    port->random = seed | 1;
    unlock(fabric);
}

void sim_device_gone(struct sim_port *port)
{
    struct sim_fabric *fabric = lock(port->device->world);
    port->device->gone = true;
    raise_event(port, VERBS_EVENT_DEVICE_GONE);
    base_list_for_each (node, &fabric->qps) {
        struct sim_qp *qp = base_list_entry(node, struct sim_qp, node);
        if (qp->port->device == port->device)
            sim_wire_fail(fabric, qp, VERBS_STATUS_FLUSHED);
    }
    unlock(fabric);
}

void sim_host_kill(struct verbs_world *world)
{
    struct sim_world *host = (struct sim_world *)world;
    struct sim_fabric *fabric = lock(host);
    host->killed = true;
    cut(fabric, NULL, host);
    unlock(fabric);
}
