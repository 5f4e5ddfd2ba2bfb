/* All producer groups with their clients, answer of GET_ALL_PRODUCER_INFO (328)
 * (org.apache.rocketmq.common.protocol.body.ProducerTableInfo, ProducerInfo).
 */
#ifndef LEDGERMQ_PROTO_PRODUCER_TABLE_INFO_H
#define LEDGERMQ_PROTO_PRODUCER_TABLE_INFO_H

#include "proto/buffer.h"

struct producer_info {
    struct slice client_id;
    struct slice remote_ip; /* as Java prints an address: "/ip:port" */
    struct slice language;  /* name of a LanguageCode */
    int32_t version;
    int64_t last_update_timestamp_ms;
};

/* begin, then for each group: group_begin, add each client, group_end; then end. */
void producer_table_info_begin(struct buffer *out);
void producer_table_info_group_begin(struct buffer *out, struct slice group);
void producer_table_info_add(struct buffer *out, const struct producer_info *producer);
void producer_table_info_group_end(struct buffer *out);
void producer_table_info_end(struct buffer *out);

#endif
