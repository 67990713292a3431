#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric.h"

#define DEFAULT(value, otherwise) ((value) ? (value) : (otherwise))

struct sim_fabric *sim_new(const struct sim_options *options)
{
    struct sim_fabric *fabric = calloc(1, sizeof *fabric);
    if (!fabric)
        abort();
    if (options)
        fabric->options = *options;
    fabric->options.rtt_ns = DEFAULT(fabric->options.rtt_ns, 5000);
    fabric->options.retry_ns = DEFAULT(fabric->options.retry_ns, 500 * 1000000);
    pthread_mutex_init(&fabric->lock, NULL);
    base_list_init(&fabric->worlds);
    base_list_init(&fabric->qps);
    fabric->last_qpn = 0x100;
    return fabric;
}

static void device_free(struct sim_device *device)
{
    base_list_for_each (node, &device->ports) {
        struct sim_port *port = base_list_entry(node, struct sim_port, node);
        base_vec_free(&port->gids);
        free(port);
    }
    free(device);
}

void sim_free(struct sim_fabric *fabric)
{
    if (!fabric)
        return;
    base_list_for_each (node, &fabric->worlds) {
        struct sim_world *world = base_list_entry(node, struct sim_world, node);
        const struct sim_objects *left = &world->objects;
        if (left->devices)
            sim_misused(fabric, "host %u ends with %zu devices open, %zu PDs, %zu MRs, %zu CQs, %zu QPs", world->number,
                        left->devices, left->pds, left->mrs, left->cqs, left->qps);
        base_list_for_each (at, &world->devices)
            device_free(base_list_entry(at, struct sim_device, node));
        free(world);
    }
    base_vec_free(&fabric->mrs);
    pthread_mutex_destroy(&fabric->lock);
    free(fabric);
}

void sim_misused(struct sim_fabric *fabric, const char *format, ...)
{
    char words[sizeof fabric->misuse];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    if (!fabric->options.expect_misuse) {
        fprintf(stderr, "simulated fabric, misused: %s\n", words);
        abort();
    }
    if (!fabric->misuse[0])
        memcpy(fabric->misuse, words, sizeof words);
}

const char *sim_misuse(const struct sim_fabric *fabric)
{
    return fabric->misuse[0] ? fabric->misuse : NULL;
}

/* ---- hosts and ports: before anything runs ---- */

struct verbs_world *sim_host(struct sim_fabric *fabric)
{
    struct sim_world *world = calloc(1, sizeof *world);
    if (!world)
        abort();
    world->base.ops = &sim_ops;
    world->fabric = fabric;
    world->memlock_bytes = UINT64_MAX;
    base_list_init(&world->devices);
    pthread_mutex_lock(&fabric->lock);
    world->number = ++fabric->n_worlds;
    base_list_append(&fabric->worlds, &world->node);
    pthread_mutex_unlock(&fabric->lock);
    return &world->base;
}

static struct sim_device *device_named(struct sim_world *world, const char *name)
{
    base_list_for_each (node, &world->devices) {
        struct sim_device *device = base_list_entry(node, struct sim_device, node);
        if (strcmp(device->name, name) == 0)
            return device;
    }
    struct sim_device *device = calloc(1, sizeof *device);
    if (!device)
        abort();
    device->world = world;
    snprintf(device->name, sizeof device->name, "%s", name);
    base_list_init(&device->ports);
    base_list_init(&device->handles);
    base_list_append(&world->devices, &device->node);
    return device;
}

static unsigned list_length(const struct base_list *list)
{
    unsigned n = 0;
    for (const struct base_list *node = list->next; node != list; node = node->next)
        n++;
    return n;
}

struct sim_port *sim_port(struct verbs_world *world, const char *device, const struct sim_port_options *options)
{
    struct sim_world *host = (struct sim_world *)world;
    struct sim_port *port = calloc(1, sizeof *port);
    if (!port)
        abort();
    pthread_mutex_lock(&host->fabric->lock);
    if (options)
        port->options = *options;
    struct sim_port_options *o = &port->options;
    o->gbps = o->gbps > 0 ? o->gbps : 100;
    o->mtu = DEFAULT(o->mtu, 5);
    o->reads_out = DEFAULT(o->reads_out, 16);
    o->reads_in = DEFAULT(o->reads_in, 16);
    o->work_requests_max = DEFAULT(o->work_requests_max, 8192);
    o->sges_max = DEFAULT(o->sges_max, 16);
    o->mr_bytes_max = DEFAULT(o->mr_bytes_max, UINT64_C(1) << 40);
    o->message_bytes_max = DEFAULT(o->message_bytes_max, UINT32_C(1) << 30);
    port->active = !o->down;

    unsigned n_ports = 0; /* of the host: its number for the GID */
    base_list_for_each (node, &host->devices)
        n_ports += list_length(&base_list_entry(node, struct sim_device, node)->ports);
    port->device = device_named(host, device);
    port->number = (uint8_t)(list_length(&port->device->ports) + 1);
    base_list_append(&port->device->ports, &port->node);
    pthread_mutex_unlock(&host->fabric->lock);

    if (!o->no_gid) {
        const uint8_t raw[16] = {
            [10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [14] = (uint8_t)n_ports, [15] = (uint8_t)host->number
        };
        sim_port_gid(port, 0, o->infiniband ? VERBS_GID_IB : VERBS_GID_ROCE_V2, raw);
    }
    return port;
}

void sim_port_gid(struct sim_port *port, uint32_t index, enum verbs_gid_type type, const uint8_t raw[16])
{
    struct verbs_gid gid = { .index = index, .type = type };
    memcpy(gid.raw, raw, sizeof gid.raw);
    pthread_mutex_lock(&port->device->world->fabric->lock);
    if (!base_vec_push(&port->gids, gid))
        abort();
    pthread_mutex_unlock(&port->device->world->fabric->lock);
}

void sim_host_memlock(struct verbs_world *world, uint64_t bytes)
{
    struct sim_world *host = (struct sim_world *)world;
    pthread_mutex_lock(&host->fabric->lock);
    host->memlock_bytes = bytes;
    pthread_mutex_unlock(&host->fabric->lock);
}

void sim_host_costs(struct verbs_world *world, const struct sim_costs *costs)
{
    struct sim_world *host = (struct sim_world *)world;
    pthread_mutex_lock(&host->fabric->lock);
    host->costs = *costs;
    pthread_mutex_unlock(&host->fabric->lock);
}

struct sim_objects sim_host_objects(struct verbs_world *world)
{
    struct sim_world *host = (struct sim_world *)world;
    pthread_mutex_lock(&host->fabric->lock);
    struct sim_objects objects = host->objects;
    pthread_mutex_unlock(&host->fabric->lock);
    return objects;
}

struct sim_counters sim_port_counters(const struct sim_port *port)
{
    struct sim_fabric *fabric = port->device->world->fabric;
    pthread_mutex_lock(&fabric->lock);
    struct sim_counters counters = port->counters;
    pthread_mutex_unlock(&fabric->lock);
    return counters;
}

/* ---- time ---- */

static int64_t up_to_ns(int64_t ps)
{
    return ps == SIM_NEVER ? SIM_NEVER : (ps + SIM_PS - 1) / SIM_PS;
}

int64_t sim_now(const struct sim_fabric *fabric)
{
    pthread_mutex_t *lock = &((struct sim_fabric *)(uintptr_t)fabric)->lock;
    pthread_mutex_lock(lock);
    int64_t ns = fabric->now_ps / SIM_PS;
    pthread_mutex_unlock(lock);
    return ns;
}

int64_t sim_next_event(const struct sim_fabric *fabric)
{
    pthread_mutex_t *lock = &((struct sim_fabric *)(uintptr_t)fabric)->lock;
    pthread_mutex_lock(lock);
    int64_t ns = up_to_ns(sim_wire_next(fabric));
    pthread_mutex_unlock(lock);
    return ns;
}

void sim_advance(struct sim_fabric *fabric, int64_t ns)
{
    pthread_mutex_lock(&fabric->lock);
    sim_wire_run(fabric, fabric->now_ps + ns * SIM_PS);
    pthread_mutex_unlock(&fabric->lock);
}

bool sim_step(struct sim_fabric *fabric)
{
    pthread_mutex_lock(&fabric->lock);
    int64_t next = sim_wire_next(fabric);
    if (next != SIM_NEVER)
        sim_wire_run(fabric, next);
    pthread_mutex_unlock(&fabric->lock);
    return next != SIM_NEVER;
}

bool sim_idle(struct verbs_world *world, int64_t until_ns)
{
    struct sim_world *host = (struct sim_world *)world;
    struct sim_fabric *fabric = host->fabric;
    int64_t until_ps = until_ns == SIM_NEVER ? SIM_NEVER : until_ns * SIM_PS;
    pthread_mutex_lock(&fabric->lock);
    bool woken = host->unpolled > 0;
    while (!woken) {
        int64_t next = sim_wire_next(fabric);
        if (next == SIM_NEVER && until_ps == SIM_NEVER)
            break;
        woken = next > until_ps;
        sim_wire_run(fabric, woken ? until_ps : next);
        woken = woken || host->unpolled > 0;
    }
    if (woken)
        sim_wire_run(fabric, fabric->now_ps + host->costs.wake_ns * SIM_PS);
    pthread_mutex_unlock(&fabric->lock);
    return woken;
}
