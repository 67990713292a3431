#include <sys/mman.h>
#include <unistd.h>

#include "sim_pair.h"

#define LOCAL_PROTECTION 4 /* ibv_wc_status */
#define REMOTE_ACCESS 10

/* One READ of len bytes with these keys and addresses on a pair of its own; how it ends. */
static int read_ends(struct pair *p, uint64_t local, uint32_t lkey, uint64_t remote, uint32_t rkey, uint32_t len)
{
    struct verbs_sge sge = { local, len, lkey };
    struct verbs_request request = {
        .opcode = VERBS_READ, .signaled = true, .remote = remote, .rkey = rkey, .n_sges = 1, .sges = &sge
    };
    struct penstock_error error;
    size_t posted;
    assert_int_equal(verbs_post(p->client.qp, &request, 1, &posted, &error), 0);
    assert_true(sim_step(p->fabric));
    uintptr_t context;
    return pair_poll(p, &context);
}

static void each_end_is_held_to_its_keys_and_bounds(void **state)
{
    (void)state;
    enum { LOCAL, LKEY, REMOTE, RKEY, LEN };
    static const struct {
        int what;
        int64_t by;
        int status;
    } cases[] = {
        { LEN, 0, 0 },
        { LKEY, 1, LOCAL_PROTECTION },
        { LKEY, 0x100, LOCAL_PROTECTION }, /* the other host's MR */
        { LOCAL, -1, LOCAL_PROTECTION },
        { LOCAL, PAIR_BYTES - 15, LOCAL_PROTECTION },
        { RKEY, 1, REMOTE_ACCESS },
        { RKEY, -0x100, REMOTE_ACCESS },
        { RKEY, 0x10000000, REMOTE_ACCESS },
        { REMOTE, -1, REMOTE_ACCESS },
        { REMOTE, PAIR_BYTES - 15, REMOTE_ACCESS },
        { REMOTE, PAIR_BYTES - 16, 0 },
        { LEN, PAIR_BYTES - 16, 0 },
        { LEN, PAIR_BYTES - 15, LOCAL_PROTECTION },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pair p;
        pair_init(&p, NULL, NULL);
        pair_connect(&p);
        int64_t by[5] = { 0 };
        by[cases[i].what] = cases[i].by;
        int status = read_ends(&p, p.client.mr->base + (uint64_t)by[LOCAL], p.client.mr->lkey + (uint32_t)by[LKEY],
                               p.peer.mr->base + (uint64_t)by[REMOTE], p.peer.mr->rkey + (uint32_t)by[RKEY],
                               16 + (uint32_t)by[LEN]);
        assert_int_equal(status, cases[i].status);
        pair_fini(&p);
    }
}

static void an_rkey_of_another_pd_is_refused(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    pair_init(&p, NULL, NULL);
    pair_connect(&p);
    struct verbs_pd *pd;
    struct verbs_mr *mr;
    assert_int_equal(verbs_pd_new(p.peer.device, &pd, &error), 0);
    assert_int_equal(verbs_mr_new(pd, p.peer.bytes, PAIR_BYTES, VERBS_REMOTE_READ, &mr, &error), 0);
    assert_int_equal(read_ends(&p, p.client.mr->base, p.client.mr->lkey, mr->base, mr->rkey, 16), REMOTE_ACCESS);
    assert_int_equal(p.client.bytes[1], 0);
    verbs_mr_free(mr);
    verbs_pd_free(pd);
    pair_fini(&p);
}

static void access_is_asked_for_on_the_mr_and_on_the_qp(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    pair_init(&p, NULL, NULL);
    pair_connect(&p);
    struct verbs_mr *own, *far;
    assert_int_equal(verbs_mr_new(p.client.pd, p.client.bytes, 64, 0, &own, &error), 0);
    assert_int_equal(read_ends(&p, own->base, own->lkey, p.peer.mr->base, p.peer.mr->rkey, 16), LOCAL_PROTECTION);
    verbs_mr_free(own);
    pair_fini(&p);

    pair_init(&p, NULL, NULL);
    pair_connect(&p);
    assert_int_equal(verbs_mr_new(p.peer.pd, p.peer.bytes, 64, VERBS_REMOTE_WRITE, &far, &error), 0);
    assert_int_equal(read_ends(&p, p.client.mr->base, p.client.mr->lkey, far->base, far->rkey, 16), REMOTE_ACCESS);
    verbs_mr_free(far);
    pair_fini(&p);

    /* The client's QP lets nobody READ, whatever its MRs say. */
    pair_init(&p, NULL, NULL);
    pair_connect(&p);
    assert_int_equal(verbs_mr_new(p.client.pd, p.client.bytes, 64, VERBS_REMOTE_READ, &own, &error), 0);
    struct verbs_sge sge = { p.peer.mr->base, 16, p.peer.mr->lkey };
    struct verbs_request request = {
        .opcode = VERBS_READ, .signaled = true, .remote = own->base, .rkey = own->rkey, .n_sges = 1, .sges = &sge
    };
    size_t posted;
    struct verbs_completion completion;
    assert_int_equal(verbs_post(p.peer.qp, &request, 1, &posted, &error), 0);
    assert_true(sim_step(p.fabric));
    assert_int_equal(verbs_cq_poll(p.peer.cq, &completion, 1, &error), 1);
    assert_int_equal(completion.status, REMOTE_ACCESS);
    verbs_mr_free(own);
    pair_fini(&p);
}

static void an_mr_that_went_while_a_read_was_under_way_is_no_longer_read(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    pair_init(&p, NULL, NULL);
    pair_connect(&p);
    pair_read(&p, 0, 16, true, 1);
    verbs_mr_free(p.peer.mr);
    assert_true(sim_step(p.fabric));
    pair_expect(&p, 1, REMOTE_ACCESS);
    assert_int_equal(verbs_mr_new(p.peer.pd, p.peer.bytes, PAIR_BYTES, VERBS_REMOTE_READ, &p.peer.mr, &error), 0);
    pair_fini(&p);
}

static void device_memory_is_reached_by_the_device_alone(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    pair_init(&p, NULL, NULL);
    pair_connect(&p);
    int fd = memfd_create("vram", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 16384), 0);
    void *own_view = mmap(NULL, 16384, PROT_NONE, MAP_SHARED, fd, 0); /* whoever touches it dies */
    assert_ptr_not_equal(own_view, MAP_FAILED);
    struct verbs_mr *mr;
    assert_int_equal(verbs_mr_dmabuf_new(p.client.pd, fd, 4100, 8000, VERBS_LOCAL_WRITE, &mr, &error), 0);
    assert_int_equal(mr->base, 0);
    assert_int_equal(mr->len_bytes, 8000);
    assert_int_equal(read_ends(&p, 10, mr->lkey, p.peer.mr->base, p.peer.mr->rkey, 7990), 0);
    assert_int_equal(read_ends(&p, 11, mr->lkey, p.peer.mr->base, p.peer.mr->rkey, 7990), LOCAL_PROTECTION);
    verbs_mr_free(mr);
    uint8_t landed[7990];
    assert_int_equal(pread(fd, landed, sizeof landed, 4110), sizeof landed);
    assert_memory_equal(landed, p.peer.bytes, sizeof landed);
    munmap(own_view, 16384);
    close(fd);
    pair_fini(&p);
}

static void a_device_may_have_no_dmabuf(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    struct verbs_mr *mr;
    pair_init(&p, NULL, &(struct sim_port_options){ .no_dmabuf = true });
    assert_int_equal(verbs_mr_dmabuf_new(p.client.pd, 0, 0, 4096, 0, &mr, &error), PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "sim0"));
    pair_fini(&p);
}

static void registering_ends_at_the_device_s_and_the_host_s_limits(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    struct verbs_mr *mr;
    pair_init(&p, NULL, &(struct sim_port_options){ .mr_bytes_max = PAIR_BYTES });
    assert_int_equal(verbs_mr_new(p.client.pd, p.client.bytes, PAIR_BYTES + 1, 0, &mr, &error), PENSTOCK_ELIMIT);
    assert_int_equal(verbs_mr_new(p.client.pd, p.client.bytes, 0, 0, &mr, &error), PENSTOCK_EINVAL);
    sim_host_memlock(p.client.host, PAIR_BYTES + 100);
    assert_int_equal(verbs_mr_new(p.client.pd, p.client.bytes, 101, 0, &mr, &error), PENSTOCK_ELIMIT);
    assert_non_null(strstr(error.message, "memlock"));
    assert_int_equal(verbs_mr_new(p.client.pd, p.client.bytes, 100, 0, &mr, &error), 0);
    assert_int_equal(sim_host_objects(p.client.host).mr_bytes, PAIR_BYTES + 100);
    assert_int_equal(sim_host_objects(p.client.host).mrs, 2);
    verbs_mr_free(mr);
    assert_int_equal(sim_host_objects(p.client.host).mr_bytes, PAIR_BYTES);
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_end_is_held_to_its_keys_and_bounds),
        cmocka_unit_test(an_rkey_of_another_pd_is_refused),
        cmocka_unit_test(access_is_asked_for_on_the_mr_and_on_the_qp),
        cmocka_unit_test(an_mr_that_went_while_a_read_was_under_way_is_no_longer_read),
        cmocka_unit_test(device_memory_is_reached_by_the_device_alone),
        cmocka_unit_test(a_device_may_have_no_dmabuf),
        cmocka_unit_test(registering_ends_at_the_device_s_and_the_host_s_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
