#include "tests/sim/chaos.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/checker.h"
#include "tests/sim/disk_fault.h"
#include "tests/sim/members.h"

const char *const chaos_names[CHAOS_KINDS] = {
    [CHAOS_KILL] = "kill",
    [CHAOS_KILL_IN_CALL] = "kill in a call",
    [CHAOS_POWER_ONE] = "power cut",
    [CHAOS_POWER_IN_CALL] = "power cut in a call",
    [CHAOS_POWER_MINORITY] = "power cut of a minority",
    [CHAOS_POWER_ALL] = "power cut of all",
    [CHAOS_STOP] = "clean stop",
    [CHAOS_STOP_THEN_POWER] = "clean stop, then power cut",
    [CHAOS_RESTART_LOOP] = "restart loop",
    [CHAOS_PAUSE] = "pause",
    [CHAOS_FREEZE] = "pause, clock stands",
    [CHAOS_CLOCK_JUMP] = "wall clock jumps",
    [CHAOS_PARTITION] = "partition",
    [CHAOS_BRIDGE] = "bridge",
    [CHAOS_ISOLATE] = "isolation",
    [CHAOS_ONE_WAY] = "one-way cut",
    [CHAOS_BREAK] = "broken connection",
    [CHAOS_DELAY] = "delay",
    [CHAOS_SLOW_DISK] = "slow disk",
    [CHAOS_HUNG_SYNC] = "hung sync",
    [CHAOS_FULL_DISK] = "full disk",
    [CHAOS_EIO] = "disk error",
    [CHAOS_WIPE] = "wiped directory",
    [CHAOS_TRANSFER] = "transfer",
    [CHAOS_SNAPSHOT] = "snapshot and store sync",
    [CHAOS_FLIP] = "bit flips at rest",
    [CHAOS_STALE] = "stale block",
    [CHAOS_MISDIRECTED] = "misdirected write",
    [CHAOS_OLD_COPY] = "old copy of the disk",
    [CHAOS_VOTE_TAKEN] = "vote taken",
    [CHAOS_VOTE_GIVEN] = "vote given",
    [CHAOS_MEMBER_ADDED] = "member added",
    [CHAOS_MEMBER_REMOVED] = "member removed",
    [CHAOS_MEMBER_REPLACED] = "member replaced",
    [CHAOS_PREFERRED] = "other preferred leaders",
    [CHAOS_QUEUE_LOST] = "queue lost its end, or itself",
};

static bool enabled[CHAOS_KINDS];
static uint64_t gap_us;
static uint64_t ends_at;

static struct machine *any(void)
{
    struct machine *machine;
    do {
        machine = world.machines[chance((uint64_t)world.nodes) + 1];
    } while (!machine->deployed);
    return machine;
}

static int voters(void)
{
    int count = 0;
    for (int i = 1; i <= world.nodes; i++)
        count += checker_votes(i);
    return count;
}

static bool another_wiped(const struct machine *machine)
{
    for (int i = 1; i <= world.nodes; i++) {
        if (world.machines[i]->wiped && world.machines[i] != machine && checker_belongs(i))
            return true;
    }
    return false;
}

static void restart_later(struct machine *machine)
{
    machine_start_at(machine, world.now + (chance_of(500) ? chance(100 * MS) : chance_skewed(4 * SECOND)));
}

/* ---- ends of faults that last ---- */

static void on_resume(const struct world_event *event)
{
    struct machine *machine = world.machines[event->node];
    if (machine->life == event->life)
        machine_resume(machine);
}

static void pause_for_a_while(struct machine *machine, bool clock_too)
{
    if (!machine->up || machine->paused)
        return;
    machine_pause(machine, clock_too);
    world_at(world.now + chance_skewed(8 * SECOND), on_resume, machine->id, machine->life, NULL, 0);
}

static void on_room(const struct world_event *event)
{
    struct machine *machine = world.machines[event->node];
    if (machine->disk.disk_bytes == event->value)
        machine->disk.disk_bytes = 0;
    if (sim_env_unreserved_pages(&machine->disk) != 0)
        violation(machine->id, "a page was written through a mapping without a block on a full disk");
}

static uint64_t cut_generation[WORLD_NODES_MAX + 1][WORLD_NODES_MAX + 1];

static void on_heal(const struct world_event *event)
{
    int from = event->node;
    int to = (int)event->life;
    if (!world.cut[from][to] || cut_generation[from][to] != event->value)
        return;
    world.cut[from][to] = false;
    network_cuts_changed();
}

static void cut_way(int from, int to, uint64_t until)
{
    if (from == to)
        return;
    world.cut[from][to] = true;
    world_at(until, on_heal, from, (uint32_t)to, NULL, ++cut_generation[from][to]);
}

static void cut_both(int a, int b, uint64_t until)
{
    cut_way(a, b, until + chance(20 * MS));
    cut_way(b, a, until + chance(20 * MS));
    if (chance_of(400)) /* long enough for a kernel to give up */
        network_break(a, b);
}

static uint64_t for_a_while(void)
{
    return world.now + (chance_of(500) ? chance(600 * MS) : chance_skewed(8 * SECOND));
}

static void on_power(const struct world_event *event)
{
    struct machine *machine = world.machines[event->node];
    machine_power_cut(machine);
    restart_later(machine);
}

static void power_cut_at(struct machine *machine, uint64_t at)
{
    world_at(at, on_power, machine->id, 0, NULL, 0);
}

static void on_loop(const struct world_event *event)
{
    struct machine *machine = world.machines[event->node];
    if (event->value == 0 || world.calm)
        return;
    machine_kill(machine);
    machine_start_at(machine, world.now + chance(30 * MS));
    world_at(world.now + chance(120 * MS), on_loop, machine->id, 0, NULL, event->value - 1);
}

/* ---- one fault ---- */

static void kill_in_call(struct machine *machine, bool power)
{
    unsigned calls[] = {SIM_WRITE, SIM_SYNC, SIM_WRITE | SIM_SYNC, SIM_CHANGES, SIM_ALL, SIM_RENAME | SIM_SYNC_DIR | SIM_UNLINK | SIM_TRUNCATE};
    if (machine->stopping)
        return;
    machine->cut_when_dead = power;
    sim_env_kill_at(&machine->disk, calls[chance(6)], 1 + chance_skewed(200));
    if (!machine->up || chance_of(300)) { /* while it starts */
        if (machine->up) {
            machine_kill(machine);
            machine_start_at(machine, world.now + chance(50 * MS));
        }
        machine->cut_when_dead = power;
        sim_env_kill_at(&machine->disk, calls[chance(6)], 1 + chance_skewed(60));
    }
}

static void hung_sync(struct machine *machine)
{
    machine->slow_until = world.now + chance_skewed(3 * SECOND);
    machine->slow_us = 15 * SECOND;
}

static bool may_wipe(const struct machine *machine)
{
    if (!checker_belongs(machine->id) || another_wiped(machine) || (machine->forgetful && !machine->outcast))
        return false;
    /* A person does that only while the others are well, all of them: two wipes in a row would be one too many. */
    if (voters() - checker_votes(machine->id) < checker_majority() || checker_change_open())
        return false;
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *other = world.machines[i];
        if (other != machine && checker_belongs(i) && (!machine_runs(other) || other->forgetful || other->outcast || other->paused || disk_fault_left(other)))
            return false;
    }
    return true;
}

/* Nothing on a disk that was put back tells that it is old, so the member votes and acknowledges at once. A person does that only while the others are well
 * and have, without it, all that it ever acknowledged; and no election of a term in which it may have voted is under way. Nor ever with a copy of when that
 * member was a majority by itself: it would lead at once, whatever there is by now. */
static bool may_put_back(struct machine *machine)
{
    uint64_t last = checker_committed();
    if (!may_wipe(machine) || machine->outcast || machine->old_alone || machine->log_last > last)
        return false;
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *other = world.machines[i];
        const struct raft *raft = &other->replica.driver.raft;
        if (other != machine && checker_belongs(i) && (other->doubtful || other->replica.votes.term < machine->granted_term || raft_state((struct raft *)(uintptr_t)raft) == RAFT_CANDIDATE))
            return false;
    }
    for (uint64_t index = 1; index <= last; index++) {
        int have = 0;
        for (int i = 1; i <= world.nodes; i++)
            have += world.machines[i] != machine && checker_votes(i) && checker_has_whole(world.machines[i], index);
        if (have < checker_majority())
            return false;
    }
    return true;
}

/* False: a copy was only made, or nothing could be done. */
static bool old_copy(struct machine *machine)
{
    bool back = machine->old_copy != NULL && chance_of(700);
    if (world.trims || (machine->up && machine->stopping))
        return false;
    if (back ? !may_put_back(machine) : machine->forgetful || machine->outcast || !machine->ran)
        return false;
    machine_kill(machine);
    if (back)
        machine_put_copy_back(machine);
    else
        machine_keep_copy(machine);
    restart_later(machine);
    return back;
}

/* May come to nothing, or to something that is not counted, as a copy of a disk that is only made. */
static void one_fault(enum chaos_kind kind, uint8_t *node)
{
    struct machine *machine = any();
    struct machine *other = any();
    uint64_t until = for_a_while();
    *node = (uint8_t)machine->id;

    /* Class A: when a majority lost power, members whose entries were lost have to be emptied. */
    if (world.trims && !world.class_b && (kind == CHAOS_POWER_ONE || kind == CHAOS_POWER_IN_CALL || kind == CHAOS_POWER_MINORITY ||
                                          kind == CHAOS_POWER_ALL || kind == CHAOS_STOP_THEN_POWER || kind == CHAOS_QUEUE_LOST))
        return;
    switch (kind) {
    case CHAOS_KILL:
        if (!machine->up)
            return;
        machine_kill(machine);
        restart_later(machine);
        break;
    case CHAOS_KILL_IN_CALL:
        kill_in_call(machine, false);
        break;
    case CHAOS_POWER_ONE:
        on_power(&(struct world_event){.node = machine->id});
        break;
    case CHAOS_POWER_IN_CALL:
        kill_in_call(machine, true);
        break;
    case CHAOS_POWER_MINORITY:
        for (int i = 0, k = machine->id, left = voters() - checker_majority(); i < world.nodes && left > 0; i++, k = k % world.nodes + 1) {
            if (!checker_votes(k))
                continue;
            power_cut_at(world.machines[k], world.now + chance(10));
            left--;
        }
        break;
    case CHAOS_POWER_ALL:
        for (int i = 1; i <= world.nodes; i++) {
            if (world.machines[i]->deployed)
                power_cut_at(world.machines[i], world.now + chance(10));
        }
        break;
    case CHAOS_STOP:
    case CHAOS_STOP_THEN_POWER:
        if (!machine->up)
            return;
        machine->power_after_stop = kind == CHAOS_STOP_THEN_POWER;
        machine_stop(machine);
        break;
    case CHAOS_RESTART_LOOP:
        on_loop(&(struct world_event){.node = machine->id, .value = 2 + chance(8)});
        break;
    case CHAOS_PAUSE:
        pause_for_a_while(machine, false);
        break;
    case CHAOS_FREEZE:
        pause_for_a_while(machine, true);
        break;
    case CHAOS_CLOCK_JUMP:
        machine->wall_skew_ms += (int64_t)chance(20000000) - 10000000;
        break;
    case CHAOS_PARTITION: {
        uint64_t sides = chance(1u << world.nodes);
        for (int a = 1; a <= world.nodes; a++) {
            for (int b = a + 1; b <= world.nodes; b++) {
                if ((sides >> a & 1) != (sides >> b & 1))
                    cut_both(a, b, until);
            }
        }
        break;
    }
    case CHAOS_BRIDGE: /* two halves that see each other only through one member */
        for (int a = 1; a <= world.nodes; a++) {
            for (int b = a + 1; b <= world.nodes; b++) {
                if (a != machine->id && b != machine->id && (a < machine->id) != (b < machine->id))
                    cut_both(a, b, until);
            }
        }
        if (world.nodes > 1 && (machine->id == 1 || machine->id == world.nodes))
            cut_both(2, world.nodes == 3 ? (machine->id == 1 ? 3 : 1) : 4, until);
        break;
    case CHAOS_ISOLATE:
        for (int i = 1; i <= world.nodes; i++) {
            if (i != machine->id)
                cut_both(machine->id, i, until);
        }
        break;
    case CHAOS_ONE_WAY:
        cut_way(machine->id, other->id, until);
        if (chance_of(300)) {
            for (int i = 1; i <= world.nodes; i++)
                cut_way(machine->id, i, until);
        }
        break;
    case CHAOS_BREAK:
        network_break(machine->id, other->id);
        break;
    case CHAOS_DELAY:
        network_delay(machine->id, other->id, chance_skewed(4 * SECOND));
        break;
    case CHAOS_SLOW_DISK:
        machine->slow_until = until;
        machine->slow_us = chance_skewed(800 * MS);
        break;
    case CHAOS_HUNG_SYNC:
        hung_sync(machine);
        break;
    case CHAOS_FULL_DISK:
        machine->disk.disk_bytes = (machine->disk.used_bytes / SIM_PAGE + 1 + chance_skewed(64)) * SIM_PAGE;
        world_at(until, on_room, machine->id, 0, NULL, machine->disk.disk_bytes);
        break;
    case CHAOS_EIO: {
        unsigned calls[] = {SIM_WRITE, SIM_SYNC, SIM_WRITE | SIM_SYNC, SIM_CHANGES};
        if (!machine->up || machine->disk.fault.calls != 0)
            return;
        machine->io_error_wanted = machine->keys_may_lack = true;
        sim_env_fail_at(&machine->disk, calls[chance(4)], 1 + chance_skewed(100), EIO, chance_of(500));
        break;
    }
    case CHAOS_WIPE:
        if (!may_wipe(machine))
            return;
        machine_kill(machine);
        machine_wipe(machine);
        members_name(machine, true);
        restart_later(machine);
        break;
    case CHAOS_TRANSFER:
        for (int i = 1; i <= world.nodes; i++) {
            if (machine_runs(world.machines[i]) && raft_driver_leads(&world.machines[i]->replica.driver))
                machine = world.machines[i];
        }
        *node = (uint8_t)machine->id;
        if (!machine_runs(machine) || machine->paused || !raft_driver_leads(&machine->replica.driver) || machine_number_of(machine, other->id) == 0)
            return;
        machine_clock(machine);
        raft_driver_transfer(&machine->replica.driver, machine_number_of(machine, other->id));
        machine_after(machine);
        break;
    case CHAOS_SNAPSHOT:
        if (!machine_runs(machine))
            return;
        /* Both are due by size or time, which a short run never reaches. */
        if (chance_of(600))
            machine->replica.snapshot_position = machine->replica.applied_end + 1;
        if (chance_of(600))
            machine->replica.store_sync_due_us = 0;
        break;
    case CHAOS_FLIP:
        if (world.nodes == 1 || !disk_fault_flip(machine))
            return;
        break;
    case CHAOS_STALE: /* these two are counted when they come to something */
        if (world.nodes > 1)
            disk_fault_stale(machine);
        return;
    case CHAOS_MISDIRECTED:
        if (world.nodes > 1)
            disk_fault_misdirect(machine);
        return;
    case CHAOS_VOTE_TAKEN:
    case CHAOS_VOTE_GIVEN:
        if (!members_change_vote(machine, kind == CHAOS_VOTE_GIVEN))
            return;
        break;
    case CHAOS_MEMBER_ADDED:
    case CHAOS_MEMBER_REMOVED:
    case CHAOS_MEMBER_REPLACED:
        if (!members_begin(kind, machine, node))
            return;
        break;
    case CHAOS_PREFERRED:
        for (int i = 1; i <= world.nodes; i++)
            members_prefer(world.machines[i], other);
        break;
    case CHAOS_QUEUE_LOST: /* counted when it comes to something */
        if (!machine->up || machine->stopping)
            return;
        machine->loses_queue = true;
        machine->power_after_stop = chance_of(300);
        machine_stop(machine);
        return;
    case CHAOS_OLD_COPY:
        if (!old_copy(machine))
            return;
        break;
    default:
        return;
    }
    TRACE(2, machine->id, "chaos: %s", chaos_names[kind]);
    world.stats->chaos[kind]++;
}

/* Each fault has chance of its own, so that leaving one out changes none of the others. */
static void planned_fault(uint32_t number)
{
    struct world_fault *fault = &world.schedule->faults[number];
    uint64_t random = world.random;

    *fault = (struct world_fault){world.now, CHAOS_KINDS, 0};
    world.schedule->count = number + 1;
    if (world.options.left_out != NULL && world.options.left_out[number])
        return;
    world.random = (world.seed + 1) * 0x9E3779B97F4A7C15u ^ (number + 1) * 0xC2B2AE3D27D4EB4Fu;
    for (int tries = 0; tries < 50; tries++) {
        enum chaos_kind kind = (enum chaos_kind)chance(CHAOS_KINDS);
        if (enabled[kind]) {
            fault->kind = (uint8_t)kind; /* whatever comes of it, and also when the run ends within it */
            one_fault(kind, &fault->node);
            break;
        }
    }
    world.random = random;
}

static void on_chaos(const struct world_event *event)
{
    uint32_t number = (uint32_t)event->value;
    uint64_t random = world.random;
    if (world.calm || world.now >= ends_at || number == WORLD_FAULTS_MAX)
        return;
    planned_fault(number);
    world.random = (world.seed + 1) * 0xBF58476D1CE4E5B9u ^ (number + 1) * 0x94D049BB133111EBu;
    world_at(world.now + 1 + chance(2 * gap_us), on_chaos, 0, 0, NULL, number + 1);
    world.random = random;
}

/* Those who wait for a person get one. */
static void on_person(const struct world_event *event)
{
    (void)event;
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *machine = world.machines[i];
        if (!machine->up || machine->failed_at == 0 || world.now < machine->failed_at + 300 * MS)
            continue;
        if (machine->outcast) {
            /* Its log contradicts the others': moved away, as the message says, when they do without it. */
            if (!may_wipe(machine))
                continue;
            machine_kill(machine);
            machine_wipe(machine);
            members_name(machine, true);
        } else {
            machine_kill(machine);
        }
        machine->io_error_wanted = false;
        if (!machine->keep_down)
            machine_start_at(machine, world.now + chance(500 * MS));
    }
    world_at(world.now + 200 * MS, on_person, 0, 0, NULL, 0);
}

void chaos_begin(uint64_t until)
{
    static const uint64_t gaps[] = {140 * MS, 800 * MS, 2500 * MS, 6000 * MS};
    unsigned kinds = (unsigned)chance_between(100, 800);
    memset(cut_generation, 0, sizeof cut_generation);
    for (int i = 0; i < CHAOS_KINDS; i++)
        enabled[i] = chance_of(kinds);
    for (int i = 0; i < CHAOS_KINDS && world.options.kinds != 0; i++)
        enabled[i] = world.options.kinds >> i & 1;
    for (int i = CHAOS_VOTE_TAKEN; i <= CHAOS_MEMBER_REPLACED; i++)
        enabled[i] = enabled[i] && world.changes_members;
    members_init();
    gap_us = gaps[chance(4)];
    ends_at = until;
    world_at(world.now + chance(1 * SECOND), on_chaos, 0, 0, NULL, 0);
    world_at(world.now + 200 * MS, on_person, 0, 0, NULL, 0);
}

void chaos_end(void)
{
    memset(world.cut, 0, sizeof world.cut);
    network_calm();
    network_cuts_changed();
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *machine = world.machines[i];
        machine->slow_until = 0;
        machine->disk.disk_bytes = 0;
        machine_resume(machine);
        machine_hurry(machine);
        /* An error that has not struck yet never will. */
        memset(&machine->disk.fault, 0, sizeof machine->disk.fault);
        machine->cut_when_dead = machine->power_after_stop = false;
        /* But what struck a job may not have come back yet. */
        bool out = false;
        for (int k = 0; k < JOBS; k++)
            out = out || machine->jobs[k].ran;
        if (machine->failed_at == 0 && !out)
            machine->io_error_wanted = false;
    }
}
