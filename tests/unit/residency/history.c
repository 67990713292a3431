#include "history.h"

uint64_t history_begin(struct history *h, uint64_t key, bool put)
{
    uint64_t op = ++h->n;
    if (op >= HISTORY_MAX)
        return 0;
    h->ops[op].put = put ? key : UINT64_MAX;
    h->ops[op].begun = ++h->now;
    return op;
}

void history_cancel(struct history *h, uint64_t op)
{
    h->ops[op].put = UINT64_MAX;
}

void history_end(struct history *h, uint64_t op, uint64_t key)
{
    uint64_t floor = h->floor[key], begun = h->ops[op].begun;
    h->ops[op].ended = ++h->now;
    while (floor < begun && !atomic_compare_exchange_weak(&h->floor[key], &floor, begun))
        ;
}

bool history_allows(const struct history *h, uint64_t key, uint64_t floor, uint64_t what)
{
    if (what == 0 || what >= HISTORY_MAX || h->ops[what].begun == 0 || h->ops[what].put != key)
        return false;
    uint64_t ended = h->ops[what].ended;
    return ended == 0 || ended > floor;
}
