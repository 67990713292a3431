/* The big documents, read record by record straight from simdjson: a safetensors header, a weight manifest (protocol
 * 1.5, 2.4) and the weight_map of an index. Texts have JSON_PADDING bytes behind them. Strings are not NUL-terminated,
 * have no NUL in them and last, as the shape does, for the call; a callback that does not return 0 ends it with that
 * code and the words it has set. What is malformed is refused with the code given as `corrupt`. */
#ifndef PENSTOCK_JSON_RECORDS_H
#define PENSTOCK_JSON_RECORDS_H

#include "json/json.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { JSON_RANK_MAX = 64 };

struct json_header_tensor {
    struct json_string name, dtype;
    const uint64_t *shape;
    size_t rank;
    uint64_t begin, end; /* data_offsets */
};

/* All fields are there; nothing else has been checked. __metadata__ is left out. */
PENSTOCK_CHECKED int json_header_read(const char *text, size_t len, int corrupt,
                                      int (*each)(void *context, const struct json_header_tensor *tensor,
                                                  struct penstock_error *error),
                                      void *context, struct penstock_error *error);

struct json_manifest_tensor {
    struct json_string name, dtype;
    const uint64_t *shape;
    size_t rank;
    uint64_t offset, len, shard;
    bool extra;
};

enum json_manifest_field {
    JSON_MANIFEST_VERSION,       /* number */
    JSON_MANIFEST_MODEL_ID,      /* text */
    JSON_MANIFEST_SHARD_FILE,    /* text, one call each */
    JSON_MANIFEST_SHARD_LEN,     /* number, one call each */
    JSON_MANIFEST_MODEL_VERSION, /* text */
    JSON_MANIFEST_FILE,          /* text, which may have NULs in it, and number, one call each */
};

struct json_manifest_reader {
    int (*field)(void *context, enum json_manifest_field field, const struct json_string *text, uint64_t number,
                 struct penstock_error *error);
    int (*tensor)(void *context, const struct json_manifest_tensor *tensor, struct penstock_error *error);
    void *context;
};

/* The mandatory fields have been there, each once, in whatever order. */
PENSTOCK_CHECKED int json_manifest_read(const char *text, size_t len, int corrupt,
                                        const struct json_manifest_reader *reader, struct penstock_error *error);

PENSTOCK_CHECKED int json_weight_map_read(const char *text, size_t len, int corrupt,
                                          int (*each)(void *context, const struct json_string *tensor,
                                                      const struct json_string *shard, struct penstock_error *error),
                                          void *context, struct penstock_error *error);

#ifdef __cplusplus
}
#endif
#endif
