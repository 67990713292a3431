#include "fault.h"

#include <string.h>

/* Writes as much as there is room for, and counts all of it. */
struct sink {
    char *buf;
    size_t size, len;
};

static void sink_char(struct sink *s, char c)
{
    if (s->len + 1 < s->size)
        s->buf[s->len] = c;
    s->len++;
}

static void sink_number(struct sink *s, uint64_t v, unsigned base)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = "0123456789abcdef"[v % base];
        v /= base;
    } while (v);
    while (n > 0)
        sink_char(s, digits[--n]);
}

static void sink_placeholder(struct sink *s, const char *name, size_t len, const struct penstock_wire_fault *fault)
{
    if (len == 5 && memcmp(name, "value", len) == 0) {
        sink_number(s, fault->value, 10);
    } else if (len == 4 && memcmp(name, "want", len) == 0) {
        sink_number(s, fault->want, 10);
    } else {
        sink_char(s, '0');
        sink_char(s, 'x');
        sink_number(s, fault->value, 16);
    }
}

size_t penstock_wire_fault_format(const struct penstock_wire_fault *fault, char *buf, size_t size)
{
    struct sink s = { .buf = buf, .size = size };
    const char *text = fault->reason ? fault->reason : fault->field;

    while (*text) {
        size_t end = 1;
        if (*text != '{') {
            sink_char(&s, *text);
        } else {
            while (text[end] && text[end] != '}')
                end++;
            sink_placeholder(&s, text + 1, end - 1, fault);
            end += text[end] == '}';
        }
        text += end;
    }
    if (size > 0)
        buf[s.len < size ? s.len : size - 1] = '\0';
    return s.len;
}
