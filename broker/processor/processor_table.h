/* How frames reach their handlers: code -> row -> here, to the leader, or "not supported".
 *
 * Follows NettyRemotingAbstract#processRequestCommand. The rows are the tables that each *_processor.c exports (processor.h).
 */
#ifndef LEDGERMQ_BROKER_PROCESSOR_PROCESSOR_TABLE_H
#define LEDGERMQ_BROKER_PROCESSOR_PROCESSOR_TABLE_H

#include "broker/processor/processor.h"
#include "proto/error.h"

struct processor_table;

/* ERROR_EXISTS: two rows of one code. */
struct processor_table *processor_table_new(struct error *error);
void processor_table_free(struct processor_table *table);
const struct processor_row *processor_table_row(const struct processor_table *table, int32_t code);

/* remoting_server_options.on_frame; context is the broker. */
void processor_on_frame(void *context, struct connection *connection, uint8_t *frame, size_t size);
/* A frame that was parked, now that we lead: runs here. */
void processor_run_parked(struct broker *broker, struct connection *connection, uint8_t *frame, size_t size);
/* A frame that a follower handed on; reply_to.connection_id will be `forward_connection_id`. False: no frame, nothing was answered. */
bool processor_run_forwarded(struct broker *broker, uint64_t forward_connection_id, const struct message_host *client, uint8_t *frame,
                             size_t size);

#endif
