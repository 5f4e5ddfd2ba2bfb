#include "broker_state.h"

#include <check.h>
#include <stdlib.h>

static int64_t no_offset(void *context)
{
    (void)context;
    return 0;
}

static const uint8_t *nothing_at(void *context, int64_t offset, size_t size)
{
    (void)context;
    (void)offset;
    (void)size;
    return NULL;
}

static int nothing_to_read(void *context, int64_t offset, void *out, size_t size)
{
    (void)context;
    (void)offset;
    (void)out;
    (void)size;
    return -2;
}

static int keep_record(struct broker *broker, struct slice bytes, struct append_entry_request *request)
{
    struct broker_state *state = (struct broker_state *)(void *)broker;
    if (state->append_code != 0)
        return state->append_code;
    ck_assert_uint_lt(state->count, BROKER_STATE_RECORDS);
    struct broker_state_record *record = &state->records[state->count++];
    record->bytes = malloc(bytes.size + 1);
    ck_assert_ptr_nonnull(record->bytes);
    if (bytes.size > 0)
        memcpy(record->bytes, bytes.data, bytes.size);
    record->size = bytes.size;
    record->request = request;
    state->appended++;
    return 0;
}

static bool leads(const struct broker *broker)
{
    return ((const struct broker_state *)(const void *)broker)->leads;
}

static void note_notice(struct broker *broker, uint64_t connection_id, const char *group)
{
    struct broker_state *state = (struct broker_state *)(void *)broker;
    size_t size = strlen(state->notices);
    snprintf(state->notices + size, sizeof state->notices - size, "%llu:%s ", (unsigned long long)connection_id, group);
}

static void note_disconnect(struct broker *broker, uint64_t connection_id)
{
    struct broker_state *state = (struct broker_state *)(void *)broker;
    size_t size = strlen(state->disconnects);
    snprintf(state->disconnects + size, sizeof state->disconnects - size, "%llu ", (unsigned long long)connection_id);
}

static uint32_t no_message_at(void *context, int64_t offset)
{
    (void)context;
    (void)offset;
    return 0;
}

void broker_state_open(struct broker_state *state)
{
    struct error error;
    memset(state, 0, sizeof *state);
    sim_env_init(&state->sim, 1, NULL);
    state->sim.own_clock.wall_ms = 1700000000000;
    state->sim.own_clock.monotonic_us = 5000000;
    struct broker *broker = &state->broker;
    broker->env = state->sim.env;
    broker->config.broker_cluster_name = "DefaultCluster";
    broker->config.broker_name = "broker-a";
    broker->config.store_path_root_dir = "/store";
    broker->config.msg_trace_topic_name = "RMQ_SYS_TRACE_TOPIC";
    broker->config.default_topic_queue_nums = 8;
    broker->config.auto_create_topic_enable = true;
    broker->config.auto_create_subscription_group = true;
    broker->config.cluster_topic_enable = true;
    broker->config.broker_topic_enable = true;
    broker->config.notify_consumer_ids_changed_enable = true;
    broker->config.delay_levels = 18;
    struct message_store_config store = {.root = "/store", .consume_queue_file_size = 2000};
    struct log_view log = {NULL, no_offset, no_offset, nothing_at, nothing_to_read, no_message_at, NULL};
    ck_assert_msg(message_store_open(&broker->store, &state->sim.env, &store, &log, &error) == 0, "%s", error.message);
    ck_assert_msg(message_store_recover(&broker->store, 0, &error) == 0, "%s", error.message);
    ck_assert_msg(metadata_open(broker, &error) == 0, "%s", error.message);
    broker->metadata->append = keep_record;
    broker->metadata->leads = leads;
    ck_assert_msg(client_registry_open(broker, &error) == 0, "%s", error.message);
    broker->clients->notify = note_notice;
    broker->clients->disconnect = note_disconnect;
    state->leads = true;
    state->next_index = 1;
}

void broker_state_close(struct broker_state *state)
{
    broker_state_fail(state, ERROR_STOPPED);
    client_registry_close(&state->broker);
    metadata_close(&state->broker);
    message_store_close(&state->broker.store);
    sim_env_close(&state->sim);
}

void broker_state_commit(struct broker_state *state)
{
    /* What the callbacks submit is left for the next call. */
    uint32_t count = state->count;
    struct broker_state_record *records = malloc((count + 1) * sizeof *records);
    ck_assert_ptr_nonnull(records);
    memcpy(records, state->records, count * sizeof *records);
    state->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        metadata_apply(&state->broker, state->next_index++, slice_of(records[i].bytes, records[i].size), false);
        free(records[i].bytes);
        records[i].request->code = 0;
        records[i].request->done(records[i].request);
    }
    free(records);
}

void broker_state_fail(struct broker_state *state, int code)
{
    uint32_t count = state->count;
    state->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct append_entry_request *request = state->records[i].request;
        free(state->records[i].bytes);
        request->code = code;
        request->done(request);
    }
}

void broker_state_pass(struct broker_state *state, int64_t ms)
{
    state->sim.own_clock.wall_ms += ms;
    state->sim.own_clock.monotonic_us += (uint64_t)ms * 1000;
}

void broker_state_apply(struct broker_state *state, uint64_t index, Ledgermq__MetadataRecord *record, bool replay)
{
    size_t size = ledgermq__metadata_record__get_packed_size(record);
    uint8_t *bytes = malloc(size + 1);
    ck_assert_ptr_nonnull(bytes);
    ledgermq__metadata_record__pack(record, bytes);
    metadata_apply(&state->broker, index, slice_of(bytes, size), replay);
    free(bytes);
}

void broker_state_put_topic(struct broker_state *state, uint64_t index, const char *name, int32_t queues)
{
    struct topic_config config;
    Ledgermq__TopicConfig put;
    Ledgermq__TopicConfig *puts[1] = {&put};
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    topic_config_init(&config, slice_of_text(name));
    config.read_queue_nums = queues;
    config.write_queue_nums = queues;
    metadata_topic_message(&config, name, &put);
    record.n_put_topics = 1;
    record.put_topics = puts;
    record.time_ms = 1700000000000 + (int64_t)index;
    broker_state_apply(state, index, &record, false);
}

/* Of a record that lives as long as the array. */
static Ledgermq__MetadataRecord deletion_of(char *names[1])
{
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    record.n_delete_topics = 1;
    record.delete_topics = names;
    return record;
}

void broker_state_delete_topic(struct broker_state *state, uint64_t index, const char *name, bool replay)
{
    char *names[1] = {(char *)(uintptr_t)name};
    Ledgermq__MetadataRecord record = deletion_of(names);
    record.time_ms = 1700000000000 + (int64_t)index;
    broker_state_apply(state, index, &record, replay);
}

int broker_state_submit_deletion(struct broker_state *state, const char *name, metadata_done done, void *context)
{
    char *names[1] = {(char *)(uintptr_t)name};
    Ledgermq__MetadataRecord record = deletion_of(names);
    ck_assert_int_eq(topic_config_deletion_begins(&state->broker, slice_of_text(name)), 0);
    return metadata_submit(&state->broker, &record, done, context);
}
