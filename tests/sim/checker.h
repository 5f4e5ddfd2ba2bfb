/* What must hold at every moment and at the end, seen from outside: the checker knows all disks, all answers and what was ever committed.
 *
 * Follows the safety properties of the Raft paper (figure 3) as raft-step's study checked them, and the invariants of store and queues.
 */
#ifndef LEDGERMQ_TESTS_SIM_CHECKER_H
#define LEDGERMQ_TESTS_SIM_CHECKER_H

#include "dledger/replica.h"
#include "tests/sim/machine.h"

/* One client call, remembered for good. */
struct client_call {
    struct append_entry_request request; /* first */
    uint64_t number;  /* position in the list of calls, written into body or record */
    int node;
    uint32_t life;
    bool metadata;
    int queue;        /* place in the workload's list of queues */
    int64_t queue_offset;
    uint32_t body_size;
    uint64_t body_seed;
    enum { CALL_WAITS, CALL_ACKNOWLEDGED, CALL_UNKNOWN } outcome;
    uint64_t acknowledged_at;
    uint64_t committed; /* Raft index at which it stands in the committed log, 0 = not there */
};

void checker_init(void);
void checker_close(void);

/* After each thing that a member did. */
void checker_machine(struct machine *machine);
/* A process has recovered its files / begins to run. */
void checker_started(struct machine *machine);
void checker_sending(struct machine *machine, uint64_t to, const struct peer_message *message);
void checker_applied(struct machine *machine, uint64_t index, const struct message_dispatch *dispatch, struct slice record, bool replay);
void checker_snapshot(struct machine *machine, uint64_t index);
void checker_acknowledged(struct client_call *call);
/* Before the disk of a machine loses something. */
void checker_forgets(struct machine *machine, bool wiped);
/* Class A: has a majority lost what it had acknowledged, at this moment or since then? */
bool checker_loss_excused(uint64_t acknowledged_at);

uint64_t checker_committed(void); /* Raft index of the newest committed entry */
/* All are alike, down to the bytes; everything acknowledged is where it was said to be. */
void checker_final(void);
bool checker_converged(void);

#endif
