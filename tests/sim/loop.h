/* libuv's timers and its pool in virtual time, for the parts of a broker: one loop a machine. The names are libuv's, and the program's own definitions come before those
 * of the library, so that the product's code is used as it is. Handles that need a kernel do not exist here.
 */
#ifndef LEDGERMQ_TESTS_SIM_LOOP_H
#define LEDGERMQ_TESTS_SIM_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define LOOP_TIMERS_MAX 64
#define LOOP_CLOSING_MAX 128
#define LOOP_WORK_MAX 64

struct loop {
    uv_loop_t uv; /* first */
    uint64_t now_ms;
    struct loop_timer {
        uv_timer_t *timer;
        uint64_t due_ms;
        uint64_t order;
    } timers[LOOP_TIMERS_MAX];
    unsigned timer_count;
    uint64_t order;
    struct loop_closing {
        uv_handle_t *handle;
        uv_close_cb closed;
    } closing[LOOP_CLOSING_MAX];
    unsigned closing_count;
    struct loop_work { /* of the pool */
        uv_work_t *request;
        uv_work_cb run;
        uv_after_work_cb after;
    } work[LOOP_WORK_MAX];
    unsigned work_count;
};

void loop_init(struct loop *loop, uint64_t now_ms);
/* When the next timer is due, UINT64_MAX = none is set. */
uint64_t loop_due_ms(const struct loop *loop);
/* Runs one timer that is due. False: none is. */
bool loop_run_timer(struct loop *loop);
/* Runs one piece of work that was given to the pool, to its end. False: there is none. */
bool loop_run_work(struct loop *loop);
/* Handles that were closed are told so. */
void loop_run_closing(struct loop *loop);

#endif
