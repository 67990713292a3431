#include "../../test.h"

#include <stdlib.h>

#include "model/lora/name.h"

static void read_as(const char *name, enum model_lora_matrix matrix, uint64_t layer, const char *module,
                    const char *path)
{
    struct model_lora_name n;
    struct penstock_error error;
    assert_int_equal(model_lora_name_read(name, &n, &error), 0);
    assert_int_equal(n.matrix, matrix);
    if (matrix == MODEL_LORA_NEITHER)
        return;
    assert_int_equal(n.layer, layer);
    assert_int_equal(n.module_len, strlen(module));
    assert_memory_equal(n.module, module, n.module_len);
    assert_int_equal(n.path_len, strlen(path));
    assert_memory_equal(n.path, path, n.path_len);
}

static void a_layer_is_the_first_component_that_is_all_digits(void **state)
{
    (void)state;
    read_as("base_model.model.model.layers.17.self_attn.q_proj.lora_A.weight", MODEL_LORA_A, 17, "self_attn.q_proj",
            "model.layers.17.self_attn.q_proj");
    read_as("base_model.model.transformer.h.0.attn.c_attn.lora_B.weight", MODEL_LORA_B, 0, "attn.c_attn",
            "transformer.h.0.attn.c_attn");
    read_as("base_model.model.model.layers.3.mlp.experts.7.gate_proj.lora_A.weight", MODEL_LORA_A, 3,
            "mlp.experts.7.gate_proj", "model.layers.3.mlp.experts.7.gate_proj");
    read_as("h2.2h.007.x.lora_A.weight", MODEL_LORA_A, 7, "x", "h2.2h.007.x");
    read_as("1.x.lora_A.weight", MODEL_LORA_A, 1, "x", "1.x");
    read_as("18446744073709551615.x.lora_A.weight", MODEL_LORA_A, UINT64_MAX, "x", "18446744073709551615.x");
}

static void a_tensor_without_a_layer_is_left_out(void **state)
{
    (void)state;
    static const char *const names[] = { "base_model.model.score.weight",
                                         "base_model.model.lm_head.lora_A.weight",
                                         "base_model.model.model.embed_tokens.lora_embedding_A",
                                         "",
                                         ".",
                                         "..",
                                         "lora_A",
                                         ".lora_A.weight" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        read_as(names[i], MODEL_LORA_NEITHER, 0, NULL, NULL);
}

static void refused(const char *name, const char *words)
{
    struct model_lora_name n;
    struct penstock_error error;
    assert_int_equal(model_lora_name_read(name, &n, &error), PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(error.message, words));
    assert_non_null(strstr(error.message, name));
}

static void a_tensor_of_a_layer_that_has_no_place_is_refused_by_name(void **state)
{
    (void)state;
    refused("base_model.model.layers.0.mlp.gate.weight", "neither");
    refused("layers.0.q_proj.lora_A.default.weight", "neither");
    refused("layers.0.q_proj.lora_B.bias", "neither");
    refused("layers.0.q_proj.lora_embedding_A", "neither");
    refused("layers.0.lora_A.weight", "no module");
    refused("layers.0..lora_A.weight", "no module");
    refused("layers.18446744073709551616.x.lora_A.weight", "no such layer");
    refused("layers.0.q_proj.lora_magnitude_vector", "DoRA");
    refused("lm_head.lora_magnitude_vector.weight", "DoRA");
}

static int compare(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return model_lora_module_compare(*x, strlen(*x), *y, strlen(*y));
}

static void eight_modules_come_in_their_order_and_others_by_their_bytes(void **state)
{
    (void)state;
    static const char *const order[] = { "self_attn.q_proj",
                                         "self_attn.k_proj",
                                         "self_attn.v_proj",
                                         "self_attn.o_proj",
                                         "mlp.gate_proj",
                                         "mlp.up_proj",
                                         "mlp.down_proj",
                                         "linear_attn.out_proj",
                                         "A",
                                         "a",
                                         "a.b",
                                         "mlp.up",
                                         "mlp.up_proj2",
                                         "self_attn",
                                         "\xC3\xA9" };
    enum { N = sizeof order / sizeof *order };
    const char *sorted[N];
    uint64_t seed = 1;
    for (int round = 0; round < 100; round++) {
        memcpy(sorted, order, sizeof sorted);
        for (size_t i = N; i > 1; i--) {
            size_t j = test_random(&seed) % i;
            const char *swapped = sorted[i - 1];
            sorted[i - 1] = sorted[j];
            sorted[j] = swapped;
        }
        qsort(sorted, N, sizeof *sorted, compare);
        for (size_t i = 0; i < N; i++)
            assert_string_equal(sorted[i], order[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_is_the_first_component_that_is_all_digits),
        cmocka_unit_test(a_tensor_without_a_layer_is_left_out),
        cmocka_unit_test(a_tensor_of_a_layer_that_has_no_place_is_refused_by_name),
        cmocka_unit_test(eight_modules_come_in_their_order_and_others_by_their_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
