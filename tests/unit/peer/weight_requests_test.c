#include "model_dir.h"

#include <sys/socket.h>

#include <penstock/wire.h>

#include "base/clock.h"
#include "base/log.h"
#include "peer/models.h"
#include "peer/weight_requests.h"

#define TENSOR_BYTES 300000u

/* A peer without sockets to listen on: one connection over a pair of sockets, and the test as its client. */
struct fixture {
    char base[64], dir[256];
    struct peer_options options;
    struct peer_server server;
    struct peer_connection connection;
    struct peer_model *model;
    pthread_t thread;
    enum peer_end end;
    int client;
    uint8_t *content;
    size_t len;
};

static void *serve(void *argument)
{
    struct fixture *f = argument;
    f->end = peer_requests_serve(&f->connection, &peer_weight_requests);
    f->connection.stream.ops->close(&f->connection.stream);
    return NULL;
}

static void read_content(struct fixture *f)
{
    f->len = f->model->served.files[0].len_bytes;
    f->content = malloc(f->len);
    assert_non_null(f->content);
    assert_int_equal(pread(f->model->served.files[0].fd, f->content, f->len, 0), f->len);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct penstock_error error;
    int ends[2];
    assert_non_null(f);
    base_log_init(BASE_LOG_ERROR, false);
    strcpy(f->base, "/tmp/penstock-requests-XXXXXX");
    assert_non_null(mkdtemp(f->base));
    model_dir_make(f->base, "m", TENSOR_BYTES, 'm', f->dir);

    peer_options_init(&f->options);
    f->server.options = &f->options;
    f->server.deadlines.message_ns = 10 * BASE_SECOND_NS;
    pthread_mutex_init(&f->server.lock, NULL);
    base_list_init(&f->server.connections);
    peer_complaints_init(&f->server.complaints);
    residency_ledger_init(&f->server.ledger, 0);
    peer_live_init(&f->server.live, NULL, NULL, NULL);
    peer_models_init(&f->server.models,
                     &(struct peer_models_options){ .ledger = &f->server.ledger, .live = &f->server.live });
    assert_int_equal(peer_models_add(&f->server.models, NULL, f->dir, &error), 0);
    assert_int_equal(peer_models_get(&f->server.models, "m", &f->model, &error), 0);
    read_content(f);

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    f->client = ends[0];
    f->connection.server = &f->server;
    f->connection.served = &f->model->served;
    net_stream_plain(&f->connection.stream, ends[1]);
    *state = f;
    return 0;
}

static void start(struct fixture *f)
{
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    close(f->client);
    peer_served_unref(&f->model->served);
    peer_models_fini(&f->server.models);
    peer_live_fini(&f->server.live);
    residency_ledger_fini(&f->server.ledger);
    peer_complaints_fini(&f->server.complaints);
    pthread_mutex_destroy(&f->server.lock);
    peer_options_fini(&f->options);
    model_dir_remove(f->base);
    free(f->content);
    free(f);
    return 0;
}

static void ask(struct fixture *f, uint32_t file, uint64_t offset, uint64_t len)
{
    uint8_t bytes[PENSTOCK_RANGE_REQUEST_BYTES];
    penstock_range_request_encode(&(struct penstock_range_request){ file, offset, len }, bytes);
    assert_int_equal(send(f->client, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
}

static void take(struct fixture *f, void *to, size_t len)
{
    assert_int_equal(recv(f->client, to, len, MSG_WAITALL), len);
}

static uint8_t status(struct fixture *f)
{
    uint8_t byte;
    take(f, &byte, 1);
    return byte;
}

static void expect_bytes(struct fixture *f, uint64_t offset, size_t len)
{
    static uint8_t got[TENSOR_BYTES];
    assert_int_equal(status(f), PENSTOCK_STATUS_OK);
    take(f, got, len);
    assert_memory_equal(got, f->content + offset, len);
}

/* The client's side is closed; what the connection did with that. */
static enum peer_end end_of(struct fixture *f)
{
    shutdown(f->client, SHUT_WR);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    return f->end;
}

static void requests_are_answered_in_order_the_refused_ones_too(void **state)
{
    struct fixture *f = *state;
    ask(f, 0, 0, 100);
    ask(f, 0, 1, TENSOR_BYTES - 1);             /* by sendfile */
    ask(f, 0, 0, 0);                            /* empty */
    ask(f, 1, 0, 1);                            /* no such file */
    ask(f, 0, 0, PENSTOCK_RANGE_BYTES_MAX + 1); /* too long */
    ask(f, 0, f->len, 1);                       /* leaves the file */
    ask(f, 0, UINT64_MAX - 1, 4);               /* overflows */
    ask(f, 0, f->len - 10, 10);
    ask(f, PENSTOCK_FILE_END, 0, 0);
    ask(f, 0, 0, 5); /* after the end: not answered */
    start(f);
    expect_bytes(f, 0, 100);
    expect_bytes(f, 1, TENSOR_BYTES - 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(status(f), PENSTOCK_STATUS_ERR);
    expect_bytes(f, f->len - 10, 10);
    assert_int_equal(end_of(f), PEER_END_LINGER);
    uint8_t byte;
    assert_int_equal(recv(f->client, &byte, 1, 0), 0);
}

static void more_requests_than_a_batch_holds_are_all_answered(void **state)
{
    struct fixture *f = *state;
    uint64_t seed = 3;
    start(f); /* it takes requests while more are sent; the replies fit the socket's buffer */
    for (size_t i = 0; i < 3 * PENSTOCK_UNANSWERED_MAX; i++)
        ask(f, 0, test_random(&seed) % 1000, 1 + i % 50);
    seed = 3;
    for (size_t i = 0; i < 3 * PENSTOCK_UNANSWERED_MAX; i++)
        expect_bytes(f, test_random(&seed) % 1000, 1 + i % 50);
    assert_int_equal(end_of(f), PEER_END_CLOSE);
}

static void a_request_may_come_in_pieces(void **state)
{
    struct fixture *f = *state;
    uint8_t bytes[2 * PENSTOCK_RANGE_REQUEST_BYTES];
    start(f);
    for (size_t i = 0; i < 2; i++)
        penstock_range_request_encode(&(struct penstock_range_request){ 0, 7 * i, 9 },
                                      bytes + i * PENSTOCK_RANGE_REQUEST_BYTES);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(send(f->client, bytes + i, 1, MSG_NOSIGNAL), 1);
    expect_bytes(f, 0, 9);
    expect_bytes(f, 7, 9);
    assert_int_equal(end_of(f), PEER_END_CLOSE);
}

static uint32_t expect_digests(struct fixture *f, uint8_t *digests)
{
    uint8_t n[4];
    assert_int_equal(status(f), PENSTOCK_STATUS_OK);
    take(f, n, sizeof n);
    uint32_t count = (uint32_t)n[0] | (uint32_t)n[1] << 8 | (uint32_t)n[2] << 16 | (uint32_t)n[3] << 24;
    if (count > 0)
        take(f, digests, (size_t)count * PENSTOCK_DIGEST_BYTES);
    return count;
}

static void digests_are_given_as_far_as_they_are_known(void **state)
{
    struct fixture *f = *state;
    uint8_t digest[PENSTOCK_DIGEST_BYTES];
    start(f);
    ask(f, PENSTOCK_FILE_DIGESTS, 0, 0);
    assert_int_equal(expect_digests(f, digest), 0);

    peer_worker_do(&(struct peer_worker){ .live = &f->server.live, .hash = true }, &f->model->served);
    ask(f, PENSTOCK_FILE_DIGESTS, 0, 0);
    assert_int_equal(expect_digests(f, digest), 1);
    assert_memory_equal(digest, f->model->digests.files[0].at[0], sizeof digest);

    ask(f, PENSTOCK_FILE_DIGESTS, 0, 1); /* no such chunk */
    ask(f, PENSTOCK_FILE_DIGESTS, 1, 0); /* no such file */
    assert_int_equal(status(f), PENSTOCK_STATUS_ERR);
    assert_int_equal(status(f), PENSTOCK_STATUS_ERR);
    assert_int_equal(end_of(f), PEER_END_CLOSE);
}

static void a_file_that_cannot_be_hashed_has_no_digests(void **state)
{
    struct fixture *f = *state;
    start(f);
    atomic_store(&f->model->served.files[0].no_digests, true);
    ask(f, PENSTOCK_FILE_DIGESTS, 0, 0);
    assert_int_equal(status(f), PENSTOCK_STATUS_ERR);
    assert_int_equal(end_of(f), PEER_END_CLOSE);
}

static void a_peer_that_keeps_none_says_so(void **state)
{
    struct fixture *f = *state;
    f->options.no_digests = true;
    start(f);
    ask(f, PENSTOCK_FILE_DIGESTS, 0, 0);
    assert_int_equal(status(f), PENSTOCK_STATUS_ERR);
    assert_int_equal(end_of(f), PEER_END_CLOSE);
}

static void a_request_that_is_never_finished_ends_the_connection(void **state)
{
    struct fixture *f = *state;
    f->server.deadlines.message_ns = BASE_MS_NS;
    assert_int_equal(send(f->client, "\0\0\0", 3, MSG_NOSIGNAL), 3);
    start(f);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    assert_int_equal(f->end, PEER_END_CLOSE);
}

static void a_draining_peer_takes_no_further_requests(void **state)
{
    struct fixture *f = *state;
    atomic_store(&f->server.draining, true);
    ask(f, 0, 0, 10);
    start(f);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    assert_int_equal(f->end, PEER_END_LINGER);
}

#define with_peer(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_peer(requests_are_answered_in_order_the_refused_ones_too),
        with_peer(more_requests_than_a_batch_holds_are_all_answered),
        with_peer(a_request_may_come_in_pieces),
        with_peer(digests_are_given_as_far_as_they_are_known),
        with_peer(a_file_that_cannot_be_hashed_has_no_digests),
        with_peer(a_peer_that_keeps_none_says_so),
        with_peer(a_request_that_is_never_finished_ends_the_connection),
        with_peer(a_draining_peer_takes_no_further_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
