/* What tells one state of a file from another (protocol 2.4). */
#ifndef PENSTOCK_MODEL_IDENTITY_H
#define PENSTOCK_MODEL_IDENTITY_H

#include <sys/stat.h>

#include "model/stage.h"

struct model_identity model_identity_of(const struct stat *st);
bool model_identity_same(const struct model_identity *a, const struct model_identity *b);

/* What became of an open file, and of the name that it had in directory (negative: the directory is gone). */
enum model_change model_file_changed(int directory, const struct model_opened *opened, const char *name);

/* A model_version piece by piece: every file's name and identity, in an order that is always the same. end frees. */
struct XXH3_state_s;
struct model_version_hash {
    struct XXH3_state_s *state;
};
PENSTOCK_CHECKED int model_version_begin(struct model_version_hash *hash, struct penstock_error *error);
void model_version_add(struct model_version_hash *hash, const char *name, const struct model_identity *identity);
void model_version_end(struct model_version_hash *hash, char *out);

/* The model_version: a hash over names, sizes, times and inodes of all that is served. Out is 33 bytes. The device is
 * left out: its number may be another one after a reboot. */
enum { MODEL_VERSION_BYTES = 33 };
PENSTOCK_CHECKED int model_version_make(const struct model_staged *staged, char *out, struct penstock_error *error);

#endif
