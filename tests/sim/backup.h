/* In some of the runs somebody makes a backup of a running node while the faults go on (client/admin/backup_copy.h, over the requests that mqadmin sends and on a
 * disk that fails as others do), and later the whole group is gone and a fresh one begins with it, under faults too.
 *
 * What a backup promises (docs/operations.md) is what is checked: all that was acknowledged before the leader was asked is in it, and nothing that is not
 * committed; a group that was restored goes on from there with the same offsets, metadata and waiting messages; nothing damaged is taken, and an
 * interrupted restore goes on, or says what is wrong with which file.
 */
#ifndef LEDGERMQ_TESTS_SIM_BACKUP_H
#define LEDGERMQ_TESTS_SIM_BACKUP_H

#include "dledger/dledger_commit_log.h"
#include "tests/sim/machine.h"

#define BACKUP_REQUESTS (1ull << 62) /* ids of forwarded requests from here on are of a backup */

/* Does this seed play that? */
bool backup_wanted(void);
void backup_init(void);
void backup_close(void);
/* Runs the world for so long (us) at least, with a backup and a restore in it. */
void backup_play(uint64_t us);
/* Nothing is wrong any more: one more backup must come to something. */
void backup_must_work(void);

/* ---- what machines tell ---- */
void backup_answer(struct machine *machine, uint64_t request, struct slice frame);
void backup_begun(struct machine *machine, const struct dledger_backup *backup);
/* A start has opened its log. */
void backup_taken(struct machine *machine);
void backup_metadata_restored(struct machine *machine);
/* May its start be refused so? And when it failed, for whatever reason. */
bool backup_may_refuse(const struct machine *machine, const struct error *error);
void backup_start_failed(struct machine *machine, const struct error *error);

#endif
