#include "fake_peer.h"

static uint8_t memory[1 << 20];

/* Answers n requests, in order; the bit of one in refused makes it STATUS_ERR. */
static void answer(const struct fake_peer *f, size_t n, uint64_t refused)
{
    for (size_t i = 0; i < n; i++) {
        struct penstock_range_request r = fake_request(f);
        if (refused >> i & 1)
            fake_status(f, PENSTOCK_STATUS_ERR);
        else
            fake_answer(f, &r);
    }
}

static void ranges_that_touch_travel_as_one_and_land_apart(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    memset(memory, 0, sizeof memory);
    const struct penstock_range ranges[] = {
        { .file = 0, .offset_bytes = 200, .len_bytes = 50, .dst_bytes = 7000 },
        { .file = 1, .offset_bytes = 0, .len_bytes = 10, .dst_bytes = 0 },
        { .file = 0, .offset_bytes = 100, .len_bytes = 100, .dst_bytes = 3001 },
        { .file = 0, .offset_bytes = 300, .len_bytes = 0, .dst_bytes = 0 },
        { .file = 0, .offset_bytes = 260, .len_bytes = 5, .dst_bytes = 9000 },
    };
    uint32_t region = fake_region(&f, memory, sizeof memory);
    penstock_op op = fake_submit(&f, region, ranges, 5);
    struct penstock_completion c;
    assert_int_equal(penstock_timeout_ns(f.session), 0); /* there is something to send */
    assert_int_equal(fake_poll(&f, &c), 0);
    static const struct penstock_range_request expected[] = { { 0, 100, 150 }, { 0, 260, 5 }, { 1, 0, 10 } };
    for (size_t i = 0; i < 3; i++) {
        struct penstock_range_request r = fake_request(&f);
        assert_int_equal(r.file, expected[i].file);
        assert_int_equal(r.offset, expected[i].offset);
        assert_int_equal(r.len, expected[i].len);
        fake_answer(&f, &r);
    }
    fake_expect_nothing(&f);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, op);
    assert_int_equal(c.code, 0);
    assert_int_equal(c.landed_bytes, 165);
    for (size_t i = 0; i < 5; i++)
        fake_assert_landed(memory, &ranges[i]);
    assert_int_equal(memory[3000], 0);
    assert_int_equal(memory[3101], 0);
    fake_end(&f);
}

static void overlapping_and_equal_ranges_land_each(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    const struct penstock_range ranges[] = {
        { .file = 0, .offset_bytes = 100, .len_bytes = 100, .dst_bytes = 0 },
        { .file = 0, .offset_bytes = 100, .len_bytes = 100, .dst_bytes = 1000 },
        { .file = 0, .offset_bytes = 150, .len_bytes = 100, .dst_bytes = 2000 },
        { .file = 0, .offset_bytes = 200, .len_bytes = 100, .dst_bytes = 3000 },
    };
    uint32_t region = fake_region(&f, memory, sizeof memory);
    (void)fake_submit(&f, region, ranges, 4);
    struct penstock_completion c;
    assert_int_equal(fake_poll(&f, &c), 0);
    size_t n = 0;
    struct pollfd p = { .fd = f.fd, .events = POLLIN };
    for (; poll(&p, 1, 0) == 1; n++) {
        struct penstock_range_request r = fake_request(&f);
        fake_answer(&f, &r);
    }
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, 0);
    assert_int_equal(c.landed_bytes, 400);
    for (size_t i = 0; i < 4; i++)
        fake_assert_landed(memory, &ranges[i]);
    fake_end(&f);
}

static void long_ranges_are_split_at_8_mib(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    uint8_t *big = malloc(FAKE_SHARD1);
    const struct penstock_range range = { .file = 1, .len_bytes = (20 << 20) + 3 };
    uint32_t region = fake_region(&f, big, FAKE_SHARD1);
    (void)fake_submit(&f, region, &range, 1);
    struct penstock_completion c;
    assert_int_equal(fake_poll(&f, &c), 0);
    static const uint64_t lens[] = { 8 << 20, 8 << 20, (4 << 20) + 3 };
    size_t done = 0;
    for (size_t i = 0; i < 3; i++) {
        struct penstock_range_request r = fake_request(&f);
        assert_int_equal(r.len, lens[i]);
        assert_int_equal(r.offset, i << 23);
        /* in small parts, as a network brings them */
        fake_status(&f, PENSTOCK_STATUS_OK);
        for (uint64_t at = 0, n; at < r.len; at += n) {
            n = r.len - at < 100001 ? r.len - at : 100001;
            fake_payload(&f, r.file, r.offset + at, (size_t)n);
            done += fake_poll(&f, &c);
        }
    }
    assert_int_equal(done, 1);
    assert_int_equal(c.landed_bytes, range.len_bytes);
    fake_assert_landed(big, &range);
    free(big);
    fake_end(&f);
}

#define MANY 40

/* MANY operations of one range each, lengths odd, destinations in another order than the file. */
static void many_submits(const struct fake_peer *f, struct penstock_range ranges[MANY], penstock_op ops[MANY])
{
    uint32_t region = fake_region(f, memory, sizeof memory);
    memset(memory, 0, sizeof memory);
    for (size_t i = 0; i < MANY; i++) {
        ranges[i] = (struct penstock_range){
            .file = 0, .offset_bytes = i * 777, .len_bytes = 1 + i * 13, .dst_bytes = (i * 7 % MANY) * 1000
        };
        ops[i] = fake_submit(f, region, &ranges[i], 1);
    }
}

/* Whatever refusals lie in one batch of replies, and wherever it is cut, each other range lands rightly. */
static void refusals_inside_a_batch_cost_only_their_own_operation(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 200; round++) {
        struct fake_peer f = fake_ready(NULL);
        struct penstock_range ranges[MANY];
        penstock_op ops[MANY];
        many_submits(&f, ranges, ops);
        struct penstock_completion c[MANY];
        size_t done, total = 0;
        assert_int_equal(penstock_poll(f.session, c, MANY, &done), 0);
        assert_int_equal(done, 0);
        uint64_t refused = test_random(&seed) & test_random(&seed) & ((UINT64_C(1) << MANY) - 1);
        uint8_t bytes[MANY * 1000];
        size_t n = 0;
        for (size_t i = 0; i < MANY; i++) {
            struct penstock_range_request r = fake_request(&f);
            assert_int_equal(r.offset, ranges[i].offset_bytes);
            bytes[n++] = refused >> i & 1 ? (uint8_t)(1 + test_random(&seed) % 255) : PENSTOCK_STATUS_OK;
            for (uint64_t at = 0; at < r.len && !(refused >> i & 1); at++)
                bytes[n++] = fake_byte(0, r.offset + at);
        }
        for (size_t at = 0, part; at < n; at += part) {
            part = round == 0 ? n : 1 + test_random(&seed) % (n - at);
            fake_send(&f, bytes + at, part);
            assert_int_equal(penstock_poll(f.session, c + total, MANY - total, &done), 0);
            for (size_t i = total; i < total + done; i++) {
                bool bad = refused >> i & 1;
                assert_int_equal(c[i].op, ops[i]);
                assert_int_equal(c[i].code, bad ? PENSTOCK_EREFUSED : 0);
                assert_int_equal(c[i].landed_bytes, bad ? 0 : ranges[i].len_bytes);
                if (bad)
                    assert_non_null(strstr(fake_words(&f, c[i].op), "a.safetensors"));
            }
            total += done;
        }
        assert_int_equal(total, MANY);
        for (size_t i = 0; i < MANY; i++)
            if (!(refused >> i & 1))
                fake_assert_landed(memory, &ranges[i]);
        fake_end(&f);
    }
}

static void a_refusal_drops_the_rest_of_its_operation(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    uint32_t region = fake_region(&f, memory, sizeof memory);
    const struct penstock_range three[] = { { .offset_bytes = 0, .len_bytes = 10, .dst_bytes = 0 },
                                            { .offset_bytes = 20, .len_bytes = 10, .dst_bytes = 20 },
                                            { .offset_bytes = 40, .len_bytes = 10, .dst_bytes = 40 } };
    const struct penstock_range after = { .offset_bytes = 60, .len_bytes = 10, .dst_bytes = 60 };
    penstock_op bad = fake_submit(&f, region, three, 3), good = fake_submit(&f, region, &after, 1);
    struct penstock_completion c[2];
    size_t done;
    assert_int_equal(penstock_poll(f.session, c, 2, &done), 0);
    answer(&f, 4, 2);
    assert_int_equal(penstock_poll(f.session, c, 2, &done), 0);
    assert_int_equal(done, 2);
    assert_int_equal(c[0].op, bad);
    assert_int_equal(c[0].code, PENSTOCK_EREFUSED);
    assert_int_equal(c[0].landed_bytes, 10);
    assert_int_equal(c[1].op, good);
    assert_int_equal(c[1].code, 0);
    fake_assert_landed(memory, &three[0]);
    fake_assert_landed(memory, &after);
    fake_end(&f);
}

static void at_most_256_requests_are_in_flight(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    uint32_t region = fake_region(&f, memory, sizeof memory);
    struct penstock_range ranges[600];
    for (size_t i = 0; i < 600; i++)
        ranges[i] = (struct penstock_range){ .offset_bytes = i * 10, .len_bytes = 5, .dst_bytes = i * 5 };
    (void)fake_submit(&f, region, ranges, 600);
    struct penstock_completion c;
    size_t done = fake_poll(&f, &c), sent = 0, answered = 0;
    while (!done) {
        struct pollfd p = { .fd = f.fd, .events = POLLIN };
        struct penstock_range_request r;
        for (; poll(&p, 1, 0) == 1; sent++) {
            r = fake_request(&f);
            assert_int_equal(r.offset, sent * 10);
        }
        assert_true(sent - answered <= 256);
        assert_true(sent > answered);
        for (size_t i = 0; i < 20 && answered < sent; i++, answered++) {
            r = (struct penstock_range_request){ .offset = answered * 10, .len = 5 };
            fake_answer(&f, &r);
        }
        done = fake_poll(&f, &c);
    }
    assert_int_equal(c.code, 0);
    assert_int_equal(c.landed_bytes, 3000);
    for (size_t i = 0; i < 600; i++)
        fake_assert_landed(memory, &ranges[i]);
    fake_end(&f);
}

static void a_cancelled_read_touches_its_memory_no_more(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    uint32_t region = fake_region(&f, memory, sizeof memory);
    memset(memory, 0, sizeof memory);
    const struct penstock_range first = { .offset_bytes = 0, .len_bytes = 100, .dst_bytes = 0 };
    const struct penstock_range second = { .offset_bytes = 500, .len_bytes = 100, .dst_bytes = 500 };
    penstock_op cancelled = fake_submit(&f, region, &first, 1), kept = fake_submit(&f, region, &second, 1);
    struct penstock_completion c;
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_status(&f, PENSTOCK_STATUS_OK);
    fake_payload(&f, 0, 0, 40);
    assert_int_equal(fake_poll(&f, &c), 0);
    assert_int_equal(penstock_cancel(f.session, cancelled), 0);
    assert_int_equal(penstock_cancel(f.session, cancelled), PENSTOCK_ENOTFOUND);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, cancelled);
    assert_int_equal(c.code, PENSTOCK_ECANCELED);
    assert_non_null(fake_words(&f, cancelled));
    fake_payload(&f, 0, 40, 60);
    fake_status(&f, PENSTOCK_STATUS_OK);
    fake_payload(&f, 0, 500, 100);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, kept);
    assert_int_equal(c.code, 0);
    fake_assert_landed(memory, &second);
    for (size_t i = 40; i < 100; i++)
        assert_int_equal(memory[i], 0);
    fake_end(&f);
}

static void a_read_that_was_not_sent_is_cancelled_without_a_trace(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    uint32_t region = fake_region(&f, memory, sizeof memory);
    const struct penstock_range first = { .len_bytes = 100 }, second = { .offset_bytes = 500, .len_bytes = 100 };
    penstock_op cancelled = fake_submit(&f, region, &first, 1), kept = fake_submit(&f, region, &second, 1);
    assert_int_equal(penstock_cancel(f.session, cancelled), 0);
    struct penstock_completion c;
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, cancelled);
    struct penstock_range_request r = fake_request(&f);
    assert_int_equal(r.offset, 500);
    fake_answer(&f, &r);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, kept);
    assert_int_equal(c.code, 0);
    fake_end(&f);
}

static void what_a_read_may_not_ask_for(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    uint32_t region = fake_region(&f, memory, 1000);
    static const struct {
        struct penstock_range range;
        const char *words;
    } cases[] = {
        { { .file = 5, .len_bytes = 1 }, "no file 5" },
        { { .file = 4, .len_bytes = 1 }, "no file 4" }, /* has no name that is accepted */
        { { .file = 0, .offset_bytes = FAKE_SHARD0, .len_bytes = 1 }, "leave a.safetensors" },
        { { .file = 0, .offset_bytes = UINT64_MAX, .len_bytes = 2 }, "leave a.safetensors" },
        { { .file = 0, .len_bytes = 1001 }, "leave the region" },
        { { .file = 0, .len_bytes = 2, .dst_bytes = UINT64_MAX }, "leave the region" },
    };
    struct penstock_error error;
    penstock_op op;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct penstock_read read = { .size = sizeof read, .ranges = &cases[i].range, .count = 1, .region = region };
        assert_int_equal(penstock_submit(f.session, &read, &op, &error), PENSTOCK_EINVAL);
        assert_non_null(strstr(error.message, cases[i].words));
        read.region = 9;
        assert_int_equal(penstock_submit(f.session, &read, &op, &error), PENSTOCK_EINVAL);
    }
    fake_end(&f);
}

static void a_read_of_nothing_is_done_at_once(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    uint32_t region = fake_region(&f, memory, 0);
    const struct penstock_range empty = { .file = 3 };
    penstock_op op = fake_submit(&f, region, &empty, 1), none = fake_submit(&f, region, NULL, 0);
    assert_int_equal(penstock_timeout_ns(f.session), 0);
    assert_int_equal(penstock_wait(f.session, none, NULL, NULL), 0);
    assert_int_equal(penstock_wait(f.session, op, NULL, NULL), 0);
    assert_int_equal(penstock_wait(f.session, op, NULL, NULL), PENSTOCK_ENOTFOUND);
    fake_expect_nothing(&f);
    fake_end(&f);
}

static void digests_come_as_far_as_they_are_known(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    uint8_t out[48] = { 0 }, sent[48];
    memset(sent, 7, sizeof sent);
    penstock_op op;
    struct penstock_completion c;
    struct penstock_digests d = { .size = sizeof d, .out = out, .max = 2, .file = 1 };
    for (uint32_t n = 0; n <= 3; n++) { /* of three chunks; more than there is room for are dropped */
        memset(out, 0, sizeof out);
        assert_int_equal(penstock_submit_digests(f.session, &d, &op, NULL), 0);
        assert_int_equal(fake_poll(&f, &c), 0);
        struct penstock_range_request r = fake_request(&f);
        assert_int_equal(r.file, 0xFFFFFFFE);
        assert_int_equal(r.offset, 1);
        assert_int_equal(r.len, 0);
        fake_status(&f, PENSTOCK_STATUS_OK);
        fake_send(&f, &n, 4);
        fake_send(&f, sent, 16 * n);
        assert_int_equal(fake_poll(&f, &c), 1);
        assert_int_equal(c.code, 0);
        uint64_t landed = 16 * (n < 2 ? n : 2);
        assert_int_equal(c.landed_bytes, landed);
        assert_memory_equal(out, sent, landed);
        assert_int_equal(out[landed], 0);
    }
    assert_int_equal(penstock_submit_digests(f.session, &d, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    (void)fake_request(&f);
    fake_status(&f, PENSTOCK_STATUS_ERR);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_EREFUSED);

    d.first_chunk = 3;
    assert_int_equal(penstock_submit_digests(f.session, &d, &op, NULL), PENSTOCK_EINVAL);
    d.first_chunk = 1;
    assert_int_equal(penstock_submit_digests(f.session, &d, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_status(&f, PENSTOCK_STATUS_OK);
    fake_send(&f, "\3\0\0\0", 4); /* from chunk 1 on there are two */
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_EPROTO);
    fake_end(&f);
}

static void regions_are_kept_while_reads_land_in_them(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    uint32_t region = fake_region(&f, memory, 1000);
    const struct penstock_range range = { .len_bytes = 10 };
    penstock_op op = fake_submit(&f, region, &range, 1);
    assert_int_equal(penstock_unregister(f.session, region, NULL), PENSTOCK_EINVAL);
    struct penstock_completion c;
    assert_int_equal(fake_poll(&f, &c), 0);
    assert_int_equal(penstock_unregister(f.session, region, NULL), PENSTOCK_EINVAL);
    answer(&f, 1, 0);
    assert_int_equal(penstock_wait(f.session, op, &c, NULL), 0);
    assert_int_equal(penstock_unregister(f.session, region, NULL), 0);
    assert_int_equal(penstock_unregister(f.session, region, NULL), PENSTOCK_EINVAL);

    fake_end(&f);
}

static void device_memory_is_reached_by_rdma_alone(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    struct penstock_error error;
    uint32_t region;
    struct penstock_memory device = { .size = sizeof device, .where = PENSTOCK_DEVICE, .dmabuf_fd = -1 };
    assert_int_equal(penstock_register(f.session, &device, &region, &error), PENSTOCK_EINVAL);
    device.dmabuf_fd = f.fd;
    device.len_bytes = 1000;
    assert_int_equal(penstock_register(f.session, &device, &region, &error), 0);
    const struct penstock_range range = { .len_bytes = 10 };
    const struct penstock_read read = { .size = sizeof read, .ranges = &range, .count = 1, .region = region };
    penstock_op op;
    assert_int_equal(penstock_submit(f.session, &read, &op, &error), PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "DEVICE"));
    assert_non_null(strstr(error.message, "TCP"));
    device.offset_bytes = UINT64_MAX;
    assert_int_equal(penstock_register(f.session, &device, &region, &error), PENSTOCK_EINVAL);
    fake_end(&f);
}

static void a_peer_that_stops_kills_the_session(void **state)
{
    (void)state;
    struct penstock_options options = fake_options();
    options.reply_timeout_ns = 20 * 1000 * 1000;
    struct fake_peer f = fake_ready(&options);
    uint32_t region = fake_region(&f, memory, 1000);
    const struct penstock_range range = { .len_bytes = 10 };
    penstock_op first = fake_submit(&f, region, &range, 1), second = fake_submit(&f, region, &range, 1);
    struct penstock_error error;
    assert_int_equal(penstock_wait(f.session, first, NULL, &error), PENSTOCK_ETIMEOUT);
    assert_non_null(strstr(error.message, "no reply"));
    assert_int_equal(penstock_wait(f.session, second, NULL, &error), PENSTOCK_ETIMEOUT);
    const struct penstock_read read = { .size = sizeof read, .ranges = &range, .count = 1, .region = region };
    assert_int_equal(penstock_submit(f.session, &read, &first, &error), PENSTOCK_EDEAD);
    const struct penstock_error *died_of = penstock_op_error(f.session, 0);
    assert_int_equal(died_of->code, PENSTOCK_ETIMEOUT);
    assert_string_equal(error.message, died_of->message);
    assert_non_null(strstr(error.message, "no reply"));
    size_t done;
    struct penstock_completion c;
    assert_int_equal(penstock_poll(f.session, &c, 1, &done), PENSTOCK_ETIMEOUT);
    assert_int_equal(penstock_unregister(f.session, region, NULL), 0);
    fake_end(&f);
}

static void a_peer_that_closes_completes_everything(void **state)
{
    (void)state;
    for (int heard = 0; heard < 2; heard++) {
        struct fake_peer f = fake_ready(NULL);
        uint32_t region = fake_region(&f, memory, 1000);
        const struct penstock_range range = { .len_bytes = 10 };
        penstock_op op = fake_submit(&f, region, &range, 1);
        struct penstock_completion c;
        assert_int_equal(fake_poll(&f, &c), 0);
        if (heard)
            fake_status(&f, PENSTOCK_STATUS_OK);
        fake_close(&f);
        assert_int_equal(fake_poll(&f, &c), 1);
        assert_int_equal(c.op, op);
        assert_int_equal(c.code, PENSTOCK_ECLOSED);
        assert_int_equal(strstr(fake_words(&f, op), "only verbs") == NULL, heard);
        fake_end(&f);
    }
}

static void bytes_that_nobody_asked_for_are_refused(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    struct penstock_completion c;
    size_t done;
    fake_status(&f, PENSTOCK_STATUS_OK);
    assert_int_equal(penstock_poll(f.session, &c, 1, &done), PENSTOCK_EPROTO);
    fake_end(&f);

    f = fake_ready(NULL);
    uint32_t region = fake_region(&f, memory, 1000);
    const struct penstock_range range = { .len_bytes = 10 };
    (void)fake_submit(&f, region, &range, 1);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_status(&f, PENSTOCK_STATUS_ERR);
    fake_payload(&f, 0, 0, 10); /* a refusal has no payload */
    assert_int_equal(penstock_poll(f.session, &c, 1, &done), PENSTOCK_EPROTO);
    fake_end(&f);
}

static void a_session_may_be_freed_in_the_middle(void **state)
{
    (void)state;
    for (int step = 0; step < 3; step++) {
        struct fake_peer f = fake_ready(NULL);
        uint32_t region = fake_region(&f, memory, 1000);
        const struct penstock_range range = { .len_bytes = 10 };
        penstock_op op = fake_submit(&f, region, &range, 1);
        struct penstock_completion c;
        if (step > 0)
            assert_int_equal(fake_poll(&f, &c), 0);
        if (step > 1) {
            fake_status(&f, PENSTOCK_STATUS_OK);
            fake_payload(&f, 0, 0, 3);
            assert_int_equal(fake_poll(&f, &c), 0);
            assert_int_equal(penstock_cancel(f.session, op), 0);
        }
        fake_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_that_touch_travel_as_one_and_land_apart),
        cmocka_unit_test(overlapping_and_equal_ranges_land_each),
        cmocka_unit_test(long_ranges_are_split_at_8_mib),
        cmocka_unit_test(refusals_inside_a_batch_cost_only_their_own_operation),
        cmocka_unit_test(a_refusal_drops_the_rest_of_its_operation),
        cmocka_unit_test(at_most_256_requests_are_in_flight),
        cmocka_unit_test(a_cancelled_read_touches_its_memory_no_more),
        cmocka_unit_test(a_read_that_was_not_sent_is_cancelled_without_a_trace),
        cmocka_unit_test(what_a_read_may_not_ask_for),
        cmocka_unit_test(a_read_of_nothing_is_done_at_once),
        cmocka_unit_test(digests_come_as_far_as_they_are_known),
        cmocka_unit_test(regions_are_kept_while_reads_land_in_them),
        cmocka_unit_test(device_memory_is_reached_by_rdma_alone),
        cmocka_unit_test(a_peer_that_stops_kills_the_session),
        cmocka_unit_test(a_peer_that_closes_completes_everything),
        cmocka_unit_test(bytes_that_nobody_asked_for_are_refused),
        cmocka_unit_test(a_session_may_be_freed_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
