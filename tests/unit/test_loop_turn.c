/* The length of a turn: what callbacks of sockets and timers take is in it, what the loop waits is not. */
#include <check.h>
#include <unistd.h>

#include "dledger/loop_turn.h"
#include "tests/lib/run_suite.h"

#define WORK_US 30000u
#define CLOCK_US 1000u /* libuv's clock has milliseconds */
#define WAIT_MS 400u

static uv_loop_t loop;
static uv_prepare_t prepare;
static uv_check_t check;
static uv_poll_t poll_handle;
static uv_timer_t timer;
static struct loop_turn turn;
static int pipe_ends[2];
static uint64_t last_us;

static void on_prepare(uv_prepare_t *handle)
{
    (void)handle;
    last_us = loop_turn_ends(&turn);
}

static void on_check(uv_check_t *handle)
{
    (void)handle;
    loop_turn_polled(&turn, &loop);
}

static void set_up(void)
{
    uv_loop_init(&loop);
    turn = (struct loop_turn){0};
    uv_prepare_init(&loop, &prepare);
    uv_prepare_start(&prepare, on_prepare);
    uv_check_init(&loop, &check);
    uv_check_start(&check, on_check);
    uv_timer_init(&loop, &timer);
    ck_assert_int_eq(pipe(pipe_ends), 0);
    uv_poll_init(&loop, &poll_handle, pipe_ends[0]);
}

static void tear_down(void)
{
    uv_close((uv_handle_t *)&prepare, NULL);
    uv_close((uv_handle_t *)&check, NULL);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_close((uv_handle_t *)&poll_handle, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void work_at_socket(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    usleep(WORK_US);
    uv_poll_stop(handle);
}

static void work_at_timer(uv_timer_t *handle)
{
    (void)handle;
    usleep(WORK_US);
}

static void end(uv_timer_t *handle)
{
    uv_stop(handle->loop);
}

START_TEST(callbacks_of_sockets)
{
    ck_assert_int_eq(write(pipe_ends[1], "x", 1), 1);
    uv_poll_start(&poll_handle, UV_READABLE, work_at_socket);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_uint_lt(turn.longest_us, WORK_US - CLOCK_US); /* the turn is not over */
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_uint_ge(last_us, WORK_US - CLOCK_US);
    ck_assert_uint_eq(turn.longest_us, last_us);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_uint_lt(last_us, turn.longest_us);
}
END_TEST

START_TEST(callbacks_of_timers)
{
    uv_run(&loop, UV_RUN_NOWAIT);
    uv_timer_start(&timer, work_at_timer, 0, 0);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_uint_ge(turn.longest_us, WORK_US - CLOCK_US);
}
END_TEST

START_TEST(waiting_is_left_out)
{
    uint64_t start_ns = uv_hrtime();
    uv_timer_start(&timer, end, WAIT_MS, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_run(&loop, UV_RUN_NOWAIT);
    uint64_t whole_us = (uv_hrtime() - start_ns) / 1000;
    ck_assert_uint_ge(whole_us, (WAIT_MS - 10) * 1000); /* libuv's clock has milliseconds */
    ck_assert_uint_le(turn.longest_us, whole_us - (WAIT_MS - 10) * 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop_turn");
    TCase *tcase = tcase_create("loop_turn");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, callbacks_of_sockets);
    tcase_add_test(tcase, callbacks_of_timers);
    tcase_add_test(tcase, waiting_is_left_out);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
