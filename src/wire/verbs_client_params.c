#include "cursor.h"
#include "fault.h"
#include "qp_identity.h"

void penstock_verbs_client_params_encode(const struct penstock_verbs_client_params *params, uint8_t *out)
{
    wire_put_qp_identity(out, &params->qp);
}

enum penstock_decode penstock_verbs_client_params_decode(const uint8_t *buf, size_t len,
                                                         struct penstock_verbs_client_params *out, size_t *consumed,
                                                         struct penstock_wire_fault *fault)
{
    struct wire_cursor c = { .at = buf, .left = len };
    struct penstock_verbs_client_params p = { .qp = wire_qp_identity(&c, "read u32", "read u32", "read client gid") };
    if (c.missing)
        return wire_more(fault, c.missing, PENSTOCK_VERBS_CLIENT_PARAMS_BYTES);

    *out = p;
    *consumed = PENSTOCK_VERBS_CLIENT_PARAMS_BYTES;
    return PENSTOCK_DECODE_OK;
}
