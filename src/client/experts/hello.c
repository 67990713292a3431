/* The expert tier before its first fetch: protocol 1.4 steps 1 and 2. The peer speaks first. */
#include <string.h>

#include <xxhash.h>

#include "base/error.h"
#include "experts.h"

int client_experts_greet(struct penstock_session *s, struct penstock_error *error)
{
    (void)s, (void)error;
    return 0;
}

enum penstock_text client_experts_text(const struct penstock_session *s)
{
    (void)s;
    return PENSTOCK_TEXT_EXPERT_MANIFEST;
}

const char *client_experts_awaits(const struct penstock_session *s)
{
    (void)s;
    return "manifest";
}

static int check_version(const struct client_experts *e, struct penstock_error *error)
{
    const char *version = e->manifest.model_version;
    if (!e->version_wanted || strcmp(e->version_wanted, version) == 0)
        return 0;
    return base_error_set(error, PENSTOCK_ESTALE,
                          "has another store than before: its model_version is '%s', and '%.128s' was asked for",
                          version[0] ? version : "(none)", e->version_wanted);
}

/* Whoever comes again, for other rails or over TCP, is to find the same store: the manifest says so, to the byte. */
static int check_same(struct penstock_session *s, struct penstock_error *error)
{
    XXH128_hash_t hash = XXH3_128bits(s->body, s->body_len);
    bool first = s->manifest_hash[0] == 0 && s->manifest_hash[1] == 0;
    if (!first && (hash.low64 != s->manifest_hash[0] || hash.high64 != s->manifest_hash[1]))
        return base_error_set(error, PENSTOCK_ESTALE, "has another store by now");
    s->manifest_hash[0] = hash.low64;
    s->manifest_hash[1] = hash.high64;
    return 0;
}

int client_experts_take(struct penstock_session *s, struct penstock_error *error)
{
    struct client_experts *e = s->experts;
    int code = check_same(s, error);
    if (code == 0 && !e->known) {
        code = model_expert_manifest_read((const char *)s->body, s->body_len, &e->manifest, error);
        e->known = code == 0;
        code = code ? code : check_version(e, error);
    }
    return code ? code : client_hello_begin(s, error);
}

int client_experts_failed(struct penstock_session *s, struct penstock_error *error)
{
    bool silent =
        error->code == PENSTOCK_ECLOSED && error->sys_errno == 0 && s->step == CLIENT_ASKING && s->head_bytes == 0;
    if (silent)
        base_error_set(error, PENSTOCK_EDENIED,
                       "closed instead of sending its manifest: it can't read its store, has too many connections or "
                       "is being stopped, as its log says, or is another kind of peer, which waits to be spoken to");
    else if (error->code == PENSTOCK_ETIMEOUT && s->step == CLIENT_ASKING)
        base_error_in(error, "does it serve experts on this port?");
    return error->code;
}
