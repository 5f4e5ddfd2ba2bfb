/* Follows org.apache.rocketmq.broker.BrokerController, whose constructor makes these parts. */
#include "broker/broker_parts.h"

#include "broker/broker_stats.h"
#include "broker/broker_stats_manager.h"
#include "broker/log.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/queue_lock.h"
#include "broker/metadata/topic_config.h"
#include "broker/namesrv/registrar.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/processor_table.h"
#include "broker/processor/pull_hold.h"
#include "broker/processor/send_message_processor.h"
#include "broker/remoting/client_call.h"
#include "broker/remoting/client_registry.h"
#include "broker/remoting/forward.h"
#include "broker/service/disk_level.h"
#include "broker/service/retention.h"
#include "broker/service/schedule.h"
#include "broker/service/transaction.h"
#include "proto/hash.h"
#include "proto/topic_validator.h"

/* ---- dledger's callbacks ---- */

static void on_apply_metadata(void *context, uint64_t index, struct slice record, bool replay)
{
    metadata_apply(context, index, record, replay);
}

static void on_apply_message(void *context, uint64_t index, const struct message_dispatch *dispatch, struct slice trailer, bool replay)
{
    struct broker *broker = context;
    (void)index;
    if (trailer.size > 0)
        metadata_apply_consumed(broker, trailer, replay);
    if (pull_hold_count(broker->holds) > 0)
        pull_hold_arrived(broker->holds, dispatch->topic, dispatch->queue_id, message_tags_code(dispatch->tags), dispatch->properties);
    if (dispatch->topic.size == sizeof TOPIC_SCHEDULE - 1 && slice_equal_text(dispatch->topic, TOPIC_SCHEDULE))
        schedule_arrived(broker->schedule, dispatch);
    if (dispatch->topic.size == sizeof TOPIC_TRANS_HALF - 1 && slice_equal_text(dispatch->topic, TOPIC_TRANS_HALF))
        metadata_apply_half(broker, dispatch, replay);
}

static void on_applied(void *context)
{
    struct broker *broker = context;
    topic_config_settle(broker);
    pull_hold_wake(broker->holds);
}

static int on_snapshot(void *context, uint64_t index, struct buffer *out)
{
    return metadata_snapshot(context, index, out);
}

static int on_restore(void *context, struct slice snapshot)
{
    return metadata_restore(context, snapshot);
}

static void on_role_changed(void *context)
{
    struct broker *broker = context;
    struct dledger_state state;
    dledger_commit_log_state(broker->log, &state);
    LOG_INFO("role %s, term %llu, leader %s%s", dledger_role_name(state.role), (unsigned long long)state.term,
             state.leader < 0 ? "unknown" : state.members[state.leader].id, state.accepting ? ", accepts messages" : "");
    topic_config_role_changed(broker->topics, state.accept_count);
    consumer_offset_role_changed(broker, state.term, state.role == DLEDGER_LEADER);
    queue_lock_role_changed(broker->locks, state.term);
    schedule_role_changed(broker->schedule);
    transaction_role_changed(broker->transactions);
    forward_role_changed(broker->forward);
    registrar_role_changed(broker);
    if (state.accepting)
        client_registry_ensure_groups(broker);
}

static void on_forwarded(void *context, uint64_t forward_id, struct slice client_address, uint8_t *frame, size_t frame_size)
{
    struct broker *broker = context;
    forward_received(broker->forward, forward_id, client_address, frame, frame_size);
}

static void on_forward_answered(void *context, uint64_t request_id, int code, struct slice frame)
{
    struct broker *broker = context;
    forward_answered(broker->forward, request_id, code, frame);
}

static void on_failed(void *context, const struct error *error)
{
    (void)context;
    LOG_ERROR("the log of this node is broken and takes no part any more: %s; mend the disk and start again, or replace the node",
              error->message);
}

static void on_restart(void *context)
{
    struct broker *broker = context;
    if (broker->restart != NULL)
        broker->restart(broker->restart_argument);
}

void broker_parts_callbacks(struct broker *broker, struct dledger_callbacks *callbacks)
{
    *callbacks = (struct dledger_callbacks){
        .context = broker,
        .apply_metadata = on_apply_metadata,
        .apply_message = on_apply_message,
        .applied = on_applied,
        .snapshot = on_snapshot,
        .restore = on_restore,
        .role_changed = on_role_changed,
        .forwarded = on_forwarded,
        .forward_answered = on_forward_answered,
        .failed = on_failed,
        .restart = on_restart,
    };
}

/* ---- life ---- */

int broker_parts_open(struct broker *broker, struct error *error)
{
    broker->item_stats = broker_stats_manager_new(&broker->env);
    broker->stats = broker->item_stats == NULL ? NULL : broker_stats_new(broker);
    broker->holds = pull_hold_new(broker->loop, broker, (uint32_t)broker->config.held_pulls_max);
    broker->cold_reads = cold_reader_new(broker);
    broker->calls = client_call_table_new(broker->loop, broker);
    if (broker->stats == NULL || broker->holds == NULL || broker->cold_reads == NULL || broker->calls == NULL)
        return error_set(error, ERROR_NO_MEMORY, "broker: %s", error_text(ERROR_NO_MEMORY));
    broker->processors = processor_table_new(error);
    broker->sends = send_message_processor_new(broker, error);
    broker->forward = forward_new(broker, error);
    broker->schedule = schedule_new(broker, error);
    broker->transactions = transaction_new(broker, error);
    broker->retention = retention_new(broker, error);
    broker->disk = disk_level_new(broker, error);
    if (broker->processors == NULL || broker->sends == NULL || broker->forward == NULL || broker->schedule == NULL ||
        broker->transactions == NULL || broker->retention == NULL || broker->disk == NULL)
        return error == NULL ? ERROR_NO_MEMORY : error->code;
    int rv = metadata_open(broker, error);
    return rv != 0 ? rv : client_registry_open(broker, error);
}

void broker_parts_close(struct broker *broker)
{
    client_call_table_close(broker->calls);
    schedule_close(broker->schedule);
    transaction_close(broker->transactions);
    retention_close(broker->retention);
    disk_level_close(broker->disk);
    forward_close(broker->forward);
    pull_hold_close(broker->holds);
    broker_stats_close(broker->stats);
    client_registry_close(broker);
    metadata_close(broker);
}

void broker_parts_free(struct broker *broker)
{
    schedule_free(broker->schedule);
    transaction_free(broker->transactions);
    retention_free(broker->retention);
    disk_level_free(broker->disk);
    forward_free(broker->forward);
    pull_hold_free(broker->holds);
    cold_reader_free(broker->cold_reads);
    client_call_table_free(broker->calls);
    send_message_processor_free(broker->sends);
    processor_table_free(broker->processors);
    broker_stats_free(broker->stats);
    broker_stats_manager_free(broker->item_stats);
}
