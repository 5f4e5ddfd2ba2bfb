/* How new a table is: stamped at each change, compared by name servers and tools
 * (org.apache.rocketmq.common.DataVersion). */
#ifndef LEDGERMQ_PROTO_DATA_VERSION_H
#define LEDGERMQ_PROTO_DATA_VERSION_H

#include "proto/buffer.h"
#include "proto/error.h"

struct json_value;
struct json_writer;

struct data_version {
    int64_t timestamp_ms;
    int64_t counter;
    int64_t state_version; /* 5.x; written only when it is not 0 */
};

static inline bool data_version_equal(const struct data_version *a, const struct data_version *b)
{
    return a->timestamp_ms == b->timestamp_ms && a->counter == b->counter && a->state_version == b->state_version;
}

/* {"counter":3,"timestamp":1700000000000} */
void data_version_encode(const struct data_version *version, struct buffer *out);
/* Absent members are 0. Errors of json_body.h. */
int data_version_decode(struct data_version *version, struct slice body, struct error *error);

/* The same as part of another body; an absent object is version 0. */
void data_version_write(struct json_writer *writer, const struct data_version *version);
int data_version_read(struct data_version *version, struct json_value object, struct error *error);

#endif
