/* What a caller asks for: structs of whatever size it knows, options, and the environment in their place. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/tier.h"
#include "client/verbs.h"

#define CONNECT_TIMEOUT_NS (30 * BASE_SECOND_NS)
#define MANIFEST_TIMEOUT_NS (300 * BASE_SECOND_NS)
#define REPLY_TIMEOUT_NS (30 * BASE_SECOND_NS)
#define RAILS_TIMEOUT_NS (1800 * BASE_SECOND_NS)

/* No struct grows so long: a size above it was never set. */
#define SIZED_BYTES_MAX 4096u

int client_missing(const char *what, struct penstock_error *error)
{
    return base_error_set(error, PENSTOCK_EINVAL, "%s must be given, not NULL", what);
}

int client_take_bytes(void *to, size_t to_size, const void *from, size_t from_size, const char *what,
                      struct penstock_error *error)
{
    if (!from)
        return base_error_set(error, PENSTOCK_EINVAL, "%s: none given", what);
    if (from_size < sizeof(size_t) || from_size > SIZED_BYTES_MAX)
        return base_error_set(error, PENSTOCK_EINVAL, "%s: size is not set to its sizeof", what);
    for (size_t i = to_size; i < from_size; i++)
        if (((const uint8_t *)from)[i] != 0)
            return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                                  "%s: asks for something that a later version of libpenstock has, and this does not",
                                  what);
    memset(to, 0, to_size);
    memcpy(to, from, from_size < to_size ? from_size : to_size);
    return 0;
}

static int64_t or_default(int64_t timeout_ns, int64_t otherwise)
{
    return timeout_ns ? timeout_ns : otherwise;
}

/* NULL: not in the environment, or empty. */
static const char *environment(const char *name)
{
    const char *value = getenv(name); // NOLINT(concurrency-mt-unsafe): who calls setenv beside other threads has lost
    return value && *value ? value : NULL;
}

static int take_transport(int asked, enum penstock_transport *out, struct penstock_error *error)
{
    static const char *const names[] = { "auto", "rdma", "tcp" }; /* in the order of the enumeration */
    if (asked < PENSTOCK_TRANSPORT_AUTO || asked > PENSTOCK_TRANSPORT_TCP)
        return base_error_set(error, PENSTOCK_EINVAL, "options: unknown transport %d", asked);
    *out = (enum penstock_transport)asked;
    const char *said = asked == PENSTOCK_TRANSPORT_AUTO ? environment("PENSTOCK_TRANSPORT") : NULL;
    if (!said)
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(said, names[i]) == 0) {
            *out = (enum penstock_transport)i;
            return 0;
        }
    return base_error_set(error, PENSTOCK_EINVAL, "PENSTOCK_TRANSPORT: '%.100s' is none of auto, rdma, tcp", said);
}

/* Blobs are sent by the client: what is best for a peer's connections is for its too. */
static int take_congestion(struct net_congestion *congestion, const char *asked, struct penstock_error *error)
{
    const char *name = asked ? asked : environment("PENSTOCK_CONGESTION");
    congestion->demanded_by = asked ? "options" : name ? "PENSTOCK_CONGESTION" : NULL;
    if (!name)
        name = NET_CONGESTION;
    if (!*name || strlen(name) >= sizeof congestion->name)
        return base_error_set(error, PENSTOCK_EINVAL, "%s: '%.100s' is no name of a TCP congestion control",
                              congestion->demanded_by, name);
    if (strcmp(name, "system") != 0)
        memcpy(congestion->name, name, strlen(name) + 1);
    return 0;
}

/* Opens what RDMA needs, where it may be wanted. */
static int take_rails(struct penstock_session *s, struct verbs_world *world, const struct penstock_options *o,
                      struct penstock_error *error)
{
    struct penstock_error why = { 0 };
    int code = take_transport(o->transport, &s->transport, error);
    if (code || s->transport == PENSTOCK_TRANSPORT_TCP)
        return code;
    const char *rails = o->rails ? o->rails : environment("PENSTOCK_RAILS");
    code = client_verbs_open(world, rails, &s->verbs, &why);
    if (code == 0) {
        s->verbs->rail_deadline_ns = or_default(o->rail_deadline_ns, RAIL_DEADLINE_NS);
        return 0;
    }
    if (s->transport == PENSTOCK_TRANSPORT_AUTO && code != PENSTOCK_EINVAL) {
        s->why_tcp = strdup(why.message);
        return 0;
    }
    if (code == PENSTOCK_EINVAL && rails != o->rails)
        base_error_in(&why, "PENSTOCK_RAILS");
    if (error)
        *error = why;
    return code;
}

int client_options_take(struct penstock_session *s, struct verbs_world *world, const struct penstock_options *options,
                        enum client_purpose purpose, struct penstock_error *error)
{
    struct penstock_options o = { 0 };
    int code = options ? client_take_sized(&o, options, "options", error) : 0;
    if (code)
        return code;
    if (o.connect_timeout_ns < 0 || o.manifest_timeout_ns < 0 || o.reply_timeout_ns < 0 || o.rail_deadline_ns < 0 ||
        o.rails_timeout_ns < 0)
        return base_error_set(error, PENSTOCK_EINVAL, "options: a timeout is negative");
    s->connect_timeout_ns = or_default(o.connect_timeout_ns, CONNECT_TIMEOUT_NS);
    s->manifest_timeout_ns = or_default(o.manifest_timeout_ns, MANIFEST_TIMEOUT_NS);
    s->reply_timeout_ns = or_default(o.reply_timeout_ns, or_default(s->tier->reply_timeout_ns, REPLY_TIMEOUT_NS));
    s->rails_timeout_ns = or_default(o.rails_timeout_ns, RAILS_TIMEOUT_NS);
    code = take_congestion(&s->congestion, o.congestion, error);
    return code || purpose == CLIENT_FOR_MODELS ? code : take_rails(s, world, &o, error);
}
