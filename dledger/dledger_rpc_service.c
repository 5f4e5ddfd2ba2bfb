/* A transfer, asked of the leader:
 *
 *   1 target, term and gap are checked, then the core is told (RAFT_TRANSFER); appends are refused from here on
 *   2 the core drops it when an election time-out passes; while we still lead it is told again
 *   3 another leader is known: the answer says whether it is the one that was wanted
 *
 * Asked of the target, DLedger's "take leadership": it waits until its log has the index that was named and stands for election at once, which
 * overrides a living leader. Elections are safe whenever they are held; whether one is won decides the log.
 */
#include "dledger/dledger_rpc_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dledger/replica_internal.h"
#include "proto/dledger_json.h"
#include "proto/remoting_command.h"

#define TRANSFER_STEP_US 10000u /* between two looks */

struct dledger_rpc_append {
    struct append_entry_request entry; /* first: done() gets it */
    struct dledger_rpc_service *service;
    struct dledger_rpc_append *next, **link;
    uint64_t connection;
    int32_t opaque;
    uint8_t serialize_type;
};

/* Where an answer goes. */
struct call {
    const struct remoting_command *command;
    const struct dledger_request *request;
    uint64_t connection;
    struct buffer *out;
};

/* Also while the core hides that we lead, because a transfer is under way. */
static bool leads(const struct replica *replica)
{
    return raft_driver_leads((struct raft_driver *)(uintptr_t)&replica->driver);
}

static struct slice leader_id(const struct replica *replica)
{
    int leader = leads(replica) ? (int)replica->id - 1 : replica_leader_member(replica);
    return leader >= 0 ? slice_of_text(replica->members[leader].id) : slice_of(NULL, 0);
}

/* As DLedgerServer answers exceptions: what was asked comes back, with the code and who leads. */
static struct dledger_response refusal(const struct replica *replica, const struct dledger_request *request, enum dledger_response_code code)
{
    return (struct dledger_response){
        .code = code,
        .group = request->group,
        .remote_id = request->remote_id,
        .local_id = request->local_id,
        .leader_id = leader_id(replica),
        .term = request->term,
    };
}

static struct dledger_response result(const struct replica *replica, enum dledger_response_code code, int64_t term)
{
    return (struct dledger_response){.code = code, .group = slice_of_text(replica->options.group), .leader_id = leader_id(replica), .term = term};
}

/* The remoting code says that the body is an answer; what happened stands in the body. */
static void begin_answer(struct remoting_writer *writer, struct buffer *out, uint8_t serialize_type, int32_t opaque)
{
    remoting_writer_begin_response(writer, out, serialize_type, DLEDGER_SUCCESS, opaque, NULL);
    remoting_writer_body(writer);
}

static int64_t current_term(const struct replica *replica)
{
    return (int64_t)replica_term(replica);
}

/* 0 = not a member. */
static uint64_t member_of(const struct replica *replica, struct slice id)
{
    return (uint64_t)(replica_place_of(replica, id) + 1);
}

/* ---- append ---- */

static void answer_later(struct dledger_rpc_service *service, uint64_t connection, struct buffer *out)
{
    if (!out->failed)
        service->answer(service->context, connection, buffer_slice(out));
    buffer_close(out);
}

static enum dledger_response_code append_outcome(int code)
{
    switch (code) {
    case 0:
        return DLEDGER_SUCCESS;
    case ERROR_LEADERSHIP_LOST:
        return DLEDGER_TERM_CHANGED;
    case ERROR_NO_SPACE:
        return DLEDGER_DISK_FULL;
    case ERROR_IO:
        return DLEDGER_DISK_ERROR;
    case ERROR_STOPPED:
        return DLEDGER_ILLEGAL_MEMBER_STATE;
    default:
        return DLEDGER_WAIT_QUORUM_ACK_TIMEOUT;
    }
}

static void on_appended(struct append_entry_request *entry)
{
    struct dledger_rpc_append *append = (struct dledger_rpc_append *)entry;
    struct dledger_rpc_service *service = append->service;
    struct dledger_response response = result(service->replica, append_outcome(entry->code), (int64_t)entry->term);
    struct remoting_writer writer;
    struct buffer out;

    buffer_init(&out, REMOTING_FRAME_MAX);
    begin_answer(&writer, &out, append->serialize_type, append->opaque);
    if (entry->code == 0)
        dledger_append_response_encode(&response, (int64_t)entry->index, entry->position, &out);
    else
        dledger_append_response_encode(&response, -1, -1, &out);
    remoting_writer_end(&writer, 0);
    answer_later(service, append->connection, &out);
    *append->link = append->next;
    if (append->next != NULL)
        append->next->link = append->link;
    service->append_count--;
    free(append);
}

/* DLEDGER_SUCCESS: it is on its way. */
static enum dledger_response_code start_append(struct dledger_rpc_service *service, const struct call *call)
{
    struct replica *replica = service->replica;
    struct slice body = call->request->body;
    struct dledger_rpc_append *append;
    int64_t offset;
    int code;
    uint8_t *room;

    if (!leads(replica))
        return DLEDGER_NOT_LEADER;
    if (raft_transferee(&replica->driver.raft) != 0)
        return DLEDGER_LEADER_TRANSFERRING;
    if (!replica->accepting)
        return DLEDGER_LEADER_NOT_READY;
    if (body.size == 0)
        return DLEDGER_REQUEST_WITH_EMPTY_BODYS;
    if (service->append_count >= DLEDGER_RPC_APPENDS_MAX)
        return DLEDGER_LEADER_PENDING_FULL;
    append = malloc(sizeof *append);
    if (append == NULL)
        return DLEDGER_INTERNAL_ERROR;
    room = replica_reserve(replica, body.size, &offset, &code);
    if (room == NULL) {
        free(append);
        return code == ERROR_BUSY        ? DLEDGER_LEADER_PENDING_FULL
               : code == ERROR_TOO_LARGE ? DLEDGER_UNEXPECTED_ARGUMENT
               : code == ERROR_NO_SPACE  ? DLEDGER_DISK_FULL
                                         : DLEDGER_INTERNAL_ERROR;
    }
    memcpy(room, body.data, body.size);
    *append = (struct dledger_rpc_append){
        .entry.done = on_appended,
        .service = service,
        .next = service->appends,
        .link = &service->appends,
        .connection = call->connection,
        .opaque = call->command->opaque,
        .serialize_type = call->command->serialize_type,
    };
    if (append->next != NULL)
        append->next->link = &append->next;
    service->appends = append;
    service->append_count++;
    replica_append(replica, LEDGER_ENTRY_RAW, &append->entry);
    return DLEDGER_SUCCESS;
}

/* ---- get ---- */

static enum dledger_response_code find_entry(const struct replica *replica, int64_t index, struct ledger_entry *entry, const uint8_t **bytes)
{
    if (!leads(replica))
        return DLEDGER_NOT_LEADER;
    if (index < 0 || (uint64_t)index >= replica->applied)
        return DLEDGER_INDEX_OUT_OF_RANGE;
    if (index < replica->ledger.begin_index)
        return DLEDGER_INDEX_LESS_THAN_LOCAL_BEGIN;
    *bytes = ledger_entry(&replica->ledger, (uint64_t)index, entry);
    return *bytes == NULL ? DLEDGER_INTERNAL_ERROR : DLEDGER_SUCCESS;
}

static void answer_get(struct dledger_rpc_service *service, const struct call *call, enum dledger_response_code code)
{
    struct replica *replica = service->replica;
    struct dledger_response response;
    struct remoting_writer writer;
    struct ledger_entry entry;
    const uint8_t *bytes = NULL;

    if (code == DLEDGER_SUCCESS)
        code = find_entry(replica, call->request->begin_index, &entry, &bytes);
    begin_answer(&writer, call->out, call->command->serialize_type, call->command->opaque);
    response = code == DLEDGER_SUCCESS ? result(replica, code, -1) : refusal(replica, call->request, code);
    if (code == DLEDGER_SUCCESS)
        dledger_get_response_encode(&response, &entry, bytes + LEDGER_ENTRY_HEADER_SIZE, call->out);
    else
        dledger_get_response_encode(&response, NULL, NULL, call->out);
    remoting_writer_end(&writer, 0);
}

/* ---- metadata ---- */

static void answer_metadata(struct dledger_rpc_service *service, const struct call *call, enum dledger_response_code code)
{
    struct replica *replica = service->replica;
    struct dledger_response response = code == DLEDGER_SUCCESS ? result(replica, code, -1) : refusal(replica, call->request, code);
    struct dledger_peer peers[DLEDGER_MEMBERS_MAX];
    struct remoting_writer writer;
    int count = 0;

    for (int i = 0; i < replica->member_count && code == DLEDGER_SUCCESS; i++) {
        if (replica->members[i].raft_id != 0)
            peers[count++] = (struct dledger_peer){slice_of_text(replica->members[i].id), slice_of_text(replica->members[i].address)};
    }
    begin_answer(&writer, call->out, call->command->serialize_type, call->command->opaque);
    dledger_metadata_response_encode(&response, peers, (size_t)count, call->out);
    remoting_writer_end(&writer, 0);
}

/* ---- transfer ---- */

/* How far a member is behind the end of the log; the leader knows. */
static uint64_t behind(const struct replica *replica, uint64_t member)
{
    struct raft *raft = (struct raft *)(uintptr_t)&replica->driver.raft;
    raft_index last = raft_driver_last(&replica->driver);
    raft_index match;

    if (raft_match_index(raft, member, &match) != 0 || match > last)
        return last;
    return last - match;
}

/* DLEDGER_SUCCESS: the transfer is on its way. */
static enum dledger_response_code start_transfer(struct dledger_rpc_service *service, const struct call *call)
{
    struct replica *replica = service->replica;
    const struct dledger_request *request = call->request;
    uint64_t from = member_of(replica, request->transfer_id);
    uint64_t to = member_of(replica, request->transferee_id);

    if (from == replica->id) {
        if (to == 0)
            return DLEDGER_UNKNOWN_MEMBER;
        if (request->term != current_term(replica))
            return DLEDGER_INCONSISTENT_TERM;
        if (!leads(replica))
            return DLEDGER_NOT_LEADER;
        if (to == replica->id)
            return DLEDGER_UNEXPECTED_ARGUMENT;
        if (behind(replica, to) >= DLEDGER_RPC_FALL_BEHIND_MAX)
            return DLEDGER_FALL_BEHIND_TOO_MUCH;
        if (service->transfer.out || raft_transferee(&replica->driver.raft) != 0)
            return DLEDGER_LEADER_TRANSFERRING;
    } else if (to == replica->id) {
        if (from == 0 || (int)from - 1 != replica_leader_member(replica))
            return DLEDGER_INCONSISTENT_LEADER;
        if (request->term != current_term(replica))
            return DLEDGER_INCONSISTENT_TERM;
        if (service->transfer.out)
            return DLEDGER_LEADER_TRANSFERRING;
    } else {
        return DLEDGER_UNEXPECTED_ARGUMENT;
    }
    service->transfer.out = true;
    service->transfer.connection = call->connection;
    service->transfer.opaque = call->command->opaque;
    service->transfer.serialize_type = call->command->serialize_type;
    service->transfer.target = to;
    service->transfer.term = (uint64_t)request->term;
    service->transfer.wait_index = request->take_leadership_ledger_index;
    service->transfer.asked = false;
    service->transfer.due_us = env_monotonic_us(replica->env) + DLEDGER_RPC_TRANSFER_MS * 1000ull;
    return DLEDGER_SUCCESS;
}

/* A member answers for itself without repeating what it was asked: its own term is what the asker wants to know. */
static void answer_transfer(struct dledger_rpc_service *service, const struct call *call, enum dledger_response_code code)
{
    struct replica *replica = service->replica;
    struct dledger_response response = refusal(replica, call->request, code);
    struct remoting_writer writer;

    if (code == DLEDGER_UNEXPECTED_ARGUMENT || code == DLEDGER_INCONSISTENT_TERM)
        response.term = current_term(replica);
    begin_answer(&writer, call->out, call->command->serialize_type, call->command->opaque);
    dledger_transfer_response_encode(&response, call->out);
    remoting_writer_end(&writer, 0);
}

static void end_transfer(struct dledger_rpc_service *service, enum dledger_response_code code)
{
    struct dledger_response response = result(service->replica, code, current_term(service->replica));
    struct remoting_writer writer;
    struct buffer out;

    service->transfer.out = false;
    buffer_init(&out, REMOTING_FRAME_MAX);
    begin_answer(&writer, &out, service->transfer.serialize_type, service->transfer.opaque);
    dledger_transfer_response_encode(&response, &out);
    remoting_writer_end(&writer, 0);
    answer_later(service, service->transfer.connection, &out);
}

void dledger_rpc_service_turn(struct dledger_rpc_service *service)
{
    struct replica *replica = service->replica;
    uint64_t leader;

    if (!service->transfer.out)
        return;
    leader = (uint64_t)(replica_leader_member(replica) + 1);
    if (leader == service->transfer.target && (uint64_t)current_term(replica) > service->transfer.term) {
        end_transfer(service, DLEDGER_SUCCESS);
    } else if (leader != 0 && (uint64_t)current_term(replica) > service->transfer.term) {
        end_transfer(service, DLEDGER_TAKE_LEADERSHIP_FAILED);
    } else if (env_monotonic_us(replica->env) >= service->transfer.due_us) {
        end_transfer(service, DLEDGER_TAKE_LEADERSHIP_FAILED);
    } else if (service->transfer.target != replica->id) {
        if (raft_driver_leads(&replica->driver) && raft_transferee(&replica->driver.raft) == 0)
            raft_driver_transfer(&replica->driver, service->transfer.target);
    } else if (!service->transfer.asked && replica->ledger.last_index >= service->transfer.wait_index) {
        service->transfer.asked = raft_driver_take_over(&replica->driver);
    }
}

uint64_t dledger_rpc_service_deadline_us(const struct dledger_rpc_service *service)
{
    uint64_t due;

    if (!service->transfer.out)
        return UINT64_MAX;
    due = env_monotonic_us(service->replica->env) + TRANSFER_STEP_US;
    return due < service->transfer.due_us ? due : service->transfer.due_us;
}

/* ---- requests ---- */

static void refuse(const struct call *call, int32_t code, const char *remark)
{
    struct remoting_writer writer;
    remoting_writer_begin_response(&writer, call->out, call->command->serialize_type, code, call->command->opaque, remark);
    remoting_writer_end(&writer, 0);
}

static void run(struct dledger_rpc_service *service, const struct call *call)
{
    const struct replica *replica = service->replica;
    const struct dledger_request *request = call->request;
    enum dledger_response_code code = DLEDGER_SUCCESS;

    if (!slice_equal_text(request->remote_id, replica->options.self_id))
        code = DLEDGER_UNKNOWN_MEMBER;
    else if (!slice_equal_text(request->group, replica->options.group))
        code = DLEDGER_UNKNOWN_GROUP;
    switch (call->command->code) {
    case DLEDGER_METADATA:
        answer_metadata(service, call, code);
        return;
    case DLEDGER_GET:
        answer_get(service, call, code);
        return;
    case DLEDGER_APPEND:
        if (code == DLEDGER_SUCCESS)
            code = start_append(service, call);
        if (code != DLEDGER_SUCCESS) {
            struct dledger_response response = refusal(replica, request, code);
            struct remoting_writer writer;
            begin_answer(&writer, call->out, call->command->serialize_type, call->command->opaque);
            dledger_append_response_encode(&response, -1, -1, call->out);
            remoting_writer_end(&writer, 0);
        }
        return;
    default:
        if (code == DLEDGER_SUCCESS)
            code = start_transfer(service, call);
        if (code != DLEDGER_SUCCESS)
            answer_transfer(service, call, code);
        return;
    }
}

bool dledger_rpc_service_request(struct dledger_rpc_service *service, uint64_t connection, uint8_t *frame, size_t size, struct buffer *out)
{
    struct remoting_command command;
    struct dledger_request request;
    struct call call = {&command, &request, connection, out};
    struct error error;

    if (remoting_command_decode(frame, size, &command) != 0)
        return false;
    if (remoting_is_response(&command))
        return true;
    if (command.code != DLEDGER_METADATA && command.code != DLEDGER_APPEND && command.code != DLEDGER_GET &&
        command.code != DLEDGER_LEADERSHIP_TRANSFER) {
        char remark[80];
        snprintf(remark, sizeof remark, " request type %d not supported", command.code);
        refuse(&call, 3, remark);
        return true;
    }
    if (dledger_request_decode(&request, command.body, &error) != 0) {
        refuse(&call, 1, error.message);
        return true;
    }
    run(service, &call);
    dledger_request_close(&request);
    return true;
}

/* ---- life ---- */

void dledger_rpc_service_init(struct dledger_rpc_service *service, struct replica *replica, void *context,
                              void (*answer)(void *context, uint64_t connection, struct slice frame))
{
    *service = (struct dledger_rpc_service){.replica = replica, .context = context, .answer = answer};
}

void dledger_rpc_service_close(struct dledger_rpc_service *service)
{
    while (service->appends != NULL) {
        struct dledger_rpc_append *next = service->appends->next;
        free(service->appends);
        service->appends = next;
    }
    service->append_count = 0;
}
