#include <string.h>

#include "stage.h"

/* The next component at *at, or 0 bytes: none is left. Empty ones and "." do not count. */
static size_t next_component(const char **at, const char **begin)
{
    for (;;) {
        while (**at == '/')
            (*at)++;
        *begin = *at;
        size_t n = strcspn(*at, "/");
        *at += n;
        if (n != 1 || **begin != '.')
            return n;
    }
}

static bool same_path(const char *a, const char *b)
{
    if ((a[0] == '/') != (b[0] == '/'))
        return false;
    for (;;) {
        const char *x, *y;
        size_t n = next_component(&a, &x), m = next_component(&b, &y);
        if (n != m || memcmp(x, y, n) != 0)
            return false;
        if (n == 0)
            return true;
    }
}

static bool is_final_component(const char *request, const char *directory)
{
    const char *at = directory, *begin, *last = NULL;
    size_t n, last_len = 0;
    while ((n = next_component(&at, &begin)) > 0) {
        last = begin;
        last_len = n;
    }
    return last && strlen(request) == last_len && memcmp(request, last, last_len) == 0;
}

bool model_request_names(const char *request, const char *directory)
{
    return request[0] != 0 && (same_path(request, directory) || is_final_component(request, directory));
}
