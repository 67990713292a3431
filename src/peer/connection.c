#include "connection.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "service.h"
#include "thread.h"

/* Of a long message. Measured on two cores: the sender pays more for waking us, again and again, than we lose by
 * beginning to copy late. */
#define WORTH_WAKING_BYTES (UINT64_C(512) << 10)

/* ---- from other threads ---- */

static void end_if(struct peer_server *server, bool (*which)(const struct peer_connection *, const void *),
                   const void *context, int how)
{
    /* A connection leaves the list before its stream is closed: none here can be gone. */
    pthread_mutex_lock(&server->lock);
    base_list_for_each (node, &server->connections) {
        struct peer_connection *c = base_list_entry(node, struct peer_connection, node);
        if (which(c, context))
            c->stream.ops->shutdown(&c->stream, how);
    }
    pthread_mutex_unlock(&server->lock);
}

/* The client's address without its port. */
static size_t host_len(const struct peer_connection *c)
{
    const char *colon = strrchr(c->client, ':');
    return colon ? (size_t)(colon - c->client) : strlen(c->client);
}

/* Whether the host at the other end also has a connection with rails. Under server->lock. */
static bool has_rails_beside(const struct peer_connection *c)
{
    size_t len = host_len(c);
    base_list_for_each (node, &c->server->connections) {
        const struct peer_connection *other = base_list_entry(node, struct peer_connection, node);
        if (other->has_rails && host_len(other) == len && memcmp(other->client, c->client, len) == 0)
            return true;
    }
    return false;
}

static bool is_idle(const struct peer_connection *c, const void *context)
{
    (void)context;
    return atomic_load(&c->waiting) && !atomic_load(&c->holding) && !has_rails_beside(c);
}

static bool uses(const struct peer_connection *c, const void *context)
{
    return c->served == context;
}

static bool any(const struct peer_connection *c, const void *context)
{
    (void)c, (void)context;
    return true;
}

void peer_connections_end_idle(struct peer_server *server)
{
    end_if(server, is_idle, NULL, SHUT_RD);
}

void peer_connections_end_served(struct peer_server *server, const struct peer_served *served)
{
    end_if(server, uses, served, SHUT_RDWR);
}

void peer_connections_end_all(struct peer_server *server)
{
    end_if(server, any, NULL, SHUT_RDWR);
}

/* ---- on its own thread ---- */

static bool may_stay(struct peer_connection *c)
{
    pthread_mutex_lock(&c->server->lock);
    bool stays = has_rails_beside(c);
    pthread_mutex_unlock(&c->server->lock);
    return stays;
}

void peer_connection_set_rails(struct peer_connection *c, bool has_rails)
{
    pthread_mutex_lock(&c->server->lock);
    c->has_rails = has_rails;
    pthread_mutex_unlock(&c->server->lock);
    /* What was spared for its sake is idle now. */
    if (!has_rails && atomic_load(&c->server->draining))
        peer_connections_end_idle(c->server);
}

/* A drain sets draining and then looks for who is waiting; a thread says that it is waiting and then looks at
 * draining. Whichever comes second sees the other. The same goes for has_rails. */
static int begin_waiting(struct peer_connection *c, struct penstock_error *error)
{
    atomic_store(&c->waiting, true);
    if (!atomic_load(&c->server->draining) || atomic_load(&c->holding) || may_stay(c))
        return 0;
    atomic_store(&c->waiting, false);
    return base_error_set(error, PENSTOCK_ECLOSED, "this peer is shutting down");
}

int peer_connection_wait(struct peer_connection *c, int64_t timeout_ns, struct penstock_error *error)
{
    int code = begin_waiting(c, error);
    if (code)
        return code;
    int r = c->stream.ops->wait(&c->stream, POLLIN, base_deadline_ns(timeout_ns));
    atomic_store(&c->waiting, false);
    if (r == -ETIMEDOUT)
        return base_error_set(error, PENSTOCK_ETIMEOUT, "no byte came in %.3g s", (double)timeout_ns / 1e9);
    return r < 0 ? base_error_sys(error, -r, "wait for the client") : 0;
}

int peer_connection_read_some(struct peer_connection *c, void *to, size_t len, bool inside, size_t *got,
                              struct penstock_error *error)
{
    const struct iovec into = { .iov_base = to, .iov_len = len };
    /* The socket has no timeout of its own for reading: between requests keepalive is what finds dead clients. */
    int code = inside ? peer_connection_wait(c, c->server->deadlines.message_ns, error) : begin_waiting(c, error);
    if (code)
        return code;
    ssize_t n = c->stream.ops->readv(&c->stream, &into, 1);
    atomic_store(&c->waiting, false);
    if (n < 0)
        return base_error_set(error, PENSTOCK_ECLOSED, "%s", strerrordesc_np((int)-n));
    *got = (size_t)n;
    return 0;
}

void peer_connection_time_reads(struct peer_connection *c)
{
    int64_t us = c->server->deadlines.message_ns / 1000;
    const struct timeval longest = { .tv_sec = us / 1000000, .tv_usec = us % 1000000 + (us == 0) };
    (void)setsockopt(c->stream.fd, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
}

/* What a read inside a message gave. */
static int read_inside(const struct peer_connection *c, ssize_t r, size_t *got, struct penstock_error *error)
{
    if (r == -EAGAIN)
        return base_error_set(error, PENSTOCK_ETIMEOUT, "no byte came in %.3g s",
                              (double)c->server->deadlines.message_ns / 1e9);
    if (r < 0)
        return base_error_set(error, PENSTOCK_ECLOSED, "%s", strerrordesc_np((int)-r));
    *got = (size_t)r;
    return 0;
}

int peer_connection_readv_much(struct peer_connection *c, const struct iovec *into, int n, uint64_t to_come_bytes,
                               size_t *got, struct penstock_error *error)
{
    ssize_t r = c->stream.ops->readv_much(&c->stream, into, n, base_min_u64(to_come_bytes, WORTH_WAKING_BYTES),
                                          base_now_ns() + c->server->deadlines.message_ns);
    return read_inside(c, r, got, error);
}

int peer_connection_readv(struct peer_connection *c, const struct iovec *into, int n, bool inside, size_t *got,
                          struct penstock_error *error)
{
    for (;;) {
        int code = inside ? 0 : begin_waiting(c, error);
        if (code)
            return code;
        ssize_t r = c->stream.ops->readv(&c->stream, into, n);
        atomic_store(&c->waiting, false);
        if (inside || r != -EAGAIN)
            return read_inside(c, r, got, error);
    }
}

int peer_connection_read_message(struct peer_connection *c, void *to, size_t len, int64_t first_ns, size_t *got,
                                 struct penstock_error *error)
{
    *got = 0;
    int code = peer_connection_wait(c, first_ns, error);
    return code ? code : net_stream_read_all(&c->stream, to, len, c->server->deadlines.message_ns, got, error);
}

int peer_connection_use(struct peer_connection *c, struct peer_served *served, struct penstock_error *error)
{
    pthread_mutex_lock(&c->server->lock);
    c->served = served;
    pthread_mutex_unlock(&c->server->lock);
    /* The watch marks what was rewritten first, and then looks for its connections. */
    if (atomic_load(&served->rewritten))
        return base_error_set(error, PENSTOCK_ESTALE, "the files of %s have just changed", served->id);
    return 0;
}

enum peer_end peer_connection_ended(struct peer_connection *c, const char *where, bool inside,
                                    const struct penstock_error *error)
{
    bool draining = atomic_load(&c->server->draining);
    if (error->code == PENSTOCK_ETIMEOUT || (inside && !draining))
        peer_connection_complain(c, "closed, %s: %s", where, error->message);
    else
        base_log_debug("client %s: %s: %s", c->client, where, error->message);
    return error->code == PENSTOCK_ECLOSED && !draining ? PEER_END_CLOSE : PEER_END_LINGER;
}

void peer_connection_complain(struct peer_connection *c, const char *format, ...)
{
    char words[800];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    peer_complain(&c->server->complaints, "client %s: %s", c->client, words);
}

static void leave(struct peer_connection *c)
{
    pthread_mutex_lock(&c->server->lock);
    base_list_remove(&c->node);
    pthread_mutex_unlock(&c->server->lock);
}

/* The last that a thread does with the server: it may be gone when this returns. */
static void count_out(struct peer_connection *c)
{
    struct peer_server *server = c->server;
    pthread_mutex_lock(&server->lock);
    if (c->over_limit)
        server->n_refusing--;
    else
        server->n_serving--;
    pthread_cond_signal(&server->gone);
    pthread_mutex_unlock(&server->lock);
}

static void *run(void *argument)
{
    struct peer_connection *c = argument;
    struct peer_server *server = c->server;

    enum peer_end end = c->over_limit ? c->service->refuse(c) : c->service->serve(c);

    if (end == PEER_END_LINGER) {
        /* A drain that begins from here on does not wait for it. */
        atomic_store(&c->waiting, true);
        net_stream_linger(&c->stream, server->deadlines.linger_ns);
    }
    leave(c);
    /* Out of the list: nobody else touches the stream any more. */
    c->stream.ops->close(&c->stream);
    if (c->served)
        peer_served_unref(c->served);
    count_out(c);
    free(c);
    return NULL;
}

/* Counts the connection in. False: there are too many even to be refused in words. */
static bool count_in(struct peer_server *server, struct peer_connection *c)
{
    bool in = true;
    pthread_mutex_lock(&server->lock);
    if (server->n_serving < server->options->max_connections) {
        server->n_serving++;
    } else if (server->n_refusing < PEER_REFUSALS_MAX) {
        server->n_refusing++;
        c->over_limit = true;
    } else {
        in = false;
    }
    if (in)
        base_list_append(&server->connections, &c->node);
    pthread_mutex_unlock(&server->lock);
    return in;
}

static void tune(const struct peer_server *server, int fd)
{
    net_tune_accepted(fd, server->options->deadline_scale);
    int64_t us = server->deadlines.message_ns / PEER_TRANSFER_STALLS / 1000;
    const struct timeval send = { .tv_sec = us / 1000000, .tv_usec = us % 1000000 + (us == 0) };
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send, sizeof send);
}

void peer_connection_start(struct peer_server *server, const struct peer_service *service, int fd,
                           const struct net_address *client)
{
    struct peer_connection *c = calloc(1, sizeof *c);
    if (!c) {
        peer_complain(&server->complaints, "no memory for another connection");
        close(fd);
        return;
    }
    c->server = server;
    c->service = service;
    net_address_format(client, c->client);
    tune(server, fd);
    net_stream_plain(&c->stream, fd);

    if (!count_in(server, c)) {
        peer_connection_complain(c, "closed: all %zu connections are in use (--max-connections)",
                                 server->options->max_connections);
    } else {
        int failed = peer_thread_start(NULL, PEER_STACK_CONNECTION, run, c);
        if (!failed)
            return;
        leave(c);
        count_out(c);
        peer_connection_complain(c, "closed: no thread for it: %s", strerrordesc_np(failed));
    }
    c->stream.ops->close(&c->stream);
    free(c);
}
