/* Which topic names are legal, which belong to the system, and to which no client may send.
 *
 * Follows org.apache.rocketmq.common.topic.TopicValidator 4.9.8 (spec: remoting.md 7.9, 7.10). The topics named like
 * the cluster, the broker and the reply topic are the system's too, but only the broker knows those names: it asks for
 * them itself.
 */
#ifndef LEDGERMQ_PROTO_TOPIC_VALIDATOR_H
#define LEDGERMQ_PROTO_TOPIC_VALIDATOR_H

#include "proto/buffer.h"
#include "proto/error.h"

#define TOPIC_AUTO_CREATE "TBW102"
#define TOPIC_SCHEDULE "SCHEDULE_TOPIC_XXXX"
#define TOPIC_BENCHMARK "BenchmarkTest"
#define TOPIC_TRANS_HALF "RMQ_SYS_TRANS_HALF_TOPIC"
#define TOPIC_TRANS_OP_HALF "RMQ_SYS_TRANS_OP_HALF_TOPIC"
#define TOPIC_TRANS_CHECK_MAX_TIME "TRANS_CHECK_MAX_TIME_TOPIC"
#define TOPIC_TRACE "RMQ_SYS_TRACE_TOPIC"
#define TOPIC_SELF_TEST "SELF_TEST_TOPIC"
#define TOPIC_OFFSET_MOVED_EVENT "OFFSET_MOVED_EVENT"
#define TOPIC_SYSTEM_PREFIX "rmq_sys_"
#define TOPIC_RETRY_PREFIX "%RETRY%"
#define TOPIC_DLQ_PREFIX "%DLQ%"
#define TOPIC_REPLY_POSTFIX "_REPLY_TOPIC"
#define GROUP_SYSTEM_PREFIX "CID_RMQ_SYS_"
#define GROUP_NAME_MAX 255u /* what clients allow */
#define CONSUMER_GROUP_NAME_MAX 120u

/* 0, or ERROR_INVALID with RocketMQ's remark: blank, illegal character, longer than 127. */
int topic_validate(struct slice topic, struct error *error);
/* Letters, digits, and %|_- only. Groups follow the same rule. An empty name is legal here. */
bool topic_or_group_is_legal(struct slice name);
/* 0, or ERROR_INVALID for a group name that is blank, has an illegal character or is longer than GROUP_NAME_MAX. */
int group_validate(struct slice group, struct error *error);
/* The same for a group that consumes: its retry topic, %RETRY% and the name, must be a topic. Java takes longer ones and fails at the first retry. */
int consumer_group_validate(struct slice group, struct error *error);
/* Refused by create (17) and delete (215). */
bool topic_is_system(struct slice topic);
/* The fixed names of topic_is_system, NULL-terminated; for GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305). */
const char *const *topic_system_names(void);
/* A client's send to it is answered NO_PERMISSION. */
bool topic_forbids_send(struct slice topic);
bool topic_is_retry(struct slice topic);
bool topic_is_dead_letter(struct slice topic);
bool group_is_system(struct slice group);

#endif
