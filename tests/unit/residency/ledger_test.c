#include "../test.h"

#include <stdio.h>

#include "residency/ledger.h"

static void what_fits_is_taken_and_given_back(void **state)
{
    (void)state;
    struct residency_ledger ledger;
    struct residency_reservation a = { 0 }, b = { 0 };
    struct penstock_error error;
    residency_ledger_init(&ledger, 100);
    assert_int_equal(residency_reserve(&ledger, &a, 60, "a", &error), 0);
    assert_int_equal(residency_reserve(&ledger, &b, 40, "b", &error), 0);
    assert_int_equal(residency_used(&ledger), 100);
    residency_release(&a);
    assert_int_equal(residency_used(&ledger), 40);
    residency_release(&b);
    assert_int_equal(residency_used(&ledger), 0);
    residency_ledger_fini(&ledger);
}

static void what_does_not_fit_takes_nothing(void **state)
{
    (void)state;
    struct residency_ledger ledger;
    struct residency_reservation a = { 0 }, b = { 0 };
    struct penstock_error error;
    residency_ledger_init(&ledger, 100);
    assert_int_equal(residency_reserve(&ledger, &a, 60, "a", &error), 0);
    assert_int_equal(residency_reserve(&ledger, &b, 41, "b", &error), PENSTOCK_ELIMIT);
    assert_int_equal(residency_reserve(&ledger, &b, UINT64_MAX, "b", &error), PENSTOCK_ELIMIT);
    assert_int_equal(residency_used(&ledger), 60);
    residency_release(&b); /* was never taken */
    assert_int_equal(residency_used(&ledger), 60);
    residency_release(&a);
    residency_ledger_fini(&ledger);
}

static void giving_back_twice_counts_once(void **state)
{
    (void)state;
    struct residency_ledger ledger;
    struct residency_reservation a = { 0 }, b = { 0 };
    struct penstock_error error;
    residency_ledger_init(&ledger, 100);
    assert_int_equal(residency_reserve(&ledger, &a, 60, "a", &error), 0);
    assert_int_equal(residency_reserve(&ledger, &b, 30, "b", &error), 0);
    residency_release(&a);
    residency_release(&a);
    assert_int_equal(residency_used(&ledger), 30);
    residency_release(&b);
    residency_ledger_fini(&ledger);
}

static void a_refusal_says_what_is_asked_for_and_who_has_the_rest(void **state)
{
    (void)state;
    struct residency_ledger ledger;
    struct residency_reservation a = { 0 }, b = { 0 }, c = { 0 };
    struct penstock_error error;
    residency_ledger_init(&ledger, UINT64_C(8) << 30);
    assert_int_equal(residency_reserve(&ledger, &a, UINT64_C(3) << 30, "llama", &error), 0);
    assert_int_equal(residency_reserve(&ledger, &b, UINT64_C(2560) << 20, "qwen", &error), 0);
    assert_int_equal(residency_reserve(&ledger, &c, UINT64_C(4) << 30, "mistral", &error), PENSTOCK_ELIMIT);
    assert_string_equal(error.message, "mistral needs 4.00 GiB of memory, and of the 8.00 GiB that --max-memory allows "
                                       "5.50 GiB are in use (llama 3.00 GiB, qwen 2.50 GiB)");
    residency_release(&a);
    residency_release(&b);
    assert_int_equal(residency_reserve(&ledger, &c, UINT64_C(9) << 30, "mistral", &error), PENSTOCK_ELIMIT);
    assert_string_equal(error.message, "mistral needs 9.00 GiB of memory, and of the 8.00 GiB that --max-memory allows "
                                       "0 B are in use");
    residency_ledger_fini(&ledger);
}

static void a_refusal_names_as_many_users_as_fit(void **state)
{
    (void)state;
    struct residency_ledger ledger;
    struct residency_reservation held[50] = { 0 }, more = { 0 };
    struct penstock_error error;
    residency_ledger_init(&ledger, 50);
    for (size_t i = 0; i < 50; i++) {
        char what[100];
        snprintf(what, sizeof what, "a-model-with-a-name-that-is-much-longer-than-it-would-have-to-be-%zu", i);
        assert_int_equal(residency_reserve(&ledger, &held[i], 1, what, &error), 0);
    }
    assert_int_equal(residency_reserve(&ledger, &more, 1, "one more", &error), PENSTOCK_ELIMIT);
    assert_non_null(strstr(error.message, ", ...)"));
    for (size_t i = 0; i < 50; i++)
        residency_release(&held[i]);
    residency_ledger_fini(&ledger);
}

static void without_a_limit_it_only_counts(void **state)
{
    (void)state;
    struct residency_ledger ledger;
    struct residency_reservation a = { 0 }, b = { 0 };
    struct penstock_error error;
    residency_ledger_init(&ledger, 0);
    assert_int_equal(residency_reserve(&ledger, &a, UINT64_MAX - 1, "a", &error), 0);
    assert_int_equal(residency_reserve(&ledger, &b, 2, "b", &error), PENSTOCK_ELIMIT); /* would wrap */
    assert_int_equal(residency_used(&ledger), UINT64_MAX - 1);
    residency_release(&a);
    residency_ledger_fini(&ledger);
}

/* ---- from several threads ---- */

static void *take_often(void *argument)
{
    struct residency_ledger *ledger = argument;
    for (int i = 0; i < 2000; i++) {
        struct residency_reservation r = { 0 };
        if (residency_reserve(ledger, &r, 40, "some", NULL) == 0 && residency_used(ledger) > 100)
            return ledger;
        residency_release(&r);
    }
    return NULL;
}

static void threads_together_stay_below_the_limit(void **state)
{
    (void)state;
    struct residency_ledger ledger;
    pthread_t threads[4];
    residency_ledger_init(&ledger, 100);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_often, &ledger), 0);
    for (size_t i = 0; i < 4; i++) {
        void *above;
        assert_int_equal(pthread_join(threads[i], &above), 0);
        assert_null(above);
    }
    assert_int_equal(residency_used(&ledger), 0);
    residency_ledger_fini(&ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_taken_and_given_back),
        cmocka_unit_test(what_does_not_fit_takes_nothing),
        cmocka_unit_test(giving_back_twice_counts_once),
        cmocka_unit_test(a_refusal_says_what_is_asked_for_and_who_has_the_rest),
        cmocka_unit_test(a_refusal_names_as_many_users_as_fit),
        cmocka_unit_test(without_a_limit_it_only_counts),
        cmocka_unit_test(threads_together_stay_below_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
