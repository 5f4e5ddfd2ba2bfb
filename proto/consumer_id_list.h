/* Client ids of a consumer group: {"consumerIdList":["id"]}, answer of GET_CONSUMER_LIST_BY_GROUP (38)
 * (org.apache.rocketmq.common.protocol.header.GetConsumerListByGroupResponseBody).
 */
#ifndef LEDGERMQ_PROTO_CONSUMER_ID_LIST_H
#define LEDGERMQ_PROTO_CONSUMER_ID_LIST_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"

struct consumer_id_list {
    struct arena arena; /* of a decoded one */
    struct slice *ids;
    size_t id_count;
};

void consumer_id_list_begin(struct buffer *out);
void consumer_id_list_add(struct buffer *out, struct slice client_id);
void consumer_id_list_end(struct buffer *out);

/* Errors of json_body.h; then nothing is left to close. */
int consumer_id_list_decode(struct consumer_id_list *list, struct slice body, struct error *error);
void consumer_id_list_close(struct consumer_id_list *list);

#endif
