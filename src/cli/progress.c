#include "progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "text.h"

#define EVERY_TERMINAL_NS (BASE_SECOND_NS / 5)
#define EVERY_PLAIN_NS (10 * BASE_SECOND_NS)

void progress_init(struct progress *progress, bool quiet)
{
    *progress = (struct progress){ .quiet = quiet, .terminal = isatty(STDERR_FILENO) == 1 };
    progress_begin(progress, 0);
}

void progress_begin(struct progress *progress, uint64_t bytes)
{
    progress->begun_ns = progress->said_ns = base_now_ns();
    progress->begun_bytes = bytes;
}

void progress_end(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}

void progress_tick(struct progress *progress, uint64_t bytes, uint64_t total, const char *waiting)
{
    int64_t now = base_now_ns();
    if (progress->quiet || now - progress->said_ns < (progress->terminal ? EVERY_TERMINAL_NS : EVERY_PLAIN_NS))
        return;
    progress->said_ns = now;
    double seconds = (double)(now - progress->begun_ns) / 1e9;
    double rate = bytes > progress->begun_bytes ? (double)(bytes - progress->begun_bytes) / seconds : 0;
    char have[CLI_SIZE_MAX], all[CLI_SIZE_MAX], speed[CLI_SIZE_MAX], left[CLI_SIZE_MAX] = "?";
    if (rate > 0)
        cli_duration((double)(total - bytes) / rate, left);
    progress_end(progress);
    fprintf(stderr, "%5.1f%%  %s of %s  %s/s  %s%s", total ? 100.0 * (double)bytes / (double)total : 100.0,
            cli_size(bytes, have), cli_size(total, all), cli_size((uint64_t)rate, speed), waiting ? waiting : left,
            waiting ? "" : " left");
    if (!progress->terminal)
        fputc('\n', stderr);
    progress->shown = progress->terminal;
}

void progress_say(struct progress *progress, const char *format, ...)
{
    if (progress->quiet)
        return;
    progress_end(progress);
    va_list args;
    va_start(args, format);
    fputs("penstock: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}
