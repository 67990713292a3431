#include <stdlib.h>
#include <string.h>

#include "json/json.h"
#include "json/write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void write_value(struct json_writer *w, const struct json_value *v)
{
    switch (v->type) {
    case JSON_NULL:
        json_write_null(w);
        break;
    case JSON_BOOL:
        json_write_bool(w, v->boolean);
        break;
    case JSON_U64:
        json_write_u64(w, v->u64);
        break;
    case JSON_I64:
        json_write_i64(w, v->i64);
        break;
    case JSON_DOUBLE:
        json_write_double(w, v->number);
        break;
    case JSON_STRING:
        json_write_string(w, v->string.at, v->string.len);
        break;
    case JSON_ARRAY:
        json_write_array(w);
        for (size_t i = 0; i < v->array.n; i++)
            write_value(w, &v->array.at[i]);
        json_write_array_end(w);
        break;
    case JSON_OBJECT:
        json_write_object(w);
        for (size_t i = 0; i < v->object.n; i++) {
            json_write_string(w, v->object.at[i].key.at, v->object.at[i].key.len);
            base_buf_append(w->buf, ":", 1);
            w->comma = false;
            write_value(w, &v->object.at[i].value);
        }
        json_write_object_end(w);
        break;
    }
}

/* What parses is written as JSON that parses; what does not must say why. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct json_doc doc;
    struct penstock_error error = { 0 };
    if (json_parse((const char *)data, len, &doc, &error) != 0) {
        if (error.code == 0 || error.message[0] == 0)
            abort();
        return 0;
    }
    struct base_buf text = { 0 };
    struct json_writer w = { .buf = &text };
    write_value(&w, &doc.root);
    json_doc_fini(&doc);
    if (json_parse((const char *)text.at, text.n, &doc, NULL) != 0)
        abort();
    json_doc_fini(&doc);
    base_buf_fini(&text);
    return 0;
}
