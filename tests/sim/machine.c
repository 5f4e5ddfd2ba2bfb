/* The loop: whatever has arrived is taken in some order, the timer runs if it is due, and then (or, as in the product, also between) the turn ends. */
#include "tests/sim/machine.h"

#include <assert.h>
#include <bsd/sys/queue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker_parts.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/topic_config.h"
#include "broker/remoting/remoting_server.h"
#include "dledger/replica_internal.h"
#include "store/index_service.h"
#include "tests/sim/backup.h"
#include "tests/sim/checker.h"
#include "tests/sim/commit_log.h"
#include "tests/sim/disk_fault.h"
#include "tests/sim/workload.h"

#define ROOT "/d"
#define STOP_STEP (5 * MS)
#define STOP_TRANSFER_MS (2 * SECOND)

/* ---- time ---- */

static uint64_t clock_now(const struct machine *machine)
{
    return (machine->frozen ? machine->paused_since : world.now) - machine->boot_us;
}

void machine_clock(struct machine *machine)
{
    machine->disk.own_clock.monotonic_us = clock_now(machine);
    machine->loop.now_ms = machine->disk.own_clock.monotonic_us / 1000;
    machine->disk.own_clock.wall_ms = 1600000000000 + (int64_t)(world.now / 1000) + machine->wall_skew_ms;
}

void machine_wake(struct machine *machine, uint64_t at)
{
    if (!machine->up || machine->paused)
        return;
    if (at < machine->busy_until)
        at = machine->busy_until;
    if (at < world.now)
        at = world.now;
    if (at < world.wake_at[machine->id])
        world.wake_at[machine->id] = at;
}

/* ---- what the replica asks for ---- */

static void io_send(void *context, uint64_t to, struct peer_message *message, const uint8_t *run, size_t size)
{
    struct machine *machine = context;
    struct peer_message copy = *message;
    if (machine->disk.dead)
        return;
    copy.body_size = (uint32_t)size;
    if (message->type == PEER_REQUEST_VOTE || message->type == PEER_REQUEST_VOTE_RESULT)
        TRACE(3, machine->id, "%s n%llu: %s%s, term %llu", message->type == PEER_REQUEST_VOTE ? "asks for a vote" : "answers",
              (unsigned long long)to - 1, (message->flags & PEER_VOTE_PRE) != 0 ? "pre-vote" : "vote",
              message->type == PEER_REQUEST_VOTE ? "" : (message->flags & PEER_VOTE_GRANTED) != 0 ? " granted" : " refused",
              (unsigned long long)message->vote.term);
    checker_sending(machine, to, &copy);
    network_send(machine, to, &copy, run, (uint32_t)size);
}

static void io_cut(void *context)
{
    struct machine *machine = context;
    if (machine->disk.dead)
        return;
    machine->cut_above = machine->replica.driver.commit;
    network_cut_unsent(machine);
}

static void on_job_back(const struct world_event *event)
{
    struct machine *machine = world.machines[event->node];
    struct machine_job *job = &machine->jobs[event->value];
    if (machine->life != event->life || !machine->up || !job->out || job->back)
        return;
    job->back = true;
    machine_wake(machine, world.now);
}

static void job_run(struct machine *machine, enum machine_job_kind kind)
{
    if (kind == JOB_SYNC)
        ledger_sync_run(&machine->replica.sync);
    else if (kind == JOB_RESERVE)
        ledger_reservation_run(&machine->replica.reservation);
    else if (kind == JOB_SAVE)
        replica_save_run(&machine->replica.save);
    else if (kind == JOB_SCRUB)
        replica_scrub_run(&machine->replica.scrub);
    else
        vote_save_run(&machine->replica.driver.vote_save);
    machine->jobs[kind].ran = true;
}

static void on_job_run(const struct world_event *event)
{
    struct machine *machine = world.machines[event->node];
    struct machine_job *job = &machine->jobs[event->value];
    if (machine->life != event->life || !machine->up || !job->out || job->ran)
        return;
    machine_clock(machine);
    job_run(machine, (enum machine_job_kind)event->value);
    if (machine->disk.dead)
        machine_died(machine);
}

static uint64_t disk_time(const struct machine *machine)
{
    uint64_t time = 20 + chance(world.sync_us);
    if (world.now < machine->slow_until)
        time += chance(machine->slow_us);
    return time;
}

void machine_hurry(struct machine *machine)
{
    for (int kind = 0; kind < JOBS; kind++) {
        if (machine->up && machine->jobs[kind].out)
            world_at(world.now + chance(50 * MS), on_job_back, machine->id, machine->life, NULL, (uint64_t)kind);
    }
}

static void job_begin(struct machine *machine, enum machine_job_kind kind, uint64_t time)
{
    struct machine_job *job = &machine->jobs[kind];
    uint64_t run_at = world.now + chance(time + 1);
    assert(!job->out);
    *job = (struct machine_job){.out = true};
    world_at(run_at, on_job_run, machine->id, machine->life, NULL, kind);
    world_at(world.now + time, on_job_back, machine->id, machine->life, NULL, kind);
}

static void job_start(struct machine *machine, enum machine_job_kind kind)
{
    job_begin(machine, kind, disk_time(machine));
}

/* The loop stands still as long as it waits, which is nothing here. */
static bool io_save_vote(void *context, struct vote_save *save)
{
    struct machine *machine = context;
    uint64_t time = disk_time(machine);
    if (time <= world.vote_wait_us) {
        vote_save_run(save);
        return true;
    }
    world.stats->late_votes++;
    job_begin(machine, JOB_VOTE, time);
    return false;
}

static void io_sync(void *context, struct ledger_sync *sync)
{
    (void)sync;
    job_start(context, JOB_SYNC);
}

static void io_reserve(void *context, struct ledger_reservation *job)
{
    (void)job;
    job_start(context, JOB_RESERVE);
}

static void io_save(void *context, struct replica_save *save)
{
    (void)save;
    job_start(context, JOB_SAVE);
}

static void io_scrub(void *context, struct replica_scrub *scrub)
{
    (void)scrub;
    job_start(context, JOB_SCRUB);
}

static void io_hello_changed(void *context)
{
    ((struct machine *)context)->greet_wanted = true;
}

static void saved(struct machine *machine)
{
    const struct replica_save *save = &machine->replica.save;
    if (save->result == 0 && !machine->disk.dead) {
        machine->saves++;
        machine->vouched = (uint64_t)(save->checkpoint.committed_index + 1);
    }
    replica_saved(&machine->replica);
}

static void job_back(struct machine *machine, enum machine_job_kind kind)
{
    struct machine_job *job = &machine->jobs[kind];
    if (!job->ran)
        job_run(machine, kind);
    *job = (struct machine_job){0};
    if (kind == JOB_SYNC)
        replica_synced(&machine->replica);
    else if (kind == JOB_RESERVE)
        replica_reserved(&machine->replica);
    else if (kind == JOB_SAVE)
        saved(machine);
    else if (kind == JOB_SCRUB)
        replica_scrubbed(&machine->replica);
    else
        raft_driver_vote_saved(&machine->replica.driver);
}

/* ---- the callbacks ---- */

static void cb_metadata(void *context, uint64_t index, struct slice record, bool replay)
{
    struct machine *machine = context;
    if (machine->disk.dead)
        return;
    machine->callbacks.apply_metadata(&machine->broker, index, record, replay);
    checker_applied(machine, index + 1, NULL, replay);
}

static void cb_message(void *context, uint64_t index, const struct message_dispatch *dispatch, struct slice trailer, bool replay)
{
    struct machine *machine = context;
    if (machine->disk.dead)
        return;
    machine->callbacks.apply_message(&machine->broker, index, dispatch, trailer, replay);
    checker_applied(machine, index + 1, dispatch, replay);
}

static void cb_applied(void *context)
{
    struct machine *machine = context;
    if (!machine->disk.dead)
        machine->callbacks.applied(&machine->broker);
}

static int cb_snapshot(void *context, uint64_t index, struct buffer *out)
{
    struct machine *machine = context;
    checker_snapshot(machine, index + 1);
    return machine->callbacks.snapshot(&machine->broker, index, out);
}

static int cb_restore(void *context, struct slice snapshot)
{
    struct machine *machine = context;
    int rv = machine->callbacks.restore(&machine->broker, snapshot);
    if (rv != 0)
        violation(machine->id, "a metadata snapshot of %zu bytes is handed back", snapshot.size);
    backup_metadata_restored(machine);
    return rv;
}

static void cb_role_changed(void *context)
{
    struct machine *machine = context;
    if (!machine->disk.dead && machine->broker.metadata != NULL)
        machine->callbacks.role_changed(&machine->broker);
}

static void cb_failed(void *context, const struct error *error)
{
    (void)context;
    (void)error;
}

/* ---- life of a process ---- */

void machine_init(struct machine *machine, int id)
{
    machine->id = id;
    snprintf(machine->name, sizeof machine->name, "n%d", id - 1);
    machine->deployed = id <= world.founders;
    for (int i = 1, size = 0; i <= world.founders && machine->deployed; i++) {
        char address[32];
        machine_address(i, address);
        size += snprintf(machine->peers + size, sizeof machine->peers - (size_t)size, "%s%s", i == 1 ? "" : ";", address);
    }
    sim_env_init(&machine->disk, world.seed * 16 + (uint64_t)id, NULL);
    machine->disk.clock = &machine->disk.own_clock;
    machine->disk.writeback_per_mille = (uint32_t)chance(30);
    machine->powered = true;
    machine->boot_us = world.now - chance(90 * SECOND);
    world.wake_at[machine->id] = UINT64_MAX;
    machine->cut_above = UINT64_MAX;
}

void machine_close(struct machine *machine)
{
    world.stats->torn_pages += machine->disk.torn_pages;
    world.stats->lost_names += machine->disk.lost_names;
    sim_env_close(&machine->disk);
    sim_env_copy_free(machine->old_copy);
    free(machine->log);
    free(machine->ghost);
}

int machine_named(const char *name)
{
    int id = name[0] == 'n' && name[1] >= '0' && name[1] <= '9' && (name[2] == '\0' || name[2] == '-') ? name[1] - '0' + 1 : 0;
    return id <= world.nodes ? id : 0;
}

void machine_address(int id, char out[32])
{
    snprintf(out, 32, "n%d-h:%d", id - 1, id);
}

uint64_t machine_number_of(const struct machine *machine, int other)
{
    for (uint64_t number = 1; number <= DLEDGER_MEMBERS_MAX; number++) {
        if (machine->numbers[number] == other)
            return number;
    }
    return 0;
}

static void on_start(const struct world_event *event)
{
    struct machine *machine = world.machines[event->node];
    if (machine->deployed && !machine->up && machine->life == event->life && !machine->keep_down)
        machine_start(machine);
}

void machine_start_at(struct machine *machine, uint64_t at)
{
    world_at(at, on_start, machine->id, machine->life, NULL, 0);
}

static void forget_process(struct machine *machine)
{
    machine->up = false;
    machine->paused = machine->frozen = false;
    machine->stopping = machine->transferred = false;
    machine->greet_wanted = false;
    machine->client_calls = 0;
    world.wake_at[machine->id] = UINT64_MAX;
    machine->busy_until = 0;
    machine->failed_at = 0;
    machine->commit_seen = 0;
    machine->leads_term = 0;
    machine->apply_next = 0;
    machine->life++;
    memset(machine->jobs, 0, sizeof machine->jobs);
}

static void on_restart_failed(struct machine *machine, const struct error *error)
{
    bool died = machine->disk.dead;
    bool excused = died || error->code == ERROR_NO_SPACE || machine->io_error_wanted;
    TRACE(1, machine->id, "does not start: %s%s", error->message, died ? " (it died)" : "");
    world.stats->start_failures++;
    if (!excused && !backup_may_refuse(machine, error))
        violation(machine->id, "refuses to start: %s", error->message);
    sim_env_kill(&machine->disk);
    bool cut = machine->cut_when_dead;
    network_end(machine, false);
    forget_process(machine);
    if (cut)
        machine_power_cut(machine);
    backup_start_failed(machine, error);
    machine_start_at(machine, world.now + chance_between(10 * MS, 1 * SECOND));
}

void machine_store_config(struct message_store_config *config, bool index)
{
    *config = (struct message_store_config){
        .root = ROOT,
        .consume_queue_file_size = 20 * 300,
        .index_slots = 64,
        .index_entries = 512,
        .index_enable = index,
        .delay_level_ms = workload_delay_level_ms,
        .delay_levels = WORKLOAD_DELAY_LEVELS,
    };
}

void machine_open_broker(struct broker *broker, struct loop *loop, struct env *env, struct machine *machine)
{
    struct error error = {0};
    static struct remoting_server nobody; /* is connected: clients come as those of a follower do */
    memset(broker, 0, sizeof *broker);
    broker->server = &nobody;
    broker->loop = &loop->uv;
    broker->env = *env;
    broker->log = commit_log_of(machine);
    struct broker_config *config = &broker->config;
    config->broker_cluster_name = "C";
    config->broker_name = "b";
    config->broker_ip1 = "127.0.0.1";
    config->region_id = "r";
    config->group = "g";
    config->self_id = machine->name;
    config->dleger_peers = "";
    config->store_path_root_dir = ROOT;
    config->msg_trace_topic_name = "RMQ_SYS_TRACE_TOPIC";
    config->listen_port = 10911;
    config->default_topic_queue_nums = 4;
    config->auto_create_topic_enable = true;
    config->auto_create_subscription_group = true;
    config->cluster_topic_enable = true;
    config->broker_topic_enable = true;
    config->broker_permission = BROKER_PERM_READ | BROKER_PERM_WRITE;
    config->max_message_size = 1 << 20;
    config->max_msgs_num_batch = 64;
    config->held_pulls_max = 16;
    config->buffer_memory_max = 1 << 30;
    config->transaction_time_out = 1000;
    config->transaction_check_interval = 500;
    config->transaction_check_max = world.gives_up_halves ? 0 : 15;
    config->file_reserved_time = 720000;
    config->delete_when = "04";
    config->disk_max_used_space_ratio = 100;
    config->disk_space_clean_forcibly_ratio = 100;
    config->disk_space_warning_level_ratio = 100;
    config->clean_resource_interval = 500;
    config->mapped_file_size_commit_log = (int64_t)world.segment_size;
    config->log_bytes_max = world.trims ? 2 * (int64_t)world.segment_size : 0;
    config->sync_flush = world.class_b;
    config->delay_levels = WORKLOAD_DELAY_LEVELS;
    memcpy(config->delay_level_ms, workload_delay_level_ms, (WORKLOAD_DELAY_LEVELS + 1) * sizeof *workload_delay_level_ms);
    message_host_parse(SLICE_LITERAL("127.0.0.1:10911"), &broker->store_host);
    snprintf(broker->address, sizeof broker->address, "127.0.0.1:10911");
    if (broker_parts_open(broker, &error) != 0) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
}

/* What waited for the log has been told. */
static void close_broker(struct machine *machine)
{
    broker_parts_close(&machine->broker);
    while (loop_run_work(&machine->loop))
        ;
    loop_run_closing(&machine->loop);
    broker_parts_free(&machine->broker);
}

void machine_start(struct machine *machine)
{
    struct dledger_options options = {
        .cluster = "C",
        .group = "g",
        .self_id = machine->name,
        .peers = machine->peers,
        .preferred_leaders = machine->preferred,
        .dir = ROOT,
        .segment_size = world.segment_size,
        .index_file_size = world.index_file_size,
        .durability = world.class_b ? DURABILITY_B : DURABILITY_A,
        .election_timeout_ms = MACHINE_ELECTION_MS,
        .heartbeat_ms = 100,
        .max_wait_ms = 2500,
        .follower_lag_bytes_max = world.trims && world.seed % 2 == 0 ? world.segment_size : 0, /* members that are away are left behind */
        .fetch_bytes_per_second = 4u << 20,
        .scrub_bytes_per_second = world.scrub_rate,
        .scrub_interval_s = 6,
    };
    struct dledger_callbacks callbacks = {machine,    cb_metadata,     cb_message, cb_applied, cb_snapshot,
                                          cb_restore, cb_role_changed, NULL,       NULL,       cb_failed,  NULL};
    struct replica_io io = {machine, io_send, io_cut, io_sync, io_reserve, io_save, io_hello_changed, io_scrub, NULL, io_save_vote};
    struct message_store_config config;
    struct error error = {0};
    struct sim_fault fault = machine->disk.fault; /* chaos may want the start itself to fail */

    assert(!machine->up);
    memcpy(machine->preferred, machine->preferred_next, sizeof machine->preferred);
    sim_env_restart(&machine->disk);
    if (fault.kill || chance_of(300))
        machine->disk.fault = fault;
    else
        fault.calls = 0;
    machine->up = machine->powered = true;
    machine->born = world.now;
    machine->clean = false;
    machine->cut_when_dead = machine->cut_when_dead && fault.kill;
    machine->io_error_wanted = fault.calls != 0 && !fault.kill;
    loop_init(&machine->loop, 0);
    machine_clock(machine);
    world.stats->starts++;
    TRACE(1, machine->id, "starts");
    if (replica_open(&machine->replica, &machine->disk.env, &options, &callbacks, &io, "h:10911", &machine->view, &error) != 0) {
        on_restart_failed(machine, &error);
        return;
    }
    backup_taken(machine);
    checker_started(machine);
    machine_open_broker(&machine->broker, &machine->loop, &machine->disk.env, machine);
    broker_parts_callbacks(&machine->broker, &machine->callbacks);
    machine_store_config(&config, true);
    if (message_store_open(&machine->broker.store, &machine->disk.env, &config, &machine->view, &error) != 0) {
        replica_close(&machine->replica);
        close_broker(machine);
        on_restart_failed(machine, &error);
        return;
    }
    machine->broker.store.topic_since = topic_config_since;
    machine->broker.store.topic_since_context = &machine->broker;
    if (replica_start(&machine->replica, &machine->broker.store, &error) != 0) {
        replica_close(&machine->replica);
        machine->mark_lost = machine->mark_lost || machine->broker.store.sums.mark_unwritten;
        message_store_close(&machine->broker.store);
        close_broker(machine);
        on_restart_failed(machine, &error);
        return;
    }
    metadata_trim_expired(&machine->broker);
    if (machine->broker.store.lost_ends && !machine->queue_lost && !machine->mark_lost)
        violation(machine->id, "makes its queues anew, of which none lost anything");
    machine->queue_lost = machine->mark_lost = false;
    if (machine->disk.dead) {
        machine_died(machine);
        return;
    }
    const struct index_service *index = machine->broker.store.index;
    TRACE(2, machine->id, "queues and index complete up to %lld (checkpoint %llu, synced %llu, same boot %d), %zu index files from %lld to %lld, applied %llu",
          (long long)machine->broker.store.recovered_position, (unsigned long long)machine->replica.checkpoint.dispatched_position,
          (unsigned long long)machine->replica.checkpoint.synced_dispatched_position, machine->replica.same_boot, index->count,
          index->count == 0 ? 0 : (long long)index->files[0]->begin_physical_offset,
          index->count == 0 ? 0 : (long long)index->files[index->count - 1]->end_physical_offset, (unsigned long long)machine->replica.applied);
    machine->vouched = (uint64_t)(machine->replica.checkpoint.committed_index + 1);
    network_begin(machine);
    machine_after(machine);
}

/* Gives back what the process held: the jobs that were out have no effect any more. */
static void close_process(struct machine *machine, bool silent)
{
    sim_env_kill(&machine->disk);
    world.stats->late_votes_lost += machine->jobs[JOB_VOTE].out && !machine->jobs[JOB_VOTE].ran;
    for (int i = 0; i < JOBS; i++) {
        if (machine->jobs[i].out)
            job_back(machine, (enum machine_job_kind)i);
    }
    while (loop_run_work(&machine->loop)) /* while there is a log */
        ;
    replica_fail_pending(&machine->replica, ERROR_STOPPED); /* gives the memory back; nobody hears of it */
    replica_close(&machine->replica);
    machine->mark_lost = machine->mark_lost || machine->broker.store.sums.mark_unwritten;
    message_store_close(&machine->broker.store);
    close_broker(machine);
    network_end(machine, silent);
    forget_process(machine);
}

/* What says that sums of before say nothing (store/queue_sum.h). */
static bool mark_is_durable(struct machine *machine)
{
    uint64_t size = 0, durable_size = 0;
    const uint8_t *bytes = sim_env_bytes(&machine->disk, ROOT "/" QUEUE_SUM_FILE, &size);
    const uint8_t *durable = sim_env_durable_bytes(&machine->disk, ROOT "/" QUEUE_SUM_FILE, &durable_size);
    return size < QUEUE_SUM_MARK_SIZE || (durable_size >= QUEUE_SUM_MARK_SIZE && memcmp(bytes, durable, QUEUE_SUM_MARK_SIZE) == 0);
}

static void lose_power(struct machine *machine)
{
    world.stats->power_cuts++;
    if (machine->restore == RESTORE_NONE) /* else nothing of it counts yet */
        checker_forgets(machine, false);
    else
        machine->restore = RESTORE_SPOILT;
    machine->mark_lost = machine->mark_lost || !mark_is_durable(machine);
    sim_env_power_cut(&machine->disk);
    machine->powered = false;
    machine->boot_us = world.now - chance(5 * SECOND);
    if (chance_of(100))
        machine->wall_skew_ms += (int64_t)chance(7200000) - 3600000;
}

void machine_kill(struct machine *machine)
{
    if (!machine->up)
        return;
    TRACE(1, machine->id, "is killed");
    close_process(machine, false);
}

void machine_power_cut(struct machine *machine)
{
    TRACE(1, machine->id, "loses power");
    if (machine->up)
        close_process(machine, true);
    lose_power(machine);
}

void machine_died(struct machine *machine)
{
    bool cut = machine->cut_when_dead;
    TRACE(1, machine->id, "died inside a call%s", cut ? ", its machine too" : "");
    machine->cut_when_dead = false;
    close_process(machine, cut);
    if (cut)
        lose_power(machine);
    if (!machine->keep_down)
        machine_start_at(machine, world.now + chance_skewed(3 * SECOND));
}

static void change_disk(struct machine *machine)
{
    uint64_t boot = machine->disk.boot_id;
    uint32_t writeback = machine->disk.writeback_per_mille;
    assert(!machine->up);
    disk_fault_forget(machine);
    machine->restore = RESTORE_NONE;
    sim_env_close(&machine->disk);
    sim_env_init(&machine->disk, chance(UINT64_MAX), NULL);
    machine->disk.clock = &machine->disk.own_clock;
    machine->disk.boot_id = boot;
    machine->disk.writeback_per_mille = writeback;
}

void machine_wipe(struct machine *machine)
{
    TRACE(1, machine->id, "is wiped");
    checker_forgets(machine, true);
    change_disk(machine);
}

void machine_renew(struct machine *machine)
{
    machine_kill(machine);
    checker_begins_anew(machine);
    change_disk(machine);
    sim_env_copy_free(machine->old_copy);
    machine->old_copy = NULL;
    machine->io_error_wanted = machine->cut_when_dead = machine->power_after_stop = machine->loses_queue = machine->keep_down = false;
    machine->clean = true;
    machine->log_last = machine->log_begin = 0;
    machine->slow_until = 0;
}

void machine_keep_copy(struct machine *machine)
{
    sim_env_copy_free(machine->old_copy);
    machine->old_copy = sim_env_copy(&machine->disk);
    machine->old_vouched = machine->vouched;
    machine->old_queue_lost = machine->queue_lost;
    machine->old_alone = checker_one_votes_since(machine->vouched);
    memcpy(machine->old_damaged, machine->damaged, sizeof machine->damaged);
    machine->old_damaged_count = machine->damaged_count;
}

void machine_put_copy_back(struct machine *machine)
{
    uint64_t room = machine->disk.disk_bytes;
    assert(!machine->up && machine->old_copy != NULL);
    TRACE(1, machine->id, "gets an old copy of its disk");
    checker_put_back(machine);
    disk_fault_forget(machine);
    machine->vouched = machine->old_vouched;
    machine->queue_lost = machine->old_queue_lost;
    memcpy(machine->damaged, machine->old_damaged, sizeof machine->damaged);
    machine->damaged_count = machine->old_damaged_count;
    machine->notes_damaged = true;
    machine->notes_damaged_at = machine->saves;
    /* Whatever it told the others of: they run, and none of them is in an earlier term. */
    machine->had_last = machine->log_last;
    for (int i = 1; i <= world.nodes; i++) {
        const struct machine *other = world.machines[i];
        if (other != machine && other->replica.votes.term > machine->had_term)
            machine->had_term = other->replica.votes.term;
    }
    machine->disk.disk_bytes = 0;
    sim_env_put_back(&machine->disk, machine->old_copy);
    machine->disk.disk_bytes = room;
    sim_env_copy_free(machine->old_copy);
    machine->old_copy = NULL;
}

/* ---- pauses ---- */

void machine_pause(struct machine *machine, bool clock_too)
{
    TRACE(1, machine->id, clock_too ? "is frozen" : "is paused");
    machine->paused = true;
    machine->frozen = clock_too;
    machine->paused_since = world.now;
    world.wake_at[machine->id] = UINT64_MAX;
}

void machine_resume(struct machine *machine)
{
    if (!machine->paused)
        return;
    TRACE(1, machine->id, "goes on");
    if (machine->frozen) {
        machine->boot_us += world.now - machine->paused_since;
        machine->thawed_at = world.now;
    }
    machine->paused = machine->frozen = false;
    machine_wake(machine, world.now);
}

/* ---- clean stop ---- */

static void on_stop_step(const struct world_event *event)
{
    struct machine *machine = world.machines[event->node];
    struct replica *replica = &machine->replica;
    if (machine->life != event->life || !machine_alive(machine))
        return;
    world_at(world.now + STOP_STEP, on_stop_step, machine->id, machine->life, NULL, 0);
    if (machine->paused)
        return;
    machine_clock(machine);
    replica_tick(replica);
    if (machine->disk.dead) {
        machine_died(machine);
        return;
    }
    if (!machine->transferred) {
        uint64_t lag;
        if (raft_driver_leads(&replica->driver) && replica_successor(replica, &lag) >= 0 && world.now - machine->stop_since < STOP_TRANSFER_MS) {
            if (raft_transferee(&replica->driver.raft) == 0) {
                int to = (int)chance((uint64_t)world.nodes) + 1;
                uint64_t number = machine_number_of(machine, to);
                if (number != 0 && machine->links[to].connection != NULL)
                    raft_driver_transfer(&replica->driver, number);
            }
            machine_after(machine);
            return;
        }
        machine->transferred = true;
    }
    if (machine->jobs[JOB_SYNC].out || machine->jobs[JOB_RESERVE].out || machine->jobs[JOB_SAVE].out || machine->jobs[JOB_SCRUB].out || machine->jobs[JOB_VOTE].out) {
        machine_after(machine);
        return;
    }
    if (!replica->checkpoint.clean) {
        bool ready = replica_stop_step(replica);
        if (machine->disk.dead) {
            machine_died(machine);
            return;
        }
        checker_machine(machine);
        if (!ready || machine->jobs[JOB_SAVE].out) {
            machine_after(machine);
            return;
        }
    }
    bool power = machine->power_after_stop;
    bool clean = replica->checkpoint.clean && replica->save.result == 0;
    TRACE(1, machine->id, "has stopped cleanly");
    while (loop_run_work(&machine->loop))
        ;
    replica_close(replica);
    message_store_close(&machine->broker.store);
    close_broker(machine);
    network_end(machine, false);
    forget_process(machine);
    machine->clean = clean;
    machine->power_after_stop = false;
    if (power)
        machine_power_cut(machine);
    if (clean && machine->loses_queue)
        disk_fault_lose_queue(machine);
    machine->loses_queue = false;
    if (!machine->keep_down)
        machine_start_at(machine, world.now + chance_between(10 * MS, 1 * SECOND));
}

void machine_stop(struct machine *machine)
{
    if (!machine->up || machine->stopping)
        return;
    TRACE(1, machine->id, "is asked to stop");
    machine->stopping = true;
    machine->stop_since = world.now;
    world_at(world.now, on_stop_step, machine->id, machine->life, NULL, 0);
}

/* ---- the loop ---- */

/* A member that stopped for good waits for a person, who restarts it. */
static void look_at_failure(struct machine *machine)
{
    const struct replica *replica = &machine->replica;
    if (replica->phase != REPLICA_FAILED || machine->failed_at != 0)
        return;
    machine->failed_at = world.now;
    world.stats->failed_members++;
    TRACE(1, machine->id, "stops for good: %s", replica->failure.message);
    if (!machine->io_error_wanted && !machine->outcast)
        violation(machine->id, "stops for good: %s", replica->failure.message);
}

static bool turn(struct machine *machine)
{
    bool more = replica_turn(&machine->replica);
    if (machine->disk.dead)
        return false;
    checker_machine(machine);
    if (machine->members_seen != machine->replica.members_version) {
        machine->members_seen = machine->replica.members_version;
        network_members_changed(machine);
    }
    if (machine->greet_wanted) {
        machine->greet_wanted = false;
        network_greet(machine);
    }
    look_at_failure(machine);
    if (machine->replica.restart_wanted && !machine->stopping) {
        world.stats->bulk_fetches += machine->replica.fetch.state == BULK_COMPLETE;
        world.stats->old_copies += machine->replica.fetch.state != BULK_COMPLETE;
        machine_stop(machine);
    }
    return more;
}

static uint64_t deadline(const struct machine *machine)
{
    uint64_t due = replica_deadline_us(&machine->replica);
    uint64_t timer_ms = loop_due_ms(&machine->loop);
    if (machine->loop.work_count > 0)
        timer_ms = machine->loop.now_ms;
    if (timer_ms != UINT64_MAX && timer_ms * 1000 < due)
        due = timer_ms * 1000;
    return due == UINT64_MAX ? UINT64_MAX : due + machine->boot_us;
}

void machine_after(struct machine *machine)
{
    if (!machine->up)
        return;
    if (machine->disk.dead) {
        machine_died(machine);
        return;
    }
    checker_machine(machine);
    machine_wake(machine, world.now + chance(20));
}

enum work { WORK_MESSAGES, WORK_TICK, WORK_TIMERS, WORK_CALLS, WORK_SYNCED, WORK_RESERVED, WORK_SAVED, WORK_SCRUBBED, WORK_VOTE_SAVED, WORK_POOL, WORKS };

/* A bit for each that there is some of, but those that are passed. */
static uint32_t works_there(const struct machine *machine, uint32_t passed)
{
    uint32_t there = 0;
    for (int kind = 0; kind < JOBS; kind++)
        there |= (uint32_t)machine->jobs[kind].back << (WORK_SYNCED + kind);
    there |= (uint32_t)(machine->arrived != 0) << WORK_MESSAGES;
    if (!machine->stopping && (passed & 1u << WORK_TICK) == 0)
        there |= (uint32_t)(replica_deadline_us(&machine->replica) <= machine->disk.own_clock.monotonic_us) << WORK_TICK;
    if ((passed & 1u << WORK_TIMERS) == 0)
        there |= (uint32_t)(loop_due_ms(&machine->loop) <= machine->loop.now_ms) << WORK_TIMERS;
    there |= (uint32_t)(machine->client_calls != 0) << WORK_CALLS;
    there |= (uint32_t)(machine->loop.work_count != 0) << WORK_POOL;
    return there & ~passed;
}

static enum work any_of(uint32_t works)
{
    int count = __builtin_popcount(works);
    for (uint64_t skip = count > 1 ? chance((uint64_t)count) : 0; skip > 0; skip--)
        works &= works - 1;
    return (enum work)__builtin_ctz(works);
}

/* False: there was none after all. */
static bool do_one(struct machine *machine, enum work work)
{
    switch (work) {
    case WORK_MESSAGES:
        return network_handle_one(machine);
    case WORK_TICK:
        replica_tick(&machine->replica);
        return true;
    case WORK_TIMERS:
        return loop_run_timer(&machine->loop);
    case WORK_CALLS:
        machine->client_calls--;
        workload_call(machine);
        return true;
    case WORK_SYNCED:
    case WORK_RESERVED:
    case WORK_SAVED:
    case WORK_SCRUBBED:
    case WORK_VOTE_SAVED:
        job_back(machine, (enum machine_job_kind)(work - WORK_SYNCED));
        return true;
    case WORK_POOL:
        return loop_run_work(&machine->loop);
    default:
        return false;
    }
}

void machine_run(struct machine *machine)
{
    uint32_t passed = 0; /* works that are not looked at any more */
    uint32_t there = 0;
    bool turn_due = true; /* two turns with nothing in between are one */
    bool more = false;

    world.wake_at[machine->id] = UINT64_MAX;
    machine_clock(machine);
    for (int handled = 0; handled < 200; handled++) {
        there = works_there(machine, passed);
        if (there == 0)
            break;
        enum work work = any_of(there);
        /* What was looked for in vain before this one, and comes now, waits for the next time. */
        passed |= ~there & (uint32_t)chance_next();
        if (!do_one(machine, work) || work == WORK_TICK) {
            passed |= 1u << work; /* the timer runs once a turn */
        } else {
            checker_machine(machine);
        }
        if (machine->disk.dead)
            break;
        turn_due = !chance_of(world.turn_per_mille);
        if (!turn_due)
            more = turn(machine);
        if (machine->disk.dead)
            break;
    }
    if (!machine->disk.dead && turn_due)
        more = turn(machine);
    if (machine->disk.dead) {
        machine_died(machine);
        return;
    }
    machine->busy_until = world.now + 5 + chance(40);
    machine->refusals += !machine->replica.accepting || machine->replica.reserve_failed || machine->replica.apply_stalled;
    if (more || there != 0) {
        machine_wake(machine, world.now);
        return;
    }
    uint64_t due = deadline(machine);
    if (!machine->stopping && due != UINT64_MAX)
        machine_wake(machine, due <= world.now ? world.now + 1000 : due + chance(200));
}
