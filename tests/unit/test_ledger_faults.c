/* The ledger when things go wrong: each crash, each error, a full disk, damage, and long lives by chance. Each loop over N makes the N-th call the
 * one that fails. */
#include "dledger/ledger.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/ledger_fixture.h"
#include "tests/lib/run_suite.h"

/* ---- crashes ---- */

/* One life of a ledger that touches everything. Returns when something fails. durable: what has been reported durable. */
static void scenario(struct fixture *f, size_t *sure, int64_t *durable)
{
    static const uint32_t sizes[] = {300, 9000, 9000, 20, 16328, 1, 5000, 5000, 5000, 12000};
    *durable = f->ledger.synced_index;
    for (int i = 0; i < 10; i++) {
        if (append(f, 3, 1, sizes[i], (int64_t)i - 1, 1) != 0)
            return;
        *sure = f->model.count;
        struct ledger_reservation job;
        if (i % 2 == 0 && ledger_reservation_next(&f->ledger, &job)) {
            ledger_reservation_run(&job);
            ledger_reservation_done(&f->ledger, &job);
        }
        struct ledger_sync sync;
        if (i % 3 == 0 && ledger_sync_next(&f->ledger, &sync)) {
            ledger_sync_run(&sync);
            *durable = ledger_sync_done(&f->ledger, &sync);
        }
    }
    size_t cut = 17;
    *sure = cut;
    if (*durable >= (int64_t)cut)
        *durable = (int64_t)cut - 1;
    if (ledger_truncate(&f->ledger, cut) != 0)
        return;
    ledger_model_cut(&f->model, cut);
    for (int i = 0; i < 4; i++) {
        if (append(f, 2, 2, sizes[9 - i], 10, 2) != 0)
            return;
        *sure = f->model.count;
    }
    *durable = sync_all(f);
}

/* Opens after a crash and compares: at least `least` entries, and none but those of the model. */
static void check_survivors(struct fixture *f, size_t least)
{
    must_open(f);
    size_t count = (size_t)(f->ledger.last_index + 1);
    ck_assert_msg(count >= least, "%zu entries instead of at least %zu", count, least);
    ck_assert_uint_le(count, f->model.count);
    ledger_model_cut(&f->model, count);
    must_equal(f);
}

/* L12: also in the middle of a cut over several segments: no gap, no entry that the model does not have. */
START_TEST(test_crash_at_each_call)
{
    bool power = (_i & 1) != 0, class_b = (_i & 2) != 0;
    bool crashed = true;
    for (uint64_t n = 1; crashed; n++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            struct fixture *f = fixture_new(n * 3 + seed, class_b);
            size_t sure = 0;
            int64_t durable = -1;
            sim_env_kill_at(&f->sim, SIM_CHANGES, n);
            if (try_open(f) == 0)
                scenario(f, &sure, &durable);
            crashed = f->sim.dead;
            if (power)
                sim_env_power_cut(&f->sim);
            close_ledger(f);
            sim_env_restart(&f->sim);
            check_survivors(f, power ? (size_t)(durable + 1) : sure);
            /* It goes on from there. */
            ck_assert_int_eq(append(f, 9, 5, 3000, -1, 3), 0);
            must_equal(f);
            fixture_free(f);
        }
    }
}
END_TEST

/* A crash inside the recovery from a crash. */
START_TEST(test_crash_while_opening)
{
    bool first_power = (_i & 1) != 0, second_power = (_i & 2) != 0;
    for (uint64_t seed = 1; seed < 40; seed++) {
        bool crashed = true;
        for (uint64_t n = 1; crashed; n++) {
            struct fixture *f = fixture_new(seed, true);
            size_t sure = 0;
            int64_t durable = -1;
            f->sim.writeback_per_mille = 100;
            must_open(f);
            sim_env_kill_at(&f->sim, SIM_CHANGES, 20 + seed);
            scenario(f, &sure, &durable);
            if (first_power)
                sim_env_power_cut(&f->sim);
            else
                sim_env_kill(&f->sim);
            close_ledger(f);
            sim_env_restart(&f->sim);
            sim_env_kill_at(&f->sim, SIM_CHANGES, n);
            size_t least = first_power ? (size_t)(durable + 1) : sure;
            if (try_open(f) == 0) {
                ck_assert_int_ge(f->ledger.last_index + 1, (int64_t)least);
                least = (size_t)f->ledger.last_index + 1; /* class B: durable when open returns */
                close_ledger(f);
            }
            crashed = f->sim.dead;
            if (second_power)
                sim_env_power_cut(&f->sim);
            sim_env_restart(&f->sim);
            if (second_power && (int64_t)least > durable + 1 && crashed)
                least = (size_t)(durable + 1);
            check_survivors(f, least);
            fixture_free(f);
        }
    }
}
END_TEST

/* ---- errors ---- */

/* EIO at each call: refused or final, named, and never a wrong log afterwards. */
START_TEST(test_error_at_each_call)
{
    bool class_b = _i != 0;
    bool hit = true;
    int finals = 0;
    for (uint64_t n = 1; hit; n++) {
        struct fixture *f = fixture_new(n, class_b);
        size_t sure = 0;
        int64_t durable = -1;
        sim_env_fail_at(&f->sim, SIM_CHANGES | SIM_OPEN | SIM_MAP | SIM_READ | SIM_LIST, n, EIO, false);
        if (try_open(f) != 0) {
            ck_assert_int_eq(f->error.code, ERROR_IO);
            ck_assert_ptr_nonnull(strstr(f->error.message, "Input/output error"));
        } else {
            scenario(f, &sure, &durable);
            if (f->ledger.failed) {
                finals++;
                ck_assert_int_eq(f->ledger.failure.code, ERROR_IO);
                ck_assert_msg(strstr(f->ledger.failure.message, "Input/output error") != NULL, "%s", f->ledger.failure.message);
                ck_assert_msg(strstr(f->ledger.failure.message, DIR) != NULL, "%s", f->ledger.failure.message);
                struct ledger_sync sync;
                struct ledger_reservation job;
                ck_assert(!ledger_sync_next(&f->ledger, &sync) && !ledger_reservation_next(&f->ledger, &job));
                size_t before = f->model.count;
                ck_assert_int_eq(append(f, 1, 9, 1, -1, 1), ERROR_IO);
                ledger_model_cut(&f->model, before);
                ck_assert_int_eq(ledger_truncate(&f->ledger, 0), ERROR_IO);
            }
        }
        hit = f->sim.fault.calls == 0;
        close_ledger(f);
        f->sim.fault.calls = 0;
        check_survivors(f, sure);
        fixture_free(f);
    }
    ck_assert_int_gt(finals, 10);
}
END_TEST

/* A disk of every size: what does not fit is refused and changes nothing; with room it goes on. */
START_TEST(test_full_disk)
{
    bool class_b = _i != 0;
    int refused = 0;
    for (uint64_t pages = 0; pages < 40; pages++) {
        struct fixture *f = fixture_new(pages, class_b);
        f->sim.disk_bytes = pages == 0 ? 1 : pages * SIM_PAGE;
        must_open(f); /* want of room is no reason not to start */
        for (int i = 0; i < 40; i++) {
            uint64_t digest = sim_env_digest(&f->sim, DIR "/data/00000000000000000000");
            int rv = append(f, 2, 1, 1500, -1, 1);
            ck_assert(rv == 0 || rv == ERROR_NO_SPACE);
            if (rv != 0) {
                refused++;
                ck_assert(!f->ledger.failed);
                ck_assert_int_eq(f->ledger.reserve_result, -ENOSPC);
                ck_assert_uint_eq(sim_env_digest(&f->sim, DIR "/data/00000000000000000000"), digest);
                must_equal(f);
                struct ledger_reservation job;
                while (ledger_reservation_next(&f->ledger, &job)) {
                    ledger_reservation_run(&job);
                    ledger_reservation_done(&f->ledger, &job);
                }
                ck_assert(!f->ledger.failed);
                f->sim.clock->monotonic_us += 1000000;
                if (i % 2 == 0)
                    f->sim.disk_bytes += 2 * SIM_PAGE;
            }
        }
        sync_all(f);
        must_equal(f);
        f->sim.disk_bytes = f->sim.used_bytes;
        close_ledger(f);
        must_open(f);
        must_equal(f);
        f->sim.disk_bytes = 0;
        reserve_ahead(f);
        ck_assert_int_eq(append(f, 30, 1, 1000, -1, 1), 0);
        ck_assert_int_eq(f->ledger.reserve_result, 0);
        must_equal(f);
        fixture_free(f);
    }
    ck_assert_int_gt(refused, 20);
}
END_TEST

/* Room for the index alone was lacking, and then it is there. No want of room for entries comes afterwards to say that this is over. */
START_TEST(test_full_disk_of_the_index)
{
    struct fixture *f = fixture_new(1, _i != 0);
    struct ledger_reservation job = {0};

    must_open(f);
    for (int i = 0; i < 2000 && !job.index; i++) {
        ck_assert_int_eq(append(f, 1, 1, 20, -1, 1), 0);
        job.index = false;
        while (ledger_reservation_next(&f->ledger, &job)) {
            f->sim.disk_bytes = job.index && i > 100 ? f->sim.used_bytes : 0;
            ledger_reservation_run(&job);
            ledger_reservation_done(&f->ledger, &job);
            if (i <= 100)
                job.index = false;
        }
    }
    ck_assert(job.index);
    ck_assert_int_eq(f->ledger.reserve_result, -ENOSPC);
    f->sim.disk_bytes = 0;
    f->sim.clock->monotonic_us += 1000000;
    reserve_ahead(f);
    ck_assert_int_eq(f->ledger.reserve_result, 0);
    fixture_free(f);
}
END_TEST

/* No more descriptors, from the n-th call on that needs one: refused like a full disk, and it goes on when there are some. */
START_TEST(test_no_descriptors)
{
    int refused = 0;
    for (uint64_t n = 1; n < 12; n++) {
        struct fixture *f = fixture_new(n, _i != 0);
        must_open(f);
        ck_assert_int_eq(append(f, 2, 1, 1500, -1, 1), 0);
        sim_env_fail_at(&f->sim, SIM_OPEN | SIM_MAP, n, EMFILE, true);
        int rv = 0;
        for (int i = 0; rv == 0 && i < 400; i++)
            rv = append(f, 2, 1, 1500, -1, 1);
        ck_assert(rv == 0 || rv == ERROR_NO_SPACE);
        ck_assert_msg(!f->ledger.failed, "%s", f->ledger.failure.message);
        if (rv != 0) {
            refused++;
            ck_assert_int_eq(f->ledger.reserve_result, -EMFILE);
        }
        must_equal(f);
        f->sim.fault.calls = 0;
        f->sim.clock->monotonic_us += 1000000;
        reserve_ahead(f);
        ck_assert_int_eq(append(f, 30, 1, 1000, -1, 1), 0);
        ck_assert_int_eq(f->ledger.reserve_result, 0);
        must_equal(f);
        close_ledger(f);
        must_open(f);
        must_equal(f);
        fixture_free(f);
    }
    ck_assert_int_ge(refused, 3);
}
END_TEST

/* ---- damage ---- */

/* Flips one bit at position, opens, expects rv; the disk must be as before then. */
static void flip_and_open(struct fixture *f, uint64_t position, uint8_t bits, int want)
{
    uint64_t offset = position % SEGMENT;
    sim_env_corrupt(&f->sim, segment_path(position - offset), offset, bits);
    /* Of the data: an index file that was being made may go. */
    uint64_t digest = sim_env_digest(&f->sim, DIR "/data");
    int rv = try_open(f);
    ck_assert_msg(rv == want, "flip at %llu: %d instead of %d, %s", (unsigned long long)position, rv, want, rv == 0 ? "" : f->error.message);
    if (want == ERROR_DAMAGED) {
        ck_assert_uint_eq(sim_env_digest(&f->sim, DIR "/data"), digest);
        ck_assert_msg(strstr(f->error.message, segment_path(position - offset)) != NULL, "%s", f->error.message);
        ck_assert_msg(strstr(f->error.message, "offset ") != NULL && strstr(f->error.message, "move ") != NULL, "%s", f->error.message);
        sim_env_corrupt(&f->sim, segment_path(position - offset), offset, bits);
    }
}

/* L26: an error, and not the log's end. Same boot, no checkpoint: a bad entry with valid ones behind it is damage, wherever it is bad. */
START_TEST(test_damage_in_the_middle)
{
    struct fixture *f = thirty_entries(true);
    close_ledger(f);
    for (size_t i = 0; i < 29; i += 3) {
        uint64_t position = f->model.entries[i].position;
        for (uint64_t at = 0; at < 48; at++)
            flip_and_open(f, position + at, (uint8_t)(1u << at % 8), ERROR_DAMAGED);
        flip_and_open(f, position + 48, 1, ERROR_DAMAGED);
        flip_and_open(f, position + f->model.entries[i].size - 1, 0x80, ERROR_DAMAGED);
    }
    /* Fillers. */
    int fillers = 0;
    for (size_t i = 0; i + 1 < 30; i++) {
        uint64_t end = f->model.entries[i].position + f->model.entries[i].size;
        if (f->model.entries[i + 1].position == end)
            continue;
        fillers++;
        for (uint64_t at = 0; at < 8; at++)
            flip_and_open(f, end + at, 0x11, ERROR_DAMAGED);
    }
    ck_assert_int_ge(fillers, 2);
    must_open(f);
    must_equal(f);
    fixture_free(f);
}
END_TEST

/* The last entry: a torn write and cut when nothing says that it was committed; damage when the checkpoint does. */
START_TEST(test_damage_at_the_end)
{
    for (uint64_t at = 0; at < 60; at++) {
        for (int variant = 0; variant < 4; variant++) {
            bool reboot = (variant & 1) != 0, claimed = (variant & 2) != 0;
            struct fixture *f = thirty_entries(true);
            take_checkpoint(f, claimed ? 29 : 28);
            close_ledger(f);
            if (reboot) {
                sim_env_power_cut(&f->sim);
                sim_env_restart(&f->sim);
            }
            flip_and_open(f, f->model.entries[29].position + at, 0x21, claimed ? ERROR_DAMAGED : 0);
            if (claimed) {
                must_open(f);
            } else {
                ck_assert(f->recovery.cut);
                ck_assert_uint_ge(f->recovery.bytes_cut, f->model.entries[29].size);
                ledger_model_cut(&f->model, 29);
            }
            must_equal(f);
            fixture_free(f);
        }
    }
}
END_TEST

/* After a reboot a hole above the checkpoint is what a power cut leaves: cut, but what the entries behind it say about commits is reported. */
START_TEST(test_hole_after_reboot)
{
    for (int class_b = 0; class_b < 2; class_b++) {
        struct fixture *f = thirty_entries(class_b != 0);
        take_checkpoint(f, 12);
        close_ledger(f);
        sim_env_power_cut(&f->sim);
        sim_env_restart(&f->sim);
        flip_and_open(f, f->model.entries[20].position + 100, 0x21, 0);
        ck_assert(f->recovery.cut);
        ck_assert_int_eq(f->recovery.claim_index, 27); /* entry 29 says so */
        ledger_model_cut(&f->model, 20);
        must_equal(f);
        ck_assert_int_eq(append(f, 10, 9, 1000, 5, 2), 0);
        close_ledger(f);
        must_open(f); /* nothing of the old tail is left to confuse a start in the same boot */
        must_equal(f);
        ck_assert(!f->recovery.cut);
        sync_all(f);
        /* At or below the checkpoint's claim it is damage in any boot. */
        take_checkpoint(f, 12);
        close_ledger(f);
        sim_env_power_cut(&f->sim);
        sim_env_restart(&f->sim);
        flip_and_open(f, f->model.entries[12].position + 60, 0x21, ERROR_DAMAGED);
        f->checkpoint.committed_chain ^= 1; /* a checkpoint that does not match makes all be verified */
        flip_and_open(f, f->model.entries[3].position + 60, 0x21, ERROR_DAMAGED);
        must_open(f);
        ck_assert_uint_eq(f->recovery.entries_checked, 30);
        must_equal(f);
        fixture_free(f);
    }
}
END_TEST

/* Damage far before the checkpoint's entry, whose index unit is lost: where that entry ends stays known, so the next checkpoint says no less, and
 * what follows can be cut. */
START_TEST(test_damage_before_a_lost_unit)
{
    static const uint8_t none[32 * 21];
    struct fixture *f = thirty_entries(true);
    uint64_t position, term;
    uint32_t size;
    take_checkpoint(f, 20);
    ck_assert_int_eq(f->checkpoint.committed_index, 20);
    struct checkpoint before = f->checkpoint;
    ck_assert(ledger_locate(&f->ledger, 7, &position, &size, &term));
    close_ledger(f);
    sim_env_put(&f->sim, DIR "/index/00000000000000000000", 0, none, sizeof none);
    must_open(f);
    sim_env_corrupt(&f->sim, segment_path(position / SEGMENT * SEGMENT), position % SEGMENT + 5, 1);
    take_checkpoint(f, 20);
    ck_assert_int_eq(f->checkpoint.committed_index, 20);
    ck_assert_uint_eq(f->checkpoint.committed_end_position, before.committed_end_position);
    ck_assert_uint_eq(f->checkpoint.committed_chain, before.committed_chain);
    ck_assert_uint_eq(f->checkpoint.committed_term, before.committed_term);
    ck_assert_int_eq(ledger_truncate(&f->ledger, 21), 0);
    ck_assert_uint_eq(f->ledger.end_position, before.committed_end_position);
    ck_assert_uint_eq(f->ledger.last_term, before.committed_term);
    /* At the next start nothing of it is taken for an interrupted write. */
    close_ledger(f);
    must_open(f);
    ck_assert_int_eq(f->ledger.last_index, 20);
    ck_assert(!f->recovery.cut && !f->recovery.lost);
    fixture_free(f);
}
END_TEST

/* A page of the index that is read again with other bytes, in a member that runs: entries are found without their units, the ones that were written in this
 * run like older ones. */
START_TEST(test_index_units_change)
{
    for (int class_b = 0; class_b < 2; class_b++) {
        struct fixture *f = thirty_entries(class_b != 0);
        uint8_t units[30 * 32], *unit;
        uint64_t size;
        memcpy(units, sim_env_bytes(&f->sim, DIR "/index/00000000000000000000", &size), sizeof units);
        for (uint32_t i = 0; i < 30; i++) {
            unit = units + i * 32ul;
            switch (_i) {
            case 0: /* never written */
                memset(unit, 0, 32);
                break;
            case 1: /* something else */
                memset(unit, 0xA5, 32);
                break;
            case 2: /* units of other entries */
                store_u64(unit + 4, f->model.entries[(i + 1) % 30].position);
                store_u32(unit + 12, f->model.entries[(i + 1) % 30].size);
                store_u64(unit + 16, (i + 1) % 30);
                break;
            default: /* of an entry with this index that was cut */
                store_u64(unit + 4, f->model.entries[i].position + (i % 2 == 0 ? 8 : SEGMENT));
                store_u64(unit + 24, 1);
                store_u32(unit + 12, 48);
            }
        }
        sim_env_put(&f->sim, DIR "/index/00000000000000000000", 0, units, sizeof units);
        must_equal(f);
        take_checkpoint(f, 15);
        ck_assert_int_eq(f->checkpoint.committed_index, 15);
        ck_assert_int_eq(ledger_truncate(&f->ledger, 18), 0); /* segments go */
        ledger_model_cut(&f->model, 18);
        must_equal(f);
        ck_assert_int_eq(append(f, 8, 7, 3000, 16, 5), 0);
        must_equal(f);
        sync_all(f);
        close_ledger(f);
        must_open(f);
        must_equal(f);
        ck_assert(!f->recovery.cut && !f->recovery.lost);
        fixture_free(f);
    }
}
END_TEST

/* Unit and header of an entry are gone both: what asks where a segment's last entry is does without. */
START_TEST(test_unit_and_header_change)
{
    static const uint8_t none[48];
    for (int cut = 0; cut < 2; cut++) {
        struct fixture *f = thirty_entries(false);
        uint64_t end;
        uint32_t chain;
        ck_assert_int_eq(append(f, 12, 4, 9000, 20, 3), 0); /* a segment each, more than one sync takes */
        for (size_t i = 30; i < 42; i++) {
            uint64_t position = f->model.entries[i].position;
            sim_env_put(&f->sim, segment_path(position / SEGMENT * SEGMENT), position % SEGMENT, none, sizeof none);
            sim_env_put(&f->sim, DIR "/index/00000000000000000000", i * 32, none, 32);
        }
        if (cut == 0) {
            ck_assert_int_eq(sync_all(f), 41);
        } else {
            ck_assert(ledger_end_of(&f->ledger, 25, &end, &chain));
            ck_assert_int_eq(ledger_truncate(&f->ledger, 26), 0);
            ledger_model_cut(&f->model, 26);
            must_equal(f);
        }
        fixture_free(f);
    }
}
END_TEST

START_TEST(test_missing_files)
{
    struct fixture *f = thirty_entries(true);
    reserve_ahead(f);
    take_checkpoint(f, 29);
    close_ledger(f);
    /* The newest segment with entries and the one made ahead of need. */
    for (uint64_t start = 4 * SEGMENT; start >= SEGMENT; start -= SEGMENT) {
        if (sim_env_exists(&f->sim, segment_path(start)))
            sim_env_remove(&f->sim, segment_path(start));
    }
    uint64_t digest = sim_env_digest(&f->sim, "/");
    ck_assert_int_eq(try_open(f), ERROR_DAMAGED);
    ck_assert_uint_eq(sim_env_digest(&f->sim, "/"), digest);
    sim_env_remove(&f->sim, segment_path(0));
    ck_assert_int_eq(try_open(f), ERROR_DAMAGED);
    ck_assert_msg(strstr(f->error.message, "29") != NULL, "%s", f->error.message);
    fixture_free(f);
}
END_TEST

static int note_cut(void *context, struct error *error)
{
    (void)error;
    *(bool *)context = true;
    return 0;
}

/* V1: the newest segment has its name and no bytes. Behind one that is not full it was never used, and goes. Behind a full one its entries are lost: a member
 * that has others knows it, and one that has none is not opened. */
START_TEST(test_newest_segment_of_no_bytes)
{
    const bool class_b = _i & 1, members = _i & 2, two = _i & 4;
    bool told = false;
    const struct ledger_repairs repairs = {&told, note_cut};
    for (uint64_t last = 0; last < 2; last++) {
        struct fixture *f = thirty_entries(class_b);
        struct env_file *file;
        uint64_t at = f->ledger.end_position - f->ledger.end_position % SEGMENT + SEGMENT * (1 - last);
        while (last == 1 && f->model.count > 0 && f->model.entries[f->model.count - 1].position >= at)
            ledger_model_cut(&f->model, f->model.count - 1);
        close_ledger(f);
        for (uint64_t start = at; start <= at + SEGMENT * (two ? 2 : 0); start += SEGMENT) {
            ck_assert_int_eq(env_open(&f->sim.env, segment_path(start), ENV_WRITE | ENV_CREATE, &file), 0);
            ck_assert_int_eq(f->sim.env.ops->truncate(&f->sim.env, file, 0), 0);
            env_close(&f->sim.env, file);
        }
        uint64_t digest = sim_env_digest(&f->sim, "/");
        int rv = ledger_open(&f->ledger, &f->sim.env, DIR, SEGMENT, INDEX_FILE, class_b, &f->checkpoint, true, members ? &repairs : NULL, &f->recovery, &f->error);
        f->open = rv == 0;
        if (last == 1 && !members) {
            ck_assert_int_eq(rv, ERROR_DAMAGED);
            ck_assert_ptr_nonnull(strstr(f->error.message, strrchr(segment_path(at), '/')));
            ck_assert_uint_eq(sim_env_digest(&f->sim, "/"), digest);
        } else {
            ck_assert_msg(rv == 0, "%s", f->error.message);
            ck_assert_int_eq(f->recovery.lost, last);
            ck_assert_int_eq(told, last);
            ck_assert(!sim_env_exists(&f->sim, segment_path(at + SEGMENT)));
            must_equal(f);
            /* It is made anew when its turn comes. */
            for (int i = 0; i < 40; i++)
                ck_assert_int_eq(append(f, 1, 4, 1500, -1, 2), 0);
            sync_all(f);
            close_ledger(f);
            must_open(f);
            must_equal(f);
        }
        fixture_free(f);
    }
}
END_TEST

/* ---- everything, by chance ---- */

struct life {
    struct fixture *f;
    int64_t committed; /* never cut below */
    int64_t durable;
    uint64_t term;
    struct ledger_sync sync;
    bool sync_out;
    bool cut_short; /* the process died in a cut */
    struct ledger_reservation job;
};

static uint64_t pick(struct life *life, uint64_t below)
{
    return sim_env_chance(&life->f->sim, below);
}

static void finish_sync(struct life *life)
{
    ledger_sync_run(&life->sync);
    life->durable = ledger_sync_done(&life->f->ledger, &life->sync);
    life->sync_out = false;
}

static void finish_job(struct life *life)
{
    ledger_reservation_run(&life->job);
    ledger_reservation_done(&life->f->ledger, &life->job);
}

/* One step; false when the ledger failed in it. least: entries that must be there if the process dies in it. */
static bool step(struct life *life, size_t *least)
{
    struct fixture *f = life->f;
    struct ledger *ledger = &f->ledger;
    size_t count = f->model.count;
    *least = count;
    switch (pick(life, 12)) {
    case 0:
        if (!life->sync_out)
            life->sync_out = ledger_sync_next(ledger, &life->sync);
        break;
    case 1:
    case 2:
        if (life->sync_out)
            finish_sync(life);
        break;
    case 3:
        if (!ledger->reserving)
            ledger_reservation_next(ledger, &life->job);
        break;
    case 4:
        if (ledger->reserving)
            finish_job(life);
        break;
    case 5:
        if ((int64_t)count - 1 > life->committed) {
            size_t cut = (size_t)(life->committed + 1) + pick(life, count - (size_t)(life->committed + 1));
            *least = cut;
            if (life->durable >= (int64_t)cut)
                life->durable = (int64_t)cut - 1;
            life->term++;
            life->cut_short = ledger_truncate(ledger, cut) != 0;
            if (!life->cut_short)
                ledger_model_cut(&f->model, cut);
        }
        break;
    case 6:
        if ((int64_t)count - 1 > life->committed)
            life->committed += 1 + (int64_t)pick(life, (uint64_t)((int64_t)count - 1 - life->committed));
        break;
    case 7:
        take_checkpoint(f, life->committed);
        break;
    default: {
        size_t n = 1 + pick(life, 6);
        for (size_t i = 0; i < n; i++)
            ledger_model_add(&f->model, life->term, (uint32_t)pick(life, pick(life, 4) == 0 ? 16000 : 600), life->committed, (uint32_t)pick(life, 1000));
        size_t size;
        const uint8_t *run = ledger_model_run(&f->model, count, n, &size);
        ck_assert_int_eq(ledger_check_run(ledger, run, size, (uint32_t)n, count, ledger->last_term, ledger->end_position, ledger->last_chain,
                                          life->term, &f->error), 0);
        ledger_append(ledger, run, size, (uint32_t)n);
        break;
    }
    }
    return !ledger->failed;
}

static void one_life(uint64_t seed)
{
    struct fixture *f = fixture_new(seed, seed % 2 == 0);
    struct life life = {.f = f, .committed = -1, .durable = -1, .term = 1};
    if (seed % 3 == 0)
        f->sim.writeback_per_mille = 50;
    must_open(f);
    for (int generation = 0; generation < 5; generation++) {
        size_t least = f->model.count;
        if (pick(&life, 3) != 0)
            sim_env_kill_at(&f->sim, SIM_CHANGES, 1 + pick(&life, 60));
        int steps = (int)pick(&life, 60);
        while (steps-- > 0 && step(&life, &least))
            ;
        if (!f->ledger.failed && !f->sim.dead) {
            must_equal(f);
            least = f->model.count;
        }
        /* A clean stop, whose mark stays on the disk until the next checkpoint. */
        if (!f->ledger.failed && !f->sim.dead && pick(&life, 4) == 0) {
            f->sim.fault.calls = 0;
            if (life.sync_out)
                finish_sync(&life);
            if (f->ledger.reserving)
                finish_job(&life);
            life.committed = (int64_t)f->model.count - 1;
            life.durable = sync_all(f);
            take_checkpoint(f, life.committed);
            f->checkpoint.clean = true;
            if (pick(&life, 2) == 0)
                sim_env_power_cut(&f->sim);
            close_ledger(f);
            sim_env_restart(&f->sim);
            must_open(f);
            must_equal(f);
            ck_assert(!f->recovery.cut);
            continue;
        }
        bool power = pick(&life, 2) == 0;
        if (power)
            sim_env_power_cut(&f->sim);
        else if (pick(&life, 2) == 0)
            sim_env_kill(&f->sim);
        if (life.sync_out) {
            ledger_sync_run(&life.sync);
            ledger_sync_done(&f->ledger, &life.sync); /* -EIO: the process is dead; its result counts for nothing */
            life.sync_out = false;
        }
        if (f->ledger.reserving)
            finish_job(&life);
        close_ledger(f);
        sim_env_restart(&f->sim);
        if (power)
            least = (size_t)(life.durable + 1) < least ? (size_t)(life.durable + 1) : least;
        /* Sometimes the start itself is cut short. */
        if (pick(&life, 3) == 0) {
            sim_env_kill_at(&f->sim, SIM_CHANGES, 1 + pick(&life, 20));
            try_open(f);
            bool again = pick(&life, 2) == 0;
            if (again) {
                sim_env_power_cut(&f->sim);
                least = (size_t)(life.durable + 1) < least ? (size_t)(life.durable + 1) : least;
            }
            close_ledger(f);
            sim_env_restart(&f->sim);
        }
        check_survivors(f, least);
        /* A cut that a kill interrupted is not durable in class A until something behind it is: a power cut may bring the old entries back, which
         * nobody was told were gone. The model knows one log only, so it is made durable here. */
        if (life.cut_short && !f->class_b)
            ck_assert_int_eq(env_sync(&f->sim.env, mapped_file_queue_find(&f->ledger.data, f->ledger.end_position)->file), 0);
        life.cut_short = false;
        if (life.committed > f->ledger.last_index)
            life.committed = f->ledger.last_index;
        life.durable = f->ledger.synced_index;
    }
    fixture_free(f);
}

START_TEST(test_lives)
{
    for (uint64_t seed = (uint64_t)_i * 100; seed < (uint64_t)_i * 100 + 100; seed++) {
        if (getenv("LEDGER_TEST_VERBOSE") != NULL)
            fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        one_life(seed);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ledger_faults");
    TCase *tcase = tcase_create("ledger_faults");
    tcase_set_timeout(tcase, 240);
    tcase_add_loop_test(tcase, test_crash_at_each_call, 0, 4);
    tcase_add_loop_test(tcase, test_crash_while_opening, 0, 4);
    tcase_add_loop_test(tcase, test_error_at_each_call, 0, 2);
    tcase_add_loop_test(tcase, test_full_disk, 0, 2);
    tcase_add_loop_test(tcase, test_full_disk_of_the_index, 0, 2);
    tcase_add_loop_test(tcase, test_no_descriptors, 0, 2);
    tcase_add_test(tcase, test_damage_in_the_middle);
    tcase_add_test(tcase, test_damage_at_the_end);
    tcase_add_test(tcase, test_hole_after_reboot);
    tcase_add_test(tcase, test_damage_before_a_lost_unit);
    tcase_add_loop_test(tcase, test_index_units_change, 0, 4);
    tcase_add_test(tcase, test_unit_and_header_change);
    tcase_add_test(tcase, test_missing_files);
    tcase_add_loop_test(tcase, test_newest_segment_of_no_bytes, 0, 8);
    tcase_add_loop_test(tcase, test_lives, 0, 20);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
