#include "fake_swap.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FILES_MAX 8
void *(*fake_swap_realloc)(void *old, size_t n) = realloc;

#define CHECK(condition) ((condition) ? (void)0 : abort())

struct record {
    bool taken, busy, tried, written, owned, damaged;
    struct residency_key key;
    uint64_t generation;
    uint8_t *bytes;
};

struct residency_swap_file {
    struct residency_swap *swap;
    enum residency_kind kind;
    uint64_t blob_bytes;
    bool open;
    struct record *records;
    size_t n, n_taken;
};

struct residency_swap {
    pthread_mutex_t lock;
    struct fake_swap_control control;
    struct residency_swap_file files[FILES_MAX];
    size_t n_files;
    struct residency_swap_io **io;
    size_t n_io, cap_io;
    uint64_t writes;
};

struct residency_swap *fake_swap_new(void)
{
    struct residency_swap *swap = calloc(1, sizeof *swap);
    CHECK(swap);
    pthread_mutex_init(&swap->lock, NULL);
    return swap;
}

void fake_swap_free(struct residency_swap *swap)
{
    CHECK(swap->n_io == 0);
    for (size_t i = 0; i < swap->n_files; i++) {
        for (size_t j = 0; j < swap->files[i].n; j++)
            free(swap->files[i].records[j].bytes);
        free(swap->files[i].records);
    }
    free(swap->io);
    pthread_mutex_destroy(&swap->lock);
    free(swap);
}

struct fake_swap_control *fake_swap_control(struct residency_swap *swap)
{
    return &swap->control;
}

static struct residency_swap_file *file_of(struct residency_swap *swap, enum residency_kind kind, uint64_t blob_bytes)
{
    for (size_t i = 0; i < swap->n_files; i++)
        if (swap->files[i].kind == kind && swap->files[i].blob_bytes == blob_bytes)
            return &swap->files[i];
    CHECK(swap->n_files < FILES_MAX);
    struct residency_swap_file *file = &swap->files[swap->n_files++];
    *file = (struct residency_swap_file){ .swap = swap, .kind = kind, .blob_bytes = blob_bytes };
    return file;
}

int residency_swap_kept(struct residency_swap *swap,
                        int (*each)(void *user, enum residency_kind kind, uint64_t blob_bytes), void *user)
{
    int code = 0;
    for (size_t i = 0; i < swap->n_files && code == 0; i++)
        code = each(user, swap->files[i].kind, swap->files[i].blob_bytes);
    return code;
}

static bool kept(const struct record *record)
{
    return record->taken && record->written && !record->owned;
}

int residency_swap_file_open(struct residency_swap *swap, enum residency_kind kind, uint64_t blob_bytes,
                             void (*found)(void *user, const struct residency_swap_found *), void *user,
                             struct residency_swap_file **out, struct penstock_error *error)
{
    (void)error;
    struct residency_swap_file *file = file_of(swap, kind, blob_bytes);
    CHECK(!file->open);
    file->open = true;
    for (size_t i = 0; i < file->n; i++)
        if (kept(&file->records[i]))
            found(user, &(struct residency_swap_found){ .key = file->records[i].key,
                                                        .generation = file->records[i].generation,
                                                        .written_s = 1,
                                                        .record = (uint32_t)i });
    *out = file;
    return 0;
}

static size_t taken_of(const struct residency_swap *swap, int kind)
{
    size_t n = 0;
    for (size_t i = 0; i < swap->n_files; i++)
        if (kind < 0 || (int)swap->files[i].kind == kind)
            n += swap->files[i].n_taken;
    return n;
}

static int find_free(struct residency_swap_file *file, uint32_t *record)
{
    size_t i = 0;
    while (i < file->n && file->records[i].taken)
        i++;
    if (i == file->n) {
        struct record *more = fake_swap_realloc(file->records, (file->n * 2 + 8) * sizeof *more);
        CHECK(more);
        memset(more + file->n, 0, (file->n + 8) * sizeof *more);
        file->records = more;
        file->n = file->n * 2 + 8;
    }
    uint8_t *bytes = file->records[i].bytes;
    file->records[i] = (struct record){ .taken = true, .bytes = bytes };
    file->n_taken++;
    *record = (uint32_t)i;
    return 0;
}

int residency_swap_alloc(struct residency_swap_file *file, uint32_t *record, enum residency_swap_full *full)
{
    struct residency_swap *swap = file->swap;
    const struct fake_swap_control *control = &swap->control;
    int code = PENSTOCK_ELIMIT;
    pthread_mutex_lock(&swap->lock);
    if (control->cap_records && taken_of(swap, -1) >= control->cap_records)
        *full = RESIDENCY_SWAP_FULL_SHARED;
    else if (control->cap_kind_records && taken_of(swap, (int)file->kind) >= control->cap_kind_records)
        *full = RESIDENCY_SWAP_FULL_KIND;
    else if (control->disk_full)
        *full = RESIDENCY_SWAP_FULL_DISK;
    else
        code = find_free(file, record);
    pthread_mutex_unlock(&swap->lock);
    return code;
}

void residency_swap_free(struct residency_swap_file *file, uint32_t record)
{
    pthread_mutex_lock(&file->swap->lock);
    CHECK(record < file->n && file->records[record].taken && !file->records[record].busy);
    file->records[record].taken = false;
    file->n_taken--;
    pthread_mutex_unlock(&file->swap->lock);
}

static void submit(struct residency_swap_io *io, bool write)
{
    struct residency_swap *swap = io->file->swap;
    pthread_mutex_lock(&swap->lock);
    CHECK(io->record < io->file->n);
    struct record *record = &io->file->records[io->record];
    CHECK(record->taken && !record->busy && (write ? !record->tried : record->written));
    record->busy = true;
    record->tried = true;
    io->write = write;
    io->asked_bytes = 0;
    if (swap->n_io == swap->cap_io) {
        swap->cap_io = swap->cap_io * 2 + 8;
        swap->io = fake_swap_realloc(swap->io, swap->cap_io * sizeof(struct residency_swap_io *));
        CHECK(swap->io);
    }
    swap->io[swap->n_io++] = io;
    pthread_mutex_unlock(&swap->lock);
}

void residency_swap_write(struct residency_swap_io *io)
{
    submit(io, true);
}

void residency_swap_read(struct residency_swap_io *io)
{
    submit(io, false);
}

void residency_swap_read_here(struct residency_swap_io *io)
{
    residency_swap_read(io);
}

static int transfer(struct residency_swap *swap, struct residency_swap_io *io)
{
    struct record *record = &io->file->records[io->record];
    record->busy = false;
    io->sys_errno = io->write ? swap->control.write_errno : swap->control.read_errno;
    if (io->sys_errno != 0)
        return PENSTOCK_ESYS;
    if (!io->write) {
        memcpy(io->blob, record->bytes, io->file->blob_bytes);
        if (record->damaged)
            memset((uint8_t *)io->blob + io->file->blob_bytes / 2, 0xdd, io->file->blob_bytes / 2);
        bool right = !record->damaged && record->generation == io->generation && record->key.low == io->key.low &&
                     record->key.high == io->key.high;
        return right ? 0 : PENSTOCK_ECORRUPT;
    }
    if (!record->bytes)
        record->bytes = fake_swap_realloc(NULL, io->file->blob_bytes);
    CHECK(record->bytes);
    memcpy(record->bytes, io->blob, io->file->blob_bytes);
    record->key = io->key;
    record->generation = io->generation;
    record->owned = io->owned;
    record->written = true;
    swap->writes++;
    return 0;
}

static uint64_t random_of(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* The first half of the blob is what was written, whatever becomes of the other: damage is in that. */
static bool tells_of_progress(struct residency_swap *swap, struct residency_swap_io *io)
{
    const struct record *record = &io->file->records[io->record];
    if (io->write || !io->progress || !swap->control.pieces || io->asked_bytes > 0)
        return false;
    if (swap->control.random && random_of(&swap->control.random) % 2 == 0)
        return false;
    io->asked_bytes = io->file->blob_bytes / 2;
    memcpy(io->blob, record->bytes, io->asked_bytes);
    return true;
}

bool fake_swap_land(struct residency_swap *swap)
{
    pthread_mutex_lock(&swap->lock);
    if (swap->n_io == 0) {
        pthread_mutex_unlock(&swap->lock);
        return false;
    }
    size_t i = swap->control.random ? random_of(&swap->control.random) % swap->n_io : 0;
    struct residency_swap_io *io = swap->io[i];
    bool progress = tells_of_progress(swap, io);
    int code = 0;
    if (!progress) {
        memmove(&swap->io[i], &swap->io[i + 1], (--swap->n_io - i) * sizeof(struct residency_swap_io *));
        code = transfer(swap, io);
    }
    pthread_mutex_unlock(&swap->lock);
    if (progress)
        io->progress(io, io->asked_bytes);
    else
        io->done(io, code);
    return true;
}

size_t fake_swap_in_flight(struct residency_swap *swap)
{
    pthread_mutex_lock(&swap->lock);
    size_t n = swap->n_io;
    pthread_mutex_unlock(&swap->lock);
    return n;
}

uint64_t fake_swap_writes(struct residency_swap *swap)
{
    return swap->writes;
}

static bool same(struct residency_key a, struct residency_key b)
{
    return a.low == b.low && a.high == b.high;
}

bool fake_swap_damage(struct residency_swap *swap, struct residency_key key)
{
    bool any = false;
    for (size_t i = 0; i < swap->n_files; i++)
        for (size_t j = 0; j < swap->files[i].n; j++) {
            struct record *record = &swap->files[i].records[j];
            if (record->taken && record->written && same(record->key, key))
                any = record->damaged = true;
        }
    return any;
}

size_t fake_swap_kept_of(struct residency_swap *swap, struct residency_key key)
{
    size_t n = 0;
    for (size_t i = 0; i < swap->n_files; i++)
        for (size_t j = 0; j < swap->files[i].n; j++)
            n += kept(&swap->files[i].records[j]) && same(swap->files[i].records[j].key, key);
    return n;
}

struct residency_swap *fake_swap_after_kill(struct residency_swap *swap)
{
    struct residency_swap *next = fake_swap_new();
    next->control = swap->control;
    for (size_t i = 0; i < swap->n_files; i++) {
        const struct residency_swap_file *from = &swap->files[i];
        struct residency_swap_file *to = file_of(next, from->kind, from->blob_bytes);
        to->records = calloc(from->n + 1, sizeof *to->records);
        CHECK(to->records);
        for (size_t j = 0; j < from->n; j++) {
            if (!kept(&from->records[j]))
                continue;
            struct record *record = &to->records[to->n++];
            *record = from->records[j];
            record->busy = false;
            record->bytes = malloc(from->blob_bytes);
            CHECK(record->bytes);
            memcpy(record->bytes, from->records[j].bytes, from->blob_bytes);
            to->n_taken++;
        }
    }
    return next;
}
