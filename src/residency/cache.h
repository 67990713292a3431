/* The cache: arenas of slots that many connections share, paged over a swap store. All that protocol 3 promises of
 * contents is kept here; of connections, the wire and verbs nothing is known.
 *
 * A cache holds one arena for each (kind, blob_bytes). A connection joins one, and is a client of it from then on: the
 * client has its reservations, its pins and what it owns.
 *
 * Threads: a client belongs to one thread at a time. Everything else may be called from any thread. Where a call may
 * wait, it says so; it then waits for disk I/O that has been started, never for another client, and with no lock held
 * that a request needs: joining and unmapping hold the cache's, which only comers and goers take.
 * Lock order: the cache's, then an arena's, then the ledger's and the swap's. Callbacks are called with none held, but
 * `unregister` with the cache's where an arena was idle. */
#ifndef PENSTOCK_RESIDENCY_CACHE_H
#define PENSTOCK_RESIDENCY_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

#include "key.h"
#include "ledger.h"

struct residency_swap;
struct residency_cache;
struct residency_client;
struct residency_fault;

/* The values of ST_OK, ST_MISS and ST_ERR (protocol 1.1): they may go to the wire as they are. */
enum residency_status { RESIDENCY_OK, RESIDENCY_MISS, RESIDENCY_ERR };

#define RESIDENCY_ARENA_MAX_BYTES (UINT64_C(1) << 42)
#define RESIDENCY_BLOB_ALIGN 4096 /* of paged blobs */
#define RESIDENCY_ARENAS_MAX 1024 /* their statistics fit into one message of protocol 2.6 */

struct residency_cache_options {
    struct residency_swap *swap;     /* the caller's, outlives the cache; NULL: see ram_only */
    bool keep;                       /* as the swap was opened: its records are taken over, and spill_all is worth it */
    bool ram_only;                   /* without swap: an evicted blob is gone. Without either, paging is refused */
    struct residency_ledger *ledger; /* the caller's; every arena is charged to it once */
    uint32_t ttl_s[RESIDENCY_KINDS]; /* what nobody touched for so long goes; 0: never */
    uint32_t arena_idle_s;           /* an arena without connections for so long is spilled and unmapped; 0: never */
    int numa_node;                   /* where arenas' memory is put; -1: wherever the kernel puts it */
    bool no_huge_pages;              /* else: huge pages where there are enough, or the kernel finds them */

    /* Before an arena's memory is unmapped: gives back what residency_registration made. */
    void (*unregister)(void *registration);

    /* For tests and benchmarks. */
    int64_t (*now_ns)(void);           /* the clock; NULL: the system's coarse monotonic one */
    void (*while_waiting)(void *user); /* called, no lock held, until what is waited for is there; NULL: sleep */
    void *user;
    bool unbacked; /* arenas may be larger than memory: their pages are never touched */
};

/* Takes over what a kept swap holds: each record's entry is read, no blob. ENOMEM, ESYS; EINVAL: numa_node. */
PENSTOCK_CHECKED int residency_cache_new(const struct residency_cache_options *options, struct residency_cache **out,
                                         struct penstock_error *error);

/* There are no clients any more. Waits for I/O in flight. What is resident is lost: see residency_spill_all. */
void residency_cache_free(struct residency_cache *cache);

/* To be called about once a second: drops what is past its time, and gives back arenas that are idle. Waits for their
 * spills. One thread at a time. */
void residency_sweep(struct residency_cache *cache);

/* Before a planned end, once all clients are gone: puts every resident blob on disk, as far as caps and disk allow.
 * Waits. */
void residency_spill_all(struct residency_cache *cache);

/* ---- clients ---- */

/* Joins the arena of (kind, blob_bytes) and creates it if there is none (protocol 1.6). arena_bytes counts only then.
 * blob_bytes 0: an arena of its own, raw, which ends with the client; only memory, registration and free work there.
 * May wait for a disk's directory. EINVAL, EUNSUPPORTED (paging without a swap directory), ELIMIT (the ledger's words,
 * or too many arenas), ENOMEM, ESYS: a refusal, worded for the operator. */
PENSTOCK_CHECKED int residency_join(struct residency_cache *cache, enum residency_kind kind, uint64_t arena_bytes,
                                    uint64_t blob_bytes, struct residency_client **out, struct penstock_error *error);

/* The end of a connection, however it came: gives back its reservations and pins, and removes what it owns. A verbs
 * connection has destroyed its QPs on every rail before (protocol 3); puts and fetches have been ended. A raw arena is
 * unregistered and unmapped. Does not wait. NULL is allowed. */
void residency_client_free(struct residency_client *client);

struct residency_memory {
    void *base; /* page-aligned; offsets in replies count from here. The same for all clients while one is there */
    uint64_t len_bytes;
    uint64_t page_bytes; /* of what it is mapped with: 4096, or the huge page size */
};
struct residency_memory residency_memory(const struct residency_client *client);

/* What was registered for this client's arena, made by the first call that asks: make is called then, other callers
 * for the same arena waiting, and what it returns stays with the arena until `unregister` of the options gets it. A
 * failed make (its code is returned) leaves none. */
PENSTOCK_CHECKED int residency_registration(struct residency_client *client,
                                            int (*make)(void *context, const struct residency_memory *memory,
                                                        void **registration, struct penstock_error *error),
                                            void *context, void **registration, struct penstock_error *error);

/* ---- the frozen operations (protocol 1.6) ---- */
/* Each first drops the pin of the client's last get. Statuses are what is answered. */

/* A slot for key that nobody else sees until commit; the same one where the client has one already. ERR: a quarter of
 * the slots is reserved by this client, all slots are reserved or pinned, or the blob that was to make room could not
 * be spilled. Seldom waits, for a spill. */
enum residency_status residency_alloc(struct residency_client *client, struct residency_key key, uint64_t *offset);

/* Publishes what alloc reserved: the last one wins. Without a reservation of one's own: OK where the key is resident,
 * else ERR. With a kept swap it may wait until an older blob's write has ended. */
enum residency_status residency_commit(struct residency_client *client, struct residency_key key);

/* Pins key's blob until the client's next frozen operation. Waits for a fault. ERR: too many pins, no slot for the
 * fault, or the disk failed. A record that is not what was written is a MISS. */
enum residency_status residency_get(struct residency_client *client, struct residency_key key, uint64_t *offset);

/* Forgets key, and the client's own reservation of it. OK always. Waits as commit does. */
enum residency_status residency_remove(struct residency_client *client, struct residency_key key);

/* What an unknown op does: drops the pin of the last get, and nothing else. */
void residency_let_go(struct residency_client *client);

/* ---- features (protocol 2.3) ---- */

/* OK or MISS; pins nothing, touches nothing, never waits. */
enum residency_status residency_exists(struct residency_client *client, struct residency_key key);

/* One key of an MGET: as get, but the pin stays until mget_release, and the last get's stays too. Whoever has several
 * keys starts their faults first. */
enum residency_status residency_mget(struct residency_client *client, struct residency_key key, uint64_t *offset);

/* Drops the client's oldest mget pin of key, where there is one. */
void residency_mget_release(struct residency_client *client, struct residency_key key);

/* Whether it has a pin or a reservation: a slot that somebody may be reading or writing from outside. */
bool residency_client_holds(const struct residency_client *client);

/* Whether blobs that are committed or put from now on are the client's: removed when it ends. */
void residency_own(struct residency_client *client, bool own);

/* ---- the TCP data plane (protocol 2.2) ---- */

/* Starts the fault of a key that is on disk; never waits, changes no answer. */
enum residency_ahead {
    RESIDENCY_AHEAD_NOW,    /* who fetches the key now need not wait */
    RESIDENCY_AHEAD_COMING, /* it is on its way */
    RESIDENCY_AHEAD_LATER,  /* half of the slots are being filled, or there is no memory: to be tried again */
};
enum residency_ahead residency_prefetch(struct residency_client *client, struct residency_key key);
/* The same without starting anything: LATER is what is on disk. Whoever waits for it next, and for nothing else, is
 * best off with that: the thread that waits then reads the blob, or the first piece of a large one. */
enum residency_ahead residency_look(struct residency_client *client, struct residency_key key);

/* A slot held while bytes are copied into it or out of it; outside the quarters' count. On the caller's memory. */
struct residency_copy {
    struct residency_key key;
    uint8_t *blob;       /* blob_bytes, to be written (put) or read (fetch); NULL: none held */
    uint64_t here_bytes; /* fetch: so many of them may be read */
    uint32_t slot;
    struct residency_fault *reading; /* what brings the others; NULL: all are here */
};

/* OK: copy->blob is to be filled, then put_commit or put_abandon. ERR: as alloc, and nothing is held. Seldom waits. */
enum residency_status residency_put_begin(struct residency_client *client, struct residency_key key,
                                          struct residency_copy *copy);
/* OK: others see all of it. ERR: no memory. Either way nothing is held. Waits as commit does. */
enum residency_status residency_put_commit(struct residency_client *client, struct residency_copy *copy);
/* One that holds nothing does no harm. */
void residency_put_abandon(struct residency_client *client, struct residency_copy *copy);

/* OK: copy->blob may be read, and stays what it is until fetch_end; partly: of a blob that comes from the disk in
 * several pieces perhaps only its first here_bytes, which are right whatever becomes of the others; never of a client
 * that owns blobs, which would lose them with a connection that had to end for it. Waits for a fault. */
enum residency_status residency_fetch_begin(struct residency_client *client, struct residency_key key, bool partly,
                                            struct residency_copy *copy);
/* Where here_bytes is not all of it: waits until it is more. Else nothing is held any more: ERR, the rest cannot be
 * read; MISS, it is not what was written. */
enum residency_status residency_fetch_more(struct residency_client *client, struct residency_copy *copy);
/* One that holds nothing does no harm. */
void residency_fetch_end(struct residency_client *client, struct residency_copy *copy);

/* ---- statistics (protocol 2.6) ---- */

struct residency_arena_stats {
    enum residency_kind kind;
    uint64_t blob_bytes;
    uint64_t arena_bytes; /* 0: known from the disk alone, or given back when idle */
    uint64_t slots;
    uint64_t resident, on_disk;  /* keys, each in one of them */
    uint64_t reserved, pinned;   /* slots */
    uint64_t connections;        /* clients */
    uint64_t hits, misses, puts; /* gets, mgets and fetches; commits of new blobs */
    uint64_t spills, faults;     /* blobs written to disk, and read back */
    uint64_t drops;              /* blobs lost to a cap, the ttl or the lack of a swap */
    uint64_t errors;             /* spills and faults that failed, records that were not what was written */
};

/* Writes at most max arenas, in the order they came; returns how many there are. Raw ones are not among them. */
size_t residency_stats(struct residency_cache *cache, struct residency_arena_stats *out, size_t max);

#endif
