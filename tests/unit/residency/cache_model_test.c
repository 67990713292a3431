#include "../test.h"

#include <stdlib.h>

#include "cache_model.h"

static uint64_t random_choice(void *user, uint64_t below, bool *over)
{
    *over = false;
    return test_random(user) % below;
}

/* PENSTOCK_MODEL_OPERATIONS for more than a check before a commit has time for. */
static void a_million_random_operations_answer_as_the_reference_does(void **state)
{
    (void)state;
    const char *text = getenv("PENSTOCK_MODEL_OPERATIONS");
    uint64_t left = text ? strtoull(text, NULL, 10) : 1000000;
    for (uint64_t seed = 1; left > 0; seed++) {
        uint64_t random = seed;
        left -= cache_model_run(random_choice, &random, left < 20000 ? left : 20000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_random_operations_answer_as_the_reference_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
