/* `mqadmin transfer`: hands leadership of a group to a member, and looks whether that happened. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/admin/group_members.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

#define PATIENCE_MS 10000 /* a member may catch up, an election may be lost */
#define STEP_MS 50

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Who leads the group of these members: the one of the highest term. NULL: nobody. */
static const struct group_member *leader_of(const struct group_members *members, const char *group)
{
    const struct group_member *leader = NULL;
    for (size_t i = 0; i < members->count; i++) {
        const struct group_member *member = &members->all[i];
        if (strcmp(member->group, group) == 0 && strcmp(member->role, "LEADER") == 0 && (leader == NULL || member->term > leader->term))
            leader = member;
    }
    return leader;
}

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
    int status = ADMIN_OK;

    while (true) {
        const struct group_member *leader;
        if (!group_members_collect(admin, members, &status))
            return status;
        if (group[0] == '\0') {
            const char *name = group_of(admin, members);
            if (name == NULL)
                return ADMIN_FAILED;
            snprintf(group, sizeof group, "%s", name);
        }
        leader = leader_of(members, group);
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
            else if (code != -1 && code != RESPONSE_SERVICE_NOT_AVAILABLE)
                return admin_fail(admin, "%s", why);
        }
        pause_ms(STEP_MS);
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

static const struct admin_option transfer_options[] = {
    {'i', "id", "ID", false, "to this member (else to the one with most of the log)"},
    {'g', "group", "GROUP", false, "the group, where there are several"},
    {'b', "brokerAddr", "ADDRESS", false, "ask this broker, and the members it names, instead of the name server"},
    {'c', "clusterName", "CLUSTER", false, "this cluster only"},
    {0, NULL, NULL, false, NULL},
};

const struct admin_command member_commands[] = {
    {"transfer", "Hand leadership to a member", transfer_options, transfer,
     "Ends when the member leads. Brokers take it from members' machines only: run it on one of them."},
    {NULL, NULL, NULL, NULL, NULL},
};
