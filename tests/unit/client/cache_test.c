/* A session on a cache, and the peer in the test's own thread. */
#include "fake_peer.h"

#include "client/cache/cache.h"

enum { BLOB = 8192, SLOTS = 8 };

#define ANY_FEATURES (PENSTOCK_FEATURE_EXISTS | PENSTOCK_FEATURE_MGET | PENSTOCK_FEATURE_OWN | PENSTOCK_FEATURE_WIDE)

static struct penstock_cache arena_of(uint64_t blob_bytes)
{
    return (struct penstock_cache){ .size = sizeof(struct penstock_cache),
                                    .kind = PENSTOCK_CACHE_KV,
                                    .blob_bytes = blob_bytes,
                                    .arena_bytes = (uint64_t)SLOTS * BLOB };
}

static int try_begin(const struct penstock_cache *cache, struct fake_peer *f, struct penstock_error *error)
{
    int fds[2];
    struct net_stream stream;
    struct penstock_options options = fake_options();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    net_stream_plain(&stream, fds[1]);
    f->fd = fds[0];
    int code = client_cache_on_stream(&stream, cache, &options, &f->session, &f->open, error);
    if (code)
        close(f->fd);
    return code;
}

static struct fake_peer begin(const struct penstock_cache *cache)
{
    struct fake_peer f;
    uint8_t hello[PENSTOCK_PAGING_HEADER_BYTES + 1 + 9] = { 0 };
    const struct penstock_paging_header header = { .kind = PENSTOCK_ARENA_KV,
                                                   .arena_bytes = cache->arena_bytes,
                                                   .blob_bytes = cache->blob_bytes };
    assert_int_equal(try_begin(cache, &f, NULL), 0);
    penstock_paging_header_encode(&header, hello);
    hello[PENSTOCK_PAGING_HEADER_BYTES + 1] = PENSTOCK_OP_FEATURES;
    hello[PENSTOCK_PAGING_HEADER_BYTES + 2] = 1;
    fake_expect(&f, hello, sizeof hello);
    return f;
}

static void answer_features(const struct fake_peer *f, uint64_t bits)
{
    fake_send(f, "\0\0\0", 3); /* no rails, STATUS_OK; ST_OK */
    fake_send(f, &bits, 8);    /* little-endian, as this machine is */
}

static struct fake_peer ready(const struct penstock_cache *cache, uint64_t bits)
{
    struct fake_peer f = begin(cache);
    struct penstock_completion c = { 0 };
    answer_features(&f, bits);
    assert_int_equal(fake_poll(&f, &c), cache->wide || cache->own ? 0 : 1);
    if (cache->wide)
        fake_expect(&f, "\x24\1\0\0\0\0\0\0\0", 9);
    if (cache->own)
        fake_expect(&f, "\x23\1\0\0\0\0\0\0\0", 9);
    for (int i = 0; i < cache->wide + cache->own; i++)
        fake_status(&f, PENSTOCK_ST_OK);
    if (cache->wide || cache->own)
        assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, f.open);
    assert_int_equal(c.code, 0);
    fake_expect_nothing(&f);
    return f;
}

static penstock_op submit(const struct fake_peer *f, int action, uint32_t region, struct penstock_blob *blobs, size_t n)
{
    penstock_op op = 0;
    const struct penstock_blobs b = {
        .size = sizeof b, .action = action, .region = region, .blobs = blobs, .count = n
    };
    assert_int_equal(penstock_submit_blobs(f->session, &b, &op, NULL), 0);
    return op;
}

static void fill(uint8_t *to, uint32_t file)
{
    for (uint64_t i = 0; i < BLOB; i++)
        to[i] = fake_byte(file, i);
}

static void expect_blob(const struct fake_peer *f, uint32_t file)
{
    uint8_t got[BLOB];
    assert_int_equal(recv(f->fd, got, BLOB, MSG_WAITALL), BLOB);
    for (uint64_t i = 0; i < BLOB; i++)
        assert_int_equal(got[i], fake_byte(file, i));
}

static void blobs_are_put_from_the_callers_memory_one_behind_the_other(void **state)
{
    (void)state;
    struct penstock_cache cache = arena_of(BLOB);
    struct fake_peer f = ready(&cache, ANY_FEATURES);
    static uint8_t memory[3 * BLOB];
    struct penstock_blob blobs[3];
    struct penstock_completion c;
    for (uint32_t i = 0; i < 3; i++) {
        fill(memory + (size_t)i * BLOB, i);
        blobs[i] = (struct penstock_blob){ .key = { .low = 0x100 + i }, .at_bytes = (uint64_t)i * BLOB };
    }
    penstock_op op = submit(&f, PENSTOCK_BLOB_PUT, fake_region(&f, memory, sizeof memory), blobs, 3);
    assert_int_equal(fake_poll(&f, &c), 0);
    for (uint32_t i = 0; i < 3; i++) {
        uint8_t head[9] = { PENSTOCK_OP_PUT, (uint8_t)i, 1 };
        fake_expect(&f, head, sizeof head);
        expect_blob(&f, i);
    }
    fake_send(&f, "\0\0\0", 3);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, op);
    assert_int_equal(c.code, 0);
    assert_int_equal(c.landed_bytes, 3 * BLOB);
    assert_int_equal(blobs[2].code, 0);
    fake_end(&f);
}

static void a_miss_among_hits_is_an_answer_and_the_others_land(void **state)
{
    (void)state;
    struct penstock_cache cache = arena_of(BLOB);
    struct fake_peer f = ready(&cache, ANY_FEATURES);
    static uint8_t memory[4 * BLOB];
    struct penstock_blob blobs[4];
    struct penstock_completion c;
    for (uint32_t i = 0; i < 4; i++)
        blobs[i] = (struct penstock_blob){ .key = { .low = i }, .at_bytes = (uint64_t)i * BLOB };
    penstock_op op = submit(&f, PENSTOCK_BLOB_GET, fake_region(&f, memory, sizeof memory), blobs, 4);
    assert_int_equal(fake_poll(&f, &c), 0);
    for (uint8_t i = 0; i < 4; i++) {
        uint8_t head[9] = { PENSTOCK_OP_FETCH, i };
        fake_expect(&f, head, sizeof head);
    }
    fake_status(&f, PENSTOCK_ST_OK);
    fake_payload(&f, 0, 0, BLOB);
    fake_status(&f, PENSTOCK_ST_MISS);
    fake_status(&f, PENSTOCK_ST_ERR);
    fake_status(&f, PENSTOCK_ST_OK);
    fake_payload(&f, 3, 0, BLOB);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, op);
    assert_int_equal(c.code, PENSTOCK_EREFUSED);
    assert_int_equal(c.landed_bytes, 2 * BLOB);
    assert_non_null(strstr(fake_words(&f, op), "could not get 1 of 4 blobs"));
    assert_int_equal(blobs[0].code, 0);
    assert_int_equal(blobs[1].code, PENSTOCK_ENOTFOUND);
    assert_int_equal(blobs[2].code, PENSTOCK_EREFUSED);
    assert_int_equal(blobs[3].code, 0);
    for (uint64_t i = 0; i < BLOB; i++) {
        assert_int_equal(memory[i], fake_byte(0, i));
        assert_int_equal(memory[3 * BLOB + i], fake_byte(3, i));
    }
    fake_end(&f);
}

static void a_prefix_is_counted_up_to_the_first_miss(void **state)
{
    (void)state;
    struct penstock_cache cache = arena_of(BLOB);
    struct fake_peer f = ready(&cache, ANY_FEATURES);
    struct penstock_blob blobs[5] = { 0 };
    struct penstock_completion c;
    (void)submit(&f, PENSTOCK_BLOB_EXISTS, 0, blobs, 5);
    assert_int_equal(fake_poll(&f, &c), 0);
    uint8_t requests[5 * 9];
    assert_int_equal(recv(f.fd, requests, sizeof requests, 0), sizeof requests); /* all before the first answer */
    fake_send(&f, "\0\0\1\0\1", 5);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_ENOTFOUND);
    assert_int_equal(penstock_blobs_prefix(blobs, 5), 2);
    assert_int_equal(penstock_blobs_prefix(blobs, 1), 1);
    assert_int_equal(penstock_blobs_prefix(blobs, 0), 0);
    fake_end(&f);
}

static void wide_keys_and_ownership_are_asked_for_before_the_first_blob(void **state)
{
    (void)state;
    struct penstock_cache cache = arena_of(BLOB);
    cache.wide = cache.own = 1;
    struct fake_peer f = ready(&cache, ANY_FEATURES);
    struct penstock_blob blob = { .key = { .low = 0x11, .high = 0x22 } };
    struct penstock_completion c;
    (void)submit(&f, PENSTOCK_BLOB_REMOVE, 0, &blob, 1);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_expect(&f, "\4\x11\0\0\0\0\0\0\0\x22\0\0\0\0\0\0\0", 17);
    fake_status(&f, PENSTOCK_ST_OK);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, 0);
    fake_end(&f);
}

static void a_peer_without_a_feature_that_is_needed_is_refused_by_its_name(void **state)
{
    (void)state;
    for (int own = 0; own < 2; own++)
        for (int silent = 0; silent < 2; silent++) {
            struct penstock_cache cache = arena_of(BLOB);
            struct penstock_completion c;
            cache.own = own;
            cache.wide = !own;
            struct fake_peer f = begin(&cache);
            if (silent)
                fake_send(&f, "\0\0\2", 3); /* it does not know the question */
            else
                answer_features(&f, PENSTOCK_FEATURE_EXISTS);
            assert_int_equal(fake_poll(&f, &c), 1);
            assert_int_equal(c.code, PENSTOCK_EUNSUPPORTED);
            assert_non_null(strstr(fake_words(&f, f.open), own ? "end with their session" : "keys of 128 bits"));
            fake_end(&f);
        }
}

static void a_peer_that_closes_instead_of_an_answer_has_refused_the_arena(void **state)
{
    (void)state;
    struct penstock_cache cache = arena_of(BLOB);
    struct fake_peer f = begin(&cache);
    struct penstock_completion c;
    fake_close(&f);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_EDENIED);
    assert_non_null(strstr(fake_words(&f, f.open), "refused a KV arena of 65536 bytes (blobs of 8192)"));
    fake_end(&f);
}

static void answers_that_make_no_sense_end_the_session(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        int code;
    } bad[] = { { "\2\0", PENSTOCK_EPROTO }, { "\0\1", PENSTOCK_EDENIED } };
    for (size_t i = 0; i < 2; i++) {
        struct penstock_cache cache = arena_of(BLOB);
        struct fake_peer f = begin(&cache);
        struct penstock_completion c;
        fake_send(&f, bad[i].answer, 2);
        assert_int_equal(fake_poll(&f, &c), 1);
        assert_int_equal(c.code, bad[i].code);
        fake_end(&f);
    }
}

/* As much as the sockets take: the rest is still the caller's memory. */
/* Read ahead of a miss, what nobody wants of a blob must not land on top of what somebody does. */
static void parts_of_blobs_land_alone(void **state)
{
    (void)state;
    struct penstock_cache cache = arena_of(BLOB);
    struct fake_peer f = ready(&cache, ANY_FEATURES);
    static uint8_t memory[3 * BLOB];
    struct penstock_blob blobs[] = { { .key.low = 1, .at_bytes = 100, .from_bytes = 5000, .len_bytes = 3 },
                                     { .key.low = 2, .at_bytes = 200, .from_bytes = 0, .len_bytes = 4 },
                                     { .key.low = 3, .at_bytes = 300, .from_bytes = 4096, .len_bytes = 4096 },
                                     { .key.low = 4, .at_bytes = 5000 },
                                     { .key.low = 5, .at_bytes = 0, .from_bytes = 1, .len_bytes = 1 } };
    struct penstock_completion c;
    memset(memory, 0xEE, sizeof memory);
    penstock_op op = submit(&f, PENSTOCK_BLOB_GET, fake_region(&f, memory, sizeof memory), blobs, 5);
    assert_int_equal(fake_poll(&f, &c), 0);
    for (uint8_t i = 1; i <= 5; i++) {
        uint8_t head[9] = { PENSTOCK_OP_FETCH, i };
        fake_expect(&f, head, sizeof head);
        fake_status(&f, i == 2 ? PENSTOCK_ST_MISS : PENSTOCK_ST_OK);
        if (i != 2)
            fake_payload(&f, i, 0, BLOB);
    }
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, op);
    assert_int_equal(c.code, PENSTOCK_ENOTFOUND);
    assert_int_equal(c.landed_bytes, 3 + 4096 + BLOB + 1);
    assert_int_equal(blobs[1].code, PENSTOCK_ENOTFOUND);
    for (size_t i = 0; i < sizeof memory; i++) {
        uint8_t wanted = 0xEE;
        for (uint32_t b = 0; b < 5; b++) {
            uint64_t len = blobs[b].len_bytes ? blobs[b].len_bytes : BLOB;
            if (b != 1 && i >= blobs[b].at_bytes && i - blobs[b].at_bytes < len)
                wanted = fake_byte(b + 1, i - blobs[b].at_bytes + blobs[b].from_bytes);
        }
        assert_int_equal(memory[i], wanted);
    }
    fake_end(&f);
}

static void a_prefix_is_asked_for_at_once_and_a_miss_is_no_failure(void **state)
{
    (void)state;
    enum { N = 200 };
    struct penstock_cache cache = arena_of(BLOB);
    struct fake_peer f = ready(&cache, ANY_FEATURES);
    struct penstock_key keys[N] = { 0 };
    struct penstock_completion c;
    uint64_t found = 7;
    penstock_op op;
    for (size_t i = 0; i < N; i++)
        keys[i].low = i;
    struct penstock_prefix prefix = { .size = sizeof prefix, .keys = keys, .count = N, .found = &found };
    assert_int_equal(penstock_submit_prefix(f.session, &prefix, &op, NULL), 0);
    memset(keys, 0xFF, sizeof keys);
    assert_int_equal(fake_poll(&f, &c), 0);
    for (size_t i = 0; i < N; i++) {
        uint8_t head[9] = { PENSTOCK_OP_EXISTS, (uint8_t)i };
        fake_expect(&f, head, sizeof head);
    }
    for (size_t i = 0; i < N; i++)
        fake_status(&f, i < 150 || i > 170 ? PENSTOCK_ST_OK : PENSTOCK_ST_MISS);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, op);
    assert_int_equal(c.code, 0);
    assert_int_equal(c.landed_bytes, 0);
    assert_int_equal(found, 150);
    prefix.count = 1;
    assert_int_equal(penstock_submit_prefix(f.session, &prefix, &op, NULL), PENSTOCK_EINVAL); /* a wide key */
    keys[0] = (struct penstock_key){ 0 };
    assert_int_equal(penstock_submit_prefix(f.session, &prefix, &op, NULL), 0);
    assert_int_equal(found, 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_status(&f, PENSTOCK_ST_ERR);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_EREFUSED);
    assert_int_equal(penstock_prefix_wait(f.session, NULL, 0, &found, NULL), 0);
    assert_int_equal(penstock_prefix_wait(f.session, NULL, 1, &found, NULL), PENSTOCK_EINVAL);
    fake_end(&f);
}

static void a_peer_that_cannot_tell_what_exists_is_not_asked(void **state)
{
    (void)state;
    struct penstock_cache cache = arena_of(BLOB);
    struct fake_peer f = ready(&cache, PENSTOCK_FEATURE_OWN);
    const struct penstock_key key = { 0 };
    struct penstock_error error;
    uint64_t found;
    assert_int_equal(penstock_prefix_wait(f.session, &key, 1, &found, &error), PENSTOCK_EUNSUPPORTED);
    fake_expect_nothing(&f);
    fake_end(&f);
}

static void a_put_cancelled_half_way_is_sent_to_its_end_from_a_copy(void **state)
{
    (void)state;
    enum { MANY = 256, FIRST = 9 + BLOB };
    struct penstock_cache cache = arena_of(BLOB);
    struct fake_peer f = ready(&cache, ANY_FEATURES);
    uint8_t *memory = malloc((size_t)MANY * BLOB);
    struct penstock_blob *blobs = calloc(MANY, sizeof *blobs);
    struct penstock_completion c;
    assert_true(memory && blobs);
    for (uint32_t i = 0; i < MANY; i++) {
        fill(memory + (size_t)i * BLOB, i);
        blobs[i] = (struct penstock_blob){ .key = { .low = i }, .at_bytes = (uint64_t)i * BLOB };
    }
    penstock_op op = submit(&f, PENSTOCK_BLOB_PUT, fake_region(&f, memory, (size_t)MANY * BLOB), blobs, MANY);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_expect(&f, "\x10\0\0\0\0\0\0\0\0", 9);
    expect_blob(&f, 0);
    fake_status(&f, PENSTOCK_ST_OK);
    assert_int_equal(fake_poll(&f, &c), 0);
    assert_int_equal(penstock_cancel(f.session, op), 0);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_ECANCELED);
    assert_int_equal(blobs[0].code, 0);
    assert_int_equal(blobs[MANY - 1].code, PENSTOCK_ECANCELED);
    memset(memory, 0xEE, (size_t)MANY * BLOB);
    for (uint32_t i = 1; i < MANY; i++) {
        uint8_t head[9] = { PENSTOCK_OP_PUT, (uint8_t)i };
        (void)fake_poll(&f, &c);
        fake_expect(&f, head, sizeof head);
        (void)fake_poll(&f, &c);
        expect_blob(&f, i);
        fake_status(&f, PENSTOCK_ST_OK);
    }
    struct penstock_blob blob = { .key = { .low = 7 } };
    assert_int_equal(fake_poll(&f, &c), 0);
    (void)submit(&f, PENSTOCK_BLOB_EXISTS, 0, &blob, 1);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_expect(&f, "\x20\7\0\0\0\0\0\0\0", 9);
    fake_status(&f, PENSTOCK_ST_OK);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, 0);
    fake_end(&f);
    free(memory);
    free(blobs);
}

static void raw_ranges_are_written_and_read_where_they_lie(void **state)
{
    (void)state;
    struct penstock_cache cache = arena_of(0);
    struct fake_peer f = ready(&cache, 0);
    static uint8_t memory[2 * BLOB];
    struct penstock_completion c;
    penstock_op op;
    uint32_t region = fake_region(&f, memory, sizeof memory);
    const struct penstock_raw_range range = { .offset_bytes = 0x1234, .len_bytes = BLOB, .at_bytes = BLOB };
    struct penstock_raw raw = { .size = sizeof raw, .write = 1, .region = region, .ranges = &range, .count = 1 };
    fill(memory + BLOB, 5);
    assert_int_equal(penstock_submit_raw(f.session, &raw, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_expect(&f, "\x12\x34\x12\0\0\0\0\0\0\0\x20\0\0", 13);
    expect_blob(&f, 5);
    fake_status(&f, PENSTOCK_ST_OK);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, 0);
    raw.write = 0;
    assert_int_equal(penstock_submit_raw(f.session, &raw, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_expect(&f, "\x13\x34\x12\0\0\0\0\0\0\0\x20\0\0", 13);
    fake_status(&f, PENSTOCK_ST_OK);
    fake_payload(&f, 6, 0, BLOB);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.landed_bytes, BLOB);
    assert_int_equal(memory[BLOB], fake_byte(6, 0));
    assert_int_equal(penstock_submit_raw(f.session, &raw, &op, NULL), 0);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_status(&f, PENSTOCK_ST_ERR);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_EREFUSED);
    assert_non_null(strstr(fake_words(&f, op), "refused to read 8192 bytes at 4660"));
    fake_end(&f);
}

static void what_cannot_be_asked_for_is_refused_before_anything_is_sent(void **state)
{
    (void)state;
    struct penstock_error error;
    struct fake_peer f;
    struct penstock_cache bad[] = { arena_of(BLOB), arena_of(4097), arena_of(BLOB), arena_of(BLOB), arena_of(0) };
    bad[0].kind = 2;
    bad[2].arena_bytes = 0;
    bad[3].arena_bytes = BLOB + 4096;
    bad[4].wide = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(try_begin(&bad[i], &f, &error), PENSTOCK_EINVAL);
    struct penstock_cache cache = arena_of(BLOB);

    f = ready(&cache, ANY_FEATURES);
    static uint8_t memory[BLOB];
    uint32_t region = fake_region(&f, memory, sizeof memory);
    penstock_op op;
    struct penstock_blob blob = { .at_bytes = 1 };
    struct penstock_blobs b = { .size = sizeof b, .action = PENSTOCK_BLOB_GET, .blobs = &blob, .count = 1 };
    b.region = region;
    assert_int_equal(penstock_submit_blobs(f.session, &b, &op, &error), PENSTOCK_EINVAL);
    blob = (struct penstock_blob){ .from_bytes = BLOB - 1, .len_bytes = 2 };
    assert_int_equal(penstock_submit_blobs(f.session, &b, &op, &error), PENSTOCK_EINVAL);
    blob = (struct penstock_blob){ .len_bytes = 4096 };
    b.action = PENSTOCK_BLOB_PUT;
    assert_int_equal(penstock_submit_blobs(f.session, &b, &op, &error), PENSTOCK_EINVAL);
    b.action = PENSTOCK_BLOB_GET;
    blob = (struct penstock_blob){ .key.high = 1 };
    assert_int_equal(penstock_submit_blobs(f.session, &b, &op, &error), PENSTOCK_EINVAL);
    blob = (struct penstock_blob){ 0 };
    b.region = region + 1;
    assert_int_equal(penstock_submit_blobs(f.session, &b, &op, &error), PENSTOCK_EINVAL);
    b.action = 4;
    assert_int_equal(penstock_submit_blobs(f.session, &b, &op, &error), PENSTOCK_EINVAL);
    const struct penstock_raw raw = { .size = sizeof raw, .region = region };
    assert_int_equal(penstock_submit_raw(f.session, &raw, &op, &error), PENSTOCK_EINVAL);
    b = (struct penstock_blobs){ .size = sizeof b, .action = PENSTOCK_BLOB_GET, .region = region };
    assert_int_equal(penstock_blobs_wait(f.session, &b, &error), 0); /* none */
    assert_int_equal(penstock_unregister(f.session, region, &error), 0);
    fake_expect_nothing(&f);
    fake_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blobs_are_put_from_the_callers_memory_one_behind_the_other),
        cmocka_unit_test(a_miss_among_hits_is_an_answer_and_the_others_land),
        cmocka_unit_test(a_prefix_is_counted_up_to_the_first_miss),
        cmocka_unit_test(wide_keys_and_ownership_are_asked_for_before_the_first_blob),
        cmocka_unit_test(a_peer_without_a_feature_that_is_needed_is_refused_by_its_name),
        cmocka_unit_test(a_peer_that_closes_instead_of_an_answer_has_refused_the_arena),
        cmocka_unit_test(answers_that_make_no_sense_end_the_session),
        cmocka_unit_test(parts_of_blobs_land_alone),
        cmocka_unit_test(a_prefix_is_asked_for_at_once_and_a_miss_is_no_failure),
        cmocka_unit_test(a_peer_that_cannot_tell_what_exists_is_not_asked),
        cmocka_unit_test(a_put_cancelled_half_way_is_sent_to_its_end_from_a_copy),
        cmocka_unit_test(raw_ranges_are_written_and_read_where_they_lie),
        cmocka_unit_test(what_cannot_be_asked_for_is_refused_before_anything_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
