#include "tests/sim/bugs.h"

#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

enum seeded_bug seeded_bug;
unsigned seeded_bug_guard;

const char *const seeded_bug_names[SEEDED_BUGS] = {
    "none",
#define NAME_OF(id, name, what) name,
    SEEDED_BUG_LIST(NAME_OF)
#undef NAME_OF
};

const char *const seeded_bug_texts[SEEDED_BUGS] = {
    "none",
#define TEXT_OF(id, name, what) what,
    SEEDED_BUG_LIST(TEXT_OF)
#undef TEXT_OF
};

void seeded_bug_set(enum seeded_bug bug)
{
    seeded_bug = bug;
    seeded_bug_guard = bug >= SEEDED_GUARD_1 ? (unsigned)atoi(seeded_bug_names[bug] + strlen("guard-")) : 0;
}

bool seeded_bug_chance(unsigned per_mille)
{
    return chance_of(per_mille);
}
