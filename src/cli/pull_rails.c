#include "pull_rails.h"

#include <string.h>

#include "text.h"

static void copy(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text ? text : "");
}

static struct pull_rail *find(struct pull_rails *rails, const struct penstock_rail_info *info)
{
    for (size_t i = 0; i < rails->n; i++)
        if (strcmp(rails->at[i].device, info->device) == 0 && rails->at[i].port == info->port &&
            rails->at[i].gid_index == info->gid_index)
            return &rails->at[i];
    if (rails->n == PULL_RAILS_MAX)
        return NULL;
    struct pull_rail *rail = &rails->at[rails->n++];
    *rail = (struct pull_rail){ .port = info->port,
                                .gid_index = info->gid_index,
                                .peer_rail = info->peer_rail,
                                .mtu_bytes = info->mtu_bytes,
                                .reads = info->reads,
                                .gbps = info->gbps };
    copy(rail->device, sizeof rail->device, info->device);
    copy(rail->gid, sizeof rail->gid, info->gid);
    copy(rail->why, sizeof rail->why, info->why);
    return rail;
}

void pull_rails_add(struct pull_rails *rails, const struct penstock_session *session, bool counted)
{
    if (penstock_session_transport(session) == PENSTOCK_TRANSPORT_AUTO)
        return;
    if (rails->transport != PENSTOCK_TRANSPORT_RDMA)
        rails->transport = penstock_session_transport(session);
    if (penstock_session_transport_why(session))
        copy(rails->why_tcp, sizeof rails->why_tcp, penstock_session_transport_why(session));
    if (penstock_session_bounce_why(session))
        copy(rails->bounce, sizeof rails->bounce, penstock_session_bounce_why(session));
    for (size_t i = 0; i < penstock_session_rails(session); i++) {
        struct penstock_rail_info info = { .size = sizeof info };
        struct pull_rail *rail = penstock_session_rail(session, i, &info) == 0 ? find(rails, &info) : NULL;
        if (!rail || !counted)
            continue;
        rail->bytes += info.bytes;
        rail->failures += info.failures;
        if (info.failure)
            copy(rail->failure, sizeof rail->failure, info.failure);
    }
}

const char *pull_rails_over(const struct pull_rails *rails, char out[PULL_OVER_MAX])
{
    char count[CLI_COUNT_MAX];
    if (rails->transport == PENSTOCK_TRANSPORT_RDMA)
        snprintf(out, PULL_OVER_MAX, "over RDMA, %s", cli_count(rails->n, "rail", count));
    else
        snprintf(out, PULL_OVER_MAX, "over TCP");
    return out;
}

void pull_rails_say(const struct pull_rails *rails, struct progress *progress)
{
    char over[PULL_OVER_MAX], escaped[600];
    cli_escape(escaped, sizeof escaped, rails->why_tcp);
    progress_say(progress, "%s%s%s", pull_rails_over(rails, over), *escaped ? ": " : "", escaped);
    for (size_t i = 0; i < rails->n; i++) {
        const struct pull_rail *r = &rails->at[i];
        progress_say(progress, "rail %zu: %s port %u, GID %u %s, to the peer's rail %u, MTU %u, %g Gb/s, %u READs (%s)",
                     i, r->device, r->port, r->gid_index, r->gid, r->peer_rail, r->mtu_bytes, r->gbps, r->reads,
                     r->why);
    }
}

void pull_rails_print_failures(const struct pull_rails *rails, FILE *to)
{
    char count[CLI_COUNT_MAX];
    for (size_t i = 0; i < rails->n; i++) {
        const struct pull_rail *r = &rails->at[i];
        if (r->failures == 0)
            continue;
        fprintf(to, "rail %s port %u failed (%s), and the pull went on without it: ", r->device, r->port,
                cli_count(r->failures, "time", count));
        cli_print_escaped(to, r->failure);
        fputc('\n', to);
    }
    if (*rails->bounce) {
        fputs("buffers could not be registered, and everything was copied: ", to);
        cli_print_escaped(to, rails->bounce);
        fputc('\n', to);
    }
}

static void print_text(FILE *to, const char *key, const char *text)
{
    fprintf(to, "\"%s\":", key);
    if (*text)
        cli_print_json(to, text);
    else
        fputs("null", to);
}

void pull_rails_print_json(const struct pull_rails *rails, FILE *to)
{
    fprintf(to, "\"transport\":\"%s\",", rails->transport == PENSTOCK_TRANSPORT_RDMA ? "rdma" : "tcp");
    print_text(to, "transport_why", rails->why_tcp);
    fputs(",\"rails\":[", to);
    for (size_t i = 0; i < rails->n; i++) {
        const struct pull_rail *r = &rails->at[i];
        fputs(i > 0 ? ",{" : "{", to);
        print_text(to, "device", r->device);
        fprintf(to, ",\"port\":%u,\"gid_index\":%u,", r->port, r->gid_index);
        print_text(to, "gid", r->gid);
        fprintf(to, ",\"peer_rail\":%u,\"mtu\":%u,\"gbps\":%g,\"reads\":%u,", r->peer_rail, r->mtu_bytes, r->gbps,
                r->reads);
        print_text(to, "why", r->why);
        fprintf(to, ",\"bytes\":%llu,\"failures\":%llu,", (unsigned long long)r->bytes,
                (unsigned long long)r->failures);
        print_text(to, "failure", r->failure);
        fputc('}', to);
    }
    fputs("],", to);
    print_text(to, "copied_why", rails->bounce);
}
