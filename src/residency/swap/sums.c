/* The sums of a record's pieces, in a file of their own beside it, so that the first pieces of a large blob can be used
 * while the rest is being read. They cost no memory, go through the page cache, and are a hint: they are believed where
 * together they give the seal, and where not, the blob is known once all of it is there. So nothing has to be right
 * about this file, not after a crash and not when it could not be written. */
#include <stdlib.h>
#include <unistd.h>

#include "state.h"

struct swap_sums {
    bool asked, known; /* of a read: what they should be was looked for, and is to be believed */
    uint32_t good;     /* of a read: the first so many pieces are what was written */
    bool *here;        /* a piece that has its sum */
    uint64_t *should;  /* of a read */
    uint64_t is[];
};

static size_t bytes_on_disk(const struct residency_swap_file *file)
{
    return file->pieces * sizeof(uint64_t);
}

static off_t offset_on_disk(const struct residency_swap_io *io)
{
    return (off_t)(io->record * (uint64_t)bytes_on_disk(io->file));
}

void swap_sums_begin(struct residency_swap_io *io)
{
    const struct residency_swap_file *file = io->file;
    bool is_sent = io->progress && io->request_bytes < file->geometry.blob_bytes;
    if (file->sums_fd < 0 || (!io->write && !is_sent))
        return;
    struct swap_sums *sums = calloc(1, sizeof *sums + 2 * bytes_on_disk(file) + file->pieces);
    if (!sums)
        return;
    sums->should = sums->is + file->pieces;
    sums->here = (bool *)(sums->should + file->pieces);
    io->sums = sums;
}

void swap_sums_write(const struct residency_swap_io *io)
{
    if (io->sums)
        (void)swap_pwrite(io->file->sums_fd, io->sums->is, bytes_on_disk(io->file), offset_on_disk(io));
}

static bool are_believed(const struct residency_swap_io *io)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < io->file->pieces; i++)
        all += io->sums->should[i];
    return swap_seal(&io->key, io->generation, all) == swap_record_seal_of(io->file, io->record);
}

/* How many bytes from the first on have become good; 0: no more than before. queue_lock is held. */
static uint64_t grow(struct swap_sums *sums, const struct residency_swap_file *file)
{
    uint32_t before = sums->good;
    while (sums->known && sums->good < file->pieces && sums->here[sums->good] &&
           sums->is[sums->good] == sums->should[sums->good])
        sums->good++;
    return sums->good == before ? 0 : sums->good * file->piece_bytes;
}

static void tell(struct residency_swap_io *io, uint64_t bytes)
{
    if (bytes > 0 && bytes < io->file->geometry.blob_bytes) /* of all of it `done` will */
        io->progress(io, bytes);
}

void swap_sums_read(struct residency_swap_io *io)
{
    const struct residency_swap_file *file = io->file;
    struct residency_swap *swap = file->swap;
    struct swap_sums *sums = io->sums;
    if (!sums || sums->asked)
        return;
    sums->asked = true;
    ssize_t n = pread(file->sums_fd, sums->should, bytes_on_disk(file), offset_on_disk(io));
    if (n != (ssize_t)bytes_on_disk(file) || !are_believed(io))
        return;
    /* Pieces behind the first may be here by now. */
    pthread_mutex_lock(&swap->queue_lock);
    sums->known = true;
    uint64_t bytes = grow(sums, file);
    pthread_mutex_unlock(&swap->queue_lock);
    tell(io, bytes);
}

void swap_sums_take(struct residency_swap_io *io, uint64_t number, uint64_t sum)
{
    struct residency_swap *swap = io->file->swap;
    struct swap_sums *sums = io->sums;
    if (!sums)
        return;
    pthread_mutex_lock(&swap->queue_lock);
    sums->is[number] = sum;
    sums->here[number] = true;
    uint64_t bytes = grow(sums, io->file);
    pthread_mutex_unlock(&swap->queue_lock);
    tell(io, bytes);
}

void swap_sums_free(struct residency_swap_io *io)
{
    free(io->sums);
    io->sums = NULL;
}
