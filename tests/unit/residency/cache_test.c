#include "cache_fixture.h"

#include <errno.h>

/* ---- protocol 3, sentence by sentence ---- */

static void what_is_reserved_and_not_committed_is_a_miss(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 8), *b = rig_join(&rig, 8);
    uint64_t offset;
    assert_int_equal(residency_alloc(a, rig_key(1), &offset), RESIDENCY_OK);
    assert_int_equal(rig_get(b, 1), 0);
    assert_int_equal(rig_get(a, 1), 0);
    assert_int_equal(residency_exists(a, rig_key(1)), RESIDENCY_MISS);
    rig_fill(rig_blob(a, offset), 7);
    assert_int_equal(residency_commit(a, rig_key(1)), RESIDENCY_OK);
    assert_int_equal(rig_get(b, 1), 7);
    residency_client_free(a);
    residency_client_free(b);
}

static void the_old_blob_stays_readable_until_commit(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 8);
    uint64_t first, second, offset;
    assert_int_equal(rig_put(a, 1, 7), RESIDENCY_OK);
    assert_int_equal(residency_get(a, rig_key(1), &first), RESIDENCY_OK);
    assert_int_equal(residency_alloc(a, rig_key(1), &second), RESIDENCY_OK);
    assert_int_not_equal(first, second);
    rig_fill(rig_blob(a, second), 8);
    assert_int_equal(rig_get(a, 1), 7);
    assert_int_equal(residency_commit(a, rig_key(1)), RESIDENCY_OK);
    assert_int_equal(residency_get(a, rig_key(1), &offset), RESIDENCY_OK);
    assert_int_equal(offset, second);
    residency_client_free(a);
}

static void a_pinned_version_keeps_its_slot_after_it_was_overwritten(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *reader = rig_join(&rig, 3), *writer = rig_join(&rig, 3);
    uint64_t offset;
    assert_int_equal(rig_put(writer, 1, 7), RESIDENCY_OK);
    assert_int_equal(residency_get(reader, rig_key(1), &offset), RESIDENCY_OK);
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(rig_put(writer, 1 + i % 5, 100 + i), RESIDENCY_OK);
    assert_int_equal(rig_read(rig_blob(reader, offset)), 7);
    residency_let_go(reader);
    assert_int_equal(rig_stats(&rig).pinned, 0);
    residency_client_free(reader);
    residency_client_free(writer);
}

static void an_arena_of_one_slot_takes_overwrites(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 1);
    uint64_t offset;
    for (uint64_t i = 1; i < 10; i++)
        assert_int_equal(rig_put(a, 1, i), RESIDENCY_OK);
    assert_int_equal(rig_get(a, 1), 9);
    assert_int_equal(residency_alloc(a, rig_key(1), &offset), RESIDENCY_OK);
    assert_int_equal(rig_get(a, 1), ERROR); /* on disk, and the only slot is reserved */
    assert_int_equal(residency_remove(a, rig_key(1)), RESIDENCY_OK);
    assert_int_equal(rig_get(a, 1), 0);
    residency_client_free(a);
}

static void with_every_slot_reserved_or_pinned_the_answer_is_an_error_at_once(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 2), *b = rig_join(&rig, 2), *c = rig_join(&rig, 2);
    uint64_t offset;
    assert_int_equal(rig_put(a, 1, 7), RESIDENCY_OK);
    assert_int_equal(rig_put(a, 2, 8), RESIDENCY_OK);
    assert_int_equal(rig_put(a, 3, 9), RESIDENCY_OK);
    assert_int_equal(residency_get(a, rig_key(3), &offset), RESIDENCY_OK);
    assert_int_equal(residency_alloc(b, rig_key(4), &offset), RESIDENCY_OK);
    assert_int_equal(residency_alloc(c, rig_key(5), &offset), RESIDENCY_ERR);
    assert_int_equal(residency_get(c, rig_key(1), &offset), RESIDENCY_ERR); /* on disk */
    assert_int_equal(residency_get(c, rig_key(3), &offset), RESIDENCY_OK);  /* needs no slot */
    residency_client_free(b);
    assert_int_equal(residency_alloc(c, rig_key(5), &offset), RESIDENCY_OK);
    residency_client_free(a);
    residency_client_free(c);
}

static void two_clients_reserve_one_key_and_the_last_commit_wins(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 8), *b = rig_join(&rig, 8);
    uint64_t one, two;
    assert_int_equal(residency_alloc(a, rig_key(1), &one), RESIDENCY_OK);
    assert_int_equal(residency_alloc(b, rig_key(1), &two), RESIDENCY_OK);
    assert_int_not_equal(one, two);
    rig_fill(rig_blob(a, one), 7);
    rig_fill(rig_blob(b, two), 8);
    assert_int_equal(residency_commit(b, rig_key(1)), RESIDENCY_OK);
    assert_int_equal(rig_get(a, 1), 8);
    assert_int_equal(residency_commit(a, rig_key(1)), RESIDENCY_OK);
    assert_int_equal(rig_get(b, 1), 7);
    assert_int_equal(rig_stats(&rig).resident, 1);
    residency_client_free(a);
    residency_client_free(b);
}

static void a_second_alloc_of_a_reserved_key_gives_the_same_slot(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 8);
    uint64_t one, two;
    assert_int_equal(residency_alloc(a, rig_key(1), &one), RESIDENCY_OK);
    assert_int_equal(residency_alloc(a, rig_key(1), &two), RESIDENCY_OK);
    assert_int_equal(one, two);
    assert_int_equal(rig_stats(&rig).reserved, 1);
    residency_client_free(a);
}

static void commit_without_a_reservation_asks_whether_the_key_is_resident(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 1), *b = rig_join(&rig, 1);
    assert_int_equal(residency_commit(b, rig_key(1)), RESIDENCY_ERR);
    assert_int_equal(rig_put(a, 1, 7), RESIDENCY_OK);
    assert_int_equal(residency_commit(b, rig_key(1)), RESIDENCY_OK);
    assert_int_equal(rig_put(a, 2, 8), RESIDENCY_OK);
    assert_int_equal(residency_commit(b, rig_key(1)), RESIDENCY_ERR); /* only on disk */
    residency_client_free(a);
    residency_client_free(b);
}

static void remove_gives_back_the_clients_own_reservation_and_no_others(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 8), *b = rig_join(&rig, 8);
    uint64_t offset;
    assert_int_equal(residency_alloc(a, rig_key(1), &offset), RESIDENCY_OK);
    assert_int_equal(residency_alloc(b, rig_key(1), &offset), RESIDENCY_OK);
    rig_fill(rig_blob(b, offset), 8);
    assert_int_equal(residency_remove(a, rig_key(1)), RESIDENCY_OK);
    assert_int_equal(rig_stats(&rig).reserved, 1);
    assert_int_equal(residency_commit(a, rig_key(1)), RESIDENCY_ERR);
    assert_int_equal(residency_commit(b, rig_key(1)), RESIDENCY_OK);
    assert_int_equal(rig_get(a, 1), 8);
    residency_client_free(a);
    residency_client_free(b);
}

static void a_removed_key_is_forgotten_at_once_and_its_slot_with_the_last_pin(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 2), *b = rig_join(&rig, 2);
    uint64_t mine, offset;
    assert_int_equal(rig_put(a, 1, 7), RESIDENCY_OK);
    assert_int_equal(residency_get(a, rig_key(1), &mine), RESIDENCY_OK);
    assert_int_equal(residency_remove(b, rig_key(1)), RESIDENCY_OK);
    assert_int_equal(residency_exists(b, rig_key(1)), RESIDENCY_MISS);
    for (uint64_t i = 2; i < 9; i++)
        assert_int_equal(rig_put(b, i, i), RESIDENCY_OK);
    assert_int_equal(rig_read(rig_blob(a, mine)), 7);
    residency_let_go(a);
    rig_land_all(&rig);
    assert_int_equal(residency_alloc(a, rig_key(20), &offset), RESIDENCY_OK);
    assert_int_equal(residency_alloc(b, rig_key(21), &offset), RESIDENCY_OK);
    residency_client_free(a);
    residency_client_free(b);
}

static void a_client_that_ends_gives_back_all_it_had(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 16), *b = rig_join(&rig, 16);
    uint64_t offset;
    assert_int_equal(rig_put(b, 1, 7), RESIDENCY_OK);
    residency_own(a, true);
    assert_int_equal(rig_put(a, 2, 8), RESIDENCY_OK);
    assert_int_equal(residency_alloc(a, rig_key(3), &offset), RESIDENCY_OK);
    assert_int_equal(residency_mget(a, rig_key(1), &offset), RESIDENCY_OK);
    assert_int_equal(residency_mget(a, rig_key(1), &offset), RESIDENCY_OK);
    assert_int_equal(residency_get(a, rig_key(2), &offset), RESIDENCY_OK);
    struct residency_arena_stats stats = rig_stats(&rig);
    assert_int_equal(stats.reserved, 1);
    assert_int_equal(stats.pinned, 2);
    residency_client_free(a);
    stats = rig_stats(&rig);
    assert_int_equal(stats.reserved, 0);
    assert_int_equal(stats.pinned, 0);
    assert_int_equal(stats.resident, 1);
    assert_int_equal(rig_get(b, 1), 7);
    assert_int_equal(rig_get(b, 2), 0);
    residency_client_free(b);
}

static void a_record_that_is_not_what_was_written_is_a_counted_miss(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 1);
    assert_int_equal(rig_put(a, 1, 7), RESIDENCY_OK);
    assert_int_equal(rig_put(a, 2, 8), RESIDENCY_OK);
    assert_true(fake_swap_damage(rig.swap, rig_key(1)));
    assert_int_equal(rig_get(a, 1), 0);
    assert_int_equal(rig_stats(&rig).errors, 1);
    assert_int_equal(residency_exists(a, rig_key(1)), RESIDENCY_MISS);
    assert_int_equal(rig_get(a, 2), 8);
    residency_client_free(a);
}

/* ---- limits, protocol 2.3 ---- */

static void a_client_pins_a_quarter_of_the_slots(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 16);
    uint64_t offset;
    for (uint64_t i = 0; i < 6; i++)
        assert_int_equal(rig_put(a, i, 100 + i), RESIDENCY_OK);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(residency_mget(a, rig_key(i), &offset), RESIDENCY_OK);
    assert_int_equal(residency_get(a, rig_key(4), &offset), RESIDENCY_OK);
    assert_int_equal(residency_mget(a, rig_key(5), &offset), RESIDENCY_ERR);
    assert_int_equal(residency_get(a, rig_key(5), &offset), RESIDENCY_OK); /* in the place of the last one */
    residency_let_go(a);
    assert_int_equal(residency_mget(a, rig_key(5), &offset), RESIDENCY_OK);
    assert_int_equal(residency_get(a, rig_key(4), &offset), RESIDENCY_ERR);
    residency_mget_release(a, rig_key(0));
    assert_int_equal(residency_get(a, rig_key(4), &offset), RESIDENCY_OK);
    residency_client_free(a);
}

static void a_client_reserves_a_quarter_of_the_slots(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 16);
    struct residency_copy copy;
    uint64_t offset;
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(residency_alloc(a, rig_key(i), &offset), RESIDENCY_OK);
    assert_int_equal(residency_alloc(a, rig_key(4), &offset), RESIDENCY_ERR);
    assert_int_equal(residency_alloc(a, rig_key(3), &offset), RESIDENCY_OK);
    assert_int_equal(residency_put_begin(a, rig_key(4), &copy), RESIDENCY_OK); /* does not count */
    residency_put_abandon(a, &copy);
    assert_int_equal(residency_commit(a, rig_key(0)), RESIDENCY_OK);
    assert_int_equal(residency_alloc(a, rig_key(4), &offset), RESIDENCY_OK);
    residency_client_free(a);
}

static void release_drops_the_oldest_pin_of_a_key(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 16), *b = rig_join(&rig, 16);
    uint64_t old, new;
    assert_int_equal(rig_put(b, 1, 7), RESIDENCY_OK);
    assert_int_equal(residency_mget(a, rig_key(1), &old), RESIDENCY_OK);
    assert_int_equal(rig_put(b, 1, 8), RESIDENCY_OK);
    assert_int_equal(residency_mget(a, rig_key(1), &new), RESIDENCY_OK);
    assert_int_equal(rig_stats(&rig).pinned, 2);
    residency_mget_release(a, rig_key(1));
    assert_int_equal(rig_stats(&rig).pinned, 1);
    residency_mget_release(a, rig_key(9)); /* none of it: no harm */
    for (uint64_t i = 2; i < 40; i++)
        assert_int_equal(rig_put(b, i, i), RESIDENCY_OK);
    assert_int_equal(rig_read(rig_blob(a, new)), 8);
    residency_mget_release(a, rig_key(1));
    residency_mget_release(a, rig_key(1));
    assert_int_equal(rig_stats(&rig).pinned, 0);
    residency_client_free(a);
    residency_client_free(b);
}

static void ownership_is_of_a_blob_and_not_of_a_key(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 8), *b = rig_join(&rig, 8);
    residency_own(a, true);
    assert_int_equal(rig_put(a, 1, 7), RESIDENCY_OK);
    assert_int_equal(rig_put(a, 2, 8), RESIDENCY_OK);
    assert_int_equal(rig_put(b, 1, 9), RESIDENCY_OK);
    assert_int_equal(residency_commit(a, rig_key(1)), RESIDENCY_OK); /* takes no ownership */
    residency_own(a, false);
    assert_int_equal(rig_put(a, 3, 10), RESIDENCY_OK);
    residency_client_free(a);
    assert_int_equal(rig_get(b, 1), 9);
    assert_int_equal(rig_get(b, 2), 0);
    assert_int_equal(rig_get(b, 3), 10);
    residency_client_free(b);
}

/* ---- paging ---- */

static void many_more_blobs_than_slots_come_back(void **state)
{
    (void)state;
    fake_swap_control(rig.swap)->random = 42;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 32);
    for (uint64_t i = 1; i <= 500; i++)
        assert_int_equal(rig_put(a, i, i * 10), RESIDENCY_OK);
    for (uint64_t i = 500; i >= 1; i--)
        assert_int_equal(rig_get(a, i), i * 10);
    assert_int_equal(rig_stats(&rig).misses, 0);
    residency_client_free(a);
}

static void a_clean_copy_is_not_written_again(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 2);
    for (uint64_t i = 1; i <= 4; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    for (uint64_t i = 1; i <= 4; i++)
        assert_int_equal(rig_get(a, i), i);
    uint64_t writes = fake_swap_writes(rig.swap);
    assert_int_equal(writes, 4);
    for (uint64_t i = 1; i <= 40; i++)
        assert_int_equal(rig_get(a, 1 + i % 4), 1 + i % 4);
    assert_int_equal(fake_swap_writes(rig.swap), writes);
    assert_int_equal(rig_put(a, 1, 9), RESIDENCY_OK);
    for (uint64_t i = 2; i <= 4; i++)
        assert_int_equal(rig_get(a, i), i);
    assert_int_equal(fake_swap_writes(rig.swap), writes + 1);
    residency_client_free(a);
}

static void the_least_recently_used_goes_first(void **state)
{
    (void)state;
    rig.options.swap = NULL;
    rig.options.ram_only = true;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 4);
    for (uint64_t i = 1; i <= 4; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    assert_int_equal(rig_get(a, 1), 1);
    assert_int_equal(rig_put(a, 5, 5), RESIDENCY_OK);
    assert_int_equal(rig_get(a, 2), 0);
    assert_int_equal(rig_get(a, 1), 1);
    assert_int_equal(rig_stats(&rig).drops, 1);
    residency_client_free(a);
}

static void spills_are_ahead_of_need(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 64);
    for (uint64_t i = 1; i <= 62; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    assert_int_equal(fake_swap_in_flight(rig.swap), 2); /* four free ones are wanted */
    rig_land_all(&rig);
    assert_int_equal(rig_stats(&rig).resident, 60);
    residency_client_free(a);
}

static void a_read_of_a_blob_that_is_being_spilled_keeps_it(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 64), *b = rig_join(&rig, 64);
    uint64_t offset;
    for (uint64_t i = 1; i <= 61; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    assert_int_equal(fake_swap_in_flight(rig.swap), 1);
    assert_int_equal(residency_get(b, rig_key(1), &offset), RESIDENCY_OK);
    rig_land_all(&rig);
    assert_int_equal(rig_read(rig_blob(b, offset)), 1);
    assert_int_equal(rig_stats(&rig).faults, 0);
    residency_client_free(a);
    residency_client_free(b);
}

static void a_prefetched_key_needs_no_wait(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 8);
    struct residency_copy copy;
    for (uint64_t i = 1; i <= 12; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    residency_prefetch(a, rig_key(1));
    residency_prefetch(a, rig_key(1));
    residency_prefetch(a, rig_key(99));
    rig_land_all(&rig);
    assert_int_equal(rig_stats(&rig).faults, 1);
    assert_int_equal(residency_fetch_begin(a, rig_key(1), true, &copy), RESIDENCY_OK);
    assert_int_equal(rig_read(copy.blob), 1);
    assert_int_equal(rig_stats(&rig).faults, 1);
    residency_fetch_end(a, &copy);
    residency_client_free(a);
}

static void a_disk_that_takes_nothing_refuses_the_alloc_and_keeps_what_is_resident(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 4);
    uint64_t offset;
    for (uint64_t i = 1; i <= 4; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    fake_swap_control(rig.swap)->write_errno = ENOSPC;
    assert_int_equal(residency_alloc(a, rig_key(5), &offset), RESIDENCY_ERR);
    fake_swap_control(rig.swap)->disk_full = true;
    assert_int_equal(residency_alloc(a, rig_key(5), &offset), RESIDENCY_ERR);
    for (uint64_t i = 1; i <= 4; i++)
        assert_int_equal(rig_get(a, i), i);
    assert_int_equal(rig_stats(&rig).errors, 2);
    *fake_swap_control(rig.swap) = (struct fake_swap_control){ 0 };
    assert_int_equal(rig_put(a, 5, 5), RESIDENCY_OK);
    residency_client_free(a);
}

static void a_record_that_cannot_be_read_is_an_error_and_stays(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 1);
    assert_int_equal(rig_put(a, 1, 7), RESIDENCY_OK);
    assert_int_equal(rig_put(a, 2, 8), RESIDENCY_OK);
    fake_swap_control(rig.swap)->read_errno = EIO;
    assert_int_equal(rig_get(a, 1), ERROR);
    fake_swap_control(rig.swap)->read_errno = 0;
    assert_int_equal(rig_get(a, 1), 7);
    residency_client_free(a);
}

static void under_a_cap_the_coldest_go_first(void **state)
{
    (void)state;
    fake_swap_control(rig.swap)->cap_records = 4;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 4);
    for (uint64_t i = 1; i <= 10; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    for (uint64_t i = 1; i <= 10; i++)
        assert_int_equal(residency_exists(a, rig_key(i)), i <= 2 ? RESIDENCY_MISS : RESIDENCY_OK);
    assert_int_equal(rig_stats(&rig).drops, 2);
    residency_client_free(a);
}

static void a_cap_takes_the_coldest_of_all_arenas(void **state)
{
    (void)state;
    fake_swap_control(rig.swap)->cap_records = 3;
    rig_start(&rig);
    struct residency_client *kv = rig_join(&rig, 1), *ssm;
    assert_int_equal(residency_join(rig.cache, RESIDENCY_SSM, RIG_BLOB, RIG_BLOB, &ssm, NULL), 0);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(rig_put(kv, i, i), RESIDENCY_OK);
        rig_pass_s(1);
        assert_int_equal(rig_put(ssm, i, i), RESIDENCY_OK);
        rig_pass_s(1);
    }
    assert_int_equal(residency_exists(kv, rig_key(1)), RESIDENCY_MISS);
    assert_int_equal(residency_exists(ssm, rig_key(1)), RESIDENCY_OK);
    assert_int_equal(residency_exists(kv, rig_key(2)), RESIDENCY_OK);
    residency_client_free(kv);
    residency_client_free(ssm);
}

static void what_nobody_touched_for_its_ttl_goes(void **state)
{
    (void)state;
    rig.options.ttl_s[RESIDENCY_KV] = 10;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 2), *b = rig_join(&rig, 2);
    uint64_t offset;
    for (uint64_t i = 1; i <= 4; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    rig_pass_s(6);
    assert_int_equal(rig_get(a, 2), 2);
    assert_int_equal(residency_get(b, rig_key(4), &offset), RESIDENCY_OK);
    rig_pass_s(6);
    assert_int_equal(rig_get(a, 1), 0);
    residency_sweep(rig.cache);
    struct residency_arena_stats stats = rig_stats(&rig);
    assert_int_equal(stats.resident + stats.on_disk, 2); /* 2, and 4 which is pinned */
    assert_int_equal(stats.drops, 2);
    residency_client_free(a);
    residency_client_free(b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_reserved_and_not_committed_is_a_miss),
        TEST(the_old_blob_stays_readable_until_commit),
        TEST(a_pinned_version_keeps_its_slot_after_it_was_overwritten),
        TEST(an_arena_of_one_slot_takes_overwrites),
        TEST(with_every_slot_reserved_or_pinned_the_answer_is_an_error_at_once),
        TEST(two_clients_reserve_one_key_and_the_last_commit_wins),
        TEST(a_second_alloc_of_a_reserved_key_gives_the_same_slot),
        TEST(commit_without_a_reservation_asks_whether_the_key_is_resident),
        TEST(remove_gives_back_the_clients_own_reservation_and_no_others),
        TEST(a_removed_key_is_forgotten_at_once_and_its_slot_with_the_last_pin),
        TEST(a_client_that_ends_gives_back_all_it_had),
        TEST(a_record_that_is_not_what_was_written_is_a_counted_miss),
        TEST(a_client_pins_a_quarter_of_the_slots),
        TEST(a_client_reserves_a_quarter_of_the_slots),
        TEST(release_drops_the_oldest_pin_of_a_key),
        TEST(ownership_is_of_a_blob_and_not_of_a_key),
        TEST(many_more_blobs_than_slots_come_back),
        TEST(a_clean_copy_is_not_written_again),
        TEST(the_least_recently_used_goes_first),
        TEST(spills_are_ahead_of_need),
        TEST(a_read_of_a_blob_that_is_being_spilled_keeps_it),
        TEST(a_prefetched_key_needs_no_wait),
        TEST(a_disk_that_takes_nothing_refuses_the_alloc_and_keeps_what_is_resident),
        TEST(a_record_that_cannot_be_read_is_an_error_and_stays),
        TEST(under_a_cap_the_coldest_go_first),
        TEST(a_cap_takes_the_coldest_of_all_arenas),
        TEST(what_nobody_touched_for_its_ttl_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
