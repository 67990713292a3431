/* A worker: one session, a ring of buffers, and the chunks it has in hand. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "pull.h"
#include "text.h"

/* Requests under way at once, and their size: enough for the network never to wait for the disk, and little enough to
 * be hashed and written while the processor's caches have it. */
#define SLOTS 16
#define SLOT_BYTES (UINT64_C(256) << 10)
#define SLOT_RANGES 256
#define RECONNECTS 3 /* in a row, without a chunk landed between them */
#define IDLE_NS (50 * BASE_MS_NS)
#define ANSWER_MAX 4096

/* One buffer of the ring, and what it is being filled with. */
struct slot {
    penstock_op op;
    struct pull_job job;
    uint64_t offset_bytes, len_bytes; /* in the chunk */
    bool last;                        /* of its chunk */
    bool done;
};

struct land {
    struct pull *pull;
    struct penstock_session *session;
    uint8_t *ring; /* SLOTS buffers, and one for bytes read back from the disk */
    uint32_t region;
    struct slot slots[SLOTS];
    unsigned head, used; /* slots[head] is the oldest of `used` */

    bool feeding; /* job is being asked for, up to fed_bytes */
    struct pull_job job;
    uint64_t fed_bytes;

    XXH3_state_t hash; /* of the chunk whose pieces are at the ring's head */
    bool asking;
    penstock_op ask_op;
    struct pull_question question;
    uint8_t (*answer)[PENSTOCK_DIGEST_BYTES];

    uint64_t landed; /* chunks, since the session was opened */
    bool local;      /* what failed is this machine's: no other connection helps */
};

static int wait_for(struct penstock_session *session, int stop_fd, int64_t at_most_ns, bool *stopped)
{
    int64_t timeout = penstock_timeout_ns(session);
    if (timeout < 0 || (at_most_ns >= 0 && at_most_ns < timeout))
        timeout = at_most_ns;
    struct pollfd fds[] = { { .fd = penstock_fd(session), .events = POLLIN }, { .fd = stop_fd, .events = POLLIN } };
    int ms = timeout < 0 ? -1 : base_poll_ms(base_deadline_ns(timeout));
    if (poll(fds, 2, ms) < 0 && errno != EINTR)
        return PENSTOCK_ESYS;
    *stopped = fds[1].revents != 0;
    return 0;
}

/* The words of a failed operation, or at least its code. */
static int op_failed(struct penstock_session *session, penstock_op op, int code, struct penstock_error *error)
{
    const struct penstock_error *words = penstock_op_error(session, op);
    if (!words)
        return base_error_set(error, code, "the connection failed: %s", penstock_error_name(code));
    *error = *words;
    return words->code;
}

int pull_session_open(const struct pull_options *options, struct penstock_catalogue *catalogue, int stop_fd,
                      struct penstock_session **session, struct penstock_error *error)
{
    struct penstock_options how = {
        .size = sizeof how,
        .connect_timeout_ns = options->timeout_ns,
        .manifest_timeout_ns = options->timeout_ns,
        .reply_timeout_ns = options->timeout_ns,
        .rails_timeout_ns = options->timeout_ns,
        .transport = (int)options->transport,
        .rails = options->rails,
    };
    penstock_op op;
    int rc = penstock_weights_start(options->peer, options->model, catalogue, &how, session, &op, error);
    if (rc < 0)
        return rc;
    for (;;) {
        struct penstock_completion done;
        size_t n = 0;
        int state = penstock_poll(*session, &done, 1, &n);
        if (n == 1 || state < 0) {
            rc = n == 1 ? done.code : state;
            if (rc == 0)
                return 0;
            rc = op_failed(*session, op, rc, error);
            break;
        }
        bool stopped = false;
        rc = wait_for(*session, stop_fd, -1, &stopped);
        if (rc == 0 && stopped)
            rc = base_error_set(error, PENSTOCK_ECANCELED, "interrupted");
        if (rc < 0)
            break;
    }
    penstock_session_free(*session);
    *session = NULL;
    return rc;
}

void pull_end(struct pull *pull, int rc, const struct penstock_error *error)
{
    pthread_mutex_lock(&pull->lock);
    if (!pull->over) {
        pull->over = true;
        pull->rc = rc;
        if (rc < 0)
            pull->error = *error;
        uint64_t one = 1;
        ssize_t ignored = write(pull->over_fd, &one, sizeof one);
        (void)ignored;
    }
    pthread_mutex_unlock(&pull->lock);
}

/* A failure that a new connection would meet again. */
static int here(struct land *land, int rc)
{
    land->local = true;
    return rc;
}

static int io_failed(struct land *land, size_t file, const char *doing, int failed, struct penstock_error *error)
{
    char name[256];
    cli_escape(name, sizeof name, land->pull->plan.files.at[file].name);
    return here(land, base_error_sys(error, failed, "%s/%s: %s", land->pull->target.path, name, doing));
}

/* ---- what is on this disk ---- */

/* A kept file that proved wrong has no temporary file yet. */
static int temp_of(struct land *land, size_t file, int *fd, struct penstock_error *error)
{
    struct pull *pull = land->pull;
    const struct pull_file *f = &pull->plan.files.at[file];
    pthread_mutex_lock(&pull->lock);
    int *temp = &pull->places[file].temp, rc = 0;
    if (*temp < 0)
        rc = pull_target_create(&pull->target, file, temp, error);
    if (rc == 0 && lseek(*temp, 0, SEEK_END) < (off_t)f->len_bytes)
        rc = pull_target_reserve(&pull->target, *temp, f->len_bytes, f->len_bytes, error);
    *fd = *temp;
    pthread_mutex_unlock(&pull->lock);
    return rc < 0 ? here(land, rc) : 0;
}

static int write_all(int fd, const uint8_t *bytes, uint64_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, bytes, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        bytes += n;
        offset += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return 0;
}

static void digest_out(const XXH3_state_t *state, uint8_t out[PENSTOCK_DIGEST_BYTES])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
    memcpy(out, canonical.digest, PENSTOCK_DIGEST_BYTES);
}

static int landed(struct land *land, const struct pull_job *job, const uint8_t *digest, struct penstock_error *error)
{
    struct pull *pull = land->pull;
    uint64_t len = pull_plan_place(&pull->plan, job->chunk).len_bytes;
    bool lost;
    pthread_mutex_lock(&pull->lock);
    if (!job->kept)
        pull_journal_chunk(&pull->journal, job->chunk, digest);
    int rc = pull_queue_land(&pull->queue, job, digest, &lost, error);
    if (lost)
        pull_journal_lost(&pull->journal, job->chunk);
    pthread_mutex_unlock(&pull->lock);
    land->landed++;
    atomic_fetch_add_explicit(&pull->landed_bytes, len, memory_order_relaxed);
    return rc < 0 ? here(land, rc) : 0;
}

static int hash_in_place(struct land *land, const struct pull_job *job, struct penstock_error *error)
{
    struct pull *pull = land->pull;
    struct pull_chunk_place place = pull_plan_place(&pull->plan, job->chunk);
    uint8_t *buffer = land->ring + SLOTS * SLOT_BYTES, digest[PENSTOCK_DIGEST_BYTES];
    int fd = job->kept ? pull->places[place.file].final : pull->places[place.file].temp;
    uint64_t at = pull->plan.files.at[place.file].head_bytes + place.offset_bytes;
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (uint64_t done = 0; done < place.len_bytes;) {
        ssize_t n = pread(fd, buffer, base_min_u64(SLOT_BYTES, place.len_bytes - done), (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return io_failed(land, place.file, "can't be read back", errno, error);
        if (n == 0)
            break; /* cut short meanwhile: it will not match */
        XXH3_128bits_update(&state, buffer, (size_t)n);
        done += (uint64_t)n;
    }
    digest_out(&state, digest);
    return landed(land, job, digest, error);
}

/* ---- asking ---- */

static int submit_slot(struct land *land, struct penstock_error *error)
{
    struct pull *pull = land->pull;
    struct pull_chunk_place place = pull_plan_place(&pull->plan, land->job.chunk);
    unsigned i = (land->head + land->used) % SLOTS;
    struct penstock_range ranges[SLOT_RANGES];
    size_t n;
    uint64_t want = base_min_u64(SLOT_BYTES, place.len_bytes - land->fed_bytes);
    uint64_t len = pull_plan_ranges(&pull->plan, place.file, place.offset_bytes + land->fed_bytes, want, i * SLOT_BYTES,
                                    ranges, SLOT_RANGES, &n);
    struct slot *slot = &land->slots[i];
    *slot = (struct slot){ .job = land->job, .offset_bytes = land->fed_bytes, .len_bytes = len };
    struct penstock_read read = { .size = sizeof read, .ranges = ranges, .count = n, .region = land->region };
    int rc = penstock_submit(land->session, &read, &slot->op, error);
    if (rc < 0)
        return rc;
    land->used++;
    land->fed_bytes += len;
    slot->last = land->fed_bytes == place.len_bytes;
    land->feeding = !slot->last;
    return 0;
}

/* Fills the ring. *work: what the queue said last. */
static int feed(struct land *land, enum pull_work *work, struct penstock_error *error)
{
    struct pull *pull = land->pull;
    *work = PULL_FETCH;
    while (land->used < SLOTS) {
        int rc = 0;
        if (!land->feeding) {
            pthread_mutex_lock(&pull->lock);
            struct pull_job job = pull_queue_take(&pull->queue);
            pthread_mutex_unlock(&pull->lock);
            *work = job.work;
            if (job.work == PULL_WAIT || job.work == PULL_OVER)
                return 0;
            land->job = job;
            land->feeding = true;
            land->fed_bytes = 0;
        }
        if (land->job.work == PULL_HASH) {
            rc = hash_in_place(land, &land->job, error);
            land->feeding = rc < 0;
        } else {
            rc = submit_slot(land, error);
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int ask(struct land *land, struct penstock_error *error)
{
    struct pull *pull = land->pull;
    if (land->asking)
        return 0;
    pthread_mutex_lock(&pull->lock);
    land->asking = pull_queue_question(&pull->queue, base_now_ns(), &land->question);
    pthread_mutex_unlock(&pull->lock);
    if (!land->asking)
        return 0;
    struct penstock_digests digests = {
        .size = sizeof digests,
        .out = (uint8_t *)land->answer,
        .first_chunk = land->question.first,
        .max = base_min_u64(land->question.max, ANSWER_MAX),
        .file = pull->plan.files.at[land->question.file].source,
    };
    return penstock_submit_digests(land->session, &digests, &land->ask_op, error);
}

/* ---- what came ---- */

static void journal_lost(void *context, size_t chunk)
{
    pull_journal_lost(context, chunk);
}

static int answered(struct land *land, int code, uint64_t len, struct penstock_error *error)
{
    struct pull *pull = land->pull;
    land->asking = false;
    pthread_mutex_lock(&pull->lock);
    int rc = pull_queue_answer(&pull->queue, &land->question, code, (const uint8_t *)land->answer,
                               len / PENSTOCK_DIGEST_BYTES, base_now_ns(), journal_lost, &pull->journal, error);
    pthread_mutex_unlock(&pull->lock);
    return rc < 0 ? here(land, rc) : 0;
}

/* Hashes and writes what has arrived at the head of the ring, in the order asked for. */
static int drain(struct land *land, struct penstock_error *error)
{
    struct pull *pull = land->pull;
    while (land->used > 0 && land->slots[land->head].done) {
        struct slot *slot = &land->slots[land->head];
        const uint8_t *bytes = land->ring + land->head * SLOT_BYTES;
        struct pull_chunk_place place = pull_plan_place(&pull->plan, slot->job.chunk);
        uint64_t head_bytes = pull->plan.files.at[place.file].head_bytes;
        if (pull->queue.verify) {
            if (slot->offset_bytes == 0)
                XXH3_128bits_reset(&land->hash);
            XXH3_128bits_update(&land->hash, bytes, slot->len_bytes);
        }
        int fd;
        int rc = temp_of(land, place.file, &fd, error);
        if (rc < 0)
            return rc;
        int failed = write_all(fd, bytes, slot->len_bytes, head_bytes + place.offset_bytes + slot->offset_bytes);
        if (failed)
            return io_failed(land, place.file, "can't be written", failed, error);
        atomic_fetch_add_explicit(&pull->fetched_bytes, slot->len_bytes, memory_order_relaxed);
        if (slot->last) {
            uint8_t digest[PENSTOCK_DIGEST_BYTES];
            if (pull->queue.verify)
                digest_out(&land->hash, digest);
            rc = landed(land, &slot->job, pull->queue.verify ? digest : NULL, error);
        }
        /* Landed or not, the chunk is no longer in this worker's hands. */
        land->head = (land->head + 1) % SLOTS;
        land->used--;
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void mark_done(struct land *land, penstock_op op)
{
    for (unsigned k = 0; k < land->used; k++) {
        struct slot *slot = &land->slots[(land->head + k) % SLOTS];
        slot->done |= slot->op == op;
    }
}

static int collect(struct land *land, struct penstock_error *error)
{
    struct penstock_completion done[SLOTS + 1];
    size_t n = 0;
    int state = penstock_poll(land->session, done, SLOTS + 1, &n);
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        bool answer = land->asking && done[i].op == land->ask_op;
        /* Over RDMA digests come by another way: shards may go on without it, and it is asked again. */
        bool later = land->used > 0 && state == 0 && penstock_error_class(done[i].code) == PENSTOCK_LOST_CONNECTION;
        if (answer && (done[i].code == 0 || done[i].code == PENSTOCK_EREFUSED || later)) {
            struct penstock_error words = { 0 };
            int code = answered(land, done[i].code, done[i].landed_bytes, &words);
            if (rc == 0 && code < 0) {
                rc = code;
                *error = words;
            }
        } else if (done[i].code < 0) {
            if (rc == 0)
                rc = op_failed(land->session, done[i].op, done[i].code, error);
        } else {
            mark_done(land, done[i].op);
        }
    }
    return rc == 0 && state < 0 ? op_failed(land->session, 0, state, error) : rc;
}

/* 0: the pull is over. */
static int pump(struct land *land, struct penstock_error *error)
{
    for (;;) {
        enum pull_work work = PULL_WAIT;
        int rc = ask(land, error);
        if (rc == 0)
            rc = feed(land, &work, error);
        if (rc == PENSTOCK_EDEAD) /* between two operations: of what is what matters */
            rc = op_failed(land->session, 0, rc, error);
        if (rc < 0)
            return rc;
        if (work == PULL_OVER) {
            pull_end(land->pull, 0, NULL);
            return 0;
        }
        bool stopped = false;
        if (wait_for(land->session, land->pull->over_fd, land->used == 0 ? IDLE_NS : -1, &stopped) < 0)
            return here(land, base_error_sys(error, errno, "poll"));
        if (stopped)
            return 0;
        /* What came before a connection broke is landed all the same: the next pull need not fetch it. */
        rc = collect(land, error);
        struct penstock_error words = { 0 };
        int drained = drain(land, &words);
        if (drained < 0 && (rc == 0 || land->local)) {
            rc = drained;
            *error = words;
        }
        if (rc < 0)
            return rc;
    }
}

/* ---- the worker ---- */

static int connected(struct land *land, struct penstock_error *error)
{
    struct pull *pull = land->pull;
    int rc = 0;
    if (!land->session)
        rc = pull_session_open(pull->options, pull->catalogue, pull->over_fd, &land->session, error);
    if (rc < 0)
        return rc;
    struct penstock_memory memory = {
        .size = sizeof memory,
        .address = land->ring,
        .len_bytes = SLOTS * SLOT_BYTES,
        .where = PENSTOCK_HOST,
    };
    return penstock_register(land->session, &memory, &land->region, error);
}

/* Gives back what the worker has in hand: each chunk has one last slot, or is the one being asked for. */
static void let_go(struct land *land)
{
    struct pull *pull = land->pull;
    pthread_mutex_lock(&pull->lock);
    pull_rails_add(&pull->rails, land->session, true);
    pthread_mutex_unlock(&pull->lock);
    penstock_session_free(land->session);
    land->session = NULL;
    pthread_mutex_lock(&pull->lock);
    for (unsigned i = 0; i < land->used; i++) {
        struct slot *slot = &land->slots[(land->head + i) % SLOTS];
        if (slot->last)
            pull_queue_give_back(&pull->queue, &slot->job);
    }
    if (land->feeding)
        pull_queue_give_back(&pull->queue, &land->job);
    pthread_mutex_unlock(&pull->lock);
    land->used = 0;
    land->feeding = false;
    if (land->asking) {
        struct penstock_error ignored;
        int rc = answered(land, PENSTOCK_ECLOSED, 0, &ignored);
        (void)rc;
    }
}

/* Whether a new connection may do better: the peer closed (it may have a new version of the model, which joining will
 * say), or refused a range. */
static bool worth_another(const struct land *land, int rc)
{
    return !land->local && penstock_catalogue_version(land->pull->catalogue) &&
           (rc == PENSTOCK_ECLOSED || rc == PENSTOCK_EREFUSED);
}

static void leave(struct land *land, int rc, const struct penstock_error *error)
{
    struct pull *pull = land->pull;
    pthread_mutex_lock(&pull->lock);
    bool last = --pull->alive == 0;
    pthread_mutex_unlock(&pull->lock);
    /* The others go on without a worker that lost its connection: the pull fails with the last. */
    if (rc < 0 && (last || land->local || rc == PENSTOCK_ESTALE))
        pull_end(pull, rc, error);
}

void *pull_land(void *arg)
{
    struct pull_worker *worker = arg;
    struct land land = { .pull = worker->pull, .session = worker->session };
    struct penstock_error error = { 0 };
    worker->session = NULL;
    land.ring = aligned_alloc(4096, (SLOTS + 1) * SLOT_BYTES);
    land.answer = calloc(ANSWER_MAX, PENSTOCK_DIGEST_BYTES);
    int rc = land.ring && land.answer ? 0 : base_error_set(&error, PENSTOCK_ENOMEM, "no memory for buffers");
    land.local = rc < 0;
    for (int failures = 0; rc == 0;) {
        land.landed = 0;
        struct penstock_error again = { 0 };
        rc = connected(&land, &again);
        /* Of a peer that is gone, what it died of is worth more than that nobody listens there now. */
        if (rc < 0 && (failures == 0 || rc != PENSTOCK_EUNREACHABLE))
            error = again;
        if (rc == 0) {
            pthread_mutex_lock(&land.pull->lock);
            land.pull->joined += failures == 0;
            pthread_mutex_unlock(&land.pull->lock);
            rc = pump(&land, &error);
        }
        let_go(&land);
        failures = land.landed > 0 ? 1 : failures + 1;
        if (rc == 0 || failures > RECONNECTS || !worth_another(&land, rc))
            break;
        struct pollfd over = { .fd = land.pull->over_fd, .events = POLLIN };
        rc = poll(&over, 1, 100 * failures) > 0 ? PENSTOCK_ECANCELED : 0;
    }
    penstock_session_free(land.session);
    free(land.answer);
    free(land.ring);
    leave(&land, rc, &error);
    return NULL;
}
