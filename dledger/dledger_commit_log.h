/* The one public door of the replicated log: append entries, learn when they are committed, see who leads.
 *
 * Follows org.apache.rocketmq.store.dledger.DLedgerCommitLog. The unit of replication is DLedger's append_entry_request. This module is the only
 * place where ledger positions become physical offsets (position + 48). One Raft group; loop thread only.
 */
#ifndef LEDGERMQ_DLEDGER_DLEDGER_COMMIT_LOG_H
#define LEDGERMQ_DLEDGER_DLEDGER_COMMIT_LOG_H

#include "proto/ledger_entry.h"
#include "store/message_store.h"

typedef struct uv_loop_s uv_loop_t;
struct sockaddr_storage;

#define DLEDGER_MEMBERS_MAX 9

enum dledger_role { DLEDGER_ROLE_UNKNOWN, DLEDGER_FOLLOWER, DLEDGER_CANDIDATE, DLEDGER_LEADER };
const char *dledger_role_name(enum dledger_role role); /* "LEADER", ... */

enum durability_class { DURABILITY_A, DURABILITY_B };

struct dledger_options {
    const char *cluster;
    const char *group;   /* dLegerGroup */
    const char *self_id; /* dLegerSelfId, "n0" */
    const char *peers;   /* dLegerPeers, "n0-127.0.0.1:20911;n1-..."; NULL = group of one without a peer port */
    const char *dir;     /* storePathRootDir: dledger-<selfId>/ is made in it */
    uint64_t segment_size; /* mappedFileSizeCommitLog */
    uint64_t index_file_size; /* DLedger index files, multiple of 32; default 167772160 */
    enum durability_class durability;
    uint32_t election_timeout_ms;
    uint32_t heartbeat_ms;
    uint32_t max_wait_ms; /* for the quorum, 2500 */
    uint64_t scrub_bytes_per_second; /* the log is read through and checked at this rate; 0 = never */
    uint64_t scrub_interval_s;       /* from the beginning of one pass to that of the next, at the least */
    uint64_t follower_lag_bytes_max; /* of the log that is kept for a member that lags, at the most; 0 = all that it lacks */
    uint64_t fetch_bytes_per_second; /* by a member that lacks what is deleted in the group; 0 = as fast as it goes */
    const char *preferred_leaders; /* ids, "n0;n1", the most wanted first; NULL or "" = none */
    bool force_start; /* start although a member that may know more is missing */
};

/* Kept by the caller from append until done. */
struct append_entry_request {
    /* Called once, from the loop, never inside append. code: 0 committed and applied (a pull now finds it); ERROR_LEADERSHIP_LOST,
     * ERROR_QUORUM_TIMEOUT, ERROR_DISK_STALLED (outcome unknown), ERROR_IO, ERROR_STOPPED; ERROR_NO_SPACE:
     * the entry is certainly not in the log. The memory is the caller's again inside it. */
    void (*done)(struct append_entry_request *request);
    uint64_t index; /* DLedger index */
    uint64_t term;
    int64_t position; /* of the entry; its body is at + 48 */
    int code;

    struct append_entry_request *next; /* private */
    uint64_t deadline_us;              /* private */
};

struct dledger_callbacks {
    void *context;
    /* A committed metadata record, in log order, on every node. replay: the tables already hold it (they came from a newer snapshot); only what
     * belongs to the message store (queues of deleted topics) is to be done again. */
    void (*apply_metadata)(void *context, uint64_t index, struct slice record, bool replay);
    /* A committed message, after its unit is in its queue. trailer: Consumed message behind the record, size 0 when absent. replay as above. */
    void (*apply_message)(void *context, uint64_t index, const struct message_dispatch *dispatch, struct slice trailer, bool replay);
    /* End of a turn in which something was applied: wake parked pulls. */
    void (*applied)(void *context);
    /* Metadata snapshot (protobuf MetadataSnapshot): append it to out / take it. restore: ERROR_MALFORMED. */
    int (*snapshot)(void *context, uint64_t index, struct buffer *out);
    int (*restore)(void *context, struct slice snapshot);
    /* Role, leader or term changed. For a leader: called when it accepts sends (its barrier is applied). */
    void (*role_changed)(void *context);
    /* A follower forwards a client's frame to us, the leader. Answer with dledger_commit_log_forward_answer, now or later, exactly once. frame is
     * mutable and valid during the call. */
    void (*forwarded)(void *context, uint64_t forward_id, struct slice client_address, uint8_t *frame, size_t frame_size);
    /* The answer to our dledger_commit_log_forward. code 0: frame is the leader's whole answer. Else ERROR_CONNECTION (outcome unknown) or
     * ERROR_TIMEOUT. */
    void (*forward_answered)(void *context, uint64_t request_id, int code, struct slice frame);
    /* The log of this node is broken for good (failed write or sync). The process should say so and go on only as a mute member. */
    void (*failed)(void *context, const struct error *error);
    /* This node has to begin anew: the process should stop cleanly and start again. */
    void (*restart)(void *context);
};

/* A member is added without a vote and gets one when it has caught up; it loses it before it is removed. One at a time. */
enum dledger_member_action { DLEDGER_MEMBER_ADD, DLEDGER_MEMBER_PROMOTE, DLEDGER_MEMBER_DEMOTE, DLEDGER_MEMBER_REMOVE };

struct dledger_member {
    uint64_t raft_id;
    char id[16];       /* "n0" */
    char address[128]; /* host:port of the peer port */
    bool self;
    bool voter; /* else it receives the log only */
    bool connected;
    uint64_t match_index; /* leader only: DLedger index known to be on that member, UINT64_MAX = none/unknown */
    int fetched_percent;  /* leader: of what it lacks, which is deleted here, and fetches from us; -1 = it does not */
    uint32_t peer_version;    /* of the protocol that we speak with it, or that this program speaks at most (self); 0 = not connected since the start */
    char broker_address[128]; /* host:port of its listener, from the hello; empty while unknown */
};

struct dledger_state {
    enum dledger_role role;
    bool accepting;       /* leader whose barrier is applied and whose disk takes appends */
    uint64_t accept_count; /* grows whenever this node begins to accept, also again in one term: what was appended before and never reached the log (a
                            * leadership transfer that came to nothing) is lost then, and all that did is applied */
    uint64_t term;
    int leader; /* index into members, -1 = none known */
    int64_t last_index;   /* DLedger indexes, -1 = none */
    int64_t commit_index;
    int64_t applied_index;
    int64_t next_index;   /* of the entry that is appended here next: behind those that are gathered, and may yet be refused */
    int64_t committed_position;
    int64_t begin_position;  /* of what is on the disk */
    int64_t trim_position;   /* where the log begins for everybody, at or behind it */
    uint64_t trimmed_segments; /* removed in this run */
    int64_t end_position;    /* of what this node has written */
    int64_t synced_position; /* and of what is on stable storage */
    uint64_t sync_age_ms;    /* so long the sync of the log, or of a vote, that is under way takes already; 0 = none is */
    enum durability_class durability;
    int64_t up_since_ms;
    uint64_t fdatasync_count;
    uint64_t turn_us_max; /* longest turn of the loop (loop_turn.h) */
    bool failed;
    bool removed; /* from the group */
    uint64_t forced_recoveries; /* how often the group was made anew by force */
    bool slow_disk; /* its syncs took much longer than the others' while it led */
    bool disk_full;
    uint64_t scrub_passes;   /* over the whole log, in this run */
    int64_t scrub_position;  /* of the pass that is under way */
    uint64_t mended_units;   /* of queues, in this run */
    uint64_t index_damaged, index_rebuilt; /* files of the key index, in this run */
    uint32_t damaged_ranges; /* of the log, not repaired yet */
    uint64_t repaired_entries;
    int64_t fetched_bytes, fetched_of; /* of a log that is fetched from the leader's first entry on; 0 and 0: none is */
    int member_count;
    struct dledger_member members[DLEDGER_MEMBERS_MAX];
};

struct dledger_commit_log; /* dledger_commit_log.c */

/* Recovers the ledger, restores metadata, dispatches what lags. broker_address: told to the peers. log_view is filled for message_store_open,
 * which the caller must have called between _new and _start:
 *     log = dledger_commit_log_new(..., &view, error); message_store_open(store, ..., &view); dledger_commit_log_start(log, store, error); */
struct dledger_commit_log *dledger_commit_log_new(uv_loop_t *loop, struct env *env, const struct dledger_options *options,
                                                  const struct dledger_callbacks *callbacks, const char *broker_address,
                                                  struct log_view *view, struct error *error);
int dledger_commit_log_start(struct dledger_commit_log *log, struct message_store *store, struct error *error);
/* Clean stop: hands leadership over, applies all that is committed, syncs, writes the checkpoint; then `closed` is called from the loop. */
void dledger_commit_log_stop(struct dledger_commit_log *log, void (*closed)(void *argument), void *argument);
void dledger_commit_log_free(struct dledger_commit_log *log);

/* Room for the body of the next entry; exactly body_size bytes must be written before dledger_commit_log_append(). *physical_offset is where
 * the body will lie. NULL with *code: ERROR_NOT_LEADER, ERROR_NO_SPACE, ERROR_BUSY (too much in flight), ERROR_TOO_LARGE, ERROR_IO. A reservation may be
 * dropped by simply not appending. */
uint8_t *dledger_commit_log_reserve(struct dledger_commit_log *log, size_t body_size, int64_t *physical_offset, int *code);
/* Takes the reserved body as the next entry. request may be NULL (nobody waits). Submitted at the end of this loop turn at the earliest. */
void dledger_commit_log_append(struct dledger_commit_log *log, enum ledger_entry_kind kind, struct append_entry_request *request);
/* reserve + copy + append. 0 or reserve's code. */
int dledger_commit_log_append_copy(struct dledger_commit_log *log, enum ledger_entry_kind kind, struct slice body,
                                   struct append_entry_request *request);

/* What was applied cannot be understood: this node takes no part any more, as after a failed write. */
void dledger_commit_log_give_up(struct dledger_commit_log *log, const struct error *error);
/* A copy of what is here of the log, for the first start of a fresh group (backup_restore.h): bytes [first_position, end_position) of the segments, a metadata
 * snapshot of the last entry, and a checkpoint. */
struct dledger_backup {
    uint64_t id;
    uint64_t segment_size;
    uint64_t first_position, end_position;
    int64_t first_index, last_index; /* DLedger indexes */
    uint32_t first_header_crc;
    uint64_t term; /* the newest one */
    uint64_t metadata_size;
    uint32_t metadata_crc;
    struct buffer members, checkpoint; /* opened and closed by the caller: ids with ; between them, and a whole file */
};
/* Of what is applied here; call it when an own entry has just been applied, else another leader may have acknowledged more. One at a time: ERROR_BUSY while
 * another one is read. ERROR_NO_MEMORY, ERROR_DAMAGED: the log's beginning, it is being mended. */
int dledger_commit_log_backup_begin(struct dledger_commit_log *log, struct dledger_backup *backup, struct error *error);
/* A piece of the snapshot's file, lent until this turn ends. It goes when the log is read. ERROR_NOT_FOUND: it has gone, or offset is behind it. */
int dledger_commit_log_backup_metadata(struct dledger_commit_log *log, uint64_t id, uint64_t offset, size_t size, struct slice *piece);
/* The log was read up to there: what was not is not removed here for as long as the reads go on. */
void dledger_commit_log_backup_has_read(struct dledger_commit_log *log, uint64_t id, uint64_t position);
/* Nothing more of it will be read. */
void dledger_commit_log_backup_give_up(struct dledger_commit_log *log, uint64_t id);
/* Bytes of entries that were taken and are not submitted yet: in memory alone. */
size_t dledger_commit_log_gathered(const struct dledger_commit_log *log);
/* Leads and accepts appends. Cheap. */
bool dledger_commit_log_accepting(const struct dledger_commit_log *log);
/* Accepts appends, but has heard so little of the others, or stood still for so long, that another member may lead by now: what is read from the tables may be
 * old. Passes by itself within an election time-out: it is followed still, or leads no longer. */
bool dledger_commit_log_in_doubt(struct dledger_commit_log *log);
/* Why not, as a remark for clients: "no leader", "not the leader, leader is n1", "disk full: ...", ... */
const char *dledger_commit_log_why_not(const struct dledger_commit_log *log);
void dledger_commit_log_state(const struct dledger_commit_log *log, struct dledger_state *state);

/* Sends a client's frame to the leader; the answer comes through forward_answered with request_id. 0, ERROR_NO_LEADER, ERROR_NOT_LEADER (we
 * lead: do it yourself), ERROR_BUSY. */
int dledger_commit_log_forward(struct dledger_commit_log *log, uint64_t request_id, struct slice client_address, struct slice frame,
                               uint32_t timeout_ms);
void dledger_commit_log_forward_answer(struct dledger_commit_log *log, uint64_t forward_id, struct slice frame);

/* Pins the segment that holds [physical_offset, +size) and gives its bytes; NULL when not committed or not retained. */
const uint8_t *dledger_commit_log_pin(struct dledger_commit_log *log, int64_t physical_offset, size_t size, struct mapped_file **pinned);
/* Do these bytes touch entries that are known to be damaged here? */
bool dledger_commit_log_damaged(const struct dledger_commit_log *log, int64_t physical_offset, size_t size);
/* A read found that the entry there is not what was written: looked at, and repaired. */
void dledger_commit_log_note_damage(struct dledger_commit_log *log, int64_t physical_offset);
void dledger_commit_log_unpin(struct dledger_commit_log *log, struct mapped_file *pinned);
/* Where the body of an entry lies; -1 when it is not in the log or no longer retained. */
int64_t dledger_commit_log_physical_offset(const struct dledger_commit_log *log, uint64_t index);

/* This node's disk is so full that another one should lead while there is one. */
void dledger_commit_log_note_disk(struct dledger_commit_log *log, bool high);

/* How far the log may be trimmed, and to what position (the begin of a segment): see replica.h. */
uint64_t dledger_commit_log_trim_limit(const struct dledger_commit_log *log, int *held_by);
int dledger_commit_log_trim(struct dledger_commit_log *log, uint64_t position);
/* Files of queues that should be gone and could not be removed are tried again. */
void dledger_commit_log_trim_queues(struct dledger_commit_log *log);
/* Physical offset of the first committed message at or behind position, the begin of a segment; -1 = none, or not among the first entries there. */
int64_t dledger_commit_log_first_message(const struct dledger_commit_log *log, uint64_t position);

/* Begins to hand leadership to the member named (NULL: the one with most of the log). 0, ERROR_NOT_LEADER, ERROR_NOT_FOUND, ERROR_EXISTS (it leads
 * already), ERROR_BUSY (not now; error says why). The outcome is seen in who leads. */
int dledger_commit_log_transfer(struct dledger_commit_log *log, const char *to_id, struct error *error);
/* One change of the group. id: of the member; address: of its peer port, for ADD. The request is done when the change is committed. 0,
 * ERROR_NOT_LEADER, ERROR_BUSY (not now; error says why), ERROR_EXISTS, ERROR_NOT_FOUND, ERROR_INVALID. */
int dledger_commit_log_change_member(struct dledger_commit_log *log, enum dledger_member_action action, const char *id, const char *address,
                                     struct append_entry_request *request, struct error *error);
/* This machine, or one of a member: who may change the group or append to it past the broker. */
bool dledger_commit_log_is_member_host(const struct dledger_commit_log *log, const struct sockaddr_storage *address);

#endif
