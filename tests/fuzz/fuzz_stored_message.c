/* What a broker's answer to a pull makes of a client: records with bodies in every compression, damaged at will. Any bytes give messages or an error,
 * bodies keep to their limit, nothing leaks. */
#include "client/stored_message.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct remoting_response response = {.frame = malloc(size + 1)};
    struct stored_messages *messages = stored_messages_new();
    struct error error = {0};
    unsigned sum = 0;
    CHECK(response.frame != NULL && messages != NULL);
    if (size > 0)
        memcpy(response.frame, data, size);
    response.command.body = slice_of(response.frame, size);
    int rv = stored_messages_add(messages, &response, "broker-a", NULL, NULL, &error);
    CHECK(rv == 0 || error.message[0] != '\0');
    for (size_t i = 0; rv == 0 && i < messages->result.count; i++) {
        const struct ledgermq_stored_message *message = &messages->result.messages[i];
        CHECK(message->body_size <= STORED_MESSAGE_BODY_MAX && message->topic != NULL && message->message_id != NULL);
        for (size_t k = 0; k < message->body_size; k++)
            sum += ((const uint8_t *)message->body)[k];
        for (size_t k = 0; k < message->property_count; k++)
            sum += message->properties[k].name[0];
    }
    CHECK(rv == 0 ? stored_messages_unwrap(messages, "tenant") : true);
    stored_messages_free(messages);
    (void)sum;
    return 0;
}
