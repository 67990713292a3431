#include "wire_test.h"

static struct penstock_cache_server_params decoded[UINT8_MAX];
static uint8_t bytes[1 + UINT8_MAX * PENSTOCK_CACHE_SERVER_PARAMS_BYTES];
static size_t want;

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_cache_rails_decode(buf, len, want, decoded, consumed, fault);
}

static size_t make_rails(uint64_t *seed, size_t n, struct penstock_cache_server_params *rails)
{
    struct penstock_wire_fault fault;
    for (size_t i = 0; i < n; i++)
        rails[i] = (struct penstock_cache_server_params){ .qp = wire_test_random_qp(seed),
                                                          .base_addr = test_random(seed),
                                                          .rkey = (uint32_t)test_random(seed) };
    size_t size = penstock_cache_rails_encode(rails, n, bytes, &fault);
    assert_int_equal(size, 1 + n * PENSTOCK_CACHE_SERVER_PARAMS_BYTES);
    assert_int_equal(size, penstock_cache_rails_size(n));
    assert_int_equal(bytes[0], n);
    return size;
}

static void random_rails_come_back(void **state)
{
    (void)state;
    static struct penstock_cache_server_params rails[UINT8_MAX];
    uint64_t seed = 7;
    for (want = 1; want <= UINT8_MAX; want += want < 9 ? 1 : 41) {
        wire_test_whole(decode, bytes, make_rails(&seed, want, rails));
        for (size_t i = 0; i < want; i++) {
            wire_test_qp_equal(&decoded[i].qp, &rails[i].qp);
            assert_int_equal(decoded[i].base_addr, rails[i].base_addr);
            assert_int_equal(decoded[i].rkey, rails[i].rkey);
        }
    }
}

static void every_truncation_names_the_field_it_was_in(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = {

        { 1, "cache rail count" }, { 5, "kv qpn" },   { 9, "kv psn" },   { 25, "kv gid" },
        { 33, "kv base" },         { 37, "kv rkey" }, { 41, "kv qpn" },  { 45, "kv psn" },
        { 61, "kv gid" },          { 69, "kv base" }, { 73, "kv rkey" },
    };
    struct penstock_cache_server_params rails[2];
    uint64_t seed = 8;
    want = 2;
    wire_test_truncations(decode, bytes, make_rails(&seed, 2, rails), fields);
}

static void another_count_is_refused_before_any_record(void **state)
{
    (void)state;
    want = 2;
    wire_test_refused(decode, "\0", 1, "granted 0 rails, wanted 2");
    wire_test_refused(decode, "\x01", 1, "granted 1 rails, wanted 2");
    want = 0;
    wire_test_refused(decode, "\xFF", 1, "granted 255 rails, wanted 0");
}

/* The answer of a TCP data plane (protocol 2.2). */
static void no_rails_are_fine_where_none_were_wanted(void **state)
{
    (void)state;
    want = 0;
    wire_test_whole(decode, "\0", 1);
}

static void writing_refuses_more_than_the_count_can_say(void **state)
{
    (void)state;
    static const struct penstock_cache_server_params rails[1];
    struct penstock_wire_fault fault;
    bytes[0] = '#';
    assert_int_equal(penstock_cache_rails_encode(rails, 256, bytes, &fault), 0);
    wire_test_message(&fault, "implausible cache rail count: 256");
    assert_int_equal(bytes[0], '#');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_rails_come_back),
        cmocka_unit_test(every_truncation_names_the_field_it_was_in),
        cmocka_unit_test(another_count_is_refused_before_any_record),
        cmocka_unit_test(no_rails_are_fine_where_none_were_wanted),
        cmocka_unit_test(writing_refuses_more_than_the_count_can_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
