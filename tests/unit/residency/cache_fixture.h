/* A rig for each test of a cache, and with it the tests of a file. */
#ifndef PENSTOCK_TEST_CACHE_FIXTURE_H
#define PENSTOCK_TEST_CACHE_FIXTURE_H

#include "../test.h"

#include "cache_rig.h"

#define ERROR UINT64_MAX

static struct rig rig;

static inline int set_up(void **state)
{
    (void)state;
    rig_init(&rig);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    rig_stop(&rig);
    return 0;
}

#endif
