/* Either end of a handshake over fake rails, a byte at a time. */
#ifndef PENSTOCK_TEST_HANDSHAKE_RIG_H
#define PENSTOCK_TEST_HANDSHAKE_RIG_H

#include "../test.h"

#include "fake_rails.h"

#define PEER "weight peer 10.0.0.2:9910"

static struct fake_rails ours, theirs; /* too large for a stack */

static inline struct net_handshake *client(enum penstock_dialect dialect, size_t n_rails, size_t n_regions)
{
    struct net_handshake *h;
    fake_rails_init(&ours, 0);
    const struct net_handshake_config config = { .dialect = dialect,
                                                 .other = PEER,
                                                 .ops = &fake_rails_ops,
                                                 .rails = &ours,
                                                 .n_rails = n_rails,
                                                 .n_regions = n_regions };
    assert_int_equal(net_handshake_client_new(&config, &h, NULL), 0);
    return h;
}

static inline struct net_handshake *peer(enum penstock_dialect dialect, size_t n_rails, size_t n_regions)
{
    struct net_handshake *h;
    fake_rails_init(&theirs, dialect == PENSTOCK_READ_ONLY ? n_regions : 1);
    const struct net_handshake_config config = { .dialect = dialect,
                                                 .other = "client 10.0.0.7:40000",
                                                 .ops = &fake_rails_ops,
                                                 .rails = &theirs,
                                                 .n_rails = n_rails,
                                                 .n_regions = n_regions,
                                                 .tcp = true };
    assert_int_equal(net_handshake_peer_new(&config, &h, NULL), 0);
    return h;
}

/* Takes all output there is now. */
static inline size_t take(struct net_handshake *h, uint8_t *out)
{
    size_t n = 0, len;
    while (net_handshake_next(h) == NET_HANDSHAKE_WRITE) {
        const uint8_t *bytes = net_handshake_output(h, &len);
        assert_true(len > 0);
        out[n++] = *bytes; /* a byte at a time */
        net_handshake_wrote(h, 1);
    }
    return n;
}

/* Feeds bytes one at a time, for as long as they are wanted. Returns how many were. */
static inline size_t feed(struct net_handshake *h, const uint8_t *bytes, size_t len)
{
    size_t n = 0;
    while (n < len && net_handshake_next(h) == NET_HANDSHAKE_READ) {
        assert_true(net_handshake_want(h) > 0);
        net_handshake_feed(h, test_against_a_guard_page(bytes + n, 1), 1);
        n++;
    }
    return n;
}

/* Step 2 as a peer of n rails sends it. */
static inline size_t tables(enum penstock_dialect dialect, size_t n, size_t n_regions, uint8_t *out)
{
    uint8_t count = (uint8_t)n;
    struct net_handshake *h = peer(dialect, n, n_regions);
    assert_int_equal(feed(h, &count, 1), 1);
    size_t len = take(h, out);
    net_handshake_free(h);
    return len;
}

static inline void assert_failed(struct net_handshake *h, int code, const char *words)
{
    assert_int_equal(net_handshake_next(h), NET_HANDSHAKE_FAILED);
    assert_string_equal(net_handshake_error(h)->message, words);
    assert_int_equal(net_handshake_error(h)->code, code);
    assert_int_equal(net_handshake_want(h), 0);
    assert_int_equal(net_handshake_n_rails(h), 0);
    net_handshake_free(h);
}

#endif
