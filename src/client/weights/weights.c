/* The weight tier: sessions on a model, reads and digests. Protocol 1.5, 2.1, 2.5. */
#include "weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "catalogue.h"
#include "client/tier.h"
#include "client/verbs.h"
#include "model/digest.h"
#include "models.h"

/* ---- begin ---- */

static int take_model(const char *model, const struct penstock_catalogue *catalogue, struct penstock_error *error)
{
    size_t len = model ? strlen(model) : 0;
    if (len == 0)
        return base_error_set(error, PENSTOCK_EINVAL, "no model is named");
    if (len > PENSTOCK_MODEL_REQUEST_MAX)
        return base_error_set(error, PENSTOCK_EINVAL, "the model's name has %zu bytes, and may have %u", len,
                              PENSTOCK_MODEL_REQUEST_MAX);
    if (strncmp(model, "penstock:", 9) == 0)
        return base_error_set(error, PENSTOCK_EINVAL, "'%.100s': names that begin with penstock: are the protocol's",
                              model);
    if (catalogue && !penstock_catalogue_version(catalogue))
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "'%.100s' cannot be joined: the peer gave its catalogue no model_version", model);
    return 0;
}

int client_session_in_world(struct verbs_world *world, const char *peer, const struct penstock_options *options,
                            enum client_purpose purpose, const char *model, struct penstock_catalogue *catalogue,
                            struct penstock_session **session, penstock_op *op, struct penstock_error *error)
{
    const struct client_start start = {
        .tier = &client_weights, .purpose = purpose, .world = world, .model = model, .catalogue = catalogue
    };
    if (!peer || !session || !op)
        return client_missing("peer, session and op", error);
    struct penstock_error words = { 0 };
    int code = purpose == CLIENT_FOR_MODELS ? 0 : take_model(model, catalogue, &words);
    code = code ? code : client_session_start(&start, peer, options, session, op, &words);
    if (code && error)
        *error = words;
    return code;
}

int client_session_new(const char *peer, const struct penstock_options *options, enum client_purpose purpose,
                       const char *model, struct penstock_catalogue *catalogue, struct penstock_session **session,
                       penstock_op *op, struct penstock_error *error)
{
    return client_session_in_world(NULL, peer, options, purpose, model, catalogue, session, op, error);
}

int client_session_on_stream(struct net_stream *stream, const struct penstock_options *options,
                             enum client_purpose purpose, const char *model, struct penstock_catalogue *catalogue,
                             struct penstock_session **session, penstock_op *op, struct penstock_error *error)
{
    const struct client_start start = {
        .tier = &client_weights, .purpose = purpose, .model = model, .catalogue = catalogue
    };
    int code = purpose == CLIENT_FOR_MODELS ? 0 : take_model(model, catalogue, error);
    if (code == 0)
        return client_session_start_on(&start, stream, options, session, op, error);
    stream->ops->close(stream);
    return code;
}

int penstock_weights_start(const char *peer, const char *model, struct penstock_catalogue *catalogue,
                           const struct penstock_options *options, struct penstock_session **session, penstock_op *op,
                           struct penstock_error *error)
{
    return client_session_new(peer, options, catalogue ? CLIENT_FOR_JOIN : CLIENT_FOR_MANIFEST, model, catalogue,
                              session, op, error);
}

int penstock_weights_open(const char *peer, const char *model, struct penstock_catalogue *catalogue,
                          const struct penstock_options *options, struct penstock_session **session,
                          struct penstock_error *error)
{
    struct penstock_session *s = NULL;
    penstock_op op = 0;
    if (!session)
        return client_missing("session", error);
    int code = penstock_weights_start(peer, model, catalogue, options, &s, &op, error);
    if (code)
        return code;
    return client_session_opened(s, op, session, error);
}

struct penstock_catalogue *penstock_session_catalogue(struct penstock_session *session)
{
    if (!session || !session->catalogue)
        return NULL;
    penstock_catalogue_ref(session->catalogue);
    return session->catalogue;
}

/* ---- operations ---- */

static int can_submit(const struct penstock_session *s, int64_t timeout_ns, struct penstock_error *error)
{
    int code = client_can_submit(s, &client_weights, timeout_ns, error);
    if (code == 0 && !s->catalogue)
        code = base_error_set(error, PENSTOCK_EINVAL, "the session has no catalogue yet: wait until it is open");
    return code;
}

static void begin(struct penstock_session *s, struct client_op *op)
{
    if (s->verbs)
        client_verbs_start(s, op);
    else
        client_op_queue(s, op);
}

/* What a read asks for, in the form that its transport takes. */
static int plan_read(const struct penstock_session *s, const struct penstock_read *r, struct client_plan *plan,
                     struct client_split *split, struct penstock_error *error)
{
    const struct client_region *region = &s->regions.at[r->region];
    *plan = (struct client_plan){ 0 };
    *split = (struct client_split){ 0 };
    if (s->verbs) {
        int code = client_split_make(s->catalogue, r->ranges, r->count, region->len_bytes, split, error);
        if (code == 0 && region->device && split->n_files > 0) {
            client_split_fini(split);
            code =
                base_error_set(error, PENSTOCK_EUNSUPPORTED,
                               "read: region %" PRIu32 " is DEVICE memory, which only shards can be read into: other "
                               "files come over TCP",
                               r->region);
        }
        return code;
    }
    if (region->device)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "read: region %" PRIu32 " is DEVICE memory, and this session runs over TCP%s%.300s",
                              r->region, s->why_tcp ? ": " : "", s->why_tcp ? s->why_tcp : "");
    return client_plan_make(s->catalogue, r->ranges, r->count, region->address, region->len_bytes, plan, error);
}

int client_submit(struct penstock_session *s, const struct penstock_read *read, struct client_then *then,
                  penstock_op *op, struct penstock_error *error)
{
    struct penstock_read r;
    if (!s || !op) {
        (void)client_missing("session and op", error);
        return PENSTOCK_EINVAL;
    }
    int code = client_take_sized(&r, read, "read", error);
    code = code ? code : can_submit(s, r.timeout_ns, error);
    if (code)
        return code;
    if (r.region >= s->regions.n || !s->regions.at[r.region].known)
        return base_error_set(error, PENSTOCK_EINVAL, "read: no region %" PRIu32 " is registered", r.region);
    if (!r.ranges && r.count > 0)
        return base_error_set(error, PENSTOCK_EINVAL, "read: no ranges are given");
    struct client_region *region = &s->regions.at[r.region];
    struct client_plan plan;
    struct client_split split;
    code = plan_read(s, &r, &plan, &split, error);
    if (code)
        return code;
    struct client_op *o = client_op_new(s, CLIENT_OP_READ, r.timeout_ns ? r.timeout_ns : s->reply_timeout_ns, r.user);
    if (!o) {
        client_plan_fini(&plan);
        client_split_fini(&split);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for one more operation");
    }
    o->region = r.region;
    o->plan = plan;
    o->split = split;
    o->then = then;
    region->users++;
    *op = o->id;
    begin(s, o);
    return 0;
}

int penstock_submit(struct penstock_session *session, const struct penstock_read *read, penstock_op *op,
                    struct penstock_error *error)
{
    return client_submit(session, read, NULL, op, error);
}

int penstock_submit_digests(struct penstock_session *session, const struct penstock_digests *digests, penstock_op *op,
                            struct penstock_error *error)
{
    struct penstock_digests d;
    struct penstock_session *s = session;
    if (!s || !op)
        return client_missing("session and op", error);
    int code = client_take_sized(&d, digests, "digests", error);
    code = code ? code : can_submit(s, d.timeout_ns, error);
    if (code)
        return code;
    const struct penstock_file *file = penstock_catalogue_file(s->catalogue, d.file);
    if (!file || !file->name)
        return base_error_set(error, PENSTOCK_EINVAL, "digests: the model has no file %" PRIu32, d.file);
    if (d.first_chunk >= model_digest_chunks(file->len_bytes))
        return base_error_set(error, PENSTOCK_EINVAL, "digests: %s has no chunk %" PRIu64, file->name, d.first_chunk);
    if (!d.out || d.max == 0)
        return base_error_set(error, PENSTOCK_EINVAL, "digests: there is no room for any");
    struct client_op *o =
        client_op_new(s, CLIENT_OP_DIGESTS, d.timeout_ns ? d.timeout_ns : s->reply_timeout_ns, d.user);
    if (!o)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for one more operation");
    o->own_request = (struct client_request){ .file = d.file, .offset_bytes = d.first_chunk };
    o->plan = (struct client_plan){ .requests = &o->own_request, .n_requests = 1 };
    o->own_pieces[0].iov_base = d.out;
    o->digests_max = d.max;
    *op = o->id;
    begin(s, o);
    return 0;
}

int penstock_read_wait(struct penstock_session *session, const struct penstock_read *read, struct penstock_error *error)
{
    penstock_op op = 0;
    int code = penstock_submit(session, read, &op, error);
    return code ? code : penstock_wait(session, op, NULL, error);
}

/* ---- on the wire ---- */

static size_t push(struct penstock_session *s, struct client_op *op, struct client_flight *f, uint8_t *out,
                   struct iovec *body)
{
    (void)body;
    const struct client_request *r = &op->plan.requests[op->sent];
    struct penstock_range_request wire = { .file = r->file, .offset = r->offset_bytes, .len = r->len_bytes };

    f->len_bytes = r->len_bytes;
    if (op->kind == CLIENT_OP_DIGESTS) {
        const struct penstock_file *file = penstock_catalogue_file(s->catalogue, r->file);
        wire =
            (struct penstock_range_request){ .file = PENSTOCK_FILE_DIGESTS, .offset = r->file, .len = r->offset_bytes };
        f->digests = true;
        f->len_bytes = 0;
        f->chunks_left = model_digest_chunks(file->len_bytes) - r->offset_bytes;
    }
    penstock_range_request_encode(&wire, out);
    return PENSTOCK_RANGE_REQUEST_BYTES;
}

static int refused(const struct penstock_session *s, const struct client_flight *f, uint8_t status,
                   struct penstock_error *error)
{
    const struct client_request *r = &f->op->plan.requests[f->request];
    const char *name = penstock_catalogue_file(s->catalogue, r->file)->name;
    if (f->digests)
        return base_error_set(error, PENSTOCK_EREFUSED, "keeps no digests of %s", name);
    return base_error_set(error, PENSTOCK_EREFUSED,
                          "refused %" PRIu32 " bytes at %" PRIu64 " of %s (status %u); was the file cut short there?",
                          r->len_bytes, r->offset_bytes, name, status);
}

static void ended(struct penstock_session *s, struct client_op *op)
{
    if (op->kind == CLIENT_OP_READ)
        s->regions.at[op->region].users--;
}

/* ---- on rails ---- */

static size_t regions(const struct penstock_session *s)
{
    return penstock_catalogue_shards(s->catalogue);
}

static uint64_t region_bytes(const struct penstock_session *s, size_t region)
{
    return penstock_catalogue_file(s->catalogue, region)->len_bytes;
}

static const char *version(const struct penstock_session *s)
{
    return penstock_catalogue_version(s->catalogue);
}

static enum client_purpose again(const struct penstock_session *s)
{
    return version(s) ? CLIENT_FOR_JOIN : CLIENT_FOR_MANIFEST;
}

const struct client_tier client_weights = { .peer = "weight peer",
                                            .port = PENSTOCK_PORT_WEIGHTS,
                                            .greet = client_weights_greet,
                                            .text = client_weights_text,
                                            .awaits = client_weights_awaits,
                                            .take = client_weights_take,
                                            .failed = client_weights_failed,
                                            .again = again,
                                            .regions = regions,
                                            .region_bytes = region_bytes,
                                            .version = version,
                                            .listed = client_models_listed,
                                            .in_flight_bytes_max = UINT64_C(64) << 20,
                                            .push = push,
                                            .refused = refused,
                                            .ended = ended };
