#include "../../test.h"

#include "model/experts/geometry.h"

static const struct model_expert_geometry check_value = {
    .num_moe_layers = 40,
    .num_experts = 180,
    .inter = 512,
    .hidden = 2048,
    .group_size = 16,
    .sub_align = MODEL_EXPERT_SUB_ALIGN,
    .fs_block_size = MODEL_EXPERT_FS_BLOCK,
};

static void the_protocols_check_value_comes_out(void **state)
{
    (void)state;
    struct model_expert_geometry g = check_value;
    assert_int_equal(model_expert_geometry_compute(&g, NULL), 0);
    assert_int_equal(g.payload_bytes, 1769472);
    assert_int_equal(g.record_raw_bytes, 1769472 + 256);
    assert_int_equal(g.record_stride, 1773568);
    assert_int_equal(g.layer_bytes, UINT64_C(180) * 1773568);
    assert_int_equal(g.total_bytes, UINT64_C(40) * 180 * 1773568);
    const uint64_t packed = 512 * 2048 / 2, scale = 512 * 2048 / 16;
    uint64_t at = 256;
    for (enum model_expert_part part = 0; part < MODEL_EXPERT_PARTS; part++) {
        assert_int_equal(g.parts[part].offset_bytes, at);
        assert_int_equal(g.parts[part].len_bytes, part % 2 == 0 ? packed : scale);
        at += g.parts[part].len_bytes;
    }
    assert_int_equal(model_expert_record_at(&g, 179), UINT64_C(179) * 1773568);
}

static void parts_are_aligned_and_the_record_rounded_up(void **state)
{
    (void)state;
    struct model_expert_geometry g = check_value;
    g.inter = 48; /* 48 * 80 / 2 = 1920, 48 * 80 / 16 = 240: neither is a multiple of what it is aligned to */
    g.hidden = 80;
    g.sub_align = 512;
    g.fs_block_size = 3000;
    assert_int_equal(model_expert_geometry_compute(&g, NULL), 0);
    const uint64_t offsets[] = { 512, 2560, 3072, 5120, 5632, 7680 };
    for (enum model_expert_part part = 0; part < MODEL_EXPERT_PARTS; part++)
        assert_int_equal(g.parts[part].offset_bytes, offsets[part]);
    assert_int_equal(g.payload_bytes, 3 * (1920 + 240));
    assert_int_equal(g.record_raw_bytes, 8192);
    assert_int_equal(g.record_stride, 9000);
}

static void gate_and_up_are_inter_by_hidden_and_down_is_turned(void **state)
{
    (void)state;
    for (enum model_expert_part part = 0; part < MODEL_EXPERT_PARTS; part++) {
        bool down = part >= MODEL_EXPERT_DOWN_PACKED;
        assert_int_equal(model_expert_rows(&check_value, part), down ? 2048 : 512);
        assert_int_equal(model_expert_columns(&check_value, part), down ? 512 : 2048);
    }
    assert_string_equal(model_expert_part_name(MODEL_EXPERT_GATE_PACKED), "gate.packed");
    assert_string_equal(model_expert_part_name(MODEL_EXPERT_DOWN_SCALE), "down.scale");
}

static void refused(struct model_expert_geometry g, const char *words)
{
    struct penstock_error error = { 0 };
    assert_int_equal(model_expert_geometry_compute(&g, &error), PENSTOCK_EINVAL);
    assert_int_equal(error.code, PENSTOCK_EINVAL);
    assert_string_equal(error.message, words);
}

#define BUT(field, number)                                                                                             \
    ({                                                                                                                 \
        struct model_expert_geometry but = check_value;                                                                \
        but.field = (number);                                                                                          \
        but;                                                                                                           \
    })

static void every_zero_is_refused_by_name(void **state)
{
    (void)state;
    refused(BUT(num_moe_layers, 0), "num_moe_layers: 0");
    refused(BUT(num_experts, 0), "num_experts: 0");
    refused(BUT(inter, 0), "inter: 0");
    refused(BUT(hidden, 0), "hidden: 0");
    refused(BUT(group_size, 0), "group_size: 0");
    refused(BUT(sub_align, 0), "sub_align: 0");
    refused(BUT(fs_block_size, 0), "fs_block_size: 0");
}

static void what_does_not_divide_is_refused(void **state)
{
    (void)state;
    refused(BUT(sub_align, 384), "sub_align: 384 is no power of two");
    refused(BUT(inter, 511), "inter: 511 is odd, and a byte holds two values");
    refused(BUT(hidden, 2049), "hidden: 2049 is odd, and a byte holds two values");
    refused(BUT(inter, 520), "inter: 520 is no multiple of group_size, which is 16");
    refused(BUT(hidden, 2056), "hidden: 2056 is no multiple of group_size, which is 16");
}

static void as_many_layers_as_a_reader_takes_and_no_more(void **state)
{
    (void)state;
    struct model_expert_geometry g = BUT(num_moe_layers, PENSTOCK_LAYERS_MAX);
    assert_int_equal(model_expert_geometry_compute(&g, NULL), 0);
    refused(BUT(num_moe_layers, PENSTOCK_LAYERS_MAX + 1), "num_moe_layers: 4097, and 4096 are the most");
}

static void sizes_that_64_bits_cannot_say_are_refused(void **state)
{
    (void)state;
    struct model_expert_geometry g = check_value;
    g.inter = g.hidden = 0xFFFFFFF0;
    refused(g, "inter and hidden: a record of 4294967280 by 4294967280 is more than a file can hold");
    g.hidden = 0x60000000; /* fits 64 bits, but no file */
    g.num_experts = 1;
    refused(g, "inter and hidden: a record of 4294967280 by 1610612736 is more than a file can hold");

    g = check_value;
    g.inter = g.hidden = 1 << 20;
    g.num_experts = UINT32_MAX; /* 1.9 TB each */
    struct penstock_error error = { 0 };
    assert_int_equal(model_expert_geometry_compute(&g, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "num_experts: 4294967295 records of"));

    g.num_experts = 1 << 20;
    g.num_moe_layers = 4; /* one layer would do, four do not */
    assert_int_equal(model_expert_geometry_compute(&g, NULL), 0);
    g.num_moe_layers = 8;
    assert_int_equal(model_expert_geometry_compute(&g, NULL), PENSTOCK_EINVAL);
}

static void a_large_record_is_no_trouble(void **state)
{
    (void)state;
    struct model_expert_geometry g = check_value;
    g.inter = g.hidden = 65536; /* above 4 GiB */
    assert_int_equal(model_expert_geometry_compute(&g, NULL), 0);
    assert_int_equal(g.payload_bytes, 3 * (UINT64_C(1) << 31) + 3 * (UINT64_C(1) << 28));
    assert_int_equal(g.parts[MODEL_EXPERT_DOWN_PACKED].offset_bytes,
                     256 + 2 * (UINT64_C(1) << 31) + 2 * (UINT64_C(1) << 28));
}

/* ---- headers ---- */

static struct penstock_record_header right(void)
{
    return (struct penstock_record_header){ .layer = 3, .expert = 7, .inter = 512, .hidden = 2048, .group_size = 16 };
}

static void header_refused(const struct penstock_record_header *header, const char *words)
{
    uint8_t bytes[PENSTOCK_RECORD_HEADER_BYTES];
    struct penstock_error error = { 0 };
    penstock_record_header_encode(header, bytes);
    assert_int_equal(model_expert_header_check(&check_value, 3, 7, bytes, NULL, &error), PENSTOCK_ECORRUPT);
    assert_string_equal(error.message, words);
}

static void a_header_is_compared_field_by_field(void **state)
{
    (void)state;
    struct penstock_record_header h = right(), out;
    uint8_t bytes[PENSTOCK_RECORD_HEADER_BYTES];
    h.scale2[1] = 0.25f;
    penstock_record_header_encode(&h, bytes);
    assert_int_equal(model_expert_header_check(&check_value, 3, 7, bytes, &out, NULL), 0);
    assert_memory_equal(&out, &h, sizeof h);

    h = right();
    h.layer = 4;
    header_refused(&h, "layer 3, expert 7: record layer: 4, not 3");
    h = right();
    h.expert = 8;
    header_refused(&h, "layer 3, expert 7: record expert: 8, not 7");
    h = right();
    h.inter = 1;
    header_refused(&h, "layer 3, expert 7: record inter: 1, not 512");
    h = right();
    h.hidden = 1;
    header_refused(&h, "layer 3, expert 7: record hidden: 1, not 2048");
    h = right();
    h.group_size = 32;
    header_refused(&h, "layer 3, expert 7: record group_size: 32, not 16");
}

static void a_record_of_zeros_is_none(void **state)
{
    (void)state;
    const uint8_t bytes[PENSTOCK_RECORD_HEADER_BYTES] = { 0 };
    struct penstock_error error = { 0 };
    assert_int_equal(model_expert_header_check(&check_value, 0, 0, bytes, NULL, &error), PENSTOCK_ECORRUPT);
    assert_non_null(strstr(error.message, "layer 0, expert 0: record magic "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_protocols_check_value_comes_out),
        cmocka_unit_test(parts_are_aligned_and_the_record_rounded_up),
        cmocka_unit_test(gate_and_up_are_inter_by_hidden_and_down_is_turned),
        cmocka_unit_test(every_zero_is_refused_by_name),
        cmocka_unit_test(what_does_not_divide_is_refused),
        cmocka_unit_test(as_many_layers_as_a_reader_takes_and_no_more),
        cmocka_unit_test(sizes_that_64_bits_cannot_say_are_refused),
        cmocka_unit_test(a_large_record_is_no_trouble),
        cmocka_unit_test(a_header_is_compared_field_by_field),
        cmocka_unit_test(a_record_of_zeros_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
