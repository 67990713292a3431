#include "disk_rig.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../test.h"

static _Atomic int64_t now_ns = INT64_C(1000000000000);

static int64_t rig_now_ns(void)
{
    return now_ns;
}

static int before(void *user, enum residency_swap_step step, uint64_t offset_bytes, size_t *len_bytes)
{
    struct disk_rig *rig = user;
    (void)len_bytes;
    rig->writes += step == RESIDENCY_SWAP_WRITE;
    rig->reads += step == RESIDENCY_SWAP_READ;
    if (step == RESIDENCY_SWAP_WRITE && rig->bad_sector && offset_bytes < RIG_BLOB)
        return -EIO;
    return step == RESIDENCY_SWAP_WRITE ? -rig->write_errno : step == RESIDENCY_SWAP_READ ? -rig->read_errno : 0;
}

void disk_rig_init(struct disk_rig *rig)
{
    *rig = (struct disk_rig){ 0 };
    rig->hook = (struct residency_swap_hook){ .before = before, .user = rig };
    rig->swap_options.hook = &rig->hook;
    rig->options = (struct residency_cache_options){
        .ledger = &rig->ledger, .numa_node = -1, .no_huge_pages = true, .now_ns = rig_now_ns
    };
    residency_ledger_init(&rig->ledger, UINT64_C(1) << 30);
    const char *where = getenv("TMPDIR");
    snprintf(rig->directory, sizeof rig->directory, "%s/penstock-cache-XXXXXX", where ? where : "/tmp");
    assert_non_null(mkdtemp(rig->directory));
}

void disk_rig_start(struct disk_rig *rig)
{
    struct penstock_error error = { 0 };
    rig->swap_options.keep = rig->options.keep;
    if (!rig->in_memory && residency_swap_open(rig->directory, &rig->swap_options, &rig->swap, &error) != 0)
        fail_msg("%s", error.message);
    rig->options.swap = rig->swap;
    if (residency_cache_new(&rig->options, &rig->cache, &error) != 0)
        fail_msg("%s", error.message);
}

void disk_rig_stop(struct disk_rig *rig)
{
    residency_cache_free(rig->cache);
    residency_swap_close(rig->swap);
    rig->cache = NULL;
    rig->swap = NULL;
    assert_int_equal(residency_used(&rig->ledger), 0);
}

void disk_rig_remove(struct disk_rig *rig)
{
    disk_rig_stop(rig);
    residency_ledger_fini(&rig->ledger);
    DIR *dir = opendir(rig->directory);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.')
            assert_int_equal(unlinkat(dirfd(dir), entry->d_name, 0), 0);
    closedir(dir);
    assert_int_equal(rmdir(rig->directory), 0);
}

struct residency_client *disk_rig_join(struct disk_rig *rig, uint32_t slots)
{
    struct penstock_error error = { 0 };
    struct residency_client *client;
    if (residency_join(rig->cache, RESIDENCY_KV, (uint64_t)slots * RIG_BLOB, RIG_BLOB, &client, &error) != 0)
        fail_msg("%s", error.message);
    return client;
}

void disk_rig_pass_s(int64_t seconds)
{
    now_ns += seconds * INT64_C(1000000000);
}

struct residency_arena_stats disk_rig_stats(struct disk_rig *rig)
{
    struct residency_arena_stats stats = { 0 };
    (void)residency_stats(rig->cache, &stats, 1);
    return stats;
}
