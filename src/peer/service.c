#include "service.h"

const struct peer_service *const peer_services[PEER_TIERS] = {
    [PEER_TIER_WEIGHTS] = &peer_weights_service,
    [PEER_TIER_EXPERTS] = &peer_experts_service,
    [PEER_TIER_CACHE] = &peer_cache_service,
};
