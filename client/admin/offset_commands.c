/* Where groups stand: setting it back or forward, copying it, and what flows (org.apache.rocketmq.tools.command.offset, .consumer, .stats, and
 * BrokerConsumeStatsSubCommad). */
#include <stdio.h>

#include "client/admin/admin_ask.h"
#include "proto/request_code.h"
#include "proto/reset_offset_body.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

/* --- resetOffsetByTime, skipAccumulatedMessage ---- */

struct reset {
    struct admin *admin;
    const char *group, *topic;
    int64_t timestamp_ms; /* -1: to the end */
    const char *time_given; /* NULL: do not say what is done */
    bool force;
};

/* In Java's words, which differ: `what` is group or consumerGroup. */
static void say(const struct reset *reset, const char *what)
{
    if (reset->time_given != NULL)
        printf("rollback consumer offset by specified %s[%s], topic[%s], force[%s], timestamp(string)[%s], timestamp(long)[%lld]\n", what,
               reset->group, reset->topic, admin_word(reset->force), reset->time_given, (long long)reset->timestamp_ms);
}

static bool offset_of(struct admin *admin, const char *address, const struct reset *reset, int32_t queue_id,
                      int64_t *offset)
{
    char queue_text[16], time_text[24];
    snprintf(queue_text, sizeof queue_text, "%d", queue_id);
    snprintf(time_text, sizeof time_text, "%lld", (long long)reset->timestamp_ms);
    bool end = reset->timestamp_ms < 0;
    const struct remoting_field fields[] = {{"topic", reset->topic},
                                            {"queueId", queue_text},
                                            {end ? NULL : "timestamp", time_text},
                                            {NULL, NULL}};
    struct remoting_response response;
    if (!admin_call(admin, address, end ? REQUEST_GET_MAX_OFFSET : REQUEST_SEARCH_OFFSET_BY_TIMESTAMP, fields, NO_BODY,
                    &response))
        return false;
    bool ok = slice_to_i64(remoting_ext(&response.command, "offset"), offset);
    remoting_response_close(&response);
    return ok ? true : (admin_fail(admin, "%s answered without an offset", address), false);
}

static bool commit(struct admin *admin, const char *address, const char *group, const char *topic, int32_t queue_id,
                   int64_t offset)
{
    char queue_text[16], offset_text[24];
    snprintf(queue_text, sizeof queue_text, "%d", queue_id);
    snprintf(offset_text, sizeof offset_text, "%lld", (long long)offset);
    const struct remoting_field fields[] = {{"consumerGroup", group},
                                            {"topic", topic},
                                            {"queueId", queue_text},
                                            {"commitOffset", offset_text},
                                            {NULL, NULL}};
    struct remoting_response response;
    if (!admin_call(admin, address, REQUEST_UPDATE_CONSUMER_OFFSET, fields, NO_BODY, &response))
        return false;
    remoting_response_close(&response);
    return true;
}

/* Nobody of the group is connected: its offsets are set at the broker, queue by queue. */
static int reset_off_line(const struct reset *reset, const char *address)
{
    struct admin *admin = reset->admin;
    struct consume_stats stats;
    int status = ADMIN_OK;
    if (!admin_consume_stats(admin, address, reset->group, reset->topic, &stats, false))
        return ADMIN_FAILED;
    say(reset, "consumerGroup");
    printf("%-20s  %-20s  %-20s  %-20s  %-20s  %-20s\n", "#brokerName", "#queueId", "#brokerOffset", "#consumerOffset",
           "#timestampOffset", "#rollbackOffset");
    for (size_t i = 0; i < stats.offset_count && status == ADMIN_OK; i++) {
        const struct consume_offset *row = &stats.offsets[i];
        int64_t wanted, rolled = row->consumer_offset;
        if (!offset_of(admin, address, reset, row->queue.queue_id, &wanted)) {
            status = ADMIN_FAILED;
            break;
        }
        if (reset->force || wanted <= row->consumer_offset) {
            rolled = wanted;
            if (!commit(admin, address, reset->group, reset->topic, row->queue.queue_id, wanted))
                status = ADMIN_FAILED;
        }
        if (status == ADMIN_OK)
            printf("%-20.*s  %-20d  %-20lld  %-20lld  %-20lld  %-20lld\n", ADMIN_SLICE(row->queue.broker_name),
                   row->queue.queue_id, (long long)row->broker_offset, (long long)row->consumer_offset,
                   (long long)wanted, (long long)rolled);
    }
    consume_stats_close(&stats);
    return status;
}

static int print_reset(const struct reset *reset, struct slice body)
{
    struct reset_offset_body offsets;
    struct error error = {0};
    if (reset_offset_body_decode(&offsets, body, &error) != 0)
        return admin_fail(reset->admin, "%s", error.message);
    say(reset, "group");
    printf("%-40s  %-40s  %-40s\n", "#brokerName", "#queueId", "#offset");
    for (size_t i = 0; i < offsets.offset_count; i++)
        printf("%-40.*s  %-40d  %-40lld\n", ADMIN_SLICE(offsets.offsets[i].queue.broker_name),
               offsets.offsets[i].queue.queue_id, (long long)offsets.offsets[i].offset);
    reset_offset_body_close(&offsets);
    return ADMIN_OK;
}

static int reset_at(const struct reset *reset, const char *address, bool *off_line)
{
    struct admin *admin = reset->admin;
    char time_text[24];
    struct remoting_response response;
    struct error error = {0};
    snprintf(time_text, sizeof time_text, "%lld", (long long)reset->timestamp_ms);
    const struct remoting_field fields[] = {{"topic", reset->topic},
                                            {"group", reset->group},
                                            {"timestamp", time_text},
                                            {"isForce", admin_word(reset->force)},
                                            {NULL, NULL}};
    if (!admin_connect(admin))
        return ADMIN_FAILED;
    int rv = remoting_client_invoke(admin->client->remoting, address, REQUEST_INVOKE_BROKER_TO_RESET_OFFSET, fields,
                                    NO_BODY, admin->timeout_ms, &response, &error);
    if (rv != 0)
        return admin_fail(admin, "%s", error.message);
    int status;
    *off_line = response.command.code == RESPONSE_CONSUMER_NOT_ONLINE;
    if (*off_line)
        status = ADMIN_OK;
    else if (response.command.code != RESPONSE_SUCCESS)
        status = admin_fail(admin, "CODE: %d DESC: %.*s", response.command.code, ADMIN_SLICE(response.command.remark));
    else
        status = print_reset(reset, response.command.body);
    remoting_response_close(&response);
    return status;
}

static int run_reset(struct reset *reset)
{
    struct admin_targets brokers;
    int status = ADMIN_OK;
    if (!admin_topic_leaders(reset->admin, reset->topic, &brokers, false))
        return ADMIN_FAILED;
    for (size_t i = 0; i < brokers.count && status == ADMIN_OK; i++) {
        bool off_line = false;
        status = reset_at(reset, brokers.all[i].address, &off_line);
        if (status == ADMIN_OK && off_line)
            status = reset_off_line(reset, brokers.all[i].address);
    }
    admin_targets_free(&brokers);
    return status;
}

static int reset_offset_by_time(struct admin *admin)
{
    struct reset reset = {.admin = admin, .group = admin_text(admin, "group"), .topic = admin_text(admin, "topic")};
    if (!admin_bool(admin, "force", true, &reset.force) || !admin_time_option(admin, "timestamp", &reset.timestamp_ms))
        return ADMIN_USAGE;
    reset.time_given = admin_text(admin, "timestamp");
    return run_reset(&reset);
}

static int skip_accumulated_message(struct admin *admin)
{
    struct reset reset = {.admin = admin,
                          .group = admin_text(admin, "group"),
                          .topic = admin_text(admin, "topic"),
                          .timestamp_ms = -1};
    if (!admin_bool(admin, "force", true, &reset.force))
        return ADMIN_USAGE;
    return run_reset(&reset);
}

/* --- cloneGroupOffset ---- */

static int clone_group_offset(struct admin *admin)
{
    const char *from = admin_text(admin, "srcGroup"), *to = admin_text(admin, "destGroup");
    const char *topic = admin_text(admin, "topic");
    struct admin_targets brokers;
    int status = ADMIN_OK;
    size_t found = 0;
    if (!admin_topic_leaders(admin, topic, &brokers, false))
        return ADMIN_FAILED;
    for (size_t i = 0; i < brokers.count && status == ADMIN_OK; i++) {
        struct consume_stats stats;
        /* Asked for all topics, a broker names only those in which the group has offsets; asked for one, it says 0 where there is none. */
        if (!admin_consume_stats(admin, brokers.all[i].address, from, NULL, &stats, false)) {
            status = ADMIN_FAILED;
            break;
        }
        for (size_t k = 0; k < stats.offset_count && status == ADMIN_OK; k++) {
            if (!slice_equal_text(stats.offsets[k].queue.topic, topic))
                continue;
            found++;
            if (!commit(admin, brokers.all[i].address, to, topic, stats.offsets[k].queue.queue_id,
                        stats.offsets[k].consumer_offset))
                status = ADMIN_FAILED;
        }
        consume_stats_close(&stats);
    }
    admin_targets_free(&brokers);
    if (status == ADMIN_OK && found == 0)
        return admin_fail(admin, "group %s has no offsets in topic %s", from, topic);
    if (status == ADMIN_OK)
        printf("clone group offset success. srcGroup[%s], destGroup=[%s], topic[%s]\n", from, to, topic);
    return status;
}

/* --- brokerConsumeStats ---- */

/* Rows of one topic of a group, when it is behind by at least `level`. */
static int print_consume_stats(struct admin *admin, struct slice group, struct json_value value, int64_t level,
                               int64_t *total)
{
    struct consume_stats stats;
    struct error error = {0};
    char time[32];
    if (consume_stats_decode(&stats, json_raw(value), &error) != 0)
        return admin_fail(admin, "%s", error.message);
    for (size_t i = 0; i < stats.offset_count; i++) {
        const struct consume_offset *row = &stats.offsets[i];
        int64_t diff = row->broker_offset - row->consumer_offset;
        if (diff < level)
            continue;
        printf("%-64.*s  %-64.*s  %-32.*s  %-4d  %-20lld  %-20lld  %-20lld  %s\n", ADMIN_SLICE(row->queue.topic),
               ADMIN_SLICE(group), ADMIN_SLICE(row->queue.broker_name), row->queue.queue_id,
               (long long)row->broker_offset, (long long)row->consumer_offset, (long long)diff,
               admin_time(row->last_timestamp_ms, time));
        *total += diff;
    }
    consume_stats_close(&stats);
    return ADMIN_OK;
}

static int broker_consume_stats(struct admin *admin)
{
    struct admin_json answer;
    bool order;
    int64_t level, total = 0;
    if (!admin_bool(admin, "order", false, &order) || !admin_number(admin, "level", 0, 0, INT64_MAX, &level))
        return ADMIN_USAGE;
    const struct remoting_field fields[] = {{"isOrder", admin_word(order)}, {NULL, NULL}};
    if (!admin_json(admin, admin_text(admin, "brokerAddr"), REQUEST_GET_BROKER_CONSUME_STATS, fields, &answer))
        return ADMIN_FAILED;
    int status = ADMIN_OK;
    printf("%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s\n", "#Topic", "#Group", "#Broker Name", "#QID",
           "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime");
    struct json_iterator groups = json_iterate(json_get(json_root(&answer.document), "consumeStatsList"));
    struct json_value element, name, list, value;
    while (status == ADMIN_OK && json_next_element(&groups, &element)) {
        struct json_iterator members = json_iterate(element);
        while (status == ADMIN_OK && json_next_member(&members, &name, &list)) {
            struct slice group = {0};
            struct json_iterator topics = json_iterate(list);
            (void)json_text(name, &group);
            while (status == ADMIN_OK && json_next_element(&topics, &value))
                status = print_consume_stats(admin, group, value, level, &total);
        }
    }
    printf("\nDiff Total: %lld\n", (long long)total);
    admin_json_close(&answer);
    return status;
}

/* --- statsAll ---- */

struct flow {
    double tps;
    int64_t day;
};

static void add_flow(struct admin *admin, const char *address, const char *name, const char *key, struct flow *flow)
{
    struct broker_stats_data data;
    if (!admin_stats(admin, address, name, key, &data))
        return;
    flow->tps += data.minute.tps;
    flow->day += admin_stats_day(&data);
}

static void group_flow(struct admin *admin, const struct admin_targets *brokers, const char *topic, struct slice name,
                       const struct flow *in, bool active)
{
    char group[300], key[LEDGERMQ_TOPIC_MAX + 304];
    struct flow out = {0};
    int64_t behind = 0;
    snprintf(group, sizeof group, "%.*s", ADMIN_SLICE(name));
    snprintf(key, sizeof key, "%s@%s", topic, group);
    for (size_t i = 0; i < brokers->count; i++) {
        struct consume_stats stats;
        add_flow(admin, brokers->all[i].address, "GROUP_GET_NUMS", key, &out);
        if (!admin_consume_stats(admin, brokers->all[i].address, group, topic, &stats, true))
            continue;
        for (size_t k = 0; k < stats.offset_count; k++)
            behind += stats.offsets[k].broker_offset - stats.offsets[k].consumer_offset;
        consume_stats_close(&stats);
    }
    if (!active || in->day > 0 || out.day > 0)
        printf("%-64s  %-64s %12lld %11.2f %11.2f %14lld %14lld\n", topic, group, (long long)(behind > 0 ? behind : 0),
               in->tps, out.tps, (long long)in->day, (long long)out.day);
}

static void topic_flow(struct admin *admin, const char *topic, bool active)
{
    struct admin_targets brokers;
    struct flow in = {0};
    struct group_list list;
    size_t groups = 0;
    if (!admin_topic_leaders(admin, topic, &brokers, true))
        return;
    for (size_t i = 0; i < brokers.count; i++)
        add_flow(admin, brokers.all[i].address, "TOPIC_PUT_NUMS", topic, &in);
    /* Every broker of a topic knows its groups: members send their heart-beats to all. */
    if (admin_topic_groups(admin, brokers.all[0].address, topic, &list, true)) {
        groups = list.group_count;
        for (size_t i = 0; i < list.group_count; i++)
            group_flow(admin, &brokers, topic, list.groups[i], &in, active);
        group_list_close(&list);
    }
    if (groups == 0 && (!active || in.day > 0))
        printf("%-64s  %-64s %12d %11.2f %11s %14lld %14s\n", topic, "", 0, in.tps, "", (long long)in.day, "NO_CONSUMER");
    admin_targets_free(&brokers);
}

static int stats_all(struct admin *admin)
{
    const char *wanted = admin_text(admin, "topic");
    struct topic_list list;
    bool found = false;
    if (!admin_topic_list(admin, &list))
        return ADMIN_FAILED;
    printf("%-64s  %-64s %12s %11s %11s %14s %14s\n", "#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS",
           "#InMsg24Hour", "#OutMsg24Hour");
    for (size_t i = 0; i < list.topic_count; i++) {
        char topic[LEDGERMQ_TOPIC_MAX + 1];
        snprintf(topic, sizeof topic, "%.*s", ADMIN_SLICE(list.topics[i]));
        if (topic_is_retry(list.topics[i]) || slice_starts_with(list.topics[i], TOPIC_DLQ_PREFIX) ||
            (wanted != NULL && strcmp(wanted, topic) != 0))
            continue;
        found = true;
        topic_flow(admin, topic, admin_has(admin, "activeTopic"));
    }
    topic_list_close(&list);
    return wanted != NULL && !found ? admin_fail(admin, "there is no topic %s", wanted) : ADMIN_OK;
}

static const struct admin_option reset_options[] = {
    {'g', "group", "GROUP", true, "its name"},
    {'t', "topic", "TOPIC", true, "in this topic"},
    {'s', "timestamp", "TIME", true, "to this time: now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS"},
    {'f', "force", "true|false", false, "also forward: true"},
    {'c', "cplus", NULL, false, "accepted; the broker knows the language of its consumers"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option skip_options[] = {
    {'g', "group", "GROUP", true, "its name"},
    {'t', "topic", "TOPIC", true, "in this topic"},
    {'f', "force", "true|false", false, "always; false only where that is backwards: true"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option clone_options[] = {
    {'s', "srcGroup", "GROUP", true, "from this group"},
    {'d', "destGroup", "GROUP", true, "to this one"},
    {'t', "topic", "TOPIC", true, "in this topic"},
    {'o', "offline", "true|false", false, "accepted"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option consume_stats_options[] = {
    {'b', "brokerAddr", "ADDRESS", true, "ask this broker"},
    {'l', "level", "N", false, "only queues that are so many messages behind: 0"},
    {'o', "order", "true|false", false, "only ordered topics: false"},
    {'t', "timeoutMillis", "MS", false, "accepted; see --timeout"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option stats_options[] = {
    {'a', "activeTopic", NULL, false, "only topics with traffic"},
    {'t', "topic", "TOPIC", false, "this topic only"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command offset_commands[] = {
    {"resetOffsetByTime", "Set a group's offsets to a time", reset_options, reset_offset_by_time,
     "Consumers that are connected move within some ten seconds; of a group that is off line the broker's offsets are set."},
    {"skipAccumulatedMessage", "Set a group's offsets to the end", skip_options, skip_accumulated_message, NULL},
    {"cloneGroupOffset", "Copy a group's offsets to another group", clone_options, clone_group_offset, NULL},
    {"brokerConsumeStats", "Show how far all groups of a broker are", consume_stats_options, broker_consume_stats, NULL},
    {"statsAll", "Show the traffic of topics and groups", stats_options, stats_all, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
