#include "fake_world.h"

#include <errno.h>

static int open_world(const char *library)
{
    const struct verbs_ib_places places = { .library = library, .sysfs = "/nowhere", .nodes = "/nowhere" };
    return verbs_ib_world_open(&places, &world, &error);
}

static void a_library_that_is_not_there_is_said_how_to_install(void **state)
{
    (void)state;
    assert_int_equal(open_world("/nowhere/libibverbs.so.1"), PENSTOCK_EUNSUPPORTED);
    assert_words("apt install libibverbs1 ibverbs-providers");
    assert_words("/nowhere/libibverbs.so.1");
}

static void a_library_that_lacks_a_function_is_too_old(void **state)
{
    (void)state;
    assert_int_equal(open_world(too_old_library), PENSTOCK_EUNSUPPORTED);
    assert_words("too old");
    assert_words("ibv_free_device_list");
}

static void a_kernel_without_rdma_is_no_world(void **state)
{
    (void)state;
    fake_fail("ibv_get_device_list", ENOSYS, 0);
    assert_int_equal(open_world(fake_library), PENSTOCK_EUNSUPPORTED);
    assert_words("modprobe ib_uverbs");
    assert_words("/dev/infiniband");
    assert_int_equal(error.code, PENSTOCK_EUNSUPPORTED);
    assert_int_equal(error.sys_errno, ENOSYS);
}

static void no_memory_is_no_lack_of_support(void **state)
{
    (void)state;
    fake_fail("ibv_get_device_list", ENOMEM, 0);
    assert_int_equal(open_world(fake_library), PENSTOCK_ENOMEM);
}

static void a_world_without_devices_has_no_ports(void **state)
{
    (void)state;
    fake->n_devices = 0;
    assert_int_equal(open_world(fake_library), 0);
    struct verbs_ports ports;
    assert_int_equal(verbs_ports(world, &ports, &error), 0);
    assert_int_equal(ports.n, 0);
    verbs_ports_fini(&ports);
}

/* On any machine: there is a world, or a reason in words. */
static void the_usual_places_give_a_world_or_a_reason(void **state)
{
    (void)state;
    struct verbs_world *usual = NULL;
    int code = verbs_world_open(&usual, &error);
    assert_true(code == 0 || code == PENSTOCK_EUNSUPPORTED);
    assert_true(code == 0 ? usual != NULL : error.message[0] != 0);
    verbs_world_free(usual);
}

static void every_way_to_return_an_errno_is_understood(void **state)
{
    (void)state;
    assert_int_equal(verbs_ib_errno(0), 0);
    assert_int_equal(verbs_ib_errno(EINVAL), EINVAL);
    assert_int_equal(verbs_ib_errno(-EINVAL), EINVAL);
    errno = ENOMEM;
    assert_int_equal(verbs_ib_errno(-1), ENOMEM);
    assert_int_equal(verbs_ib_null_errno(), ENOMEM);
    errno = 0;
    assert_int_equal(verbs_ib_errno(-1), EIO);
    assert_int_equal(verbs_ib_null_errno(), EIO);
}

#define RESET_TEST(name) cmocka_unit_test_setup_teardown(name, fake_world_reset, fake_world_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        RESET_TEST(a_library_that_is_not_there_is_said_how_to_install),
        RESET_TEST(a_library_that_lacks_a_function_is_too_old),
        RESET_TEST(a_kernel_without_rdma_is_no_world),
        RESET_TEST(no_memory_is_no_lack_of_support),
        RESET_TEST(a_world_without_devices_has_no_ports),
        RESET_TEST(the_usual_places_give_a_world_or_a_reason),
        RESET_TEST(every_way_to_return_an_errno_is_understood),
    };
    return fake_world_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
