#include "wire_test.h"

static struct penstock_paging_header decoded;

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_paging_header_decode(buf, len, &decoded, consumed, fault);
}

static void both_ways(const struct penstock_paging_header *header, const uint8_t *bytes)
{
    uint8_t out[PENSTOCK_PAGING_HEADER_BYTES];
    penstock_paging_header_encode(header, out);
    assert_memory_equal(out, bytes, sizeof out);
    wire_test_whole(decode, bytes, sizeof out);
    assert_int_equal(decoded.kind, header->kind);
    assert_int_equal(decoded.arena_bytes, header->arena_bytes);
    assert_int_equal(decoded.blob_bytes, header->blob_bytes);
}

static void golden_bytes_both_ways(void **state)
{
    (void)state;
    const struct penstock_paging_header paging = { .kind = PENSTOCK_ARENA_KV,
                                                   .arena_bytes = 0x2000,
                                                   .blob_bytes = 0x80 };
    const struct penstock_paging_header raw = { .kind = PENSTOCK_ARENA_KV, .arena_bytes = UINT64_C(16) << 30 };
    both_ways(&paging, golden_paging_header);
    both_ways(&raw, golden_paging_header_raw);
}

static void every_truncation_names_the_field_it_was_in(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = {
        { 8, "paging magic" }, { 9, "paging kind" }, { 17, "arena bytes" }, { 25, "blob bytes" }
    };
    wire_test_truncations(decode, golden_paging_header, sizeof golden_paging_header, fields);
}

static void a_magic_is_refused_before_the_rest_is_there(void **state)
{
    (void)state;
    wire_test_refused(decode, "\x01\0\0\0EGAP", 8, "paging magic 0x5041474500000001: version 1 is retired");
    wire_test_refused(decode, "\x03\0\0\0EGAP", 8, "paging magic 0x5041474500000003: not a paging client");
    wire_test_refused(decode, "GET / HT", 8, "paging magic 0x5448202f20544547: not a paging client");
}

static void refuse(uint8_t kind, uint64_t arena, uint64_t blob, const char *message)
{
    const struct penstock_paging_header header = { .kind = kind, .arena_bytes = arena, .blob_bytes = blob };
    uint8_t bytes[PENSTOCK_PAGING_HEADER_BYTES];
    penstock_paging_header_encode(&header, bytes);
    wire_test_refused(decode, bytes, sizeof bytes, message);
}

static void bounds(void **state)
{
    (void)state;
    refuse(2, 0x2000, 0x80, "unknown paging kind: 2");
    refuse(0xFE, 0, 0, "unknown paging kind: 254");
    refuse(PENSTOCK_ARENA_KV, 0, 0, "implausible arena size: 0");
    refuse(PENSTOCK_ARENA_SSM, (UINT64_C(1) << 42) + 1, 0, "implausible arena size: 4398046511105");
    refuse(PENSTOCK_ARENA_KV, UINT64_MAX, 1, "implausible arena size: 18446744073709551615");
    refuse(PENSTOCK_ARENA_KV, 0x2001, 0x80, "arena size 8193 is not a multiple of the blob size 128");
    refuse(PENSTOCK_ARENA_KV, 0x2000, 0x4000, "arena size 8192 is not a multiple of the blob size 16384");
}

static void the_bounds_themselves_are_fine(void **state)
{
    (void)state;
    static const struct penstock_paging_header headers[] = {
        { .kind = PENSTOCK_ARENA_SSM, .arena_bytes = 1, .blob_bytes = 0 },
        { .kind = PENSTOCK_ARENA_SSM, .arena_bytes = 1, .blob_bytes = 1 },
        { .kind = PENSTOCK_ARENA_KV, .arena_bytes = UINT64_C(1) << 42, .blob_bytes = UINT64_C(1) << 42 },
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        uint8_t bytes[PENSTOCK_PAGING_HEADER_BYTES];
        penstock_paging_header_encode(&headers[i], bytes);
        both_ways(&headers[i], bytes);
    }
}

static void statistics_are_asked_for_without_an_arena(void **state)
{
    (void)state;
    const struct penstock_paging_header header = { .kind = PENSTOCK_ARENA_STATISTICS };
    uint8_t bytes[PENSTOCK_PAGING_HEADER_BYTES];
    penstock_paging_header_encode(&header, bytes);
    both_ways(&header, bytes);
    refuse(PENSTOCK_ARENA_STATISTICS, 0x2000, 0, "unknown paging kind: 255");
    refuse(PENSTOCK_ARENA_STATISTICS, 0, 0x80, "unknown paging kind: 255");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_bytes_both_ways),
        cmocka_unit_test(every_truncation_names_the_field_it_was_in),
        cmocka_unit_test(a_magic_is_refused_before_the_rest_is_there),
        cmocka_unit_test(bounds),
        cmocka_unit_test(the_bounds_themselves_are_fine),
        cmocka_unit_test(statistics_are_asked_for_without_an_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
