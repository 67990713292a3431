/* Inside the cache: an arena, its entries and slots, and how a slot becomes free. The caller of every function has the
 * arena's lock where nothing else is said. What must happen without it (I/O, frees of records) is collected in a
 * struct residency_work and done by residency_work_do. */
#ifndef PENSTOCK_RESIDENCY_ARENA_H
#define PENSTOCK_RESIDENCY_ARENA_H

#include <pthread.h>

#include "base/list.h"
#include "cache.h"
#include "residency/swap/swap.h"
#include "table.h"

/* Of lists whose members are named by number. */
struct residency_link {
    uint32_t prev, next;
};
struct residency_queue {
    uint32_t head, tail; /* hottest, coldest */
};

/* ---- entries: one a committed key ---- */

enum residency_where {
    RESIDENCY_RESIDENT, /* node.value is the slot; record, if any, is a clean copy */
    RESIDENCY_ON_DISK,  /* record has it */
    RESIDENCY_FAULTING, /* record has it, node.value is the number of the fault */
};

/* 48 bytes; with the buckets 54 a key. */
struct residency_entry {
    struct residency_node node;
    struct residency_link link; /* in arena->lru while resident and unpinned, in arena->disk while on disk */
    uint32_t record;
    uint32_t touched;         /* a moment, see residency_moment */
    uint64_t generation : 60; /* of the blob: never used twice in an arena; 0 in an entry that is no more */
    uint64_t where : 2;
    uint64_t owned : 1;
    uint64_t broken_off : 1; /* the disk failed when readers had some of it: next time they get all or nothing */
};
#define RESIDENCY_GENERATION_MAX ((UINT64_C(1) << 60) - 1)
_Static_assert(sizeof(struct residency_entry) == 48, "80 bytes a key, with slot, buckets and the swap's record");

/* ---- slots ---- */

enum residency_slot_state {
    RESIDENCY_SLOT_FREE,
    RESIDENCY_SLOT_RESERVED, /* a client's: its bytes are being written from outside */
    RESIDENCY_SLOT_RESIDENT,
    RESIDENCY_SLOT_SPILLING, /* resident, and being written to disk */
    RESIDENCY_SLOT_READING,  /* a fault's */
};

/* A version that was overwritten or removed while pinned or in flight has entry NONE, and its slot is freed once it is
 * neither. */
struct residency_slot {
    uint32_t pins : 28;
    uint32_t state : 4;
    uint32_t entry;
    struct residency_link link; /* in arena->clean, or (next alone) among the free ones */
};
#define RESIDENCY_PINS_MAX ((1u << 28) - 1)

/* Who waits for a slot: a thread, or a fault. */
struct residency_want {
    struct base_list node;
    struct residency_fault *fault; /* NULL: a thread */
    uint32_t slot;
    bool done; /* slot is set, NONE: there is none to be had */
    pthread_cond_t changed;
};

enum residency_fault_result {
    RESIDENCY_FAULT_LANDED,
    RESIDENCY_FAULT_LOST,   /* the record was not what was written */
    RESIDENCY_FAULT_FAILED, /* no slot, or the disk failed: the key is still on disk */
    RESIDENCY_FAULT_AGAIN,  /* another version came, or none is left: to be looked up again */
    RESIDENCY_FAULT_COMING, /* it is not over: the caller has become a reader */
};

struct residency_fault {
    struct residency_swap_io io;
    struct residency_arena *arena;
    struct residency_want want;   /* while it has no slot */
    struct residency_fault *next; /* in a struct residency_work */
    uint32_t entry;               /* NONE: forgotten meanwhile */
    uint32_t number;              /* in arena->faults */
    uint32_t slot;                /* NONE: it waits for one */
    uint32_t waiters;             /* each has a pin when it ends well */
    uint32_t readers;             /* have one now: they use what is there of the blob, and wait for more */
    uint64_t here_bytes;          /* from the blob's start on: so much they may use */
    bool done;
    enum residency_fault_result result;
    pthread_cond_t changed;
};

struct residency_spill {
    struct residency_swap_io io;
    struct residency_arena *arena;
    struct residency_spill *next;
    uint32_t slot;
    bool dropped; /* no record for it under the caps: it goes like the coldest record */
};

struct residency_counts {
    uint64_t hits, misses, puts, spills, faults, drops, errors;
};

#define RESIDENCY_LEAVING 256

struct residency_arena {
    struct residency_cache *cache;
    enum residency_kind kind;
    bool raw;
    uint64_t blob_bytes;
    struct residency_swap_file *file; /* NULL: RAM only */

    /* Under the cache's lock, and never changed while there are clients. */
    struct residency_memory memory;
    struct residency_reservation charge;
    _Atomic uint32_t clients; /* read without it too */
    uint32_t idle_since;      /* a moment, while there are no clients */

    /* A lock of its own, held while memory is registered; taken before no other. */
    pthread_mutex_t registration_lock;
    void *registration;

    pthread_mutex_t lock; /* of all below */
    struct residency_table entries;
    uint64_t generation; /* the last one given */
    struct residency_slot *slots;
    uint32_t n_slots, free_slots;
    uint32_t fresh_slot, spare_slot; /* slots from fresh_slot on were never used; those before are linked */
    uint32_t low_slots;              /* fewer free ones, and blobs are spilled ahead of need */
    uint32_t resident, reserved, pinned;
    struct residency_queue lru;   /* entries */
    struct residency_queue disk;  /* entries */
    struct residency_queue clean; /* slots of resident blobs that have a record, in the order they got it */
    _Atomic uint32_t coldest;     /* when the tail of disk was touched, NONE: it is empty; read without the lock */
    _Atomic bool any_clean;       /* likewise */

    struct base_list wants; /* in the order they came */
    uint32_t n_wants;
    uint32_t hopeful;   /* slots in flight that nobody has pinned: each will be free, or can be evicted, without any
                           client's help */
    uint32_t spilling;  /* writes that have not ended */
    uint32_t in_flight; /* spills and faults whose callback has not ended */
    uint32_t n_faults;
    uint32_t failed_at; /* the moment of the last spill that failed; 0: none since one went well */
    uint64_t failures;
    pthread_cond_t landed; /* a spill or fault has ended */

    /* With a kept swap: forgotten versions that the disk may still have, counted by a hash of their keys. Whoever
     * removed or overwrote a key answers when none is left of it, even where another thread took the last one away. */
    uint32_t leaving[RESIDENCY_LEAVING];
    pthread_cond_t left;

    BASE_VEC(struct residency_fault *) faults;
    BASE_VEC(uint32_t) spare_faults;
    struct residency_counts counts;
};

struct residency_cache {
    struct residency_cache_options options;
    uint64_t seed[2];
    int64_t start_ns;
    pthread_mutex_t lock; /* of the array's end, and of what arenas say is under it */
    struct residency_arena *arenas[RESIDENCY_ARENAS_MAX];
    _Atomic uint32_t n_arenas; /* they stay until the cache goes: the first n may be read without the lock */
};

/* Moments are sixteenths of a second, and begin with this one: there were others before the cache was started. */
#define RESIDENCY_MOMENTS 16
#define RESIDENCY_FIRST_MOMENT (1u << 30)
uint32_t residency_moment(const struct residency_cache *cache);

/* ---- work.c: what is done without the lock ---- */

#define RESIDENCY_WORK_FREES 16
struct residency_work {
    struct residency_spill *spills;
    struct residency_fault *faults;
    struct {
        uint32_t record, leaving;
    } frees[RESIDENCY_WORK_FREES];
    uint32_t n_frees;
};
/* Without the lock. */
void residency_work_do(struct residency_arena *arena, struct residency_work *work);
/* The same by a thread that waits for a fault next: it reads that one's blob, or its first piece, itself, if it is
 * among the work. */
void residency_work_do_and_read(struct residency_arena *arena, struct residency_work *work,
                                struct residency_fault *mine);
/* Sleeps once for what is under the lock to change, or calls the test's hook instead. */
void residency_wait(struct residency_arena *arena, pthread_cond_t *changed);
/* Waits until some I/O has ended, if any is in flight. */
void residency_wait_for_landing(struct residency_arena *arena);
/* Records a version that was forgotten while its I/O is in flight: residency_landed will say that it has left. */
void residency_leaves(struct residency_arena *arena, const struct residency_key *key);
/* Frees record, which has or may have had key's blob, when the work is done. */
void residency_work_free(struct residency_arena *arena, struct residency_work *work, const struct residency_key *key,
                         uint32_t record);
/* Lets go of the lock and does the work. With a kept swap it returns once no older version of key is on disk: what was
 * removed or overwritten must not come back after that is answered. */
void residency_work_end(struct residency_arena *arena, struct residency_work *work, const struct residency_key *key);
/* The last that an I/O callback does, without the lock. forgotten: the key of the version that left, or NULL. */
void residency_landed(struct residency_arena *arena, const struct residency_key *forgotten);

/* ---- entry.c ---- */

static inline struct residency_entry *residency_entry_at(const struct residency_arena *arena, uint32_t index)
{
    return residency_table_node(&arena->entries, index);
}
/* NONE: no such key, or it is past its time and gone now. */
uint32_t residency_entry_find(struct residency_arena *arena, const struct residency_key *key,
                              struct residency_work *work);
bool residency_entry_expired(const struct residency_arena *arena, const struct residency_entry *entry);
/* Parts the entry from its blob. */
void residency_entry_forget(struct residency_arena *arena, uint32_t index, struct residency_work *work);
/* forget, and the key goes too. */
void residency_entry_remove(struct residency_arena *arena, uint32_t index, struct residency_work *work);
/* The entry is on disk only from now on. */
void residency_entry_to_disk(struct residency_arena *arena, uint32_t index);
void residency_entry_from_disk(struct residency_arena *arena, uint32_t index);
/* A reserved slot becomes key's blob, in the place of what was there. Returns the entry; NONE: no memory, and nothing
 * has changed. */
uint32_t residency_entry_publish(struct residency_arena *arena, const struct residency_key *key, uint32_t slot,
                                 bool owned, struct residency_work *work);

/* ---- slots.c ---- */

/* NONE: there is none, and none can be made free. May wait, for a spill. */
uint32_t residency_slot_take(struct residency_arena *arena, struct residency_work *work);
/* To whoever waits for one, else among the free ones. */
void residency_slot_give(struct residency_arena *arena, uint32_t slot, struct residency_work *work);
void residency_slot_pin(struct residency_arena *arena, uint32_t slot, struct residency_work *work);
/* A pin on one that a fault is being read into. */
void residency_slot_read(struct residency_arena *arena, uint32_t slot);
void residency_slot_unpin(struct residency_arena *arena, uint32_t slot, struct residency_work *work);
/* A resident blob that nobody has pinned, as the hottest or as the next to go. */
void residency_slot_rest(struct residency_arena *arena, uint32_t slot, bool hottest);
/* It can't be evicted any more. */
void residency_slot_rouse(struct residency_arena *arena, uint32_t slot);
/* It has a clean copy on disk from now on, or no longer. */
void residency_slot_clean(struct residency_arena *arena, uint32_t slot);
void residency_slot_dirty(struct residency_arena *arena, uint32_t slot);
void residency_want_enqueue(struct residency_arena *arena, struct residency_want *want);
void residency_want_withdraw(struct residency_arena *arena, struct residency_want *want);
/* The first in the queue, if any, gets none. */
void residency_want_fail_first(struct residency_arena *arena, struct residency_work *work);
/* Evicts what is coldest: at once where that is possible, else it starts a spill. False: there is nothing to evict, or
 * no memory. */
bool residency_evict(struct residency_arena *arena, struct residency_work *work);
/* To be called after whatever changes who waits, what can be evicted and what is in flight. */
void residency_settle(struct residency_arena *arena, struct residency_work *work);

static inline uint8_t *residency_slot_blob(const struct residency_arena *arena, uint32_t slot)
{
    return (uint8_t *)arena->memory.base + slot * arena->blob_bytes;
}

/* ---- spill.c ---- */

/* NULL: no memory. */
struct residency_spill *residency_spill_new(struct residency_arena *arena, uint32_t slot);
/* Without the lock. */
void residency_spill_start(struct residency_spill *spill);
/* Waits until every blob is on disk, or one could not be brought there, or (only_while_idle) a client has come; without
 * the lock. Returns whether all are. */
bool residency_spill_arena(struct residency_arena *arena, bool only_while_idle);

/* ---- fault.c ---- */

/* Of an entry that is on disk; wait: the caller will; partly: it may have readers. NULL: no memory. Without wait it may
 * be over at once, and is not to be touched. */
struct residency_fault *residency_fault_start(struct residency_arena *arena, uint32_t index, bool wait, bool partly,
                                              struct residency_work *work);
/* One more will wait. */
void residency_fault_join(struct residency_fault *fault, struct residency_work *work);
/* Waits for it, with a pin on *slot when it has landed. partly: or until something of the blob is there, and the pin is
 * a reader's then. Who is none touches the fault no more. */
enum residency_fault_result residency_fault_wait(struct residency_arena *arena, struct residency_fault *fault,
                                                 bool partly, struct residency_work *work, uint32_t *slot);
/* A reader waits for more than *here_bytes; it is none any more when the fault is over, and its pin one of the slot. */
enum residency_fault_result residency_fault_more(struct residency_arena *arena, struct residency_fault *fault,
                                                 uint64_t *here_bytes);
/* A reader goes, and its pin. */
void residency_fault_leave(struct residency_arena *arena, struct residency_fault *fault, struct residency_work *work);
/* It has got a slot, or (NONE) will not get one. */
void residency_fault_slot(struct residency_fault *fault, uint32_t slot, struct residency_work *work);
/* Its entry is forgotten. */
void residency_fault_forget(struct residency_fault *fault, struct residency_work *work);

#endif
