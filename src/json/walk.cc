extern "C" {
#include "base/error.h"
}
#include "simd.hh"

using namespace json_simd;

static int refuse(struct penstock_error *error, int corrupt, error_code code)
{
    if (code == MEMALLOC)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory to parse JSON");
    return base_error_set(error, corrupt, "%s", words(code));
}

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
