/* An expert store that is read (protocol 1.4): a directory with manifest.json and a file for each MoE layer. Immutable
 * while open, so that any number of threads may use one. */
#ifndef PENSTOCK_MODEL_EXPERTS_STORE_H
#define PENSTOCK_MODEL_EXPERTS_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"
#include "model/experts/manifest.h"
#include "model/stage.h"

#define MODEL_STORE_MANIFEST "manifest.json"
#define MODEL_STORE_TEMPLATE "experts_{:05}.xpr"
/* What is there while a store is written: a finished one needs neither. */
#define MODEL_STORE_LOCK ".penstock-pack.lock"
#define MODEL_STORE_PLAN ".penstock-pack.json"

enum { MODEL_LAYER_NAME_BYTES = 24 };
/* "experts_00017.xpr". Returns out. */
const char *model_layer_name(uint32_t layer, char out[MODEL_LAYER_NAME_BYTES]);

struct model_store {
    char *directory;                       /* absolute, without trailing slashes */
    char *name;                            /* its final component */
    struct model_expert_manifest manifest; /* with the model_version that the files have now */
    BASE_VEC(struct model_opened) layers;  /* num_moe_layers of them, each of layer_bytes */
    struct model_opened manifest_file;
};

/* Opens the manifest and every layer's file and compares sizes; records are not read. ENOTFOUND: no such directory.
 * ECORRUPT names the file and what is wrong with it: no manifest (never written, or packing has not finished), a
 * manifest that does not hold, a layer missing, cut or too long. Of options only the links count (protocol 2.4); NULL:
 * none lead outside. On failure *out is empty and nothing stays open. */
PENSTOCK_CHECKED int model_store_open(const char *directory, const struct model_stage_options *options,
                                      struct model_store *out, struct penstock_error *error);
void model_store_close(struct model_store *store);

/* What became of the files since. Also MODEL_REPLACED: the directory now has another manifest. */
enum model_change model_store_changed(const struct model_store *store);

/* Reads a record's header (one pread) or all record_stride bytes of it, and checks whose it is. EINVAL: no such layer
 * or expert. ECORRUPT names file, layer, expert and field; in a file that was cut, where it ends. header may be NULL.
 */
PENSTOCK_CHECKED int model_store_header(const struct model_store *store, uint32_t layer, uint32_t expert,
                                        struct penstock_record_header *header, struct penstock_error *error);
PENSTOCK_CHECKED int model_store_record(const struct model_store *store, uint32_t layer, uint32_t expert,
                                        uint8_t *record, struct penstock_record_header *header,
                                        struct penstock_error *error);

/* Whether a directory looks like a store, finished or not, rather than a model: manifest.json, a plan or the first
 * layer's file lies there. */
bool model_store_likely(const char *directory);

#endif
