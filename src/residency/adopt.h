/* Inside the cache: the records that an arena's file has kept from an earlier run. */
#ifndef PENSTOCK_RESIDENCY_ADOPT_H
#define PENSTOCK_RESIDENCY_ADOPT_H

#include "arena.h"

/* Opens the file of a new arena and fills its page table. No other thread knows the arena yet. */
PENSTOCK_CHECKED int residency_adopt(struct residency_arena *arena, struct penstock_error *error);

#endif
