/* The peer daemon. One acceptor, one thread per connection with a small stack and blocking calls, one low-priority
 * worker that hashes and warms, one watch that looks for changed files, and the caller's thread, which waits for
 * signals. */
#ifndef PENSTOCK_PEER_PEER_H
#define PENSTOCK_PEER_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

#include "base/vec.h"
#include "hold.h"
#include "rail/wish.h"
#include "residency/key.h"

struct peer_directory {
    const char *name; /* NULL: the directory's own */
    const char *path;
};

enum peer_tier { PEER_TIER_WEIGHTS, PEER_TIER_EXPERTS, PEER_TIER_CACHE, PEER_TIERS };

struct peer_cache_options {
    bool on;
    const char *swap_dir; /* NULL: none. Paging is then refused, unless no_swap says that memory is all there is */
    bool no_swap;
    bool swap_keep;
    uint64_t swap_cap_bytes;                       /* 0: none */
    uint64_t swap_cap_kind_bytes[RESIDENCY_KINDS]; /* likewise */
    uint32_t ttl_s[RESIDENCY_KINDS];               /* 0: never */
    uint32_t arena_idle_s;                         /* 0: never */
    int numa_node;                                 /* -1: wherever the kernel puts it */
};

/* What an operator chooses. Strings are the caller's and outlive peer_run. */
struct peer_options {
    BASE_VEC(struct peer_directory) weights;
    const char *experts; /* a store; NULL: none */
    struct peer_cache_options cache;
    BASE_VEC(const char *) listen[PEER_TIERS]; /* empty: the tier's default */
    const char *congestion;                    /* NULL: the system's own */
    size_t max_connections;
    uint64_t max_memory_bytes; /* 0: no ceiling */
    int64_t drain_ns;
    struct rail_wishes rails;
    const char *rails_from; /* where they were said, for errors; NULL: --rail */
    enum peer_hold_how hold;
    struct verbs_world *world; /* NULL: libibverbs. Outlives peer_run */
    double deadline_scale;     /* 1; tests shorten every deadline of a client with it */
    bool allow_any_path, follow_links, no_warm, no_digests;
};

#define PEER_LISTEN_WEIGHTS "127.0.0.1:9910"
#define PEER_LISTEN_EXPERTS "127.0.0.1:9900"
#define PEER_LISTEN_CACHE "127.0.0.1:9916"
#define PEER_MAX_CONNECTIONS 4096
#define PEER_SWAP_CAP_BYTES (UINT64_C(50) << 30)
#define PEER_DRAIN_NS (INT64_C(10) * 1000000000)

void peer_options_init(struct peer_options *options);
void peer_options_fini(struct peer_options *options);

/* Serves until SIGTERM or SIGINT, which it blocks for the process (SIGPIPE is ignored). Returns 0 after a drain; an
 * error where it could not start: a directory that cannot be staged, an address that cannot be listened on. To be
 * called before any other thread exists. */
PENSTOCK_CHECKED int peer_run(const struct peer_options *options, struct penstock_error *error);

#endif
