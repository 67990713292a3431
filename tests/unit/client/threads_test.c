/* Threads that share a catalogue, each with a session and a peer of its own: for the thread sanitizer above all. A
 * thread says what went wrong by its result: cmocka's assertions belong to the main thread. */
#include "fake_peer.h"

#include <pthread.h>

enum { THREADS = 8, ROUNDS = 20 };

static struct penstock_catalogue *shared;
static pthread_barrier_t all_hold_it;

static bool takes(int fd, size_t n)
{
    uint8_t bytes[64];
    return n <= sizeof bytes && recv(fd, bytes, n, MSG_WAITALL) == (ssize_t)n;
}

static bool sends(int fd, const void *bytes, size_t n)
{
    return send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* Joins, as a peer that has the version. */
static const char *join(int fd, struct penstock_session *s, penstock_op open)
{
    static const char answer[] = "{\"version\":1,\"model_version\":\"v1\"}";
    const uint32_t len = sizeof answer - 1;
    if (!takes(fd, 4 + strlen("penstock:join v1 m")))
        return "no join was asked for";
    if (!sends(fd, &len, 4) || !sends(fd, answer, len) || penstock_wait(s, open, NULL, NULL) != 0)
        return "the join failed";
    return takes(fd, 1) ? NULL : "no mode byte";
}

/* Reads the tensor, found by name in the shared catalogue, into memory of its own. */
static const char *read_tensor(int fd, struct penstock_session *s, const struct penstock_catalogue *catalogue)
{
    uint8_t memory[100] = { 0 }, request[PENSTOCK_RANGE_REQUEST_BYTES], reply[1 + sizeof memory];
    const struct penstock_tensor *t = penstock_catalogue_find(catalogue, "t");
    if (!t || t->len_bytes != sizeof memory || penstock_catalogue_find(catalogue, "u"))
        return "the catalogue has other tensors";
    const struct penstock_memory m = { .size = sizeof m, .address = memory, .len_bytes = sizeof memory };
    const struct penstock_range range = { .file = t->shard,
                                          .offset_bytes = t->offset_bytes,
                                          .len_bytes = t->len_bytes };
    struct penstock_read read = { .size = sizeof read, .ranges = &range, .count = 1 };
    struct penstock_completion c;
    penstock_op op;
    size_t done;
    if (penstock_register(s, &m, &read.region, NULL) || penstock_submit(s, &read, &op, NULL) ||
        penstock_poll(s, &c, 1, &done) || done > 0)
        return "the read was not sent";
    struct penstock_range_request r;
    struct penstock_wire_fault fault;
    size_t consumed;
    if (recv(fd, request, sizeof request, MSG_WAITALL) != sizeof request ||
        penstock_range_request_decode(request, sizeof request, &r, &consumed, &fault) != PENSTOCK_DECODE_OK ||
        r.len != sizeof memory)
        return "the request is another one";
    reply[0] = PENSTOCK_STATUS_OK;
    for (size_t i = 0; i < sizeof memory; i++)
        reply[1 + i] = fake_byte(r.file, r.offset + i);
    if (!sends(fd, reply, sizeof reply) || penstock_wait(s, op, NULL, NULL) != 0)
        return "the read failed";
    for (size_t i = 0; i < sizeof memory; i++)
        if (memory[i] != fake_byte(t->shard, t->offset_bytes + i))
            return "a byte is wrong";
    return penstock_unregister(s, read.region, NULL) == 0 ? NULL : "the region stays";
}

static const char *live(struct penstock_catalogue *catalogue)
{
    int fds[2];
    struct net_stream stream;
    struct penstock_session *s;
    penstock_op open;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0 || fcntl(fds[1], F_SETFL, O_NONBLOCK) != 0)
        return "no socket pair";
    net_stream_plain(&stream, fds[1]);
    if (client_session_on_stream(&stream, NULL, CLIENT_FOR_JOIN, "m", catalogue, &s, &open, NULL) != 0) {
        close(fds[0]);
        return "no session";
    }
    const char *wrong = join(fds[0], s, open);
    struct penstock_catalogue *again = penstock_session_catalogue(s);
    if (!wrong && again != catalogue)
        wrong = "the session has another catalogue";
    for (int i = 0; !wrong && i < ROUNDS; i++)
        wrong = read_tensor(fds[0], s, again);
    penstock_session_free(s);
    penstock_catalogue_unref(again);
    close(fds[0]);
    return wrong;
}

static void *run(void *result)
{
    penstock_catalogue_ref(shared);
    pthread_barrier_wait(&all_hold_it);
    const char *wrong = NULL;
    for (int i = 0; !wrong && i < ROUNDS; i++)
        wrong = live(shared);
    *(const char **)result = wrong;
    penstock_catalogue_unref(shared); /* whoever is last frees it */
    return NULL;
}

static void threads_read_by_one_catalogue_and_the_last_frees_it(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    const char *wrong[THREADS] = { NULL };
    struct fake_peer f = fake_ready(NULL);
    shared = penstock_session_catalogue(f.session);
    fake_end(&f);
    assert_int_equal(pthread_barrier_init(&all_hold_it, NULL, THREADS + 1), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, &wrong[i]), 0);
    pthread_barrier_wait(&all_hold_it);
    penstock_catalogue_unref(shared);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        if (wrong[i])
            fail_msg("thread %zu: %s", i, wrong[i]);
    pthread_barrier_destroy(&all_hold_it);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(threads_read_by_one_catalogue_and_the_last_frees_it) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
