#include "links.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

/* The component of path that ends at end (exclusive), and where it begins; NULL: none is left. */
static const char *component_before(const char *path, const char **end)
{
    while (*end > path && (*end)[-1] == '/')
        (*end)--;
    if (*end == path)
        return NULL;
    const char *begin = *end;
    while (begin > path && begin[-1] != '/')
        begin--;
    return begin;
}

/* The "models--org--name" of a snapshot directory, with its end; NULL: it is none. */
static const char *repository(const char *directory, const char **end)
{
    *end = directory + strlen(directory);
    const char *revision = component_before(directory, end);
    if (!revision)
        return NULL;
    *end = revision;
    const char *snapshots = component_before(directory, end);
    if (!snapshots || *end - snapshots != 9 || memcmp(snapshots, "snapshots", 9) != 0)
        return NULL;
    *end = snapshots;
    const char *repo = component_before(directory, end);
    return repo && *end - repo > 8 && memcmp(repo, "models--", 8) == 0 ? repo : NULL;
}

size_t model_hub_name(const char *directory, char *out)
{
    const char *end, *repo = repository(directory, &end);
    size_t n = 0;
    if (!repo)
        return 0;
    /* Only the first "--" is the slash: a name may hold another. A repository without an organisation has none. */
    bool slash = false;
    for (const char *at = repo + 8; at < end; at++)
        if (!slash && end - at > 2 && at > repo + 8 && at[0] == '-' && at[1] == '-') {
            out[n++] = '/';
            slash = true;
            at++;
        } else {
            out[n++] = *at;
        }
    out[n] = 0;
    return n;
}

/* Where an open file really is. */
static int real_path(int fd, char *out, size_t size, struct penstock_error *error)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, size);
    if (n < 0)
        return base_error_sys(error, errno, "read %s", link);
    if ((size_t)n >= size)
        return base_error_set(error, PENSTOCK_EINVAL, "path is too long");
    out[n] = 0;
    return 0;
}

int model_root_open(const char *directory, bool follow_all, struct model_root *out, struct penstock_error *error)
{
    *out = (struct model_root){ .fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .follow_all = follow_all };
    if (out->fd < 0) {
        int cause = errno, code = base_error_sys(error, cause, "open");
        if (cause != ENOENT && cause != ENOTDIR)
            return code;
        if (error)
            error->code = PENSTOCK_ENOTFOUND;
        return PENSTOCK_ENOTFOUND;
    }
    int status = real_path(out->fd, out->real, sizeof out->real, error);
    if (status != 0) {
        model_root_close(out);
        return status;
    }
    const char *end, *repo = repository(out->real, &end);
    if (repo && (size_t)(end - out->real) + sizeof "/blobs" <= sizeof out->blobs) {
        memcpy(out->blobs, out->real, (size_t)(end - out->real));
        memcpy(out->blobs + (end - out->real), "/blobs", sizeof "/blobs");
    }
    return 0;
}

void model_root_close(struct model_root *root)
{
    if (root->fd >= 0)
        close(root->fd);
    root->fd = -1;
}

static bool is_inside(const char *path, const char *directory)
{
    size_t n = strlen(directory);
    while (n > 0 && directory[n - 1] == '/')
        n--;
    return directory[0] != 0 && strncmp(path, directory, n) == 0 && path[n] == '/';
}

static int check_place(const struct model_root *root, int fd, const char *name, struct penstock_error *error)
{
    char real[PATH_MAX];
    if (root->follow_all)
        return 0;
    int status = real_path(fd, real, sizeof real, error);
    if (status != 0) {
        (void)base_error_in(error, "%s", name);
        return status;
    }
    if (is_inside(real, root->real) || is_inside(real, root->blobs))
        return 0;
    return base_error_set(error, PENSTOCK_EDENIED, "%s: a link that leads outside the model's directory, to %s", name,
                          real);
}

static int open_failed(const char *name, int errno_, struct penstock_error *error)
{
    int code = base_error_sys(error, errno_, "%s", name);
    if (errno_ != ENOENT)
        return code;
    if (error)
        error->code = PENSTOCK_ENOTFOUND;
    return PENSTOCK_ENOTFOUND;
}

/* O_PATH first: it opens nothing, so that a FIFO does not block and a device does not notice. What it holds is judged,
 * and that very thing is then opened. */
int model_root_file(const struct model_root *root, const char *name, int *fd, struct stat *st,
                    struct penstock_error *error)
{
    int status = 0;
    int path = openat(root->fd, name, O_PATH | O_CLOEXEC);
    if (path < 0)
        return open_failed(name, errno, error);
    if (fstat(path, st) != 0)
        status = base_error_sys(error, errno, "%s", name);
    else if (!S_ISREG(st->st_mode))
        status = base_error_set(error, PENSTOCK_EINVAL, "%s: not a regular file", name);
    else
        status = check_place(root, path, name, error);
    if (status == 0) {
        char link[32];
        snprintf(link, sizeof link, "/proc/self/fd/%d", path);
        *fd = open(link, O_RDONLY | O_CLOEXEC);
        if (*fd < 0)
            status = open_failed(name, errno, error);
    }
    close(path);
    return status;
}
