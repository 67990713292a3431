/* The cache over a swap on a file system that is really full: a small ext4, mounted from a file. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "disk_rig.h"

#define ERROR UINT64_MAX
#define SLOTS 64
#define DISK_BYTES (20 << 20)
#define MOST_KEYS (DISK_BYTES / RIG_BLOB + SLOTS)

static struct disk_rig rig;
static char mounted[sizeof "/tmp/penstock-full-XXXXXX"]; /* where; empty: it could not be */
static char image[sizeof mounted + sizeof ".ext4"], filler[sizeof mounted + sizeof "/filler"];

static bool run(const char *const arguments[])
{
    pid_t pid;
    int status;
    if (posix_spawnp(&pid, arguments[0], NULL, NULL, (char *const *)(uintptr_t)arguments, environ) != 0)
        return false;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(mounted, sizeof mounted, "/tmp/penstock-full-XXXXXX");
    assert_non_null(mkdtemp(mounted));
    snprintf(image, sizeof image, "%s.ext4", mounted);
    snprintf(filler, sizeof filler, "%s/filler", mounted);
    int fd = open(image, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, DISK_BYTES), 0);
    close(fd);
    const char *const make[] = { "mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", image, NULL };
    const char *const mount_it[] = { "mount", "-o", "loop", image, mounted, NULL };
    if (geteuid() == 0 && run(make) && run(mount_it)) {
        setenv("TMPDIR", mounted, 1);
        disk_rig_init(&rig);
        return 0;
    }
    (void)unlink(image);
    (void)rmdir(mounted);
    *mounted = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (!*mounted)
        return 0;
    disk_rig_remove(&rig);
    (void)unlink(filler);
    unsetenv("TMPDIR");
    assert_int_equal(umount(mounted), 0);
    assert_int_equal(unlink(image), 0);
    assert_int_equal(rmdir(mounted), 0);
    return 0;
}

static void fill_the_rest_with(int filler_bytes)
{
    int fd = open(filler, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(posix_fallocate(fd, 0, filler_bytes), 0);
    close(fd);
}

/* Puts keys from 1 on until the same one is refused time and again: what was on its way to the disk when it was
 * refused first may have found room. Returns how many were not refused. */
static uint64_t put_until_refused(struct residency_client *client)
{
    uint64_t key = 1;
    for (int refused = 0; refused < SLOTS;) {
        bool good = rig_put(client, key, 1000 + key) == RESIDENCY_OK;
        refused = good ? 0 : refused + 1;
        key += good;
        assert_true(key < MOST_KEYS);
    }
    return key - 1;
}

static void refuse_then_recover(bool keep)
{
    if (!*mounted) {
        if (geteuid() == 0 && getenv("CI"))
            fail_msg("root must be able to mount an ext4 from a file");
        print_message("skipped: cannot mount an ext4 from a file\n");
        skip();
    }
    fill_the_rest_with(4 << 20);
    rig.options.keep = keep;
    disk_rig_start(&rig);
    struct residency_client *a = disk_rig_join(&rig, SLOTS);
    uint64_t n = put_until_refused(a);
    /* Used to the last records, and nothing that was committed is dropped for it. */
    assert_true(n > (DISK_BYTES - (8 << 20)) / RIG_BLOB);
    struct residency_arena_stats stats = disk_rig_stats(&rig);
    assert_int_equal(stats.resident + stats.on_disk, n);
    assert_true(stats.errors > 0 && stats.on_disk > 0);
    assert_int_equal(stats.drops, 0);
    assert_int_equal(rig_put(a, n + 1, 1), RESIDENCY_ERR);
    for (uint64_t key = 1; key <= n; key++) {
        uint64_t what = rig_get(a, key);
        assert_true(what == 1000 + key || what == ERROR);
    }
    assert_int_equal(rig_get(a, n), 1000 + n);

    /* Room that removals make is used at once, and then all can be read. */
    for (uint64_t key = 1; key <= 4 * SLOTS; key++)
        assert_int_equal(residency_remove(a, rig_key(key)), RESIDENCY_OK);
    for (uint64_t key = 1; key <= SLOTS; key++)
        assert_int_equal(rig_put(a, key, 5000 + key), RESIDENCY_OK);
    for (uint64_t key = 1; key <= n; key++)
        assert_int_equal(rig_get(a, key), key <= SLOTS ? 5000 + key : key <= 4 * SLOTS ? 0 : 1000 + key);

    /* Room that others make is found soon. */
    assert_int_equal(unlink(filler), 0);
    int tries = 0;
    for (uint64_t key = n + 1; key <= n + 8 * SLOTS;) {
        if (rig_put(a, key, 1000 + key) == RESIDENCY_OK) {
            key++;
            continue;
        }
        assert_true(tries++ < 1000);
        (void)nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
        disk_rig_pass_s(1);
    }
    for (uint64_t key = n + 1; key <= n + 8 * SLOTS; key++)
        assert_int_equal(rig_get(a, key), 1000 + key);
    assert_int_equal(disk_rig_stats(&rig).drops, 0);
    residency_client_free(a);
}

static void a_full_disk_refuses_keeps_and_recovers(void **state)
{
    (void)state;
    refuse_then_recover(false);
}

static void so_it_does_with_an_index_on_it(void **state)
{
    (void)state;
    refuse_then_recover(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_disk_refuses_keeps_and_recovers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(so_it_does_with_an_index_on_it, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
