/* What goes wrong, and when: each run draws which kinds of faults it knows and how often they come.
 */
#ifndef LEDGERMQ_TESTS_SIM_CHAOS_H
#define LEDGERMQ_TESTS_SIM_CHAOS_H

#include "tests/sim/machine.h"

void chaos_begin(uint64_t until);
/* Everything that was broken is whole again; machines that are down stay so. */
void chaos_end(void);

#endif
