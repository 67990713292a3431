#include "store_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "model/safetensors.h"

static int corrupt(struct penstock_error *error)
{
    if (error)
        error->code = PENSTOCK_ECORRUPT;
    return PENSTOCK_ECORRUPT;
}

int model_store_manifest_load(int fd, struct model_expert_manifest *out, struct penstock_error *error)
{
    struct stat st;
    *out = (struct model_expert_manifest){ 0 };
    if (fstat(fd, &st) != 0)
        return base_error_sys(error, errno, "look at");
    if (st.st_size == 0)
        return base_error_set(error, PENSTOCK_ECORRUPT, "empty");
    if (st.st_size > PENSTOCK_EXPERT_MANIFEST_BYTES_MAX)
        return base_error_set(error, PENSTOCK_ECORRUPT, "%lld bytes, and %" PRIu32 " are the most",
                              (long long)st.st_size, PENSTOCK_EXPERT_MANIFEST_BYTES_MAX);
    size_t len = (size_t)st.st_size;
    char *text = malloc(len);
    if (!text)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu bytes", len);
    int status = model_pread(fd, text, len, 0, error);
    if (status == 0)
        status = model_expert_manifest_read(text, len, out, error);
    free(text);
    return status == PENSTOCK_EPROTO ? corrupt(error) : status;
}

int model_store_layer_size(uint64_t file_bytes, const struct model_expert_geometry *geometry,
                           struct penstock_error *error)
{
    if (file_bytes == geometry->layer_bytes)
        return 0;
    return base_error_set(error, PENSTOCK_ECORRUPT,
                          "%" PRIu64 " bytes, but %" PRIu32 " records of %" PRIu64 " bytes make %" PRIu64, file_bytes,
                          geometry->num_experts, geometry->record_stride, geometry->layer_bytes);
}

int model_store_layer_check(int fd, const struct model_expert_geometry *geometry, uint32_t layer,
                            struct penstock_error *error)
{
    uint8_t header[PENSTOCK_RECORD_HEADER_BYTES];
    struct stat st;
    if (fstat(fd, &st) != 0)
        return base_error_sys(error, errno, "look at");
    int status = model_store_layer_size((uint64_t)st.st_size, geometry, error);
    for (uint32_t expert = 0; expert < geometry->num_experts && status == 0; expert++) {
        status = model_pread(fd, header, sizeof header, model_expert_record_at(geometry, expert), error);
        if (status == 0)
            status = model_expert_header_check(geometry, layer, expert, header, NULL, error);
    }
    return status;
}

/* Returns an errno. */
static int write_and_sync(int fd, const struct base_buf *bytes)
{
    for (size_t done = 0; done < bytes->n;) {
        ssize_t n = write(fd, bytes->at + done, bytes->n - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        done += (size_t)n;
    }
    return fsync(fd) == 0 ? 0 : errno;
}

int model_store_file_write(int directory, const char *name, const struct base_buf *bytes, struct penstock_error *error)
{
    char temporary[64];
    snprintf(temporary, sizeof temporary, "%s.tmp", name);
    /* Whatever an interrupted writer, or somebody else, left under that name is not written to. */
    (void)unlinkat(directory, temporary, 0);
    int fd = openat(directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    int cause = fd < 0 ? errno : write_and_sync(fd, bytes);
    if (fd >= 0 && close(fd) != 0 && cause == 0)
        cause = errno;
    if (cause == 0 && renameat(directory, temporary, directory, name) != 0)
        cause = errno;
    if (cause != 0 && fd >= 0)
        (void)unlinkat(directory, temporary, 0);
    if (cause == 0 && fsync(directory) != 0)
        cause = errno;
    return cause == 0 ? 0 : base_error_sys(error, cause, "write");
}
