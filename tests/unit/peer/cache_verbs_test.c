/* The cache with rails, over the simulated fabric. */
#include "cache_rig.h"

static struct rig *watched; /* whose slots are given back only once no QP of its peer's is left */

/* Protocol 3: a client whose QP lives could still write into a slot that was its own. */
void __real_residency_client_free(struct residency_client *client);
void __wrap_residency_client_free(struct residency_client *client);
void __wrap_residency_client_free(struct residency_client *client)
{
    if (watched)
        assert_int_equal(sim_host_objects(watched->peer_host).qps, 0);
    __real_residency_client_free(client);
}

/* One blob between the client's memory and an offset of the arena, over rail i. Returns the completion's status. */
static int move(struct rig_client *c, size_t i, enum verbs_opcode opcode, uint64_t offset, uint8_t *blob)
{
    struct penstock_error error;
    struct verbs_mr *mr;
    size_t posted;
    struct rail *rail = &c->set.rails[i];
    assert_int_equal(verbs_mr_new(c->rig->pds[i], blob, RIG_BLOB, VERBS_LOCAL_WRITE, &mr, &error), 0);
    const struct verbs_sge sge = { .address = mr->base, .len_bytes = RIG_BLOB, .lkey = mr->lkey };
    const struct verbs_request request = { .opcode = opcode,
                                           .signaled = true,
                                           .remote = rail->regions[0].base + offset,
                                           .rkey = rail->regions[0].rkey,
                                           .n_sges = 1,
                                           .sges = &sge };
    assert_int_equal(verbs_post(rail->qp, &request, 1, &posted, &error), 0);
    struct verbs_completion completion;
    int n = 0;
    while (n == 0)
        n = verbs_cq_poll(rail->cq, &completion, 1, &error);
    assert_int_equal(n, 1);
    verbs_mr_free(mr);
    return completion.status;
}

static void put(struct rig_client *c, uint64_t key, uint64_t content)
{
    uint8_t blob[RIG_BLOB];
    rig_fill(blob, sizeof blob, content);
    rig_send(c, PENSTOCK_OP_ALLOC, key);
    assert_int_equal(move(c, 0, VERBS_WRITE, rig_value(c), blob), 0);
    rig_assert_ask(c, PENSTOCK_OP_COMMIT, key, PENSTOCK_ST_OK);
}

static void assert_read(struct rig_client *c, size_t rail, uint64_t offset, uint64_t content)
{
    uint8_t want[RIG_BLOB], got[RIG_BLOB];
    rig_fill(want, sizeof want, content);
    assert_int_equal(move(c, rail, VERBS_READ, offset, got), 0);
    assert_memory_equal(got, want, sizeof got);
}

static void assert_get(struct rig_client *c, size_t rail, uint64_t key, uint64_t content)
{
    rig_send(c, PENSTOCK_OP_GET, key);
    assert_read(c, rail, rig_value(c), content);
}

static void blobs_are_written_to_reserved_slots_and_read_from_pinned_ones(void **state)
{
    struct rig *r = *state;
    struct rig_client c;
    watched = r;
    rig_join_rails(r, &c, 4 * RIG_BLOB, RIG_BLOB, 2);
    assert_int_equal(c.set.rails[0].regions[0].base, c.set.rails[1].regions[0].base);
    for (uint64_t key = 0; key < 20; key++)
        put(&c, key, key);
    for (uint64_t key = 0; key < 20; key++)
        assert_get(&c, key % 2, key, key);
    rig_assert_ask(&c, PENSTOCK_OP_GET, 99, PENSTOCK_ST_MISS);
    rig_assert_ask(&c, PENSTOCK_OP_COMMIT, 99, PENSTOCK_ST_ERR);
    rig_assert_ask(&c, PENSTOCK_OP_REMOVE, 3, PENSTOCK_ST_OK);
    rig_assert_ask(&c, PENSTOCK_OP_GET, 3, PENSTOCK_ST_MISS);
    rig_assert_ask(&c, 0x55, 3, PENSTOCK_ST_ERR); /* unknown, and served on */
    assert_get(&c, 0, 4, 4);
    rig_leave(&c);
    watched = NULL;
}

static void a_reservation_goes_back_with_its_connection(void **state)
{
    struct rig_client dying, c;
    rig_join_rails(*state, &dying, RIG_BLOB, RIG_BLOB, 1);
    rig_send(&dying, PENSTOCK_OP_ALLOC, 1);
    (void)rig_value(&dying);
    rig_join_rails(*state, &c, RIG_BLOB, RIG_BLOB, 1);
    rig_assert_ask(&c, PENSTOCK_OP_ALLOC, 1, PENSTOCK_ST_ERR);
    rig_assert_ask(&c, PENSTOCK_OP_GET, 1, PENSTOCK_ST_MISS);
    rig_leave(&dying);
    put(&c, 1, 1);
    rig_leave(&c);
}

static void an_arena_is_registered_once_a_device_for_all_its_connections(void **state)
{
    struct rig *r = *state;
    struct rig_client one, two, raw;
    rig_join_rails(r, &one, 4 * RIG_BLOB, RIG_BLOB, 1);
    assert_int_equal(sim_host_objects(r->peer_host).mrs, 2);
    rig_join_rails(r, &two, 4 * RIG_BLOB, RIG_BLOB, 2);
    assert_int_equal(sim_host_objects(r->peer_host).mrs, 2);
    rig_join_rails(r, &raw, 16384, 0, 1);
    assert_int_equal(sim_host_objects(r->peer_host).mrs, 4);
    assert_int_equal(sim_host_objects(r->peer_host).pds, 4); /* no client reaches another's arena */

    uint8_t out[RIG_BLOB], in[RIG_BLOB];
    rig_fill(out, sizeof out, 77);
    assert_int_equal(move(&raw, 0, VERBS_READ, 0, in), 0);
    assert_int_equal(in[0], 0);
    assert_int_equal(move(&raw, 0, VERBS_WRITE, 12288, out), 0);
    assert_int_equal(move(&raw, 0, VERBS_READ, 12288, in), 0);
    assert_memory_equal(in, out, sizeof in);
    assert_int_not_equal(move(&raw, 0, VERBS_READ, 12289, in), 0);
    rig_leave(&raw);
    assert_int_equal(sim_host_objects(r->peer_host).mrs, 2);
    rig_leave(&one);
    rig_leave(&two);
    assert_int_equal(sim_host_objects(r->peer_host).mrs, 2); /* the arena lives on */
}

static void keys_are_got_many_at_once_and_stay_pinned_until_released(void **state)
{
    struct rig_client c;
    struct penstock_key keys[3] = { { 1, 0 }, { 50, 0 }, { 2, 0 } };
    rig_join_rails(*state, &c, 16 * RIG_BLOB, RIG_BLOB, 1);
    rig_send(&c, PENSTOCK_OP_FEATURES, 1);
    assert_int_equal(rig_value(&c), 15);
    for (uint64_t key = 1; key <= 40; key++)
        put(&c, key, key);
    rig_send_request(&c, &(struct penstock_paging_request){ .op = PENSTOCK_OP_MGET, .keys = keys, .n_keys = 3 });
    uint64_t first = rig_value(&c);
    rig_assert_status(&c, PENSTOCK_ST_MISS);
    uint64_t second = rig_value(&c);
    for (uint64_t key = 41; key <= 80; key++) /* a GET, or a COMMIT, drops no pin of an MGET */
        put(&c, key, key);
    assert_read(&c, 0, first, 1);
    assert_read(&c, 0, second, 2);
    rig_assert_ask(&c, PENSTOCK_OP_EXISTS, 80, PENSTOCK_ST_OK);
    rig_assert_ask(&c, PENSTOCK_OP_EXISTS, 81, PENSTOCK_ST_MISS);
    rig_send_request(&c, &(struct penstock_paging_request){ .op = PENSTOCK_OP_RELEASE, .keys = keys, .n_keys = 3 });
    rig_assert_status(&c, PENSTOCK_ST_OK);
    rig_leave(&c);
}

static void a_client_that_chooses_gets_the_rails_and_values_agreed_on(void **state)
{
    struct rig_client c;
    struct penstock_error error;
    const struct penstock_rail_choice wishes[] = { { 1, 3, 7 } };
    struct verbs_qp_state is;
    rig_connect(*state, &c, PENSTOCK_ARENA_SSM, 4 * RIG_BLOB, RIG_BLOB);
    assert_int_equal(rig_shake_hands(&c, 1, wishes, &error), 0);
    assert_int_equal(verbs_qp_query(c.set.rails[0].qp, &is, &error), 0);
    assert_int_equal(is.mtu, 3);
    put(&c, 1, 1);
    rig_leave(&c);
}

static void more_rails_than_there_are_and_an_arena_that_cannot_be_registered_are_refused(void **state)
{
    struct rig *r = *state;
    struct rig_client c;
    const uint8_t three = 3, one = 1;
    rig_connect(r, &c, PENSTOCK_ARENA_KV, 4 * RIG_BLOB, RIG_BLOB);
    rig_write(&c, &three, 1);
    rig_assert_closed(&c);
    rig_leave(&c);

    sim_fail_calls(r->peer_host, SIM_MR_NEW, 1, 1, PENSTOCK_ELIMIT);
    rig_connect(r, &c, PENSTOCK_ARENA_KV, 4 * RIG_BLOB, RIG_BLOB);
    rig_write(&c, &one, 1);
    rig_assert_closed(&c);
    rig_leave(&c);
    rig_join_rails(r, &c, 4 * RIG_BLOB, RIG_BLOB, 1); /* what failed is tried again */
    rig_leave(&c);
}

/* ---- the end of the peer ---- */

static void drain(struct rig *r)
{
    atomic_store(&r->server.draining, true);
    peer_connections_end_idle(&r->server);
}

static void a_drain_ends_clients_that_hold_no_slot_and_waits_for_those_that_do(void **state)
{
    struct rig *r = *state;
    struct rig_client idle, writing;
    rig_join_rails(r, &idle, 8 * RIG_BLOB, RIG_BLOB, 1);
    rig_join_rails(r, &writing, 8 * RIG_BLOB, RIG_BLOB, 1);
    put(&idle, 1, 1);
    rig_send(&writing, PENSTOCK_OP_ALLOC, 2);
    uint64_t offset = rig_value(&writing);
    drain(r);
    rig_assert_closed(&idle);
    uint8_t blob[RIG_BLOB];
    rig_fill(blob, sizeof blob, 2);
    assert_int_equal(move(&writing, 0, VERBS_WRITE, offset, blob), 0);
    rig_assert_ask(&writing, PENSTOCK_OP_COMMIT, 2, PENSTOCK_ST_OK);
    rig_assert_closed(&writing);
    rig_leave(&idle);
    rig_leave(&writing);
}

static void what_is_in_memory_is_found_again_after_a_planned_end(void **state)
{
    struct rig *r = *state;
    struct rig_client c;
    struct penstock_error error;
    peer_cache_close(&r->server.cache);
    r->options.cache.swap_keep = true;
    assert_int_equal(peer_cache_service.open(&r->server, &error), 0);
    rig_join_rails(r, &c, 8 * RIG_BLOB, RIG_BLOB, 1);
    for (uint64_t key = 0; key < 20; key++)
        put(&c, key, key);
    rig_leave(&c);
    peer_cache_close(&r->server.cache);
    assert_int_equal(peer_cache_service.open(&r->server, &error), 0);
    rig_join_rails(r, &c, 8 * RIG_BLOB, RIG_BLOB, 1);
    for (uint64_t key = 0; key < 20; key++)
        assert_get(&c, 0, key, key);
    rig_leave(&c);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(blobs_are_written_to_reserved_slots_and_read_from_pinned_ones),
        TEST(a_reservation_goes_back_with_its_connection),
        TEST(an_arena_is_registered_once_a_device_for_all_its_connections),
        TEST(keys_are_got_many_at_once_and_stay_pinned_until_released),
        TEST(a_client_that_chooses_gets_the_rails_and_values_agreed_on),
        TEST(more_rails_than_there_are_and_an_arena_that_cannot_be_registered_are_refused),
        TEST(a_drain_ends_clients_that_hold_no_slot_and_waits_for_those_that_do),
        TEST(what_is_in_memory_is_found_again_after_a_planned_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
