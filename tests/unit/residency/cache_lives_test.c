#include "cache_fixture.h"

#include <errno.h>

/* ---- lives of arenas ---- */

static void an_idle_arena_gives_its_memory_back_and_keeps_its_blobs(void **state)
{
    (void)state;
    rig.options.arena_idle_s = 10;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 8);
    for (uint64_t i = 1; i <= 5; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    rig_pass_s(20);
    residency_sweep(rig.cache);
    assert_int_equal(rig_stats(&rig).slots, 8); /* somebody is connected */
    residency_client_free(a);
    residency_sweep(rig.cache);
    assert_int_equal(rig_stats(&rig).slots, 8);
    rig_pass_s(10);
    residency_sweep(rig.cache);
    assert_int_equal(rig_stats(&rig).slots, 0);
    assert_int_equal(rig_stats(&rig).on_disk, 5);
    assert_int_equal(residency_used(&rig.ledger), 0);
    a = rig_join(&rig, 2);
    for (uint64_t i = 1; i <= 5; i++)
        assert_int_equal(rig_get(a, i), i);
    residency_client_free(a);
}

static void an_arena_stays_while_the_disk_does_not_take_its_blobs(void **state)
{
    (void)state;
    rig.options.arena_idle_s = 10;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 8);
    for (uint64_t i = 1; i <= 5; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    residency_client_free(a);
    rig_pass_s(10);
    fake_swap_control(rig.swap)->write_errno = EIO;
    residency_sweep(rig.cache);
    assert_int_equal(rig_stats(&rig).slots, 8);
    a = rig_join(&rig, 8);
    for (uint64_t i = 1; i <= 5; i++)
        assert_int_equal(rig_get(a, i), i);
    residency_client_free(a);
}

static void later_clients_join_whatever_size_they_ask_for(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 8), *b = rig_join(&rig, 80);
    assert_int_equal(residency_memory(b).len_bytes, 8 * RIG_BLOB);
    assert_ptr_equal(residency_memory(a).base, residency_memory(b).base);
    assert_int_equal(residency_used(&rig.ledger), 8 * RIG_BLOB);
    residency_client_free(a);
    residency_client_free(b);
}

static void refusals_say_why(void **state)
{
    (void)state;
    rig_start(&rig);
    static const struct {
        unsigned kind;
        uint64_t arena_bytes, blob_bytes;
        int code;
        const char *words;
    } cases[] = {
        { 2, 8192, 4096, PENSTOCK_EINVAL, "unknown arena kind 2" },
        { 0, 0, 4096, PENSTOCK_EINVAL, "an arena of 0 bytes: it must have 1 to 2^42" },
        { 0, (UINT64_C(1) << 42) + 4096, 4096, PENSTOCK_EINVAL,
          "an arena of 4398046515200 bytes: it must have 1 to 2^42" },
        { 0, 8192, 4095, PENSTOCK_EINVAL, "blobs of 4095 bytes: paging needs a multiple of 4096" },
        { 0, 12288, 8192, PENSTOCK_EINVAL, "an arena of 12288 bytes does not hold whole blobs of 8192" },
        { 1, UINT64_C(2) << 30, 4096, PENSTOCK_ELIMIT,
          "the kv arena of 4096-byte blobs needs 2.00 GiB of memory, and of the 1.00 GiB that --max-memory allows 0 B "
          "are in use" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct residency_client *client;
        struct penstock_error error;
        assert_int_equal(residency_join(rig.cache, (enum residency_kind)cases[i].kind, cases[i].arena_bytes,
                                        cases[i].blob_bytes, &client, &error),
                         cases[i].code);
        assert_string_equal(error.message, cases[i].words);
    }
    assert_int_equal(residency_stats(rig.cache, NULL, 0), 0);
    assert_int_equal(residency_used(&rig.ledger), 0);
}

static void paging_without_a_swap_directory_is_refused(void **state)
{
    (void)state;
    rig.options.swap = NULL;
    rig_start(&rig);
    struct residency_client *client;
    struct penstock_error error;
    assert_int_equal(residency_join(rig.cache, RESIDENCY_KV, 8192, 4096, &client, &error), PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "--swap-dir"));
    assert_int_equal(residency_join(rig.cache, RESIDENCY_KV, 8192, 0, &client, &error), 0);
    residency_client_free(client);
}

static void a_raw_arena_is_zeroed_and_ends_with_its_client(void **state)
{
    (void)state;
    rig_start(&rig);
    struct residency_client *client;
    uint64_t offset;
    assert_int_equal(residency_join(rig.cache, RESIDENCY_SSM, 10001, 0, &client, NULL), 0);
    struct residency_memory memory = residency_memory(client);
    assert_int_equal(memory.len_bytes, 10001);
    for (size_t i = 0; i < memory.len_bytes; i++)
        assert_int_equal(((uint8_t *)memory.base)[i], 0);
    assert_int_equal(residency_alloc(client, rig_key(1), &offset), RESIDENCY_ERR);
    assert_int_equal(residency_get(client, rig_key(1), &offset), RESIDENCY_MISS);
    assert_int_equal(residency_used(&rig.ledger), 10001);
    assert_int_equal(residency_stats(rig.cache, NULL, 0), 0);
    residency_client_free(client);
    assert_int_equal(residency_used(&rig.ledger), 0);
}

static int made, unmade;

static int make_registration(void *context, const struct residency_memory *memory, void **registration,
                             struct penstock_error *error)
{
    (void)error;
    assert_non_null(memory->base);
    made++;
    *registration = context;
    return *(int *)context;
}

static void unmake_registration(void *registration)
{
    assert_non_null(registration);
    unmade++;
}

static void memory_is_registered_once_and_unregistered_before_it_goes(void **state)
{
    (void)state;
    rig.options.unregister = unmake_registration;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 8), *b = rig_join(&rig, 8);
    int good = 0, bad = PENSTOCK_ENOMEM;
    void *registration = NULL;
    made = unmade = 0;
    assert_int_equal(residency_registration(a, make_registration, &bad, &registration, NULL), PENSTOCK_ENOMEM);
    assert_int_equal(residency_registration(a, make_registration, &good, &registration, NULL), 0);
    assert_int_equal(residency_registration(b, make_registration, &bad, &registration, NULL), 0);
    assert_ptr_equal(registration, &good);
    assert_int_equal(made, 2);
    residency_client_free(a);
    residency_client_free(b);
    assert_int_equal(unmade, 0);
    residency_cache_free(rig.cache);
    assert_int_equal(unmade, 1);
    rig_start(&rig);
}

/* ---- restarts ---- */

static void kept_records_are_found_after_a_kill(void **state)
{
    (void)state;
    rig.options.keep = true;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 2);
    residency_own(a, true);
    assert_int_equal(rig_put(a, 100, 1), RESIDENCY_OK);
    residency_own(a, false);
    for (uint64_t i = 1; i <= 6; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    assert_int_equal(residency_remove(a, rig_key(3)), RESIDENCY_OK);
    struct residency_swap *killed = fake_swap_after_kill(rig.swap);
    residency_client_free(a);
    rig_restart(&rig, killed);
    assert_int_equal(rig_stats(&rig).on_disk, 3);
    a = rig_join(&rig, 2);
    assert_int_equal(rig_get(a, 1), 1);
    assert_int_equal(rig_get(a, 2), 2);
    assert_int_equal(rig_get(a, 3), 0);
    assert_int_equal(rig_get(a, 4), 4);
    assert_int_equal(rig_get(a, 5), 0); /* was in memory alone */
    assert_int_equal(rig_get(a, 100), 0);
    residency_client_free(a);
}

static void a_planned_end_spills_everything_first(void **state)
{
    (void)state;
    rig.options.keep = true;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 64);
    for (uint64_t i = 1; i <= 200; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    residency_client_free(a);
    residency_spill_all(rig.cache);
    rig_restart(&rig, fake_swap_after_kill(rig.swap));
    a = rig_join(&rig, 64);
    for (uint64_t i = 1; i <= 200; i++)
        assert_int_equal(rig_get(a, i), i);
    residency_client_free(a);
}

static void an_overwrite_that_was_answered_leaves_no_older_blob_on_a_kept_disk(void **state)
{
    (void)state;
    rig.options.keep = true;
    rig_start(&rig);
    struct residency_client *a = rig_join(&rig, 64);
    for (uint64_t i = 1; i <= 62; i++)
        assert_int_equal(rig_put(a, i, i), RESIDENCY_OK);
    assert_true(fake_swap_in_flight(rig.swap) > 0); /* 1 is being written */
    assert_int_equal(rig_put(a, 1, 1000), RESIDENCY_OK);
    assert_int_equal(fake_swap_kept_of(rig.swap, rig_key(1)), 0);
    assert_int_equal(residency_remove(a, rig_key(2)), RESIDENCY_OK);
    assert_int_equal(fake_swap_kept_of(rig.swap, rig_key(2)), 0);
    rig_land_all(&rig);
    assert_int_equal(fake_swap_kept_of(rig.swap, rig_key(1)), 0);
    assert_int_equal(rig_get(a, 1), 1000);
    residency_client_free(a);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(an_idle_arena_gives_its_memory_back_and_keeps_its_blobs),
        TEST(an_arena_stays_while_the_disk_does_not_take_its_blobs),
        TEST(later_clients_join_whatever_size_they_ask_for),
        TEST(refusals_say_why),
        TEST(paging_without_a_swap_directory_is_refused),
        TEST(a_raw_arena_is_zeroed_and_ends_with_its_client),
        TEST(memory_is_registered_once_and_unregistered_before_it_goes),
        TEST(kept_records_are_found_after_a_kill),
        TEST(a_planned_end_spills_everything_first),
        TEST(an_overwrite_that_was_answered_leaves_no_older_blob_on_a_kept_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
