/* What systemd is told (sd_notify), without its library. */
#ifndef PENSTOCK_PEER_NOTIFY_H
#define PENSTOCK_PEER_NOTIFY_H

/* "READY=1", "STOPPING=1". Nothing where NOTIFY_SOCKET is not set. */
void peer_notify(const char *state);

#endif
