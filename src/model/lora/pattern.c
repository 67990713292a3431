#include "model/lora/pattern.h"

#include <string.h>

enum { PATTERN_MAX = 1024, GROUPS_DEEP_MAX = 8 };

bool model_lora_path_plain(const char *path, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (path[i] < 0x20 || path[i] > 0x7E)
            return false;
    return len <= MODEL_LORA_PATH_MAX;
}

/* ---- reading ---- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_letter(c) || is_digit(c) || c == '_';
}

static bool repeats(char c)
{
    return c == '*' || c == '+' || c == '?';
}

/* What stands for one character or one place: its length at p. 0: no such thing, or one that is not supported. */
static size_t escape_len(const char *p, const char *end)
{
    if (end - p < 2 || *p != '\\')
        return 0;
    return p[1] == 'd' || p[1] == 'w' || (p[1] > ' ' && p[1] < 0x7F && !is_word(p[1])) || p[1] == '_' ? 2 : 0;
}

/* One character of a set, where it is not \d or \w. */
static size_t set_char(const char *p, const char *end, char *c)
{
    size_t len = p < end && *p == '\\' ? escape_len(p, end) : 1;
    if (p == end || len == 0 || *p == '[' || (len == 2 && is_letter(p[1])))
        return 0;
    *c = p[len - 1];
    return len;
}

static bool is_class(const char *p, const char *end)
{
    return end - p >= 2 && *p == '\\' && (p[1] == 'd' || p[1] == 'w');
}

static bool in_class(char class, char c)
{
    return class == 'd' ? is_digit(c) : is_word(c);
}

/* The length of a set; *has, where asked for, says whether c is in it. */
static size_t read_set(const char *p, const char *end, char c, bool *has)
{
    const char *at = p + 1;
    bool inverse = at < end && *at == '^', found = false;
    at += inverse;
    if (at < end && *at == ']')
        return 0;
    while (at < end && *at != ']') {
        char low, high;
        if (is_class(at, end)) {
            found = found || in_class(at[1], c);
            at += 2;
            if (end - at >= 2 && at[0] == '-' && at[1] != ']')
                return 0;
            continue;
        }
        size_t len = set_char(at, end, &low);
        if (len == 0)
            return 0;
        at += len;
        high = low;
        if (end - at >= 2 && at[0] == '-' && at[1] != ']') {
            len = is_class(at + 1, end) ? 0 : set_char(at + 1, end, &high);
            if (len == 0 || high < low)
                return 0;
            at += 1 + len;
        }
        found = found || (c >= low && c <= high);
    }
    if (at >= end)
        return 0;
    if (has)
        *has = found != inverse;
    return (size_t)(at + 1 - p);
}

/* The length of what matches one character. */
static size_t one_len(const char *p, const char *end)
{
    if (*p == '\\')
        return escape_len(p, end);
    if (*p == '[')
        return read_set(p, end, 0, NULL);
    return *p > 0 && *p < 0x7F && *p >= ' ' && !strchr("*+?{}()|]^$", *p) ? 1 : 0;
}

static bool one_matches(const char *p, const char *end, char c)
{
    bool has = false;
    if (*p == '.')
        return true;
    if (is_class(p, end))
        return in_class(p[1], c);
    if (*p == '\\')
        return p[1] == c;
    if (*p != '[')
        return *p == c;
    (void)read_set(p, end, c, &has);
    return has;
}

static const char *group_inside(const char *p, const char *end)
{
    return end - p >= 3 && p[1] == '?' && p[2] == ':' ? p + 3 : p + 1;
}

const char *model_lora_pattern_fault(const char *pattern, size_t len)
{
    const char *p = pattern, *end = pattern + len;
    size_t deep = 0;
    bool repeats_inside[GROUPS_DEEP_MAX + 1] = { false }; /* a group that repeats, for each open group */
    if (len > PATTERN_MAX)
        return "it is longer than 1024 bytes";
    while (p < end) {
        bool group_end = false;
        if (*p == '(') {
            if (++deep > GROUPS_DEEP_MAX)
                return "groups in it are more than 8 deep";
            p = group_inside(p, end);
            if (p < end && repeats(*p))
                return "a group begins with ?, * or +";
            repeats_inside[deep] = false;
            continue;
        }
        if (*p == '|' || *p == '^' || *p == '$') {
            p++;
            if (p < end && repeats(*p))
                return "nothing is there to repeat";
            continue;
        }
        size_t one = 1;
        if (*p == ')') {
            if (deep == 0)
                return "a ) has no (";
            group_end = true;
        } else {
            one = one_len(p, end);
            if (one == 0)
                return "only characters, ., sets, \\d, \\w, groups with |, ^, $ and *, +, ? are supported";
        }
        p += one;
        bool again = p < end && (*p == '*' || *p == '+');
        if (group_end) {
            if (again && repeats_inside[deep])
                return "a group that repeats has one inside that repeats";
            deep--;
            repeats_inside[deep] = repeats_inside[deep] || again || repeats_inside[deep + 1];
        }
        p += p < end && repeats(*p);
        if (p < end && repeats(*p))
            return "a repetition is repeated, lazy or possessive";
    }
    return deep > 0 ? "a ( has no )" : NULL;
}

/* ---- matching ---- */

/* The places of the path that a match can have come to: all at once, so that nothing is tried twice. */
struct places {
    bool at[MODEL_LORA_PATH_MAX + 1];
};

struct match {
    const char *path;
    size_t len;
    uint64_t *effort;
};

static bool add(struct places *to, const struct places *more, size_t len)
{
    bool grew = false;
    for (size_t i = 0; i <= len; i++) {
        grew = grew || (more->at[i] && !to->at[i]);
        to->at[i] = to->at[i] || more->at[i];
    }
    return grew;
}

static void step_one(const struct match *m, const char *p, const char *end, char repeat, struct places *places)
{
    bool one[MODEL_LORA_PATH_MAX];
    *m->effort += m->len;
    for (size_t i = 0; i < m->len; i++)
        one[i] = one_matches(p, end, m->path[i]);
    if (repeat == '*' || repeat == '+') {
        struct places reached = *places;
        if (repeat == '+')
            step_one(m, p, end, 0, &reached);
        for (size_t i = 0; i < m->len; i++)
            reached.at[i + 1] = reached.at[i + 1] || (reached.at[i] && one[i]);
        *places = reached;
        return;
    }
    for (size_t i = m->len + 1; i-- > 0;)
        places->at[i] = (repeat == '?' && places->at[i]) || (i > 0 && places->at[i - 1] && one[i - 1]);
}

static const char *alternatives(const struct match *m, const char *p, const char *end, struct places *places);

/* Where a group closes. */
static const char *group_close(const char *p, const char *end)
{
    size_t deep = 0;
    for (;; p += *p == '(' || *p == ')' || *p == '|' || *p == '^' || *p == '$' || repeats(*p) ? 1 : one_len(p, end)) {
        deep += *p == '(';
        if (*p == ')' && --deep == 0)
            return p;
        if (*p == '(')
            p = group_inside(p, end) - 1;
    }
}

static void step_group(const struct match *m, const char *p, const char *end, char repeat, struct places *places)
{
    struct places reached = *places, next = *places;
    (void)alternatives(m, p, end, &next);
    if (repeat == 0 || repeat == '+')
        reached = next;
    else
        (void)add(&reached, &next, m->len);
    while (repeat == '*' || repeat == '+') {
        next = reached;
        (void)alternatives(m, p, end, &next);
        if (!add(&reached, &next, m->len))
            break;
    }
    *places = reached;
}

/* Up to a | or a ) that is not its own, or the end. */
static const char *sequence(const struct match *m, const char *p, const char *end, struct places *places)
{
    while (p < end && *p != '|' && *p != ')') {
        const char *from = p;
        *m->effort += 1;
        if (*p == '^' || *p == '$') {
            size_t place = *p == '^' ? 0 : m->len;
            bool there = places->at[place];
            *places = (struct places){ 0 };
            places->at[place] = there;
            p++;
            continue;
        }
        bool group = *p == '(';
        p = group ? group_close(p, end) + 1 : p + one_len(p, end);
        char repeat = p < end && repeats(*p) ? *p : 0;
        if (group)
            step_group(m, group_inside(from, end), p, repeat, places);
        else
            step_one(m, from, end, repeat, places);
        p += repeat != 0;
    }
    return p;
}

static const char *alternatives(const struct match *m, const char *p, const char *end, struct places *places)
{
    struct places all = { 0 };
    for (;; p++) {
        struct places one = *places;
        *m->effort += m->len;
        p = sequence(m, p, end, &one);
        (void)add(&all, &one, m->len);
        if (p >= end || *p == ')')
            break;
    }
    *places = all;
    return p;
}

/* A pattern of nothing but characters and dots, as most are: compared from its end. */
static bool is_simple(const char *pattern, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (strchr("*+?{}()|[]^$\\", pattern[i]))
            return false;
    return true;
}

static bool simple_matches(const char *pattern, size_t pattern_len, const struct match *m)
{
    if (pattern_len > m->len)
        return false;
    size_t start = m->len - pattern_len, i = pattern_len;
    while (i > 0 && (pattern[i - 1] == '.' || pattern[i - 1] == m->path[start + i - 1]))
        i--;
    *m->effort += 1 + pattern_len - i;
    return i == 0 && (start == 0 || m->path[start - 1] == '.');
}

bool model_lora_pattern_matches(const char *pattern, size_t pattern_len, const char *path, size_t path_len,
                                uint64_t *effort)
{
    struct match m = { .path = path, .len = path_len, .effort = effort };
    if (is_simple(pattern, pattern_len))
        return simple_matches(pattern, pattern_len, &m);
    struct places places = { 0 };
    places.at[0] = true;
    for (size_t i = 1; i <= path_len; i++)
        places.at[i] = path[i - 1] == '.';
    (void)alternatives(&m, pattern, pattern + pattern_len, &places);
    return places.at[path_len];
}
