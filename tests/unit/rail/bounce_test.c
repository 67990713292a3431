/* Memory that cannot be registered, and memory that nobody here may touch. */
#include "engine_rig.h"

#include <sys/mman.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define KIB ((uint64_t)1 << 10)

static struct rig rig;

static struct rig_options unregistered(void)
{
    return (struct rig_options){ .region_bytes = 8 * MIB, .memory_bytes = 8 * MIB, .unregistered = true };
}

static const struct rail_range ranges[] = { { 0, 4 * MIB, 3 * MIB + 5, 0 },
                                            { 3 * MIB + 5, 1000, 1000, 0 }, /* touches at the peer alone */
                                            { 3 * MIB + 1005, 3000, 2000, 0 },
                                            { 5, 10000, 700 * KIB, 1 },
                                            { 7 * MIB, 3 * MIB, 1, 1 } };

static void memory_that_cannot_be_registered_is_landed_in_by_way_of_the_ring(void **state)
{
    (void)state;
    struct rig_options options = unregistered();
    rig_begin(&rig, &options);
    size_t before = sim_host_objects(rig.client).mrs;
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, 5);
    rig_submit(&rig, &t);
    assert_int_equal(sim_host_objects(rig.client).mrs, before + 2);
    assert_int_equal(sim_host_objects(rig.client).mr_bytes, 64 * MIB); /* 32 on each device */
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    assert_true(t.bounced);
    rig_expect_landed(&rig, ranges, 5);
    for (size_t i = 0; i < rig.n_posts; i++) {
        assert_int_equal(rig.posts[i].n_sges, 1);
        assert_true(rig.posts[i].len_bytes <= 256 * KIB);
    }

    rig_submit(&rig, &t); /* the ring is there already */
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    assert_int_equal(sim_host_objects(rig.client).mrs, before + 2);
    rig_end(&rig);
}

static void a_ring_smaller_than_the_queues_holds_them_back(void **state)
{
    (void)state;
    struct rig_options options = unregistered();
    options.engine.bounce_bytes = 64 * KIB;
    rig_begin(&rig, &options);
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, 5);
    rig_submit(&rig, &t);
    while (rig.n_done[0] == 0) {
        rail_engine_poll(rig.engine, sim_now(rig.fabric));
        assert_true(t.outstanding <= 16);
        sim_step(rig.fabric);
    }
    assert_int_equal(rig.code[0], 0);
    rig_expect_landed(&rig, ranges, 5);
    rig_end(&rig);
}

static void the_ring_is_as_large_as_the_memlock_limit_lets_it_be(void **state)
{
    (void)state;
    struct rig_options options = unregistered();
    rig_begin(&rig, &options);
    sim_host_memlock(rig.client, 5 * MIB); /* 2 MiB for each of two devices */
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, 5);
    rig_submit(&rig, &t);
    assert_int_equal(sim_host_objects(rig.client).mr_bytes, 4 * MIB);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    rig_expect_landed(&rig, ranges, 5);
    rig_end(&rig);

    rig_begin(&rig, &options);
    sim_host_memlock(rig.client, 100 * KIB);
    struct penstock_error error;
    t = rig_transfer(&rig, 0, ranges, 5);
    assert_int_equal(rail_engine_submit(rig.engine, &t, &error), PENSTOCK_ELIMIT);
    static const char begin[] = "memory cannot be registered, nor can a bounce ring instead of it: ";
    assert_memory_equal(error.message, begin, sizeof begin - 1);
    assert_int_equal(sim_host_objects(rig.client).mr_bytes, 0);
    rig_end(&rig);
}

static void a_rail_that_fails_leaves_its_cells_to_the_others(void **state)
{
    (void)state;
    struct rig_options options = unregistered();
    options.engine.bounce_bytes = 256 * KIB;
    for (uint64_t nth = 1; nth < 120; nth += 7) {
        rig_begin(&rig, &options);
        sim_fail_completion(rig.client, nth, 12);
        struct rail_transfer t = rig_transfer(&rig, 0, ranges, 5);
        rig_submit(&rig, &t);
        rig_run(&rig, &t);
        assert_int_equal(rig.code[0], 0);
        assert_true(t.rerouted);
        rig_expect_landed(&rig, ranges, 5);
        rig_end(&rig);
    }
}

/* The owner frees the PDs next, although the engine itself lasts until the callback has returned. */
static void free_engine(struct rig *r, struct rail_transfer *transfer)
{
    (void)transfer;
    struct rail_engine *engine = r->engine;
    struct rail rail = { 0 };
    r->engine = NULL;
    if (!engine)
        return;
    rail_engine_free(engine);
    assert_int_equal(sim_host_objects(r->client).mrs, 0);
    assert_int_equal(sim_host_objects(r->client).qps, 0);
    assert_int_equal(rail_engine_attach(engine, 0, &rail, false, NULL), PENSTOCK_ECANCELED);
}

static void the_ring_is_gone_when_an_engine_freed_within_a_callback_is(void **state)
{
    (void)state;
    struct rig_options options = unregistered();
    rig_begin(&rig, &options);
    rig.on_done = free_engine;
    struct rail_transfer t[2];
    for (size_t i = 0; i < 2; i++) {
        t[i] = rig_transfer(&rig, i, ranges, 5);
        rig_submit(&rig, &t[i]);
    }
    while (rig.engine) {
        rail_engine_poll(rig.engine, sim_now(rig.fabric));
        sim_step(rig.fabric);
    }
    assert_int_equal(rig.n_done[0], 1);
    assert_int_equal(rig.n_done[1], 1);
    rig_end(&rig);
}

static void a_write_leaves_from_the_ring(void **state)
{
    (void)state;
    struct rig_options options = unregistered();
    rig_begin(&rig, &options);
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, 5);
    for (uint64_t i = 0; i < rig.memory.len_bytes; i++)
        rig.memory.address[i] = (uint8_t)(i * 7 + i / 999);
    t.opcode = VERBS_WRITE;
    rig_submit(&rig, &t);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    for (size_t i = 0; i < 5; i++)
        assert_memory_equal(rig.region_bytes[ranges[i].region] + ranges[i].remote_offset,
                            rig.memory.address + ranges[i].local_offset, ranges[i].len_bytes);
    rig_end(&rig);
}

/* ---- DEVICE ---- */

/* The memory of a device, as a memfd that stands for its dmabuf: the rig's own address for it is PROT_NONE. */
static int export_memory(struct rail_memory *device, uint64_t len, size_t n_mrs)
{
    int fd = memfd_create("device", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)len), 0);
    *device = (struct rail_memory){ .len_bytes = len };
    for (size_t i = 0; i < n_mrs; i++)
        assert_int_equal(verbs_mr_dmabuf_new(rig.pds[i], fd, 0, len, VERBS_LOCAL_WRITE, &device->mrs[i], NULL), 0);
    return fd;
}

static void device_memory_is_never_touched(void **state)
{
    (void)state;
    struct rig_options options = unregistered();
    rig_begin(&rig, &options);
    struct rail_memory device;
    int fd = export_memory(&device, 8 * MIB, 2);
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, 5);
    t.memory = &device;
    sim_fail_completion(rig.client, 3, 12); /* another rail has another MR */
    rig_submit(&rig, &t);
    assert_false(t.bounced);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    assert_true(t.rerouted);
    assert_int_equal(t.landed_bytes, 3 * MIB + 5 + 3000 + 700 * KIB + 1);
    assert_int_equal(pread(fd, rig.memory.address, 8 * MIB, 0), 8 * MIB);
    for (size_t i = 0; i < 5; i++)
        for (uint64_t at = 0; at < ranges[i].len_bytes; at++)
            assert_int_equal(rig.memory.address[ranges[i].local_offset + at],
                             rig_region_byte(ranges[i].region, ranges[i].remote_offset + at));
    rail_engine_free(rig.engine);
    rig.engine = NULL;
    verbs_mr_free(device.mrs[0]);
    verbs_mr_free(device.mrs[1]);
    close(fd);
    rig_end(&rig);
}

static void device_memory_of_one_rail_goes_over_that_rail(void **state)
{
    (void)state;
    struct rig_options options = unregistered();
    rig_begin(&rig, &options);
    struct rail_memory device;
    int fd = export_memory(&device, 8 * MIB, 1);
    struct rail_transfer t = rig_transfer(&rig, 0, ranges, 5);
    t.memory = &device;
    rig_submit(&rig, &t);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], 0);
    assert_int_equal(sim_port_counters(rig.ports[1]).work_requests, 0);

    /* And when that is gone, nowhere. */
    sim_fail_completion(rig.client, 1, 12);
    rig_submit(&rig, &t);
    rig_run(&rig, &t);
    assert_int_equal(rig.code[0], PENSTOCK_EUNSUPPORTED);
    assert_int_equal(rail_engine_alive(rig.engine), 1);
    struct penstock_error error;
    assert_int_equal(rail_engine_submit(rig.engine, &t, &error), PENSTOCK_EUNSUPPORTED);
    rail_engine_free(rig.engine);
    rig.engine = NULL;
    verbs_mr_free(device.mrs[0]);
    close(fd);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_cannot_be_registered_is_landed_in_by_way_of_the_ring),
        cmocka_unit_test(a_ring_smaller_than_the_queues_holds_them_back),
        cmocka_unit_test(the_ring_is_as_large_as_the_memlock_limit_lets_it_be),
        cmocka_unit_test(a_rail_that_fails_leaves_its_cells_to_the_others),
        cmocka_unit_test(the_ring_is_gone_when_an_engine_freed_within_a_callback_is),
        cmocka_unit_test(a_write_leaves_from_the_ring),
        cmocka_unit_test(device_memory_is_never_touched),
        cmocka_unit_test(device_memory_of_one_rail_goes_over_that_rail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
