#include "fake_experts.h"

/* ---- hello ---- */

static void the_manifest_comes_first_and_says_the_geometry(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(0);
    struct penstock_expert_geometry g = { .size = sizeof g };
    assert_int_equal(penstock_experts_geometry(f.session, &g), 0);
    assert_string_equal(g.model_version, "v1");
    assert_int_equal(g.layers, STORE_LAYERS);
    assert_int_equal(g.experts, STORE_EXPERTS);
    assert_int_equal(g.model_layers[2], 4);
    assert_int_equal(g.record_stride, store_stride());
    assert_int_equal(g.part_offset[PENSTOCK_EXPERT_GATE_PACKED], PENSTOCK_RECORD_HEADER_BYTES);
    assert_int_equal(g.part_bytes[PENSTOCK_EXPERT_GATE_PACKED], 32 * 64 / 2);
    assert_int_equal(g.part_bytes[PENSTOCK_EXPERT_DOWN_SCALE], 32 * 64 / 16);
    fake_end(&f);
}

static void a_caller_of_an_older_version_gets_what_it_knows(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(0);
    struct penstock_expert_geometry g;
    memset(&g, 0xAB, sizeof g);
    g.size = offsetof(struct penstock_expert_geometry, sub_align);
    assert_int_equal(penstock_experts_geometry(f.session, &g), 0);
    assert_int_equal(g.group_size, 16);
    assert_int_equal(g.sub_align, 0xABABABAB);
    g.size = 1;
    assert_int_equal(penstock_experts_geometry(f.session, &g), PENSTOCK_EINVAL);
    fake_end(&f);
}

static void another_store_than_the_earlier_one_is_stale(void **state)
{
    (void)state;
    static const char *const given[] = { "v2", NULL };
    for (size_t i = 0; i < 2; i++) {
        struct fake_peer f = experts_begin("v1", NULL);
        struct penstock_error error = { 0 };
        char *json = store_json(given[i]);
        fake_send_text(&f, json);
        free(json);
        assert_int_equal(penstock_wait(f.session, f.open, NULL, &error), PENSTOCK_ESTALE);
        assert_non_null(strstr(error.message, "'v1' was asked for"));
        fake_expect(&f, "", 0);
        fake_end(&f);
    }
}

static void a_peer_that_closes_before_its_manifest_is_said_to(void **state)
{
    (void)state;
    struct fake_peer f = experts_begin(NULL, NULL);
    struct penstock_error error = { 0 };
    fake_close(&f);
    assert_int_equal(penstock_wait(f.session, f.open, NULL, &error), PENSTOCK_EDENIED);
    assert_non_null(strstr(error.message, "expert peer stream: closed instead of sending its manifest"));
    fake_end(&f);
}

static void a_manifest_that_makes_no_sense_ends_the_session(void **state)
{
    (void)state;
    struct fake_peer f = experts_begin(NULL, NULL);
    struct penstock_error error = { 0 };
    fake_send_text(&f, "{\"version\":1}");
    assert_int_equal(penstock_wait(f.session, f.open, NULL, &error), PENSTOCK_EPROTO);
    fake_end(&f);
    f = experts_begin(NULL, NULL);
    fake_send(&f, "\0\0\0\2", 4); /* above the 16 MiB of 1.1 */
    assert_int_equal(penstock_wait(f.session, f.open, NULL, &error), PENSTOCK_EPROTO);
    fake_end(&f);
}

/* ---- the arena ---- */

static void an_arena_is_the_librarys_or_the_callers(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(0);
    uint64_t stride = store_stride();
    uint8_t *own = malloc(3 * stride);
    const struct penstock_memory memory = { .size = sizeof memory, .address = own, .len_bytes = 3 * stride };
    struct penstock_expert_arena arena = { .size = sizeof arena, .memory = &memory, .slots = 4 };
    assert_int_equal(penstock_experts_arena(f.session, &arena, NULL), PENSTOCK_EINVAL); /* too short */
    arena.slots = 3;
    arena.stride_bytes = stride - 1;
    assert_int_equal(penstock_experts_arena(f.session, &arena, NULL), PENSTOCK_EINVAL);
    arena.stride_bytes = UINT64_MAX / 2;
    assert_int_equal(penstock_experts_arena(f.session, &arena, NULL), PENSTOCK_EINVAL);
    arena.stride_bytes = 0;
    arena.slots = 0;
    assert_int_equal(penstock_experts_arena(f.session, &arena, NULL), PENSTOCK_EINVAL);
    assert_int_equal(fetch_fails(f.session, 0, 0, 0), PENSTOCK_EINVAL); /* no arena yet */
    arena.slots = 2;
    arena.stride_bytes = 2 * stride; /* the last slot needs no more than a record */
    assert_int_equal(penstock_experts_arena(f.session, &arena, NULL), 0);
    assert_int_equal(penstock_experts_arena(f.session, &arena, NULL), PENSTOCK_EINVAL); /* once */
    penstock_op op = fetch(f.session, 2, 39, 1, PENSTOCK_FETCH_NOW);
    send_record(&f, 2, 39);
    assert_int_equal(penstock_wait(f.session, op, NULL, NULL), 0);
    struct penstock_expert at = { .size = sizeof at };
    assert_int_equal(penstock_expert_at(f.session, 1, &at), 0);
    assert_ptr_equal(at.parts[0], own + 2 * stride + PENSTOCK_RECORD_HEADER_BYTES);
    assert_record(f.session, 1, 2, 39);
    fake_end(&f);
    free(own);
}

static void device_memory_is_refused_over_tcp(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(0);
    const struct penstock_memory memory = {
        .size = sizeof memory, .where = PENSTOCK_DEVICE, .dmabuf_fd = 0, .len_bytes = 1 << 20
    };
    const struct penstock_expert_arena arena = { .size = sizeof arena, .memory = &memory, .slots = 1 };
    assert_int_equal(penstock_experts_arena(f.session, &arena, NULL), PENSTOCK_EUNSUPPORTED);
    fake_end(&f);
}

/* ---- fetches ---- */

static void records_land_in_their_slots(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(8);
    penstock_op ops[8];
    struct penstock_expert at = { .size = sizeof at };
    assert_int_equal(penstock_expert_at(f.session, 7, &at), PENSTOCK_ENOTFOUND);
    assert_int_equal(penstock_expert_at(f.session, 8, &at), PENSTOCK_EINVAL);
    for (uint32_t i = 0; i < 8; i++)
        ops[i] = fetch(f.session, i % 3, 5 * i, 7 - i, PENSTOCK_FETCH_NOW);
    fake_expect_nothing(&f); /* before the next poll */
    (void)fake_poll(&f, &(struct penstock_completion){ 0 });
    for (uint32_t i = 0; i < 8; i++) {
        struct penstock_expert_request r = asked_for(&f);
        assert_int_equal(r.layer, i % 3);
        assert_int_equal(r.expert, 5 * i);
        send_record(&f, r.layer, r.expert);
    }
    for (uint32_t i = 0; i < 8; i++) {
        struct penstock_completion c = { 0 };
        assert_int_equal(penstock_wait(f.session, ops[i], &c, NULL), 0);
        assert_int_equal(c.landed_bytes, store_stride());
        assert_record(f.session, 7 - i, i % 3, 5 * i);
    }
    fake_end(&f);
}

static void what_the_store_has_not_is_refused_at_once(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(2);
    assert_int_equal(fetch_fails(f.session, STORE_LAYERS, 0, 0), PENSTOCK_EINVAL);
    assert_int_equal(fetch_fails(f.session, 0, STORE_EXPERTS, 0), PENSTOCK_EINVAL);
    assert_int_equal(fetch_fails(f.session, PENSTOCK_SHUTDOWN_MARKER, PENSTOCK_SHUTDOWN_MARKER, 0), PENSTOCK_EINVAL);
    assert_int_equal(fetch_fails(f.session, 0, 0, 2), PENSTOCK_EINVAL);
    (void)fetch(f.session, 0, 0, 1, PENSTOCK_FETCH_NOW);
    assert_int_equal(fetch_fails(f.session, 0, 1, 1), PENSTOCK_EINVAL); /* the slot is taken */
    fake_end(&f);
}

static void a_refusal_costs_the_operation_alone(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(2);
    struct penstock_error error = { 0 };
    penstock_op first = fetch(f.session, 0, 1, 0, PENSTOCK_FETCH_NOW),
                second = fetch(f.session, 0, 2, 1, PENSTOCK_FETCH_NOW);
    fake_status(&f, PENSTOCK_STATUS_ERR);
    send_record(&f, 0, 2);
    assert_int_equal(penstock_wait(f.session, first, NULL, &error), PENSTOCK_EREFUSED);
    assert_string_equal(error.message, "expert peer stream: refused layer 0, expert 1 (status 1); was the layer's file "
                                       "cut short?");
    assert_int_equal(penstock_wait(f.session, second, NULL, NULL), 0);
    assert_record(f.session, 1, 0, 2);
    assert_int_equal(
        penstock_expert_at(f.session, 0, &(struct penstock_expert){ .size = sizeof(struct penstock_expert) }),
        PENSTOCK_ENOTFOUND);
    penstock_op again = fetch(f.session, 0, 3, 0, PENSTOCK_FETCH_NOW);
    send_record(&f, 0, 3);
    assert_int_equal(penstock_wait(f.session, again, NULL, NULL), 0);
    assert_record(f.session, 0, 0, 3);
    fake_end(&f);
}

static void another_record_than_asked_for_is_no_record(void **state)
{
    (void)state;
    static const struct {
        uint32_t layer, expert;
    } sent[] = { { 1, 1 }, { 0, 2 } };
    struct fake_peer f = experts_ready(1);
    for (size_t i = 0; i < 2; i++) {
        struct penstock_error error = { 0 };
        struct penstock_expert at = { .size = sizeof at };
        penstock_op op = fetch(f.session, 0, 1, 0, PENSTOCK_FETCH_NOW);
        send_record(&f, sent[i].layer, sent[i].expert);
        assert_int_equal(penstock_wait(f.session, op, NULL, &error), PENSTOCK_ECORRUPT);
        assert_non_null(strstr(error.message, "expert peer stream: layer 0, expert 1: record "));
        assert_int_equal(penstock_expert_at(f.session, 0, &at), PENSTOCK_ENOTFOUND);
    }
    penstock_op op = fetch(f.session, 0, 1, 0, PENSTOCK_FETCH_NOW);
    uint8_t *zeros = calloc(1, 1 + store_stride());
    fake_send(&f, zeros, 1 + store_stride());
    assert_int_equal(penstock_wait(f.session, op, NULL, NULL), PENSTOCK_ECORRUPT); /* no magic */
    free(zeros);
    op = fetch(f.session, 0, 1, 0, PENSTOCK_FETCH_NOW);
    send_record(&f, 0, 1);
    assert_int_equal(penstock_wait(f.session, op, NULL, NULL), 0);
    fake_end(&f);
}

static void a_slot_is_free_as_soon_as_its_fetch_is_cancelled(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(1);
    struct penstock_completion c = { 0 };
    penstock_op first = fetch(f.session, 0, 1, 0, PENSTOCK_FETCH_NOW);
    assert_int_equal(fake_poll(&f, &c), 0); /* it is on its way */
    assert_int_equal(penstock_cancel(f.session, first), 0);
    penstock_op second = fetch(f.session, 0, 2, 0, PENSTOCK_FETCH_NOW);
    send_record(&f, 0, 1);
    send_record(&f, 0, 2);
    assert_int_equal(penstock_wait(f.session, second, NULL, NULL), 0);
    assert_record(f.session, 0, 0, 2);
    assert_int_equal(penstock_wait(f.session, first, NULL, NULL), PENSTOCK_ECANCELED);
    fake_end(&f);
}

static void a_peer_that_dies_ends_all_fetches(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(64);
    struct penstock_completion c[64];
    size_t done = 0;
    for (uint32_t i = 0; i < 64; i++)
        (void)fetch(f.session, 0, i % 40, i, i % 2 ? PENSTOCK_FETCH_GUESS : PENSTOCK_FETCH_NOW);
    (void)fake_poll(&f, c);
    send_record(&f, 0, 0);
    fake_close(&f);
    assert_int_equal(penstock_poll(f.session, c, 64, &done), PENSTOCK_ECLOSED);
    assert_int_equal(done, 64);
    assert_int_equal(c[0].code, 0);
    for (size_t i = 1; i < 64; i++)
        assert_int_equal(c[i].code, PENSTOCK_ECLOSED);
    assert_int_equal(fetch_fails(f.session, 0, 1, 1), PENSTOCK_EDEAD);
    assert_record(f.session, 0, 0, 0); /* what had landed is still there */
    fake_end(&f);
}

static void no_more_than_256_requests_are_unanswered(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(300);
    for (uint32_t i = 0; i < 300; i++)
        (void)fetch(f.session, 0, i % 40, i, PENSTOCK_FETCH_NOW);
    (void)fake_poll(&f, &(struct penstock_completion){ 0 });
    for (uint32_t i = 0; i < 256; i++)
        assert_int_equal(asked_for(&f).expert, i % 40);
    fake_expect_nothing(&f);
    fake_end(&f);
}

/* ---- priorities ---- */

static void what_is_wanted_now_goes_before_guesses_that_are_queued(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(64);
    uint32_t under_way = client_fetch_guesses_max(f.session);
    struct penstock_completion c;
    for (uint32_t i = 0; i < 32; i++)
        (void)fetch(f.session, 1, i, i, PENSTOCK_FETCH_GUESS);
    (void)fake_poll(&f, &c);
    for (uint32_t i = 0; i < under_way; i++)
        assert_int_equal(asked_for(&f).expert, i);
    fake_expect_nothing(&f); /* the other guesses wait at this side */
    for (uint32_t i = 0; i < 3; i++)
        (void)fetch(f.session, 2, i, 40 + i, PENSTOCK_FETCH_NOW);
    (void)fake_poll(&f, &c);
    for (uint32_t i = 0; i < 3; i++) {
        struct penstock_expert_request r = asked_for(&f);
        assert_int_equal(r.layer, 2);
        assert_int_equal(r.expert, i);
    }
    fake_expect_nothing(&f);
    for (uint32_t i = 0; i < under_way; i++)
        send_record(&f, 1, i);
    while (fake_poll(&f, &c))
        ;
    for (uint32_t i = under_way; i < 32 && i < 2 * under_way; i++)
        assert_int_equal(asked_for(&f).expert, i);
    fake_end(&f);
}

static void a_guess_that_was_right_is_wanted_now(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(64);
    uint32_t under_way = client_fetch_guesses_max(f.session);
    struct penstock_completion c;
    penstock_op ops[40];
    for (uint32_t i = 0; i < 40; i++)
        ops[i] = fetch(f.session, 1, i, i, PENSTOCK_FETCH_GUESS);
    (void)fake_poll(&f, &c);
    for (uint32_t i = 0; i < under_way; i++)
        (void)asked_for(&f);
    assert_int_equal(penstock_fetch_promote(f.session, ops[39]), 0);
    assert_int_equal(penstock_fetch_promote(f.session, ops[0]), 0); /* under way: of no effect */
    (void)fake_poll(&f, &c);
    assert_int_equal(asked_for(&f).expert, 39);
    fake_expect_nothing(&f);
    assert_int_equal(penstock_fetch_promote(f.session, 12345), PENSTOCK_ENOTFOUND);
    fake_end(&f);
}

static void a_queued_guess_can_be_asked_for_anew(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(64);
    uint32_t under_way = client_fetch_guesses_max(f.session);
    struct penstock_completion c = { 0 };
    penstock_op ops[40];
    for (uint32_t i = 0; i < 40; i++)
        ops[i] = fetch(f.session, 1, i, i, PENSTOCK_FETCH_GUESS);
    (void)fake_poll(&f, &c);
    for (uint32_t i = 0; i < under_way; i++)
        (void)asked_for(&f);
    assert_int_equal(penstock_cancel(f.session, ops[39]), 0);
    (void)fetch(f.session, 1, 39, 39, PENSTOCK_FETCH_NOW);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, ops[39]);
    assert_int_equal(c.code, PENSTOCK_ECANCELED);
    assert_int_equal(asked_for(&f).expert, 39);
    fake_expect_nothing(&f);
    fake_end(&f);
}

/* ---- calls of the wrong tier ---- */

static void a_session_knows_the_calls_of_its_own_tier_only(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(1);
    uint8_t byte;
    penstock_op op;
    const struct penstock_range range = { .len_bytes = 1 };
    const struct penstock_read read = {
        .size = sizeof read, .ranges = &range, .count = 1, .region = fake_region(&f, &byte, 1)
    };
    assert_int_equal(penstock_submit(f.session, &read, &op, NULL), PENSTOCK_EINVAL);
    assert_null(penstock_session_catalogue(f.session));
    fake_end(&f);
    f = fake_ready(NULL);
    struct penstock_expert_geometry g = { .size = sizeof g };
    assert_int_equal(fetch_fails(f.session, 0, 0, 0), PENSTOCK_EINVAL);
    assert_int_equal(penstock_experts_geometry(f.session, &g), PENSTOCK_EINVAL);
    fake_end(&f);
}

static void null_is_refused_where_something_must_be_given(void **state)
{
    (void)state;
    struct fake_peer f = experts_ready(1);
    penstock_op op;
    struct penstock_session *s;
    assert_int_equal(penstock_experts_start(NULL, NULL, NULL, &s, &op, NULL), PENSTOCK_EINVAL);
    assert_int_equal(penstock_experts_start("127.0.0.1:1", "a b", NULL, &s, &op, NULL), PENSTOCK_EINVAL);
    assert_int_equal(penstock_experts_open("127.0.0.1:1", NULL, NULL, NULL, NULL), PENSTOCK_EINVAL);
    assert_int_equal(penstock_experts_geometry(NULL, NULL), PENSTOCK_EINVAL);
    assert_int_equal(penstock_experts_arena(NULL, NULL, NULL), PENSTOCK_EINVAL);
    assert_int_equal(penstock_experts_arena(f.session, NULL, NULL), PENSTOCK_EINVAL);
    assert_int_equal(penstock_submit_fetch(f.session, NULL, &op, NULL), PENSTOCK_EINVAL);
    assert_int_equal(penstock_submit_fetch(NULL, NULL, NULL, NULL), PENSTOCK_EINVAL);
    assert_int_equal(penstock_fetch_promote(NULL, 1), PENSTOCK_EINVAL);
    assert_int_equal(penstock_expert_at(f.session, 0, NULL), PENSTOCK_EINVAL);
    fake_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_manifest_comes_first_and_says_the_geometry),
        cmocka_unit_test(a_caller_of_an_older_version_gets_what_it_knows),
        cmocka_unit_test(another_store_than_the_earlier_one_is_stale),
        cmocka_unit_test(a_peer_that_closes_before_its_manifest_is_said_to),
        cmocka_unit_test(a_manifest_that_makes_no_sense_ends_the_session),
        cmocka_unit_test(an_arena_is_the_librarys_or_the_callers),
        cmocka_unit_test(device_memory_is_refused_over_tcp),
        cmocka_unit_test(records_land_in_their_slots),
        cmocka_unit_test(what_the_store_has_not_is_refused_at_once),
        cmocka_unit_test(a_refusal_costs_the_operation_alone),
        cmocka_unit_test(another_record_than_asked_for_is_no_record),
        cmocka_unit_test(a_slot_is_free_as_soon_as_its_fetch_is_cancelled),
        cmocka_unit_test(a_peer_that_dies_ends_all_fetches),
        cmocka_unit_test(no_more_than_256_requests_are_unanswered),
        cmocka_unit_test(what_is_wanted_now_goes_before_guesses_that_are_queued),
        cmocka_unit_test(a_guess_that_was_right_is_wanted_now),
        cmocka_unit_test(a_queued_guess_can_be_asked_for_anew),
        cmocka_unit_test(a_session_knows_the_calls_of_its_own_tier_only),
        cmocka_unit_test(null_is_refused_where_something_must_be_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
