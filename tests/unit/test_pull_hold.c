/* Held pulls: woken by what passes their filter, ended at their deadline, dropped with their connection, bounded. */
#include <check.h>
#include <stdlib.h>

#include "broker/limits.h"
#include "broker/processor/pull_hold.h"
#include "tests/lib/run_suite.h"

struct waiter {
    int resumed, dropped;
    int64_t wants; /* tags code */
    const char *text; /* not NULL: these properties */
};

static uv_loop_t loop;
static uv_timer_t heart; /* keeps the loop alive: the hold's own timer does not */
static struct pull_hold *hold;
static int order[8], order_count;
static struct waiter waiters[8];

static const struct slice no_properties;

static bool match(void *context, int64_t tags_code, struct slice properties)
{
    struct waiter *waiter = context;
    if (waiter->text != NULL)
        return slice_equal_text(properties, waiter->text);
    return waiter->wants == tags_code;
}

static void resume(struct broker *broker, void *context)
{
    struct waiter *waiter = context;
    ck_assert_ptr_null(broker);
    waiter->resumed++;
    order[order_count++] = (int)(waiter - waiters);
}

static void drop(void *context)
{
    struct waiter *waiter = context;
    waiter->dropped++;
}

static void beat(uv_timer_t *timer)
{
    (void)timer;
}

static void set_up(void)
{
    uv_loop_init(&loop);
    uv_timer_init(&loop, &heart);
    uv_timer_start(&heart, beat, 1, 1);
    hold = pull_hold_new(&loop, NULL, 5);
    memset(waiters, 0, sizeof waiters);
    order_count = 0;
}

static void tear_down(void)
{
    pull_hold_close(hold);
    uv_close((uv_handle_t *)&heart, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    pull_hold_free(hold);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static int add(int which, const char *topic, int32_t queue_id, uint64_t connection_id, uint32_t timeout_ms, bool all, int64_t wants)
{
    waiters[which].wants = wants;
    struct pull_hold_request request = {
        .topic = slice_of_text(topic),
        .queue_id = queue_id,
        .connection_id = connection_id,
        .timeout_ms = timeout_ms,
        .bytes = 100,
        .context = &waiters[which],
        .match = all ? NULL : match,
        .resume = resume,
        .drop = drop,
    };
    return pull_hold_add(hold, &request);
}

START_TEST(woken_by_properties)
{
    waiters[0].text = "n\x01" "1";
    ck_assert_int_eq(add(0, "T", 0, 1, 1000, false, 0), 0);
    pull_hold_arrived(hold, SLICE_LITERAL("T"), 0, 0, no_properties);
    pull_hold_arrived(hold, SLICE_LITERAL("T"), 0, 0, SLICE_LITERAL("n\x01" "2"));
    pull_hold_wake(hold);
    ck_assert_int_eq(waiters[0].resumed, 0);
    pull_hold_arrived(hold, SLICE_LITERAL("T"), 0, 5, SLICE_LITERAL("n\x01" "1"));
    pull_hold_wake(hold);
    ck_assert_int_eq(waiters[0].resumed, 1);
}
END_TEST

START_TEST(woken_by_queue_and_tag)
{
    ck_assert_int_eq(add(0, "T", 0, 1, 1000, true, 0), 0);
    ck_assert_int_eq(add(1, "T", 0, 1, 1000, false, 7), 0);
    ck_assert_int_eq(add(2, "T", 1, 2, 1000, true, 0), 0);
    ck_assert_int_eq(add(3, "U", 0, 2, 1000, true, 0), 0);
    pull_hold_arrived(hold, SLICE_LITERAL("T"), 0, 5, no_properties);
    ck_assert_msg(waiters[0].resumed == 0, "only pull_hold_wake runs it");
    pull_hold_arrived(hold, SLICE_LITERAL("T"), 0, 5, no_properties);
    pull_hold_wake(hold);
    ck_assert_int_eq(waiters[0].resumed, 1);
    ck_assert_int_eq(waiters[1].resumed, 0);
    ck_assert_int_eq(pull_hold_count(hold), 3);
    pull_hold_arrived(hold, SLICE_LITERAL("T"), 0, 7, no_properties);
    pull_hold_arrived(hold, SLICE_LITERAL("T"), 1, 7, no_properties);
    pull_hold_arrived(hold, SLICE_LITERAL("nobody"), 1, 7, no_properties);
    pull_hold_wake(hold);
    ck_assert_int_eq(waiters[1].resumed, 1);
    ck_assert_int_eq(waiters[2].resumed, 1);
    ck_assert_int_eq(waiters[3].resumed, 0);
    ck_assert_int_eq(order[0], 0);
    ck_assert_int_eq(order[1], 1);
    ck_assert_int_eq(order[2], 2);
}
END_TEST

START_TEST(deadlines)
{
    /* The loop counts from the time it looked at last. */
    uint64_t began = uv_hrtime();
    uv_update_time(&loop);
    ck_assert_int_eq(add(0, "T", 0, 1, 40, true, 0), 0);
    ck_assert_int_eq(add(1, "T", 0, 1, 5, true, 0), 0);
    ck_assert_int_eq(add(2, "T", 0, 1, 60000, true, 0), 0);
    while (waiters[0].resumed == 0 && uv_hrtime() - began < 5000000000ull)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(order[0], 1);
    ck_assert_int_eq(order[1], 0);
    ck_assert_int_eq(pull_hold_count(hold), 1);
    ck_assert_uint_ge((uv_hrtime() - began) / 1000000, 38);
}
END_TEST

START_TEST(connection_closed)
{
    ck_assert_int_eq(add(0, "T", 0, 1, 1000, true, 0), 0);
    ck_assert_int_eq(add(1, "T", 1, 1, 1000, true, 0), 0);
    ck_assert_int_eq(add(2, "T", 1, 2, 1000, true, 0), 0);
    pull_hold_arrived(hold, SLICE_LITERAL("T"), 1, 0, no_properties); /* also those that are due already */
    pull_hold_connection_closed(hold, 1);
    pull_hold_connection_closed(hold, 99);
    pull_hold_wake(hold);
    ck_assert_int_eq(waiters[0].dropped, 1);
    ck_assert_int_eq(waiters[1].dropped, 1);
    ck_assert_int_eq(waiters[0].resumed + waiters[1].resumed, 0);
    ck_assert_int_eq(waiters[2].resumed, 1);
}
END_TEST

START_TEST(bounded)
{
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(add(i, "T", i, 1, 1000, true, 0), 0);
    ck_assert_int_eq(add(5, "T", 0, 1, 1000, true, 0), ERROR_BUSY);
    pull_hold_arrived(hold, SLICE_LITERAL("T"), 0, 0, no_properties);
    pull_hold_wake(hold);
    ck_assert_int_eq(add(5, "T", 0, 1, 1000, true, 0), 0);
    struct pull_hold_request large = {.topic = SLICE_LITERAL("T"), .bytes = LIMIT_HELD_BYTES, .drop = drop, .context = &waiters[6]};
    pull_hold_connection_closed(hold, 1);
    ck_assert_int_eq(pull_hold_count(hold), 0);
    ck_assert_int_eq(pull_hold_add(hold, &large), 0);
    ck_assert_int_eq(add(7, "T", 0, 1, 1000, true, 0), ERROR_BUSY);
}
END_TEST

START_TEST(whole_topic)
{
    ck_assert_int_eq(add(0, "T", 0, 1, 1000, false, 3), 0);
    ck_assert_int_eq(add(1, "T", 4, 1, 1000, false, 3), 0);
    ck_assert_int_eq(add(2, "TT", 4, 1, 1000, false, 3), 0);
    pull_hold_notify_topic(hold, SLICE_LITERAL("T"), 4);
    pull_hold_wake(hold);
    ck_assert_int_eq(waiters[0].resumed, 0);
    ck_assert_int_eq(waiters[1].resumed, 1);
    pull_hold_notify_topic(hold, SLICE_LITERAL("T"), -1);
    pull_hold_wake(hold);
    ck_assert_int_eq(waiters[0].resumed, 1);
    ck_assert_int_eq(waiters[2].resumed, 0);
}
END_TEST

START_TEST(dropped_at_close)
{
    ck_assert_int_eq(add(0, "T", 0, 1, 1000, true, 0), 0);
    pull_hold_close(hold);
    ck_assert_int_eq(waiters[0].dropped, 1);
    ck_assert_int_eq(add(1, "T", 0, 1, 1000, true, 0), ERROR_BUSY);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pull_hold");
    TCase *tcase = tcase_create("pull_hold");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, woken_by_queue_and_tag);
    tcase_add_test(tcase, woken_by_properties);
    tcase_add_test(tcase, deadlines);
    tcase_add_test(tcase, connection_closed);
    tcase_add_test(tcase, bounded);
    tcase_add_test(tcase, whole_topic);
    tcase_add_test(tcase, dropped_at_close);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
