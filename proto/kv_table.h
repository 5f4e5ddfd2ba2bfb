/* Names and values, all text: {"table":{"k":"v"}} (org.apache.rocketmq.common.protocol.body.KVTable): runtime table
 * (28), order topics (103, 219). */
#ifndef LEDGERMQ_PROTO_KV_TABLE_H
#define LEDGERMQ_PROTO_KV_TABLE_H

#include "proto/arena.h"
#include "proto/buffer.h"
#include "proto/error.h"

struct kv_pair {
    struct slice name;
    struct slice value;
};

struct kv_table {
    struct arena arena; /* of a decoded one */
    struct kv_pair *pairs;
    size_t pair_count;
};

void kv_table_begin(struct buffer *out);
void kv_table_add(struct buffer *out, struct slice name, struct slice value);
void kv_table_add_text(struct buffer *out, const char *name, const char *value);
void kv_table_add_i64(struct buffer *out, const char *name, int64_t value);
void kv_table_end(struct buffer *out);

/* Errors of json_body.h; then nothing is left to close. */
int kv_table_decode(struct kv_table *table, struct slice body, struct error *error);
void kv_table_close(struct kv_table *table);
/* The last value of that name; data NULL when there is none. */
struct slice kv_table_get(const struct kv_table *table, const char *name);

#endif
