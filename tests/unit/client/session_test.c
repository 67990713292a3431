#include "fake_peer.h"

static uint8_t memory[4096];

/* ---- regions ---- */

static void the_lowest_free_region_is_the_next_to_be_given(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(fake_region(&f, memory, sizeof memory), i);
    assert_int_equal(f.session->region_free, 1000); /* the next call looks at none of them */
    assert_int_equal(penstock_unregister(f.session, 700, NULL), 0);
    assert_int_equal(penstock_unregister(f.session, 3, NULL), 0);
    assert_int_equal(penstock_unregister(f.session, 900, NULL), 0);
    assert_int_equal(fake_region(&f, memory, 1), 3);
    assert_int_equal(fake_region(&f, memory, 1), 700);
    assert_int_equal(fake_region(&f, memory, 1), 900);
    assert_int_equal(fake_region(&f, memory, 1), 1000);
    fake_end(&f);
}

/* ---- a connection that breaks ---- */

static ssize_t broken; /* a negative errno */

static ssize_t readv_breaks(struct net_stream *stream, const struct iovec *iov, int n)
{
    (void)stream, (void)iov, (void)n;
    return broken;
}

static ssize_t writev_breaks(struct net_stream *stream, const struct iovec *iov, int n, bool more)
{
    (void)stream, (void)iov, (void)n, (void)more;
    return broken;
}

static void a_broken_connection_costs_the_connection_whatever_the_errno(void **state)
{
    (void)state;
    static const struct {
        int sys_errno, code;
    } cases[] = {
        { ETIMEDOUT, PENSTOCK_ETIMEOUT },
        { EHOSTUNREACH, PENSTOCK_ECLOSED },
        { ENETDOWN, PENSTOCK_ECLOSED },
        { ENOMEM, PENSTOCK_ENOMEM },
    };
    for (size_t i = 0; i < 3 * sizeof cases / sizeof *cases; i++) {
        const int how = (int)(i % 3); /* on sending, on receiving a reply, on receiving the manifest */
        const int sys_errno = cases[i / 3].sys_errno, code = cases[i / 3].code;
        struct fake_peer f = how == 2 ? fake_begin(NULL, CLIENT_FOR_MANIFEST, NULL) : fake_ready(NULL);
        struct net_stream_ops ops = *f.session->stream.ops;
        const struct penstock_range range = { .len_bytes = 10 };
        penstock_op op = f.open;
        if (how < 2)
            op = fake_submit(&f, fake_region(&f, memory, sizeof memory), &range, 1);
        if (how == 0)
            ops.writev = writev_breaks;
        else
            ops.readv = readv_breaks;
        f.session->stream.ops = &ops;
        broken = -sys_errno;
        struct penstock_error error = { 0 };
        assert_int_equal(penstock_wait(f.session, op, NULL, &error), code);
        assert_int_equal(error.code, code);
        assert_int_equal(error.sys_errno, sys_errno);
        assert_int_equal(f.session->step, CLIENT_DEAD);
        fake_end(&f);
    }
}

/* A peer that is frozen, not gone: its socket still takes requests. */
static void sending_does_not_put_off_the_reply_timeout(void **state)
{
    (void)state;
    struct penstock_options options = fake_options();
    options.reply_timeout_ns = INT64_C(1000) * 1000 * 1000 * 1000;
    struct fake_peer f = fake_ready(&options);
    const struct penstock_range range = { .len_bytes = 10 };
    struct penstock_completion c = { 0 };
    uint32_t region = fake_region(&f, memory, sizeof memory);
    penstock_op first = fake_submit(&f, region, &range, 1);
    assert_int_equal(fake_poll(&f, &c), 0);
    f.session->progress_ns -= 2 * options.reply_timeout_ns; /* as if that long had passed */
    (void)fake_submit(&f, region, &range, 1);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, first);
    assert_int_equal(c.code, PENSTOCK_ETIMEOUT);
    fake_end(&f);
}

/* ---- words ---- */

enum { MANY = 100000 };

/* Not in time that grows with the square of their number, else this would take minutes. */
static void each_of_many_failures_has_its_words_until_the_next_poll(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    const struct penstock_range range = { .len_bytes = 1 };
    uint32_t region = fake_region(&f, memory, sizeof memory);
    penstock_op first = fake_submit(&f, region, &range, 1), last = first;
    for (size_t i = 1; i < MANY; i++)
        last = fake_submit(&f, region, &range, 1);
    fake_close(&f);
    struct penstock_completion *c = calloc(MANY, sizeof *c);
    assert_non_null(c);
    size_t done = 0;
    assert_null(penstock_op_error(f.session, first));
    assert_int_equal(penstock_poll(f.session, c, MANY, &done), PENSTOCK_ECLOSED);
    assert_int_equal(done, MANY);
    assert_int_equal(c[0].op, first);
    assert_int_equal(c[MANY - 1].op, last);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(c[i].code, PENSTOCK_ECLOSED);
        assert_non_null(penstock_op_error(f.session, c[i].op));
    }
    assert_null(penstock_op_error(f.session, last + 1));
    assert_int_equal(penstock_cancel(f.session, last), PENSTOCK_ENOTFOUND);
    assert_int_equal(penstock_poll(f.session, c, MANY, &done), PENSTOCK_ECLOSED);
    assert_int_equal(done, 0);
    assert_null(penstock_op_error(f.session, last));
    assert_int_equal(f.session->table_n, 0);
    free(c);
    fake_end(&f);
}

/* ---- arguments ---- */

static void a_struct_of_another_version_is_taken_as_far_as_it_can_be(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    struct {
        struct penstock_read read;
        uint64_t later;
    } newer = { .read = { .size = sizeof newer } };
    struct {
        size_t size;
        const struct penstock_range *ranges;
        uint64_t count;
    } older = { .size = sizeof older };
    struct penstock_error error = { 0 };
    penstock_op op;
    assert_int_equal(fake_region(&f, memory, sizeof memory), 0); /* what a field that is not there says */
    assert_int_equal(penstock_submit(f.session, &newer.read, &op, &error), 0);
    newer.later = UINT64_C(1) << 63;
    assert_int_equal(penstock_submit(f.session, &newer.read, &op, &error), PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "later version"));
    uint8_t bytes[sizeof(struct penstock_read)]; /* only as much of it as an older caller has */
    memcpy(bytes, &older, sizeof older);
    const struct penstock_read *read = (const void *)test_against_a_guard_page(bytes, sizeof older);
    assert_int_equal(penstock_submit(f.session, read, &op, &error), 0);

    static const size_t absurd[] = { 0, 1, sizeof(size_t) - 1, 4097, SIZE_MAX };
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        const struct penstock_read r = { .size = absurd[i] };
        const struct penstock_memory m = { .size = absurd[i] };
        const struct penstock_digests d = { .size = absurd[i] };
        const struct penstock_options o = { .size = absurd[i] };
        struct penstock_session *s;
        uint32_t region;
        assert_int_equal(penstock_submit(f.session, &r, &op, &error), PENSTOCK_EINVAL);
        assert_non_null(strstr(error.message, "read: size is not set"));
        assert_int_equal(penstock_register(f.session, &m, &region, NULL), PENSTOCK_EINVAL);
        assert_int_equal(penstock_submit_digests(f.session, &d, &op, NULL), PENSTOCK_EINVAL);
        assert_int_equal(penstock_weights_start("127.0.0.1:1", "m", NULL, &o, &s, &op, NULL), PENSTOCK_EINVAL);
    }
    fake_end(&f);
}

static void null_is_refused_where_something_must_be_given(void **state)
{
    (void)state;
    struct fake_peer f = fake_ready(NULL);
    struct penstock_session *s;
    struct penstock_models *models;
    struct penstock_completion c;
    struct penstock_error error = { 0 };
    const struct penstock_memory m = { .size = sizeof m };
    const struct penstock_read r = { .size = sizeof r };
    const struct penstock_digests d = { .size = sizeof d };
    const char *peer = "127.0.0.1:1";
    uint32_t region;
    size_t done;
    penstock_op op;
    const int codes[] = {
        penstock_weights_start(NULL, "m", NULL, NULL, &s, &op, NULL),
        penstock_weights_start(peer, NULL, NULL, NULL, &s, &op, NULL),
        penstock_weights_start(peer, "m", NULL, NULL, NULL, &op, NULL),
        penstock_weights_start(peer, "m", NULL, NULL, &s, NULL, NULL),
        penstock_weights_open(NULL, "m", NULL, NULL, &s, NULL),
        penstock_weights_open(peer, "m", NULL, NULL, NULL, &error),
        penstock_models_get(NULL, NULL, &models, NULL),
        penstock_models_get(peer, NULL, NULL, &error),
        penstock_register(NULL, &m, &region, &error),
        penstock_register(f.session, NULL, &region, &error),
        penstock_register(f.session, &m, NULL, &error),
        penstock_unregister(NULL, 0, &error),
        penstock_submit(NULL, &r, &op, &error),
        penstock_submit(f.session, NULL, &op, &error),
        penstock_submit(f.session, &r, NULL, &error),
        penstock_submit_digests(NULL, &d, &op, &error),
        penstock_submit_digests(f.session, NULL, &op, &error),
        penstock_submit_digests(f.session, &d, NULL, &error),
        penstock_cancel(NULL, 1),
        penstock_poll(NULL, &c, 1, &done),
        penstock_poll(f.session, NULL, 1, &done),
        penstock_poll(f.session, &c, 1, NULL),
        penstock_wait(NULL, 1, &c, &error),
        penstock_read_wait(NULL, &r, &error),
        penstock_read_wait(f.session, NULL, NULL),
        penstock_fd(NULL),
        penstock_tensor_slice(NULL, 0, 0, 0, 0, NULL, 0, &done, &error),
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        assert_int_equal(codes[i], PENSTOCK_EINVAL);
    assert_int_equal(penstock_poll(f.session, NULL, 0, &done), 0);

    assert_int_equal(penstock_timeout_ns(NULL), -1);
    assert_null(penstock_op_error(NULL, 1));
    assert_null(penstock_session_catalogue(NULL));
    penstock_session_free(NULL);
    penstock_catalogue_ref(NULL);
    penstock_catalogue_unref(NULL);
    assert_null(penstock_catalogue_model_id(NULL));
    assert_null(penstock_catalogue_version(NULL));
    assert_null(penstock_catalogue_tensor(NULL, 0));
    assert_null(penstock_catalogue_file(NULL, 0));
    assert_null(penstock_catalogue_find(NULL, "t"));
    assert_null(penstock_catalogue_find(f.session->catalogue, NULL));
    assert_int_equal(penstock_catalogue_tensors(NULL) + penstock_catalogue_shards(NULL), 0);
    assert_int_equal(penstock_catalogue_files(NULL) + penstock_catalogue_skipped(NULL), 0);
    assert_int_equal(penstock_models_count(NULL), 0);
    assert_null(penstock_models_at(NULL, 0));
    penstock_models_free(NULL);
    fake_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_free_region_is_the_next_to_be_given),
        cmocka_unit_test(a_broken_connection_costs_the_connection_whatever_the_errno),
        cmocka_unit_test(sending_does_not_put_off_the_reply_timeout),
        cmocka_unit_test(each_of_many_failures_has_its_words_until_the_next_poll),
        cmocka_unit_test(a_struct_of_another_version_is_taken_as_far_as_it_can_be),
        cmocka_unit_test(null_is_refused_where_something_must_be_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
