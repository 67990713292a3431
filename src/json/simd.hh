// simdjson, which only this folder's C++ files know: no exceptions, and no types that others see.
//
// On-demand parsing checks what it walks over and no more, so everything is walked: a field that nobody asked for as
// well. Stage 1 has checked UTF-8, closed strings and control characters in the whole text before.
#ifndef PENSTOCK_JSON_SIMD_HH
#define PENSTOCK_JSON_SIMD_HH

#include <simdjson.h>

#include "events.h"

namespace json_simd
{

using namespace simdjson;

// What simdjson found wrong, in words of our own.
inline const char *words(error_code code)
{
    switch (code) {
    case CAPACITY:
        return "JSON is too long";
    case EMPTY:
        return "JSON is empty";
    case UTF8_ERROR:
        return "JSON is not UTF-8";
    case UNESCAPED_CHARS:
        return "control character in a JSON string";
    case UNCLOSED_STRING:
        return "JSON ends inside a string";
    case STRING_ERROR:
        return "bad escape in a JSON string";
    case NUMBER_ERROR:
        return "bad number in JSON, or one that does not fit";
    case INCOMPLETE_ARRAY_OR_OBJECT:
        return "JSON is cut short";
    case TRAILING_CONTENT:
        return "something follows the JSON document";
    case DEPTH_ERROR:
        return "JSON is nested too deeply";
    default:
        return "malformed JSON";
    }
}

// The document has to be used up: on-demand parsing stops at the last bracket otherwise.
inline bool used_up(ondemand::document &document)
{
    return document.current_location().error() == OUT_OF_BOUNDS;
}

// A document as events.
struct walker {
    int (*each)(void *, const struct json_event *);
    void *context;
    int stopped = 0; // what each returned, when it is not 0

    error_code emit(const struct json_event &event)
    {
        if (stopped == 0)
            stopped = each(context, &event);
        return stopped == 0 ? SUCCESS : UNINITIALIZED;
    }

    error_code bracket(enum json_event_kind kind, enum json_type type)
    {
        struct json_event event = {};
        event.kind = kind;
        event.value.type = type;
        return emit(event);
    }

    error_code text(enum json_event_kind kind, std::string_view string)
    {
        struct json_event event = {};
        event.kind = kind;
        event.value.type = JSON_STRING;
        event.value.string.at = string.data();
        event.value.string.len = string.size();
        return emit(event);
    }

    error_code number(ondemand::value value)
    {
        struct json_event event = {};
        event.kind = JSON_EVENT_SCALAR;
        ondemand::number_type type;
        SIMDJSON_TRY(value.get_number_type().get(type));
        if (type == ondemand::number_type::floating_point_number) {
            event.value.type = JSON_DOUBLE;
            if (value.get_double().get(event.value.number))
                return NUMBER_ERROR;
        } else if (value.is_negative()) {
            event.value.type = JSON_I64;
            if (value.get_int64().get(event.value.i64))
                return NUMBER_ERROR;
        } else {
            event.value.type = JSON_U64;
            if (value.get_uint64().get(event.value.u64))
                return NUMBER_ERROR;
        }
        return emit(event);
    }

    error_code scalar(ondemand::value value, ondemand::json_type type)
    {
        struct json_event event = {};
        event.kind = JSON_EVENT_SCALAR;
        if (type == ondemand::json_type::string) {
            std::string_view string;
            SIMDJSON_TRY(value.get_string().get(string));
            return text(JSON_EVENT_SCALAR, string);
        }
        if (type == ondemand::json_type::number)
            return number(value);
        if (type == ondemand::json_type::boolean) {
            event.value.type = JSON_BOOL;
            SIMDJSON_TRY(value.get_bool().get(event.value.boolean));
            return emit(event);
        }
        bool null;
        SIMDJSON_TRY(value.is_null().get(null));
        return null ? emit(event) : INCORRECT_TYPE;
    }

    error_code object(ondemand::object object, int depth)
    {
        SIMDJSON_TRY(bracket(JSON_EVENT_OPEN, JSON_OBJECT));
        for (auto member : object) {
            ondemand::field field;
            SIMDJSON_TRY(std::move(member).get(field));
            std::string_view key;
            SIMDJSON_TRY(field.unescaped_key().get(key));
            SIMDJSON_TRY(text(JSON_EVENT_KEY, key));
            SIMDJSON_TRY(any(field.value(), depth));
        }
        return bracket(JSON_EVENT_CLOSE, JSON_OBJECT);
    }

    error_code array(ondemand::array array, int depth)
    {
        SIMDJSON_TRY(bracket(JSON_EVENT_OPEN, JSON_ARRAY));
        for (auto element : array) {
            ondemand::value value;
            SIMDJSON_TRY(std::move(element).get(value));
            SIMDJSON_TRY(any(value, depth));
        }
        return bracket(JSON_EVENT_CLOSE, JSON_ARRAY);
    }

    template <typename T> error_code any(T &&value, int depth)
    {
        ondemand::json_type type;
        SIMDJSON_TRY(value.type().get(type));
        if (type == ondemand::json_type::object || type == ondemand::json_type::array) {
            if (depth == JSON_DEPTH_MAX)
                return DEPTH_ERROR;
            if (type == ondemand::json_type::object) {
                ondemand::object o;
                SIMDJSON_TRY(value.get_object().get(o));
                return object(o, depth + 1);
            }
            ondemand::array a;
            SIMDJSON_TRY(value.get_array().get(a));
            return array(a, depth + 1);
        }
        if constexpr (std::is_same_v<std::decay_t<T>, ondemand::value>)
            return scalar(value, type);
        return INCORRECT_TYPE;
    }
};

// Walks over what nobody asked for, only to see that it is JSON.
inline int ignore(void *, const struct json_event *)
{
    return 0;
}

} // namespace json_simd

#endif
