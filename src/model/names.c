#include "names.h"

#include <string.h>

#include "json/utf8.h"

enum { COMPONENT_BYTES_MAX = 255 };

bool model_name_plain(const char *name, size_t len)
{
    if (len == 0 || len > COMPONENT_BYTES_MAX || !json_utf8_valid(name, len))
        return false;
    if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7F || name[i] == '/')
            return false;
    return true;
}

bool model_name_relative(const char *name, size_t len)
{
    for (size_t components = 1; components <= MODEL_NAME_COMPONENTS_MAX; components++) {
        const char *slash = len > 0 ? memchr(name, '/', len) : NULL;
        size_t n = slash ? (size_t)(slash - name) : len;
        if (!model_name_plain(name, n))
            return false;
        if (!slash)
            return true;
        name = slash + 1;
        len -= n + 1;
    }
    return false;
}
