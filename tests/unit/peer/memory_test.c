#include "model_dir.h"

#include "peer/memory.h"

static char base[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(base, "/tmp/penstock-memory-XXXXXX");
    return mkdtemp(base) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    model_dir_remove(base);
    return 0;
}

static void put(const char *group, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s%s", base, group);
    (void)mkdir(path, 0700);
    snprintf(path, sizeof path, "%s%s/%s", base, group, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void group(const char *path, const char *max, const char *high, const char *current, const char *stat)
{
    put(path, "memory.max", max);
    put(path, "memory.high", high);
    put(path, "memory.current", current);
    put(path, "memory.stat", stat);
}

static void the_lower_limit_counts_and_cached_pages_are_free(void **state)
{
    (void)state;
    group("", "10000\n", "9000\n", "5000\n", "anon 1000\nfile_mapped 7\nfile 4000\n");
    assert_int_equal(peer_memory_of_group(base), 8000);
    group("", "max\n", "9000\n", "20000\n", "anon 20000\nfile 0\n");
    assert_int_equal(peer_memory_of_group(base), 0);
    group("", "max\n", "max\n", "5000\n", "file 4000\n");
    assert_true(peer_memory_of_group(base) == UINT64_MAX);
}

static void a_group_above_limits_those_below(void **state)
{
    (void)state;
    group("/a", "3000\n", "max\n", "1000\n", "file 0\n");
    group("/a/b", "8000\n", "max\n", "1000\n", "file 0\n");
    assert_int_equal(peer_memory_of_groups(base, "/a/b"), 2000);
    group("/a/b", "1500\n", "max\n", "1000\n", "file 0\n");
    assert_int_equal(peer_memory_of_groups(base, "/a/b"), 500);
    assert_int_equal(peer_memory_of_groups(base, "/a"), 2000);
    assert_true(peer_memory_of_groups(base, "/") == UINT64_MAX);
    assert_true(peer_memory_of_groups(base, "/none") == UINT64_MAX);
}

static void this_machine_has_some(void **state)
{
    (void)state;
    assert_true(peer_memory_available() > 0);
}

static void huge_pages_that_were_promised_are_not_free(void **state)
{
    (void)state;
    assert_int_equal(peer_memory_huge(base), 0); /* such a kernel has none */
    put("", "free_hugepages", "12\n");
    put("", "resv_hugepages", "5\n");
    assert_int_equal(peer_memory_huge(base), UINT64_C(7) << 21);
    put("", "resv_hugepages", "13\n");
    assert_int_equal(peer_memory_huge(base), 0);
}

#define in_a_directory(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_a_directory(the_lower_limit_counts_and_cached_pages_are_free),
        in_a_directory(a_group_above_limits_those_below),
        in_a_directory(huge_pages_that_were_promised_are_not_free),
        cmocka_unit_test(this_machine_has_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
