/* dledger_commit_log.h over a simulated machine: what stands around the replica in the product, sockets, flush thread and libuv's hooks, is the machine's
 * business here. struct dledger_commit_log is the machine. */
#include <string.h>

#include "dledger/replica_internal.h"
#include "tests/sim/backup.h"
#include "tests/sim/commit_log.h"
#include "tests/sim/workload.h"

static struct machine *machine_of(const struct dledger_commit_log *log)
{
    return (struct machine *)(uintptr_t)log;
}

struct dledger_commit_log *commit_log_of(struct machine *machine)
{
    return (struct dledger_commit_log *)machine;
}

uint8_t *dledger_commit_log_reserve(struct dledger_commit_log *log, size_t body_size, int64_t *physical_offset, int *code)
{
    struct machine *machine = machine_of(log);
    if (machine->stopping || machine->disk.dead) {
        *code = ERROR_STOPPED;
        return NULL;
    }
    return replica_reserve(&machine->replica, body_size, physical_offset, code);
}

void dledger_commit_log_append(struct dledger_commit_log *log, enum ledger_entry_kind kind, struct append_entry_request *request)
{
    replica_append(&machine_of(log)->replica, kind, request);
}

int dledger_commit_log_append_copy(struct dledger_commit_log *log, enum ledger_entry_kind kind, struct slice body,
                                   struct append_entry_request *request)
{
    int64_t offset;
    int code;
    uint8_t *room = dledger_commit_log_reserve(log, body.size, &offset, &code);
    if (room == NULL)
        return code;
    memcpy(room, body.data, body.size);
    dledger_commit_log_append(log, kind, request);
    return 0;
}

bool dledger_commit_log_accepting(const struct dledger_commit_log *log)
{
    return machine_of(log)->replica.accepting && !machine_of(log)->stopping;
}

bool dledger_commit_log_in_doubt(struct dledger_commit_log *log)
{
    return replica_in_doubt(&machine_of(log)->replica);
}

const char *dledger_commit_log_why_not(const struct dledger_commit_log *log)
{
    return replica_why_not(&machine_of(log)->replica);
}

void dledger_commit_log_state(const struct dledger_commit_log *log, struct dledger_state *state)
{
    replica_state(&machine_of(log)->replica, state);
}

/* Clients here ask the leader itself. */
int dledger_commit_log_forward(struct dledger_commit_log *log, uint64_t request_id, struct slice client_address, struct slice frame,
                               uint32_t timeout_ms)
{
    (void)log;
    (void)request_id;
    (void)client_address;
    (void)frame;
    (void)timeout_ms;
    return ERROR_NO_LEADER;
}

void dledger_commit_log_forward_answer(struct dledger_commit_log *log, uint64_t forward_id, struct slice frame)
{
    if (forward_id >= BACKUP_REQUESTS)
        backup_answer(machine_of(log), forward_id, frame);
    else
        workload_answer(machine_of(log), forward_id, frame);
}

const uint8_t *dledger_commit_log_pin(struct dledger_commit_log *log, int64_t physical_offset, size_t size, struct mapped_file **pinned)
{
    return replica_pin(&machine_of(log)->replica, physical_offset, size, pinned);
}

bool dledger_commit_log_damaged(const struct dledger_commit_log *log, int64_t physical_offset, size_t size)
{
    return physical_offset >= 0 && ledger_is_damaged(&machine_of(log)->replica.ledger, (uint64_t)physical_offset, size);
}

void dledger_commit_log_note_damage(struct dledger_commit_log *log, int64_t physical_offset)
{
    if (physical_offset >= 0)
        replica_note_damage(&machine_of(log)->replica, (uint64_t)physical_offset);
}

void dledger_commit_log_unpin(struct dledger_commit_log *log, struct mapped_file *pinned)
{
    (void)log;
    mapped_file_unpin(pinned);
}

int64_t dledger_commit_log_physical_offset(const struct dledger_commit_log *log, uint64_t index)
{
    uint64_t position, term;
    uint32_t size;
    return ledger_locate(&machine_of(log)->replica.ledger, index, &position, &size, &term) ? (int64_t)position + (int64_t)LEDGER_ENTRY_HEADER_SIZE
                                                                                           : -1;
}

void dledger_commit_log_give_up(struct dledger_commit_log *log, const struct error *error)
{
    replica_fail(&machine_of(log)->replica, error);
}

int dledger_commit_log_backup_begin(struct dledger_commit_log *log, struct dledger_backup *backup, struct error *error)
{
    int rv = replica_backup_begin(&machine_of(log)->replica, backup, error);
    if (rv == 0)
        backup_begun(machine_of(log), backup);
    return rv;
}

int dledger_commit_log_backup_metadata(struct dledger_commit_log *log, uint64_t id, uint64_t offset, size_t size, struct slice *piece)
{
    return replica_backup_metadata(&machine_of(log)->replica, id, offset, size, piece);
}

void dledger_commit_log_backup_has_read(struct dledger_commit_log *log, uint64_t id, uint64_t position)
{
    replica_backup_has_read(&machine_of(log)->replica, id, position);
}

void dledger_commit_log_backup_give_up(struct dledger_commit_log *log, uint64_t id)
{
    replica_backup_give_up(&machine_of(log)->replica, id);
}

size_t dledger_commit_log_gathered(const struct dledger_commit_log *log)
{
    return machine_of(log)->replica.gather.size;
}

void dledger_commit_log_note_disk(struct dledger_commit_log *log, bool high)
{
    machine_of(log)->replica.driver.disk_high = high;
}

uint64_t dledger_commit_log_trim_limit(const struct dledger_commit_log *log, int *held_by)
{
    return replica_trim_limit(&machine_of(log)->replica, held_by);
}

int dledger_commit_log_trim(struct dledger_commit_log *log, uint64_t position)
{
    int rv = replica_trim(&machine_of(log)->replica, position);
    world.stats->trims += rv == 0;
    return rv;
}

void dledger_commit_log_trim_queues(struct dledger_commit_log *log)
{
    replica_trim_queues(&machine_of(log)->replica);
}

int64_t dledger_commit_log_first_message(const struct dledger_commit_log *log, uint64_t position)
{
    return replica_first_message(&machine_of(log)->replica, position);
}

/* The chaos decides on transfers, and peers have no addresses. */
int dledger_commit_log_transfer(struct dledger_commit_log *log, const char *to_id, struct error *error)
{
    (void)log;
    (void)to_id;
    return error_set(error, ERROR_NOT_FOUND, "not here");
}

int dledger_commit_log_change_member(struct dledger_commit_log *log, enum dledger_member_action action, const char *id, const char *address,
                                     struct append_entry_request *request, struct error *error)
{
    return replica_change_member(&machine_of(log)->replica, action, id, address, request, error);
}

bool dledger_commit_log_is_member_host(const struct dledger_commit_log *log, const struct sockaddr_storage *address)
{
    (void)log;
    (void)address;
    return true;
}
