#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "connection.h"
#include "listen.h"
#include "net/address.h"
#include "notify.h"
#include "peer.h"
#include "rails.h"
#include "service.h"
#include "thread.h"

#define WATCH_EVERY_NS (2 * BASE_SECOND_NS) /* protocol 2.4: at least every 5 s */
#define LAST_WORDS_NS (1 * BASE_SECOND_NS)  /* for threads to end once their sockets are shut down */

void peer_options_init(struct peer_options *options)
{
    *options = (struct peer_options){
        .congestion = NET_CONGESTION,
        .max_connections = PEER_MAX_CONNECTIONS,
        .drain_ns = PEER_DRAIN_NS,
        .deadline_scale = 1,
        .cache = { .swap_cap_bytes = PEER_SWAP_CAP_BYTES, .numa_node = -1 },
    };
}

void peer_options_fini(struct peer_options *options)
{
    base_vec_free(&options->weights);
    for (size_t i = 0; i < PEER_TIERS; i++)
        base_vec_free(&options->listen[i]);
}

/* ---- set-up ---- */

static int64_t scaled(const struct peer_options *options, int64_t seconds)
{
    return (int64_t)((double)(seconds * BASE_SECOND_NS) * options->deadline_scale);
}

static void on_staged(void *context, struct peer_served *served)
{
    struct peer_server *server = context;
    peer_worker_push(&server->worker, served);
}

static void on_rewritten(void *context, struct peer_served *served)
{
    peer_connections_end_served(context, served);
}

static void on_warning(void *context, const char *words)
{
    struct peer_server *server = context;
    /* Staging happens when clients ask: what it warns of is theirs to repeat. */
    peer_complain(&server->complaints, "%s", words);
}

static void server_init(struct peer_server *server, const struct peer_options *options)
{
    *server = (struct peer_server){
        .options = options,
        .deadlines = { .first_byte_ns = scaled(options, 10),
                       .message_ns = scaled(options, 30),
                       .mode_ns = scaled(options, 300),
                       .linger_ns = scaled(options, 5) },
    };
    pthread_mutex_init(&server->lock, NULL);
    /* Drains wait on the monotonic clock. */
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&server->gone, &attr);
    pthread_condattr_destroy(&attr);
    base_list_init(&server->connections);
    peer_complaints_init(&server->complaints);
    residency_ledger_init(&server->ledger, options->max_memory_bytes);
    server->registrar = (struct peer_registrar){ .rails = &server->rails,
                                                 .hold = options->hold,
                                                 .ledger = &server->ledger,
                                                 .complaints = &server->complaints,
                                                 .stop = &server->draining };
    peer_live_init(&server->live, on_staged, on_rewritten, server);
    peer_models_init(
        &server->models,
        &(struct peer_models_options){
            .allow_any_path = options->allow_any_path,
            .stage = { .follow_all_links = options->follow_links, .warn = on_warning, .warn_context = server },
            .ledger = &server->ledger,
            .live = &server->live,
        });
    peer_experts_init(&server->experts, options->experts, &server->models.options.stage, &server->ledger,
                      &server->live);
}

static void server_fini(struct peer_server *server)
{
    peer_cache_close(&server->cache);
    peer_experts_fini(&server->experts);
    peer_models_fini(&server->models);
    peer_live_fini(&server->live);
    peer_rails_close(server); /* once nothing is registered any more */
    residency_ledger_fini(&server->ledger);
    peer_complaints_fini(&server->complaints);
    pthread_cond_destroy(&server->gone);
    pthread_mutex_destroy(&server->lock);
}

/* As far as this user may by itself. */
static void raise_limit(__rlimit_resource_t resource)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(resource, &limit);
    }
}

static void prepare_process(sigset_t *stop)
{
    signal(SIGPIPE, SIG_IGN);
    /* Blocked in every thread that comes: only the main one takes them, when it waits for them. */
    sigemptyset(stop);
    sigaddset(stop, SIGTERM);
    sigaddset(stop, SIGINT);
    pthread_sigmask(SIG_BLOCK, stop, NULL);
    /* Thousands of threads that allocate little: arenas of their own would cost more than they give. */
    mallopt(M_ARENA_MAX, 2);
    raise_limit(RLIMIT_NOFILE);
    raise_limit(RLIMIT_MEMLOCK); /* what is registered is locked */
}

static int open_services(struct peer_server *server, struct penstock_error *error)
{
    for (size_t i = 0; i < PEER_TIERS; i++) {
        int code = peer_services[i]->wanted(server->options) ? peer_services[i]->open(server, error) : 0;
        if (code)
            return code;
    }
    return 0;
}

/* ---- the watch ---- */

struct watch {
    struct peer_server *server;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
};

static struct timespec at_ns(int64_t ns)
{
    return (struct timespec){ .tv_sec = ns / BASE_SECOND_NS, .tv_nsec = ns % BASE_SECOND_NS };
}

static bool anyone_there(struct peer_server *server)
{
    pthread_mutex_lock(&server->lock);
    bool there = !base_list_empty(&server->connections);
    pthread_mutex_unlock(&server->lock);
    return there;
}

/* A thread of its own: a file system that hangs must not keep signals from being heard. */
static void *watch(void *argument)
{
    struct watch *w = argument;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        struct timespec until = at_ns(base_deadline_ns(WATCH_EVERY_NS));
        if (pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT)
            continue;
        pthread_mutex_unlock(&w->lock);
        peer_rails_watch(w->server);
        if (anyone_there(w->server))
            peer_live_watch(&w->server->live);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static int watch_start(struct watch *w, struct peer_server *server, struct penstock_error *error)
{
    *w = (struct watch){ .server = server };
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    int failed = peer_thread_start(&w->thread, PEER_STACK_LARGE, watch, w);
    return failed ? base_error_sys(error, failed, "start a thread to watch files") : 0;
}

static void watch_stop(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
}

/* ---- the end ---- */

/* Whether every connection is gone by then. */
static bool wait_for_connections(struct peer_server *server, int64_t deadline_ns)
{
    struct timespec until = at_ns(deadline_ns);
    int r = 0;
    pthread_mutex_lock(&server->lock);
    while (server->n_serving + server->n_refusing > 0 && r == 0)
        r = pthread_cond_timedwait(&server->gone, &server->lock, &until);
    bool gone = server->n_serving + server->n_refusing == 0;
    pthread_mutex_unlock(&server->lock);
    return gone;
}

/* What is being sent is finished, for as long as the operator allows or until a second signal. */
static bool drain(struct peer_server *server, const sigset_t *stop)
{
    int64_t deadline_ns = base_deadline_ns(server->options->drain_ns);
    atomic_store(&server->draining, true);
    peer_connections_end_idle(server);
    for (int64_t now_ns = base_now_ns(); now_ns < deadline_ns; now_ns = base_now_ns()) {
        static const struct timespec none;
        int64_t step_ns = now_ns + 100 * BASE_MS_NS;
        if (wait_for_connections(server, step_ns < deadline_ns ? step_ns : deadline_ns))
            return true;
        if (sigtimedwait(stop, NULL, &none) > 0) {
            base_log_warning("a second signal: stopping at once");
            break;
        }
    }
    peer_connections_end_all(server);
    return wait_for_connections(server, base_deadline_ns(LAST_WORDS_NS));
}

static void serve_until_signal(struct peer_server *server, struct peer_listeners *listeners, const sigset_t *stop)
{
    int signal_number = 0;
    peer_notify("READY=1");
    while (sigwait(stop, &signal_number) != 0)
        ;
    peer_notify("STOPPING=1");
    base_log_info("%s: finishing what is being sent", signal_number == SIGINT ? "SIGINT" : "SIGTERM");
    peer_listeners_stop(listeners);
    if (!drain(server, stop) || !peer_rails_registered(server, LAST_WORDS_NS)) {
        /* A thread is stuck in a read of a disk that does not answer, or in registering what lies there: it cannot be
         * joined, and the kernel ends it. What a cache is to keep is not lost for its sake. */
        peer_cache_spill(&server->cache);
        base_log_warning("stopped with connections that did not end in time");
        _exit(0);
    }
}

int peer_run(const struct peer_options *options, struct penstock_error *error)
{
    sigset_t stop;
    struct peer_server server;
    struct peer_listeners listeners;
    struct watch watcher;

    prepare_process(&stop);
    server_init(&server, options);
    int code = peer_worker_init(&server.worker, &server.live, !options->no_warm, !options->no_digests, error);
    if (code)
        goto no_worker;
    code = peer_rails_open(&server, error);
    if (code)
        goto no_listeners;
    code = peer_listeners_open(&listeners, &server, error);
    if (code)
        goto no_listeners;
    code = open_services(&server, error);
    if (code)
        goto not_opened;
    code = watch_start(&watcher, &server, error);
    if (code)
        goto not_opened;
    code = peer_listeners_start(&listeners, error);
    if (code == 0) {
        peer_live_announce(&server.live);
        peer_rails_register(&server);
        serve_until_signal(&server, &listeners, &stop);
    }
    watch_stop(&watcher);
not_opened:
    peer_listeners_close(&listeners);
no_listeners:
    peer_worker_fini(&server.worker);
no_worker:
    server_fini(&server);
    if (code == 0)
        base_log_info("stopped");
    return code;
}
