#include "arguments.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "text.h"

int cli_wrong(const char *command, const char *words, const char *what)
{
    fprintf(stderr, "penstock %s: %s", command, words);
    cli_print_escaped(stderr, what);
    fprintf(stderr, "\n`penstock %s --help` says how it is used\n", command);
    return CLI_USAGE;
}

int cli_failed(const struct penstock_error *error)
{
    fputs("penstock: ", stderr);
    cli_print_escaped(stderr, error->message);
    fputc('\n', stderr);
    return CLI_FAILED;
}

bool cli_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && errno == 0 && *out >= least && *out <= most;
}

bool cli_real(const char *text, double least, double most, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return !*end && end != text && *out >= least && *out <= most; /* so not where it is no number */
}

bool cli_bytes(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    *out = (uint64_t)number << shift;
    return isdigit((unsigned char)*text) && errno == 0 && !(unit ? end[1] : end[0]) && number > 0 &&
           number <= UINT64_MAX >> shift;
}
