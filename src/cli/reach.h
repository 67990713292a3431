/* How a command reaches a peer: --transport, --rail and --timeout, the same wherever they are taken. */
#ifndef PENSTOCK_CLI_REACH_H
#define PENSTOCK_CLI_REACH_H

#include <stdbool.h>

#include <penstock/penstock.h>

#include "base/vec.h"

struct reach {
    struct penstock_options options; /* to be given to the library */
    struct base_buf rails;           /* what options.rails points to */
};

void reach_init(struct reach *reach);
void reach_fini(struct reach *reach);

/* Each takes its option's argument; false: it is none, and *why says what it should have been. */
bool reach_transport(struct reach *reach, const char *argument, const char **why);
bool reach_rail(struct reach *reach, const char *argument, struct penstock_error *why);
bool reach_timeout(struct reach *reach, const char *argument, const char **why);

/* Once the command line is read: what the environment says where it says nothing. rails: of --rail; NULL: none was
 * given. */
bool reach_environment(enum penstock_transport transport, const char *rails, struct penstock_error *why);

/* "auto", "rdma", "tcp". */
bool reach_transport_of(const char *name, enum penstock_transport *out);

#endif
