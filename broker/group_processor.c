/* Changes of the group itself: who leads it, who belongs to it. Codes of our own, described in docs/group.md.
 *
 * Whoever may change the group could take it over, so these are answered for this machine and for members' machines only, as DLedger's requests on the
 * peer port are. A follower hands them on with the client's address, so it is the client's machine that counts.
 */
#include <netinet/in.h>

#include "broker/broker.h"
#include "broker/processor.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "store/log_sink.h"

static bool from_member_host(struct broker *broker, const struct message_host *peer)
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
    if (from_member_host(broker, &request->peer))
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

const struct processor_row group_processor_rows[] = {
    {REQUEST_TRANSFER_LEADERSHIP, "TRANSFER_LEADERSHIP", transfer_leadership, PROCESSOR_FORWARD},
    {0, NULL, NULL, 0},
};

bool group_processor_from_member_host(struct broker *broker, const struct message_host *peer)
{
    return from_member_host(broker, peer);
}
