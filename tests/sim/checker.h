/* What must hold at every moment and at the end, seen from outside: the checker knows all disks, all answers and what was ever committed.
 *
 * Majorities are counted by the configuration that holds: for a new entry the newest one in the log of whoever takes it for committed first, else the newest
 * committed one.
 *
 * Follows the safety properties of the Raft paper (figure 3) as raft-step's study checked them, and the invariants of store and queues.
 */
#ifndef LEDGERMQ_TESTS_SIM_CHECKER_H
#define LEDGERMQ_TESTS_SIM_CHECKER_H

#include "dledger/replica.h"
#include "tests/sim/machine.h"

enum call_kind { CALL_PLAIN, CALL_DELAYED, CALL_HALF, CALL_END, CALL_OFFSET, CALL_QUERY, CALL_LOCK, CALL_UNLOCK, CALL_METADATA, CALL_DELETION, CALL_PULL };

/* One client call, remembered for good. */
struct client_call {
    uint64_t number; /* position in the list of calls, written into the body of a message */
    enum call_kind kind;
    int node;
    uint32_t life;
    bool oneway;
    enum { CALL_WAITS, CALL_ACKNOWLEDGED, CALL_UNKNOWN } outcome;
    uint64_t sent_at, acknowledged_at;

    /* messages */
    int queue;  /* that it is sent to, place in the workload's list */
    int stored; /* where it waits: the same for a plain one */
    uint32_t body_size;
    uint64_t body_seed;
    int64_t queue_offset, physical_offset; /* as answered */
    int64_t newest_before; /* acknowledged in `stored` when this one was sent */
    uint64_t newest_of;    /* by a message of this incarnation of its topic (checker_incarnation) */
    bool refused;          /* there is no such topic: it is stored nowhere */
    uint64_t committed; /* Raft index at which it stands in the committed log, 0 = not there */
    uint64_t delivered; /* and at which it stands under its real topic: delayed, or committed half messages */
    uint64_t given_up;  /* and in the topic of half messages that nobody decided */
    uint64_t gone;      /* and at which the topic that it was sent to was deleted */
    bool commit_asked, rollback_asked; /* half messages */
    uint64_t commit_acknowledged_at, rollback_acknowledged_at; /* 0 = not */

    uint64_t half; /* decisions: number of the call */
    bool commits;
    int slot;      /* consumer offsets, or the queue of a lock */
    int64_t value; /* offset: committed, or known to be acknowledged when it was asked for; pulls: the first one asked for */
    int client;    /* locks; pulls: 1 = of the group, which goes on behind what it gets */
    uint64_t incarnation; /* offsets, deletions, pulls: of the topic when it was sent */
    int64_t removed;      /* offsets that were asked for: those up to this one are known to be removed */
    bool was_there;       /* deletions: the topic, when it was sent */
};

void checker_init(void);
void checker_close(void);

/* After each thing that a member did. */
void checker_machine(struct machine *machine);
/* A process has recovered its files / begins to run. */
void checker_started(struct machine *machine);
void checker_sending(struct machine *machine, uint64_t to, const struct peer_message *message);
/* dispatch NULL: a metadata record. */
void checker_applied(struct machine *machine, uint64_t index, const struct message_dispatch *dispatch, bool replay);
void checker_snapshot(struct machine *machine, uint64_t index);
void checker_acknowledged(struct client_call *call); /* a message */
/* A message that a pull serves, and messages [from, to) of a queue that it leaves out for good: those must have been deleted. The incarnation is the machine's
 * when it looked which messages there are. */
void checker_pulled(struct machine *machine, int queue, uint64_t incarnation, int64_t queue_offset, struct slice record);
void checker_passed_over(struct machine *machine, int queue, uint64_t incarnation, int64_t from, int64_t to);
/* Leads in the highest term in which anybody ever led. */
bool checker_leads_newest(const struct machine *machine);
/* Before the disk of a machine loses something. */
void checker_forgets(struct machine *machine, bool wiped);
/* Class A: has a majority lost what it had acknowledged, at this moment or since then? */
bool checker_loss_excused(uint64_t acknowledged_at);

/* Its disk is now what it was some time ago; nothing of what it acknowledged since then is missing to the others. */
void checker_put_back(struct machine *machine);

/* ---- backup.h: a fresh group goes on where a backup ended, and what was behind it never was ---- */
/* The group so far is gone. Entries up to `last` (Raft index) are in the backup, which was begun at that time (us), in a term up to `term`. */
void checker_group_restored(uint64_t last, uint64_t term, uint64_t begun_at);
/* This machine is empty, and nobody counts on anything that it did. */
void checker_begins_anew(struct machine *machine);
/* The header of the committed entry (Raft index); false: it is another one than this. */
bool checker_is_entry(uint64_t index, const struct ledger_entry *entry);
uint64_t checker_entry_position(uint64_t index);
uint64_t checker_metadata_hash(struct machine *machine);

/* Is the committed entry (Raft index) whole on this medium? */
bool checker_has_whole(struct machine *machine, uint64_t index);
/* Committed entries that these bytes of the log belong to, what fills the room behind them counted. False: none, or something else too. */
bool checker_entries_at(uint64_t position, uint64_t size, uint64_t *first, uint64_t *last);
uint64_t checker_end_position(uint64_t index); /* behind the committed entry, 0 for index 0 */

/* The committed configuration, by machines: does this one belong to the group, does it vote, and how many make a majority? */
bool checker_belongs(int node);
int checker_members(void);
bool checker_votes(int node);
int checker_majority(void);
/* Was one vote a majority at any time since this index was committed? */
bool checker_one_votes_since(uint64_t index);
/* A change of the members was begun, and whether it came to something is not known. */
void checker_change_begins(uint64_t index);
bool checker_change_open(void);

/* Topics that are deleted in use. The incarnation of a queue's topic: Raft index of the newest deletion before it, 0 = it was never deleted; by what is committed,
 * and by what a machine has applied. */
uint64_t checker_incarnation(int queue);
uint64_t checker_incarnation_of(const struct machine *machine, int queue);
bool checker_topic_exists(int queue);
/* Offsets of this slot up to this one were sent before the newest deletion of its topic. */
int64_t checker_offset_removed(int slot);

uint64_t checker_delayed_waiting(void);
uint64_t checker_committed(void); /* Raft index of the newest committed entry */
/* All are alike, down to the bytes; everything acknowledged is where it was said to be. */
void checker_final(void);
bool checker_converged(void);

#endif
