#include <stdint.h>

#include "base/error.h"
#include "verbs.h"

/* By enum ibv_wc_status: the manual's words, what they mean here, and what is lost. */
static const struct {
    int code;
    const char *words, *meaning;
} statuses[] = {
    [0] = { PENSTOCK_ECLOSED, "success", "no failure at all" },
    [1] = { PENSTOCK_ECLOSED, "local length error", "the request is longer than the port's messages may be" },
    [2] = { PENSTOCK_ECLOSED, "local QP operation error", "the device found the request inconsistent" },
    [3] = { PENSTOCK_ECLOSED, "local EE context operation error", "no such context is used here" },
    [4] = { PENSTOCK_ECLOSED, "local protection error", "the local memory is not registered for this request" },
    [5] = { PENSTOCK_ECLOSED, "work request flushed", "an earlier one on this rail failed" },
    [6] = { PENSTOCK_ECLOSED, "memory window bind error", "no windows are used here" },
    [7] = { PENSTOCK_EPROTO, "bad response", "the other side answered with what was not expected" },
    [8] = { PENSTOCK_ECLOSED, "local access error", "the local memory may not be written" },
    [9] = { PENSTOCK_EPROTO, "remote invalid request",
            "the other side found the request malformed: too long, or more "
            "READs than it takes" },
    [10] = { PENSTOCK_EDENIED, "remote access error",
             "the other side does not let us at this memory: its registration is gone, or the key or range is wrong" },
    [11] = { PENSTOCK_EPROTO, "remote operation error", "the other side could not carry it out" },
    [12] = { PENSTOCK_ETIMEOUT, "transport retry counter exceeded",
             "the other side does not answer: it is gone, its link is down, or the path MTU or GID is wrong" },
    [13] = { PENSTOCK_ETIMEOUT, "RNR retry counter exceeded", "the other side was never ready to receive" },
    [14] = { PENSTOCK_ECLOSED, "local RDD violation", "no such domain is used here" },
    [15] = { PENSTOCK_EPROTO, "remote invalid RD request", "no such service is used here" },
    [16] = { PENSTOCK_ECLOSED, "remote aborted", "the other side gave it up" },
    [17] = { PENSTOCK_ECLOSED, "invalid EE context number", "no such context is used here" },
    [18] = { PENSTOCK_ECLOSED, "invalid EE context state", "no such context is used here" },
    [19] = { PENSTOCK_ECLOSED, "fatal error", "the device cannot go on: see the kernel's log" },
    [20] = { PENSTOCK_ETIMEOUT, "response timeout", "the other side did not answer in time" },
    [21] = { PENSTOCK_ECLOSED, "general error", "the device says no more: see the kernel's log" },
    [22] = { PENSTOCK_ECLOSED, "tag matching error", "no tags are used here" },
    [23] = { PENSTOCK_ECLOSED, "tag matching rendezvous incomplete", "no tags are used here" },
};

int verbs_completion_error(const struct verbs_completion *completion, enum verbs_opcode opcode,
                           struct penstock_error *error)
{
    int status = completion->status;
    size_t at = status < 0 ? SIZE_MAX : (size_t)status;
    bool known = at < sizeof statuses / sizeof *statuses;
    int code = base_error_set(
        error, known ? statuses[at].code : PENSTOCK_ECLOSED, "%s failed: %s (status %d, vendor error 0x%x): %s",
        opcode == VERBS_READ ? "READ" : "WRITE", known ? statuses[at].words : "unknown status", status,
        completion->vendor_error, known ? statuses[at].meaning : "newer than this program");
    if (error)
        error->wc_status = status;
    return code;
}
