#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd.h"
#include "inspect.h"
#include "text.h"

static const char help[] =
    "usage: penstock inspect STORE|FILE|DIRECTORY [--tensors] [--json] [--follow-links]\n"
    "\n"
    "Says what an expert store, a safetensors file or a model's directory is made of: geometry and layers of a store,\n"
    "whose every record's header is looked at; shards, dtypes and layers of a model. --tensors also lists a model's\n"
    "tensors one by one; --follow-links follows links that lead outside the directory.\n";

int inspect_print(struct base_buf *json)
{
    base_buf_append(json, "\n", 1);
    int status = json->failed ? CLI_FAILED : CLI_OK;
    if (json->failed)
        fputs("penstock: no memory for the JSON\n", stderr);
    else
        (void)fwrite(json->at, 1, json->n, stdout);
    base_buf_fini(json);
    return status;
}

static int usage(const char *words)
{
    if (words)
        fprintf(stderr, "penstock inspect: %s\n", words);
    else
        fputs(help, stderr);
    return CLI_USAGE;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), len = strlen(end);
    return n >= len && strcmp(text + n - len, end) == 0;
}

static int inspect(const char *path, bool json, bool list, bool follow_links)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        int cause = errno;
        fputs("penstock: ", stderr);
        cli_print_escaped(stderr, path);
        fprintf(stderr, ": %s\n", strerror(cause));
        return CLI_FAILED;
    }
    if (S_ISDIR(st.st_mode) && model_store_likely(path))
        return list ? usage("--tensors is for models; a store has records") : inspect_store(path, json, follow_links);
    if (ends_with(path, ".xpr")) {
        fputs("penstock: ", stderr);
        cli_print_escaped(stderr, path);
        fputs(": one layer of an expert store: inspect the store's directory\n", stderr);
        return CLI_FAILED;
    }
    return inspect_weights(path, S_ISDIR(st.st_mode), json, list, follow_links);
}

int cmd_inspect(int argc, char **argv)
{
    static const struct option long_options[] = {
        { "json", no_argument, NULL, 'J' },
        { "tensors", no_argument, NULL, 'T' },
        { "follow-links", no_argument, NULL, 'L' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    bool json = false, list = false, follow_links = false;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, "h", long_options, NULL)) != -1;) {
        if (c == 'h') {
            fputs(help, stdout);
            return CLI_OK;
        }
        if (c != 'J' && c != 'T' && c != 'L')
            return usage(NULL);
        json |= c == 'J';
        list |= c == 'T';
        follow_links |= c == 'L';
    }
    return argc - optind == 1 ? inspect(argv[optind], json, list, follow_links) : usage(NULL);
}
