/* What runs at the other end (org.apache.rocketmq.tools.command.consumer.ConsumerStatusSubCommand, .producer.ProducerSubCommand). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "client/admin/admin.h"
#include "proto/consumer_connection.h"
#include "proto/json.h"
#include "proto/request_code.h"
#include "proto/topic_validator.h"

#define NO_BODY slice_of(NULL, 0)

/* --- ConsumerRunningInfo ---- */

static struct slice text_of(struct json_value object, const char *name)
{
    struct slice text = SLICE_LITERAL("null");
    (void)json_text(json_get(object, name), &text);
    return text;
}

static double number_of(struct json_value object, const char *name)
{
    double number = 0;
    (void)json_double(json_get(object, name), &number);
    return number;
}

static long long count_of(struct json_value object, const char *name)
{
    int64_t count = 0;
    (void)json_i64(json_get(object, name), &count);
    return count;
}

/* UtilAll#timeMillisToHumanString */
static const char *human_time(int64_t ms, char out[32])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm local;
    localtime_r(&seconds, &local);
    size_t size = strftime(out, 24, "%Y%m%d%H%M%S", &local);
    snprintf(out + size, 32 - size, "%03d", (int)(ms % 1000));
    return out;
}

static void print_process_queue(FILE *out, struct json_value queue)
{
    static const char *const counts[] = {"commitOffset", "cachedMsgMinOffset", "cachedMsgMaxOffset", "cachedMsgCount", "cachedMsgSizeInMiB",
                                         "transactionMsgMinOffset", "transactionMsgMaxOffset", "transactionMsgCount"};
    char locked[32], pulled[32], consumed[32];
    fprintf(out, "ProcessQueueInfo [");
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        fprintf(out, "%s=%lld, ", counts[i], count_of(queue, counts[i]));
    fprintf(out, "locked=%.*s, tryUnlockTimes=%lld, lastLockTimestamp=%s, droped=%.*s, lastPullTimestamp=%s, lastConsumeTimestamp=%s]\n",
            ADMIN_SLICE(text_of(queue, "locked")), count_of(queue, "tryUnlockTimes"),
            human_time(count_of(queue, "lastLockTimestamp"), locked), ADMIN_SLICE(text_of(queue, "droped")),
            human_time(count_of(queue, "lastPullTimestamp"), pulled), human_time(count_of(queue, "lastConsumeTimestamp"), consumed));
}

/* mqTable has whole objects for keys. */
static void print_queue_key(FILE *out, struct json_value key)
{
    fprintf(out, "%-64.*s  %-32.*s  %-4lld  ", ADMIN_SLICE(text_of(key, "topic")), ADMIN_SLICE(text_of(key, "brokerName")),
            count_of(key, "queueId"));
}

/* ConsumerRunningInfo#formatString */
static void print_running_info(FILE *out, struct json_value info)
{
    struct json_value name, value;
    struct slice text;
    fprintf(out, "#Consumer Properties#\n");
    for (struct json_iterator at = json_iterate(json_get(info, "properties")); json_next_member(&at, &name, &value);) {
        struct slice key = SLICE_LITERAL(""), shown = SLICE_LITERAL("");
        (void)json_text(name, &key);
        (void)json_text(value, &shown);
        fprintf(out, "%-40.*s: %.*s\n", ADMIN_SLICE(key), ADMIN_SLICE(shown));
    }
    fprintf(out, "\n\n#Consumer Subscription#\n");
    int number = 1;
    for (struct json_iterator at = json_iterate(json_get(info, "subscriptionSet")); json_next_element(&at, &value);)
        fprintf(out, "%03d Topic: %-40.*s ClassFilter: %-8.*s SubExpression: %.*s\n", number++, ADMIN_SLICE(text_of(value, "topic")),
                ADMIN_SLICE(text_of(value, "classFilterMode")), ADMIN_SLICE(text_of(value, "subString")));
    fprintf(out, "\n\n#Consumer Offset#\n%-64s  %-32s  %-4s  %-20s\n", "#Topic", "#Broker Name", "#QID", "#Consumer Offset");
    for (struct json_iterator at = json_iterate(json_get(info, "mqTable")); json_next_member(&at, &name, &value);) {
        print_queue_key(out, name);
        fprintf(out, "%-20lld\n", count_of(value, "commitOffset"));
    }
    fprintf(out, "\n\n#Consumer MQ Detail#\n%-64s  %-32s  %-4s  %-20s\n", "#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo");
    for (struct json_iterator at = json_iterate(json_get(info, "mqTable")); json_next_member(&at, &name, &value);) {
        print_queue_key(out, name);
        print_process_queue(out, value);
    }
    fprintf(out, "\n\n#Consumer RT&TPS#\n%-64s  %14s %14s %14s %14s %18s %25s\n", "#Topic", "#Pull RT", "#Pull TPS", "#Consume RT",
            "#ConsumeOK TPS", "#ConsumeFailed TPS", "#ConsumeFailedMsgsInHour");
    for (struct json_iterator at = json_iterate(json_get(info, "statusTable")); json_next_member(&at, &name, &value);) {
        struct slice topic = SLICE_LITERAL("");
        (void)json_text(name, &topic);
        fprintf(out, "%-64.*s  %14.2f %14.2f %14.2f %14.2f %18.2f %25lld\n", ADMIN_SLICE(topic), number_of(value, "pullRT"),
                number_of(value, "pullTPS"), number_of(value, "consumeRT"), number_of(value, "consumeOKTPS"), number_of(value, "consumeFailedTPS"),
                count_of(value, "consumeFailedMsgs"));
    }
    if (json_text(json_get(info, "jstack"), &text))
        fprintf(out, "\n\n#Consumer jstack#\n%.*s", ADMIN_SLICE(text));
}

/* --- consumerStatus ---- */

/* One client's answer. False: told. */
static bool ask_running_info(struct admin *admin, const char *address, const char *group, const char *client_id,
                             struct remoting_response *response, struct json_document *info)
{
    const struct remoting_field fields[] = {{"consumerGroup", group},
                                            {"clientId", client_id},
                                            {"jstackEnable", admin_has(admin, "jstack") ? "true" : "false"},
                                            {NULL, NULL}};
    struct error error = {0};
    int timeout_ms = admin->timeout_ms;
    admin->timeout_ms = timeout_ms * 3; /* the broker waits 10 s for the client */
    bool ok = admin_call(admin, address, REQUEST_GET_CONSUMER_RUNNING_INFO, fields, NO_BODY, response);
    admin->timeout_ms = timeout_ms;
    if (!ok)
        return false;
    if (json_parse(info, response->command.body, NULL, 0, &error) == 0)
        return true;
    admin_fail(admin, "answer of %s: %s", client_id, error.message);
    remoting_response_close(response);
    return false;
}

static int one_status(struct admin *admin, const char *address, const char *group, const char *client_id)
{
    struct remoting_response response;
    struct json_document info;
    if (!ask_running_info(admin, address, group, client_id, &response, &info))
        return ADMIN_FAILED;
    print_running_info(stdout, json_root(&info));
    json_close(&info);
    remoting_response_close(&response);
    return ADMIN_OK;
}

/* A client id is no path: what could leave the folder becomes '_'. */
static void file_name(const char *client_id, char out[256])
{
    snprintf(out, 256, "%s", client_id);
    for (char *at = out; *at != '\0'; at++)
        if (*at == '/' || (unsigned char)*at < 0x20)
            *at = '_';
    if (out[0] == '.')
        out[0] = '_';
}

/* "T:expression;" of all topics but retry topics, in the order given: two clients of a group must agree. */
static void describe_subscription(struct json_value info, struct buffer *out)
{
    struct json_value value;
    buffer_clear(out);
    for (struct json_iterator at = json_iterate(json_get(info, "subscriptionSet")); json_next_element(&at, &value);) {
        struct slice topic = text_of(value, "topic");
        if (topic_is_retry(topic))
            continue;
        buffer_append_slice(out, topic);
        buffer_append_u8(out, ':');
        buffer_append_slice(out, text_of(value, "subString"));
        buffer_append_u8(out, ';');
    }
}

static int write_status(struct admin *admin, const char *folder, const char *client_id, struct json_value info, char path[512])
{
    char name[256];
    file_name(client_id, name);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return admin_fail(admin, "%s: %s", folder, strerror(errno));
    snprintf(path, 512, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return admin_fail(admin, "%s: %s", path, strerror(errno));
    print_running_info(file, info);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed)
        return admin_fail(admin, "%s: writing failed", path);
    return ADMIN_OK;
}

static int all_statuses(struct admin *admin, const char *address, const char *group, const struct consumer_connection *connection)
{
    struct buffer first, other;
    char folder[32], path[512], version[16];
    int status = ADMIN_OK;
    int number = 0;
    bool same = true;
    buffer_init(&first, 0);
    buffer_init(&other, 0);
    snprintf(folder, sizeof folder, "%lld", (long long)client_clock_ms());
    printf("%-10s  %-40s  %-20s  %s\n", "#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile");
    for (size_t i = 0; i < connection->connection_count; i++) {
        struct remoting_response response;
        struct json_document info;
        char client_id[256];
        snprintf(client_id, sizeof client_id, "%.*s", ADMIN_SLICE(connection->connections[i].client_id));
        if (!ask_running_info(admin, address, group, client_id, &response, &info)) {
            status = ADMIN_FAILED;
            continue;
        }
        describe_subscription(json_root(&info), number == 0 ? &first : &other);
        same = same && (number == 0 || slice_equal(buffer_slice(&first), buffer_slice(&other)));
        if (write_status(admin, folder, client_id, json_root(&info), path) == ADMIN_OK)
            printf("%-10d  %-40s  %-20s  %s\n", ++number, client_id, admin_version(connection->connections[i].version, version), path);
        else
            status = ADMIN_FAILED;
        json_close(&info);
        remoting_response_close(&response);
    }
    if (number > 0 && same)
        printf("\n\nSame subscription in the same group of consumer\n\n\nRebalance OK\n");
    else if (number > 0)
        printf("\n\nWARN: Different subscription in the same group of consumer!!!\n");
    buffer_close(&first);
    buffer_close(&other);
    return status;
}

static int consumer_status(struct admin *admin)
{
    const char *group = admin_text(admin, "consumerGroup"), *client_id = admin_text(admin, "clientId");
    const struct remoting_field fields[] = {{"consumerGroup", group}, {NULL, NULL}};
    char retry[LEDGERMQ_TOPIC_MAX + 300], address[REMOTING_ADDRESS_MAX];
    struct remoting_response response;
    struct consumer_connection connection;
    struct error error = {0};
    if (admin_has(admin, "brokerAddr")) {
        snprintf(address, sizeof address, "%s", admin_text(admin, "brokerAddr"));
    } else {
        struct admin_targets brokers;
        snprintf(retry, sizeof retry, "%s%s", TOPIC_RETRY_PREFIX, group);
        if (!admin_topic_leaders(admin, retry, &brokers, false))
            return ADMIN_FAILED;
        memcpy(address, brokers.all[0].address, sizeof address);
        admin_targets_free(&brokers);
    }
    if (client_id != NULL)
        return one_status(admin, address, group, client_id);
    if (!admin_call(admin, address, REQUEST_GET_CONSUMER_CONNECTION_LIST, fields, NO_BODY, &response))
        return ADMIN_FAILED;
    int rv = consumer_connection_decode(&connection, response.command.body, &error);
    remoting_response_close(&response);
    if (rv != 0)
        return admin_fail(admin, "%s: %s", address, error.message);
    int status = all_statuses(admin, address, group, &connection);
    consumer_connection_close(&connection);
    return status;
}

/* --- producer ---- */

static int producer(struct admin *admin)
{
    struct remoting_response response;
    struct json_document document;
    struct json_value name, list, value;
    struct error error = {0};
    int status = ADMIN_OK;
    if (!admin_call(admin, admin_text(admin, "broker"), REQUEST_GET_ALL_PRODUCER_INFO, NULL, NO_BODY, &response))
        return ADMIN_FAILED;
    if (json_parse(&document, response.command.body, NULL, 0, &error) != 0) {
        status = admin_fail(admin, "%s", error.message);
        remoting_response_close(&response);
        return status;
    }
    for (struct json_iterator groups = json_iterate(json_get(json_root(&document), "data")); json_next_member(&groups, &name, &list);) {
        struct slice group = SLICE_LITERAL("");
        (void)json_text(name, &group);
        for (struct json_iterator at = json_iterate(list); json_next_element(&at, &value);)
            printf("producer group (%.*s) instance : clientId=%.*s,remoteIP=%.*s, language=%.*s, version=%lld, lastUpdateTimestamp=%lld\n",
                   ADMIN_SLICE(group), ADMIN_SLICE(text_of(value, "clientId")), ADMIN_SLICE(text_of(value, "remoteIP")),
                   ADMIN_SLICE(text_of(value, "language")), count_of(value, "version"), count_of(value, "lastUpdateTimestamp"));
    }
    json_close(&document);
    remoting_response_close(&response);
    return status;
}

static const struct admin_option consumer_status_options[] = {
    {'g', "consumerGroup", "GROUP", true, "its name"},
    {'i', "clientId", "ID", false, "this client only, to the screen"},
    {'b', "brokerAddr", "ADDRESS", false, "ask this broker"},
    {'s', "jstack", NULL, false, "with the stacks of its threads"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option producer_options[] = {
    {'b', "broker", "ADDRESS", true, "ask this broker"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command client_commands[] = {
    {"consumerStatus", "Show what a group's clients do", consumer_status_options, consumer_status,
     "Without -i one file for each client is written into a folder of the current one, named after the time."},
    {"producer", "Show all producers of a broker", producer_options, producer, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
