/* How command lines are read, and failures told: the same in every command. */
#ifndef PENSTOCK_CLI_ARGUMENTS_H
#define PENSTOCK_CLI_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include <penstock/error.h>

/* Says "penstock COMMAND: WORDS WHAT", and where help is. CLI_USAGE. */
int cli_wrong(const char *command, const char *words, const char *what);
/* Says why. CLI_FAILED. */
int cli_failed(const struct penstock_error *error);

/* All of text, in decimal, within bounds; else false. */
bool cli_number(const char *text, uint64_t least, uint64_t most, uint64_t *out);
bool cli_real(const char *text, double least, double most, double *out);
/* "512M": bytes above 0, or that many of a binary unit: K, M, G or T. */
bool cli_bytes(const char *text, uint64_t *out);

#endif
