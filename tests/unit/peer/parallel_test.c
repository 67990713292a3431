#include "../test.h"

#include <pthread.h>
#include <stdio.h>

#include "base/error.h"
#include "peer/parallel.h"

#define PIECES 500u

struct work {
    _Atomic unsigned done[PIECES];
    _Atomic unsigned n;
    size_t failing; /* PIECES: none */
    _Atomic bool stop;
};

static int piece(void *context, size_t i, struct penstock_error *error)
{
    struct work *w = context;
    w->done[i]++;
    w->n++;
    return i == w->failing ? base_error_set(error, PENSTOCK_ECORRUPT, "piece %zu", i) : 0;
}

static int run(struct work *w, size_t threads, size_t n, struct penstock_error *error)
{
    const struct peer_pieces pieces = { .n = n, .run = piece, .context = w, .stop = &w->stop };
    return peer_parallel(&pieces, threads, error);
}

static void every_piece_is_done_once(void **state)
{
    (void)state;
    const size_t threads[] = { 0, 1, 4, 1000 };
    for (size_t t = 0; t < 4; t++) {
        struct work w = { .failing = PIECES };
        struct penstock_error error;
        assert_int_equal(run(&w, threads[t], PIECES, &error), 0);
        for (size_t i = 0; i < PIECES; i++)
            assert_int_equal(w.done[i], 1);
    }
}

static void nothing_to_do_is_done(void **state)
{
    (void)state;
    struct work w = { .failing = PIECES };
    assert_int_equal(run(&w, 4, 0, NULL), 0);
    assert_int_equal(w.n, 0);
}

static void after_a_failure_no_piece_is_begun(void **state)
{
    (void)state;
    struct work w = { .failing = 3 };
    struct penstock_error error;
    assert_int_equal(run(&w, 1, PIECES, &error), PENSTOCK_ECORRUPT);
    assert_string_equal(error.message, "piece 3");
    assert_int_equal(w.n, 4);

    struct work together = { .failing = 0 };
    assert_int_equal(run(&together, 4, PIECES, &error), PENSTOCK_ECORRUPT);
    assert_string_equal(error.message, "piece 0");
}

static void what_is_stopped_says_so(void **state)
{
    (void)state;
    struct work w = { .failing = PIECES, .stop = true };
    struct penstock_error error;
    assert_int_equal(run(&w, 4, PIECES, &error), PENSTOCK_ECANCELED);
    assert_int_equal(w.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_is_done_once),
        cmocka_unit_test(nothing_to_do_is_done),
        cmocka_unit_test(after_a_failure_no_piece_is_begun),
        cmocka_unit_test(what_is_stopped_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
