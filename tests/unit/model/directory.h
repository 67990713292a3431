/* Made directories: each test gets one of its own, and it is gone afterwards. */
#ifndef PENSTOCK_TEST_DIRECTORY_H
#define PENSTOCK_TEST_DIRECTORY_H

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../test.h"

static char test_directory[PATH_MAX];

static inline int test_directory_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline int test_directory_setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(test_directory, sizeof test_directory, "%s/penstock-model-XXXXXX", tmp ? tmp : "/tmp");
    char real[PATH_MAX];
    if (!mkdtemp(test_directory) || !realpath(test_directory, real))
        return -1;
    memcpy(test_directory, real, sizeof real);
    return 0;
}

static inline int test_directory_teardown(void **state)
{
    (void)state;
    return nftw(test_directory, test_directory_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* "DIRECTORY/name"; one of four buffers. */
static inline const char *test_path(const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    int n = snprintf(path, PATH_MAX, "%s/%s", test_directory, name);
    assert_true(n > 0 && n < PATH_MAX);
    return path;
}

static inline void test_file(const char *name, const void *bytes, size_t len)
{
    FILE *file = fopen(test_path(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static inline void test_text_file(const char *name, const char *text)
{
    test_file(name, text, strlen(text));
}

/* A safetensors file: header, then data_bytes that are a hole. */
static inline void test_safetensors(const char *name, const char *header, size_t data_bytes)
{
    size_t len = strlen(header);
    uint8_t prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (uint8_t)((uint64_t)len >> 8 * i);
    FILE *file = fopen(test_path(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(prefix, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(test_path(name), (off_t)(8 + len + data_bytes)), 0);
}

#endif
