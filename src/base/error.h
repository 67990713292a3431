/* Filling in a struct penstock_error. Each call accepts a NULL error and returns the code, so that it can stand in a
 * return statement. */
#ifndef PENSTOCK_BASE_ERROR_H
#define PENSTOCK_BASE_ERROR_H

#include <penstock/error.h>

/* Sets the whole error. */
__attribute__((format(printf, 3, 4))) int base_error_set(struct penstock_error *error, int code, const char *format,
                                                         ...);

/* The same for a failed system call: code is PENSTOCK_ESYS unless another fits better, and ": strerror" is appended,
 * and for EMFILE what to do. ENOMEM becomes PENSTOCK_ENOMEM. sys_errno is positive. */
__attribute__((format(printf, 3, 4))) int base_error_sys(struct penstock_error *error, int sys_errno,
                                                         const char *format, ...);

/* Puts "CONTEXT: " in front of the words, and returns the code: each caller on the way up says where it was. */
__attribute__((format(printf, 2, 3))) int base_error_in(struct penstock_error *error, const char *format, ...);

/* The same calls, with the result in the caller's sight: neither compiler nor analyser can take a failure for 0. */
#define base_error_set(error, code, ...)                                                                               \
    ({                                                                                                                 \
        int base_error_code = (code);                                                                                  \
        (void)(base_error_set)((error), base_error_code, __VA_ARGS__);                                                 \
        base_error_code;                                                                                               \
    })
#define base_error_sys(error, sys_errno, ...)                                                                          \
    ((base_error_sys)((error), (sys_errno), __VA_ARGS__) == PENSTOCK_ENOMEM ? PENSTOCK_ENOMEM : PENSTOCK_ESYS)

#endif
