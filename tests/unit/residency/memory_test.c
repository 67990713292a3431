/* Every allocation of a cache's life is made to fail, one after the other, and then all from there on: linked with
 * --wrap. What has been answered with OK stays true. */
#include "../test.h"

#include <stdlib.h>

#include "cache_rig.h"

#define KEYS 40
#define SLOTS 8

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

static long until_failure = -1; /* negative: none fails */
static bool lasting;            /* all that follow the first fail as well */
static size_t failures;

static bool fails(void)
{
    if (until_failure < 0 || until_failure-- > 0)
        return false;
    failures++;
    if (lasting)
        until_failure = 0;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t n)
{
    return fails() ? NULL : __real_realloc(old, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __real_aligned_alloc(align, n);
}

static struct rig rig;
static uint64_t committed[KEYS]; /* what was last put with OK; 0: nothing, or it was removed */

/* What was answered with OK is there; where memory was missing the answer may be an error, and never other bytes. */
static void look(struct residency_client *client, uint64_t key)
{
    size_t before = failures;
    uint64_t got = rig_get(client, key);
    if (got != UINT64_MAX || failures == before)
        assert_int_equal(got, committed[key]);
}

static void put(struct residency_client *client, uint64_t key, uint64_t what)
{
    if (rig_put(client, key, what) == RESIDENCY_OK)
        committed[key] = what;
}

static void put_by_copy(struct residency_client *client, uint64_t key, uint64_t what)
{
    struct residency_copy copy;
    if (residency_put_begin(client, rig_key(key), &copy) != RESIDENCY_OK)
        return;
    rig_fill(copy.blob, what);
    if (residency_put_commit(client, &copy) == RESIDENCY_OK)
        committed[key] = what;
}

static void fetch(struct residency_client *client, uint64_t key)
{
    struct residency_copy copy;
    (void)residency_prefetch(client, rig_key(key));
    if (residency_fetch_begin(client, rig_key(key), true, &copy) != RESIDENCY_OK)
        return;
    assert_int_equal(rig_read(copy.blob), committed[key]);
    residency_fetch_end(client, &copy);
}

/* More keys than slots, in every way there is; two of them owned. */
static void work(struct residency_client *client)
{
    for (uint64_t key = 0; key < KEYS - 2; key++)
        put(client, key, 100 + key);
    for (uint64_t key = 0; key < KEYS; key += 3)
        put_by_copy(client, key, 200 + key);
    residency_own(client, true);
    for (uint64_t key = KEYS - 2; key < KEYS; key++)
        put(client, key, 300 + key);
    residency_own(client, false);
    for (uint64_t key = 0; key < KEYS; key += 5)
        if (residency_remove(client, rig_key(key)) == RESIDENCY_OK)
            committed[key] = 0;
    for (uint64_t key = 0; key < KEYS; key++)
        look(client, key);
    uint64_t offset;
    for (uint64_t key = 1; key < 4; key++)
        if (residency_mget(client, rig_key(key), &offset) == RESIDENCY_OK)
            assert_int_equal(rig_read(rig_blob(client, offset)), committed[key]);
    for (uint64_t key = 1; key < 4; key++)
        residency_mget_release(client, rig_key(key));
    for (uint64_t key = 0; key < KEYS; key++)
        fetch(client, key);
    rig_pass_s(10);
    residency_sweep(rig.cache);
}

/* Memory is back: nothing that was answered with OK is gone. */
static void look_at_all(struct residency_client *client)
{
    until_failure = -1;
    for (uint64_t key = 0; key < KEYS; key++)
        look(client, key);
    assert_int_equal(rig_put(client, 1, 7), RESIDENCY_OK);
    assert_int_equal(rig_get(client, 1), 7);
}

static void live(void)
{
    struct residency_client *a, *b;
    struct penstock_error error = { 0 };
    memset(committed, 0, sizeof committed);
    int code = residency_cache_new(&rig.options, &rig.cache, &error);
    if (code) {
        assert_int_equal(code, PENSTOCK_ENOMEM);
        rig.cache = NULL;
        return;
    }
    code = residency_join(rig.cache, RESIDENCY_KV, SLOTS * RIG_BLOB, RIG_BLOB, &a, &error);
    if (code == 0) {
        work(a);
        code = residency_join(rig.cache, RESIDENCY_KV, SLOTS * RIG_BLOB, RIG_BLOB, &b, &error);
        if (code == 0)
            residency_client_free(b);
        look_at_all(a);
        residency_client_free(a);
    }
    if (code) {
        assert_int_equal(code, PENSTOCK_ENOMEM);
        assert_int_not_equal(error.message[0], 0);
    }
    rig_land_all(&rig);
}

static void fail_each(bool all_that_follow)
{
    long n = 0;
    do {
        rig_init(&rig);
        lasting = all_that_follow;
        failures = 0;
        until_failure = n++;
        live();
        until_failure = -1;
        rig_stop(&rig);
    } while (failures > 0);
    assert_true(n > 20);
}

static void one_allocation_that_fails_loses_nothing(void **state)
{
    (void)state;
    fail_each(false);
}

static void allocations_that_fail_from_some_point_on_lose_nothing(void **state)
{
    (void)state;
    fail_each(true);
}

int main(void)
{
    fake_swap_realloc = __real_realloc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_allocation_that_fails_loses_nothing),
        cmocka_unit_test(allocations_that_fail_from_some_point_on_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
