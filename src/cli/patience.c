#include "patience.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

#define PATIENCE_SECONDS 1

static char line[600]; /* what the handler writes; ready before it can run */

static void say(int signal)
{
    int before = errno;
    ssize_t ignored = write(STDERR_FILENO, line, strlen(line));
    (void)signal;
    (void)ignored;
    errno = before;
}

void patience_begin(const char *format, ...)
{
    char words[400], escaped[500];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    cli_escape(escaped, sizeof escaped, words);
    snprintf(line, sizeof line, "penstock: %s\n", escaped);
    const struct sigaction action = { .sa_handler = say, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    alarm(PATIENCE_SECONDS);
}

void patience_end(void)
{
    alarm(0);
}
