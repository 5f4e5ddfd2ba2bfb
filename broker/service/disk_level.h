/* How full the disk of storePathRootDir is, looked at once a second by a timer of its own, whatever else is going on, and what follows from it for sends: above
 * diskSpaceWarningLevelRatio they are refused, when no other member can lead whose disk has room.
 *
 * Follows DefaultMessageStore.CleanCommitLogService#isSpaceToDelete and RunningFlags#DISK_FULL_BIT. What is deleted then: retention.h. Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_SERVICE_DISK_LEVEL_H
#define LEDGERMQ_BROKER_SERVICE_DISK_LEVEL_H

#include <stdbool.h>

#include "proto/error.h"

struct broker;
struct broker_config;
struct disk_level;

struct disk_level *disk_level_new(struct broker *broker, struct error *error);
void disk_level_close(struct disk_level *level); /* the timer is closed by the loop later; free after the loop ran */
void disk_level_free(struct disk_level *level);

/* Percent used, rounded up, the number that df shows; -1 = not known. Asks the file system. */
int disk_level_percent(struct broker *broker);
/* NULL: messages may be stored, as far as the disk goes. Else why not; valid until control returns to the loop. */
const char *disk_level_refusal(const struct disk_level *level);
/* "ok", or the highest threshold that so many percent are beyond: its key. */
const char *disk_level_name(const struct broker_config *config, int percent);

#endif
