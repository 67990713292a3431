#include "clock.h"

#include <limits.h>
#include <time.h>

int64_t base_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * BASE_SECOND_NS + t.tv_nsec;
}

int64_t base_deadline_ns(int64_t timeout_ns)
{
    int64_t at;
    if (timeout_ns == BASE_NEVER || __builtin_add_overflow(base_now_ns(), timeout_ns, &at))
        return BASE_NEVER;
    return at;
}

int base_poll_ms(int64_t deadline_ns)
{
    if (deadline_ns == BASE_NEVER)
        return -1;
    int64_t left = deadline_ns - base_now_ns();
    if (left <= 0)
        return 0;
    int64_t ms = left / BASE_MS_NS + (left % BASE_MS_NS != 0);
    return ms > INT_MAX ? INT_MAX : (int)ms;
}
