#include "rng.h"

#include <errno.h>
#include <sys/random.h>

#include <penstock/error.h>

int base_random(void *out, size_t len)
{
    for (uint8_t *at = out; len > 0;) {
        ssize_t n = getrandom(at, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return PENSTOCK_ESYS;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}
