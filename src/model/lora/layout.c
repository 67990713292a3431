#include "model/lora/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/dtype.h"
#include "model/lora/name.h"

#define BF16_BYTES 2

/* ---- tensors ---- */

struct found {
    struct model_lora_name name;
    const struct penstock_tensor *tensor;
};
typedef BASE_VEC(struct found) found_vec;

static int no_memory(struct penstock_error *error)
{
    return base_error_set(error, PENSTOCK_ENOMEM, "no memory for an adapter's layout");
}

static int compare_places(uint64_t a_layer, const char *a, size_t a_len, uint64_t b_layer, const char *b, size_t b_len)
{
    if (a_layer != b_layer)
        return a_layer < b_layer ? -1 : 1;
    return model_lora_module_compare(a, a_len, b, b_len);
}

static bool same_place(const struct found *a, const struct found *b)
{
    return compare_places(a->name.layer, a->name.module, a->name.module_len, b->name.layer, b->name.module,
                          b->name.module_len) == 0;
}

static int compare_found(const void *x, const void *y)
{
    const struct found *a = x, *b = y;
    int order = compare_places(a->name.layer, a->name.module, a->name.module_len, b->name.layer, b->name.module,
                               b->name.module_len);
    return order ? order : (int)a->name.matrix - (int)b->name.matrix;
}

static int find_matrices(const struct model_manifest *manifest, struct model_lora_layout *out, found_vec *found,
                         struct penstock_error *error)
{
    base_vec_for_each (t, &manifest->tensors) {
        struct found f = { .tensor = t };
        int code = model_lora_name_read(t->name, &f.name, error);
        if (code)
            return code;
        if (f.name.matrix == MODEL_LORA_NEITHER ? !base_vec_push(&out->left_out, t->name) : !base_vec_push(found, f))
            return no_memory(error);
    }
    if (found->n == 0)
        return base_error_set(error, PENSTOCK_ENOTFOUND, "no tensor is a LoRA matrix of a layer");
    qsort(found->at, found->n, sizeof *found->at, compare_found);
    return 0;
}

static int check_tensor(const struct penstock_tensor *t, struct penstock_error *error)
{
    uint64_t bytes;
    bool f32 = strcmp(t->dtype, "F32") == 0;
    if (!f32 && strcmp(t->dtype, "F16") != 0 && strcmp(t->dtype, "BF16") != 0)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "tensor \"%.200s\": dtype %.50s is none of F32, F16, BF16",
                              t->name, t->dtype);
    if (t->rank != 2)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "tensor \"%.200s\": not supported: it has %" PRIu64 " dimensions, not 2", t->name,
                              t->rank);
    if (t->shape[0] == 0 || t->shape[1] == 0)
        return base_error_set(error, PENSTOCK_ECORRUPT, "tensor \"%.200s\": it is empty", t->name);
    if (!model_dtype_bytes(f32 ? 32 : 16, t->shape, 2, &bytes) || bytes != t->len_bytes)
        return base_error_set(error, PENSTOCK_ECORRUPT, "tensor \"%.200s\": its shape and its length disagree",
                              t->name);
    return 0;
}

/* Whether the matrix a and what comes behind it in order are those of one module. */
static int check_pair(const struct found *a, bool last, struct penstock_error *error)
{
    const struct found *next = a + 1;
    bool pair = !last && same_place(a, next);
    if (pair && a->name.matrix == next->name.matrix)
        return base_error_set(error, PENSTOCK_ECORRUPT, "tensors \"%.180s\" and \"%.180s\": two for one place",
                              a->tensor->name, next->tensor->name);
    if (!pair)
        return base_error_set(error, PENSTOCK_ECORRUPT, "tensor \"%.200s\": there is no lora_%c for it",
                              a->tensor->name, a->name.matrix == MODEL_LORA_A ? 'B' : 'A');
    return 0;
}

static int check_rank(const struct found *a, const struct penstock_tensor *b, uint64_t rank, uint64_t max_rank,
                      struct penstock_error *error)
{
    if (a->tensor->shape[0] != b->shape[1])
        return base_error_set(error, PENSTOCK_ECORRUPT,
                              "tensors \"%.150s\" and \"%.150s\": %" PRIu64 " rows, but %" PRIu64 " columns",
                              a->tensor->name, b->name, a->tensor->shape[0], b->shape[1]);
    if (a->tensor->shape[0] != rank)
        return base_error_set(error, PENSTOCK_ECORRUPT,
                              "tensor \"%.200s\": its rank is %" PRIu64 ", and %" PRIu64 " by " MODEL_LORA_CONFIG_NAME,
                              a->tensor->name, a->tensor->shape[0], rank);
    if (rank > max_rank)
        return base_error_set(error, PENSTOCK_ELIMIT,
                              "tensor \"%.200s\": its rank is %" PRIu64 ", above the slot's max_rank of %" PRIu64,
                              a->tensor->name, rank, max_rank);
    return 0;
}

/* Entries and sources of all modules, without offsets. */
static int pair_matrices(const struct model_lora_config *config, uint64_t max_rank, const found_vec *found,
                         struct model_lora_layout *out, struct penstock_error *error)
{
    uint64_t effort = 0;
    for (size_t i = 0; i < found->n; i += 2) {
        const struct found *a = &found->at[i], *b = a + 1;
        uint64_t rank = 0;
        struct penstock_lora_entry e;
        int code = check_pair(a, i + 1 == found->n, error);
        code = code ? code : check_tensor(a->tensor, error);
        code = code ? code : check_tensor(b->tensor, error);
        if (code == 0) {
            code = model_lora_config_for(config, a->name.path, a->name.path_len, &effort, &rank, &e.scale, error);
            if (code)
                base_error_in(error, "tensor \"%.200s\"", a->tensor->name);
        }
        code = code ? code : check_rank(a, b->tensor, rank, max_rank, error);
        if (code == 0 && i + 2 < found->n && same_place(a, a + 2))
            code = check_pair(b, false, error); /* a second B: A's come first */
        if (code)
            return code;
        e = (struct penstock_lora_entry){ .module = base_pool_string(&out->pool, a->name.module, a->name.module_len),
                                          .layer = a->name.layer,
                                          .in = a->tensor->shape[1],
                                          .out = b->tensor->shape[0],
                                          .rank = rank,
                                          .scale = e.scale };
        const struct model_lora_source from = { .a = a->tensor, .b = b->tensor };
        if (!e.module || !base_vec_push(&out->entries, e) || !base_vec_push(&out->sources, from))
            return no_memory(error);
    }
    return 0;
}

/* ---- places ---- */

static int compare_slot_places(const void *x, const void *y)
{
    const struct penstock_lora_place *a = x, *b = y;
    return compare_places(a->layer, a->module, strlen(a->module), b->layer, b->module, strlen(b->module));
}

static int sort_places(const struct model_lora_slot *slot, struct penstock_lora_place **sorted,
                       struct penstock_error *error)
{
    size_t n = slot->n_places, bytes;
    for (size_t i = 0; i < n; i++) {
        const struct penstock_lora_place *p = &slot->places[i];
        if (!p->module || !*p->module || p->in == 0 || p->out == 0)
            return base_error_set(error, PENSTOCK_EINVAL, "the slot's place %zu: it has no module or no size", i);
    }
    *sorted = base_mul_size(n, sizeof **sorted, &bytes) ? malloc(bytes ? bytes : 1) : NULL;
    if (!*sorted)
        return no_memory(error);
    memcpy(*sorted, slot->places, bytes);
    qsort(*sorted, n, sizeof **sorted, compare_slot_places);
    for (size_t i = 1; i < n; i++)
        if (compare_slot_places(*sorted + i - 1, *sorted + i) == 0)
            return base_error_set(error, PENSTOCK_EINVAL, "the slot's layout has layer %" PRIu64 " %.200s twice",
                                  (*sorted)[i].layer, (*sorted)[i].module);
    return 0;
}

static int compare_with_place(const struct penstock_lora_entry *e, const struct penstock_lora_place *p)
{
    return compare_places(e->layer, e->module, strlen(e->module), p->layer, p->module, strlen(p->module));
}

static int check_place(const struct penstock_lora_entry *e, const struct penstock_lora_place *p,
                       struct penstock_error *error)
{
    if (e->in == p->in && e->out == p->out)
        return 0;
    return base_error_set(error, PENSTOCK_EINVAL,
                          "layer %" PRIu64 " %.200s: it is [%" PRIu64 ", %" PRIu64 "] (out, in) in the adapter, and "
                          "[%" PRIu64 ", %" PRIu64 "] in the slot's layout",
                          e->layer, e->module, e->out, e->in, p->out, p->in);
}

/* From what the adapter has to what the slot has: entries of rank 0 where the adapter has nothing. */
static int spread(const struct penstock_lora_place *places, size_t n, struct model_lora_layout *out,
                  struct penstock_error *error)
{
    struct model_lora_layout all = { 0 };
    size_t i = 0;
    int code = 0;
    for (const struct penstock_lora_place *p = places; code == 0 && p != places + n; p++) {
        struct penstock_lora_entry e = { .layer = p->layer, .in = p->in, .out = p->out };
        struct model_lora_source from = { 0 };
        if (i < out->entries.n && compare_with_place(&out->entries.at[i], p) < 0)
            break; /* it has no place: said below */
        if (i < out->entries.n && compare_with_place(&out->entries.at[i], p) == 0) {
            e = out->entries.at[i];
            from = out->sources.at[i++];
            code = check_place(&e, p, error);
        } else {
            e.module = base_pool_string(&out->pool, p->module, strlen(p->module));
        }
        if (code == 0 && (!e.module || !base_vec_push(&all.entries, e) || !base_vec_push(&all.sources, from)))
            code = no_memory(error);
    }
    if (code == 0 && i < out->entries.n)
        code = base_error_set(error, PENSTOCK_EINVAL,
                              "tensor \"%.200s\": the slot's layout has no layer %" PRIu64 " %.150s",
                              out->sources.at[i].a->name, out->entries.at[i].layer, out->entries.at[i].module);
    if (code) {
        base_vec_free(&all.entries);
        base_vec_free(&all.sources);
        return code;
    }
    base_vec_free(&out->entries);
    base_vec_free(&out->sources);
    memcpy(&out->entries, &all.entries, sizeof all.entries);
    memcpy(&out->sources, &all.sources, sizeof all.sources);
    return 0;
}

static bool region(uint64_t max_rank, uint64_t width, uint64_t *end, uint64_t *offset, uint64_t *len)
{
    *offset = *end;
    return base_mul_u64(max_rank * BF16_BYTES, width, len) && base_add_u64(*end, *len, end) && *end <= SIZE_MAX;
}

static int lay_out(struct model_lora_layout *out, struct penstock_error *error)
{
    uint64_t end = 0;
    base_vec_for_each (e, &out->entries)
        if (!region(out->max_rank, e->in, &end, &e->a_offset_bytes, &e->a_len_bytes) ||
            !region(out->max_rank, e->out, &end, &e->b_offset_bytes, &e->b_len_bytes))
            return base_error_set(error, PENSTOCK_ELIMIT, "layer %" PRIu64 " %.200s: no slot can be so large", e->layer,
                                  e->module);
    out->slot_bytes = end;
    return 0;
}

int model_lora_layout_make(const struct model_manifest *manifest, const struct model_lora_config *config,
                           const struct model_lora_slot *slot, struct model_lora_layout *out,
                           struct penstock_error *error)
{
    found_vec found = { 0 };
    struct penstock_lora_place *places = NULL;
    *out = (struct model_lora_layout){ .max_rank = slot->max_rank };
    int code = 0;
    if (slot->max_rank == 0 || slot->max_rank > MODEL_LORA_RANK_MAX)
        code = base_error_set(error, PENSTOCK_EINVAL, "max_rank is %" PRIu64 ", and must be 1 to %" PRIu64,
                              slot->max_rank, MODEL_LORA_RANK_MAX);
    code = code ? code : find_matrices(manifest, out, &found, error);
    code = code ? code : pair_matrices(config, slot->max_rank, &found, out, error);
    if (code == 0 && slot->places) {
        code = sort_places(slot, &places, error);
        code = code ? code : spread(places, slot->n_places, out, error);
    }
    code = code ? code : lay_out(out, error);
    free(places);
    base_vec_free(&found);
    if (code)
        model_lora_layout_fini(out);
    return code;
}

void model_lora_layout_fini(struct model_lora_layout *layout)
{
    base_vec_free(&layout->entries);
    base_vec_free(&layout->sources);
    base_vec_free(&layout->left_out);
    base_pool_fini(&layout->pool);
    *layout = (struct model_lora_layout){ 0 };
}
