/* The index of a kept file. It goes through the page cache: what is written there outlives this process. It does not
 * outlive the host, and that is what the header is for: it names the host's run, and a file that was not closed in it
 * starts empty in the next. */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "state.h"

int swap_pwrite(int fd, const void *from, size_t len, off_t offset)
{
    const uint8_t *at = from;
    while (len > 0) {
        ssize_t n = pwrite(fd, at, len, offset);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            return -EIO;
        if (n > 0) {
            at += n;
            len -= (size_t)n;
            offset += n;
        }
    }
    return 0;
}

static int write_entry(struct residency_swap_file *file, const uint8_t *bytes, uint32_t record)
{
    off_t offset = (off_t)swap_index_entry_offset(record);
    int code = swap_hook(file->swap, RESIDENCY_SWAP_INDEX, (uint64_t)offset, NULL);
    return code != 0 ? code : swap_pwrite(file->index_fd, bytes, SWAP_INDEX_ENTRY_BYTES, offset);
}

bool swap_entry_write(struct residency_swap_file *file, const struct residency_swap_io *io)
{
    struct swap_index_entry entry = { .key = io->key,
                                      .generation = io->generation,
                                      .checksum = io->checksum,
                                      .written_s = (uint64_t)time(NULL),
                                      .boot = file->swap->boot };
    uint8_t bytes[SWAP_INDEX_ENTRY_BYTES];
    swap_index_entry_encode(&entry, &file->geometry, io->record, bytes);
    int code = write_entry(file, bytes, io->record);
    if (code == 0)
        return true;
    char words[128];
    base_log_warning("swap file %s: record %u will not be found after a restart: %s", file->index_name, io->record,
                     strerror_r(-code, words, sizeof words));
    return false;
}

void swap_entry_clear(struct residency_swap_file *file, uint32_t record)
{
    static const uint8_t none[SWAP_INDEX_ENTRY_BYTES];
    if (!file->keep)
        return;
    int code = write_entry(file, none, record);
    if (code == 0)
        return;
    char words[128];
    strerror_r(-code, words, sizeof words);
    /* A removed key must not come back: rather none does. An index without a header and entries is an empty one. */
    file->keep = false;
    bool unlinked = unlinkat(file->swap->directory_fd, file->index_name, 0) == 0;
    if (ftruncate(file->index_fd, 0) == 0 || unlinked)
        base_log_error("swap file %s: an entry could not be cleared: %s; none of its records will be found after a "
                       "restart",
                       file->index_name, words);
    else
        base_log_error("swap file %s: an entry could not be cleared, nor the file removed: %s; remove it before the "
                       "next start, or keys come back that were removed",
                       file->index_name, words);
}

int swap_header_write(struct residency_swap_file *file, bool clean, struct penstock_error *error)
{
    struct swap_index_header header = { .geometry = file->geometry, .boot = file->swap->boot, .clean = clean };
    uint8_t bytes[SWAP_INDEX_HEADER_BYTES];
    swap_index_header_encode(&header, bytes);
    int code = swap_pwrite(file->index_fd, bytes, sizeof bytes, 0);
    if (code == 0 && fdatasync(file->index_fd) != 0)
        code = -errno;
    return code == 0 ? 0 : base_error_sys(error, -code, "write %s/%s", file->swap->directory, file->index_name);
}
