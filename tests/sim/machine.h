/* One machine with its disk, clock and loop, and the member that runs on it: the real replica, ledger and message store, and a broker's
 * parts: topics, groups, offsets, locks, delay, transactions, the processors of requests.
 *
 * The loop does what dledger_commit_log and libuv do in the product: takes what has arrived in some order, runs what is due, ends its turn. A
 * machine is dead (power), its process dead, paused, or running.
 */
#ifndef LEDGERMQ_TESTS_SIM_MACHINE_H
#define LEDGERMQ_TESTS_SIM_MACHINE_H

#include "broker/broker.h"
#include "dledger/replica.h"
#include "tests/lib/sim_env.h"
#include "tests/sim/loop.h"
#include "tests/sim/network.h"
#include "tests/sim/world.h"

enum machine_job_kind { JOB_SYNC, JOB_RESERVE, JOB_SAVE, JOB_SCRUB, JOB_VOTE, JOBS };
struct machine_job {
    bool out;
    bool ran;
    bool back; /* waits for the loop */
};

struct log_seen { /* what the checker has seen in a log, by Raft index */
    uint64_t term;
    uint64_t position;
    uint32_t chain;
};

#define MACHINE_DAMAGED_MAX 16
struct machine_damage { /* entries, Raft indexes */
    uint64_t first, last;
};

#define MACHINE_ELECTION_MS 300

struct machine {
    int id; /* of the machine; the Raft id of its member is for the group to say */
    char name[16];
    char peers[128];    /* its dLegerPeers */
    char preferred[64], preferred_next[64]; /* preferredLeaderIds: of this process, of the next one */
    bool deployed;      /* a person has begun to use it */
    struct sim_env disk;
    struct replica replica;
    struct log_view view;
    struct loop loop;
    struct broker broker; /* its parts that need no sockets, and its store */
    struct dledger_callbacks callbacks; /* of the broker, behind the checker's */

    bool up;            /* a process runs */
    bool powered;
    uint32_t life;      /* counts processes */
    uint32_t refusals;  /* counts turns at whose end it took no appends */
    uint64_t born;
    bool paused;
    bool frozen;
    uint64_t thawed_at; /* its clock stood still until then, 0 = never */
    uint64_t paused_since;
    uint64_t boot_us;   /* when its monotonic clock was 0 */
    int64_t wall_skew_ms;
    uint64_t busy_until;
    bool greet_wanted;
    uint64_t members_seen; /* replica.members_version */
    bool stopping, transferred;
    uint64_t stop_since;
    bool clean; /* stopped cleanly, not started since */
    bool power_after_stop;
    bool cut_when_dead; /* the death inside a call was one of the whole machine */
    bool keep_down;
    uint64_t slow_until, slow_us;
    uint64_t arrived;      /* messages and ends of connections that wait to be taken by the loop */
    uint64_t client_calls; /* waiting to be taken by the loop */
    struct machine_job jobs[JOBS];

    /* ---- disk_fault.h ---- */
    struct machine_damage damaged[MACHINE_DAMAGED_MAX]; /* entries that were hit, some of them mended since */
    uint32_t damaged_count;
    bool notes_damaged;       /* vote, checkpoint, or what is made again anyway */
    uint64_t notes_damaged_at; /* in saves */
    bool loses_queue;         /* when it has stopped cleanly */
    bool queue_lost;          /* it has, and no start has looked yet */
    bool old_queue_lost;      /* ... when the copy was kept */
    bool mark_lost;           /* what says that its queues' sums count no more was not written, or lost with the power (store/queue_sum.h) */
    uint64_t had_term, had_last; /* before an old copy of its disk was put back */
    uint64_t saves;           /* checkpoints that are durable */
    uint64_t vouched;         /* entries up to here are committed: a durable checkpoint says so */
    enum { RESTORE_NONE, RESTORE_DUE, RESTORE_SPOILT, RESTORE_MUST_FAIL } restore; /* backup.h: a copy of a backup waits to be taken; its bytes may not all be durable; they are others */
    struct sim_copy *old_copy;
    struct machine_damage old_damaged[MACHINE_DAMAGED_MAX];
    uint32_t old_damaged_count;
    uint64_t old_vouched;
    bool old_alone;           /* that copy may hold a group of one */

    struct network_link links[WORLD_NODES_MAX + 1]; /* by machine */
    int numbers[DLEDGER_MEMBERS_MAX + 1]; /* the machine that has this Raft id, for all that this one knows; 0 = none */

    /* ---- checker ---- */
    struct log_seen *log; /* [1..log_last] */
    uint64_t log_last, log_capacity;
    uint64_t log_begin; /* entries up to here were deleted */
    uint64_t commit_seen, leads_term;
    uint64_t durable_checked; /* acknowledged entries up to here were found on the medium */
    uint64_t acknowledged;    /* highest index told to a leader as stored */
    uint64_t cut_above;       /* a cut has begun that leaves at least so much, UINT64_MAX = none */
    uint64_t apply_next;      /* Raft index, 0 = none applied in this life */
    bool forgetful;           /* lost what it may have acknowledged, does not run yet */
    bool mute;                /* as it says itself, when it was up last: it takes no part until it has caught up */
    bool wiped;
    bool doubtful;            /* runs again, but its disk may not know: after a restart it would be mute once more */
    bool ran;                 /* took part since it was last empty */
    struct log_seen *ghost;   /* what it held before */
    uint64_t ghost_last, ghost_acknowledged;
    bool outcast;             /* class A: holds committed entries that a majority has lost */
    bool keys_may_lack;       /* its disk failed once: the key index leaves out what it cannot write */
    bool io_error_wanted;     /* its disk was told to fail: it may stop for good */
    uint64_t failed_at;
    uint32_t stored_life; /* term and vote that were found on the medium in this life */
    uint64_t stored_term, stored_vote;
    uint64_t granted_term, granted_to; /* the newest vote, for a Raft id */
    bool granted_self;
};

/* Makes a broker's parts on a log, for a member or for a rebuild from its log. */
void machine_open_broker(struct broker *broker, struct loop *loop, struct env *env, struct machine *machine);
void machine_store_config(struct message_store_config *config, bool index);

void machine_init(struct machine *machine, int id);
void machine_close(struct machine *machine);

/* Begins a process. May fail for reasons that chaos has given; then it is tried again later. */
void machine_start(struct machine *machine);
void machine_start_at(struct machine *machine, uint64_t at);
void machine_kill(struct machine *machine);
void machine_power_cut(struct machine *machine);
/* The process was killed inside a call: gives its files back. */
void machine_died(struct machine *machine);
void machine_stop(struct machine *machine); /* clean */
void machine_pause(struct machine *machine, bool clock_too);
/* Its disk works well again: what hung there comes back. */
void machine_hurry(struct machine *machine);
void machine_resume(struct machine *machine);
/* The directory is emptied by a person. */
void machine_wipe(struct machine *machine);
/* It has another disk, and belongs to another group, or none: nothing that it did before counts. */
void machine_renew(struct machine *machine);
/* The machine of that name, which may have an address behind it; 0 = none. */
int machine_named(const char *name);
/* ID-HOST:PORT of a machine, for dLegerPeers. */
void machine_address(int id, char out[32]);
/* Raft id that this machine knows another one by, 0 = none. */
uint64_t machine_number_of(const struct machine *machine, int other);
/* A person keeps a copy of the disk of a machine that is down / puts it back. */
void machine_keep_copy(struct machine *machine);
void machine_put_copy_back(struct machine *machine);

/* Sets the machine's clock: before anything of the member is called. */
void machine_clock(struct machine *machine);
/* The loop is to run, now or when it has finished its turn. */
void machine_wake(struct machine *machine, uint64_t at);
/* It is time. */
void machine_run(struct machine *machine);
/* After anything of the member was called outside the loop. */
void machine_after(struct machine *machine);
/* False when it died meanwhile. */
static inline bool machine_alive(const struct machine *machine)
{
    return machine->up && !machine->disk.dead;
}
static inline bool machine_runs(const struct machine *machine)
{
    return machine_alive(machine) && machine->replica.phase == REPLICA_RUNNING;
}

#endif
