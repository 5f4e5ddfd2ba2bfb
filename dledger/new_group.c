/* 1 the log is opened as at a start, and its newest configuration says who the members were
 * 2 none of the others may answer: two groups would go on
 * 3 the term of the new generation goes to the vote file, for no log may hold a later one than that
 * 4 the configuration is appended and synced. It claims to be committed itself, so that the next start begins with it
 *
 * Interrupted before 4 is durable nothing has happened but a term that nobody used; it is given again.
 */
#include "dledger/new_group.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "dledger/peer_address.h"
#include "dledger/replica_internal.h"
#include "store/log_sink.h"

#define PROBE_MS 1000

static void do_nothing(void *context)
{
    (void)context;
}

/* Does anybody listen there? *unknown: why nobody can be asked, NULL when somebody was. */
static bool answers(const char *address, const char **unknown)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char host[128], port[16];
    bool connected = false;
    int rv;

    *unknown = NULL;
    if (!peer_address_split(address, host, sizeof host, port, sizeof port)) {
        *unknown = "it is not HOST:PORT";
        return false;
    }
    rv = getaddrinfo(host, port, &hints, &found);
    if (rv != 0) {
        *unknown = gai_strerror(rv);
        return false;
    }
    for (const struct addrinfo *at = found; at != NULL && !connected; at = at->ai_next) {
        int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
            continue;
        struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
        int failure = 0;
        socklen_t size = sizeof failure;
        connected = connect(fd, at->ai_addr, at->ai_addrlen) == 0;
        if (!connected && errno == EINPROGRESS && poll(&poll_fd, 1, PROBE_MS) == 1)
            connected = getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) == 0 && failure == 0;
        close(fd);
    }
    freeaddrinfo(found);
    return connected;
}

static int check(struct replica *replica, struct error *error)
{
    raft_index committed = (raft_index)(replica->checkpoint.committed_index + 1);
    int rv;

    if (replica->ledger.last_index < 0)
        return error_set(error, ERROR_INVALID, "%s is empty: a group is made anew from a member that has its log", replica->dir);
    rv = replica_find_configuration(replica, committed == 0 ? 1 : committed, error);
    if (rv == 0)
        rv = replica_know_members(replica, committed == 0 ? 1 : committed, false, error);
    if (rv != 0)
        return rv;
    if (replica->phase == REPLICA_REMOVED || replica->half_filled)
        return error_set(error, ERROR_INVALID, "%s is no member of group %s by its own log: take another member", replica->options.self_id,
                         replica->options.group);
    if (replica->ledger.hole_count > 0)
        return error_set(error, ERROR_DAMAGED, "the log in %s is damaged from entry %llu on: take another member", replica->dir,
                         (unsigned long long)replica->ledger.holes[0].first);
    for (int i = 0; i < replica->member_count; i++) {
        const struct dledger_member *member = &replica->members[i];
        const char *unknown = NULL;
        if (member->raft_id == 0 || member->self)
            continue;
        if (member->address[0] == '\0') { /* a backup that was restored elsewhere: dLegerPeers names others */
            LOG_WARN("nobody is asked whether member %s still runs: neither the log nor dLegerPeers has an address of it", member->id);
            continue;
        }
        if (answers(member->address, &unknown))
            return error_set(error, ERROR_INVALID, "member %s answers at %s: a new group is for members that are lost for good; stop it first, or go on with it",
                             member->id, member->address);
        if (unknown != NULL)
            return error_set(error, ERROR_INVALID, "whether member %s still runs cannot be told, since its address \"%s\" is unknown here (%s): make the name known, or give the "
                             "member an IP address in dLegerPeers", member->id, member->address, unknown);
    }
    return 0;
}

static int append_configuration(struct replica *replica, uint64_t term, struct error *error)
{
    struct ledger *ledger = &replica->ledger;
    struct buffer run, configuration;
    int rv;

    buffer_init(&run, 0);
    buffer_init(&configuration, 0);
    rv = replica_sole_configuration(replica, &configuration);
    if (rv == 0 && buffer_reserve(&run, LEDGER_ENTRY_HEADER_SIZE + configuration.size) == NULL)
        rv = ERROR_NO_MEMORY;
    if (rv == 0) {
        struct ledger_entry entry = {
            .index = (uint64_t)ledger->last_index + 1,
            .term = term,
            .position = ledger_place(ledger, ledger->end_position, (uint32_t)(LEDGER_ENTRY_HEADER_SIZE + configuration.size)),
            .kind = LEDGER_ENTRY_CONFIGURATION,
            .uncommitted = 0,
            .body_size = (uint32_t)configuration.size,
        };
        memcpy(run.data + LEDGER_ENTRY_HEADER_SIZE, configuration.data, configuration.size);
        ledger_entry_seal(&entry, run.data, ledger->last_chain);
        rv = ledger_append(ledger, run.data, ledger_entry_size(&entry), 1);
        if (rv != 0)
            error_set(error, rv, "%s: %s", replica->dir, ledger->failed ? ledger->failure.message : error_text(rv));
    } else {
        error_set(error, rv, "%s", error_text(rv));
    }
    if (rv == 0)
        rv = replica_sync_now(replica, error);
    buffer_close(&run);
    buffer_close(&configuration);
    return rv;
}

static void tell(const struct replica *replica, uint64_t last_index, uint64_t last_term, struct buffer *told)
{
    buffer_append_format(told, "group %s is made anew: %s is its only member, from entry %llu (term %llu) on; forced %llu time%s so far.\n", replica->options.group,
                         replica->options.self_id, (unsigned long long)replica->ledger.last_index, (unsigned long long)replica->ledger.last_term,
                         (unsigned long long)replica_generation(replica), replica_generation(replica) == 1 ? "" : "s");
    buffer_append_format(told, "Lost is what was acknowledged and had not reached this member: its log ended with entry %llu of term %llu", (unsigned long long)last_index,
                         (unsigned long long)last_term);
    buffer_append_format(told, ", of which entries up to %lld were known to be committed; all of them count now.\n", (long long)replica->checkpoint.committed_index);
    for (int i = 0; i < replica->member_count; i++) {
        const struct dledger_member *member = &replica->members[i];
        if (member->raft_id != 0 && !member->self)
            buffer_append_format(told, "%s at %s is no member any more: move its dledger-%s away before it is started again, then mqadmin member add.\n", member->id,
                                 member->address, member->id);
    }
}

int new_group_force(struct env *env, const struct dledger_options *options, struct buffer *told, struct error *error)
{
    static const struct dledger_callbacks no_callbacks;
    const struct replica_io io = {.hello_changed = do_nothing, .cut = do_nothing};
    struct dledger_options alone = *options;
    struct replica *replica = calloc(1, sizeof *replica);
    struct log_view view;
    int rv;

    alone.force_start = true; /* nobody is left to mend it from: damage is named, and nothing is changed */
    if (replica == NULL)
        return error_set(error, ERROR_NO_MEMORY, "new group");
    rv = replica_open(replica, env, &alone, &no_callbacks, &io, "", &view, error);
    if (rv != 0) {
        free(replica);
        return rv;
    }
    rv = check(replica, error);
    uint64_t last_index = (uint64_t)replica->ledger.last_index, last_term = replica->ledger.last_term;
    uint64_t newest = replica->votes.term > last_term ? replica->votes.term : last_term;
    if (replica->heard.term != UINT64_MAX && replica->heard.term > newest)
        newest = replica->heard.term;
    uint64_t term = ((newest >> REPLICA_GENERATION_SHIFT) + 1) << REPLICA_GENERATION_SHIFT;
    if (rv == 0)
        rv = vote_file_save(&replica->votes, term, replica->id, error);
    if (rv == 0)
        rv = append_configuration(replica, term, error);
    if (rv == 0)
        tell(replica, last_index, last_term, told);
    replica_close(replica);
    free(replica);
    return rv;
}
