/* Which arena of a cache peer a command means: --kind, --blob and --arena, and what the peer says where they are not
 * given. */
#ifndef PENSTOCK_CLI_CACHE_ARENA_H
#define PENSTOCK_CLI_CACHE_ARENA_H

#include <stdbool.h>

#include <penstock/cache.h>

/* The rows of a command's option table that are for this. */
enum { CACHE_KIND = 0x2000, CACHE_BLOB, CACHE_ARENA };
#define CACHE_LONG_OPTIONS                                                                                             \
    { "kind", required_argument, NULL, CACHE_KIND }, { "blob", required_argument, NULL, CACHE_BLOB },                  \
    {                                                                                                                  \
        "arena", required_argument, NULL, CACHE_ARENA                                                                  \
    }

/* arena is zero but for its size; blob_bytes and arena_bytes stay 0 where they are not given. KV unless said. */
void cache_arena_init(struct penstock_cache *arena);
/* Whether option is one of these; if so *status is CLI_OK, or CLI_USAGE once what is wrong has been said. */
bool cache_arena_take(struct penstock_cache *arena, const char *command, int option, const char *argument, int *status);

/* For who may begin an arena: arena_bytes, where not given, from blob_bytes. */
void cache_arena_default(struct penstock_cache *arena);
/* For who only wants what is there: asks the peer, unless both sizes are given. ENOTFOUND: it has no such arena, and
 * joining it would only make one. EINVAL: there are several, and their sizes are in the words. */
PENSTOCK_CHECKED int cache_arena_find(struct penstock_cache *arena, const char *peer,
                                      const struct penstock_options *options, struct penstock_error *error);

/* "kv", "ssm". */
const char *cache_arena_kind(int kind);

/* A key: decimal, or hexadecimal behind 0x; wide: also above 64 bits, and then 32 digits need no 0x. False: none, and
 * *why says what is wanted. */
bool cache_key_parse(const char *text, bool wide, struct penstock_key *out, const char **why);

#endif
