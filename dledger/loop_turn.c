#include "dledger/loop_turn.h"

void loop_turn_init(struct loop_turn *turn, uv_loop_t *loop)
{
    /* libuv's cached time cannot tell when a turn began: it is set anew before the timers, behind the callbacks of sockets. */
    uv_loop_configure(loop, UV_METRICS_IDLE_TIME);
    *turn = (struct loop_turn){.loop = loop};
}

uint64_t loop_turn_ends(struct loop_turn *turn)
{
    uint64_t now_ns = uv_hrtime(), waited_ns = uv_metrics_idle_time(turn->loop), us = 0;
    if (turn->looked_ns != 0)
        us = (now_ns - turn->looked_ns - (waited_ns - turn->waited_ns)) / 1000;
    turn->looked_ns = now_ns;
    turn->waited_ns = waited_ns;
    if (us > turn->longest_us)
        turn->longest_us = us;
    return us;
}
