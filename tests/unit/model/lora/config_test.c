#include "../../test.h"

#include <math.h>
#include <stdio.h>

#include "model/lora/config.h"

#define BASIC "\"peft_type\":\"LORA\",\"r\":8,\"lora_alpha\":16"

static struct model_lora_config read_good(const char *text)
{
    struct model_lora_config config;
    struct penstock_error error;
    if (model_lora_config_read(text, strlen(text), &config, &error) != 0)
        fail_msg("%s: %s", text, error.message);
    return config;
}

static void refused(const char *more, int code, const char *words)
{
    struct model_lora_config config;
    struct penstock_error error = { 0 };
    char text[600];
    snprintf(text, sizeof text, "{" BASIC ",%s}", more);
    if (model_lora_config_read(text, strlen(text), &config, &error) != code || error.code != code ||
        !strstr(error.message, words) || !strstr(error.message, "adapter_config.json"))
        fail_msg("%s: %d %s", more, error.code, error.message);
    assert_null(config.rank_pattern);
}

static void scale_of(const struct model_lora_config *config, const char *path, uint64_t rank, double scale)
{
    uint64_t effort = 0, r;
    double s;
    assert_int_equal(model_lora_config_for(config, path, strlen(path), &effort, &r, &s, NULL), 0);
    assert_int_equal(r, rank);
    assert_true(s == scale);
}

static void what_only_tells_of_training_is_not_looked_at(void **state)
{
    (void)state;
    struct model_lora_config config = read_good(
        "{" BASIC
        ",\"auto_mapping\":null,\"base_model_name_or_path\":\"gpt2\",\"bias\":\"none\",\"fan_in_fan_out\":true,"
        "\"inference_mode\":true,\"init_lora_weights\":\"gaussian\",\"layer_replication\":null,\"layers_pattern\":null,"
        "\"layers_to_transform\":[1],\"loftq_config\":{},\"lora_dropout\":0.1,\"megatron_config\":null,"
        "\"megatron_core\":\"megatron.core\",\"modules_to_save\":[\"score\"],\"target_modules\":[\"c_attn\"],"
        "\"use_dora\":false,\"use_rslora\":false,\"lora_bias\":false,\"exclude_modules\":null,\"qalora_group_size\":16,"
        "\"something_new\":1,\"corda_config\":null,\"eva_config\":{\"rho\":2.0},\"rank_pattern\":{}}");
    assert_int_equal(config.rank, 8);
    assert_true(config.alpha == 16 && config.fan_in_fan_out && !config.rslora);
    assert_null(config.rank_pattern);
    scale_of(&config, "any", 8, 2);
    model_lora_config_fini(&config);
}

static void the_first_pattern_that_matches_holds(void **state)
{
    (void)state;
    struct model_lora_config config =
        read_good("{" BASIC ",\"rank_pattern\":{\"layers.0.q_proj\":4,\"q_proj\":2,\"0.q_proj\":1},"
                  "\"alpha_pattern\":{\".*\\\\.(1|2)\\\\.\\\\w+\":3.5}}");
    scale_of(&config, "model.layers.0.q_proj", 4, 16.0 / 4);
    scale_of(&config, "model.layers.1.q_proj", 2, 3.5 / 2);
    scale_of(&config, "model.layers.2.k_proj", 8, 3.5 / 8);
    scale_of(&config, "model.layers.3.xq_proj", 8, 2);
    struct penstock_error error;
    uint64_t effort = 0, rank;
    double scale;
    assert_int_equal(model_lora_config_for(&config, "\xC3\xA9", 2, &effort, &rank, &scale, &error),
                     PENSTOCK_EUNSUPPORTED);
    effort = UINT64_C(1) << 40;
    assert_int_equal(model_lora_config_for(&config, "none", 4, &effort, &rank, &scale, &error), PENSTOCK_ELIMIT);
    model_lora_config_fini(&config);
}

static void rslora_divides_by_the_root(void **state)
{
    (void)state;
    struct model_lora_config config = read_good("{" BASIC ",\"use_rslora\":true,\"rank_pattern\":{\"k\":9}}");
    scale_of(&config, "q", 8, 16 / sqrt(8));
    scale_of(&config, "k", 9, 16.0 / 3);
    model_lora_config_fini(&config);
}

static void what_changes_the_meaning_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const fields[] = { "\"use_dora\":true",
                                          "\"use_qalora\":true",
                                          "\"use_bdlora\":{\"nblocks\":2}",
                                          "\"use_what_comes_next\":true",
                                          "\"lora_bias\":true",
                                          "\"bias\":\"lora_only\"",
                                          "\"bias\":\"all\"",
                                          "\"layer_replication\":[[0,2]]",
                                          "\"target_parameters\":[\"experts\"]",
                                          "\"trainable_token_indices\":[5]",
                                          "\"megatron_config\":{\"a\":1}",
                                          "\"alora_invocation_tokens\":[1,2]",
                                          "\"arrow_config\":{\"top_k\":3}",
                                          "\"init_lora_weights\":\"pissa_niter_16\"",
                                          "\"init_lora_weights\":\"olora\"",
                                          "\"init_lora_weights\":\"loftq\"",
                                          "\"init_lora_weights\":\"corda\"",
                                          "\"init_lora_weights\":\"unheard of\"",
                                          "\"rank_pattern\":{\"(?i)x\":1}",
                                          "\"alpha_pattern\":{\"a{2}\":1}" };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(strchr(fields[i] + 1, '"') - fields[i] - 1), fields[i] + 1);
        refused(fields[i], PENSTOCK_EUNSUPPORTED, name);
    }
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    refused("\"r\":8", PENSTOCK_ECORRUPT, "\"r\"");
    refused("\"use_rslora\":1", PENSTOCK_ECORRUPT, "use_rslora");
    refused("\"fan_in_fan_out\":\"no\"", PENSTOCK_ECORRUPT, "fan_in_fan_out");
    refused("\"target_modules\":[1]", PENSTOCK_ECORRUPT, "target_modules");
    refused("\"rank_pattern\":[1]", PENSTOCK_ECORRUPT, "rank_pattern");
    refused("\"rank_pattern\":{\"a\":0}", PENSTOCK_ECORRUPT, "rank_pattern");
    refused("\"rank_pattern\":{\"a\":1.5}", PENSTOCK_ECORRUPT, "rank_pattern");
    refused("\"rank_pattern\":{\"a\":1,\"a\":2}", PENSTOCK_ECORRUPT, "rank_pattern");
    refused("\"alpha_pattern\":{\"a\":\"b\"}", PENSTOCK_ECORRUPT, "alpha_pattern");
    static const char *const texts[] = { "",
                                         "[]",
                                         "null",
                                         "{",
                                         "{}",
                                         "{\"peft_type\":\"LORA\",\"r\":8}",
                                         "{\"peft_type\":\"LORA\",\"lora_alpha\":8}",
                                         "{\"peft_type\":\"LORA\",\"r\":0,\"lora_alpha\":8}",
                                         "{\"peft_type\":\"LORA\",\"r\":-1,\"lora_alpha\":8}",
                                         "{\"peft_type\":\"LORA\",\"r\":8,\"lora_alpha\":null}",
                                         "{\"r\":8,\"lora_alpha\":8}" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct model_lora_config config;
        struct penstock_error error;
        if (model_lora_config_read(texts[i], strlen(texts[i]), &config, &error) != PENSTOCK_ECORRUPT)
            fail_msg("%s", texts[i]);
    }
}

static void another_kind_of_adapter_is_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"peft_type\":\"ADALORA\",\"r\":8,\"lora_alpha\":16}";
    struct model_lora_config config;
    struct penstock_error error;
    assert_int_equal(model_lora_config_read(text, strlen(text), &config, &error), PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "ADALORA"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_only_tells_of_training_is_not_looked_at),
        cmocka_unit_test(the_first_pattern_that_matches_holds),
        cmocka_unit_test(rslora_divides_by_the_root),
        cmocka_unit_test(what_changes_the_meaning_is_refused_by_name),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(another_kind_of_adapter_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
