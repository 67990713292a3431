#include "fake_peer.h"

#include "client/weights/catalogue.h"

static struct penstock_catalogue *catalogue(void)
{
    struct penstock_catalogue *c = NULL;
    char json[sizeof fake_manifest + MODEL_JSON_PADDING] = { 0 };
    memcpy(json, fake_manifest, sizeof fake_manifest);
    assert_int_equal(client_catalogue_read(json, sizeof fake_manifest - 1, sizeof json, &c, NULL), 0);
    return c;
}

/* Every byte that was asked for goes to its place, whatever the order, and requests are in the order of the files. */
static void random_ranges_are_planned_rightly(void **state)
{
    (void)state;
    enum { RANGES = 300, SPAN = 1000 };
    static uint8_t region[RANGES * SPAN];
    static uint8_t planned[RANGES * SPAN];
    struct penstock_catalogue *c = catalogue();
    uint64_t seed = 5;
    for (int round = 0; round < 200; round++) {
        struct penstock_range ranges[RANGES];
        size_t n = test_random(&seed) % RANGES + 1;
        uint64_t total = 0;
        for (size_t i = 0; i < n; i++) {
            ranges[i] = (struct penstock_range){ .file = test_random(&seed) % 2,
                                                 .offset_bytes = test_random(&seed) % (FAKE_SHARD0 - SPAN),
                                                 .len_bytes = test_random(&seed) % SPAN,
                                                 .dst_bytes = i * SPAN };
            if (i > 0 && test_random(&seed) % 2) { /* one that touches the one before */
                ranges[i].file = ranges[i - 1].file;
                ranges[i].offset_bytes = ranges[i - 1].offset_bytes + ranges[i - 1].len_bytes;
                if (ranges[i].offset_bytes + SPAN > FAKE_SHARD0)
                    ranges[i].len_bytes = 0, ranges[i].offset_bytes = 0;
            }
            total += ranges[i].len_bytes;
        }
        struct client_plan plan;
        assert_int_equal(client_plan_make(c, ranges, n, region, sizeof region, &plan, NULL), 0);
        assert_int_equal(plan.len_bytes, total);
        assert_true(plan.n_requests <= n);
        memset(planned, 0, sizeof planned);
        for (size_t i = 0; i < plan.n_requests; i++) {
            const struct client_request *r = &plan.requests[i];
            size_t end = i + 1 < plan.n_requests ? r[1].piece : plan.n_pieces;
            uint64_t offset = r->offset_bytes;
            if (i > 0)
                assert_true(r[-1].file < r->file || (r[-1].file == r->file && r[-1].offset_bytes <= offset));
            for (size_t p = r->piece; p < end; p++) {
                const struct iovec *piece = &plan.pieces[p];
                for (size_t at = 0; at < piece->iov_len; at++)
                    planned[(uint8_t *)piece->iov_base - region + (ptrdiff_t)at] = fake_byte(r->file, offset++);
            }
            assert_int_equal(offset, r->offset_bytes + r->len_bytes);
        }
        for (size_t i = 0; i < n; i++)
            fake_assert_landed(planned, &ranges[i]);
        client_plan_fini(&plan);
    }
    penstock_catalogue_unref(c);
}

/* What is in order in memory as well is one piece for each request. */
static void ranges_in_order_need_few_pieces(void **state)
{
    (void)state;
    static uint8_t region[20 << 20];
    struct penstock_range ranges[2560];
    struct penstock_catalogue *c = catalogue();
    struct client_plan plan;
    for (size_t i = 0; i < 2560; i++)
        ranges[i] =
            (struct penstock_range){ .file = 1, .offset_bytes = i << 13, .len_bytes = 8192, .dst_bytes = i << 13 };
    assert_int_equal(client_plan_make(c, ranges, 2560, region, sizeof region, &plan, NULL), 0);
    assert_int_equal(plan.n_requests, 3);
    assert_int_equal(plan.n_pieces, 3);
    assert_int_equal(plan.requests[2].len_bytes, 4 << 20);
    client_plan_fini(&plan);
    penstock_catalogue_unref(c);
}

/* As rails take them: no piece has a bound, and other files are left for TCP. */
static void what_rails_take_is_joined_and_the_rest_is_left(void **state)
{
    (void)state;
    struct penstock_catalogue *c = catalogue();
    const struct penstock_range ranges[] = {
        { .file = 2, .len_bytes = 10, .dst_bytes = 5 },
        { .file = 1, .offset_bytes = 20 << 20, .len_bytes = 20 << 20, .dst_bytes = 20 << 20 },
        { .file = 0, .offset_bytes = 100, .len_bytes = 0 },
        { .file = 1, .offset_bytes = 0, .len_bytes = 20 << 20, .dst_bytes = 0 },
        { .file = 0, .offset_bytes = 50, .len_bytes = 50, .dst_bytes = 60 << 20 },
        { .file = 0, .offset_bytes = 0, .len_bytes = 50, .dst_bytes = 41 << 20 }, /* touches that in the file alone */
    };
    struct client_split split;
    assert_int_equal(client_split_make(c, ranges, 6, 64 << 20, &split, NULL), 0);
    assert_int_equal(split.n_rails, 3);
    assert_int_equal(split.rails[0].local_offset, 41 << 20);
    assert_int_equal(split.rails[1].remote_offset, 50);
    assert_int_equal(split.rails[2].region, 1);
    assert_int_equal(split.rails[2].len_bytes, 40 << 20);
    assert_int_equal(split.n_files, 1);
    assert_int_equal(split.files[0].file, 2);
    client_split_fini(&split);

    struct penstock_error error;
    assert_int_equal(client_split_make(c, ranges, 6, 60 << 20, &split, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "range 4"));
    assert_int_equal(client_split_make(c, NULL, 0, 0, &split, NULL), 0);
    assert_int_equal(split.n_rails + split.n_files, 0);
    client_split_fini(&split);
    penstock_catalogue_unref(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_ranges_are_planned_rightly),
        cmocka_unit_test(ranges_in_order_need_few_pieces),
        cmocka_unit_test(what_rails_take_is_joined_and_the_rest_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
