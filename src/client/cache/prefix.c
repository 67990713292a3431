/* How much of a prompt a peer has: EXISTS of all its blocks, and the first that is not there. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "cache.h"
#include "client/tier.h"

struct asking {
    struct client_then then;
    uint64_t *found;
    size_t n;
    struct penstock_blob blobs[];
};

static int asked(struct client_then *then, int code, struct penstock_error *error)
{
    struct asking *a = (struct asking *)then;
    (void)error;
    if (code != 0 && code != PENSTOCK_ENOTFOUND)
        return code;
    *a->found = penstock_blobs_prefix(a->blobs, a->n);
    return 0;
}

static void forget(struct penstock_session *s, struct client_then *then)
{
    (void)s;
    free(then);
}

static struct asking *asking_new(const struct penstock_prefix *p)
{
    size_t bytes;
    if (p->count > SIZE_MAX || !base_mul_size(p->count, sizeof(struct penstock_blob), &bytes) ||
        !base_add_size(bytes, sizeof(struct asking), &bytes))
        return NULL;
    struct asking *a = calloc(1, bytes);
    if (!a)
        return NULL;
    a->then = (struct client_then){ .ended = asked, .free = forget };
    a->found = p->found;
    a->n = p->count;
    for (size_t i = 0; i < a->n; i++)
        a->blobs[i].key = p->keys[i];
    return a;
}

int penstock_submit_prefix(struct penstock_session *session, const struct penstock_prefix *prefix, penstock_op *op,
                           struct penstock_error *error)
{
    struct penstock_prefix p;
    if (!session || !op)
        return client_missing("session and op", error);
    int code = client_take_sized(&p, prefix, "prefix", error);
    if (code)
        return code;
    if (!p.found || (!p.keys && p.count > 0))
        return client_missing("keys and found", error);
    if (session->cache && session->open_id == 0 && !(session->cache->features & PENSTOCK_FEATURE_EXISTS))
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "%s %.100s is of the frozen protocol, and cannot be asked for a prefix: get the blobs",
                              session->tier->peer, session->peer);
    struct asking *a = asking_new(&p);
    if (!a)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for one more operation");
    const struct penstock_blobs blobs = { .size = sizeof blobs,
                                          .action = PENSTOCK_BLOB_EXISTS,
                                          .blobs = a->blobs,
                                          .count = a->n,
                                          .timeout_ns = p.timeout_ns,
                                          .user = p.user };
    *p.found = 0;
    code = client_submit_blobs(session, &blobs, &a->then, op, error);
    if (code)
        free(a);
    return code;
}

int penstock_prefix_wait(struct penstock_session *session, const struct penstock_key *keys, uint64_t count,
                         uint64_t *found, struct penstock_error *error)
{
    const struct penstock_prefix prefix = { .size = sizeof prefix, .keys = keys, .count = count, .found = found };
    penstock_op op = 0;
    int code = penstock_submit_prefix(session, &prefix, &op, error);
    return code ? code : penstock_wait(session, op, NULL, error);
}
