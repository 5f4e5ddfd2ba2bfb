/* Traces of messages: what producers and consumers with trace on write to RMQ_SYS_TRACE_TOPIC
 * (org.apache.rocketmq.client.trace.TraceDataEncoder 4.9.8).
 *
 * A trace message holds records, each ended by \002, whose fields are separated by \001:
 *     Pub, time, region, group, topic, msgId, tags, keys, storeHost, bodyLength, costTime, msgType, offsetMsgId, success
 *     SubBefore, time, region, group, requestId, msgId, retryTimes, keys
 *     SubAfter, requestId, msgId, costTime, success, keys, contextCode, time, group
 */
#ifndef LEDGERMQ_CLIENT_ADMIN_MESSAGE_TRACE_H
#define LEDGERMQ_CLIENT_ADMIN_MESSAGE_TRACE_H

#include "client/admin/admin.h"
#include "proto/buffer.h"

struct message_trace {
    enum { TRACE_PUB, TRACE_SUB_BEFORE, TRACE_SUB_AFTER } type;
    struct slice group; /* may be empty in SubAfter of old clients */
    struct slice message_id;
    int64_t time_ms; /* 0: not told */
    int64_t cost_ms;
    bool success;
};

/* The next record of a known type; false at the end. rest starts as the body of a trace message. */
bool message_trace_next(struct slice *rest, struct message_trace *trace);
/* Writes the trace of a message that was sent. False: told. */
bool message_trace_sent(struct admin *admin, struct ledgermq_producer *producer, const struct ledgermq_message *message,
                        const struct ledgermq_send_result *result, int64_t begin_ms);
/* queryMsgTraceById */
int message_trace_query(struct admin *admin);

#endif
