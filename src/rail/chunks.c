#include "chunks.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"

struct chunk {
    struct base_list node; /* on chunks->free */
    struct rail_chunks *chunks;
    struct rail_transfer *whole; /* NULL: free */
    size_t slot;
    struct rail_range range;
    struct rail_transfer transfer;
};

/* Of a whole transfer, next_range and next_at are where its next chunk begins, left_bytes what no chunk was made of,
 * outstanding its chunks under way, and node is on waiting while left_bytes is not 0. */
struct rail_chunks {
    struct rail_engine *engine;
    size_t n_rails;
    uint64_t chunk_bytes;
    uint32_t depth;
    size_t turn; /* the rail that the next chunk goes to, if it has room */
    uint32_t under_way[PENSTOCK_RAILS_MAX];
    struct base_list waiting, free;
    size_t n_all; /* n_rails * depth: none is missing where a rail has room */
    struct chunk all[];
};

struct rail_chunks *rail_chunks_new(struct rail_engine *engine, size_t n_rails, uint64_t chunk_bytes, uint32_t depth)
{
    size_t n = n_rails * base_min_u64(depth, RAIL_DEPTH);
    struct rail_chunks *c = calloc(1, sizeof *c + n * sizeof c->all[0]);
    if (!c)
        return NULL;
    c->engine = engine;
    c->n_all = n;
    c->n_rails = n_rails;
    c->chunk_bytes = chunk_bytes;
    c->depth = (uint32_t)base_min_u64(depth, RAIL_DEPTH);
    base_list_init(&c->waiting);
    base_list_init(&c->free);
    for (size_t i = 0; i < n; i++)
        base_list_append(&c->free, &c->all[i].node);
    return c;
}

void rail_chunks_free(struct rail_chunks *chunks)
{
    free(chunks);
}

/* ---- one chunk ---- */

static void skip_empty(struct rail_transfer *whole)
{
    while (whole->next_range < whole->n_ranges && whole->ranges[whole->next_range].len_bytes == whole->next_at) {
        whole->next_range++;
        whole->next_at = 0;
    }
}

static void fail(struct rail_transfer *whole, int code, const struct penstock_error *error)
{
    if (whole->error.code == 0) {
        whole->error = *error;
        whole->error.code = code;
    }
    whole->left_bytes = 0;
    base_list_remove(&whole->node);
}

/* Where it has ended. */
static void settle(struct rail_transfer *whole)
{
    if (whole->outstanding == 0 && whole->left_bytes == 0)
        whole->done(whole, whole->error.code, &whole->error);
}

static void pump(struct rail_chunks *c, const struct rail_transfer *submitted);

static void chunk_done(struct rail_transfer *transfer, int code, const struct penstock_error *error)
{
    struct chunk *chunk = base_list_entry(transfer, struct chunk, transfer);
    struct rail_chunks *c = chunk->chunks;
    struct rail_transfer *whole = chunk->whole;
    c->under_way[chunk->slot]--;
    chunk->whole = NULL;
    base_list_append(&c->free, &chunk->node);
    whole->outstanding--;
    whole->landed_bytes += transfer->landed_bytes;
    if (code)
        fail(whole, code, error);
    settle(whole);
    pump(c, NULL); /* also where the engine is being freed: it has no rails by then, and all that waits ends */
}

static int send_chunk(struct rail_chunks *c, struct rail_transfer *whole, size_t slot, struct penstock_error *error)
{
    struct chunk *chunk = base_list_entry(c->free.next, struct chunk, node);
    const struct rail_range *range = &whole->ranges[whole->next_range];
    uint64_t len = base_min_u64(range->len_bytes - whole->next_at, c->chunk_bytes);
    chunk->chunks = c;
    chunk->whole = whole;
    chunk->slot = slot;
    chunk->range = (struct rail_range){ .remote_offset = range->remote_offset + whole->next_at,
                                        .local_offset = range->local_offset + whole->next_at,
                                        .len_bytes = len,
                                        .region = range->region };
    chunk->transfer = (struct rail_transfer){ .opcode = whole->opcode,
                                              .ranges = &chunk->range,
                                              .n_ranges = 1,
                                              .memory = whole->memory,
                                              .rail = (uint8_t)(slot + 1),
                                              .done = chunk_done };
    int code = rail_engine_submit(c->engine, &chunk->transfer, error);
    if (code) {
        chunk->whole = NULL;
        return code;
    }
    base_list_remove(&chunk->node);
    c->under_way[slot]++;
    whole->outstanding++;
    whole->next_at += len;
    whole->left_bytes -= len;
    skip_empty(whole);
    return 0;
}

/* ---- all of them ---- */

/* The next rail in turn that has room, of those that are up; where none is, of all: the engine knows what to do.
 * n_rails: none has room. */
static size_t next_slot(struct rail_chunks *c)
{
    for (int any = 0; any < 2; any++) {
        size_t up = 0;
        for (size_t i = 0; i < c->n_rails; i++) {
            size_t slot = (c->turn + i) % c->n_rails;
            if (!any && !rail_engine_takes_work(c->engine, slot))
                continue;
            up++;
            if (c->under_way[slot] < c->depth) {
                c->turn = (slot + 1) % c->n_rails;
                return slot;
            }
        }
        if (up > 0)
            break;
    }
    return c->n_rails;
}

/* submitted is its submitter's to end, if nothing of it is under way. */
static void pump(struct rail_chunks *c, const struct rail_transfer *submitted)
{
    while (!base_list_empty(&c->waiting)) {
        struct rail_transfer *whole = base_list_entry(c->waiting.next, struct rail_transfer, node);
        struct penstock_error error;
        size_t slot = next_slot(c);
        if (slot == c->n_rails)
            return;
        int code = send_chunk(c, whole, slot, &error);
        if (code)
            fail(whole, code, &error);
        else if (whole->left_bytes == 0)
            base_list_remove(&whole->node);
        if (code && whole != submitted)
            settle(whole);
    }
}

int rail_chunks_submit(struct rail_chunks *chunks, struct rail_transfer *transfer, struct penstock_error *error)
{
    transfer->next_range = 0;
    transfer->next_at = 0;
    transfer->left_bytes = 0;
    transfer->landed_bytes = 0;
    transfer->outstanding = 0;
    transfer->error = (struct penstock_error){ 0 };
    for (size_t i = 0; i < transfer->n_ranges; i++)
        transfer->left_bytes += transfer->ranges[i].len_bytes;
    skip_empty(transfer);
    base_list_append(&chunks->waiting, &transfer->node);
    pump(chunks, transfer);
    if (transfer->outstanding > 0 || transfer->left_bytes > 0)
        return 0;
    if (error)
        *error = transfer->error;
    return transfer->error.code;
}

void rail_chunks_cancel(struct rail_chunks *chunks, struct rail_transfer *transfer)
{
    static const struct penstock_error canceled = { .code = PENSTOCK_ECANCELED, .message = "canceled" };
    size_t n = transfer->outstanding;
    fail(transfer, PENSTOCK_ECANCELED, &canceled);
    if (n == 0) {
        settle(transfer);
        return;
    }
    /* The last one may end the transfer, and another one begin in its place. */
    for (size_t i = 0; i < chunks->n_all && n > 0; i++)
        if (chunks->all[i].whole == transfer) {
            n--;
            rail_engine_cancel(chunks->engine, &chunks->all[i].transfer);
        }
}
