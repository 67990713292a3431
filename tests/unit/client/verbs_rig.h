/* Sessions of the weight tier over simulated rails: what its tests ask of them. */
#ifndef PENSTOCK_TEST_VERBS_RIG_H
#define PENSTOCK_TEST_VERBS_RIG_H

#include "verbs_peer.h"

static uint8_t memory[4 << 20];

static inline struct penstock_options rdma(void)
{
    return (struct penstock_options){ .size = sizeof(struct penstock_options), .transport = PENSTOCK_TRANSPORT_RDMA };
}

static inline uint32_t region_of(struct penstock_session *s, void *at, size_t n)
{
    uint32_t region;
    const struct penstock_memory m = { .size = sizeof m, .address = at, .len_bytes = n };
    assert_int_equal(penstock_register(s, &m, &region, NULL), 0);
    return region;
}

static inline penstock_op submit(struct penstock_session *s, uint32_t region, const struct penstock_range *ranges,
                                 size_t n)
{
    const struct fake_peer f = { .session = s };
    return fake_submit(&f, region, ranges, n);
}

static inline void finish(struct penstock_session *s, penstock_op op)
{
    struct penstock_error error = { 0 };
    int code = penstock_wait(s, op, NULL, &error);
    if (code)
        print_error("%s\n", error.message);
    assert_int_equal(code, 0);
}

/* All of the second shard, from the start of region on. */
static const struct penstock_range shard1 = { .len_bytes = PEER_SHARD1, .file = 1 };

static inline void read_shard1(struct penstock_session *s, uint32_t region)
{
    memset(memory, 0, PEER_SHARD1);
    finish(s, submit(s, region, &shard1, 1));
    fake_assert_landed(memory, &shard1);
}

static inline struct penstock_rail_info rail(const struct penstock_session *s, size_t i)
{
    struct penstock_rail_info info = { .size = sizeof info };
    assert_int_equal(penstock_session_rail(s, i, &info), 0);
    return info;
}

#endif
