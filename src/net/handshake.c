#include "handshake_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static bool writes(const struct net_handshake *h)
{
    return h->client == (h->step == STEP_REQUEST || h->step == STEP_IDENTITIES);
}

/* ---- failing ---- */

static void fail(struct net_handshake *h)
{
    h->step = STEP_FAILED;
}

/* What a decoder refused. Some messages of the protocol begin with the peer's name: PEER granted 2 rails, ... */
static void fail_malformed(struct net_handshake *h, const struct penstock_wire_fault *fault)
{
    char words[160];
    penstock_wire_fault_format(fault, words, sizeof words);
    bool named = strncmp(words, "granted ", 8) == 0 || strncmp(words, "refused ", 8) == 0;
    int code = h->client && h->step == STEP_ACK ? PENSTOCK_EDENIED : PENSTOCK_EPROTO;
    base_error_set(&h->error, code, "%s%s %s", h->other, named ? "" : ":", words);
    fail(h);
}

/* After a call of the rail set, which has set the error. */
static void fail_rails(struct net_handshake *h, int code)
{
    base_error_in(&h->error, "%s", h->other);
    h->error.code = code;
    fail(h);
}

/* ---- reading ---- */

/* Begins to read the message of step. Nothing of it has come, so that this only says how much to want. */
static void begin_read(struct net_handshake *h, enum step step)
{
    struct penstock_wire_fault fault = { 0 };
    h->step = step;
    h->started = false;
    h->in_len = 0;
    h->in_need = net_handshake_decode(h, &fault) == PENSTOCK_DECODE_MORE ? fault.need : 1;
}

/* ---- writing ---- */

/* Room for a message of len bytes; NULL, and FAILED, without memory. */
static uint8_t *begin_write(struct net_handshake *h, enum step step, size_t len)
{
    free(h->out);
    h->out = malloc(len);
    h->out_len = len;
    h->out_at = 0;
    h->step = step;
    if (!h->out) {
        base_error_set(&h->error, PENSTOCK_ENOMEM, "%s: no memory for %zu bytes of the rail handshake", h->other, len);
        fail(h);
    }
    return h->out;
}

static void write_identities(struct net_handshake *h)
{
    struct penstock_wire_fault fault;
    uint8_t *out = begin_write(h, STEP_IDENTITIES, penstock_client_rails_size(h->n));
    if (out && !net_handshake_identities_encode(h, out, &fault))
        fail_malformed(h, &fault);
}

static void write_tables(struct net_handshake *h)
{
    struct penstock_wire_fault fault;
    uint8_t *out = begin_write(h, STEP_TABLES, net_handshake_tables_size(h));
    if (out && !net_handshake_tables_encode(h, out, &fault))
        fail_malformed(h, &fault);
}

static void write_ack(struct net_handshake *h, enum penstock_status ack)
{
    uint8_t *out = begin_write(h, STEP_ACK, 1);
    if (out)
        out[0] = (uint8_t)ack;
}

/* 0 rails granted, and at once the ack (protocol 2.2). */
static void write_tcp_granted(struct net_handshake *h)
{
    uint8_t *out = begin_write(h, STEP_ACK, 2);
    if (out)
        out[0] = 0, out[1] = PENSTOCK_STATUS_OK;
}

/* ---- the rail set ---- */

int net_rails_complete(const struct net_rail_ops *ops, void *rails, size_t n, const struct net_rail *theirs,
                       size_t n_theirs, const struct penstock_rail_choice *agreed, struct penstock_error *error)
{
    if (n_theirs != n)
        return base_error_set(error, PENSTOCK_EPROTO, "%zu rails to connect %zu of ours to: none may stay unconnected",
                              n_theirs, n);
    return ops->complete(rails, n, theirs, agreed, error);
}

static int prepare(struct net_handshake *h)
{
    size_t regions = h->client ? 0 : h->config.dialect == PENSTOCK_READ_ONLY ? h->config.n_regions : 1;
    int code = h->config.ops->prepare(h->config.rails, h->n, h->mine, &h->error);
    for (size_t i = 0; code == 0 && i < h->n; i++)
        if (regions && (h->mine[i].n_regions != regions || !h->mine[i].regions))
            code = base_error_set(&h->error, PENSTOCK_EINVAL, "rail %zu has %u regions, and %zu are served", i,
                                  h->mine[i].n_regions, regions);
    return code;
}

static int complete(struct net_handshake *h)
{
    return net_rails_complete(h->config.ops, h->config.rails, h->n, h->theirs, h->n,
                              h->request.choosing ? h->agreed : NULL, &h->error);
}

static int check_tables(struct net_handshake *h)
{
    if (!h->config.ops->check || h->n == 0)
        return 0;
    return h->config.ops->check(h->config.rails, h->n, h->theirs, &h->error);
}

static int choose(struct net_handshake *h)
{
    if (!h->config.ops->choose)
        return base_error_set(&h->error, PENSTOCK_EUNSUPPORTED, "wants to choose rails, which cannot be done here");
    return h->config.ops->choose(h->config.rails, h->request.rails, h->n, h->agreed, &h->error);
}

/* ---- from message to message ---- */

static void peer_read_request(struct net_handshake *h)
{
    h->n = h->request.n_rails;
    if (h->n == 0 && h->config.tcp) {
        write_tcp_granted(h);
        return;
    }
    int code = 0;
    if (h->n == 0 || h->n > h->config.n_rails)
        code = base_error_set(&h->error, PENSTOCK_ELIMIT, "asked for %zu rails, and %zu are here", h->n,
                              h->config.n_rails);
    if (code == 0 && h->request.choosing)
        code = choose(h);
    if (code == 0)
        code = prepare(h);
    if (code)
        fail_rails(h, code);
    else
        write_tables(h);
}

static void client_read_tables(struct net_handshake *h)
{
    int code = check_tables(h);
    if (code)
        fail_rails(h, code);
    else if (h->n > 0)
        write_identities(h);
    else
        begin_read(h, STEP_ACK);
}

static void message_read(struct net_handshake *h)
{
    switch (h->step) {
    case STEP_REQUEST:
        peer_read_request(h);
        break;
    case STEP_ANSWER:
        begin_read(h, STEP_TABLES);
        break;
    case STEP_TABLES:
        client_read_tables(h);
        break;
    case STEP_IDENTITIES: {
        /* The client hears of a failure by its ack: it is past the steps where a close says enough. */
        int code = complete(h);
        h->refusing = code != 0;
        if (code)
            base_error_in(&h->error, "%s", h->other);
        write_ack(h, code ? PENSTOCK_STATUS_ERR : PENSTOCK_STATUS_OK);
        break;
    }
    default:
        h->step = STEP_DONE;
        break;
    }
}

static void message_written(struct net_handshake *h)
{
    int code = 0;
    switch (h->step) {
    case STEP_REQUEST:
        /* Both ends set up at the same time. */
        code = h->n > 0 ? prepare(h) : 0;
        if (code == 0)
            begin_read(h, h->request.choosing ? STEP_ANSWER : STEP_TABLES);
        break;
    case STEP_TABLES:
        begin_read(h, STEP_IDENTITIES);
        break;
    case STEP_IDENTITIES:
        code = complete(h);
        if (code == 0)
            begin_read(h, STEP_ACK);
        break;
    default:
        h->step = h->refusing ? STEP_FAILED : STEP_DONE;
        break;
    }
    if (code)
        fail_rails(h, code);
}

enum net_handshake_next net_handshake_next(const struct net_handshake *h)
{
    if (h->step == STEP_DONE)
        return NET_HANDSHAKE_DONE;
    if (h->step == STEP_FAILED)
        return NET_HANDSHAKE_FAILED;
    return writes(h) ? NET_HANDSHAKE_WRITE : NET_HANDSHAKE_READ;
}

size_t net_handshake_want(const struct net_handshake *h)
{
    return net_handshake_next(h) == NET_HANDSHAKE_READ ? h->in_need - h->in_len : 0;
}

void net_handshake_feed(struct net_handshake *h, const uint8_t *bytes, size_t len)
{
    while (len > 0 && net_handshake_next(h) == NET_HANDSHAKE_READ) {
        size_t take = net_handshake_want(h) < len ? net_handshake_want(h) : len;
        memcpy(h->in + h->in_len, bytes, take);
        h->in_len += take;
        bytes += take;
        len -= take;
        h->started = true;

        struct penstock_wire_fault fault = { 0 };
        enum penstock_decode d = net_handshake_decode(h, &fault);
        if (d == PENSTOCK_DECODE_MORE)
            h->in_need = fault.need;
        else if (d == PENSTOCK_DECODE_OK)
            message_read(h);
        else
            fail_malformed(h, &fault);
    }
}

const uint8_t *net_handshake_output(const struct net_handshake *h, size_t *len)
{
    *len = net_handshake_next(h) == NET_HANDSHAKE_WRITE ? h->out_len - h->out_at : 0;
    return *len ? h->out + h->out_at : NULL;
}

void net_handshake_wrote(struct net_handshake *h, size_t len)
{
    h->out_at += len;
    if (h->out_at == h->out_len)
        message_written(h);
}

/* ---- when the stream breaks ---- */

/* The codec's own words for what is missing. */
static const char *missing(struct net_handshake *h)
{
    struct penstock_wire_fault fault = { 0 };
    if (writes(h))
        return h->step == STEP_TABLES ? "write server rails" : h->step == STEP_ACK ? "write ack" : "write client rails";
    return net_handshake_decode(h, &fault) == PENSTOCK_DECODE_MORE ? fault.field : "rail handshake";
}

static void refused(struct net_handshake *h)
{
    char cause[128];
    if (h->config.dialect == PENSTOCK_READ_WRITE) /* who chooses has seen its rails listed */
        snprintf(cause, sizeof cause, "the arena asked for is above the peer's memory cap");
    else if (h->request.choosing)
        snprintf(cause, sizeof cause, "it knows of no choice of rails, or cannot grant this one");
    else
        snprintf(cause, sizeof cause, "it has fewer rails than the %zu asked for, or no RDMA", h->n);
    base_error_set(&h->error, PENSTOCK_EDENIED, "%s refused the rails (usual cause: %s): %s: connection closed",
                   h->other, cause, missing(h));
}

void net_handshake_end(struct net_handshake *h, int sys_errno)
{
    if (h->step == STEP_DONE || h->step == STEP_FAILED)
        return;
    bool reset = sys_errno == ECONNRESET || sys_errno == EPIPE;
    if (h->refusing) {
        fail(h); /* of what was to be refused */
        return;
    }
    if (h->client && h->step == STEP_REQUEST) /* what it would have read next */
        begin_read(h, h->request.choosing ? STEP_ANSWER : STEP_TABLES);
    /* Once it has answered a choice it has granted it: a close is then no refusal. */
    enum step last = h->request.choosing ? STEP_ANSWER : STEP_TABLES;
    if (h->client && h->step <= last && (reset || (sys_errno == 0 && !h->started)))
        refused(h);
    else if (reset || sys_errno == 0)
        base_error_set(&h->error, PENSTOCK_ECLOSED, "%s: %s: connection closed", h->other, missing(h));
    else if (sys_errno == ETIMEDOUT)
        base_error_set(&h->error, PENSTOCK_ETIMEOUT, "%s: %s: it does not answer any more", h->other, missing(h));
    else
        base_error_sys(&h->error, sys_errno, "%s: %s", h->other, missing(h));
    h->error.sys_errno = sys_errno;
    fail(h);
}

void net_handshake_expire(struct net_handshake *h, int64_t after_ns)
{
    if (h->step == STEP_DONE || h->step == STEP_FAILED)
        return;
    if (!h->refusing)
        base_error_set(&h->error, PENSTOCK_ETIMEOUT, "%s: %s: no byte moved in %.6g s", h->other, missing(h),
                       (double)after_ns / 1e9);
    fail(h);
}

bool net_handshake_is_patient(const struct net_handshake *h)
{
    return net_handshake_next(h) == NET_HANDSHAKE_READ && !h->started && h->step != STEP_ACK;
}

size_t net_handshake_n_rails(const struct net_handshake *h)
{
    return h->step == STEP_DONE ? h->n : 0;
}

const struct penstock_error *net_handshake_error(const struct net_handshake *h)
{
    return &h->error;
}

/* ---- from config to first step ---- */

static int check(const struct net_handshake_config *config, struct penstock_error *error)
{
    if (config->n_rails > NET_RAILS_MAX)
        return base_error_set(error, PENSTOCK_EINVAL, "%zu rails: at most %d can be asked for", config->n_rails,
                              NET_RAILS_MAX);
    if (config->dialect == PENSTOCK_READ_ONLY && (config->n_regions == 0 || config->n_regions > PENSTOCK_LAYERS_MAX))
        return base_error_set(error, PENSTOCK_EINVAL, "%zu regions on a rail: 1 to %u can be published",
                              config->n_regions, PENSTOCK_LAYERS_MAX);
    return 0;
}

static int create(const struct net_handshake_config *config, bool client, struct net_handshake **out,
                  struct penstock_error *error)
{
    int code = check(config, error);
    if (code)
        return code;
    struct net_handshake *h = calloc(1, sizeof *h);
    if (!h)
        return base_error_set(error, PENSTOCK_ENOMEM, "rail handshake: no memory");
    h->config = *config;
    h->client = client;
    snprintf(h->other, sizeof h->other, "%s", config->other ? config->other : client ? "peer" : "client");
    *out = h;
    return 0;
}

/* Room for their tables, and step 1. */
static int client_begin(struct net_handshake *h, struct penstock_error *error)
{
    const struct net_handshake_config *c = &h->config;
    size_t regions = c->dialect == PENSTOCK_READ_ONLY ? c->n_regions : 1;
    struct penstock_wire_fault fault;
    char words[160];
    h->n = c->n_rails;
    h->request.n_rails = (uint8_t)h->n;
    h->request.choosing = c->wishes != NULL;
    for (size_t i = 0; c->wishes && i < h->n && i < PENSTOCK_RAILS_MAX; i++)
        h->request.rails[i] = c->wishes[i];
    h->layers = calloc(h->n ? h->n * regions : 1, sizeof *h->layers);
    uint8_t *out = begin_write(h, STEP_REQUEST, PENSTOCK_RAILS_REQUEST_BYTES_MAX);
    if (!h->layers || !out)
        return base_error_set(error, PENSTOCK_ENOMEM, "rail handshake: no memory");
    h->out_len = penstock_rails_request_encode(&h->request, c->dialect, out, &fault);
    if (h->out_len > 0)
        return 0;
    penstock_wire_fault_format(&fault, words, sizeof words);
    return base_error_set(error, PENSTOCK_EINVAL, "rails to ask for: %s", words);
}

int net_handshake_client_new(const struct net_handshake_config *config, struct net_handshake **out,
                             struct penstock_error *error)
{
    struct net_handshake *h;
    int code = create(config, true, &h, error);
    if (code)
        return code;
    code = client_begin(h, error);
    if (code)
        net_handshake_free(h);
    else
        *out = h;
    return code;
}

int net_handshake_peer_new(const struct net_handshake_config *config, struct net_handshake **out,
                           struct penstock_error *error)
{
    int code = create(config, false, out, error);
    if (code == 0)
        begin_read(*out, STEP_REQUEST);
    return code;
}

void net_handshake_free(struct net_handshake *h)
{
    if (!h)
        return;
    free(h->out);
    free(h->layers);
    free(h);
}
