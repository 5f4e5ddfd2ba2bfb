/* What runs at the other end (org.apache.rocketmq.tools.command.consumer.ConsumerStatusSubCommand, .producer.ProducerSubCommand). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "client/admin/admin_ask.h"
#include "client/admin/running_info.h"
#include "proto/request_code.h"

/* --- consumerStatus ---- */

static bool ask_running_info(struct admin *admin, const char *address, const char *group, const char *client_id,
                             struct admin_json *info)
{
    return admin_running_info(admin, address, group, client_id, admin_has(admin, "jstack"), info, false);
}

static int one_status(struct admin *admin, const char *address, const char *group, const char *client_id)
{
    struct admin_json info;
    if (!ask_running_info(admin, address, group, client_id, &info))
        return ADMIN_FAILED;
    running_info_print(stdout, json_root(&info.document));
    admin_json_close(&info);
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
    running_info_print(file, info);
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
        struct admin_json info;
        char client_id[256];
        snprintf(client_id, sizeof client_id, "%.*s", ADMIN_SLICE(connection->connections[i].client_id));
        if (!ask_running_info(admin, address, group, client_id, &info)) {
            status = ADMIN_FAILED;
            continue;
        }
        running_info_subscription(json_root(&info.document), number == 0 ? &first : &other);
        same = same && (number == 0 || slice_equal(buffer_slice(&first), buffer_slice(&other)));
        if (write_status(admin, folder, client_id, json_root(&info.document), path) == ADMIN_OK)
            printf("%-10d  %-40s  %-20s  %s\n", ++number, client_id, admin_version(connection->connections[i].version, version), path);
        else
            status = ADMIN_FAILED;
        admin_json_close(&info);
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
    char address[REMOTING_ADDRESS_MAX];
    struct consumer_connection connection;
    if (!admin_group_broker(admin, group, address))
        return ADMIN_FAILED;
    if (client_id != NULL)
        return one_status(admin, address, group, client_id);
    if (!admin_consumer_connection(admin, address, group, &connection, false))
        return ADMIN_FAILED;
    int status = all_statuses(admin, address, group, &connection);
    consumer_connection_close(&connection);
    return status;
}

/* --- producer ---- */

static int producer(struct admin *admin)
{
    struct admin_json answer;
    struct json_value name, list, value;
    if (!admin_json(admin, admin_text(admin, "broker"), REQUEST_GET_ALL_PRODUCER_INFO, NULL, &answer))
        return ADMIN_FAILED;
    for (struct json_iterator groups = json_iterate(json_get(json_root(&answer.document), "data")); json_next_member(&groups, &name, &list);) {
        struct slice group = SLICE_LITERAL("");
        (void)json_text(name, &group);
        for (struct json_iterator at = json_iterate(list); json_next_element(&at, &value);)
            printf("producer group (%.*s) instance : clientId=%.*s,remoteIP=%.*s, language=%.*s, version=%lld, lastUpdateTimestamp=%lld\n",
                   ADMIN_SLICE(group), ADMIN_SLICE(admin_json_text(value, "clientId")), ADMIN_SLICE(admin_json_text(value, "remoteIP")),
                   ADMIN_SLICE(admin_json_text(value, "language")), admin_json_count(value, "version"), admin_json_count(value, "lastUpdateTimestamp"));
    }
    admin_json_close(&answer);
    return ADMIN_OK;
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
