/* One bound over the buffers of all kinds: partial requests, unsent answers, parked requests, held pulls, cold reads, sends that wait.
 *
 * Each kind has its own limit too (limits.h); all at their worst together would be more than a small machine has. While more than bufferMemoryMax is in
 * use, requests whose rows have PROCESSOR_BUFFERS are refused with 14, which clients repeat; heart-beats, offsets and locks are served, so that
 * nobody's consumers are given away. The log's mapped files are the kernel's to drop and do not count; the queues of the peer port have bounds of
 * their own (dledger/peer.h), so that clients cannot take what Raft needs.
 */
#ifndef LEDGERMQ_BROKER_MEMORY_BUDGET_H
#define LEDGERMQ_BROKER_MEMORY_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct broker;

uint64_t memory_budget_used(const struct broker *broker);
/* Cheap: a few additions. */
bool memory_budget_exceeded(const struct broker *broker);

#endif
