/* How far a word that nobody knows is from one that may have been meant, for a hint. */
#ifndef LEDGERMQ_BROKER_EDIT_DISTANCE_H
#define LEDGERMQ_BROKER_EDIT_DISTANCE_H

#include "proto/buffer.h"

/* Letters to put in, leave out or change; of either case they are alike. UINT_MAX when a word is longer than any key. */
unsigned edit_distance(struct slice a, const char *b);

#endif
