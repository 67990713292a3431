#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

/* ---- names ---- */

#define HOST_MAX 256

struct split {
    char host[HOST_MAX], port[16];
};

/* "fe80::1%eth0" and the like. */
static bool is_ipv6(const char *host)
{
    char address[HOST_MAX];
    struct in6_addr ignored;
    snprintf(address, sizeof address, "%.*s", (int)strcspn(host, "%"), host);
    return inet_pton(AF_INET6, address, &ignored) == 1;
}

/* The parts of name: *host up to *end, and *port, NULL where there is none. */
static int find_parts(const char *name, const char **host, const char **end, const char **port,
                      struct penstock_error *error)
{
    *host = name;
    *port = NULL;
    if (name[0] == '[') {
        *host = name + 1;
        *end = strchr(*host, ']');
        if (!*end || ((*end)[1] && (*end)[1] != ':'))
            return base_error_set(error, PENSTOCK_EINVAL, "address %s: an IPv6 address is written [ADDRESS]:PORT",
                                  name);
        *port = (*end)[1] ? *end + 2 : NULL;
        return 0;
    }
    const char *colon = strchr(name, ':');
    *end = name + strlen(name);
    if (!colon)
        return 0;
    if (!strchr(colon + 1, ':')) {
        *end = colon;
        *port = colon + 1;
        return 0;
    }
    /* Several colons without brackets are an IPv6 address without a port, or a mistake. */
    return is_ipv6(name) ? 0
                         : base_error_set(error, PENSTOCK_EINVAL,
                                          "address %s: an IPv6 address needs brackets: [ADDRESS]:PORT", name);
}

static int split(const char *name, uint16_t default_port, struct split *out, struct penstock_error *error)
{
    const char *host, *end, *port;
    int code = find_parts(name, &host, &end, &port, error);
    if (code)
        return code;
    if (end - host >= HOST_MAX)
        return base_error_set(error, PENSTOCK_EINVAL, "address %.40s...: the host name is too long", name);
    snprintf(out->host, sizeof out->host, "%.*s", (int)(end - host), host);
    snprintf(out->port, sizeof out->port, "%u", default_port);
    if (!port)
        return 0;
    size_t digits = strspn(port, "0123456789");
    if (digits == 0 || port[digits] || digits > 5 || atoi(port) > UINT16_MAX)
        return base_error_set(error, PENSTOCK_EINVAL, "address %s: the port is not a number from 0 to 65535", name);
    snprintf(out->port, sizeof out->port, "%s", port);
    return 0;
}

/* Whether this machine can make IPv6 sockets at all. */
static bool have_ipv6(void)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int net_resolve(const char *name, uint16_t default_port, int passive, struct net_addresses *out,
                struct penstock_error *error)
{
    struct split s;
    int code = split(name, default_port, &s, error);
    if (code)
        return code;
    /* "::" takes IPv4 as well: one socket, and one port where the kernel chooses it. */
    const char *host = s.host[0] ? s.host : !passive ? NULL : have_ipv6() ? "::" : "0.0.0.0";
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0) };
    struct addrinfo *found;
    int failed = getaddrinfo(host, s.port, &hints, &found);
    if (failed == EAI_MEMORY)
        return base_error_set(error, PENSTOCK_ENOMEM, "look up %s: no memory", s.host);
    if (failed)
        return base_error_set(error, PENSTOCK_EUNREACHABLE, "host name %s does not resolve: %s", s.host,
                              failed == EAI_SYSTEM ? strerrordesc_np(errno) : gai_strerror(failed));
    out->n = 0;
    for (const struct addrinfo *a = found; a && out->n < NET_ADDRESS_MAX; a = a->ai_next) {
        if (a->ai_addrlen > sizeof out->at[0].addr)
            continue;
        memcpy(&out->at[out->n].addr, a->ai_addr, a->ai_addrlen);
        out->at[out->n++].len = a->ai_addrlen;
    }
    freeaddrinfo(found);
    return out->n > 0 ? 0 : base_error_set(error, PENSTOCK_EUNREACHABLE, "host name %s has no address", s.host);
}

void net_address_format(const struct net_address *address, char out[NET_ADDRESS_TEXT_MAX])
{
    char host[64], port[8];
    int failed = getnameinfo((const struct sockaddr *)&address->addr, address->len, host, sizeof host, port,
                             sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    if (failed)
        snprintf(out, NET_ADDRESS_TEXT_MAX, "an unknown address");
    else if (address->addr.ss_family == AF_INET6)
        snprintf(out, NET_ADDRESS_TEXT_MAX, "[%s]:%s", host, port);
    else
        snprintf(out, NET_ADDRESS_TEXT_MAX, "%s:%s", host, port);
}

/* ---- sockets ---- */

static void set_int(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

int net_listen(const struct net_address *address, int backlog, const char *congestion, int *fd,
               struct penstock_error *error)
{
    char text[NET_ADDRESS_TEXT_MAX];
    net_address_format(address, text);
    int s = socket(address->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 && errno == EAFNOSUPPORT)
        return base_error_set(error, PENSTOCK_EUNREACHABLE, "%s: this machine has no such network", text);
    if (s < 0)
        return base_error_sys(error, errno, "socket for %s", text);
    set_int(s, SOL_SOCKET, SO_REUSEADDR, 1);
    if (address->addr.ss_family == AF_INET6)
        set_int(s, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (congestion)
        (void)setsockopt(s, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion));
    if (bind(s, (const struct sockaddr *)&address->addr, address->len) != 0 || listen(s, backlog) != 0) {
        int failed = errno;
        close(s);
        if (failed == EADDRNOTAVAIL)
            return base_error_set(error, PENSTOCK_EUNREACHABLE, "%s is not an address of this machine", text);
        return base_error_sys(error, failed, "%s", text);
    }
    *fd = s;
    return 0;
}

/* What a failed connect means to a user. */
static int unreachable(int sys_errno, struct penstock_error *error)
{
    if (sys_errno == ECONNREFUSED)
        base_error_set(error, PENSTOCK_EUNREACHABLE, "connection refused: does a peer listen there? (penstock serve)");
    else if (sys_errno == ETIMEDOUT)
        base_error_set(error, PENSTOCK_EUNREACHABLE, "no answer: is the machine up, and no firewall between?");
    else
        base_error_set(error, PENSTOCK_EUNREACHABLE, "connect: %s", strerrordesc_np(sys_errno));
    if (error)
        error->sys_errno = sys_errno;
    return PENSTOCK_EUNREACHABLE;
}

static int set_congestion(int fd, const char *name, struct penstock_error *error)
{
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0)
        return 0;
    if (errno == EPERM)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "TCP congestion control %.32s is not allowed to this user (sysctl "
                              "net.ipv4.tcp_allowed_congestion_control), or the route has one that is locked",
                              name);
    return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                          "this kernel has no TCP congestion control %.32s (sysctl "
                          "net.ipv4.tcp_available_congestion_control)",
                          name);
}

int net_connect_start(const struct net_address *address, const struct net_congestion *congestion, int *fd,
                      struct penstock_error *error)
{
    int s = socket(address->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0)
        return errno == EAFNOSUPPORT ? unreachable(errno, error) : base_error_sys(error, errno, "socket");
    set_int(s, IPPROTO_TCP, TCP_NODELAY, 1);
    /* Before the first packet: it says whether ECN is wanted. */
    if (congestion && congestion->name[0] && set_congestion(s, congestion->name, error) != 0 &&
        congestion->demanded_by) {
        base_error_in(error, "%s", congestion->demanded_by);
        close(s);
        return PENSTOCK_EUNSUPPORTED;
    }
    if (connect(s, (const struct sockaddr *)&address->addr, address->len) != 0 && errno != EINPROGRESS) {
        int failed = errno;
        close(s);
        return unreachable(failed, error);
    }
    *fd = s;
    return 0;
}

int net_connect_result(int fd, struct penstock_error *error)
{
    int failed = 0;
    socklen_t len = sizeof failed;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) != 0)
        failed = errno;
    return failed == 0 ? 0 : unreachable(failed, error);
}

static int await_connection(int fd, int64_t timeout_ns, struct penstock_error *error)
{
    struct pollfd polled = { .fd = fd, .events = POLLOUT };
    int64_t deadline_ns = base_deadline_ns(timeout_ns);
    int r;
    do
        r = poll(&polled, 1, base_poll_ms(deadline_ns));
    while ((r < 0 && errno == EINTR) || (r == 0 && base_now_ns() < deadline_ns));
    if (r < 0)
        return base_error_sys(error, errno, "poll");
    if (r == 0)
        return base_error_set(error, PENSTOCK_ETIMEOUT, "no answer in %.3g s", (double)timeout_ns / 1e9);
    int code = net_connect_result(fd, error);
    if (code == 0)
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return code;
}

static int dial_one(const struct net_address *address, int64_t timeout_ns, int *fd, struct penstock_error *error)
{
    int s = -1;
    int code = net_connect_start(address, NULL, &s, error);
    if (code == 0)
        code = await_connection(s, timeout_ns, error);
    if (code == 0) {
        *fd = s;
        return 0;
    }
    if (s >= 0)
        close(s);
    return code;
}

void net_address_failed(const struct net_address *address, struct penstock_error *all, const struct penstock_error *one)
{
    char text[NET_ADDRESS_TEXT_MAX];
    net_address_format(address, text);
    size_t said = strlen(all->message);
    snprintf(all->message + said, sizeof all->message - said, "%s%s: %s", said > 0 ? "; " : "", text, one->message);
    all->code = one->code;
    all->sys_errno = one->sys_errno;
}

int net_dial(const char *name, uint16_t default_port, int64_t timeout_ns, int *fd, struct penstock_error *error)
{
    struct net_addresses found;
    int code = net_resolve(name, default_port, 0, &found, error);
    if (code)
        return code;
    struct penstock_error failed = { 0 }, one = { 0 };
    for (size_t i = 0; i < found.n; i++) {
        code = dial_one(&found.at[i], timeout_ns, fd, &one);
        if (code == 0)
            return 0;
        net_address_failed(&found.at[i], &failed, &one);
    }
    if (error)
        *error = failed;
    return code;
}

static int scaled_seconds(int seconds, double scale)
{
    int scaled = (int)(seconds * scale);
    return scaled < 1 ? 1 : scaled;
}

void net_tune_accepted(int fd, double scale)
{
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, scaled_seconds(30, scale));
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, scaled_seconds(10, scale));
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * scaled_seconds(60, scale));
}
