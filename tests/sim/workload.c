#include "tests/sim/workload.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct workload_queue workload_queues[WORKLOAD_QUEUES] = {{"orders", 0}, {"orders", 1},  {"orders", 2}, {"orders", 3},
                                                                {"bills", 0},  {"bills", 16}, {"rare", 0}};

static struct client_call **calls;
static size_t call_count, call_capacity;
static uint64_t acknowledged;
static bool running;

void workload_init(void)
{
    calls = NULL;
    call_count = call_capacity = 0;
    acknowledged = 0;
    running = false;
}

void workload_close(void)
{
    for (size_t i = 0; i < call_count; i++)
        free(calls[i]);
    free(calls);
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

/* ---- bodies: made from a number, so that each byte can be checked ---- */

static void fill_body(const struct client_call *call, uint8_t *body)
{
    uint64_t state = call->body_seed;
    store_u64(body, call->number);
    for (uint32_t i = 8; i < call->body_size; i++) {
        if (i % 8 == 0)
            state = (state ^ state >> 29) * 0xBF58476D1CE4E5B9u + 1;
        body[i] = (uint8_t)(state >> i % 8 * 8);
    }
}

struct client_call *workload_of_message(struct slice bytes)
{
    static uint8_t expected[1 << 17];
    struct message_record record;
    if (message_record_decode(bytes, true, &record) != 0 || record.body.size < 8 || record.body.size > sizeof expected)
        return NULL;
    struct client_call *call = workload_at(load_u64(record.body.data));
    if (call == NULL || call->metadata || call->body_size != record.body.size)
        return NULL;
    fill_body(call, expected);
    return memcmp(expected, record.body.data, record.body.size) == 0 ? call : NULL;
}

/* ---- calls ---- */

static struct client_call *new_call(struct machine *machine)
{
    if (call_count == call_capacity) {
        call_capacity = call_capacity == 0 ? 1024 : call_capacity * 2;
        calls = realloc(calls, call_capacity * sizeof *calls);
        assert(calls != NULL);
    }
    struct client_call *call = calloc(1, sizeof *call);
    assert(call != NULL);
    call->number = call_count;
    call->node = machine->id;
    call->life = machine->life;
    calls[call_count++] = call;
    world.stats->sends++;
    return call;
}

static void on_done(struct append_entry_request *request)
{
    struct client_call *call = (struct client_call *)request;
    struct machine *machine = world.machines[call->node];
    if (machine->disk.dead || call->life != machine->life)
        return; /* it died before it could answer */
    if (call->outcome != CALL_WAITS) {
        if (world.options.bug == BUG_EARLY_ANSWER)
            return;
        violation(call->node, "call %llu is answered twice", (unsigned long long)call->number);
    }
    if (request->code != 0) {
        call->outcome = CALL_UNKNOWN;
        world.stats->unknown++;
        return;
    }
    acknowledged++;
    world.stats->acknowledged++;
    checker_acknowledged(call);
}

static void append(struct machine *machine, enum ledger_entry_kind kind, struct client_call *call)
{
    call->request.done = on_done;
    replica_append(&machine->replica, kind, &call->request);
    if (world.options.bug == BUG_EARLY_ANSWER && chance_of(20)) {
        call->outcome = CALL_ACKNOWLEDGED;
        call->acknowledged_at = world.now;
    }
}

static void refused(int code)
{
    world.stats->refused++;
    world.stats->full_disk_refusals += code == ERROR_NO_SPACE;
}

static void send_record(struct machine *machine)
{
    int64_t offset;
    int code;
    uint8_t *room = replica_reserve(&machine->replica, TABLE_RECORD_SIZE, &offset, &code);
    if (room == NULL) {
        refused(code);
        return;
    }
    struct client_call *call = new_call(machine);
    call->metadata = true;
    table_record_encode(room, (unsigned)chance(TABLE_KEYS), chance(UINT64_MAX), call->number);
    world.stats->metadata++;
    append(machine, LEDGER_ENTRY_METADATA, call);
}

static void send_message(struct machine *machine)
{
    int place = chance_of(10) ? WORKLOAD_QUEUES - 1 : (int)chance(WORKLOAD_QUEUES - 1);
    const struct workload_queue *target = &workload_queues[place];
    struct error error = {0};
    struct consume_queue *queue = message_store_queue(&machine->store, slice_of_text(target->topic), target->id, true, &error);
    uint8_t properties[64];
    char key[24];
    int64_t offset;
    int code;
    static uint8_t body[1 << 17];
    uint32_t body_size = 8 + (uint32_t)(chance_of(900) ? chance(200) : chance_skewed(world.body_max));

    if (queue == NULL) {
        refused(error.code);
        return;
    }
    workload_key(call_count, key);
    int properties_size = snprintf((char *)properties, sizeof properties, "UNIQ_KEY\001%s\002TAGS\001t%d", key, (int)chance(3));
    struct message_record record = {
        .queue_id = target->id,
        .topic = slice_of_text(target->topic),
        .store_timestamp_ms = env_now_ms(&machine->env),
        .born_timestamp_ms = env_now_ms(&machine->env),
        .properties = slice_of(properties, (size_t)properties_size),
        .body = slice_of(body, body_size),
    };
    message_host_parse(SLICE_LITERAL("127.0.0.1:1"), &record.born_host);
    message_host_parse(SLICE_LITERAL("127.0.0.1:2"), &record.store_host);
    uint8_t *room = replica_reserve(&machine->replica, message_record_size(&record), &offset, &code);
    if (room == NULL) {
        refused(code);
        return;
    }
    struct client_call *call = new_call(machine);
    call->queue = place;
    call->body_size = body_size;
    call->body_seed = chance(UINT64_MAX);
    fill_body(call, body);
    if (world.options.bug == BUG_QUEUE_SHIFT && chance_of(5))
        queue->append_offset++;
    record.physical_offset = offset;
    record.queue_offset = call->queue_offset = queue->append_offset++;
    message_record_encode(&record, slice_of(NULL, 0), room);
    append(machine, LEDGER_ENTRY_MESSAGE, call);
}

/* What DLedger's own client appends, and nobody here waits for: a record that says it is the queue's next message, and is none. */
static void send_raw(struct machine *machine)
{
    const struct workload_queue *target = &workload_queues[chance(WORKLOAD_QUEUES)];
    const struct consume_queue *queue = message_store_queue(&machine->store, slice_of_text(target->topic), target->id, false, NULL);
    struct message_record record = {
        .queue_id = target->id,
        .queue_offset = queue == NULL ? 0 : queue->append_offset,
        .topic = slice_of_text(target->topic),
        .store_timestamp_ms = env_now_ms(&machine->env),
        .body = SLICE_LITERAL("raw"),
    };
    int64_t offset;
    int code;
    message_host_parse(SLICE_LITERAL("127.0.0.1:1"), &record.born_host);
    message_host_parse(SLICE_LITERAL("127.0.0.1:2"), &record.store_host);
    uint8_t *room = replica_reserve(&machine->replica, message_record_size(&record), &offset, &code);
    if (room == NULL) {
        refused(code);
        return;
    }
    record.physical_offset = offset;
    message_record_encode(&record, slice_of(NULL, 0), room);
    world.stats->raw++;
    replica_append(&machine->replica, LEDGER_ENTRY_RAW, NULL);
}

void workload_call(struct machine *machine)
{
    if (!machine->replica.accepting || machine->stopping) {
        world.stats->refused++;
        return;
    }
    unsigned kind = (unsigned)chance(1000);
    if (kind < 80)
        send_record(machine);
    else if (kind < 110)
        send_raw(machine);
    else
        send_message(machine);
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
        struct machine *machine = world.machines[leaders[chance(count)]];
        machine->client_calls += 1 + (chance_of(100) ? chance_skewed(40) : 0);
        if (machine->client_calls > 200)
            machine->client_calls = 200;
        machine_wake(machine, world.now + chance(50));
    }
    uint64_t gap = world.calm && world.send_gap_us > 50000 ? 50000 : world.send_gap_us;
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
