/* What the parts of the replica share: replica.c (turn, tick, stop, state), replica_open.c and replica_start.c (from disk to running),
 * replica_append.c (reserve to submit), replica_apply.c (commit to answer), replica_jobs.c (syncs, room, checkpoints), replica_members.c (hellos,
 * elections in a hurry), replica_leadership.c (transfers, preferred leaders, leaders that are no use), replica_slow_disk.c (a leader that holds the
 * others up), replica_fetch.c (a mute member catches up), replica_serve.c (a member that lacks what is deleted is served; it fetches with bulk_fetch.c)
 * and replica_repair.c (damaged entries are fetched).
 */
#ifndef LEDGERMQ_DLEDGER_REPLICA_INTERNAL_H
#define LEDGERMQ_DLEDGER_REPLICA_INTERNAL_H

#include "dledger/replica.h"

#define REPLICA_FETCH_RETRY_US 50000u
/* Of a full disk: without a record that says so nothing can be deleted, and without the entries that elections begin with there is nobody to say so. More is kept
 * where many queues may have to be listed, twice, since the first try can end with its leader. */
#define REPLICA_KEPT_FOR_TRIM (64u << 10)
#define REPLICA_TRIM_LISTED 14u           /* bytes that a trim record takes for a queue, besides its topic */
#define REPLICA_TRIM_PART (64u << 10)     /* of the list in one record */
#define REPLICA_TRIM_LIST_MAX (64u << 20) /* of it in all: it is gathered at once */
#define REPLICA_KEPT_FOR_TRIM_ENTRIES (REPLICA_KEPT_FOR_TRIM / 64)
#define REPLICA_SERVE_BUSY_US 5000000u  /* who asked for nothing so long gives way to another member */
#define REPLICA_SERVE_IDLE_US 30000000u /* ... and so long: its snapshot is let go */
#define REPLICA_SERVE_FRESH_US 10000000u /* who begins anew gets the same snapshot for so long */

static inline uint64_t replica_now_us(const struct replica *replica)
{
    return env_monotonic_us(replica->env);
}

/* The newest term that others may hear of: it is on the disk, which the core is ahead of while that hangs. */
static inline raft_term replica_term(const struct replica *replica)
{
    return replica->votes.term;
}

/* Path of a file of the group's directory. */
void replica_path(const struct replica *replica, const char *name, char *out, size_t size);
/* Final: the first error stays. */
void replica_fail(struct replica *replica, const struct error *error);

/* How often the group was made anew by force: each time begins a generation of terms that no election reaches (new_group.h). */
#define REPLICA_GENERATION_SHIFT 32
static inline uint64_t replica_generation(const struct replica *replica)
{
    return replica->ledger.last_term >> REPLICA_GENERATION_SHIFT;
}

/* ---- replica_start.c ---- */
/* Takes the newest configuration at or below committed into replica->configuration. */
int replica_find_configuration(struct replica *replica, raft_index committed, struct error *error);
/* Runs from here on: the log is whole up to `committed` (0: only the first entry is known). */
int replica_start_driver(struct replica *replica, raft_index committed, struct error *error);
/* The first start of the whole group. ERROR_NO_SPACE: nothing was written. */
int replica_bootstrap(struct replica *replica, struct error *error);

/* The first entry that ends behind position (Raft's index). */
raft_index replica_index_at(const struct replica *replica, uint64_t position);
/* Begins to run, or to wait, or to be mute, once the log has no hole that matters. */
int replica_begin(struct replica *replica, struct error *error);

/* ---- replica_append.c ---- */
/* Answers the request that waits longest. */
void replica_finish_first(struct replica *replica, int code);
void replica_fail_pending(struct replica *replica, int code);
void replica_drop_gathered(struct replica *replica);
bool replica_may_submit(const struct replica *replica);
/* A configuration, alone in its submit. What was gathered before must have left. */
int replica_submit_configuration(struct replica *replica, struct slice configuration, struct append_entry_request *request);
/* True when a round has left. */
bool replica_submit(struct replica *replica);

/* ---- replica_apply.c ---- */
/* Applies up to target, at most count_max entries, then answers those who wait for them. True when something was applied. */
bool replica_apply(struct replica *replica, raft_index target, uint32_t count_max);

/* ---- replica_jobs.c ---- */
int replica_sync_now(struct replica *replica, struct error *error);
void replica_start_sync(struct replica *replica);
void replica_start_reserve(struct replica *replica);
/* Remembers how the last reservation ended, and says so once. */
void replica_note_room(struct replica *replica);
/* No room for entries, or none for the queues that they would go to. */
bool replica_is_full(const struct replica *replica);
void replica_fill_checkpoint(struct replica *replica, struct checkpoint *checkpoint);
void replica_start_save(struct replica *replica, bool with_snapshot);

/* ---- replica_members.c ---- */
/* A member stands at this place in the table, and it is not this one. */
static inline bool replica_is_other(const struct replica *replica, int place)
{
    return replica->members[place].raft_id != 0 && (uint64_t)place + 1 != replica->id;
}
/* NULL: not another member. */
static inline struct replica_peer *replica_peer_of(struct replica *replica, uint64_t id)
{
    return id >= 1 && id <= (uint64_t)replica->member_count && replica_is_other(replica, (int)(id - 1)) ? &replica->peers[id - 1] : NULL;
}
/* Looks whether a member that waits or is mute may go on. */
void replica_review_members(struct replica *replica);
void replica_hurry(struct replica *replica);

/* Too few of those who vote run to elect a leader, all others are there and forgot something, as we did: nobody can lead unless some of us vote again. Our
 * own id when we do so with what we have, that of the running member from which to take the log when it has more; 0 = it is not so, or somebody else comes
 * first. */
uint64_t replica_leaderless(const struct replica *replica);
/* A term that nobody has heard of, above `least`: in that one no vote of ours was given, whatever we forgot. */
uint64_t replica_unheard_term(const struct replica *replica, uint64_t least);
/* This member forgot, and has heard of a later term or a later configuration of its group than are known to anybody who is here: somebody is missing, whether
 * those who are here know it or not. */
bool replica_misses_somebody(const struct replica *replica);
/* While it forgot: what it has heard is on the disk on return. False: not now. */
bool replica_remember_heard(struct replica *replica);
/* It votes again: log and vote file say more. */
void replica_forget_heard(struct replica *replica);
/* As leader: what is known to be on the others' disks. */
void replica_note_seen(struct replica *replica);
void replica_note_seen_of(struct replica *replica, int place); /* of one member: its answer may come after the commit */
/* Another member says that this directory is an old copy. */
void replica_told_forgot(struct replica *replica, uint64_t from, const struct peer_message *in);
/* What lies here is not what this member, or whoever has its name now, had: it takes no part any more, and with its next start it is one that forgot all. */
bool replica_may_begin_anew(const struct replica *replica);
void replica_begin_anew(struct replica *replica);

/* ---- replica_leadership.c ---- */
/* Place of the member to hand leadership to: the one with most of the log, of those whose disk is slow only when there is no other. -1: none can lead now.
 * *lag: how far it is behind our log's end. */
int replica_successor(struct replica *replica, uint64_t *lag);
/* As leader: hands over to a preferred leader that has kept up for a while. */
void replica_prefer_leader(struct replica *replica, uint64_t now);
void replica_hand_over_when_useful(struct replica *replica, uint64_t now);

/* ---- replica_append.c ---- */
/* Bytes of what is left on a full disk that are for the records which say what may be deleted. */
uint64_t replica_kept_for_trim(const struct replica *replica);
/* Is there room for so many more entries of so many bytes in all, none larger than `largest`? On a full disk only; else it is made when they leave. */
bool replica_has_room(const struct replica *replica, uint64_t bytes, uint32_t entries, uint32_t largest);
/* replica_reserve() with the room that others leave. */
uint8_t *replica_reserve_for_trim(struct replica *replica, size_t body_size, int64_t *physical_offset, int *code);

/* ---- replica_trim.c ---- */
/* at: where the record stands. 0, ERROR_NO_SPACE: nothing was applied, ERROR_MALFORMED and others: final. */
int replica_apply_trim(struct replica *replica, raft_index index, uint64_t at, struct slice body);
/* The part of it that concerns queues alone; for one who makes them anew elsewhere. */
int replica_trim_reached(struct message_store *store, struct slice body, uint64_t *position);
/* The configuration that a trim record carries. */
bool replica_trim_configuration(struct slice body, raft_index *index, struct slice *configuration);
/* At a start, when all that is committed is applied: the minimums that were answered before count again. */
void replica_start_trim(struct replica *replica, raft_index committed);
/* Into a checkpoint that says where the ledger begins: where the log does, and with which entry. The second alone tells it when that one's header is damaged.
 * known: what the checkpoint said before. */
void replica_fill_begin(const struct replica *replica, uint64_t known_position, int64_t known_index, struct checkpoint *checkpoint);
/* A segment is to be removed. */
bool replica_trim_pending(const struct replica *replica);
/* ... and a start would not find in the metadata snapshots what is in it. */
bool replica_trim_wants_snapshot(const struct replica *replica);
/* Which segment may be removed with this save, if any. */
void replica_trim_plan(const struct replica *replica, struct replica_save *save);
void replica_trim_run(struct replica_save *save); /* any thread */
void replica_trimmed(struct replica *replica, struct replica_save *save);
void replica_trim_drop_file(struct replica_save *save); /* what a job that was not taken back has opened */

/* ---- replica_slow_disk.c ---- */
/* A sync was handed out; the commit index moved; it has come back. */
void replica_slow_sync_begins(struct replica *replica);
void replica_slow_note_commit(struct replica *replica);
void replica_slow_sync_ends(struct replica *replica);
/* Hands over when this has been the slowest disk by far for a while. */
void replica_slow_tick(struct replica *replica, uint64_t now);
bool replica_is_slow(const struct replica *replica);

/* Makes `forgot` durable as it is now, at once. False: it is not, and what a restart must know of may not be done yet. */
bool replica_save_forgot(struct replica *replica);
/* On the loop, while no save is out: whichever slot is lost later, the other one does not say what was before. */
int replica_save_in_both_slots(struct replica *replica, struct checkpoint *checkpoint, struct error *error);
/* Queues that are unfit are those of no position: the disk is told. Not while a job of the pool writes the checkpoint: then when it is done. */
void replica_forget_queues(struct replica *replica);

/* May this member have acknowledged something? Elections, without which nothing is, begin at term 2. */
static inline bool replica_took_part(const struct replica *replica)
{
    return replica->ledger.last_index > 0 || replica->votes.term > 1;
}

/* ---- replica_membership.c ---- */
/* dLegerPeers; numbers by place until a log or another member knows better. */
int replica_list_members(struct replica *replica, struct error *error);
/* Before the driver runs: members as the log says them, the newest configuration up to its end; replica->configuration is the newest one that is not
 * behind committed. whole: the log is not being filled again, a node that does not stand in it was removed. */
int replica_know_members(struct replica *replica, raft_index committed, bool whole, struct error *error);
/* Before that: is this more than a group of one, by dLegerPeers or the checkpoint? */
bool replica_has_others(const struct replica *replica);
/* While it runs: takes over what a step has changed. */
void replica_review_configuration(struct replica *replica);
/* Place of the member in the table, -1 = none. */
int replica_place_of(const struct replica *replica, struct slice id);
/* Ids of the members in the configuration that is applied, with ; between them: changes that are under way are not in it. False:
 * memory is short. */
bool replica_append_member_ids(const struct replica *replica, struct buffer *out);
/* Would the sender, which is as good as empty, begin with the same members as we? What older versions do not tell they are believed to. */
bool replica_agrees_on_first(const struct replica *replica, const struct peer_hello *hello);
/* This node forgot what it had, and its dLegerPeers names a member that those whom it has heard do not know: their group may be one of yesterday, which they left
 * without knowing it. NULL: none. */
const char *replica_named_elsewhere(const struct replica *replica);
/* The configuration of the first start: the same bytes on every node. */
int replica_first_configuration(struct replica *replica, struct buffer *out);
/* One with this member alone in it. */
int replica_sole_configuration(struct replica *replica, struct buffer *out);
/* The committed one, encoded with all ids and addresses. False: there is none. */
bool replica_encode_members(struct replica *replica, struct buffer *out);

/* ---- replica_fetch.c ---- */
void replica_send_fetch(struct replica *replica);
void replica_answer_fetch(struct replica *replica, uint64_t from, const struct peer_message *in);
void replica_receive_behind(struct replica *replica, uint64_t from, const struct peer_message *in);
void replica_receive_fetched(struct replica *replica, uint64_t from, const struct peer_message *in, const uint8_t *run);

/* ---- replica_serve.c ---- */
void replica_job_start(struct replica *replica, struct replica_job *job);
/* As leader: what this member needs next is deleted here. */
void replica_tell_behind(struct replica *replica, uint64_t to);
void replica_answer_manifest(struct replica *replica, uint64_t from, const struct peer_message *in);
void replica_answer_bulk(struct replica *replica, uint64_t from, const struct peer_message *in);
void replica_serve_tick(struct replica *replica, uint64_t now);
/* What somebody needs who has nothing of the log: entries from the first one that is not deleted up to the last one that is applied, and a metadata snapshot
 * of that, which is appended. False: memory is short, or the beginning is damaged. */
bool replica_make_manifest(struct replica *replica, struct replica_manifest *manifest, struct buffer *metadata);
void replica_serve_close(struct replica *replica);

/* ---- replica_scrub.c ---- */
/* An applied entry that another member needs cannot be sent: when it is damaged it is repaired first. */
void replica_look_at_entry(struct replica *replica, raft_index index);
void replica_scrub_tick(struct replica *replica, uint64_t now);
/* By the options, or for queues that are damaged. */
bool replica_scrub_wanted(const struct replica *replica);
void replica_scrub_close(struct replica_scrub *scrub);

/* ---- replica_repair.c ---- */
/* Damage was found: members are asked from now on. */
void replica_repair_start(struct replica *replica);
void replica_repair_tick(struct replica *replica, uint64_t now);
void replica_answer_repair(struct replica *replica, uint64_t from, const struct peer_message *in);
void replica_receive_repaired(struct replica *replica, uint64_t from, const struct peer_message *in, const uint8_t *run);
/* Is there a hole that keeps this member from running: entries that are to be applied yet, or that somebody may still have? */
bool replica_must_repair(const struct replica *replica);

/* ---- replica_backup.c ---- */
struct dledger_backup;
int replica_backup_begin(struct replica *replica, struct dledger_backup *backup, struct error *error);
int replica_backup_metadata(struct replica *replica, uint64_t id, uint64_t offset, size_t size, struct slice *piece);
void replica_backup_has_read(struct replica *replica, uint64_t id, uint64_t position);
void replica_backup_give_up(struct replica *replica, uint64_t id);
/* Is there something before position that a backup has not read yet? */
bool replica_backup_holds(const struct replica *replica, uint64_t position);
void replica_backup_tick(struct replica *replica, uint64_t now);
void replica_backup_close(struct replica *replica);

#endif
