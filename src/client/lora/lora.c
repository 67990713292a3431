/* Opening an adapter: its config is read as any file of the model, and the layout of its slot made from it and the
 * catalogue. Protocol 1.5. */
#include "lora.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "client/session.h"
#include "client/weights/catalogue.h"

static int no_memory(struct penstock_error *error)
{
    return base_error_set(error, PENSTOCK_ENOMEM, "no memory for an adapter");
}

void client_lora_unref(struct penstock_lora *lora)
{
    if (!lora || atomic_fetch_sub_explicit(&lora->refs, 1, memory_order_acq_rel) != 1)
        return;
    model_lora_layout_fini(&lora->layout);
    penstock_catalogue_unref(lora->catalogue);
    base_pool_fini(&lora->pool);
    free(lora->ranges);
    free(lora->offsets);
    free(lora);
}

/* ---- from config and catalogue to a layout ---- */

struct piece {
    struct penstock_range range;
    uint64_t *at; /* where the entry keeps its place */
};

static int compare_pieces(const void *x, const void *y)
{
    const struct penstock_range *a = &((const struct piece *)x)->range, *b = &((const struct piece *)y)->range;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return a->offset_bytes < b->offset_bytes ? -1 : a->offset_bytes > b->offset_bytes;
}

static struct piece piece_of(const struct penstock_tensor *tensor, uint64_t *at)
{
    const struct penstock_range range = { .offset_bytes = tensor->offset_bytes,
                                          .len_bytes = tensor->len_bytes,
                                          .file = tensor->shard };
    return (struct piece){ .range = range, .at = at };
}

/* Matrices that touch in a file touch where they are gathered: they travel as one. */
static bool gather(struct penstock_lora *lora)
{
    size_t n = lora->layout.entries.n, used = 0;
    struct piece *pieces = calloc(n + 1, 2 * sizeof *pieces);
    lora->offsets = calloc(n + 1, sizeof *lora->offsets);
    lora->ranges = calloc(n + 1, 2 * sizeof *lora->ranges);
    bool ok = pieces && lora->offsets && lora->ranges;
    for (size_t i = 0; ok && i < n; i++) {
        const struct model_lora_source *from = &lora->layout.sources.at[i];
        if (!from->a)
            continue;
        pieces[used++] = piece_of(from->a, &lora->offsets[i].a);
        pieces[used++] = piece_of(from->b, &lora->offsets[i].b);
    }
    if (ok)
        qsort(pieces, used, sizeof *pieces, compare_pieces);
    for (size_t i = 0; ok && i < used; i++) {
        pieces[i].range.dst_bytes = *pieces[i].at = lora->pull_bytes;
        lora->ranges[i] = pieces[i].range;
        ok = base_add_u64(lora->pull_bytes, pieces[i].range.len_bytes, &lora->pull_bytes);
    }
    lora->n_ranges = used;
    free(pieces);
    return ok;
}

static int make(struct penstock_lora *lora, const char *config_text, size_t len, struct penstock_error *error)
{
    struct model_lora_config config;
    int code = model_lora_config_read(config_text, len, &config, error);
    if (code)
        return code;
    code = model_lora_layout_make(&lora->catalogue->manifest, &config, &lora->slot, &lora->layout, error);
    if (code == 0 && !gather(lora))
        code = no_memory(error);
    lora->rslora = config.rslora;
    lora->fan_in_fan_out = config.fan_in_fan_out;
    lora->open = code == 0;
    model_lora_config_fini(&config);
    return code;
}

/* ---- the operation ---- */

struct opening {
    struct client_then then;
    struct penstock_lora *lora;
    char *config;
    size_t config_len;
    uint32_t region;
};

static int opened(struct client_then *then, int code, struct penstock_error *error)
{
    struct opening *o = (struct opening *)then;
    if (code)
        return code;
    code = make(o->lora, o->config, o->config_len, error);
    if (code)
        base_error_in(error, "adapter %.150s", penstock_catalogue_model_id(o->lora->catalogue));
    return code;
}

static void forget_opening(struct penstock_session *s, struct client_then *then)
{
    struct opening *o = (struct opening *)then;
    (void)!penstock_unregister(s, o->region, NULL);
    client_lora_unref(o->lora);
    free(o->config);
    free(o);
}

/* The number of the config among the model's files. */
static int find_config(const struct penstock_catalogue *catalogue, struct penstock_range *range,
                       struct penstock_error *error)
{
    size_t shards = penstock_catalogue_shards(catalogue), files = shards + penstock_catalogue_files(catalogue);
    for (size_t i = shards; i < files; i++) {
        const struct penstock_file *file = penstock_catalogue_file(catalogue, i);
        if (!file->name || strcmp(file->name, MODEL_LORA_CONFIG_NAME) != 0)
            continue;
        if (file->len_bytes > MODEL_LORA_CONFIG_BYTES_MAX)
            return base_error_set(error, PENSTOCK_ELIMIT, MODEL_LORA_CONFIG_NAME ": it is above 16 MiB");
        *range = (struct penstock_range){ .len_bytes = file->len_bytes, .file = (uint32_t)i };
        return 0;
    }
    if (files == shards)
        return base_error_set(error, PENSTOCK_ENOTFOUND,
                              "the peer publishes no other files than shards: give it the text of the "
                              "adapter's " MODEL_LORA_CONFIG_NAME);
    return base_error_set(error, PENSTOCK_ENOTFOUND, "%.200s has no " MODEL_LORA_CONFIG_NAME ": it is no PEFT adapter",
                          penstock_catalogue_model_id(catalogue));
}

static bool copy_slot(struct penstock_lora *lora, const struct penstock_lora_options *o)
{
    size_t bytes;
    lora->slot = (struct model_lora_slot){ .max_rank = o->max_rank, .n_places = (size_t)o->n_places };
    if (!o->places)
        return true;
    if (!base_mul_size((size_t)o->n_places, sizeof *o->places, &bytes))
        return false;
    struct penstock_lora_place *places = base_pool_alloc(&lora->pool, bytes);
    if (!places)
        return false;
    for (size_t i = 0; i < lora->slot.n_places; i++) {
        places[i] = o->places[i];
        if (places[i].module &&
            !(places[i].module = base_pool_string(&lora->pool, places[i].module, strlen(places[i].module))))
            return false;
    }
    lora->slot.places = places;
    return true;
}

static struct penstock_lora *lora_new(struct penstock_catalogue *catalogue, const struct penstock_lora_options *o)
{
    struct penstock_lora *lora = calloc(1, sizeof *lora);
    if (!lora)
        return NULL;
    atomic_init(&lora->refs, 1);
    penstock_catalogue_ref(catalogue);
    lora->catalogue = catalogue;
    if (copy_slot(lora, o))
        return lora;
    client_lora_unref(lora);
    return NULL;
}

/* An opening, which has the one reference that there is, with room for the config, or with the caller's in it. */
static struct opening *opening_new(struct penstock_lora *lora, const struct penstock_lora_options *o, size_t len)
{
    struct opening *opening = calloc(1, sizeof *opening);
    if (!opening)
        return NULL;
    opening->then = (struct client_then){ .ended = opened, .free = forget_opening };
    opening->config_len = len;
    opening->config = malloc(len ? len : 1);
    if (!opening->config) {
        free(opening);
        return NULL;
    }
    if (o->config)
        memcpy(opening->config, o->config, len);
    opening->lora = lora;
    return opening;
}

static int submit(struct penstock_session *s, const struct penstock_lora_options *o, struct opening *opening,
                  const struct penstock_range *config, penstock_op *op, struct penstock_error *error)
{
    const struct penstock_memory memory = { .size = sizeof memory,
                                            .address = opening->config,
                                            .len_bytes = opening->config_len };
    int code = penstock_register(s, &memory, &opening->region, error);
    if (code)
        return code;
    const struct penstock_read read = { .size = sizeof read,
                                        .ranges = config,
                                        .count = o->config ? 0 : 1,
                                        .region = opening->region,
                                        .timeout_ns = o->timeout_ns,
                                        .user = o->user };
    code = client_submit(s, &read, &opening->then, op, error);
    if (code)
        (void)!penstock_unregister(s, opening->region, NULL);
    return code;
}

int penstock_lora_start(struct penstock_session *session, const struct penstock_lora_options *options,
                        struct penstock_lora **lora, penstock_op *op, struct penstock_error *error)
{
    struct penstock_lora_options o;
    struct penstock_range config = { 0 };
    if (!session || !lora || !op)
        return base_error_set(error, PENSTOCK_EINVAL, "session, lora and op must be given, not NULL");
    int code = client_take_sized(&o, options, "options", error);
    if (code)
        return code;
    if (!session->catalogue)
        return base_error_set(error, PENSTOCK_EINVAL, "the session has no catalogue yet: wait until it is open");
    if (o.config && o.config_len_bytes > MODEL_LORA_CONFIG_BYTES_MAX)
        return base_error_set(error, PENSTOCK_ELIMIT, MODEL_LORA_CONFIG_NAME ": it is above 16 MiB");
    code = o.config ? 0 : find_config(session->catalogue, &config, error);
    if (code)
        return code;
    struct penstock_lora *made = lora_new(session->catalogue, &o);
    struct opening *opening =
        made ? opening_new(made, &o, (size_t)(o.config ? o.config_len_bytes : config.len_bytes)) : NULL;
    if (!opening) {
        client_lora_unref(made);
        return no_memory(error);
    }
    code = submit(session, &o, opening, &config, op, error);
    if (code) {
        client_lora_unref(made);
        free(opening->config);
        free(opening);
        return code;
    }
    /* The caller's own. The operation has not been polled for, so that it still has the other. */
    atomic_fetch_add_explicit(&made->refs, 1, memory_order_relaxed);
    *lora = made;
    return 0;
}

int penstock_lora_open(struct penstock_session *session, const struct penstock_lora_options *options,
                       struct penstock_lora **lora, struct penstock_error *error)
{
    struct penstock_lora *made;
    penstock_op op = 0;
    if (!lora)
        return base_error_set(error, PENSTOCK_EINVAL, "lora must be given, not NULL");
    int code = penstock_lora_start(session, options, &made, &op, error);
    if (code)
        return code;
    code = penstock_wait(session, op, NULL, error);
    if (code)
        penstock_lora_free(made);
    else
        *lora = made;
    return code;
}

void penstock_lora_free(struct penstock_lora *lora)
{
    client_lora_unref(lora);
}

/* ---- what it is ---- */

int penstock_lora_about(const struct penstock_lora *lora, struct penstock_lora_info *info)
{
    size_t size = info ? info->size : 0;
    if (!lora || !lora->open || size < sizeof info->size)
        return PENSTOCK_EINVAL;
    const struct penstock_lora_info all = { .size = size,
                                            .slot_bytes = lora->layout.slot_bytes,
                                            .pull_bytes = lora->pull_bytes,
                                            .max_rank = lora->layout.max_rank,
                                            .entries = lora->layout.entries.n,
                                            .left_out = lora->layout.left_out.n,
                                            .rslora = lora->rslora,
                                            .fan_in_fan_out = lora->fan_in_fan_out };
    memcpy(info, &all, size < sizeof all ? size : sizeof all);
    return 0;
}

const struct penstock_lora_entry *penstock_lora_at(const struct penstock_lora *lora, size_t index)
{
    return lora && lora->open && index < lora->layout.entries.n ? &lora->layout.entries.at[index] : NULL;
}

const char *penstock_lora_left_out(const struct penstock_lora *lora, size_t index)
{
    return lora && lora->open && index < lora->layout.left_out.n ? lora->layout.left_out.at[index] : NULL;
}
