/* `mqadmin transfer` hands leadership of a group to a member and looks whether that happened; `mqadmin member ...` changes who belongs to it.
 *
 * A change of members is a row of small ones, each of which the leader makes in its log, whoever leads by then: add without a vote, vote, no vote, gone.
 * What an interrupted command has done already is found done by the next one.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/admin/group_members.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

#define PATIENCE_MS 10000 /* a member may catch up, an election may be lost */
#define STEP_MS 50

/* The one group that the command is about. NULL: told. */
static const char *group_of(struct admin *admin, const struct group_members *members)
{
    const char *wanted = admin_text(admin, "group");
    const char *group = NULL;
    for (size_t i = 0; i < members->count; i++) {
        const struct group_member *member = &members->all[i];
        if (!member->raft || (wanted != NULL && strcmp(member->group, wanted) != 0))
            continue;
        if (group != NULL && strcmp(group, member->group) != 0) {
            admin_fail(admin, "there are several groups, among them %s and %s: name one with --group", group, member->group);
            return NULL;
        }
        group = member->group;
    }
    if (group == NULL)
        admin_fail(admin, wanted == NULL ? "no member of a group answers" : "no member of group %s answers", wanted);
    return group;
}

/* The members as they are now; the first time this settles which group it is about. ADMIN_OK, else told. */
static int look(struct admin *admin, struct group_members *members, char group[LEDGERMQ_NAME_MAX + 1])
{
    int status;
    if (!group_members_collect(admin, members, &status))
        return status;
    if (group[0] == '\0') {
        const char *name = group_of(admin, members);
        if (name == NULL)
            return ADMIN_FAILED;
        snprintf(group, LEDGERMQ_NAME_MAX + 1, "%s", name);
    }
    return ADMIN_OK;
}

/* The one of that id that the leader counts among its members. NULL: it counts none. */
static const struct group_member *named_member(const struct group_members *members, const char *group, const char *id)
{
    for (size_t i = 0; i < members->count; i++) {
        const struct group_member *member = &members->all[i];
        if (strcmp(member->group, group) == 0 && strcmp(member->id, id) == 0 && member->named)
            return member;
    }
    return NULL;
}

/* The response code, with its remark in why; -1: no answer. */
static int ask_broker(struct admin *admin, const char *address, int32_t code, const struct remoting_field *fields, char why[300])
{
    struct remoting_response response;
    struct error error = {0};
    if (!admin_connect(admin))
        return -1;
    if (remoting_client_invoke(admin->client->remoting, address, code, fields, NO_BODY, admin->timeout_ms, &response, &error) != 0) {
        snprintf(why, 300, "%.299s", error.message);
        return -1;
    }
    int answer = response.command.code;
    snprintf(why, 300, "%.*s", (int)(response.command.remark.size < 299 ? response.command.remark.size : 299),
             (const char *)response.command.remark.data);
    remoting_response_close(&response);
    return answer;
}

static int transfer_with(struct admin *admin, struct group_members *members)
{
    const char *to = admin_text(admin, "id");
    char group[LEDGERMQ_NAME_MAX + 1] = "", from[64] = "", why[300] = "no leader";
    struct remoting_field fields[] = {{"transferee", to}, {NULL, NULL}};
    int64_t deadline = client_clock_ms() + PATIENCE_MS;
    int64_t term = -1;
    bool refused = false;

    while (true) {
        int status = look(admin, members, group);
        if (status != ADMIN_OK)
            return status;
        const struct group_member *leader = group_members_leader(members, group);
        if (leader != NULL && term < 0) {
            snprintf(from, sizeof from, "%s", leader->id);
            term = leader->term;
        }
        if (leader != NULL && (to != NULL ? strcmp(leader->id, to) == 0 : leader->term > term && strcmp(leader->id, from) != 0)) {
            if (strcmp(leader->id, from) == 0)
                printf("%s leads group %s already.\n", leader->id, group);
            else
                printf("Leadership of group %s went from %s to %s, term %lld.\n", group, from, leader->id, (long long)leader->term);
            return ADMIN_OK;
        }
        if (client_clock_ms() > deadline)
            return admin_fail(admin, "leadership of group %s was not handed over: %s", group, why);
        if (leader != NULL) {
            int code = ask_broker(admin, leader->address, REQUEST_TRANSFER_LEADERSHIP, fields, why);
            if (code == RESPONSE_SUCCESS)
                snprintf(why, sizeof why, "the election was lost");
            else if (code != -1 && code != RESPONSE_SERVICE_NOT_AVAILABLE && refused)
                return admin_fail(admin, "%s", why);
            /* Who was asked may have handed over since we looked: then it is the new leader that refuses, since it leads already. */
            refused = code > RESPONSE_SUCCESS && code != RESPONSE_SERVICE_NOT_AVAILABLE;
        }
        uv_sleep(STEP_MS);
    }
}

static int transfer(struct admin *admin)
{
    struct group_members *members = calloc(1, sizeof *members);
    if (members == NULL)
        return admin_fail(admin, "out of memory");
    int status = transfer_with(admin, members);
    free(members);
    return status;
}

/* ---- members ---- */

struct member_change {
    const char *action; /* as request CHANGE_MEMBER has it */
    const char *done;   /* what is said of it */
};
static const struct member_change add_change = {"add", "is added"};
static const struct member_change promote_change = {"promote", "has a vote"};
static const struct member_change demote_change = {"demote", "has no vote any more"};
static const struct member_change remove_change = {"remove", "is removed"};

/* One step, asked of whoever leads until it is done. EXISTS answers of a step that was done before count as done. */
static int change_one(struct admin *admin, struct group_members *members, char group[LEDGERMQ_NAME_MAX + 1], const struct member_change *change,
                      const char *id, const char *address, int64_t deadline)
{
    struct remoting_field fields[] = {{"action", change->action}, {"memberId", id}, {"memberAddress", address}, {NULL, NULL}};
    char why[300] = "no leader";

    while (true) {
        int status = look(admin, members, group);
        if (status != ADMIN_OK)
            return status;
        const struct group_member *leader = group_members_leader(members, group);
        if (leader != NULL) {
            const struct group_member *member = named_member(members, group, id);
            bool done = change == &add_change       ? member != NULL && strcmp(member->peer_address, address) == 0
                        : change == &promote_change ? member != NULL && !member->learner
                        : change == &demote_change  ? member != NULL && member->learner
                                                    : member == NULL;
            if (done) {
                printf("%s %s.\n", id, change->done);
                fflush(stdout);
                return ADMIN_OK;
            }
            int code = ask_broker(admin, leader->address, REQUEST_CHANGE_MEMBER, fields, why);
            if (code != RESPONSE_SUCCESS && code != -1 && code != RESPONSE_SERVICE_NOT_AVAILABLE)
                return admin_fail(admin, "%s", why);
            if (code == RESPONSE_SUCCESS)
                continue; /* looked at once more: it must be so for all to see */
        }
        if (client_clock_ms() > deadline)
            return admin_fail(admin, "%s of %s in group %s: %s", change->action, id, group, why);
        uv_sleep(STEP_MS);
    }
}

/* The steps for one id. */
static int change_member(struct admin *admin, const struct member_change *first, const struct member_change *second, const char *id, const char *address,
                         struct group_members *members, char group[LEDGERMQ_NAME_MAX + 1])
{
    int64_t wait_s;
    if (!admin_number(admin, "wait", 600, 1, 86400, &wait_s))
        return ADMIN_USAGE;
    int64_t deadline = client_clock_ms() + wait_s * 1000;
    int status = first == NULL ? ADMIN_OK : change_one(admin, members, group, first, id, address, deadline);
    if (status == ADMIN_OK && second != NULL)
        status = change_one(admin, members, group, second, id, address, deadline);
    return status;
}

static int run_change(struct admin *admin, const struct member_change *first, const struct member_change *second)
{
    struct group_members *members = calloc(1, sizeof *members);
    char group[LEDGERMQ_NAME_MAX + 1] = "";
    const char *address = admin_text(admin, "address");
    if (members == NULL)
        return admin_fail(admin, "out of memory");
    int status = change_member(admin, first, second, admin_text(admin, "id"), address == NULL ? "" : address, members, group);
    free(members);
    return status;
}

static int member_add(struct admin *admin)
{
    return run_change(admin, &add_change, admin_has(admin, "learner") ? NULL : &promote_change);
}

static int member_promote(struct admin *admin)
{
    return run_change(admin, &promote_change, NULL);
}

/* Who is gone already is not asked to give its vote back. */
static int remove_from(struct admin *admin, const char *id, struct group_members *members, char group[LEDGERMQ_NAME_MAX + 1])
{
    int status = look(admin, members, group);
    if (status != ADMIN_OK)
        return status;
    bool named = group_members_leader(members, group) == NULL || named_member(members, group, id) != NULL;
    return change_member(admin, named ? &demote_change : NULL, &remove_change, id, "", members, group);
}

static int member_remove(struct admin *admin)
{
    struct group_members *members = calloc(1, sizeof *members);
    char group[LEDGERMQ_NAME_MAX + 1] = "";
    if (members == NULL)
        return admin_fail(admin, "out of memory");
    int status = remove_from(admin, admin_text(admin, "id"), members, group);
    free(members);
    return status;
}

static int member_replace(struct admin *admin)
{
    struct group_members *members = calloc(1, sizeof *members);
    char group[LEDGERMQ_NAME_MAX + 1] = "";
    if (members == NULL)
        return admin_fail(admin, "out of memory");
    int status = change_member(admin, &add_change, &promote_change, admin_text(admin, "id"), admin_text(admin, "address"), members, group);
    if (status == ADMIN_OK)
        status = remove_from(admin, admin_text(admin, "old"), members, group);
    free(members);
    return status;
}

#define GROUP_OPTIONS                                                                                                \
    {'g', "group", "GROUP", false, "the group, where there are several"},                                            \
        {'b', "brokerAddr", "ADDRESS", false, "ask this broker, and the members it names, instead of the name server"}, \
        {'c', "clusterName", "CLUSTER", false, "this cluster only"}
#define WAIT_OPTION {'w', "wait", "SECONDS", false, "until the steps must be done: 600"}

static const struct admin_option transfer_options[] = {
    {'i', "id", "ID", false, "to this member (else to the one with most of the log)"},
    GROUP_OPTIONS,
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option add_options[] = {
    {'i', "id", "ID", true, "its dLegerSelfId"},
    {'a', "address", "HOST:PORT", true, "its peer port, as in its dLegerPeers"},
    {'l', "learner", NULL, false, "without a vote: it receives the log only"},
    WAIT_OPTION,
    GROUP_OPTIONS,
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option id_options[] = {
    {'i', "id", "ID", true, "the member"},
    WAIT_OPTION,
    GROUP_OPTIONS,
    {0, NULL, NULL, false, NULL},
};
static const struct admin_option replace_options[] = {
    {'o', "old", "ID", true, "the member that goes, in the end"},
    {'i', "id", "ID", true, "dLegerSelfId of the one that comes"},
    {'a', "address", "HOST:PORT", true, "its peer port, as in its dLegerPeers"},
    WAIT_OPTION,
    GROUP_OPTIONS,
    {0, NULL, NULL, false, NULL},
};

const struct admin_command member_commands[] = {
    {"transfer", "Hand leadership to a member", transfer_options, transfer,
     "Ends when the member leads. Brokers take it from members' machines only: run it on one of them."},
    {"member add", "Add a member to a group", add_options, member_add,
     "Start it first, on an empty directory, with a dLegerPeers that names itself and at least one member. It gets a vote when it has caught up."},
    {"member promote", "Give a member a vote when it has caught up", id_options, member_promote, NULL},
    {"member remove", "Remove a member from a group", id_options, member_remove,
     "A leader hands over first. A member that is down can be removed too, as long as a majority of the others is up."},
    {"member replace", "Add a member, then remove another one", replace_options, member_replace, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
