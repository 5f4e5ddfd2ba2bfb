#include "tests/sim/backup.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/processor/processor_table.h"
#include "broker/remoting/forward.h"
#include "client/admin/backup_copy.h"
#include "proto/remoting_command.h"
#include "proto/request_code.h"
#include "tests/sim/checker.h"
#include "tests/sim/members.h"
#include "tests/sim/workload.h"

#define ONE_IN 12 /* seeds */
#define TRIES_MAX 6
#define LEADERS_MAX 2 /* that hand over while nothing is wrong */
#define ANSWER_MAX (3 * SECOND)
#define NOBODY_MAX (50 * MS)
#define RESTORE_FOLDER "/d/restore"

static struct {
    struct sim_env disk; /* of the machine where mqadmin runs */
    bool disk_open;
    char folder[16]; /* on it */
    struct backup_copy copy;
    struct buffer frame, answer;

    /* ---- the request that waits ---- */
    uint64_t request; /* counts them */
    bool waits;
    bool answered; /* with something */
    int node; /* the broker that is asked */
    uint32_t life;

    /* ---- what must be in it: as things were when the leader was asked ---- */
    uint64_t begun_at;
    uint64_t committed;
    uint64_t id; /* the newest one that a broker began, and its metadata there */
    uint64_t metadata_hash;

    /* ---- the one that is restored ---- */
    uint64_t restored_last; /* entry */
    uint64_t restored_hash; /* of the metadata there, 0 = not known */
    unsigned interruptions; /* so many more starts die within the restore */
} backup;

bool backup_wanted(void)
{
    return world.options.backup || (world.seed * 0x9E3779B97F4A7C15u >> 32) % ONE_IN == 0;
}

void backup_init(void)
{
    memset(&backup, 0, sizeof backup);
    buffer_init(&backup.frame, 0);
    buffer_init(&backup.answer, 0);
}

void backup_close(void)
{
    buffer_close(&backup.frame);
    buffer_close(&backup.answer);
    if (!backup.disk_open)
        return;
    backup_copy_close(&backup.copy);
    sim_env_close(&backup.disk);
}

/* ---- mqadmin's disk ---- */

static int files_make_dir(void *context, const char *path)
{
    struct env *env = context;
    if (!backup.disk.dead && sim_env_exists(&backup.disk, path))
        return -EEXIST;
    return env->ops->make_dir(env, path);
}

static int files_remove_dir(void *context, const char *path)
{
    struct env *env = context;
    return env->ops->remove_dir(env, path);
}

static int files_open(void *context, const char *path, bool create, intptr_t *file)
{
    struct env_file *opened = NULL;
    int rv = env_open(context, path, create ? ENV_WRITE | ENV_CREATE | ENV_EXCLUSIVE : ENV_READ, &opened);
    *file = (intptr_t)opened;
    return rv;
}

static void files_close(void *context, intptr_t file)
{
    env_close(context, (struct env_file *)file);
}

static int files_write(void *context, intptr_t file, const void *bytes, size_t size, uint64_t offset)
{
    return env_write(context, (struct env_file *)file, bytes, size, offset);
}

static ssize_t files_read(void *context, intptr_t file, void *out, size_t size, uint64_t offset)
{
    return env_read(context, (struct env_file *)file, out, size, offset);
}

static int files_sync(void *context, intptr_t file)
{
    return env_sync(context, (struct env_file *)file);
}

static int files_rename(void *context, const char *from, const char *to)
{
    struct env *env = context;
    return env->ops->rename(env, from, to);
}

static int files_unlink(void *context, const char *path)
{
    struct env *env = context;
    return env->ops->unlink(env, path);
}

/* FOLDER/.. too: paths are names here. */
static int files_sync_dir(void *context, const char *path)
{
    struct env *env = context;
    size_t size = strlen(path);
    return env->ops->sync_dir(env, size > 3 && strcmp(path + size - 3, "/..") == 0 ? "/" : path);
}

static int files_room(void *context, const char *path, uint64_t *free_bytes)
{
    struct env *env = context;
    uint64_t total;
    return env->ops->space(env, path, free_bytes, &total);
}

static const struct backup_files files = {
    .context = &backup.disk.env,
    .make_dir = files_make_dir,
    .remove_dir = files_remove_dir,
    .open = files_open,
    .close = files_close,
    .write = files_write,
    .read = files_read,
    .sync = files_sync,
    .rename = files_rename,
    .unlink = files_unlink,
    .sync_dir = files_sync_dir,
    .room = files_room,
};

/* ---- the broker that is asked ---- */

static bool is_answered(void)
{
    return !backup.waits;
}

void backup_answer(struct machine *machine, uint64_t request, struct slice frame)
{
    if (!backup.waits || request != BACKUP_REQUESTS + backup.request || machine->disk.dead || machine->id != backup.node || machine->life != backup.life)
        return;
    backup.waits = false;
    backup.answered = frame.size > 0;
    buffer_clear(&backup.answer);
    buffer_append_slice(&backup.answer, frame);
    assert(!backup.answer.failed);
}

static void put_frame(int32_t code, const struct remoting_field *fields)
{
    struct remoting_writer writer;
    buffer_clear(&backup.frame);
    remoting_writer_begin_request(&writer, &backup.frame, REMOTING_BINARY, code, 1, 0);
    for (; fields != NULL && fields->name != NULL; fields++) {
        if (fields->value != NULL)
            remoting_writer_ext_text(&writer, fields->name, fields->value);
    }
    remoting_writer_body(&writer);
    remoting_writer_end(&writer, 0);
    assert(!backup.frame.failed);
}

/* As a member's machine would send it, on a connection of its own. */
static void handle(struct machine *machine)
{
    struct broker *broker = &machine->broker;
    struct remoting_command command;
    struct request request = {.command = &command, .local_port = broker->config.listen_port, .forwarded = true};
    int rv = remoting_command_decode(backup.frame.data, backup.frame.size, &command);
    assert(rv == 0);
    request.reply_to = (struct reply_to){
        .connection_id = forward_take(broker->forward, BACKUP_REQUESTS + backup.request),
        .opaque = command.opaque,
        .code = command.code,
        .serialize_type = command.serialize_type,
    };
    message_host_parse(SLICE_LITERAL("127.0.0.1:2"), &request.peer);
    if (request.reply_to.connection_id != 0)
        processor_table_row(broker->processors, command.code)->handler(broker, &request);
}

static void run_for(uint64_t us)
{
    world_run_until(world.now + us);
}

static int invoke(void *context, int32_t code, const struct remoting_field *fields, struct remoting_command *answer, struct error *error)
{
    struct machine *machine = world.machines[backup.node];
    (void)context;
    if (backup.disk.dead)
        return error_set(error, ERROR_STOPPED, "mqadmin was killed");
    if (chance_of(300))
        run_for(chance_skewed(400 * MS));
    if (!machine_runs(machine) || machine->paused) {
        run_for(NOBODY_MAX);
        return error_set(error, ERROR_CONNECTION, "%s is not there", machine->name);
    }
    if (code == REQUEST_BEGIN_BACKUP) {
        backup.begun_at = world.now;
        backup.committed = checker_committed();
        workload_backup_begins();
    }
    put_frame(code, fields);
    backup.request++;
    backup.waits = true;
    backup.answered = false;
    backup.life = machine->life;
    machine_clock(machine);
    handle(machine);
    machine_after(machine);
    world_run_while_not(is_answered, world.now + ANSWER_MAX);
    if (!backup.answered) {
        backup.waits = false;
        return error_set(error, ERROR_TIMEOUT, "%s does not answer", machine->name);
    }
    if (remoting_command_decode(backup.answer.data, backup.answer.size, answer) != 0 || !remoting_is_response(answer))
        violation(backup.node, "a request of a backup is answered with something undecodable");
    return 0;
}

static void pause_ms(void *context, int ms)
{
    (void)context;
    if (!backup.disk.dead)
        run_for((uint64_t)ms * MS);
}

/* As the loop of that machine is: what it begins is told of at once. */
void backup_begun(struct machine *machine, const struct dledger_backup *begun)
{
    backup.id = begun->id;
    backup.metadata_hash = checker_metadata_hash(machine);
}

/* ---- making one ---- */

static uint64_t last_entry(void)
{
    return (uint64_t)backup.copy.manifest.last_index + 1;
}

/* The first entry of the backup that is not the committed one; 0 = there is none. */
static uint64_t first_other(void)
{
    const struct backup_manifest *manifest = &backup.copy.manifest;
    char path[64];
    for (uint64_t i = (uint64_t)manifest->first_index + 1; i <= last_entry(); i++) {
        struct ledger_entry entry;
        if (i > checker_committed())
            return i;
        uint64_t size = 0, position = checker_entry_position(i), offset = position % world.segment_size;
        snprintf(path, sizeof path, "%s/data/%020llu", backup.folder, (unsigned long long)(position - offset));
        const uint8_t *bytes = sim_env_bytes(&backup.disk, path, &size);
        if (bytes == NULL || offset + LEDGER_ENTRY_HEADER_SIZE > size || ledger_entry_decode(&entry, bytes + offset) != 0 || !checker_is_entry(i, &entry))
            return i;
    }
    return 0;
}

/* It holds what was committed, all of it up to when it was begun, and nothing else. False: in class A that has been lost. */
static bool check_backup(void)
{
    uint64_t other = first_other();
    if (last_entry() < backup.committed && !checker_loss_excused(0))
        violation(backup.node, "a backup ends at entry %llu, and entry %llu was committed before it began", (unsigned long long)last_entry(),
                  (unsigned long long)backup.committed);
    if (other != 0 && !checker_loss_excused(0))
        violation(backup.node, "a backup up to entry %llu holds another entry %llu than the committed one, the last of which is %llu",
                  (unsigned long long)last_entry(), (unsigned long long)other, (unsigned long long)checker_committed());
    return other == 0;
}

static int any_leader(void)
{
    int leaders[WORLD_NODES_MAX];
    uint64_t count = 0;
    for (int i = 1; i <= world.nodes; i++) {
        if (machine_runs(world.machines[i]) && world.machines[i]->replica.accepting)
            leaders[count++] = i;
    }
    return count == 0 ? 0 : leaders[chance(count)];
}

/* mqadmin is killed at any of its calls, with its machine or not. What it says that is whole stays whole. */
static void end_of_mqadmin(bool dies)
{
    if (dies || chance_of(300))
        sim_env_power_cut(&backup.disk);
    sim_env_restart(&backup.disk);
}

/* True: there is a backup. */
static bool make(unsigned number, bool faults)
{
    static const struct backup_source source = {NULL, "a broker", invoke, pause_ms};
    struct error error = {0};
    char path[64];

    backup.node = any_leader();
    if (backup.node == 0) {
        run_for(100 * MS);
        return false;
    }
    if (backup.disk_open)
        backup_copy_close(&backup.copy);
    else
        sim_env_init(&backup.disk, world.seed ^ 0x6261636B7570u, NULL);
    backup.disk_open = true;
    snprintf(backup.folder, sizeof backup.folder, "/b%u", number);
    if (faults && chance_of(150))
        sim_env_kill_at(&backup.disk, SIM_CHANGES, 1 + chance_skewed(40));
    else if (faults && chance_of(100))
        sim_env_fail_at(&backup.disk, SIM_OPEN | SIM_READ | SIM_WRITE | SIM_SYNC | SIM_RENAME | SIM_SYNC_DIR, 1 + chance_skewed(60), chance_of(500) ? ENOSPC : EIO, false);
    backup.copy = (struct backup_copy){.files = &files, .source = &source, .folder = backup.folder, .portion = 1u << chance_between(11, 20)};
    world.stats->backups_begun++;
    TRACE(1, backup.node, "a backup is to be made");
    int rv = backup_copy_make(&backup.copy, &error);
    snprintf(path, sizeof path, "%s/" BACKUP_MANIFEST_NAME, backup.folder);
    bool killed = backup.disk.dead;
    if (rv != 0 && !killed && sim_env_exists(&backup.disk, backup.folder))
        violation(backup.node, "a backup that failed (%s) leaves its folder", error.message);
    end_of_mqadmin(killed);
    bool there = sim_env_exists(&backup.disk, path);
    if (rv == 0 && !there)
        violation(backup.node, "a backup that was whole is none");
    TRACE(1, backup.node, "the backup %s%s%s", there ? "is there" : "fails: ", killed ? ", mqadmin was killed" : "", rv == 0 ? "" : error.message);
    if (!there && number == TRIES_MAX + LEADERS_MAX)
        violation(backup.node, "a backup fails although nothing is wrong: %s", error.message);
    if (!there)
        return false;
    world.stats->backups++;
    check_backup();
    return true;
}

/* ---- making a group of it ---- */

struct copying {
    struct machine *machine;
    const char *below; /* of the folder: "" or "/data" */
};

static int copy_file(void *argument, const char *name, bool is_dir)
{
    struct copying *copying = argument;
    struct env *env = &copying->machine->disk.env;
    char from[128], to[128];
    uint64_t size = 0;
    struct env_file *file;
    if (is_dir)
        return 0;
    snprintf(from, sizeof from, "%s%s/%s", backup.folder, copying->below, name);
    snprintf(to, sizeof to, RESTORE_FOLDER "%s/%s", copying->below, name);
    const uint8_t *bytes = sim_env_bytes(&backup.disk, from, &size);
    int rv = env_open(env, to, ENV_WRITE | ENV_CREATE, &file);
    if (rv == 0) {
        rv = env_write(env, file, bytes, size, 0);
        env_close(env, file);
    }
    assert(rv == 0);
    return 0;
}

/* A person runs cp -r, which makes nothing durable. */
static void put_copy(struct machine *machine)
{
    struct env *env = &machine->disk.env, *from = &backup.disk.env;
    char data[32];
    int rv = env->ops->make_dir(env, RESTORE_FOLDER "/data");
    struct copying copying = {machine, ""};
    assert(rv == 0);
    from->ops->list(from, backup.folder, copy_file, &copying);
    copying.below = "/data";
    snprintf(data, sizeof data, "%s/data", backup.folder);
    from->ops->list(from, data, copy_file, &copying);
    machine->restore = RESTORE_DUE;
}

static void spoil_copy(struct machine *machine)
{
    const char *path;
    uint64_t count = 0, size = 0;
    while (sim_env_file(&machine->disk, RESTORE_FOLDER, count) != NULL)
        count++;
    path = sim_env_file(&machine->disk, RESTORE_FOLDER, chance(count));
    if (path == NULL || sim_env_bytes(&machine->disk, path, &size) == NULL || size == 0)
        return;
    uint64_t at = chance(size);
    TRACE(1, machine->id, "the copy of the backup is not what it was: %s at %llu", path, (unsigned long long)at);
    sim_env_corrupt(&machine->disk, path, at, (uint8_t)(1 + chance(255)));
    machine->restore = RESTORE_MUST_FAIL;
}

static void interrupt_start(struct machine *machine)
{
    if (backup.interruptions == 0 || !chance_of(600))
        return;
    backup.interruptions--;
    world.stats->restores_interrupted++;
    machine->cut_when_dead = chance_of(700);
    sim_env_kill_at(&machine->disk, chance_of(700) ? SIM_CHANGES : SIM_RENAME | SIM_SYNC_DIR | SIM_UNLINK | SIM_TRUNCATE, 1 + chance_skewed(120));
}

bool backup_may_refuse(const struct machine *machine, const struct error *error)
{
    /* A power cut may have taken bytes that nobody had made durable. */
    return error->code == ERROR_DAMAGED && (machine->restore == RESTORE_SPOILT || machine->restore == RESTORE_MUST_FAIL);
}

void backup_start_failed(struct machine *machine, const struct error *error)
{
    if (machine->restore == RESTORE_NONE)
        return;
    if (backup_may_refuse(machine, error)) {
        world.stats->restores_refused++;
        TRACE(1, machine->id, "gets another copy of the backup");
        machine_renew(machine);
        put_copy(machine);
    }
    interrupt_start(machine);
}

void backup_taken(struct machine *machine)
{
    if (machine->restore == RESTORE_NONE)
        return;
    if (machine->restore == RESTORE_MUST_FAIL)
        violation(machine->id, "takes a backup that is not what was written");
    if (sim_env_exists(&machine->disk, RESTORE_FOLDER))
        violation(machine->id, "starts without the backup that it should take");
    TRACE(1, machine->id, "has taken the backup");
    machine->restore = RESTORE_NONE;
    machine->clean = false;
    world.stats->restores++;
}

/* By any start after it too, from whatever snapshot that goes by. */
void backup_metadata_restored(struct machine *machine)
{
    if (backup.restored_hash != 0 && machine->replica.snapshot_index + 1 == (int64_t)backup.restored_last && checker_metadata_hash(machine) != backup.restored_hash)
        violation(machine->id, "its metadata are not those of the node that the backup is of");
}

/* The machines that the backup says are its members. */
static uint8_t members_of_backup(void)
{
    struct slice ids = backup.copy.manifest.members;
    uint8_t members = 0;
    for (;;) {
        char name[16];
        struct slice id = slice_next_part(&ids, ';');
        if (id.size == 0)
            return members;
        snprintf(name, sizeof name, "%.*s", (int)id.size, (const char *)id.data);
        int machine = machine_named(name);
        if (machine == 0)
            violation(0, "%s is a member in a backup", name);
        members |= (uint8_t)(1u << (machine - 1));
    }
}

static void restore(void)
{
    uint8_t members = members_of_backup();
    bool all = chance_of(600);
    int one = 0;

    TRACE(1, 0, "the group is gone; a fresh one begins with a backup of entries up to %llu, on %s", (unsigned long long)last_entry(), all ? "all members" : "one member");
    for (int i = 1; i <= world.nodes; i++)
        machine_renew(world.machines[i]);
    members_give_up();
    checker_group_restored(last_entry(), (uint64_t)backup.copy.manifest.term, backup.begun_at);
    backup.restored_last = last_entry();
    backup.restored_hash = backup.id == (uint64_t)backup.copy.id ? backup.metadata_hash : 0;
    backup.interruptions = chance_of(700) ? (unsigned)chance(12) : 0;
    while (!all && (one == 0 || (members >> (one - 1) & 1) == 0 || !checker_votes(one)))
        one = 1 + (int)chance((uint64_t)world.nodes);
    for (int i = 1; i <= world.nodes; i++) {
        struct machine *machine = world.machines[i];
        size_t size = 0;
        machine->deployed = (members >> (i - 1) & 1) != 0;
        for (int k = 1; k <= world.nodes && machine->deployed; k++) {
            char address[32];
            machine_address(k, address);
            if ((members >> (k - 1) & 1) != 0)
                size += (size_t)snprintf(machine->peers + size, sizeof machine->peers - size, "%s%s", size == 0 ? "" : ";", address);
        }
        if (!machine->deployed)
            continue;
        if (all || i == one) {
            put_copy(machine);
            if (chance_of(100))
                spoil_copy(machine);
            interrupt_start(machine);
        }
        machine_start_at(machine, world.now + chance(300 * MS));
    }
}

void backup_play(uint64_t us)
{
    uint64_t began = world.now;
    bool there = false;
    run_for(chance(us * 2 / 5));
    for (unsigned i = 0; i < TRIES_MAX && !there; i++)
        there = make(i, true);
    if (there) {
        run_for(chance_skewed(us * 2 / 5));
        if (check_backup())
            restore();
    }
    if (began + us > world.now)
        world_run_until(began + us);
}

void backup_must_work(void)
{
    for (int i = 0; i < 20 && any_leader() == 0; i++)
        run_for(100 * MS);
    for (unsigned i = 0; i <= LEADERS_MAX && !make(TRIES_MAX + i, false); i++)
        run_for(1 * SECOND);
}
