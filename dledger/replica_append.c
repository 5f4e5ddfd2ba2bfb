/* From reserve to submit, on a leader: what was promised a place waits in the gather buffer, its requests in a list, oldest first. */
#include "dledger/replica_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "store/seeded_bug.h"

static void pending_add(struct replica *replica, struct append_entry_request *request)
{
    request->next = NULL;
    if (replica->pending_tail == NULL)
        replica->pending_head = request;
    else
        replica->pending_tail->next = request;
    replica->pending_tail = request;
}

void replica_finish_first(struct replica *replica, int code)
{
    struct append_entry_request *request = replica->pending_head;

    replica->pending_head = request->next;
    if (replica->pending_head == NULL)
        replica->pending_tail = NULL;
    request->code = code;
    request->done(request);
}

void replica_fail_pending(struct replica *replica, int code)
{
    struct append_entry_request *last = replica->pending_tail;

    /* done() may append again; only those that wait now are failed. */
    while (replica->pending_head != NULL) {
        bool end = replica->pending_head == last;
        replica_finish_first(replica, code);
        if (end)
            break;
    }
}

void replica_drop_gathered(struct replica *replica)
{
    buffer_clear(&replica->gather);
    replica->gather_count = 0;
    replica->reserved_size = 0;
}

uint64_t replica_kept_for_trim(const struct replica *replica)
{
    return REPLICA_KEPT_FOR_TRIM + 2 * message_store_list_size(replica->store, REPLICA_TRIM_LISTED);
}

bool replica_has_room(const struct replica *replica, uint64_t bytes, uint32_t entries, uint32_t largest)
{
    const struct ledger *ledger = &replica->ledger;
    uint64_t end = replica->gather_count == 0 ? ledger->end_position : replica->gather_end;
    uint64_t fillers = bytes / ledger->data.file_size + 1; /* an entry that does not fit behind the others goes to the next segment */

    return !replica->reserve_failed || (end + bytes + fillers * (largest + LEDGER_BLANK_SIZE) <= ledger->reserved_end &&
                                        replica->gather_count + (uint64_t)entries <= ledger_entries_ahead(ledger));
}

/* trim: one of the records that say what may be deleted. */
static uint8_t *reserve(struct replica *replica, size_t body_size, bool trim, int64_t *physical_offset, int *code)
{
    struct ledger *ledger = &replica->ledger;
    uint32_t size = (uint32_t)(LEDGER_ENTRY_HEADER_SIZE + body_size);
    uint8_t *room;

    if (!replica->accepting) {
        *code = replica->phase == REPLICA_FAILED ? ERROR_IO : raft_driver_leader(&replica->driver) == 0 ? ERROR_NO_LEADER : ERROR_NOT_LEADER;
        return NULL;
    }
    if (body_size > LEDGER_ENTRY_SIZE_MAX - LEDGER_ENTRY_HEADER_SIZE || size + LEDGER_BLANK_SIZE > ledger->data.file_size) {
        *code = ERROR_TOO_LARGE;
        return NULL;
    }
    if (replica->apply_stalled) {
        *code = ERROR_NO_SPACE;
        return NULL;
    }
    if (replica->gather.size >= REPLICA_GATHER_MAX + (trim ? REPLICA_TRIM_LIST_MAX : 0) || replica->gather_count >= REPLICA_IN_FLIGHT_MAX) {
        *code = ERROR_BUSY;
        return NULL;
    }
    if (replica->gather_count == 0) {
        replica->gather_end = ledger->end_position;
        replica->gather_chain = ledger->last_chain;
    }
    replica->reserved_position = ledger_place(ledger, replica->gather_end, size);
    if (replica->reserve_failed && (replica->reserved_position + size + LEDGER_BLANK_SIZE + (trim ? 0 : replica_kept_for_trim(replica)) > ledger->reserved_end ||
                                    replica->gather_count + 1ull + (trim ? 0 : REPLICA_KEPT_FOR_TRIM_ENTRIES) > ledger_entries_ahead(ledger))) {
        *code = ERROR_NO_SPACE;
        return NULL;
    }
    if (replica->gather_count == replica->gather_sizes_capacity) {
        uint32_t capacity = replica->gather_sizes_capacity == 0 ? 1024 : replica->gather_sizes_capacity * 2;
        uint32_t *sizes = realloc(replica->gather_sizes, capacity * sizeof *sizes);
        if (sizes == NULL) {
            *code = ERROR_NO_MEMORY;
            return NULL;
        }
        replica->gather_sizes = sizes;
        replica->gather_sizes_capacity = capacity;
    }
    room = buffer_reserve(&replica->gather, size);
    if (room == NULL) {
        replica->gather.failed = false;
        *code = ERROR_NO_MEMORY;
        return NULL;
    }
    replica->reserved_size = size;
    *physical_offset = (int64_t)(replica->reserved_position + LEDGER_ENTRY_HEADER_SIZE);
    *code = 0;
    return room + LEDGER_ENTRY_HEADER_SIZE;
}

uint8_t *replica_reserve(struct replica *replica, size_t body_size, int64_t *physical_offset, int *code)
{
    return reserve(replica, body_size, false, physical_offset, code);
}

uint8_t *replica_reserve_for_trim(struct replica *replica, size_t body_size, int64_t *physical_offset, int *code)
{
    return reserve(replica, body_size, true, physical_offset, code);
}

void replica_append(struct replica *replica, enum ledger_entry_kind kind, struct append_entry_request *request)
{
    raft_index index = raft_driver_last(&replica->driver) + 1 + replica->gather_count;
    raft_index uncommitted = index - replica->driver.commit;
    struct ledger_entry entry = {
        .index = index - 1,
        .term = replica->leadership_term,
        .position = replica->reserved_position,
        .kind = (uint8_t)kind,
        .uncommitted = uncommitted < LEDGER_UNCOMMITTED_MAX ? (uint32_t)uncommitted : LEDGER_UNCOMMITTED_MAX,
        .body_size = (uint32_t)(replica->reserved_size - LEDGER_ENTRY_HEADER_SIZE),
    };

    assert(replica->accepting && replica->reserved_size > 0);
    replica->gather_chain = ledger_entry_seal(&entry, replica->gather.data + replica->gather.size, replica->gather_chain);
    replica->gather.size += replica->reserved_size;
    replica->gather_sizes[replica->gather_count++] = (uint32_t)replica->reserved_size;
    replica->gather_end = replica->reserved_position + replica->reserved_size;
    replica->reserved_size = 0;
    if (replica->gather_count == 1) /* one look at the clock for all that gathers with it; nobody may wait for the first of a batch */
        replica->gather_started_us = replica_now_us(replica);
    if (request != NULL) {
        request->index = index - 1;
        request->term = entry.term;
        request->position = (int64_t)entry.position;
        request->deadline_us = replica->gather_started_us + replica->options.max_wait_ms * 1000ull;
        pending_add(replica, request);
    }
}

/* The rule that lets batches form by themselves: the next round leaves when the one before has committed, unless much has gathered or that
 * one takes long (a far peer, a slow disk). */
bool replica_may_submit(const struct replica *replica)
{
    raft_index last = raft_driver_last(&replica->driver);
    raft_index in_flight = last - replica->driver.commit;

    if (replica->gather_count == 0 || !replica->accepting)
        return false;
    if (replica->driver.commit >= replica->round_last)
        return true;
    if (in_flight + REPLICA_SUBMIT_MAX > REPLICA_IN_FLIGHT_MAX)
        return false;
    return replica->gather.size >= REPLICA_ROUND_BYTES || replica_now_us(replica) - replica->round_started_us >= REPLICA_ROUND_AGE_US;
}

/* What was gathered never reached the log: its requests are refused, and the queue offsets it was given are handed out again. */
static void refuse_gathered(struct replica *replica, int code)
{
    raft_index first = raft_driver_last(&replica->driver); /* DLedger index of the first gathered entry */
    struct append_entry_request **link = &replica->pending_head;
    struct append_entry_request *tail = NULL;
    struct append_entry_request *refused;
    const uint8_t *at = replica->gather.data;

    for (uint32_t i = 0; i < replica->gather_count; i++) {
        struct ledger_entry entry;
        struct message_dispatch dispatch;
        if (ledger_entry_decode(&entry, at) == 0 && entry.kind == LEDGER_ENTRY_MESSAGE &&
            message_dispatch_decode(slice_of(at + LEDGER_ENTRY_HEADER_SIZE, entry.body_size), &dispatch) == 0) {
            struct consume_queue *queue = message_store_queue(replica->store, dispatch.topic, dispatch.queue_id, false, NULL);
            if (queue != NULL && dispatch.queue_offset < queue->append_offset)
                queue->append_offset = dispatch.queue_offset;
        }
        at += replica->gather_sizes[i];
    }
    replica_drop_gathered(replica);
    while (*link != NULL && (*link)->index < first) {
        tail = *link;
        link = &(*link)->next;
    }
    refused = *link;
    *link = NULL;
    replica->pending_tail = tail;
    while (refused != NULL) {
        struct append_entry_request *next = refused->next;
        refused->code = code;
        refused->done(refused);
        refused = next;
    }
}

bool replica_submit(struct replica *replica)
{
    size_t size = 0;
    uint32_t count = 0;
    uint64_t end;
    int rv;

    if (replica->gather_count <= REPLICA_SUBMIT_MAX) {
        count = replica->gather_count;
        size = replica->gather.size;
        end = replica->gather_end;
    } else {
        for (; count < REPLICA_SUBMIT_MAX; count++)
            size += replica->gather_sizes[count];
        const uint8_t *last = replica->gather.data + size - replica->gather_sizes[count - 1];
        end = load_u64(last + 24) + replica->gather_sizes[count - 1];
    }
    /* Behind the step there is no way back, so the room must be there before it. */
    rv = raft_driver_make_room(&replica->driver, end + LEDGER_BLANK_SIZE, count);
    if (rv == ERROR_BUSY)
        return false; /* the reservation that comes back wakes the loop */
    if (rv != 0) {
        replica_note_room(replica);
        refuse_gathered(replica, ERROR_NO_SPACE);
        return false;
    }
    rv = raft_driver_submit(&replica->driver, replica->gather.data, size, count);
    if (rv != 0) {
        /* Leadership is being transferred or was lost. Queue offsets that were given out behind the log's end are taken back only when the whole
         * log is applied, so that none in flight is used again. */
        replica_drop_gathered(replica);
        replica->accepting = false;
        replica->accept_from = raft_driver_last(&replica->driver);
        replica_fail_pending(replica, ERROR_LEADERSHIP_LOST);
        return false;
    }
    if (count < replica->gather_count) {
        memmove(replica->gather.data, replica->gather.data + size, replica->gather.size - size);
        memmove(replica->gather_sizes, replica->gather_sizes + count, (replica->gather_count - count) * sizeof *replica->gather_sizes);
    }
    replica->gather.size -= size;
    replica->gather_count -= count;
    replica->round_last = raft_driver_last(&replica->driver);
    replica->round_started_us = replica_now_us(replica);
    replica->announce_due_us = 0;
    return true;
}

int replica_submit_configuration(struct replica *replica, struct slice configuration, struct append_entry_request *request)
{
    struct ledger *ledger = &replica->ledger;
    raft_index index = raft_driver_last(&replica->driver) + 1;
    raft_index uncommitted = index - replica->driver.commit;
    struct ledger_entry entry = {
        .index = index - 1,
        .term = replica->leadership_term,
        .kind = LEDGER_ENTRY_CONFIGURATION,
        .uncommitted = uncommitted < LEDGER_UNCOMMITTED_MAX ? (uint32_t)uncommitted : LEDGER_UNCOMMITTED_MAX,
        .body_size = (uint32_t)configuration.size,
    };
    uint32_t size = ledger_entry_size(&entry);
    struct buffer run;
    int rv = ERROR_NO_MEMORY;

    assert(replica->accepting && replica->gather_count == 0);
    if (SEEDED_BUG(GUARD_11)) { /* gathered, as any other entry */
        int64_t offset;
        uint8_t *room = replica_reserve(replica, configuration.size, &offset, &rv);
        if (room == NULL)
            return rv;
        memcpy(room, configuration.data, configuration.size);
        replica_append(replica, LEDGER_ENTRY_CONFIGURATION, request);
        return 0;
    }
    entry.position = ledger_place(ledger, ledger->end_position, size);
    buffer_init(&run, 0);
    if (buffer_reserve(&run, size) != NULL) {
        memcpy(run.data + LEDGER_ENTRY_HEADER_SIZE, configuration.data, configuration.size);
        ledger_entry_seal(&entry, run.data, ledger->last_chain);
        rv = raft_driver_make_room(&replica->driver, entry.position + size + LEDGER_BLANK_SIZE, 1);
        if (rv == 0) {
            raft_driver_restart_quorum_check(&replica->driver);
            rv = raft_driver_submit(&replica->driver, run.data, size, 1);
        }
    }
    buffer_close(&run);
    if (rv != 0)
        return rv;
    request->index = index - 1;
    request->term = entry.term;
    request->position = (int64_t)entry.position;
    request->deadline_us = replica_now_us(replica) + replica->options.max_wait_ms * 1000ull;
    pending_add(replica, request);
    replica->round_last = index;
    replica->round_started_us = replica_now_us(replica);
    replica->announce_due_us = 0;
    return 0;
}
