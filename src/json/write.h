/* JSON into a buffer, compact unless it is to be pretty. The writer sets commas and colons itself; calls have to nest
 * rightly, and nothing checks that they do. Out of memory shows in buf->failed, once, at the end. */
#ifndef PENSTOCK_JSON_WRITE_H
#define PENSTOCK_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

struct json_writer {
    struct base_buf *buf;
    bool comma;     /* a value came before, at this level */
    bool pretty;    /* a line a value, indented by two blanks a level; nothing behind the document */
    bool after_key; /* the value goes behind its key */
    unsigned depth;
};

void json_write_object(struct json_writer *w);
void json_write_object_end(struct json_writer *w);
void json_write_array(struct json_writer *w);
void json_write_array_end(struct json_writer *w);
void json_write_key(struct json_writer *w, const char *key);

/* Control characters, quotes and backslashes are escaped; each byte that is no UTF-8 becomes U+FFFD. */
void json_write_string(struct json_writer *w, const char *at, size_t len);
void json_write_text(struct json_writer *w, const char *text); /* NUL-terminated; NULL is null */
void json_write_u64(struct json_writer *w, uint64_t value);
void json_write_i64(struct json_writer *w, int64_t value);
void json_write_double(struct json_writer *w, double value); /* six significant digits; what is not finite is null */
void json_write_bool(struct json_writer *w, bool value);
void json_write_null(struct json_writer *w);

/* Key and value in one. */
void json_write_key_text(struct json_writer *w, const char *key, const char *text);
void json_write_key_u64(struct json_writer *w, const char *key, uint64_t value);
void json_write_key_bool(struct json_writer *w, const char *key, bool value);

/* For loops that count: straight into room that the caller has made. Both return where they stopped. */
enum { JSON_U64_MAX_BYTES = 20 };
char *json_put_u64(char *to, uint64_t value);
/* With its quotes. Takes at most JSON_STRING_MAX_BYTES(len). */
#define JSON_STRING_MAX_BYTES(len) (6 * (len) + 2)
char *json_put_string(char *to, const char *at, size_t len);

#endif
