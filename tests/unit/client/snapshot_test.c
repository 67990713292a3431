/* A session on snapshots, and the peer in the test's own thread. */
#include "fake_cache.h"

#include "client/cache/snapshot.h"

enum { BLOB = 12288, SLOTS = 4 };

#define NAMESPACE UINT64_C(0x1234567890ABCDEF)

static struct penstock_snapshot_arena arena_of(int raw)
{
    return (struct penstock_snapshot_arena){ .size = sizeof(struct penstock_snapshot_arena),
                                             .blob_bytes = BLOB,
                                             .arena_bytes = SLOTS * BLOB,
                                             .namespace_id = NAMESPACE,
                                             .raw = raw };
}

static struct fake_peer ready(const struct penstock_snapshot_arena *arena)
{
    struct fake_peer f;
    struct net_stream stream;
    const struct penstock_options options = fake_options();
    fake_cache_stream(&f, &stream);
    assert_int_equal(client_snapshots_on_stream(&stream, arena, &options, &f.session, &f.open, NULL), 0);
    const struct penstock_paging_header header = { .kind = PENSTOCK_ARENA_SSM,
                                                   .arena_bytes = arena->arena_bytes,
                                                   .blob_bytes = arena->raw ? 0 : arena->blob_bytes };
    fake_cache_ready(&f, &header, FAKE_ANY_FEATURES, arena->own);
    return f;
}

static int submit(const struct fake_peer *f, int action, uint32_t region, struct penstock_snapshot *snapshots, size_t n,
                  penstock_op *op, struct penstock_error *error)
{
    const struct penstock_snapshots s = {
        .size = sizeof s, .action = action, .region = region, .snapshots = snapshots, .count = n
    };
    return penstock_submit_snapshots(f->session, &s, op, error);
}

static void keys_on_the_wire_are_mixed_with_the_namespace(void **state)
{
    (void)state;
    struct penstock_snapshot_arena arena = arena_of(0);
    arena.own = 1;
    struct fake_peer f = ready(&arena);
    static uint8_t memory[2 * BLOB];
    uint32_t region = fake_region(&f, memory, sizeof memory);
    struct penstock_snapshot snapshots[] = { { .key = 1, .at_bytes = BLOB }, { .key = 2 } };
    struct penstock_completion c;
    penstock_op op;
    assert_true(penstock_snapshot_wire_key(1, 2) == UINT64_C(0xBEEB8DA1658EEC67)); /* protocol 1.6 */
    fake_fill(memory + BLOB, 1, 0, BLOB);
    fake_fill(memory, 2, 0, BLOB);
    assert_int_equal(submit(&f, PENSTOCK_BLOB_PUT, region, snapshots, 2, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    for (uint32_t i = 0; i < 2; i++) {
        fake_cache_expect(&f, PENSTOCK_OP_PUT, penstock_snapshot_wire_key(snapshots[i].key, NAMESPACE));
        fake_cache_expect_body(&f, i + 1, BLOB);
    }
    fake_send(&f, "\0\0", 2);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, 0);
    assert_int_equal(c.landed_bytes, 2 * BLOB);

    assert_int_equal(submit(&f, PENSTOCK_BLOB_GET, region, snapshots, 2, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_cache_expect(&f, PENSTOCK_OP_FETCH, penstock_snapshot_wire_key(1, NAMESPACE));
    fake_status(&f, PENSTOCK_ST_OK);
    fake_payload(&f, 3, 0, BLOB);
    fake_status(&f, PENSTOCK_ST_MISS);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_ENOTFOUND);
    assert_string_equal(fake_words(&f, op), "cache peer stream: has not got snapshot 2 (a miss; 1 of 2 snapshots)");
    assert_int_equal(snapshots[0].code, 0);
    assert_int_equal(snapshots[1].code, PENSTOCK_ENOTFOUND);
    assert_int_equal(memory[2 * BLOB - 1], fake_byte(3, BLOB - 1));
    assert_int_equal(memory[BLOB - 1], fake_byte(2, BLOB - 1));
    fake_end(&f);
}

static void in_a_raw_arena_a_key_is_a_slot(void **state)
{
    (void)state;
    const struct penstock_snapshot_arena arena = arena_of(1);
    struct fake_peer f = ready(&arena);
    static uint8_t memory[BLOB];
    uint32_t region = fake_region(&f, memory, sizeof memory);
    struct penstock_snapshot snapshot = { .key = SLOTS - 1 };
    struct penstock_error error;
    struct penstock_completion c;
    penstock_op op;
    fake_fill(memory, 6, 0, BLOB);
    assert_int_equal(submit(&f, PENSTOCK_BLOB_PUT, region, &snapshot, 1, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_cache_expect_raw(&f, PENSTOCK_OP_WRITE, (SLOTS - 1) * BLOB, BLOB);
    fake_cache_expect_body(&f, 6, BLOB);
    fake_status(&f, PENSTOCK_ST_OK);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, 0);
    assert_int_equal(snapshot.code, 0);

    snapshot.key = SLOTS;
    assert_int_equal(submit(&f, PENSTOCK_BLOB_GET, region, &snapshot, 1, &op, &error), PENSTOCK_EINVAL);
    assert_string_equal(error.message, "snapshot 4: the raw arena has 4 slots");
    assert_int_equal(submit(&f, PENSTOCK_BLOB_REMOVE, region, &snapshot, 1, &op, NULL), PENSTOCK_EINVAL);
    fake_expect_nothing(&f);
    fake_end(&f);
}

static void arenas_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct penstock_snapshot_arena bad[] = { arena_of(0), arena_of(1), arena_of(1), arena_of(0) };
    bad[0].blob_bytes = 0;
    bad[1].arena_bytes = BLOB + 1;
    bad[2].own = 1;
    bad[3].chunk_bytes = 4095;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct fake_peer f;
        struct net_stream stream;
        const struct penstock_options options = fake_options();
        fake_cache_stream(&f, &stream);
        assert_int_equal(client_snapshots_on_stream(&stream, &bad[i], &options, &f.session, &f.open, NULL),
                         PENSTOCK_EINVAL);
        close(f.fd);
    }
}

static void sessions_of_another_kind_are_told_apart(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    struct penstock_error error;
    penstock_op op;
    assert_int_equal(submit(&f, PENSTOCK_BLOB_GET, 0, NULL, 0, &op, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "penstock_snapshots_open"));
    fake_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_on_the_wire_are_mixed_with_the_namespace),
        cmocka_unit_test(in_a_raw_arena_a_key_is_a_slot),
        cmocka_unit_test(arenas_that_cannot_be_are_refused),
        cmocka_unit_test(sessions_of_another_kind_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
