#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "pack.h"

static bool is_inside(const char *path, const char *directory)
{
    size_t len = strlen(directory);
    return strncmp(path, directory, len) == 0 && (path[len] == 0 || path[len] == '/');
}

int pack_check_place(const struct pack_options *options, struct penstock_error *error)
{
    char *copy = strdup(options->store), *checkpoint = realpath(options->checkpoint, NULL);
    char *store = realpath(options->store, NULL), *parent = copy ? realpath(dirname(copy), NULL) : NULL;
    int status = 0;
    if (checkpoint && (store || parent) && is_inside(store ? store : parent, checkpoint))
        status = base_error_set(error, PENSTOCK_EINVAL, "%s lies inside the checkpoint: choose another place",
                                options->store);
    else if (checkpoint && store && is_inside(checkpoint, store))
        status = base_error_set(error, PENSTOCK_EINVAL, "the checkpoint lies inside %s: choose another place",
                                options->store);
    free(parent);
    free(store);
    free(checkpoint);
    free(copy);
    return status;
}
