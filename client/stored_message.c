#include "client/stored_message.h"

#include <ctype.h>
#include <stdlib.h>

#include "client/compression.h"
#include "client/namespace_util.h"

#define ARENA_MAX (512u * 1024 * 1024)

struct stored_messages *stored_messages_new(void)
{
    struct stored_messages *messages = calloc(1, sizeof *messages);
    if (messages != NULL)
        arena_init(&messages->arena, ARENA_MAX);
    return messages;
}

void stored_messages_free(struct stored_messages *messages)
{
    if (messages == NULL)
        return;
    for (size_t i = 0; i < messages->response_count; i++)
        remoting_response_close(&messages->responses[i]);
    free(messages->responses);
    free(messages->messages);
    arena_close(&messages->arena);
    free(messages);
}

static const char *copy_text(struct arena *arena, struct slice text)
{
    return (const char *)arena_copy(arena, text).data;
}

static int expand_body(struct arena *arena, const struct message_record *record,
                       struct ledgermq_stored_message *message)
{
    struct buffer out;
    buffer_init(&out, STORED_MESSAGE_BODY_MAX);
    int rv = compression_expand(record->sys_flag, record->body, &out);
    if (rv == 0) {
        struct slice kept = arena_copy(arena, slice_of(out.data == NULL ? (const uint8_t *)"" : out.data, out.size));
        message->body = kept.data;
        message->body_size = kept.size;
        rv = kept.data == NULL ? ERROR_NO_MEMORY : 0;
    }
    buffer_close(&out);
    return rv;
}

static bool take_properties(struct arena *arena, struct slice text, struct ledgermq_stored_message *message)
{
    struct slice name, value;
    size_t at = 0, count = 0;
    while (message_property_next(text, &at, &name, &value))
        count++;
    struct ledgermq_property *properties = arena_array(arena, count, sizeof *properties);
    if (properties == NULL)
        return false;
    at = 0;
    while (message_property_next(text, &at, &name, &value) && message->property_count < count) {
        struct ledgermq_property *property = &properties[message->property_count++];
        property->name = copy_text(arena, name);
        property->value = copy_text(arena, value);
        if (property->name == NULL || property->value == NULL)
            return false;
    }
    message->properties = properties;
    return true;
}

const char *ledgermq_message_property(const struct ledgermq_stored_message *message, const char *name)
{
    for (size_t i = message->property_count; i > 0; i--)
        if (strcmp(message->properties[i - 1].name, name) == 0)
            return message->properties[i - 1].value;
    return NULL;
}

static int take_record(struct arena *arena, const struct message_record *record, const char *broker_name,
                       struct ledgermq_stored_message *message)
{
    char id[MESSAGE_ID_TEXT_MAX], host[64];
    *message = (struct ledgermq_stored_message){
        .queue_id = record->queue_id,
        .flag = record->flag,
        .sys_flag = record->sys_flag,
        .reconsume_times = record->reconsume_times,
        .body_crc = record->body_crc,
        .store_size = record->total_size,
        .queue_offset = record->queue_offset,
        .physical_offset = record->physical_offset,
        .born_timestamp_ms = record->born_timestamp_ms,
        .store_timestamp_ms = record->store_timestamp_ms,
        .prepared_transaction_offset = record->prepared_transaction_offset,
        .body = record->body.size == 0 ? (const void *)"" : record->body.data,
        .body_size = record->body.size,
    };
    message->topic = copy_text(arena, record->topic);
    message->broker_name = broker_name == NULL ? NULL : copy_text(arena, slice_of_text(broker_name));
    message_host_format(&record->born_host, host, sizeof host);
    message->born_host = copy_text(arena, slice_of_text(host));
    message_host_format(&record->store_host, host, sizeof host);
    message->store_host = copy_text(arena, slice_of_text(host));
    message_id_format(&record->store_host, record->physical_offset, id);
    message->offset_message_id = copy_text(arena, slice_of_text(id));
    if (!take_properties(arena, record->properties, message) || arena->failed)
        return ERROR_NO_MEMORY;
    message->tags = ledgermq_message_property(message, "TAGS");
    message->keys = ledgermq_message_property(message, "KEYS");
    message->message_id = ledgermq_message_property(message, "UNIQ_KEY");
    if (message->message_id == NULL)
        message->message_id = message->offset_message_id;
    /* What a later version may invent is handed on as it is, with the bits in sys_flag that say so. */
    if ((record->sys_flag & MESSAGE_COMPRESSED) == 0 || !compression_is_known(record->sys_flag))
        return 0;
    return expand_body(arena, record, message);
}

static int keep_response(struct stored_messages *messages, struct remoting_response *response)
{
    if (messages->response_count == messages->response_capacity) {
        size_t capacity = messages->response_capacity * 2 + 1;
        struct remoting_response *larger = realloc(messages->responses, capacity * sizeof *larger);
        if (larger == NULL) {
            remoting_response_close(response);
            return ERROR_NO_MEMORY;
        }
        messages->responses = larger;
        messages->response_capacity = capacity;
    }
    messages->responses[messages->response_count++] = *response;
    return 0;
}

static struct ledgermq_stored_message *new_message(struct stored_messages *messages)
{
    if (messages->result.count == messages->capacity) {
        size_t capacity = messages->capacity * 2 + 32;
        struct ledgermq_stored_message *larger = realloc(messages->messages, capacity * sizeof *larger);
        if (larger == NULL)
            return NULL;
        messages->messages = larger;
        messages->capacity = capacity;
    }
    return &messages->messages[messages->result.count];
}

int stored_messages_add(struct stored_messages *messages, struct remoting_response *response,
                        const char *broker_name, stored_message_wanted wanted, const void *context,
                        struct error *error)
{
    struct slice rest = response->command.body;
    int rv = keep_response(messages, response);
    if (rv != 0)
        return error_set(error, rv, "no memory for an answer");
    while (rest.size > 0) {
        struct message_record record;
        rv = message_record_decode(rest, false, &record);
        if (rv != 0)
            return error_set(error, ERROR_MALFORMED, "record at byte %zu of an answer of %zu bytes cannot be read",
                             response->command.body.size - rest.size, response->command.body.size);
        struct ledgermq_stored_message *message = new_message(messages);
        rv = message == NULL ? ERROR_NO_MEMORY : take_record(&messages->arena, &record, broker_name, message);
        if (rv != 0)
            return error_set(error, rv, "message at queue %d, offset %lld: %s", record.queue_id,
                             (long long)record.queue_offset,
                             rv == ERROR_MALFORMED ? "the compressed body is damaged" : "no memory");
        if (wanted == NULL || wanted(message, context))
            messages->result.count++;
        rest.data += record.total_size;
        rest.size -= record.total_size;
    }
    messages->result.messages = messages->messages;
    return 0;
}

int stored_messages_add_record(struct stored_messages *messages, struct remoting_response *response,
                               const struct message_record *record)
{
    int rv = keep_response(messages, response);
    if (rv != 0)
        return rv;
    struct ledgermq_stored_message *message = new_message(messages);
    rv = message == NULL ? ERROR_NO_MEMORY : take_record(&messages->arena, record, NULL, message);
    if (rv == 0) {
        messages->result.count++;
        messages->result.messages = messages->messages;
    }
    return rv;
}

bool stored_messages_unwrap(struct stored_messages *messages, const char *name_space)
{
    char topic[NAMESPACED_NAME_MAX];
    if (name_space[0] == '\0')
        return true;
    for (size_t i = 0; i < messages->result.count; i++) {
        namespace_unwrap(name_space, messages->messages[i].topic, topic);
        if (strcmp(topic, messages->messages[i].topic) == 0)
            continue;
        messages->messages[i].topic = copy_text(&messages->arena, slice_of_text(topic));
        if (messages->messages[i].topic == NULL)
            return false;
    }
    return true;
}

bool stored_message_tag_wanted(const struct ledgermq_stored_message *message, const void *context)
{
    const char *at = context;
    size_t size = message->tags == NULL ? 0 : strlen(message->tags);
    while (*at != '\0') {
        const char *end = strstr(at, "||");
        const char *next = end == NULL ? at + strlen(at) : end + 2;
        end = end == NULL ? next : end;
        while (at < end && isspace((unsigned char)*at))
            at++;
        while (end > at && isspace((unsigned char)end[-1]))
            end--;
        if (end > at && (size_t)(end - at) == size && memcmp(at, message->tags, size) == 0)
            return true;
        at = next;
    }
    return false;
}
