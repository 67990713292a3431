/* The swap store: blobs on disk, as records of fixed size, one file for each (kind, blob_bytes) in one directory. It
 * knows which records are taken and what must be in them; which blob deserves one, and which is the coldest, is its
 * caller's business.
 *
 * Threads: every call may come from any thread, but open, close and clear, which want the swap or the file to
 * themselves. alloc and submit never wait for a disk and may be called under a short lock; free may write to the page
 * cache (see there). Locks in here are leaves, and none is held when `done` is called.
 *
 * Tests of what lies above may link a fake that defines all of these functions in place of the library's. */
#ifndef PENSTOCK_RESIDENCY_SWAP_SWAP_H
#define PENSTOCK_RESIDENCY_SWAP_SWAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

#include "residency/key.h"

/* What blob_bytes must be a multiple of, and a blob's address be aligned to. */
#define RESIDENCY_SWAP_ALIGN 4096

struct residency_swap;      /* a directory, locked */
struct residency_swap_file; /* the records of one (kind, blob_bytes) */

enum residency_swap_engine { RESIDENCY_SWAP_AUTO, RESIDENCY_SWAP_URING, RESIDENCY_SWAP_POOL };

/* For tests: asked before each step towards the disk, from any thread. Returns 0; or a negative errno, and the step
 * fails so without being taken; or RESIDENCY_SWAP_LATER, and a transfer that is one piece goes behind those that wait.
 * It may make *len_bytes of a transfer smaller. */
enum residency_swap_step {
    RESIDENCY_SWAP_READ,
    RESIDENCY_SWAP_WRITE,
    RESIDENCY_SWAP_GROW,  /* fallocate */
    RESIDENCY_SWAP_INDEX, /* the entry of a kept record is written, or cleared */
};
#define RESIDENCY_SWAP_LATER 1
struct residency_swap_hook {
    int (*before)(void *user, enum residency_swap_step step, uint64_t offset_bytes, size_t *len_bytes);
    void *user;
};

struct residency_swap_options {
    uint64_t cap_bytes;                       /* for all kinds together; 0: none */
    uint64_t cap_kind_bytes[RESIDENCY_KINDS]; /* for one kind; 0: none but the shared one */
    bool keep;                                /* records are found again after a restart */
    enum residency_swap_engine engine;        /* AUTO: io_uring where the kernel allows it, else the pool */
    const struct residency_swap_hook *hook;   /* NULL but in tests */
};

/* Opens a directory that is there, locks it and starts the I/O threads; logs how it will read and write, and why so.
 * Without keep it removes what an earlier swap left in it; with it, records whose index is gone. ELIMIT: another
 * process has it, the words say which. */
PENSTOCK_CHECKED int residency_swap_open(const char *directory, const struct residency_swap_options *options,
                                         struct residency_swap **out, struct penstock_error *error);

/* Waits for what is in flight, closes all files and unlocks. With keep, files are synced and marked so first: they are
 * then found even after the host was restarted. Without, they are removed. NULL is allowed. */
void residency_swap_close(struct residency_swap *swap);

/* Calls each for every file that was kept, until it returns other than 0; returns that. Whoever keeps opens each of
 * them at start: only then do they count towards the caps. Before any file_open. */
PENSTOCK_CHECKED int residency_swap_kept(struct residency_swap *swap,
                                         int (*each)(void *user, enum residency_kind kind, uint64_t blob_bytes),
                                         void *user);

/* A record found again. What it holds has not been read: a read will say ECORRUPT where it is not what was written. */
struct residency_swap_found {
    struct residency_key key;
    uint64_t generation;
    uint64_t written_s; /* seconds since 1970 */
    uint32_t record;
};

/* Opens or creates the file of (kind, blob_bytes), once; it is closed with the swap. Calls found for each record that
 * was kept, in no order; `found` may call free. A key may come twice when a crash came between the write of its newer
 * generation and the removal of the older: the caller frees the older. A file that is damaged, of another version, or
 * that the host went down on, starts empty, and the log says so; so does, alone, a record whose entry is damaged.
 * EINVAL: blob_bytes is 0 or no multiple of RESIDENCY_SWAP_ALIGN. */
PENSTOCK_CHECKED int residency_swap_file_open(struct residency_swap *swap, enum residency_kind kind,
                                              uint64_t blob_bytes,
                                              void (*found)(void *user, const struct residency_swap_found *),
                                              void *user, struct residency_swap_file **out,
                                              struct penstock_error *error);

/* What stood in the way of an allocation. */
enum residency_swap_full {
    RESIDENCY_SWAP_FULL_SHARED, /* the shared cap: a record of any kind helps */
    RESIDENCY_SWAP_FULL_KIND,   /* the kind's own cap: a record of this kind helps */
    RESIDENCY_SWAP_FULL_DISK,   /* the disk was full less than a second ago: a record of this very file helps */
};

/* Takes a record, in O(1). ELIMIT: *full says why, and the caller frees what is coldest and asks again. ENOMEM. */
PENSTOCK_CHECKED int residency_swap_alloc(struct residency_swap_file *file, uint32_t *record,
                                          enum residency_swap_full *full);

/* Gives a record back, no I/O on it being in flight; O(1). With keep, its entry in the index is cleared before this
 * returns, so that a key whose removal or overwriting is answered after it never comes back: not when this process is
 * killed, and not when the host goes down (the file starts empty then). That is a write of 64 bytes to the page cache,
 * which seldom but sometimes waits: not under a lock that others wait for. Records that were never written, or owned,
 * have no entry. One that the disk failed to write is set aside: nobody gets it again before the file is opened anew.
 */
void residency_swap_free(struct residency_swap_file *file, uint32_t record);

/* Frees all records at once, and gives the disk back: for an arena that is gone. Nothing is in flight. */
void residency_swap_clear(struct residency_swap_file *file);

/* One transfer, on the caller's memory until `done` is called. The caller sets the fields up to `done`. */
struct residency_swap_io {
    struct residency_swap_file *file;
    struct residency_key key;
    uint64_t generation;
    void *blob; /* blob_bytes, aligned; stable while it is written, undefined after a failed read */
    uint32_t record;
    bool owned; /* write: not to be found after a restart */
    /* Called once, on an I/O thread; never from within read and write. It may submit, alloc and free, and *io is the
     * caller's again; it must not wait. code is 0; ESYS (sys_errno, ENOSPC among them); or, of a read, ECORRUPT: what
     * is there is not what was written for this key and generation; it is logged and counted. */
    void (*done)(struct residency_swap_io *io, int code);
    int sys_errno;
    /* NULL, or of a read: called as `done` is, and before it, but perhaps from several threads at once: the first bytes
     * of the blob, so many, are there and are what was written. It does not come at all where the blob is short, or
     * where that can only be told of the whole. */
    void (*progress)(struct residency_swap_io *io, uint64_t bytes);

    struct residency_swap_io *next; /* swap's own from here on */
    uint64_t request_bytes, asked_bytes, checksum;
    struct swap_sums *sums;
    uint32_t pieces, at_disk;
    int code;
    bool write, tidy;
};

/* Start a transfer; always `done` says how it ended. A record is written once between alloc and free. After a failed
 * write it holds nothing and may only be freed. Writes and reads of different records are not ordered. */
void residency_swap_write(struct residency_swap_io *io);
void residency_swap_read(struct residency_swap_io *io);

/* For a thread that has nothing to do but wait for this read: it makes it itself, and `done` is called before this
 * returns; of a large blob it reads the first piece, and others read the rest meanwhile. Not under a lock. */
void residency_swap_read_here(struct residency_swap_io *io);

struct residency_swap_stats {
    uint64_t used_bytes, cap_bytes; /* of records that are taken */
    uint64_t used_kind_bytes[RESIDENCY_KINDS], cap_kind_bytes[RESIDENCY_KINDS];
    /* Reads that ended with ECORRUPT, and what was damaged when it was opened: an entry, a header, an index that is
     * gone or longer than the data, one each. */
    uint64_t corrupt_records;
    bool uring, direct; /* how it reads and writes */
};
void residency_swap_stats(struct residency_swap *swap, struct residency_swap_stats *out);

/* Records of this file that are taken. */
uint64_t residency_swap_records(struct residency_swap_file *file);

#endif
