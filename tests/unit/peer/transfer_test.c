#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peer/transfer.h"

#define FILE_BYTES (400u << 10)

static struct peer_file file;
static uint8_t content[FILE_BYTES];

/* A stream that takes what its script says, and keeps it. */
struct scripted {
    struct net_stream stream;
    const ssize_t *moves; /* bytes to take at most, or what to fail with; the last one stays; 0: all */
    unsigned calls, sendfiles, pages;
    size_t n;
    uint8_t got[2 * FILE_BYTES];
};

static ssize_t next_move(struct scripted *s)
{
    ssize_t move = *s->moves;
    s->calls++;
    if (move != 0 && s->moves[1] != 0)
        s->moves++;
    return move == 0 ? SSIZE_MAX : move;
}

static ssize_t scripted_writev(struct net_stream *stream, const struct iovec *iov, int n, bool more)
{
    struct scripted *s = (struct scripted *)stream;
    ssize_t move = next_move(s), moved = 0;
    (void)more;
    for (int i = 0; i < n && moved < move; i++) {
        size_t left = (size_t)(move - moved), len = iov[i].iov_len < left ? iov[i].iov_len : left;
        assert_true(s->n + len <= sizeof s->got);
        memcpy(s->got + s->n, iov[i].iov_base, len);
        s->n += len;
        moved += (ssize_t)len;
    }
    return move < 0 ? move : moved;
}

static ssize_t scripted_sendfile(struct net_stream *stream, int fd, uint64_t offset, size_t len, bool more)
{
    struct scripted *s = (struct scripted *)stream;
    ssize_t move = next_move(s);
    (void)more;
    s->sendfiles++;
    if (move < 0)
        return move;
    ssize_t moved = pread(fd, s->got + s->n, (size_t)move < len ? (size_t)move : len, (off_t)offset);
    assert_true(moved >= 0);
    s->n += (size_t)moved;
    return moved;
}

static ssize_t scripted_write_pages(struct net_stream *stream, const struct iovec *iov, int n, bool more)
{
    ((struct scripted *)stream)->pages++;
    return scripted_writev(stream, iov, n, more);
}

static const struct net_stream_ops with_pages = { .writev = scripted_writev,
                                                  .sendfile = scripted_sendfile,
                                                  .write_pages = scripted_write_pages };
static const struct net_stream_ops with_sendfile = { .writev = scripted_writev, .sendfile = scripted_sendfile };
static const struct net_stream_ops without_sendfile = { .writev = scripted_writev };

static struct scripted *scripted(const struct net_stream_ops *ops, const ssize_t *moves)
{
    static struct scripted s;
    memset(&s, 0, sizeof s);
    s.stream.ops = ops;
    s.moves = moves;
    return &s;
}

static int make_file(void **state)
{
    (void)state;
    char name[] = "/tmp/penstock-transfer-XXXXXX";
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (uint8_t)test_random(&seed);
    file = (struct peer_file){ .fd = mkstemp(name), .len_bytes = FILE_BYTES, .name = "model.safetensors" };
    if (file.fd < 0 || unlink(name) != 0 || write(file.fd, content, FILE_BYTES) != (ssize_t)FILE_BYTES)
        return -1;
    file.mapping = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, file.fd, 0);
    return file.mapping == MAP_FAILED ? -1 : 0;
}

static int drop_file(void **state)
{
    (void)state;
    munmap((void *)(uintptr_t)file.mapping, FILE_BYTES);
    return close(file.fd);
}

/* Ranges of every length around the crossover, one after another, as they should arrive. */
static size_t send_ranges(struct peer_transfer *transfer, uint8_t *expected)
{
    static const uint32_t lens[] = { 1, 4096,  PEER_SENDFILE_OVER_WRITEV_BYTES - 1, PEER_SENDFILE_OVER_WRITEV_BYTES,
                                     3, 100000 };
    struct penstock_error error;
    size_t n = 0;
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        uint64_t offset = 1000 * i + 13;
        assert_int_equal(peer_transfer_range(transfer, &file, offset, lens[i], true, &error), 0);
        expected[n++] = 0;
        memcpy(expected + n, content + offset, lens[i]);
        n += lens[i];
    }
    assert_int_equal(peer_transfer_flush(transfer, false, &error), 0);
    return n;
}

static void ranges_arrive_whole_and_in_order(const struct net_stream_ops *ops, const ssize_t *moves, unsigned sendfiles)
{
    static uint8_t expected[2 * FILE_BYTES];
    struct scripted *s = scripted(ops, moves);
    struct peer_transfer transfer;
    peer_transfer_init(&transfer, &s->stream);
    size_t n = send_ranges(&transfer, expected);
    assert_int_equal(s->n, n);
    assert_memory_equal(s->got, expected, n);
    assert_int_equal(transfer.sent_bytes, n);
    if (sendfiles != UINT_MAX)
        assert_int_equal(s->sendfiles, sendfiles);
}

static void long_ranges_go_by_sendfile_and_short_ones_by_writev(void **state)
{
    (void)state;
    ranges_arrive_whole_and_in_order(&with_sendfile, (ssize_t[]){ 0, 0 }, 2);
}

static void short_writes_resume(void **state)
{
    (void)state;
    ranges_arrive_whole_and_in_order(&with_sendfile, (ssize_t[]){ 1, 1, 4095, 70000, 1, 999, 0 }, UINT_MAX);
    ranges_arrive_whole_and_in_order(&without_sendfile, (ssize_t[]){ 777, 0 }, 0);
}

static void a_client_that_pauses_is_waited_for(void **state)
{
    (void)state;
    ranges_arrive_whole_and_in_order(
        &with_sendfile, (ssize_t[]){ -EAGAIN, -EAGAIN, 5, -EAGAIN, -EAGAIN, 90000, -EAGAIN, 7777, 0 }, UINT_MAX);
}

static void a_stream_without_sendfile_falls_back(void **state)
{
    (void)state;
    ranges_arrive_whole_and_in_order(&without_sendfile, (ssize_t[]){ 0, 0 }, 0);
}

static void a_stream_that_finds_out_late_falls_back_once(void **state)
{
    (void)state;
    /* The first flush, the refused sendfile, everything else. */
    ranges_arrive_whole_and_in_order(&with_sendfile, (ssize_t[]){ SSIZE_MAX, -EOPNOTSUPP, SSIZE_MAX, 0 }, 1);
}

/* n ranges of len bytes each, by a stream that can do everything; its calls are in *s. */
static struct scripted *send_equal_ranges(const ssize_t *moves, unsigned n, uint64_t len)
{
    struct scripted *s = scripted(&with_pages, moves);
    struct peer_transfer transfer;
    struct penstock_error error;
    peer_transfer_init(&transfer, &s->stream);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(peer_transfer_range(&transfer, &file, 100 * i, len, true, &error), 0);
    assert_int_equal(peer_transfer_flush(&transfer, false, &error), 0);
    assert_int_equal(s->n, n * (1 + len));
    for (unsigned i = 0; i < n; i++)
        assert_memory_equal(s->got + i * (1 + len) + 1, content + 100 * i, len);
    return s;
}

static void ranges_leave_as_pages_where_their_length_is_worth_it(void **state)
{
    (void)state;
    ssize_t all[] = { 0, 0 };
    assert_int_equal(send_equal_ranges(all, 10, PEER_PAGES_MIN_BYTES)->pages, 1);
    assert_int_equal(send_equal_ranges(all, 10, PEER_PAGES_MIN_BYTES / 2)->pages, 0);
    assert_int_equal(send_equal_ranges(all, 2, PEER_SENDFILE_MIN_BYTES - 1)->sendfiles, 0);
    struct scripted *s = send_equal_ranges(all, 2, PEER_SENDFILE_MIN_BYTES);
    assert_int_equal(s->sendfiles, 2);
    assert_int_equal(s->pages, 0); /* the status byte in front is copied */
    assert_true(send_equal_ranges((ssize_t[]){ 1, -EAGAIN, 5000, -EAGAIN, SSIZE_MAX, 0 }, 10, 8192)->pages > 3);
}

static void what_is_to_be_copied_is_however_long(void **state)
{
    (void)state;
    static const struct net_stream_ops *const streams[] = { &with_pages, &with_sendfile };
    for (size_t i = 0; i < 2; i++) {
        struct scripted *s = scripted(streams[i], (ssize_t[]){ 0, 0 });
        struct peer_transfer transfer;
        struct penstock_error error;
        peer_transfer_init(&transfer, &s->stream);
        transfer.copy = true;
        assert_int_equal(peer_transfer_range(&transfer, &file, 0, PEER_SENDFILE_MIN_BYTES, false, &error), 0);
        assert_int_equal(peer_transfer_flush(&transfer, false, &error), 0);
        assert_int_equal(s->pages, 0);
        assert_int_equal(s->sendfiles, 0);
        assert_int_equal(transfer.sent_bytes, 1 + PEER_SENDFILE_MIN_BYTES);
    }
}

static void a_stream_that_cannot_send_pages_goes_on_copying(void **state)
{
    (void)state;
    assert_int_equal(send_equal_ranges((ssize_t[]){ -EOPNOTSUPP, SSIZE_MAX, 0 }, 10, 8192)->pages, 1);
    assert_int_equal(send_equal_ranges((ssize_t[]){ 10000, -EOPNOTSUPP, SSIZE_MAX, 0 }, 10, 8192)->pages, 2);
}

static void bytes_that_may_change_after_the_flush_are_copied(void **state)
{
    (void)state;
    struct scripted *s = scripted(&with_pages, (ssize_t[]){ 0, 0 });
    struct peer_transfer transfer;
    struct penstock_error error;
    peer_transfer_init(&transfer, &s->stream);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(peer_transfer_range(&transfer, &file, 0, 8192, true, &error), 0);
        assert_int_equal(peer_transfer_bytes(&transfer, "digest", 6, &error), 0);
        assert_int_equal(peer_transfer_flush(&transfer, true, &error), 0);
        assert_int_equal(s->pages, 0);
    }
    assert_int_equal(peer_transfer_range(&transfer, &file, 0, 8192, true, &error), 0);
    assert_int_equal(peer_transfer_flush(&transfer, false, &error), 0);
    assert_int_equal(s->pages, 1);
}

static int fails_with(const ssize_t *moves, uint64_t len, struct penstock_error *error)
{
    struct scripted *s = scripted(&with_sendfile, moves);
    struct peer_transfer transfer;
    peer_transfer_init(&transfer, &s->stream);
    int code = peer_transfer_range(&transfer, &file, 0, len, false, error);
    return code ? code : peer_transfer_flush(&transfer, false, error);
}

static void a_client_that_takes_nothing_is_given_up(void **state)
{
    (void)state;
    struct penstock_error error;
    assert_int_equal(fails_with((ssize_t[]){ -EAGAIN, 0 }, 10, &error), PENSTOCK_ETIMEOUT);
    assert_int_equal(fails_with((ssize_t[]){ 1, -EAGAIN, 0 }, 100000, &error), PENSTOCK_ETIMEOUT);
}

static void a_client_that_is_gone_is_closed(void **state)
{
    (void)state;
    struct penstock_error error;
    assert_int_equal(fails_with((ssize_t[]){ -EPIPE, 0 }, 10, &error), PENSTOCK_ECLOSED);
    assert_int_equal(fails_with((ssize_t[]){ 1, -ECONNRESET, 0 }, 100000, &error), PENSTOCK_ECLOSED);
}

static void an_unreadable_file_is_corrupt_and_named(void **state)
{
    (void)state;
    struct penstock_error error;
    assert_int_equal(fails_with((ssize_t[]){ 1, -EIO, 0 }, 100000, &error), PENSTOCK_ECORRUPT);
    assert_non_null(strstr(error.message, "model.safetensors"));
}

/* ---- over a real socket, on a file that shrinks ---- */

static int send_past_the_end(uint64_t len, const struct net_stream_ops *ops, struct penstock_error *error)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    struct net_stream stream;
    net_stream_plain(&stream, ends[0]);
    struct net_stream_ops plain = *stream.ops;
    if (ops) {
        plain.sendfile = ops->sendfile;
        plain.write_pages = ops->write_pages;
    }
    stream.ops = &plain;

    struct peer_transfer transfer;
    peer_transfer_init(&transfer, &stream);
    int code = peer_transfer_range(&transfer, &file, 300u << 10, len, false, error);
    if (code == 0)
        code = peer_transfer_flush(&transfer, false, error);
    stream.ops->close(&stream);
    close(ends[1]);
    return code;
}

static void a_file_cut_short_is_an_error_not_a_signal(void **state)
{
    (void)state;
    struct penstock_error error;
    assert_int_equal(ftruncate(file.fd, 4096), 0);
    assert_int_equal(send_past_the_end(8192, NULL, &error), PENSTOCK_ECORRUPT);
    assert_int_equal(send_past_the_end(PEER_SENDFILE_MIN_BYTES, NULL, &error), PENSTOCK_ECORRUPT);
    assert_non_null(strstr(error.message, "model.safetensors"));
    assert_int_equal(send_past_the_end(80u << 10, &without_sendfile, &error), PENSTOCK_ECORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_ranges_go_by_sendfile_and_short_ones_by_writev),
        cmocka_unit_test(short_writes_resume),
        cmocka_unit_test(a_client_that_pauses_is_waited_for),
        cmocka_unit_test(a_stream_without_sendfile_falls_back),
        cmocka_unit_test(a_stream_that_finds_out_late_falls_back_once),
        cmocka_unit_test(ranges_leave_as_pages_where_their_length_is_worth_it),
        cmocka_unit_test(what_is_to_be_copied_is_however_long),
        cmocka_unit_test(a_stream_that_cannot_send_pages_goes_on_copying),
        cmocka_unit_test(bytes_that_may_change_after_the_flush_are_copied),
        cmocka_unit_test(a_client_that_takes_nothing_is_given_up),
        cmocka_unit_test(a_client_that_is_gone_is_closed),
        cmocka_unit_test(an_unreadable_file_is_corrupt_and_named),
        cmocka_unit_test(a_file_cut_short_is_an_error_not_a_signal), /* the last: the file stays short */
    };
    return cmocka_run_group_tests(tests, make_file, drop_file);
}
