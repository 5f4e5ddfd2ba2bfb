/* Delivery of delayed messages that are read by the pool, over a log that the test commits, or refuses, by hand: whatever is refused is delivered again, once
 * and in its order.
 */
#include "../lib/broker_state.h"

#include <check.h>
#include <stdlib.h>
#include <uv.h>

#include "broker/broker_stats.h"
#include "broker/broker_stats_manager.h"
#include "broker/processor/cold_read.h"
#include "broker/service/schedule.h"
#include "proto/ledger_entry.h"
#include "proto/topic_validator.h"
#include "store/message_store.h"
#include "tests/lib/run_suite.h"

#define MESSAGES (3 * GET_MESSAGE_BATCH_MAX)
#define ENTRY_ROOM 512u
#define LOG_SIZE (MESSAGES * ENTRY_ROOM)

static struct broker_state state;
static struct broker *broker;
static uv_loop_t loop;
static uv_timer_t keeps_alive; /* the schedule's own timer does not */
static struct mapped_file file;

static struct {
    struct append_entry_request *request;
    uint8_t *body;
    size_t size;
} gathered[LIMIT_DELAY_IN_FLIGHT];
static uint32_t gathered_count;
static int delivered[MESSAGES];
static int64_t newest; /* delivered */
static bool full; /* nothing more is taken */

/* ---- the log ---- */

void dledger_commit_log_state(const struct dledger_commit_log *log, struct dledger_state *out)
{
    (void)log;
    *out = (struct dledger_state){.role = DLEDGER_LEADER, .accepting = true, .accept_count = 1, .term = 2};
}

bool dledger_commit_log_accepting(const struct dledger_commit_log *log)
{
    (void)log;
    return true;
}

uint8_t *dledger_commit_log_reserve(struct dledger_commit_log *log, size_t body_size, int64_t *physical_offset, int *code)
{
    (void)log;
    if (full) {
        *code = ERROR_NO_SPACE;
        return NULL;
    }
    ck_assert_uint_lt(gathered_count, LIMIT_DELAY_IN_FLIGHT);
    *physical_offset = LOG_SIZE;
    *code = 0;
    gathered[gathered_count].size = body_size;
    return gathered[gathered_count].body = malloc(body_size);
}

void dledger_commit_log_append(struct dledger_commit_log *log, enum ledger_entry_kind kind, struct append_entry_request *request)
{
    (void)log;
    ck_assert_int_eq(kind, LEDGER_ENTRY_MESSAGE);
    gathered[gathered_count++].request = request;
}

int64_t dledger_commit_log_physical_offset(const struct dledger_commit_log *log, uint64_t index)
{
    (void)log, (void)index;
    return 0;
}

const uint8_t *dledger_commit_log_pin(struct dledger_commit_log *log, int64_t physical_offset, size_t size, struct mapped_file **pinned)
{
    static const uint8_t something = 0;
    (void)log, (void)physical_offset, (void)size;
    *pinned = &file;
    mapped_file_pin(&file);
    return &something;
}

void dledger_commit_log_unpin(struct dledger_commit_log *log, struct mapped_file *pinned)
{
    (void)log;
    mapped_file_unpin(pinned);
}

static int64_t far_ahead(void *context)
{
    (void)context;
    return 2ll * LIMIT_HOT_BYTES + LOG_SIZE;
}

/* As replica_append.c does when there is no room for what was gathered. */
static void refuse_gathered(void)
{
    uint32_t count = gathered_count;
    gathered_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        free(gathered[i].body);
        gathered[i].request->code = ERROR_NO_SPACE;
        gathered[i].request->done(gathered[i].request);
    }
}

static void commit_gathered(void)
{
    uint32_t count = gathered_count;
    gathered_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct message_record record;
        ck_assert_int_eq(message_record_decode(slice_of(gathered[i].body, gathered[i].size), true, &record), 0);
        struct slice trailer = slice_of(gathered[i].body + record.total_size, gathered[i].size - record.total_size);
        Ledgermq__Consumed *consumed = ledgermq__consumed__unpack(NULL, trailer.size, trailer.data);
        ck_assert_ptr_nonnull(consumed);
        ck_assert_int_lt(consumed->delay_offset, MESSAGES);
        ck_assert_int_ge(consumed->delay_offset, newest);
        newest = consumed->delay_offset;
        delivered[newest]++;
        ledgermq__consumed__free_unpacked(consumed, NULL);
        metadata_apply_consumed(broker, trailer, false);
        free(gathered[i].body);
        gathered[i].request->code = 0;
        gathered[i].request->done(gathered[i].request);
    }
}

/* ---- the messages ---- */

/* Message number i of the schedule queue, in the log and in the queue; it is due. */
static void store_message(int64_t i, struct env_file *handle)
{
    static const char properties[] = "REAL_TOPIC\1T\2REAL_QID\0010\2DELAY\0011";
    uint8_t bytes[ENTRY_ROOM] = {0};
    struct message_dispatch dispatch;
    struct message_record record = {
        .queue_offset = i,
        .physical_offset = i * ENTRY_ROOM + LEDGER_ENTRY_HEADER_SIZE,
        .born_timestamp_ms = 1600000000000,
        .store_timestamp_ms = 1600000000000,
        .body = SLICE_LITERAL("late"),
        .topic = SLICE_LITERAL(TOPIC_SCHEDULE),
        .properties = slice_of_text(properties),
    };
    ck_assert(message_host_parse(SLICE_LITERAL("127.0.0.1:1"), &record.born_host));
    record.store_host = record.born_host;
    ck_assert_uint_le(message_record_size(&record), ENTRY_ROOM - LEDGER_ENTRY_HEADER_SIZE);
    size_t size = message_record_encode(&record, slice_of(NULL, 0), bytes + LEDGER_ENTRY_HEADER_SIZE);
    struct ledger_entry entry = {.index = (uint64_t)i, .term = 2, .position = (uint64_t)i * ENTRY_ROOM, .kind = LEDGER_ENTRY_MESSAGE, .body_size = (uint32_t)size};
    ledger_entry_seal(&entry, bytes, 0);
    ck_assert_int_ge(env_write(&broker->env, handle, bytes, sizeof bytes, entry.position), 0);
    ck_assert_int_eq(message_store_dispatch(&broker->store, slice_of(bytes + LEDGER_ENTRY_HEADER_SIZE, size), &dispatch), 0);
}

static void nothing(uv_timer_t *timer)
{
    (void)timer;
}

static void set_up(void)
{
    struct error error;
    struct env_file *handle;
    broker_state_open(&state);
    broker = &state.broker;
    uv_loop_init(&loop);
    uv_timer_init(&loop, &keeps_alive);
    uv_timer_start(&keeps_alive, nothing, 1, 1);
    broker->loop = &loop;
    broker->store.log.committed_offset = far_ahead; /* all is old, so the pool reads it */
    ck_assert(message_host_parse(SLICE_LITERAL("127.0.0.1:1"), &broker->store_host));
    broker->item_stats = broker_stats_manager_new(&broker->env);
    broker->stats = broker_stats_new(broker);
    broker->cold_reads = cold_reader_new(broker);
    broker->schedule = schedule_new(broker, &error);
    broker_state_put_topic(&state, 1, "T", 4);
    ck_assert_int_eq(env_open(&broker->env, "/log", ENV_WRITE | ENV_READ | ENV_CREATE, &handle), 0);
    for (int64_t i = 0; i < MESSAGES; i++)
        store_message(i, handle);
    file = (struct mapped_file){.env = &broker->env, .size = LOG_SIZE, .file = handle};
    gathered_count = 0;
    newest = 0;
    full = false;
    memset(delivered, 0, sizeof delivered);
}

static void is_idle(void *argument)
{
    (void)argument;
}

static void tear_down(void)
{
    schedule_close(broker->schedule);
    cold_reader_stop(broker->cold_reads, is_idle, NULL);
    uv_close((uv_handle_t *)&keeps_alive, NULL);
    broker_stats_close(broker->stats);
    uv_run(&loop, UV_RUN_DEFAULT);
    commit_gathered();
    schedule_free(broker->schedule);
    cold_reader_free(broker->cold_reads);
    broker_stats_free(broker->stats);
    broker_stats_manager_free(broker->item_stats);
    env_close(&broker->env, file.file);
    broker_state_close(&state);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void until_gathered(void)
{
    for (int turns = 0; gathered_count == 0; turns++) {
        ck_assert_int_lt(turns, 20000);
        uv_run(&loop, UV_RUN_ONCE);
    }
}

static void deliver_the_rest(void)
{
    while (metadata_delay_offset(broker->metadata, 1) < MESSAGES) {
        until_gathered();
        commit_gathered();
    }
    for (int i = 0; i < MESSAGES; i++)
        ck_assert_msg(delivered[i] == 1, "message %d was delivered %d times", i, delivered[i]);
}

START_TEST(all_in_their_order)
{
    schedule_role_changed(broker->schedule);
    deliver_the_rest();
}
END_TEST

/* The disk has no room for what was gathered, while the pool reads what comes behind it; when that comes back there is room again. */
START_TEST(refused_while_the_next_are_read)
{
    schedule_role_changed(broker->schedule);
    until_gathered();
    ck_assert_uint_eq(gathered_count, GET_MESSAGE_BATCH_MAX);
    refuse_gathered();
    deliver_the_rest();
}
END_TEST

/* The disk stays full: the same messages are not read over and over meanwhile. */
START_TEST(a_full_disk_is_waited_for)
{
    uint64_t jobs, of_queues, began_ms;
    full = true;
    schedule_role_changed(broker->schedule);
    uv_update_time(&loop);
    began_ms = uv_now(&loop);
    while (uv_now(&loop) < began_ms + 500)
        uv_run(&loop, UV_RUN_ONCE);
    cold_reader_counts(broker->cold_reads, &jobs, &of_queues);
    ck_assert_uint_ge(jobs, 1);
    ck_assert_uint_le(jobs, 10);
    full = false;
    deliver_the_rest();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule_delivery");
    TCase *tcase = tcase_create("delivery");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, all_in_their_order);
    tcase_add_test(tcase, refused_while_the_next_are_read);
    tcase_add_test(tcase, a_full_disk_is_waited_for);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
