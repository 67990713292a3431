/* Every allocation of a session's life is made to fail, one after the other: linked with --wrap. */
#include "fake_experts.h"

#include <penstock/lora.h>

#include "client/cache/kv.h"

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

static const char adapter[] =
    "{\"version\":1,\"model_id\":\"/m\",\"shard_files\":[\"a\"],\"shard_lens\":[100],\"tensors\":["
    "{\"name\":\"h.0.x.lora_A.weight\",\"dtype\":\"F32\",\"shape\":[1,2],\"offset_in_shard\":8,\"len\":8,"
    "\"shard_index\":0,\"extra\":false},"
    "{\"name\":\"h.0.x.lora_B.weight\",\"dtype\":\"F32\",\"shape\":[3,1],\"offset_in_shard\":20,\"len\":12,"
    "\"shard_index\":0,\"extra\":false},"
    "{\"name\":\"s\",\"dtype\":\"U8\",\"shape\":[1],\"offset_in_shard\":8,\"len\":1,\"shard_index\":0,"
    "\"extra\":false}],\"model_version\":\"v1\",\"files\":[]}";
static const char config[] = "{\"peft_type\":\"LORA\",\"r\":1,\"lora_alpha\":1,\"rank_pattern\":{\"x\":1}}";

static int land(struct penstock_session *s, struct penstock_error *error)
{
    static uint8_t memory[100];
    static const struct penstock_lora_place places[] = { { "x", 0, 2, 3 }, { "y", 0, 2, 3 } };
    const struct penstock_lora_options options = { .size = sizeof options,
                                                   .max_rank = 2,
                                                   .config = config,
                                                   .config_len_bytes = sizeof config - 1,
                                                   .places = places,
                                                   .n_places = 2 };
    const struct penstock_memory slot = { .size = sizeof slot, .address = memory, .len_bytes = sizeof memory };
    const struct penstock_lora_landing landing = { .size = sizeof landing, .slot = &slot };
    struct penstock_lora *lora;
    int code = penstock_lora_open(s, &options, &lora, error);
    if (code)
        return code;
    code = penstock_lora_land_wait(s, lora, &landing, error);
    penstock_lora_free(lora);
    return code;
}

/* Opens an adapter and lands it. */
static int live_with_an_adapter(int fds[2])
{
    struct fake_peer f = { .fd = fds[0] };
    struct net_stream stream;
    struct penstock_error error = { 0 };
    net_stream_plain(&stream, fds[1]);
    int code = client_session_on_stream(&stream, NULL, CLIENT_FOR_MANIFEST, "m", NULL, &f.session, &f.open, &error);
    if (code)
        return code;
    fake_send_text(&f, adapter);
    code = penstock_wait(f.session, f.open, NULL, &error);
    if (code == 0) {
        static const uint8_t replies[22]; /* two OKs, 8 and 12 zeros */
        fake_send(&f, replies, sizeof replies);
        code = land(f.session, &error);
    }
    if (code)
        assert_int_not_equal(error.message[0], 0);
    penstock_session_free(f.session);
    return code;
}

static int fetch_two(const struct fake_peer *f, const uint8_t *replies, size_t len, struct penstock_error *error)
{
    const struct penstock_expert_arena arena = { .size = sizeof arena, .slots = 2 };
    const struct penstock_fetch good = { .size = sizeof good, .layer = 1, .expert = 2 };
    const struct penstock_fetch refused = { .size = sizeof refused, .slot = 1, .priority = PENSTOCK_FETCH_GUESS };
    penstock_op op, bad;
    int code = penstock_experts_arena(f->session, &arena, error);
    code = code ? code : penstock_submit_fetch(f->session, &good, &op, error);
    code = code ? code : penstock_submit_fetch(f->session, &refused, &bad, error);
    if (code)
        return code;
    assert_int_equal(penstock_fetch_promote(f->session, bad), 0);
    fake_send(f, replies, len);
    code = penstock_wait(f->session, op, NULL, error);
    assert_int_equal(penstock_wait(f->session, bad, NULL, error), PENSTOCK_EREFUSED);
    if (code == 0) {
        long left = until_failure;
        until_failure = -1; /* the test's own */
        assert_record(f->session, 0, 1, 2);
        until_failure = left;
    }
    return code;
}

/* Opens a store, makes an arena, fetches a record and is refused another. */
static int live_with_experts(int fds[2])
{
    struct fake_peer f = { .fd = fds[0] };
    struct net_stream stream;
    struct penstock_error error = { 0 };
    long left = until_failure;
    until_failure = -1; /* what follows is the peer's */
    size_t len = 1 + (size_t)store_stride() + 1;
    uint8_t *replies = calloc(1, len);
    char *json = store_json("v1");
    store_record(1, 2, replies + 1);
    replies[len - 1] = PENSTOCK_STATUS_ERR;
    until_failure = left;

    net_stream_plain(&stream, fds[1]);
    int code = client_experts_on_stream(&stream, "v1", NULL, &f.session, &f.open, &error);
    if (code == 0) {
        fake_send_text(&f, json);
        code = penstock_wait(f.session, f.open, NULL, &error);
        code = code ? code : fetch_two(&f, replies, len, &error);
        if (code)
            assert_int_not_equal(error.message[0], 0);
        penstock_session_free(f.session);
    }
    free(json);
    free(replies);
    return code;
}

/* Puts a block, gets a stripe that is not there, and asks for a prefix; the replies are there before. */
static int use_kv(const struct fake_peer *f, struct penstock_error *error)
{
    static uint8_t memory[8192];
    const struct penstock_memory m = { .size = sizeof m, .address = memory, .len_bytes = sizeof memory };
    struct penstock_kv_block block = { .layer = 0 };
    struct penstock_kv_stripe stripe = { .layer = 0, .kv = 1 };
    struct penstock_kv_blocks put = { .size = sizeof put, .blocks = &block, .count = 1 };
    struct penstock_kv_stripes get = { .size = sizeof get, .stripes = &stripe, .count = 1 };
    const struct penstock_key key = { .low = 7 };
    uint64_t found;
    uint32_t region;
    int code = penstock_register(f->session, &m, &region, error);
    put.region = get.region = region;
    code = code ? code : penstock_kv_blocks_wait(f->session, &put, error);
    if (code)
        return code;
    code = penstock_kv_stripes_wait(f->session, &get, error);
    if (code != PENSTOCK_ENOTFOUND)
        return code;
    code = penstock_prefix_wait(f->session, &key, 1, &found, error);
    assert_true(code || found == 1);
    return code;
}

static int live_with_kv_blocks(int fds[2])
{
    static const struct penstock_kv_layout layout = { .size = sizeof layout,
                                                      .elem_bytes = 2,
                                                      .block_size = 16,
                                                      .head_dim = 128,
                                                      .layers = 1,
                                                      .blocks = 1,
                                                      .kv_heads = 1 };
    /* No rails, STATUS_OK; ST_OK and what it can do; put; a miss; there. */
    static const uint8_t replies[] = { 0, 0, 0, PENSTOCK_FEATURE_EXISTS, 0, 0, 0, 0, 0, 0, 0, 0, PENSTOCK_ST_MISS, 0 };
    const struct penstock_kv kv = { .size = sizeof kv, .layout = &layout };
    struct fake_peer f = { .fd = fds[0] };
    struct net_stream stream;
    struct penstock_error error = { 0 };
    net_stream_plain(&stream, fds[1]);
    int code = client_kv_on_stream(&stream, &kv, NULL, &f.session, &f.open, &error);
    if (code)
        return code;
    fake_send(&f, replies, 11);
    code = penstock_wait(f.session, f.open, NULL, &error);
    fake_send(&f, replies + 11, sizeof replies - 11);
    code = code ? code : use_kv(&f, &error);
    if (code)
        assert_int_not_equal(error.message[0], 0);
    penstock_session_free(f.session);
    return code;
}

static void fail_one_after_the_other(int (*life)(int fds[2]))
{
    bool all_went_well = false;
    long k = 0;
    for (; !all_went_well; k++) {
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
        until_failure = k;
        int code = life(fds);
        all_went_well = until_failure >= 0;
        until_failure = -1;
        close(fds[0]);
        /* The last to fail is the memory for a refusal's words, which costs only those. */
        assert_true(code == PENSTOCK_ENOMEM || code == 0);
        assert_true(code == 0 || !all_went_well);
    }
    assert_true(k > 10);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    fail_one_after_the_other(live);
}

static void every_allocation_of_a_landing_may_fail(void **state)
{
    (void)state;
    fail_one_after_the_other(live_with_an_adapter);
}

static void every_allocation_of_fetches_may_fail(void **state)
{
    (void)state;
    fail_one_after_the_other(live_with_experts);
}

static void every_allocation_of_kv_blocks_may_fail(void **state)
{
    (void)state;
    fail_one_after_the_other(live_with_kv_blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_allocation_may_fail),
                                        cmocka_unit_test(every_allocation_of_kv_blocks_may_fail),
                                        cmocka_unit_test(every_allocation_of_fetches_may_fail),
                                        cmocka_unit_test(every_allocation_of_a_landing_may_fail) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
