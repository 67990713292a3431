#include "model/lora/name.h"

#include <stdbool.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

#define PREFIX "base_model.model."

static const char *const known[] = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj",    "linear_attn.out_proj",
};
enum { KNOWN = sizeof known / sizeof *known };

static size_t place_of(const char *module, size_t len)
{
    size_t i = 0;
    while (i < KNOWN && (strlen(known[i]) != len || memcmp(known[i], module, len) != 0))
        i++;
    return i;
}

int model_lora_module_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t a_place = place_of(a, a_len), b_place = place_of(b, b_len);
    if (a_place != b_place)
        return a_place < b_place ? -1 : 1;
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

/* The first component of [at, end) that is all digits: its end, or NULL. */
static const char *find_layer(const char *at, const char *end, const char **begin)
{
    while (at < end) {
        const char *dot = memchr(at, '.', (size_t)(end - at)), *stop = dot ? dot : end;
        size_t digits = strspn(at, "0123456789");
        if (digits > 0 && at + digits == stop) {
            *begin = at;
            return stop;
        }
        at = stop + 1;
    }
    return NULL;
}

static bool read_layer(const char *at, const char *end, uint64_t *layer)
{
    *layer = 0;
    for (; at < end; at++)
        if (!base_mul_u64(*layer, 10, layer) || !base_add_u64(*layer, (uint64_t)(*at - '0'), layer))
            return false;
    return true;
}

static bool ends_in(const char *name, size_t len, const char *suffix)
{
    size_t n = strlen(suffix);
    return len >= n && memcmp(name + len - n, suffix, n) == 0;
}

int model_lora_name_read(const char *name, struct model_lora_name *out, struct penstock_error *error)
{
    static const char a[] = ".lora_A.weight", b[] = ".lora_B.weight";
    size_t len = strlen(name);
    *out = (struct model_lora_name){ .matrix = MODEL_LORA_NEITHER };
    if (strstr(name, "lora_magnitude_vector"))
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "tensor \"%.200s\": not supported: DoRA scales the columns of the merged weight as well",
                              name);
    bool matrix = ends_in(name, len, a) || ends_in(name, len, b);
    const char *begin, *end = name + len - (matrix ? sizeof a - 1 : 0), *layer = find_layer(name, end, &begin);
    if (!layer)
        return 0;
    if (!matrix)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "tensor \"%.200s\": not supported: it is of a layer, and neither a lora_A.weight nor a "
                              "lora_B.weight",
                              name);
    if (end - layer < 2)
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "tensor \"%.200s\": not supported: no module is named behind the layer", name);
    if (!read_layer(begin, layer, &out->layer))
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "tensor \"%.200s\": no such layer can be", name);
    out->matrix = ends_in(name, len, a) ? MODEL_LORA_A : MODEL_LORA_B;
    out->module = layer + 1;
    out->module_len = (size_t)(end - out->module);
    out->path = strncmp(name, PREFIX, sizeof PREFIX - 1) == 0 ? name + sizeof PREFIX - 1 : name;
    out->path_len = (size_t)(end - out->path);
    return 0;
}
