#include "broker/processor/reply.h"

#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/metadata/metadata.h"
#include "proto/response_code.h"

struct record_wait {
    struct reply_to reply_to;
    void (*settled)(struct broker *broker, const char *name, int code);
    char name[];
};

void reply_error(struct broker *broker, const struct reply_to *to, const struct error *error)
{
    reply_simple(broker, to, RESPONSE_SYSTEM_ERROR, "%s", error->message);
}

void reply_body_error(struct broker *broker, const struct reply_to *to, const struct error *error)
{
    reply_simple(broker, to, RESPONSE_SYSTEM_ERROR, "DecodeError: %s", error->message);
}

void reply_not_now(struct broker *broker, const struct reply_to *to, int code)
{
    if (code == ERROR_NOT_LEADER || code == ERROR_NO_LEADER || code == ERROR_NO_SPACE)
        reply_simple(broker, to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", dledger_commit_log_why_not(broker->log));
    else
        reply_simple(broker, to, error_response_code(code), "%s", code == ERROR_BUSY ? broker_stats_busy_remark(broker->stats) : error_text(code));
}

void reply_settled(struct broker *broker, const struct reply_to *to, int code)
{
    if (code == 0)
        reply_simple(broker, to, RESPONSE_SUCCESS, NULL);
    else
        reply_not_now(broker, to, code);
}

bool reply_body_begin(struct broker *broker, const struct reply_to *to, struct remoting_writer *writer)
{
    if (!reply_begin(broker, to, writer, RESPONSE_SUCCESS, NULL))
        return false;
    remoting_writer_body(writer);
    return true;
}

static void record_done(struct broker *broker, void *context, int code)
{
    struct record_wait *wait = context;
    if (wait->settled != NULL)
        wait->settled(broker, wait->name, code);
    reply_settled(broker, &wait->reply_to, code);
    free(wait);
}

void reply_after_record(struct broker *broker, const struct reply_to *to, Ledgermq__MetadataRecord *record,
                        void (*settled)(struct broker *broker, const char *name, int code), const char *name)
{
    size_t size = strlen(name) + 1;
    struct record_wait *wait = calloc(1, sizeof *wait + size);
    int rv = ERROR_NO_MEMORY;
    if (wait != NULL) {
        wait->reply_to = *to;
        wait->settled = settled;
        memcpy(wait->name, name, size);
        rv = metadata_submit(broker, record, record_done, wait);
    }
    if (rv == 0)
        return;
    free(wait);
    if (settled != NULL)
        settled(broker, name, rv);
    reply_not_now(broker, to, rv);
}
