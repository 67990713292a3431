/* What -o names, written whole or not at all. */
#ifndef PENSTOCK_CLI_SAVE_H
#define PENSTOCK_CLI_SAVE_H

#include <stddef.h>

#include "base/error.h"

/* Through a temporary name beside path, synced: what has the final name is whole, and stays as it was where something
 * fails. A device or a pipe at path is written to as it is, and never replaced. */
PENSTOCK_CHECKED int cli_save(const char *path, const void *at, size_t len_bytes, struct penstock_error *error);

#endif
