/* Which faults does a failure need? Larger and smaller groups of them are left out as long as the run still fails (delta debugging, Zeller). A run without a
 * fault differs from there on in everything, so what remains need not fail for the same reason; what it says is printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/bugs.h"
#include "tests/sim/drivers.h"
#include "tests/sim/runs.h"

#define LINES_MAX 40u /* a longer schedule is only told by its numbers */

void print_command(const struct settings *settings, uint64_t seed)
{
    const struct world_options *options = &settings->options;
    printf("ledgermq_sim --seed %llu --length %u", (unsigned long long)seed, options->seconds);
    if (options->nodes != 0)
        printf(" --nodes %d", options->nodes);
    if (options->durability != 0)
        printf(" --durability %c", options->durability);
    if (options->backup)
        printf(" --backup");
    if (options->drivers)
        printf(" --drivers=%s", drivers_play_names[options->play]);
    if (options->bug != SEEDED_NONE)
        printf(" --bug %s", seeded_bug_names[options->bug]);
}

static void print_schedule(const struct settings *settings, uint64_t seed, const struct world_schedule *schedule, const bool *left_out,
                           const struct runs_failure *failure)
{
    const char *comma = "";
    unsigned count = 0;
    for (uint32_t i = 0; i < schedule->count; i++)
        count += schedule->faults[i].kind < CHAOS_KINDS && !left_out[i];
    printf("shortened to %u of %u faults: ", count, schedule->count);
    print_command(settings, seed);
    printf(" --faults ");
    if (count == 0)
        printf("none");
    for (uint32_t i = 0; i < schedule->count; i++) {
        if (schedule->faults[i].kind < CHAOS_KINDS && !left_out[i]) {
            printf("%s%u", comma, i);
            comma = ",";
        }
    }
    printf(" --verbose\n");
    for (uint32_t i = 0; i < schedule->count && count <= LINES_MAX; i++) {
        const struct world_fault *fault = &schedule->faults[i];
        if (fault->kind < CHAOS_KINDS && !left_out[i])
            printf("    %10.3f ms  fault %u: %s, n%d\n", (double)fault->at / 1000.0, i, chaos_names[fault->kind], fault->node - 1);
    }
    printf("    %s\n", failure->said);
    fflush(stdout);
}

void shorten(const struct settings *given, uint64_t seed, unsigned tries)
{
    static bool left_out[WORLD_FAULTS_MAX], attempt[WORLD_FAULTS_MAX];
    static struct world_schedule schedule, best;
    struct settings settings = *given;
    struct runs_failure failure, best_failure;

    memset(left_out, 0, sizeof left_out);
    if (given->options.left_out != NULL)
        memcpy(left_out, given->options.left_out, sizeof left_out);
    memcpy(attempt, left_out, sizeof attempt);
    settings.seed = seed;
    settings.options.verbose = 0;
    settings.options.left_out = attempt;
    if (runs_one(&settings, &best, &best_failure)) {
        printf("seed %llu does not fail a second time: the run depends on something besides its seed\n", (unsigned long long)seed);
        return;
    }
    /* What comes after the failure is not needed. */
    for (uint32_t i = best.count; i < WORLD_FAULTS_MAX; i++)
        left_out[i] = true;
    uint32_t total = best.count;
    for (uint32_t size = (total + 1) / 2; size > 0 && tries > 0; size = size == 1 ? 0 : (size + 1) / 2) {
        for (uint32_t from = 0; from < total && tries > 0; from += size) {
            bool any = false;
            memcpy(attempt, left_out, sizeof attempt);
            for (uint32_t i = from; i < from + size && i < total; i++) {
                any = any || (!attempt[i] && best.faults[i].kind < CHAOS_KINDS);
                attempt[i] = true;
            }
            if (!any)
                continue;
            tries--;
            if (runs_one(&settings, &schedule, &failure))
                continue;
            memcpy(left_out, attempt, sizeof left_out);
            best = schedule;
            best_failure = failure;
        }
    }
    for (uint32_t i = best.count; i < total; i++)
        left_out[i] = true;
    print_schedule(&settings, seed, &best, left_out, &best_failure);
}
