#include "rail/wish.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "rail/gid.h"

/* The longest of a wish: a device, an address and an index. */
#define WISH_MAX (VERBS_NAME_MAX + 64)

/* Decimal, no sign, no blanks, at most max. */
static bool number(const char *text, uint32_t max, uint32_t *out)
{
    uint32_t value = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || value > max)
            return false;
        value = 10 * value + (uint32_t)(*text - '0');
    }
    *out = value;
    return value <= max;
}

/* What the kernel can have named a device, and a shell or a log cannot stumble over. */
static bool device_name(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t len = strlen(text);
    return len > 0 && len < VERBS_NAME_MAX && strspn(text, allowed) == len;
}

static int parse_gid(const char *whole, const char *text, struct rail_wish *wish, struct penstock_error *error)
{
    if (!*text)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "rail \"%s\": no GID behind the colon: leave it out, too, and one "
                              "is chosen",
                              whole);
    wish->by_gid = rail_gid_parse(text, wish->gid);
    wish->by_index = !wish->by_gid && number(text, VERBS_GIDS_MAX - 1, &wish->gid_index);
    if (wish->by_gid || wish->by_index)
        return 0;
    return base_error_set(
        error, PENSTOCK_EINVAL,
        "rail \"%s\": GID \"%s\" is neither an index (0 to %d) nor an IPv4 or IPv6 address nor 32 hex "
        "digits",
        whole, text, VERBS_GIDS_MAX - 1);
}

static int parse_peer_rail(const char *whole, const char *text, bool at_peer, struct rail_wish *wish,
                           struct penstock_error *error)
{
    uint32_t index;
    if (at_peer)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "rail \"%s\": \"@\" is a client's, which chooses a peer's rail "
                              "with it",
                              whole);
    if (!number(text, PENSTOCK_RAILS_MAX - 1, &index))
        return base_error_set(error, PENSTOCK_EINVAL, "rail \"%s\": peer rail \"%s\" is no index (0 to %d)", whole,
                              text, PENSTOCK_RAILS_MAX - 1);
    wish->peer_rail = (uint8_t)index;
    return 0;
}

/* DEVICE[:GID][@PEER_RAIL]. No device and no GID has an "@" in it, and no device a colon. */
static int parse_named(const char *whole, bool at_peer, struct rail_wish *wish, struct penstock_error *error)
{
    char text[WISH_MAX];
    snprintf(text, sizeof text, "%s", whole);
    *wish = (struct rail_wish){ .peer_rail = PENSTOCK_PEER_RAIL_ANY };
    char *at = strchr(text, '@'), *colon = strchr(text, ':');
    if (at)
        *at = 0;
    if (at && colon > at)
        colon = NULL; /* in what should be an index */
    if (colon)
        *colon = 0;
    if (!device_name(text))
        return base_error_set(error, PENSTOCK_EINVAL, "rail \"%s\": \"%s\" is no name of a device (see ibv_devices)",
                              whole, text);
    snprintf(wish->device, sizeof wish->device, "%s", text);
    int code = colon ? parse_gid(whole, colon + 1, wish, error) : 0;
    if (code == 0 && at)
        code = parse_peer_rail(whole, at + 1, at_peer, wish, error);
    return code;
}

static int add_named(struct rail_wishes *wishes, const char *text, bool at_peer, struct penstock_error *error)
{
    struct rail_wish wish;
    int code = parse_named(text, at_peer, &wish, error);
    if (code)
        return code;
    if (wishes->n_named == PENSTOCK_RAILS_MAX)
        return base_error_set(error, PENSTOCK_EINVAL, "rail \"%s\": a connection has at most %d rails", text,
                              PENSTOCK_RAILS_MAX);
    for (size_t i = 0; wish.peer_rail != PENSTOCK_PEER_RAIL_ANY && i < wishes->n_named; i++)
        if (wishes->named[i].peer_rail == wish.peer_rail)
            return base_error_set(error, PENSTOCK_EINVAL,
                                  "rail \"%s\": the peer's rail %u is wished for by another rail already", text,
                                  wish.peer_rail);
    wishes->named[wishes->n_named++] = wish;
    return 0;
}

static int parse_auto(struct rail_wishes *wishes, const char *whole, const char *limit, struct penstock_error *error)
{
    uint32_t n = 0;
    if (limit && (!number(limit, PENSTOCK_RAILS_MAX, &n) || n == 0))
        return base_error_set(error, PENSTOCK_EINVAL, "rail \"%s\": \"%s\" is no number of rails (1 to %d)", whole,
                              limit, PENSTOCK_RAILS_MAX);
    wishes->automatic = true;
    wishes->limit = n;
    return 0;
}

/* A word that is no device's, with what only a device can have. */
static bool reserved(const char *text, const char *word)
{
    size_t len = strlen(word);
    return strncmp(text, word, len) == 0 && (text[len] == ':' || text[len] == '@');
}

static int add_one(struct rail_wishes *wishes, const char *text, bool at_peer, struct penstock_error *error)
{
    bool none = strcmp(text, "none") == 0;
    bool automatic = strcmp(text, "auto") == 0 || strncmp(text, "auto:", 5) == 0;
    if (!*text)
        return base_error_set(error, PENSTOCK_EINVAL, "a rail is empty: DEVICE[:GID]%s, auto, auto:N or none",
                              at_peer ? "" : "[@PEER_RAIL]");
    if (wishes->none || wishes->automatic || ((none || automatic) && wishes->n_named > 0))
        return base_error_set(error, PENSTOCK_EINVAL, "rail \"%s\": \"%s\" stands alone, with no other rail beside it",
                              text, wishes->none || none ? "none" : "auto");
    if (automatic)
        return parse_auto(wishes, text, text[4] ? text + 5 : NULL, error);
    if (!none && (reserved(text, "none") || reserved(text, "auto")))
        return base_error_set(error, PENSTOCK_EINVAL,
                              "rail \"%s\": auto takes a number of rails (auto:2), none nothing", text);
    wishes->none = none;
    return none ? 0 : add_named(wishes, text, at_peer, error);
}

int rail_wishes_add(struct rail_wishes *wishes, const char *text, bool at_peer, struct penstock_error *error)
{
    struct rail_wishes next = *wishes;
    for (const char *comma = text; comma; text = comma + 1) {
        char one[WISH_MAX];
        comma = strchr(text, ',');
        size_t len = comma ? (size_t)(comma - text) : strlen(text);
        if (len >= sizeof one)
            return base_error_set(error, PENSTOCK_EINVAL, "rail \"%.32s...\": too long for a device with a GID", text);
        memcpy(one, text, len);
        one[len] = 0;
        int code = add_one(&next, one, at_peer, error);
        if (code)
            return code;
    }
    *wishes = next;
    return 0;
}
