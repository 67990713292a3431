/* penstock stat: what a peer's cache holds, once or again and again. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <penstock/cache.h>

#include "arguments.h"
#include "base/clock.h"
#include "base/error.h"
#include "cache_arena.h"
#include "cmd.h"
#include "patience.h"
#include "reach.h"
#include "text.h"

static const char help[] =
    "usage: penstock stat PEER [--json] [--watch[=SECONDS]] [--timeout SECONDS]\n"
    "\n"
    "Says what a peer's cache holds: memory and disk in use, and a row for each arena, with what happened in it since\n"
    "the peer started. PEER is HOST, HOST:PORT or [IPV6]:PORT (9916 where no port is given).\n"
    "\n"
    "      --json             print what the peer says, as it says it: one JSON object\n"
    "      --watch[=SECONDS]  ask again every so many seconds (default 1), until interrupted; from the second time on\n"
    "                         what happened is given for each second since the time before\n"
    "      --timeout SECONDS  give up on a peer that brings no byte for so long (default 300; 30 to connect)\n";

enum { OPT_JSON = 256, OPT_WATCH };

static const struct option long_options[] = {
    { "json", no_argument, NULL, OPT_JSON },
    { "watch", optional_argument, NULL, OPT_WATCH },
    { "timeout", required_argument, NULL, REACH_TIMEOUT },
    { "help", no_argument, NULL, 'h' },
    { 0 },
};

struct command {
    struct reach reach;
    const char *peer;
    double watch_s; /* 0: once */
    bool json, help_asked;
};

static int parse(int argc, char **argv, struct command *c)
{
    int status = CLI_OK;
    optind = 1;
    for (int option; status == CLI_OK && (option = getopt_long(argc, argv, "h", long_options, NULL)) != -1;)
        switch (option) {
        case OPT_JSON:
            c->json = true;
            break;
        case OPT_WATCH:
            c->watch_s = 1;
            if (optarg && !cli_real(optarg, 0.01, 86400, &c->watch_s))
                status = cli_wrong("stat", "--watch takes seconds, 0.01 to 86400, not ", optarg);
            break;
        case 'h':
            c->help_asked = true;
            return CLI_OK;
        default:
            status = reach_take(&c->reach, "stat", option, optarg);
        }
    if (status == CLI_OK && argc - optind != 1)
        status = cli_wrong("stat", "", "a PEER is needed, and no more");
    c->peer = argv[optind];
    return status;
}

/* ---- a table ---- */

enum { STATES = 9, COUNTERS = 7, COLUMNS = STATES + COUNTERS, CELL_MAX = 28 };

static const char *const titles[COLUMNS] = { "KIND",     "BLOB",   "ARENA",   "SLOTS", "RESIDENT", "ON DISK",
                                             "RESERVED", "PINNED", "CLIENTS", "HITS",  "MISSES",   "PUTS",
                                             "SPILLS",   "FAULTS", "DROPS",   "ERRORS" };

typedef char row[COLUMNS][CELL_MAX];

static void counters_of(const struct penstock_cache_arena *a, uint64_t out[COUNTERS])
{
    const uint64_t all[COUNTERS] = { a->hits, a->misses, a->puts, a->spills, a->faults, a->drops, a->errors };
    memcpy(out, all, sizeof all);
}

/* The same arena a moment ago; NULL: there was none. */
static const struct penstock_cache_arena *arena_before(const struct penstock_cache_stats *before,
                                                       const struct penstock_cache_arena *now)
{
    const struct penstock_cache_arena *a;
    for (size_t i = 0; (a = penstock_cache_stats_arena(before, i)); i++)
        if (a->kind == now->kind && a->blob_bytes == now->blob_bytes)
            return a;
    return NULL;
}

/* seconds 0: since the peer started. */
static void fill_counters(const struct penstock_cache_arena *a, const struct penstock_cache_arena *before,
                          double seconds, row cells)
{
    uint64_t now[COUNTERS], then[COUNTERS] = { 0 };
    counters_of(a, now);
    if (before)
        counters_of(before, then);
    for (int i = 0; i < COUNTERS; i++) {
        uint64_t since = now[i] >= then[i] ? now[i] - then[i] : now[i]; /* another peer by now: it was restarted */
        if (seconds > 0)
            snprintf(cells[STATES + i], CELL_MAX, "%.1f", (double)since / seconds);
        else
            snprintf(cells[STATES + i], CELL_MAX, "%" PRIu64, now[i]);
    }
}

static void fill_states(const struct penstock_cache_arena *a, row cells)
{
    char size[CLI_SIZE_MAX];
    const uint64_t numbers[] = { a->slots, a->resident, a->on_disk, a->reserved, a->pinned, a->connections };
    snprintf(cells[0], CELL_MAX, "%s", cache_arena_kind(a->kind));
    snprintf(cells[1], CELL_MAX, "%s", cli_size(a->blob_bytes, size));
    snprintf(cells[2], CELL_MAX, "%s", a->arena_bytes ? cli_size(a->arena_bytes, size) : "-");
    for (int i = 0; i < STATES - 3; i++)
        snprintf(cells[3 + i], CELL_MAX, "%" PRIu64, numbers[i]);
}

static void print_rows(row *rows, size_t n)
{
    size_t widths[COLUMNS] = { 0 };
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < COLUMNS; c++)
            if (strlen(rows[i][c]) > widths[c])
                widths[c] = strlen(rows[i][c]);
    for (size_t i = 0; i < n; i++) {
        printf("%-*s", (int)widths[0], rows[i][0]);
        for (int c = 1; c < COLUMNS; c++)
            printf("  %*s", (int)widths[c], rows[i][c]);
        putchar('\n');
    }
}

static void print_used(const char *what, uint64_t used, uint64_t cap, const char *end)
{
    char a[CLI_SIZE_MAX], b[CLI_SIZE_MAX];
    printf("%s %s %s%s%s", what, cli_size(used, a), cap ? "of " : "(no cap)", cap ? cli_size(cap, b) : "", end);
}

static int print_table(const struct penstock_cache_stats *now, const struct penstock_cache_stats *before,
                       double seconds, struct penstock_error *error)
{
    const struct penstock_cache_totals *t = penstock_cache_stats_totals(now);
    size_t n = penstock_cache_stats_arenas(now);
    row *rows = calloc(n + 1, sizeof *rows);
    if (!rows)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a table of %zu arenas", n);
    for (int c = 0; c < COLUMNS; c++)
        snprintf(rows[0][c], CELL_MAX, "%s%s", titles[c], c >= STATES && seconds > 0 ? "/S" : "");
    for (size_t i = 0; i < n; i++) {
        const struct penstock_cache_arena *a = penstock_cache_stats_arena(now, i);
        fill_states(a, rows[i + 1]);
        fill_counters(a, arena_before(before, a), seconds, rows[i + 1]);
    }
    print_used("memory", t->memory_used, t->memory_cap, ", ");
    print_used("swap", t->swap_used, t->swap_cap, n ? "\n" : "\nno arenas\n");
    if (n)
        print_rows(rows, n + 1);
    free(rows);
    return 0;
}

/* ---- once, or again and again ---- */

static void print_json(const struct penstock_cache_stats *stats)
{
    const char *text = penstock_cache_stats_json(stats);
    size_t len = strlen(text);
    while (len > 0 && text[len - 1] == '\n')
        len--;
    printf("%.*s\n", (int)len, text);
}

static int run(const struct command *c)
{
    struct penstock_cache_stats *now = NULL, *before = NULL;
    struct penstock_error error = { 0 };
    const struct timespec pause = { .tv_sec = (time_t)c->watch_s,
                                    .tv_nsec = (long)((c->watch_s - (double)(time_t)c->watch_s) * 1e9) };
    int64_t now_ns = 0, before_ns;
    bool clears = c->watch_s > 0 && !c->json && isatty(STDOUT_FILENO);
    int code = 0;
    while (code == 0) {
        before_ns = now_ns;
        patience_begin("waiting for %s...", c->peer);
        code = penstock_cache_stats_get(c->peer, &c->reach.options, &now, &error);
        patience_end();
        if (code)
            break;
        now_ns = base_now_ns();
        if (clears)
            fputs("\033[H\033[2J", stdout);
        if (c->json)
            print_json(now);
        else
            code = print_table(now, before, before ? (double)(now_ns - before_ns) / 1e9 : 0, &error);
        penstock_cache_stats_free(before);
        before = now;
        if (c->watch_s <= 0 || fflush(stdout) != 0)
            break;
        if (!clears && !c->json)
            putchar('\n');
        (void)nanosleep(&pause, NULL);
    }
    penstock_cache_stats_free(before);
    return code ? cli_failed(&error) : CLI_OK;
}

int cmd_stat(int argc, char **argv)
{
    struct command c = { 0 };
    reach_init(&c.reach);
    c.reach.options.transport = PENSTOCK_TRANSPORT_TCP; /* numbers need no rails */
    int status = parse(argc, argv, &c);
    if (c.help_asked)
        fputs(help, stdout);
    else if (status == CLI_OK)
        status = run(&c);
    reach_fini(&c.reach);
    return status;
}
