/* swap_open DIRECTORY KEYS
 *
 * Makes the index of a kept swap file as if so many blobs of 4 KiB had been spilled (the data is one hole), and opens
 * it as a peer does at its start: what a key takes of memory then, and how long that was. First the swap store alone,
 * then the cache over it, whose page table has an entry for each key. One JSON object for each. */
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common.h"
#include "residency/cache.h"
#include "residency/swap/index.h"
#include "residency/swap/swap.h"

#define BLOB 4096
#define AT_ONCE 4096

static const struct swap_geometry geometry = { .kind = RESIDENCY_KV, .blob_bytes = BLOB };
static const struct residency_swap_options options = { .keep = true, .engine = RESIDENCY_SWAP_POOL };

static int create(const char *directory, const char *suffix, char path[512])
{
    char name[SWAP_NAME_MAX];
    swap_index_name(&geometry, suffix, name);
    snprintf(path, 512, "%s/%s", directory, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        bench_die("cannot create %s", path);
    return fd;
}

static void write_at(int fd, const void *bytes, size_t len, uint64_t offset)
{
    if (pwrite(fd, bytes, len, (off_t)offset) != (ssize_t)len)
        bench_die("cannot write the index");
}

static void make(const char *directory, uint64_t keys, char data[512], char index[512])
{
    static uint8_t bytes[AT_ONCE][SWAP_INDEX_ENTRY_BYTES];
    uint8_t header[SWAP_INDEX_HEADER_BYTES];
    int data_fd = create(directory, "swap", data), fd = create(directory, "index", index);
    if (ftruncate(data_fd, (off_t)(keys * BLOB)) != 0)
        bench_die("the file system does not take a file of %llu blobs", (unsigned long long)keys);
    swap_index_header_encode(&(struct swap_index_header){ .geometry = geometry, .clean = true }, header);
    write_at(fd, header, sizeof header, 0);
    for (uint64_t first = 0; first < keys; first += AT_ONCE) {
        uint64_t n = keys - first < AT_ONCE ? keys - first : AT_ONCE;
        for (uint64_t i = 0; i < n; i++) {
            struct swap_index_entry entry = { .key = { .low = bench_word(first + i), .high = first + i },
                                              .generation = first + i + 1,
                                              .checksum = 1,
                                              .written_s = 1700000000 + (bench_word(first + i) & 0xffffff) };
            swap_index_entry_encode(&entry, &geometry, (uint32_t)(first + i), bytes[i]);
        }
        write_at(fd, bytes, n * SWAP_INDEX_ENTRY_BYTES, swap_index_entry_offset((uint32_t)first));
    }
    close(data_fd);
    close(fd);
}

/* What was freed on the way and is merely not given back does not count. */
static double held_bytes(void)
{
    malloc_trim(0);
    return (double)bench_resident_bytes();
}

static double peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024;
}

static void report(const char *what, uint64_t keys, int64_t begun_ns, double held_before)
{
    double wall_s = (double)(bench_now_ns() - begun_ns) / 1e9;
    printf(
        "{\"opened\": \"%s\", \"keys\": %llu, \"wall_s\": %.3f, \"bytes_a_key\": %.1f, \"peak_bytes_a_key\": %.1f}\n",
        what, (unsigned long long)keys, wall_s, (held_bytes() - held_before) / (double)keys,
        peak_bytes() / (double)keys);
    fflush(stdout);
}

static void count(void *user, const struct residency_swap_found *record)
{
    (void)record;
    ++*(uint64_t *)user;
}

static struct residency_swap *open_swap(const char *directory)
{
    struct residency_swap *swap;
    struct penstock_error error;
    if (residency_swap_open(directory, &options, &swap, &error) != 0)
        bench_die("%s", error.message);
    return swap;
}

static void open_alone(const char *directory, uint64_t keys)
{
    struct residency_swap_file *file;
    struct penstock_error error;
    uint64_t found = 0;
    double before = held_bytes();
    int64_t begun_ns = bench_now_ns();
    struct residency_swap *swap = open_swap(directory);
    if (residency_swap_file_open(swap, RESIDENCY_KV, BLOB, count, &found, &file, &error) != 0)
        bench_die("%s", error.message);
    if (found != keys)
        bench_die("only %llu keys were found", (unsigned long long)found);
    report("the swap store", keys, begun_ns, before);
    residency_swap_close(swap);
}

static void open_all(const char *directory, uint64_t keys)
{
    struct residency_ledger ledger;
    struct residency_cache *cache;
    struct penstock_error error;
    struct residency_arena_stats stats;
    residency_ledger_init(&ledger, UINT64_C(1) << 40);
    double before = held_bytes();
    int64_t begun_ns = bench_now_ns();
    struct residency_cache_options cache_options = {
        .swap = open_swap(directory), .keep = true, .ledger = &ledger, .numa_node = -1
    };
    if (residency_cache_new(&cache_options, &cache, &error) != 0)
        bench_die("%s", error.message);
    if (residency_stats(cache, &stats, 1) != 1 || stats.on_disk != keys)
        bench_die("the cache has %llu of %llu keys", (unsigned long long)stats.on_disk, (unsigned long long)keys);
    report("the cache with it", keys, begun_ns, before);
    residency_cache_free(cache);
    residency_swap_close(cache_options.swap);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        bench_die("usage: swap_open DIRECTORY KEYS");
    uint64_t keys = bench_number(argv[2], "KEYS");
    if (keys == 0 || keys > UINT32_MAX / 2)
        bench_die("1 to %u keys", UINT32_MAX / 2);
    char data[512], index[512];
    make(argv[1], keys, data, index);
    open_alone(argv[1], keys);
    open_all(argv[1], keys);
    (void)unlink(data);
    (void)unlink(index);
    return 0;
}
