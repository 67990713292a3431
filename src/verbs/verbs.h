/* RDMA as the rest of Penstock sees it: reliable connections, one-sided READ and WRITE, completions. Behind one ops
 * table there are two worlds: libibverbs, loaded at run time (ibverbs.c, the only user of <infiniband/verbs.h>), and a
 * fabric in this process with a virtual clock (sim/), for tests and for line rates that no device here has.
 *
 * Objects are the implementation's; the members below are what both have, to be read only. What is created is freed by
 * the caller in reverse: QPs, then CQs and MRs, then PDs, devices, the world; memory last. Calls return 0 or a negative
 * PENSTOCK_E* with words that name the call, the device, the port and what to do; libibverbs' own mixed conventions end
 * here.
 *
 * A world and its devices may be used by several threads. PDs and MRs too. One CQ with its QPs belongs to one thread at
 * a time. */
#ifndef PENSTOCK_VERBS_VERBS_H
#define PENSTOCK_VERBS_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

struct verbs_world {
    const struct verbs_ops *ops;
};

/* ---- ports ---- */

#define VERBS_NAME_MAX 64
#define VERBS_GIDS_MAX 256

enum verbs_gid_type { VERBS_GID_IB, VERBS_GID_ROCE_V1, VERBS_GID_ROCE_V2 };

struct verbs_gid {
    uint8_t raw[16];
    uint32_t index; /* in the port's table */
    enum verbs_gid_type type;
};

/* One port of one device: what there is to choose from. */
struct verbs_port {
    char device[VERBS_NAME_MAX];
    uint8_t port; /* from 1 on */
    bool active;
    bool ethernet;                        /* RoCE; else InfiniBand */
    char state[24];                       /* in words: "ACTIVE", "DOWN" */
    uint8_t mtu;                          /* the active one, as ibv_mtu: verbs_mtu_bytes */
    double gbps;                          /* lane speed times width; 0: not known */
    uint8_t reads_out;                    /* READs that a QP of it can have outstanding as the initiator */
    uint8_t reads_in;                     /* and take as the responder */
    uint32_t work_requests_max, sges_max; /* of a QP */
    uint64_t mr_bytes_max;
    uint32_t message_bytes_max; /* of one READ or WRITE; 0: not known */
    struct verbs_gid *gids;     /* those in use, by index */
    size_t n_gids;
};

struct verbs_ports {
    struct verbs_port *at;
    size_t n;
};

void verbs_ports_fini(struct verbs_ports *ports);

/* ---- objects ---- */

struct verbs_device {
    struct verbs_world *world;
    char name[VERBS_NAME_MAX];
    int event_fd; /* readable: verbs_device_event has something, and for ever once the device is gone. -1: none (the
                     simulated world) */
};

struct verbs_pd {
    struct verbs_device *device;
};

enum verbs_access { VERBS_LOCAL_WRITE = 1, VERBS_REMOTE_READ = 2, VERBS_REMOTE_WRITE = 4 };

struct verbs_mr {
    struct verbs_pd *pd;
    uint64_t base; /* what remote and local addresses count from: the memory's own address, or the iova given */
    uint64_t len_bytes;
    uint32_t lkey, rkey;
};

struct verbs_cq {
    struct verbs_device *device;
    int fd; /* readable once an armed CQ has a completion. -1 in the simulated world: it is always polled */
};

struct verbs_qp {
    struct verbs_pd *pd;
    struct verbs_cq *cq;
    uint32_t qpn;
};

struct verbs_qp_options {
    uint8_t port;
    uint32_t gid_index;
    unsigned access;   /* what the other side may do: enum verbs_access */
    uint32_t depth;    /* work requests queued at once */
    uint32_t sges_max; /* of one work request */
};

/* What RTR and RTS need (protocol 1.3). The rest is frozen: GRH, hop limit 64, min_rnr_timer 12, timeout 14, rnr_retry
 * 7; retry_cnt 6, since rdma_rxe takes 7 for "for ever". */
struct verbs_qp_link {
    uint32_t own_psn, peer_psn; /* 24 bits count */
    uint32_t peer_qpn;
    uint8_t peer_gid[16];
    uint8_t mtu;       /* ibv_mtu */
    uint8_t reads_out; /* max_rd_atomic */
    uint8_t reads_in;  /* max_dest_rd_atomic */
};

/* What a QP is in fact set to. */
struct verbs_qp_state {
    char state[8]; /* "INIT", "RTR", "RTS", "ERR" */
    uint8_t mtu, reads_out, reads_in;
};

/* ---- work ---- */

struct verbs_sge {
    uint64_t address;
    uint32_t len_bytes;
    uint32_t lkey;
};

enum verbs_opcode { VERBS_READ, VERBS_WRITE };

struct verbs_request {
    enum verbs_opcode opcode;
    bool signaled; /* else only a failure completes it: a later signaled one of the QP says that it is done */
    uint64_t remote;
    uint32_t rkey;
    uint32_t n_sges;
    const struct verbs_sge *sges;
    void *context; /* comes back in the completion */
};

#define VERBS_CHAIN_MAX 64 /* requests that one doorbell takes */

/* Where status is not 0 only context, status, vendor_error and the words of them mean anything. */
struct verbs_completion {
    void *context;
    int status; /* enum ibv_wc_status; 0: success */
    uint32_t vendor_error;
};

#define VERBS_STATUS_FLUSHED 5 /* not the one that failed, but behind it */

enum verbs_event { VERBS_EVENT_NONE, VERBS_EVENT_OTHER, VERBS_EVENT_PORT_DOWN, VERBS_EVENT_DEVICE_GONE };

struct verbs_ops {
    void (*world_free)(struct verbs_world *world);
    int (*ports)(struct verbs_world *world, struct verbs_ports *ports, struct penstock_error *error);
    int (*device_open)(struct verbs_world *world, const char *name, struct verbs_device **device,
                       struct penstock_error *error);
    void (*device_close)(struct verbs_device *device);
    enum verbs_event (*device_event)(struct verbs_device *device, uint8_t *port);
    int (*pd_new)(struct verbs_device *device, struct verbs_pd **pd, struct penstock_error *error);
    void (*pd_free)(struct verbs_pd *pd);
    int (*mr_new)(struct verbs_pd *pd, void *address, uint64_t len_bytes, unsigned access, struct verbs_mr **mr,
                  struct penstock_error *error);
    int (*mr_dmabuf_new)(struct verbs_pd *pd, int dmabuf_fd, uint64_t offset_bytes, uint64_t len_bytes, unsigned access,
                         struct verbs_mr **mr, struct penstock_error *error);
    void (*mr_free)(struct verbs_mr *mr);
    int (*cq_new)(struct verbs_device *device, uint32_t depth, struct verbs_cq **cq, struct penstock_error *error);
    void (*cq_free)(struct verbs_cq *cq);
    int (*cq_arm)(struct verbs_cq *cq, struct penstock_error *error);
    int (*cq_poll)(struct verbs_cq *cq, struct verbs_completion *completions, int max, struct penstock_error *error);
    int (*qp_new)(struct verbs_pd *pd, struct verbs_cq *cq, const struct verbs_qp_options *options,
                  struct verbs_qp **qp, struct penstock_error *error);
    void (*qp_free)(struct verbs_qp *qp);
    int (*qp_connect)(struct verbs_qp *qp, const struct verbs_qp_link *link, struct penstock_error *error);
    int (*qp_query)(struct verbs_qp *qp, struct verbs_qp_state *state, struct penstock_error *error);
    int (*post)(struct verbs_qp *qp, const struct verbs_request *requests, size_t n, size_t *posted,
                struct penstock_error *error);
};

/* libibverbs, where it is. EUNSUPPORTED, in words for whoever wonders why there is no RDMA: not installed, too old, no
 * kernel support. A world without a device is no error: verbs_ports finds none. */
PENSTOCK_CHECKED int verbs_world_open(struct verbs_world **world, struct penstock_error *error);

static inline void verbs_world_free(struct verbs_world *world) /* NULL is fine */
{
    if (world)
        world->ops->world_free(world);
}

/* Every port of every device, whatever its state; a device that cannot be opened is left out and named in *error, with
 * code 0 all the same where another can. The caller frees ports. */
PENSTOCK_CHECKED static inline int verbs_ports(struct verbs_world *world, struct verbs_ports *ports,
                                               struct penstock_error *error)
{
    return world->ops->ports(world, ports, error);
}

PENSTOCK_CHECKED static inline int verbs_device_open(struct verbs_world *world, const char *name,
                                                     struct verbs_device **device, struct penstock_error *error)
{
    return world->ops->device_open(world, name, device, error);
}

static inline void verbs_device_close(struct verbs_device *device) /* NULL is fine, as in all that free */
{
    if (device)
        device->world->ops->device_close(device);
}

/* Never blocks. The port that it is about, where it is about one. */
static inline enum verbs_event verbs_device_event(struct verbs_device *device, uint8_t *port)
{
    return device->world->ops->device_event(device, port);
}

PENSTOCK_CHECKED static inline int verbs_pd_new(struct verbs_device *device, struct verbs_pd **pd,
                                                struct penstock_error *error)
{
    return device->world->ops->pd_new(device, pd, error);
}

static inline void verbs_pd_free(struct verbs_pd *pd)
{
    if (pd)
        pd->device->world->ops->pd_free(pd);
}

/* ELIMIT: above what the device or the memlock limit lets one register; EUNSUPPORTED: memory that cannot be registered
 * with this access (EFAULT: a read-only file mapping before Linux 6.2, for instance). */
PENSTOCK_CHECKED static inline int verbs_mr_new(struct verbs_pd *pd, void *address, uint64_t len_bytes, unsigned access,
                                                struct verbs_mr **mr, struct penstock_error *error)
{
    return pd->device->world->ops->mr_new(pd, address, len_bytes, access, mr, error);
}

/* Memory of a device, exported as a dmabuf; base is 0. EUNSUPPORTED: libibverbs or the device cannot. */
PENSTOCK_CHECKED static inline int verbs_mr_dmabuf_new(struct verbs_pd *pd, int dmabuf_fd, uint64_t offset_bytes,
                                                       uint64_t len_bytes, unsigned access, struct verbs_mr **mr,
                                                       struct penstock_error *error)
{
    return pd->device->world->ops->mr_dmabuf_new(pd, dmabuf_fd, offset_bytes, len_bytes, access, mr, error);
}

static inline void verbs_mr_free(struct verbs_mr *mr)
{
    if (mr)
        mr->pd->device->world->ops->mr_free(mr);
}

PENSTOCK_CHECKED static inline int verbs_cq_new(struct verbs_device *device, uint32_t depth, struct verbs_cq **cq,
                                                struct penstock_error *error)
{
    return device->world->ops->cq_new(device, depth, cq, error);
}

static inline void verbs_cq_free(struct verbs_cq *cq)
{
    if (cq)
        cq->device->world->ops->cq_free(cq);
}

/* The next completion makes fd readable, also one that came before the call where it has not been polled for (the
 * implementation sees to the race: poll once more after arming is what the caller still has to do). Takes what is on fd
 * away first. */
PENSTOCK_CHECKED static inline int verbs_cq_arm(struct verbs_cq *cq, struct penstock_error *error)
{
    return cq->device->world->ops->cq_arm(cq, error);
}

/* How many came, at most max; never blocks. Negative: the CQ is of no more use. */
PENSTOCK_CHECKED static inline int verbs_cq_poll(struct verbs_cq *cq, struct verbs_completion *completions, int max,
                                                 struct penstock_error *error)
{
    return cq->device->world->ops->cq_poll(cq, completions, max, error);
}

/* In INIT. */
PENSTOCK_CHECKED static inline int verbs_qp_new(struct verbs_pd *pd, struct verbs_cq *cq,
                                                const struct verbs_qp_options *options, struct verbs_qp **qp,
                                                struct penstock_error *error)
{
    return pd->device->world->ops->qp_new(pd, cq, options, qp, error);
}

/* When it returns neither end's device touches memory through this QP any more, whatever was under way. Completions
 * that were not polled are lost; the CQ, which may still hold some, is freed next. */
static inline void verbs_qp_free(struct verbs_qp *qp)
{
    if (qp)
        qp->pd->device->world->ops->qp_free(qp);
}

/* INIT to RTR to RTS. */
PENSTOCK_CHECKED static inline int verbs_qp_connect(struct verbs_qp *qp, const struct verbs_qp_link *link,
                                                    struct penstock_error *error)
{
    return qp->pd->device->world->ops->qp_connect(qp, link, error);
}

PENSTOCK_CHECKED static inline int verbs_qp_query(struct verbs_qp *qp, struct verbs_qp_state *state,
                                                  struct penstock_error *error)
{
    return qp->pd->device->world->ops->qp_query(qp, state, error);
}

/* One doorbell for n requests, 1..VERBS_CHAIN_MAX. On an error *posted of them are under way, and will complete; the
 * QP takes no more. */
PENSTOCK_CHECKED static inline int verbs_post(struct verbs_qp *qp, const struct verbs_request *requests, size_t n,
                                              size_t *posted, struct penstock_error *error)
{
    return qp->pd->device->world->ops->post(qp, requests, n, posted, error);
}

/* The words of a failed completion: "READ failed: transport retry counter exceeded (status 12, vendor error 0x81): the
 * other side does not answer: ...". Fills in error->wc_status; the code is ECLOSED or the like. Always an error. */
int verbs_completion_error(const struct verbs_completion *completion, enum verbs_opcode opcode,
                           struct penstock_error *error);

/* 256..4096 for ibv_mtu 1..5; 0 for another. */
static inline uint32_t verbs_mtu_bytes(uint8_t mtu)
{
    return mtu >= 1 && mtu <= 5 ? UINT32_C(128) << mtu : 0;
}

#endif
