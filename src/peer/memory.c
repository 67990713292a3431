#include "memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"

/* The number in a file of one; UINT64_MAX: "max", or there is none. */
static uint64_t read_number(const char *directory, const char *name)
{
    char path[PATH_MAX];
    uint64_t number;
    int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
    if (!f || fscanf(f, "%" SCNu64, &number) != 1)
        number = UINT64_MAX;
    if (f)
        fclose(f);
    return number;
}

/* The number behind a key that begins a line, or 0. */
static uint64_t read_key(const char *path, const char *key)
{
    FILE *f = fopen(path, "re");
    char line[256];
    uint64_t number = 0;
    size_t len = strlen(key);
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, len) == 0 && sscanf(line + len, "%" SCNu64, &number) == 1)
            break;
    if (f)
        fclose(f);
    return number;
}

uint64_t peer_memory_of_group(const char *directory)
{
    uint64_t limit = base_min_u64(read_number(directory, "memory.max"), read_number(directory, "memory.high"));
    uint64_t used = read_number(directory, "memory.current");
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/memory.stat", directory);
    uint64_t cached = n > 0 && (size_t)n < sizeof path ? read_key(path, "file ") : 0;
    used -= base_min_u64(used, cached);
    return limit - base_min_u64(limit, used);
}

uint64_t peer_memory_of_groups(const char *root, const char *path)
{
    char directory[PATH_MAX];
    uint64_t least = UINT64_MAX;
    int n = snprintf(directory, sizeof directory, "%s%s", root, path);
    if (n < 0 || (size_t)n >= sizeof directory)
        return least;
    for (size_t root_len = strlen(root);;) {
        least = base_min_u64(least, peer_memory_of_group(directory));
        char *slash = strrchr(directory + root_len, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

uint64_t peer_memory_available(void)
{
    uint64_t least = UINT64_MAX, kib = read_key("/proc/meminfo", "MemAvailable:");
    if (kib > 0)
        least = kib << 10;
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX];
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::/", 4) == 0)
            least = base_min_u64(least, peer_memory_of_groups("/sys/fs/cgroup", line + 3));
    }
    if (f)
        fclose(f);
    return least;
}

uint64_t peer_memory_huge(const char *directory)
{
    uint64_t free_pages = read_number(directory, "free_hugepages"), promised = read_number(directory, "resv_hugepages");
    if (free_pages == UINT64_MAX || promised == UINT64_MAX)
        return 0;
    return (free_pages - base_min_u64(free_pages, promised)) << 21;
}
