/* Work on what a caller calls by names of its own (a block of a layer, a snapshot's number), and a cache by a key, or
 * by a place in a raw arena: one operation of the cache's beneath, whose codes go back to where the caller looks for
 * them, and whose words call things by their names. */
#ifndef PENSTOCK_CLIENT_CACHE_NAMED_H
#define PENSTOCK_CLIENT_CACHE_NAMED_H

#include "cache.h"

/* What the caller's array is made of. */
struct client_named_kind {
    size_t item_bytes, code_at; /* of an item, and of the int code in it */
    const char *plural;
    void (*name)(const void *item, char *text, size_t text_size); /* with its article */
};

struct client_named {
    struct client_then then;
    const struct client_named_kind *kind;
    struct penstock_session *session;
    void *items; /* the caller's, until the completion */
    size_t n;
    bool raw;
    int action; /* enum penstock_blob_action */
    union {     /* of n: to be filled in between new and submit */
        struct penstock_blob *blobs;
        struct penstock_raw_range *ranges;
    };
};

/* What all batches have: of enum penstock_blob_action, on n items. */
struct client_named_batch {
    int action;
    uint32_t region;
    void *items;
    uint64_t count;
    int64_t timeout_ns;
    void *user;
};

/* EINVAL: what cannot be done, also since the session's arena is raw. */
PENSTOCK_CHECKED int client_named_new(struct penstock_session *s, const struct client_named_kind *kind,
                                      const struct client_named_batch *batch, struct client_named **out,
                                      struct penstock_error *error);
/* Starts it, or frees it and says why not. */
PENSTOCK_CHECKED int client_named_submit(struct client_named *named, const struct client_named_batch *batch,
                                         penstock_op *op, struct penstock_error *error);
void client_named_free(struct client_named *named);

#endif
