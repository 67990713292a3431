#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "links.h"

/* Only ".." makes us ask the file system: what it means depends
 * on links. */
char *model_directory_absolute(const char *directory)
{
    size_t len = strlen(directory);
    bool up = strcmp(directory, "..") == 0 || strncmp(directory, "../", 3) == 0 || strstr(directory, "/../") ||
              (len >= 3 && strcmp(directory + len - 3, "/..") == 0);
    if (up)
        return realpath(directory, NULL);
    char *cwd = directory[0] == '/' ? NULL : getcwd(NULL, 0);
    if (directory[0] != '/' && !cwd)
        return NULL;
    size_t cwd_len = cwd ? strlen(cwd) : 0;
    char *out = malloc(cwd_len + len + 3);
    if (out) {
        size_t n = cwd_len;
        if (cwd)
            memcpy(out, cwd, cwd_len);
        while (n > 0 && out[n - 1] == '/')
            n--;
        for (const char *at = directory; *at;) {
            size_t part = strcspn(at, "/");
            if (part > 0 && !(part == 1 && at[0] == '.')) {
                out[n++] = '/';
                memcpy(out + n, at, part);
                n += part;
            }
            at += part + (at[part] == '/');
        }
        if (n == 0)
            out[n++] = '/';
        out[n] = 0;
    }
    free(cwd);
    return out;
}

char *model_directory_name(const char *directory)
{
    char *out = malloc(strlen(directory) + 1);
    if (out && model_hub_name(directory, out) == 0) {
        const char *slash = strrchr(directory, '/');
        const char *last = slash && slash[1] ? slash + 1 : directory;
        memcpy(out, last, strlen(last) + 1);
    }
    return out;
}
