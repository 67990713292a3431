#include "pull_queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "text.h"

#define ASK_AGAIN_NS (200 * BASE_MS_NS) /* after an answer that did not have all */

struct pull_chunk {
    uint8_t digest[PENSTOCK_DIGEST_BYTES]; /* of our bytes, where hashed */
    uint8_t state;                         /* enum pull_state */
    uint8_t tries;
    bool hashed;
    bool earlier; /* landed by an earlier pull */
};

/* What is known of one file. */
struct pull_tally {
    uint8_t (*digests)[PENSTOCK_DIGEST_BYTES]; /* the peer's; the first `known` */
    uint64_t known;
    int64_t ask_after_ns;
    bool asking;
    bool kept;
};

static void set_state(struct pull_queue *queue, size_t chunk, enum pull_state state)
{
    struct pull_chunk *c = &queue->chunks[chunk];
    uint64_t len = pull_plan_place(queue->plan, chunk).len_bytes;
    queue->count[c->state]--;
    queue->bytes[c->state] -= len;
    queue->count[state]++;
    queue->bytes[state] += len;
    c->state = (uint8_t)state;
    if ((state == PULL_MISSING || state == PULL_CHECK) && chunk < queue->next)
        queue->next = chunk;
}

int pull_queue_init(struct pull_queue *queue, const struct pull_plan *plan, bool verify, bool versioned,
                    struct penstock_error *error)
{
    *queue = (struct pull_queue){ .plan = plan, .verify = verify, .versioned = versioned };
    queue->chunks = calloc(plan->chunks + 1, sizeof *queue->chunks);
    queue->tallies = calloc(plan->files.n + 1, sizeof *queue->tallies);
    bool room = queue->chunks && queue->tallies;
    for (size_t i = 0; i < plan->files.n && room && verify; i++) {
        queue->tallies[i].digests = calloc(plan->files.at[i].chunks + 1, PENSTOCK_DIGEST_BYTES);
        room = queue->tallies[i].digests != NULL;
    }
    if (!room) {
        pull_queue_fini(queue);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory to keep track of %zu chunks", plan->chunks);
    }
    queue->count[PULL_MISSING] = plan->chunks;
    queue->bytes[PULL_MISSING] = plan->bytes;
    return 0;
}

void pull_queue_fini(struct pull_queue *queue)
{
    for (size_t i = 0; queue->tallies && i < queue->plan->files.n; i++)
        free(queue->tallies[i].digests);
    free(queue->tallies);
    free(queue->chunks);
    *queue = (struct pull_queue){ 0 };
}

static void remember(struct pull_chunk *c, const uint8_t *digest)
{
    c->hashed = digest != NULL;
    if (digest)
        memcpy(c->digest, digest, sizeof c->digest);
}

void pull_queue_resume(struct pull_queue *queue, size_t chunk, const uint8_t *digest, bool trusted)
{
    struct pull_chunk *c = &queue->chunks[chunk];
    if (c->state != PULL_MISSING)
        return;
    /* Neither sure of its bytes nor able to check them. */
    if (!trusted && !digest && !queue->verify)
        return;
    remember(c, digest);
    c->earlier = true;
    bool hash = !trusted || (queue->verify && !digest);
    set_state(queue, chunk, hash ? PULL_CHECK : PULL_LANDED);
}

static void settle(struct pull_queue *queue, size_t file, enum pull_state state)
{
    const struct pull_file *f = &queue->plan->files.at[file];
    queue->tallies[file].kept = true;
    for (size_t i = 0; i < f->chunks; i++)
        set_state(queue, f->first_chunk + i, state);
}

void pull_queue_keep(struct pull_queue *queue, size_t file)
{
    settle(queue, file, PULL_CHECK);
}

void pull_queue_done(struct pull_queue *queue, size_t file)
{
    settle(queue, file, PULL_GOOD);
}

bool pull_queue_kept(const struct pull_queue *queue, size_t file)
{
    return queue->tallies[file].kept;
}

static bool finished(const struct pull_queue *queue)
{
    bool all_here = queue->count[PULL_MISSING] + queue->count[PULL_CHECK] + queue->count[PULL_TAKEN] == 0;
    return all_here && (queue->count[PULL_LANDED] == 0 || !queue->verify || queue->no_digests);
}

struct pull_job pull_queue_take(struct pull_queue *queue)
{
    for (; queue->next < queue->plan->chunks; queue->next++) {
        size_t chunk = queue->next;
        enum pull_state state = queue->chunks[chunk].state;
        if (state != PULL_MISSING && state != PULL_CHECK)
            continue;
        size_t file = pull_plan_place(queue->plan, chunk).file;
        set_state(queue, chunk, PULL_TAKEN);
        return (struct pull_job){
            .work = state == PULL_MISSING ? PULL_FETCH : PULL_HASH,
            .chunk = chunk,
            .kept = queue->tallies[file].kept,
        };
    }
    return (struct pull_job){ .work = finished(queue) ? PULL_OVER : PULL_WAIT };
}

void pull_queue_give_back(struct pull_queue *queue, const struct pull_job *job)
{
    bool still = queue->tallies[pull_plan_place(queue->plan, job->chunk).file].kept == job->kept;
    set_state(queue, job->chunk, job->work == PULL_HASH && still ? PULL_CHECK : PULL_MISSING);
}

/* One chunk of a kept file is not right, or can't be judged: the file is fetched as a whole. What a worker has in hand
 * goes back when it lands. */
static void forsake(struct pull_queue *queue, size_t file)
{
    const struct pull_file *f = &queue->plan->files.at[file];
    queue->tallies[file].kept = false;
    for (size_t i = 0; i < f->chunks; i++)
        if (queue->chunks[f->first_chunk + i].state != PULL_TAKEN)
            set_state(queue, f->first_chunk + i, PULL_MISSING);
}

/* Compares a landed chunk with the peer's digest, where that is known. *lost: it does not match. */
static int judge(struct pull_queue *queue, size_t chunk, bool *lost, struct penstock_error *error)
{
    struct pull_chunk_place place = pull_plan_place(queue->plan, chunk);
    const struct pull_file *file = &queue->plan->files.at[place.file];
    struct pull_tally *tally = &queue->tallies[place.file];
    struct pull_chunk *c = &queue->chunks[chunk];
    *lost = false;
    if (!queue->verify || chunk - file->first_chunk >= tally->known || !c->hashed)
        return 0;
    if (memcmp(c->digest, tally->digests[chunk - file->first_chunk], sizeof c->digest) == 0) {
        set_state(queue, chunk, PULL_GOOD);
        return 0;
    }
    if (tally->kept) {
        forsake(queue, place.file);
        return 0;
    }
    *lost = true;
    set_state(queue, chunk, PULL_MISSING);
    if (!c->earlier)
        queue->damaged++;
    c->earlier = c->hashed = false;
    if (++c->tries < PULL_TRIES)
        return 0;
    char name[128];
    cli_escape(name, sizeof name, file->name);
    return base_error_set(
        error, PENSTOCK_ECORRUPT,
        "%s: chunk %zu (%llu bytes at %llu) came %d times and never matched the peer's digest; is the "
        "file damaged there, or being written to?",
        name, chunk - file->first_chunk, (unsigned long long)place.len_bytes, (unsigned long long)place.offset_bytes,
        PULL_TRIES);
}

int pull_queue_land(struct pull_queue *queue, const struct pull_job *job, const uint8_t *digest, bool *lost,
                    struct penstock_error *error)
{
    struct pull_chunk *c = &queue->chunks[job->chunk];
    size_t file = pull_plan_place(queue->plan, job->chunk).file;
    *lost = false;
    if (queue->tallies[file].kept != job->kept) { /* the file was forsaken meanwhile */
        set_state(queue, job->chunk, PULL_MISSING);
        return 0;
    }
    /* What an earlier pull landed is no longer what was written, or nobody can say which model's it is. */
    bool rotten = c->earlier && c->hashed && digest && memcmp(c->digest, digest, sizeof c->digest) != 0;
    bool doubtful = queue->no_digests && (c->earlier ? !queue->versioned : job->kept);
    if (job->work == PULL_HASH && (rotten || doubtful)) {
        if (job->kept)
            forsake(queue, file);
        c->earlier = c->hashed = false;
        set_state(queue, job->chunk, PULL_MISSING);
        *lost = !job->kept;
        return 0;
    }
    remember(c, digest);
    set_state(queue, job->chunk, PULL_LANDED);
    return judge(queue, job->chunk, lost, error);
}

bool pull_queue_question(struct pull_queue *queue, int64_t now_ns, struct pull_question *question)
{
    if (!queue->verify || queue->no_digests)
        return false;
    const struct pull_plan *plan = queue->plan;
    for (; queue->unanswered < plan->files.n; queue->unanswered++)
        if (queue->tallies[queue->unanswered].known < plan->files.at[queue->unanswered].chunks)
            break;
    /* Files that nobody has begun with can wait. */
    for (size_t i = queue->unanswered; i < plan->files.n && plan->files.at[i].first_chunk <= queue->next; i++) {
        struct pull_tally *tally = &queue->tallies[i];
        if (tally->known == plan->files.at[i].chunks || tally->asking || now_ns < tally->ask_after_ns)
            continue;
        tally->asking = true;
        *question = (struct pull_question){
            .file = i,
            .first = tally->known,
            .max = plan->files.at[i].chunks - tally->known,
        };
        return true;
    }
    return false;
}

/* The peer keeps no digests: what only they could have vouched for is fetched. */
static void give_up_digests(struct pull_queue *queue, void (*lost)(void *context, size_t chunk), void *context)
{
    queue->no_digests = true;
    for (size_t i = 0; i < queue->plan->files.n; i++)
        if (queue->tallies[i].kept && queue->plan->files.at[i].chunks > 0)
            forsake(queue, i);
    for (size_t i = 0; i < queue->plan->chunks && !queue->versioned; i++) {
        struct pull_chunk *c = &queue->chunks[i];
        if (c->earlier && c->state == PULL_LANDED) {
            c->earlier = c->hashed = false;
            set_state(queue, i, PULL_MISSING);
            lost(context, i);
        }
    }
}

int pull_queue_answer(struct pull_queue *queue, const struct pull_question *question, int code, const uint8_t *digests,
                      uint64_t n, int64_t now_ns, void (*lost)(void *context, size_t chunk), void *context,
                      struct penstock_error *error)
{
    struct pull_tally *tally = &queue->tallies[question->file];
    const struct pull_file *file = &queue->plan->files.at[question->file];
    tally->asking = false;
    if (queue->no_digests)
        return 0;
    if (code == PENSTOCK_EREFUSED) {
        give_up_digests(queue, lost, context);
        return 0;
    }
    if (code < 0)
        return 0;
    n = n < question->max ? n : question->max;
    if (n == 0)
        tally->ask_after_ns = now_ns + ASK_AGAIN_NS;
    else
        memcpy(tally->digests[question->first], digests, n * PENSTOCK_DIGEST_BYTES);
    tally->known = question->first + n;
    for (uint64_t i = 0; i < n; i++) {
        size_t chunk = file->first_chunk + question->first + i;
        bool again = false;
        if (queue->chunks[chunk].state != PULL_LANDED)
            continue;
        int rc = judge(queue, chunk, &again, error);
        if (again)
            lost(context, chunk);
        if (rc < 0)
            return rc;
    }
    return 0;
}

bool pull_queue_verified(const struct pull_queue *queue)
{
    return queue->verify && !queue->no_digests && queue->count[PULL_GOOD] == queue->plan->chunks;
}
