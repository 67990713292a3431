/* The replies to requests that begin with "penstock:" (protocol 2.5). */
#ifndef PENSTOCK_CLIENT_WEIGHTS_MODELS_H
#define PENSTOCK_CLIENT_WEIGHTS_MODELS_H

#include <stdbool.h>
#include <stddef.h>

#include <penstock/penstock.h>

#include "rail/listing.h"

/* EDENIED: a refusal, in the peer's words. EPROTO: no such reply. */
PENSTOCK_CHECKED int client_models_read(const char *json, size_t len, struct penstock_models **models,
                                        struct penstock_error *error);
PENSTOCK_CHECKED int client_join_read(const char *json, size_t len, const char *version, struct penstock_error *error);

/* The model that a request names: by its id, or by the id's last component. NULL: none. */
const struct penstock_model *client_models_find(const struct penstock_models *models, const char *request);

/* The peer's rails, as the tier's hook; n 0: it lists none. */
PENSTOCK_CHECKED int client_models_listed(const struct penstock_session *asked, struct rail_listing *out,
                                          struct penstock_error *error);

/* "a, b, c", cut to size at a comma. */
void client_models_list(const struct penstock_models *models, char *out, size_t size);

#endif
