#include "../../test.h"

#include <regex.h>
#include <stdio.h>

#include "model/lora/pattern.h"

static bool matches(const char *pattern, const char *path)
{
    uint64_t effort = 0;
    assert_null(model_lora_pattern_fault(pattern, strlen(pattern)));
    assert_true(model_lora_path_plain(path, strlen(path)));
    return model_lora_pattern_matches(pattern, strlen(pattern), path, strlen(path), &effort);
}

static void a_pattern_is_the_whole_path_or_its_end_behind_a_dot(void **state)
{
    (void)state;
    static const char path[] = "model.layers.12.self_attn.q_proj";
    static const char *const yes[] = { "q_proj",
                                       "self_attn.q_proj",
                                       "model.layers.12.self_attn.q_proj",
                                       "layers.1..self_attn.q_proj",
                                       "layers\\.12\\.self_attn\\.q_proj",
                                       "^model.layers.12.self_attn.q_proj",
                                       "q_proj$",
                                       ".*q_proj",
                                       ".*",
                                       "layers\\.\\d+\\..*[qk]_proj",
                                       "(k|q)_proj",
                                       "(?:self_attn\\.)?q_proj",
                                       "layers.(1|2)+.self_attn.\\w+",
                                       "[^k]_proj",
                                       "v_proj|q_proj",
                                       "layers.[0-9]+.self_attn.q_proj" };
    static const char *const no[] = { "_proj",        "proj",       "k_proj",   "self_attn",
                                      "q_proj.",      "^q_proj",    "q_proj$x", "layers.1.self_attn.q_proj",
                                      "layers\\.\\d", "[^q]_proj",  "",         "self_attn\\dq_proj",
                                      "(k|v)_proj",   "q_proj_more" };
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!matches(yes[i], path))
            fail_msg("%s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (matches(no[i], path))
            fail_msg("%s", no[i]);
    assert_true(matches("q_proj", "q_proj"));
    assert_false(matches("q_proj", "xq_proj"));
}

static void what_is_not_supported_is_refused(void **state)
{
    (void)state;
    static const char *const faults[] = { "(?i)q_proj", "(?=q)", "q{2}",        "a**",      "a*?", "a*+",  "a+?",
                                          "*a",         "(*a)",  "(a",          "a)",       "[a",  "[]a]", "[z-a]",
                                          "[a-\\d]",    "\\bq",  "\\1",         "\\D",      "^*",  "a|+",  "((a)*b)*",
                                          "((a|b)+c)+", "\\",    "[[:alpha:]]", "\xC3\xA9", "a\nb" };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (!model_lora_pattern_fault(faults[i], strlen(faults[i])))
            fail_msg("%s", faults[i]);
    assert_non_null(model_lora_pattern_fault("a\0b", 3));
    char deep[64];
    memset(deep, '(', 9);
    memset(deep + 9, ')', 9);
    assert_non_null(model_lora_pattern_fault(deep, 18));
    assert_null(model_lora_pattern_fault(deep + 1, 16));
    assert_false(model_lora_path_plain("a\x7F", 2));
    assert_false(model_lora_path_plain("\xC3\xA9", 2));
}

/* POSIX's extended expressions have the same language for what is built here. */
static void random_patterns_match_as_posix_says(void **state)
{
    (void)state;
    static const char *const parts[] = { "a", "b", ".", "\\.",  "(",    ")",      "|",
                                         "*", "+", "?", "[ab]", "[^a]", "[a-b.]", "ab" };
    uint64_t seed = 1;
    size_t tried = 0, matched = 0;
    for (int i = 0; i < 200000; i++) {
        char pattern[64] = "", whole[96], path[16] = "";
        for (size_t n = 1 + test_random(&seed) % 7; n > 0; n--)
            strcat(pattern, parts[test_random(&seed) % (sizeof parts / sizeof *parts)]);
        for (size_t n = test_random(&seed) % 8; n > 0; n--)
            strcat(path, &"a\0b\0."[2 * (test_random(&seed) % 3)]);
        if (model_lora_pattern_fault(pattern, strlen(pattern)))
            continue;
        /* Empty branches are not POSIX's. */
        if (strstr(pattern, "()") || strstr(pattern, "(|") || strstr(pattern, "||") || strstr(pattern, "|)") ||
            pattern[0] == '|' || pattern[strlen(pattern) - 1] == '|')
            continue;
        regex_t regex;
        snprintf(whole, sizeof whole, "^(.*\\.)?(%s)$", pattern);
        assert_int_equal(regcomp(&regex, whole, REG_EXTENDED | REG_NOSUB), 0);
        bool expected = regexec(&regex, path, 0, NULL, 0) == 0;
        regfree(&regex);
        if (matches(pattern, path) != expected)
            fail_msg("%s and %s", pattern, path);
        tried++;
        matched += expected;
    }
    assert_true(tried > 10000 && matched > 1000 && matched < tried);
}

static void a_costly_pattern_ends_and_says_what_it_cost(void **state)
{
    (void)state;
    static const char pattern[] = "(a+b?|b+a?|.)*x";
    char path[MODEL_LORA_PATH_MAX];
    uint64_t effort = 0;
    memset(path, 'a', sizeof path);
    assert_null(model_lora_pattern_fault(pattern, strlen(pattern)));
    assert_false(model_lora_pattern_matches(pattern, strlen(pattern), path, sizeof path, &effort));
    assert_true(effort > sizeof path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pattern_is_the_whole_path_or_its_end_behind_a_dot),
        cmocka_unit_test(what_is_not_supported_is_refused),
        cmocka_unit_test(random_patterns_match_as_posix_says),
        cmocka_unit_test(a_costly_pattern_ends_and_says_what_it_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
