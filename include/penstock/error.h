/* Error codes and the words that go with them. Shared by every part of libpenstock. */
#ifndef PENSTOCK_ERROR_H
#define PENSTOCK_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#define PENSTOCK_API __attribute__((visibility("default")))
#define PENSTOCK_CHECKED __attribute__((warn_unused_result))

/* Every code is negative. Its hundreds digit is its class: what is lost. */
enum penstock_code {
    PENSTOCK_OK = 0,

    /* Class 1, this operation: the session goes on. */
    PENSTOCK_EINVAL = -101,       /* an argument is wrong */
    PENSTOCK_ENOMEM = -102,       /* no memory */
    PENSTOCK_ESYS = -103,         /* a system call failed: sys_errno says how */
    PENSTOCK_ENOTFOUND = -104,    /* no such model, tensor, file or key */
    PENSTOCK_EREFUSED = -105,     /* the peer answered with an error status */
    PENSTOCK_ECANCELED = -106,    /* penstock_cancel */
    PENSTOCK_EUNSUPPORTED = -107, /* not built, or the other side cannot */
    PENSTOCK_ECORRUPT = -108,     /* a file or a chunk is not what it should be */
    PENSTOCK_ELIMIT = -109,       /* a bound of this side: memory, connections, disk */

    /* Class 2, this connection or rail: what else the session has goes on without it. */
    PENSTOCK_EUNREACHABLE = -201, /* the name does not resolve, or nothing listens there */
    PENSTOCK_ECLOSED = -202,      /* the other side closed, or died */
    PENSTOCK_EPROTO = -203,       /* the other side's bytes make no sense */
    PENSTOCK_ETIMEOUT = -204,     /* no byte came, or was taken, for too long */
    PENSTOCK_EDENIED = -205,      /* the peer refused the connection or the model */
    PENSTOCK_ESTALE = -206,       /* the peer has another version of the model by now */

    /* Class 3, this session. */
    PENSTOCK_EDEAD = -301 /* the session died earlier: the words say of what, penstock_op_error the code */
};

enum penstock_error_class {
    PENSTOCK_LOST_NOTHING = 0,
    PENSTOCK_LOST_OPERATION = 1,
    PENSTOCK_LOST_CONNECTION = 2,
    PENSTOCK_LOST_SESSION = 3
};

/* Filled by the call that failed, on the caller's memory; never touched on success. Every function that takes one
 * takes NULL as well. */
struct penstock_error {
    int code;          /* enum penstock_code */
    int sys_errno;     /* 0 where no system call failed */
    int wc_status;     /* ibv_wc_status of the work request that failed, else 0 */
    char message[500]; /* "weight peer 10.0.0.2:9910: read server gid: connection closed" */
};

/* What an error of this code costs. Thread-safe. */
PENSTOCK_API enum penstock_error_class penstock_error_class(int code);

/* The name of a code: "PENSTOCK_ETIMEOUT"; never NULL, static. Thread-safe. */
PENSTOCK_API const char *penstock_error_name(int code);

#ifdef __cplusplus
}
#endif
#endif
