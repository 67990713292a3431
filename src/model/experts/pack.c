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

/* A part of a record, or what lies between two. */
struct piece {
    const char *name;
    uint64_t at; /* in the record */
    const uint8_t *bytes;
    size_t len;
};

typedef int piece_fn(struct model_packer *packer, const struct piece *piece, void *context,
                     struct penstock_error *error);

/* A record under way: its pieces come in order, and leave nothing out. */
struct record {
    struct model_packer *packer;
    uint32_t layer, expert;
    piece_fn *each;
    void *context;
    uint64_t at; /* all before it has come */
};

/* A part's columns in one piece: as many as fit. */
static uint64_t columns_of(uint64_t rows, uint64_t cols, uint64_t piece_bytes)
{
    uint64_t fit = piece_bytes / rows;
    if (fit >= cols)
        return cols;
    return fit >= 64 ? fit & ~UINT64_C(63) : fit > 0 ? fit : 1;
}

static uint64_t longest_piece(const struct model_expert_geometry *geometry, uint64_t piece_bytes)
{
    uint64_t longest = 0;
    for (enum model_expert_part part = 0; part < MODEL_EXPERT_PARTS; part++) {
        uint64_t rows = model_expert_rows(geometry, part), cols = geometry->parts[part].len_bytes / rows;
        uint64_t bytes = rows * columns_of(rows, cols, piece_bytes);
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

uint64_t model_packer_bytes(const struct model_expert_geometry *geometry, uint64_t piece_bytes)
{
    return 3 * longest_piece(geometry, piece_bytes);
}

static int no_memory(uint64_t bytes, struct penstock_error *error)
{
    return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %" PRIu64 " bytes of a record", bytes);
}

int model_packer_init(struct model_packer *packer, const struct model_checkpoint *checkpoint, uint64_t piece_bytes,
                      struct penstock_error *error)
{
    uint64_t longest = longest_piece(&checkpoint->manifest.geometry, piece_bytes);
    *packer = (struct model_packer){ .checkpoint = checkpoint, .piece_bytes = piece_bytes };
    packer->source = malloc(longest);
    packer->piece = malloc(longest);
    if (packer->source && packer->piece)
        return 0;
    model_packer_fini(packer);
    return no_memory(longest, error);
}

void model_packer_fini(struct model_packer *packer)
{
    free(packer->source);
    free(packer->piece);
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
        return base_error_set(error, PENSTOCK_ECORRUPT,
                              "a scale of %g, which is zero, not finite or without a reciprocal", (double)*out);
    return 0;
}

static int build_header(const struct model_checkpoint *c, uint32_t layer, uint32_t expert, uint8_t *out,
                        struct penstock_error *error)
{
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
    penstock_record_header_encode(&header, out);
    return 0;
}

static int give(struct record *r, const char *name, const uint8_t *bytes, size_t len, struct penstock_error *error)
{
    const struct piece piece = { .name = name, .at = r->at, .bytes = bytes, .len = len };
    r->at += len;
    return r->each(r->packer, &piece, r->context, error);
}

/* Zeros up to where what comes next begins. */
static int pad(struct record *r, uint64_t to, struct penstock_error *error)
{
    static const uint8_t zeros[MODEL_EXPERT_FS_BLOCK];
    int status = 0;
    while (r->at < to && status == 0)
        status = give(r, "padding", zeros, to - r->at < sizeof zeros ? (size_t)(to - r->at) : sizeof zeros, error);
    return status;
}

/* Some columns of a matrix, one row after the other; all of them in one piece lie together. */
static int read_columns(const struct record *r, const struct penstock_tensor *tensor, uint64_t from, uint64_t n,
                        struct penstock_error *error)
{
    uint64_t rows = tensor->shape[0], cols = tensor->shape[1], reads = n == cols ? 1 : rows;
    uint64_t len = rows / reads * n;
    int fd = shard_of(r->packer->checkpoint, tensor), status = 0;
    for (uint64_t i = 0; i < reads && status == 0; i++)
        status = model_pread(fd, r->packer->source + i * len, len, tensor->offset_bytes + i * cols + from, error);
    return status == 0 ? 0 : model_checkpoint_where(r->packer->checkpoint, r->layer, r->expert, tensor, error);
}

static int give_part(struct record *r, enum model_expert_part part, struct penstock_error *error)
{
    const struct model_checkpoint_projection *p = model_checkpoint_expert(r->packer->checkpoint, r->layer, r->expert);
    const struct penstock_tensor *tensor = p[part / 2].of[part % 2 ? MODEL_CHECKPOINT_SCALE : MODEL_CHECKPOINT_PACKED];
    uint64_t rows = tensor->shape[0], cols = tensor->shape[1], step = columns_of(rows, cols, r->packer->piece_bytes);
    int status = 0;
    for (uint64_t from = 0; from < cols && status == 0; from += step) {
        uint64_t n = cols - from < step ? cols - from : step;
        status = read_columns(r, tensor, from, n, error);
        if (status != 0)
            break;
        convert_transpose_bytes(r->packer->piece, rows, r->packer->source, n, rows, n);
        status = give(r, model_expert_part_name(part), r->packer->piece, n * rows, error);
    }
    return status;
}

static int build(struct model_packer *packer, uint32_t layer, uint32_t expert, piece_fn *each, void *context,
                 struct penstock_error *error)
{
    const struct model_expert_geometry *g = &packer->checkpoint->manifest.geometry;
    struct record r = { .packer = packer, .layer = layer, .expert = expert, .each = each, .context = context };
    uint8_t header[PENSTOCK_RECORD_HEADER_BYTES];
    int status = build_header(packer->checkpoint, layer, expert, header, error);
    if (status == 0)
        status = give(&r, "header", header, sizeof header, error);
    for (enum model_expert_part part = 0; part < MODEL_EXPERT_PARTS && status == 0; part++) {
        status = pad(&r, g->parts[part].offset_bytes, error);
        if (status == 0)
            status = give_part(&r, part, error);
    }
    return status == 0 ? pad(&r, g->record_stride, error) : status;
}

/* ---- files ---- */

struct file {
    int fd;
    uint64_t at; /* where its record begins */
    uint32_t layer, expert;
    bool differs;
};

static int write_piece(struct model_packer *packer, const struct piece *piece, void *context,
                       struct penstock_error *error)
{
    const struct file *file = context;
    for (size_t done = 0; done < piece->len;) {
        ssize_t n = pwrite(file->fd, piece->bytes + done, piece->len - done, (off_t)(file->at + piece->at + done));
        if (n < 0 && errno != EINTR)
            return base_error_sys(error, errno, "layer %" PRIu32 ": expert %" PRIu32 ": write",
                                  packer->checkpoint->manifest.model_layers[file->layer], file->expert);
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int model_packer_write(struct model_packer *packer, int fd, uint32_t layer, uint32_t expert,
                       struct penstock_error *error)
{
    const struct model_expert_geometry *g = &packer->checkpoint->manifest.geometry;
    struct file file = { .fd = fd, .at = model_expert_record_at(g, expert), .layer = layer, .expert = expert };
    int status = build(packer, layer, expert, write_piece, &file, error);
    /* On its way while the next one is built: the sync at the layer's end has little left to wait for. */
    if (status == 0)
        (void)sync_file_range(fd, (off_t)file.at, (off_t)g->record_stride, SYNC_FILE_RANGE_WRITE);
    return status;
}

static int compare_piece(struct model_packer *packer, const struct piece *piece, void *context,
                         struct penstock_error *error)
{
    struct file *file = context;
    int status = model_pread(file->fd, packer->stored, piece->len, file->at + piece->at, error);
    file->differs = status == 0 && memcmp(packer->stored, piece->bytes, piece->len) != 0;
    if (file->differs)
        status = base_error_set(error, PENSTOCK_ECORRUPT, "%s is not what the checkpoint has", piece->name);
    if (status != 0)
        (void)base_error_in(error, "layer %" PRIu32 ": expert %" PRIu32, file->layer, file->expert);
    return status;
}

int model_packer_verify(struct model_packer *packer, int fd, uint32_t layer, uint32_t expert, bool *differs,
                        struct penstock_error *error)
{
    *differs = false;
    const struct model_expert_geometry *g = &packer->checkpoint->manifest.geometry;
    uint64_t longest = longest_piece(g, packer->piece_bytes);
    longest = longest > MODEL_EXPERT_FS_BLOCK ? longest : MODEL_EXPERT_FS_BLOCK;
    if (!packer->stored && !(packer->stored = malloc(longest)))
        return no_memory(longest, error);
    struct file file = { .fd = fd, .at = model_expert_record_at(g, expert), .layer = layer, .expert = expert };
    /* From the disk, where the file system does as it is asked. */
    (void)posix_fadvise(fd, (off_t)file.at, (off_t)g->record_stride, POSIX_FADV_DONTNEED);
    int status = build(packer, layer, expert, compare_piece, &file, error);
    *differs = file.differs;
    return status;
}
