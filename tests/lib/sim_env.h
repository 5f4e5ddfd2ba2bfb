/* A machine in memory behind struct env: files with a page cache, clocks, chance. For the simulator and for tests of faults.
 *
 * Each sim_env is one machine with its own disk; several live in one process. What a process wrote is seen at once (page cache) and survives its
 * death; only what was synced survives a power cut for sure, the rest is kept, lost or torn by seeded chance. One thread.
 *
 * After a kill or a power cut every call fails with -EIO and changes nothing until sim_env_restart(); the code under test closes its files as it
 * does after any error. A mapping is the file's memory itself: what is stored through a writable one is unsynced page cache.
 */
#ifndef LEDGERMQ_TESTS_LIB_SIM_ENV_H
#define LEDGERMQ_TESTS_LIB_SIM_ENV_H

#include "store/env.h"

#define SIM_PAGE 4096u
#define SIM_SECTOR 512u

/* Kinds of calls, for faults and counters. */
enum sim_call {
    SIM_OPEN = 1 << 0,
    SIM_WRITE = 1 << 1,
    SIM_READ = 1 << 2,
    SIM_SYNC = 1 << 3, /* also of maps */
    SIM_TRUNCATE = 1 << 4,
    SIM_ALLOCATE = 1 << 5,
    SIM_MAP = 1 << 6,
    SIM_RENAME = 1 << 7,
    SIM_UNLINK = 1 << 8,
    SIM_SYNC_DIR = 1 << 9,
    SIM_MAKE_DIR = 1 << 10,
    SIM_LIST = 1 << 11,
    SIM_CHANGES = SIM_WRITE | SIM_SYNC | SIM_TRUNCATE | SIM_ALLOCATE | SIM_RENAME | SIM_UNLINK | SIM_SYNC_DIR | SIM_MAKE_DIR,
    SIM_ALL = (1 << 12) - 1,
};
#define SIM_CALLS 12

struct sim_clock {
    int64_t wall_ms;
    uint64_t monotonic_us;
};

struct sim_fault {
    unsigned calls;     /* enum sim_call bits; 0 = none */
    uint64_t countdown; /* the call that makes it 0 is hit */
    int error;          /* positive errno */
    bool sticky;        /* all later ones too */
    bool kill;          /* the process dies inside the call: a write is done up to some page */
};

struct sim_node; /* a file's content */
struct sim_name;
struct sim_journal;
struct sim_copy;

struct sim_env {
    struct env env; /* hand out &sim->env */

    /* ---- the test may set these at any time ---- */
    struct sim_clock *clock; /* own_clock, or one shared by several machines */
    struct sim_clock own_clock;
    uint64_t boot_id;        /* changed by a power cut */
    uint64_t disk_bytes;     /* size of the disk, 0 = no limit; whole pages count */
    uint32_t writeback_per_mille; /* chance that a call makes a few dirty pages durable, as the kernel does in the background */
    bool names_in_any_order; /* of a directory's unsynced changes a power cut keeps any, but of one name's a first part; else of all a first part */
    struct sim_fault fault;

    /* ---- the test may read these ---- */
    bool dead;
    uint64_t used_bytes;
    uint64_t counts[SIM_CALLS]; /* calls made while alive, by bit number */
    uint32_t open_files;
    uint32_t open_maps;
    uint64_t torn_pages, lost_names; /* by power cuts */

    /* ---- private ---- */
    uint64_t chance; /* faults */
    uint64_t chance_of_node; /* what env_random gives */
    struct sim_name *names;
    struct sim_journal *journal; /* name changes not yet durable, oldest first */
    size_t journal_count, journal_capacity;
    struct sim_node *nodes; /* all that exist, named or not */
    struct sim_mapping *mappings;
};

/* clock NULL = its own. The root directory exists. */
void sim_env_init(struct sim_env *sim, uint64_t seed, struct sim_clock *clock);
/* All files must be closed and unmapped. */
void sim_env_close(struct sim_env *sim);

/* The process is gone: nothing it does from now on has an effect. */
void sim_env_kill(struct sim_env *sim);
/* The machine lost power, the process with it; unsynced pages, sizes and names are kept, lost or torn. A new boot id. */
void sim_env_power_cut(struct sim_env *sim);
/* A new process may begin. The old one must have closed its files. Clears the fault. */
void sim_env_restart(struct sim_env *sim);

/* The n-th such call from now on (1 = the next) fails with error_number (positive) and changes nothing; sticky: so do all after it. */
void sim_env_fail_at(struct sim_env *sim, unsigned calls, uint64_t n, int error_number, bool sticky);
/* The process dies inside the n-th such call: a write is done up to a random page boundary, any other call wholly or not at all. */
void sim_env_kill_at(struct sim_env *sim, unsigned calls, uint64_t n);
/* Calls of these kinds so far. */
uint64_t sim_env_calls(const struct sim_env *sim, unsigned calls);

/* Seeded chance for the test itself: 0 .. below - 1. */
uint64_t sim_env_chance(struct sim_env *sim, uint64_t below);

/* ---- looking at and spoiling the disk from outside ---- */
bool sim_env_exists(const struct sim_env *sim, const char *path);
/* Content of a file (its memory), NULL when there is none. */
uint8_t *sim_env_bytes(struct sim_env *sim, const char *path, uint64_t *size);
/* What of it is on the medium for sure: what a power cut now would leave of those bytes at the least. NULL when there is no such file. */
const uint8_t *sim_env_durable_bytes(const struct sim_env *sim, const char *path, uint64_t *size);
/* Flips bits in cache and on the medium alike. */
void sim_env_corrupt(struct sim_env *sim, const char *path, uint64_t offset, uint8_t bits);
/* Are these bytes at rest: on the medium as the process sees them, with nothing written to their pages since? */
bool sim_env_at_rest(const struct sim_env *sim, const char *path, uint64_t offset, uint64_t size);
/* The medium holds other bytes from now on, and so does the cache, as when the page had left it. They must be within the file. */
void sim_env_put(struct sim_env *sim, const char *path, uint64_t offset, const void *bytes, uint64_t size);
/* The n-th file whose path begins so, in the order in which they came to be; NULL: there are fewer. */
const char *sim_env_file(const struct sim_env *sim, const char *prefix, uint64_t n);
/* All that is on the disk of a machine without a process, to be put back later: a copy is free()d with sim_env_copy_free(). */
struct sim_copy *sim_env_copy(struct sim_env *sim);
void sim_env_put_back(struct sim_env *sim, const struct sim_copy *copy);
void sim_env_copy_free(struct sim_copy *copy);
/* Removes a file for good. */
void sim_env_remove(struct sim_env *sim, const char *path);
/* Pages that were stored to through a writable mapping without blocks: on a full disk each would have been a SIGBUS. */
uint64_t sim_env_unreserved_pages(struct sim_env *sim);
/* A number that is the same exactly when all names under prefix, their sizes and their bytes are. */
uint64_t sim_env_digest(struct sim_env *sim, const char *prefix);

#endif
