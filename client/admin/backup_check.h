/* Is what lies in a backup's folder what was written, and a log as a start would have it? */
#ifndef LEDGERMQ_CLIENT_ADMIN_BACKUP_CHECK_H
#define LEDGERMQ_CLIENT_ADMIN_BACKUP_CHECK_H

#include "client/admin/admin.h"
#include "proto/backup_manifest.h"

#define BACKUP_PATH_MAX 4096

/* folder/data/00000000001073741824; without the folder when that is NULL. */
void backup_segment_path(const char *folder, int64_t start, char out[BACKUP_PATH_MAX]);
/* Every entry: place, chain and checksum. False: told. */
bool backup_check_entries(const struct admin *admin, const char *folder, const struct backup_manifest *manifest);
/* Every file that the manifest names: size and checksum. False: told. */
bool backup_check_files(const struct admin *admin, const char *folder, struct backup_manifest manifest);

#endif
