#include "fabric.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "common.h"

static void need(int code, const struct penstock_error *error)
{
    if (code != 0)
        bench_die("%s", error->message);
}

static void end_init(struct fabric *f, struct fabric_end *end, unsigned access)
{
    struct penstock_error error;
    const struct sim_port_options port = { .gbps = f->options.gbps };
    const struct rail_wishes wishes = { 0 };
    end->host = sim_host(f->sim);
    for (size_t i = 0; i < f->options.n_rails; i++) {
        char name[16];
        snprintf(name, sizeof name, "sim%zu", i);
        end->ports[i] = sim_port(end->host, name, &port);
    }
    need(rail_devices_open(end->host, &wishes, &end->devices, &error), &error);
    for (size_t i = 0; i < end->devices.n; i++) {
        need(verbs_pd_new(end->devices.devices[i], &end->pds[i], &error), &error);
        need(verbs_mr_new(end->pds[i], f->memory, f->options.bytes, access, &end->mrs[i], &error), &error);
    }
}

static void connect_ends(struct fabric *f)
{
    struct penstock_error error;
    size_t n = f->options.n_rails;
    for (size_t i = 0; i < n; i++) {
        f->regions[i] = (struct penstock_layer){ .base = f->peer.mrs[i]->base, .rkey = f->peer.mrs[i]->rkey };
        f->tables[i] = (struct rail_table){ .regions = &f->regions[i], .n_regions = 1 };
    }
    rail_set_init(&f->peer.set, &(struct rail_set_config){ .devices = &f->peer.devices,
                                                           .pds = f->peer.pds,
                                                           .at_peer = true,
                                                           .access = VERBS_REMOTE_READ,
                                                           .depth = 1,
                                                           .sges_max = 1,
                                                           .tables = f->tables });
    rail_set_init(&f->client.set, &(struct rail_set_config){ .devices = &f->client.devices,
                                                             .pds = f->client.pds,
                                                             .depth = RAIL_DEPTH,
                                                             .sges_max = RAIL_SGES,
                                                             .expected_bytes = &f->options.bytes,
                                                             .n_expected = 1 });
    struct net_rail clients[PENSTOCK_RAILS_MAX], peers[PENSTOCK_RAILS_MAX];
    memset(clients, 0, sizeof clients);
    memset(peers, 0, sizeof peers);
    need(rail_set_ops.prepare(&f->client.set, n, clients, &error), &error);
    need(rail_set_ops.prepare(&f->peer.set, n, peers, &error), &error);
    need(rail_set_ops.complete(&f->peer.set, n, clients, NULL, &error), &error);
    need(rail_set_ops.complete(&f->client.set, n, peers, NULL, &error), &error);
}

void fabric_init(struct fabric *f, const struct fabric_options *options)
{
    struct penstock_error error;
    memset(f, 0, sizeof *f);
    f->options = *options;
    f->sim = sim_new(&(struct sim_options){ .no_copy = true });
    f->memory = mmap(NULL, options->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->memory == MAP_FAILED)
        bench_die("no address space for %llu bytes", (unsigned long long)options->bytes);
    end_init(f, &f->client, VERBS_LOCAL_WRITE);
    end_init(f, &f->peer, VERBS_REMOTE_READ);
    connect_ends(f);
    sim_host_costs(f->client.host, &options->costs);
    f->landing = (struct rail_memory){ .len_bytes = options->bytes, .address = f->memory };
    memcpy(f->landing.mrs, f->client.mrs, sizeof f->landing.mrs);

    const struct rail_engine_config config = { .devices = &f->client.devices,
                                               .pds = f->client.pds,
                                               .n_rails = options->n_rails,
                                               .outstanding_max = options->outstanding_max };
    need(rail_engine_new(&config, &f->engine, &error), &error);
    for (size_t i = 0; i < options->n_rails; i++)
        need(rail_engine_attach(f->engine, i, &f->client.set.rails[i], false, &error), &error);
}

static void end_fini(struct fabric_end *end)
{
    rail_set_fini(&end->set);
    for (size_t i = 0; i < end->devices.n; i++) {
        verbs_mr_free(end->mrs[i]);
        verbs_pd_free(end->pds[i]);
    }
    rail_devices_close(&end->devices);
}

void fabric_fini(struct fabric *f)
{
    rail_engine_free(f->engine);
    end_fini(&f->client);
    end_fini(&f->peer);
    sim_free(f->sim);
    munmap(f->memory, f->options.bytes);
}

struct reading {
    struct rail_transfer transfer;
    bool done;
};

static void done(struct rail_transfer *transfer, int code, const struct penstock_error *error)
{
    need(code, error);
    ((struct reading *)transfer->user)->done = true;
}

static uint64_t landed(const struct fabric *f)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < f->options.n_rails; i++)
        bytes += sim_port_counters(f->client.ports[i]).bytes;
    return bytes;
}

int64_t fabric_read(struct fabric *f, const struct rail_range *ranges, size_t n, void (*middle)(struct fabric *))
{
    struct penstock_error error;
    struct reading reading = { .transfer = { .opcode = VERBS_READ,
                                             .ranges = ranges,
                                             .n_ranges = n,
                                             .memory = &f->landing,
                                             .done = done,
                                             .user = &reading } };
    int64_t start_ns = sim_now(f->sim);
    uint64_t half = 0;
    for (size_t i = 0; i < n; i++)
        half += ranges[i].len_bytes;
    half = half / 2 + landed(f);
    need(rail_engine_submit(f->engine, &reading.transfer, &error), &error);
    while (!reading.done) {
        if (!rail_engine_poll(f->engine, sim_now(f->sim)) && !reading.done &&
            !sim_idle(f->client.host, rail_engine_deadline_ns(f->engine)))
            bench_die("nothing is under way, and the transfer is not done");
        if (middle && landed(f) >= half) {
            middle(f);
            middle = NULL;
        }
    }
    return sim_now(f->sim) - start_ns;
}

int64_t fabric_read_one_by_one(struct fabric *f, const struct rail_range *ranges, size_t n, double copy_bytes_per_ns)
{
    struct penstock_error error;
    const struct rail *rail = rail_engine_rail(f->engine, 0);
    int64_t start_ns = sim_now(f->sim);
    for (size_t i = 0; i < n; i++) {
        struct verbs_sge sge = { f->client.mrs[0]->base + ranges[i].local_offset, (uint32_t)ranges[i].len_bytes,
                                 f->client.mrs[0]->lkey };
        struct verbs_request request = { .opcode = VERBS_READ,
                                         .signaled = true,
                                         .remote = rail->regions[0].base + ranges[i].remote_offset,
                                         .rkey = rail->regions[0].rkey,
                                         .n_sges = 1,
                                         .sges = &sge };
        struct verbs_completion completion;
        size_t posted;
        need(verbs_post(rail->qp, &request, 1, &posted, &error), &error);
        if (!sim_idle(f->client.host, SIM_NEVER) || verbs_cq_poll(rail->cq, &completion, 1, &error) != 1 ||
            completion.status != 0)
            bench_die("a READ did not end well");
        sim_advance(f->sim, (int64_t)((double)ranges[i].len_bytes / copy_bytes_per_ns));
    }
    return sim_now(f->sim) - start_ns;
}
