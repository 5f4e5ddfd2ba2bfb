#include "client/admin/message_print.h"

#include <stdio.h>

#define BODY_SHOWN_MAX 4096

void message_print_bytes(const void *data, size_t size)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < size && i < BODY_SHOWN_MAX; i++) {
        if (at[i] >= 0x20 || at[i] == '\t')
            putchar(at[i]);
        else
            printf("\\x%02X", at[i]);
    }
    if (size > BODY_SHOWN_MAX)
        printf("... (%zu bytes)", size);
}

void message_print_properties(const struct ledgermq_stored_message *message)
{
    putchar('{');
    for (size_t i = 0; i < message->property_count; i++)
        printf("%s%s=%s", i > 0 ? ", " : "", message->properties[i].name, message->properties[i].value);
    putchar('}');
}

void message_print_line(const struct ledgermq_stored_message *message, bool body)
{
    printf("MSGID: %s MessageExt [brokerName=%s, queueId=%d, storeSize=%u, queueOffset=%lld, sysFlag=%d, "
           "bornTimestamp=%lld, bornHost=/%s, "
           "storeTimestamp=%lld, storeHost=/%s, msgId=%s, commitLogOffset=%lld, bodyCRC=%u, reconsumeTimes=%d, "
           "preparedTransactionOffset=%lld, "
           "toString()=Message{topic='%s', flag=%d, properties=",
           message->message_id, message->broker_name != NULL ? message->broker_name : "null", message->queue_id,
           message->store_size, (long long)message->queue_offset, message->sys_flag,
           (long long)message->born_timestamp_ms, message->born_host, (long long)message->store_timestamp_ms,
           message->store_host, message->offset_message_id, (long long)message->physical_offset, message->body_crc,
           message->reconsume_times, (long long)message->prepared_transaction_offset, message->topic, message->flag);
    message_print_properties(message);
    printf(", body=[%zu bytes], transactionId='null'}] BODY: ", message->body_size);
    if (body)
        message_print_bytes(message->body, message->body_size);
    else
        printf("NOT PRINT BODY");
    putchar('\n');
}

void message_print_send_result(const struct ledgermq_send_result *result)
{
    printf("SendResult [sendStatus=%s, msgId=%s, offsetMsgId=%s, messageQueue=MessageQueue [topic=%s, brokerName=%s, "
           "queueId=%d], queueOffset=%lld]\n",
           ledgermq_send_status_text(result->status), result->message_id, result->offset_message_id, result->queue.topic,
           result->queue.broker_name, result->queue.queue_id, (long long)result->queue_offset);
}
