#include "broker/metadata/order_topics.h"

#include <stdlib.h>

#include "broker/broker.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/topic_config.h"
#include "proto/kv_table.h"
#include "store/log_sink.h"

#define CHANGES_MAX 256u /* of one record, each of some 200 bytes; the rest follows with the next answer, which this change brings about */

struct changes {
    size_t count;
    Ledgermq__TopicConfig *puts[CHANGES_MAX];
    Ledgermq__TopicConfig messages[CHANGES_MAX];
};

static void change(struct changes *changes, const struct topic_entry *entry, bool order)
{
    if (changes->count == CHANGES_MAX || entry->deleting)
        return;
    struct topic_config config = entry->config;
    config.order = order;
    changes->puts[changes->count] = &changes->messages[changes->count];
    metadata_topic_message(&config, entry->name, changes->puts[changes->count]);
    changes->count++;
}

static void compare(struct broker *broker, const struct kv_table *table, struct changes *changes)
{
    size_t known = 0, ordered = 0;
    for (size_t i = 0; i < table->pair_count; i++) {
        const struct topic_entry *entry = topic_config_find(broker->topics, table->pairs[i].name);
        if (entry != NULL && entry->config.order)
            known++;
        else if (entry != NULL)
            change(changes, entry, true);
    }
    for (const struct topic_entry *entry = broker->topics->entries; entry != NULL; entry = entry->hh.next)
        ordered += entry->config.order;
    for (const struct topic_entry *entry = broker->topics->entries; entry != NULL && ordered > known; entry = entry->hh.next) {
        if (entry->config.order && kv_table_get(table, entry->name).data == NULL)
            change(changes, entry, false);
    }
}

void order_topics_take(struct broker *broker, struct slice body)
{
    struct kv_table table;
    struct error error;
    /* A topic's settings are put whole: a record on its way may be about to change them. */
    if (body.size == 0 || !metadata_leads(broker) || broker->metadata->in_flight > 0)
        return;
    if (kv_table_decode(&table, body, &error) != 0) {
        LOG_WARN("the name server's table of order topics: %s", error.message);
        return;
    }
    struct changes *changes = malloc(sizeof *changes);
    if (changes != NULL) {
        changes->count = 0;
        compare(broker, &table, changes);
        if (changes->count > 0) {
            Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
            record.n_put_topics = changes->count;
            record.put_topics = changes->puts;
            if (metadata_submit(broker, &record, NULL, NULL) == 0)
                LOG_INFO("%zu topics become or stop being order topics", changes->count);
        }
    }
    free(changes);
    kv_table_close(&table);
}
