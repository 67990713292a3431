#include "served.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

static struct peer_served *served_at(struct base_list *node)
{
    return base_list_entry(node, struct peer_served, node);
}

/* ---- all that is live ---- */

void peer_live_init(struct peer_live *live, void (*staged)(void *context, struct peer_served *served),
                    void (*rewritten)(void *context, struct peer_served *served), void *context)
{
    *live = (struct peer_live){ .staged = staged, .rewritten = rewritten, .context = context };
    pthread_mutex_init(&live->lock, NULL);
    base_list_init(&live->list);
}

void peer_live_fini(struct peer_live *live)
{
    pthread_mutex_destroy(&live->lock);
}

void peer_live_announce(struct peer_live *live)
{
    pthread_mutex_lock(&live->lock);
    live->announced = true;
    base_list_for_each (node, &live->list) {
        const struct peer_served *served = served_at(node);
        served->ops->log_staged(served);
    }
    pthread_mutex_unlock(&live->lock);
}

uint64_t peer_live_warmed(struct peer_live *live)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&live->lock);
    base_list_for_each (node, &live->list)
        bytes += atomic_load(&served_at(node)->warmed_bytes);
    pthread_mutex_unlock(&live->lock);
    return bytes;
}

struct peer_served *peer_live_next(struct peer_live *live, struct peer_served *served)
{
    struct peer_served *next = NULL;
    pthread_mutex_lock(&live->lock);
    struct base_list *node = served ? served->node.next : live->list.next;
    if (node != &live->list) {
        next = served_at(node);
        next->refs++;
    }
    pthread_mutex_unlock(&live->lock);
    if (served)
        peer_served_unref(served);
    return next;
}

static void tell_rewritten(struct peer_served *served)
{
    if (served->live->rewritten)
        served->live->rewritten(served->live->context, served);
}

void peer_live_watch(struct peer_live *live)
{
    for (struct peer_served *served = peer_live_next(live, NULL); served; served = peer_live_next(live, served)) {
        if (atomic_load(&served->rewritten))
            continue;
        /* What was replaced stays with those who have it; the source finds out when somebody asks. */
        if (served->ops->changed(served) == MODEL_REWRITTEN && !atomic_exchange(&served->rewritten, true)) {
            base_log_warning("the files of %s were changed in place: its connections are closed", served->id);
            tell_rewritten(served);
        }
    }
}

/* ---- one version ---- */

void peer_served_init(struct peer_served *served, const struct peer_served_ops *ops, struct peer_live *live)
{
    *served = (struct peer_served){ .ops = ops, .live = live, .refs = 1 };
    base_list_init(&served->node);
    peer_registration_init(&served->registration);
}

static int map_file(struct peer_file *file, const struct model_opened *opened, const char *name,
                    struct penstock_error *error)
{
    *file = (struct peer_file){
        .fd = opened->fd, .len_bytes = opened->identity.len_bytes, .identity = opened->identity, .name = name
    };
    if (file->len_bytes == 0)
        return 0;
    void *at = mmap(NULL, file->len_bytes, PROT_READ, MAP_SHARED, file->fd, 0);
    if (at == MAP_FAILED)
        return base_error_sys(error, errno, "map %s", name);
    file->mapping = at;
    return 0;
}

int peer_served_map(struct peer_served *served, const struct model_opened *opened, const char *const *names, size_t n,
                    struct residency_ledger *ledger, struct penstock_error *error)
{
    for (size_t i = 0; i < n; i++)
        served->bytes += opened[i].identity.len_bytes;
    int code = residency_reserve(ledger, &served->reservation, served->bytes, served->id, error);
    if (code)
        return code;
    served->files = calloc(n ? n : 1, sizeof *served->files);
    if (!served->files)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu files", n);
    for (size_t i = 0; i < n; i++) {
        code = map_file(&served->files[i], &opened[i], names[i], error);
        if (code)
            return code;
        served->n_files = i + 1;
    }
    return 0;
}

void peer_served_fini(struct peer_served *served)
{
    peer_registration_fini(&served->registration); /* first: devices reach into the mappings */
    for (size_t i = 0; i < served->n_files; i++)
        if (served->files[i].mapping)
            munmap((void *)(uintptr_t)served->files[i].mapping, served->files[i].len_bytes);
    free(served->files);
    residency_release(&served->reservation);
    base_buf_fini(&served->reply);
    free(served->id);
}

void peer_served_ref(struct peer_served *served)
{
    pthread_mutex_lock(&served->live->lock);
    served->refs++;
    pthread_mutex_unlock(&served->live->lock);
}

void peer_served_unref(struct peer_served *served)
{
    struct peer_live *live = served->live;
    pthread_mutex_lock(&live->lock);
    bool last = --served->refs == 0;
    if (last)
        base_list_remove(&served->node);
    pthread_mutex_unlock(&live->lock);
    if (last)
        served->ops->free(served);
}

bool peer_served_unwanted(struct peer_served *served)
{
    if (atomic_load(&served->rewritten))
        return true;
    if (!atomic_load(&served->replaced))
        return false;
    pthread_mutex_lock(&served->live->lock);
    bool unwanted = served->refs == 1;
    pthread_mutex_unlock(&served->live->lock);
    return unwanted;
}

/* ---- one source, under its staging lock ---- */

void peer_source_init(struct peer_source *source, struct peer_live *live)
{
    *source = (struct peer_source){ .live = live };
    pthread_mutex_init(&source->staging, NULL);
}

void peer_source_fini(struct peer_source *source)
{
    if (source->current)
        peer_served_unref(source->current);
    pthread_mutex_destroy(&source->staging);
}

/* Takes what the source had away from newcomers. */
static void retire(struct peer_source *source, enum model_change change)
{
    struct peer_served *old = source->current;
    bool rewritten = change == MODEL_REWRITTEN;

    base_log_warning("the files of %s %s: it will be staged anew%s", old->id,
                     rewritten ? "were changed in place" : "were replaced",
                     rewritten ? ", and its connections are closed" : "; its connections go on with the old ones");
    atomic_store(&old->replaced, true);
    pthread_mutex_lock(&source->live->lock);
    source->current = NULL;
    pthread_mutex_unlock(&source->live->lock);
    if (rewritten && !atomic_exchange(&old->rewritten, true))
        tell_rewritten(old);
    peer_served_unref(old);
}

/* Brings the source up to date with its files. */
static int refresh(struct peer_source *source, peer_stage_fn *stage, struct penstock_error *error)
{
    struct peer_live *live = source->live;
    if (source->current) {
        enum model_change change = source->current->ops->changed(source->current);
        if (change == MODEL_SAME)
            return 0;
        retire(source, change);
    }
    int64_t began_ns = base_now_ns();
    struct peer_served *served;
    int code = stage(source, &served, error);
    if (code)
        return code;
    served->staging_ns = base_now_ns() - began_ns;
    pthread_mutex_lock(&live->lock);
    source->current = served;
    base_list_append(&live->list, &served->node);
    bool announced = live->announced;
    pthread_mutex_unlock(&live->lock);
    if (announced)
        served->ops->log_staged(served);
    if (live->staged)
        live->staged(live->context, served);
    return 0;
}

/* What the source had last, while another thread is staging there. */
static int last(struct peer_source *source, struct peer_served **out, struct penstock_error *error)
{
    pthread_mutex_lock(&source->live->lock);
    *out = source->current;
    if (*out)
        (*out)->refs++;
    pthread_mutex_unlock(&source->live->lock);
    return *out ? 0 : base_error_set(error, PENSTOCK_ENOTFOUND, "it is still being staged");
}

int peer_source_get(struct peer_source *source, peer_stage_fn *stage, bool may_wait, struct peer_served **out,
                    struct penstock_error *error)
{
    if (may_wait)
        pthread_mutex_lock(&source->staging);
    else if (pthread_mutex_trylock(&source->staging) != 0)
        return last(source, out, error);
    int code = refresh(source, stage, error);
    if (code == 0) {
        *out = source->current;
        peer_served_ref(*out);
    }
    pthread_mutex_unlock(&source->staging);
    return code;
}
