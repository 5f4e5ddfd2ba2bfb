/* Bodies of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): a client's queues of one group.
 *
 * Follows org.apache.rocketmq.common.protocol.body.LockBatchRequestBody, UnlockBatchRequestBody, LockBatchResponseBody.
 */
#ifndef LEDGERMQ_PROTO_LOCK_BATCH_H
#define LEDGERMQ_PROTO_LOCK_BATCH_H

#include "proto/arena.h"
#include "proto/error.h"
#include "proto/message_queue.h"

struct lock_batch_request {
    struct arena arena; /* of a decoded one */
    struct slice client_id;
    struct slice consumer_group;
    struct message_queue *queues;
    size_t queue_count;
};

struct lock_batch_response {
    struct arena arena; /* of a decoded one */
    struct message_queue *queues;
    size_t queue_count;
};

void lock_batch_request_encode(const struct lock_batch_request *request, struct buffer *out);
/* ERROR_MISSING, or errors of json_body.h; then nothing is left to close. */
int lock_batch_request_decode(struct lock_batch_request *request, struct slice body, struct error *error);
void lock_batch_request_close(struct lock_batch_request *request);

/* {"lockOKMQSet":[...]}: the queues that the client now holds. */
void lock_batch_response_begin(struct buffer *out);
void lock_batch_response_add(struct buffer *out, const struct message_queue *queue);
void lock_batch_response_end(struct buffer *out);
int lock_batch_response_decode(struct lock_batch_response *response, struct slice body, struct error *error);
void lock_batch_response_close(struct lock_batch_response *response);

#endif
