/* A run: machines start, clients send, things break and members come and go for a while, in some runs until the whole group is gone and
 * a fresh one begins with a backup (1, backup.h); then what is broken is mended, first with a bare majority up (2), then with all
 * (3): there must be progress within a bounded time. When the clients have ended all must become alike (4), and stay so over a last restart of
 * everything (5). */
#include "tests/sim/world.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/backup.h"
#include "tests/sim/bugs.h"
#include "tests/sim/chaos.h"
#include "tests/sim/checker.h"
#include "tests/sim/disk_fault.h"
#include "tests/sim/drivers.h"
#include "tests/sim/machine.h"
#include "tests/sim/workload.h"

#define PROGRESS_MAX (2 * SECOND)
#define PROGRESS_MAX_A (30 * SECOND) /* members that forgot something may have to find all others first, and to catch up */
#define CONVERGE_MAX (60 * SECOND)

struct world world;

static struct {
    struct event_key {
        uint64_t at;
        uint64_t order; /* of those at the same time the one that was planned first */
        uint32_t place; /* in items */
    } *heap;
    struct world_event *items;
    uint32_t *free_places;
    size_t count;
    uint32_t capacity, free_count;
    uint64_t order;
} events;

/* ---- events ---- */

/* A heap whose nodes have four children, of keys only: what they stand for stays where it is. */
static bool before(const struct event_key *a, const struct event_key *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void grow_events(void)
{
    uint32_t old = events.capacity;
    events.capacity = old == 0 ? 1024 : old * 2;
    events.heap = realloc(events.heap, events.capacity * sizeof *events.heap);
    events.items = realloc(events.items, events.capacity * sizeof *events.items);
    events.free_places = realloc(events.free_places, events.capacity * sizeof *events.free_places);
    assert(events.heap != NULL && events.items != NULL && events.free_places != NULL);
    for (uint32_t place = events.capacity; place-- > old;)
        events.free_places[events.free_count++] = place;
}

void world_at(uint64_t at, void (*run)(const struct world_event *event), int node, uint32_t life, void *pointer, uint64_t value)
{
    if (events.free_count == 0)
        grow_events();
    uint32_t place = events.free_places[--events.free_count];
    struct event_key key = {at < world.now ? world.now : at, events.order++, place};
    events.items[place] = (struct world_event){key.at, run, pointer, value, life, node};
    size_t hole = events.count++;
    while (hole > 0 && before(&key, &events.heap[(hole - 1) / 4])) {
        events.heap[hole] = events.heap[(hole - 1) / 4];
        hole = (hole - 1) / 4;
    }
    events.heap[hole] = key;
}

static struct world_event next_event(void)
{
    uint32_t place = events.heap[0].place;
    struct event_key last = events.heap[--events.count];
    size_t hole = 0;
    for (size_t child = 1; child < events.count; child = 4 * hole + 1) {
        size_t end = child + 4 < events.count ? child + 4 : events.count;
        size_t least = child;
        while (++child < end) {
            if (before(&events.heap[child], &events.heap[least]))
                least = child;
        }
        if (!before(&events.heap[least], &last))
            break;
        events.heap[hole] = events.heap[least];
        hole = least;
    }
    events.heap[hole] = last;
    events.free_places[events.free_count++] = place;
    return events.items[place];
}

/* Loops are most of what there is to run, and are often woken earlier than was planned: so they are not events. 0: none is. */
static int next_machine(void)
{
    int next = 0;
    uint64_t at = UINT64_MAX;
    for (int i = 1; i <= world.nodes; i++) {
        if (world.wake_at[i] < at) {
            at = world.wake_at[i];
            next = i;
        }
    }
    return next;
}

bool world_run_while_not(bool (*condition)(void), uint64_t until)
{
    uint64_t look_at = world.now;
    for (;;) {
        int node = next_machine();
        uint64_t event_at = events.count > 0 ? events.heap[0].at : UINT64_MAX;
        uint64_t at = node != 0 && world.wake_at[node] < event_at ? world.wake_at[node] : event_at;
        if (at > until || at == UINT64_MAX)
            break;
        world.now = at;
        world.stats->events++;
        if (at < event_at) {
            machine_run(world.machines[node]);
        } else {
            struct world_event event = next_event();
            event.run(&event);
        }
        if (condition != NULL && world.now >= look_at) {
            if (condition())
                return true;
            look_at = world.now + 5 * MS;
        }
    }
    world.now = until;
    return false;
}

void world_run_until(uint64_t until)
{
    world_run_while_not(NULL, until);
}

/* ---- saying ---- */

void trace(int level, int node, const char *format, ...)
{
    va_list args;
    if (level > world.options.verbose)
        return;
    fprintf(stderr, "%10.3f ms  ", (double)world.now / 1000.0);
    if (node != 0)
        fprintf(stderr, "n%d ", node - 1);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

static void tell_machines(void)
{
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *machine = world.machines[i];
        const struct replica *replica = &machine->replica;
        if (!machine->up) {
            fprintf(stderr, "    n%d: %s, log %llu, commit seen %llu%s%s\n", i - 1, machine->powered ? "no process" : "no power",
                    (unsigned long long)machine->log_last, (unsigned long long)machine->commit_seen, machine->forgetful ? ", forgetful" : "",
                    machine->outcast ? ", outcast" : "");
            continue;
        }
        fprintf(stderr,
                "    n%d: phase %d mute %d%s%s%s, %s, term %llu, leader %llu, last %llu (stored %llu, synced %lld), commit %llu, applied %llu, "
                "gathered %u, room %s, accepting %d, links",
                i - 1, replica->phase, replica->mute_reason, machine->paused ? " PAUSED" : "", machine->forgetful ? " forgetful" : "",
                machine->outcast ? " outcast" : "",
                replica->driver.started ? raft_state_name(raft_state((struct raft *)(uintptr_t)&replica->driver.raft)) : "not started",
                (unsigned long long)replica->votes.term, (unsigned long long)replica->known_leader,
                (unsigned long long)raft_driver_last(&replica->driver), (unsigned long long)replica->driver.raft.last_stored,
                (long long)replica->ledger.synced_index + 1, (unsigned long long)replica->driver.commit, (unsigned long long)replica->applied,
                replica->gather_count, replica->reserve_failed ? "none" : "yes", replica->accepting);
        for (int k = 1; k <= world.nodes; k++)
            fprintf(stderr, " %s", k == i ? "-" : machine->links[k].connection != NULL ? "up" : "no");
        fprintf(stderr, "%s%s\n", replica->phase == REPLICA_FAILED ? ": " : "",
                replica->phase == REPLICA_FAILED ? replica->failure.message : "");
    }
}

void violation(int node, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "seed %llu: VIOLATION at %.3f ms, ", (unsigned long long)world.seed, (double)world.now / 1000.0);
    if (node != 0)
        fprintf(stderr, "n%d: ", node - 1);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, " (%d nodes at first, class %c)\n", world.founders, world.class_b ? 'B' : 'A');
    tell_machines();
    world.stats->failed++;
    fflush(stderr);
    _Exit(1);
}

/* ---- a run ---- */

static void draw_style(void)
{
    static const uint64_t segments[] = {64 << 10, 64 << 10, 64 << 10, 128 << 10, 256 << 10};
    static const uint64_t latencies[] = {100, 300, 1000, 5000, 20000};
    static const uint64_t syncs[] = {100, 300, 1000, 10000, 40000};
    static const uint64_t gaps[] = {32000, 64000, 72000, 72000, 72000};
    static const unsigned late[] = {0, 100, 1000, 10000};
    world.segment_size = segments[chance(5)];
    world.index_file_size = chance_of(500) ? 32 * 512 : 32 * 1024;
    world.latency_us = latencies[chance(5)];
    world.late_per_million = late[chance(4)];
    world.flip_per_million = chance_of(300) ? 2000 : 0;
    world.turn_per_mille = (unsigned)chance(1001);
    world.sync_us = syncs[chance(5)];
    world.unsent_max = chance_of(300) ? 16 << 10 : 4 << 20;
    world.send_gap_us = gaps[chance(5)];
    world.body_max = chance_of(300) ? 20000 : 300;
    world.gives_up_halves = chance_of(400);
    world.trims = chance_of(400);
    if (world.trims) { /* enough bytes for several segments */
        world.segment_size = 64 << 10;
        world.body_max = 20000;
    }
    /* In class A a power cut of few could be one of all that vote at that moment. */
    world.changes_members = world.class_b && chance_of(400);
    if (world.changes_members) {
        static const int founders[] = {1, 3, 3, 3, 5};
        int drawn = founders[chance(5)];
        world.founders = world.options.nodes != 0 ? world.options.nodes : drawn;
        world.nodes = (world.founders < 3 ? 3 : world.founders) + 2;
    }
    world.scrub_rate = chance_of(500) ? 64 << 10 : 1 << 20;
    world.vote_wait_us = chance_of(300) ? 0 : REPLICA_VOTE_WAIT_MS * MS;
}

static void start_all(void)
{
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *machine = world.machines[i];
        machine->keep_down = false;
        if (machine->deployed && !machine->up)
            machine_start_at(machine, world.now + chance(200 * MS));
    }
}

static uint64_t acknowledged_before;

static bool progressed(void)
{
    return workload_acknowledged() >= acknowledged_before + 3;
}

static bool all_remember(void)
{
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *machine = world.machines[i];
        if (!checker_belongs(i))
            continue;
        if (!machine->ran || machine->forgetful || machine->doubtful || machine->outcast || disk_fault_left(machine))
            return false;
    }
    return true;
}

/* Class A after power cuts that took a majority's memory, one member wiped on top: what it held may be nowhere any more, and only a person may say that the
 * group goes on without (forceStart). */
static bool waits_for_a_person(void)
{
    int remember = 0;

    for (int i = 1; i <= world.nodes; i++)
        remember += checker_votes(i) && !world.machines[i]->forgetful && !world.machines[i]->outcast;
    return !world.class_b && remember < checker_majority();
}

/* What it needs next is deleted by another member. */
static bool one_is_left_behind(void)
{
    uint64_t begin = 0, least = UINT64_MAX;
    for (int i = 1; i <= world.nodes; i++) {
        const struct machine *machine = world.machines[i];
        if (!checker_belongs(i))
            continue;
        begin = machine->log_begin > begin ? machine->log_begin : begin;
        least = machine->log_last < least ? machine->log_last : least;
    }
    return least < begin;
}

/* Will be started, but has no power yet. Whoever dials it before hears nothing, not even a refusal, and dials again only when two elections could be over; and
 * the machine itself waits for as long for those with lower numbers to dial it. */
static bool one_has_no_power_yet(void)
{
    for (int i = 1; i <= world.nodes; i++) {
        const struct machine *machine = world.machines[i];
        if (machine->deployed && !machine->powered && !machine->keep_down)
            return true;
    }
    return false;
}

/* False: the run ends here, since nobody is there to help. */
static bool expect_progress(const char *when)
{
    uint64_t within = all_remember() ? PROGRESS_MAX : PROGRESS_MAX_A;
    /* Where few vote no other one can be elected while one of them is on its way through a stop and a start; nor where one has to fetch a log first, with which
     * it begins anew. */
    if ((world.changes_members || one_is_left_behind()) && within < 2 * PROGRESS_MAX)
        within = 2 * PROGRESS_MAX;
    if (one_has_no_power_yet())
        within += NETWORK_RETRANSMIT_US;
    uint64_t began = world.now;
    bool healthy = all_remember();
    acknowledged_before = workload_acknowledged();
    world.sends_wanted = true;
    bool progress = world_run_while_not(progressed, world.now + within);
    world.sends_wanted = false;
    if (progress) {
        uint64_t half_seconds = (world.now - began) / (SECOND / 2);
        if (healthy)
            world.stats->progress[half_seconds < WORLD_PROGRESS_STEPS ? half_seconds : WORLD_PROGRESS_STEPS - 1]++;
        TRACE(1, 0, "progress after %llu ms%s", (unsigned long long)((world.now - began) / MS), healthy ? "" : ", some had forgotten something");
        return true;
    }
    if (!waits_for_a_person())
        violation(0, "no send was acknowledged within %llu s, %s", within / SECOND, when);
    world.stats->runs_that_wait_for_a_person++;
    return false;
}

/* With a majority that has forgotten nothing, and does not believe so since its checkpoint was damaged, and nobody else. Others may wait for all members, by
 * design. */
static void bare_majority(void)
{
    int chosen[WORLD_NODES_MAX];
    int count = 0;

    for (int i = 1; i <= world.nodes; i++) {
        struct machine *machine = world.machines[i];
        if (checker_belongs(i) && machine->ran && !machine->mute && !machine->forgetful && !machine->doubtful && !machine->outcast && !disk_fault_left(machine))
            chosen[count++] = i;
    }
    /* While a change is on its way nobody may say which members make a majority: the two configurations may need different ones. */
    int voters = 0;
    for (int i = 0; i < count; i++)
        voters += checker_votes(chosen[i]);
    if (voters < checker_majority() || checker_change_open()) {
        world.stats->runs_without_bare_majority++;
        return;
    }
    for (int i = count - 1; i > 0; i--) {
        int k = (int)chance((uint64_t)i + 1);
        int node = chosen[i];
        chosen[i] = chosen[k];
        chosen[k] = node;
    }
    /* As many of them as a majority of those who vote needs. */
    int enough = 0;
    for (int votes = 0; enough < count && votes < checker_majority();)
        votes += checker_votes(chosen[enough++]);
    for (int i = 1; i <= world.nodes; i++) {
        bool up = false;
        if (!checker_belongs(i))
            continue; /* it may try to disturb */
        for (int k = 0; k < count; k++)
            up = up || (chosen[k] == i && k < enough);
        if (up && !world.machines[i]->up)
            machine_start_at(world.machines[i], world.now + chance(200 * MS));
        world.machines[i]->keep_down = !up;
        if (!up && world.machines[i]->up)
            machine_kill(world.machines[i]);
    }
    expect_progress("a bare majority is up and connected");
}

static void converge(const char *when)
{
    uint64_t until = world.now + CONVERGE_MAX;
    /* Brokers go on by themselves for a moment: commits that were gathered, half messages that are given up. */
    uint64_t last = 0;
    do {
        if (!world_run_while_not(checker_converged, until))
            violation(0, "the members are not alike %llu s after %s; %llu delayed messages wait", CONVERGE_MAX / SECOND, when,
                      (unsigned long long)checker_delayed_waiting());
        last = checker_committed();
        world_run_until(world.now + 700 * MS);
    } while (last != checker_committed() || !checker_converged());
    checker_final();
}

static bool all_down(void)
{
    for (int i = 1; i <= world.nodes; i++) {
        if (world.machines[i]->up)
            return false;
    }
    return true;
}

static void restart_all(void)
{
    uint64_t how = chance(4);
    const char *const names[] = {"a kill of all", "a power cut of all", "a clean stop of all", "a clean stop and a power cut of all"};

    TRACE(1, 0, "%s", names[how]);
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *machine = world.machines[i];
        machine->keep_down = true;
        machine->power_after_stop = how == 3;
        if (how == 0)
            machine_kill(machine);
        else if (how == 1)
            machine_power_cut(machine);
        else
            machine_stop(machine);
    }
    if (!world_run_while_not(all_down, world.now + 30 * SECOND))
        violation(0, "a clean stop takes more than 30 s");
    start_all();
    bool goes_on = expect_progress("after a restart of all");
    workload_end();
    if (goes_on)
        converge(names[how]);
}

void world_run(uint64_t seed, const struct world_options *options, struct world_stats *stats, struct world_schedule *schedule)
{
    memset(&world, 0, sizeof world);
    world.seed = seed;
    world.random = seed * 0x2545F4914F6CDD1Du + 0x9E3779B97F4A7C15u;
    world.options = *options;
    seeded_bug_set(options->bug);
    world.stats = stats;
    world.schedule = schedule;
    world.now = 100 * SECOND;
    for (int i = 0; i <= WORLD_NODES_MAX; i++)
        world.wake_at[i] = UINT64_MAX;
    if (options->drivers) {
        drivers_run((enum drivers_play)options->play);
        return;
    }
    uint64_t nodes = chance_of(800) ? 3 : 5;
    bool class_b = chance_of(600);
    world.founders = world.nodes = options->nodes != 0 ? options->nodes : (int)nodes;
    world.class_b = options->durability != 0 ? options->durability == 'B' : class_b;
    draw_style();
    TRACE(1, 0, "%d nodes%s, class %c, segments of %llu KiB, latency %llu us, sync %llu us, a call every %llu us", world.founders,
          world.changes_members ? " at first" : "",
          world.class_b ? 'B' : 'A', (unsigned long long)world.segment_size >> 10, (unsigned long long)world.latency_us,
          (unsigned long long)world.sync_us, (unsigned long long)world.send_gap_us);

    checker_init();
    disk_fault_init();
    workload_init();
    backup_init();
    for (int i = 1; i <= world.nodes; i++) {
        world.machines[i] = calloc(1, sizeof *world.machines[i]);
        assert(world.machines[i] != NULL);
        machine_init(world.machines[i], i);
    }
    uint64_t began = world.now;
    start_all();
    workload_begin();
    chaos_begin(world.now + options->seconds * SECOND);
    if (backup_wanted())
        backup_play(options->seconds * SECOND);
    else
        world_run_until(world.now + options->seconds * SECOND);

    TRACE(1, 0, "the faults end");
    world.calm = true;
    chaos_end();
    bare_majority();
    TRACE(1, 0, "all members come back");
    start_all();
    bool goes_on = expect_progress("everybody is up and connected");
    workload_end();
    if (goes_on) {
        converge("all members came back");
        workload_begin();
        expect_progress("all members are alike");
        if (backup_wanted())
            backup_must_work();
        restart_all();
    }

    stats->virtual_us += world.now - began;
    stats->runs++;
    for (int i = 1; i <= world.nodes; i++) {
        machine_kill(world.machines[i]);
        machine_close(world.machines[i]);
        free(world.machines[i]);
    }
    network_close();
    backup_close();
    workload_close();
    checker_close();
    free(events.heap);
    free(events.items);
    free(events.free_places);
    memset(&events, 0, sizeof events);
}
