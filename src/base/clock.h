/* Monotonic time in nanoseconds. A deadline is a point on this clock; BASE_NEVER is none. */
#ifndef PENSTOCK_BASE_CLOCK_H
#define PENSTOCK_BASE_CLOCK_H

#include <stdint.h>

#define BASE_NEVER INT64_MAX
#define BASE_SECOND_NS INT64_C(1000000000)
#define BASE_MS_NS INT64_C(1000000)

int64_t base_now_ns(void);

/* now + timeout, BASE_NEVER where that does not fit or timeout_ns is BASE_NEVER. */
int64_t base_deadline_ns(int64_t timeout_ns);

/* What poll(2) and epoll_wait(2) take to wait until a deadline: -1 for never, 0 when it has passed, else milliseconds
 * rounded up. */
int base_poll_ms(int64_t deadline_ns);

#endif
