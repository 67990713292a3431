#include "save.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/vec.h"

static int write_all(int fd, const uint8_t *at, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, at, len < (1U << 30) ? len : 1U << 30);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Closes fd. Returns an errno. */
static int fill(int fd, const void *at, size_t len)
{
    int failed = write_all(fd, at, len);
    if (!failed && fsync(fd) < 0 && errno != EINVAL)
        failed = errno;
    if (close(fd) < 0 && !failed)
        failed = errno;
    return failed;
}

static int save_as(const char *temp, const char *path, const void *at, size_t len, struct penstock_error *error)
{
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return base_error_sys(error, errno, "%s: can't be written", path);
    int failed = fill(fd, at, len);
    if (!failed && rename(temp, path) < 0)
        failed = errno;
    if (!failed)
        return 0;
    unlink(temp);
    return base_error_sys(error, failed, "%s: can't be written", path);
}

static int save_file(const char *path, const void *at, size_t len, struct penstock_error *error)
{
    struct base_buf temp = { 0 };
    const char *slash = strrchr(path, '/');
    int dir = slash ? (int)(slash + 1 - path) : 0;
    base_buf_printf(&temp, "%.*s.penstock-save.%ld", dir, path, (long)getpid());
    base_buf_append(&temp, "", 1);
    if (temp.failed)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory to write %s", path);
    /* So that no interruption leaves the temporary file behind. */
    sigset_t all, before;
    sigemptyset(&all);
    sigaddset(&all, SIGINT);
    sigaddset(&all, SIGTERM);
    sigaddset(&all, SIGHUP);
    sigprocmask(SIG_BLOCK, &all, &before);
    int code = save_as((const char *)temp.at, path, at, len, error);
    sigprocmask(SIG_SETMASK, &before, NULL);
    base_buf_fini(&temp);
    return code;
}

static int save_in_place(const char *path, const void *at, size_t len, struct penstock_error *error)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int failed = fd < 0 ? errno : fill(fd, at, len);
    return failed ? base_error_sys(error, failed, "%s: can't be written", path) : 0;
}

int cli_save(const char *path, const void *at, size_t len_bytes, struct penstock_error *error)
{
    struct stat there;
    if (stat(path, &there) < 0)
        return save_file(path, at, len_bytes, error);
    if (!S_ISREG(there.st_mode))
        return save_in_place(path, at, len_bytes, error);
    /* Where path is a link, the file that it leads to is the one to be replaced. */
    char *real = realpath(path, NULL);
    if (!real)
        return base_error_sys(error, errno, "%s", path);
    int code = save_file(real, at, len_bytes, error);
    free(real);
    return code;
}
