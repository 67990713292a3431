#include "fake_world.h"

#include <dlfcn.h>
#include <stdio.h>

struct fake_ibverbs *fake;
struct verbs_world *world;
struct penstock_error error;
const char *fake_library, *too_old_library;

int fake_world_reset(void **state)
{
    (void)state;
    error = (struct penstock_error){ 0 };
    world = NULL;
    *fake = (struct fake_ibverbs){
        .n_devices = 1,
        .attr = { .phys_port_cnt = 1,
                  .max_mr_size = UINT64_C(1) << 40,
                  .max_mr = 1000,
                  .max_cqe = 5000,
                  .max_qp = 100,
                  .max_qp_wr = 4096,
                  .max_sge = 30,
                  .max_sge_rd = 16,
                  .max_qp_rd_atom = 16,
                  .max_qp_init_rd_atom = 16 },
        .port = { .state = IBV_PORT_ACTIVE,
                  .active_mtu = IBV_MTU_4096,
                  .max_msg_sz = 1u << 30,
                  .gid_tbl_len = 4,
                  .active_speed = 64,
                  .active_width = 2,
                  .link_layer = IBV_LINK_LAYER_ETHERNET },
        .gids = { { .raw = { 0xFE, 0x80, [15] = 1 } },
                  { .raw = { [10] = 0xFF, 0xFF, 10, 0, 0, 1 } },
                  { .raw = { 0 } },
                  { .raw = { [10] = 0xFF, 0xFF, 10, 0, 0, 1 } } },
        .gid_types = { IBV_GID_TYPE_ROCE_V2, IBV_GID_TYPE_ROCE_V1, 0, IBV_GID_TYPE_ROCE_V2 },
    };
    return 0;
}

int fake_world_setup(void **state)
{
    (void)fake_world_reset(state);
    const struct verbs_ib_places places = { .library = fake_library, .sysfs = "/nowhere", .nodes = "/dev/infiniband" };
    return verbs_ib_world_open(&places, &world, &error);
}

int fake_world_teardown(void **state)
{
    (void)state;
    verbs_world_free(world);
    int left = fake->contexts + fake->pds + fake->mrs + fake->channels + fake->cqs + fake->qps + fake->lists +
               fake->unacknowledged + fake->async_unacknowledged;
    return left == 0 ? 0 : -1;
}

void fake_fail(const char *call, int sys_errno, enum fake_failure how)
{
    fake->fail = call;
    fake->fail_errno = sys_errno;
    fake->fail_how = how;
}

struct verbs_device *fake_device(void)
{
    struct verbs_device *device;
    if (verbs_device_open(world, "fake0", &device, &error) != 0)
        fail_msg("%s", error.message);
    return device;
}

struct verbs_pd *fake_pd(struct verbs_device *device)
{
    struct verbs_pd *pd;
    if (verbs_pd_new(device, &pd, &error) != 0)
        fail_msg("%s", error.message);
    return pd;
}

int fake_world_main(int argc, char **argv, const struct CMUnitTest *tests, size_t n)
{
    void *handle = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_NODELETE) : NULL;
    fake = handle ? (struct fake_ibverbs *)dlsym(handle, "fake_ibverbs") : NULL;
    if (!fake) {
        fprintf(stderr, "usage: %s FAKE_LIBRARY TOO_OLD_LIBRARY\n", argv[0]);
        return 2;
    }
    fake_library = argv[1];
    too_old_library = argv[2];
    int failed = _cmocka_run_group_tests(argv[0], tests, n, NULL, NULL);
    (void)dlclose(handle);
    return failed;
}
