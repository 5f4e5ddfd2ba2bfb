/* Index files: the spec's bytes, chains, capacity and inheritance, exact undo, rebuild after power cuts, full disks. */
#include "store/index_service.h"

#include "proto/hash.h"
#include "store/log_sink.h"

#include "../lib/hex.h"
#include "../lib/sim_env.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>

#define SLOTS 31u
#define ENTRIES 400u
#define DIR "/s/index"

static struct sim_env sim;
static struct error error;
static struct index_service service;

static int64_t record_time(int64_t physical_offset)
{
    return 1700000000000 + physical_offset * 3;
}

static int64_t time_of(void *argument, int64_t physical_offset)
{
    (void)argument;
    return record_time(physical_offset);
}

static void open_service(uint32_t slots, uint32_t entries)
{
    ck_assert_msg(index_service_open(&service, &sim.env, DIR, slots, entries, &error) == 0, "%s", error.message);
    ck_assert_int_eq(sim.env.ops->make_dir(&sim.env, DIR), 0); /* not every test recovers */
}

static void be_quiet(void *context, enum log_level level, const char *text)
{
    (void)context, (void)level, (void)text;
}

static void set_up(void)
{
    log_sink_set(be_quiet, NULL);
    sim_env_init(&sim, 7, NULL);
}

static void tear_down(void)
{
    index_service_close(&service);
    ck_assert_uint_eq(sim_env_unreserved_pages(&sim), 0);
    ck_assert_uint_eq(sim.open_files, 0);
    ck_assert_uint_eq(sim.open_maps, 0);
    sim_env_close(&sim);
}

static void put(const char *topic, const char *key, int64_t physical_offset, int64_t time)
{
    ck_assert_int_eq(index_service_reserve(&service, 1), 0);
    index_service_put(&service, index_key_hash(slice_of_text(topic), slice_of_text(key)), physical_offset, time);
}

/* Record n has two keys of few values, so that chains are long. */
static void put_record(int64_t n)
{
    int64_t physical_offset = 48 + 100 * n;
    ck_assert_int_eq(index_service_reserve(&service, 2), 0);
    index_service_put(&service, (uint32_t)(n * 7 % 53), physical_offset, record_time(physical_offset));
    index_service_put(&service, (uint32_t)(n * 11 % 97), physical_offset, record_time(physical_offset));
}

/* Every record in [0, count) is found under its keys, and none behind. */
static void check_records(int64_t count)
{
    for (uint32_t hash = 0; hash < 97; hash++) {
        int64_t expected[2000];
        int found = 0, wanted = 0;
        for (int64_t n = count; n-- > 0;) {
            if (n * 11 % 97 == hash)
                expected[wanted++] = 48 + 100 * n;
            if (n * 7 % 53 == hash)
                expected[wanted++] = 48 + 100 * n;
        }
        for (size_t i = service.count; i-- > 0;) {
            uint32_t at = 0, steps = 1000000;
            int64_t offset;
            while (index_file_next(service.files[i], hash, 0, INT64_MAX, &at, &steps, &offset)) {
                ck_assert_int_lt(found, wanted);
                ck_assert_int_eq(offset, expected[found]);
                found++;
            }
        }
        ck_assert_int_eq(found, wanted);
    }
}

START_TEST(golden_bytes)
{
    open_service(5000000, 20000000);
    ck_assert(service.was_missing);
    put("TopicTest", "C0A8010A1A2B18B4AAC247B760000000", 1048, 1700000000123);
    put("TopicTest", "OrderID001", 1048, 1700000000123);
    put("TopicTest", "OrderID001", 2048, 1700000000123 + 7999);
    ck_assert_uint_eq(service.count, 1);
    struct index_file *file = service.files[0];
    ck_assert_uint_eq(file->size, 420000040); /* invariant 24 */
    static const struct {
        uint64_t at;
        const char *hex;
    } rows[] = {
        {0, "0000018bcfe5687b 0000018bcfe587ba 0000000000000418 0000000000000800 00000002 00000004"},
        {3969776, "00000001"},
        {5091584, "00000003"},
        {20000060, "2208a732 0000000000000418 00000000 00000000"},
        {20000080, "4963bbb6 0000000000000418 00000000 00000000"},
        {20000100, "4963bbb6 0000000000000800 00000007 00000002"},
        {20000120, "00000000 0000000000000000 00000000 00000000"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct slice bytes = hex_bytes(rows[i].hex);
        ck_assert_mem_eq(file->map + rows[i].at, bytes.data, bytes.size);
        hex_free(bytes);
    }
    uint32_t at = 0, steps = 100;
    int64_t offset;
    uint32_t hash = index_key_hash(SLICE_LITERAL("TopicTest"), SLICE_LITERAL("OrderID001"));
    ck_assert_uint_eq(hash, 1231272886); /* invariant 25 */
    ck_assert(index_file_next(file, hash, 0, INT64_MAX, &at, &steps, &offset));
    ck_assert_int_eq(offset, 2048);
    ck_assert(index_file_next(file, hash, 0, INT64_MAX, &at, &steps, &offset));
    ck_assert_int_eq(offset, 1048);
    ck_assert(!index_file_next(file, hash, 0, INT64_MAX, &at, &steps, &offset));
    /* By time: the second message only. */
    at = 0;
    ck_assert(index_file_next(file, hash, 1700000000123 + 7000, INT64_MAX, &at, &steps, &offset));
    ck_assert_int_eq(offset, 2048);
    ck_assert(!index_file_next(file, hash, 1700000000123 + 7000, INT64_MAX, &at, &steps, &offset));
    at = 0;
    ck_assert(index_file_next(file, hash, 0, 1700000000123, &at, &steps, &offset));
    ck_assert_int_eq(offset, 1048);
    /* The name is 17 digits. */
    ck_assert_uint_eq(strspn(file->path + strlen(DIR) + 1, "0123456789"), 17);
    ck_assert_uint_eq(strlen(file->path), strlen(DIR) + 18);
}
END_TEST

START_TEST(rolls_when_full)
{
    open_service(SLOTS, ENTRIES);
    for (int64_t n = 0; n < 700; n++)
        put_record(n);
    /* 1400 entries, 399 in a file. */
    ck_assert_uint_eq(service.count, 4);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(service.files[i]->count, ENTRIES);
        ck_assert(index_file_is_full(service.files[i]));
        ck_assert_int_le(service.files[i]->end_physical_offset, service.files[i + 1]->begin_physical_offset);
    }
    check_records(700);
    ck_assert_int_eq(index_service_end(&service), 48 + 69900);
    /* The first entry of a later file counts its time from itself. */
    ck_assert_uint_eq(load_u32(service.files[1]->map + INDEX_HEADER_SIZE + SLOTS * 4 + 20 + 12), 0);
    /* Trim: by end, never the newest. */
    ck_assert_int_eq(index_service_trim(&service, service.files[1]->end_physical_offset), 0);
    ck_assert_uint_eq(service.count, 3);
    ck_assert_int_eq(index_service_trim(&service, INT64_MAX), 0);
    ck_assert_uint_eq(service.count, 1);
}
END_TEST

START_TEST(empty_new_file_inherits)
{
    struct index_file *previous, *file;
    ck_assert_int_eq(index_file_create(&previous, &sim.env, "/s/20240101000000000", SLOTS, ENTRIES, &error), ERROR_IO); /* no directory */
    ck_assert_int_eq(sim.env.ops->make_dir(&sim.env, "/s"), 0);
    ck_assert_int_eq(index_file_create(&previous, &sim.env, "/s/20240101000000000", SLOTS, ENTRIES, &error), 0);
    ck_assert_int_eq(index_file_create(&file, &sim.env, "/s/20240101000000000", SLOTS, ENTRIES, &error), ERROR_EXISTS);
    ck_assert_int_eq(index_file_create(&file, &sim.env, "/s/20240101000000001", SLOTS, ENTRIES, &error), 0);
    ck_assert_int_eq(index_file_reserve(previous, 1), 0);
    index_file_put(previous, 5, 1000, 5000);
    index_file_inherit(file, previous);
    ck_assert_int_eq(file->begin_physical_offset, 1000);
    ck_assert_int_eq(file->end_physical_offset, 1000);
    ck_assert_int_eq(file->begin_timestamp_ms, 5000);
    ck_assert_int_eq((int64_t)load_u64(file->map + 24), 1000);
    ck_assert_uint_eq(load_u32(file->map + 36), 1);
    index_file_close(previous);
    index_file_close(file);
    memset(&service, 0, sizeof service);
}
END_TEST

static uint64_t snapshot(const struct index_file *file, uint8_t *copy)
{
    memcpy(copy, file->map, file->size);
    memset(copy + INDEX_HEADER_SIZE + SLOTS * 4, 0, INDEX_ENTRY_SIZE); /* the mark */
    return file->size;
}

/* Undoing to any record gives the very bytes that the file had when that record was the last one. */
START_TEST(undo_is_exact)
{
    static uint8_t images[120][INDEX_HEADER_SIZE + SLOTS * 4 + ENTRIES * INDEX_ENTRY_SIZE];
    static uint8_t now[sizeof images[0]];
    open_service(SLOTS, ENTRIES);
    for (int64_t n = 0; n < 120; n++) {
        put_record(n);
        snapshot(service.files[0], images[n]);
    }
    for (int64_t keep = 120; keep-- > 1;) {
        int64_t resume = INT64_MAX;
        index_service_close(&service);
        open_service(SLOTS, ENTRIES);
        ck_assert(!service.was_missing);
        ck_assert_int_eq(index_service_recover(&service, 48 + 100 * keep - (keep % 2) * 48, 0, time_of, NULL, &resume, &error), 0);
        ck_assert_int_eq(resume, INT64_MAX);
        snapshot(service.files[0], now);
        ck_assert_mem_eq(now, images[keep - 1], sizeof now);
        check_records(keep);
    }
    /* Nothing left: no file either, and it starts again. */
    int64_t resume = INT64_MAX;
    ck_assert_int_eq(index_service_recover(&service, 0, 0, time_of, NULL, &resume, &error), 0);
    ck_assert_uint_eq(service.count, 0);
    ck_assert_int_eq(index_service_end(&service), -1);
    for (int64_t n = 0; n < 10; n++)
        put_record(n);
    check_records(10);
}
END_TEST

START_TEST(undo_over_files)
{
    for (int64_t keep = 1; keep < 500; keep += 37) {
        int64_t resume = INT64_MAX;
        open_service(SLOTS, ENTRIES);
        for (int64_t n = index_service_end(&service) < 0 ? 0 : (index_service_end(&service) - 48) / 100 + 1; n < 500; n++)
            put_record(n);
        index_service_close(&service);
        open_service(SLOTS, ENTRIES);
        ck_assert_int_eq(index_service_recover(&service, 48 + 100 * keep, 0, time_of, NULL, &resume, &error), 0);
        ck_assert_int_eq(resume, INT64_MAX);
        check_records(keep);
        ck_assert_int_eq(index_service_end(&service), 48 + 100 * (keep - 1));
        for (int64_t n = keep; n < 500; n++)
            put_record(n);
        check_records(500);
        index_service_close(&service);
    }
    memset(&service, 0, sizeof service);
}
END_TEST

/* kill -9 between the stores of one put: whatever was done last, nothing is lost and nothing doubled. */
START_TEST(killed_inside_a_put)
{
    static uint8_t before[INDEX_HEADER_SIZE + SLOTS * 4 + ENTRIES * INDEX_ENTRY_SIZE];
    open_service(SLOTS, ENTRIES);
    for (int64_t n = 0; n < 50; n++)
        put_record(n);
    struct index_file *file = service.files[0];
    memcpy(before, file->map, sizeof before);
    put("T", "x", 48 + 5000, record_time(48 + 5000));
    uint32_t hash = index_key_hash(SLICE_LITERAL("T"), SLICE_LITERAL("x"));
    /* Entry and slot are written, the header is still the old one. */
    memcpy(file->map, before, INDEX_HEADER_SIZE);
    index_service_close(&service);
    open_service(SLOTS, ENTRIES);
    int64_t resume = INT64_MAX;
    ck_assert_int_eq(index_service_recover(&service, 48 + 5000, 0, time_of, NULL, &resume, &error), 0);
    file = service.files[0];
    ck_assert_mem_eq(file->map + INDEX_HEADER_SIZE, before + INDEX_HEADER_SIZE, SLOTS * 4);
    uint32_t at = 0, steps = 10;
    int64_t offset;
    ck_assert(!index_file_next(file, hash, 0, INT64_MAX, &at, &steps, &offset) || offset != 5048);
    check_records(50);
}
END_TEST

static void sync_all(void)
{
    for (size_t i = 0; i < service.count; i++) {
        struct index_file *file = service.files[i];
        /* As message_store_sync does: header and entries, slots only of full files. */
        ck_assert_int_eq(sim.env.ops->sync_map(&sim.env, file->map, INDEX_HEADER_SIZE), 0);
        uint64_t from = index_file_used(file, 1);
        if (file->count > 1)
            ck_assert_int_eq(sim.env.ops->sync_map(&sim.env, file->map + from, index_file_used(file, file->count) - from), 0);
        if (index_file_is_full(file))
            ck_assert_int_eq(sim.env.ops->sync_map(&sim.env, file->map, file->size), 0);
    }
    ck_assert_int_eq(sim.env.ops->sync_dir(&sim.env, DIR), 0);
    ck_assert_int_eq(sim.env.ops->sync_dir(&sim.env, "/s"), 0);
    ck_assert_int_eq(sim.env.ops->sync_dir(&sim.env, "/"), 0);
}

/* What was synced is found after a power cut, although slots and header lie on pages of any age. */
START_TEST(rebuilt_after_power_cuts)
{
    int64_t n = 0;
    for (int round = 0; round < 80; round++) {
        open_service(97, 2000);
        int64_t resume = INT64_MAX;
        ck_assert_msg(index_service_recover(&service, 48 + 100 * n, 0, time_of, NULL, &resume, &error) == 0, "%s", error.message);
        if (n > 0)
            ck_assert_int_eq(resume, INT64_MAX);
        check_records(n);
        int64_t synced = n + (int64_t)sim_env_chance(&sim, 60);
        sim.writeback_per_mille = 200;
        for (; n < synced; n++)
            put_record(n);
        sync_all();
        int64_t more = (int64_t)sim_env_chance(&sim, 400);
        for (int64_t i = 0; i < more; i++) {
            put_record(n + i);
            (void)env_random(&sim.env);
        }
        sim.writeback_per_mille = 0;
        sim_env_power_cut(&sim);
        index_service_close(&service);
        sim_env_restart(&sim);
        if (n > 1500)
            break;
    }
    memset(&service, 0, sizeof service);
}
END_TEST

/* A clean stop spares the rebuild on the next boot; the mark is taken back before anything changes. */
START_TEST(whole_after_clean_stop)
{
    open_service(SLOTS, ENTRIES);
    for (int64_t n = 0; n < 60; n++)
        put_record(n);
    sync_all();
    ck_assert_int_eq(index_file_sync_whole(service.files[0]), 0);
    ck_assert(service.files[0]->whole);
    sim_env_power_cut(&sim);
    index_service_close(&service);
    sim_env_restart(&sim);
    open_service(SLOTS, ENTRIES);
    const uint8_t *mark = service.files[0]->map + INDEX_HEADER_SIZE + SLOTS * 4;
    ck_assert_uint_eq(load_u32(mark + 8), 1);
    int64_t resume = INT64_MAX;
    ck_assert_int_eq(index_service_recover(&service, 48 + 6000, 0, time_of, NULL, &resume, &error), 0);
    check_records(60);
    ck_assert_uint_eq(load_u32(mark + 8), 0);
    /* Marked while running, and then written to. */
    ck_assert_int_eq(index_file_sync_whole(service.files[0]), 0);
    ck_assert_uint_eq(load_u32(mark + 8), 1);
    put_record(60);
    ck_assert_uint_eq(load_u32(mark + 8), 0);
    check_records(61);
}
END_TEST

/* Entries in the middle of the file are gone: what lies behind is indexed again. */
START_TEST(damaged_entries)
{
    open_service(SLOTS, ENTRIES);
    for (int64_t n = 0; n < 150; n++)
        put_record(n);
    struct index_file *file = service.files[0];
    memset(file->map + index_file_used(file, 199), 0, 3 * INDEX_ENTRY_SIZE); /* of records 99 and 100; halving looks at number 200 */
    store_u64(file->map + INDEX_HEADER_SIZE + SLOTS * 4, 0);                 /* another boot */
    index_service_close(&service);
    open_service(SLOTS, ENTRIES);
    /* Found, whoever looks, until it is cut. */
    for (int i = 0; i < 2; i++) {
        int64_t resume = 48 + 15000;
        ck_assert_int_eq(index_service_recover(&service, 48 + 15000, 0, time_of, NULL, &resume, &error), 0);
        ck_assert_int_le(resume, 48 + 9800);
        ck_assert_int_ge(resume, 48);
        ck_assert_int_eq(index_service_end(&service), 48 + 14900);
        index_service_close(&service);
        open_service(SLOTS, ENTRIES);
    }
    int64_t resume = 48 + 15000;
    ck_assert_int_eq(index_service_recover(&service, 48 + 15000, 0, time_of, NULL, &resume, &error), 0);
    int64_t limit = resume;
    ck_assert_int_eq(index_service_recover(&service, limit, 0, time_of, NULL, &resume, &error), 0);
    ck_assert_int_eq(resume, limit);
    ck_assert_int_lt(index_service_end(&service), limit);
    check_records(index_service_end(&service) / 100 + 1);
}
END_TEST

START_TEST(full_disk)
{
    open_service(SLOTS, 20000);
    sim.disk_bytes = 1; /* nothing fits */
    ck_assert_int_eq(index_service_reserve(&service, 1), ERROR_NO_SPACE);
    ck_assert_uint_eq(service.count, 0);
    sim.disk_bytes = 5 * 4096;
    int64_t n = 0;
    while (n < 10000 && index_service_reserve(&service, 2) == 0)
        put_record(n++);
    ck_assert_int_gt(n, 300);
    ck_assert_int_lt(n, 10000);
    ck_assert_int_eq(index_service_reserve(&service, 2), ERROR_NO_SPACE);
    check_records(n);
    sim.disk_bytes = 0;
    put_record(n++);
    check_records(n);
}
END_TEST

/* No file can be made: records go unindexed, bounded calls, and it heals. */
START_TEST(directory_refuses)
{
    open_service(SLOTS, ENTRIES);
    sim_env_fail_at(&sim, SIM_OPEN, 1, EACCES, true);
    ck_assert_int_eq(index_service_reserve(&service, 1), ERROR_IO);
    uint64_t calls = sim_env_calls(&sim, SIM_ALL);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(index_service_reserve(&service, 1), ERROR_IO);
    ck_assert_uint_eq(sim_env_calls(&sim, SIM_ALL), calls);
    sim.fault.calls = 0;
    ck_assert_int_eq(index_service_reserve(&service, 1), ERROR_IO);
    sim.clock->monotonic_us += 11 * 1000 * 1000;
    put_record(0);
    check_records(1);
}
END_TEST

START_TEST(wrong_size_is_refused)
{
    open_service(SLOTS, ENTRIES);
    put_record(0);
    index_service_close(&service);
    ck_assert_int_eq(index_service_open(&service, &sim.env, DIR, SLOTS, ENTRIES + 1, &error), ERROR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(error.message, "maxIndexNum"));
    open_service(SLOTS, ENTRIES);
    ck_assert_uint_eq(service.count, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index_file");
    TCase *tcase = tcase_create("core");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, golden_bytes);
    tcase_add_test(tcase, rolls_when_full);
    tcase_add_test(tcase, empty_new_file_inherits);
    tcase_add_test(tcase, undo_is_exact);
    tcase_add_test(tcase, undo_over_files);
    tcase_add_test(tcase, killed_inside_a_put);
    tcase_add_test(tcase, rebuilt_after_power_cuts);
    tcase_add_test(tcase, whole_after_clean_stop);
    tcase_add_test(tcase, damaged_entries);
    tcase_add_test(tcase, full_disk);
    tcase_add_test(tcase, directory_refuses);
    tcase_add_test(tcase, wrong_size_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
