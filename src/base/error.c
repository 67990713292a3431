#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum penstock_error_class penstock_error_class(int code)
{
    if (code >= 0)
        return PENSTOCK_LOST_NOTHING;
    return code > -200 ? PENSTOCK_LOST_OPERATION : code > -300 ? PENSTOCK_LOST_CONNECTION : PENSTOCK_LOST_SESSION;
}

const char *penstock_error_name(int code)
{
#define NAME(x)                                                                                                        \
    case x:                                                                                                            \
        return #x
    switch (code) {
        NAME(PENSTOCK_OK);
        NAME(PENSTOCK_EINVAL);
        NAME(PENSTOCK_ENOMEM);
        NAME(PENSTOCK_ESYS);
        NAME(PENSTOCK_ENOTFOUND);
        NAME(PENSTOCK_EREFUSED);
        NAME(PENSTOCK_ECANCELED);
        NAME(PENSTOCK_EUNSUPPORTED);
        NAME(PENSTOCK_ECORRUPT);
        NAME(PENSTOCK_ELIMIT);
        NAME(PENSTOCK_EUNREACHABLE);
        NAME(PENSTOCK_ECLOSED);
        NAME(PENSTOCK_EPROTO);
        NAME(PENSTOCK_ETIMEOUT);
        NAME(PENSTOCK_EDENIED);
        NAME(PENSTOCK_ESTALE);
        NAME(PENSTOCK_EDEAD);
    default:
        return "unknown error code";
    }
#undef NAME
}

__attribute__((format(printf, 3, 0))) static void fill(struct penstock_error *error, int code, const char *format,
                                                       va_list args)
{
    *error = (struct penstock_error){ .code = code };
    vsnprintf(error->message, sizeof error->message, format, args);
}

int(base_error_set)(struct penstock_error *error, int code, const char *format, ...)
{
    if (!error)
        return code;
    va_list args;
    va_start(args, format);
    fill(error, code, format, args);
    va_end(args);
    return code;
}

int(base_error_sys)(struct penstock_error *error, int sys_errno, const char *format, ...)
{
    int code = sys_errno == ENOMEM ? PENSTOCK_ENOMEM : PENSTOCK_ESYS;
    if (!error)
        return code;
    va_list args;
    va_start(args, format);
    fill(error, code, format, args);
    va_end(args);
    error->sys_errno = sys_errno;
    char words[128];
    size_t at = strlen(error->message);
    snprintf(error->message + at, sizeof error->message - at, ": %s%s", strerror_r(sys_errno, words, sizeof words),
             sys_errno == EMFILE ? "; raise the limit on open files (ulimit -n)" : "");
    return code;
}

int base_error_in(struct penstock_error *error, const char *format, ...)
{
    if (!error)
        return PENSTOCK_EINVAL;
    char words[sizeof error->message];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(words, sizeof words, format, args);
    va_end(args);
    size_t at = n < 0 ? 0 : (size_t)n < sizeof words ? (size_t)n : sizeof words - 1;
    snprintf(words + at, sizeof words - at, ": %s", error->message);
    memcpy(error->message, words, sizeof words);
    return error->code;
}
