/* Damage to the key index that happens at rest: it leads to no wrong answer, and passes over the log find and mend it. MODE=full does tens of thousands
 * (tests/unit/seeded_damage). */
#include "store/index_compare.h"

#include "proto/hash.h"
#include "proto/message.h"
#include "store/index_keys.h"
#include "store/log_sink.h"
#include "store/message_store.h"
#include "tests/lib/damage_count.h"
#include "tests/lib/run_suite.h"
#include "tests/lib/sim_env.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIR "/s/index"
#define LOG_MAX (1u << 20)
#define ENTRIES_MAX 4000
#define SLOTS 23u
#define ENTRIES 60u

static uint64_t rounds(uint64_t normal, uint64_t full)
{
    const char *mode = getenv("MODE");
    return mode != NULL && strcmp(mode, "full") == 0 ? full : normal;
}

static void be_quiet(void *context, enum log_level level, const char *text)
{
    (void)context, (void)level, (void)text;
}

/* ---- a log in memory ---- */

static struct {
    uint8_t *bytes;
    int64_t min; /* begin of the entry `first` */
    int64_t end;
    int first;
    int count;
    int64_t at[ENTRIES_MAX]; /* physical offsets */
    uint32_t keys[ENTRIES_MAX];
    int64_t time_ms;
} fake;

static int64_t fake_min(void *context)
{
    (void)context;
    return fake.min;
}
static int64_t fake_committed(void *context)
{
    (void)context;
    return fake.end;
}
static const uint8_t *fake_at(void *context, int64_t offset, size_t size)
{
    (void)context;
    if (offset < fake.min || offset > fake.end || size > (size_t)(fake.end - offset))
        return NULL;
    return fake.bytes + offset;
}
static int fake_read(void *context, int64_t offset, void *out, size_t size)
{
    const uint8_t *p = fake_at(context, offset, size);
    if (p == NULL)
        return -ENOENT;
    memcpy(out, p, size);
    return 0;
}
/* The first entry whose record is at or behind the offset. */
static int first_at(int64_t physical_offset)
{
    int low = 0, high = fake.count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (fake.at[middle] < physical_offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
static uint32_t fake_message_at(void *context, int64_t offset)
{
    int n = first_at(offset);
    (void)context;
    return n < fake.first || n >= fake.count || fake.at[n] != offset ? 0 : load_u32(fake.bytes + offset);
}
static const struct log_view view = {NULL, fake_min, fake_committed, fake_at, fake_read, fake_message_at, NULL};

/* ---- fixture ---- */

static struct sim_env sim;
static struct message_store store;
static struct message_store_config config;
static struct index_compare *compare;
static struct error error;
static int dispatched; /* entries in front of this one */
static int64_t queue_offset;

static uint64_t chance(uint64_t below)
{
    return sim_env_chance(&sim, below);
}

static struct slice record_of(int n)
{
    return slice_of(fake.bytes + fake.at[n], load_u32(fake.bytes + fake.at[n]));
}

/* Record n has a key of its own, keys that it shares with few others, or none; some are named twice, some are no messages. */
static void append(void)
{
    char properties[200];
    int n = fake.count;
    uint64_t kind = chance(20);
    int32_t flag = kind == 0 ? MESSAGE_TRANSACTION_ROLLBACK : kind == 1 ? MESSAGE_TRANSACTION_PREPARED : 0;
    int size = 0;
    fake.keys[n] = (uint32_t)chance(5);
    if (fake.keys[n] > 0)
        size = snprintf(properties, sizeof properties, "UNIQ_KEY\x01U%d\x02", n);
    if (fake.keys[n] > 1)
        size += snprintf(properties + size, sizeof properties - (size_t)size, "KEYS\x01k%d", n / 20);
    if (fake.keys[n] > 2)
        size += snprintf(properties + size, sizeof properties - (size_t)size, " k%d q%d", n / 20, n / 7);
    properties[size] = '\0';
    fake.time_ms += (int64_t)chance(3) * (int64_t)chance(4000);
    struct message_record record = {
        .queue_offset = flag == 0 ? queue_offset++ : 0,
        .sys_flag = flag,
        .born_timestamp_ms = 1700000000000,
        .born_host = {{127, 0, 0, 1}, 4, 5},
        .store_timestamp_ms = fake.time_ms,
        .store_host = {{127, 0, 0, 1}, 4, 10911},
        .body = slice_of(fake.bytes, (size_t)chance(10)),
        .topic = SLICE_LITERAL("T"),
        .properties = slice_of_text(properties),
        .physical_offset = fake.end + 48,
    };
    size_t bytes = message_record_size(&record);
    ck_assert_uint_le((uint64_t)fake.end + 48 + bytes, LOG_MAX);
    ck_assert_int_lt(n, ENTRIES_MAX);
    ck_assert_uint_eq(message_record_encode(&record, slice_of(NULL, 0), fake.bytes + fake.end + 48), bytes);
    fake.at[n] = record.physical_offset;
    if (flag == MESSAGE_TRANSACTION_ROLLBACK)
        fake.keys[n] = 0;
    fake.end += 48 + (int64_t)bytes;
    fake.count++;
}

static void dispatch_all(void)
{
    for (; dispatched < fake.count; dispatched++) {
        struct message_dispatch out;
        ck_assert_int_eq(message_store_dispatch(&store, record_of(dispatched), &out), 0);
    }
}

static void grow(int count)
{
    while (count-- > 0)
        append();
    dispatch_all();
}

static void open_store(int64_t position)
{
    ck_assert_msg(message_store_open(&store, &sim.env, &config, &view, &error) == 0, "%s", error.message);
    ck_assert_msg(message_store_recover(&store, position, &error) == 0, "%s", error.message);
    if (store.index != NULL)
        ck_assert_ptr_nonnull(compare = index_compare_new(&sim.env, store.index, &store.dispatched_offset, &store.recovered_position));
    /* The entry that the position is in or in front of, as replica_index_at() finds it: a damaged index entry can name a place in the middle of one. */
    int64_t resume = message_store_recovered_position(&store);
    dispatched = first_at(resume + 48);
    if (dispatched > fake.first && fake.at[dispatched - 1] + (int64_t)record_of(dispatched - 1).size > resume)
        dispatched--;
    dispatch_all();
}

static void close_store(void)
{
    index_compare_free(compare);
    compare = NULL;
    message_store_close(&store);
}

static void begin(uint64_t seed)
{
    log_sink_set(be_quiet, NULL);
    memset(&fake, 0, sizeof fake);
    fake.bytes = calloc(1, LOG_MAX);
    fake.time_ms = 1700000000123;
    queue_offset = 0;
    dispatched = 0;
    config = (struct message_store_config){.root = "/s", .consume_queue_file_size = 20000, .index_slots = SLOTS, .index_entries = ENTRIES, .index_enable = true};
    sim_env_init(&sim, seed, NULL);
    open_store(0);
}

static void finish(void)
{
    close_store();
    ck_assert_uint_eq(sim_env_unreserved_pages(&sim), 0);
    ck_assert_uint_eq(sim.open_files, 0);
    ck_assert_uint_eq(sim.open_maps, 0);
    sim_env_close(&sim);
    free(fake.bytes);
}

/* ---- answers ---- */

static int find(const char *key, int64_t begin_ms, int64_t end_ms, int64_t *offsets)
{
    int64_t time, offset;
    return (int)message_store_query(&store, SLICE_LITERAL("T"), slice_of_text(key), 64, begin_ms, end_ms, offsets, &time, &offset);
}

static bool holds(int n, const char *key)
{
    struct message_dispatch dispatch;
    ck_assert_int_eq(message_dispatch_decode(record_of(n), &dispatch), 0);
    if (dispatch.uniq_key.size > 0 && slice_equal(dispatch.uniq_key, slice_of_text(key)))
        return true;
    struct slice one;
    while (dispatch.keys.data != NULL && (one = slice_next_part(&dispatch.keys, ' ')).size > 0) {
        if (slice_equal(one, slice_of_text(key)))
            return true;
    }
    return false;
}

struct verdict {
    int missing;     /* records that a key did not lead to */
    char wrong[128]; /* an answer that the log does not give, or one twice; empty: none */
};

/* Asks for one key, which only records in [from, to) may hold. */
static void look_up(struct verdict *verdict, const char *key, int from, int to)
{
    int64_t offsets[64];
    int found = find(key, 0, INT64_MAX, offsets), at = 0;
    for (int n = from < fake.first ? fake.first : from; n < to && n < fake.count; n++) {
        if (fake.keys[n] == 0 || !holds(n, key))
            continue;
        if (at < found && offsets[at] == fake.at[n])
            at++;
        else
            verdict->missing++;
    }
    if (at != found)
        snprintf(verdict->wrong, sizeof verdict->wrong, "%s leads to %lld", key, (long long)offsets[at]);
}

static struct verdict look_up_all(void)
{
    struct verdict verdict = {0};
    struct message_dispatch dispatch;
    char key[32];
    int64_t offsets[64];
    for (int n = fake.first; n < fake.count; n++) {
        if (fake.keys[n] == 0)
            continue;
        snprintf(key, sizeof key, "U%d", n);
        if (chance(4) != 0) {
            look_up(&verdict, key, n, n + 1);
        } else { /* at its very time */
            message_dispatch_decode(record_of(n), &dispatch);
            verdict.missing += find(key, dispatch.store_timestamp_ms, dispatch.store_timestamp_ms, offsets) != 1;
        }
    }
    for (int n = fake.first / 20; n <= fake.count / 20; n++) {
        snprintf(key, sizeof key, "k%d", n);
        look_up(&verdict, key, n * 20, n * 20 + 20);
    }
    for (int n = fake.first / 7; n <= fake.count / 7; n++) {
        snprintf(key, sizeof key, "q%d", n);
        look_up(&verdict, key, n * 7, n * 7 + 7);
    }
    return verdict;
}

static void must_be_whole(uint64_t seed)
{
    struct verdict verdict = look_up_all();
    ck_assert_msg(verdict.wrong[0] == '\0' && verdict.missing == 0, "%llu: %d missing, %s", (unsigned long long)seed, verdict.missing, verdict.wrong);
}

/* ---- passes ---- */

static uint64_t position_of(int n)
{
    return n < fake.count ? (uint64_t)fake.at[n] - 48 : (uint64_t)fake.end;
}

/* What the scrub does: from the first entry to the last one, with leaps to where it is sent. False: it was told to stop after so many pieces. */
static bool pass(int pieces_max, int more_max)
{
    int n = fake.first;
    for (int pieces = 0; n < fake.count; pieces++) {
        int end = n + 1 + (int)chance(12);
        uint64_t wanted;
        ck_assert_int_lt(pieces, 5000);
        if (pieces == pieces_max)
            return false;
        if (end > fake.count)
            end = fake.count;
        for (int i = n; i < end; i++) {
            struct message_dispatch record;
            ck_assert_int_eq(message_dispatch_decode(record_of(i), &record), 0);
            ck_assert_int_eq(index_compare_add(compare, &record), 0);
        }
        uint64_t from = position_of(n), to = position_of(end);
        index_compare_begin(compare, from, to, (uint64_t)fake.min);
        if (more_max > 0 && fake.count < 300 && chance(4) == 0)
            grow((int)chance((uint64_t)more_max));
        index_compare_run(compare);
        n = end;
        if (index_compare_end(compare, &wanted)) {
            n = first_at((int64_t)wanted + 48);
            if (position_of(n) > wanted && n > fake.first)
                n--;
        }
    }
    return true;
}

/* Until one finds nothing. */
static int passes(int more_max)
{
    for (int count = 0;; count++) {
        uint64_t before = index_compare_counts(compare).damaged;
        ck_assert_int_lt(count, 30);
        pass(-1, more_max);
        if (index_compare_counts(compare).damaged == before)
            return count;
    }
}

/* ---- damage ---- */

static const char *some_file(uint64_t *size)
{
    uint64_t count = 0;
    while (sim_env_file(&sim, DIR "/", count) != NULL)
        count++;
    if (count == 0)
        return NULL;
    const char *path = sim_env_file(&sim, DIR "/", chance(count));
    sim_env_bytes(&sim, path, size);
    return path;
}

/* True: other ones were there. */
static bool put_bytes(const char *path, uint64_t at, const uint8_t *bytes, uint64_t size, uint64_t file_size)
{
    if (at >= file_size)
        return false;
    if (size > file_size - at)
        size = file_size - at;
    bool other = memcmp(sim_env_bytes(&sim, path, &file_size) + at, bytes, size) != 0;
    sim_env_put(&sim, path, at, bytes, size);
    return other;
}

static uint8_t old_bytes[4096];
static uint64_t old_size;

static struct damage_count done;

static void spoil(void)
{
    bool changed = true;
    uint64_t size, other_size;
    uint8_t block[512];
    const char *path = some_file(&size);
    if (path == NULL || size == 0)
        return;
    uint64_t kind = chance(16), at = chance(size), length = 1 + chance(sizeof block);
    if (kind < 8) {
        if (kind >= 5) /* of the header, or a slot */
            at = kind < 7 ? chance(INDEX_HEADER_SIZE) : INDEX_HEADER_SIZE + chance(SLOTS * INDEX_SLOT_SIZE);
        uint8_t bit = (uint8_t)(1u << chance(8));
        changed = at < size; /* it may have been cut short before */
        if (changed)
            sim_env_corrupt(&sim, path, at, bit);
    } else if (kind < 10) {
        memset(block, kind == 8 ? 0 : (int)chance(256), sizeof block);
        changed = put_bytes(path, at, block, length, size);
    } else if (kind < 12) { /* of another file, or of another place */
        const char *other = some_file(&other_size);
        uint64_t from = chance(3) == 0 ? chance(other_size + 1) : at;
        changed = false;
        if (from < other_size) {
            length = length < other_size - from ? length : other_size - from;
            memcpy(block, sim_env_bytes(&sim, other, &other_size) + from, length);
            changed = put_bytes(path, at, block, length, size);
        }
    } else if (kind < 13) { /* as it was */
        changed = false;
        if (at < old_size)
            changed = put_bytes(path, at, old_bytes + at, length < old_size - at ? length : old_size - at, size);
    } else if (kind < 14) {
        struct env_file *handle;
        ck_assert_int_eq(env_open(&sim.env, path, ENV_WRITE, &handle), 0);
        ck_assert_int_eq(sim.env.ops->truncate(&sim.env, handle, chance(size)), 0);
        env_close(&sim.env, handle);
    } else if (kind < 15) {
        ck_assert_int_eq(sim.env.ops->unlink(&sim.env, path), 0);
    } else { /* all of it is what it was when it had fewer entries, or is nothing */
        if (chance(2) == 0)
            memset(old_bytes, 0, sizeof old_bytes);
        changed = put_bytes(path, 0, old_bytes, size < sizeof old_bytes ? size : sizeof old_bytes, size);
    }
    if (changed)
        damage_count_add(&done, kind < 8);
}

static void remember_newest(void)
{
    const char *path = store.index->count == 0 ? NULL : store.index->files[store.index->count - 1]->path;
    const uint8_t *bytes = path == NULL ? NULL : sim_env_bytes(&sim, path, &old_size);
    if (bytes == NULL || old_size > sizeof old_bytes)
        old_size = 0;
    else
        memcpy(old_bytes, bytes, old_size);
}

static void trim(void)
{
    int first = fake.first + (int)chance((uint64_t)(fake.count - fake.first) / 3 + 1);
    fake.first = first;
    fake.min = (int64_t)position_of(first);
    ck_assert_int_eq(message_store_trim(&store, fake.min), 0);
}

/* Without damage nothing is made anew, whatever else happens. */
START_TEST(test_whole)
{
    for (uint64_t seed = 1; seed <= rounds(60, 1000); seed++) {
        begin(seed);
        for (int round = 0; round < 6; round++) {
            grow((int)chance(80));
            pass(-1, 10);
            if (chance(3) == 0)
                trim();
            if (chance(2) == 0)
                pass((int)chance(20), 5);
            close_store();
            /* Also from an earlier position, as after a kill. */
            int n = fake.count - (int)chance((uint64_t)(fake.count - fake.first) / 2 + 1);
            open_store((int64_t)position_of(n));
            ck_assert_uint_eq(index_compare_counts(compare).damaged, 0);
            ck_assert_int_eq(passes(0), 0);
        }
        must_be_whole(seed);
        finish();
    }
}
END_TEST

/* After a start the index may reach further than what is applied, which is all that is read: nothing is wrong with it, and nothing is left out of it. */
START_TEST(test_further_than_what_is_applied)
{
    begin(5);
    grow(40 + _i * 10);
    close_store();
    open_store((int64_t)position_of(dispatched));
    int count = fake.count, applied = count - 5 - _i * 3;
    int64_t end = fake.end;
    fake.end = (int64_t)position_of(applied);
    fake.count = applied;
    store.dispatched_offset = fake.end; /* as replica_apply.c says it */
    for (int i = 0; i < 3; i++)
        pass(-1, 0);
    fake.end = end;
    fake.count = count;
    dispatched = applied;
    dispatch_all();
    ck_assert_uint_eq(index_compare_counts(compare).damaged, 0);
    must_be_whole(5);
    passes(0);
    ck_assert_uint_eq(index_compare_counts(compare).damaged, 0);
    must_be_whole(5);
    finish();
}
END_TEST

START_TEST(test_damage)
{
    uint64_t found = 0, rebuilt = 0, missed = 0, count = rounds(2000, 40000);
    for (uint64_t round = 0; round < count; round++) {
        if (round % 20 == 0) {
            if (round > 0)
                finish();
            begin(round + 1);
            grow(20);
            remember_newest();
            grow(50 + (int)chance(100));
        }
        close_store();
        for (uint64_t n = 1 + chance(3); n > 0; n--)
            spoil();
        if (chance(4) == 0)
            for (uint64_t more = chance(30); more > 0; more--)
                append();
        open_store((int64_t)position_of(dispatched));
        struct verdict verdict = look_up_all();
        ck_assert_msg(verdict.wrong[0] == '\0', "round %llu: %s", (unsigned long long)round, verdict.wrong);
        missed += verdict.missing > 0;
        if (chance(8) == 0)
            trim();
        passes((int)chance(2) * 6);
        found += index_compare_counts(compare).damaged > 0;
        rebuilt += index_compare_counts(compare).rebuilt;
        must_be_whole(round);
        remember_newest();
    }
    finish();
    ck_assert_uint_gt(missed, count / 4);
    ck_assert_uint_ge(found, missed);
    ck_assert_uint_gt(rebuilt, count / 3);
    damage_count_print(&done, "key index");
}
END_TEST

static uint32_t entries_of_all(void)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < store.index->count; i++)
        sum += store.index->files[i]->count - 1;
    return sum;
}

/* A file that begins as the newest one does is in front of it, or behind it: what is in it, and in no record of the log behind it, goes. */
START_TEST(test_newest_file_twice)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint8_t bytes[INDEX_HEADER_SIZE + SLOTS * INDEX_SLOT_SIZE + ENTRIES * INDEX_ENTRY_SIZE];
        uint64_t size;
        begin(seed);
        grow(150);
        const uint32_t entries = entries_of_all();
        const struct index_file *newest = store.index->files[store.index->count - 1];
        char path[2][64];
        for (size_t i = 0; i < 2; i++)
            snprintf(path[i], sizeof path[i], "%s", store.index->files[store.index->count - 2 + i]->path);
        const uint64_t length = index_file_used(newest, 1 + (uint32_t)chance(newest->count));
        close_store();
        ck_assert_uint_eq(sizeof bytes, sim_env_bytes(&sim, path[1], &size) != NULL ? size : 0);
        memcpy(bytes, sim_env_bytes(&sim, path[1], &size), size);
        /* All of it, or its first entries alone. */
        const uint64_t from = seed % 2 == 0 ? 0 : INDEX_HEADER_SIZE + SLOTS * INDEX_SLOT_SIZE + INDEX_ENTRY_SIZE;
        sim_env_put(&sim, path[0], from, bytes + from, seed % 2 == 0 ? size : length < from + INDEX_ENTRY_SIZE ? INDEX_ENTRY_SIZE : length - from);
        if (seed % 3 == 0)
            sim_env_corrupt(&sim, path[1], length - 1, 4);
        open_store(fake.end);
        passes(0);
        ck_assert_msg(entries_of_all() == entries, "%llu: %u entries of %u", (unsigned long long)seed, entries_of_all(), entries);
        must_be_whole(seed);
        finish();
    }
}
END_TEST

/* A process that dies anywhere in a pass leaves files that the next one mends, and nothing beside them; after a power cut as well. */
START_TEST(test_kills)
{
    for (uint64_t seed = 1; seed <= rounds(150, 3000); seed++) {
        begin(seed);
        grow(150);
        ck_assert_int_eq(message_store_sync(&store), 0);
        close_store();
        for (uint64_t n = 1 + chance(3); n > 0; n--)
            spoil();
        int64_t position = fake.end;
        open_store(position);
        if (seed % 2 == 0)
            sim_env_kill_at(&sim, SIM_OPEN | SIM_CHANGES, 1 + chance(200));
        pass((int)chance(60), 0);
        if (!sim.dead && chance(2) == 0)
            (void)message_store_sync(&store);
        if (!sim.dead && seed % 4 == 1)
            sim_env_power_cut(&sim);
        else if (!sim.dead)
            sim_env_kill(&sim);
        close_store();
        sim_env_restart(&sim);
        open_store(position);
        for (uint64_t i = 0; sim_env_file(&sim, DIR "/", i) != NULL; i++)
            ck_assert_ptr_null(strstr(sim_env_file(&sim, DIR "/", i), INDEX_REBUILD_SUFFIX));
        struct verdict verdict = look_up_all();
        ck_assert_msg(verdict.wrong[0] == '\0', "seed %llu: %s", (unsigned long long)seed, verdict.wrong);
        passes(0);
        must_be_whole(seed);
        finish();
    }
}
END_TEST

/* No room: what is there stays, new records are indexed, and a later pass mends. */
START_TEST(test_full_disk)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        begin(seed);
        grow(150);
        const char *path = store.index->files[0]->path;
        sim_env_corrupt(&sim, path, INDEX_HEADER_SIZE + SLOTS * INDEX_SLOT_SIZE + INDEX_ENTRY_SIZE + 2, 1);
        if (seed % 2 == 0)
            sim.disk_bytes = sim.used_bytes + 3 * 4096; /* nor for others */
        else
            sim_env_fail_at(&sim, SIM_ALLOCATE | SIM_RENAME, 1 + chance(3), seed % 4 == 1 ? ENOSPC : EIO, true);
        pass(-1, 0);
        pass(-1, 0);
        ck_assert_uint_eq(index_compare_counts(compare).damaged, 2);
        ck_assert_uint_eq(index_compare_counts(compare).rebuilt, 0);
        ck_assert(!index_compare_hurries(compare));
        ck_assert_int_gt(look_up_all().missing, 0);
        sim.disk_bytes = 0;
        sim.fault.calls = 0;
        ck_assert_int_eq(passes(4), 1);
        ck_assert_uint_eq(index_compare_counts(compare).rebuilt, 1);
        must_be_whole(seed);
        finish();
    }
}
END_TEST

/* Records that came while there was no index, or while its files could not be made, are indexed afterwards. */
START_TEST(test_not_indexed)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        begin(seed);
        grow((int)chance(100));
        if (seed % 2 == 0) {
            close_store();
            config.index_enable = false;
            open_store(fake.end);
            grow(70);
            close_store();
            config.index_enable = true;
            open_store(fake.end);
        } else {
            grow(20);
            sim_env_fail_at(&sim, SIM_TRUNCATE, 1, EACCES, true);
            grow(70);
            ck_assert_uint_gt(message_store_not_indexed(&store), 0);
            sim.fault.calls = 0;
            sim.clock->monotonic_us += 11 * 1000 * 1000;
        }
        grow(20);
        ck_assert_int_gt(look_up_all().missing, 0);
        ck_assert_int_gt(passes(4), 0);
        must_be_whole(seed);
        ck_assert_int_eq(passes(4), 0);
        finish();
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index_compare");
    TCase *tcase = tcase_create("core");
    tcase_set_timeout(tcase, 1200);
    tcase_add_test(tcase, test_whole);
    tcase_add_loop_test(tcase, test_further_than_what_is_applied, 0, 6);
    tcase_add_test(tcase, test_damage);
    tcase_add_test(tcase, test_newest_file_twice);
    tcase_add_test(tcase, test_kills);
    tcase_add_test(tcase, test_full_disk);
    tcase_add_test(tcase, test_not_indexed);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
