/* Progress of each delay level: {"offsetTable":{1:0,2:35}}, answer of GET_ALL_DELAY_OFFSET (45) and the text of
 * config/delayOffset.json (org.apache.rocketmq.store.schedule.DelayOffsetSerializeWrapper).
 */
#ifndef LEDGERMQ_PROTO_DELAY_OFFSET_SERIALIZE_WRAPPER_H
#define LEDGERMQ_PROTO_DELAY_OFFSET_SERIALIZE_WRAPPER_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"

struct delay_offset {
    int32_t level;  /* 1-based */
    int64_t offset; /* next one of the level's schedule queue */
};

struct delay_offset_serialize_wrapper {
    struct arena arena; /* of a decoded one */
    struct delay_offset *offsets;
    size_t offset_count;
};

void delay_offset_serialize_wrapper_begin(struct buffer *out);
void delay_offset_serialize_wrapper_add(struct buffer *out, int32_t level, int64_t offset);
void delay_offset_serialize_wrapper_end(struct buffer *out);

/* Errors of json_body.h; then nothing is left to close. */
int delay_offset_serialize_wrapper_decode(struct delay_offset_serialize_wrapper *wrapper, struct slice body,
                                          struct error *error);
void delay_offset_serialize_wrapper_close(struct delay_offset_serialize_wrapper *wrapper);

#endif
