/* One transfer, step by step: an engine asks for the next move, makes it, and says what came of it. */
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/log.h"
#include "swap_state.h"

/* ---- the queue ---- */

void swap_queue_push(struct residency_swap *swap, struct residency_swap_io *io)
{
    io->next = NULL;
    pthread_mutex_lock(&swap->queue_lock);
    swap->in_flight++;
    *swap->queue_tail = io;
    swap->queue_tail = &io->next;
    if (swap->uring)
        swap_uring_wake(swap);
    else
        pthread_cond_signal(&swap->queue_filled);
    pthread_mutex_unlock(&swap->queue_lock);
}

struct residency_swap_io *swap_queue_pop(struct residency_swap *swap)
{
    struct residency_swap_io *io = swap->queue_head;
    if (io) {
        swap->queue_head = io->next;
        if (!io->next)
            swap->queue_tail = &swap->queue_head;
    }
    return io;
}

struct residency_swap_io *swap_queue_take(struct residency_swap *swap, bool wait)
{
    pthread_mutex_lock(&swap->queue_lock);
    while (wait && !swap->queue_head && !swap->stopping)
        pthread_cond_wait(&swap->queue_filled, &swap->queue_lock);
    struct residency_swap_io *io = swap_queue_pop(swap);
    pthread_mutex_unlock(&swap->queue_lock);
    return io;
}

static void gone(struct residency_swap *swap)
{
    pthread_mutex_lock(&swap->queue_lock);
    if (--swap->in_flight == 0)
        pthread_cond_broadcast(&swap->drained);
    pthread_mutex_unlock(&swap->queue_lock);
}

/* It was in the queue before, and is counted still. */
static void push_behind(struct residency_swap *swap, struct residency_swap_io *io)
{
    swap_queue_push(swap, io);
    gone(swap);
}

int swap_hook(const struct residency_swap *swap, enum residency_swap_step step, uint64_t offset_bytes, size_t *len)
{
    const struct residency_swap_hook *hook = swap->options.hook;
    size_t ignored = 0;
    return hook ? hook->before(hook->user, step, offset_bytes, len ? len : &ignored) : 0;
}

/* ---- a transfer ---- */

uint64_t swap_identity(const struct residency_key *key, uint64_t generation)
{
    uint64_t of[3] = { key->low, key->high, generation };
    uint64_t hash = XXH3_64bits(of, sizeof of);
    return hash == 0 ? 1 : hash;
}

/* A disk that fails, fails often: all of the first few, then ever fewer. */
static bool worth_a_line(struct residency_swap *swap)
{
    uint64_t n = ++swap->complaints;
    return n <= 16 || (n & (n - 1)) == 0;
}

static void end(struct residency_swap_io *io, int code, int sys_errno)
{
    struct residency_swap *swap = io->file->swap;
    io->sys_errno = sys_errno;
    char words[128];
    if (code == PENSTOCK_ECORRUPT)
        swap->corrupt_records++;
    if (code != 0 && worth_a_line(swap)) {
        if (code == PENSTOCK_ECORRUPT)
            base_log_error("swap file %s: record %u is not what was written there; it is dropped", io->file->data_name,
                           io->record);
        else
            base_log_error("swap file %s: %s record %u: %s", io->file->data_name, io->write ? "write" : "read",
                           io->record,
                           sys_errno ? strerror_r(sys_errno, words, sizeof words) : penstock_error_name(code));
    }
    io->done(io, code);
    gone(swap);
}

static void fail(struct residency_swap_io *io, int sys_errno)
{
    if (io->write && (sys_errno == ENOSPC || sys_errno == EDQUOT))
        swap_space_full(io->file->swap);
    end(io, PENSTOCK_ESYS, sys_errno);
}

/* What is written is what was summed: the blob is stable until `done`. */
static bool begin(struct residency_swap_io *io)
{
    io->begun = true;
    if ((uintptr_t)io->blob % RESIDENCY_SWAP_ALIGN != 0 || !io->blob) {
        end(io, PENSTOCK_EINVAL, 0);
        return false;
    }
    if (!io->write)
        return true;
    int code = swap_space_ensure(io->file, io->record);
    if (code != 0) {
        fail(io, -code);
        return false;
    }
    io->checksum = XXH3_64bits(io->blob, io->file->geometry.blob_bytes);
    return true;
}

static void finish_write(struct residency_swap_io *io)
{
    struct swap_stamp stamp = { .checksum = io->checksum, .identity = swap_identity(&io->key, io->generation) };
    bool indexed = io->file->keep && !io->owned && swap_entry_write(io->file, io);
    swap_record_set(io->file, io->record, &stamp, indexed);
    end(io, 0, 0);
}

static void finish_read(struct residency_swap_io *io)
{
    struct swap_stamp is = swap_record_get(io->file, io->record);
    bool right = is.identity == swap_identity(&io->key, io->generation) &&
                 is.checksum == XXH3_64bits(io->blob, io->file->geometry.blob_bytes);
    end(io, right ? 0 : PENSTOCK_ECORRUPT, 0);
}

bool swap_io_next(struct residency_swap_io *io, struct swap_move *move)
{
    struct residency_swap_file *file = io->file;
    if (io->tidy) {
        swap_space_tidy(file);
        gone(file->swap);
        return false;
    }
    if (!io->begun && !begin(io))
        return false;
    uint64_t left = file->geometry.blob_bytes - io->moved_bytes;
    size_t len = left < SWAP_TRANSFER_MAX ? left : SWAP_TRANSFER_MAX;
    uint64_t offset = io->record * file->geometry.blob_bytes + io->moved_bytes;
    int code = swap_hook(file->swap, io->write ? RESIDENCY_SWAP_WRITE : RESIDENCY_SWAP_READ, offset, &len);
    if (code == RESIDENCY_SWAP_LATER)
        push_behind(file->swap, io);
    else if (code != 0)
        fail(io, -code);
    if (code != 0)
        return false;
    *move = (struct swap_move){ .fd = file->data_fd,
                                .at = (uint8_t *)io->blob + io->moved_bytes,
                                .len_bytes = len,
                                .offset_bytes = (off_t)offset,
                                .write = io->write };
    return true;
}

bool swap_io_moved(struct residency_swap_io *io, ssize_t result)
{
    if (result == -EINTR || result == -EAGAIN)
        return true;
    if (result == 0 && !io->write) {
        end(io, PENSTOCK_ECORRUPT, 0); /* somebody cut the file */
        return false;
    }
    if (result <= 0) {
        fail(io, result == 0 ? ENOSPC : (int)-result);
        return false;
    }
    io->moved_bytes += (uint64_t)result;
    if (io->moved_bytes < io->file->geometry.blob_bytes)
        return true;
    if (io->write)
        finish_write(io);
    else
        finish_read(io);
    return false;
}

static void submit(struct residency_swap_io *io, bool write)
{
    io->write = write;
    io->tidy = false;
    io->begun = false;
    io->moved_bytes = 0;
    io->sys_errno = 0;
    swap_queue_push(io->file->swap, io);
}

void residency_swap_write(struct residency_swap_io *io)
{
    submit(io, true);
}

void residency_swap_read(struct residency_swap_io *io)
{
    submit(io, false);
}
