#include "client/admin/backup_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/ledger_entry.h"

#define PIECE (1u << 20)

void backup_segment_path(const char *folder, int64_t start, char out[BACKUP_PATH_MAX])
{
    snprintf(out, BACKUP_PATH_MAX, "%s%sdata/%020lld", folder == NULL ? "" : folder, folder == NULL ? "" : "/", (long long)start);
}

/* Where a walk over the entries is. */
struct walk {
    const struct backup_manifest *manifest;
    uint8_t *bytes;
    int fd;
    int64_t at, segment_end; /* positions; the second: of the last byte that a backup has of this segment */
    int64_t index;           /* of the next entry */
    uint32_t chain;
};

/* What is wrong with what comes next, NULL when it is good. */
static const char *step(struct walk *walk, int64_t offset)
{
    const struct backup_manifest *manifest = walk->manifest;
    struct ledger_entry entry;
    uint8_t *bytes = walk->bytes;

    if (walk->at + (int64_t)LEDGER_BLANK_SIZE > walk->segment_end || pread(walk->fd, bytes, LEDGER_BLANK_SIZE, offset) != (ssize_t)LEDGER_BLANK_SIZE)
        return "cannot be read";
    if (ledger_is_blank(bytes)) {
        walk->at = walk->segment_end;
        return NULL;
    }
    if (pread(walk->fd, bytes, LEDGER_ENTRY_HEADER_SIZE, offset) != (ssize_t)LEDGER_ENTRY_HEADER_SIZE || ledger_entry_decode(&entry, bytes) != 0 ||
        entry.position != (uint64_t)walk->at || entry.index != (uint64_t)walk->index)
        return "an entry's header is not valid";
    bool first = walk->index == manifest->first_index;
    if (first ? crc32c(0, bytes, LEDGER_ENTRY_HEADER_SIZE) != (uint32_t)manifest->first_header_crc
              : ledger_entry_chain(bytes, walk->chain) != entry.chain_crc)
        return "an entry is not the one that was written there";
    if (pread(walk->fd, bytes, entry.body_size, offset + LEDGER_ENTRY_HEADER_SIZE) != (ssize_t)entry.body_size || !ledger_entry_body_ok(&entry, bytes))
        return "an entry's body is not valid";
    walk->chain = entry.chain_crc;
    walk->index++;
    walk->at += ledger_entry_size(&entry);
    return NULL;
}

bool backup_check_entries(const struct admin *admin, const char *folder, const struct backup_manifest *manifest)
{
    struct walk walk = {.manifest = manifest, .bytes = malloc(LEDGER_ENTRY_SIZE_MAX), .fd = -1, .at = manifest->first_position, .index = manifest->first_index};
    const char *why = walk.bytes == NULL ? "no memory" : NULL;
    char path[BACKUP_PATH_MAX] = "";

    while (why == NULL && walk.at < manifest->end_position) {
        int64_t offset = walk.at % manifest->segment_size;
        if (offset == 0) {
            if (walk.fd >= 0)
                close(walk.fd);
            backup_segment_path(folder, walk.at, path);
            walk.fd = open(path, O_RDONLY | O_CLOEXEC);
            walk.segment_end = walk.at + backup_manifest_segment_bytes(manifest, walk.at);
        }
        why = walk.fd < 0 ? strerror(errno) : step(&walk, offset);
    }
    if (why == NULL && (walk.index != manifest->last_index + 1 || walk.at != manifest->end_position))
        why = "entries are missing";
    if (why != NULL)
        admin_fail(admin, "%s at position %lld: %s", path, (long long)walk.at, why);
    if (walk.fd >= 0)
        close(walk.fd);
    free(walk.bytes);
    return why == NULL;
}

/* NULL, or what is wrong with it. */
static const char *check_file(const char *path, const struct backup_file *file, uint8_t *piece)
{
    struct stat status;
    uint32_t crc = 0;
    uint64_t left = file->size;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return errno == ENOENT ? "it is missing" : strerror(errno);
    if (fstat(fd, &status) != 0 || (uint64_t)status.st_size != file->size) {
        close(fd);
        return "it has another size than when it was written";
    }
    while (left > 0) {
        ssize_t got = read(fd, piece, left < PIECE ? (size_t)left : PIECE);
        if (got <= 0)
            break;
        crc = crc32c(crc, piece, (size_t)got);
        left -= (uint64_t)got;
    }
    close(fd);
    return left > 0 ? "it cannot be read to its end" : crc != file->crc ? "it is damaged: its checksum is not what it was" : NULL;
}

bool backup_check_files(const struct admin *admin, const char *folder, struct backup_manifest manifest)
{
    uint8_t *piece = malloc(PIECE);
    struct backup_file file;
    bool good = true;

    if (piece == NULL) {
        admin_fail(admin, "no memory");
        return false;
    }
    while (backup_manifest_next_file(&manifest, &file)) {
        char path[BACKUP_PATH_MAX];
        snprintf(path, sizeof path, "%s/%.*s", folder, file.name.size < 64 ? (int)file.name.size : 64, (const char *)file.name.data);
        const char *why = check_file(path, &file, piece);
        if (why != NULL)
            admin_fail(admin, "%s: %s", path, why);
        good = good && why == NULL;
    }
    free(piece);
    return good;
}
