#include "wire_test.h"

static const struct {
    enum penstock_text text;
    uint32_t max;
    const char *field, *none, *above;
} texts[] = {
    { PENSTOCK_TEXT_EXPERT_MANIFEST, 16 << 20, "expert manifest length", "implausible expert manifest length: 0",
      "implausible expert manifest length: 16777217" },
    { PENSTOCK_TEXT_WEIGHT_MANIFEST, 256 << 20, "weight manifest length", "implausible weight manifest length: 0",
      "implausible weight manifest length: 268435457" },
    { PENSTOCK_TEXT_MODELS_REPLY, 16 << 20, "reply length", "implausible reply length: 0",
      "implausible reply length: 16777217" },
    { PENSTOCK_TEXT_CACHE_STATISTICS, 1 << 20, "cache statistics length", "implausible cache statistics length: 0",
      "implausible cache statistics length: 1048577" },
};
static enum penstock_text text;
static uint32_t decoded;

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_text_head_decode(buf, len, text, &decoded, consumed, fault);
}

static void lengths_within_the_bound_come_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const uint32_t lengths[] = { 1, 0x10203, texts[i].max - 1, texts[i].max };
        text = texts[i].text;
        for (size_t l = 0; l < 4; l++) {
            uint8_t bytes[PENSTOCK_TEXT_HEAD_BYTES];
            struct penstock_wire_fault fault;
            assert_int_equal(penstock_text_head_encode(text, lengths[l], bytes, &fault), 4);
            assert_int_equal(bytes[0], lengths[l] & 0xFF);
            wire_test_whole(decode, bytes, 4);
            assert_int_equal(decoded, lengths[l]);
            const struct wire_test_field field = { 4, texts[i].field };
            wire_test_truncations(decode, bytes, 4, &field);
        }
    }
}

static void refuse(uint32_t n, const char *message)
{
    const uint8_t bytes[] = { (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24) };
    wire_test_refused(decode, bytes, 4, message);

    uint8_t out = '#';
    struct penstock_wire_fault fault;
    assert_int_equal(penstock_text_head_encode(text, n, &out, &fault), 0);
    wire_test_message(&fault, message);
    assert_int_equal(out, '#');
}

static void lengths_beyond_the_bound_are_refused_both_ways(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        text = texts[i].text;
        refuse(0, texts[i].none);
        refuse(texts[i].max + 1, texts[i].above);
    }
}

static void a_length_above_32_bits_is_not_cut(void **state)
{
    (void)state;
    uint8_t out = '#';
    struct penstock_wire_fault fault;
    assert_int_equal(penstock_text_head_encode(PENSTOCK_TEXT_WEIGHT_MANIFEST, ((size_t)1 << 32) + 1, &out, &fault), 0);
    wire_test_message(&fault, "implausible weight manifest length: 4294967297");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_within_the_bound_come_back),
        cmocka_unit_test(lengths_beyond_the_bound_are_refused_both_ways),
        cmocka_unit_test(a_length_above_32_bits_is_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
