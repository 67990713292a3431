#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arguments.h"
#include "base/checked.h"
#include "base/error.h"
#include "cmd.h"
#include "inspect.h"
#include "model/safetensors.h"
#include "model/stage.h"
#include "text.h"
#include "json/write.h"

/* A tensor's layer: its name up to and with the first component that is all digits, "model.layers.17"; and the number
 * behind ".experts.", where there is one. Slices of the name. */
struct place {
    const struct penstock_tensor *tensor;
    bool inside;       /* of a layer */
    size_t prefix_len; /* without the number */
    uint64_t layer;
    int64_t expert; /* -1: of none */
};

/* One row of a table: tensors that have something in common. */
struct row {
    const char *name;
    size_t name_len;
    uint64_t layer, tensors, bytes, experts;
};

typedef BASE_VEC(struct row) rows_vec;

struct weights {
    const char *path;
    const struct model_manifest *manifest;
    rows_vec shards, dtypes, layers;
    struct row outside;
    uint64_t bytes;
};

/* ---- counting ---- */

/* Whether a number is the whole component that begins at at. */
static bool number_at(const char *at, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)*at))
        return false;
    errno = 0;
    *out = strtoull(at, &end, 10);
    return (*end == '.' || *end == 0) && errno == 0;
}

static struct place place_of(const struct penstock_tensor *tensor)
{
    struct place place = { .tensor = tensor, .expert = -1 };
    const char *at = tensor->name;
    while (!(place.inside = number_at(at, &place.layer)) && strchr(at, '.'))
        at = strchr(at, '.') + 1;
    place.prefix_len = (size_t)(at - tensor->name);
    const char *experts = strstr(tensor->name, ".experts.");
    uint64_t expert;
    if (experts && number_at(experts + sizeof ".experts." - 1, &expert) && expert < INT64_MAX)
        place.expert = (int64_t)expert;
    return place;
}

static int compare_text(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

static int compare_layers(const struct place *a, const struct place *b)
{
    if (!a->inside || !b->inside)
        return a->inside - b->inside;
    int order = compare_text(a->tensor->name, a->prefix_len, b->tensor->name, b->prefix_len);
    return order != 0 ? order : (a->layer > b->layer) - (a->layer < b->layer);
}

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = compare_layers(x, y);
    return order != 0 ? order : (x->expert > y->expert) - (x->expert < y->expert);
}

static void count_in(struct row *row, const struct penstock_tensor *tensor)
{
    row->tensors++;
    row->bytes += tensor->len_bytes;
}

/* Sorted, each layer's tensors lie together, and in it each expert's. */
static bool count_layers(struct weights *w)
{
    size_t n = w->manifest->tensors.n;
    struct place *places = malloc((n + 1) * sizeof *places);
    bool good = places != NULL;
    for (size_t i = 0; i < n && good; i++)
        places[i] = place_of(&w->manifest->tensors.at[i]);
    if (good)
        qsort(places, n, sizeof *places, compare_places);
    for (size_t i = 0; i < n && good; i++) {
        const struct place *p = &places[i];
        const char *name = p->tensor->name;
        if (!p->inside) {
            count_in(&w->outside, p->tensor);
            continue;
        }
        bool same = w->layers.n > 0 && i > 0 && compare_layers(&places[i - 1], p) == 0;
        if (!same) {
            size_t digits = strspn(name + p->prefix_len, "0123456789");
            good = base_vec_push(&w->layers,
                                 (struct row){ .name = name, .name_len = p->prefix_len + digits, .layer = p->layer });
        }
        if (good) {
            struct row *row = &w->layers.at[w->layers.n - 1];
            count_in(row, p->tensor);
            row->experts += p->expert >= 0 && (!same || places[i - 1].expert != p->expert);
        }
    }
    free(places);
    return good;
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    return compare_text(x->name, x->name_len, y->name, y->name_len);
}

static bool count_dtype(struct weights *w, const struct penstock_tensor *tensor)
{
    struct row *row = w->dtypes.at; /* few */
    while (row != w->dtypes.at + w->dtypes.n && strcmp(row->name, tensor->dtype) != 0)
        row++;
    size_t at = (size_t)(row - w->dtypes.at);
    if (at == w->dtypes.n &&
        !base_vec_push(&w->dtypes, (struct row){ .name = tensor->dtype, .name_len = strlen(tensor->dtype) }))
        return false;
    count_in(&w->dtypes.at[at], tensor);
    return true;
}

static bool count(struct weights *w)
{
    base_vec_for_each (shard, &w->manifest->shards)
        if (!base_vec_push(&w->shards, (struct row){ .name = shard->name, .name_len = strlen(shard->name) }))
            return false;
    base_vec_for_each (tensor, &w->manifest->tensors) {
        if (tensor->shard < w->shards.n) /* always, of a manifest */
            count_in(&w->shards.at[tensor->shard], tensor);
        w->bytes += tensor->len_bytes;
        if (!count_dtype(w, tensor))
            return false;
    }
    if (w->dtypes.n > 0)
        qsort(w->dtypes.at, w->dtypes.n, sizeof *w->dtypes.at, compare_rows);
    return count_layers(w);
}

/* ---- JSON ---- */

static void write_counts(struct json_writer *w, const struct row *row)
{
    json_write_key_u64(w, "tensors", row->tensors);
    json_write_key_u64(w, "bytes", row->bytes);
}

static void write_rows(struct json_writer *w, const char *key, const char *name_key, const rows_vec *rows, bool layers)
{
    json_write_key(w, key);
    json_write_array(w);
    base_vec_for_each (row, rows) {
        json_write_object(w);
        json_write_key(w, name_key);
        json_write_string(w, row->name, row->name_len);
        if (layers)
            json_write_key_u64(w, "number", row->layer);
        write_counts(w, row);
        if (layers)
            json_write_key_u64(w, "experts", row->experts);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_list(struct json_writer *w, const struct model_manifest *manifest)
{
    json_write_key(w, "list");
    json_write_array(w);
    base_vec_for_each (tensor, &manifest->tensors) {
        json_write_object(w);
        json_write_key_text(w, "name", tensor->name);
        json_write_key_text(w, "dtype", tensor->dtype);
        json_write_key(w, "shape");
        json_write_array(w);
        for (uint64_t i = 0; i < tensor->rank; i++)
            json_write_u64(w, tensor->shape[i]);
        json_write_array_end(w);
        json_write_key_u64(w, "bytes", tensor->len_bytes);
        json_write_key_text(w, "shard", manifest->shards.at[tensor->shard].name);
        json_write_key_u64(w, "offset", tensor->offset_bytes);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static int print_json(const struct weights *weights, bool list)
{
    struct base_buf out = { 0 };
    struct json_writer w = { .buf = &out };
    json_write_object(&w);
    json_write_key_text(&w, "kind", "safetensors");
    json_write_key_text(&w, "path", weights->path);
    json_write_key_u64(&w, "tensors", weights->manifest->tensors.n);
    json_write_key_u64(&w, "bytes", weights->bytes);
    write_rows(&w, "shards", "name", &weights->shards, false);
    write_rows(&w, "dtypes", "dtype", &weights->dtypes, false);
    write_rows(&w, "layers", "name", &weights->layers, true);
    json_write_key(&w, "outside_layers");
    json_write_object(&w);
    write_counts(&w, &weights->outside);
    json_write_object_end(&w);
    if (list)
        write_list(&w, weights->manifest);
    json_write_object_end(&w);
    return inspect_print(&out);
}

/* ---- tables ---- */

static size_t print_name(const char *name, size_t len)
{
    char text[512];
    snprintf(text, sizeof text, "%.*s", (int)base_min_u64(len, sizeof text - 1), name);
    return cli_print_escaped(stdout, text);
}

static void pad(size_t columns, size_t width)
{
    for (; columns < width; columns++)
        putchar(' ');
}

static void print_row(const struct row *row, size_t width, bool layers)
{
    char size[CLI_SIZE_MAX];
    pad(print_name(row->name, row->name_len), width);
    printf("%12" PRIu64 "%14s", row->tensors, cli_size(row->bytes, size));
    if (layers)
        printf("%12" PRIu64, row->experts);
    putchar('\n');
}

static void print_rows(const char *heading, const rows_vec *rows, const struct row *last)
{
    bool layers = last != NULL;
    size_t width = layers ? last->name_len : strlen(heading);
    if (rows->n == 0)
        return;
    base_vec_for_each (row, rows)
        width = (size_t)base_max_u64(width, row->name_len); /* an escape makes a row longer, and no more */
    printf("\n%-*s     TENSORS          SIZE%s\n", (int)width, heading, layers ? "     EXPERTS" : "");
    base_vec_for_each (row, rows)
        print_row(row, width, layers);
    if (layers && last->tensors > 0)
        print_row(last, width, layers);
}

static void print_list(const struct model_manifest *manifest)
{
    size_t width = 4;
    base_vec_for_each (tensor, &manifest->tensors)
        width = (size_t)base_max_u64(width, strlen(tensor->name));
    printf("\n%-*s  DTYPE            BYTES  SHAPE\n", (int)width, "NAME");
    base_vec_for_each (tensor, &manifest->tensors) {
        pad(cli_print_escaped(stdout, tensor->name), width + 2);
        pad(cli_print_escaped(stdout, tensor->dtype), 8);
        printf("%14" PRIu64 "  [", tensor->len_bytes);
        for (uint64_t i = 0; i < tensor->rank; i++)
            printf(i ? ",%" PRIu64 : "%" PRIu64, tensor->shape[i]);
        puts("]");
    }
}

static int print_tables(const struct weights *w, bool list)
{
    char size[CLI_SIZE_MAX], shards[CLI_COUNT_MAX], tensors[CLI_COUNT_MAX];
    struct row outside = w->outside;
    outside.name = "outside layers";
    outside.name_len = strlen(outside.name);
    cli_print_escaped(stdout, w->path);
    printf(": safetensors, %s in %s, %s\n", cli_count(w->manifest->tensors.n, "tensor", tensors),
           cli_count(w->manifest->shards.n, "shard", shards), cli_size(w->bytes, size));
    print_rows("SHARD", &w->shards, NULL);
    print_rows("DTYPE", &w->dtypes, NULL);
    print_rows("LAYER", &w->layers, &outside);
    if (list)
        print_list(w->manifest);
    return CLI_OK;
}

static int summarise(const char *path, const struct model_manifest *manifest, bool json, bool list)
{
    struct weights w = { .path = path, .manifest = manifest };
    struct penstock_error error = { 0 };
    int code;
    if (count(&w))
        code = json ? print_json(&w, list) : print_tables(&w, list);
    else
        code = (base_error_set(&error, PENSTOCK_ENOMEM, "%s: no memory to count", path), cli_failed(&error));
    base_vec_free(&w.shards);
    base_vec_free(&w.dtypes);
    base_vec_free(&w.layers);
    return code;
}

/* ---- reading ---- */

static int take_tensor(void *context, const struct model_safetensor *from, struct penstock_error *error)
{
    struct model_manifest *manifest = context;
    uint64_t *shape = base_pool_alloc(&manifest->pool, from->rank * sizeof *shape);
    struct penstock_tensor tensor = {
        .name = base_pool_string(&manifest->pool, from->name.at, from->name.len),
        .dtype = base_pool_string(&manifest->pool, from->dtype.at, from->dtype.len),
        .shape = shape,
        .rank = from->rank,
        .len_bytes = from->len_bytes,
        .offset_bytes = from->offset_bytes,
    };
    if (shape && from->rank > 0)
        memcpy(shape, from->shape, from->rank * sizeof *shape);
    if (!shape || !tensor.name || !tensor.dtype || !base_vec_push(&manifest->tensors, tensor))
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for its tensors");
    return 0;
}

static int read_file(const char *path, struct model_manifest *out, struct penstock_error *error)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    *out = (struct model_manifest){ 0 };
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); /* a FIFO is no safetensors file */
    if (fd < 0)
        return base_error_sys(error, errno, "%s", path);
    struct penstock_file shard = { .name = slash ? slash + 1 : path };
    int status = 0;
    if (fstat(fd, &st) != 0)
        status = base_error_sys(error, errno, "look at");
    else if (!S_ISREG(st.st_mode))
        status = base_error_set(error, PENSTOCK_EINVAL, "neither a file nor a directory");
    else if (shard.len_bytes = (uint64_t)st.st_size, !base_vec_push(&out->shards, shard))
        status = base_error_set(error, PENSTOCK_ENOMEM, "no memory");
    if (status == 0)
        status = model_safetensors_read(fd, shard.len_bytes, take_tensor, out, error);
    if (status == 0)
        status = model_manifest_index(out, error);
    close(fd);
    if (status != 0)
        (void)base_error_in(error, "%s", path);
    return status;
}

static void warn(void *context, const char *words)
{
    (void)context;
    fputs("penstock: warning: ", stderr);
    cli_print_escaped(stderr, words);
    fputc('\n', stderr);
}

int inspect_weights(const char *path, bool is_directory, bool json, bool list, bool follow_links)
{
    struct penstock_error error = { 0 };
    if (is_directory) {
        const struct model_stage_options options = { .warn = warn, .follow_all_links = follow_links };
        struct model_staged staged;
        if (model_stage(path, &options, &staged, &error) != 0)
            return cli_failed(&error);
        int code = summarise(staged.directory, &staged.manifest, json, list);
        model_staged_fini(&staged);
        return code;
    }
    struct model_manifest manifest;
    int code = read_file(path, &manifest, &error) != 0 ? cli_failed(&error) : summarise(path, &manifest, json, list);
    model_manifest_fini(&manifest);
    return code;
}
