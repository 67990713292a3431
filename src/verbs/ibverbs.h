/* What the files of this folder share: libibverbs' functions, and our objects around its own. */
#ifndef PENSTOCK_VERBS_IBVERBS_H
#define PENSTOCK_VERBS_IBVERBS_H

#include <infiniband/verbs.h>

#include "verbs.h"

/* Nothing links against libibverbs: what <infiniband/verbs.h> defines inline goes through a context's own table, and
 * everything else is one of these. */
#define VERBS_IB_FUNCTIONS(X)                                                                                          \
    X(ibv_get_device_list, get_device_list)                                                                            \
    X(ibv_free_device_list, free_device_list)                                                                          \
    X(ibv_open_device, open_device)                                                                                    \
    X(ibv_close_device, close_device)                                                                                  \
    X(ibv_get_async_event, get_async_event)                                                                            \
    X(ibv_ack_async_event, ack_async_event)                                                                            \
    X(ibv_query_device, query_device)                                                                                  \
    X(ibv_query_port, query_port)                                                                                      \
    X(ibv_query_gid, query_gid)                                                                                        \
    X(ibv_alloc_pd, alloc_pd)                                                                                          \
    X(ibv_dealloc_pd, dealloc_pd)                                                                                      \
    X(ibv_reg_mr, reg_mr)                                                                                              \
    X(ibv_dereg_mr, dereg_mr)                                                                                          \
    X(ibv_create_comp_channel, create_comp_channel)                                                                    \
    X(ibv_destroy_comp_channel, destroy_comp_channel)                                                                  \
    X(ibv_create_cq, create_cq)                                                                                        \
    X(ibv_destroy_cq, destroy_cq)                                                                                      \
    X(ibv_get_cq_event, get_cq_event)                                                                                  \
    X(ibv_ack_cq_events, ack_cq_events)                                                                                \
    X(ibv_create_qp, create_qp)                                                                                        \
    X(ibv_modify_qp, modify_qp)                                                                                        \
    X(ibv_query_qp, query_qp)                                                                                          \
    X(ibv_destroy_qp, destroy_qp)

/* NULL where libibverbs is older. */
#define VERBS_IB_LATER_FUNCTIONS(X)                                                                                    \
    X(ibv_reg_mr_iova2, reg_mr_iova2)        /* rdma-core 28 */                                                        \
    X(_ibv_query_gid_table, query_gid_table) /* rdma-core 32 */                                                        \
    X(ibv_reg_dmabuf_mr, reg_dmabuf_mr)      /* rdma-core 34 */

struct verbs_ib_api {
#define VERBS_IB_POINTER(name, member) __typeof__(name) *member;
    VERBS_IB_FUNCTIONS(VERBS_IB_POINTER)
    VERBS_IB_LATER_FUNCTIONS(VERBS_IB_POINTER)
#undef VERBS_IB_POINTER
};

/* Where things are; tests have their own. */
struct verbs_ib_places {
    const char *library; /* for dlopen */
    const char *sysfs;   /* the kernel's list of RDMA devices */
    const char *nodes;   /* their device nodes */
};

struct verbs_ib_world {
    struct verbs_world base;
    struct verbs_ib_api api;
    struct verbs_ib_places places; /* static strings */
};

struct verbs_ib_device {
    struct verbs_device base;
    struct ibv_context *context;
    struct ibv_device_attr attr;
    bool gone; /* and its owner was told: the channel fails for ever */
};

struct verbs_ib_pd {
    struct verbs_pd base;
    struct ibv_pd *pd;
};

struct verbs_ib_mr {
    struct verbs_mr base;
    struct ibv_mr *mr;
};

struct verbs_ib_cq {
    struct verbs_cq base;
    struct ibv_cq *cq;
    struct ibv_comp_channel *channel;
    unsigned unacknowledged; /* events taken from the channel: acknowledged in batches, since each takes a mutex */
};

struct verbs_ib_qp {
    struct verbs_qp base;
    struct ibv_qp *qp;
    uint8_t port;
    uint32_t gid_index;
};

/* What is in verbs.h is the first member of ours. */
#define VERBS_IB_CAST(type, pointer) ((type *)(void *)(pointer))

static inline const struct verbs_ib_api *verbs_ib_api(const struct verbs_device *device)
{
    return &VERBS_IB_CAST(const struct verbs_ib_world, device->world)->api;
}

static inline struct verbs_ib_device *verbs_ib_device(struct verbs_device *device)
{
    return VERBS_IB_CAST(struct verbs_ib_device, device);
}

/* libibverbs returns a positive errno, or -1 with errno, or a negative errno, by function, version and provider; those
 * that return a pointer set errno, mostly. 0, or a positive errno. */
int verbs_ib_errno(int result);
int verbs_ib_null_errno(void);

/* ibverbs.c: verbs_world_open elsewhere than in the usual places. */
PENSTOCK_CHECKED int verbs_ib_world_open(const struct verbs_ib_places *places, struct verbs_world **world,
                                         struct penstock_error *error);

/* loader.c. EUNSUPPORTED. */
PENSTOCK_CHECKED int verbs_ib_load(const char *library, struct verbs_ib_api *api, struct penstock_error *error);

/* devices.c */
int verbs_ib_device_open(struct verbs_world *world, const char *name, struct verbs_device **device,
                         struct penstock_error *error);
void verbs_ib_device_close(struct verbs_device *device);
enum verbs_event verbs_ib_device_event(struct verbs_device *device, uint8_t *port);
/* What open says of a device that cannot be opened. */
int verbs_ib_open_error(const struct verbs_ib_world *world, const struct ibv_device *device, int sys_errno,
                        struct penstock_error *error);
/* InfiniBand and RoCE; iWARP's connections are made in another way. */
bool verbs_ib_is_ours(const struct ibv_device *device);

/* port_facts.c */
int verbs_ib_ports(struct verbs_world *world, struct verbs_ports *ports, struct penstock_error *error);
int verbs_ib_query_port(const struct verbs_ib_api *api, struct ibv_context *context, uint8_t port,
                        struct ibv_port_attr *attr); /* 0 or a positive errno */
const char *verbs_ib_port_state(enum ibv_port_state state);

/* memory.c */
int verbs_ib_pd_new(struct verbs_device *device, struct verbs_pd **pd, struct penstock_error *error);
void verbs_ib_pd_free(struct verbs_pd *pd);
int verbs_ib_mr_new(struct verbs_pd *pd, void *address, uint64_t len_bytes, unsigned access, struct verbs_mr **mr,
                    struct penstock_error *error);
int verbs_ib_mr_dmabuf_new(struct verbs_pd *pd, int dmabuf_fd, uint64_t offset_bytes, uint64_t len_bytes,
                           unsigned access, struct verbs_mr **mr, struct penstock_error *error);
void verbs_ib_mr_free(struct verbs_mr *mr);
/* ": the memlock limit (ulimit -l) is 64 KiB...", where sys_errno can come from it; else empty. Queues count as well.
 */
#define VERBS_IB_MEMLOCK_WORDS 192
const char *verbs_ib_memlock_words(int sys_errno, char *out, size_t size);
unsigned verbs_ib_access(unsigned access); /* enum verbs_access to ibv_access_flags */

/* completions.c */
int verbs_ib_cq_new(struct verbs_device *device, uint32_t depth, struct verbs_cq **cq, struct penstock_error *error);
void verbs_ib_cq_free(struct verbs_cq *cq);
int verbs_ib_cq_arm(struct verbs_cq *cq, struct penstock_error *error);
int verbs_ib_cq_poll(struct verbs_cq *cq, struct verbs_completion *completions, int max, struct penstock_error *error);

/* pairs.c */
int verbs_ib_qp_new(struct verbs_pd *pd, struct verbs_cq *cq, const struct verbs_qp_options *options,
                    struct verbs_qp **qp, struct penstock_error *error);
void verbs_ib_qp_free(struct verbs_qp *qp);
int verbs_ib_qp_connect(struct verbs_qp *qp, const struct verbs_qp_link *link, struct penstock_error *error);
int verbs_ib_qp_query(struct verbs_qp *qp, struct verbs_qp_state *state, struct penstock_error *error);
int verbs_ib_post(struct verbs_qp *qp, const struct verbs_request *requests, size_t n, size_t *posted,
                  struct penstock_error *error);

#endif
