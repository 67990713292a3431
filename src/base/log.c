#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum base_log_level threshold = BASE_LOG_INFO;
static bool for_journal;

void base_log_init(enum base_log_level least, bool journal)
{
    threshold = least;
    for_journal = journal;
}

static size_t prefix(char *line, size_t size, enum base_log_level level)
{
    static const char *const names[] = { "error", "warning", "info", "debug" };
    static const char *const priorities[] = { "<3>", "<4>", "<6>", "<7>" };
    if (for_journal)
        return (size_t)snprintf(line, size, "%s", priorities[level]);
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(line, size, "%Y-%m-%dT%H:%M:%S", &utc);
    return n + (size_t)snprintf(line + n, size - n, ".%03ldZ %s: ", now.tv_nsec / 1000000, names[level]);
}

/* The bytes of a control character at c, or 0. 8-bit ones too, C2 80 to C2 9F in UTF-8: some terminals obey them. */
static size_t control_bytes(const unsigned char *c)
{
    if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
        return 2;
    return c[0] < 0x20 || c[0] == 0x7f;
}

void base_log(enum base_log_level level, const char *format, ...)
{
    if (level > threshold)
        return;
    char words[1536], line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);

    size_t n = prefix(line, sizeof line, level);
    for (const char *c = words; *c && n + 10 < sizeof line;) {
        size_t control = control_bytes((const unsigned char *)c);
        if (control == 0)
            line[n++] = *c++;
        for (; control > 0; control--)
            n += (size_t)snprintf(line + n, sizeof line - n, "\\x%02x", (unsigned char)*c++);
    }
    line[n++] = '\n';
    /* One write a line, so that lines of several threads do not mix. A log that cannot be written stops nothing. */
    ssize_t ignored = write(STDERR_FILENO, line, n);
    (void)ignored;
}
