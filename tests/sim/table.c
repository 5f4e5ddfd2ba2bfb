#include "tests/sim/table.h"

#define ROW 8u

void table_record_encode(uint8_t record[TABLE_RECORD_SIZE], unsigned key, uint64_t operand, uint64_t number)
{
    record[0] = (uint8_t)key;
    store_u64(record + 1, operand);
    store_u64(record + 9, number);
}

uint64_t table_record_number(struct slice record)
{
    return record.size == TABLE_RECORD_SIZE ? load_u64(record.data + 9) : UINT64_MAX;
}

void table_apply(struct table *table, struct slice record)
{
    uint64_t *value = &table->values[record.data[0] % TABLE_KEYS];
    *value = (*value ^ load_u64(record.data + 1)) * 0x9E3779B97F4A7C15u + 1;
    table->records++;
}

uint64_t table_hash(const struct table *table)
{
    uint64_t hash = table->records;
    for (int i = 0; i < TABLE_KEYS; i++)
        hash = (hash ^ table->values[i]) * 0xBF58476D1CE4E5B9u + (hash >> 29);
    return hash;
}

void table_save(const struct table *table, struct buffer *out)
{
    for (int i = 0; i < TABLE_KEYS; i++)
        buffer_append_u64(out, table->values[i]);
    buffer_append_u64(out, table->records);
}

bool table_load(struct table *table, struct slice bytes)
{
    if (bytes.size != (TABLE_KEYS + 1) * ROW)
        return false;
    for (int i = 0; i < TABLE_KEYS; i++)
        table->values[i] = load_u64(bytes.data + i * ROW);
    table->records = load_u64(bytes.data + TABLE_KEYS * ROW);
    return true;
}
