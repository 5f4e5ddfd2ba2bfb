/* Consumer groups that fall behind or stand still (org.apache.rocketmq.tools.monitor.MonitorService).
 *
 * Java writes to the client's log, first after 20 s; here the same lines come on standard output, the first round at once.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/admin/admin_ask.h"
#include "client/admin/running_info.h"
#include "proto/offset_moved_event.h"
#include "proto/topic_validator.h"

#define MOVED_TOPIC "OFFSET_MOVED_EVENT"
#define MONITOR_GROUP "__MONITOR_CONSUMER"
#define EVENT_LOOK_MS 500
#define EVENTS_AT_ONCE 32

struct monitor {
    struct admin *admin;
    struct ledgermq_pull_consumer *consumer;
    struct ledgermq_queue *queues; /* of OFFSET_MOVED_EVENT */
    int64_t *offsets;
    size_t queue_count;
};

/* --- what was not consumed ---- */

static int64_t last_update(const struct topic_stats_table *table, int32_t queue_id)
{
    for (size_t i = 0; i < table->offset_count; i++)
        if (table->offsets[i].queue.queue_id == queue_id)
            return table->offsets[i].last_update_timestamp_ms;
    return 0;
}

static void report_topic(struct admin *admin, const char *address, const char *group, const struct consume_stats *stats,
                         struct slice topic)
{
    char name[LEDGERMQ_TOPIC_MAX + 1];
    struct topic_stats_table table = {0};
    long long total = 0, single = 0, delay = 0;
    snprintf(name, sizeof name, "%.*s", ADMIN_SLICE(topic));
    bool known = admin_topic_stats(admin, address, name, &table);
    for (size_t i = 0; i < stats->offset_count; i++) {
        const struct consume_offset *row = &stats->offsets[i];
        if (!slice_equal(row->queue.topic, topic))
            continue;
        long long diff = row->broker_offset - row->consumer_offset;
        long long behind = row->last_timestamp_ms > 0 ? last_update(&table, row->queue.queue_id) - row->last_timestamp_ms : 0;
        total += diff > 0 ? diff : 0;
        single = diff > single ? diff : single;
        delay = behind > delay ? behind : delay;
    }
    if (known)
        topic_stats_table_close(&table);
    printf("[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup=%s, topic=%s, undoneMsgsTotal=%lld, "
           "undoneMsgsSingleMQ=%lld, undoneMsgsDelayTimeMills=%lld]\n",
           group, name, total, single, delay);
}

static void report_undone(struct admin *admin, const char *address, const char *group)
{
    struct consume_stats stats;
    if (!admin_consume_stats(admin, address, group, NULL, &stats, true))
        return;
    for (size_t i = 0; i < stats.offset_count; i++) {
        bool before = false;
        for (size_t k = 0; k < i && !before; k++)
            before = slice_equal(stats.offsets[k].queue.topic, stats.offsets[i].queue.topic);
        if (!before)
            report_topic(admin, address, group, &stats, stats.offsets[i].queue.topic);
    }
    consume_stats_close(&stats);
}

/* --- what clients say of themselves ---- */

static void report_clients(struct admin *admin, const char *address, const char *group,
                           const struct consumer_connection *connection)
{
    struct buffer first, other, trouble;
    bool any = false, same = true;
    buffer_init(&first, 0);
    buffer_init(&other, 0);
    buffer_init(&trouble, 0);
    for (size_t i = 0; i < connection->connection_count; i++) {
        char client_id[300];
        struct admin_json info;
        snprintf(client_id, sizeof client_id, "%.*s", ADMIN_SLICE(connection->connections[i].client_id));
        if (!admin_running_info(admin, address, group, client_id, false, &info, true))
            continue;
        running_info_subscription(json_root(&info.document), any ? &other : &first);
        same = same && (!any || slice_equal(buffer_slice(&first), buffer_slice(&other)));
        any = true;
        running_info_trouble(json_root(&info.document), client_id, client_clock_ms(), &trouble);
        if (trouble.size > 0)
            printf("[MONITOR] reportConsumerRunningInfo: ConsumerGroup: %s, ClientId: %s, %.*s", group, client_id,
                   (int)trouble.size, (const char *)trouble.data);
        admin_json_close(&info);
    }
    if (!same)
        printf("[MONITOR] reportConsumerRunningInfo: ConsumerGroup: %s, Subscription different\n", group);
    buffer_close(&first);
    buffer_close(&other);
    buffer_close(&trouble);
}

static int look(struct admin *admin)
{
    struct topic_list list;
    if (!admin_topic_list(admin, &list))
        return ADMIN_FAILED;
    printf("[MONITOR] =========================================beginRound\n");
    for (size_t i = 0; i < list.topic_count; i++) {
        char name[LEDGERMQ_TOPIC_MAX + 1];
        struct admin_targets brokers;
        if (!topic_is_retry(list.topics[i]))
            continue;
        snprintf(name, sizeof name, "%.*s", ADMIN_SLICE(list.topics[i]));
        const char *group = name + strlen(TOPIC_RETRY_PREFIX);
        if (!admin_group_leaders(admin, group, &brokers, true))
            continue;
        for (size_t k = 0; k < brokers.count; k++) {
            struct consumer_connection connection;
            if (!admin_consumer_connection(admin, brokers.all[k].address, group, &connection, true))
                continue; /* nobody is on line */
            report_undone(admin, brokers.all[k].address, group);
            if (k == 0)
                report_clients(admin, brokers.all[k].address, group, &connection);
            consumer_connection_close(&connection);
        }
        admin_targets_free(&brokers);
    }
    printf("[MONITOR] =========================================endRound\n");
    topic_list_close(&list);
    return ADMIN_OK;
}

/* --- offsets that were not there ---- */

static bool open_events(struct monitor *monitor)
{
    struct ledgermq_error error;
    if (!admin_connect(monitor->admin))
        return false;
    int rv = ledgermq_pull_consumer_new(monitor->admin->client, MONITOR_GROUP, &monitor->consumer, &error);
    if (rv == LEDGERMQ_OK)
        rv = ledgermq_subscribe_queues(monitor->consumer, MOVED_TOPIC, &monitor->queues, &monitor->queue_count, &error);
    monitor->offsets = calloc(monitor->queue_count + 1, sizeof *monitor->offsets);
    for (size_t i = 0; rv == LEDGERMQ_OK && monitor->offsets != NULL && i < monitor->queue_count; i++)
        rv = ledgermq_max_offset(monitor->consumer, &monitor->queues[i], &monitor->offsets[i], &error);
    if (rv != LEDGERMQ_OK || monitor->offsets == NULL)
        admin_fail(monitor->admin, "%s: %s", MOVED_TOPIC, rv != LEDGERMQ_OK ? error.message : "out of memory");
    return rv == LEDGERMQ_OK && monitor->offsets != NULL;
}

static void close_events(struct monitor *monitor)
{
    free(monitor->offsets);
    ledgermq_queues_free(monitor->queues);
    ledgermq_pull_consumer_free(monitor->consumer);
}

static void report_event(const struct ledgermq_stored_message *message)
{
    struct offset_moved_event event;
    struct arena arena;
    struct error error = {0};
    arena_init(&arena, 65536);
    if (offset_moved_event_decode(&event, &arena, slice_of(message->body, message->body_size), &error) == 0)
        printf("[MONITOR] reportDeleteMsgsEvent: DeleteMsgsEvent [offsetMovedEvent=OffsetMovedEvent [consumerGroup=%.*s, "
               "messageQueue=MessageQueue [topic=%.*s, brokerName=%.*s, queueId=%d], offsetRequest=%lld, offsetNew=%lld], "
               "eventTimestamp=%lld]\n",
               ADMIN_SLICE(event.consumer_group), ADMIN_SLICE(event.queue.topic), ADMIN_SLICE(event.queue.broker_name),
               event.queue.queue_id, (long long)event.offset_request, (long long)event.offset_new,
               (long long)message->store_timestamp_ms);
    arena_close(&arena);
}

static void report_events(struct monitor *monitor)
{
    for (size_t i = 0; i < monitor->queue_count; i++) {
        struct ledgermq_pull_result *result;
        struct ledgermq_error error;
        if (ledgermq_pull(monitor->consumer, &monitor->queues[i], NULL, monitor->offsets[i], EVENTS_AT_ONCE, 0, &result,
                          &error) != LEDGERMQ_OK)
            continue; /* the next look finds them */
        for (size_t k = 0; k < result->count; k++)
            report_event(&result->messages[k]);
        monitor->offsets[i] = result->next_offset;
        ledgermq_pull_result_free(result);
    }
}

static int start_monitoring(struct admin *admin)
{
    struct monitor monitor = {.admin = admin};
    int64_t interval, rounds;
    int status = ADMIN_FAILED;
    if (!admin_number(admin, "interval", 60, 1, 86400, &interval) || !admin_number(admin, "rounds", 0, 1, INT64_MAX, &rounds))
        return ADMIN_USAGE;
    if (open_events(&monitor)) {
        for (int64_t round = 1;; round++) {
            status = look(admin);
            for (int64_t left = interval * 1000; round != rounds && left > 0; left -= EVENT_LOOK_MS) {
                report_events(&monitor);
                fflush(stdout);
                uv_sleep(EVENT_LOOK_MS);
            }
            if (round == rounds)
                break;
        }
        report_events(&monitor);
    }
    close_events(&monitor);
    return status;
}

static const struct admin_option monitor_options[] = {
    {0, "interval", "SECONDS", false, "from one round to the next: 60"},
    {0, "rounds", "N", false, "end after so many rounds"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command monitor_commands[] = {
    {"startMonitoring", "Report consumer groups that are behind or stand still, again and again", monitor_options,
     start_monitoring, "Groups are looked at while a client of theirs is connected. Offsets that were not there are reported as they happen."},
    {NULL, NULL, NULL, NULL, NULL},
};
