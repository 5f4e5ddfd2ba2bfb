/* All topics of a broker with the version of the table
 * (org.apache.rocketmq.common.protocol.body.TopicConfigSerializeWrapper): answer of GET_ALL_TOPIC_CONFIG (21), part of
 * a registration, and the text of config/topics.json.
 */
#ifndef LEDGERMQ_PROTO_TOPIC_CONFIG_SERIALIZE_WRAPPER_H
#define LEDGERMQ_PROTO_TOPIC_CONFIG_SERIALIZE_WRAPPER_H

#include "proto/arena.h"
#include "proto/data_version.h"
#include "proto/topic_config.h"

struct topic_config_serialize_wrapper {
    struct arena arena; /* of a decoded one */
    struct data_version version;
    struct topic_config *topics;
    size_t topic_count;
};

/* Writing without a copy of the table: begin, add each, end. */
void topic_config_serialize_wrapper_begin(struct buffer *out, const struct data_version *version);
void topic_config_serialize_wrapper_add(struct buffer *out, const struct topic_config *config);
void topic_config_serialize_wrapper_end(struct buffer *out);

void topic_config_serialize_wrapper_encode(const struct topic_config_serialize_wrapper *wrapper, struct buffer *out);
/* Errors of json_body.h; then nothing is left to close. */
int topic_config_serialize_wrapper_decode(struct topic_config_serialize_wrapper *wrapper, struct slice body,
                                          struct error *error);
void topic_config_serialize_wrapper_close(struct topic_config_serialize_wrapper *wrapper);

/* The same as part of another body; wrapper->arena is already started. */
int topic_config_serialize_wrapper_read(struct topic_config_serialize_wrapper *wrapper, struct json_value object,
                                        struct error *error);

#endif
