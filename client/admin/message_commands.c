/* Messages: send, read, find (org.apache.rocketmq.tools.command.message). */
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/admin/admin.h"
#include "client/admin/message_print.h"
#include "client/admin/message_trace.h"
#include "client/admin/message_track.h"
#include "client/message_client_id_setter.h"
#include "proto/request_code.h"

#define SEND_WINDOW 256 /* unanswered sends of sendMessage --count */
#define PULL_MESSAGES 32
#define FOLLOW_HOLD_MS 5000
#define CLOCK_SKEW_MS (13 * 3600 * 1000LL) /* RocketMQ's allowance when it searches by the time in an id */

/* --- sendMessage ---- */

struct sending {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t waiting, good, bad;
    int64_t by_status[4];
    struct ledgermq_error first_error;
};

static void sent(void *context, const struct ledgermq_send_result *result, const struct ledgermq_error *error)
{
    struct sending *sending = context;
    pthread_mutex_lock(&sending->lock);
    sending->waiting--;
    if (result != NULL) {
        sending->good++;
        sending->by_status[result->status & 3]++;
    } else if (sending->bad++ == 0) {
        sending->first_error = *error;
    }
    pthread_cond_signal(&sending->changed);
    pthread_mutex_unlock(&sending->lock);
}

/* Copies pattern with every "%d" replaced by the message's number. */
static char *body_of(const char *pattern, int64_t number)
{
    size_t room = strlen(pattern) + 1;
    for (const char *at = pattern; (at = strstr(at, "%d")) != NULL; at += 2)
        room += 20;
    char *body = malloc(room), *out = body;
    if (body == NULL)
        return NULL;
    for (const char *at = pattern; *at != '\0';) {
        if (at[0] == '%' && at[1] == 'd') {
            out += snprintf(out, 21, "%lld", (long long)number);
            at += 2;
        } else {
            *out++ = *at++;
        }
    }
    *out = '\0';
    return body;
}

static int send_one(struct admin *admin, struct ledgermq_producer *producer, struct ledgermq_message *message,
                    const struct ledgermq_queue *queue)
{
    struct ledgermq_send_result result;
    struct ledgermq_error error;
    bool trace;
    if (!admin_bool(admin, "msgTraceEnable", false, &trace))
        return ADMIN_USAGE;
    int64_t begin_ms = client_clock_ms();
    if (ledgermq_send_to(producer, message, queue, &result, &error) != LEDGERMQ_OK)
        return admin_fail(admin, "%s", error.message);
    if (trace && !message_trace_sent(admin, producer, message, &result, begin_ms))
        return ADMIN_FAILED;
    printf("%-32s  %-4s  %-20s    %s\n", "#Broker Name", "#QID", "#Send Result", "#MsgId");
    printf("%-32s  %-4d  %-20s    %s\n", result.queue.broker_name, result.queue.queue_id,
           ledgermq_send_status_text(result.status), result.message_id);
    return ADMIN_OK;
}

static int send_many(struct admin *admin, struct ledgermq_producer *producer, struct ledgermq_message *message,
                     const struct ledgermq_queue *queue, int64_t count, const char *pattern)
{
    struct sending sending = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct ledgermq_error error = {0};
    struct timespec begin, end;
    int status = ADMIN_OK;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int64_t i = 0; i < count && status == ADMIN_OK; i++) {
        char *body = body_of(pattern, i);
        if (body == NULL) {
            status = admin_fail(admin, "out of memory");
            break;
        }
        message->body = body;
        message->body_size = strlen(body);
        pthread_mutex_lock(&sending.lock);
        while (sending.waiting >= SEND_WINDOW)
            pthread_cond_wait(&sending.changed, &sending.lock);
        sending.waiting++;
        pthread_mutex_unlock(&sending.lock);
        if (ledgermq_send_async(producer, message, queue, sent, &sending, &error) != LEDGERMQ_OK) {
            status = admin_fail(admin, "%s", error.message);
            pthread_mutex_lock(&sending.lock);
            sending.waiting--;
            pthread_mutex_unlock(&sending.lock);
        }
        free(body);
    }
    pthread_mutex_lock(&sending.lock);
    while (sending.waiting > 0)
        pthread_cond_wait(&sending.changed, &sending.lock);
    pthread_mutex_unlock(&sending.lock);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    printf("sent %lld of %lld messages to %s in %.2f s (%.0f/s):", (long long)sending.good, (long long)count,
           message->topic, seconds, (double)sending.good / (seconds > 0 ? seconds : 1));
    for (int i = 0; i < 4; i++)
        if (sending.by_status[i] > 0)
            printf(" %s %lld", ledgermq_send_status_text(i), (long long)sending.by_status[i]);
    printf("\n");
    if (sending.bad > 0)
        status = admin_fail(admin, "%lld were not sent; the first: %s", (long long)sending.bad,
                            sending.first_error.message);
    return status;
}

static int send_message(struct admin *admin)
{
    struct ledgermq_producer_options options;
    struct ledgermq_producer *producer;
    struct ledgermq_error error;
    struct ledgermq_queue queue = {.queue_id = 0};
    struct ledgermq_message message = {
        .topic = admin_text(admin, "topic"), .tags = admin_text(admin, "tags"), .keys = admin_text(admin, "keys")};
    int64_t count, queue_id, delay, timeout;
    const char *broker = admin_text(admin, "broker"), *pattern = admin_text(admin, "body");
    if (!admin_number(admin, "count", 1, 1, INT64_MAX, &count) ||
        !admin_number(admin, "qid", 0, 0, INT32_MAX, &queue_id) ||
        !admin_number(admin, "delayLevel", 0, 0, 1000, &delay) ||
        !admin_number(admin, "sendTimeout", 3000, 1, 600000, &timeout))
        return ADMIN_USAGE;
    if (admin_has(admin, "qid") && broker == NULL)
        return admin_usage(admin, "-i needs -b: a queue belongs to a broker");
    if (!admin_connect(admin))
        return ADMIN_FAILED;
    ledgermq_producer_options_init(&options);
    options.group = admin_has(admin, "group") ? admin_text(admin, "group") : "CLIENT_INNER_PRODUCER";
    options.send_timeout_ms = (int)timeout;
    if (ledgermq_producer_new(admin->client, &options, &producer, &error) != LEDGERMQ_OK)
        return admin_fail(admin, "%s", error.message);
    admin_await_leader(admin);
    message.delay_level = (int)delay;
    struct ledgermq_queue *wanted = NULL;
    if (broker != NULL) {
        snprintf(queue.topic, sizeof queue.topic, "%s", message.topic);
        snprintf(queue.broker_name, sizeof queue.broker_name, "%s", broker);
        queue.queue_id = (int32_t)queue_id;
        wanted = &queue;
    }
    int status;
    if (!admin_has(admin, "count")) {
        message.body = pattern;
        message.body_size = strlen(pattern);
        status = send_one(admin, producer, &message, wanted);
    } else {
        status = send_many(admin, producer, &message, wanted, count, pattern);
    }
    ledgermq_producer_free(producer);
    return status;
}

/* --- reading ---- */

static void print_message(const struct ledgermq_stored_message *message, bool with_offset_id)
{
    char time[32];
    if (with_offset_id)
        printf("%-20s %s\n", "OffsetID:", message->offset_message_id);
    printf("%-20s %s\n", "Topic:", message->topic);
    printf("%-20s [%s]\n", "Tags:", message->tags != NULL ? message->tags : "null");
    printf("%-20s [%s]\n", "Keys:", message->keys != NULL ? message->keys : "");
    printf("%-20s %d\n", "Queue ID:", message->queue_id);
    printf("%-20s %lld\n", "Queue Offset:", (long long)message->queue_offset);
    printf("%-20s %lld\n", "CommitLog Offset:", (long long)message->physical_offset);
    printf("%-20s %d\n", "Reconsume Times:", message->reconsume_times);
    printf("%-20s %s\n", "Born Timestamp:", admin_time(message->born_timestamp_ms, time));
    printf("%-20s %s\n", "Store Timestamp:", admin_time(message->store_timestamp_ms, time));
    printf("%-20s %s\n", "Born Host:", message->born_host);
    printf("%-20s %s\n", "Store Host:", message->store_host);
    printf("%-20s %d\n", "System Flag:", message->sys_flag);
    printf("%-20s ", "Properties:");
    message_print_properties(message);
    printf("\n%-20s ", "Message Body:");
    message_print_bytes(message->body, message->body_size);
    putchar('\n');
}

struct reading {
    struct ledgermq_pull_consumer *consumer;
    const char *expression;
    bool print, print_body, quiet, follow;
    int64_t begin_ms, end_ms;
    int64_t left; /* messages still wanted */
    int64_t count;
};

/* Start and end offset of one queue. end is -1 when it is to be read to whatever end it has. */
static bool queue_range(struct admin *admin, struct reading *reading, const struct ledgermq_queue *queue,
                        int64_t *start, int64_t *end)
{
    struct ledgermq_error error;
    int64_t given;
    if (!admin_number(admin, "offset", -1, 0, INT64_MAX, &given))
        return false;
    *end = -1;
    int rv = LEDGERMQ_OK;
    if (given >= 0)
        *start = given;
    else if (reading->begin_ms > 0)
        rv = ledgermq_search_offset(reading->consumer, queue, reading->begin_ms, start, &error);
    else
        rv = ledgermq_min_offset(reading->consumer, queue, start, &error);
    if (rv == LEDGERMQ_OK && reading->end_ms > 0) {
        rv = ledgermq_search_offset(reading->consumer, queue, reading->end_ms, end, &error);
        *end += 1; /* the message found is the last wanted one */
    }
    if (rv != LEDGERMQ_OK)
        admin_fail(admin, "queue %d of %s: %s", queue->queue_id, queue->broker_name, error.message);
    return rv == LEDGERMQ_OK;
}

/* Reads one queue from *offset on until its end, or the number of messages wanted. */
static int read_queue(struct admin *admin, struct reading *reading, const struct ledgermq_queue *queue,
                      int64_t *offset, int64_t end, int hold_ms)
{
    while (reading->left > 0 && (end < 0 || *offset < end)) {
        struct ledgermq_pull_result *result;
        struct ledgermq_error error;
        int64_t wanted = reading->left < PULL_MESSAGES ? reading->left : PULL_MESSAGES;
        if (end >= 0 && end - *offset < wanted)
            wanted = end - *offset;
        if (ledgermq_pull(reading->consumer, queue, reading->expression, *offset, (int)wanted, hold_ms, &result,
                          &error) != LEDGERMQ_OK)
            return admin_fail(admin, "queue %d of %s: %s", queue->queue_id, queue->broker_name, error.message);
        if (result->status == LEDGERMQ_FOUND && !reading->quiet)
            printf("Consume ok\n");
        for (size_t i = 0; i < result->count && reading->left > 0; i++) {
            if (!reading->quiet)
                message_print_line(&result->messages[i], true);
            reading->count++;
            reading->left--;
        }
        bool at_end = result->status == LEDGERMQ_NO_NEW_MESSAGE || result->status == LEDGERMQ_OFFSET_ILLEGAL;
        *offset = result->next_offset;
        if (at_end && !reading->follow && !reading->quiet)
            printf("MessageQueue [topic=%s, brokerName=%s, queueId=%d] print msg finished. status=%s, offset=%lld\n",
                   queue->topic, queue->broker_name, queue->queue_id, ledgermq_pull_status_text(result->status),
                   (long long)result->next_offset);
        ledgermq_pull_result_free(result);
        if (at_end)
            break;
    }
    return ADMIN_OK;
}

static int read_queues(struct admin *admin, struct reading *reading, const struct ledgermq_queue *queues,
                       size_t count)
{
    int64_t *offsets = calloc(count + 1, sizeof *offsets), *ends = calloc(count + 1, sizeof *ends);
    int status = ADMIN_FAILED;
    if (offsets == NULL || ends == NULL)
        goto free_offsets;
    for (size_t i = 0; i < count; i++)
        if (!queue_range(admin, reading, &queues[i], &offsets[i], &ends[i]))
            goto free_offsets;
    status = ADMIN_OK;
    for (size_t i = 0; i < count && status == ADMIN_OK; i++)
        status = read_queue(admin, reading, &queues[i], &offsets[i], ends[i], 0);
    while (reading->follow && reading->left > 0 && status == ADMIN_OK) {
        int64_t before = reading->count;
        for (size_t i = 0; i < count && status == ADMIN_OK; i++)
            status = read_queue(admin, reading, &queues[i], &offsets[i], -1, count == 1 ? FOLLOW_HOLD_MS : 0);
        fflush(stdout);
        if (count > 1 && reading->count == before)
            uv_sleep(100);
    }
free_offsets:
    free(offsets);
    free(ends);
    return status;
}

/* Keeps the queues that -b and -i name. */
static size_t wanted_queues(struct ledgermq_queue *queues, size_t count, const char *broker, int64_t queue_id)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if ((broker == NULL || strcmp(queues[i].broker_name, broker) == 0) &&
            (queue_id < 0 || queues[i].queue_id == queue_id))
            queues[kept++] = queues[i];
    return kept;
}

static int consume_message(struct admin *admin)
{
    const char *topic = admin_text(admin, "topic"), *broker = admin_text(admin, "brokerName");
    struct reading reading = {.expression = admin_text(admin, "subExpression"),
                              .quiet = admin_has(admin, "quiet"),
                              .follow = admin_has(admin, "follow")};
    struct ledgermq_queue *queues = NULL;
    struct ledgermq_error error;
    int64_t queue_id, left;
    size_t count;
    if (!admin_number(admin, "queueId", -1, 0, INT32_MAX, &queue_id) ||
        !admin_number(admin, "MessageNumber", INT64_MAX, 1, INT64_MAX, &left) ||
        !admin_time_option(admin, "beginTimestamp", &reading.begin_ms) ||
        !admin_time_option(admin, "endTimestamp", &reading.end_ms))
        return ADMIN_USAGE;
    if (admin_has(admin, "offset") && (broker == NULL || queue_id < 0))
        return admin_usage(admin, "-o needs -b and -i: offsets are counted per queue");
    if (!admin_connect(admin))
        return ADMIN_FAILED;
    reading.left = left;
    const char *group = admin_has(admin, "consumerGroup") ? admin_text(admin, "consumerGroup") : "TOOLS_CONSUMER";
    if (ledgermq_pull_consumer_new(admin->client, group, &reading.consumer, &error) != LEDGERMQ_OK)
        return admin_fail(admin, "%s", error.message);
    int status = ADMIN_FAILED;
    if (ledgermq_subscribe_queues(reading.consumer, topic, &queues, &count, &error) != LEDGERMQ_OK) {
        admin_fail(admin, "%s", error.message);
        goto free_consumer;
    }
    count = wanted_queues(queues, count, broker, queue_id);
    if (count == 0) {
        admin_fail(admin, "topic %s has no such queue that can be read: see mqadmin topicRoute -t %s -l", topic,
                   topic);
        goto free_queues;
    }
    if (admin_has(admin, "MessageNumber") && !reading.quiet)
        printf("The oldler %lld message will be provided\n", (long long)left);
    status = read_queues(admin, &reading, queues, count);
    if (reading.quiet || admin_has(admin, "count"))
        printf("Total: %lld messages\n", (long long)reading.count);
free_queues:
    ledgermq_queues_free(queues);
free_consumer:
    ledgermq_pull_consumer_free(reading.consumer);
    return status;
}

/* --- finding ---- */

static int not_found(struct admin *admin, const struct ledgermq_error *error)
{
    if (error->response_code != 0)
        return admin_fail(admin, "CODE: %d DESC: %s", error->response_code, error->message);
    return admin_fail(admin, "%s", error->message);
}

/* With -g and -d: gives it to that client; with -s true: sends it again; else shows it and who has had it. */
static int use_message(struct admin *admin, const struct ledgermq_stored_message *message, bool with_offset_id)
{
    bool resend;
    if (!admin_bool(admin, "sendMessage", false, &resend))
        return ADMIN_USAGE;
    if (admin_has(admin, "consumerGroup") != admin_has(admin, "clientId"))
        return admin_usage(admin, "-g and -d go together: a client of a group");
    if (admin_has(admin, "clientId"))
        return message_track_consume(admin, message);
    if (resend)
        return message_track_resend(admin, message);
    print_message(message, with_offset_id);
    message_track_print(admin, message);
    return ADMIN_OK;
}

static int use_result(struct admin *admin, struct ledgermq_pull_result *result, bool all, bool with_offset_id)
{
    int status = ADMIN_OK;
    for (size_t i = 0; i < result->count && (all || i == 0); i++) {
        int rv = use_message(admin, &result->messages[i], with_offset_id);
        status = rv != ADMIN_OK ? rv : status;
    }
    ledgermq_pull_result_free(result);
    return status;
}

static int query_msg_by_id(struct admin *admin)
{
    struct ledgermq_pull_result *result;
    struct ledgermq_error error;
    if (!admin_connect(admin))
        return ADMIN_FAILED;
    char ids[4096], *rest = ids, *id;
    snprintf(ids, sizeof ids, "%s", admin_text(admin, "msgId"));
    int status = ADMIN_OK;
    while ((id = strsep(&rest, ",")) != NULL) {
        int rv = ledgermq_view_message(admin->client, id, &result, &error) == LEDGERMQ_OK ? use_result(admin, result, true, true)
                                                                                          : not_found(admin, &error);
        status = rv != ADMIN_OK ? rv : status;
    }
    return status;
}

static int query_msg_by_key(struct admin *admin)
{
    struct ledgermq_pull_result *result;
    struct ledgermq_error error;
    int64_t begin, end, max;
    if (!admin_time_option(admin, "beginTimestamp", &begin) || !admin_time_option(admin, "endTimestamp", &end) ||
        !admin_number(admin, "maxNum", 64, 1, 1000000, &max))
        return ADMIN_USAGE;
    if (!admin_connect(admin))
        return ADMIN_FAILED;
    if (ledgermq_query_messages(admin->client, admin_text(admin, "topic"), admin_text(admin, "msgKey"), false,
                                (int)max, begin, end, &result, &error) != LEDGERMQ_OK)
        return not_found(admin, &error);
    printf("%-50s %4s %40s\n", "#Message ID", "#QID", "#Offset");
    for (size_t i = 0; i < result->count; i++)
        printf("%-50s %4d %40lld\n", result->messages[i].message_id, result->messages[i].queue_id,
               (long long)result->messages[i].queue_offset);
    ledgermq_pull_result_free(result);
    return ADMIN_OK;
}

static int query_msg_by_unique_key(struct admin *admin)
{
    const char *id = admin_text(admin, "msgId");
    struct ledgermq_pull_result *result;
    struct ledgermq_error error;
    if (!admin_connect(admin))
        return ADMIN_FAILED;
    int64_t made = message_client_id_time_ms(id, client_clock_ms());
    int64_t begin = made > CLOCK_SKEW_MS ? made - CLOCK_SKEW_MS : 0;
    if (ledgermq_query_messages(admin->client, admin_text(admin, "topic"), id, true, 32, begin, 0, &result, &error) !=
        LEDGERMQ_OK)
        return not_found(admin, &error);
    return use_result(admin, result, admin_has(admin, "showAll"), false);
}

static int query_msg_by_offset(struct admin *admin)
{
    struct ledgermq_pull_consumer *consumer;
    struct ledgermq_pull_result *result;
    struct ledgermq_error error;
    struct ledgermq_queue queue = {.queue_id = 0};
    int64_t queue_id, offset;
    if (!admin_number(admin, "queueId", 0, 0, INT32_MAX, &queue_id) ||
        !admin_number(admin, "offset", 0, 0, INT64_MAX, &offset))
        return ADMIN_USAGE;
    if (!admin_connect(admin))
        return ADMIN_FAILED;
    snprintf(queue.topic, sizeof queue.topic, "%s", admin_text(admin, "topic"));
    snprintf(queue.broker_name, sizeof queue.broker_name, "%s", admin_text(admin, "brokerName"));
    queue.queue_id = (int32_t)queue_id;
    if (ledgermq_pull_consumer_new(admin->client, "TOOLS_CONSUMER", &consumer, &error) != LEDGERMQ_OK)
        return admin_fail(admin, "%s", error.message);
    int rv = ledgermq_pull(consumer, &queue, "*", offset, 1, 0, &result, &error);
    ledgermq_pull_consumer_free(consumer); /* it is none of the groups that have the message */
    if (rv != LEDGERMQ_OK)
        return not_found(admin, &error);
    if (result->count > 0)
        return use_result(admin, result, false, true);
    int status = admin_fail(admin, "no message at offset %lld: the queue holds %lld to %lld", (long long)offset,
                            (long long)result->min_offset, (long long)result->max_offset - 1);
    ledgermq_pull_result_free(result);
    return status;
}

/* Not in RocketMQ's mqadmin, which has it as an API only (DefaultMQAdminExt#resumeCheckHalfMessage). */
static int resume_check_half_message(struct admin *admin)
{
    const char *id = admin_text(admin, "msgId");
    const struct remoting_field fields[] = {{"msgId", id}, {NULL, NULL}};
    struct remoting_response response;
    if (!admin_call(admin, admin_text(admin, "brokerAddr"), REQUEST_RESUME_CHECK_HALF_MESSAGE, fields, NO_BODY, &response))
        return ADMIN_FAILED;
    remoting_response_close(&response);
    printf("resume check of half message [%s] success.\n", id);
    return ADMIN_OK;
}

static int decode_message_id(struct admin *admin)
{
    struct message_host host;
    char address[64], time[32];
    int64_t offset;
    const char *id = admin_text(admin, "messageId");
    if (!message_id_parse(slice_of_text(id), &host, &offset))
        return admin_fail(admin, "'%s' is no message id: it has 32 (or 56) hexadecimal digits", id);
    int64_t made = message_client_id_time_ms(id, client_clock_ms());
    message_host_format(&host, address, sizeof address);
    printf("as an offset id: %s, commit log offset %lld\n", address, (long long)offset);
    printf("as a UNIQ_KEY:   made %s if this month or the last one\n", admin_time(made, time));
    return ADMIN_OK;
}

static const struct admin_option send_message_options[] = {
    {'t', "topic", "TOPIC", true, "where to"},
    {'p', "body", "TEXT", true, "what; with --count every %d is replaced by the number of the message, from 0"},
    {'N', "count", "N", false, "so many messages, over all queues; a summary is printed"},
    {'k', "keys", "KEYS", false, "index keys, blanks between"},
    {'c', "tags", "TAG", false, "tag"},
    {'b', "broker", "NAME", false, "to this broker (its name)"},
    {'i', "qid", "ID", false, "to this queue of it"},
    {'g', "group", "GROUP", false, "producer group: CLIENT_INNER_PRODUCER"},
    {'m', "msgTraceEnable", "true|false", false, "with a trace in RMQ_SYS_TRACE_TOPIC (one message only): false"},
    {0, "delayLevel", "LEVEL", false,
     "deliver later: 1 to 18 are 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"},
    {0, "sendTimeout", "MS", false, "for each message, over all tries: 3000"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option consume_message_options[] = {
    {'t', "topic", "TOPIC", true, "what to read"},
    {'b', "brokerName", "NAME", false, "queues of this broker only"},
    {'i', "queueId", "ID", false, "this queue only"},
    {'o', "offset", "N", false, "start here (with -b and -i)"},
    {'g', "consumerGroup", "GROUP", false, "group: TOOLS_CONSUMER; offsets are not stored"},
    {'s', "beginTimestamp", "TIME", false, "start at this time: ms, or yyyy-MM-dd#HH:mm:ss:SSS"},
    {'e', "endTimestamp", "TIME", false, "end at this time"},
    {'c', "MessageNumber", "N", false, "stop after so many"},
    {'x', "subExpression", "EXPRESSION", false, "TagA || TagB, or sql:... for SQL92"},
    {'f', "follow", NULL, false, "go on when the end is reached (else that ends it)"},
    {'q', "quiet", NULL, false, "print the number only"},
    {0, "count", NULL, false, "print the number too"},
    {0, NULL, NULL, false, NULL},
};
#define CONSUME_OPTIONS                                                                                      \
    {'g', "consumerGroup", "GROUP", false, "have a client of this group consume it"},                        \
    {'d', "clientId", "ID", false, "which client"}
static const struct admin_option by_id_options[] = {
    {'i', "msgId", "ID", true, "offset message id (several: comma between)"},
    CONSUME_OPTIONS,
    {'s', "sendMessage", "true|false", false, "send it again: false"},
    {'u', "unitName", "NAME", false, "accepted"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option by_key_options[] = {
    {'t', "topic", "TOPIC", true, "its topic"},
    {'k', "msgKey", "KEY", true, "one of its keys"},
    {'b', "beginTimestamp", "TIME", false, "stored after"},
    {'e', "endTimestamp", "TIME", false, "stored before"},
    {'m', "maxNum", "N", false, "at most so many: 64"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option by_unique_key_options[] = {
    {'t', "topic", "TOPIC", true, "its topic"},
    {'i', "msgId", "ID", true, "the id its producer made"},
    CONSUME_OPTIONS,
    {'a', "showAll", NULL, false, "all that have it, not the first only"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option by_offset_options[] = {
    {'t', "topic", "TOPIC", true, "its topic"},
    {'b', "brokerName", "NAME", true, "its broker's name"},
    {'i', "queueId", "ID", true, "its queue"},
    {'o', "offset", "N", true, "its queue offset"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option trace_options[] = {
    {'i', "msgId", "ID", true, "the id its producer made"},
    {'t', "traceTopic", "TOPIC", false, "where traces are: RMQ_SYS_TRACE_TOPIC"},
    {'b', "beginTimestamp", "TIME", false, "stored after"},
    {'e', "endTimestamp", "TIME", false, "stored before"},
    {'c', "maxNum", "N", false, "at most so many trace messages: 64"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option resume_options[] = {
    {'b', "brokerAddr", "ADDRESS", true, "a broker of the group that holds it"},
    {'i', "msgId", "ID", true, "offset message id of the half message, or of its copy in TRANS_CHECK_MAX_TIME_TOPIC"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option decode_options[] = {
    {'i', "messageId", "ID", true, "a message id"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command message_commands[] = {
    {"sendMessage", "Send one message, or many", send_message_options, send_message, NULL},
    {"consumeMessage", "Read messages from the beginning to the end, without moving any group's offsets",
     consume_message_options, consume_message, NULL},
    {"queryMsgById", "Show a message by its offset id", by_id_options, query_msg_by_id, NULL},
    {"queryMsgByKey", "Find messages by key", by_key_options, query_msg_by_key, NULL},
    {"queryMsgByUniqueKey", "Show a message by the id its producer made", by_unique_key_options,
     query_msg_by_unique_key, NULL},
    {"queryMsgByOffset", "Show a message by its place in a queue", by_offset_options, query_msg_by_offset, NULL},
    {"queryMsgTraceById", "Show when and by whom a message was sent and consumed", trace_options, message_trace_query, NULL},
    {"resumeCheckHalfMessage", "Have a transaction that waits, or was given up, checked back again", resume_options,
     resume_check_half_message, NULL},
    {"DecodeMessageId", "Take a message id apart", decode_options, decode_message_id, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
