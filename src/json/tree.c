#include "json.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "events.h"

/* Members wait on a stack until their object or array is closed, when it is known how many they are. Array elements
 * are members without a key. */
struct builder {
    struct json_doc *doc;
    BASE_VEC(struct json_member) pending;
    struct {
        size_t first; /* in pending */
        struct json_string key;
    } levels[JSON_DEPTH_MAX + 1];
    size_t depth;
    struct json_string key;
};

static int copy_string(struct builder *b, const struct json_string *from, struct json_string *to)
{
    to->at = base_pool_string(&b->doc->pool, from->at, from->len);
    to->len = from->len;
    return to->at ? 0 : PENSTOCK_ENOMEM;
}

static int add(struct builder *b, const struct json_value *value)
{
    struct json_member member = { .key = b->key, .value = *value };
    b->key = (struct json_string){ 0 };
    if (value->type == JSON_STRING && copy_string(b, &value->string, &member.value.string) != 0)
        return PENSTOCK_ENOMEM;
    return base_vec_push(&b->pending, member) ? 0 : PENSTOCK_ENOMEM;
}

static int close_object(struct builder *b, size_t first, struct json_value *value)
{
    size_t n = b->pending.n - first;
    struct json_member *members = base_pool_alloc(&b->doc->pool, n * sizeof *members);
    if (!members)
        return PENSTOCK_ENOMEM;
    if (n > 0)
        memcpy(members, b->pending.at + first, n * sizeof *members);
    value->object.at = members;
    value->object.n = n;
    return 0;
}

static int close_array(struct builder *b, size_t first, struct json_value *value)
{
    size_t n = b->pending.n - first;
    struct json_value *values = base_pool_alloc(&b->doc->pool, n * sizeof *values);
    if (!values)
        return PENSTOCK_ENOMEM;
    for (size_t i = 0; i < n; i++)
        values[i] = b->pending.at[first + i].value;
    value->array.at = values;
    value->array.n = n;
    return 0;
}

static int close_level(struct builder *b, enum json_type type)
{
    struct json_value value = { .type = type };
    size_t first = b->levels[--b->depth].first;
    int status = type == JSON_OBJECT ? close_object(b, first, &value) : close_array(b, first, &value);
    if (status != 0)
        return status;
    b->pending.n = first;
    b->key = b->levels[b->depth].key;
    return add(b, &value);
}

static int take_event(void *context, const struct json_event *event)
{
    struct builder *b = context;
    switch (event->kind) {
    case JSON_EVENT_KEY:
        return copy_string(b, &event->value.string, &b->key);
    case JSON_EVENT_SCALAR:
        return add(b, &event->value);
    case JSON_EVENT_OPEN: /* json_walk keeps the depth below JSON_DEPTH_MAX */
        b->levels[b->depth].first = b->pending.n;
        b->levels[b->depth++].key = b->key;
        b->key = (struct json_string){ 0 };
        return 0;
    case JSON_EVENT_CLOSE:
        return close_level(b, event->value.type);
    }
    return PENSTOCK_EINVAL;
}

int json_parse(const char *text, size_t len, struct json_doc *out, struct penstock_error *error)
{
    *out = (struct json_doc){ 0 };
    char *padded = len < SIZE_MAX - JSON_PADDING ? malloc(len + JSON_PADDING) : NULL;
    if (!padded)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu bytes of JSON", len);
    if (len > 0)
        memcpy(padded, text, len);
    memset(padded + len, ' ', JSON_PADDING);

    struct builder builder = { .doc = out };
    int status = json_walk(padded, len, take_event, &builder, error);
    if (status == 0)
        out->root = builder.pending.at[0].value;
    else
        base_pool_fini(&out->pool);
    base_vec_free(&builder.pending);
    free(padded);
    return status;
}

void json_doc_fini(struct json_doc *doc)
{
    base_pool_fini(&doc->pool);
    *doc = (struct json_doc){ 0 };
}

const struct json_value *json_find(const struct json_value *value, const char *key)
{
    if (!value || value->type != JSON_OBJECT)
        return NULL;
    size_t len = strlen(key);
    for (size_t i = 0; i < value->object.n; i++) {
        const struct json_member *member = &value->object.at[i];
        if (member->key.len == len && memcmp(member->key.at, key, len) == 0)
            return &member->value;
    }
    return NULL;
}

static int compare_keys(const void *a, const void *b)
{
    const struct json_string *x = a, *y = b;
    size_t common = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->at, y->at, common);
    return order != 0 ? order : x->len < y->len ? -1 : x->len > y->len;
}

int json_unique_keys(const struct json_value *object, struct penstock_error *error)
{
    size_t n = object->type == JSON_OBJECT ? object->object.n : 0;
    if (n < 2)
        return 0;
    struct json_string *keys = malloc(n * sizeof *keys);
    if (!keys)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for %zu keys", n);
    for (size_t i = 0; i < n; i++)
        keys[i] = object->object.at[i].key;
    qsort(keys, n, sizeof *keys, compare_keys);
    int status = 0;
    for (size_t i = 1; i < n && status == 0; i++)
        if (compare_keys(&keys[i - 1], &keys[i]) == 0)
            status = base_error_set(error, PENSTOCK_EPROTO, "field \"%s\": there twice", keys[i].at);
    free(keys);
    return status;
}

const char *json_type_name(enum json_type type)
{
    static const char *const names[] = { "null",       "a boolean", "a number", "a negative number",
                                         "a fraction", "a string",  "an array", "an object" };
    return (size_t)type < sizeof names / sizeof *names ? names[type] : "nothing";
}

static int get(const struct json_value *value, const char *key, enum json_type type, const struct json_value **out,
               struct penstock_error *error)
{
    const struct json_value *found = json_find(value, key);
    if (!found)
        return base_error_set(error, PENSTOCK_EPROTO, "field \"%s\": missing", key);
    if (found->type != type)
        return base_error_set(error, PENSTOCK_EPROTO, "field \"%s\": %s, not %s", key, json_type_name(found->type),
                              json_type_name(type));
    *out = found;
    return 0;
}

int json_get_u64(const struct json_value *value, const char *key, uint64_t max, uint64_t *out,
                 struct penstock_error *error)
{
    const struct json_value *found = NULL;
    int status = get(value, key, JSON_U64, &found, error);
    if (status != 0)
        return status;
    if (found->u64 > max)
        return base_error_set(error, PENSTOCK_EPROTO, "field \"%s\": %llu is above %llu", key,
                              (unsigned long long)found->u64, (unsigned long long)max);
    *out = found->u64;
    return 0;
}

int json_get_bool(const struct json_value *value, const char *key, bool *out, struct penstock_error *error)
{
    const struct json_value *found = NULL;
    int status = get(value, key, JSON_BOOL, &found, error);
    if (status == 0)
        *out = found->boolean;
    return status;
}

int json_get_string(const struct json_value *value, const char *key, const char **out, struct penstock_error *error)
{
    const struct json_value *found = NULL;
    int status = get(value, key, JSON_STRING, &found, error);
    if (status != 0)
        return status;
    if (memchr(found->string.at, 0, found->string.len))
        return base_error_set(error, PENSTOCK_EPROTO, "field \"%s\": has a NUL in it", key);
    *out = found->string.at;
    return 0;
}

int json_get_array(const struct json_value *value, const char *key, const struct json_value **out,
                   struct penstock_error *error)
{
    return get(value, key, JSON_ARRAY, out, error);
}

int json_get_object(const struct json_value *value, const char *key, const struct json_value **out,
                    struct penstock_error *error)
{
    return get(value, key, JSON_OBJECT, out, error);
}
