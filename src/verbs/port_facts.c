#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "ibverbs.h"

int verbs_ib_query_port(const struct verbs_ib_api *api, struct ibv_context *context, uint8_t port,
                        struct ibv_port_attr *attr)
{
    /* What the header's macro does, but for the function that it would link. */
    *attr = (struct ibv_port_attr){ 0 };
    struct verbs_context *extended = verbs_get_ctx_op(context, query_port);
    if (extended)
        return verbs_ib_errno(extended->query_port(context, port, attr, sizeof *attr));
    return verbs_ib_errno(api->query_port(context, port, (struct _compat_ibv_port_attr *)(void *)attr));
}

const char *verbs_ib_port_state(enum ibv_port_state state)
{
    static const char *const names[] = { "NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER" };
    return (size_t)state < sizeof names / sizeof *names ? names[state] : "unknown";
}

/* The first bytes of a file of sysfs; empty where there is none. */
static void read_file(char *out, size_t size, const char *path)
{
    ssize_t n = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, out, size - 1);
        (void)close(fd);
    }
    out[n > 0 ? (size_t)n : 0] = 0;
}

/* "200 Gb/sec (4X HDR)", "2.5 Gb/sec (1X SDR)": not strtod, whose decimal point is the locale's. */
static double parse_rate(const char *text)
{
    double rate = 0, unit = 1;
    for (; isdigit((unsigned char)*text); text++)
        rate = rate * 10 + (*text - '0');
    if (*text == '.')
        for (text++; isdigit((unsigned char)*text); text++)
            rate += (unit /= 10) * (*text - '0');
    return strncmp(text, " Gb/sec", 7) == 0 ? rate : 0;
}

/* By the codes of the InfiniBand specification: of a lane, and how many there are. */
static double rate_by_codes(unsigned speed, unsigned width)
{
    static const struct {
        unsigned code;
        double gbps;
    } speeds[] = { { 1, 2.5 }, { 2, 5 }, { 4, 10 }, { 8, 10 }, { 16, 14 }, { 32, 25 }, { 64, 50 }, { 128, 100 } },
      widths[] = { { 1, 1 }, { 2, 4 }, { 4, 8 }, { 8, 12 }, { 16, 2 } };
    double lane = 0, lanes = 0;
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++)
        if (speeds[i].code == speed)
            lane = speeds[i].gbps;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (widths[i].code == width)
            lanes = widths[i].gbps;
    return lane * lanes;
}

/* The kernel's own words first: they know the speeds (XDR, 200 a lane) that do not fit into struct ibv_port_attr. */
static double rate(const struct ibv_device *device, uint8_t port, const struct ibv_port_attr *attr)
{
    char path[IBV_SYSFS_PATH_MAX + 32], text[64];
    snprintf(path, sizeof path, "%s/ports/%u/rate", device->ibdev_path, port);
    read_file(text, sizeof text, path);
    double gbps = parse_rate(text);
    return gbps > 0 ? gbps : rate_by_codes(attr->active_speed, attr->active_width);
}

static bool is_zero(const union ibv_gid *gid)
{
    static const union ibv_gid none;
    return memcmp(gid, &none, sizeof none) == 0;
}

/* As libibverbs before rdma-core 32 has to do it. */
static enum verbs_gid_type gid_type(const struct ibv_device *device, const struct verbs_port *port, uint32_t index)
{
    char path[IBV_SYSFS_PATH_MAX + 64], text[32];
    snprintf(path, sizeof path, "%s/ports/%u/gid_attrs/types/%u", device->ibdev_path, port->port, index);
    read_file(text, sizeof text, path);
    if (strncmp(text, "RoCE v2", 7) == 0)
        return VERBS_GID_ROCE_V2;
    return port->ethernet ? VERBS_GID_ROCE_V1 : VERBS_GID_IB;
}

static void add_gid(struct verbs_port *port, const union ibv_gid *gid, uint32_t index, enum verbs_gid_type type)
{
    if (index > UINT8_MAX) /* a QP's address names it in 8 bits */
        return;
    struct verbs_gid *g = &port->gids[port->n_gids++];
    *g = (struct verbs_gid){ .index = index, .type = type };
    memcpy(g->raw, gid->raw, sizeof g->raw);
}

static void gids_one_by_one(const struct verbs_ib_api *api, struct ibv_context *context, int table_len,
                            struct verbs_port *port)
{
    for (int i = 0; i < table_len && port->n_gids < VERBS_GIDS_MAX; i++) {
        union ibv_gid gid;
        if (api->query_gid(context, port->port, i, &gid) == 0 && !is_zero(&gid))
            add_gid(port, &gid, (uint32_t)i, gid_type(context->device, port, (uint32_t)i));
    }
}

/* One call for all ports of the device. */
static int gids_by_table(const struct verbs_ib_api *api, struct ibv_context *context, size_t table_len,
                         struct verbs_port *port)
{
    struct ibv_gid_entry *entries = calloc(table_len, sizeof *entries);
    if (!entries)
        return ENOMEM;
    ssize_t n = api->query_gid_table(context, entries, table_len, 0, sizeof *entries);
    for (ssize_t i = 0; i < n && port->n_gids < VERBS_GIDS_MAX; i++)
        if (entries[i].port_num == port->port && !is_zero(&entries[i].gid))
            add_gid(port, &entries[i].gid, entries[i].gid_index,
                    entries[i].gid_type == IBV_GID_TYPE_ROCE_V2   ? VERBS_GID_ROCE_V2
                    : entries[i].gid_type == IBV_GID_TYPE_ROCE_V1 ? VERBS_GID_ROCE_V1
                                                                  : VERBS_GID_IB);
    free(entries);
    return n < 0 ? verbs_ib_errno((int)n) : 0;
}

static uint8_t reads(int limit)
{
    return (uint8_t)(limit < 0 ? 0 : limit > UINT8_MAX ? UINT8_MAX : limit);
}

static uint32_t least(int a, int b)
{
    int less = a < b ? a : b;
    return less < 0 ? 0 : (uint32_t)less;
}

static int fill_in(const struct verbs_ib_api *api, struct ibv_context *context, const struct ibv_device_attr *device,
                   uint8_t number, size_t gids_of_device, struct verbs_port *port, struct penstock_error *error)
{
    struct ibv_port_attr attr;
    const char *name = context->device->name;
    int e = verbs_ib_query_port(api, context, number, &attr);
    if (e != 0)
        return base_error_sys(error, e, "%s port %u: ibv_query_port", name, number);
    *port =
        (struct verbs_port){ .port = number,
                             .active = attr.state == IBV_PORT_ACTIVE,
                             .ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET,
                             .mtu = (uint8_t)attr.active_mtu,
                             .gbps = rate(context->device, number, &attr),
                             .reads_out = reads(device->max_qp_init_rd_atom),
                             .reads_in = reads(device->max_qp_rd_atom),
                             .work_requests_max = least(device->max_qp_wr, INT_MAX),
                             .sges_max = least(device->max_sge, device->max_sge_rd > 0 ? device->max_sge_rd : INT_MAX),
                             .mr_bytes_max = device->max_mr_size,
                             .message_bytes_max = attr.max_msg_sz };
    snprintf(port->device, sizeof port->device, "%s", name);
    snprintf(port->state, sizeof port->state, "%s", verbs_ib_port_state(attr.state));
    port->gids = calloc(VERBS_GIDS_MAX, sizeof *port->gids);
    if (!port->gids)
        return base_error_sys(error, ENOMEM, "%s port %u: GIDs", name, number);
    if (!api->query_gid_table || gids_by_table(api, context, gids_of_device, port) != 0) {
        port->n_gids = 0;
        gids_one_by_one(api, context, attr.gid_tbl_len, port);
    }
    return 0;
}

/* How many entries the GID tables of all its ports have together. */
static size_t count_gids(const struct verbs_ib_api *api, struct ibv_context *context, uint8_t n_ports)
{
    size_t n = 1;
    for (unsigned i = 1; i <= n_ports; i++) {
        struct ibv_port_attr attr;
        if (verbs_ib_query_port(api, context, (uint8_t)i, &attr) == 0 && attr.gid_tbl_len > 0)
            n += (size_t)attr.gid_tbl_len;
    }
    return n;
}

static int add_ports(const struct verbs_ib_api *api, struct ibv_context *context, struct verbs_ports *ports,
                     struct penstock_error *error)
{
    struct ibv_device_attr device;
    int e = verbs_ib_errno(api->query_device(context, &device));
    if (e != 0)
        return base_error_sys(error, e, "%s: ibv_query_device", context->device->name);
    struct verbs_port *more = realloc(ports->at, (ports->n + device.phys_port_cnt) * sizeof *more);
    if (!more && device.phys_port_cnt > 0)
        return base_error_sys(error, ENOMEM, "%s: ports", context->device->name);
    if (more)
        ports->at = more;
    size_t gids = count_gids(api, context, device.phys_port_cnt);
    for (unsigned i = 1; i <= device.phys_port_cnt; i++) {
        int code = fill_in(api, context, &device, (uint8_t)i, gids, &ports->at[ports->n], error);
        if (code != 0)
            return code;
        ports->n++;
    }
    return 0;
}

static int add_device(const struct verbs_ib_world *world, struct ibv_device *device, struct verbs_ports *ports,
                      struct penstock_error *error)
{
    errno = 0;
    struct ibv_context *context = world->api.open_device(device);
    if (!context)
        return verbs_ib_open_error(world, device, verbs_ib_null_errno(), error);
    int code = add_ports(&world->api, context, ports, error);
    (void)world->api.close_device(context);
    return code;
}

static bool is_listed(struct ibv_device *const *list, const char *name)
{
    while (*list && strcmp((*list)->name, name) != 0)
        list++;
    return *list != NULL;
}

/* Or a negative errno. */
static int has_nodes(const struct verbs_ib_world *world)
{
    bool found = false;
    DIR *nodes = opendir(world->places.nodes);
    if (!nodes)
        return errno == ENOENT ? 0 : -errno;
    for (const struct dirent *d; !found && (d = readdir(nodes));)
        found = strncmp(d->d_name, "uverbs", 6) == 0;
    (void)closedir(nodes);
    return found;
}

/* A device that the kernel has and libibverbs does not list is one that it has no driver for, or no node. */
static void name_unlisted(const struct verbs_ib_world *world, struct ibv_device *const *list,
                          struct penstock_error *error)
{
    DIR *devices = opendir(world->places.sysfs);
    if (!devices && errno != ENOENT)
        (void)base_error_sys(error, errno, "%s", world->places.sysfs);
    for (const struct dirent *d; devices && (d = readdir(devices));) {
        if (d->d_name[0] == '.' || is_listed(list, d->d_name))
            continue;
        int nodes = has_nodes(world);
        if (nodes < 0)
            (void)base_error_sys(error, -nodes, "%s: %s", d->d_name, world->places.nodes);
        else if (nodes > 0)
            (void)base_error_set(error, 0, "%s: libibverbs has no driver for it (apt install ibverbs-providers)",
                                 d->d_name);
        else
            (void)base_error_set(error, 0, "%s: there is no %s/uverbs* (in a container: --device=/dev/infiniband)",
                                 d->d_name, world->places.nodes);
    }
    if (devices)
        (void)closedir(devices);
    if (error)
        error->code = 0; /* only words */
}

int verbs_ib_ports(struct verbs_world *world, struct verbs_ports *ports, struct penstock_error *error)
{
    const struct verbs_ib_world *w = VERBS_IB_CAST(const struct verbs_ib_world, world);
    *ports = (struct verbs_ports){ 0 };
    errno = 0;
    struct ibv_device **list = w->api.get_device_list(NULL);
    if (!list)
        return base_error_sys(error, verbs_ib_null_errno(), "ibv_get_device_list");
    int failed = 0, code = 0;
    for (size_t i = 0; list[i] && failed != PENSTOCK_ENOMEM; i++)
        if (verbs_ib_is_ours(list[i]) && (code = add_device(w, list[i], ports, error)) != 0)
            failed = code;
    if (failed == 0)
        name_unlisted(w, list, error);
    w->api.free_device_list(list);
    if (failed == PENSTOCK_ENOMEM || (failed != 0 && ports->n == 0)) {
        verbs_ports_fini(ports);
        return failed;
    }
    if (failed != 0 && error)
        error->code = 0; /* the words stay: another device has what it takes */
    return 0;
}
