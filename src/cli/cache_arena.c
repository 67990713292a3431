#include "cache_arena.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "arguments.h"
#include "base/error.h"
#include "cmd.h"
#include "text.h"

#define BLOB_ALIGN 4096u
#define ARENA_BYTES (UINT64_C(1) << 30) /* where nobody says, */
#define ARENA_SLOTS 16u                 /* and at least so many blobs */
#define KEY_DIGITS 32u                  /* hexadecimal */

/* ---- options ---- */

void cache_arena_init(struct penstock_cache *arena)
{
    *arena = (struct penstock_cache){ .size = sizeof *arena, .kind = PENSTOCK_CACHE_KV };
}

const char *cache_arena_kind(int kind)
{
    return kind == PENSTOCK_CACHE_KV ? "kv" : "ssm";
}

static bool take_kind(struct penstock_cache *arena, const char *argument)
{
    bool kv = strcmp(argument, "kv") == 0;
    arena->kind = kv ? PENSTOCK_CACHE_KV : PENSTOCK_CACHE_SSM;
    return kv || strcmp(argument, "ssm") == 0;
}

bool cache_arena_take(struct penstock_cache *arena, const char *command, int option, const char *argument, int *status)
{
    *status = CLI_OK;
    switch (option) {
    case CACHE_KIND:
        if (!take_kind(arena, argument))
            *status = cli_wrong(command, "--kind takes kv or ssm, not ", argument);
        return true;
    case CACHE_BLOB:
        if (!cli_bytes(argument, &arena->blob_bytes) || arena->blob_bytes % BLOB_ALIGN != 0 ||
            arena->blob_bytes > PENSTOCK_ARENA_BYTES_MAX)
            *status = cli_wrong(command, "--blob takes a multiple of 4096 bytes, as 64K, 4T at most, not ", argument);
        return true;
    case CACHE_ARENA:
        if (!cli_bytes(argument, &arena->arena_bytes) || arena->arena_bytes > PENSTOCK_ARENA_BYTES_MAX)
            *status = cli_wrong(command, "--arena takes a size, as 64G, 4T at most, not ", argument);
        return true;
    default:
        return false;
    }
}

void cache_arena_default(struct penstock_cache *arena)
{
    if (arena->arena_bytes != 0)
        return;
    uint64_t slots = ARENA_BYTES / arena->blob_bytes;
    slots = slots < ARENA_SLOTS ? ARENA_SLOTS : slots;
    uint64_t most = PENSTOCK_ARENA_BYTES_MAX / arena->blob_bytes;
    arena->arena_bytes = (slots < most ? slots : most) * arena->blob_bytes;
}

/* ---- what the peer has ---- */

static const char *arena_name(const struct penstock_cache *arena, char *out, size_t size)
{
    char blob[CLI_SIZE_MAX];
    snprintf(out, size, "%s arena%s%s", cache_arena_kind(arena->kind), arena->blob_bytes ? " with blobs of " : "",
             arena->blob_bytes ? cli_size(arena->blob_bytes, blob) : "");
    return out;
}

static int several(const struct penstock_cache_stats *stats, const struct penstock_cache *arena, const char *peer,
                   struct penstock_error *error)
{
    char list[200] = "", size[CLI_SIZE_MAX];
    size_t at = 0;
    const struct penstock_cache_arena *a;
    for (size_t i = 0; (a = penstock_cache_stats_arena(stats, i)) && at + CLI_SIZE_MAX + 8 < sizeof list; i++)
        if (a->kind == arena->kind)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", cli_size(a->blob_bytes, size));
    return base_error_set(error, PENSTOCK_EINVAL,
                          "%s has several %s arenas, with blobs of %s: --blob says which is meant", peer,
                          cache_arena_kind(arena->kind), list);
}

static int choose(const struct penstock_cache_stats *stats, struct penstock_cache *arena, const char *peer,
                  struct penstock_error *error)
{
    const struct penstock_cache_arena *a, *found = NULL;
    char name[64];
    for (size_t i = 0; (a = penstock_cache_stats_arena(stats, i)); i++) {
        if (a->kind != arena->kind || (arena->blob_bytes && a->blob_bytes != arena->blob_bytes))
            continue;
        if (found)
            return several(stats, arena, peer, error);
        found = a;
    }
    if (!found)
        return base_error_set(error, PENSTOCK_ENOTFOUND, "%s has no %s", peer, arena_name(arena, name, sizeof name));
    arena->blob_bytes = found->blob_bytes;
    if (arena->arena_bytes == 0)
        arena->arena_bytes = found->arena_bytes;
    cache_arena_default(arena);
    return 0;
}

int cache_arena_find(struct penstock_cache *arena, const char *peer, const struct penstock_options *options,
                     struct penstock_error *error)
{
    if (arena->blob_bytes && arena->arena_bytes)
        return 0;
    struct penstock_options how = *options;
    struct penstock_cache_stats *stats;
    how.transport = PENSTOCK_TRANSPORT_TCP; /* a question that needs no rails */
    int code = penstock_cache_stats_get(peer, &how, &stats, error);
    if (code == PENSTOCK_ECLOSED && arena->blob_bytes) {
        cache_arena_default(arena); /* a peer of the frozen protocol: it cannot be asked */
        return 0;
    }
    if (code == PENSTOCK_ECLOSED)
        base_error_in(error, "without --blob the peer is asked for its arenas");
    if (code)
        return code;
    code = choose(stats, arena, peer, error);
    penstock_cache_stats_free(stats);
    return code;
}

/* ---- keys ---- */

static bool parse_hex(const char *digits, struct penstock_key *out)
{
    *out = (struct penstock_key){ 0 };
    size_t n = strlen(digits);
    if (n == 0 || n > KEY_DIGITS || strspn(digits, "0123456789abcdefABCDEF") != n)
        return false;
    for (; *digits; digits++) {
        unsigned c = (unsigned)tolower((unsigned char)*digits);
        out->high = out->high << 4 | out->low >> 60;
        out->low = out->low << 4 | (c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}

bool cache_key_parse(const char *text, bool wide, struct penstock_key *out, const char **why)
{
    bool prefixed = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    *out = (struct penstock_key){ 0 };
    *why = "KEY is a decimal number of 64 bits, or hexadecimal behind 0x, not ";
    if (prefixed || (wide && strlen(text) == KEY_DIGITS)) {
        if (!parse_hex(text + (prefixed ? 2 : 0), out))
            return false;
        *why = "keys above 64 bits need --wide: ";
        return wide || out->high == 0;
    }
    return cli_number(text, 0, UINT64_MAX, &out->low);
}
