/* One node: what all processors share. Loop thread only. */
#ifndef LEDGERMQ_BROKER_BROKER_H
#define LEDGERMQ_BROKER_BROKER_H

#include <uv.h>

#include "broker/broker_config.h"
#include "dledger/dledger_commit_log.h"
#include "proto/remoting_command.h"
#include "store/env.h"
#include "store/message_store.h"

struct broker {
    uv_loop_t *loop;
    struct env env;
    struct broker_config config;
    struct dledger_commit_log *log;
    struct message_store store;
    struct message_host store_host; /* brokerIP1:listenPort, resolved at start */
    char address[128];              /* the same as text */
    int64_t boot_ms;

    /* each belongs to the file of its name */
    struct remoting_server *server; /* listener.h */
    struct processor_table *processors;
    struct topic_config_table *topics;
    struct subscription_group_table *groups;
    struct consumer_offset_table *offsets;
    struct client_registry *clients;
    struct queue_lock_table *locks;
    struct client_call_table *calls; /* client_call.h */
    struct send_message_processor *sends;
    struct pull_hold *holds;
    struct cold_reader *cold_reads;
    struct schedule *schedule;
    struct transaction *transactions;
    struct retention *retention;
    struct disk_level *disk;
    struct metadata *metadata;
    struct forward *forward;
    struct namesrv *namesrv;  /* embedded name server, NULL when off */
    struct registrar *registrar; /* registration at the name servers */
    struct broker_stats *stats;
    struct broker_stats_manager *item_stats; /* broker_stats_manager.h */

    /* broker.c only */
    struct env_file *lock_file;
    bool stopping;
    void (*stopped)(void *argument);
    void *stopped_argument;
    void (*restart)(void *argument); /* set by the owner, may be NULL: the broker is to be stopped and opened again, in a new process */
    void *restart_argument;
};

/* Makes storePathRootDir and locks it: two processes on one directory would write one log twice (and one log file, so this comes before log_open).
 * config must be finished (broker_config_finish), everything else zeroed. ERROR_LOCKED: another process has it. */
int broker_take_directory(struct broker *broker, struct error *error);
/* Instead of broker_open(): see dledger/new_group.h. */
int broker_force_new_group(struct broker *broker, struct buffer *told, struct error *error);
/* Recovers the log, joins the group and listens. ERROR_DAMAGED: see its message. After a failure the process is to end: what was opened is left
 * as it is. */
int broker_open(struct broker *broker, uv_loop_t *loop, struct error *error);
/* Clean stop: unregisters, hands leadership over, answers what waits, syncs; `stopped` is called from the loop, once. Then run the loop until
 * nothing is left in it, and broker_free. */
void broker_stop(struct broker *broker, void (*stopped)(void *argument), void *argument);
void broker_free(struct broker *broker);

#endif
