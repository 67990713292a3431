/* The daemon's log: one line a call to stderr, from any thread. Nothing in libpenstock's client calls it. */
#ifndef PENSTOCK_BASE_LOG_H
#define PENSTOCK_BASE_LOG_H

#include <stdbool.h>

enum base_log_level { BASE_LOG_ERROR, BASE_LOG_WARNING, BASE_LOG_INFO, BASE_LOG_DEBUG };

/* Set once, before any thread starts. journal: lines begin with the "<3>" priorities that systemd reads, and carry no
 * time of their own. */
void base_log_init(enum base_log_level least, bool journal);

/* Control characters in the words are written as \xNN: what a stranger sent cannot forge a line. */
__attribute__((format(printf, 2, 3))) void base_log(enum base_log_level level, const char *format, ...);

#define base_log_error(...) base_log(BASE_LOG_ERROR, __VA_ARGS__)
#define base_log_warning(...) base_log(BASE_LOG_WARNING, __VA_ARGS__)
#define base_log_info(...) base_log(BASE_LOG_INFO, __VA_ARGS__)
#define base_log_debug(...) base_log(BASE_LOG_DEBUG, __VA_ARGS__)

#endif
