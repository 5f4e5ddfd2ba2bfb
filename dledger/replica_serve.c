/* As leader, or where nobody can lead: what a member must have that lacks entries which are deleted here. One member at a time. The snapshot stays in memory while it is asked
 * for; entries are read and checked by the pool, a piece at a time, so that neither a cold disk nor checksums hold up the loop.
 */
#include "dledger/replica_internal.h"

#include <stdlib.h>
#include <string.h>

#include "dledger/metadata_snapshot.h"
#include "dledger/peer_version.h"
#include "store/log_sink.h"

void replica_job_start(struct replica *replica, struct replica_job *job)
{
    job->out = true;
    if (replica->io.job != NULL) {
        replica->io.job(replica->io.context, job);
        return;
    }
    job->run(job);
    job->out = false;
    job->done(job);
}

static void end_serving(struct replica *replica)
{
    struct replica_serve *serve = &replica->serve;

    serve->to = 0;
    serve->whole = false;
    buffer_close(&serve->metadata);
    buffer_init(&serve->metadata, 0);
}

void replica_tell_behind(struct replica *replica, uint64_t to)
{
    struct peer_message message = {.type = PEER_BEHIND};

    if (to == 0 || to > (uint64_t)replica->member_count || replica->members[to - 1].peer_version < PEER_VERSION_BULK)
        return;
    message.behind.term = raft_current_term(&replica->driver.raft);
    message.behind.first_index = (uint64_t)replica->ledger.begin_index + 1;
    replica->io.send(replica->io.context, to, &message, NULL, 0);
}

/* Whoever gets the log goes by this header: what its checksum says is only that it came as it was. */
static bool is_proved(const struct replica *replica, const struct ledger_entry *entry, const uint8_t *header)
{
    return entry->index == 0 ? ledger_entry_chain(header, 0) == entry->chain_crc : entry->term == ledger_term_of(&replica->ledger, entry->index);
}

/* Where the log begins that is handed out. */
static bool find_begin(struct replica *replica, uint64_t *index, uint64_t *position, uint32_t *header_crc)
{
    struct ledger_entry entry;
    const uint8_t *header;

    *position = mapped_file_queue_begin(&replica->ledger.data);
    if (*position < replica->ledger.trim_position)
        *position = replica->ledger.trim_position;
    header = mapped_file_queue_at(&replica->ledger.data, *position, LEDGER_ENTRY_HEADER_SIZE);
    if (header == NULL)
        return false;
    if (ledger_entry_decode(&entry, header) != 0 || entry.position != *position || entry.index >= replica->applied || !is_proved(replica, &entry, header)) {
        replica_note_damage(replica, *position);
        return false;
    }
    if (ledger_hole_of(&replica->ledger, entry.index) != NULL)
        return false;
    *index = entry.index;
    *header_crc = crc32c(0, header, LEDGER_ENTRY_HEADER_SIZE);
    return true;
}

bool replica_make_manifest(struct replica *replica, struct replica_manifest *manifest, struct buffer *metadata)
{
    if (replica->applied == 0 || replica->configuration_index == 0 || !find_begin(replica, &manifest->first, &manifest->first_position, &manifest->first_crc))
        return false;
    manifest->last = (uint64_t)replica->applied - 1;
    manifest->end_position = replica->applied_end;
    return metadata_snapshot_begin(metadata, (int64_t)manifest->last) == 0 &&
           replica->callbacks.snapshot(replica->callbacks.context, manifest->last, metadata) == 0 && metadata_snapshot_end(metadata) == 0;
}

/* Who fails and asks again gets what was made for it: the tables are read on the loop, so not at every question. */
static bool is_fresh(const struct replica *replica, uint64_t from, uint64_t now)
{
    const struct replica_serve *serve = &replica->serve;
    return serve->to == from && now < serve->made_us + REPLICA_SERVE_FRESH_US && serve->manifest.first_position >= replica->ledger.trim_position &&
           replica->configuration_index <= serve->manifest.last + 1;
}

void replica_answer_manifest(struct replica *replica, uint64_t from, const struct peer_message *in)
{
    struct replica_serve *serve = &replica->serve;
    const struct replica_manifest *manifest = &serve->manifest;
    struct peer_message out = {.type = PEER_MANIFEST_RESULT};
    raft_index next = in->manifest.next_index;
    uint64_t now = replica_now_us(replica);
    struct buffer body;

    /* Committed entries are the same everywhere, but a leader has all that are. Also one that does not accept yet: what it waits for may be this member. */
    if ((in->flags & PEER_FETCH_LEADERLESS) == 0 ? !raft_driver_leads(&replica->driver)
                                                 : replica->phase != REPLICA_RUNNING || raft_driver_leader(&replica->driver) != 0)
        return;
    /* Who asks somebody that does not lead goes by what our log holds, and gives up its own for it. */
    if ((in->flags & PEER_FETCH_LEADERLESS) != 0 && replica->options.durability == DURABILITY_B && replica->ledger.synced_index < replica->ledger.last_index)
        return;
    if (serve->job.out || (serve->to != 0 && serve->to != from && !serve->whole && now < serve->used_us + REPLICA_SERVE_BUSY_US)) {
        out.flags = PEER_MANIFEST_BUSY;
        replica->io.send(replica->io.context, from, &out, NULL, 0);
        return;
    }
    if (!is_fresh(replica, from, now)) {
        end_serving(replica);
        if (!replica_make_manifest(replica, &serve->manifest, &serve->metadata)) {
            end_serving(replica);
            return;
        }
        serve->to = from;
        serve->id = ++replica->serve_ids ^ (env_random(replica->env) << 16);
        serve->made_us = now;
    }
    serve->used_us = now;
    serve->whole = false;
    serve->next = manifest->first;
    if (next > manifest->first + 1 && next <= manifest->last + 2 && ledger_term_of(&replica->ledger, next - 2) == in->manifest.previous_term) {
        out.flags = PEER_MANIFEST_CONTINUES;
        serve->next = next - 1;
    }
    out.count = manifest->first_crc;
    out.manifest_result.id = serve->id;
    out.manifest_result.first_index = manifest->first + 1;
    out.manifest_result.first_position = manifest->first_position;
    out.manifest_result.last_index = manifest->last + 1;
    out.manifest_result.end_position = manifest->end_position;
    out.manifest_result.metadata_size = serve->metadata.size;
    buffer_init(&body, 0);
    buffer_append_u64(&body, replica->configuration_index);
    if (!body.failed)
        buffer_append_u32(&body, crc32c(crc32c(0, body.data, body.size), replica->configuration.data, replica->configuration.size));
    buffer_append_slice(&body, buffer_slice(&replica->configuration));
    if (!body.failed)
        replica->io.send(replica->io.context, from, &out, body.data, body.size);
    buffer_close(&body);
    LOG_INFO("member %s lacks what is deleted here: it fetches the log from entry %llu on, up to %llu", replica->members[from - 1].id,
             (unsigned long long)serve->next, (unsigned long long)manifest->last);
}

/* Pool: reads a piece of a segment and keeps the whole and good entries of it. */
static void read_run(struct replica_job *job)
{
    struct replica_serve *serve = (struct replica_serve *)(void *)((char *)job - offsetof(struct replica_serve, job));
    uint64_t index = serve->from;
    ssize_t got = env_read(serve->replica->env, serve->file->file, serve->bytes, serve->bytes_wanted, serve->offset);
    size_t at = 0;

    serve->count = 0;
    serve->bytes_size = 0;
    if (got < 0)
        return;
    while (index <= serve->manifest.last && (size_t)got - at >= LEDGER_ENTRY_HEADER_SIZE && !ledger_is_blank(serve->bytes + at)) {
        struct ledger_entry entry;
        if (ledger_entry_decode(&entry, serve->bytes + at) != 0 || entry.index != index || ledger_entry_size(&entry) > (size_t)got - at ||
            !ledger_entry_body_ok(&entry, serve->bytes + at + LEDGER_ENTRY_HEADER_SIZE))
            break;
        at += ledger_entry_size(&entry);
        index++;
        serve->count++;
    }
    serve->bytes_size = at;
}

static void run_is_read(struct replica_job *job)
{
    struct replica_serve *serve = (struct replica_serve *)(void *)((char *)job - offsetof(struct replica_serve, job));
    struct replica *replica = serve->replica;
    struct peer_message out = {.type = PEER_BULK_RESULT, .count = serve->count};

    mapped_file_unpin(serve->file);
    serve->file = NULL;
    serve->used_us = replica_now_us(replica);
    out.bulk_result.id = serve->id;
    out.bulk_result.kind = PEER_BULK_ENTRIES;
    out.bulk_result.from = serve->from + 1;
    serve->whole = serve->whole || (serve->count > 0 && serve->from + serve->count > serve->manifest.last);
    if (serve->to != 0 && serve->count > 0)
        replica->io.send(replica->io.context, serve->to, &out, serve->bytes, serve->bytes_size);
    else if (serve->to != 0)
        replica_note_damage(replica, serve->position); /* asked again, it may have been mended */
    free(serve->bytes);
    serve->bytes = NULL;
}

static bool start_reading(struct replica *replica, uint64_t index)
{
    struct replica_serve *serve = &replica->serve;
    uint64_t position, term, left;
    uint32_t size;

    if (index < serve->manifest.first || index > serve->manifest.last || !ledger_locate(&replica->ledger, index, &position, &size, &term))
        return false;
    serve->file = mapped_file_queue_find(&replica->ledger.data, position);
    if (serve->file == NULL)
        return false;
    left = serve->file->start + replica->ledger.data.file_size - position;
    serve->bytes_wanted = size > PEER_RUN_MAX ? size : PEER_RUN_MAX < left ? PEER_RUN_MAX : left;
    serve->bytes = malloc(serve->bytes_wanted);
    if (serve->bytes == NULL)
        return false;
    mapped_file_pin(serve->file);
    serve->replica = replica;
    serve->from = index;
    serve->next = index;
    serve->position = position;
    serve->offset = position - serve->file->start;
    serve->job.run = read_run;
    serve->job.done = run_is_read;
    replica_job_start(replica, &serve->job);
    return true;
}

void replica_answer_bulk(struct replica *replica, uint64_t from, const struct peer_message *in)
{
    struct replica_serve *serve = &replica->serve;
    struct peer_message out = {.type = PEER_BULK_RESULT};
    uint64_t offset = in->bulk.from;

    if (serve->job.out)
        return; /* asked for twice */
    out.bulk_result = in->bulk;
    if (replica->phase != REPLICA_RUNNING || serve->to != from || serve->id != in->bulk.id) {
        out.flags = PEER_BULK_REFUSED;
        replica->io.send(replica->io.context, from, &out, NULL, 0);
        return;
    }
    serve->used_us = replica_now_us(replica);
    if (in->bulk.kind == PEER_BULK_METADATA) {
        if (offset < serve->metadata.size) {
            size_t size = serve->metadata.size - offset < PEER_RUN_MAX ? serve->metadata.size - offset : PEER_RUN_MAX;
            replica->io.send(replica->io.context, from, &out, serve->metadata.data + offset, size);
        }
    } else if (!start_reading(replica, offset - 1)) {
        out.flags = PEER_BULK_REFUSED;
        replica->io.send(replica->io.context, from, &out, NULL, 0);
    }
}

void replica_serve_tick(struct replica *replica, uint64_t now)
{
    struct replica_serve *serve = &replica->serve;

    if (serve->to != 0 && !serve->job.out && (replica->phase != REPLICA_RUNNING || now >= serve->used_us + REPLICA_SERVE_IDLE_US))
        end_serving(replica);
}

void replica_serve_close(struct replica *replica)
{
    struct replica_serve *serve = &replica->serve;

    if (serve->file != NULL)
        mapped_file_unpin(serve->file);
    serve->file = NULL;
    free(serve->bytes);
    serve->bytes = NULL;
    buffer_close(&serve->metadata);
}
