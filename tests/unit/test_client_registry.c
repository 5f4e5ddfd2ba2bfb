/* Clients: heart-beats bind, newer subscriptions win, notices go to the whole group, closed and silent connections leave, limits of names. */
#include "../lib/broker_state.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdlib.h>

static struct broker_state state;
static struct broker *broker;

static void set_up(void)
{
    broker_state_open(&state);
    broker = &state.broker;
}

static void tear_down(void)
{
    broker_state_close(&state);
}

static struct arena arena;

/* topics: NULL-terminated names, all with the same expression and version. */
static int beat(uint64_t connection_id, const char *client, const char *group, const char *const *topics, const char *expression, int64_t version)
{
    struct subscription_data subscriptions[8];
    struct consumer_data consumer = {
        .group_name = slice_of_text(group),
        .consume_type = CONSUME_PASSIVELY,
        .message_model = MESSAGE_MODEL_CLUSTERING,
        .consume_from_where = CONSUME_FROM_FIRST_OFFSET,
        .subscriptions = subscriptions,
    };
    struct heartbeat_data data = {.client_id = slice_of_text(client), .consumers = &consumer, .consumer_count = 1};
    struct remoting_command command = {.language = 9, .version = 317};
    struct request request = {.command = &command, .reply_to = {.connection_id = connection_id}};
    ck_assert(message_host_parse(SLICE_LITERAL("10.0.0.1:5555"), &request.peer));
    arena_init(&arena, 0);
    for (size_t i = 0; topics[i] != NULL; i++) {
        ck_assert_int_eq(subscription_data_build(&subscriptions[i], &arena, slice_of_text(topics[i]), slice_of_text(expression), SLICE_LITERAL(""),
                                                 NULL),
                         0);
        subscriptions[i].sub_version = version;
        consumer.subscription_count++;
    }
    int rv = client_registry_heart_beat(broker, &request, &data);
    arena_close(&arena);
    return rv;
}

static void notices(const char *expected)
{
    client_registry_notify_due(broker);
    ck_assert_str_eq(state.notices, expected);
    state.notices[0] = 0;
}

static struct client_group *group(const char *name)
{
    return client_registry_consumer_group(broker->clients, slice_of_text(name));
}

static const char *sub_string(const char *topic)
{
    static char text[64];
    struct client_subscription *subscription = client_registry_subscription(group("g"), slice_of_text(topic));
    if (subscription == NULL)
        return NULL;
    snprintf(text, sizeof text, "%.*s", (int)subscription->data.sub_string.size, (const char *)subscription->data.sub_string.data);
    return text;
}

static const char *const one_topic[] = {"T", NULL};
static const char *const two_topics[] = {"T", "U", NULL};

START_TEST(a_heart_beat_binds)
{
    ck_assert_ptr_null(group("g"));
    ck_assert_int_eq(beat(1, "a", "g", one_topic, "TagA || TagB", 1), 0);
    struct client_group *found = group("g");
    ck_assert_uint_eq(found->channel_count, 1);
    ck_assert_int_eq(found->consume_type, CONSUME_PASSIVELY);
    ck_assert_int_eq(found->consume_from_where, CONSUME_FROM_FIRST_OFFSET);
    struct client_channel *channel = client_registry_channel(found, SLICE_LITERAL("a"));
    ck_assert_str_eq(channel->address, "10.0.0.1:5555");
    ck_assert_str_eq(client_channel_language(channel), "GO");
    ck_assert_int_eq(channel->version, 317);
    ck_assert_ptr_null(client_registry_channel(found, SLICE_LITERAL("b")));
    struct client_subscription *subscription = client_registry_subscription(found, SLICE_LITERAL("T"));
    ck_assert_uint_eq(subscription->data.tag_count, 2);
    ck_assert(subscription_data_match(&subscription->data, 2598919)); /* TagA */
    ck_assert(!subscription_data_match(&subscription->data, 5));
}
END_TEST

/* One heart-beat with an SQL92 expression on T. */
static struct client_subscription *sql_beat(const char *expression, const char *type, int64_t version)
{
    struct subscription_data subscription;
    struct consumer_data consumer = {.group_name = SLICE_LITERAL("g"), .subscriptions = &subscription, .subscription_count = 1};
    struct heartbeat_data data = {.client_id = SLICE_LITERAL("a"), .consumers = &consumer, .consumer_count = 1};
    struct remoting_command command = {.language = 9, .version = 317};
    struct request request = {.command = &command, .reply_to = {.connection_id = 1}};
    ck_assert(message_host_parse(SLICE_LITERAL("10.0.0.1:5555"), &request.peer));
    arena_init(&arena, 0);
    ck_assert_int_eq(subscription_data_build(&subscription, &arena, SLICE_LITERAL("T"), slice_of_text(expression), slice_of_text(type), NULL), 0);
    subscription.sub_version = version;
    ck_assert_int_eq(client_registry_heart_beat(broker, &request, &data), 0);
    arena_close(&arena);
    return client_registry_subscription(group("g"), SLICE_LITERAL("T"));
}

START_TEST(expressions_are_compiled_when_their_text_changes)
{
    const struct slice three = SLICE_LITERAL("n\x01" "3");
    struct client_subscription *subscription = sql_beat("n >", "SQL92", 1);
    ck_assert_ptr_null(subscription->program);
    ck_assert_int_eq(subscription->program_version, 0);
    subscription = sql_beat("n > 2", "SQL92", 2);
    struct sql_program *program = subscription->program;
    ck_assert(sql92_match(program->code, three));
    ck_assert_int_eq(subscription->program_version, 2);
    subscription = sql_beat("n > 2", "SQL92", 3);
    ck_assert_msg(subscription->program == program, "the same text was compiled again");
    ck_assert_uint_eq(program->owners, 1);
    ck_assert_int_eq(subscription->program_version, 3);
    subscription = sql_beat("n > 2", "SQL92", 2);
    ck_assert_msg(subscription->program == program, "the same text was compiled again");
    ck_assert_int_eq(subscription->program_version, 2);

    /* A pull waits with it while the subscription goes on. */
    sql_program_hold(program);
    subscription = sql_beat("n > 5", "SQL92", 4);
    ck_assert(!sql92_match(subscription->program->code, three));
    ck_assert(sql92_match(program->code, three));
    ck_assert_uint_eq(program->owners, 1);
    sql_program_release(program);

    subscription = sql_beat("n >", "SQL92", 5);
    ck_assert_ptr_null(subscription->program);
    ck_assert_msg(subscription->program_version == 4, "28 needs the last one that compiled");
    program = sql_beat("n > 5", "SQL92", 6)->program;
    sql_program_hold(program);
    ck_assert_ptr_null(sql_beat("*", "TAG", 7)->program);
    ck_assert_uint_eq(program->owners, 1);
    sql_program_release(program);

    program = sql_beat("n > 2", "SQL92", 8)->program;
    sql_program_hold(program);
    client_registry_connection_closed(broker, 1);
    ck_assert_ptr_null(group("g"));
    ck_assert(sql92_match(program->code, three));
    sql_program_release(program);
}
END_TEST

START_TEST(programs_are_bounded)
{
    static char text[SQL92_EXPRESSION_MAX + 1];
    static struct sql_program *programs[SQL_PROGRAM_BYTES_MAX / SQL92_EXPRESSION_MAX];
    const struct slice expression = slice_of((const uint8_t *)text, SQL92_EXPRESSION_MAX);
    struct error error;
    size_t count = 0;
    memset(text, ' ', SQL92_EXPRESSION_MAX);
    memcpy(text, "n > 2", 5);
    while ((programs[count] = sql_program_new(expression, &error)) != NULL)
        ck_assert_uint_lt(++count, sizeof programs / sizeof *programs);
    ck_assert_int_eq(error.code, ERROR_BUSY);
    ck_assert_uint_gt(count, 100);
    sql_program_release(programs[0]);
    programs[0] = sql_program_new(expression, &error);
    ck_assert_ptr_nonnull(programs[0]);
    while (count > 0)
        sql_program_release(programs[--count]);
}
END_TEST

START_TEST(the_whole_group_is_told_once_of_each_change)
{
    beat(1, "a", "g", one_topic, "*", 1);
    notices("1:g ");
    beat(1, "a", "g", one_topic, "*", 1);
    notices("");
    beat(2, "b", "g", one_topic, "*", 1);
    notices("2:g 1:g ");
    beat(2, "b", "g", two_topics, "*", 2);
    beat(1, "a", "g", two_topics, "*", 2);
    notices("2:g 1:g ");
    beat(1, "a", "g", two_topics, "*", 3); /* newer, the same topics */
    notices("");
    client_registry_connection_closed(broker, 1);
    notices("2:g ");
    client_registry_connection_closed(broker, 2);
    notices("");
    ck_assert_ptr_null(group("g"));
    ck_assert_uint_eq(broker->clients->channel_count, 0);
    ck_assert_ptr_null(broker->clients->connections);
}
END_TEST

START_TEST(one_more_notice_when_the_retry_topic_is_there)
{
    beat(1, "a", "g", one_topic, "*", 1);
    client_registry_notify_again(broker, SLICE_LITERAL("g"));
    client_registry_notify_again(broker, SLICE_LITERAL("nobody"));
    notices("1:g ");
    broker_state_pass(&state, CLIENT_REGISTRY_NOTIFY_AGAIN_MS - 1);
    client_registry_notify_again_due(broker);
    notices("");
    broker_state_pass(&state, 1);
    client_registry_notify_again_due(broker);
    notices("1:g ");
    broker_state_pass(&state, CLIENT_REGISTRY_NOTIFY_AGAIN_MS);
    client_registry_notify_again_due(broker);
    notices("");
}
END_TEST

START_TEST(groups_that_do_not_want_notices)
{
    struct subscription_group_config config;
    subscription_group_config_init(&config, SLICE_LITERAL("g"));
    config.notify_consumer_ids_changed_enable = false;
    ck_assert_int_eq(subscription_group_put(broker->groups, &config), 0);
    beat(1, "a", "g", one_topic, "*", 1);
    notices("");
    beat(1, "a", "h", one_topic, "*", 1);
    notices("1:h ");
    broker->config.notify_consumer_ids_changed_enable = false;
    beat(2, "b", "h", one_topic, "*", 1);
    notices("");
}
END_TEST

START_TEST(a_newer_subscription_wins_and_unnamed_topics_go)
{
    beat(1, "a", "g", two_topics, "TagA", 100);
    beat(2, "b", "g", two_topics, "TagB", 99);
    ck_assert_str_eq(sub_string("T"), "TagA");
    beat(2, "b", "g", two_topics, "TagB", 101);
    ck_assert_str_eq(sub_string("T"), "TagB");
    beat(1, "a", "g", one_topic, "TagA", 100);
    ck_assert_str_eq(sub_string("T"), "TagB");
    ck_assert_str_eq(sub_string("U"), "TagB"); /* b still subscribes to it */
    beat(2, "b", "g", one_topic, "TagB", 102);
    ck_assert_ptr_null(sub_string("U"));
    ck_assert_uint_eq(group("g")->subscription_count, 1);
}
END_TEST

/* Z16: members that say different things: the newest word counts, heart-beat after heart-beat, and it is counted. */
START_TEST(members_that_do_not_agree)
{
    uint64_t *conflicts = &broker->clients->subscription_conflicts;
    beat(1, "a", "g", one_topic, "TagA", 100);
    beat(1, "a", "g", one_topic, "TagA", 100);
    ck_assert_uint_eq(*conflicts, 0);
    beat(2, "b", "g", one_topic, "TagB", 200);
    ck_assert_uint_eq(*conflicts, 1);
    for (int i = 0; i < 5; i++) {
        beat(1, "a", "g", one_topic, "TagA", 100);
        ck_assert_str_eq(sub_string("T"), "TagB");
        beat(2, "b", "g", one_topic, "TagB", 200);
        ck_assert_str_eq(sub_string("T"), "TagB");
    }
    ck_assert_uint_eq(*conflicts, 6);
    /* A topic that only one of them names stays as well, and nobody is told of a change. */
    beat(2, "b", "g", two_topics, "TagB", 200);
    client_registry_notify_due(broker);
    state.notices[0] = 0;
    for (int i = 0; i < 3; i++) {
        beat(1, "a", "g", one_topic, "TagA", 100);
        beat(2, "b", "g", two_topics, "TagB", 200);
        ck_assert_str_eq(sub_string("U"), "TagB");
    }
    notices("");
    /* The newest word is worth nothing once its speaker has gone. */
    client_registry_connection_closed(broker, 2);
    beat(1, "a", "g", one_topic, "TagA", 100);
    ck_assert_str_eq(sub_string("T"), "TagA");
    ck_assert_ptr_null(sub_string("U"));
}
END_TEST

/* Z11: versions are clocks of clients, and clocks are set back. */
START_TEST(a_clock_that_was_set_back)
{
    beat(1, "a", "g", one_topic, "TagA", 1000);
    beat(1, "a", "g", one_topic, "TagB", 900); /* on the same connection */
    ck_assert_str_eq(sub_string("T"), "TagB");
    ck_assert_int_eq(client_registry_subscription(group("g"), SLICE_LITERAL("T"))->data.sub_version, 900);
    beat(2, "a", "g", one_topic, "TagC", 800); /* the old connection is not seen to be gone yet */
    ck_assert_str_eq(sub_string("T"), "TagC");
    client_registry_connection_closed(broker, 1);
    beat(3, "b", "g", one_topic, "TagC", 700); /* another member keeps the group */
    client_registry_connection_closed(broker, 2);
    beat(4, "a", "g", one_topic, "TagD", 750);
    ck_assert_str_eq(sub_string("T"), "TagD"); /* less than a said before, more than b */
    client_registry_connection_closed(broker, 4);
    client_registry_connection_closed(broker, 3);
    beat(5, "a", "g", one_topic, "TagE", 1);
    ck_assert_str_eq(sub_string("T"), "TagE");
    ck_assert_uint_eq(broker->clients->subscription_conflicts, 0);
}
END_TEST

START_TEST(a_heart_beat_without_subscriptions_keeps_them)
{
    beat(1, "a", "g", two_topics, "TagA", 100);
    struct consumer_data consumer = {.group_name = SLICE_LITERAL("g")};
    struct heartbeat_data data = {
        .client_id = SLICE_LITERAL("a"), .consumers = &consumer, .consumer_count = 1, .without_sub = true, .heartbeat_fingerprint = 7};
    struct remoting_command command = {.version = 479};
    struct request request = {.command = &command, .reply_to = {.connection_id = 1}};
    ck_assert_int_eq(client_registry_heart_beat(broker, &request, &data), 0);
    ck_assert_str_eq(sub_string("U"), "TagA");
}
END_TEST

START_TEST(unregister)
{
    beat(1, "a", "g", one_topic, "*", 1);
    beat(2, "b", "g", one_topic, "*", 1);
    beat(2, "b", "h", one_topic, "*", 1);
    notices("2:h 2:g 1:g ");
    ck_assert(!client_registry_unregister(broker, 3, SLICE_LITERAL("p"), SLICE_LITERAL("g")));
    ck_assert(!client_registry_unregister(broker, 1, SLICE_LITERAL(""), SLICE_LITERAL("nobody")));
    ck_assert(client_registry_unregister(broker, 2, slice_of(NULL, 0), SLICE_LITERAL("g")));
    notices("1:g ");
    ck_assert_ptr_nonnull(group("h"));
    ck_assert_uint_eq(group("g")->channel_count, 1);
}
END_TEST

START_TEST(producer_groups)
{
    struct producer_data producers[2] = {{SLICE_LITERAL("p")}, {SLICE_LITERAL("CLIENT_INNER_PRODUCER")}};
    struct heartbeat_data data = {.client_id = SLICE_LITERAL("a"), .producers = producers, .producer_count = 2};
    struct remoting_command command = {.version = 409};
    struct request request = {.command = &command, .reply_to = {.connection_id = 4}};
    ck_assert_int_eq(client_registry_heart_beat(broker, &request, &data), 0);
    ck_assert_uint_eq(client_registry_producer_group(broker->clients, SLICE_LITERAL("p"))->channel_count, 1);
    ck_assert_ptr_null(group("p"));
    notices(""); /* nobody tells producers */
    client_registry_unregister(broker, 4, SLICE_LITERAL("p"), slice_of(NULL, 0));
    ck_assert_ptr_null(client_registry_producer_group(broker->clients, SLICE_LITERAL("p")));
    ck_assert_uint_eq(broker->clients->producer_group_count, 1);
}
END_TEST

START_TEST(silent_clients_leave)
{
    beat(1, "a", "g", one_topic, "*", 1);
    beat(1, "a", "h", one_topic, "*", 1);
    beat(2, "b", "g", one_topic, "*", 1);
    notices("1:h 2:g 1:g ");
    broker_state_pass(&state, 60000);
    beat(1, "a", "h", one_topic, "*", 1);
    client_registry_expire(broker);
    ck_assert_uint_eq(group("g")->channel_count, 2);
    broker_state_pass(&state, 60001);
    client_registry_expire(broker);
    /* The one that still speaks for another group keeps its connection. */
    ck_assert_str_eq(state.disconnects, "2 ");
    ck_assert_ptr_null(group("g"));
    ck_assert_ptr_nonnull(group("h"));
    ck_assert_uint_eq(broker->clients->channel_count, 1);
}
END_TEST

START_TEST(bad_names)
{
    char longest[300];
    memset(longest, 'g', sizeof longest - 1);
    longest[299] = 0;
    ck_assert_int_eq(beat(1, "a", longest, one_topic, "*", 1), ERROR_INVALID);
    ck_assert_int_eq(beat(1, "a", "", one_topic, "*", 1), ERROR_INVALID);
    ck_assert_int_eq(beat(1, "", "g", one_topic, "*", 1), ERROR_INVALID);
    ck_assert_uint_eq(broker->clients->consumer_group_count, 0);
}
END_TEST

START_TEST(a_new_leader_makes_what_its_consumers_need)
{
    beat(1, "a", "g", one_topic, "*", 1);
    state.leads = false;
    client_registry_ensure_groups(broker);
    ck_assert_uint_eq(state.appended, 0);
    state.leads = true;
    client_registry_ensure_groups(broker);
    client_registry_ensure_groups(broker);
    ck_assert_uint_eq(state.appended, 2);
    broker_state_commit(&state);
    ck_assert_ptr_nonnull(subscription_group_find(broker->groups, SLICE_LITERAL("g")));
    ck_assert_int_eq(topic_config_find(broker->topics, SLICE_LITERAL("%RETRY%g"))->config.read_queue_nums, 1);
    client_registry_ensure_groups(broker);
    ck_assert_uint_eq(state.appended, 2);
}
END_TEST

static void producer_beat(uint64_t connection_id, const char *client, const char *group_name)
{
    struct producer_data producer = {.group_name = slice_of_text(group_name)};
    struct heartbeat_data data = {.client_id = slice_of_text(client), .producers = &producer, .producer_count = 1};
    struct remoting_command command = {.version = 409};
    struct request request = {.command = &command, .reply_to = {.connection_id = connection_id}};
    ck_assert(message_host_parse(SLICE_LITERAL("10.0.0.1:5555"), &request.peer));
    ck_assert_int_eq(client_registry_heart_beat(broker, &request, &data), 0);
}

static uint64_t producer_found(const char *client)
{
    struct client_channel *channel = client_registry_producer(broker->clients, slice_of_text(client));
    return channel == NULL ? 0 : channel->connection_id;
}

START_TEST(a_producer_is_found_by_its_client_id)
{
    producer_beat(1, "a", "p");
    producer_beat(1, "a", "q"); /* one client, two groups */
    producer_beat(2, "b", "p");
    ck_assert_uint_eq(producer_found("a"), 1);
    ck_assert_uint_eq(producer_found("b"), 2);
    ck_assert_uint_eq(producer_found("c"), 0);
    ck_assert_uint_eq(producer_found(""), 0);
    /* It came back before its old connection was seen to close. */
    broker_state_pass(&state, 10);
    producer_beat(3, "a", "p");
    ck_assert_uint_eq(producer_found("a"), 3);
    client_registry_connection_closed(broker, 1);
    ck_assert_uint_eq(producer_found("a"), 3);
    client_registry_unregister(broker, 3, SLICE_LITERAL("p"), SLICE_LITERAL(""));
    ck_assert_uint_eq(producer_found("a"), 0);
    /* Another client on the same connection. */
    producer_beat(2, "d", "p");
    ck_assert_uint_eq(producer_found("b"), 0);
    ck_assert_uint_eq(producer_found("d"), 2);
    broker_state_pass(&state, CLIENT_REGISTRY_EXPIRE_MS + 1);
    client_registry_expire(broker);
    ck_assert_uint_eq(producer_found("d"), 0);
    /* A consumer is no requester. */
    ck_assert_int_eq(beat(4, "e", "g", (const char *const[]){"T", NULL}, "*", 1), 0);
    ck_assert_uint_eq(producer_found("e"), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_registry");
    TCase *test = tcase_create("clients");
    tcase_add_checked_fixture(test, set_up, tear_down);
    tcase_add_test(test, a_heart_beat_binds);
    tcase_add_test(test, expressions_are_compiled_when_their_text_changes);
    tcase_add_test(test, programs_are_bounded);
    tcase_add_test(test, the_whole_group_is_told_once_of_each_change);
    tcase_add_test(test, one_more_notice_when_the_retry_topic_is_there);
    tcase_add_test(test, groups_that_do_not_want_notices);
    tcase_add_test(test, a_newer_subscription_wins_and_unnamed_topics_go);
    tcase_add_test(test, members_that_do_not_agree);
    tcase_add_test(test, a_clock_that_was_set_back);
    tcase_add_test(test, a_heart_beat_without_subscriptions_keeps_them);
    tcase_add_test(test, unregister);
    tcase_add_test(test, producer_groups);
    tcase_add_test(test, a_producer_is_found_by_its_client_id);
    tcase_add_test(test, silent_clients_leave);
    tcase_add_test(test, bad_names);
    tcase_add_test(test, a_new_leader_makes_what_its_consumers_need);
    suite_add_tcase(suite, test);
    return run_suite(suite);
}
