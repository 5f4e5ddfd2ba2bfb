/* What one group wants of one topic: the expression, and for tags the set of hash codes that the queue index is asked
 * for.
 *
 * Follows org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData and common.filter.FilterAPI 4.9.8 (spec:
 * remoting.md 3.6, 5.6). The broker compares hash codes only; clients compare the text again, since hashes collide.
 */
#ifndef LEDGERMQ_PROTO_SUBSCRIPTION_DATA_H
#define LEDGERMQ_PROTO_SUBSCRIPTION_DATA_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"

#define SUBSCRIPTION_ALL "*"
#define EXPRESSION_TYPE_TAG "TAG"
#define EXPRESSION_TYPE_SQL92 "SQL92"

struct json_value;
struct json_writer;

struct subscription_data {
    struct slice topic;
    struct slice sub_string;
    struct slice expression_type;     /* never empty: TAG unless said otherwise */
    struct slice filter_class_source; /* data NULL when absent */
    bool class_filter_mode;
    int64_t sub_version; /* ms; the newer subscription of a group wins */
    struct slice *tags;
    size_t tag_count;
    int32_t *codes; /* Java hash codes of tags */
    size_t code_count;
};

/* From an expression, as a pull or a client's subscribe gives it. All slices are copied to arena. expression_type empty
 * = TAG. sub_version is left 0. ERROR_INVALID for a TAG expression of nothing but "||" and for an empty one of another
 * type; ERROR_NO_MEMORY. */
int subscription_data_build(struct subscription_data *data, struct arena *arena, struct slice topic,
                            struct slice expression, struct slice expression_type, struct error *error);
/* A copy that lives in arena. */
int subscription_data_copy(struct subscription_data *copy, struct arena *arena, const struct subscription_data *data);
static inline bool subscription_data_is_tag(const struct subscription_data *data)
{
    return slice_equal_text(data->expression_type, EXPRESSION_TYPE_TAG);
}
/* Whether a queue unit of this tags code passes. Always true for other expression types: their filter looks at
 * properties. */
bool subscription_data_match(const struct subscription_data *data, int64_t tags_code);

void subscription_data_encode(const struct subscription_data *data, struct buffer *out);
/* Codes are taken from codeSet (numbers or text), or computed from tagsSet or subString where there is none. Slices
 * live in arena. ERROR_MISSING without topic, or errors of json_body.h. */
int subscription_data_decode(struct subscription_data *data, struct arena *arena, struct slice body,
                             struct error *error);

/* The same as part of another body. */
void subscription_data_write(struct json_writer *writer, const struct subscription_data *data);
int subscription_data_read(struct subscription_data *data, struct arena *arena, struct json_value object,
                           struct error *error);

#endif
