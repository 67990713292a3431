#include "reach.h"

#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/clock.h"
#include "base/error.h"
#include "cmd.h"
#include "rail/wish.h"

#define TIMEOUT_MAX 86400

void reach_init(struct reach *reach)
{
    *reach = (struct reach){ .options = { .size = sizeof reach->options } };
}

void reach_fini(struct reach *reach)
{
    base_buf_fini(&reach->rails);
}

bool reach_transport_of(const char *name, enum penstock_transport *out)
{
    static const struct {
        const char *name;
        enum penstock_transport transport;
    } all[] = { { "auto", PENSTOCK_TRANSPORT_AUTO },
                { "rdma", PENSTOCK_TRANSPORT_RDMA },
                { "tcp", PENSTOCK_TRANSPORT_TCP } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(name, all[i].name) == 0) {
            *out = all[i].transport;
            return true;
        }
    return false;
}

static bool take_transport(struct reach *reach, const char *argument)
{
    enum penstock_transport transport;
    if (!reach_transport_of(argument, &transport))
        return false;
    reach->options.transport = (int)transport;
    unsetenv("PENSTOCK_TRANSPORT"); /* which is for who says nothing: auto said here is auto */
    return true;
}

static bool take_rail(struct reach *reach, const char *argument, struct penstock_error *why)
{
    struct rail_wishes wishes = { 0 };
    struct base_buf *rails = &reach->rails;
    if (rails->n > 0)
        rails->at[rails->n - 1] = ','; /* in place of its end */
    base_buf_append(rails, argument, strlen(argument) + 1);
    if (rails->failed) {
        base_error_set(why, PENSTOCK_ENOMEM, "no memory for the names of rails");
        return false;
    }
    reach->options.rails = (const char *)rails->at;
    return rail_wishes_add(&wishes, reach->options.rails, false, why) == 0;
}

bool reach_environment(enum penstock_transport transport, const char *rails, struct penstock_error *why)
{
    struct rail_wishes wishes = { 0 };
    const char *said = getenv("PENSTOCK_TRANSPORT"), *said_rails = getenv("PENSTOCK_RAILS");
    if (said && *said && !reach_transport_of(said, &transport)) {
        base_error_set(why, PENSTOCK_EINVAL, "PENSTOCK_TRANSPORT takes auto, rdma or tcp, not %.100s", said);
        return false;
    }
    if (transport == PENSTOCK_TRANSPORT_TCP || rails || !said_rails || !*said_rails)
        return true;
    if (rail_wishes_add(&wishes, said_rails, false, why) == 0)
        return true;
    base_error_in(why, "PENSTOCK_RAILS");
    return false;
}

static bool take_timeout(struct reach *reach, const char *argument)
{
    uint64_t seconds;
    if (!cli_number(argument, 1, TIMEOUT_MAX, &seconds))
        return false;
    int64_t ns = (int64_t)seconds * BASE_SECOND_NS;
    reach->options.connect_timeout_ns = reach->options.manifest_timeout_ns = reach->options.reply_timeout_ns =
        reach->options.rails_timeout_ns = ns;
    return true;
}

int reach_take(struct reach *reach, const char *command, int option, const char *argument)
{
    struct penstock_error error;
    switch (option) {
    case REACH_TIMEOUT:
        return take_timeout(reach, argument)
                   ? CLI_OK
                   : cli_wrong(command, "--timeout takes seconds, 1 to 86400, not ", argument);
    case REACH_TRANSPORT:
        return take_transport(reach, argument)
                   ? CLI_OK
                   : cli_wrong(command, "--transport takes auto, rdma or tcp, not ", argument);
    case REACH_RAIL:
        return take_rail(reach, argument, &error) ? CLI_OK : cli_wrong(command, "--rail: ", error.message);
    default:
        return cli_wrong(command, "", "that option is not understood");
    }
}

int reach_settle(const struct reach *reach, const char *command)
{
    struct penstock_error error;
    const struct penstock_options *o = &reach->options;
    return reach_environment((enum penstock_transport)o->transport, o->rails, &error)
               ? CLI_OK
               : cli_wrong(command, "", error.message);
}
