/* The files of a store, as its reader and its writer both need them. Words begin with what is wrong: the caller adds
 * the file. */
#ifndef PENSTOCK_MODEL_EXPERTS_STORE_FILES_H
#define PENSTOCK_MODEL_EXPERTS_STORE_FILES_H

#include "model/experts/manifest.h"

/* ECORRUPT: empty, longer than readers take, or no manifest that holds. */
PENSTOCK_CHECKED int model_store_manifest_load(int fd, struct model_expert_manifest *out, struct penstock_error *error);

/* The file has layer_bytes. */
PENSTOCK_CHECKED int model_store_layer_size(uint64_t file_bytes, const struct model_expert_geometry *geometry,
                                            struct penstock_error *error);
/* The same, and every record's header is its own. */
PENSTOCK_CHECKED int model_store_layer_check(int fd, const struct model_expert_geometry *geometry, uint32_t layer,
                                             struct penstock_error *error);

/* A small file that is there whole or not at all: under name.tmp, synced, renamed, the directory synced. */
PENSTOCK_CHECKED int model_store_file_write(int directory, const char *name, const struct base_buf *bytes,
                                            struct penstock_error *error);

#endif
