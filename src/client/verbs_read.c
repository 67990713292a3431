/* Reads over rails: memory is registered once, shards go to the rail engine, everything else to the session beside. An
 * operation has up to two parts, and ends with the last of them. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/tier.h"
#include "client/verbs.h"
#include "client/weights/catalogue.h"

/* When all rails fail the peer may be gone, and its rails may have said so first: how long its stream is given. */
#define JUDGE_NS (250 * BASE_MS_NS)

/* ---- parts ---- */

static void cancel_parts(struct penstock_session *s, struct client_op *op)
{
    struct client_verbs *v = s->verbs;
    if (op->beside)
        (void)!penstock_cancel(v->beside, op->beside); /* its completion is collected as any other */
    if (op->on_rails)
        rail_engine_cancel(v->engine, &op->transfer);
}

/* One part has ended; code 0: well. error may be NULL. */
static void part_ended(struct penstock_session *s, struct client_op *op, int code, const struct penstock_error *error)
{
    if (code && !op->failed) {
        op->failed = code;
        if (error && (op->error = malloc(sizeof *op->error))) {
            *op->error = *error;
            client_engine_name(s, op->error);
        }
        cancel_parts(s, op);
    }
    if (--op->parts > 0)
        return;
    if (!op->failed && s->tier->landed) {
        struct penstock_error words;
        op->failed = s->tier->landed(s, op, &words);
        if (op->failed && (op->error = malloc(sizeof *op->error))) {
            *op->error = words;
            client_engine_name(s, op->error);
        }
    }
    if (!(op->doubtful && s->verbs->judge_ns != 0))
        client_op_end(s, op, op->failed, op->error);
}

/* ---- on rails ---- */

static void rails_done(struct rail_transfer *transfer, int code, const struct penstock_error *error)
{
    struct client_op *op = base_list_entry(transfer, struct client_op, transfer);
    struct penstock_session *s = transfer->user;
    struct client_verbs *v = s->verbs;
    if (v->stopping)
        return;
    op->on_rails = false;
    base_list_remove(&op->queue);
    op->landed_bytes += transfer->landed_bytes;
    if (penstock_error_class(code) == PENSTOCK_LOST_CONNECTION) {
        op->doubtful = true;
        if (v->judge_ns == 0)
            v->judge_ns = base_deadline_ns(JUDGE_NS);
    }
    part_ended(s, op, code, error);
}

void client_verbs_judge(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    if (v->judge_ns == 0 || base_now_ns() < v->judge_ns)
        return;
    v->judge_ns = 0;
    base_list_for_each (node, &s->ops) {
        struct client_op *op = base_list_entry(node, struct client_op, node);
        bool due = op->doubtful && op->parts == 0;
        op->doubtful = false;
        if (due)
            client_op_end(s, op, op->failed, op->error);
    }
}

static void free_memory(struct rail_memory *memory)
{
    for (size_t i = 0; i < PENSTOCK_RAILS_MAX; i++) {
        bool shared = false;
        for (size_t j = 0; j < i; j++)
            shared = shared || memory->mrs[j] == memory->mrs[i];
        if (!shared)
            verbs_mr_free(memory->mrs[i]);
    }
    free(memory);
}

static int register_on(const struct client_verbs *v, size_t slot, const struct client_region *region,
                       struct rail_memory *memory, struct penstock_error *error)
{
    for (size_t i = 0; i < slot; i++)
        if (v->pds[i] == v->pds[slot] && memory->mrs[i]) {
            memory->mrs[slot] = memory->mrs[i];
            return 0;
        }
    if (region->device)
        return verbs_mr_dmabuf_new(v->pds[slot], region->dmabuf_fd, region->offset_bytes, region->len_bytes,
                                   VERBS_LOCAL_WRITE, &memory->mrs[slot], error);
    return verbs_mr_new(v->pds[slot], region->address, region->len_bytes, VERBS_LOCAL_WRITE, &memory->mrs[slot], error);
}

/* With every device whose rails are used, once. HOST memory that one of them refuses is registered with none: all of it
 * is copied then. DEVICE memory is read into over those that take it. */
int client_verbs_know(struct penstock_session *s, struct client_region *region, struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    if (region->memory)
        return 0;
    struct rail_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory to register a region");
    memory->len_bytes = region->len_bytes;
    memory->address = region->address;
    bool registered = false;
    int code = 0;
    for (size_t i = 0; i < v->devices.n; i++) {
        struct penstock_error why;
        int failed = v->slots[i].paired ? register_on(v, i, region, memory, &why) : 0;
        registered = registered || memory->mrs[i];
        if (failed && code == 0) {
            code = failed;
            *error = why;
        }
    }
    if (code && region->device && !registered) {
        free_memory(memory);
        base_error_in(error, "DEVICE memory can't be registered");
        return code;
    }
    if (code && !region->device) {
        free_memory(memory);
        memory = calloc(1, sizeof *memory);
        if (!memory)
            return base_error_set(error, PENSTOCK_ENOMEM, "no memory to register a region");
        memory->len_bytes = region->len_bytes;
        memory->address = region->address;
        v->bounce = *error;
    }
    region->memory = memory;
    return 0;
}

void client_region_forget(struct penstock_session *s, struct client_region *region)
{
    if (region->memory)
        free_memory(region->memory);
    region->memory = NULL;
    if (region->known_beside && s->verbs && s->verbs->beside)
        (void)!penstock_unregister(s->verbs->beside, region->beside, NULL);
    region->known_beside = false;
}

void client_verbs_transfer(struct penstock_session *s, struct client_op *op, struct client_region *region)
{
    struct client_verbs *v = s->verbs;
    struct penstock_error error;
    int code = client_verbs_know(s, region, &error);
    op->transfer.opcode = VERBS_READ;
    op->transfer.memory = region->memory;
    op->transfer.done = rails_done;
    op->transfer.user = s;
    code = code ? code : rail_engine_submit(v->engine, &op->transfer, &error);
    if (code == 0) {
        op->on_rails = v->submitted = true;
        base_list_append(&s->on_rails, &op->queue);
        return;
    }
    part_ended(s, op, code, &error);
}

static void begin_on_rails(struct penstock_session *s, struct client_op *op)
{
    struct client_verbs *v = s->verbs;
    v->wanted = true;
    op->waiting = rail_engine_alive(v->engine) == 0;
    if (op->waiting)
        return;
    op->transfer = (struct rail_transfer){ .ranges = op->split.rails, .n_ranges = op->split.n_rails };
    client_verbs_transfer(s, op, &s->regions.at[op->region]);
}

/* ---- beside ---- */

static int open_beside(struct penstock_session *s, struct penstock_error *error)
{
    struct client_verbs *v = s->verbs;
    if (v->beside)
        return 0;
    if (!penstock_catalogue_version(s->catalogue))
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "it gives no model_version, and so no TCP beside its rails");
    return client_session_beside(s, CLIENT_FOR_JOIN, false, &v->beside, error);
}

static int submit_files(struct penstock_session *s, struct client_op *op, struct penstock_error *error)
{
    struct client_region *region = &s->regions.at[op->region];
    struct penstock_session *b = s->verbs->beside;
    const struct penstock_memory memory = {
        .size = sizeof memory, .address = region->address, .len_bytes = region->len_bytes, .where = PENSTOCK_HOST
    };
    int code = region->known_beside ? 0 : penstock_register(b, &memory, &region->beside, error);
    if (code)
        return code;
    region->known_beside = true;
    const struct penstock_read read = { .size = sizeof read,
                                        .ranges = op->split.files,
                                        .count = op->split.n_files,
                                        .region = region->beside,
                                        .timeout_ns = op->timeout_ns,
                                        .user = op };
    return penstock_submit(b, &read, &op->beside, error);
}

static int submit_digests(struct penstock_session *s, struct client_op *op, struct penstock_error *error)
{
    const struct penstock_digests digests = { .size = sizeof digests,
                                              .out = op->own_pieces[0].iov_base,
                                              .first_chunk = op->own_request.offset_bytes,
                                              .max = op->digests_max,
                                              .file = op->own_request.file,
                                              .timeout_ns = op->timeout_ns,
                                              .user = op };
    if (!penstock_catalogue_version(s->catalogue))
        return base_error_set(error, PENSTOCK_EREFUSED, "keeps no digests");
    int code = open_beside(s, error);
    return code ? code : penstock_submit_digests(s->verbs->beside, &digests, &op->beside, error);
}

static void begin_beside(struct penstock_session *s, struct client_op *op)
{
    struct penstock_error error;
    int code;
    if (op->kind == CLIENT_OP_DIGESTS) {
        code = submit_digests(s, op, &error);
    } else {
        code = open_beside(s, &error);
        code = code ? code : submit_files(s, op, &error);
    }
    if (code)
        part_ended(s, op, code, &error);
}

void client_verbs_collect(struct penstock_session *s)
{
    struct client_verbs *v = s->verbs;
    struct penstock_session *b = v->beside;
    /* The rails are up, so that this says no more than it: a peer that drains them listens no more. */
    if (b->step == CLIENT_DEAD && b->error.code == PENSTOCK_EUNREACHABLE)
        base_error_set(&b->error, PENSTOCK_EUNREACHABLE,
                       "weight peer %.100s: takes no further connection, by which files and digests come: it is being "
                       "stopped, or has gone",
                       s->peer);
    base_list_for_each (node, &b->done) {
        struct client_op *theirs = base_list_entry(node, struct client_op, node), *op = theirs->user;
        const struct penstock_error *words = theirs->error;
        if (!words && theirs->code != PENSTOCK_ECANCELED)
            words = &b->error;
        if (op) {
            op->beside = 0;
            op->landed_bytes += theirs->landed_bytes;
            part_ended(s, op, theirs->code, words);
        }
        client_op_tell(b, theirs, NULL);
    }
    client_ops_forget_told(b);
    if (b->step != CLIENT_DEAD)
        return;
    penstock_session_free(b);
    v->beside = NULL;
    for (size_t i = 0; i < s->regions.n; i++)
        s->regions.at[i].known_beside = false;
}

/* ---- both ---- */

static void begin_parts(struct penstock_session *s, struct client_op *op)
{
    bool beside = op->kind == CLIENT_OP_DIGESTS || op->split.n_files > 0, rails = op->split.n_rails > 0;
    op->waiting = false;
    op->parts = 1U + beside + rails; /* the first is held until all have begun */
    if (rails)
        begin_on_rails(s, op);
    if (beside)
        begin_beside(s, op);
    part_ended(s, op, 0, NULL);
}

void client_verbs_start(struct penstock_session *s, struct client_op *op)
{
    if (s->step == CLIENT_RAILS)
        begin_parts(s, op);
    else
        op->waiting = true; /* for rails, or TCP after all */
}

void client_verbs_cancel(struct penstock_session *s, struct client_op *op)
{
    if (s->tier->cancel) {
        s->tier->cancel(s, op);
        return;
    }
    if (op->parts == 0) { /* not begun, or to be judged */
        client_op_end(s, op, op->failed ? op->failed : PENSTOCK_ECANCELED, op->error);
        return;
    }
    op->failed = op->failed ? op->failed : PENSTOCK_ECANCELED;
    op->parts++; /* held until all are canceled */
    if (op->waiting) {
        op->waiting = false;
        op->parts--;
    }
    cancel_parts(s, op);
    part_ended(s, op, 0, NULL);
}

void client_verbs_resume(struct penstock_session *s)
{
    if (s->tier->pump) {
        s->tier->pump(s);
        return;
    }
    base_list_for_each (node, &s->ops) {
        struct client_op *op = base_list_entry(node, struct client_op, node);
        if (!op->waiting)
            continue;
        if (op->parts == 0)
            begin_parts(s, op);
        else
            begin_on_rails(s, op);
    }
}

void client_verbs_give_up(struct penstock_session *s, const struct penstock_error *error)
{
    base_list_for_each (node, &s->ops) {
        struct client_op *op = base_list_entry(node, struct client_op, node);
        if (op->waiting) {
            op->waiting = false;
            part_ended(s, op, error->code, error);
        }
    }
}

/* ---- over TCP after all ---- */

static int plan_anew(const struct penstock_session *s, struct client_op *op, struct penstock_error *error)
{
    const struct client_region *region = &s->regions.at[op->region];
    struct client_split *split = &op->split;
    if (region->device)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "DEVICE memory, and the session runs over TCP: %.300s",
                              s->why_tcp ? s->why_tcp : "");
    struct penstock_range *ranges = calloc(split->n_rails + split->n_files + 1, sizeof *ranges);
    if (!ranges)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a read's ranges");
    for (size_t i = 0; i < split->n_rails; i++)
        ranges[i] = (struct penstock_range){ .offset_bytes = split->rails[i].remote_offset,
                                             .len_bytes = split->rails[i].len_bytes,
                                             .dst_bytes = split->rails[i].local_offset,
                                             .file = split->rails[i].region };
    if (split->n_files > 0)
        memcpy(ranges + split->n_rails, split->files, split->n_files * sizeof *ranges);
    int code = client_plan_make(s->catalogue, ranges, split->n_rails + split->n_files, region->address,
                                region->len_bytes, &op->plan, error);
    free(ranges);
    client_split_fini(split);
    return code;
}

void client_verbs_to_tcp(struct penstock_session *s)
{
    base_list_for_each (node, &s->ops) {
        struct client_op *op = base_list_entry(node, struct client_op, node);
        struct penstock_error error;
        if (!op->waiting)
            continue;
        op->waiting = false;
        int code = op->kind == CLIENT_OP_READ ? plan_anew(s, op, &error) : 0;
        if (code)
            client_op_end(s, op, code, &error);
        else
            client_op_queue(s, op);
    }
    if (s->tier->over_tcp)
        s->tier->over_tcp(s);
}
