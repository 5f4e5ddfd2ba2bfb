#include "proto/backup_manifest.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/error.h"
#include "proto/ledger_entry.h" /* crc32c */

#define MAGIC "ledgermq-backup "
#define FILE_LINE "file "
#define CRC_LINE "crc32c "

struct row {
    const char *name;
    size_t offset;
    bool number;
};
#define TEXT(field, word) {word, offsetof(struct backup_manifest, field), false}
#define NUMBER(field, word) {word, offsetof(struct backup_manifest, field), true}
static const struct row rows[] = {
    TEXT(group, "group"),
    TEXT(members, "members"),
    NUMBER(segment_size, "segmentSize"),
    NUMBER(first_index, "firstIndex"),
    NUMBER(last_index, "lastIndex"),
    NUMBER(first_position, "firstPosition"),
    NUMBER(end_position, "endPosition"),
    NUMBER(first_header_crc, "firstHeaderCrc"),
    NUMBER(term, "term"),
};
#define ROWS (sizeof rows / sizeof *rows)

void backup_manifest_begin(struct buffer *out, const struct backup_manifest *manifest)
{
    buffer_append_format(out, MAGIC "%u\n", BACKUP_VERSION);
    for (size_t i = 0; i < ROWS; i++) {
        const void *field = (const uint8_t *)manifest + rows[i].offset;
        buffer_append_format(out, "%s ", rows[i].name);
        if (rows[i].number)
            buffer_append_format(out, "%lld", (long long)*(const int64_t *)field);
        else
            buffer_append_slice(out, *(const struct slice *)field);
        buffer_append_text(out, "\n");
    }
}

void backup_manifest_file(struct buffer *out, const char *name, uint64_t size, uint32_t crc)
{
    buffer_append_format(out, FILE_LINE "%08x %llu %s\n", crc, (unsigned long long)size, name);
}

void backup_manifest_end(struct buffer *out)
{
    buffer_append_format(out, CRC_LINE "%08x\n", crc32c(0, out->data, out->size));
}

/* Eight hexadecimal digits. */
static bool read_crc(struct slice text, uint32_t *crc)
{
    *crc = 0;
    for (size_t i = 0; i < text.size; i++) {
        uint8_t c = text.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        *crc = *crc << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return text.size == 8;
}

/* What is behind `word` in the next line. */
static bool next_line(struct slice *text, const char *word, struct slice *rest)
{
    struct slice line = slice_next_part(text, '\n');
    size_t size = strlen(word);

    if (!slice_starts_with(line, word))
        return false;
    *rest = slice_of(line.data + size, line.size - size);
    return true;
}

static bool is_whole(struct slice text, struct slice *lines)
{
    size_t last = sizeof CRC_LINE - 1 + 8 + 1;
    uint32_t crc;

    if (text.size < last || text.data[text.size - 1] != '\n')
        return false;
    *lines = slice_of(text.data, text.size - last);
    struct slice end = slice_of(text.data + lines->size, last - 1);
    return slice_starts_with(end, CRC_LINE) && read_crc(slice_of(end.data + sizeof CRC_LINE - 1, 8), &crc) && crc == crc32c(0, lines->data, lines->size);
}

int backup_manifest_read(struct slice text, struct backup_manifest *manifest, uint32_t *version)
{
    struct slice lines, value;
    int64_t number;

    memset(manifest, 0, sizeof *manifest);
    *version = 0;
    if (!is_whole(text, &lines) || !next_line(&lines, MAGIC, &value) || !slice_to_i64(value, &number) || number <= 0 || number > UINT32_MAX)
        return ERROR_DAMAGED;
    *version = (uint32_t)number;
    if (*version != BACKUP_VERSION)
        return ERROR_VERSION;
    for (size_t i = 0; i < ROWS; i++) {
        void *field = (uint8_t *)manifest + rows[i].offset;
        struct slice rest;
        if (!next_line(&lines, rows[i].name, &rest) || rest.size == 0 || rest.data[0] != ' ')
            return ERROR_DAMAGED;
        value = slice_of(rest.data + 1, rest.size - 1);
        if (!rows[i].number)
            *(struct slice *)field = value;
        else if (!slice_to_i64(value, field) || *(int64_t *)field < 0)
            return ERROR_DAMAGED;
    }
    if (manifest->segment_size == 0 || manifest->first_position % manifest->segment_size != 0 || manifest->end_position <= manifest->first_position ||
        manifest->end_position > INT64_MAX - manifest->segment_size || manifest->last_index < manifest->first_index)
        return ERROR_DAMAGED;
    manifest->files = lines;
    return 0;
}

bool backup_manifest_next_file(struct backup_manifest *manifest, struct backup_file *file)
{
    struct slice line, size;
    int64_t number;

    if (!next_line(&manifest->files, FILE_LINE, &line) || line.size < 9 || !read_crc(slice_of(line.data, 8), &file->crc))
        return false;
    line = slice_of(line.data + 9, line.size - 9);
    size = slice_next_part(&line, ' ');
    if (size.size == 0 || !slice_to_i64(size, &number) || number < 0 || line.size == 0)
        return false;
    file->size = (uint64_t)number;
    file->name = line;
    return true;
}

int64_t backup_manifest_segment_bytes(const struct backup_manifest *manifest, int64_t start)
{
    int64_t left = manifest->end_position - start;
    return left < manifest->segment_size ? left : manifest->segment_size;
}
