#include "bench_cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/vec.h"

#define REMOVED_AT_ONCE 1024u

/* A blob under way, and its part of the memory. */
struct slot {
    struct penstock_blob blob;
    uint64_t index; /* of the key */
    int action;
    int64_t begun_ns;
};

/* One action's operations, in one phase. */
struct tally {
    struct bench_cache_figures *figures;
    BASE_VEC(uint64_t) latencies; /* ns, of those that were answered */
};

struct run {
    struct penstock_session *session;
    const struct bench_cache_options *options;
    uint64_t blob_bytes;
    uint8_t *memory; /* a blob for each slot */
    uint32_t region;
    struct slot *slots;
    uint64_t names; /* what makes keys those of this run */
    uint64_t state; /* of the choices */
    struct bench_zipf likely;
    uint64_t shares; /* of the mix, in all */

    /* the phase */
    bool filling;
    struct tally tallies[BENCH_CACHE_ACTIONS];
    uint64_t begun, ended, most; /* operations */
    int64_t stop_ns;             /* INT64_MAX: when all are done */

    uint64_t damaged, first_damaged; /* blobs; a key's index */
};

/* ---- blobs that say whose they are ---- */

/* Every word depends on the key and on which put it was: no mixture of two blobs looks like one. */
static uint64_t word_of(uint64_t index, uint64_t put, uint64_t i)
{
    return (index ^ put * UINT64_C(0xBF58476D1CE4E5B9)) + i * UINT64_C(0x9E3779B97F4A7C15);
}

static uint64_t *words_of(const struct run *r, const struct slot *slot)
{
    return (uint64_t *)(void *)(r->memory + (uint64_t)(slot - r->slots) * r->blob_bytes);
}

static void stamp(const struct run *r, const struct slot *slot, uint64_t put)
{
    uint64_t *words = words_of(r, slot);
    words[0] = slot->index;
    words[1] = put;
    for (uint64_t i = 2; i < r->blob_bytes / sizeof *words; i++)
        words[i] = word_of(slot->index, put, i);
}

static bool is_whole(const struct run *r, const struct slot *slot)
{
    const uint64_t *words = words_of(r, slot);
    if (words[0] != slot->index)
        return false;
    uint64_t wrong = 0;
    for (uint64_t i = 2; i < r->blob_bytes / sizeof *words; i++)
        wrong |= words[i] ^ word_of(slot->index, words[1], i);
    return wrong == 0;
}

/* ---- one operation ---- */

static int pick_action(struct run *r)
{
    uint64_t at = bench_random(&r->state) % r->shares;
    int action = 0;
    while (at >= r->options->mix[action])
        at -= r->options->mix[action++];
    return action;
}

static struct penstock_key key_of(const struct run *r, uint64_t index)
{
    uint64_t state = r->names + index;
    return (struct penstock_key){ .low = bench_random(&state) };
}

static bool goes_on(const struct run *r, int64_t now_ns)
{
    return r->begun < r->most && now_ns < r->stop_ns;
}

static int submit(struct run *r, struct slot *slot, struct penstock_error *error)
{
    slot->action = r->filling ? PENSTOCK_BLOB_PUT : pick_action(r);
    slot->index = r->filling ? r->begun : bench_zipf_pick(&r->likely, bench_random(&r->state));
    slot->blob = (struct penstock_blob){ .key = key_of(r, slot->index),
                                         .at_bytes = (uint64_t)(slot - r->slots) * r->blob_bytes };
    if (r->options->verify && slot->action == PENSTOCK_BLOB_PUT)
        stamp(r, slot, bench_random(&r->state));
    else if (r->options->verify)
        words_of(r, slot)[0] = ~slot->index; /* what was there before is not taken for what is to come */
    const struct penstock_blobs blobs = { .size = sizeof blobs,
                                          .action = slot->action,
                                          .region = r->region,
                                          .blobs = &slot->blob,
                                          .count = 1,
                                          .user = slot };
    penstock_op op;
    r->begun++;
    slot->begun_ns = base_now_ns();
    return penstock_submit_blobs(r->session, &blobs, &op, error);
}

static int count(struct run *r, const struct slot *slot, int code, int64_t now_ns, struct penstock_error *error)
{
    struct tally *tally = &r->tallies[slot->action];
    struct bench_cache_figures *f = tally->figures;
    bool moves = slot->action == PENSTOCK_BLOB_PUT || slot->action == PENSTOCK_BLOB_GET;
    f->ops++;
    f->missed += code == PENSTOCK_ENOTFOUND;
    f->refused += code == PENSTOCK_EREFUSED;
    if (code == 0 && moves)
        f->bytes += r->blob_bytes;
    if (code == 0 && slot->action == PENSTOCK_BLOB_GET && r->options->verify && !is_whole(r, slot) && r->damaged++ == 0)
        r->first_damaged = slot->index;
    return base_vec_push(&tally->latencies, (uint64_t)(now_ns - slot->begun_ns))
               ? 0
               : base_error_set(error, PENSTOCK_ENOMEM, "no memory for one more latency");
}

static int take(struct run *r, const struct penstock_completion *c, int64_t now_ns, struct penstock_error *error)
{
    struct slot *slot = c->user;
    r->ended++;
    if (c->code != 0 && c->code != PENSTOCK_ENOTFOUND && c->code != PENSTOCK_EREFUSED)
        return bench_failed(r->session, c, error);
    int code = count(r, slot, c->code, now_ns, error);
    return code == 0 && goes_on(r, now_ns) ? submit(r, slot, error) : code;
}

/* ---- one phase ---- */

static int run_phase(struct run *r, struct penstock_error *error)
{
    struct penstock_completion completions[64];
    int code = 0;
    r->begun = r->ended = 0;
    for (unsigned i = 0; code == 0 && i < r->options->depth && goes_on(r, base_now_ns()); i++)
        code = submit(r, &r->slots[i], error);
    while (code == 0 && r->ended < r->begun) {
        size_t done = 0;
        code = bench_await(r->session, completions, sizeof completions / sizeof *completions, &done, error);
        int64_t now_ns = base_now_ns();
        for (size_t i = 0; i < done && code == 0; i++)
            code = take(r, &completions[i], now_ns, error);
    }
    for (int i = 0; i < BENCH_CACHE_ACTIONS; i++) {
        struct tally *t = &r->tallies[i];
        if (t->figures)
            bench_percentiles(t->latencies.at, t->latencies.n, t->figures->latency_us);
        base_vec_free(&t->latencies);
    }
    return code;
}

static int fill(struct run *r, struct bench_cache_result *result, struct penstock_error *error)
{
    int64_t begun_ns = base_now_ns();
    r->filling = true;
    r->tallies[PENSTOCK_BLOB_PUT].figures = &result->fill;
    r->most = r->options->keys;
    r->stop_ns = INT64_MAX;
    int code = run_phase(r, error);
    result->fill_seconds = (double)(base_now_ns() - begun_ns) / 1e9;
    return code;
}

static int mix(struct run *r, struct bench_cache_result *result, struct penstock_error *error)
{
    int64_t begun_ns = base_now_ns();
    r->filling = false;
    for (int i = 0; i < BENCH_CACHE_ACTIONS; i++)
        r->tallies[i].figures = &result->actions[i];
    r->most = r->options->ops;
    r->stop_ns = begun_ns + (int64_t)(r->options->seconds * 1e9);
    int code = run_phase(r, error);
    result->seconds = (double)(base_now_ns() - begun_ns) / 1e9;
    return code;
}

/* ---- all of it ---- */

/* Owned blobs end with the session, even where this process is killed; not every peer has owners. */
static int open_session(const struct bench_cache_options *o, struct penstock_session **s, struct penstock_error *error)
{
    struct penstock_cache arena = o->arena;
    arena.own = 2;
    return penstock_cache_open(o->peer, &arena, o->how, s, error);
}

static int remove_all(struct run *r, struct penstock_error *error)
{
    struct penstock_blob *blobs = calloc(REMOVED_AT_ONCE, sizeof *blobs);
    int code = blobs ? 0 : base_error_set(error, PENSTOCK_ENOMEM, "no memory to remove what was put");
    for (uint64_t i = 0; code == 0 && i < r->options->keys;) {
        struct penstock_blobs b = { .size = sizeof b, .action = PENSTOCK_BLOB_REMOVE, .blobs = blobs };
        for (; b.count < REMOVED_AT_ONCE && i < r->options->keys; i++)
            blobs[b.count++] = (struct penstock_blob){ .key = key_of(r, i) };
        code = penstock_blobs_wait(r->session, &b, error);
    }
    free(blobs);
    return code;
}

static int prepare(struct run *r, struct penstock_error *error)
{
    const struct bench_cache_options *o = r->options;
    uint64_t bytes = o->depth * r->blob_bytes;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    r->slots = calloc(o->depth, sizeof *r->slots);
    if (memory == MAP_FAILED || !r->slots) {
        if (memory != MAP_FAILED)
            munmap(memory, bytes);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %u blobs of %" PRIu64 " bytes", o->depth,
                              r->blob_bytes);
    }
    r->memory = memory;
    for (unsigned i = 0; i < o->depth; i++) { /* also touches the pages, which is not to be measured */
        r->slots[i].index = i;
        stamp(r, &r->slots[i], i);
    }
    const struct penstock_memory all = { .size = sizeof all, .address = memory, .len_bytes = bytes };
    int code = penstock_register(r->session, &all, &r->region, error);
    if (code == 0 && o->zipf)
        return bench_zipf_init(&r->likely, o->keys, o->exponent, error);
    bench_uniform_init(&r->likely, o->keys);
    return code;
}

int bench_cache(const struct bench_cache_options *options, struct bench_cache_result *result,
                struct penstock_error *error)
{
    struct run r = { .options = options, .blob_bytes = options->arena.blob_bytes, .state = 1 };
    *result = (struct bench_cache_result){ 0 };
    r.names = (uint64_t)base_now_ns() << 20 ^ (uint64_t)getpid() << 44;
    for (int i = 0; i < BENCH_CACHE_ACTIONS; i++)
        r.shares += options->mix[i];
    int code = open_session(options, &r.session, error);
    if (code)
        return code;
    code = prepare(&r, error);
    code = code ? code : fill(&r, result, error);
    code = code ? code : mix(&r, result, error);
    struct penstock_error ignored; /* after a failure, which may have been the session's end */
    int removed = remove_all(&r, code ? &ignored : error);
    code = code ? code : removed;
    if (code == 0 && r.damaged > 0)
        code = base_error_set(error, PENSTOCK_ECORRUPT,
                              "%" PRIu64 " blobs came back damaged, the first that of key 0x%016" PRIx64, r.damaged,
                              key_of(&r, r.first_damaged).low);
    pull_rails_add(&result->rails, r.session, true);
    penstock_session_free(r.session);
    if (r.memory)
        munmap(r.memory, options->depth * r.blob_bytes);
    bench_zipf_fini(&r.likely);
    free(r.slots);
    return code;
}
