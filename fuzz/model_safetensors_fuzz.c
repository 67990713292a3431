#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static int take(void *context, const struct model_safetensor *tensor, struct penstock_error *error)
{
    (void)error;
    if (!base_range_inside(tensor->offset_bytes, tensor->len_bytes, *(uint64_t *)context) ||
        memchr(tensor->name.at, 0, tensor->name.len))
        abort();
    return 0;
}

/* The bytes are a header; the file goes on for a megabyte. Every tensor that is taken lies inside it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint64_t file_bytes = 8 + len + (1 << 20);
    struct penstock_error error = { 0 };
    char *text = malloc(len + JSON_PADDING);
    if (!text)
        return 0;
    memcpy(text, data, len);
    memset(text + len, len > 0 ? data[0] : '}', JSON_PADDING);
    int status = model_safetensors_parse(text, len, file_bytes, take, &file_bytes, &error);
    if (status != error.code)
        abort();
    free(text);
    return 0;
}
