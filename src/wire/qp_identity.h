/* The 24 bytes that VerbsServerParams, VerbsClientParams and CacheServerParams begin with; each names them its own way.
 */
#ifndef PENSTOCK_WIRE_QP_IDENTITY_H
#define PENSTOCK_WIRE_QP_IDENTITY_H

#include <penstock/wire.h>

#include "cursor.h"

static inline struct penstock_qp_identity wire_qp_identity(struct wire_cursor *c, const char *qpn, const char *psn,
                                                           const char *gid)
{
    struct penstock_qp_identity qp = { 0 };
    const uint8_t *bytes;
    qp.qpn = wire_cursor_u32(c, qpn);
    qp.psn = wire_cursor_u32(c, psn);
    if (wire_cursor_take(c, sizeof qp.gid, gid, &bytes))
        memcpy(qp.gid, bytes, sizeof qp.gid);
    return qp;
}

static inline uint8_t *wire_put_qp_identity(uint8_t *out, const struct penstock_qp_identity *qp)
{
    out = wire_put_u32(out, qp->qpn);
    out = wire_put_u32(out, qp->psn);
    memcpy(out, qp->gid, sizeof qp->gid);
    return out + sizeof qp->gid;
}

#endif
