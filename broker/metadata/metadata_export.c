/* 1. A change arms the timer; when it fires, each table that has changed is written as JSON into memory (some 100 ns a row, on the loop).
 * 2. The pool replaces the files; the loop learns how it went and arms the timer again if more has changed.
 */
#include "broker/metadata/metadata_export.h"

#include <stdlib.h>
#include <uv.h>

#include "broker/broker.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/subscription_group.h"
#include "broker/metadata/topic_config.h"
#include "proto/consumer_offset_serialize_wrapper.h"
#include "proto/delay_offset_serialize_wrapper.h"
#include "proto/subscription_group_wrapper.h"
#include "proto/topic_config_serialize_wrapper.h"
#include "store/log_sink.h"
#include "store/state_file.h"

enum export_file { EXPORT_TOPICS, EXPORT_GROUPS, EXPORT_OFFSETS, EXPORT_DELAY, EXPORT_FILES };
static const char *const file_names[EXPORT_FILES] = {"topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"};

/* 256 MiB of JSON is some two million offsets, eight times what the table takes with one queue each. */
#define EXPORT_BYTES_MAX (256u << 20)
/* Bigger tables are exported less often: writing this much JSON may cost the loop a millisecond. */
#define EXPORT_ROWS_EASY 10000u
#define EXPORT_LARGE_MS 60000u

struct metadata_export {
    uv_timer_t timer;
    uv_work_t work;
    uv_sem_t finished; /* posted by the pool, so that a close can wait */
    struct broker *broker; /* NULL when closed */
    struct env env;
    char dir[4096];
    bool working;
    bool timer_closed;
    uint64_t written[EXPORT_FILES]; /* changes of each table that are in its file */
    uint64_t wanted[EXPORT_FILES];
    struct buffer json[EXPORT_FILES]; /* empty: nothing to write */
    struct error error;
};

static void offsets_row(void *argument, struct consumer_offset_entry *entry)
{
    struct buffer *out = argument;
    consumer_offset_serialize_wrapper_group_begin(out, entry->topic, entry->group);
    for (uint32_t i = 0; i < entry->count; i++)
        consumer_offset_serialize_wrapper_add(out, entry->queues[i].queue_id, entry->queues[i].offset);
    consumer_offset_serialize_wrapper_group_end(out);
}

static void write_json(struct broker *broker, enum export_file file, struct buffer *out)
{
    switch (file) {
    case EXPORT_TOPICS:
        topic_config_serialize_wrapper_begin(out, &broker->topics->version);
        for (struct topic_entry *entry = broker->topics->entries; entry != NULL; entry = entry->hh.next)
            topic_config_serialize_wrapper_add(out, &entry->config);
        topic_config_serialize_wrapper_end(out);
        break;
    case EXPORT_GROUPS:
        subscription_group_wrapper_begin(out, &broker->groups->version);
        for (struct subscription_group_entry *entry = broker->groups->entries; entry != NULL; entry = entry->hh.next)
            subscription_group_wrapper_add(out, &entry->config);
        subscription_group_wrapper_end(out);
        break;
    case EXPORT_OFFSETS:
        consumer_offset_serialize_wrapper_begin(out);
        consumer_offset_each(broker->offsets, offsets_row, out);
        consumer_offset_serialize_wrapper_end(out);
        break;
    case EXPORT_DELAY:
        delay_offset_serialize_wrapper_begin(out);
        for (int level = 1; level <= METADATA_DELAY_LEVELS_MAX; level++) {
            if (broker->metadata->delay_offset[level] >= 0)
                delay_offset_serialize_wrapper_add(out, level, broker->metadata->delay_offset[level]);
        }
        delay_offset_serialize_wrapper_end(out);
        break;
    case EXPORT_FILES:
        break;
    }
}

static uint64_t changes_of(const struct broker *broker, enum export_file file)
{
    switch (file) {
    case EXPORT_TOPICS:
        return broker->topics->changes;
    case EXPORT_GROUPS:
        return broker->groups->changes;
    case EXPORT_OFFSETS:
        return broker->offsets->changes;
    case EXPORT_DELAY:
        return broker->metadata->delay_changes;
    case EXPORT_FILES:
        break;
    }
    return 0;
}

/* True when there is something to write. */
static bool gather(struct metadata_export *export)
{
    bool any = false;
    for (int file = 0; file < EXPORT_FILES; file++) {
        export->wanted[file] = changes_of(export->broker, (enum export_file)file);
        buffer_clear(&export->json[file]);
        if (export->wanted[file] == export->written[file])
            continue;
        write_json(export->broker, (enum export_file)file, &export->json[file]);
        any = true;
    }
    return any;
}

/* On the pool, or at a close. */
static void write_files(struct metadata_export *export)
{
    export->error.code = 0;
    for (int file = 0; file < EXPORT_FILES; file++) {
        struct buffer *json = &export->json[file];
        if (json->size == 0)
            continue;
        char path[sizeof export->dir + 32];
        snprintf(path, sizeof path, "%s/%s", export->dir, file_names[file]);
        struct error error;
        int rv = json->failed ? error_set(&error, ERROR_NO_MEMORY, "%s: out of memory", path)
                              : state_file_write(&export->env, path, buffer_slice(json), &error);
        if (rv == 0)
            export->written[file] = export->wanted[file];
        else
            export->error = error;
        /* A large buffer is not kept between rounds. */
        buffer_close(json);
        buffer_init(json, EXPORT_BYTES_MAX);
    }
}

static void work(uv_work_t *request)
{
    struct metadata_export *export = request->data;
    write_files(export);
    uv_sem_post(&export->finished);
}

static void free_if_done(struct metadata_export *export)
{
    if (export->broker != NULL || export->working || !export->timer_closed)
        return;
    for (int file = 0; file < EXPORT_FILES; file++)
        buffer_close(&export->json[file]);
    uv_sem_destroy(&export->finished);
    free(export);
}

static void worked(uv_work_t *request, int status)
{
    struct metadata_export *export = request->data;
    export->working = false;
    if (export->broker == NULL) {
        free_if_done(export);
        return;
    }
    if (status == 0)
        uv_sem_wait(&export->finished);
    if (status == 0 && export->error.code != 0)
        LOG_WARN("metadata export: %s", export->error.message);
    metadata_export_due(export->broker);
}

static void timer_fired(uv_timer_t *timer)
{
    struct metadata_export *export = timer->data;
    if (export->working || !gather(export))
        return;
    export->working = uv_queue_work(timer->loop, &export->work, work, worked) == 0;
}

void metadata_export_due(struct broker *broker)
{
    struct metadata_export *export = broker->metadata->export_state;
    if (export == NULL || export->working || uv_is_active((uv_handle_t *)&export->timer))
        return;
    bool changed = false;
    for (int file = 0; file < EXPORT_FILES; file++)
        changed = changed || changes_of(broker, (enum export_file)file) != export->written[file];
    if (!changed)
        return;
    uint32_t rows = broker->topics->count + broker->groups->count + broker->offsets->key_count;
    uv_timer_start(&export->timer, timer_fired, rows > EXPORT_ROWS_EASY ? EXPORT_LARGE_MS : METADATA_EXPORT_MS, 0);
}

int metadata_export_start(struct broker *broker, struct error *error)
{
    struct metadata_export *export = calloc(1, sizeof *export);
    if (export == NULL)
        return error_set(error, ERROR_NO_MEMORY, "metadata export: out of memory");
    if ((size_t)snprintf(export->dir, sizeof export->dir, "%s/config", broker->config.store_path_root_dir) >= sizeof export->dir) {
        free(export);
        return error_set(error, ERROR_INVALID, "metadata export: storePathRootDir is too long");
    }
    if (uv_sem_init(&export->finished, 0) != 0) {
        free(export);
        return error_set(error, ERROR_NO_MEMORY, "metadata export: no semaphore");
    }
    export->broker = broker;
    export->env = broker->env;
    export->work.data = export;
    for (int file = 0; file < EXPORT_FILES; file++) {
        buffer_init(&export->json[file], EXPORT_BYTES_MAX);
        export->written[file] = UINT64_MAX; /* a start writes all of them once */
    }
    uv_timer_init(broker->loop, &export->timer);
    export->timer.data = export;
    broker->metadata->export_state = export;
    metadata_export_due(broker);
    return 0;
}

static void timer_closed(uv_handle_t *handle)
{
    struct metadata_export *export = handle->data;
    export->timer_closed = true;
    free_if_done(export);
}

void metadata_export_close(struct broker *broker)
{
    struct metadata_export *export = broker->metadata->export_state;
    if (export == NULL)
        return;
    broker->metadata->export_state = NULL;
    if (export->working && uv_cancel((uv_req_t *)&export->work) != 0)
        uv_sem_wait(&export->finished);
    if (gather(export))
        write_files(export);
    if (export->error.code != 0)
        LOG_WARN("metadata export: %s", export->error.message);
    export->broker = NULL;
    uv_close((uv_handle_t *)&export->timer, timer_closed);
}
