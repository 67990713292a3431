#include <stdlib.h>
#include <string.h>

#include "rail/wish.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static bool sound(const struct rail_wishes *wishes)
{
    if (wishes->limit > PENSTOCK_RAILS_MAX || wishes->n_named > PENSTOCK_RAILS_MAX)
        return false;
    if ((wishes->none && wishes->automatic) || ((wishes->none || wishes->automatic) && wishes->n_named > 0))
        return false;
    for (size_t i = 0; i < wishes->n_named; i++) {
        const struct rail_wish *wish = &wishes->named[i];
        size_t name = strnlen(wish->device, sizeof wish->device);
        if (name == 0 || name == sizeof wish->device || (wish->by_gid && wish->by_index) ||
            wish->gid_index >= VERBS_GIDS_MAX)
            return false;
    }
    return true;
}

/* The lines are options, one after another; the first byte says at which end. What is refused changes nothing, and says
 * why. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct rail_wishes wishes = { 0 };
    bool at_peer = len > 0 && data[0] == 'p';
    char *text = malloc(len + 1); /* of just that size: reading past it is seen */
    if (!text)
        abort();
    memcpy(text, data, len);
    text[len] = 0;
    for (char *line = text, *newline; line; line = newline) {
        struct rail_wishes was = wishes;
        struct penstock_error error = { 0 };
        newline = strchr(line, '\n');
        if (newline)
            *newline++ = 0;
        int code = rail_wishes_add(&wishes, line, at_peer, &error);
        if (code && (code != PENSTOCK_EINVAL || !*error.message || memcmp(&was, &wishes, sizeof was) != 0))
            abort();
        if (!sound(&wishes))
            abort();
        for (size_t i = 0; at_peer && i < wishes.n_named; i++)
            if (wishes.named[i].peer_rail != PENSTOCK_PEER_RAIL_ANY)
                abort();
    }
    free(text);
    return 0;
}
