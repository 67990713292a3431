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
}

static void place_free(struct peer_place *place)
{
    peer_source_fini(&place->source);
    free(place->directory);
    free(place->name);
    free(place->own_name);
    free(place);
}

static struct peer_place *place_new(struct peer_models *models, const char *name, const char *directory,
                                    struct penstock_error *error)
{
    struct peer_place *place = calloc(1, sizeof *place);
    if (!place) {
        base_error_set(error, PENSTOCK_ENOMEM, "no memory");
        return NULL;
    }
    peer_source_init(&place->source, models->options.live);
    place->models = models;
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
    base_vec_for_each (place, &models->places)
        place_free(*place);
    base_vec_free(&models->places);
}

/* ---- letting go ---- */

static bool is_registered(const struct peer_place *place)
{
    return place->source.current && peer_registration_is_ready(&place->source.current->registration);
}

/* Lets go of on-demand places that nobody uses: those that could not be staged, and the oldest above keep or, of those
 * that are registered, keep_registered. Under the lock; their models are returned to be unref'd without it. */
static size_t let_go(struct peer_models *models, size_t keep, size_t keep_registered, struct peer_served **idle,
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
        bool unused =
            place->on_demand && place->users == 0 && (!place->source.current || place->source.current->refs == 1);
        bool above = on_demand > keep || (pinned && registered > keep_registered);
        if (unused && (!place->source.current || above) && n < max) {
            if (place->source.current)
                idle[n++] = place->source.current;
            place->source.current = NULL;
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
    struct peer_served *idle[64];
    pthread_mutex_lock(&models->options.live->lock);
    size_t n = let_go(models, 0, 0, idle, sizeof idle / sizeof *idle);
    pthread_mutex_unlock(&models->options.live->lock);
    for (size_t i = 0; i < n; i++)
        peer_served_unref(idle[i]);
    return n > 0;
}

/* ---- one place ---- */

static int stage(struct peer_source *source, struct peer_served **out, struct penstock_error *error)
{
    struct peer_place *place = base_list_entry(source, struct peer_place, source);
    struct peer_models *models = place->models;
    const struct peer_models_options *o = &models->options;
    struct peer_model *model;
    int code = peer_staged_new(place->directory, place->name, o, &model, error);
    /* A model that only an allowed path brought in, and that nobody uses, gives way. */
    if (code == PENSTOCK_ELIMIT && make_room(models))
        code = peer_staged_new(place->directory, place->name, o, &model, error);
    if (code == 0)
        *out = &model->served;
    return code;
}

/* A reference to what the place has now. The caller counts as a user of the place. */
static int place_model(struct peer_place *place, bool may_wait, struct peer_model **model, struct penstock_error *error)
{
    struct peer_served *served;
    int code = peer_source_get(&place->source, stage, may_wait, &served, error);
    if (code == 0)
        *model = peer_model_of(served);
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
    struct peer_served *idle[8];
    pthread_mutex_lock(&models->options.live->lock);
    place->users--;
    size_t n = place->on_demand ? let_go(models, ON_DEMAND_KEPT, REGISTERED_KEPT, idle, sizeof idle / sizeof *idle) : 0;
    pthread_mutex_unlock(&models->options.live->lock);
    for (size_t i = 0; i < n; i++)
        peer_served_unref(idle[i]);
}

/* Finds the request's place and enters it; fresh, where there is one, becomes it if there is none. Returns whether
 * fresh was taken. */
static bool find_or_add(struct peer_models *models, const char *request, struct peer_place *fresh,
                        struct peer_place **out)
{
    bool taken = false;
    pthread_mutex_lock(&models->options.live->lock);
    *out = find(models, request);
    if (!*out && fresh) { /* perhaps it is there already, and the request has ".." in it */
        *out = find(models, fresh->directory);
        taken = !*out && base_vec_push(&models->places, fresh);
        *out = taken ? fresh : *out;
    }
    if (*out)
        (*out)->users++;
    pthread_mutex_unlock(&models->options.live->lock);
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
    pthread_mutex_lock(&models->options.live->lock);
    base_vec_for_each (place, &models->places) {
        const char *id = id_of(*place);
        if ((*place)->on_demand || !(*place)->source.current)
            continue;
        const char *before = at ? ", " : "; staged are: ";
        if (at + strlen(before) + strlen(id) + sizeof ", ..." > size) {
            snprintf(out + at, size - at, "%s", at ? ", ..." : "");
            break;
        }
        at += (size_t)snprintf(out + at, size - at, "%s%s", before, id);
    }
    pthread_mutex_unlock(&models->options.live->lock);
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
    struct peer_place *fresh = place_new(models, NULL, request, &why);
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
    code = place_model(place, true, model, error);
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
    pthread_mutex_lock(&models->options.live->lock);
    struct peer_place *other = place->name ? named(models, place->name) : NULL;
    const struct peer_place *first = find(models, id_of(place));
    if (other)
        code = base_error_set(error, PENSTOCK_EINVAL, "two directories have the name %s: %s and %s", place->name,
                              other->directory, place->directory);
    else if (!base_vec_push(&models->places, place))
        code = base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    else
        place->users++;
    pthread_mutex_unlock(&models->options.live->lock);
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
    struct peer_place *place = place_new(models, name, directory, &why);
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
    code = place_model(place, true, &model, error);
    if (code == 0)
        peer_served_unref(&model->served);
    leave(models, place);
    return code;
}

/* ---- what there is ---- */

static void write_model(struct json_writer *w, const char *id, const struct peer_model *model)
{
    const struct model_manifest *m = &model->staged.manifest;
    json_write_object(w);
    json_write_key_text(w, "id", id);
    json_write_key_u64(w, "shards", m->shards.n);
    json_write_key_u64(w, "tensors", m->tensors.n);
    json_write_key_u64(w, "bytes", model->served.bytes);
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
        pthread_mutex_lock(&models->options.live->lock);
        struct peer_place *place = i < models->places.n ? models->places.at[i] : NULL;
        const char *id = NULL;
        if (place) {
            place->users++;
            /* What a request may say (protocol 2.5), and then gets this model and no other. */
            id = find(models, id_of(place)) == place ? id_of(place) : place->directory;
        }
        pthread_mutex_unlock(&models->options.live->lock);
        if (!place)
            break;
        struct peer_model *model;
        struct penstock_error why;
        int code = place_model(place, false, &model, &why);
        if (code == 0) {
            write_model(&w, id, model);
            peer_served_unref(&model->served);
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
