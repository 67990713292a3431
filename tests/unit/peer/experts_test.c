#include "../model/experts/made_store.h"

#include <pthread.h>
#include <sys/socket.h>

#include <penstock/wire.h>

#include "base/clock.h"
#include "base/log.h"
#include "model/experts/store.h"
#include "peer/service.h"
#include "rail/set.h"
#include "verbs/sim/sim.h"

/* A peer on a host of the simulated fabric with two rails, its connection, and the test as the client at the other end.
 */
struct fixture {
    struct sim_fabric *fabric;
    struct verbs_world *peer_host, *client_host;
    struct peer_options options;
    struct peer_server server;
    struct model_stage_options stage;
    struct peer_connection connection;
    pthread_t thread;
    enum peer_end end;

    struct model_store store; /* the test's own look at it */
    struct net_stream stream; /* the client's */
    struct rail_devices rails;
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX];
    uint64_t expected_bytes[MADE_LAYERS];
    struct rail_set set;
};

static void *serve(void *argument)
{
    struct fixture *f = argument;
    struct peer_connection *c = &f->connection;
    f->end = peer_experts_service.serve(c);
    if (f->end == PEER_END_LINGER)
        net_stream_linger(&c->stream, 10 * BASE_SECOND_NS);
    c->stream.ops->close(&c->stream);
    if (c->served)
        peer_served_unref(c->served);
    return NULL;
}

static void set_up_peer(struct fixture *f, uint64_t ceiling)
{
    struct penstock_error error;
    struct peer_server *s = &f->server;
    peer_options_init(&f->options);
    f->options.experts = test_path("store");
    s->options = &f->options;
    s->deadlines = (struct peer_deadlines){ .message_ns = 10 * BASE_SECOND_NS, .mode_ns = 10 * BASE_SECOND_NS };
    s->registrar = (struct peer_registrar){
        .rails = &s->rails, .ledger = &s->ledger, .complaints = &s->complaints, .stop = &s->draining
    };
    pthread_mutex_init(&s->lock, NULL);
    base_list_init(&s->connections);
    peer_complaints_init(&s->complaints);
    residency_ledger_init(&s->ledger, ceiling);
    peer_live_init(&s->live, NULL, NULL, NULL);
    peer_experts_init(&s->experts, f->options.experts, &f->stage, &s->ledger, &s->live);
    assert_true(peer_experts_service.wanted(&f->options));
    assert_int_equal(peer_experts_service.open(s, &error), 0);
}

static int set_up_with(void **state, uint64_t ceiling)
{
    struct fixture *f = calloc(1, sizeof *f);
    const struct rail_wishes all = { 0 };
    struct penstock_error error;
    int ends[2];
    assert_non_null(f);
    assert_int_equal(test_directory_setup(state), 0);
    base_log_init(BASE_LOG_ERROR, false);
    made_store();
    assert_int_equal(model_store_open(test_path("store"), NULL, &f->store, &error), 0);
    f->fabric = sim_new(&(struct sim_options){ .automatic = true });
    f->peer_host = sim_host(f->fabric);
    f->client_host = sim_host(f->fabric);
    for (int i = 0; i < 2; i++) {
        sim_port(f->peer_host, i ? "peer1" : "peer0", NULL);
        sim_port(f->client_host, i ? "client1" : "client0", NULL);
    }
    assert_int_equal(rail_devices_open(f->peer_host, &all, &f->server.rails, &error), 0);
    assert_int_equal(rail_devices_open(f->client_host, &all, &f->rails, &error), 0);
    for (size_t i = 0; i < f->rails.n; i++)
        assert_int_equal(verbs_pd_new(f->rails.devices[i], &f->pds[i], &error), 0);
    set_up_peer(f, ceiling);

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    net_stream_plain(&f->stream, ends[0]);
    net_stream_plain(&f->connection.stream, ends[1]);
    f->connection.server = &f->server;
    f->connection.service = &peer_experts_service;
    base_list_append(&f->server.connections, &f->connection.node);
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
    *state = f;
    return 0;
}

static int set_up(void **state)
{
    return set_up_with(state, 0);
}

/* The store fits, and the copy that RDMA is held by does not. */
static int set_up_without_room(void **state)
{
    struct model_expert_geometry sizes = made_sizes;
    assert_int_equal(model_expert_geometry_compute(&sizes, NULL), 0);
    return set_up_with(state, sizes.total_bytes + 1);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    f->stream.ops->close(&f->stream);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    for (size_t i = 0; i < f->rails.n; i++)
        verbs_pd_free(f->pds[i]);
    rail_devices_close(&f->rails);
    assert_int_equal(sim_host_objects(f->peer_host).qps, 0);
    peer_experts_fini(&f->server.experts);
    peer_live_fini(&f->server.live);
    assert_int_equal(sim_host_objects(f->peer_host).mrs, 0);
    assert_int_equal(residency_used(&f->server.ledger), 0);
    rail_devices_close(&f->server.rails);
    residency_ledger_fini(&f->server.ledger);
    peer_complaints_fini(&f->server.complaints);
    pthread_mutex_destroy(&f->server.lock);
    peer_options_fini(&f->options);
    sim_free(f->fabric); /* aborts where an object is left */
    model_store_close(&f->store);
    free(f);
    return test_directory_teardown(state);
}

/* ---- the client ---- */

static void send_bytes(struct fixture *f, const void *bytes, size_t len)
{
    assert_int_equal(send(f->stream.fd, bytes, len, MSG_NOSIGNAL), len);
}

static void take_bytes(struct fixture *f, void *to, size_t len)
{
    assert_int_equal(recv(f->stream.fd, to, len, MSG_WAITALL), len);
}

/* What comes before anything is asked has to be a manifest of this store. */
static void take_manifest(struct fixture *f)
{
    uint8_t head[4];
    struct penstock_error error;
    struct model_expert_manifest manifest;
    take_bytes(f, head, sizeof head);
    size_t len = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16;
    char *json = malloc(len);
    assert_non_null(json);
    take_bytes(f, json, len);
    assert_int_equal(model_expert_manifest_read(json, len, &manifest, &error), 0);
    assert_true(model_expert_manifest_same(&manifest, &f->store.manifest));
    assert_string_equal(manifest.model_version, f->store.manifest.model_version);
    model_expert_manifest_fini(&manifest);
    free(json);
}

static void ask(struct fixture *f, uint32_t layer, uint32_t expert)
{
    uint8_t bytes[PENSTOCK_EXPERT_REQUEST_BYTES];
    penstock_expert_request_encode(&(struct penstock_expert_request){ layer, expert }, bytes);
    send_bytes(f, bytes, sizeof bytes);
}

static uint8_t *record_of(struct fixture *f, uint32_t layer, uint32_t expert)
{
    uint8_t *record = malloc(f->store.manifest.geometry.record_stride);
    assert_non_null(record);
    assert_int_equal(model_store_record(&f->store, layer, expert, record, NULL, NULL), 0);
    return record;
}

static void assert_record_comes(struct fixture *f, uint32_t layer, uint32_t expert)
{
    size_t stride = (size_t)f->store.manifest.geometry.record_stride;
    uint8_t status, *wanted = record_of(f, layer, expert), *got = malloc(stride);
    assert_non_null(got);
    take_bytes(f, &status, 1);
    assert_int_equal(status, PENSTOCK_STATUS_OK);
    take_bytes(f, got, stride);
    assert_memory_equal(got, wanted, stride);
    free(got);
    free(wanted);
}

static int shake_hands(struct fixture *f, const struct penstock_rail_choice *wishes, struct penstock_error *error)
{
    size_t up;
    const uint8_t mode = PENSTOCK_MODE_VERBS;
    take_manifest(f);
    send_bytes(f, &mode, 1);
    for (size_t i = 0; i < MADE_LAYERS; i++)
        f->expected_bytes[i] = f->store.manifest.geometry.layer_bytes;
    rail_set_init(&f->set, &(struct rail_set_config){ .devices = &f->rails,
                                                      .pds = f->pds,
                                                      .depth = 4,
                                                      .sges_max = 1,
                                                      .expected_bytes = f->expected_bytes,
                                                      .n_expected = MADE_LAYERS });
    const struct net_handshake_config config = { .dialect = PENSTOCK_READ_ONLY,
                                                 .ops = &rail_set_ops,
                                                 .rails = &f->set,
                                                 .n_rails = 2,
                                                 .n_regions = MADE_LAYERS,
                                                 .wishes = wishes };
    return net_handshake_as_client(&f->stream, &config, NULL, &up, error);
}

/* One READ over rail expert mod 2 (protocol 1.4). */
static void assert_record_is_read(struct fixture *f, uint32_t layer, uint32_t expert)
{
    struct penstock_error error;
    struct verbs_mr *mr;
    size_t posted, i = expert % 2, stride = (size_t)f->store.manifest.geometry.record_stride;
    struct rail *rail = &f->set.rails[i];
    uint8_t *got = calloc(1, stride), *wanted = record_of(f, layer, expert);
    assert_non_null(got);
    assert_int_equal(verbs_mr_new(f->pds[i], got, stride, VERBS_LOCAL_WRITE, &mr, &error), 0);
    const struct verbs_sge sge = { .address = mr->base, .len_bytes = (uint32_t)stride, .lkey = mr->lkey };
    const struct verbs_request request = { .opcode = VERBS_READ,
                                           .signaled = true,
                                           .remote = rail->regions[layer].base + expert * stride,
                                           .rkey = rail->regions[layer].rkey,
                                           .n_sges = 1,
                                           .sges = &sge };
    assert_int_equal(verbs_post(rail->qp, &request, 1, &posted, &error), 0);
    struct verbs_completion completion;
    int n = 0;
    while (n == 0)
        n = verbs_cq_poll(rail->cq, &completion, 1, &error);
    assert_int_equal(n, 1);
    assert_int_equal(completion.status, 0);
    assert_memory_equal(got, wanted, stride);
    verbs_mr_free(mr);
    free(wanted);
    free(got);
}

/* ---- */

static void records_come_in_the_order_asked_for(void **state)
{
    struct fixture *f = *state;
    const uint8_t mode = PENSTOCK_MODE_TCP;
    uint8_t status;
    take_manifest(f);
    send_bytes(f, &mode, 1);
    ask(f, 1, 2);
    ask(f, MADE_LAYERS, 0);
    ask(f, 0, MADE_EXPERTS);
    ask(f, 0, 1);
    assert_record_comes(f, 1, 2);
    for (int i = 0; i < 2; i++) {
        take_bytes(f, &status, 1);
        assert_int_equal(status, PENSTOCK_STATUS_ERR);
    }
    assert_record_comes(f, 0, 1);
    ask(f, PENSTOCK_SHUTDOWN_MARKER, PENSTOCK_SHUTDOWN_MARKER);
    assert_int_equal(recv(f->stream.fd, &status, 1, 0), 0);
}

static void every_record_is_read_over_the_rail_of_its_expert(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    assert_int_equal(shake_hands(f, NULL, &error), 0);
    assert_int_equal(sim_host_objects(f->peer_host).mrs, 2 * MADE_LAYERS); /* each on two devices */
    for (uint32_t layer = 0; layer < MADE_LAYERS; layer++)
        for (uint32_t expert = 0; expert < MADE_EXPERTS; expert++)
            assert_record_is_read(f, layer, expert);
    rail_set_fini(&f->set);
}

static void a_client_may_choose_its_rails(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    const struct penstock_rail_choice wishes[] = { { 1, 5, 7 }, { PENSTOCK_PEER_RAIL_ANY, 5, 100 } };
    assert_int_equal(shake_hands(f, wishes, &error), 0);
    assert_int_equal(f->set.rails[0].peer_rail, 1);
    assert_int_equal(f->set.rails[1].peer_rail, 0);
    assert_record_is_read(f, 1, 1);
    rail_set_fini(&f->set);
}

static void a_store_rewritten_in_place_ends_its_connection(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    uint8_t byte = 0;
    assert_int_equal(shake_hands(f, NULL, &error), 0);
    peer_connections_end_served(&f->server, f->connection.served);
    assert_int_equal(recv(f->stream.fd, &byte, 1, 0), 0);
    rail_set_fini(&f->set);
}

static void without_room_for_the_copy_rails_are_refused_after_step_1(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    f->server.registrar.hold = PEER_HOLD_COPY;
    int code = shake_hands(f, NULL, &error);
    rail_set_fini(&f->set);
    assert_int_equal(code, PENSTOCK_EDENIED);
}

#define with_store(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_store(records_come_in_the_order_asked_for),
        with_store(every_record_is_read_over_the_rail_of_its_expert),
        with_store(a_client_may_choose_its_rails),
        with_store(a_store_rewritten_in_place_ends_its_connection),
        cmocka_unit_test_setup_teardown(without_room_for_the_copy_rails_are_refused_after_step_1, set_up_without_room,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
