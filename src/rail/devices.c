#include <string.h>

#include "rail/ports.h"

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
