/* Topics: built-in ones, the rules of auto-creation, one record for many waiting sends, deletion and incarnations, cached queues. */
#include "../lib/broker_state.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdlib.h>

static struct broker_state state;
static struct broker *broker;
static int ready_calls;
static int ready_code;

static void set_up(void)
{
    broker_state_open(&state);
    broker = &state.broker;
    ready_calls = 0;
    ready_code = -1;
}

static void tear_down(void)
{
    broker_state_close(&state);
}

static struct topic_entry *find(const char *name)
{
    return topic_config_find(broker->topics, slice_of_text(name));
}

static void on_ready(struct broker *given, void *context, int code)
{
    ck_assert_ptr_eq(given, broker);
    ck_assert_ptr_eq(context, &state);
    ready_calls++;
    ready_code = code;
}

static int create(const char *name, const char *model, int32_t queues)
{
    return topic_config_create_in_send(broker, slice_of_text(name), slice_of_text(model), queues, 0, on_ready, &state);
}

static void check_built_in(const char *name, int32_t queues, int32_t perm)
{
    struct topic_entry *entry = find(name);
    ck_assert_msg(entry != NULL, "%s is missing", name);
    ck_assert(entry->built_in);
    ck_assert_uint_eq(entry->incarnation, 0);
    ck_assert_int_eq(entry->config.read_queue_nums, queues);
    ck_assert_int_eq(entry->config.write_queue_nums, queues);
    ck_assert_int_eq(entry->config.perm, perm);
}

START_TEST(built_in_topics)
{
    check_built_in("SELF_TEST_TOPIC", 1, 6);
    check_built_in("TBW102", 8, 7);
    check_built_in("BenchmarkTest", 1024, 6);
    check_built_in("DefaultCluster", 16, 7);
    check_built_in("broker-a", 1, 7);
    check_built_in("OFFSET_MOVED_EVENT", 1, 6);
    check_built_in("SCHEDULE_TOPIC_XXXX", 18, 6);
    check_built_in("DefaultCluster_REPLY_TOPIC", 1, 6);
    ck_assert_ptr_null(find("RMQ_SYS_TRACE_TOPIC"));
    ck_assert_ptr_null(find(""));
    ck_assert_uint_eq(broker->topics->count, 8);
}
END_TEST

START_TEST(auto_creation_takes_the_smaller_queue_count_and_drops_the_inherit_bit)
{
    ck_assert_int_eq(create("T", "TBW102", 4), 0);
    ck_assert_ptr_null(find("T"));
    broker_state_commit(&state);
    ck_assert_int_eq(ready_calls, 1);
    ck_assert_int_eq(ready_code, 0);
    ck_assert_int_eq(find("T")->config.write_queue_nums, 4);
    ck_assert_int_eq(find("T")->config.perm, 6);
    ck_assert_uint_eq(find("T")->incarnation, 1);
    ck_assert_int_eq(create("T", "TBW102", 4), ERROR_EXISTS);

    ck_assert_int_eq(create("U", "TBW102", 100), 0);
    ck_assert_int_eq(create("V", "TBW102", -3), 0);
    broker_state_commit(&state);
    ck_assert_int_eq(find("U")->config.read_queue_nums, 8);
    ck_assert_int_eq(find("V")->config.read_queue_nums, 0);
}
END_TEST

START_TEST(auto_creation_is_refused)
{
    ck_assert_int_eq(create("T", "NoSuchTopic", 4), ERROR_NOT_FOUND);
    ck_assert_int_eq(create("T", "BenchmarkTest", 4), ERROR_NOT_FOUND); /* not inheritable */
    ck_assert_int_eq(create("a b", "TBW102", 4), ERROR_NOT_FOUND);
    broker->config.auto_create_topic_enable = false;
    ck_assert_int_eq(create("T", "TBW102", 4), ERROR_NOT_FOUND);
    ck_assert_int_eq(create("T", "DefaultCluster", 4), 0);
    state.leads = false;
    ck_assert_int_eq(create("U", "DefaultCluster", 4), ERROR_NOT_LEADER);
    state.leads = true;
    state.append_code = ERROR_BUSY;
    ck_assert_int_eq(create("U", "DefaultCluster", 4), ERROR_BUSY);
    state.append_code = 0;
    ck_assert_int_eq(create("U", "DefaultCluster", 4), 0);
    ck_assert_uint_eq(state.appended, 2);
}
END_TEST

START_TEST(many_sends_wait_for_one_record)
{
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(create("T", "TBW102", 4), 0);
    ck_assert_uint_eq(state.appended, 1);
    ck_assert(topic_config_is_coming(broker->topics, SLICE_LITERAL("T")));
    ck_assert_int_eq(ready_calls, 0);
    broker_state_commit(&state);
    ck_assert_int_eq(ready_calls, 100);
    ck_assert_uint_eq(broker->topics->waiters, 0);
    ck_assert(!topic_config_is_coming(broker->topics, SLICE_LITERAL("T")));
}
END_TEST

START_TEST(waiting_sends_are_bounded)
{
    for (uint32_t i = 0; i < TOPIC_CONFIG_WAITERS_MAX; i++)
        ck_assert_int_eq(create("T", "TBW102", 4), 0);
    ck_assert_int_eq(create("T", "TBW102", 4), ERROR_BUSY);
    ck_assert_int_eq(create("U", "TBW102", 4), ERROR_BUSY);
    broker_state_commit(&state);
    ck_assert_int_eq(create("U", "TBW102", 4), 0);
}
END_TEST

START_TEST(lost_leadership_is_told_to_those_who_wait)
{
    ck_assert_int_eq(create("T", "TBW102", 4), 0);
    ck_assert_int_eq(create("T", "TBW102", 4), 0);
    broker_state_fail(&state, ERROR_LEADERSHIP_LOST);
    ck_assert_int_eq(ready_calls, 2);
    ck_assert_int_eq(ready_code, ERROR_LEADERSHIP_LOST);
    ck_assert_ptr_null(find("T"));
    ck_assert_int_eq(create("T", "TBW102", 4), 0); /* may be tried again */
}
END_TEST

START_TEST(retry_topics_do_not_depend_on_auto_creation)
{
    broker->config.auto_create_topic_enable = false;
    ck_assert_int_eq(topic_config_create_in_send_back(broker, SLICE_LITERAL("%RETRY%g"), 1, 6, TOPIC_SYS_FLAG_UNIT_SUB, NULL, NULL), 0);
    broker_state_commit(&state);
    ck_assert_int_eq(find("%RETRY%g")->config.read_queue_nums, 1);
    ck_assert_int_eq(find("%RETRY%g")->config.topic_sys_flag, TOPIC_SYS_FLAG_UNIT_SUB);
    ck_assert_int_eq(topic_config_create_in_send_back(broker, SLICE_LITERAL("%RETRY%g"), 1, 6, 0, NULL, NULL), ERROR_EXISTS);
}
END_TEST

static int deletion_code;
static int64_t next_index;

static void on_deleted(struct broker *given, void *context, int code)
{
    deletion_code = code;
    topic_config_deletion_settled(given->topics, slice_of_text(context), code, next_index);
}

static void submit_deletion(const char *name)
{
    void *context = (void *)(uintptr_t)name;
    int rv = broker_state_submit_deletion(&state, name, on_deleted, context);
    if (rv != 0)
        on_deleted(broker, context, rv);
}

START_TEST(a_topic_that_is_being_deleted_is_made_anew_behind_its_end)
{
    broker_state_put_topic(&state, 10, "T", 4);
    state.next_index = 11;
    submit_deletion("T");
    ck_assert(find("T")->deleting);
    ck_assert_int_eq(create("T", "TBW102", 2), 0);
    broker_state_commit(&state);
    ck_assert_int_eq(deletion_code, 0);
    ck_assert_uint_eq(find("T")->incarnation, 12);
    ck_assert_int_eq(find("T")->config.read_queue_nums, 2);
    ck_assert(!find("T")->deleting);
}
END_TEST

/* Its quorum was late, so nobody waits for it any more, but it stands in the log: a message that was sent now would come behind the topic's end. */
START_TEST(a_deletion_without_an_answer_is_still_on_its_way)
{
    broker_state_put_topic(&state, 10, "T", 4);
    submit_deletion("T");
    broker_state_fail(&state, ERROR_QUORUM_TIMEOUT);
    ck_assert_int_eq(deletion_code, ERROR_QUORUM_TIMEOUT);
    ck_assert(find("T")->deleting);
    broker_state_delete_topic(&state, 11, "T", false);
    ck_assert_ptr_null(find("T"));
    broker_state_put_topic(&state, 12, "T", 4);
    ck_assert(!find("T")->deleting);

    /* The same when the leadership ended meanwhile: the next one begins when all of the log is applied. */
    submit_deletion("T");
    broker_state_fail(&state, ERROR_LEADERSHIP_LOST);
    ck_assert(find("T")->deleting);
    topic_config_role_changed(broker->topics, 7);
    ck_assert(!find("T")->deleting);
    submit_deletion("T");
    topic_config_role_changed(broker->topics, 7);
    ck_assert(find("T")->deleting);
    broker_state_commit(&state);
    ck_assert_ptr_null(find("T"));
}
END_TEST

START_TEST(a_deletion_that_was_refused_is_not_on_its_way)
{
    broker_state_put_topic(&state, 10, "T", 4);
    submit_deletion("T");
    broker_state_fail(&state, ERROR_NO_SPACE);
    ck_assert(!find("T")->deleting);
    state.append_code = ERROR_BUSY;
    submit_deletion("T");
    ck_assert_int_eq(deletion_code, ERROR_BUSY);
    ck_assert(!find("T")->deleting);
    state.append_code = 0;

    /* One that is late remains, until a later one says that it never came. */
    submit_deletion("T");
    broker_state_fail(&state, ERROR_QUORUM_TIMEOUT);
    submit_deletion("T");
    broker_state_fail(&state, ERROR_NO_SPACE);
    ck_assert(find("T")->deleting);
    submit_deletion("T");
    broker_state_commit(&state);
    broker_state_put_topic(&state, 20, "T", 4);
    ck_assert(!find("T")->deleting);
}
END_TEST

/* Nobody waited for the answer any more when it was refused: nothing deletes the topic, and it takes sends again. */
START_TEST(a_deletion_that_never_came_into_the_log_ends)
{
    broker_state_put_topic(&state, 10, "T", 4);
    next_index = 20;
    submit_deletion("T");
    broker_state_fail(&state, ERROR_QUORUM_TIMEOUT);
    topic_config_log_reached(broker->topics, 10, 20);
    ck_assert(find("T")->deleting); /* it waits for its place, or stands in the log */
    topic_config_log_reached(broker->topics, 14, 16);
    ck_assert(find("T")->deleting);
    topic_config_log_reached(broker->topics, 15, 16); /* refused, and all that is in the log is applied */
    ck_assert(!find("T")->deleting);

    submit_deletion("T");
    broker_state_fail(&state, ERROR_DISK_STALLED);
    topic_config_log_reached(broker->topics, 18, 40);
    ck_assert(find("T")->deleting);
    submit_deletion("T"); /* who waits for an answer gets one */
    topic_config_log_reached(broker->topics, 19, 40);
    ck_assert(find("T")->deleting);
    broker_state_fail(&state, ERROR_BUSY);
    ck_assert(find("T")->deleting);
    topic_config_log_reached(broker->topics, 19, 40); /* others stand where it would */
    ck_assert(!find("T")->deleting);
    ck_assert(!topic_config_is_going(broker->topics, SLICE_LITERAL("T")));
}
END_TEST

/* The topic is made by the first record and deleted by the second; the sends that waited for it go on in between. */
START_TEST(a_topic_that_is_coming_may_be_deleted_by_what_stands_behind)
{
    ck_assert_int_eq(create("T", "TBW102", 4), 0);
    submit_deletion("T");
    struct broker_state_record deletion = state.records[--state.count];
    broker_state_commit(&state);
    ck_assert_int_eq(ready_calls, 1);
    ck_assert(find("T")->deleting);
    state.records[state.count++] = deletion;
    broker_state_commit(&state);
    ck_assert_ptr_null(find("T"));

    /* Deleted, made and deleted again. */
    broker_state_put_topic(&state, 10, "T", 4);
    state.next_index = 11;
    submit_deletion("T");
    ck_assert_int_eq(create("T", "TBW102", 4), 0);
    submit_deletion("T");
    deletion = state.records[--state.count];
    broker_state_commit(&state);
    ck_assert_uint_eq(find("T")->incarnation, 12);
    ck_assert(find("T")->deleting);
    state.records[state.count++] = deletion;
    ck_assert_int_eq(create("T", "TBW102", 4), 0);
    broker_state_commit(&state);
    ck_assert_uint_eq(find("T")->incarnation, 14);
    ck_assert(!find("T")->deleting);
}
END_TEST

START_TEST(a_change_keeps_the_incarnation_and_moves_the_version)
{
    broker_state_put_topic(&state, 10, "T", 4);
    ck_assert_int_eq(broker->topics->version.counter, 1);
    ck_assert_int_eq(broker->topics->version.timestamp_ms, 1700000000010);
    broker_state_put_topic(&state, 20, "T", 8);
    ck_assert_uint_eq(find("T")->incarnation, 10);
    ck_assert_int_eq(find("T")->config.write_queue_nums, 8);
    ck_assert_int_eq(broker->topics->version.counter, 2);
}
END_TEST

START_TEST(a_built_in_topic_goes_back_to_its_defaults)
{
    broker_state_put_topic(&state, 10, "BenchmarkTest", 4);
    ck_assert(find("BenchmarkTest")->overridden);
    broker_state_delete_topic(&state, 11, "BenchmarkTest", false);
    check_built_in("BenchmarkTest", 1024, 6);
    ck_assert(!find("BenchmarkTest")->overridden);
}
END_TEST

START_TEST(queues_are_opened_once_and_forgotten_with_the_topic)
{
    broker_state_put_topic(&state, 10, "T", 4);
    struct topic_entry *entry = find("T");
    struct consume_queue *queue = topic_config_queue(entry, &broker->store, 3);
    ck_assert_ptr_nonnull(queue);
    ck_assert_int_eq(queue->queue_id, 3);
    ck_assert_ptr_eq(topic_config_queue(entry, &broker->store, 3), queue);
    ck_assert_ptr_ne(topic_config_queue(entry, &broker->store, 100), queue);
    ck_assert_ptr_null(topic_config_queue(entry, &broker->store, -1));
    ck_assert_ptr_null(topic_config_queue(entry, &broker->store, (int32_t)TOPIC_CONFIG_QUEUES_MAX));
    struct consume_queue_unit unit = {1000, 90, 0};
    ck_assert_int_eq(consume_queue_append(queue, 0, &unit), 0);

    /* A replayed deletion concerns the store alone: the table may hold a newer topic of that name. */
    broker_state_delete_topic(&state, 11, "T", true);
    ck_assert_ptr_eq(find("T"), entry);
    ck_assert_ptr_null(message_store_queue(&broker->store, SLICE_LITERAL("T"), 3, false, NULL));
    queue = topic_config_queue(entry, &broker->store, 3);
    ck_assert_int_eq(queue->max_offset, 0);
    broker_state_delete_topic(&state, 12, "T", false);
    ck_assert_ptr_null(find("T"));
    ck_assert_ptr_null(message_store_queue(&broker->store, SLICE_LITERAL("T"), 3, false, NULL));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("topic_config");
    TCase *test = tcase_create("table");
    tcase_add_checked_fixture(test, set_up, tear_down);
    tcase_add_test(test, built_in_topics);
    tcase_add_test(test, auto_creation_takes_the_smaller_queue_count_and_drops_the_inherit_bit);
    tcase_add_test(test, auto_creation_is_refused);
    tcase_add_test(test, many_sends_wait_for_one_record);
    tcase_add_test(test, waiting_sends_are_bounded);
    tcase_add_test(test, lost_leadership_is_told_to_those_who_wait);
    tcase_add_test(test, retry_topics_do_not_depend_on_auto_creation);
    tcase_add_test(test, a_topic_that_is_being_deleted_is_made_anew_behind_its_end);
    tcase_add_test(test, a_deletion_without_an_answer_is_still_on_its_way);
    tcase_add_test(test, a_deletion_that_was_refused_is_not_on_its_way);
    tcase_add_test(test, a_deletion_that_never_came_into_the_log_ends);
    tcase_add_test(test, a_topic_that_is_coming_may_be_deleted_by_what_stands_behind);
    tcase_add_test(test, a_change_keeps_the_incarnation_and_moves_the_version);
    tcase_add_test(test, a_built_in_topic_goes_back_to_its_defaults);
    tcase_add_test(test, queues_are_opened_once_and_forgotten_with_the_topic);
    suite_add_tcase(suite, test);
    return run_suite(suite);
}
