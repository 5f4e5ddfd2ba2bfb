/* Keeps this broker registered at every name server: one connection each, the whole table at every connect, change of role or topics, and every 30 s.
 *
 * Follows BrokerController#registerBrokerAll and BrokerOuterAPI of RocketMQ 4.9.8. The leader registers under id 0, a follower nK under K + 1. A
 * registration of the leader carries its Raft term (ext leaderTerm), so that a leader that was cut off cannot take the address back.
 * Loop thread only.
 */
#ifndef LEDGERMQ_BROKER_NAMESRV_REGISTRAR_H
#define LEDGERMQ_BROKER_NAMESRV_REGISTRAR_H

#include "proto/error.h"

struct broker;

/* Reads namesrvAddr (default: every peer's host with port 9876) and starts connecting; sets broker->registrar. The log must have been started. */
int registrar_start(struct broker *broker, struct error *error);
/* Role, leader or term changed, or topics did: everything is registered anew, at the end of this loop turn; for topics that are made in a row in a large
 * table up to a second later. Cheap; does nothing when there is no registrar. */
void registrar_role_changed(struct broker *broker);
void registrar_topics_changed(struct broker *broker);
/* Clean stop: unregisters everywhere (104, waits 500 ms at most for the bytes to leave), closes and frees; broker->registrar is NULL from the
 * call on and `stopped` is called from the loop, once. */
void registrar_stop(struct broker *broker, void (*stopped)(void *argument), void *argument);

#endif
