/* An adapter, made up by the fuzzer: its config, and beside it tensors of any name, dtype and shape. What is taken has
 * a layout without gaps and overlaps, in which each matrix is where its name says, and lands inside the slot.
 *
 * A line each: the config, then tensors, "NAME DTYPE ROWS COLUMNS". The first byte is max_rank. */
#include <stdio.h>
#include <string.h>

#include "base/vec.h"
#include "fuzz.h"
#include "model/dtype.h"
#include "model/lora/land.h"
#include "model/lora/name.h"

#define SLOT_BYTES_MAX (1u << 20)
#define TENSORS_MAX 40

static bool add_tensor(struct model_manifest *m, const char *line, size_t len)
{
    char text[400], name[300], dtype[16];
    unsigned rows, columns;
    if (len >= sizeof text)
        return false;
    memcpy(text, line, len);
    text[len] = 0;
    if (sscanf(text, "%299s %15s %5u %5u", name, dtype, &rows, &columns) != 4)
        return false;
    uint64_t *shape = base_pool_alloc(&m->pool, 2 * sizeof *shape);
    struct penstock_tensor t = { .name = base_pool_string(&m->pool, name, strlen(name)),
                                 .dtype = base_pool_string(&m->pool, dtype, strlen(dtype)),
                                 .shape = shape,
                                 .rank = 2 };
    FUZZ_CHECK(shape && t.name && t.dtype);
    shape[0] = rows;
    shape[1] = columns;
    if (!model_dtype_bytes(model_dtype_bits(dtype, strlen(dtype)), shape, 2, &t.len_bytes))
        return false;
    FUZZ_CHECK(base_vec_push(&m->tensors, t));
    return true;
}

static void check_source(const struct penstock_lora_entry *e, const struct penstock_tensor *t,
                         enum model_lora_matrix matrix)
{
    struct model_lora_name name;
    FUZZ_CHECK(model_lora_name_read(t->name, &name, NULL) == 0);
    FUZZ_CHECK(name.matrix == matrix && name.layer == e->layer && name.module_len == strlen(e->module) &&
               memcmp(name.module, e->module, name.module_len) == 0);
    FUZZ_CHECK(t->shape[0] == (matrix == MODEL_LORA_A ? e->rank : e->out));
    FUZZ_CHECK(t->shape[1] == (matrix == MODEL_LORA_A ? e->in : e->rank));
}

static void land(const struct model_lora_layout *l)
{
    struct model_lora_bytes bytes[TENSORS_MAX] = { 0 };
    uint8_t *slot = malloc(l->slot_bytes + 3);
    FUZZ_CHECK(slot);
    for (size_t i = 0; i < l->entries.n; i++) {
        uint8_t *a = malloc(l->sources.at[i].a->len_bytes), *b = malloc(l->sources.at[i].b->len_bytes);
        FUZZ_CHECK(a && b);
        memset(a, 0x7F, l->sources.at[i].a->len_bytes);
        memset(b, 0x3F, l->sources.at[i].b->len_bytes);
        bytes[i] = (struct model_lora_bytes){ .a = a, .b = b };
    }
    memset(slot, 0xA5, l->slot_bytes + 3);
    model_lora_land(l, bytes, slot, l->slot_bytes + 2);
    FUZZ_CHECK(slot[l->slot_bytes] == 0 && slot[l->slot_bytes + 1] == 0 && slot[l->slot_bytes + 2] == 0xA5);
    for (size_t i = 0; i < l->entries.n; i++) {
        free((void *)(uintptr_t)bytes[i].a);
        free((void *)(uintptr_t)bytes[i].b);
    }
    free(slot);
}

static void check_layout(const struct model_lora_layout *l)
{
    uint64_t end = 0;
    for (size_t i = 0; i < l->entries.n; i++) {
        const struct penstock_lora_entry *e = &l->entries.at[i], *before = i > 0 ? e - 1 : NULL;
        FUZZ_CHECK(e->rank > 0 && e->rank <= l->max_rank && e->in > 0 && e->out > 0);
        FUZZ_CHECK(e->a_offset_bytes == end && e->a_len_bytes == 2 * l->max_rank * e->in);
        FUZZ_CHECK(e->b_offset_bytes == end + e->a_len_bytes && e->b_len_bytes == 2 * l->max_rank * e->out);
        end = e->b_offset_bytes + e->b_len_bytes;
        check_source(e, l->sources.at[i].a, MODEL_LORA_A);
        check_source(e, l->sources.at[i].b, MODEL_LORA_B);
        FUZZ_CHECK(!before || before->layer < e->layer ||
                   (before->layer == e->layer && model_lora_module_compare(before->module, strlen(before->module),
                                                                           e->module, strlen(e->module)) < 0));
    }
    FUZZ_CHECK(l->slot_bytes == end && l->entries.n > 0);
    if (end <= SLOT_BYTES_MAX)
        land(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct model_lora_config config;
    struct model_manifest m = { 0 };
    struct penstock_error error = { 0 };
    if (len < 2)
        return 0;
    const char *at = (const char *)data + 1, *end = (const char *)data + len, *line = memchr(at, '\n', len - 1);
    int code = model_lora_config_read(at, (size_t)((line ? line : end) - at), &config, &error);
    if (code) {
        FUZZ_CHECK(error.code == code && *error.message && !config.rank_pattern);
        return 0;
    }
    while (line && m.tensors.n < TENSORS_MAX) {
        at = line + 1;
        line = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        if (!add_tensor(&m, at, (size_t)((line ? line : end) - at)))
            break;
    }
    struct model_lora_layout l;
    const struct model_lora_slot slot = { .max_rank = data[0] };
    code = model_lora_layout_make(&m, &config, &slot, &l, &error);
    if (code)
        FUZZ_CHECK(error.code == code && *error.message && !l.entries.at);
    else
        check_layout(&l);
    model_lora_layout_fini(&l);
    model_manifest_fini(&m);
    model_lora_config_fini(&config);
    return 0;
}
