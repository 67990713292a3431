#include "serve_values.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"

bool serve_bad_value(const char *option, const char *value, const char *wanted)
{
    fprintf(stderr, "penstock serve: %s %s: %s\n", option, value, wanted);
    return false;
}

bool serve_number(const char *option, const char *text, double least, double most, double *out)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || errno || !isfinite(value) || value < least || value > most) {
        fprintf(stderr, "penstock serve: %s %s: a number from %g to %g is wanted\n", option, text, least, most);
        return false;
    }
    *out = value;
    return true;
}

bool serve_size(const char *option, const char *text, bool or_none, uint64_t *out)
{
    *out = 0;
    if ((or_none && strcmp(text, "0") == 0) || cli_bytes(text, out))
        return true;
    return serve_bad_value(option, text,
                           or_none ? "a size is wanted: bytes, or a number with K, M, G or T, as in 64G; 0 is none"
                                   : "a size is wanted, above 0: bytes, or a number with K, M, G or T, as in 64G");
}

bool serve_duration(const char *option, const char *text, uint32_t *out_s)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    int unit = tolower((unsigned char)*end);
    bool whole = isdigit((unsigned char)*text) && !errno && !(*end && end[1]);
    unsigned long long factor = unit == 0 || unit == 's' ? 1
                                : unit == 'm'            ? 60
                                : unit == 'h'            ? 3600
                                : unit == 'd'            ? 86400
                                                         : 0;
    if (!whole || factor == 0 || number > UINT32_MAX / factor)
        return serve_bad_value(
            option, text, "a duration is wanted: seconds, or a number with s, m, h or d, as in 12h; 0 is for ever");
    *out_s = (uint32_t)(number * factor);
    return true;
}
