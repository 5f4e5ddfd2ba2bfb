/* Deleting the log's beginning, step by step:
 *
 *   1 the leader decides that everything before P, the begin of a segment, may go, and appends a record that says so (replica_trim()), or several at once
 *   2 each node that applies the record advances the queues' minimums to P: from then on all nodes answer alike
 *   3 each node by itself removes segments before P, one with a save, when it can start without them: what the record says is durable here, queues are
 *     synced behind P, and both metadata snapshots reach it
 *
 * The record, a body of kind LEDGER_ENTRY_TRIM:
 *
 *     version 4 | P 8 | Raft index of the newest committed configuration 8 | size 4, that configuration | queues 4, for each: size 2, topic | id 4 | maximum 8
 *
 * The newest such record is behind the P that it names, so it is always in the log, and whoever makes queues anew from what remains meets it. Hence what
 * it carries besides P: the configuration, whose entry may be gone, and how far queues reached of which no message remains. When those are many there are more
 * records before it, each with a part of them and the P that held before.
 * To change: bump TRIM_VERSION, keep the reader of the old form.
 */
#include "dledger/replica_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dledger/metadata_snapshot.h"
#include "store/log_sink.h"

#define TRIM_VERSION 1u
#define LOOK_MAX 65536u /* entries among which the first message of a segment is looked for */

static uint64_t segment_begin(const struct replica *replica, uint64_t position)
{
    return position - position % replica->ledger.data.file_size;
}

/* ---- the leader's decision ---- */

/* What a member that lags holds back, given what it has; Raft's number. No more than a certain length of the log: then it fetches what it lacks in bulk, and
 * while it does so from us, that stays. */
static raft_index held_for(const struct replica *replica, int place, raft_index match)
{
    uint64_t most = replica->options.follower_lag_bytes_max, from = replica->ledger.trim_position, term;
    uint32_t size;

    if (replica->serve.to == (uint64_t)place + 1)
        return match > replica->serve.next ? match : replica->serve.next;
    if (most == 0 || replica->applied_end <= most)
        return match;
    if (match > 0 && !ledger_locate(&replica->ledger, match - 1, &from, &size, &term))
        from = replica->ledger.trim_position;
    if (replica->applied_end - from <= most)
        return match;
    raft_index capped = replica_index_at(replica, replica->applied_end - most);
    return capped > match ? capped : match;
}

/* The newest entry that every member has whole on its disk, as far as is known, or that is kept for it; Raft's number, 0 = none. *held_by: the member that
 * lacks the most. How long a member that is away may hold back the others is decided here and nowhere else. */
static raft_index all_members_have(const struct replica *replica, int *held_by)
{
    struct raft *raft = (struct raft *)(uintptr_t)&replica->driver.raft;
    raft_index lowest = replica->applied;

    *held_by = -1;
    for (int i = 0; i < replica->member_count; i++) {
        raft_index match = 0;
        if (replica->members[i].raft_id == 0)
            continue;
        if (replica->members[i].raft_id == replica->id)
            match = ledger_whole_until(&replica->ledger);
        else if (raft_match_index(raft, replica->members[i].raft_id, &match) != 0)
            match = 0;
        else if (match > replica->peers[i].stored)
            match = replica->peers[i].stored; /* class A: a power cut may take what it has beyond */
        if (replica->members[i].raft_id != replica->id)
            match = held_for(replica, i, match);
        if (match < lowest) {
            lowest = match;
            *held_by = i;
        }
    }
    return lowest;
}

uint64_t replica_trim_limit(const struct replica *replica, int *held_by)
{
    raft_index lowest;
    uint64_t position, term;
    uint32_t size;

    *held_by = -1;
    if (!replica->accepting)
        return replica->ledger.trim_position;
    lowest = all_members_have(replica, held_by);
    if (lowest == 0 || !ledger_locate(&replica->ledger, lowest - 1, &position, &size, &term))
        return replica->ledger.trim_position;
    /* The entry that all have stays, so that each can still be asked for it by index and term. */
    return segment_begin(replica, position);
}

int64_t replica_first_message(const struct replica *replica, uint64_t position)
{
    for (uint32_t i = 0; i < LOOK_MAX && position < replica->applied_end; i++) {
        struct ledger_entry entry;
        const uint8_t *bytes = mapped_file_queue_at(&replica->ledger.data, position, LEDGER_BLANK_SIZE);
        if (bytes == NULL || ledger_is_blank(bytes))
            position = segment_begin(replica, position) + replica->ledger.data.file_size;
        bytes = mapped_file_queue_at(&replica->ledger.data, position, LEDGER_ENTRY_HEADER_SIZE);
        if (bytes == NULL || ledger_entry_decode(&entry, bytes) != 0 || entry.position != position || entry.index >= replica->applied)
            return -1;
        if (entry.kind == LEDGER_ENTRY_MESSAGE)
            return (int64_t)(position + LEDGER_ENTRY_HEADER_SIZE);
        position += ledger_entry_size(&entry);
    }
    return -1;
}

/* The queues that end before `position`, in records of which the last one alone says that the log begins there: who applies only some of them (the leader went
 * before the others had committed) has learnt where some queues end, which they do anyway. */
struct listing {
    struct replica *replica;
    uint64_t position;
    size_t part_max;
    uint64_t size; /* of the whole list */
    /* ---- while it is written ---- */
    struct buffer body;
    size_t list_at; /* in it */
    uint32_t count;
    int code;
};

/* A last unit that may be damaged does not tell. One too many does no harm, one too few would have its numbers given again. */
static bool is_emptied(const struct listing *listing, const struct consume_queue *queue)
{
    return queue->max_offset > 0 && (queue->max_physical_offset <= (int64_t)listing->position || !consume_queue_trusts(queue, queue->max_offset - 1));
}

static void measure(void *argument, struct consume_queue *queue)
{
    struct listing *listing = argument;
    if (is_emptied(listing, queue))
        listing->size += strlen(queue->topic) + REPLICA_TRIM_LISTED;
}

static void begin_record(struct listing *listing)
{
    const struct replica *replica = listing->replica;

    buffer_clear(&listing->body);
    buffer_append_u32(&listing->body, TRIM_VERSION);
    buffer_append_u64(&listing->body, replica->ledger.trim_position);
    buffer_append_u64(&listing->body, replica->configuration_index);
    buffer_append_u32(&listing->body, (uint32_t)replica->configuration.size);
    buffer_append_slice(&listing->body, buffer_slice(&replica->configuration));
    buffer_append_u32(&listing->body, 0);
    listing->list_at = listing->body.size;
    listing->count = 0;
}

static void end_record(struct listing *listing, bool last)
{
    struct replica *replica = listing->replica;
    int64_t offset;
    uint8_t *room = NULL;

    if (listing->code == 0 && listing->body.failed)
        listing->code = ERROR_NO_MEMORY;
    if (listing->code == 0)
        room = replica_reserve_for_trim(replica, listing->body.size, &offset, &listing->code);
    if (room == NULL)
        return;
    store_u32(listing->body.data + listing->list_at - 4, listing->count);
    if (last)
        store_u64(listing->body.data + 4, listing->position);
    memcpy(room, listing->body.data, listing->body.size);
    replica_append(replica, LEDGER_ENTRY_TRIM, NULL);
}

static void list_if_emptied(void *argument, struct consume_queue *queue)
{
    struct listing *listing = argument;
    size_t size = strlen(queue->topic);

    if (listing->code != 0 || !is_emptied(listing, queue))
        return;
    if (listing->body.size - listing->list_at + size + REPLICA_TRIM_LISTED > listing->part_max) {
        end_record(listing, false);
        begin_record(listing);
    }
    buffer_append_u16(&listing->body, (uint16_t)size);
    buffer_append(&listing->body, queue->topic, size);
    buffer_append_u32(&listing->body, (uint32_t)queue->queue_id);
    buffer_append_u64(&listing->body, (uint64_t)queue->max_offset);
    listing->count++;
}

int replica_trim(struct replica *replica, uint64_t position)
{
    struct listing listing = {.replica = replica, .position = position, .part_max = REPLICA_TRIM_PART};
    uint64_t segment = replica->ledger.data.file_size;
    int held_by;

    if (!replica->accepting)
        return ERROR_NOT_LEADER;
    if (position % segment != 0 || position <= replica->ledger.trim_position || position <= replica->trim_asked || position > replica_trim_limit(replica, &held_by))
        return ERROR_INVALID;
    if (listing.part_max > segment / 2)
        listing.part_max = segment / 2;
    message_store_each_queue(replica->store, measure, &listing);
    if (listing.size > REPLICA_TRIM_LIST_MAX)
        return ERROR_TOO_LARGE;
    buffer_init(&listing.body, LEDGER_ENTRY_SIZE_MAX);
    begin_record(&listing);
    /* All or none: what a full disk has left is not to be used up by tries. A record may leave room for one more name. */
    uint32_t records = (uint32_t)(listing.size / (listing.part_max - UINT8_MAX - REPLICA_TRIM_LISTED) + 1);
    uint32_t head = (uint32_t)(LEDGER_ENTRY_HEADER_SIZE + listing.list_at);
    if (!replica_has_room(replica, listing.size + (uint64_t)records * head, records, head + (uint32_t)listing.part_max))
        listing.code = ERROR_NO_SPACE;
    message_store_each_queue(replica->store, list_if_emptied, &listing);
    end_record(&listing, true);
    buffer_close(&listing.body);
    if (listing.code == 0)
        replica->trim_asked = position;
    return listing.code;
}

/* ---- every node ---- */

bool replica_trim_configuration(struct slice body, raft_index *index, struct slice *configuration)
{
    struct cursor cursor = cursor_of(body);

    if (cursor_u32(&cursor) != TRIM_VERSION)
        return false;
    cursor_u64(&cursor);
    *index = cursor_u64(&cursor);
    *configuration = cursor_slice(&cursor, cursor_u32(&cursor));
    return !cursor.failed;
}

/* What the record does to queues: those that it lists reach as far as it says. */
int replica_trim_reached(struct message_store *store, struct slice body, uint64_t *position)
{
    struct cursor cursor = cursor_of(body);
    uint32_t version = cursor_u32(&cursor);
    uint32_t count;
    int rv = 0;

    *position = cursor_u64(&cursor);
    cursor_u64(&cursor);
    cursor_slice(&cursor, cursor_u32(&cursor));
    count = cursor_u32(&cursor);
    if (cursor.failed || version != TRIM_VERSION)
        return ERROR_MALFORMED;
    for (uint32_t i = 0; i < count && rv == 0; i++) {
        struct slice topic = cursor_slice(&cursor, cursor_u16(&cursor));
        int32_t queue_id = (int32_t)cursor_u32(&cursor);
        int64_t max_offset = (int64_t)cursor_u64(&cursor);
        rv = cursor.failed ? ERROR_MALFORMED : message_store_reached(store, topic, queue_id, max_offset);
    }
    return rv;
}

int replica_apply_trim(struct replica *replica, raft_index index, uint64_t at, struct slice body)
{
    uint64_t position = 0;
    int rv = replica_trim_reached(replica->store, body, &position);

    /* Whoever says so stands behind it himself. */
    if (rv == 0 && (position % replica->ledger.data.file_size != 0 || position > at))
        rv = ERROR_MALFORMED;
    if (rv != 0)
        return rv;
    if (position > replica->ledger.trim_position) {
        replica->ledger.trim_position = position;
        LOG_INFO("the log begins at position %llu from now on (index %llu says so)", (unsigned long long)position, index - 1);
    }
    replica->trim_index = index;
    replica->trim_queues = true;
    replica_trim_queues(replica);
    return 0;
}

void replica_trim_queues(struct replica *replica)
{
    /* What a sync that is out makes durable are the names of its beginning. */
    if (!replica->trim_queues || (replica->saving && replica->save.with_sync))
        return;
    replica->trim_queues = false;
    replica->store_sync_due_us = 0;
    replica->checkpoint_dirty = true;
    /* A file of a queue that cannot be removed now is tried again with the next trim; the minimum has advanced. */
    message_store_trim(replica->store, (int64_t)replica->ledger.trim_position);
}

void replica_start_trim(struct replica *replica, raft_index committed)
{
    uint64_t begin = mapped_file_queue_begin(&replica->ledger.data);
    uint64_t position = replica->checkpoint.begin_position, last, term;
    uint32_t size;

    replica->trim_index = committed;
    /* In class A a power cut can take the record, and all that was behind it. */
    if (committed == 0 || !ledger_locate(&replica->ledger, committed - 1, &last, &size, &term))
        position = begin;
    else if (position > segment_begin(replica, last))
        position = segment_begin(replica, last);
    if (position % replica->ledger.data.file_size != 0 || position < begin)
        position = begin;
    if (position > replica->ledger.trim_position)
        replica->ledger.trim_position = position;
    if (replica->ledger.trim_position > 0)
        message_store_trim(replica->store, (int64_t)replica->ledger.trim_position);
}

/* DLedger index of the first entry that stays. */
static bool first_kept(const struct replica *replica, int64_t *index)
{
    struct ledger_entry entry;
    const uint8_t *header = mapped_file_queue_at(&replica->ledger.data, replica->ledger.trim_position, LEDGER_ENTRY_HEADER_SIZE);

    if (header == NULL || ledger_entry_decode(&entry, header) != 0 || entry.position != replica->ledger.trim_position)
        return false;
    *index = (int64_t)entry.index;
    return ledger_hole_of(&replica->ledger, entry.index) == NULL;
}

void replica_fill_begin(const struct replica *replica, uint64_t known_position, int64_t known_index, struct checkpoint *checkpoint)
{
    uint64_t position = replica->ledger.trim_position;
    int64_t index;

    if (checkpoint->begin_position >= position)
        return;
    checkpoint->begin_position = position;
    if (first_kept(replica, &index))
        checkpoint->begin_index = index;
    else if (known_position == position)
        checkpoint->begin_index = known_index;
    else
        checkpoint->begin_index = 0; /* its header is damaged, and does not tell */
}

bool replica_trim_pending(const struct replica *replica)
{
    uint64_t begin = mapped_file_queue_begin(&replica->ledger.data);
    return replica->ledger.data.count > 1 && begin + replica->ledger.data.file_size <= replica->ledger.trim_position;
}

bool replica_trim_wants_snapshot(const struct replica *replica)
{
    int64_t first;
    return replica_trim_pending(replica) && first_kept(replica, &first) &&
           (replica->snapshot_index + 1 < first || replica->older_snapshot_index + 1 < first);
}

void replica_trim_plan(const struct replica *replica, struct replica_save *save)
{
    char name[21];

    save->trim_path[0] = '\0';
    if (replica->trim_release.job.out || !replica_trim_pending(replica) || replica->phase != REPLICA_RUNNING || ledger_first_hole(&replica->ledger) != NULL || !first_kept(replica, &save->trim_first) ||
        replica->trim_index == 0 ||
        replica->durable_committed + 1 < (int64_t)replica->trim_index || replica_trim_wants_snapshot(replica) ||
        replica->checkpoint.synced_dispatched_position < replica->ledger.trim_position ||
        replica_backup_holds(replica, mapped_file_queue_begin(&replica->ledger.data) + replica->ledger.data.file_size))
        return;
    mapped_file_name(mapped_file_queue_begin(&replica->ledger.data), name);
    snprintf(save->trim_path, sizeof save->trim_path, "%s/data/%s", replica->dir, name);
}

void replica_trim_run(struct replica_save *save)
{
    int rv;

    assert(save->trim_file == NULL);
    /* What was written well may have rotted since, and what it was made from goes now. */
    save->snapshots_bad = !metadata_snapshot_both_reach(save->env, save->dir, save->trim_first - 1);
    if (save->snapshots_bad)
        return;
    /* Without it, for lack of descriptors say, the loop frees the blocks. */
    if (env_open(save->env, save->trim_path, ENV_READ, &save->trim_file) != 0)
        save->trim_file = NULL;
    rv = save->env->ops->unlink(save->env, save->trim_path);
    if (rv == 0 || rv == -ENOENT)
        rv = env_sync_parent(save->env, save->trim_path); /* before the next one goes: a power cut must not leave a gap */
    save->trim_result = rv;
    if (rv != 0)
        replica_trim_drop_file(save);
}

void replica_trim_drop_file(struct replica_save *save)
{
    if (save->trim_file != NULL)
        env_close(save->env, save->trim_file);
    save->trim_file = NULL;
}

static void release_run(struct replica_job *job)
{
    struct replica_release *release = (struct replica_release *)(void *)job; /* its first */
    env_close(release->env, release->file);
    release->file = NULL;
}

static void released(struct replica_job *job)
{
    (void)job;
}

/* The loop has let go of the segment. */
static void release_file(struct replica *replica, struct replica_save *save)
{
    if (save->trim_file == NULL)
        return;
    replica->trim_release = (struct replica_release){{false, release_run, released}, save->env, save->trim_file};
    save->trim_file = NULL;
    replica_job_start(replica, &replica->trim_release.job);
}

void replica_trimmed(struct replica *replica, struct replica_save *save)
{
    struct error error;
    int rv;
    uint64_t begin = mapped_file_queue_begin(&replica->ledger.data);

    if (save->snapshots_bad) {
        LOG_ERROR("a metadata snapshot in %s is damaged: it is written again before the log's beginning is removed", replica->dir);
        replica->older_snapshot_index = -1;
        return;
    }
    if (save->trim_result != 0) {
        LOG_WARN("%s cannot be removed: %s; it is tried again", save->trim_path, strerror(-save->trim_result));
        return;
    }
    rv = ledger_trim(&replica->ledger, begin + replica->ledger.data.file_size, &error);
    release_file(replica, save);
    if (rv != 0) {
        LOG_WARN("ledger in %s: %s", replica->dir, error.message);
        return;
    }
    replica->trimmed_segments++;
    LOG_INFO("%s is removed", save->trim_path);
}
