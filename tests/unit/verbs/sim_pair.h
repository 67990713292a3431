/* Two hosts of a simulated fabric, a client and a peer, with one QP each and 64 KiB at either end. */
#ifndef PENSTOCK_SIM_PAIR_H
#define PENSTOCK_SIM_PAIR_H

#include "../test.h"
#include "verbs/sim/sim.h"

#define PAIR_BYTES 65536
#define PAIR_DEPTH 64

struct pair_end {
    struct verbs_world *host;
    struct sim_port *port;
    struct verbs_device *device;
    struct verbs_pd *pd;
    struct verbs_mr *mr;
    struct verbs_cq *cq;
    struct verbs_qp *qp;
    uint8_t gid[16];
    uint8_t *bytes;
};

struct pair {
    struct sim_fabric *fabric;
    struct pair_end client, peer;
    struct verbs_qp_link client_link, peer_link; /* may be changed before pair_connect */
};

static inline void pair_end_init(struct pair_end *end, struct sim_fabric *fabric,
                                 const struct sim_port_options *options, unsigned access)
{
    struct penstock_error error;
    struct verbs_ports ports;
    end->host = sim_host(fabric);
    end->port = sim_port(end->host, "sim0", options);
    assert_int_equal(verbs_ports(end->host, &ports, &error), 0);
    memcpy(end->gid, ports.at[0].gids[0].raw, sizeof end->gid);
    verbs_ports_fini(&ports);
    end->bytes = test_malloc(PAIR_BYTES);
    assert_int_equal(verbs_device_open(end->host, "sim0", &end->device, &error), 0);
    assert_int_equal(verbs_pd_new(end->device, &end->pd, &error), 0);
    assert_int_equal(verbs_mr_new(end->pd, end->bytes, PAIR_BYTES, access, &end->mr, &error), 0);
    assert_int_equal(verbs_cq_new(end->device, PAIR_DEPTH, &end->cq, &error), 0);
    struct verbs_qp_options qp = { .port = 1, .access = access, .depth = PAIR_DEPTH, .sges_max = 4 };
    assert_int_equal(verbs_qp_new(end->pd, end->cq, &qp, &end->qp, &error), 0);
}

/* Two hosts more. port may be NULL. */
static inline void pair_init_in(struct pair *p, struct sim_fabric *fabric, const struct sim_port_options *port)
{
    p->fabric = fabric;
    pair_end_init(&p->client, p->fabric, port, VERBS_LOCAL_WRITE);
    pair_end_init(&p->peer, p->fabric, port, VERBS_LOCAL_WRITE | VERBS_REMOTE_READ | VERBS_REMOTE_WRITE);
    memset(p->client.bytes, 0, PAIR_BYTES);
    for (size_t i = 0; i < PAIR_BYTES; i++)
        p->peer.bytes[i] = (uint8_t)(i * 31 + i / 256);
    p->client_link = (struct verbs_qp_link){ .own_psn = 0xabcdef,
                                             .peer_psn = 0x123456,
                                             .peer_qpn = p->peer.qp->qpn,
                                             .mtu = 5,
                                             .reads_out = 16,
                                             .reads_in = 16 };
    p->peer_link = p->client_link;
    p->peer_link.own_psn = 0x123456;
    p->peer_link.peer_psn = 0xabcdef;
    p->peer_link.peer_qpn = p->client.qp->qpn;
    memcpy(p->client_link.peer_gid, p->peer.gid, sizeof p->peer.gid);
    memcpy(p->peer_link.peer_gid, p->client.gid, sizeof p->client.gid);
}

/* With a fabric of its own. Either may be NULL. */
static inline void pair_init(struct pair *p, const struct sim_options *options, const struct sim_port_options *port)
{
    pair_init_in(p, sim_new(options), port);
}

static inline void pair_connect(struct pair *p)
{
    struct penstock_error error;
    assert_int_equal(verbs_qp_connect(p->client.qp, &p->client_link, &error), 0);
    assert_int_equal(verbs_qp_connect(p->peer.qp, &p->peer_link, &error), 0);
}

static inline void pair_end_fini(struct pair_end *end)
{
    verbs_qp_free(end->qp);
    verbs_cq_free(end->cq);
    verbs_mr_free(end->mr);
    verbs_pd_free(end->pd);
    verbs_device_close(end->device);
    test_free(end->bytes);
}

static inline void pair_fini(struct pair *p)
{
    pair_end_fini(&p->client);
    pair_end_fini(&p->peer);
    sim_free(p->fabric);
}

/* From offset to the same offset, by one work request with one SGE. */
static inline int pair_post(struct pair *p, enum verbs_opcode opcode, uint64_t offset, uint32_t len, bool signaled,
                            void *context, struct penstock_error *error)
{
    struct verbs_sge sge = { p->client.mr->base + offset, len, p->client.mr->lkey };
    struct verbs_request request = { .opcode = opcode,
                                     .signaled = signaled,
                                     .remote = p->peer.mr->base + offset,
                                     .rkey = p->peer.mr->rkey,
                                     .n_sges = 1,
                                     .sges = &sge,
                                     .context = context };
    size_t posted = 99;
    int code = verbs_post(p->client.qp, &request, 1, &posted, error);
    assert_int_equal(posted, code == 0);
    return code;
}

static inline void pair_read(struct pair *p, uint64_t offset, uint32_t len, bool signaled, uintptr_t context)
{
    struct penstock_error error;
    assert_int_equal(pair_post(p, VERBS_READ, offset, len, signaled, (void *)context, &error), 0);
}

/* The next completion, which there must be; its context and status. */
static inline int pair_poll(struct pair *p, uintptr_t *context)
{
    struct verbs_completion completion;
    struct penstock_error error;
    assert_int_equal(verbs_cq_poll(p->client.cq, &completion, 1, &error), 1);
    *context = (uintptr_t)completion.context;
    return completion.status;
}

static inline void pair_expect(struct pair *p, uintptr_t context, int status)
{
    uintptr_t got;
    assert_int_equal(pair_poll(p, &got), status);
    assert_int_equal(got, context);
}

static inline void pair_expect_nothing(struct pair *p)
{
    struct verbs_completion completion;
    struct penstock_error error;
    assert_int_equal(verbs_cq_poll(p->client.cq, &completion, 1, &error), 0);
}

#endif
