#include "verbs_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <penstock/lora.h>

/* ---- which transport ---- */

static void auto_takes_rdma_where_both_ends_have_it(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_RDMA);
    assert_null(penstock_session_transport_why(s));
    read_shard1(s, region_of(s, memory, sizeof memory));
    assert_int_equal(penstock_session_rails(s), 2);
    const struct penstock_rail_info first = rail(s, 0), second = rail(s, 1);
    assert_string_equal(first.device, "nic0");
    assert_string_equal(second.gid, "::ffff:10.77.1.2");
    assert_int_equal(second.peer_rail, 1);
    assert_int_equal(first.mtu_bytes, 4096);
    assert_int_equal(first.reads, 16);
    assert_true(first.up && second.up);
    assert_null(first.failure);
    assert_int_equal(first.bytes + second.bytes, PEER_SHARD1);
    assert_non_null(strstr(first.why, "RoCE v2"));
    struct penstock_rail_info third = { .size = sizeof third };
    assert_int_equal(penstock_session_rail(s, 2, &third), PENSTOCK_EINVAL);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void a_peer_without_rails_is_read_over_tcp_and_why_is_said(void **state)
{
    (void)state;
    struct verbs_peer p = { .lists_none = true };
    const struct penstock_range range = { .offset_bytes = 7, .len_bytes = 1000 };
    const struct penstock_options options = rdma();
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_TCP);
    assert_int_equal(penstock_session_rails(s), 0);
    assert_non_null(strstr(penstock_session_transport_why(s), "no rails"));
    finish(s, submit(s, region_of(s, memory, sizeof memory), &range, 1));
    fake_assert_landed(memory, &range);
    penstock_session_free(s);
    assert_int_equal(verbs_open_fails(&p, &options, &error), PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "no rails"));
    verbs_peer_end(&p);
}

static void rails_that_this_side_cannot_have_are_no_rdma(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_options options = rdma();
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, 1);
    options.rails = "none";
    assert_int_equal(verbs_open_fails(&p, &options, &error), PENSTOCK_EUNSUPPORTED);
    options.rails = "nic7";
    assert_int_equal(verbs_open_fails(&p, &options, &error), PENSTOCK_ENOTFOUND);
    assert_non_null(strstr(error.message, "nic7"));
    options.transport = PENSTOCK_TRANSPORT_AUTO;
    struct penstock_session *s = verbs_open(&p, &options);
    assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_TCP);
    assert_non_null(strstr(penstock_session_transport_why(s), "nic7"));
    penstock_session_free(s);
    options.rails = "nic0:zz";
    assert_int_equal(verbs_open_fails(&p, &options, &error), PENSTOCK_EINVAL);
    verbs_peer_end(&p);
}

static void the_environment_decides_what_is_left_open(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_error error = { 0 };
    struct penstock_options options = rdma();
    verbs_peer_begin(&p, 2);
    setenv("PENSTOCK_TRANSPORT", "tcp", 1);
    struct penstock_session *s = verbs_open(&p, NULL);
    assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_TCP);
    assert_null(penstock_session_transport_why(s)); /* nothing else was asked for */
    penstock_session_free(s);

    setenv("PENSTOCK_RAILS", "nic1", 1);
    s = verbs_open(&p, &options);
    assert_int_equal(penstock_session_rails(s), 1);
    assert_string_equal(rail(s, 0).device, "nic1");
    penstock_session_free(s);

    setenv("PENSTOCK_RAILS", "nic1:", 1);
    assert_int_equal(verbs_open_fails(&p, &options, &error), PENSTOCK_EINVAL);
    assert_ptr_equal(strstr(error.message, "PENSTOCK_RAILS: "), error.message);
    unsetenv("PENSTOCK_RAILS");
    setenv("PENSTOCK_TRANSPORT", "ib", 1);
    assert_int_equal(verbs_open_fails(&p, NULL, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "PENSTOCK_TRANSPORT: 'ib'"));
    unsetenv("PENSTOCK_TRANSPORT");
    verbs_peer_end(&p);
}

/* Its shards are too large for its device, for instance. */
static void a_model_that_is_refused_over_verbs_is_read_over_tcp(void **state)
{
    (void)state;
    struct verbs_peer p = { .refuses_verbs = true };
    const struct penstock_options options = rdma();
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, 1);
    struct penstock_session *s = verbs_open(&p, NULL);
    assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_TCP);
    assert_non_null(strstr(penstock_session_transport_why(s), "refused the rails"));
    penstock_session_free(s);
    assert_int_equal(verbs_open_fails(&p, &options, &error), PENSTOCK_EDENIED);
    verbs_peer_end(&p);
}

static void tables_that_do_not_fit_the_manifest_are_never_used(void **state)
{
    (void)state;
    struct verbs_peer p = { .short_table = true };
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, 1);
    assert_int_equal(verbs_open_fails(&p, NULL, &error), PENSTOCK_EPROTO);
    assert_int_equal(atomic_load(&p.shaken), 0);
    verbs_peer_end(&p);
}

/* ---- peers of the frozen protocol ---- */

static void a_frozen_peer_with_fewer_rails_is_asked_for_fewer(void **state)
{
    (void)state;
    struct verbs_peer p = { .frozen = true, .n_rails = 1 };
    verbs_peer_begin(&p, 3);
    struct penstock_session *s = verbs_open(&p, NULL);
    assert_int_equal(atomic_load(&p.asked), 3);
    assert_int_equal(penstock_session_rails(s), 1);
    assert_string_equal(rail(s, 0).device, "nic0");
    read_shard1(s, region_of(s, memory, sizeof memory));

    uint8_t digest[PENSTOCK_DIGEST_BYTES];
    const struct penstock_digests digests = { .size = sizeof digests, .out = digest, .max = 1 };
    penstock_op op;
    assert_int_equal(penstock_submit_digests(s, &digests, &op, NULL), 0);
    assert_int_equal(penstock_wait(s, op, NULL, NULL), PENSTOCK_EREFUSED);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

/* ---- beside the rails ---- */

static void files_and_digests_come_over_tcp_beside(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    uint8_t digest[PENSTOCK_DIGEST_BYTES];
    const struct penstock_range ranges[] = { { .len_bytes = 50, .dst_bytes = PEER_SHARD1, .file = 2 }, shard1 };
    const struct penstock_digests digests = { .size = sizeof digests, .out = digest, .max = 1 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region = region_of(s, memory, sizeof memory);
    struct penstock_completion c;
    penstock_op op = submit(s, region, ranges, 2);
    assert_int_equal(penstock_wait(s, op, &c, NULL), 0);
    assert_int_equal(c.landed_bytes, 50 + PEER_SHARD1);
    fake_assert_landed(memory, &ranges[0]);
    fake_assert_landed(memory, &ranges[1]);
    assert_int_equal(atomic_load(&p.over_tcp), 1);
    assert_int_equal(penstock_submit_digests(s, &digests, &op, NULL), 0);
    assert_int_equal(penstock_wait(s, op, &c, NULL), 0);
    assert_int_equal(c.landed_bytes, PENSTOCK_DIGEST_BYTES);
    assert_int_equal(digest[15], 0x5A);
    assert_int_equal(penstock_unregister(s, region, NULL), 0);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void reads_may_wait_for_a_join(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        struct verbs_peer p = { .lists_none = tcp };
        const struct penstock_range ranges[] = { { .len_bytes = 50, .dst_bytes = 2000, .file = 2 },
                                                 { .offset_bytes = 5, .len_bytes = 1000 } };
        verbs_peer_begin(&p, 1);
        struct penstock_session *first = verbs_open(&p, NULL), *s;
        struct penstock_catalogue *catalogue = penstock_session_catalogue(first);
        penstock_op open;
        assert_int_equal(
            client_session_in_world(p.client, p.name, NULL, CLIENT_FOR_JOIN, "m", catalogue, &s, &open, NULL), 0);
        assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_AUTO);
        finish(s, submit(s, region_of(s, memory, sizeof memory), ranges, 2));
        fake_assert_landed(memory, &ranges[0]);
        fake_assert_landed(memory, &ranges[1]);
        penstock_session_free(s);
        penstock_session_free(first);
        penstock_catalogue_unref(catalogue);
        verbs_peer_end(&p);
    }
}

/* ---- memory ---- */

static void device_memory_is_landed_in_without_a_touch(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_error error = { 0 };
    const size_t len = 4 << 20;
    int fd = memfd_create("device", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)len), 0);
    void *mine = mmap(NULL, len, PROT_NONE, MAP_SHARED, fd, 0); /* whoever touches it is shot */
    const struct penstock_memory device = { .size = sizeof device,
                                            .address = mine,
                                            .len_bytes = PEER_SHARD1,
                                            .where = PENSTOCK_DEVICE,
                                            .dmabuf_fd = fd,
                                            .offset_bytes = 4096 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region;
    assert_int_equal(penstock_register(s, &device, &region, NULL), 0);
    finish(s, submit(s, region, &shard1, 1));
    assert_int_equal(mprotect(mine, len, PROT_READ), 0);
    fake_assert_landed((uint8_t *)mine + 4096, &shard1);

    /* What comes over TCP would have to be written by this side. */
    const struct penstock_range file = { .len_bytes = 10, .file = 2 };
    const struct penstock_read read = { .size = sizeof read, .ranges = &file, .count = 1, .region = region };
    penstock_op op;
    assert_int_equal(penstock_submit(s, &read, &op, &error), PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "DEVICE"));
    penstock_session_free(s);
    munmap(mine, len);
    close(fd);
    verbs_peer_end(&p);
}

static void device_memory_that_no_device_takes_is_an_error_in_words(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_error error = { 0 };
    const struct penstock_memory device = { .size = sizeof device, .len_bytes = 4096, .where = PENSTOCK_DEVICE };
    const struct penstock_range range = { .len_bytes = 10 };
    verbs_peer_begin(&p, 1);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region;
    assert_int_equal(penstock_register(s, &device, &region, NULL), 0); /* fd 0 is no dmabuf */
    penstock_op op = submit(s, region, &range, 1);
    sim_fail_calls(p.client, SIM_MR_DMABUF_NEW, 1, 1, PENSTOCK_EUNSUPPORTED);
    assert_int_equal(penstock_wait(s, op, NULL, &error), PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "DEVICE"));
    read_shard1(s, region_of(s, memory, sizeof memory)); /* the session goes on */
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void memory_that_cannot_be_registered_is_copied_to(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    assert_null(penstock_session_bounce_why(s));
    sim_fail_calls(p.client, SIM_MR_NEW, 2, 1, PENSTOCK_ELIMIT);
    read_shard1(s, region_of(s, memory, sizeof memory));
    assert_non_null(penstock_session_bounce_why(s));
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void memory_is_registered_once(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region = region_of(s, memory, sizeof memory);
    read_shard1(s, region);
    uint64_t calls = sim_calls(p.client, SIM_MR_NEW);
    read_shard1(s, region);
    read_shard1(s, region);
    assert_int_equal(sim_calls(p.client, SIM_MR_NEW), calls);
    size_t mrs = sim_host_objects(p.client).mrs;
    assert_int_equal(penstock_unregister(s, region, NULL), 0);
    assert_int_equal(sim_host_objects(p.client).mrs, mrs - 2);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

/* ---- ends ---- */

static void a_read_can_be_cancelled(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    const struct penstock_range ranges[] = { { .len_bytes = 50, .dst_bytes = PEER_SHARD1, .file = 2 }, shard1 };
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, NULL);
    uint32_t region = region_of(s, memory, sizeof memory);
    for (int polls = 0; polls < 3; polls++) {
        penstock_op op = submit(s, region, ranges, 2);
        struct penstock_completion c;
        size_t n = 0;
        for (int i = 0; i < polls; i++)
            assert_int_equal(penstock_poll(s, NULL, 0, &n), 0);
        int code = penstock_cancel(s, op);
        assert_true(code == 0 || code == PENSTOCK_ENOTFOUND);
        (void)!penstock_wait(s, op, &c, NULL);
        assert_true(c.code == PENSTOCK_ECANCELED || c.code == 0);
        assert_int_equal(penstock_cancel(s, op), PENSTOCK_ENOTFOUND);
    }
    read_shard1(s, region);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

static void a_session_can_be_freed_at_each_step(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    verbs_peer_begin(&p, 2);
    bool whole = false;
    for (int steps = 0; steps < 60; steps++) {
        struct penstock_session *s;
        penstock_op op;
        assert_int_equal(client_session_in_world(p.client, p.name, NULL, CLIENT_FOR_MANIFEST, "m", NULL, &s, &op, NULL),
                         0);
        for (int i = 0; i < steps; i++) {
            size_t n;
            struct pollfd fd = { .fd = penstock_fd(s), .events = POLLIN };
            assert_int_equal(penstock_poll(s, NULL, 0, &n), 0);
            if (penstock_timeout_ns(s) != 0)
                poll(&fd, 1, 20);
        }
        if (s->step == CLIENT_RAILS) {
            whole = true;
            (void)submit(s, region_of(s, memory, sizeof memory), &shard1, 1);
            size_t n;
            assert_int_equal(penstock_poll(s, NULL, 0, &n), 0);
            steps += 10;
        }
        penstock_session_free(s);
    }
    assert_true(whole);
    verbs_peer_end(&p);
}

/* ---- adapters ---- */

static const char matrices[] =
    ",{\"name\":\"h.0.x.lora_A.weight\",\"dtype\":\"BF16\",\"shape\":[3,5],\"offset_in_shard\":1001,\"len\":30,"
    "\"shard_index\":0,\"extra\":false},{\"name\":\"h.0.x.lora_B.weight\",\"dtype\":\"BF16\",\"shape\":[20000,3],"
    "\"offset_in_shard\":7,\"len\":120000,\"shard_index\":1,\"extra\":false}";
static const char lora_config[] = "{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":3}";

static void an_adapter_lands_over_rails(void **state)
{
    (void)state;
    struct verbs_peer p = { .tensors = matrices };
    const struct penstock_options how = rdma();
    struct penstock_lora *lora;
    struct penstock_error error;
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, &how);
    const struct penstock_lora_options options = {
        .size = sizeof options, .max_rank = 4, .config = lora_config, .config_len_bytes = sizeof lora_config - 1
    };
    assert_int_equal(penstock_lora_open(s, &options, &lora, &error), 0);
    uint64_t slot_bytes = 2 * 4 * (5 + 20000);
    const struct penstock_memory m = { .size = sizeof m, .address = memory, .len_bytes = slot_bytes };
    const struct penstock_lora_landing landing = { .size = sizeof landing, .slot = &m };
    memset(memory, 0xA5, slot_bytes + 1);
    assert_int_equal(penstock_lora_land_wait(s, lora, &landing, &error), 0);
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(memory[i], i < 30 ? fake_byte(0, 1001 + i) : 0);
    for (size_t i = 0; i < 8 * 20000; i++)
        assert_int_equal(memory[40 + i], i % 8 < 6 ? fake_byte(1, 7 + i / 8 * 6 + i % 8) : 0);
    assert_int_equal(memory[slot_bytes], 0xA5);
    assert_int_equal(rail(s, 0).bytes + rail(s, 1).bytes, 120030);
    assert_int_equal(atomic_load(&p.over_tcp), 0);

    /* A peer that dies under it leaves the slot as it was. */
    penstock_op op;
    memset(memory, 0xA5, slot_bytes);
    verbs_peer_die(&p);
    int code = penstock_lora_land(s, lora, &landing, &op, &error);
    code = code ? code : penstock_wait(s, op, NULL, &error);
    assert_int_not_equal(code, 0);
    for (size_t i = 0; i < slot_bytes; i++)
        assert_int_equal(memory[i], 0xA5);
    penstock_lora_free(lora);
    penstock_session_free(s);
    verbs_peer_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_takes_rdma_where_both_ends_have_it),
        cmocka_unit_test(a_peer_without_rails_is_read_over_tcp_and_why_is_said),
        cmocka_unit_test(rails_that_this_side_cannot_have_are_no_rdma),
        cmocka_unit_test(the_environment_decides_what_is_left_open),
        cmocka_unit_test(a_model_that_is_refused_over_verbs_is_read_over_tcp),
        cmocka_unit_test(tables_that_do_not_fit_the_manifest_are_never_used),
        cmocka_unit_test(a_frozen_peer_with_fewer_rails_is_asked_for_fewer),
        cmocka_unit_test(files_and_digests_come_over_tcp_beside),
        cmocka_unit_test(reads_may_wait_for_a_join),
        cmocka_unit_test(device_memory_is_landed_in_without_a_touch),
        cmocka_unit_test(device_memory_that_no_device_takes_is_an_error_in_words),
        cmocka_unit_test(memory_that_cannot_be_registered_is_copied_to),
        cmocka_unit_test(memory_is_registered_once),
        cmocka_unit_test(a_read_can_be_cancelled),
        cmocka_unit_test(a_session_can_be_freed_at_each_step),
        cmocka_unit_test(an_adapter_lands_over_rails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
