#include <inttypes.h>
#include <stdlib.h>

#include "arguments.h"
#include "base/error.h"
#include "cmd.h"
#include "inspect.h"
#include "text.h"
#include "json/write.h"

/* What the headers of a layer's records say together. */
struct layer_summary {
    uint32_t input_scales[MODEL_EXPERT_PROJECTIONS]; /* records that have one */
    float least, most;                               /* scale2, of all projections */
};

static int summarise(const struct model_store *store, uint32_t layer, struct layer_summary *out,
                     struct penstock_error *error)
{
    *out = (struct layer_summary){ 0 };
    for (uint32_t expert = 0; expert < store->manifest.geometry.num_experts; expert++) {
        struct penstock_record_header header;
        int status = model_store_header(store, layer, expert, &header, error);
        if (status != 0)
            return status;
        for (int i = 0; i < MODEL_EXPERT_PROJECTIONS; i++) {
            float scale2 = header.scale2[i];
            bool first = expert == 0 && i == 0;
            out->input_scales[i] += header.input_scale_flags >> i & 1;
            out->least = first || scale2 < out->least ? scale2 : out->least;
            out->most = first || scale2 > out->most ? scale2 : out->most;
        }
    }
    return 0;
}

/* As stored: [K / 2, N] or [K / group_size, N]. */
static uint32_t stored_rows(const struct model_expert_geometry *g, enum model_expert_part part)
{
    return model_expert_columns(g, part) / (part % 2 == 0 ? 2 : g->group_size);
}

/* ---- JSON ---- */

static void write_geometry(struct json_writer *w, const struct model_expert_geometry *g)
{
    json_write_key(w, "geometry");
    json_write_object(w);
    json_write_key_u64(w, "num_moe_layers", g->num_moe_layers);
    json_write_key_u64(w, "num_experts", g->num_experts);
    json_write_key_u64(w, "inter", g->inter);
    json_write_key_u64(w, "hidden", g->hidden);
    json_write_key_u64(w, "group_size", g->group_size);
    json_write_key_u64(w, "sub_align", g->sub_align);
    json_write_key_u64(w, "fs_block_size", g->fs_block_size);
    json_write_key_u64(w, "payload_bytes", g->payload_bytes);
    json_write_key_u64(w, "record_raw_bytes", g->record_raw_bytes);
    json_write_key_u64(w, "record_stride", g->record_stride);
    json_write_key_u64(w, "layer_bytes", g->layer_bytes);
    json_write_object_end(w);
    json_write_key(w, "parts");
    json_write_array(w);
    for (enum model_expert_part part = 0; part < MODEL_EXPERT_PARTS; part++) {
        json_write_object(w);
        json_write_key_text(w, "name", model_expert_part_name(part));
        json_write_key_u64(w, "offset", g->parts[part].offset_bytes);
        json_write_key_u64(w, "bytes", g->parts[part].len_bytes);
        json_write_key(w, "shape");
        json_write_array(w);
        json_write_u64(w, stored_rows(g, part));
        json_write_u64(w, model_expert_rows(g, part));
        json_write_array_end(w);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_layer(struct json_writer *w, const struct model_store *store, uint32_t layer,
                        const struct layer_summary *summary)
{
    char name[MODEL_LAYER_NAME_BYTES];
    json_write_object(w);
    json_write_key_u64(w, "layer", layer);
    json_write_key_u64(w, "model_layer", store->manifest.model_layers[layer]);
    json_write_key_text(w, "file", model_layer_name(layer, name));
    json_write_key_u64(w, "bytes", store->manifest.geometry.layer_bytes);
    json_write_key_u64(w, "experts", store->manifest.geometry.num_experts);
    json_write_key(w, "input_scales");
    json_write_array(w);
    for (int i = 0; i < MODEL_EXPERT_PROJECTIONS; i++)
        json_write_u64(w, summary->input_scales[i]);
    json_write_array_end(w);
    json_write_key(w, "scale2");
    json_write_array(w);
    json_write_double(w, (double)summary->least);
    json_write_double(w, (double)summary->most);
    json_write_array_end(w);
    json_write_object_end(w);
}

static int print_json(const struct model_store *store, const struct layer_summary *layers)
{
    const struct model_expert_geometry *g = &store->manifest.geometry;
    struct base_buf out = { 0 };
    struct json_writer w = { .buf = &out };
    json_write_object(&w);
    json_write_key_text(&w, "kind", "store");
    json_write_key_text(&w, "path", store->directory);
    json_write_key_u64(&w, "bytes", g->total_bytes);
    json_write_key_text(&w, "model_version", store->manifest.model_version);
    write_geometry(&w, g);
    json_write_key(&w, "layers");
    json_write_array(&w);
    for (uint32_t layer = 0; layer < g->num_moe_layers; layer++)
        write_layer(&w, store, layer, &layers[layer]);
    json_write_array_end(&w);
    json_write_object_end(&w);
    return inspect_print(&out);
}

/* ---- tables ---- */

static void print_geometry(const struct model_store *store)
{
    const struct model_expert_geometry *g = &store->manifest.geometry;
    char size[CLI_SIZE_MAX], layers[CLI_COUNT_MAX], experts[CLI_COUNT_MAX];
    cli_print_escaped(stdout, store->directory);
    printf(": expert store, %s of %s, %s\n\n", cli_count(g->num_moe_layers, "layer", layers),
           cli_count(g->num_experts, "expert", experts), cli_size(g->total_bytes, size));
    printf("inter %" PRIu32 ", hidden %" PRIu32 ", group size %" PRIu32 "\n", g->inter, g->hidden, g->group_size);
    printf("record: %" PRIu64 " bytes, %" PRIu64 " of them payload; parts aligned to %" PRIu32
           " bytes, records to %" PRIu32 "\n\n",
           g->record_stride, g->payload_bytes, g->sub_align, g->fs_block_size);
    puts("PART               OFFSET         BYTES  SHAPE");
    for (enum model_expert_part part = 0; part < MODEL_EXPERT_PARTS; part++)
        printf("%-12s %12" PRIu64 "  %12" PRIu64 "  [%" PRIu32 ",%" PRIu32 "]\n", model_expert_part_name(part),
               g->parts[part].offset_bytes, g->parts[part].len_bytes, stored_rows(g, part), model_expert_rows(g, part));
}

static int print_tables(const struct model_store *store, const struct layer_summary *layers)
{
    const struct model_expert_geometry *g = &store->manifest.geometry;
    print_geometry(store);
    puts("\nLAYER  MODEL LAYER  FILE                     SIZE  INPUT SCALES (GATE/UP/DOWN)  SCALE2");
    for (uint32_t layer = 0; layer < g->num_moe_layers; layer++) {
        char name[MODEL_LAYER_NAME_BYTES], size[CLI_SIZE_MAX], scales[40];
        const struct layer_summary *l = &layers[layer];
        snprintf(scales, sizeof scales, "%" PRIu32 "/%" PRIu32 "/%" PRIu32, l->input_scales[0], l->input_scales[1],
                 l->input_scales[2]);
        printf("%5" PRIu32 "  %11" PRIu32 "  %-18s %10s  %-27s  %g to %g\n", layer, store->manifest.model_layers[layer],
               model_layer_name(layer, name), cli_size(g->layer_bytes, size), scales, (double)l->least,
               (double)l->most);
    }
    return CLI_OK;
}

int inspect_store(const char *directory, bool json, bool follow_links)
{
    const struct model_stage_options options = { .follow_all_links = follow_links };
    struct model_store store;
    struct penstock_error error = { 0 };
    if (model_store_open(directory, &options, &store, &error) != 0)
        return cli_failed(&error);
    uint32_t n = store.manifest.geometry.num_moe_layers;
    struct layer_summary *layers = calloc(n, sizeof *layers);
    int status = layers ? 0 : base_error_set(&error, PENSTOCK_ENOMEM, "no memory for %" PRIu32 " layers", n);
    for (uint32_t layer = 0; layer < n && status == 0; layer++)
        status = summarise(&store, layer, &layers[layer], &error);
    int code = status != 0 ? cli_failed(&error) : json ? print_json(&store, layers) : print_tables(&store, layers);
    free(layers);
    model_store_close(&store);
    return code;
}
