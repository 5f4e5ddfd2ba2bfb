/* `mqadmin leader`: who leads each group, and how far every member is.
 *
 * Reads the raft* keys of GET_BROKER_RUNTIME_INFO (28), described in broker/broker_stats.h, from every address that
 * the name server knows and every address that one of those names as a member; so members that are down keep a row,
 * filled with what the leader knows of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/admin/group_members.h"
#include "proto/json.h"
#include "proto/kv_table.h"
#include "proto/request_code.h"

#define IN_SYNC_LAG                                                                                                  \
    65536 /* entries; more than may be in flight, less than anything that takes noticeable time to catch up */
#define ASK_TIMEOUT_MS 2000

static void copy(char *out, size_t size, struct slice text)
{
    snprintf(out, size, "%.*s", ADMIN_SLICE(text));
}

static int64_t number_of(const struct kv_table *table, const char *name, int64_t absent)
{
    int64_t value = absent;
    slice_to_i64(kv_table_get(table, name), &value);
    return value;
}

static bool flag_of(const struct kv_table *table, const char *name)
{
    bool value = false;
    slice_to_bool(kv_table_get(table, name), &value);
    return value;
}

static struct group_member *member_get(struct group_members *members, const char *group, const char *id)
{
    for (size_t i = 0; i < members->count; i++)
        if (strcmp(members->all[i].group, group) == 0 && strcmp(members->all[i].id, id) == 0)
            return &members->all[i];
    if (members->count == ADMIN_NODES_MAX)
        return NULL;
    struct group_member *member = &members->all[members->count++];
    *member = (struct group_member){.term = -1,
                              .last_index = -1,
                              .commit_index = -1,
                              .applied_index = -1,
                              .committed_position = -1,
                              .match_index = -1,
                              .lag = -1};
    snprintf(member->id, sizeof member->id, "%s", id);
    snprintf(member->group, sizeof member->group, "%s", group);
    return member;
}

/* "address,role,matchIndex,lag,connected,brokerAddress" */
static void take_member_row(struct group_members *members, const char *group, const char *id, struct slice value,
                            bool from_leader)
{
    struct slice fields[6] = {0};
    size_t count = 0;
    while (count < 6) {
        const uint8_t *comma = memchr(value.data, ',', value.size);
        size_t size = comma == NULL ? value.size : (size_t)(comma - value.data);
        fields[count++] = slice_of(value.data, size);
        if (comma == NULL)
            break;
        value.data += size + 1;
        value.size -= size + 1;
    }
    struct group_member *member = count == 6 ? member_get(members, group, id) : NULL;
    if (member == NULL)
        return;
    copy(member->peer_address, sizeof member->peer_address, fields[0]);
    if (member->address[0] == '\0')
        copy(member->address, sizeof member->address, fields[5]);
    if (!from_leader)
        return;
    member->learner = slice_equal_text(fields[1], "LEARNER");
    member->named = true;
    slice_to_i64(fields[2], &member->match_index);
    slice_to_i64(fields[3], &member->lag);
    slice_to_bool(fields[4], &member->connected);
}

static void take_table(struct group_members *members, const struct admin_target *target, const struct kv_table *table)
{
    char id[64], group[LEDGERMQ_NAME_MAX + 1];
    copy(id, sizeof id, kv_table_get(table, "raftSelf"));
    copy(group, sizeof group, kv_table_get(table, "raftGroup"));
    bool raft = id[0] != '\0';
    if (!raft) {
        /* A broker that is not ours: shown with what the route says of it. */
        snprintf(id, sizeof id, "%lld", (long long)target->broker_id);
        snprintf(group, sizeof group, "%s", target->broker_name);
    }
    struct group_member *member = member_get(members, group, id);
    if (member == NULL)
        return;
    member->reached = true;
    member->raft = raft;
    snprintf(member->address, sizeof member->address, "%s", target->address);
    if (!raft) {
        snprintf(member->role, sizeof member->role, "%s", target->broker_id == 0 ? "MASTER" : "SLAVE");
        member->up_since_ms = number_of(table, "bootTimestamp", 0);
        return;
    }
    copy(member->role, sizeof member->role, kv_table_get(table, "raftRole"));
    copy(member->leader, sizeof member->leader, kv_table_get(table, "raftLeader"));
    copy(member->durability, sizeof member->durability, kv_table_get(table, "raftDurability"));
    member->term = number_of(table, "raftTerm", -1);
    member->last_index = number_of(table, "raftLastIndex", -1);
    member->commit_index = number_of(table, "raftCommitIndex", -1);
    member->applied_index = number_of(table, "raftAppliedIndex", -1);
    member->committed_position = number_of(table, "raftCommittedPosition", -1);
    member->up_since_ms = number_of(table, "raftUpSince", 0);
    member->failed = flag_of(table, "raftFailed");
    member->disk_full = flag_of(table, "raftDiskFull");
    member->forced = number_of(table, "raftForcedRecoveries", 0);
    bool leads = strcmp(member->role, "LEADER") == 0;
    for (size_t i = 0; i < table->pair_count; i++) {
        static const char prefix[] = "raftMember_";
        char other[64];
        if (!slice_starts_with(table->pairs[i].name, prefix))
            continue;
        struct slice name = table->pairs[i].name;
        copy(other, sizeof other, slice_of(name.data + sizeof prefix - 1, name.size - (sizeof prefix - 1)));
        take_member_row(members, group, other, table->pairs[i].value, leads);
    }
    if (leads) {
        member = member_get(members, group, id);
        member->connected = true;
        member->named = true;
    }
}

/* Asks all targets and takes what they say. Those that fail are remembered by address. */
static void ask(struct admin *admin, const struct admin_targets *targets, struct group_members *members)
{
    struct admin_answer *answers = calloc(targets->count + 1, sizeof *answers);
    if (answers == NULL)
        abort();
    admin_call_all(admin, targets, REQUEST_GET_BROKER_RUNTIME_INFO,
                   admin->timeout_ms < ASK_TIMEOUT_MS ? admin->timeout_ms : ASK_TIMEOUT_MS, answers);
    for (size_t i = 0; i < targets->count; i++) {
        struct kv_table table;
        struct error error = {0};
        if (!answers[i].ok)
            continue;
        if (kv_table_decode(&table, answers[i].response.command.body, &error) == 0) {
            take_table(members, &targets->all[i], &table);
            kv_table_close(&table);
        } else {
            answers[i].ok = false;
            answers[i].error = error;
        }
        remoting_response_close(&answers[i].response);
    }
    /* Only now are the members' addresses known that a failure may belong to. */
    for (size_t i = 0; i < targets->count; i++) {
        bool known = answers[i].ok;
        for (size_t k = 0; k < members->count && !answers[i].ok; k++) {
            struct group_member *other = &members->all[k];
            /* A member that nobody named an address for: the silent address of its group must be its own. */
            bool nameless = !other->reached && other->address[0] == '\0' &&
                            strcmp(other->group, targets->all[i].broker_name) == 0;
            if (strcmp(other->address, targets->all[i].address) != 0 && !nameless)
                continue;
            known = true;
            if (nameless)
                snprintf(other->address, sizeof other->address, "%s", targets->all[i].address);
            snprintf(other->cause, sizeof other->cause, "%.159s", answers[i].error.message);
            break;
        }
        if (known)
            continue;
        char id[64];
        snprintf(id, sizeof id, "%lld", (long long)targets->all[i].broker_id);
        struct group_member *member = member_get(members, targets->all[i].broker_name, id);
        if (member == NULL)
            continue;
        snprintf(member->address, sizeof member->address, "%s", targets->all[i].address);
        snprintf(member->cause, sizeof member->cause, "%.159s", answers[i].error.message);
    }
    free(answers);
}

/* Members that others name and nobody asked yet. */
static void ask_named(struct admin *admin, const struct admin_targets *asked, struct group_members *members)
{
    struct admin_targets more = {.all = calloc(ADMIN_NODES_MAX, sizeof *more.all)};
    if (more.all == NULL)
        abort();
    for (size_t i = 0; i < members->count; i++) {
        const struct group_member *member = &members->all[i];
        bool done = member->reached || member->address[0] == '\0';
        for (size_t k = 0; k < asked->count; k++)
            done = done || strcmp(asked->all[k].address, member->address) == 0;
        if (done)
            continue;
        struct admin_target *target = &more.all[more.count++];
        snprintf(target->address, sizeof target->address, "%s", member->address);
        snprintf(target->broker_name, sizeof target->broker_name, "%s", member->group);
    }
    if (more.count > 0)
        ask(admin, &more, members);
    admin_targets_free(&more);
}

static int compare_members(const void *a, const void *b)
{
    const struct group_member *left = a, *right = b;
    int order = strcmp(left->group, right->group);
    return order != 0 ? order : strcmp(left->id, right->id);
}

bool group_members_collect(struct admin *admin, struct group_members *members, int *status)
{
    struct admin_targets targets;
    members->count = 0;
    if (!admin_targets(admin, true, true, &targets, status))
        return false;
    ask(admin, &targets, members);
    ask_named(admin, &targets, members);
    admin_targets_free(&targets);
    for (size_t i = 0; i < members->count; i++)
        if (!members->all[i].reached)
            snprintf(members->all[i].role, sizeof members->all[i].role, "UNREACHABLE");
    qsort(members->all, members->count, sizeof members->all[0], compare_members);
    return true;
}

const struct group_member *group_members_leader(const struct group_members *members, const char *group)
{
    const struct group_member *leader = NULL;
    for (size_t i = 0; i < members->count; i++) {
        const struct group_member *member = &members->all[i];
        if (strcmp(member->group, group) == 0 && strcmp(member->role, "LEADER") == 0 && (leader == NULL || member->term > leader->term))
            leader = member;
    }
    return leader;
}

/* One group's members lie in [begin, end). */
struct verdict {
    const struct group_member *leader; /* NULL: none */
    size_t members, in_sync;
    bool good;
};

static struct verdict judge(const struct group_members *members, size_t begin, size_t end)
{
    struct verdict verdict = {.leader = group_members_leader(members, members->all[begin].group)};
    /* Who has no vote counts for no majority, and who was removed is no member any more. */
    for (size_t i = begin; i < end; i++) {
        const struct group_member *member = &members->all[i];
        if (member->learner || strcmp(member->role, "REMOVED") == 0 || (verdict.leader != NULL && verdict.leader->raft && !member->named))
            continue;
        verdict.members++;
        if (verdict.leader == NULL)
            continue;
        if (member == verdict.leader ||
            (member->connected && member->lag >= 0 && member->lag <= IN_SYNC_LAG && !member->failed))
            verdict.in_sync++;
    }
    verdict.good = verdict.leader != NULL && !verdict.leader->failed && verdict.in_sync * 2 > verdict.members;
    return verdict;
}

static const char *number_text(int64_t value, char out[24])
{
    if (value < 0)
        memcpy(out, "-", 2);
    else
        snprintf(out, 24, "%lld", (long long)value);
    return out;
}

static const char *or_dash(const char *text)
{
    return text[0] == '\0' ? "-" : text;
}

static void print_row(const struct group_member *member, const struct verdict *verdict)
{
    char term[24], last[24], commit[24], applied[24], position[24], lag[24], up[32];
    /* What a member says of itself counts; of one that cannot be reached the leader knows the last index it
     * acknowledged. */
    int64_t last_index = member->reached ? member->last_index : member->match_index;
    int64_t behind = member == verdict->leader ? 0 : member->lag;
    printf("%-6s %-22s %-12s %6s %-7s %12s %13s %14s %16s %10s %-6s %s%s%s%s%s\n", member->id,
           or_dash(member->address), member->role, number_text(member->term, term), or_dash(member->leader),
           number_text(last_index, last), number_text(member->commit_index, commit),
           number_text(member->applied_index, applied), number_text(member->committed_position, position),
           number_text(behind, lag), or_dash(member->durability),
           member->up_since_ms > 0 ? admin_time(member->up_since_ms, up) : "-", member->failed ? " FAILED" : "",
           member->disk_full ? " DISK FULL" : "", member->cause[0] != '\0' && !member->reached ? " " : "",
           member->reached ? "" : member->cause);
}

static void print_table(const struct group_members *members, bool *good)
{
    *good = members->count > 0;
    for (size_t begin = 0, end; begin < members->count; begin = end) {
        end = begin;
        while (end < members->count && strcmp(members->all[end].group, members->all[begin].group) == 0)
            end++;
        struct verdict verdict = judge(members, begin, end);
        printf("%s#Group: %s\n", begin > 0 ? "\n" : "", members->all[begin].group);
        printf("%-6s %-22s %-12s %6s %-7s %12s %13s %14s %16s %10s %-6s %s\n", "#Id", "#Address", "#Role", "#Term",
               "#Leader", "#Last Index", "#Commit Index", "#Applied Index", "#Committed Pos", "#Lag", "#Class",
               "#Up Since");
        for (size_t i = begin; i < end; i++)
            print_row(&members->all[i], &verdict);
        if (verdict.leader == NULL)
            printf("No leader. %zu members known.\n", verdict.members);
        else
            printf("Leader %s, %zu of %zu members in sync%s.\n", verdict.leader->id, verdict.in_sync, verdict.members,
                   verdict.good ? "" : ": no majority");
        if (verdict.leader != NULL && verdict.leader->forced > 0)
            printf("Made anew by force %lld time%s: what only the lost members had is not in it.\n", (long long)verdict.leader->forced,
                   verdict.leader->forced == 1 ? "" : "s");
        *good = *good && verdict.good;
    }
}

static void json_number(struct json_writer *writer, const char *name, int64_t value)
{
    json_write_key(writer, name);
    if (value < 0)
        json_write_null(writer);
    else
        json_write_i64(writer, value);
}

static void json_member(struct json_writer *writer, const struct group_member *member, const struct verdict *verdict)
{
    json_write_begin_object(writer);
    json_write_member_text(writer, "id", member->id);
    json_write_member_text(writer, "address", member->address);
    json_write_member_text(writer, "peerAddress", member->peer_address);
    json_write_member_text(writer, "role", member->role);
    json_write_member_bool(writer, "reachable", member->reached);
    json_number(writer, "term", member->term);
    json_write_member_text(writer, "leader", member->leader);
    json_number(writer, "lastIndex", member->reached ? member->last_index : member->match_index);
    json_number(writer, "commitIndex", member->commit_index);
    json_number(writer, "appliedIndex", member->applied_index);
    json_number(writer, "committedPosition", member->committed_position);
    json_number(writer, "lag", member == verdict->leader ? 0 : member->lag);
    json_write_member_text(writer, "durability", member->durability);
    json_number(writer, "upSince", member->up_since_ms > 0 ? member->up_since_ms : -1);
    json_write_member_bool(writer, "failed", member->failed);
    json_write_member_bool(writer, "diskFull", member->disk_full);
    if (!member->reached)
        json_write_member_text(writer, "cause", member->cause);
    json_write_end_object(writer);
}

static void print_json(const struct group_members *members, bool *good)
{
    struct buffer out;
    struct json_writer writer;
    *good = members->count > 0;
    buffer_init(&out, 0);
    json_writer_init(&writer, &out);
    json_write_begin_array(&writer);
    for (size_t begin = 0, end; begin < members->count; begin = end) {
        end = begin;
        while (end < members->count && strcmp(members->all[end].group, members->all[begin].group) == 0)
            end++;
        struct verdict verdict = judge(members, begin, end);
        json_write_begin_object(&writer);
        json_write_member_text(&writer, "group", members->all[begin].group);
        json_write_member_text(&writer, "leader", verdict.leader != NULL ? verdict.leader->id : "");
        json_write_member_bool(&writer, "good", verdict.good);
        json_write_member_i64(&writer, "inSync", (int64_t)verdict.in_sync);
        json_write_member_i64(&writer, "forcedRecoveries", verdict.leader != NULL ? verdict.leader->forced : 0);
        json_write_key(&writer, "members");
        json_write_begin_array(&writer);
        for (size_t i = begin; i < end; i++)
            json_member(&writer, &members->all[i], &verdict);
        json_write_end_array(&writer);
        json_write_end_object(&writer);
        *good = *good && verdict.good;
    }
    json_write_end_array(&writer);
    printf("%.*s\n", (int)out.size, (const char *)out.data);
    buffer_close(&out);
}

static int leader(struct admin *admin)
{
    struct group_members *members = calloc(1, sizeof *members);
    bool watch = admin_has(admin, "watch"), json = admin_has(admin, "json"), good = false;
    int64_t interval_ms;
    int status = ADMIN_OK;
    if (members == NULL)
        return admin_fail(admin, "out of memory");
    if (!admin_number(admin, "interval", 1000, 100, 3600000, &interval_ms)) {
        free(members);
        return ADMIN_USAGE;
    }
    do {
        if (watch && isatty(STDOUT_FILENO))
            printf("\033[H\033[J");
        if (group_members_collect(admin, members, &status)) {
            if (json)
                print_json(members, &good);
            else
                print_table(members, &good);
            status = good ? ADMIN_OK : ADMIN_FAILED;
        }
        if (watch) {
            if (!json)
                printf("\n");
            if (fflush(stdout) != 0)
                break;
            uv_sleep((unsigned)interval_ms);
        }
    } while (watch && status != ADMIN_USAGE);
    free(members);
    return status;
}

static const struct admin_option leader_options[] = {
    {'b', "brokerAddr", "ADDRESS", false, "ask this broker, and the members it names, instead of the name server"},
    {'c', "clusterName", "CLUSTER", false, "this cluster only"},
    {'w', "watch", NULL, false, "again and again"},
    {0, "interval", "MS", false, "between two looks of --watch: 1000"},
    {'j', "json", NULL, false, "as JSON"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command leader_commands[] = {
    {"leader", "Show who leads, and how far each member of the group is", leader_options, leader,
     "Lag is the number of entries that the leader has and the member has not acknowledged. The exit status is 0 "
     "only when every group has a\n"
     "leader and a majority of its members in sync (connected to it and at most 65536 entries behind)."},
    {NULL, NULL, NULL, NULL, NULL},
};
