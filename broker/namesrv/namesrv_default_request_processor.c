/* 1. A frame is decoded; one that is none closes its connection without an answer.
 * 2. The row of its code reads the header it needs (a missing field is answered 1 and named), asks the tables, and fills a struct answer.
 * 3. The answer is written in one place; bodies go through a buffer first, since a frame has a size that clients cut the connection over.
 */
#include "broker/namesrv/namesrv_default_request_processor.h"

#include <stdarg.h>
#include <stdio.h>

#include "broker/namesrv/namesrv.h"
#include "broker/remoting/connection.h"
#include "proto/headers.h"
#include "proto/register_broker_body.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "proto/topic_config_serialize_wrapper.h"
#include "store/log_sink.h"
#include "store/state_file.h"

#define BODY_MAX (REMOTING_FRAME_MAX - 65536u) /* leaves room for any header of ours */
#define VERSION_V3_0_11 37                     /* from here on 103 carries a RegisterBrokerBody */
#define VERSION_V4_9_4 401                     /* from here on clients read standard JSON */
/* What JVM tools expect in front of an error text that has no code of its own. */
#define COMMAND_EXCEPTION "org.apache.rocketmq.remoting.exception.RemotingCommandException: "

struct answer {
    int32_t code;
    char remark[600]; /* empty = none */
    struct {
        const char *name;
        char text[64];
        struct slice value; /* text when data is NULL */
    } ext[2];
    unsigned ext_count;
    struct buffer body;
};

struct namesrv_request {
    struct namesrv *namesrv;
    struct connection *connection;
    const struct remoting_command *command;
    const char *listener; /* kind of address that the asked port stands for, NULL = the default one */
};

static void __attribute__((format(printf, 3, 4))) refuse(struct answer *answer, int32_t code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(answer->remark, sizeof answer->remark, format, arguments);
    va_end(arguments);
    answer->code = code;
    answer->ext_count = 0;
    buffer_clear(&answer->body);
}

static void answer_ext(struct answer *answer, const char *name, struct slice value)
{
    answer->ext[answer->ext_count].name = name;
    answer->ext[answer->ext_count++].value = value;
}

static void answer_ext_text(struct answer *answer, const char *name, const char *value)
{
    answer->ext[answer->ext_count].name = name;
    snprintf(answer->ext[answer->ext_count++].text, sizeof answer->ext[0].text, "%s", value);
}

/* Reads the typed header of a request; false when it was refused. */
#define READ_HEADER(type, header)                                                                                              \
    struct type header;                                                                                                        \
    do {                                                                                                                       \
        struct error header_error;                                                                                             \
        if (type##_decode(request->command, &header, &header_error) != 0) {                                                    \
            refuse(answer, RESPONSE_SYSTEM_ERROR, COMMAND_EXCEPTION "%s", header_error.message);                               \
            return;                                                                                                            \
        }                                                                                                                      \
    } while (0)

static void put_kv_config(struct namesrv_request *request, struct answer *answer)
{
    READ_HEADER(put_kv_config_request_header, header);
    struct error error;
    if (kv_config_manager_put(&request->namesrv->kv, header.name_space, header.key, header.value, &error) != 0)
        refuse(answer, RESPONSE_SYSTEM_ERROR, "%s", error.message);
}

static void get_kv_config(struct namesrv_request *request, struct answer *answer)
{
    READ_HEADER(get_kv_config_request_header, header);
    struct slice value;
    if (kv_config_manager_get(&request->namesrv->kv, header.name_space, header.key, &value))
        answer_ext(answer, "value", value);
    else
        refuse(answer, RESPONSE_QUERY_NOT_FOUND, "No config item, Namespace: %.*s Key: %.*s", (int)header.name_space.size,
               (const char *)header.name_space.data, (int)header.key.size, (const char *)header.key.data);
}

static void delete_kv_config(struct namesrv_request *request, struct answer *answer)
{
    READ_HEADER(get_kv_config_request_header, header);
    struct error error;
    if (kv_config_manager_delete(&request->namesrv->kv, header.name_space, header.key, &error) != 0)
        refuse(answer, RESPONSE_SYSTEM_ERROR, "%s", error.message);
}

static void get_kv_list(struct namesrv_request *request, struct answer *answer)
{
    READ_HEADER(get_kv_list_request_header, header);
    if (!kv_config_manager_table(&request->namesrv->kv, header.name_space, &answer->body))
        refuse(answer, RESPONSE_QUERY_NOT_FOUND, "No config item, Namespace: %.*s", (int)header.name_space.size,
               (const char *)header.name_space.data);
}

/* Topics of a registration in any of its three forms: plain, compressed, and the bare table of brokers before V3_0_11. */
struct registered_topics {
    struct register_broker_body body;
    struct topic_config_serialize_wrapper wrapper;
    bool has_body, has_wrapper;
};

static int read_topics(const struct namesrv_request *request, bool compressed, struct registered_topics *topics,
                       struct route_registration *registration, struct error *error)
{
    struct slice bytes = request->command->body;
    *topics = (struct registered_topics){0};
    if (bytes.size == 0)
        return 0; /* an empty table of version 0 */
    if (request->command->version < VERSION_V3_0_11) {
        int rv = topic_config_serialize_wrapper_decode(&topics->wrapper, bytes, error);
        topics->has_wrapper = rv == 0;
        registration->version = topics->wrapper.version;
        registration->topics = topics->wrapper.topics;
        registration->topic_count = rv == 0 ? topics->wrapper.topic_count : 0;
        return rv;
    }
    int rv = register_broker_body_decode(&topics->body, bytes, compressed, error);
    topics->has_body = rv == 0;
    registration->version = topics->body.version;
    registration->topics = topics->body.topics;
    registration->topic_count = rv == 0 ? topics->body.topic_count : 0;
    return rv;
}

static void register_broker(struct namesrv_request *request, struct answer *answer)
{
    READ_HEADER(register_broker_request_header, header);
    if (header.has_body_crc32 && !register_broker_body_crc_ok(request->command->body, header.body_crc32)) {
        refuse(answer, RESPONSE_SYSTEM_ERROR, "crc32 not match");
        return;
    }
    struct namesrv *namesrv = request->namesrv;
    struct route_registration registration = {
        .cluster_name = header.cluster_name,
        .broker_name = header.broker_name,
        .broker_address = header.broker_addr,
        .ha_server_address = header.ha_server_addr,
        .listeners = header.advertised_listeners,
        .broker_id = header.broker_id,
        .leader_term = header.has_leader_term ? header.leader_term : -1,
        .timeout_ms = header.has_heartbeat_timeout_ms ? header.heartbeat_timeout_ms : 0,
        .connection_id = request->connection->id,
    };
    struct error error;
    struct registered_topics topics;
    struct route_register_result result = {0};
    int rv = read_topics(request, header.compressed, &topics, &registration, &error);
    if (rv != 0)
        refuse(answer, RESPONSE_SYSTEM_ERROR, COMMAND_EXCEPTION "body of a registration: %s", error.message);
    else if ((rv = route_info_register(&namesrv->routes, &registration, namesrv_now_ms(namesrv), &result, &error)) != 0)
        refuse(answer, RESPONSE_SYSTEM_ERROR, "%s", error.message);
    if (topics.has_body)
        register_broker_body_close(&topics.body);
    if (topics.has_wrapper)
        topic_config_serialize_wrapper_close(&topics.wrapper);
    if (rv != 0)
        return;
    if (header.broker_id != 0 && result.master_address.size != 0) {
        answer_ext(answer, "haServerAddr", result.master_ha_address);
        answer_ext(answer, "masterAddr", result.master_address);
    }
    kv_config_manager_table(&namesrv->kv, SLICE_LITERAL(KV_NAMESPACE_ORDER_TOPIC_CONFIG), &answer->body);
}

static void unregister_broker(struct namesrv_request *request, struct answer *answer)
{
    READ_HEADER(unregister_broker_request_header, header);
    route_info_unregister(&request->namesrv->routes, header.broker_name, header.broker_addr);
}

static void query_data_version(struct namesrv_request *request, struct answer *answer)
{
    READ_HEADER(unregister_broker_request_header, header);
    struct error error;
    struct data_version version, stored;
    if (data_version_decode(&version, request->command->body, &error) != 0) {
        refuse(answer, RESPONSE_SYSTEM_ERROR, COMMAND_EXCEPTION "body of a version query: %s", error.message);
        return;
    }
    bool known;
    bool same = route_info_query_version(&request->namesrv->routes, header.broker_name, header.broker_addr, &version,
                                         namesrv_now_ms(request->namesrv), &stored, &known);
    answer_ext_text(answer, "changed", same ? "false" : "true");
    if (known)
        data_version_encode(&stored, &answer->body);
}

/* A name server that has just started and has not heard the leaders yet does not know that a topic is not there; 17 would make producers give
 * up and consumers drop their queues. */
static bool not_ready(const struct namesrv *namesrv)
{
    return namesrv_now_ms(namesrv) - namesrv->started_ms < (namesrv->routes.leader_seen ? NAMESRV_SETTLE_MS : NAMESRV_NOT_READY_MS);
}

/* The operator's own wait: nothing is answered, also not what is known, for it may be a part. */
static bool waits_for_service(const struct namesrv *namesrv)
{
    return namesrv->config.need_wait_for_service &&
           namesrv_now_ms(namesrv) - namesrv->started_ms < namesrv->config.wait_seconds_for_service * INT64_C(1000);
}

static void get_route_info(struct namesrv_request *request, struct answer *answer)
{
    READ_HEADER(get_route_info_request_header, header);
    struct namesrv *namesrv = request->namesrv;
    struct slice order_topic_conf = {0};
    if (namesrv->config.order_message_enable)
        kv_config_manager_get(&namesrv->kv, SLICE_LITERAL(KV_NAMESPACE_ORDER_TOPIC_CONFIG), header.topic, &order_topic_conf);
    bool quoted_ids = header.accept_standard_json_only || request->command->version >= VERSION_V4_9_4;
    bool waits = waits_for_service(namesrv);
    if (!waits && route_info_topic_route(&namesrv->routes, header.topic, request->listener, quoted_ids, order_topic_conf, &answer->body))
        return;
    if (waits || not_ready(namesrv))
        refuse(answer, RESPONSE_SYSTEM_ERROR, "name server not ready");
    else
        refuse(answer, RESPONSE_TOPIC_NOT_EXIST,
               "No topic route info in name server for the topic: %.*s\nSee http://rocketmq.apache.org/docs/faq/ for further details.",
               (int)header.topic.size, (const char *)header.topic.data);
}

static void get_cluster_info(struct namesrv_request *request, struct answer *answer)
{
    route_info_cluster(&request->namesrv->routes, request->listener, &answer->body);
}

static void get_all_topics(struct namesrv_request *request, struct answer *answer)
{
    route_info_topics(&request->namesrv->routes, (struct slice){0}, 0, 0, &answer->body);
}

static void get_topics_by_cluster(struct namesrv_request *request, struct answer *answer)
{
    READ_HEADER(get_topics_by_cluster_request_header, header);
    route_info_topics(&request->namesrv->routes, header.cluster, 0, 0, &answer->body);
}

static void get_system_topics(struct namesrv_request *request, struct answer *answer)
{
    route_info_system_topics(&request->namesrv->routes, request->listener, &answer->body);
}

static void get_unit_topics(struct namesrv_request *request, struct answer *answer)
{
    route_info_topics(&request->namesrv->routes, (struct slice){0}, TOPIC_SYS_FLAG_UNIT, TOPIC_SYS_FLAG_UNIT, &answer->body);
}

static void get_has_unit_sub_topics(struct namesrv_request *request, struct answer *answer)
{
    route_info_topics(&request->namesrv->routes, (struct slice){0}, TOPIC_SYS_FLAG_UNIT_SUB, TOPIC_SYS_FLAG_UNIT_SUB, &answer->body);
}

static void get_has_unit_sub_ununit_topics(struct namesrv_request *request, struct answer *answer)
{
    route_info_topics(&request->namesrv->routes, (struct slice){0}, TOPIC_SYS_FLAG_UNIT | TOPIC_SYS_FLAG_UNIT_SUB, TOPIC_SYS_FLAG_UNIT_SUB,
                      &answer->body);
}

static void answer_count(struct answer *answer, const char *name, int32_t count)
{
    char text[16];
    snprintf(text, sizeof text, "%d", count);
    answer_ext_text(answer, name, text);
}

static void wipe_write_perm(struct namesrv_request *request, struct answer *answer)
{
    READ_HEADER(broker_name_request_header, header);
    answer_count(answer, "wipeTopicCount", route_info_wipe_write_perm(&request->namesrv->routes, header.broker_name));
}

static void add_write_perm(struct namesrv_request *request, struct answer *answer)
{
    READ_HEADER(broker_name_request_header, header);
    answer_count(answer, "addTopicCount", route_info_add_write_perm(&request->namesrv->routes, header.broker_name));
}

static void delete_topic(struct namesrv_request *request, struct answer *answer)
{
    READ_HEADER(delete_topic_from_namesrv_request_header, header);
    route_info_delete_topic(&request->namesrv->routes, header.topic, header.cluster_name);
}

static void update_config(struct namesrv_request *request, struct answer *answer)
{
    struct namesrv *namesrv = request->namesrv;
    struct namesrv_config before = namesrv->config;
    struct error error;
    int rv = namesrv_config_update(&namesrv->config, request->command->body, &error);
    if (rv == 0 && namesrv->config.config_store_path[0] != 0) {
        struct buffer text;
        buffer_init(&text, 0);
        namesrv_config_write(&namesrv->config, &text);
        rv = state_file_write(namesrv->env, namesrv->config.config_store_path, buffer_slice(&text), &error);
        buffer_close(&text);
        if (rv != 0)
            namesrv->config = before; /* what is answered as done must outlive a restart */
    }
    if (rv != 0)
        refuse(answer, rv == ERROR_NOT_FOUND ? RESPONSE_NO_PERMISSION : RESPONSE_SYSTEM_ERROR, "%s", error.message);
}

static void get_config(struct namesrv_request *request, struct answer *answer)
{
    namesrv_config_write(&request->namesrv->config, &answer->body);
}

static const struct {
    int32_t code;
    void (*handle)(struct namesrv_request *request, struct answer *answer);
} rows[] = {
    {REQUEST_GET_ROUTEINFO_BY_TOPIC, get_route_info},
    {REQUEST_REGISTER_BROKER, register_broker},
    {REQUEST_UNREGISTER_BROKER, unregister_broker},
    {REQUEST_QUERY_DATA_VERSION, query_data_version},
    {REQUEST_GET_BROKER_CLUSTER_INFO, get_cluster_info},
    {REQUEST_PUT_KV_CONFIG, put_kv_config},
    {REQUEST_GET_KV_CONFIG, get_kv_config},
    {REQUEST_DELETE_KV_CONFIG, delete_kv_config},
    {REQUEST_GET_KVLIST_BY_NAMESPACE, get_kv_list},
    {REQUEST_GET_ALL_TOPIC_LIST_FROM_NAMESERVER, get_all_topics},
    {REQUEST_GET_TOPICS_BY_CLUSTER, get_topics_by_cluster},
    {REQUEST_GET_SYSTEM_TOPIC_LIST_FROM_NS, get_system_topics},
    {REQUEST_GET_UNIT_TOPIC_LIST, get_unit_topics},
    {REQUEST_GET_HAS_UNIT_SUB_TOPIC_LIST, get_has_unit_sub_topics},
    {REQUEST_GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, get_has_unit_sub_ununit_topics},
    {REQUEST_WIPE_WRITE_PERM_OF_BROKER, wipe_write_perm},
    {REQUEST_ADD_WRITE_PERM_OF_BROKER, add_write_perm},
    {REQUEST_DELETE_TOPIC_IN_NAMESRV, delete_topic},
    {REQUEST_UPDATE_NAMESRV_CONFIG, update_config},
    {REQUEST_GET_NAMESRV_CONFIG, get_config},
};

static void dispatch(struct namesrv_request *request, struct answer *answer)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].code == request->command->code) {
            rows[i].handle(request, answer);
            if (answer->body.failed)
                refuse(answer, RESPONSE_SYSTEM_ERROR, "the answer is larger than a frame may be (16 MiB), or memory is short");
            return;
        }
    }
    refuse(answer, RESPONSE_REQUEST_CODE_NOT_SUPPORTED, " request type %d not supported", request->command->code);
}

static void write_answer(struct connection *connection, const struct remoting_command *command, const struct answer *answer)
{
    struct buffer *out = connection_output(connection);
    if (out == NULL)
        return;
    struct remoting_writer writer;
    remoting_writer_begin_response(&writer, out, command->serialize_type, answer->code, command->opaque,
                                   answer->remark[0] == 0 ? NULL : answer->remark);
    for (unsigned i = 0; i < answer->ext_count; i++) {
        if (answer->ext[i].value.data != NULL)
            remoting_writer_ext(&writer, answer->ext[i].name, answer->ext[i].value);
        else
            remoting_writer_ext_text(&writer, answer->ext[i].name, answer->ext[i].text);
    }
    remoting_writer_body(&writer);
    buffer_append_slice(out, buffer_slice(&answer->body));
    remoting_writer_end(&writer, 0);
    connection_frame_done(connection);
}

void namesrv_default_request_processor(struct namesrv *namesrv, struct connection *connection, uint8_t *frame, size_t size)
{
    struct remoting_command command;
    int rv = remoting_command_decode(frame, size, &command);
    if (rv != 0) {
        connection_close_malformed(connection, error_text(rv));
        return;
    }
    if (remoting_is_response(&command))
        return; /* the name server asks nobody anything */
    struct answer answer = {.code = RESPONSE_SUCCESS};
    buffer_init(&answer.body, BODY_MAX);
    struct namesrv_request request = {
        .namesrv = namesrv,
        .connection = connection,
        .command = &command,
        .listener = namesrv_config_listener_name(&namesrv->config, connection->local_port),
    };
    dispatch(&request, &answer);
    if (!remoting_is_oneway(&command))
        write_answer(connection, &command, &answer);
    buffer_close(&answer.body);
}
