// The rival of manifest_parse: simdjson on demand over the same two texts, every value used, nothing kept.
#include <simdjson.h>

#include <cstdlib>

using namespace simdjson;

namespace
{

uint64_t use(ondemand::value value)
{
    uint64_t sum = 0;
    switch (value.type().value_unsafe()) {
    case ondemand::json_type::object:
        for (auto item : value.get_object().value_unsafe()) {
            ondemand::field field;
            if (std::move(item).get(field))
                abort();
            sum += field.unescaped_key().value_unsafe().size();
            sum += use(field.value());
        }
        return sum;
    case ondemand::json_type::array:
        for (auto item : value.get_array().value_unsafe()) {
            ondemand::value element;
            if (std::move(item).get(element))
                abort();
            sum += use(element);
        }
        return sum;
    case ondemand::json_type::string:
        return value.get_string().value_unsafe().size();
    case ondemand::json_type::number:
        return value.get_uint64().value_unsafe();
    default:
        return value.get_bool().value_unsafe() ? 1 : 0;
    }
}

} // namespace

// text has SIMDJSON_PADDING bytes behind it. A parser of its own each time, as whoever reads a manifest once has.
extern "C" uint64_t bench_rival_parse(const char *text, size_t len)
{
    ondemand::parser parser;
    ondemand::document document;
    if (parser.iterate(text, len, len + SIMDJSON_PADDING).get(document))
        abort();
    uint64_t sum = 0;
    ondemand::value root;
    if (document.get_value().get(root))
        abort();
    return sum + use(root);
}
