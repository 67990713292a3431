#include "model/lora/config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "model/lora/pattern.h"

#define RANK_MAX (UINT64_C(1) << 32)
/* Characters looked at to match all modules against all patterns: below a second. */
#define EFFORT_MAX (UINT64_C(1) << 29)

/* Fields under which A and B are not what B (A x) takes them for, or belong to another base model. They are fine where
 * they are off: absent, null, false or empty. */
static const struct {
    const char *field, *why;
} changes_meaning[] = {
    { "use_dora", "DoRA scales the columns of the merged weight as well" },
    { "use_qalora", "its A takes averages of groups of inputs" },
    { "use_bdlora", "its matrices are block-diagonal" },
    { "lora_bias", "B has biases, which a slot has no room for" },
    { "layer_replication", "the layers are not those of the base model" },
    { "target_parameters", "its matrices are of parameters, not of modules" },
    { "trainable_token_indices", "rows of the embedding are replaced as well" },
    { "megatron_config", "its matrices are one rank's part of them" },
    { "alora_invocation_tokens", "it acts from those tokens on and not before" },
    { "arrow_config", "it is one of several that a router mixes" },
};

/* How A and B began does not matter, unless something was taken out of the base model for it: PEFT writes `true` again
 * once it has converted such an adapter to the base model as it was. */
static const char *const harmless_inits[] = { "gaussian", "orthogonal", "eva" };

static bool is_off(const struct json_value *v)
{
    if (!v || v->type == JSON_NULL)
        return true;
    switch (v->type) {
    case JSON_BOOL:
        return !v->boolean;
    case JSON_STRING:
        return v->string.len == 0;
    case JSON_ARRAY:
        return v->array.n == 0;
    case JSON_OBJECT:
        return v->object.n == 0;
    default:
        return false;
    }
}

static bool is_text(const struct json_value *v, const char *text)
{
    return v->type == JSON_STRING && v->string.len == strlen(text) && memcmp(v->string.at, text, v->string.len) == 0;
}

static const char *as_text(const struct json_value *v)
{
    return v->type == JSON_STRING ? v->string.at : json_type_name(v->type);
}

static int judge_kind(const struct json_value *root, struct penstock_error *error)
{
    const struct json_value *type = json_find(root, "peft_type"), *bias = json_find(root, "bias");
    const struct json_value *init = json_find(root, "init_lora_weights");
    if (!type)
        return base_error_set(error, PENSTOCK_ECORRUPT, "field \"peft_type\": missing");
    if (!is_text(type, "LORA"))
        return base_error_set(error, PENSTOCK_EUNSUPPORTED, "peft_type %.100s: only LORA is supported", as_text(type));
    if (!is_off(bias) && !is_text(bias, "none"))
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "bias %.100s: not supported: biases of the base model are replaced as well",
                              as_text(bias));
    if (!init || init->type == JSON_BOOL || init->type == JSON_NULL)
        return 0;
    for (size_t i = 0; i < sizeof harmless_inits / sizeof *harmless_inits; i++)
        if (is_text(init, harmless_inits[i]))
            return 0;
    return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                          "init_lora_weights %.100s: not supported: it changes the base model (PiSSA, OLoRA, LoftQ, "
                          "CorDA) or is not known; saved with path_initial_model_for_weight_conversion it fits the "
                          "base model as it is",
                          as_text(init));
}

static int judge_variants(const struct json_value *root, struct penstock_error *error)
{
    for (size_t i = 0; i < sizeof changes_meaning / sizeof *changes_meaning; i++)
        if (!is_off(json_find(root, changes_meaning[i].field)))
            return base_error_set(error, PENSTOCK_EUNSUPPORTED, "%s: not supported: %s", changes_meaning[i].field,
                                  changes_meaning[i].why);
    /* Variants that are yet to come are switched on this way as well. */
    for (size_t i = 0; i < root->object.n; i++) {
        const struct json_member *m = &root->object.at[i];
        if (m->key.len > 4 && memcmp(m->key.at, "use_", 4) == 0 && strcmp(m->key.at, "use_rslora") != 0 &&
            !is_off(&m->value))
            return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                                  "%.100s: not known, and not off: it may change what "
                                  "the matrices mean",
                                  m->key.at);
    }
    return 0;
}

static int read_bool(const struct json_value *root, const char *field, bool *out, struct penstock_error *error)
{
    const struct json_value *v = json_find(root, field);
    *out = false;
    return !v || v->type == JSON_NULL ? 0 : json_get_bool(root, field, out, error);
}

static int take_rank(const struct json_value *v, uint64_t *out)
{
    if (!v || v->type != JSON_U64 || v->u64 == 0 || v->u64 > RANK_MAX)
        return PENSTOCK_ECORRUPT;
    *out = v->u64;
    return 0;
}

static int take_alpha(const struct json_value *v, double *out)
{
    if (!v)
        return PENSTOCK_ECORRUPT;
    *out = v->type == JSON_U64      ? (double)v->u64
           : v->type == JSON_I64    ? (double)v->i64
           : v->type == JSON_DOUBLE ? v->number
                                    : (double)NAN;
    return isfinite(*out) ? 0 : PENSTOCK_ECORRUPT;
}

/* The targets choose modules when an adapter is made; what was chosen is seen by the tensors. Only their form is looked
 * at. */
static int judge_targets(const struct json_value *root, struct penstock_error *error)
{
    const struct json_value *v = json_find(root, "target_modules");
    bool good = !v || v->type == JSON_NULL || v->type == JSON_STRING || v->type == JSON_ARRAY;
    for (size_t i = 0; good && v && v->type == JSON_ARRAY && i < v->array.n; i++)
        good = v->array.at[i].type == JSON_STRING;
    return good ? 0
                : base_error_set(error, PENSTOCK_ECORRUPT,
                                 "field \"target_modules\": neither a string nor an array of strings");
}

static int judge_pattern(const struct json_value *root, const char *field, const struct json_value **out,
                         struct penstock_error *error)
{
    const struct json_value *v = json_find(root, field);
    *out = NULL;
    if (is_off(v))
        return 0;
    if (v->type != JSON_OBJECT)
        return base_error_set(error, PENSTOCK_ECORRUPT, "field \"%s\": %s, and must be an object", field,
                              json_type_name(v->type));
    int code = json_unique_keys(v, error);
    if (code) { /* which of the two holds depends on the reader */
        base_error_in(error, "field \"%s\"", field);
        if (error && code == PENSTOCK_EPROTO)
            error->code = PENSTOCK_ECORRUPT;
        return code == PENSTOCK_EPROTO ? PENSTOCK_ECORRUPT : code;
    }
    for (size_t i = 0; i < v->object.n; i++) {
        const struct json_member *m = &v->object.at[i];
        const char *fault = model_lora_pattern_fault(m->key.at, m->key.len);
        uint64_t rank;
        double alpha;
        if (fault)
            return base_error_set(error, PENSTOCK_EUNSUPPORTED, "%s: pattern \"%.100s\": %s", field, m->key.at, fault);
        if (strcmp(field, "rank_pattern") == 0 ? take_rank(&m->value, &rank) : take_alpha(&m->value, &alpha))
            return base_error_set(error, PENSTOCK_ECORRUPT, "%s: \"%.100s\": not a number that it can be", field,
                                  m->key.at);
    }
    *out = v;
    return 0;
}

static int read_root(const struct json_value *root, struct model_lora_config *out, struct penstock_error *error)
{
    if (root->type != JSON_OBJECT)
        return base_error_set(error, PENSTOCK_ECORRUPT, "not an object");
    int code = json_unique_keys(root, error);
    code = code ? code : judge_kind(root, error);
    code = code ? code : judge_variants(root, error);
    code = code ? code : judge_targets(root, error);
    code = code ? code : read_bool(root, "use_rslora", &out->rslora, error);
    code = code ? code : read_bool(root, "fan_in_fan_out", &out->fan_in_fan_out, error);
    code = code ? code : judge_pattern(root, "rank_pattern", &out->rank_pattern, error);
    code = code ? code : judge_pattern(root, "alpha_pattern", &out->alpha_pattern, error);
    if (code == 0 && take_rank(json_find(root, "r"), &out->rank) != 0)
        code = base_error_set(error, PENSTOCK_ECORRUPT, "field \"r\": missing, or not a rank");
    if (code == 0 && take_alpha(json_find(root, "lora_alpha"), &out->alpha) != 0)
        code = base_error_set(error, PENSTOCK_ECORRUPT, "field \"lora_alpha\": missing, or not a number");
    return code;
}

int model_lora_config_read(const char *text, size_t len, struct model_lora_config *out, struct penstock_error *error)
{
    *out = (struct model_lora_config){ 0 };
    int code = json_parse(text, len, &out->doc, error);
    code = code ? code : read_root(&out->doc.root, out, error);
    if (code == 0)
        return 0;
    model_lora_config_fini(out);
    if (code == PENSTOCK_EPROTO) /* what json.h says of messages; this is a file */
        code = PENSTOCK_ECORRUPT;
    if (error)
        error->code = code;
    base_error_in(error, MODEL_LORA_CONFIG_NAME);
    return code;
}

void model_lora_config_fini(struct model_lora_config *config)
{
    json_doc_fini(&config->doc);
    *config = (struct model_lora_config){ 0 };
}

/* The value of the first pattern that matches; NULL: none does. */
static int look_up(const struct json_value *patterns, const char *path, size_t len, uint64_t *effort,
                   const struct json_value **out, struct penstock_error *error)
{
    *out = NULL;
    if (!patterns)
        return 0;
    if (!model_lora_path_plain(path, len))
        return base_error_set(error, PENSTOCK_EUNSUPPORTED,
                              "the module's path is too long or not ASCII, and can't be tried on rank_pattern and "
                              "alpha_pattern");
    for (size_t i = 0; i < patterns->object.n; i++) {
        const struct json_member *m = &patterns->object.at[i];
        if (model_lora_pattern_matches(m->key.at, m->key.len, path, len, effort)) {
            *out = &m->value;
            return 0;
        }
        if (*effort > EFFORT_MAX)
            return base_error_set(error, PENSTOCK_ELIMIT, "rank_pattern or alpha_pattern takes too long to be tried");
    }
    return 0;
}

int model_lora_config_for(const struct model_lora_config *config, const char *path, size_t len, uint64_t *effort,
                          uint64_t *rank, double *scale, struct penstock_error *error)
{
    const struct json_value *r, *a;
    double alpha = config->alpha;
    *rank = config->rank;
    int code = look_up(config->rank_pattern, path, len, effort, &r, error);
    code = code ? code : look_up(config->alpha_pattern, path, len, effort, &a, error);
    if (code)
        return code;
    if (r)
        (void)take_rank(r, rank);
    if (a)
        (void)take_alpha(a, &alpha);
    *scale = alpha / (config->rslora ? sqrt((double)*rank) : (double)*rank);
    return 0;
}
