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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_free_region_is_the_next_to_be_given),
        cmocka_unit_test(a_broken_connection_costs_the_connection_whatever_the_errno),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
