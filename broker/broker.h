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
    struct send_message_processor *sends;
    struct pull_hold *holds;
    struct cold_reader *cold_reads;
    struct schedule *schedule;
    struct metadata *metadata;
    struct forward *forward;
    struct namesrv *namesrv;  /* embedded name server, NULL when off */
    struct registrar *registrar; /* registration at the name servers */
    struct broker_stats *stats;
};

#endif
