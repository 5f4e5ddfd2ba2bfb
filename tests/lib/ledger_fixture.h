/* A ledger on a machine in memory, next to the model of what it should hold. For Check programs. */
#ifndef LEDGERMQ_TESTS_LIB_LEDGER_FIXTURE_H
#define LEDGERMQ_TESTS_LIB_LEDGER_FIXTURE_H

#include <check.h>

#include "tests/lib/ledger_model.h"
#include "tests/lib/sim_env.h"

#define DIR "/store/dledger-n0"
#define SEGMENT 16384u
#define INDEX_FILE 4096u

struct fixture {
    struct sim_env sim;
    struct ledger ledger;
    struct ledger_model model;
    struct ledger_recovery recovery;
    struct checkpoint checkpoint;
    struct error error;
    uint64_t recorded_boot; /* what a checkpoint would have kept */
    bool class_b;
    bool open;
};

struct fixture *fixture_new(uint64_t seed, bool class_b);
void fixture_free(struct fixture *f);
/* Opens with the fixture's checkpoint; the boot counts as the same when the last successful open was in it. */
int try_open(struct fixture *f);
void must_open(struct fixture *f);
/* Also checks that no file and no mapping stays open. */
void close_ledger(struct fixture *f);
/* The ledger holds what the model holds, and nothing was stored into pages without blocks. */
void must_equal(struct fixture *f);
/* Adds entries to the model and appends them as one run; a refused run leaves the model as it was. */
int append(struct fixture *f, size_t count, uint64_t term, uint32_t body_size, int64_t committed, uint32_t salt);
int64_t sync_all(struct fixture *f);
void reserve_ahead(struct fixture *f);
void take_checkpoint(struct fixture *f, int64_t committed);
/* Static text. */
const char *segment_path(uint64_t start);
/* Open, with 30 synced entries of terms 1 to 3 over several segments. */
struct fixture *thirty_entries(bool class_b);

#endif
