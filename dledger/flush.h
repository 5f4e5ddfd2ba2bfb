/* The thread that turns "make everything up to here durable" into one fdatasync per segment and reports back to the loop. One job at a time: what
 * gathers meanwhile goes with the next one (group commit).
 */
#ifndef LEDGERMQ_DLEDGER_FLUSH_H
#define LEDGERMQ_DLEDGER_FLUSH_H

#include <pthread.h>
#include <uv.h>

#include "dledger/ledger.h"

struct flush {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct ledger_sync *job; /* under mutex; NULL = idle */
    bool quit;               /* under mutex */
    int done_fd; /* eventfd: a uv_async_t would let the loop spin until the thread has left uv_async_send(), which costs a core's time when both are busy */
    uv_poll_t poll;
    void (*done)(struct flush *flush); /* on the loop, after each job */
    void *context;
};

/* Starts the thread. The handle does not keep the loop alive. ERROR_NO_MEMORY. */
int flush_open(struct flush *flush, uv_loop_t *loop, void (*done)(struct flush *flush), void *context);
/* job stays the caller's and must not be touched until done. */
void flush_submit(struct flush *flush, struct ledger_sync *job);
/* Joins the thread; the handle (data = flush) is closed by the loop afterwards. */
void flush_close(struct flush *flush, uv_close_cb closed);

#endif
