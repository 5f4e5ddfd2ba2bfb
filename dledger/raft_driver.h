/* The only caller of raft_step(): events in, updates carried out on ledger, vote file and transport, faults of libraft 0.22.1 kept out.
 *
 * Follows the Raft thesis chapters 3, 4.2.3 (pre-vote), 6.2 (check quorum) as libraft implements them, with the guards G1-G15 and the
 * preconditions of the study of that library: the packaged core has no asserts, so whatever comes from a peer or a disk is validated here before
 * the step. No sockets, no threads, no clock but env: the simulator runs this same code. Indexes here are Raft's (1-based).
 */
#ifndef LEDGERMQ_DLEDGER_RAFT_DRIVER_H
#define LEDGERMQ_DLEDGER_RAFT_DRIVER_H

#include <raft.h>

#include "dledger/ledger.h"
#include "dledger/peer_message.h"
#include "dledger/vote_file.h"

/* Numbers as in the study. The simulator's build can switch each one off (store/seeded_bug.h), to show what it is for. */
enum raft_guard {
    GUARD_SOLE_VOTER = 1,       /* a sole voter never leads twice in one term */
    GUARD_SPLIT_CHANGE = 2,     /* a configuration entry always starts its own step */
    GUARD_SETTLE_CHANGE = 3,    /* a second configuration proves the first one committed */
    GUARD_STALE_RESULT = 4,     /* late rejections are dropped, hints never below match */
    GUARD_TRIM = 5,             /* entries at or below the commit index are cut off a message */
    GUARD_PRE_VOTE_TERM = 6,    /* a refused pre-vote carries the real term */
    GUARD_VOTE_RESULT = 7,      /* vote results count for candidates only */
    GUARD_LEADER_TIMER = 8,     /* the leader's timer is not run more often than every heartbeat */
    GUARD_COMMIT_MONOTONIC = 9, /* the commit index never goes back */
    GUARD_CAPACITY = 10,        /* the capacity threshold is 0 */
    GUARD_SAME_TERM = 13,       /* AppendEntries of our own term while leading are dropped */
    GUARD_STUCK_FOLLOWER = 14,  /* a follower that lost what it had acknowledged gets another leader */
    GUARD_CONFLICT_HINT = 15,   /* a rejection points at our commit index */
    GUARD_NON_VOTER = 16,       /* F16: who has no vote in its own newest configuration answers requests for votes all the same, and stands until that is committed */
    GUARDS
    /* G11 is how submits are made: a configuration is never gathered. G12 is what peers cannot say: there is no message that installs a snapshot. */
};

/* What a member tells of its disk in its results (the core only compares it with a threshold, which is 0). */
#define RAFT_DRIVER_CAPACITY 0xffffu
#define RAFT_DRIVER_CAPACITY_SLOW 1u /* it should not lead while another one can */
#define RAFT_DRIVER_CAPACITY_FULL 0u /* no room for more entries */

struct raft_driver;

struct raft_driver_io {
    void *context;
    /* Sends one message; count entries of `run_size` bytes stand at run (valid during the call; the same bytes are in the ledger). Losing it is allowed. */
    void (*send)(void *context, uint64_t to, struct peer_message *message, const uint8_t *run, size_t run_size);
    /* A cut rewrites bytes that may still wait in a socket queue: drop connections with unsent entries. */
    void (*cut)(void *context);
    /* State, term or leader changed. */
    void (*state_changed)(void *context);
    /* Final: ledger or vote file failed, or the core refused to go on. */
    void (*failed)(void *context, const struct error *error);
    /* As leader: that member needs entries that are not retained here. */
    void (*behind)(void *context, uint64_t to);
    /* As leader: this entry is to be sent, and cannot be read. */
    void (*damaged)(void *context, raft_index index);
    /* Has it run where that may take long, and waits a short time for it. True: it has been run. False: raft_driver_vote_saved() is called when it has. */
    bool (*save_vote)(void *context, struct vote_save *save);
};

struct raft_driver_options {
    uint64_t id; /* Raft id: place in the sorted list of members + 1 */
    uint32_t election_timeout_ms;
    uint32_t heartbeat_ms;
    uint32_t max_inflight_entries;
};

struct raft_driver {
    struct env *env;
    struct ledger *ledger;
    struct vote_file *votes;
    struct raft_driver_io io;
    struct raft_driver_options options;

    struct raft raft;
    bool started;
    bool failed;
    raft_index commit;      /* monotonic maximum */
    raft_time timeout_ms;   /* when raft_driver_tick() is due */
    raft_time leader_tick_ms; /* last time the leader's timer ran */
    raft_time heard_ms;       /* when a leader of our term was heard last */
    struct vote_save vote_save; /* while votes->saving: of what the core has decided already (raft_driver_step.c) */
    struct raft_update waiting; /* ... and what is to be done then */
    raft_time vote_since_ms;
    raft_term sole_term;        /* as sole voter: saved for us to lead in, which we have not done yet; 0 = none */
    raft_index waiting_change;  /* a configuration that was to be fed back meanwhile, 0 = none */
    bool disk_hangs;        /* the owner says that a sync does not come back: nothing is begun that would wait for the vote file */
    raft_term unsaved_term; /* the newest one that we heard of meanwhile; whoever led in an older one leads no more */
    uint64_t unsaved_leader; /* who leads in it, 0 = not heard */
    raft_term refused_term;   /* in which our candidacy was refused last */
    raft_time give_way_ms;    /* until then a member before us in the list has our word, and is let go first */
    raft_time patient_ms;     /* until then another one that may win, with our vote or with a newer log, is not disturbed by a hurry */
    uint64_t patient_with;
    bool read_first;          /* our election timer ran out while we stood still: what came meanwhile is read before it counts */
    uint16_t capacity;      /* told to the others in results: RAFT_DRIVER_CAPACITY or a value below it */
    bool disk_high;         /* told too: as long as another one can lead, it should */

    /* Where the bytes of the step's new entries stand (one contiguous run). */
    const uint8_t *source;
    size_t source_size;
    raft_index source_first;
    uint32_t source_count;
    struct raft_entry *entries; /* reused for every step */
    uint32_t entry_capacity;

    uint64_t steps;
    uint64_t guard_hits[GUARDS];
    /* G14: a follower that lost what it had acknowledged answers with rejections that the core ignores for good. stale_since[id % 64]: first of an
     * unbroken row of them, 0 = none. */
    raft_time stale_since[64];
    uint64_t refused_runs; /* runs from peers that failed their checks */
    raft_index sent_from[64]; /* as leader: where the entries began, if any, that were sent to this member last. [id % 64], 0 = none in this term */

    /* Who follows (raft_driver_contact.c). [id % 64] */
    uint64_t heard_stamp;       /* as follower: of the newest message of our leader */
    uint64_t arriving_stamp;    /* of the message that is about to be stepped */
    raft_time contact_ms[64];   /* as leader: when the newest message was sent that this member took in our term, 0 = none */
    raft_time promised_ms[64];  /* a contact before this is no promise any more: the connection has broken since */
    raft_time handed_over_ms;   /* when a member was last told to take over, 0 = none in this term */
    uint64_t handed_over_to;
    struct peer_message hand_over; /* waits until hand_over_to has stored all that we have; type 0 = nothing waits */
    uint64_t hand_over_to;
    raft_time led_since_ms;
    raft_time look_due_ms;      /* as leader: when to look next whether a majority follows; else 0 */
    raft_time judge_from_ms;    /* not judged before this: our own loop stood still */
};

int raft_driver_init(struct raft_driver *driver, struct env *env, struct ledger *ledger, struct vote_file *votes,
                     const struct raft_driver_io *io, const struct raft_driver_options *options, struct error *error);
void raft_driver_close(struct raft_driver *driver);
/* Another Raft id, before the start. */
void raft_driver_rename(struct raft_driver *driver, uint64_t id);

/* RAFT_START. committed: Raft index known to be committed and held by the ledger (0: nothing is known, the ledger holds entry 1 only);
 * configuration: encoded, the newest committed one at or below it. Checks the shape rules. */
int raft_driver_start(struct raft_driver *driver, raft_index committed, raft_index configuration_index, struct slice configuration,
                      struct error *error);

/* A message from `from` (its authenticated id). run: message->body_size bytes behind it. May call io and change commit. */
void raft_driver_receive(struct raft_driver *driver, uint64_t from, const struct peer_message *message, const uint8_t *run);
/* A run of sealed entries of our current term, first index = last + 1; a configuration comes alone. 0; ERROR_NOT_LEADER; ERROR_BUSY: the configuration
 * before it is not committed yet; ERROR_NO_SPACE (nothing happened). */
int raft_driver_submit(struct raft_driver *driver, const uint8_t *run, size_t size, uint32_t count);
/* As leader, before more members vote: who alone had a vote never looked whether others answer, and would judge them by that long time. */
void raft_driver_restart_quorum_check(struct raft_driver *driver);
/* Makes sure that the ledger can take entries up to end_position, count of them: to be asked before a step that brings entries, since behind it
 * there is no way back. 0, ERROR_BUSY (a segment is being created), ERROR_NO_SPACE, ERROR_IO (final). */
int raft_driver_make_room(struct raft_driver *driver, uint64_t end_position, uint32_t count);
/* Entries up to index are as durable as the class wants (the caller heeds cuts made since they were handed to a sync: ledger_sync_done() does). */
void raft_driver_persisted(struct raft_driver *driver, raft_index index);
/* vote_save has been run, after save_vote() said that it had not. */
void raft_driver_vote_saved(struct raft_driver *driver);
/* Runs the timer if it is due. */
void raft_driver_tick(struct raft_driver *driver);
/* Feeds back a committed configuration entry. */
void raft_driver_apply_configuration(struct raft_driver *driver, raft_index index, struct slice configuration);
/* How long an election may take before another one disturbs it: votes are synced before they are answered. */
#define RAFT_DRIVER_VOTE_PATIENCE_MS 200u
/* The leader's process is gone for certain: let the election timer run out in delay_ms, or later where an election is under way that may succeed. */
void raft_driver_hurry(struct raft_driver *driver, uint32_t delay_ms);
/* We stand for election and somebody refused his vote: this election is likely to end without a winner. */
bool raft_driver_vote_refused(struct raft_driver *driver);
/* Nobody leads that we know of, and this request for our vote comes from a member whose log lacks what ours has: it cannot win, we may. */
bool raft_driver_is_ahead_of(struct raft_driver *driver, const struct peer_message *request);
/* Entries below the trail need not be served any more; keeps memory and the trail's 32-bit count bounded. */
void raft_driver_move_trail(struct raft_driver *driver, raft_index index, struct slice configuration, raft_index configuration_index);
/* An AppendEntries without entries to every follower, so that they learn the commit index now. */
void raft_driver_announce_commit(struct raft_driver *driver);
/* As leader: a follower that has answered with nothing but stale rejections for an election time-out, 0 = none. Only another leader repairs it. */
uint64_t raft_driver_stuck_follower(struct raft_driver *driver);
/* 0, ERROR_NOT_LEADER, ERROR_NOT_FOUND. */
int raft_driver_transfer(struct raft_driver *driver, uint64_t to);
/* As leader: has a majority taken a message of ours in this term yet? */
bool raft_driver_has_followers(struct raft_driver *driver);
/* As leader: is it certain that no other member leads by now? A majority took what we sent so short a time ago that none of it votes for another one yet. */
bool raft_driver_is_certain(struct raft_driver *driver);
/* The connection to this member has broken: its process may begin anew, and then it votes at once. */
void raft_driver_peer_lost(struct raft_driver *driver, uint64_t id);
bool raft_driver_is_voter(const struct raft_driver *driver, uint64_t id);
/* As leader: gives up, as if follower `from` had refused our entries for the sake of this later term. */
void raft_driver_step_down(struct raft_driver *driver, uint64_t from, uint64_t term);
/* As follower: stands for election at once, as if the leader had told us to. False: not now (no leader, or the log is not durable up to its end). */
bool raft_driver_take_over(struct raft_driver *driver);

static inline bool raft_driver_leads(struct raft_driver *driver)
{
    return driver->started && !driver->failed && raft_state(&driver->raft) == RAFT_LEADER && driver->unsaved_term <= raft_current_term(&driver->raft);
}
static inline raft_index raft_driver_last(const struct raft_driver *driver)
{
    return (raft_index)(driver->ledger->last_index + 1);
}
uint64_t raft_driver_leader(struct raft_driver *driver); /* Raft id, 0 = none known */

/* Shape and contents of an encoded configuration; also counts its voters and says whether id is one. */
bool raft_driver_configuration_valid(struct slice configuration, uint64_t id, unsigned *voters, bool *is_voter);

#endif
