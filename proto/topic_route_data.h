/* Answer of GET_ROUTEINFO_BY_TOPIC (105): brokers with their addresses, and the queues each has of the topic.
 *
 * Follows org.apache.rocketmq.common.protocol.route.TopicRouteData, BrokerData, QueueData (spec: remoting.md 5.2).
 */
#ifndef LEDGERMQ_PROTO_TOPIC_ROUTE_DATA_H
#define LEDGERMQ_PROTO_TOPIC_ROUTE_DATA_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"

struct json_value;
struct json_writer;

struct broker_address {
    int64_t id; /* 0 = the one that takes writes */
    struct slice address;
};

struct broker_data {
    struct slice cluster;
    struct slice broker_name;
    struct broker_address *addresses;
    size_t address_count;
};

struct queue_data {
    struct slice broker_name;
    int32_t read_queue_nums;
    int32_t write_queue_nums;
    int32_t perm;
    int32_t topic_sys_flag;
};

struct topic_route_data {
    struct arena arena;            /* of a decoded one */
    struct slice order_topic_conf; /* data NULL when absent */
    struct broker_data *brokers;
    size_t broker_count;
    struct queue_data *queues;
    size_t queue_count;
};

/* {"brokerAddrs":{...},"brokerName":"b","cluster":"c"}, in the one line that Go's parser needs. quoted_ids: {"0":...}
 * instead of {0:...}. */
void broker_data_encode(const struct broker_data *broker, bool quoted_ids, struct buffer *out);
void queue_data_encode(const struct queue_data *queue, struct buffer *out);

void topic_route_data_encode(const struct topic_route_data *route, bool quoted_ids, struct buffer *out);
/* Takes quoted and bare ids. Errors of json_body.h; then nothing is left to close. */
int topic_route_data_decode(struct topic_route_data *route, struct slice body, struct error *error);
void topic_route_data_close(struct topic_route_data *route);
/* Address of that id; data NULL when there is none. */
struct slice broker_data_address(const struct broker_data *broker, int64_t id);

/* The same as part of another body. */
void broker_data_write(struct json_writer *writer, const struct broker_data *broker, bool quoted_ids);
int broker_data_read(struct broker_data *broker, struct arena *arena, struct json_value object, struct error *error);

#endif
