#include "wire_test.h"

static struct penstock_verbs_client_params decoded[UINT8_MAX];
static uint8_t bytes[1 + UINT8_MAX * PENSTOCK_VERBS_CLIENT_PARAMS_BYTES];
static size_t want;

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_client_rails_decode(buf, len, want, decoded, consumed, fault);
}

static size_t make_rails(uint64_t *seed, size_t n, struct penstock_verbs_client_params *rails)
{
    struct penstock_wire_fault fault;
    for (size_t i = 0; i < n; i++)
        rails[i] = (struct penstock_verbs_client_params){ .qp = wire_test_random_qp(seed) };
    size_t size = penstock_client_rails_encode(rails, n, bytes, &fault);
    assert_int_equal(size, 1 + n * PENSTOCK_VERBS_CLIENT_PARAMS_BYTES);
    assert_int_equal(size, penstock_client_rails_size(n));
    assert_int_equal(bytes[0], n);
    return size;
}

static void random_rails_come_back(void **state)
{
    (void)state;
    static struct penstock_verbs_client_params rails[UINT8_MAX];
    uint64_t seed = 7;
    for (want = 1; want <= UINT8_MAX; want += want < 9 ? 1 : 41) {
        wire_test_whole(decode, bytes, make_rails(&seed, want, rails));
        for (size_t i = 0; i < want; i++) {
            wire_test_qp_equal(&decoded[i].qp, &rails[i].qp);
        }
    }
}

static void every_truncation_names_the_field_it_was_in(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = {

        { 1, "client rail count" }, { 5, "read u32" },  { 9, "read u32" },         { 25, "read client gid" },
        { 29, "read u32" },         { 33, "read u32" }, { 49, "read client gid" },
    };
    struct penstock_verbs_client_params rails[2];
    uint64_t seed = 8;
    want = 2;
    wire_test_truncations(decode, bytes, make_rails(&seed, 2, rails), fields);
}

static void another_count_is_refused_before_any_record(void **state)
{
    (void)state;
    want = 2;
    wire_test_refused(decode, "\0", 1, "implausible client rail count: 0");
    wire_test_refused(decode, "\x01", 1, "client framed 1 rails but negotiated 2");
    wire_test_refused(decode, "\xFF", 1, "client framed 255 rails but negotiated 2");
}

static void writing_refuses_a_count_and_writes_nothing(void **state)
{
    (void)state;
    static const struct penstock_verbs_client_params rails[1];
    struct penstock_wire_fault fault;
    bytes[0] = '#';
    assert_int_equal(penstock_client_rails_encode(rails, 0, bytes, &fault), 0);
    wire_test_message(&fault, "implausible client rail count: 0");
    assert_int_equal(penstock_client_rails_encode(rails, 256, bytes, &fault), 0);
    wire_test_message(&fault, "implausible client rail count: 256");
    assert_int_equal(bytes[0], '#');
}

/* What the client of the handshake's transcripts sends in step 3 (protocol 1.3). */
static void the_transcripts_step_3_is_these_bytes(void **state)
{
    (void)state;
    static const uint8_t transcript[] = {
        2,
        0x44,
        0x33,
        0x22,
        0x11,
        0xCC,
        0xBB,
        0xAA,
        0,
        GOLDEN_GID(0x60),
        0x88,
        0x77,
        0x66,
        0x55,
        0xFF,
        0xEE,
        0xDD,
        0,
        GOLDEN_GID(0x70),
    };
    struct penstock_verbs_client_params rails[2] = { { .qp = wire_test_golden_qp(0x60) },
                                                     { .qp = wire_test_golden_qp(0x70) } };
    rails[0].qp.qpn = 0x11223344;
    rails[0].qp.psn = 0x00AABBCC;
    rails[1].qp.qpn = 0x55667788;
    rails[1].qp.psn = 0x00DDEEFF;
    struct penstock_wire_fault fault;
    assert_int_equal(penstock_client_rails_encode(rails, 2, bytes, &fault), sizeof transcript);
    assert_memory_equal(bytes, transcript, sizeof transcript);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_rails_come_back),
        cmocka_unit_test(every_truncation_names_the_field_it_was_in),
        cmocka_unit_test(another_count_is_refused_before_any_record),
        cmocka_unit_test(writing_refuses_a_count_and_writes_nothing),
        cmocka_unit_test(the_transcripts_step_3_is_these_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
