/* Transfers that wait for an engine. Each is handed out in pieces, the oldest first, so that of all that wait only the
 * first can be handed out in part. */
#include "base/checked.h"
#include "base/error.h"
#include "state.h"

static uint64_t pieces_of(const struct residency_swap_io *io)
{
    return io->tidy ? 1 : (io->file->geometry.blob_bytes - 1) / SWAP_PIECE_BYTES + 1;
}

void swap_queue_push(struct residency_swap *swap, struct residency_swap_io *io)
{
    uint64_t pieces = pieces_of(io);
    io->next = NULL;
    pthread_mutex_lock(&swap->queue_lock);
    swap->in_flight++;
    *swap->queue_tail = io;
    swap->queue_tail = &io->next;
    if (swap->uring)
        swap_uring_wake(swap, pieces);
    else if (pieces == 1)
        pthread_cond_signal(&swap->queue_filled);
    else
        pthread_cond_broadcast(&swap->queue_filled);
    pthread_mutex_unlock(&swap->queue_lock);
}

static void drop_first(struct residency_swap *swap)
{
    swap->queue_head = swap->queue_head->next;
    if (!swap->queue_head)
        swap->queue_tail = &swap->queue_head;
}

bool swap_queue_pop(struct residency_swap *swap, struct swap_piece *piece)
{
    struct residency_swap_io *io = swap->queue_head;
    if (!io)
        return false;
    uint64_t left = io->file->geometry.blob_bytes - io->asked_bytes;
    *piece = (struct swap_piece){ .io = io,
                                  .offset_bytes = io->asked_bytes,
                                  .len_bytes = io->tidy ? left : base_min_u64(left, SWAP_PIECE_BYTES) };
    io->asked_bytes += piece->len_bytes;
    io->pieces++;
    if (piece->len_bytes == left)
        drop_first(swap);
    return true;
}

struct swap_piece swap_queue_bypass(struct residency_swap_io *io)
{
    struct residency_swap *swap = io->file->swap;
    uint64_t len = io->file->geometry.blob_bytes;
    io->asked_bytes = len;
    io->pieces = 1;
    pthread_mutex_lock(&swap->queue_lock);
    swap->in_flight++;
    pthread_mutex_unlock(&swap->queue_lock);
    return (struct swap_piece){ .io = io, .len_bytes = len };
}

bool swap_queue_take(struct residency_swap *swap, struct swap_piece *piece)
{
    pthread_mutex_lock(&swap->queue_lock);
    while (!swap->queue_head && !swap->stopping)
        pthread_cond_wait(&swap->queue_filled, &swap->queue_lock);
    bool any = swap_queue_pop(swap, piece);
    pthread_mutex_unlock(&swap->queue_lock);
    return any;
}

bool swap_queue_piece_over(const struct swap_piece *piece, int code, int sys_errno)
{
    struct residency_swap_io *io = piece->io;
    struct residency_swap *swap = io->file->swap;
    uint64_t blob_bytes = io->file->geometry.blob_bytes;
    pthread_mutex_lock(&swap->queue_lock);
    io->checksum += piece->checksum;
    if (code != 0 && io->code == 0) {
        io->code = code;
        io->sys_errno = sys_errno;
        if (io->asked_bytes < blob_bytes)
            drop_first(swap);
        io->asked_bytes = blob_bytes;
    }
    bool last = --io->pieces == 0 && io->asked_bytes == blob_bytes;
    pthread_mutex_unlock(&swap->queue_lock);
    return last;
}

void swap_queue_again(struct residency_swap_io *io)
{
    struct residency_swap *swap = io->file->swap;
    io->asked_bytes = 0;
    io->pieces = 0;
    swap_queue_push(swap, io);
    swap_queue_gone(swap); /* it was counted already */
}

void swap_queue_gone(struct residency_swap *swap)
{
    pthread_mutex_lock(&swap->queue_lock);
    if (--swap->in_flight == 0)
        pthread_cond_broadcast(&swap->drained);
    pthread_mutex_unlock(&swap->queue_lock);
}
