#include "pull_target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.h"
#include "pull_plan.h"
#include "text.h"

#define TEMP_PREFIX PULL_OWN_PREFIX "."

static int make_directories(const char *path)
{
    char at[PATH_MAX];
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof at)
        return len ? ENAMETOOLONG : ENOENT;
    memcpy(at, path, len + 1);
    for (char *slash = strchr(at + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(at, 0777) < 0 && errno != EEXIST)
            return errno;
        *slash = '/';
    }
    return mkdir(at, 0777) < 0 && errno != EEXIST ? errno : 0;
}

int pull_target_open(const char *path, struct pull_target *target, struct penstock_error *error)
{
    *target = (struct pull_target){ .dir_fd = -1, .path = strdup(path) };
    if (!target->path)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    int failed = make_directories(path);
    if (failed == 0) {
        target->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (target->dir_fd >= 0)
            return 0;
        failed = errno;
    }
    int rc = base_error_sys(error, failed, "%s: can't be made or opened as a directory", path);
    pull_target_close(target);
    return rc;
}

void pull_target_close(struct pull_target *target)
{
    if (target->dir_fd >= 0)
        close(target->dir_fd);
    free(target->path);
    *target = (struct pull_target){ .dir_fd = -1 };
}

/* Opens the directory that name's last component is in, never through a link. The name has been judged: at most
 * PATH_MAX bytes, no empty or dotted component. Returns an errno. */
static int open_parent(const struct pull_target *target, const char *name, bool make, int *parent, const char **last)
{
    int at = fcntl(target->dir_fd, F_DUPFD_CLOEXEC, 0);
    if (at < 0)
        return errno;
    if (pull_name_fault(name, false)) {
        close(at);
        return EINVAL;
    }
    for (const char *slash; (slash = strchr(name, '/')); name = slash + 1) {
        char component[NAME_MAX + 1];
        size_t len = (size_t)(slash - name);
        memcpy(component, name, len);
        component[len] = '\0';
        if (make && mkdirat(at, component, 0777) < 0 && errno != EEXIST) {
            int failed = errno;
            close(at);
            return failed;
        }
        int below = openat(at, component, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int failed = errno;
        close(at);
        if (below < 0)
            return failed;
        at = below;
    }
    *parent = at;
    *last = name;
    return 0;
}

static int failed_at(const struct pull_target *target, const char *name, int failed, struct penstock_error *error)
{
    char escaped[256];
    cli_escape(escaped, sizeof escaped, name);
    /* O_DIRECTORY | O_NOFOLLOW on a link is ENOTDIR on some kernels and ELOOP on others. */
    if (failed == ELOOP || failed == ENOTDIR)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "%s/%s: a link or a file lies where a directory must be; nothing is written through it",
                              target->path, escaped);
    return base_error_sys(error, failed, "%s/%s", target->path, escaped);
}

int pull_target_prepare(const struct pull_target *target, const char *name, struct penstock_error *error)
{
    int parent;
    const char *last;
    int failed = open_parent(target, name, true, &parent, &last);
    if (failed)
        return failed_at(target, name, failed, error);
    struct stat st;
    bool directory = fstatat(parent, last, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
    close(parent);
    return directory ? failed_at(target, name, EISDIR, error) : 0;
}

static bool is_plain(int fd, uint64_t len_bytes, bool ours_alone)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != len_bytes)
        return false;
    /* A second name may lie outside the target. */
    return !ours_alone || (st.st_nlink == 1 && st.st_uid == geteuid());
}

static int opened(int fd, uint64_t len_bytes, bool ours_alone, int *out)
{
    if (fd < 0)
        return PENSTOCK_ENOTFOUND;
    if (!is_plain(fd, len_bytes, ours_alone)) {
        close(fd);
        return PENSTOCK_ENOTFOUND;
    }
    *out = fd;
    return 0;
}

int pull_target_open_final(const struct pull_target *target, const char *name, uint64_t len_bytes, int *fd)
{
    int parent;
    const char *last;
    if (open_parent(target, name, false, &parent, &last) != 0)
        return PENSTOCK_ENOTFOUND;
    int at = openat(parent, last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    close(parent);
    return opened(at, len_bytes, false, fd);
}

static void temp_name(size_t n, char out[64])
{
    snprintf(out, 64, TEMP_PREFIX "%zu", n);
}

int pull_target_create(const struct pull_target *target, size_t n, int *fd, struct penstock_error *error)
{
    char name[64];
    temp_name(n, name);
    if (unlinkat(target->dir_fd, name, 0) < 0 && errno != ENOENT)
        return base_error_sys(error, errno, "%s/%s: can't be removed", target->path, name);
    *fd = openat(target->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return *fd < 0 ? base_error_sys(error, errno, "%s/%s: can't be made", target->path, name) : 0;
}

int pull_target_reopen(const struct pull_target *target, size_t n, uint64_t len_bytes, int *fd)
{
    char name[64];
    temp_name(n, name);
    return opened(openat(target->dir_fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), len_bytes, true, fd);
}

static uint64_t free_bytes(const struct pull_target *target)
{
    struct statvfs vfs;
    return fstatvfs(target->dir_fd, &vfs) < 0 ? UINT64_MAX : (uint64_t)vfs.f_bavail * vfs.f_frsize;
}

static int no_space(const struct pull_target *target, uint64_t need_bytes, struct penstock_error *error)
{
    char need[CLI_SIZE_MAX], have[CLI_SIZE_MAX];
    uint64_t have_bytes = free_bytes(target);
    return base_error_set(error, PENSTOCK_ELIMIT, "%s: no space: %s (%llu bytes) needed, %s (%llu bytes) free",
                          target->path, cli_size(need_bytes, need), (unsigned long long)need_bytes,
                          cli_size(have_bytes, have), (unsigned long long)have_bytes);
}

int pull_target_capacity(const struct pull_target *target, uint64_t need_bytes, struct penstock_error *error)
{
    struct statvfs vfs;
    bool small = fstatvfs(target->dir_fd, &vfs) == 0 && need_bytes > (uint64_t)vfs.f_blocks * vfs.f_frsize;
    return small ? no_space(target, need_bytes, error) : 0;
}

int pull_target_space(const struct pull_target *target, uint64_t need_bytes, struct penstock_error *error)
{
    return need_bytes > free_bytes(target) ? no_space(target, need_bytes, error) : 0;
}

int pull_target_reserve(const struct pull_target *target, int fd, uint64_t len_bytes, uint64_t total_bytes,
                        struct penstock_error *error)
{
    if (len_bytes == 0)
        return 0;
    int rc;
    do
        rc = fallocate(fd, 0, 0, (off_t)len_bytes);
    while (rc < 0 && errno == EINTR);
    /* posix_fallocate would write zeros where the file system cannot reserve: a second pass over everything. */
    if (rc < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        rc = ftruncate(fd, (off_t)len_bytes);
    if (rc == 0)
        return 0;
    if (errno == ENOSPC || errno == EDQUOT)
        return no_space(target, total_bytes, error);
    char len[CLI_SIZE_MAX];
    return base_error_sys(error, errno, "%s: can't make a file of %s (%llu bytes)", target->path,
                          cli_size(len_bytes, len), (unsigned long long)len_bytes);
}

int pull_target_land(const struct pull_target *target, size_t n, const char *name, struct penstock_error *error)
{
    int parent = -1;
    const char *last = NULL;
    char temp[64];
    temp_name(n, temp);
    int failed = open_parent(target, name, true, &parent, &last);
    if (failed == 0) {
        failed = renameat(target->dir_fd, temp, parent, last) < 0 ? errno : 0;
        close(parent);
    }
    return failed ? failed_at(target, name, failed, error) : 0;
}

void pull_target_clean(const struct pull_target *target)
{
    int fd = openat(target->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *digits = entry->d_name + sizeof TEMP_PREFIX - 1;
        if (strncmp(entry->d_name, TEMP_PREFIX, sizeof TEMP_PREFIX - 1) == 0 && *digits &&
            digits[strspn(digits, "0123456789")] == '\0')
            unlinkat(target->dir_fd, entry->d_name, 0);
    }
    closedir(dir);
}
