#include "rail/listing.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "rail/gid.h"

/* ---- the peer ---- */

static void write_one(struct json_writer *w, size_t index, const struct rail_port *port)
{
    char gid[33];
    for (size_t i = 0; i < sizeof port->gid; i++)
        snprintf(gid + 2 * i, 3, "%02x", port->gid[i]);
    json_write_object(w);
    json_write_key_u64(w, "index", index);
    json_write_key_text(w, "device", port->device);
    json_write_key_text(w, "gid", gid);
    json_write_key_u64(w, "mtu", port->mtu);
    json_write_key(w, "gbps");
    json_write_double(w, port->gbps);
    json_write_object_end(w);
}

void rail_listing_write(struct json_writer *w, const struct rail_devices *devices)
{
    json_write_array(w);
    for (size_t i = 0; devices && i < devices->n; i++)
        write_one(w, i, &devices->ports[i]);
    json_write_array_end(w);
}

/* ---- the client ---- */

/* It goes into messages and no further. */
static void read_device(const struct json_value *rail, char out[VERBS_NAME_MAX])
{
    const struct json_value *device = json_find(rail, "device");
    size_t n = 0;
    if (device && device->type == JSON_STRING)
        for (size_t i = 0; i < device->string.len && n + 1 < VERBS_NAME_MAX; i++)
            if (device->string.at[i] > ' ' && device->string.at[i] <= '~')
                out[n++] = device->string.at[i];
    snprintf(out + n, VERBS_NAME_MAX - n, "%s", n ? "" : "?");
}

static double read_gbps(const struct json_value *rail)
{
    const struct json_value *gbps = json_find(rail, "gbps");
    if (gbps && gbps->type == JSON_U64)
        return (double)gbps->u64;
    return gbps && gbps->type == JSON_DOUBLE && gbps->number > 0 ? gbps->number : 0;
}

static int read_one(const struct json_value *rail, struct rail_listed *out, struct penstock_error *error)
{
    uint64_t index, mtu;
    const char *gid;
    if (rail->type != JSON_OBJECT)
        return base_error_set(error, PENSTOCK_EPROTO, "%s where an object belongs", json_type_name(rail->type));
    int code = json_get_u64(rail, "index", PENSTOCK_PEER_RAIL_ANY - 1, &index, error);
    if (code == 0)
        code = json_get_string(rail, "gid", &gid, error);
    if (code == 0)
        code = json_get_u64(rail, "mtu", 5, &mtu, error);
    if (code)
        return code;
    if (!rail_gid_parse_hex(gid, out->gid))
        return base_error_set(error, PENSTOCK_EPROTO, "field \"gid\": not 32 hex digits");
    if (mtu == 0)
        return base_error_set(error, PENSTOCK_EPROTO, "field \"mtu\": 0 is none (1 to 5)");
    out->index = (uint8_t)index;
    out->mtu = (uint8_t)mtu;
    out->gbps = read_gbps(rail);
    read_device(rail, out->device);
    return 0;
}

static bool listed(const struct rail_listing *listing, uint8_t index)
{
    for (size_t i = 0; i < listing->n; i++)
        if (listing->at[i].index == index)
            return true;
    return false;
}

int rail_listing_read(const struct json_value *object, struct rail_listing *out, struct penstock_error *error)
{
    const struct json_value *rails;
    memset(out, 0, sizeof *out);
    if (!json_find(object, "rails"))
        return 0;
    int code = json_get_array(object, "rails", &rails, error);
    for (size_t i = 0; code == 0 && i < rails->array.n && out->n < PENSTOCK_RAILS_MAX; i++) {
        struct rail_listed *next = &out->at[out->n];
        code = read_one(&rails->array.at[i], next, error);
        if (code == 0 && listed(out, next->index))
            code = base_error_set(error, PENSTOCK_EPROTO, "index %u is there twice", next->index);
        if (code)
            base_error_in(error, "rails[%zu]", i);
        else
            out->n++;
    }
    return code;
}
