#include "reader.hh"

using namespace json_simd;

namespace
{

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

} // namespace

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
