/* Is what lies in a backup's folder what was written, and a log as a start would have it? */
#ifndef LEDGERMQ_CLIENT_ADMIN_BACKUP_CHECK_H
#define LEDGERMQ_CLIENT_ADMIN_BACKUP_CHECK_H

#include "client/admin/backup_files.h"
#include "proto/backup_manifest.h"
#include "proto/error.h"

/* folder/data/00000000001073741824; without the folder when that is NULL. */
void backup_segment_path(const char *folder, int64_t start, char out[BACKUP_PATH_MAX]);
/* Every entry: place, chain and checksum. 0, ERROR_DAMAGED, ERROR_NO_MEMORY. */
int backup_check_entries(const struct backup_files *files, const char *folder, const struct backup_manifest *manifest, struct error *error);
/* Every file that the manifest names: size and checksum. Each that is not good is told. */
bool backup_check_files(const struct backup_files *files, const char *folder, struct backup_manifest manifest, void (*tell)(void *context, const char *text), void *context);

#endif
