#include "catalogue.h"

#include <stdlib.h>

#include "base/error.h"

int client_catalogue_read(const char *json, size_t len, size_t capacity, struct penstock_catalogue **catalogue,
                          struct penstock_error *error)
{
    struct penstock_catalogue *c = calloc(1, sizeof *c);
    if (!c)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a catalogue");
    int code = model_manifest_read(json, len, capacity, &c->manifest, error);
    if (code) {
        free(c);
        return code;
    }
    atomic_init(&c->refs, 1);
    *catalogue = c;
    return 0;
}

void penstock_catalogue_ref(struct penstock_catalogue *catalogue)
{
    if (catalogue)
        atomic_fetch_add_explicit(&catalogue->refs, 1, memory_order_relaxed);
}

void penstock_catalogue_unref(struct penstock_catalogue *catalogue)
{
    if (!catalogue || atomic_fetch_sub_explicit(&catalogue->refs, 1, memory_order_acq_rel) != 1)
        return;
    model_manifest_fini(&catalogue->manifest);
    free(catalogue);
}

const char *penstock_catalogue_model_id(const struct penstock_catalogue *catalogue)
{
    return catalogue ? catalogue->manifest.model_id : NULL;
}

const char *penstock_catalogue_version(const struct penstock_catalogue *catalogue)
{
    return catalogue ? catalogue->manifest.model_version : NULL;
}

size_t penstock_catalogue_tensors(const struct penstock_catalogue *catalogue)
{
    return catalogue ? catalogue->manifest.tensors.n : 0;
}

size_t penstock_catalogue_shards(const struct penstock_catalogue *catalogue)
{
    return catalogue ? catalogue->manifest.shards.n : 0;
}

size_t penstock_catalogue_files(const struct penstock_catalogue *catalogue)
{
    return catalogue ? catalogue->manifest.files.n : 0;
}

size_t penstock_catalogue_skipped(const struct penstock_catalogue *catalogue)
{
    return catalogue ? catalogue->manifest.skipped_files : 0;
}

const struct penstock_tensor *penstock_catalogue_tensor(const struct penstock_catalogue *catalogue, size_t index)
{
    return catalogue && index < catalogue->manifest.tensors.n ? &catalogue->manifest.tensors.at[index] : NULL;
}

const struct penstock_file *penstock_catalogue_file(const struct penstock_catalogue *catalogue, size_t file)
{
    if (!catalogue)
        return NULL;
    const struct model_manifest *m = &catalogue->manifest;
    if (file < m->shards.n)
        return &m->shards.at[file];
    file -= m->shards.n;
    return file < m->files.n ? &m->files.at[file] : NULL;
}

const struct penstock_tensor *penstock_catalogue_find(const struct penstock_catalogue *catalogue, const char *name)
{
    return catalogue && name ? model_manifest_find(&catalogue->manifest, name) : NULL;
}
