/* A few Raft drivers with logs, disks, a network between them and what their owners do, in virtual time; and the rules that hold in it.
 *
 * Time goes in steps of a millisecond: what arrives until then is received in the order of arrival, then each member's syncs, timer and turn.
 *
 * Checked after every event: one leader per term, no term that nobody stood in, the commit index never goes back, committed entries are alike, a leader asks
 * nobody below what he acknowledged to it, its timer keeps its distance. Each turn: the configuration is the newest of the log. At the end: all are alike.
 */
#ifndef LEDGERMQ_TESTS_SIM_DRIVER_GROUP_H
#define LEDGERMQ_TESTS_SIM_DRIVER_GROUP_H

#include "dledger/raft_driver.h"
#include "tests/lib/sim_env.h"
#include "tests/sim/world.h"

#define DRIVER_GROUP_MAX 5
#define DRIVER_GROUP_SEGMENT 65536u
#define DRIVER_GROUP_BODY_MAX 600u
#define DRIVER_GROUP_TERMS_MAX 65536u
#define DRIVER_GROUP_CHANGES_MAX 512u
#define DRIVER_GROUP_CONFIGURATION_SIZE 256u

struct member {
    int id;
    bool up;
    uint64_t comes_back; /* while it is down, UINT64_MAX = not by itself */
    struct sim_env disk;
    struct ledger ledger;
    struct vote_file votes;
    struct raft_driver driver;
    struct checkpoint checkpoint; /* as if it were on the disk */
    struct ledger_sync sync;
    bool syncing;
    uint64_t synced_at;

    raft_index known_index; /* of the newest configuration that was fed back */
    uint8_t known[DRIVER_GROUP_CONFIGURATION_SIZE];
    size_t known_size;
    raft_index fed;

    bool cut; /* since the log was looked at, somewhere behind that entry */
    raft_index cut_behind;
    raft_index scanned;
    raft_index changes[DRIVER_GROUP_CHANGES_MAX]; /* configurations of its log up to there */
    unsigned change_count;
    raft_index commit_seen;
    raft_time timer_seen;
    uint64_t stuck_due;
};

struct driver_group {
    int count;
    struct member members[DRIVER_GROUP_MAX + 1];
    struct sim_clock clock;
    struct letter *letters; /* the next one first */
    bool cut[DRIVER_GROUP_MAX + 1][DRIVER_GROUP_MAX + 1];
    uint64_t unsent[DRIVER_GROUP_MAX + 1][DRIVER_GROUP_MAX + 1], arrives[DRIVER_GROUP_MAX + 1][DRIVER_GROUP_MAX + 1]; /* the last one */
    uint64_t latency_us;
    unsigned late_per_mille, double_per_mille, lost_per_mille;
    uint64_t late_us, sync_us;
    bool submits;
    uint64_t submit_gap_us, submit_at;
    unsigned submit_max;
    uint32_t body_max;
    bool two_may_lead;

    uint64_t leader_of[DRIVER_GROUP_TERMS_MAX];
    bool stood[DRIVER_GROUP_TERMS_MAX];
    uint32_t *chains; /* of committed entries, by index */
    raft_index committed, chain_capacity;
};
extern struct driver_group group;

/* A group of that many, that has a leader. Its style is drawn; the play may change it. */
void driver_group_begin(int count);
void driver_group_end(void);

/* ---- network ---- */
/* A message that arrives then, whoever could have sent it. */
void driver_group_post(int from, int to, const struct peer_message *message, const uint8_t *run, size_t size, uint64_t arrives);
/* What is under way to a member, or from it, is lost: its process was another one. */
void driver_group_forget_letters(int id);
void driver_group_cut(int a, int b, bool is);
void driver_group_cut_off(int id, bool is);

/* ---- members ---- */
/* The process is gone. power: with what is not synced. */
void driver_group_stop(struct member *member, bool power, uint64_t for_us);
void driver_group_restart(struct member *member);
/* The one that leads in the newest term, NULL = nobody. */
struct member *driver_group_leader(void);
/* Any other one; NULL when nobody leads. */
struct member *driver_group_follower(void);
/* count entries of that kind; body NULL: of some bytes. */
int driver_group_submit(struct member *member, unsigned count, uint8_t kind, const void *body, size_t body_size);
/* Gives that member its vote or takes it. Not the leader's own, and two others keep theirs. */
bool driver_group_change(struct member *leads, int id);
/* All delete what all have stored. */
void driver_group_trim(void);
/* The rules, after an event that was not one of this file. */
void driver_group_look_at(struct member *member);

/* ---- time ---- */
void driver_group_step_ms(void);
void driver_group_run_for(uint64_t us);
bool driver_group_run_while_not(bool (*condition)(void), uint64_t ms);
/* Somebody leads, and a majority hears him. */
bool driver_group_is_led(void);
/* Nothing is wrong any more: all are alike so soon. */
void driver_group_expect_level(uint64_t ms);

#endif
