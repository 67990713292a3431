/* What a session over RDMA has: devices, rails and the control connections that they hang on, the memory registered
 * with them, and up to three sessions beside it. verbs.c opens, drives and closes; verbs_connect.c goes from a manifest
 * to rails; verbs_rails.c has them as they come, fail and are built anew; verbs_read.c has the reads.
 *
 * Shards are read over rails. Everything else (files, digests) is asked of a TCP session of its own, opened when it is
 * first needed. */
#ifndef PENSTOCK_CLIENT_VERBS_H
#define PENSTOCK_CLIENT_VERBS_H

#include <sys/types.h>

#include "client/session.h"
#include "rail/engine.h"
#include "rail/gid.h"
#include "rail/pair.h"

/* epoll's word for the fd of a CQ; all others have 0. */
#define CLIENT_WATCH_CQ 1u

/* A TCP stream that has been through the rail handshake. Its end is the peer's. */
struct client_control {
    struct net_stream stream;
    size_t rails; /* in use, that it brought; the stream is closed once there are none */
    bool mute;    /* it broke by itself: nothing is learned from it any more */
};

/* One of rail_devices, paired with a rail of the peer's. */
struct client_slot {
    bool paired;
    struct penstock_rail_choice wish;
    size_t control;                /* while its rail is up: an index */
    uint8_t peer_rail, mtu, reads; /* as last agreed on */
    uint64_t bytes_before;         /* moved when it last came up */
    uint64_t moved_bytes;          /* in all, once the engine is gone */
    uint64_t failures;
    unsigned in_a_row; /* failures, without a byte moved between them */
    int64_t retry_ns;  /* not built anew before; unless none is up */
    bool in_hand;      /* the rebuild is for it */
    bool tried;        /* since something was submitted */
    struct penstock_error error;
};

/* The rail handshake of one connection. */
struct client_shake {
    struct net_handshake *handshake;
    struct rail_set set;
    struct rail_pairing pairing; /* the rails of this connection */
};

struct client_verbs {
    pid_t owner; /* a child of fork() must not touch its parent's devices */
    struct rail_devices devices;
    struct verbs_pd *pds[PENSTOCK_RAILS_MAX]; /* rails of one device share one */
    struct client_slot slots[PENSTOCK_RAILS_MAX];
    struct rail_pairing pairing; /* n 0: not known yet. A peer of the frozen protocol may have fewer: the first n */
    bool choosing;               /* the peer knows of 2.7: the pairing's wishes are sent */
    uint64_t *region_bytes;      /* by the manifest */
    int64_t rail_deadline_ns;
    struct rail_engine *engine; /* NULL until the first rails are up */
    bool up;                    /* it has had rails: the session runs over RDMA */
    bool simulated;             /* no fd ever tells of anything */
    bool stopping;              /* what ends now is told to nobody */

    struct client_control controls[PENSTOCK_RAILS_MAX]; /* each has a rail in use, or had until just now */
    size_t n_controls;

    /* All on the addresses of the session itself, and in its epoll set; NULL: none. */
    struct penstock_session *asking;  /* for the peer's rails */
    struct penstock_session *rebuild; /* a further control connection */
    struct penstock_session *beside;  /* TCP, for files and digests */

    bool wanted;    /* something was submitted: rails that failed may be tried again */
    bool building;  /* and are being tried, one after the other */
    bool submitted; /* to the engine, since it was polled */
    bool armed;     /* the fds tell of every completion to come */
    int64_t
        judge_ns; /* until when operations that all rails failed under wait for word of the peer's end; 0: none do */
    struct penstock_error rebuild_error; /* of the last try; code 0: it went well */
    struct penstock_error bounce;        /* code 0: all memory is registered */
    struct penstock_error broken;        /* one_stream: what the session is to die of; code 0: nothing */
    char gid_texts[PENSTOCK_RAILS_MAX][RAIL_GID_TEXT_MAX];
};

/* ---- verbs.c ---- */

/* The devices that rails (NULL: all) names. world NULL: libibverbs. */
PENSTOCK_CHECKED int client_verbs_open(struct verbs_world *world, const char *rails, struct client_verbs **verbs,
                                       struct penstock_error *error);
/* Rails first: nothing is written to after it. Operations stay as they are; regions keep what is registered. */
void client_verbs_stop(struct penstock_session *s);
/* All of it, registrations included; the session is then one over TCP. */
void client_verbs_close(struct penstock_session *s);
/* Everything that can be done now. -EAGAIN, or what the session is to die of. */
int client_verbs_step(struct penstock_session *s, struct penstock_error *error);
/* When step has to be called whatever the fds say. */
int64_t client_verbs_deadline_ns(const struct penstock_session *s);

/* ---- verbs_connect.c ---- */

/* After the manifest, or the answer to a join: what comes instead of the mode byte for TCP. */
PENSTOCK_CHECKED int client_verbs_begin(struct penstock_session *s, struct penstock_error *error);
/* CLIENT_PAIRING and CLIENT_SHAKING, one step on. */
int client_verbs_pair(struct penstock_session *s, struct penstock_error *error);
int client_verbs_shake(struct penstock_session *s, struct penstock_error *error);
/* CLIENT_SHAKING failed with *error. 0: the session goes on, with fewer rails or over TCP. */
PENSTOCK_CHECKED int client_verbs_shake_failed(struct penstock_session *s, struct penstock_error *error);
/* All is said: operations travel over rails from here on. */
PENSTOCK_CHECKED int client_verbs_ready(struct penstock_session *s, struct penstock_error *error);
void client_shake_free(struct client_shake *shake); /* NULL is fine */

/* ---- verbs_rails.c ---- */

/* A try to have its rail has failed. */
void client_slot_failed(struct client_slot *slot, const struct penstock_error *error);
/* What the handshake of `from` (s itself, or one that builds rails for it) has brought: rails for the slots that have
 * none, and the stream that they hang on. */
PENSTOCK_CHECKED int client_verbs_take_rails(struct penstock_session *s, struct penstock_session *from,
                                             struct penstock_error *error);
/* Begins to build anew what has failed, where it is time. */
void client_verbs_rebuild(struct penstock_session *s);
/* Drives that on. */
void client_verbs_rebuilding(struct penstock_session *s);
/* The engine's: a slot has lost its rail. */
void client_verbs_rail_failed(void *session, size_t slot, const struct penstock_error *error);
/* Whether a control connection that rails hang on has ended; *error then says so. */
bool client_verbs_peer_gone(void *session, struct penstock_error *error);
/* Closes control connections that no rail hangs on any more. */
void client_verbs_drop_controls(struct penstock_session *s);

/* ---- verbs_read.c ---- */

/* Begins what op asks for: its split is made (READ), or its request (DIGESTS). It may have ended when this returns. */
void client_verbs_start(struct penstock_session *s, struct client_op *op);
/* It completes once nothing of it is under way. */
void client_verbs_cancel(struct penstock_session *s, struct client_op *op);
/* Rails are up: those that wait for them begin. */
void client_verbs_resume(struct penstock_session *s);
/* It is TCP after all: those that were submitted while that was not known become requests. */
void client_verbs_to_tcp(struct penstock_session *s);
/* There will be none: those that wait for them end with *error. */
void client_verbs_give_up(struct penstock_session *s, const struct penstock_error *error);
/* One part of op: op->transfer, with ranges and a rail, goes to the engine; on failure the part has ended. */
void client_verbs_transfer(struct penstock_session *s, struct client_op *op, struct client_region *region);
/* Registers a region with the devices whose rails are used, once. */
PENSTOCK_CHECKED int client_verbs_know(struct penstock_session *s, struct client_region *region,
                                       struct penstock_error *error);
/* Operations that failed with all rails end. */
void client_verbs_judge(struct penstock_session *s);
/* Takes what the session beside has completed. */
void client_verbs_collect(struct penstock_session *s);
/* A region's registrations end. */
void client_region_forget(struct penstock_session *s, struct client_region *region);

#endif
