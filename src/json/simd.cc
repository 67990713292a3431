// The only file that knows simdjson, and the only one in C++: no exceptions, no types of its own beyond this file.
//
// On-demand parsing checks what it walks over and no more, so everything here is walked: a field that nobody asked for
// as well. Stage 1 has checked UTF-8, closed strings and control characters in the whole text before.
#include <simdjson.h>

#include <cstring>

extern "C" {
#include "base/error.h"
}
#include "events.h"
#include "records.h"

namespace
{

using namespace simdjson;

// What simdjson found wrong, in words of our own.
const char *words(error_code code)
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

int refuse(struct penstock_error *error, int corrupt, error_code code)
{
    if (code == MEMALLOC)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory to parse JSON");
    return base_error_set(error, corrupt, "%s", words(code));
}

// The document has to be used up: on-demand parsing stops at the last bracket otherwise.
bool used_up(ondemand::document &document)
{
    return document.current_location().error() == OUT_OF_BOUNDS;
}

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
int ignore(void *, const struct json_event *)
{
    return 0;
}

// What the three record readers share: where they are, for the words of an error, and strings without copying them.
struct reader {
    ondemand::parser parser;
    ondemand::document document;
    const char *text_end;
    int corrupt;
    struct penstock_error *error;
    int stopped = 0; // the code that a callback or a check of ours ended it with; the words are set

    const char *field = nullptr;    // where: "shape", inside
    struct json_string record = {}; // a tensor's name, once it is known

    std::unique_ptr<uint8_t[]> scratch; // for strings with escapes; begun anew with each record
    uint8_t *scratch_at = nullptr;
    bool nul_is_fine = false; // in the string that is read now

    reader(const char *text, size_t len, int corrupt_code, struct penstock_error *to)
        : text_end(text + len), corrupt(corrupt_code), error(to)
    {
    }

    error_code stop(int code)
    {
        stopped = code;
        return UNINITIALIZED;
    }

    error_code stop_with(const char *what)
    {
        return stop(say(what));
    }

    int say(const char *what)
    {
        const char *in = field ? field : "";
        const char *colon = field ? ": " : "";
        if (!record.at)
            return base_error_set(error, corrupt, "%s%s%s", in, colon, what);
        return base_error_set(error, corrupt, "tensor \"%.*s\": %s%s%s", int(std::min<size_t>(record.len, 200)),
                              record.at, in, colon, what);
    }

    error_code start(const char *text, size_t len, ondemand::object &root)
    {
        SIMDJSON_TRY(parser.iterate(text, len, len + JSON_PADDING).get(document));
        ondemand::json_type type;
        SIMDJSON_TRY(document.type().get(type));
        if (type != ondemand::json_type::object)
            return stop_with("not a JSON object");
        return document.get_object().get(root);
    }

    int finish(error_code code)
    {
        if (code == SUCCESS && !used_up(document)) {
            record = {};
            field = nullptr;
            code = TRAILING_CONTENT;
        }
        if (stopped != 0)
            return stopped;
        if (code == MEMALLOC)
            return base_error_set(error, PENSTOCK_ENOMEM, "no memory to parse JSON");
        return code == SUCCESS ? 0
                               : say(code == INCORRECT_TYPE ? "not of the right type, or does not fit" : words(code));
    }

    // Stage 1 has seen that every string is closed. A string without escapes is used where it is.
    error_code string(ondemand::raw_json_string raw, struct json_string &out)
    {
        const char *at = raw.raw();
        const char *end = static_cast<const char *>(memchr(at, '"', size_t(text_end - at)));
        if (!end)
            return UNCLOSED_STRING;
        out.at = at;
        out.len = size_t(end - at);
        return memchr(at, '\\', out.len) ? unescape(raw, out) : SUCCESS;
    }

    error_code unescape(ondemand::raw_json_string raw, struct json_string &out)
    {
        if (!scratch) {
            scratch.reset(new (std::nothrow) uint8_t[parser.capacity() + 2 * SIMDJSON_PADDING]);
            if (!scratch)
                return MEMALLOC;
            scratch_at = scratch.get();
        }
        std::string_view plain;
        SIMDJSON_TRY(parser.unescape(raw, scratch_at).get(plain));
        out.at = plain.data();
        out.len = plain.size();
        return !nul_is_fine && memchr(out.at, 0, out.len) ? stop_with("has a NUL in it") : SUCCESS;
    }

    error_code string(ondemand::value value, struct json_string &out)
    {
        ondemand::raw_json_string raw;
        SIMDJSON_TRY(value.get_raw_json_string().get(raw));
        return string(raw, out);
    }

    error_code numbers(ondemand::value value, uint64_t *out, size_t max, size_t &n)
    {
        ondemand::array array;
        SIMDJSON_TRY(value.get_array().get(array));
        n = 0;
        for (auto element : array) {
            if (n == max)
                return stop_with("too many numbers");
            SIMDJSON_TRY(element.get_uint64().get(out[n]));
            n++;
        }
        return SUCCESS;
    }

    error_code skip(ondemand::value value)
    {
        return walker{ ignore, nullptr }.any(value, 2);
    }

    // A record begins: what the last one left in scratch is no longer needed.
    void begin()
    {
        scratch_at = scratch.get();
        record = {};
        field = nullptr;
    }

    // Which of names the key is; n: none. Keys are compared where they are, with the quote that ends them: a name is
    // shorter than the padding behind the text. `next` is the one that usually comes.
    template <size_t n>
    error_code key(ondemand::field &member, const char *const (&names)[n], size_t next, size_t &which)
    {
        ondemand::raw_json_string raw = member.key();
        const char *at = raw.raw();
        for (size_t tried = 0; tried < n; tried++) {
            which = (next + tried) % n;
            size_t len = strlen(names[which]);
            if (memcmp(at, names[which], len) == 0 && at[len] == '"')
                return SUCCESS;
        }
        struct json_string plain;
        SIMDJSON_TRY(string(raw, plain));
        for (which = 0; which < n; which++)
            if (strlen(names[which]) == plain.len && memcmp(plain.at, names[which], plain.len) == 0)
                return SUCCESS;
        return SUCCESS;
    }

    // Each of the first `mandatory` fields has to be there, and none twice.
    error_code once(const char *name, size_t which, unsigned &seen)
    {
        field = name;
        if (seen & 1u << which)
            return stop_with("there twice");
        seen |= 1u << which;
        return SUCCESS;
    }

    template <size_t n> error_code complete(const char *const (&names)[n], size_t mandatory, unsigned seen)
    {
        for (size_t i = 0; i < mandatory; i++) {
            field = names[i];
            if (!(seen & 1u << i))
                return stop_with("missing");
        }
        return SUCCESS;
    }
};

struct header_reader : reader {
    using reader::reader;
    int (*each)(void *, const struct json_header_tensor *, struct penstock_error *);
    void *context;

    error_code tensor(ondemand::value value, struct json_header_tensor &t)
    {
        static const char *const names[] = { "dtype", "shape", "data_offsets" };
        uint64_t shape[JSON_RANK_MAX], offsets[2];
        size_t which, next = 0, n = 0;
        unsigned seen = 0;
        ondemand::object object;
        SIMDJSON_TRY(value.get_object().get(object));
        for (auto item : object) {
            ondemand::field member;
            SIMDJSON_TRY(std::move(item).get(member));
            SIMDJSON_TRY(key(member, names, next, which));
            if (which == 3) {
                SIMDJSON_TRY(skip(member.value()));
                continue;
            }
            SIMDJSON_TRY(once(names[which], which, seen));
            next = which + 1;
            if (which == 0) {
                SIMDJSON_TRY(string(member.value(), t.dtype));
            } else if (which == 1) {
                SIMDJSON_TRY(numbers(member.value(), shape, JSON_RANK_MAX, t.rank));
            } else {
                SIMDJSON_TRY(numbers(member.value(), offsets, 2, n));
                if (n != 2)
                    return stop_with("not two numbers");
            }
        }
        SIMDJSON_TRY(complete(names, 3, seen));
        t.shape = shape;
        t.begin = offsets[0];
        t.end = offsets[1];
        int code = each(context, &t, error);
        return code == 0 ? SUCCESS : stop(code);
    }

    error_code all(ondemand::object root)
    {
        static const char metadata[] = "__metadata__";
        for (auto item : root) {
            begin();
            ondemand::field member;
            SIMDJSON_TRY(std::move(item).get(member));
            struct json_header_tensor t = {};
            SIMDJSON_TRY(string(member.key(), t.name));
            record = t.name;
            if (t.name.len == sizeof metadata - 1 && memcmp(t.name.at, metadata, t.name.len) == 0) {
                SIMDJSON_TRY(skip(member.value()));
            } else {
                SIMDJSON_TRY(tensor(member.value(), t));
            }
        }
        begin();
        return SUCCESS;
    }
};

struct manifest_reader : reader {
    using reader::reader;
    const struct json_manifest_reader *to;

    error_code give(enum json_manifest_field which, const struct json_string *text, uint64_t number)
    {
        int code = to->field(to->context, which, text, number, error);
        return code == 0 ? SUCCESS : stop(code);
    }

    error_code number(enum json_manifest_field which, ondemand::value value)
    {
        uint64_t n;
        SIMDJSON_TRY(value.get_uint64().get(n));
        return give(which, nullptr, n);
    }

    error_code text(enum json_manifest_field which, ondemand::value value)
    {
        struct json_string string_;
        SIMDJSON_TRY(string(value, string_));
        return give(which, &string_, 0);
    }

    template <typename F> error_code list(ondemand::value value, F each)
    {
        ondemand::array array;
        SIMDJSON_TRY(value.get_array().get(array));
        for (auto item : array) {
            ondemand::value element;
            SIMDJSON_TRY(std::move(item).get(element));
            SIMDJSON_TRY(each(element));
        }
        return SUCCESS;
    }

    error_code tensor(ondemand::value value)
    {
        static const char *const names[] = {
            "name", "dtype", "shape", "offset_in_shard", "len", "shard_index", "extra"
        };
        uint64_t shape[JSON_RANK_MAX];
        struct json_manifest_tensor t = {};
        size_t which, next = 0;
        unsigned seen = 0;
        begin();
        field = "tensors";
        ondemand::object object;
        SIMDJSON_TRY(value.get_object().get(object));
        for (auto item : object) {
            ondemand::field member;
            SIMDJSON_TRY(std::move(item).get(member));
            SIMDJSON_TRY(key(member, names, next, which));
            if (which == 7) {
                SIMDJSON_TRY(skip(member.value()));
                continue;
            }
            SIMDJSON_TRY(once(names[which], which, seen));
            next = which + 1;
            ondemand::value v = member.value();
            error_code code = SUCCESS;
            switch (which) {
            case 0:
                code = string(v, t.name);
                if (code == SUCCESS)
                    record = t.name;
                break;
            case 1:
                code = string(v, t.dtype);
                break;
            case 2:
                code = numbers(v, shape, JSON_RANK_MAX, t.rank);
                break;
            case 3:
                code = v.get_uint64().get(t.offset);
                break;
            case 4:
                code = v.get_uint64().get(t.len);
                break;
            case 5:
                code = v.get_uint64().get(t.shard);
                break;
            default:
                code = v.get_bool().get(t.extra);
            }
            SIMDJSON_TRY(code);
        }
        SIMDJSON_TRY(complete(names, 7, seen));
        t.shape = shape;
        int code = to->tensor(to->context, &t, error);
        return code == 0 ? SUCCESS : stop(code);
    }

    error_code file(ondemand::value value)
    {
        static const char *const names[] = { "name", "len" };
        begin();
        field = "files";
        struct json_string name = {};
        uint64_t len = 0;
        size_t which;
        unsigned seen = 0;
        ondemand::object object;
        SIMDJSON_TRY(value.get_object().get(object));
        for (auto item : object) {
            ondemand::field member;
            SIMDJSON_TRY(std::move(item).get(member));
            SIMDJSON_TRY(key(member, names, 0, which));
            if (which == 2) {
                SIMDJSON_TRY(skip(member.value()));
                continue;
            }
            SIMDJSON_TRY(once(names[which], which, seen));
            if (which == 0) {
                nul_is_fine = true; // one more name that is not accepted, and no reason to refuse the rest
                error_code code = string(member.value(), name);
                nul_is_fine = false;
                SIMDJSON_TRY(code);
            } else {
                SIMDJSON_TRY(member.value().get_uint64().get(len));
            }
        }
        SIMDJSON_TRY(complete(names, 2, seen));
        return give(JSON_MANIFEST_FILE, &name, len);
    }

    error_code top(size_t which, ondemand::value value)
    {
        switch (which) {
        case 0:
            return number(JSON_MANIFEST_VERSION, value);
        case 1:
            return text(JSON_MANIFEST_MODEL_ID, value);
        case 2:
            return list(value, [&](ondemand::value v) { return text(JSON_MANIFEST_SHARD_FILE, v); });
        case 3:
            return list(value, [&](ondemand::value v) { return number(JSON_MANIFEST_SHARD_LEN, v); });
        case 4:
            return list(value, [&](ondemand::value v) { return tensor(v); });
        case 5:
            return text(JSON_MANIFEST_MODEL_VERSION, value);
        case 6:
            return list(value, [&](ondemand::value v) { return file(v); });
        default:
            return skip(value);
        }
    }

    error_code all(ondemand::object root)
    {
        static const char *const names[] = { "version", "model_id",      "shard_files", "shard_lens",
                                             "tensors", "model_version", "files" };
        size_t which, next = 0;
        unsigned seen = 0;
        for (auto item : root) {
            begin();
            ondemand::field member;
            SIMDJSON_TRY(std::move(item).get(member));
            SIMDJSON_TRY(key(member, names, next, which));
            if (which < 7) {
                SIMDJSON_TRY(once(names[which], which, seen));
                next = which + 1;
            }
            SIMDJSON_TRY(top(which, member.value()));
        }
        begin();
        return complete(names, 5, seen);
    }
};

struct weight_map_reader : reader {
    using reader::reader;
    int (*each)(void *, const struct json_string *, const struct json_string *, struct penstock_error *);
    void *context;

    error_code pairs(ondemand::value value)
    {
        ondemand::object object;
        SIMDJSON_TRY(value.get_object().get(object));
        for (auto item : object) {
            begin();
            field = "weight_map";
            ondemand::field member;
            SIMDJSON_TRY(std::move(item).get(member));
            struct json_string name, shard;
            SIMDJSON_TRY(string(member.key(), name));
            record = name;
            SIMDJSON_TRY(string(member.value(), shard));
            int code = each(context, &name, &shard, error);
            if (code != 0)
                return stop(code);
        }
        return SUCCESS;
    }

    error_code all(ondemand::object root)
    {
        static const char *const names[] = { "weight_map" };
        size_t which;
        unsigned seen = 0;
        for (auto item : root) {
            begin();
            ondemand::field member;
            SIMDJSON_TRY(std::move(item).get(member));
            SIMDJSON_TRY(key(member, names, 0, which));
            if (which == 0) {
                SIMDJSON_TRY(once(names[which], which, seen));
                SIMDJSON_TRY(pairs(member.value()));
            } else {
                SIMDJSON_TRY(skip(member.value()));
            }
        }
        begin();
        return complete(names, 1, seen);
    }
};

template <typename R> int run(R &r, const char *text, size_t len)
{
    ondemand::object root;
    error_code code = r.start(text, len, root);
    return r.finish(code == SUCCESS ? r.all(root) : code);
}

} // namespace

extern "C" int json_walk(const char *text, size_t len, int (*each)(void *context, const struct json_event *event),
                         void *context, struct penstock_error *error)
{
    ondemand::parser parser;
    ondemand::document document;
    error_code code = parser.iterate(text, len, len + JSON_PADDING).get(document);
    if (code)
        return refuse(error, PENSTOCK_ECORRUPT, code);
    walker w = { each, context };
    code = w.any(document, 0);
    if (w.stopped != 0)
        return base_error_set(error, w.stopped, "%s", w.stopped == PENSTOCK_ENOMEM ? "no memory for JSON" : "stopped");
    if (code == SUCCESS && !used_up(document))
        code = TRAILING_CONTENT;
    return code == SUCCESS ? 0 : refuse(error, PENSTOCK_ECORRUPT, code);
}

extern "C" int json_header_read(const char *text, size_t len, int corrupt,
                                int (*each)(void *context, const struct json_header_tensor *tensor,
                                            struct penstock_error *error),
                                void *context, struct penstock_error *error)
{
    header_reader r(text, len, corrupt, error);
    r.each = each;
    r.context = context;
    return run(r, text, len);
}

extern "C" int json_manifest_read(const char *text, size_t len, int corrupt, const struct json_manifest_reader *to,
                                  struct penstock_error *error)
{
    manifest_reader r(text, len, corrupt, error);
    r.to = to;
    return run(r, text, len);
}

extern "C" int json_weight_map_read(const char *text, size_t len, int corrupt,
                                    int (*each)(void *context, const struct json_string *tensor,
                                                const struct json_string *shard, struct penstock_error *error),
                                    void *context, struct penstock_error *error)
{
    weight_map_reader r(text, len, corrupt, error);
    r.each = each;
    r.context = context;
    return run(r, text, len);
}
