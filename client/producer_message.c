#include "client/producer_message.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/client.h"
#include "proto/message.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

#define PROPERTY_COUNT_MAX 1024u
#define BATCH_BYTES (1024u * 1024) /* of ledgermq_batch_split() */

/* Names that RocketMQ keeps for itself (MessageConst.STRING_HASH_SET). */
static const char *const reserved_names[] = {
    "TRACE_ON",
    "MSG_REGION",
    "KEYS",
    "TAGS",
    "WAIT",
    "DELAY",
    "RETRY_TOPIC",
    "REAL_TOPIC",
    "REAL_QID",
    "TRAN_MSG",
    "PGROUP",
    "MIN_OFFSET",
    "MAX_OFFSET",
    "BUYER_ID",
    "ORIGIN_MESSAGE_ID",
    "TRANSFER_FLAG",
    "CORRECTION_FLAG",
    "MQ2_FLAG",
    "RECONSUME_TIME",
    "UNIQ_KEY",
    "MAX_RECONSUME_TIMES",
    "CONSUME_START_TIME",
    "__transactionId__",
    "INSTANCE_ID",
    "CORRELATION_ID",
    "REPLY_TO_CLIENT",
    "TTL",
    "ARRIVE_TIME",
    "PUSH_REPLY_TIME",
    "CLUSTER",
    "MSG_TYPE",
};

static bool has_separator(const char *text)
{
    return strpbrk(text, "\001\002") != NULL;
}

bool producer_message_is_reserved(const char *name)
{
    for (size_t i = 0; i < sizeof reserved_names / sizeof reserved_names[0]; i++)
        if (strcmp(name, reserved_names[i]) == 0)
            return true;
    return false;
}

static int check_properties(const struct ledgermq_message *message, struct ledgermq_error *error)
{
    if (message->property_count > PROPERTY_COUNT_MAX)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "more than %u properties", PROPERTY_COUNT_MAX);
    if ((message->tags != NULL && has_separator(message->tags)) ||
        (message->keys != NULL && has_separator(message->keys)))
        return client_error_text(error, LEDGERMQ_INVALID, 0, "tags and keys may not hold the characters 1 and 2");
    for (size_t i = 0; i < message->property_count; i++) {
        const struct ledgermq_property *property = &message->properties[i];
        if (property->name == NULL || property->value == NULL || property->name[0] == '\0' ||
            property->value[0] == '\0')
            return client_error_text(error, LEDGERMQ_INVALID, 0, "property %zu has no name or no value", i);
        if (has_separator(property->name) || has_separator(property->value))
            return client_error_text(error, LEDGERMQ_INVALID, 0,
                                     "property %.100s: name and value may not hold the characters 1 and 2",
                                     property->name);
        if (producer_message_is_reserved(property->name))
            return client_error_text(error, LEDGERMQ_INVALID, 0, "property %s is RocketMQ's own: choose another name",
                                     property->name);
    }
    return LEDGERMQ_OK;
}

int producer_message_check(const struct ledgermq_message *message, size_t max_body_size,
                           struct ledgermq_error *error)
{
    struct error cause = {0};
    if (topic_validate(slice_of_text(message->topic), &cause) != 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "topic %.150s: %.250s",
                                 message->topic == NULL ? "" : message->topic, cause.message);
    if (topic_forbids_send(slice_of_text(message->topic)))
        return client_error_text(error, LEDGERMQ_INVALID, 0, "topic %s is the broker's own: nobody may send to it",
                                 message->topic);
    if (message->body == NULL || message->body_size == 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "the message has no body");
    if (message->body_size > max_body_size)
        return client_error_text(error, LEDGERMQ_INVALID, RESPONSE_MESSAGE_ILLEGAL,
                                 "the body has %zu bytes, max_body_size is %zu", message->body_size, max_body_size);
    if (message->delay_level < 0)
        return client_error_text(error, LEDGERMQ_INVALID, 0, "delay level %d is negative", message->delay_level);
    return check_properties(message, error);
}

static void put_property(struct buffer *out, const char *name, const char *value)
{
    message_property_append(out, 0, slice_of_text(name), slice_of_text(value));
}

void producer_message_properties(struct buffer *out, const struct ledgermq_message *message, const char *id,
                                 const struct ledgermq_property *own, size_t own_count)
{
    char number[16];
    for (size_t i = 0; i < own_count; i++)
        put_property(out, own[i].name, own[i].value);
    for (size_t i = 0; i < message->property_count; i++)
        put_property(out, message->properties[i].name, message->properties[i].value);
    if (message->keys != NULL && message->keys[0] != '\0')
        put_property(out, "KEYS", message->keys);
    put_property(out, "UNIQ_KEY", id);
    put_property(out, "WAIT", message->no_wait ? "false" : "true");
    if (message->delay_level > 0) {
        snprintf(number, sizeof number, "%d", message->delay_level);
        put_property(out, "DELAY", number);
    }
    if (message->tags != NULL && message->tags[0] != '\0')
        put_property(out, "TAGS", message->tags);
}

int producer_message_check_batch(const struct ledgermq_message *messages, size_t count, struct ledgermq_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const struct ledgermq_message *message = &messages[i];
        if (strcmp(message->topic, messages[0].topic) != 0)
            return client_error_text(error, LEDGERMQ_INVALID, 0,
                                     "message %zu of the batch has topic %s, the first has %s: one batch, one topic",
                                     i, message->topic, messages[0].topic);
        if (topic_is_retry(slice_of_text(message->topic)))
            return client_error_text(error, LEDGERMQ_INVALID, 0, "a retry topic takes no batches: send one by one");
        if (message->delay_level > 0)
            return client_error_text(error, LEDGERMQ_INVALID, 0,
                                     "message %zu of the batch has a delay level: send it alone", i);
        if (message->no_wait != messages[0].no_wait)
            return client_error_text(error, LEDGERMQ_INVALID, 0,
                                     "message %zu of the batch and the first differ in no_wait", i);
    }
    return LEDGERMQ_OK;
}

/* About what a message adds to a batch: as RocketMQ's own example counts it, with what the encoding needs and
 * the properties that every message gets (UNIQ_KEY, WAIT). */
static size_t batch_share(const struct ledgermq_message *message)
{
    size_t size = 22 + 80 + message->body_size;
    size += message->tags == NULL ? 0 : strlen(message->tags) + 6;
    size += message->keys == NULL ? 0 : strlen(message->keys) + 6;
    for (size_t i = 0; i < message->property_count; i++)
        if (message->properties[i].name != NULL && message->properties[i].value != NULL)
            size += strlen(message->properties[i].name) + strlen(message->properties[i].value) + 2;
    return size;
}

size_t ledgermq_batch_split(const struct ledgermq_message *messages, size_t count, size_t max_bytes)
{
    size_t n = 0, size = 0;
    max_bytes = max_bytes == 0 ? BATCH_BYTES : max_bytes;
    while (n < count) {
        size_t share = batch_share(&messages[n]);
        if (n > 0 && (share > max_bytes || size > max_bytes - share))
            break;
        size += share;
        n++;
    }
    return n;
}
