/* What the fabric is made of. All of it is guarded by the fabric's mutex. Times inside are picoseconds: a kilobyte at
 * line rate is some tens of nanoseconds. */
#ifndef PENSTOCK_VERBS_SIM_FABRIC_H
#define PENSTOCK_VERBS_SIM_FABRIC_H

#include <pthread.h>

#include "base/error.h"
#include "base/list.h"
#include "base/vec.h"
#include "sim.h"

#define SIM_PS 1000
#define SIM_EVENTS_MAX 16

struct sim_world {
    struct verbs_world base;
    struct sim_fabric *fabric;
    struct base_list node, devices;
    unsigned number; /* from 1 on */
    struct sim_costs costs;
    struct sim_objects objects;
    uint64_t memlock_bytes;
    uint64_t unpolled; /* completions in all its CQs */
    bool killed;
    struct {
        uint64_t calls, fail_from, fail_to;
        int code;
    } calls[SIM_CALLS];
    uint64_t ended, fail_completion; /* work requests; the one to fail, 0: none */
    int fail_status;
};

struct sim_device {
    struct sim_world *world;
    struct base_list node, ports, handles;
    char name[VERBS_NAME_MAX];
    bool gone;
};

struct sim_port {
    struct sim_device *device;
    struct base_list node;
    uint8_t number; /* from 1 on */
    struct sim_port_options options;
    BASE_VEC(struct verbs_gid) gids;
    bool active, drop;
    int64_t delay_ps, jitter_ps;
    uint64_t random;
    int64_t in_free_ps, out_free_ps; /* when the line is free in each direction */
    struct sim_counters counters;
};

/* One opened device. */
struct sim_handle {
    struct verbs_device base;
    struct sim_device *device;
    struct base_list node;
    struct {
        enum verbs_event event;
        uint8_t port;
    } events[SIM_EVENTS_MAX];
    unsigned n_events, n_pds, n_cqs;
};

struct sim_pd {
    struct verbs_pd base;
    unsigned n_mrs, n_qps;
};

struct sim_mr {
    struct verbs_mr base;
    uint8_t *bytes; /* what base.base stands for */
    unsigned access;
    void *mapping; /* of a dmabuf: the device's own view */
    size_t mapping_bytes;
};

struct sim_cqe {
    struct verbs_completion completion;
    struct sim_qp *qp;
    uint64_t ends; /* the QP's work requests before this position have ended */
};

struct sim_cq {
    struct verbs_cq base;
    unsigned n_qps;
    uint32_t depth, n, first; /* a ring */
    bool overrun;
    struct sim_cqe *ring;
};

struct sim_work {
    enum verbs_opcode opcode;
    bool signaled;
    uint64_t remote, len_bytes;
    uint32_t rkey, n_sges;
    void *context;
    struct verbs_sge *sges;
    int64_t ends_ps; /* once on the wire; SIM_NEVER: lost */
    int status;      /* what it is bound to end with, where that is known before */
};

enum sim_qp_state { SIM_INIT, SIM_RTS, SIM_ERR };

/* Positions count work requests from the QP's start: free <= head <= wire <= tail <= free + depth. Those below free can
 * be posted over, those below head have ended, those below wire are or were on the wire. */
struct sim_qp {
    struct verbs_qp base;
    struct base_list node; /* the fabric's, oldest first */
    struct sim_port *port;
    struct verbs_qp_options options;
    struct verbs_qp_link link;
    uint8_t gid[16];
    enum sim_qp_state state;
    bool rejects; /* a post has failed */
    uint64_t free, head, wire, tail;
    uint32_t reads_on_wire;
    int64_t last_ps; /* when the last one put on the wire ends */
    struct sim_work *work;
    struct verbs_sge *sges;
};

struct sim_fabric {
    pthread_mutex_t lock;
    struct sim_options options;
    int64_t now_ps;
    struct base_list worlds, qps;
    unsigned n_worlds;
    uint32_t last_qpn;
    BASE_VEC(struct sim_mr *) mrs; /* by key; NULL: freed. Keys are never used again */
    char misuse[200];
};

extern const struct verbs_ops sim_ops;

struct sim_world *sim_world_of(struct verbs_device *device);
struct sim_fabric *sim_fabric_of(struct verbs_device *device);

__attribute__((format(printf, 2, 3))) void sim_misused(struct sim_fabric *fabric, const char *format, ...);

/* Counts a call, and whether it is to fail: the code, with words. */
int sim_called(struct sim_world *world, enum sim_call call, const char *name, struct penstock_error *error);

/* ---- mr.c ---- */

uint32_t sim_lkey(uint32_t key);
uint32_t sim_rkey(uint32_t key);
/* The memory of [address, address + len) by such a key, or NULL with the reason: an ibv_wc_status. */
uint8_t *sim_mr_local(struct sim_fabric *fabric, const struct verbs_sge *sge, const struct verbs_pd *pd,
                      unsigned access, int *status);
uint8_t *sim_mr_remote(struct sim_fabric *fabric, uint64_t address, uint64_t len_bytes, uint32_t rkey,
                       const struct verbs_pd *pd, unsigned access, int *status);
int sim_mr_new(struct verbs_pd *pd, void *address, uint64_t len_bytes, unsigned access, struct verbs_mr **mr,
               struct penstock_error *error);
int sim_mr_dmabuf_new(struct verbs_pd *pd, int dmabuf_fd, uint64_t offset_bytes, uint64_t len_bytes, unsigned access,
                      struct verbs_mr **mr, struct penstock_error *error);
void sim_mr_free(struct verbs_mr *mr);

/* ---- cq.c ---- */

int sim_cq_new(struct verbs_device *device, uint32_t depth, struct verbs_cq **cq, struct penstock_error *error);
void sim_cq_free(struct verbs_cq *cq);
int sim_cq_arm(struct verbs_cq *cq, struct penstock_error *error);
int sim_cq_poll(struct verbs_cq *cq, struct verbs_completion *completions, int max, struct penstock_error *error);
void sim_cq_push(struct sim_cq *cq, const struct sim_cqe *cqe);
void sim_cq_forget(struct sim_cq *cq, const struct sim_qp *qp);

/* ---- qp.c ---- */

int sim_qp_new(struct verbs_pd *pd, struct verbs_cq *cq, const struct verbs_qp_options *options, struct verbs_qp **qp,
               struct penstock_error *error);
void sim_qp_free(struct verbs_qp *qp);
int sim_qp_connect(struct verbs_qp *qp, const struct verbs_qp_link *link, struct penstock_error *error);
int sim_qp_query(struct verbs_qp *qp, struct verbs_qp_state *state, struct penstock_error *error);
int sim_post(struct verbs_qp *qp, const struct verbs_request *requests, size_t n, size_t *posted,
             struct penstock_error *error);

/* ---- wire.c ---- */

static inline struct sim_work *sim_work_at(struct sim_qp *qp, uint64_t position)
{
    return &qp->work[position % qp->options.depth];
}

/* NULL: there is none, or no longer. */
struct sim_qp *sim_wire_numbered(const struct sim_fabric *fabric, uint32_t qpn);
/* The other end, where it is there and would answer; else NULL. */
struct sim_qp *sim_wire_peer(struct sim_fabric *fabric, const struct sim_qp *qp);
/* Puts on the wire what the QP has for it and may. */
void sim_wire_issue(struct sim_fabric *fabric, struct sim_qp *qp);
/* The QP fails now: its oldest request with status, the others flushed. */
void sim_wire_fail(struct sim_fabric *fabric, struct sim_qp *qp, int status);
/* What happens until then, and the clock with it. */
void sim_wire_run(struct sim_fabric *fabric, int64_t until_ps);
int64_t sim_wire_next(const struct sim_fabric *fabric);

#endif
