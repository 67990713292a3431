/* A cache peer's statistics, read, and asked for over a socket whose other end has answered already. */
#include "../test.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <penstock/wire.h>

#include "client/cache/stats.h"
#include "net/stream.h"

#define TOTALS "\"memory\":{\"used\":5,\"cap\":6},\"swap\":{\"used\":7,\"cap\":0}"
#define COUNTS(kind) COUNTS_OF(kind, "65536")
#define COUNTS_OF(kind, blob)                                                                                          \
    "{\"kind\":\"" kind "\",\"blob_bytes\":" blob                                                                      \
    ",\"arena_bytes\":2097152,\"slots\":32,\"resident\":3,\"on_disk\":9,"                                              \
    "\"reserved\":1,\"pinned\":2,\"connections\":4,\"hits\":10,\"misses\":11,\"puts\":12,\"spills\":13,\"faults\":14," \
    "\"drops\":15,\"errors\":18446744073709551615"
#define ARENA(kind) COUNTS(kind) "}"

static int read_text(const char *text, struct penstock_cache_stats **stats, struct penstock_error *error)
{
    *stats = NULL;
    return client_cache_stats_read(text, strlen(text), stats, error);
}

static void says_what_the_peer_said(void **state)
{
    (void)state;
    struct penstock_cache_stats *s;
    const char *text = "{\"version\":1," TOTALS ",\"arenas\":[" ARENA("kv") "," ARENA("ssm") "],\"rails\":[]}";
    assert_int_equal(read_text(text, &s, NULL), 0);
    const struct penstock_cache_totals *t = penstock_cache_stats_totals(s);
    assert_int_equal(t->memory_used, 5);
    assert_int_equal(t->memory_cap, 6);
    assert_int_equal(t->swap_used, 7);
    assert_int_equal(t->swap_cap, 0);
    assert_int_equal(penstock_cache_stats_arenas(s), 2);
    static const uint64_t wanted[] = { 65536, 2097152, 32, 3, 9, 1, 2, 4, 10, 11, 12, 13, 14, 15, UINT64_MAX };
    const struct penstock_cache_arena *arena = penstock_cache_stats_arena(s, 0);
    assert_int_equal(arena->kind, PENSTOCK_CACHE_KV);
    assert_memory_equal(&arena->blob_bytes, wanted, sizeof wanted); /* all of them, in order */
    assert_int_equal(penstock_cache_stats_arena(s, 1)->kind, PENSTOCK_CACHE_SSM);
    assert_null(penstock_cache_stats_arena(s, 2));
    assert_string_equal(penstock_cache_stats_json(s), text);
    penstock_cache_stats_free(s);
}

static void what_later_peers_add_does_no_harm(void **state)
{
    (void)state;
    struct penstock_cache_stats *s;
    assert_int_equal(read_text("{\"version\":1," TOTALS
                               ",\"arenas\":[" ARENA("tensors") "," COUNTS("kv") ",\"age\":-1}],\"more\":{}}",
                               &s, NULL),
                     0);
    assert_int_equal(penstock_cache_stats_arenas(s), 1);
    assert_int_equal(penstock_cache_stats_arena(s, 0)->kind, PENSTOCK_CACHE_KV);
    struct rail_listing rails;
    assert_int_equal(client_cache_stats_rails(s, &rails, NULL), 0);
    assert_int_equal(rails.n, 0);
    penstock_cache_stats_free(s);
}

static void what_makes_no_sense_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        { "", "" },
        { "[]", "version" },
        { "{\"version\":2}", "statistics of version 2, not 1" },
        { "{\"version\":1,\"swap\":{}}", "memory" },
        { "{\"version\":1,\"memory\":{\"used\":-1,\"cap\":0}}", "memory: field \"used\"" },
        { "{\"version\":1,\"memory\":{\"used\":1,\"cap\":0},\"swap\":{\"used\":1}}", "swap: field \"cap\"" },
        { "{\"version\":1," TOTALS "}", "arenas" },
        { "{\"version\":1," TOTALS ",\"arenas\":[7]}", "arenas[0]: " },
        { "{\"version\":1," TOTALS ",\"arenas\":[" ARENA("kv") ",{\"kind\":\"kv\"}]}",
          "arenas[1]: field \"blob_bytes\"" },
        { "{\"version\":1," TOTALS ",\"arenas\":[" COUNTS_OF("kv", "0") "}]}", "no arena has blobs of 0 bytes" },
        { "{\"version\":1," TOTALS ",\"arenas\":[" COUNTS_OF("ssm", "4398046511105") "}]}",
          "arenas[0]: field \"blob_bytes\": no arena has" },
        { "{\"version\":1," TOTALS ",\"arenas\":[" COUNTS("kv") "6}]}", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct penstock_cache_stats *s;
        struct penstock_error error = { 0 };
        assert_int_equal(read_text(cases[i].text, &s, &error), PENSTOCK_EPROTO);
        assert_int_equal(error.code, PENSTOCK_EPROTO);
        if (!strstr(error.message, cases[i].words))
            fail_msg("'%s' says nothing of '%s'", error.message, cases[i].words);
    }
}

/* fds[0] is the peer's end, and has got what is sent on it. */
static int ask(const void *answer, size_t len, struct penstock_cache_stats **stats, struct penstock_error *error)
{
    int fds[2];
    struct net_stream stream;
    uint8_t sent[64];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    net_stream_plain(&stream, fds[1]);
    assert_int_equal(send(fds[0], answer, len, MSG_NOSIGNAL), len);
    assert_int_equal(shutdown(fds[0], SHUT_WR), 0);
    int code = client_cache_stats_on_stream(&stream, NULL, stats, error);
    assert_int_equal(recv(fds[0], sent, sizeof sent, 0), PENSTOCK_PAGING_HEADER_BYTES);
    close(fds[0]);
    struct penstock_paging_header header;
    size_t consumed;
    assert_int_equal(penstock_paging_header_decode(sent, PENSTOCK_PAGING_HEADER_BYTES, &header, &consumed, NULL),
                     PENSTOCK_DECODE_OK);
    assert_int_equal(header.kind, PENSTOCK_ARENA_STATISTICS);
    return code;
}

static void a_connection_asks_for_them_and_ends(void **state)
{
    (void)state;
    static const char text[] = "{\"version\":1," TOTALS ",\"arenas\":[]}";
    uint8_t answer[4 + sizeof text - 1] = { sizeof text - 1 };
    struct penstock_cache_stats *s;
    memcpy(answer + 4, text, sizeof text - 1);
    assert_int_equal(ask(answer, sizeof answer, &s, NULL), 0);
    assert_string_equal(penstock_cache_stats_json(s), text);
    penstock_cache_stats_free(s);

    struct penstock_error error;
    assert_int_equal(ask(answer, sizeof answer - 1, &s, &error), PENSTOCK_ECLOSED);
    assert_non_null(strstr(error.message, "read statistics: connection closed"));
}

static void a_peer_that_keeps_none_is_said_to(void **state)
{
    (void)state;
    struct penstock_cache_stats *s;
    struct penstock_error error;
    assert_int_equal(ask("", 0, &s, &error), PENSTOCK_ECLOSED);
    assert_non_null(strstr(error.message, "a peer of the frozen protocol, which keeps no statistics"));
    assert_int_equal(ask("\0\0\0\0", 4, &s, &error), PENSTOCK_EPROTO);
    assert_non_null(strstr(error.message, "implausible cache statistics length: 0"));
    assert_int_equal(ask("\1\0\x10\0", 4, &s, &error), PENSTOCK_EPROTO);
}

static void nothing_is_what_none_have(void **state)
{
    (void)state;
    struct penstock_error error;
    struct penstock_cache_stats *s;
    assert_int_equal(penstock_cache_stats_get(NULL, NULL, &s, &error), PENSTOCK_EINVAL);
    assert_int_equal(penstock_cache_stats_get("127.0.0.1:1", NULL, NULL, &error), PENSTOCK_EINVAL);
    assert_null(penstock_cache_stats_totals(NULL));
    assert_int_equal(penstock_cache_stats_arenas(NULL), 0);
    assert_null(penstock_cache_stats_arena(NULL, 0));
    assert_null(penstock_cache_stats_json(NULL));
    penstock_cache_stats_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_the_peer_said),           cmocka_unit_test(what_later_peers_add_does_no_harm),
        cmocka_unit_test(what_makes_no_sense_is_named),      cmocka_unit_test(a_connection_asks_for_them_and_ends),
        cmocka_unit_test(a_peer_that_keeps_none_is_said_to), cmocka_unit_test(nothing_is_what_none_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
