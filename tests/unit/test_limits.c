/* Every limit that a client can meet, at a whole broker that is a group of one: what is refused is counted under the limit's name, is answered with a code that
 * RocketMQ's clients send again upon, names the limit, and a connection beside is served meanwhile. What takes long to fill is filled by its owner's calls, or its
 * count is set. Limits that need other nodes, or much time: tests/e2e/case_pressure.py. tests/unit/limits_named: none is left out.
 */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/broker_stats_manager.h"
#include "broker/limits.h"
#include "broker/metadata/consumer_offset.h"
#include "broker/metadata/metadata.h"
#include "broker/metadata/queue_lock.h"
#include "broker/metadata/subscription_group.h"
#include "broker/metadata/topic_config.h"
#include "broker/processor/cold_read.h"
#include "broker/processor/processor.h"
#include "broker/processor/processor_table.h"
#include "broker/processor/send_answer.h"
#include "broker/processor/send_message_processor.h"
#include "broker/processor/sql_program.h"
#include "broker/remoting/client_call.h"
#include "broker/remoting/client_registry.h"
#include "broker/remoting/connection.h"
#include "broker/remoting/listener.h"
#include "proto/response_code.h"
#include "proto/sql92.h"
#include "store/log_sink.h"
#include "tests/lib/run_suite.h"

enum { SEND = 10, PULL = 11, UPDATE_OFFSET = 15, CREATE_TOPIC = 17, MAX_OFFSET = 30, VIEW = 33, HEART_BEAT = 34, SEND_BACK = 36, END_TRANSACTION = 37,
       LOCK_BATCH = 41, UPDATE_GROUP = 200, RUNNING_INFO = 307, RESUME_CHECK = 323 };

#define SLICE_ARG(slice) (int)(slice).size, (const char *)(slice).data
#define TURNS_MAX 200000
#define SEND_EXT(topic) "producerGroup=p;topic=" topic ";defaultTopic=TBW102;defaultTopicQueueNums=4;queueId=0;sysFlag=0;bornTimestamp=1;flag=0;reconsumeTimes=0"
#define HALF_EXT "producerGroup=p;topic=T;defaultTopic=TBW102;defaultTopicQueueNums=4;queueId=0;sysFlag=4;bornTimestamp=1;flag=0;reconsumeTimes=0;properties=TRAN_MSG\1true\2PGROUP\1p\2"
#define PULL_EXT "consumerGroup=g;topic=T;queueId=0;queueOffset=0;maxMsgNums=32;sysFlag=4;commitOffset=0;suspendTimeoutMillis=0;subVersion=0;subscription="

struct client {
    int fd;
    uint64_t id;
    uint8_t *in;
    size_t size, room;
    uint32_t passed_over; /* answers with code 0 that nobody asked take() for */
};

struct answer {
    int32_t code;
    char remark[512];
    char ext[8][2][64];
    uint32_t ext_count;
};

static uv_loop_t loop;
static uv_timer_t keeps_alive; /* the loop waits for it at most */
static struct broker broker;
static char folder[64];
static struct client client, good;
static int32_t next_opaque;

/* ---- a broker ---- */

static void quiet(void *context, enum log_level level, const char *text)
{
    (void)context;
    (void)level;
    (void)text;
}

static void nothing(uv_timer_t *timer)
{
    (void)timer;
}

static void note_newest(void *argument, struct connection *connection)
{
    uint64_t *newest = argument;
    if (connection->id > *newest)
        *newest = connection->id;
}

static int dial(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)remoting_server_port(broker.server, 0)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert(connect(fd, (struct sockaddr *)&name, sizeof name) == 0 || errno == EINPROGRESS);
    return fd;
}

static void client_open(struct client *each)
{
    uint32_t before = remoting_server_connection_count(broker.server);
    *each = (struct client){.fd = dial()};
    for (int i = 0; remoting_server_connection_count(broker.server) == before; i++) {
        ck_assert_int_lt(i, TURNS_MAX);
        uv_run(&loop, UV_RUN_ONCE);
    }
    remoting_server_each(broker.server, note_newest, &each->id);
}

static void client_close(struct client *each)
{
    close(each->fd);
    free(each->in);
}

static void set_key(const char *key, const char *value)
{
    struct error error;
    ck_assert_msg(broker_config_set(&broker.config, key, slice_of_text(value), &error) == 0, "%s", error.message);
}

static void set_up(void)
{
    struct error error;
    log_sink_set(quiet, NULL);
    signal(SIGPIPE, SIG_IGN);
    memset(&broker, 0, sizeof broker);
    snprintf(folder, sizeof folder, "/tmp/ledgermq-limits-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(broker_config_init(&broker.config, &error), 0);
    set_key("storePathRootDir", folder);
    set_key("brokerName", "broker-a");
    set_key("brokerIP1", "127.0.0.1");
    set_key("bindAddress", "127.0.0.1");
    set_key("flushDiskType", "ASYNC_FLUSH");
    set_key("mappedFileSizeCommitLog", "33554432");
    set_key("mappedFileSizeConsumeQueue", "60000");
    set_key("enablePropertyFilter", "true");
    set_key("maxWaitMs", "60000"); /* to fill some limits in one turn takes seconds */
    set_key("enableEmbeddedNamesrv", "false");
    ck_assert_msg(broker_config_finish(&broker.config, &error) == 0, "%s", error.message);
    broker.config.listen_port = 0; /* any */
    ck_assert_msg(broker_take_directory(&broker, &error) == 0, "%s", error.message);
    uv_loop_init(&loop);
    uv_timer_init(&loop, &keeps_alive);
    uv_timer_start(&keeps_alive, nothing, 1, 1);
    ck_assert_msg(broker_open(&broker, &loop, &error) == 0, "%s", error.message);
    for (int i = 0; !dledger_commit_log_accepting(broker.log); i++) {
        ck_assert_int_lt(i, TURNS_MAX);
        uv_run(&loop, UV_RUN_ONCE);
    }
    client_open(&client);
    client_open(&good);
}

static void on_stopped(void *argument)
{
    (void)argument;
    uv_close((uv_handle_t *)&keeps_alive, NULL);
}

static int remove_each(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status, (void)kind, (void)place;
    return remove(path);
}

static void tear_down(void)
{
    client_close(&client);
    client_close(&good);
    broker_stop(&broker, on_stopped, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    broker_free(&broker);
    broker_config_close(&broker.config);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    nftw(folder, remove_each, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- requests ---- */

/* ext: "name=value;name=value". Handed to the broker as it comes off the socket, without a turn of the loop, so that nothing commits in between. */
static int32_t ask(struct client *from, int32_t code, const char *ext, struct slice body)
{
    struct remoting_writer writer;
    struct buffer frame;
    struct connection *connection = remoting_server_find(broker.server, from->id);
    ck_assert_ptr_nonnull(connection);
    buffer_init(&frame, 0);
    remoting_writer_begin_request(&writer, &frame, REMOTING_JSON, code, ++next_opaque, 0);
    while (*ext != 0) {
        char name[64], value[512];
        size_t size = strcspn(ext, "="), value_size = strcspn(ext + size + 1, ";");
        ck_assert(size < sizeof name && value_size < sizeof value);
        snprintf(name, sizeof name, "%.*s", (int)size, ext);
        snprintf(value, sizeof value, "%.*s", (int)value_size, ext + size + 1);
        remoting_writer_ext_text(&writer, name, value);
        ext += size + 1 + value_size;
        ext += *ext == ';';
    }
    remoting_writer_body(&writer);
    buffer_append(&frame, body.data, body.size);
    remoting_writer_end(&writer, 0);
    ck_assert(!frame.failed);
    processor_on_frame(&broker, connection, frame.data, frame.size);
    buffer_close(&frame);
    return next_opaque;
}

static int32_t ask_text(struct client *from, int32_t code, const char *ext, const char *body)
{
    return ask(from, code, ext, slice_of_text(body));
}

/* Takes what has come; requests of the broker's own are passed over. True: the answer is there. */
static bool take(struct client *of, int32_t opaque, struct answer *answer)
{
    ssize_t n;
    for (;;) {
        if (of->room - of->size < 65536)
            ck_assert_ptr_nonnull(of->in = realloc(of->in, of->room += 1u << 20));
        if ((n = read(of->fd, of->in + of->size, of->room - of->size)) <= 0)
            break;
        of->size += (size_t)n;
    }
    size_t at = 0;
    bool found = false;
    for (int64_t size; !found && (size = remoting_frame_size(slice_of(of->in + at, of->size - at))) > 0 && (size_t)size <= of->size - at; at += (size_t)size) {
        struct remoting_command command;
        ck_assert_int_eq(remoting_command_decode(of->in + at, (size_t)size, &command), 0);
        found = remoting_is_response(&command) && command.opaque == opaque;
        if (!found) {
            of->passed_over += remoting_is_response(&command) && command.code == 0;
            continue;
        }
        *answer = (struct answer){.code = command.code};
        snprintf(answer->remark, sizeof answer->remark, "%.*s", SLICE_ARG(command.remark));
        for (uint32_t i = 0; i < command.ext_count && answer->ext_count < 8; i++, answer->ext_count++) {
            snprintf(answer->ext[i][0], 64, "%.*s", SLICE_ARG(command.ext[i].name));
            snprintf(answer->ext[i][1], 64, "%.*s", SLICE_ARG(command.ext[i].value));
        }
    }
    memmove(of->in, of->in + at, of->size - at);
    of->size -= at;
    return found;
}

static struct answer answer_of(struct client *of, int32_t opaque)
{
    struct answer answer;
    for (int i = 0; !take(of, opaque, &answer); i++) {
        ck_assert_int_lt(i, TURNS_MAX);
        uv_run(&loop, UV_RUN_ONCE);
    }
    return answer;
}

static void expect_ok(struct client *of, int32_t opaque)
{
    struct answer answer = answer_of(of, opaque);
    ck_assert_msg(answer.code == 0, "answered %d: %s", answer.code, answer.remark);
}

static void expect_field(const struct answer *answer, const char *name, char out[64], size_t room)
{
    for (uint32_t i = 0; i < answer->ext_count; i++) {
        if (strcmp(answer->ext[i][0], name) == 0) {
            snprintf(out, room, "%s", answer->ext[i][1]);
            return;
        }
    }
    ck_abort_msg("no %s in the answer", name);
}

struct looked_for {
    const char *key;
    int64_t value;
};

static void look(void *context, const char *key, const char *value)
{
    struct looked_for *looked_for = context;
    if (strcmp(key, looked_for->key) == 0)
        looked_for->value = strtoll(value, NULL, 10);
}

/* As request 28 says it. */
static int64_t counter(const char *key)
{
    struct looked_for looked_for = {key, -1};
    const struct broker_stats_sink sink = {&looked_for, look};
    broker_stats_runtime_table(&broker, &sink);
    ck_assert_msg(looked_for.value >= 0, "no %s in the runtime table", key);
    return looked_for.value;
}

static void expect_refused(struct client *of, int32_t opaque, const char *key)
{
    struct answer answer = answer_of(of, opaque);
    ck_assert_msg(answer.code == RESPONSE_SERVICE_NOT_AVAILABLE, "%s: answered %d: %s", key, answer.code, answer.remark);
    ck_assert_msg(strstr(answer.remark, "limit reached: ") != NULL && strstr(answer.remark, key) != NULL, "%s: %s", key, answer.remark);
}

static void expect_good(void)
{
    expect_ok(&good, ask_text(&good, SEND, SEND_EXT("T"), "good"));
}

/* One request is refused and counted, the good one sends, and with room the same request is served. */
static void at_a_full(uint32_t *count, uint32_t full, const char *key, int32_t code, const char *ext, const char *body)
{
    uint32_t is = *count;
    int64_t before = counter(key);
    *count = full;
    expect_refused(&client, ask_text(&client, code, ext, body), key);
    ck_assert_int_eq(counter(key), before + 1);
    expect_good();
    ck_assert_int_eq(counter(key), before + 1);
    *count = is;
    expect_ok(&client, ask_text(&client, code, ext, body));
    ck_assert_int_eq(counter(key), before + 1);
}

/* What was asked before in this turn fills a limit: one more is refused and counted, the good one sends, and with room the same request is served. */
static void one_too_many(const char *key, int32_t code, const char *ext)
{
    int32_t refused = ask_text(&client, code, ext, "");
    ck_assert_int_eq(counter(key), 1);
    int32_t served = ask_text(&good, SEND, SEND_EXT("T"), "good");
    expect_refused(&client, refused, key);
    expect_ok(&good, served);
    expect_ok(&client, ask_text(&client, code, ext, ""));
    ck_assert_int_eq(counter(key), 1);
}

static void set_up_topic(void)
{
    set_up();
    expect_ok(&good, ask_text(&good, CREATE_TOPIC, "topic=T;defaultTopic=TBW102;readQueueNums=1;writeQueueNums=1;perm=6;topicFilterType=SINGLE_TAG;topicSysFlag=0;order=false", ""));
}

/* ---- tables ---- */

#define CREATE_EXT "topic=New;defaultTopic=TBW102;readQueueNums=1;writeQueueNums=1;perm=6;topicFilterType=SINGLE_TAG;topicSysFlag=0;order=false"

START_TEST(topics)
{
    at_a_full(&broker.topics->count, TOPIC_CONFIG_TABLE_MAX, "limit_topics", CREATE_TOPIC, CREATE_EXT, "");
    at_a_full(&broker.topics->count, TOPIC_CONFIG_TABLE_MAX, "limit_topics", SEND, SEND_EXT("MadeBySending"), "x");
}
END_TEST

START_TEST(groups)
{
    at_a_full(&broker.groups->count, SUBSCRIPTION_GROUP_TABLE_MAX, "limit_groups", UPDATE_GROUP, "", "{\"groupName\":\"new\"}");
}
END_TEST

START_TEST(offsets)
{
    at_a_full(&broker.offsets->key_count, CONSUMER_OFFSET_KEYS_MAX, "limit_offsets", UPDATE_OFFSET, "consumerGroup=g;topic=T;queueId=0;commitOffset=0", "");
}
END_TEST

START_TEST(queue_locks)
{
    at_a_full(&broker.locks->count, QUEUE_LOCK_TABLE_MAX, "limit_queueLocks", LOCK_BATCH, "",
              "{\"clientId\":\"c\",\"consumerGroup\":\"g\",\"mqSet\":[{\"brokerName\":\"broker-a\",\"topic\":\"T\",\"queueId\":0}]}");
}
END_TEST

START_TEST(clients)
{
    static const char producer[] = "{\"clientID\":\"c\",\"producerDataSet\":[{\"groupName\":\"p\"}],\"consumerDataSet\":[]}";
    static const char consumer[] = "{\"clientID\":\"c\",\"producerDataSet\":[],\"consumerDataSet\":[{\"groupName\":\"g\",\"consumeType\":\"CONSUME_PASSIVELY\","
                                   "\"messageModel\":\"CLUSTERING\",\"consumeFromWhere\":\"CONSUME_FROM_LAST_OFFSET\",\"subscriptionDataSet\":[],\"unitMode\":false}]}";
    at_a_full(&broker.clients->producer_group_count, CLIENT_REGISTRY_GROUPS_MAX, "limit_clients", HEART_BEAT, "", producer);
    at_a_full(&broker.clients->consumer_group_count, CLIENT_REGISTRY_GROUPS_MAX, "limit_clients", HEART_BEAT, "", consumer);
}
END_TEST

START_TEST(metadata_records)
{
    Ledgermq__MetadataRecord nothing_new = LEDGERMQ__METADATA_RECORD__INIT;
    for (uint32_t i = 0; i < METADATA_IN_FLIGHT_MAX; i++)
        ck_assert_int_eq(metadata_submit(&broker, &nothing_new, NULL, NULL), 0);
    one_too_many("limit_metadataRecords", CREATE_TOPIC, CREATE_EXT);
}
END_TEST

/* Figures of topics: what finds no room is not counted, and sent all the same. */
START_TEST(stats_items)
{
    char name[32];
    for (int i = 0; counter("limit_statsItems") == 0; i++) {
        ck_assert_int_le(i, (int)LIMIT_STATS_ITEMS);
        snprintf(name, sizeof name, "topic-%d", i);
        for (int k = 0; k < 64 && k <= i; k++) { /* the counter costs more than an item */
            snprintf(name, sizeof name, "topic-%d-%d", i, k);
            broker_stats_manager_item(broker.item_stats, STATS_TOPIC_PUT, slice_of_text(name), 0, slice_of(NULL, 0));
        }
    }
    int64_t before = counter("limit_statsItems");
    expect_ok(&client, ask_text(&client, SEND, SEND_EXT("Uncounted"), "x"));
    ck_assert_int_gt(counter("limit_statsItems"), before);
    ck_assert_int_eq(counter("statsItems"), LIMIT_STATS_ITEMS);
    expect_good();
}
END_TEST

/* ---- sends ---- */

START_TEST(log_busy)
{
    static uint8_t body[1u << 20];
    int32_t taken[16], count = 0;
    while (counter("limit_logBusy") == 0) {
        ck_assert_int_lt(count, 16);
        taken[count++] = ask(&client, SEND, SEND_EXT("T"), slice_of(body, sizeof body));
    }
    int32_t table_change = ask_text(&client, CREATE_TOPIC, CREATE_EXT, "");
    ck_assert_int_eq(counter("limit_logBusy"), 2);
    int32_t question = ask_text(&good, MAX_OFFSET, "topic=T;queueId=0", "");
    expect_ok(&good, question);
    ck_assert_int_ge(count, 8);
    /* The refusal is answered at once, those that were taken when they have committed. */
    expect_refused(&client, taken[--count], "limit_logBusy");
    expect_refused(&client, table_change, "limit_logBusy");
    expect_ok(&client, taken[count - 1]);
    expect_good();
}
END_TEST

/* The places of all clients. The log's own bound, limit_logBusy, comes first unless records are very small. */
START_TEST(pending_sends)
{
    const struct reply_to nobody = {.oneway = true};
    struct send_answers *answers = send_message_processor_answers(broker.sends);
    struct pending_send **taken = calloc(LIMIT_PENDING_SENDS, sizeof(struct pending_send *));
    ck_assert_ptr_nonnull(taken);
    for (uint32_t i = 0; i < LIMIT_PENDING_SENDS; i++) {
        ck_assert_ptr_nonnull(taken[i] = send_answer_take(answers, &nobody));
        taken[i]->started_us = 1;
    }
    expect_refused(&client, ask_text(&client, SEND, SEND_EXT("T"), "x"), "limit_pendingSends");
    ck_assert_int_eq(counter("limit_pendingSends"), 1);
    expect_ok(&good, ask_text(&good, MAX_OFFSET, "topic=T;queueId=0", ""));
    for (uint32_t i = 0; i < LIMIT_PENDING_SENDS; i++)
        send_answer_give(taken[i]);
    free(taken);
    expect_good();
    expect_ok(&client, ask_text(&client, SEND, SEND_EXT("T"), "x"));
    ck_assert_int_eq(counter("limit_pendingSends"), 1);
}
END_TEST

START_TEST(connection_sends)
{
    at_a_full(&remoting_server_find(broker.server, client.id)->pending_sends, LIMIT_PENDING_SENDS_CONNECTION, "limit_connectionSends", SEND, SEND_EXT("T"), "x");
}
END_TEST

/* ---- transactions ---- */

/* Its place, for what is asked about it. */
static void send_half(char position[64], char offset[64], char id[64])
{
    struct answer answer = answer_of(&client, ask_text(&client, SEND, HALF_EXT, "half"));
    ck_assert_msg(answer.code == 0, "half: %d: %s", answer.code, answer.remark);
    expect_field(&answer, "msgId", id, 64);
    expect_field(&answer, "queueOffset", offset, 64);
    struct message_host host;
    int64_t physical_offset;
    ck_assert(message_id_parse(slice_of_text(id), &host, &physical_offset));
    snprintf(position, 64, "%lld", (long long)physical_offset);
}

START_TEST(half_messages)
{
    char position[64], offset[64], id[64];
    send_half(position, offset, id); /* the topic of halves is there */
    int64_t is = (int64_t)broker.metadata->halves.unsettled;
    broker.metadata->halves.unsettled = LIMIT_UNSETTLED_HALVES;
    expect_refused(&client, ask_text(&client, SEND, HALF_EXT, "half"), "limit_halfMessages");
    ck_assert_int_eq(counter("limit_halfMessages"), 1);
    expect_good();
    broker.metadata->halves.unsettled = (uint32_t)is;
    send_half(position, offset, id);
    ck_assert_int_eq(counter("limit_halfMessages"), 1);
}
END_TEST

/* One decision, repeated until no more are taken: all that were are answered alike. */
START_TEST(transaction_ends)
{
    char position[64], offset[64], id[64], ext[512];
    send_half(position, offset, id);
    snprintf(ext, sizeof ext, "producerGroup=p;tranStateTableOffset=%s;commitLogOffset=%s;commitOrRollback=8;fromTransactionCheck=false;msgId=m;transactionId=t", offset, position);
    for (uint32_t i = 0; i < LIMIT_ENDS_IN_FLIGHT; i++)
        ask_text(&client, END_TRANSACTION, ext, "");
    ck_assert_int_eq(counter("limit_transactionEnds"), 0);
    one_too_many("limit_transactionEnds", END_TRANSACTION, ext);
}
END_TEST

/* ---- old messages ---- */

static int64_t (*committed_offset)(void *context);

static int64_t far_ahead(void *context)
{
    return committed_offset(context) + 2ll * LIMIT_HOT_BYTES;
}

/* All that is in the log is old from now on, and read by the pool. */
static void all_is_old(bool old)
{
    if (old) {
        committed_offset = broker.store.log.committed_offset;
        broker.store.log.committed_offset = far_ahead;
    } else {
        broker.store.log.committed_offset = committed_offset;
    }
}

START_TEST(resumed_checks)
{
    char position[64], offset[64], id[64], ext[128];
    send_half(position, offset, id);
    snprintf(ext, sizeof ext, "msgId=%s", id);
    all_is_old(true);
    for (int i = 0; i < 64; i++)
        ask_text(&client, RESUME_CHECK, ext, "");
    ck_assert_int_eq(counter("limit_resumedChecks"), 0);
    int32_t refused = ask_text(&client, RESUME_CHECK, ext, "");
    ck_assert_int_eq(counter("limit_resumedChecks"), 1);
    expect_refused(&client, refused, "limit_resumedChecks");
    uint32_t passed_over = client.passed_over;
    expect_good();
    while (client.passed_over < passed_over + 64)
        answer_of(&client, ask_text(&client, MAX_OFFSET, "topic=T;queueId=0", ""));
    expect_ok(&client, ask_text(&client, RESUME_CHECK, ext, ""));
    ck_assert_int_eq(counter("limit_resumedChecks"), 1);
    all_is_old(false);
}
END_TEST

static uint32_t reads_left;

static void on_read(struct broker *of, struct cold_read *read, int code)
{
    (void)of;
    ck_assert_int_eq(code, 0);
    cold_read_free(read);
    reads_left--;
}

/* What asks for an old message, by whatever request, while as many reads wait as may. */
START_TEST(cold_reads)
{
    char position[64], offset[64], id[64], view[128], back[256], end[512], resume[128];
    static struct cold_read reads[LIMIT_COLD_READS + LIMIT_COLD_WAITING];
    expect_good();
    send_half(position, offset, id);
    snprintf(view, sizeof view, "offset=%s", position);
    snprintf(back, sizeof back, "offset=%s;group=g;delayLevel=1;originMsgId=m;originTopic=T;unitMode=false;maxReconsumeTimes=16", position);
    snprintf(end, sizeof end, "producerGroup=p;tranStateTableOffset=%s;commitLogOffset=%s;commitOrRollback=8;fromTransactionCheck=false;msgId=m;transactionId=t", offset, position);
    snprintf(resume, sizeof resume, "msgId=%s", id);
    expect_ok(&client, ask_text(&client, UPDATE_GROUP, "", "{\"groupName\":\"g\"}"));
    expect_ok(&client, ask_text(&client, SEND_BACK, back, "")); /* its topic is there */
    const struct {
        int32_t code;
        const char *ext;
    } rows[] = {{VIEW, view}, {PULL, PULL_EXT "*"}, {SEND_BACK, back}, {RESUME_CHECK, resume}, {END_TRANSACTION, end}};
    int32_t asked[sizeof rows / sizeof rows[0]];
    int64_t physical_offset = strtoll(position, NULL, 10), before;
    uint32_t size = message_store_record_size(&broker.store, physical_offset);
    all_is_old(true);
    memset(reads, 0, sizeof reads);
    for (reads_left = 0; reads_left < LIMIT_COLD_READS + LIMIT_COLD_WAITING; reads_left++)
        ck_assert_int_eq(cold_read_start_one(broker.cold_reads, &reads[reads_left], physical_offset, size, on_read), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        before = counter("limit_coldReads");
        asked[i] = ask_text(&client, rows[i].code, rows[i].ext, "");
        ck_assert_msg(counter("limit_coldReads") > before, "request %d is not counted", rows[i].code);
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_refused(&client, asked[i], "limit_coldReads");
    int32_t served = ask_text(&good, SEND, SEND_EXT("T"), "good");
    for (int i = 0; reads_left > 0; i++) {
        ck_assert_int_lt(i, TURNS_MAX);
        uv_run(&loop, UV_RUN_ONCE);
    }
    expect_ok(&good, served);
    before = counter("limit_coldReads");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_ok(&client, ask_text(&client, rows[i].code, rows[i].ext, ""));
    ck_assert_int_eq(counter("limit_coldReads"), before);
    all_is_old(false);
}
END_TEST

/* ---- pulls and clients ---- */

START_TEST(sql_bytes)
{
    static char text[SQL92_EXPRESSION_MAX];
    static struct sql_program *programs[SQL_PROGRAM_BYTES_MAX / 4096];
    static const char ext[] = "consumerGroup=g;topic=T;queueId=0;queueOffset=0;maxMsgNums=32;sysFlag=4;commitOffset=0;suspendTimeoutMillis=0;subVersion=0;"
                              "expressionType=SQL92;subscription=a > 1";
    struct error error;
    uint32_t count = 0;
    expect_ok(&client, ask_text(&client, UPDATE_GROUP, "", "{\"groupName\":\"g\"}"));
    expect_good();
    /* Long ones, then short ones: nothing is left. */
    for (size_t size = sizeof text; size >= 5; size = size > 1000 ? size - 1000 : 5) {
        memset(text, ' ', sizeof text);
        memcpy(text + size - 5, "a > 1", 5);
        while ((programs[count] = sql_program_new(slice_of(text, size), &error)) != NULL)
            count++;
        ck_assert_int_eq(error.code, ERROR_BUSY);
        if (size == 5)
            break;
    }
    expect_refused(&client, ask_text(&client, PULL, ext, ""), "limit_sqlBytes");
    ck_assert_int_eq(counter("limit_sqlBytes"), 1);
    expect_ok(&good, ask_text(&good, PULL, PULL_EXT "*", ""));
    while (count > 0)
        sql_program_release(programs[--count]);
    ck_assert_int_ne(answer_of(&client, ask_text(&client, PULL, ext, "")).code, RESPONSE_SERVICE_NOT_AVAILABLE);
    ck_assert_int_eq(counter("limit_sqlBytes"), 1);
}
END_TEST

static uint32_t calls_left;

static void on_called(struct broker *of, void *context, int code, const struct remoting_command *answer)
{
    (void)of, (void)context, (void)answer;
    ck_assert_int_ne(code, 0);
    calls_left--;
}

START_TEST(client_calls)
{
    static const char running[] = "consumerGroup=g;clientId=c;jstackEnable=false";
    struct remoting_writer writer;
    struct client consumer;
    client_open(&consumer);
    expect_ok(&consumer, ask_text(&consumer, HEART_BEAT, "", "{\"clientID\":\"c\",\"producerDataSet\":[],\"consumerDataSet\":[{\"groupName\":\"g\",\"consumeType\":"
              "\"CONSUME_PASSIVELY\",\"messageModel\":\"CLUSTERING\",\"consumeFromWhere\":\"CONSUME_FROM_LAST_OFFSET\",\"subscriptionDataSet\":[],\"unitMode\":false}]}"));
    for (calls_left = 0; calls_left < LIMIT_CLIENT_CALLS; calls_left++) {
        ck_assert_int_eq(client_call_begin(&broker, consumer.id, RUNNING_INFO, &writer), 0);
        client_call_end(&broker, consumer.id, &writer, LIMIT_CLIENT_CALL_MS, on_called, NULL);
    }
    expect_refused(&client, ask_text(&client, RUNNING_INFO, running, ""), "limit_clientCalls");
    ck_assert_int_eq(counter("limit_clientCalls"), 1);
    expect_good();
    client_close(&consumer);
    for (int i = 0; calls_left > 0; i++) {
        ck_assert_int_lt(i, TURNS_MAX);
        uv_run(&loop, UV_RUN_ONCE);
    }
    expect_good();
}
END_TEST

/* ---- connections ---- */

/* Who asks for much and reads nothing is paused, and then cut. */
START_TEST(unsent_bytes)
{
    static uint8_t body[2u << 20];
    int asked = 0;
    for (int i = 0; i < 2; i++)
        expect_ok(&good, ask(&good, SEND, SEND_EXT("T"), slice_of(body, sizeof body)));
    for (; counter("limit_unsentBytes") == 0; asked++) {
        ck_assert_int_lt(asked, 64);
        ck_assert_ptr_nonnull(remoting_server_find(broker.server, client.id));
        ask_text(&client, PULL, PULL_EXT "*", "");
    }
    ck_assert_int_ge(asked, 8);
    ck_assert_int_eq(counter("limit_unsentBytes"), 1);
    ck_assert_ptr_null(remoting_server_find(broker.server, client.id));
    expect_ok(&good, ask_text(&good, PULL, PULL_EXT "*", ""));
    expect_good();
}
END_TEST

/* More connections than one turn takes: the rest comes in the next ones, and who is there is served in between. */
START_TEST(accepts_of_a_turn)
{
    int fds[4 * LIMIT_ACCEPTS_TURN];
    uint32_t before = remoting_server_connection_count(broker.server);
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        fds[i] = dial();
    int32_t served = ask_text(&good, SEND, SEND_EXT("T"), "good");
    uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_le(remoting_server_connection_count(broker.server) - before, LIMIT_ACCEPTS_TURN);
    expect_ok(&good, served);
    for (int i = 0; remoting_server_connection_count(broker.server) < before + sizeof fds / sizeof fds[0]; i++) {
        ck_assert_int_lt(i, TURNS_MAX);
        uv_run(&loop, UV_RUN_ONCE);
    }
    ck_assert_int_gt(counter("limit_acceptsTurn"), 0);
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        close(fds[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("limits");
    TCase *test = tcase_create("limits");
    tcase_set_timeout(test, 120);
    tcase_add_checked_fixture(test, set_up_topic, tear_down);
    tcase_add_test(test, topics);
    tcase_add_test(test, groups);
    tcase_add_test(test, offsets);
    tcase_add_test(test, queue_locks);
    tcase_add_test(test, clients);
    tcase_add_test(test, metadata_records);
    tcase_add_test(test, stats_items);
    tcase_add_test(test, log_busy);
    tcase_add_test(test, pending_sends);
    tcase_add_test(test, connection_sends);
    tcase_add_test(test, half_messages);
    tcase_add_test(test, transaction_ends);
    tcase_add_test(test, resumed_checks);
    tcase_add_test(test, cold_reads);
    tcase_add_test(test, sql_bytes);
    tcase_add_test(test, client_calls);
    tcase_add_test(test, unsent_bytes);
    tcase_add_test(test, accepts_of_a_turn);
    suite_add_tcase(suite, test);
    return run_suite(suite);
}
