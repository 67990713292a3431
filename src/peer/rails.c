#include "rails.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "thread.h"

int peer_rails_open(struct peer_server *server, struct penstock_error *error)
{
    struct penstock_error why;
    struct rail_devices *rails = &server->rails;
    const struct rail_wishes *wishes = &server->options->rails;
    int code = rail_devices_open(server->options->world, wishes, rails, &why);
    if (code && wishes->n_named > 0) {
        if (error)
            *error = why;
        base_error_in(error, "%s", server->options->rails_from ? server->options->rails_from : "--rail");
        return code;
    }
    if (code) {
        snprintf(server->no_rdma, sizeof server->no_rdma, "%s", why.message);
        base_log_info("no RDMA, clients are served over TCP only: %s", why.message);
        return 0;
    }
    for (size_t i = 0; i < rails->n; i++) {
        char words[320];
        (void)rail_port_format(&rails->ports[i], words, sizeof words);
        base_log_info("rail %zu: %s", i, words);
    }
    if (*rails->left_out)
        base_log_info("no rails: %s", rails->left_out);
    return 0;
}

void peer_rails_close(struct peer_server *server)
{
    rail_devices_close(&server->rails);
}

/* ---- events ---- */

static void tell(struct verbs_device *device)
{
    uint8_t port = 0;
    for (enum verbs_event e; (e = verbs_device_event(device, &port)) != VERBS_EVENT_NONE;) {
        if (e == VERBS_EVENT_PORT_DOWN)
            base_log_warning("%s port %u went down: RDMA clients lose the rails on it", device->name, port);
        else if (e == VERBS_EVENT_DEVICE_GONE)
            base_log_warning("%s is gone: RDMA clients lose the rails on it; restart the peer once it is back",
                             device->name);
        else
            base_log_debug("%s port %u: an event", device->name, port);
    }
}

void peer_rails_watch(struct peer_server *server)
{
    const struct rail_devices *rails = &server->rails;
    for (size_t i = 0; i < rails->n; i++)
        if (i == 0 || rails->devices[i] != rails->devices[i - 1]) /* twice does no harm */
            tell(rails->devices[i]);
}

/* ---- registering what is staged ---- */

static void *register_staged(void *argument)
{
    struct peer_server *server = argument;
    struct peer_served *served = peer_live_next(&server->live, NULL);
    for (; served; served = peer_live_next(&server->live, served))
        if (!atomic_load(&server->draining))
            (void)!peer_registration_want(served, &server->registrar, NULL); /* which says what came of it */
    pthread_mutex_lock(&server->lock);
    server->registered = true;
    pthread_cond_signal(&server->gone);
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

void peer_rails_register(struct peer_server *server)
{
    if (server->rails.n == 0)
        return;
    int failed = peer_thread_start(&server->registering, PEER_STACK_LARGE, register_staged, server);
    server->is_registering = !failed;
    if (failed)
        base_log_warning("no thread to register what is staged: it waits for its first RDMA client: %s",
                         strerrordesc_np(failed));
}

bool peer_rails_registered(struct peer_server *server, int64_t timeout_ns)
{
    if (!server->is_registering)
        return true;
    int64_t until_ns = base_deadline_ns(timeout_ns);
    const struct timespec until = { .tv_sec = until_ns / BASE_SECOND_NS, .tv_nsec = until_ns % BASE_SECOND_NS };
    int r = 0;
    pthread_mutex_lock(&server->lock);
    while (!server->registered && r == 0)
        r = pthread_cond_timedwait(&server->gone, &server->lock, &until);
    bool registered = server->registered;
    pthread_mutex_unlock(&server->lock);
    if (registered)
        pthread_join(server->registering, NULL);
    server->is_registering = !registered;
    return registered;
}
