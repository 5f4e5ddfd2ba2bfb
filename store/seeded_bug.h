/* Faults of ours, each at the place where it could be made, so that the simulator can show that it finds them.
 *
 * Only the objects that are compiled for ledgermq_sim hold them (tests/tests.cmake): everywhere else each is the constant false, and tests/unit/no_seeded_bugs
 * looks that no program has any.
 */
#ifndef LEDGERMQ_STORE_SEEDED_BUG_H
#define LEDGERMQ_STORE_SEEDED_BUG_H

#include <stdbool.h>

/* Identifier, name on the command line, what it does. */
#define SEEDED_BUG_LIST(X)                                                                        \
    X(VOTE_NOT_SYNCED, "vote-not-synced", "a vote is not synced")                                 \
    X(TERM_FORGOTTEN, "term-forgotten", "a start takes the older of the two votes on the disk")   \
    X(LOG_NOT_SYNCED, "log-not-synced", "the log is not synced")                                  \
    X(PERSISTED_EARLY, "persisted-early", "entries are reported durable before they are")         \
    X(DIR_NOT_SYNCED, "dir-not-synced", "names of segments are not made durable")                 \
    X(SHORT_WRITE, "short-write", "a short write is taken for a whole one")                       \
    X(TORN_TAIL_TRUSTED, "torn-tail-trusted", "the body of the last entry is not checked")        \
    X(COMMITTED_CUT, "committed-cut", "a start cuts what is behind its checkpoint")               \
    X(RUN_UNCHECKED, "run-unchecked", "bodies from peers are not checked")                        \
    X(NEVER_MUTE, "never-mute", "a member that forgot something votes at once")                   \
    X(WIPED_COUNTS, "wiped-counts", "a wiped member votes before it has caught up")               \
    X(EMPTY_ELECTS, "empty-elects", "a member that is empty does not wait for all others")        \
    X(COMMIT_EARLY, "commit-early", "a leader counts itself as a majority")                       \
    X(EARLY_ANSWER, "early-answer", "a send is answered before it has committed")                 \
    X(SERVE_UNCOMMITTED, "serve-uncommitted", "entries are applied before they have committed")   \
    X(SERVE_DAMAGED, "serve-damaged", "a pull serves what it has read without looking at its checksum") \
    X(PULL_PASSES, "pull-passes", "a pull passes over a message that is damaged")                 \
    X(ACCEPT_EARLY, "accept-early", "a leader accepts before it has applied its predecessor's log") \
    X(APPLY_TWICE, "apply-twice", "a metadata record is applied twice")                           \
    X(RECORD_DROPPED, "record-dropped", "a metadata record is not applied")                       \
    X(SNAPSHOT_IGNORED, "snapshot-ignored", "metadata snapshots are not restored")                \
    X(QUEUE_SHIFT, "queue-shift", "a leader skips a queue offset")                                \
    X(QUEUE_REUSE, "queue-reuse", "a queue offset is given out twice")                            \
    X(DELTA_LOST, "delta-lost", "an answered consumer offset is not logged")                      \
    X(ONEWAY_LOST, "oneway-lost", "a consumer offset that nobody waits for is not gathered")      \
    X(OFFSET_BACK, "offset-back", "a consumer offset falls back by one")                          \
    X(DELETED_STAYS, "deleted-stays", "the queues of a deleted topic stay")                         \
    X(DELETE_NOT_REPEATED, "delete-not-repeated", "a start does not repeat deletions of topics")  \
    X(DELETED_OFFSETS, "deleted-offsets", "the consumer offsets of a deleted topic stay")         \
    X(DELETE_OVERTAKEN, "delete-overtaken", "consumer offsets that were gathered come behind the deletion of their topic") \
    X(DELETED_DELAYED, "deleted-delayed", "delayed messages of a deleted topic go into the next one of that name") \
    X(LOCKS_FORGOTTEN, "locks-forgotten", "a new leader does not know the queue locks")           \
    X(DELAY_FORGOTTEN, "delay-forgotten", "the progress of delayed messages is not applied")      \
    X(DELAY_TWICE, "delay-twice", "a leader delivers a delayed message twice")                    \
    X(DELAY_SKIPPED, "delay-skipped", "a delayed message is skipped")                             \
    X(SETTLE_TWICE, "settle-twice", "a settled half message is open again")                       \
    X(HALF_LOST, "half-lost", "a half message is not noted")                                      \
    X(SUMS_NOT_COMPARED, "sums-not-compared", "a start does not compare what its queues hold with what they held") \
    X(NO_DOUBT, "no-doubt", "a leader that may be deposed answers what it knew")                  \
    X(BACKUP_UNPROVED, "backup-unproved", "a leader gives a backup without asking the others")    \
    X(RESTORE_UNCHECKED, "restore-unchecked", "a restore does not look at checksums")             \
    X(RESTORE_NOT_SYNCED, "restore-not-synced", "a restore does not make durable what it takes")  \
    X(GUARD_1, "guard-1", "guard G1 is off: a sole voter leads twice in a term")                  \
    X(GUARD_2, "guard-2", "guard G2 is off: a configuration does not begin a step")               \
    X(GUARD_3, "guard-3", "guard G3 is off: the configuration before it stays uncommitted")       \
    X(GUARD_4, "guard-4", "guard G4 is off: late rejections are believed")                        \
    X(GUARD_5, "guard-5", "guard G5 is off: what is committed is not cut off late messages")      \
    X(GUARD_6, "guard-6", "guard G6 is off: a refused pre-vote echoes the candidate's term")      \
    X(GUARD_7, "guard-7", "guard G7 is off: who is no candidate counts votes")                    \
    X(GUARD_8, "guard-8", "guard G8 is off: the leader's timer runs as often as it is due")       \
    X(GUARD_9, "guard-9", "guard G9 is off: the commit index goes back")                          \
    X(GUARD_10, "guard-10", "guard G10 is off: the core looks at the capacity of voters")         \
    X(GUARD_11, "guard-11", "guard G11 is off: a configuration shares its submit with others")    \
    X(GUARD_13, "guard-13", "guard G13 is off: a leader takes entries of its own term")           \
    X(GUARD_14, "guard-14", "guard G14 is off: a follower that lost entries stays stuck")         \
    X(GUARD_15, "guard-15", "guard G15 is off: conflicts are found entry by entry")               \
    X(GUARD_16, "guard-16", "guard for F16 is off: who has no vote yet does not answer")

enum seeded_bug {
    SEEDED_NONE,
#define SEEDED_BUG_ID(id, name, what) SEEDED_##id,
    SEEDED_BUG_LIST(SEEDED_BUG_ID)
#undef SEEDED_BUG_ID
    SEEDED_BUGS
};

#ifdef LEDGERMQ_SEEDED_BUGS
extern enum seeded_bug seeded_bug;       /* the one that is in; tests/sim/bugs.c */
extern unsigned seeded_bug_guard;        /* the number of the guard that is off, 0 = none */
bool seeded_bug_chance(unsigned per_mille);
#define SEEDED_BUG(id) (seeded_bug == SEEDED_##id)
#define SEEDED_BUG_NOW(id, per_mille) (SEEDED_BUG(id) && seeded_bug_chance(per_mille))
#define SEEDED_GUARD_OFF(number) (seeded_bug_guard == (unsigned)(number))
#else
#define SEEDED_BUG(id) false
#define SEEDED_BUG_NOW(id, per_mille) false
#define SEEDED_GUARD_OFF(number) ((void)(number), false)
#endif

#endif
