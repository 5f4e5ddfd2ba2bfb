/* People who change the group while it is under fault: they do what `mqadmin member` does, one change after the other, each asked again until it is there
 * or they lose patience. A node that is to join begins on an empty disk, with a dLegerPeers that names itself, those who vote then and some of the others. One
 * that was removed stays up, until it is emptied to join again.
 */
#ifndef LEDGERMQ_TESTS_SIM_MEMBERS_H
#define LEDGERMQ_TESTS_SIM_MEMBERS_H

#include "tests/sim/machine.h"

void members_init(void);
/* Nobody is at work any more. */
void members_give_up(void);
/* A person names the members in the dLegerPeers of a machine that is emptied: all of them, or those who vote and some of the others. What names itself alone
 * would begin a group of its own. */
void members_name(struct machine *machine, bool all);
/* add, remove, replace. machine: the one that goes, if it can. False: nothing was begun. node: whom it is about. */
bool members_begin(enum chaos_kind kind, struct machine *machine, uint8_t *node);
/* One single change: that member, or the next one for which it makes sense, gets a vote or loses it. */
bool members_change_vote(struct machine *machine, bool given);
/* Its broker.conf names other preferred leaders, which counts from the next start on. */
void members_prefer(struct machine *machine, const struct machine *first);

#endif
