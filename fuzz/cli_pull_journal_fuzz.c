#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "cli/pull_journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define CHUNKS 5
#define FILES 3

static void read_journal(const char *text, size_t len)
{
    static const struct pull_identity now = { .version = "v1", .mark = "mark", .boot = "boot-1" };
    struct pull_past past;
    if (pull_past_read(text, len, &now, CHUNKS, FILES, &past, NULL) != 0)
        abort();
    if (past.whole_bytes > len || (past.state != PULL_PAST_SAME && past.chunks.n + past.done.n > 0))
        abort();
    for (size_t i = 0; i < past.chunks.n; i++)
        if (past.chunks.at[i].chunk >= CHUNKS)
            abort();
    for (size_t i = 0; i < past.done.n; i++)
        if (past.done.at[i].file >= FILES)
            abort();
    pull_past_fini(&past);
}

/* As it is, and with a sum at the end of each line that is right, so that what lies behind it is reached. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char *raw = malloc(len ? len : 1); /* a copy of just that size: reading past it is seen */
    struct base_buf summed = { 0 };
    if (!raw)
        abort();
    memcpy(raw, data, len);
    read_journal(raw, len);
    for (const char *line = raw, *end = raw + len, *newline; line < end; line = newline + 1) {
        newline = memchr(line, '\n', (size_t)(end - line));
        if (!newline)
            break;
        base_buf_append(&summed, line, (size_t)(newline - line));
        base_buf_printf(&summed, " %08x\n", (uint32_t)XXH3_64bits(line, (size_t)(newline - line)));
    }
    if (summed.failed)
        abort();
    if (summed.n > 0)
        read_journal((const char *)summed.at, summed.n);
    base_buf_fini(&summed);
    free(raw);
    return 0;
}
