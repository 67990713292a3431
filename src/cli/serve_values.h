/* Values of serve's options. Each of these says what is wrong with one, and returns false. */
#ifndef PENSTOCK_CLI_SERVE_VALUES_H
#define PENSTOCK_CLI_SERVE_VALUES_H

#include <stdbool.h>
#include <stdint.h>

bool serve_bad_value(const char *option, const char *value, const char *wanted);

bool serve_number(const char *option, const char *text, double least, double most, double *out);

/* "512M": bytes, or that many of a binary unit. Above 0, or (or_none) 0 as well. */
bool serve_size(const char *option, const char *text, bool or_none, uint64_t *out);

/* "90", "15m": seconds, or that many of s, m, h or d. 0 is for ever. */
bool serve_duration(const char *option, const char *text, uint32_t *out_s);

#endif
