#include "digests.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "models.h"

#define SCRATCH_BYTES (256u << 10) /* stays in the second-level cache between pread and the hash */
#define SAVE_EVERY_NS (60 * BASE_SECOND_NS)

struct hashing {
    struct peer_job job;
    struct peer_model *model;
    int64_t save_ns;
};

static void save(struct hashing *h)
{
    char where[4096];
    struct penstock_error error;
    if (model_digests_save(&h->model->staged, &h->model->digests, where, sizeof where, &error) == 0)
        base_log_debug("%s: digests kept in %s", h->model->served.id, where);
    else
        base_log_warning("%s: digests are not kept and will be computed again: %s", h->model->served.id, error.message);
    h->save_ns = base_deadline_ns(SAVE_EVERY_NS);
}

/* Returns how many chunks it hashed. */
static uint64_t hash_file(struct hashing *h, size_t i, uint8_t *scratch)
{
    struct peer_model *model = h->model;
    const struct model_file_digests *digests = &model->digests.files[i];
    uint64_t hashed = 0;

    while (atomic_load(&digests->known) < digests->chunks && !peer_job_stopped(&h->job)) {
        struct penstock_error error;
        uint64_t before = atomic_load(&digests->known);
        if (model_digests_next(&model->staged, &model->digests, i, scratch, SCRATCH_BYTES, &error)) {
            base_log_error("%s: no more digests of %s: %s", model->served.id, model->served.files[i].name,
                           error.message);
            atomic_store(&model->served.files[i].no_digests, true);
            break;
        }
        hashed++;
        uint64_t from = before * PENSTOCK_DIGEST_CHUNK_BYTES, left = model->served.files[i].len_bytes - from;
        peer_job_progress(&h->job, left < PENSTOCK_DIGEST_CHUNK_BYTES ? left : PENSTOCK_DIGEST_CHUNK_BYTES);
        if (base_now_ns() >= h->save_ns)
            save(h);
    }
    return hashed;
}

static bool complete(const struct peer_model *model)
{
    for (size_t i = 0; i < model->served.n_files; i++)
        if (atomic_load(&model->digests.files[i].known) < model->digests.files[i].chunks)
            return false;
    return true;
}

void peer_digests_compute(struct peer_worker *worker, struct peer_served *served)
{
    struct peer_model *model = peer_model_of(served);
    struct hashing h = { .job = { worker, served, "hashed", 0, base_deadline_ns(PEER_JOB_TELL_NS) },
                         .model = model,
                         .save_ns = base_deadline_ns(SAVE_EVERY_NS) };
    int64_t began_ns = base_now_ns();
    uint64_t loaded = model_digests_load(&model->staged, &model->digests), hashed = 0;
    uint8_t *scratch = malloc(SCRATCH_BYTES);
    if (!scratch) {
        base_log_error("%s: no memory to compute digests", model->served.id);
        for (size_t i = 0; i < model->served.n_files; i++)
            atomic_store(&model->served.files[i].no_digests, true);
        return;
    }
    for (size_t i = 0; i < model->served.n_files; i++)
        hashed += hash_file(&h, i, scratch);
    free(scratch);
    if (hashed > 0)
        save(&h);
    if (complete(model))
        base_log_info("%s: digests of %" PRIu64 " chunks, %" PRIu64 " of them kept from before, in %.3f s",
                      model->served.id, loaded + hashed, loaded, (double)(base_now_ns() - began_ns) / 1e9);
}
