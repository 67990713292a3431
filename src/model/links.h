/* Opening a model's files without being led elsewhere (protocol 2.4). */
#ifndef PENSTOCK_MODEL_LINKS_H
#define PENSTOCK_MODEL_LINKS_H

#include <limits.h>
#include <sys/stat.h>

#include "model/stage.h"

struct model_root {
    int fd;               /* the directory */
    char real[PATH_MAX];  /* where it really is */
    char blobs[PATH_MAX]; /* the Hugging Face cache's blobs; empty: it belongs to none */
    bool follow_all;
};

/* ENOTFOUND: no such directory. */
PENSTOCK_CHECKED int model_root_open(const char *directory, bool follow_all, struct model_root *out,
                                     struct penstock_error *error);
void model_root_close(struct model_root *root);

/* Opens a regular file for reading; never blocks, whatever lies there, and touches no device. ENOTFOUND: nothing there.
 * EDENIED: it leads outside. EINVAL: no regular file. The words begin with the name. */
PENSTOCK_CHECKED int model_root_file(const struct model_root *root, const char *name, int *fd, struct stat *st,
                                     struct penstock_error *error);

/* The repository's name, "org/name", when directory is .../models--org--name/snapshots/REV: its length in out, or 0.
 * out has room for strlen(directory) + 1. */
size_t model_hub_name(const char *directory, char *out);

#endif
