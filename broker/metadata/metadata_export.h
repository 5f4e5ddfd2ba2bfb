/* Writes the tables as RocketMQ's config/ *.json, for people and tools. Nothing ever reads them back: the snapshot is the authority.
 *
 * At most one round every METADATA_EXPORT_MS, and only after a change; the files are written on the pool.
 */
#ifndef LEDGERMQ_BROKER_METADATA_METADATA_EXPORT_H
#define LEDGERMQ_BROKER_METADATA_METADATA_EXPORT_H

#include "proto/error.h"

struct broker;

int metadata_export_start(struct broker *broker, struct error *error);
/* Something changed. Cheap; does nothing before metadata_export_start. */
void metadata_export_due(struct broker *broker);
/* Waits for a round that is under way, writes what has changed since, and closes the timer. */
void metadata_export_close(struct broker *broker);

#endif
