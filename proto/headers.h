/* Typed ext fields of requests and answers (RocketMQ's CommandCustomHeader classes): one list of rows per header
 * gives its struct, its reader and its writer.
 *
 * Row: kind, member, key on the wire, required, value when absent. Rows are the fields of 4.9.8 and those of 5.3.3
 * that change an answer; unknown keys are ignored. Every header H has
 *
 *     struct H
 *     int H_decode(const struct remoting_command *command, struct H *header, struct error *error)
 *     void H_encode(const struct H *header, struct remoting_writer *writer)
 *
 * decode: ERROR_MISSING "field queueId is missing", ERROR_INVALID "field queueId is not a number: abc"; slices point
 * into the command's frame.
 * A bool is true for "true" and "1" (C++ clients) and false for all else, as Boolean.parseBoolean.
 * encode: writes texts that have data, required numbers, and other numbers whose has_ member is set.
 *
 * To add a field: add a row at the end of its list; peers ignore what they do not know.
 */
#ifndef LEDGERMQ_PROTO_HEADERS_H
#define LEDGERMQ_PROTO_HEADERS_H

#include "proto/remoting_command.h"

/* 10, 324 with these keys; 310, 320, 325 with the letters a..n in this order. */
#define SEND_MESSAGE_REQUEST_HEADER(F)                                                                       \
    F(TEXT, producer_group, "producerGroup", true, 0)                                                        \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(TEXT, default_topic, "defaultTopic", true, 0)                                                          \
    F(I32, default_topic_queue_nums, "defaultTopicQueueNums", true, 0)                                       \
    F(I32, queue_id, "queueId", true, 0)                                                                     \
    F(I32, sys_flag, "sysFlag", true, 0)                                                                     \
    F(I64, born_timestamp_ms, "bornTimestamp", true, 0)                                                      \
    F(I32, flag, "flag", true, 0)                                                                            \
    F(TEXT, properties, "properties", false, 0)                                                              \
    F(I32, reconsume_times, "reconsumeTimes", false, 0)                                                      \
    F(BOOL, unit_mode, "unitMode", false, 0)                                                                 \
    F(I32, max_reconsume_times, "maxReconsumeTimes", false, 0)                                               \
    F(BOOL, batch, "batch", false, 0)                                                                        \
    F(TEXT, broker_name, "bname", false, 0)

#define SEND_MESSAGE_RESPONSE_HEADER(F)                                                                      \
    F(TEXT, msg_id, "msgId", true, 0)                                                                        \
    F(I32, queue_id, "queueId", true, 0)                                                                     \
    F(I64, queue_offset, "queueOffset", true, 0)                                                             \
    F(TEXT, transaction_id, "transactionId", false, 0)                                                       \
    F(TEXT, msg_region, "MSG_REGION", false, 0)                                                              \
    F(BOOL, trace_on, "TRACE_ON", false, 0)

/* 326 */
#define REPLY_MESSAGE_REQUEST_HEADER(F)                                                                      \
    F(TEXT, producer_group, "producerGroup", true, 0)                                                        \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(TEXT, default_topic, "defaultTopic", true, 0)                                                          \
    F(I32, default_topic_queue_nums, "defaultTopicQueueNums", true, 0)                                       \
    F(I32, queue_id, "queueId", true, 0)                                                                     \
    F(I32, sys_flag, "sysFlag", true, 0)                                                                     \
    F(I64, born_timestamp_ms, "bornTimestamp", true, 0)                                                      \
    F(I32, flag, "flag", true, 0)                                                                            \
    F(TEXT, properties, "properties", false, 0)                                                              \
    F(I32, reconsume_times, "reconsumeTimes", false, 0)                                                      \
    F(BOOL, unit_mode, "unitMode", false, 0)                                                                 \
    F(TEXT, born_host, "bornHost", true, 0)                                                                  \
    F(TEXT, store_host, "storeHost", true, 0)                                                                \
    F(I64, store_timestamp_ms, "storeTimestamp", true, 0)

/* 11, 361 */
#define PULL_MESSAGE_REQUEST_HEADER(F)                                                                       \
    F(TEXT, consumer_group, "consumerGroup", true, 0)                                                        \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(I32, queue_id, "queueId", true, 0)                                                                     \
    F(I64, queue_offset, "queueOffset", true, 0)                                                             \
    F(I32, max_msg_nums, "maxMsgNums", true, 0)                                                              \
    F(I32, sys_flag, "sysFlag", true, 0)                                                                     \
    F(I64, commit_offset, "commitOffset", true, 0)                                                           \
    F(I64, suspend_timeout_ms, "suspendTimeoutMillis", true, 0)                                              \
    F(TEXT, subscription, "subscription", false, 0)                                                          \
    F(I64, sub_version, "subVersion", true, 0)                                                               \
    F(TEXT, expression_type, "expressionType", false, 0)                                                     \
    F(I32, max_msg_bytes, "maxMsgBytes", false, 0)

#define PULL_MESSAGE_RESPONSE_HEADER(F)                                                                      \
    F(I64, suggest_which_broker_id, "suggestWhichBrokerId", true, 0)                                         \
    F(I64, next_begin_offset, "nextBeginOffset", true, 0)                                                    \
    F(I64, min_offset, "minOffset", true, 0)                                                                 \
    F(I64, max_offset, "maxOffset", true, 0)

/* 12 */
#define QUERY_MESSAGE_REQUEST_HEADER(F)                                                                      \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(TEXT, key, "key", true, 0)                                                                             \
    F(I32, max_num, "maxNum", true, 0)                                                                       \
    F(I64, begin_timestamp_ms, "beginTimestamp", true, 0)                                                    \
    F(I64, end_timestamp_ms, "endTimestamp", true, 0)                                                        \
    F(BOOL, unique_key, "_UNIQUE_KEY_QUERY", false, 0)

#define QUERY_MESSAGE_RESPONSE_HEADER(F)                                                                     \
    F(I64, index_last_update_timestamp_ms, "indexLastUpdateTimestamp", true, 0)                              \
    F(I64, index_last_update_physical_offset, "indexLastUpdatePhyoffset", true, 0)

/* 33 */
#define VIEW_MESSAGE_REQUEST_HEADER(F)                                                                       \
    F(I64, offset, "offset", true, 0)                                                                        \
    F(TEXT, topic, "topic", false, 0)

/* 14 */
#define QUERY_CONSUMER_OFFSET_REQUEST_HEADER(F)                                                              \
    F(TEXT, consumer_group, "consumerGroup", true, 0)                                                        \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(I32, queue_id, "queueId", true, 0)                                                                     \
    F(BOOL, set_zero_if_not_found, "setZeroIfNotFound", false, 1)

/* 15 */
#define UPDATE_CONSUMER_OFFSET_REQUEST_HEADER(F)                                                             \
    F(TEXT, consumer_group, "consumerGroup", true, 0)                                                        \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(I32, queue_id, "queueId", true, 0)                                                                     \
    F(I64, commit_offset, "commitOffset", true, 0)

/* 29 */
#define SEARCH_OFFSET_REQUEST_HEADER(F)                                                                      \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(I32, queue_id, "queueId", true, 0)                                                                     \
    F(I64, timestamp_ms, "timestamp", true, 0)                                                               \
    F(TEXT, boundary_type, "boundaryType", false, 0)

/* 30, 31, 32 */
#define GET_OFFSET_REQUEST_HEADER(F)                                                                         \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(I32, queue_id, "queueId", true, 0)

/* answers of 14, 29, 30, 31 */
#define OFFSET_RESPONSE_HEADER(F) F(I64, offset, "offset", true, 0)

/* answer of 32 */
#define GET_EARLIEST_MSG_STORETIME_RESPONSE_HEADER(F) F(I64, timestamp_ms, "timestamp", true, 0)

/* 17 */
#define CREATE_TOPIC_REQUEST_HEADER(F)                                                                       \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(TEXT, default_topic, "defaultTopic", true, 0)                                                          \
    F(I32, read_queue_nums, "readQueueNums", true, 0)                                                        \
    F(I32, write_queue_nums, "writeQueueNums", true, 0)                                                      \
    F(I32, perm, "perm", true, 0)                                                                            \
    F(TEXT, topic_filter_type, "topicFilterType", true, 0)                                                   \
    F(I32, topic_sys_flag, "topicSysFlag", false, 0)                                                         \
    F(BOOL, order, "order", true, 0)                                                                         \
    F(TEXT, attributes, "attributes", false, 0)

/* 202, 215, 300, 351 */
#define TOPIC_REQUEST_HEADER(F) F(TEXT, topic, "topic", true, 0)

/* 105 */
#define GET_ROUTE_INFO_REQUEST_HEADER(F)                                                                     \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(BOOL, accept_standard_json_only, "acceptStandardJsonOnly", false, 0)

/* 216 */
#define DELETE_TOPIC_FROM_NAMESRV_REQUEST_HEADER(F)                                                          \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(TEXT, cluster_name, "clusterName", false, 0)

/* 224 */
#define GET_TOPICS_BY_CLUSTER_REQUEST_HEADER(F) F(TEXT, cluster, "cluster", true, 0)

/* 205, 327 */
#define BROKER_NAME_REQUEST_HEADER(F) F(TEXT, broker_name, "brokerName", true, 0)

/* 100; 101, 102 and 219 leave out value, and key */
#define PUT_KV_CONFIG_REQUEST_HEADER(F)                                                                      \
    F(TEXT, name_space, "namespace", true, 0)                                                                \
    F(TEXT, key, "key", true, 0)                                                                             \
    F(TEXT, value, "value", true, 0)
#define GET_KV_CONFIG_REQUEST_HEADER(F)                                                                      \
    F(TEXT, name_space, "namespace", true, 0)                                                                \
    F(TEXT, key, "key", true, 0)
#define GET_KV_LIST_REQUEST_HEADER(F) F(TEXT, name_space, "namespace", true, 0)

/* 103 */
#define REGISTER_BROKER_REQUEST_HEADER(F)                                                                    \
    F(TEXT, broker_name, "brokerName", true, 0)                                                              \
    F(TEXT, broker_addr, "brokerAddr", true, 0)                                                              \
    F(TEXT, cluster_name, "clusterName", true, 0)                                                            \
    F(TEXT, ha_server_addr, "haServerAddr", true, 0)                                                         \
    F(I64, broker_id, "brokerId", true, 0)                                                                   \
    F(BOOL, compressed, "compressed", false, 0)                                                              \
    F(I32, body_crc32, "bodyCrc32", false, 0)                                                                \
    F(I64, heartbeat_timeout_ms, "heartbeatTimeoutMillis", false, 0)                                         \
    F(I64, leader_term, "leaderTerm", false, 0)                                                              \
    F(TEXT, advertised_listeners, "advertisedListeners", false, 0)

#define REGISTER_BROKER_RESPONSE_HEADER(F)                                                                   \
    F(TEXT, ha_server_addr, "haServerAddr", false, 0)                                                        \
    F(TEXT, master_addr, "masterAddr", false, 0)

/* 104, 322 */
#define UNREGISTER_BROKER_REQUEST_HEADER(F)                                                                  \
    F(TEXT, broker_name, "brokerName", true, 0)                                                              \
    F(TEXT, broker_addr, "brokerAddr", true, 0)                                                              \
    F(TEXT, cluster_name, "clusterName", true, 0)                                                            \
    F(I64, broker_id, "brokerId", true, 0)

/* 35 */
#define UNREGISTER_CLIENT_REQUEST_HEADER(F)                                                                  \
    F(TEXT, client_id, "clientID", true, 0)                                                                  \
    F(TEXT, producer_group, "producerGroup", false, 0)                                                       \
    F(TEXT, consumer_group, "consumerGroup", false, 0)

/* 36: C++ 1.x sends group, offset and delayLevel only */
#define CONSUMER_SEND_MSG_BACK_REQUEST_HEADER(F)                                                             \
    F(I64, offset, "offset", true, 0)                                                                        \
    F(TEXT, group, "group", true, 0)                                                                         \
    F(I32, delay_level, "delayLevel", true, 0)                                                               \
    F(TEXT, origin_msg_id, "originMsgId", false, 0)                                                          \
    F(TEXT, origin_topic, "originTopic", false, 0)                                                           \
    F(BOOL, unit_mode, "unitMode", false, 0)                                                                 \
    F(I32, max_reconsume_times, "maxReconsumeTimes", false, 0)

/* 37 */
#define END_TRANSACTION_REQUEST_HEADER(F)                                                                    \
    F(TEXT, producer_group, "producerGroup", true, 0)                                                        \
    F(I64, tran_state_table_offset, "tranStateTableOffset", true, 0)                                         \
    F(I64, commit_log_offset, "commitLogOffset", true, 0)                                                    \
    F(I32, commit_or_rollback, "commitOrRollback", true, 0)                                                  \
    F(BOOL, from_transaction_check, "fromTransactionCheck", false, 0)                                        \
    F(TEXT, msg_id, "msgId", true, 0)                                                                        \
    F(TEXT, transaction_id, "transactionId", false, 0)                                                       \
    F(TEXT, topic, "topic", false, 0)

/* 39 */
#define CHECK_TRANSACTION_STATE_REQUEST_HEADER(F)                                                            \
    F(I64, tran_state_table_offset, "tranStateTableOffset", true, 0)                                         \
    F(I64, commit_log_offset, "commitLogOffset", true, 0)                                                    \
    F(TEXT, msg_id, "msgId", false, 0)                                                                       \
    F(TEXT, transaction_id, "transactionId", false, 0)                                                       \
    F(TEXT, offset_msg_id, "offsetMsgId", false, 0)

/* 38, 40, 203 */
#define CONSUMER_GROUP_REQUEST_HEADER(F) F(TEXT, consumer_group, "consumerGroup", true, 0)

/* 204 */
#define PRODUCER_GROUP_REQUEST_HEADER(F) F(TEXT, producer_group, "producerGroup", true, 0)

/* 207: removeOffset of 4.9, cleanOffset of 5.x */
#define DELETE_SUBSCRIPTION_GROUP_REQUEST_HEADER(F)                                                          \
    F(TEXT, group_name, "groupName", true, 0)                                                                \
    F(BOOL, remove_offset, "removeOffset", false, 0)                                                         \
    F(BOOL, clean_offset, "cleanOffset", false, 0)

/* 208 */
#define GET_CONSUME_STATS_REQUEST_HEADER(F)                                                                  \
    F(TEXT, consumer_group, "consumerGroup", true, 0)                                                        \
    F(TEXT, topic, "topic", false, 0)                                                                        \
    F(TEXT, topic_list, "topicList", false, 0)

/* 220, 222 */
#define RESET_OFFSET_REQUEST_HEADER(F)                                                                       \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(TEXT, group, "group", true, 0)                                                                         \
    F(I64, timestamp_ms, "timestamp", true, 0)                                                               \
    F(BOOL, is_force, "isForce", true, 0)                                                                    \
    F(I32, queue_id, "queueId", false, -1)                                                                   \
    F(I64, offset, "offset", false, -1)

/* 221, 223 */
#define GET_CONSUMER_STATUS_REQUEST_HEADER(F)                                                                \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(TEXT, group, "group", true, 0)                                                                         \
    F(TEXT, client_addr, "clientAddr", false, 0)

/* 303 */
#define QUERY_CONSUME_TIME_SPAN_REQUEST_HEADER(F)                                                            \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(TEXT, group, "group", true, 0)

/* 307 */
#define GET_CONSUMER_RUNNING_INFO_REQUEST_HEADER(F)                                                          \
    F(TEXT, consumer_group, "consumerGroup", true, 0)                                                        \
    F(TEXT, client_id, "clientId", true, 0)                                                                  \
    F(BOOL, jstack_enable, "jstackEnable", false, 0)

/* 308 */
#define QUERY_CORRECTION_OFFSET_REQUEST_HEADER(F)                                                            \
    F(TEXT, filter_groups, "filterGroups", false, 0)                                                         \
    F(TEXT, compare_group, "compareGroup", true, 0)                                                          \
    F(TEXT, topic, "topic", true, 0)

/* 309 */
#define CONSUME_MESSAGE_DIRECTLY_REQUEST_HEADER(F)                                                           \
    F(TEXT, consumer_group, "consumerGroup", true, 0)                                                        \
    F(TEXT, client_id, "clientId", false, 0)                                                                 \
    F(TEXT, msg_id, "msgId", false, 0)                                                                       \
    F(TEXT, broker_name, "brokerName", false, 0)

/* 314 */
#define CLONE_GROUP_OFFSET_REQUEST_HEADER(F)                                                                 \
    F(TEXT, src_group, "srcGroup", true, 0)                                                                  \
    F(TEXT, dest_group, "destGroup", true, 0)                                                                \
    F(TEXT, topic, "topic", false, 0)                                                                        \
    F(BOOL, offline, "offline", false, 0)

/* 315 */
#define VIEW_BROKER_STATS_DATA_REQUEST_HEADER(F)                                                             \
    F(TEXT, stats_name, "statsName", true, 0)                                                                \
    F(TEXT, stats_key, "statsKey", true, 0)

/* 317 */
#define GET_BROKER_CONSUME_STATS_REQUEST_HEADER(F) F(BOOL, is_order, "isOrder", true, 0)

/* 321 */
#define QUERY_CONSUME_QUEUE_REQUEST_HEADER(F)                                                                \
    F(TEXT, topic, "topic", true, 0)                                                                         \
    F(I32, queue_id, "queueId", true, 0)                                                                     \
    F(I64, index, "index", true, 0)                                                                          \
    F(I32, count, "count", false, 0)                                                                         \
    F(TEXT, consumer_group, "consumerGroup", false, 0)

/* 323 */
#define RESUME_CHECK_HALF_MESSAGE_REQUEST_HEADER(F) F(TEXT, msg_id, "msgId", false, 0)

/* 50 */
#define CREATE_ACCESS_CONFIG_REQUEST_HEADER(F)                                                               \
    F(TEXT, access_key, "accessKey", true, 0)                                                                \
    F(TEXT, secret_key, "secretKey", false, 0)                                                               \
    F(TEXT, white_remote_address, "whiteRemoteAddress", false, 0)                                            \
    F(BOOL, admin, "admin", true, 0)                                                                         \
    F(TEXT, default_topic_perm, "defaultTopicPerm", false, 0)                                                \
    F(TEXT, default_group_perm, "defaultGroupPerm", false, 0)                                                \
    F(TEXT, topic_perms, "topicPerms", false, 0)                                                             \
    F(TEXT, group_perms, "groupPerms", false, 0)

/* 51 */
#define DELETE_ACCESS_CONFIG_REQUEST_HEADER(F) F(TEXT, access_key, "accessKey", true, 0)

/* 53 */
#define UPDATE_GLOBAL_WHITE_ADDRS_REQUEST_HEADER(F)                                                          \
    F(TEXT, global_white_addrs, "globalWhiteAddrs", true, 0)                                                 \
    F(TEXT, acl_file_full_path, "aclFileFullPath", false, 0)

#define HEADERS(X)                                                                                           \
    X(send_message_response_header, SEND_MESSAGE_RESPONSE_HEADER)                                            \
    X(reply_message_request_header, REPLY_MESSAGE_REQUEST_HEADER)                                            \
    X(pull_message_response_header, PULL_MESSAGE_RESPONSE_HEADER)                                            \
    X(query_message_request_header, QUERY_MESSAGE_REQUEST_HEADER)                                            \
    X(query_message_response_header, QUERY_MESSAGE_RESPONSE_HEADER)                                          \
    X(view_message_request_header, VIEW_MESSAGE_REQUEST_HEADER)                                              \
    X(query_consumer_offset_request_header, QUERY_CONSUMER_OFFSET_REQUEST_HEADER)                            \
    X(update_consumer_offset_request_header, UPDATE_CONSUMER_OFFSET_REQUEST_HEADER)                          \
    X(search_offset_request_header, SEARCH_OFFSET_REQUEST_HEADER)                                            \
    X(get_offset_request_header, GET_OFFSET_REQUEST_HEADER)                                                  \
    X(offset_response_header, OFFSET_RESPONSE_HEADER)                                                        \
    X(get_earliest_msg_storetime_response_header, GET_EARLIEST_MSG_STORETIME_RESPONSE_HEADER)                \
    X(create_topic_request_header, CREATE_TOPIC_REQUEST_HEADER)                                              \
    X(topic_request_header, TOPIC_REQUEST_HEADER)                                                            \
    X(get_route_info_request_header, GET_ROUTE_INFO_REQUEST_HEADER)                                          \
    X(delete_topic_from_namesrv_request_header, DELETE_TOPIC_FROM_NAMESRV_REQUEST_HEADER)                    \
    X(get_topics_by_cluster_request_header, GET_TOPICS_BY_CLUSTER_REQUEST_HEADER)                            \
    X(broker_name_request_header, BROKER_NAME_REQUEST_HEADER)                                                \
    X(put_kv_config_request_header, PUT_KV_CONFIG_REQUEST_HEADER)                                            \
    X(get_kv_config_request_header, GET_KV_CONFIG_REQUEST_HEADER)                                            \
    X(get_kv_list_request_header, GET_KV_LIST_REQUEST_HEADER)                                                \
    X(register_broker_request_header, REGISTER_BROKER_REQUEST_HEADER)                                        \
    X(register_broker_response_header, REGISTER_BROKER_RESPONSE_HEADER)                                      \
    X(unregister_broker_request_header, UNREGISTER_BROKER_REQUEST_HEADER)                                    \
    X(unregister_client_request_header, UNREGISTER_CLIENT_REQUEST_HEADER)                                    \
    X(consumer_send_msg_back_request_header, CONSUMER_SEND_MSG_BACK_REQUEST_HEADER)                          \
    X(end_transaction_request_header, END_TRANSACTION_REQUEST_HEADER)                                        \
    X(check_transaction_state_request_header, CHECK_TRANSACTION_STATE_REQUEST_HEADER)                        \
    X(consumer_group_request_header, CONSUMER_GROUP_REQUEST_HEADER)                                          \
    X(producer_group_request_header, PRODUCER_GROUP_REQUEST_HEADER)                                          \
    X(delete_subscription_group_request_header, DELETE_SUBSCRIPTION_GROUP_REQUEST_HEADER)                    \
    X(get_consume_stats_request_header, GET_CONSUME_STATS_REQUEST_HEADER)                                    \
    X(reset_offset_request_header, RESET_OFFSET_REQUEST_HEADER)                                              \
    X(get_consumer_status_request_header, GET_CONSUMER_STATUS_REQUEST_HEADER)                                \
    X(query_consume_time_span_request_header, QUERY_CONSUME_TIME_SPAN_REQUEST_HEADER)                        \
    X(get_consumer_running_info_request_header, GET_CONSUMER_RUNNING_INFO_REQUEST_HEADER)                    \
    X(query_correction_offset_request_header, QUERY_CORRECTION_OFFSET_REQUEST_HEADER)                        \
    X(consume_message_directly_request_header, CONSUME_MESSAGE_DIRECTLY_REQUEST_HEADER)                      \
    X(clone_group_offset_request_header, CLONE_GROUP_OFFSET_REQUEST_HEADER)                                  \
    X(view_broker_stats_data_request_header, VIEW_BROKER_STATS_DATA_REQUEST_HEADER)                          \
    X(get_broker_consume_stats_request_header, GET_BROKER_CONSUME_STATS_REQUEST_HEADER)                      \
    X(query_consume_queue_request_header, QUERY_CONSUME_QUEUE_REQUEST_HEADER)                                \
    X(resume_check_half_message_request_header, RESUME_CHECK_HALF_MESSAGE_REQUEST_HEADER)                    \
    X(create_access_config_request_header, CREATE_ACCESS_CONFIG_REQUEST_HEADER)                              \
    X(delete_access_config_request_header, DELETE_ACCESS_CONFIG_REQUEST_HEADER)                              \
    X(update_global_white_addrs_request_header, UPDATE_GLOBAL_WHITE_ADDRS_REQUEST_HEADER)
/* The two whose keys are found by a switch, since every message passes through one of them. */
#define HOT_HEADERS(X)                                                                                       \
    X(send_message_request_header, SEND_MESSAGE_REQUEST_HEADER)                                              \
    X(pull_message_request_header, PULL_MESSAGE_REQUEST_HEADER)

#define HEADER_MEMBER_TEXT(member) struct slice member;
#define HEADER_MEMBER_I32(member)                                                                            \
    int32_t member;                                                                                          \
    bool has_##member;
#define HEADER_MEMBER_I64(member)                                                                            \
    int64_t member;                                                                                          \
    bool has_##member;
#define HEADER_MEMBER_BOOL(member)                                                                           \
    bool member;                                                                                             \
    bool has_##member;
#define HEADER_MEMBER(kind, member, key, required, fallback) HEADER_MEMBER_##kind(member)
#define X(name, FIELDS)                                                                                      \
    struct name {                                                                                            \
        FIELDS(HEADER_MEMBER)                                                                                \
    };                                                                                                       \
    int name##_decode(const struct remoting_command *command, struct name *header, struct error *error);     \
    void name##_encode(const struct name *header, struct remoting_writer *writer);
HEADERS(X)
HOT_HEADERS(X)
#undef X

/* send_message_request_header_decode takes the short keys for codes 310, 320 and 325 (errors say the long ones);
 * _encode writes the long ones, this the short ones. */
void send_message_request_header_encode_v2(const struct send_message_request_header *header,
                                           struct remoting_writer *writer);

#endif
