#include "listen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <penstock/wire.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "connection.h"
#include "thread.h"

#define BACKLOG 1024
#define OUT_OF_FILES_PAUSE_MS 500

static void warn_about_congestion(int fd, const char *wanted)
{
    char got[16] = "";
    socklen_t len = sizeof got;
    if (!wanted || getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, got, &len) != 0 || strcmp(got, wanted) == 0)
        return;
    /* Once more, for the reason. */
    int failed = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, wanted, (socklen_t)strlen(wanted)) == 0 ? 0 : errno;
    if (failed == EPERM)
        base_log_warning("TCP congestion control %s is not allowed to this user (sysctl "
                         "net.ipv4.tcp_allowed_congestion_control): it stays %s",
                         wanted, got);
    else if (failed)
        base_log_warning("this kernel does not offer TCP congestion control %s: it stays %s", wanted, got);
}

/* Addresses that this machine lacks do no harm where a name stands for several ("localhost" without IPv6). */
static int open_name(struct peer_listeners *l, const struct peer_service *service, const char *name,
                     struct penstock_error *error)
{
    struct net_addresses addresses;
    int code = net_resolve(name, service->default_port, 1, &addresses, error);
    if (code)
        return code;
    size_t opened = 0;
    for (size_t i = 0; i < addresses.n; i++) {
        if (l->n == PEER_LISTENERS_MAX)
            return base_error_set(error, PENSTOCK_ELIMIT, "more than %d addresses to listen on", PEER_LISTENERS_MAX);
        code = net_listen(&addresses.at[i], BACKLOG, l->server->options->congestion, &l->fds[l->n], error);
        if (code == PENSTOCK_EUNREACHABLE)
            continue;
        if (code)
            return code;
        int flags = fcntl(l->fds[l->n], F_GETFL);
        (void)fcntl(l->fds[l->n], F_SETFL, flags | O_NONBLOCK);
        if (l->n == 0)
            warn_about_congestion(l->fds[0], l->server->options->congestion);
        l->services[l->n++] = service;
        opened++;
    }
    return opened > 0 ? 0 : code;
}

static int open_service(struct peer_listeners *l, enum peer_tier tier, struct penstock_error *error)
{
    const struct peer_service *service = peer_services[tier];
    const char *const *names = l->server->options->listen[tier].at;
    size_t n = l->server->options->listen[tier].n;
    if (n == 0) {
        names = &service->default_address;
        n = 1;
    }
    for (size_t i = 0; i < n; i++) {
        int code = open_name(l, service, names[i], error);
        if (code) {
            base_error_in(error, "listen on %s", names[i]);
            return code;
        }
    }
    return 0;
}

int peer_listeners_open(struct peer_listeners *l, struct peer_server *server, struct penstock_error *error)
{
    *l = (struct peer_listeners){ .server = server, .wake = { -1, -1 } };
    for (enum peer_tier tier = 0; tier < PEER_TIERS; tier++) {
        int code = peer_services[tier]->wanted(server->options) ? open_service(l, tier, error) : 0;
        if (code) {
            peer_listeners_close(l);
            return code;
        }
    }
    if (pipe2(l->wake, O_CLOEXEC) != 0) {
        int code = base_error_sys(error, errno, "make a pipe");
        peer_listeners_close(l);
        return code;
    }
    return 0;
}

static void accept_one(struct peer_listeners *l, size_t i, bool *out_of_files)
{
    struct net_address client = { .len = sizeof client.addr };
    int fd = accept4(l->fds[i], (struct sockaddr *)&client.addr, &client.len, SOCK_CLOEXEC);
    if (fd >= 0) {
        peer_connection_start(l->server, l->services[i], fd, &client);
        return;
    }
    switch (errno) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
        *out_of_files = true;
        peer_complain(&l->server->complaints,
                      "cannot accept a connection: %s; raise the limit on open files (ulimit -n)",
                      strerrordesc_np(errno));
        break;
    default: /* the client is gone already, or another thread of the kernel's was quicker */
        break;
    }
}

static void *accept_all(void *argument)
{
    struct peer_listeners *l = argument;
    struct pollfd polled[PEER_LISTENERS_MAX + 1];
    for (size_t i = 0; i < l->n; i++)
        polled[i] = (struct pollfd){ .fd = l->fds[i], .events = POLLIN };
    polled[l->n] = (struct pollfd){ .fd = l->wake[0], .events = POLLIN };

    for (;;) {
        if (poll(polled, (nfds_t)l->n + 1, -1) < 0)
            continue;
        if (polled[l->n].revents)
            return NULL;
        bool out_of_files = false;
        for (size_t i = 0; i < l->n; i++)
            if (polled[i].revents)
                accept_one(l, i, &out_of_files);
        /* The connection stays in the backlog, and the listener readable: not to spin, wait a moment. */
        if (out_of_files)
            (void)poll(&polled[l->n], 1, OUT_OF_FILES_PAUSE_MS);
    }
}

int peer_listeners_start(struct peer_listeners *l, struct penstock_error *error)
{
    int failed = peer_thread_start(&l->thread, PEER_STACK_LARGE, accept_all, l);
    if (failed)
        return base_error_sys(error, failed, "start a thread to accept connections");
    for (size_t i = 0; i < l->n; i++) {
        struct net_address at = { .len = sizeof at.addr };
        char text[NET_ADDRESS_TEXT_MAX] = "an unknown address";
        if (getsockname(l->fds[i], (struct sockaddr *)&at.addr, &at.len) == 0)
            net_address_format(&at, text);
        base_log_info("listening for %s on %s", l->services[i]->name, text);
    }
    return 0;
}

void peer_listeners_close(struct peer_listeners *l)
{
    for (size_t i = 0; i < l->n; i++)
        close(l->fds[i]);
    for (int i = 0; i < 2; i++)
        if (l->wake[i] >= 0)
            close(l->wake[i]);
    l->n = 0;
    l->wake[0] = l->wake[1] = -1;
}

void peer_listeners_stop(struct peer_listeners *l)
{
    close(l->wake[1]);
    l->wake[1] = -1;
    pthread_join(l->thread, NULL);
    peer_listeners_close(l);
}
