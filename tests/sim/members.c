#include "tests/sim/members.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/checker.h"
#include "tests/sim/commit_log.h"
#include "tests/sim/disk_fault.h"

#define ERRANDS 2 /* people at work at the same time */
#define STEPS_MAX 4
#define TRIES_MAX 60

struct step {
    enum dledger_member_action action;
    int node;
};

static struct errand {
    struct step steps[STEPS_MAX];
    int count, next; /* count 0: nobody is at work */
    int tries;
    uint64_t number; /* an event of an older one means nothing */
} errands[ERRANDS];

void members_init(void)
{
    memset(errands, 0, sizeof errands);
}

void members_give_up(void)
{
    for (int i = 0; i < ERRANDS; i++)
        errands[i].count = 0;
}

/* ---- one change ---- */

static void on_changed(struct append_entry_request *request)
{
    free(request);
}

static struct machine *leader(void)
{
    struct machine *found = NULL;
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *machine = world.machines[i];
        if (machine_runs(machine) && machine->replica.accepting && !machine->stopping && !machine->paused && checker_leads_newest(machine))
            found = machine;
    }
    return found;
}

static bool well(int node)
{
    struct machine *machine = world.machines[node];
    return !machine->forgetful && !machine->outcast && !disk_fault_left(machine);
}

/* A person takes a vote only if those who vote then make a majority that knows all it needs at its next start; and takes a node away only when the others have
 * all that it has. */
static bool may_ask(enum dledger_member_action action, int node)
{
    int voters = 0, fit = 0;
    bool all = true, sure = true;
    for (int i = 1; i <= world.nodes; i++) {
        if (i == node || !checker_belongs(i))
            continue;
        voters += checker_votes(i);
        fit += checker_votes(i) && well(i);
        sure = sure && (!checker_votes(i) || disk_fault_vote_is_sure(world.machines[i]));
        all = all && well(i);
    }
    /* Nobody else will know the term of the one voter that is left: a vote file that is lost then is for a person (mqbroker --force-new-group). */
    if (action == DLEDGER_MEMBER_DEMOTE && voters == 1 && !sure)
        return false;
    return action == DLEDGER_MEMBER_DEMOTE ? fit > voters / 2 : action != DLEDGER_MEMBER_REMOVE || all;
}

static bool ask(enum dledger_member_action action, int node)
{
    static const char *const names[] = {"add", "promote", "demote", "remove"};
    struct machine *asked = leader();
    char address[32];
    struct error error;

    if (asked == NULL || !may_ask(action, node))
        return false;
    struct append_entry_request *request = calloc(1, sizeof *request);
    assert(request != NULL);
    request->done = on_changed;
    machine_address(node, address);
    machine_clock(asked);
    uint32_t life = asked->life;
    int rv = dledger_commit_log_change_member(commit_log_of(asked), action, world.machines[node]->name,
                                              action == DLEDGER_MEMBER_ADD ? strchr(address, '-') + 1 : "", request, &error);
    if (rv != 0)
        free(request);
    /* What could not be written to its end may stand in the log all the same, and the next start goes by it. */
    if (rv == 0 || asked->replica.driver.failed)
        checker_change_begins(raft_driver_last(&asked->replica.driver) + (rv != 0));
    assert(asked->life == life);
    TRACE(1, asked->id, "%s n%d: %s", names[action], node - 1, rv == 0 ? "begun" : error.message);
    machine_after(asked);
    return rv == 0;
}

bool members_change_vote(struct machine *machine, bool given)
{
    int node = machine->id;
    for (int i = 1; i < world.nodes && (!checker_belongs(node) || checker_votes(node) == given); i++)
        node = node % world.nodes + 1;
    return checker_belongs(node) && ask(given ? DLEDGER_MEMBER_PROMOTE : DLEDGER_MEMBER_DEMOTE, node);
}

/* ---- a row of them ---- */

static bool is_done(const struct step *step)
{
    switch (step->action) {
    case DLEDGER_MEMBER_ADD:
        return checker_belongs(step->node);
    case DLEDGER_MEMBER_PROMOTE:
        return checker_votes(step->node);
    case DLEDGER_MEMBER_DEMOTE:
        return !checker_votes(step->node);
    default:
        return !checker_belongs(step->node);
    }
}

static void on_errand(const struct world_event *event)
{
    struct errand *errand = &errands[event->node];
    if (world.calm || errand->count == 0 || errand->number != event->value)
        return;
    while (errand->next < errand->count && is_done(&errand->steps[errand->next])) {
        errand->next++;
        errand->tries = 0;
    }
    if (errand->next == errand->count || errand->tries++ == TRIES_MAX) {
        errand->count = 0;
        return;
    }
    ask(errand->steps[errand->next].action, errand->steps[errand->next].node);
    world_at(world.now + 10 * MS + chance_skewed(1 * SECOND), on_errand, event->node, 0, NULL, event->value);
}

void members_name(struct machine *machine, bool all)
{
    uint8_t named = 0; /* a bit for each */
    size_t size = 0;

    if (!world.changes_members)
        return;
    for (int i = 1; i <= world.nodes; i++) {
        const struct machine *other = world.machines[i];
        if (i == machine->id || checker_votes(i) || (checker_belongs(i) && (all || (other->ran && chance_of(700)))))
            named |= (uint8_t)(1u << (i - 1));
    }
    if (named == 1u << (machine->id - 1)) {
        members_name(machine, true);
        return;
    }
    for (int i = 1; i <= world.nodes; i++) {
        char address[32];
        machine_address(i, address);
        if ((named >> (i - 1) & 1) != 0)
            size += (size_t)snprintf(machine->peers + size, sizeof machine->peers - size, "%s%s", size == 0 ? "" : ";", address);
    }
}

/* A machine that does not belong gets an empty disk, and a broker.conf that names the group. */
static void deploy(struct machine *machine)
{
    machine_kill(machine);
    if (machine->deployed)
        machine_wipe(machine);
    machine->deployed = true;
    members_name(machine, false);
    TRACE(1, machine->id, "is to join: %s", machine->peers);
    machine_start_at(machine, world.now + chance(300 * MS));
}

bool members_begin(enum chaos_kind kind, struct machine *machine, uint8_t *node)
{
    struct errand *errand = errands[0].count == 0 ? &errands[0] : &errands[1];
    int comes = 0, goes = 0;

    if (errand->count != 0 || checker_change_open())
        return false;
    if (kind != CHAOS_MEMBER_REMOVED) {
        int first = (int)chance((uint64_t)world.nodes);
        for (int i = 0; i < world.nodes && comes == 0; i++) {
            int candidate = (first + i) % world.nodes + 1;
            bool busy = false;
            for (int k = 0; k < ERRANDS; k++) {
                for (int s = 0; s < errands[k].count; s++)
                    busy = busy || errands[k].steps[s].node == candidate;
            }
            if (!checker_belongs(candidate) && !busy)
                comes = candidate;
        }
        if (comes == 0 || (kind == CHAOS_MEMBER_ADDED && checker_members() >= WORLD_MEMBERS_MAX))
            return false;
    }
    if (kind != CHAOS_MEMBER_ADDED) {
        goes = machine->id;
        if (!checker_belongs(goes) || (comes == 0 && checker_members() == 1))
            return false;
    }
    uint64_t number = errand->number + 1;
    *errand = (struct errand){.number = number};
    if (comes != 0) {
        errand->steps[errand->count++] = (struct step){DLEDGER_MEMBER_ADD, comes};
        if (goes != 0 || chance_of(850))
            errand->steps[errand->count++] = (struct step){DLEDGER_MEMBER_PROMOTE, comes};
        deploy(world.machines[comes]);
    }
    if (goes != 0) {
        errand->steps[errand->count++] = (struct step){DLEDGER_MEMBER_DEMOTE, goes};
        errand->steps[errand->count++] = (struct step){DLEDGER_MEMBER_REMOVE, goes};
    }
    *node = (uint8_t)(comes != 0 ? comes : goes);
    world_at(world.now + chance_skewed(500 * MS), on_errand, (int)(errand - errands), 0, NULL, number);
    return true;
}

void members_prefer(struct machine *machine, const struct machine *first)
{
    machine->preferred_next[0] = '\0';
    if (chance_of(200))
        return;
    snprintf(machine->preferred_next, sizeof machine->preferred_next, "%s;%s", first->name,
             world.machines[chance((uint64_t)world.nodes) + 1]->name);
}
