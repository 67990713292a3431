/* The directory that a pull writes to. Whatever names the peer gives and whatever links lie there, nothing outside is
 * written: names are walked component by component without following a link, and bytes go to files of our own making
 * in the directory itself, which get their final names when they are whole. */
#ifndef PENSTOCK_CLI_PULL_TARGET_H
#define PENSTOCK_CLI_PULL_TARGET_H

#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

struct pull_target {
    int dir_fd;
    char *path; /* for messages */
};

/* Makes the directory and its parents where they are missing. The path is the user's own: links in it are followed. */
PENSTOCK_CHECKED int pull_target_open(const char *path, struct pull_target *target, struct penstock_error *error);
void pull_target_close(struct pull_target *target);

/* Whether name can be landed: makes its directories, and refuses links among them and a directory at its end. */
PENSTOCK_CHECKED int pull_target_prepare(const struct pull_target *target, const char *name,
                                         struct penstock_error *error);

/* Opens what has the final name already, to read. ENOTFOUND: nothing, or not a plain file of this length. */
PENSTOCK_CHECKED int pull_target_open_final(const struct pull_target *target, const char *name, uint64_t len_bytes,
                                            int *fd);

/* Temporary file number n, new. */
PENSTOCK_CHECKED int pull_target_create(const struct pull_target *target, size_t n, int *fd,
                                        struct penstock_error *error);
/* The one that an earlier pull left. ENOTFOUND: none, or not the plain file of this length and our own that it should
 * be. */
PENSTOCK_CHECKED int pull_target_reopen(const struct pull_target *target, size_t n, uint64_t len_bytes, int *fd);

/* Reserves len_bytes on the disk for fd and sets its length. total_bytes is what the whole pull needs, for the words of
 * ELIMIT: the disk has less. */
PENSTOCK_CHECKED int pull_target_reserve(const struct pull_target *target, int fd, uint64_t len_bytes,
                                         uint64_t total_bytes, struct penstock_error *error);
/* ELIMIT: not even an empty disk would hold need_bytes. */
PENSTOCK_CHECKED int pull_target_capacity(const struct pull_target *target, uint64_t need_bytes,
                                          struct penstock_error *error);
/* ELIMIT: less than need_bytes are free. */
PENSTOCK_CHECKED int pull_target_space(const struct pull_target *target, uint64_t need_bytes,
                                       struct penstock_error *error);

/* Gives temporary file n its final name, in place of what had it. */
PENSTOCK_CHECKED int pull_target_land(const struct pull_target *target, size_t n, const char *name,
                                      struct penstock_error *error);

/* Removes every temporary file. */
void pull_target_clean(const struct pull_target *target);

#endif
