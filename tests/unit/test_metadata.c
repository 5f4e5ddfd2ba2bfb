/* Metadata records: what each part does, equal logs give equal snapshots, a snapshot gives the tables back, replay touches the store alone. */
#include "../lib/broker_state.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdlib.h>

static struct broker_state state;
static struct broker_state other;

static void set_up(void)
{
    broker_state_open(&state);
    broker_state_open(&other);
}

static void tear_down(void)
{
    broker_state_close(&state);
    broker_state_close(&other);
}

static uint64_t chance_state;

static uint32_t chance(uint32_t below)
{
    chance_state = chance_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(chance_state >> 33) % below;
}

/* A record of a few random changes; the same seed gives the same one. */
static void random_record(struct broker_state *on, uint64_t index, uint64_t seed)
{
    static const char *const names[] = {"A", "B", "C", "%RETRY%g0", "BenchmarkTest", "D_long-name"};
    static const char *const groups[] = {"g0", "g1", "TOOLS_CONSUMER", "g2"};
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    Ledgermq__TopicConfig topic;
    Ledgermq__TopicConfig *topics[1] = {&topic};
    Ledgermq__SubscriptionGroup group;
    Ledgermq__SubscriptionGroup *group_list[1] = {&group};
    Ledgermq__ConsumerOffset offset;
    Ledgermq__ConsumerOffset *offsets[1] = {&offset};
    Ledgermq__QueueLock lock;
    Ledgermq__QueueLock *locks[1] = {&lock};
    Ledgermq__DelayProgress delay;
    Ledgermq__DelayProgress *delays[1] = {&delay};
    struct topic_config topic_config;
    struct subscription_group_config group_config;
    char *deleted_topic[1];
    char *deleted_group[1];
    chance_state = seed;
    record.time_ms = 1700000000000 + (int64_t)index;
    if (chance(2) == 0) {
        const char *name = names[chance(6)];
        topic_config_init(&topic_config, slice_of_text(name));
        topic_config.read_queue_nums = (int32_t)chance(16);
        topic_config.multi_tag = chance(2) == 0;
        metadata_topic_message(&topic_config, name, &topic);
        record.n_put_topics = 1;
        record.put_topics = topics;
    }
    if (chance(6) == 0) {
        deleted_topic[0] = (char *)(uintptr_t)names[chance(6)];
        record.n_delete_topics = 1;
        record.delete_topics = deleted_topic;
    }
    if (chance(3) == 0) {
        const char *name = groups[chance(4)];
        subscription_group_config_init(&group_config, slice_of_text(name));
        group_config.retry_max_times = (int32_t)chance(20);
        group_config.consume_enable = chance(2) == 0;
        metadata_group_message(&group_config, name, &group);
        record.n_put_groups = 1;
        record.put_groups = group_list;
    }
    if (chance(8) == 0) {
        deleted_group[0] = (char *)(uintptr_t)groups[chance(4)];
        record.n_delete_groups = 1;
        record.delete_groups = deleted_group;
        record.delete_group_offsets = chance(2) == 0;
    }
    ledgermq__consumer_offset__init(&offset);
    offset.group = (char *)(uintptr_t)groups[chance(4)];
    offset.topic = (char *)(uintptr_t)names[chance(6)];
    offset.queue_id = (int32_t)chance(20);
    offset.offset = chance(1000);
    offset.held = chance(3) == 0; /* a reset */
    offset.held_from = offset.held ? chance(1000) : 0;
    record.n_offsets = 1;
    record.offsets = offsets;
    ledgermq__queue_lock__init(&lock);
    lock.group = (char *)(uintptr_t)groups[chance(4)];
    lock.topic = (char *)(uintptr_t)names[chance(6)];
    lock.queue_id = (int32_t)chance(4);
    lock.client_id = (char *)(uintptr_t)(chance(3) == 0 ? "" : "c@1");
    lock.renewed_ms = record.time_ms;
    record.n_locks = 1;
    record.locks = locks;
    ledgermq__delay_progress__init(&delay);
    delay.level = (int32_t)chance(20);
    delay.next_offset = chance(50);
    record.n_delay = 1;
    record.delay = delays;
    broker_state_apply(on, index, &record, false);
}

static struct buffer snapshot_of(struct broker_state *of, uint64_t index)
{
    struct buffer out;
    buffer_init(&out, 0);
    ck_assert_int_eq(metadata_snapshot(&of->broker, index, &out), 0);
    return out;
}

static void assert_equal(struct broker_state *a, struct broker_state *b)
{
    struct buffer left = snapshot_of(a, 77);
    struct buffer right = snapshot_of(b, 77);
    ck_assert_uint_eq(left.size, right.size);
    ck_assert(memcmp(left.data, right.data, left.size) == 0);
    buffer_close(&left);
    buffer_close(&right);
}

START_TEST(equal_logs_give_equal_snapshots)
{
    for (uint64_t index = 1; index <= 300; index++) {
        random_record(&state, index, index * 7919);
        random_record(&other, index, index * 7919);
        /* Clocks and leadership of a node have no part in it. */
        broker_state_pass(&other, 1234);
        other.leads = index % 3 == 0;
        if (index % 25 == 0)
            assert_equal(&state, &other);
    }
    struct buffer snapshot = snapshot_of(&state, 300);
    ck_assert_uint_gt(snapshot.size, 300); /* there was something to compare */
    buffer_close(&snapshot);
}
END_TEST

START_TEST(a_snapshot_gives_the_tables_back)
{
    for (uint64_t index = 1; index <= 200; index++)
        random_record(&state, index, index * 104729);
    struct buffer snapshot = snapshot_of(&state, 200);
    /* Over other content, which has to go. */
    for (uint64_t index = 1; index <= 50; index++)
        random_record(&other, index, index * 31 + 5);
    ck_assert_int_eq(metadata_restore(&other.broker, buffer_slice(&snapshot)), 0);
    ck_assert_uint_eq(other.broker.metadata->applied_index, 200);
    assert_equal(&state, &other);
    buffer_close(&snapshot);
    /* And both go on alike. */
    for (uint64_t index = 201; index <= 300; index++) {
        random_record(&state, index, index * 104729);
        random_record(&other, index, index * 104729);
    }
    assert_equal(&state, &other);
}
END_TEST

START_TEST(bad_snapshots_are_refused_and_change_nothing)
{
    broker_state_put_topic(&state, 1, "T", 4);
    ck_assert_int_eq(metadata_restore(&state.broker, SLICE_LITERAL("\x12\xff\xff")), ERROR_MALFORMED);
    Ledgermq__MetadataSnapshot snapshot = LEDGERMQ__METADATA_SNAPSHOT__INIT;
    Ledgermq__TopicConfig topic = LEDGERMQ__TOPIC_CONFIG__INIT; /* no name */
    Ledgermq__TopicConfig *topics[1] = {&topic};
    uint8_t bytes[64];
    snapshot.n_topics = 1;
    snapshot.topics = topics;
    size_t size = ledgermq__metadata_snapshot__pack(&snapshot, bytes);
    ck_assert_int_eq(metadata_restore(&state.broker, slice_of(bytes, size)), ERROR_MALFORMED);
    ck_assert_ptr_nonnull(topic_config_find(state.broker.topics, SLICE_LITERAL("T")));
}
END_TEST

/* L20: what is empty, or ends early, never takes the place of tables that are good. */
START_TEST(l20_part_of_a_snapshot_wipes_nothing)
{
    for (uint64_t index = 1; index <= 60; index++) {
        random_record(&state, index, index * 7919);
        random_record(&other, index, index * 31 + 5);
    }
    struct buffer before = snapshot_of(&state, 77);
    struct buffer snapshot = snapshot_of(&other, 60);
    for (size_t size = 0; size < snapshot.size; size++)
        ck_assert_int_eq(metadata_restore(&state.broker, slice_of(snapshot.data, size)), ERROR_MALFORMED);
    struct buffer after = snapshot_of(&state, 77);
    ck_assert_uint_eq(before.size, after.size);
    ck_assert_mem_eq(before.data, after.data, before.size);
    ck_assert_int_eq(metadata_restore(&state.broker, buffer_slice(&snapshot)), 0);
    assert_equal(&state, &other);
    buffer_close(&before);
    buffer_close(&snapshot);
    buffer_close(&after);
}
END_TEST

START_TEST(restoring_removes_queues_of_topics_that_went_or_came_anew)
{
    broker_state_put_topic(&state, 1, "Gone", 4);
    broker_state_put_topic(&state, 2, "Anew", 4);
    broker_state_put_topic(&state, 3, "Kept", 4);
    static const char *const names[] = {"Gone", "Anew", "Kept"};
    for (int i = 0; i < 3; i++) {
        struct consume_queue_unit unit = {1000, 90, 0};
        struct consume_queue *queue = topic_config_queue(topic_config_find(state.broker.topics, slice_of_text(names[i])), &state.broker.store, 0);
        ck_assert_int_eq(consume_queue_append(queue, 0, &unit), 0);
    }
    broker_state_put_topic(&other, 3, "Kept", 4);
    broker_state_put_topic(&other, 9, "Anew", 4);
    struct buffer snapshot = snapshot_of(&other, 9);
    ck_assert_int_eq(metadata_restore(&state.broker, buffer_slice(&snapshot)), 0);
    buffer_close(&snapshot);
    ck_assert_ptr_null(message_store_queue(&state.broker.store, SLICE_LITERAL("Gone"), 0, false, NULL));
    ck_assert_ptr_null(message_store_queue(&state.broker.store, SLICE_LITERAL("Anew"), 0, false, NULL));
    ck_assert_int_eq(message_store_max_offset(&state.broker.store, SLICE_LITERAL("Kept"), 0), 1);
    ck_assert_uint_eq(topic_config_find(state.broker.topics, SLICE_LITERAL("Anew"))->incarnation, 9);
}
END_TEST

START_TEST(a_replayed_record_leaves_the_tables_alone)
{
    broker_state_put_topic(&state, 5, "T", 4);
    struct buffer before = snapshot_of(&state, 5);
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    Ledgermq__ConsumerOffset offset = LEDGERMQ__CONSUMER_OFFSET__INIT;
    Ledgermq__ConsumerOffset *offsets[1] = {&offset};
    char *names[1] = {(char *)(uintptr_t)"T"};
    offset.group = (char *)(uintptr_t)"g";
    offset.topic = (char *)(uintptr_t)"T";
    record.n_offsets = 1;
    record.offsets = offsets;
    record.n_delete_topics = 1;
    record.delete_topics = names;
    broker_state_apply(&state, 3, &record, true);
    struct buffer after = snapshot_of(&state, 5);
    ck_assert(slice_equal(buffer_slice(&before), buffer_slice(&after)));
    buffer_close(&before);
    buffer_close(&after);
}
END_TEST

START_TEST(garbage_is_left_out)
{
    metadata_apply(&state.broker, 1, SLICE_LITERAL("\xff\xff\xff\xff"), false);
    broker_state_put_topic(&state, 2, "", 4);
    char longest[200];
    memset(longest, 'T', sizeof longest);
    longest[128] = 0;
    broker_state_put_topic(&state, 3, longest, 4);
    ck_assert_uint_eq(state.broker.topics->count, 8);
    metadata_apply_consumed(&state.broker, SLICE_LITERAL("\xff"), false);
    ck_assert_int_eq(metadata_delay_offset(state.broker.metadata, 1), 0);
}
END_TEST

START_TEST(delay_progress_only_goes_forward)
{
    uint8_t bytes[32];
    Ledgermq__Consumed consumed = LEDGERMQ__CONSUMED__INIT;
    consumed.delay_level = 3;
    consumed.delay_offset = 41;
    struct slice trailer = slice_of(bytes, ledgermq__consumed__pack(&consumed, bytes));
    metadata_apply_consumed(&state.broker, trailer, true);
    ck_assert_int_eq(metadata_delay_offset(state.broker.metadata, 3), 0);
    metadata_apply_consumed(&state.broker, trailer, false);
    ck_assert_int_eq(metadata_delay_offset(state.broker.metadata, 3), 42);
    consumed.delay_offset = 10;
    trailer = slice_of(bytes, ledgermq__consumed__pack(&consumed, bytes));
    metadata_apply_consumed(&state.broker, trailer, false);
    ck_assert_int_eq(metadata_delay_offset(state.broker.metadata, 3), 42);
    metadata_apply_consumed(&state.broker, slice_of(NULL, 0), false);
    ck_assert_int_eq(metadata_delay_offset(state.broker.metadata, 0), 0);
    ck_assert_int_eq(metadata_delay_offset(state.broker.metadata, 65), 0);
}
END_TEST

static int calls;
static int last_code;

static void on_done(struct broker *broker, void *context, int code)
{
    ck_assert_ptr_eq(broker, &state.broker);
    ck_assert_ptr_eq(context, &calls);
    calls++;
    last_code = code;
}

START_TEST(submitting)
{
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    calls = 0;
    ck_assert_int_eq(metadata_submit(&state.broker, &record, on_done, &calls), 0);
    ck_assert_int_eq(record.time_ms, 1700000000000);
    ck_assert_uint_eq(state.broker.metadata->in_flight, 1);
    ck_assert_int_eq(calls, 0);
    broker_state_commit(&state);
    ck_assert_int_eq(calls, 1);
    ck_assert_uint_eq(state.broker.metadata->in_flight, 0);
    ck_assert_int_eq(metadata_submit(&state.broker, &record, on_done, &calls), 0);
    broker_state_fail(&state, ERROR_QUORUM_TIMEOUT);
    ck_assert_int_eq(last_code, ERROR_QUORUM_TIMEOUT);
    ck_assert_int_eq(metadata_submit(&state.broker, &record, NULL, NULL), 0);
    broker_state_commit(&state);

    state.leads = false;
    ck_assert_int_eq(metadata_submit(&state.broker, &record, on_done, &calls), ERROR_NOT_LEADER);
    state.leads = true;
    state.append_code = ERROR_NO_SPACE;
    ck_assert_int_eq(metadata_submit(&state.broker, &record, on_done, &calls), ERROR_NO_SPACE);
    state.append_code = 0;
    char *large = malloc(METADATA_RECORD_MAX + 1);
    memset(large, 'x', METADATA_RECORD_MAX);
    large[METADATA_RECORD_MAX] = 0;
    record.n_delete_topics = 1;
    record.delete_topics = &large;
    ck_assert_int_eq(metadata_submit(&state.broker, &record, on_done, &calls), ERROR_TOO_LARGE);
    free(large);
    ck_assert_int_eq(calls, 2);
}
END_TEST

START_TEST(groups_on_first_use)
{
    struct broker *broker = &state.broker;
    ck_assert_ptr_nonnull(subscription_group_find(broker->groups, SLICE_LITERAL("TOOLS_CONSUMER")));
    const struct subscription_group_config *config = subscription_group_need(broker, SLICE_LITERAL("g"));
    ck_assert(config->consume_enable);
    ck_assert_int_eq(config->retry_max_times, 16);
    ck_assert(slice_equal_text(config->group_name, "g"));
    ck_assert_ptr_nonnull(subscription_group_need(broker, SLICE_LITERAL("g")));
    ck_assert_uint_eq(state.appended, 1);
    broker_state_commit(&state);
    ck_assert_ptr_eq(subscription_group_need(broker, SLICE_LITERAL("g")), subscription_group_find(broker->groups, SLICE_LITERAL("g")));
    ck_assert_int_eq(broker->groups->version.counter, 1);
    ck_assert_ptr_null(subscription_group_need(broker, SLICE_LITERAL("a b")));
    ck_assert_ptr_null(subscription_group_need(broker, SLICE_LITERAL("")));
    state.leads = false;
    ck_assert_ptr_nonnull(subscription_group_need(broker, SLICE_LITERAL("h")));
    broker->config.auto_create_subscription_group = false;
    ck_assert_ptr_null(subscription_group_need(broker, SLICE_LITERAL("h")));
    ck_assert_ptr_nonnull(subscription_group_need(broker, SLICE_LITERAL("CID_RMQ_SYS_X")));
    ck_assert_uint_eq(state.appended, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metadata");
    TCase *test = tcase_create("records");
    tcase_add_checked_fixture(test, set_up, tear_down);
    tcase_add_test(test, equal_logs_give_equal_snapshots);
    tcase_add_test(test, a_snapshot_gives_the_tables_back);
    tcase_add_test(test, bad_snapshots_are_refused_and_change_nothing);
    tcase_add_test(test, l20_part_of_a_snapshot_wipes_nothing);
    tcase_add_test(test, restoring_removes_queues_of_topics_that_went_or_came_anew);
    tcase_add_test(test, a_replayed_record_leaves_the_tables_alone);
    tcase_add_test(test, garbage_is_left_out);
    tcase_add_test(test, delay_progress_only_goes_forward);
    tcase_add_test(test, submitting);
    tcase_add_test(test, groups_on_first_use);
    suite_add_tcase(suite, test);
    return run_suite(suite);
}
