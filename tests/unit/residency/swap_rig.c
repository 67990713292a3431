#include "swap_rig.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../test.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t landed = PTHREAD_COND_INITIALIZER;

static void found(void *user, const struct residency_swap_found *record)
{
    struct swap_rig *rig = user;
    assert_true(rig->n_found < sizeof rig->found / sizeof *rig->found);
    rig->found[rig->n_found++] = *record;
}

void swap_rig_open(struct swap_rig *rig)
{
    struct penstock_error error = { 0 };
    rig->n_found = 0;
    int code = residency_swap_open(rig->directory, &rig->options, &rig->swap, &error);
    if (code != 0 && rig->options.engine == RESIDENCY_SWAP_URING && strstr(error.message, "io_uring")) {
        print_message("skipped: %s\n", error.message);
        (void)rmdir(rig->directory);
        skip();
    }
    if (code != 0)
        fail_msg("%s", error.message);
    code = residency_swap_file_open(rig->swap, RESIDENCY_KV, rig->blob_bytes, found, rig, &rig->file, &error);
    if (code != 0)
        fail_msg("%s", error.message);
}

void swap_rig_start(struct swap_rig *rig, uint64_t blob_bytes, const struct residency_swap_options *options)
{
    *rig = (struct swap_rig){ .options = *options, .blob_bytes = blob_bytes };
    const char *where = getenv("TMPDIR");
    snprintf(rig->directory, sizeof rig->directory, "%s/penstock-swap-XXXXXX", where ? where : "/tmp");
    assert_non_null(mkdtemp(rig->directory));
    swap_rig_open(rig);
}

void swap_rig_close(struct swap_rig *rig)
{
    residency_swap_close(rig->swap);
    rig->swap = NULL;
}

void swap_rig_remove(struct swap_rig *rig)
{
    swap_rig_close(rig);
    DIR *dir = opendir(rig->directory);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(dir), entry->d_name, 0), 0);
    closedir(dir);
    assert_int_equal(rmdir(rig->directory), 0);
}

void swap_rig_path(const struct swap_rig *rig, const char *suffix, char out[128])
{
    struct swap_geometry geometry = { .kind = RESIDENCY_KV, .blob_bytes = rig->blob_bytes };
    char name[SWAP_NAME_MAX];
    swap_index_name(&geometry, suffix, name);
    snprintf(out, 128, "%s/%s", rig->directory, name);
}

void *swap_rig_blob(const struct swap_rig *rig)
{
    void *blob = aligned_alloc(RESIDENCY_SWAP_ALIGN, rig->blob_bytes);
    assert_non_null(blob);
    return blob;
}

void swap_rig_fill(const struct swap_rig *rig, void *blob, uint64_t key, uint64_t generation)
{
    uint64_t state = key * 1000003 + generation;
    for (uint64_t i = 0; i < rig->blob_bytes / 8; i++)
        ((uint64_t *)blob)[i] = test_random(&state);
}

bool swap_rig_is(const struct swap_rig *rig, const void *blob, uint64_t key, uint64_t generation)
{
    uint64_t state = key * 1000003 + generation;
    for (uint64_t i = 0; i < rig->blob_bytes / 8; i++)
        if (((const uint64_t *)blob)[i] != test_random(&state))
            return false;
    return true;
}

static void done(struct residency_swap_io *io, int code)
{
    struct swap_rig_io *mine = base_list_entry(io, struct swap_rig_io, io);
    pthread_mutex_lock(&lock);
    mine->code = code;
    mine->landed = true;
    pthread_cond_broadcast(&landed);
    pthread_mutex_unlock(&lock);
}

void swap_rig_submit(struct swap_rig *rig, struct swap_rig_io *io, bool write, uint32_t record, uint64_t key,
                     uint64_t generation, void *blob)
{
    *io = (struct swap_rig_io){ .io = { .file = rig->file,
                                        .key = { .low = key, .high = ~key },
                                        .generation = generation,
                                        .blob = blob,
                                        .record = record,
                                        .owned = io->io.owned,
                                        .done = done,
                                        .progress = io->io.progress },
                                .here = io->here };
    if (write)
        residency_swap_write(&io->io);
    else if (io->here)
        residency_swap_read_here(&io->io);
    else
        residency_swap_read(&io->io);
}

int swap_rig_wait(struct swap_rig_io *io)
{
    pthread_mutex_lock(&lock);
    while (!io->landed)
        pthread_cond_wait(&landed, &lock);
    pthread_mutex_unlock(&lock);
    return io->code;
}

int swap_rig_write(struct swap_rig *rig, uint32_t record, uint64_t key, uint64_t generation)
{
    void *blob = swap_rig_blob(rig);
    swap_rig_fill(rig, blob, key, generation);
    struct swap_rig_io io = { 0 };
    swap_rig_submit(rig, &io, true, record, key, generation, blob);
    int code = swap_rig_wait(&io);
    free(blob);
    return code;
}

int swap_rig_read(struct swap_rig *rig, uint32_t record, uint64_t key, uint64_t generation)
{
    void *blob = swap_rig_blob(rig);
    memset(blob, 0xee, rig->blob_bytes);
    struct swap_rig_io io = { 0 };
    swap_rig_submit(rig, &io, false, record, key, generation, blob);
    int code = swap_rig_wait(&io);
    if (code == 0)
        assert_true(swap_rig_is(rig, blob, key, generation));
    free(blob);
    return code;
}

uint32_t swap_rig_put(struct swap_rig *rig, uint64_t key, uint64_t generation)
{
    uint32_t record;
    enum residency_swap_full full;
    assert_int_equal(residency_swap_alloc(rig->file, &record, &full), 0);
    assert_int_equal(swap_rig_write(rig, record, key, generation), 0);
    return record;
}

const struct residency_swap_found *swap_rig_found(const struct swap_rig *rig, uint64_t key)
{
    for (uint32_t i = 0; i < rig->n_found; i++)
        if (rig->found[i].key.low == key && rig->found[i].key.high == ~key)
            return &rig->found[i];
    return NULL;
}
