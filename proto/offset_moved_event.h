/* Body of a record in OFFSET_MOVED_EVENT: a group asked for an offset that is not there
 * (org.apache.rocketmq.common.protocol.topic.OffsetMovedEvent). */
#ifndef LEDGERMQ_PROTO_OFFSET_MOVED_EVENT_H
#define LEDGERMQ_PROTO_OFFSET_MOVED_EVENT_H

#include "proto/arena.h"
#include "proto/error.h"
#include "proto/message_queue.h"

struct offset_moved_event {
    struct slice consumer_group;
    struct message_queue queue;
    int64_t offset_request;
    int64_t offset_new;
};

void offset_moved_event_encode(const struct offset_moved_event *event, struct buffer *out);
/* Slices live in arena (initialised by the caller). Errors of json_body.h. */
int offset_moved_event_decode(struct offset_moved_event *event, struct arena *arena, struct slice body,
                              struct error *error);

#endif
