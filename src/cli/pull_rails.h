/* What the connections of a pull ran on, to be said: transport, and each rail with what it moved. */
#ifndef PENSTOCK_CLI_PULL_RAILS_H
#define PENSTOCK_CLI_PULL_RAILS_H

#include <stdio.h>

#include <penstock/penstock.h>

#include "progress.h"

#define PULL_RAILS_MAX 8

struct pull_rail {
    char device[64], gid[48], why[160], failure[500];
    uint32_t port, gid_index, peer_rail, mtu_bytes, reads;
    double gbps;
    uint64_t bytes, failures; /* of all connections */
};

struct pull_rails {
    enum penstock_transport transport; /* AUTO: no connection yet */
    char why_tcp[500], bounce[500];    /* empty: nothing to say */
    struct pull_rail at[PULL_RAILS_MAX];
    size_t n;
};

/* Adds what a session knows of itself. counted: also what it moved, once, when it is about to be freed. */
void pull_rails_add(struct pull_rails *rails, const struct penstock_session *session, bool counted);

/* -v: a line for the transport, and one a rail. */
void pull_rails_say(const struct pull_rails *rails, struct progress *progress);

/* "over RDMA, 2 rails" or "over TCP". Returns out. */
#define PULL_OVER_MAX 48
const char *pull_rails_over(const struct pull_rails *rails, char out[PULL_OVER_MAX]);

/* A line for each rail that failed, and one where memory was not registered. */
void pull_rails_print_failures(const struct pull_rails *rails, FILE *to);

/* "transport":...,"transport_why":...,"rails":[...] */
void pull_rails_print_json(const struct pull_rails *rails, FILE *to);

#endif
