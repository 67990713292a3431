#include "adapter.h"

#define Q "self_attn.q_proj"

static int make(struct adapter *a, uint64_t max_rank, const struct penstock_lora_place *places, size_t n,
                struct model_lora_layout *out, struct penstock_error *error)
{
    const struct model_lora_slot slot = { .max_rank = max_rank, .places = places, .n_places = n };
    return model_lora_layout_make(&a->manifest, &a->config, &slot, out, error);
}

static void is_entry(const struct model_lora_layout *l, size_t i, uint64_t layer, const char *module, uint64_t rank,
                     uint64_t a_offset, uint64_t b_offset)
{
    const struct penstock_lora_entry *e = &l->entries.at[i];
    assert_int_equal(e->layer, layer);
    assert_string_equal(e->module, module);
    assert_int_equal(e->rank, rank);
    assert_int_equal(e->a_offset_bytes, a_offset);
    assert_int_equal(e->b_offset_bytes, b_offset);
    assert_int_equal(e->a_len_bytes, 2 * l->max_rank * e->in);
    assert_int_equal(e->b_len_bytes, 2 * l->max_rank * e->out);
    assert_true((rank == 0) == !l->sources.at[i].a && (rank == 0) == !l->sources.at[i].b);
}

static void entries_follow_each_other_by_layer_and_module(void **state)
{
    (void)state;
    struct adapter a = adapter_new(3);
    struct model_lora_layout l;
    struct penstock_error error;
    adapter_add_pair(&a, "F32", 10, Q, 4, 5, 3);
    adapter_add_pair(&a, "F16", 2, "odd_proj", 4, 5, 5);
    adapter_add_pair(&a, "BF16", 2, "mlp.up_proj", 6, 7, 3);
    adapter_add(&a, "base_model.model.score.weight", "F32", 2, 2);
    adapter_add_pair(&a, "F32", 2, Q, 4, 5, 3);
    assert_int_equal(make(&a, 8, NULL, 0, &l, &error), 0);
    assert_int_equal(l.entries.n, 4);
    is_entry(&l, 0, 2, Q, 3, 0, 64);
    is_entry(&l, 1, 2, "mlp.up_proj", 3, 144, 240);
    is_entry(&l, 2, 2, "odd_proj", 5, 352, 416);
    is_entry(&l, 3, 10, Q, 3, 496, 560);
    assert_int_equal(l.slot_bytes, 640);
    assert_true(l.entries.at[0].scale == 2 && l.entries.at[2].scale == 6.0 / 5);
    assert_int_equal(l.left_out.n, 1);
    assert_string_equal(l.left_out.at[0], "base_model.model.score.weight");
    model_lora_layout_fini(&l);
    adapter_fini(&a);
}

static void a_pool_has_one_layout_for_all_adapters(void **state)
{
    (void)state;
    struct adapter a = adapter_new(3);
    struct model_lora_layout l;
    struct penstock_error error;
    adapter_add_pair(&a, "F32", 1, Q, 4, 5, 3);
    const struct penstock_lora_place places[] = { { "self_attn.k_proj", 1, 4, 5 }, { "z", 0, 1, 1 }, { Q, 1, 4, 5 } };
    assert_int_equal(make(&a, 4, places, 3, &l, &error), 0);
    is_entry(&l, 0, 0, "z", 0, 0, 8);
    is_entry(&l, 1, 1, Q, 3, 16, 48);
    is_entry(&l, 2, 1, "self_attn.k_proj", 0, 88, 120);
    assert_int_equal(l.slot_bytes, 160);
    model_lora_layout_fini(&l);
    adapter_fini(&a);
}

static void an_adapter_that_the_pool_has_no_place_for_is_refused(void **state)
{
    (void)state;
    struct adapter a = adapter_new(3);
    struct model_lora_layout l;
    struct penstock_error error;
    adapter_add_pair(&a, "F32", 1, Q, 4, 5, 3);
    static const struct {
        struct penstock_lora_place places[2];
        size_t n;
        const char *words;
    } cases[] = { { { { Q, 0, 4, 5 } }, 1, "no layer 1 " Q },
                  { { { "z", 1, 4, 5 } }, 1, "no layer 1 " Q },
                  { { { Q, 2, 4, 5 } }, 1, "no layer 1 " Q },
                  { { { 0 } }, 0, "no layer 1 " Q },
                  { { { Q, 1, 4, 6 } }, 1, "[5, 4] (out, in)" },
                  { { { Q, 1, 5, 5 } }, 1, "[5, 5] in the slot" },
                  { { { Q, 1, 4, 5 }, { Q, 1, 4, 5 } }, 2, "twice" },
                  { { { NULL, 1, 4, 5 } }, 1, "place 0" },
                  { { { Q, 1, 0, 5 } }, 1, "place 0" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(make(&a, 4, cases[i].places, cases[i].n, &l, &error), PENSTOCK_EINVAL);
        if (!strstr(error.message, cases[i].words))
            fail_msg("%zu: %s", i, error.message);
        assert_null(l.entries.at);
    }
    assert_int_equal(make(&a, 0, NULL, 0, &l, &error), PENSTOCK_EINVAL);
    assert_int_equal(make(&a, 65537, NULL, 0, &l, &error), PENSTOCK_EINVAL);
    adapter_fini(&a);
}

/* What one change to a good adapter comes to. */
static void refused(struct adapter *a, int code, const char *words)
{
    struct model_lora_layout l;
    struct penstock_error error = { 0 };
    if (make(a, 4, NULL, 0, &l, &error) != code || error.code != code || !strstr(error.message, words))
        fail_msg("%d %s, not %s", error.code, error.message, words);
    assert_null(l.entries.at);
    adapter_fini(a);
}

#define A "base_model.model.model.layers.0." Q ".lora_A.weight"
#define B "base_model.model.model.layers.0." Q ".lora_B.weight"

static void matrices_that_contradict_each_other_are_refused_by_name(void **state)
{
    (void)state;
    struct adapter a = adapter_new(3);
    adapter_add(&a, A, "F32", 3, 4);
    refused(&a, PENSTOCK_ECORRUPT, A "\": there is no lora_B");

    a = adapter_new(3);
    adapter_add(&a, B, "F32", 4, 3);
    refused(&a, PENSTOCK_ECORRUPT, B "\": there is no lora_A");

    a = adapter_new(3);
    adapter_add(&a, A, "F32", 3, 4);
    adapter_add(&a, B, "F32", 5, 2);
    refused(&a, PENSTOCK_ECORRUPT, "3 rows, but 2 columns");

    a = adapter_new(4);
    adapter_add_pair(&a, "F32", 0, Q, 4, 5, 3);
    refused(&a, PENSTOCK_ECORRUPT, "its rank is 3, and 4 by adapter_config.json");

    a = adapter_new(3);
    adapter_add_pair(&a, "F32", 0, "odd_proj", 4, 5, 5);
    refused(&a, PENSTOCK_ELIMIT, "rank is 5, above the slot's max_rank of 4");

    a = adapter_new(3);
    adapter_add_pair(&a, "F64", 0, Q, 4, 5, 3);
    refused(&a, PENSTOCK_EUNSUPPORTED, "dtype F64");

    a = adapter_new(3);
    adapter_add_pair(&a, "F32", 0, Q, 4, 5, 3);
    a.manifest.tensors.at[0].rank = 1;
    refused(&a, PENSTOCK_EUNSUPPORTED, "1 dimensions");

    a = adapter_new(3);
    adapter_add_pair(&a, "F32", 0, Q, 4, 5, 3);
    a.manifest.tensors.at[1].len_bytes--;
    refused(&a, PENSTOCK_ECORRUPT, "its shape and its length disagree");

    a = adapter_new(3);
    adapter_add_pair(&a, "F32", 0, Q, 0, 5, 3);
    refused(&a, PENSTOCK_ECORRUPT, "empty");

    a = adapter_new(3);
    adapter_add(&a, "base_model.model.score.weight", "F32", 2, 2);
    refused(&a, PENSTOCK_ENOTFOUND, "no tensor is a LoRA matrix");
}

static void two_tensors_for_one_place_are_refused(void **state)
{
    (void)state;
    static const char *const twins[] = { "model.layers.0." Q ".lora_A.weight", "x.00." Q ".lora_B.weight" };
    for (size_t i = 0; i < 2; i++) {
        struct adapter a = adapter_new(3);
        adapter_add_pair(&a, "F32", 0, Q, 4, 4, 3);
        adapter_add(&a, twins[i], "F32", i ? 4 : 3, i ? 3 : 4);
        refused(&a, PENSTOCK_ECORRUPT, "two for one place");
    }
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct adapter a = adapter_new(3);
    struct model_lora_layout l;
    struct penstock_error error;
    adapter_add_pair(&a, "F32", 1, Q, 4, 5, 3);
    const struct penstock_lora_place places[] = { { Q, 1, 4, 5 }, { "z", 0, UINT64_MAX / 8 + 1, 1 } };
    assert_int_equal(make(&a, 4, places, 2, &l, &error), PENSTOCK_ELIMIT);
    const struct penstock_lora_place more[] = { { Q, 1, 4, 5 }, { "z", 0, UINT64_MAX / 8, UINT64_MAX / 8 } };
    assert_int_equal(make(&a, 4, more, 2, &l, &error), PENSTOCK_ELIMIT);
    adapter_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_follow_each_other_by_layer_and_module),
        cmocka_unit_test(a_pool_has_one_layout_for_all_adapters),
        cmocka_unit_test(an_adapter_that_the_pool_has_no_place_for_is_refused),
        cmocka_unit_test(matrices_that_contradict_each_other_are_refused_by_name),
        cmocka_unit_test(two_tensors_for_one_place_are_refused),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
