/* The simulated world: one seed, virtual time, a queue of events, and the machines in it. Everything else of the simulator is about one part of it.
 *
 * One run is one world in one process: world is a global, and a violation ends the process.
 */
#ifndef LEDGERMQ_TESTS_SIM_WORLD_H
#define LEDGERMQ_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "store/seeded_bug.h"

#define WORLD_NODES_MAX 7
#define WORLD_MEMBERS_MAX 5 /* of a group; the others were members once, or will be */
#define MS 1000ull
#define SECOND 1000000ull

enum chaos_kind {
    CHAOS_KILL,
    CHAOS_KILL_IN_CALL,
    CHAOS_POWER_ONE,
    CHAOS_POWER_IN_CALL,
    CHAOS_POWER_MINORITY,
    CHAOS_POWER_ALL,
    CHAOS_STOP,
    CHAOS_STOP_THEN_POWER,
    CHAOS_RESTART_LOOP,
    CHAOS_PAUSE,
    CHAOS_FREEZE, /* its clock stands too */
    CHAOS_CLOCK_JUMP,
    CHAOS_PARTITION,
    CHAOS_BRIDGE,
    CHAOS_ISOLATE,
    CHAOS_ONE_WAY,
    CHAOS_BREAK,
    CHAOS_DELAY,
    CHAOS_SLOW_DISK,
    CHAOS_HUNG_SYNC,
    CHAOS_FULL_DISK,
    CHAOS_EIO,
    CHAOS_WIPE,
    CHAOS_TRANSFER,
    CHAOS_SNAPSHOT,
    CHAOS_FLIP,
    CHAOS_STALE,
    CHAOS_MISDIRECTED,
    CHAOS_OLD_COPY,
    CHAOS_VOTE_TAKEN,
    CHAOS_VOTE_GIVEN,
    CHAOS_MEMBER_ADDED,
    CHAOS_MEMBER_REMOVED,
    CHAOS_MEMBER_REPLACED,
    CHAOS_PREFERRED,
    CHAOS_QUEUE_LOST, /* after a clean stop */
    CHAOS_KINDS
};
extern const char *const chaos_names[CHAOS_KINDS];

#define WORLD_PROGRESS_STEPS 10

/* Summed over all runs by the parent: numbers only. */
struct world_stats {
    uint64_t runs, failed;
    uint64_t events, virtual_us;
    uint64_t messages, messages_lost, bits_flipped, connections;
    uint64_t steps, elections, entries, committed, cut_entries, starts, start_failures;
    uint64_t sends, acknowledged, unknown, refused, metadata, raw, pulls, pulled, pulls_damaged, trims, trimmed, bulk_fetches, old_copies;
    uint64_t deletions, deleted_messages, dropped_messages, refused_sends; /* of topics in use; messages in them; delayed ones that waited; answers 17 */
    uint64_t caught_up; /* members that had forgotten something and vote again */
    uint64_t losses;    /* class A: moments in which a majority had lost power */
    uint64_t excused;   /* acknowledged messages lost thereby */
    uint64_t late_votes, late_votes_lost; /* not durable when the loop had waited for them; ended by a crash before that */
    uint64_t power_cuts, torn_pages, lost_names, failed_members;
    uint64_t runs_without_bare_majority, runs_that_wait_for_a_person;
    uint64_t changes, members_come, members_go, greetings_refused; /* of the group that were committed; hellos of who is no member */
    uint64_t progress[WORLD_PROGRESS_STEPS]; /* how often sends were acknowledged within so many half seconds after the faults, all members remembering */
    uint64_t backups_begun, backups, restores, restores_interrupted, restores_refused; /* restores: members that have taken a backup */
    uint64_t chaos[CHAOS_KINDS];
};

/* What went wrong in a run, in order: for the shortened schedule of a seed that fails. */
#define WORLD_FAULTS_MAX 4096
struct world_schedule {
    uint32_t count; /* of faults that were planned */
    struct world_fault {
        uint64_t at;
        uint8_t kind; /* CHAOS_KINDS: none was tried */
        uint8_t node;
    } faults[WORLD_FAULTS_MAX];
};

struct world_options {
    int nodes;      /* 0: the seed decides */
    int durability; /* 'A', 'B', 0: the seed decides */
    unsigned seconds; /* of faults */
    int verbose;
    enum seeded_bug bug;
    uint64_t kinds; /* of faults: 1 << enum chaos_kind each; 0: the seed decides */
    bool backup;    /* one is made and restored; else the seed decides (backup.h) */
    bool drivers;   /* drivers alone (drivers.h) */
    int play;       /* of theirs; 0: the seed decides */
    const bool *left_out; /* [WORLD_FAULTS_MAX] by number in the schedule; NULL = none */
};

struct world_event {
    uint64_t at;
    void (*run)(const struct world_event *event);
    void *pointer;
    uint64_t value;
    uint32_t life;
    int node;
};

struct machine;

struct world {
    uint64_t seed;
    uint64_t random;
    uint64_t now; /* microseconds */
    struct world_options options;
    bool class_b;
    int nodes;    /* machines, members of the group or not */
    int founders; /* those of the first start: the first ones */
    struct machine *machines[WORLD_NODES_MAX + 1];
    uint64_t wake_at[WORLD_NODES_MAX + 1]; /* of machines, when their loops go on next; UINT64_MAX = not planned */
    struct world_stats *stats;
    struct world_schedule *schedule;

    /* ---- the style of this run ---- */
    uint64_t segment_size;
    uint64_t index_file_size;
    uint64_t latency_us;      /* of a message, at most, when nothing is wrong */
    unsigned late_per_million; /* of messages: as late as seconds */
    unsigned flip_per_million; /* of messages with entries: a bit is wrong */
    unsigned turn_per_mille;  /* chance that a loop turn ends after one thing was handled */
    uint64_t sync_us;         /* of a sync, at most, when nothing is wrong */
    uint64_t vote_wait_us;    /* a loop waits so long for its vote file */
    uint64_t unsent_max;      /* bytes on a connection before entries are dropped */
    uint64_t scrub_rate;      /* bytes per second that are read through */
    uint64_t send_gap_us;     /* between client calls, on average */
    uint32_t body_max;
    bool changes_members;     /* members come and go, votes are taken and given */
    bool gives_up_halves;     /* that nobody decides, after a second */
    bool trims; /* the log's beginning is deleted now and then */
    bool cut[WORLD_NODES_MAX + 1][WORLD_NODES_MAX + 1]; /* from, to */
    bool calm; /* no more faults */
    bool sends_wanted; /* it is measured how long sends take */
};
extern struct world world;

/* Seeded chance: several draws an event, so they are inline. */
static inline uint64_t chance_next(void)
{
    uint64_t z = (world.random += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static inline uint64_t chance(uint64_t below)
{
    return below == 0 ? 0 : chance_next() % below;
}

static inline uint64_t chance_between(uint64_t low, uint64_t high)
{
    return low + chance(high - low + 1);
}

static inline bool chance_of(unsigned per_mille)
{
    return chance_next() % 1000 < per_mille;
}

/* Small values far more often than large ones, up to about max. */
static inline uint64_t chance_skewed(uint64_t max)
{
    unsigned shift = (unsigned)chance(16);
    return chance((max >> shift) + 1);
}

void world_at(uint64_t at, void (*run)(const struct world_event *event), int node, uint32_t life, void *pointer, uint64_t value);
/* Carries events out up to that time. */
void world_run_until(uint64_t until);
/* As long as the condition does not hold, but not beyond that time. True when it came to hold. */
bool world_run_while_not(bool (*condition)(void), uint64_t until);

/* Runs a whole world. Returns only when nothing was violated. */
void world_run(uint64_t seed, const struct world_options *options, struct world_stats *stats, struct world_schedule *schedule);

/* Ends the process with status 1. node 0: the whole group. */
void violation(int node, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
void trace(int level, int node, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define TRACE(...)                                                                                                                             \
    do {                                                                                                                                       \
        if (world.options.verbose > 0)                                                                                                         \
            trace(__VA_ARGS__);                                                                                                                \
    } while (0)

#endif
