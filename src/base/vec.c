#include "vec.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"

bool base_vec_grow(void **at, size_t *cap, size_t want, size_t size)
{
    if (want <= *cap)
        return true;
    size_t room, bytes;
    if (!base_add_size(*cap, *cap / 2 + 8, &room))
        return false;
    if (room < want)
        room = want;
    if (!base_mul_size(room, size, &bytes))
        return false;
    void *grown = realloc(*at, bytes);
    if (!grown)
        return false;
    *at = grown;
    *cap = room;
    return true;
}

uint8_t *base_buf_room(struct base_buf *b, size_t len)
{
    size_t want;
    if (b->failed || !base_add_size(b->n, len, &want) || !base_vec_grow((void **)&b->at, &b->cap, want, 1)) {
        b->failed = true;
        return NULL;
    }
    return b->at + b->n;
}

void base_buf_append(struct base_buf *b, const void *bytes, size_t len)
{
    uint8_t *to = len > 0 ? base_buf_room(b, len) : NULL;
    if (!to)
        return;
    memcpy(to, bytes, len);
    b->n += len;
}

void base_buf_printf(struct base_buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    uint8_t *to = n < 0 ? NULL : base_buf_room(b, (size_t)n + 1);
    if (!to)
        return;
    va_start(args, format);
    vsnprintf((char *)to, (size_t)n + 1, format, args);
    va_end(args);
    b->n += (size_t)n;
}

void base_buf_fini(struct base_buf *b)
{
    free(b->at);
    *b = (struct base_buf){ 0 };
}
