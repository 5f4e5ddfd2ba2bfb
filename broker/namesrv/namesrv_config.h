/* Settings of a name server, in RocketMQ's words (namesrv.conf; NamesrvConfig and NettyServerConfig of 4.9.8). */
#ifndef LEDGERMQ_BROKER_NAMESRV_NAMESRV_CONFIG_H
#define LEDGERMQ_BROKER_NAMESRV_NAMESRV_CONFIG_H

#include <stdbool.h>

#include "proto/buffer.h"
#include "proto/error.h"

#define NAMESRV_LISTENERS_MAX 7 /* and listenPort: LIMIT_LISTENERS */
#define NAMESRV_PATH_MAX 512

/* A question that arrives on `port` is answered with the brokers' addresses of that name (advertisedListeners of broker.conf). */
struct namesrv_listener {
    char name[32];
    int port;
};

struct namesrv_config {
    int listen_port;                  /* listenPort; answered with the brokers' default addresses unless listed below */
    char bind_address[64];            /* bindAddress */
    char kv_config_path[NAMESRV_PATH_MAX];    /* kvConfigPath; empty = not kept on disk */
    char config_store_path[NAMESRV_PATH_MAX]; /* configStorePath: where a change by 318 is kept; empty = not kept */
    char rocketmq_home[NAMESRV_PATH_MAX];     /* rocketmqHome; only shown */
    bool order_message_enable;                /* orderMessageEnable: routes carry orderTopicConf */
    int max_idle_seconds;                     /* serverChannelMaxIdleTimeSeconds */
    bool need_wait_for_service;               /* needWaitForService: no routes are answered until ... */
    int wait_seconds_for_service;             /* waitSecondsForService have passed since the start */
    char log_dir[NAMESRV_PATH_MAX]; /* logDir; empty = standard error */
    char log_level[16];             /* logLevel */
    struct namesrv_listener listeners[NAMESRV_LISTENERS_MAX]; /* namesrvListeners=NAME:PORT,... */
    int listener_count;
};

void namesrv_config_init(struct namesrv_config *config);
/* Takes properties text. Unknown keys warn with the nearest known one, wrong values are ERROR_INVALID and say why. `origin` is for the messages. */
int namesrv_config_read(struct namesrv_config *config, struct slice text, const char *origin, struct error *error);
/* UPDATE_NAMESRV_CONFIG: ERROR_NOT_FOUND for a key that cannot be changed while running; nothing is changed unless all can. */
int namesrv_config_update(struct namesrv_config *config, struct slice text, struct error *error);
/* Takes the keys that 318 may change from what it kept on disk; all others of the text are passed over. */
int namesrv_config_restore(struct namesrv_config *config, struct slice text, struct error *error);
/* Properties text of all keys, RocketMQ's own without effect here too (GET_NAMESRV_CONFIG). */
void namesrv_config_write(const struct namesrv_config *config, struct buffer *out);
/* For people (mqnamesrv -p). */
void namesrv_config_print(const struct namesrv_config *config, struct buffer *out);
/* "NAME:PORT,..." into config->listeners. */
int namesrv_config_parse_listeners(struct namesrv_config *config, struct slice text, struct error *error);
/* Listener name for a port, NULL = the default addresses. */
const char *namesrv_config_listener_name(const struct namesrv_config *config, int port);

#endif
