#include "sim_pair.h"

static void setup(struct pair *p)
{
    pair_init(p, &(struct sim_options){ .expect_misuse = true }, NULL);
}

static void assert_misuse(struct pair *p, const char *words)
{
    assert_non_null(sim_misuse(p->fabric));
    assert_non_null(strstr(sim_misuse(p->fabric), words));
}

static void a_clean_life_is_no_misuse(void **state)
{
    (void)state;
    struct pair p;
    setup(&p);
    pair_connect(&p);
    pair_read(&p, 0, 64, true, 0);
    pair_end_fini(&p.client);
    pair_end_fini(&p.peer);
    assert_null(sim_misuse(p.fabric));
    struct sim_objects none = { 0 }, left = sim_host_objects(p.client.host);
    assert_memory_equal(&left, &none, sizeof left);
    sim_free(p.fabric);
}

static void memory_that_work_lands_in_is_not_deregistered(void **state)
{
    (void)state;
    struct pair p;
    setup(&p);
    pair_connect(&p);
    pair_read(&p, 0, 64, true, 0);
    verbs_mr_free(p.client.mr);
    assert_misuse(&p, "an MR of sim0 is freed that work under way lands in");
    pair_fini(&p);
}

static void posting_waits_for_the_connection(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    setup(&p);
    assert_int_equal(pair_post(&p, VERBS_READ, 0, 64, true, NULL, &error), PENSTOCK_EINVAL);
    assert_misuse(&p, "before it is connected");
    pair_fini(&p);
}

static void a_cq_is_as_deep_as_what_completes_on_it(void **state)
{
    (void)state;
    struct pair p;
    struct penstock_error error;
    setup(&p);
    verbs_qp_free(p.client.qp);
    verbs_cq_free(p.client.cq);
    assert_int_equal(verbs_cq_new(p.client.device, 4, &p.client.cq, &error), 0);
    struct verbs_qp_options options = { .port = 1, .depth = 16, .sges_max = 1 };
    assert_int_equal(verbs_qp_new(p.client.pd, p.client.cq, &options, &p.client.qp, &error), 0);
    p.peer_link.peer_qpn = p.client.qp->qpn;
    pair_connect(&p);
    for (uintptr_t i = 0; i < 5; i++)
        pair_read(&p, 0, 64, true, i);
    while (sim_step(p.fabric))
        ;
    assert_misuse(&p, "overrun");
    struct verbs_completion completion;
    assert_int_equal(verbs_cq_poll(p.client.cq, &completion, 1, &error), PENSTOCK_ECLOSED);
    pair_fini(&p);
}

static void a_cq_outlives_its_qps(void **state)
{
    (void)state;
    struct pair p;
    setup(&p);
    verbs_cq_free(p.client.cq);
    assert_misuse(&p, "a CQ of sim0 is freed before its 1 QPs");
    pair_fini(&p);
}

static void a_pd_outlives_its_mrs_and_qps(void **state)
{
    (void)state;
    struct pair p;
    setup(&p);
    verbs_pd_free(p.client.pd);
    assert_misuse(&p, "a PD of sim0 is freed with 1 MRs and 1 QPs");
    pair_fini(&p);
}

static void a_device_outlives_its_pds_and_cqs(void **state)
{
    (void)state;
    struct pair p;
    setup(&p);
    verbs_device_close(p.client.device);
    assert_misuse(&p, "sim0 is closed with 1 PDs and 1 CQs");
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clean_life_is_no_misuse),
        cmocka_unit_test(memory_that_work_lands_in_is_not_deregistered),
        cmocka_unit_test(posting_waits_for_the_connection),
        cmocka_unit_test(a_cq_is_as_deep_as_what_completes_on_it),
        cmocka_unit_test(a_cq_outlives_its_qps),
        cmocka_unit_test(a_pd_outlives_its_mrs_and_qps),
        cmocka_unit_test(a_device_outlives_its_pds_and_cqs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
