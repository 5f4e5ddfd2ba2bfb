/* `mqadmin backup`: a copy of a running group's log in a new folder, with which a fresh group can start (docs/operations.md); `mqadmin checkBackup` reads one. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/admin/admin.h"
#include "client/admin/backup_check.h"
#include "client/admin/backup_copy.h"

#define PORTION (1u << 20)

struct broker {
    struct admin *admin;
    const char *address;
    struct remoting_response response;
    bool answered; /* response is open */
};

static void close_response(struct broker *broker)
{
    if (broker->answered)
        remoting_response_close(&broker->response);
    broker->answered = false;
}

static int invoke(void *context, int32_t code, const struct remoting_field *fields, struct remoting_command *answer, struct error *error)
{
    struct broker *broker = context;
    close_response(broker);
    int rv = remoting_client_invoke(broker->admin->client->remoting, broker->address, code, fields, NO_BODY, broker->admin->timeout_ms, &broker->response, error);
    broker->answered = rv == 0;
    if (rv == 0)
        *answer = broker->response.command;
    return rv;
}

static void pause_ms(void *context, int ms)
{
    (void)context;
    uv_sleep((unsigned)ms);
}

static int backup_from(struct admin *admin, const char *address)
{
    struct broker broker = {.admin = admin, .address = address};
    const struct backup_source source = {&broker, address, invoke, pause_ms};
    struct backup_copy copy = {.files = &backup_files_real, .source = &source, .folder = admin_text(admin, "folder"), .portion = BACKUP_PORTION_MAX};
    struct error error = {0};

    if (strlen(copy.folder) >= BACKUP_PATH_MAX - 64)
        return admin_usage(admin, "--folder is too long");
    if (!admin_connect(admin))
        return ADMIN_FAILED;
    int status = ADMIN_OK;
    if (backup_copy_make(&copy, &error) != 0)
        status = admin_fail(admin, "%s", error.message);
    else
        printf("%lld entries, %lld bytes, all checked, are in %s.\n", (long long)(copy.manifest.last_index - copy.manifest.first_index + 1),
               (long long)(copy.manifest.end_position - copy.manifest.first_position), copy.folder);
    backup_copy_close(&copy);
    close_response(&broker);
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
    const struct backup_files *files = &backup_files_real;
    uint8_t *room;
    ssize_t got = 1;
    intptr_t file;
    int rv = files->open(files->context, path, false, &file);
    while (rv == 0 && got > 0 && (room = buffer_reserve(text, PORTION)) != NULL) {
        got = files->read(files->context, file, room, PORTION, text->size);
        text->size += got > 0 ? (size_t)got : 0;
    }
    if (rv == 0)
        files->close(files->context, file);
    if (rv == 0 && got == 0)
        return true;
    admin_fail(admin, "%s: %s", path, text->failed ? "it is too large" : strerror(rv != 0 ? -rv : got < 0 ? (int)-got : EIO));
    return false;
}

static void tell(void *context, const char *text)
{
    admin_fail(context, "%s", text);
}

static int check_backup(struct admin *admin)
{
    const char *folder = admin_text(admin, "folder");
    struct backup_manifest manifest;
    char path[BACKUP_PATH_MAX];
    struct error error = {0};
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
        else if (backup_check_files(&backup_files_real, folder, manifest, tell, admin))
            status = backup_check_entries(&backup_files_real, folder, &manifest, &error) == 0 ? ADMIN_OK : admin_fail(admin, "%s", error.message);
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
