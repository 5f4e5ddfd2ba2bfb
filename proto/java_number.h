/* Numbers in text as Java reads them: java.lang.Integer/Long.parseLong and Double.parseDouble.
 *
 * They differ from C's: no white space around integers but around floating point, digits of other scripts, a
 * suffix (1.5f), NaN and Infinity in exactly this spelling, hexadecimal floating point only with an exponent.
 */
#ifndef LEDGERMQ_PROTO_JAVA_NUMBER_H
#define LEDGERMQ_PROTO_JAVA_NUMBER_H

#include "proto/buffer.h"

/* Longer text is refused as a floating point number, so that no message costs more than microseconds. */
#define JAVA_DOUBLE_TEXT_MAX 2048u

/* False where Java throws NumberFormatException: not a number, or not from min to max. */
bool java_integer_parse(struct slice text, int64_t min, int64_t max, int64_t *value);
bool java_double_parse(struct slice text, double *value);
/* Double.compare: -0.0 is less than 0.0, and NaN equals NaN and is greater than all others. */
int java_double_compare(double a, double b);

#endif
