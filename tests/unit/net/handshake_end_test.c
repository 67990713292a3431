#include "handshake_rig.h"

#include <errno.h>
#include <stdio.h>

/* ---- streams that end ---- */

static const char *read_only_field(size_t at)
{
    if (at < 1)
        return "read server rail count";
    at = (at - 1) % (28 + 24);
    return at < 8               ? "read u32"
           : at < 24            ? "read server gid"
           : at < 28            ? "read u32"
           : (at - 28) % 12 < 8 ? "read mr base"
                                : "read u32";
}

static const char *read_write_field(size_t at)
{
    if (at < 1)
        return "cache rail count";
    at = (at - 1) % 36;
    return at < 4 ? "kv qpn" : at < 8 ? "kv psn" : at < 24 ? "kv gid" : at < 32 ? "kv base" : "kv rkey";
}

static void every_truncation_of_step_2(void **state)
{
    (void)state;
    static const int ends[] = { 0, ECONNRESET, EPIPE };
    uint8_t bytes[256], out[64];
    for (int dialect = PENSTOCK_READ_ONLY; dialect <= PENSTOCK_READ_WRITE; dialect++) {
        bool read_only = dialect == PENSTOCK_READ_ONLY;
        const char *cause = read_only ? "it has fewer rails than the 2 asked for, or no RDMA"
                                      : "the arena asked for is above the peer's memory cap";
        size_t len = tables((enum penstock_dialect)dialect, 2, 2, bytes);
        for (size_t n = 0; n < len; n++) {
            for (size_t e = 0; e < sizeof ends / sizeof *ends; e++) {
                const char *field = read_only ? read_only_field(n) : read_write_field(n);
                bool refused = n == 0 || ends[e];
                char words[256];
                if (refused)
                    snprintf(words, sizeof words, PEER " refused the rails (usual cause: %s): %s: connection closed",
                             cause, field);
                else
                    snprintf(words, sizeof words, PEER ": %s: connection closed", field);
                struct net_handshake *h = client((enum penstock_dialect)dialect, 2, 2);
                (void)take(h, out);
                assert_int_equal(feed(h, bytes, n), n);
                net_handshake_end(h, ends[e]);
                assert_failed(h, refused ? PENSTOCK_EDENIED : PENSTOCK_ECLOSED, words);
            }
        }
    }
}

static void a_peer_that_is_gone_at_step_1_has_refused(void **state)
{
    (void)state;
    struct net_handshake *h = client(PENSTOCK_READ_WRITE, 1, 0);
    net_handshake_end(h, EPIPE);
    assert_failed(h, PENSTOCK_EDENIED,
                  PEER " refused the rails (usual cause: the arena asked for is above the peer's memory cap): "
                       "cache rail count: connection closed");
}

static void after_step_2_a_closed_connection_is_just_that(void **state)
{
    (void)state;
    uint8_t bytes[256], out[64];
    size_t len = tables(PENSTOCK_READ_ONLY, 1, 1, bytes);
    struct net_handshake *h = client(PENSTOCK_READ_ONLY, 1, 1);
    (void)take(h, out);
    feed(h, bytes, len);
    net_handshake_end(h, EPIPE);
    assert_failed(h, PENSTOCK_ECLOSED, PEER ": write client rails: connection closed");

    h = client(PENSTOCK_READ_ONLY, 1, 1);
    (void)take(h, out);
    feed(h, bytes, len);
    (void)take(h, out);
    net_handshake_end(h, ECONNRESET);
    assert_failed(h, PENSTOCK_ECLOSED, PEER ": ack: connection closed");
}

static void every_truncation_at_the_peer(void **state)
{
    (void)state;
    uint8_t request[26] = { 1, 1 }, out[64];
    for (size_t n = 0; n < sizeof request; n++) {
        char words[128];
        const char *field = n < 2 ? "client rail count" : n < 10 ? "read u32" : "read client gid";
        struct net_handshake *h = peer(PENSTOCK_READ_ONLY, 1, 1);
        if (n > 0) {
            feed(h, request, 1);
            (void)take(h, out);
            assert_int_equal(feed(h, request + 1, n - 1), n - 1);
        }
        net_handshake_end(h, 0);
        snprintf(words, sizeof words, "client 10.0.0.7:40000: %s: connection closed", field);
        assert_failed(h, PENSTOCK_ECLOSED, words);
    }
}

static void other_errors_keep_their_errno(void **state)
{
    (void)state;
    uint8_t out[8];
    struct net_handshake *h = client(PENSTOCK_READ_ONLY, 1, 1);
    (void)take(h, out);
    net_handshake_end(h, EIO);
    assert_int_equal(net_handshake_error(h)->sys_errno, EIO);
    assert_failed(h, PENSTOCK_ESYS, PEER ": read server rail count: Input/output error");

    h = client(PENSTOCK_READ_ONLY, 1, 1);
    (void)take(h, out);
    net_handshake_end(h, ETIMEDOUT);
    net_handshake_end(h, EIO); /* what failed stays as it failed */
    net_handshake_expire(h, 1);
    assert_failed(h, PENSTOCK_ETIMEOUT, PEER ": read server rail count: it does not answer any more");
}

static void patience_is_for_the_first_byte_of_what_takes_long(void **state)
{
    (void)state;
    uint8_t bytes[256], out[64], request[26] = { 1, 1 };
    size_t len = tables(PENSTOCK_READ_ONLY, 1, 1, bytes);
    struct net_handshake *h = client(PENSTOCK_READ_ONLY, 1, 1);
    assert_false(net_handshake_is_patient(h));
    (void)take(h, out);
    assert_true(net_handshake_is_patient(h));
    feed(h, bytes, 1);
    assert_false(net_handshake_is_patient(h));
    feed(h, bytes + 1, len - 1);
    (void)take(h, out);
    assert_false(net_handshake_is_patient(h)); /* the ack */
    net_handshake_free(h);

    h = peer(PENSTOCK_READ_ONLY, 1, 1);
    assert_true(net_handshake_is_patient(h));
    feed(h, request, 1);
    (void)take(h, out);
    assert_true(net_handshake_is_patient(h));
    feed(h, request + 1, 1);
    assert_false(net_handshake_is_patient(h));
    net_handshake_expire(h, 30000000000);
    assert_failed(h, PENSTOCK_ETIMEOUT, "client 10.0.0.7:40000: read u32: no byte moved in 30 s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_truncation_of_step_2),
        cmocka_unit_test(a_peer_that_is_gone_at_step_1_has_refused),
        cmocka_unit_test(after_step_2_a_closed_connection_is_just_that),
        cmocka_unit_test(every_truncation_at_the_peer),
        cmocka_unit_test(other_errors_keep_their_errno),
        cmocka_unit_test(patience_is_for_the_first_byte_of_what_takes_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
