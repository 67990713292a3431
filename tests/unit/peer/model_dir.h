/* Directories with a model of one tensor, for tests of what is served. */
#ifndef PENSTOCK_TEST_MODEL_DIR_H
#define PENSTOCK_TEST_MODEL_DIR_H

#include "../test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Writes DIR/NAME: one U8 tensor of that name and of len bytes, each of them fill. Truncates what is there. */
static inline void model_dir_write_tensor(const char *dir, const char *name, const char *tensor, size_t len, int fill)
{
    char path[512], json[256], *bytes = malloc(len);
    int n = snprintf(json, sizeof json, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}", tensor,
                     len, len);
    uint64_t header = (uint64_t)n;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "we");
    assert_true(f && bytes);
    memset(bytes, fill, len);
    assert_int_equal(fwrite(&header, 1, 8, f), 8);
    assert_int_equal(fwrite(json, 1, (size_t)n, f), n);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    free(bytes);
}

static inline void model_dir_write(const char *dir, const char *name, size_t len, int fill)
{
    model_dir_write_tensor(dir, name, "t", len, fill);
}

/* A new directory under base (which mkdtemp made) with a model of len bytes. */
static inline void model_dir_make(const char *base, const char *name, size_t len, int fill, char out[256])
{
    snprintf(out, 256, "%s/%s", base, name);
    assert_int_equal(mkdir(out, 0700), 0);
    model_dir_write(out, "model.safetensors", len, fill);
}

/* Another file under the same name: what a download tool does. */
static inline void model_dir_replace(const char *dir, size_t len, int fill)
{
    char from[512], to[512];
    model_dir_write(dir, "new", len, fill);
    snprintf(from, sizeof from, "%s/new", dir);
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    assert_int_equal(rename(from, to), 0);
}

static inline void model_dir_remove(const char *base)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    assert_int_equal(system(command), 0);
}

#endif
