/* What a tier plugs into a session. The machine around it (engine.c, hello.c, the verbs_*.c) dials, reads one text
 * reply of bounded length, makes rails, watches the clock, dials again and cancels; a tier says what is sent first,
 * what the reply means, which memory the peer's rails publish, and what travels on its data plane.
 *
 * A tier is static and immutable; what one session has of it lives in the session. Hooks return 0, -EAGAIN where they
 * say so, or an error in *error, as all of src/client. */
#ifndef PENSTOCK_CLIENT_TIER_H
#define PENSTOCK_CLIENT_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <penstock/wire.h>

struct client_flight;
struct client_op;
struct rail_listing;
struct penstock_error;
struct penstock_session;

struct client_tier {
    const char *peer;         /* "weight peer": goes before the peer's name in messages */
    uint16_t port;            /* where none is given */
    int64_t reply_timeout_ns; /* where none is given; 0: as for most */

    /* A new session's own part; argument is client_start's, NULL for sessions beside another. ENOMEM has no words. */
    int (*set_up)(struct penstock_session *s, const void *argument);
    /* The session ends; also one that was not set up. */
    void (*fini)(struct penstock_session *s);

    /* ---- hello: from the connection to the mode byte ---- */

    /* Connected: puts into s->out what the client says first, s->out_end bytes; 0: the peer speaks first. Read-write,
     * what goes on with client_hello_begin follows at once. */
    int (*greet)(struct penstock_session *s, struct penstock_error *error);
    /* How many bytes then come, CLIENT_HEAD_BYTES at most, into s->head; take may go on to others. NULL, or 0: a text.
     */
    size_t (*answer_bytes)(const struct penstock_session *s);
    /* Which text then comes, and what messages call it. */
    enum penstock_text (*text)(const struct penstock_session *s);
    const char *(*awaits)(const struct penstock_session *s);
    /* It is whole: a text is s->body_len bytes in s->body, MODEL_JSON_PADDING behind them. Goes on with
     * client_hello_begin, or says why not. */
    int (*take)(struct penstock_session *s, struct penstock_error *error);
    /* Asking or reading failed with *error, which the hook may put in better words. 0: another connection is tried. */
    int (*failed)(struct penstock_session *s, struct penstock_error *error);
    /* TCP it is: says so, and goes on. NULL: by the mode byte. */
    int (*to_tcp)(struct penstock_session *s, struct penstock_error *error);
    /* What is asked on a further connection to the same peer, for more rails or other ones. */
    enum client_purpose (*again)(const struct penstock_session *s);

    /* ---- rails ---- */

    enum penstock_dialect dialect;
    /* The regions that each of the peer's rails publishes: by the manifest, or of an arena. */
    size_t (*regions)(const struct penstock_session *s);
    uint64_t (*region_bytes)(const struct penstock_session *s, size_t region);
    /* The peer's, which knows then of all extensions; NULL: it may be one of the frozen protocol. The hook itself NULL:
     * that shows in whether it lists its rails. */
    const char *(*version)(const struct penstock_session *s);
    /* The rails that the port lists to those who ask (2.5, 2.6), by what a session FOR_MODELS came to; lister is that
     * one's tier where it is another. NULL: it lists none, and they are counted on. */
    const struct client_tier *lister;
    int (*listed)(const struct penstock_session *asked, struct rail_listing *out, struct penstock_error *error);
    /* What the frozen protocol's peers of this tier speak beside verbs. */
    bool frozen_tcp;
    /* The session's own stream is the one that its rails hang on, and none is built anew: what they reach, or hold,
     * is that connection's. */
    bool one_stream;

    /* ---- TCP: flight.c ---- */

    /* The peer copies what it sends, and should not get far ahead (net/stream.h). What it sends uncopied costs it more
     * the more often it has to wait. */
    bool small_window;

    /* The next request of op: encoded at out, PENSTOCK_RANGE_REQUEST_BYTES at most; returns its length. *body, which is
     * empty, is what follows it; the flight's other members are filled in. */
    size_t (*push)(struct penstock_session *s, struct client_op *op, struct client_flight *f, uint8_t *out,
                   struct iovec *body);
    /* Payload under way, at most, but for what a single request asks for. */
    uint64_t in_flight_bytes_max;
    /* Requests of less than the first urgency in flight, at most. */
    uint32_t (*later_max)(const struct penstock_session *s);
    /* A status that is not OK: the operation's end, in words; 0: it goes on. */
    int (*refused)(const struct penstock_session *s, const struct client_flight *f, uint8_t status,
                   struct penstock_error *error);
    /* The peer closed in the middle of the first flight's payload: whether all that is in flight may be asked for once
     * more, on another connection. A tier that says so endlessly has to see progress in between. NULL: never. */
    bool (*asks_again)(struct penstock_session *s);

    /* ---- one_stream ---- */

    /* Rails are up: goes on to client_verbs_ready. */
    int (*rails_up)(struct penstock_session *s, struct penstock_error *error);
    /* Takes what the stream has. 0, or its end. Calls nothing of the rail engine. */
    int (*hear)(struct penstock_session *s, struct penstock_error *error);
    /* When pump has to be called whatever the fds say. */
    int64_t (*due_ns)(const struct penstock_session *s);
    /* op is to end early, and completes once nothing of it is under way. */
    void (*cancel)(struct penstock_session *s, struct client_op *op);

    /* ---- operations: NULL where there is nothing to do ---- */

    /* All bytes have landed: a last look at them. */
    int (*landed)(struct penstock_session *s, struct client_op *op, struct penstock_error *error);
    /* It ends, its memory is nobody's any more. */
    void (*ended)(struct penstock_session *s, struct client_op *op);
    /* It is TCP after all: a look at what was submitted while that was not known. */
    void (*over_tcp)(struct penstock_session *s);
    /* Over rails: puts what waits, and there is room for, into the engine. Those that wait have their waiting set,
     * where rails may be built anew. */
    void (*pump)(struct penstock_session *s);
    /* Whether a rail that is up can carry what waits. NULL: any can. */
    bool (*carries)(const struct penstock_session *s);
    /* The registrations of memory that the tier holds end. */
    void (*forget_memory)(struct penstock_session *s);
};

extern const struct client_tier client_weights;

#endif
