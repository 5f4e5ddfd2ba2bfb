/* How long the turns of a loop take: everything between two looks, callbacks of sockets and timers too, but for the time in which the loop waited for events.
 *
 * Wall-clock time: a turn in which the processor was somebody else's is as long for those who wait. Resolution: microseconds.
 */
#ifndef LEDGERMQ_DLEDGER_LOOP_TURN_H
#define LEDGERMQ_DLEDGER_LOOP_TURN_H

#include <uv.h>

struct loop_turn {
    uv_loop_t *loop;
    uint64_t looked_ns;   /* 0 = never */
    uint64_t waited_ns;   /* by the loop, until then */
    uint64_t longest_us;
};

/* Before the loop runs: it has to keep count of its waiting, for which it looks for events once more before each wait. */
void loop_turn_init(struct loop_turn *turn, uv_loop_t *loop);
/* From a prepare callback, once per turn. The length of the turn that ends here, in microseconds; 0 the first time. */
uint64_t loop_turn_ends(struct loop_turn *turn);

#endif
