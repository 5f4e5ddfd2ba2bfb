/* Every response code of RocketMQ: RemotingSysResponseCode and ResponseCode, 4.9.8 and what 5.3.3 adds. */
#ifndef LEDGERMQ_PROTO_RESPONSE_CODE_H
#define LEDGERMQ_PROTO_RESPONSE_CODE_H

/* RocketMQ's name, number */
#define RESPONSE_CODES(X)                                                                                    \
    X(SUCCESS, 0)                                                                                            \
    X(SYSTEM_ERROR, 1)                                                                                       \
    X(SYSTEM_BUSY, 2)                                                                                        \
    X(REQUEST_CODE_NOT_SUPPORTED, 3)                                                                         \
    X(TRANSACTION_FAILED, 4)                                                                                 \
    X(FLUSH_DISK_TIMEOUT, 10)                                                                                \
    X(SLAVE_NOT_AVAILABLE, 11)                                                                               \
    X(FLUSH_SLAVE_TIMEOUT, 12)                                                                               \
    X(MESSAGE_ILLEGAL, 13)                                                                                   \
    X(SERVICE_NOT_AVAILABLE, 14)                                                                             \
    X(VERSION_NOT_SUPPORTED, 15)                                                                             \
    X(NO_PERMISSION, 16)                                                                                     \
    X(TOPIC_NOT_EXIST, 17)                                                                                   \
    X(TOPIC_EXIST_ALREADY, 18)                                                                               \
    X(PULL_NOT_FOUND, 19)                                                                                    \
    X(PULL_RETRY_IMMEDIATELY, 20)                                                                            \
    X(PULL_OFFSET_MOVED, 21)                                                                                 \
    X(QUERY_NOT_FOUND, 22)                                                                                   \
    X(SUBSCRIPTION_PARSE_FAILED, 23)                                                                         \
    X(SUBSCRIPTION_NOT_EXIST, 24)                                                                            \
    X(SUBSCRIPTION_NOT_LATEST, 25)                                                                           \
    X(SUBSCRIPTION_GROUP_NOT_EXIST, 26)                                                                      \
    X(FILTER_DATA_NOT_EXIST, 27)                                                                             \
    X(FILTER_DATA_NOT_LATEST, 28)                                                                            \
    X(INVALID_PARAMETER, 29)                                                                                 \
    X(TRANSACTION_SHOULD_COMMIT, 200)                                                                        \
    X(TRANSACTION_SHOULD_ROLLBACK, 201)                                                                      \
    X(TRANSACTION_STATE_UNKNOW, 202)                                                                         \
    X(TRANSACTION_STATE_GROUP_WRONG, 203)                                                                    \
    X(NO_BUYER_ID, 204)                                                                                      \
    X(NOT_IN_CURRENT_UNIT, 205)                                                                              \
    X(CONSUMER_NOT_ONLINE, 206)                                                                              \
    X(CONSUME_MSG_TIMEOUT, 207)                                                                              \
    X(NO_MESSAGE, 208)                                                                                       \
    X(UPDATE_AND_CREATE_ACL_CONFIG_FAILED, 209)                                                              \
    X(DELETE_ACL_CONFIG_FAILED, 210)                                                                         \
    X(UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, 211)                                                          \
    X(FLOW_CONTROL, 215)                                                                                     \
    X(GO_AWAY, 1500)                                                                                         \
    X(CONTROLLER_FENCED_MASTER_EPOCH, 2000)                                                                  \
    X(CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, 2001)                                                          \
    X(CONTROLLER_INVALID_MASTER, 2002)                                                                       \
    X(CONTROLLER_INVALID_REPLICAS, 2003)                                                                     \
    X(CONTROLLER_MASTER_NOT_AVAILABLE, 2004)                                                                 \
    X(CONTROLLER_INVALID_REQUEST, 2005)                                                                      \
    X(CONTROLLER_BROKER_NOT_ALIVE, 2006)                                                                     \
    X(CONTROLLER_NOT_LEADER, 2007)                                                                           \
    X(CONTROLLER_BROKER_METADATA_NOT_EXIST, 2008)                                                            \
    X(CONTROLLER_INVALID_CLEAN_BROKER_METADATA, 2009)                                                        \
    X(CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, 2010)                                                         \
    X(CONTROLLER_MASTER_STILL_EXIST, 2011)                                                                   \
    X(CONTROLLER_ELECT_MASTER_FAILED, 2012)                                                                  \
    X(CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, 2013)                                                          \
    X(CONTROLLER_BROKER_ID_INVALID, 2014)                                                                    \
    X(CONTROLLER_JRAFT_INTERNAL_ERROR, 2015)                                                                 \
    X(CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS, 2016)                                                          \
    X(USER_NOT_EXIST, 3001)                                                                                  \
    X(POLICY_NOT_EXIST, 3002)

enum response_code {
#define X(name, number) RESPONSE_##name = number,
    RESPONSE_CODES(X)
#undef X
    /* 5.x gave these three numbers a second meaning. */
    RESPONSE_POLLING_FULL = 209,
    RESPONSE_POLLING_TIMEOUT = 210,
    RESPONSE_BROKER_NOT_EXIST = 211,
};

/* RocketMQ's name (4.9's for 209-211), NULL for a number that is none. */
const char *response_code_name(int code);

#endif
