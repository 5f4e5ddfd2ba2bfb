/* Counters per topic, group and queue over a clock that the test moves. */
#include "broker/broker_stats_manager.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "../lib/sim_env.h"
#include "broker/limits.h"
#include "tests/lib/run_suite.h"

static struct sim_env sim;
static struct broker_stats_manager *manager;

static void set_up(void)
{
    sim_env_init(&sim, 1, NULL);
    sim.own_clock.monotonic_us = 5000000;
    manager = broker_stats_manager_new(&sim.env);
    ck_assert_ptr_nonnull(manager);
}

static void tear_down(void)
{
    broker_stats_manager_free(manager);
    sim_env_close(&sim);
}

static void seconds(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sim.clock->monotonic_us += 1000000;
        broker_stats_manager_tick(manager);
    }
}

static struct stats_item *item(enum stats_kind kind, const char *topic, int32_t queue_id, const char *group)
{
    return broker_stats_manager_item(manager, kind, slice_of_text(topic), queue_id, slice_of_text(group));
}

static bool view(const char *name, const char *key, struct broker_stats_data *data)
{
    return broker_stats_manager_view(manager, slice_of_text(name), slice_of_text(key), data);
}

START_TEST(every_name_has_its_key)
{
    static const struct {
        enum stats_kind kind;
        const char *name, *key;
        int64_t sum;
    } rows[] = {
        {STATS_TOPIC_PUT, "TOPIC_PUT_NUMS", "T", 3},
        {STATS_TOPIC_PUT, "TOPIC_PUT_SIZE", "T", 700},
        {STATS_GROUP_GET, "GROUP_GET_NUMS", "T@g", 3},
        {STATS_GROUP_GET, "GROUP_GET_SIZE", "T@g", 700},
        {STATS_GROUP_QUEUE, "GROUP_GET_LATENCY", "7@T@g", 3},
        {STATS_SNDBCK_PUT, "SNDBCK_PUT_NUMS", "T@g", 3},
        {STATS_QUEUE_PUT, "QUEUE_PUT_NUMS", "T@7", 3},
        {STATS_QUEUE_PUT, "QUEUE_PUT_SIZE", "T@7", 700},
        {STATS_QUEUE_GET, "QUEUE_GET_NUMS", "T@7@g", 3},
        {STATS_QUEUE_GET, "QUEUE_GET_SIZE", "T@7@g", 700},
        {STATS_BROKER_PUT, "BROKER_PUT_NUMS", "T", 3},
        {STATS_BROKER_GET, "BROKER_GET_NUMS", "T", 3},
    };
    for (enum stats_kind kind = 0; kind < STATS_KIND_COUNT; kind++) {
        stats_item_add(item(kind, "T", 7, "g"), 1, 300);
        stats_item_add(item(kind, "T", 7, "g"), 2, 400);
    }
    ck_assert_uint_eq(broker_stats_manager_count(manager), STATS_KIND_COUNT);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct broker_stats_data data;
        ck_assert_msg(view(rows[i].name, rows[i].key, &data), "%s %s", rows[i].name, rows[i].key);
        ck_assert_int_eq(data.minute.sum, rows[i].sum);
        ck_assert_int_eq(data.hour.sum, rows[i].sum);
        ck_assert_int_eq(data.day.sum, rows[i].sum);
        ck_assert_double_eq_tol(data.minute.avgpt, (double)rows[i].sum / 2, 1e-9);
        /* The window of what is new begins one interval before it. */
        ck_assert_double_eq_tol(data.minute.tps, (double)rows[i].sum / 10, 1e-9);
    }
    struct broker_stats_data data;
    ck_assert(!view("TOPIC_PUT_NUMS", "U", &data));
    ck_assert(!view("TOPIC_PUT_NUMS", "", &data));
    ck_assert(!view("NO_SUCH_NAME", "T", &data));
    ck_assert(!view("GROUP_GET_NUMS", "T", &data));
    ck_assert(slice_equal_text(stats_item_key(item(STATS_QUEUE_GET, "T", -1, "g")), "T@-1@g"));
}
END_TEST

START_TEST(windows_end_now_and_forget)
{
    struct broker_stats_data data;
    struct stats_item *put = item(STATS_TOPIC_PUT, "T", 0, "");
    for (int i = 0; i < 600; i++) { /* ten minutes, 5 messages of 10 bytes a second */
        stats_item_add(put, 5, 50);
        seconds(1);
    }
    ck_assert(view("TOPIC_PUT_NUMS", "T", &data));
    ck_assert_int_ge(data.minute.sum, 60 * 5);
    ck_assert_int_le(data.minute.sum, 70 * 5);
    ck_assert_double_eq_tol(data.minute.tps, 5, 0.05);
    ck_assert_double_eq_tol(data.minute.avgpt, 5, 1e-9);
    ck_assert_int_eq(data.hour.sum, 3000);
    ck_assert_int_eq(data.day.sum, 3000);
    ck_assert(view("TOPIC_PUT_SIZE", "T", &data));
    ck_assert_double_eq_tol(data.minute.tps, 50, 0.5);
    ck_assert_int_eq(data.day.sum, 30000);

    seconds(80);
    ck_assert(view("TOPIC_PUT_NUMS", "T", &data));
    ck_assert_int_eq(data.minute.sum, 0);
    ck_assert_double_eq_tol(data.minute.tps, 0, 1e-9);
    ck_assert_double_eq_tol(data.minute.avgpt, 0, 1e-9);
    ck_assert_int_eq(data.hour.sum, 3000);
    seconds(4300);
    ck_assert(view("TOPIC_PUT_NUMS", "T", &data));
    ck_assert_int_eq(data.hour.sum, 0);
    ck_assert_int_eq(data.day.sum, 3000);
}
END_TEST

START_TEST(a_day_without_traffic_drops_an_item)
{
    struct broker_stats_data data;
    struct stats_item *held = item(STATS_TOPIC_PUT, "held", 0, "");
    stats_item_hold(held);
    stats_item_add(item(STATS_TOPIC_PUT, "T", 0, ""), 1, 1);
    seconds(24 * 3600);
    ck_assert(view("TOPIC_PUT_NUMS", "T", &data));
    ck_assert_int_eq(data.day.sum, 1);
    seconds(3 * 3600);
    ck_assert(!view("TOPIC_PUT_NUMS", "T", &data));
    ck_assert(view("TOPIC_PUT_NUMS", "held", &data));
    ck_assert_uint_eq(broker_stats_manager_count(manager), 1);
    stats_item_release(held);
    seconds(2 * 3600);
    ck_assert_uint_eq(broker_stats_manager_count(manager), 0);
}
END_TEST

START_TEST(the_number_of_items_is_bounded)
{
    char topic[32];
    for (unsigned i = 0; i < LIMIT_STATS_ITEMS; i++) {
        snprintf(topic, sizeof topic, "T%u", i);
        ck_assert_ptr_nonnull(item(STATS_TOPIC_PUT, topic, 0, ""));
    }
    ck_assert_ptr_null(item(STATS_TOPIC_PUT, "one more", 0, ""));
    stats_item_add(NULL, 1, 1);
    stats_item_hold(NULL);
    stats_item_release(NULL);
    stats_item_set_fall(NULL, 1, 1);
    ck_assert_ptr_nonnull(item(STATS_TOPIC_PUT, "T5", 0, ""));
    ck_assert_uint_eq(broker_stats_manager_refused(manager), 1);
    char *huge = calloc(1, 1000);
    memset(huge, 'x', 999);
    ck_assert_ptr_null(item(STATS_GROUP_GET, huge, 0, huge));
    struct broker_stats_data data;
    ck_assert(!view("TOPIC_PUT_NUMS", huge, &data));
    free(huge);
}
END_TEST

START_TEST(levels_and_rates_of_groups)
{
    struct broker_stats_data data;
    struct stats_item *queue = item(STATS_GROUP_QUEUE, "T", 0, "g");
    stats_item_set_fall(queue, 4096, 250);
    ck_assert(view("GROUP_GET_FALL_SIZE", "0@T@g", &data));
    ck_assert_int_eq(data.minute.sum, 4096);
    ck_assert(view("GROUP_GET_FALL_TIME", "0@T@g", &data));
    ck_assert_int_eq(data.minute.sum, 250);
    stats_item_set_fall(queue, 0, 0);
    ck_assert(view("GROUP_GET_FALL_SIZE", "0@T@g", &data));
    ck_assert_int_eq(data.minute.sum, 0);

    ck_assert_double_eq_tol(broker_stats_manager_get_tps(manager, SLICE_LITERAL("g"), SLICE_LITERAL("T")), 0, 1e-9);
    for (int i = 0; i < 120; i++) {
        stats_item_add(item(STATS_GROUP_GET, "T", 0, "g"), 32, 3200);
        seconds(1);
    }
    ck_assert_double_eq_tol(broker_stats_manager_get_tps(manager, SLICE_LITERAL("g"), SLICE_LITERAL("T")), 32, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("broker_stats_manager");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, every_name_has_its_key);
    tcase_add_test(tcase, windows_end_now_and_forget);
    tcase_add_test(tcase, a_day_without_traffic_drops_an_item);
    tcase_add_test(tcase, the_number_of_items_is_bounded);
    tcase_add_test(tcase, levels_and_rates_of_groups);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
