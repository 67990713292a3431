#include "wire_test.h"

#include <stdio.h>

static enum penstock_dialect dialect;
static struct penstock_rails_request decoded;

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_rails_request_decode(buf, len, dialect, &decoded, consumed, fault);
}

/* What was asked, and what comes back. */
static struct penstock_rails_request asked;
static struct penstock_rail_choice granted[PENSTOCK_RAILS_MAX];

static enum penstock_decode decode_answer(const uint8_t *buf, size_t len, size_t *consumed,
                                          struct penstock_wire_fault *fault)
{
    return penstock_rails_answer_decode(buf, len, &asked, granted, consumed, fault);
}

static void a_count_is_one_byte(void **state)
{
    (void)state;
    for (int d = PENSTOCK_READ_ONLY; d <= PENSTOCK_READ_WRITE; d++) {
        dialect = (enum penstock_dialect)d;
        for (unsigned n = 0; n < 256; n++) {
            const uint8_t byte = (uint8_t)n;
            const bool read_only_good = n >= 1 && n <= 8;
            if (dialect == PENSTOCK_READ_ONLY ? read_only_good : n < 128) {
                wire_test_whole(decode, &byte, 1);
                assert_false(decoded.choosing);
                assert_int_equal(decoded.n_rails, n);
                uint8_t back;
                struct penstock_wire_fault fault;
                assert_int_equal(penstock_rails_request_encode(&decoded, dialect, &back, &fault), 1);
                assert_int_equal(back, n);
            } else if (n <= 128 || n > 136) {
                size_t consumed;
                struct penstock_wire_fault fault;
                char message[64];
                snprintf(message, sizeof message, "implausible client rail count: %u", n);
                assert_int_equal(wire_test_decode(decode, &byte, 1, &consumed, &fault), PENSTOCK_DECODE_MALFORMED);
                wire_test_message(&fault, message);
            }
        }
    }
}

static void nothing_yet_misses_the_count(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = { { 1, "client rail count" } };
    wire_test_truncations(decode, "\x02", 1, fields);
}

static void random_choices_come_back(void **state)
{
    (void)state;
    uint64_t seed = 9;
    for (int i = 0; i < 1000; i++) {
        struct penstock_rails_request request = { .n_rails = (uint8_t)(1 + test_random(&seed) % 8), .choosing = true };
        for (uint8_t r = 0; r < request.n_rails; r++)
            request.rails[r] = (struct penstock_rail_choice){
                .peer_rail = test_random(&seed) % 2 ? PENSTOCK_PEER_RAIL_ANY : (uint8_t)(r * 31),
                .path_mtu = (uint8_t)(1 + test_random(&seed) % 5),
                .rd_atomic = (uint8_t)(1 + test_random(&seed) % 128),
            };
        uint8_t bytes[PENSTOCK_RAILS_REQUEST_BYTES_MAX];
        struct penstock_wire_fault fault;
        dialect = i % 2 ? PENSTOCK_READ_ONLY : PENSTOCK_READ_WRITE;
        size_t n = penstock_rails_request_encode(&request, dialect, bytes, &fault);
        assert_int_equal(n, 1 + 3 * request.n_rails);
        assert_int_equal(n, penstock_rails_request_size(&request));
        assert_int_equal(bytes[0], 0x80 | request.n_rails);
        wire_test_whole(decode, bytes, n);
        assert_true(decoded.choosing);
        assert_int_equal(decoded.n_rails, request.n_rails);
        assert_memory_equal(decoded.rails, request.rails, request.n_rails * sizeof request.rails[0]);
    }
}

static void every_truncation_names_the_field_it_was_in(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = {
        { 1, "client rail count" }, { 2, "peer rail" }, { 3, "path mtu" },   { 4, "read depth" },
        { 5, "peer rail" },         { 6, "path mtu" },  { 7, "read depth" },
    };
    wire_test_truncations(decode, "\x82\x00\x05\x10\xFF\x01\x80", 7, fields);
}

/* Both ways: the codec neither reads nor writes it. */
static void refuse_choices(const char *bytes, size_t n, const char *message)
{
    wire_test_refused(decode, bytes, n, message);

    struct penstock_rails_request request = { .n_rails = (uint8_t)bytes[0] & 0x7F, .choosing = true };
    for (size_t i = 0; i < request.n_rails; i++)
        request.rails[i] = (struct penstock_rail_choice){ (uint8_t)bytes[1 + 3 * i], (uint8_t)bytes[2 + 3 * i],
                                                          (uint8_t)bytes[3 + 3 * i] };
    uint8_t out = '#';
    struct penstock_wire_fault fault;
    assert_int_equal(penstock_rails_request_encode(&request, dialect, &out, &fault), 0);
    wire_test_message(&fault, message);
    assert_int_equal(out, '#');
}

static void implausible_choices_are_refused_both_ways(void **state)
{
    (void)state;
    refuse_choices("\x81\x00\x00\x10", 4, "implausible path mtu: 0");
    refuse_choices("\x81\x00\x06\x10", 4, "implausible path mtu: 6");
    refuse_choices("\x81\x00\x05\x00", 4, "implausible read depth: 0");
    refuse_choices("\x81\x00\x05\x81", 4, "implausible read depth: 129");
    refuse_choices("\x82\x03\x05\x10\x03\x05\x10", 7, "peer rail 3 chosen twice");
}

static void writing_refuses_a_count_and_writes_nothing(void **state)
{
    (void)state;
    static const struct {
        enum penstock_dialect dialect;
        struct penstock_rails_request request;
        const char *message;
    } cases[] = {
        { PENSTOCK_READ_ONLY, { .n_rails = 0 }, "implausible client rail count: 0" },
        { PENSTOCK_READ_ONLY, { .n_rails = 9 }, "implausible client rail count: 9" },
        { PENSTOCK_READ_WRITE, { .n_rails = 128 }, "implausible client rail count: 128" },
        { PENSTOCK_READ_WRITE, { .n_rails = 0, .choosing = true }, "implausible client rail count: 0" },
        { PENSTOCK_READ_WRITE, { .n_rails = 9, .choosing = true }, "implausible client rail count: 9" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t out = '#';
        struct penstock_wire_fault fault;
        assert_int_equal(penstock_rails_request_encode(&cases[i].request, cases[i].dialect, &out, &fault), 0);
        wire_test_message(&fault, cases[i].message);
        assert_int_equal(out, '#');
    }
}

static void ask_for_two(void)
{
    asked =
        (struct penstock_rails_request){ .n_rails = 2, .choosing = true, .rails = { { 1, 4, 16 }, { 0xFF, 5, 8 } } };
}

static void an_answer_within_the_wishes_comes_back(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = {
        { 1, "peer rail" }, { 2, "path mtu" }, { 3, "read depth" },
        { 4, "peer rail" }, { 5, "path mtu" }, { 6, "read depth" },
    };
    const struct penstock_rail_choice answer[] = { { 1, 3, 16 }, { 0, 5, 1 } };
    uint8_t bytes[6];
    ask_for_two();
    penstock_rails_answer_encode(answer, 2, bytes);
    assert_memory_equal(bytes, "\x01\x03\x10\x00\x05\x01", 6);
    wire_test_whole(decode_answer, bytes, 6);
    assert_memory_equal(granted, answer, sizeof answer);
    wire_test_truncations(decode_answer, bytes, 6, fields);
}

static void an_answer_beyond_the_wishes_is_refused(void **state)
{
    (void)state;
    ask_for_two();
    wire_test_refused(decode_answer, "\x02\x03\x10\x00\x05\x01", 6, "granted peer rail 2, wanted 1");
    wire_test_refused(decode_answer, "\x01\x05\x10\x00\x05\x01", 6, "granted path mtu 5, wanted 4 at most");
    wire_test_refused(decode_answer, "\x01\x04\x11\x00\x05\x01", 6, "granted read depth 17, wanted 16 at most");
    wire_test_refused(decode_answer, "\x01\x04\x10\xFF\x05\x01", 6, "granted no peer rail");
    wire_test_refused(decode_answer, "\x01\x04\x10\x01\x05\x01", 6, "peer rail 1 chosen twice");
    wire_test_refused(decode_answer, "\x01\x00\x10\x00\x05\x01", 6, "implausible path mtu: 0");
    wire_test_refused(decode_answer, "\x01\x04\x10\x00\x05\x00", 6, "implausible read depth: 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_count_is_one_byte),
        cmocka_unit_test(nothing_yet_misses_the_count),
        cmocka_unit_test(random_choices_come_back),
        cmocka_unit_test(every_truncation_names_the_field_it_was_in),
        cmocka_unit_test(implausible_choices_are_refused_both_ways),
        cmocka_unit_test(writing_refuses_a_count_and_writes_nothing),
        cmocka_unit_test(an_answer_within_the_wishes_comes_back),
        cmocka_unit_test(an_answer_beyond_the_wishes_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
