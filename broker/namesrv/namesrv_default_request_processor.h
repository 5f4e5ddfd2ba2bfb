/* The name server's requests: one row per code, everything else is answered 3.
 *
 * Follows org.apache.rocketmq.namesrv.processor.DefaultRequestProcessor.
 */
#ifndef LEDGERMQ_BROKER_NAMESRV_NAMESRV_DEFAULT_REQUEST_PROCESSOR_H
#define LEDGERMQ_BROKER_NAMESRV_NAMESRV_DEFAULT_REQUEST_PROCESSOR_H

#include <stddef.h>
#include <stdint.h>

struct connection;
struct namesrv;

/* A whole frame from a connection of the name server; answers into its output. */
void namesrv_default_request_processor(struct namesrv *namesrv, struct connection *connection, uint8_t *frame, size_t size);

#endif
