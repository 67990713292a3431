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

/* The rows of a command's option table that are for this. */
enum { REACH_TIMEOUT = 0x1000, REACH_TRANSPORT, REACH_RAIL };
#define REACH_LONG_OPTIONS                                                                                             \
    { "timeout", required_argument, NULL, REACH_TIMEOUT }, { "transport", required_argument, NULL, REACH_TRANSPORT },  \
    {                                                                                                                  \
        "rail", required_argument, NULL, REACH_RAIL                                                                    \
    }

/* Takes an option that is none of the command's own. CLI_OK; or CLI_USAGE, and what is wrong has been said. */
int reach_take(struct reach *reach, const char *command, int option, const char *argument);
/* Once the command line is read: whether the environment makes sense where it says nothing. Returns likewise. */
int reach_settle(const struct reach *reach, const char *command);

/* The same for who has no struct reach. rails: of --rail; NULL: none was given. */
bool reach_environment(enum penstock_transport transport, const char *rails, struct penstock_error *why);

/* "auto", "rdma", "tcp". */
bool reach_transport_of(const char *name, enum penstock_transport *out);

#endif
