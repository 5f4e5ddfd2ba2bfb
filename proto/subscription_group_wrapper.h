/* All consumer groups of a broker with the version of the table
 * (org.apache.rocketmq.common.protocol.body.SubscriptionGroupWrapper): answer of GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)
 * and the text of config/subscriptionGroup.json.
 */
#ifndef LEDGERMQ_PROTO_SUBSCRIPTION_GROUP_WRAPPER_H
#define LEDGERMQ_PROTO_SUBSCRIPTION_GROUP_WRAPPER_H

#include "proto/arena.h"
#include "proto/data_version.h"
#include "proto/subscription_group_config.h"

struct subscription_group_wrapper {
    struct arena arena; /* of a decoded one */
    struct data_version version;
    struct subscription_group_config *groups;
    size_t group_count;
};

/* Writing without a copy of the table: begin, add each, end. */
void subscription_group_wrapper_begin(struct buffer *out, const struct data_version *version);
void subscription_group_wrapper_add(struct buffer *out, const struct subscription_group_config *config);
void subscription_group_wrapper_end(struct buffer *out);

void subscription_group_wrapper_encode(const struct subscription_group_wrapper *wrapper, struct buffer *out);
/* Errors of json_body.h; then nothing is left to close. */
int subscription_group_wrapper_decode(struct subscription_group_wrapper *wrapper, struct slice body,
                                      struct error *error);
void subscription_group_wrapper_close(struct subscription_group_wrapper *wrapper);

#endif
