/* What the two halves of the rail handshake share: handshake.c moves from message to message, handshake_messages.c
 * turns messages into bytes and back. */
#ifndef PENSTOCK_NET_HANDSHAKE_STATE_H
#define PENSTOCK_NET_HANDSHAKE_STATE_H

#include "handshake.h"

/* The messages, in the order sent. The client writes REQUEST and IDENTITIES, the peer the others. */
enum step {
    STEP_REQUEST,    /* 1 */
    STEP_ANSWER,     /* 2.7; a peer sends it and step 2 as one */
    STEP_TABLES,     /* 2 */
    STEP_IDENTITIES, /* 3 */
    STEP_ACK,        /* 5 */
    STEP_DONE,
    STEP_FAILED
};

/* Room for the longest message that is decoded whole; of a read-only peer's tables it holds a part at a time. */
#define IN_BYTES (1 + NET_RAILS_MAX * PENSTOCK_CACHE_SERVER_PARAMS_BYTES)

struct net_handshake {
    struct net_handshake_config config;
    char other[96];
    bool client;
    enum step step;
    struct penstock_error error; /* FAILED; or of a refusal whose ack is still to be written */
    bool refusing;

    size_t n; /* rails agreed on */
    struct penstock_rails_request request;
    struct penstock_rail_choice agreed[PENSTOCK_RAILS_MAX]; /* where request.choosing */
    struct net_rail mine[NET_RAILS_MAX], theirs[NET_RAILS_MAX];

    bool started; /* of the message being read a byte has come */
    uint8_t in[IN_BYTES];
    size_t in_len, in_need; /* in_need > in_len: the message ends no sooner */

    uint8_t *out; /* malloc'd */
    size_t out_len, out_at;

    /* A read-only peer's tables as they come: n * config.n_regions layers, our own numbers, whatever the peer says. */
    struct penstock_layer *layers;
    bool counted, in_table;
    size_t rail;
    uint32_t layer;
};

/* The message of the current step, of which in holds the beginning (of a read-only peer's tables: what is not taken
 * yet). OK: it is in request, agreed or theirs. MORE: in has to hold fault->need bytes before more can be said. */
enum penstock_decode net_handshake_decode(struct net_handshake *h, struct penstock_wire_fault *fault);

/* Encode into a message of its size, and refuse with 0 and *fault. mine is filled in, and checked. */
size_t net_handshake_tables_size(const struct net_handshake *h); /* with the answer to a choice before them */
size_t net_handshake_tables_encode(const struct net_handshake *h, uint8_t *out, struct penstock_wire_fault *fault);
size_t net_handshake_identities_encode(const struct net_handshake *h, uint8_t *out, struct penstock_wire_fault *fault);

#endif
