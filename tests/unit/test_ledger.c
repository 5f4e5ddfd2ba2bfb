/* The ledger against a model: bytes on disk, runs, cuts, room ahead, index files. */
#include "dledger/ledger.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/ledger_fixture.h"
#include "tests/lib/run_suite.h"

/* ---- bytes ---- */

START_TEST(test_golden_header_and_unit)
{
    static const uint8_t header[36] = {0, 0, 0, 1, 0, 0, 0, 0xfe, 0, 0, 0, 0, 0, 0, 0,    7,    0, 0,
                                       0, 0, 0, 0, 0, 2, 0, 0,    0, 0, 0, 0, 3, 0xe8, 0, 0,    0, 0};
    static const uint8_t unit[32] = {0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 0xe8, 0, 0, 0, 0xfe, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 2};
    struct fixture *f = fixture_new(1, true);
    must_open(f);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(append(f, 1, 1, 142 - 48, i - 1, 0), 0);
    ck_assert_int_eq(append(f, 1, 2, 148 - 48, 5, 0), 0);
    ck_assert_int_eq(append(f, 1, 2, 206, 7, 0), 0); /* index 7 at position 1000; index - committed = 0 */
    uint64_t size;
    uint8_t *data = sim_env_bytes(&f->sim, segment_path(0), &size);
    ck_assert_uint_eq(size, SEGMENT);
    ck_assert_mem_eq(data + 1000, header, sizeof header);
    ck_assert_uint_eq(load_u32(data + 1000 + 44), 206);
    ck_assert_uint_eq(load_u32(data + 1000 + 40), crc32c(0, data + 1048, 206));
    uint8_t *index = sim_env_bytes(&f->sim, DIR "/index/00000000000000000000", &size);
    ck_assert_uint_eq(size, INDEX_FILE);
    ck_assert_mem_eq(index + 7 * 32, unit, sizeof unit);
    must_equal(f);
    fixture_free(f);
}
END_TEST

START_TEST(test_golden_filler)
{
    static const uint8_t blank[8] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0x7c};
    for (int one_run = 0; one_run < 2; one_run++) {
        struct fixture *f = fixture_new(1, false);
        must_open(f);
        ledger_model_add(&f->model, 1, SEGMENT - 124 - 48, -1, 0);
        ledger_model_add(&f->model, 1, 117 - 48, 0, 0); /* 117 + 8 > 124 */
        size_t size;
        const uint8_t *run = ledger_model_run(&f->model, 0, 2, &size);
        if (one_run) {
            uint64_t writes = sim_env_calls(&f->sim, SIM_WRITE);
            ck_assert_int_eq(ledger_append(&f->ledger, run, size, 2), 0);
            ck_assert_uint_eq(sim_env_calls(&f->sim, SIM_WRITE) - writes, 2); /* one for each segment */
        } else {
            run = ledger_model_run(&f->model, 0, 1, &size);
            ck_assert_int_eq(ledger_append(&f->ledger, run, size, 1), 0);
            run = ledger_model_run(&f->model, 1, 1, &size);
            ck_assert_int_eq(ledger_append(&f->ledger, run, size, 1), 0);
        }
        uint64_t file_size;
        uint8_t *data = sim_env_bytes(&f->sim, segment_path(0), &file_size);
        ck_assert_mem_eq(data + SEGMENT - 124, blank, sizeof blank);
        for (size_t i = SEGMENT - 116; i < SEGMENT; i++)
            ck_assert_uint_eq(data[i], 0);
        must_equal(f);
        fixture_free(f);
    }
    /* 116 fit exactly. */
    struct fixture *f = fixture_new(1, false);
    must_open(f);
    ck_assert_int_eq(append(f, 1, 1, SEGMENT - 124 - 48, -1, 0), 0);
    ck_assert_int_eq(append(f, 1, 1, 116 - 48, -1, 0), 0);
    ck_assert_uint_eq(f->ledger.end_position, SEGMENT - 8);
    ck_assert_int_eq(append(f, 1, 1, 0, -1, 0), 0);
    ck_assert_uint_eq(f->ledger.end_position, SEGMENT + 48);
    must_equal(f);
    fixture_free(f);
}
END_TEST

START_TEST(test_check_run)
{
    struct fixture *f = fixture_new(1, true);
    must_open(f);
    ck_assert_int_eq(append(f, 3, 2, 100, -1, 0), 0);
    for (int i = 0; i < 5; i++)
        ledger_model_add(&f->model, 3, 50, 1, 0);
    size_t size;
    const uint8_t *good = ledger_model_run(&f->model, 3, 5, &size);
    struct ledger *l = &f->ledger;
    struct error e;
    ck_assert_int_eq(ledger_check_run(l, good, size, 5, 3, 2, l->end_position, l->last_chain, 3, &e), 0);
    ck_assert_int_eq(ledger_check_run(l, good, size, 5, 4, 2, l->end_position, l->last_chain, 3, &e), ERROR_MALFORMED);
    ck_assert_int_eq(ledger_check_run(l, good, size, 4, 3, 2, l->end_position, l->last_chain, 3, &e), ERROR_MALFORMED);
    ck_assert_int_eq(ledger_check_run(l, good, size, 6, 3, 2, l->end_position, l->last_chain, 3, &e), ERROR_MALFORMED);
    ck_assert_int_eq(ledger_check_run(l, good, size - 1, 5, 3, 2, l->end_position, l->last_chain, 3, &e), ERROR_MALFORMED);
    ck_assert_int_eq(ledger_check_run(l, good, size, 5, 3, 4, l->end_position, l->last_chain, 9, &e), ERROR_MALFORMED);
    ck_assert_int_eq(ledger_check_run(l, good, size, 5, 3, 2, l->end_position, l->last_chain, 2, &e), ERROR_MALFORMED);
    ck_assert_int_eq(ledger_check_run(l, good, size, 5, 3, 2, l->end_position + 1, l->last_chain, 3, &e), ERROR_MALFORMED);
    ck_assert_int_eq(ledger_check_run(l, good, size, 5, 3, 2, l->end_position, l->last_chain + 1, 3, &e), ERROR_DAMAGED);
    uint8_t *bad = malloc(size);
    ck_assert_ptr_nonnull(bad);
    for (size_t i = 0; i < size; i++) {
        memcpy(bad, good, size);
        bad[i] ^= 0x40;
        ck_assert_int_ne(ledger_check_run(l, bad, size, 5, 3, 2, l->end_position, l->last_chain, UINT64_MAX, &e), 0);
    }
    free(bad);
    ledger_model_cut(&f->model, 3);
    must_equal(f);
    fixture_free(f);
}
END_TEST

/* Many entries over many segments and index files, as single entries and as long runs; read again after each kind of start. */
START_TEST(test_roll)
{
    for (int class_b = 0; class_b < 2; class_b++) {
        struct fixture *f = fixture_new(3, class_b != 0);
        must_open(f);
        uint32_t x = 1;
        while (f->model.count < 700) {
            x = x * 1664525u + 1013904223u;
            ck_assert_int_eq(append(f, 1 + (x >> 8) % 20, 1 + f->model.count / 200, (x >> 16) % 900, (int64_t)f->model.count - 5, x), 0);
            if (x % 5 == 0)
                reserve_ahead(f);
        }
        must_equal(f);
        ck_assert_uint_gt(f->ledger.data.count, 10);
        ck_assert_uint_gt(f->ledger.index.count, 3);
        ck_assert_uint_eq(f->ledger.terms.count, 4);
        ck_assert_int_eq(sync_all(f), (int64_t)f->model.count - 1);
        take_checkpoint(f, 400);

        close_ledger(f);
        must_open(f);
        must_equal(f);
        ck_assert_uint_eq(f->recovery.entries_checked, f->model.count - 401);
        ck_assert_uint_eq(f->recovery.index_units_rewritten, 0);
        ck_assert(!f->recovery.cut);
        ck_assert_int_ge(f->recovery.claim_index, 400);

        f->checkpoint.present = false;
        close_ledger(f);
        must_open(f);
        must_equal(f);
        ck_assert_uint_eq(f->recovery.entries_checked, f->model.count);
        fixture_free(f);
    }
}
END_TEST

/* ---- cuts ---- */

START_TEST(test_truncate_everywhere)
{
    static const uint32_t sizes[] = {100, 4000, 12000, 0, 7000, 16000, 3000, 3000, 16328, 50, 16328, 5};
    size_t total = sizeof sizes / sizeof sizes[0];
    for (size_t cut = 0; cut <= total; cut++) {
        for (int variant = 0; variant < 8; variant++) {
            struct fixture *f = fixture_new(cut * 10 + (size_t)variant, (variant & 1) != 0);
            must_open(f);
            for (size_t i = 0; i < total; i++)
                ck_assert_int_eq(append(f, 1, 1 + i / 3, sizes[i], -1, 1), 0);
            if ((variant & 2) != 0)
                reserve_ahead(f);
            must_equal(f);
            sync_all(f);
            ck_assert_int_eq(ledger_truncate(&f->ledger, cut), 0);
            ledger_model_cut(&f->model, cut);
            must_equal(f);
            ck_assert_int_le(f->ledger.synced_index, f->ledger.last_index);
            if ((variant & 4) != 0) {
                close_ledger(f);
                must_open(f);
                must_equal(f);
                ck_assert(!f->recovery.cut);
            }
            /* Other entries of a later term take their place: smaller, larger, and so that fillers land elsewhere. */
            for (size_t i = 0; i < 8; i++)
                ck_assert_int_eq(append(f, 1, 9, sizes[(i + 5) % total], (int64_t)cut - 1, 2), 0);
            must_equal(f);
            close_ledger(f);
            must_open(f);
            must_equal(f);
            fixture_free(f);
        }
    }
}
END_TEST

/* The files of a sync that is out stay open when a cut removes them, and the cut lowers what the sync proves. */
START_TEST(test_truncate_while_sync_is_out)
{
    struct fixture *f = fixture_new(4, true);
    struct ledger_sync sync;
    must_open(f);
    ck_assert_int_eq(append(f, 30, 1, 1000, -1, 1), 0);
    ck_assert(ledger_sync_next(&f->ledger, &sync));
    ck_assert(!ledger_sync_next(&f->ledger, &sync));
    ck_assert_int_eq(sync.count, 2);
    ck_assert_int_eq(sync.index, 29);
    ck_assert_int_eq(ledger_truncate(&f->ledger, 3), 0);
    ledger_model_cut(&f->model, 3);
    ck_assert_int_eq(append(f, 10, 2, 100, -1, 2), 0);
    ledger_sync_run(&sync);
    ck_assert_int_eq(sync.result, 0);
    ck_assert_int_eq(ledger_sync_done(&f->ledger, &sync), 2);
    must_equal(f);
    ck_assert_int_eq(sync_all(f), 12);
    fixture_free(f);
}
END_TEST

/* More segments than one sync takes. */
START_TEST(test_sync_of_many_segments)
{
    struct fixture *f = fixture_new(4, false);
    struct ledger_sync sync;
    int64_t last = -1;
    int rounds = 0;
    must_open(f);
    ck_assert_int_eq(append(f, 100, 1, 3000, -1, 1), 0);
    while (ledger_sync_next(&f->ledger, &sync)) {
        ck_assert_int_le(sync.count, LEDGER_SYNC_FILES);
        ledger_sync_run(&sync);
        int64_t durable = ledger_sync_done(&f->ledger, &sync);
        ck_assert_int_gt(durable, last);
        last = durable;
        rounds++;
        ck_assert_int_lt(rounds, 20);
    }
    ck_assert_int_eq(last, 99);
    ck_assert_int_gt(rounds, 4);
    for (int i = 0; i < 10; i++) {
        sim_env_power_cut(&f->sim);
        close_ledger(f);
        sim_env_restart(&f->sim);
        must_open(f);
        must_equal(f);
    }
    fixture_free(f);
}
END_TEST

START_TEST(test_trim)
{
    struct fixture *f = fixture_new(4, true);
    must_open(f);
    for (uint64_t i = 0; i < 40; i++)
        ck_assert_int_eq(append(f, 5, 1 + i / 4, 1000, (int64_t)i * 5 - 1, 1), 0);
    reserve_ahead(f);
    sync_all(f);
    take_checkpoint(f, 150);
    for (uint64_t position = 0; position < 16 * SEGMENT; position += SEGMENT / 2) {
        ck_assert_int_eq(ledger_trim(&f->ledger, position, &f->error), 0);
        must_equal(f);
        ck_assert_uint_le(mapped_file_queue_begin(&f->ledger.data), position);
        ck_assert_uint_eq(f->ledger.terms.rows[0].first_index, (uint64_t)f->ledger.begin_index);
        for (int with = 0; with < 2; with++) {
            f->checkpoint.present = with != 0 && f->ledger.begin_index <= 150;
            close_ledger(f);
            must_open(f);
            must_equal(f);
            ck_assert_uint_eq(f->ledger.terms.rows[0].first_index, (uint64_t)f->ledger.begin_index);
        }
    }
    ck_assert_int_gt(f->ledger.begin_index, 150);
    /* A checkpoint from before what was removed: the claim is met, all is verified. */
    f->checkpoint.present = true;
    close_ledger(f);
    must_open(f);
    must_equal(f);
    ck_assert_int_eq(ledger_trim(&f->ledger, UINT64_MAX, &f->error), 0);
    ck_assert_int_le(f->ledger.begin_index, f->ledger.last_index);
    must_equal(f);
    ck_assert_int_eq(append(f, 20, 20, 1000, 150, 1), 0);
    must_equal(f);
    fixture_free(f);
}
END_TEST

/* ---- room ahead ---- */

/* A job of zeros that the loop overtakes is called off and never writes over entries. */
START_TEST(test_reservation_overtaken)
{
    struct fixture *f = fixture_new(4, true);
    struct ledger_reservation job;
    must_open(f);
    ck_assert_int_eq(append(f, 3, 1, 1000, -1, 1), 0);
    ck_assert(ledger_reservation_next(&f->ledger, &job));
    if (job.index) {
        ledger_reservation_run(&job);
        ledger_reservation_done(&f->ledger, &job);
        ck_assert(ledger_reservation_next(&f->ledger, &job));
    }
    ck_assert(!job.index);
    ck_assert_int_eq(append(f, 40, 1, 1000, -1, 1), 0);
    must_equal(f);
    ledger_reservation_run(&job);
    ck_assert_int_eq(job.result, -ECANCELED);
    uint64_t reserved = f->ledger.reserved_end;
    ledger_reservation_done(&f->ledger, &job);
    ck_assert_uint_eq(f->ledger.reserved_end, reserved);
    must_equal(f);
    /* And one whose segment is cut away. */
    reserve_ahead(f);
    ck_assert_int_eq(append(f, 10, 1, 1000, -1, 1), 0);
    ck_assert(ledger_reservation_next(&f->ledger, &job));
    ck_assert_int_eq(ledger_truncate(&f->ledger, 2), 0);
    ledger_model_cut(&f->model, 2);
    ledger_reservation_run(&job);
    ledger_reservation_done(&f->ledger, &job);
    must_equal(f);
    reserve_ahead(f);
    must_equal(f);
    ck_assert_int_eq(append(f, 60, 1, 1000, -1, 1), 0);
    must_equal(f);
    fixture_free(f);
}
END_TEST

/* The next job that creates a segment, with all that comes before it done. */
static void next_creation(struct fixture *f, struct ledger_reservation *job)
{
    for (;;) {
        ck_assert(ledger_reservation_next(&f->ledger, job));
        if (job->creates)
            return;
        ledger_reservation_run(job);
        ledger_reservation_done(&f->ledger, job);
    }
}

/* A segment that is being created when the log is cut, or when entries need it at once: nobody finds it there that does not expect it, whichever of the two
 * comes first. */
START_TEST(test_creation_overtaken)
{
    for (int when = 0; when < 3; when++) { /* the job has not begun, has named the file, has come back */
        for (int cut = 0; cut < 2; cut++) {
            struct fixture *f = fixture_new(4, true);
            struct ledger_reservation job;
            must_open(f);
            ck_assert_int_eq(append(f, 3, 1, 1000, -1, 1), 0);
            next_creation(f, &job);
            uint64_t start = job.creation.start;
            ck_assert(!ledger_awaits_segment(&f->ledger, start) && ledger_awaits_segment(&f->ledger, start + 1));
            if (when > 0)
                ledger_reservation_run(&job);
            if (when > 1)
                ledger_reservation_done(&f->ledger, &job);
            if (cut) {
                ck_assert_int_eq(ledger_truncate(&f->ledger, 2), 0);
                ledger_model_cut(&f->model, 2);
            }
            ck_assert_int_eq(append(f, 3 * SEGMENT / 1000, 1, 1000, -1, 1), 0);
            must_equal(f);
            if (when == 0)
                ledger_reservation_run(&job);
            if (when < 2) {
                ck_assert(!ledger_awaits_segment(&f->ledger, start) && ledger_awaits_segment(&f->ledger, start + 1));
                ledger_reservation_done(&f->ledger, &job);
            }
            ck_assert(!ledger_awaits_segment(&f->ledger, UINT64_MAX));
            must_equal(f);
            reserve_ahead(f);
            must_equal(f);
            close_ledger(f);
            must_open(f);
            must_equal(f);
            fixture_free(f);
        }
    }
}
END_TEST

START_TEST(test_reserved_ahead)
{
    struct fixture *f = fixture_new(4, true);
    must_open(f);
    reserve_ahead(f);
    ck_assert_uint_ge(f->ledger.reserved_end, f->ledger.end_position + SEGMENT);
    /* With room ahead, appends need no call but the write. */
    uint64_t calls = sim_env_calls(&f->sim, SIM_ALL), writes = sim_env_calls(&f->sim, SIM_WRITE);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(append(f, 1, 1, 500, -1, 1), 0);
    ck_assert_uint_eq(sim_env_calls(&f->sim, SIM_ALL) - calls, 10);
    ck_assert_uint_eq(sim_env_calls(&f->sim, SIM_WRITE) - writes, 10);
    /* The next segment exists before it is needed. */
    ck_assert_int_eq(append(f, 8, 1, 1000, -1, 1), 0);
    reserve_ahead(f);
    ck_assert_uint_eq(f->ledger.data.count, 2);
    close_ledger(f);
    must_open(f); /* an empty segment behind the end is fine */
    must_equal(f);
    ck_assert_uint_eq(f->ledger.data.count, 2);
    fixture_free(f);
}
END_TEST

/* ---- index files and settings ---- */

/* A segment of another size, and other settings. */
START_TEST(test_settings)
{
    struct fixture *f = thirty_entries(true);
    close_ledger(f);
    struct ledger ledger;
    uint64_t digest = sim_env_digest(&f->sim, "/");
    ck_assert_int_eq(ledger_open(&ledger, &f->sim.env, DIR, 2 * SEGMENT, INDEX_FILE, true, &f->checkpoint, true, NULL, &f->recovery, &f->error),
                     ERROR_DAMAGED);
    ck_assert_int_eq(ledger_open(&ledger, &f->sim.env, DIR, SEGMENT + 1, INDEX_FILE, true, &f->checkpoint, true, NULL, &f->recovery, &f->error),
                     ERROR_INVALID);
    ck_assert_int_eq(ledger_open(&ledger, &f->sim.env, DIR, SEGMENT, INDEX_FILE + 1, true, &f->checkpoint, true, NULL, &f->recovery, &f->error),
                     ERROR_INVALID);
    ck_assert_uint_eq(sim_env_digest(&f->sim, "/"), digest);
    ck_assert_uint_eq(f->sim.open_files + f->sim.open_maps, 0);
    /* Index files of another size are made again. */
    ck_assert_int_eq(ledger_open(&f->ledger, &f->sim.env, DIR, SEGMENT, INDEX_FILE / 2, true, &f->checkpoint, true, NULL, &f->recovery, &f->error), 0);
    f->open = true;
    must_equal(f);
    ck_assert_uint_eq(f->recovery.index_units_rewritten, 30);
    fixture_free(f);
}
END_TEST

START_TEST(test_index_lost)
{
    char path[100];
    for (int variant = 0; variant < 6; variant++) {
        struct fixture *f = fixture_new(5, true);
        must_open(f);
        for (int i = 0; i < 100; i++)
            ck_assert_int_eq(append(f, 5, 1 + (uint64_t)i / 30, 100, (int64_t)i * 5 - 2, 1), 0);
        sync_all(f);
        take_checkpoint(f, 450);
        close_ledger(f);
        if (variant == 5)
            f->checkpoint.present = false;
        uint64_t size = 0;
        for (uint64_t start = 0; start < 4 * INDEX_FILE; start += INDEX_FILE) {
            snprintf(path, sizeof path, DIR "/index/%020llu", (unsigned long long)start);
            ck_assert(sim_env_exists(&f->sim, path));
            uint8_t *bytes = sim_env_bytes(&f->sim, path, &size);
            if (variant == 0 || (variant == 1 && start == 0) || (variant == 2 && start == INDEX_FILE) || (variant == 3 && start == 3 * INDEX_FILE))
                sim_env_remove(&f->sim, path); /* all, the first, a gap, the last */
            else if (variant >= 4)
                memset(bytes, 0, size); /* as after a power cut */
        }
        must_open(f);
        must_equal(f);
        ck_assert_uint_eq(f->recovery.entries_checked, variant == 4 ? 49 : 500);
        close_ledger(f);
        must_open(f);
        must_equal(f);
        fixture_free(f);
    }
}
END_TEST

/* Units that a power cut took back to an older log's: the entry decides. */
START_TEST(test_index_old_units)
{
    struct fixture *f = fixture_new(5, true);
    must_open(f);
    ck_assert_int_eq(append(f, 300, 1, 100, -1, 1), 0);
    sync_all(f);
    take_checkpoint(f, 290);
    close_ledger(f);
    uint64_t size;
    uint8_t *units = sim_env_bytes(&f->sim, DIR "/index/00000000000000000000", &size);
    for (uint64_t i = 20; i < 60; i++)
        store_u64(units + i * 32 + 4, load_u64(units + i * 32 + 4) + (i % 2 == 0 ? 148 : 3));
    must_open(f);
    must_equal(f);
    fixture_free(f);
}
END_TEST

static void lose_units_from(struct fixture *f, uint64_t index)
{
    uint64_t size;
    uint8_t *units = sim_env_bytes(&f->sim, DIR "/index/00000000000000000000", &size);
    memset(units + index * 32, 0, size - index * 32);
}

/* Where a walk came to is remembered: not over a cut behind which other entries stand elsewhere. */
START_TEST(test_walk_and_cut)
{
    static const uint64_t cuts[] = {10, 30, 40, 41, 42, 43, 60};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        struct fixture *f = fixture_new(i, true);
        struct ledger_entry entry;
        must_open(f);
        ck_assert_int_eq(append(f, 100, 1, 100, -1, 1), 0);
        sync_all(f);
        lose_units_from(f, 20);
        ck_assert_ptr_nonnull(ledger_entry(&f->ledger, 41, &entry));
        ck_assert_uint_eq(entry.index, 41);
        must_equal(f);
        ck_assert_ptr_nonnull(ledger_entry(&f->ledger, 41, &entry));
        ck_assert_int_eq(ledger_truncate(&f->ledger, cuts[i]), 0);
        ledger_model_cut(&f->model, cuts[i]);
        must_equal(f);
        ck_assert_int_eq(append(f, 60, 2, 77, -1, 2), 0);
        lose_units_from(f, 20);
        must_equal(f);
        fixture_free(f);
    }
}
END_TEST

START_TEST(test_many_terms)
{
    struct fixture *f = fixture_new(5, false);
    must_open(f);
    for (uint64_t term = 1; term <= CHECKPOINT_TERMS_MAX + 500; term++)
        ck_assert_int_eq(append(f, 1, term, 0, (int64_t)term - 3, 1), 0);
    must_equal(f);
    sync_all(f);
    take_checkpoint(f, f->ledger.last_index - 3);
    ck_assert_uint_eq(f->checkpoint.term_count, CHECKPOINT_TERMS_MAX);
    close_ledger(f);
    must_open(f);
    ck_assert_uint_eq(f->recovery.entries_checked, 3);
    must_equal(f); /* terms older than the table come from the entries */
    fixture_free(f);
}
END_TEST

/* ---- on a real disk ---- */

START_TEST(test_real_files)
{
    char dir[] = "/tmp/test_ledger.XXXXXX", command[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    struct env env;
    env_real_init(&env);
    struct ledger ledger;
    struct ledger_model model;
    struct ledger_recovery recovery;
    struct error error = {0};
    struct checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    ck_assert_ptr_nonnull(checkpoint);
    checkpoint->committed_index = -1;
    ledger_model_init(&model, 65536);
    for (int round = 0; round < 3; round++) {
        ck_assert_msg(ledger_open(&ledger, &env, dir, 65536, 8192, true, checkpoint, true, NULL, &recovery, &error) == 0, "%s", error.message);
        const char *difference = ledger_model_difference(&model, &ledger);
        ck_assert_msg(difference == NULL, "%s", difference);
        for (int i = 0; i < 50; i++) {
            size_t first = model.count, size;
            for (int k = 0; k < 10; k++)
                ledger_model_add(&model, (uint64_t)round + 1, 500, (int64_t)first - 1, (uint32_t)i);
            const uint8_t *run = ledger_model_run(&model, first, 10, &size);
            ck_assert_int_eq(ledger_append(&ledger, run, size, 10), 0);
            struct ledger_reservation job;
            if (i % 3 == 0 && ledger_reservation_next(&ledger, &job)) {
                ledger_reservation_run(&job);
                ck_assert_int_eq(job.result, 0);
                ledger_reservation_done(&ledger, &job);
            }
        }
        struct ledger_sync sync;
        while (ledger_sync_next(&ledger, &sync)) {
            ledger_sync_run(&sync);
            ledger_sync_done(&ledger, &sync);
        }
        ck_assert_int_eq(ledger.synced_index, ledger.last_index);
        ck_assert_int_eq(ledger_truncate(&ledger, model.count - 77), 0);
        ledger_model_cut(&model, model.count - 77);
        difference = ledger_model_difference(&model, &ledger);
        ck_assert_msg(difference == NULL, "%s", difference);
        ledger_fill_checkpoint(&ledger, ledger.last_index - 20, checkpoint);
        checkpoint->present = true;
        ledger_close(&ledger);
    }
    ledger_model_close(&model);
    free(checkpoint);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* The pool's zeros against the loop's entries, with real threads. */
struct worker {
    pthread_t thread;
    struct ledger_reservation job;
};

static void *work(void *argument)
{
    struct worker *worker = argument;
    ledger_reservation_run(&worker->job);
    return NULL;
}

START_TEST(test_real_threads)
{
    char dir[] = "/tmp/test_ledger.XXXXXX", command[64];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    struct env env;
    env_real_init(&env);
    struct ledger ledger;
    struct ledger_model model;
    struct ledger_recovery recovery;
    struct error error = {0};
    struct checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    ck_assert_ptr_nonnull(checkpoint);
    checkpoint->committed_index = -1;
    ledger_model_init(&model, 2u << 20);
    ck_assert_int_eq(ledger_open(&ledger, &env, dir, 2u << 20, 8192, true, checkpoint, true, NULL, &recovery, &error), 0);
    for (int i = 0; i < 60; i++) {
        struct worker worker;
        bool out = ledger_reservation_next(&ledger, &worker.job);
        if (out)
            ck_assert_int_eq(pthread_create(&worker.thread, NULL, work, &worker), 0);
        for (int k = 0; k < 20; k++) {
            size_t first = model.count, size;
            for (int n = 0; n < 8; n++)
                ledger_model_add(&model, 1, 1000, (int64_t)first - 1, (uint32_t)i);
            const uint8_t *run = ledger_model_run(&model, first, 8, &size);
            ck_assert_int_eq(ledger_append(&ledger, run, size, 8), 0);
        }
        if (out) {
            pthread_join(worker.thread, NULL);
            ck_assert(worker.job.result == 0 || worker.job.result == -ECANCELED);
            ledger_reservation_done(&ledger, &worker.job);
        }
    }
    const char *difference = ledger_model_difference(&model, &ledger);
    ck_assert_msg(difference == NULL, "%s", difference);
    ledger_close(&ledger);
    ledger_model_close(&model);
    free(checkpoint);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ledger");
    TCase *tcase = tcase_create("ledger");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_golden_header_and_unit);
    tcase_add_test(tcase, test_golden_filler);
    tcase_add_test(tcase, test_check_run);
    tcase_add_test(tcase, test_roll);
    tcase_add_test(tcase, test_truncate_everywhere);
    tcase_add_test(tcase, test_truncate_while_sync_is_out);
    tcase_add_test(tcase, test_sync_of_many_segments);
    tcase_add_test(tcase, test_trim);
    tcase_add_test(tcase, test_reservation_overtaken);
    tcase_add_test(tcase, test_creation_overtaken);
    tcase_add_test(tcase, test_reserved_ahead);
    tcase_add_test(tcase, test_settings);
    tcase_add_test(tcase, test_index_lost);
    tcase_add_test(tcase, test_index_old_units);
    tcase_add_test(tcase, test_walk_and_cut);
    tcase_add_test(tcase, test_many_terms);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("real");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, test_real_files);
    tcase_add_test(tcase, test_real_threads);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
