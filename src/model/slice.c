#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "dtype.h"
#include "manifest.h"

/* A slice of dimension dim is one run for each index into the dimensions before it: `runs` of them, `stride` bits
 * apart. Returns 0, or the code with its words. */
static int measure(const struct penstock_tensor *tensor, size_t dim, unsigned bits, uint64_t *runs, uint64_t *row_bits,
                   struct penstock_error *error)
{
    uint64_t total;
    if (!model_dtype_bytes(bits, tensor->shape, tensor->rank, &total) || total != tensor->len_bytes)
        return base_error_set(error, PENSTOCK_EINVAL, "tensor \"%.200s\": its shape and its length disagree",
                              tensor->name);
    *runs = 1;
    *row_bits = bits;
    for (uint64_t i = 0; i < tensor->rank; i++) {
        uint64_t *to = i < dim ? runs : row_bits;
        if (i != dim && !base_mul_u64(*to, tensor->shape[i], to))
            return base_error_set(error, PENSTOCK_EINVAL, "tensor \"%.200s\": too large to slice", tensor->name);
    }
    return 0;
}

int penstock_tensor_slice(const struct penstock_tensor *tensor, size_t dim, uint64_t start, uint64_t count,
                          uint64_t dst_bytes, struct penstock_range *ranges, size_t max, size_t *needed,
                          struct penstock_error *error)
{
    if (!tensor || !needed || (!ranges && max > 0))
        return base_error_set(error, PENSTOCK_EINVAL, "tensor, needed and ranges must be given, not NULL");
    *needed = 0;
    unsigned bits = model_dtype_bits(tensor->dtype, strlen(tensor->dtype));
    if (bits == 0)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "tensor \"%.200s\": dtype %.50s has no known size",
                              tensor->name, tensor->dtype);
    if (dim >= tensor->rank || !base_range_inside(start, count, tensor->shape[dim]))
        return base_error_set(error, PENSTOCK_EINVAL, "tensor \"%.200s\": no such dimension or rows", tensor->name);
    uint64_t runs, row_bits, run_bits, stride_bits, start_bits, end;
    int status = measure(tensor, dim, bits, &runs, &row_bits, error);
    if (status != 0)
        return status;
    if (runs == 0 || row_bits == 0 || count == 0)
        return 0;
    if (!base_mul_u64(row_bits, tensor->shape[dim], &stride_bits))
        return base_error_set(error, PENSTOCK_EINVAL, "tensor \"%.200s\": too large to slice", tensor->name);
    run_bits = row_bits * count; /* no more than stride_bits */
    start_bits = row_bits * start;
    if (start_bits % 8 != 0 || run_bits % 8 != 0 || (runs > 1 && stride_bits % 8 != 0))
        return base_error_set(error, PENSTOCK_EINVAL, "tensor \"%.200s\": rows do not begin on a byte", tensor->name);
    uint64_t step = stride_bits / 8, len = run_bits / 8;
    if (count == tensor->shape[dim]) { /* whole rows: all runs touch */
        len = tensor->len_bytes;
        runs = 1;
    }
    if (runs > SIZE_MAX || !base_add_u64(dst_bytes, len * runs, &end))
        return base_error_set(error, PENSTOCK_EINVAL, "tensor \"%.200s\": too large to slice", tensor->name);
    *needed = (size_t)runs;
    for (size_t i = 0; i < *needed && i < max; i++)
        ranges[i] = (struct penstock_range){
            .offset_bytes = tensor->offset_bytes + i * step + start_bits / 8,
            .len_bytes = len,
            .dst_bytes = dst_bytes + i * len,
            .file = tensor->shard,
        };
    return 0;
}
