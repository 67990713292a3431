/* File names that may come from elsewhere: an index, a peer. */
#ifndef PENSTOCK_MODEL_NAMES_H
#define PENSTOCK_MODEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum { MODEL_NAME_COMPONENTS_MAX = 4 };

/* One path component: UTF-8, not empty, not "." or "..", no slash, no control character, at most 255 bytes. */
bool model_name_plain(const char *name, size_t len);

/* At most four of those, joined by single slashes (protocol 2.4). */
bool model_name_relative(const char *name, size_t len);

#endif
