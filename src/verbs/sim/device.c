#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric.h"

static const char *const call_names[SIM_CALLS] = {
    [SIM_PORTS] = "ibv_get_device_list",
    [SIM_DEVICE_OPEN] = "ibv_open_device",
    [SIM_PD_NEW] = "ibv_alloc_pd",
    [SIM_MR_NEW] = "ibv_reg_mr",
    [SIM_MR_DMABUF_NEW] = "ibv_reg_dmabuf_mr",
    [SIM_CQ_NEW] = "ibv_create_cq",
    [SIM_CQ_ARM] = "ibv_req_notify_cq",
    [SIM_CQ_POLL] = "ibv_poll_cq",
    [SIM_QP_NEW] = "ibv_create_qp",
    [SIM_QP_CONNECT] = "ibv_modify_qp",
    [SIM_QP_QUERY] = "ibv_query_qp",
    [SIM_POST] = "ibv_post_send",
};

struct sim_world *sim_world_of(struct verbs_device *device)
{
    return (struct sim_world *)device->world;
}

struct sim_fabric *sim_fabric_of(struct verbs_device *device)
{
    return sim_world_of(device)->fabric;
}

int sim_called(struct sim_world *world, enum sim_call call, const char *name, struct penstock_error *error)
{
    uint64_t n = ++world->calls[call].calls;
    if (n >= world->calls[call].fail_from && n < world->calls[call].fail_to)
        return base_error_set(error, world->calls[call].code, "%s on %s fails, as the test wants it", call_names[call],
                              name);
    base_list_for_each (node, &world->devices) {
        struct sim_device *device = base_list_entry(node, struct sim_device, node);
        if (device->gone && strcmp(device->name, name) == 0)
            return base_error_sys(error, EIO, "%s on %s, which is gone", call_names[call], name);
    }
    return 0;
}

static void world_free(struct verbs_world *world)
{
    (void)world;
}

/* ---- what there is ---- */

static int port_describe(const struct sim_port *port, struct verbs_port *out)
{
    const struct sim_port_options *o = &port->options;
    *out = (struct verbs_port){ .port = port->number,
                                .active = port->active,
                                .ethernet = !o->infiniband,
                                .mtu = o->mtu,
                                .gbps = o->gbps,
                                .reads_out = o->reads_out,
                                .reads_in = o->reads_in,
                                .work_requests_max = o->work_requests_max,
                                .sges_max = o->sges_max,
                                .mr_bytes_max = o->mr_bytes_max,
                                .message_bytes_max = o->message_bytes_max,
                                .n_gids = port->gids.n };
    memcpy(out->device, port->device->name, sizeof out->device);
    snprintf(out->state, sizeof out->state, "%s", port->active ? "ACTIVE" : "DOWN");
    if (port->gids.n > 0) {
        out->gids = malloc(port->gids.n * sizeof *out->gids);
        if (!out->gids)
            return PENSTOCK_ENOMEM;
        memcpy(out->gids, port->gids.at, port->gids.n * sizeof *out->gids);
    }
    return 0;
}

static int ports_of(struct sim_world *host, struct verbs_ports *ports, struct penstock_error *error)
{
    int code = sim_called(host, SIM_PORTS, "this host", error);
    if (code != 0)
        return code;
    size_t n = 0;
    base_list_for_each (at, &host->devices) {
        struct sim_device *device = base_list_entry(at, struct sim_device, node);
        base_list_for_each (node, &device->ports)
            n += !device->gone;
    }
    ports->at = calloc(n + 1, sizeof *ports->at);
    if (!ports->at)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu ports", n);
    base_list_for_each (at, &host->devices) {
        struct sim_device *device = base_list_entry(at, struct sim_device, node);
        base_list_for_each (node, &device->ports) {
            if (device->gone)
                continue;
            if (port_describe(base_list_entry(node, struct sim_port, node), &ports->at[ports->n]) != 0)
                return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a port's GIDs");
            ports->n++;
        }
    }
    return 0;
}

static int ports(struct verbs_world *world, struct verbs_ports *out, struct penstock_error *error)
{
    struct sim_world *host = (struct sim_world *)world;
    *out = (struct verbs_ports){ 0 };
    pthread_mutex_lock(&host->fabric->lock);
    int code = ports_of(host, out, error);
    pthread_mutex_unlock(&host->fabric->lock);
    if (code != 0)
        verbs_ports_fini(out);
    return code;
}

/* ---- opened devices ---- */

static int open_in(struct sim_world *host, const char *name, struct verbs_device **out, struct penstock_error *error)
{
    int code = sim_called(host, SIM_DEVICE_OPEN, name, error);
    if (code != 0)
        return code;
    base_list_for_each (node, &host->devices) {
        struct sim_device *device = base_list_entry(node, struct sim_device, node);
        if (strcmp(device->name, name) != 0)
            continue;
        struct sim_handle *handle = calloc(1, sizeof *handle);
        if (!handle)
            return base_error_set(error, PENSTOCK_ENOMEM, "no memory to open %s", name);
        handle->base.world = &host->base;
        handle->base.event_fd = -1;
        memcpy(handle->base.name, device->name, sizeof handle->base.name);
        handle->device = device;
        base_list_append(&device->handles, &handle->node);
        host->objects.devices++;
        *out = &handle->base;
        return 0;
    }
    return base_error_set(error, PENSTOCK_ENOTFOUND, "there is no RDMA device %s", name);
}

static int device_open(struct verbs_world *world, const char *name, struct verbs_device **device,
                       struct penstock_error *error)
{
    struct sim_world *host = (struct sim_world *)world;
    pthread_mutex_lock(&host->fabric->lock);
    int code = open_in(host, name, device, error);
    pthread_mutex_unlock(&host->fabric->lock);
    return code;
}

static void device_close(struct verbs_device *device)
{
    struct sim_handle *handle = (struct sim_handle *)device;
    struct sim_world *host = sim_world_of(device);
    pthread_mutex_lock(&host->fabric->lock);
    if (handle->n_pds || handle->n_cqs) {
        sim_misused(host->fabric, "%s is closed with %u PDs and %u CQs", device->name, handle->n_pds, handle->n_cqs);
    } else {
        base_list_remove(&handle->node);
        host->objects.devices--;
        free(handle);
    }
    pthread_mutex_unlock(&host->fabric->lock);
}

static enum verbs_event device_event(struct verbs_device *device, uint8_t *port)
{
    struct sim_handle *handle = (struct sim_handle *)device;
    struct sim_fabric *fabric = sim_fabric_of(device);
    enum verbs_event event = VERBS_EVENT_NONE;
    pthread_mutex_lock(&fabric->lock);
    if (handle->n_events > 0) {
        event = handle->events[0].event;
        *port = handle->events[0].port;
        handle->n_events--;
        memmove(&handle->events[0], &handle->events[1], handle->n_events * sizeof handle->events[0]);
    }
    pthread_mutex_unlock(&fabric->lock);
    return event;
}

/* ---- protection domains ---- */

static int pd_new(struct verbs_device *device, struct verbs_pd **out, struct penstock_error *error)
{
    struct sim_world *host = sim_world_of(device);
    pthread_mutex_lock(&host->fabric->lock);
    int code = sim_called(host, SIM_PD_NEW, device->name, error);
    struct sim_pd *pd = code == 0 ? calloc(1, sizeof *pd) : NULL;
    if (code == 0 && !pd)
        code = base_error_set(error, PENSTOCK_ENOMEM, "no memory for a PD on %s", device->name);
    if (code == 0) {
        pd->base.device = device;
        ((struct sim_handle *)device)->n_pds++;
        host->objects.pds++;
        *out = &pd->base;
    }
    pthread_mutex_unlock(&host->fabric->lock);
    return code;
}

static void pd_free(struct verbs_pd *base)
{
    struct sim_pd *pd = (struct sim_pd *)base;
    struct sim_world *host = sim_world_of(base->device);
    pthread_mutex_lock(&host->fabric->lock);
    if (pd->n_mrs || pd->n_qps) {
        sim_misused(host->fabric, "a PD of %s is freed with %u MRs and %u QPs", base->device->name, pd->n_mrs,
                    pd->n_qps);
    } else {
        ((struct sim_handle *)base->device)->n_pds--;
        host->objects.pds--;
        free(pd);
    }
    pthread_mutex_unlock(&host->fabric->lock);
}

const struct verbs_ops sim_ops = {
    .world_free = world_free,
    .ports = ports,
    .device_open = device_open,
    .device_close = device_close,
    .device_event = device_event,
    .pd_new = pd_new,
    .pd_free = pd_free,
    .mr_new = sim_mr_new,
    .mr_dmabuf_new = sim_mr_dmabuf_new,
    .mr_free = sim_mr_free,
    .cq_new = sim_cq_new,
    .cq_free = sim_cq_free,
    .cq_arm = sim_cq_arm,
    .cq_poll = sim_cq_poll,
    .qp_new = sim_qp_new,
    .qp_free = sim_qp_free,
    .qp_connect = sim_qp_connect,
    .qp_query = sim_qp_query,
    .post = sim_post,
};
