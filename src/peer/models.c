#include "models.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "rail/listing.h"
#include "staged.h"
#include "json/write.h"

/* Models that only an allowed path brought in, and that nobody uses, beyond this many are let go. */
#define ON_DEMAND_KEPT 16
/* And of those that are registered, whose pages the kernel cannot take back: */
#define REGISTERED_KEPT 2

void peer_models_init(struct peer_models *models, const struct peer_models_options *options)
{
    *models = (struct peer_models){ .options = *options };
    pthread_mutex_init(&models->lock, NULL);
    base_list_init(&models->live);
}

static void place_free(struct peer_place *place)
{
    pthread_mutex_destroy(&place->staging);
    free(place->directory);
    free(place->name);
    free(place->own_name);
    free(place);
}

static struct peer_place *place_new(const char *name, const char *directory, struct penstock_error *error)
{
    struct peer_place *place = calloc(1, sizeof *place);
    if (!place) {
        base_error_set(error, PENSTOCK_ENOMEM, "no memory");
        return NULL;
    }
    pthread_mutex_init(&place->staging, NULL);
    place->directory = model_directory_absolute(directory);
    if (!place->directory) {
        int cause = errno;
        base_error_sys(error, cause, "stage %s", directory);
    } else {
        place->own_name = model_directory_name(place->directory);
        place->name = name ? strdup(name) : NULL;
        if (place->own_name && (!name || place->name))
            return place;
        base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    }
    place_free(place);
    return NULL;
}

void peer_models_fini(struct peer_models *models)
{
    base_vec_for_each (place, &models->places) {
        if ((*place)->current)
            peer_models_unref(models, (*place)->current);
        place_free(*place);
    }
    base_vec_free(&models->places);
    pthread_mutex_destroy(&models->lock);
}

void peer_models_ref(struct peer_models *models, struct peer_model *model)
{
    pthread_mutex_lock(&models->lock);
    model->refs++;
    pthread_mutex_unlock(&models->lock);
}

void peer_models_unref(struct peer_models *models, struct peer_model *model)
{
    pthread_mutex_lock(&models->lock);
    bool last = --model->refs == 0;
    if (last)
        base_list_remove(&model->node);
    pthread_mutex_unlock(&models->lock);
    if (last)
        peer_staged_free(model);
}

bool peer_models_unwanted(struct peer_models *models, const struct peer_model *model)
{
    if (atomic_load(&model->rewritten))
        return true;
    if (!atomic_load(&model->replaced))
        return false;
    pthread_mutex_lock(&models->lock);
    bool unwanted = model->refs == 1;
    pthread_mutex_unlock(&models->lock);
    return unwanted;
}

uint64_t peer_models_warmed(struct peer_models *models)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&models->lock);
    base_list_for_each (node, &models->live)
        bytes += atomic_load(&base_list_entry(node, struct peer_model, node)->warmed_bytes);
    pthread_mutex_unlock(&models->lock);
    return bytes;
}

/* ---- letting go ---- */

static bool is_registered(const struct peer_place *place)
{
    return place->current && peer_registration_is_ready(&place->current->registration);
}

/* Lets go of on-demand places that nobody uses: those that could not be staged, and the oldest above keep or, of those
 * that are registered, keep_registered. Under the lock; their models are returned to be unref'd without it. */
static size_t let_go(struct peer_models *models, size_t keep, size_t keep_registered, struct peer_model **idle,
                     size_t max)
{
    size_t on_demand = 0, registered = 0, n = 0, kept = 0;
    base_vec_for_each (place, &models->places) {
        on_demand += (*place)->on_demand;
        registered += (*place)->on_demand && is_registered(*place);
    }
    for (size_t i = 0; i < models->places.n; i++) {
        struct peer_place *place = models->places.at[i];
        bool pinned = is_registered(place);
        bool unused = place->on_demand && place->users == 0 && (!place->current || place->current->refs == 1);
        bool above = on_demand > keep || (pinned && registered > keep_registered);
        if (unused && (!place->current || above) && n < max) {
            if (place->current)
                idle[n++] = place->current;
            on_demand--;
            registered -= pinned;
            place_free(place);
        } else {
            models->places.at[kept++] = place;
        }
    }
    models->places.n = kept;
    return n;
}

/* Whether there was anything to let go of. */
static bool make_room(struct peer_models *models)
{
    struct peer_model *idle[64];
    pthread_mutex_lock(&models->lock);
    size_t n = let_go(models, 0, 0, idle, sizeof idle / sizeof *idle);
    pthread_mutex_unlock(&models->lock);
    for (size_t i = 0; i < n; i++)
        peer_models_unref(models, idle[i]);
    return n > 0;
}

/* ---- one place, under its staging lock ---- */

static void log_staged(const struct peer_model *model)
{
    const struct model_manifest *m = &model->staged.manifest;
    base_log_info("staged %s from %s: version %s, %zu shards, %zu tensors, %zu other files, %" PRIu64
                  " bytes, in %.3f s",
                  model->id, model->staged.directory, m->model_version ? m->model_version : "(none)", m->shards.n,
                  m->tensors.n, m->files.n, model->bytes, (double)model->staging_ns / 1e9);
}

/* Takes the place's model away from newcomers. */
static void retire(struct peer_models *models, struct peer_place *place, enum model_change change)
{
    struct peer_model *old = place->current;
    bool rewritten = change == MODEL_REWRITTEN;

    base_log_warning("the files of %s %s: it will be staged anew%s", old->id,
                     rewritten ? "were changed in place" : "were replaced",
                     rewritten ? ", and its connections are closed" : "; its connections go on with the old ones");
    atomic_store(&old->replaced, true);
    pthread_mutex_lock(&models->lock);
    place->current = NULL;
    pthread_mutex_unlock(&models->lock);
    if (rewritten && !atomic_exchange(&old->rewritten, true))
        models->options.rewritten(models->options.context, old);
    peer_models_unref(models, old);
}

static int stage(struct peer_models *models, struct peer_place *place, struct penstock_error *error)
{
    int64_t began_ns = base_now_ns();
    struct peer_model *model;
    int code =
        peer_staged_new(place->directory, place->name, &models->options.stage, models->options.ledger, &model, error);
    /* A model that only an allowed path brought in, and that nobody uses, gives way. */
    if (code == PENSTOCK_ELIMIT && make_room(models))
        code = peer_staged_new(place->directory, place->name, &models->options.stage, models->options.ledger, &model,
                               error);
    if (code)
        return code;
    model->staging_ns = base_now_ns() - began_ns;
    pthread_mutex_lock(&models->lock);
    place->current = model;
    base_list_append(&models->live, &model->node);
    bool announced = models->announced;
    pthread_mutex_unlock(&models->lock);
    if (announced)
        log_staged(model);
    models->options.staged(models->options.context, model);
    return 0;
}

/* Brings the place up to date with its files. */
static int refresh(struct peer_models *models, struct peer_place *place, struct penstock_error *error)
{
    if (place->current) {
        enum model_change change = model_staged_changed(&place->current->staged, &models->options.stage);
        if (change == MODEL_SAME)
            return 0;
        retire(models, place, change);
    }
    return stage(models, place, error);
}

/* What the place had last, while another thread is staging there. */
static int last_model(struct peer_models *models, const struct peer_place *place, struct peer_model **model,
                      struct penstock_error *error)
{
    pthread_mutex_lock(&models->lock);
    *model = place->current;
    if (*model)
        (*model)->refs++;
    pthread_mutex_unlock(&models->lock);
    return *model ? 0 : base_error_set(error, PENSTOCK_ENOTFOUND, "%s is still being staged", place->directory);
}

/* A reference to what the place has now. The caller counts as a user of the place. */
static int place_model(struct peer_models *models, struct peer_place *place, bool may_wait, struct peer_model **model,
                       struct penstock_error *error)
{
    if (may_wait)
        pthread_mutex_lock(&place->staging);
    else if (pthread_mutex_trylock(&place->staging) != 0)
        return last_model(models, place, model, error);
    int code = refresh(models, place, error);
    if (code == 0) {
        *model = place->current;
        peer_models_ref(models, *model);
    }
    pthread_mutex_unlock(&place->staging);
    return code;
}

/* ---- the table ---- */

static bool request_names(const char *request, const struct peer_place *place)
{
    if (place->name && strcmp(request, place->name) == 0)
        return true;
    if (!place->name && strcmp(request, place->own_name) == 0)
        return true;
    return model_request_names(request, place->directory);
}

static struct peer_place *find(struct peer_models *models, const char *request)
{
    base_vec_for_each (place, &models->places) {
        if (request_names(request, *place))
            return *place;
    }
    return NULL;
}

static void leave(struct peer_models *models, struct peer_place *place)
{
    struct peer_model *idle[8];
    pthread_mutex_lock(&models->lock);
    place->users--;
    size_t n = place->on_demand ? let_go(models, ON_DEMAND_KEPT, REGISTERED_KEPT, idle, sizeof idle / sizeof *idle) : 0;
    pthread_mutex_unlock(&models->lock);
    for (size_t i = 0; i < n; i++)
        peer_models_unref(models, idle[i]);
}

/* Finds the request's place and enters it; fresh, where there is one, becomes it if there is none. Returns whether
 * fresh was taken. */
static bool find_or_add(struct peer_models *models, const char *request, struct peer_place *fresh,
                        struct peer_place **out)
{
    bool taken = false;
    pthread_mutex_lock(&models->lock);
    *out = find(models, request);
    if (!*out && fresh) { /* perhaps it is there already, and the request has ".." in it */
        *out = find(models, fresh->directory);
        taken = !*out && base_vec_push(&models->places, fresh);
        *out = taken ? fresh : *out;
    }
    if (*out)
        (*out)->users++;
    pthread_mutex_unlock(&models->lock);
    return taken;
}

static const char *id_of(const struct peer_place *place)
{
    return place->name ? place->name : place->own_name;
}

/* "; staged are: a, b", as much as fits, of what the operator chose. */
static void list_staged(struct peer_models *models, char *out, size_t size)
{
    size_t at = 0;
    out[0] = 0;
    pthread_mutex_lock(&models->lock);
    base_vec_for_each (place, &models->places) {
        const char *id = id_of(*place);
        if ((*place)->on_demand || !(*place)->current)
            continue;
        const char *before = at ? ", " : "; staged are: ";
        if (at + strlen(before) + strlen(id) + sizeof ", ..." > size) {
            snprintf(out + at, size - at, "%s", at ? ", ..." : "");
            break;
        }
        at += (size_t)snprintf(out + at, size - at, "%s%s", before, id);
    }
    pthread_mutex_unlock(&models->lock);
}

/* With allow_any_path an absolute path gets a place. It is made without the lock: ".." asks the file system. */
static int enter(struct peer_models *models, const char *request, struct peer_place **out, struct penstock_error *error)
{
    (void)find_or_add(models, request, NULL, out);
    if (*out)
        return 0;
    if (!models->options.allow_any_path || request[0] != '/') {
        bool path = request[0] == '/' || request[0] == '.';
        char staged[200];
        list_staged(models, staged, sizeof staged);
        return base_error_set(error, PENSTOCK_ENOTFOUND, "model %.200s is not staged here: %s%s", request,
                              path ? "stage it with --weights, or allow any path with --allow-any-path"
                                   : "stage its directory with --weights",
                              staged);
    }
    struct penstock_error why = { 0 };
    struct peer_place *fresh = place_new(NULL, request, &why);
    if (!fresh) {
        *error = why;
        return why.code;
    }
    fresh->on_demand = true;
    if (!find_or_add(models, request, fresh, out))
        place_free(fresh);
    return *out ? 0 : base_error_set(error, PENSTOCK_ENOMEM, "no memory");
}

int peer_models_get(struct peer_models *models, const char *request, struct peer_model **model,
                    struct penstock_error *error)
{
    struct peer_place *place;
    int code = enter(models, request, &place, error);
    if (code)
        return code;
    code = place_model(models, place, true, model, error);
    leave(models, place);
    return code;
}

static struct peer_place *named(struct peer_models *models, const char *name)
{
    base_vec_for_each (place, &models->places)
        if ((*place)->name && strcmp((*place)->name, name) == 0)
            return *place;
    return NULL;
}

/* Takes a new place in, and enters it. */
static int add_place(struct peer_models *models, struct peer_place *place, struct penstock_error *error)
{
    int code = 0;
    pthread_mutex_lock(&models->lock);
    struct peer_place *other = place->name ? named(models, place->name) : NULL;
    const struct peer_place *first = find(models, id_of(place));
    if (other)
        code = base_error_set(error, PENSTOCK_EINVAL, "two directories have the name %s: %s and %s", place->name,
                              other->directory, place->directory);
    else if (!base_vec_push(&models->places, place))
        code = base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    else
        place->users++;
    pthread_mutex_unlock(&models->lock);
    if (code == 0 && first)
        base_log_warning(
            "%s is the name of %s as well, which comes first: clients reach %s by its path; give it a name "
            "of its own with NAME=DIR",
            id_of(place), first->directory, place->directory);
    return code;
}

int peer_models_add(struct peer_models *models, const char *name, const char *directory, struct penstock_error *error)
{
    struct penstock_error why = { 0 };
    struct peer_place *place = place_new(name, directory, &why);
    if (!place) {
        *error = why;
        return why.code;
    }
    int code = add_place(models, place, error);
    if (code) {
        place_free(place);
        return code;
    }
    struct peer_model *model;
    code = place_model(models, place, true, &model, error);
    if (code == 0)
        peer_models_unref(models, model);
    leave(models, place);
    return code;
}

/* ---- what there is ---- */

void peer_models_announce(struct peer_models *models)
{
    pthread_mutex_lock(&models->lock);
    models->announced = true;
    base_vec_for_each (place, &models->places) {
        if ((*place)->current)
            log_staged((*place)->current);
    }
    pthread_mutex_unlock(&models->lock);
}

static void write_model(struct json_writer *w, const char *id, const struct peer_model *model)
{
    const struct model_manifest *m = &model->staged.manifest;
    json_write_object(w);
    json_write_key_text(w, "id", id);
    json_write_key_u64(w, "shards", m->shards.n);
    json_write_key_u64(w, "tensors", m->tensors.n);
    json_write_key_u64(w, "bytes", model->bytes);
    json_write_key_u64(w, "files", m->files.n);
    json_write_key_text(w, "model_version", m->model_version ? m->model_version : "");
    json_write_object_end(w);
}

int peer_models_list(struct peer_models *models, const struct rail_devices *rails, struct base_buf *json,
                     struct penstock_error *error)
{
    struct json_writer w = { .buf = json };
    json_write_object(&w);
    json_write_key_u64(&w, "version", 1);
    json_write_key(&w, "models");
    json_write_array(&w);
    /* Only on-demand places go, and they come after the operator's: of those none is missed. */
    for (size_t i = 0;; i++) {
        pthread_mutex_lock(&models->lock);
        struct peer_place *place = i < models->places.n ? models->places.at[i] : NULL;
        const char *id = NULL;
        if (place) {
            place->users++;
            /* What a request may say (protocol 2.5), and then gets this model and no other. */
            id = find(models, id_of(place)) == place ? id_of(place) : place->directory;
        }
        pthread_mutex_unlock(&models->lock);
        if (!place)
            break;
        struct peer_model *model;
        struct penstock_error why;
        int code = place_model(models, place, false, &model, &why);
        if (code == 0) {
            write_model(&w, id, model);
            peer_models_unref(models, model);
        } else {
            base_log_debug("not listed: %s", why.message);
        }
        leave(models, place);
    }
    json_write_array_end(&w);
    json_write_key(&w, "rails");
    rail_listing_write(&w, rails);
    json_write_object_end(&w);
    return json->failed ? base_error_set(error, PENSTOCK_ENOMEM, "no memory for the list of models") : 0;
}

struct peer_model *peer_models_next(struct peer_models *models, struct peer_model *model)
{
    struct peer_model *next = NULL;
    pthread_mutex_lock(&models->lock);
    struct base_list *node = model ? model->node.next : models->live.next;
    if (node != &models->live) {
        next = base_list_entry(node, struct peer_model, node);
        next->refs++;
    }
    pthread_mutex_unlock(&models->lock);
    if (model)
        peer_models_unref(models, model);
    return next;
}

void peer_models_watch(struct peer_models *models)
{
    for (struct peer_model *model = peer_models_next(models, NULL); model; model = peer_models_next(models, model)) {
        if (atomic_load(&model->rewritten))
            continue;
        /* What was replaced stays with those who have it; the place finds out when somebody asks. */
        if (model_staged_changed(&model->staged, &models->options.stage) == MODEL_REWRITTEN &&
            !atomic_exchange(&model->rewritten, true)) {
            base_log_warning("the files of %s were changed in place: its connections are closed", model->id);
            models->options.rewritten(models->options.context, model);
        }
    }
}
