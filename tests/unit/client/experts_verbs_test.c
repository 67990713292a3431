/* Experts over rails of the simulated fabric. */
#include <sys/mman.h>

#include "verbs_peer.h"

enum { SLOTS = 128 };

static struct penstock_options rdma(void)
{
    struct penstock_options options = fake_options();
    options.transport = PENSTOCK_TRANSPORT_RDMA;
    options.rail_deadline_ns = 50000000;
    return options;
}

/* A session with an arena of the library's own. */
static struct penstock_session *begin(struct verbs_peer *p, size_t rails, const struct penstock_options *options)
{
    const struct penstock_expert_arena arena = { .size = sizeof arena, .slots = SLOTS };
    p->experts = true;
    verbs_peer_begin(p, rails);
    struct penstock_session *s = verbs_open(p, options);
    assert_int_equal(penstock_experts_arena(s, &arena, NULL), 0);
    return s;
}

static void end(struct verbs_peer *p, struct penstock_session *s)
{
    penstock_session_free(s);
    verbs_peer_end(p);
}

static void finish(struct penstock_session *s, penstock_op op)
{
    struct penstock_error error = { 0 };
    int code = penstock_wait(s, op, NULL, &error);
    if (code)
        print_error("%s\n", error.message);
    assert_int_equal(code, 0);
}

/* Whether op comes to an end: penstock_wait would sleep for ever where there is nothing left to do for it. */
static bool ends(struct penstock_session *s, penstock_op op)
{
    struct pollfd fd = { .fd = penstock_fd(s), .events = POLLIN };
    for (int i = 0; i < 10000 && !client_op_find(s, op)->done; i++) {
        (void)!penstock_poll(s, NULL, 0, &(size_t){ 0 });
        (void)poll(&fd, 1, 1);
    }
    return client_op_find(s, op)->done;
}

static struct rail_stats stats(const struct penstock_session *s, size_t rail)
{
    struct rail_stats out;
    rail_engine_stats(s->verbs->engine, rail, &out);
    return out;
}

/* Records 0 to n - 1 of layer 1, each into the slot of its number. */
static void fetch_many(struct penstock_session *s, uint32_t n, penstock_op *ops)
{
    for (uint32_t i = 0; i < n; i++)
        ops[i] = fetch(s, 1, i, i, PENSTOCK_FETCH_NOW);
}

static void finish_many(struct penstock_session *s, uint32_t n, const penstock_op *ops)
{
    for (uint32_t i = 0; i < n; i++) {
        finish(s, ops[i]);
        assert_record(s, i, 1, i);
    }
}

/* ---- which way ---- */

static void auto_takes_rdma_where_both_ends_have_it(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_session *s = begin(&p, 2, NULL);
    assert_int_equal(penstock_session_transport(s), PENSTOCK_TRANSPORT_RDMA);
    assert_int_equal(penstock_session_rails(s), 2);
    finish(s, fetch(s, 2, 7, 0, PENSTOCK_FETCH_NOW));
    assert_record(s, 0, 2, 7);
    end(&p, s);
}

static void a_peer_of_the_frozen_protocol_has_both_ways(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct verbs_peer p = { .frozen = true, .refuses_verbs = i == 1 };
        struct penstock_session *s = begin(&p, 2, NULL);
        assert_int_equal(penstock_session_transport(s), i ? PENSTOCK_TRANSPORT_TCP : PENSTOCK_TRANSPORT_RDMA);
        assert_int_equal(penstock_session_transport_why(s) != NULL, i);
        finish(s, fetch(s, 0, 3, 5, PENSTOCK_FETCH_NOW));
        assert_record(s, 5, 0, 3);
        assert_int_equal(atomic_load(&p.over_tcp), i);
        end(&p, s);
    }
}

static void rdma_does_not_fall_back(void **state)
{
    (void)state;
    struct verbs_peer p = { .frozen = true, .refuses_verbs = true, .experts = true };
    const struct penstock_options options = rdma();
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, 1);
    assert_int_equal(verbs_open_fails(&p, &options, &error), PENSTOCK_EDENIED);
    assert_non_null(strstr(error.message, "expert peer 127.0.0.1:"));
    verbs_peer_end(&p);
}

static void a_peer_with_fewer_rails_gives_those_that_it_has(void **state)
{
    (void)state;
    for (int frozen = 0; frozen < 2; frozen++) {
        struct verbs_peer p = { .frozen = frozen, .n_rails = 1 };
        const struct penstock_options options = rdma();
        struct penstock_session *s = begin(&p, 2, &options);
        penstock_op ops[8];
        assert_int_equal(penstock_session_rails(s), 1);
        fetch_many(s, 8, ops);
        finish_many(s, 8, ops);
        end(&p, s);
    }
}

static void a_table_that_is_not_the_manifests_is_refused(void **state)
{
    (void)state;
    struct verbs_peer p = { .short_table = true, .experts = true };
    const struct penstock_options options = rdma();
    struct penstock_error error = { 0 };
    verbs_peer_begin(&p, 1);
    assert_int_equal(verbs_open_fails(&p, &options, &error), PENSTOCK_EPROTO);
    verbs_peer_end(&p);
}

/* ---- what travels ---- */

static void a_record_is_one_read_on_the_rail_of_its_expert(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_session *s = begin(&p, 2, NULL);
    for (uint32_t expert = 0; expert < 6; expert++) {
        const struct rail_stats before[2] = { stats(s, 0), stats(s, 1) };
        finish(s, fetch(s, 0, expert, 0, PENSTOCK_FETCH_NOW));
        assert_record(s, 0, 0, expert);
        for (size_t rail = 0; rail < 2; rail++) {
            const bool here = expert % 2 == rail;
            assert_int_equal(stats(s, rail).work_requests - before[rail].work_requests, here);
            assert_int_equal(stats(s, rail).bytes - before[rail].bytes, here ? store_stride() : 0);
        }
    }
    end(&p, s);
}

static void a_uniform_load_is_even_and_keeps_all_reads_of_the_wire_busy(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_session *s = begin(&p, 2, NULL);
    penstock_op ops[32];
    fetch_many(s, 32, ops);
    finish_many(s, 32, ops);
    for (size_t rail = 0; rail < 2; rail++) {
        assert_int_equal(stats(s, rail).work_requests, 16);
        assert_int_equal(stats(s, rail).outstanding_max, 16);
        assert_int_equal(stats(s, rail).bytes, 16 * store_stride());
    }
    end(&p, s);
}

static void experts_of_one_rail_do_not_hold_up_those_of_the_other(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_session *s = begin(&p, 2, NULL);
    penstock_op even[100];
    for (uint32_t i = 0; i < 100; i++)
        even[i] = fetch(s, 0, 2 * (i % 20), i, PENSTOCK_FETCH_NOW); /* far more than the rail takes at once */
    finish(s, fetch(s, 0, 1, 100, PENSTOCK_FETCH_NOW));
    size_t done = 0;
    for (uint32_t i = 0; i < 100; i++)
        done += client_op_find(s, even[i])->done;
    assert_true(done < 100);
    for (uint32_t i = 0; i < 100; i++)
        finish(s, even[i]);
    end(&p, s);
}

static void what_is_wanted_now_goes_before_queued_guesses(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_session *s = begin(&p, 1, NULL);
    penstock_op guesses[100];
    for (uint32_t i = 0; i < 100; i++)
        guesses[i] = fetch(s, 0, i % 40, i, PENSTOCK_FETCH_GUESS);
    finish(s, fetch(s, 1, 1, 100, PENSTOCK_FETCH_NOW));
    size_t before = 0;
    for (uint32_t i = 0; i < 100; i++)
        before += client_op_find(s, guesses[i])->done;
    assert_true(before <= 2 * client_fetch_guesses_max(s)); /* those that were under way, no more */
    assert_int_equal(penstock_fetch_promote(s, guesses[99]), 0);
    finish(s, guesses[99]);
    assert_false(client_op_find(s, guesses[98])->done);
    for (uint32_t i = 0; i < 99; i++)
        finish(s, guesses[i]);
    end(&p, s);
}

static void a_cancelled_fetch_gives_its_slot_back(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_session *s = begin(&p, 1, NULL);
    penstock_op ops[100];
    struct penstock_expert at = { .size = sizeof at };
    for (uint32_t i = 0; i < 100; i++)
        ops[i] = fetch(s, 0, i % 40, i, PENSTOCK_FETCH_NOW);
    assert_int_equal(penstock_cancel(s, ops[99]), 0); /* queued still */
    assert_int_equal(penstock_wait(s, ops[99], NULL, NULL), PENSTOCK_ECANCELED);
    finish(s, fetch(s, 2, 2, 99, PENSTOCK_FETCH_NOW));
    assert_record(s, 99, 2, 2);
    penstock_op under_way = fetch(s, 0, 1, 100, PENSTOCK_FETCH_NOW);
    (void)!penstock_poll(s, NULL, 0, &(size_t){ 0 });
    (void)!penstock_cancel(s, under_way);
    int code = penstock_wait(s, under_way, NULL, NULL);
    assert_int_equal(code == 0 || code == PENSTOCK_ECANCELED || code == PENSTOCK_ENOTFOUND, 1);
    if (code == PENSTOCK_ECANCELED)
        assert_int_equal(penstock_expert_at(s, 100, &at), PENSTOCK_ENOTFOUND);
    finish(s, fetch(s, 2, 3, 100, PENSTOCK_FETCH_NOW));
    assert_record(s, 100, 2, 3);
    end(&p, s);
}

static void another_record_than_asked_for_is_no_record(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    struct penstock_session *s = begin(&p, 1, NULL);
    struct penstock_error error = { 0 };
    store_record(1, 8, p.regions[1] + 9 * store_stride());
    penstock_op op = fetch(s, 1, 9, 0, PENSTOCK_FETCH_NOW);
    assert_int_equal(penstock_wait(s, op, NULL, &error), PENSTOCK_ECORRUPT);
    assert_non_null(strstr(error.message, "layer 1, expert 9: record expert: 8, not 9"));
    assert_non_null(strstr(error.message, "expert peer 127.0.0.1:"));
    finish(s, fetch(s, 1, 8, 0, PENSTOCK_FETCH_NOW));
    end(&p, s);
}

/* ---- the arena ---- */

static void device_memory_is_registered_and_never_looked_at(void **state)
{
    (void)state;
    struct verbs_peer p = { .experts = true };
    int fd = memfd_create("device", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)(2 * store_stride())), 0);
    verbs_peer_begin(&p, 1);
    struct penstock_session *s = verbs_open(&p, NULL);
    const struct penstock_memory memory = {
        .size = sizeof memory, .where = PENSTOCK_DEVICE, .dmabuf_fd = fd, .len_bytes = 2 * store_stride()
    };
    const struct penstock_expert_arena arena = { .size = sizeof arena, .memory = &memory, .slots = 2 };
    struct penstock_expert at = { .size = sizeof at };
    sim_fail_calls(p.client, SIM_MR_DMABUF_NEW, 1, 1, PENSTOCK_EUNSUPPORTED);
    assert_int_equal(penstock_experts_arena(s, &arena, NULL), PENSTOCK_EUNSUPPORTED);
    assert_int_equal(penstock_experts_arena(s, &arena, NULL), 0);
    finish(s, fetch(s, 0, 1, 1, PENSTOCK_FETCH_NOW));
    assert_int_equal(penstock_expert_at(s, 1, &at), 0);
    assert_int_equal(at.expert, 1);
    assert_null(at.parts[0]);
    uint8_t *landed = malloc(store_stride());
    assert_int_equal(pread(fd, landed, store_stride(), (off_t)store_stride()), store_stride());
    assert_memory_equal(landed, p.regions[0] + store_stride(), store_stride());
    free(landed);
    end(&p, s);
    close(fd);
}

static void device_memory_that_no_rail_left_can_reach_ends_its_fetches(void **state)
{
    (void)state;
    struct verbs_peer p = { .experts = true };
    const struct penstock_options options = rdma();
    int fd = memfd_create("device", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, (off_t)store_stride()), 0);
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, &options);
    const struct penstock_memory memory = {
        .size = sizeof memory, .where = PENSTOCK_DEVICE, .dmabuf_fd = fd, .len_bytes = store_stride()
    };
    const struct penstock_expert_arena arena = { .size = sizeof arena, .memory = &memory, .slots = 1 };
    sim_fail_calls(p.client, SIM_MR_DMABUF_NEW, 2, 1, PENSTOCK_EUNSUPPORTED);
    assert_int_equal(penstock_experts_arena(s, &arena, NULL), 0);
    finish(s, fetch(s, 0, 1, 0, PENSTOCK_FETCH_NOW)); /* the other rail's, were it not for the memory */
    sim_port_down(p.ports[0]);
    penstock_op op = fetch(s, 0, 1, 0, PENSTOCK_FETCH_NOW);
    assert_true(ends(s, op));
    assert_int_not_equal(penstock_wait(s, op, NULL, NULL), 0);
    end(&p, s);
    close(fd);
}

static void host_memory_that_cannot_be_registered_is_filled_all_the_same(void **state)
{
    (void)state;
    struct verbs_peer p = { .experts = true };
    const struct penstock_options options = rdma();
    verbs_peer_begin(&p, 2);
    struct penstock_session *s = verbs_open(&p, &options);
    const struct penstock_expert_arena arena = { .size = sizeof arena, .slots = SLOTS };
    sim_fail_calls(p.client, SIM_MR_NEW, 2, 1, PENSTOCK_ELIMIT);
    assert_int_equal(penstock_experts_arena(s, &arena, NULL), 0);
    assert_non_null(penstock_session_bounce_why(s));
    penstock_op ops[40];
    fetch_many(s, 40, ops);
    finish_many(s, 40, ops);
    end(&p, s);
}

/* ---- rails that fail ---- */

static void a_rail_that_fails_leaves_its_experts_to_the_other_and_comes_back(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    const struct penstock_options options = rdma();
    struct penstock_session *s = begin(&p, 2, &options);
    penstock_op ops[40];
    fetch_many(s, 40, ops);
    finish_many(s, 40, ops);
    sim_port_down(p.ports[1]);
    fetch_many(s, 40, ops);
    finish_many(s, 40, ops);
    struct penstock_rail_info info = { .size = sizeof info };
    assert_int_equal(penstock_session_rail(s, 1, &info), 0);
    assert_true(info.failures > 0);
    sim_port_up(p.ports[1]);
    const uint64_t before = stats(s, 1).bytes;
    for (int i = 0; i < 100000 && stats(s, 1).bytes == before; i++)
        finish(s, fetch(s, 1, 1, 0, PENSTOCK_FETCH_NOW));
    assert_true(stats(s, 1).bytes > before);
    assert_int_equal(penstock_session_rail(s, 1, &info), 0);
    assert_int_equal(info.up, 1);
    assert_int_equal(info.peer_rail, 1); /* the same one, though it was built alone */
    end(&p, s);
}

static void fetches_under_way_move_to_the_rail_that_is_left(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    const struct penstock_options options = rdma();
    struct penstock_session *s = begin(&p, 2, &options);
    penstock_op ops[40];
    sim_port_drop(p.ports[1], true);
    fetch_many(s, 40, ops);
    finish_many(s, 40, ops);
    sim_port_drop(p.ports[1], false);
    end(&p, s);
}

static void queued_fetches_outlive_a_moment_without_rails_and_end_where_none_come_back(void **state)
{
    (void)state;
    for (int gone = 0; gone < 2; gone++) {
        struct verbs_peer p = { 0 };
        const struct penstock_options options = rdma();
        struct penstock_session *s = begin(&p, 1, &options);
        penstock_op ops[100];
        for (uint32_t i = 0; i < 100; i++)
            ops[i] = fetch(s, 0, i % 40, i, PENSTOCK_FETCH_NOW);
        finish(s, ops[0]);
        sim_port_down(p.ports[0]);
        (void)!penstock_poll(s, NULL, 0, &(size_t){ 0 });
        if (!gone)
            sim_port_up(p.ports[0]);
        assert_true(ends(s, ops[99]));
        int code = penstock_wait(s, ops[99], NULL, NULL);
        assert_int_equal(gone ? code != 0 : code == 0, 1);
        end(&p, s);
    }
}

static void a_peer_that_dies_ends_all_fetches(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    const struct penstock_options options = rdma();
    struct penstock_session *s = begin(&p, 2, &options);
    verbs_peer_die(&p);
    penstock_op ops[40];
    for (uint32_t i = 0; i < 40; i++)
        ops[i] = fetch(s, 1, i, i, i % 2 ? PENSTOCK_FETCH_GUESS : PENSTOCK_FETCH_NOW);
    for (uint32_t i = 0; i < 40; i++) {
        int code = penstock_wait(s, ops[i], NULL, NULL);
        assert_int_equal(penstock_error_class(code), PENSTOCK_LOST_CONNECTION);
    }
    end(&p, s);
}

static void another_store_at_the_peer_is_stale_to_a_rail_that_comes_back(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    const struct penstock_options options = rdma();
    struct penstock_session *s = begin(&p, 1, &options);
    finish(s, fetch(s, 0, 1, 0, PENSTOCK_FETCH_NOW));
    atomic_store(&p.changed, true);
    sim_port_down(p.ports[0]);
    penstock_op op = fetch(s, 0, 2, 0, PENSTOCK_FETCH_NOW);
    (void)!penstock_wait(s, op, NULL, NULL);
    sim_port_up(p.ports[0]);
    struct penstock_error error = { 0 };
    op = fetch(s, 0, 2, 0, PENSTOCK_FETCH_NOW);
    assert_int_equal(penstock_wait(s, op, NULL, &error), PENSTOCK_ESTALE);
    assert_non_null(strstr(error.message, "another store by now"));
    end(&p, s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_takes_rdma_where_both_ends_have_it),
        cmocka_unit_test(a_peer_of_the_frozen_protocol_has_both_ways),
        cmocka_unit_test(rdma_does_not_fall_back),
        cmocka_unit_test(a_peer_with_fewer_rails_gives_those_that_it_has),
        cmocka_unit_test(a_table_that_is_not_the_manifests_is_refused),
        cmocka_unit_test(a_record_is_one_read_on_the_rail_of_its_expert),
        cmocka_unit_test(a_uniform_load_is_even_and_keeps_all_reads_of_the_wire_busy),
        cmocka_unit_test(experts_of_one_rail_do_not_hold_up_those_of_the_other),
        cmocka_unit_test(what_is_wanted_now_goes_before_queued_guesses),
        cmocka_unit_test(a_cancelled_fetch_gives_its_slot_back),
        cmocka_unit_test(another_record_than_asked_for_is_no_record),
        cmocka_unit_test(device_memory_is_registered_and_never_looked_at),
        cmocka_unit_test(device_memory_that_no_rail_left_can_reach_ends_its_fetches),
        cmocka_unit_test(host_memory_that_cannot_be_registered_is_filled_all_the_same),
        cmocka_unit_test(a_rail_that_fails_leaves_its_experts_to_the_other_and_comes_back),
        cmocka_unit_test(fetches_under_way_move_to_the_rail_that_is_left),
        cmocka_unit_test(queued_fetches_outlive_a_moment_without_rails_and_end_where_none_come_back),
        cmocka_unit_test(a_peer_that_dies_ends_all_fetches),
        cmocka_unit_test(another_store_at_the_peer_is_stale_to_a_rail_that_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
