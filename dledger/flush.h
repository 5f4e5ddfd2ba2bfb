/* A thread that makes things durable and reports back to the loop, one job at a time: the log up to somewhere (what gathers meanwhile goes with the next
 * job: group commit), or a vote.
 */
#ifndef LEDGERMQ_DLEDGER_FLUSH_H
#define LEDGERMQ_DLEDGER_FLUSH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct flush {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    pthread_cond_t ended;
    void *job;  /* under mutex; NULL = idle */
    bool untold; /* under mutex: a job has been run and the loop does not know yet */
    bool quit;  /* under mutex */
    int done_fd; /* eventfd: a uv_async_t would let the loop spin until the thread has left uv_async_send(), which costs a core's time when both are busy */
    uv_poll_t poll;
    void (*run)(void *job);            /* on the thread */
    void (*done)(struct flush *flush); /* on the loop, once after each job */
    void *context;
};

/* Starts the thread. The handle does not keep the loop alive. ERROR_NO_MEMORY. */
int flush_open(struct flush *flush, uv_loop_t *loop, void (*run)(void *job), void (*done)(struct flush *flush), void *context);
/* job stays the caller's and must not be touched until done, or until flush_wait() says true. */
void flush_submit(struct flush *flush, void *job);
/* Waits for the job, not longer than that. True: it has been run, and done is not called for it. */
bool flush_wait(struct flush *flush, unsigned ms);
/* Joins the thread; the handle (data = flush) is closed by the loop afterwards. */
void flush_close(struct flush *flush, uv_close_cb closed);

#endif
