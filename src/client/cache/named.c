#include "named.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "client/tier.h"

static void *item(const struct client_named *w, size_t i)
{
    return (uint8_t *)w->items + i * w->kind->item_bytes;
}

static int *code_of(const struct client_named *w, size_t i)
{
    return (int *)((uint8_t *)item(w, i) + w->kind->code_at);
}

/* The codes to where they are looked for; *first is the first item that has the operation's. Returns how many have. */
static size_t give_codes(const struct client_named *w, int code, size_t *first)
{
    size_t n = 0;
    for (size_t i = w->n; i-- > 0;) {
        int own = w->raw ? code : w->blobs[i].code;
        *code_of(w, i) = own;
        if (own == code) {
            *first = i;
            n++;
        }
    }
    return n;
}

static int ended(struct client_then *then, int code, struct penstock_error *error)
{
    static const char *const verbs[] = { [PENSTOCK_BLOB_PUT] = "put",
                                         [PENSTOCK_BLOB_GET] = "get",
                                         [PENSTOCK_BLOB_EXISTS] = "look for",
                                         [PENSTOCK_BLOB_REMOVE] = "remove" };
    const struct client_named *w = (const struct client_named *)then;
    size_t first = 0, n = give_codes(w, code, &first);
    if (n == 0 || w->raw || (code != PENSTOCK_ENOTFOUND && code != PENSTOCK_EREFUSED))
        return code;
    char name[120];
    w->kind->name(item(w, first), name, sizeof name);
    if (code == PENSTOCK_ENOTFOUND)
        base_error_set(error, code, "has not got %s (a miss; %zu of %zu %s)", name, n, w->n, w->kind->plural);
    else
        base_error_set(error, code,
                       "could not %s %s (and %zu more of %zu): every slot is in use, or its disk failed: "
                       "its log says which",
                       verbs[w->action], name, n - 1, w->n);
    client_engine_name(w->session, error);
    return code;
}

static void forget(struct penstock_session *s, struct client_then *then)
{
    (void)s;
    client_named_free((struct client_named *)then);
}

void client_named_free(struct client_named *named)
{
    free(named);
}

int client_named_new(struct penstock_session *s, const struct client_named_kind *kind,
                     const struct client_named_batch *b, struct client_named **out, struct penstock_error *error)
{
    struct client_named *w;
    bool raw = s->cache->arena.blob_bytes == 0;
    size_t bytes, each = raw ? sizeof *w->ranges : sizeof *w->blobs;
    if (b->action < PENSTOCK_BLOB_PUT || b->action > PENSTOCK_BLOB_REMOVE)
        return base_error_set(error, PENSTOCK_EINVAL, "%s: unknown action %d", kind->plural, b->action);
    if (raw && b->action != PENSTOCK_BLOB_PUT && b->action != PENSTOCK_BLOB_GET)
        return base_error_set(error, PENSTOCK_EINVAL, "%s: in a raw arena all are there, and none can be removed",
                              kind->plural);
    if (!b->items && b->count > 0)
        return base_error_set(error, PENSTOCK_EINVAL, "%s: none are given", kind->plural);
    w = NULL;
    if (b->count <= SIZE_MAX && base_mul_size(b->count, each, &bytes) && base_add_size(bytes, sizeof *w, &bytes))
        w = calloc(1, bytes);
    if (!w)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for an operation on %s", kind->plural);
    *w = (struct client_named){ .then = { .ended = ended, .free = forget },
                                .kind = kind,
                                .session = s,
                                .items = b->items,
                                .n = b->count,
                                .raw = raw,
                                .action = b->action };
    if (raw)
        w->ranges = (struct penstock_raw_range *)(w + 1);
    else
        w->blobs = (struct penstock_blob *)(w + 1);
    *out = w;
    return 0;
}

static int submit(struct client_named *w, const struct client_named_batch *b, penstock_op *op,
                  struct penstock_error *error)
{
    if (w->raw) {
        const struct penstock_raw raw = { .size = sizeof raw,
                                          .write = b->action == PENSTOCK_BLOB_PUT,
                                          .region = b->region,
                                          .ranges = w->ranges,
                                          .count = w->n,
                                          .timeout_ns = b->timeout_ns,
                                          .user = b->user };
        return client_submit_raw(w->session, &raw, &w->then, op, error);
    }
    const struct penstock_blobs blobs = { .size = sizeof blobs,
                                          .action = b->action,
                                          .region = b->region,
                                          .blobs = w->blobs,
                                          .count = w->n,
                                          .timeout_ns = b->timeout_ns,
                                          .user = b->user };
    return client_submit_blobs(w->session, &blobs, &w->then, op, error);
}

int client_named_submit(struct client_named *named, const struct client_named_batch *batch, penstock_op *op,
                        struct penstock_error *error)
{
    for (size_t i = 0; i < named->n; i++)
        *code_of(named, i) = PENSTOCK_ECANCELED;
    int code = submit(named, batch, op, error);
    if (code)
        client_named_free(named);
    return code;
}
