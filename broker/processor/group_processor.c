/* Changes of the group itself: who leads it, who belongs to it. Codes of our own, described in docs/group.md.
 *
 * Whoever may change the group could take it over, so these are answered for this machine and for members' machines only, as DLedger's requests on the
 * peer port are. A follower hands them on with the client's address, so it is the client's machine that counts.
 */
#include <netinet/in.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/processor/processor.h"
#include "broker/processor/reply.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "store/log_sink.h"

bool group_processor_from_member_host(struct broker *broker, const struct message_host *peer)
{
    struct sockaddr_storage address = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address;

    if (peer->address_size == 4) {
        v4->sin_family = AF_INET;
        memcpy(&v4->sin_addr, peer->address, 4);
    } else if (peer->address_size == 16) {
        v6->sin6_family = AF_INET6;
        memcpy(&v6->sin6_addr, peer->address, 16);
    } else {
        return false;
    }
    return (broker->store_host.address_size == peer->address_size && memcmp(broker->store_host.address, peer->address, peer->address_size) == 0) ||
           dledger_commit_log_is_member_host(broker->log, &address);
}

/* False: answered. */
static bool may_change(struct broker *broker, struct request *request)
{
    char text[64];
    if (group_processor_from_member_host(broker, &request->peer))
        return true;
    message_host_format(&request->peer, text, sizeof text);
    LOG_WARN("request %d from %s is refused: it is for members' machines", request->reply_to.code, text);
    reply_simple(broker, &request->reply_to, RESPONSE_NO_PERMISSION, "changes of the group are taken from members' machines only, not from %s: run mqadmin there",
                 text);
    return false;
}

static void reply_outcome(struct broker *broker, const struct reply_to *to, int rv, const struct error *error)
{
    if (rv == 0)
        reply_simple(broker, to, RESPONSE_SUCCESS, NULL);
    else if (rv == ERROR_EXISTS || rv == ERROR_NOT_FOUND || rv == ERROR_INVALID)
        reply_simple(broker, to, RESPONSE_SYSTEM_ERROR, "%s", error->message);
    else /* a later try may succeed */
        reply_simple(broker, to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", error->message);
}

/* Ext `transferee`: a member's id; "" or absent: the follower with most of the log. 0 means that it has begun. */
static void transfer_leadership(struct broker *broker, struct request *request)
{
    struct slice to = remoting_ext(request->command, "transferee");
    struct error error = {0};
    char id[16];
    int rv;

    if (!may_change(broker, request))
        return;
    if (to.size >= sizeof id) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "transferee is no member's id");
        return;
    }
    snprintf(id, sizeof id, "%.*s", (int)to.size, to.size == 0 ? "" : (const char *)to.data);
    rv = dledger_commit_log_transfer(broker->log, to.size == 0 ? NULL : id, &error);
    if (rv == 0)
        LOG_INFO("leadership is handed to %s, as was asked for", to.size == 0 ? "another member" : id);
    reply_outcome(broker, &request->reply_to, rv, &error);
}

struct change {
    struct append_entry_request entry; /* first: done() gets it */
    struct broker *broker;
    struct reply_to reply_to;
};

static void on_changed(struct append_entry_request *entry)
{
    struct change *change = (struct change *)entry;
    reply_settled(change->broker, &change->reply_to, entry->code);
    free(change);
}

static bool copy_text(struct slice from, char *to, size_t room)
{
    if (from.size >= room || memchr(from.data == NULL ? (const uint8_t *)"" : from.data, 0, from.size) != NULL)
        return false;
    memcpy(to, from.data == NULL ? (const uint8_t *)"" : from.data, from.size);
    to[from.size] = '\0';
    return true;
}

/* Ext `action` (add, promote, demote, remove), `memberId`, `memberAddress` (of the peer port; add). Answered when the change is committed. */
static void change_member(struct broker *broker, struct request *request)
{
    static const char *const actions[] = {
        [DLEDGER_MEMBER_ADD] = "add", [DLEDGER_MEMBER_PROMOTE] = "promote", [DLEDGER_MEMBER_DEMOTE] = "demote", [DLEDGER_MEMBER_REMOVE] = "remove"};
    enum { ACTIONS = sizeof actions / sizeof actions[0] };
    struct slice wanted;
    struct error error = {0};
    char id[16], address[128];
    unsigned action = 0;

    if (!may_change(broker, request) || !request_text(broker, request, "action", &wanted))
        return;
    while (action < ACTIONS && !slice_equal_text(wanted, actions[action]))
        action++;
    if (action == ACTIONS || !copy_text(remoting_ext(request->command, "memberId"), id, sizeof id) ||
        !copy_text(remoting_ext(request->command, "memberAddress"), address, sizeof address)) {
        reply_simple(broker, &request->reply_to, RESPONSE_SYSTEM_ERROR, "action is add, promote, demote or remove, memberId and memberAddress are short texts");
        return;
    }
    struct change *change = calloc(1, sizeof *change);
    int rv = ERROR_NO_MEMORY;
    if (change != NULL) {
        change->entry.done = on_changed;
        change->broker = broker;
        change->reply_to = request->reply_to;
        rv = dledger_commit_log_change_member(broker->log, (enum dledger_member_action)action, id, address, &change->entry, &error);
    }
    if (rv == 0)
        return;
    free(change);
    if (rv == ERROR_NO_MEMORY)
        error_set(&error, rv, "%s", error_text(rv));
    reply_outcome(broker, &request->reply_to, rv, &error);
}

const struct processor_row group_processor_rows[] = {
    {REQUEST_TRANSFER_LEADERSHIP, "TRANSFER_LEADERSHIP", transfer_leadership, PROCESSOR_FORWARD},
    {REQUEST_CHANGE_MEMBER, "CHANGE_MEMBER", change_member, PROCESSOR_FORWARD},
    {0, NULL, NULL, 0},
};
