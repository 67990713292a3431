#include "listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/error.h"
#include "names.h"

void model_warn(const struct model_stage_options *options, const char *format, ...)
{
    if (!options || !options->warn)
        return;
    char words[600];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    options->warn(options->warn_context, words);
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && memcmp(name + n - m, suffix, m) == 0;
}

/* Weights of this or another format: a pulled directory gets the shards, and not the same bytes a second time. */
static bool is_weights(const char *name)
{
    static const char *const suffixes[] = { ".safetensors", ".bin", ".pt",      ".pth",  ".ckpt",
                                            ".gguf",        ".h5",  ".msgpack", ".onnx", ".ot" };
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (ends_with(name, suffixes[i]))
            return true;
    return false;
}

struct walk {
    struct model_listing *out;
    const struct model_stage_options *options;
    struct penstock_error *error;
};

static int no_memory(const struct walk *w)
{
    return base_error_set(w->error, PENSTOCK_ENOMEM, "no memory for a list of files");
}

static int add(struct walk *w, const char *path, const char *name, bool top)
{
    struct model_listing *out = w->out;
    bool weights = is_weights(name);
    if (weights && !(top && ends_with(name, ".safetensors")))
        return 0;
    if (!weights && out->files.n == MODEL_FILES_MAX)
        return base_error_set(w->error, PENSTOCK_ELIMIT, "more than %d files: is this a model's directory?",
                              MODEL_FILES_MAX);
    const char *copy = base_pool_string(&out->pool, path, strlen(path));
    if (!copy)
        return no_memory(w);
    return (weights ? base_vec_push(&out->weights, copy) : base_vec_push(&out->files, copy)) ? 0 : no_memory(w);
}

static int walk_directory(struct walk *w, int parent, const char *name, const char *prefix, unsigned depth);

static int visit(struct walk *w, int fd, const char *name, const char *prefix, unsigned depth)
{
    char path[MODEL_NAME_COMPONENTS_MAX * (NAME_MAX + 1)];
    struct stat st;
    if (name[0] == '.')
        return 0;
    if (!model_name_plain(name, strlen(name))) {
        model_warn(w->options, "%s%s: left out: not a name that can be sent", prefix, name);
        return 0;
    }
    snprintf(path, sizeof path, "%s%s", prefix, name);
    if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : base_error_sys(w->error, errno, "%s", path);
    if (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
        return add(w, path, name, depth == 1);
    if (!S_ISDIR(st.st_mode) || depth == MODEL_NAME_COMPONENTS_MAX)
        return 0;
    return walk_directory(w, fd, name, path, depth + 1);
}

/* A directory that cannot be read is left out, but not the model's own. Links to directories are not followed: they may
 * lead in circles. */
static int walk_directory(struct walk *w, int parent, const char *name, const char *prefix, unsigned depth)
{
    char below[MODEL_NAME_COMPONENTS_MAX * (NAME_MAX + 1) + 1];
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) {
        int cause = errno;
        if (fd >= 0)
            close(fd);
        if (depth == 1 || cause == EMFILE || cause == ENFILE)
            return base_error_sys(w->error, cause, "read the directory%s%s", depth == 1 ? "" : " ", prefix);
        model_warn(w->options, "%s: left out: %s", prefix, strerrordesc_np(cause));
        return 0;
    }
    snprintf(below, sizeof below, "%s%s", prefix, prefix[0] ? "/" : "");
    int status = 0;
    for (struct dirent *entry; status == 0 && (errno = 0, entry = readdir(directory));)
        status = visit(w, fd, entry->d_name, below, depth);
    closedir(directory);
    return status;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int model_listing_read(const struct model_root *root, const struct model_stage_options *options,
                       struct model_listing *out, struct penstock_error *error)
{
    *out = (struct model_listing){ 0 };
    struct walk w = { .out = out, .options = options, .error = error };
    int status = walk_directory(&w, root->fd, ".", "", 1);
    if (status != 0) {
        model_listing_fini(out);
        return status;
    }
    if (out->weights.n > 1)
        qsort(out->weights.at, out->weights.n, sizeof(char *), compare);
    if (out->files.n > 1)
        qsort(out->files.at, out->files.n, sizeof(char *), compare);
    base_vec_for_each (name, &out->weights)
        out->hash = XXH3_64bits_withSeed(*name, strlen(*name) + 1, out->hash);
    base_vec_for_each (name, &out->files)
        out->hash = XXH3_64bits_withSeed(*name, strlen(*name) + 1, out->hash);
    return 0;
}

void model_listing_fini(struct model_listing *listing)
{
    base_vec_free(&listing->weights);
    base_vec_free(&listing->files);
    base_pool_fini(&listing->pool);
    listing->hash = 0;
}
