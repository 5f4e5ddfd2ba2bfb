/* Name servers (org.apache.rocketmq.tools.command.namesrv). */
#include <stdio.h>

#include "client/admin/admin.h"
#include "proto/java_properties.h"
#include "proto/request_code.h"

static int kv_config(struct admin *admin, int32_t code, const char *done)
{
    const struct remoting_field fields[] = {{"namespace", admin_text(admin, "namespace")},
                                            {"key", admin_text(admin, "key")},
                                            {"value", admin_text(admin, "value")},
                                            {NULL, NULL}};
    if (!admin_each_name_server(admin, code, fields, NO_BODY, NULL))
        return ADMIN_FAILED;
    printf("%s\n", done);
    return ADMIN_OK;
}

static int update_kv_config(struct admin *admin)
{
    return kv_config(admin, REQUEST_PUT_KV_CONFIG, "create or update kv config to namespace success.");
}

static int delete_kv_config(struct admin *admin)
{
    return kv_config(admin, REQUEST_DELETE_KV_CONFIG, "delete kv config from namespace success.");
}

static const char *perm_verb, *perm_broker, *perm_count;

static void print_perm(const char *address, const struct remoting_command *answer)
{
    printf("%s write perm of broker[%s] in name server[%s] OK, %.*s\n", perm_verb, perm_broker, address,
           ADMIN_SLICE(remoting_ext(answer, perm_count)));
}

static int write_perm(struct admin *admin, int32_t code, const char *verb, const char *count)
{
    const struct remoting_field fields[] = {{"brokerName", admin_text(admin, "brokerName")}, {NULL, NULL}};
    perm_verb = verb;
    perm_count = count;
    perm_broker = fields[0].value;
    return admin_each_name_server(admin, code, fields, NO_BODY, print_perm) ? ADMIN_OK : ADMIN_FAILED;
}

static int wipe_write_perm(struct admin *admin)
{
    return write_perm(admin, REQUEST_WIPE_WRITE_PERM_OF_BROKER, "wipe", "wipeTopicCount");
}

static int add_write_perm(struct admin *admin)
{
    return write_perm(admin, REQUEST_ADD_WRITE_PERM_OF_BROKER, "add", "addTopicCount");
}

static void print_config(const char *address, const struct remoting_command *answer)
{
    struct java_properties_reader reader;
    struct slice key, value;
    int rv = 0;
    printf("============%s============\n", address);
    java_properties_reader_init(&reader, answer->body);
    while (java_properties_next(&reader, &key, &value, &rv, NULL))
        printf("%-50.*s=  %.*s\n", ADMIN_SLICE(key), ADMIN_SLICE(value));
    java_properties_reader_close(&reader);
}

static int get_namesrv_config(struct admin *admin)
{
    return admin_each_name_server(admin, REQUEST_GET_NAMESRV_CONFIG, NULL, NO_BODY, print_config) ? ADMIN_OK
                                                                                                  : ADMIN_FAILED;
}

static int update_namesrv_config(struct admin *admin)
{
    struct buffer body;
    buffer_init(&body, 0);
    java_properties_append_text(&body, admin_text(admin, "key"), admin_text(admin, "value"));
    bool ok = admin_each_name_server(admin, REQUEST_UPDATE_NAMESRV_CONFIG, NULL, buffer_slice(&body), NULL);
    buffer_close(&body);
    if (ok)
        printf("update name server config success!\n%s : %s\n", admin_text(admin, "key"), admin_text(admin, "value"));
    return ok ? ADMIN_OK : ADMIN_FAILED;
}

static const struct admin_option update_kv_options[] = {
    {'s', "namespace", "NAMESPACE", true, "for example ORDER_TOPIC_CONFIG"},
    {'k', "key", "KEY", true, "its key"},
    {'v', "value", "VALUE", true, "its value"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option delete_kv_options[] = {
    {'s', "namespace", "NAMESPACE", true, "for example ORDER_TOPIC_CONFIG"},
    {'k', "key", "KEY", true, "its key"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option broker_name_options[] = {
    {'b', "brokerName", "NAME", true, "the broker's name (not its address)"},
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option no_options[] = {
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option config_options[] = {
    {'k', "key", "KEY", true, "key of namesrv.conf"},
    {'v', "value", "VALUE", true, "its new value"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command namesrv_commands[] = {
    {"updateKvConfig", "Set a key of a name server's configuration store", update_kv_options, update_kv_config, NULL},
    {"deleteKvConfig", "Remove a key of a name server's configuration store", delete_kv_options, delete_kv_config,
     NULL},
    {"wipeWritePerm", "Take away write permission of a broker's topics", broker_name_options, wipe_write_perm, NULL},
    {"addWritePerm", "Give back write permission of a broker's topics", broker_name_options, add_write_perm, NULL},
    {"getNamesrvConfig", "Show the name servers' configuration", no_options, get_namesrv_config, NULL},
    {"updateNamesrvConfig", "Change one key of the name servers' configuration", config_options,
     update_namesrv_config, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
