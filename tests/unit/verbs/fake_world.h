/* A world over the fake libibverbs, reset for each test. */
#ifndef PENSTOCK_TEST_FAKE_WORLD_H
#define PENSTOCK_TEST_FAKE_WORLD_H

#include "../test.h"

#include "fake_ibverbs.h"
#include "verbs/ibverbs.h"

extern struct fake_ibverbs *fake;
extern struct verbs_world *world; /* of the test; NULL where it opens its own */
extern struct penstock_error error;
extern const char *fake_library, *too_old_library;

/* Takes main's arguments: the libraries' paths. */
int fake_world_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n);

/* Setup: one device with one port, GIDs and limits as NICs have. Teardown: looks for what was left alive. */
int fake_world_setup(void **state);
int fake_world_teardown(void **state);

/* The world alone, for tests that open it themselves. */
int fake_world_reset(void **state);

/* The nth call of that name from now on fails, once and for all. */
void fake_fail(const char *call, int sys_errno, enum fake_failure how);

struct verbs_device *fake_device(void);
struct verbs_pd *fake_pd(struct verbs_device *device);

#define FAKE_TEST(name) cmocka_unit_test_setup_teardown(name, fake_world_setup, fake_world_teardown)
#define assert_words(words) /* in the error's message */                                                               \
    do {                                                                                                               \
        if (!strstr(error.message, words))                                                                             \
            fail_msg("\"%s\" is not in \"%s\"", words, error.message);                                                 \
    } while (0)

#endif
