/* What tells one state of a file from another (protocol 2.4). */
#ifndef PENSTOCK_MODEL_IDENTITY_H
#define PENSTOCK_MODEL_IDENTITY_H

#include <sys/stat.h>

#include "model/stage.h"

struct model_identity model_identity_of(const struct stat *st);
bool model_identity_same(const struct model_identity *a, const struct model_identity *b);

/* The model_version: a hash over names, sizes, times and inodes of all that is served. Out is 33 bytes. The device is
 * left out: its number may be another one after a reboot. */
enum { MODEL_VERSION_BYTES = 33 };
PENSTOCK_CHECKED int model_version_make(const struct model_staged *staged, char *out, struct penstock_error *error);

#endif
