/* The rail handshake (protocol 1.3, with 2.2's TCP data plane and 2.7's choice of rails), for both ends and both
 * dialects. Sans-I/O: bytes are fed in and taken out, and the QPs belong to a rail set that is driven through two
 * calls, prepare and complete, with choose and check beside them. It knows of manifests only how many regions to
 * expect.
 *
 *     while ((next = net_handshake_next(h)) == NET_HANDSHAKE_READ || next == NET_HANDSHAKE_WRITE)
 *         if (next == NET_HANDSHAKE_READ)  read at most net_handshake_want bytes, net_handshake_feed them
 *         else                             write net_handshake_output, tell net_handshake_wrote
 *
 * It never wants a byte past the end of its own messages. One thread at a time. */
#ifndef PENSTOCK_NET_HANDSHAKE_H
#define PENSTOCK_NET_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>
#include <penstock/wire.h>

#include "stream.h"

/* The wire can count further in neither dialect: the next bit asks for a choice. */
#define NET_RAILS_MAX 127

/* One end of one rail, whichever dialect it speaks: what completes a QP needs to know no more. */
struct net_rail {
    struct penstock_qp_identity qp;
    uint32_t n_regions;                   /* a peer's: read-only as many as are served, read-write 1; a client's: 0 */
    const struct penstock_layer *regions; /* a rail set's own: until it is completed or given up */
};

/* What the QPs of one connection have to be able to do. All return 0, or a negative PENSTOCK_E* with its words. */
struct net_rail_ops {
    /* The peer, before prepare: which of its rails to take and with what values (protocol 2.7), or a refusal. n
     * is 1..8. NULL: refuses all. */
    int (*choose)(void *rails, const struct penstock_rail_choice *wishes, size_t n,
                  struct penstock_rail_choice *granted, struct penstock_error *error);
    /* Creates n QPs, in INIT, and fills in n ends; the peer with its tables. May take long. */
    int (*prepare)(void *rails, size_t n, struct net_rail *mine, struct penstock_error *error);
    /* The client, before a byte of step 3: whether what the peer published will do, or a refusal; nothing is then sent.
     * theirs lasts until the call returns. NULL: whatever it is. */
    int (*check)(void *rails, size_t n, const struct net_rail *theirs, struct penstock_error *error);
    /* Connects QP i to theirs[i], up to RTS. n is that of prepare. agreed: what was chosen, n of them; NULL: each
     * end's own MTU, and 16 READs. theirs and the regions that it points to last until the call returns. */
    int (*complete)(void *rails, size_t n, const struct net_rail *theirs, const struct penstock_rail_choice *agreed,
                    struct penstock_error *error);
};

/* Calls complete for a set that has prepared n rails. Refuses another number of theirs: no rail may stay unconnected.
 */
PENSTOCK_CHECKED int net_rails_complete(const struct net_rail_ops *ops, void *rails, size_t n,
                                        const struct net_rail *theirs, size_t n_theirs,
                                        const struct penstock_rail_choice *agreed, struct penstock_error *error);

struct net_handshake_config {
    enum penstock_dialect dialect;
    const char *other; /* who is at the other end, for messages: "weight peer 10.0.0.2:9910"; copied, and cut */
    const struct net_rail_ops *ops;
    void *rails;
    size_t n_rails;   /* the client: how many it wants; the peer: how many it has */
    size_t n_regions; /* read-only: of each rail, 1..4096. By the manifest that was sent. */

    const struct penstock_rail_choice *wishes; /* the client: n_rails of them (2.7); NULL: the frozen step 1 */
    bool
        tcp; /* the read-write peer: 0 rails are granted, and mean the TCP data plane (2.2). A client just asks for 0 */
};

enum net_handshake_next { NET_HANDSHAKE_READ, NET_HANDSHAKE_WRITE, NET_HANDSHAKE_DONE, NET_HANDSHAKE_FAILED };

struct net_handshake;

/* EINVAL: a config that the protocol cannot say; ENOMEM. */
PENSTOCK_CHECKED int net_handshake_client_new(const struct net_handshake_config *config, struct net_handshake **out,
                                              struct penstock_error *error);
PENSTOCK_CHECKED int net_handshake_peer_new(const struct net_handshake_config *config, struct net_handshake **out,
                                            struct penstock_error *error);
void net_handshake_free(struct net_handshake *h); /* NULL is fine. The rail set is not touched */

enum net_handshake_next net_handshake_next(const struct net_handshake *h);

/* READ: how many bytes may be fed now, at most; never 0. */
size_t net_handshake_want(const struct net_handshake *h);
void net_handshake_feed(struct net_handshake *h, const uint8_t *bytes, size_t len);

/* WRITE: what to write; never empty. */
const uint8_t *net_handshake_output(const struct net_handshake *h, size_t *len);
void net_handshake_wrote(struct net_handshake *h, size_t len);

/* The stream ended (sys_errno 0) or broke, in a read or a write. The handshake has then FAILED, in words that fit. At
 * the client, what a peer does that refuses is EDENIED: the end of the stream before the first byte of step 2, and
 * ECONNRESET and EPIPE up to its last. */
void net_handshake_end(struct net_handshake *h, int sys_errno);
/* No byte moved for so long. */
void net_handshake_expire(struct net_handshake *h, int64_t after_ns);

/* Whether the other end may now take its time, as it registers memory or sets up its rails: the long deadlines of
 * protocol 2 are for this, and the short one for everything else. */
bool net_handshake_is_patient(const struct net_handshake *h);

/* DONE: the rails that are up; 0: it is the TCP data plane. */
size_t net_handshake_n_rails(const struct net_handshake *h);
/* FAILED: why. */
const struct penstock_error *net_handshake_error(const struct net_handshake *h);

/* ---- the same over a stream, waited for (handshake_blocking.c) ---- */

struct net_handshake_deadlines {
    int64_t patient_ns, message_ns; /* without a byte of progress */
};

/* Protocol 2's own. */
extern const struct net_handshake_deadlines net_handshake_client_deadlines; /* 1800 s and 30 s */
extern const struct net_handshake_deadlines net_handshake_peer_deadlines;   /* 300 s and 30 s */

/* Runs h to its end. A blocking stream's own timeouts are at most message_ns. */
PENSTOCK_CHECKED int net_handshake_run(struct net_handshake *h, struct net_stream *stream,
                                       const struct net_handshake_deadlines *deadlines, struct penstock_error *error);

/* From config to connected rails: *n_rails of them, 0: the TCP data plane. NULL deadlines are the protocol's. */
PENSTOCK_CHECKED int net_handshake_as_client(struct net_stream *stream, const struct net_handshake_config *config,
                                             const struct net_handshake_deadlines *deadlines, size_t *n_rails,
                                             struct penstock_error *error);
PENSTOCK_CHECKED int net_handshake_as_peer(struct net_stream *stream, const struct net_handshake_config *config,
                                           const struct net_handshake_deadlines *deadlines, size_t *n_rails,
                                           struct penstock_error *error);

#endif
