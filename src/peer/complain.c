#include "complain.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

void peer_complaints_init(struct peer_complaints *complaints)
{
    *complaints = (struct peer_complaints){ 0 };
    pthread_mutex_init(&complaints->lock, NULL);
}

void peer_complaints_fini(struct peer_complaints *complaints)
{
    pthread_mutex_destroy(&complaints->lock);
}

int peer_complaints_allow(struct peer_complaints *complaints, int64_t now_ns, unsigned *dropped)
{
    *dropped = 0;
    pthread_mutex_lock(&complaints->lock);
    if (now_ns >= complaints->window_ends_ns) {
        *dropped = complaints->dropped;
        complaints->window_ends_ns = now_ns + PEER_COMPLAINTS_WINDOW_NS;
        complaints->lines = complaints->dropped = 0;
    }
    int allowed = complaints->lines < PEER_COMPLAINTS_MAX;
    if (allowed)
        complaints->lines++;
    else
        complaints->dropped++;
    pthread_mutex_unlock(&complaints->lock);
    return allowed;
}

void peer_complain(struct peer_complaints *complaints, const char *format, ...)
{
    unsigned dropped;
    if (!peer_complaints_allow(complaints, base_now_ns(), &dropped))
        return;
    if (dropped > 0)
        base_log_warning("%u more warnings were not written", dropped);
    char words[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    base_log_warning("%s", words);
}
