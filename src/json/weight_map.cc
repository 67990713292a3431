#include "reader.hh"

using namespace json_simd;

namespace
{

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

} // namespace

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
