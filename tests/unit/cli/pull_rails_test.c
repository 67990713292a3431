/* What a pull says of its rails, of sessions that are made up. */
#include "../test.h"

#include <stdlib.h>

#include "cli/pull_rails.h"

struct penstock_session {
    enum penstock_transport transport;
    const char *why, *bounce;
    struct penstock_rail_info rails[2];
    size_t n;
};

enum penstock_transport penstock_session_transport(const struct penstock_session *session)
{
    return session ? session->transport : PENSTOCK_TRANSPORT_AUTO;
}

const char *penstock_session_transport_why(const struct penstock_session *session)
{
    return session->why;
}

const char *penstock_session_bounce_why(const struct penstock_session *session)
{
    return session->bounce;
}

size_t penstock_session_rails(const struct penstock_session *session)
{
    return session->n;
}

int penstock_session_rail(const struct penstock_session *session, size_t index, struct penstock_rail_info *info)
{
    *info = session->rails[index];
    return 0;
}

static struct penstock_rail_info info(const char *device, uint64_t bytes, const char *failure)
{
    return (struct penstock_rail_info){ .device = device,
                                        .gid = "::ffff:10.0.0.2",
                                        .why = "the first",
                                        .failure = failure,
                                        .port = 1,
                                        .gid_index = 3,
                                        .mtu_bytes = 4096,
                                        .reads = 16,
                                        .gbps = 200,
                                        .bytes = bytes,
                                        .failures = failure ? 2 : 0 };
}

/* What print writes, the caller's to free. */
static char *printed(void (*print)(const struct pull_rails *rails, FILE *to), const struct pull_rails *rails)
{
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    assert_non_null(to);
    print(rails, to);
    fclose(to);
    return text;
}

static void connections_over_the_same_rails_are_added_up(void **state)
{
    (void)state;
    struct pull_rails rails = { 0 };
    char over[PULL_OVER_MAX];
    const struct penstock_session first = { .transport = PENSTOCK_TRANSPORT_RDMA,
                                            .rails = { info("a0", 10, NULL), info("a1", 20, "status 12") },
                                            .n = 2 };
    const struct penstock_session second = { .transport = PENSTOCK_TRANSPORT_RDMA,
                                             .rails = { info("a1", 5, NULL) },
                                             .n = 1 };
    pull_rails_add(&rails, NULL, true);
    assert_int_equal(rails.transport, PENSTOCK_TRANSPORT_AUTO);
    pull_rails_add(&rails, &first, false); /* as it begins: it is counted when it ends */
    pull_rails_add(&rails, &first, true);
    pull_rails_add(&rails, &second, true);
    assert_int_equal(rails.n, 2);
    assert_int_equal(rails.at[0].bytes, 10);
    assert_int_equal(rails.at[1].bytes, 25);
    assert_int_equal(rails.at[1].failures, 2);
    assert_string_equal(pull_rails_over(&rails, over), "over RDMA, 2 rails");

    char *text = printed(pull_rails_print_failures, &rails);
    assert_string_equal(text, "rail a1 port 1 failed (2 times), and the pull went on without it: status 12\n");
    free(text);
    text = printed(pull_rails_print_json, &rails);
    assert_ptr_equal(
        strstr(text, "\"transport\":\"rdma\",\"transport_why\":null,\"rails\":[{\"device\":\"a0\",\"port\":1,"), text);
    assert_non_null(strstr(text, "\"bytes\":25,\"failures\":2,\"failure\":\"status 12\"}],\"copied_why\":null"));
    free(text);
}

static void tcp_says_why_it_is_tcp(void **state)
{
    (void)state;
    struct pull_rails rails = { 0 };
    char over[PULL_OVER_MAX];
    const struct penstock_session tcp = { .transport = PENSTOCK_TRANSPORT_TCP, .why = "no \"rails\"" };
    pull_rails_add(&rails, &tcp, true);
    assert_string_equal(pull_rails_over(&rails, over), "over TCP");
    char *text = printed(pull_rails_print_json, &rails);
    assert_string_equal(
        text, "\"transport\":\"tcp\",\"transport_why\":\"no \\\"rails\\\"\",\"rails\":[],\"copied_why\":null");
    free(text);
    text = printed(pull_rails_print_failures, &rails);
    assert_string_equal(text, "");
    free(text);
}

static void what_was_copied_is_said(void **state)
{
    (void)state;
    struct pull_rails rails = { 0 };
    const struct penstock_session s = {
        .transport = PENSTOCK_TRANSPORT_RDMA, .bounce = "memlock\nlimit", .rails = { info("a0", 0, NULL) }, .n = 1
    };
    pull_rails_add(&rails, &s, true);
    char *text = printed(pull_rails_print_failures, &rails);
    assert_string_equal(text, "buffers could not be registered, and everything was copied: memlock\\x0alimit\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connections_over_the_same_rails_are_added_up),
        cmocka_unit_test(tcp_says_why_it_is_tcp),
        cmocka_unit_test(what_was_copied_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
