#include "checkpoint.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"

#define NO_EXPERT UINT32_MAX
#define NUMBER_MAX 0xFFFFFF

static const char *const kinds[] = { "weight_packed", "weight_scale", "weight_global_scale", "input_global_scale" };
static const char *const projections[] = { "gate_proj", "up_proj", "down_proj" };

/* A name that says of an expert, or of a router, that its layer is one of a mixture. */
struct place {
    const char *name;
    size_t prefix_len;
    uint32_t layer, expert; /* NO_EXPERT: the router */
    int projection, kind;   /* kind -1: an expert's tensor, but none of the four */
    const struct penstock_tensor *tensor;
};

struct search {
    struct model_checkpoint *out;
    BASE_VEC(struct place) places;
    BASE_VEC(uint32_t) layers; /* as the model counts, ascending */
    struct penstock_error *error;
};

/* ---- names ---- */

/* Digits up to a dot; NULL where they are none, or too many. */
static const char *number(const char *at, uint32_t *out)
{
    const char *from = at;
    uint32_t n = 0;
    for (; *at >= '0' && *at <= '9' && n <= NUMBER_MAX; at++)
        n = n * 10 + (uint32_t)(*at - '0');
    *out = n;
    return at != from && *at == '.' && n <= NUMBER_MAX ? at + 1 : NULL;
}

static int one_of(const char *const *words, size_t n, const char *text, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(words[i]) == len && memcmp(words[i], text, len) == 0)
            return (int)i;
    return -1;
}

static bool parse(const char *name, struct place *out)
{
    const char *layers = strstr(name, ".layers."), *at = layers ? number(layers + 8, &out->layer) : NULL;
    if (!at || layers == name)
        return false;
    out->name = name;
    out->prefix_len = (size_t)(layers - name);
    out->expert = NO_EXPERT;
    out->projection = out->kind = -1;
    if (strcmp(at, "mlp.gate.weight") == 0)
        return true;
    if (strncmp(at, "mlp.experts.", 12) != 0 || !(at = number(at + 12, &out->expert)))
        return false;
    const char *dot = strchr(at, '.');
    if (dot) {
        out->projection = one_of(projections, MODEL_EXPERT_PROJECTIONS, at, (size_t)(dot - at));
        out->kind = one_of(kinds, MODEL_CHECKPOINT_KINDS, dot + 1, strlen(dot + 1));
    }
    return true;
}

static bool is_packed(const struct place *p)
{
    return p->expert != NO_EXPERT && p->projection >= 0 && p->kind >= 0;
}

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    size_t shorter = x->prefix_len < y->prefix_len ? x->prefix_len : y->prefix_len;
    int order = memcmp(x->name, y->name, shorter);
    if (order != 0)
        return order;
    if (x->prefix_len != y->prefix_len)
        return x->prefix_len < y->prefix_len ? -1 : 1;
    return x->layer < y->layer ? -1 : x->layer > y->layer;
}

static bool same_prefix(const struct place *a, const struct place *b)
{
    return a->prefix_len == b->prefix_len && memcmp(a->name, b->name, a->prefix_len) == 0;
}

static int collect(struct search *s)
{
    bool experts = false;
    base_vec_for_each (tensor, &s->out->staged.manifest.tensors) {
        struct place place;
        if (!parse(tensor->name, &place))
            continue;
        place.tensor = tensor;
        experts |= place.expert != NO_EXPERT;
        if ((is_packed(&place) || place.expert == NO_EXPERT) && !base_vec_push(&s->places, place))
            return base_error_set(s->error, PENSTOCK_ENOMEM, "no memory");
    }
    for (size_t i = 0; i < s->places.n; i++)
        if (is_packed(&s->places.at[i]))
            return 0;
    return base_error_set(s->error, PENSTOCK_ENOTFOUND,
                          experts ? "its experts are not packed as compressed-tensors' NVFP4: no tensor is called "
                                    "PREFIX.layers.L.mlp.experts.E.{gate,up,down}_proj.weight_packed"
                                  : "no layer has experts: no tensor is called "
                                    "PREFIX.layers.L.mlp.experts.E.{gate,up,down}_proj.weight_packed");
}

/* Sorts, and keeps the prefix with most experts' tensors: beside the model there may be a small one that guesses. */
static int choose_prefix(struct search *s)
{
    size_t best = 0, best_n = 0, best_end = 0, all = 0;
    qsort(s->places.at, s->places.n, sizeof *s->places.at, compare_places);
    for (size_t from = 0, to; from < s->places.n; from = to) {
        size_t n = 0;
        for (to = from; to < s->places.n && same_prefix(&s->places.at[from], &s->places.at[to]); to++)
            n += is_packed(&s->places.at[to]);
        all += n;
        if (n > best_n) {
            best = from;
            best_n = n;
            best_end = to;
        }
    }
    s->out->other_prefixes = all - best_n;
    s->out->prefix = strndup(s->places.at[best].name, s->places.at[best].prefix_len);
    memmove(s->places.at, s->places.at + best, (best_end - best) * sizeof *s->places.at);
    s->places.n = best_end - best;
    return s->out->prefix ? 0 : base_error_set(s->error, PENSTOCK_ENOMEM, "no memory");
}

/* ---- the table ---- */

/* Which layers there are, and how many experts. */
static int count(struct search *s, uint32_t layers_max, uint32_t *experts)
{
    *experts = 0;
    base_vec_for_each (place, &s->places) {
        if (s->layers.n == 0 || s->layers.at[s->layers.n - 1] != place->layer) {
            if (layers_max != 0 && s->layers.n == layers_max)
                break;
            if (!base_vec_push(&s->layers, place->layer))
                return base_error_set(s->error, PENSTOCK_ENOMEM, "no memory");
        }
        if (place->expert != NO_EXPERT && place->expert >= *experts)
            *experts = place->expert + 1;
    }
    if (layers_max > s->layers.n)
        return base_error_set(s->error, PENSTOCK_EINVAL, "it has %zu MoE layers, not %" PRIu32, s->layers.n,
                              layers_max);
    if (s->layers.n > PENSTOCK_LAYERS_MAX)
        return base_error_set(s->error, PENSTOCK_ELIMIT, "%zu MoE layers: a store has at most %d", s->layers.n,
                              (int)PENSTOCK_LAYERS_MAX);
    if (*experts > s->places.n || *experts == 0)
        return base_error_set(s->error, PENSTOCK_ECORRUPT,
                              "layer %" PRIu32 ": %" PRIu32 " experts by their numbers, and %zu tensors in all",
                              s->layers.at[0], *experts, s->places.n);
    return 0;
}

static int fill(struct search *s, uint32_t experts)
{
    struct model_checkpoint *c = s->out;
    c->projections = calloc(s->layers.n * experts * MODEL_EXPERT_PROJECTIONS, sizeof *c->projections);
    if (!c->projections)
        return base_error_set(s->error, PENSTOCK_ENOMEM, "no memory");
    size_t layer = 0;
    base_vec_for_each (place, &s->places) {
        while (layer < s->layers.n && s->layers.at[layer] != place->layer)
            layer++;
        if (layer == s->layers.n)
            break;
        if (place->expert == NO_EXPERT)
            continue;
        const struct penstock_tensor **tensor =
            &c->projections[(layer * experts + place->expert) * MODEL_EXPERT_PROJECTIONS + (size_t)place->projection]
                 .of[place->kind];
        if (*tensor) /* numbers may be written with zeros in front */
            return base_error_set(s->error, PENSTOCK_ECORRUPT, "%s and %s are one tensor by their numbers",
                                  (*tensor)->name, place->name);
        *tensor = place->tensor;
    }
    return 0;
}

static int missing(struct search *s, size_t layer, uint32_t expert, size_t projection, int kind, bool none_at_all)
{
    if (none_at_all)
        return base_error_set(s->error, PENSTOCK_ECORRUPT, "layer %" PRIu32 " has a router (mlp.gate) and no experts",
                              s->layers.at[layer]);
    return base_error_set(
        s->error, PENSTOCK_ECORRUPT,
        "layer %" PRIu32 ": expert %" PRIu32 ": %s.layers.%" PRIu32 ".mlp.experts.%" PRIu32 ".%s.%s: no shard has it",
        s->layers.at[layer], expert, s->out->prefix, s->layers.at[layer], expert, projections[projection], kinds[kind]);
}

static int check_complete(struct search *s, uint32_t experts)
{
    const struct model_checkpoint_projection *p = s->out->projections;
    for (size_t layer = 0; layer < s->layers.n; layer++) {
        bool any = false;
        for (size_t i = 0; i < (size_t)experts * MODEL_EXPERT_PROJECTIONS * MODEL_CHECKPOINT_KINDS && !any; i++)
            any = p[i / MODEL_CHECKPOINT_KINDS].of[i % MODEL_CHECKPOINT_KINDS] != NULL;
        for (uint32_t expert = 0; expert < experts; expert++)
            for (size_t projection = 0; projection < MODEL_EXPERT_PROJECTIONS; projection++, p++)
                for (int kind = 0; kind < MODEL_CHECKPOINT_INPUT; kind++)
                    if (!p->of[kind])
                        return missing(s, layer, expert, projection, kind, !any);
    }
    return 0;
}

/* ---- sizes ---- */

int model_checkpoint_where(const struct model_checkpoint *checkpoint, uint32_t layer, uint32_t expert,
                           const struct penstock_tensor *tensor, struct penstock_error *error)
{
    return base_error_in(error, "%s/%s: layer %" PRIu32 ": expert %" PRIu32 ": %s", checkpoint->staged.directory,
                         checkpoint->staged.manifest.shards.at[tensor->shard].name,
                         checkpoint->manifest.model_layers[layer], expert, tensor->name);
}

/* From the first expert's gate; *at: the tensor that is at fault. */
static int find_sizes_at(struct search *s, uint32_t experts, const struct penstock_tensor **at)
{
    const struct penstock_tensor *packed = s->out->projections->of[MODEL_CHECKPOINT_PACKED];
    const struct penstock_tensor *scale = s->out->projections->of[MODEL_CHECKPOINT_SCALE];
    struct model_expert_geometry given = { .num_moe_layers = (uint32_t)s->layers.n,
                                           .num_experts = experts,
                                           .sub_align = MODEL_EXPERT_SUB_ALIGN,
                                           .fs_block_size = MODEL_EXPERT_FS_BLOCK };
    *at = packed;
    if (packed->rank != 2 || packed->shape[0] > UINT32_MAX || packed->shape[1] == 0 ||
        packed->shape[1] > UINT32_MAX / 2)
        return base_error_set(s->error, PENSTOCK_ECORRUPT, "not a matrix [N, K / 2]");
    given.inter = (uint32_t)packed->shape[0];
    given.hidden = (uint32_t)packed->shape[1] * 2;
    *at = scale;
    if (scale->rank != 2 || scale->shape[1] == 0 || given.hidden % scale->shape[1] != 0)
        return base_error_set(s->error, PENSTOCK_ECORRUPT, "not a matrix [N, K / group_size] with a K of %" PRIu32,
                              given.hidden);
    given.group_size = (uint32_t)(given.hidden / scale->shape[1]);
    *at = packed;
    return model_expert_manifest_init(&s->out->manifest, &given, s->layers.at, s->error);
}

static int find_sizes(struct search *s, uint32_t experts)
{
    const struct penstock_tensor *at;
    int status = find_sizes_at(s, experts, &at);
    if (status != 0)
        (void)base_error_in(s->error, "%s/%s: layer %" PRIu32 ": expert 0: %s", s->out->staged.directory,
                            s->out->staged.manifest.shards.at[at->shard].name, s->layers.at[0], at->name);
    return status;
}

static int check_matrix(const struct penstock_tensor *tensor, const char *dtype, uint64_t rows, uint64_t cols,
                        struct penstock_error *error)
{
    if (strcmp(tensor->dtype, dtype) != 0)
        return base_error_set(error, PENSTOCK_ECORRUPT, "dtype %s, not %s", tensor->dtype, dtype);
    if (tensor->rank != 2)
        return base_error_set(error, PENSTOCK_ECORRUPT, "%" PRIu64 " dimensions, not 2", tensor->rank);
    if (tensor->shape[0] != rows || tensor->shape[1] != cols)
        return base_error_set(error, PENSTOCK_ECORRUPT,
                              "shape [%" PRIu64 ", %" PRIu64 "], where the first expert's sizes ask for [%" PRIu64
                              ", %" PRIu64 "]",
                              tensor->shape[0], tensor->shape[1], rows, cols);
    return 0;
}

static int check_tensor(const struct model_expert_geometry *g, size_t projection, int kind,
                        const struct penstock_tensor *tensor, struct penstock_error *error)
{
    enum model_expert_part part = (enum model_expert_part)(2 * projection);
    uint64_t rows = model_expert_rows(g, part), cols = model_expert_columns(g, part);
    if (kind == MODEL_CHECKPOINT_PACKED)
        return check_matrix(tensor, "U8", rows, cols / 2, error);
    if (kind == MODEL_CHECKPOINT_SCALE)
        return check_matrix(tensor, "F8_E4M3", rows, cols / g->group_size, error);
    if (strcmp(tensor->dtype, "F32") != 0 || tensor->len_bytes != 4)
        return base_error_set(error, PENSTOCK_ECORRUPT, "%s of %" PRIu64 " bytes, not one F32", tensor->dtype,
                              tensor->len_bytes);
    return 0;
}

static int check_sizes(struct search *s)
{
    const struct model_checkpoint *c = s->out;
    const struct model_expert_geometry *g = &c->manifest.geometry;
    for (uint32_t layer = 0; layer < g->num_moe_layers; layer++)
        for (uint32_t expert = 0; expert < g->num_experts; expert++) {
            const struct model_checkpoint_projection *p = model_checkpoint_expert(c, layer, expert);
            for (size_t i = 0; i < MODEL_EXPERT_PROJECTIONS * MODEL_CHECKPOINT_KINDS; i++) {
                size_t projection = i / MODEL_CHECKPOINT_KINDS;
                int kind = (int)(i % MODEL_CHECKPOINT_KINDS);
                const struct penstock_tensor *tensor = p[projection].of[kind];
                if (tensor && check_tensor(g, projection, kind, tensor, s->error) != 0)
                    return model_checkpoint_where(c, layer, expert, tensor, s->error);
            }
        }
    return 0;
}

/* ---- which state of it ---- */

static int make_source(struct model_checkpoint *c, struct penstock_error *error)
{
    struct model_version_hash hash;
    int status = model_version_begin(&hash, error);
    if (status != 0)
        return status;
    for (size_t i = 0; i < c->staged.manifest.shards.n; i++)
        model_version_add(&hash, c->staged.manifest.shards.at[i].name, &c->staged.opened.at[i].identity);
    model_version_end(&hash, c->source);
    return 0;
}

int model_checkpoint_unchanged(const struct model_checkpoint *checkpoint, struct penstock_error *error)
{
    const struct model_staged *staged = &checkpoint->staged;
    int directory = open(staged->directory, O_PATH | O_DIRECTORY | O_CLOEXEC), status = 0;
    for (size_t i = 0; i < staged->manifest.shards.n && status == 0; i++) {
        const char *name = staged->manifest.shards.at[i].name;
        if (model_file_changed(directory, &staged->opened.at[i], name) == MODEL_REWRITTEN)
            status = base_error_set(error, PENSTOCK_ESTALE, "%s/%s was written to meanwhile", staged->directory, name);
    }
    if (directory >= 0)
        close(directory);
    return status;
}

/* ---- opening ---- */

static int find_experts(struct search *s, uint32_t layers)
{
    uint32_t experts;
    int status = collect(s);
    if (status == 0)
        status = choose_prefix(s);
    if (status == 0)
        status = count(s, layers, &experts);
    if (status == 0)
        status = fill(s, experts);
    if (status == 0)
        status = check_complete(s, experts);
    if (status == 0)
        status = find_sizes(s, experts);
    if (status == 0)
        status = check_sizes(s);
    return status == 0 ? make_source(s->out, s->error) : status;
}

int model_checkpoint_open(const char *directory, uint32_t layers, const struct model_stage_options *options,
                          struct model_checkpoint *out, struct penstock_error *error)
{
    *out = (struct model_checkpoint){ 0 };
    struct penstock_error words = { 0 };
    int status = model_stage(directory, options, &out->staged, &words);
    if (status == 0) {
        struct search s = { .out = out, .error = &words };
        status = find_experts(&s, layers);
        base_vec_free(&s.places);
        base_vec_free(&s.layers);
        if (status != 0)
            (void)base_error_in(&words, "checkpoint %s", directory);
    }
    if (status == 0)
        return 0;
    if (error)
        *error = words;
    model_checkpoint_close(out);
    return status;
}

void model_checkpoint_close(struct model_checkpoint *checkpoint)
{
    model_expert_manifest_fini(&checkpoint->manifest);
    free(checkpoint->projections);
    free(checkpoint->prefix);
    model_staged_fini(&checkpoint->staged);
    *checkpoint = (struct model_checkpoint){ 0 };
}
