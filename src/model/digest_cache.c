#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/rng.h"
#include "digest_format.h"
#include "safetensors.h"

/* Two places: beside the model, and in the user's cache folder under a name made from the model's path. */
struct place {
    char directory[PATH_MAX];
    char name[64];
};

static bool place_beside(const struct model_staged *staged, struct place *out)
{
    int n = snprintf(out->directory, sizeof out->directory, "%s", staged->directory);
    snprintf(out->name, sizeof out->name, ".penstock-digests");
    return n > 0 && (size_t)n < sizeof out->directory;
}

static bool place_of_user(const struct model_staged *staged, struct place *out)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && cache[0] == '/')
        n = snprintf(out->directory, sizeof out->directory, "%s/penstock", cache);
    else if (home && home[0] == '/')
        n = snprintf(out->directory, sizeof out->directory, "%s/.cache/penstock", home);
    XXH128_hash_t hash = XXH3_128bits(staged->directory, strlen(staged->directory));
    snprintf(out->name, sizeof out->name, "%016llx%016llx.digests", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
    return n > 0 && (size_t)n < sizeof out->directory;
}

static int open_directory(const struct place *place)
{
    return open(place->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static uint64_t load_from(const struct place *place, const struct model_staged *staged, struct model_digests *digests)
{
    int directory = open_directory(place);
    if (directory < 0)
        return 0;
    /* O_NONBLOCK: a FIFO of that name does not stop us. */
    int fd = openat(directory, place->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    close(directory);
    struct stat st;
    uint8_t *bytes = NULL;
    uint64_t taken = 0;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
        (uint64_t)st.st_size <= MODEL_DIGEST_CACHE_BYTES_MAX && (bytes = malloc((size_t)st.st_size)) &&
        model_pread(fd, bytes, (size_t)st.st_size, 0, NULL) == 0)
        taken = model_digests_decode(bytes, (size_t)st.st_size, staged, digests);
    free(bytes);
    if (fd >= 0)
        close(fd);
    return taken;
}

uint64_t model_digests_load(const struct model_staged *staged, struct model_digests *digests)
{
    struct place place;
    uint64_t taken = place_beside(staged, &place) ? load_from(&place, staged, digests) : 0;
    return taken + (place_of_user(staged, &place) ? load_from(&place, staged, digests) : 0);
}

static int write_all(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Under a name that nobody can have prepared, then renamed over the old one, whatever that is. Returns an errno. */
static int save_to(const struct place *place, const struct base_buf *bytes)
{
    char temporary[100];
    uint64_t random;
    if (base_random(&random, sizeof random) != 0)
        return EIO;
    snprintf(temporary, sizeof temporary, ".penstock-digests.%016llx", (unsigned long long)random);
    int directory = open_directory(place);
    if (directory < 0)
        return errno;
    int fd = openat(directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    int cause = fd < 0 ? errno : write_all(fd, bytes->at, bytes->n);
    if (fd >= 0 && close(fd) != 0 && cause == 0)
        cause = errno;
    if (cause == 0 && renameat(directory, temporary, directory, place->name) != 0)
        cause = errno;
    if (fd >= 0 && cause != 0)
        (void)unlinkat(directory, temporary, 0);
    close(directory);
    return cause;
}

static void make_directories(const char *path)
{
    char part[PATH_MAX];
    for (size_t i = 1; path[i - 1]; i++)
        if (path[i] == '/' || path[i] == 0) {
            memcpy(part, path, i);
            part[i] = 0;
            (void)mkdir(part, 0700); /* what is wrong shows when the file is made */
        }
}

int model_digests_save(const struct model_staged *staged, const struct model_digests *digests, char *where,
                       size_t where_size, struct penstock_error *error)
{
    struct base_buf bytes = { 0 };
    struct place place;
    int status = model_digests_encode(staged, digests, &bytes, error), cause = ENAMETOOLONG;
    if (status == 0) {
        if (place_beside(staged, &place))
            cause = save_to(&place, &bytes);
        if (cause != 0 && place_of_user(staged, &place)) {
            make_directories(place.directory);
            cause = save_to(&place, &bytes);
        }
        if (cause != 0)
            status = base_error_sys(error, cause, "keep digests of %s", staged->directory);
        else if (where)
            snprintf(where, where_size, "%s/%s", place.directory, place.name);
    }
    base_buf_fini(&bytes);
    return status;
}
