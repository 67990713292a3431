/* Names to sockets: "HOST", "HOST:PORT", "[IPV6]:PORT", ":PORT". */
#ifndef PENSTOCK_NET_ADDRESS_H
#define PENSTOCK_NET_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <penstock/error.h>

#define NET_ADDRESS_MAX 16

struct net_address {
    struct sockaddr_storage addr;
    socklen_t len;
};

/* What a name resolved to, in the order to try. */
struct net_addresses {
    struct net_address at[NET_ADDRESS_MAX];
    size_t n;
};

/* Splits and looks up (which may block for a name that is not numeric). passive: to listen on; an empty host is then
 * every address, else this machine. EINVAL: not such a name; EUNREACHABLE: it does not resolve. */
PENSTOCK_CHECKED int net_resolve(const char *name, uint16_t default_port, int passive, struct net_addresses *out,
                                 struct penstock_error *error);

/* "10.0.0.2:9910" or "[fe80::1%eth0]:9910". */
#define NET_ADDRESS_TEXT_MAX 96
void net_address_format(const struct net_address *address, char out[NET_ADDRESS_TEXT_MAX]);

#define NET_CONGESTION "cubic" /* on fast links half the CPU of bbr, and up to twice the speed */

/* A listening socket: TCP_CONGESTION set to congestion where that is not NULL and the kernel has it, SO_REUSEADDR,
 * CLOEXEC. IPv6 wildcard sockets take IPv4 as well. EUNREACHABLE: not an address of this machine; ESYS: in use, ... */
PENSTOCK_CHECKED int net_listen(const struct net_address *address, int backlog, const char *congestion, int *fd,
                                struct penstock_error *error);

/* A TCP congestion control by its name in the kernel, which takes no longer one. Empty: the system's. */
struct net_congestion {
    char name[16];
    const char *demanded_by; /* for messages; NULL: it is a wish */
};

/* Starts a non-blocking connect; *fd is connecting (wait for POLLOUT, then net_connect_result). TCP_NODELAY is set.
 * congestion may be NULL; EUNSUPPORTED where the kernel has not what is demanded, or not for this user. */
PENSTOCK_CHECKED int net_connect_start(const struct net_address *address, const struct net_congestion *congestion,
                                       int *fd, struct penstock_error *error);
/* After POLLOUT: 0, or the connection's error with words ("connection refused: does a peer listen there? ..."). */
PENSTOCK_CHECKED int net_connect_result(int fd, struct penstock_error *error);

/* Adds the failure of one address to those of a name: the last gives the code, all of them the words. */
void net_address_failed(const struct net_address *address, struct penstock_error *all,
                        const struct penstock_error *one);

/* Dials each address in turn and waits: a blocking stream's fd with TCP_NODELAY. The error names what was tried. */
PENSTOCK_CHECKED int net_dial(const char *name, uint16_t default_port, int64_t timeout_ns, int *fd,
                              struct penstock_error *error);

/* TCP_NODELAY, keepalive 30/10/3 and TCP_USER_TIMEOUT 60 s: the deadlines that find dead clients (protocol 2), each
 * times scale (1 but in tests) and a second at least. Best effort. */
void net_tune_accepted(int fd, double scale);

#endif
