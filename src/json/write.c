#include "write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "utf8.h"

static const char pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445"
    "46474849505152535455565758596061626364656667686970717273747576777879808182838485868788899091"
    "9293949596979899";

char *json_put_u64(char *to, uint64_t value)
{
    char digits[JSON_U64_MAX_BYTES];
    size_t at = sizeof digits;
    while (value >= 100) {
        memcpy(digits + (at -= 2), pairs + 2 * (value % 100), 2);
        value /= 100;
    }
    if (value >= 10)
        memcpy(digits + (at -= 2), pairs + 2 * value, 2);
    else
        digits[--at] = (char)('0' + value);
    memcpy(to, digits + at, sizeof digits - at);
    return to + (sizeof digits - at);
}

/* Whether all eight bytes are printable ASCII that needs no escape. Exact bits do not matter, only zero or not. */
static bool eight_are_plain(uint64_t word)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = UINT64_C(0x8080808080808080);
    uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\';
    uint64_t bad = word | (word - ones * 0x20) | (quote - ones) | (backslash - ones);
    return (bad & high) == 0;
}

static char *put_escaped(char *to, unsigned char c)
{
    static const char letters[] = "btn?fr"; /* from 8 on; 11 has none */
    static const char hex[] = "0123456789abcdef";
    *to++ = '\\';
    if (c == '"' || c == '\\') {
        *to++ = (char)c;
    } else if (c >= 8 && c <= 13 && c != 11) {
        *to++ = letters[c - 8];
    } else {
        to[0] = 'u';
        to[1] = to[2] = '0';
        to[3] = hex[c >> 4];
        to[4] = hex[c & 15];
        to += 5;
    }
    return to;
}

char *json_put_string(char *to, const char *at, size_t len)
{
    const char *end = at + len;
    *to++ = '"';
    while (at < end) {
        uint64_t word;
        if (end - at >= 8 && (memcpy(&word, at, 8), eight_are_plain(word))) {
            memcpy(to, at, 8);
            to += 8;
            at += 8;
            continue;
        }
        unsigned char c = (unsigned char)*at;
        if (c < 0x20 || c == '"' || c == '\\') {
            to = put_escaped(to, c);
            at++;
        } else if (c < 0x80) {
            *to++ = *at++;
        } else {
            size_t n = json_utf8_len(at, (size_t)(end - at));
            memcpy(to, n > 0 ? at : "\xEF\xBF\xBD", n > 0 ? n : 3);
            to += n > 0 ? n : 3;
            at += n > 0 ? n : 1;
        }
    }
    *to++ = '"';
    return to;
}

static void new_line(struct json_writer *w)
{
    base_buf_append(w->buf, "\n", 1);
    for (unsigned i = 0; i < w->depth; i++)
        base_buf_append(w->buf, "  ", 2);
}

static void separate(struct json_writer *w)
{
    if (w->comma)
        base_buf_append(w->buf, ",", 1);
    if (w->pretty && w->depth > 0 && !w->after_key)
        new_line(w);
    w->comma = true;
    w->after_key = false;
}

static void open_level(struct json_writer *w, const char *bracket)
{
    separate(w);
    base_buf_append(w->buf, bracket, 1);
    w->comma = false;
    w->depth++;
}

static void close_level(struct json_writer *w, const char *bracket)
{
    w->depth--;
    if (w->pretty && w->comma) /* an empty one is closed where it was opened */
        new_line(w);
    base_buf_append(w->buf, bracket, 1);
    w->comma = true;
}

void json_write_object(struct json_writer *w)
{
    open_level(w, "{");
}

void json_write_object_end(struct json_writer *w)
{
    close_level(w, "}");
}

void json_write_array(struct json_writer *w)
{
    open_level(w, "[");
}

void json_write_array_end(struct json_writer *w)
{
    close_level(w, "]");
}

void json_write_key(struct json_writer *w, const char *key)
{
    json_write_text(w, key);
    base_buf_append(w->buf, ": ", w->pretty ? 2 : 1);
    w->comma = false;
    w->after_key = true;
}

void json_write_string(struct json_writer *w, const char *at, size_t len)
{
    separate(w);
    if (len > SIZE_MAX / 8) {
        w->buf->failed = true;
        return;
    }
    char *room = (char *)base_buf_room(w->buf, JSON_STRING_MAX_BYTES(len));
    if (room)
        w->buf->n += (size_t)(json_put_string(room, at, len) - room);
}

void json_write_text(struct json_writer *w, const char *text)
{
    if (text)
        json_write_string(w, text, strlen(text));
    else
        json_write_null(w);
}

void json_write_u64(struct json_writer *w, uint64_t value)
{
    separate(w);
    char *room = (char *)base_buf_room(w->buf, JSON_U64_MAX_BYTES);
    if (room)
        w->buf->n += (size_t)(json_put_u64(room, value) - room);
}

void json_write_i64(struct json_writer *w, int64_t value)
{
    if (value >= 0) {
        json_write_u64(w, (uint64_t)value);
        return;
    }
    separate(w);
    base_buf_append(w->buf, "-", 1);
    w->comma = false;
    w->after_key = true; /* the digits belong where the sign is */
    json_write_u64(w, -(uint64_t)value);
}

void json_write_double(struct json_writer *w, double value)
{
    if (!isfinite(value)) {
        json_write_null(w);
        return;
    }
    separate(w);
    base_buf_printf(w->buf, "%g", value);
}

static void write_word(struct json_writer *w, const char *word)
{
    separate(w);
    base_buf_append(w->buf, word, strlen(word));
}

void json_write_bool(struct json_writer *w, bool value)
{
    write_word(w, value ? "true" : "false");
}

void json_write_null(struct json_writer *w)
{
    write_word(w, "null");
}

void json_write_key_text(struct json_writer *w, const char *key, const char *text)
{
    json_write_key(w, key);
    json_write_text(w, text);
}

void json_write_key_u64(struct json_writer *w, const char *key, uint64_t value)
{
    json_write_key(w, key);
    json_write_u64(w, value);
}

void json_write_key_bool(struct json_writer *w, const char *key, bool value)
{
    json_write_key(w, key);
    json_write_bool(w, value);
}
