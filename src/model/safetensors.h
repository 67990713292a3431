/* The header of a safetensors file (protocol 1.5). */
#ifndef PENSTOCK_MODEL_SAFETENSORS_H
#define PENSTOCK_MODEL_SAFETENSORS_H

#include "model/stage.h"
#include "json/json.h"

#define MODEL_HEADER_BYTES_MAX (UINT64_C(64) << 20)

/* A checked tensor. Strings and shape last for the call. */
struct model_safetensor {
    struct json_string name, dtype;
    const char *known_dtype; /* static; NULL: the dtype is not known and its length taken as given */
    const uint64_t *shape;
    size_t rank;
    uint64_t offset_bytes, len_bytes; /* in the file */
};

typedef int (*model_safetensor_fn)(void *context, const struct model_safetensor *tensor, struct penstock_error *error);

/* Reads the header by pread and checks every tensor. ECORRUPT names the tensor and the field; the caller adds the file.
 * A callback that fails ends it. */
PENSTOCK_CHECKED int model_safetensors_read(int fd, uint64_t file_bytes, model_safetensor_fn each, void *context,
                                            struct penstock_error *error);

/* The same for a header that is in memory, with JSON_PADDING behind it. */
PENSTOCK_CHECKED int model_safetensors_parse(const char *header, size_t len, uint64_t file_bytes,
                                             model_safetensor_fn each, void *context, struct penstock_error *error);

/* All len bytes at offset, or ECORRUPT: the file ends before. */
PENSTOCK_CHECKED int model_pread(int fd, void *to, size_t len, uint64_t offset, struct penstock_error *error);

#endif
