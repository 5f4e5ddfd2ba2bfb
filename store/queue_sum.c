#include "store/queue_sum.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/ledger_entry.h" /* crc32c */
#include "store/log_sink.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* A slot: magic 4 | version 4 | crc32c of the slot with zeros here 4 | zeros 4 | mark 8 | position 8 | count 8 | sum 8. The first one says the mark alone. Each in
 * a sector of its own, so that the loop, which writes the first one, and a save can write at the same time. */
#define SUM_MAGIC 0x4C4D5153u /* "LMQS" */
#define SLOT_SIZE QUEUE_SUM_MARK_SIZE
#define SECTOR 512u
#define FILE_SIZE 4096u /* written whole when it is made: there is room for a mark on a full disk */
#define DURABLE_SLOT 2u
_Static_assert((QUEUE_SUM_SLOTS + 1) * SECTOR <= FILE_SIZE, "file size");

static uint64_t mix(uint64_t h)
{
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 27) * 0x94D049BB133111EBu;
    return h ^ h >> 31;
}

uint64_t queue_sum_term(struct slice topic, int32_t queue_id, int64_t max_offset)
{
    return mix(XXH3_64bits_withSeed(topic.data, topic.size, (uint32_t)queue_id) + mix((uint64_t)max_offset + 0x9E3779B97F4A7C15u));
}

static void encode(const struct queue_sum *sum, uint8_t slot[SLOT_SIZE])
{
    memset(slot, 0, SLOT_SIZE);
    store_u32(slot, SUM_MAGIC);
    store_u32(slot + 4, QUEUE_SUM_VERSION);
    store_u64(slot + 16, sum->mark);
    store_u64(slot + 24, (uint64_t)sum->position);
    store_u64(slot + 32, sum->count);
    store_u64(slot + 40, sum->sum);
    store_u32(slot + 8, crc32c(0, slot, SLOT_SIZE));
}

static bool decode(const uint8_t *bytes, struct queue_sum *sum)
{
    uint8_t slot[SLOT_SIZE];
    memcpy(slot, bytes, SLOT_SIZE);
    memset(slot + 8, 0, 4);
    if (load_u32(bytes) != SUM_MAGIC || load_u32(bytes + 4) != QUEUE_SUM_VERSION || load_u32(bytes + 8) != crc32c(0, slot, SLOT_SIZE))
        return false;
    sum->mark = load_u64(bytes + 16);
    sum->position = (int64_t)load_u64(bytes + 24);
    sum->count = load_u64(bytes + 32);
    sum->sum = load_u64(bytes + 40);
    return true;
}

static int open_file(struct env *env, const char *dir, unsigned flags, char path[PATH_MAX], struct env_file **file)
{
    const char *slash = strrchr(dir, '/');
    assert(slash != NULL);
    if (snprintf(path, PATH_MAX, "%.*s/" QUEUE_SUM_FILE, (int)(slash - dir), dir) >= PATH_MAX)
        return -ENAMETOOLONG;
    return env_open(env, path, flags, file);
}

void queue_sums_load(struct queue_sums *sums, struct env *env, const char *dir)
{
    uint8_t bytes[FILE_SIZE] = {0};
    char path[PATH_MAX];
    struct queue_sum mark;
    struct env_file *file;

    memset(sums, 0, sizeof *sums);
    if (open_file(env, dir, ENV_READ, path, &file) != 0)
        return;
    ssize_t n = env_read(env, file, bytes, sizeof bytes, 0);
    env_close(env, file);
    if (n != (ssize_t)sizeof bytes || !decode(bytes, &mark))
        return;
    sums->mark = mark.mark;
    sums->mark_used = true;
    for (uint32_t i = 0; i < QUEUE_SUM_SLOTS; i++) {
        struct queue_sum *sum = &sums->found[i];
        if (!decode(bytes + (i + 1) * SECTOR, sum) || sum->mark != sums->mark || sum->position <= 0)
            *sum = (struct queue_sum){0};
    }
}

const struct queue_sum *queue_sums_newest(const struct queue_sums *sums, int64_t from, int64_t to)
{
    const struct queue_sum *newest = NULL;
    for (uint32_t i = 0; i < QUEUE_SUM_SLOTS; i++) {
        const struct queue_sum *sum = &sums->found[i];
        if (sum->position > 0 && sum->position >= from && sum->position <= to && (newest == NULL || sum->position > newest->position))
            newest = sum;
    }
    return newest;
}

void queue_sums_forget(struct queue_sums *sums, struct env *env, const char *dir, int64_t behind)
{
    uint8_t bytes[FILE_SIZE] = {0};
    char path[PATH_MAX];
    struct env_file *file;
    bool any = false, kept = false;

    for (uint32_t i = 0; i < QUEUE_SUM_SLOTS; i++) {
        struct queue_sum *sum = &sums->found[i];
        any = any || sum->position > behind;
        if (sum->position > behind)
            *sum = (struct queue_sum){0};
        kept = kept || sum->position > 0;
    }
    /* The older one of two is written over first. */
    sums->turn[0] = sums->found[0].position > sums->found[1].position;
    sums->turn[1] = sums->found[DURABLE_SLOT].position > sums->found[DURABLE_SLOT + 1].position;
    if (kept && !any)
        return;
    if (!kept) {
        sums->mark = env_random(env) | 1;
        sums->mark_used = false;
    }
    encode(&(struct queue_sum){.mark = sums->mark}, bytes);
    for (uint32_t i = 0; i < QUEUE_SUM_SLOTS; i++) {
        if (sums->found[i].position > 0)
            encode(&sums->found[i], bytes + (i + 1) * SECTOR);
    }
    int rv = open_file(env, dir, ENV_WRITE | ENV_CREATE, path, &file);
    if (rv == 0) {
        rv = env_write(env, file, bytes, sizeof bytes, 0);
        if (rv == 0)
            rv = env_sync(env, file);
        env_close(env, file);
    }
    if (rv == 0)
        rv = env_sync_parent(env, path);
    sums->mark_unwritten = rv != 0;
    if (rv != 0)
        LOG_WARN("%s: %s; the next start cannot tell whether a queue has lost its end", path, strerror(-rv));
}

/* Where the file is not whole no mark is written: all of it is said again by the next start. */
static void write_mark(struct queue_sums *sums, struct env *env, const char *dir)
{
    uint8_t slot[SLOT_SIZE];
    char path[PATH_MAX];
    struct env_file *file;

    encode(&(struct queue_sum){.mark = sums->mark}, slot);
    int rv = open_file(env, dir, ENV_WRITE, path, &file);
    if (rv == 0) {
        rv = env_write(env, file, slot, sizeof slot, 0);
        env_close(env, file);
    }
    sums->mark_unwritten = rv != 0;
}

void queue_sums_void(struct queue_sums *sums, struct env *env, const char *dir)
{
    if (!sums->mark_used)
        return;
    sums->mark = env_random(env) | 1;
    sums->mark_used = false;
    sums->mark_unsynced = true;
    write_mark(sums, env, dir);
}

struct queue_sum queue_sums_take(struct queue_sums *sums, struct env *env, const char *dir, int64_t position, bool durable)
{
    assert(sums->counted);
    if (sums->mark_unwritten)
        write_mark(sums, env, dir);
    sums->mark_used = true;
    const struct queue_sum *before = &sums->taken[durable];
    if (before->position == position && before->count == sums->count && before->sum == sums->sum && before->mark == sums->mark)
        return (struct queue_sum){0};
    uint32_t slot = (durable ? DURABLE_SLOT : 0) + (sums->turn[durable]++ & 1);
    sums->taken[durable] = (struct queue_sum){.position = position, .count = sums->count, .sum = sums->sum, .mark = sums->mark, .slot = slot, .sync = sums->mark_unsynced};
    sums->mark_unsynced = false;
    return sums->taken[durable];
}

int queue_sum_save(const struct queue_sum *sum, struct env *env, const char *dir, bool durable)
{
    uint8_t slot[SLOT_SIZE];
    char path[PATH_MAX];
    struct env_file *file;

    if (sum->position <= 0)
        return 0;
    encode(sum, slot);
    int rv = open_file(env, dir, ENV_WRITE, path, &file);
    if (rv == 0) {
        rv = env_write(env, file, slot, sizeof slot, (uint64_t)(sum->slot + 1) * SECTOR);
        if (rv == 0 && (durable || sum->sync))
            rv = env_sync(env, file);
        env_close(env, file);
    }
    return rv;
}
