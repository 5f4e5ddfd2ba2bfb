/* The metadata of the simulator: a small table that records change, so that order, omission and repetition all show.
 */
#ifndef LEDGERMQ_TESTS_SIM_TABLE_H
#define LEDGERMQ_TESTS_SIM_TABLE_H

#include <stdint.h>

#include "proto/buffer.h"

#define TABLE_KEYS 16

struct table {
    uint64_t values[TABLE_KEYS];
    uint64_t records;
};

/* A record: key 1, operand 8, number 8. */
#define TABLE_RECORD_SIZE 17u
void table_record_encode(uint8_t record[TABLE_RECORD_SIZE], unsigned key, uint64_t operand, uint64_t number);
uint64_t table_record_number(struct slice record);
void table_apply(struct table *table, struct slice record);
uint64_t table_hash(const struct table *table);
void table_save(const struct table *table, struct buffer *out);
bool table_load(struct table *table, struct slice bytes);

#endif
