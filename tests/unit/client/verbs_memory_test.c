/* Every allocation of a session over RDMA is made to fail, one after the other: linked with --wrap. Those of the peer,
 * in its own threads, are not. */
#include "cache_peer.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t n);

static _Thread_local long until_failure = -1; /* negative: none fails */

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

/* Opens, reads over rails and beside them, loses a rail and has it built anew. The first code that is not 0. */
static int live(struct verbs_peer *p)
{
    static uint8_t memory[4 << 20];
    static const struct penstock_range ranges[] = { { .len_bytes = 50, .dst_bytes = PEER_SHARD1, .file = 2 },
                                                    { .len_bytes = PEER_SHARD1, .file = 1 } };
    const struct penstock_options options = { .size = sizeof options, .transport = PENSTOCK_TRANSPORT_RDMA };
    const struct penstock_memory m = { .size = sizeof m, .address = memory, .len_bytes = sizeof memory };
    uint8_t digest[PENSTOCK_DIGEST_BYTES];
    struct penstock_digests digests = { .size = sizeof digests, .out = digest, .max = 1 };
    struct penstock_read read = { .size = sizeof read, .ranges = ranges, .count = 2 };
    struct penstock_session *s;
    struct penstock_error error = { 0 };
    penstock_op op;
    int code = client_session_in_world(p->client, p->name, &options, CLIENT_FOR_MANIFEST, "m", NULL, &s, &op, &error);
    if (code)
        return code;
    code = penstock_wait(s, op, NULL, &error);
    code = code ? code : penstock_register(s, &m, &read.region, &error);
    code = code ? code : penstock_read_wait(s, &read, &error);
    code = code ? code : penstock_submit_digests(s, &digests, &op, &error);
    code = code ? code : penstock_wait(s, op, NULL, &error);
    if (code == 0)
        sim_fail_completion(p->client, 1, 12);
    for (int i = 0; code == 0 && i < 5; i++) {
        memset(memory, 0, PEER_SHARD1);
        code = penstock_read_wait(s, &read, &error);
        if (code == 0)
            assert_memory_equal(memory, p->regions[1], PEER_SHARD1);
    }
    penstock_session_free(s);
    return code;
}

/* The same of a cache: opens, puts, gets and looks; an operation of each kind ends, or the session does. */
static int live_on_cache(struct verbs_peer *p)
{
    static uint8_t memory[4 * CACHE_BLOB];
    const struct penstock_options options = { .size = sizeof options, .transport = PENSTOCK_TRANSPORT_RDMA };
    const struct penstock_memory m = { .size = sizeof m, .address = memory, .len_bytes = sizeof memory };
    const struct penstock_cache cache = { .size = sizeof cache,
                                          .kind = PENSTOCK_CACHE_KV,
                                          .blob_bytes = CACHE_BLOB,
                                          .arena_bytes = (uint64_t)CACHE_SLOTS * CACHE_BLOB,
                                          .own = 1 };
    struct penstock_blob blobs[4] = { 0 };
    struct penstock_blobs b = { .size = sizeof b, .action = PENSTOCK_BLOB_PUT, .blobs = blobs, .count = 4 };
    struct penstock_session *s;
    struct penstock_error error = { 0 };
    penstock_op op;
    int code = client_cache_start(p->client, p->name, &cache, &options, &s, &op, &error);
    if (code)
        return code;
    for (size_t i = 0; i < 4; i++)
        blobs[i] = (struct penstock_blob){ .key.low = i, .at_bytes = i * CACHE_BLOB };
    code = penstock_wait(s, op, NULL, &error);
    code = code ? code : penstock_register(s, &m, &b.region, &error);
    code = code ? code : penstock_blobs_wait(s, &b, &error);
    b.action = PENSTOCK_BLOB_GET;
    code = code ? code : penstock_blobs_wait(s, &b, &error);
    b.action = PENSTOCK_BLOB_EXISTS;
    blobs[3].key.low = 9;
    int looked = code ? code : penstock_blobs_wait(s, &b, &error);
    penstock_session_free(s);
    return looked == PENSTOCK_ENOTFOUND ? 0 : looked;
}

/* Until none is left that could fail. */
static void fail_each(struct verbs_peer *p, int (*what)(struct verbs_peer *))
{
    long failures = 0, i = 0;
    for (bool done = false; !done; i++) {
        until_failure = i;
        int code = what(p);
        done = until_failure >= 0; /* there was none that could fail */
        until_failure = -1;
        if (done)
            assert_int_equal(code, 0);
        failures += code != 0;
        const struct sim_objects left = sim_host_objects(p->client);
        assert_int_equal(left.devices + left.pds + left.mrs + left.cqs + left.qps, 0);
    }
    assert_true(i > 30 && failures > 20);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    struct verbs_peer p = { 0 };
    verbs_peer_begin(&p, 2);
    fail_each(&p, live);
    verbs_peer_end(&p);
}

static void each_allocation_of_a_cache_may_fail(void **state)
{
    (void)state;
    static struct cache_peer c;
    cache_peer_begin(&c, 2);
    fail_each(&c.p, live_on_cache);
    cache_peer_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(each_allocation_may_fail),
                                        cmocka_unit_test(each_allocation_of_a_cache_may_fail) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
