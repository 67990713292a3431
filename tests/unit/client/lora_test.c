/* Adapters over TCP, the peer being in the test's own thread. */
#include "fake_peer.h"

#include <penstock/lora.h>

#define CONFIG "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":3,\"fan_in_fan_out\":true}"
#define MODULE "self_attn.q_proj"
#define MATRICES                                                                                                       \
    "\"tensors\":[{\"name\":\"base_model.model.layers.4." MODULE                                                       \
    ".lora_B.weight\",\"dtype\":\"BF16\",\"shape\":[3,2],"                                                             \
    "\"offset_in_shard\":16,\"len\":12,\"shard_index\":0,\"extra\":false},"                                            \
    "{\"name\":\"base_model.model.layers.4." MODULE ".lora_A.weight\",\"dtype\":\"BF16\",\"shape\":[2,4],"             \
    "\"offset_in_shard\":28,\"len\":16,\"shard_index\":0,\"extra\":false},"                                            \
    "{\"name\":\"score.weight\",\"dtype\":\"U8\",\"shape\":[8],\"offset_in_shard\":8,\"len\":8,\"shard_index\":0,"     \
    "\"extra\":false}]"

static const char manifest[] = "{\"version\":1,\"model_id\":\"/m\",\"shard_files\":[\"adapter_model.safetensors\"],"
                               "\"shard_lens\":[100]," MATRICES ",\"model_version\":\"v1\",\"files\":[{\"name\":\"x\","
                               "\"len\":1},{\"name\":\"adapter_config.json\",\"len\":%zu}]}";

static struct fake_peer ready(const char *text)
{
    struct fake_peer f = fake_begin(NULL, CLIENT_FOR_MANIFEST, NULL);
    struct penstock_completion c = { 0 };
    fake_expect(&f, "\1\0\0\0m", 5);
    fake_send_text(&f, text);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, 0);
    fake_expect(&f, "\0", 1);
    return f;
}

static struct fake_peer ready_with(const char *config)
{
    char text[2000];
    snprintf(text, sizeof text, manifest, strlen(config));
    return ready(text);
}

static struct penstock_lora_options options_of(uint64_t max_rank)
{
    return (struct penstock_lora_options){ .size = sizeof(struct penstock_lora_options), .max_rank = max_rank };
}

/* Asks for the config and answers with it; the completion. */
static struct penstock_completion open_with(struct fake_peer *f, const struct penstock_lora_options *options,
                                            const char *config, struct penstock_lora **lora)
{
    penstock_op op;
    struct penstock_completion c = { 0 };
    assert_int_equal(penstock_lora_start(f->session, options, lora, &op, NULL), 0);
    assert_null(penstock_lora_at(*lora, 0));
    assert_int_equal(fake_poll(f, &c), 0);
    const struct penstock_range_request r = fake_request(f);
    assert_int_equal(r.file, 2);
    assert_int_equal(r.len, strlen(config));
    fake_status(f, PENSTOCK_STATUS_OK);
    fake_send(f, config, strlen(config));
    assert_int_equal(fake_poll(f, &c), 1);
    assert_int_equal(c.op, op);
    return c;
}

static struct penstock_lora *opened(struct fake_peer *f, uint64_t max_rank)
{
    struct penstock_lora *lora;
    const struct penstock_lora_options options = options_of(max_rank);
    *f = ready_with(CONFIG);
    assert_int_equal(open_with(f, &options, CONFIG, &lora).code, 0);
    return lora;
}

static uint8_t slot[200];

static penstock_op land(struct fake_peer *f, struct penstock_lora *lora)
{
    penstock_op op = 0;
    const struct penstock_memory memory = { .size = sizeof memory, .address = slot, .len_bytes = sizeof slot };
    const struct penstock_lora_landing landing = { .size = sizeof landing, .slot = &memory, .user = slot };
    memset(slot, 0xA5, sizeof slot);
    assert_int_equal(penstock_lora_land(f->session, lora, &landing, &op, NULL), 0);
    return op;
}

static void assert_untouched(void)
{
    for (size_t i = 0; i < sizeof slot; i++)
        assert_int_equal(slot[i], 0xA5);
}

/* max_rank 3: A of three rows, then B of three columns, then nothing. */
static void assert_landed(void)
{
    uint8_t right[sizeof slot] = { 0 };
    for (size_t i = 0; i < 16; i++)
        right[i] = fake_byte(0, 28 + i);
    for (size_t i = 0; i < 12; i++)
        right[24 + i / 4 * 6 + i % 4] = fake_byte(0, 16 + i);
    assert_memory_equal(slot, right, sizeof slot);
}

static void an_adapter_is_opened_and_landed(void **state)
{
    (void)state;
    struct fake_peer f;
    struct penstock_lora *lora = opened(&f, 3);
    struct penstock_lora_info info = { .size = sizeof info };
    assert_int_equal(penstock_lora_about(lora, &info), 0);
    assert_int_equal(info.slot_bytes, 42);
    assert_int_equal(info.pull_bytes, 28);
    assert_int_equal(info.entries, 1);
    assert_int_equal(info.left_out, 1);
    assert_true(info.max_rank == 3 && info.fan_in_fan_out && !info.rslora);
    const struct penstock_lora_entry *e = penstock_lora_at(lora, 0);
    assert_string_equal(e->module, MODULE);
    assert_true(e->layer == 4 && e->in == 4 && e->out == 3 && e->rank == 2 && e->scale == 1.5);
    assert_true(e->a_offset_bytes == 0 && e->a_len_bytes == 24 && e->b_offset_bytes == 24 && e->b_len_bytes == 18);
    assert_null(penstock_lora_at(lora, 1));
    assert_string_equal(penstock_lora_left_out(lora, 0), "score.weight");
    assert_null(penstock_lora_left_out(lora, 1));

    for (int twice = 0; twice < 2; twice++) {
        struct penstock_completion c = { 0 };
        penstock_op op = land(&f, lora);
        assert_int_equal(fake_poll(&f, &c), 0);
        struct penstock_range_request r = fake_request(&f);
        assert_true(r.file == 0 && r.offset == 16 && r.len == 28); /* both matrices in one */
        fake_status(&f, PENSTOCK_STATUS_OK);
        fake_payload(&f, 0, 16, 27);
        assert_int_equal(fake_poll(&f, &c), 0);
        assert_untouched();
        fake_payload(&f, 0, 43, 1);
        assert_int_equal(fake_poll(&f, &c), 1);
        assert_true(c.op == op && c.code == 0 && c.landed_bytes == 28 && c.user == slot);
        assert_landed();
    }
    penstock_lora_free(lora);
    fake_end(&f);
}

static void a_landing_that_fails_leaves_the_slot_as_it_was(void **state)
{
    (void)state;
    struct fake_peer f;
    struct penstock_completion c = { 0 };
    struct penstock_lora *lora = opened(&f, 3);
    (void)land(&f, lora);
    assert_int_equal(fake_poll(&f, &c), 0);
    (void)fake_request(&f);
    fake_status(&f, PENSTOCK_STATUS_ERR);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_EREFUSED);
    assert_untouched();

    penstock_op op = land(&f, lora);
    assert_int_equal(fake_poll(&f, &c), 0);
    (void)fake_request(&f);
    fake_status(&f, PENSTOCK_STATUS_OK);
    fake_payload(&f, 0, 16, 27);
    assert_int_equal(fake_poll(&f, &c), 0);
    assert_int_equal(penstock_cancel(f.session, op), 0);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_ECANCELED);
    fake_payload(&f, 0, 43, 1);
    assert_int_equal(fake_poll(&f, &c), 0);
    assert_untouched();

    (void)land(&f, lora);
    assert_int_equal(fake_poll(&f, &c), 0);
    (void)fake_request(&f);
    fake_status(&f, PENSTOCK_STATUS_OK);
    fake_payload(&f, 0, 16, 27);
    fake_close(&f);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, PENSTOCK_ECLOSED);
    assert_untouched();
    penstock_lora_free(lora);
    fake_end(&f);
}

static void an_adapter_and_its_session_may_go_in_any_order(void **state)
{
    (void)state;
    struct fake_peer f;
    struct penstock_completion c = { 0 };
    struct penstock_lora *lora = opened(&f, 3);
    (void)land(&f, lora);
    penstock_lora_free(lora); /* the landing goes on */
    assert_int_equal(fake_poll(&f, &c), 0);
    const struct penstock_range_request r = fake_request(&f);
    fake_answer(&f, &r);
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.code, 0);
    assert_landed();
    fake_end(&f);

    lora = opened(&f, 3);
    (void)land(&f, lora);
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_end(&f);
    assert_untouched();
    assert_non_null(penstock_lora_at(lora, 0));
    penstock_lora_free(lora);

    const struct penstock_lora_options options = options_of(3);
    penstock_op op;
    f = ready_with(CONFIG);
    assert_int_equal(penstock_lora_start(f.session, &options, &lora, &op, NULL), 0);
    fake_end(&f);
    penstock_lora_free(lora);
}

static void a_pool_says_what_its_slots_have(void **state)
{
    (void)state;
    char name[] = MODULE; /* is copied */
    const struct penstock_lora_place places[] = { { "z", 9, 1, 1 }, { name, 4, 4, 3 }, { "y", 0, 2, 2 } };
    struct penstock_lora_options options = options_of(2);
    struct penstock_lora *lora;
    struct fake_peer f = ready_with(CONFIG);
    penstock_op op;
    options.places = places;
    options.n_places = 3;
    options.config = CONFIG;
    options.config_len_bytes = strlen(CONFIG);
    assert_int_equal(penstock_lora_start(f.session, &options, &lora, &op, NULL), 0);
    memset(name, 'x', 4);
    assert_int_equal(penstock_wait(f.session, op, NULL, NULL), 0);
    fake_expect_nothing(&f); /* the config was the caller's */
    assert_int_equal(penstock_lora_at(lora, 0)->layer, 0);
    assert_int_equal(penstock_lora_at(lora, 0)->rank, 0);
    assert_string_equal(penstock_lora_at(lora, 1)->module, MODULE);
    assert_int_equal(penstock_lora_at(lora, 1)->a_offset_bytes, 16);
    assert_string_equal(penstock_lora_at(lora, 2)->module, "z");
    penstock_lora_free(lora);

    const struct penstock_lora_place other = { "z", 9, 1, 1 };
    struct penstock_error error;
    options.places = &other;
    options.n_places = 1;
    assert_int_equal(penstock_lora_open(f.session, &options, &lora, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "no layer 4 " MODULE));
    fake_end(&f);
}

static void what_is_refused_is_named(void **state)
{
    (void)state;
    static const char dora[] = "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":3,\"use_dora\":true}";
    const struct penstock_lora_options options = options_of(3), small = options_of(1);
    struct penstock_lora *lora;
    struct fake_peer f = ready_with(dora);
    struct penstock_completion c = open_with(&f, &options, dora, &lora);
    assert_int_equal(c.code, PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(fake_words(&f, c.op), "adapter /m: adapter_config.json: use_dora"));
    struct penstock_lora_info info = { .size = sizeof info };
    assert_int_equal(penstock_lora_about(lora, &info), PENSTOCK_EINVAL);
    penstock_op op;
    const struct penstock_memory memory = { .size = sizeof memory, .address = slot, .len_bytes = sizeof slot };
    const struct penstock_lora_landing landing = { .size = sizeof landing, .slot = &memory };
    assert_int_equal(penstock_lora_land(f.session, lora, &landing, &op, NULL), PENSTOCK_EINVAL);
    penstock_lora_free(lora);
    fake_end(&f);

    f = ready_with(CONFIG);
    c = open_with(&f, &small, CONFIG, &lora);
    assert_int_equal(c.code, PENSTOCK_ELIMIT);
    assert_non_null(strstr(fake_words(&f, c.op), "rank is 2, above the slot's max_rank of 1"));
    penstock_lora_free(lora);
    fake_end(&f);
}

static void a_model_without_a_config_is_no_adapter(void **state)
{
    (void)state;
    const struct penstock_lora_options options = options_of(3);
    struct penstock_lora *lora;
    struct penstock_error error;
    penstock_op op;
    struct fake_peer f = fake_ready(NULL);
    assert_int_equal(penstock_lora_start(f.session, &options, &lora, &op, &error), PENSTOCK_ENOTFOUND);
    assert_non_null(strstr(error.message, "it is no PEFT adapter"));
    fake_end(&f);

    f = ready("{\"version\":1,\"model_id\":\"/m\",\"shard_files\":[\"a\"],\"shard_lens\":[100]," MATRICES "}");
    assert_int_equal(penstock_lora_start(f.session, &options, &lora, &op, &error), PENSTOCK_ENOTFOUND);
    assert_non_null(strstr(error.message, "give it the text"));
    fake_end(&f);
}

static void slots_that_cannot_take_it_are_refused(void **state)
{
    (void)state;
    struct fake_peer f;
    struct penstock_lora *lora = opened(&f, 3);
    struct penstock_memory memory = { .size = sizeof memory, .address = slot, .len_bytes = 41 };
    const struct penstock_lora_landing landing = { .size = sizeof landing, .slot = &memory };
    struct penstock_error error;
    penstock_op op;
    assert_int_equal(penstock_lora_land(f.session, lora, &landing, &op, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "41 bytes, and the adapter needs 42 with max_rank 3"));
    memory = (struct penstock_memory){ .size = sizeof memory, .where = PENSTOCK_DEVICE, .len_bytes = 42 };
    assert_int_equal(penstock_lora_land(f.session, lora, &landing, &op, &error), PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "DEVICE memory is not supported"));
    memory = (struct penstock_memory){ .size = sizeof memory, .len_bytes = 42 };
    assert_int_equal(penstock_lora_land(f.session, lora, &landing, &op, &error), PENSTOCK_EINVAL);

    struct fake_peer other = ready_with(CONFIG);
    memory = (struct penstock_memory){ .size = sizeof memory, .address = slot, .len_bytes = sizeof slot };
    assert_int_equal(penstock_lora_land(other.session, lora, &landing, &op, &error), PENSTOCK_EINVAL);
    assert_non_null(strstr(error.message, "another model"));
    assert_int_equal(penstock_lora_land_wait(NULL, lora, &landing, &error), PENSTOCK_EINVAL);
    fake_end(&other);
    penstock_lora_free(lora);
    penstock_lora_free(NULL);
    fake_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_adapter_is_opened_and_landed),
        cmocka_unit_test(a_landing_that_fails_leaves_the_slot_as_it_was),
        cmocka_unit_test(an_adapter_and_its_session_may_go_in_any_order),
        cmocka_unit_test(a_pool_says_what_its_slots_have),
        cmocka_unit_test(what_is_refused_is_named),
        cmocka_unit_test(a_model_without_a_config_is_no_adapter),
        cmocka_unit_test(slots_that_cannot_take_it_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
