/* A compiled SQL92 expression with several owners: the subscription it belongs to, and the pulls that wait with it. The last one frees it, whether
 * that is the subscription (replaced, its group gone) or a pull.
 *
 * Follows org.apache.rocketmq.broker.filter.ConsumerFilterData 4.9.8. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_PROCESSOR_SQL_PROGRAM_H
#define LEDGERMQ_BROKER_PROCESSOR_SQL_PROGRAM_H

#include "proto/sql92.h"
#include "proto/subscription_data.h"

#define SQL_PROGRAM_BYTES_MAX (64u * 1024 * 1024) /* of all programs, reckoned at their worst: some 10,000 of usual size */

struct sql_program {
    struct sql92 *code;
    uint32_t owners;
    size_t bytes; /* of memory at the most */
};

/* With one owner. NULL with error filled, as sql92_compile says; ERROR_BUSY at the bound. */
struct sql_program *sql_program_new(struct slice expression, struct error *error);
void sql_program_hold(struct sql_program *program); /* NULL is fine, here and there */
void sql_program_release(struct sql_program *program);

static inline bool subscription_data_is_sql(const struct subscription_data *data)
{
    return slice_equal_text(data->expression_type, EXPRESSION_TYPE_SQL92);
}

#endif
