#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "ibverbs.h"

bool verbs_ib_is_ours(const struct ibv_device *device)
{
    return device->transport_type == IBV_TRANSPORT_IB;
}

int verbs_ib_open_error(const struct verbs_ib_world *world, const struct ibv_device *device, int sys_errno,
                        struct penstock_error *error)
{
    char node[PATH_MAX];
    const char *do_this = "";
    snprintf(node, sizeof node, "%s/%s", world->places.nodes, device->dev_name);
    /* libibverbs looks elsewhere for a node that it may not open, and says ENOENT. */
    if (access(node, R_OK | W_OK) != 0)
        sys_errno = errno;
    if (sys_errno == EACCES || sys_errno == EPERM)
        do_this = ", which this user must be able to read and write";
    else if (sys_errno == ENOENT || sys_errno == ENXIO || sys_errno == ENODEV)
        do_this = ", which is missing (in a container: --device=/dev/infiniband)";
    return base_error_sys(error, sys_errno, "%s: ibv_open_device uses %s%s", device->name, node, do_this);
}

/* The names of what there is, for whoever asked for something else. */
static int not_found(struct ibv_device **list, const char *name, struct penstock_error *error)
{
    char names[256] = "";
    size_t at = 0;
    for (size_t i = 0; list[i] && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i == 0 ? "" : ", ", list[i]->name);
    return base_error_set(error, PENSTOCK_ENOTFOUND, "no RDMA device %s (there is %s)", name, list[0] ? names : "none");
}

static int open_named(struct verbs_ib_world *world, const char *name, struct ibv_context **context,
                      struct penstock_error *error)
{
    errno = 0;
    struct ibv_device **list = world->api.get_device_list(NULL);
    if (!list)
        return base_error_sys(error, verbs_ib_null_errno(), "%s: ibv_get_device_list", name);
    struct ibv_device **at = list;
    while (*at && strcmp((*at)->name, name) != 0)
        at++;
    int code = 0;
    if (*at) {
        errno = 0;
        *context = world->api.open_device(*at);
        if (!*context)
            code = verbs_ib_open_error(world, *at, verbs_ib_null_errno(), error);
    } else {
        code = not_found(list, name, error);
    }
    world->api.free_device_list(list);
    return code;
}

int verbs_ib_device_open(struct verbs_world *world, const char *name, struct verbs_device **device,
                         struct penstock_error *error)
{
    struct verbs_ib_world *w = VERBS_IB_CAST(struct verbs_ib_world, world);
    struct verbs_ib_device *d = calloc(1, sizeof *d);
    if (!d)
        return base_error_sys(error, ENOMEM, "%s", name);
    d->base.world = world;
    snprintf(d->base.name, sizeof d->base.name, "%s", name);
    int code = open_named(w, name, &d->context, error);
    if (code != 0) {
        free(d);
        return code;
    }
    d->base.event_fd = d->context->async_fd;
    int e = verbs_ib_errno(w->api.query_device(d->context, &d->attr));
    if (e != 0)
        code = base_error_sys(error, e, "%s: ibv_query_device", name);
    else if (fcntl(d->context->async_fd, F_SETFL, O_NONBLOCK) != 0)
        code = base_error_sys(error, errno, "%s: fcntl of the event channel", name);
    if (code != 0) {
        verbs_ib_device_close(&d->base);
        return code;
    }
    *device = &d->base;
    return 0;
}

void verbs_ib_device_close(struct verbs_device *device)
{
    struct verbs_ib_device *d = verbs_ib_device(device);
    (void)verbs_ib_api(device)->close_device(d->context);
    free(d);
}

enum verbs_event verbs_ib_device_event(struct verbs_device *device, uint8_t *port)
{
    struct verbs_ib_device *d = verbs_ib_device(device);
    struct ibv_async_event event;
    *port = 0;
    errno = 0;
    if (verbs_ib_api(device)->get_async_event(d->context, &event) != 0) {
        if (errno == EAGAIN || errno == EINTR || d->gone)
            return VERBS_EVENT_NONE;
        d->gone = true;
        return VERBS_EVENT_DEVICE_GONE;
    }
    enum verbs_event what = VERBS_EVENT_OTHER;
    switch (event.event_type) {
    case IBV_EVENT_PORT_ERR:
        what = VERBS_EVENT_PORT_DOWN;
        *port = (uint8_t)event.element.port_num;
        break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
        *port = (uint8_t)event.element.port_num;
        break;
    case IBV_EVENT_DEVICE_FATAL:
        what = VERBS_EVENT_DEVICE_GONE;
        break;
    default:
        break;
    }
    /* At once: destroying a QP or CQ waits for the events about it to be acknowledged. */
    verbs_ib_api(device)->ack_async_event(&event);
    return what;
}
