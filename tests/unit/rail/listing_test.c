#include "../test.h"

#include <stdio.h>

#include "rail/gid.h"
#include "rail/listing.h"

static int read(const char *text, struct rail_listing *out, struct penstock_error *error)
{
    struct json_doc doc;
    assert_int_equal(json_parse(text, strlen(text), &doc, NULL), 0);
    int code = rail_listing_read(&doc.root, out, error);
    json_doc_fini(&doc);
    return code;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    static struct rail_devices devices = { .n = 2 };
    struct base_buf buf = { 0 };
    struct json_writer w = { .buf = &buf };
    struct rail_listing listing;
    for (size_t i = 0; i < devices.n; i++) {
        struct rail_port *port = &devices.ports[i];
        snprintf(port->device, sizeof port->device, "mlx5_%zu", i);
        assert_true(rail_gid_parse(i ? "fe80::abcd" : "10.0.0.2", port->gid));
        port->mtu = (uint8_t)(5 - i);
        port->gbps = i ? 2.5 : 200;
    }
    json_write_object(&w);
    json_write_key(&w, "rails");
    rail_listing_write(&w, &devices);
    json_write_object_end(&w);
    base_buf_append(&buf, "", 1);
    assert_false(buf.failed);
    assert_string_equal((const char *)buf.at,
                        "{\"rails\":[{\"index\":0,\"device\":\"mlx5_0\",\"gid\":\"00000000000000000000ffff0a000002\","
                        "\"mtu\":5,\"gbps\":200},{\"index\":1,\"device\":\"mlx5_1\",\"gid\":"
                        "\"fe80000000000000000000000000abcd\",\"mtu\":4,\"gbps\":2.5}]}");
    assert_int_equal(read((const char *)buf.at, &listing, NULL), 0);
    assert_int_equal(listing.n, 2);
    for (size_t i = 0; i < listing.n; i++) {
        assert_int_equal(listing.at[i].index, i);
        assert_string_equal(listing.at[i].device, devices.ports[i].device);
        assert_memory_equal(listing.at[i].gid, devices.ports[i].gid, 16);
        assert_int_equal(listing.at[i].mtu, devices.ports[i].mtu);
        assert_true(listing.at[i].gbps == devices.ports[i].gbps);
    }
    base_buf_fini(&buf);
}

static void no_rails_is_an_empty_array_or_nothing(void **state)
{
    (void)state;
    struct base_buf buf = { 0 };
    struct json_writer w = { .buf = &buf };
    struct rail_listing listing = { .n = 3 };
    rail_listing_write(&w, NULL);
    assert_int_equal(buf.n, 2);
    assert_memory_equal(buf.at, "[]", 2);
    base_buf_fini(&buf);
    assert_int_equal(read("{\"version\":1,\"rails\":[]}", &listing, NULL), 0);
    assert_int_equal(listing.n, 0);
    assert_int_equal(read("{\"version\":1}", &listing, NULL), 0);
    assert_int_equal(listing.n, 0);
}

#define GID "\"gid\":\"00000000000000000000FFFF0a000002\""

static void what_is_new_or_missing_does_no_harm(void **state)
{
    (void)state;
    struct rail_listing listing;
    assert_int_equal(read("{\"rails\":[{\"index\":254," GID ",\"mtu\":1,\"lanes\":[1,2]},"
                          "{\"index\":0," GID ",\"mtu\":3,\"gbps\":-3.5,\"device\":\"a b\\u0007\xC3\xA9\"}]}",
                          &listing, NULL),
                     0);
    assert_int_equal(listing.n, 2);
    assert_int_equal(listing.at[0].index, 254);
    assert_string_equal(listing.at[0].device, "?");
    assert_true(listing.at[0].gbps == 0 && listing.at[1].gbps == 0);
    assert_string_equal(listing.at[1].device, "ab"); /* it goes to terminals */
}

static void more_than_a_connection_can_have_are_left_out(void **state)
{
    (void)state;
    char text[2048] = "{\"rails\":[";
    struct rail_listing listing;
    for (int i = 0; i < 12; i++) {
        size_t len = strlen(text);
        snprintf(text + len, sizeof text - len, "%s{\"index\":%d," GID ",\"mtu\":5}", i ? "," : "", i);
    }
    strcat(text, "]}");
    assert_int_equal(read(text, &listing, NULL), 0);
    assert_int_equal(listing.n, PENSTOCK_RAILS_MAX);
    assert_int_equal(listing.at[7].index, 7);
}

static void each_wrong_field_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        { "{\"rails\":1}", "field \"rails\": a number, not an array" },
        { "{\"rails\":[1]}", "rails[0]: a number where an object belongs" },
        { "{\"rails\":[{}]}", "rails[0]: field \"index\": missing" },
        { "{\"rails\":[{\"index\":255}]}", "rails[0]: field \"index\": 255 is above 254" },
        { "{\"rails\":[{\"index\":0}]}", "rails[0]: field \"gid\": missing" },
        { "{\"rails\":[{\"index\":0," GID "}]}", "rails[0]: field \"mtu\": missing" },
        { "{\"rails\":[{\"index\":0," GID ",\"mtu\":0}]}", "rails[0]: field \"mtu\": 0 is none (1 to 5)" },
        { "{\"rails\":[{\"index\":0," GID ",\"mtu\":6}]}", "rails[0]: field \"mtu\": 6 is above 5" },
        { "{\"rails\":[{\"index\":0,\"gid\":\"fe80::1\",\"mtu\":1}]}", "rails[0]: field \"gid\": not 32 hex digits" },
        { "{\"rails\":[{\"index\":3," GID ",\"mtu\":1},{\"index\":3," GID ",\"mtu\":1}]}",
          "rails[1]: index 3 is there twice" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rail_listing listing;
        struct penstock_error error = { 0 };
        assert_int_equal(read(cases[i].text, &listing, &error), PENSTOCK_EPROTO);
        assert_string_equal(error.message, cases[i].words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(no_rails_is_an_empty_array_or_nothing),
        cmocka_unit_test(what_is_new_or_missing_does_no_harm),
        cmocka_unit_test(more_than_a_connection_can_have_are_left_out),
        cmocka_unit_test(each_wrong_field_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
