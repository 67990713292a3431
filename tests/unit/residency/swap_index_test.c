#include "../test.h"
#include "residency/swap/index.h"

static const struct swap_geometry kv = { .kind = RESIDENCY_KV, .blob_bytes = 65536 };
static const struct swap_index_entry some = {
    .key = { .low = 0x1122334455667788, .high = 0x99aabbccddeeff00 },
    .generation = 0x0102030405060708,
    .checksum = 0xfedcba9876543210,
    .written_s = 1764633600,
    .boot = 42,
};

static enum swap_index_verdict entry_of(const uint8_t *bytes, const struct swap_geometry *geometry, uint32_t record)
{
    struct swap_index_entry out;
    return swap_index_entry_decode(bytes, geometry, record, &out);
}

static void an_entry_comes_back_as_it_went(void **state)
{
    (void)state;
    uint8_t bytes[SWAP_INDEX_ENTRY_BYTES];
    struct swap_index_entry out;
    swap_index_entry_encode(&some, &kv, 7, bytes);
    assert_int_equal(swap_index_entry_decode(test_against_a_guard_page(bytes, sizeof bytes), &kv, 7, &out),
                     SWAP_INDEX_GOOD);
    assert_true(out.key.low == some.key.low && out.key.high == some.key.high);
    assert_true(out.generation == some.generation && out.checksum == some.checksum);
    assert_true(out.written_s == some.written_s && out.boot == some.boot);
}

static void every_flipped_bit_of_an_entry_is_seen(void **state)
{
    (void)state;
    uint8_t bytes[SWAP_INDEX_ENTRY_BYTES];
    swap_index_entry_encode(&some, &kv, 7, bytes);
    for (size_t bit = 0; bit < sizeof bytes * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(entry_of(bytes, &kv, 7), SWAP_INDEX_DAMAGED);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void an_entry_torn_at_any_byte_is_free_damaged_or_whole(void **state)
{
    (void)state;
    uint8_t whole[SWAP_INDEX_ENTRY_BYTES], torn[SWAP_INDEX_ENTRY_BYTES];
    swap_index_entry_encode(&some, &kv, 7, whole);
    for (size_t n = 0; n <= sizeof whole; n++) {
        memset(torn, 0, sizeof torn);
        memcpy(torn, whole, n);
        enum swap_index_verdict verdict = entry_of(torn, &kv, 7);
        assert_int_equal(verdict, n == 0 ? SWAP_INDEX_FREE : n == sizeof whole ? SWAP_INDEX_GOOD : SWAP_INDEX_DAMAGED);
    }
}

static void an_entry_is_good_in_its_own_place_alone(void **state)
{
    (void)state;
    uint8_t bytes[SWAP_INDEX_ENTRY_BYTES];
    swap_index_entry_encode(&some, &kv, 7, bytes);
    struct swap_geometry ssm = { .kind = RESIDENCY_SSM, .blob_bytes = 65536 };
    struct swap_geometry larger = { .kind = RESIDENCY_KV, .blob_bytes = 131072 };
    assert_int_equal(entry_of(bytes, &kv, 8), SWAP_INDEX_DAMAGED);
    assert_int_equal(entry_of(bytes, &ssm, 7), SWAP_INDEX_DAMAGED);
    assert_int_equal(entry_of(bytes, &larger, 7), SWAP_INDEX_DAMAGED);
}

static void a_header_says_what_it_was_told(void **state)
{
    (void)state;
    uint8_t bytes[SWAP_INDEX_HEADER_BYTES];
    struct swap_index_header out;
    for (int clean = 0; clean < 2; clean++) {
        swap_index_header_encode(&(struct swap_index_header){ .geometry = kv, .boot = 9, .clean = clean }, bytes);
        assert_int_equal(swap_index_header_decode(test_against_a_guard_page(bytes, sizeof bytes), &kv, &out),
                         SWAP_INDEX_GOOD);
        assert_int_equal(out.boot, 9);
        assert_int_equal(out.clean, clean);
    }
    for (size_t bit = 0; bit < sizeof bytes * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(swap_index_header_decode(bytes, &kv, &out), SWAP_INDEX_DAMAGED);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void a_header_of_another_geometry_is_told_from_a_damaged_one(void **state)
{
    (void)state;
    uint8_t bytes[SWAP_INDEX_HEADER_BYTES];
    struct swap_index_header out, header = { .geometry = { .kind = RESIDENCY_SSM, .blob_bytes = 65536 } };
    swap_index_header_encode(&header, bytes);
    assert_int_equal(swap_index_header_decode(bytes, &kv, &out), SWAP_INDEX_OTHER);
    header.geometry = (struct swap_geometry){ .kind = RESIDENCY_KV, .blob_bytes = 4096 };
    swap_index_header_encode(&header, bytes);
    assert_int_equal(swap_index_header_decode(bytes, &kv, &out), SWAP_INDEX_OTHER);
}

static void names_are_those_it_gives_and_no_others(void **state)
{
    (void)state;
    char name[SWAP_NAME_MAX];
    struct swap_geometry out;
    swap_index_name(&kv, "swap", name);
    assert_string_equal(name, "kv-65536.swap");
    assert_true(swap_index_name_parse(name, "swap", &out));
    assert_int_equal(out.kind, RESIDENCY_KV);
    assert_int_equal(out.blob_bytes, 65536);
    static const char *const wrong[] = { "",
                                         "-",
                                         "kv-",
                                         "kv-65536",
                                         "kv-065536.swap",
                                         "kv-1x.swap",
                                         "xx-1.swap",
                                         "kv-1.swap.",
                                         "kv-+1.swap",
                                         "kv- 1.swap",
                                         "kv--1.swap",
                                         "kv-.swap",
                                         "kv-1.index",
                                         "akv-4096.swap",
                                         "penstock.lock",
                                         "kv-99999999999999999999.swap" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(swap_index_name_parse(wrong[i], "swap", &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_comes_back_as_it_went),
        cmocka_unit_test(every_flipped_bit_of_an_entry_is_seen),
        cmocka_unit_test(an_entry_torn_at_any_byte_is_free_damaged_or_whole),
        cmocka_unit_test(an_entry_is_good_in_its_own_place_alone),
        cmocka_unit_test(a_header_says_what_it_was_told),
        cmocka_unit_test(a_header_of_another_geometry_is_told_from_a_damaged_one),
        cmocka_unit_test(names_are_those_it_gives_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
