/* A few threads, each with a ring of its own and many transfers in flight. One that sleeps in its ring is woken through
 * an eventfd that the ring reads. */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "state.h"

struct swap_ring {
    struct residency_swap *swap;
    struct io_uring ring;
    int wake_fd;
    uint64_t woken;  /* what the eventfd's read lands in */
    bool listening;  /* that read is in the ring */
    bool asleep;     /* queue_lock: to be woken for what comes */
    uint32_t n_idle; /* pieces that are not in the ring */
    struct swap_piece pieces[SWAP_URING_DEPTH], *idle[SWAP_URING_DEPTH];
    uint32_t n_landed;
    struct {
        struct swap_piece *piece;
        int result;
    } landed[SWAP_URING_DEPTH];
};

/* The ring that this thread runs. */
static _Thread_local struct swap_ring *mine;

bool swap_uring_is_mine(const struct residency_swap *swap)
{
    return mine && mine->swap == swap;
}

void swap_uring_wake(struct residency_swap *swap, uint64_t pieces)
{
    /* From within `done`: this thread has room for a piece, and looks at the queue next. */
    if (swap_uring_is_mine(swap) && !swap->queue_head->next)
        pieces--;
    for (int i = 0; i < SWAP_URING_THREADS_MAX && pieces > 0; i++) {
        struct swap_ring *ring = swap->rings[i];
        if (!ring || !ring->asleep)
            continue;
        ring->asleep = false;
        (void)eventfd_write(ring->wake_fd, 1); /* it cannot fail: the counter is far from full */
        pieces--;
    }
}

/* There is room: the ring has a place for every piece, and one for the eventfd. Whether something is in it now. */
static bool fly(struct swap_ring *ring, struct swap_piece *piece)
{
    struct swap_move move;
    if (!swap_piece_next(piece, &move)) {
        ring->idle[ring->n_idle++] = piece;
        return false;
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->ring);
    if (move.write)
        io_uring_prep_write(sqe, move.fd, move.at, (unsigned)move.len_bytes, (uint64_t)move.offset_bytes);
    else
        io_uring_prep_read(sqe, move.fd, move.at, (unsigned)move.len_bytes, (uint64_t)move.offset_bytes);
    io_uring_sqe_set_data(sqe, piece);
    return true;
}

static void listen_for_more(struct swap_ring *ring)
{
    if (ring->listening)
        return;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->ring);
    io_uring_prep_read(sqe, ring->wake_fd, &ring->woken, sizeof ring->woken, 0);
    io_uring_sqe_set_data(sqe, NULL);
    ring->listening = true;
}

/* Whatever the queue has, as far as there is room. False: the swap stops. */
static bool fill(struct swap_ring *ring)
{
    struct residency_swap *swap = ring->swap;
    for (;;) {
        struct swap_piece *piece = ring->n_idle > 0 ? ring->idle[ring->n_idle - 1] : NULL;
        pthread_mutex_lock(&swap->queue_lock);
        bool any = piece && swap_queue_pop(swap, piece);
        ring->asleep = !any && piece && !swap->stopping;
        bool over = !any && swap->stopping && ring->n_idle == SWAP_URING_DEPTH;
        pthread_mutex_unlock(&swap->queue_lock);
        if (!any)
            return !over;
        ring->n_idle--;
        /* What is ready does not wait until a write has been summed, or the sums of a large blob are found; short reads
         * go together. */
        bool slow = piece->io->write || (piece->io->sums && piece->offset_bytes == 0);
        if (slow && io_uring_sq_ready(&ring->ring) > 0)
            (void)io_uring_submit(&ring->ring);
        (void)fly(ring, piece);
    }
}

/* All completions that there are. */
static void reap(struct swap_ring *ring)
{
    struct io_uring_cqe *cqe;
    ring->n_landed = 0;
    while (io_uring_peek_cqe(&ring->ring, &cqe) == 0) {
        struct swap_piece *piece = io_uring_cqe_get_data(cqe);
        if (piece) {
            ring->landed[ring->n_landed].piece = piece;
            ring->landed[ring->n_landed++].result = cqe->res;
            swap_queue_piece_landed(piece);
        } else {
            ring->listening = false;
        }
        io_uring_cqe_seen(&ring->ring, cqe);
    }
}

/* What waits goes to the disk. */
static void feed(struct swap_ring *ring)
{
    (void)fill(ring);
    if (io_uring_sq_ready(&ring->ring) > 0)
        (void)io_uring_submit(&ring->ring);
}

static void *run(void *argument)
{
    struct swap_ring *ring = mine = argument;
    for (struct swap_piece *piece = ring->pieces; piece < ring->pieces + SWAP_URING_DEPTH; piece++)
        ring->idle[ring->n_idle++] = piece;
    while (fill(ring)) {
        listen_for_more(ring);
        (void)io_uring_submit_and_wait(&ring->ring, 1);
        reap(ring);
        /* What was read is summed in here: what waits goes to the disk before, and after each. */
        feed(ring);
        for (uint32_t i = 0; i < ring->n_landed; i++) {
            struct swap_piece *piece = ring->landed[i].piece;
            if (swap_piece_moved(piece, ring->landed[i].result))
                (void)fly(ring, piece);
            else
                ring->idle[ring->n_idle++] = piece;
            feed(ring);
        }
    }
    return NULL;
}

static int ring_init(struct swap_ring *ring)
{
    ring->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (ring->wake_fd < 0)
        return -errno;
    int code = io_uring_queue_init(2 * SWAP_URING_DEPTH, &ring->ring, 0);
    if (code == 0) {
        struct io_uring_probe *probe = io_uring_get_probe_ring(&ring->ring);
        if (!probe || !io_uring_opcode_supported(probe, IORING_OP_READ) ||
            !io_uring_opcode_supported(probe, IORING_OP_WRITE)) {
            io_uring_queue_exit(&ring->ring);
            code = -EOPNOTSUPP;
        }
        io_uring_free_probe(probe);
    }
    if (code != 0)
        close(ring->wake_fd);
    return code;
}

void swap_uring_free(struct residency_swap *swap)
{
    for (int i = 0; i < SWAP_URING_THREADS_MAX; i++) {
        if (!swap->rings[i])
            continue;
        io_uring_queue_exit(&swap->rings[i]->ring);
        close(swap->rings[i]->wake_fd);
        free(swap->rings[i]);
        swap->rings[i] = NULL;
    }
}

int swap_uring_start(struct residency_swap *swap)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = cores < 1 ? 1 : cores > SWAP_URING_THREADS_MAX ? SWAP_URING_THREADS_MAX : (int)cores, code = 0;
    for (int i = 0; i < n && code == 0; i++) {
        struct swap_ring *ring = calloc(1, sizeof *ring);
        code = ring ? ring_init(ring) : -ENOMEM;
        if (code != 0) {
            free(ring);
            break;
        }
        ring->swap = swap;
        swap->rings[i] = ring;
    }
    swap->uring = code == 0;
    for (int i = 0; i < n && code == 0; i++)
        code = -swap_thread_start(swap, run, swap->rings[i]);
    if (code != 0) {
        swap_threads_stop(swap);
        swap_uring_free(swap);
        swap->uring = swap->stopping = false;
    }
    return code;
}
