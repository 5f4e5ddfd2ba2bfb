/* A consistent copy of the log of a running group (985, 986), which the client writes: no request of anybody names a path on this machine, and the copy is
 * on another disk at once.
 *
 *  1. 985 at the leader: an empty record is committed and applied. So whatever any leader acknowledged before is at or below what is applied here.
 *  2. Its answer says where the copy begins and ends, and holds the checkpoint that a fresh group needs to start with it.
 *  3. 986 reads the metadata snapshot, then committed bytes of the log from the first one on, a portion a request and on the pool. What is committed never
 *     changes, and what was not read yet is not removed as long as the reads go on.
 */
#include <stdio.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/metadata/metadata.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/message_append.h"
#include "broker/processor/processor.h"
#include "broker/processor/reply.h"
#include "proto/backup_manifest.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "store/seeded_bug.h"

#define READ_BYTES_MAX (1u << 20)
#define BEGINS_AT_ONCE 16u

static uint32_t begins; /* under way */

static bool may_read(struct broker *broker, struct request *request)
{
    if (group_processor_from_member_host(broker, &request->peer))
        return true;
    reply_simple(broker, &request->reply_to, RESPONSE_NO_PERMISSION, "a backup holds everything, so it is given to members' machines only: run mqadmin there");
    return false;
}

static void write_fields(struct broker *broker, const struct dledger_backup *backup, struct remoting_writer *writer)
{
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"backupId", (int64_t)backup->id},
        {"segmentSize", (int64_t)backup->segment_size},
        {"firstIndex", backup->first_index},
        {"lastIndex", backup->last_index},
        {"firstPosition", (int64_t)backup->first_position},
        {"endPosition", (int64_t)backup->end_position},
        {"firstHeaderCrc", backup->first_header_crc},
        {"term", (int64_t)backup->term},
        {"metadataSize", (int64_t)backup->metadata_size},
        {"metadataCrc", backup->metadata_crc},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        remoting_writer_ext_i64(writer, numbers[i].name, numbers[i].value);
    remoting_writer_ext_text(writer, "group", broker->config.group);
    remoting_writer_ext(writer, "members", buffer_slice(&backup->members));
}

static void on_committed(struct broker *broker, void *context, int code)
{
    struct reply_to *to = context;
    struct dledger_backup backup = {0};
    struct remoting_writer writer;
    struct error error;

    begins--;
    buffer_init(&backup.members, 0);
    buffer_init(&backup.checkpoint, 0);
    if (code != 0) {
        reply_simple(broker, to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", message_append_remark(broker, code));
    } else if ((code = dledger_commit_log_backup_begin(broker->log, &backup, &error)) != 0) {
        reply_simple(broker, to, error_response_code(code), "%s", error.message);
    } else if (reply_begin(broker, to, &writer, RESPONSE_SUCCESS, NULL)) {
        write_fields(broker, &backup, &writer);
        remoting_writer_body(&writer);
        buffer_append_slice(writer.out, buffer_slice(&backup.checkpoint));
        reply_end(broker, to, &writer);
    }
    buffer_close(&backup.members);
    buffer_close(&backup.checkpoint);
    free(to);
}

static void begin_backup(struct broker *broker, struct request *request)
{
    Ledgermq__MetadataRecord nothing = LEDGERMQ__METADATA_RECORD__INIT;
    struct reply_to *to;
    int rv = ERROR_NO_MEMORY;

    if (!may_read(broker, request))
        return;
    struct slice version = remoting_ext(request->command, "backupVersion");
    int32_t number;
    if (version.data == NULL || !slice_to_i32(version, &number) || number != (int32_t)BACKUP_VERSION) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "this broker gives backups of version %u: use the mqadmin that came with it", BACKUP_VERSION);
        return;
    }
    to = begins < BEGINS_AT_ONCE ? malloc(sizeof *to) : NULL;
    if (begins >= BEGINS_AT_ONCE)
        rv = broker_stats_busy(broker->stats, LIMIT_HIT_METADATA);
    if (to != NULL) {
        *to = request->reply_to;
        if (SEEDED_BUG(BACKUP_UNPROVED)) {
            begins++;
            on_committed(broker, to, 0);
            return;
        }
        rv = metadata_submit(broker, &nothing, on_committed, to);
    }
    if (rv == 0) {
        begins++;
        return;
    }
    free(to);
    reply_simple(broker, &request->reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", message_append_remark(broker, rv));
}

struct backup_read {
    struct cold_read read; /* first: on_read finds the rest by it */
    struct reply_to reply_to;
    uint64_t id;
};

static void on_read(struct broker *broker, struct cold_read *read, int code)
{
    struct backup_read *backup = (struct backup_read *)read;
    struct remoting_writer writer;

    if (code == 0)
        dledger_commit_log_backup_has_read(broker->log, backup->id, (uint64_t)read->items[0].physical_offset + read->size);
    if (code == ERROR_NOT_FOUND) {
        reply_simple(broker, &backup->reply_to, error_response_code(code), "the log at position %lld was removed by retention before it was read: begin the backup again",
                     (long long)read->items[0].physical_offset);
    } else if (code == ERROR_DAMAGED) {
        reply_simple(broker, &backup->reply_to, RESPONSE_SYSTEM_ERROR, "the log at position %lld is damaged, and is being mended: begin the backup again later",
                     (long long)read->items[0].physical_offset);
    } else if (code != 0) {
        reply_simple(broker, &backup->reply_to, error_response_code(code), "%s", error_text(code));
    } else if (reply_body_begin(broker, &backup->reply_to, &writer)) {
        buffer_append(writer.out, read->bytes, read->size);
        reply_end(broker, &backup->reply_to, &writer);
    }
    cold_read_free(read);
    free(backup);
}

static void read_metadata(struct broker *broker, struct request *request, int64_t id, int64_t offset, int32_t size)
{
    struct remoting_writer writer;
    struct slice piece;

    if (dledger_commit_log_backup_metadata(broker->log, (uint64_t)id, (uint64_t)offset, (size_t)size, &piece) != 0) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "the metadata snapshot of this backup has been let go: begin the backup again");
    } else if (reply_body_begin(broker, &request->reply_to, &writer)) {
        buffer_append_slice(writer.out, piece);
        reply_end(broker, &request->reply_to, &writer);
    }
}

static void read_backup(struct broker *broker, struct request *request)
{
    int64_t id, position;
    int32_t size;

    if (!may_read(broker, request) || !request_i64(broker, request, "backupId", &id))
        return;
    if (remoting_ext(request->command, "giveUp").data != NULL) {
        dledger_commit_log_backup_give_up(broker->log, (uint64_t)id);
        reply_simple(broker, &request->reply_to, RESPONSE_SUCCESS, NULL);
        return;
    }
    if (!request_i64(broker, request, "position", &position) || !request_i32(broker, request, "size", &size))
        return;
    if (position < 0 || size <= 0 || size > (int32_t)READ_BYTES_MAX) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "position or size is out of range: 1 to %u bytes", READ_BYTES_MAX);
        return;
    }
    if (remoting_ext(request->command, "metadata").data != NULL) {
        read_metadata(broker, request, id, position, size);
        return;
    }
    struct backup_read *backup = calloc(1, sizeof *backup);
    int rv = ERROR_NO_MEMORY;
    if (backup != NULL) {
        backup->reply_to = request->reply_to;
        backup->id = (uint64_t)id;
        backup->read.kind = COLD_READ_QUERY;
        backup->read.raw = true;
        rv = cold_read_start_one(broker->cold_reads, &backup->read, position, (uint32_t)size, on_read);
    }
    if (rv == 0)
        return;
    free(backup);
    reply_simple(broker, &request->reply_to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", message_append_remark(broker, rv));
}

const struct processor_row backup_processor_rows[] = {
    {REQUEST_BEGIN_BACKUP, "BEGIN_BACKUP", begin_backup, 0},
    {REQUEST_READ_BACKUP, "READ_BACKUP", read_backup, PROCESSOR_BUFFERS},
    {0, NULL, NULL, 0},
};
