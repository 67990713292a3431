#include "manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/experts/store.h"
#include "json/json.h"
#include "json/write.h"

static int no_memory(struct penstock_error *error)
{
    return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the manifest");
}

int model_expert_manifest_init(struct model_expert_manifest *out, const struct model_expert_geometry *given,
                               const uint32_t *model_layers, struct penstock_error *error)
{
    *out = (struct model_expert_manifest){ .geometry = *given };
    int status = model_expert_geometry_compute(&out->geometry, error);
    if (status == 0) {
        size_t bytes = out->geometry.num_moe_layers * sizeof *model_layers;
        out->model_layers = malloc(bytes);
        if (out->model_layers)
            memcpy(out->model_layers, model_layers, bytes);
        else
            status = no_memory(error);
    }
    if (status != 0)
        model_expert_manifest_fini(out);
    return status;
}

void model_expert_manifest_fini(struct model_expert_manifest *manifest)
{
    free(manifest->model_layers);
    *manifest = (struct model_expert_manifest){ 0 };
}

bool model_expert_manifest_same(const struct model_expert_manifest *a, const struct model_expert_manifest *b)
{
    const struct model_expert_geometry *x = &a->geometry, *y = &b->geometry;
    return x->num_moe_layers == y->num_moe_layers && x->num_experts == y->num_experts && x->inter == y->inter &&
           x->hidden == y->hidden && x->group_size == y->group_size && x->sub_align == y->sub_align &&
           x->fs_block_size == y->fs_block_size &&
           memcmp(a->model_layers, b->model_layers, x->num_moe_layers * sizeof *a->model_layers) == 0;
}

int model_expert_manifest_write(const struct model_expert_manifest *manifest, bool pretty, struct base_buf *out,
                                struct penstock_error *error)
{
    const struct model_expert_geometry *g = &manifest->geometry;
    struct json_writer w = { .buf = out, .pretty = pretty };
    json_write_object(&w);
    json_write_key_u64(&w, "version", 1);
    json_write_key_u64(&w, "num_moe_layers", g->num_moe_layers);
    json_write_key_u64(&w, "num_experts", g->num_experts);
    json_write_key_u64(&w, "inter", g->inter);
    json_write_key_u64(&w, "hidden", g->hidden);
    json_write_key_u64(&w, "group_size", g->group_size);
    json_write_key_u64(&w, "sub_align", g->sub_align);
    json_write_key_u64(&w, "fs_block_size", g->fs_block_size);
    json_write_key_u64(&w, "record_stride", g->record_stride);
    json_write_key_u64(&w, "record_raw_bytes", g->record_raw_bytes);
    json_write_key_text(&w, "file_template", MODEL_STORE_TEMPLATE);
    json_write_key(&w, "moe_layer_to_model_layer");
    json_write_array(&w);
    for (uint32_t i = 0; i < g->num_moe_layers; i++)
        json_write_u64(&w, manifest->model_layers[i]);
    json_write_array_end(&w);
    if (manifest->model_version[0] != 0)
        json_write_key_text(&w, "model_version", manifest->model_version);
    json_write_object_end(&w);
    if (pretty)
        base_buf_append(out, "\n", 1);
    return out->failed ? no_memory(error) : 0;
}

/* ---- reading ---- */

struct claims {
    uint64_t record_stride, record_raw_bytes;
};

static int get_numbers(const struct json_value *root, struct model_expert_geometry *g, struct claims *claims,
                       struct penstock_error *error)
{
    uint64_t version = 0;
    int status = json_get_u64(root, "version", UINT64_MAX, &version, error);
    if (status == 0 && version != 1)
        return base_error_set(error, PENSTOCK_EPROTO, "version: %" PRIu64 ", and this side knows 1", version);
    const struct {
        const char *key;
        uint32_t *to;
    } fields[] = {
        { "num_moe_layers", &g->num_moe_layers },
        { "num_experts", &g->num_experts },
        { "inter", &g->inter },
        { "hidden", &g->hidden },
        { "group_size", &g->group_size },
        { "sub_align", &g->sub_align },
        { "fs_block_size", &g->fs_block_size },
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields && status == 0; i++) {
        uint64_t value = 0;
        status = json_get_u64(root, fields[i].key, UINT32_MAX, &value, error);
        *fields[i].to = (uint32_t)value;
    }
    if (status == 0)
        status = json_get_u64(root, "record_stride", UINT64_MAX, &claims->record_stride, error);
    return status == 0 ? json_get_u64(root, "record_raw_bytes", UINT64_MAX, &claims->record_raw_bytes, error) : status;
}

static int check_claims(struct model_expert_geometry *g, const struct claims *claims, struct penstock_error *error)
{
    int status = model_expert_geometry_compute(g, error);
    if (status != 0) {
        if (error)
            error->code = PENSTOCK_EPROTO;
        return PENSTOCK_EPROTO;
    }
    if (claims->record_raw_bytes != g->record_raw_bytes)
        return base_error_set(error, PENSTOCK_EPROTO, "record_raw_bytes: %" PRIu64 ", but the sizes make %" PRIu64,
                              claims->record_raw_bytes, g->record_raw_bytes);
    if (claims->record_stride != g->record_stride)
        return base_error_set(error, PENSTOCK_EPROTO, "record_stride: %" PRIu64 ", but the sizes make %" PRIu64,
                              claims->record_stride, g->record_stride);
    return 0;
}

static int get_model_layers(const struct json_value *root, struct model_expert_manifest *out,
                            struct penstock_error *error)
{
    const struct json_value *layers = NULL;
    int status = json_get_array(root, "moe_layer_to_model_layer", &layers, error);
    if (status != 0)
        return status;
    size_t n = layers->array.n;
    if (n != out->geometry.num_moe_layers)
        return base_error_set(error, PENSTOCK_EPROTO,
                              "moe_layer_to_model_layer: %zu entries, and num_moe_layers is %" PRIu32, n,
                              out->geometry.num_moe_layers);
    out->model_layers = malloc(n * sizeof *out->model_layers);
    if (!out->model_layers)
        return no_memory(error);
    for (size_t i = 0; i < n; i++) {
        const struct json_value *layer = &layers->array.at[i];
        if (layer->type != JSON_U64 || layer->u64 > UINT32_MAX)
            return base_error_set(error, PENSTOCK_EPROTO, "moe_layer_to_model_layer: entry %zu is no layer", i);
        out->model_layers[i] = (uint32_t)layer->u64;
    }
    return 0;
}

/* An extension (protocol 2.4): what is not there is not missed. */
static int get_version(const struct json_value *root, struct model_expert_manifest *out, struct penstock_error *error)
{
    const struct json_value *version = json_find(root, "model_version");
    if (!version)
        return 0;
    if (version->type != JSON_STRING || !penstock_model_version_valid(version->string.at, version->string.len))
        return base_error_set(error, PENSTOCK_EPROTO, "model_version: not 1 to 128 printable characters");
    memcpy(out->model_version, version->string.at, version->string.len);
    return 0;
}

static int read_root(const struct json_value *root, struct model_expert_manifest *out, struct penstock_error *error)
{
    struct claims claims = { 0 };
    const char *file_template = NULL;
    if (root->type != JSON_OBJECT)
        return base_error_set(error, PENSTOCK_EPROTO, "not a JSON object");
    int status = json_unique_keys(root, error);
    if (status == 0)
        status = get_numbers(root, &out->geometry, &claims, error);
    if (status == 0)
        status = json_get_string(root, "file_template", &file_template, error);
    if (status == 0 && strcmp(file_template, MODEL_STORE_TEMPLATE) != 0)
        return base_error_set(error, PENSTOCK_EPROTO, "file_template: \"%.100s\", not \"" MODEL_STORE_TEMPLATE "\"",
                              file_template);
    if (status == 0)
        status = check_claims(&out->geometry, &claims, error);
    if (status == 0)
        status = get_model_layers(root, out, error);
    return status == 0 ? get_version(root, out, error) : status;
}

int model_expert_manifest_read(const char *json, size_t len, struct model_expert_manifest *out,
                               struct penstock_error *error)
{
    struct json_doc doc;
    *out = (struct model_expert_manifest){ 0 };
    int status = json_parse(json, len, &doc, error);
    if (status == PENSTOCK_ECORRUPT) {
        status = PENSTOCK_EPROTO;
        if (error)
            error->code = status;
    }
    if (status == 0) {
        status = read_root(&doc.root, out, error);
        json_doc_fini(&doc);
    }
    if (status == 0)
        return 0;
    model_expert_manifest_fini(out);
    (void)base_error_in(error, "manifest");
    return status;
}
