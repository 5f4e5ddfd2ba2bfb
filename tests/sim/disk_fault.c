#include "tests/sim/disk_fault.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dledger/metadata_snapshot.h"
#include "tests/sim/checker.h"

#define BLOCK SIM_PAGE
#define GROUP_DIR "/d/dledger-"
#define VOTE_SLOT 4096u
#define CHANNEL 32u /* in an entry's header */
#define SAVES_OF_ALL_SLOTS 2u /* a checkpoint has two slots, written in turn */

struct block {
    char path[96];
    uint64_t offset;
    uint64_t size;
};

/* What was in a block, and, for a write that goes elsewhere, where to. */
struct remembered {
    bool used;
    bool misdirected;
    bool other_disk; /* it is gone since */
    int node;
    struct block block;
    uint8_t bytes[BLOCK];
};
static struct remembered remembered[64];

/* ---- what was damaged ---- */

void disk_fault_init(void)
{
    memset(remembered, 0, sizeof remembered);
}

void disk_fault_forget(struct machine *machine)
{
    /* Another disk: no block of it was ever written as those of the one before. */
    for (size_t i = 0; i < sizeof remembered / sizeof remembered[0]; i++)
        remembered[i].other_disk |= remembered[i].used && remembered[i].node == machine->id;
    machine->queue_lost = false;
    machine->damaged_count = 0;
    machine->notes_damaged = false;
    machine->vouched = 0;
    machine->had_term = machine->had_last = 0;
}

/* Others know what it had before an old copy of its disk was put back: whoever meets it with less tells it, and it is mute from then on until all have been
 * heard. */
static bool has_what_it_had(const struct machine *machine)
{
    const struct replica *replica = &machine->replica;
    return !replica->restart_wanted && !replica->checkpoint.forgot && replica->votes.term >= machine->had_term && machine->log_last >= machine->had_last;
}

static void forget_mended(struct machine *machine)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < machine->damaged_count; i++) {
        struct machine_damage *damage = &machine->damaged[i];
        while (damage->first <= damage->last && (damage->first <= machine->log_begin || checker_has_whole(machine, damage->first)))
            damage->first++;
        if (damage->first <= damage->last)
            machine->damaged[left++] = *damage;
    }
    machine->damaged_count = left;
}

bool disk_fault_at(struct machine *machine, uint64_t index)
{
    for (uint32_t i = 0; i < machine->damaged_count; i++) {
        if (index >= machine->damaged[i].first && index <= machine->damaged[i].last)
            return index > machine->log_begin && !checker_has_whole(machine, index);
    }
    return false;
}

bool disk_fault_log_left(struct machine *machine)
{
    forget_mended(machine);
    return machine->damaged_count > 0;
}

static bool votes_whole(struct machine *machine)
{
    char path[64];
    uint64_t size = 0;
    snprintf(path, sizeof path, GROUP_DIR "%s/vote", machine->name);
    const uint8_t *bytes = sim_env_durable_bytes(&machine->disk, path, &size);
    for (uint64_t at = 0; at < 2 * VOTE_SLOT; at += VOTE_SLOT) {
        if (bytes == NULL || at + 36 > size || load_u32(bytes + at + 32) != crc32c(0, bytes + at, 32))
            return false;
    }
    return true;
}

bool disk_fault_left(struct machine *machine)
{
    if (machine->notes_damaged && machine_runs(machine) && machine->saves >= machine->notes_damaged_at + SAVES_OF_ALL_SLOTS && votes_whole(machine) &&
        has_what_it_had(machine))
        machine->notes_damaged = false;
    return machine->notes_damaged || disk_fault_log_left(machine);
}

/* ---- what may be hit ---- */

static bool is_log(const char *path)
{
    return strstr(path, "/data/") != NULL;
}

/* A segment is named by the position that it begins at. */
static uint64_t segment_start(const char *path)
{
    return strtoull(strrchr(path, '/') + 1, NULL, 10);
}

/* Where the log's beginning is deleted one of the two snapshots has to be good. */
static bool other_snapshot_does(struct machine *machine, const char *path)
{
    char other[96];
    snprintf(other, sizeof other, "%s", path);
    other[strlen(other) - 1] ^= 1; /* metadata.0, metadata.1 */
    for (int i = 0; i < 2; i++) {
        uint64_t size = 0;
        const uint8_t *bytes = i == 0 ? sim_env_durable_bytes(&machine->disk, other, &size) : sim_env_bytes(&machine->disk, other, &size);
        int64_t index = bytes == NULL || size < 16 ? -1 : (int64_t)load_u64(bytes + 8);
        if (index < 0 || (uint64_t)index + 1 < machine->log_begin || !metadata_snapshot_is_good(slice_of(bytes, size), index))
            return false;
    }
    return true;
}

/* Where one vote is a majority nobody else knows the term: the other slot has to be as good as this one. */
bool disk_fault_vote_is_sure(struct machine *machine)
{
    uint64_t size = 0;
    char path[64];
    snprintf(path, sizeof path, GROUP_DIR "%s/vote", machine->name);
    const uint8_t *bytes = sim_env_durable_bytes(&machine->disk, path, &size);
    return votes_whole(machine) && memcmp(bytes, bytes + VOTE_SLOT, 36) == 0;
}

static bool may_hit(struct machine *machine, const struct block *block)
{
    struct machine_damage damage;
    if (!sim_env_at_rest(&machine->disk, block->path, block->offset, block->size) || !checker_belongs(machine->id))
        return false;
    /* Durable, and not told yet: as if it was told at once. */
    if (strstr(block->path, "/vote") != NULL && machine->jobs[JOB_VOTE].out)
        return false;
    if (machine->queue_lost)
        return false;
    if (strstr(block->path, "/vote") != NULL && checker_votes(machine->id) && (checker_majority() == 1 || checker_change_open()) && !disk_fault_vote_is_sure(machine))
        return false;
    if (strstr(block->path, "/checkpoint") != NULL && disk_fault_log_left(machine))
        return false; /* an older one may not vouch for what was damaged */
    if (!is_log(block->path))
        return machine->log_begin == 0 || strstr(block->path, "/metadata.") == NULL || other_snapshot_does(machine, block->path);
    uint64_t position = segment_start(block->path) + block->offset;
    /* What kind of entry the first one of a log is whose beginning was deleted, and what was committed when it was appended, nothing else on this disk tells. */
    if (world.trims && block->size == 1 && block->offset >= CHANNEL && block->offset < CHANNEL + 4)
        return false;
    if (!checker_entries_at(position, block->size, &damage.first, &damage.last) || damage.last > machine->vouched ||
        machine->forgetful || machine->outcast || machine->damaged_count == MACHINE_DAMAGED_MAX)
        return false;
    for (uint64_t index = damage.first; index <= damage.last; index++) {
        int others = 0;
        for (int i = 1; i <= world.nodes; i++) {
            struct machine *other = world.machines[i];
            others += other != machine && checker_votes(i) && !other->forgetful && !other->outcast && checker_has_whole(other, index);
        }
        if (others < checker_majority())
            return false;
    }
    return true;
}

/* The bytes change. */
static void hit(struct machine *machine, const struct block *block, const uint8_t *bytes)
{
    if (is_log(block->path)) {
        struct machine_damage *damage = &machine->damaged[machine->damaged_count++];
        uint64_t position = segment_start(block->path) + block->offset;
        bool any = checker_entries_at(position, block->size, &damage->first, &damage->last);
        assert(any);
        TRACE(1, machine->id, "disk: %llu bytes at %llu of %s change, entries %llu to %llu", (unsigned long long)block->size,
              (unsigned long long)block->offset, block->path, (unsigned long long)damage->first, (unsigned long long)damage->last);
    } else {
        if (strstr(block->path, "/checkpoint") != NULL)
            machine->vouched = 0; /* until the next one is durable, or a start has taken what is left */
        machine->notes_damaged = true;
        machine->notes_damaged_at = machine->saves;
        TRACE(1, machine->id, "disk: %llu bytes at %llu of %s change", (unsigned long long)block->size, (unsigned long long)block->offset, block->path);
    }
    sim_env_put(&machine->disk, block->path, block->offset, bytes, block->size);
}

/* ---- queues ---- */

/* Does the disk tell, whatever becomes of its cache, what all queues held at the end of what was applied? Not when it was full, or failed, just then. */
static bool queues_are_summed(struct machine *machine)
{
    const uint64_t sector = 512;
    uint64_t size = 0, position = machine->replica.checkpoint.synced_dispatched_position;
    const uint8_t *bytes = sim_env_durable_bytes(&machine->disk, "/d/" QUEUE_SUM_FILE, &size);
    for (uint64_t at = sector; bytes != NULL && at <= QUEUE_SUM_SLOTS * sector && at + sector <= size; at += sector) {
        if (position > 0 && load_u64(bytes + at + 24) == position && load_u64(bytes + at + 16) == load_u64(bytes + 16))
            return true;
    }
    return false;
}

static bool begins_so(const char *path, const char *dir, size_t size)
{
    return path != NULL && strncmp(path, dir, size) == 0;
}

/* A queue's newest units, newest file, or all of it. */
void disk_fault_lose_queue(struct machine *machine)
{
    static const char queues[] = "/d/consumequeue/";
    uint64_t files = 0, size, end;
    char path[128];

    if (machine->notes_damaged || machine->damaged_count > 0 || !queues_are_summed(machine))
        return;
    while (sim_env_file(&machine->disk, queues, files) != NULL)
        files++;
    if (files == 0)
        return;
    snprintf(path, sizeof path, "%s", sim_env_file(&machine->disk, queues, chance(files)));
    const size_t dir = (size_t)(strrchr(path, '/') + 1 - path);
    for (uint64_t i = 0; i < files; i++) { /* names of a queue's files are in the order of what is in them */
        const char *other = sim_env_file(&machine->disk, queues, i);
        if (begins_so(other, path, dir) && strcmp(other, path) > 0)
            snprintf(path, sizeof path, "%s", other);
    }
    const uint8_t *bytes = sim_env_bytes(&machine->disk, path, &size);
    for (end = size; end > 0 && bytes[end - 1] == 0; end--)
        ;
    if (end == 0)
        return; /* none was in it */
    machine->queue_lost = true;
    world.stats->chaos[CHAOS_QUEUE_LOST]++;
    unsigned how = (unsigned)chance(3);
    TRACE(1, machine->id, "disk: %s loses %s", path, how == 0 ? "its newest units" : how == 1 ? "its name" : "its name, as all of its queue");
    if (how == 0) {
        static const uint8_t zeros[BLOCK];
        uint64_t units = (end + CONSUME_QUEUE_UNIT_SIZE - 1) / CONSUME_QUEUE_UNIT_SIZE;
        for (uint64_t at = (units - 1 - chance_skewed(units - 1)) * CONSUME_QUEUE_UNIT_SIZE, step; at < end; at += step) {
            step = end - at < BLOCK ? end - at : BLOCK;
            sim_env_put(&machine->disk, path, at, zeros, step);
        }
        return;
    }
    sim_env_remove(&machine->disk, path);
    for (uint64_t i = 0; how == 2 && sim_env_file(&machine->disk, queues, i) != NULL;) {
        const char *other = sim_env_file(&machine->disk, queues, i);
        if (!begins_so(other, path, dir)) {
            i++;
            continue;
        }
        char copy[128];
        snprintf(copy, sizeof copy, "%s", other);
        sim_env_remove(&machine->disk, copy);
    }
}

/* ---- where ---- */

/* A sector or a page of some file, the log more often than others. tail: also of what is not vouched for yet. */
static bool draw_block(struct machine *machine, struct block *block, bool tail)
{
    static const char *const kinds[] = {"data/", "data/", "data/", "data/", "index/", "vote", "checkpoint", "metadata."};
    char prefix[64];
    const char *path;
    uint64_t files = 0, size = 0;

    snprintf(prefix, sizeof prefix, GROUP_DIR "%s/%s", machine->name, kinds[chance(sizeof kinds / sizeof kinds[0])]);
    while (sim_env_file(&machine->disk, prefix, files) != NULL)
        files++;
    path = files == 0 ? NULL : sim_env_file(&machine->disk, prefix, chance(files));
    if (path == NULL || strlen(path) >= sizeof block->path || sim_env_bytes(&machine->disk, path, &size) == NULL)
        return false;
    snprintf(block->path, sizeof block->path, "%s", path);
    block->size = chance_of(500) ? BLOCK : SIM_SECTOR;
    if (size < block->size)
        return false;
    if (is_log(path)) { /* what is filled of it */
        uint64_t start = segment_start(path), end = checker_end_position(machine->vouched);
        if (tail && machine->up)
            end = machine->replica.ledger.end_position;
        size = end <= start ? 0 : end - start < size ? end - start : size;
    }
    /* Nothing before it vouches for the first header of a log whose beginning is deleted: that is hit more often than its size would have it. */
    bool first = world.trims && is_log(path) && segment_start(path) > 0 && size > 0 && chance_of(200);
    block->offset = first ? 0 : chance(size / block->size + 1) * block->size;
    sim_env_bytes(&machine->disk, path, &size);
    return block->offset + block->size <= size;
}

bool disk_fault_flip(struct machine *machine)
{
    unsigned done = 0, wanted = 1 + (unsigned)chance_skewed(6);
    for (unsigned tries = 0; tries < 20 && done < wanted; tries++) {
        struct block block;
        uint64_t size;
        if (!draw_block(machine, &block, false))
            continue;
        block.offset += chance(world.trims && block.offset == 0 && is_log(block.path) ? LEDGER_ENTRY_HEADER_SIZE : block.size);
        block.size = 1;
        const uint8_t *bytes = sim_env_bytes(&machine->disk, block.path, &size);
        if (block.offset >= size || !may_hit(machine, &block))
            continue;
        uint8_t flipped = bytes[block.offset] ^ (uint8_t)(1u << chance(8));
        hit(machine, &block, &flipped);
        done++;
    }
    return done > 0;
}

/* What was written to the block since then is not there; when it went to another block it is what that one holds now. */
static void on_block_back(const struct world_event *event)
{
    struct machine *machine = world.machines[event->node];
    struct remembered *old = event->pointer;
    uint64_t size;
    const uint8_t *now = sim_env_bytes(&machine->disk, old->block.path, &size);

    if (!world.calm && !old->other_disk && now != NULL && old->block.offset + old->block.size <= size && memcmp(now + old->block.offset, old->bytes, old->block.size) != 0 &&
        may_hit(machine, &old->block)) {
        struct block target;
        uint8_t written[BLOCK];
        memcpy(written, now + old->block.offset, old->block.size);
        bool elsewhere = false;
        for (int tries = 0; old->misdirected && tries < 20 && !elsewhere; tries++) {
            elsewhere = draw_block(machine, &target, false);
            target.size = old->block.size;
            elsewhere = elsewhere && (strcmp(target.path, old->block.path) != 0 || target.offset != old->block.offset) && may_hit(machine, &target);
        }
        if (elsewhere)
            hit(machine, &target, written);
        if (machine->damaged_count < MACHINE_DAMAGED_MAX && may_hit(machine, &old->block)) {
            hit(machine, &old->block, old->bytes);
            world.stats->chaos[elsewhere ? CHAOS_MISDIRECTED : CHAOS_STALE]++;
        }
    }
    old->used = false;
}

static void remember(struct machine *machine, bool misdirected)
{
    struct remembered *old = remembered;
    uint64_t size;
    while (old < remembered + sizeof remembered / sizeof remembered[0] && old->used)
        old++;
    if (old == remembered + sizeof remembered / sizeof remembered[0] || !draw_block(machine, &old->block, true))
        return;
    /* Most of the log is written once: before that the block held zeros. */
    if (is_log(old->block.path) && chance_of(600))
        memset(old->bytes, 0, old->block.size);
    else
        memcpy(old->bytes, sim_env_bytes(&machine->disk, old->block.path, &size) + old->block.offset, old->block.size);
    old->used = true;
    old->other_disk = false;
    old->node = machine->id;
    old->misdirected = misdirected;
    world_at(world.now + chance_between(20 * MS, 3 * SECOND), on_block_back, machine->id, 0, old, 0);
}

void disk_fault_stale(struct machine *machine)
{
    remember(machine, false);
}

void disk_fault_misdirect(struct machine *machine)
{
    remember(machine, true);
}
