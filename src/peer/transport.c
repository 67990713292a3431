#include "transport.h"

#include <penstock/wire.h>

#include "base/clock.h"
#include "verbs_service.h"

enum peer_end peer_transport_serve(struct peer_connection *c, const struct peer_requests *requests)
{
    uint8_t mode;
    size_t got;
    struct penstock_error error;
    if (peer_connection_read_message(c, &mode, 1, c->server->deadlines.mode_ns, &got, &error))
        return peer_connection_ended(c, "before the transport byte", false,
                                     &error); /* a client that wanted the manifest alone */
    if (mode == PENSTOCK_MODE_TCP) {
        /* Waited for here, above the batch's arrays: a connection that only ever idles touches less of its stack. */
        if (peer_connection_wait(c, BASE_NEVER, &error))
            return peer_connection_ended(c, "before its first request", false, &error);
        return peer_requests_serve(c, requests);
    }
    if (mode == PENSTOCK_MODE_VERBS)
        return peer_verbs_serve(c);
    peer_connection_complain(c, "closed: unknown transport byte %u", mode);
    return PEER_END_LINGER;
}
