/* Landing an adapter: one read of all its matrices into memory of ours, and at its end the slot in one go. */
#include "lora.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "client/session.h"
#include "model/lora/land.h"

struct landing {
    struct client_then then;
    struct penstock_lora *lora;
    uint8_t *slot;
    uint64_t slot_bytes;
    uint8_t *gathered;              /* pull_bytes */
    struct model_lora_bytes *bytes; /* one for each entry, in gathered */
    uint32_t region;
};

static void landing_free(struct landing *l)
{
    client_lora_unref(l->lora);
    free(l->gathered);
    free(l->bytes);
    free(l);
}

static int landed(struct client_then *then, int code, struct penstock_error *error)
{
    struct landing *l = (struct landing *)then;
    (void)error;
    if (code == 0)
        model_lora_land(&l->lora->layout, l->bytes, l->slot, l->slot_bytes);
    return code;
}

static void forget_landing(struct penstock_session *s, struct client_then *then)
{
    struct landing *l = (struct landing *)then;
    (void)!penstock_unregister(s, l->region, NULL);
    landing_free(l);
}

static struct landing *landing_new(struct penstock_lora *lora, const struct penstock_memory *slot)
{
    size_t n = lora->layout.entries.n;
    struct landing *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->then = (struct client_then){ .ended = landed, .free = forget_landing };
    l->slot = slot->address;
    l->slot_bytes = slot->len_bytes;
    atomic_fetch_add_explicit(&lora->refs, 1, memory_order_relaxed);
    l->lora = lora;
    l->gathered = lora->pull_bytes <= SIZE_MAX - 1 ? malloc((size_t)lora->pull_bytes + 1) : NULL;
    l->bytes = calloc(n + 1, sizeof *l->bytes);
    if (!l->gathered || !l->bytes) {
        landing_free(l);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        if (lora->layout.sources.at[i].a)
            l->bytes[i] = (struct model_lora_bytes){ .a = l->gathered + lora->offsets[i].a,
                                                     .b = l->gathered + lora->offsets[i].b };
    return l;
}

static int check_slot(const struct penstock_lora *lora, const struct penstock_memory *slot,
                      struct penstock_error *error)
{
    if (slot->where == PENSTOCK_DEVICE)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "slot: DEVICE memory is not supported: rows are converted and padded by the CPU; land in "
                              "HOST memory and copy");
    if (slot->where != PENSTOCK_HOST || !slot->address || slot->len_bytes > SIZE_MAX - (uintptr_t)slot->address)
        return base_error_set(error, PENSTOCK_EINVAL, "slot: no %" PRIu64 " bytes of HOST memory can lie there",
                              slot->len_bytes);
    if (slot->len_bytes < lora->layout.slot_bytes)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "slot: it has %" PRIu64 " bytes, and the adapter needs %" PRIu64
                              " with max_rank %" PRIu64,
                              slot->len_bytes, lora->layout.slot_bytes, lora->layout.max_rank);
    return 0;
}

int penstock_lora_land(struct penstock_session *session, struct penstock_lora *lora,
                       const struct penstock_lora_landing *landing, penstock_op *op, struct penstock_error *error)
{
    struct penstock_lora_landing given;
    struct penstock_memory slot;
    if (!session || !lora || !op)
        return base_error_set(error, PENSTOCK_EINVAL, "session, lora and op must be given, not NULL");
    if (!lora->open)
        return base_error_set(error, PENSTOCK_EINVAL, "the adapter is not open");
    if (session->catalogue != lora->catalogue)
        return base_error_set(error, PENSTOCK_EINVAL,
                              "the session is on another model, or another version, than the "
                              "adapter was opened from");
    int code = client_take_sized(&given, landing, "landing", error);
    code = code ? code : client_take_sized(&slot, given.slot, "slot", error);
    code = code ? code : check_slot(lora, &slot, error);
    if (code)
        return code;
    struct landing *l = landing_new(lora, &slot);
    if (!l)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for the %" PRIu64 " bytes of an adapter",
                              lora->pull_bytes);
    const struct penstock_memory memory = { .size = sizeof memory,
                                            .address = l->gathered,
                                            .len_bytes = lora->pull_bytes };
    code = penstock_register(session, &memory, &l->region, error);
    if (code) {
        landing_free(l);
        return code;
    }
    const struct penstock_read read = { .size = sizeof read,
                                        .ranges = lora->ranges,
                                        .count = lora->n_ranges,
                                        .region = l->region,
                                        .timeout_ns = given.timeout_ns,
                                        .user = given.user };
    code = client_submit(session, &read, &l->then, op, error);
    if (code) {
        (void)!penstock_unregister(session, l->region, NULL);
        landing_free(l);
    }
    return code;
}

int penstock_lora_land_wait(struct penstock_session *session, struct penstock_lora *lora,
                            const struct penstock_lora_landing *landing, struct penstock_error *error)
{
    penstock_op op = 0;
    int code = penstock_lora_land(session, lora, landing, &op, error);
    return code ? code : penstock_wait(session, op, NULL, error);
}
