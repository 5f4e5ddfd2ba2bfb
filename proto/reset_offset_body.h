/* Offsets that a group is to go to: body of RESET_CONSUMER_CLIENT_OFFSET (220) and answer of
 * INVOKE_BROKER_TO_RESET_OFFSET (222).
 *
 * Follows org.apache.rocketmq.common.protocol.body.ResetOffsetBody and ResetOffsetBodyForC (spec: remoting.md 3.21).
 * The list shape is for C++ consumers only, and no other client reads it: choose by the consumer's language. Answers to
 * tools have the map shape.
 */
#ifndef LEDGERMQ_PROTO_RESET_OFFSET_BODY_H
#define LEDGERMQ_PROTO_RESET_OFFSET_BODY_H

#include "proto/arena.h"
#include "proto/error.h"
#include "proto/message_queue.h"

enum reset_offset_shape {
    RESET_OFFSET_MAP,  /* {"offsetTable":{{mq}:5}} */
    RESET_OFFSET_LIST, /* {"offsetTable":[{mq with offset}]} */
};

struct reset_offset {
    struct message_queue queue;
    int64_t offset;
};

struct reset_offset_body {
    struct arena arena; /* of a decoded one */
    struct reset_offset *offsets;
    size_t offset_count;
};

void reset_offset_body_begin(struct buffer *out, enum reset_offset_shape shape);
void reset_offset_body_add(struct buffer *out, enum reset_offset_shape shape, const struct reset_offset *offset);
void reset_offset_body_end(struct buffer *out, enum reset_offset_shape shape);

/* Either shape. Errors of json_body.h; then nothing is left to close. */
int reset_offset_body_decode(struct reset_offset_body *body, struct slice bytes, struct error *error);
void reset_offset_body_close(struct reset_offset_body *body);

#endif
