#include "proto/headers.h"

#include <stddef.h>

#include "proto/request_code.h"

/* From the rows: one table per header, and three loops over tables. The hot two find the row of a key by a switch
 * instead of by comparing. */

enum header_kind { HEADER_TEXT, HEADER_I32, HEADER_I64, HEADER_BOOL };

struct header_field {
    const char *key;
    int64_t fallback;
    uint16_t offset;
    uint16_t has_offset; /* not for texts: their data tells */
    uint8_t kind;
    bool required;
};

struct header_table {
    const struct header_field *fields;
    size_t count;
};

/* `type` is the header's struct, named so inside each table function. */
#define HAS_TEXT(member) offsetof(type, member)
#define HAS_I32(member) offsetof(type, has_##member)
#define HAS_I64(member) offsetof(type, has_##member)
#define HAS_BOOL(member) offsetof(type, has_##member)
#define FIELD(kind, member, key, required, fallback)                                                         \
    {key, fallback, offsetof(type, member), HAS_##kind(member), HEADER_##kind, required},
#define TABLE(name, FIELDS)                                                                                  \
    static struct header_table name##_table(void)                                                            \
    {                                                                                                        \
        typedef struct name type;                                                                            \
        static const struct header_field fields[] = {FIELDS(FIELD)};                                         \
        return (struct header_table){fields, sizeof fields / sizeof fields[0]};                              \
    }
HEADERS(TABLE)
HOT_HEADERS(TABLE)

static void set_defaults(struct header_table table, uint8_t *header)
{
    for (const struct header_field *field = table.fields; field != table.fields + table.count; field++) {
        switch (field->kind) {
        case HEADER_TEXT:
            *(struct slice *)(void *)(header + field->offset) = (struct slice){0};
            continue;
        case HEADER_I32:
            *(int32_t *)(void *)(header + field->offset) = (int32_t)field->fallback;
            break;
        case HEADER_I64:
            *(int64_t *)(void *)(header + field->offset) = field->fallback;
            break;
        case HEADER_BOOL:
            *(bool *)(header + field->offset) = field->fallback != 0;
            break;
        }
        *(bool *)(header + field->has_offset) = false;
    }
}

static int missing(const char *key, struct error *error)
{
    return error_set(error, ERROR_MISSING, "field %s is missing", key);
}

static int no_number(const char *key, struct slice value, struct error *error)
{
    int shown = value.size > 64 ? 64 : (int)value.size;
    return error_set(error, ERROR_INVALID, "field %s is not a number: %.*s", key, shown, (const char *)value.data);
}

static inline bool set_field(const struct header_field *field, uint8_t *header, struct slice value)
{
    uint8_t *at = header + field->offset;
    switch (field->kind) {
    case HEADER_TEXT:
        *(struct slice *)(void *)at = value;
        return true;
    case HEADER_I32:
        if (!slice_to_i32(value, (int32_t *)(void *)at))
            return false;
        break;
    case HEADER_I64:
        if (!slice_to_i64(value, (int64_t *)(void *)at))
            return false;
        break;
    case HEADER_BOOL:
        slice_to_bool(value, (bool *)at);
        break;
    }
    *(bool *)(header + field->has_offset) = true;
    return true;
}

static bool is_set(const struct header_field *field, const uint8_t *header)
{
    if (field->kind == HEADER_TEXT)
        return ((const struct slice *)(const void *)(header + field->offset))->data != NULL;
    return *(const bool *)(header + field->has_offset);
}

static int decode(struct header_table table, const struct remoting_command *command, void *header,
                  struct error *error)
{
    set_defaults(table, header);
    for (const struct header_field *field = table.fields; field != table.fields + table.count; field++) {
        struct slice value = remoting_ext(command, field->key);
        if (value.data == NULL) {
            if (field->required)
                return missing(field->key, error);
        } else if (!set_field(field, header, value)) {
            return no_number(field->key, value, error);
        }
    }
    return 0;
}

static void encode_field(const struct header_field *field, const uint8_t *header, const char *key,
                         struct remoting_writer *writer)
{
    const uint8_t *at = header + field->offset;
    if (!field->required && !is_set(field, header))
        return;
    switch (field->kind) {
    case HEADER_TEXT:
        remoting_writer_ext(writer, key, *(const struct slice *)(const void *)at);
        break;
    case HEADER_I32:
        remoting_writer_ext_i64(writer, key, *(const int32_t *)(const void *)at);
        break;
    case HEADER_I64:
        remoting_writer_ext_i64(writer, key, *(const int64_t *)(const void *)at);
        break;
    case HEADER_BOOL:
        remoting_writer_ext_bool(writer, key, *(const bool *)at);
        break;
    }
}

static void encode(struct header_table table, const void *header, struct remoting_writer *writer)
{
    for (const struct header_field *field = table.fields; field != table.fields + table.count; field++)
        encode_field(field, header, field->key, writer);
}

#define X(name, FIELDS)                                                                                      \
    int name##_decode(const struct remoting_command *command, struct name *header, struct error *error)      \
    {                                                                                                        \
        return decode(name##_table(), command, header, error);                                               \
    }
HEADERS(X)
#undef X

#define X(name, FIELDS)                                                                                      \
    void name##_encode(const struct name *header, struct remoting_writer *writer)                            \
    {                                                                                                        \
        encode(name##_table(), header, writer);                                                              \
    }
HEADERS(X)
HOT_HEADERS(X)
#undef X

/* ---- send and pull: one walk over the ext fields ---- */

typedef int (*row_of)(struct slice key);

#define KEY_IS(key, text, row) (memcmp((key).data, text, sizeof(text) - 1) == 0 ? (row) : -1)

static inline int send_row_short(struct slice key)
{
    return key.size == 1 && key.data[0] >= 'a' && key.data[0] <= 'n' ? key.data[0] - 'a' : -1;
}

static int send_row(struct slice key)
{
    switch (key.size) {
    case 4:
        return KEY_IS(key, "flag", 7);
    case 5:
        if (key.data[1] == 'o')
            return KEY_IS(key, "topic", 1);
        return key.data[1] == 'n' ? KEY_IS(key, "bname", 13) : KEY_IS(key, "batch", 12);
    case 7:
        return key.data[0] == 'q' ? KEY_IS(key, "queueId", 4) : KEY_IS(key, "sysFlag", 5);
    case 8:
        return KEY_IS(key, "unitMode", 10);
    case 10:
        return KEY_IS(key, "properties", 8);
    case 12:
        return KEY_IS(key, "defaultTopic", 2);
    case 13:
        return key.data[0] == 'p' ? KEY_IS(key, "producerGroup", 0) : KEY_IS(key, "bornTimestamp", 6);
    case 14:
        return KEY_IS(key, "reconsumeTimes", 9);
    case 17:
        return KEY_IS(key, "maxReconsumeTimes", 11);
    case 21:
        return KEY_IS(key, "defaultTopicQueueNums", 3);
    default:
        return -1;
    }
}

static int pull_row(struct slice key)
{
    switch (key.size) {
    case 5:
        return KEY_IS(key, "topic", 1);
    case 7:
        return key.data[0] == 'q' ? KEY_IS(key, "queueId", 2) : KEY_IS(key, "sysFlag", 5);
    case 10:
        return key.data[0] == 's' ? KEY_IS(key, "subVersion", 9) : KEY_IS(key, "maxMsgNums", 4);
    case 11:
        return key.data[0] == 'q' ? KEY_IS(key, "queueOffset", 3) : KEY_IS(key, "maxMsgBytes", 11);
    case 12:
        return key.data[0] == 's' ? KEY_IS(key, "subscription", 8) : KEY_IS(key, "commitOffset", 6);
    case 13:
        return KEY_IS(key, "consumerGroup", 0);
    case 14:
        return KEY_IS(key, "expressionType", 10);
    case 20:
        return KEY_IS(key, "suspendTimeoutMillis", 7);
    default:
        return -1;
    }
}

static inline int decode_hot(struct header_table table, row_of row_of_key, const struct remoting_command *command,
                             void *header,
                             struct error *error)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < command->ext_count; i++) {
        const struct remoting_ext_field *ext = &command->ext[i];
        int row = row_of_key(ext->name);
        if (row < 0)
            continue;
        if (!set_field(&table.fields[row], header, ext->value))
            return no_number(table.fields[row].key, ext->value, error);
        seen |= 1u << row;
    }
    for (size_t row = 0; row < table.count; row++) {
        const struct header_field *field = &table.fields[row];
        if (field->required && (seen & 1u << row) == 0)
            return missing(field->key, error);
    }
    return 0;
}

int send_message_request_header_decode(const struct remoting_command *command,
                                       struct send_message_request_header *header,
                                       struct error *error)
{
    struct header_table table = send_message_request_header_table();
    *header = (struct send_message_request_header){0};
    if (command->code == REQUEST_SEND_MESSAGE_V2 || command->code == REQUEST_SEND_BATCH_MESSAGE ||
        command->code == REQUEST_SEND_REPLY_MESSAGE_V2)
        return decode_hot(table, send_row_short, command, header, error);
    return decode_hot(table, send_row, command, header, error);
}

int pull_message_request_header_decode(const struct remoting_command *command,
                                       struct pull_message_request_header *header,
                                       struct error *error)
{
    *header = (struct pull_message_request_header){0};
    return decode_hot(pull_message_request_header_table(), pull_row, command, header, error);
}

void send_message_request_header_encode_v2(const struct send_message_request_header *header,
                                           struct remoting_writer *writer)
{
    struct header_table table = send_message_request_header_table();
    for (size_t row = 0; row < table.count; row++) {
        char letter[] = {(char)('a' + row), '\0'};
        encode_field(&table.fields[row], (const uint8_t *)header, letter, writer);
    }
}
