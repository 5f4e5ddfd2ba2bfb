/* Delay levels: what messageDelayLevel says, what DELAY asks for, and when a message is due. */
#include <check.h>
#include <stdlib.h>

#include "broker/service/schedule.h"
#include "tests/lib/run_suite.h"

static int64_t level_ms[LIMIT_DELAY_LEVELS + 1];
static int count;
static struct error error;

START_TEST(levels)
{
    ck_assert_int_eq(schedule_parse_levels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", level_ms, &count, &error), 0);
    ck_assert_int_eq(count, 18);
    ck_assert_int_eq(level_ms[0], 0);
    ck_assert_int_eq(level_ms[1], 1000);
    ck_assert_int_eq(level_ms[3], 10000);
    ck_assert_int_eq(level_ms[5], 60000);
    ck_assert_int_eq(level_ms[17], 3600000);
    ck_assert_int_eq(level_ms[18], 7200000);
    ck_assert_int_eq(schedule_parse_levels("  0s\t1d ", level_ms, &count, &error), 0);
    ck_assert_int_eq(count, 2);
    ck_assert_int_eq(level_ms[1], 0);
    ck_assert_int_eq(level_ms[2], 86400000);
}
END_TEST

START_TEST(bad_levels)
{
    static const char *const texts[] = {"", "  ", "s", "1", "1x", "1s,5s", "-1s", "1s 5", "99999999999999999999s", "1.5s"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        ck_assert_msg(schedule_parse_levels(texts[i], level_ms, &count, &error) == ERROR_INVALID, "\"%s\" was taken", texts[i]);
    char many[LIMIT_DELAY_LEVELS * 3 + 8] = "";
    for (unsigned i = 0; i < LIMIT_DELAY_LEVELS; i++)
        strcat(many, "1s ");
    ck_assert_int_eq(schedule_parse_levels(many, level_ms, &count, &error), 0);
    strcat(many, "1s");
    ck_assert_int_eq(schedule_parse_levels(many, level_ms, &count, &error), ERROR_INVALID);
}
END_TEST

START_TEST(level_of_a_message)
{
    ck_assert_int_eq(schedule_level(slice_of(NULL, 0), 18), 0);
    ck_assert_int_eq(schedule_level(SLICE_LITERAL("0"), 18), 0);
    ck_assert_int_eq(schedule_level(SLICE_LITERAL("-3"), 18), 0);
    ck_assert_int_eq(schedule_level(SLICE_LITERAL("x"), 18), 0);
    ck_assert_int_eq(schedule_level(SLICE_LITERAL("3"), 18), 3);
    ck_assert_int_eq(schedule_level(SLICE_LITERAL("18"), 18), 18);
    ck_assert_int_eq(schedule_level(SLICE_LITERAL("99"), 18), 18);
}
END_TEST

START_TEST(due)
{
    /* Looked at in time: as its unit says. */
    ck_assert_int_eq(schedule_due_ms(11000, 1000, 0, 10000), 11000);
    ck_assert_int_eq(schedule_due_ms(11000, 1001, 0, 10000), 11000);
    ck_assert_int_eq(schedule_due_ms(11000, 7000, 6000, 10000), 11000);
    /* A new leader's clock lags by 1 ms: Java would deliver at once, 10 s early. */
    ck_assert_int_eq(schedule_due_ms(11000, 999, 0, 10000), 10999);
    /* The clock was set back by an hour: never longer than the level's delay from the first look. */
    ck_assert_int_eq(schedule_due_ms(3611000, 1000, 0, 10000), 11000);
    ck_assert_int_eq(schedule_due_ms(500, 100000, 0, 10000), 500);
    /* It is set back by an hour while the message waits, after 6 of its 10 s. */
    ck_assert_int_eq(schedule_due_ms(3611000, 7000, 6000, 10000), 11000);
}
END_TEST

/* When all of a level's messages are delivered, by real time from the leader's first look on: they were stored by a clock that was an hour ahead. */
static int64_t deliver_all(int64_t waiting, int64_t late, int64_t delay_ms)
{
    struct schedule_sight sight = {0};
    int64_t real_ms = 0, ahead_ms = 3600 * 1000;

    for (int64_t next = 0; next < waiting + late; next++) {
        for (;;) {
            int64_t end = waiting + (real_ms < delay_ms / 2 ? 0 : late); /* the late ones are stored meanwhile */
            int64_t stored_ms = next < waiting ? 0 : delay_ms / 2;
            int64_t waited_ms = schedule_waited_ms(&sight, next, end, (uint64_t)real_ms * 1000);
            int64_t due_ms = schedule_due_ms(stored_ms + ahead_ms + delay_ms, real_ms, waited_ms, delay_ms);
            if (due_ms <= real_ms) {
                ck_assert_int_ge(real_ms, stored_ms + delay_ms);
                break;
            }
            real_ms = due_ms;
        }
    }
    return real_ms;
}

START_TEST(all_wait_together)
{
    ck_assert_int_eq(deliver_all(1, 0, 10000), 10000);
    ck_assert_int_eq(deliver_all(1000, 0, 10000), 10000);
    /* Who came while those waited is seen when they are gone. */
    ck_assert_int_eq(deliver_all(1000, 1000, 10000), 20000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule");
    TCase *tcase = tcase_create("schedule");
    tcase_add_test(tcase, levels);
    tcase_add_test(tcase, bad_levels);
    tcase_add_test(tcase, level_of_a_message);
    tcase_add_test(tcase, due);
    tcase_add_test(tcase, all_wait_together);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
