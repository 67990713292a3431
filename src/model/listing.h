/* What lies in a model's directory, by name only (protocol 2.4). */
#ifndef PENSTOCK_MODEL_LISTING_H
#define PENSTOCK_MODEL_LISTING_H

#include "base/pool.h"
#include "base/vec.h"
#include "model/links.h"

enum { MODEL_FILES_MAX = 4096 };

struct model_listing {
    BASE_VEC(const char *) weights; /* *.safetensors of the directory itself, sorted by bytes */
    BASE_VEC(const char *) files;   /* what "files" may have: regular files and links, sorted by bytes */
    struct base_pool pool;
    uint64_t hash; /* over all of these */
};

/* ELIMIT: more than MODEL_FILES_MAX files. */
PENSTOCK_CHECKED int model_listing_read(const struct model_root *root, const struct model_stage_options *options,
                                        struct model_listing *out, struct penstock_error *error);
void model_listing_fini(struct model_listing *listing);

__attribute__((format(printf, 2, 3))) void model_warn(const struct model_stage_options *options, const char *format,
                                                      ...);

#endif
