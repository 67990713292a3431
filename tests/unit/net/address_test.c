#include "../test.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/address.h"

static void names_with_and_without_a_port(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "127.0.0.1", "127.0.0.1:9910" }, { "127.0.0.1:80", "127.0.0.1:80" },
        { "127.0.0.1:0", "127.0.0.1:0" },  { "127.0.0.1:65535", "127.0.0.1:65535" },
        { "[::1]:80", "[::1]:80" },        { "[::1]", "[::1]:9910" },
        { "::1", "[::1]:9910" },           { "[127.0.0.1]:7", "127.0.0.1:7" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct net_addresses found;
        char text[NET_ADDRESS_TEXT_MAX];
        assert_int_equal(net_resolve(cases[i][0], 9910, 0, &found, NULL), 0);
        assert_int_equal(found.n, 1);
        net_address_format(&found.at[0], text);
        assert_string_equal(text, cases[i][1]);
    }
}

static void names_that_are_refused(void **state)
{
    (void)state;
    static const char port[] = "the port is not a number from 0 to 65535";
    static const char *const cases[][2] = {
        { "127.0.0.1:", port },
        { "127.0.0.1:http", port },
        { "127.0.0.1:-1", port },
        { "127.0.0.1: 1", port },
        { "127.0.0.1:80x", port },
        { "127.0.0.1:65536", port },
        { "127.0.0.1:99999999999999999999", port },
        { "[::1]:", port },
        { "fe80:::9910", "an IPv6 address needs brackets: [ADDRESS]:PORT" },
        { "host:80:90", "an IPv6 address needs brackets: [ADDRESS]:PORT" },
        { "[::1", "an IPv6 address is written [ADDRESS]:PORT" },
        { "[::1]80", "an IPv6 address is written [ADDRESS]:PORT" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct net_addresses found;
        struct penstock_error error;
        char words[256];
        assert_int_equal(net_resolve(cases[i][0], 9910, 0, &found, &error), PENSTOCK_EINVAL);
        snprintf(words, sizeof words, "address %s: %s", cases[i][0], cases[i][1]);
        assert_string_equal(error.message, words);
    }
    char name[400];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    struct net_addresses found;
    assert_int_equal(net_resolve(name, 9910, 0, &found, NULL), PENSTOCK_EINVAL);
}

static void a_name_that_does_not_resolve_is_named(void **state)
{
    (void)state;
    struct net_addresses found;
    struct penstock_error error;
    assert_int_equal(net_resolve("no-such-peer.invalid:1", 9910, 0, &found, &error), PENSTOCK_EUNREACHABLE);
    assert_non_null(strstr(error.message, "host name no-such-peer.invalid does not resolve: "));
}

static void no_host_is_every_address_or_this_machine(void **state)
{
    (void)state;
    struct net_addresses found;
    char text[NET_ADDRESS_TEXT_MAX];
    assert_int_equal(net_resolve(":80", 9910, 1, &found, NULL), 0);
    assert_int_equal(found.n, 1);
    net_address_format(&found.at[0], text);
    assert_true(strcmp(text, "[::]:80") == 0 || strcmp(text, "0.0.0.0:80") == 0);

    assert_int_equal(net_resolve(":80", 9910, 0, &found, NULL), 0);
    for (size_t i = 0; i < found.n; i++) {
        net_address_format(&found.at[i], text);
        assert_true(strcmp(text, "[::1]:80") == 0 || strcmp(text, "127.0.0.1:80") == 0);
    }
}

/* A listener on loopback, at a port that the kernel chose. */
static int listen_anywhere(char name[NET_ADDRESS_TEXT_MAX])
{
    struct net_addresses any;
    struct net_address bound = { .len = sizeof bound.addr };
    int fd;
    assert_int_equal(net_resolve("127.0.0.1:0", 1, 1, &any, NULL), 0);
    assert_int_equal(net_listen(&any.at[0], 4, "no-such-congestion-control", &fd, NULL), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&bound.addr, &bound.len), 0);
    net_address_format(&bound, name);
    return fd;
}

static void a_dialled_connection_is_blocking_and_without_delay(void **state)
{
    (void)state;
    char name[NET_ADDRESS_TEXT_MAX];
    int listener = listen_anywhere(name), fd = -1, on = 0;
    socklen_t len = sizeof on;
    assert_int_equal(net_dial(name, 1, BASE_SECOND_NS, &fd, NULL), 0);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &len), 0);
    assert_int_not_equal(on, 0);
    int accepted = accept(listener, NULL, NULL);
    assert_true(accepted >= 0);
    static const struct {
        double scale;
        int idle_s;
    } cases[] = { { 1, 30 }, { 0.1, 3 }, { 0.001, 1 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        net_tune_accepted(accepted, cases[i].scale);
        len = sizeof on;
        assert_int_equal(getsockopt(accepted, SOL_SOCKET, SO_KEEPALIVE, &on, &len), 0);
        assert_int_not_equal(on, 0);
        assert_int_equal(getsockopt(accepted, IPPROTO_TCP, TCP_KEEPIDLE, &on, &len), 0);
        assert_int_equal(on, cases[i].idle_s);
    }
    close(accepted);
    close(fd);
    close(listener);
}

static void a_closed_port_says_what_to_do(void **state)
{
    (void)state;
    char name[NET_ADDRESS_TEXT_MAX], words[256];
    close(listen_anywhere(name));
    int fd;
    struct penstock_error error;
    assert_int_equal(net_dial(name, 1, BASE_SECOND_NS, &fd, &error), PENSTOCK_EUNREACHABLE);
    snprintf(words, sizeof words, "%s: connection refused: does a peer listen there? (penstock serve)", name);
    assert_string_equal(error.message, words);
    assert_int_equal(error.sys_errno, ECONNREFUSED);
}

static void a_connect_can_be_waited_for_from_outside(void **state)
{
    (void)state;
    char name[NET_ADDRESS_TEXT_MAX];
    int listener = listen_anywhere(name), fd;
    struct net_addresses found;
    assert_int_equal(net_resolve(name, 1, 0, &found, NULL), 0);
    assert_int_equal(net_connect_start(&found.at[0], NULL, &fd, NULL), 0);
    struct pollfd polled = { .fd = fd, .events = POLLOUT };
    assert_int_equal(poll(&polled, 1, 1000), 1);
    assert_int_equal(net_connect_result(fd, NULL), 0);
    close(fd);
    close(listener);
}

static void an_address_in_use_or_of_another_machine_cannot_be_listened_on(void **state)
{
    (void)state;
    char name[NET_ADDRESS_TEXT_MAX];
    int listener = listen_anywhere(name), fd;
    struct net_addresses found;
    struct penstock_error error;
    assert_int_equal(net_resolve(name, 1, 1, &found, NULL), 0);
    assert_int_equal(net_listen(&found.at[0], 4, NULL, &fd, &error), PENSTOCK_ESYS);
    assert_int_equal(error.sys_errno, EADDRINUSE);
    close(listener);

    assert_int_equal(net_resolve("192.0.2.1:0", 1, 1, &found, NULL), 0);
    assert_int_equal(net_listen(&found.at[0], 4, NULL, &fd, &error), PENSTOCK_EUNREACHABLE);
    assert_non_null(strstr(error.message, "is not an address of this machine"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_with_and_without_a_port),
        cmocka_unit_test(names_that_are_refused),
        cmocka_unit_test(a_name_that_does_not_resolve_is_named),
        cmocka_unit_test(no_host_is_every_address_or_this_machine),
        cmocka_unit_test(a_dialled_connection_is_blocking_and_without_delay),
        cmocka_unit_test(a_closed_port_says_what_to_do),
        cmocka_unit_test(a_connect_can_be_waited_for_from_outside),
        cmocka_unit_test(an_address_in_use_or_of_another_machine_cannot_be_listened_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
