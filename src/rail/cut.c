/* Ranges to work requests: those that touch are joined, long ones cut. */
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

static void skip_empty(struct rail_transfer *transfer)
{
    while (transfer->next_range < transfer->n_ranges && transfer->ranges[transfer->next_range].len_bytes == 0)
        transfer->next_range++;
}

void rail_cut_begin(struct rail_transfer *transfer)
{
    transfer->next_range = 0;
    transfer->next_at = 0;
    skip_empty(transfer);
}

/* How much to take of left bytes, with room for so many in a piece. What is short enough for one work request is not
 * cut at all, and nothing is cut so that a stub remains: all pieces of a long range have RAIL_PIECE_MIN bytes or more.
 * 0: better to begin a new piece with it. */
static uint64_t share(uint64_t left, uint64_t room, uint64_t room_max)
{
    if (left <= room || left - room >= RAIL_PIECE_MIN)
        return base_min_u64(left, room);
    if (left <= room_max)
        return left;
    return left > RAIL_PIECE_MIN ? left - RAIL_PIECE_MIN : 0;
}

/* Adds len bytes at local_offset to the work's local memory: false where that takes one piece too many. */
static bool add_piece(struct rail_work *work, uint64_t local_offset, uint64_t len, uint32_t sges_max)
{
    struct rail_piece *last = work->n_pieces > 0 ? &work->pieces[work->n_pieces - 1] : NULL;
    if (last && last->local_offset + last->len_bytes == local_offset) {
        last->len_bytes += (uint32_t)len;
    } else {
        if (work->n_pieces == sges_max)
            return false;
        work->pieces[work->n_pieces++] =
            (struct rail_piece){ .local_offset = local_offset, .len_bytes = (uint32_t)len };
    }
    work->len_bytes += (uint32_t)len;
    return true;
}

struct rail_work *rail_cut(struct rail_engine *engine, struct rail_transfer *transfer, uint64_t piece_bytes)
{
    uint32_t cell = RAIL_BOUNCE_NONE;
    uint64_t max_bytes = RAIL_PIECE_MAX;
    if (transfer->bounced) {
        cell = rail_bounce_take(&engine->bounce);
        if (cell == RAIL_BOUNCE_NONE)
            return NULL;
        piece_bytes = max_bytes = engine->bounce.cell_bytes;
    }
    struct rail_work *work = work_new(engine);
    if (!work) {
        if (cell != RAIL_BOUNCE_NONE)
            rail_bounce_give(&engine->bounce, cell);
        return NULL;
    }

    const struct rail_range *range = &transfer->ranges[transfer->next_range];
    work->transfer = transfer;
    work->region = range->region;
    work->remote_offset = range->remote_offset + transfer->next_at;
    work->len_bytes = 0;
    work->n_pieces = 0;
    work->bounce = cell;
    work->refused = false;
    do {
        range = &transfer->ranges[transfer->next_range];
        if (range->region != work->region ||
            range->remote_offset + transfer->next_at != work->remote_offset + work->len_bytes)
            break;
        uint64_t left = range->len_bytes - transfer->next_at, room = piece_bytes - work->len_bytes;
        uint64_t take = transfer->bounced ? base_min_u64(left, room) : share(left, room, max_bytes - work->len_bytes);
        if (take == 0 || !add_piece(work, range->local_offset + transfer->next_at, take, engine->sges_max))
            break;
        transfer->next_at += take;
        if (take == left) {
            transfer->next_range++;
            transfer->next_at = 0;
            skip_empty(transfer);
        }
    } while (transfer->next_range < transfer->n_ranges && work->len_bytes < piece_bytes);

    transfer->left_bytes -= work->len_bytes;
    transfer->outstanding++;
    engine->left_bytes -= work->len_bytes;
    if (transfer->left_bytes == 0) {
        base_list_remove(&transfer->node);
        base_list_append(&engine->flying, &transfer->node);
    }
    return work;
}
