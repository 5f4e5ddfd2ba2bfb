/* Settings of one topic (org.apache.rocketmq.common.TopicConfig; spec: remoting.md 5.8). */
#ifndef LEDGERMQ_PROTO_TOPIC_CONFIG_H
#define LEDGERMQ_PROTO_TOPIC_CONFIG_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"

#define TOPIC_QUEUE_NUMS_DEFAULT 16
#define TOPIC_RESERVED_HOURS_MAX 876000

/* org.apache.rocketmq.common.constant.PermName */
enum perm {
    PERM_INHERIT = 1, /* a topic that is not there may be made after this one */
    PERM_WRITE = 2,
    PERM_READ = 4,
    PERM_PRIORITY = 8,
};

enum topic_sys_flag {
    TOPIC_SYS_FLAG_UNIT = 1,
    TOPIC_SYS_FLAG_UNIT_SUB = 2,
};

struct json_value;
struct json_writer;

struct topic_config {
    struct slice name; /* borrowed: from the arena of what was decoded, or from the owner of the table */
    int32_t read_queue_nums;
    int32_t write_queue_nums;
    int32_t perm;   /* enum perm bits */
    bool multi_tag; /* topicFilterType MULTI_TAG, else SINGLE_TAG */
    int32_t topic_sys_flag;
    bool order;
    int32_t reserved_hours; /* RocketMQ 5's attribute reserve.time: its messages expire after so long; 0 = not set, fileReservedTime counts */
};

/* RocketMQ's defaults: 16 and 16 queues, read and write. */
void topic_config_init(struct topic_config *config, struct slice name);
void topic_config_encode(const struct topic_config *config, struct buffer *out);

/* The same as part of another body. */
void topic_config_write(struct json_writer *writer, const struct topic_config *config);

/* Absent members take the defaults; name is used where topicName is absent (the key of the table it stands in). Errors
 * of json_body.h. */
int topic_config_read(struct topic_config *config, struct arena *arena, struct json_value object, struct slice name,
                      struct error *error);

#endif
