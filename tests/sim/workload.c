/* A call: its kind is drawn -> its frame is handed to the leader as one that a follower forwards -> the real processors answer, now or later, through
 * dledger_commit_log_forward_answer -> the checker compares the answer with the committed log. */
#include "tests/sim/workload.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/cold_read.h"
#include "broker/remoting/forward.h"
#include "proto/remoting_command.h"
#include "proto/response_code.h"
#include "proto/topic_validator.h"

#define DECISIONS_MAX 512
#define PULL_MAX 8 /* messages */
#define PULLERS (WORKLOAD_GROUPS - 1) /* the group that commits what it has read; the others count */
#define LOCK_CLIENTS 3
#define LOCK_QUEUES 2
#define LOCK_TRUST (30 * SECOND) /* a client trusts a lock no longer */
#define LOCK_GROUP "ordered"

enum request_kind { SEND_MESSAGE = 10, QUERY_OFFSET = 14, UPDATE_OFFSET = 15, CREATE_TOPIC = 17, END_TRANSACTION = 37, LOCK = 41, UNLOCK = 42,
               CREATE_GROUP = 200, DELETE_GROUP = 207, DELETE_TOPIC = 215 };

const struct workload_queue workload_queues[WORKLOAD_QUEUES] = {
    {"orders", 0, false}, {"orders", 1, false}, {"orders", 2, false}, {"orders", 3, false}, {"bills", 0, true}, {"bills", 3, true}, {"rare", 0, true},
    {TOPIC_SCHEDULE, 0, false}, {TOPIC_SCHEDULE, 1, false}, {TOPIC_SCHEDULE, 2, false}, {TOPIC_TRANS_HALF, 0, false}, {TOPIC_TRANS_OP_HALF, 0, false},
    {TOPIC_TRANS_CHECK_MAX_TIME, 0, false},
};
const int64_t workload_delay_level_ms[WORKLOAD_DELAY_LEVELS + 1] = {0, 100, 700, 2000};

static struct client_call **calls;
static size_t call_count, call_capacity;
static uint64_t acknowledged;
static bool sends_now; /* every other call, while sends are wanted */
static bool running;
static struct buffer frame;
static struct {
    int64_t offset;
    uint64_t incarnation;
} newest_acknowledged[WORKLOAD_QUEUES];
static int64_t read_up_to[WORKLOAD_TARGETS];        /* the next message that the group of readers wants */
static uint64_t decisions[DECISIONS_MAX]; /* half messages whose decision is due */
static unsigned decision_count;
static struct {
    int64_t sent, floor;
    uint64_t floor_at;
    int64_t floor_in_backup; /* that began last */
    uint64_t floor_in_backup_at;
    /* the newest commit that nobody waited for, and the leader that took it */
    int64_t oneway;
    uint64_t oneway_at, oneway_term;
    uint32_t oneway_refusals;
    int oneway_node;
    int64_t removed; /* those up to this one, by a deletion that was acknowledged */
} slots[WORKLOAD_SLOTS];
static struct {
    int owner; /* -1 = nobody */
    uint64_t until;
    uint64_t released_at[LOCK_CLIENTS]; /* when it last said that it lets go */
} locks[LOCK_QUEUES];

void workload_init(void)
{
    calls = NULL;
    call_count = call_capacity = 0;
    acknowledged = 0;
    sends_now = false;
    running = false;
    decision_count = 0;
    buffer_init(&frame, 0);
    memset(slots, 0, sizeof slots);
    memset(read_up_to, 0, sizeof read_up_to);
    memset(locks, 0, sizeof locks);
    for (int i = 0; i < WORKLOAD_QUEUES; i++) {
        newest_acknowledged[i].offset = -1;
        newest_acknowledged[i].incarnation = 0;
    }
    for (int i = 0; i < LOCK_QUEUES; i++)
        locks[i].owner = -1;
}

void workload_close(void)
{
    for (size_t i = 0; i < call_count; i++)
        free(calls[i]);
    free(calls);
    buffer_close(&frame);
}

void workload_backup_begins(void)
{
    for (int i = 0; i < WORKLOAD_SLOTS; i++) {
        slots[i].floor_in_backup = slots[i].floor;
        slots[i].floor_in_backup_at = slots[i].floor_at;
    }
}

void workload_group_restored(const int64_t newest[WORKLOAD_QUEUES])
{
    unsigned kept = 0;
    for (unsigned i = 0; i < decision_count; i++) {
        if (calls[decisions[i]]->outcome == CALL_ACKNOWLEDGED)
            decisions[kept++] = decisions[i];
    }
    decision_count = kept;
    for (int i = 0; i < WORKLOAD_SLOTS; i++) {
        slots[i].floor = slots[i].floor_in_backup;
        slots[i].floor_at = slots[i].floor_in_backup_at;
        slots[i].oneway = slots[i].removed = 0;
    }
    for (int i = 0; i < WORKLOAD_QUEUES; i++) {
        uint64_t incarnation = checker_incarnation(i);
        if (newest_acknowledged[i].incarnation < incarnation || (newest_acknowledged[i].incarnation == incarnation && newest_acknowledged[i].offset <= newest[i]))
            continue;
        newest_acknowledged[i].offset = newest[i];
        newest_acknowledged[i].incarnation = incarnation;
    }
    for (int i = 0; i < WORKLOAD_TARGETS; i++)
        read_up_to[i] = read_up_to[i] <= newest[i] ? read_up_to[i] : newest[i] + 1;
    for (int i = 0; i < LOCK_QUEUES; i++)
        locks[i].owner = -1;
}

size_t workload_count(void)
{
    return call_count;
}

struct client_call *workload_at(size_t number)
{
    return number < call_count ? calls[number] : NULL;
}

uint64_t workload_acknowledged(void)
{
    return acknowledged;
}

void workload_key(uint64_t number, char out[24])
{
    snprintf(out, 24, "K%llu", (unsigned long long)number);
}

int workload_queue_of(struct slice topic, int32_t id)
{
    for (int i = 0; i < WORKLOAD_QUEUES; i++) {
        if (workload_queues[i].id == id && slice_equal_text(topic, workload_queues[i].topic))
            return i;
    }
    return -1;
}

int workload_slot_of(const char *group, int queue)
{
    for (int slot = queue; queue < WORKLOAD_TARGETS && slot < WORKLOAD_SLOTS; slot += WORKLOAD_TARGETS) {
        if (strcmp(workload_group(slot), group) == 0)
            return slot;
    }
    return -1;
}

void workload_topic_deleted(const char *topic)
{
    for (int slot = 0; slot < WORKLOAD_SLOTS; slot++) {
        if (strcmp(workload_queues[slot % WORKLOAD_TARGETS].topic, topic) != 0)
            continue;
        slots[slot].floor = slots[slot].floor_in_backup = slots[slot].oneway = 0;
        read_up_to[slot % WORKLOAD_TARGETS] = 0;
    }
}

int64_t workload_offset_floor(int slot, uint64_t *acknowledged_at)
{
    *acknowledged_at = slots[slot].floor_at;
    return slots[slot].floor;
}

int64_t workload_offset_sent(int slot)
{
    return slots[slot].sent;
}

const char *workload_group(int slot)
{
    static const char *const names[WORKLOAD_GROUPS] = {"readers", "writers", "pullers"};
    return names[slot / WORKLOAD_TARGETS];
}

/* Not while the leader knows that it does not know whether what it gathered is stored: it answers what is. */
static bool took_oneway(const struct machine *machine, int slot)
{
    return slots[slot].oneway > 0 && slots[slot].oneway_node == machine->id && slots[slot].oneway_refusals == machine->refusals &&
           !machine->broker.offsets->unsettled && slots[slot].oneway_term == machine->replica.votes.term;
}

int64_t workload_offset_oneway(const struct machine *leader, int slot)
{
    return took_oneway(leader, slot) && world.now - slots[slot].oneway_at > 2 * CONSUMER_OFFSET_GATHER_MS * MS ? slots[slot].oneway : 0;
}

/* ---- bodies: made from a number, so that each byte can be checked ---- */

static void fill_body(const struct client_call *call, uint8_t *body)
{
    uint64_t state = call->body_seed;
    store_u64(body, call->number);
    for (uint32_t i = 8; i < call->body_size; i += 8) {
        uint32_t left = call->body_size - i;
        state = (state ^ state >> 29) * 0xBF58476D1CE4E5B9u + 1;
        memcpy(body + i, &state, left < 8 ? left : 8);
    }
}

struct client_call *workload_of_message(struct slice bytes)
{
    static uint8_t expected[1 << 17];
    struct message_record record;
    if (message_record_decode(bytes, true, &record) != 0 || record.body.size < 8 || record.body.size > sizeof expected)
        return NULL;
    struct client_call *call = workload_at(load_u64(record.body.data));
    if (call == NULL || call->kind > CALL_HALF || call->body_size != record.body.size)
        return NULL;
    fill_body(call, expected);
    return memcmp(expected, record.body.data, record.body.size) == 0 ? call : NULL;
}

/* ---- frames ---- */

static struct client_call *new_call(struct machine *machine, enum call_kind kind)
{
    if (call_count == call_capacity) {
        call_capacity = call_capacity == 0 ? 1024 : call_capacity * 2;
        calls = realloc(calls, call_capacity * sizeof *calls);
        assert(calls != NULL);
    }
    struct client_call *call = calloc(1, sizeof *call);
    assert(call != NULL);
    call->number = call_count;
    call->kind = kind;
    call->node = machine->id;
    call->life = machine->life;
    call->sent_at = world.now;
    calls[call_count++] = call;
    world.stats->sends++;
    return call;
}

static void begin(struct remoting_writer *writer, enum request_kind code, bool oneway)
{
    buffer_clear(&frame);
    remoting_writer_begin_request(writer, &frame, REMOTING_BINARY, (int32_t)code, (int32_t)call_count, oneway ? REMOTING_FLAG_ONEWAY : 0);
}

static void submit(struct machine *machine, struct remoting_writer *writer, const struct client_call *call)
{
    remoting_writer_end(writer, 0);
    assert(!frame.failed);
    forward_received(machine->broker.forward, call->number, SLICE_LITERAL("127.0.0.1:1"), frame.data, frame.size);
}

/* ---- messages ---- */

static void send_message(struct machine *machine, enum call_kind kind)
{
    struct client_call *call = new_call(machine, kind);
    struct remoting_writer writer;
    char properties[128], key[24];
    call->queue = chance_of(10) ? WORKLOAD_TARGETS - 1 : (int)chance(WORKLOAD_TARGETS - 1);
    call->stored = kind == CALL_DELAYED ? WORKLOAD_SCHEDULE + (int)chance(WORKLOAD_DELAY_LEVELS) : kind == CALL_HALF ? WORKLOAD_HALF : call->queue;
    call->body_size = 8 + (uint32_t)(chance_of(900) ? chance(200) : chance_skewed(world.body_max));
    call->body_seed = chance(UINT64_MAX);
    call->newest_before = newest_acknowledged[call->stored].offset;
    call->newest_of = newest_acknowledged[call->stored].incarnation;
    workload_key(call->number, key);
    int size = snprintf(properties, sizeof properties, "UNIQ_KEY\001%s\002TAGS\001t%d", key, (int)chance(3));
    if (kind == CALL_DELAYED)
        size += snprintf(properties + size, sizeof properties - (size_t)size, "\002DELAY\001%d", call->stored - WORKLOAD_SCHEDULE + 1);
    if (kind == CALL_HALF)
        size += snprintf(properties + size, sizeof properties - (size_t)size, "\002TRAN_MSG\001true\002PGROUP\001payers");

    begin(&writer, SEND_MESSAGE, false);
    remoting_writer_ext_text(&writer, "producerGroup", "payers");
    remoting_writer_ext_text(&writer, "topic", workload_queues[call->queue].topic);
    remoting_writer_ext_text(&writer, "defaultTopic", TOPIC_AUTO_CREATE);
    remoting_writer_ext_i64(&writer, "defaultTopicQueueNums", 4);
    remoting_writer_ext_i64(&writer, "queueId", workload_queues[call->queue].id);
    remoting_writer_ext_i64(&writer, "sysFlag", kind == CALL_HALF ? MESSAGE_TRANSACTION_PREPARED : 0);
    remoting_writer_ext_i64(&writer, "bornTimestamp", env_now_ms(&machine->disk.env));
    remoting_writer_ext_i64(&writer, "flag", 0);
    remoting_writer_ext(&writer, "properties", slice_of(properties, (size_t)size));
    remoting_writer_body(&writer);
    uint8_t *body = buffer_reserve(&frame, call->body_size);
    assert(body != NULL);
    fill_body(call, body);
    frame.size += call->body_size;
    submit(machine, &writer, call);
}

/* What DLedger's own client appends, and nobody here waits for: a record that says it is the queue's next message, and is none. */
static void send_raw(struct machine *machine)
{
    const struct workload_queue *target = &workload_queues[chance(WORKLOAD_TARGETS)];
    const struct consume_queue *queue = message_store_queue(&machine->broker.store, slice_of_text(target->topic), target->id, false, NULL);
    struct message_record record = {
        .queue_id = target->id,
        .queue_offset = queue == NULL ? 0 : queue->append_offset,
        .topic = slice_of_text(target->topic),
        .store_timestamp_ms = env_now_ms(&machine->disk.env),
        .body = SLICE_LITERAL("raw"),
    };
    int64_t offset;
    int code;
    message_host_parse(SLICE_LITERAL("127.0.0.1:1"), &record.born_host);
    message_host_parse(SLICE_LITERAL("127.0.0.1:2"), &record.store_host);
    uint8_t *room = replica_reserve(&machine->replica, message_record_size(&record), &offset, &code);
    if (room == NULL)
        return;
    record.physical_offset = offset;
    message_record_encode(&record, slice_of(NULL, 0), room);
    world.stats->raw++;
    replica_append(&machine->replica, LEDGER_ENTRY_RAW, NULL);
}

/* ---- transactions ---- */

static void decide_later(uint64_t half)
{
    if (decision_count < DECISIONS_MAX && calls[half]->outcome == CALL_ACKNOWLEDGED) /* else a backup was restored that is without it */
        decisions[decision_count++] = half;
}

static void on_decision(const struct world_event *event)
{
    decide_later(event->value);
}

static void end_transaction(struct machine *machine)
{
    unsigned place = (unsigned)chance(decision_count);
    struct client_call *half = calls[decisions[place]];
    struct remoting_writer writer;
    decisions[place] = decisions[--decision_count];
    struct client_call *call = new_call(machine, CALL_END);
    char key[24];
    call->half = half->number;
    /* Now and then a client changes its mind. */
    call->commits = chance_of(50) ? chance_of(500) : half->number % 3 != 0;
    half->commit_asked = half->commit_asked || call->commits;
    half->rollback_asked = half->rollback_asked || !call->commits;
    workload_key(half->number, key);
    begin(&writer, END_TRANSACTION, false);
    remoting_writer_ext_text(&writer, "producerGroup", "payers");
    remoting_writer_ext_i64(&writer, "tranStateTableOffset", half->queue_offset);
    remoting_writer_ext_i64(&writer, "commitLogOffset", half->physical_offset);
    remoting_writer_ext_i64(&writer, "commitOrRollback", call->commits ? MESSAGE_TRANSACTION_COMMIT : MESSAGE_TRANSACTION_ROLLBACK);
    remoting_writer_ext_bool(&writer, "fromTransactionCheck", false);
    remoting_writer_ext_text(&writer, "msgId", key);
    remoting_writer_ext_text(&writer, "transactionId", key);
    submit(machine, &writer, call);
}

/* ---- consumers ---- */

static void commit_offset(struct machine *machine)
{
    int slot = (int)chance(WORKLOAD_SLOTS);
    bool reads = slot / WORKLOAD_TARGETS == PULLERS && !workload_queues[slot % WORKLOAD_TARGETS].deleted;
    int64_t value = reads ? read_up_to[slot % WORKLOAD_TARGETS] : slots[slot].sent + 1;
    if (value <= slots[slot].sent) { /* nothing was read since: what counts does something else */
        slot %= PULLERS * WORKLOAD_TARGETS;
        value = slots[slot].sent + 1;
    }
    struct client_call *call = new_call(machine, CALL_OFFSET);
    struct remoting_writer writer;
    call->slot = slot;
    call->oneway = chance_of(300);
    call->value = slots[slot].sent = value;
    call->incarnation = checker_incarnation(slot % WORKLOAD_TARGETS);
    if (call->oneway) { /* a member that does not lead passes it on, or drops it */
        struct slice topic = slice_of_text(workload_queues[slot % WORKLOAD_TARGETS].topic);
        slots[slot].oneway = machine->replica.accepting && !topic_config_is_going(machine->broker.topics, topic) ? value : 0;
        slots[slot].oneway_at = world.now;
        slots[slot].oneway_node = machine->id;
        slots[slot].oneway_refusals = machine->refusals;
        slots[slot].oneway_term = machine->replica.votes.term;
    }
    const struct workload_queue *queue = &workload_queues[call->slot % WORKLOAD_TARGETS];
    begin(&writer, UPDATE_OFFSET, call->oneway);
    remoting_writer_ext_text(&writer, "consumerGroup", workload_group(call->slot));
    remoting_writer_ext_text(&writer, "topic", queue->topic);
    remoting_writer_ext_i64(&writer, "queueId", queue->id);
    remoting_writer_ext_i64(&writer, "commitOffset", call->value);
    submit(machine, &writer, call);
}

static void query_offset(struct machine *machine)
{
    struct client_call *call = new_call(machine, CALL_QUERY);
    struct remoting_writer writer;
    call->slot = (int)chance(WORKLOAD_SLOTS);
    call->value = slots[call->slot].floor;
    if (took_oneway(machine, call->slot) && slots[call->slot].oneway > call->value)
        call->value = slots[call->slot].oneway;
    call->removed = slots[call->slot].removed;
    call->incarnation = checker_incarnation(call->slot % WORKLOAD_TARGETS);
    const struct workload_queue *queue = &workload_queues[call->slot % WORKLOAD_TARGETS];
    begin(&writer, QUERY_OFFSET, false);
    remoting_writer_ext_text(&writer, "consumerGroup", workload_group(call->slot));
    remoting_writer_ext_text(&writer, "topic", queue->topic);
    remoting_writer_ext_i64(&writer, "queueId", queue->id);
    submit(machine, &writer, call);
}

/* Also one that has been deposed without knowing it answers nothing old. Only a clock that stood still with its machine cannot tell how old a promise is. */
static bool may_know_all(const struct machine *machine)
{
    return checker_leads_newest(machine) || machine->thawed_at == 0 || world.now - machine->thawed_at > MACHINE_ELECTION_MS * MS;
}

/* As the pull processor does it, which answers connections only: the store says which messages, and they are read through the mapping or by the pool. */
struct pull {
    struct cold_read read; /* first */
    struct machine *machine;
    struct client_call *call;
    bool decides;
    bool ahead;           /* after a start: its queues are further than what it has applied */
    uint64_t incarnation; /* that it had applied */
    struct get_message_result result;
};

/* Both mean the topic that there is now. */
static bool is_same_topic(const struct pull *pull)
{
    uint64_t now = checker_incarnation(pull->call->queue);
    return !pull->ahead && pull->incarnation == now && pull->call->incarnation == now;
}

static void passed_over(struct pull *pull, int64_t from, int64_t to)
{
    if (!pull->ahead || !workload_queues[pull->call->queue].deleted)
        checker_passed_over(pull->machine, pull->call->queue, pull->incarnation, from, to);
}

static void moves_to(const struct pull *pull, int64_t next)
{
    const struct client_call *call = pull->call;
    if (call->client != 0 && call->value == read_up_to[call->queue] && is_same_topic(pull))
        read_up_to[call->queue] = next;
}

/* Messages in order without a gap, each of them the committed one; what is not served was deleted with the log's beginning. */
static void pulled(struct pull *pull, const uint8_t *const bytes[])
{
    const struct get_message_result *result = &pull->result;
    struct client_call *call = pull->call;
    int64_t next = call->value;
    for (uint32_t i = 0; i < result->count; i++) {
        passed_over(pull, next, result->items[i].queue_offset);
        checker_pulled(pull->machine, call->queue, pull->incarnation, result->items[i].queue_offset, slice_of(bytes[i], result->items[i].size));
        next = result->items[i].queue_offset + 1;
    }
    passed_over(pull, next, result->next_begin_offset);
    world.stats->pulled += result->count;
    world.stats->acknowledged++;
    call->outcome = CALL_ACKNOWLEDGED;
    call->acknowledged_at = world.now;
    moves_to(pull, result->next_begin_offset);
}

static bool is_gone(const struct pull *pull)
{
    return pull->machine->disk.dead || pull->machine->life != pull->call->life;
}

/* What the answer tells a client that gets no message. */
static void pulled_nothing(struct pull *pull)
{
    const struct get_message_result *result = &pull->result;
    struct client_call *call = pull->call;
    bool beyond = call->value > result->max_offset;
    call->outcome = CALL_ACKNOWLEDGED;
    call->acknowledged_at = world.now;
    world.stats->acknowledged++;
    if (result->status == GET_MESSAGE_DAMAGED) {
        world.stats->pulls_damaged++; /* the client asks again */
        return;
    }
    if (!pull->decides && (beyond || result->status == GET_MESSAGE_OFFSET_TOO_SMALL || result->status == GET_MESSAGE_NO_MESSAGE_IN_QUEUE))
        return; /* it asks the leader */
    if (!is_same_topic(pull) || (beyond && !may_know_all(pull->machine)))
        return;
    if (beyond && !checker_loss_excused(0))
        violation(call->node, "queue %d is said to end at %lld, %lld was read before", call->queue, (long long)result->max_offset, (long long)call->value);
    if (pull->decides && may_know_all(pull->machine) && call->newest_of == pull->incarnation && result->max_offset <= call->newest_before &&
        !checker_loss_excused(0))
        violation(call->node, "queue %d is said to end at %lld, a message at %lld was acknowledged before", call->queue, (long long)result->max_offset,
                  (long long)call->newest_before);
    if (!beyond)
        passed_over(pull, call->value, result->next_begin_offset);
    moves_to(pull, result->next_begin_offset);
}

static void on_pull_read(struct broker *broker, struct cold_read *read, int code)
{
    struct pull *pull = (struct pull *)read;
    struct get_message_result *result = &pull->result;
    const uint8_t *bytes[PULL_MAX];
    const struct workload_queue *queue = &workload_queues[pull->call->queue];
    if (!is_gone(pull)) {
        const uint8_t *at = read->bytes;
        pull->call->outcome = CALL_UNKNOWN;
        for (uint32_t i = 0; code == 0 && i < result->count; i++) {
            bytes[i] = at;
            at += result->items[i].size;
            if (message_record_is(slice_of(bytes[i], result->items[i].size), slice_of_text(queue->topic), queue->id, result->items[i].queue_offset,
                                  result->items[i].physical_offset))
                continue;
            message_store_distrust(&broker->store, slice_of_text(queue->topic), queue->id, result->items[i].queue_offset);
            result->next_begin_offset = result->items[i].queue_offset;
            result->count = i;
        }
        if (code == 0)
            pulled(pull, bytes);
        else if (code == ERROR_DAMAGED)
            world.stats->pulls_damaged++;
    }
    cold_read_free(read);
    free(pull);
}

static void pull_messages(struct machine *machine)
{
    struct pull *pull = calloc(1, sizeof *pull);
    struct client_call *call = new_call(machine, CALL_PULL);
    assert(pull != NULL);
    pull->machine = machine;
    pull->call = call;
    pull->decides = machine->replica.accepting && !replica_in_doubt(&machine->replica);
    call->queue = (int)chance(WORKLOAD_TARGETS);
    call->newest_before = newest_acknowledged[call->queue].offset;
    call->newest_of = newest_acknowledged[call->queue].incarnation;
    call->incarnation = checker_incarnation(call->queue);
    pull->incarnation = checker_incarnation_of(machine, call->queue);
    pull->ahead = machine->broker.store.dispatched_offset < machine->broker.store.recovered_position;
    /* The group goes on from where it is, or somebody reads anew what is old. */
    call->client = chance_of(500);
    call->value = call->client != 0 ? read_up_to[call->queue] : (int64_t)chance((uint64_t)read_up_to[call->queue] + 1);
    const struct workload_queue *queue = &workload_queues[call->queue];
    struct message_store *store = &machine->broker.store;
    struct get_message_result *result = &pull->result;
    world.stats->pulls++;
    message_store_get_message(store, slice_of_text(queue->topic), queue->id, call->value, 1 + (int32_t)chance(PULL_MAX), NULL, result);
    if (is_gone(pull)) {
        free(pull);
        return;
    }
    if (result->status != GET_MESSAGE_FOUND) {
        pulled_nothing(pull);
        free(pull);
        return;
    }
    /* What is in memory is served as it is there; where a disk has done something to it, that would be no longer what was written. */
    if (machine->damaged_count > 0 || chance_of(500)) {
        pull->read.kind = COLD_READ_PULL;
        pull->read.done = on_pull_read;
        pull->read.count = result->count;
        for (uint32_t i = 0; i < result->count; i++) {
            pull->read.items[i].physical_offset = result->items[i].physical_offset;
            pull->read.items[i].size = result->items[i].size;
        }
        if (cold_read_start(machine->broker.cold_reads, &pull->read) != 0)
            free(pull);
        return;
    }
    const uint8_t *bytes[PULL_MAX];
    bool complete = true;
    for (uint32_t i = 0; i < result->count && complete; i++) {
        bytes[i] = store->log.at(store->log.context, result->items[i].physical_offset, result->items[i].size);
        complete = bytes[i] != NULL;
    }
    call->outcome = CALL_UNKNOWN;
    if (complete && !is_gone(pull))
        pulled(pull, bytes);
    free(pull);
}

static void lock_or_unlock(struct machine *machine, bool lock)
{
    struct client_call *call = new_call(machine, lock ? CALL_LOCK : CALL_UNLOCK);
    struct remoting_writer writer;
    char body[200];
    call->slot = (int)chance(LOCK_QUEUES);
    call->client = (int)chance(LOCK_CLIENTS);
    if (!lock) {
        locks[call->slot].released_at[call->client] = world.now;
        if (locks[call->slot].owner == call->client)
            locks[call->slot].owner = -1;
    }
    int size = snprintf(body, sizeof body,
                        "{\"consumerGroup\":\"" LOCK_GROUP "\",\"clientId\":\"c%d\",\"mqSet\":[{\"topic\":\"orders\",\"brokerName\":\"b\",\"queueId\":%d}]}",
                        call->client, call->slot);
    begin(&writer, lock ? LOCK : UNLOCK, false);
    remoting_writer_body(&writer);
    buffer_append(&frame, body, (size_t)size);
    submit(machine, &writer, call);
}

/* ---- topics and groups ---- */

/* Commits that nobody waits for may be dropped as soon as a topic is to go, and then it may stay. */
static void forget_oneway(const char *topic)
{
    for (int slot = 0; slot < WORKLOAD_SLOTS; slot++)
        slots[slot].oneway = strcmp(workload_queues[slot % WORKLOAD_TARGETS].topic, topic) == 0 ? 0 : slots[slot].oneway;
}

/* One that nobody uses, or one that clients send to and read from. */
static void change_topic(struct machine *machine)
{
    bool used = chance_of(400);
    bool create = chance_of(used ? 300 : 650);
    int queue = WORKLOAD_TARGETS - 1 - (used ? (int)chance(3) : 0);
    struct client_call *call = new_call(machine, used && !create ? CALL_DELETION : CALL_METADATA);
    struct remoting_writer writer;
    char name[24];
    if (used)
        snprintf(name, sizeof name, "%s", workload_queues[queue].topic);
    else
        snprintf(name, sizeof name, "spare-%d", (int)chance(6));
    call->queue = queue;
    call->incarnation = checker_incarnation(queue);
    call->was_there = checker_topic_exists(queue);
    if (call->kind == CALL_DELETION)
        forget_oneway(name);
    begin(&writer, create ? CREATE_TOPIC : DELETE_TOPIC, false);
    remoting_writer_ext_text(&writer, "topic", name);
    if (create) {
        remoting_writer_ext_text(&writer, "defaultTopic", TOPIC_AUTO_CREATE);
        remoting_writer_ext_i64(&writer, "readQueueNums", (used ? 4 : 1) + (int64_t)chance(8));
        remoting_writer_ext_i64(&writer, "writeQueueNums", (used ? 4 : 1) + (int64_t)chance(8));
        remoting_writer_ext_i64(&writer, "perm", 6);
        remoting_writer_ext_text(&writer, "topicFilterType", "SINGLE_TAG");
        remoting_writer_ext_i64(&writer, "topicSysFlag", 0);
        remoting_writer_ext_bool(&writer, "order", chance_of(500));
    }
    world.stats->metadata++;
    submit(machine, &writer, call);
}

static void change_group(struct machine *machine)
{
    struct client_call *call = new_call(machine, CALL_METADATA);
    struct remoting_writer writer;
    char text[160];
    int which = (int)chance(6);
    if (chance_of(650)) {
        int size = snprintf(text, sizeof text, "{\"groupName\":\"spare-%d\",\"consumeEnable\":true,\"retryQueueNums\":1,\"retryMaxTimes\":%d}", which,
                            (int)chance(16));
        begin(&writer, CREATE_GROUP, false);
        remoting_writer_body(&writer);
        buffer_append(&frame, text, (size_t)size);
    } else {
        snprintf(text, sizeof text, "spare-%d", which);
        begin(&writer, DELETE_GROUP, false);
        remoting_writer_ext_text(&writer, "groupName", text);
        remoting_writer_ext_bool(&writer, "cleanOffset", true);
    }
    world.stats->metadata++;
    submit(machine, &writer, call);
}

/* ---- answers ---- */

static void sent(struct client_call *call, const struct remoting_command *answer)
{
    struct message_host host;
    if (!message_id_parse(remoting_ext(answer, "msgId"), &host, &call->physical_offset) ||
        !slice_to_i64(remoting_ext(answer, "queueOffset"), &call->queue_offset))
        violation(call->node, "call %llu is answered with 0, but without place", (unsigned long long)call->number);
    acknowledged++;
    checker_acknowledged(call);
    if (call->incarnation == call->newest_of && call->queue_offset <= call->newest_before && !checker_loss_excused(0))
        violation(call->node, "call %llu is acknowledged at offset %lld, but another one at %lld before it was sent", (unsigned long long)call->number,
                  (long long)call->queue_offset, (long long)call->newest_before);
    if (call->incarnation < call->newest_of && !checker_loss_excused(0))
        violation(call->node, "call %llu is a message of a topic that was deleted before it was sent", (unsigned long long)call->number);
    if (call->incarnation > newest_acknowledged[call->stored].incarnation || call->queue_offset > newest_acknowledged[call->stored].offset) {
        newest_acknowledged[call->stored].offset = call->queue_offset;
        newest_acknowledged[call->stored].incarnation = call->incarnation;
    }
    if (call->kind == CALL_HALF && chance_of(850))
        world_at(world.now + chance_skewed(3 * SECOND), on_decision, 0, 0, NULL, call->number);
}

static void decided(struct client_call *call)
{
    struct client_call *half = calls[call->half];
    call->acknowledged_at = world.now;
    if (call->commits)
        half->commit_acknowledged_at = world.now;
    else
        half->rollback_acknowledged_at = world.now;
    if (half->commit_acknowledged_at != 0 && half->rollback_acknowledged_at != 0 && !checker_loss_excused(0))
        violation(call->node, "call %llu, a half message, is answered to be committed and to be rolled back", (unsigned long long)half->number);
    if (chance_of(100))
        decide_later(half->number); /* asked again */
}

static void locked(struct client_call *call, struct slice body)
{
    char text[16];
    int size = snprintf(text, sizeof text, "\"queueId\":%d", call->slot);
    if (memmem(body.data, body.size, text, (size_t)size) == NULL)
        return;
    int owner = locks[call->slot].owner;
    if (locks[call->slot].released_at[call->client] >= call->sent_at)
        return; /* it has let go meanwhile */
    if (!may_know_all(world.machines[call->node]))
        return; /* a renewal without a record, of what it has let go at another leader's */
    if (owner >= 0 && owner != call->client && world.now < locks[call->slot].until && !checker_loss_excused(0))
        violation(call->node, "queue %d is locked for client %d, while client %d trusts its lock", call->slot, call->client, owner);
    locks[call->slot].owner = call->client;
    locks[call->slot].until = call->sent_at + LOCK_TRUST;
}

/* The log holds it, or there was no such topic at some moment since it was asked for. */
static void deleted(struct client_call *call)
{
    const char *topic = workload_queues[call->queue].topic;
    if (call->was_there && checker_incarnation(call->queue) == call->incarnation && !checker_loss_excused(0))
        violation(call->node, "call %llu, the deletion of %s, is acknowledged, and nothing was deleted", (unsigned long long)call->number, topic);
    for (int slot = 0; slot < WORKLOAD_SLOTS; slot++) {
        if (strcmp(workload_queues[slot % WORKLOAD_TARGETS].topic, topic) == 0)
            slots[slot].removed = checker_offset_removed(slot);
    }
}

static void check_offset(const struct client_call *call, int64_t offset)
{
    int queue = call->slot % WORKLOAD_TARGETS;
    if (!may_know_all(world.machines[call->node]) || checker_loss_excused(0))
        return;
    bool same = checker_incarnation(queue) == call->incarnation;
    if ((same && call->value > 0 && offset < call->value) || offset > slots[call->slot].sent)
        violation(call->node, "an offset is answered as %lld: %lld was acknowledged before, or taken by this leader, %lld is the newest that was sent",
                  (long long)offset, (long long)call->value, (long long)slots[call->slot].sent);
    if (offset > 0 && offset <= call->removed)
        violation(call->node, "an offset is answered as %lld: those up to %lld were of a topic whose deletion was acknowledged before", (long long)offset,
                  (long long)call->removed);
}

static void acknowledge(struct client_call *call, const struct remoting_command *answer)
{
    int64_t offset;
    call->outcome = CALL_ACKNOWLEDGED;
    call->acknowledged_at = world.now;
    world.stats->acknowledged++;
    switch (call->kind) {
    case CALL_PLAIN:
    case CALL_DELAYED:
    case CALL_HALF:
        sent(call, answer);
        break;
    case CALL_END:
        decided(call);
        break;
    case CALL_OFFSET:
        /* Of what was committed before a deletion took effect nothing is left. */
        if (call->value > slots[call->slot].floor && call->incarnation == checker_incarnation(call->slot % WORKLOAD_TARGETS)) {
            slots[call->slot].floor = call->value;
            slots[call->slot].floor_at = world.now;
        }
        break;
    case CALL_QUERY:
        if (slice_to_i64(remoting_ext(answer, "offset"), &offset))
            check_offset(call, offset);
        break;
    case CALL_DELETION:
        deleted(call);
        break;
    case CALL_LOCK:
        locked(call, answer->body);
        break;
    default:
        break;
    }
}

void workload_answer(struct machine *machine, uint64_t number, struct slice answer)
{
    static uint8_t copy[4096];
    struct client_call *call = workload_at(number);
    struct remoting_command command;
    assert(call != NULL);
    if (machine->disk.dead || call->life != machine->life || call->oneway)
        return; /* it died before it could answer */
    if (call->outcome != CALL_WAITS)
        violation(call->node, "call %llu is answered twice", (unsigned long long)call->number);
    call->outcome = CALL_UNKNOWN;
    if (answer.size > 0) {
        assert(answer.size <= sizeof copy);
        memcpy(copy, answer.data, answer.size);
        if (remoting_command_decode(copy, answer.size, &command) != 0 || !remoting_is_response(&command))
            violation(call->node, "call %llu is answered with something undecodable", (unsigned long long)call->number);
        if (command.code == 0) {
            acknowledge(call, &command);
            return;
        }
        if (command.code == RESPONSE_QUERY_NOT_FOUND && call->kind == CALL_QUERY)
            check_offset(call, -1);
        if (command.code == RESPONSE_TOPIC_NOT_EXIST && call->kind <= CALL_HALF) {
            call->refused = true;
            world.stats->refused_sends++;
            if (call->committed != 0)
                violation(call->node, "call %llu is refused, as there is no such topic, and is committed", (unsigned long long)call->number);
        }
        TRACE(2, call->node, "call %llu of kind %d: %d %.*s", (unsigned long long)number, call->kind, command.code, (int)command.remark.size,
              (const char *)command.remark.data);
    }
    world.stats->unknown++;
    if (call->kind == CALL_END && chance_of(800))
        decide_later(call->half);
}

/* ---- the clients ---- */

void workload_call(struct machine *machine)
{
    if (!machine->replica.accepting || machine->stopping) {
        if (machine_runs(machine) && !machine->stopping) {
            pull_messages(machine);
            return;
        }
        world.stats->refused++;
        return;
    }
    /* The group's time is measured, not by what luck clients want to send: half of their calls may ask once more for what is decided already. */
    sends_now = world.sends_wanted && !sends_now;
    if (sends_now) {
        send_message(machine, CALL_PLAIN);
        return;
    }
    if (decision_count > 0 && chance_of(500)) {
        end_transaction(machine);
        return;
    }
    unsigned kind = (unsigned)chance(1000);
    if (kind < 400)
        send_message(machine, CALL_PLAIN);
    else if (kind < 490)
        send_message(machine, CALL_DELAYED);
    else if (kind < 590)
        send_message(machine, CALL_HALF);
    else if (kind < 660)
        pull_messages(machine);
    else if (kind < 780)
        commit_offset(machine);
    else if (kind < 840)
        query_offset(machine);
    else if (kind < 900)
        lock_or_unlock(machine, chance_of(700));
    else if (kind < 940)
        change_topic(machine);
    else if (kind < 970)
        change_group(machine);
    else
        send_raw(machine);
}

static void on_client(const struct world_event *event)
{
    int leaders[WORLD_NODES_MAX];
    uint64_t count = 0;
    (void)event;
    if (!running)
        return;
    for (int i = 1; i <= world.nodes; i++) {
        if (machine_runs(world.machines[i]) && world.machines[i]->replica.accepting)
            leaders[count++] = i;
    }
    if (count > 0) {
        int chosen = leaders[chance(count)];
        int other = 1 + (int)chance((uint64_t)world.nodes);
        if (chance_of(100) && machine_runs(world.machines[other]))
            chosen = other; /* a follower is asked for messages only */
        struct machine *machine = world.machines[chosen];
        machine->client_calls += 1 + (chance_of(300) ? chance_skewed(40) : 0);
        if (machine->client_calls > 200)
            machine->client_calls = 200;
        machine_wake(machine, world.now + chance(50));
    }
    uint64_t gap = world.calm && world.send_gap_us > 50000 ? 50000 : world.send_gap_us;
    if (world.sends_wanted && gap > 20000)
        gap = 20000; /* the group's time is measured, not theirs */
    world_at(world.now + 1 + chance(2 * gap), on_client, 0, 0, NULL, 0);
}

void workload_begin(void)
{
    if (running)
        return;
    running = true;
    world_at(world.now + 1000, on_client, 0, 0, NULL, 0);
}

void workload_end(void)
{
    running = false;
    for (int i = 1; i <= world.nodes; i++)
        world.machines[i]->client_calls = 0;
}
