#include "model/lora/land.h"

#include <string.h>

#include "base/checked.h"
#include "convert/convert.h"

#define BF16_BYTES 2
#define BLOCK_VALUES 4096 /* converted at once, for rows that are too short to be converted one by one */

static void to_bf16(uint8_t *dst, const struct penstock_tensor *tensor, const uint8_t *src, uint64_t n)
{
    if (strcmp(tensor->dtype, "F32") == 0)
        convert_f32_to_bf16(dst, src, n);
    else if (strcmp(tensor->dtype, "F16") == 0)
        convert_f16_to_bf16(dst, src, n);
    else
        memcpy(dst, src, n * BF16_BYTES);
}

static uint64_t bytes_of(const struct penstock_tensor *tensor, uint64_t values)
{
    return strcmp(tensor->dtype, "F32") == 0 ? values * 4 : values * 2;
}

/* Rows of `rank` values, as they came, become rows of max_rank. */
static void land_rows(uint8_t *dst, uint64_t max_rank, const struct penstock_tensor *tensor, const uint8_t *src,
                      uint64_t rows, uint64_t rank)
{
    uint8_t block[BLOCK_VALUES * BF16_BYTES];
    uint64_t row_bytes = rank * BF16_BYTES, step = max_rank * BF16_BYTES;
    uint64_t at_once = base_max_u64(BLOCK_VALUES / rank, 1);
    for (uint64_t row = 0; row < rows; row += at_once) {
        uint64_t n = base_min_u64(at_once, rows - row);
        if (rank > BLOCK_VALUES) {
            to_bf16(dst, tensor, src, rank);
            memset(dst + row_bytes, 0, step - row_bytes);
        } else {
            to_bf16(block, tensor, src, n * rank);
            for (uint64_t i = 0; i < n; i++) {
                memcpy(dst + i * step, block + i * row_bytes, row_bytes);
                memset(dst + i * step + row_bytes, 0, step - row_bytes);
            }
        }
        dst += n * step;
        src += bytes_of(tensor, n * rank);
    }
}

static void land_entry(const struct penstock_lora_entry *e, const struct model_lora_source *from, uint64_t max_rank,
                       const struct model_lora_bytes *bytes, uint8_t *slot)
{
    uint8_t *a = slot + e->a_offset_bytes, *b = slot + e->b_offset_bytes;
    uint64_t head = e->rank * e->in;
    if (e->rank == 0) {
        memset(a, 0, e->a_len_bytes);
        memset(b, 0, e->b_len_bytes);
        return;
    }
    to_bf16(a, from->a, bytes->a, head);
    memset(a + head * BF16_BYTES, 0, e->a_len_bytes - head * BF16_BYTES);
    if (e->rank == max_rank)
        to_bf16(b, from->b, bytes->b, e->out * e->rank);
    else
        land_rows(b, max_rank, from->b, bytes->b, e->out, e->rank);
}

void model_lora_land(const struct model_lora_layout *layout, const struct model_lora_bytes *bytes, uint8_t *slot,
                     uint64_t slot_bytes)
{
    for (size_t i = 0; i < layout->entries.n; i++)
        land_entry(&layout->entries.at[i], &layout->sources.at[i], layout->max_rank, &bytes[i], slot);
    if (slot_bytes > layout->slot_bytes)
        memset(slot + layout->slot_bytes, 0, slot_bytes - layout->slot_bytes);
}
