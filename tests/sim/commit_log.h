/* The log of a simulated machine, as the parts of its broker know it.
 */
#ifndef LEDGERMQ_TESTS_SIM_COMMIT_LOG_H
#define LEDGERMQ_TESTS_SIM_COMMIT_LOG_H

#include "tests/sim/machine.h"

struct dledger_commit_log *commit_log_of(struct machine *machine);

#endif
