/* penstock inspect: what each kind of thing on disk is made of. Both return an exit status, and have said on standard
 * error why it is a failure. follow_links: also those that lead outside the directory. */
#ifndef PENSTOCK_CLI_INSPECT_H
#define PENSTOCK_CLI_INSPECT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/vec.h"
#include "model/experts/store.h"
#include "model/manifest.h"

/* A store: its geometry, and for each layer what its records' headers say. */
int inspect_store(const char *directory, bool json, bool follow_links);

/* A safetensors file, or a directory that would be served: its tensors, counted by shard, dtype and layer. list: one by
 * one as well. */
int inspect_weights(const char *path, bool is_directory, bool json, bool list, bool follow_links);

/* Prints what a JSON writer made, with a newline. */
int inspect_print(struct base_buf *json);

#endif
