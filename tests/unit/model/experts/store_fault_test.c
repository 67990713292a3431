/* Writing a store while memory, or the disk, fails at every call in turn: no failure makes a store, and each is said.
 */
#include "made_store.h"

#include <errno.h>
#include <limits.h>

#include "model/experts/store.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t n);
int __real_fsync(int fd);
int __real_renameat(int from, const char *old, int to, const char *name);
int __real_fallocate(int fd, int mode, off_t at, off_t len);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t n);
int __wrap_fsync(int fd);
int __wrap_renameat(int from, const char *old, int to, const char *name);
int __wrap_fallocate(int fd, int mode, off_t at, off_t len);

static long memory_until = -1, disk_until = -1; /* calls that go well before one that fails; negative: all do */
static char told[4096];                         /* "sync NAME" and "rename NAME", in order */

static bool fails(long *until)
{
    return *until >= 0 && (*until)-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails(&memory_until) ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(&memory_until) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t n)
{
    return fails(&memory_until) ? NULL : __real_realloc(old, n);
}

static void tell(const char *what, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t at = strlen(told);
    snprintf(told + at, sizeof told - at, "%s %s\n", what, slash ? slash + 1 : path);
}

static int disk_failed(void)
{
    errno = EIO;
    return fails(&disk_until) ? -1 : 0;
}

int __wrap_fsync(int fd)
{
    char link[32], path[PATH_MAX] = { 0 };
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (disk_failed() != 0)
        return -1;
    if (readlink(link, path, sizeof path - 1) > 0)
        tell("sync", path);
    return __real_fsync(fd);
}

int __wrap_renameat(int from, const char *old, int to, const char *name)
{
    if (disk_failed() != 0)
        return -1;
    tell("rename", name);
    return __real_renameat(from, old, to, name);
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t len)
{
    return disk_failed() != 0 ? -1 : __real_fallocate(fd, mode, at, len);
}

static int write_layer(struct model_store_writer *writer, uint32_t layer, struct penstock_error *error)
{
    int fd, status = model_store_writer_begin(writer, layer, &fd, error);
    if (status != 0)
        return status;
    long memory = memory_until, disk = disk_until;
    memory_until = disk_until = -1; /* what fills it is the test's */
    made_fill(fd, layer);
    memory_until = memory;
    disk_until = disk;
    return model_store_writer_commit(writer, layer, error);
}

/* What each step came to. Layers that are there are left as they are. */
static int write_store(const struct model_expert_manifest *manifest, struct penstock_error *error)
{
    struct model_store_writer *writer;
    int status = model_store_writer_open(test_path("store"), manifest, "source", &writer, error);
    if (status != 0)
        return status;
    for (uint32_t layer = 0; layer < MADE_LAYERS && status == 0; layer++)
        if (!model_store_writer_has(writer, layer))
            status = write_layer(writer, layer, error);
    if (status == 0)
        status = model_store_writer_finish(writer, error);
    model_store_writer_free(writer);
    return status;
}

static void assert_is_store(void)
{
    struct model_store store;
    struct penstock_record_header header;
    assert_int_equal(model_store_open(test_path("store"), NULL, &store, NULL), 0);
    for (uint32_t layer = 0; layer < MADE_LAYERS; layer++)
        for (uint32_t expert = 0; expert < MADE_EXPERTS; expert++)
            assert_int_equal(model_store_header(&store, layer, expert, &header, NULL), 0);
    model_store_close(&store);
}

/* Nothing but a store is there, and then it is not there any more. */
static void remove_store(void)
{
    static const char *const names[] = { "store/manifest.json", "store/experts_00000.xpr", "store/experts_00001.xpr",
                                         "store" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(remove(test_path(names[i])), 0);
}

/* Each call in turn fails, and what is left then is gone on with. */
static void fail_each_in_turn(long *until, int code)
{
    struct model_expert_manifest manifest = made_manifest();
    long failures = 0;
    for (;; failures++) {
        struct penstock_error error = { 0 };
        struct model_store store;
        *until = failures;
        int status = write_store(&manifest, &error);
        bool failed = *until < 0;
        *until = -1;
        if (!failed)
            assert_int_equal(status, 0);
        if (!failed)
            break;
        int there = model_store_open(test_path("store"), NULL, &store, NULL);
        if (there == 0) { /* it was the sync after the manifest had its name, or what need not succeed */
            model_store_close(&store);
            (void)remove(test_path("store/.penstock-pack.json"));
        } else {
            assert_int_equal(status, code);
            assert_non_null(strstr(error.message, "store "));
            assert_true(there == PENSTOCK_ECORRUPT || there == PENSTOCK_ENOTFOUND);
            assert_int_equal(write_store(&manifest, NULL), 0);
        }
        assert_is_store();
        remove_store();
    }
    assert_true(failures > 8);
    model_expert_manifest_fini(&manifest);
    assert_is_store();
}

static void memory_that_runs_out_anywhere_leaves_no_half_store(void **state)
{
    (void)state;
    fail_each_in_turn(&memory_until, PENSTOCK_ENOMEM);
}

static void a_disk_that_fails_anywhere_leaves_no_half_store(void **state)
{
    (void)state;
    fail_each_in_turn(&disk_until, PENSTOCK_ESYS);
}

static void everything_is_synced_before_it_has_its_name_and_the_manifest_is_last(void **state)
{
    (void)state;
    struct model_expert_manifest manifest = made_manifest();
    char want[2048];
    char real[PATH_MAX];
    assert_non_null(realpath(test_path("."), real));
    told[0] = 0;
    assert_int_equal(write_store(&manifest, NULL), 0);
    snprintf(want, sizeof want,
             "sync %s\n"
             "sync .penstock-pack.json.tmp\nrename .penstock-pack.json\nsync store\n"
             "sync experts_00000.xpr.tmp\nrename experts_00000.xpr\nsync store\n"
             "sync experts_00001.xpr.tmp\nrename experts_00001.xpr\nsync store\n"
             "sync manifest.json.tmp\nrename manifest.json\nsync store\n",
             strrchr(real, '/') + 1);
    assert_string_equal(told, want);
    model_expert_manifest_fini(&manifest);
}

#define IN_A_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, test_directory_setup, test_directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(memory_that_runs_out_anywhere_leaves_no_half_store),
        IN_A_DIRECTORY(a_disk_that_fails_anywhere_leaves_no_half_store),
        IN_A_DIRECTORY(everything_is_synced_before_it_has_its_name_and_the_manifest_is_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
