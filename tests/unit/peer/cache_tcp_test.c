/* The cache's TCP data plane. What it promises beside killed and silent clients is in tests/e2e. */
#include "cache_rig.h"

static void blobs_come_back_also_when_there_are_more_than_slots(void **state)
{
    struct rig_client c;
    rig_join(*state, &c, 4 * RIG_BLOB, RIG_BLOB);
    for (uint64_t key = 0; key < 40; key++) {
        rig_send_put(&c, key, key);
        rig_assert_status(&c, PENSTOCK_ST_OK);
    }
    for (uint64_t key = 0; key < 40; key++) {
        rig_send(&c, PENSTOCK_OP_FETCH, key);
        rig_assert_blob(&c, key);
    }
    rig_assert_ask(&c, PENSTOCK_OP_FETCH, 40, PENSTOCK_ST_MISS);
    rig_leave(&c);
}

/* Sends while the test reads. */
static void *send_many(void *argument)
{
    struct rig_client *c = argument;
    for (uint64_t i = 0; i < 700; i++) {
        rig_send_put(c, i % 50, i);
        rig_send(c, PENSTOCK_OP_FETCH, i % 50);
        if (i % 7 == 0)
            rig_send(c, PENSTOCK_OP_REMOVE, i % 50);
        rig_send(c, PENSTOCK_OP_FETCH, i % 50);
    }
    return NULL;
}

static void requests_that_come_before_earlier_replies_have_been_read_take_effect_in_order(void **state)
{
    struct rig_client c;
    pthread_t sender;
    rig_join(*state, &c, 8 * RIG_BLOB, RIG_BLOB);
    assert_int_equal(pthread_create(&sender, NULL, send_many, &c), 0);
    for (uint64_t i = 0; i < 700; i++) {
        rig_assert_status(&c, PENSTOCK_ST_OK);
        rig_assert_blob(&c, i);
        if (i % 7 == 0) {
            rig_assert_status(&c, PENSTOCK_ST_OK);
            rig_assert_status(&c, PENSTOCK_ST_MISS);
        } else {
            rig_assert_blob(&c, i);
        }
    }
    pthread_join(sender, NULL);
    rig_leave(&c);
}

/* The peer waits for the rest each time, between two bytes of a head and of a body. */
static void a_request_may_come_byte_by_byte(void **state)
{
    struct rig_client c;
    uint8_t put[9 + RIG_BLOB] = { PENSTOCK_OP_PUT, 7 };
    rig_join(*state, &c, 4 * RIG_BLOB, RIG_BLOB);
    rig_fill(put + 9, RIG_BLOB, 3);
    for (size_t i = 0; i < 20; i++)
        rig_write(&c, put + i, 1);
    rig_write(&c, put + 20, sizeof put - 21);
    rig_write(&c, put + sizeof put - 1, 1);
    rig_assert_status(&c, PENSTOCK_ST_OK);
    rig_send(&c, PENSTOCK_OP_FETCH, 7);
    rig_assert_blob(&c, 3);
    rig_leave(&c);
}

static void an_arena_of_one_slot_takes_overwrites_and_runs_of_requests(void **state)
{
    struct rig_client c;
    rig_join(*state, &c, RIG_BLOB, RIG_BLOB);
    for (uint64_t i = 0; i < 12; i++) {
        rig_send_put(&c, i % 3, i);
        rig_send(&c, PENSTOCK_OP_FETCH, i % 3);
        rig_send(&c, PENSTOCK_OP_FETCH, i % 3);
    }
    for (uint64_t i = 0; i < 12; i++) {
        rig_assert_status(&c, PENSTOCK_ST_OK);
        rig_assert_blob(&c, i);
        rig_assert_blob(&c, i);
    }
    rig_leave(&c);
}

static void a_put_that_is_refused_still_takes_its_body(void **state)
{
    struct rig_client holder, c;
    rig_join_rails(*state, &holder, RIG_BLOB, RIG_BLOB, 1);
    rig_send(&holder, PENSTOCK_OP_ALLOC, 1);
    (void)rig_value(&holder);
    rig_join(*state, &c, RIG_BLOB, RIG_BLOB);
    rig_send_put(&c, 2, 2);
    rig_assert_status(&c, PENSTOCK_ST_ERR);
    rig_assert_ask(&c, PENSTOCK_OP_EXISTS, 2, PENSTOCK_ST_MISS);
    rig_leave(&holder);
    rig_send_put(&c, 2, 2);
    rig_assert_status(&c, PENSTOCK_ST_OK);
    rig_leave(&c);
}

static void slots_are_not_handed_out(void **state)
{
    struct rig_client c;
    struct penstock_key keys[2] = { { 1, 0 }, { 2, 0 } };
    rig_join(*state, &c, 4 * RIG_BLOB, RIG_BLOB);
    rig_send_put(&c, 1, 1);
    rig_assert_status(&c, PENSTOCK_ST_OK);
    rig_assert_ask(&c, PENSTOCK_OP_ALLOC, 1, PENSTOCK_ST_ERR);
    rig_assert_ask(&c, PENSTOCK_OP_COMMIT, 1, PENSTOCK_ST_ERR);
    rig_assert_ask(&c, PENSTOCK_OP_GET, 1, PENSTOCK_ST_ERR);
    rig_send_request(&c, &(struct penstock_paging_request){ .op = PENSTOCK_OP_MGET, .keys = keys, .n_keys = 2 });
    rig_send_request(&c, &(struct penstock_paging_request){ .op = PENSTOCK_OP_RELEASE, .keys = keys, .n_keys = 2 });
    rig_assert_status(&c, PENSTOCK_ST_ERR);
    rig_assert_status(&c, PENSTOCK_ST_ERR);
    rig_send(&c, PENSTOCK_OP_FEATURES, 1);
    assert_int_equal(rig_value(&c), PENSTOCK_FEATURE_EXISTS | PENSTOCK_FEATURE_OWN | PENSTOCK_FEATURE_WIDE);
    rig_assert_ask(&c, PENSTOCK_OP_FEATURES, 2, PENSTOCK_ST_ERR);
    rig_leave(&c);
}

static void an_op_that_is_not_known_closes_once_what_came_before_it_is_answered(void **state)
{
    struct rig_client c;
    rig_join(*state, &c, 4 * RIG_BLOB, RIG_BLOB);
    const uint8_t bytes[] = { PENSTOCK_OP_EXISTS, 1, 0, 0, 0, 0, 0, 0, 0, 0x55, 9, 9 };
    rig_write(&c, bytes, sizeof bytes);
    rig_assert_status(&c, PENSTOCK_ST_MISS);
    rig_assert_closed(&c);
    rig_leave(&c);
}

static void keys_are_wide_from_the_request_that_says_so(void **state)
{
    struct rig_client c;
    uint8_t blob[RIG_BLOB];
    rig_join(*state, &c, 4 * RIG_BLOB, RIG_BLOB);
    rig_send(&c, PENSTOCK_OP_WIDE, 1);
    c.framing.wide = true;
    rig_fill(blob, sizeof blob, 5);
    rig_send_request(&c, &(struct penstock_paging_request){ .op = PENSTOCK_OP_PUT, .key = { 1, 2 } });
    rig_write(&c, blob, sizeof blob);
    rig_send_request(&c, &(struct penstock_paging_request){ .op = PENSTOCK_OP_FETCH, .key = { 1, 2 } });
    rig_send_request(&c, &(struct penstock_paging_request){ .op = PENSTOCK_OP_FETCH, .key = { 1, 3 } });
    rig_send(&c, PENSTOCK_OP_WIDE, 2);
    rig_send(&c, PENSTOCK_OP_WIDE, 0);
    c.framing.wide = false;
    rig_send(&c, PENSTOCK_OP_FETCH, 1);
    rig_assert_status(&c, PENSTOCK_ST_OK);
    rig_assert_status(&c, PENSTOCK_ST_OK);
    rig_assert_blob(&c, 5);
    rig_assert_status(&c, PENSTOCK_ST_MISS);
    rig_assert_status(&c, PENSTOCK_ST_ERR);
    rig_assert_status(&c, PENSTOCK_ST_OK);
    rig_assert_status(&c, PENSTOCK_ST_MISS);
    rig_leave(&c);
}

static void what_a_connection_owns_goes_with_it(void **state)
{
    struct rig_client owner, other;
    rig_join(*state, &owner, 4 * RIG_BLOB, RIG_BLOB);
    rig_join(*state, &other, RIG_BLOB, RIG_BLOB); /* joins, whatever size it asks for */
    rig_assert_ask(&owner, PENSTOCK_OP_OWN, 1, PENSTOCK_ST_OK);
    for (uint64_t key = 1; key <= 2; key++) {
        rig_send_put(&owner, key, key);
        rig_assert_status(&owner, PENSTOCK_ST_OK);
    }
    rig_send_put(&other, 2, 22);
    rig_assert_status(&other, PENSTOCK_ST_OK);
    rig_leave(&owner);
    rig_assert_ask(&other, PENSTOCK_OP_EXISTS, 1, PENSTOCK_ST_MISS);
    rig_send(&other, PENSTOCK_OP_FETCH, 2);
    rig_assert_blob(&other, 22);
    rig_leave(&other);
}

/* ---- raw ---- */

static void send_range(struct rig_client *c, uint8_t op, uint64_t offset, uint32_t len)
{
    rig_send_request(c, &(struct penstock_paging_request){ .op = op, .offset = offset, .len_bytes = len });
}

static void a_raw_read_is_what_was_there_when_its_turn_came(void **state)
{
    struct rig_client c;
    char got[10];
    rig_join(*state, &c, 8192, 0);
    send_range(&c, PENSTOCK_OP_WRITE, 8190, 2);
    rig_write(&c, "ab", 2);
    send_range(&c, PENSTOCK_OP_READ, 8188, 4);
    send_range(&c, PENSTOCK_OP_WRITE, 8189, 2);
    rig_write(&c, "cd", 2);
    send_range(&c, PENSTOCK_OP_READ, 8188, 4);
    rig_assert_status(&c, PENSTOCK_ST_OK);
    rig_read(&c, got, 5);
    assert_memory_equal(got, "\0\0\0ab", 5);
    rig_assert_status(&c, PENSTOCK_ST_OK);
    rig_read(&c, got, 5);
    assert_memory_equal(got, "\0\0cdb", 5);
    rig_leave(&c);
}

static void ranges_outside_a_raw_arena_and_ops_of_the_other_mode_are_errors(void **state)
{
    struct rig_client c;
    rig_join(*state, &c, 8192, 0);
    send_range(&c, PENSTOCK_OP_WRITE, 8191, 2);
    rig_write(&c, "ab", 2);
    rig_assert_status(&c, PENSTOCK_ST_ERR);
    send_range(&c, PENSTOCK_OP_WRITE, 0, 0);
    rig_assert_status(&c, PENSTOCK_ST_ERR);
    send_range(&c, PENSTOCK_OP_READ, UINT64_MAX, 2);
    rig_assert_status(&c, PENSTOCK_ST_ERR);
    send_range(&c, PENSTOCK_OP_READ, 0, UINT32_MAX);
    rig_assert_status(&c, PENSTOCK_ST_ERR);
    rig_assert_ask(&c, PENSTOCK_OP_PUT, 1, PENSTOCK_ST_ERR);
    rig_assert_ask(&c, PENSTOCK_OP_FETCH, 1, PENSTOCK_ST_ERR);
    rig_assert_ask(&c, PENSTOCK_OP_WIDE, 1, PENSTOCK_ST_ERR);
    rig_assert_ask(&c, PENSTOCK_OP_EXISTS, 1, PENSTOCK_ST_ERR);
    rig_send(&c, PENSTOCK_OP_FEATURES, 1);
    assert_int_equal(rig_value(&c), 0);
    rig_leave(&c);

    rig_join(*state, &c, 4 * RIG_BLOB, RIG_BLOB);
    send_range(&c, PENSTOCK_OP_WRITE, 0, 3);
    rig_write(&c, "abc", 3);
    rig_assert_status(&c, PENSTOCK_ST_ERR);
    send_range(&c, PENSTOCK_OP_READ, 0, 3);
    rig_assert_status(&c, PENSTOCK_ST_ERR);
    rig_leave(&c);
}

/* ---- before the data plane ---- */

static void what_no_arena_can_be_is_refused(void **state)
{
    const uint64_t wrong[][2] = { { RIG_BLOB + 1, RIG_BLOB }, { 4097, 4097 }, { 0, 0 }, { UINT64_C(1) << 43, 0 } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct rig_client c;
        rig_connect(*state, &c, PENSTOCK_ARENA_KV, wrong[i][0], wrong[i][1]);
        rig_assert_closed(&c);
        rig_leave(&c);
    }
}

static void statistics_count_what_was_done(void **state)
{
    struct rig_client c, asking;
    uint32_t len;
    char json[2048];
    rig_join(*state, &c, 2 * RIG_BLOB, RIG_BLOB);
    for (uint64_t key = 1; key <= 5; key++) {
        rig_send_put(&c, key, key);
        rig_assert_status(&c, PENSTOCK_ST_OK);
    }
    rig_send(&c, PENSTOCK_OP_FETCH, 1);
    rig_assert_blob(&c, 1);
    rig_assert_ask(&c, PENSTOCK_OP_FETCH, 6, PENSTOCK_ST_MISS);

    rig_connect(*state, &asking, PENSTOCK_ARENA_STATISTICS, 0, 0);
    rig_read(&asking, &len, 4);
    assert_true(len < sizeof json);
    rig_read(&asking, json, len);
    json[len] = 0;
    assert_non_null(strstr(json, "{\"version\":1,\"memory\":{\"used\":8192,\"cap\":0},\"swap\":{\"used\":"));
    assert_non_null(strstr(json, ",\"cap\":53687091200},\"arenas\":[{\"kind\":\"kv\",\"blob_bytes\":4096,"
                                 "\"arena_bytes\":8192,\"slots\":2,"));
    assert_non_null(strstr(json, "\"reserved\":0,\"pinned\":0,\"connections\":1,\"hits\":1,\"misses\":1,\"puts\":5,"));
    assert_non_null(
        strstr(json, "\"faults\":1,\"drops\":0,\"errors\":0}],\"rails\":[{\"index\":0,\"device\":\"peer0\""));
    rig_assert_closed(&asking);
    rig_leave(&asking);
    rig_leave(&c);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(blobs_come_back_also_when_there_are_more_than_slots),
        TEST(requests_that_come_before_earlier_replies_have_been_read_take_effect_in_order),
        TEST(a_request_may_come_byte_by_byte),
        TEST(an_arena_of_one_slot_takes_overwrites_and_runs_of_requests),
        TEST(a_put_that_is_refused_still_takes_its_body),
        TEST(slots_are_not_handed_out),
        TEST(an_op_that_is_not_known_closes_once_what_came_before_it_is_answered),
        TEST(keys_are_wide_from_the_request_that_says_so),
        TEST(what_a_connection_owns_goes_with_it),
        TEST(a_raw_read_is_what_was_there_when_its_turn_came),
        TEST(ranges_outside_a_raw_arena_and_ops_of_the_other_mode_are_errors),
        TEST(what_no_arena_can_be_is_refused),
        TEST(statistics_count_what_was_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
