/* Staging (protocol 1.5, 2.4): from a directory to open files and a manifest. */
#ifndef PENSTOCK_MODEL_STAGE_H
#define PENSTOCK_MODEL_STAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "model/manifest.h"

/* Which file it was, and which state of it: what model_version is made of. */
struct model_identity {
    dev_t device;
    ino_t inode;
    uint64_t len_bytes;
    int64_t mtime_ns, ctime_ns;
};

struct model_opened {
    int fd; /* read-only */
    struct model_identity identity;
};

struct model_stage_options {
    bool follow_all_links; /* the operator allows links that lead outside the directory and its Hugging Face blobs */
    void (*warn)(void *context, const char *words); /* NULL: warnings are dropped */
    void *warn_context;
    uint64_t manifest_bytes_max; /* 0: what readers take, 256 MiB */
};

struct model_staged {
    char *directory; /* as asked for, absolute, without trailing slashes: the manifest's model_id */
    char *name;      /* "org/name" of a Hugging Face cache directory, else the final component */
    struct model_manifest manifest;
    BASE_VEC(struct model_opened) opened; /* shards first, then files, as in penstock_range.file */
    uint64_t listing;                     /* a hash over the names in the directory, as far as they matter */
};

/* Opens and checks everything. Errors name the file and, inside one, the tensor and field. On failure *out is empty and
 * nothing stays open. */
PENSTOCK_CHECKED int model_stage(const char *directory, const struct model_stage_options *options,
                                 struct model_staged *out, struct penstock_error *error);
void model_staged_fini(struct model_staged *staged);

/* What became of the files since: */
enum model_change {
    MODEL_SAME,
    MODEL_REPLACED,  /* other inodes at the same names, or files came or went: the open ones are still what they were */
    MODEL_REWRITTEN, /* an open file's bytes may have changed in place */
};
enum model_change model_staged_changed(const struct model_staged *staged, const struct model_stage_options *options);

/* A model's directory, absolute, without "." and repeated or trailing slashes; NULL with errno: no memory, or a path
 * with ".." that does not exist. And the name that it has by itself: "org/name" of a Hugging Face cache directory, else
 * the final component; NULL: no memory. Both are the caller's. */
char *model_directory_absolute(const char *directory);
char *model_directory_name(const char *directory);

/* Whether a model request (protocol 1.5) names this directory: by path (component by component), or by final component.
 */
bool model_request_names(const char *request, const char *directory);

#endif
