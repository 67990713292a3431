#include "dtype.h"

#include <string.h>

#include "base/checked.h"

static const struct {
    const char *name;
    size_t len;
    unsigned bits;
} dtypes[] = {
#define DTYPE(name, bits)                                                                                              \
    {                                                                                                                  \
        name, sizeof(name) - 1, bits                                                                                   \
    }
    DTYPE("BF16", 16),   DTYPE("F32", 32),        DTYPE("U8", 8),          DTYPE("F8_E4M3", 8), DTYPE("F16", 16),
    DTYPE("I64", 64),    DTYPE("I32", 32),        DTYPE("I8", 8),          DTYPE("BOOL", 8),    DTYPE("F8_E5M2", 8),
    DTYPE("F8_E8M0", 8), DTYPE("F8_E4M3FNUZ", 8), DTYPE("F8_E5M2FNUZ", 8), DTYPE("F4", 4),      DTYPE("F6_E2M3", 6),
    DTYPE("F6_E3M2", 6), DTYPE("I16", 16),        DTYPE("U16", 16),        DTYPE("U32", 32),    DTYPE("U64", 64),
    DTYPE("F64", 64),    DTYPE("C64", 64),
#undef DTYPE
};

static size_t find(const char *dtype, size_t len)
{
    size_t i = 0;
    while (i < sizeof dtypes / sizeof *dtypes && (dtypes[i].len != len || memcmp(dtypes[i].name, dtype, len) != 0))
        i++;
    return i;
}

unsigned model_dtype_bits(const char *dtype, size_t len)
{
    size_t i = find(dtype, len);
    return i < sizeof dtypes / sizeof *dtypes ? dtypes[i].bits : 0;
}

const char *model_dtype_name(const char *dtype, size_t len)
{
    size_t i = find(dtype, len);
    return i < sizeof dtypes / sizeof *dtypes ? dtypes[i].name : NULL;
}

bool model_dtype_bytes(unsigned bits, const uint64_t *shape, uint64_t rank, uint64_t *out)
{
    uint64_t elements = 1;
    for (uint64_t i = 0; i < rank; i++) {
        if (shape[i] == 0) { /* whatever the others are */
            *out = 0;
            return true;
        }
        if (!base_mul_u64(elements, shape[i], &elements))
            return false;
    }
    uint64_t whole = elements / 8 * bits, rest = elements % 8 * bits;
    if (elements / 8 != 0 && whole / (elements / 8) != bits)
        return false;
    return rest % 8 == 0 && base_add_u64(whole, rest / 8, out);
}
