/* A fabric inside the process: hosts with devices, whose ops table is that of verbs.h, and a virtual clock. READ and
 * WRITE really copy, at the moment of their completion; keys, bounds and access are checked as a device would. For
 * tests and for line rates that no device here has; never part of libpenstock.
 *
 * Both ends live in one process: a host is a world, and QPs find each other by GID and QP number. Nothing happens by
 * itself: time moves by sim_advance, sim_idle, sim_step, by the CPU costs of a host, or, with `automatic`, whenever an
 * empty CQ is polled. Everything is deterministic.
 *
 * What no caller may do (free a PD that has MRs, post before RTS, overrun a CQ, leave objects behind) is a misuse:
 * words on stderr and abort(), unless the test expects it.
 *
 * One mutex a fabric: any thread may call anything. */
#ifndef PENSTOCK_VERBS_SIM_H
#define PENSTOCK_VERBS_SIM_H

#include "verbs/verbs.h"

struct sim_fabric;
struct sim_port;

struct sim_options {
    int64_t rtt_ns;   /* 0: 5 us */
    int64_t retry_ns; /* until a request that nobody answers completes with status 12; 0: 500 ms */
    bool no_copy;     /* bytes stay where they are: for figures. Memory is then never touched */
    bool automatic;   /* a poll of an empty CQ moves the clock on to the next event: for code with a clock of its own */
    bool expect_misuse; /* remember the first one instead of aborting; what was to be freed stays */
};

/* options may be NULL. */
struct sim_fabric *sim_new(const struct sim_options *options);
/* Hosts go with their fabric; objects that are left are a misuse. NULL is fine. */
void sim_free(struct sim_fabric *fabric);
const char *sim_misuse(const struct sim_fabric *fabric); /* the first; NULL: none */

/* ---- hosts and ports ---- */

/* Lives as long as the fabric: verbs_world_free does nothing to it. */
struct verbs_world *sim_host(struct sim_fabric *fabric);

/* Zeroed fields have the value in brackets. */
struct sim_port_options {
    double gbps;                          /* line rate, each way (100) */
    uint8_t mtu;                          /* as ibv_mtu (5) */
    uint8_t reads_out, reads_in;          /* (16) */
    uint32_t work_requests_max, sges_max; /* (8192, 16) */
    uint64_t mr_bytes_max;                /* (2^40) */
    uint32_t message_bytes_max;           /* (2^30) */
    bool down, infiniband, no_dmabuf;
    bool no_gid; /* else one at index 0: RoCE v2, ::ffff:10.77.PORT.HOST, both counted from 0 and 1 */
};

/* The next port of the device of that name, which is made with its first one. options may be NULL. Before the device is
 * opened. */
struct sim_port *sim_port(struct verbs_world *world, const char *device, const struct sim_port_options *options);
/* One more, at the index given. Not twice at one index. */
void sim_port_gid(struct sim_port *port, uint32_t index, enum verbs_gid_type type, const uint8_t raw[16]);

/* What one host may register in all: as a memlock limit. */
void sim_host_memlock(struct verbs_world *world, uint64_t bytes);

/* What is there of a host's objects: 0 of all where nothing leaks. */
struct sim_objects {
    size_t devices, pds, mrs, cqs, qps;
    uint64_t mr_bytes;
};
struct sim_objects sim_host_objects(struct verbs_world *world);

/* ---- time ---- */

#define SIM_NEVER INT64_MAX

int64_t sim_now(const struct sim_fabric *fabric);        /* ns, from 0 on */
int64_t sim_next_event(const struct sim_fabric *fabric); /* when the next request ends; SIM_NEVER: none is under way */
void sim_advance(struct sim_fabric *fabric, int64_t ns);
bool sim_step(struct sim_fabric *fabric); /* to the next event; false: there is none */

/* CPU time of one host, which moves the clock. */
struct sim_costs {
    int64_t post_ns;       /* a work request */
    int64_t completion_ns; /* a work request that a polled completion ends, signaled or not */
    int64_t wake_ns;       /* sim_idle */
};
void sim_host_costs(struct verbs_world *world, const struct sim_costs *costs);

/* The host has nothing to do: until one of its CQs has something, or until_ns, and then its wake-up. False, and the
 * clock stands: neither will ever come. */
bool sim_idle(struct verbs_world *world, int64_t until_ns);

/* ---- faults ---- */

enum sim_call {
    SIM_PORTS,
    SIM_DEVICE_OPEN,
    SIM_PD_NEW,
    SIM_MR_NEW,
    SIM_MR_DMABUF_NEW,
    SIM_CQ_NEW,
    SIM_CQ_ARM,
    SIM_CQ_POLL,
    SIM_QP_NEW,
    SIM_QP_CONNECT,
    SIM_QP_QUERY,
    SIM_POST, /* counted in work requests: those before it in a chain are under way */
    SIM_CALLS
};

/* The host's calls number first to first + n - 1 from here on fail with code; 1 is the next one. */
void sim_fail_calls(struct verbs_world *world, enum sim_call call, uint64_t first, uint64_t n, int code);
/* How often it was called, failed or not. */
uint64_t sim_calls(const struct verbs_world *world, enum sim_call call);
/* The host's nth work request to end from here on ends with this ibv_wc_status. */
void sim_fail_completion(struct verbs_world *world, uint64_t nth, int status);

/* A dead link: what is under way through the port, from either side, never ends, not even in error. Until it is undone;
 * what was lost stays lost. Nobody is told. */
void sim_port_drop(struct sim_port *port, bool drop);
/* Down: what is under way ends with status 12 after retry_ns, or never where the port also drops. Both ways an event.
 */
void sim_port_down(struct sim_port *port);
void sim_port_up(struct sim_port *port);
void sim_port_rate(struct sim_port *port, double gbps);
/* From now on, for requests that are not on the wire yet. */
void sim_port_delay(struct sim_port *port, int64_t ns);
/* A random part of max_ns more for each request: reorders across QPs, never within one. */
void sim_port_jitter(struct sim_port *port, int64_t max_ns, uint64_t seed);
/* Its QPs fail, its calls too, and there is an event. */
void sim_device_gone(struct sim_port *port);
/* The host answers nobody any more. Its own calls go on to work, as if from beyond. */
void sim_host_kill(struct verbs_world *world);

/* ---- counters, of the requests that QPs of this port posted ---- */

struct sim_counters {
    uint64_t doorbells, work_requests, signaled;
    uint64_t completed, failed; /* work requests that ended well, and with an error or flushed */
    uint64_t bytes;             /* of those that ended well */
    uint32_t wire_max;          /* most of one QP on the wire at once */
};
struct sim_counters sim_port_counters(const struct sim_port *port);

#endif
