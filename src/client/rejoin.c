/* A connection that the peer closed in the middle of a reply: a session that may asks again on another. */
#include "client/session.h"

#include "base/error.h"
#include "client/tier.h"

/* What was sent and is not answered is to be sent again: before what was not sent, and in the order that it was. */
static void rewind_flights(struct penstock_session *s)
{
    for (uint32_t i = s->flight_n; i-- > 0;) {
        struct client_op *op = client_flight_at(s, i)->op;
        if (!op)
            continue;
        op->sent = op->answered;
        base_list_remove(&op->queue);
        base_list_append(s->unsent[op->urgency].next, &op->queue); /* before the first */
    }
    s->flight_n = 0;
    s->in_flight_bytes = 0;
    s->later_in_flight = 0;
    s->phase = CLIENT_STATUS;
    client_engine_forget_out(s);
}

int client_rejoin_failed(struct penstock_error *error)
{
    struct penstock_error why = *error;
    /* To whoever waits for a reply a port without a peer is a peer that is gone. */
    int code = why.code == PENSTOCK_EUNREACHABLE ? PENSTOCK_ECLOSED : why.code;
    base_error_set(error, code, "closed the connection in the middle of a reply; asking again: %.400s", why.message);
    error->sys_errno = why.sys_errno;
    return code;
}

int client_rejoin(struct penstock_session *s, struct penstock_error *error)
{
    if (s->phase != CLIENT_PAYLOAD || s->addresses.n == 0 || !s->tier->asks_again || !s->tier->asks_again(s))
        return error->code;
    rewind_flights(s);
    s->rejoining = true;
    int code = client_hello_redial(s, s->tier->again(s), error);
    return code ? client_rejoin_failed(error) : 0;
}
