/* The order of a pull: manifest, plan, what is there already, space, workers, final names. */
#include "pull.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "patience.h"
#include "progress.h"
#include "text.h"

#define STARTS 3 /* of a pull whose model changes under it */
#define TICK_MS 100

static const char *version_of(const struct pull *pull)
{
    const char *version = penstock_catalogue_version(pull->catalogue);
    return version ? version : "-";
}

/* The final component of a model's name, without the slashes that may end it. */
static int base_name(const char *model, char *out, size_t size, struct penstock_error *error)
{
    size_t end = strlen(model);
    while (end > 0 && model[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && model[begin - 1] != '/')
        begin--;
    bool fits = end - begin < size;
    snprintf(out, size, "%.*s", fits ? (int)(end - begin) : 0, model + begin);
    if (!fits || pull_name_fault(out, true))
        return base_error_set(error, PENSTOCK_EINVAL, "%s: no directory can be named after it; say -o DIR", model);
    return 0;
}

/* Where to write: a directory, and with --tensors the name of the file in it. */
static int choose_target(const struct pull_options *options, char *dir, size_t dir_size, char *name, size_t name_size,
                         struct penstock_error *error)
{
    static const char suffix[] = ".safetensors";
    char model[256];
    name[0] = '\0';
    if (options->output && strlen(options->output) >= dir_size)
        return base_error_set(error, PENSTOCK_EINVAL, "-o: a path of %zu bytes is too long", strlen(options->output));
    if (options->n_globs == 0) {
        if (!options->output)
            return base_name(options->model, dir, dir_size, error);
        snprintf(dir, dir_size, "%s", options->output);
        return 0;
    }
    const char *output = options->output ? options->output : ".";
    size_t len = strlen(output);
    if (len >= sizeof suffix - 1 && strcmp(output + len - (sizeof suffix - 1), suffix) == 0) {
        const char *slash = strrchr(output, '/');
        snprintf(name, name_size, "%s", slash ? slash + 1 : output);
        snprintf(dir, dir_size, "%.*s", slash ? (int)(slash - output + (slash == output)) : 1, slash ? output : ".");
    } else {
        int rc = base_name(options->model, model, sizeof model - sizeof suffix, error);
        if (rc < 0)
            return rc;
        snprintf(name, name_size, "%s%s", model, suffix);
        snprintf(dir, dir_size, "%s", output);
    }
    return pull_name_fault(name, true) ? base_error_set(error, PENSTOCK_EINVAL, "%s: not a file name", name) : 0;
}

/* ---- what is there already ---- */

/* The last record of each chunk that counts, or NULL. */
static const struct pull_past_chunk **last_records(const struct pull *pull, const struct pull_past *past)
{
    const struct pull_past_chunk **last = calloc(pull->plan.chunks + 1, sizeof(void *));
    for (size_t i = 0; last && i < past->chunks.n; i++)
        last[past->chunks.at[i].chunk] = past->chunks.at[i].landed ? &past->chunks.at[i] : NULL;
    return last;
}

static bool was_done(const struct pull_past *past, size_t file, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return false;
    int64_t mtime_ns = st.st_mtim.tv_sec * BASE_SECOND_NS + st.st_mtim.tv_nsec;
    for (size_t i = 0; i < past->done.n; i++)
        if (past->done.at[i].file == file && past->done.at[i].inode == st.st_ino &&
            past->done.at[i].mtime_ns == mtime_ns)
            return true;
    return false;
}

/* Finds or makes the file that number i lands in. */
static int settle_file(struct pull *pull, size_t i, const struct pull_past *past,
                       const struct pull_past_chunk *const *last, struct penstock_error *error)
{
    const struct pull_file *file = &pull->plan.files.at[i];
    struct pull_place *place = &pull->places[i];
    int rc = pull_target_prepare(&pull->target, file->name, error);
    if (rc < 0)
        return rc;
    if (past->state == PULL_PAST_SAME && pull_target_reopen(&pull->target, i, file->len_bytes, &place->temp) == 0) {
        for (size_t c = file->first_chunk; c < file->first_chunk + file->chunks; c++)
            if (last[c])
                pull_queue_resume(&pull->queue, c, last[c]->hashed ? last[c]->digest : NULL, last[c]->this_boot);
        return 0;
    }
    bool may_keep = pull->queue.verify && pull->options->n_globs == 0;
    if ((may_keep || past->done.n > 0) &&
        pull_target_open_final(&pull->target, file->name, file->len_bytes, &place->final) == 0) {
        if (may_keep)
            pull_queue_keep(&pull->queue, i);
        else if (was_done(past, i, place->final))
            pull_queue_done(&pull->queue, i);
        if (pull_queue_kept(&pull->queue, i))
            return 0;
        close(place->final);
        place->final = -1;
    }
    return pull_target_create(&pull->target, i, &place->temp, error);
}

static int reserve_all(struct pull *pull, struct penstock_error *error)
{
    uint64_t need = 0;
    for (size_t i = 0; i < pull->plan.files.n; i++) {
        struct stat st;
        uint64_t len = pull->plan.files.at[i].len_bytes;
        if (pull->places[i].temp < 0 || fstat(pull->places[i].temp, &st) < 0)
            continue;
        uint64_t has = (uint64_t)st.st_blocks * 512;
        need += len > has ? len - has : 0;
    }
    int rc = pull_target_space(&pull->target, need, error);
    for (size_t i = 0; i < pull->plan.files.n && rc == 0; i++)
        if (pull->places[i].temp >= 0)
            rc =
                pull_target_reserve(&pull->target, pull->places[i].temp, pull->plan.files.at[i].len_bytes, need, error);
    return rc;
}

static void say_past(const struct pull *pull, struct progress *progress, enum pull_past_state state)
{
    const char *dir = pull->target.path;
    if (state == PULL_PAST_DAMAGED)
        progress_say(progress, "%s: the journal of an interrupted pull is damaged: starting over", dir);
    if (state == PULL_PAST_OTHER)
        progress_say(progress, "%s: the model has changed since the interrupted pull, or is another: starting over",
                     dir);
}

static int write_head(struct pull *pull, struct penstock_error *error)
{
    if (pull->plan.head.n == 0 || pull->places[0].temp < 0)
        return 0;
    ssize_t n = pwrite(pull->places[0].temp, pull->plan.head.at, pull->plan.head.n, 0);
    if (n == (ssize_t)pull->plan.head.n)
        return 0;
    return base_error_sys(error, n < 0 ? errno : ENOSPC, "%s: the header can't be written", pull->target.path);
}

/* Before the first worker. */
static void say_settled(const struct pull *pull, struct progress *progress)
{
    const struct pull_queue *queue = &pull->queue;
    char all[CLI_COUNT_MAX], files[CLI_COUNT_MAX];
    uint64_t resumed = queue->count[PULL_LANDED] + queue->count[PULL_CHECK] + queue->count[PULL_GOOD], kept = 0;
    for (size_t i = 0; i < pull->plan.files.n; i++)
        if (pull_queue_kept(queue, i)) {
            kept++;
            resumed -= pull->plan.files.at[i].chunks;
        }
    progress_say(progress, "%llu of %s resumed; %s kept%s", (unsigned long long)resumed,
                 cli_count(pull->plan.chunks, "chunk", all), cli_count(kept, "file", files),
                 queue->verify ? ", to be compared with the peer's digests" : "");
}

/* Opens the journal, takes up what an earlier pull left, and reserves space for the rest. */
static int settle(struct pull *pull, struct progress *progress, struct penstock_error *error)
{
    struct pull_identity identity = { .version = version_of(pull) };
    pull_plan_mark(&pull->plan, identity.mark);
    pull_boot_id(identity.boot);

    struct base_buf text = { 0 };
    struct pull_past past = { 0 };
    int rc = pull_journal_open(pull->target.dir_fd, pull->target.path, &pull->journal, error);
    if (rc == 0)
        rc = pull_journal_text(&pull->journal, &text, error);
    if (rc == 0)
        rc = pull_past_read((const char *)text.at, text.n, &identity, pull->plan.chunks, pull->plan.files.n, &past,
                            error);
    base_buf_fini(&text);
    if (rc < 0)
        return rc;

    say_past(pull, progress, past.state);
    /* Without a version only digests can tell whether it is still the same model. */
    if (past.state == PULL_PAST_SAME && !pull->queue.versioned && !pull->queue.verify)
        past.state = PULL_PAST_OTHER;
    if (past.state != PULL_PAST_SAME) {
        pull_target_clean(&pull->target);
        past.whole_bytes = past.done.n = 0;
    }
    rc = pull_journal_begin(&pull->journal, &identity, past.whole_bytes, error);
    const struct pull_past_chunk **last = last_records(pull, &past);
    if (rc == 0 && !last)
        rc = base_error_set(error, PENSTOCK_ENOMEM, "no memory for the journal of the interrupted pull");
    for (size_t i = 0; i < pull->plan.files.n && rc == 0; i++)
        rc = settle_file(pull, i, &past, last, error);
    free(last);
    pull_past_fini(&past);
    if (rc == 0 && pull->options->verbose)
        say_settled(pull, progress);
    if (rc == 0)
        rc = reserve_all(pull, error);
    return rc == 0 ? write_head(pull, error) : rc;
}

/* ---- workers ---- */

static uint64_t in_place(const struct pull *pull)
{
    return pull->queue.bytes[PULL_LANDED] + pull->queue.bytes[PULL_GOOD];
}

/* Until the pull is over. The main thread sees to signals and progress, and moves no bytes. */
static void watch(struct pull *pull, int signal_fd, struct progress *progress)
{
    for (bool over = false; !over;) {
        struct pollfd fds[] = { { .fd = pull->over_fd, .events = POLLIN }, { .fd = signal_fd, .events = POLLIN } };
        poll(fds, 2, TICK_MS);
        over = fds[0].revents != 0;
        if (fds[1].revents) {
            struct penstock_error error;
            pull_end(pull, base_error_set(&error, PENSTOCK_ECANCELED, "interrupted"), &error);
        }
        pthread_mutex_lock(&pull->lock);
        uint64_t here = in_place(pull);
        bool digests = pull->queue.count[PULL_LANDED] > 0 && here == pull->plan.bytes;
        pthread_mutex_unlock(&pull->lock);
        if (!over)
            progress_tick(progress, here, pull->plan.bytes, digests ? "waiting for the peer's digests" : NULL);
    }
    progress_end(progress);
}

static int work(struct pull *pull, struct penstock_session *session, int signal_fd, struct progress *progress,
                struct penstock_error *error)
{
    /* Further connections join a version of the model: without one there is only the first. */
    unsigned n = penstock_catalogue_version(pull->catalogue) ? pull->options->connections : 1;
    if (n > pull->plan.chunks)
        n = pull->plan.chunks > 0 ? (unsigned)pull->plan.chunks : 1;
    struct pull_worker *workers = calloc(n, sizeof *workers);
    if (!workers) {
        penstock_session_free(session);
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %u connections", n);
    }
    pull->alive = n;
    unsigned started = 0;
    for (; started < n; started++) {
        workers[started] = (struct pull_worker){ .pull = pull, .session = started == 0 ? session : NULL };
        int failed = pthread_create(&workers[started].thread, NULL, pull_land, &workers[started]);
        if (failed) {
            base_error_sys(error, failed, "no thread for connection %u", started + 1);
            break;
        }
    }
    if (started < n) {
        pthread_mutex_lock(&pull->lock);
        pull->alive -= n - started;
        pthread_mutex_unlock(&pull->lock);
    }
    if (started == 0) {
        penstock_session_free(session);
        pull_end(pull, error->code, error);
    }
    watch(pull, signal_fd, progress);
    for (unsigned i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    free(workers);
    if (pull->rc < 0)
        *error = pull->error;
    return pull->rc;
}

/* Every byte is there: each file gets its name. */
static int land_all(struct pull *pull, struct progress *progress, struct penstock_error *error)
{
    char escaped[300], size[CLI_SIZE_MAX];
    for (size_t i = 0; i < pull->plan.files.n; i++) {
        const char *name = pull->plan.files.at[i].name;
        struct stat st;
        int temp = pull->places[i].temp;
        if (pull_queue_kept(&pull->queue, i))
            continue;
        progress_tick(progress, in_place(pull), pull->plan.bytes, "waiting for the disk");
        if (fdatasync(temp) < 0 || fstat(temp, &st) < 0)
            return base_error_sys(error, errno, "%s: file %zu can't be written to the disk", pull->target.path, i);
        int rc = pull_target_land(&pull->target, i, name, error);
        if (rc < 0)
            return rc;
        pull_journal_done(&pull->journal, i, st.st_ino, st.st_mtim.tv_sec * BASE_SECOND_NS + st.st_mtim.tv_nsec);
        cli_escape(escaped, sizeof escaped, name);
        if (pull->options->verbose)
            progress_say(progress, "%s: done, %s", escaped, cli_size(pull->plan.files.at[i].len_bytes, size));
    }
    return 0;
}

/* ---- one start ---- */

static void report(const struct pull *pull, uint64_t resumed, struct pull_result *result)
{
    result->bytes = pull->plan.bytes;
    result->fetched_bytes = pull->fetched_bytes;
    result->resumed_bytes = resumed;
    result->files = pull->plan.files.n;
    result->verified = pull_queue_verified(&pull->queue) && pull->options->n_globs == 0;
    result->no_digests = pull->queue.no_digests;
    result->connections = pull->joined;
    result->damaged = pull->queue.damaged;
    result->rails = pull->rails;
    snprintf(result->model, sizeof result->model, "%s", penstock_catalogue_model_id(pull->catalogue));
    snprintf(result->version, sizeof result->version, "%s", version_of(pull));
}

/* whole: all is done. Returns whether something is left to resume. */
static bool pull_fini(struct pull *pull, bool whole)
{
    bool nothing = pull->journal.fd >= 0 && pull->queue.chunks && in_place(pull) == 0 && pull->fetched_bytes == 0;
    /* An empty beginning is not worth resuming, and may hold gigabytes of the disk. */
    bool left = pull->journal.fd >= 0 && !whole && !nothing;
    if (pull->journal.fd >= 0 && !left)
        pull_target_clean(&pull->target);
    pull_journal_close(pull->target.dir_fd, &pull->journal, !left);
    for (size_t i = 0; pull->places && i < pull->plan.files.n; i++) {
        if (pull->places[i].temp >= 0)
            close(pull->places[i].temp);
        if (pull->places[i].final >= 0)
            close(pull->places[i].final);
    }
    free(pull->places);
    if (pull->queue.plan)
        pull_queue_fini(&pull->queue);
    pull_plan_fini(&pull->plan);
    pull_target_close(&pull->target);
    penstock_catalogue_unref(pull->catalogue);
    pthread_mutex_destroy(&pull->lock);
    if (pull->over_fd >= 0)
        close(pull->over_fd);
    return left;
}

static int make_plan(struct pull *pull, const char *name, struct progress *progress, struct penstock_error *error)
{
    const struct pull_options *options = pull->options;
    char count[CLI_COUNT_MAX], size[CLI_SIZE_MAX];
    int rc = options->n_globs > 0
                 ? pull_plan_tensors(pull->catalogue, options->globs, options->n_globs, name, &pull->plan, error)
                 : pull_plan_model(pull->catalogue, &pull->plan, error);
    if (rc < 0)
        return rc;
    if (pull->plan.skipped > 0)
        progress_say(progress, "left out %s: names that are not acceptable",
                     cli_count(pull->plan.skipped, "file", count));
    char model[300];
    cli_escape(model, sizeof model, penstock_catalogue_model_id(pull->catalogue));
    if (options->verbose)
        progress_say(progress, "%s, version %s: %s, %s", model, version_of(pull),
                     cli_count(pull->plan.files.n, "file", count), cli_size(pull->plan.bytes, size));
    return 0;
}

/* What a pull remembers grows with the model: a size that the disk cannot have is refused first. */
static int make_room(struct pull *pull, struct penstock_error *error)
{
    int rc = pull_target_capacity(&pull->target, pull->plan.bytes, error);
    if (rc < 0)
        return rc;
    pull->places = malloc((pull->plan.files.n + 1) * sizeof *pull->places);
    if (!pull->places)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the list of files");
    for (size_t i = 0; i < pull->plan.files.n; i++)
        pull->places[i] = (struct pull_place){ -1, -1 };
    /* Digests are of whole files' chunks: a choice of tensors has none. */
    bool verify = pull->options->verify && pull->options->n_globs == 0;
    return pull_queue_init(&pull->queue, &pull->plan, verify, penstock_catalogue_version(pull->catalogue) != NULL,
                           error);
}

static int pull_once(const struct pull_options *options, int signal_fd, struct progress *progress,
                     struct pull_result *result, struct penstock_error *error)
{
    struct pull pull = { .options = options, .target = { .dir_fd = -1 }, .journal = { .fd = -1 } };
    pthread_mutex_init(&pull.lock, NULL);
    pull.over_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    char dir[4096], name[512];
    struct penstock_session *session = NULL;
    uint64_t resumed = 0;
    int rc = pull.over_fd < 0 ? base_error_sys(error, errno, "eventfd") : 0;
    if (rc == 0)
        rc = choose_target(options, dir, sizeof dir, name, sizeof name, error);
    if (rc == 0) {
        if (!options->quiet)
            patience_begin("waiting for %s to stage %s%s...", options->peer, options->model,
                           options->transport == PENSTOCK_TRANSPORT_TCP ? "" : ", or to register it for RDMA");
        rc = pull_session_open(options, NULL, signal_fd, &session, error);
        patience_end();
    }
    if (rc == 0) {
        pull.catalogue = penstock_session_catalogue(session);
        pull_rails_add(&pull.rails, session, false);
        if (options->verbose)
            pull_rails_say(&pull.rails, progress);
        rc = make_plan(&pull, name, progress, error);
    }
    if (rc == 0)
        rc = pull_target_open(dir, &pull.target, error);
    if (rc == 0)
        rc = make_room(&pull, error);
    if (rc == 0)
        rc = settle(&pull, progress, error);
    if (rc == 0) {
        resumed = in_place(&pull) + pull.queue.bytes[PULL_CHECK];
        if (resumed > 0)
            progress_say(progress, "%llu of %llu bytes are in %s already", (unsigned long long)resumed,
                         (unsigned long long)pull.plan.bytes, dir);
        progress_begin(progress, in_place(&pull));
        rc = work(&pull, session, signal_fd, progress, error);
        session = NULL;
    }
    if (rc == 0)
        rc = land_all(&pull, progress, error);
    progress_end(progress);
    if (rc == 0) {
        report(&pull, resumed, result);
        snprintf(result->where, sizeof result->where, "%s%s%s", dir, *name ? "/" : "", name);
    }
    penstock_session_free(session);
    result->resumable = pull_fini(&pull, rc == 0);
    return rc;
}

/* A model may have more files than the usual limit on open ones. */
static void raise_open_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int pull_run(const struct pull_options *options, struct pull_result *result, struct penstock_error *error)
{
    *result = (struct pull_result){ 0 };
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    raise_open_files();
    int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0)
        return base_error_sys(error, errno, "signalfd");

    struct progress progress;
    progress_init(&progress, options->quiet);
    int64_t begun_ns = base_now_ns();
    int rc = 0;
    for (int start = 1; start <= STARTS; start++) {
        rc = pull_once(options, signal_fd, &progress, result, error);
        if (rc != PENSTOCK_ESTALE)
            break;
        if (start < STARTS)
            progress_say(&progress, "the model has changed on the peer: starting over");
    }
    result->seconds = (double)(base_now_ns() - begun_ns) / 1e9;
    close(signal_fd);
    return rc;
}
