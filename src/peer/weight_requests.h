/* Requests of the weight tier over TCP: bytes and digests (protocol 2.1). */
#ifndef PENSTOCK_PEER_WEIGHT_REQUESTS_H
#define PENSTOCK_PEER_WEIGHT_REQUESTS_H

#include "ranges.h"

extern const struct peer_requests peer_weight_requests;

#endif
