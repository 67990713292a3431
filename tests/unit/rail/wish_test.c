#include "../test.h"

#include <stdio.h>

#include "rail/gid.h"
#include "rail/wish.h"

static void add(struct rail_wishes *wishes, const char *text)
{
    struct penstock_error error = { 0 };
    int code = rail_wishes_add(wishes, text, false, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(code, 0);
}

static void a_device_alone(void **state)
{
    (void)state;
    struct rail_wishes wishes = { 0 };
    add(&wishes, "mlx5_0");
    assert_int_equal(wishes.n_named, 1);
    assert_string_equal(wishes.named[0].device, "mlx5_0");
    assert_false(wishes.named[0].by_index);
    assert_false(wishes.named[0].by_gid);
    assert_int_equal(wishes.named[0].peer_rail, PENSTOCK_PEER_RAIL_ANY);
    assert_false(wishes.none || wishes.automatic);
}

static void every_form_of_a_gid(void **state)
{
    (void)state;
    static const struct {
        const char *text, *gid;
    } cases[] = {
        { "rxe0:10.0.0.2", "::ffff:10.0.0.2" },
        { "rxe0:::ffff:10.0.0.2", "::ffff:10.0.0.2" },
        { "rxe0:fe80::1@3", "fe80::1" },
        { "rxe0:fe800000000000000000000000000001", "fe80::1" },
        { "rxe0:11111111111111111111111111111111@3", "1111:1111:1111:1111:1111:1111:1111:1111" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rail_wishes wishes = { 0 };
        char gid[RAIL_GID_TEXT_MAX];
        add(&wishes, cases[i].text);
        assert_string_equal(wishes.named[0].device, "rxe0");
        assert_true(wishes.named[0].by_gid && !wishes.named[0].by_index);
        assert_string_equal(rail_gid_format(wishes.named[0].gid, gid), cases[i].gid);
        assert_int_equal(wishes.named[0].peer_rail, strchr(cases[i].text, '@') ? 3 : PENSTOCK_PEER_RAIL_ANY);
    }
    struct rail_wishes wishes = { 0 };
    add(&wishes, "rxe0:255@7");
    assert_true(wishes.named[0].by_index && !wishes.named[0].by_gid);
    assert_int_equal(wishes.named[0].gid_index, 255);
    assert_int_equal(wishes.named[0].peer_rail, 7);
}

static void several_at_once_or_one_after_another(void **state)
{
    (void)state;
    struct rail_wishes once = { 0 }, by_one = { 0 };
    add(&once, "rxe0:1@1,rxe1,rxe0@0");
    add(&by_one, "rxe0:1@1");
    add(&by_one, "rxe1,rxe0@0");
    assert_int_equal(once.n_named, 3);
    assert_memory_equal(&once, &by_one, sizeof once);
    assert_string_equal(once.named[2].device, "rxe0");
}

static void automatic_and_none(void **state)
{
    (void)state;
    struct rail_wishes wishes = { 0 };
    add(&wishes, "auto");
    assert_true(wishes.automatic && !wishes.none);
    assert_int_equal(wishes.limit, 0);
    wishes = (struct rail_wishes){ 0 };
    add(&wishes, "auto:8");
    assert_int_equal(wishes.limit, 8);
    wishes = (struct rail_wishes){ 0 };
    add(&wishes, "none");
    assert_true(wishes.none && !wishes.automatic);
}

/* What is said, and that nothing has changed. */
static void refused(const char *before, const char *text, bool at_peer, const char *words)
{
    struct rail_wishes wishes = { 0 };
    struct penstock_error error = { 0 };
    if (before)
        add(&wishes, before);
    struct rail_wishes was = wishes;
    assert_int_equal(rail_wishes_add(&wishes, text, at_peer, &error), PENSTOCK_EINVAL);
    assert_int_equal(error.code, PENSTOCK_EINVAL);
    assert_string_equal(error.message, words);
    assert_memory_equal(&wishes, &was, sizeof was);
    assert_int_equal(rail_wishes_add(&wishes, text, at_peer, NULL), PENSTOCK_EINVAL);
}

static void each_malformed_part_is_named(void **state)
{
    (void)state;
    static const char *const not_a_gid[] = {
        "256", "-1", "1x", "4294967297", "10.0.0", "fe80:::1", "0x1", " 1", "1:2"
    };
    static const char *const not_a_rail[] = { "", "8", "254", "255", "x", "-1", "1@2", "1:2", "+1", "4294967296" };
    char text[64], words[256];
    for (size_t i = 0; i < sizeof not_a_gid / sizeof *not_a_gid; i++) {
        snprintf(text, sizeof text, "rxe0:%s", not_a_gid[i]);
        snprintf(words, sizeof words,
                 "rail \"%s\": GID \"%s\" is neither an index (0 to 255) nor an IPv4 or IPv6 address nor 32 hex digits",
                 text, not_a_gid[i]);
        refused(NULL, text, false, words);
    }
    for (size_t i = 0; i < sizeof not_a_rail / sizeof *not_a_rail; i++) {
        snprintf(text, sizeof text, "rxe0@%s", not_a_rail[i]);
        snprintf(words, sizeof words, "rail \"%s\": peer rail \"%s\" is no index (0 to 7)", text, not_a_rail[i]);
        refused(NULL, text, false, words);
    }
    refused(NULL, "rxe0:", false, "rail \"rxe0:\": no GID behind the colon: leave it out, too, and one is chosen");
    refused(NULL, "rx e", false, "rail \"rx e\": \"rx e\" is no name of a device (see ibv_devices)");
    refused(NULL, "@1", false, "rail \"@1\": \"\" is no name of a device (see ibv_devices)");
    refused(NULL, ":1", false, "rail \":1\": \"\" is no name of a device (see ibv_devices)");
    refused(NULL, "auto:0", false, "rail \"auto:0\": \"0\" is no number of rails (1 to 8)");
    refused(NULL, "auto:9", false, "rail \"auto:9\": \"9\" is no number of rails (1 to 8)");
    refused(NULL, "auto:", false, "rail \"auto:\": \"\" is no number of rails (1 to 8)");
    refused(NULL, "auto@1", false, "rail \"auto@1\": auto takes a number of rails (auto:2), none nothing");
    refused(NULL, "none:1", true, "rail \"none:1\": auto takes a number of rails (auto:2), none nothing");
    refused(NULL, "none@1", false, "rail \"none@1\": auto takes a number of rails (auto:2), none nothing");
    refused(NULL, "", false, "a rail is empty: DEVICE[:GID][@PEER_RAIL], auto, auto:N or none");
    refused(NULL, "rxe0,", false, "a rail is empty: DEVICE[:GID][@PEER_RAIL], auto, auto:N or none");
    refused(NULL, ",rxe0", true, "a rail is empty: DEVICE[:GID], auto, auto:N or none");
    refused(NULL, "rxe0@1", true, "rail \"rxe0@1\": \"@\" is a client's, which chooses a peer's rail with it");
}

static void lengths_have_a_bound(void **state)
{
    (void)state;
    char text[256];
    memset(text, 'x', sizeof text);
    text[VERBS_NAME_MAX - 1] = 0;
    struct rail_wishes wishes = { 0 };
    add(&wishes, text);
    assert_string_equal(wishes.named[0].device, text);
    text[VERBS_NAME_MAX - 1] = 'x';
    for (size_t len = VERBS_NAME_MAX; len < sizeof text; len++) {
        text[len] = 0;
        assert_int_equal(rail_wishes_add(&wishes, text, false, NULL), PENSTOCK_EINVAL);
        text[len] = 'x';
    }
    text[255] = 0;
    refused(NULL, text, false, "rail \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\": too long for a device with a GID");
}

static void what_cannot_stand_together(void **state)
{
    (void)state;
    refused("auto", "rxe0", false, "rail \"rxe0\": \"auto\" stands alone, with no other rail beside it");
    refused("auto:2", "auto:3", false, "rail \"auto:3\": \"auto\" stands alone, with no other rail beside it");
    refused("rxe0", "auto", false, "rail \"auto\": \"auto\" stands alone, with no other rail beside it");
    refused("rxe0", "none", false, "rail \"none\": \"none\" stands alone, with no other rail beside it");
    refused("none", "rxe0", false, "rail \"rxe0\": \"none\" stands alone, with no other rail beside it");
    refused(NULL, "none,none", false, "rail \"none\": \"none\" stands alone, with no other rail beside it");
    refused("rxe0@1", "rxe1,rxe1@1", false, "rail \"rxe1@1\": the peer's rail 1 is wished for by another rail already");
    refused("a,b,c,d,e,f,g,h", "i", false, "rail \"i\": a connection has at most 8 rails");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_alone),
        cmocka_unit_test(every_form_of_a_gid),
        cmocka_unit_test(several_at_once_or_one_after_another),
        cmocka_unit_test(automatic_and_none),
        cmocka_unit_test(each_malformed_part_is_named),
        cmocka_unit_test(lengths_have_a_bound),
        cmocka_unit_test(what_cannot_stand_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
