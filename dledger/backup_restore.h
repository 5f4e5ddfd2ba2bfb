/* Before a start: a backup (proto/backup_manifest.h) that lies in storePathRootDir/restore becomes the log of this member.
 *
 *   1 every file is read and held against the manifest; whatever is missing, damaged, or no part of it refuses the start and is named
 *   2 restore/ becomes dledger-<selfId>/install, in one step
 *   3 the vote file is made, the checkpoint becomes this member's, and the mark says that all is there: bulk_install() puts it in its place
 *
 * Only where nothing is yet: a member that has a log, or a vote, is not overwritten. Interrupted after 2 it is gone on with: the manifest
 * is there until 3 is done.
 */
#ifndef LEDGERMQ_DLEDGER_BACKUP_RESTORE_H
#define LEDGERMQ_DLEDGER_BACKUP_RESTORE_H

#include "proto/error.h"
#include "store/env.h"

struct dledger_options;

/* dir: .../dledger-<selfId>, which exists. 0, also when there is no backup. ERROR_DAMAGED, ERROR_VERSION, ERROR_INVALID: refused, nothing was changed. ERROR_IO. */
int backup_restore(struct env *env, const struct dledger_options *options, const char *dir, struct error *error);

#endif
