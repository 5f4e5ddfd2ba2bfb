/* Messages and queue units, one after another (org.apache.rocketmq.tools.command.message.PrintMessageSubCommand, PrintMessageByQueueCommand,
 * .queue.QueryConsumeQueueCommand). */
#include <stdio.h>
#include <stdlib.h>

#include "client/admin/admin_ask.h"
#include "client/admin/message_print.h"
#include "proto/request_code.h"

#define PULL_MESSAGES 32

/* --- printMsg, printMsgByQueue ---- */

struct tag_count {
    char *tag;
    int64_t count;
};

struct printing {
    struct admin *admin;
    struct ledgermq_pull_consumer *consumer;
    const char *expression;
    bool print, body, by_tag;
    int64_t begin_ms, end_ms;
    struct tag_count *tags;
    size_t tag_count;
};

static bool count_tag(struct printing *printing, const char *tag)
{
    if (tag == NULL)
        return true; /* as Java: messages without a tag are not counted */
    for (size_t i = 0; i < printing->tag_count; i++) {
        if (strcmp(printing->tags[i].tag, tag) == 0) {
            printing->tags[i].count++;
            return true;
        }
    }
    struct tag_count *tags = realloc(printing->tags, (printing->tag_count + 1) * sizeof *tags);
    if (tags == NULL)
        return false;
    printing->tags = tags;
    char *copy = strdup(tag);
    if (copy == NULL)
        return false;
    tags[printing->tag_count++] = (struct tag_count){.tag = copy, .count = 1};
    return true;
}

static int compare_tags(const void *a, const void *b)
{
    const struct tag_count *left = a, *right = b;
    return (right->count > left->count) - (right->count < left->count);
}

static void print_tags(struct printing *printing)
{
    if (printing->tag_count > 1)
        qsort(printing->tags, printing->tag_count, sizeof *printing->tags, compare_tags);
    for (size_t i = 0; i < printing->tag_count; i++)
        printf("Tag: %-30s Count: %lld\n", printing->tags[i].tag, (long long)printing->tags[i].count);
}

static void printing_close(struct printing *printing)
{
    for (size_t i = 0; i < printing->tag_count; i++)
        free(printing->tags[i].tag);
    free(printing->tags);
    ledgermq_pull_consumer_free(printing->consumer);
}

static bool range_of(struct printing *printing, const struct ledgermq_queue *queue, int64_t *begin, int64_t *end)
{
    struct ledgermq_error error;
    int rv = printing->begin_ms > 0 ? ledgermq_search_offset(printing->consumer, queue, printing->begin_ms, begin, &error)
                                    : ledgermq_min_offset(printing->consumer, queue, begin, &error);
    if (rv == LEDGERMQ_OK)
        rv = printing->end_ms > 0 ? ledgermq_search_offset(printing->consumer, queue, printing->end_ms, end, &error)
                                  : ledgermq_max_offset(printing->consumer, queue, end, &error);
    if (rv == LEDGERMQ_OK)
        return true;
    admin_fail(printing->admin, "queue %d of %s: %s", queue->queue_id, queue->broker_name, error.message);
    return false;
}

static void name_queue(const struct ledgermq_queue *queue)
{
    printf("MessageQueue [topic=%s, brokerName=%s, queueId=%d]", queue->topic, queue->broker_name, queue->queue_id);
}

static int print_queue(struct printing *printing, const struct ledgermq_queue *queue, int64_t begin, int64_t end, bool say_status)
{
    for (int64_t offset = begin; offset < end;) {
        struct ledgermq_pull_result *result;
        struct ledgermq_error error;
        int wanted = end - offset < PULL_MESSAGES ? (int)(end - offset) : PULL_MESSAGES;
        if (ledgermq_pull(printing->consumer, queue, printing->expression, offset, wanted, 0, &result, &error) != LEDGERMQ_OK)
            return admin_fail(printing->admin, "queue %d of %s: %s", queue->queue_id, queue->broker_name, error.message);
        bool done = result->status == LEDGERMQ_NO_NEW_MESSAGE || result->status == LEDGERMQ_OFFSET_ILLEGAL;
        bool memory = true;
        for (size_t i = 0; i < result->count && memory; i++) {
            if (printing->print)
                message_print_line(&result->messages[i], printing->body);
            memory = !printing->by_tag || count_tag(printing, result->messages[i].tags);
        }
        offset = result->next_offset;
        if (say_status && (done || result->status == LEDGERMQ_NO_MATCHED_MESSAGE)) {
            name_queue(queue);
            printf(" %s status=%s, offset=%lld\n", done ? "print msg finished." : "no matched msg.", ledgermq_pull_status_text(result->status),
                   (long long)offset);
        }
        ledgermq_pull_result_free(result);
        if (!memory)
            return admin_fail(printing->admin, "out of memory");
        if (done)
            break;
    }
    return ADMIN_OK;
}

static bool printing_open(struct admin *admin, struct printing *printing)
{
    struct ledgermq_error error;
    if (!admin_connect(admin))
        return false;
    if (ledgermq_pull_consumer_new(admin->client, "TOOLS_CONSUMER", &printing->consumer, &error) == LEDGERMQ_OK)
        return true;
    admin_fail(admin, "%s", error.message);
    return false;
}

static int print_msg(struct admin *admin)
{
    struct printing printing = {.admin = admin, .print = true, .expression = admin_text(admin, "subExpression")};
    struct ledgermq_queue *queues;
    struct ledgermq_error error;
    size_t count;
    if (!admin_bool(admin, "printBody", true, &printing.body) || !admin_time_option(admin, "beginTimestamp", &printing.begin_ms) ||
        !admin_time_option(admin, "endTimestamp", &printing.end_ms))
        return ADMIN_USAGE;
    if (!printing_open(admin, &printing))
        return ADMIN_FAILED;
    int status = ADMIN_OK;
    if (ledgermq_subscribe_queues(printing.consumer, admin_text(admin, "topic"), &queues, &count, &error) != LEDGERMQ_OK) {
        status = admin_fail(admin, "%s", error.message);
    } else {
        for (size_t i = 0; i < count && status == ADMIN_OK; i++) {
            int64_t begin, end;
            if (!range_of(&printing, &queues[i], &begin, &end)) {
                status = ADMIN_FAILED;
                break;
            }
            printf("minOffset=%lld, maxOffset=%lld, ", (long long)begin, (long long)end);
            name_queue(&queues[i]);
            putchar('\n');
            status = print_queue(&printing, &queues[i], begin, end, true);
            printf("--------------------------------------------------------\n");
        }
        ledgermq_queues_free(queues);
    }
    printing_close(&printing);
    return status;
}

static int print_msg_by_queue(struct admin *admin)
{
    struct printing printing = {.admin = admin, .expression = admin_text(admin, "subExpression")};
    struct ledgermq_queue queue = {.queue_id = 0};
    int64_t queue_id, begin, end;
    if (!admin_number(admin, "queueId", 0, 0, INT32_MAX, &queue_id) || !admin_bool(admin, "printMsg", false, &printing.print) ||
        !admin_bool(admin, "printBody", false, &printing.body) || !admin_bool(admin, "calculate", false, &printing.by_tag) ||
        !admin_time_option(admin, "beginTimestamp", &printing.begin_ms) || !admin_time_option(admin, "endTimestamp", &printing.end_ms))
        return ADMIN_USAGE;
    if (!printing_open(admin, &printing))
        return ADMIN_FAILED;
    snprintf(queue.topic, sizeof queue.topic, "%s", admin_text(admin, "topic"));
    snprintf(queue.broker_name, sizeof queue.broker_name, "%s", admin_text(admin, "brokerName"));
    queue.queue_id = (int32_t)queue_id;
    int status = range_of(&printing, &queue, &begin, &end) ? print_queue(&printing, &queue, begin, end, false) : ADMIN_FAILED;
    if (status == ADMIN_OK)
        print_tags(&printing);
    printing_close(&printing);
    return status;
}

/* --- queryCq ---- */

#define CQ_LINE "======================================\n"

/* JSON.toJSONString(..., true): a member on each line. */
static void print_object(struct json_value object)
{
    struct json_value name, value;
    bool first = true;
    printf("{\n");
    for (struct json_iterator at = json_iterate(object); json_next_member(&at, &name, &value);) {
        printf("%s\t%.*s:%.*s", first ? "" : ",\n", ADMIN_SLICE(json_raw(name)), ADMIN_SLICE(json_raw(value)));
        first = false;
    }
    printf("\n}\n");
}

static void print_units(struct json_value units, int64_t index)
{
    struct json_value unit;
    for (struct json_iterator at = json_iterate(units); json_next_element(&at, &unit); index++) {
        int64_t offset = 0, size = 0, tags = 0;
        bool eval = false;
        struct slice message = SLICE_LITERAL("null");
        (void)json_i64(json_get(unit, "physicOffset"), &offset);
        (void)json_i64(json_get(unit, "physicSize"), &size);
        (void)json_i64(json_get(unit, "tagsCode"), &tags);
        (void)json_bool(json_get(unit, "eval"), &eval);
        (void)json_text(json_get(unit, "msg"), &message);
        printf("idx: %lld\n", (long long)index);
        printf("ConsumeQueueData{physicOffset=%lld, physicSize=%lld, tagsCode=%lld, extendDataJson='null', bitMap='null', eval=%s, "
               "msg='%.*s'}\n" CQ_LINE,
               (long long)offset, (long long)size, (long long)tags, eval ? "true" : "false", ADMIN_SLICE(message));
    }
}

static int query_cq(struct admin *admin)
{
    const char *topic = admin_text(admin, "topic"), *group = admin_text(admin, "consumer"), *address = admin_text(admin, "broker");
    struct remoting_response response;
    struct json_document document;
    struct admin_targets brokers = {0};
    struct error error = {0};
    int64_t queue_id, index, count, min = 0, max = 0;
    if (!admin_number(admin, "queue", 0, 0, INT32_MAX, &queue_id) || !admin_number(admin, "index", 0, 0, INT64_MAX, &index) ||
        !admin_number(admin, "count", 10, 1, 1024, &count))
        return ADMIN_USAGE;
    const struct remoting_field fields[] = {{"topic", topic},
                                            {"queueId", admin_text(admin, "queue")},
                                            {"index", admin_text(admin, "index")},
                                            {"count", admin_has(admin, "count") ? admin_text(admin, "count") : "10"},
                                            {group == NULL ? NULL : "consumerGroup", group},
                                            {NULL, NULL}};
    if (address == NULL && !admin_topic_leaders(admin, topic, &brokers, false))
        return ADMIN_FAILED;
    bool ok = admin_call(admin, address != NULL ? address : brokers.all[0].address, REQUEST_QUERY_CONSUME_QUEUE, fields, NO_BODY, &response);
    admin_targets_free(&brokers);
    if (!ok)
        return ADMIN_FAILED;
    int status = ADMIN_OK;
    if (response.command.body.size == 0) { /* code 0 and a remark: no such index */
        status = admin_fail(admin, "%.*s", ADMIN_SLICE(response.command.remark));
    } else if (json_parse(&document, response.command.body, NULL, 0, &error) != 0) {
        status = admin_fail(admin, "%s", error.message);
    } else {
        struct json_value root = json_root(&document), subscription = json_get(root, "subscriptionData");
        struct slice filter = SLICE_LITERAL("null");
        (void)json_i64(json_get(root, "minQueueIndex"), &min);
        (void)json_i64(json_get(root, "maxQueueIndex"), &max);
        if (json_is_object(subscription)) {
            (void)json_text(json_get(root, "filterData"), &filter);
            printf("Subscription data: \n");
            print_object(subscription);
            printf(CQ_LINE "Filter data: \n%.*s\n" CQ_LINE, ADMIN_SLICE(filter));
        } else if (json_text(json_get(root, "filterData"), &filter)) {
            printf("Filter data: \n%.*s\n" CQ_LINE, ADMIN_SLICE(filter));
        }
        printf("Queue data: \nmax: %lld, min: %lld\n" CQ_LINE, (long long)max, (long long)min);
        print_units(json_get(root, "queueData"), index);
        json_close(&document);
    }
    remoting_response_close(&response);
    return status;
}

static const struct admin_option print_options[] = {
    {'t', "topic", "TOPIC", true, "what to print"},
    {'s', "subExpression", "EXPRESSION", false, "TagA || TagB"},
    {'b', "beginTimestamp", "TIME", false, "from this time on: now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS"},
    {'e', "endTimestamp", "TIME", false, "up to this time"},
    {'d', "printBody", "true|false", false, "with the bodies: true"},
    {'c', "charsetName", "NAME", false, "accepted; bodies are printed as they are"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option print_by_queue_options[] = {
    {'t', "topic", "TOPIC", true, "its topic"},
    {'a', "brokerName", "NAME", true, "its broker's name"},
    {'i', "queueId", "ID", true, "the queue"},
    {'s', "subExpression", "EXPRESSION", false, "TagA || TagB"},
    {'b', "beginTimestamp", "TIME", false, "from this time on: now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS"},
    {'e', "endTimestamp", "TIME", false, "up to this time"},
    {'p', "printMsg", "true|false", false, "print the messages: false"},
    {'d', "printBody", "true|false", false, "with their bodies: false"},
    {'f', "calculate", "true|false", false, "count the messages of each tag: false"},
    {'c', "charsetName", "NAME", false, "accepted; bodies are printed as they are"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option query_cq_options[] = {
    {'t', "topic", "TOPIC", true, "its topic"},
    {'q', "queue", "ID", true, "the queue"},
    {'i', "index", "N", true, "first unit"},
    {'c', "count", "N", false, "so many units: 10"},
    {'b', "broker", "ADDRESS", false, "ask this broker"},
    {'g', "consumer", "GROUP", false, "say which units this group's filter passes"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command print_commands[] = {
    {"printMsg", "Print the messages of a topic", print_options, print_msg, NULL},
    {"printMsgByQueue", "Print or count the messages of one queue", print_by_queue_options, print_msg_by_queue, NULL},
    {"queryCq", "Show units of a consume queue", query_cq_options, query_cq, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
