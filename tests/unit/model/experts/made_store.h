/* A small store to try things on: two layers of three experts, records whose parts say whose they are. */
#ifndef PENSTOCK_TEST_MADE_STORE_H
#define PENSTOCK_TEST_MADE_STORE_H

#include "../directory.h"

#include "model/experts/manifest.h"
#include "model/experts/store_writer.h"

enum { MADE_LAYERS = 2, MADE_EXPERTS = 3 };

static const struct model_expert_geometry made_sizes = {
    .num_moe_layers = MADE_LAYERS,
    .num_experts = MADE_EXPERTS,
    .inter = 64,
    .hidden = 64,
    .group_size = 16,
    .sub_align = 256,
    .fs_block_size = 4096,
};

static inline struct model_expert_manifest made_manifest(void)
{
    static const uint32_t model_layers[MADE_LAYERS] = { 1, 3 };
    struct model_expert_manifest manifest;
    assert_int_equal(model_expert_manifest_init(&manifest, &made_sizes, model_layers, NULL), 0);
    return manifest;
}

static inline void made_header(uint32_t layer, uint32_t expert, uint8_t *out)
{
    const struct penstock_record_header header = {
        .layer = layer,
        .expert = expert,
        .inter = made_sizes.inter,
        .hidden = made_sizes.hidden,
        .group_size = made_sizes.group_size,
        .input_scale_flags = 2,
        .scale2 = { 1, 2, (float)expert },
        .input_scale = { 0, 0.5f, 0 },
    };
    penstock_record_header_encode(&header, out);
}

/* Writes all records of a layer's open file. */
static inline void made_fill(int fd, uint32_t layer)
{
    struct model_expert_manifest manifest = made_manifest();
    size_t stride = (size_t)manifest.geometry.record_stride;
    uint8_t *record = calloc(1, stride);
    assert_non_null(record);
    for (uint32_t expert = 0; expert < MADE_EXPERTS; expert++) {
        made_header(layer, expert, record);
        memset(record + PENSTOCK_RECORD_HEADER_BYTES, (int)(16 * (layer + 1) + expert),
               stride - PENSTOCK_RECORD_HEADER_BYTES);
        assert_int_equal(pwrite(fd, record, stride, (off_t)model_expert_record_at(&manifest.geometry, expert)), stride);
    }
    free(record);
    model_expert_manifest_fini(&manifest);
}

static inline struct model_store_writer *made_writer(const char *source)
{
    struct model_expert_manifest manifest = made_manifest();
    struct model_store_writer *writer;
    assert_int_equal(model_store_writer_open(test_path("store"), &manifest, source, &writer, NULL), 0);
    model_expert_manifest_fini(&manifest);
    return writer;
}

static inline void made_layer(struct model_store_writer *writer, uint32_t layer)
{
    int fd;
    assert_int_equal(model_store_writer_begin(writer, layer, &fd, NULL), 0);
    made_fill(fd, layer);
    assert_int_equal(model_store_writer_commit(writer, layer, NULL), 0);
}

/* A whole store at test_path("store"). */
static inline void made_store(void)
{
    struct model_store_writer *writer = made_writer("source");
    for (uint32_t layer = 0; layer < MADE_LAYERS; layer++)
        made_layer(writer, layer);
    assert_int_equal(model_store_writer_finish(writer, NULL), 0);
    model_store_writer_free(writer);
}

#endif
