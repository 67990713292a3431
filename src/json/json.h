/* JSON. Small documents become a tree; the two big ones have readers of their own (records.h); write.h is
 * the way out. simdjson does the parsing, behind walk.cc and the record readers.
 *
 * Every reader here refuses, as ECORRUPT: what is not UTF-8, control characters and lone surrogates in strings, numbers
 * that do not fit, anything but blanks behind the document, and more than JSON_DEPTH_MAX levels. */
#ifndef PENSTOCK_JSON_JSON_H
#define PENSTOCK_JSON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <penstock/error.h>

#include "base/pool.h"

enum { JSON_DEPTH_MAX = 64 };

/* What simdjson may read, and not use, behind a text. */
#define JSON_PADDING 64

enum json_type {
    JSON_NULL,
    JSON_BOOL,
    JSON_U64, /* an integer of 0 or above */
    JSON_I64, /* a negative integer */
    JSON_DOUBLE,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

/* UTF-8, with a NUL behind it. May hold a NUL as well: json_get_string refuses that one. */
struct json_string {
    const char *at;
    size_t len;
};

struct json_member;

struct json_value {
    enum json_type type;
    union {
        bool boolean;
        uint64_t u64;
        int64_t i64;
        double number;
        struct json_string string;
        struct {
            const struct json_value *at;
            size_t n;
        } array;
        struct {
            const struct json_member *at;
            size_t n;
        } object; /* members in the order of the text, a key that is there twice included */
    };
};

struct json_member {
    struct json_string key;
    struct json_value value;
};

struct json_doc {
    struct json_value root; /* an object or an array */
    struct base_pool pool;
};

/* Copies text. On failure *out is empty; json_doc_fini does it no harm. */
PENSTOCK_CHECKED int json_parse(const char *text, size_t len, struct json_doc *out, struct penstock_error *error);
void json_doc_fini(struct json_doc *doc);

/* The first member with this key; NULL: none, or value is NULL or no object. */
const struct json_value *json_find(const struct json_value *value, const char *key);
/* EPROTO names a key that is there twice in an object. */
PENSTOCK_CHECKED int json_unique_keys(const struct json_value *object, struct penstock_error *error);

/* A member that has to be there and of that type: else EPROTO, "field \"qpn\": missing" and the like. A string has no
 * NUL in it; array and object cannot be NULL on success. */
PENSTOCK_CHECKED int json_get_u64(const struct json_value *value, const char *key, uint64_t max, uint64_t *out,
                                  struct penstock_error *error);
PENSTOCK_CHECKED int json_get_bool(const struct json_value *value, const char *key, bool *out,
                                   struct penstock_error *error);
PENSTOCK_CHECKED int json_get_string(const struct json_value *value, const char *key, const char **out,
                                     struct penstock_error *error);
PENSTOCK_CHECKED int json_get_array(const struct json_value *value, const char *key, const struct json_value **out,
                                    struct penstock_error *error);
PENSTOCK_CHECKED int json_get_object(const struct json_value *value, const char *key, const struct json_value **out,
                                     struct penstock_error *error);

/* "an object", "a string": for messages. Static. */
const char *json_type_name(enum json_type type);

#endif
