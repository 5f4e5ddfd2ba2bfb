/* Which brokers were slow or failed lately, so that sends go around them for a while.
 *
 * Follows org.apache.rocketmq.client.latency.MQFaultStrategy and LatencyFaultToleranceImpl 4.9.8: the same table of
 * latencies and absences. Loop thread only; the caller brings the clock.
 */
#ifndef LEDGERMQ_CLIENT_LATENCY_FAULT_TOLERANCE_H
#define LEDGERMQ_CLIENT_LATENCY_FAULT_TOLERANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LATENCY_FAULT_BROKERS_MAX 1024u /* further ones are not tracked: they count as available */
#define LATENCY_FAULT_ISOLATION_MS 30000

struct latency_fault_item;

struct latency_fault_tolerance {
    struct latency_fault_item *items; /* by broker name */
    uint32_t pick;                    /* turns over the better half */
};

void latency_fault_tolerance_init(struct latency_fault_tolerance *tolerance);
void latency_fault_tolerance_close(struct latency_fault_tolerance *tolerance);
/* How long a broker with that latency is left alone. */
int64_t latency_fault_absence_ms(int64_t latency_ms);
/* Notes how long a send took. isolate: it failed, which counts as LATENCY_FAULT_ISOLATION_MS. */
void latency_fault_tolerance_update(struct latency_fault_tolerance *tolerance, const char *broker_name,
                                    int64_t latency_ms, bool isolate, int64_t now_ms);
bool latency_fault_tolerance_is_available(const struct latency_fault_tolerance *tolerance, const char *broker_name,
                                          int64_t now_ms);
/* One of the less bad half, turn by turn; NULL when nothing was noted yet. Valid until the next update. */
const char *latency_fault_tolerance_pick(struct latency_fault_tolerance *tolerance, int64_t now_ms);
void latency_fault_tolerance_remove(struct latency_fault_tolerance *tolerance, const char *broker_name);

#endif
