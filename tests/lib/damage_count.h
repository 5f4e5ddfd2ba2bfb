/* How much seeded damage a test did to one kind of file: what it changed, for tests/unit/seeded_damage to add up. */
#ifndef LEDGERMQ_TESTS_LIB_DAMAGE_COUNT_H
#define LEDGERMQ_TESTS_LIB_DAMAGE_COUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct damage_count {
    uint64_t flips;  /* of one bit */
    uint64_t others; /* zeroed, foreign or old blocks, files cut short or removed */
};

static inline void damage_count_add(struct damage_count *count, bool flip)
{
    count->flips += flip;
    count->others += !flip;
}

/* At the end of a test that found nothing wrong: a test is a process of its own. */
static inline void damage_count_print(const struct damage_count *count, const char *kind)
{
    printf("damaged %s: %llu flips, %llu others\n", kind, (unsigned long long)count->flips, (unsigned long long)count->others);
    fflush(stdout);
}

#endif
