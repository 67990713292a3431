/* What a session asks for again on another connection, when a cache peer has closed in the middle of a blob. */
#include "cache_cut_rig.h"

static void assert_landed(const uint8_t *memory, uint32_t file)
{
    for (uint64_t i = 0; i < BLOB; i++)
        assert_int_equal(memory[(uint64_t)file * BLOB + i], fake_byte(file, i));
}

static void a_blob_that_is_cut_is_asked_for_again_with_all_behind_it(void **state)
{
    (void)state;
    for (int reset = 0; reset < 2; reset++) {
        struct rig r;
        static uint8_t memory[8 * BLOB];
        struct penstock_blob first[3], there = { .key.low = 4 }, part[2], later[1];
        memset(memory, 0xEE, sizeof memory);
        begin(&r);
        uint32_t region = fake_region(&r.f, memory, sizeof memory);
        penstock_op a = get(&r, region, first, 1, 3), b = submit(&r, PENSTOCK_BLOB_EXISTS, 0, &there, 1);
        for (size_t i = 0; i < 2; i++)
            part[i] = (struct penstock_blob){
                .key.low = 5 + i, .at_bytes = (5 + i) * BLOB, .from_bytes = 4096, .len_bytes = 100
            };
        penstock_op c = submit(&r, PENSTOCK_BLOB_GET, region, part, 2);
        for (uint64_t key = 1; key <= 6; key++)
            expect_key(&r, key == 4 ? PENSTOCK_OP_EXISTS : PENSTOCK_OP_FETCH, key);
        answer(&r, 1);
        cut(&r, 2, reset);
        let_in(&r);
        for (uint64_t key = 2; key <= 6; key++)
            expect_key(&r, key == 4 ? PENSTOCK_OP_EXISTS : PENSTOCK_OP_FETCH, key);
        fake_status(&r.f, PENSTOCK_ST_MISS);
        answer(&r, 3);
        fake_status(&r.f, PENSTOCK_ST_OK);
        answer(&r, 5);
        answer(&r, 6);
        struct penstock_completion ended = next(&r);
        assert_int_equal(ended.op, a);
        assert_int_equal(ended.code, PENSTOCK_ENOTFOUND);
        assert_int_equal(ended.landed_bytes, 2 * BLOB);
        assert_non_null(strstr(fake_words(&r.f, a), "has not got 1 of 3 blobs, the first with key 00000000000000000000"
                                                    "000000000002"));
        expect_end(&r, b, 0);
        ended = next(&r);
        assert_int_equal(ended.op, c);
        assert_int_equal(ended.code, 0);
        assert_int_equal(ended.landed_bytes, 200);
        assert_int_equal(first[0].code, 0);
        assert_int_equal(first[1].code, PENSTOCK_ENOTFOUND);
        assert_int_equal(first[2].code, 0);
        assert_landed(memory, 1);
        assert_landed(memory, 3);
        for (uint64_t i = 0; i < 100; i++)
            assert_int_equal(memory[5 * BLOB + i], fake_byte(5, 4096 + i));
        assert_int_equal(memory[5 * BLOB + 100], 0xEE);

        a = get(&r, region, later, 7, 1); /* the session lives */
        expect_key(&r, PENSTOCK_OP_FETCH, 7);
        answer(&r, 7);
        expect_end(&r, a, 0);
        assert_landed(memory, 7);
        assert_int_equal(penstock_unregister(r.f.session, region, NULL), 0);
        end(&r);
    }
}

static void an_operation_that_is_half_sent_goes_on_where_it_was_answered(void **state)
{
    (void)state;
    enum { MANY = 700, BEFORE = 150 };
    struct rig r;
    uint8_t *memory = malloc((size_t)(MANY + 1) * BLOB);
    struct penstock_blob *blobs = calloc(MANY, sizeof *blobs), behind;
    assert_true(memory && blobs);
    begin(&r);
    uint32_t region = fake_region(&r.f, memory, (size_t)(MANY + 1) * BLOB);
    penstock_op op = get(&r, region, blobs, 0, MANY), last = get(&r, region, &behind, MANY, 1);
    for (uint32_t i = 0; i < BEFORE; i++) {
        expect_key(&r, PENSTOCK_OP_FETCH, i);
        answer(&r, i);
    }
    expect_key(&r, PENSTOCK_OP_FETCH, BEFORE);
    cut(&r, BEFORE, false);
    let_in(&r);
    for (uint32_t i = BEFORE; i <= MANY; i++) {
        expect_key(&r, PENSTOCK_OP_FETCH, i);
        answer(&r, i);
    }
    const struct penstock_completion c = next(&r);
    assert_int_equal(c.op, op);
    assert_int_equal(c.code, 0);
    assert_int_equal(c.landed_bytes, (uint64_t)MANY * BLOB);
    expect_end(&r, last, 0);
    for (uint32_t i = 0; i <= MANY; i++)
        assert_landed(memory, i);
    end(&r);
    free(memory);
    free(blobs);
}

static void each_blob_may_be_cut_once(void **state)
{
    (void)state;
    struct rig r;
    static uint8_t memory[3 * BLOB];
    struct penstock_blob blobs[3];
    begin(&r);
    penstock_op op = get(&r, fake_region(&r.f, memory, sizeof memory), blobs, 0, 3);
    for (uint32_t i = 0; i < 3; i++) { /* each in its turn is the first, and cut; the one before it is there by then */
        for (uint32_t key = i > 0 ? i - 1 : 0; key < 3; key++)
            expect_key(&r, PENSTOCK_OP_FETCH, key);
        if (i > 0)
            answer(&r, i - 1);
        cut(&r, i, false);
        let_in(&r);
    }
    expect_key(&r, PENSTOCK_OP_FETCH, 2);
    answer(&r, 2);
    expect_end(&r, op, 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_landed(memory, i);
    end(&r);
}

static void wide_keys_are_wide_afterwards(void **state)
{
    (void)state;
    static const char request[] = "\x11\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0";
    struct rig r;
    static uint8_t memory[BLOB];
    struct penstock_cache arena = some_arena();
    struct penstock_blob blob = { .key = { .low = 1, .high = 2 } };
    arena.wide = 1;
    begin_with(&r, &arena, NULL);
    penstock_op op = submit(&r, PENSTOCK_BLOB_GET, fake_region(&r.f, memory, BLOB), &blob, 1);
    expect(&r, request, sizeof request - 1);
    cut(&r, 0, false);
    let_in(&r);
    expect(&r, request, sizeof request - 1);
    fake_status(&r.f, PENSTOCK_ST_MISS);
    expect_end(&r, op, PENSTOCK_ENOTFOUND);
    end(&r);
}

static void what_was_canceled_is_not_asked_for_again(void **state)
{
    (void)state;
    struct rig r;
    static uint8_t memory[8 * BLOB];
    struct penstock_blob blobs[5][2];
    penstock_op ops[5];
    begin(&r);
    uint32_t region = fake_region(&r.f, memory, sizeof memory);
    for (size_t i = 0; i < 4; i++)
        ops[i] = get(&r, region, blobs[i], i, 1);
    for (uint64_t key = 0; key < 4; key++)
        expect_key(&r, PENSTOCK_OP_FETCH, key);
    for (size_t i = 0; i < 4; i += 2) { /* that which is cut, and one behind it */
        assert_int_equal(penstock_cancel(r.f.session, ops[i]), 0);
        expect_end(&r, ops[i], PENSTOCK_ECANCELED);
    }
    memset(memory, 0xEE, sizeof memory);
    cut(&r, 0, false);
    greet(&r);
    assert_int_equal(penstock_cancel(r.f.session, ops[1]), 0); /* while there is no connection */
    expect_end(&r, ops[1], PENSTOCK_ECANCELED);
    ops[4] = get(&r, region, blobs[4], 4, 2);
    fake_send(&r.f, "\0\0\2", 3);
    expect_key(&r, PENSTOCK_OP_FETCH, 3);
    expect_key(&r, PENSTOCK_OP_FETCH, 4);
    expect_key(&r, PENSTOCK_OP_FETCH, 5);
    for (uint32_t i = 3; i < 6; i++)
        answer(&r, i);
    expect_end(&r, ops[3], 0);
    expect_end(&r, ops[4], 0);
    for (uint64_t i = 0; i < 3 * BLOB; i++)
        assert_int_equal(memory[i], 0xEE);
    fake_expect_nothing(&r.f);
    end(&r);
}

static void a_put_that_was_not_sent_goes_out_once(void **state)
{
    (void)state;
    enum { MANY = 300 };
    struct rig r;
    static uint8_t memory[(MANY + 1) * BLOB];
    static struct penstock_blob blobs[MANY];
    struct penstock_blob blob = { .key.low = MANY, .at_bytes = (uint64_t)MANY * BLOB };
    begin(&r);
    uint32_t region = fake_region(&r.f, memory, sizeof memory);
    penstock_op op = get(&r, region, blobs, 0, MANY), put = submit(&r, PENSTOCK_BLOB_PUT, region, &blob, 1);
    expect_key(&r, PENSTOCK_OP_FETCH, 0);
    cut(&r, 0, false);
    let_in(&r);
    for (uint32_t i = 0; i < MANY; i++) {
        expect_key(&r, PENSTOCK_OP_FETCH, i);
        fake_status(&r.f, PENSTOCK_ST_MISS);
    }
    expect_key(&r, PENSTOCK_OP_PUT, MANY);
    for (size_t i = 0; i < BLOB; i += 64)
        expect(&r, memory + blob.at_bytes + i, 64);
    fake_status(&r.f, PENSTOCK_ST_OK);
    expect_end(&r, op, PENSTOCK_ENOTFOUND);
    expect_end(&r, put, 0);
    fake_expect_nothing(&r.f);
    end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blob_that_is_cut_is_asked_for_again_with_all_behind_it),
        cmocka_unit_test(an_operation_that_is_half_sent_goes_on_where_it_was_answered),
        cmocka_unit_test(each_blob_may_be_cut_once),
        cmocka_unit_test(wide_keys_are_wide_afterwards),
        cmocka_unit_test(what_was_canceled_is_not_asked_for_again),
        cmocka_unit_test(a_put_that_was_not_sent_goes_out_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
