/* PEFT adapters, landed in the slots of an engine's pool: section 1.5 of docs/protocol.md, "LoRA landing".
 *
 * An adapter is served as any model is, and read over any session that penstock_weights_open gives. penstock_lora_open
 * reads its adapter_config.json and works out what goes where in a slot; penstock_lora_land pulls the matrices,
 * converts them to BF16 and fills a slot. Both are operations of the session, as reads are (penstock.h), and have
 * blocking calls as well.
 *
 * In a slot there is for each layer, ascending, and in it for each module in the order of section 1.5: A as
 * [max_rank, in], its `rank` rows at the head; then B as [out, max_rank], each row's `rank` values at its head. BF16,
 * row-major, zeros elsewhere, nothing between the regions. */
#ifndef PENSTOCK_LORA_H
#define PENSTOCK_LORA_H

#include <penstock/penstock.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One module that a slot has room for. */
struct penstock_lora_place {
    const char *module; /* as in tensor names, between the layer's number and ".lora_A": "self_attn.q_proj" */
    uint64_t layer;
    uint64_t in, out; /* of the module: A is [rank, in], B is [out, rank] */
};

struct penstock_lora_options {
    size_t size;
    uint64_t max_rank; /* of the pool's slots: 1 to 65536. An adapter above it is ELIMIT */
    /* What the pool's slots have, in any order. Modules that the adapter lacks stay zero; an adapter with a module that
     * is not among them, or is of another size, is EINVAL. NULL: the slot has just what the adapter has. Copied. */
    const struct penstock_lora_place *places;
    uint64_t n_places;
    /* The text of adapter_config.json, for peers that serve shards alone. NULL: it is asked for. Copied. */
    const char *config;
    uint64_t config_len_bytes;
    int64_t timeout_ns; /* as in struct penstock_read */
    void *user;         /* comes back with the completion */
};

/* What goes where in a slot. The string lives as long as the adapter. */
struct penstock_lora_entry {
    const char *module;
    uint64_t layer;
    uint64_t in, out;
    uint64_t rank; /* 0: the slot has it and the adapter has not; all of it is zero */
    double scale; /* what B (A x) is to be multiplied by: alpha / rank, or alpha / sqrt(rank) (rsLoRA). 0 with rank 0 */
    uint64_t a_offset_bytes, a_len_bytes; /* in the slot: [max_rank, in] */
    uint64_t b_offset_bytes, b_len_bytes; /* in the slot: [out, max_rank] */
};

struct penstock_lora_info {
    size_t size;
    uint64_t slot_bytes; /* the least that a slot may have */
    uint64_t pull_bytes; /* what a landing reads from the peer, and holds until the slot is filled */
    uint64_t max_rank;
    uint64_t entries;
    uint64_t left_out;
    int rslora;
    int fan_in_fan_out; /* 1: the base model keeps these weights as [in, out]: who merges adds the transpose of B A */
};

/* An adapter as one session's catalogue has it: immutable once it is open, and then for any thread to read. */
struct penstock_lora;

/* Starts to open the adapter that the session was opened on. *lora is there at once, to be freed whatever happens, and
 * can be asked and landed once the operation is done. The operation fails with
 *   ENOTFOUND     no adapter_config.json among the model's files, or no LoRA tensor among its tensors
 *   ECORRUPT      the config or the tensors contradict themselves: A without B, shapes that disagree, two tensors for
 *                 one place, a rank that is not the config's
 *   EUNSUPPORTED  what changes the meaning of the weights and is not known here (DoRA, ...), or a dtype that is not
 *                 F32, F16 or BF16
 *   ELIMIT        a rank above max_rank
 * or as a read does; the words name the field or the tensor. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_lora_start(struct penstock_session *session,
                                                      const struct penstock_lora_options *options,
                                                      struct penstock_lora **lora, penstock_op *op,
                                                      struct penstock_error *error);
/* The same, waited for. On failure there is no adapter. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_lora_open(struct penstock_session *session,
                                                     const struct penstock_lora_options *options,
                                                     struct penstock_lora **lora, struct penstock_error *error);
/* At any time, also before the session or an operation ends that uses it. NULL is fine. */
PENSTOCK_API void penstock_lora_free(struct penstock_lora *lora);

/* EINVAL: it is not open, or size is not set. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_lora_about(const struct penstock_lora *lora,
                                                      struct penstock_lora_info *info);
/* In the order of the slot. NULL: past the end, or not open. */
PENSTOCK_API const struct penstock_lora_entry *penstock_lora_at(const struct penstock_lora *lora, size_t index);
/* The name of a tensor that has no layer and so no place in a slot; an engine that needs it reads it as any other.
 * NULL: past the end, or not open. */
PENSTOCK_API const char *penstock_lora_left_out(const struct penstock_lora *lora, size_t index);

struct penstock_lora_landing {
    size_t size;
    /* HOST memory of slot_bytes or more, all of which is written; the struct is copied, the memory must live until the
     * operation is done. DEVICE memory is EUNSUPPORTED: rows are converted and padded by the CPU. */
    const struct penstock_memory *slot;
    int64_t timeout_ns;
    void *user;
};

/* Starts to land the adapter. The session must be open on the version that it was opened from (it, or one that joined
 * its catalogue). Its bytes gather in memory of the library's; the slot is written in one go by the poll or wait that
 * takes the last of them, and not touched by a landing that fails or is canceled. landed_bytes is pull_bytes. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_lora_land(struct penstock_session *session, struct penstock_lora *lora,
                                                     const struct penstock_lora_landing *landing, penstock_op *op,
                                                     struct penstock_error *error);
/* The same, waited for. */
PENSTOCK_API PENSTOCK_CHECKED int penstock_lora_land_wait(struct penstock_session *session, struct penstock_lora *lora,
                                                          const struct penstock_lora_landing *landing,
                                                          struct penstock_error *error);

#ifdef __cplusplus
}
#endif
#endif
