#include "client/admin/message_trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "proto/topic_validator.h"

#define TRACE_TOPIC "RMQ_SYS_TRACE_TOPIC"
#define FIELDS_MAX 16

/* --- records ---- */

static struct slice take(struct slice *rest, uint8_t end)
{
    const uint8_t *at = rest->size == 0 ? NULL : memchr(rest->data, end, rest->size);
    struct slice part = slice_of(rest->data, at == NULL ? rest->size : (size_t)(at - rest->data));
    size_t taken = part.size + (at != NULL);
    *rest = slice_of(rest->size == taken ? NULL : rest->data + taken, rest->size - taken);
    return part;
}

static int64_t number(struct slice text)
{
    int64_t value = 0;
    (void)slice_to_i64(text, &value);
    return value;
}

static bool parse(struct slice record, struct message_trace *trace)
{
    struct slice fields[FIELDS_MAX] = {{NULL, 0}};
    size_t count = 0;
    while (record.size > 0 && count < FIELDS_MAX)
        fields[count++] = take(&record, 1);
    *trace = (struct message_trace){.success = true};
    if (slice_equal_text(fields[0], "Pub") && count >= 13) {
        trace->type = TRACE_PUB;
        trace->time_ms = number(fields[1]);
        trace->group = fields[3];
        trace->message_id = fields[5];
        trace->cost_ms = number(fields[10]);
        /* Old clients have no offsetMsgId in front of it. */
        trace->success = slice_equal_text(fields[count >= 14 ? 13 : 12], "true");
        return true;
    }
    if (slice_equal_text(fields[0], "SubBefore") && count >= 6) {
        trace->type = TRACE_SUB_BEFORE;
        trace->time_ms = number(fields[1]);
        trace->group = fields[3];
        trace->message_id = fields[5];
        return true;
    }
    if (slice_equal_text(fields[0], "SubAfter") && count >= 5) {
        trace->type = TRACE_SUB_AFTER;
        trace->message_id = fields[2];
        trace->cost_ms = number(fields[3]);
        trace->success = slice_equal_text(fields[4], "true");
        trace->time_ms = number(fields[7]);
        trace->group = fields[8];
        return true;
    }
    return false;
}

bool message_trace_next(struct slice *rest, struct message_trace *trace)
{
    while (rest->size > 0)
        if (parse(take(rest, 2), trace))
            return true;
    return false;
}

/* --- writing ---- */

bool message_trace_sent(struct admin *admin, struct ledgermq_producer *producer, const struct ledgermq_message *message,
                        const struct ledgermq_send_result *result, int64_t begin_ms)
{
    struct ledgermq_send_result ignored;
    struct ledgermq_error error;
    struct buffer body, keys;
    const char *group = admin_has(admin, "group") ? admin_text(admin, "group") : "CLIENT_INNER_PRODUCER";
    buffer_init(&body, 0);
    buffer_init(&keys, 0);
    buffer_append_format(&body, "Pub\001%lld\001DefaultRegion\001%s\001%s\001%s\001%s\001%s\001%s\001%zu\001%lld\001%d\001%s\001true\002",
                         (long long)begin_ms, group, message->topic, result->message_id,
                         message->tags != NULL ? message->tags : "", message->keys != NULL ? message->keys : "",
                         result->queue.broker_name, message->body_size, (long long)(client_clock_ms() - begin_ms), 0,
                         result->offset_message_id);
    buffer_append_format(&keys, "%s%s%s", result->message_id, message->keys != NULL ? " " : "",
                         message->keys != NULL ? message->keys : "");
    buffer_append_u8(&keys, 0);
    const struct ledgermq_message trace = {
        .topic = TRACE_TOPIC, .body = body.data, .body_size = body.size, .keys = (const char *)keys.data};
    bool ok = !body.failed && !keys.failed && ledgermq_send(producer, &trace, &ignored, &error) == LEDGERMQ_OK;
    if (!ok)
        admin_fail(admin, "the message was sent (%s), its trace was not: %s", result->message_id,
                   body.failed || keys.failed ? "out of memory" : error.message);
    buffer_close(&body);
    buffer_close(&keys);
    return ok;
}

/* --- queryMsgTraceById ---- */

static void print_trace(const struct message_trace *trace, const char *type, const struct ledgermq_stored_message *message)
{
    char time[32], cost[32], host[64];
    snprintf(host, sizeof host, "%s", message->born_host);
    char *colon = strrchr(host, ':');
    if (colon != NULL)
        *colon = '\0';
    snprintf(cost, sizeof cost, "%lldms", (long long)trace->cost_ms);
    printf("%-10s %-20.*s %-20s %-20s %-10s %-10s\n", type, ADMIN_SLICE(trace->group), host,
           admin_time_seconds(trace->time_ms, time), cost, trace->success ? "success" : "failed");
}

static void print_head(const char *group, const char *time)
{
    printf("%-10s %-20s %-20s %-20s %-10s %-10s\n", "#Type", group, "#ClientHost", time, "#CostTimes", "#Status");
}

static bool printed(const struct slice *groups, size_t count, struct slice group)
{
    for (size_t i = 0; i < count; i++)
        if (slice_equal(groups[i], group))
            return true;
    return false;
}

/* Rows of one type; of one group, unless it is NULL. Returns how many, prints them unless only counting. */
static size_t each_trace(const struct ledgermq_pull_result *result, const char *id, int type, const struct slice *group)
{
    size_t count = 0;
    for (size_t i = 0; i < result->count; i++) {
        struct slice rest = slice_of(result->messages[i].body, result->messages[i].body_size);
        struct message_trace trace;
        while (message_trace_next(&rest, &trace)) {
            if ((int)trace.type != type || !slice_equal_text(trace.message_id, id) ||
                (group != NULL && !slice_equal(trace.group, *group)))
                continue;
            count++;
            if (type == TRACE_PUB)
                print_head("#ProducerGroup", "#SendTime");
            print_trace(&trace, type == TRACE_PUB ? "Pub" : "Sub", &result->messages[i]);
            if (type == TRACE_PUB)
                printf("\n");
        }
    }
    return count;
}

/* A table for each consumer group, in the order in which they were met. */
static size_t print_consumers(const struct ledgermq_pull_result *result, const char *id)
{
    struct slice *groups = NULL;
    size_t group_count = 0, count = 0;
    for (size_t i = 0; i < result->count; i++) {
        struct slice rest = slice_of(result->messages[i].body, result->messages[i].body_size);
        struct message_trace trace;
        while (message_trace_next(&rest, &trace)) {
            if (trace.type != TRACE_SUB_AFTER || !slice_equal_text(trace.message_id, id) ||
                printed(groups, group_count, trace.group))
                continue;
            struct slice *more = realloc(groups, (group_count + 1) * sizeof *groups);
            if (more == NULL)
                break;
            groups = more;
            groups[group_count++] = trace.group;
            print_head("#ConsumerGroup", "#ConsumerTime");
            count += each_trace(result, id, TRACE_SUB_AFTER, &trace.group);
            printf("\n");
        }
    }
    free(groups);
    return count;
}

int message_trace_query(struct admin *admin)
{
    const char *id = admin_text(admin, "msgId");
    const char *topic = admin_has(admin, "traceTopic") ? admin_text(admin, "traceTopic") : TRACE_TOPIC;
    struct ledgermq_pull_result *result;
    struct ledgermq_error error;
    int64_t begin, end, max;
    if (!admin_time_option(admin, "beginTimestamp", &begin) || !admin_time_option(admin, "endTimestamp", &end) ||
        !admin_number(admin, "maxNum", 64, 1, 1000000, &max))
        return ADMIN_USAGE;
    if (!admin_connect(admin))
        return ADMIN_FAILED;
    if (ledgermq_query_messages(admin->client, topic, id, false, (int)max, begin, end, &result, &error) != LEDGERMQ_OK)
        return admin_fail(admin, "no trace of %s in %s: %s", id, topic, error.message);
    size_t count = each_trace(result, id, TRACE_PUB, NULL);
    count += print_consumers(result, id);
    ledgermq_pull_result_free(result);
    return count > 0 ? ADMIN_OK : admin_fail(admin, "what %s holds under the key %s is no trace of it", topic, id);
}
