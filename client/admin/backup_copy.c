#include "client/admin/backup_copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/admin/backup_check.h"
#include "proto/ledger_entry.h" /* crc32c */
#include "proto/request_code.h"
#include "proto/response_code.h"

#define ATTEMPTS 100 /* a limit, a leader that changes meanwhile, another backup that was given up */
#define ATTEMPT_PAUSE_MS 100
#define NUMBER_MAX 24

static const char metadata_name[] = "metadata.0", checkpoint_name[] = "checkpoint", unfinished_name[] = BACKUP_MANIFEST_NAME ".tmp";

static int ask(struct backup_copy *copy, int32_t code, const struct remoting_field *fields, struct remoting_command *answer)
{
    const struct backup_source *source = copy->source;
    struct error error = {0};
    for (int i = 0; i < ATTEMPTS; i++) {
        if (i > 0)
            source->pause(source->context, ATTEMPT_PAUSE_MS);
        if (source->invoke(source->context, code, fields, answer, &error) != 0)
            continue;
        if (answer->code == RESPONSE_SUCCESS)
            return 0;
        error_set(&error, ERROR_BUSY, "%s answers %d: %.*s", source->address, answer->code, answer->remark.size < 300 ? (int)answer->remark.size : 300,
                  answer->remark.data == NULL ? "" : (const char *)answer->remark.data);
        if (answer->code != RESPONSE_SERVICE_NOT_AVAILABLE)
            break;
    }
    return error_set(copy->error, error.code, "%s", error.message);
}

/* ---- files ---- */

static void path_of(const struct backup_copy *copy, const char *name, char out[BACKUP_PATH_MAX])
{
    snprintf(out, BACKUP_PATH_MAX, "%s/%s", copy->folder, name);
}

static int failed(struct backup_copy *copy, const char *path, int rv)
{
    return error_set(copy->error, rv == -ENOSPC ? ERROR_NO_SPACE : ERROR_IO, "%s: %s", path, strerror(-rv));
}

static int sync_dir(struct backup_copy *copy, const char *path)
{
    int rv = copy->files->sync_dir(copy->files->context, path);
    return rv == 0 ? 0 : failed(copy, path, rv);
}

static int write_small(struct backup_copy *copy, const char *name, struct slice content)
{
    const struct backup_files *files = copy->files;
    char path[BACKUP_PATH_MAX];
    intptr_t file;
    path_of(copy, name, path);
    int rv = files->open(files->context, path, true, &file);
    if (rv == 0) {
        rv = files->write(files->context, file, content.data, content.size, 0);
        if (rv == 0)
            rv = files->sync(files->context, file);
        files->close(files->context, file);
    }
    return rv == 0 ? 0 : failed(copy, path, rv);
}

/* ---- reading from the broker, into a file ---- */

struct piece {
    bool metadata; /* of the snapshot, else of the log */
    int64_t position, size;
};

static int ask_portion(struct backup_copy *copy, const struct piece *from, int64_t at, int64_t portion, struct remoting_command *answer)
{
    char id[NUMBER_MAX], position[NUMBER_MAX], size[NUMBER_MAX];
    snprintf(id, sizeof id, "%lld", (long long)copy->id);
    snprintf(position, sizeof position, "%lld", (long long)(from->position + at));
    snprintf(size, sizeof size, "%lld", (long long)portion);
    const struct remoting_field fields[] = {{"backupId", id}, {"position", position}, {"size", size}, {from->metadata ? "metadata" : NULL, "true"}, {NULL, NULL}};
    int rv = ask(copy, REQUEST_READ_BACKUP, fields, answer);
    if (rv == 0 && (int64_t)answer->body.size != portion)
        rv = error_set(copy->error, ERROR_MALFORMED, "%zu bytes came at position %s instead of %s", answer->body.size, position, size);
    return rv;
}

static int copy_to(struct backup_copy *copy, const char *name, const struct piece *from, uint32_t *crc)
{
    const struct backup_files *files = copy->files;
    char path[BACKUP_PATH_MAX];
    intptr_t file;
    path_of(copy, name, path);
    *crc = 0;
    int rv = files->open(files->context, path, true, &file);
    if (rv != 0)
        return failed(copy, path, rv);
    for (int64_t at = 0; rv == 0 && at < from->size;) {
        int64_t portion = from->size - at < (int64_t)copy->portion ? from->size - at : (int64_t)copy->portion;
        struct remoting_command answer;
        rv = ask_portion(copy, from, at, portion, &answer);
        if (rv != 0)
            break;
        *crc = crc32c(*crc, answer.body.data, answer.body.size);
        rv = files->write(files->context, file, answer.body.data, answer.body.size, (uint64_t)at);
        rv = rv == 0 ? 0 : failed(copy, path, rv);
        at += portion;
    }
    if (rv == 0) {
        rv = files->sync(files->context, file);
        rv = rv == 0 ? 0 : failed(copy, path, rv);
    }
    files->close(files->context, file);
    return rv;
}

static int copy_log(struct backup_copy *copy)
{
    const struct backup_manifest *manifest = &copy->manifest;
    int rv = 0;
    for (int64_t start = manifest->first_position; rv == 0 && start < manifest->end_position; start += manifest->segment_size) {
        struct piece segment = {false, start, backup_manifest_segment_bytes(manifest, start)};
        char name[BACKUP_PATH_MAX];
        uint32_t crc;
        backup_segment_path(NULL, start, name);
        rv = copy_to(copy, name, &segment, &crc);
        if (rv == 0)
            backup_manifest_file(&copy->text, name, (uint64_t)segment.size, crc);
    }
    return rv;
}

static int copy_metadata(struct backup_copy *copy, uint32_t *crc)
{
    struct piece snapshot = {true, 0, copy->metadata_size};
    int rv = copy_to(copy, metadata_name, &snapshot, crc);
    if (rv == 0 && *crc != (uint32_t)copy->metadata_crc)
        rv = error_set(copy->error, ERROR_DAMAGED, "the metadata snapshot was damaged on its way");
    return rv;
}

/* ---- beginning and end ---- */

static bool ext_number(const struct remoting_command *answer, const char *name, int64_t *value)
{
    struct slice text = remoting_ext(answer, name);
    return text.data != NULL && slice_to_i64(text, value) && *value >= 0;
}

static int read_begin(struct backup_copy *copy, const struct remoting_command *answer)
{
    struct backup_manifest *manifest = &copy->manifest;
    struct slice group = remoting_ext(answer, "group"), members = remoting_ext(answer, "members");
    bool good = ext_number(answer, "backupId", &copy->id) && ext_number(answer, "segmentSize", &manifest->segment_size) &&
                ext_number(answer, "firstIndex", &manifest->first_index) && ext_number(answer, "lastIndex", &manifest->last_index) &&
                ext_number(answer, "firstPosition", &manifest->first_position) && ext_number(answer, "endPosition", &manifest->end_position) &&
                ext_number(answer, "firstHeaderCrc", &manifest->first_header_crc) && ext_number(answer, "term", &manifest->term) &&
                ext_number(answer, "metadataSize", &copy->metadata_size) && ext_number(answer, "metadataCrc", &copy->metadata_crc) &&
                group.data != NULL && members.data != NULL && manifest->segment_size > 0 && manifest->first_position % manifest->segment_size == 0 &&
                manifest->end_position > manifest->first_position;
    if (good) {
        buffer_append_slice(&copy->names, group);
        buffer_append_slice(&copy->names, members);
        good = !copy->names.failed;
        manifest->group = slice_of(copy->names.data, group.size);
        manifest->members = slice_of(copy->names.data + group.size, members.size);
    }
    return good ? 0 : error_set(copy->error, ERROR_MALFORMED, "%s does not say what its log is: it is of another version than this mqadmin", copy->source->address);
}

static int look_for_room(struct backup_copy *copy)
{
    uint64_t room;
    int64_t needed = copy->manifest.end_position - copy->manifest.first_position + copy->metadata_size + (int64_t)BACKUP_PORTION_MAX;
    int rv = copy->files->room(copy->files->context, copy->folder, &room);
    if (rv != 0)
        return failed(copy, copy->folder, rv);
    if (room >= (uint64_t)needed)
        return 0;
    return error_set(copy->error, ERROR_NO_SPACE, "%s: no space left on device: %lld MiB are needed and %llu MiB are free", copy->folder, (long long)(needed >> 20),
                     (unsigned long long)(room >> 20));
}

static int finish(struct backup_copy *copy)
{
    char from[BACKUP_PATH_MAX], to[BACKUP_PATH_MAX], data[BACKUP_PATH_MAX], parent[BACKUP_PATH_MAX];
    backup_manifest_end(&copy->text);
    if (copy->text.failed)
        return error_set(copy->error, ERROR_NO_MEMORY, "%s", error_text(ERROR_NO_MEMORY));
    path_of(copy, unfinished_name, from);
    path_of(copy, BACKUP_MANIFEST_NAME, to);
    path_of(copy, "data", data);
    path_of(copy, "..", parent);
    int rv = sync_dir(copy, data);
    if (rv == 0)
        rv = write_small(copy, unfinished_name, buffer_slice(&copy->text));
    if (rv != 0)
        return rv;
    rv = copy->files->rename(copy->files->context, from, to);
    if (rv != 0)
        return failed(copy, to, rv);
    rv = sync_dir(copy, copy->folder);
    return rv == 0 ? sync_dir(copy, parent) : rv;
}

static int copy_all(struct backup_copy *copy)
{
    const struct remoting_field version[] = {{"backupVersion", "2"}, {NULL, NULL}};
    _Static_assert(BACKUP_VERSION == 2, "backupVersion");
    struct remoting_command answer;
    uint32_t metadata_crc = 0;

    int rv = ask(copy, REQUEST_BEGIN_BACKUP, version, &answer);
    if (rv == 0)
        rv = read_begin(copy, &answer);
    if (rv == 0)
        rv = look_for_room(copy);
    if (rv == 0)
        rv = write_small(copy, checkpoint_name, answer.body);
    if (rv != 0)
        return rv;
    size_t checkpoint_size = answer.body.size;
    uint32_t checkpoint_crc = crc32c(0, answer.body.data, answer.body.size);
    backup_manifest_begin(&copy->text, &copy->manifest);
    rv = copy_metadata(copy, &metadata_crc);
    if (rv == 0)
        rv = copy_log(copy);
    if (rv != 0)
        return rv;
    backup_manifest_file(&copy->text, metadata_name, (uint64_t)copy->metadata_size, metadata_crc);
    backup_manifest_file(&copy->text, checkpoint_name, checkpoint_size, checkpoint_crc);
    rv = backup_check_entries(copy->files, copy->folder, &copy->manifest, copy->error);
    return rv == 0 ? finish(copy) : rv;
}

/* Else the broker would wait for more, and refuse another backup so long. Once: it may be gone itself. */
static void tell_broker(struct backup_copy *copy)
{
    char id[NUMBER_MAX];
    snprintf(id, sizeof id, "%lld", (long long)copy->id);
    const struct remoting_field fields[] = {{"backupId", id}, {"giveUp", "true"}, {NULL, NULL}};
    struct remoting_command answer;
    struct error ignored;
    if (copy->id != 0)
        copy->source->invoke(copy->source->context, REQUEST_READ_BACKUP, fields, &answer, &ignored);
}

/* All that it may have written. */
static int remove_all(const struct backup_copy *copy)
{
    const char *const names[] = {BACKUP_MANIFEST_NAME, unfinished_name, metadata_name, checkpoint_name};
    const struct backup_files *files = copy->files;
    char path[BACKUP_PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(copy, names[i], path);
        files->unlink(files->context, path);
    }
    for (int64_t start = copy->manifest.first_position; start < copy->manifest.end_position; start += copy->manifest.segment_size) {
        backup_segment_path(copy->folder, start, path);
        if (files->unlink(files->context, path) != 0)
            break; /* they are made in this order */
    }
    path_of(copy, "data", path);
    int rv = files->remove_dir(files->context, path);
    return rv == 0 ? files->remove_dir(files->context, copy->folder) : rv;
}

static int make_folder(struct backup_copy *copy)
{
    const struct backup_files *files = copy->files;
    char path[BACKUP_PATH_MAX];
    intptr_t file;
    int rv = files->make_dir(files->context, copy->folder);
    if (rv != 0) {
        path_of(copy, BACKUP_MANIFEST_NAME, path);
        bool whole = rv == -EEXIST && files->open(files->context, path, false, &file) == 0;
        if (whole)
            files->close(files->context, file);
        return error_set(copy->error, rv == -EEXIST ? ERROR_EXISTS : ERROR_IO, "%s: %s; a backup is written into a new folder%s", copy->folder, strerror(-rv),
                         rv == -EEXIST && !whole ? ". This one holds no whole backup: remove it if an interrupted one left it" : "");
    }
    path_of(copy, "data", path);
    rv = files->make_dir(files->context, path);
    if (rv == 0)
        return 0;
    files->remove_dir(files->context, copy->folder);
    return failed(copy, path, rv);
}

int backup_copy_make(struct backup_copy *copy, struct error *error)
{
    copy->error = error;
    copy->id = 0;
    memset(&copy->manifest, 0, sizeof copy->manifest);
    buffer_init(&copy->text, BACKUP_MANIFEST_MAX);
    buffer_init(&copy->names, 0);
    if (strlen(copy->folder) >= BACKUP_PATH_MAX - 64)
        return error_set(error, ERROR_INVALID, "the folder's path is too long");
    int rv = make_folder(copy);
    if (rv != 0)
        return rv;
    rv = copy_all(copy);
    if (rv == 0)
        return 0;
    tell_broker(copy);
    int left = remove_all(copy);
    if (left != 0)
        error_wrap(error, "%s: what was written cannot be removed (%s), and is no backup; it failed since", copy->folder, strerror(-left));
    return rv;
}

void backup_copy_close(struct backup_copy *copy)
{
    buffer_close(&copy->text);
    buffer_close(&copy->names);
}
