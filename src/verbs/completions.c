#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>

#include "base/error.h"
#include "ibverbs.h"

#define POLL_BATCH 32
#define ACKNOWLEDGE_BATCH 64

int verbs_ib_cq_new(struct verbs_device *device, uint32_t depth, struct verbs_cq **cq, struct penstock_error *error)
{
    const struct verbs_ib_api *api = verbs_ib_api(device);
    struct ibv_context *context = verbs_ib_device(device)->context;
    struct verbs_ib_cq *c = calloc(1, sizeof *c);
    if (!c)
        return base_error_sys(error, ENOMEM, "%s: completion queue", device->name);
    int code;
    errno = 0;
    c->channel = api->create_comp_channel(context);
    if (!c->channel) {
        code = base_error_sys(error, verbs_ib_null_errno(), "%s: ibv_create_comp_channel", device->name);
        goto free_it;
    }
    if (fcntl(c->channel->fd, F_SETFL, O_NONBLOCK) != 0) {
        code = base_error_sys(error, errno, "%s: fcntl of a completion channel", device->name);
        goto destroy_channel;
    }
    int cqe = depth == 0 ? 1 : depth > INT_MAX ? INT_MAX : (int)depth;
    errno = 0;
    c->cq = api->create_cq(context, cqe, NULL, c->channel, 0);
    if (!c->cq) {
        char limit[VERBS_IB_MEMLOCK_WORDS];
        int e = verbs_ib_null_errno();
        code =
            base_error_sys(error, e, "%s%s: ibv_create_cq of %d entries (the device has %d)", device->name,
                           verbs_ib_memlock_words(e, limit, sizeof limit), cqe, verbs_ib_device(device)->attr.max_cqe);
        goto destroy_channel;
    }
    c->base = (struct verbs_cq){ .device = device, .fd = c->channel->fd };
    *cq = &c->base;
    return 0;

destroy_channel:
    (void)api->destroy_comp_channel(c->channel);
free_it:
    free(c);
    return code;
}

/* Takes what is on the channel. Returns 0, or the errno of a channel that is of no more use. */
static int drain(struct verbs_ib_cq *c)
{
    const struct verbs_ib_api *api = verbs_ib_api(c->base.device);
    struct ibv_cq *cq;
    void *context;
    for (;;) {
        errno = 0;
        if (api->get_cq_event(c->channel, &cq, &context) == 0)
            c->unacknowledged++;
        else if (errno != EINTR)
            break;
    }
    return errno == EAGAIN ? 0 : verbs_ib_null_errno();
}

static void acknowledge(struct verbs_ib_cq *c)
{
    if (c->unacknowledged > 0)
        verbs_ib_api(c->base.device)->ack_cq_events(c->cq, c->unacknowledged);
    c->unacknowledged = 0;
}

void verbs_ib_cq_free(struct verbs_cq *cq)
{
    struct verbs_ib_cq *c = VERBS_IB_CAST(struct verbs_ib_cq, cq);
    const struct verbs_ib_api *api = verbs_ib_api(cq->device);
    /* ibv_destroy_cq waits for ever for an event that was taken and not acknowledged. */
    acknowledge(c);
    (void)api->destroy_cq(c->cq);
    (void)api->destroy_comp_channel(c->channel);
    free(c);
}

int verbs_ib_cq_arm(struct verbs_cq *cq, struct penstock_error *error)
{
    struct verbs_ib_cq *c = VERBS_IB_CAST(struct verbs_ib_cq, cq);
    int e = drain(c);
    if (e != 0)
        return base_error_sys(error, e, "%s: ibv_get_cq_event", cq->device->name);
    if (c->unacknowledged >= ACKNOWLEDGE_BATCH)
        acknowledge(c);
    e = verbs_ib_errno(ibv_req_notify_cq(c->cq, 0));
    return e == 0 ? 0 : base_error_sys(error, e, "%s: ibv_req_notify_cq", cq->device->name);
}

int verbs_ib_cq_poll(struct verbs_cq *cq, struct verbs_completion *completions, int max, struct penstock_error *error)
{
    struct ibv_cq *ib = VERBS_IB_CAST(struct verbs_ib_cq, cq)->cq;
    struct ibv_wc wcs[POLL_BATCH];
    int n = 0;
    while (n < max) {
        int want = max - n < POLL_BATCH ? max - n : POLL_BATCH;
        errno = 0;
        int got = ibv_poll_cq(ib, want, wcs);
        if (got < 0 && n == 0)
            return base_error_sys(error, verbs_ib_null_errno(), "%s: ibv_poll_cq returned %d", cq->device->name, got);
        /* Of a failed one only wr_id, status and vendor_err are valid (and qp_num, which the context knows). */
        for (int i = 0; i < got; i++)
            completions[n++] = (struct verbs_completion){ .context = (void *)(uintptr_t)wcs[i].wr_id,
                                                          .status = (int)wcs[i].status,
                                                          .vendor_error = wcs[i].vendor_err };
        if (got < want)
            break; /* empty, or broken: the next call says so */
    }
    return n;
}
