#include "dledger/loop_turn.h"

void loop_turn_polled(struct loop_turn *turn, const uv_loop_t *loop)
{
    turn->polled_ns = uv_hrtime();
    /* libuv took the time when it stopped waiting. */
    uint64_t now_ms = turn->polled_ns / 1000000, woken_ms = uv_now(loop);
    turn->sockets_us = now_ms > woken_ms ? (now_ms - woken_ms) * 1000 : 0;
}

uint64_t loop_turn_ends(struct loop_turn *turn)
{
    if (turn->polled_ns == 0)
        return 0;
    uint64_t us = turn->sockets_us + (uv_hrtime() - turn->polled_ns) / 1000;
    if (us > turn->longest_us)
        turn->longest_us = us;
    return us;
}
