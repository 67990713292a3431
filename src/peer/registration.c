#include "registration.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "memory.h"
#include "served.h"

void peer_registration_init(struct peer_registration *r)
{
    *r = (struct peer_registration){ .state = PEER_REGISTRATION_NONE };
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->settled, NULL);
}

/* Regions before the memory that they cover. */
static void undo(struct peer_registration *r)
{
    peer_regions_fini(&r->regions);
    peer_hold_fini(&r->hold);
}

void peer_registration_fini(struct peer_registration *r)
{
    undo(r);
    pthread_cond_destroy(&r->settled);
    pthread_mutex_destroy(&r->lock);
}

/* ---- what is known beforehand ---- */

static int check(const struct peer_served *served, const struct rail_devices *rails, struct penstock_error *error)
{
    size_t n = served->n_regions;
    const char *unit = served->ops->unit;
    if (n > PENSTOCK_LAYERS_MAX)
        return base_error_set(error, PENSTOCK_ELIMIT, "it has %zu %ss, and RDMA clients can be told of %u at most", n,
                              unit, PENSTOCK_LAYERS_MAX);
    for (size_t i = 0; i < rails->n; i++)
        for (size_t s = 0; s < n; s++)
            if (served->files[s].len_bytes > rails->ports[i].mr_bytes_max)
                return base_error_set(error, PENSTOCK_ELIMIT,
                                      "%s has %" PRIu64 " bytes, and %s registers %" PRIu64
                                      " at most: cut it into smaller %ss",
                                      served->files[s].name, served->files[s].len_bytes, rails->ports[i].device,
                                      rails->ports[i].mr_bytes_max, unit);
    return 0;
}

/* ---- one way of holding it ---- */

struct attempt {
    struct peer_served *served;
    const struct peer_registrar *registrar;
    struct peer_registration *r;
};

static int register_all(struct attempt *a, struct penstock_error *error)
{
    struct peer_registration *r = a->r;
    int code = peer_regions_make(&r->regions, a->registrar->rails, r->hold.regions, r->hold.n, VERBS_REMOTE_READ,
                                 r->hold.how == PEER_HOLD_MAP, a->registrar->stop, error);
    return code ? code : peer_hold_seal(&r->hold, error);
}

/* *holding: it was the memory that could not be had. */
static int try(struct attempt *a, enum peer_hold_how how, bool *holding, struct penstock_error *error)
{
    struct peer_registration *r = a->r;
    atomic_store(&r->copied, how != PEER_HOLD_MAP);
    int code = peer_hold_make(&r->hold, a->served, how, a->registrar->ledger, a->registrar->stop, error);
    *holding = code != 0;
    if (code == 0)
        code = register_all(a, error);
    if (code) {
        undo(r);
        atomic_store(&r->copied, false);
    }
    return code;
}

/* ---- which way ---- */

#define REASON_MAX 600

/* The file's own pages where the kernel registers them: nothing is copied. Else huge pages, which the device translates
 * faster, where there are enough. */
static int choose(struct attempt *a, bool *holding, char reason[REASON_MAX], struct penstock_error *error)
{
    int code = try(a, PEER_HOLD_MAP, holding, error);
    if (code != PENSTOCK_EUNSUPPORTED) {
        snprintf(reason, REASON_MAX, "the kernel registers the files' own pages");
        return code;
    }
    struct penstock_error why = *error;
    uint64_t huge = peer_memory_huge(PEER_MEMORY_HUGE_PAGES), want = peer_hold_bytes(a->served, PEER_HUGE_PAGE_BYTES);
    bool enough = want <= huge;
    snprintf(reason, REASON_MAX, "%s free 2 MiB pages; the files' own pages cannot be registered: %s",
             enough ? "there are enough" : "there are not enough", why.message);
    if (enough) {
        code = try(a, PEER_HOLD_HUGE, holding, error);
        if (code == 0 || code == PENSTOCK_ECANCELED)
            return code;
        snprintf(reason, REASON_MAX, "2 MiB pages could not be used: %s", error->message);
    }
    return try(a, PEER_HOLD_COPY, holding, error);
}

static void log_made(const struct attempt *a, const char *reason, int64_t took_ns)
{
    const struct peer_registration *r = a->r;
    uint64_t bytes = 0;
    for (size_t i = 0; i < r->hold.n; i++)
        bytes += r->hold.regions[i].len_bytes;
    base_log_info("%s: registered %zu %s%s, %.2f GB, on %zu device%s in %.3f s, held by %s (%s)%s", a->served->id,
                  r->hold.n, a->served->ops->unit, r->hold.n == 1 ? "" : "s", (double)bytes / 1e9, r->regions.n_devices,
                  r->regions.n_devices == 1 ? "" : "s", (double)took_ns / 1e9, peer_hold_name(r->hold.how), reason,
                  atomic_load(&r->hold.through_cache)
                      ? "; read in through the page cache, since this file system has no O_DIRECT"
                      : "");
}

/* *final: it will be no better the next time. */
static int make(struct attempt *a, bool *final, struct penstock_error *error)
{
    int64_t began_ns = base_now_ns();
    enum peer_hold_how how = a->registrar->hold;
    char reason[REASON_MAX] = "";
    bool holding = false;
    int code = check(a->served, a->registrar->rails, error);
    if (code == 0 && how == PEER_HOLD_AUTO) {
        code = choose(a, &holding, reason, error);
    } else if (code == 0) {
        snprintf(reason, sizeof reason, "--hold %s", peer_hold_name(how));
        code = try(a, how, &holding, error);
    }
    *final = !holding && (code == PENSTOCK_ELIMIT || code == PENSTOCK_EUNSUPPORTED);
    if (code == 0)
        log_made(a, reason, base_now_ns() - began_ns);
    else if (code != PENSTOCK_ECANCELED)
        peer_complain(a->registrar->complaints, "%s: served over TCP only: %s", a->served->id, error->message);
    return code;
}

/* ---- once ---- */

/* 0: it is made; 1: the caller makes it. */
static int enter(struct peer_registration *r, struct penstock_error *error)
{
    int code = 1;
    pthread_mutex_lock(&r->lock);
    while (r->state == PEER_REGISTRATION_MAKING)
        pthread_cond_wait(&r->settled, &r->lock);
    if (r->state == PEER_REGISTRATION_READY)
        code = 0;
    else if (r->state == PEER_REGISTRATION_REFUSED)
        code = base_error_set(error, r->why.code, "%s", r->why.message);
    else
        r->state = PEER_REGISTRATION_MAKING;
    pthread_mutex_unlock(&r->lock);
    return code;
}

int peer_registration_want(struct peer_served *served, const struct peer_registrar *registrar,
                           struct penstock_error *error)
{
    struct peer_registration *r = &served->registration;
    struct attempt attempt = { served, registrar, r };
    struct penstock_error why = { 0 };
    bool final;
    int code = enter(r, error);
    if (code != 1)
        return code;
    code = make(&attempt, &final, &why);
    pthread_mutex_lock(&r->lock);
    r->state = code == 0 ? PEER_REGISTRATION_READY : final ? PEER_REGISTRATION_REFUSED : PEER_REGISTRATION_NONE;
    r->why = why;
    pthread_cond_broadcast(&r->settled);
    pthread_mutex_unlock(&r->lock);
    if (code && error)
        *error = why;
    return code;
}

bool peer_registration_is_ready(struct peer_registration *r)
{
    pthread_mutex_lock(&r->lock);
    bool ready = r->state == PEER_REGISTRATION_READY;
    pthread_mutex_unlock(&r->lock);
    return ready;
}
