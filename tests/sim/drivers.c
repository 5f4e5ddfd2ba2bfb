#include "tests/sim/drivers.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/core_heap.h"
#include "tests/sim/driver_group.h"

#define LEVEL_MS 5000u          /* so soon all are alike when nothing is wrong any more */
#define LEVEL_CONFLICT_MS 1000u /* ... and one of them had many entries of its own */

const char *const drivers_play_names[PLAYS] = {"none", "mixed", "late", "changes", "from-zero", "twice", "old-copy", "conflict"};

static void one_fault(void)
{
    struct member *member = &group.members[1 + chance((uint64_t)group.count)];
    struct member *other = &group.members[1 + chance((uint64_t)group.count)];
    struct member *leads = driver_group_leader();

    switch (chance(9)) {
    case 0:
    case 1:
        driver_group_cut(member->id, other->id, member != other);
        return;
    case 2:
        if (member != other)
            group.cut[member->id][other->id] = true; /* one way */
        return;
    case 3:
        driver_group_cut_off(member->id, true);
        return;
    case 4:
    case 5:
        memset(group.cut, 0, sizeof group.cut);
        return;
    case 6:
        driver_group_stop(member, chance_of(700), chance_skewed(SECOND));
        world.stats->power_cuts++;
        return;
    case 7:
        if (leads != NULL && raft_driver_transfer(&leads->driver, (uint64_t)other->id) == 0)
            driver_group_look_at(leads);
        return;
    default:
        if (leads != NULL && chance_of(600))
            driver_group_change(leads, other->id);
        else
            driver_group_trim();
        return;
    }
}

static void play_faults(bool late)
{
    uint64_t gap = chance_between(20, 800) * MS;

    group.submits = true;
    if (late) {
        group.late_per_mille = (unsigned)chance_between(10, 400);
        group.late_us = chance_between(5, 2000) * MS;
        group.double_per_mille = (unsigned)chance(200);
        group.lost_per_mille = (unsigned)chance(200);
    }
    for (uint64_t until = world.now + world.options.seconds * SECOND / 4; world.now < until;) {
        driver_group_run_for(chance(2 * gap) + MS);
        one_fault();
    }
    driver_group_expect_level(LEVEL_MS);
    driver_group_run_for(200 * MS);
}

static struct member *changer;
static bool change_is_fed(void)
{
    return changer->driver.raft.configuration_uncommitted_index == 0 || !raft_driver_leads(&changer->driver);
}

static bool another_leads(void)
{
    struct member *leads = driver_group_leader();
    return leads != NULL && leads != changer && leads->driver.commit == raft_driver_last(&leads->driver);
}

static void play_changes(void)
{
    for (int round = 0; round < 3; round++) {
        driver_group_expect_level(LEVEL_MS);
        group.submits = chance_of(700);
        driver_group_run_for(chance(200) * MS);
        struct member *behind = driver_group_follower();
        changer = driver_group_leader();
        if (changer == NULL)
            continue;
        driver_group_cut_off(behind->id, true);
        driver_group_run_for(chance(100) * MS);
        if (!driver_group_change(changer, behind->id) || !driver_group_run_while_not(change_is_fed, 2000))
            continue;
        /* The first change is committed by the others. The second one reaches only him who has heard of neither. */
        driver_group_cut_off(changer->id, true);
        driver_group_cut(changer->id, behind->id, false);
        int second = 0;
        for (int i = 1; i <= group.count; i++) {
            if (i != changer->id && i != behind->id && (second == 0 || chance_of(300)))
                second = i;
        }
        if (!driver_group_change(changer, second))
            continue;
        driver_group_run_for(chance_between(20, 200) * MS);
        driver_group_cut_off(behind->id, true);
        driver_group_run_while_not(another_leads, 5000);
    }
    driver_group_expect_level(LEVEL_MS);
}

static void play_from_zero(void)
{
    const uint8_t *run;
    size_t size;

    group.submits = true;
    driver_group_run_for(chance_between(100, 300) * MS);
    struct member *leads = driver_group_leader();
    uint32_t count = leads == NULL ? 0 : ledger_run(&leads->ledger, 0, (uint32_t)chance_between(1, leads->driver.commit), DRIVER_GROUP_SEGMENT, &run, &size);
    if (count == 0)
        return;
    /* As sent to a member that holds nothing: ours hold the first entry from the beginning, so none of ours is asked from there. */
    struct peer_message message = {.type = PEER_APPEND_ENTRIES, .count = count};
    uint8_t *copy = malloc(size);
    assert(copy != NULL);
    memcpy(copy, run, size);
    for (int i = 0; i < 20; i++) {
        driver_group_run_for(chance(200) * MS);
        if (chance_of(500))
            driver_group_trim();
        leads = driver_group_leader();
        struct member *to = driver_group_follower();
        if (to == NULL)
            continue;
        message.append.term = raft_current_term(&leads->driver.raft);
        message.append.commit = leads->driver.commit;
        message.append.stamp = world.now / 1000;
        driver_group_post(leads->id, to->id, &message, copy, size, world.now + chance(5 * MS));
    }
    free(copy);
    driver_group_expect_level(LEVEL_MS);
}

static void play_old_copy(void)
{
    group.submits = true;
    driver_group_run_for(chance_between(50, 500) * MS);
    driver_group_expect_level(LEVEL_MS);
    struct member *leads = driver_group_leader();
    struct member *victim = driver_group_follower();
    driver_group_stop(victim, false, UINT64_MAX);
    struct checkpoint checkpoint = victim->checkpoint;
    struct sim_copy *copy = sim_env_copy(&victim->disk);
    uint64_t term = raft_current_term(&leads->driver.raft);
    driver_group_restart(victim);
    driver_group_run_for(chance_between(50, 500) * MS);
    driver_group_expect_level(LEVEL_MS);
    /* All that it acknowledged is held by the others, and it has given no vote since; and its configuration is the same. */
    if (driver_group_leader() == leads && raft_current_term(&leads->driver.raft) == term) {
        driver_group_stop(victim, false, UINT64_MAX);
        driver_group_forget_letters(victim->id);
        sim_env_put_back(&victim->disk, copy);
        victim->checkpoint = checkpoint;
        driver_group_restart(victim);
        world.stats->old_copies++;
        driver_group_run_for(chance(3000) * MS);
    }
    sim_env_copy_free(copy);
    driver_group_expect_level(LEVEL_MS);
}

static void submit_many(struct member *member, unsigned count)
{
    for (unsigned part; count > 0; count -= part) {
        part = count > 100 ? 100 : count;
        if (driver_group_submit(member, part, LEDGER_ENTRY_RAW, NULL, 0) != 0)
            return;
        driver_group_step_ms();
    }
}

/* The one that leads in the end has the whole log of the other two, and begins at its end to look for what the first leader shares with it. */
static void play_conflict(void)
{
    group.submits = true;
    driver_group_run_for(chance(300) * MS);
    driver_group_expect_level(LEVEL_MS);
    group.submits = false;
    struct member *first = changer = driver_group_leader();
    group.latency_us = chance_between(2000, 4000);
    group.body_max = 32;
    driver_group_cut_off(first->id, true);
    submit_many(first, (unsigned)chance_between(1000, 1500));
    if (!driver_group_run_while_not(another_leads, 5000))
        return;
    changer = driver_group_leader();
    submit_many(changer, (unsigned)chance_between(1000, 1500));
    if (!driver_group_run_while_not(driver_group_is_led, 5000) || driver_group_leader() != changer)
        return;
    for (int i = 1; i <= group.count; i++) {
        if (i != first->id && i != changer->id)
            raft_driver_transfer(&changer->driver, (uint64_t)i);
    }
    driver_group_look_at(changer);
    if (!driver_group_run_while_not(another_leads, 5000))
        return;
    driver_group_run_for(chance(200) * MS);
    driver_group_expect_level(LEVEL_CONFLICT_MS);
}

static struct member *twice;
static bool twice_leads(void)
{
    return raft_driver_leads(&twice->driver);
}

/* The vote of one member decides; his disk, as it was before, is put back, and he gives it once more. No group is safe then. But no leader takes the other's
 * entries for those of its leader. */
static void play_twice(void)
{
    driver_group_expect_level(LEVEL_MS);
    struct member *down = driver_group_leader();
    struct member *voter = driver_group_follower();
    struct member *third = NULL;
    for (int i = 1; i <= group.count; i++) {
        if (i != down->id && i != voter->id)
            third = &group.members[i];
    }
    driver_group_stop(voter, false, UINT64_MAX);
    struct checkpoint checkpoint = voter->checkpoint;
    struct sim_copy *copy = sim_env_copy(&voter->disk);
    driver_group_restart(voter);
    driver_group_expect_level(LEVEL_MS);
    if (driver_group_leader() != down) {
        sim_env_copy_free(copy);
        return;
    }
    /* The third one wins the next term with his vote. */
    driver_group_cut_off(down->id, true);
    twice = third;
    bool is = driver_group_run_while_not(twice_leads, 3000);
    uint64_t term = raft_current_term(&third->driver.raft);
    driver_group_cut_off(third->id, true);
    driver_group_stop(voter, false, UINT64_MAX);
    driver_group_forget_letters(voter->id);
    sim_env_put_back(&voter->disk, copy);
    sim_env_copy_free(copy);
    voter->checkpoint = checkpoint;
    group.two_may_lead = true;
    driver_group_restart(voter);
    /* ... and so does the first one, which has not heard of it. */
    driver_group_cut(down->id, voter->id, false);
    twice = down;
    is = is && driver_group_run_while_not(twice_leads, 3000) && raft_current_term(&down->driver.raft) == term && raft_driver_leads(&third->driver);
    driver_group_stop(voter, false, UINT64_MAX);
    raft_index last[2] = {raft_driver_last(&down->driver), raft_driver_last(&third->driver)};
    if (!is)
        return; /* one of them was too slow */
    driver_group_cut(down->id, third->id, false);
    for (int i = 0; i < 120; i++) {
        driver_group_step_ms();
        if ((raft_driver_leads(&down->driver) && raft_driver_last(&down->driver) != last[0]) ||
            (raft_driver_leads(&third->driver) && raft_driver_last(&third->driver) != last[1]))
            violation(down->id, "takes entries of n%d, which leads in its own term", third->id - 1);
    }
    world.stats->old_copies++;
}

void drivers_run(enum drivers_play play)
{
    uint64_t began = world.now;

    core_heap_begin();
    if (play == PLAY_NONE)
        play = (enum drivers_play)chance_between(PLAY_NONE + 1, PLAYS - 1);
    world.founders = play == PLAY_CHANGES || ((play == PLAY_MIXED || play == PLAY_LATE) && chance_of(500)) ? 5 : 3;
    world.nodes = 0;
    TRACE(1, 0, "play %s, %d drivers", drivers_play_names[play], world.founders);
    driver_group_begin(world.founders);

    switch (play) {
    case PLAY_MIXED:
    case PLAY_LATE:
        play_faults(play == PLAY_LATE);
        break;
    case PLAY_CHANGES:
        play_changes();
        break;
    case PLAY_FROM_ZERO:
        play_from_zero();
        break;
    case PLAY_TWICE:
        play_twice();
        break;
    case PLAY_OLD_COPY:
        play_old_copy();
        break;
    default:
        play_conflict();
        break;
    }

    driver_group_end();
    world.stats->virtual_us += world.now - began;
    world.stats->runs++;
}
