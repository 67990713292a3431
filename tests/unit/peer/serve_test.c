#include "model_dir.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include <penstock/wire.h>

#include "base/log.h"
#include "net/stream.h"
#include "peer/peer.h"
#include "rail/set.h"
#include "verbs/sim/sim.h"

/* A whole daemon on a host of the simulated fabric, and the test as a client on another. */
struct fixture {
    char base[64], dir[256], address[32];
    struct sockaddr_in at;
    struct sim_fabric *fabric;
    struct verbs_world *peer_host, *client_host;
    struct peer_options options;
    pthread_t thread;
    int code;
    struct penstock_error error;
};

static void choose_address(struct fixture *f)
{
    socklen_t len = sizeof f->at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    f->at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    assert_int_equal(bind(fd, (struct sockaddr *)&f->at, sizeof f->at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&f->at, &len), 0);
    close(fd);
    snprintf(f->address, sizeof f->address, "127.0.0.1:%u", ntohs(f->at.sin_port));
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    base_log_init(BASE_LOG_ERROR, false);
    strcpy(f->base, "/tmp/penstock-serve-XXXXXX");
    assert_non_null(mkdtemp(f->base));
    model_dir_make(f->base, "m", 5000, 'm', f->dir);
    choose_address(f);
    f->fabric = sim_new(NULL);
    f->peer_host = sim_host(f->fabric);
    f->client_host = sim_host(f->fabric);
    sim_port(f->peer_host, "peer0", NULL);
    sim_port(f->peer_host, "peer1", NULL);
    sim_port(f->client_host, "client0", NULL);
    peer_options_init(&f->options);
    f->options.world = f->peer_host;
    f->options.no_digests = f->options.no_warm = true;
    assert_true(base_vec_push(&f->options.weights, (struct peer_directory){ .path = f->dir }));
    assert_true(base_vec_push(&f->options.listen[PEER_TIER_WEIGHTS], f->address));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    peer_options_fini(&f->options);
    sim_free(f->fabric); /* aborts where the peer has left something */
    model_dir_remove(f->base);
    free(f);
    return 0;
}

static void *run(void *argument)
{
    struct fixture *f = argument;
    f->code = peer_run(&f->options, &f->error);
    return NULL;
}

/* A connection, as soon as the peer listens. */
static void connect_to(struct fixture *f, struct net_stream *stream)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (connect(fd, (struct sockaddr *)&f->at, sizeof f->at) != 0)
        sched_yield();
    net_stream_plain(stream, fd);
}

static void start(struct fixture *f)
{
    assert_int_equal(pthread_create(&f->thread, NULL, run, f), 0);
}

static void stop(struct fixture *f)
{
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    assert_int_equal(f->code, 0);
}

/* Sends a model request. Returns the JSON that answers it, NUL-terminated, to be freed. */
static char *ask(struct net_stream *stream, const char *text)
{
    struct penstock_error error;
    uint8_t head[4] = { (uint8_t)strlen(text) };
    assert_int_equal(net_stream_write_all(stream, head, sizeof head, INT64_MAX, &error), 0);
    assert_int_equal(net_stream_write_all(stream, text, strlen(text), INT64_MAX, &error), 0);
    assert_int_equal(net_stream_read_all(stream, head, sizeof head, INT64_MAX, NULL, &error), 0);
    size_t len = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16;
    char *json = calloc(1, len + 1);
    assert_non_null(json);
    assert_int_equal(net_stream_read_all(stream, json, len, INT64_MAX, NULL, &error), 0);
    return json;
}

static void a_peer_lists_its_rails_and_serves_them_until_their_client_is_done(void **state)
{
    struct fixture *f = *state;
    const struct rail_wishes all = { 0 };
    struct penstock_error error;
    struct net_stream listing, stream;
    start(f);

    connect_to(f, &listing);
    char *json = ask(&listing, "penstock:models");
    assert_non_null(strstr(json,
                           "\"rails\":[{\"index\":0,\"device\":\"peer0\",\"gid\":\"00000000000000000000ffff0a4d0001\","
                           "\"mtu\":5,\"gbps\":100},{\"index\":1,\"device\":\"peer1\","));
    free(json);
    listing.ops->close(&listing);

    struct rail_devices rails;
    struct verbs_pd *pd;
    assert_int_equal(rail_devices_open(f->client_host, &all, &rails, &error), 0);
    assert_int_equal(verbs_pd_new(rails.devices[0], &pd, &error), 0);
    connect_to(f, &stream);
    free(ask(&stream, "m"));
    const uint8_t mode = PENSTOCK_MODE_VERBS;
    assert_int_equal(net_stream_write_all(&stream, &mode, 1, INT64_MAX, &error), 0);
    struct rail_set set;
    size_t up;
    rail_set_init(&set, &(struct rail_set_config){ .devices = &rails, .pds = &pd, .depth = 1, .sges_max = 1 });
    const struct net_handshake_config config = {
        .dialect = PENSTOCK_READ_ONLY, .ops = &rail_set_ops, .rails = &set, .n_rails = 1, .n_regions = 1
    };
    assert_int_equal(net_handshake_as_client(&stream, &config, NULL, &up, &error), 0);
    struct sim_objects objects = sim_host_objects(f->peer_host);
    assert_int_equal(objects.mrs, 2); /* of one shard on two devices: registered at the start, or for this client */
    assert_int_equal(objects.qps, 1);

    /* A drain waits for the rail, so that it is still there when the listener is not. */
    kill(getpid(), SIGTERM);
    for (int fd;; close(fd)) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&f->at, sizeof f->at) != 0) {
            close(fd);
            break;
        }
    }
    assert_int_equal(sim_host_objects(f->peer_host).qps, 1);
    rail_set_fini(&set);
    stream.ops->close(&stream);
    stop(f);
    verbs_pd_free(pd);
    rail_devices_close(&rails);
}

static void a_rail_that_was_named_and_is_not_there_ends_the_start(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    assert_int_equal(rail_wishes_add(&f->options.rails, "peer7", true, &error), 0);
    assert_int_equal(peer_run(&f->options, &error), PENSTOCK_ENOTFOUND);
    assert_non_null(strstr(error.message, "--rail: "));
    assert_non_null(strstr(error.message, "peer7"));
}

static void a_peer_whose_ports_are_down_serves_over_tcp(void **state)
{
    struct fixture *f = *state;
    struct verbs_world *host = sim_host(f->fabric);
    struct net_stream stream;
    sim_port(host, "down", &(struct sim_port_options){ .down = true });
    f->options.world = host;
    start(f);
    connect_to(f, &stream);
    char *json = ask(&stream, "penstock:models");
    assert_non_null(strstr(json, "\"rails\":[]"));
    free(json);
    stream.ops->close(&stream);
    kill(getpid(), SIGTERM);
    stop(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_peer_lists_its_rails_and_serves_them_until_their_client_is_done, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_rail_that_was_named_and_is_not_there_ends_the_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_peer_whose_ports_are_down_serves_over_tcp, set_up, tear_down),
    };
    /* The signal is for the daemon's thread, which waits for it. */
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
