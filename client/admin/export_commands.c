/* Topics, groups, configuration and figures of a cluster as JSON files (org.apache.rocketmq.tools.command.export). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/admin/admin_ask.h"
#include "proto/java_properties.h"
#include "proto/request_code.h"
#include "proto/topic_validator.h"

#define EXPORT_FOLDER "/tmp/rocketmq/export" /* Java's */

/* --- files ---- */

static bool make_folders(char *path)
{
    for (char *at = path + 1;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char end = *at;
        *at = '\0';
        bool ok = mkdir(path, 0777) == 0 || errno == EEXIST;
        *at = end;
        if (!ok || end == '\0')
            return ok;
    }
}

/* A member on each line, as fastjson's pretty format has it; lists of plain values stay on theirs. */
static void write_pretty(FILE *file, struct slice json)
{
    int depth = 0;
    bool quoted = false, in_list = false;
    for (size_t i = 0; i < json.size; i++) {
        char c = (char)json.data[i];
        bool opens = !quoted && c == '{', closes = !quoted && c == '}', comma = !quoted && c == ',' && !in_list;
        if (quoted && c == '\\') {
            fputc(c, file);
            fputc(json.data[++i], file);
            continue;
        }
        if (c == '"')
            quoted = !quoted;
        if (!quoted && (c == '[' || c == ']'))
            in_list = c == '[';
        depth += opens - closes;
        if (closes && i > 0 && json.data[i - 1] != '{')
            fprintf(file, "\n%.*s", depth, "\t\t\t\t\t\t\t\t");
        fputc(c, file);
        if ((opens && json.data[i + 1] != '}') || comma)
            fprintf(file, "\n%.*s", depth, "\t\t\t\t\t\t\t\t");
    }
    fputc('\n', file);
}

/* Java prints success even where nothing could be written. */
static int write_file(struct admin *admin, const char *name, const struct buffer *json)
{
    char path[1024], temporary[1040];
    int size = snprintf(path, sizeof path, "%s", admin_has(admin, "filePath") ? admin_text(admin, "filePath") : EXPORT_FOLDER);
    if (size <= 0 || (size_t)size + strlen(name) + 2 > sizeof path)
        return admin_usage(admin, "-f is no folder");
    if (json->failed)
        return admin_fail(admin, "out of memory");
    if (!make_folders(path))
        return admin_fail(admin, "%s: %s", path, strerror(errno));
    snprintf(path + size, sizeof path - (size_t)size, "/%s", name);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    FILE *file = fopen(temporary, "w");
    if (file == NULL)
        return admin_fail(admin, "%s: %s", temporary, strerror(errno));
    write_pretty(file, buffer_slice(json));
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed || rename(temporary, path) != 0)
        return admin_fail(admin, "%s: %s", path, strerror(errno));
    printf("export %s success\n", path);
    return ADMIN_OK;
}

/* --- exportMetadata ---- */

static bool in_list(const struct topic_list *list, struct slice topic)
{
    for (size_t i = 0; i < list->topic_count; i++)
        if (slice_equal(list->topics[i], topic))
            return true;
    return false;
}

/* DefaultMQAdminExtImpl#getUserTopicConfig: drops what the system made. */
static bool user_topics(struct admin *admin, const char *address, bool special, struct topic_config_serialize_wrapper *topics)
{
    struct topic_list system;
    size_t kept = 0;
    if (!admin_system_topics(admin, address, &system))
        return false;
    bool ok = admin_topic_configs(admin, address, topics);
    for (size_t i = 0; ok && i < topics->topic_count; i++) {
        struct slice name = topics->topics[i].name;
        if (!in_list(&system, name) && (special || (!topic_is_retry(name) && !topic_is_dead_letter(name))))
            topics->topics[kept++] = topics->topics[i];
    }
    if (ok)
        topics->topic_count = kept;
    topic_list_close(&system);
    return ok;
}

static bool is_built_in(struct slice group)
{
    static const char *const names[] = {
        "DEFAULT_CONSUMER",     "DEFAULT_PRODUCER",   "TOOLS_CONSUMER",     "SCHEDULE_CONSUMER",    "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",   "SELF_TEST_C_GROUP",  "SELF_TEST_P_GROUP",  "CLIENT_INNER_PRODUCER", "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",  "CID_ONSAPI_PULL",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (slice_equal_text(group, names[i]))
            return true;
    return group_is_system(group);
}

static bool user_groups(struct admin *admin, const char *address, struct subscription_group_wrapper *groups)
{
    size_t kept = 0;
    if (!admin_group_configs(admin, address, groups))
        return false;
    for (size_t i = 0; i < groups->group_count; i++)
        if (!is_built_in(groups->groups[i].group_name))
            groups->groups[kept++] = groups->groups[i];
    groups->group_count = kept;
    return true;
}

/* What all brokers have: queues of a topic (or of a group's retries) are counted together. */
struct metadata {
    struct topic_config_serialize_wrapper *topics; /* one for each broker */
    struct subscription_group_wrapper *groups;
    size_t brokers;
};

static void write_topics(struct json_writer *writer, const struct metadata *metadata)
{
    json_write_key(writer, "topicConfigTable");
    json_write_begin_object(writer);
    for (size_t b = 0; b < metadata->brokers; b++)
        for (size_t i = 0; i < metadata->topics[b].topic_count; i++) {
            struct topic_config sum = metadata->topics[b].topics[i];
            bool before = false;
            for (size_t other = 0; other < metadata->brokers; other++)
                for (size_t k = 0; other != b && k < metadata->topics[other].topic_count; k++) {
                    const struct topic_config *config = &metadata->topics[other].topics[k];
                    if (!slice_equal(config->name, sum.name))
                        continue;
                    before = before || other < b;
                    sum.read_queue_nums += config->read_queue_nums;
                    sum.write_queue_nums += config->write_queue_nums;
                }
            if (before)
                continue;
            json_write_key_slice(writer, sum.name);
            topic_config_write(writer, &sum);
        }
    json_write_end_object(writer);
}

static void write_groups(struct json_writer *writer, const struct metadata *metadata)
{
    json_write_key(writer, "subscriptionGroupTable");
    json_write_begin_object(writer);
    for (size_t b = 0; b < metadata->brokers; b++)
        for (size_t i = 0; i < metadata->groups[b].group_count; i++) {
            struct subscription_group_config sum = metadata->groups[b].groups[i];
            bool before = false;
            for (size_t other = 0; other < metadata->brokers; other++)
                for (size_t k = 0; other != b && k < metadata->groups[other].group_count; k++) {
                    const struct subscription_group_config *config = &metadata->groups[other].groups[k];
                    if (!slice_equal(config->group_name, sum.group_name))
                        continue;
                    before = before || other < b;
                    sum.retry_queue_nums += config->retry_queue_nums;
                }
            if (before)
                continue;
            json_write_key_slice(writer, sum.group_name);
            subscription_group_config_write(writer, &sum);
        }
    json_write_end_object(writer);
}

static bool read_metadata(struct admin *admin, const struct admin_targets *targets, bool special, struct metadata *metadata)
{
    metadata->topics = calloc(targets->count, sizeof *metadata->topics);
    metadata->groups = calloc(targets->count, sizeof *metadata->groups);
    if (metadata->topics == NULL || metadata->groups == NULL)
        return admin_fail(admin, "out of memory"), false;
    for (size_t i = 0; i < targets->count; i++, metadata->brokers++) {
        if (!user_topics(admin, targets->all[i].address, special, &metadata->topics[i]))
            return false;
        if (!user_groups(admin, targets->all[i].address, &metadata->groups[i])) {
            topic_config_serialize_wrapper_close(&metadata->topics[i]);
            return false;
        }
    }
    return true;
}

static void close_metadata(struct metadata *metadata)
{
    for (size_t i = 0; i < metadata->brokers; i++) {
        topic_config_serialize_wrapper_close(&metadata->topics[i]);
        subscription_group_wrapper_close(&metadata->groups[i]);
    }
    free(metadata->topics);
    free(metadata->groups);
}

static int export_metadata(struct admin *admin)
{
    struct admin_targets targets;
    struct metadata metadata = {0};
    struct buffer out;
    struct json_writer writer;
    bool one_broker = admin_has(admin, "brokerAddr");
    bool topics = admin_has(admin, "topic"), groups = !topics && admin_has(admin, "subscriptionGroup");
    int status;
    if (one_broker && !topics && !groups)
        return admin_usage(admin, "-b goes with -t or -g; without them use -c");
    if (!admin_targets(admin, false, false, &targets, &status))
        return status;
    status = ADMIN_FAILED;
    if (read_metadata(admin, &targets, admin_has(admin, "specialTopic"), &metadata)) {
        buffer_init(&out, 0);
        json_writer_init(&writer, &out);
        json_write_begin_object(&writer);
        if (one_broker) {
            struct buffer version;
            buffer_init(&version, 0);
            data_version_encode(topics ? &metadata.topics[0].version : &metadata.groups[0].version, &version);
            json_write_key(&writer, "dataVersion");
            json_write_raw(&writer, buffer_slice(&version));
            buffer_close(&version);
        } else {
            json_write_member_i64(&writer, "exportTime", client_clock_ms());
        }
        if (!topics)
            write_groups(&writer, &metadata);
        if (!groups)
            write_topics(&writer, &metadata);
        json_write_end_object(&writer);
        status = write_file(admin, topics ? "topic.json" : groups ? "subscriptionGroup.json" : "metadata.json", &out);
        buffer_close(&out);
    }
    close_metadata(&metadata);
    admin_targets_free(&targets);
    return status;
}

/* --- exportConfigs ---- */

static void write_config(struct json_writer *writer, struct slice properties, struct slice *broker_name, struct arena *arena)
{
    static const char *const wanted[] = {
        "brokerClusterName", "brokerId",      "brokerName",        "brokerRole",        "fileReservedTime",
        "filterServerNums",  "flushDiskType", "maxMessageSize",    "messageDelayLevel", "msgTraceTopicName",
        "slaveReadEnable",   "traceOn",       "traceTopicEnable",  "useTLS",            "autoCreateTopicEnable",
        "autoCreateSubscriptionGroup",
    };
    struct java_properties_reader reader;
    struct slice key, value;
    int rv = 0;
    json_write_begin_object(writer);
    java_properties_reader_init(&reader, properties);
    while (java_properties_next(&reader, &key, &value, &rv, NULL)) {
        if (slice_equal_text(key, "brokerName"))
            *broker_name = arena_copy(arena, value);
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
            if (slice_equal_text(key, wanted[i])) {
                json_write_key_slice(writer, key);
                json_write_slice(writer, value);
            }
    }
    java_properties_reader_close(&reader);
    json_write_end_object(writer);
}

static bool write_configs(struct admin *admin, const struct admin_targets *targets, struct json_writer *writer, int64_t *leaders,
                          int64_t *followers)
{
    bool ok = true;
    for (size_t i = 0; ok && i < targets->count; i++) {
        struct remoting_response response;
        struct buffer config;
        struct json_writer config_writer;
        struct arena arena;
        struct slice name = slice_of_text(targets->all[i].broker_name);
        if (targets->all[i].broker_id != 0) {
            ++*followers;
            continue;
        }
        ++*leaders;
        if (!admin_call(admin, targets->all[i].address, REQUEST_GET_BROKER_CONFIG, NULL, NO_BODY, &response))
            return false;
        arena_init(&arena, 65536);
        buffer_init(&config, 0);
        json_writer_init(&config_writer, &config);
        write_config(&config_writer, response.command.body, &name, &arena);
        ok = !config.failed && name.data != NULL;
        json_write_key_slice(writer, name);
        json_write_raw(writer, buffer_slice(&config));
        buffer_close(&config);
        arena_close(&arena);
        remoting_response_close(&response);
    }
    return ok || (admin_fail(admin, "out of memory"), false);
}

static int export_configs(struct admin *admin)
{
    struct admin_targets targets;
    struct buffer out;
    struct json_writer writer;
    int64_t leaders = 0, followers = 0;
    int status;
    if (!admin_targets(admin, true, false, &targets, &status))
        return status;
    buffer_init(&out, 0);
    json_writer_init(&writer, &out);
    json_write_begin_object(&writer);
    json_write_key(&writer, "brokerConfigs");
    json_write_begin_object(&writer);
    bool ok = write_configs(admin, &targets, &writer, &leaders, &followers);
    json_write_end_object(&writer);
    json_write_key(&writer, "clusterScale");
    json_write_begin_object(&writer);
    json_write_member_i64(&writer, "namesrvSize", admin->name_server_count);
    json_write_member_i64(&writer, "masterBrokerSize", leaders);
    json_write_member_i64(&writer, "slaveBrokerSize", followers);
    json_write_end_object(&writer);
    json_write_end_object(&writer);
    status = ok ? write_file(admin, "configs.json", &out) : ADMIN_FAILED;
    buffer_close(&out);
    admin_targets_free(&targets);
    return status;
}

/* --- exportMetrics ---- */

struct figures {
    double normal_in, normal_out, trans_in, schedule_in; /* a second */
    int64_t day_normal_in, day_normal_out, day_trans_in, day_schedule_in;
};

static double first_rate(const struct kv_table *table, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%.*s", ADMIN_SLICE(kv_table_get(table, name)));
    return strtod(text, NULL);
}

static int64_t difference(const struct kv_table *table, const char *to, const char *from)
{
    int64_t end = 0, begin = 0;
    (void)slice_to_i64(kv_table_get(table, to), &end);
    (void)slice_to_i64(kv_table_get(table, from), &begin);
    return end - begin;
}

static void read_figures(struct admin *admin, const char *address, const struct kv_table *table, struct figures *figures)
{
    struct broker_stats_data data;
    figures->normal_in = first_rate(table, "putTps");
    figures->normal_out = first_rate(table, "getTransferedTps");
    figures->day_normal_in = difference(table, "msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning");
    figures->day_normal_out = difference(table, "msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning");
    if (admin_stats(admin, address, "TOPIC_PUT_NUMS", "RMQ_SYS_TRANS_HALF_TOPIC", &data)) {
        figures->trans_in = data.minute.tps;
        figures->day_trans_in = admin_stats_day(&data);
    }
    if (admin_stats(admin, address, "TOPIC_PUT_NUMS", TOPIC_SCHEDULE, &data)) {
        figures->schedule_in = data.minute.tps;
        figures->day_schedule_in = admin_stats_day(&data);
    }
}

static void write_days(struct json_writer *writer, const char *key, const struct figures *figures)
{
    json_write_key(writer, key);
    json_write_begin_object(writer);
    json_write_member_i64(writer, "normalOneDayInNum", figures->day_normal_in);
    json_write_member_i64(writer, "normalOneDayOutNum", figures->day_normal_out);
    json_write_member_i64(writer, "scheduleOneDayInNum", figures->day_schedule_in);
    json_write_member_i64(writer, "transOneDayInNum", figures->day_trans_in);
    json_write_end_object(writer);
}

static void write_clients(struct admin *admin, const char *address, const struct subscription_group_wrapper *groups,
                          struct json_writer *writer)
{
    struct buffer seen;
    buffer_init(&seen, 0);
    json_write_key(writer, "clientInfo");
    json_write_begin_array(writer);
    for (size_t i = 0; i < groups->group_count; i++) {
        char group[300];
        struct consumer_connection connection;
        snprintf(group, sizeof group, "%.*s", ADMIN_SLICE(groups->groups[i].group_name));
        if (!admin_consumer_connection(admin, address, group, &connection, true))
            continue;
        for (size_t k = 0; k < connection.connection_count; k++) {
            char text[96], version[16];
            snprintf(text, sizeof text, "%.*s%%%s ", ADMIN_SLICE(connection.connections[k].language),
                     admin_version(connection.connections[k].version, version));
            if (seen.size > 0 && memmem(seen.data, seen.size, text, strlen(text)) != NULL)
                continue;
            buffer_append_text(&seen, text);
            json_write_slice(writer, slice_of(text, strlen(text) - 1));
        }
        consumer_connection_close(&connection);
    }
    json_write_end_array(writer);
    buffer_close(&seen);
}

/* CPUs and memory of the machine, as far as the broker tells: the callback threads of a Java broker are as many as its CPUs. */
static bool write_environment(struct admin *admin, const char *address, const struct kv_table *table, struct json_writer *writer)
{
    struct remoting_response response;
    struct java_properties_reader reader;
    struct slice key, value;
    int rv = 0;
    if (!admin_call(admin, address, REQUEST_GET_BROKER_CONFIG, NULL, NO_BODY, &response))
        return false;
    json_write_key(writer, "runtimeEnv");
    json_write_begin_object(writer);
    java_properties_reader_init(&reader, response.command.body);
    while (java_properties_next(&reader, &key, &value, &rv, NULL))
        if (slice_equal_text(key, "clientCallbackExecutorThreads"))
            json_write_member_slice(writer, "cpuNum", value);
    java_properties_reader_close(&reader);
    json_write_member_slice(writer, "totalMemKBytes", kv_table_get(table, "totalMemKBytes"));
    json_write_end_object(writer);
    remoting_response_close(&response);
    return true;
}

static bool write_broker(struct admin *admin, const char *address, const struct kv_table *table, struct json_writer *writer,
                         struct figures *total)
{
    struct figures figures = {0};
    struct topic_config_serialize_wrapper topics;
    struct subscription_group_wrapper groups;
    if (!user_topics(admin, address, false, &topics))
        return false;
    if (!user_groups(admin, address, &groups)) {
        topic_config_serialize_wrapper_close(&topics);
        return false;
    }
    read_figures(admin, address, table, &figures);
    json_write_begin_object(writer);
    bool ok = write_environment(admin, address, table, writer);
    json_write_key(writer, "runtimeQuota");
    json_write_begin_object(writer);
    json_write_key(writer, "diskRatio");
    json_write_begin_object(writer);
    json_write_member_slice(writer, "commitLogDiskRatio", kv_table_get(table, "commitLogDiskRatio"));
    json_write_member_slice(writer, "consumeQueueDiskRatio", kv_table_get(table, "consumeQueueDiskRatio"));
    json_write_end_object(writer);
    json_write_member_i64(writer, "groupSize", (int64_t)groups.group_count);
    json_write_member_slice(writer, "messageAverageSize", kv_table_get(table, "putMessageAverageSize"));
    write_days(writer, "oneDayNum", &figures);
    json_write_member_i64(writer, "topicSize", (int64_t)topics.topic_count);
    json_write_key(writer, "tps");
    json_write_begin_object(writer);
    json_write_member_double(writer, "normalInTps", figures.normal_in);
    json_write_member_double(writer, "normalOutTps", figures.normal_out);
    json_write_member_double(writer, "scheduleInTps", figures.schedule_in);
    json_write_member_double(writer, "transInTps", figures.trans_in);
    json_write_end_object(writer);
    json_write_end_object(writer);
    json_write_key(writer, "runtimeVersion");
    json_write_begin_object(writer);
    write_clients(admin, address, &groups, writer);
    json_write_member_slice(writer, "rocketmqVersion", kv_table_get(table, "brokerVersionDesc"));
    json_write_end_object(writer);
    json_write_end_object(writer);
    *total = (struct figures){
        total->normal_in + figures.normal_in,          total->normal_out + figures.normal_out,
        total->trans_in + figures.trans_in,            total->schedule_in + figures.schedule_in,
        total->day_normal_in + figures.day_normal_in,  total->day_normal_out + figures.day_normal_out,
        total->day_trans_in + figures.day_trans_in,    total->day_schedule_in + figures.day_schedule_in,
    };
    topic_config_serialize_wrapper_close(&topics);
    subscription_group_wrapper_close(&groups);
    return ok;
}

static int export_metrics(struct admin *admin)
{
    struct admin_targets targets;
    struct figures total = {0};
    struct buffer out;
    struct json_writer writer;
    bool ok = true;
    int status;
    if (!admin_targets(admin, false, false, &targets, &status))
        return status;
    buffer_init(&out, 0);
    json_writer_init(&writer, &out);
    json_write_begin_object(&writer);
    json_write_key(&writer, "evaluateReport");
    json_write_begin_object(&writer);
    for (size_t i = 0; ok && i < targets.count; i++) {
        struct kv_table table;
        ok = admin_runtime_table(admin, targets.all[i].address, &table);
        if (!ok)
            break;
        json_write_key(&writer, targets.all[i].broker_name);
        ok = write_broker(admin, targets.all[i].address, &table, &writer, &total);
        kv_table_close(&table);
    }
    json_write_end_object(&writer);
    json_write_key(&writer, "totalData");
    json_write_begin_object(&writer);
    write_days(&writer, "totalOneDayNum", &total);
    json_write_key(&writer, "totalTps");
    json_write_begin_object(&writer);
    json_write_member_double(&writer, "totalNormalInTps", total.normal_in);
    json_write_member_double(&writer, "totalNormalOutTps", total.normal_out);
    json_write_member_double(&writer, "totalScheduleInTps", total.schedule_in);
    json_write_member_double(&writer, "totalTransInTps", total.trans_in);
    json_write_end_object(&writer);
    json_write_end_object(&writer);
    json_write_end_object(&writer);
    status = ok ? write_file(admin, "metrics.json", &out) : ADMIN_FAILED;
    buffer_close(&out);
    admin_targets_free(&targets);
    return status;
}

static const struct admin_option metadata_options[] = {
    {'c', "clusterName", "CLUSTER", false, "of all brokers of the cluster"},
    {'b', "brokerAddr", "ADDRESS", false, "of this broker, with -t or -g"},
    {'f', "filePath", "FOLDER", false, "where to: " EXPORT_FOLDER},
    {'t', "topic", NULL, false, "topics only, to topic.json"},
    {'g', "subscriptionGroup", NULL, false, "groups only, to subscriptionGroup.json"},
    {'s', "specialTopic", NULL, false, "retry and dead letter topics too"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option cluster_options[] = {
    {'c', "clusterName", "CLUSTER", true, "which cluster"},
    {'f', "filePath", "FOLDER", false, "where to: " EXPORT_FOLDER},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command export_commands[] = {
    {"exportMetadata", "Write topics and groups to metadata.json", metadata_options, export_metadata, NULL},
    {"exportConfigs", "Write the main settings of all brokers to configs.json", cluster_options, export_configs, NULL},
    {"exportMetrics", "Write figures of all brokers to metrics.json", cluster_options, export_metrics, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
