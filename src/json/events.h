/* simdjson as a stream of events: what walk.cc gives and the tree is built from. */
#ifndef PENSTOCK_JSON_EVENTS_H
#define PENSTOCK_JSON_EVENTS_H

#include "json/json.h"

#ifdef __cplusplus
extern "C" {
#endif

enum json_event_kind { JSON_EVENT_KEY, JSON_EVENT_SCALAR, JSON_EVENT_OPEN, JSON_EVENT_CLOSE };

struct json_event {
    enum json_event_kind kind;
    struct json_value value; /* OPEN and CLOSE: only its type; KEY: a string. Strings last for the call. */
};

/* The events of a whole document, whose root is an object or an array. text has JSON_PADDING bytes behind it. A
 * callback that does not return 0 ends it with that code. */
PENSTOCK_CHECKED int json_walk(const char *text, size_t len, int (*each)(void *context, const struct json_event *event),
                               void *context, struct penstock_error *error);

#ifdef __cplusplus
}
#endif
#endif
