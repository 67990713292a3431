/* Ranges to work requests: those that touch are joined, long ones cut. */
#include <string.h>

#include "base/checked.h"
#include "engine_state.h"

static struct rail_work *work_new(struct rail_engine *engine)
{
    struct rail_work *work = engine->free;
    if (work)
        engine->free = work->next;
    else if (engine->n_fresh < engine->n_works)
        work = &engine->works[engine->n_fresh++];
    return work;
}

void rail_work_free(struct rail_engine *engine, struct rail_work *work)
{
    if (work->bounce != RAIL_BOUNCE_NONE)
        rail_bounce_give(&engine->bounce, work->bounce);
    work->next = engine->free;
    engine->free = work;
}

static const struct rail_range *past_empty(const struct rail_range *range, const struct rail_range *end)
{
    while (range < end && range->len_bytes == 0)
        range++;
    return range;
}

void rail_cut_begin(struct rail_transfer *transfer)
{
    const struct rail_range *ranges = transfer->ranges;
    transfer->next_range = (size_t)(past_empty(ranges, ranges + transfer->n_ranges) - ranges);
    transfer->next_at = 0;
}

/* How much to take of left bytes where there is room for fewer. Nothing is cut so that a stub remains: all pieces of a
 * long range have RAIL_PIECE_MIN bytes or more, and what is shorter than that is not cut at all. 0: better to begin a
 * new piece with it. */
static uint64_t share(uint64_t left, uint64_t room, uint64_t room_max)
{
    if (left - room >= RAIL_PIECE_MIN)
        return room;
    if (left <= room_max)
        return left;
    return left > RAIL_PIECE_MIN ? left - RAIL_PIECE_MIN : 0;
}

/* Past whole ranges that touch on both sides, as long as they fit: in a file's order nearly all. remote and local are
 * where a range would have to begin for no byte; *len grows by theirs. */
static inline const struct rail_range *past_run(const struct rail_range *range, const struct rail_range *end,
                                                const struct rail_work *work, uint64_t local, uint64_t piece_bytes,
                                                uint64_t *len)
{
    uint64_t n = *len, remote = work->remote_offset;
    for (; range < end && range->remote_offset - remote == n && range->local_offset - local == n &&
           n + range->len_bytes <= piece_bytes && range->region == work->region;
         range++)
        n += range->len_bytes;
    *len = n;
    return range;
}

/* Takes ranges, from the transfer's next one on, for as long as they touch at the peer and there is room. */
static void fill(struct rail_transfer *transfer, struct rail_work *work, uint64_t piece_bytes, uint64_t max_bytes,
                 uint32_t sges_max)
{
    const struct rail_range *end = transfer->ranges + transfer->n_ranges;
    const struct rail_range *range = transfer->ranges + transfer->next_range;
    struct rail_piece *piece = NULL;
    uint64_t at = transfer->next_at, len = 0;
    uint64_t local = 0; /* where the work would begin if all of it were as the current piece */

    work->region = range->region;
    work->remote_offset = range->remote_offset + at;
    work->n_pieces = 0;
    do {
        uint64_t take = range->len_bytes - at;
        if (take > piece_bytes - len)
            take = max_bytes >= RAIL_PIECE_MIN ? share(take, piece_bytes - len, max_bytes - len) : piece_bytes - len;
        bool goes_on = piece && range->local_offset + at - len == local;
        if (take == 0 || (!goes_on && work->n_pieces == sges_max))
            break;
        if (!goes_on) {
            piece = &work->pieces[work->n_pieces++];
            piece->local_offset = range->local_offset + at;
            local = piece->local_offset - len;
        }
        len += take;
        at += take;
        if (at == range->len_bytes) {
            at = 0;
            range = past_empty(past_run(range + 1, end, work, local, piece_bytes, &len), end);
        }
        piece->len_bytes = (uint32_t)(local + len - piece->local_offset);
    } while (at == 0 && range < end && len < piece_bytes && range->remote_offset == work->remote_offset + len &&
             range->region == work->region);

    transfer->next_range = (size_t)(range - transfer->ranges);
    transfer->next_at = at;
    work->len_bytes = (uint32_t)len;
}

/* What a WRITE sends from its cell. */
static void fill_cell(const struct rail_engine *engine, const struct rail_work *work)
{
    uint8_t *to = engine->bounce.bytes + rail_bounce_offset(&engine->bounce, work->bounce);
    for (uint32_t i = 0; i < work->n_pieces; i++) {
        memcpy(to, work->transfer->memory->address + work->pieces[i].local_offset, work->pieces[i].len_bytes);
        to += work->pieces[i].len_bytes;
    }
}

struct rail_work *rail_cut(struct rail_engine *engine, struct rail_transfer *transfer, uint64_t piece_bytes)
{
    uint32_t cell = RAIL_BOUNCE_NONE;
    uint64_t max_bytes = transfer->rail ? RAIL_BOUND_MAX : RAIL_PIECE_MAX;
    if (max_bytes > engine->message_max_bytes)
        max_bytes = engine->message_max_bytes;
    if (transfer->bounced) {
        cell = rail_bounce_take(&engine->bounce);
        if (cell == RAIL_BOUNCE_NONE)
            return NULL;
        piece_bytes = engine->bounce.cell_bytes;
        if (max_bytes > piece_bytes)
            max_bytes = piece_bytes;
    }
    if (piece_bytes > max_bytes)
        piece_bytes = max_bytes;
    struct rail_work *work = work_new(engine);
    if (!work) {
        if (cell != RAIL_BOUNCE_NONE)
            rail_bounce_give(&engine->bounce, cell);
        return NULL;
    }

    work->transfer = transfer;
    work->bounce = cell;
    work->refused = false;
    fill(transfer, work, piece_bytes, max_bytes, engine->sges_max);
    if (transfer->bounced && transfer->opcode == VERBS_WRITE)
        fill_cell(engine, work);
    transfer->left_bytes -= work->len_bytes;
    transfer->outstanding++;
    engine->left_bytes -= work->len_bytes;
    if (transfer->left_bytes == 0) {
        base_list_remove(&transfer->node);
        base_list_append(&engine->flying, &transfer->node);
    }
    return work;
}
