/* The seeded bugs of store/seeded_bug.h: which one is in. */
#ifndef LEDGERMQ_TESTS_SIM_BUGS_H
#define LEDGERMQ_TESTS_SIM_BUGS_H

#include "store/seeded_bug.h"

/* By the number of the bug; of SEEDED_NONE "none". */
extern const char *const seeded_bug_names[SEEDED_BUGS];
extern const char *const seeded_bug_texts[SEEDED_BUGS];

void seeded_bug_set(enum seeded_bug bug);

#endif
