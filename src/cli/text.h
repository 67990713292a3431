/* What the commands print. Names that a peer gave go through the two escapes: they can neither move a terminal's cursor
 * nor forge a line. */
#ifndef PENSTOCK_CLI_TEXT_H
#define PENSTOCK_CLI_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Control characters become \xNN. Writes what fits, always terminated, and returns the length that all of it has. */
size_t cli_escape(char *out, size_t size, const char *text);
/* The same to a stream. Returns the columns written, one a character of UTF-8. */
size_t cli_print_escaped(FILE *to, const char *text);
/* With quotes. What is not UTF-8, as an argument or a path can be, becomes U+FFFD. */
void cli_print_json(FILE *to, const char *text);

#define CLI_SIZE_MAX 24
/* "17 B", "1.25 GiB". Returns out. */
const char *cli_size(uint64_t bytes, char out[CLI_SIZE_MAX]);
#define CLI_COUNT_MAX 40
/* "1 file", "2 files"; noun: one that takes an s, of at most 16 characters. Returns out. */
const char *cli_count(uint64_t n, const char *noun, char out[CLI_COUNT_MAX]);
/* "12 s", "3 min 05 s", "2 h 10 min". Returns out. */
const char *cli_duration(double seconds, char out[CLI_SIZE_MAX]);

#endif
