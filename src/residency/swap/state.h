/* What the swap store is made of, for its own files.
 *
 * swap.c           the directory: lock, options, start and end
 * file.c           one file: found again at open, synced or removed at close
 * records.c        which records are taken, and by what: alloc, free, extents, caps
 * space.c          what the file system is asked for: fallocate ahead, holes behind
 * entry.c          the index of a kept file: an entry written, cleared
 * queue.c          transfers that wait, handed out in pieces
 * io.c             one piece, step by step, for either engine; what comes of them all
 * sum.c            the checksum of a piece
 * sums.c           the sums of a record's pieces, beside it on the disk
 * uring.c, pool.c  the engines
 *
 * Locks, outermost first: file->space, file->lock, swap->lock; swap->queue_lock is a leaf. */
#ifndef PENSTOCK_RESIDENCY_SWAP_STATE_H
#define PENSTOCK_RESIDENCY_SWAP_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/vec.h"

#include "index.h"
#include "swap.h"

#define SWAP_NONE UINT32_MAX
#define SWAP_BAD UINT64_MAX /* a seal: it could not be written */
#define SWAP_EXTENT_BYTES (UINT64_C(64) << 20)
#define SWAP_EXTENT_RECORDS_MAX 4096u
#define SWAP_BAD_MAX 64u /* of a file: more are no bad sectors, but a bad disk */
#define SWAP_THREADS_MAX 64
#define SWAP_POOL_THREADS 16
#define SWAP_URING_THREADS_MAX 4
#define SWAP_URING_DEPTH 32u

/* Of a blob of several pieces the first are summed, and may be on their way to a client, while the rest is under way:
 * smaller pieces would cost the disk something. So few of a blob are read at once because a disk that has all of them
 * at once is done with the first when it is done with the last. Up to SWAP_WHOLE_BYTES the disk is asked for all of a
 * blob at once, but where somebody waits who could send its first piece, and nothing else keeps the disk busy. */
#define SWAP_WHOLE_BYTES (UINT64_C(1) << 20)
#define SWAP_PIECE_BYTES (UINT64_C(512) << 10)
#define SWAP_READ_PIECES 4u

/* 8 bytes a record, whatever is in it. */
union swap_record {
    uint64_t seal; /* taken: swap_seal of what is in it; 0: nothing yet; or SWAP_BAD */
    struct {
        uint32_t next; /* of the extent's free records, or of the file's to punch; SWAP_NONE ends it */
        bool hole;     /* it has no disk space: given back, or never got */
    } free;
};

/* Neighbouring records that get their disk space together. */
struct swap_extent {
    struct base_list node;      /* in one of the file's lists, or alone: all taken, or being punched */
    union swap_record *records; /* NULL: none was ever taken, or all were given back */
    uint64_t *indexed;          /* a bit a record: it has an entry in the index */
    uint32_t number;
    uint32_t taken, punching;   /* records */
    uint32_t first_free, fresh; /* fresh: from here on none was taken since records is there */
    uint32_t holes;
    _Atomic bool backed; /* has its disk space, but for its holes */
    _Atomic bool partly; /* has some of it: the disk was full */
};

struct residency_swap_file {
    struct residency_swap *swap;
    struct base_list node; /* in swap->files */
    struct swap_geometry geometry;
    char data_name[SWAP_NAME_MAX], index_name[SWAP_NAME_MAX], sums_name[SWAP_NAME_MAX];
    int data_fd, index_fd; /* index_fd: -1 without keep */
    int sums_fd;           /* -1: blobs are of one piece, or it cannot be opened */
    uint64_t piece_bytes;
    uint32_t pieces;           /* of a blob */
    _Atomic bool keep;         /* false once its index cannot be trusted to forget */
    _Atomic bool no_fallocate; /* the file system cannot */
    _Atomic bool no_punch;
    uint32_t extent_records;

    pthread_mutex_t space; /* held over fallocate, by I/O threads alone */
    pthread_mutex_t lock;  /* all below; short */
    BASE_VEC(struct swap_extent *) extents;
    struct base_list partial; /* some taken, some free */
    struct base_list spare;   /* none taken, backed: kept for what comes next */
    struct base_list bare;    /* none taken, not backed */
    struct base_list to_punch;
    uint32_t n_spare;
    uint32_t first_to_punch; /* single records, linked by free.next */
    uint64_t n_taken;
    uint32_t n_bad;                /* records set aside until the file is opened again */
    bool tidying;                  /* tidy is queued or running */
    struct residency_swap_io tidy; /* runs swap_space_tidy on an I/O thread */
};

/* One ring and its thread; the queue's lock guards asleep. */
struct swap_ring;

struct residency_swap {
    int directory_fd, lock_fd;
    char *directory;
    struct residency_swap_options options;
    uint64_t boot; /* of the host; 0: not known */
    bool direct, uring;

    pthread_mutex_t lock; /* files and what is counted */
    struct base_list files;
    uint64_t used_bytes, used_kind_bytes[RESIDENCY_KINDS];
    uint64_t backed_bytes; /* what the files have from the disk */
    int64_t full_until_ns; /* no new extent is tried before */
    _Atomic uint64_t corrupt_records, complaints;

    pthread_mutex_t queue_lock;
    pthread_cond_t queue_filled; /* the pool waits here */
    pthread_cond_t drained;      /* in_flight is 0 */
    struct residency_swap_io *queue_head, **queue_tail;
    uint64_t in_flight; /* submitted, and done not yet returned */
    bool stopping;
    struct swap_ring *rings[SWAP_URING_THREADS_MAX];
    pthread_t threads[SWAP_THREADS_MAX];
    uint32_t n_threads;
};

/* Part of a transfer, in an engine's hands: one piece of the blob, or all of them. */
struct swap_piece {
    struct residency_swap_io *io;
    uint64_t offset_bytes, len_bytes; /* in the blob */
    uint64_t moved_bytes;             /* of it, so far */
    uint64_t checksum;
    bool begun, landed;
};

/* ---- queue.c ---- */
/* How much of it the disk is asked for at once. */
uint64_t swap_queue_request_bytes(const struct residency_swap_io *io);
void swap_queue_push(struct residency_swap *swap, struct residency_swap_io *io);
/* The next piece of the oldest transfer that may have one; false: there is none. queue_lock is held. */
bool swap_queue_pop(struct residency_swap *swap, struct swap_piece *piece);
/* The same, waiting until there is one. False: the swap stops. */
bool swap_queue_take(struct residency_swap *swap, struct swap_piece *piece);
/* The first piece is the caller's, what is behind it is pushed. */
struct swap_piece swap_queue_push_rest(struct residency_swap *swap, struct residency_swap_io *io);
/* The disk is done with a piece, if not we: another may take its place there, and somebody is told. */
void swap_queue_piece_landed(struct swap_piece *piece);
/* A piece that is over, 0 or a PENSTOCK_E and its errno; the first that failed takes along what was not handed out.
 * True: it was the transfer's last, and io->code, sys_errno and checksum are those of the whole. */
PENSTOCK_CHECKED bool swap_queue_piece_over(const struct swap_piece *piece, int code, int sys_errno);
/* A transfer of one piece goes behind all others. */
void swap_queue_again(struct residency_swap_io *io);
/* `done` has returned. */
void swap_queue_gone(struct residency_swap *swap);

/* ---- io.c ---- */
struct swap_move {
    int fd;
    uint8_t *at;
    size_t len_bytes;
    off_t offset_bytes;
    bool write;
};
/* The next move of a piece. False: there is none for now, it is over or behind the others. */
bool swap_piece_next(struct swap_piece *piece, struct swap_move *move);
/* What came of it, as pread returns it but with a negative errno. True: swap_piece_next has more. */
bool swap_piece_moved(struct swap_piece *piece, ssize_t result);
int swap_hook(const struct residency_swap *swap, enum residency_swap_step step, uint64_t offset_bytes, size_t *len);
/* Whose blob it is, which of its blobs, and the blob's checksum, in one word: what is not all three is another's. */
uint64_t swap_seal(const struct residency_key *key, uint64_t generation, uint64_t checksum);

/* ---- sum.c ---- */
uint64_t swap_sum(const void *bytes, size_t len, uint64_t seed); /* XXH3-64 */

/* ---- sums.c: of the pieces of a blob that has several ---- */
/* Room for them; of a read only where somebody wants to know of its progress. */
void swap_sums_begin(struct residency_swap_io *io);
/* Puts them beside the record, once all are there. */
void swap_sums_write(const struct residency_swap_io *io);
/* Finds out what they should be. It may wait for a disk. */
void swap_sums_read(struct residency_swap_io *io);
/* A piece has its sum. Of a read that is told of its progress: tells it. */
void swap_sums_take(struct residency_swap_io *io, uint64_t number, uint64_t sum);
void swap_sums_free(struct residency_swap_io *io);

/* ---- engines ---- */
/* As pread and pwrite, but with a negative errno. */
ssize_t swap_move_here(const struct swap_move *move);
/* 0 or a negative errno: the kernel does not let us. */
int swap_uring_start(struct residency_swap *swap);
/* So many pieces have come; queue_lock is held. */
void swap_uring_wake(struct residency_swap *swap, uint64_t pieces);
bool swap_uring_is_mine(const struct residency_swap *swap); /* a ring's thread calls */
void swap_uring_free(struct residency_swap *swap);          /* its threads have ended */
int swap_pool_start(struct residency_swap *swap);
/* With all signals blocked. A positive errno. */
int swap_thread_start(struct residency_swap *swap, void *(*run)(void *), void *argument);
void swap_threads_stop(struct residency_swap *swap);

/* ---- file.c ---- */
void swap_file_close(struct residency_swap_file *file);

/* ---- records.c ---- */
void swap_records_init(struct residency_swap_file *file);
void swap_records_fini(struct residency_swap_file *file);
/* Takes this very record while a file is opened, in rising order. False: no memory. */
PENSTOCK_CHECKED bool swap_records_adopt(struct residency_swap_file *file, uint32_t record, uint64_t seal);
/* All that is to be adopted is. */
void swap_records_adopted(struct residency_swap_file *file);
void swap_record_seal(struct residency_swap_file *file, uint32_t record, uint64_t seal, bool indexed);
uint64_t swap_record_seal_of(struct residency_swap_file *file, uint32_t record);
struct swap_extent *swap_extent_of(struct residency_swap_file *file, uint32_t record);
/* file->lock is held: the extent has what is free in it to offer, or nothing at all. */
void swap_extent_file(struct residency_swap_file *file, struct swap_extent *extent);
uint32_t swap_extent_backed_records(const struct residency_swap_file *file, const struct swap_extent *extent);
void swap_backed(struct residency_swap *swap, int64_t bytes);

/* ---- space.c ---- */
/* The record's extent has its disk space. 0 or a negative errno. */
int swap_space_ensure(struct residency_swap_file *file, uint32_t record);
/* No more is asked of the disk for a while. */
void swap_space_full(struct residency_swap *swap);
/* Gives back what is to be punched. */
void swap_space_tidy(struct residency_swap_file *file);
void swap_space_want_tidy(struct residency_swap_file *file); /* file->lock is held */

/* ---- entry.c ---- */
/* Whether it is written. Where not, the record is merely not found again. */
bool swap_entry_write(struct residency_swap_file *file, const struct residency_swap_io *io);
/* Where it cannot be cleared, the whole file is kept no longer. */
void swap_entry_clear(struct residency_swap_file *file, uint32_t record);
PENSTOCK_CHECKED int swap_header_write(struct residency_swap_file *file, bool clean, struct penstock_error *error);
/* Writes all of it, whatever EINTR and short writes say. 0 or a negative errno. */
int swap_pwrite(int fd, const void *from, size_t len, off_t offset);

#endif
