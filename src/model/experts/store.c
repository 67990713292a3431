#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "model/identity.h"
#include "model/links.h"
#include "model/safetensors.h"
#include "store_files.h"

const char *model_layer_name(uint32_t layer, char out[MODEL_LAYER_NAME_BYTES])
{
    snprintf(out, MODEL_LAYER_NAME_BYTES, "experts_%05" PRIu32 ".xpr", layer);
    return out;
}

/* What is to be there and is not, or is something else, is damage; the words say which file. */
static int open_one(const struct model_root *root, const char *name, struct model_opened *out,
                    struct penstock_error *error)
{
    struct stat st;
    int status = model_root_file(root, name, &out->fd, &st, error);
    if (status == 0)
        out->identity = model_identity_of(&st);
    else if ((status == PENSTOCK_ENOTFOUND || status == PENSTOCK_EINVAL) && error)
        error->code = PENSTOCK_ECORRUPT;
    return status == PENSTOCK_ENOTFOUND || status == PENSTOCK_EINVAL ? PENSTOCK_ECORRUPT : status;
}

static bool is_there(const struct model_root *root, const char *name)
{
    return faccessat(root->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int open_manifest(const struct model_root *root, struct model_store *store, struct penstock_error *error)
{
    if (!is_there(root, MODEL_STORE_MANIFEST))
        return base_error_set(error, PENSTOCK_ECORRUPT,
                              is_there(root, MODEL_STORE_PLAN) ? "no " MODEL_STORE_MANIFEST
                                                                 ": packing has not finished; run penstock pack again"
                                                               : "no " MODEL_STORE_MANIFEST ": not an expert store");
    int status = open_one(root, MODEL_STORE_MANIFEST, &store->manifest_file, error);
    if (status != 0)
        return status;
    status = model_store_manifest_load(store->manifest_file.fd, &store->manifest, error);
    if (status != 0)
        (void)base_error_in(error, MODEL_STORE_MANIFEST);
    return status;
}

static int open_layer(const struct model_root *root, struct model_store *store, uint32_t layer,
                      struct penstock_error *error)
{
    char name[MODEL_LAYER_NAME_BYTES];
    struct model_opened opened;
    int status = open_one(root, model_layer_name(layer, name), &opened, error);
    if (status != 0)
        return status;
    store->layers.at[store->layers.n++] = opened; /* there is room */
    status = model_store_layer_size(opened.identity.len_bytes, &store->manifest.geometry, error);
    if (status != 0)
        (void)base_error_in(error, "%s", name);
    return status;
}

static int make_version(struct model_store *store, struct penstock_error *error)
{
    char name[MODEL_LAYER_NAME_BYTES];
    struct model_version_hash hash;
    int status = model_version_begin(&hash, error);
    if (status != 0)
        return status;
    model_version_add(&hash, MODEL_STORE_MANIFEST, &store->manifest_file.identity);
    for (uint32_t layer = 0; layer < store->layers.n; layer++)
        model_version_add(&hash, model_layer_name(layer, name), &store->layers.at[layer].identity);
    model_version_end(&hash, store->manifest.model_version);
    return 0;
}

static int open_files(const struct model_root *root, struct model_store *store, struct penstock_error *error)
{
    int status = open_manifest(root, store, error);
    uint32_t n = store->manifest.geometry.num_moe_layers;
    if (status == 0 && !base_vec_reserve(&store->layers, n))
        status = base_error_set(error, PENSTOCK_ENOMEM, "no memory for %" PRIu32 " layers", n);
    for (uint32_t layer = 0; layer < n && status == 0; layer++)
        status = open_layer(root, store, layer, error);
    return status == 0 ? make_version(store, error) : status;
}

int model_store_open(const char *directory, const struct model_stage_options *options, struct model_store *out,
                     struct penstock_error *error)
{
    *out = (struct model_store){ .directory = model_directory_absolute(directory), .manifest_file.fd = -1 };
    if (!out->directory) {
        int cause = errno, code = base_error_sys(error, cause, "store %s", directory);
        if (cause == ENOENT && error)
            error->code = PENSTOCK_ENOTFOUND;
        return cause == ENOENT ? PENSTOCK_ENOTFOUND : code;
    }
    struct model_root root;
    out->name = model_directory_name(out->directory);
    int status = out->name ? 0 : base_error_set(error, PENSTOCK_ENOMEM, "no memory to open the store");
    if (status == 0)
        status = model_root_open(out->directory, options && options->follow_all_links, &root, error);
    if (status == 0) {
        status = open_files(&root, out, error);
        model_root_close(&root);
    }
    if (status != 0) {
        (void)base_error_in(error, "store %s", out->directory);
        model_store_close(out);
    }
    return status;
}

void model_store_close(struct model_store *store)
{
    base_vec_for_each (layer, &store->layers)
        close(layer->fd);
    base_vec_free(&store->layers);
    if (store->manifest_file.fd >= 0)
        close(store->manifest_file.fd);
    model_expert_manifest_fini(&store->manifest);
    free(store->directory);
    free(store->name);
    *store = (struct model_store){ .manifest_file.fd = -1 };
}

enum model_change model_store_changed(const struct model_store *store)
{
    char name[MODEL_LAYER_NAME_BYTES];
    /* What cannot be looked at (too many open files, a server that is away) is no change. */
    int directory = open(store->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 && errno != ENOENT && errno != ENOTDIR)
        return MODEL_SAME;
    enum model_change change = model_file_changed(directory, &store->manifest_file, MODEL_STORE_MANIFEST);
    /* Nobody was promised the manifest's own bytes: they were read when the store was opened. */
    if (change == MODEL_REWRITTEN)
        change = MODEL_REPLACED;
    for (uint32_t layer = 0; layer < store->layers.n && change != MODEL_REWRITTEN; layer++) {
        enum model_change one = model_file_changed(directory, &store->layers.at[layer], model_layer_name(layer, name));
        change = one > change ? one : change;
    }
    if (directory >= 0)
        close(directory);
    return change;
}

/* The first len bytes of a record. */
static int read_record(const struct model_store *store, uint32_t layer, uint32_t expert, uint8_t *to, uint64_t len,
                       struct penstock_record_header *header, struct penstock_error *error)
{
    const struct model_expert_geometry *g = &store->manifest.geometry;
    char name[MODEL_LAYER_NAME_BYTES];
    if (layer >= g->num_moe_layers)
        return base_error_set(error, PENSTOCK_EINVAL, "store %s: layer %" PRIu32 " of %" PRIu32, store->directory,
                              layer, g->num_moe_layers);
    if (expert >= g->num_experts)
        return base_error_set(error, PENSTOCK_EINVAL, "store %s: layer %" PRIu32 ": expert %" PRIu32 " of %" PRIu32,
                              store->directory, layer, expert, g->num_experts);
    int status = model_pread(store->layers.at[layer].fd, to, (size_t)len, model_expert_record_at(g, expert), error);
    if (status != 0)
        (void)base_error_in(error, "layer %" PRIu32 ", expert %" PRIu32, layer, expert);
    else
        status = model_expert_header_check(g, layer, expert, to, header, error);
    if (status != 0)
        (void)base_error_in(error, "%s/%s", store->directory, model_layer_name(layer, name));
    return status;
}

int model_store_header(const struct model_store *store, uint32_t layer, uint32_t expert,
                       struct penstock_record_header *header, struct penstock_error *error)
{
    uint8_t bytes[PENSTOCK_RECORD_HEADER_BYTES];
    return read_record(store, layer, expert, bytes, sizeof bytes, header, error);
}

int model_store_record(const struct model_store *store, uint32_t layer, uint32_t expert, uint8_t *record,
                       struct penstock_record_header *header, struct penstock_error *error)
{
    return read_record(store, layer, expert, record, store->manifest.geometry.record_stride, header, error);
}

bool model_store_likely(const char *directory)
{
    static const char *const names[] = { MODEL_STORE_MANIFEST, MODEL_STORE_PLAN, "experts_00000.xpr" };
    struct model_root root;
    if (model_root_open(directory, false, &root, NULL) != 0)
        return false;
    bool likely = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        likely |= is_there(&root, names[i]);
    model_root_close(&root);
    return likely;
}
