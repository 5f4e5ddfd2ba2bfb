/* `mqadmin backup`: a copy of a running group's log in a new folder, with which a fresh group can start (docs/operations.md).
 *
 *  1. The leader says where the copy ends and gives the two small files beside the log.
 *  2. The log is read a portion at a time and written into files like the broker's.
 *  3. Every entry is checked as a start would check it: place, chain and checksum.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/admin/admin.h"
#include "proto/ledger_entry.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

#define PORTION (1u << 20)
#define ATTEMPTS 50 /* a limit, or a leader that changes meanwhile */
#define ATTEMPT_PAUSE_MS 100

struct copy {
    struct admin *admin;
    const char *address;
    const char *folder;
    int64_t end, segment_size, last_index;
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

static bool write_small(struct copy *copy, const char *name, struct slice content)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", copy->folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool good = fd >= 0 && write_whole(fd, content.data, content.size) && fsync(fd) == 0;
    if (!good)
        failed(copy, path);
    if (fd >= 0)
        close(fd);
    return good;
}

static void segment_path(const struct copy *copy, int64_t start, char out[4096])
{
    snprintf(out, 4096, "%s/data/%020lld", copy->folder, (long long)start);
}

/* One file of the log, as far as the copy goes; full size, as a broker has it. */
static bool copy_segment(struct copy *copy, int64_t start)
{
    char path[4096];
    int64_t end = start + copy->segment_size < copy->end ? start + copy->segment_size : copy->end;
    segment_path(copy, start, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool good = fd >= 0;
    if (!good)
        failed(copy, path);
    for (int64_t at = start; good && at < end;) {
        char position[24], size[24];
        int64_t portion = end - at < (int64_t)PORTION ? end - at : (int64_t)PORTION;
        struct remoting_response response;
        snprintf(position, sizeof position, "%lld", (long long)at);
        snprintf(size, sizeof size, "%lld", (long long)portion);
        const struct remoting_field fields[] = {{"position", position}, {"size", size}, {NULL, NULL}};
        good = ask(copy, REQUEST_READ_BACKUP, fields, &response);
        if (!good)
            break;
        struct slice body = response.command.body;
        if ((int64_t)body.size != portion) {
            admin_fail(copy->admin, "%zu bytes came at position %lld instead of %lld", body.size, (long long)at, (long long)portion);
            good = false;
        } else if (!write_whole(fd, body.data, body.size)) {
            good = failed(copy, path);
        }
        remoting_response_close(&response);
        at += portion;
    }
    if (good && (ftruncate(fd, copy->segment_size) != 0 || fsync(fd) != 0))
        good = failed(copy, path);
    if (fd >= 0)
        close(fd);
    return good;
}

/* Walks over the entries that were written. */
static bool verify(struct copy *copy)
{
    uint8_t *bytes = malloc(LEDGER_ENTRY_SIZE_MAX);
    char path[4096] = "";
    const char *why = bytes == NULL ? "no memory" : NULL;
    struct ledger_entry entry;
    int64_t at = 0, next_index = 0;
    uint32_t chain = 0;
    int fd = -1;
    while (why == NULL && at < copy->end) {
        int64_t offset = at % copy->segment_size;
        if (offset == 0 || fd < 0) {
            if (fd >= 0)
                close(fd);
            segment_path(copy, at - offset, path);
            fd = open(path, O_RDONLY | O_CLOEXEC);
        }
        if (fd < 0 || pread(fd, bytes, LEDGER_BLANK_SIZE, offset) != (ssize_t)LEDGER_BLANK_SIZE) {
            why = "cannot be read again";
        } else if (ledger_is_blank(bytes)) {
            at += copy->segment_size - offset;
        } else if (pread(fd, bytes, LEDGER_ENTRY_HEADER_SIZE, offset) != (ssize_t)LEDGER_ENTRY_HEADER_SIZE ||
                   ledger_entry_decode(&entry, bytes) != 0 || entry.position != (uint64_t)at || entry.index != (uint64_t)next_index ||
                   ledger_entry_chain(bytes, chain) != entry.chain_crc) {
            why = "an entry's header is not valid";
        } else if (pread(fd, bytes, entry.body_size, offset + LEDGER_ENTRY_HEADER_SIZE) != (ssize_t)entry.body_size ||
                   !ledger_entry_body_ok(&entry, bytes)) {
            why = "an entry's body is not valid";
        } else {
            chain = entry.chain_crc;
            next_index++;
            at += ledger_entry_size(&entry);
        }
    }
    if (why == NULL && next_index != copy->last_index + 1)
        why = "entries are missing";
    if (why != NULL)
        admin_fail(copy->admin, "%s at position %lld: %s", path, (long long)at, why);
    if (fd >= 0)
        close(fd);
    free(bytes);
    return why == NULL;
}

static bool ext_number(const struct remoting_response *response, const char *name, int64_t *value)
{
    struct slice text = remoting_ext(&response->command, name);
    return text.data != NULL && slice_to_i64(text, value) && *value >= 0;
}

static int backup_from(struct admin *admin, const char *address)
{
    struct copy copy = {.admin = admin, .address = address, .folder = admin_text(admin, "folder")};
    struct remoting_response response;
    char path[4096];
    int64_t vote_size = 0;
    if ((size_t)snprintf(path, sizeof path, "%s/data", copy.folder) >= sizeof path - 64)
        return admin_usage(admin, "--folder is too long");
    if (mkdir(copy.folder, 0755) != 0)
        return admin_fail(admin, "%s: %s; a backup is written into a new folder", copy.folder, strerror(errno));
    if (mkdir(path, 0755) != 0)
        return admin_fail(admin, "%s: %s", path, strerror(errno));
    if (!ask(&copy, REQUEST_BEGIN_BACKUP, NULL, &response))
        return ADMIN_FAILED;
    struct slice body = response.command.body;
    bool good = ext_number(&response, "endPosition", &copy.end) && ext_number(&response, "segmentSize", &copy.segment_size) &&
                ext_number(&response, "lastIndex", &copy.last_index) && ext_number(&response, "voteSize", &vote_size) && copy.segment_size > 0 &&
                vote_size <= (int64_t)body.size;
    if (!good)
        admin_fail(admin, "%s does not say how long its log is", address);
    good = good && write_small(&copy, "vote", slice_of(body.data, (size_t)vote_size)) &&
           write_small(&copy, "checkpoint", slice_of(body.data + vote_size, body.size - (size_t)vote_size));
    remoting_response_close(&response);
    for (int64_t start = 0; good && start < copy.end; start += copy.segment_size)
        good = copy_segment(&copy, start);
    if (!good || !verify(&copy))
        return ADMIN_FAILED;
    sync();
    printf("%lld entries, %lld bytes, all checked, are in %s.\n", (long long)copy.last_index + 1, (long long)copy.end, copy.folder);
    return ADMIN_OK;
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

static const struct admin_option backup_options[] = {
    {'f', "folder", "FOLDER", true, "a new folder on this machine"},
    {'b', "brokerAddr", "ADDRESS", false, "the group's leader, instead of asking the name server"},
    {'c', "clusterName", "CLUSTER", false, "of this cluster"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command backup_commands[] = {
    {"backup", "Copy the log of a running group into a new folder", backup_options, backup,
     "Holds everything that was acknowledged before it began. A log whose beginning retention has deleted is refused. Brokers give it to members'\n"
     "machines only: run it on one of them."},
    {NULL, NULL, NULL, NULL, NULL},
};
