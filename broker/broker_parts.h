/* What a node consists of besides its store, its log and its ports: made in order, told by the log what commits and who leads, closed again.
 *
 * Apart from broker.c so that the simulator runs the same parts, told by the same callbacks, on a log and a loop of its own. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_BROKER_PARTS_H
#define LEDGERMQ_BROKER_BROKER_PARTS_H

#include "broker/broker.h"

/* Needs loop, env, config and addresses; not yet the log. After a failure the process is to end: what was made is left as it is. */
int broker_parts_open(struct broker *broker, struct error *error);
/* What the log is to be told to call. */
void broker_parts_callbacks(struct broker *broker, struct dledger_callbacks *callbacks);
/* The log has been stopped, so that nothing waits for it any more. Handles are closed from the loop. */
void broker_parts_close(struct broker *broker);
/* After the loop has closed them. */
void broker_parts_free(struct broker *broker);

#endif
