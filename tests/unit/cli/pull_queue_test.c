#include "../test.h"

#include "cli/pull_queue.h"

#define CHUNK PENSTOCK_DIGEST_CHUNK_BYTES

static const uint8_t right[3][PENSTOCK_DIGEST_BYTES] = { { 1 }, { 2 }, { 3 } };
static const uint8_t wrong[PENSTOCK_DIGEST_BYTES] = { 9 };

struct world {
    struct pull_plan plan;
    struct pull_queue queue;
    size_t lost; /* chunks that an answer took back */
};

/* One file of three chunks. */
static struct world *begin(bool verify, bool versioned)
{
    static struct world w;
    w = (struct world){ 0 };
    assert_int_equal(pull_plan_add(&w.plan, "f", 2 * CHUNK + 1, 0, 0, NULL), 0);
    assert_int_equal(pull_queue_init(&w.queue, &w.plan, verify, versioned, NULL), 0);
    return &w;
}

static void end(struct world *w)
{
    pull_queue_fini(&w->queue);
    pull_plan_fini(&w->plan);
}

static struct pull_job take(struct world *w, enum pull_work work, size_t chunk)
{
    struct pull_job job = pull_queue_take(&w->queue);
    assert_int_equal(job.work, work);
    if (work == PULL_FETCH || work == PULL_HASH)
        assert_int_equal(job.chunk, chunk);
    return job;
}

static void take_and_land(struct world *w, enum pull_work work, size_t chunk, const uint8_t *digest, bool want_lost)
{
    struct pull_job job = take(w, work, chunk);
    bool lost;
    assert_int_equal(pull_queue_land(&w->queue, &job, digest, &lost, NULL), 0);
    assert_int_equal(lost, want_lost);
}

static void count_lost(void *context, size_t chunk)
{
    (void)chunk;
    ++*(size_t *)context;
}

static int answer(struct world *w, int code, const void *digests, uint64_t n)
{
    struct pull_question q;
    assert_true(pull_queue_question(&w->queue, INT64_MAX, &q));
    return pull_queue_answer(&w->queue, &q, code, digests, n, 0, count_lost, &w->lost, NULL);
}

static void without_verification_it_is_over_when_all_has_landed(void **state)
{
    (void)state;
    struct world *w = begin(false, true);
    struct pull_question q;
    assert_false(pull_queue_question(&w->queue, 0, &q));
    for (size_t i = 0; i < 3; i++)
        take_and_land(w, PULL_FETCH, i, NULL, false);
    take(w, PULL_OVER, 0);
    assert_false(pull_queue_verified(&w->queue));
    end(w);
}

static void with_verification_it_is_over_when_every_digest_has_matched(void **state)
{
    (void)state;
    struct world *w = begin(true, true);
    take_and_land(w, PULL_FETCH, 0, right[0], false);
    assert_int_equal(answer(w, 0, right, 2), 0);
    take_and_land(w, PULL_FETCH, 1, right[1], false);
    take_and_land(w, PULL_FETCH, 2, right[2], false);
    take(w, PULL_WAIT, 0);
    struct pull_question q;
    assert_true(pull_queue_question(&w->queue, INT64_MAX, &q));
    assert_int_equal(q.first, 2);
    assert_int_equal(q.max, 1);
    struct pull_question second;
    assert_false(pull_queue_question(&w->queue, INT64_MAX, &second)); /* one at a time */
    assert_int_equal(pull_queue_answer(&w->queue, &q, 0, right[2], 1, 0, count_lost, &w->lost, NULL), 0);
    take(w, PULL_OVER, 0);
    assert_true(pull_queue_verified(&w->queue));
    end(w);
}

static void an_answer_without_digests_is_asked_again_later(void **state)
{
    (void)state;
    struct world *w = begin(true, true);
    struct pull_question q;
    assert_true(pull_queue_question(&w->queue, 100, &q));
    assert_int_equal(pull_queue_answer(&w->queue, &q, 0, NULL, 0, 100, count_lost, &w->lost, NULL), 0);
    assert_false(pull_queue_question(&w->queue, 101, &q));
    assert_true(pull_queue_question(&w->queue, INT64_MAX, &q));
    end(w);
}

static void a_damaged_chunk_is_fetched_three_times_and_then_an_error(void **state)
{
    (void)state;
    struct world *w = begin(true, true);
    struct penstock_error error;
    assert_int_equal(answer(w, 0, right, 3), 0);
    take_and_land(w, PULL_FETCH, 0, wrong, true);
    take_and_land(w, PULL_FETCH, 0, wrong, true);
    struct pull_job job = take(w, PULL_FETCH, 0);
    bool lost;
    assert_int_equal(pull_queue_land(&w->queue, &job, wrong, &lost, &error), PENSTOCK_ECORRUPT);
    assert_non_null(strstr(error.message, "f: chunk 0"));
    assert_int_equal(w->queue.damaged, 3);
    end(w);
}

static void a_chunk_that_landed_before_its_digest_was_known_is_taken_back(void **state)
{
    (void)state;
    struct world *w = begin(true, true);
    take_and_land(w, PULL_FETCH, 0, wrong, false);
    take_and_land(w, PULL_FETCH, 1, right[1], false);
    assert_int_equal(answer(w, 0, right, 3), 0);
    assert_int_equal(w->lost, 1);
    take_and_land(w, PULL_FETCH, 0, right[0], false);
    take_and_land(w, PULL_FETCH, 2, right[2], false);
    take(w, PULL_OVER, 0);
    end(w);
}

static void what_a_worker_gives_back_is_taken_by_another(void **state)
{
    (void)state;
    struct world *w = begin(false, true);
    struct pull_job first = take(w, PULL_FETCH, 0);
    take_and_land(w, PULL_FETCH, 1, NULL, false);
    take_and_land(w, PULL_FETCH, 2, NULL, false);
    take(w, PULL_WAIT, 0);
    pull_queue_give_back(&w->queue, &first);
    take_and_land(w, PULL_FETCH, 0, NULL, false);
    take(w, PULL_OVER, 0);
    end(w);
}

static void after_another_boot_a_chunk_is_hashed_before_it_is_believed(void **state)
{
    (void)state;
    struct world *w = begin(false, true);
    pull_queue_resume(&w->queue, 0, right[0], true);
    pull_queue_resume(&w->queue, 1, right[1], false);
    pull_queue_resume(&w->queue, 2, NULL, false); /* cannot be checked: fetched */
    take_and_land(w, PULL_HASH, 1, wrong, true);
    take_and_land(w, PULL_FETCH, 1, right[1], false);
    take_and_land(w, PULL_FETCH, 2, NULL, false);
    take(w, PULL_OVER, 0);
    end(w);
}

static void one_wrong_chunk_of_a_kept_file_fetches_all_of_it(void **state)
{
    (void)state;
    struct world *w = begin(true, true);
    pull_queue_keep(&w->queue, 0);
    take_and_land(w, PULL_HASH, 0, right[0], false);
    assert_int_equal(answer(w, 0, right, 3), 0);
    struct pull_job late = take(w, PULL_HASH, 1);
    take_and_land(w, PULL_HASH, 2, wrong, false);
    assert_false(pull_queue_kept(&w->queue, 0));
    bool lost;
    assert_int_equal(pull_queue_land(&w->queue, &late, right[1], &lost, NULL), 0); /* of the old file: not counted */
    for (size_t i = 0; i < 3; i++)
        take_and_land(w, PULL_FETCH, i, right[i], false);
    take(w, PULL_OVER, 0);
    assert_int_equal(w->queue.damaged, 0);
    end(w);
}

static void without_digests_only_a_version_vouches_for_what_was_there(void **state)
{
    (void)state;
    for (int versioned = 0; versioned < 2; versioned++) {
        struct world *w = begin(true, versioned);
        pull_queue_resume(&w->queue, 0, right[0], true);
        assert_int_equal(answer(w, PENSTOCK_EREFUSED, NULL, 0), 0);
        assert_int_equal(w->lost, !versioned);
        for (size_t i = versioned ? 1 : 0; i < 3; i++)
            take_and_land(w, PULL_FETCH, i, right[i], false);
        take(w, PULL_OVER, 0);
        assert_false(pull_queue_verified(&w->queue));
        end(w);
    }
}

static void a_kept_file_that_nobody_vouches_for_is_fetched(void **state)
{
    (void)state;
    struct world *w = begin(true, true);
    pull_queue_keep(&w->queue, 0);
    take_and_land(w, PULL_HASH, 0, right[0], false);
    assert_int_equal(answer(w, PENSTOCK_EREFUSED, NULL, 0), 0);
    for (size_t i = 0; i < 3; i++)
        take_and_land(w, PULL_FETCH, i, right[i], false);
    take(w, PULL_OVER, 0);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_verification_it_is_over_when_all_has_landed),
        cmocka_unit_test(with_verification_it_is_over_when_every_digest_has_matched),
        cmocka_unit_test(an_answer_without_digests_is_asked_again_later),
        cmocka_unit_test(a_damaged_chunk_is_fetched_three_times_and_then_an_error),
        cmocka_unit_test(a_chunk_that_landed_before_its_digest_was_known_is_taken_back),
        cmocka_unit_test(what_a_worker_gives_back_is_taken_by_another),
        cmocka_unit_test(after_another_boot_a_chunk_is_hashed_before_it_is_believed),
        cmocka_unit_test(one_wrong_chunk_of_a_kept_file_fetches_all_of_it),
        cmocka_unit_test(without_digests_only_a_version_vouches_for_what_was_there),
        cmocka_unit_test(a_kept_file_that_nobody_vouches_for_is_fetched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
