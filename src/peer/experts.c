#include "experts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/wire.h>

#include "base/error.h"
#include "base/log.h"

/* ---- a version of it ---- */

static enum model_change changed(const struct peer_served *served)
{
    return model_store_changed(&base_list_entry(served, struct peer_store, served)->store);
}

static void log_staged(const struct peer_served *served)
{
    const struct model_store *store = &base_list_entry(served, struct peer_store, served)->store;
    const struct model_expert_geometry *g = &store->manifest.geometry;
    base_log_info("staged expert store %s from %s: version %s, %" PRIu32 " layers of %" PRIu32 " experts, %" PRIu64
                  " bytes a record, %" PRIu64 " bytes, in %.3f s",
                  served->id, store->directory, store->manifest.model_version, g->num_moe_layers, g->num_experts,
                  g->record_stride, served->bytes, (double)served->staging_ns / 1e9);
}

static void free_store(struct peer_served *served)
{
    struct peer_store *store = peer_store_of(served);
    peer_served_fini(served);
    model_store_close(&store->store);
    free(store->names);
    free(store);
}

static const struct peer_served_ops ops = {
    .unit = "layer file", .changed = changed, .log_staged = log_staged, .free = free_store
};

static int map_layers(struct peer_store *store, struct residency_ledger *ledger, struct penstock_error *error)
{
    size_t n = store->store.layers.n;
    char(*names)[MODEL_LAYER_NAME_BYTES] = calloc(n, sizeof *names);
    const char **pointers = calloc(n, sizeof *pointers);
    int code = names && pointers ? 0 : base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu layers", n);
    for (size_t i = 0; code == 0 && i < n; i++)
        pointers[i] = model_layer_name((uint32_t)i, names[i]);
    store->names = names;
    store->served.n_regions = n;
    if (code == 0)
        code = peer_served_map(&store->served, store->store.layers.at, pointers, n, ledger, error);
    free(pointers);
    return code;
}

/* Written once a version, and goes out as it is. */
static int frame_manifest(struct peer_store *store, struct penstock_error *error)
{
    static const uint8_t no_length[PENSTOCK_TEXT_HEAD_BYTES];
    struct base_buf *reply = &store->served.reply;
    base_buf_append(reply, no_length, sizeof no_length);
    int code = model_expert_manifest_write(&store->store.manifest, false, reply, error);
    if (code)
        return code;
    if (reply->failed)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the manifest");
    size_t len = reply->n - sizeof no_length;
    struct penstock_wire_fault fault;
    if (penstock_text_head_encode(PENSTOCK_TEXT_EXPERT_MANIFEST, len, reply->at, &fault) == 0)
        return base_error_set(error, PENSTOCK_ELIMIT, "its manifest has %zu bytes, and clients take 16 MiB", len);
    return 0;
}

static int stage(struct peer_source *source, struct peer_served **out, struct penstock_error *error)
{
    struct peer_experts *experts = base_list_entry(source, struct peer_experts, source);
    struct peer_store *store = calloc(1, sizeof *store);
    if (!store)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    peer_served_init(&store->served, &ops, source->live);
    int code = model_store_open(experts->directory, experts->stage, &store->store, error);
    if (code) { /* the words name the directory */
        peer_served_fini(&store->served);
        free(store);
        return code;
    }
    store->served.id = strdup(store->store.name);
    code = store->served.id ? map_layers(store, experts->ledger, error)
                            : base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    if (code == 0)
        code = frame_manifest(store, error);
    if (code) {
        base_error_in(error, "%s", experts->directory);
        free_store(&store->served);
        return code;
    }
    *out = &store->served;
    return 0;
}

/* ---- the store ---- */

void peer_experts_init(struct peer_experts *experts, const char *directory, const struct model_stage_options *stage_as,
                       struct residency_ledger *ledger, struct peer_live *live)
{
    *experts = (struct peer_experts){ .directory = directory, .stage = stage_as, .ledger = ledger };
    peer_source_init(&experts->source, live);
}

void peer_experts_fini(struct peer_experts *experts)
{
    peer_source_fini(&experts->source);
}

int peer_experts_get(struct peer_experts *experts, struct peer_served **out, struct penstock_error *error)
{
    return peer_source_get(&experts->source, stage, true, out, error);
}
