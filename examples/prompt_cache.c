/* What an engine does with a cache of KV blocks: looks how much of a prompt is there, gets that, computes the rest, and
 * puts it for whoever has a prompt that begins alike.
 *
 *     cc prompt_cache.c $(pkg-config --cflags --libs penstock) -o prompt_cache
 *     ./prompt_cache 10.0.0.2:9916 "You are a helpful assistant. What is a penstock?"
 *     ./prompt_cache 10.0.0.2:9916 "You are a helpful assistant. Why is it called that?" */
#include <penstock/cache.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 8, BLOCK_BYTES = 65536, ARENA_BYTES = 1024 * BLOCK_BYTES, BLOCKS_MAX = 64 };

static int fail(const struct penstock_error *error)
{
    fprintf(stderr, "%s: %s\n", penstock_error_name(error->code), error->message);
    return 1;
}

/* A block's key says all that its contents follow from: the model, and every token up to its end. Engines use a
 * cryptographic hash: who gets another prompt's block for a collision does not notice. */
static struct penstock_key next_key(struct penstock_key key, const char *tokens)
{
    for (int i = 0; i < TOKENS; i++) {
        key.low = (key.low ^ (unsigned char)tokens[i]) * 0x100000001B3u;
        key.high = (key.high + key.low) * 0x9E3779B97F4A7C15u;
    }
    return key;
}

/* Stands for the model. */
static void compute(unsigned char *block, struct penstock_key key)
{
    memset(block, (int)(key.low & 0xFF), BLOCK_BYTES);
}

/* Blocks [first, end) of memory, to or from the peer. */
static int move(struct penstock_session *session, int action, uint32_t region, const struct penstock_key *keys,
                uint64_t first, uint64_t end, struct penstock_error *error)
{
    struct penstock_blob blobs[BLOCKS_MAX] = { 0 };
    for (uint64_t i = first; i < end; i++)
        blobs[i - first] = (struct penstock_blob){ .key = keys[i], .at_bytes = i * BLOCK_BYTES };
    struct penstock_blobs batch = { .size = sizeof batch, .action = action, .region = region, .blobs = blobs };
    batch.count = end - first;
    return penstock_blobs_wait(session, &batch, error);
}

int main(int argc, char **argv)
{
    static unsigned char memory[BLOCKS_MAX * BLOCK_BYTES];
    const struct penstock_cache cache = { .size = sizeof cache,
                                          .kind = PENSTOCK_CACHE_KV,
                                          .blob_bytes = BLOCK_BYTES,
                                          .arena_bytes = ARENA_BYTES,
                                          .wide = 1 }; /* keys of 128 bits */
    const struct penstock_memory all = { .size = sizeof all, .address = memory, .len_bytes = sizeof memory };
    struct penstock_session *session;
    struct penstock_error error;
    struct penstock_key keys[BLOCKS_MAX];
    uint64_t count = 0, found;
    uint32_t region;
    if (argc != 3)
        return fprintf(stderr, "usage: prompt_cache PEER PROMPT\n"), 2;
    for (const char *at = argv[2]; count < BLOCKS_MAX && strlen(at) >= TOKENS; at += TOKENS, count++)
        keys[count] = next_key(count ? keys[count - 1] : (struct penstock_key){ .low = 1, .high = 1 }, at);

    if (penstock_cache_open(argv[1], &cache, NULL, &session, &error) != 0 ||
        penstock_register(session, &all, &region, &error) != 0 ||
        penstock_prefix_wait(session, keys, count, &found, &error) != 0)
        return fail(&error);
    int code = move(session, PENSTOCK_BLOB_GET, region, keys, 0, found, &error);
    if (code == PENSTOCK_ENOTFOUND)
        found = 0; /* some of it went in the meantime: all is computed */
    else if (code != 0)
        return fail(&error);
    for (uint64_t i = found; i < count; i++)
        compute(memory + i * BLOCK_BYTES, keys[i]);
    if (move(session, PENSTOCK_BLOB_PUT, region, keys, found, count, &error) != 0)
        return fail(&error);
    printf("%llu of %llu blocks were there\n", (unsigned long long)found, (unsigned long long)count);
    penstock_session_free(session);
    return 0;
}
