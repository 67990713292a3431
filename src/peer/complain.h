/* Log lines that strangers cause: so many in a time and no more, so that nobody fills the operator's disk. */
#ifndef PENSTOCK_PEER_COMPLAIN_H
#define PENSTOCK_PEER_COMPLAIN_H

#include <pthread.h>
#include <stdint.h>

#define PEER_COMPLAINTS_MAX 30 /* lines in a window */
#define PEER_COMPLAINTS_WINDOW_NS (INT64_C(10) * 1000000000)

struct peer_complaints {
    pthread_mutex_t lock; /* a leaf */
    int64_t window_ends_ns;
    unsigned lines, dropped;
};

void peer_complaints_init(struct peer_complaints *complaints);
void peer_complaints_fini(struct peer_complaints *complaints);

/* Whether a line may be written now. *dropped: how many were not since the last window, to be told with this one. */
int peer_complaints_allow(struct peer_complaints *complaints, int64_t now_ns, unsigned *dropped);

/* A warning, if it may be. */
__attribute__((format(printf, 2, 3))) void peer_complain(struct peer_complaints *complaints, const char *format, ...);

#endif
