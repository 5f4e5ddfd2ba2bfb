/* Answer of GET_BROKER_CLUSTER_INFO (106): all brokers, and which names form which cluster.
 *
 * Follows org.apache.rocketmq.common.protocol.body.ClusterInfo (spec: remoting.md 5.3).
 */
#ifndef LEDGERMQ_PROTO_CLUSTER_INFO_H
#define LEDGERMQ_PROTO_CLUSTER_INFO_H

#include "proto/topic_route_data.h"

struct cluster_data {
    struct slice name;
    struct slice *broker_names;
    size_t broker_name_count;
};

struct cluster_info {
    struct arena arena; /* of a decoded one */
    struct broker_data *brokers;
    size_t broker_count;
    struct cluster_data *clusters;
    size_t cluster_count;
};

void cluster_info_encode(const struct cluster_info *info, bool quoted_ids, struct buffer *out);
/* Errors of json_body.h; then nothing is left to close. */
int cluster_info_decode(struct cluster_info *info, struct slice body, struct error *error);
void cluster_info_close(struct cluster_info *info);

#endif
