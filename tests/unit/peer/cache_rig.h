/* A cache peer in this process, on a host of the simulated fabric: each connection is a thread of its service over a
 * pair of sockets, and the test is its client. */
#ifndef PENSTOCK_TEST_CACHE_RIG_H
#define PENSTOCK_TEST_CACHE_RIG_H

#include "../test.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <penstock/wire.h>

#include "base/clock.h"
#include "base/log.h"
#include "peer/service.h"
#include "rail/set.h"
#include "verbs/sim/sim.h"

#define RIG_BLOB 4096u

struct rig {
    char swap_dir[64];
    struct sim_fabric *fabric;
    struct verbs_world *peer_host, *client_host;
    struct peer_options options;
    struct peer_server server;
    struct rail_devices rails; /* the clients' */
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX];
};

struct rig_client {
    struct rig *rig;
    struct peer_connection connection;
    pthread_t thread;
    enum peer_end end;
    struct net_stream stream;
    struct penstock_paging_framing framing;
    struct rail_set set;
};

static inline void rig_open(struct rig *r)
{
    const struct rail_wishes all = { 0 };
    struct penstock_error error;
    base_log_init(BASE_LOG_ERROR, false);
    strcpy(r->swap_dir, "/tmp/penstock-cache-XXXXXX");
    assert_non_null(mkdtemp(r->swap_dir));
    r->fabric = sim_new(&(struct sim_options){ .automatic = true });
    r->peer_host = sim_host(r->fabric);
    r->client_host = sim_host(r->fabric);
    for (size_t i = 0; i < 2; i++) {
        sim_port(r->peer_host, i ? "peer1" : "peer0", NULL);
        sim_port(r->client_host, i ? "client1" : "client0", NULL);
    }
    assert_int_equal(rail_devices_open(r->peer_host, &all, &r->server.rails, &error), 0);
    assert_int_equal(rail_devices_open(r->client_host, &all, &r->rails, &error), 0);
    for (size_t i = 0; i < r->rails.n; i++)
        assert_int_equal(verbs_pd_new(r->rails.devices[i], &r->pds[i], &error), 0);

    peer_options_init(&r->options);
    r->options.cache.on = true;
    r->options.cache.swap_dir = r->swap_dir;
    r->server.options = &r->options;
    r->server.deadlines.message_ns = r->server.deadlines.mode_ns = r->server.deadlines.first_byte_ns =
        10 * BASE_SECOND_NS;
    pthread_mutex_init(&r->server.lock, NULL);
    base_list_init(&r->server.connections);
    peer_complaints_init(&r->server.complaints);
    residency_ledger_init(&r->server.ledger, 0);
    assert_int_equal(peer_cache_service.open(&r->server, &error), 0);
}

static inline int rig_set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    rig_open(r);
    *state = r;
    return 0;
}

static inline int rig_tear_down(void **state)
{
    struct rig *r = *state;
    char command[128];
    for (size_t i = 0; i < r->rails.n; i++)
        verbs_pd_free(r->pds[i]);
    rail_devices_close(&r->rails);
    peer_cache_close(&r->server.cache);
    assert_int_equal(sim_host_objects(r->peer_host).mrs, 0);
    rail_devices_close(&r->server.rails);
    assert_int_equal(residency_used(&r->server.ledger), 0);
    residency_ledger_fini(&r->server.ledger);
    peer_complaints_fini(&r->server.complaints);
    pthread_mutex_destroy(&r->server.lock);
    peer_options_fini(&r->options);
    sim_free(r->fabric); /* aborts where an object is left */
    snprintf(command, sizeof command, "rm -r %s", r->swap_dir);
    assert_int_equal(system(command), 0);
    free(r);
    return 0;
}

/* ---- a connection ---- */

static inline void *rig_serve(void *argument)
{
    struct rig_client *c = argument;
    c->end = peer_cache_service.serve(&c->connection);
    if (c->end == PEER_END_LINGER)
        net_stream_linger(&c->connection.stream, 10 * BASE_SECOND_NS);
    pthread_mutex_lock(&c->rig->server.lock);
    base_list_remove(&c->connection.node);
    pthread_mutex_unlock(&c->rig->server.lock);
    c->connection.stream.ops->close(&c->connection.stream);
    return NULL;
}

static inline void rig_write(struct rig_client *c, const void *bytes, size_t len)
{
    struct penstock_error error;
    assert_int_equal(net_stream_write_all(&c->stream, bytes, len, 10 * BASE_SECOND_NS, &error), 0);
}

static inline void rig_read(struct rig_client *c, void *to, size_t len)
{
    struct penstock_error error;
    assert_int_equal(net_stream_read_all(&c->stream, to, len, 10 * BASE_SECOND_NS, NULL, &error), 0);
}

static inline void rig_assert_closed(struct rig_client *c)
{
    uint8_t byte;
    const struct iovec into = { .iov_base = &byte, .iov_len = 1 };
    assert_int_equal(c->stream.ops->wait(&c->stream, POLLIN, base_deadline_ns(10 * BASE_SECOND_NS)), 0);
    assert_true(c->stream.ops->readv(&c->stream, &into, 1) <= 0);
}

/* Up to the header. */
static inline void rig_connect(struct rig *r, struct rig_client *c, uint8_t kind, uint64_t arena, uint64_t blob)
{
    int ends[2];
    uint8_t bytes[PENSTOCK_PAGING_HEADER_BYTES];
    const struct penstock_paging_header header = { .kind = kind, .arena_bytes = arena, .blob_bytes = blob };
    *c = (struct rig_client){ .rig = r };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    net_stream_plain(&c->stream, ends[0]);
    net_stream_plain(&c->connection.stream, ends[1]);
    c->connection.server = &r->server;
    c->connection.service = &peer_cache_service;
    strcpy(c->connection.client, "10.0.0.9:1111");
    pthread_mutex_lock(&r->server.lock);
    base_list_append(&r->server.connections, &c->connection.node);
    pthread_mutex_unlock(&r->server.lock);
    assert_int_equal(pthread_create(&c->thread, NULL, rig_serve, c), 0);
    penstock_paging_header_encode(&header, bytes);
    rig_write(c, bytes, sizeof bytes);
}

/* With the TCP data plane. */
static inline void rig_join(struct rig *r, struct rig_client *c, uint64_t arena, uint64_t blob)
{
    uint8_t answer[2];
    rig_connect(r, c, PENSTOCK_ARENA_KV, arena, blob);
    rig_write(c, "", 1);
    rig_read(c, answer, 2);
    assert_memory_equal(answer, "\0\0", 2);
    c->framing.tcp = true;
}

static inline int rig_shake_hands(struct rig_client *c, size_t n, const struct penstock_rail_choice *wishes,
                                  struct penstock_error *error)
{
    size_t up;
    rail_set_init(
        &c->set, &(struct rail_set_config){ .devices = &c->rig->rails, .pds = c->rig->pds, .depth = 4, .sges_max = 1 });
    const struct net_handshake_config config = {
        .dialect = PENSTOCK_READ_WRITE, .ops = &rail_set_ops, .rails = &c->set, .n_rails = n, .wishes = wishes
    };
    return net_handshake_as_client(&c->stream, &config, NULL, &up, error);
}

/* With n rails, by the frozen handshake. */
static inline void rig_join_rails(struct rig *r, struct rig_client *c, uint64_t arena, uint64_t blob, size_t n)
{
    struct penstock_error error;
    rig_connect(r, c, PENSTOCK_ARENA_KV, arena, blob);
    assert_int_equal(rig_shake_hands(c, n, NULL, &error), 0);
}

/* The client closes. */
static inline void rig_leave(struct rig_client *c)
{
    c->stream.ops->close(&c->stream);
    assert_int_equal(pthread_join(c->thread, NULL), 0);
    rail_set_fini(&c->set);
}

/* ---- requests ---- */

static inline void rig_send_request(struct rig_client *c, const struct penstock_paging_request *request)
{
    static uint8_t bytes[PENSTOCK_PAGING_REQUEST_BYTES_MAX];
    struct penstock_wire_fault fault;
    size_t len = penstock_paging_request_encode(request, &c->framing, bytes, &fault);
    assert_true(len > 0);
    rig_write(c, bytes, len);
}

static inline void rig_send(struct rig_client *c, uint8_t op, uint64_t key)
{
    rig_send_request(c, &(struct penstock_paging_request){ .op = op, .key = { .low = key }, .value = key });
}

/* A blob that says whose it is. */
static inline void rig_fill(uint8_t *blob, size_t len, uint64_t key)
{
    for (size_t i = 0; i + 8 <= len; i += 8) {
        uint64_t word = key << 16 | i / 8;
        memcpy(blob + i, &word, 8);
    }
}

static inline void rig_send_put(struct rig_client *c, uint64_t key, uint64_t content)
{
    uint8_t blob[RIG_BLOB];
    rig_fill(blob, sizeof blob, content);
    rig_send(c, PENSTOCK_OP_PUT, key);
    rig_write(c, blob, sizeof blob);
}

static inline void rig_assert_status(struct rig_client *c, uint8_t status)
{
    uint8_t got;
    rig_read(c, &got, 1);
    assert_int_equal(got, status);
}

static inline void rig_assert_ask(struct rig_client *c, uint8_t op, uint64_t key, uint8_t status)
{
    rig_send(c, op, key);
    rig_assert_status(c, status);
}

/* After ST_OK. */
static inline uint64_t rig_value(struct rig_client *c)
{
    uint64_t value;
    rig_assert_status(c, PENSTOCK_ST_OK);
    rig_read(c, &value, sizeof value);
    return value;
}

static inline void rig_assert_blob(struct rig_client *c, uint64_t content)
{
    uint8_t want[RIG_BLOB], got[RIG_BLOB];
    rig_fill(want, sizeof want, content);
    rig_assert_status(c, PENSTOCK_ST_OK);
    rig_read(c, got, sizeof got);
    assert_memory_equal(got, want, sizeof got);
}

#endif
