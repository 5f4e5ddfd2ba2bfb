/* A broker without sockets, loop and Raft: tables, store and clock of one node, and a log that the test commits by hand. */
#ifndef LEDGERMQ_TESTS_LIB_BROKER_STATE_H
#define LEDGERMQ_TESTS_LIB_BROKER_STATE_H

#include "broker/broker.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/queue_lock.h"
#include "broker/metadata/subscription_group.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/processor.h"
#include "broker/remoting/client_registry.h"

#include "sim_env.h"

#define BROKER_STATE_RECORDS 256

struct broker_state_record {
    uint8_t *bytes;
    size_t size;
    struct append_entry_request *request;
};

struct broker_state {
    struct broker broker; /* first: the append callback finds the rest through it */
    struct sim_env sim;
    bool leads;
    int append_code; /* not 0: appends are refused with it */
    uint64_t next_index;
    uint32_t appended; /* in all */
    struct broker_state_record records[BROKER_STATE_RECORDS]; /* on their way */
    uint32_t count;
    char notices[1024]; /* "<connection>:<group> " for each 40 */
    char disconnects[256];
};

void broker_state_open(struct broker_state *state);
void broker_state_close(struct broker_state *state);
/* All records on their way are applied and then told done. */
void broker_state_commit(struct broker_state *state);
/* All records on their way are lost. */
void broker_state_fail(struct broker_state *state, int code);
/* Time goes on, on both clocks. */
void broker_state_pass(struct broker_state *state, int64_t ms);
/* Packs and applies a record on this node alone. */
void broker_state_apply(struct broker_state *state, uint64_t index, Ledgermq__MetadataRecord *record, bool replay);

/* A record that makes one topic of 4 queues, or deletes one; applied as entry `index`. */
void broker_state_put_topic(struct broker_state *state, uint64_t index, const char *name, int32_t queues);
void broker_state_delete_topic(struct broker_state *state, uint64_t index, const char *name, bool replay);
/* As DELETE_TOPIC_IN_BROKER does: the topic is `deleting`, and the record on its way. metadata_submit()'s result. */
int broker_state_submit_deletion(struct broker_state *state, const char *name, metadata_done done, void *context);

#endif
