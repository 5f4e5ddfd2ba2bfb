/* The rows of broker.conf, in the order of `-p`, the README and request 26. Included by broker_config.c alone.
 *
 * To add a key: a field in struct broker_config (snake case of the key), a row here. A row without field is accepted, kept and shown: say why it has
 * no effect. `reported` is what request 26 says of something that is not built.
 */

#define NO_POOLS "one loop thread does the work, there are no thread pools or their queues"
#define NO_HA "Raft replicates the log, there is no master-slave HA service"
#define NO_PLAIN_LOG "the log is DLedger's, written in batches and synced as flushDiskType says"
#define NO_MAPPED_WRITES "the log is never written through a mapping, so there is nothing to warm, lock or pool"
#define NO_NETTY "libuv serves the sockets"
#define NO_RETENTION "segments are deleted one after the other, one a second; who still reads one keeps its bytes"
#define NO_BLOOM "SQL92 expressions are evaluated for each pull: there are no bloom filters and no files for them"
#define NO_PAID "belongs to a commercial product"
#define ALL_STATS "every topic, group and queue is counted; what nothing moved for a day is forgotten"
#define NO_SLOW_STOP "a slow reader is never stopped: old messages are read by the pool"
#define NO_FAST_FAIL "nothing waits in queues: a send that cannot be taken is refused with code 14 at once"

#define TEXT(k, m, d, text) {.key = k, .type = CONFIG_TEXT, .offset = offsetof(struct broker_config, m), .fallback = d, .doc = text}
#define INT(k, m, d, lo, hi, text)                                                                           \
    {.key = k, .type = CONFIG_INT, .offset = offsetof(struct broker_config, m), .fallback = d, .min = lo, .max = hi, .doc = text}
#define LONG(k, m, d, lo, hi, text)                                                                          \
    {.key = k, .type = CONFIG_LONG, .offset = offsetof(struct broker_config, m), .fallback = d, .min = lo, .max = hi, .doc = text}
#define BOOL(k, m, d, text) {.key = k, .type = CONFIG_BOOL, .offset = offsetof(struct broker_config, m), .fallback = d, .doc = text}
#define CHOICE(k, m, d, c, text)                                                                             \
    {.key = k, .type = CONFIG_CHOICE, .offset = offsetof(struct broker_config, m), .fallback = d, .choices = c, .doc = text}
#define LIVE_INT(k, m, d, lo, hi, text)                                                                      \
    {.key = k, .type = CONFIG_INT, .offset = offsetof(struct broker_config, m), .fallback = d, .min = lo, .max = hi, .changeable = true, .doc = text}
#define LIVE_LONG(k, m, d, lo, hi, text)                                                                     \
    {.key = k, .type = CONFIG_LONG, .offset = offsetof(struct broker_config, m), .fallback = d, .min = lo, .max = hi, .changeable = true, .doc = text}
#define LIVE_BOOL(k, m, d, text)                                                                             \
    {.key = k, .type = CONFIG_BOOL, .offset = offsetof(struct broker_config, m), .fallback = d, .changeable = true, .doc = text}
/* Accepted, without effect. */
#define INERT(k, t, d, why) {.key = k, .type = t, .offset = CONFIG_NO_FIELD, .fallback = d, .min = INT64_MIN, .max = INT64_MAX, .no_effect = why, .doc = ""}
/* Accepted; request 26 reports `r` until it is built. */
#define UNBUILT(k, t, d, r, why)                                                                             \
    {.key = k, .type = t, .offset = CONFIG_NO_FIELD, .fallback = d, .min = INT64_MIN, .max = INT64_MAX, .reported = r, .no_effect = why, .doc = ""}

static const struct config_row rows[] = {
    /* ---- who and where ---- */
    TEXT("rocketmqHome", rocketmq_home, "", "shown to tools; this broker needs no home directory"),
    TEXT("namesrvAddr", namesrv_addr, "", "name servers, `host:port;host:port`; empty: port 9876 of every host in dLegerPeers"),
    TEXT("brokerIP1", broker_ip1, "", "address clients get, name or IP; empty: the first IPv4 address of this machine"),
    TEXT("brokerIP2", broker_ip2, "", "told to the name server as HA address; nothing listens there"),
    TEXT("brokerName", broker_name, "", "name of this replica group for clients; empty: the host name"),
    TEXT("brokerClusterName", broker_cluster_name, "DefaultCluster", "cluster"),
    INERT("brokerId", CONFIG_LONG, "0", "the leader is 0, a follower nK is K + 1"),
    CHOICE("brokerRole", broker_role, "ASYNC_MASTER", "ASYNC_MASTER|SYNC_MASTER|SLAVE", "both masters mean the same here; SLAVE is refused"),
    TEXT("regionId", region_id, "DefaultRegion", "MSG_REGION of send answers and stored messages"),
    INT("listenPort", listen_port, "10911", 1, 65535, "port of the clients; listenPort-2 is served too (not for pulls)"),
    TEXT("bindAddress", bind_address, "0.0.0.0", "numeric address that ports are bound to"),
    TEXT("advertisedListeners", advertised_listeners, "",
         "further addresses of this broker, `NAME:HOST:PORT,...`, for clients of another network (see namesrvListeners)"),
    TEXT("namesrvListeners", namesrv_listeners, "",
         "`NAME:PORT,...`: a route question that arrives on PORT is answered with the brokers' addresses of that name"),
    BOOL("enableEmbeddedNamesrv", enable_embedded_namesrv, "true", "this process is a name server too"),
    INT("namesrvPort", namesrv_port, "9876", 1, 65535, "port of the embedded name server"),
    TEXT("logDir", log_dir, "", "directory of broker.log; empty: LEDGERMQ_LOG_DIR of the environment, else storePathRootDir/logs"),
    INT("logFileSize", log_file_size, "67108864", 65536, INT32_MAX, "bytes after which a log file is rolled"),
    INT("logFileCount", log_file_count, "10", 0, 1000, "rolled log files that are kept: otherdays/broker.1.log is the newest"),
    CHOICE("logLevel", log_level, "info", "debug|info|warn|error", "least level that is logged"),

    /* ---- topics and groups ---- */
    LIVE_INT("defaultTopicQueueNums", default_topic_queue_nums, "8", 1, 1024, "queues of TBW102, the model for auto-created topics"),
    LIVE_BOOL("autoCreateTopicEnable", auto_create_topic_enable, "true", "a send to an unknown topic makes it"),
    BOOL("clusterTopicEnable", cluster_topic_enable, "true", "the topic named like the cluster may be a model for new ones"),
    BOOL("brokerTopicEnable", broker_topic_enable, "true", "the same for the topic named like the broker"),
    BOOL("traceTopicEnable", trace_topic_enable, "false", "make RMQ_SYS_TRACE_TOPIC at start"),
    TEXT("msgTraceTopicName", msg_trace_topic_name, "RMQ_SYS_TRACE_TOPIC", "its name"),
    LIVE_BOOL("autoCreateSubscriptionGroup", auto_create_subscription_group, "true", "an unknown consumer group gets default settings"),
    LIVE_BOOL("notifyConsumerIdsChangedEnable", notify_consumer_ids_changed_enable, "true", "tell consumers at once when their group changes"),
    LIVE_INT("brokerPermission", broker_permission, "6", 0, 7, "4 read + 2 write"),

    /* ---- sends ---- */
    INT("maxMessageSize", max_message_size, "4194304", 1024, 4194304, "largest message body in bytes"),
    LIVE_BOOL("storeReplyMessageEnable", store_reply_message_enable, "true", "replies (request-reply) are also stored in their topic"),
    LIVE_LONG("startAcceptSendRequestTimeStamp", start_accept_send_request_time_stamp, "0", 0, INT64_MAX, "no sends before this time (Unix ms)"),
    BOOL("traceOn", trace_on, "true", "TRACE_ON of send answers and stored messages"),
    TEXT("messageDelayLevel", message_delay_level, "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
         "delays of levels 1, 2, ...; the same on all members"),

    /* ---- transactions ---- */
    LIVE_BOOL("rejectTransactionMessage", reject_transaction_message, "false", "refuse half messages"),
    LIVE_LONG("transactionTimeOut", transaction_time_out, "6000", 0, 86400000,
              "ms until a half message is checked back, unless it brings CHECK_IMMUNITY_TIME_IN_SECONDS"),
    LIVE_INT("transactionCheckMax", transaction_check_max, "15", 0, 65535,
             "check-backs of one half message; then it goes to TRANS_CHECK_MAX_TIME_TOPIC"),
    LIVE_LONG("transactionCheckInterval", transaction_check_interval, "60000", 100, 86400000, "ms from one round of check-backs to the next"),

    /* ---- pulls ---- */
    LIVE_BOOL("longPollingEnable", long_polling_enable, "true", "hold pulls that find nothing as long as the client says"),
    LIVE_INT("shortPollingTimeMills", short_polling_time_mills, "1000", 0, 60000, "hold them this long when longPollingEnable is off"),
    LIVE_BOOL("enablePropertyFilter", enable_property_filter, "false", "filter messages by SQL92 expressions for those who ask"),
    LIVE_BOOL("slaveReadEnable", slave_read_enable, "false", "point those who read far behind at a follower; every member serves pulls either way"),
    INT("accessMessageInMemoryMaxRatio", access_message_in_memory_max_ratio, "40", 0, 95,
        "percent of the machine's memory: who reads further behind than this counts as slow"),
    INT("maxTransferBytesOnMessageInMemory", max_transfer_bytes_on_message_in_memory, "262144", 1024, 8388608, "bytes of one pull answer"),
    INT("maxTransferCountOnMessageInMemory", max_transfer_count_on_message_in_memory, "32", 1, 64, "messages of one pull answer"),
    INERT("maxTransferBytesOnMessageInDisk", CONFIG_INT, "65536", "old messages are read by the pool in the same portions as new ones"),
    INERT("maxTransferCountOnMessageInDisk", CONFIG_INT, "8", "old messages are read by the pool in the same portions as new ones"),
    LIVE_INT("defaultQueryMaxNum", default_query_max_num, "32", 1, 64, "messages of a query by unique key"),
    LIVE_INT("maxMsgsNumBatch", max_msgs_num_batch, "64", 1, 64, "messages of any query"),

    /* ---- name servers ---- */
    INT("registerNameServerPeriod", register_name_server_period, "30000", 10000, 60000, "ms between full registrations; changes register at once"),
    INT("registerBrokerTimeoutMills", register_broker_timeout_mills, "6000", 100, 60000, "ms until a registration counts as failed"),
    BOOL("compressedRegister", compressed_register, "false", "compress registrations; those of over 12 MiB always are"),
    BOOL("forceRegister", force_register, "true", "register also when nothing changed"),

    /* ---- store and group ---- */
    TEXT("storePathRootDir", store_path_root_dir, "", "directory of everything this broker keeps; empty: $HOME/store"),
    LONG("mappedFileSizeCommitLog", mapped_file_size_commit_log, "1073741824", 65536, 4294967296, "bytes of one file of the log; a message must fit"),
    LONG("mappedFileSizeConsumeQueue", mapped_file_size_consume_queue, "6000000", 20, 1073741820, "bytes of one consume queue file, rounded up to 20"),
    LONG("mappedFileSizeForEntryIndex", dledger_index_file_size, "167772160", 32, 4294967296, "bytes of one file of the log's index, a multiple of 32"),
    INT("maxHashSlotNum", max_hash_slot_num, "5000000", 16, 500000000, "slots of a key index file"),
    INT("maxIndexNum", max_index_num, "20000000", 16, 1000000000, "entries of a key index file"),
    BOOL("messageIndexEnable", message_index_enable, "true", "index messages by key"),
    CHOICE("flushDiskType", flush_disk_type, "SYNC_FLUSH", "SYNC_FLUSH|ASYNC_FLUSH",
           "what an OK means. SYNC_FLUSH: on stable storage of a majority. ASYNC_FLUSH: in the page cache of a majority"),
    BOOL("enableDLegerCommitLog", enable_dleger_commit_log, "false", "replicate among dLegerPeers; false: a group of one"),
    TEXT("dLegerGroup", dleger_group, "", "name of the group; empty: brokerName"),
    TEXT("dLegerPeers", dleger_peers, "", "all members at the first start, `n0-host:port;n1-host:port;...`, the same ids everywhere; later the log knows them, see docs/group.md"),
    TEXT("dLegerSelfId", dleger_self_id, "n0", "which of them this is: one letter and a number"),
    TEXT("preferredLeaderIds", preferred_leader_ids, "",
         "members, the most wanted first (`n0;n1`), to whom a leader hands over once they kept up for 5 s"),
    TEXT("preferredLeaderId", preferred_leader_id, "", "the same under Java's name; preferredLeaderIds goes first"),
    INT("electionTimeoutMs", election_timeout_ms, "500", 50, 60000, "a follower that hears nothing for 1 to 2 times this stands for election"),
    INT("heartbeatMs", heartbeat_ms, "100", 5, 10000, "the leader is heard at least this often; at most half of electionTimeoutMs"),
    INT("maxWaitMs", max_wait_ms, "2500", 100, 60000, "a send whose quorum does not answer for this long gets code 14, outcome unknown"),
    LONG("logScrubBytesPerSecond", log_scrub_bytes_per_second, "4194304", 0, 1073741824,
         "the log is read through and checked for damage at this rate; 0: never"),
    LONG("followerLagBytesMax", follower_lag_bytes_max, "8589934592", 0, INT64_MAX,
         "bytes of the log that are kept for a node that lags, at the most: one that lacks more fetches the whole log; 0: no limit"),
    LONG("bulkFetchBytesPerSecond", bulk_fetch_bytes_per_second, "33554432", 0, 10737418240,
         "rate at which a node fetches the log that it lacks when what comes next is deleted in the group; 0: as fast as it goes"),
    LONG("logScrubIntervalSeconds", log_scrub_interval_seconds, "3600", 1, 31536000, "from the beginning of one such pass to that of the next, at the least"),
    BOOL("forceStart", force_start, "false", "start although a member that may know more is missing (class A after a reboot): may lose acknowledged messages"),

    /* ---- connections ---- */
    INT("serverChannelMaxIdleTimeSeconds", server_channel_max_idle_time_seconds, "120", 1, 86400, "a silent connection is closed after this"),
    INT("connectionsMax", connections_max, "10000", 1, 1000000, "connections at a time; more are refused"),
    INT("heldPullsMax", held_pulls_max, "100000", 1, 100000, "pulls that wait for messages at a time; more are answered at once"),
    INT("clientFrameTimeoutMs", client_frame_timeout_ms, "30000", 100, 3600000,
        "a request whose bytes stop coming is cut off: this long, and 1 ms more for each 16 bytes that came"),
    LONG("bufferMemoryMax", buffer_memory_max, "134217728", 1048576, INT64_MAX,
         "bytes of unfinished requests, unsent answers, waiting sends and pulls; above it sends and pulls are refused with code 14"),

    /* ---- retention ---- */
    LIVE_INT("fileReservedTime", file_reserved_time, "72", 1, 876000,
             "hours after which a message may be deleted, with all of its segment; a half message that nobody settles is given up"),
    TEXT("deleteWhen", delete_when, "04", "hours of the day, `04` or `02;14`, in which what is older than fileReservedTime is deleted"),
    LIVE_INT("diskMaxUsedSpaceRatio", disk_max_used_space_ratio, "75", 1, 100,
             "percent of the disk; when more is used deleteWhen is not waited for"),
    LIVE_INT("diskSpaceCleanForciblyRatio", disk_space_clean_forcibly_ratio, "85", 1, 100, "percent of the disk from which on cleanFileForciblyEnable counts"),
    LIVE_INT("diskSpaceWarningLevelRatio", disk_space_warning_level_ratio, "90", 1, 100,
             "percent of the disk; when more is used another member leads, and when all are that full sends are refused with code 14; 100: only when there is no room left"),
    LIVE_BOOL("cleanFileForciblyEnable", clean_file_forcibly_enable, "false",
              "above diskSpaceCleanForciblyRatio the oldest segment goes whatever its age, one a look; false: nothing goes before its time, and sends are refused when the disk is full"),
    LIVE_INT("cleanResourceInterval", clean_resource_interval, "10000", 100, 3600000, "ms between two looks at what may be deleted"),
    LIVE_LONG("logBytesMax", log_bytes_max, "0", 0, INT64_MAX, "bytes of the log that are kept at most, whatever their age; 0: no limit"),
    INERT("deleteCommitLogFilesInterval", CONFIG_INT, "100", NO_RETENTION),
    INERT("deleteConsumeQueueFilesInterval", CONFIG_INT, "100", NO_RETENTION),
    INERT("destroyMapedFileIntervalForcibly", CONFIG_INT, "120000", NO_RETENTION),
    INERT("redeleteHangedFileInterval", CONFIG_INT, "120000", NO_RETENTION),

    /* ---- not built yet ---- */
    UNBUILT("aclEnable", CONFIG_BOOL, "false", "false", "access control is not built yet; true refuses to start"),
    UNBUILT("enableCalcFilterBitMap", CONFIG_BOOL, "false", "false", NO_BLOOM),
    UNBUILT("filterSupportRetry", CONFIG_BOOL, "false", "false", "a retry topic is filtered by its own subscription only"),
    INERT("expectConsumerNumUseFilter", CONFIG_INT, "32", NO_BLOOM),
    INERT("maxErrorRateOfBloomFilter", CONFIG_INT, "20", NO_BLOOM),
    INERT("filterDataCleanTimeSpan", CONFIG_LONG, "86400000", "an expression goes with its group's last client"),
    UNBUILT("enableConsumeQueueExt", CONFIG_BOOL, "false", "false", NO_BLOOM),
    INERT("mappedFileSizeConsumeQueueExt", CONFIG_INT, "50331648", NO_BLOOM),
    INERT("bitMapLengthConsumeQueueExt", CONFIG_INT, "64", NO_BLOOM),
    UNBUILT("enableLmq", CONFIG_BOOL, "false", "false", "light message queues are not built"),
    UNBUILT("enableMultiDispatch", CONFIG_BOOL, "false", "false", "light message queues are not built"),
    INERT("maxLmqConsumeQueueNum", CONFIG_INT, "20000", "light message queues are not built"),
    UNBUILT("enableScheduleMessageStats", CONFIG_BOOL, "true", "true", ALL_STATS),
    UNBUILT("enableDetailStat", CONFIG_BOOL, "true", "true", ALL_STATS),
    UNBUILT("autoDeleteUnusedStats", CONFIG_BOOL, "false", "true", ALL_STATS),
    UNBUILT("diskFallRecorded", CONFIG_BOOL, "true", "true", ALL_STATS),
    UNBUILT("disableConsumeIfConsumerReadSlowly", CONFIG_BOOL, "false", "false", NO_SLOW_STOP),
    INERT("consumerFallbehindThreshold", CONFIG_LONG, "17179869184", NO_SLOW_STOP),

    /* ---- of the Java broker ---- */
    INERT("storePathCommitLog", CONFIG_TEXT, "", NO_PLAIN_LOG),
    INERT("storePathDLedgerCommitLog", CONFIG_TEXT, "", "the log is under storePathRootDir/dledger-<id>"),
    INERT("readOnlyCommitLogStorePaths", CONFIG_TEXT, "", "the log is under storePathRootDir/dledger-<id>"),
    UNBUILT("isEnableBatchPush", CONFIG_BOOL, "false", "true", "entries always travel in batches"),
    UNBUILT("enableBatchPush", CONFIG_BOOL, "false", "true", "entries always travel in batches"),
    INERT("flushIntervalCommitLog", CONFIG_INT, "500", NO_PLAIN_LOG),
    INERT("commitIntervalCommitLog", CONFIG_INT, "200", NO_PLAIN_LOG),
    INERT("flushCommitLogTimed", CONFIG_BOOL, "true", NO_PLAIN_LOG),
    INERT("flushCommitLogLeastPages", CONFIG_INT, "4", NO_PLAIN_LOG),
    INERT("commitCommitLogLeastPages", CONFIG_INT, "4", NO_PLAIN_LOG),
    INERT("flushLeastPagesWhenWarmMapedFile", CONFIG_INT, "4096", NO_MAPPED_WRITES),
    INERT("flushCommitLogThoroughInterval", CONFIG_INT, "10000", NO_PLAIN_LOG),
    INERT("commitCommitLogThoroughInterval", CONFIG_INT, "200", NO_PLAIN_LOG),
    INERT("flushIntervalConsumeQueue", CONFIG_INT, "1000", "consume queues are rebuilt from the log where they lag"),
    INERT("flushConsumeQueueLeastPages", CONFIG_INT, "2", "consume queues are rebuilt from the log where they lag"),
    INERT("flushConsumeQueueThoroughInterval", CONFIG_INT, "60000", "consume queues are rebuilt from the log where they lag"),
    INERT("flushConsumerOffsetInterval", CONFIG_INT, "5000", "consumer offsets are in the replicated log"),
    INERT("flushConsumerOffsetHistoryInterval", CONFIG_INT, "60000", "consumer offsets are in the replicated log"),
    INERT("flushDelayOffsetInterval", CONFIG_LONG, "10000", "delay progress is in the replicated log"),
    INERT("useReentrantLockWhenPutMessage", CONFIG_BOOL, "true", "one thread writes the log, there is no lock"),
    INERT("putMsgIndexHightWater", CONFIG_INT, "600000", "one thread writes the log, there is no queue in front of the index"),
    INERT("checkCRCOnRecover", CONFIG_BOOL, "true", "every entry's CRC is always checked"),
    INERT("messageIndexSafe", CONFIG_BOOL, "false", "the index is rebuilt from the log where it lags"),
    INERT("haListenPort", CONFIG_INT, "10912", NO_HA),
    INERT("haSendHeartbeatInterval", CONFIG_INT, "5000", NO_HA),
    INERT("haHousekeepingInterval", CONFIG_INT, "20000", NO_HA),
    INERT("haTransferBatchSize", CONFIG_INT, "32768", NO_HA),
    INERT("haMasterAddress", CONFIG_TEXT, "", NO_HA),
    INERT("haSlaveFallbehindMax", CONFIG_INT, "268435456", NO_HA),
    INERT("slaveTimeout", CONFIG_INT, "3000", "maxWaitMs bounds the wait for the quorum"),
    INERT("syncFlushTimeout", CONFIG_INT, "5000", "maxWaitMs bounds the wait for the quorum"),
    INERT("offsetCheckInSlave", CONFIG_BOOL, "false", NO_HA),
    INERT("duplicationEnable", CONFIG_BOOL, "false", NO_HA),
    INERT("warmMapedFileEnable", CONFIG_BOOL, "false", NO_MAPPED_WRITES),
    INERT("debugLockEnable", CONFIG_BOOL, "false", NO_MAPPED_WRITES),
    INERT("osPageCacheBusyTimeOutMills", CONFIG_LONG, "1000", NO_MAPPED_WRITES),
    INERT("transientStorePoolEnable", CONFIG_BOOL, "false", NO_MAPPED_WRITES),
    INERT("transientStorePoolSize", CONFIG_INT, "5", NO_MAPPED_WRITES),
    INERT("fastFailIfNoBufferInStorePool", CONFIG_BOOL, "false", NO_MAPPED_WRITES),
    INERT("enableScheduleAsyncDeliver", CONFIG_BOOL, "false", "delayed messages are always delivered without waiting for one another"),
    INERT("scheduleAsyncDeliverMaxPendingLimit", CONFIG_INT, "2000", "1024 deliveries may be under way"),
    INERT("scheduleAsyncDeliverMaxResendNum2Blocked", CONFIG_INT, "3", "a delivery that is in the log is never sent again"),
    INERT("messageStorePlugIn", CONFIG_TEXT, "", "there are no plug-ins"),
    INERT("sendMessageThreadPoolNums", CONFIG_INT, "1", NO_POOLS),
    INERT("putMessageFutureThreadPoolNums", CONFIG_INT, "1", NO_POOLS),
    INERT("pullMessageThreadPoolNums", CONFIG_INT, "1", NO_POOLS),
    INERT("processReplyMessageThreadPoolNums", CONFIG_INT, "1", NO_POOLS),
    INERT("queryMessageThreadPoolNums", CONFIG_INT, "1", NO_POOLS),
    INERT("adminBrokerThreadPoolNums", CONFIG_INT, "1", NO_POOLS),
    INERT("clientManageThreadPoolNums", CONFIG_INT, "1", NO_POOLS),
    INERT("consumerManageThreadPoolNums", CONFIG_INT, "1", NO_POOLS),
    INERT("heartbeatThreadPoolNums", CONFIG_INT, "1", NO_POOLS),
    INERT("endTransactionThreadPoolNums", CONFIG_INT, "1", NO_POOLS),
    INERT("sendThreadPoolQueueCapacity", CONFIG_INT, "10000", NO_POOLS),
    INERT("putThreadPoolQueueCapacity", CONFIG_INT, "10000", NO_POOLS),
    INERT("pullThreadPoolQueueCapacity", CONFIG_INT, "100000", NO_POOLS),
    INERT("replyThreadPoolQueueCapacity", CONFIG_INT, "10000", NO_POOLS),
    INERT("queryThreadPoolQueueCapacity", CONFIG_INT, "20000", NO_POOLS),
    INERT("clientManagerThreadPoolQueueCapacity", CONFIG_INT, "1000000", NO_POOLS),
    INERT("consumerManagerThreadPoolQueueCapacity", CONFIG_INT, "1000000", NO_POOLS),
    INERT("heartbeatThreadPoolQueueCapacity", CONFIG_INT, "50000", NO_POOLS),
    INERT("endTransactionPoolQueueCapacity", CONFIG_INT, "100000", NO_POOLS),
    INERT("filterServerNums", CONFIG_INT, "0", "there are no filter servers"),
    INERT("brokerFastFailureEnable", CONFIG_BOOL, "true", NO_FAST_FAIL),
    INERT("waitTimeMillsInSendQueue", CONFIG_LONG, "200", NO_FAST_FAIL),
    INERT("waitTimeMillsInPullQueue", CONFIG_LONG, "5000", NO_FAST_FAIL),
    INERT("waitTimeMillsInHeartbeatQueue", CONFIG_LONG, "31000", NO_FAST_FAIL),
    INERT("waitTimeMillsInTransactionQueue", CONFIG_LONG, "3000", NO_FAST_FAIL),
    INERT("isolateLogEnable", CONFIG_BOOL, "false", "a process is one broker and has a log directory of its own"),
    UNBUILT("timerWheelEnable", CONFIG_BOOL, "true", "false", "messages are delayed by levels only"),
    INERT("transferMsgByHeap", CONFIG_BOOL, "true", "recent messages are sent from the page cache"),
    INERT("maxDelayTime", CONFIG_INT, "40", "read by nothing in Java either"),
    INERT("fetchNamesrvAddrByAddressServer", CONFIG_BOOL, "false", "there is no address server"),
    INERT("highSpeedMode", CONFIG_BOOL, "false", NO_PAID),
    INERT("commercialEnable", CONFIG_BOOL, "false", NO_PAID),
    INERT("commercialTimerCount", CONFIG_INT, "1", NO_PAID),
    INERT("commercialTransCount", CONFIG_INT, "1", NO_PAID),
    INERT("commercialBigCount", CONFIG_INT, "1", NO_PAID),
    INERT("commercialBaseCount", CONFIG_INT, "1", NO_PAID),
    INERT("serverWorkerThreads", CONFIG_INT, "8", NO_NETTY),
    INERT("serverCallbackExecutorThreads", CONFIG_INT, "0", NO_NETTY),
    INERT("serverSelectorThreads", CONFIG_INT, "3", NO_NETTY),
    INERT("serverOnewaySemaphoreValue", CONFIG_INT, "256", NO_NETTY),
    INERT("serverAsyncSemaphoreValue", CONFIG_INT, "64", NO_NETTY),
    INERT("serverSocketSndBufSize", CONFIG_INT, "0", NO_NETTY),
    INERT("serverSocketRcvBufSize", CONFIG_INT, "0", NO_NETTY),
    INERT("writeBufferHighWaterMark", CONFIG_INT, "0", NO_NETTY),
    INERT("writeBufferLowWaterMark", CONFIG_INT, "0", NO_NETTY),
    INERT("serverSocketBacklog", CONFIG_INT, "1024", NO_NETTY),
    INERT("serverPooledByteBufAllocatorEnable", CONFIG_BOOL, "true", NO_NETTY),
    INERT("useEpollNativeSelector", CONFIG_BOOL, "false", NO_NETTY),
    INERT("useTLS", CONFIG_BOOL, "false", "TLS is not built yet"),
    INERT("clientWorkerThreads", CONFIG_INT, "4", NO_NETTY),
    INERT("clientCallbackExecutorThreads", CONFIG_INT, "1", NO_NETTY),
    INERT("clientOnewaySemaphoreValue", CONFIG_INT, "65535", NO_NETTY),
    INERT("clientAsyncSemaphoreValue", CONFIG_INT, "65535", NO_NETTY),
    INERT("connectTimeoutMillis", CONFIG_INT, "3000", NO_NETTY),
    INERT("channelNotActiveInterval", CONFIG_LONG, "60000", NO_NETTY),
    INERT("clientChannelMaxIdleTimeSeconds", CONFIG_INT, "120", NO_NETTY),
    INERT("clientSocketSndBufSize", CONFIG_INT, "0", NO_NETTY),
    INERT("clientSocketRcvBufSize", CONFIG_INT, "0", NO_NETTY),
    INERT("clientPooledByteBufAllocatorEnable", CONFIG_BOOL, "false", NO_NETTY),
    INERT("clientCloseSocketIfTimeout", CONFIG_BOOL, "true", NO_NETTY),
};
