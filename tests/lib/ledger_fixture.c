#include "tests/lib/ledger_fixture.h"

#include <stdio.h>
#include <stdlib.h>

struct fixture *fixture_new(uint64_t seed, bool class_b)
{
    struct fixture *f = calloc(1, sizeof *f);
    ck_assert_ptr_nonnull(f);
    sim_env_init(&f->sim, seed, NULL);
    ledger_model_init(&f->model, SEGMENT);
    f->checkpoint.committed_index = -1;
    f->class_b = class_b;
    return f;
}

int try_open(struct fixture *f)
{
    int rv = ledger_open(&f->ledger, &f->sim.env, DIR, SEGMENT, INDEX_FILE, f->class_b, &f->checkpoint, f->recorded_boot == f->sim.boot_id, NULL,
                         &f->recovery, &f->error);
    f->open = rv == 0;
    if (rv == 0)
        f->recorded_boot = f->sim.boot_id;
    else
        ck_assert_uint_eq(f->sim.open_files + f->sim.open_maps, 0);
    return rv;
}

void must_open(struct fixture *f)
{
    ck_assert_msg(try_open(f) == 0, "%s", f->error.message);
}

void close_ledger(struct fixture *f)
{
    if (f->open)
        ledger_close(&f->ledger);
    f->open = false;
    ck_assert_uint_eq(f->sim.open_files + f->sim.open_maps, 0);
}

void fixture_free(struct fixture *f)
{
    close_ledger(f);
    sim_env_close(&f->sim);
    ledger_model_close(&f->model);
    free(f);
}

void must_equal(struct fixture *f)
{
    const char *difference = ledger_model_difference(&f->model, &f->ledger);
    ck_assert_msg(difference == NULL, "%s", difference);
    ck_assert_uint_eq(sim_env_unreserved_pages(&f->sim), 0);
}

int append(struct fixture *f, size_t count, uint64_t term, uint32_t body_size, int64_t committed, uint32_t salt)
{
    size_t first = f->model.count, size;
    for (size_t i = 0; i < count; i++)
        ledger_model_add(&f->model, term, body_size, committed, salt);
    const uint8_t *run = ledger_model_run(&f->model, first, count, &size);
    int rv = ledger_append(&f->ledger, run, size, (uint32_t)count);
    if (rv == ERROR_NO_SPACE)
        ledger_model_cut(&f->model, first);
    return rv;
}

int64_t sync_all(struct fixture *f)
{
    struct ledger_sync sync;
    while (ledger_sync_next(&f->ledger, &sync)) {
        ledger_sync_run(&sync);
        ledger_sync_done(&f->ledger, &sync);
    }
    return f->ledger.synced_index;
}

void reserve_ahead(struct fixture *f)
{
    struct ledger_reservation job;
    while (ledger_reservation_next(&f->ledger, &job)) {
        ledger_reservation_run(&job);
        ledger_reservation_done(&f->ledger, &job);
    }
}

void take_checkpoint(struct fixture *f, int64_t committed)
{
    ledger_fill_checkpoint(&f->ledger, committed, &f->checkpoint);
    f->checkpoint.present = true;
    f->checkpoint.clean = false;
}

const char *segment_path(uint64_t start)
{
    static char path[100];
    snprintf(path, sizeof path, DIR "/data/%020llu", (unsigned long long)start);
    return path;
}

struct fixture *thirty_entries(bool class_b)
{
    struct fixture *f = fixture_new(5, class_b);
    must_open(f);
    for (int i = 0; i < 30; i++)
        ck_assert_int_eq(append(f, 1, 1 + (uint64_t)i / 10, 700 + (uint32_t)i * 40, i - 2, 1), 0);
    sync_all(f);
    return f;
}
