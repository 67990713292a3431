/* The keys of rank_pattern and alpha_pattern. PEFT takes each as a Python regular expression that has to match the
 * module's path, or its end behind a dot. What is taken here is the part of that language whose meaning is beyond
 * doubt and whose cost has a bound:
 *
 *   characters as they are, . for any one, \. and other escaped punctuation, \d and \w, [abc] [a-z] [^a-z];
 *   * + ? behind one of these; ( ) with | inside, also with * + ? behind; ^ at the start and $ at the end.
 *
 * Everything else is refused before anything is matched: no expression is taken for something that it is not. */
#ifndef PENSTOCK_MODEL_LORA_PATTERN_H
#define PENSTOCK_MODEL_LORA_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a path has to be for that: printable ASCII, no longer than this. */
enum { MODEL_LORA_PATH_MAX = 512 };
bool model_lora_path_plain(const char *path, size_t len);

/* NULL: it can be matched. Else what is not supported in it; static. */
const char *model_lora_pattern_fault(const char *pattern, size_t len);

/* pattern has no fault, and path is plain. Adds to *effort what it cost, in characters looked at. */
bool model_lora_pattern_matches(const char *pattern, size_t pattern_len, const char *path, size_t path_len,
                                uint64_t *effort);

#endif
