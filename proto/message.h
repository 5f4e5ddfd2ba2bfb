/* The message record that the commit log stores and a pull returns, its properties and its ids.
 *
 * Follows org.apache.rocketmq.store.CommitLog.MessageExtEncoder and common.message.MessageDecoder 4.9.8 (spec: store.md 1).
 * Version 1 records (0xDAA320A7) are written; version 2 (topic length 2 bytes) is read too.
 */
#ifndef LEDGERMQ_PROTO_MESSAGE_H
#define LEDGERMQ_PROTO_MESSAGE_H

#include "proto/buffer.h"
#include "proto/error.h"

#define MESSAGE_MAGIC_V1 0xDAA320A7u
#define MESSAGE_MAGIC_V2 0xDAA320ABu
#define MESSAGE_TOPIC_MAX 127u
#define MESSAGE_PROPERTIES_MAX 32767u
#define MESSAGE_ID_TEXT_MAX 57u /* 56 characters and a NUL (IPv6) */

enum message_sys_flag {
    MESSAGE_COMPRESSED = 0x1,
    MESSAGE_MULTI_TAGS = 0x2,
    MESSAGE_TRANSACTION_PREPARED = 0x4,
    MESSAGE_TRANSACTION_COMMIT = 0x8,
    MESSAGE_TRANSACTION_ROLLBACK = 0xC,
    MESSAGE_TRANSACTION_MASK = 0xC,
    MESSAGE_BORN_HOST_V6 = 0x10,
    MESSAGE_STORE_HOST_V6 = 0x20,
    MESSAGE_COMPRESSION_TYPE_MASK = 0x700,
};

#define MESSAGE_PROPERTY_NAME_SEPARATOR 0x01
#define MESSAGE_PROPERTY_SEPARATOR 0x02

/* An IPv4 (size 4) or IPv6 (size 16) address and a port. */
struct message_host {
    uint8_t address[16];
    uint8_t address_size;
    int32_t port;
};

/* Reads "1.2.3.4:10911" or "[2001:db8::1]:10911" (numeric only). False when it is neither. */
bool message_host_parse(struct slice text, struct message_host *host);
/* "1.2.3.4:10911" / "[::1]:10911" into out (at least 64 bytes). */
void message_host_format(const struct message_host *host, char *out, size_t size);

/* Slices are borrowed from where the record was read, or from the caller when writing. */
struct message_record {
    uint32_t total_size;
    uint32_t magic;
    uint32_t body_crc; /* masked CRC-32; computed by message_record_encode */
    int32_t queue_id;
    int32_t flag;
    int64_t queue_offset;
    int64_t physical_offset;
    int32_t sys_flag; /* the host bits are set by message_record_encode */
    int64_t born_timestamp_ms;
    struct message_host born_host;
    int64_t store_timestamp_ms;
    struct message_host store_host;
    int32_t reconsume_times;
    int64_t prepared_transaction_offset;
    struct slice body;
    struct slice topic;
    struct slice properties;
};

/* Bytes of the encoded record (without a properties tail). Does not check limits. */
size_t message_record_size(const struct message_record *record);
/* Writes message_record_size() + properties_tail.size bytes. The caller has checked: topic <= 127, properties <= 32767. Returns the size. Sets total_size, magic,
 * body_crc and the host bits of sys_flag in record. `properties` may come in two parts that are written one behind the other. */
size_t message_record_encode(struct message_record *record, struct slice properties_tail, uint8_t *out);
/* Reads one record that starts at bytes.data and may be followed by others. Every length is checked against bytes.
 * ERROR_MALFORMED. With check_body_crc also ERROR_DAMAGED. */
int message_record_decode(struct slice bytes, bool check_body_crc, struct message_record *record);

/* What dispatch needs of a record, read without looking at the body (reput's hot path). ERROR_MALFORMED. */
struct message_dispatch {
    int64_t physical_offset;
    uint32_t size;
    int32_t queue_id;
    int64_t queue_offset;
    int64_t store_timestamp_ms;
    int32_t sys_flag;
    struct slice topic;
    struct slice properties;
    struct slice keys;       /* property KEYS; data NULL when absent */
    struct slice uniq_key;   /* property UNIQ_KEY */
    struct slice tags;       /* property TAGS */
    struct slice delay;      /* property DELAY */
};
int message_dispatch_decode(struct slice bytes, struct message_dispatch *dispatch);
/* Are these bytes, all of them, the record of the message with that number in that queue, lying at physical_offset? Looks at head and topic only. */
bool message_record_is(struct slice bytes, struct slice topic, int32_t queue_id, int64_t queue_offset, int64_t physical_offset);

/* zlib's CRC-32 & 0x7FFFFFFF; 0 for an empty body. */
uint32_t message_body_crc(struct slice body);

/* Value of the LAST pair of that name (later duplicates win); data NULL when absent or empty. */
struct slice message_property(struct slice properties, const char *name);
/* Walks pairs: start with *at = 0; false at the end. Skips what the Java decoder skips (no separator, empty name or value, < 3 chars). */
bool message_property_next(struct slice properties, size_t *at, struct slice *name, struct slice *value);
/* Appends name 0x01 value, with 0x02 in front when `out` holds a pair from out_start on. */
void message_property_append(struct buffer *out, size_t out_start, struct slice name, struct slice value);
/* Copies all pairs of `properties` but those named in `without` (NULL-terminated list). */
void message_properties_copy(struct buffer *out, size_t out_start, struct slice properties, const char *const *without);

/* Upper-case hex id of store host and physical offset: 32 or 56 characters and NUL. Returns its length. */
size_t message_id_format(const struct message_host *store_host, int64_t physical_offset, char out[MESSAGE_ID_TEXT_MAX]);
bool message_id_parse(struct slice text, struct message_host *store_host, int64_t *physical_offset);

/* One member of a batch body (spec: store.md 1.11). */
struct message_batch_member {
    int32_t flag;
    struct slice body;
    struct slice properties;
};
/* 1 a member was read, 0 end, -1 malformed (sizes do not add up). */
int message_batch_next(struct cursor *cursor, struct message_batch_member *member);
void message_batch_append(struct buffer *out, const struct message_batch_member *member);

#endif
