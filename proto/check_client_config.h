/* Body of CHECK_CLIENT_CONFIG (46): a consumer asks whether its expression is understood
 * (org.apache.rocketmq.common.protocol.body.CheckClientRequestBody).
 */
#ifndef LEDGERMQ_PROTO_CHECK_CLIENT_CONFIG_H
#define LEDGERMQ_PROTO_CHECK_CLIENT_CONFIG_H

#include "proto/subscription_data.h"

struct check_client_config {
    struct arena arena;
    struct slice client_id;
    struct slice group;
    struct slice name_space; /* data NULL when absent */
    bool has_subscription;
    struct subscription_data subscription;
};

/* ERROR_MISSING, or errors of json_body.h; then nothing is left to close. */
int check_client_config_decode(struct check_client_config *config, struct slice body, struct error *error);
void check_client_config_close(struct check_client_config *config);
void check_client_config_encode(const struct check_client_config *config, struct buffer *out);

#endif
