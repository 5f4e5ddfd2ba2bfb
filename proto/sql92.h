/* SQL92 message selectors: an expression over a message's properties, compiled once and matched for each
 * message.
 *
 * Follows org.apache.rocketmq.filter.SqlFilter 4.9 and the expressions it builds (spec: store.md 5.6), its
 * oddities included: properties are text and are converted to the type of what they are compared with, text
 * that cannot be converted makes the whole expression fail and not match, 0.0 is no literal, and what follows
 * a complete expression is ignored unless it continues it ("a = 1 b" is "a = 1").
 */
#ifndef LEDGERMQ_PROTO_SQL92_H
#define LEDGERMQ_PROTO_SQL92_H

#include "proto/buffer.h"
#include "proto/error.h"

#define SQL92_EXPRESSION_MAX 16384u /* bytes; RocketMQ has no limit of its own */
#define SQL92_NAMES_MAX 128u        /* different properties in one expression */
#define SQL92_DEPTH_MAX 128u        /* values waiting for their operator while an expression is evaluated */

struct sql92;

/* The expression is copied. ERROR_INVALID with the text that RocketMQ's clients get (class name of the Java
 * exception and first line of its message), also when a limit is passed; ERROR_NO_MEMORY. *program is NULL on
 * error. */
int sql92_compile(struct slice expression, struct sql92 **program, struct error *error);
/* Whether the expression is TRUE (not FALSE, NULL or failed) for these properties, as a record holds them:
 * name 0x01 value 0x02 ... Does not allocate, keeps nothing: one program may be matched by several threads at
 * a time. */
bool sql92_match(const struct sql92 *program, struct slice properties);
void sql92_free(struct sql92 *program);

#endif
