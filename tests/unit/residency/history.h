/* What many threads did to keys, so that whoever reads one can tell whether it may still have what he found. A put's
 * number is what its blob says. All of it may be used by any thread; it has no pointers, and may be shared with a
 * process that is killed. */
#ifndef PENSTOCK_TEST_HISTORY_H
#define PENSTOCK_TEST_HISTORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HISTORY_KEYS 48
#define HISTORY_MAX (1u << 16)

struct history_op {
    _Atomic uint64_t begun, ended; /* moments; 0: not yet */
    _Atomic uint64_t put;          /* the key, UINT64_MAX: it puts nothing */
};

struct history {
    _Atomic uint64_t now, n;
    _Atomic uint64_t floor[HISTORY_KEYS]; /* no put that ended before this may be seen any more */
    struct history_op ops[HISTORY_MAX];
};

/* A put or removal of key is about to begin; 0: there is no room for more. */
uint64_t history_begin(struct history *h, uint64_t key, bool put);
/* It was refused: nobody may see it. */
void history_cancel(struct history *h, uint64_t op);
/* It was answered. */
void history_end(struct history *h, uint64_t op, uint64_t key);

/* To be asked before a read begins. */
static inline uint64_t history_floor(const struct history *h, uint64_t key)
{
    return h->floor[key];
}
/* Whether a read of key, before which the floor was that, may find a blob that says so. */
bool history_allows(const struct history *h, uint64_t key, uint64_t floor, uint64_t what);

#endif
