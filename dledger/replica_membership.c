/* Who belongs to the group.
 *
 * The log knows: the newest configuration in it, committed or not, says who takes part, under which number (Raft id) and at which address. dLegerPeers
 * gives the numbers of the first start, by place in the sorted list, and corrects addresses by name. Members that are empty learn the rest from others'
 * hellos. Numbers of those who left are given again.
 *
 * A change, asked of the leader: checks -> one configuration entry, alone in its submit -> committed -> answered. In every state between two changes the
 * group works, so whoever asks for several goes on where it was interrupted.
 */
#include "dledger/replica_internal.h"

#include <stdio.h>

#include "dledger/peer_address.h"
#include "dledger/peer_version.h"
#include "store/log_sink.h"

/* ---- the table ---- */

int replica_list_members(struct replica *replica, struct error *error)
{
    const char *at = replica->options.peers;
    struct dledger_member *listed = replica->listed;
    int count = 0;

    if (at == NULL || *at == '\0') {
        snprintf(listed[0].id, sizeof listed[0].id, "%s", replica->options.self_id);
        count = 1;
    }
    while (at != NULL && *at != '\0') {
        const char *end = strchr(at, ';');
        size_t size = end == NULL ? strlen(at) : (size_t)(end - at);
        const char *dash = memchr(at, '-', size);

        if (size > 0) {
            if (count == DLEDGER_MEMBERS_MAX)
                return error_set(error, ERROR_INVALID, "dLegerPeers names more than %d members", DLEDGER_MEMBERS_MAX);
            if (dash == NULL || dash == at || (size_t)(dash - at) >= sizeof listed->id ||
                size - (size_t)(dash - at) - 1 >= sizeof listed->address || memchr(dash, ':', size - (size_t)(dash - at)) == NULL)
                return error_set(error, ERROR_INVALID, "dLegerPeers: \"%.*s\" is not ID-HOST:PORT", (int)size, at);
            snprintf(listed[count].id, sizeof listed->id, "%.*s", (int)(dash - at), at);
            snprintf(listed[count].address, sizeof listed->address, "%.*s", (int)(size - (size_t)(dash - at) - 1), dash + 1);
            count++;
        }
        at = end == NULL ? NULL : end + 1;
    }
    for (int i = 1; i < count; i++) { /* insertion sort: at the first start places are numbers, so all nodes must agree */
        struct dledger_member member = listed[i];
        int k = i;
        for (; k > 0 && strcmp(listed[k - 1].id, member.id) > 0; k--)
            listed[k] = listed[k - 1];
        listed[k] = member;
    }
    replica->listed_count = count;
    for (int i = 0; i < count; i++) {
        if (i > 0 && strcmp(listed[i].id, listed[i - 1].id) == 0)
            return error_set(error, ERROR_INVALID, "dLegerPeers names %s twice", listed[i].id);
        listed[i].raft_id = (uint64_t)i + 1;
        listed[i].match_index = UINT64_MAX;
        listed[i].voter = true;
        listed[i].self = strcmp(listed[i].id, replica->options.self_id) == 0;
        if (listed[i].self) {
            listed[i].peer_version = peer_version_newest;
            replica->id = listed[i].raft_id;
            replica->self_listed = listed[i];
        }
    }
    if (replica->id == 0)
        return error_set(error, ERROR_INVALID, "dLegerSelfId %s is not in dLegerPeers %s", replica->options.self_id, replica->options.peers);
    memcpy(replica->members, listed, sizeof replica->members);
    replica->member_count = count;
    return 0;
}

int replica_place_of(const struct replica *replica, struct slice id)
{
    for (int i = 0; i < replica->member_count; i++) {
        if (replica->members[i].raft_id != 0 && slice_equal_text(id, replica->members[i].id))
            return i;
    }
    return -1;
}

int replica_group_size(const struct replica *replica)
{
    int size = 0;
    for (int i = 0; i < replica->member_count; i++)
        size += replica->members[i].raft_id != 0;
    return size;
}

/* "n3-host:port"; in the configuration of the first start "n3", so that it is the same on all nodes, or, from older versions, the place in dLegerPeers. */
static void name_server(const struct replica *replica, const struct raft_server *server, struct dledger_member *member)
{
    const char *dash = strchr(server->address, '-');

    memset(member, 0, sizeof *member);
    member->raft_id = server->id;
    member->match_index = UINT64_MAX;
    member->voter = server->role == RAFT_VOTER;
    if (dash != NULL) {
        snprintf(member->id, sizeof member->id, "%.*s", (int)(dash - server->address), server->address);
        snprintf(member->address, sizeof member->address, "%s", dash + 1);
    } else if (server->address[0] < '0' || server->address[0] > '9') {
        snprintf(member->id, sizeof member->id, "%s", server->address);
    } else if (server->id <= (uint64_t)replica->listed_count) {
        *member = replica->listed[server->id - 1];
        member->voter = server->role == RAFT_VOTER;
    } else {
        snprintf(member->id, sizeof member->id, "?%u", (unsigned)(server->id % 1000));
    }
    for (int i = 0; i < replica->listed_count; i++) {
        if (strcmp(replica->listed[i].id, member->id) == 0)
            snprintf(member->address, sizeof member->address, "%s", replica->listed[i].address);
    }
    member->self = strcmp(member->id, replica->options.self_id) == 0;
    member->peer_version = member->self ? peer_version_newest : 0;
}

static bool decode(struct slice encoded, struct raft_configuration *configuration)
{
    struct raft_buffer buffer = {(void *)(uintptr_t)encoded.data, encoded.size};
    unsigned voters;
    bool is_voter;

    return raft_driver_configuration_valid(encoded, 1, &voters, &is_voter) && raft_configuration_decode(&buffer, configuration) == 0;
}

bool replica_append_member_ids(const struct replica *replica, struct buffer *out)
{
    struct raft_configuration applied;
    struct dledger_member member;

    if (!decode(buffer_slice(&replica->configuration), &applied))
        return false;
    for (unsigned i = 0; i < applied.n; i++) {
        name_server(replica, &applied.servers[i], &member);
        buffer_append_format(out, "%s%s", i == 0 ? "" : ";", member.id);
    }
    raft_configuration_close(&applied);
    return !out->failed;
}

static bool table_names(const struct dledger_member table[DLEDGER_MEMBERS_MAX], const char *id)
{
    for (int i = 0; i < DLEDGER_MEMBERS_MAX; i++) {
        if (table[i].raft_id != 0 && strcmp(table[i].id, id) == 0)
            return true;
    }
    return false;
}

/* Makes the table anew from the newest configuration, ours or told, and, since a change may be taken back, those before it; NULL: none. */
static void make_table(struct replica *replica, const struct raft_configuration *told, const struct raft_configuration *newest,
                       const struct raft_configuration *before)
{
    struct dledger_member table[DLEDGER_MEMBERS_MAX] = {0};
    const struct raft_configuration *all[] = {told, newest, before};
    bool changed = false;
    int count = 0;

    for (int k = 0; k < 3; k++) {
        for (unsigned i = 0; all[k] != NULL && i < all[k]->n; i++) {
            const struct raft_server *server = &all[k]->servers[i];
            struct dledger_member member;
            if (server->id < 1 || server->id > DLEDGER_MEMBERS_MAX || table[server->id - 1].raft_id != 0)
                continue;
            name_server(replica, server, &member);
            if (!table_names(table, member.id)) /* under another number: it left and came again */
                table[server->id - 1] = member;
        }
    }
    for (int i = 0; i < DLEDGER_MEMBERS_MAX; i++) {
        struct dledger_member *old = &replica->members[i];
        if (table[i].raft_id != 0)
            count = i + 1;
        if (strcmp(old->id, table[i].id) == 0 && strcmp(old->address, table[i].address) == 0 && old->raft_id == table[i].raft_id) {
            old->voter = table[i].voter;
            continue;
        }
        changed = true;
        *old = table[i];
        memset(&replica->peers[i], 0, sizeof replica->peers[i]);
        replica->driver.stale_since[(i + 1) % 64] = 0;
    }
    replica->member_count = count;
    if (!changed)
        return;
    int place = replica_place_of(replica, slice_of_text(replica->options.self_id));
    if (place >= 0 && !replica->driver.started) {
        replica->id = (uint64_t)place + 1;
        raft_driver_rename(&replica->driver, replica->id);
    }
    replica->members_version++;
    replica->io.hello_changed(replica->io.context);
}

/* Closes it in any case. rv: not 0, making it has failed already. */
static int encode_and_close(struct raft_configuration *configuration, int rv, struct buffer *out)
{
    struct raft_buffer encoded;

    if (rv == 0)
        rv = raft_configuration_encode(configuration, &encoded);
    raft_configuration_close(configuration);
    if (rv != 0)
        return ERROR_NO_MEMORY;
    buffer_append(out, encoded.base, encoded.len);
    raft_free(encoded.base);
    return out->failed ? ERROR_NO_MEMORY : 0;
}

int replica_first_configuration(struct replica *replica, struct buffer *out)
{
    struct raft_configuration first;
    int rv = 0;

    raft_configuration_init(&first);
    for (int i = 0; i < replica->listed_count && rv == 0; i++)
        rv = raft_configuration_add(&first, (raft_id)i + 1, replica->listed[i].id, RAFT_VOTER);
    return encode_and_close(&first, rv, out);
}

/* Under the name that name_server() reads. */
static int add_named(struct raft_configuration *configuration, raft_id number, const char *id, const char *address, int role)
{
    char text[sizeof ((struct dledger_member *)0)->id + sizeof ((struct dledger_member *)0)->address];

    snprintf(text, sizeof text, "%s-%s", id, address);
    return raft_configuration_add(configuration, number, text, role);
}

int replica_sole_configuration(struct replica *replica, struct buffer *out)
{
    const struct dledger_member *self = &replica->members[replica->id - 1];
    struct raft_configuration sole;

    raft_configuration_init(&sole);
    return encode_and_close(&sole, add_named(&sole, self->raft_id, self->id, self->address, RAFT_VOTER), out);
}

/* The Raft id that this member has in it, 0 = none. */
static uint64_t number_in(const struct raft_configuration *configuration, const char *id)
{
    size_t size = strlen(id);
    for (unsigned i = 0; i < configuration->n; i++) {
        if (strncmp(configuration->servers[i].address, id, size) == 0 && (configuration->servers[i].address[size] == '-' || configuration->servers[i].address[size] == '\0'))
            return configuration->servers[i].id;
    }
    return 0;
}

static bool stands_in(const struct raft_configuration *configuration, const char *id)
{
    return number_in(configuration, id) != 0;
}

bool replica_has_others(const struct replica *replica)
{
    const struct checkpoint *checkpoint = &replica->checkpoint;
    struct raft_configuration known;

    if (replica->member_count > 1)
        return true;
    /* It began alone, and its dLegerPeers tells only that. */
    if (!checkpoint->present || !decode(slice_of(checkpoint->configuration, checkpoint->configuration_size), &known))
        return false;
    bool others = known.n > 1 || !stands_in(&known, replica->options.self_id);
    raft_configuration_close(&known);
    return others;
}

static void set_removed(struct replica *replica, raft_index index)
{
    if (replica->phase == REPLICA_REMOVED || replica->phase == REPLICA_FAILED)
        return;
    replica->phase = REPLICA_REMOVED;
    replica->driver.failed = true; /* it takes no part any more */
    LOG_ERROR("this node, %s, was removed from group %s by entry %llu; to have it back, move %s away, run `mqadmin member add -i %s` and start it again",
              replica->options.self_id, replica->options.group, index - 1, replica->dir, replica->options.self_id);
    replica->io.hello_changed(replica->io.context);
}

int replica_know_members(struct replica *replica, raft_index committed, bool whole, struct error *error)
{
    struct raft_configuration newest, before;
    struct slice found = buffer_slice(&replica->configuration);
    raft_index index = replica->configuration_index;
    bool has_before = false;

    for (raft_index i = committed + 1; i <= raft_driver_last(&replica->driver); i++) {
        struct ledger_entry entry;
        const uint8_t *bytes = ledger_entry(&replica->ledger, i - 1, &entry);
        if (bytes != NULL && entry.kind == LEDGER_ENTRY_CONFIGURATION) {
            found = slice_of(bytes + LEDGER_ENTRY_HEADER_SIZE, entry.body_size);
            index = i;
        }
    }
    if (!decode(found, &newest))
        return error_set(error, ERROR_DAMAGED, "raft: the configuration at index %llu is undecodable", index);
    replica->found_index = index;
    /* A log that is being filled again may end before the change that brought this node in, or, where the group began with this node alone, before those that
     * brought in the others. Who belongs to the group is heard from them, as by a node whose directory is empty. */
    replica->half_filled = !whole && replica->checkpoint.forgot &&
                           (!stands_in(&newest, replica->options.self_id) || (newest.n == 1 && replica->listed_count > 1 && !replica->votes.existed));
    /* Damage may have taken the change from it. As long as the log ends before the one that the checkpoint knows, that one says who belongs to the group. */
    const struct checkpoint *checkpoint = &replica->checkpoint;
    struct raft_configuration later;
    replica->ends_early = false;
    if (!whole && !replica->half_filled && checkpoint->forgot && checkpoint->configuration_index + 1 > index &&
        decode(slice_of(checkpoint->configuration, checkpoint->configuration_size), &later)) {
        replica->ends_early = stands_in(&later, replica->options.self_id);
        if (replica->ends_early) {
            replica->group_index = checkpoint->configuration_index + 1;
            make_table(replica, NULL, &later, NULL);
        }
        raft_configuration_close(&later);
    }
    if (replica->half_filled || replica->ends_early) {
        raft_configuration_close(&newest);
        return 0;
    }
    if (index != replica->configuration_index)
        has_before = decode(buffer_slice(&replica->configuration), &before);
    make_table(replica, NULL, &newest, has_before ? &before : NULL);
    raft_configuration_close(&newest);
    if (has_before)
        raft_configuration_close(&before);
    if (replica_place_of(replica, slice_of_text(replica->options.self_id)) < 0)
        set_removed(replica, index);
    return 0;
}

/* In a log that is being filled little is known to be committed. What stands behind that, and what was told before there was a log, is newer than what a member
 * tells that has just started and knows no more to be committed either. */
static raft_index newest_known(const struct replica *replica)
{
    const struct raft *raft = &replica->driver.raft;
    bool started = replica->driver.started;
    /* What is told is committed, so at the index of ours that is not, it is ours or what replaces it. */
    raft_index uncommitted = raft->configuration_uncommitted_index == 0 ? 0 : raft->configuration_uncommitted_index - 1;
    const raft_index others[] = {started ? raft->configuration_committed_index : replica->found_index, started ? uncommitted : replica->group_index};
    raft_index known = replica->configuration_index;

    for (int i = 0; i < 2; i++) {
        if (others[i] > known)
            known = others[i];
    }
    return known;
}

/* While it runs. What was told goes first, as long as our log does not reach it: who leads by now may have come, or have come again under another number,
 * when we were away, and only he can send us the entries that say so. It is for talking only: whose votes count our own log says. */
static void make_running_table(struct replica *replica)
{
    const struct raft *raft = &replica->driver.raft;
    struct raft_configuration told;
    bool has_told = false;

    if (replica->told_index > newest_known(replica))
        has_told = decode(buffer_slice(&replica->told), &told);
    else
        replica->told_index = 0;
    make_table(replica, has_told ? &told : NULL, &raft->configuration, raft->configuration_uncommitted_index == 0 ? NULL : &raft->configuration_committed);
    if (has_told)
        raft_configuration_close(&told);
}

void replica_review_configuration(struct replica *replica)
{
    const struct raft *raft = &replica->driver.raft;

    if (!replica->driver.started || replica->phase != REPLICA_RUNNING)
        return;
    /* An uncommitted one may be taken back and replaced by another one at the same index. */
    if (raft->configuration_uncommitted_index == 0 && replica->seen_uncommitted == 0 && raft->configuration_committed_index == replica->seen_committed)
        return;
    if (replica->seen_committed != raft->configuration_committed_index || replica->seen_uncommitted != raft->configuration_uncommitted_index)
        replica->io.hello_changed(replica->io.context);
    if (replica->seen_committed != raft->configuration_committed_index) {
        if (raft->configuration_committed_index != (raft_index)(replica->checkpoint.configuration_index + 1)) {
            /* Where the log is damaged only the checkpoint tells who can mend it, and dLegerPeers may name nobody. */
            replica->checkpoint_dirty = true;
            replica->checkpoint_due_us = 0;
        }
    }
    replica->seen_committed = raft->configuration_committed_index;
    replica->seen_uncommitted = raft->configuration_uncommitted_index;
    make_running_table(replica);
    if (replica_place_of(replica, slice_of_text(replica->options.self_id)) < 0)
        set_removed(replica, raft->configuration_committed_index);
}

/* ---- hellos ---- */

bool replica_is_stranger(const struct replica *replica)
{
    return (replica->ledger.last_index < 0 || replica->half_filled) && (replica->phase == REPLICA_WAITING || replica->phase == REPLICA_MUTE);
}

bool replica_agrees_on_first(const struct replica *replica, const struct peer_hello *hello)
{
    struct raft_configuration theirs;

    if (hello->configuration_size == 0)
        return true;
    if (!decode(slice_of(hello->configuration, hello->configuration_size), &theirs))
        return false;
    bool same = theirs.n == (unsigned)replica->listed_count;
    for (int i = 0; i < replica->listed_count && same; i++)
        same = theirs.servers[i].role == RAFT_VOTER && number_in(&theirs, replica->listed[i].id) == replica->listed[i].raft_id;
    raft_configuration_close(&theirs);
    return same;
}

const char *replica_named_elsewhere(const struct replica *replica)
{
    if (replica->phase != REPLICA_MUTE || replica->mute_reason != PEER_MUTE_EMPTY || !replica->checkpoint.forgot)
        return NULL;
    for (int i = 0; i < replica->listed_count; i++) {
        if (!replica->listed[i].self && replica_place_of(replica, slice_of_text(replica->listed[i].id)) < 0)
            return replica->listed[i].id;
    }
    return NULL;
}

bool replica_encode_members(struct replica *replica, struct buffer *out)
{
    struct raft_configuration named, found;
    const struct raft *raft = &replica->driver.raft;
    bool started = replica->driver.started;
    /* Not one that may be taken back. */
    const struct raft_configuration *newest = !started ? &found : raft->configuration_uncommitted_index == 0 ? &raft->configuration : &raft->configuration_committed;
    int rv = 0;

    if (started ? newest->n == 0 : replica->configuration_index == 0 || !decode(buffer_slice(&replica->configuration), &found))
        return false;
    raft_configuration_init(&named);
    for (unsigned i = 0; i < newest->n && rv == 0; i++) {
        struct dledger_member member;
        name_server(replica, &newest->servers[i], &member);
        rv = add_named(&named, newest->servers[i].id, member.id, member.address, newest->servers[i].role);
    }
    if (!started)
        raft_configuration_close(&found);
    return encode_and_close(&named, rv, out) == 0;
}

/* We stand in it, under the number that we have. */
static void take_told(struct replica *replica, const struct peer_hello *hello)
{
    buffer_clear(&replica->told);
    buffer_append(&replica->told, hello->configuration, hello->configuration_size);
    replica->told_index = replica->told.failed ? 0 : hello->configuration_index;
    make_running_table(replica);
}

/* We stand in it under another number, so the member that our directory is of was removed, and nobody will talk to it again. */
static void leave_old_number(struct replica *replica, const struct peer_hello *hello)
{
    if (replica->begins_anew || replica->restart_wanted || replica->fetch.frozen)
        return;
    if (!replica_may_begin_anew(replica)) {
        set_removed(replica, hello->configuration_index);
        return;
    }
    LOG_ERROR("this node, %s, was removed from group %s and added again, by entry %lld at the latest, and its directory is of the time before. The member takes no "
              "part until it has caught up with a leader",
              replica->options.self_id, replica->options.group, (long long)hello->configuration_index - 1);
    replica_begin_anew(replica);
}

void replica_hear_configuration(struct replica *replica, const struct peer_hello *hello)
{
    struct raft_configuration configuration;
    raft_index known = newest_known(replica) > replica->told_index ? newest_known(replica) : replica->told_index;

    if (hello->configuration_index == 0 || strcmp(hello->cluster, replica->options.cluster) != 0 ||
        strcmp(hello->group, replica->options.group) != 0)
        return;
    bool stranger = replica_is_stranger(replica);
    /* Who is mute may wait for nobody but us, who have been added and do not know. Besides that others know better. */
    if (!hello->started && !stranger)
        return;
    /* What a member says that was there before the group was made anew by force is of a group that is no more; and whoever is of the new one is right,
     * however short its log. */
    uint64_t generation = hello->last_term >> REPLICA_GENERATION_SHIFT;
    uint64_t ours = stranger ? 0 : replica_generation(replica);
    if (!replica->driver.started && replica->group_generation > ours)
        ours = replica->group_generation; /* of which a log that is being filled may hold nothing yet */
    if (generation < ours)
        return;
    if (generation > ours)
        known = replica->group_index = 0;
    if (hello->configuration_index <= (stranger ? replica->group_index : known) || !decode(slice_of(hello->configuration, hello->configuration_size), &configuration))
        return;
    bool member = stands_in(&configuration, replica->options.self_id);
    if (!hello->started && !member) {
        raft_configuration_close(&configuration);
        return;
    }
    /* Who is mute catches up, and until then its own log may name others who vote than the group does. */
    if (stranger || (member && replica->phase == REPLICA_MUTE)) {
        replica->group_index = hello->configuration_index;
        replica->group_generation = generation;
        if (stranger && (replica->not_added == member || !member))
            LOG_INFO("%s tells of group %s: %s", hello->self_id, replica->options.group, member ? "this node is a member" : "this node is none yet");
        replica->not_added = !member;
        if (member)
            make_table(replica, NULL, &configuration, NULL);
    } else if (!member) {
        if (generation > ours && replica->phase != REPLICA_REMOVED)
            LOG_ERROR("group %s was made anew by force, without this node: what it holds behind the end of that log is of the old group, and lost to it",
                      replica->options.group);
        set_removed(replica, hello->configuration_index);
    } else if (generation == ours && replica->phase == REPLICA_RUNNING) {
        if (number_in(&configuration, replica->options.self_id) == replica->id)
            take_told(replica, hello);
        else
            leave_old_number(replica, hello);
    }
    raft_configuration_close(&configuration);
}

/* ---- changes ---- */

static bool valid_id(const char *id)
{
    size_t size = strlen(id);
    return size > 0 && size < sizeof ((struct dledger_member *)0)->id && strcspn(id, "-;,? ") == size;
}

/* Whether those who would vote then make a majority as things are now. */
static bool majority_without_or_with(struct replica *replica, int place, bool votes)
{
    int voters = 0, alive = 0;

    for (int i = 0; i < replica->member_count; i++) {
        const struct dledger_member *member = &replica->members[i];
        if (member->raft_id == 0 || !(i == place ? votes : member->voter))
            continue;
        voters++;
        alive += member->self || (replica->peers[i].connected && replica->peers[i].hello.started);
    }
    return alive > voters / 2;
}

static int check_add(struct replica *replica, const char *id, const char *address, int *place, struct error *error)
{
    char host[128], port[16];
    struct sockaddr_storage any;

    if (!valid_id(id))
        return error_set(error, ERROR_INVALID, "\"%s\" is no id of a member", id);
    if (strlen(address) >= sizeof replica->members[0].address || !peer_address_split(address, host, sizeof host, port, sizeof port) ||
        !peer_address_numeric("127.0.0.1", port, &any))
        return error_set(error, ERROR_INVALID, "\"%s\" is not HOST:PORT of a peer port", address);
    *place = -1;
    for (int i = DLEDGER_MEMBERS_MAX - 1; i >= 0; i--) {
        const struct dledger_member *member = &replica->members[i];
        if (member->raft_id == 0)
            *place = i;
        else if (strcmp(member->id, id) == 0)
            return error_set(error, ERROR_EXISTS, "%s is a member already, at %s", id, member->address);
        else if (strcmp(member->address, address) == 0)
            return error_set(error, ERROR_INVALID, "%s is the address of %s", address, member->id);
    }
    if (replica->members[replica->id - 1].address[0] == '\0')
        return error_set(error, ERROR_INVALID, "this node has no peer port: set enableDLegerCommitLog=true and dLegerPeers=%s-HOST:PORT, and restart it",
                         replica->options.self_id);
    return *place < 0 ? error_set(error, ERROR_INVALID, "a group has %d members at most", DLEDGER_MEMBERS_MAX) : 0;
}

static int check_known(struct replica *replica, enum dledger_member_action action, int place, struct error *error)
{
    const struct dledger_member *member = &replica->members[place];
    const struct replica_peer *peer = &replica->peers[place];
    raft_index match;

    if (action == DLEDGER_MEMBER_PROMOTE) {
        if (member->voter)
            return error_set(error, ERROR_EXISTS, "%s has a vote already", member->id);
        /* One that has not taken anything from this leader may be back with another disk, and where few vote its own vote would be needed to commit this. */
        if (!peer->connected || !peer->hello.started || raft_match_index(&replica->driver.raft, member->raft_id, &match) != 0 || match == 0)
            return error_set(error, ERROR_BUSY, "%s is not connected, or catches up", member->id);
        if (raft_driver_last(&replica->driver) - match >= REPLICA_TRANSFER_LAG_MAX)
            return error_set(error, ERROR_BUSY, "%s is %llu entries behind, fewer than %u are needed", member->id,
                             raft_driver_last(&replica->driver) - match, REPLICA_TRANSFER_LAG_MAX);
    } else if (action == DLEDGER_MEMBER_DEMOTE && !member->voter) {
        return error_set(error, ERROR_EXISTS, "%s has no vote already", member->id);
    } else if (action == DLEDGER_MEMBER_REMOVE && member->voter) {
        return error_set(error, ERROR_INVALID, "%s has a vote: take that first", member->id);
    }
    if (action == DLEDGER_MEMBER_DEMOTE && member->self) {
        int rv = replica_transfer(replica, NULL, error);
        return error_set(error, rv == 0 ? ERROR_BUSY : ERROR_INVALID, "%s leads: %s", member->id,
                         rv == 0 ? "it hands over first" : "no other member can take over, so it cannot go");
    }
    if (action != DLEDGER_MEMBER_REMOVE && !majority_without_or_with(replica, place, action == DLEDGER_MEMBER_PROMOTE))
        return error_set(error, ERROR_BUSY, "too few of the voters that there were then are up: the group would stand still");
    return 0;
}

/* The newest configuration with the change made, all servers in their order. */
static int changed_configuration(struct replica *replica, enum dledger_member_action action, int place, const char *id, const char *address,
                                 struct buffer *out)
{
    const struct raft_configuration *now = &replica->driver.raft.configuration;
    struct raft_configuration next;
    int rv = 0;

    raft_configuration_init(&next);
    for (unsigned i = 0; i < now->n && rv == 0; i++) {
        const struct raft_server *server = &now->servers[i];
        struct dledger_member member;
        int role = server->role;
        name_server(replica, server, &member);
        if (server->id == (raft_id)place + 1) {
            if (action == DLEDGER_MEMBER_REMOVE)
                continue;
            role = action == DLEDGER_MEMBER_PROMOTE ? RAFT_VOTER : RAFT_STANDBY;
        }
        rv = add_named(&next, server->id, member.id, member.address, role);
    }
    if (action == DLEDGER_MEMBER_ADD && rv == 0)
        rv = add_named(&next, (raft_id)place + 1, id, address, RAFT_STANDBY);
    return encode_and_close(&next, rv, out);
}

int replica_change_member(struct replica *replica, enum dledger_member_action action, const char *id, const char *address,
                          struct append_entry_request *request, struct error *error)
{
    static const char *const done[] = {"is added without a vote", "gets a vote", "loses its vote", "is removed"};
    struct raft *raft = &replica->driver.raft;
    struct buffer encoded;
    int place = replica_place_of(replica, slice_of_text(id));
    int64_t offset;
    int rv;

    if (!replica->accepting)
        return error_set(error, ERROR_NOT_LEADER, "%s", replica_why_not(replica));
    if (raft_transferee(raft) != 0)
        return error_set(error, ERROR_BUSY, "leadership is being handed over");
    if (raft->configuration_uncommitted_index != 0)
        return error_set(error, ERROR_BUSY, "another change of the group is under way");
    if (action != DLEDGER_MEMBER_ADD && place < 0)
        return error_set(error, ERROR_NOT_FOUND, "%s is no member of group %s", id, replica->options.group);
    rv = action == DLEDGER_MEMBER_ADD ? check_add(replica, id, address, &place, error) : check_known(replica, action, place, error);
    if (rv != 0)
        return rv;
    /* Two leaders could each have a change of their own in their logs, with majorities that do not meet, unless an entry of our term is committed first.
     * The core appends none of its own where the whole log was committed already. */
    if (ledger_term_of(&replica->ledger, replica->driver.commit - 1) != raft_current_term(raft)) {
        uint8_t *room = replica_reserve(replica, 8, &offset, &rv);
        if (room != NULL) {
            memset(room, 0, 8);
            replica_append(replica, LEDGER_ENTRY_BARRIER, NULL);
        }
        return error_set(error, ERROR_BUSY, "this leader has just begun");
    }
    while (replica->gather_count > 0 && replica_submit(replica))
        ;
    if (replica->gather_count > 0 || !replica->accepting)
        return error_set(error, ERROR_BUSY, "%s", replica_why_not(replica));
    buffer_init(&encoded, CHECKPOINT_CONFIGURATION_MAX);
    rv = changed_configuration(replica, action, place, id, address, &encoded);
    if (rv == 0)
        rv = replica_submit_configuration(replica, buffer_slice(&encoded), request);
    buffer_close(&encoded);
    if (rv != 0)
        return error_set(error, rv == ERROR_NOT_LEADER ? rv : ERROR_BUSY, "%s", error_text(rv));
    LOG_INFO("group %s: %s %s, entry %llu", replica->options.group, id, done[action], (unsigned long long)request->index);
    replica_review_configuration(replica);
    return 0;
}
