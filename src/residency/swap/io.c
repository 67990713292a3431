/* One piece of a transfer, step by step: an engine asks for the next move, makes it, and says what came of it. */
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "state.h"

int swap_hook(const struct residency_swap *swap, enum residency_swap_step step, uint64_t offset_bytes, size_t *len)
{
    const struct residency_swap_hook *hook = swap->options.hook;
    size_t ignored = 0;
    return hook ? hook->before(hook->user, step, offset_bytes, len ? len : &ignored) : 0;
}

/* ---- a transfer ---- */

uint64_t swap_seal(const struct residency_key *key, uint64_t generation, uint64_t checksum)
{
    uint64_t of[4] = { key->low, key->high, generation, checksum };
    uint64_t hash = XXH3_64bits(of, sizeof of);
    return hash == 0 || hash == SWAP_BAD ? 1 : hash;
}

/* A disk that fails, fails often: all of the first few, then ever fewer. */
static bool worth_a_line(struct residency_swap *swap)
{
    uint64_t n = ++swap->complaints;
    return n <= 16 || (n & (n - 1)) == 0;
}

/* Seeded with its place: a blob's checksum is the sum of its pieces', whichever is there first. Of a blob that is one
 * piece it is plain XXH3-64. */
static void sum(struct swap_piece *piece)
{
    struct residency_swap_io *io = piece->io;
    const uint64_t unit = io->file->piece_bytes, end = piece->offset_bytes + piece->len_bytes;
    for (uint64_t at = piece->offset_bytes; at < end; at += unit) {
        uint64_t of_it = swap_sum((const uint8_t *)io->blob + at, base_min_u64(unit, end - at), at / unit);
        piece->checksum += of_it;
        swap_sums_take(io, at / unit, of_it);
    }
}

static void complain(struct residency_swap_io *io)
{
    char words[128];
    if (io->code == PENSTOCK_ECORRUPT)
        base_log_error("swap file %s: record %u is not what was written there; it is dropped", io->file->data_name,
                       io->record);
    else
        base_log_error("swap file %s: %s record %u: %s", io->file->data_name, io->write ? "write" : "read", io->record,
                       io->sys_errno ? strerror_r(io->sys_errno, words, sizeof words) : penstock_error_name(io->code));
}

/* What a disk has no room for is no fault of the place. */
static bool is_full(int sys_errno)
{
    return sys_errno == ENOSPC || sys_errno == EDQUOT || sys_errno == EFBIG;
}

/* All pieces are over, and io->code says how. */
static void finish(struct residency_swap_io *io)
{
    struct residency_swap_file *file = io->file;
    struct residency_swap *swap = file->swap;
    uint64_t seal = swap_seal(&io->key, io->generation, io->checksum);
    if (io->code == 0 && io->write) {
        swap_sums_write(io);
        bool indexed = file->keep && !io->owned && swap_entry_write(file, io);
        swap_record_seal(file, io->record, seal, indexed);
    } else if (io->code == PENSTOCK_ESYS && io->write && !is_full(io->sys_errno)) {
        swap_record_seal(file, io->record, SWAP_BAD, false);
    } else if (io->code == 0 && swap_record_seal_of(file, io->record) != seal) {
        io->code = PENSTOCK_ECORRUPT;
    }
    swap_sums_free(io);
    if (io->code == PENSTOCK_ECORRUPT)
        swap->corrupt_records++;
    if (io->code != 0 && worth_a_line(swap))
        complain(io);
    io->done(io, io->code);
    swap_queue_gone(swap);
}

static void over(struct swap_piece *piece, int code, int sys_errno)
{
    if (swap_queue_piece_over(piece, code, sys_errno))
        finish(piece->io);
}

static void fail(struct swap_piece *piece, int sys_errno)
{
    if (piece->io->write && (sys_errno == ENOSPC || sys_errno == EDQUOT))
        swap_space_full(piece->io->file->swap);
    over(piece, PENSTOCK_ESYS, sys_errno);
}

/* What is written is what was summed: the blob is stable until `done`. */
static bool begin(struct swap_piece *piece)
{
    struct residency_swap_io *io = piece->io;
    piece->begun = true;
    if ((uintptr_t)io->blob % RESIDENCY_SWAP_ALIGN != 0 || !io->blob) {
        over(piece, PENSTOCK_EINVAL, 0);
        return false;
    }
    if (!io->write) {
        if (piece->offset_bytes == 0)
            swap_sums_read(io);
        return true;
    }
    int code = swap_space_ensure(io->file, io->record);
    if (code != 0)
        fail(piece, -code);
    else
        sum(piece);
    return code == 0;
}

bool swap_piece_next(struct swap_piece *piece, struct swap_move *move)
{
    struct residency_swap_io *io = piece->io;
    struct residency_swap_file *file = io->file;
    if (io->tidy) {
        struct residency_swap *swap = file->swap;
        swap_space_tidy(file);
        swap_queue_gone(swap);
        return false;
    }
    if (!piece->begun && !begin(piece))
        return false;
    uint64_t at = piece->offset_bytes + piece->moved_bytes, offset = io->record * file->geometry.blob_bytes + at;
    size_t len = piece->len_bytes - piece->moved_bytes;
    int code = swap_hook(file->swap, io->write ? RESIDENCY_SWAP_WRITE : RESIDENCY_SWAP_READ, offset, &len);
    if (code == RESIDENCY_SWAP_LATER && piece->len_bytes == file->geometry.blob_bytes) {
        swap_queue_again(io);
        return false;
    }
    if (code < 0) {
        fail(piece, -code);
        return false;
    }
    *move = (struct swap_move){ .fd = file->data_fd,
                                .at = (uint8_t *)io->blob + at,
                                .len_bytes = len,
                                .offset_bytes = (off_t)offset,
                                .write = io->write };
    return true;
}

bool swap_piece_moved(struct swap_piece *piece, ssize_t result)
{
    if (result == -EINTR || result == -EAGAIN)
        return true;
    bool write = piece->io->write;
    if (result == 0 && !write) {
        over(piece, PENSTOCK_ECORRUPT, 0); /* somebody cut the file */
        return false;
    }
    if (result <= 0) {
        fail(piece, result == 0 ? ENOSPC : (int)-result);
        return false;
    }
    piece->moved_bytes += (uint64_t)result;
    if (piece->moved_bytes < piece->len_bytes)
        return true;
    swap_queue_piece_landed(piece);
    if (!write)
        sum(piece);
    over(piece, 0, 0);
    return false;
}

static void prepare(struct residency_swap_io *io, bool write)
{
    io->asked_bytes = io->checksum = 0;
    io->sums = NULL;
    io->pieces = io->at_disk = 0;
    io->code = io->sys_errno = 0;
    io->write = write;
    io->tidy = false;
    io->request_bytes = swap_queue_request_bytes(io);
    swap_sums_begin(io);
}

void residency_swap_write(struct residency_swap_io *io)
{
    prepare(io, true);
    swap_queue_push(io->file->swap, io);
}

void residency_swap_read(struct residency_swap_io *io)
{
    prepare(io, false);
    swap_queue_push(io->file->swap, io);
}

void residency_swap_read_here(struct residency_swap_io *io)
{
    prepare(io, false);
    swap_sums_read(io); /* not behind the rest */
    struct swap_piece piece = swap_queue_push_rest(io->file->swap, io);
    struct swap_move move;
    while (swap_piece_next(&piece, &move) && swap_piece_moved(&piece, swap_move_here(&move)))
        ;
}
