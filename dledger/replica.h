/* One member of the group without its threads and sockets: gathers appends, drives Raft, applies what committed, answers who waits, keeps the
 * checkpoint. Everything that blocks or talks goes out through struct replica_io, so that the simulator runs this same code.
 *
 * One loop turn: replica_turn() applies what committed, answers, submits what was gathered, starts a sync. Indexes here are Raft's (1-based)
 * unless a name says otherwise.
 */
#ifndef LEDGERMQ_DLEDGER_REPLICA_H
#define LEDGERMQ_DLEDGER_REPLICA_H

#include "dledger/bulk_fetch.h"
#include "dledger/dledger_commit_log.h"
#include "dledger/heard_file.h"
#include "dledger/raft_driver.h"
#include "store/compare.h"

#define REPLICA_GATHER_MAX (8u << 20)      /* bytes gathered but not submitted; more is refused as busy */
#define REPLICA_IN_FLIGHT_MAX 60000u       /* entries submitted but not committed (bounds the core's commit scan) */
#define REPLICA_SUBMIT_MAX 4096u           /* entries of one submit */
#define REPLICA_APPLY_TURN_MAX 8192u       /* entries applied in one turn, so that a long replay leaves the loop responsive */
#define REPLICA_SNAPSHOT_BYTES (64u << 20) /* a metadata snapshot every so many bytes of log */
#define REPLICA_CHECKPOINT_MS 1000u
#define REPLICA_STORE_SYNC_MS 30000u       /* queues and index made durable this often */
#define REPLICA_IDLE_MS 2000u              /* ... and so long after the last entry was applied */
#define REPLICA_TRANSFER_LAG_MAX 1000u     /* a member must be less behind to be handed leadership */
#define REPLICA_PREFERRED_STEADY_MS 5000u  /* a preferred leader must have been so for this long */
#define REPLICA_PREFERRED_RETRY_MS 30000u  /* between two tries of handing over to one */
#define REPLICA_HAND_OVER_MS 3000u        /* between two tries of a full leader to find another one */
#define REPLICA_HUNG_SYNC_MS 1000u        /* the disk hangs when a sync has not come back after this */
#define REPLICA_VOTE_WAIT_MS 150u         /* the loop waits so long for term and vote; less than what others take for a dead leader */
#define REPLICA_SLOW_SYNC_MS 50u          /* a sync that takes less is not slow, whatever the others' take */
#define REPLICA_SLOW_TIMES 4u             /* ... and one that the others were done with in this part of its time is */
#define REPLICA_SLOW_SPENT_MS 3000u       /* a leader spends so much in a row of slow syncs before it hands over */
#define REPLICA_SLOW_RETRY_MS 10000u      /* between two tries of that */
#define REPLICA_SLOW_REST_MS 60000u       /* a disk is not called slow any more after so long without a slow sync */
#define REPLICA_APPLY_RETRY_MS 200u       /* between tries while queue files find no room */
#define REPLICA_REVIEW_RETRY_MS 250u      /* between tries of a first start on a full disk */
#define REPLICA_VERIFY_BYTES (64u << 20)   /* read without their checksums later on, so checked at every start */
#define REPLICA_REPAIR_RETRY_MS 100u       /* no answer: the next member is asked */
#define REPLICA_REPAIR_REFUSED_MS 2000u    /* nobody could help: all are asked again after this */
#define REPLICA_REPAIR_RATE (64u << 20)    /* bytes per second that a member fetches to mend its log */
#define REPLICA_ANNOUNCE_MS 3u             /* an idle leader tells its followers the commit index after this */
#define REPLICA_ROUND_AGE_US 3000u         /* a round older than this no longer holds back the next one */
#define REPLICA_ROUND_BYTES (256u << 10)   /* neither does a round when this much has been gathered */

enum replica_phase {
    REPLICA_WAITING, /* empty, waits until all members are connected and say empty */
    REPLICA_MUTE,    /* forgot something: fetches, does not vote or count */
    REPLICA_RUNNING,
    REPLICA_REMOVED, /* the group went on without it */
    REPLICA_FAILED,
    REPLICA_STOPPED,
};

/* A file to be written away from the loop: checkpoint, and maybe the metadata snapshot before it. */
struct replica_save {
    struct env *env;
    char checkpoint_path[512];
    const char *dir;
    struct checkpoint checkpoint;
    bool with_snapshot;
    struct buffer snapshot; /* whole file */
    int64_t snapshot_index; /* DLedger index */
    int64_t snapshot_before; /* ... of the one that stays */
    uint64_t snapshot_position;
    bool with_sync; /* queues and index are made durable first */
    struct message_store_sync_job sync;
    char trim_path[512]; /* a segment to be removed when the checkpoint is saved, "" = none */
    int64_t trim_first;  /* DLedger index of the first entry that stays */
    bool snapshots_bad;  /* it was not: a start needs it as long as this is so */
    int trim_result;     /* 0 or -errno */
    struct env_file *trim_file; /* that segment, so that the loop's own handle and mapping are not its last: NULL = not open */
    uint64_t sync_position;
    int result;
    struct error error;
};
void replica_save_run(struct replica_save *save); /* any thread */

/* The last handle of a segment that was removed: its blocks are freed by who closes it, which takes long where it is large. */
struct replica_release {
    struct replica_job job;
    struct env *env;
    struct env_file *file;
};

/* A piece of the log to be checked away from the loop. */
struct replica_scrub {
    /* ---- loop ---- */
    bool out;
    uint64_t position; /* where the piece begins; then where the next one does, if `placed` */
    bool placed;
    uint32_t hurry; /* so many pieces come one right behind the other: queues are damaged there */
    bool away;      /* a reader's doubt has sent the walk elsewhere; it comes back to `back` (DLedger index) */
    uint64_t back;
    uint32_t turn;  /* so many pieces come before the next doubt is heeded */
    uint64_t walked_to; /* all entries before this one were handed to the message store's walk, from one that began it on */
    /* ---- the job's ---- */
    bool comparing; /* second half: what is in the piece is compared with queues and index */
    struct message_store_compare compare;
    struct index_compare *index_compare; /* NULL: not for this piece */
    bool index_comparing;                /* it is in the second half */
    uint8_t *kept; /* bytes that the records to compare look into */
    struct env *env;
    struct mapped_file *file; /* pinned */
    uint64_t file_size;
    uint64_t offset;          /* in it: of the entry `index` */
    uint64_t index, last;     /* DLedger indexes: the next one, and the last one to look at */
    uint32_t chain;           /* of the entry before */
    bool chain_known;
    bool damaged;             /* `index` is not what it should be */
    bool at_filler;           /* `index` is in the next segment */
    size_t bytes;
    int result;               /* 0 or -errno */
};
void replica_scrub_run(struct replica_scrub *scrub); /* any thread */

/* Which entries somebody needs who has nothing of the log. */
struct replica_manifest {
    uint64_t first, last; /* DLedger indexes */
    uint64_t first_position, end_position;
    uint32_t first_crc; /* of the first entry's header */
};

/* As leader: what is handed to a member that lacks entries which are deleted here. */
struct replica_serve {
    struct replica *replica;
    struct replica_job job;
    uint64_t to; /* Raft id, 0 = nobody */
    uint64_t id; /* of the manifest */
    struct replica_manifest manifest;
    uint64_t next;        /* what was asked for last */
    bool whole;           /* its last entry was sent: another member need not wait */
    uint64_t used_us, made_us;
    struct buffer metadata; /* whole file */
    /* ---- the job's: a piece of a segment ---- */
    struct mapped_file *file; /* pinned */
    uint64_t position, offset; /* of the entry `from`, in the log and in the file */
    uint64_t from;
    uint8_t *bytes;
    size_t bytes_wanted, bytes_size;
    uint32_t count;
};

/* What is handed to `mqadmin backup`. As long as it is asked for, no segment is removed here that it has not read. */
struct replica_backup {
    uint64_t id;       /* 0 = none is made */
    uint64_t position; /* everything before it has been read */
    uint64_t end_position;
    uint64_t used_us;
    struct buffer metadata; /* whole file; goes when the log is read, which is behind it */
};

struct replica_io {
    void *context;
    void (*send)(void *context, uint64_t to, struct peer_message *message, const uint8_t *run, size_t run_size);
    void (*cut)(void *context);                                        /* drop connections with unsent entries */
    void (*sync)(void *context, struct ledger_sync *sync);             /* -> replica_synced() */
    void (*reserve)(void *context, struct ledger_reservation *job);    /* -> replica_reserved() */
    void (*save)(void *context, struct replica_save *save);            /* -> replica_saved() */
    void (*hello_changed)(void *context);                              /* what we say of ourselves changed: tell the peers */
    void (*scrub)(void *context, struct replica_scrub *scrub);         /* -> replica_scrubbed(); only when options ask for it */
    void (*job)(void *context, struct replica_job *job);               /* runs it elsewhere, then clears `out` and calls `done`; NULL: at once */
    bool (*save_vote)(void *context, struct vote_save *save);          /* as in raft_driver_io, which says what comes then; NULL: at once */
};

struct replica_peer {
    bool connected; /* and its hello has been seen on this connection */
    bool heard;     /* ... or on an earlier one of this run */
    bool full;    /* it said that it has no room for more entries */
    bool disk_high; /* ... or not much, for one that leads */
    raft_index stored; /* leader: so much it has on stable storage, as it said on this connection */
    bool slow;    /* it said that its disk is slow: it is not asked to lead while another one can */
    uint64_t seen_run;     /* the process that the next two were seen on, 0 = it did not say */
    uint64_t seen_term;    /* the highest that it told of while it ran, on any connection */
    raft_index seen_index; /* the newest committed entry that we knew on its disk when we led */
    struct peer_hello hello;
};

struct replica {
    struct env *env;
    struct dledger_options options;
    struct replica_io io;
    struct dledger_callbacks callbacks;
    struct message_store *store;
    char dir[400]; /* .../dledger-n0 */

    uint64_t id; /* Raft id */
    uint64_t run; /* random, of this start: hellos tell it */
    int member_count;                                   /* places in use, holes among them counted */
    struct dledger_member members[DLEDGER_MEMBERS_MAX]; /* Raft id = place + 1; raft_id 0: nobody there */
    uint64_t members_version;                           /* moves when somebody comes, goes or changes his address */
    struct dledger_member listed[DLEDGER_MEMBERS_MAX];  /* dLegerPeers, sorted by id */
    int listed_count;
    struct dledger_member self_listed;
    raft_index seen_committed, seen_uncommitted; /* configurations that members were made from */
    raft_index found_index;                      /* newest configuration that the start found in the log, committed or not */
    raft_index group_index;                      /* newest configuration that a running member told us of, while we have no log of our own or are mute */
    uint64_t group_generation;                   /* ... and the generation of that member */
    bool not_added;                              /* ... and we do not stand in it */
    bool said_at_odds;                           /* that lists of empty members differ, once */
    bool half_filled;                            /* our log ends before the configuration that we stand in */
    bool ends_early;                             /* ... or before one of which our checkpoint knows that it is committed */
    struct buffer told;                          /* while we run: a newer configuration than ours, as a running member told it */
    raft_index told_index;                       /* 0 = none */
    struct replica_peer peers[DLEDGER_MEMBERS_MAX];
    char broker_address[128];

    enum replica_phase phase;
    enum peer_mute mute_reason;
    uint64_t heard_term; /* highest term that the others have told of in this run, or, while it forgot, in an earlier one */
    struct heard_group heard;   /* on the disk: what it has heard since it forgot */
    bool said_later;            /* that somebody who knows more is missing, once */
    uint64_t fetch_sent_us;
    uint64_t review_due_us; /* a first start found no room: tried again then, 0 = nothing */
    bool same_boot;
    bool stopping;
    struct error failure;

    int64_t checkpoint_committed; /* DLedger index that the loaded checkpoint vouched for, -1 = none */
    struct checkpoint checkpoint; /* newest contents, saved from time to time */
    bool checkpoint_dirty;
    uint64_t checkpoint_due_us;
    uint64_t store_sync_due_us;
    uint64_t idle_sync_us; /* what is not durable yet becomes so then, unless more comes before; 0: everything is */
    bool saving;
    struct replica_save save;
    int64_t snapshot_index; /* DLedger index of the metadata snapshot on disk, -1 = none */
    uint64_t snapshot_position;
    int64_t older_snapshot_index; /* of the other file, -1 = none or not known */
    int64_t durable_committed;    /* DLedger index that a checkpoint of this run vouches for, -1 = none */

    raft_index trim_index;  /* the record that says where the log begins, or one behind it */
    bool trim_queues;       /* the queues' minimums are to follow */
    uint64_t trim_asked;    /* leader: the position in the newest record that it appended */
    uint64_t trimmed_segments;
    struct replica_release trim_release;

    struct bulk_fetch fetch;
    struct replica_serve serve;
    uint64_t serve_ids;
    struct replica_backup backup;
    bool begins_anew;    /* its next start is of one that forgot all: wanted as soon as the disk says so */
    bool restart_wanted; /* what lies on the disk, or is to be forgotten, counts with the next start: the owner stops this one and begins it */

    uint64_t repair_due_us; /* while the ledger has holes */
    uint64_t repair_paced_us; /* not before, for the sake of the rate */
    int repair_peer;        /* place of the member that is asked next */
    uint64_t repaired_entries;
    uint64_t damage_found;  /* times, while it ran */
    struct replica_scrub scrub;
    uint64_t scrub_due_us, scrub_pass_us; /* the next piece; when the pass began */
    uint64_t scrub_passes;
    raft_index found_last;   /* end of the log at the start: what is older may have been damaged since it was checked */
    int64_t known_committed; /* what the start knew to be committed, DLedger index */
    bool vote_was_due;       /* this directory has taken part in elections */
    bool only_vote_lost;     /* mute for want of a vote file, with all that was acknowledged in the log */
    bool started_unclean;    /* what this member acknowledged may be gone from here */

    struct ledger ledger;
    struct vote_file votes;
    struct raft_driver driver;
    bool driver_ready;

    /* gathered, not yet submitted */
    struct buffer gather;
    uint32_t gather_count;
    uint64_t gather_started_us;
    uint64_t gather_end;   /* position behind the last gathered entry */
    uint32_t gather_chain;
    size_t reserved_size;  /* bytes of the reserved entry (header included), 0 = none */
    uint64_t reserved_position;
    uint32_t *gather_sizes; /* entry sizes, for cutting the gathered run into submits */
    uint32_t gather_sizes_capacity;

    struct append_entry_request *pending_head, *pending_tail;

    raft_index round_last;  /* last index of the newest round in flight */
    uint64_t round_started_us;

    raft_index applied;
    uint64_t applied_end;   /* position behind the last applied entry */
    bool apply_stalled;     /* a queue file found no room: nothing is applied, sends are refused until there is some */
    uint64_t apply_retry_us;
    bool queues_unfit;      /* a committed message did not fit its queue, and this run is over: the next start makes all queues anew */
    bool more_to_apply;
    raft_index accept_from; /* leader: accepts appends once this is applied */
    bool accepting;
    uint64_t accept_count;  /* times that it began to accept */
    uint64_t known_leader, known_term;
    bool known_accepting;
    uint64_t known_accept_count;
    uint64_t leadership_term; /* term in which append offsets were reset */

    struct ledger_sync sync;
    bool syncing;
    uint64_t sync_started_us; /* while syncing */
    uint64_t others_had_us;   /* while syncing as leader: when the others alone had made it commit, 0 = not yet */
    uint64_t slow_spent_us;   /* as leader: time spent in an unbroken row of slow syncs */
    uint64_t slow_due_us;     /* a slow leader hands over, not before this */
    uint64_t slow_until_us;   /* this disk is called slow until then, 0 = it is not */
    uint64_t lazy_sync_due_us; /* class A */
    struct ledger_reservation reservation;
    bool reserve_failed;
    int reserve_errno;
    uint64_t reserve_retry_us;
    uint64_t hand_over_due_us; /* a full leader tries to hand over, not before this */

    uint64_t preferred_since_us[DLEDGER_MEMBERS_MAX]; /* since when a preferred leader could take over, 0 = it cannot */
    uint64_t preferred_due_us;                        /* the next try, not before this */

    uint64_t announce_due_us; /* 0 = nothing to announce */
    raft_index announced;
    uint64_t hurry_until_us; /* 0 = no hurry */
    uint64_t hurry_next_us;
    uint64_t gone_leader, gone_term; /* whose process is gone, and the term in which it led: the core believes in it for some time */
    int64_t up_since_ms;
    uint64_t fdatasync_count;
    raft_index configuration_index; /* newest committed configuration */
    struct buffer configuration;
    char why_not[256];
};

/* Opens and recovers everything in options->dir. broker_address: told to the peers. */
int replica_open(struct replica *replica, struct env *env, const struct dledger_options *options, const struct dledger_callbacks *callbacks,
                 const struct replica_io *io, const char *broker_address, struct log_view *view, struct error *error);
/* Restores metadata, recovers the store, applies what is known to be committed; a group of one starts to lead. */
int replica_start(struct replica *replica, struct message_store *store, struct error *error);
void replica_close(struct replica *replica);

/* End of a loop turn. Returns true when there is more to apply: call again soon, without waiting for an event. */
bool replica_turn(struct replica *replica);
/* Runs what is due. */
void replica_tick(struct replica *replica);
/* When the next tick is due, on env's monotonic clock; UINT64_MAX = never. */
uint64_t replica_deadline_us(const struct replica *replica);

void replica_receive(struct replica *replica, uint64_t from, const struct peer_message *message, const uint8_t *body);
void replica_peer_connected(struct replica *replica, uint64_t id, const struct peer_hello *hello);
void replica_peer_lost(struct replica *replica, uint64_t id);
/* Its process is gone for certain: the reconnect was refused. */
void replica_peer_gone(struct replica *replica, uint64_t id);
void replica_hello(struct replica *replica, uint64_t to, struct peer_hello *hello);
/* What a hello says of who belongs to the group: an empty member learns it there, and one that was removed learns that. */
void replica_hear_configuration(struct replica *replica, const struct peer_hello *hello);
/* NULL when acceptable, else why not (static text or replica-owned). Sets hello->from to the number under which we know the sender. */
const char *replica_check_hello(struct replica *replica, struct peer_hello *hello);
/* Empty and not yet running: which number it has is for the others to say. */
bool replica_is_stranger(const struct replica *replica);
/* Accepts appends, but another member may lead by now. */
bool replica_in_doubt(struct replica *replica);
/* Members, without holes. */
int replica_group_size(const struct replica *replica);

void replica_synced(struct replica *replica);   /* replica->sync has been run */
void replica_reserved(struct replica *replica); /* replica->reservation has been run */
void replica_saved(struct replica *replica);    /* replica->save has been run */
void replica_scrubbed(struct replica *replica); /* replica->scrub has been run */
/* A reader found that the entry at this position is not what was written: looked at, and repaired where there are other members. */
void replica_note_damage(struct replica *replica, uint64_t position);

/* Before a clean stop, when nothing is in flight any more: true when all that is committed is applied, durable and the checkpoint says clean. */
bool replica_stop_step(struct replica *replica);

uint8_t *replica_reserve(struct replica *replica, size_t body_size, int64_t *physical_offset, int *code);
void replica_append(struct replica *replica, enum ledger_entry_kind kind, struct append_entry_request *request);
/* Pins the segment that holds these applied bytes and gives them; NULL: they are not there, or damaged. */
const uint8_t *replica_pin(struct replica *replica, int64_t physical_offset, size_t size, struct mapped_file **pinned);
/* Begins to hand leadership to the member named, NULL: the one with most of the log. ERROR_NOT_LEADER, ERROR_NOT_FOUND, ERROR_EXISTS (it leads),
 * ERROR_BUSY (not now). Whether it worked is seen in who leads: when an election time-out passes without, this member goes on leading. */
int replica_transfer(struct replica *replica, const char *to_id, struct error *error);
/* One change of the group, as an entry of the log; request is done when it is committed. ERROR_NOT_LEADER, ERROR_BUSY (not now: error says why),
 * ERROR_EXISTS, ERROR_NOT_FOUND, ERROR_INVALID. */
int replica_change_member(struct replica *replica, enum dledger_member_action action, const char *id, const char *address,
                          struct append_entry_request *request, struct error *error);
/* How far a leader may trim: the begin of the segment of the newest entry that all members have. *held_by: the member that lacks the most, -1 = none.
 * Not below what has been trimmed. */
uint64_t replica_trim_limit(const struct replica *replica, int *held_by);
/* Leader: everything before position, the begin of a segment, is to go on all nodes. 0, ERROR_INVALID (not behind what was asked for, or beyond the
 * limit), ERROR_NOT_LEADER, or why nothing can be appended. */
int replica_trim(struct replica *replica, uint64_t position);
/* Advances the queues' minimums to where the log begins, unless a sync of the queues is out (then after it). */
void replica_trim_queues(struct replica *replica);
/* Physical offset of the first committed message at or behind position, the begin of a segment; -1 = none, or not among the first entries there. */
int64_t replica_first_message(const struct replica *replica, uint64_t position);
void replica_state(const struct replica *replica, struct dledger_state *state);
const char *replica_why_not(const struct replica *replica);
/* Place of a peer in members, -1 = none. */
int replica_leader_member(const struct replica *replica);

#endif
