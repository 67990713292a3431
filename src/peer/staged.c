#include "staged.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/wire.h>

#include "base/error.h"
#include "base/log.h"
#include "digests.h"

/* Shards first, then files: as requests count them. */
static int map_files(struct peer_model *model, struct residency_ledger *ledger, struct penstock_error *error)
{
    const struct model_manifest *m = &model->staged.manifest;
    size_t n = model->staged.opened.n;
    if (n != m->shards.n + m->files.n)
        return base_error_set(error, PENSTOCK_ECORRUPT, "%zu files are open and the manifest has %zu", n,
                              m->shards.n + m->files.n);
    const char **names = calloc(n + 1, sizeof *names);
    if (!names)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu files", n);
    for (size_t i = 0; i < n; i++)
        names[i] = i < m->shards.n ? m->shards.at[i].name : m->files.at[i - m->shards.n].name;
    model->served.n_regions = m->shards.n;
    int code = peer_served_map(&model->served, model->staged.opened.at, names, n, ledger, error);
    free(names);
    return code;
}

/* The manifest is written once a version, and goes out as it is. */
static int frame_manifest(struct peer_model *model, struct penstock_error *error)
{
    static const uint8_t no_length[PENSTOCK_TEXT_HEAD_BYTES];
    base_buf_append(&model->served.reply, no_length, sizeof no_length);
    int code = model_manifest_write(&model->staged.manifest, &model->served.reply, error);
    if (code)
        return code;
    if (model->served.reply.failed)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the manifest");
    size_t len = model->served.reply.n - sizeof no_length;
    struct penstock_wire_fault fault;
    if (penstock_text_head_encode(PENSTOCK_TEXT_WEIGHT_MANIFEST, len, model->served.reply.at, &fault) == 0)
        return base_error_set(error, PENSTOCK_ELIMIT, "its manifest has %zu bytes, and clients take 256 MiB", len);
    return 0;
}

static int build(struct peer_model *model, const char *name, struct residency_ledger *ledger,
                 struct penstock_error *error)
{
    model->served.id = strdup(name ? name : model->staged.name);
    if (!model->served.id)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    int code = map_files(model, ledger, error);
    if (code == 0)
        code = frame_manifest(model, error);
    if (code == 0)
        code = model_digests_init(&model->staged, &model->digests, error);
    return code;
}

/* ---- as one of what is served out of files ---- */

static enum model_change changed(const struct peer_served *served)
{
    const struct peer_model *model = base_list_entry(served, struct peer_model, served);
    return model_staged_changed(&model->staged, model->options);
}

static void log_staged(const struct peer_served *served)
{
    const struct peer_model *model = base_list_entry(served, struct peer_model, served);
    const struct model_manifest *m = &model->staged.manifest;
    base_log_info("staged %s from %s: version %s, %zu shards, %zu tensors, %zu other files, %" PRIu64
                  " bytes, in %.3f s",
                  served->id, model->staged.directory, m->model_version ? m->model_version : "(none)", m->shards.n,
                  m->tensors.n, m->files.n, served->bytes, (double)served->staging_ns / 1e9);
}

static void free_model(struct peer_served *served)
{
    struct peer_model *model = peer_model_of(served);
    peer_served_fini(served);
    model_digests_fini(&model->digests);
    model_staged_fini(&model->staged);
    free(model);
}

static const struct peer_served_ops ops = {
    .unit = "shard", .changed = changed, .hash = peer_digests_compute, .log_staged = log_staged, .free = free_model
};

int peer_staged_new(const char *directory, const char *name, const struct peer_models_options *options,
                    struct peer_model **out, struct penstock_error *error)
{
    struct peer_model *model = calloc(1, sizeof *model);
    if (!model)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    peer_served_init(&model->served, &ops, options->live);
    model->options = &options->stage;
    int code = model_stage(directory, &options->stage, &model->staged, error);
    if (code) {
        peer_served_fini(&model->served);
        free(model);
        return code;
    }
    code = build(model, name, options->ledger, error);
    if (code) {
        base_error_in(error, "%s", directory);
        free_model(&model->served);
        return code;
    }
    *out = model;
    return 0;
}
