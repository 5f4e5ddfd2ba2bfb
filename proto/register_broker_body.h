/* Body of REGISTER_BROKER (103): the topics of a broker, as JSON or as a zlib stream of lines.
 *
 * Follows org.apache.rocketmq.common.protocol.body.RegisterBrokerBody 4.9.8 (spec: remoting.md 5.4); reads what 5.x
 * brokers add.
 */
#ifndef LEDGERMQ_PROTO_REGISTER_BROKER_BODY_H
#define LEDGERMQ_PROTO_REGISTER_BROKER_BODY_H

#include "proto/arena.h"
#include "proto/data_version.h"
#include "proto/topic_config.h"

/* Of the compressed form, once inflated: what a frame of 16 MiB could carry plain, twice. */
#define REGISTER_BROKER_BODY_INFLATED_MAX (32u << 20)

struct register_broker_body {
    struct arena arena; /* of a decoded one */
    struct data_version version;
    struct topic_config *topics;
    size_t topic_count;
    struct slice *filter_servers;
    size_t filter_server_count;
};

/* Whether the ext field bodyCrc32 fits the body as it was sent; 0 = not to be checked. */
bool register_broker_body_crc_ok(struct slice body, int32_t body_crc32);
int32_t register_broker_body_crc(struct slice body);

/* Writing JSON without a copy of the table: begin, add each, end. */
void register_broker_body_begin(struct buffer *out, const struct data_version *version);
void register_broker_body_add(struct buffer *out, const struct topic_config *config);
void register_broker_body_end(struct buffer *out);

/* compressed: out->failed when zlib runs out of memory. */
void register_broker_body_encode(const struct register_broker_body *body, bool compressed, struct buffer *out);
/* ERROR_MALFORMED, ERROR_TOO_LARGE (inflated), or errors of json_body.h; then nothing is left to close. A body of a
 * broker older than V3_0_11 is a topic_config_serialize_wrapper instead; an absent body is the caller's business. */
int register_broker_body_decode(struct register_broker_body *body, struct slice bytes, bool compressed,
                                struct error *error);
void register_broker_body_close(struct register_broker_body *body);

#endif
