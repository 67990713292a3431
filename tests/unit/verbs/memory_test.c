#include "fake_world.h"

#include <errno.h>
#include <sys/resource.h>

#define MIB ((uint64_t)1 << 20)

static uint8_t memory[4096];
static struct verbs_device *device;
static struct verbs_pd *pd;

static int setup(void **state)
{
    int failed = fake_world_setup(state);
    if (failed)
        return failed;
    device = fake_device();
    pd = fake_pd(device);
    return 0;
}

static int teardown(void **state)
{
    verbs_pd_free(pd);
    verbs_device_close(device);
    return fake_world_teardown(state);
}

static int register_it(uint64_t len_bytes, unsigned access)
{
    struct verbs_mr *mr = NULL;
    int code = verbs_mr_new(pd, memory, len_bytes, access, &mr, &error);
    if (code == 0)
        verbs_mr_free(mr);
    return code;
}

static void a_region_counts_from_its_own_address(void **state)
{
    (void)state;
    struct verbs_mr *mr;
    assert_int_equal(verbs_mr_new(pd, memory, sizeof memory, VERBS_LOCAL_WRITE, &mr, &error), 0);
    assert_ptr_equal(mr->pd, pd);
    assert_int_equal(mr->base, (uintptr_t)memory);
    assert_int_equal(mr->len_bytes, sizeof memory);
    assert_int_equal(mr->lkey, 0x11);
    assert_int_equal(mr->rkey, 0x22);
    verbs_mr_free(mr);
}

static void access_is_what_was_asked_for_and_no_more(void **state)
{
    (void)state;
    const struct {
        unsigned wanted;
        int access;
    } cases[] = {
        { VERBS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE },
        { VERBS_REMOTE_READ, IBV_ACCESS_REMOTE_READ },
        { VERBS_REMOTE_READ | VERBS_REMOTE_WRITE | VERBS_LOCAL_WRITE,
          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(register_it(1, cases[i].wanted), 0);
        assert_int_equal(fake->access & ~(int)IBV_ACCESS_RELAXED_ORDERING, cases[i].access);
    }
}

static void order_is_relaxed_but_for_what_the_other_side_writes(void **state)
{
    (void)state;
    assert_int_equal(register_it(1, VERBS_LOCAL_WRITE), 0);
    assert_true(fake->access & (int)IBV_ACCESS_RELAXED_ORDERING);
    assert_int_equal(fake->iova, (uintptr_t)memory);
    assert_int_equal(register_it(1, VERBS_REMOTE_READ), 0);
    assert_true(fake->access & (int)IBV_ACCESS_RELAXED_ORDERING);
    assert_int_equal(register_it(1, VERBS_REMOTE_WRITE | VERBS_LOCAL_WRITE), 0);
    assert_false(fake->access & (int)IBV_ACCESS_RELAXED_ORDERING);
    ((struct verbs_ib_world *)(void *)world)->api.reg_mr_iova2 = NULL;
    assert_int_equal(register_it(1, VERBS_LOCAL_WRITE), 0);
    assert_int_equal(fake->access, IBV_ACCESS_LOCAL_WRITE);
}

static void more_than_the_device_registers_is_a_limit(void **state)
{
    (void)state;
    fake->attr.max_mr_size = MIB;
    struct verbs_device *small = fake_device();
    struct verbs_pd *small_pd = fake_pd(small);
    struct verbs_mr *mr;
    assert_int_equal(verbs_mr_new(small_pd, memory, MIB + 1, VERBS_LOCAL_WRITE, &mr, &error), PENSTOCK_ELIMIT);
    assert_words("ibv_reg_mr of 1048577 bytes: the device registers at most 1048576");
    verbs_pd_free(small_pd);
    verbs_device_close(small);
}

static void the_memlock_limit_is_named_with_what_raises_it(void **state)
{
    (void)state;
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &old), 0);
    const struct rlimit small = { 64 * 1024, old.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &small), 0);
    fake_fail("ibv_reg_mr", ENOMEM, 0);
    assert_int_equal(register_it(MIB, VERBS_LOCAL_WRITE), PENSTOCK_ELIMIT);
    assert_int_equal(error.code, PENSTOCK_ELIMIT);
    assert_int_equal(error.sys_errno, ENOMEM);
    assert_words("fake0: the memlock limit (ulimit -l) is 64 KiB");
    assert_words("LimitMEMLOCK=infinity");
    assert_words("ibv_reg_mr of 1048576 bytes");
    fake_fail("ibv_reg_mr", EPERM, 0);
    assert_int_equal(register_it(MIB, VERBS_LOCAL_WRITE), PENSTOCK_ELIMIT);
    assert_words("ulimit -l");
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
}

static void memory_that_cannot_be_registered_is_not_supported(void **state)
{
    (void)state;
    static const int errnos[] = { EFAULT, EOPNOTSUPP, EPROTONOSUPPORT };
    for (size_t i = 0; i < sizeof errnos / sizeof *errnos; i++) {
        fake_fail("ibv_reg_mr", errnos[i], 0);
        assert_int_equal(register_it(MIB, VERBS_REMOTE_READ), PENSTOCK_EUNSUPPORTED);
        assert_int_equal(error.code, PENSTOCK_EUNSUPPORTED);
        assert_int_equal(error.sys_errno, errnos[i]);
        if (errnos[i] == EFAULT)
            assert_words("Linux 6.2");
    }
    fake_fail("ibv_reg_mr", EINVAL, 0);
    assert_int_equal(register_it(MIB, VERBS_REMOTE_READ), PENSTOCK_ESYS);
}

static void a_dmabuf_counts_from_nought(void **state)
{
    (void)state;
    struct verbs_mr *mr;
    assert_int_equal(verbs_mr_dmabuf_new(pd, 7, 8192, 4096, VERBS_LOCAL_WRITE, &mr, &error), 0);
    assert_int_equal(mr->base, 0);
    assert_int_equal(mr->len_bytes, 4096);
    assert_int_equal(fake->dmabuf_fd, 7);
    assert_int_equal(fake->offset, 8192);
    assert_int_equal(fake->iova, 0);
    verbs_mr_free(mr);
    fake_fail("ibv_reg_dmabuf_mr", EOPNOTSUPP, 0);
    assert_int_equal(verbs_mr_dmabuf_new(pd, 7, 0, 4096, VERBS_LOCAL_WRITE, &mr, &error), PENSTOCK_EUNSUPPORTED);
    assert_words("ibv_reg_dmabuf_mr of 4096 bytes");
}

static void a_library_without_dmabufs_says_so(void **state)
{
    (void)state;
    struct verbs_mr *mr;
    ((struct verbs_ib_world *)(void *)world)->api.reg_dmabuf_mr = NULL;
    assert_int_equal(verbs_mr_dmabuf_new(pd, 7, 0, 4096, VERBS_LOCAL_WRITE, &mr, &error), PENSTOCK_EUNSUPPORTED);
    assert_words("rdma-core 34");
}

static void a_domain_that_cannot_be_had_names_call_and_device(void **state)
{
    (void)state;
    struct verbs_pd *another;
    fake_fail("ibv_alloc_pd", ENOSPC, 0);
    assert_int_equal(verbs_pd_new(device, &another, &error), PENSTOCK_ESYS);
    assert_words("fake0: ibv_alloc_pd: No space left");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_region_counts_from_its_own_address),
        TEST(access_is_what_was_asked_for_and_no_more),
        TEST(order_is_relaxed_but_for_what_the_other_side_writes),
        TEST(more_than_the_device_registers_is_a_limit),
        TEST(the_memlock_limit_is_named_with_what_raises_it),
        TEST(memory_that_cannot_be_registered_is_not_supported),
        TEST(a_dmabuf_counts_from_nought),
        TEST(a_library_without_dmabufs_says_so),
        TEST(a_domain_that_cannot_be_had_names_call_and_device),
    };
    return fake_world_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
