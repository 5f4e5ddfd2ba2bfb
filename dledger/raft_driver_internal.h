/* What the parts of the driver share: raft_driver.c (life, events), raft_driver_step.c (the step and carrying its update out),
 * raft_driver_receive.c (messages and their guards), raft_driver_candidate.c (votes of those who lose theirs), raft_driver_contact.c (who follows) and
 * raft_driver_configuration.c.
 */
#ifndef LEDGERMQ_DLEDGER_RAFT_DRIVER_INTERNAL_H
#define LEDGERMQ_DLEDGER_RAFT_DRIVER_INTERNAL_H

#include "dledger/raft_driver.h"
#include "store/seeded_bug.h"

static inline raft_time raft_driver_now(struct raft_driver *driver)
{
    return env_monotonic_us(driver->env) / 1000;
}

/* Whether a guard is on; counts that it was needed. */
static inline bool raft_driver_guarded(struct raft_driver *driver, enum raft_guard guard)
{
    if (SEEDED_GUARD_OFF(guard))
        return false;
    driver->guard_hits[guard]++;
    return true;
}

/* Term of a Raft index: 0 for index 0 and for what is not retained. */
static inline raft_term raft_driver_term_of(const struct raft_driver *driver, raft_index index)
{
    return index == 0 ? 0 : ledger_term_of(driver->ledger, index - 1);
}

/* Asks for votes that count, and not only whether it would get them. */
static inline bool raft_driver_stands(struct raft_driver *driver)
{
    return raft_state(&driver->raft) == RAFT_CANDIDATE && !driver->raft.candidate_state.in_pre_vote;
}

/* Final: the first error is told. */
void raft_driver_fail(struct raft_driver *driver, const struct error *error);
/* Runs the step and carries its update out. Libraft's code; RAFT_BUSY: the update waits for term and vote to be durable. Not while it does. */
int raft_driver_step(struct raft_driver *driver, struct raft_event *event);
/* Saves term and vote as the core has them. 0; RAFT_BUSY: it takes long, and the update (NULL: none) is carried out afterwards; RAFT_IOERR: final. */
int raft_driver_save_vote(struct raft_driver *driver, const struct raft_update *update);
enum raft_entry_type raft_driver_entry_type(uint8_t kind);
/* Describes a checked run to the core; valid until the next call. NULL: no memory. */
struct raft_entry *raft_driver_describe(struct raft_driver *driver, const uint8_t *run, uint32_t count);
/* An AppendEntries without entries, that asks a member whether it has the entry `previous`. Nothing is sent when that one is not retained here. */
void raft_driver_send_empty(struct raft_driver *driver, uint64_t to, raft_index previous, raft_index commit);
/* Whose log is newer, as votes see it: ours > 0, that of the member that asks for our vote < 0. */
int raft_driver_compare_log(const struct raft_driver *driver, const struct peer_message *request);
/* As follower: we believe in no leader any more. */
void raft_driver_forget_leader(struct raft_driver *driver);
/* Tells a member to take over, now or as soon as it has stored our whole log (raft_driver_hand_over_stored: it said how far it is). */
void raft_driver_hand_over(struct raft_driver *driver, uint64_t to, const struct peer_message *message);
void raft_driver_hand_over_stored(struct raft_driver *driver, uint64_t from);
/* Whether there is room for the barrier that a winner appends. */
bool raft_driver_barrier_fits(struct raft_driver *driver);
bool raft_driver_configuration_at(struct raft_driver *driver, raft_index index, struct raft_buffer *buffer);
unsigned raft_driver_voters(const struct raft *raft);

/* ---- raft_driver_candidate.c ---- */
/* As follower or candidate: this member may stand for election. */
bool raft_driver_may_stand(struct raft_driver *driver);
/* Runs the election timer. */
void raft_driver_step_timeout(struct raft_driver *driver, struct raft_event *event);
void raft_driver_step_vote_request(struct raft_driver *driver, struct raft_event *event);
void raft_driver_step_vote_result(struct raft_driver *driver, struct raft_message *message);

/* ---- raft_driver_contact.c ---- */
/* We begin or cease to lead. */
void raft_driver_forget_contacts(struct raft_driver *driver);
/* What is put on an AppendEntries now. */
uint64_t raft_driver_stamp(struct raft_driver *driver);
/* A member answered an AppendEntries of ours. stamp: the low half, 0 = not said. */
void raft_driver_note_contact(struct raft_driver *driver, uint64_t from, uint64_t term, uint32_t stamp);
/* As leader, at look_due_ms: gives up when no majority has taken anything for an election time-out. */
void raft_driver_look_for_majority(struct raft_driver *driver);

#endif
