#include "../test.h"

#include "rail/gid.h"

static void each_kind_of_address(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum rail_gid_kind kind;
        const char *canonical; /* NULL: text itself */
    } cases[] = {
        { "10.0.0.2", RAIL_GID_IPV4, "::ffff:10.0.0.2" },
        { "::ffff:192.168.7.1", RAIL_GID_IPV4, NULL },
        { "169.253.255.255", RAIL_GID_IPV4, "::ffff:169.253.255.255" },
        { "169.254.0.1", RAIL_GID_IPV4_LOCAL, "::ffff:169.254.0.1" },
        { "127.0.0.1", RAIL_GID_NONE, "::ffff:127.0.0.1" },
        { "0.0.0.0", RAIL_GID_NONE, "::ffff:0.0.0.0" },
        { "224.0.0.1", RAIL_GID_NONE, "::ffff:224.0.0.1" },
        { "255.255.255.255", RAIL_GID_NONE, "::ffff:255.255.255.255" },
        { "2001:db8::1", RAIL_GID_IPV6, NULL },
        { "fd00:1::2", RAIL_GID_IPV6, NULL },
        { "fe80::5054:ff:fe12:3456", RAIL_GID_IPV6_LOCAL, NULL },
        { "febf::1", RAIL_GID_IPV6_LOCAL, NULL },
        { "fec0::1", RAIL_GID_IPV6, NULL },
        { "ff02::1", RAIL_GID_NONE, NULL },
        { "::", RAIL_GID_NONE, NULL },
        { "::1", RAIL_GID_NONE, NULL },
        { "00000000000000000000FFFF0a000002", RAIL_GID_IPV4, "::ffff:10.0.0.2" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t gid[16];
        char text[RAIL_GID_TEXT_MAX];
        assert_true(rail_gid_parse(cases[i].text, gid));
        assert_string_equal(rail_gid_format(gid, text), cases[i].canonical ? cases[i].canonical : cases[i].text);
        assert_int_equal(rail_gid_kind(gid), cases[i].kind);
        assert_int_equal(rail_gid_is_ipv4(gid), strchr(text, '.') != NULL);
    }
}

static void what_is_no_address(void **state)
{
    (void)state;
    static const char *const texts[] = { "",
                                         "1",
                                         "10.0.0",
                                         "10.0.0.256",
                                         "fe80:::1",
                                         "fe80::1%eth0",
                                         "0000000000000000000000000000000",
                                         "000000000000000000000000000000000",
                                         "0000000000000000000000000000000g",
                                         "000000000000000000000000000000-1" };
    uint8_t gid[16];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_false(rail_gid_parse(texts[i], gid));
    assert_false(rail_gid_parse_hex("fe80::1", gid));
}

static void bits_in_common(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        unsigned bits;
    } cases[] = {
        { "10.0.0.2", "10.0.0.2", 128 }, { "10.0.0.2", "10.0.0.3", 127 },          { "10.0.0.2", "10.0.1.2", 119 },
        { "10.0.0.2", "11.0.0.2", 103 }, { "10.0.0.2", "138.0.0.2", 96 },          { "2001:db8::1", "::", 2 },
        { "8000::", "::", 0 },           { "2001:db8:0:1::1", "2001:db8::1", 63 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t a[16], b[16];
        assert_true(rail_gid_parse(cases[i].a, a) && rail_gid_parse(cases[i].b, b));
        assert_int_equal(rail_gid_common_bits(a, b), cases[i].bits);
        assert_int_equal(rail_gid_common_bits(b, a), cases[i].bits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_address),
        cmocka_unit_test(what_is_no_address),
        cmocka_unit_test(bits_in_common),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
