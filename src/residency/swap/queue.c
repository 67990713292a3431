/* Transfers that wait for an engine. Each is handed out in pieces, the oldest first. */
#include "base/checked.h"
#include "base/error.h"
#include "state.h"

/* There are so many pieces to be had; queue_lock is held. */
static void wake(struct residency_swap *swap, uint32_t pieces)
{
    if (swap->uring)
        swap_uring_wake(swap, pieces);
    else if (pieces == 1)
        pthread_cond_signal(&swap->queue_filled);
    else
        pthread_cond_broadcast(&swap->queue_filled);
}

static uint64_t left_of(const struct residency_swap_io *io)
{
    return io->file->geometry.blob_bytes - io->asked_bytes;
}

static bool is_whole(const struct residency_swap_io *io)
{
    return io->request_bytes == io->file->geometry.blob_bytes;
}

/* Whether so much of it is under way that its next piece has to wait for one of those. */
static bool is_ahead(const struct residency_swap_io *io)
{
    return io->progress && !io->write && !is_whole(io) &&
           io->at_disk >= base_min_u64(io->file->pieces / 2, SWAP_READ_PIECES);
}

uint64_t swap_queue_request_bytes(const struct residency_swap_io *io)
{
    const struct residency_swap_file *file = io->file;
    uint64_t blob_bytes = file->geometry.blob_bytes;
    if (blob_bytes > SWAP_WHOLE_BYTES)
        return file->piece_bytes;
    if (io->write || !io->progress)
        return blob_bytes;
    pthread_mutex_lock(&file->swap->queue_lock);
    bool alone = file->swap->in_flight == 0;
    pthread_mutex_unlock(&file->swap->queue_lock);
    return alone ? file->piece_bytes : blob_bytes;
}

/* queue_lock is held. */
static void push(struct residency_swap *swap, struct residency_swap_io *io)
{
    io->next = NULL;
    *swap->queue_tail = io;
    swap->queue_tail = &io->next;
    /* Also where its next piece has to wait: who has just been awake is sooner there when it may be read. */
    wake(swap, (uint32_t)((left_of(io) - 1) / io->request_bytes + 1));
}

void swap_queue_push(struct residency_swap *swap, struct residency_swap_io *io)
{
    pthread_mutex_lock(&swap->queue_lock);
    swap->in_flight++;
    push(swap, io);
    pthread_mutex_unlock(&swap->queue_lock);
}

/* The first, in most cases. */
static void drop(struct residency_swap *swap, const struct residency_swap_io *io)
{
    struct residency_swap_io **at = &swap->queue_head;
    while (*at != io)
        at = &(*at)->next;
    *at = io->next;
    if (!*at)
        swap->queue_tail = at;
}

static struct swap_piece next_piece(struct residency_swap_io *io)
{
    uint64_t len = base_min_u64(left_of(io), io->request_bytes);
    struct swap_piece piece = { .io = io, .offset_bytes = io->asked_bytes, .len_bytes = len };
    io->asked_bytes += len;
    io->pieces++;
    io->at_disk++;
    return piece;
}

bool swap_queue_pop(struct residency_swap *swap, struct swap_piece *piece)
{
    struct residency_swap_io *io = swap->queue_head;
    while (io && is_ahead(io))
        io = io->next;
    if (!io)
        return false;
    *piece = next_piece(io);
    if (left_of(io) == 0)
        drop(swap, io);
    return true;
}

struct swap_piece swap_queue_push_rest(struct residency_swap *swap, struct residency_swap_io *io)
{
    pthread_mutex_lock(&swap->queue_lock);
    swap->in_flight++;
    struct swap_piece first = next_piece(io);
    if (left_of(io) > 0)
        push(swap, io);
    pthread_mutex_unlock(&swap->queue_lock);
    return first;
}

bool swap_queue_take(struct residency_swap *swap, struct swap_piece *piece)
{
    pthread_mutex_lock(&swap->queue_lock);
    bool any;
    while (!(any = swap_queue_pop(swap, piece)) && !swap->stopping)
        pthread_cond_wait(&swap->queue_filled, &swap->queue_lock);
    pthread_mutex_unlock(&swap->queue_lock);
    return any;
}

void swap_queue_piece_landed(struct swap_piece *piece)
{
    struct residency_swap *swap = piece->io->file->swap;
    if (piece->landed || is_whole(piece->io))
        return;
    piece->landed = true;
    pthread_mutex_lock(&swap->queue_lock);
    bool was_ahead = is_ahead(piece->io);
    piece->io->at_disk--;
    /* A ring's thread looks at the queue next, and one of the pool may; who reads for himself does not. */
    if (was_ahead && left_of(piece->io) > 0 && !swap_uring_is_mine(swap))
        wake(swap, 1);
    pthread_mutex_unlock(&swap->queue_lock);
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
            drop(swap, io);
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
    io->pieces = io->at_disk = 0;
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
