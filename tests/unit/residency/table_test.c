#include "../test.h"

#include <stdlib.h>

#include "residency/table.h"

static const uint64_t seed[2] = { 1, 2 };

static struct residency_key key_of(uint64_t i)
{
    return (struct residency_key){ .low = i * 64, .high = i % 3 };
}

static void what_was_inserted_is_found_and_nothing_else(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct residency_table table;
    residency_table_init(&table, seed, sizeof(struct residency_node), false);
    for (uint32_t i = 0; i < N; i++) {
        struct residency_key key = key_of(i);
        assert_int_equal(residency_table_find(&table, &key), RESIDENCY_NONE);
        uint32_t index = residency_table_insert(&table, &key);
        ((struct residency_node *)residency_table_node(&table, index))->value = i;
    }
    for (uint32_t i = 0; i < 2 * N; i++) {
        struct residency_key key = key_of(i);
        uint32_t index = residency_table_find(&table, &key);
        if (i >= N)
            assert_int_equal(index, RESIDENCY_NONE);
        else
            assert_int_equal(((struct residency_node *)residency_table_node(&table, index))->value, i);
    }
    residency_table_fini(&table);
}

static void both_halves_of_a_key_count(void **state)
{
    (void)state;
    struct residency_table table;
    residency_table_init(&table, seed, sizeof(struct residency_node), false);
    struct residency_key key = { .low = 5, .high = 0 }, other = { .low = 5, .high = 1 },
                         swapped = { .low = 0, .high = 5 };
    assert_int_not_equal(residency_table_insert(&table, &key), RESIDENCY_NONE);
    assert_int_equal(residency_table_find(&table, &other), RESIDENCY_NONE);
    assert_int_equal(residency_table_find(&table, &swapped), RESIDENCY_NONE);
    residency_table_fini(&table);
}

static void nodes_of_removed_keys_are_used_again(void **state)
{
    (void)state;
    struct residency_table table;
    residency_table_init(&table, seed, sizeof(struct residency_node), false);
    for (uint64_t i = 0; i < 100000; i++) {
        struct residency_key key = key_of(i), old = key_of(i - 100);
        assert_int_not_equal(residency_table_insert(&table, &key), RESIDENCY_NONE);
        if (i >= 100)
            residency_table_remove(&table, residency_table_find(&table, &old));
    }
    assert_int_equal(table.used, 100);
    assert_true(table.fresh <= 101);
    uint32_t cursor = 0, index, n = 0;
    for (; (index = residency_table_any(&table, &cursor)) != RESIDENCY_NONE; n++)
        residency_table_remove(&table, index);
    assert_int_equal(n, 100);
    residency_table_fini(&table);
}

static void chains_stay_short(bool large, uint64_t n)
{
    struct residency_table table;
    residency_table_init(&table, seed, large ? 48 : sizeof(struct residency_node), large);
    for (uint64_t i = 0; i < n; i++) {
        struct residency_key key = key_of(i);
        assert_int_not_equal(residency_table_insert(&table, &key), RESIDENCY_NONE);
        assert_true((uint64_t)table.used * 3 <= ((uint64_t)table.mask + 1 + table.split) * 4);
    }
    assert_true(table.nodes.n > 1 && table.buckets.n > 1);
    size_t longest = 0, keys = 0;
    for (uint32_t i = 0; i < table.mask + 1 + table.split; i++) {
        size_t length = 0;
        for (uint32_t at = table.buckets.at[i >> table.bucket_shift][i & ((1u << table.bucket_shift) - 1)]; at;
             length++)
            at = ((struct residency_node *)residency_table_node(&table, at - 1))->chain;
        longest = length > longest ? length : longest;
        keys += length;
    }
    assert_int_equal(keys, n);
    assert_true(longest <= 12);
    residency_table_fini(&table);
}

static void chains_stay_short_while_it_grows(void **state)
{
    (void)state;
    chains_stay_short(false, 50000);
    chains_stay_short(true, 800000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_inserted_is_found_and_nothing_else),
        cmocka_unit_test(both_halves_of_a_key_count),
        cmocka_unit_test(nodes_of_removed_keys_are_used_again),
        cmocka_unit_test(chains_stay_short_while_it_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
