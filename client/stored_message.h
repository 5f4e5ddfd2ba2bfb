/* Records as brokers send them, made readable for applications: ids, properties, uncompressed bodies.
 *
 * Follows org.apache.rocketmq.common.message.MessageDecoder#decodes and
 * PullAPIWrapper#processPullResult 4.9.8.
 */
#ifndef LEDGERMQ_CLIENT_STORED_MESSAGE_H
#define LEDGERMQ_CLIENT_STORED_MESSAGE_H

#include "client/client.h"
#include "proto/arena.h"

#define STORED_MESSAGE_BODY_MAX (64u * 1024 * 1024) /* uncompressed */

/* What a ledgermq_pull_result really is: it owns the answers that bodies point into. */
struct stored_messages {
    struct ledgermq_pull_result result; /* first: the public pointer is this one's */
    struct arena arena;
    struct remoting_response *responses;
    size_t response_count, response_capacity;
    struct ledgermq_stored_message *messages;
    size_t capacity;
};

/* Whether a message is wanted, beyond what the broker looked at. */
typedef bool (*stored_message_wanted)(const struct ledgermq_stored_message *message, const void *context);

/* context: "TagA || TagB". Brokers compare hash codes of tags, which collide: the texts decide. */
bool stored_message_tag_wanted(const struct ledgermq_stored_message *message, const void *context);

struct stored_messages *stored_messages_new(void);
/* Takes the response (closed on failure too) and adds the records of its body. wanted may be NULL.
 * ERROR_MALFORMED, ERROR_NO_MEMORY. */
int stored_messages_add(struct stored_messages *messages, struct remoting_response *response,
                        const char *broker_name, stored_message_wanted wanted, const void *context,
                        struct error *error);
/* Takes the response likewise and adds one message, described by a record whose slices point into it. */
int stored_messages_add_record(struct stored_messages *messages, struct remoting_response *response,
                               const struct message_record *record);
/* Takes the client's namespace off the topics. False when memory is short. */
bool stored_messages_unwrap(struct stored_messages *messages, const char *name_space);
void stored_messages_free(struct stored_messages *messages);

#endif
