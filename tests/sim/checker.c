/* The checker knows of every entry that was ever in a log (by index and term), of every entry that was ever committed (by index), of every answer
 * to a client, and what is on the media. */
#include "tests/sim/checker.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker_parts.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/topic_config.h"
#include "dledger/metadata_snapshot.h"
#include "dledger/replica_internal.h"
#include "tests/sim/disk_fault.h"
#include "tests/sim/workload.h"

#define ROOT "/d"
#define OFFSET_UNKNOWN (-2) /* what is gone may have said it */

struct known { /* an entry that was in some log: (index, term) determines all of it and its predecessor */
    uint64_t index, term, previous_term;
    uint32_t chain;
};

struct committed {
    uint64_t term;
    uint64_t position;
    uint32_t chain;
    uint32_t size;
    uint8_t kind;
    bool applied;     /* somebody has, and the hash below is known */
    bool deletes;     /* a topic that is in use */
    uint64_t call;    /* number of the client call, UINT64_MAX = none */
    uint8_t members, voters; /* of the newest configuration up to here: a bit for each machine, the first one's is the lowest */
    uint8_t topics;   /* that are there behind it: a bit for each queue that is sent to */
    int queue;        /* messages */
    int64_t queue_offset;
    uint64_t hash;    /* of the metadata behind it */
};

static struct known *known;
static size_t known_count, known_capacity;
static struct committed *committed; /* [1..committed_last] */
static uint64_t committed_last, committed_capacity;
static int *leader_of_term;
static uint64_t leader_of_term_size;
static uint64_t *queue_units[WORKLOAD_QUEUES]; /* Raft index of each committed message */
static uint64_t queue_count[WORKLOAD_QUEUES], queue_capacity[WORKLOAD_QUEUES];
static struct incarnation { /* of a queue whose topic was deleted */
    uint64_t index; /* Raft index of the deletion */
    uint64_t begin; /* messages before it, of all incarnations */
} *incarnations[WORKLOAD_TARGETS]; /* [1..incarnation_count]; 0: the first one */
static uint64_t incarnation_count[WORKLOAD_TARGETS], incarnation_capacity[WORKLOAD_TARGETS];
static struct { /* consumer offsets of topics that are deleted, as the records say */
    int64_t value;   /* -1 = none, OFFSET_UNKNOWN */
    int64_t removed; /* those up to this one were sent before the newest deletion */
} logged_offsets[WORKLOAD_SLOTS];
static uint64_t delayed_waiting; /* committed, not delivered */
static uint64_t newest_term;     /* in which somebody led */
static uint8_t founders;          /* a bit for each, as above */
static uint8_t forgetful;         /* those that have forgotten something, as their own marks say */
static uint64_t change_last;      /* Raft index of the newest change of the group that was asked for */
static uint64_t restored_term;    /* no term up to this one is led in any more */
static uint64_t last_loss; /* class A: last moment at which a majority had forgotten something, 0 = never */

/* ---- tables that grow ---- */

static void *grow(void *items, uint64_t *capacity, uint64_t need, size_t size)
{
    uint64_t old = *capacity;
    if (need < old)
        return items;
    *capacity = old == 0 ? 256 : old;
    while (*capacity <= need)
        *capacity *= 2;
    items = realloc(items, *capacity * size);
    assert(items != NULL);
    memset((uint8_t *)items + old * size, 0, (*capacity - old) * size);
    return items;
}

void checker_init(void)
{
    known_count = known_capacity = 0;
    committed_last = committed_capacity = 0;
    leader_of_term_size = 0;
    last_loss = 0;
    delayed_waiting = newest_term = restored_term = 0;
    founders = (uint8_t)((1u << world.founders) - 1);
    forgetful = 0;
    change_last = 0;
    known = NULL;
    committed = NULL;
    leader_of_term = NULL;
    memset(queue_units, 0, sizeof queue_units);
    memset(queue_count, 0, sizeof queue_count);
    memset(queue_capacity, 0, sizeof queue_capacity);
    memset(incarnations, 0, sizeof incarnations);
    memset(incarnation_count, 0, sizeof incarnation_count);
    memset(incarnation_capacity, 0, sizeof incarnation_capacity);
    memset(logged_offsets, 0, sizeof logged_offsets);
    for (int i = 0; i < WORKLOAD_SLOTS; i++)
        logged_offsets[i].value = -1;
}

void checker_close(void)
{
    free(known);
    free(committed);
    free(leader_of_term);
    for (int i = 0; i < WORKLOAD_QUEUES; i++)
        free(queue_units[i]);
    for (int i = 0; i < WORKLOAD_TARGETS; i++)
        free(incarnations[i]);
}

static uint8_t members_committed(void)
{
    return committed_last == 0 ? founders : committed[committed_last].members;
}

static uint8_t voters_committed(void)
{
    return committed_last == 0 ? founders : committed[committed_last].voters;
}

bool checker_belongs(int node)
{
    return (members_committed() >> (node - 1) & 1) != 0;
}

int checker_members(void)
{
    return __builtin_popcount(members_committed());
}

bool checker_votes(int node)
{
    return (voters_committed() >> (node - 1) & 1) != 0;
}

int checker_majority(void)
{
    return __builtin_popcount(voters_committed()) / 2 + 1;
}

bool checker_one_votes_since(uint64_t index)
{
    uint8_t voters = index == 0 || committed_last == 0 ? founders : committed[index < committed_last ? index : committed_last].voters;
    bool one = __builtin_popcount(voters) == 1;
    for (uint64_t i = index + 1; i <= committed_last; i++)
        one = one || __builtin_popcount(committed[i].voters) == 1;
    return one;
}

void checker_change_begins(uint64_t index)
{
    if (index > change_last)
        change_last = index;
}

bool checker_change_open(void)
{
    return change_last > committed_last;
}

/* The machines in it that have at least this role. */
static uint8_t machines_in(const struct raft_configuration *configuration, bool voters)
{
    uint8_t machines = 0;
    for (unsigned i = 0; i < configuration->n; i++) {
        const struct raft_server *server = &configuration->servers[i];
        int machine = machine_named(server->address);
        if (machine == 0)
            violation(0, "%s stands in a configuration", server->address);
        if (!voters || server->role == RAFT_VOTER)
            machines |= (uint8_t)(1u << (machine - 1));
    }
    return machines;
}

uint64_t checker_committed(void)
{
    return committed_last;
}

uint64_t checker_delayed_waiting(void)
{
    return delayed_waiting;
}

static size_t place_of(uint64_t index, uint64_t term)
{
    size_t at = (size_t)((index * 0x9E3779B97F4A7C15u ^ term * 0xC2B2AE3D27D4EB4Fu) >> 20) & (known_capacity - 1);
    while (known[at].index != 0 && (known[at].index != index || known[at].term != term))
        at = (at + 1) & (known_capacity - 1);
    return at;
}

static void grow_known(void)
{
    struct known *old = known;
    size_t old_capacity = known_capacity;
    known_capacity = old_capacity == 0 ? 4096 : old_capacity * 2;
    known = calloc(known_capacity, sizeof *known);
    assert(known != NULL);
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i].index != 0)
            known[place_of(old[i].index, old[i].term)] = old[i];
    }
    free(old);
}

/* Log Matching: the same index and term mean the same entry behind the same log. */
static void note_entry(const struct machine *machine, uint64_t index, uint64_t term, uint64_t previous_term, uint32_t chain)
{
    if (known_count * 2 >= known_capacity)
        grow_known();
    struct known *entry = &known[place_of(index, term)];
    if (entry->index == 0) {
        *entry = (struct known){index, term, previous_term, chain};
        known_count++;
        world.stats->entries++;
    } else if (entry->chain != chain || entry->previous_term != previous_term) {
        violation(machine->id, "Log Matching: two entries of index %llu and term %llu", (unsigned long long)index, (unsigned long long)term);
    }
}

/* ---- losses that class A allows ---- */

static void set_forgetful(struct machine *machine, bool is)
{
    uint8_t bit = (uint8_t)(1u << (machine->id - 1));
    machine->forgetful = is;
    forgetful = is ? forgetful | bit : forgetful & (uint8_t)~bit;
}

static bool majority_has_forgotten(void)
{
    uint8_t of_voters = forgetful & voters_committed();
    return of_voters != 0 && __builtin_popcount(of_voters) >= checker_majority();
}

static void look_for_loss(void)
{
    if (world.class_b || !majority_has_forgotten())
        return;
    if (last_loss == 0)
        TRACE(1, 0, "class A: a majority has lost power");
    last_loss = world.now;
}

bool checker_loss_excused(uint64_t acknowledged_at)
{
    look_for_loss();
    return last_loss != 0 && acknowledged_at <= last_loss;
}

static void begins_to_forget(struct machine *machine)
{
    if (!machine->forgetful) {
        free(machine->ghost);
        machine->ghost = malloc((machine->log_last + 1) * sizeof *machine->ghost);
        assert(machine->ghost != NULL);
        if (machine->log != NULL)
            memcpy(machine->ghost, machine->log, (machine->log_last + 1) * sizeof *machine->ghost);
        machine->ghost_last = machine->log_last;
        machine->ghost_acknowledged = machine->acknowledged;
    }
    set_forgetful(machine, true);
    machine->acknowledged = machine->durable_checked = 0;
}

/* Who is no member any more was counted on by nobody when it was emptied; what it gave to others were votes of members that there were before. */
void checker_begins_anew(struct machine *machine)
{
    free(machine->ghost);
    machine->ghost = NULL;
    machine->ghost_last = machine->ghost_acknowledged = 0;
    machine->acknowledged = machine->durable_checked = 0;
    machine->granted_term = 0;
    machine->cut_above = UINT64_MAX;
    set_forgetful(machine, false);
    machine->wiped = machine->doubtful = machine->outcast = machine->ran = machine->keys_may_lack = false;
}

void checker_forgets(struct machine *machine, bool wiped)
{
    if (wiped && !checker_belongs(machine->id)) {
        checker_begins_anew(machine);
        return;
    }
    if (!wiped && (world.class_b || machine->clean))
        return;
    begins_to_forget(machine);
    machine->wiped = machine->wiped || wiped;
    /* A candidacy ends with who stands: only what it gave to others can count once more. */
    if (wiped && machine->granted_self)
        machine->granted_term = 0;
    if (wiped)
        machine->outcast = machine->ran = machine->keys_may_lack = false;
    if (!world.class_b && majority_has_forgotten() && (last_loss == 0 || world.now - last_loss > SECOND))
        world.stats->losses++;
    look_for_loss();
}

void checker_put_back(struct machine *machine)
{
    machine->acknowledged = machine->durable_checked = 0;
    machine->doubtful = true;
    machine->clean = false;
}

/* ---- media ---- */

static const uint8_t *segment_bytes(struct machine *machine, uint64_t position, bool durable, uint64_t *size)
{
    char path[] = ROOT "/dledger-n0/data/00000000000000000000";
    char *digit = path + sizeof path - 1;
    for (uint64_t start = position - position % world.segment_size; start > 0; start /= 10)
        *--digit = (char)('0' + start % 10);
    path[sizeof ROOT "/dledger-n" - 1] = machine->name[1];
    return durable ? sim_env_durable_bytes(&machine->disk, path, size) : sim_env_bytes(&machine->disk, path, size);
}

/* For entries in order: a name is looked up once a segment. Nothing may run in between. */
struct segment_seen {
    uint64_t start; /* UINT64_MAX: none yet */
    const uint8_t *bytes;
    uint64_t size;
};

static void look_at_segment(struct segment_seen *segment, struct machine *machine, uint64_t start)
{
    if (segment->start == start)
        return;
    segment->start = start;
    segment->bytes = segment_bytes(machine, start, false, &segment->size);
}

/* Would this machine still have the entry: after a power cut (class B), after a kill (class A)? */
static bool on_medium(struct machine *machine, const uint8_t *entry, uint64_t position, uint32_t size)
{
    uint64_t file_size = 0;
    const uint8_t *bytes = segment_bytes(machine, position, world.class_b, &file_size);
    uint64_t offset = position % world.segment_size;
    return bytes != NULL && offset + size <= file_size && memcmp(bytes + offset, entry, size) == 0;
}

bool checker_has_whole(struct machine *machine, uint64_t index)
{
    const struct committed *wanted = &committed[index];
    uint64_t file_size = 0;
    struct ledger_entry entry;
    const uint8_t *bytes = segment_bytes(machine, wanted->position, true, &file_size);
    uint64_t offset = wanted->position % world.segment_size;
    if (bytes == NULL || offset + wanted->size > file_size)
        return false;
    bytes += offset;
    return ledger_entry_decode(&entry, bytes) == 0 && entry.index == index - 1 && ledger_entry_size(&entry) == wanted->size &&
           entry.chain_crc == wanted->chain && ledger_entry_chain(bytes, index > 1 ? committed[index - 1].chain : 0) == entry.chain_crc &&
           ledger_entry_body_ok(&entry, bytes + LEDGER_ENTRY_HEADER_SIZE);
}

uint64_t checker_end_position(uint64_t index)
{
    assert(index <= committed_last);
    return index == 0 ? 0 : committed[index].position + committed[index].size;
}

bool checker_entries_at(uint64_t position, uint64_t size, uint64_t *first, uint64_t *last)
{
    uint64_t low = 1, high = committed_last;
    if (committed_last == 0 || position + size > checker_end_position(committed_last))
        return false;
    while (low < high) { /* the last one that begins at or before the first byte */
        uint64_t middle = low + (high - low + 1) / 2;
        if (committed[middle].position <= position)
            low = middle;
        else
            high = middle - 1;
    }
    *first = *last = low;
    while (*last < committed_last && committed[*last + 1].position < position + size)
        (*last)++;
    return true;
}

static bool vote_in_file(struct machine *machine, uint64_t term, uint64_t vote)
{
    char path[] = ROOT "/dledger-n0/vote";
    uint64_t size = 0;
    uint64_t sequence = 0, found_term = 0, found_vote = 0;
    path[sizeof ROOT "/dledger-n" - 1] = machine->name[1];
    const uint8_t *bytes = sim_env_durable_bytes(&machine->disk, path, &size);
    for (uint64_t at = 0; bytes != NULL && at + 36 <= size; at += 4096) {
        const uint8_t *slot = bytes + at;
        if (load_u32(slot + 32) != crc32c(0, slot, 32) || load_u64(slot + 8) <= sequence)
            continue;
        sequence = load_u64(slot + 8);
        found_term = load_u64(slot + 16);
        found_vote = load_u64(slot + 24);
    }
    return found_term > term || (found_term == term && (vote == 0 || found_vote == vote));
}

/* Once is enough: what a disk does to it later is for the next start to find. */
static bool vote_on_medium(struct machine *machine, uint64_t term, uint64_t vote)
{
    if (machine->stored_life == machine->life && machine->stored_term == term && (vote == 0 || machine->stored_vote == vote))
        return true;
    if (!vote_in_file(machine, term, vote))
        return false;
    machine->stored_life = machine->life;
    machine->stored_term = term;
    machine->stored_vote = vote;
    return true;
}

/* ---- logs ---- */

/* What changed in the log since the checker looked? */
static void follow_log(struct machine *machine)
{
    const struct ledger *ledger = &machine->replica.ledger;
    uint64_t last = (uint64_t)(ledger->last_index + 1);
    uint64_t same = machine->log_last < last ? machine->log_last : last;
    machine->log_begin = (uint64_t)ledger->begin_index;

    if (last == machine->log_last && (last == 0 || machine->log[last].chain == ledger->last_chain))
        return;
    while (same > 0) {
        uint64_t end;
        uint32_t chain;
        if (same <= machine->log_begin) {
            /* It took a log that begins later in the place of its own: what is before that is what the group committed. */
            if (machine->log[same].chain == committed[same].chain)
                break;
            same--;
            continue;
        }
        if (machine->damaged_count > 0 && disk_fault_at(machine, same))
            break; /* it is committed, and stands behind the end of what may be cut */
        if (!ledger_end_of(ledger, same - 1, &end, &chain) && machine->damaged_count > 0 && disk_fault_log_left(machine))
            break;
        if (!ledger_end_of(ledger, same - 1, &end, &chain))
            violation(machine->id, "entry %llu cannot be read", (unsigned long long)same);
        if (machine->log[same].chain == chain)
            break;
        same--;
    }
    if (same < machine->log_last) {
        if (machine->replica.checkpoint.forgot && !machine->replica.driver.started && same < machine->acknowledged)
            begins_to_forget(machine); /* and knows it */
        world.stats->cut_entries += machine->log_last - same;
        if (same < machine->commit_seen && !machine->outcast)
            violation(machine->id, "cuts entry %llu, which it knew to be committed", (unsigned long long)same + 1);
        if (machine->acknowledged > same)
            machine->acknowledged = same;
        if (machine->durable_checked > same)
            machine->durable_checked = same;
    }
    machine->cut_above = UINT64_MAX;
    machine->log = grow(machine->log, &machine->log_capacity, last + 1, sizeof *machine->log);
    for (uint64_t i = same + 1; i <= last; i++) {
        struct ledger_entry entry;
        if (i <= machine->log_begin) {
            if (i > committed_last)
                violation(machine->id, "its log begins behind entry %llu, which nobody has committed", (unsigned long long)i);
            machine->log[i] = (struct log_seen){committed[i].term, committed[i].position, committed[i].chain};
            continue;
        }
        bool there = ledger_entry(ledger, i - 1, &entry) != NULL;
        if (!there && i <= machine->vouched && machine->damaged_count > 0 && disk_fault_log_left(machine)) {
            machine->log[i] = (struct log_seen){committed[i].term, committed[i].position, committed[i].chain}; /* an old copy of its disk, damaged as it was */
            continue;
        }
        if (!there)
            violation(machine->id, "entry %llu cannot be read", (unsigned long long)i);
        machine->log[i] = (struct log_seen){entry.term, entry.position, entry.chain_crc};
        note_entry(machine, i, entry.term, i > 1 ? machine->log[i - 1].term : 0, entry.chain_crc);
    }
    machine->log_last = last;
}

static bool holds_committed(const struct machine *machine, uint64_t index)
{
    return index == 0 || (machine->log_last >= index && machine->log[index].chain == committed[index].chain);
}

/* ---- topics that are deleted and made again ---- */

/* The one that a member is in that has applied so much. */
static struct incarnation incarnation_at(int queue, uint64_t applied)
{
    uint64_t number = queue < WORKLOAD_TARGETS ? incarnation_count[queue] : 0;
    while (number > 0 && incarnations[queue][number].index > applied)
        number--;
    return number == 0 ? (struct incarnation){0, 0} : incarnations[queue][number];
}

static uint64_t queue_begin(int queue)
{
    return incarnation_at(queue, UINT64_MAX).begin;
}

uint64_t checker_incarnation(int queue)
{
    return incarnation_at(queue, UINT64_MAX).index;
}

uint64_t checker_incarnation_of(const struct machine *machine, int queue)
{
    return incarnation_at(queue, machine->replica.applied).index;
}

bool checker_topic_exists(int queue)
{
    return committed_last > 0 && (committed[committed_last].topics >> queue & 1) != 0;
}

int64_t checker_offset_removed(int slot)
{
    return logged_offsets[slot].removed;
}

static bool is_of_topic(int queue, const char *topic)
{
    return workload_queues[queue].deleted && strcmp(workload_queues[queue].topic, topic) == 0;
}

static void note_deletion(uint64_t index, const char *topic)
{
    bool any = false;
    for (int q = 0; q < WORKLOAD_TARGETS; q++) {
        if (!is_of_topic(q, topic))
            continue;
        any = true;
        committed[index].topics &= (uint8_t)~(1u << q);
        world.stats->deleted_messages += queue_count[q] - queue_begin(q);
        incarnations[q] = grow(incarnations[q], &incarnation_capacity[q], incarnation_count[q] + 1, sizeof **incarnations);
        incarnations[q][++incarnation_count[q]] = (struct incarnation){index, queue_count[q]};
    }
    if (!any)
        return;
    TRACE(1, 0, "topic %s is deleted at index %llu", topic, (unsigned long long)index);
    committed[index].deletes = true;
    world.stats->deletions++;
    for (size_t n = 0; n < workload_count(); n++) {
        struct client_call *call = workload_at(n);
        if (call->kind > CALL_HALF || call->committed == 0 || call->gone != 0 || !is_of_topic(call->queue, topic))
            continue;
        call->gone = index;
        delayed_waiting -= call->kind == CALL_DELAYED && call->delivered == 0;
        world.stats->dropped_messages += call->kind == CALL_DELAYED && call->delivered == 0;
    }
    for (int slot = 0; slot < WORKLOAD_SLOTS; slot++) {
        if (!is_of_topic(slot % WORKLOAD_TARGETS, topic))
            continue;
        logged_offsets[slot].value = -1;
        logged_offsets[slot].removed = workload_offset_sent(slot);
    }
    workload_topic_deleted(topic);
}

static void forget_offsets(void)
{
    for (int slot = 0; slot < WORKLOAD_SLOTS; slot++) {
        logged_offsets[slot].value = OFFSET_UNKNOWN;
        logged_offsets[slot].removed = 0;
    }
}

static void take_back_deletion(uint64_t index)
{
    bool any = false;
    for (int q = 0; q < WORKLOAD_TARGETS; q++) {
        if (incarnation_count[q] == 0 || incarnations[q][incarnation_count[q]].index != index)
            continue;
        incarnation_count[q]--;
        any = true;
    }
    for (size_t n = 0; any && n < workload_count(); n++) {
        struct client_call *call = workload_at(n);
        if (call->kind > CALL_HALF || call->gone != index)
            continue;
        call->gone = 0;
        delayed_waiting += call->kind == CALL_DELAYED && call->committed != 0 && call->delivered == 0;
    }
}

static void note_offset(const struct machine *machine, uint64_t index, const Ledgermq__ConsumerOffset *offset)
{
    int slot = workload_slot_of(offset->group, workload_queue_of(slice_of_text(offset->topic), offset->queue_id));
    if (slot < 0)
        return;
    if (offset->offset <= logged_offsets[slot].removed && last_loss == 0)
        violation(machine->id, "entry %llu stores offset %lld of queue %d, which was sent before the topic was deleted: those up to %lld were",
                  (unsigned long long)index, (long long)offset->offset, slot % WORKLOAD_TARGETS, (long long)logged_offsets[slot].removed);
    logged_offsets[slot].value = offset->offset;
}

/* Most records name none of them. */
static bool names_deleted_topic(const uint8_t *bytes, size_t size)
{
    for (int q = 0; q < WORKLOAD_TARGETS; q++) {
        const char *topic = workload_queues[q].topic;
        if (workload_queues[q].deleted && (q == 0 || strcmp(topic, workload_queues[q - 1].topic) != 0) && memmem(bytes, size, topic, strlen(topic)) != NULL)
            return true;
    }
    return false;
}

static void note_record(struct machine *machine, uint64_t index, const uint8_t *bytes, size_t size)
{
    if (!names_deleted_topic(bytes, size))
        return;
    Ledgermq__MetadataRecord *record = ledgermq__metadata_record__unpack(NULL, size, bytes);
    if (record == NULL)
        violation(machine->id, "committed record %llu is undecodable", (unsigned long long)index);
    for (size_t i = 0; i < record->n_put_topics; i++) {
        for (int q = 0; q < WORKLOAD_TARGETS; q++)
            committed[index].topics |= (uint8_t)(is_of_topic(q, record->put_topics[i]->name) << q);
    }
    for (size_t i = 0; i < record->n_delete_topics; i++)
        note_deletion(index, record->delete_topics[i]);
    for (size_t i = 0; i < record->n_offsets; i++)
        note_offset(machine, index, record->offsets[i]);
    ledgermq__metadata_record__free_unpacked(record, NULL);
}

/* Where a call remembers its message of that queue. */
static uint64_t *place_in_call(struct client_call *call, int queue)
{
    return queue == call->stored ? &call->committed : queue == WORKLOAD_GIVEN_UP ? &call->given_up : &call->delivered;
}

/* The newest committed entry never was. */
static void forget_newest(void)
{
    const struct committed *entry = &committed[committed_last];
    if (entry->deletes)
        take_back_deletion(committed_last);
    if (entry->kind == LEDGER_ENTRY_METADATA)
        forget_offsets();
    if (entry->call != UINT64_MAX) {
        struct client_call *call = workload_at(entry->call);
        *place_in_call(call, entry->queue) = 0;
        if (call->kind == CALL_DELAYED)
            delayed_waiting += entry->queue == call->queue ? 1 : (uint64_t)-1;
    }
    if (entry->queue >= 0)
        queue_count[entry->queue]--;
}

/* Class A after the loss of a majority: what the new leader does not hold is gone. */
static void roll_back(const struct machine *leader)
{
    uint64_t keep = committed_last;
    while (!holds_committed(leader, keep))
        keep--;
    TRACE(1, leader->id, "class A: committed entries %llu to %llu are lost", (unsigned long long)keep + 1, (unsigned long long)committed_last);
    for (; committed_last > keep; committed_last--) {
        const struct committed *entry = &committed[committed_last];
        const struct client_call *call = entry->call == UINT64_MAX ? NULL : workload_at(entry->call);
        if (call != NULL && call->outcome == CALL_ACKNOWLEDGED && entry->queue == call->stored && !checker_loss_excused(call->acknowledged_at))
            violation(leader->id, "the new leader lacks call %llu, acknowledged after the last loss of a majority", (unsigned long long)call->number);
        world.stats->excused += call != NULL && call->outcome == CALL_ACKNOWLEDGED;
        forget_newest();
    }
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *machine = world.machines[i];
        if (machine != leader && (machine->commit_seen > keep || (machine->up && machine->replica.applied > keep)))
            machine->outcast = true;
    }
}

/* What was answered before the backup began is in it; what was answered later is not known any more. */
static void restore_call(struct client_call *call, uint64_t begun_at)
{
    unsigned long long n = call->number;
    if (call->kind > CALL_HALF)
        return;
    if (call->outcome == CALL_ACKNOWLEDGED && call->committed == 0) {
        if (call->acknowledged_at <= begun_at && !checker_loss_excused(call->acknowledged_at))
            violation(0, "call %llu was acknowledged before the backup began, and is not in it", n);
        call->outcome = CALL_UNKNOWN;
    }
    if (call->commit_acknowledged_at != 0 && call->delivered == 0) {
        if (call->commit_acknowledged_at <= begun_at && call->committed != 0 && !checker_loss_excused(call->commit_acknowledged_at))
            violation(0, "call %llu, a half message, was acknowledged as committed before the backup began, and is not delivered in it", n);
        call->commit_acknowledged_at = 0;
    }
    if (call->rollback_acknowledged_at > begun_at)
        call->rollback_acknowledged_at = 0;
}

void checker_group_restored(uint64_t last, uint64_t term, uint64_t begun_at)
{
    int64_t newest[WORKLOAD_QUEUES];
    struct known *old = known;
    size_t old_capacity = known_capacity;

    if (last < committed_last)
        TRACE(1, 0, "committed entries %llu to %llu never were", (unsigned long long)last + 1, (unsigned long long)committed_last);
    for (; committed_last > last; committed_last--)
        forget_newest();
    for (size_t n = 0; n < workload_count(); n++)
        restore_call(workload_at(n), begun_at);
    for (int i = 0; i < WORKLOAD_QUEUES; i++)
        newest[i] = (int64_t)(queue_count[i] - queue_begin(i)) - 1;
    workload_group_restored(newest);
    /* Indexes and terms are used again, for something else. */
    known = calloc(known_capacity, sizeof *known);
    assert(known != NULL);
    known_count = 0;
    for (size_t i = 0; i < old_capacity; i++) {
        if (old[i].index == 0 || old[i].index > last)
            continue;
        known[place_of(old[i].index, old[i].term)] = old[i];
        known_count++;
    }
    free(old);
    for (uint64_t i = term + 1; i < leader_of_term_size; i++)
        leader_of_term[i] = 0;
    newest_term = restored_term = term;
    change_last = 0;
}

bool checker_is_entry(uint64_t index, const struct ledger_entry *entry)
{
    return index <= committed_last && entry->index == index - 1 && entry->term == committed[index].term && entry->chain_crc == committed[index].chain &&
           ledger_entry_size(entry) == committed[index].size;
}

uint64_t checker_entry_position(uint64_t index)
{
    return committed[index].position;
}

static bool stands_in(const struct raft_configuration *configuration, int node)
{
    return (machines_in(configuration, true) >> (node - 1) & 1) != 0;
}

static void note_leader(struct machine *machine, uint64_t term)
{
    uint64_t capacity = leader_of_term_size;
    leader_of_term = grow(leader_of_term, &capacity, term + 1, sizeof *leader_of_term);
    leader_of_term_size = capacity;
    TRACE(1, machine->id, "leads in term %llu, last %llu, commit %llu", (unsigned long long)term, (unsigned long long)machine->log_last,
          (unsigned long long)machine->replica.driver.commit);
    if (leader_of_term[term] != 0 && leader_of_term[term] != machine->id)
        violation(machine->id, "Election Safety: n%d leads in term %llu too", leader_of_term[term] - 1, (unsigned long long)term);
    if (term <= restored_term)
        violation(machine->id, "leads in term %llu, and the backup was made in term %llu", (unsigned long long)term, (unsigned long long)restored_term);
    leader_of_term[term] = machine->id;
    if (term > newest_term)
        newest_term = term;
    world.stats->elections++;
    const struct raft *raft = &machine->replica.driver.raft;
    bool votes = stands_in(&raft->configuration, machine->id);
    if (!votes && raft->configuration_uncommitted_index != 0) /* it may lose its vote, and until then others may need it to stand */
        votes = stands_in(&raft->configuration_committed, machine->id);
    if (!votes)
        violation(machine->id, "leads in term %llu without a vote", (unsigned long long)term);
    /* One that learns of its election late, when a later leader has committed something, may lack that. */
    if ((committed_last == 0 || committed[committed_last].term <= term) && !holds_committed(machine, committed_last)) {
        if (!checker_loss_excused(0))
            violation(machine->id, "Leader Completeness: the leader of term %llu lacks committed entry %llu", (unsigned long long)term,
                      (unsigned long long)committed_last);
        roll_back(machine);
    }
    machine->outcast = false;
}

/* A message belongs to one call, and stands once where that call may put it. */
static void note_call(struct machine *machine, uint64_t index, struct committed *entry, struct slice record)
{
    struct client_call *call = workload_of_message(record);
    if (call == NULL || call->kind > CALL_HALF)
        violation(machine->id, "committed message %llu was never sent", (unsigned long long)index);
    bool given_up = entry->queue == WORKLOAD_GIVEN_UP;
    if (entry->queue != call->stored && (call->kind == CALL_PLAIN || (given_up ? call->kind != CALL_HALF : entry->queue != call->queue)))
        violation(machine->id, "call %llu is committed in queue %d", (unsigned long long)call->number, entry->queue);
    uint64_t *place = place_in_call(call, entry->queue);
    if (*place != 0)
        violation(machine->id, "call %llu is committed twice in queue %d, at index %llu and %llu", (unsigned long long)call->number, entry->queue,
                  (unsigned long long)*place, (unsigned long long)index);
    if (call->refused)
        violation(machine->id, "call %llu was refused, as there was no such topic, and is committed", (unsigned long long)call->number);
    if (call->gone != 0 && entry->queue == call->queue && last_loss == 0)
        violation(machine->id, "call %llu of a topic that was deleted at index %llu comes into the one that was made again", (unsigned long long)call->number,
                  (unsigned long long)call->gone);
    *place = index;
    if (entry->queue == call->stored)
        call->incarnation = checker_incarnation(call->stored);
    entry->call = call->number;
    TRACE(2, machine->id, "committed at %llu: call %llu in queue %d at %lld", (unsigned long long)index, (unsigned long long)call->number,
          entry->queue, (long long)entry->queue_offset);
    if (call->kind == CALL_DELAYED)
        delayed_waiting += place == &call->committed ? 1 : (uint64_t)-1;
    if (call->kind != CALL_HALF || last_loss != 0)
        return;
    if (call->delivered != 0 && call->given_up != 0)
        violation(machine->id, "call %llu, a half message, is delivered and given up", (unsigned long long)call->number);
    if (place == &call->delivered && (!call->commit_asked || call->rollback_acknowledged_at != 0))
        violation(machine->id, "call %llu, a half message, is delivered: %s", (unsigned long long)call->number,
                  call->commit_asked ? "it was rolled back" : "nobody asked for that");
}

static void note_message(struct machine *machine, uint64_t index, struct committed *entry, struct slice record)
{
    struct message_dispatch dispatch;
    if (message_dispatch_decode(record, &dispatch) != 0)
        violation(machine->id, "committed message %llu is undecodable", (unsigned long long)index);
    int queue = workload_queue_of(dispatch.topic, dispatch.queue_id);
    if (queue < 0)
        violation(machine->id, "committed message %llu goes to %.*s", (unsigned long long)index, (int)dispatch.topic.size,
                  (const char *)dispatch.topic.data);
    uint64_t count = queue_count[queue] - queue_begin(queue);
    if (dispatch.queue_offset != (int64_t)count)
        violation(machine->id, "message %llu goes to offset %lld of queue %d, which holds %llu: a gap, or an offset is used twice",
                  (unsigned long long)index, (long long)dispatch.queue_offset, queue, (unsigned long long)count);
    if (queue < WORKLOAD_TARGETS && workload_queues[queue].deleted && !checker_topic_exists(queue) && last_loss == 0)
        violation(machine->id, "message %llu goes to queue %d, whose topic is deleted", (unsigned long long)index, queue);
    if (dispatch.physical_offset != (int64_t)(entry->position + LEDGER_ENTRY_HEADER_SIZE))
        violation(machine->id, "message %llu says that it lies at %lld", (unsigned long long)index, (long long)dispatch.physical_offset);
    entry->queue = queue;
    entry->queue_offset = dispatch.queue_offset;
    queue_units[queue] = grow(queue_units[queue], &queue_capacity[queue], queue_count[queue] + 1, sizeof **queue_units);
    queue_units[queue][queue_count[queue]++] = index;
    entry->queue = queue;
    entry->queue_offset = dispatch.queue_offset;
    if (queue != WORKLOAD_MARKS)
        note_call(machine, index, entry, record);
}

static void note_committed(struct machine *machine, uint64_t index)
{
    struct ledger_entry header;
    const uint8_t *bytes = ledger_entry(&machine->replica.ledger, index - 1, &header);
    /* Who first takes it for committed is its leader, whose newest configuration counts, committed or not. */
    uint8_t voters = machines_in(&machine->replica.driver.raft.configuration, true);
    int majority = __builtin_popcount(voters) / 2 + 1;
    int holders = 0;

    if (bytes == NULL)
        violation(machine->id, "committed entry %llu cannot be read", (unsigned long long)index);
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *other = world.machines[i];
        if ((voters >> (i - 1) & 1) == 0)
            continue;
        if (on_medium(other, bytes, header.position, ledger_entry_size(&header)) ||
            (other->forgetful && index <= other->ghost_last && other->ghost[index].chain == header.chain_crc))
            holders++;
    }
    if (holders < majority && index > 1) /* entry 1 is what each member writes by itself */
        violation(machine->id, "entry %llu is taken for committed, but %s on %d of %d only", (unsigned long long)index,
                  world.class_b ? "durable" : "present", holders, __builtin_popcount(voters));
    committed = grow(committed, &committed_capacity, index + 1, sizeof *committed);
    uint8_t members = members_committed();
    committed[index] = (struct committed){
        .members = members,
        .voters = voters_committed(),
        .topics = committed_last == 0 ? 0 : committed[committed_last].topics,
        .term = header.term,
        .position = header.position,
        .chain = header.chain_crc,
        .size = ledger_entry_size(&header),
        .kind = header.kind,
        .call = UINT64_MAX,
        .queue = -1,
    };
    committed_last = index;
    world.stats->committed++;
    if (header.kind == LEDGER_ENTRY_CONFIGURATION) {
        struct raft_buffer encoded = {(void *)(uintptr_t)(bytes + LEDGER_ENTRY_HEADER_SIZE), header.body_size};
        struct raft_configuration configuration;
        if (raft_configuration_decode(&encoded, &configuration) != 0)
            violation(machine->id, "committed configuration %llu is undecodable", (unsigned long long)index);
        committed[index].members = machines_in(&configuration, false);
        committed[index].voters = machines_in(&configuration, true);
        world.stats->changes += index > 1;
        world.stats->members_come += (uint64_t)__builtin_popcount(committed[index].members & (uint8_t)~members);
        world.stats->members_go += (uint64_t)__builtin_popcount(members & (uint8_t)~committed[index].members);
        raft_configuration_close(&configuration);
    }
    if (header.kind == LEDGER_ENTRY_MESSAGE)
        note_message(machine, index, &committed[index], slice_of(bytes + LEDGER_ENTRY_HEADER_SIZE, header.body_size));
    if (header.kind == LEDGER_ENTRY_METADATA)
        note_record(machine, index, bytes + LEDGER_ENTRY_HEADER_SIZE, header.body_size);
}

static void follow_commit(struct machine *machine)
{
    uint64_t commit = machine->replica.driver.commit;
    if (commit == machine->commit_seen)
        return;
    if (commit < machine->commit_seen)
        violation(machine->id, "its commit index goes back from %llu to %llu", (unsigned long long)machine->commit_seen,
                  (unsigned long long)commit);
    if (commit > machine->log_last)
        violation(machine->id, "its commit index %llu is behind the end of its log %llu", (unsigned long long)commit,
                  (unsigned long long)machine->log_last);
    machine->commit_seen = commit;
    if (machine->outcast)
        return;
    uint64_t common = commit < committed_last ? commit : committed_last;
    if (!holds_committed(machine, common)) {
        if (checker_loss_excused(0)) { /* its entries were lost to the others */
            machine->outcast = true;
            return;
        }
        violation(machine->id, "State Machine Safety: another entry %llu was committed before", (unsigned long long)common);
    }
    for (uint64_t i = committed_last + 1; i <= commit; i++)
        note_committed(machine, i);
}

/* ---- the member ---- */

static void starts_to_run(struct machine *machine)
{
    uint64_t must = machine->ghost_acknowledged < committed_last ? machine->ghost_acknowledged : committed_last;
    TRACE(1, machine->id, "runs again, last %llu; it had acknowledged %llu", (unsigned long long)machine->log_last,
          (unsigned long long)machine->ghost_acknowledged);
    world.stats->caught_up++;
    look_for_loss();
    /* Class A: it may also go on because no majority is left without it, those that are mute as well, and those that are empty, which may never have
     * held anything. Then as many vote as a majority needs and no more, so that a leader must have what any of them has: that is what Leader Completeness is
     * checked for. */
    int without = 0;
    for (int i = 1; i <= world.nodes; i++)
        without += checker_votes(i) && (world.machines[i]->forgetful || world.machines[i]->mute || !world.machines[i]->ran);
    bool needed = !world.class_b && without >= checker_majority();
    set_forgetful(machine, false);
    machine->wiped = false;
    machine->doubtful = true;
    if (needed || (!world.class_b && last_loss != 0))
        return;
    while (must > 0 && (must > machine->ghost_last || machine->ghost[must].chain != committed[must].chain))
        must--;
    if (!holds_committed(machine, must))
        violation(machine->id, "votes again without entry %llu, which it had acknowledged and which is committed", (unsigned long long)must);
}

void checker_machine(struct machine *machine)
{
    struct replica *replica = &machine->replica;
    struct raft_driver *driver = &replica->driver;

    if (!machine_alive(machine))
        return;
    world.stats->steps++;
    look_for_loss();
    follow_log(machine);
    machine->mute = replica->phase == REPLICA_MUTE;
    if (!driver->started)
        return;
    machine->ran = machine->ran || replica->phase == REPLICA_RUNNING;
    if (replica->phase == REPLICA_RUNNING && machine->forgetful)
        starts_to_run(machine);
    machine->doubtful = machine->doubtful && (replica->checkpoint_dirty || replica->saving);
    if (driver->failed)
        return;
    uint64_t term = raft_current_term(&driver->raft);
    if (raft_state(&driver->raft) == RAFT_LEADER && machine->leads_term != term) {
        machine->leads_term = term;
        note_leader(machine, term);
        /* Its barrier, without which what others appended before can wait for ever. */
        if (raft_driver_last(driver) > driver->commit && replica->ledger.last_term != term)
            violation(machine->id, "leads in term %llu without an entry of that term behind what is not committed", (unsigned long long)term);
    }
    follow_commit(machine);
}

/* Entries of a log, in order, where they were seen. What does not stand there is for the product to find: units of its index may be lost, and then each
 * look-up walks. */
static bool stands_where_seen(struct machine *machine, uint64_t index, struct segment_seen *segment)
{
    const struct log_seen *seen = &machine->log[index];
    struct ledger_entry entry;
    uint64_t offset = seen->position % world.segment_size;
    look_at_segment(segment, machine, seen->position - offset);
    return segment->bytes != NULL && offset + LEDGER_ENTRY_HEADER_SIZE <= segment->size && ledger_entry_decode(&entry, segment->bytes + offset) == 0 &&
           entry.index == index - 1 && entry.chain_crc == seen->chain;
}

void checker_started(struct machine *machine)
{
    struct segment_seen segment = {.start = UINT64_MAX};
    struct log_seen seen = {0};
    if (machine->acknowledged > machine->cut_above)
        machine->acknowledged = machine->cut_above; /* it died or failed within the cut */
    uint64_t acknowledged = machine->acknowledged;
    if (acknowledged > 0)
        seen = machine->log[acknowledged];
    if (machine->outcast)
        disk_fault_forget(machine);
    uint64_t end = (uint64_t)(machine->replica.ledger.last_index + 1);
    if (acknowledged > end && machine->replica.checkpoint.forgot) {
        begins_to_forget(machine); /* and knows it */
        acknowledged = 0;
    }
    /* What a damaged vote file no longer tells: a candidacy ended with the process that stood. */
    if (machine->replica.votes.doubtful && machine->granted_self)
        machine->granted_term = 0;
    follow_log(machine);
    /* Whole, not only its newest entry. */
    for (uint64_t i = (uint64_t)machine->replica.ledger.begin_index + 1; i <= machine->log_last; i++) {
        struct ledger_entry entry;
        if (stands_where_seen(machine, i, &segment))
            continue;
        if (machine->damaged_count > 0 && (ledger_hole_of(&machine->replica.ledger, i - 1) != NULL || disk_fault_at(machine, i)))
            continue;
        bool there = ledger_entry(&machine->replica.ledger, i - 1, &entry) != NULL;
        if (!there && machine->damaged_count > 0 && disk_fault_log_left(machine))
            continue; /* its place is found by walking over the ones before */
        if (!there || entry.chain_crc != machine->log[i].chain)
            violation(machine->id, "entry %llu changed over a restart", (unsigned long long)i);
    }
    if (acknowledged > (uint64_t)machine->replica.ledger.begin_index && (machine->log_last < acknowledged || machine->log[acknowledged].chain != seen.chain))
        violation(machine->id, "has lost entry %llu, which it had acknowledged: its log ends at %llu", (unsigned long long)acknowledged,
                  (unsigned long long)machine->log_last);
}

static void check_vote(struct machine *machine, uint64_t term, uint64_t to)
{
    if (machine->granted_term == term && machine->granted_to != to)
        violation(machine->id, "votes for member %llu in term %llu, having voted for %llu", (unsigned long long)to, (unsigned long long)term,
                  (unsigned long long)machine->granted_to);
    if (term > machine->granted_term) {
        machine->granted_term = term;
        machine->granted_to = to;
        machine->granted_self = to == machine->replica.id;
    }
    if (!vote_on_medium(machine, term, to))
        violation(machine->id, "says that it votes for member %llu in term %llu before that is durable", (unsigned long long)to,
                  (unsigned long long)term);
}

/* A follower tells the leader that it has everything up to there. */
static void check_acknowledgement(struct machine *machine, uint64_t index)
{
    follow_log(machine);
    if (index > machine->log_last)
        violation(machine->id, "acknowledges entry %llu, its log ends at %llu", (unsigned long long)index, (unsigned long long)machine->log_last);
    uint64_t from = (uint64_t)machine->replica.ledger.begin_index;
    for (uint64_t i = (machine->durable_checked > from ? machine->durable_checked : from) + 1; i <= index; i++) {
        struct ledger_entry entry;
        const uint8_t *bytes = ledger_entry(&machine->replica.ledger, i - 1, &entry);
        if (machine->damaged_count > 0 && disk_fault_at(machine, i))
            continue; /* it was whole when it was acknowledged first */
        if (bytes == NULL && machine->damaged_count > 0 && disk_fault_log_left(machine))
            continue; /* its place is found by walking over the ones before */
        if (bytes != NULL && entry.position < machine->replica.ledger.trim_position)
            continue; /* its segment is being deleted */
        if (bytes == NULL || !on_medium(machine, bytes, entry.position, ledger_entry_size(&entry)))
            violation(machine->id, "acknowledges entry %llu before it is durable", (unsigned long long)i);
    }
    if (index > machine->durable_checked)
        machine->durable_checked = index;
    if (index > machine->acknowledged)
        machine->acknowledged = index;
}

void checker_sending(struct machine *machine, uint64_t to, const struct peer_message *message)
{
    bool asks = message->type == PEER_FETCH || message->type == PEER_REPAIR || message->type == PEER_REPAIR_RESULT || message->type == PEER_MANIFEST ||
                message->type == PEER_BULK || message->type == PEER_FORGOT;
    /* Who alone has a vote leads within its start. */
    bool starts = machine->replica.phase < REPLICA_RUNNING && machine->replica.driver.started;
    bool refuses = message->type == PEER_BULK_RESULT && message->flags == PEER_BULK_REFUSED;
    if (machine->replica.phase != REPLICA_RUNNING && !asks && !starts && !refuses)
        violation(machine->id, "a member that does not run sends a message of type %d", message->type);
    switch (message->type) {
    case PEER_REQUEST_VOTE:
        if ((message->flags & PEER_VOTE_PRE) == 0)
            check_vote(machine, message->vote.term, machine->replica.id);
        break;
    case PEER_REQUEST_VOTE_RESULT:
        if ((message->flags & (PEER_VOTE_PRE | PEER_VOTE_GRANTED)) == PEER_VOTE_GRANTED)
            check_vote(machine, message->vote_result.term, to);
        break;
    case PEER_APPEND_ENTRIES:
        if (!vote_on_medium(machine, message->append.term, 0))
            violation(machine->id, "leads in term %llu before that is durable", (unsigned long long)message->append.term);
        break;
    case PEER_APPEND_ENTRIES_RESULT:
        if (message->append_result.rejected == 0)
            check_acknowledgement(machine, message->append_result.last_index);
        break;
    default:
        break;
    }
}

/* ---- applying ---- */

#define HASH_EVERY 64u /* entries: the metadata of all are compared so often, and at the end */

static void metadata_bytes(struct broker *broker, struct buffer *out)
{
    buffer_clear(out);
    if (metadata_snapshot(broker, 0, out) != 0)
        violation(0, "a metadata snapshot cannot be made");
}

static uint64_t metadata_hash(struct broker *broker)
{
    static struct buffer bytes;
    metadata_bytes(broker, &bytes);
    return (uint64_t)crc32c(0, bytes.data, bytes.size) << 32 ^ bytes.size;
}

uint64_t checker_metadata_hash(struct machine *machine)
{
    return metadata_hash(&machine->broker);
}

static void deletion_applied(struct machine *machine, uint64_t index)
{
    if (machine->disk.dead || machine->replica.phase == REPLICA_FAILED)
        return; /* it died while it removed files, or could not: then the record counts as not applied */
    for (int q = 0; q < WORKLOAD_TARGETS; q++) {
        if (workload_queues[q].deleted && incarnation_at(q, index).index == index &&
            message_store_max_offset(&machine->broker.store, slice_of_text(workload_queues[q].topic), workload_queues[q].id) != 0)
            violation(machine->id, "queue %d holds messages behind entry %llu, which deletes its topic", q, (unsigned long long)index);
    }
}

void checker_applied(struct machine *machine, uint64_t index, const struct message_dispatch *dispatch, bool replay)
{
    checker_machine(machine);
    if (machine->outcast)
        return;
    if (!machine->replica.driver.started) {
        /* While it starts: what its checkpoint and its log claim to be committed. */
        if (index > committed_last || !holds_committed(machine, index)) {
            if (checker_loss_excused(0)) {
                machine->outcast = true;
                return;
            }
            violation(machine->id, "applies entry %llu at its start, which is not committed", (unsigned long long)index);
        }
    } else if (index > committed_last || !holds_committed(machine, index)) {
        violation(machine->id, "applies entry %llu, which is not committed", (unsigned long long)index);
    }
    if (machine->apply_next != 0 && index < machine->apply_next)
        violation(machine->id, "applies entry %llu again, %llu was due", (unsigned long long)index, (unsigned long long)machine->apply_next);
    if (machine->apply_next != 0) {
        for (uint64_t i = machine->apply_next; i < index; i++) {
            if (committed[i].kind == LEDGER_ENTRY_MESSAGE || committed[i].kind == LEDGER_ENTRY_METADATA)
                violation(machine->id, "applies entry %llu and leaves out %llu", (unsigned long long)index, (unsigned long long)i);
        }
    }
    machine->apply_next = index + 1;
    struct committed *entry = &committed[index];
    if (dispatch != NULL) {
        if (entry->kind != LEDGER_ENTRY_MESSAGE || dispatch->queue_offset != entry->queue_offset ||
            dispatch->physical_offset != (int64_t)(entry->position + LEDGER_ENTRY_HEADER_SIZE))
            violation(machine->id, "entry %llu is dispatched as something else", (unsigned long long)index);
    }
    else if (entry->kind != LEDGER_ENTRY_METADATA)
        violation(machine->id, "entry %llu is applied as a record", (unsigned long long)index);
    if (entry->deletes)
        deletion_applied(machine, index);
    if (replay || index % HASH_EVERY != 0)
        return;
    uint64_t hash = metadata_hash(&machine->broker);
    if (entry->applied && entry->hash != hash)
        violation(machine->id, "its metadata behind entry %llu differ from the others'", (unsigned long long)index);
    entry->applied = true;
    entry->hash = hash;
}

void checker_snapshot(struct machine *machine, uint64_t index)
{
    if (!machine->outcast && index <= committed_last && committed[index].applied && committed[index].hash != metadata_hash(&machine->broker))
        violation(machine->id, "its metadata snapshot of entry %llu is not what the records make", (unsigned long long)index);
}

bool checker_leads_newest(const struct machine *machine)
{
    return raft_state((struct raft *)(uintptr_t)&machine->replica.driver.raft) == RAFT_LEADER && machine->replica.votes.term == newest_term;
}

void checker_acknowledged(struct client_call *call)
{
    struct machine *machine = world.machines[call->node];
    const struct workload_queue *queue = &workload_queues[call->stored];
    struct error error;
    struct consume_queue_unit unit;
    checker_machine(machine);
    if (machine->outcast)
        return;
    uint64_t index = call->committed;
    if (index == 0 || committed[index].position + LEDGER_ENTRY_HEADER_SIZE != (uint64_t)call->physical_offset ||
        committed[index].queue_offset != call->queue_offset)
        violation(machine->id, "call %llu is acknowledged at position %lld, queue offset %lld, but stands at index %llu",
                  (unsigned long long)call->number, (long long)call->physical_offset, (long long)call->queue_offset, (unsigned long long)index);
    if (call->gone != 0 && queue->deleted)
        return; /* in the same turn */
    struct consume_queue *units = message_store_queue(&machine->broker.store, slice_of_text(queue->topic), queue->id, false, &error);
    if (units == NULL || !consume_queue_get(units, call->queue_offset, &unit) || unit.physical_offset != call->physical_offset)
        violation(machine->id, "call %llu is acknowledged, but a pull at offset %lld would not find it", (unsigned long long)call->number,
                  (long long)call->queue_offset);
}

void checker_pulled(struct machine *machine, int queue, uint64_t incarnation, int64_t queue_offset, struct slice record)
{
    struct message_dispatch dispatch;
    uint64_t first = 0, last;
    checker_machine(machine);
    if (machine->outcast)
        return;
    if (message_dispatch_decode(record, &dispatch) != 0 || dispatch.queue_offset != queue_offset || workload_queue_of(dispatch.topic, dispatch.queue_id) != queue)
        violation(machine->id, "message %lld of queue %d is served and says that it is another one", (long long)queue_offset, queue);
    if (dispatch.physical_offset < (int64_t)LEDGER_ENTRY_HEADER_SIZE ||
        !checker_entries_at((uint64_t)dispatch.physical_offset - LEDGER_ENTRY_HEADER_SIZE, LEDGER_ENTRY_HEADER_SIZE, &first, &last))
        violation(machine->id, "a pull serves offset %lld of queue %d, which is not committed", (long long)queue_offset, queue);
    const struct committed *entry = &committed[first];
    const struct client_call *call = workload_of_message(record);
    if (call == NULL || call->number != entry->call || entry->queue != queue || entry->queue_offset != queue_offset ||
        dispatch.physical_offset != (int64_t)(entry->position + LEDGER_ENTRY_HEADER_SIZE))
        violation(machine->id, "a pull serves something else than message %lld of queue %d", (long long)queue_offset, queue);
    if (first < incarnation)
        violation(machine->id, "a pull serves message %lld of queue %d of entry %llu, and the topic was deleted at index %llu", (long long)queue_offset, queue,
                  (unsigned long long)first, (unsigned long long)incarnation);
}

void checker_passed_over(struct machine *machine, int queue, uint64_t incarnation, int64_t from, int64_t to)
{
    if (from == to || machine->outcast)
        return;
    const struct incarnation of = incarnation_at(queue, incarnation);
    const uint64_t last = of.begin + (uint64_t)to - 1;
    if (to < from || last >= queue_count[queue] || committed[queue_units[queue][last]].position >= machine->replica.ledger.trim_position)
        violation(machine->id, "a pull at offset %lld of queue %d goes on at %lld, and what is between was not deleted", (long long)from, queue, (long long)to);
}

/* ---- the end ---- */

static struct machine *first_member(void)
{
    int i = 1;
    while (!checker_belongs(i))
        i++;
    return world.machines[i];
}

/* Who does not belong knows it, unless nobody whom it knows belongs either. */
static bool stays_out(const struct machine *machine)
{
    const struct replica *replica = &machine->replica;
    bool knows_members = false;
    for (int number = 1; number <= DLEDGER_MEMBERS_MAX; number++)
        knows_members = knows_members || (machine->numbers[number] != 0 && checker_belongs(machine->numbers[number]));
    return !machine->up || (!machine->stopping && (replica->phase == REPLICA_REMOVED || replica->not_added || !knows_members));
}

bool checker_converged(void)
{
    const struct replica *first = &first_member()->replica;
    int leaders = 0;
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *machine = world.machines[i];
        struct replica *replica = &machine->replica;
        if (!checker_belongs(i)) {
            if (!stays_out(machine))
                return false;
            continue;
        }
        if (!machine_runs(machine) || machine->stopping || machine->outcast || replica->driver.commit != raft_driver_last(&replica->driver) ||
            replica->applied != replica->driver.commit || replica->ledger.last_index != first->ledger.last_index ||
            replica->ledger.last_chain != first->ledger.last_chain || replica->gather_count > 0 || replica->pending_head != NULL ||
            replica->ledger.hole_count > 0 || (machine->damaged_count > 0 && disk_fault_log_left(machine)))
            return false;
        leaders += replica->accepting;
    }
    return leaders == 1 && delayed_waiting == 0;
}

/* First segment that certainly has its name: the pool removes one before the loop knows. */
static uint64_t begin_of(const struct machine *machine)
{
    bool removing = machine->replica.saving && machine->replica.save.trim_path[0] != '\0';
    return mapped_file_queue_begin(&machine->replica.ledger.data) + (removing ? world.segment_size : 0);
}

static void compare_logs(struct machine *machine)
{
    struct machine *first = first_member();
    uint64_t end = first->replica.ledger.end_position;
    bool spoilt = world.stats->chaos[CHAOS_FLIP] + world.stats->chaos[CHAOS_STALE] + world.stats->chaos[CHAOS_MISDIRECTED] > 0;
    if (machine->replica.ledger.end_position != end)
        violation(machine->id, "its log ends at another position than the first member's");
    uint64_t begin = begin_of(first) > begin_of(machine) ? begin_of(first) : begin_of(machine);
    if (machine->replica.ledger.trim_position != first->replica.ledger.trim_position && last_loss == 0)
        violation(machine->id, "its log begins at %llu, the first member's at %llu", (unsigned long long)machine->replica.ledger.trim_position,
                  (unsigned long long)first->replica.ledger.trim_position);
    for (uint64_t at = begin; at < end; at += world.segment_size) {
        uint64_t sizes[2] = {0, 0};
        const uint8_t *a = segment_bytes(first, at, false, &sizes[0]);
        const uint8_t *b = segment_bytes(machine, at, false, &sizes[1]);
        if (a == NULL || b == NULL || sizes[0] != sizes[1] || (!spoilt && memcmp(a, b, sizes[0]) != 0))
            violation(machine->id, "its segment at %llu differs from the first member's", (unsigned long long)at);
    }
    /* Nobody reads what fills the room behind the last entry of a segment, so what a disk does to it stays. */
    struct segment_seen ours = {.start = UINT64_MAX}, others = {.start = UINT64_MAX};
    for (uint64_t i = 1; spoilt && i <= committed_last; i++) {
        if (committed[i].position < begin)
            continue;
        uint64_t offset = committed[i].position % world.segment_size;
        look_at_segment(&ours, machine, committed[i].position - offset);
        look_at_segment(&others, first, committed[i].position - offset);
        if (memcmp(ours.bytes + offset, others.bytes + offset, committed[i].size) != 0)
            violation(machine->id, "its entry %llu differs from the first member's", (unsigned long long)i);
    }
}

struct listing {
    struct env *env;
    const char *path;
    bool tell;
    uint64_t sum;
};

static uint64_t look_at_files(struct env *env, const char *path, bool tell);

static int look_at_file(void *argument, const char *name, bool is_dir)
{
    struct listing *listing = argument;
    char path[512];
    uint64_t size = 0;
    snprintf(path, sizeof path, "%s/%s", listing->path, name);
    if (is_dir) {
        listing->sum += look_at_files(listing->env, path, listing->tell);
        return 0;
    }
    const uint8_t *bytes = sim_env_bytes(listing->env->context, path, &size);
    uint32_t crc = crc32c(crc32c(0, path, strlen(path)), bytes, size);
    listing->sum += ((uint64_t)crc << 32 | crc) * 0x9E3779B97F4A7C15u >> 8;
    if (listing->tell)
        fprintf(stderr, "    %s %llu bytes, crc %08x\n", path, (unsigned long long)size, crc);
    return 0;
}

/* A number that names and contents of all files below give; a directory without any says nothing. */
static uint64_t look_at_files(struct env *env, const char *path, bool tell)
{
    struct listing listing = {env, path, tell, 0};
    env->ops->list(env, path, look_at_file, &listing);
    return listing.sum;
}

static void apply_in_rebuild(struct machine *machine, struct broker *broker, const struct dledger_callbacks *callbacks, uint64_t index, bool replay)
{
    struct ledger_entry entry;
    struct message_dispatch dispatch;
    const uint8_t *bytes = ledger_entry(&machine->replica.ledger, index - 1, &entry);
    if (bytes == NULL || !ledger_entry_body_ok(&entry, bytes + LEDGER_ENTRY_HEADER_SIZE))
        violation(machine->id, "entry %llu is damaged at the end", (unsigned long long)index);
    struct slice body = slice_of(bytes + LEDGER_ENTRY_HEADER_SIZE, entry.body_size);
    if (entry.kind == LEDGER_ENTRY_METADATA)
        callbacks->apply_metadata(broker, index - 1, body, replay);
    uint64_t ignored;
    if (entry.kind == LEDGER_ENTRY_TRIM && replica_trim_reached(&broker->store, body, &ignored) != 0)
        violation(machine->id, "entry %llu, a trim, cannot be applied in a rebuild", (unsigned long long)index);
    if (entry.kind != LEDGER_ENTRY_MESSAGE)
        return;
    if (message_store_dispatch(&broker->store, body, &dispatch) != 0)
        violation(machine->id, "entry %llu cannot be dispatched in a rebuild", (unsigned long long)index);
    size_t record = load_u32(body.data);
    struct slice trailer = slice_of(body.data + record, body.size - record);
    callbacks->apply_message(broker, index - 1, &dispatch, trailer, replay);
}

/* Queues of the same names, minimums and maximums, and the same units in between. What is before the minimum is not asked for. */
static void compare_queues(struct machine *machine, struct message_store *rebuilt)
{
    for (int q = 0; q < WORKLOAD_QUEUES; q++) {
        struct slice topic = slice_of_text(workload_queues[q].topic);
        struct consume_queue *a = message_store_queue(&machine->broker.store, topic, workload_queues[q].id, false, NULL);
        struct consume_queue *b = message_store_queue(rebuilt, topic, workload_queues[q].id, false, NULL);
        int64_t max = a == NULL ? 0 : a->max_offset;
        if (max != (b == NULL ? 0 : b->max_offset) || (max > 0 && a->min_offset != b->min_offset))
            violation(machine->id, "queue %d goes from %lld to %lld, a rebuild from %lld to %lld", q, a == NULL ? 0 : (long long)a->min_offset,
                      (long long)max, b == NULL ? 0 : (long long)b->min_offset, b == NULL ? 0 : (long long)b->max_offset);
        for (int64_t i = max == 0 ? 0 : a->min_offset; i < max; i++) {
            struct consume_queue_unit x, y;
            if (!consume_queue_get(a, i, &x) || !consume_queue_get(b, i, &y) || x.physical_offset != y.physical_offset || x.size != y.size ||
                x.tags_code != y.tags_code)
                violation(machine->id, "queue %d has another unit %lld than a rebuild", q, (long long)i);
        }
    }
}

/* Queues and tables made anew from the log alone, or, where its beginning was deleted, from the metadata snapshot on the disk and the log. */
static struct {
    bool there;
    bool of_all; /* of a log that is there from its first entry on: whoever has the same log has to have the same */
    struct broker broker;
    struct loop loop;
    struct sim_env disk;
    struct buffer metadata;
    uint64_t queue_files;
} rebuild;

static void end_rebuild(void)
{
    if (!rebuild.there)
        return;
    message_store_close(&rebuild.broker.store);
    broker_parts_close(&rebuild.broker);
    loop_run_closing(&rebuild.loop);
    broker_parts_free(&rebuild.broker);
    sim_env_close(&rebuild.disk);
    buffer_close(&rebuild.metadata);
    rebuild.there = false;
}

static void make_rebuild(struct machine *machine)
{
    struct broker *broker = &rebuild.broker;
    struct dledger_callbacks callbacks;
    struct message_store_config config;
    struct error error = {0};

    rebuild.there = true;
    sim_env_init(&rebuild.disk, 1, NULL);
    loop_init(&rebuild.loop, 1);
    machine_open_broker(broker, &rebuild.loop, &rebuild.disk.env, machine);
    broker_parts_callbacks(broker, &callbacks);
    machine_store_config(&config, false);
    int rv = rebuild.disk.env.ops->make_dir(&rebuild.disk.env, ROOT);
    if (rv == 0)
        rv = message_store_open(&broker->store, &rebuild.disk.env, &config, &machine->view, &error);
    if (rv == 0)
        rv = message_store_recover(&broker->store, 0, &error);
    if (rv != 0)
        violation(machine->id, "a rebuild does not begin: %s", error.message);
    int64_t snapshot_index = -1;
    uint64_t begin = (uint64_t)machine->replica.ledger.begin_index;
    if (begin > 0) {
        struct buffer snapshot;
        buffer_init(&snapshot, 0);
        if (metadata_snapshot_load(&machine->disk.env, machine->replica.dir, INT64_MAX, &snapshot, &snapshot_index, &error) != 0 ||
            snapshot_index + 1 < (int64_t)begin || callbacks.restore(broker, buffer_slice(&snapshot)) != 0)
            violation(machine->id, "its log begins at entry %llu, its metadata snapshot ends at %lld", (unsigned long long)begin + 1,
                      (long long)snapshot_index + 1);
        buffer_close(&snapshot);
    }
    for (uint64_t i = begin + 1; i <= machine->log_last; i++)
        apply_in_rebuild(machine, broker, &callbacks, i, (int64_t)i - 1 <= snapshot_index);
    buffer_init(&rebuild.metadata, 0);
    metadata_bytes(broker, &rebuild.metadata);
    rebuild.of_all = begin == 0 && machine->replica.ledger.trim_position == 0;
    if (rebuild.of_all)
        rebuild.queue_files = look_at_files(&rebuild.disk.env, ROOT "/consumequeue", false);
    else
        message_store_trim(&broker->store, (int64_t)machine->replica.ledger.trim_position);
}

/* One is enough for all that have the whole log, which was compared byte by byte. */
static void compare_with_rebuild(struct machine *machine)
{
    const struct ledger *ledger = &machine->replica.ledger;
    struct ledger_entry entry;
    struct buffer found;

    if (rebuild.there && rebuild.of_all && ledger->begin_index == 0 && ledger->trim_position == 0) {
        for (uint64_t i = 1; i <= machine->log_last; i++) {
            if (ledger_entry(ledger, i - 1, &entry) == NULL || entry.chain_crc != committed[i].chain)
                violation(machine->id, "entry %llu is not found in its place at the end", (unsigned long long)i);
        }
    } else {
        end_rebuild();
        make_rebuild(machine);
    }
    buffer_init(&found, 0);
    metadata_bytes(&machine->broker, &found);
    if (!slice_equal(buffer_slice(&rebuild.metadata), buffer_slice(&found)))
        violation(machine->id, "its metadata are not what its log makes");
    buffer_close(&found);
    if (!rebuild.of_all) {
        compare_queues(machine, &rebuild.broker.store);
    } else if (rebuild.queue_files != look_at_files(&machine->disk.env, ROOT "/consumequeue", false)) {
        look_at_files(&rebuild.disk.env, ROOT "/consumequeue", true);
        look_at_files(&machine->disk.env, ROOT "/consumequeue", true);
        violation(machine->id, "its consume queues differ from a rebuild");
    }
}

static void check_queues(struct machine *machine)
{
    for (int q = 0; q < WORKLOAD_QUEUES; q++) {
        struct slice topic = slice_of_text(workload_queues[q].topic);
        struct error error;
        struct consume_queue *queue = message_store_queue(&machine->broker.store, topic, workload_queues[q].id, false, &error);
        const uint64_t *units = queue_units[q] + queue_begin(q);
        const uint64_t count = queue_count[q] - queue_begin(q);
        if ((queue == NULL ? 0 : queue->max_offset) != (int64_t)count)
            violation(machine->id, "queue %d holds %lld messages, %llu were committed", q, queue == NULL ? 0 : (long long)queue->max_offset,
                      (unsigned long long)count);
        uint64_t min = 0;
        while (min < count && committed[units[min]].position < machine->replica.ledger.trim_position)
            min++;
        if (queue != NULL && queue->min_offset != (int64_t)min)
            violation(machine->id, "queue %d begins at %lld, the first message behind %llu is %llu", q, (long long)queue->min_offset,
                      (unsigned long long)machine->replica.ledger.trim_position, (unsigned long long)min);
        for (uint64_t i = min; i < count; i++) {
            struct consume_queue_unit unit;
            const struct committed *entry = &committed[units[i]];
            if (!consume_queue_get(queue, (int64_t)i, &unit) || unit.physical_offset != (int64_t)(entry->position + LEDGER_ENTRY_HEADER_SIZE))
                violation(machine->id, "queue %d has another unit %llu", q, (unsigned long long)i);
        }
    }
}

static void check_key(struct machine *machine, const struct client_call *call)
{
    int64_t found[4];
    int64_t last_time, last_offset;
    char key[24];
    if (machine->keys_may_lack)
        return;
    workload_key(call->number, key);
    uint32_t count = message_store_query(&machine->broker.store, slice_of_text(workload_queues[call->stored].topic), slice_of_text(key), 4, 0, INT64_MAX,
                                         found, &last_time, &last_offset);
    int64_t expected = (int64_t)(committed[call->committed].position + LEDGER_ENTRY_HEADER_SIZE);
    if (count != 1 || found[0] != expected)
        violation(machine->id, "call %llu is found %u times by its key", (unsigned long long)call->number, count);
}

/* What was answered about one call is so. */
static void check_call(const struct client_call *call)
{
    unsigned long long n = call->number;
    if (call->kind > CALL_HALF)
        return;
    if (call->outcome == CALL_ACKNOWLEDGED && call->committed == 0 && !checker_loss_excused(call->acknowledged_at))
        violation(0, "call %llu was acknowledged and is gone", n);
    if (call->outcome == CALL_ACKNOWLEDGED && call->committed != 0 && last_loss == 0 &&
        (committed[call->committed].position + LEDGER_ENTRY_HEADER_SIZE != (uint64_t)call->physical_offset ||
         committed[call->committed].queue_offset != call->queue_offset))
        violation(0, "call %llu was acknowledged and stands elsewhere", n);
    if (call->kind == CALL_DELAYED && (call->committed != 0) != (call->delivered != 0) && call->gone == 0 && last_loss == 0)
        violation(0, "call %llu, a delayed message, is %s", n, call->delivered != 0 ? "delivered and was never stored" : "not delivered");
    /* Where it stood before a loss another one may stand by now, which the decision is taken for. */
    bool lost = call->committed == 0 && last_loss != 0;
    if (call->commit_acknowledged_at != 0 && call->delivered == 0 && !lost && !checker_loss_excused(call->commit_acknowledged_at))
        violation(0, "call %llu, a half message, was acknowledged as committed and is not delivered", n);
    if (call->rollback_acknowledged_at != 0 && call->delivered != 0 && last_loss == 0)
        violation(0, "call %llu, a half message, was acknowledged as rolled back and is delivered", n);
    struct machine *asked = world.machines[chance((uint64_t)world.nodes) + 1];
    if (!checker_belongs(asked->id))
        asked = first_member();
    if (call->committed != 0 && committed[call->committed].position >= asked->replica.ledger.trim_position && chance_of(30))
        check_key(asked, call);
}

/* All logs are alike and applied: no record that deletes a topic is on its way. */
static void check_topics(struct machine *machine)
{
    topic_config_settle(&machine->broker);
    for (const struct topic_entry *topic = machine->broker.topics->entries; topic != NULL; topic = topic->hh.next) {
        if (topic->deleting)
            violation(machine->id, "topic %s is still taken for one that is being deleted", topic->name);
    }
}

static void check_offsets(struct machine *machine)
{
    for (int slot = 0; slot < WORKLOAD_SLOTS; slot++) {
        const struct workload_queue *queue = &workload_queues[slot % WORKLOAD_TARGETS];
        uint64_t at;
        int64_t floor = workload_offset_floor(slot, &at);
        int64_t offset = consumer_offset_find(machine->broker.offsets, slice_of_text(workload_group(slot)), slice_of_text(queue->topic), queue->id);
        if (floor > 0 && offset < floor && !checker_loss_excused(at))
            violation(machine->id, "group %s stands at offset %lld of queue %d, %lld was acknowledged", workload_group(slot), (long long)offset,
                      slot % WORKLOAD_TARGETS, (long long)floor);
        for (int i = 1; i <= world.nodes; i++) {
            const struct machine *leader = world.machines[i];
            int64_t oneway = machine_runs(leader) && leader->replica.accepting ? workload_offset_oneway(leader, slot) : 0;
            if (oneway > 0 && offset < oneway)
                violation(machine->id, "group %s stands at offset %lld of queue %d, the leader took %lld one-way", workload_group(slot), (long long)offset,
                          slot % WORKLOAD_TARGETS, (long long)oneway);
        }
        if (queue->deleted && logged_offsets[slot].value != OFFSET_UNKNOWN && offset != logged_offsets[slot].value && last_loss == 0)
            violation(machine->id, "group %s stands at offset %lld of queue %d, the newest record behind the last deletion of the topic says %lld",
                      workload_group(slot), (long long)offset, slot % WORKLOAD_TARGETS, (long long)logged_offsets[slot].value);
        if (offset > workload_offset_sent(slot))
            violation(machine->id, "group %s stands at offset %lld of queue %d, which nobody committed", workload_group(slot), (long long)offset,
                      slot % WORKLOAD_TARGETS);
    }
}

void checker_final(void)
{
    if (committed_last != first_member()->log_last)
        violation(0, "the logs end at %llu, %llu entries were committed", (unsigned long long)first_member()->log_last,
                  (unsigned long long)committed_last);
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *machine = world.machines[i];
        if (!checker_belongs(i))
            continue;
        world.stats->trimmed += mapped_file_queue_begin(&machine->replica.ledger.data) / world.segment_size;
        for (uint64_t k = 1; k <= committed_last; k++) {
            if (!holds_committed(machine, k))
                violation(machine->id, "entry %llu is not the committed one", (unsigned long long)k);
        }
        if (machine != first_member())
            compare_logs(machine);
        check_queues(machine);
        check_topics(machine);
        check_offsets(machine);
        compare_with_rebuild(machine);
        if (sim_env_unreserved_pages(&machine->disk) != 0)
            violation(machine->id, "a page was written through a mapping without a block on the disk");
    }
    end_rebuild();
    for (size_t n = 0; n < workload_count(); n++)
        check_call(workload_at(n));
}
