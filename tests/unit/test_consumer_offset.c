/* Consumer offsets: the table, gathering, order of commits, who is told what, what is read before its commit. */
#include "../lib/broker_state.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdlib.h>

#define G SLICE_LITERAL("g")
#define T SLICE_LITERAL("T")

static struct broker_state state;
static struct broker *broker;
static int done_calls;
static int done_code;

static void set_up(void)
{
    broker_state_open(&state);
    broker = &state.broker;
    done_calls = 0;
    done_code = -1;
}

static void tear_down(void)
{
    broker_state_close(&state);
}

static void on_done(struct broker *given, void *context, int code)
{
    ck_assert_ptr_eq(given, broker);
    ck_assert_ptr_eq(context, &state);
    done_calls++;
    done_code = code;
}

static int64_t stored(int32_t queue_id)
{
    return consumer_offset_find(broker->offsets, G, T, queue_id);
}

static void commit(int32_t queue_id, int64_t offset)
{
    consumer_offset_commit(broker, G, T, queue_id, offset);
}

static int commit_wait(int32_t queue_id, int64_t offset)
{
    return consumer_offset_commit_wait(broker, G, T, queue_id, offset, on_done, &state);
}

START_TEST(the_table)
{
    struct consumer_offset_table *table = broker->offsets;
    ck_assert_int_eq(stored(0), -1);
    ck_assert_int_eq(consumer_offset_put(table, G, T, 7, 70), 0);
    ck_assert_int_eq(consumer_offset_put(table, G, T, 0, 1), 0);
    ck_assert_int_eq(consumer_offset_put(table, G, T, 3, 30), 0);
    ck_assert_int_eq(consumer_offset_put(table, G, T, 3, 29), 0); /* backwards */
    ck_assert_int_eq(stored(0), 1);
    ck_assert_int_eq(stored(3), 29);
    ck_assert_int_eq(stored(7), 70);
    ck_assert_int_eq(stored(1), -1);
    ck_assert_int_eq(consumer_offset_find(table, SLICE_LITERAL("T"), SLICE_LITERAL("g"), 0), -1);
    struct consumer_offset_entry *entry = consumer_offset_find_entry(table, G, T);
    ck_assert_uint_eq(entry->count, 3);
    ck_assert_str_eq(entry->key, "T@g");
    ck_assert(slice_equal_text(entry->topic, "T") && slice_equal_text(entry->group, "g"));
    for (int32_t queue_id = 0; queue_id < 1024; queue_id++)
        ck_assert_int_eq(consumer_offset_put(table, G, SLICE_LITERAL("BenchmarkTest"), 1023 - queue_id, queue_id), 0);
    ck_assert_int_eq(consumer_offset_find(table, G, SLICE_LITERAL("BenchmarkTest"), 1000), 23);
    ck_assert_uint_eq(table->key_count, 2);
    consumer_offset_remove_topic(table, T);
    ck_assert_int_eq(stored(7), -1);
    consumer_offset_remove_group(table, G);
    ck_assert_uint_eq(table->key_count, 0);
}
END_TEST

START_TEST(what_was_gathered_for_a_queue_that_goes_is_forgotten)
{
    commit(0, 5);
    ck_assert_int_eq(commit_wait(1, 6), 0);
    consumer_offset_commit(broker, G, SLICE_LITERAL("U"), 0, 7);
    consumer_offset_commit(broker, SLICE_LITERAL("h"), SLICE_LITERAL("U"), 0, 8);
    consumer_offset_remove_topic(broker->offsets, T);
    consumer_offset_remove_group(broker->offsets, SLICE_LITERAL("h"));
    commit(1, 9); /* of the topic's next life */
    consumer_offset_flush(broker);
    broker_state_commit(&state);
    ck_assert_int_eq(done_calls, 1);
    ck_assert_int_eq(done_code, 0);
    ck_assert_int_eq(stored(0), -1);
    ck_assert_int_eq(stored(1), 9);
    ck_assert_int_eq(consumer_offset_find(broker->offsets, G, SLICE_LITERAL("U"), 0), 7);
    ck_assert_int_eq(consumer_offset_find(broker->offsets, SLICE_LITERAL("h"), SLICE_LITERAL("U"), 0), -1);
    /* All of it forgotten: those who wait are told none the less. */
    ck_assert_int_eq(commit_wait(2, 6), 0);
    consumer_offset_remove_topic(broker->offsets, T);
    consumer_offset_flush(broker);
    broker_state_commit(&state);
    ck_assert_int_eq(done_calls, 2);
    ck_assert_int_eq(stored(2), -1);
}
END_TEST

START_TEST(what_was_gathered_under_another_leader_is_dropped)
{
    consumer_offset_role_changed(broker, 4, true);
    commit(0, 5);
    ck_assert_int_eq(commit_wait(1, 6), 0);
    consumer_offset_role_changed(broker, 4, true);
    ck_assert_int_eq(done_calls, 0);
    consumer_offset_flush(broker);
    ck_assert_uint_eq(state.appended, 1);
    broker_state_commit(&state);
    ck_assert_int_eq(done_code, 0);

    commit(0, 7);
    ck_assert_int_eq(commit_wait(1, 8), 0);
    consumer_offset_role_changed(broker, 4, false);
    ck_assert_int_eq(done_calls, 2);
    ck_assert_int_eq(done_code, ERROR_LEADERSHIP_LOST);
    consumer_offset_flush(broker);
    commit(0, 9);
    consumer_offset_role_changed(broker, 6, true);
    consumer_offset_flush(broker);
    ck_assert_uint_eq(state.appended, 1);
    ck_assert_int_eq(stored(0), 5);
}
END_TEST

static uint64_t term = 100;

static void reset(int32_t queue_id, int64_t offset, bool held)
{
    ck_assert_int_eq(consumer_offset_reset_wait(broker, G, T, queue_id, offset, held, on_done, &state), 0);
    consumer_offset_flush(broker);
    broker_state_commit(&state);
    ck_assert_int_eq(stored(queue_id), offset);
}

static void commit_now(int32_t queue_id, int64_t offset)
{
    commit(queue_id, offset);
    consumer_offset_flush(broker);
    broker_state_commit(&state);
}

START_TEST(a_reset_is_not_undone_by_commits_from_before)
{
    for (int32_t queue_id = 0; queue_id < 4; queue_id++)
        commit_now(queue_id, 100);
    reset(0, 10, true);   /* back */
    reset(1, 1000, true); /* ahead */
    reset(2, 10, false);  /* nobody is connected */
    reset(3, 10, true);
    commit_now(0, 100);
    commit_now(0, 130);
    ck_assert_int_eq(commit_wait(0, 140), ERROR_EXISTS);
    commit_now(1, 140);
    ck_assert_int_eq(stored(0), 10);
    ck_assert_int_eq(stored(1), 1000);
    commit_now(2, 140);
    ck_assert_int_eq(stored(2), 140);
    /* Applied: from here on all commits count. */
    commit_now(0, 12);
    commit_now(0, 150);
    commit_now(1, 1001);
    commit_now(1, 5);
    ck_assert_int_eq(stored(0), 150);
    ck_assert_int_eq(stored(1), 5);
    /* Never applied: the client has its way in the end. */
    commit_now(3, 140);
    ck_assert_int_eq(stored(3), 10);
    broker_state_pass(&state, 30000);
    commit_now(3, 140);
    ck_assert_int_eq(stored(3), 140);
    /* The newest reset counts. */
    reset(3, 20, true);
    reset(3, 500, true);
    commit_now(3, 300);
    ck_assert_int_eq(stored(3), 500);
}
END_TEST

/* As at another member: from the log, or from a snapshot. */
static void as_restored(void)
{
    struct buffer snapshot;
    buffer_init(&snapshot, 0);
    ck_assert_int_eq(metadata_snapshot(broker, 100, &snapshot), 0);
    consumer_offset_role_changed(broker, ++term, false); /* what this leader knew alone is gone */
    ck_assert_int_eq(metadata_restore(broker, buffer_slice(&snapshot)), 0);
    consumer_offset_role_changed(broker, ++term, true);
    buffer_close(&snapshot);
}

START_TEST(a_reset_holds_at_the_next_leader)
{
    for (int32_t queue_id = 0; queue_id < 4; queue_id++)
        commit_now(queue_id, 100);
    reset(0, 10, true);
    reset(1, 10, true);
    reset(2, 1000, true);
    commit_now(1, 12); /* applied: the hold is over, on every node */
    consumer_offset_role_changed(broker, ++term, true);
    for (int k = 0; k < 2; k++) {
        commit_now(0, 130);
        ck_assert_int_eq(stored(0), 10);
        commit_now(2, 140);
        ck_assert_int_eq(stored(2), 1000);
        as_restored();
    }
    commit_now(1, 150);
    ck_assert_int_eq(stored(1), 150);
    commit_now(0, 11);
    commit_now(0, 160);
    ck_assert_int_eq(stored(0), 160);
    broker_state_pass(&state, 30000);
    commit_now(2, 140);
    ck_assert_int_eq(stored(2), 140);
    as_restored();
    commit_now(2, 150);
    ck_assert_int_eq(stored(2), 150);

    /* One that never reached the log holds nothing under the next leader. */
    ck_assert_int_eq(consumer_offset_reset_wait(broker, G, T, 3, 10, true, on_done, &state), 0);
    commit_now(3, 120);
    ck_assert_int_eq(stored(3), 10);
    commit_now(3, 11);
    ck_assert_int_eq(consumer_offset_reset_wait(broker, G, T, 3, 5, true, on_done, &state), 0);
    consumer_offset_role_changed(broker, ++term, true);
    commit_now(3, 130);
    ck_assert_int_eq(stored(3), 130);

    /* It goes with its group, and with its topic. */
    reset(3, 10, true);
    consumer_offset_remove_group(broker->offsets, G);
    commit_now(3, 200);
    ck_assert_int_eq(stored(3), 200);
    reset(3, 10, true);
    consumer_offset_remove_topic(broker->offsets, T);
    commit_now(3, 300);
    ck_assert_int_eq(stored(3), 300);
}
END_TEST

START_TEST(values_out_of_range_are_refused)
{
    char longest[256];
    memset(longest, 'a', sizeof longest);
    ck_assert_int_eq(consumer_offset_put(broker->offsets, G, T, -1, 0), ERROR_INVALID);
    ck_assert_int_eq(consumer_offset_put(broker->offsets, G, T, (int32_t)CONSUMER_OFFSET_QUEUES_MAX, 0), ERROR_INVALID);
    ck_assert_int_eq(consumer_offset_put(broker->offsets, G, T, 0, -1), ERROR_INVALID);
    ck_assert_int_eq(consumer_offset_put(broker->offsets, SLICE_LITERAL(""), T, 0, 0), ERROR_INVALID);
    ck_assert_int_eq(consumer_offset_put(broker->offsets, SLICE_LITERAL("a@b"), T, 0, 0), ERROR_INVALID);
    ck_assert_int_eq(consumer_offset_put(broker->offsets, slice_of(longest, 256), T, 0, 0), ERROR_INVALID);
    ck_assert_int_eq(consumer_offset_put(broker->offsets, slice_of(longest, 255), slice_of(longest, 255), 0, 5), 0);
    ck_assert_int_eq(consumer_offset_find(broker->offsets, slice_of(longest, 255), slice_of(longest, 255), 0), 5);
    ck_assert_int_eq(consumer_offset_find(broker->offsets, slice_of(longest, 256), T, 0), -1);
    ck_assert_int_eq(commit_wait(-1, 5), ERROR_INVALID);
    commit(0, -1); /* ali-ons */
    consumer_offset_flush(broker);
    ck_assert_uint_eq(state.appended, 0);
}
END_TEST

START_TEST(commits_that_nobody_waits_for_share_a_record)
{
    for (int64_t offset = 1; offset <= 50; offset++) {
        commit(0, offset);
        commit(1, offset * 2);
    }
    ck_assert_uint_eq(state.appended, 0);
    consumer_offset_flush(broker);
    ck_assert_uint_eq(state.appended, 1);
    ck_assert_int_eq(stored(0), -1); /* not before it is committed */
    broker_state_commit(&state);
    ck_assert_int_eq(stored(0), 50);
    ck_assert_int_eq(stored(1), 100);
    commit(0, 50); /* nothing new */
    consumer_offset_flush(broker);
    ck_assert_uint_eq(state.appended, 1);
}
END_TEST

START_TEST(going_back_while_a_record_is_on_its_way_is_no_repetition)
{
    commit(0, 5);
    consumer_offset_flush(broker);
    broker_state_commit(&state);
    commit(0, 8);
    consumer_offset_flush(broker);
    commit(0, 5); /* equal to what is stored, but 8 is on its way */
    consumer_offset_flush(broker);
    broker_state_commit(&state);
    ck_assert_int_eq(stored(0), 5);
}
END_TEST

/* Its quorum was late, but it stands in the log: to say again what is stored is no repetition then. */
START_TEST(going_back_behind_a_record_without_an_answer_is_no_repetition)
{
    ck_assert_int_eq(commit_wait(0, 10), 0);
    consumer_offset_flush(broker);
    broker_state_commit(&state);
    ck_assert_int_eq(commit_wait(0, 10), ERROR_EXISTS);

    ck_assert_int_eq(commit_wait(0, 20), 0);
    consumer_offset_flush(broker);
    broker_state_fail(&state, ERROR_QUORUM_TIMEOUT);
    ck_assert_int_eq(done_code, ERROR_QUORUM_TIMEOUT);
    ck_assert_int_eq(commit_wait(0, 10), 0);
    consumer_offset_flush(broker);
    ck_assert_int_eq(consumer_offset_put(broker->offsets, G, T, 0, 20), 0); /* the late one commits */
    broker_state_commit(&state);
    ck_assert_int_eq(stored(0), 10);
    ck_assert_int_eq(commit_wait(0, 10), ERROR_EXISTS);
}
END_TEST

START_TEST(a_commit_that_is_waited_for_overtakes_none_and_is_not_overtaken)
{
    commit(0, 10);
    ck_assert_int_eq(commit_wait(0, 12), 0);
    consumer_offset_flush(broker);
    broker_state_commit(&state);
    ck_assert_int_eq(stored(0), 12);
    ck_assert_int_eq(done_calls, 1);
    ck_assert_int_eq(done_code, 0);
    ck_assert_int_eq(commit_wait(0, 12), ERROR_EXISTS);

    ck_assert_int_eq(commit_wait(0, 13), 0);
    commit(0, 14);
    consumer_offset_flush(broker);
    broker_state_commit(&state);
    ck_assert_int_eq(stored(0), 14);
    ck_assert_int_eq(done_calls, 2);
}
END_TEST

START_TEST(failures_are_told)
{
    ck_assert_int_eq(commit_wait(0, 1), 0);
    consumer_offset_flush(broker);
    broker_state_fail(&state, ERROR_QUORUM_TIMEOUT);
    ck_assert_int_eq(done_calls, 1);
    ck_assert_int_eq(done_code, ERROR_QUORUM_TIMEOUT);
    ck_assert_int_eq(stored(0), -1);

    ck_assert_int_eq(commit_wait(0, 1), 0);
    state.append_code = ERROR_BUSY;
    consumer_offset_flush(broker);
    ck_assert_int_eq(done_calls, 2);
    ck_assert_int_eq(done_code, ERROR_BUSY);
    state.append_code = 0;
    consumer_offset_flush(broker); /* the value was kept */
    broker_state_commit(&state);
    ck_assert_int_eq(stored(0), 1);
    ck_assert_int_eq(done_calls, 2);

    state.leads = false;
    ck_assert_int_eq(commit_wait(0, 2), ERROR_NOT_LEADER);
}
END_TEST

START_TEST(reading_waits_for_what_is_on_its_way)
{
    ck_assert_int_eq(consumer_offset_settle(broker, G, T, 0, on_done, &state), ERROR_NOT_FOUND);
    commit(0, 9);
    ck_assert_int_eq(consumer_offset_settle(broker, G, T, 1, on_done, &state), ERROR_NOT_FOUND); /* another queue */
    ck_assert_int_eq(consumer_offset_settle(broker, G, T, 0, on_done, &state), 0);
    consumer_offset_flush(broker);
    ck_assert_int_eq(consumer_offset_settle(broker, G, T, 0, on_done, &state), 0); /* submitted, not applied */
    ck_assert_int_eq(done_calls, 0);
    broker_state_commit(&state);
    ck_assert_int_eq(done_calls, 2);
    ck_assert_int_eq(done_code, 0);
    ck_assert_int_eq(stored(0), 9);
    ck_assert_int_eq(consumer_offset_settle(broker, G, T, 0, on_done, &state), ERROR_NOT_FOUND);
}
END_TEST

START_TEST(many_values_are_cut_into_records_and_the_last_one_tells)
{
    char topic[32];
    ck_assert_int_eq(commit_wait(0, 1), 0);
    for (int i = 0; i < 5000; i++) {
        snprintf(topic, sizeof topic, "Topic_%d", i);
        consumer_offset_commit(broker, G, slice_of_text(topic), i % 8, i);
    }
    consumer_offset_flush(broker);
    ck_assert_uint_eq(state.appended, 3);
    ck_assert_uint_eq(broker->offsets->pending_count, 0);
    broker_state_commit(&state);
    ck_assert_int_eq(done_calls, 1);
    ck_assert_int_eq(stored(0), 1);
    ck_assert_int_eq(consumer_offset_find(broker->offsets, G, SLICE_LITERAL("Topic_4999"), 4999 % 8), 4999);
    ck_assert_uint_eq(broker->offsets->in_flight, 0);
}
END_TEST

START_TEST(deletions_take_offsets_along)
{
    broker_state_put_topic(&state, 1, "T", 4);
    consumer_offset_put(broker->offsets, G, T, 0, 5);
    consumer_offset_put(broker->offsets, SLICE_LITERAL("h"), T, 0, 6);
    consumer_offset_put(broker->offsets, G, SLICE_LITERAL("U"), 0, 7);
    broker_state_delete_topic(&state, 2, "T", false);
    ck_assert_int_eq(stored(0), -1);
    ck_assert_int_eq(consumer_offset_find(broker->offsets, SLICE_LITERAL("h"), T, 0), -1);
    ck_assert_int_eq(consumer_offset_find(broker->offsets, G, SLICE_LITERAL("U"), 0), 7);
}
END_TEST

/* A consumer of the topic that is made next would begin there, and never see the messages before it. */
START_TEST(no_offset_of_a_topic_comes_behind_its_end)
{
    broker_state_put_topic(&state, 1, "T", 4);
    state.next_index = 2;
    commit(0, 5);
    ck_assert_int_eq(commit_wait(1, 6), 0);
    ck_assert_int_eq(broker_state_submit_deletion(&state, "T", NULL, NULL), 0);
    commit(2, 7);
    ck_assert_int_eq(commit_wait(3, 8), ERROR_NOT_FOUND);
    ck_assert_int_eq(consumer_offset_reset_wait(broker, G, T, 3, 8, false, on_done, &state), ERROR_NOT_FOUND);
    consumer_offset_commit(broker, G, SLICE_LITERAL("U"), 0, 9);
    consumer_offset_flush(broker);
    broker_state_commit(&state);
    ck_assert_int_eq(done_calls, 1);
    ck_assert_int_eq(done_code, 0);
    broker_state_put_topic(&state, 20, "T", 4);
    for (int32_t queue_id = 0; queue_id < 4; queue_id++)
        ck_assert_int_eq(stored(queue_id), -1);
    ck_assert_int_eq(consumer_offset_find(broker->offsets, G, SLICE_LITERAL("U"), 0), 9);
    commit(0, 1);
    ck_assert_int_eq(commit_wait(1, 2), 0);
    consumer_offset_flush(broker);
    broker_state_commit(&state);
    ck_assert_int_eq(stored(0), 1);
    ck_assert_int_eq(stored(1), 2);
}
END_TEST

/* The log takes nothing when the deletion is asked for, and takes the deletion: what could not go in front of it goes nowhere. */
START_TEST(what_cannot_go_in_front_of_a_deletion_is_forgotten)
{
    broker_state_put_topic(&state, 1, "T", 4);
    state.next_index = 2;
    commit(0, 5);
    ck_assert_int_eq(commit_wait(1, 6), 0);
    state.append_code = ERROR_BUSY;
    ck_assert_int_eq(topic_config_deletion_begins(broker, T), 0);
    ck_assert_int_eq(done_calls, 1);
    ck_assert_int_eq(done_code, ERROR_BUSY);
    topic_config_deletion_settled(broker->topics, T, ERROR_BUSY, 0);
    state.append_code = 0;
    ck_assert_int_eq(broker_state_submit_deletion(&state, "T", NULL, NULL), 0);
    consumer_offset_flush(broker);
    broker_state_commit(&state);
    ck_assert_int_eq(stored(0), -1);
    ck_assert_int_eq(stored(1), -1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("consumer_offset");
    TCase *test = tcase_create("offsets");
    tcase_add_checked_fixture(test, set_up, tear_down);
    tcase_add_test(test, the_table);
    tcase_add_test(test, what_was_gathered_for_a_queue_that_goes_is_forgotten);
    tcase_add_test(test, what_was_gathered_under_another_leader_is_dropped);
    tcase_add_test(test, a_reset_is_not_undone_by_commits_from_before);
    tcase_add_test(test, a_reset_holds_at_the_next_leader);
    tcase_add_test(test, values_out_of_range_are_refused);
    tcase_add_test(test, commits_that_nobody_waits_for_share_a_record);
    tcase_add_test(test, going_back_while_a_record_is_on_its_way_is_no_repetition);
    tcase_add_test(test, going_back_behind_a_record_without_an_answer_is_no_repetition);
    tcase_add_test(test, a_commit_that_is_waited_for_overtakes_none_and_is_not_overtaken);
    tcase_add_test(test, failures_are_told);
    tcase_add_test(test, reading_waits_for_what_is_on_its_way);
    tcase_add_test(test, many_values_are_cut_into_records_and_the_last_one_tells);
    tcase_add_test(test, deletions_take_offsets_along);
    tcase_add_test(test, no_offset_of_a_topic_comes_behind_its_end);
    tcase_add_test(test, what_cannot_go_in_front_of_a_deletion_is_forgotten);
    suite_add_tcase(suite, test);
    return run_suite(suite);
}
