#include "lists.h"

#include <stdlib.h>

#include "common.h"
#include "tensor_sizes.h"

static struct bench_list list_new(size_t n)
{
    struct bench_list list = { .at = calloc(n, sizeof *list.at), .n = n };
    if (!list.at)
        bench_die("no memory for %zu ranges", n);
    return list;
}

struct bench_list bench_tensors(void)
{
    struct bench_list list = list_new(BENCH_TENSORS);
    uint64_t *sizes = bench_tensor_sizes();
    for (size_t i = 0; i < list.n; i++) {
        list.at[i] =
            (struct rail_range){ .remote_offset = list.bytes, .local_offset = list.bytes, .len_bytes = sizes[i] };
        list.bytes += sizes[i];
    }
    free(sizes);
    return list;
}

struct bench_list bench_objects(size_t n, uint64_t len_bytes)
{
    struct bench_list list = list_new(n);
    for (size_t i = 0; i < n; i++)
        list.at[i] = (struct rail_range){ .remote_offset = i * 2 * len_bytes,
                                          .local_offset = i * len_bytes,
                                          .len_bytes = len_bytes };
    list.bytes = n * len_bytes;
    return list;
}

void bench_shuffle(struct bench_list *list)
{
    uint64_t random = 88172645463325252u, at = 0; /* xorshift64 */
    for (size_t i = list->n; i > 1; i--) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        size_t j = random % i;
        struct rail_range swap = list->at[i - 1];
        list->at[i - 1] = list->at[j];
        list->at[j] = swap;
    }
    for (size_t i = 0; i < list->n; i++) {
        list->at[i].local_offset = at;
        at += list->at[i].len_bytes;
    }
}
