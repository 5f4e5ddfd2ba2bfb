/* What a consumer says of itself (org.apache.rocketmq.common.protocol.body.ConsumerRunningInfo), as text. */
#ifndef LEDGERMQ_CLIENT_ADMIN_RUNNING_INFO_H
#define LEDGERMQ_CLIENT_ADMIN_RUNNING_INFO_H

#include <stdio.h>

#include "proto/json.h"

/* ConsumerRunningInfo#formatString */
void running_info_print(FILE *out, struct json_value info);
/* "T:expression;" of all topics but retry topics, in the order given: two clients of a group must agree. Replaces what out
 * holds. */
void running_info_subscription(struct json_value info, struct buffer *out);
/* A line for each queue that is not consumed (#analyzeProcessQueue); empty when all is well. Replaces what out holds. */
void running_info_trouble(struct json_value info, const char *client_id, int64_t now_ms, struct buffer *out);

#endif
