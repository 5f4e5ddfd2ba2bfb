/* What a producer can be told about a send: batches, queues of one's choice, hooks, retries, the namespace.
 */
#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/message.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "tests/lib/fake_cluster.h"
#include "tests/lib/run_suite.h"

static struct fake_cluster cluster;
static struct ledgermq_client *client;
static struct ledgermq_producer *producer;
static struct ledgermq_producer_options options;
static struct ledgermq_error error;

/* The last send, and how many came to each broker. */
static struct {
    int code, queue_id, sys_flag;
    bool batch;
    char topic[128], group[128], properties[512];
    uint8_t body[70000];
    size_t body_size;
} last;
static atomic_int sends[FAKE_BROKERS_MAX];
static int answers[FAKE_BROKERS_MAX]; /* code that a broker answers with */

static enum fake_reaction script(struct fake_cluster *its, int index, struct remoting_command *request,
                                 struct buffer *out)
{
    (void)its;
    last.code = request->code;
    last.queue_id = (int)fake_number(request, "e");
    last.sys_flag = (int)fake_number(request, "f");
    slice_to_bool(remoting_ext(request, "m"), &last.batch);
    fake_keep_text(last.group, sizeof last.group, remoting_ext(request, "a"));
    fake_keep_text(last.topic, sizeof last.topic, remoting_ext(request, "b"));
    fake_keep_text(last.properties, sizeof last.properties, remoting_ext(request, "i"));
    last.body_size = request->body.size < sizeof last.body ? request->body.size : sizeof last.body;
    memcpy(last.body, request->body.data, last.body_size);
    sends[index]++;
    switch (answers[index]) {
    case RESPONSE_SUCCESS:
    case RESPONSE_FLUSH_DISK_TIMEOUT:
    case RESPONSE_FLUSH_SLAVE_TIMEOUT:
    case RESPONSE_SLAVE_NOT_AVAILABLE:
        fake_answer_send(out, request, answers[index], 100 + sends[index]);
        break;
    default:
        fake_answer(out, request, answers[index], "told so", slice_of(NULL, 0));
    }
    return FAKE_ANSWER;
}

static void set_up(void)
{
    fake_cluster_start(&cluster, 2, script);
    ledgermq_producer_options_init(&options);
    options.group = "TestProducer";
    client = fake_cluster_client(&cluster, NULL);
}

static void make_producer(void)
{
    ck_assert_msg(ledgermq_producer_new(client, &options, &producer, &error) == LEDGERMQ_OK, "%s", error.message);
}

static void tear_down(void)
{
    ledgermq_client_free(client);
    fake_cluster_stop(&cluster);
}

static struct ledgermq_message plain = {.topic = "Orders", .body = "hello", .body_size = 5};

static void ignore(void *context, const struct ledgermq_send_result *result, const struct ledgermq_error *its_error)
{
    (void)context;
    (void)result;
    (void)its_error;
}

/* --- batches ---- */

START_TEST(test_batch)
{
    struct ledgermq_message messages[3] = {
        {.topic = "Orders", .body = "one", .body_size = 3, .tags = "A", .keys = "k1", .flag = 7},
        {.topic = "Orders", .body = "two", .body_size = 3},
        {.topic = "Orders", .body = "three", .body_size = 5, .tags = "B"}};
    static const char *const bodies[] = {"one", "two", "three"};
    struct ledgermq_message_id ids[3];
    struct ledgermq_send_options how = {.message_ids = ids};
    struct ledgermq_send_result result;
    make_producer();
    ck_assert_msg(ledgermq_send_messages(producer, messages, 3, &how, &result, &error) == LEDGERMQ_OK, "%s",
                  error.message);
    ck_assert_int_eq(last.code, REQUEST_SEND_BATCH_MESSAGE);
    ck_assert(last.batch);
    ck_assert_str_eq(last.properties, "WAIT\001true");
    ck_assert_str_eq(result.message_id, ids[0].text);
    ck_assert_str_ne(ids[0].text, ids[1].text);
    ck_assert_str_ne(ids[1].text, ids[2].text);
    struct cursor cursor = cursor_of(slice_of(last.body, last.body_size));
    struct message_batch_member member;
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(message_batch_next(&cursor, &member), 1);
        ck_assert(slice_equal_text(member.body, bodies[i]));
        ck_assert_int_eq(member.flag, i == 0 ? 7 : 0);
        ck_assert(slice_equal_text(message_property(member.properties, "UNIQ_KEY"), ids[i].text));
    }
    ck_assert_int_eq(message_batch_next(&cursor, &member), 0);
    /* One alone is no batch. */
    ck_assert_int_eq(ledgermq_send_messages(producer, messages, 1, NULL, &result, &error), LEDGERMQ_OK);
    ck_assert_int_eq(last.code, REQUEST_SEND_MESSAGE_V2);
    ck_assert(!last.batch);
}
END_TEST

START_TEST(test_bad_batches)
{
    struct ledgermq_message topics[2] = {plain, {.topic = "Other", .body = "x", .body_size = 1}},
                            delayed[2] = {plain, {.topic = "Orders", .body = "x", .body_size = 1, .delay_level = 1}},
                            waits[2] = {plain, {.topic = "Orders", .body = "x", .body_size = 1, .no_wait = true}},
                            retry[2] = {{.topic = "%RETRY%g", .body = "x", .body_size = 1},
                                        {.topic = "%RETRY%g", .body = "x", .body_size = 1}},
                            empty[2] = {plain, {.topic = "Orders"}};
    static char large[1000];
    struct ledgermq_message too_large[3] = {{.topic = "Orders", .body = large, .body_size = 1000},
                                            {.topic = "Orders", .body = large, .body_size = 1000},
                                            {.topic = "Orders", .body = large, .body_size = 1000}};
    options.max_body_size = 3000;
    make_producer();
    const struct {
        struct ledgermq_message *messages;
        size_t count;
        const char *says;
    } rows[] = {{topics, 2, "one batch, one topic"},
                {delayed, 2, "delay level"},
                {waits, 2, "no_wait"},
                {retry, 2, "retry topic"},
                {empty, 2, "no body"},
                {too_large, 3, "max_body_size"},
                {topics, 0, "no message"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        error.message[0] = '\0';
        ck_assert_int_eq(ledgermq_send_messages(producer, rows[i].messages, rows[i].count, NULL, NULL, &error),
                         LEDGERMQ_INVALID);
        ck_assert_msg(strstr(error.message, rows[i].says) != NULL, "row %zu: %s", i, error.message);
    }
    ck_assert_int_eq(sends[0] + sends[1], 0);
}
END_TEST

START_TEST(test_split)
{
    static char body[10000];
    struct ledgermq_message messages[20];
    for (int i = 0; i < 20; i++)
        messages[i] = (struct ledgermq_message){.topic = "Orders", .body = body, .body_size = sizeof body};
    size_t n = ledgermq_batch_split(messages, 20, 50000);
    ck_assert_uint_eq(n, 4);
    ck_assert_uint_eq(ledgermq_batch_split(messages, 3, 50000), 3);
    ck_assert_uint_eq(ledgermq_batch_split(messages, 20, 100), 1); /* too large alone: the send says so */
    ck_assert_uint_eq(ledgermq_batch_split(messages, 0, 100), 0);
    ck_assert_uint_eq(ledgermq_batch_split(messages, 20, 0), 20);
    /* What it allows is accepted by a producer with the same limit. */
    options.max_body_size = 50000;
    make_producer();
    ck_assert_msg(ledgermq_send_messages(producer, messages, n, NULL, NULL, &error) == LEDGERMQ_OK, "%s",
                  error.message);
}
END_TEST

/* --- choosing a queue ---- */

static size_t choose(const struct ledgermq_queue_view *queues, size_t count, const char *topic, void *argument)
{
    ck_assert_str_eq(topic, "Orders");
    ck_assert_uint_eq(count, 4);
    ck_assert_str_eq(queues[0].broker_name, "broker-0");
    ck_assert_str_eq(queues[3].broker_name, "broker-1");
    ck_assert_int_eq(queues[3].queue_id, 1);
    return *(size_t *)argument;
}

START_TEST(test_selector)
{
    struct ledgermq_send_result result;
    make_producer();
    for (size_t i = 0; i < 4; i++) {
        ck_assert_msg(ledgermq_send_select(producer, &plain, choose, &i, &result, &error) == LEDGERMQ_OK, "%s",
                      error.message);
        ck_assert_str_eq(result.queue.broker_name, i < 2 ? "broker-0" : "broker-1");
        ck_assert_int_eq(result.queue.queue_id, (int)(i % 2));
    }
    size_t beyond = 4;
    ck_assert_int_eq(ledgermq_send_select(producer, &plain, choose, &beyond, &result, &error), LEDGERMQ_INVALID);
    ck_assert_ptr_nonnull(strstr(error.message, "queue 4 of 4"));
    /* Retries stay on the chosen queue. */
    answers[1] = RESPONSE_SYSTEM_ERROR;
    size_t other = 2;
    int before = sends[0];
    ck_assert_int_eq(ledgermq_send_select(producer, &plain, choose, &other, &result, &error), LEDGERMQ_REFUSED);
    ck_assert_int_eq(sends[0], before);
}
END_TEST

START_TEST(test_selectors)
{
    static const struct ledgermq_queue_view views[3] = {{"a", 0}, {"a", 1}, {"b", 0}};
    bool seen[3] = {false};
    /* "polygenelubricants" hashes to INT_MIN, whose absolute value is none. */
    ck_assert_uint_eq(ledgermq_select_by_hash(views, 3, "T", "polygenelubricants"), 0);
    ck_assert_uint_eq(ledgermq_select_by_hash(views, 3, "T", "TagA"), 2598919 % 3);
    for (int i = 0; i < 200; i++)
        seen[ledgermq_select_by_random(views, 3, "T", NULL)] = true;
    ck_assert(seen[0] && seen[1] && seen[2]);
}
END_TEST

/* --- hooks ---- */

static struct {
    int befores, afters, good, bad;
    int tries[8];
    char topic[64], group[64], tags[16], reason[32], forbidden_broker[32];
} seen;

static void before(void *context, const struct ledgermq_send_context *send)
{
    ck_assert_ptr_eq(context, &seen);
    ck_assert(send->result == NULL && send->error == NULL);
    if (seen.befores < 8)
        seen.tries[seen.befores] = send->try_number;
    seen.befores++;
    snprintf(seen.topic, sizeof seen.topic, "%s", send->topic);
    snprintf(seen.group, sizeof seen.group, "%s", send->group);
    snprintf(seen.tags, sizeof seen.tags, "%s", send->tags == NULL ? "" : send->tags);
}

static void after(void *context, const struct ledgermq_send_context *send)
{
    (void)context;
    seen.afters++;
    seen.good += send->result != NULL;
    seen.bad += send->error != NULL;
    ck_assert(send->result == NULL || send->error == NULL);
    ck_assert_int_eq(seen.afters, seen.befores);
}

static bool allows(void *context, const struct ledgermq_send_context *send, char *reason, size_t size)
{
    (void)context;
    snprintf(reason, size, "not there");
    return strcmp(send->broker_name, seen.forbidden_broker) != 0;
}

static const struct ledgermq_send_hook hook = {before, after, &seen};
static const struct ledgermq_check_forbidden_hook guard = {allows, NULL};

START_TEST(test_send_hooks)
{
    struct ledgermq_message message = plain;
    options.send_hooks = &hook;
    options.send_hook_count = 1;
    make_producer();
    message.tags = "TagA";
    ck_assert_int_eq(ledgermq_send(producer, &message, NULL, &error), LEDGERMQ_OK);
    ck_assert_int_eq(seen.befores, 1);
    ck_assert_int_eq(seen.good, 1);
    ck_assert_str_eq(seen.topic, "Orders");
    ck_assert_str_eq(seen.group, "TestProducer");
    ck_assert_str_eq(seen.tags, "TagA");
    /* Each try, also those that fail. */
    answers[0] = answers[1] = RESPONSE_SYSTEM_ERROR;
    ck_assert_int_eq(ledgermq_send(producer, &message, NULL, &error), LEDGERMQ_REFUSED);
    ck_assert_int_eq(seen.befores, 4);
    ck_assert_int_eq(seen.bad, 3);
    ck_assert(seen.tries[1] == 1 && seen.tries[2] == 2 && seen.tries[3] == 3);
    ck_assert_int_eq(ledgermq_send_oneway(producer, &message, &error), LEDGERMQ_OK);
    ledgermq_producer_free(producer);
    ck_assert_int_eq(seen.befores, 5);
    ck_assert_int_eq(seen.afters, 5);
    ck_assert_int_eq(seen.good + seen.bad, 4);
}
END_TEST

START_TEST(test_check_forbidden)
{
    struct ledgermq_send_result result;
    options.check_forbidden_hooks = &guard;
    options.check_forbidden_hook_count = 1;
    options.send_hooks = &hook;
    options.send_hook_count = 1;
    make_producer();
    snprintf(seen.forbidden_broker, sizeof seen.forbidden_broker, "broker-0");
    for (int i = 0; i < 4; i++) {
        ck_assert_msg(ledgermq_send(producer, &plain, &result, &error) == LEDGERMQ_OK, "%s", error.message);
        ck_assert_str_eq(result.queue.broker_name, "broker-1");
    }
    ck_assert_int_eq(sends[0], 0);
    ck_assert_int_eq(seen.befores, 4); /* what is forbidden is not begun */
    struct ledgermq_queue queue = {.topic = "Orders", .broker_name = "broker-0", .queue_id = 0};
    ck_assert_int_eq(ledgermq_send_to(producer, &plain, &queue, NULL, &error), LEDGERMQ_FORBIDDEN);
    ck_assert_ptr_nonnull(strstr(error.message, "not there"));
    ck_assert_int_eq(sends[0], 0);
}
END_TEST

/* --- retries ---- */

/* Every status that says "stored, but" is tried at another broker when that is wanted, and is the result
 * otherwise. */
static const int status_rows[][2] = {{RESPONSE_FLUSH_DISK_TIMEOUT, LEDGERMQ_FLUSH_DISK_TIMEOUT},
                                     {RESPONSE_FLUSH_SLAVE_TIMEOUT, LEDGERMQ_FLUSH_SLAVE_TIMEOUT},
                                     {RESPONSE_SLAVE_NOT_AVAILABLE, LEDGERMQ_SLAVE_NOT_AVAILABLE}};

START_TEST(test_not_store_ok)
{
    struct ledgermq_send_result result;
    answers[0] = status_rows[_i][0];
    options.retry_another_broker_when_not_store_ok = true;
    make_producer();
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(ledgermq_send(producer, &plain, &result, &error), LEDGERMQ_OK);
        ck_assert_int_eq(result.status, LEDGERMQ_SEND_OK);
        ck_assert_str_eq(result.queue.broker_name, "broker-1");
    }
    ck_assert_int_ge(sends[0], 1);
    /* Nobody answers better: the last such result, after all tries. */
    answers[1] = status_rows[_i][0];
    int before = sends[0] + sends[1];
    ck_assert_int_eq(ledgermq_send(producer, &plain, &result, &error), LEDGERMQ_OK);
    ck_assert_int_eq(result.status, status_rows[_i][1]);
    ck_assert_int_eq(result.tries, 3);
    ck_assert_int_eq(sends[0] + sends[1] - before, 3);
    /* The other broker fails: what the first one stored is still stored. */
    answers[1] = RESPONSE_MESSAGE_ILLEGAL;
    int good = 0;
    for (int i = 0; i < 4; i++) {
        int rv = ledgermq_send(producer, &plain, &result, &error);
        good += rv == LEDGERMQ_OK;
        ck_assert(rv != LEDGERMQ_OK ||
                  (result.status == status_rows[_i][1] && strcmp(result.queue.broker_name, "broker-0") == 0));
    }
    ck_assert_int_ge(good, 1);
    /* To one queue there is no other broker. */
    struct ledgermq_queue queue = {.topic = "Orders", .broker_name = "broker-0", .queue_id = 0};
    ck_assert_int_eq(ledgermq_send_to(producer, &plain, &queue, &result, &error), LEDGERMQ_OK);
    ck_assert_int_eq(result.tries, 1);
}
END_TEST

START_TEST(test_not_store_ok_by_default)
{
    struct ledgermq_send_result result;
    answers[0] = answers[1] = status_rows[_i][0];
    make_producer();
    ck_assert_int_eq(ledgermq_send(producer, &plain, &result, &error), LEDGERMQ_OK);
    ck_assert_int_eq(result.status, status_rows[_i][1]);
    ck_assert_int_eq(sends[0] + sends[1], 1);
}
END_TEST

START_TEST(test_own_retry_codes)
{
    static const int codes[] = {RESPONSE_SYSTEM_BUSY};
    struct ledgermq_send_result result;
    options.retry_response_codes = codes;
    options.retry_response_code_count = 1;
    make_producer();
    answers[0] = RESPONSE_SYSTEM_BUSY;
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(ledgermq_send(producer, &plain, &result, &error), LEDGERMQ_OK);
        ck_assert_str_eq(result.queue.broker_name, "broker-1");
    }
    answers[0] = answers[1] = RESPONSE_SYSTEM_ERROR;
    int before = sends[0] + sends[1];
    ck_assert_int_eq(ledgermq_send(producer, &plain, &result, &error), LEDGERMQ_REFUSED);
    ck_assert_int_eq(sends[0] + sends[1] - before, 1);
}
END_TEST

START_TEST(test_timeout_of_one_send)
{
    struct ledgermq_queue queue = {.topic = "Orders", .broker_name = "nobody", .queue_id = 0};
    struct ledgermq_send_options how = {.queue = &queue, .timeout_ms = 200};
    options.send_timeout_ms = 20000;
    make_producer();
    int64_t begin = fake_cluster_now_ms();
    ck_assert_int_eq(ledgermq_send_messages(producer, &plain, 1, &how, NULL, &error), LEDGERMQ_NO_ROUTE);
    ck_assert_int_lt(fake_cluster_now_ms() - begin, 5000);
    how.timeout_ms = -1;
    ck_assert_int_eq(ledgermq_send_messages(producer, &plain, 1, &how, NULL, &error), LEDGERMQ_INVALID);
}
END_TEST

/* A machine that is switched off neither refuses connections nor answers: the other broker gets its turn in
 * time. */
START_TEST(test_silent_machine)
{
    struct ledgermq_send_result result;
    /* A listener with a full backlog drops what else wants to connect. */
    struct fake_server *full = &cluster.brokers[0];
    fake_server_stop(full);
    int fillers[2], listener = fake_server_full_backlog(full->port, fillers);
    options.send_timeout_ms = 2400;
    make_producer();
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(ledgermq_send(producer, &plain, &result, &error) == LEDGERMQ_OK, "%s", error.message);
        ck_assert_str_eq(result.queue.broker_name, "broker-1");
        ck_assert_int_eq(result.tries, 1);
    }
    for (int i = 0; i < 2; i++)
        close(fillers[i]);
    close(listener);
    fake_server_start(full, full->port, full->script, full->context);
}
END_TEST

/* --- trace ---- */

static char trace_body[4096], trace_keys[512];
static atomic_int traces;

static enum fake_reaction trace_script(struct fake_cluster *its, int index, struct remoting_command *request,
                                       struct buffer *out)
{
    if (!slice_equal_text(remoting_ext(request, "b"), "RMQ_SYS_TRACE_TOPIC")) {
        enum fake_reaction reaction = script(its, index, request, out);
        return reaction;
    }
    struct slice keys = message_property(remoting_ext(request, "i"), "KEYS");
    fake_keep_text(trace_keys, sizeof trace_keys, keys);
    fake_keep_text(trace_body, sizeof trace_body, request->body);
    fake_keep_text(last.group, sizeof last.group, remoting_ext(request, "a"));
    traces++;
    fake_answer_send(out, request, 0, 1);
    return FAKE_ANSWER;
}

START_TEST(test_trace)
{
    struct ledgermq_message message = plain;
    struct ledgermq_send_result result;
    char wanted[1024];
    cluster.script = trace_script;
    options.trace_enable = true;
    make_producer();
    message.tags = "TagA";
    message.keys = "k1";
    ck_assert_int_eq(ledgermq_send(producer, &message, &result, &error), LEDGERMQ_OK);
    ck_assert(fake_cluster_wait(&traces, 1));
    pthread_mutex_lock(&cluster.lock);
    /* Pub, time, region, group, topic, id, tags, keys, broker, size, took, type, offset id, success */
    char *fields[14], *rest = trace_body;
    for (int i = 0; i < 14; i++)
        ck_assert_ptr_nonnull(fields[i] = strsep(&rest, "\001"));
    ck_assert_ptr_null(rest);
    ck_assert_str_eq(fields[0], "Pub");
    ck_assert_str_eq(fields[2], "DefaultRegion");
    ck_assert_str_eq(fields[3], "TestProducer");
    ck_assert_str_eq(fields[4], "Orders");
    ck_assert_str_eq(fields[5], result.message_id);
    ck_assert_str_eq(fields[6], "TagA");
    ck_assert_str_eq(fields[7], "k1");
    ck_assert_str_eq(fields[8], cluster.brokers[result.queue.broker_name[7] - '0'].address);
    ck_assert_str_eq(fields[9], "5");
    ck_assert_str_eq(fields[11], "0");
    ck_assert_str_eq(fields[12], result.offset_message_id);
    ck_assert_str_eq(fields[13], "true\002");
    snprintf(wanted, sizeof wanted, "%s k1", result.message_id);
    ck_assert_str_eq(trace_keys, wanted);
    ck_assert_str_eq(last.group, "_INNER_TRACE_PRODUCER-TestProducer-PRODUCE");
    pthread_mutex_unlock(&cluster.lock);
    /* What is gathered leaves before the producer does. */
    for (int i = 0; i < 250; i++)
        ck_assert_int_eq(ledgermq_send_async(producer, &message, NULL, ignore, NULL, &error), LEDGERMQ_OK);
    ledgermq_producer_free(producer);
    ck_assert_int_ge(traces, 4);
    ck_assert_int_lt(traces, 200);
}
END_TEST

/* --- a connection that comes too late ---- */

static int sends_that_arrive(int listener, int wait_ms)
{
    struct buffer in;
    int count = 0;
    struct pollfd polls[8] = {{listener, POLLIN, 0}};
    nfds_t open = 1;
    buffer_init(&in, 0);
    for (int64_t end = fake_cluster_now_ms() + wait_ms; fake_cluster_now_ms() < end && open < 8;) {
        if (poll(polls, open, 50) <= 0)
            continue;
        if (polls[0].revents & POLLIN)
            polls[open++] = (struct pollfd){accept(listener, NULL, NULL), POLLIN, 0};
        for (nfds_t i = 1; i < open; i++) {
            uint8_t *at = buffer_reserve(&in, 65536);
            ssize_t n = polls[i].revents & POLLIN ? recv(polls[i].fd, at, 65536, 0) : 0;
            in.size += n > 0 ? (size_t)n : 0;
            if (polls[i].revents != 0 && n <= 0)
                polls[i].events = 0; /* a filler that was closed */
        }
    }
    for (size_t at = 0; at < in.size;) {
        struct remoting_command command;
        int64_t size = remoting_frame_size(slice_of(in.data + at, in.size - at));
        ck_assert_int_gt(size, 0);
        ck_assert_int_eq(remoting_command_decode(in.data + at, (size_t)size, &command), 0);
        count += command.code == REQUEST_SEND_MESSAGE_V2;
        at += (size_t)size;
    }
    for (nfds_t i = 1; i < open; i++)
        close(polls[i].fd);
    buffer_close(&in);
    return count;
}

/* What was given up while its connection was being made, and sent to another broker, does not arrive there after all. */
START_TEST(test_late_connection)
{
    struct ledgermq_send_result result;
    struct fake_server *full = &cluster.brokers[0];
    fake_server_stop(full);
    int fillers[2], listener = fake_server_full_backlog(full->port, fillers);
    options.send_timeout_ms = 2400;
    make_producer();
    for (int64_t took = 0; took < 500;) {
        int64_t begin = fake_cluster_now_ms();
        ck_assert_msg(ledgermq_send(producer, &plain, &result, &error) == LEDGERMQ_OK, "%s", error.message);
        ck_assert_str_eq(result.queue.broker_name, "broker-1");
        took = fake_cluster_now_ms() - begin;
    }
    for (int i = 0; i < 2; i++)
        close(fillers[i]);
    ck_assert_int_eq(sends_that_arrive(listener, 2500), 0);
    close(listener);
    fake_server_start(full, full->port, full->script, full->context);
}
END_TEST

/* --- namespace ---- */

START_TEST(test_namespace)
{
    struct ledgermq_send_result result;
    struct ledgermq_client *tenant = fake_cluster_client(&cluster, "tenant");
    struct ledgermq_queue *queues;
    size_t count;
    ck_assert_int_eq(ledgermq_producer_new(tenant, &options, &producer, &error), LEDGERMQ_OK);
    ck_assert_msg(ledgermq_send(producer, &plain, &result, &error) == LEDGERMQ_OK, "%s", error.message);
    ck_assert_str_eq(last.topic, "tenant%Orders");
    ck_assert_str_eq(last.group, "tenant%TestProducer");
    ck_assert_ptr_nonnull(strstr(last.properties, "INSTANCE_ID\001tenant"));
    ck_assert_str_eq(result.queue.topic, "Orders");
    ck_assert_int_eq(ledgermq_publish_queues(producer, "Orders", &queues, &count, &error), LEDGERMQ_OK);
    ck_assert_uint_eq(count, 4);
    ck_assert_str_eq(queues[0].topic, "Orders");
    ledgermq_queues_free(queues);
    ledgermq_client_free(tenant);
    static const char *const bad[] = {"a%b", "a b",
                                      "0123456789012345678901234567890123456789012345678901234567890123456"};
    for (size_t i = 0; i < 3; i++) {
        struct ledgermq_client_options bad_options;
        ledgermq_client_options_init(&bad_options);
        bad_options.name_servers = cluster.name_server.address;
        bad_options.name_space = bad[i];
        ck_assert_int_eq(ledgermq_client_new(&bad_options, &tenant, &error), LEDGERMQ_INVALID);
        ck_assert_ptr_nonnull(strstr(error.message, "namespace"));
    }
}
END_TEST

START_TEST(test_bad_options)
{
    static const struct ledgermq_transaction_listener half = {0};
    static const struct ledgermq_check_forbidden_hook no_function = {0};
    struct ledgermq_producer *none;
    options.compression = 9;
    ck_assert_int_eq(ledgermq_producer_new(client, &options, &none, &error), LEDGERMQ_INVALID);
    options.compression = LEDGERMQ_ZLIB;
    options.compression_level = 10;
    ck_assert_int_eq(ledgermq_producer_new(client, &options, &none, &error), LEDGERMQ_INVALID);
    options.compression = LEDGERMQ_ZSTD; /* which has that level */
    ck_assert_int_eq(ledgermq_producer_new(client, &options, &none, &error), LEDGERMQ_OK);
    options.transaction_listener = &half;
    ck_assert_int_eq(ledgermq_producer_new(client, &options, &none, &error), LEDGERMQ_INVALID);
    options.transaction_listener = NULL;
    options.check_forbidden_hooks = &no_function;
    options.check_forbidden_hook_count = 1;
    ck_assert_int_eq(ledgermq_producer_new(client, &options, &none, &error), LEDGERMQ_INVALID);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_send");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, test_batch);
    tcase_add_test(tcase, test_bad_batches);
    tcase_add_test(tcase, test_split);
    tcase_add_test(tcase, test_selector);
    tcase_add_test(tcase, test_selectors);
    tcase_add_test(tcase, test_send_hooks);
    tcase_add_test(tcase, test_check_forbidden);
    tcase_add_loop_test(tcase, test_not_store_ok, 0, 3);
    tcase_add_loop_test(tcase, test_not_store_ok_by_default, 0, 3);
    tcase_add_test(tcase, test_own_retry_codes);
    tcase_add_test(tcase, test_timeout_of_one_send);
    tcase_add_test(tcase, test_silent_machine);
    tcase_add_test(tcase, test_late_connection);
    tcase_add_test(tcase, test_trace);
    tcase_add_test(tcase, test_namespace);
    tcase_add_test(tcase, test_bad_options);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
