#include "model_dir.h"

#include <stdatomic.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "peer/verbs_service.h"
#include "verbs/sim/sim.h"

#define SHARD_BYTES 300000u

/* A peer of one connection, over a pair of sockets, and the test as its client, a host on the same fabric. */
struct fixture {
    char base[64], dir[256];
    struct sim_fabric *fabric;
    struct verbs_world *peer_host, *client_host;
    struct peer_options options;
    struct peer_server server;
    struct peer_connection connection;
    struct peer_model *model;
    pthread_t thread;
    enum peer_end end;
    struct net_stream_ops ops; /* the connection's, with an eye on when it is shut down */
    _Atomic size_t qps_at_shutdown;

    struct net_stream stream; /* the client's */
    struct rail_devices rails;
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX];
    uint64_t expected_bytes[1];
    struct rail_set set;
};

static struct fixture *watching; /* the stream's ops have no context of their own */

static void watch_shutdown(struct net_stream *stream, int how)
{
    watching->qps_at_shutdown = sim_host_objects(watching->peer_host).qps;
    struct net_stream plain = *stream;
    net_stream_plain(&plain, stream->fd);
    plain.ops->shutdown(&plain, how);
}

static void *serve(void *argument)
{
    struct fixture *f = argument;
    f->end = peer_verbs_serve(&f->connection);
    if (f->end == PEER_END_LINGER)
        net_stream_linger(&f->connection.stream, 10 * BASE_SECOND_NS);
    f->connection.stream.ops->close(&f->connection.stream);
    return NULL;
}

static void set_up_peer(struct fixture *f)
{
    struct penstock_error error;
    model_dir_make(f->base, "m", SHARD_BYTES, 'm', f->dir);
    peer_options_init(&f->options);
    f->server.options = &f->options;
    f->server.deadlines.message_ns = f->server.deadlines.mode_ns = 10 * BASE_SECOND_NS;
    f->server.registrar = (struct peer_registrar){ .rails = &f->server.rails,
                                                   .ledger = &f->server.ledger,
                                                   .complaints = &f->server.complaints,
                                                   .stop = &f->server.draining };
    pthread_mutex_init(&f->server.lock, NULL);
    base_list_init(&f->server.connections);
    peer_complaints_init(&f->server.complaints);
    residency_ledger_init(&f->server.ledger, 0);
    peer_live_init(&f->server.live, NULL, NULL, NULL);
    peer_models_init(&f->server.models,
                     &(struct peer_models_options){ .ledger = &f->server.ledger, .live = &f->server.live });
    assert_int_equal(peer_models_add(&f->server.models, NULL, f->dir, &error), 0);
    assert_int_equal(peer_models_get(&f->server.models, "m", &f->model, &error), 0);
}

static void connect_the_two(struct fixture *f)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    net_stream_plain(&f->stream, ends[0]);
    net_stream_plain(&f->connection.stream, ends[1]);
    f->ops = *f->connection.stream.ops;
    f->ops.shutdown = watch_shutdown;
    f->connection.stream.ops = &f->ops;
    f->connection.server = &f->server;
    f->connection.served = &f->model->served;
    strcpy(f->connection.client, "10.0.0.9:1111");
    base_list_append(&f->server.connections, &f->connection.node);
    watching = f;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    const struct rail_wishes all = { 0 };
    struct penstock_error error;
    assert_non_null(f);
    base_log_init(BASE_LOG_ERROR, false);
    strcpy(f->base, "/tmp/penstock-verbs-XXXXXX");
    assert_non_null(mkdtemp(f->base));
    f->fabric = sim_new(&(struct sim_options){ .automatic = true });
    f->peer_host = sim_host(f->fabric);
    f->client_host = sim_host(f->fabric);
    const struct sim_port_options small_mtu = { .mtu = 4 };
    sim_port(f->peer_host, "peer0", &small_mtu);
    sim_port(f->peer_host, "peer1", NULL);
    sim_port(f->client_host, "client0", &small_mtu);
    sim_port(f->client_host, "client1", NULL);
    assert_int_equal(rail_devices_open(f->peer_host, &all, &f->server.rails, &error), 0);
    assert_int_equal(rail_devices_open(f->client_host, &all, &f->rails, &error), 0);
    for (size_t i = 0; i < f->rails.n; i++)
        assert_int_equal(verbs_pd_new(f->rails.devices[i], &f->pds[i], &error), 0);
    set_up_peer(f);
    connect_the_two(f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < f->rails.n; i++)
        verbs_pd_free(f->pds[i]);
    rail_devices_close(&f->rails);
    peer_served_unref(&f->model->served);
    peer_models_fini(&f->server.models);
    peer_live_fini(&f->server.live);
    assert_int_equal(sim_host_objects(f->peer_host).mrs, 0);
    rail_devices_close(&f->server.rails);
    residency_ledger_fini(&f->server.ledger);
    peer_complaints_fini(&f->server.complaints);
    pthread_mutex_destroy(&f->server.lock);
    peer_options_fini(&f->options);
    sim_free(f->fabric); /* aborts where an object is left */
    model_dir_remove(f->base);
    free(f);
    return 0;
}

static void start(struct fixture *f)
{
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
}

/* The client closes, if it has not; the peer has nothing left of it. */
static void finish(struct fixture *f)
{
    f->stream.ops->close(&f->stream);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    assert_int_equal(sim_host_objects(f->peer_host).qps, 0);
    assert_int_equal(sim_host_objects(f->peer_host).cqs, 0);
}

static int shake_hands(struct fixture *f, size_t n, const struct penstock_rail_choice *wishes,
                       struct penstock_error *error)
{
    size_t up;
    f->expected_bytes[0] = f->model->served.files[0].len_bytes;
    rail_set_init(&f->set, &(struct rail_set_config){ .devices = &f->rails,
                                                      .pds = f->pds,
                                                      .depth = 4,
                                                      .sges_max = 1,
                                                      .expected_bytes = f->expected_bytes,
                                                      .n_expected = 1 });
    const struct net_handshake_config config = { .dialect = PENSTOCK_READ_ONLY,
                                                 .ops = &rail_set_ops,
                                                 .rails = &f->set,
                                                 .n_rails = n,
                                                 .n_regions = 1,
                                                 .wishes = wishes };
    return net_handshake_as_client(&f->stream, &config, NULL, &up, error);
}

/* The whole shard over rail i of the connection. Returns the completion's status. */
static int read_over(struct fixture *f, size_t i, uint8_t *to)
{
    struct penstock_error error;
    struct verbs_mr *mr;
    size_t posted;
    struct rail *rail = &f->set.rails[i];
    uint64_t len = f->model->served.files[0].len_bytes;
    assert_int_equal(verbs_mr_new(f->pds[i], to, len, VERBS_LOCAL_WRITE, &mr, &error), 0);
    const struct verbs_sge sge = { .address = mr->base, .len_bytes = (uint32_t)len, .lkey = mr->lkey };
    const struct verbs_request request = { .opcode = VERBS_READ,
                                           .signaled = true,
                                           .remote = rail->regions[0].base,
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

static void assert_reads(struct fixture *f, size_t rails)
{
    uint64_t len = f->model->served.files[0].len_bytes;
    for (size_t i = 0; i < rails; i++) {
        uint8_t *got = calloc(1, len);
        assert_non_null(got);
        assert_int_equal(read_over(f, i, got), 0);
        assert_memory_equal(got, f->model->served.files[0].mapping, len);
        free(got);
    }
}

static void a_client_reads_the_shard_over_every_rail(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    start(f);
    assert_int_equal(shake_hands(f, 2, NULL, &error), 0);
    assert_reads(f, 2);
    rail_set_fini(&f->set);
    finish(f);
    assert_int_equal(f->end, PEER_END_CLOSE);
    assert_int_equal(f->qps_at_shutdown, 2); /* the stream goes first */
}

static void a_client_that_chooses_gets_the_rails_and_values_agreed_on(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    const struct penstock_rail_choice wishes[] = { { 1, 4, 7 }, { PENSTOCK_PEER_RAIL_ANY, 5, 100 } };
    struct verbs_qp_state is;
    start(f);
    assert_int_equal(shake_hands(f, 2, wishes, &error), 0);
    assert_int_equal(f->set.rails[0].peer_rail, 1);
    assert_int_equal(f->set.rails[1].peer_rail, 0);
    assert_int_equal(verbs_qp_query(f->set.rails[0].qp, &is, &error), 0);
    assert_int_equal(is.mtu, 4);
    assert_int_equal(is.reads_out, 7);
    assert_int_equal(verbs_qp_query(f->set.rails[1].qp, &is, &error), 0);
    assert_int_equal(is.mtu, 4);
    assert_int_equal(is.reads_out, 16);
    assert_reads(f, 2);
    rail_set_fini(&f->set);
    finish(f);
}

static void what_a_connected_client_sends_is_discarded(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    uint8_t noise[5000] = { 1 };
    start(f);
    assert_int_equal(shake_hands(f, 1, NULL, &error), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(send(f->stream.fd, noise, sizeof noise, MSG_NOSIGNAL), sizeof noise);
    assert_reads(f, 1);
    assert_int_equal(recv(f->stream.fd, noise, 1, MSG_DONTWAIT), -1); /* nothing is answered */
    rail_set_fini(&f->set);
    finish(f);
}

static void nothing_can_be_written_through_a_rail(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    struct verbs_mr *mr;
    uint8_t bytes[16] = { 0 };
    size_t posted;
    start(f);
    assert_int_equal(shake_hands(f, 1, NULL, &error), 0);
    struct rail *rail = &f->set.rails[0];
    assert_int_equal(verbs_mr_new(f->pds[0], bytes, sizeof bytes, VERBS_LOCAL_WRITE, &mr, &error), 0);
    const struct verbs_sge sge = { .address = mr->base, .len_bytes = sizeof bytes, .lkey = mr->lkey };
    const struct verbs_request request = { .opcode = VERBS_WRITE,
                                           .signaled = true,
                                           .remote = rail->regions[0].base,
                                           .rkey = rail->regions[0].rkey,
                                           .n_sges = 1,
                                           .sges = &sge };
    assert_int_equal(verbs_post(rail->qp, &request, 1, &posted, &error), 0);
    struct verbs_completion completion;
    while (verbs_cq_poll(rail->cq, &completion, 1, &error) == 0)
        ;
    assert_int_not_equal(completion.status, 0);
    rail_set_fini(&f->set);
    verbs_mr_free(mr);
    finish(f);
}

/* ---- the end, from the peer's side ---- */

static void assert_stream_ended(struct fixture *f)
{
    uint8_t byte;
    assert_int_equal(recv(f->stream.fd, &byte, 1, 0), 0);
}

static void a_drain_leaves_it_alone_until_its_time_is_over(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    start(f);
    assert_int_equal(shake_hands(f, 2, NULL, &error), 0);
    atomic_store(&f->server.draining, true);
    peer_connections_end_idle(&f->server);
    assert_reads(f, 2);
    peer_connections_end_all(&f->server);
    assert_stream_ended(f);
    rail_set_fini(&f->set);
    finish(f);
    assert_int_equal(f->qps_at_shutdown, 2);
}

/* Another connection, over TCP, that waits for a request. */
struct other {
    struct peer_connection connection;
    int far_end;
};

static void open_other(struct fixture *f, struct other *o, const char *client)
{
    int ends[2];
    *o = (struct other){ .connection = { .server = &f->server, .waiting = true } };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    net_stream_plain(&o->connection.stream, ends[0]);
    o->far_end = ends[1];
    strcpy(o->connection.client, client);
    base_list_append(&f->server.connections, &o->connection.node);
}

static bool is_ended(const struct other *o)
{
    uint8_t byte;
    return recv(o->connection.stream.fd, &byte, 1, MSG_DONTWAIT) == 0;
}

static void close_other(struct other *o)
{
    base_list_remove(&o->connection.node);
    o->connection.stream.ops->close(&o->connection.stream);
    close(o->far_end);
}

static void a_drain_spares_what_its_host_has_beside_it_for_as_long(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    struct other same, stranger;
    open_other(f, &same, "10.0.0.9:2222");
    open_other(f, &stranger, "10.0.0.99:1111");
    start(f);
    assert_int_equal(shake_hands(f, 1, NULL, &error), 0);
    atomic_store(&f->server.draining, true);
    peer_connections_end_idle(&f->server);
    assert_true(is_ended(&stranger));
    assert_false(is_ended(&same));
    rail_set_fini(&f->set);
    finish(f);
    assert_true(is_ended(&same));
    close_other(&same);
    close_other(&stranger);
}

static void a_model_that_was_rewritten_closes_it(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    start(f);
    assert_int_equal(shake_hands(f, 1, NULL, &error), 0);
    peer_connections_end_served(&f->server, &f->model->served);
    assert_stream_ended(f);
    rail_set_fini(&f->set);
    finish(f);
}

/* ---- refusals ---- */

static void assert_refused(struct fixture *f, const void *bytes, size_t len)
{
    start(f);
    assert_int_equal(send(f->stream.fd, bytes, len, MSG_NOSIGNAL), len);
    assert_stream_ended(f);
    finish(f);
    assert_int_equal(f->end, PEER_END_LINGER);
}

static void no_rails_are_refused(void **state)
{
    assert_refused(*state, "\0", 1);
}

static void more_rails_than_there_are_are_refused(void **state)
{
    assert_refused(*state, "\3", 1);
}

static void nine_rails_are_refused(void **state)
{
    assert_refused(*state, "\11", 1);
}

static void a_choice_of_a_rail_that_is_not_there_is_refused(void **state)
{
    assert_refused(*state, "\x81\x02\x05\x10", 4);
}

static void a_choice_of_one_rail_twice_is_refused(void **state)
{
    assert_refused(*state, "\x82\0\5\x10\0\5\x10", 7);
}

static void a_count_that_changes_is_refused(void **state)
{
    struct fixture *f = *state;
    uint8_t tables[1 + 28 + 12], identities[1 + 2 * 24] = { 2 };
    start(f);
    assert_int_equal(send(f->stream.fd, "\1", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(recv(f->stream.fd, tables, sizeof tables, MSG_WAITALL), sizeof tables);
    assert_int_equal(send(f->stream.fd, identities, sizeof identities, MSG_NOSIGNAL), sizeof identities);
    assert_stream_ended(f);
    finish(f);
    assert_int_equal(f->end, PEER_END_LINGER);
}

static void a_client_that_leaves_inside_the_handshake_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    uint8_t tables[1 + 28 + 12];
    start(f);
    assert_int_equal(send(f->stream.fd, "\1", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(recv(f->stream.fd, tables, sizeof tables, MSG_WAITALL), sizeof tables);
    finish(f);
}

static void a_peer_without_rails_refuses(void **state)
{
    struct fixture *f = *state;
    struct rail_devices rails = f->server.rails;
    f->server.rails = (struct rail_devices){ 0 };
    assert_refused(f, "\1", 1);
    f->server.rails = rails;
}

static void a_model_that_cannot_be_registered_is_refused(void **state)
{
    struct fixture *f = *state;
    sim_host_memlock(f->peer_host, 1000);
    assert_refused(f, "\1", 1);
}

static void every_call_that_fails_is_a_refusal_that_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    const enum sim_call calls[] = { SIM_CQ_NEW, SIM_QP_NEW, SIM_QP_CONNECT };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (uint64_t nth = 1; nth <= 2; nth++) {
            struct penstock_error error;
            sim_fail_calls(f->peer_host, calls[i], nth, 1, PENSTOCK_ESYS);
            start(f);
            assert_int_equal(shake_hands(f, 2, NULL, &error), PENSTOCK_EDENIED);
            rail_set_fini(&f->set);
            finish(f);
            connect_the_two(f);
        }
    f->stream.ops->close(&f->stream);
    f->connection.stream.ops->close(&f->connection.stream);
}

#define with_peer(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_peer(a_client_reads_the_shard_over_every_rail),
        with_peer(a_client_that_chooses_gets_the_rails_and_values_agreed_on),
        with_peer(what_a_connected_client_sends_is_discarded),
        with_peer(nothing_can_be_written_through_a_rail),
        with_peer(a_drain_leaves_it_alone_until_its_time_is_over),
        with_peer(a_drain_spares_what_its_host_has_beside_it_for_as_long),
        with_peer(a_model_that_was_rewritten_closes_it),
        with_peer(no_rails_are_refused),
        with_peer(more_rails_than_there_are_are_refused),
        with_peer(nine_rails_are_refused),
        with_peer(a_choice_of_a_rail_that_is_not_there_is_refused),
        with_peer(a_choice_of_one_rail_twice_is_refused),
        with_peer(a_count_that_changes_is_refused),
        with_peer(a_client_that_leaves_inside_the_handshake_leaves_nothing),
        with_peer(a_peer_without_rails_refuses),
        with_peer(a_model_that_cannot_be_registered_is_refused),
        with_peer(every_call_that_fails_is_a_refusal_that_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
