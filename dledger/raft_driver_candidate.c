/* Elections in which this member takes part without a vote in the newest configuration of its log.
 *
 * A configuration counts from the moment at which it stands in a log, committed or not, so members may disagree on who has a vote. Whoever is about to lose
 * his may be asked for it by one who does not know yet, and may have the longest log of all: then nobody else is voted for, and only he can bring the change to
 * an end (thesis, 4.1 and 4.2.2). The core neither answers nor stands then, so for each of these steps it is shown a vote. It must not count: our own is set in
 * the candidate's table once there is a majority without it, and as long as there is none it is missing.
 */
#include "dledger/raft_driver_internal.h"

#include <stddef.h>

static struct raft_server *server_of(const struct raft_configuration *configuration, uint64_t id)
{
    for (unsigned i = 0; i < configuration->n; i++) {
        if (configuration->servers[i].id == id)
            return &configuration->servers[i];
    }
    return NULL;
}

/* NULL: we have a vote, or do not belong to the group. */
static struct raft_server *without_vote(struct raft_driver *driver)
{
    struct raft_server *self = server_of(&driver->raft.configuration, driver->options.id);
    return self == NULL || self->role == RAFT_VOTER ? NULL : self;
}

/* ... and it is not committed that we have none: neither applied nor known to be. Else it would be applied while we stand, and the table of votes, which is as
 * long as the voters were many, would be read by other places than it was made for. As a candidate we learn of no commit. */
static struct raft_server *loses_vote(struct raft_driver *driver)
{
    const struct raft *raft = &driver->raft;
    struct raft_server *self = without_vote(driver);
    const struct raft_server *before;

    if (self == NULL || raft->configuration_uncommitted_index <= driver->commit || raft_driver_voters(raft) == 0)
        return NULL;
    before = server_of(&raft->configuration_committed, driver->options.id);
    return before != NULL && before->role == RAFT_VOTER && raft_driver_guarded(driver, GUARD_NON_VOTER) ? self : NULL;
}

/* None of these steps changes the configuration. */
static void step_as_voter(struct raft_driver *driver, struct raft_server *self, struct raft_event *event)
{
    int role = self->role;
    self->role = RAFT_VOTER;
    raft_driver_step(driver, event);
    self->role = role;
}

bool raft_driver_may_stand(struct raft_driver *driver)
{
    return raft_role(&driver->raft) == RAFT_VOTER || loses_vote(driver) != NULL;
}

void raft_driver_step_timeout(struct raft_driver *driver, struct raft_event *event)
{
    struct raft_server *self = raft_state(&driver->raft) == RAFT_LEADER ? NULL : loses_vote(driver);

    if (self != NULL)
        step_as_voter(driver, self, event);
    else
        raft_driver_step(driver, event);
}

/* Whoever runs has its vote on its disk. */
void raft_driver_step_vote_request(struct raft_driver *driver, struct raft_event *event)
{
    struct raft_server *self = without_vote(driver);

    if (self != NULL && raft_driver_guarded(driver, GUARD_NON_VOTER))
        step_as_voter(driver, self, event);
    else
        raft_driver_step(driver, event);
}

void raft_driver_step_vote_result(struct raft_driver *driver, struct raft_message *message)
{
    struct raft_event event = {.type = RAFT_RECEIVE};
    struct raft *raft = &driver->raft;
    struct raft_server *self = raft_state(raft) == RAFT_CANDIDATE ? loses_vote(driver) : NULL;
    unsigned place = 0, own = 0, granted = 0;

    event.receive.message = message;
    if (self == NULL) {
        raft_driver_step(driver, &event);
        return;
    }
    for (unsigned i = 0; i < raft->configuration.n; i++) {
        const struct raft_server *server = &raft->configuration.servers[i];
        if (server == self)
            own = place++;
        else if (server->role == RAFT_VOTER)
            granted += raft->candidate_state.votes[place++].grant || (server->id == message->server_id && message->request_vote_result.vote_granted);
    }
    raft->candidate_state.votes[own].grant = granted > raft_driver_voters(raft) / 2;
    step_as_voter(driver, self, &event);
}
