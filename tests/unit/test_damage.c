/* Seeded damage to every file that a member keeps of its own: whatever is answered afterwards is what was written. MODE=full does 100,000 and more
 * (tests/unit/seeded_damage). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dledger/metadata_snapshot.h"
#include "dledger/vote_file.h"
#include "store/log_sink.h"
#include "tests/lib/damage_count.h"
#include "tests/lib/ledger_fixture.h"
#include "tests/lib/run_suite.h"

#define ENTRIES 30
#define COMMITTED 27

static uint64_t rounds(uint64_t normal, uint64_t full)
{
    const char *mode = getenv("MODE");
    return mode != NULL && strcmp(mode, "full") == 0 ? full : normal;
}

static void be_quiet(void *context, enum log_level level, const char *text)
{
    (void)context, (void)level, (void)text;
}

/* True: it was another one. */
static bool set_byte(struct sim_env *sim, const char *path, uint64_t at, uint8_t want)
{
    uint64_t size;
    uint8_t bits = sim_env_bytes(sim, path, &size)[at] ^ want;
    sim_env_corrupt(sim, path, at, bits);
    return bits != 0;
}

/* Behind the last entry of a segment, and its filler, nobody reads. */
static uint64_t filled(struct sim_env *sim, const char *path)
{
    uint64_t size;
    const uint8_t *bytes = sim_env_bytes(sim, path, &size);
    while (size > 1 && bytes[size - 1] == 0)
        size--;
    return size;
}

/* One kind of damage somewhere in the first `used` bytes. True: one bit. */
static bool spoil(struct sim_env *sim, const char *path, uint64_t used, struct damage_count *count)
{
    bool changed = false;
    uint64_t kind = sim_env_chance(sim, 10);
    uint64_t at = sim_env_chance(sim, used), size;
    uint64_t length = 1 + sim_env_chance(sim, kind == 9 ? 4096 : 512);
    const uint8_t *bytes = sim_env_bytes(sim, path, &size);

    if (kind < 6) {
        sim_env_corrupt(sim, path, at, (uint8_t)(1u << sim_env_chance(sim, 8)));
        changed = true;
    } else if (kind < 8) {
        for (uint64_t i = at; i < at + length && i < used; i++)
            changed |= set_byte(sim, path, i, 0);
    } else { /* a block that belongs elsewhere */
        uint64_t from = sim_env_chance(sim, used);
        for (uint64_t i = 0; i < length && at + i < used && from + i < used; i++)
            changed |= set_byte(sim, path, at + i, bytes[from + i]);
    }
    if (changed)
        damage_count_add(count, kind < 6);
    return kind < 6;
}

static int note_cut(void *context, struct error *error)
{
    (void)error;
    *(bool *)context = true;
    return 0;
}

/* What replica_repair.c does, with the model as the other member. */
static void mend(struct fixture *f)
{
    struct ledger *ledger = &f->ledger;
    for (int tries = 0; ledger->hole_count > 0; tries++) {
        struct ledger_hole *hole = &ledger->holes[0];
        uint64_t first = hole->first, term;
        uint64_t anchor = ledger_hole_anchor(ledger, hole, &term);
        ck_assert_int_lt(tries, 300);
        int rv = ERROR_DAMAGED;
        if (f->model.entries[anchor].term == term) {
            size_t size, count = 1 + (size_t)sim_env_chance(&f->sim, anchor - first + 1);
            const uint8_t *run = ledger_model_run(&f->model, (size_t)first, count, &size);
            rv = ledger_repair(ledger, first, run, size, (uint32_t)count, &f->error);
        } else if ((int64_t)hole->last + 1 < ledger->last_index) {
            ledger_distrust_anchor(ledger, first);
            rv = 0;
        }
        if (rv == ERROR_DAMAGED && ledger->holes[0].first == first && (int64_t)ledger->holes[0].last + 1 >= ledger->last_index) {
            ck_assert_int_eq(ledger_truncate(ledger, first), 0); /* and forgot */
            f->recovery.lost = true;
        }
    }
}

/* What kind of entry the first one of a trimmed log is, and what was committed when it was appended, nothing else tells: that alone may stay wrong. */
static bool forgive_channel(struct fixture *f)
{
    const struct model_entry *want = &f->model.entries[f->ledger.begin_index];
    const char *path = segment_path(want->position - want->position % SEGMENT);
    bool differs = false;
    uint64_t size;
    for (uint64_t at = want->position % SEGMENT + 32, i = 32; i < 36; i++, at++) {
        differs |= sim_env_bytes(&f->sim, path, &size)[at] != f->model.bytes[want->at + i];
        set_byte(&f->sim, path, at, f->model.bytes[want->at + i]);
    }
    return differs;
}

/* Also V2: zeros at any place near the end of a segment. */
START_TEST(test_log)
{
    struct damage_count segments = {0}, index = {0};
    uint64_t count = rounds(3000, 60000), cut = 0, mended = 0, forgiven = 0;
    for (uint64_t seed = 1; seed <= count; seed++) {
        struct fixture *f = thirty_entries(seed % 2 == 0);
        struct ledger_model shorter;
        bool only_bits = true;
        f->sim.chance = f->sim.chance + seed * 0x9E3779B97F4A7C15u;
        if (seed % 3 == 0)
            take_checkpoint(f, (int64_t)sim_env_chance(&f->sim, COMMITTED + 1));
        uint64_t used = f->ledger.end_position, begin = 0;
        /* The log's beginning was deleted: what has its place is often what is hit. */
        bool trimmed = seed % 5 < 2;
        if (trimmed) {
            ck_assert_int_eq(ledger_trim(&f->ledger, SEGMENT, &f->error), 0);
            begin = SEGMENT;
            take_checkpoint(f, f->ledger.begin_index + (int64_t)sim_env_chance(&f->sim, (uint64_t)(COMMITTED + 1 - f->ledger.begin_index)));
        }
        close_ledger(f);
        for (uint64_t n = 1 + sim_env_chance(&f->sim, 3); n > 0; n--) {
            uint64_t position = begin + sim_env_chance(&f->sim, trimmed && sim_env_chance(&f->sim, 2) == 0 ? 200 : used - begin);
            uint64_t start = position - position % SEGMENT;
            if (sim_env_chance(&f->sim, 8) == 0)
                spoil(&f->sim, DIR "/index/00000000000000000000", ENTRIES * 32, &index);
            else
                only_bits &= spoil(&f->sim, segment_path(start), position < begin + 200 && trimmed ? 200 : filled(&f->sim, segment_path(start)), &segments);
        }
        bool told = false;
        int64_t begin_index = f->checkpoint.begin_index;
        const struct ledger_repairs repairs = {&told, note_cut};
        int rv = ledger_open(&f->ledger, &f->sim.env, DIR, SEGMENT, INDEX_FILE, f->class_b, &f->checkpoint, true, &repairs, &f->recovery, &f->error);
        ck_assert_msg(rv == 0, "seed %llu: %s", (unsigned long long)seed, f->error.message);
        f->open = true;
        ck_assert_int_eq(told, f->recovery.lost);
        if (trimmed)
            ck_assert_int_eq(f->ledger.begin_index, begin_index);
        if (f->ledger.last_index >= 0)
            ledger_verify(&f->ledger, 0, (uint64_t)f->ledger.last_index, UINT64_MAX);
        mended += f->ledger.hole_count;
        bool again = seed % 4 < 2 && f->ledger.hole_count > 0;
        if (again)
            take_checkpoint(f, COMMITTED); /* while it is damaged */
        /* What is not in a hole is served, so it must be right. */
        for (int64_t i = f->ledger.begin_index; i <= f->ledger.last_index; i++) {
            struct ledger_entry entry;
            const uint8_t *bytes = ledger_entry(&f->ledger, (uint64_t)i, &entry);
            if (bytes == NULL)
                continue;
            /* A header alone between holes is proved when the hole before it is filled; its body is what its checksum says. */
            ck_assert(ledger_entry_body_ok(&entry, bytes + LEDGER_ENTRY_HEADER_SIZE));
        }
        mend(f);
        /* Zeros and foreign blocks at the very end can look like a torn write when no checkpoint tells more. */
        ck_assert_msg(f->ledger.last_index >= COMMITTED || f->recovery.lost || (!only_bits && !f->checkpoint.present), "seed %llu: %lld entries, and nobody knows", (unsigned long long)seed,
                      (long long)f->ledger.last_index + 1);
        if (trimmed)
            forgiven += forgive_channel(f);
        shorter = f->model;
        ledger_model_cut(&shorter, (size_t)(f->ledger.last_index + 1));
        cut += f->recovery.lost;
        const char *difference = ledger_model_difference(&shorter, &f->ledger);
        ck_assert_msg(difference == NULL, "seed %llu: %s", (unsigned long long)seed, difference);
        if (again && !f->recovery.lost) {
            close_ledger(f);
            must_open(f);
            difference = ledger_model_difference(&shorter, &f->ledger);
            if (f->ledger.terms.count > 0)
                ck_assert_uint_eq(f->ledger.terms.rows[0].first_index, (uint64_t)f->ledger.begin_index); /* Raft serves those from it who are far behind */
            ck_assert_msg(difference == NULL, "seed %llu, opened again: %s", (unsigned long long)seed, difference);
        }
        fixture_free(f);
    }
    ck_assert_uint_gt(mended, count / 2);
    ck_assert_uint_lt(cut, count / 4);
    ck_assert_uint_lt(forgiven, count / 100);
    damage_count_print(&segments, "log");
    damage_count_print(&index, "index of the log");
}
END_TEST

#define VOTE "/store/dledger-n0/vote"

/* Every bit of both slots, and seeded damage: the newest vote, or doubt. */
START_TEST(test_vote)
{
    struct damage_count done = {.flips = 2 * 36 * 8};
    uint64_t count = done.flips + rounds(2000, 20000);
    for (uint64_t seed = 0; seed < count; seed++) {
        struct sim_env sim;
        struct vote_file file;
        struct error error;
        sim_env_init(&sim, seed, NULL);
        ck_assert_int_eq(vote_file_open(&file, &sim.env, VOTE, &error), 0);
        for (uint64_t term = 1; term <= 5 + seed % 2; term++)
            ck_assert_int_eq(vote_file_save(&file, term, term % 3, &error), 0);
        uint64_t term = file.term;
        vote_file_close(&file);
        if (seed < 2 * 36 * 8)
            sim_env_corrupt(&sim, VOTE, seed / 8 % 36 + (seed / 8 / 36) * 4096, (uint8_t)(1u << seed % 8));
        else
            spoil(&sim, VOTE, seed % 3 == 0 ? 36 : 4096 + 36, &done);
        ck_assert_int_eq(vote_file_open(&file, &sim.env, VOTE, &error), 0);
        ck_assert(file.doubtful || (file.term == term && file.voted_for == term % 3));
        vote_file_close(&file);
        sim_env_close(&sim);
    }
    damage_count_print(&done, "vote");
}
END_TEST

#define CHECKPOINT "/checkpoint"

/* Every byte of both slots as far as they are used, and seeded damage: one of the two that were saved, whole, or none. */
START_TEST(test_checkpoint)
{
    static struct checkpoint saved[2], found;
    struct sim_env sim;
    struct error error;
    uint64_t size;
    sim_env_init(&sim, 7, NULL);
    for (int i = 0; i < 2; i++) {
        saved[i] = (struct checkpoint){.committed_index = 100 + i, .committed_term = 3, .committed_chain = 77u + (uint32_t)i, .snapshot_index = 50 + i,
                                       .incarnation = 9, .boot_id = 4, .term_count = 2, .terms = {{1, 0}, {3, 60}}, .forgot = i == 1};
        ck_assert_int_eq(checkpoint_save(&saved[i], &sim.env, CHECKPOINT, &error), 0);
    }
    uint8_t *bytes = sim_env_bytes(&sim, CHECKPOINT, &size);
    uint8_t *before = malloc(size);
    memcpy(before, bytes, size);
    uint64_t used = size / 2;
    while (used > 0 && bytes[used - 1] == 0 && bytes[size / 2 + used - 1] == 0)
        used--;
    struct damage_count done = {.flips = used * 2 * 8};
    uint64_t each = done.flips, count = each + rounds(2000, 20000);
    for (uint64_t seed = 0; seed < count; seed++) {
        if (seed < each)
            sim_env_corrupt(&sim, CHECKPOINT, seed / 8 % used + (seed / 8 / used) * (size / 2), (uint8_t)(1u << seed % 8));
        else
            spoil(&sim, CHECKPOINT, seed % 2 == 0 ? used : size / 2 + used, &done);
        ck_assert_int_eq(checkpoint_load(&found, &sim.env, CHECKPOINT, &error), 0);
        if (found.present) {
            const struct checkpoint *want = &saved[found.committed_index - 100 == 1];
            ck_assert_int_eq(found.committed_index, want->committed_index);
            ck_assert_uint_eq(found.committed_chain, want->committed_chain);
            ck_assert_int_eq(found.snapshot_index, want->snapshot_index);
            ck_assert_uint_eq(found.term_count, 2);
            ck_assert_int_eq(found.forgot, want->forgot);
        } else {
            ck_assert_uint_ge(seed, each); /* one byte never costs both */
        }
        for (uint64_t i = 0; i < size; i++) {
            if (bytes[i] != before[i])
                set_byte(&sim, CHECKPOINT, i, before[i]);
        }
    }
    free(before);
    sim_env_close(&sim);
    damage_count_print(&done, "checkpoint");
}
END_TEST

/* Every bit of both files, seeded damage, and files cut short: the newest that is as it was written. */
START_TEST(test_metadata)
{
    static const int64_t indexes[2] = {100, 150};
    struct damage_count done = {0};
    struct buffer files[2];
    char paths[2][64];
    struct sim_env sim;
    struct error error;
    sim_env_init(&sim, 8, NULL);
    ck_assert_int_eq(sim.env.ops->make_dir(&sim.env, "/d"), 0);
    for (int n = 0; n < 2; n++) {
        buffer_init(&files[n], 0);
        ck_assert_int_eq(metadata_snapshot_begin(&files[n], indexes[n]), 0);
        for (int i = 0; i < 400 + 300 * n; i++) {
            uint8_t byte = (uint8_t)(i % 5 == 0 ? 0 : sim_env_chance(&sim, 256));
            buffer_append(&files[n], &byte, 1);
        }
        ck_assert_int_eq(metadata_snapshot_end(&files[n]), 0);
        metadata_snapshot_path(&sim.env, "/d", n == 0 ? -1 : indexes[0], paths[n], sizeof paths[n]);
        ck_assert_int_eq(metadata_snapshot_write(&sim.env, paths[n], buffer_slice(&files[n]), &error), 0);
    }
    const uint64_t each = (files[0].size + files[1].size) * 8, count = each + rounds(2000, 20000);
    for (uint64_t seed = 0; seed < count; seed++) {
        const int n = seed < each ? seed >= files[0].size * 8 : (int)sim_env_chance(&sim, 2);
        struct env_file *handle;
        struct buffer body;
        int64_t found;
        if (seed < each) {
            uint64_t bit = n == 0 ? seed : seed - files[0].size * 8;
            sim_env_corrupt(&sim, paths[n], bit / 8, (uint8_t)(1u << bit % 8));
            done.flips++;
        } else if (seed % 8 != 0) {
            spoil(&sim, paths[n], files[n].size, &done);
        } else {
            ck_assert_int_eq(env_open(&sim.env, paths[n], ENV_WRITE, &handle), 0);
            ck_assert_int_eq(sim.env.ops->truncate(&sim.env, handle, sim_env_chance(&sim, files[n].size)), 0);
            env_close(&sim.env, handle);
            done.others++;
        }
        uint64_t size;
        const uint8_t *bytes = sim_env_bytes(&sim, paths[n], &size);
        const bool good = size == files[n].size && memcmp(bytes, files[n].data, size) == 0; /* zeros over zeros */
        const int want = n == 1 && !good ? 0 : 1;
        buffer_init(&body, 0);
        ck_assert_int_eq(metadata_snapshot_load(&sim.env, "/d", INT64_MAX, &body, &found, &error), 0);
        ck_assert_msg(found == indexes[want] && body.size == files[want].size - 28 && memcmp(body.data, files[want].data + 28, body.size) == 0,
                      "%llu: snapshot of entry %lld", (unsigned long long)seed, (long long)found);
        ck_assert(metadata_snapshot_both_reach(&sim.env, "/d", 0) == good);
        buffer_close(&body);
        ck_assert_int_eq(metadata_snapshot_write(&sim.env, paths[n], buffer_slice(&files[n]), &error), 0);
    }
    for (int n = 0; n < 2; n++)
        buffer_close(&files[n]);
    sim_env_close(&sim);
    damage_count_print(&done, "metadata snapshot");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("damage");
    TCase *tcase = tcase_create("damage");
    log_sink_set(be_quiet, NULL);
    tcase_set_timeout(tcase, 1200);
    tcase_add_test(tcase, test_log);
    tcase_add_test(tcase, test_vote);
    tcase_add_test(tcase, test_checkpoint);
    tcase_add_test(tcase, test_metadata);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
