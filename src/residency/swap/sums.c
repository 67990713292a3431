/* The sums of a record's pieces, in a file of their own beside it, so that the first pieces of a large blob can be used
 * while the rest is being read. They cost no memory, go through the page cache, and are a hint: they are believed where
 * together they give the seal, and where not, the blob is known once all of it is there. So nothing has to be right
 * about this file, not after a crash and not when it could not be written. */
#include <stdlib.h>
#include <unistd.h>

#include "state.h"

struct swap_sums {
    uint32_t good;    /* of a read: the first so many pieces are what was written */
    bool *here;       /* a piece that is, and may be behind one that is not here yet */
    uint64_t piece[]; /* of a write: as they are taken; of a read: as they should be */
};

static size_t bytes_on_disk(const struct residency_swap_file *file)
{
    return file->pieces * sizeof(uint64_t);
}

static off_t offset_on_disk(const struct residency_swap_io *io)
{
    return (off_t)(io->record * (uint64_t)bytes_on_disk(io->file));
}

static struct swap_sums *new_sums(const struct residency_swap_file *file)
{
    struct swap_sums *sums = calloc(1, sizeof *sums + bytes_on_disk(file) + file->pieces);
    if (sums)
        sums->here = (bool *)(sums->piece + file->pieces);
    return sums;
}

void swap_sums_begin(struct residency_swap_io *io)
{
    if (io->file->sums_fd >= 0)
        io->sums = new_sums(io->file);
}

void swap_sums_write(const struct residency_swap_io *io)
{
    if (io->sums)
        (void)swap_pwrite(io->file->sums_fd, io->sums->piece, bytes_on_disk(io->file), offset_on_disk(io));
}

static bool believed(const struct residency_swap_io *io, const struct swap_sums *sums)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < io->file->pieces; i++)
        all += sums->piece[i];
    return swap_seal(&io->key, io->generation, all) == swap_record_seal_of(io->file, io->record);
}

void swap_sums_read(struct residency_swap_io *io)
{
    struct residency_swap_file *file = io->file;
    if (!io->progress || file->sums_fd < 0)
        return;
    struct swap_sums *sums = new_sums(file);
    if (!sums)
        return;
    ssize_t n = pread(file->sums_fd, sums->piece, bytes_on_disk(file), offset_on_disk(io));
    if (n != (ssize_t)bytes_on_disk(file) || !believed(io, sums)) {
        free(sums);
        return;
    }
    /* Others have begun with pieces behind the first. */
    pthread_mutex_lock(&file->swap->queue_lock);
    io->sums = sums;
    pthread_mutex_unlock(&file->swap->queue_lock);
}

/* How many bytes from the first on are good now; 0: as many as before. */
static uint64_t grown(struct swap_sums *sums, const struct residency_swap_file *file, uint64_t number)
{
    uint32_t before = sums->good;
    sums->here[number] = true;
    while (sums->good < file->pieces && sums->here[sums->good])
        sums->good++;
    return sums->good == before ? 0 : sums->good * file->piece_bytes;
}

void swap_sums_take(const struct swap_piece *piece)
{
    struct residency_swap_io *io = piece->io;
    struct residency_swap *swap = io->file->swap;
    uint64_t number = piece->offset_bytes / io->file->piece_bytes, bytes = 0;
    if (io->write) {
        if (io->sums)
            io->sums->piece[number] = piece->checksum;
        return;
    }
    if (!io->progress)
        return;
    pthread_mutex_lock(&swap->queue_lock);
    if (io->sums && io->sums->piece[number] == piece->checksum)
        bytes = grown(io->sums, io->file, number);
    pthread_mutex_unlock(&swap->queue_lock);
    if (bytes > 0 && bytes < io->file->geometry.blob_bytes) /* of all of it `done` will tell */
        io->progress(io, bytes);
}

void swap_sums_free(struct residency_swap_io *io)
{
    free(io->sums);
    io->sums = NULL;
}
