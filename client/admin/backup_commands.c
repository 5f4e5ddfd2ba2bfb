/* `mqadmin backup`: a copy of a running group's log in a new folder, with which a fresh group can start (docs/operations.md); `mqadmin checkBackup` reads one.
 *
 *  1. The leader says where the copy begins and ends, and gives the checkpoint of its end.
 *  2. Its metadata snapshot is read, then the log, from the oldest entry on, a portion at a time, into files like the broker's.
 *  3. Every entry is checked as a start would check it: place, chain and checksum.
 *  4. The manifest is written. What has none is no backup: when something fails, all that was written is removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "client/admin/backup_check.h"
#include "proto/ledger_entry.h" /* crc32c */
#include "proto/request_code.h"
#include "proto/response_code.h"

#define PORTION (1u << 20)
#define ATTEMPTS 100 /* a limit, a leader that changes meanwhile, another backup that was given up */
#define ATTEMPT_PAUSE_MS 100
#define NUMBER_MAX 24

static const char metadata_name[] = "metadata.0", checkpoint_name[] = "checkpoint", unfinished_name[] = BACKUP_MANIFEST_NAME ".tmp";

struct copy {
    struct admin *admin;
    const char *address;
    const char *folder;
    int64_t id, metadata_size, metadata_crc;
    struct backup_manifest manifest;
    struct buffer text; /* the manifest as it is written */
    struct buffer names; /* of the group and its members, to which the manifest points */
};

/* What may be cured by trying again is tried again. */
static bool ask(struct copy *copy, int32_t code, const struct remoting_field *fields, struct remoting_response *response)
{
    struct error error = {0};
    for (int i = 0; i < ATTEMPTS && admin_connect(copy->admin); i++) {
        int rv = remoting_client_invoke(copy->admin->client->remoting, copy->address, code, fields, NO_BODY, copy->admin->timeout_ms, response, &error);
        if (rv == 0 && response->command.code == RESPONSE_SUCCESS)
            return true;
        if (rv == 0) {
            bool again = response->command.code == RESPONSE_SERVICE_NOT_AVAILABLE;
            struct slice remark = response->command.remark;
            error_set(&error, ERROR_BUSY, "%s answers %d: %.*s", copy->address, response->command.code, remark.size < 300 ? (int)remark.size : 300,
                      remark.data == NULL ? "" : (const char *)remark.data);
            remoting_response_close(response);
            if (!again)
                break;
        }
        uv_sleep(ATTEMPT_PAUSE_MS);
    }
    admin_fail(copy->admin, "%s", error.message);
    return false;
}

/* ---- files ---- */

static void path_of(const struct copy *copy, const char *name, char out[BACKUP_PATH_MAX])
{
    snprintf(out, BACKUP_PATH_MAX, "%s/%s", copy->folder, name);
}

static bool failed(struct copy *copy, const char *path)
{
    admin_fail(copy->admin, "%s: %s", path, strerror(errno));
    return false;
}

static bool write_whole(int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, bytes, size);
        if (written < 0 && errno != EINTR)
            return false;
        if (written > 0) {
            bytes += written;
            size -= (size_t)written;
        }
    }
    return true;
}

static bool sync_dir(struct copy *copy, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    if (!good)
        failed(copy, path);
    if (fd >= 0)
        close(fd);
    return good;
}

static bool write_small(struct copy *copy, const char *name, struct slice content)
{
    char path[BACKUP_PATH_MAX];
    path_of(copy, name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool good = fd >= 0 && write_whole(fd, content.data, content.size) && fdatasync(fd) == 0;
    if (!good)
        failed(copy, path);
    if (fd >= 0)
        close(fd);
    return good;
}

/* ---- reading from the broker, into a file ---- */

struct source {
    bool metadata; /* of the snapshot, else of the log */
    int64_t position, size;
};

static bool ask_portion(struct copy *copy, const struct source *from, int64_t at, int64_t portion, struct remoting_response *response)
{
    char id[NUMBER_MAX], position[NUMBER_MAX], size[NUMBER_MAX];
    snprintf(id, sizeof id, "%lld", (long long)copy->id);
    snprintf(position, sizeof position, "%lld", (long long)(from->position + at));
    snprintf(size, sizeof size, "%lld", (long long)portion);
    const struct remoting_field fields[] = {{"backupId", id}, {"position", position}, {"size", size}, {from->metadata ? "metadata" : NULL, "true"}, {NULL, NULL}};
    if (!ask(copy, REQUEST_READ_BACKUP, fields, response))
        return false;
    if ((int64_t)response->command.body.size == portion)
        return true;
    admin_fail(copy->admin, "%zu bytes came at position %s instead of %s", response->command.body.size, position, size);
    remoting_response_close(response);
    return false;
}

static bool copy_to(struct copy *copy, const char *name, const struct source *from, uint32_t *crc)
{
    char path[BACKUP_PATH_MAX];
    path_of(copy, name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool good = fd >= 0 || failed(copy, path);
    *crc = 0;
    for (int64_t at = 0; good && at < from->size;) {
        int64_t portion = from->size - at < (int64_t)PORTION ? from->size - at : (int64_t)PORTION;
        struct remoting_response response;
        good = ask_portion(copy, from, at, portion, &response);
        if (!good)
            break;
        struct slice body = response.command.body;
        *crc = crc32c(*crc, body.data, body.size);
        good = write_whole(fd, body.data, body.size) || failed(copy, path);
        remoting_response_close(&response);
        at += portion;
    }
    if (good && fdatasync(fd) != 0)
        good = failed(copy, path);
    if (fd >= 0)
        close(fd);
    return good;
}

static bool copy_log(struct copy *copy)
{
    const struct backup_manifest *manifest = &copy->manifest;
    for (int64_t start = manifest->first_position; start < manifest->end_position; start += manifest->segment_size) {
        struct source segment = {false, start, backup_manifest_segment_bytes(manifest, start)};
        char name[BACKUP_PATH_MAX];
        uint32_t crc;
        backup_segment_path(NULL, start, name);
        if (!copy_to(copy, name, &segment, &crc))
            return false;
        backup_manifest_file(&copy->text, name, (uint64_t)segment.size, crc);
    }
    return true;
}

static bool copy_metadata(struct copy *copy, uint32_t *crc)
{
    struct source snapshot = {true, 0, copy->metadata_size};
    if (!copy_to(copy, metadata_name, &snapshot, crc))
        return false;
    if (*crc == (uint32_t)copy->metadata_crc)
        return true;
    admin_fail(copy->admin, "the metadata snapshot was damaged on its way");
    return false;
}

/* ---- beginning and end ---- */

static bool ext_number(const struct remoting_response *response, const char *name, int64_t *value)
{
    struct slice text = remoting_ext(&response->command, name);
    return text.data != NULL && slice_to_i64(text, value) && *value >= 0;
}

static bool read_begin(struct copy *copy, const struct remoting_response *response)
{
    struct backup_manifest *manifest = &copy->manifest;
    struct slice group = remoting_ext(&response->command, "group"), members = remoting_ext(&response->command, "members");
    bool good = ext_number(response, "backupId", &copy->id) && ext_number(response, "segmentSize", &manifest->segment_size) &&
                ext_number(response, "firstIndex", &manifest->first_index) && ext_number(response, "lastIndex", &manifest->last_index) &&
                ext_number(response, "firstPosition", &manifest->first_position) && ext_number(response, "endPosition", &manifest->end_position) &&
                ext_number(response, "firstHeaderCrc", &manifest->first_header_crc) && ext_number(response, "term", &manifest->term) &&
                ext_number(response, "metadataSize", &copy->metadata_size) && ext_number(response, "metadataCrc", &copy->metadata_crc) &&
                group.data != NULL && members.data != NULL && manifest->segment_size > 0 && manifest->first_position % manifest->segment_size == 0 &&
                manifest->end_position > manifest->first_position;
    if (good) {
        buffer_append_slice(&copy->names, group);
        buffer_append_slice(&copy->names, members);
        good = !copy->names.failed;
        manifest->group = slice_of(copy->names.data, group.size);
        manifest->members = slice_of(copy->names.data + group.size, members.size);
    }
    if (!good)
        admin_fail(copy->admin, "%s does not say what its log is: it is of another version than this mqadmin", copy->address);
    return good;
}

static bool has_room(struct copy *copy)
{
    struct statvfs space;
    int64_t needed = copy->manifest.end_position - copy->manifest.first_position + copy->metadata_size + (int64_t)PORTION;
    if (statvfs(copy->folder, &space) != 0)
        return failed(copy, copy->folder);
    if ((uint64_t)space.f_bavail * space.f_frsize >= (uint64_t)needed)
        return true;
    admin_fail(copy->admin, "%s: no space left on device: %lld MiB are needed and %llu MiB are free", copy->folder, (long long)(needed >> 20),
               (unsigned long long)(((uint64_t)space.f_bavail * space.f_frsize) >> 20));
    return false;
}

static bool finish(struct copy *copy)
{
    char from[BACKUP_PATH_MAX], to[BACKUP_PATH_MAX], data[BACKUP_PATH_MAX], parent[BACKUP_PATH_MAX];
    backup_manifest_end(&copy->text);
    if (copy->text.failed) {
        admin_fail(copy->admin, "no memory");
        return false;
    }
    path_of(copy, unfinished_name, from);
    path_of(copy, BACKUP_MANIFEST_NAME, to);
    path_of(copy, "data", data);
    path_of(copy, "..", parent);
    if (!sync_dir(copy, data) || !write_small(copy, unfinished_name, buffer_slice(&copy->text)))
        return false;
    if (rename(from, to) != 0)
        return failed(copy, to);
    return sync_dir(copy, copy->folder) && sync_dir(copy, parent);
}

static bool copy_all(struct copy *copy)
{
    const struct remoting_field version[] = {{"backupVersion", "2"}, {NULL, NULL}};
    _Static_assert(BACKUP_VERSION == 2, "backupVersion");
    struct remoting_response response;
    uint32_t metadata_crc = 0, checkpoint_crc;

    if (!ask(copy, REQUEST_BEGIN_BACKUP, version, &response))
        return false;
    struct slice checkpoint = response.command.body;
    bool good = read_begin(copy, &response) && has_room(copy) && write_small(copy, checkpoint_name, checkpoint);
    size_t checkpoint_size = checkpoint.size;
    checkpoint_crc = crc32c(0, checkpoint.data, checkpoint.size);
    remoting_response_close(&response);
    if (!good)
        return false;
    backup_manifest_begin(&copy->text, &copy->manifest);
    if (!copy_metadata(copy, &metadata_crc) || !copy_log(copy))
        return false;
    backup_manifest_file(&copy->text, metadata_name, (uint64_t)copy->metadata_size, metadata_crc);
    backup_manifest_file(&copy->text, checkpoint_name, checkpoint_size, checkpoint_crc);
    return backup_check_entries(copy->admin, copy->folder, &copy->manifest) && finish(copy);
}

/* Else the broker would wait for more, and refuse another backup so long. Once: it may be gone itself. */
static void tell_broker(struct copy *copy)
{
    char id[NUMBER_MAX];
    snprintf(id, sizeof id, "%lld", (long long)copy->id);
    const struct remoting_field fields[] = {{"backupId", id}, {"giveUp", "true"}, {NULL, NULL}};
    struct remoting_response response;
    struct error ignored;
    if (copy->id != 0 && admin_connect(copy->admin) &&
        remoting_client_invoke(copy->admin->client->remoting, copy->address, REQUEST_READ_BACKUP, fields, NO_BODY, copy->admin->timeout_ms, &response, &ignored) == 0)
        remoting_response_close(&response);
}

/* All that it may have written. */
static void remove_all(const struct copy *copy)
{
    const char *const names[] = {BACKUP_MANIFEST_NAME, unfinished_name, metadata_name, checkpoint_name};
    char path[BACKUP_PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(copy, names[i], path);
        unlink(path);
    }
    for (int64_t start = copy->manifest.first_position; start < copy->manifest.end_position; start += copy->manifest.segment_size) {
        backup_segment_path(copy->folder, start, path);
        if (unlink(path) != 0)
            break; /* they are made in this order */
    }
    path_of(copy, "data", path);
    if (rmdir(path) != 0 || rmdir(copy->folder) != 0)
        admin_fail(copy->admin, "%s: what was written cannot be removed: %s; it is no backup", copy->folder, strerror(errno));
}

static int make_folder(struct copy *copy)
{
    char path[BACKUP_PATH_MAX];
    if (mkdir(copy->folder, 0755) != 0) {
        int reason = errno;
        path_of(copy, BACKUP_MANIFEST_NAME, path);
        return admin_fail(copy->admin, "%s: %s; a backup is written into a new folder%s", copy->folder, strerror(reason),
                          reason == EEXIST && access(path, F_OK) != 0 ? ". This one holds no whole backup: remove it if an interrupted one left it" : "");
    }
    path_of(copy, "data", path);
    if (mkdir(path, 0755) == 0)
        return ADMIN_OK;
    admin_fail(copy->admin, "%s: %s", path, strerror(errno));
    rmdir(copy->folder);
    return ADMIN_FAILED;
}

static int backup_from(struct admin *admin, const char *address)
{
    struct copy copy = {.admin = admin, .address = address, .folder = admin_text(admin, "folder")};
    if (strlen(copy.folder) >= BACKUP_PATH_MAX - 64)
        return admin_usage(admin, "--folder is too long");
    int status = make_folder(&copy);
    if (status != ADMIN_OK)
        return status;
    buffer_init(&copy.text, BACKUP_MANIFEST_MAX);
    buffer_init(&copy.names, 0);
    if (copy_all(&copy)) {
        printf("%lld entries, %lld bytes, all checked, are in %s.\n", (long long)(copy.manifest.last_index - copy.manifest.first_index + 1),
               (long long)(copy.manifest.end_position - copy.manifest.first_position), copy.folder);
    } else {
        tell_broker(&copy);
        remove_all(&copy);
        status = ADMIN_FAILED;
    }
    buffer_close(&copy.text);
    buffer_close(&copy.names);
    return status;
}

static int backup(struct admin *admin)
{
    struct admin_targets targets;
    int status = ADMIN_FAILED;
    if (!admin_targets(admin, false, true, &targets, &status))
        return status;
    if (targets.count != 1)
        status = admin_usage(admin, "there are %zu groups: name a broker with --brokerAddr", targets.count);
    else
        status = backup_from(admin, targets.all[0].address);
    admin_targets_free(&targets);
    return status;
}

static bool read_manifest(struct admin *admin, const char *path, struct buffer *text)
{
    uint8_t *room;
    ssize_t got = 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && got > 0 && (room = buffer_reserve(text, PORTION)) != NULL) {
        got = read(fd, room, PORTION);
        text->size += got > 0 ? (size_t)got : 0;
    }
    bool good = fd >= 0 && got == 0;
    if (!good)
        admin_fail(admin, "%s: %s", path, text->failed ? "it is too large" : strerror(errno));
    if (fd >= 0)
        close(fd);
    return good;
}

static int check_backup(struct admin *admin)
{
    const char *folder = admin_text(admin, "folder");
    struct backup_manifest manifest;
    char path[BACKUP_PATH_MAX];
    struct buffer text;
    uint32_t version;
    int status = ADMIN_FAILED;

    if ((size_t)snprintf(path, sizeof path, "%s/" BACKUP_MANIFEST_NAME, folder) >= sizeof path - 64)
        return admin_usage(admin, "--folder is too long");
    buffer_init(&text, BACKUP_MANIFEST_MAX);
    if (read_manifest(admin, path, &text)) {
        int rv = backup_manifest_read(buffer_slice(&text), &manifest, &version);
        if (rv == ERROR_VERSION)
            admin_fail(admin, "%s is of version %u, this program knows %u", path, version, BACKUP_VERSION);
        else if (rv != 0)
            admin_fail(admin, "%s: it is damaged", path);
        else if (backup_check_files(admin, folder, manifest) && backup_check_entries(admin, folder, &manifest))
            status = ADMIN_OK;
    }
    if (status == ADMIN_OK)
        printf("%s is whole: group %.*s of %.*s, entries %lld to %lld.\n", folder, (int)manifest.group.size, (const char *)manifest.group.data,
               (int)manifest.members.size, (const char *)manifest.members.data, (long long)manifest.first_index, (long long)manifest.last_index);
    buffer_close(&text);
    return status;
}

static const struct admin_option backup_options[] = {
    {'f', "folder", "FOLDER", true, "a new folder on this machine"},
    {'b', "brokerAddr", "ADDRESS", false, "the group's leader, instead of asking the name server"},
    {'c', "clusterName", "CLUSTER", false, "of this cluster"},
    {0, NULL, NULL, false, NULL},
};

static const struct admin_option check_options[] = {
    {'f', "folder", "FOLDER", true, "what mqadmin backup has written"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command backup_commands[] = {
    {"backup", "Copy the log of a running group into a new folder", backup_options, backup,
     "Holds everything that was acknowledged before it began and that retention has not deleted. The group goes on; what is deleted meanwhile is in\n"
     "the copy all the same. Brokers give it to members' machines only: run it on one of them.\n\n"
     "Exit status: 0, the backup is whole, on stable storage and checked; 1, there is none, and what was written has been removed (the folder's disk is full,\n"
     "the group has no leader, retention removed something after a change of leader: run it again); 2, wrong usage. A folder without the file\n"
     "\"" BACKUP_MANIFEST_NAME "\" is no backup.\n\n"
     "To restore: copy the folder to storePathRootDir/restore of each member of a fresh group, and start them (docs/operations.md)."},
    {"checkBackup", "Read a backup and say whether it is whole", check_options, check_backup,
     "Exit status: 0, every file and every entry is what it was; 1, a file is damaged or missing, which is named; 2, wrong usage."},
    {NULL, NULL, NULL, NULL, NULL},
};
