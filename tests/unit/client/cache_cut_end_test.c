/* Where a cache peer that closes in the middle of a blob ends the session. */
#include "cache_cut_rig.h"

static void assert_dead(const struct rig *r, int code, const char *words)
{
    size_t done;
    struct pollfd p = { .fd = r->listener, .events = POLLIN };
    assert_int_equal(penstock_poll(r->f.session, NULL, 0, &done), code);
    if (!strstr(fake_words(&r->f, 0), words))
        print_error("%s\n", fake_words(&r->f, 0));
    assert_non_null(strstr(fake_words(&r->f, 0), words));
    assert_int_equal(poll(&p, 1, 0), 0); /* it has not dialled again */
}

static const char as_ever[] = ": closed the connection: it ended";

static void a_blob_that_is_cut_twice_ends_the_session(void **state)
{
    (void)state;
    struct rig r;
    static uint8_t memory[2 * BLOB];
    struct penstock_blob blobs[2];
    begin(&r);
    penstock_op op = get(&r, fake_region(&r.f, memory, sizeof memory), blobs, 0, 2);
    expect_key(&r, PENSTOCK_OP_FETCH, 0);
    expect_key(&r, PENSTOCK_OP_FETCH, 1);
    answer(&r, 0);
    for (int i = 0; i < 2; i++) {
        cut(&r, 1, false);
        if (i == 0) {
            let_in(&r);
            expect_key(&r, PENSTOCK_OP_FETCH, 1);
        }
    }
    expect_end(&r, op, PENSTOCK_ECLOSED);
    assert_int_equal(blobs[0].code, 0);
    assert_int_equal(blobs[1].code, PENSTOCK_ECANCELED);
    assert_dead(&r, PENSTOCK_ECLOSED, as_ever);
    end(&r);
}

static void nothing_is_put_or_removed_twice(void **state)
{
    (void)state;
    static const int actions[] = { PENSTOCK_BLOB_PUT, PENSTOCK_BLOB_REMOVE };
    for (size_t i = 0; i < 2; i++) {
        struct rig r;
        static uint8_t memory[2 * BLOB];
        struct penstock_blob blob, changed = { .key.low = 1, .at_bytes = BLOB };
        begin(&r);
        uint32_t region = fake_region(&r.f, memory, sizeof memory);
        penstock_op op = get(&r, region, &blob, 0, 1), change = submit(&r, actions[i], region, &changed, 1);
        expect_key(&r, PENSTOCK_OP_FETCH, 0);
        expect_key(&r, i == 0 ? PENSTOCK_OP_PUT : PENSTOCK_OP_REMOVE, 1);
        cut(&r, 0, false);
        expect_end(&r, op, PENSTOCK_ECLOSED);
        expect_end(&r, change, PENSTOCK_ECLOSED);
        assert_int_equal(changed.code, PENSTOCK_ECANCELED);
        assert_dead(&r, PENSTOCK_ECLOSED, as_ever);
        end(&r);
    }
}

static void a_session_that_owns_blobs_ends_with_its_connection(void **state)
{
    (void)state;
    struct rig r;
    static uint8_t memory[BLOB];
    struct penstock_cache arena = some_arena();
    struct penstock_blob blob;
    arena.own = 1;
    begin_with(&r, &arena, NULL);
    penstock_op op = get(&r, fake_region(&r.f, memory, BLOB), &blob, 0, 1);
    expect_key(&r, PENSTOCK_OP_FETCH, 0);
    cut(&r, 0, false);
    expect_end(&r, op, PENSTOCK_ECLOSED);
    assert_dead(&r, PENSTOCK_ECLOSED, as_ever);
    end(&r);
}

static void a_raw_arena_ends_with_its_connection(void **state)
{
    (void)state;
    struct rig r;
    static uint8_t memory[BLOB];
    struct penstock_cache arena = some_arena();
    penstock_op op;
    arena.blob_bytes = 0;
    begin_with(&r, &arena, NULL);
    const struct penstock_raw_range range = { .len_bytes = BLOB };
    const struct penstock_raw raw = {
        .size = sizeof raw, .region = fake_region(&r.f, memory, BLOB), .ranges = &range, .count = 1
    };
    assert_int_equal(penstock_submit_raw(r.f.session, &raw, &op, NULL), 0);
    expect(&r, "\x13\0\0\0\0\0\0\0\0\0\x20\0\0", 13);
    cut(&r, 0, false);
    expect_end(&r, op, PENSTOCK_ECLOSED);
    assert_dead(&r, PENSTOCK_ECLOSED, as_ever);
    end(&r);
}

static void a_peer_that_closes_between_two_replies_is_gone(void **state)
{
    (void)state;
    for (int answered = 0; answered < 2; answered++) {
        struct rig r;
        static uint8_t memory[2 * BLOB];
        struct penstock_blob blobs[2];
        begin(&r);
        penstock_op op = get(&r, fake_region(&r.f, memory, sizeof memory), blobs, 0, 2);
        expect_key(&r, PENSTOCK_OP_FETCH, 0);
        expect_key(&r, PENSTOCK_OP_FETCH, 1);
        if (answered)
            answer(&r, 0);
        fake_close(&r.f);
        expect_end(&r, op, PENSTOCK_ECLOSED);
        assert_dead(&r, PENSTOCK_ECLOSED, as_ever);
        end(&r);
    }
}

static void a_stream_that_was_given_cannot_be_dialled_again(void **state)
{
    (void)state;
    struct fake_peer f;
    struct net_stream stream;
    static uint8_t memory[BLOB];
    const struct penstock_cache arena = some_arena();
    const struct penstock_options options = fake_options();
    const struct penstock_paging_header header = { .kind = PENSTOCK_ARENA_KV,
                                                   .arena_bytes = arena.arena_bytes,
                                                   .blob_bytes = BLOB };
    struct penstock_blob blob = { .key.low = 1 };
    struct penstock_completion c;
    penstock_op op;
    fake_cache_stream(&f, &stream);
    assert_int_equal(client_cache_on_stream(&stream, &arena, &options, &f.session, &f.open, NULL), 0);
    fake_cache_ready(&f, &header, FAKE_ANY_FEATURES, false);
    const struct penstock_blobs b = { .size = sizeof b,
                                      .action = PENSTOCK_BLOB_GET,
                                      .region = fake_region(&f, memory, BLOB),
                                      .blobs = &blob,
                                      .count = 1 };
    assert_int_equal(penstock_submit_blobs(f.session, &b, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_cache_expect(&f, PENSTOCK_OP_FETCH, 1);
    fake_status(&f, PENSTOCK_ST_OK);
    fake_payload(&f, 0, 0, CUT);
    fake_close(&f);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_ECLOSED);
    assert_non_null(strstr(fake_words(&f, op), as_ever));
    fake_end(&f);
}

/* ---- what the second connection comes to ---- */

/* A GET of two blobs, the first of which is cut. */
static penstock_op cut_one(struct rig *r, const struct penstock_options *options, struct penstock_blob blobs[2])
{
    static uint8_t memory[2 * BLOB];
    const struct penstock_cache arena = some_arena();
    begin_with(r, &arena, options);
    penstock_op op = get(r, fake_region(&r->f, memory, sizeof memory), blobs, 0, 2);
    expect_key(r, PENSTOCK_OP_FETCH, 0);
    cut(r, 0, false);
    return op;
}

static void a_peer_that_was_killed_is_said_to_have_closed(void **state)
{
    (void)state;
    struct rig r;
    struct penstock_blob blobs[2];
    const struct penstock_cache arena = some_arena();
    static uint8_t memory[2 * BLOB];
    begin_with(&r, &arena, NULL);
    penstock_op op = get(&r, fake_region(&r.f, memory, sizeof memory), blobs, 0, 2);
    expect_key(&r, PENSTOCK_OP_FETCH, 0);
    close(r.listener);
    cut(&r, 0, false);
    expect_end(&r, op, PENSTOCK_ECLOSED);
    assert_non_null(strstr(fake_words(&r.f, op), "cache peer 127.0.0.1:"));
    assert_non_null(strstr(fake_words(&r.f, op), "closed the connection in the middle of a reply; asking again: "
                                                 "connection refused"));
    listen_on_loopback(&r);
    assert_dead(&r, PENSTOCK_ECLOSED, "connection refused");
    end(&r);
}

static void an_arena_that_is_refused_the_second_time_ends_the_session(void **state)
{
    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        struct rig r;
        struct penstock_blob blobs[2];
        penstock_op op = cut_one(&r, NULL, blobs);
        greet(&r);
        if (!silent)
            fake_send(&r.f, "\0\1", 2);
        fake_close(&r.f);
        expect_end(&r, op, PENSTOCK_EDENIED);
        assert_dead(&r, PENSTOCK_EDENIED,
                    silent ? "asking again: refused a KV arena" : "asking again: refused connection (ack 1)");
        end(&r);
    }
}

static void the_second_hello_has_its_deadline(void **state)
{
    (void)state;
    struct rig r;
    struct penstock_blob blobs[2];
    struct penstock_options options = fake_options();
    options.manifest_timeout_ns = 100 * 1000 * 1000;
    penstock_op op = cut_one(&r, &options, blobs);
    accept_one(&r);
    expect_end(&r, op, PENSTOCK_ETIMEOUT);
    assert_dead(&r, PENSTOCK_ETIMEOUT, "asking again: no answer to the arena, and not a byte for 0.1 s");
    end(&r);
}

static void a_session_may_be_freed_while_it_dials_again(void **state)
{
    (void)state;
    struct rig r;
    struct penstock_blob blobs[2];
    (void)cut_one(&r, NULL, blobs);
    accept_one(&r);
    end(&r);
    assert_int_equal(blobs[0].code, PENSTOCK_ECANCELED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blob_that_is_cut_twice_ends_the_session),
        cmocka_unit_test(nothing_is_put_or_removed_twice),
        cmocka_unit_test(a_session_that_owns_blobs_ends_with_its_connection),
        cmocka_unit_test(a_raw_arena_ends_with_its_connection),
        cmocka_unit_test(a_peer_that_closes_between_two_replies_is_gone),
        cmocka_unit_test(a_stream_that_was_given_cannot_be_dialled_again),
        cmocka_unit_test(a_peer_that_was_killed_is_said_to_have_closed),
        cmocka_unit_test(an_arena_that_is_refused_the_second_time_ends_the_session),
        cmocka_unit_test(the_second_hello_has_its_deadline),
        cmocka_unit_test(a_session_may_be_freed_while_it_dials_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
