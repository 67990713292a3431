#include "model_dir.h"

#include "base/log.h"
#include "peer/models.h"

/* What the table told. */
struct told {
    _Atomic unsigned staged, rewritten;
};

struct fixture {
    char base[64], a[256], b[256];
    struct told told;
    struct residency_ledger ledger;
    struct peer_live live;
    struct peer_models models;
};

static void on_staged(void *context, struct peer_served *served)
{
    (void)served;
    ((struct told *)context)->staged++;
}

static void on_rewritten(void *context, struct peer_served *served)
{
    (void)served;
    ((struct told *)context)->rewritten++;
}

static void start_below(struct fixture *f, bool allow_any_path, uint64_t ceiling)
{
    residency_ledger_init(&f->ledger, ceiling);
    peer_live_init(&f->live, on_staged, on_rewritten, &f->told);
    peer_models_init(&f->models, &(struct peer_models_options){
                                     .allow_any_path = allow_any_path, .ledger = &f->ledger, .live = &f->live });
}

static void start(struct fixture *f, bool allow_any_path)
{
    start_below(f, allow_any_path, 0);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    base_log_init(BASE_LOG_ERROR, false);
    strcpy(f->base, "/tmp/penstock-models-XXXXXX");
    assert_non_null(mkdtemp(f->base));
    model_dir_make(f->base, "a", 5000, 'a', f->a);
    model_dir_make(f->base, "b", 7000, 'b', f->b);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    peer_models_fini(&f->models);
    peer_live_fini(&f->live);
    assert_int_equal(residency_used(&f->ledger), 0);
    residency_ledger_fini(&f->ledger);
    model_dir_remove(f->base);
    free(f);
    return 0;
}

static struct peer_model *get(struct fixture *f, const char *request)
{
    struct peer_model *model;
    struct penstock_error error;
    return peer_models_get(&f->models, request, &model, &error) ? NULL : model;
}

static void add(struct fixture *f, const char *name, const char *directory)
{
    struct penstock_error error;
    assert_int_equal(peer_models_add(&f->models, name, directory, &error), 0);
}

/* The last byte of the model's shard, as its own open file has it. */
static int last_byte(const struct peer_model *model)
{
    uint8_t byte;
    assert_int_equal(pread(model->served.files[0].fd, &byte, 1, (off_t)model->served.files[0].len_bytes - 1), 1);
    return byte;
}

static void a_model_is_found_by_path_by_final_component_and_by_name(void **state)
{
    struct fixture *f = *state;
    char slashes[300];
    start(f, false);
    add(f, "org/one", f->a);
    add(f, NULL, f->b);
    snprintf(slashes, sizeof slashes, "%s//", f->a);
    const char *const requests[] = { f->a, slashes, "a", "org/one" };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct peer_model *model = get(f, requests[i]);
        assert_non_null(model);
        assert_string_equal(model->served.id, "org/one");
        assert_int_equal(last_byte(model), 'a');
        peer_served_unref(&model->served);
    }
    struct peer_model *model = get(f, "b");
    assert_non_null(model);
    assert_string_equal(model->served.id, "b");
    peer_served_unref(&model->served);
    assert_int_equal(f->told.staged, 2);
}

static void the_first_that_matches_is_taken(void **state)
{
    struct fixture *f = *state;
    start(f, false);
    add(f, NULL, f->b);
    add(f, "b", f->a);
    struct peer_model *model = get(f, "b");
    assert_non_null(model);
    assert_int_equal(last_byte(model), 'b');
    peer_served_unref(&model->served);
}

static void a_relative_directory_is_found_by_its_whole_path(void **state)
{
    struct fixture *f = *state;
    char before[512], up[512];
    start(f, false);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(f->base), 0);
    add(f, NULL, "./a");
    snprintf(up, sizeof up, "%s/b/../b", f->base);
    add(f, NULL, up);
    assert_int_equal(chdir(before), 0);
    const char *const requests[] = { f->a, "a", f->b, "b" };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct peer_model *model = get(f, requests[i]);
        assert_non_null(model);
        peer_served_unref(&model->served);
    }
}

/* While it is staged anew, or cannot be, a place has no model: its name is still its name. */
static void a_cache_directory_keeps_its_name_while_it_has_no_model(void **state)
{
    struct fixture *f = *state;
    struct peer_model *model;
    struct penstock_error error;
    char path[512];
    start(f, false);
    const char *const parts[] = { "models--org--m", "models--org--m/snapshots" };
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", f->base, parts[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    char dir[256];
    model_dir_make(path, "rev", 100, 'r', dir);
    add(f, NULL, dir);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(unlink(path), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_not_equal(peer_models_get(&f->models, "org/m", &model, &error), 0);
        assert_non_null(strstr(error.message, "no weights here"));
    }
    model_dir_write(dir, "model.safetensors", 100, 's');
    model = get(f, "org/m");
    assert_non_null(model);
    peer_served_unref(&model->served);
}

static void a_model_whose_name_is_taken_is_listed_by_its_path(void **state)
{
    struct fixture *f = *state;
    struct base_buf json = { 0 };
    struct penstock_error error;
    char want[300];
    start(f, false);
    add(f, "b", f->a);
    add(f, NULL, f->b);
    assert_int_equal(peer_models_list(&f->models, NULL, &json, &error), 0);
    base_buf_append(&json, "", 1);
    snprintf(want, sizeof want, "\"id\":\"%s\"", f->b);
    assert_non_null(strstr((const char *)json.at, "\"id\":\"b\""));
    assert_non_null(strstr((const char *)json.at, want));
    base_buf_fini(&json);
}

static void a_name_is_given_once(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    start(f, false);
    add(f, "one", f->a);
    assert_int_equal(peer_models_add(&f->models, "one", f->b, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, f->b));
}

static void what_is_not_staged_is_refused_with_advice(void **state)
{
    struct fixture *f = *state;
    struct peer_model *model;
    struct penstock_error error;
    start(f, false);
    add(f, NULL, f->a);
    assert_int_equal(peer_models_get(&f->models, "zzz", &model, &error), PENSTOCK_ENOTFOUND);
    assert_non_null(strstr(error.message, "--weights"));
    assert_int_equal(peer_models_get(&f->models, f->b, &model, &error), PENSTOCK_ENOTFOUND);
    assert_non_null(strstr(error.message, "--allow-any-path"));
}

static void a_directory_without_a_model_is_named(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    start(f, false);
    assert_true(peer_models_add(&f->models, NULL, f->base, &error) < 0);
    assert_non_null(strstr(error.message, f->base));
}

static void any_path_is_staged_where_that_is_allowed(void **state)
{
    struct fixture *f = *state;
    start(f, true);
    struct peer_model *model = get(f, f->b);
    assert_non_null(model);
    assert_int_equal(last_byte(model), 'b');
    peer_served_unref(&model->served);
    assert_null(get(f, f->base));
    assert_int_equal(f->models.places.n, 1); /* what could not be staged leaves nothing behind */
}

static void models_on_demand_are_let_go_when_there_are_many(void **state)
{
    struct fixture *f = *state;
    start(f, true);
    struct peer_model *used = get(f, f->a);
    for (int i = 0; i < 40; i++) {
        char name[16], dir[256];
        snprintf(name, sizeof name, "m%d", i);
        model_dir_make(f->base, name, 100, i, dir);
        struct peer_model *model = get(f, dir);
        assert_non_null(model);
        peer_served_unref(&model->served);
    }
    assert_true(f->models.places.n < 20);
    struct peer_model *again = get(f, f->a);
    assert_ptr_equal(again, used);
    peer_served_unref(&again->served);
    peer_served_unref(&used->served);
}

static void replaced_files_are_staged_anew_and_the_old_ones_stay_readable(void **state)
{
    struct fixture *f = *state;
    start(f, false);
    add(f, NULL, f->a);
    struct peer_model *old = get(f, "a");
    model_dir_replace(f->a, 5000, 'z');
    peer_live_watch(&f->live);
    struct peer_model *new = get(f, "a");
    assert_non_null(new);
    assert_ptr_not_equal(new, old);
    assert_string_not_equal(new->staged.manifest.model_version, old->staged.manifest.model_version);
    assert_int_equal(last_byte(old), 'a');
    assert_int_equal(last_byte(new), 'z');
    assert_int_equal(f->told.rewritten, 0);
    /* The old one is still looked at. */
    peer_live_watch(&f->live);
    assert_int_equal(f->told.rewritten, 0);
    assert_false(peer_served_unwanted(&new->served));
    assert_true(peer_served_unwanted(&old->served));
    peer_served_unref(&old->served);
    peer_served_unref(&new->served);
}

static void files_written_in_place_end_their_connections_once(void **state)
{
    struct fixture *f = *state;
    start(f, false);
    add(f, NULL, f->a);
    struct peer_model *old = get(f, "a");
    model_dir_write(f->a, "model.safetensors", 6000, 'y');
    peer_live_watch(&f->live);
    peer_live_watch(&f->live);
    assert_int_equal(f->told.rewritten, 1);
    struct peer_model *new = get(f, "a");
    assert_non_null(new);
    assert_int_equal(f->told.rewritten, 1);
    assert_int_equal(last_byte(new), 'y');
    assert_true(peer_served_unwanted(&old->served));
    peer_served_unref(&old->served);
    peer_served_unref(&new->served);
}

static void a_change_is_seen_by_whoever_asks_without_a_watch(void **state)
{
    struct fixture *f = *state;
    start(f, false);
    add(f, NULL, f->a);
    struct peer_model *old = get(f, "a");
    model_dir_write(f->a, "model.safetensors", 6000, 'y');
    struct peer_model *new = get(f, "a");
    assert_ptr_not_equal(new, old);
    assert_int_equal(f->told.rewritten, 1);
    peer_served_unref(&old->served);
    peer_served_unref(&new->served);
}

static void the_list_says_what_there_is(void **state)
{
    struct fixture *f = *state;
    struct base_buf json = { 0 };
    struct penstock_error error;
    start(f, false);
    add(f, "org/one", f->a);
    add(f, NULL, f->b);
    assert_int_equal(peer_models_list(&f->models, NULL, &json, &error), 0);
    base_buf_append(&json, "", 1);
    const char *text = (const char *)json.at;
    assert_ptr_equal(strstr(text, "{\"version\":1,\"models\":[{\"id\":\"org/one\",\"shards\":1,\"tensors\":1,"), text);
    assert_non_null(strstr(text, "\"id\":\"b\""));
    assert_non_null(strstr(text, "],\"rails\":[]}"));
    base_buf_fini(&json);
}

/* ---- below a ceiling ---- */

static uint64_t bytes_of(struct fixture *f, const char *request)
{
    struct peer_model *model = get(f, request);
    assert_non_null(model);
    uint64_t bytes = model->served.bytes;
    peer_served_unref(&model->served);
    return bytes;
}

static void a_model_is_charged_from_staging_until_it_is_freed(void **state)
{
    struct fixture *f = *state;
    start(f, false);
    add(f, NULL, f->a);
    uint64_t old_bytes = bytes_of(f, "a");
    assert_int_equal(residency_used(&f->ledger), old_bytes);
    struct peer_model *old = get(f, "a");
    model_dir_replace(f->a, 9000, 'z');
    uint64_t new_bytes = bytes_of(f, "a");
    /* The retired one still has a user. */
    assert_int_equal(residency_used(&f->ledger), old_bytes + new_bytes);
    peer_served_unref(&old->served);
    assert_int_equal(residency_used(&f->ledger), new_bytes);
}

static void a_model_above_the_ceiling_is_refused_in_words_and_the_others_stay(void **state)
{
    struct fixture *f = *state;
    struct peer_model *model;
    struct penstock_error error;
    start_below(f, true, 10000);
    add(f, "one", f->a);
    assert_int_equal(peer_models_get(&f->models, f->b, &model, &error), PENSTOCK_ELIMIT);
    assert_non_null(strstr(error.message, f->b));
    assert_non_null(strstr(error.message, "--max-memory"));
    assert_non_null(strstr(error.message, "one 4.9"));
    assert_int_equal(residency_used(&f->ledger), bytes_of(f, "one"));
    assert_int_equal(peer_models_add(&f->models, NULL, f->b, &error), PENSTOCK_ELIMIT);
}

static void a_model_that_cannot_be_staged_costs_nothing(void **state)
{
    struct fixture *f = *state;
    struct penstock_error error;
    start_below(f, false, 100000);
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", f->a);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_not_equal(peer_models_add(&f->models, NULL, f->a, &error), 0);
    assert_int_equal(residency_used(&f->ledger), 0);
}

static void an_idle_model_on_demand_gives_way_to_another_and_a_used_one_does_not(void **state)
{
    struct fixture *f = *state;
    start_below(f, true, 10000);
    struct peer_model *a = get(f, f->a);
    assert_non_null(a);
    assert_null(get(f, f->b));
    peer_served_unref(&a->served);
    struct peer_model *b = get(f, f->b);
    assert_non_null(b);
    assert_int_equal(residency_used(&f->ledger), b->served.bytes);
    peer_served_unref(&b->served);
}

/* ---- from several threads ---- */

static void *ask_often(void *argument)
{
    struct fixture *f = argument;
    for (int i = 0; i < 50; i++) {
        struct peer_model *model = get(f, i % 2 ? "a" : "b");
        if (!model)
            return f;
        peer_served_unref(&model->served);
    }
    return NULL;
}

static void threads_that_ask_at_once_stage_once(void **state)
{
    struct fixture *f = *state;
    pthread_t threads[4];
    start(f, false);
    add(f, NULL, f->a);
    add(f, NULL, f->b);
    model_dir_replace(f->a, 300, 'q');
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, f), 0);
    peer_live_watch(&f->live);
    for (size_t i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_int_equal(f->told.staged, 3);
}

#define with_models(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_models(a_model_is_found_by_path_by_final_component_and_by_name),
        with_models(the_first_that_matches_is_taken),
        with_models(a_relative_directory_is_found_by_its_whole_path),
        with_models(a_cache_directory_keeps_its_name_while_it_has_no_model),
        with_models(a_model_whose_name_is_taken_is_listed_by_its_path),
        with_models(a_name_is_given_once),
        with_models(what_is_not_staged_is_refused_with_advice),
        with_models(a_directory_without_a_model_is_named),
        with_models(any_path_is_staged_where_that_is_allowed),
        with_models(models_on_demand_are_let_go_when_there_are_many),
        with_models(replaced_files_are_staged_anew_and_the_old_ones_stay_readable),
        with_models(files_written_in_place_end_their_connections_once),
        with_models(a_change_is_seen_by_whoever_asks_without_a_watch),
        with_models(the_list_says_what_there_is),
        with_models(a_model_is_charged_from_staging_until_it_is_freed),
        with_models(a_model_above_the_ceiling_is_refused_in_words_and_the_others_stay),
        with_models(a_model_that_cannot_be_staged_costs_nothing),
        with_models(an_idle_model_on_demand_gives_way_to_another_and_a_used_one_does_not),
        with_models(threads_that_ask_at_once_stage_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
