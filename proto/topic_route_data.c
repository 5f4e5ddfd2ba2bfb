#include "proto/topic_route_data.h"

#include "proto/json_body.h"

void broker_data_write(struct json_writer *writer, const struct broker_data *broker, bool quoted_ids)
{
    json_write_begin_object(writer);
    json_write_key(writer, "brokerAddrs");
    json_write_begin_object(writer);
    for (size_t i = 0; i < broker->address_count; i++) {
        if (quoted_ids)
            json_write_key_i64_quoted(writer, broker->addresses[i].id);
        else
            json_write_key_i64(writer, broker->addresses[i].id);
        json_write_slice(writer, broker->addresses[i].address);
    }
    json_write_end_object(writer);
    json_write_member_slice(writer, "brokerName", broker->broker_name);
    json_write_member_slice(writer, "cluster", broker->cluster);
    json_write_end_object(writer);
}

void broker_data_encode(const struct broker_data *broker, bool quoted_ids, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    broker_data_write(&writer, broker, quoted_ids);
}

static void write_queue(struct json_writer *writer, const struct queue_data *queue)
{
    json_write_begin_object(writer);
    json_write_member_slice(writer, "brokerName", queue->broker_name);
    json_write_member_i64(writer, "perm", queue->perm);
    json_write_member_i64(writer, "readQueueNums", queue->read_queue_nums);
    json_write_member_i64(writer, "topicSysFlag", queue->topic_sys_flag);
    json_write_member_i64(writer, "writeQueueNums", queue->write_queue_nums);
    json_write_end_object(writer);
}

void queue_data_encode(const struct queue_data *queue, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    write_queue(&writer, queue);
}

void topic_route_data_encode(const struct topic_route_data *route, bool quoted_ids, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    json_write_key(&writer, "brokerDatas");
    json_write_begin_array(&writer);
    for (size_t i = 0; i < route->broker_count; i++)
        broker_data_write(&writer, &route->brokers[i], quoted_ids);
    json_write_end_array(&writer);
    json_write_key(&writer, "filterServerTable");
    json_write_begin_object(&writer);
    json_write_end_object(&writer);
    json_write_member_slice(&writer, "orderTopicConf", route->order_topic_conf);
    json_write_key(&writer, "queueDatas");
    json_write_begin_array(&writer);
    for (size_t i = 0; i < route->queue_count; i++)
        write_queue(&writer, &route->queues[i]);
    json_write_end_array(&writer);
    json_write_end_object(&writer);
}

int broker_data_read(struct broker_data *broker, struct arena *arena, struct json_value object, struct error *error)
{
    struct json_iterator iterator;
    struct json_value key;
    struct json_value value;

    *broker = (struct broker_data){0};
    if (!json_is_object(object))
        return error_set(error, ERROR_INVALID, "a broker is no object");
    int rv = json_body_text(arena, object, "cluster", &broker->cluster, error);
    if (rv == 0)
        rv = json_body_required_text(arena, object, "brokerName", &broker->broker_name, error);
    if (rv == 0)
        rv = json_body_map(arena, object, "brokerAddrs", sizeof *broker->addresses, &broker->addresses, &iterator,
                           error);
    while (rv == 0 && json_next_member(&iterator, &key, &value)) {
        struct broker_address *address = &broker->addresses[broker->address_count];
        if (json_is_null(value))
            continue;
        rv = json_body_integer_key(key, "brokerAddrs", &address->id, error);
        if (rv == 0)
            rv = json_body_copy(arena, value, "brokerAddrs", &address->address, error);
        broker->address_count++;
    }
    return rv;
}

static int read_queue(struct queue_data *queue, struct arena *arena, struct json_value object, struct error *error)
{
    if (!json_is_object(object))
        return error_set(error, ERROR_INVALID, "a queue is no object");
    int rv = json_body_required_text(arena, object, "brokerName", &queue->broker_name, error);
    if (rv == 0)
        rv = json_read_i32(object, "readQueueNums", &queue->read_queue_nums, error);
    if (rv == 0)
        rv = json_read_i32(object, "writeQueueNums", &queue->write_queue_nums, error);
    if (rv == 0)
        rv = json_read_i32(object, "perm", &queue->perm, error);
    /* topicSynFlag is how versions before 4.9 spelled it. */
    if (rv == 0)
        rv = json_read_i32(object, "topicSynFlag", &queue->topic_sys_flag, error);
    if (rv == 0)
        rv = json_read_i32(object, "topicSysFlag", &queue->topic_sys_flag, error);
    return rv;
}

static int read_members(struct topic_route_data *route, struct json_value root, struct error *error)
{
    struct json_iterator iterator;
    struct json_value element;

    int rv = json_body_text(&route->arena, root, "orderTopicConf", &route->order_topic_conf, error);
    if (rv == 0)
        rv = json_body_array(&route->arena, root, "brokerDatas", sizeof *route->brokers, &route->brokers, &iterator,
                             error);
    while (rv == 0 && json_next_element(&iterator, &element))
        if (!json_is_null(element))
            rv = broker_data_read(&route->brokers[route->broker_count++], &route->arena, element, error);
    if (rv == 0)
        rv =
            json_body_array(&route->arena, root, "queueDatas", sizeof *route->queues, &route->queues, &iterator, error);
    while (rv == 0 && json_next_element(&iterator, &element))
        if (!json_is_null(element))
            rv = read_queue(&route->queues[route->queue_count++], &route->arena, element, error);
    return rv;
}

int topic_route_data_decode(struct topic_route_data *route, struct slice body, struct error *error)
{
    struct json_document document;

    *route = (struct topic_route_data){0};
    int rv = json_body_open(&document, &route->arena, body, error);
    if (rv != 0)
        return rv;
    rv = read_members(route, json_root(&document), error);
    json_close(&document);
    if (rv != 0)
        topic_route_data_close(route);
    return rv;
}

void topic_route_data_close(struct topic_route_data *route)
{
    arena_close(&route->arena);
    *route = (struct topic_route_data){0};
}

struct slice broker_data_address(const struct broker_data *broker, int64_t id)
{
    for (size_t i = 0; i < broker->address_count; i++)
        if (broker->addresses[i].id == id)
            return broker->addresses[i].address;
    return (struct slice){0};
}
