#include "engine_rig.h"

#include <stdlib.h>

#define UNTOUCHED 0x5A

static struct rig *current; /* whose posts are recorded */
static const struct verbs_ops *sim_ops;

static int recording_post(struct verbs_qp *qp, const struct verbs_request *requests, size_t n, size_t *posted,
                          struct penstock_error *error)
{
    int code = sim_ops->post(qp, requests, n, posted, error);
    size_t done = code ? *posted : n;
    for (size_t i = 0; i < done && current->n_posts < RIG_POSTS; i++) {
        struct rig_post *post = &current->posts[current->n_posts++];
        *post = (struct rig_post){ .qp = qp,
                                   .opcode = requests[i].opcode,
                                   .signaled = requests[i].signaled,
                                   .remote = requests[i].remote,
                                   .n_sges = requests[i].n_sges };
        assert_in_range(requests[i].n_sges, 1, RAIL_SGES);
        for (uint32_t j = 0; j < requests[i].n_sges; j++) {
            post->sges[j] = requests[i].sges[j];
            post->len_bytes += requests[i].sges[j].len_bytes;
        }
    }
    return code;
}

uint8_t rig_region_byte(uint32_t region, uint64_t offset)
{
    return (uint8_t)(offset * 7 + (offset >> 8) * 13 + (offset >> 16) * 3 + region * 101);
}

size_t rig_index(const struct rail_transfer *transfer)
{
    return (size_t)(uintptr_t)transfer->user;
}

static void on_done(struct rail_transfer *transfer, int code, const struct penstock_error *error)
{
    struct rig *rig = current;
    size_t i = rig_index(transfer);
    assert_int_equal(transfer->outstanding, 0);
    rig->n_done[i]++;
    rig->code[i] = code;
    rig->error[i] = *error;
    if (rig->on_done)
        rig->on_done(rig, transfer);
}

static void on_failed(void *context, size_t slot, const struct penstock_error *error)
{
    struct rig *rig = context;
    rig->n_failed[slot]++;
    rig->failure[slot] = *error;
}

static bool on_gone(void *context, struct penstock_error *error)
{
    struct rig *rig = context;
    if (rig->peer_gone)
        (void)base_error_set(error, PENSTOCK_ECLOSED, "the peer has gone");
    return rig->peer_gone;
}

static uint8_t *pages(uint64_t len, bool unbacked)
{
    void *at = mmap(NULL, len, unbacked ? PROT_NONE : PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

static void begin_ports(struct rig *rig)
{
    char name[16];
    rig->client = sim_host(rig->fabric);
    rig->peer = sim_host(rig->fabric);
    for (size_t i = 0; i < rig->options.n_rails; i++) {
        snprintf(name, sizeof name, "sim%zu", i);
        rig->ports[i] = sim_port(rig->client, name, &rig->options.port);
        rig->peer_ports[i] = sim_port(rig->peer, name, &rig->options.port);
    }
    struct rail_wishes wishes = { 0 };
    assert_int_equal(rail_devices_open(rig->client, &wishes, &rig->devices, NULL), 0);
    assert_int_equal(rig->devices.n, rig->options.n_rails);
    static struct verbs_ops recording;
    sim_ops = rig->client->ops;
    recording = *sim_ops;
    recording.post = recording_post;
    rig->client->ops = &recording;
    for (size_t i = 0; i < rig->options.n_rails; i++) {
        snprintf(name, sizeof name, "sim%zu", i);
        assert_int_equal(verbs_device_open(rig->peer, name, &rig->peer_devices[i], NULL), 0);
        assert_int_equal(verbs_pd_new(rig->devices.devices[i], &rig->pds[i], NULL), 0);
        assert_int_equal(verbs_pd_new(rig->peer_devices[i], &rig->peer_pds[i], NULL), 0);
    }
}

static void begin_memory(struct rig *rig)
{
    const struct rig_options *o = &rig->options;
    for (uint32_t r = 0; r < RIG_REGIONS; r++) {
        rig->region_bytes[r] = pages(o->region_bytes, o->unbacked);
        for (uint64_t at = 0; !o->unbacked && at < o->region_bytes; at++)
            rig->region_bytes[r][at] = rig_region_byte(r, at);
        for (size_t i = 0; i < o->n_rails; i++)
            assert_int_equal(verbs_mr_new(rig->peer_pds[i], rig->region_bytes[r], o->region_bytes,
                                          VERBS_LOCAL_WRITE | VERBS_REMOTE_READ | VERBS_REMOTE_WRITE,
                                          &rig->regions[i][r], NULL),
                             0);
    }
    rig->memory.len_bytes = o->memory_bytes;
    rig->memory.address = pages(o->memory_bytes, o->unbacked);
    if (!o->unbacked)
        memset(rig->memory.address, UNTOUCHED, o->memory_bytes);
    for (size_t i = 0; i < o->n_rails && !o->unregistered; i++)
        assert_int_equal(verbs_mr_new(rig->pds[i], rig->memory.address, o->memory_bytes, VERBS_LOCAL_WRITE,
                                      &rig->memory.mrs[i], NULL),
                         0);
}

void rig_begin(struct rig *rig, const struct rig_options *options)
{
    memset(rig, 0, sizeof *rig);
    current = rig;
    rig->options = *options;
    if (rig->options.n_rails == 0)
        rig->options.n_rails = 2;
    rig->posts = calloc(RIG_POSTS, sizeof *rig->posts);
    assert_non_null(rig->posts);
    rig->fabric = sim_new(&rig->options.fabric);
    begin_ports(rig);
    begin_memory(rig);

    struct rail_engine_config config = rig->options.engine;
    config.devices = &rig->devices;
    config.pds = rig->pds;
    config.n_rails = rig->options.n_rails;
    config.rail_failed = on_failed;
    config.peer_gone = on_gone;
    config.context = rig;
    assert_int_equal(rail_engine_new(&config, &rig->engine, NULL), 0);
    for (size_t i = 0; i < rig->options.n_rails; i++)
        assert_int_equal(rig_attach(rig, i, false), 0);
}

static void connect_end(struct rail *rail, const struct rail *other, const uint8_t *gid)
{
    struct verbs_qp_link link = {
        .peer_qpn = other->qp->qpn, .mtu = 5, .reads_out = rail->reads_out, .reads_in = other->reads_out
    };
    memcpy(link.peer_gid, gid, sizeof link.peer_gid);
    assert_int_equal(verbs_qp_connect(rail->qp, &link, NULL), 0);
}

static struct rail new_rail(struct verbs_device *device, struct verbs_pd *pd, size_t own, uint8_t reads,
                            struct verbs_qp_options options)
{
    struct rail rail = {
        .own = (uint8_t)own, .mtu = 5, .reads_out = reads, .depth = options.depth, .sges_max = options.sges_max
    };
    options.port = 1;
    assert_int_equal(verbs_cq_new(device, options.depth, &rail.cq, NULL), 0);
    assert_int_equal(verbs_qp_new(pd, rail.cq, &options, &rail.qp, NULL), 0);
    return rail;
}

int rig_attach(struct rig *rig, size_t slot, bool probe)
{
    const struct rail_port *port = &rig->devices.ports[slot];
    uint32_t depth = rig->options.depth ? rig->options.depth : RAIL_DEPTH;
    struct verbs_qp_options options = { .depth = depth,
                                        .sges_max = port->sges_max < RAIL_SGES ? port->sges_max : RAIL_SGES };
    struct verbs_qp_options peer_options = { .depth = 1,
                                             .sges_max = 1,
                                             .access = VERBS_REMOTE_READ | VERBS_REMOTE_WRITE };
    struct rail rail = new_rail(rig->devices.devices[slot], rig->pds[slot], slot, port->reads_out, options);
    assert_true(rig->n_peer_rails < sizeof rig->peer_rails / sizeof *rig->peer_rails);
    struct rail *other = &rig->peer_rails[rig->n_peer_rails++];
    *other = new_rail(rig->peer_devices[slot], rig->peer_pds[slot], slot, port->reads_in, peer_options);
    struct verbs_ports ports;
    assert_int_equal(verbs_ports(rig->peer, &ports, NULL), 0);
    connect_end(&rail, other, ports.at[slot].gids[0].raw);
    verbs_ports_fini(&ports);
    connect_end(other, &rail, port->gid);
    rail.n_regions = RIG_REGIONS;
    rail.regions = calloc(RIG_REGIONS, sizeof *rail.regions);
    for (size_t r = 0; r < RIG_REGIONS; r++)
        rail.regions[r] =
            (struct penstock_layer){ .base = rig->regions[slot][r]->base, .rkey = rig->regions[slot][r]->rkey };
    int code = rail_engine_attach(rig->engine, slot, &rail, probe, NULL);
    rail_fini(&rail);
    return code;
}

void rig_end(struct rig *rig)
{
    rail_engine_free(rig->engine);
    for (size_t i = 0; i < rig->n_peer_rails; i++)
        rail_fini(&rig->peer_rails[i]);
    for (size_t i = 0; i < rig->options.n_rails; i++) {
        verbs_mr_free(rig->memory.mrs[i]);
        for (size_t r = 0; r < RIG_REGIONS; r++)
            verbs_mr_free(rig->regions[i][r]);
        verbs_pd_free(rig->pds[i]);
        verbs_pd_free(rig->peer_pds[i]);
        verbs_device_close(rig->peer_devices[i]);
    }
    rail_devices_close(&rig->devices);
    struct sim_objects left = sim_host_objects(rig->client);
    assert_int_equal(left.devices + left.pds + left.mrs + left.cqs + left.qps, 0);
    sim_free(rig->fabric);
    for (size_t r = 0; r < RIG_REGIONS; r++)
        munmap(rig->region_bytes[r], rig->options.region_bytes);
    if (rig->memory.address)
        munmap(rig->memory.address, rig->memory.len_bytes);
    free(rig->posts);
}

/* False: nothing will ever move again. */
static bool step(struct rig *rig)
{
    if (rail_engine_poll(rig->engine, sim_now(rig->fabric)))
        return true;
    int64_t deadline = rail_engine_deadline_ns(rig->engine), event = sim_next_event(rig->fabric);
    if (deadline == BASE_NEVER && event == SIM_NEVER)
        return false;
    int64_t next = event < deadline ? event : deadline, now = sim_now(rig->fabric);
    sim_advance(rig->fabric, next > now ? next - now : 0);
    return true;
}

void rig_run(struct rig *rig, const struct rail_transfer *transfer)
{
    size_t i = rig_index(transfer), before = rig->n_done[i];
    while (rig->n_done[i] == before)
        assert_true(step(rig));
}

void rig_drain(struct rig *rig)
{
    while (step(rig))
        ;
}

struct rail_transfer rig_transfer(struct rig *rig, size_t index, const struct rail_range *ranges, size_t n)
{
    return (struct rail_transfer){ .opcode = VERBS_READ,
                                   .ranges = ranges,
                                   .n_ranges = n,
                                   .memory = &rig->memory,
                                   .done = on_done,
                                   .user = (void *)(uintptr_t)index };
}

void rig_submit(struct rig *rig, struct rail_transfer *transfer)
{
    struct penstock_error error = { 0 };
    int code = rail_engine_submit(rig->engine, transfer, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(code, 0);
}

void rig_expect_landed(struct rig *rig, const struct rail_range *ranges, size_t n)
{
    uint8_t *expected = malloc(rig->memory.len_bytes);
    assert_non_null(expected);
    memset(expected, UNTOUCHED, rig->memory.len_bytes);
    for (size_t i = 0; i < n; i++)
        for (uint64_t at = 0; at < ranges[i].len_bytes; at++)
            expected[ranges[i].local_offset + at] = rig_region_byte(ranges[i].region, ranges[i].remote_offset + at);
    assert_int_equal(memcmp(expected, rig->memory.address, rig->memory.len_bytes), 0);
    free(expected);
}

const char *rig_posted(struct rig *rig)
{
    static char out[4096];
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 0; i < rig->n_posts && at < sizeof out; i++) {
        const struct rig_post *post = &rig->posts[i];
        size_t r = 0;
        while (post->remote - (uintptr_t)rig->region_bytes[r] >= rig->options.region_bytes)
            r++;
        uint64_t offset = post->remote - (uintptr_t)rig->region_bytes[r];
        at += (size_t)snprintf(out + at, sizeof out - at, "%sR%zu+%llu:%llu", i ? " " : "", r,
                               (unsigned long long)offset, (unsigned long long)post->len_bytes);
        const uint64_t base = (uintptr_t)rig->memory.address;
        if (post->n_sges == 1 && post->sges[0].address - base == offset)
            continue;
        for (uint32_t j = 0; j < post->n_sges && at < sizeof out; j++)
            at += (size_t)snprintf(out + at, sizeof out - at, "%s%llu:%u%s", j ? "," : "{",
                                   (unsigned long long)(post->sges[j].address - base), post->sges[j].len_bytes,
                                   j + 1 == post->n_sges ? "}" : "");
    }
    return out;
}
