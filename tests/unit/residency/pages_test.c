/* An arena's pages, of a machine with huge ones on two nodes: linked with --wrap. */
#include "../test.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "residency/memory.h"

#define LEN_BYTES (UINT64_C(4) << 20)

void *__real_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset);
int __real_madvise(void *at, size_t len, int advice);
void *__wrap_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset);
int __wrap_madvise(void *at, size_t len, int advice);
long __wrap_syscall(long number, ...);

static bool node_has_enough;
static int bound, taken;

/* The kernel promises huge pages, whichever node has them. */
void *__wrap_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    const int huge = (int)(MAP_HUGETLB | 63u << MAP_HUGE_SHIFT);
    return __real_mmap64(at, len, prot, flags & MAP_HUGETLB ? flags & ~huge : flags, fd, offset);
}

int __wrap_madvise(void *at, size_t len, int advice)
{
    if (advice != MADV_POPULATE_WRITE)
        return __real_madvise(at, len, advice);
    assert_int_equal(bound, 1);
    taken++;
    errno = EFAULT;
    return node_has_enough ? 0 : -1;
}

long __wrap_syscall(long number, ...)
{
    assert_int_equal(number, SYS_mbind);
    bound++;
    return 0;
}

static struct residency_memory map(int node)
{
    const struct residency_cache_options options = { .numa_node = node };
    struct residency_memory memory;
    struct penstock_error error;
    bound = taken = 0;
    assert_int_equal(residency_memory_map(&options, LEN_BYTES, &memory, &error), 0);
    assert_int_equal(memory.len_bytes, LEN_BYTES);
    ((char *)memory.base)[LEN_BYTES - 1] = 1;
    return memory;
}

static void huge_pages_of_a_node_are_taken_at_once(void **state)
{
    (void)state;
    node_has_enough = true;
    struct residency_memory memory = map(0);
    assert_int_equal(memory.page_bytes, 2 << 20);
    assert_int_equal(taken, 1);
    residency_memory_unmap(&memory);
}

static void a_node_with_too_few_huge_pages_gives_small_ones(void **state)
{
    (void)state;
    node_has_enough = false;
    struct residency_memory memory = map(0);
    assert_int_equal(memory.page_bytes, 4096);
    assert_int_equal(bound, 2);
    residency_memory_unmap(&memory);
}

static void without_a_node_none_is_touched(void **state)
{
    (void)state;
    struct residency_memory memory = map(-1);
    assert_int_equal(memory.page_bytes, 2 << 20);
    assert_int_equal(bound + taken, 0);
    residency_memory_unmap(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(huge_pages_of_a_node_are_taken_at_once),
        cmocka_unit_test(a_node_with_too_few_huge_pages_gives_small_ones),
        cmocka_unit_test(without_a_node_none_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
