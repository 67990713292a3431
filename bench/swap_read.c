/* swap_read DIRECTORY BLOB_BYTES RECORDS [DEPTH MILLISECONDS]
 *
 * Without a depth it fills a kept swap file with records; with one it finds them again and reads them in random order,
 * so many under way, and prints what came of it as JSON. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common.h"
#include "residency/swap/swap.h"

#define DEPTH_MAX 256

struct reads {
    struct residency_swap_file *file;
    struct residency_swap_found *found;
    uint64_t n_found;
    int64_t until_ns;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    uint64_t under_way; /* lock */
    _Atomic uint64_t done, seed;
};

struct read {
    struct residency_swap_io io;
    struct reads *all;
};

static void found(void *user, const struct residency_swap_found *record)
{
    struct reads *all = user;
    all->found[all->n_found++] = *record;
}

static void landed(struct residency_swap_io *io, int code)
{
    if (code != 0)
        bench_die("a transfer failed: %s", penstock_error_name(code));
    struct read *r = (struct read *)(void *)io;
    r->all->done++;
}

static void wait_for_all(struct reads *all)
{
    pthread_mutex_lock(&all->lock);
    while (all->under_way > 0)
        pthread_cond_wait(&all->ended, &all->lock);
    pthread_mutex_unlock(&all->lock);
}

static void end(struct reads *all)
{
    pthread_mutex_lock(&all->lock);
    if (--all->under_way == 0)
        pthread_cond_signal(&all->ended);
    pthread_mutex_unlock(&all->lock);
}

static void read_landed(struct residency_swap_io *io, int code);

static void read_another(struct read *r)
{
    uint64_t z = atomic_fetch_add(&r->all->seed, UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    const struct residency_swap_found *f = &r->all->found[(z ^ (z >> 31)) % r->all->n_found];
    r->io = (struct residency_swap_io){ .file = r->all->file,
                                        .key = f->key,
                                        .generation = f->generation,
                                        .blob = r->io.blob,
                                        .record = f->record,
                                        .done = read_landed };
    residency_swap_read(&r->io);
}

static void read_landed(struct residency_swap_io *io, int code)
{
    landed(io, code);
    struct read *r = (struct read *)(void *)io;
    if (bench_now_ns() < r->all->until_ns)
        read_another(r);
    else
        end(r->all);
}

static void write_landed(struct residency_swap_io *io, int code)
{
    landed(io, code);
    end(((struct read *)(void *)io)->all);
}

static void fill(struct reads *all, uint64_t blob_bytes, uint64_t records)
{
    struct read w = { .all = all };
    uint64_t *blob = bench_memory(blob_bytes);
    for (uint64_t key = 0; key < records; key++) {
        enum residency_swap_full full;
        for (uint64_t i = 0; i < blob_bytes / 8; i++)
            blob[i] = bench_word(key * blob_bytes + i);
        w.io = (struct residency_swap_io){
            .file = all->file, .key = { .low = key }, .generation = 1, .blob = blob, .done = write_landed
        };
        if (residency_swap_alloc(all->file, &w.io.record, &full) != 0)
            bench_die("no record could be taken");
        all->under_way = 1;
        residency_swap_write(&w.io);
        wait_for_all(all);
    }
}

/* As the cache has it: on huge pages where there are any, and touched before. A page that only a disk has written costs
 * its first reader a fault of the hypervisor's, which is no part of what is measured. */
static uint8_t *arena(size_t len)
{
    const size_t huge = 2 << 20;
    uint8_t *memory = mmap(NULL, len + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        bench_die("no memory");
    memory += -(uintptr_t)memory % huge;
    (void)madvise(memory, len, MADV_HUGEPAGE);
    memset(memory, 1, len);
    return memory;
}

static void measure(struct reads *all, struct residency_swap *swap, uint64_t blob_bytes, uint64_t depth, uint64_t ms)
{
    static struct read reads[DEPTH_MAX];
    if (depth == 0 || depth > DEPTH_MAX || all->n_found == 0)
        bench_die("a depth of 1 to %d, and records that are there", DEPTH_MAX);
    uint8_t *memory = arena(depth * blob_bytes);
    for (uint64_t i = 0; i < depth; i++)
        reads[i] = (struct read){ .io = { .blob = memory + i * blob_bytes }, .all = all };
    int64_t begun_ns = bench_now_ns(), cpu_ns = bench_cpu_ns();
    all->seed = (uint64_t)begun_ns;
    all->until_ns = begun_ns + (int64_t)ms * 1000000;
    all->under_way = depth;
    for (uint64_t i = 0; i < depth; i++)
        read_another(&reads[i]);
    wait_for_all(all);
    uint64_t bytes = all->done * blob_bytes;
    double wall_s = (double)(bench_now_ns() - begun_ns) / 1e9, gb = (double)bytes / 1e9;
    struct residency_swap_stats stats;
    residency_swap_stats(swap, &stats);
    printf("{\"bytes\": %llu, \"wall_s\": %.4f, \"gb_s\": %.4f, \"cpu_s_per_gb\": %.4f, \"uring\": %s, \"direct\": "
           "%s}\n",
           (unsigned long long)bytes, wall_s, gb / wall_s, (double)(bench_cpu_ns() - cpu_ns) / 1e9 / gb,
           stats.uring ? "true" : "false", stats.direct ? "true" : "false");
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 6)
        bench_die("usage: swap_read DIRECTORY BLOB_BYTES RECORDS [DEPTH MILLISECONDS]");
    uint64_t blob_bytes = bench_number(argv[2], "BLOB_BYTES"), records = bench_number(argv[3], "RECORDS");
    struct residency_swap_options options = { .keep = true };
    struct residency_swap *swap;
    struct penstock_error error;
    struct reads all = { .found = calloc(records + 1, sizeof *all.found) };
    pthread_mutex_init(&all.lock, NULL);
    pthread_cond_init(&all.ended, NULL);
    if (!all.found)
        bench_die("no memory");
    if (getenv("SWAP_READ_POOL"))
        options.engine = RESIDENCY_SWAP_POOL;
    if (residency_swap_open(argv[1], &options, &swap, &error) != 0 ||
        residency_swap_file_open(swap, RESIDENCY_KV, blob_bytes, found, &all, &all.file, &error) != 0)
        bench_die("%s", error.message);
    if (argc == 4)
        fill(&all, blob_bytes, records);
    else
        measure(&all, swap, blob_bytes, bench_number(argv[4], "DEPTH"), bench_number(argv[5], "MILLISECONDS"));
    residency_swap_close(swap);
    free(all.found);
    return 0;
}
