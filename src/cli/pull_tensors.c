/* --tensors: a plan for one safetensors file with some of a model's tensors. */
#include <fnmatch.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "pull_plan.h"

#define HEADER_MAX (UINT64_C(64) << 20) /* what readers of the format take */

static bool wanted(const char *name, const char *const *globs, size_t n_globs)
{
    for (size_t i = 0; i < n_globs; i++)
        if (fnmatch(globs[i], name, 0) == 0)
            return true;
    return false;
}

/* The order they have at the peer, so that neighbours travel as one. */
static int by_place(const void *a, const void *b)
{
    const struct penstock_tensor *x = *(const struct penstock_tensor *const *)a;
    const struct penstock_tensor *y = *(const struct penstock_tensor *const *)b;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    if (x->offset_bytes != y->offset_bytes)
        return x->offset_bytes < y->offset_bytes ? -1 : 1;
    return x->len_bytes < y->len_bytes ? -1 : x->len_bytes > y->len_bytes;
}

static void put_json(struct base_buf *out, const char *text)
{
    base_buf_append(out, "\"", 1);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            base_buf_append(out, "\\", 1);
        if ((unsigned char)*text < 0x20)
            base_buf_printf(out, "\\u%04x", (unsigned char)*text);
        else
            base_buf_append(out, text, 1);
    }
    base_buf_append(out, "\"", 1);
}

static void put_tensor(struct base_buf *out, const struct penstock_tensor *tensor, uint64_t begin)
{
    put_json(out, tensor->name);
    base_buf_printf(out, ":{\"dtype\":");
    put_json(out, tensor->dtype);
    base_buf_printf(out, ",\"shape\":[");
    for (uint64_t i = 0; i < tensor->rank; i++)
        base_buf_printf(out, i ? ",%llu" : "%llu", (unsigned long long)tensor->shape[i]);
    base_buf_printf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
                    (unsigned long long)begin + tensor->len_bytes);
}

static bool add_run(struct pull_plan *plan, const struct penstock_tensor *tensor, uint64_t dst)
{
    if (tensor->len_bytes == 0)
        return true;
    struct pull_run *last = plan->runs.n > 0 ? &plan->runs.at[plan->runs.n - 1] : NULL;
    if (last && last->source == tensor->shard && last->src_bytes + last->len_bytes == tensor->offset_bytes) {
        last->len_bytes += tensor->len_bytes;
        return true;
    }
    return base_vec_push(&plan->runs, (struct pull_run){
                                          .dst_bytes = dst,
                                          .src_bytes = tensor->offset_bytes,
                                          .len_bytes = tensor->len_bytes,
                                          .source = tensor->shard,
                                      });
}

/* The head of the file: its length as 8 bytes, then JSON, padded with spaces so that the data begin on 8 bytes. */
static int lay_out(struct pull_plan *plan, const struct penstock_tensor **tensors, size_t n, uint64_t *data_bytes,
                   struct penstock_error *error)
{
    bool room = base_buf_room(&plan->head, 8) != NULL;
    plan->head.n = room ? 8 : 0;
    uint64_t at = 0;
    for (size_t i = 0; i < n && room; i++) {
        base_buf_append(&plan->head, i ? "," : "{", 1);
        put_tensor(&plan->head, tensors[i], at);
        room = add_run(plan, tensors[i], at);
        if (!base_add_u64(at, tensors[i]->len_bytes, &at) || at > INT64_MAX / 2)
            return base_error_set(error, PENSTOCK_EPROTO, "tensor %s: its length is not plausible", tensors[i]->name);
    }
    base_buf_append(&plan->head, "}", 1);
    while (plan->head.n % 8 != 0 && !plan->head.failed)
        base_buf_append(&plan->head, " ", 1);
    if (!room || plan->head.failed)
        return base_error_set(error, PENSTOCK_ENOMEM, "no memory for a header of %zu tensors", n);
    uint64_t json_bytes = plan->head.n - 8;
    if (json_bytes > HEADER_MAX)
        return base_error_set(error, PENSTOCK_ELIMIT, "%zu tensors need a header of %llu bytes; readers take %llu", n,
                              (unsigned long long)json_bytes, (unsigned long long)HEADER_MAX);
    for (int i = 0; i < 8; i++)
        plan->head.at[i] = (uint8_t)(json_bytes >> 8 * i);
    *data_bytes = at;
    return 0;
}

int pull_plan_tensors(const struct penstock_catalogue *catalogue, const char *const *globs, size_t n_globs,
                      const char *name, struct pull_plan *plan, struct penstock_error *error)
{
    *plan = (struct pull_plan){ 0 };
    BASE_VEC(const struct penstock_tensor *) tensors = { 0 };
    int rc = 0;
    for (size_t i = 0; i < penstock_catalogue_tensors(catalogue) && rc == 0; i++) {
        const struct penstock_tensor *tensor = penstock_catalogue_tensor(catalogue, i);
        if (wanted(tensor->name, globs, n_globs) && !base_vec_push(&tensors, tensor))
            rc = base_error_set(error, PENSTOCK_ENOMEM, "no memory for the list of tensors");
    }
    if (rc == 0 && tensors.n == 0)
        rc = base_error_set(error, PENSTOCK_ENOTFOUND, "no tensor of the model matches %s%s; `penstock ls` lists them",
                            globs[0], n_globs > 1 ? " or the other patterns" : "");
    uint64_t data_bytes = 0;
    if (rc == 0) {
        qsort(tensors.at, tensors.n, sizeof(void *), by_place);
        rc = lay_out(plan, tensors.at, tensors.n, &data_bytes, error);
    }
    if (rc == 0)
        rc = pull_plan_add(plan, name, plan->head.n + data_bytes, plan->head.n, 0, error);
    base_vec_free(&tensors);
    if (rc < 0)
        pull_plan_fini(plan);
    return rc;
}
