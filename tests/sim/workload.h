/* The clients: sends to whoever says that it leads, over some queues, and metadata records; each answer is remembered.
 */
#ifndef LEDGERMQ_TESTS_SIM_WORKLOAD_H
#define LEDGERMQ_TESTS_SIM_WORKLOAD_H

#include "tests/sim/checker.h"

#define WORKLOAD_QUEUES 7

struct workload_queue {
    const char *topic;
    int32_t id;
};
extern const struct workload_queue workload_queues[WORKLOAD_QUEUES];

void workload_init(void);
void workload_close(void);
void workload_begin(void);
void workload_end(void); /* no further calls */

/* The loop of a machine takes one waiting call. */
void workload_call(struct machine *machine);

size_t workload_count(void);
struct client_call *workload_at(size_t number); /* NULL: no such call */
uint64_t workload_acknowledged(void);
/* The call whose message this is, NULL when its body was never sent. */
struct client_call *workload_of_message(struct slice record);
void workload_key(uint64_t number, char out[24]);
int workload_queue_of(struct slice topic, int32_t id); /* -1 */

#endif
