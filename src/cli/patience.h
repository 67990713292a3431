/* For calls that may block for long and say nothing: a line on stderr, once they have taken a second. */
#ifndef PENSTOCK_CLI_PATIENCE_H
#define PENSTOCK_CLI_PATIENCE_H

/* By SIGALRM, so that it holds for name look-ups too: only while the process has one thread, and not nested. */
__attribute__((format(printf, 1, 2))) void patience_begin(const char *format, ...);
void patience_end(void);

#endif
