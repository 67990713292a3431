#include "reader.hh"

using namespace json_simd;

namespace
{

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

} // namespace

extern "C" int json_manifest_read(const char *text, size_t len, int corrupt, const struct json_manifest_reader *to,
                                  struct penstock_error *error)
{
    manifest_reader r(text, len, corrupt, error);
    r.to = to;
    return run(r, text, len);
}
