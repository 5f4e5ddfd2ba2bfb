/* The threads of a push consumer, which call the application's function: jobs are run in the order they were submitted.
 *
 * How many jobs may wait is bounded by what a consumer reads ahead.
 */
#ifndef LEDGERMQ_CLIENT_CONSUME_POOL_H
#define LEDGERMQ_CLIENT_CONSUME_POOL_H

#include "proto/buffer.h"
#include "proto/error.h"

struct consume_pool;

/* Memory is the submitter's again when run is called. */
struct pool_job {
    void (*run)(struct pool_job *job);
    struct pool_job *next;
};

int consume_pool_new(unsigned threads, struct consume_pool **pool, struct error *error);
/* Any thread. */
void consume_pool_submit(struct consume_pool *pool, struct pool_job *job);
/* Any thread: true when called on one of its threads. */
bool consume_pool_on_thread(const struct consume_pool *pool);
/* Any thread: a line per thread: idle, or how long it runs its job. */
void consume_pool_describe(struct consume_pool *pool, struct buffer *out);
/* After the last job ended. Not from its threads. */
void consume_pool_free(struct consume_pool *pool);

#endif
