/* How long the turns of a loop take: callbacks of sockets and timers and what is done between them, not the time in which the loop waits for events.
 *
 * Wall-clock time: a turn in which the processor was somebody else's is as long for those who wait. It costs no system call: libuv tells in milliseconds when it
 * stopped waiting, so lengths are up to one too short or too long.
 */
#ifndef LEDGERMQ_DLEDGER_LOOP_TURN_H
#define LEDGERMQ_DLEDGER_LOOP_TURN_H

#include <uv.h>

struct loop_turn {
    uint64_t polled_ns;  /* the callbacks of sockets had been run; 0 = never */
    uint64_t sockets_us; /* ... and took so long */
    uint64_t longest_us;
};

/* At the begin of a check callback, once per turn: the loop has waited, and callbacks of sockets have been run. */
void loop_turn_polled(struct loop_turn *turn, const uv_loop_t *loop);
/* At the end of a prepare callback, once per turn: what follows is the wait. The length of the turn that ends here, in microseconds; 0 the first time. */
uint64_t loop_turn_ends(struct loop_turn *turn);

#endif
