/* A disk that does not keep what was written: bits that flip, old versions of blocks that are back, writes that went elsewhere, on a machine that runs or
 * lies still. What may be hit is decided here, before the fact, so that the checker excuses nothing afterwards:
 *
 *  - Only bytes at rest. What a process has just written is in its memory, and is written again with its page.
 *  - Of the log, entries that the disk itself says are committed, by a checkpoint that is durable. Behind them an entry that is not whole cannot be told
 *    from one whose write a power cut interrupted, so it is cut (design: torn tail or damage).
 *  - An entry only while a majority has it whole and durable besides: more than a minority is never damaged at the same place, and neither a power cut nor
 *    a wiped directory on top takes the last copy.
 *  - Where votes are taken and given, anything of a member only while a majority of those who vote is whole besides: without its notes (vote, checkpoint)
 *    it is mute until somebody leads, and so it is when it stops before its log is mended, since its checkpoint then vouches only for what is before the
 *    damage. With two that vote nobody leads then, although the data are there.
 *  - Not the log in a group that deletes its beginning, nor an old copy of a disk there: the others may delete what one of them has not repaired yet, and
 *    then nobody has it any more.
 *  - Not the metadata snapshots in a group that deletes its log's beginning: nothing else on a disk tells what was in it then, and a member does not read its
 *    snapshots again before it removes a segment.
 *  - Nothing of a group of one, which has nobody to ask.
 *  - Not the bytes in queues and key index: they are as in RocketMQ, without checksums. But a queue may lose its newest units, its newest file or all of its
 *    files while its member is down after a clean stop, which says what all queues held; and until a start has looked nothing else of that member is hit.
 */
#ifndef LEDGERMQ_TESTS_SIM_DISK_FAULT_H
#define LEDGERMQ_TESTS_SIM_DISK_FAULT_H

#include "tests/sim/machine.h"

void disk_fault_init(void);

/* False: it came to nothing. */
bool disk_fault_flip(struct machine *machine);
/* A block is remembered now, and back some time later: counted then, if that changes anything. */
void disk_fault_stale(struct machine *machine);
/* What is written to a block from now on has gone to another one of the machine. Counted as above. */
void disk_fault_misdirect(struct machine *machine);

/* After a clean stop: a queue lacks what was newest in it, or is gone. Counted when it comes to something. */
void disk_fault_lose_queue(struct machine *machine);

/* Entries that were damaged and are not whole again, or notes of vote and progress that are not: such a member may be mute, and needs the others. */
bool disk_fault_left(struct machine *machine);
bool disk_fault_log_left(struct machine *machine);
/* Is this entry (Raft index) one that was damaged and is not whole again? */
bool disk_fault_at(struct machine *machine, uint64_t index);
/* All that is on the disk is something else now. */
void disk_fault_forget(struct machine *machine);

/* Both slots of its vote file are good, and alike: neither alone is missed. */
bool disk_fault_vote_is_sure(struct machine *machine);

#endif
