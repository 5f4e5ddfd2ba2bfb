#include "broker/memory_budget.h"

#include "broker/broker.h"
#include "broker/namesrv/namesrv.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/pull_hold.h"
#include "broker/processor/send_answer.h"
#include "broker/processor/send_message_processor.h"
#include "broker/remoting/forward.h"
#include "broker/remoting/listener.h"

uint64_t memory_budget_used(const struct broker *broker)
{
    uint64_t used = remoting_server_buffered(broker->server) + pull_hold_bytes(broker->holds) + forward_parked_bytes(broker->forward) +
                    cold_reader_bytes(broker->cold_reads) + dledger_commit_log_gathered(broker->log) +
                    send_message_processor_pending(broker->sends) * sizeof(struct pending_send);
    if (broker->namesrv != NULL)
        used += remoting_server_buffered(broker->namesrv->server);
    return used;
}

bool memory_budget_exceeded(const struct broker *broker)
{
    return memory_budget_used(broker) > (uint64_t)broker->config.buffer_memory_max;
}
