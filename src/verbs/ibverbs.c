#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "ibverbs.h"

static void world_free(struct verbs_world *world)
{
    free(world);
}

static const struct verbs_ops ops = {
    .world_free = world_free,
    .ports = verbs_ib_ports,
    .device_open = verbs_ib_device_open,
    .device_close = verbs_ib_device_close,
    .device_event = verbs_ib_device_event,
    .pd_new = verbs_ib_pd_new,
    .pd_free = verbs_ib_pd_free,
    .mr_new = verbs_ib_mr_new,
    .mr_dmabuf_new = verbs_ib_mr_dmabuf_new,
    .mr_free = verbs_ib_mr_free,
    .cq_new = verbs_ib_cq_new,
    .cq_free = verbs_ib_cq_free,
    .cq_arm = verbs_ib_cq_arm,
    .cq_poll = verbs_ib_cq_poll,
    .qp_new = verbs_ib_qp_new,
    .qp_free = verbs_ib_qp_free,
    .qp_connect = verbs_ib_qp_connect,
    .qp_query = verbs_ib_qp_query,
    .post = verbs_ib_post,
};

int verbs_ib_errno(int result)
{
    if (result == -1)
        return errno ? errno : EIO;
    return result < 0 ? -result : result;
}

int verbs_ib_null_errno(void)
{
    return errno ? errno : EIO;
}

/* The list is the one thing that works without a device, and fails where the kernel knows of no RDMA. */
static int check_kernel(const struct verbs_ib_api *api, struct penstock_error *error)
{
    errno = 0;
    struct ibv_device **list = api->get_device_list(NULL);
    if (list) {
        api->free_device_list(list);
        return 0;
    }
    int e = verbs_ib_null_errno();
    if (e == ENOMEM)
        return base_error_sys(error, e, "ibv_get_device_list");
    (void)base_error_sys(error, e,
                         "the kernel has no RDMA devices to offer (modprobe ib_uverbs; in a container "
                         "/sys/class/infiniband and /dev/infiniband must be there): ibv_get_device_list");
    if (error)
        error->code = PENSTOCK_EUNSUPPORTED;
    return PENSTOCK_EUNSUPPORTED;
}

int verbs_ib_world_open(const struct verbs_ib_places *places, struct verbs_world **world, struct penstock_error *error)
{
    struct verbs_ib_world *w = calloc(1, sizeof *w);
    if (!w)
        return base_error_sys(error, ENOMEM, "verbs");
    w->base.ops = &ops;
    w->places = *places;
    int code = verbs_ib_load(places->library, &w->api, error);
    if (code == 0)
        code = check_kernel(&w->api, error);
    if (code != 0) {
        free(w);
        return code;
    }
    *world = &w->base;
    return 0;
}

int verbs_world_open(struct verbs_world **world, struct penstock_error *error)
{
    static const struct verbs_ib_places places = {
        .library = "libibverbs.so.1",
        .sysfs = "/sys/class/infiniband",
        .nodes = "/dev/infiniband",
    };
    return verbs_ib_world_open(&places, world, error);
}
