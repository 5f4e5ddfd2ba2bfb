/* A group that lost a majority for good is made anew by force from one member that is left (mqbroker --force-new-group).
 *
 * May lose acknowledged messages: those that only the others had. So nothing does it by itself, and it leaves a mark. The new group's first entry is a
 * configuration with this member alone in it, in a term of a new *generation*: the upper half of a term counts how often it was done. No election reaches
 * the next one, it is in the header of every later entry, and by it members tell whose word on who belongs to the group is newer.
 */
#ifndef LEDGERMQ_DLEDGER_NEW_GROUP_H
#define LEDGERMQ_DLEDGER_NEW_GROUP_H

#include "dledger/dledger_commit_log.h"

/* Refuses while another member answers at its peer port, when there is nothing to go on from, and when the log is damaged (nothing was changed then). told: what
 * was done and what may be lost, for a person. The broker must not run. */
int new_group_force(struct env *env, const struct dledger_options *options, struct buffer *told, struct error *error);

#endif
