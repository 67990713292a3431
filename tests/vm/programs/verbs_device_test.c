/* src/verbs on a device that exists: both ends of a connection in one process. Runs in the guest, as root. */
#include "../../unit/test.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "verbs/verbs.h"

#define MEMORY_BYTES (1u << 20)

/* One end. */
struct end {
    struct verbs_pd *pd;
    struct verbs_mr *mr;
    struct verbs_cq *cq;
    struct verbs_qp *qp;
    uint8_t *memory;
};

struct pair {
    struct verbs_world *world;
    struct verbs_ports ports;
    const struct verbs_port *port;
    const struct verbs_gid *gid;
    struct verbs_device *device;
    struct end client, peer;
};

static struct penstock_error error; /* of the call at hand */

static void ok(int code)
{
    if (code != 0)
        fail_msg("%s", error.message);
}

static void open_end(struct pair *p, struct end *end, unsigned access)
{
    end->memory = aligned_alloc(4096, MEMORY_BYTES);
    assert_non_null(end->memory);
    ok(verbs_pd_new(p->device, &end->pd, &error));
    ok(verbs_mr_new(end->pd, end->memory, MEMORY_BYTES, access, &end->mr, &error));
    ok(verbs_cq_new(p->device, 256, &end->cq, &error));
    const struct verbs_qp_options options = { .port = p->port->port,
                                              .gid_index = p->gid->index,
                                              .access = access & ~(unsigned)VERBS_LOCAL_WRITE,
                                              .depth = 256,
                                              .sges_max = 2 };
    ok(verbs_qp_new(end->pd, end->cq, &options, &end->qp, &error));
}

static void close_end(struct end *end)
{
    verbs_qp_free(end->qp);
    verbs_cq_free(end->cq);
    verbs_mr_free(end->mr);
    verbs_pd_free(end->pd);
    free(end->memory);
}

static void connect_to(struct pair *p, struct end *end, const struct end *other)
{
    struct verbs_qp_link link = { .own_psn = 0x1000001 + end->qp->qpn,
                                  .peer_psn = 0x1000001 + other->qp->qpn,
                                  .peer_qpn = other->qp->qpn,
                                  .mtu = p->port->mtu,
                                  .reads_out = 16,
                                  .reads_in = 16 };
    memcpy(link.peer_gid, p->gid->raw, 16);
    ok(verbs_qp_connect(end->qp, &link, &error));
}

/* The first active port, and its first IPv4 RoCE v2 GID. */
static void choose(struct pair *p)
{
    for (size_t i = 0; i < p->ports.n && !p->port; i++)
        for (size_t k = 0; p->ports.at[i].active && k < p->ports.at[i].n_gids && !p->port; k++)
            if (p->ports.at[i].gids[k].type == VERBS_GID_ROCE_V2 && p->ports.at[i].gids[k].raw[0] == 0) {
                p->port = &p->ports.at[i];
                p->gid = &p->ports.at[i].gids[k];
            }
    assert_non_null(p->port);
}

static int open_pair(void **state)
{
    struct pair *p = calloc(1, sizeof *p);
    *state = p;
    ok(verbs_world_open(&p->world, &error));
    ok(verbs_ports(p->world, &p->ports, &error));
    choose(p);
    ok(verbs_device_open(p->world, p->port->device, &p->device, &error));
    open_end(p, &p->client, VERBS_LOCAL_WRITE);
    open_end(p, &p->peer, VERBS_LOCAL_WRITE | VERBS_REMOTE_READ | VERBS_REMOTE_WRITE);
    connect_to(p, &p->client, &p->peer);
    connect_to(p, &p->peer, &p->client);
    for (size_t i = 0; i < MEMORY_BYTES; i++)
        p->peer.memory[i] = (uint8_t)(i * 7 + i / 251);
    memset(p->client.memory, 0, MEMORY_BYTES);
    return 0;
}

static int close_pair(void **state)
{
    struct pair *p = *state;
    close_end(&p->client);
    close_end(&p->peer);
    verbs_device_close(p->device);
    verbs_ports_fini(&p->ports);
    verbs_world_free(p->world);
    free(p);
    return 0;
}

/* Waits on the CQ's fd. */
static struct verbs_completion next_completion(struct end *end)
{
    for (;;) {
        struct verbs_completion c;
        int n = verbs_cq_poll(end->cq, &c, 1, &error);
        if (n == 0) {
            ok(verbs_cq_arm(end->cq, &error));
            n = verbs_cq_poll(end->cq, &c, 1, &error);
        }
        assert_true(n >= 0);
        if (n == 1)
            return c;
        struct pollfd fd = { .fd = end->cq->fd, .events = POLLIN };
        assert_int_equal(poll(&fd, 1, 20000), 1);
    }
}

static struct verbs_request request(struct pair *p, enum verbs_opcode opcode, struct verbs_sge *sge, uint64_t offset,
                                    uint32_t len_bytes)
{
    *sge = (struct verbs_sge){ .address = p->client.mr->base + offset,
                               .len_bytes = len_bytes,
                               .lkey = p->client.mr->lkey };
    return (struct verbs_request){ .opcode = opcode,
                                   .signaled = true,
                                   .remote = p->peer.mr->base + offset,
                                   .rkey = p->peer.mr->rkey,
                                   .n_sges = 1,
                                   .sges = sge,
                                   .context = sge };
}

static void a_port_says_what_it_is(void **state)
{
    struct pair *p = *state;
    assert_true(p->ports.n >= 2);
    for (size_t i = 0; i < p->ports.n; i++) {
        const struct verbs_port *port = &p->ports.at[i];
        printf("%s port %u: %s, MTU %u, %g Gb/s, READs %u out %u in, %u work requests of %u pieces, regions to %llu, "
               "%zu GIDs\n",
               port->device, port->port, port->state, verbs_mtu_bytes(port->mtu), port->gbps, port->reads_out,
               port->reads_in, port->work_requests_max, port->sges_max, (unsigned long long)port->mr_bytes_max,
               port->n_gids);
        assert_true(port->active);
        assert_string_equal(port->state, "ACTIVE");
        assert_true(port->ethernet);
        assert_in_range(port->mtu, 1, 5);
        assert_true(port->gbps > 0);
        assert_true(port->reads_out >= 16 && port->reads_in >= 16);
        assert_true(port->n_gids >= 2);
    }
}

static void the_attributes_are_those_agreed_on(void **state)
{
    struct pair *p = *state;
    struct verbs_qp_state s;
    ok(verbs_qp_query(p->client.qp, &s, &error));
    assert_string_equal(s.state, "RTS");
    assert_int_equal(s.mtu, p->port->mtu);
    assert_int_equal(s.reads_out, 16);
    assert_int_equal(s.reads_in, 16);
}

static void a_chain_of_reads_completes_with_its_last(void **state)
{
    struct pair *p = *state;
    struct verbs_sge sges[VERBS_CHAIN_MAX];
    struct verbs_request requests[VERBS_CHAIN_MAX];
    size_t posted;
    for (size_t i = 0; i < VERBS_CHAIN_MAX; i++) {
        requests[i] = request(p, VERBS_READ, &sges[i], i * 8192, 8192);
        requests[i].signaled = i + 1 == VERBS_CHAIN_MAX;
    }
    ok(verbs_post(p->client.qp, requests, VERBS_CHAIN_MAX, &posted, &error));
    assert_int_equal(posted, VERBS_CHAIN_MAX);
    struct verbs_completion c = next_completion(&p->client);
    assert_int_equal(c.status, 0);
    assert_ptr_equal(c.context, &sges[VERBS_CHAIN_MAX - 1]);
    assert_memory_equal(p->client.memory, p->peer.memory, VERBS_CHAIN_MAX * 8192);
}

static void a_write_arrives(void **state)
{
    struct pair *p = *state;
    struct verbs_sge sge;
    size_t posted;
    memset(p->client.memory + 100, 0x5A, 5000);
    struct verbs_request r = request(p, VERBS_WRITE, &sge, 100, 5000);
    ok(verbs_post(p->client.qp, &r, 1, &posted, &error));
    assert_int_equal(next_completion(&p->client).status, 0);
    assert_memory_equal(p->peer.memory + 100, p->client.memory + 100, 5000);
}

static void a_wrong_key_is_a_remote_access_error_and_flushes_what_is_behind_it(void **state)
{
    struct pair *p = *state;
    struct verbs_sge sges[2];
    struct verbs_request requests[2] = { request(p, VERBS_READ, &sges[0], 0, 4096),
                                         request(p, VERBS_READ, &sges[1], 4096, 4096) };
    size_t posted;
    requests[0].rkey ^= 0x55;
    ok(verbs_post(p->client.qp, requests, 2, &posted, &error));
    struct verbs_completion c = next_completion(&p->client);
    assert_int_equal(c.status, 10);
    assert_ptr_equal(c.context, &sges[0]);
    assert_int_equal(verbs_completion_error(&c, VERBS_READ, &error), PENSTOCK_EDENIED);
    assert_non_null(strstr(error.message, "remote access error"));
    assert_int_equal(next_completion(&p->client).status, VERBS_STATUS_FLUSHED);
    struct verbs_qp_state s;
    ok(verbs_qp_query(p->client.qp, &s, &error));
    assert_string_equal(s.state, "ERR");
}

/* NICs ask for the way at RTR; Soft-RoCE does when it sends. */
static void a_gid_that_nothing_leads_to_fails_the_first_read(void **state)
{
    struct pair *p = *state;
    const struct verbs_qp_options options = {
        .port = p->port->port, .gid_index = p->gid->index, .depth = 1, .sges_max = 1
    };
    verbs_qp_free(p->client.qp);
    p->client.qp = NULL;
    ok(verbs_qp_new(p->client.pd, p->client.cq, &options, &p->client.qp, &error));
    /* 203.0.113.9, of the documentation's network. */
    const struct verbs_qp_link link = { .peer_qpn = 17,
                                        .peer_gid = { [10] = 0xFF, 0xFF, 203, 0, 113, 9 },
                                        .mtu = p->port->mtu,
                                        .reads_out = 16,
                                        .reads_in = 16 };
    int code = verbs_qp_connect(p->client.qp, &link, &error);
    if (code != 0) {
        assert_int_equal(code, PENSTOCK_ESYS);
        assert_non_null(strstr(error.message, "no way from GID"));
        assert_non_null(strstr(error.message, "203.0.113.9"));
        return;
    }
    struct verbs_sge sge;
    struct verbs_request r = request(p, VERBS_READ, &sge, 0, 4096);
    size_t posted;
    ok(verbs_post(p->client.qp, &r, 1, &posted, &error));
    struct verbs_completion c = next_completion(&p->client);
    assert_int_not_equal(c.status, 0);
    assert_int_not_equal(verbs_completion_error(&c, VERBS_READ, &error), 0);
    printf("%s\n", error.message);
    assert_int_equal(penstock_error_class(error.code), PENSTOCK_LOST_CONNECTION);
}

static void destroying_a_qp_stops_what_it_was_doing(void **state)
{
    struct pair *p = *state;
    struct verbs_sge sges[VERBS_CHAIN_MAX];
    struct verbs_request requests[VERBS_CHAIN_MAX];
    size_t posted;
    for (size_t i = 0; i < VERBS_CHAIN_MAX; i++)
        requests[i] = request(p, VERBS_READ, &sges[i], 0, MEMORY_BYTES);
    ok(verbs_post(p->client.qp, requests, VERBS_CHAIN_MAX, &posted, &error));
    verbs_qp_free(p->client.qp);
    p->client.qp = NULL;
    memset(p->client.memory, 0xEE, MEMORY_BYTES);
    (void)usleep(200000); /* what was on its way, if it still landed, has landed by now */
    for (size_t i = 0; i < MEMORY_BYTES; i++)
        assert_int_equal(p->client.memory[i], 0xEE);
}

static void events_are_none_or_harmless(void **state)
{
    struct pair *p = *state;
    uint8_t port;
    for (int i = 0; i < 100; i++) {
        enum verbs_event event = verbs_device_event(p->device, &port);
        if (event == VERBS_EVENT_NONE)
            return;
        assert_int_equal(event, VERBS_EVENT_OTHER);
    }
    fail_msg("events without end");
}

/* The interface that the GID is an address of, up or down. */
static void set_link(struct pair *p, const char *how)
{
    char path[160], command[96], interface[32] = "";
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%u", p->port->device, p->port->port,
             p->gid->index);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%31s", interface), 1);
    assert_int_equal(fclose(f), 0);
    snprintf(command, sizeof command, "ip link set %s %s", interface, how);
    assert_int_equal(system(command), 0);
}

static enum verbs_event next_event(struct pair *p, uint8_t *port)
{
    struct pollfd fd = { .fd = p->device->event_fd, .events = POLLIN };
    assert_int_equal(poll(&fd, 1, 20000), 1);
    return verbs_device_event(p->device, port);
}

static void a_link_that_goes_down_is_an_event_of_its_port(void **state)
{
    struct pair *p = *state;
    uint8_t port;
    set_link(p, "down");
    while (next_event(p, &port) != VERBS_EVENT_PORT_DOWN)
        ;
    assert_int_equal(port, p->port->port);
    struct verbs_ports now;
    ok(verbs_ports(p->world, &now, &error));
    bool active = now.at[0].active;
    verbs_ports_fini(&now);
    set_link(p, "up");
    assert_false(active);
    while (next_event(p, &port) != VERBS_EVENT_OTHER || port != p->port->port)
        ;
}

static void a_device_that_is_not_there_is_named_beside_those_that_are(void **state)
{
    struct pair *p = *state;
    struct verbs_device *device;
    assert_int_equal(verbs_device_open(p->world, "mlx9_9", &device, &error), PENSTOCK_ENOTFOUND);
    assert_non_null(strstr(error.message, "mlx9_9"));
    assert_non_null(strstr(error.message, p->port->device));
}

/* As a user without capabilities, whom the limit binds: run with the argument "memlock". */
static void registering_above_the_memlock_limit_names_the_limit(void **state)
{
    struct pair *p = *state;
    const struct rlimit small = { 64 * 1024, 64 * 1024 };
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &small), 0);
    assert_int_equal(setresgid(65534, 65534, 65534), 0);
    assert_int_equal(setresuid(65534, 65534, 65534), 0);
    struct verbs_mr *mr;
    int code = verbs_mr_new(p->client.pd, p->client.memory, MEMORY_BYTES, VERBS_LOCAL_WRITE, &mr, &error);
    printf("%s\n", error.message);
    assert_int_equal(code, PENSTOCK_ELIMIT);
    assert_non_null(strstr(error.message, "64 KiB"));
    assert_non_null(strstr(error.message, "LimitMEMLOCK=infinity"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_port_says_what_it_is),
        TEST(the_attributes_are_those_agreed_on),
        TEST(a_chain_of_reads_completes_with_its_last),
        TEST(a_write_arrives),
        TEST(a_wrong_key_is_a_remote_access_error_and_flushes_what_is_behind_it),
        TEST(a_gid_that_nothing_leads_to_fails_the_first_read),
        TEST(destroying_a_qp_stops_what_it_was_doing),
        TEST(events_are_none_or_harmless),
        TEST(a_link_that_goes_down_is_an_event_of_its_port),
        TEST(a_device_that_is_not_there_is_named_beside_those_that_are),
        TEST(registering_above_the_memlock_limit_names_the_limit), /* last: it gives up its privileges */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
