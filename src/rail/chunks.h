/* Long transfers as the fleet moves snapshots (protocol 1.6): cut in chunks, dealt to the rails in turn, at most depth
 * of them under way on each.
 *
 * It stands between whoever has a transfer and the rail engine, and behaves as that does: a transfer is submitted, done
 * and cancelled in the same way, and the fields that are the engine's are used here. */
#ifndef PENSTOCK_RAIL_CHUNKS_H
#define PENSTOCK_RAIL_CHUNKS_H

#include "rail/engine.h"

struct rail_chunks;

/* NULL without memory. For an engine that outlives its transfers; depth is RAIL_DEPTH at most. */
struct rail_chunks *rail_chunks_new(struct rail_engine *engine, size_t n_rails, uint64_t chunk_bytes, uint32_t depth);
/* The engine has none of its transfers any more. NULL is fine. */
void rail_chunks_free(struct rail_chunks *chunks);

/* As rail_engine_submit, of a byte or more; transfer->rail is not looked at. */
PENSTOCK_CHECKED int rail_chunks_submit(struct rail_chunks *chunks, struct rail_transfer *transfer,
                                        struct penstock_error *error);
/* As rail_engine_cancel. */
void rail_chunks_cancel(struct rail_chunks *chunks, struct rail_transfer *transfer);

#endif
