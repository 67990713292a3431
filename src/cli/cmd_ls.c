#include <getopt.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/penstock.h>

#include "arguments.h"
#include "base/clock.h"
#include "base/vec.h"
#include "cmd.h"
#include "patience.h"
#include "text.h"

#define TIMEOUT_MAX 86400

static const char help[] =
    "usage: penstock ls PEER [--timeout SECONDS] [--json]\n"
    "       penstock ls PEER MODEL [--timeout SECONDS] [--json]\n"
    "\n"
    "Lists the models that a peer serves, or the tensors of one. PEER is HOST, HOST:PORT or [IPV6]:PORT (9910 where\n"
    "no port is given). A peer that brings no byte for SECONDS is given up; default: 30, and 300 for a MODEL, which it "
    "may\n"
    "have to stage first.\n";

static void pad(size_t columns, size_t width)
{
    for (; columns < width; columns++)
        putchar(' ');
}

static size_t at_least(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void print_number(const char *key, uint64_t value)
{
    printf(",\"%s\":%llu", key, (unsigned long long)value);
}

/* ---- models ---- */

static void models_json(const struct penstock_models *models)
{
    fputs("{\"models\":[", stdout);
    for (size_t i = 0; i < penstock_models_count(models); i++) {
        const struct penstock_model *model = penstock_models_at(models, i);
        fputs(i ? ",{\"id\":" : "{\"id\":", stdout);
        cli_print_json(stdout, model->id);
        print_number("shards", model->shards);
        print_number("tensors", model->tensors);
        print_number("files", model->files);
        print_number("bytes", model->bytes);
        fputs(",\"model_version\":", stdout);
        if (model->version)
            cli_print_json(stdout, model->version);
        else
            fputs("null", stdout);
        putchar('}');
    }
    puts("]}");
}

static void models_table(const struct penstock_models *models)
{
    size_t width = 5;
    for (size_t i = 0; i < penstock_models_count(models); i++)
        width = at_least(width, cli_escape(NULL, 0, penstock_models_at(models, i)->id));
    fputs("MODEL", stdout);
    pad(5, width);
    puts("      SHARDS     TENSORS       FILES          SIZE");
    for (size_t i = 0; i < penstock_models_count(models); i++) {
        const struct penstock_model *model = penstock_models_at(models, i);
        char size[CLI_SIZE_MAX];
        pad(cli_print_escaped(stdout, model->id), width);
        printf("%12llu%12llu%12llu%14s\n", (unsigned long long)model->shards, (unsigned long long)model->tensors,
               (unsigned long long)model->files, cli_size(model->bytes, size));
    }
}

static int list_models(const char *peer, const struct penstock_options *how, bool json)
{
    struct penstock_models *models;
    struct penstock_error error = { 0 };
    patience_begin("waiting for %s to list its models...", peer);
    int rc = penstock_models_get(peer, how, &models, &error);
    patience_end();
    if (rc < 0)
        return cli_failed(&error);
    (json ? models_json : models_table)(models);
    penstock_models_free(models);
    return CLI_OK;
}

/* ---- tensors ---- */

/* "[4096, 128]" into out, which the caller frees. */
static void shape_text(const struct penstock_tensor *tensor, struct base_buf *out)
{
    out->n = 0;
    base_buf_append(out, "[", 1);
    for (uint64_t i = 0; i < tensor->rank; i++)
        base_buf_printf(out, i ? ",%llu" : "%llu", (unsigned long long)tensor->shape[i]);
    base_buf_append(out, "]", 2); /* with its end */
    out->n--;
}

static void files_json(const struct penstock_catalogue *catalogue, size_t begin, size_t end)
{
    const char *comma = "";
    for (size_t i = begin; i < end; i++) {
        const struct penstock_file *file = penstock_catalogue_file(catalogue, i);
        if (!file->name)
            continue;
        printf("%s{\"name\":", comma);
        comma = ",";
        cli_print_json(stdout, file->name);
        print_number("bytes", file->len_bytes);
        putchar('}');
    }
}

static void tensors_json(const struct penstock_catalogue *catalogue)
{
    const char *version = penstock_catalogue_version(catalogue);
    size_t shards = penstock_catalogue_shards(catalogue);
    fputs("{\"model\":", stdout);
    cli_print_json(stdout, penstock_catalogue_model_id(catalogue));
    fputs(",\"model_version\":", stdout);
    if (version)
        cli_print_json(stdout, version);
    else
        fputs("null", stdout);
    fputs(",\"shards\":[", stdout);
    files_json(catalogue, 0, shards);
    fputs("],\"files\":[", stdout);
    files_json(catalogue, shards, shards + penstock_catalogue_files(catalogue));
    fputs("],\"tensors\":[", stdout);
    struct base_buf shape = { 0 };
    for (size_t i = 0; i < penstock_catalogue_tensors(catalogue); i++) {
        const struct penstock_tensor *tensor = penstock_catalogue_tensor(catalogue, i);
        shape_text(tensor, &shape);
        fputs(i ? ",{\"name\":" : "{\"name\":", stdout);
        cli_print_json(stdout, tensor->name);
        fputs(",\"dtype\":", stdout);
        cli_print_json(stdout, tensor->dtype);
        printf(",\"shape\":%s", shape.failed ? "null" : (const char *)shape.at);
        print_number("bytes", tensor->len_bytes);
        fputs(",\"shard\":", stdout);
        cli_print_json(stdout, penstock_catalogue_file(catalogue, tensor->shard)->name);
        printf(",\"extra\":%s}", tensor->extra ? "true" : "false");
    }
    puts("]}");
    base_buf_fini(&shape);
}

static void tensors_table(const struct penstock_catalogue *catalogue)
{
    size_t name_width = 4, dtype_width = 5, shape_width = 5, n = penstock_catalogue_tensors(catalogue);
    struct base_buf shape = { 0 };
    for (size_t i = 0; i < n; i++) {
        const struct penstock_tensor *tensor = penstock_catalogue_tensor(catalogue, i);
        shape_text(tensor, &shape);
        name_width = at_least(name_width, cli_escape(NULL, 0, tensor->name));
        dtype_width = at_least(dtype_width, cli_escape(NULL, 0, tensor->dtype));
        shape_width = at_least(shape_width, shape.n);
    }
    printf("%-*s  %-*s  %-*s  %14s  SHARD\n", (int)name_width, "NAME", (int)dtype_width, "DTYPE", (int)shape_width,
           "SHAPE", "BYTES");
    for (size_t i = 0; i < n; i++) {
        const struct penstock_tensor *tensor = penstock_catalogue_tensor(catalogue, i);
        shape_text(tensor, &shape);
        pad(cli_print_escaped(stdout, tensor->name), name_width + 2);
        pad(cli_print_escaped(stdout, tensor->dtype), dtype_width + 2);
        printf("%-*s  %14llu  ", (int)shape_width, shape.failed ? "?" : (const char *)shape.at,
               (unsigned long long)tensor->len_bytes);
        cli_print_escaped(stdout, penstock_catalogue_file(catalogue, tensor->shard)->name);
        putchar('\n');
    }
    base_buf_fini(&shape);
}

static int list_tensors(const char *peer, const char *model, const struct penstock_options *how, bool json)
{
    struct penstock_session *session;
    struct penstock_error error = { 0 };
    patience_begin("waiting for %s to stage %s...", peer, model);
    int rc = penstock_weights_open(peer, model, NULL, how, &session, &error);
    patience_end();
    if (rc < 0)
        return cli_failed(&error);
    struct penstock_catalogue *catalogue = penstock_session_catalogue(session);
    penstock_session_free(session);
    (json ? tensors_json : tensors_table)(catalogue);
    penstock_catalogue_unref(catalogue);
    return CLI_OK;
}

/* The same for every wait; false: no such number. */
static bool parse_timeout(const char *text, struct penstock_options *how)
{
    uint64_t seconds;
    if (!cli_number(text, 1, TIMEOUT_MAX, &seconds))
        return false;
    how->connect_timeout_ns = how->manifest_timeout_ns = how->reply_timeout_ns = (int64_t)seconds * BASE_SECOND_NS;
    return true;
}

int cmd_ls(int argc, char **argv)
{
    static const struct option long_options[] = {
        { "json", no_argument, NULL, 'J' },
        { "timeout", required_argument, NULL, 'T' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    /* A manifest needs no rails, which a peer may have to register the model for. */
    struct penstock_options how = { .size = sizeof how, .transport = PENSTOCK_TRANSPORT_TCP };
    bool json = false;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        if (c == 'h') {
            fputs(help, stdout);
            return CLI_OK;
        }
        if (c == 'T' && !parse_timeout(optarg, &how)) {
            fprintf(stderr, "penstock ls: --timeout takes seconds, 1 to 86400, not %s\n", optarg);
            return CLI_USAGE;
        }
        if (c != 'J' && c != 'T') {
            fputs(help, stderr);
            return CLI_USAGE;
        }
        json |= c == 'J';
    }
    int words = argc - optind;
    if (words != 1 && words != 2) {
        fputs(help, stderr);
        return CLI_USAGE;
    }
    return words == 1 ? list_models(argv[optind], &how, json)
                      : list_tensors(argv[optind], argv[optind + 1], &how, json);
}
