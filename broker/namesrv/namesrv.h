/* The name server: which broker serves which topic, and a small key-value table. In every broker on its own port, and alone as mqnamesrv.
 *
 * Follows org.apache.rocketmq.namesrv.NamesrvController. Name servers know nothing of each other: each broker registers at all of them.
 * Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_NAMESRV_NAMESRV_H
#define LEDGERMQ_BROKER_NAMESRV_NAMESRV_H

#include <uv.h>

#include "broker/namesrv/namesrv_config.h"
#include "broker/namesrv/namesrv_kv_config_manager.h"
#include "broker/namesrv/namesrv_route_info_manager.h"
#include "proto/error.h"
#include "store/env.h"

/* A name server that knows no leader yet asks clients to come again instead of saying "no such topic", for this long after its start. */
#define NAMESRV_NOT_READY_MS 3000
/* And with a leader for this long: those of other broker names come back within a second (broker/namesrv/registrar.c). */
#define NAMESRV_SETTLE_MS 1200
/* How often silent brokers are looked for (RouteInfoManager#scanNotActiveBroker: 10 s in 4.9, 5 s in 5.x). */
#define NAMESRV_SCAN_MS 5000

struct broker;
struct remoting_server;

struct namesrv {
    uv_loop_t *loop;
    struct env *env;
    struct namesrv_config config;
    struct route_info_manager routes;
    struct kv_config_manager kv;
    int64_t started_ms; /* namesrv_now_ms */

    /* private */
    struct remoting_server *server;
    int open_handles; /* server and timer */
    uv_timer_t scan;
    void (*stopped)(void *argument);
    void *stopped_argument;
};

/* Reads the key-value file and listens on every configured port. config is copied. */
int namesrv_start(struct namesrv **namesrv, uv_loop_t *loop, struct env *env, const struct namesrv_config *config, struct error *error);
/* The name server of a broker, on its namesrvPort and namesrvListeners; sets broker->namesrv. */
int namesrv_start_embedded(struct broker *broker, struct error *error);
/* Milliseconds that never go back; ages are counted in them. */
int64_t namesrv_now_ms(const struct namesrv *namesrv);
/* Closes everything and frees it; then `stopped` is called from the loop, once. */
void namesrv_stop(struct namesrv *namesrv, void (*stopped)(void *argument), void *argument);

#endif
