#include "../test.h"

#include <stdlib.h>

#include "base/list.h"
#include "base/vec.h"

static void pushes_stay_in_order(void **state)
{
    (void)state;
    BASE_VEC(uint32_t) v = { 0 };
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(base_vec_push(&v, i));
    uint32_t want = 0;
    base_vec_for_each (it, &v)
        assert_int_equal(*it, want++);
    assert_int_equal(want, 1000);
    base_vec_free(&v);
    assert_null(v.at);
}

static void a_size_that_overflows_is_refused(void **state)
{
    (void)state;
    BASE_VEC(uint64_t) v = { 0 };
    assert_false(base_vec_reserve(&v, SIZE_MAX / 4));
    assert_null(v.at);
    struct base_buf b = { 0 };
    base_buf_append(&b, "ab", 2);
    assert_null(base_buf_room(&b, SIZE_MAX));
    assert_true(b.failed);
    base_buf_append(&b, "c", 1);
    assert_int_equal(b.n, 2);
    base_buf_fini(&b);
}

static void a_buffer_takes_bytes_and_words(void **state)
{
    (void)state;
    struct base_buf b = { 0 };
    base_buf_append(&b, "ab", 2);
    base_buf_printf(&b, "%d-%s", 7, "x");
    assert_int_equal(b.n, 5);
    assert_memory_equal(b.at, "ab7-x", 5);
    base_buf_fini(&b);
}

static void a_list_keeps_its_order_and_forgets_what_is_removed(void **state)
{
    (void)state;
    struct item {
        int value;
        struct base_list link;
    } items[3] = { { .value = 0 }, { .value = 1 }, { .value = 2 } };
    struct base_list head;
    base_list_init(&head);
    assert_true(base_list_empty(&head));
    for (int i = 0; i < 3; i++)
        base_list_append(&head, &items[i].link);
    int want = 0;
    base_list_for_each (node, &head) {
        assert_int_equal(base_list_entry(node, struct item, link)->value, want++);
        base_list_remove(node);
        base_list_remove(node);
    }
    assert_int_equal(want, 3);
    assert_true(base_list_empty(&head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_stay_in_order),
        cmocka_unit_test(a_size_that_overflows_is_refused),
        cmocka_unit_test(a_buffer_takes_bytes_and_words),
        cmocka_unit_test(a_list_keeps_its_order_and_forgets_what_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
