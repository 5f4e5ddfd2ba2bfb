#include "client/admin/backup_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ledger_entry.h"

#define PIECE (1u << 20)

void backup_segment_path(const char *folder, int64_t start, char out[BACKUP_PATH_MAX])
{
    snprintf(out, BACKUP_PATH_MAX, "%s%sdata/%020lld", folder == NULL ? "" : folder, folder == NULL ? "" : "/", (long long)start);
}

/* Where a walk over the entries is. */
struct walk {
    const struct backup_files *files;
    const struct backup_manifest *manifest;
    uint8_t *bytes;
    intptr_t file;
    bool open;
    int64_t at, segment_end; /* positions; the second: of the last byte that a backup has of this segment */
    int64_t index;           /* of the next entry */
    uint32_t chain;
};

static bool read_whole(const struct walk *walk, uint32_t size, int64_t offset)
{
    return walk->files->read(walk->files->context, walk->file, walk->bytes, size, (uint64_t)offset) == (ssize_t)size;
}

/* What is wrong with what comes next, NULL when it is good. */
static const char *step(struct walk *walk, int64_t offset)
{
    const struct backup_manifest *manifest = walk->manifest;
    struct ledger_entry entry;
    uint8_t *bytes = walk->bytes;

    if (walk->at + (int64_t)LEDGER_BLANK_SIZE > walk->segment_end || !read_whole(walk, LEDGER_BLANK_SIZE, offset))
        return "cannot be read";
    if (ledger_is_blank(bytes)) {
        walk->at = walk->segment_end;
        return NULL;
    }
    if (!read_whole(walk, LEDGER_ENTRY_HEADER_SIZE, offset) || ledger_entry_decode(&entry, bytes) != 0 || entry.position != (uint64_t)walk->at ||
        entry.index != (uint64_t)walk->index)
        return "an entry's header is not valid";
    bool first = walk->index == manifest->first_index; /* of the log's very first entry there is a chain too */
    if (first && walk->index > 0 ? crc32c(0, bytes, LEDGER_ENTRY_HEADER_SIZE) != (uint32_t)manifest->first_header_crc
              : ledger_entry_chain(bytes, walk->chain) != entry.chain_crc)
        return "an entry is not the one that was written there";
    if (!read_whole(walk, entry.body_size, offset + LEDGER_ENTRY_HEADER_SIZE) || !ledger_entry_body_ok(&entry, bytes))
        return "an entry's body is not valid";
    walk->chain = entry.chain_crc;
    walk->index++;
    walk->at += ledger_entry_size(&entry);
    return NULL;
}

static void close_segment(struct walk *walk)
{
    if (walk->open)
        walk->files->close(walk->files->context, walk->file);
    walk->open = false;
}

int backup_check_entries(const struct backup_files *files, const char *folder, const struct backup_manifest *manifest, struct error *error)
{
    struct walk walk = {.files = files, .manifest = manifest, .bytes = malloc(LEDGER_ENTRY_SIZE_MAX), .at = manifest->first_position, .index = manifest->first_index};
    const char *why = NULL;
    char path[BACKUP_PATH_MAX] = "";

    if (walk.bytes == NULL)
        return error_set(error, ERROR_NO_MEMORY, "%s: %s", folder, error_text(ERROR_NO_MEMORY));
    while (why == NULL && walk.at < manifest->end_position) {
        int64_t offset = walk.at % manifest->segment_size;
        if (offset == 0) {
            close_segment(&walk);
            backup_segment_path(folder, walk.at, path);
            int rv = files->open(files->context, path, false, &walk.file);
            walk.open = rv == 0;
            walk.segment_end = walk.at + backup_manifest_segment_bytes(manifest, walk.at);
            if (rv != 0) {
                why = strerror(-rv);
                break;
            }
        }
        why = step(&walk, offset);
    }
    if (why == NULL && (walk.index != manifest->last_index + 1 || walk.at != manifest->end_position))
        why = "entries are missing";
    close_segment(&walk);
    free(walk.bytes);
    return why == NULL ? 0 : error_set(error, ERROR_DAMAGED, "%s at position %lld: %s", path, (long long)walk.at, why);
}

/* NULL, or what is wrong with it. */
static const char *check_file(const struct backup_files *files, const char *path, const struct backup_file *wanted, uint8_t *piece)
{
    const char *why = NULL;
    uint64_t at = 0;
    uint32_t crc = 0;
    intptr_t file;
    int rv = files->open(files->context, path, false, &file);

    if (rv != 0)
        return rv == -ENOENT ? "it is missing" : strerror(-rv);
    while (why == NULL) { /* to its end, whatever its size should be */
        ssize_t got = files->read(files->context, file, piece, PIECE, at);
        if (got < 0)
            why = "it cannot be read to its end";
        if (got <= 0)
            break;
        crc = crc32c(crc, piece, (size_t)got);
        at += (uint64_t)got;
        if (at > wanted->size)
            break;
    }
    files->close(files->context, file);
    if (why == NULL && at != wanted->size)
        why = "it has another size than when it was written";
    return why != NULL ? why : crc != wanted->crc ? "it is damaged: its checksum is not what it was" : NULL;
}

bool backup_check_files(const struct backup_files *files, const char *folder, struct backup_manifest manifest, void (*tell)(void *context, const char *text), void *context)
{
    uint8_t *piece = malloc(PIECE);
    struct backup_file file;
    bool good = true;

    if (piece == NULL) {
        tell(context, error_text(ERROR_NO_MEMORY));
        return false;
    }
    while (backup_manifest_next_file(&manifest, &file)) {
        char path[BACKUP_PATH_MAX], text[BACKUP_PATH_MAX + 80];
        snprintf(path, sizeof path, "%s/%.*s", folder, file.name.size < 64 ? (int)file.name.size : 64, (const char *)file.name.data);
        const char *why = check_file(files, path, &file, piece);
        snprintf(text, sizeof text, "%s: %s", path, why == NULL ? "" : why);
        if (why != NULL)
            tell(context, text);
        good = good && why == NULL;
    }
    free(piece);
    return good;
}
