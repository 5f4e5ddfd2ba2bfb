/* Body of HEART_BEAT (34): what a client instance produces and consumes.
 *
 * Follows org.apache.rocketmq.common.protocol.heartbeat.HeartbeatData, ConsumerData, ProducerData (spec:
 * remoting.md 5.5). Takes what the Java, Go and C++ clients send: enums as names or ordinals, numbers as text, sets
 * that are absent or null.
 */
#ifndef LEDGERMQ_PROTO_HEARTBEAT_DATA_H
#define LEDGERMQ_PROTO_HEARTBEAT_DATA_H

#include "proto/arena.h"
#include "proto/subscription_data.h"

enum consume_type { CONSUME_ACTIVELY, CONSUME_PASSIVELY, CONSUME_POP, CONSUME_TYPES };
enum message_model { MESSAGE_MODEL_BROADCASTING, MESSAGE_MODEL_CLUSTERING, MESSAGE_MODELS };
enum consume_from_where {
    CONSUME_FROM_LAST_OFFSET,
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST,
    CONSUME_FROM_MIN_OFFSET,
    CONSUME_FROM_MAX_OFFSET,
    CONSUME_FROM_FIRST_OFFSET,
    CONSUME_FROM_TIMESTAMP,
    CONSUME_FROM_WHERES
};

/* Names on the wire, in the order of the enums. */
extern const char *const consume_type_names[CONSUME_TYPES];
extern const char *const message_model_names[MESSAGE_MODELS];
extern const char *const consume_from_where_names[CONSUME_FROM_WHERES];

struct consumer_data {
    struct slice group_name;
    enum consume_type consume_type;
    enum message_model message_model;
    enum consume_from_where consume_from_where;
    bool unit_mode;
    struct subscription_data *subscriptions;
    size_t subscription_count;
};

struct producer_data {
    struct slice group_name;
};

struct heartbeat_data {
    struct arena arena; /* of a decoded one */
    struct slice client_id;
    struct consumer_data *consumers;
    size_t consumer_count;
    struct producer_data *producers;
    size_t producer_count;
    int32_t heartbeat_fingerprint; /* 5.x: not 0 = "V2" */
    bool without_sub;              /* 5.x: subscriptions are left out and must not be forgotten */
};

/* ERROR_MISSING (clientID, groupName or topic), or errors of json_body.h; then nothing is left to close. */
int heartbeat_data_decode(struct heartbeat_data *data, struct slice body, struct error *error);
void heartbeat_data_close(struct heartbeat_data *data);
/* The form of a 4.9 client; the 5.x members are left out. */
void heartbeat_data_encode(const struct heartbeat_data *data, struct buffer *out);

#endif
