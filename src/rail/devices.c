#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "rail/ports.h"

/* The ports that there are, less those that cannot be rails. */
static int choose(struct verbs_world *world, const struct rail_wishes *wishes, struct rail_chosen *choice,
                  struct penstock_error *error)
{
    struct verbs_ports ports = { 0 };
    struct penstock_error skipped = { 0 }; /* devices that could not even be asked */
    int code = verbs_ports(world, &ports, &skipped);
    if (code) {
        if (error)
            *error = skipped;
        return code;
    }
    code = rail_ports_choose(&ports, wishes, choice, error);
    verbs_ports_fini(&ports);
    size_t len = strlen(choice->left_out);
    if (*skipped.message && code)
        base_error_in(error, "%s", skipped.message);
    else if (*skipped.message)
        snprintf(choice->left_out + len, sizeof choice->left_out - len, "%s%s", len ? "; " : "", skipped.message);
    return code;
}

/* Each device once, whatever the number of its rails. */
static int open_all(struct rail_devices *out, const struct rail_chosen *choice, struct penstock_error *error)
{
    for (size_t i = 0; i < choice->n; i++) {
        struct verbs_device *device = NULL;
        for (size_t j = 0; j < i && !device; j++)
            if (strcmp(choice->at[j].device, choice->at[i].device) == 0)
                device = out->devices[j];
        int code = device ? 0 : verbs_device_open(out->world, choice->at[i].device, &device, error);
        if (code)
            return code;
        out->ports[i] = choice->at[i];
        out->devices[i] = device;
        out->n = i + 1;
    }
    return 0;
}

int rail_devices_open(struct verbs_world *world, const struct rail_wishes *wishes, struct rail_devices *out,
                      struct penstock_error *error)
{
    struct rail_chosen choice = { 0 };
    memset(out, 0, sizeof *out);
    if (wishes->none)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "RDMA is turned off (rails: none)");
    int code = world ? 0 : verbs_world_open(&out->world, error);
    if (code)
        return code;
    out->world_is_ours = !world;
    if (world)
        out->world = world;
    code = choose(out->world, wishes, &choice, error);
    if (code == 0)
        code = open_all(out, &choice, error);
    memcpy(out->left_out, choice.left_out, sizeof out->left_out);
    if (code)
        rail_devices_close(out);
    return code;
}

void rail_devices_close(struct rail_devices *devices)
{
    for (size_t i = 0; i < devices->n; i++) {
        bool shared = false;
        for (size_t j = i + 1; j < devices->n; j++)
            shared = shared || devices->devices[j] == devices->devices[i];
        if (!shared) /* the last rail of a device closes it */
            verbs_device_close(devices->devices[i]);
    }
    if (devices->world_is_ours)
        verbs_world_free(devices->world);
    memset(devices, 0, sizeof *devices);
}
