/* What a command that takes long says on stderr: one line that is rewritten on a terminal, a line now and then
 * elsewhere. */
#ifndef PENSTOCK_CLI_PROGRESS_H
#define PENSTOCK_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool quiet, terminal, shown;
    int64_t begun_ns, said_ns;
    uint64_t begun_bytes; /* that were there already: they count for how far, not for how fast */
};

void progress_init(struct progress *progress, bool quiet);
/* Now, with bytes of the work done already. */
void progress_begin(struct progress *progress, uint64_t bytes);
/* Says where it is, if it is time to. waiting: for what, in place of the time left; NULL for none. */
void progress_tick(struct progress *progress, uint64_t bytes, uint64_t total, const char *waiting);
/* Takes the line away. */
void progress_end(struct progress *progress);
/* A message of its own, with a newline. */
__attribute__((format(printf, 2, 3))) void progress_say(struct progress *progress, const char *format, ...);

#endif
