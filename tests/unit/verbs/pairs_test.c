#include "fake_world.h"

#include <errno.h>

static struct verbs_device *device;
static struct verbs_pd *pd;
static struct verbs_cq *cq;
static struct verbs_qp *qp;

static const struct verbs_qp_options options = {
    .port = 1, .gid_index = 3, .access = VERBS_REMOTE_READ, .depth = 128, .sges_max = 4
};
static const struct verbs_qp_link link_to_peer = {
    .own_psn = 0xAA000001,
    .peer_psn = 0xBB000002,
    .peer_qpn = 0x77,
    .peer_gid = { [10] = 0xFF, 0xFF, 10, 0, 0, 2 },
    .mtu = 5,
    .reads_out = 16,
    .reads_in = 12,
};

static int setup(void **state)
{
    int failed = fake_world_setup(state);
    if (failed)
        return failed;
    device = fake_device();
    pd = fake_pd(device);
    failed = verbs_cq_new(device, 128, &cq, &error);
    return failed ? failed : verbs_qp_new(pd, cq, &options, &qp, &error);
}

static int teardown(void **state)
{
    verbs_qp_free(qp);
    verbs_cq_free(cq);
    verbs_pd_free(pd);
    verbs_device_close(device);
    return fake_world_teardown(state);
}

static void a_new_pair_is_reliable_and_in_init(void **state)
{
    (void)state;
    assert_int_equal(qp->qpn, 0x123);
    assert_int_equal(fake->init.qp_type, IBV_QPT_RC);
    assert_int_equal(fake->init.sq_sig_all, 0);
    assert_int_equal(fake->init.cap.max_send_wr, 128);
    assert_int_equal(fake->init.cap.max_send_sge, 4);
    assert_int_equal(fake->n_modified, 1);
    assert_int_equal(fake->modified[0].qp_state, IBV_QPS_INIT);
    assert_int_equal(fake->modified[0].pkey_index, 0);
    assert_int_equal(fake->modified[0].port_num, 1);
    assert_int_equal(fake->modified[0].qp_access_flags, IBV_ACCESS_REMOTE_READ);
    assert_int_equal(fake->masks[0], IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void connecting_sets_the_frozen_attributes(void **state)
{
    (void)state;
    assert_int_equal(verbs_qp_connect(qp, &link_to_peer, &error), 0);
    assert_int_equal(fake->n_modified, 3);
    const struct ibv_qp_attr *rtr = &fake->modified[1], *rts = &fake->modified[2];
    assert_int_equal(rtr->qp_state, IBV_QPS_RTR);
    assert_int_equal(rtr->path_mtu, IBV_MTU_4096);
    assert_int_equal(rtr->rq_psn, 2);
    assert_int_equal(rtr->dest_qp_num, 0x77);
    assert_int_equal(rtr->max_dest_rd_atomic, 12);
    assert_int_equal(rtr->min_rnr_timer, 12);
    assert_int_equal(rtr->ah_attr.is_global, 1);
    assert_int_equal(rtr->ah_attr.port_num, 1);
    assert_int_equal(rtr->ah_attr.sl, 0);
    assert_int_equal(rtr->ah_attr.grh.hop_limit, 64);
    assert_int_equal(rtr->ah_attr.grh.sgid_index, 3);
    assert_int_equal(rtr->ah_attr.grh.traffic_class, 0);
    assert_memory_equal(rtr->ah_attr.grh.dgid.raw, link_to_peer.peer_gid, 16);
    assert_int_equal(fake->masks[1], IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    assert_int_equal(rts->qp_state, IBV_QPS_RTS);
    assert_int_equal(rts->sq_psn, 1);
    assert_int_equal(rts->timeout, 14);
    assert_int_equal(rts->retry_cnt, 6); /* 7 is "for ever" to rdma_rxe */
    assert_int_equal(rts->rnr_retry, 7);
    assert_int_equal(rts->max_rd_atomic, 16);
    assert_int_equal(fake->masks[2], IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void more_reads_than_the_device_takes_are_refused_in_words(void **state)
{
    (void)state;
    struct verbs_qp_link link = link_to_peer;
    link.reads_in = 17;
    assert_int_equal(verbs_qp_connect(qp, &link, &error), PENSTOCK_EUNSUPPORTED);
    assert_words("fake0 port 1: the device takes 16 READs of a QP at once, and the other side may send 17");
    link = link_to_peer;
    link.reads_out = 17;
    assert_int_equal(verbs_qp_connect(qp, &link, &error), PENSTOCK_EUNSUPPORTED);
    assert_words("at most 16 READs of a QP outstanding, not 17");
    assert_int_equal(fake->n_modified, 1);
}

static void refused_with(int sys_errno, const struct verbs_qp_link *link, const char *words)
{
    fake_fail("ibv_modify_qp", sys_errno, FAKE_ERRNO_RETURNED);
    assert_int_equal(verbs_qp_connect(qp, link, &error), PENSTOCK_ESYS);
    assert_int_equal(error.sys_errno, sys_errno);
    assert_words("fake0 port 1: ");
    assert_words("ibv_modify_qp to RTR");
    assert_words(words);
}

static void a_refused_rtr_is_explained_by_what_the_port_says(void **state)
{
    (void)state;
    static const int errnos[] = { EINVAL, ENETUNREACH, EHOSTUNREACH, ETIMEDOUT };
    for (size_t i = 0; i < sizeof errnos / sizeof *errnos; i++)
        refused_with(errnos[i], &link_to_peer, "no way from GID 3 to GID ::ffff:10.0.0.2");
    refused_with(EBUSY, &link_to_peer, "to GID ::ffff:10.0.0.2");
    fake->gids[3] = (union ibv_gid){ 0 };
    refused_with(EINVAL, &link_to_peer, "GID 3 of the port is empty");
    fake->port.active_mtu = IBV_MTU_1024;
    refused_with(EINVAL, &link_to_peer, "a path MTU of 4096 is above the port's 1024");
    fake->port.state = IBV_PORT_DOWN;
    refused_with(EINVAL, &link_to_peer, "the port is DOWN");
}

static void a_refused_rts_and_a_lost_port_are_said(void **state)
{
    (void)state;
    fake_fail("ibv_modify_qp", EINVAL, FAKE_MINUS_ONE);
    fake->fail_after = 1;
    assert_int_equal(verbs_qp_connect(qp, &link_to_peer, &error), PENSTOCK_ESYS);
    assert_words("fake0 port 1: ibv_modify_qp to RTS with 16 READs outstanding: Invalid argument");
}

static void a_pair_that_cannot_be_made_leaves_nothing(void **state)
{
    (void)state;
    struct verbs_qp *another;
    fake_fail("ibv_create_qp", EINVAL, 0);
    assert_int_equal(verbs_qp_new(pd, cq, &options, &another, &error), PENSTOCK_ESYS);
    assert_words("ibv_create_qp of 128 work requests with 4 pieces (the device has 100 QPs of 4096 with 30)");
    fake_fail("ibv_create_qp", ENOMEM, 0);
    assert_int_equal(verbs_qp_new(pd, cq, &options, &another, &error), PENSTOCK_ENOMEM);
    assert_words("fake0 port 1: the memlock limit (ulimit -l) is ");
    assert_words("LimitMEMLOCK=infinity in the systemd unit: ibv_create_qp");
    fake_fail("ibv_modify_qp", EINVAL, FAKE_NEGATIVE);
    assert_int_equal(verbs_qp_new(pd, cq, &options, &another, &error), PENSTOCK_ESYS);
    assert_words("fake0 port 1: ibv_modify_qp to INIT: Invalid argument");
    assert_int_equal(fake->qps, 1);
}

static void its_queues_hold_one_at_least(void **state)
{
    (void)state;
    struct verbs_qp *another;
    const struct verbs_qp_options least = { .port = 1 };
    assert_int_equal(verbs_qp_new(pd, cq, &least, &another, &error), 0);
    assert_int_equal(fake->init.cap.max_send_wr, 1);
    assert_int_equal(fake->init.cap.max_send_sge, 1);
    verbs_qp_free(another);
}

static void a_pair_that_cannot_be_destroyed_is_reset_first(void **state)
{
    (void)state;
    struct verbs_qp *another;
    assert_int_equal(verbs_qp_new(pd, cq, &options, &another, &error), 0);
    fake_fail("ibv_destroy_qp", EBUSY, FAKE_ERRNO_RETURNED); /* once */
    verbs_qp_free(another);
    assert_int_equal(fake->modified[fake->n_modified - 1].qp_state, IBV_QPS_RESET);
    assert_int_equal(fake->qps, 1);
}

static void what_a_pair_is_set_to_can_be_looked_at(void **state)
{
    (void)state;
    struct verbs_qp_state s;
    assert_int_equal(verbs_qp_query(qp, &s, &error), 0);
    assert_string_equal(s.state, "RTS");
    assert_int_equal(s.mtu, 4);
    assert_int_equal(s.reads_out, 7);
    assert_int_equal(s.reads_in, 9);
    fake_fail("ibv_query_qp", EIO, FAKE_ERRNO_RETURNED);
    assert_int_equal(verbs_qp_query(qp, &s, &error), PENSTOCK_ESYS);
    assert_words("fake0 port 1: ibv_query_qp");
}

/* ---- work ---- */

static struct verbs_sge sges[2] = { { .address = 0x1000, .len_bytes = 10, .lkey = 1 },
                                    { .address = 0x2000, .len_bytes = 20, .lkey = 2 } };

static void fill(struct verbs_request *requests, size_t n)
{
    for (size_t i = 0; i < n; i++)
        requests[i] = (struct verbs_request){ .opcode = i % 2 ? VERBS_WRITE : VERBS_READ,
                                              .signaled = i + 1 == n,
                                              .remote = 0x100000 + i,
                                              .rkey = 0x99,
                                              .n_sges = 2,
                                              .sges = sges,
                                              .context = &requests[i] };
}

static void a_chain_is_one_doorbell(void **state)
{
    (void)state;
    struct verbs_request requests[VERBS_CHAIN_MAX];
    size_t posted = 0;
    fill(requests, VERBS_CHAIN_MAX);
    assert_int_equal(verbs_post(qp, requests, VERBS_CHAIN_MAX, &posted, &error), 0);
    assert_int_equal(posted, VERBS_CHAIN_MAX);
    assert_int_equal(fake->doorbells, 1);
    assert_int_equal(fake->n_posted, VERBS_CHAIN_MAX);
    for (size_t i = 0; i < VERBS_CHAIN_MAX; i++) {
        const struct ibv_send_wr *wr = &fake->posted[i];
        assert_int_equal(wr->wr_id, (uintptr_t)&requests[i]);
        assert_int_equal(wr->opcode, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ);
        assert_int_equal(wr->send_flags, i + 1 == VERBS_CHAIN_MAX ? IBV_SEND_SIGNALED : 0);
        assert_int_equal(wr->num_sge, 2);
        assert_int_equal(wr->sg_list[1].addr, 0x2000);
        assert_int_equal(wr->sg_list[1].length, 20);
        assert_int_equal(wr->sg_list[1].lkey, 2);
        assert_int_equal(wr->wr.rdma.remote_addr, 0x100000 + i);
        assert_int_equal(wr->wr.rdma.rkey, 0x99);
    }
}

static void a_chain_that_breaks_says_how_much_of_it_is_under_way(void **state)
{
    (void)state;
    struct verbs_request requests[5];
    size_t posted = 99;
    fill(requests, 5);
    static const enum fake_failure ways[] = { FAKE_ERRNO_RETURNED, FAKE_MINUS_ONE, FAKE_NEGATIVE };
    for (size_t i = 0; i < 3; i++) {
        fake_fail("ibv_post_send", ENOMEM, ways[i]);
        fake->post_takes = 3;
        assert_int_equal(verbs_post(qp, requests, 5, &posted, &error), PENSTOCK_ENOMEM);
        assert_int_equal(posted, 3);
        assert_words("fake0 port 1: ibv_post_send took 3 of 5 work requests");
    }
    fake->post_takes = 0;
    fake->post_names_none = true;
    assert_int_equal(verbs_post(qp, requests, 5, &posted, &error), PENSTOCK_ENOMEM);
    assert_int_equal(posted, 0);
}

static void a_chain_of_none_or_too_many_is_refused(void **state)
{
    (void)state;
    struct verbs_request requests[VERBS_CHAIN_MAX + 1];
    size_t posted = 99;
    fill(requests, VERBS_CHAIN_MAX + 1);
    assert_int_equal(verbs_post(qp, requests, 0, &posted, &error), PENSTOCK_EINVAL);
    assert_int_equal(verbs_post(qp, requests, VERBS_CHAIN_MAX + 1, &posted, &error), PENSTOCK_EINVAL);
    assert_int_equal(posted, 0);
    assert_int_equal(fake->doorbells, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_pair_is_reliable_and_in_init),
        TEST(connecting_sets_the_frozen_attributes),
        TEST(more_reads_than_the_device_takes_are_refused_in_words),
        TEST(a_refused_rtr_is_explained_by_what_the_port_says),
        TEST(a_refused_rts_and_a_lost_port_are_said),
        TEST(a_pair_that_cannot_be_made_leaves_nothing),
        TEST(its_queues_hold_one_at_least),
        TEST(a_pair_that_cannot_be_destroyed_is_reset_first),
        TEST(what_a_pair_is_set_to_can_be_looked_at),
        TEST(a_chain_is_one_doorbell),
        TEST(a_chain_that_breaks_says_how_much_of_it_is_under_way),
        TEST(a_chain_of_none_or_too_many_is_refused),
    };
    return fake_world_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
