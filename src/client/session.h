/* One session: a non-blocking state machine over one stream. session.c has the public calls, options.c what they are
 * asked for, engine.c drives, hello.c takes it from the dial to the first request, flight.c moves requests and replies,
 * rejoin.c takes them to another connection, op.c keeps the operations; verbs.h is what it has instead of flights where
 * it runs over RDMA. What is asked for, and what of it travels how, is the tier's (tier.h).
 *
 * A session belongs to one thread at a time: nothing here is locked. Only catalogues are shared. */
#ifndef PENSTOCK_CLIENT_SESSION_H
#define PENSTOCK_CLIENT_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <penstock/penstock.h>
#include <penstock/wire.h>

#include "base/list.h"
#include "base/vec.h"
#include "client/plan.h"
#include "net/address.h"
#include "net/stream.h"
#include "rail/engine.h"

/* A peer parses this many requests ahead of its replies (protocol 2); more would only wait in the socket. */
#define CLIENT_FLIGHTS_MAX 256u
/* How far a read may go beyond the next status byte that nobody has seen yet: what comes behind a refusal has landed in
 * the wrong place, and is moved through a buffer of this size. */
#define CLIENT_AHEAD_BYTES_MAX (UINT64_C(1) << 20)
#define CLIENT_IOV_MAX 512
#define CLIENT_HEAD_BYTES 8 /* a text's length, or the longest answer without a text */
#define CLIENT_URGENCIES 2  /* what is wanted now, and what may wait for that */
#define CLIENT_SCRATCH_BYTES (PENSTOCK_DIGESTS_MAX * PENSTOCK_DIGEST_BYTES)

enum client_step {
    CLIENT_DIALLING, /* connect() is under way */
    CLIENT_ASKING,   /* the model request goes out, and the reply's length is awaited */
    CLIENT_BODY,     /* the reply's body comes in */
    CLIENT_READY,    /* MODE_TCP is sent: requests and replies */
    CLIENT_PAIRING,  /* a session beside this asks for the peer's rails */
    CLIENT_SHAKING,  /* MODE_VERBS is sent: the rail handshake */
    CLIENT_RAILS,    /* over RDMA; of a session that builds rails for another: they are there to be taken */
    CLIENT_DEAD,
};

struct client_tier;
struct client_verbs;
struct client_shake;

/* What a connection is for, and so what its first reply is. All but the first are the weight tier's; the cache's
 * statistics are CLIENT_FOR_MODELS as well. */
enum client_purpose {
    CLIENT_FOR_MANIFEST,
    CLIENT_FOR_JOIN,
    CLIENT_FOR_MODELS, /* penstock_models_get: the session ends with the reply, and needs no rails */
    CLIENT_FOR_WORDS,  /* the same question, to say what a peer has that refused the model */
};

enum client_op_kind {
    CLIENT_OP_OPEN,
    CLIENT_OP_READ,
    CLIENT_OP_DIGESTS,
    CLIENT_OP_FETCH,
    CLIENT_OP_BLOBS,
    CLIENT_OP_RAW
};

struct client_op;

/* What the library itself does with a read's bytes (lora.c), before whoever waits for the operation learns of its end.
 */
struct client_then {
    /* Once, with the code that it ended with; what it returns is the operation's code, and *error its words where they
     * are others than those it ended with. Not called when the session is freed before. */
    int (*ended)(struct client_then *then, int code, struct penstock_error *error);
    /* When the operation is forgotten: nothing reads into its memory any more. */
    void (*free)(struct penstock_session *s, struct client_then *then);
};

/* FETCH: a record of the expert tier's. */
struct client_fetch {
    uint64_t slot;
    uint32_t layer, expert;
    uint8_t lane; /* the rail that it was given to */
    bool flying;  /* and was not given back by */
    struct rail_range range;
};

/* BLOBS and RAW: of the cache. */
struct client_blobs {
    int action;
    struct penstock_blob *at; /* the caller's, one for each request of the plan */
    size_t missed, first_missed, refused, first_refused;
    bool write;       /* RAW */
    bool uses_region; /* it counts among its users */
};

/* An operation: on session->ops while it is under way, on session->done until it is polled for, on session->told until
 * the next poll. */
struct client_op {
    struct base_list node;
    struct base_list queue;  /* in session->unsent, in session->on_rails, in a queue of the tier's, or in none */
    struct client_op *chain; /* of its bucket in session->table */
    penstock_op id;
    void *user;
    int64_t timeout_ns;
    enum client_op_kind kind;
    unsigned urgency; /* 0: first; which of session->unsent */
    uint32_t region;  /* READ */
    bool done, told;
    int code;
    uint64_t landed_bytes;
    struct penstock_error *error;      /* NULL: the words are the session's, or there are none */
    struct client_then *then;          /* NULL: nothing */
    size_t sent, answered;             /* requests */
    uint64_t digests_max;              /* DIGESTS */
    struct client_plan plan;           /* READ: its requests; else one, */
    struct client_request own_request; /* this, */
    struct iovec own_pieces[2]; /* into this. DIGESTS: what is wanted, and the rest, once their number is known */

    struct client_fetch fetch;
    struct client_blobs blobs;

    /* Over RDMA (verbs_read.c): part of it on rails, part of it an operation of the session beside. */
    struct client_split split;
    struct rail_transfer transfer;
    bool waiting;       /* for rails to be up */
    bool on_rails;      /* the transfer is the engine's */
    penstock_op beside; /* 0: nothing is, or not any more */
    unsigned parts;     /* not ended */
    int failed;         /* of the first part that failed; its words are in error */
    bool doubtful;      /* all rails failed under it: whether the peer is gone is not known yet */
};

/* A request that was sent and is not answered. */
struct client_flight {
    struct client_op *op; /* NULL: cancelled; the reply's bytes are dropped */
    size_t request;       /* of op->plan */
    uint64_t len_bytes;   /* of the payload; of digests, once their number is known */
    uint64_t waste_bytes; /* of it: nobody wants them, and they land on top of each other */
    bool digests;
    bool later;           /* of less than the first urgency */
    uint64_t chunks_left; /* digests: the file has no more than these */
};

enum client_phase { CLIENT_STATUS, CLIENT_COUNT, CLIENT_PAYLOAD };

/* What follows a request, straight from the caller's memory. */
struct client_body {
    size_t at; /* goes out when everything before this byte of session->out has */
    const uint8_t *bytes;
    size_t len_bytes;     /* what is left of it */
    struct client_op *op; /* NULL: it has ended, and bytes are a copy, */
    uint8_t *copy;        /* this */
};

struct client_region {
    uint8_t *address; /* NULL with users 0 and !known: free; DEVICE: NULL as well */
    uint64_t len_bytes;
    size_t users; /* reads under way */
    bool known;
    bool device; /* a dmabuf */
    int dmabuf_fd;
    uint64_t offset_bytes;
    struct rail_memory *memory; /* over RDMA: NULL until it is first read into */
    bool known_beside;          /* to the session beside, */
    uint32_t beside;            /* as this region */
};

struct penstock_session {
    const struct client_tier *tier;
    enum client_step step;
    enum client_purpose purpose;
    char *peer;
    int64_t connect_timeout_ns, manifest_timeout_ns, reply_timeout_ns, rails_timeout_ns;
    struct net_congestion congestion;
    struct penstock_error error; /* DEAD: of what; FOR_WORDS: of what it will be */

    /* connection */
    struct net_addresses addresses;  /* n 0: the stream was given, and there is no second connection */
    size_t address;                  /* the one in use */
    struct penstock_error unreached; /* of those before it */
    struct net_stream stream;
    bool has_stream;
    int epoll;
    uint32_t watched;    /* the events that epoll knows of */
    int64_t progress_ns; /* when a byte last moved, or the step began; READY: received, or the first request sent */
    bool heard;          /* a reply came after MODE_TCP */
    bool more;           /* run stopped at its budget: call again at once */
    bool rejoining;      /* it was READY, on a connection that is gone */

    /* hello */
    uint8_t head[CLIENT_HEAD_BYTES];
    size_t head_bytes;
    uint8_t *body; /* with MODEL_JSON_PADDING behind it */
    size_t body_len, body_got, body_cap;
    uint64_t manifest_hash[2]; /* to be the same again where the peer gives no version */

    /* the weight tier */
    char *model;
    struct penstock_catalogue *catalogue;
    struct penstock_models *models; /* FOR_MODELS: the answer */
    bool join_refused;              /* FOR_WORDS: a join was refused, in the words of s->error */

    struct client_experts *experts;           /* the expert tier */
    struct client_cache *cache;               /* the cache */
    struct penstock_cache_stats *cache_stats; /* and what its peer said of itself */

    /* RDMA */
    enum penstock_transport transport; /* as asked for */
    struct client_verbs *verbs;        /* NULL: over TCP */
    bool verbs_lent;                   /* verbs is another session's, for which this one builds rails */
    struct client_shake *shake;        /* SHAKING; and RAILS where verbs is lent */
    char *why_tcp;                     /* where AUTO was asked for */
    struct base_list on_rails;         /* operations that the rail engine has, in the order that they were begun in */
    bool waited_for;                   /* by a thread that may spin for a moment */

    /* operations */
    struct base_list ops, done, told;
    struct client_op **table; /* by id: all of them */
    size_t table_mask, table_n;
    penstock_op last_id;
    penstock_op open_id; /* 0 once it is done */
    BASE_VEC(struct client_region) regions;
    size_t region_free; /* no region below it is free */

    /* sending */
    struct base_list unsent[CLIENT_URGENCIES]; /* operations with requests to send: the first's are the next */
    uint8_t out[PENSTOCK_MODEL_REQUEST_BYTES_MAX + 1 + CLIENT_FLIGHTS_MAX * PENSTOCK_RANGE_REQUEST_BYTES];
    size_t out_at, out_end;
    struct client_body bodies[CLIENT_FLIGHTS_MAX];
    size_t body_at, body_end;

    /* flights: a ring, answered in the order sent */
    struct client_flight flights[CLIENT_FLIGHTS_MAX];
    uint32_t flight_head, flight_n;
    uint32_t later_in_flight; /* of flight_n */
    uint64_t in_flight_bytes;

    /* the reply under way: of the first flight */
    enum client_phase phase;
    uint8_t count[4];
    size_t count_bytes;
    uint64_t payload_left;
    size_t piece, piece_at; /* where its next byte goes */

    uint8_t *scratch; /* CLIENT_SCRATCH_BYTES: dropped bytes */
    uint8_t *ahead;   /* CLIENT_AHEAD_BYTES_MAX: see flight.c */
};

static inline struct client_flight *client_flight_at(struct penstock_session *s, uint32_t i)
{
    return &s->flights[(s->flight_head + i) % CLIENT_FLIGHTS_MAX];
}

/* ---- options.c ---- */

/* EINVAL: what was given as NULL. */
int client_missing(const char *what, struct penstock_error *error);

/* A caller's struct, of whatever size it knows, as this version's. what names it. */
#define client_take_sized(to, from, what, error)                                                                       \
    client_take_bytes((to), sizeof *(to), (from), (from) ? (from)->size : 0, what, error)
PENSTOCK_CHECKED int client_take_bytes(void *to, size_t to_size, const void *from, size_t from_size, const char *what,
                                       struct penstock_error *error);
/* Into the session, with the devices that it may need. options may be NULL. */
PENSTOCK_CHECKED int client_options_take(struct penstock_session *s, struct verbs_world *world,
                                         const struct penstock_options *options, enum client_purpose purpose,
                                         struct penstock_error *error);

/* A region of memory that was checked to be one. */
PENSTOCK_CHECKED int client_memory_region(const struct penstock_memory *memory, struct client_region *region,
                                          struct penstock_error *error);

/* ---- op.c ---- */

/* A new operation, on session->ops. NULL without memory. */
struct client_op *client_op_new(struct penstock_session *s, enum client_op_kind kind, int64_t timeout_ns, void *user);
/* Under way or done; NULL: neither. */
struct client_op *client_op_find(const struct penstock_session *s, penstock_op id);
/* Told; NULL: not, or forgotten. */
const struct client_op *client_op_find_told(const struct penstock_session *s, penstock_op id);
/* Completes it: nothing of its memory is touched from now on. words may be NULL, or be the operation's already. */
void client_op_end(struct penstock_session *s, struct client_op *op, int code, const struct penstock_error *words);
/* done -> told. */
void client_op_tell(struct penstock_session *s, struct client_op *op, struct penstock_completion *completion);
/* Its requests follow those of the operations before it that are as urgent. */
void client_op_queue(struct penstock_session *s, struct client_op *op);
void client_ops_forget_told(struct penstock_session *s);
void client_ops_free(struct penstock_session *s);

/* ---- flight.c ---- */

/* Whether there are requests to send, and room for a batch of them. */
bool client_flight_may_fill(const struct penstock_session *s);
/* Encodes as many requests as may be in flight. */
void client_flight_fill(struct penstock_session *s);
/* Takes what the socket has, up to a budget. -EAGAIN (all taken), 0 (budget spent, or a new step), or an error in
 * *error. */
int client_flight_receive(struct penstock_session *s, struct penstock_error *error);
/* Its flights are answered to nobody. */
void client_flight_drop(struct penstock_session *s, const struct client_op *op);

/* ---- hello.c ---- */

/* From the next address on, of those that the name stands for. */
PENSTOCK_CHECKED int client_hello_dial(struct penstock_session *s, struct penstock_error *error);
/* Over the stream that the session has. */
PENSTOCK_CHECKED int client_hello_ask(struct penstock_session *s, struct penstock_error *error);
/* One step on, as far as bytes allow: 0 or -EAGAIN, or an error in *error. */
int client_hello_step(struct penstock_session *s, struct penstock_error *error);
/* How long a session may be in this step without a byte, and what it waits for. */
int64_t client_hello_timeout(const struct penstock_session *s, const char **waiting_for);
void client_hello_enter(struct penstock_session *s, enum client_step step);
/* The manifest is there: over rails from here on, or over TCP. */
PENSTOCK_CHECKED int client_hello_begin(struct penstock_session *s, struct penstock_error *error);
/* All is said: operations travel from here on. */
PENSTOCK_CHECKED int client_hello_ready(struct penstock_session *s, struct penstock_error *error);
/* Over TCP: the mode byte. */
PENSTOCK_CHECKED int client_hello_to_tcp(struct penstock_session *s, struct penstock_error *error);
/* Once more from the dial on, to the address in use. EUNSUPPORTED: the stream was given. */
PENSTOCK_CHECKED int client_hello_redial(struct penstock_session *s, enum client_purpose purpose,
                                         struct penstock_error *error);
/* A step failed with *error. 0: the session goes on (another address, or a connection to find words); else it is to die
 * of *error. */
PENSTOCK_CHECKED int client_hello_failed(struct penstock_session *s, struct penstock_error *error);

/* ---- rejoin.c ---- */

/* The peer closed, *error says how. 0: the session asks again what it had asked, on a connection that is dialled; else
 * it is to die of *error. */
PENSTOCK_CHECKED int client_rejoin(struct penstock_session *s, struct penstock_error *error);
/* That connection came to *error: puts it into words, and returns what the session is to die of. */
PENSTOCK_CHECKED int client_rejoin_failed(struct penstock_error *error);

/* ---- engine.c ---- */

/* What a session is to be. */
struct client_start {
    const struct client_tier *tier;
    enum client_purpose purpose;
    struct verbs_world *world; /* where RDMA is simulated; NULL: libibverbs */
    const void *argument;      /* of the tier's set_up */
    const char *model;         /* the weight tier's */
    struct penstock_catalogue *catalogue;
};

/* Dials. Pointers are given, arguments of the tier's are checked. */
PENSTOCK_CHECKED int client_session_start(const struct client_start *start, const char *peer,
                                          const struct penstock_options *options, struct penstock_session **session,
                                          penstock_op *op, struct penstock_error *error);
/* The same over a stream that is connected, and which the session owns from then on, whatever happens. */
PENSTOCK_CHECKED int client_session_start_on(const struct client_start *start, struct net_stream *stream,
                                             const struct penstock_options *options, struct penstock_session **session,
                                             penstock_op *op, struct penstock_error *error);
/* Waits for a session that was started: *session, or none at all. */
PENSTOCK_CHECKED int client_session_opened(struct penstock_session *s, penstock_op op,
                                           struct penstock_session **session, struct penstock_error *error);
/* One more to the peer of s, at the address in use; in the epoll set of s. Over TCP, or to build rails for s. */
PENSTOCK_CHECKED int client_session_beside(struct penstock_session *s, enum client_purpose purpose, bool for_rails,
                                           struct penstock_session **session, struct penstock_error *error);
/* Whether an operation of tier can be submitted. */
PENSTOCK_CHECKED int client_can_submit(const struct penstock_session *s, const struct client_tier *tier,
                                       int64_t timeout_ns, struct penstock_error *error);
void client_engine_close_stream(struct penstock_session *s);
PENSTOCK_CHECKED int client_engine_watch(struct penstock_session *s, uint32_t events, struct penstock_error *error);
/* What a failed send or receive means: the connection is gone, whatever the errno (ETIMEOUT, ECLOSED, ENOMEM). */
PENSTOCK_CHECKED int client_engine_broken(int sys_errno, const char *doing, struct penstock_error *error);
/* Whether something is there to be written. */
static inline bool client_has_out(const struct penstock_session *s)
{
    return s->out_at < s->out_end || s->body_at < s->body_end;
}
/* bytes follow what is in out by now; op's, until it has ended. */
void client_engine_attach(struct penstock_session *s, struct client_op *op, const struct iovec *body);
/* op ends before all of its bodies are out, and its memory is the caller's again: they go on as copies. */
PENSTOCK_CHECKED int client_engine_detach(struct penstock_session *s, struct client_op *op,
                                          struct penstock_error *error);
/* Nothing of it goes out any more. */
void client_engine_forget_out(struct penstock_session *s);
/* Writes what is in out, and the bodies. 0 also where the socket is full. */
PENSTOCK_CHECKED int client_engine_flush(struct penstock_session *s, struct penstock_error *error);
/* Puts "weight peer NAME: " in front, where it is not there. */
void client_engine_name(const struct penstock_session *s, struct penstock_error *error);
/* With that in front, dies of it. */
void client_engine_fail(struct penstock_session *s, struct penstock_error *error);
/* penstock_submit, with what is to follow; then is the operation's from success on. NULL: nothing. */
PENSTOCK_CHECKED int client_submit(struct penstock_session *s, const struct penstock_read *read,
                                   struct client_then *then, penstock_op *op, struct penstock_error *error);
/* Everything that can be done now. */
void client_engine_run(struct penstock_session *s);
/* Until when nothing can be done unless fds say so; done: or something is there to be polled for. */
int64_t client_engine_timeout_ns(const struct penstock_session *s, bool done);
/* Drops out of flight and completes everything with *error. */
void client_engine_die(struct penstock_session *s, const struct penstock_error *error);

#endif
