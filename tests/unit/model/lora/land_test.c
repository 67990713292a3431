#include "adapter.h"

#include "model/lora/land.h"

/* BF16 of one value, as protocol 1.5 has it: the nearest, ties to even; a NaN made quiet. */
static uint16_t from_f32(uint32_t bits)
{
    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(bits >> 16 | 0x40);
    uint32_t rest = bits & 0xFFFF, upper = bits >> 16;
    return (uint16_t)(upper + (rest > 0x8000 || (rest == 0x8000 && (upper & 1))));
}

static uint16_t from_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 0x1F, fraction = bits & 0x3FF;
    if (exponent == 0x1F)
        return from_f32(sign | 0x7F800000 | fraction << 13);
    float value = exponent ? 1 + (float)fraction / 1024 : (float)fraction / 1024;
    for (uint32_t e = exponent ? exponent : 1; e < 15; e++)
        value /= 2;
    for (uint32_t e = 15; e < exponent; e++)
        value *= 2;
    uint32_t positive;
    memcpy(&positive, &value, 4);
    return from_f32(sign | positive);
}

static uint16_t value_of(const char *dtype, const uint8_t *bytes, size_t i)
{
    uint32_t four;
    uint16_t two;
    if (strcmp(dtype, "F32") == 0) {
        memcpy(&four, bytes + 4 * i, 4);
        return from_f32(four);
    }
    memcpy(&two, bytes + 2 * i, 2);
    return strcmp(dtype, "F16") == 0 ? from_f16(two) : two;
}

static void check_matrix(const struct penstock_tensor *t, const uint8_t *from, const uint8_t *to, uint64_t rows,
                         uint64_t columns)
{
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++) {
            uint16_t got, want = 0;
            memcpy(&got, to + 2 * (r * columns + c), 2);
            if (t && r < t->shape[0] && c < t->shape[1])
                want = value_of(t->dtype, from, r * t->shape[1] + c);
            if (got != want)
                fail_msg("%s [%u][%u]: %04x, not %04x", t ? t->name : "nothing", (unsigned)r, (unsigned)c, got, want);
        }
}

/* The adapter's file is random bytes; the slot is longer than it has to be, at an odd address, and not zero before. */
static void check_landing(struct adapter *a, uint64_t max_rank, const struct penstock_lora_place *places, size_t n)
{
    const struct model_lora_slot slot = { .max_rank = max_rank, .places = places, .n_places = n };
    struct model_lora_layout l;
    struct penstock_error error;
    uint64_t seed = max_rank;
    assert_int_equal(model_lora_layout_make(&a->manifest, &a->config, &slot, &l, &error), 0);
    uint8_t *file = malloc(a->end), *memory = malloc(l.slot_bytes + 101), *to = memory + 1;
    struct model_lora_bytes bytes[16] = { 0 };
    for (uint64_t i = 0; i < a->end; i++)
        file[i] = (uint8_t)test_random(&seed);
    for (size_t i = 0; i < l.entries.n; i++)
        if (l.sources.at[i].a)
            bytes[i] = (struct model_lora_bytes){ .a = file + l.sources.at[i].a->offset_bytes,
                                                  .b = file + l.sources.at[i].b->offset_bytes };
    memset(memory, 0xA5, l.slot_bytes + 101);
    model_lora_land(&l, bytes, to, l.slot_bytes + 99);
    for (size_t i = 0; i < l.entries.n; i++) {
        const struct penstock_lora_entry *e = &l.entries.at[i];
        check_matrix(l.sources.at[i].a, bytes[i].a, to + e->a_offset_bytes, max_rank, e->in);
        check_matrix(l.sources.at[i].b, bytes[i].b, to + e->b_offset_bytes, e->out, max_rank);
    }
    for (size_t i = 0; i < 99; i++)
        assert_int_equal(to[l.slot_bytes + i], 0);
    assert_int_equal(memory[0], 0xA5);
    assert_int_equal(to[l.slot_bytes + 99], 0xA5);
    free(file);
    free(memory);
    model_lora_layout_fini(&l);
}

static void each_dtype_lands_in_each_rank(void **state)
{
    (void)state;
    static const uint64_t ranks[] = { 1, 3, 8, 64 };
    for (size_t i = 0; i < 4; i++) {
        struct adapter a = adapter_new(ranks[i]);
        adapter_add_pair(&a, "F32", 0, "self_attn.q_proj", 33, 200, ranks[i]);
        adapter_add_pair(&a, "F16", 0, "self_attn.k_proj", 1, 1, ranks[i]);
        adapter_add_pair(&a, "BF16", 3, "mlp.up_proj", 17, 9, ranks[i]);
        adapter_add_pair(&a, "F16", 1, "x", 300, 1500, ranks[i]);
        check_landing(&a, ranks[i], NULL, 0);
        check_landing(&a, ranks[i] + 1, NULL, 0);
        check_landing(&a, 70, NULL, 0);
        adapter_fini(&a);
    }
}

static void a_rank_above_what_is_converted_at_once(void **state)
{
    (void)state;
    struct adapter a = adapter_new(4097);
    adapter_add_pair(&a, "F32", 0, "x", 1, 3, 4097);
    check_landing(&a, 4097, NULL, 0);
    check_landing(&a, 4099, NULL, 0);
    adapter_fini(&a);
}

static void places_that_the_adapter_lacks_are_zero(void **state)
{
    (void)state;
    struct adapter a = adapter_new(2);
    adapter_add_pair(&a, "F32", 1, "x", 5, 6, 2);
    const struct penstock_lora_place places[] = { { "x", 0, 7, 7 }, { "x", 1, 5, 6 }, { "y", 1, 3, 3 } };
    check_landing(&a, 4, places, 3);
    adapter_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_dtype_lands_in_each_rank),
        cmocka_unit_test(a_rank_above_what_is_converted_at_once),
        cmocka_unit_test(places_that_the_adapter_lacks_are_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
