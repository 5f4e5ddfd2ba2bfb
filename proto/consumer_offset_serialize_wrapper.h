/* Offsets of all groups: {"offsetTable":{"T@G":{0:5,1:7}}}, answer of GET_ALL_CONSUMER_OFFSET (43) and the text of
 * config/consumerOffset.json (org.apache.rocketmq.common.protocol.body.ConsumerOffsetSerializeWrapper).
 */
#ifndef LEDGERMQ_PROTO_CONSUMER_OFFSET_SERIALIZE_WRAPPER_H
#define LEDGERMQ_PROTO_CONSUMER_OFFSET_SERIALIZE_WRAPPER_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"

struct consumer_offset {
    struct slice topic;
    struct slice group;
    int32_t queue_id;
    int64_t offset;
};

struct consumer_offset_serialize_wrapper {
    struct arena arena; /* of a decoded one */
    struct consumer_offset *offsets;
    size_t offset_count;
};

/* begin, then for each topic and group: group_begin, add each queue, group_end; then end. */
void consumer_offset_serialize_wrapper_begin(struct buffer *out);
void consumer_offset_serialize_wrapper_group_begin(struct buffer *out, struct slice topic, struct slice group);
void consumer_offset_serialize_wrapper_add(struct buffer *out, int32_t queue_id, int64_t offset);
void consumer_offset_serialize_wrapper_group_end(struct buffer *out);
void consumer_offset_serialize_wrapper_end(struct buffer *out);

/* Takes quoted and bare queue ids; a key without "@" is skipped. Errors of json_body.h; then nothing is left to close.
 */
int consumer_offset_serialize_wrapper_decode(struct consumer_offset_serialize_wrapper *wrapper, struct slice body,
                                             struct error *error);
void consumer_offset_serialize_wrapper_close(struct consumer_offset_serialize_wrapper *wrapper);

#endif
