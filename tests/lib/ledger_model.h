/* What a ledger should hold, entry by entry and byte by byte, to compare a real one with. Makes sealed entries. */
#ifndef LEDGERMQ_TESTS_LIB_LEDGER_MODEL_H
#define LEDGERMQ_TESTS_LIB_LEDGER_MODEL_H

#include "dledger/ledger.h"

struct model_entry {
    uint64_t term;
    uint64_t position;
    uint32_t size;
    uint32_t chain;
    size_t at; /* in bytes */
};

struct ledger_model {
    uint64_t segment_size;
    struct model_entry *entries; /* by index */
    size_t count, capacity;
    uint8_t *bytes; /* all entries, one behind the other: any row of them is a run */
    size_t size, bytes_capacity;
};

void ledger_model_init(struct ledger_model *model, uint64_t segment_size);
void ledger_model_close(struct ledger_model *model);
/* Adds one sealed entry with a body made from its index, its term and `salt`. committed: the leader's commit index (-1 = none). */
void ledger_model_add(struct ledger_model *model, uint64_t term, uint32_t body_size, int64_t committed, uint32_t salt);
/* The entries from index `first` on. */
const uint8_t *ledger_model_run(const struct ledger_model *model, size_t first, size_t count, size_t *size);
/* Leaves `count` entries. */
void ledger_model_cut(struct ledger_model *model, size_t count);
/* Compares everything one can ask a ledger, and every byte of its segments: entries, fillers, zeros. NULL, or what differs (static text). */
const char *ledger_model_difference(const struct ledger_model *model, const struct ledger *ledger);

#endif
