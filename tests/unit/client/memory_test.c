/* Every allocation of a session's life is made to fail, one after the other: linked with --wrap. */
#include "fake_peer.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t n);

static long until_failure = -1; /* negative: none fails */

static bool fails(void)
{
    return until_failure >= 0 && until_failure-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t n)
{
    return fails() ? NULL : __real_realloc(old, n);
}

/* Opens and reads, with one refusal. What each step came to; 0: all went well. */
static int live(int fds[2])
{
    static uint8_t memory[1000];
    static const struct penstock_range ranges[] = { { .offset_bytes = 500, .len_bytes = 10, .dst_bytes = 0 },
                                                    { .offset_bytes = 100, .len_bytes = 10, .dst_bytes = 100 } };
    struct fake_peer f = { .fd = fds[0] };
    struct net_stream stream;
    struct penstock_error error = { 0 };
    net_stream_plain(&stream, fds[1]);
    int code = client_session_on_stream(&stream, NULL, CLIENT_FOR_MANIFEST, "m", NULL, &f.session, &f.open, &error);
    if (code)
        return code;
    fake_send_text(&f, fake_manifest);
    code = penstock_wait(f.session, f.open, NULL, &error);
    if (code == 0) {
        uint32_t region;
        penstock_op op, bad;
        const struct penstock_memory m = { .size = sizeof m, .address = memory, .len_bytes = sizeof memory };
        struct penstock_read read = { .size = sizeof read, .ranges = ranges, .count = 2 };
        code = penstock_register(f.session, &m, &region, &error);
        read.region = region;
        code = code ? code : penstock_submit(f.session, &read, &op, &error);
        code = code ? code : penstock_submit(f.session, &read, &bad, &error);
        if (code == 0) {
            uint8_t replies[24] = { 0 };
            fake_send(&f, replies, 22); /* two OKs with ten zeros each */
            fake_status(&f, PENSTOCK_STATUS_ERR);
            code = penstock_wait(f.session, op, NULL, &error);
            assert_int_equal(penstock_wait(f.session, bad, NULL, &error), PENSTOCK_EREFUSED);
        }
    }
    if (code)
        assert_int_not_equal(error.message[0], 0);
    penstock_session_free(f.session);
    return code;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    bool all_went_well = false;
    long k = 0;
    for (; !all_went_well; k++) {
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
        until_failure = k;
        int code = live(fds);
        all_went_well = until_failure >= 0;
        until_failure = -1;
        close(fds[0]);
        /* The last to fail is the memory for a refusal's words, which costs only those. */
        assert_true(code == PENSTOCK_ENOMEM || code == 0);
        assert_true(code == 0 || !all_went_well);
    }
    assert_true(k > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_allocation_may_fail) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
