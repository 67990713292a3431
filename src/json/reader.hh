// What the record readers share: where they are, for the words of an error, and strings without copying them.
#ifndef PENSTOCK_JSON_READER_HH
#define PENSTOCK_JSON_READER_HH

#include <cstring>

extern "C" {
#include "base/error.h"
}
#include "records.h"
#include "simd.hh"

namespace json_simd
{

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

template <typename R> int run(R &r, const char *text, size_t len)
{
    ondemand::object root;
    error_code code = r.start(text, len, root);
    return r.finish(code == SUCCESS ? r.all(root) : code);
}

} // namespace json_simd

#endif
