#include "pull_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"
#include "base/rng.h"

#define JOURNAL_NAME PULL_OWN_PREFIX
#define JOURNAL_MAX (UINT64_C(1) << 30)
#define LINE_MAX_BYTES 256
#define SUM_CHARS 8

static uint32_t line_sum(const char *words, size_t len)
{
    return (uint32_t)XXH3_64bits(words, len);
}

/* Copies the words of one line, without its checksum, to words. False: it is damaged. */
static bool check_line(const char *line, size_t len, char words[LINE_MAX_BYTES])
{
    if (len < SUM_CHARS + 2 || len >= LINE_MAX_BYTES || line[len - SUM_CHARS - 1] != ' ')
        return false;
    size_t n = len - SUM_CHARS - 1;
    char sum[SUM_CHARS + 1];
    snprintf(sum, sizeof sum, "%08x", line_sum(line, n));
    if (memcmp(sum, line + n + 1, SUM_CHARS) != 0 || memchr(line, '\0', n))
        return false;
    memcpy(words, line, n);
    words[n] = '\0';
    return true;
}

static bool parse_digest(const char *hex, uint8_t out[PENSTOCK_DIGEST_BYTES])
{
    if (strlen(hex) != 2 * PENSTOCK_DIGEST_BYTES)
        return false;
    for (size_t i = 0; i < PENSTOCK_DIGEST_BYTES; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
            return false;
        out[i] = (uint8_t)byte;
    }
    return true;
}

struct reading {
    struct pull_past *past;
    const struct pull_identity *now;
    uint64_t chunks, files;
    size_t line;
    bool this_boot, out_of_memory;
};

static bool take_chunk(struct reading *r, const char *words)
{
    struct pull_past_chunk chunk = { .this_boot = r->this_boot };
    char digest[64] = "";
    if (sscanf(words, "lost %" SCNu64, &chunk.chunk) != 1) {
        if (sscanf(words, "chunk %" SCNu64 " %63s", &chunk.chunk, digest) != 2)
            return false;
        chunk.landed = true;
        chunk.hashed = strcmp(digest, "-") != 0;
        if (chunk.hashed && !parse_digest(digest, chunk.digest))
            return false;
    }
    if (chunk.chunk >= r->chunks)
        return false;
    r->out_of_memory = !base_vec_push(&r->past->chunks, chunk);
    return !r->out_of_memory;
}

static bool take_done(struct reading *r, const char *words)
{
    struct pull_past_done done;
    if (sscanf(words, "done %" SCNu64 " %" SCNu64 " %" SCNd64, &done.file, &done.inode, &done.mtime_ns) != 3 ||
        done.file >= r->files)
        return false;
    r->out_of_memory = !base_vec_push(&r->past->done, done);
    return !r->out_of_memory;
}

/* False: reading ends here, with past->state saying why. */
static bool take_line(struct reading *r, const char *line, size_t len)
{
    char words[LINE_MAX_BYTES], model[LINE_MAX_BYTES];
    r->past->state = PULL_PAST_DAMAGED;
    if (!check_line(line, len, words))
        return false;
    switch (r->line++) {
    case 0:
        return strcmp(words, "penstock-pull 1") == 0;
    case 1:
        snprintf(model, sizeof model, "model %s %s", r->now->version, r->now->mark);
        if (strcmp(words, model) != 0) {
            r->past->state = PULL_PAST_OTHER;
            return false;
        }
        return true;
    default:
        if (strncmp(words, "boot ", 5) == 0) {
            r->this_boot = strcmp(words + 5, r->now->boot) == 0;
            return true;
        }
        return strncmp(words, "done ", 5) == 0 ? take_done(r, words) : take_chunk(r, words);
    }
}

int pull_past_read(const char *text, size_t len, const struct pull_identity *now, uint64_t chunks, uint64_t files,
                   struct pull_past *past, struct penstock_error *error)
{
    *past = (struct pull_past){ .state = PULL_PAST_NONE };
    struct reading r = { .past = past, .now = now, .chunks = chunks, .files = files };
    const char *at = text, *newline;
    bool going = true;
    while (going && (newline = memchr(at, '\n', len - (size_t)(at - text)))) {
        going = take_line(&r, at, (size_t)(newline - at));
        at = newline + 1;
    }
    if (r.out_of_memory) {
        pull_past_fini(past);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the journal of the interrupted pull");
    }
    /* What follows the last newline was being written when the pull was cut short. */
    past->whole_bytes = (size_t)(at - text);
    if (going && r.line >= 2)
        past->state = PULL_PAST_SAME;
    else if (going && len > 0)
        past->state = PULL_PAST_DAMAGED;
    if (past->state != PULL_PAST_SAME)
        past->chunks.n = past->done.n = 0;
    return 0;
}

void pull_past_fini(struct pull_past *past)
{
    base_vec_free(&past->chunks);
    base_vec_free(&past->done);
    *past = (struct pull_past){ 0 };
}

/* Whether fd is still what the name leads to: the pull that held the lock may have removed it when it was done. */
static bool still_named(int dir_fd, int fd)
{
    struct stat ours, named;
    return fstat(fd, &ours) == 0 && fstatat(dir_fd, JOURNAL_NAME, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

int pull_journal_open(int dir_fd, const char *dir, struct pull_journal *journal, struct penstock_error *error)
{
    for (;;) {
        int fd = openat(dir_fd, JOURNAL_NAME, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
        if (fd < 0 && errno == ELOOP)
            return base_error_set(error, PENSTOCK_EINVAL, "%s/" JOURNAL_NAME ": is a link; remove it", dir);
        if (fd < 0)
            return base_error_sys(error, errno, "%s/" JOURNAL_NAME ": can't be opened", dir);
        struct stat st;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink > 1) {
            close(fd);
            return base_error_set(error, PENSTOCK_EINVAL, "%s/" JOURNAL_NAME ": is no file of ours; remove it", dir);
        }
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            int failed = errno;
            close(fd);
            if (failed == EWOULDBLOCK)
                return base_error_set(error, PENSTOCK_ELIMIT, "%s: another pull is writing there", dir);
            return base_error_sys(error, failed, "%s/" JOURNAL_NAME ": can't be locked", dir);
        }
        if (still_named(dir_fd, fd)) {
            *journal = (struct pull_journal){ .fd = fd };
            return 0;
        }
        close(fd);
    }
}

int pull_journal_text(const struct pull_journal *journal, struct base_buf *text, struct penstock_error *error)
{
    struct stat st;
    if (fstat(journal->fd, &st) < 0)
        return base_error_sys(error, errno, JOURNAL_NAME);
    if ((uint64_t)st.st_size > JOURNAL_MAX)
        return base_error_set(error, PENSTOCK_ECORRUPT, JOURNAL_NAME ": is implausibly long; remove it");
    uint8_t *to = base_buf_room(text, (size_t)st.st_size + 1);
    if (!to)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the journal of the interrupted pull");
    while (text->n < (size_t)st.st_size) {
        ssize_t n = pread(journal->fd, to + text->n, (size_t)st.st_size - text->n, (off_t)text->n);
        if (n < 0)
            return base_error_sys(error, errno, JOURNAL_NAME);
        if (n == 0)
            break;
        text->n += (size_t)n;
    }
    return 0;
}

/* One write a record: a pull that is killed leaves whole lines. */
__attribute__((format(printf, 2, 3))) static void append(struct pull_journal *journal, const char *format, ...)
{
    char line[LINE_MAX_BYTES + SUM_CHARS + 2];
    va_list args;
    va_start(args, format);
    int words = vsnprintf(line, LINE_MAX_BYTES, format, args);
    va_end(args);
    size_t n = words < 0 || words >= LINE_MAX_BYTES ? LINE_MAX_BYTES - 1 : (size_t)words;
    n += (size_t)snprintf(line + n, sizeof line - n, " %08x\n", line_sum(line, n));
    if (write(journal->fd, line, n) != (ssize_t)n)
        journal->failed = true;
}

int pull_journal_begin(struct pull_journal *journal, const struct pull_identity *identity, size_t keep_bytes,
                       struct penstock_error *error)
{
    if (ftruncate(journal->fd, (off_t)keep_bytes) < 0)
        return base_error_sys(error, errno, JOURNAL_NAME ": can't be written");
    if (keep_bytes == 0) {
        append(journal, "penstock-pull 1");
        append(journal, "model %s %s", identity->version, identity->mark);
    }
    append(journal, "boot %s", identity->boot);
    return journal->failed ? base_error_set(error, PENSTOCK_ESYS, JOURNAL_NAME ": can't be written") : 0;
}

void pull_journal_chunk(struct pull_journal *journal, size_t chunk, const uint8_t *digest)
{
    char hex[2 * PENSTOCK_DIGEST_BYTES + 1] = "-";
    for (size_t i = 0; digest && i < PENSTOCK_DIGEST_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    append(journal, "chunk %zu %s", chunk, hex);
}

void pull_journal_lost(struct pull_journal *journal, size_t chunk)
{
    append(journal, "lost %zu", chunk);
}

void pull_journal_done(struct pull_journal *journal, size_t file, uint64_t inode, int64_t mtime_ns)
{
    append(journal, "done %zu %" PRIu64 " %" PRId64, file, inode, mtime_ns);
}

void pull_journal_close(int dir_fd, struct pull_journal *journal, bool whole)
{
    if (journal->fd < 0)
        return;
    if (whole)
        unlinkat(dir_fd, JOURNAL_NAME, 0);
    close(journal->fd);
    journal->fd = -1;
}

void pull_boot_id(char out[PULL_BOOT_MAX])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, PULL_BOOT_MAX - 1);
    if (fd >= 0)
        close(fd);
    if (n > 0) {
        out[n] = '\0';
        out[strcspn(out, " \n")] = '\0';
        return;
    }
    uint64_t once = 0;
    int ignored = base_random(&once, sizeof once);
    (void)ignored;
    snprintf(out, PULL_BOOT_MAX, "unknown-%016" PRIx64, once);
}
