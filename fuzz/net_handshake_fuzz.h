/* A rail handshake fed with a stranger's bytes. The first four bytes of an input choose what it is about; what follows
 * comes from the other end, until the stream ends. */
#ifndef PENSTOCK_NET_HANDSHAKE_FUZZ_H
#define PENSTOCK_NET_HANDSHAKE_FUZZ_H

#include <string.h>

#include "fuzz.h"
#include "net/handshake.h"

#define FUZZ_REGIONS_MAX 16

struct fuzz_rails {
    bool client;
    size_t n_regions, n;
    unsigned prepared, completed;
};

/* What became of one run. */
struct fuzz_outcome {
    enum net_handshake_next next;
    size_t fed, written, n_rails;
    char message[sizeof((struct penstock_error *)0)->message];
};

static const struct penstock_layer fuzz_regions[FUZZ_REGIONS_MAX] = { { .base = 1, .rkey = 2 } };

static int fuzz_choose(void *set, const struct penstock_rail_choice *wishes, size_t n,
                       struct penstock_rail_choice *granted, struct penstock_error *error)
{
    (void)set, (void)error;
    for (size_t i = 0; i < n; i++) {
        FUZZ_CHECK(wishes[i].path_mtu >= 1 && wishes[i].path_mtu <= 5 && wishes[i].rd_atomic >= 1);
        granted[i] = wishes[i];
    }
    return 0;
}

static int fuzz_prepare(void *set, size_t n, struct net_rail *mine, struct penstock_error *error)
{
    struct fuzz_rails *rails = set;
    (void)error;
    FUZZ_CHECK(n >= 1 && n <= NET_RAILS_MAX && rails->prepared++ == 0);
    rails->n = n;
    for (size_t i = 0; i < n; i++)
        mine[i] = (struct net_rail){ .qp.qpn = (uint32_t)i,
                                     .n_regions = (uint32_t)rails->n_regions,
                                     .regions = rails->client ? NULL : fuzz_regions };
    return 0;
}

static int fuzz_complete(void *set, size_t n, const struct net_rail *theirs, const struct penstock_rail_choice *agreed,
                         struct penstock_error *error)
{
    struct fuzz_rails *rails = set;
    (void)agreed, (void)error;
    uint64_t sum = 0;
    FUZZ_CHECK(n == rails->n && rails->completed++ == 0);
    for (size_t i = 0; i < n; i++)
        for (uint32_t l = 0; l < theirs[i].n_regions; l++) /* all of it is there */
            sum += theirs[i].regions[l].base + theirs[i].regions[l].rkey;
    return sum == UINT64_MAX ? PENSTOCK_ESYS : 0;
}

static const struct net_rail_ops fuzz_rails_ops = { .choose = fuzz_choose,
                                                    .prepare = fuzz_prepare,
                                                    .complete = fuzz_complete };

/* Feeds bytes in pieces of at most piece, and ends the stream. */
static inline void fuzz_run(struct net_handshake *h, const uint8_t *bytes, size_t len, size_t piece,
                            struct fuzz_outcome *o)
{
    memset(o, 0, sizeof *o);
    while ((o->next = net_handshake_next(h)) == NET_HANDSHAKE_READ || o->next == NET_HANDSHAKE_WRITE) {
        size_t n;
        if (o->next == NET_HANDSHAKE_WRITE) {
            FUZZ_CHECK(net_handshake_output(h, &n) && n > 0);
            o->written += n;
            net_handshake_wrote(h, n);
            continue;
        }
        n = net_handshake_want(h);
        FUZZ_CHECK(n > 0);
        n = n < piece ? n : piece;
        n = n < len - o->fed ? n : len - o->fed;
        if (n == 0)
            net_handshake_end(h, 0);
        else
            net_handshake_feed(h, bytes + o->fed, n);
        o->fed += n;
    }
    o->n_rails = net_handshake_n_rails(h);
    if (o->next == NET_HANDSHAKE_FAILED) {
        FUZZ_CHECK(net_handshake_error(h)->code < 0 && net_handshake_error(h)->message[0]);
        memcpy(o->message, net_handshake_error(h)->message, sizeof o->message);
    }
}

/* However the bytes are cut, the same comes of them. */
static inline int fuzz_handshake(const uint8_t *data, size_t len, bool client)
{
    struct fuzz_outcome outcomes[2];
    static const size_t pieces[2] = { 1, SIZE_MAX };
    if (len < 4)
        return 0;
    const struct penstock_rail_choice wish = { PENSTOCK_PEER_RAIL_ANY, 5, 128 };
    struct penstock_rail_choice wishes[PENSTOCK_RAILS_MAX];
    for (size_t i = 0; i < PENSTOCK_RAILS_MAX; i++)
        wishes[i] = wish;
    for (int i = 0; i < 2; i++) {
        struct net_handshake_config config = { .dialect = data[0] & 1 ? PENSTOCK_READ_WRITE : PENSTOCK_READ_ONLY,
                                               .other = "stranger",
                                               .ops = &fuzz_rails_ops,
                                               .n_rails = data[1],
                                               .n_regions = 1 + data[2] % FUZZ_REGIONS_MAX,
                                               .wishes = data[0] & 2 ? wishes : NULL,
                                               .tcp = data[0] & 4 };
        struct fuzz_rails rails = { .client = client };
        struct net_handshake *h;
        if (!client)
            rails.n_regions = config.dialect == PENSTOCK_READ_ONLY ? config.n_regions : 1;
        config.rails = &rails;
        if ((client ? net_handshake_client_new : net_handshake_peer_new)(&config, &h, NULL) != 0)
            return 0;
        fuzz_run(h, data + 4, len - 4, pieces[i], &outcomes[i]);
        FUZZ_CHECK(outcomes[i].next == NET_HANDSHAKE_FAILED || outcomes[i].n_rails == 0 || rails.completed == 1);
        net_handshake_free(h);
    }
    FUZZ_CHECK(outcomes[0].next == outcomes[1].next && outcomes[0].written == outcomes[1].written);
    FUZZ_CHECK(outcomes[0].n_rails == outcomes[1].n_rails);
    /* What is refused is refused at one byte or at its field's last, but in the same words. */
    FUZZ_CHECK(strcmp(outcomes[0].message, outcomes[1].message) == 0);
    return 0;
}

#endif
