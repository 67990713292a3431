#include "wire_test.h"

static struct penstock_layer layers[PENSTOCK_LAYERS_MAX];
static size_t room = PENSTOCK_LAYERS_MAX;
static struct penstock_verbs_server_params decoded;
static uint8_t bytes[PENSTOCK_VERBS_SERVER_HEAD_BYTES + (PENSTOCK_LAYERS_MAX + 1) * PENSTOCK_LAYER_BYTES];

static enum penstock_decode decode(const uint8_t *buf, size_t len, size_t *consumed, struct penstock_wire_fault *fault)
{
    return penstock_verbs_server_params_decode(buf, len, layers, room, &decoded, consumed, fault);
}

static void check(const struct penstock_verbs_server_params *params)
{
    wire_test_qp_equal(&decoded.qp, &params->qp);
    assert_int_equal(decoded.n_layers, params->n_layers);
    assert_ptr_equal(decoded.layers, layers);
    for (uint32_t i = 0; i < params->n_layers; i++) {
        assert_int_equal(layers[i].base, params->layers[i].base);
        assert_int_equal(layers[i].rkey, params->layers[i].rkey);
    }
}

static void golden_bytes_both_ways(void **state)
{
    (void)state;
    struct penstock_layer table[] = { { 0x1122334455667788, 0x99AABBCC }, { 0xDEADBEEF0BADF00D, 0x01020304 } };
    const struct penstock_verbs_server_params params = { .qp = wire_test_golden_qp(0x20),
                                                         .n_layers = 2,
                                                         .layers = table };
    assert_int_equal(penstock_verbs_server_params_size(2), sizeof golden_verbs_server_params);
    penstock_verbs_server_params_encode(&params, bytes);
    assert_memory_equal(bytes, golden_verbs_server_params, sizeof golden_verbs_server_params);

    wire_test_whole(decode, golden_verbs_server_params, sizeof golden_verbs_server_params);
    check(&params);
}

static void every_truncation_names_the_field_it_was_in(void **state)
{
    (void)state;
    static const struct wire_test_field fields[] = {
        { 4, "read u32" },      { 8, "read u32" },  { 24, "read server gid" }, { 28, "read u32" },
        { 36, "read mr base" }, { 40, "read u32" }, { 48, "read mr base" },    { 52, "read u32" },
    };
    wire_test_truncations(decode, golden_verbs_server_params, sizeof golden_verbs_server_params, fields);
}

static void random_records_come_back(void **state)
{
    (void)state;
    static struct penstock_layer table[PENSTOCK_LAYERS_MAX];
    uint64_t seed = 3;
    for (int i = 0; i < 100; i++) {
        struct penstock_verbs_server_params params = { .qp = wire_test_random_qp(&seed), .layers = table };
        params.n_layers = i == 0 ? PENSTOCK_LAYERS_MAX : 1 + (uint32_t)(test_random(&seed) % 300);
        for (uint32_t l = 0; l < params.n_layers; l++)
            table[l] = (struct penstock_layer){ test_random(&seed), (uint32_t)test_random(&seed) };
        penstock_verbs_server_params_encode(&params, bytes);
        wire_test_whole(decode, bytes, penstock_verbs_server_params_size(params.n_layers));
        check(&params);
    }
}

/* The head alone is there: nothing of the table has been read, or could have been. */
static void refuse_count(uint32_t n, const char *message)
{
    uint8_t head[PENSTOCK_VERBS_SERVER_HEAD_BYTES];
    memcpy(head, golden_verbs_server_params, sizeof head);
    for (size_t i = 0; i < 4; i++)
        head[24 + i] = (uint8_t)(n >> 8 * i);
    wire_test_refused(decode, head, sizeof head, message);
}

static void an_implausible_count_is_refused_before_the_table(void **state)
{
    (void)state;
    refuse_count(0, "implausible verbs layer count: 0");
    refuse_count(4097, "implausible verbs layer count: 4097");
    refuse_count(UINT32_MAX, "implausible verbs layer count: 4294967295");
}

static void more_layers_than_room_are_refused_before_the_table(void **state)
{
    (void)state;
    room = 1;
    refuse_count(2, "2 verbs layers where 1 at most belong");
    room = PENSTOCK_LAYERS_MAX;
}

static void writing_does_not_check_the_count(void **state)
{
    (void)state;
    struct penstock_verbs_server_params params = { .qp = wire_test_golden_qp(0x20) };
    assert_int_equal(penstock_verbs_server_params_size(0), 28);
    penstock_verbs_server_params_encode(&params, bytes);
    wire_test_refused(decode, bytes, 28, "implausible verbs layer count: 0");

    static struct penstock_layer table[PENSTOCK_LAYERS_MAX + 1];
    params.layers = table;
    params.n_layers = PENSTOCK_LAYERS_MAX + 1;
    penstock_verbs_server_params_encode(&params, bytes);
    wire_test_refused(decode, bytes, penstock_verbs_server_params_size(params.n_layers),
                      "implausible verbs layer count: 4097");
}

static void head_and_table_can_be_read_apart(void **state)
{
    (void)state;
    struct penstock_verbs_server_params head;
    struct penstock_wire_fault fault;
    size_t consumed = 0;
    assert_int_equal(penstock_verbs_server_head_decode(golden_verbs_server_params, 28, &head, &consumed, &fault),
                     PENSTOCK_DECODE_OK);
    assert_int_equal(consumed, PENSTOCK_VERBS_SERVER_HEAD_BYTES);
    assert_int_equal(head.n_layers, 2);
    assert_null(head.layers);

    /* One entry at a time, as they come. */
    struct penstock_layer table[2];
    const uint8_t *at = golden_verbs_server_params + consumed;
    for (uint32_t i = 0; i < head.n_layers; i++, at += consumed)
        assert_int_equal(penstock_layers_decode(at, 12, 1, &table[i], &consumed, &fault), PENSTOCK_DECODE_OK);
    assert_int_equal(table[0].base, 0x1122334455667788);
    assert_int_equal(table[1].rkey, 0x01020304);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_bytes_both_ways),
        cmocka_unit_test(every_truncation_names_the_field_it_was_in),
        cmocka_unit_test(random_records_come_back),
        cmocka_unit_test(an_implausible_count_is_refused_before_the_table),
        cmocka_unit_test(more_layers_than_room_are_refused_before_the_table),
        cmocka_unit_test(writing_does_not_check_the_count),
        cmocka_unit_test(head_and_table_can_be_read_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
