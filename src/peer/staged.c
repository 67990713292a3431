#include "staged.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <penstock/wire.h>

#include "base/error.h"

static int map_file(struct peer_file *file, const struct model_opened *opened, const char *name,
                    struct penstock_error *error)
{
    *file = (struct peer_file){ .fd = opened->fd, .len_bytes = opened->identity.len_bytes, .name = name };
    if (file->len_bytes == 0)
        return 0;
    void *at = mmap(NULL, file->len_bytes, PROT_READ, MAP_SHARED, file->fd, 0);
    if (at == MAP_FAILED)
        return base_error_sys(error, errno, "map %s", name);
    file->mapping = at;
    return 0;
}

/* Before anything is mapped. */
static int reserve(struct peer_model *model, struct residency_ledger *ledger, struct penstock_error *error)
{
    base_vec_for_each (opened, &model->staged.opened)
        model->bytes += opened->identity.len_bytes;
    return residency_reserve(ledger, &model->reservation, model->bytes, model->id, error);
}

static int map_files(struct peer_model *model, struct penstock_error *error)
{
    const struct model_manifest *m = &model->staged.manifest;
    size_t n = model->staged.opened.n;
    if (n != m->shards.n + m->files.n)
        return base_error_set(error, PENSTOCK_ECORRUPT, "%zu files are open and the manifest has %zu", n,
                              m->shards.n + m->files.n);
    model->files = calloc(n ? n : 1, sizeof *model->files);
    if (!model->files)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu files", n);
    for (size_t i = 0; i < n; i++) {
        const char *name = i < m->shards.n ? m->shards.at[i].name : m->files.at[i - m->shards.n].name;
        int code = map_file(&model->files[i], &model->staged.opened.at[i], name, error);
        if (code)
            return code;
        model->n_files = i + 1;
    }
    return 0;
}

/* The manifest is written once a version, and goes out as it is. */
static int frame_manifest(struct peer_model *model, struct penstock_error *error)
{
    static const uint8_t no_length[PENSTOCK_TEXT_HEAD_BYTES];
    base_buf_append(&model->reply, no_length, sizeof no_length);
    int code = model_manifest_write(&model->staged.manifest, &model->reply, error);
    if (code)
        return code;
    if (model->reply.failed)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the manifest");
    size_t len = model->reply.n - sizeof no_length;
    struct penstock_wire_fault fault;
    if (penstock_text_head_encode(PENSTOCK_TEXT_WEIGHT_MANIFEST, len, model->reply.at, &fault) == 0)
        return base_error_set(error, PENSTOCK_ELIMIT, "its manifest has %zu bytes, and clients take 256 MiB", len);
    return 0;
}

static int build(struct peer_model *model, const char *name, struct residency_ledger *ledger,
                 struct penstock_error *error)
{
    model->id = strdup(name ? name : model->staged.name);
    if (!model->id)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    int code = reserve(model, ledger, error);
    if (code == 0)
        code = map_files(model, error);
    if (code == 0)
        code = frame_manifest(model, error);
    if (code == 0)
        code = model_digests_init(&model->staged, &model->digests, error);
    return code;
}

int peer_staged_new(const char *directory, const char *name, const struct model_stage_options *options,
                    struct residency_ledger *ledger, struct peer_model **out, struct penstock_error *error)
{
    struct peer_model *model = calloc(1, sizeof *model);
    if (!model)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    base_list_init(&model->node);
    model->refs = 1;
    peer_registration_init(&model->registration);
    int code = model_stage(directory, options, &model->staged, error);
    if (code) {
        peer_registration_fini(&model->registration);
        free(model);
        return code;
    }
    code = build(model, name, ledger, error);
    if (code) {
        base_error_in(error, "%s", directory);
        peer_staged_free(model);
        return code;
    }
    *out = model;
    return 0;
}

void peer_staged_free(struct peer_model *model)
{
    peer_registration_fini(&model->registration); /* first: devices reach into the mappings */
    model_digests_fini(&model->digests);
    for (size_t i = 0; i < model->n_files; i++)
        if (model->files[i].mapping)
            munmap((void *)(uintptr_t)model->files[i].mapping, model->files[i].len_bytes);
    free(model->files);
    residency_release(&model->reservation);
    base_buf_fini(&model->reply);
    free(model->id);
    model_staged_fini(&model->staged);
    free(model);
}
