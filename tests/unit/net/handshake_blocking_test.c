#include "../test.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake_rails.h"
#include "script_stream.h"

static struct fake_rails ours, theirs;

static struct net_handshake_config config_of(struct fake_rails *rails, const char *other, size_t n_rails)
{
    return (struct net_handshake_config){ .dialect = PENSTOCK_READ_ONLY,
                                          .other = other,
                                          .ops = &fake_rails_ops,
                                          .rails = rails,
                                          .n_rails = n_rails,
                                          .n_regions = 700 };
}

static void *be_the_peer(void *fd)
{
    struct net_stream stream;
    struct net_handshake_config config = config_of(&theirs, "client", 8);
    size_t n_rails;
    net_stream_plain(&stream, *(int *)fd);
    int code = net_handshake_as_peer(&stream, &config, NULL, &n_rails, NULL);
    return (void *)(intptr_t)(code == 0 && n_rails == 8);
}

/* What follows the handshake on the stream is left there. */
static void both_ends_over_a_socket(void **state)
{
    (void)state;
    int fds[2];
    pthread_t thread;
    void *well;
    char next;
    struct net_stream stream;
    size_t n_rails;
    fake_rails_init(&ours, 0);
    fake_rails_init(&theirs, 700);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    net_stream_plain(&stream, fds[0]);
    assert_int_equal(pthread_create(&thread, NULL, be_the_peer, &fds[1]), 0);

    struct net_handshake_config config = config_of(&ours, "peer", 8);
    assert_int_equal(net_handshake_as_client(&stream, &config, NULL, &n_rails, NULL), 0);
    assert_int_equal(pthread_join(thread, &well), 0);
    assert_non_null(well);
    assert_int_equal(n_rails, 8);
    assert_memory_equal(ours.their_regions[7], theirs.regions[7], 700 * sizeof theirs.regions[7][0]);

    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_int_equal(net_stream_read_all(&stream, &next, 1, BASE_SECOND_NS, NULL, NULL), 0);
    assert_int_equal(next, 'x');
    stream.ops->close(&stream);
    close(fds[1]);
}

static void short_reads_and_writes_change_nothing(void **state)
{
    (void)state;
    static const uint8_t steps_1_and_3[2 + 24] = { 1, 1, 9 };
    struct script_stream s;
    struct net_handshake_config config = config_of(&theirs, "client", 1);
    size_t n_rails = 0;
    fake_rails_init(&theirs, 700);
    script_stream_init(&s, steps_1_and_3, sizeof steps_1_and_3, 10000);
    s.piece = 7;
    assert_int_equal(net_handshake_as_peer(&s.stream, &config, NULL, &n_rails, NULL), 0);
    assert_int_equal(n_rails, 1);
    assert_int_equal(theirs.theirs[0].qpn, 9);
    assert_int_equal(s.out_len, 1 + 28 + 12 * 700 + 1);
    s.stream.ops->close(&s.stream);
}

static void a_stream_that_breaks(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        size_t in_len, out_max;
        int in_end, out_end, code;
        const char *words;
    } cases[] = {
        { "", 0, 0, 0, EPIPE, PENSTOCK_EDENIED,
          "peer refused the rails (usual cause: it has fewer rails than the 1 asked for, or no RDMA): "
          "read server rail count: connection closed" },
        { "", 0, 1, 0, 0, PENSTOCK_EDENIED,
          "peer refused the rails (usual cause: it has fewer rails than the 1 asked for, or no RDMA): "
          "read server rail count: connection closed" },
        { "", 0, 1, ECONNRESET, 0, PENSTOCK_EDENIED,
          "peer refused the rails (usual cause: it has fewer rails than the 1 asked for, or no RDMA): "
          "read server rail count: connection closed" },
        { "\1\1\1\1", 4, 1, 0, 0, PENSTOCK_ECLOSED, "peer: read u32: connection closed" },
        { "", 0, 1, EAGAIN, 0, PENSTOCK_ETIMEOUT, "peer: read server rail count: no byte moved in 1800 s" },
        { "\1\1\1\1", 4, 1, EAGAIN, 0, PENSTOCK_ETIMEOUT, "peer: read u32: no byte moved in 30 s" },
        { "", 0, 0, 0, EAGAIN, PENSTOCK_ETIMEOUT, "peer: write client rails: no byte moved in 30 s" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script_stream s;
        struct penstock_error error;
        struct net_handshake_config config = config_of(&ours, "peer", 1);
        size_t n_rails;
        fake_rails_init(&ours, 0);
        script_stream_init(&s, cases[i].in, cases[i].in_len, cases[i].out_max);
        s.in_end = cases[i].in_end;
        s.out_end = cases[i].out_end;
        assert_int_equal(net_handshake_as_client(&s.stream, &config, NULL, &n_rails, &error), cases[i].code);
        assert_string_equal(error.message, cases[i].words);
        s.stream.ops->close(&s.stream);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_over_a_socket),
        cmocka_unit_test(short_reads_and_writes_change_nothing),
        cmocka_unit_test(a_stream_that_breaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
