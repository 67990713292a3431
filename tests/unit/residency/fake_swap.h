/* The swap store of the tests: in memory, on no thread of its own, failing on demand. A transfer ends when the test
 * says so, in the order that the test's generator chooses. It aborts where its caller breaks what residency/swap.h
 * asks for. Thread-safe. */
#ifndef PENSTOCK_TEST_FAKE_SWAP_H
#define PENSTOCK_TEST_FAKE_SWAP_H

#include "residency/swap/swap.h"

struct fake_swap_control {
    uint64_t random;                        /* the order of completions follows from it; 0: first come, first done */
    uint64_t cap_records, cap_kind_records; /* 0: none; the latter for each kind */
    int write_errno, read_errno;            /* transfers that end from now on fail so; 0: well */
    bool disk_full;                         /* alloc says so */
    bool pieces;                            /* a read may tell of its first half before it ends */
};

/* What it grows by, for tests where the rest of the program finds no memory; realloc. */
extern void *(*fake_swap_realloc)(void *old, size_t n);

struct residency_swap *fake_swap_new(void);
void fake_swap_free(struct residency_swap *swap);
struct fake_swap_control *fake_swap_control(struct residency_swap *swap);

/* Ends one transfer, or lets it tell of its progress; false: none is in flight. */
bool fake_swap_land(struct residency_swap *swap);
size_t fake_swap_in_flight(struct residency_swap *swap);
uint64_t fake_swap_writes(struct residency_swap *swap);

/* From now on the written record of key, if there is one, does not match. Returns whether there is. */
bool fake_swap_damage(struct residency_swap *swap, struct residency_key key);

/* What another process would find if this one were killed now: the records with an entry in the index. */
struct residency_swap *fake_swap_after_kill(struct residency_swap *swap);
/* The records of key with an entry in the index. */
size_t fake_swap_kept_of(struct residency_swap *swap, struct residency_key key);

#endif
