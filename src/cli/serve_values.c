#include "serve_values.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Digits, and at most one letter behind them; *unit is that letter in lower case, or 0. */
static bool whole_number(const char *text, unsigned long long *number, int *unit)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    *unit = tolower((unsigned char)*end);
    return isdigit((unsigned char)text[0]) && !errno && !(*end && end[1]);
}

bool serve_size(const char *option, const char *text, bool or_none, uint64_t *out)
{
    static const char units[] = "kmgt";
    unsigned long long number;
    int letter;
    bool whole = whole_number(text, &number, &letter);
    const char *unit = letter ? strchr(units, letter) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if (!whole || (letter && !unit) || (number == 0 && !or_none) || number > UINT64_MAX >> shift)
        return serve_bad_value(option, text,
                               or_none ? "a size is wanted: bytes, or a number with K, M, G or T, as in 64G; 0 is none"
                                       : "a size is wanted, above 0: bytes, or a number with K, M, G or T, as in 64G");
    *out = (uint64_t)number << shift;
    return true;
}

bool serve_duration(const char *option, const char *text, uint32_t *out_s)
{
    unsigned long long number;
    int unit;
    bool whole = whole_number(text, &number, &unit);
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
