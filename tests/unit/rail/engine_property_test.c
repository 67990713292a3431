/* Random lists over random rails with random faults: every byte is right or there is an error, each transfer ends once,
 * and nothing is left behind. A round is its seed: the one that fails is the same on every machine. */
#include "engine_rig.h"

#define KIB ((uint64_t)1 << 10)
#define BYTES (512 * KIB)
#define N_TRANSFERS 4
#define ROUNDS 400

static struct rig rig;
static uint64_t seed;

static uint64_t below(uint64_t n)
{
    return test_random(&seed) % n;
}

static bool one_in(uint64_t n)
{
    return below(n) == 0;
}

/* Local memory in pieces of its own for each range, so that what landed can be told; often touching the last one. */
static size_t random_ranges(struct rail_range *ranges, size_t max, uint64_t local, uint64_t local_end)
{
    size_t n = 0;
    uint64_t remote = below(BYTES / 2);
    uint32_t region = 0;
    while (n < max) {
        uint64_t len = one_in(8) ? 0 : one_in(6) ? below(64 * KIB) : below(3000);
        if (one_in(3))
            remote = below(BYTES);
        if (one_in(10))
            region = (uint32_t)below(RIG_REGIONS);
        if (one_in(3))
            local += below(50);
        if (local + len > local_end)
            break;
        if (remote + len > BYTES)
            remote = 0;
        ranges[n++] =
            (struct rail_range){ .remote_offset = remote, .local_offset = local, .len_bytes = len, .region = region };
        remote += len;
        local += len;
    }
    return n;
}

static struct rig_options random_options(void)
{
    static const uint32_t depths[] = { 0, 0, 1, 2, 7, 64 };
    struct rig_options options = { .n_rails = 1 + below(4), .region_bytes = BYTES, .memory_bytes = BYTES };
    options.port.sges_max = (uint32_t)(1 + below(5));
    options.port.message_bytes_max = one_in(4) ? UINT32_C(4096) << below(10) : 0;
    options.port.reads_out = options.port.reads_in = one_in(2) ? 16 : (uint8_t)(1 + below(20));
    options.engine.depth = depths[below(6)];
    options.engine.outstanding_max = one_in(6) ? (uint32_t)(1 + below(5)) : 0;
    options.engine.bounce_bytes = 64 * KIB << below(4);
    options.unregistered = one_in(4);
    return options;
}

static void random_fault(void)
{
    static const int statuses[] = { 12, 12, 10, 5, 1, 21 };
    size_t i = below(rig.options.n_rails);
    switch (below(9)) {
    case 0:
        sim_fail_completion(rig.client, 1 + below(60), statuses[below(6)]);
        break;
    case 1:
        sim_fail_calls(rig.client, SIM_POST, 1 + below(60), 1, PENSTOCK_ECLOSED);
        break;
    case 2:
        sim_fail_calls(rig.client, SIM_CQ_POLL, 1 + below(20), 1, PENSTOCK_ECLOSED);
        break;
    case 3:
        sim_port_drop(rig.ports[i], true);
        break;
    case 4:
        sim_port_down(rig.peer_ports[i]);
        break;
    case 5:
        sim_port_jitter(rig.ports[i], 100000, 1 + below(1000));
        break;
    case 6:
        sim_port_rate(rig.ports[i], 1 + (double)below(50));
        break;
    case 7:
        if (one_in(5))
            rig.peer_gone = true;
        break;
    default:
        break;
    }
}

static void random_act(struct rail_transfer *transfers, size_t n)
{
    struct penstock_error error = { .code = PENSTOCK_ECLOSED, .message = "by its owner" };
    size_t slot = below(rig.options.n_rails), t = below(n);
    switch (below(40)) {
    case 0:
        if (rig.n_done[t] == 0)
            rail_engine_cancel(rig.engine, &transfers[t]);
        break;
    case 1:
        rail_engine_detach(rig.engine, slot, &error);
        break;
    case 2:
    case 3:
        if (!rail_engine_rail(rig.engine, slot) && rig.n_peer_rails < 3 * PENSTOCK_RAILS_MAX)
            assert_int_equal(rig_attach(&rig, slot, one_in(2)), 0);
        break;
    case 4:
        rail_engine_arm(rig.engine);
        break;
    default:
        break;
    }
}

static void play(uint64_t round)
{
    static struct rail_range ranges[N_TRANSFERS][200];
    struct rail_transfer transfers[N_TRANSFERS];
    struct rail_range landed[N_TRANSFERS * 200];
    size_t n_landed = 0;
    seed = round;
    struct rig_options options = random_options();
    rig_begin(&rig, &options);
    bool faulty = !one_in(4);
    if (faulty)
        random_fault();
    for (size_t i = 0; i < N_TRANSFERS; i++) {
        uint64_t part = BYTES / N_TRANSFERS;
        size_t n = random_ranges(ranges[i], 1 + below(200), i * part, (i + 1) * part);
        transfers[i] = rig_transfer(&rig, i, ranges[i], n);
        rig_submit(&rig, &transfers[i]);
    }
    for (size_t n = 0; n < 100000; n++) {
        int64_t now = sim_now(rig.fabric);
        if (faulty)
            random_act(transfers, N_TRANSFERS);
        if (faulty && one_in(50))
            random_fault();
        if (rail_engine_poll(rig.engine, now))
            continue;
        int64_t event = sim_next_event(rig.fabric), deadline = rail_engine_deadline_ns(rig.engine);
        int64_t next = event < deadline ? event : deadline;
        if (next == INT64_MAX)
            break;
        sim_advance(rig.fabric, next > now ? next - now : 0);
    }

    for (size_t i = 0; i < N_TRANSFERS; i++) {
        assert_int_equal(rig.n_done[i], 1);
        if (!faulty)
            assert_int_equal(rig.code[i], 0);
        uint64_t len = 0;
        for (size_t j = 0; j < transfers[i].n_ranges; j++)
            len += ranges[i][j].len_bytes;
        assert_true(rig.code[i] == 0 ? transfers[i].landed_bytes == len : transfers[i].landed_bytes <= len);
        if (rig.code[i] == 0)
            for (size_t j = 0; j < transfers[i].n_ranges; j++)
                landed[n_landed++] = ranges[i][j];
        else /* what it left is anything */
            memset(rig.memory.address + i * (BYTES / N_TRANSFERS), 0x5A, BYTES / N_TRANSFERS);
    }
    rig_expect_landed(&rig, landed, n_landed);
    sim_advance(rig.fabric, 60 * BASE_SECOND_NS);
    rig_expect_landed(&rig, landed, n_landed);
    rig_end(&rig);
}

static void every_byte_is_right_or_there_is_an_error(void **state)
{
    (void)state;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        play(round);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_byte_is_right_or_there_is_an_error) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
