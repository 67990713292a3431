#include "pack.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "convert/convert.h"
#include "model/safetensors.h"

static uint64_t longest_part(const struct model_expert_geometry *geometry)
{
    uint64_t longest = 0;
    for (int part = 0; part < MODEL_EXPERT_PARTS; part++)
        if (geometry->parts[part].len_bytes > longest)
            longest = geometry->parts[part].len_bytes;
    return longest;
}

uint64_t model_packer_bytes(const struct model_expert_geometry *geometry)
{
    return 2 * geometry->record_stride + longest_part(geometry);
}

int model_packer_init(struct model_packer *packer, const struct model_checkpoint *checkpoint,
                      struct penstock_error *error)
{
    const struct model_expert_geometry *geometry = &checkpoint->manifest.geometry;
    *packer = (struct model_packer){ .checkpoint = checkpoint };
    packer->record = calloc(1, geometry->record_stride); /* what lies between parts stays zero */
    packer->source = malloc(longest_part(geometry));
    if (packer->record && packer->source)
        return 0;
    model_packer_fini(packer);
    return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a record of %" PRIu64 " bytes",
                          geometry->record_stride);
}

void model_packer_fini(struct model_packer *packer)
{
    free(packer->record);
    free(packer->source);
    free(packer->stored);
    *packer = (struct model_packer){ 0 };
}

static int shard_of(const struct model_checkpoint *checkpoint, const struct penstock_tensor *tensor)
{
    return checkpoint->staged.opened.at[tensor->shard].fd;
}

void model_packer_expect(const struct model_checkpoint *checkpoint, uint32_t layer, uint32_t expert)
{
    const struct model_checkpoint_projection *p = model_checkpoint_expert(checkpoint, layer, expert);
    for (size_t projection = 0; projection < MODEL_EXPERT_PROJECTIONS; projection++)
        for (int kind = 0; kind <= MODEL_CHECKPOINT_SCALE; kind++) {
            const struct penstock_tensor *tensor = p[projection].of[kind];
            (void)posix_fadvise(shard_of(checkpoint, tensor), (off_t)tensor->offset_bytes, (off_t)tensor->len_bytes,
                                POSIX_FADV_WILLNEED);
        }
}

/* ---- building ---- */

static int read_scale(const struct model_checkpoint *checkpoint, const struct penstock_tensor *tensor, float *out,
                      struct penstock_error *error)
{
    uint32_t bits;
    int status = model_pread(shard_of(checkpoint, tensor), &bits, sizeof bits, tensor->offset_bytes, error);
    if (status != 0)
        return status;
    bits = le32toh(bits);
    memcpy(out, &bits, sizeof bits);
    /* One below 2^-128 has no reciprocal either. */
    if (!isfinite(*out) || fpclassify(*out) == FP_ZERO || !isfinite(1.0F / *out))
        return base_error_set(error, PENSTOCK_ECORRUPT, "a scale of %g", (double)*out);
    return 0;
}

static int build_header(struct model_packer *packer, uint32_t layer, uint32_t expert, struct penstock_error *error)
{
    const struct model_checkpoint *c = packer->checkpoint;
    const struct model_expert_geometry *g = &c->manifest.geometry;
    const struct model_checkpoint_projection *p = model_checkpoint_expert(c, layer, expert);
    struct penstock_record_header header = {
        .layer = layer, .expert = expert, .inter = g->inter, .hidden = g->hidden, .group_size = g->group_size
    };
    for (size_t i = 0; i < MODEL_EXPERT_PROJECTIONS; i++) {
        const struct penstock_tensor *global = p[i].of[MODEL_CHECKPOINT_GLOBAL];
        const struct penstock_tensor *input = p[i].of[MODEL_CHECKPOINT_INPUT];
        float scale;
        if (read_scale(c, global, &scale, error) != 0)
            return model_checkpoint_where(c, layer, expert, global, error);
        header.scale2[i] = 1.0F / scale;
        if (!input)
            continue;
        if (read_scale(c, input, &header.input_scale[i], error) != 0)
            return model_checkpoint_where(c, layer, expert, input, error);
        header.input_scale_flags |= 1U << i;
    }
    penstock_record_header_encode(&header, packer->record);
    return 0;
}

int model_packer_build(struct model_packer *packer, uint32_t layer, uint32_t expert, struct penstock_error *error)
{
    const struct model_checkpoint *c = packer->checkpoint;
    const struct model_checkpoint_projection *p = model_checkpoint_expert(c, layer, expert);
    int status = build_header(packer, layer, expert, error);
    for (size_t part = 0; part < MODEL_EXPERT_PARTS && status == 0; part++) {
        const struct penstock_tensor *tensor =
            p[part / 2].of[part % 2 ? MODEL_CHECKPOINT_SCALE : MODEL_CHECKPOINT_PACKED];
        size_t rows = tensor->shape[0], cols = tensor->shape[1];
        if (model_pread(shard_of(c, tensor), packer->source, tensor->len_bytes, tensor->offset_bytes, error) != 0)
            status = model_checkpoint_where(c, layer, expert, tensor, error);
        else
            convert_transpose_bytes(packer->record + c->manifest.geometry.parts[part].offset_bytes, rows,
                                    packer->source, cols, rows, cols);
    }
    return status;
}

/* ---- files ---- */

int model_packer_write(struct model_packer *packer, int fd, uint32_t layer, uint32_t expert,
                       struct penstock_error *error)
{
    const struct model_expert_geometry *g = &packer->checkpoint->manifest.geometry;
    uint64_t at = model_expert_record_at(g, expert);
    int status = model_packer_build(packer, layer, expert, error);
    for (uint64_t done = 0; done < g->record_stride && status == 0;) {
        ssize_t n = pwrite(fd, packer->record + done, g->record_stride - done, (off_t)(at + done));
        if (n < 0 && errno != EINTR)
            status = base_error_sys(error, errno, "layer %" PRIu32 ": expert %" PRIu32 ": write",
                                    packer->checkpoint->manifest.model_layers[layer], expert);
        done += n > 0 ? (uint64_t)n : 0;
    }
    /* On its way while the next one is built: the sync at the layer's end has little left to wait for. */
    if (status == 0)
        (void)sync_file_range(fd, (off_t)at, (off_t)g->record_stride, SYNC_FILE_RANGE_WRITE);
    return status;
}

static const char *first_difference(const struct model_expert_geometry *g, const uint8_t *a, const uint8_t *b)
{
    if (memcmp(a, b, PENSTOCK_RECORD_HEADER_BYTES) != 0)
        return "header";
    for (int part = 0; part < MODEL_EXPERT_PARTS; part++)
        if (memcmp(a + g->parts[part].offset_bytes, b + g->parts[part].offset_bytes, g->parts[part].len_bytes) != 0)
            return model_expert_part_name((enum model_expert_part)part);
    return "padding";
}

int model_packer_verify(struct model_packer *packer, int fd, uint32_t layer, uint32_t expert, bool *differs,
                        struct penstock_error *error)
{
    *differs = false;
    const struct model_expert_geometry *g = &packer->checkpoint->manifest.geometry;
    if (!packer->stored && !(packer->stored = malloc(g->record_stride)))
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a record of %" PRIu64 " bytes", g->record_stride);
    uint64_t at = model_expert_record_at(g, expert);
    /* From the disk, where the file system does as it is asked. */
    (void)posix_fadvise(fd, (off_t)at, (off_t)g->record_stride, POSIX_FADV_DONTNEED);
    int status = model_packer_build(packer, layer, expert, error);
    if (status != 0)
        return status;
    status = model_pread(fd, packer->stored, g->record_stride, at, error);
    *differs = status == 0 && memcmp(packer->record, packer->stored, g->record_stride) != 0;
    if (*differs)
        status = base_error_set(error, PENSTOCK_ECORRUPT, "%s is not what the checkpoint has",
                                first_difference(g, packer->record, packer->stored));
    if (status != 0)
        (void)base_error_in(error, "layer %" PRIu32 ": expert %" PRIu32, layer, expert);
    return status;
}
