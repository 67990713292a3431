#include "wire_test.h"

static struct penstock_layer layers[64];
static struct penstock_verbs_server_params decoded[PENSTOCK_RAILS_MAX];
static size_t want, room = 64;
static uint8_t bytes[8192];

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_server_rails_decode(buf, len, want, layers, room, decoded, consumed, fault);
}

/* Rail i has i + 1 layers; returns the bytes that all of them take. */
static size_t make_rails(uint64_t *seed, size_t n, struct penstock_verbs_server_params *rails,
                         struct penstock_layer *table)
{
    for (size_t i = 0; i < n; i++) {
        rails[i] = (struct penstock_verbs_server_params){ .qp = wire_test_random_qp(seed),
                                                          .n_layers = (uint32_t)i + 1,
                                                          .layers = table };
        for (size_t l = 0; l <= i; l++)
            *table++ = (struct penstock_layer){ test_random(seed), (uint32_t)test_random(seed) };
    }
    return penstock_server_rails_size(rails, n);
}

static void random_rails_come_back(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (want = 1; want <= PENSTOCK_RAILS_MAX; want++) {
        struct penstock_verbs_server_params rails[PENSTOCK_RAILS_MAX];
        struct penstock_layer table[64];
        struct penstock_wire_fault fault;
        size_t n = make_rails(&seed, want, rails, table);
        assert_int_equal(penstock_server_rails_encode(rails, want, bytes, &fault), n);
        wire_test_whole(decode, bytes, n);
        for (size_t i = 0; i < want; i++) {
            wire_test_qp_equal(&decoded[i].qp, &rails[i].qp);
            assert_int_equal(decoded[i].n_layers, i + 1);
            for (size_t l = 0; l <= i; l++) {
                assert_int_equal(decoded[i].layers[l].base, rails[i].layers[l].base);
                assert_int_equal(decoded[i].layers[l].rkey, rails[i].layers[l].rkey);
            }
        }
    }
}

static void the_bytes_are_a_count_and_the_records(void **state)
{
    (void)state;
    bytes[0] = 1;
    memcpy(bytes + 1, golden_verbs_server_params, sizeof golden_verbs_server_params);
    want = 1;
    wire_test_whole(decode, bytes, 1 + sizeof golden_verbs_server_params);

    uint8_t back[1 + sizeof golden_verbs_server_params];
    struct penstock_wire_fault fault;
    assert_int_equal(penstock_server_rails_encode(decoded, 1, back, &fault), sizeof back);
    assert_memory_equal(back, bytes, sizeof back);
}

static void every_truncation_names_the_field_it_was_in(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = {
        { 1, "read server rail count" },
        { 5, "read u32" },
        { 9, "read u32" },
        { 25, "read server gid" },
        { 29, "read u32" },
        { 37, "read mr base" },
        { 41, "read u32" },
        { 45, "read u32" },
        { 49, "read u32" },
        { 65, "read server gid" },
        { 69, "read u32" },
        { 77, "read mr base" },
        { 81, "read u32" },
        { 89, "read mr base" },
        { 93, "read u32" },
    };
    uint64_t seed = 5;
    struct penstock_verbs_server_params rails[2];
    struct penstock_layer table[3];
    struct penstock_wire_fault fault;
    want = 2;
    size_t n = make_rails(&seed, 2, rails, table);
    assert_int_equal(penstock_server_rails_encode(rails, 2, bytes, &fault), n);
    wire_test_truncations(decode, bytes, n, fields);
}

static void reading_refuses_a_count_before_any_record(void **state)
{
    (void)state;
    want = 2;
    wire_test_refused(decode, "\0", 1, "implausible server rail count: 0");
    wire_test_refused(decode, "\x09", 1, "implausible server rail count: 9");
    wire_test_refused(decode, "\xFF", 1, "implausible server rail count: 255");
    wire_test_refused(decode, "\x01", 1, "server framed 1 rails but client negotiated 2");
    wire_test_refused(decode, "\x08", 1, "server framed 8 rails but client negotiated 2");
    want = 9; /* implausible whatever was negotiated */
    wire_test_refused(decode, "\x09", 1, "implausible server rail count: 9");
}

static void writing_refuses_a_count_and_writes_nothing(void **state)
{
    (void)state;
    static const struct penstock_verbs_server_params rails[9];
    struct penstock_wire_fault fault;
    memset(bytes, '#', sizeof bytes);
    assert_int_equal(penstock_server_rails_encode(rails, 0, bytes, &fault), 0);
    wire_test_message(&fault, "implausible server rail count: 0");
    assert_int_equal(penstock_server_rails_encode(rails, 9, bytes, &fault), 0);
    wire_test_message(&fault, "implausible server rail count: 9");
    assert_int_equal(bytes[0], '#');
    assert_int_equal(penstock_server_rails_encode(rails, 8, bytes, &fault), 1 + 8 * 28);
}

static void the_layers_of_all_rails_share_the_room(void **state)
{
    (void)state;
    uint64_t seed = 6;
    struct penstock_verbs_server_params rails[2];
    struct penstock_layer table[3];
    struct penstock_wire_fault fault;
    want = 2;
    size_t n = make_rails(&seed, 2, rails, table);
    assert_int_equal(penstock_server_rails_encode(rails, 2, bytes, &fault), n);
    room = 2;
    wire_test_refused(decode, bytes, n, "2 verbs layers where 1 at most belong");
    room = 3;
    wire_test_whole(decode, bytes, n);
    room = 64;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_rails_come_back),
        cmocka_unit_test(the_bytes_are_a_count_and_the_records),
        cmocka_unit_test(every_truncation_names_the_field_it_was_in),
        cmocka_unit_test(reading_refuses_a_count_before_any_record),
        cmocka_unit_test(writing_refuses_a_count_and_writes_nothing),
        cmocka_unit_test(the_layers_of_all_rails_share_the_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
