/* A libibverbs without devices, loaded like the real one: what the tests see of it, and tell it. */
#ifndef PENSTOCK_TEST_FAKE_IBVERBS_H
#define PENSTOCK_TEST_FAKE_IBVERBS_H

#include <stdbool.h>

#include <infiniband/verbs.h>

#define FAKE_DEVICES_MAX 3
#define FAKE_WORK_MAX 64

/* How a call that fails says so: libibverbs and its providers do all of these. */
enum fake_failure { FAKE_ERRNO_RETURNED, FAKE_MINUS_ONE, FAKE_NEGATIVE };

struct fake_ibverbs {
    /* What the tests set. */
    int n_devices;
    const char *sysfs;           /* each device's folder in it is that of its name */
    bool iwarp;                  /* the last device is */
    bool old_contexts;           /* without the extended table, as before rdma-core 17 */
    const char *fail;            /* the call that fails, by name; NULL: none */
    const char *fail_device;     /* only for this one; NULL: for all */
    int fail_after;              /* calls of it that still work */
    int fail_errno;              /* 0: leaves errno as it is */
    enum fake_failure fail_how;  /* of those that return int */
    struct ibv_device_attr attr; /* of every device */
    struct ibv_port_attr port;   /* of every port */
    union ibv_gid gids[4];       /* of every port */
    uint32_t gid_types[4];       /* as the table has them */
    struct ibv_wc completions[FAKE_WORK_MAX];
    int n_completions;
    int cq_events; /* waiting on the channel */
    struct ibv_async_event async_events[4];
    int n_async_events;
    int post_takes; /* before post_send fails */
    bool post_names_none;

    /* What they look at. */
    int contexts, pds, mrs, channels, cqs, qps; /* alive */
    int lists;
    int unacknowledged, notified; /* events of CQs; requests for one */
    int async_unacknowledged;
    int access; /* of the last region */
    uint64_t offset, iova;
    int dmabuf_fd;
    struct ibv_qp_init_attr init;
    int n_modified;
    struct ibv_qp_attr modified[8];
    int masks[8];
    int n_posted, doorbells;
    struct ibv_send_wr posted[FAKE_WORK_MAX];
};

#endif
