#include "fake_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "client/cache/cache.h"
#include "client/tier.h"

/* ---- over a stream that is given ---- */

/* The completion of the open, after which the session is dead. */
static int dies(const struct fake_peer *f, const char *words)
{
    struct penstock_completion c = { 0 };
    while (fake_poll(f, &c) == 0) {
        struct pollfd p = { .fd = penstock_fd(f->session), .events = POLLIN };
        poll(&p, 1, (int)(penstock_timeout_ns(f->session) / 1000000 + 1));
    }
    assert_int_equal(c.op, f->open);
    if (!strstr(fake_words(f, f->open), words))
        print_error("%s\n", fake_words(f, f->open));
    assert_non_null(strstr(fake_words(f, f->open), words));
    return c.code;
}

static void a_manifest_in_any_parts_opens(void **state)
{
    (void)state;
    for (size_t part = 1; part < 500; part = part * 3 + 1) {
        struct fake_peer f = fake_begin(NULL, CLIENT_FOR_MANIFEST, NULL);
        struct penstock_completion c;
        uint8_t bytes[4 + sizeof fake_manifest];
        uint32_t len = sizeof fake_manifest - 1;
        memcpy(bytes, &len, 4);
        memcpy(bytes + 4, fake_manifest, len);
        size_t done = 0;
        assert_null(penstock_session_catalogue(f.session));
        for (size_t at = 0; at < len + 4; at += part) {
            assert_int_equal(done, 0);
            fake_send(&f, bytes + at, at + part < len + 4 ? part : len + 4 - at);
            done = fake_poll(&f, &c);
        }
        assert_int_equal(done, 1);
        assert_int_equal(c.code, 0);
        struct penstock_catalogue *catalogue = penstock_session_catalogue(f.session);
        fake_end(&f);
        assert_string_equal(penstock_catalogue_version(catalogue), "v1");
        assert_string_equal(penstock_catalogue_model_id(catalogue), "/m");
        assert_int_equal(penstock_catalogue_tensors(catalogue), 1);
        assert_int_equal(penstock_catalogue_shards(catalogue), 2);
        assert_int_equal(penstock_catalogue_files(catalogue), 3);
        assert_int_equal(penstock_catalogue_skipped(catalogue), 1);
        assert_ptr_equal(penstock_catalogue_find(catalogue, "t"), penstock_catalogue_tensor(catalogue, 0));
        assert_null(penstock_catalogue_find(catalogue, "u"));
        assert_null(penstock_catalogue_tensor(catalogue, 1));
        assert_string_equal(penstock_catalogue_file(catalogue, 2)->name, "config.json");
        assert_null(penstock_catalogue_file(catalogue, 4)->name);
        assert_null(penstock_catalogue_file(catalogue, 5));
        penstock_catalogue_unref(catalogue);
    }
}

static void a_peer_that_closes_says_where(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        int code;
        const char *words;
    } cases[] = {
        { "", 0, PENSTOCK_EDENIED, "has no such model" },
        { "\5\0", 2, PENSTOCK_ECLOSED, "read manifest: connection closed" },
        { "\5\0\0\0{", 5, PENSTOCK_ECLOSED, "read manifest: connection closed" },
        { "\0\0\0\0", 4, PENSTOCK_EPROTO, "0" },
        { "\1\0\0\x10", 4, PENSTOCK_EPROTO, "268435457" },
        { "HTTP", 4, PENSTOCK_EPROTO, "another program's port" },
        { "\2\0\0\0{}", 6, PENSTOCK_EPROTO, "manifest" },
        { "\4\0\0\0nope", 8, PENSTOCK_EPROTO, "manifest" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_peer f = fake_begin(NULL, CLIENT_FOR_MANIFEST, NULL);
        fake_send(&f, cases[i].bytes, cases[i].n);
        fake_close(&f);
        int code = dies(&f, cases[i].words);
        assert_int_equal(code, cases[i].code);
        fake_end(&f);
    }
}

static void a_length_alone_takes_no_memory(void **state)
{
    (void)state;
    struct fake_peer f = fake_begin(NULL, CLIENT_FOR_MANIFEST, NULL);
    struct penstock_completion c;
    fake_send(&f, "\0\0\0\x10{", 5); /* 256 MiB are promised, and one byte is there */
    assert_int_equal(fake_poll(&f, &c), 0);
    assert_true(f.session->body_cap < 1 << 20);
    fake_end(&f);
}

static void each_wait_of_an_open_has_its_timeout(void **state)
{
    (void)state;
    struct penstock_options options = fake_options();
    options.manifest_timeout_ns = options.reply_timeout_ns = 5 * 1000 * 1000;
    for (size_t n = 0; n < 6; n += 5) {
        struct fake_peer f = fake_begin(&options, CLIENT_FOR_MANIFEST, NULL);
        fake_send(&f, "\x10\0\0\0{", n);
        int code = dies(&f, "no manifest");
        assert_int_equal(code, PENSTOCK_ETIMEOUT);
        fake_end(&f);
    }
}

static void an_open_can_be_cancelled_and_freed_at_each_step(void **state)
{
    (void)state;
    for (int step = 0; step < 6; step++) {
        struct fake_peer f = fake_begin(NULL, CLIENT_FOR_MANIFEST, NULL);
        struct penstock_completion c;
        fake_send(&f, "\x10\0\0\0{", step % 3 == 0 ? 0 : step % 3 == 1 ? 2 : 5);
        assert_int_equal(fake_poll(&f, &c), 0);
        if (step < 3) {
            assert_int_equal(penstock_cancel(f.session, f.open), 0);
            assert_int_equal(penstock_wait(f.session, f.open, &c, NULL), PENSTOCK_ECANCELED);
            assert_int_equal(c.code, PENSTOCK_ECANCELED);
        }
        fake_end(&f);
    }
}

static struct penstock_catalogue *some_catalogue(void)
{
    struct fake_peer f = fake_ready(NULL);
    struct penstock_catalogue *catalogue = penstock_session_catalogue(f.session);
    fake_end(&f);
    return catalogue;
}

static void a_join_asks_for_the_version_and_reads_may_wait_for_it(void **state)
{
    (void)state;
    static uint8_t memory[100];
    struct penstock_catalogue *catalogue = some_catalogue();
    struct fake_peer f = fake_begin(NULL, CLIENT_FOR_JOIN, catalogue);
    penstock_catalogue_unref(catalogue);
    fake_expect(&f, "\x12\0\0\0penstock:join v1 m", 22);
    const struct penstock_range range = { .len_bytes = 10 };
    uint32_t region = fake_region(&f, memory, sizeof memory);
    penstock_op read = fake_submit(&f, region, &range, 1);
    struct penstock_completion c;
    assert_int_equal(fake_poll(&f, &c), 0);
    fake_expect_nothing(&f);
    fake_send_text(&f, "{\"version\":1,\"model_version\":\"v1\"}");
    assert_int_equal(fake_poll(&f, &c), 1);
    assert_int_equal(c.op, f.open);
    fake_expect(&f, "\0", 1);
    struct penstock_range_request r = fake_request(&f);
    fake_answer(&f, &r);
    assert_int_equal(penstock_wait(f.session, read, NULL, NULL), 0);
    fake_assert_landed(memory, &range);
    fake_end(&f);
}

static void answers_to_a_join(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *words;
    } cases[] = {
        { "{\"version\":1,\"error\":\"go\\u001b[1m away\"}", PENSTOCK_EDENIED, "go?[1m away" },
        { "{\"version\":1,\"model_version\":\"v2\"}", PENSTOCK_EPROTO, "another version" },
        { "{\"version\":2,\"model_version\":\"v1\"}", PENSTOCK_EPROTO, "version 2" },
        { "{\"version\":1}", PENSTOCK_EPROTO, "model_version" },
        { "[]", PENSTOCK_EPROTO, "version" },
        { "{", PENSTOCK_EPROTO, "join" },
    };
    struct penstock_catalogue *catalogue = some_catalogue();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_peer f = fake_begin(NULL, CLIENT_FOR_JOIN, catalogue);
        fake_send_text(&f, cases[i].text);
        int code = dies(&f, cases[i].words);
        assert_int_equal(code, cases[i].code);
        fake_end(&f);
    }
    penstock_catalogue_unref(catalogue);
}

/* ---- over TCP, where there can be a second connection ---- */

struct listener {
    int fd;
    char name[32];
};

static struct listener begin_listening(void)
{
    struct listener l;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    l.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(l.fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(l.fd, 8), 0);
    assert_int_equal(getsockname(l.fd, (struct sockaddr *)&at, &len), 0);
    snprintf(l.name, sizeof l.name, "127.0.0.1:%u", ntohs(at.sin_port));
    return l;
}

/* Polls the session until it has dialled, asked, and its request is here. */
static int accept_request(const struct listener *l, struct penstock_session *s, const char *request)
{
    struct penstock_completion c;
    char text[200];
    size_t done, n = strlen(request);
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    struct pollfd p = { .fd = fd, .events = POLLIN };
    do
        (void)!penstock_poll(s, &c, 1, &done);
    while (poll(&p, 1, 10) == 0);
    assert_int_equal(recv(fd, text, n + 4, MSG_WAITALL), n + 4);
    assert_memory_equal(text + 4, request, n);
    return fd;
}

static void send_text(int fd, const char *text)
{
    uint32_t len = (uint32_t)strlen(text);
    assert_int_equal(send(fd, &len, 4, MSG_NOSIGNAL), 4);
    assert_int_equal(send(fd, text, len, MSG_NOSIGNAL), len);
}

/* Refuses the first connection with `refusal` (NULL: closes it), and answers the second with `models`. */
static void refused(struct penstock_catalogue *catalogue, const char *refusal, const char *models, int code,
                    const char *words)
{
    struct listener l = begin_listening();
    struct penstock_session *s;
    struct penstock_error error = { 0 };
    penstock_op op;
    assert_int_equal(penstock_weights_start(l.name, "m", catalogue, NULL, &s, &op, &error), 0);
    int fd = accept_request(&l, s, catalogue ? "penstock:join v1 m" : "m");
    if (refusal)
        send_text(fd, refusal);
    close(fd);
    struct penstock_completion c;
    size_t done = 0;
    struct pollfd p = { .fd = l.fd, .events = POLLIN };
    do
        assert_int_equal(penstock_poll(s, &c, 1, &done), 0);
    while (poll(&p, 1, 10) == 0);
    fd = accept_request(&l, s, "penstock:models");
    if (models)
        send_text(fd, models);
    close(fd);
    assert_int_equal(penstock_wait(s, op, NULL, &error), code);
    if (!strstr(error.message, words))
        print_error("%s\n", error.message);
    assert_non_null(strstr(error.message, words));
    assert_non_null(strstr(error.message, l.name));
    penstock_session_free(s);
    close(l.fd);
}

#define MODEL(id, version)                                                                                             \
    "{\"id\":\"" id "\",\"shards\":1,\"tensors\":2,\"bytes\":3,\"files\":4,\"model_version\":\"" version "\"}"
#define MODELS(list) "{\"version\":1,\"models\":[" list "],\"rails\":[]}"

static void a_refused_model_is_answered_with_what_there_is(void **state)
{
    (void)state;
    refused(NULL, NULL, MODELS(MODEL("a/b", "v") "," MODEL("c", "v")), PENSTOCK_ENOTFOUND,
            "has no model 'm'; it has: a/b, c");
    refused(NULL, NULL, MODELS(MODEL("m", "v")), PENSTOCK_EDENIED, "its log says why");
    refused(NULL, NULL, MODELS(""), PENSTOCK_ENOTFOUND, "and no other");
    refused(NULL, NULL, NULL, PENSTOCK_EDENIED, "has no such model");
    refused(NULL, NULL, "{}", PENSTOCK_EDENIED, "has no such model");
}

static void a_refused_join_says_whether_the_model_changed(void **state)
{
    (void)state;
    static const char refusal[] = "{\"version\":1,\"error\":\"words of the peer\"}";
    struct penstock_catalogue *catalogue = some_catalogue();
    refused(catalogue, refusal, MODELS(MODEL("org/m", "v2")), PENSTOCK_ESTALE, "words of the peer");
    refused(catalogue, refusal, MODELS(MODEL("n", "v1")), PENSTOCK_ENOTFOUND, "words of the peer");
    refused(catalogue, refusal, MODELS(MODEL("m", "v1")), PENSTOCK_EDENIED, "words of the peer");
    refused(catalogue, refusal, NULL, PENSTOCK_EDENIED, "words of the peer");
    penstock_catalogue_unref(catalogue);
}

static void a_port_without_a_peer_is_said_to_be_one(void **state)
{
    (void)state;
    struct listener l = begin_listening();
    close(l.fd); /* nobody listens there now */
    struct penstock_session *s;
    struct penstock_models *models;
    struct penstock_error error = { 0 };
    assert_int_equal(penstock_weights_open(l.name, "m", NULL, NULL, &s, &error), PENSTOCK_EUNREACHABLE);
    const char *named = strstr(error.message, l.name);
    assert_non_null(named);
    assert_null(strstr(named + 1, l.name)); /* once is enough */
    assert_int_equal(penstock_models_get(l.name, NULL, &models, &error), PENSTOCK_EUNREACHABLE);
}

static void a_peer_that_is_gone_when_asked_again_was_stopped(void **state)
{
    (void)state;
    struct listener l = begin_listening();
    struct penstock_session *s;
    struct penstock_error error = { 0 };
    penstock_op op;
    assert_int_equal(penstock_weights_start(l.name, "m", NULL, NULL, &s, &op, &error), 0);
    int fd = accept_request(&l, s, "m");
    close(l.fd);
    close(fd);
    assert_int_equal(penstock_wait(s, op, NULL, &error), PENSTOCK_ECLOSED);
    assert_non_null(strstr(error.message, "was it stopped?"));
    penstock_session_free(s);
}

static void the_next_address_of_a_name_is_tried(void **state)
{
    (void)state;
    struct listener dead = begin_listening(), live = begin_listening();
    close(dead.fd);
    struct penstock_session *s;
    struct penstock_error error = { 0 };
    penstock_op op;
    assert_int_equal(penstock_weights_start(dead.name, "m", NULL, NULL, &s, &op, &error), 0);
    struct net_addresses *addresses = &s->addresses; /* as if the name stood for both */
    socklen_t len = sizeof addresses->at[1].addr;
    assert_int_equal(getsockname(live.fd, (struct sockaddr *)&addresses->at[1].addr, &len), 0);
    addresses->at[1].len = len;
    addresses->n = 2;
    struct pollfd p = { .fd = live.fd, .events = POLLIN };
    struct penstock_completion c;
    size_t done;
    do
        assert_int_equal(penstock_poll(s, &c, 1, &done), 0);
    while (poll(&p, 1, 10) == 0);
    int fd = accept_request(&live, s, "m");
    send_text(fd, fake_manifest);
    assert_int_equal(penstock_wait(s, op, NULL, NULL), 0);
    close(fd);
    close(live.fd);
    penstock_session_free(s);
}

static void each_address_of_a_name_says_why_it_failed(void **state)
{
    (void)state;
    struct listener first = begin_listening(), second = begin_listening();
    close(first.fd);
    struct penstock_session *s;
    struct penstock_error error = { 0 };
    penstock_op op;
    assert_int_equal(penstock_weights_start(first.name, "m", NULL, NULL, &s, &op, &error), 0);
    struct net_addresses *addresses = &s->addresses;
    socklen_t len = sizeof addresses->at[1].addr;
    assert_int_equal(getsockname(second.fd, (struct sockaddr *)&addresses->at[1].addr, &len), 0);
    close(second.fd);
    addresses->at[1].len = len;
    addresses->at[2] = (struct net_address){ .addr.ss_family = AF_UNSPEC }; /* fails before it is dialled */
    addresses->n = 3;
    assert_int_equal(penstock_wait(s, op, NULL, &error), PENSTOCK_EUNREACHABLE);
    assert_non_null(strstr(error.message, first.name));
    const char *refused_by_second = strstr(error.message, second.name);
    assert_non_null(refused_by_second);
    assert_non_null(strstr(refused_by_second, "; an unknown address: "));
    penstock_session_free(s);
}

static void what_cannot_be_opened(void **state)
{
    (void)state;
    struct penstock_session *s;
    struct penstock_error error = { 0 };
    struct penstock_options options = fake_options();
    char name[PENSTOCK_MODEL_REQUEST_MAX + 2];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(penstock_weights_open("127.0.0.1:1", "", NULL, NULL, &s, &error), PENSTOCK_EINVAL);
    assert_int_equal(penstock_weights_open("127.0.0.1:1", name, NULL, NULL, &s, &error), PENSTOCK_EINVAL);
    assert_int_equal(penstock_weights_open("127.0.0.1:1", "penstock:x", NULL, NULL, &s, &error), PENSTOCK_EINVAL);
    options.transport = PENSTOCK_TRANSPORT_RDMA;
    options.rails = "none";
    assert_int_equal(penstock_weights_open("127.0.0.1:1", "m", NULL, &options, &s, &error), PENSTOCK_EUNSUPPORTED);
    assert_non_null(strstr(error.message, "RDMA"));
    options.transport = 0;
    options.congestion = "longer than any is";
    assert_int_equal(penstock_weights_open("127.0.0.1:1", "m", NULL, &options, &s, &error), PENSTOCK_EINVAL);
    options.congestion = "";
    assert_int_equal(penstock_weights_open("127.0.0.1:1", "m", NULL, &options, &s, &error), PENSTOCK_EINVAL);
    options.congestion = "system";
    options.reply_timeout_ns = -1;
    assert_int_equal(penstock_weights_open("127.0.0.1:1", "m", NULL, &options, &s, &error), PENSTOCK_EINVAL);
    options.size = 0;
    assert_int_equal(penstock_weights_open("127.0.0.1:1", "m", NULL, &options, &s, NULL), PENSTOCK_EINVAL);
}

/* What a session's connection has when it was asked for: the kernel's name of it, or the code of a refusal. */
static void congestion_of(const char *asked, char out[16])
{
    struct listener l = begin_listening();
    struct penstock_options options = fake_options();
    struct penstock_session *s;
    struct penstock_error error = { 0 };
    penstock_op op;
    socklen_t len = 16;
    options.congestion = asked;
    int code = penstock_weights_start(l.name, "m", NULL, &options, &s, &op, &error);
    if (code) {
        assert_non_null(strstr(error.message, "no TCP congestion control nonesuch"));
        snprintf(out, 16, "%d", code);
    } else {
        assert_int_equal(getsockopt(s->stream.fd, IPPROTO_TCP, TCP_CONGESTION, out, &len), 0);
        assert_false(s->stream.small_window); /* what a weight peer sends is not copied */
        assert_true(client_cache_tier.small_window);
        penstock_session_free(s);
    }
    close(l.fd);
}

static void a_connection_has_the_congestion_control_that_was_asked_for(void **state)
{
    (void)state;
    char ours[16] = { 0 }, systems[16] = { 0 }, refused[16];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), cubic = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof systems;
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, systems, &len), 0);
    unsetenv("PENSTOCK_CONGESTION");
    congestion_of("reno", ours); /* every kernel has it, for every user */
    assert_string_equal(ours, "reno");
    congestion_of("system", ours);
    assert_string_equal(ours, systems);
    congestion_of(NULL, ours);
    assert_string_equal(ours, setsockopt(cubic, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) == 0 ? "cubic" : systems);
    congestion_of("nonesuch", refused);
    assert_int_equal(atoi(refused), PENSTOCK_EUNSUPPORTED);
    setenv("PENSTOCK_CONGESTION", "reno", 1);
    congestion_of(NULL, ours);
    assert_string_equal(ours, "reno");
    congestion_of("system", ours); /* options go first */
    assert_string_equal(ours, systems);
    setenv("PENSTOCK_CONGESTION", "nonesuch", 1);
    congestion_of(NULL, refused);
    assert_int_equal(atoi(refused), PENSTOCK_EUNSUPPORTED);
    unsetenv("PENSTOCK_CONGESTION");
    close(fd);
    close(cubic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_in_any_parts_opens),
        cmocka_unit_test(a_peer_that_closes_says_where),
        cmocka_unit_test(a_length_alone_takes_no_memory),
        cmocka_unit_test(each_wait_of_an_open_has_its_timeout),
        cmocka_unit_test(an_open_can_be_cancelled_and_freed_at_each_step),
        cmocka_unit_test(a_join_asks_for_the_version_and_reads_may_wait_for_it),
        cmocka_unit_test(answers_to_a_join),
        cmocka_unit_test(a_refused_model_is_answered_with_what_there_is),
        cmocka_unit_test(a_refused_join_says_whether_the_model_changed),
        cmocka_unit_test(a_port_without_a_peer_is_said_to_be_one),
        cmocka_unit_test(a_peer_that_is_gone_when_asked_again_was_stopped),
        cmocka_unit_test(the_next_address_of_a_name_is_tried),
        cmocka_unit_test(each_address_of_a_name_says_why_it_failed),
        cmocka_unit_test(what_cannot_be_opened),
        cmocka_unit_test(a_connection_has_the_congestion_control_that_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
