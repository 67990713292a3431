/* A session whose peer sends fuzzed bytes, in fuzzed portions. The first byte says from where on they are the fuzzer's:
 * from the model request, the join, the list of models, or the first reply. In the last case a byte-by-byte reading of
 * the same replies says what each operation has to end with, and in which memory. With its highest bit set they are all
 * that a cache peer says over TCP. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/cache/cache.h"
#include "client/weights/weights.h"
#include "fuzz.h"

#define OPS 24
#define SLOT 200 /* bytes of memory for each operation, of which its range takes less */

static const char manifest[] =
    "{\"version\":1,\"model_id\":\"/m\",\"shard_files\":[\"a\"],\"shard_lens\":[20000000],\"tensors\":[{\"name\":\"t\","
    "\"dtype\":\"U8\",\"shape\":[1],\"offset_in_shard\":8,\"len\":1,\"shard_index\":0,\"extra\":false}],"
    "\"model_version\":\"v\",\"files\":[]}";

static struct {
    const uint8_t *at, *end;
    uint8_t portion; /* what one read brings at most; 0: no limit */
    bool blocked;
} feed;

static ssize_t feed_readv(struct net_stream *stream, const struct iovec *iov, int n)
{
    (void)stream;
    if (feed.at == feed.end)
        return 0;
    feed.blocked = feed.portion && !feed.blocked;
    if (feed.blocked)
        return -EAGAIN;
    size_t left = (size_t)(feed.end - feed.at), got = 0;
    if (feed.portion && left > feed.portion)
        left = feed.portion;
    for (int i = 0; i < n && left > 0; i++) {
        size_t len = iov[i].iov_len < left ? iov[i].iov_len : left;
        memcpy(iov[i].iov_base, feed.at, len);
        feed.at += len;
        left -= len;
        got += len;
    }
    return (ssize_t)got;
}

static ssize_t feed_writev(struct net_stream *stream, const struct iovec *iov, int n, bool more)
{
    (void)stream, (void)more;
    size_t len = 0;
    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    return (ssize_t)len;
}

static void feed_close(struct net_stream *stream)
{
    close(stream->fd);
}

static const struct net_stream_ops feed_ops = { .readv = feed_readv, .writev = feed_writev, .close = feed_close };

static struct penstock_session *begin(enum client_purpose purpose, struct penstock_catalogue *catalogue,
                                      penstock_op *op)
{
    struct penstock_session *s;
    struct net_stream stream = { .ops = &feed_ops, .fd = eventfd(0, EFD_CLOEXEC) };
    FUZZ_CHECK(client_session_on_stream(&stream, NULL, purpose, "m", catalogue, &s, op, NULL) == 0);
    return s;
}

/* Until the peer's bytes are used up and the session is dead of it: every operation completes, once. */
static size_t run(struct penstock_session *s, struct penstock_completion *completions, size_t max)
{
    size_t total = 0, done;
    for (int idle = 0; idle < 3;) {
        int code = penstock_poll(s, completions + total, max - total, &done);
        total += done;
        idle += code != 0;
    }
    return total;
}

static struct penstock_catalogue *open_ready(struct penstock_session **s)
{
    static uint8_t hello[4 + sizeof manifest];
    uint32_t len = sizeof manifest - 1;
    penstock_op op;
    memcpy(hello, &len, 4);
    memcpy(hello + 4, manifest, len);
    feed.at = hello;
    feed.end = hello + 4 + len;
    feed.portion = 0;
    *s = begin(CLIENT_FOR_MANIFEST, NULL, &op);
    /* By steps, not by polls: a poll would go on to read the end of the stream, which comes after the replies. */
    struct penstock_error error;
    while (feed.at < feed.end)
        FUZZ_CHECK(client_hello_step(*s, &error) == 0);
    FUZZ_CHECK(penstock_wait(*s, op, NULL, NULL) == 0);
    return penstock_session_catalogue(*s);
}

/* What one operation comes to, read from the replies one byte at a time. */
static int expected(const uint8_t **at, const uint8_t *end, size_t len, uint8_t *memory)
{
    if (*at == end)
        return PENSTOCK_ECLOSED;
    if (*(*at)++ != PENSTOCK_STATUS_OK)
        return PENSTOCK_EREFUSED;
    if ((size_t)(end - *at) < len) {
        *at = end;
        return PENSTOCK_ECLOSED;
    }
    memcpy(memory, *at, len);
    *at += len;
    return 0;
}

static void fuzz_replies(const uint8_t *data, size_t len, uint8_t portion)
{
    static uint8_t memory[OPS * SLOT], right[OPS * SLOT];
    struct penstock_session *s;
    penstock_catalogue_unref(open_ready(&s));
    feed.at = data;
    feed.end = data + len;
    feed.portion = portion;
    memset(memory, 0xA5, sizeof memory);
    memset(right, 0xA5, sizeof right);

    uint32_t region;
    const struct penstock_memory m = { .size = sizeof m, .address = memory, .len_bytes = sizeof memory };
    FUZZ_CHECK(penstock_register(s, &m, &region, NULL) == 0);
    int codes[OPS];
    const uint8_t *at = data;
    for (size_t i = 0; i < OPS; i++) {
        penstock_op op;
        const struct penstock_range range = { .len_bytes = 1 + i * 7, .dst_bytes = (i * 5 % OPS) * SLOT };
        const struct penstock_read read = { .size = sizeof read, .ranges = &range, .count = 1, .region = region };
        FUZZ_CHECK(penstock_submit(s, &read, &op, NULL) == 0);
        codes[i] = expected(&at, data + len, range.len_bytes, right + range.dst_bytes);
    }
    uint8_t digests[16];
    penstock_op op;
    const struct penstock_digests d = { .size = sizeof d, .out = digests, .max = 1 };
    FUZZ_CHECK(penstock_submit_digests(s, &d, &op, NULL) == 0);

    struct penstock_completion c[OPS + 1];
    size_t n = run(s, c, OPS + 1);
    FUZZ_CHECK(n == OPS + 1);
    for (size_t i = 0; i < OPS; i++) {
        FUZZ_CHECK(c[i].code == codes[i]);
        size_t dst = (i * 5 % OPS) * SLOT, end = dst + 1 + i * 7;
        if (codes[i] == 0)
            FUZZ_CHECK(memcmp(memory + dst, right + dst, SLOT) == 0);
        for (; end < dst + SLOT; end++)
            FUZZ_CHECK(memory[end] == 0xA5);
    }
    penstock_session_free(s);
}

/* Parts of blobs, looking and removing: each is answered, and nothing lands beside its place. */
static void fuzz_cache(void)
{
    enum { BLOB = 4096, BLOBS = 6, PART = 100 };
    static const int actions[] = { PENSTOCK_BLOB_GET, PENSTOCK_BLOB_EXISTS, PENSTOCK_BLOB_REMOVE };
    static uint8_t memory[BLOBS * SLOT];
    const struct penstock_options options = { .size = sizeof options, .transport = PENSTOCK_TRANSPORT_TCP };
    const struct penstock_cache arena = { .size = sizeof arena, .blob_bytes = BLOB, .arena_bytes = 8 * BLOB, .own = 2 };
    const struct penstock_memory m = { .size = sizeof m, .address = memory, .len_bytes = sizeof memory };
    struct net_stream stream = { .ops = &feed_ops, .fd = eventfd(0, EFD_CLOEXEC) };
    struct penstock_blob blobs[3][BLOBS];
    struct penstock_completion c[5];
    struct penstock_session *s;
    penstock_op op;
    uint32_t region;
    memset(memory, 0xA5, sizeof memory);
    FUZZ_CHECK(client_cache_on_stream(&stream, &arena, &options, &s, &op, NULL) == 0);
    FUZZ_CHECK(penstock_register(s, &m, &region, NULL) == 0);
    for (size_t i = 0; i < 3; i++) {
        const struct penstock_blobs b = {
            .size = sizeof b, .action = actions[i], .region = region, .blobs = blobs[i], .count = BLOBS
        };
        for (size_t j = 0; j < BLOBS; j++)
            blobs[i][j] =
                (struct penstock_blob){ .key.low = j, .at_bytes = j * SLOT, .from_bytes = j * 700, .len_bytes = PART };
        FUZZ_CHECK(penstock_submit_blobs(s, &b, &op, NULL) == 0);
    }
    FUZZ_CHECK(run(s, c, 5) == 4);
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < BLOBS; j++)
            FUZZ_CHECK(blobs[i][j].code == 0 || blobs[i][j].code == PENSTOCK_ECANCELED ||
                       blobs[i][j].code == PENSTOCK_EREFUSED || blobs[i][j].code == PENSTOCK_ENOTFOUND);
    for (size_t j = 0; j < BLOBS; j++)
        for (size_t i = PART; i < SLOT; i++)
            FUZZ_CHECK(memory[j * SLOT + i] == 0xA5);
    penstock_session_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const enum client_purpose purposes[] = { CLIENT_FOR_MANIFEST, CLIENT_FOR_JOIN, CLIENT_FOR_MODELS };
    if (len < 2)
        return 0;
    if (data[0] < 0x80 && data[0] % 4 == 3) {
        fuzz_replies(data + 2, len - 2, data[1]);
        return 0;
    }
    if (data[0] >= 0x80) {
        feed.at = data + 2;
        feed.end = data + len;
        feed.portion = data[1];
        fuzz_cache();
        return 0;
    }
    struct penstock_session *s;
    struct penstock_catalogue *catalogue = NULL;
    enum client_purpose purpose = purposes[data[0] % 4];
    if (purpose == CLIENT_FOR_JOIN) {
        catalogue = open_ready(&s);
        penstock_session_free(s);
    }
    feed.at = data + 2;
    feed.end = data + len;
    feed.portion = data[1];
    penstock_op op;
    struct penstock_completion c[2];
    s = begin(purpose, catalogue, &op);
    FUZZ_CHECK(run(s, c, 2) == 1 && c[0].op == op);
    penstock_catalogue_unref(catalogue);
    penstock_session_free(s);
    return 0;
}
