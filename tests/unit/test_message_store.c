/* The message store over a log in memory: dispatching, every row of get-message, offsets by time, search by key, recovery at every unit border,
 * rebuild from nothing, deletion, retention, full disks, kills and power cuts. */
#include "store/compare.h"

#include "proto/hash.h"
#include "proto/ledger_entry.h"
#include "store/index_service.h"
#include "store/log_sink.h"
#include "store/queue_table.h"

#include "../lib/hex.h"
#include "../lib/sim_env.h"
#include "tests/lib/damage_count.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define LOG_MAX (8u << 20)
#define ENTRIES_MAX 20000
#define CQ_UNITS 1000

/* As ck_assert(), which writes a line to a file for each: for what is looked at millions of times. */
#define must(ok)                                     \
    do {                                             \
        if (!(ok))                                   \
            ck_abort_msg("%s is not so", #ok);       \
    } while (0)

/* ---- a log in memory: entries of 48 bytes header and a record, one behind the other ---- */

static struct {
    uint8_t *bytes;
    int64_t min;
    int64_t end;
    int64_t at[ENTRIES_MAX]; /* physical offsets */
    int count;
    bool unreadable;
} fake;

static int64_t fake_min(void *context)
{
    (void)context;
    return fake.min;
}
static int64_t fake_committed(void *context)
{
    (void)context;
    return fake.end;
}
static const uint8_t *fake_at(void *context, int64_t offset, size_t size)
{
    (void)context;
    if (fake.unreadable || offset < fake.min || offset > fake.end || size > (size_t)(fake.end - offset))
        return NULL;
    return fake.bytes + offset;
}
static int fake_read(void *context, int64_t offset, void *out, size_t size)
{
    const uint8_t *p = fake_at(context, offset, size);
    if (p == NULL)
        return -ENOENT;
    memcpy(out, p, size);
    return 0;
}
static uint32_t fake_message_at(void *context, int64_t offset)
{
    int low = 0, high = fake.count;
    (void)context;
    while (low < high) {
        int middle = (low + high) / 2;
        if (fake.at[middle] < offset)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == fake.count || fake.at[low] != offset)
        return 0;
    uint32_t size = load_u32(fake.bytes + offset);
    return fake_at(NULL, offset, size) != NULL ? size : 0;
}
static const struct log_view view = {NULL, fake_min, fake_committed, fake_at, fake_read, fake_message_at, NULL};

struct spec {
    const char *topic;
    int32_t queue_id;
    int64_t queue_offset;
    const char *properties;
    uint32_t body_size;
    int32_t sys_flag;
    int64_t store_timestamp_ms;
};

static int append_to_log(struct spec spec)
{
    static const uint8_t body[300000];
    struct message_record record = {
        .queue_id = spec.queue_id,
        .queue_offset = spec.queue_offset,
        .sys_flag = spec.sys_flag,
        .born_timestamp_ms = 1700000000000,
        .born_host = {{127, 0, 0, 1}, 4, 5},
        .store_timestamp_ms = spec.store_timestamp_ms,
        .store_host = {{127, 0, 0, 1}, 4, 10911},
        .body = slice_of(body, spec.body_size),
        .topic = slice_of_text(spec.topic),
        .properties = slice_of_text(spec.properties),
    };
    size_t size = message_record_size(&record);
    ck_assert_uint_le((uint64_t)fake.end + 48 + size, LOG_MAX);
    record.physical_offset = fake.end + 48;
    ck_assert_uint_eq(message_record_encode(&record, slice_of(NULL, 0), fake.bytes + fake.end + 48), size);
    struct ledger_entry entry = {.index = (uint64_t)fake.count, .position = (uint64_t)fake.end, .kind = LEDGER_ENTRY_MESSAGE, .body_size = (uint32_t)size};
    ledger_entry_seal(&entry, fake.bytes + fake.end, 0);
    fake.at[fake.count] = record.physical_offset;
    fake.end += 48 + (int64_t)size;
    return fake.count++;
}

/* ---- fixture ---- */

static struct sim_env sim;
static struct message_store store;
static struct error error;
static const int64_t delays[] = {0, 1000, 5000, 10000, 30000};
static struct message_store_config config;

static void be_quiet(void *context, enum log_level level, const char *text)
{
    (void)context, (void)level, (void)text;
}

static void open_store(void)
{
    ck_assert_msg(message_store_open(&store, &sim.env, &config, &view, &error) == 0, "%s", error.message);
}

static void recover(int64_t position)
{
    ck_assert_msg(message_store_recover(&store, position, &error) == 0, "%s", error.message);
}

static void set_up(void)
{
    log_sink_set(be_quiet, NULL);
    memset(&fake, 0, sizeof fake);
    fake.bytes = calloc(1, LOG_MAX);
    config = (struct message_store_config){
        .root = "/s",
        .consume_queue_file_size = CQ_UNITS * 20 - 7, /* rounded up */
        .index_slots = 101,
        .index_entries = 50000,
        .index_enable = true,
        .delay_level_ms = delays,
        .delay_levels = 4,
    };
    sim_env_init(&sim, 3, NULL);
    open_store();
    recover(0);
}

static void tear_down(void)
{
    message_store_close(&store);
    ck_assert_uint_eq(sim_env_unreserved_pages(&sim), 0);
    ck_assert_uint_eq(sim.open_files, 0);
    ck_assert_uint_eq(sim.open_maps, 0);
    sim_env_close(&sim);
    free(fake.bytes);
}

static struct slice record_of(int n)
{
    return slice_of(fake.bytes + fake.at[n], load_u32(fake.bytes + fake.at[n]));
}

static int dispatch(int n)
{
    struct message_dispatch out;
    int rv = message_store_dispatch(&store, record_of(n), &out);
    must(rv != 0 || (out.physical_offset == fake.at[n] && out.size == record_of(n).size));
    return rv;
}

static void dispatch_ok(int from, int to)
{
    for (int n = from; n < to; n++)
        must(dispatch(n) == 0);
}

/* Entries that begin at or behind the position. */
static int first_at(int64_t position)
{
    int n = 0;
    while (n < fake.count && fake.at[n] - 48 < position)
        n++;
    return n;
}

static void restart(int64_t position)
{
    message_store_close(&store);
    open_store();
    recover(position);
    dispatch_ok(first_at(message_store_recovered_position(&store)), fake.count);
}

/* A mix: three topics, seven queues, keys, tags, some transactions. */
static void fill(int count)
{
    static int64_t offsets[7];
    static const char *const topics[] = {"A", "A", "A", "B", "B", "%RETRY%g", "C|d"};
    static const int32_t ids[] = {0, 1, 2, 0, 5, 0, 17};
    char properties[128];
    if (fake.count == 0)
        memset(offsets, 0, sizeof offsets);
    for (int i = 0; i < count; i++) {
        int n = fake.count;
        int q = (n * 5 + n / 7) % 7;
        int32_t flag = n % 29 == 3 ? MESSAGE_TRANSACTION_PREPARED : n % 31 == 4 ? MESSAGE_TRANSACTION_ROLLBACK : n % 2 == 0 ? MESSAGE_TRANSACTION_COMMIT : 0;
        bool counted = flag == 0 || flag == MESSAGE_TRANSACTION_COMMIT;
        snprintf(properties, sizeof properties, "UNIQ_KEY\x01U%d\x02KEYS\x01" "k%d k%d\x02TAGS\x01Tag%d", n, n % 13, n % 17, n % 3);
        append_to_log((struct spec){topics[q], ids[q], counted ? offsets[q]++ : 0, properties, (uint32_t)(n % 90), flag, 1700000000000 + n * 10});
    }
}

static uint32_t query(const char *topic, const char *key, int64_t begin, int64_t end, int64_t *offsets)
{
    int64_t time, offset;
    return message_store_query(&store, slice_of_text(topic), slice_of_text(key), 64, begin, end, offsets, &time, &offset);
}

/* Every record is where it belongs, in queues and index. */
static void check_all_from(int first)
{
    for (int n = first; n < fake.count; n++) {
        struct message_dispatch d;
        int64_t offsets[64];
        must(message_dispatch_decode(record_of(n), &d) == 0);
        int transaction = d.sys_flag & MESSAGE_TRANSACTION_MASK;
        struct consume_queue *queue = message_store_queue(&store, d.topic, d.queue_id, false, NULL);
        if (transaction == 0 || transaction == MESSAGE_TRANSACTION_COMMIT) {
            struct consume_queue_unit unit;
            must(queue != NULL && consume_queue_get(queue, d.queue_offset, &unit));
            must(unit.physical_offset == fake.at[n] && unit.size == (int32_t)d.size && unit.tags_code == message_tags_code(d.tags));
        }
        if (n % 50 == 7) {
            int64_t last_time, last_offset;
            uint32_t found = message_store_query(&store, d.topic, d.uniq_key, 64, 0, INT64_MAX, offsets, &last_time, &last_offset);
            ck_assert_uint_eq(found, transaction == MESSAGE_TRANSACTION_ROLLBACK ? 0 : 1);
            if (found > 0)
                ck_assert_int_eq(offsets[0], fake.at[n]);
        }
    }
}

static void check_all(void)
{
    check_all_from(0);
}

/* ---- dispatch ---- */

START_TEST(golden_record)
{
    struct slice record = hex_bytes(
        "000000cedaa320a7248c774f00000003"
        "00000000000000000000000500000000"
        "00000418000000000000018bcfe56800"
        "c0a8010a0000d4310000018bcfe5687b"
        "c0a8011400002a9f0000000000000000"
        "000000000000001048656c6c6f20526f"
        "636b65744d51203009546f7069635465"
        "7374005a4b455953014f726465724944"
        "30303102554e49515f4b455901433041"
        "38303130413141324231384234414143"
        "3234374237363030303030303002434c"
        "55535445520144656661756c74436c75"
        "7374657202544147530154616741");
    ck_assert_uint_eq(record.size, 206);
    struct message_dispatch out;
    struct consume_queue_unit unit;
    ck_assert_int_eq(message_store_dispatch(&store, record, &out), 0);
    struct consume_queue *queue = message_store_queue(&store, SLICE_LITERAL("TopicTest"), 3, false, NULL);
    ck_assert_ptr_nonnull(queue);
    ck_assert_int_eq(queue->min_offset, 5);
    ck_assert_int_eq(queue->max_offset, 6);
    ck_assert(consume_queue_get(queue, 5, &unit));
    ck_assert_int_eq(unit.physical_offset, 1048);
    ck_assert_int_eq(unit.size, 206);
    ck_assert_int_eq(unit.tags_code, 2598919);
    /* Both keys, the unique one first. */
    struct index_file *file = store.index->files[0];
    ck_assert_uint_eq(file->count, 3);
    ck_assert_uint_eq(load_u32(file->map + index_file_used(file, 1)), 570992434);
    ck_assert_uint_eq(load_u32(file->map + index_file_used(file, 2)), 1231272886);
    /* Invariant 21: again changes nothing. */
    uint64_t digest = sim_env_digest(&sim, "/s");
    ck_assert_int_eq(message_store_dispatch(&store, record, &out), 0);
    ck_assert_uint_eq(sim_env_digest(&sim, "/s"), digest);
    /* Cut short: refused. */
    ck_assert_int_eq(message_store_dispatch(&store, slice_of(record.data, 205), &out), ERROR_MALFORMED);
    /* With something behind it: as it is. */
    uint8_t longer[300];
    memcpy(longer, record.data, 206);
    ck_assert_int_eq(message_store_dispatch(&store, slice_of(longer, 300), &out), 0);
    ck_assert_uint_eq(out.size, 206);
    hex_free(record);
}
END_TEST

START_TEST(mixed)
{
    fill(3000);
    dispatch_ok(0, 3000);
    check_all();
    ck_assert_int_eq(store.dispatched_offset, fake.end);
}
END_TEST

/* Invariant 23. */
START_TEST(delay_levels)
{
    static const struct {
        const char *properties;
        int64_t tags;
    } rows[] = {
        {"DELAY\x01" "3\x02TAGS\x01TagA", 1700000000123 + 10000},
        {"DELAY\x01" "99", 1700000000123 + 30000}, /* clamped to the highest level */
        {"DELAY\x01" "0\x02TAGS\x01TagA", 2598919},
        {"DELAY\x01-1\x02TAGS\x01TagA", 2598919},
        {"DELAY\x01x\x02TAGS\x01TagA", 2598919},
        {"TAGS\x01TagA", 2598919},
        {"KEYS\x01q", 0},
    };
    struct consume_queue_unit unit;
    for (int i = 0; i < 7; i++) {
        append_to_log((struct spec){"SCHEDULE_TOPIC_XXXX", 2, i, rows[i].properties, 1, 0, 1700000000123});
        append_to_log((struct spec){"Plain", 2, i, rows[i].properties, 1, 0, 1700000000123});
    }
    dispatch_ok(0, 14);
    for (int i = 0; i < 7; i++) {
        ck_assert(consume_queue_get(message_store_queue(&store, SLICE_LITERAL("SCHEDULE_TOPIC_XXXX"), 2, false, NULL), i, &unit));
        ck_assert_int_eq(unit.tags_code, rows[i].tags);
    }
    ck_assert(consume_queue_get(message_store_queue(&store, SLICE_LITERAL("Plain"), 2, false, NULL), 0, &unit));
    ck_assert_int_eq(unit.tags_code, 2598919);
}
END_TEST

/* Invariant 27 and spec 1.7. */
START_TEST(transactions)
{
    static const char properties[] = "UNIQ_KEY\x01u\x02KEYS\x01k";
    int64_t offsets[64];
    append_to_log((struct spec){"T", 0, 0, properties, 1, MESSAGE_TRANSACTION_ROLLBACK, 1700000000000});
    dispatch_ok(0, 1);
    ck_assert_ptr_null(message_store_queue(&store, SLICE_LITERAL("T"), 0, false, NULL));
    ck_assert_uint_eq(query("T", "u", 0, INT64_MAX, offsets), 0);
    append_to_log((struct spec){"T", 0, 0, properties, 1, MESSAGE_TRANSACTION_PREPARED, 1700000000000});
    dispatch_ok(1, 2);
    ck_assert_ptr_null(message_store_queue(&store, SLICE_LITERAL("T"), 0, false, NULL));
    ck_assert_uint_eq(query("T", "u", 0, INT64_MAX, offsets), 1);
    append_to_log((struct spec){"T", 0, 0, properties, 1, MESSAGE_TRANSACTION_COMMIT, 1700000000000});
    dispatch_ok(2, 3);
    ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("T"), 0), 1);
    ck_assert_uint_eq(query("T", "u", 0, INT64_MAX, offsets), 2);
}
END_TEST

START_TEST(never_skips_or_shifts)
{
    for (int64_t i = 0; i < 3; i++)
        append_to_log((struct spec){"T", 0, i, "", 1, 0, 1});
    int gap = append_to_log((struct spec){"T", 0, 4, "", 1, 0, 1});
    int repeat = append_to_log((struct spec){"T", 0, 1, "", 1, 0, 1}); /* another record at a taken place */
    int next = append_to_log((struct spec){"T", 0, 3, "", 1, 0, 1});
    dispatch_ok(0, 3);
    uint64_t digest = sim_env_digest(&sim, "/s");
    ck_assert_int_eq(dispatch(gap), ERROR_DAMAGED);
    ck_assert_int_eq(dispatch(repeat), ERROR_DAMAGED);
    dispatch_ok(0, 3);
    ck_assert_uint_eq(sim_env_digest(&sim, "/s"), digest);
    ck_assert_int_eq(dispatch(next), 0);
    ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("T"), 0), 4);
}
END_TEST

START_TEST(unsafe_topics)
{
    static const char *const topics[] = {"..", ".", "a/b", "../x", "/", "a\0b"};
    for (int i = 0; i < 6; i++) {
        struct slice topic = i == 5 ? slice_of("a\0b", 3) : slice_of_text(topics[i]);
        ck_assert_ptr_null(message_store_queue(&store, topic, 0, true, &error));
        ck_assert_int_eq(error.code, ERROR_INVALID);
    }
    ck_assert_ptr_null(message_store_queue(&store, slice_of(NULL, 0), 0, true, &error));
    ck_assert_ptr_null(message_store_queue(&store, SLICE_LITERAL("ok"), -1, true, &error));
    static uint8_t many[256];
    memset(many, 'a', sizeof many);
    ck_assert_ptr_null(message_store_queue(&store, slice_of(many, 256), 0, true, &error));
    ck_assert_ptr_nonnull(message_store_queue(&store, slice_of(many, 255), 0, true, &error));
    ck_assert_ptr_nonnull(message_store_queue(&store, SLICE_LITERAL("%DLQ%a|b"), 0, true, &error));
    ck_assert(!sim_env_exists(&sim, "/s/consumequeue/%DLQ%a|b")); /* nothing on disk before the first unit */
    append_to_log((struct spec){"a/b", 0, 0, "", 1, 0, 1});
    /* Committed is committed: it goes to no queue, and the node goes on. */
    ck_assert_int_eq(dispatch(0), 0);
    ck_assert(!sim_env_exists(&sim, "/s/consumequeue/a"));
    ck_assert_int_eq(store.dispatched_offset, fake.end);
}
END_TEST

START_TEST(many_keys_in_a_small_index)
{
    char properties[32768];
    size_t at = (size_t)snprintf(properties, sizeof properties, "KEYS\x01");
    while (at < 32000)
        at += (size_t)snprintf(properties + at, sizeof properties - at, "k%zu  ", at % 1000);
    message_store_close(&store);
    config.index_entries = 100;
    open_store();
    recover(0);
    append_to_log((struct spec){"T", 0, 0, properties, 1, 0, 1700000000000});
    append_to_log((struct spec){"T", 0, 1, "KEYS\x01last", 1, 0, 1700000000000});
    dispatch_ok(0, 2);
    int64_t offsets[64];
    ck_assert_uint_eq(query("T", "last", 0, INT64_MAX, offsets), 1);
    ck_assert_uint_eq(store.index->count, 2);
}
END_TEST

/* ---- get message ---- */

static struct get_message_result result;

static enum get_message_status get(const char *topic, int32_t id, int64_t offset, int32_t count, const struct message_filter *filter)
{
    message_store_get_message(&store, slice_of_text(topic), id, offset, count, filter, &result);
    return result.status;
}

static bool no_tags(void *context, int64_t code)
{
    (void)context, (void)code;
    return false;
}
static bool even_tags(void *context, int64_t code)
{
    (*(int *)context)++;
    return code % 2 == 0;
}
static bool short_record(void *context, struct slice record)
{
    (void)context;
    return record.size < 100;
}

START_TEST(get_message_rows)
{
    ck_assert_int_eq(get("T", 0, 0, 32, NULL), GET_MESSAGE_NO_MESSAGE_IN_QUEUE);
    ck_assert_int_eq(result.next_begin_offset, 0);
    ck_assert_int_eq(get("T", 0, 7, 32, NULL), GET_MESSAGE_NO_MESSAGE_IN_QUEUE);
    ck_assert_int_eq(result.next_begin_offset, 0);
    ck_assert_int_eq(get("", 0, 7, 32, NULL), GET_MESSAGE_NO_MATCHED_LOGIC_QUEUE);
    ck_assert_int_eq(get("T", -1, 7, 32, NULL), GET_MESSAGE_NO_MATCHED_LOGIC_QUEUE);
    message_store_queue(&store, SLICE_LITERAL("T"), 0, true, NULL);
    ck_assert_int_eq(get("T", 0, 0, 32, NULL), GET_MESSAGE_NO_MESSAGE_IN_QUEUE);
    ck_assert_int_eq(result.max_offset, 0);

    for (int64_t i = 0; i < 20; i++)
        append_to_log((struct spec){"T", 0, i, "", (uint32_t)i, 0, 1700000000000 + i});
    dispatch_ok(0, 20);
    fake.min = fake.at[10] - 48;
    ck_assert_int_eq(message_store_trim(&store, fake.min), 0);

    /* Invariant 29: min 10, max 20. */
    ck_assert_int_eq(get("T", 0, 3, 32, NULL), GET_MESSAGE_OFFSET_TOO_SMALL);
    ck_assert_int_eq(result.next_begin_offset, 10);
    ck_assert_int_eq(result.min_offset, 10);
    ck_assert_int_eq(result.max_offset, 20);
    ck_assert_int_eq(get("T", 0, -1, 32, NULL), GET_MESSAGE_OFFSET_TOO_SMALL);
    ck_assert_int_eq(get("T", 0, INT64_MIN, 32, NULL), GET_MESSAGE_OFFSET_TOO_SMALL);
    ck_assert_int_eq(get("T", 0, 20, 32, NULL), GET_MESSAGE_OFFSET_OVERFLOW_ONE);
    ck_assert_int_eq(result.next_begin_offset, 20);
    ck_assert_int_eq(get("T", 0, 25, 32, NULL), GET_MESSAGE_OFFSET_OVERFLOW_BADLY);
    ck_assert_int_eq(result.next_begin_offset, 20);
    ck_assert_int_eq(get("T", 0, INT64_MAX, 32, NULL), GET_MESSAGE_OFFSET_OVERFLOW_BADLY);
    ck_assert_int_eq(get("T", 0, 15, 32, NULL), GET_MESSAGE_FOUND);
    ck_assert_uint_eq(result.count, 5);
    ck_assert_int_eq(result.next_begin_offset, 20);
    ck_assert_int_eq(result.items[0].physical_offset, fake.at[15]);
    ck_assert_uint_eq(result.items[4].size, record_of(19).size);
    ck_assert_int_eq(get("T", 0, 15, 2, NULL), GET_MESSAGE_FOUND);
    ck_assert_uint_eq(result.count, 2);
    ck_assert_int_eq(result.next_begin_offset, 17);
    ck_assert_int_eq(get("T", 0, 15, 0, NULL), GET_MESSAGE_FOUND);
    ck_assert_uint_eq(result.count, 1);
    ck_assert_int_eq(get("T", 0, 15, INT32_MIN, NULL), GET_MESSAGE_FOUND);
    ck_assert_int_eq(get("T", 0, 15, INT32_MAX, NULL), GET_MESSAGE_FOUND);
    ck_assert_uint_eq(result.count, 5);

    /* The log has gone on being removed, the queue does not know yet. */
    fake.min = fake.at[12] - 48;
    ck_assert_int_eq(get("T", 0, 10, 32, NULL), GET_MESSAGE_FOUND);
    ck_assert_uint_eq(result.count, 8);
    ck_assert_int_eq(result.items[0].physical_offset, fake.at[12]);
    fake.min = fake.end;
    ck_assert_int_eq(get("T", 0, 10, 32, NULL), GET_MESSAGE_WAS_REMOVING);
    ck_assert_int_eq(result.next_begin_offset, 20);
    fake.min = 0;

    const struct message_filter nothing = {NULL, no_tags, NULL, 0};
    ck_assert_int_eq(get("T", 0, 11, 32, &nothing), GET_MESSAGE_NO_MATCHED_MESSAGE);
    ck_assert_int_eq(result.next_begin_offset, 20);
    const struct message_filter shorts = {NULL, NULL, short_record, 0};
    ck_assert_int_eq(get("T", 0, 10, 32, &shorts), GET_MESSAGE_NO_MATCHED_MESSAGE); /* 92 bytes and 10 to 19 of body */
    ck_assert_int_eq(result.next_begin_offset, 20);
    const struct message_filter few = {NULL, NULL, short_record, 3};
    ck_assert_int_eq(get("T", 0, 10, 32, &few), GET_MESSAGE_NO_MATCHED_MESSAGE);
    ck_assert_msg(result.next_begin_offset == 13, "more records were looked at than the filter allows");
    fake.unreadable = true; /* rather too many than too few */
    ck_assert_int_eq(get("T", 0, 10, 32, &shorts), GET_MESSAGE_FOUND);
    fake.unreadable = false;

    /* Nothing ahead of the commit position, whatever the queue holds. */
    int64_t end = fake.end;
    fake.end = fake.at[15] + 10;
    ck_assert_int_eq(get("T", 0, 14, 32, NULL), GET_MESSAGE_FOUND);
    ck_assert_uint_eq(result.count, 1);
    ck_assert_int_eq(result.next_begin_offset, 15);
    ck_assert_int_eq(get("T", 0, 15, 32, NULL), GET_MESSAGE_OFFSET_OVERFLOW_ONE);
    ck_assert_int_eq(result.next_begin_offset, 15);
    fake.end = end;
    ck_assert_str_eq(get_message_status_name(GET_MESSAGE_WAS_REMOVING), "MESSAGE_WAS_REMOVING");
    ck_assert_str_eq(get_message_status_name(GET_MESSAGE_FOUND), "FOUND");
}
END_TEST

/* Invariant 31. */
START_TEST(batch_limits)
{
    for (int64_t i = 0; i < 40; i++)
        append_to_log((struct spec){"Small", 0, i, "", 10, 0, 1});
    for (int64_t i = 0; i < 3; i++)
        append_to_log((struct spec){"Big", 0, i, "", 200 * 1024, 0, 1});
    append_to_log((struct spec){"Huge", 0, 0, "", 300000, 0, 1});
    dispatch_ok(0, fake.count);
    ck_assert_int_eq(get("Small", 0, 0, 64, NULL), GET_MESSAGE_FOUND);
    ck_assert_uint_eq(result.count, 32);
    ck_assert_int_eq(result.next_begin_offset, 32);
    ck_assert_uint_eq(result.total_size, 32 * record_of(0).size);
    ck_assert_int_eq(result.last_physical_offset, fake.at[32]);
    ck_assert_int_eq(get("Big", 0, 0, 32, NULL), GET_MESSAGE_FOUND);
    ck_assert_uint_eq(result.count, 1);
    ck_assert_int_eq(result.next_begin_offset, 1);
    ck_assert_int_eq(get("Huge", 0, 0, 32, NULL), GET_MESSAGE_FOUND);
    ck_assert_uint_eq(result.count, 1);
}
END_TEST

/* Invariant 32, and the border of a queue's file. */
START_TEST(scan_limits)
{
    for (int64_t i = 0; i < CQ_UNITS + 900; i++)
        append_to_log((struct spec){"T", 0, i, "TAGS\x01TagA", 1, 0, 1});
    dispatch_ok(0, fake.count);
    const struct message_filter nothing = {NULL, no_tags, NULL, 0};
    int seen = 0;
    const struct message_filter even = {&seen, even_tags, NULL, 0};
    ck_assert_int_eq(get("T", 0, 0, 32, &nothing), GET_MESSAGE_NO_MATCHED_MESSAGE);
    ck_assert_int_eq(result.next_begin_offset, 800);
    ck_assert_int_eq(get("T", 0, 0, 900, &even), GET_MESSAGE_NO_MATCHED_MESSAGE); /* TagA is odd */
    ck_assert_int_eq(result.next_begin_offset, 900);
    ck_assert_int_eq(seen, 900);
    ck_assert_int_eq(get("T", 0, 800, 32, &nothing), GET_MESSAGE_NO_MATCHED_MESSAGE);
    ck_assert_int_eq(result.next_begin_offset, CQ_UNITS);
    ck_assert_int_eq(get("T", 0, CQ_UNITS - 3, 32, NULL), GET_MESSAGE_FOUND);
    ck_assert_uint_eq(result.count, 3);
    ck_assert_int_eq(result.next_begin_offset, CQ_UNITS);
    ck_assert_int_eq(get("T", 0, CQ_UNITS + 200, 32, &nothing), GET_MESSAGE_NO_MATCHED_MESSAGE);
    ck_assert_int_eq(result.next_begin_offset, CQ_UNITS + 900);
}
END_TEST

/* ---- by time, by key, single records ---- */

START_TEST(offset_by_time)
{
    static const int64_t times[] = {1000, 1010, 1010, 1010, 1030, 1031, 1100};
    ck_assert_int_eq(message_store_offset_by_time(&store, SLICE_LITERAL("T"), 0, 5), 0);
    for (int64_t i = 0; i < 7; i++)
        append_to_log((struct spec){"T", 0, i, "", 1, 0, times[i]});
    dispatch_ok(0, 7);
    static const int64_t rows[][2] = {{0, 0}, {999, 0}, {1000, 0}, {1004, 0}, {1005, 0}, {1006, 1}, {1010, 1}, {1011, 3}, {1020, 3}, {1021, 4},
                                      {1030, 4}, {1031, 5}, {1065, 5}, {1066, 6}, {1100, 6}, {1101, 6}, {INT64_MAX, 6}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        ck_assert_msg(message_store_offset_by_time(&store, SLICE_LITERAL("T"), 0, rows[i][0]) == rows[i][1], "time %lld", (long long)rows[i][0]);
    ck_assert_int_eq(message_store_store_time(&store, SLICE_LITERAL("T"), 0, 4), 1030);
    ck_assert_int_eq(message_store_store_time(&store, SLICE_LITERAL("T"), 0, 7), -1);
    ck_assert_int_eq(message_store_store_time(&store, SLICE_LITERAL("T"), 1, 0), -1);
    ck_assert_int_eq(message_store_earliest_time(&store), 1000);
    /* Retention: below the log's begin nothing is looked at. */
    fake.min = fake.at[4] - 48;
    message_store_trim(&store, fake.min);
    ck_assert_int_eq(message_store_offset_by_time(&store, SLICE_LITERAL("T"), 0, 0), 4);
    ck_assert_int_eq(message_store_min_offset(&store, SLICE_LITERAL("T"), 0), 4);
    ck_assert_int_eq(message_store_earliest_time(&store), 1030);
    fake.min = fake.end;
    message_store_trim(&store, fake.min);
    ck_assert_int_eq(message_store_offset_by_time(&store, SLICE_LITERAL("T"), 0, 0), 7);
    ck_assert_int_eq(message_store_earliest_time(&store), -1);
}
END_TEST

/* C4: all files behind a queue are gone: minimum and maximum meet, who asks before is sent there, and new messages go on from there. */
START_TEST(everything_expired)
{
    for (int64_t i = 0; i < 2 * CQ_UNITS + 20; i++)
        append_to_log((struct spec){"T", 0, i, "", 1, 0, 1});
    int64_t count = fake.count;
    dispatch_ok(0, fake.count);
    fake.min = fake.end;
    ck_assert_int_eq(message_store_trim(&store, fake.min), 0);
    for (int restarts = 0; restarts < 2; restarts++) {
        ck_assert_int_eq(message_store_min_offset(&store, SLICE_LITERAL("T"), 0), count);
        ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("T"), 0), count);
        for (int64_t offset = 0; offset < count; offset += 500) {
            ck_assert_int_eq(get("T", 0, offset, 32, NULL), GET_MESSAGE_OFFSET_TOO_SMALL);
            ck_assert_int_eq(result.next_begin_offset, count);
        }
        ck_assert_int_eq(get("T", 0, count, 32, NULL), GET_MESSAGE_OFFSET_OVERFLOW_ONE);
        restart(fake.end);
    }
    append_to_log((struct spec){"T", 0, count, "", 1, 0, 1});
    dispatch_ok((int)count, fake.count);
    ck_assert_int_eq(get("T", 0, count, 32, NULL), GET_MESSAGE_FOUND);
    ck_assert_int_eq(message_store_min_offset(&store, SLICE_LITERAL("T"), 0), count);
}
END_TEST

START_TEST(single_records)
{
    fill(50);
    dispatch_ok(0, 50);
    for (int n = 0; n < 50; n++) {
        ck_assert_uint_eq(message_store_record_size(&store, fake.at[n]), record_of(n).size);
        ck_assert_int_eq(message_store_record_time(&store, fake.at[n]), 1700000000000 + n * 10);
        ck_assert_uint_eq(message_store_record_size(&store, fake.at[n] + 1), 0);
        ck_assert_uint_eq(message_store_record_size(&store, fake.at[n] - 48), 0);
    }
    static const int64_t wrong[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX - 50};
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(message_store_record_size(&store, wrong[i]), 0);
    ck_assert_uint_eq(message_store_record_size(&store, fake.end), 0);
    fake.end--; /* the last one is not committed */
    ck_assert_uint_eq(message_store_record_size(&store, fake.at[49]), 0);
    fake.end++;
    fake.min = fake.at[1] - 48;
    ck_assert_uint_eq(message_store_record_size(&store, fake.at[0]), 0);
}
END_TEST

START_TEST(query_by_key)
{
    int64_t offsets[64], time, offset;
    ck_assert_uint_eq(query("T", "k", 0, INT64_MAX, offsets), 0);
    append_to_log((struct spec){"T", 0, 0, "UNIQ_KEY\x01" "Aa\x02KEYS\x01one two  one", 1, 0, 1700000001500});
    append_to_log((struct spec){"T", 0, 1, "UNIQ_KEY\x01" "BB\x02KEYS\x01two", 1, 0, 1700000002500}); /* same hash as Aa */
    append_to_log((struct spec){"U", 0, 0, "KEYS\x01two", 1, MESSAGE_STORE_HOST_V6, 1700000003500});
    append_to_log((struct spec){"T", 1, 0, "KEYS\x01two", 1, 0, 1700000004500});
    dispatch_ok(0, 4);
    /* Invariant 26: hashes collide, keys do not. */
    ck_assert_uint_eq(query("T", "Aa", 0, INT64_MAX, offsets), 1);
    ck_assert_int_eq(offsets[0], fake.at[0]);
    ck_assert_uint_eq(query("T", "BB", 0, INT64_MAX, offsets), 1);
    ck_assert_int_eq(offsets[0], fake.at[1]);
    ck_assert_uint_eq(query("T", "one", 0, INT64_MAX, offsets), 1); /* named twice, found once */
    ck_assert_uint_eq(query("T", "two", 0, INT64_MAX, offsets), 3);
    ck_assert_int_eq(offsets[0], fake.at[0]);
    ck_assert_int_eq(offsets[1], fake.at[1]);
    ck_assert_int_eq(offsets[2], fake.at[3]);
    ck_assert_uint_eq(query("U", "two", 0, INT64_MAX, offsets), 1);
    ck_assert_uint_eq(query("T", "tw", 0, INT64_MAX, offsets), 0);
    ck_assert_uint_eq(query("T", "one two", 0, INT64_MAX, offsets), 0);
    ck_assert_uint_eq(query("T", "", 0, INT64_MAX, offsets), 0);
    /* By exact store time, not by whole seconds. */
    ck_assert_uint_eq(query("T", "two", 1700000001501, INT64_MAX, offsets), 2);
    ck_assert_uint_eq(query("T", "two", 1700000001500, 1700000001500, offsets), 1);
    ck_assert_uint_eq(query("T", "two", 0, 1700000004499, offsets), 2);
    ck_assert_uint_eq(query("T", "two", INT64_MIN, 0, offsets), 0);
    ck_assert_uint_eq(message_store_query(&store, SLICE_LITERAL("T"), SLICE_LITERAL("two"), 2, 0, INT64_MAX, offsets, &time, &offset), 2);
    ck_assert_int_eq(offsets[0], fake.at[1]); /* the newest two */
    ck_assert_int_eq(offset, fake.at[3]);
    ck_assert_int_eq(time, 1700000004500);
}
END_TEST

START_TEST(query_over_many_files)
{
    message_store_close(&store);
    config.index_entries = 64;
    open_store();
    recover(0);
    int64_t offsets[64];
    for (int64_t i = 0; i < 300; i++)
        append_to_log((struct spec){"T", 0, i, i % 10 == 0 ? "UNIQ_KEY\x01same\x02KEYS\x01ten" : "UNIQ_KEY\x01same", 1, 0, 1700000000000 + i * 1000});
    dispatch_ok(0, 300);
    ck_assert_uint_ge(store.index->count, 5);
    ck_assert_uint_eq(query("T", "ten", 0, INT64_MAX, offsets), 30);
    for (int i = 0; i < 30; i++)
        ck_assert_int_eq(offsets[i], fake.at[i * 10]);
    ck_assert_uint_eq(query("T", "same", 0, INT64_MAX, offsets), 64);
    ck_assert_int_eq(offsets[63], fake.at[299]);
    ck_assert_int_eq(offsets[0], fake.at[236]);
    ck_assert_uint_eq(query("T", "ten", 1700000100000, 1700000200000, offsets), 11);
    fake.min = fake.at[150] - 48;
    ck_assert_int_eq(message_store_trim(&store, fake.min), 0);
    ck_assert_uint_eq(query("T", "ten", 0, INT64_MAX, offsets), 15);
    ck_assert_int_eq(offsets[0], fake.at[150]);
}
END_TEST

/* ---- recovery ---- */

/* Cut back to every entry border and dispatched again: the same bytes each time. */
START_TEST(recovery_everywhere)
{
    fill(1200);
    dispatch_ok(0, 1200);
    uint64_t queues = sim_env_digest(&sim, "/s/consumequeue");
    for (int n = 1200; n >= 0; n -= n > 1150 || n < 30 ? 1 : 37) {
        int64_t position = n == 1200 ? fake.end : fake.at[n] - 48;
        message_store_close(&store);
        open_store();
        recover(position);
        ck_assert_int_eq(message_store_recovered_position(&store), n == 0 ? 0 : position);
        /* Nothing of it or behind is left. */
        if (n < 1200) {
            struct message_dispatch d;
            int64_t offsets[64], time, offset;
            ck_assert_int_eq(message_dispatch_decode(record_of(n), &d), 0);
            if ((d.sys_flag & MESSAGE_TRANSACTION_MASK) % MESSAGE_TRANSACTION_COMMIT == 0)
                ck_assert_int_eq(message_store_max_offset(&store, d.topic, d.queue_id), d.queue_offset);
            ck_assert_uint_eq(message_store_query(&store, d.topic, d.uniq_key, 64, 0, INT64_MAX, offsets, &time, &offset), 0);
        }
        dispatch_ok(n, 1200);
        ck_assert_uint_eq(sim_env_digest(&sim, "/s/consumequeue"), queues);
        check_all();
    }
}
END_TEST

START_TEST(rebuilt_from_nothing)
{
    fill(3000);
    dispatch_ok(0, 3000);
    ck_assert_int_eq(message_store_sync(&store), 0);
    uint64_t queues = sim_env_digest(&sim, "/s/consumequeue");
    /* The queues' directory is gone. */
    message_store_close(&store);
    static const char *const names[] = {"A/0", "A/1", "A/2", "B/0", "B/5", "%RETRY%g/0", "C|d/17"};
    for (int i = 0; i < 7; i++) {
        char path[100];
        snprintf(path, sizeof path, "/s/consumequeue/%s/00000000000000000000", names[i]);
        sim_env_remove(&sim, path);
    }
    open_store();
    recover(fake.end);
    ck_assert_int_eq(message_store_recovered_position(&store), 0);
    dispatch_ok(0, 3000);
    ck_assert_uint_eq(sim_env_digest(&sim, "/s/consumequeue"), queues);
    check_all();
}
END_TEST

START_TEST(index_directory_lost)
{
    fill(500);
    dispatch_ok(0, 500);
    uint64_t queues = sim_env_digest(&sim, "/s/consumequeue");
    char path[200];
    snprintf(path, sizeof path, "%s", store.index->files[0]->path);
    message_store_close(&store);
    sim_env_remove(&sim, path);
    ck_assert_int_eq(sim.env.ops->remove_dir(&sim.env, "/s/index"), 0);
    restart(fake.end);
    ck_assert_int_eq(message_store_recovered_position(&store), 0);
    ck_assert_uint_eq(sim_env_digest(&sim, "/s/consumequeue"), queues);
    check_all();
}
END_TEST

/* Broken units near a queue's end: dispatching resumes early enough, from an entry's begin. */
START_TEST(damaged_queue)
{
    fill(1500);
    dispatch_ok(0, 1500);
    uint64_t queues = sim_env_digest(&sim, "/s/consumequeue");
    for (int64_t back = 2; back < 12; back++) {
        struct consume_queue *queue = message_store_queue(&store, SLICE_LITERAL("B"), 5, false, NULL);
        uint64_t byte = (uint64_t)(queue->max_offset - back) * 20;
        if (byte / 4096 != (uint64_t)(queue->max_offset - 1) * 20 / 4096)
            break;
        memset(mapped_file_queue_at(&queue->files, byte, 20), back % 2 == 0 ? 0 : 0x5A, 20);
        message_store_close(&store);
        open_store();
        recover(fake.end);
        int64_t resume = message_store_recovered_position(&store);
        ck_assert_int_lt(resume, fake.end);
        int n = first_at(resume);
        ck_assert_int_eq(fake.at[n] - 48, resume);
        dispatch_ok(n, 1500);
        ck_assert_uint_eq(sim_env_digest(&sim, "/s/consumequeue"), queues);
        check_all();
    }
}
END_TEST

/* Dispatching resumes anywhere before what the queues hold. */
START_TEST(repeats_from_earlier)
{
    fill(800);
    dispatch_ok(0, 800);
    uint64_t all = sim_env_digest(&sim, "/s");
    for (int n = 0; n < 800; n += 61) {
        dispatch_ok(n, 800);
        ck_assert_uint_eq(sim_env_digest(&sim, "/s"), all);
    }
    check_all();
}
END_TEST

/* ---- deletion ---- */

START_TEST(delete_and_create_again)
{
    for (int64_t i = 0; i < 5; i++)
        append_to_log((struct spec){"T", (int32_t)(i % 2), i / 2, "TAGS\x01old", 1, 0, 1});
    append_to_log((struct spec){"Other", 0, 0, "", 1, 0, 1});
    dispatch_ok(0, 6);
    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("T")), 0);
    ck_assert(!sim_env_exists(&sim, "/s/consumequeue/T"));
    ck_assert_ptr_null(message_store_queue(&store, SLICE_LITERAL("T"), 0, false, NULL));
    ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("Other"), 0), 1);
    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("T")), 0);
    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("..")), ERROR_INVALID);
    ck_assert(sim_env_exists(&sim, "/s/consumequeue"));
    int deletion = fake.count;
    for (int64_t i = 0; i < 8; i++)
        append_to_log((struct spec){"T", 0, i, "TAGS\x01new", 1, 0, 1});
    dispatch_ok(6, fake.count);
    ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("T"), 0), 8);
    uint64_t all = sim_env_digest(&sim, "/s/consumequeue");

    /* A start that repeats from before the deletion, with all its units there: old ones are passed over, the deletion comes again. */
    message_store_close(&store);
    open_store();
    recover(fake.end);
    for (int from = 0; from <= 6; from++) {
        dispatch_ok(from, deletion);
        ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("T")), 0);
        dispatch_ok(deletion, fake.count);
        ck_assert_uint_eq(sim_env_digest(&sim, "/s/consumequeue"), all);
    }
    /* Killed anywhere, with any checkpoint before. */
    for (int done = 0; done <= fake.count; done++) {
        for (int checkpoint = 0; checkpoint <= done; checkpoint++) {
            message_store_close(&store);
            open_store();
            recover(0);
            for (int n = 0; n < done; n++) {
                if (n == deletion)
                    message_store_delete_topic(&store, SLICE_LITERAL("T"));
                dispatch_ok(n, n + 1);
            }
            message_store_close(&store);
            open_store();
            recover(checkpoint == fake.count ? fake.end : fake.at[checkpoint] - 48);
            for (int n = first_at(message_store_recovered_position(&store)); n < fake.count; n++) {
                if (n == deletion)
                    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("T")), 0);
                dispatch_ok(n, n + 1);
            }
            ck_assert_uint_eq(sim_env_digest(&sim, "/s/consumequeue"), all);
        }
    }
}
END_TEST

/* Killed while the files of a queue go one after another: what is left is made anew up to the deletion, which then comes again. With power (_i is odd) what was
 * removed may be there again. */
START_TEST(killed_while_a_topic_is_deleted)
{
    const int cut = 2300;
    for (int64_t i = 0; i < 2500; i++) /* three files */
        append_to_log((struct spec){"T", 0, i, "", 1, 0, 1});
    dispatch_ok(0, cut);
    ck_assert_int_eq(message_store_sync(&store), 0);
    dispatch_ok(cut, fake.count);
    sim_env_kill_at(&sim, SIM_UNLINK, (uint64_t)_i / 2 + 1);
    message_store_delete_topic(&store, SLICE_LITERAL("T"));
    ck_assert(sim.dead);
    message_store_close(&store);
    if (_i % 2 == 1)
        sim_env_power_cut(&sim);
    sim_env_restart(&sim);
    open_store();
    store.synced_position = fake.at[cut] - 48;
    recover(fake.at[cut] - 48);
    dispatch_ok(first_at(message_store_recovered_position(&store)), fake.count);
    ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("T"), 0), fake.count);
    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("T")), 0);
    ck_assert(!sim_env_exists(&sim, "/s/consumequeue/T"));
}
END_TEST

/* What one process deleted is durable once the next one has synced, though that one changed nothing. */
START_TEST(power_cut_behind_a_deletion)
{
    for (int64_t i = 0; i < 20; i++)
        append_to_log((struct spec){"T", 0, i, "", 1, 0, 1});
    dispatch_ok(0, fake.count);
    ck_assert_int_eq(message_store_sync(&store), 0);
    for (int i = 0; i < _i; i++)
        sim_env_chance(&sim, 2);
    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("T")), 0);
    sim_env_kill(&sim);
    message_store_close(&store);
    sim_env_restart(&sim);
    open_store();
    store.synced_position = fake.end;
    recover(fake.end);
    ck_assert_int_eq(message_store_sync(&store), 0);
    message_store_close(&store);
    sim_env_power_cut(&sim);
    sim_env_restart(&sim);
    open_store();
    recover(fake.end);
    ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("T"), 0), 0);
}
END_TEST

static void lose_files(const char *dir, int keep);
static void note_sum(void);

/* File systems make names that are gone durable whenever they like: by the next checkpoint it is durable, too, that sums of before say nothing. */
START_TEST(the_mark_of_a_deletion_is_durable)
{
    uint64_t size;
    for (int64_t i = 0; i < 20; i++)
        append_to_log((struct spec){i < 10 ? "T" : "U", 0, i % 10, "", 1, 0, 1});
    dispatch_ok(0, fake.count);
    ck_assert_int_eq(message_store_sync(&store), 0);
    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("T")), 0);
    note_sum();
    const uint8_t *bytes = sim_env_bytes(&sim, "/s/" QUEUE_SUM_FILE, &size);
    ck_assert_ptr_nonnull(bytes);
    ck_assert(sim_env_at_rest(&sim, "/s/" QUEUE_SUM_FILE, 0, size));
    ck_assert_int_eq(memcmp(sim_env_durable_bytes(&sim, "/s/" QUEUE_SUM_FILE, &size), bytes, size), 0);
    message_store_close(&store);
    sim_env_power_cut(&sim);
    sim_env_restart(&sim);
    lose_files("/s/consumequeue/T/", 0); /* as those do */
    open_store();
    store.synced_position = fake.end;
    recover(fake.end);
    ck_assert_int_eq(message_store_recovered_position(&store), fake.end);
}
END_TEST

/* A start dispatches again what stands before a deletion, which puts it into a queue anew, and dies before it comes to the deletion: nothing is lost. */
START_TEST(a_queue_that_a_start_fills_again_is_no_loss)
{
    for (int64_t i = 0; i < 20; i++)
        append_to_log((struct spec){i < 10 ? "T" : "U", 0, i % 10, "", 1, 0, 1});
    dispatch_ok(0, 10);
    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("T")), 0);
    dispatch_ok(10, 20);
    ck_assert_int_eq(message_store_sync(&store), 0);
    note_sum();
    for (int starts = 0; starts < 3; starts++) {
        message_store_close(&store);
        sim_env_restart(&sim);
        open_store();
        recover(fake.end);
        ck_assert(!store.lost_ends);
        ck_assert_int_eq(message_store_recovered_position(&store), fake.end);
        dispatch_ok(0, 3 + starts);
    }
    dispatch_ok(5, 10);
    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("T")), 0);
    dispatch_ok(10, 20);
    ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("T"), 0), 0);
    ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("U"), 0), 10);
}
END_TEST

/* ---- faults ---- */

START_TEST(full_disk)
{
    fill(3000);
    uint64_t expected;
    dispatch_ok(0, 3000);
    expected = sim_env_digest(&sim, "/s/consumequeue");
    message_store_close(&store);
    sim_env_close(&sim);
    sim_env_init(&sim, 4, NULL);
    open_store();
    recover(0);
    int waits = 0;
    for (int n = 0; n < 3000; n++) {
        sim.disk_bytes = sim.used_bytes;
        int rv = dispatch(n);
        while (rv == ERROR_NO_SPACE) {
            waits++;
            sim.disk_bytes += 4096;
            rv = dispatch(n);
        }
        ck_assert_int_eq(rv, 0);
    }
    ck_assert_int_gt(waits, 10);
    sim.disk_bytes = 0;
    ck_assert_uint_eq(sim_env_digest(&sim, "/s/consumequeue"), expected);
    check_all();
}
END_TEST

/* The process dies inside any call: a start with any checkpoint up to there completes everything. */
START_TEST(killed_in_any_call)
{
    fill(400);
    dispatch_ok(0, 400);
    uint64_t expected = sim_env_digest(&sim, "/s/consumequeue");
    for (uint64_t n = 1; n < 120; n++) {
        message_store_close(&store);
        sim_env_close(&sim);
        sim_env_init(&sim, 100 + n, NULL);
        open_store();
        recover(0);
        sim_env_kill_at(&sim, SIM_ALL, n);
        int done = 0;
        while (done < 400 && !sim.dead && dispatch(done) == 0) {
            done++;
            if (done % 100 == 0 && message_store_sync(&store) != 0)
                break;
        }
        bool died = sim.dead;
        message_store_close(&store);
        sim_env_restart(&sim);
        int checkpoint = done == 0 ? 0 : (int)sim_env_chance(&sim, (uint64_t)done);
        open_store();
        recover(fake.at[checkpoint] - 48);
        ck_assert_int_le(message_store_recovered_position(&store), fake.at[checkpoint] - 48);
        dispatch_ok(first_at(message_store_recovered_position(&store)), 400);
        ck_assert_uint_eq(sim_env_digest(&sim, "/s/consumequeue"), expected);
        check_all();
        if (!died)
            break;
    }
}
END_TEST

/* Power cuts: what the last finished sync covered needs no more than dispatching from there. */
START_TEST(power_cuts)
{
    fill(4000);
    int synced = 0, done = 0;
    for (int round = 0; round < 80 && synced < 4000; round++) {
        sim.writeback_per_mille = 30;
        int goal = done + (int)sim_env_chance(&sim, 120);
        while (done < goal && done < 4000)
            dispatch_ok(done, done + 1), done++;
        struct message_store_sync_job job;
        int at = done;
        ck_assert_int_eq(message_store_sync_begin(&store, &job), 0);
        /* Dispatching goes on while the job runs. */
        for (int i = 0; i < 20 && done < 4000; i++)
            dispatch_ok(done, done + 1), done++;
        bool cut_inside = sim_env_chance(&sim, 4) == 0;
        if (cut_inside)
            sim_env_kill_at(&sim, SIM_SYNC | SIM_SYNC_DIR, 1 + sim_env_chance(&sim, 6));
        message_store_sync_run(&job);
        if (job.result == 0)
            synced = at;
        message_store_sync_end(&store, &job);
        goal = done + (int)sim_env_chance(&sim, 200);
        while (!sim.dead && done < goal && done < 4000)
            dispatch_ok(done, done + 1), done++;
        sim.writeback_per_mille = 0;
        if (round % 3 == 2 && !sim.dead)
            continue;
        sim_env_power_cut(&sim);
        message_store_close(&store);
        sim_env_restart(&sim);
        open_store();
        int64_t position = synced == 4000 ? fake.end : fake.at[synced] - 48;
        store.synced_position = position;
        recover(position);
        done = first_at(message_store_recovered_position(&store));
        /* Nothing that was synced is lost: dispatching does not start earlier. */
        if (synced > 0)
            ck_assert_int_eq(done, synced);
    }
    dispatch_ok(done, 4000);
    ck_assert_int_gt(synced, 1000);
    check_all();
}
END_TEST

/* A process that is killed before its first sync leaves names that only the page cache holds; a sync of the next one covers them. */
START_TEST(names_of_a_killed_process)
{
    fill(400);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        message_store_close(&store);
        sim_env_close(&sim);
        sim_env_init(&sim, seed, NULL);
        config.index_entries = 150; /* several files */
        open_store();
        recover(0);
        dispatch_ok(0, 400);
        sim_env_kill(&sim);
        message_store_close(&store);
        sim_env_restart(&sim);
        open_store();
        recover(fake.end);
        ck_assert_int_eq(message_store_recovered_position(&store), fake.end);
        ck_assert_int_eq(message_store_sync(&store), 0);
        sim_env_power_cut(&sim);
        message_store_close(&store);
        sim_env_restart(&sim);
        open_store();
        store.synced_position = fake.end;
        recover(fake.end);
        ck_assert_int_eq(message_store_recovered_position(&store), fake.end);
        check_all();
    }
}
END_TEST

/* What a start cuts off because its records are lost is gone from the disk when the start is over: the process may die before its first sync, and
 * the next one does not know that only the page cache has the zeros. */
START_TEST(cut_after_lost_records_is_durable)
{
    fill(400);
    dispatch_ok(0, 400);
    ck_assert_int_eq(message_store_sync(&store), 0);
    message_store_close(&store);
    sim_env_power_cut(&sim);
    sim_env_restart(&sim);
    open_store();
    store.records_lost = true;
    store.synced_position = fake.at[300] - 48;
    recover(fake.at[300] - 48);
    for (int q = 0; q < 3; q++) {
        char path[80];
        uint64_t size = 0;
        uint64_t units = (uint64_t)message_store_max_offset(&store, SLICE_LITERAL("A"), q);
        snprintf(path, sizeof path, "/s/consumequeue/A/%d/00000000000000000000", q);
        const uint8_t *bytes = sim_env_durable_bytes(&sim, path, &size);
        ck_assert_ptr_nonnull(bytes);
        ck_assert_uint_gt(units, 10);
        ck_assert_uint_lt(units * 20, size);
        for (uint64_t at = units * 20; at < size; at++)
            ck_assert_uint_eq(bytes[at], 0);
    }
}
END_TEST

START_TEST(sync_fails)
{
    fill(100);
    dispatch_ok(0, 100);
    sim_env_fail_at(&sim, SIM_SYNC, 2, EIO, false);
    ck_assert_int_eq(message_store_sync(&store), ERROR_IO);
    ck_assert(store.sync_broken);
    ck_assert_int_eq(message_store_sync(&store), ERROR_IO);
    check_all();
}
END_TEST

/* A topic deleted, and log removed, while a sync job is out. */
START_TEST(sync_job_outlives_what_it_syncs)
{
    struct message_store_sync_job job;
    message_store_close(&store);
    config.index_entries = 64;
    open_store();
    recover(0);
    fill(1200);
    dispatch_ok(0, 1200);
    ck_assert_int_eq(message_store_sync_begin(&store, &job), 0);
    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("A")), 0);
    fake.min = fake.at[900] - 48;
    ck_assert_int_eq(message_store_trim(&store, fake.min), 0);
    message_store_sync_run(&job);
    ck_assert_int_eq(job.result, 0);
    message_store_sync_end(&store, &job);
    /* Little is dirty: little is done. */
    ck_assert_int_eq(message_store_sync(&store), 0);
    uint64_t calls = sim_env_calls(&sim, SIM_SYNC);
    ck_assert_int_eq(message_store_sync(&store), 0);
    ck_assert_uint_eq(sim_env_calls(&sim, SIM_SYNC), calls);
}
END_TEST

START_TEST(clean_stop_needs_no_rebuild)
{
    fill(300);
    dispatch_ok(0, 300);
    ck_assert_int_eq(message_store_sync(&store), 0);
    message_store_close(&store);
    sim_env_power_cut(&sim);
    sim_env_restart(&sim);
    open_store();
    ck_assert_uint_eq(load_u32(store.index->files[0]->map + index_file_used(store.index->files[0], 0) + 8), 1);
    recover(fake.end);
    ck_assert_int_eq(message_store_recovered_position(&store), fake.end);
    check_all();
}
END_TEST

static struct {
    bool resident;
    uint8_t *address;
    size_t size;
} pages_of_test;

static const struct env_ops *ops_of_sim;

static bool test_resident(struct env *env, void *address, size_t size)
{
    (void)env;
    pages_of_test.address = address;
    pages_of_test.size = size;
    return pages_of_test.resident;
}

static void test_populate(struct env *env, void *address, size_t size)
{
    (void)env;
    pages_of_test.address = address;
    pages_of_test.size = size;
}

/* What a look at a queue would have to wait for is said before, and stays mapped until it was read. */
START_TEST(cold_queues)
{
    struct message_store_pages pages = {0};
    struct env_ops ops = *sim.env.ops;
    const struct env_ops *before = sim.env.ops;
    const struct slice topic = SLICE_LITERAL("T");
    for (int64_t i = 0; i < 2500; i++)
        append_to_log((struct spec){"T", 0, i, "", 1, 0, 1});
    dispatch_ok(0, 2500);
    ck_assert(!message_store_is_cold(&store, topic, 0, 0, &pages)); /* this env cannot tell */
    ops.resident = test_resident;
    ops.populate = test_populate;
    sim.env.ops = &ops;

    pages_of_test.resident = true;
    ck_assert(!message_store_is_cold(&store, topic, 0, 0, &pages));
    ck_assert_ptr_null(pages.file);
    ck_assert_uint_eq(pages_of_test.size, 800 * 20); /* what one pull looks at at most */
    uint8_t *first = pages_of_test.address;
    ck_assert(!message_store_is_cold(&store, topic, 0, 900, &pages));
    ck_assert_ptr_eq(pages_of_test.address, first + 900 * 20);
    ck_assert_uint_eq(pages_of_test.size, 100 * 20); /* to the end of its file */

    pages_of_test = (typeof(pages_of_test)){0};
    ck_assert(!message_store_is_cold(&store, topic, 0, -1, &pages));
    ck_assert(!message_store_is_cold(&store, topic, 0, 2500, &pages));
    ck_assert(!message_store_is_cold(&store, topic, 1, 0, &pages));
    ck_assert(!message_store_is_cold(&store, topic, 0, 2400, &pages)); /* just appended */
    ck_assert_ptr_null(pages_of_test.address);

    ck_assert(message_store_is_cold(&store, topic, 0, 1100, &pages));
    ck_assert_int_eq(message_store_delete_topic(&store, topic), 0);
    message_store_read_pages(&pages);
    ck_assert_uint_eq(pages_of_test.size, 900 * 20);
    ck_assert_uint_ne(pages_of_test.address[11], 0); /* still mapped: the first unit's size */
    message_store_release_pages(&pages);
    ck_assert_ptr_null(pages.file);
    sim.env.ops = before;
}
END_TEST

static bool maps_fail;
static void *test_map(struct env *env, struct env_file *file, size_t size, bool writable, int *error_number)
{
    if (maps_fail) {
        *error_number = ENOMEM;
        return NULL;
    }
    return ops_of_sim->map(env, file, size, writable, error_number);
}

/* With more files than may be mapped at a time everything works, and what was unmapped is what it was. */
START_TEST(few_mappings)
{
    struct mapped_file_pool *pool = &store.queues->pool;
    struct env_ops ops = *sim.env.ops;
    ops_of_sim = sim.env.ops;
    fill(6000);
    pool->max = 3;
    for (int n = 0; n < 6000; n += 100) {
        dispatch_ok(n, n + 100);
        ck_assert_uint_le(pool->mapped, 3);
        if (n == 3000) {
            ck_assert_int_eq(message_store_sync(&store), 0); /* pins more than that */
            ck_assert_uint_gt(pool->mapped, 3);
            mapped_file_pool_age(pool, 100);
            mapped_file_pool_age(pool, 100);
        }
    }
    check_all();
    ck_assert_uint_le(pool->mapped, 3);
    uint64_t all = sim_env_digest(&sim, "/s/consumequeue");
    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("B")), 0);
    message_store_close(&store);
    open_store();
    recover(0);
    dispatch_ok(0, fake.count); /* with all of them mapped */
    ck_assert_uint_gt(store.queues->pool.mapped, 3);
    ck_assert_uint_eq(sim_env_digest(&sim, "/s/consumequeue"), all);

    /* What nobody uses goes by and by: the first look forgives. */
    mapped_file_pool_age(&store.queues->pool, 100);
    mapped_file_pool_age(&store.queues->pool, 100);
    ck_assert_uint_eq(store.queues->pool.mapped, 0);
    check_all();

    /* No memory for a mapping is no end: later again. */
    mapped_file_pool_age(&store.queues->pool, 100);
    mapped_file_pool_age(&store.queues->pool, 100);
    ops.map = test_map;
    sim.env.ops = &ops;
    fill(50);
    maps_fail = true;
    ck_assert_int_eq(dispatch(6000), ERROR_NO_SPACE);
    maps_fail = false;
    dispatch_ok(6000, fake.count);
    sim.env.ops = ops_of_sim;
    check_all();
}
END_TEST

START_TEST(many_queues)
{
    char topic[32];
    for (int i = 0; i < 1500; i++) {
        snprintf(topic, sizeof topic, "topic-%d", i / 8);
        append_to_log((struct spec){topic, i % 8, 0, "", 1, 0, 1});
    }
    dispatch_ok(0, 1500);
    ck_assert_uint_eq(sim.open_files, 0);
    ck_assert_uint_le(sim.used_bytes, 1501 * 4096); /* and the page of the sums */
    restart(fake.end);
    ck_assert_int_eq(message_store_recovered_position(&store), fake.end);
    for (int i = 0; i < 1500; i += 7) {
        snprintf(topic, sizeof topic, "topic-%d", i / 8);
        ck_assert_int_eq(message_store_max_offset(&store, slice_of_text(topic), i % 8), 1);
    }
    message_store_reset_append_offsets(&store);
    ck_assert_int_eq(message_store_queue(&store, SLICE_LITERAL("topic-0"), 0, false, NULL)->append_offset, 1);
}
END_TEST

/* ---- queues that lose their ends while the node is down ---- */

#define LONG_QUEUE "/s/consumequeue/Z/3/"

enum loss { LOSS_NEWEST_UNITS, LOSS_LAST_UNIT, LOSS_TRUNCATED, LOSS_LAST_FILE, LOSS_TWO_FILES, LOSS_OLDER_PAGE, LOSS_QUEUE, LOSS_TOPIC, LOSSES };

static void lose_files(const char *dir, int keep)
{
    const char *path;
    while ((path = sim_env_file(&sim, dir, (uint64_t)keep)) != NULL) {
        char copy[200];
        snprintf(copy, sizeof copy, "%s", path);
        sim_env_remove(&sim, copy);
    }
}

/* The long queue has units 0 to 2,299 in three files. */
static void lose(enum loss loss)
{
    static const uint8_t zeros[20 * 1000];
    struct env_file *file;

    switch (loss) {
    case LOSS_NEWEST_UNITS:
        sim_env_put(&sim, LONG_QUEUE "00000000000000040000", 200 * 20, zeros, 100 * 20);
        break;
    case LOSS_LAST_UNIT:
        sim_env_put(&sim, "/s/consumequeue/A/1/00000000000000000000", 2 * 20, zeros, 20);
        break;
    case LOSS_TRUNCATED:
        ck_assert_int_eq(env_open(&sim.env, LONG_QUEUE "00000000000000040000", ENV_WRITE, &file), 0);
        ck_assert_int_eq(sim.env.ops->truncate(&sim.env, file, 4096), 0);
        env_close(&sim.env, file);
        break;
    case LOSS_LAST_FILE:
        lose_files(LONG_QUEUE, 2);
        break;
    case LOSS_TWO_FILES:
        lose_files(LONG_QUEUE, 1);
        break;
    case LOSS_OLDER_PAGE: /* what stood in it when the queue was shorter */
        sim_env_put(&sim, LONG_QUEUE "00000000000000040000", 250 * 20, zeros, 50 * 20);
        break;
    case LOSS_QUEUE:
        lose_files(LONG_QUEUE, 0);
        ck_assert_int_eq(sim.env.ops->remove_dir(&sim.env, "/s/consumequeue/Z/3"), 0);
        break;
    default:
        lose_files("/s/consumequeue/A/", 0);
        for (int i = 0; i < 3; i++) {
            char dir[40];
            snprintf(dir, sizeof dir, "/s/consumequeue/A/%d", i);
            sim.env.ops->remove_dir(&sim.env, dir);
        }
        ck_assert_int_eq(sim.env.ops->remove_dir(&sim.env, "/s/consumequeue/A"), 0);
    }
}

static void note_sum(void)
{
    struct message_store_sync_job job;
    message_store_sum_begin(&store, &job);
    message_store_sum_run(&job);
}

/* Seen by a start, also when what was noted last is of an earlier or later position: everything is made anew, and nobody gets an offset twice. */
START_TEST(lost_ends_are_seen)
{
    const enum loss loss = (enum loss)(_i / 4);
    const bool power = (_i & 1) != 0, more = (_i & 2) != 0;
    const char *topics[] = {"A", "A", "A", "Z"};

    for (int64_t i = 0; i < 2300; i++) {
        append_to_log((struct spec){"Z", 3, i, "TAGS\x01z", 1, 0, 1});
        if (i % 800 < 3)
            append_to_log((struct spec){"A", (int32_t)(i % 800), i / 800, "TAGS\x01" "a", 1, 0, 1});
    }
    const int count = fake.count;
    dispatch_ok(0, 1000);
    ck_assert_int_eq(message_store_sync(&store), 0);
    dispatch_ok(1000, count);
    ck_assert_int_eq(message_store_sync(&store), 0);
    const int64_t position = fake.end;
    if (more) { /* ... and what a start does not take for dispatched */
        append_to_log((struct spec){"Z", 3, 2300, "", 1, 0, 1});
        append_to_log((struct spec){"New", 0, 0, "", 1, 0, 1});
        dispatch_ok(count, fake.count);
        note_sum();
    }
    message_store_close(&store);
    if (power) {
        sim_env_power_cut(&sim);
        sim_env_restart(&sim);
    }
    lose(loss);
    open_store();
    recover(position);
    ck_assert_int_eq(message_store_recovered_position(&store), 0);
    dispatch_ok(0, count);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(message_store_max_offset(&store, slice_of_text(topics[i]), i), i < 3 ? 3 : 2300);
    struct message_dispatch d;
    struct consume_queue_unit unit;
    for (int n = 0; n < count; n++) {
        ck_assert_int_eq(message_dispatch_decode(record_of(n), &d), 0);
        ck_assert(consume_queue_get(message_store_queue(&store, d.topic, d.queue_id, false, NULL), d.queue_offset, &unit));
        ck_assert_int_eq(unit.physical_offset, fake.at[n]);
    }
    /* Noted again at once: a second loss is seen, too. */
    note_sum();
    message_store_close(&store);
    lose(LOSS_LAST_FILE);
    open_store();
    recover(position);
    ck_assert_int_eq(message_store_recovered_position(&store), 0);
}
END_TEST

/* What was lost reaches back before where the log begins: the queue begins with the first message that the log still has. Also when the unit in front of what was lost
 * is damaged (_i is 1) so that its message seems to reach into the log. */
START_TEST(lost_ends_reach_back_before_the_log)
{
    static const uint8_t zeros[20 * 1000];
    fill(1500);
    dispatch_ok(0, 1500);
    fake.min = fake.at[900] - 48;
    ck_assert_int_eq(message_store_trim(&store, fake.min), 0);
    ck_assert_int_eq(message_store_sync(&store), 0);
    const int64_t max = message_store_max_offset(&store, SLICE_LITERAL("B"), 5), min = message_store_min_offset(&store, SLICE_LITERAL("B"), 5);
    ck_assert_int_gt(min, 10);
    ck_assert_int_lt(max, 1000);
    message_store_close(&store);
    sim_env_put(&sim, "/s/consumequeue/B/5/00000000000000000000", (uint64_t)(min - 5) * 20, zeros, (size_t)(max - min + 5) * 20);
    if (_i == 1)
        sim_env_corrupt(&sim, "/s/consumequeue/B/5/00000000000000000000", (uint64_t)(min - 6) * 20 + 9, 1 << 4);
    open_store();
    recover(fake.end);
    ck_assert_int_eq(message_store_recovered_position(&store), fake.min);
    dispatch_ok(first_at(fake.min), 1500);
    ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("B"), 5), max);
    ck_assert_int_eq(message_store_min_offset(&store, SLICE_LITERAL("B"), 5), min);
    ck_assert_int_eq(get("B", 5, min, 32, NULL), GET_MESSAGE_FOUND);
    ck_assert_int_eq(result.items[0].queue_offset, min);
    ck_assert_int_eq(get("B", 5, min - 1, 32, NULL), GET_MESSAGE_OFFSET_TOO_SMALL);
}
END_TEST

/* One queue is damaged: only what it lacks is dispatched again, unless another one lost something. */
START_TEST(damage_hides_no_lost_end)
{
    static const uint8_t zeros[20];
    fill(1500);
    dispatch_ok(0, 1500);
    ck_assert_int_eq(message_store_sync(&store), 0);
    const uint64_t near_end = (uint64_t)message_store_max_offset(&store, SLICE_LITERAL("B"), 5) - 3;
    message_store_close(&store);
    struct sim_copy *copy = sim_env_copy(&sim);
    for (int i = 0; i < 3; i++) {
        sim_env_put_back(&sim, copy);
        sim_env_put(&sim, "/s/consumequeue/B/5/00000000000000000000", near_end * 20, zeros, 20);
        if (i == 1)
            sim_env_put(&sim, "/s/consumequeue/B/0/00000000000000000000", (near_end - 3) * 20, zeros, 20);
        if (i == 2)
            sim_env_remove(&sim, "/s/consumequeue/A/0/00000000000000000000");
        open_store();
        ck_assert_ptr_nonnull(queue_sums_newest(&store.sums, fake.end, fake.end));
        recover(fake.end);
        if (i == 0) {
            ck_assert_int_lt(message_store_recovered_position(&store), fake.end);
            ck_assert_int_gt(message_store_recovered_position(&store), fake.end / 2);
        } else {
            ck_assert_int_eq(message_store_recovered_position(&store), 0);
        }
        dispatch_ok(first_at(message_store_recovered_position(&store)), 1500);
        check_all();
        if (i < 2)
            message_store_close(&store);
    }
    sim_env_copy_free(copy);
}
END_TEST

/* Queues come and go, the process is killed, the power fails: what is as it was noted is not made anew. */
static int clean_rounds, compared_starts;

static void has_files(void *any, struct consume_queue *queue)
{
    *(bool *)any = *(bool *)any || queue->files.count > 0;
}

static void is_no_loss(int64_t checkpoint)
{
    message_store_close(&store);
    sim_env_restart(&sim);
    open_store();
    bool any = false; /* else all is made anew anyhow */
    message_store_each_queue(&store, has_files, &any);
    const struct queue_sum *then = queue_sums_newest(&store.sums, 0, checkpoint);
    compared_starts += then != NULL && then->count > 0;
    store.synced_position = checkpoint;
    recover(checkpoint);
    if (any)
        ck_assert_msg(message_store_recovered_position(&store) == checkpoint, "round %d, position %lld: made anew from %lld on", clean_rounds,
                      (long long)checkpoint, (long long)message_store_recovered_position(&store));
    clean_rounds++;
}

START_TEST(what_is_whole_is_not_made_anew)
{
    static const char *const topics[] = {"T", "U", "V"};
    int64_t offsets[3][2] = {{0}};
    int deleted_at[400];
    config.index_enable = false; /* it may have to be made anew */
    for (int n = 0; n < 400; n++) {
        int t = (int)sim_env_chance(&sim, 3), q = (int)sim_env_chance(&sim, 2);
        deleted_at[n] = sim_env_chance(&sim, 12) == 0 ? (int)sim_env_chance(&sim, 3) : -1; /* in front of that message */
        if (deleted_at[n] >= 0)
            offsets[deleted_at[n]][0] = offsets[deleted_at[n]][1] = 0;
        append_to_log((struct spec){topics[t], q, offsets[t][q]++, "", 1, 0, 1});
    }
    append_to_log((struct spec){"always", 0, 0, "", 1, 0, 1}); /* some queue is there at any time */
    for (int round = 0; round < 600; round++) {
        message_store_close(&store);
        sim_env_restart(&sim);
        sim_env_close(&sim);
        sim_env_init(&sim, 100 + (uint64_t)round, NULL);
        open_store();
        recover(0);
        int64_t checkpoint = 0;
        int done = 0, starts = 0;
        sim_env_kill_at(&sim, SIM_CHANGES, 1 + sim_env_chance(&sim, 120));
        while (done < 400 && starts < 4) {
            if (deleted_at[done] >= 0)
                message_store_delete_topic(&store, slice_of_text(topics[deleted_at[done]]));
            if (!sim.dead && dispatch(done) != 0)
                ck_assert(sim.dead);
            done++;
            if (!sim.dead && sim_env_chance(&sim, 8) == 0) {
                int64_t position = store.dispatched_offset;
                if (sim_env_chance(&sim, 2) == 0)
                    note_sum();
                else
                    message_store_sync(&store);
                if (!sim.dead)
                    checkpoint = position;
            }
            if (sim.dead || sim_env_chance(&sim, 100) == 0) {
                is_no_loss(checkpoint);
                done = first_at(message_store_recovered_position(&store));
                starts++;
                sim_env_kill_at(&sim, SIM_CHANGES, 1 + sim_env_chance(&sim, 120));
            }
        }
    }
    message_store_close(&store);
    sim_env_restart(&sim);
    open_store();
    ck_assert_int_gt(compared_starts, clean_rounds / 3);
}
END_TEST

/* ---- damaged units ---- */

#define UNITS_OF_A0 "/s/consumequeue/A/0/00000000000000000000"

static void put_unit(int64_t offset, struct consume_queue_unit unit)
{
    uint8_t bytes[CONSUME_QUEUE_UNIT_SIZE];
    consume_queue_encode(bytes, &unit);
    sim_env_put(&sim, UNITS_OF_A0, (uint64_t)offset * CONSUME_QUEUE_UNIT_SIZE, bytes, sizeof bytes);
}

static struct consume_queue_unit unit_at(const char *topic, int32_t id, int64_t offset)
{
    struct consume_queue_unit unit = {0};
    consume_queue_get(message_store_queue(&store, slice_of_text(topic), id, false, NULL), offset, &unit);
    return unit;
}

/* What the scrub does, a piece of some records at a time. */
static uint32_t compare(int from, int to)
{
    struct message_store_compare job = {0};
    uint32_t mended = 0;
    for (int n = from; n < to;) {
        for (int i = 0; i < 37 && n < to; i++, n++) {
            if (fake.at[n] >= fake.min)
                message_store_compare_add(&job, (uint64_t)n, record_of(n));
        }
        message_store_compare_begin(&store, &job);
        message_store_compare_run(&sim.env, &job);
        mended += message_store_compare_end(&store, &job);
    }
    message_store_compare_free(&job);
    return mended;
}

/* Every message of A 0 is served right, or none from the damaged one on: never another one, never fewer. Returns how many were. */
static int64_t served(const struct message_filter *filter)
{
    int64_t at = 0, max = message_store_max_offset(&store, SLICE_LITERAL("A"), 0);
    while (at < max) {
        enum get_message_status status = get("A", 0, at, 32, filter);
        if (status == GET_MESSAGE_DAMAGED)
            break;
        ck_assert(status == GET_MESSAGE_FOUND || (filter != NULL && status == GET_MESSAGE_NO_MATCHED_MESSAGE));
        for (uint32_t i = 0; i < result.count; i++) {
            struct slice record = slice_of(fake.bytes + result.items[i].physical_offset, result.items[i].size);
            must(message_record_is(record, SLICE_LITERAL("A"), 0, result.items[i].queue_offset, result.items[i].physical_offset));
            must(filter != NULL || result.items[i].queue_offset == at + i);
        }
        ck_assert_int_gt(result.next_begin_offset, at);
        at = result.next_begin_offset;
    }
    return at;
}

START_TEST(damaged_units_are_not_served)
{
    fill(3000);
    dispatch_ok(0, 3000);
    const int64_t max = message_store_max_offset(&store, SLICE_LITERAL("A"), 0), bad = 150;
    const struct consume_queue_unit right = unit_at("A", 0, bad), next = unit_at("A", 0, bad + 1), other = unit_at("B", 0, bad);
    const struct consume_queue_unit wrong[] = {
        {0, 0, 0},
        {right.physical_offset, 0, right.tags_code},
        {right.physical_offset, -right.size, right.tags_code},
        {right.physical_offset + 1, right.size, right.tags_code},
        {right.physical_offset, right.size + 1, right.tags_code},
        {right.physical_offset ^ (1ll << 40), right.size, right.tags_code},
        {-right.physical_offset, right.size, right.tags_code},
        {INT64_MAX - 10, INT32_MAX, 0},
        {0, INT32_MAX, 0}, /* padding */
        next,
        unit_at("A", 0, bad - 1),
        other, /* of another queue, with the same number */
    };
    ck_assert_int_gt(max, 300);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        message_store_close(&store);
        put_unit(bad, wrong[i]);
        open_store();
        recover(fake.end);
        ck_assert_int_eq(message_store_recovered_position(&store), fake.end);
        ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("A"), 0), max);
        ck_assert_msg(served(NULL) == bad, "damage %zu: served up to %lld", i, (long long)served(NULL));
        ck_assert(store.doubt.any);
        ck_assert_str_eq(store.doubt.topic, "A");
        ck_assert_int_eq(store.doubt.queue_offset, bad);
        ck_assert_int_le(store.doubt.position, right.physical_offset);
        ck_assert_int_eq(message_store_store_time(&store, SLICE_LITERAL("A"), 0, bad), -1);
        struct message_dispatch d;
        for (int64_t k = bad - 2; k <= bad + 2; k++) {
            struct consume_queue_unit of_k = unit_at("A", 0, k == bad ? k + 1 : k);
            message_dispatch_decode(slice_of(fake.bytes + of_k.physical_offset, (size_t)of_k.size), &d);
            int64_t found = message_store_offset_by_time(&store, SLICE_LITERAL("A"), 0, d.store_timestamp_ms);
            ck_assert(found == d.queue_offset || (found == bad && d.queue_offset == bad + 1)); /* never one too late */
        }
        ck_assert_uint_eq(compare(0, fake.count), 1);
        ck_assert(!store.doubt.any);
        ck_assert_uint_eq(store.mended_units, 1);
        check_all();
        ck_assert_int_eq(served(NULL), max);
        ck_assert_uint_eq(compare(0, fake.count), 0);
        /* And on the disk: another process finds it right. */
        ck_assert_int_eq(message_store_sync(&store), 0);
        restart(fake.end);
        ck_assert_int_eq(served(NULL), max);
    }
}
END_TEST

static bool wants(void *context, int64_t code)
{
    return code == *(int64_t *)context;
}

/* A wrong tags code alone must not make a reader pass the message over. */
START_TEST(tags_codes_are_believed_when_compared)
{
    fill(2000);
    dispatch_ok(0, 2000);
    const int64_t max = message_store_max_offset(&store, SLICE_LITERAL("A"), 0), bad = 77;
    struct consume_queue_unit unit = unit_at("A", 0, bad);
    int64_t code = unit.tags_code;
    const struct message_filter filter = {&code, wants, NULL, 0};
    message_store_close(&store);
    unit.tags_code ^= 1 << 7;
    put_unit(bad, unit);
    open_store();
    recover(fake.end);
    ck_assert_int_eq(served(&filter), bad);
    ck_assert_uint_eq(compare(0, fake.count), 1);
    ck_assert_int_eq(served(&filter), max);
    struct consume_queue *queue = message_store_queue(&store, SLICE_LITERAL("A"), 0, false, NULL);
    for (int64_t at = 0; at < max; at++)
        ck_assert(consume_queue_trusts(queue, at)); /* no record has to be read for them any more */
    fake.unreadable = true;
    ck_assert_int_eq(served(&filter), max);
    fake.unreadable = false;
}
END_TEST

static void cut_file(const char *path, uint64_t size)
{
    struct env_file *file;
    ck_assert_int_eq(env_open(&sim.env, path, ENV_WRITE, &file), 0);
    ck_assert_int_eq(sim.env.ops->truncate(&sim.env, file, size), 0);
    env_close(&sim.env, file);
}

/* A start dispatches again what stands before a deletion, and its queues are those of the topic that was made behind it. */
START_TEST(nothing_is_compared_while_queues_are_ahead)
{
    for (int64_t i = 0; i < 200; i++)
        append_to_log((struct spec){"A", 0, i % 100, "", 1, 0, 1700000000000 + i});
    dispatch_ok(0, 100);
    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("A")), 0);
    dispatch_ok(100, 200);
    message_store_close(&store);
    open_store();
    recover(fake.end);
    fake.end = store.dispatched_offset = fake.at[10]; /* as far as it has come */
    ck_assert_uint_eq(compare(0, 10), 0);
    ck_assert_int_eq(unit_at("A", 0, 5).physical_offset, fake.at[105]);
}
END_TEST

/* Lost files between others are empty ones, and are filled. */
START_TEST(lost_files_are_filled)
{
    for (int64_t i = 0; i < 3 * CQ_UNITS + 10; i++)
        append_to_log((struct spec){"A", 0, i, "TAGS\x01x", 1, 0, 1700000000000 + i});
    dispatch_ok(0, fake.count);
    for (int kind = 0; kind < 3; kind++) {
        message_store_close(&store);
        const char *path = "/s/consumequeue/A/0/00000000000000020000";
        if (kind == 0)
            sim_env_remove(&sim, path);
        else
            cut_file(path, kind == 1 ? 0 : 777);
        open_store();
        recover(fake.end);
        ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("A"), 0), fake.count);
        ck_assert_int_eq(served(NULL), kind == 2 ? CQ_UNITS + 777 / 20 + 1 : CQ_UNITS); /* of one the tags code is cut */
        ck_assert_uint_eq(compare(0, fake.count), kind == 2 ? CQ_UNITS - 777 / 20 : CQ_UNITS);
        ck_assert_int_eq(served(NULL), fake.count);
        ck_assert_int_eq(message_store_sync(&store), 0);
    }
}
END_TEST

static uint64_t since(void *context, struct slice topic)
{
    (void)topic;
    return *(uint64_t *)context;
}

/* Messages of a topic that was deleted do not come back into the one that was made anew. */
START_TEST(earlier_topics_are_not_compared)
{
    uint64_t first = 500;
    store.topic_since = since;
    store.topic_since_context = &first;
    for (int64_t i = 0; i < 1000; i++) {
        char properties[32];
        snprintf(properties, sizeof properties, "UNIQ_KEY\x01U%d", (int)i);
        append_to_log((struct spec){"A", 0, i % 500, properties, (uint32_t)(i / 500), 0, 1700000000000 + i});
    }
    dispatch_ok(0, 500);
    ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("A")), 0);
    dispatch_ok(500, 1000);
    message_store_close(&store);
    put_unit(50, (struct consume_queue_unit){0, 0, 0});
    open_store();
    recover(fake.end);
    store.topic_since = since;
    store.topic_since_context = &first;
    ck_assert_uint_eq(compare(0, 500), 0);
    ck_assert_int_eq(unit_at("A", 0, 50).size, 0);
    ck_assert_uint_eq(compare(500, 1000), 1);
    check_all_from(500);
    /* Nor when nobody can tell when it was made, as long as the later one's units are right. */
    store.topic_since = NULL;
    ck_assert_uint_eq(compare(0, 1000), 0);
    check_all_from(500);
    /* A block of the earlier one comes back. */
    put_unit(60, (struct consume_queue_unit){fake.at[60], (int32_t)record_of(60).size, 0});
    ck_assert_uint_eq(compare(0, 1000), 1);
    check_all_from(500);
}
END_TEST

/* The last unit says where the next record may lie; also when its message is no longer retained. */
START_TEST(a_damaged_last_unit_stops_nobody)
{
    fill(700);
    dispatch_ok(0, 700);
    if (_i == 1)
        fake.min = fake.end;
    const int64_t last = message_store_max_offset(&store, SLICE_LITERAL("A"), 0) - 1;
    struct consume_queue_unit unit = unit_at("A", 0, last);
    message_store_close(&store);
    unit.size |= 1 << 20;
    put_unit(last, unit);
    open_store();
    recover(fake.end);
    fill(300);
    dispatch_ok(700, 1000);
    compare(0, fake.count);
    check_all_from(_i == 1 ? 700 : 0);
}
END_TEST

/* When a delayed message is due was said by the levels of when it was written. */
START_TEST(other_delay_levels_are_no_damage)
{
    static const int64_t others[] = {0, 2000, 60000, 3600000};
    for (int i = 0; i < 500; i++)
        append_to_log((struct spec){"SCHEDULE_TOPIC_XXXX", 1, i, i % 9 == 0 ? "TAGS\x01x" : "DELAY\x01" "2", 1, 0, 1700000000123 + i});
    dispatch_ok(0, fake.count);
    const struct consume_queue_unit before = unit_at("SCHEDULE_TOPIC_XXXX", 1, 100);
    ck_assert_int_eq(before.tags_code, 1700000000123 + 100 + 5000);
    config.delay_level_ms = others;
    config.delay_levels = 3;
    message_store_close(&store);
    open_store();
    recover(fake.end);
    struct consume_queue *queue = message_store_queue(&store, SLICE_LITERAL("SCHEDULE_TOPIC_XXXX"), 1, false, NULL);
    struct consume_queue_unit unit;
    for (int64_t at = 0; at < 500; at += 3)
        ck_assert(message_store_unit(&store, queue, at, &unit));
    ck_assert_uint_eq(compare(0, fake.count), 0);
    ck_assert(!store.doubt.any);
    ck_assert_int_eq(unit_at("SCHEDULE_TOPIC_XXXX", 1, 100).tags_code, before.tags_code);
    /* Another bit of it is. */
    for (int bit = 0; bit < 64; bit++) {
        message_store_close(&store);
        sim_env_corrupt(&sim, "/s/consumequeue/SCHEDULE_TOPIC_XXXX/1/00000000000000000000", 100 * 20 + 12 + (uint64_t)bit / 8, (uint8_t)(1 << bit % 8));
        open_store();
        recover(fake.end);
        queue = message_store_queue(&store, SLICE_LITERAL("SCHEDULE_TOPIC_XXXX"), 1, false, NULL);
        ck_assert(!message_store_unit(&store, queue, 100, &unit));
        ck_assert_uint_eq(compare(0, fake.count), 1);
        ck_assert_int_eq(unit_at("SCHEDULE_TOPIC_XXXX", 1, 100).tags_code, 1700000000123 + 100 + 60000);
    }
}
END_TEST

/* The log is applied again from before where the queues end. */
START_TEST(units_ahead_of_a_start_are_no_damage)
{
    fill(2000);
    dispatch_ok(0, 2000);
    restart(fake.end);
    const int64_t end = fake.end, max = message_store_max_offset(&store, SLICE_LITERAL("A"), 0);
    fake.end = fake.at[1000] - 48;
    int64_t at = 0;
    while (get("A", 0, at, 32, NULL) == GET_MESSAGE_FOUND)
        at = result.next_begin_offset;
    ck_assert_int_eq(result.status, GET_MESSAGE_OFFSET_OVERFLOW_ONE); /* waits there */
    ck_assert_int_gt(at, 100);
    ck_assert_int_lt(at, max);
    ck_assert(!store.doubt.any);
    fake.end = end;
    ck_assert_int_eq(served(NULL), max);
}
END_TEST

/* Where units are believed nobody has read records ahead: those that are not are for the next pull. */
START_TEST(old_records_wait_for_who_reads_them_ahead)
{
    fill(3000);
    dispatch_ok(0, 3000);
    config.hot_bytes = 1;
    restart(fake.end);
    struct consume_queue *queue = message_store_queue(&store, SLICE_LITERAL("A"), 0, false, NULL);
    int64_t none = 1;
    const struct message_filter filter = {&none, wants, NULL, 10};
    compare(0, 1000);
    const int64_t believed = queue->compared_to;
    ck_assert_int_gt(believed, 100);
    ck_assert_int_eq(get("A", 0, believed - 50, 32, &filter), GET_MESSAGE_NO_MATCHED_MESSAGE);
    ck_assert_int_eq(result.next_begin_offset, believed);
    ck_assert_int_eq(get("A", 0, believed, 32, &filter), GET_MESSAGE_NO_MATCHED_MESSAGE);
    ck_assert_int_eq(result.next_begin_offset, believed + 10);
    ck_assert_int_eq(queue->compared_to, believed + 10);
}
END_TEST

/* The queue seems to end behind units that are copies of earlier ones: the start begins again at what those name, finds units in its way, and makes them anew. */
START_TEST(units_of_earlier_records_at_the_seeming_end)
{
    struct consume_queue_unit units[92] = {0}; /* the last ones stay zeros */
    for (int64_t i = 0; i < 2 * CQ_UNITS + 700; i++) {
        char properties[64];
        snprintf(properties, sizeof properties, "UNIQ_KEY\x01U%d\x02TAGS\x01x", (int)i);
        append_to_log((struct spec){"A", 0, i, properties, (uint32_t)(i % 50), 0, 1700000000000 + i});
    }
    dispatch_ok(0, fake.count);
    ck_assert_int_eq(message_store_sync(&store), 0);
    const int64_t from = 2 * CQ_UNITS - 28;
    for (int64_t i = 0; i < 79; i++)
        units[i] = unit_at("A", 0, from - 300 + i);
    message_store_close(&store);
    for (int64_t i = 0; i < 92; i++) {
        uint8_t bytes[CONSUME_QUEUE_UNIT_SIZE];
        char path[64];
        int64_t file = (from + i) / CQ_UNITS * CQ_UNITS;
        snprintf(path, sizeof path, "/s/consumequeue/A/0/%020lld", (long long)file * CONSUME_QUEUE_UNIT_SIZE);
        consume_queue_encode(bytes, &units[i]);
        sim_env_put(&sim, path, (uint64_t)(from + i - file) * CONSUME_QUEUE_UNIT_SIZE, bytes, sizeof bytes);
    }
    restart(fake.end);
    ck_assert_int_lt(store.recovered_position, fake.at[from]);
    ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("A"), 0), fake.count);
    ck_assert_uint_eq(compare(0, fake.count), 0);
    check_all();
}
END_TEST

static uint64_t queues_before; /* a digest: nothing is cut before the disk was told */
static int64_t told;

static int tell(void *context, int64_t position, struct error *none)
{
    (void)context, (void)none;
    must(told < fake.end || sim_env_digest(&sim, "/s/consumequeue") == queues_before);
    told = position;
    return 0;
}

/* A damaged unit at the end of one queue makes a start cut all of them further down, where others are damaged too, or that one is once more: none of them ends
 * there before the place where it has to, and what was cut too short for that would be given out again. */
START_TEST(damage_hides_no_place_to_cut)
{
    const bool goes_on = _i == 0; /* the other queue has messages behind the cut: they would not fit */
    uint8_t bytes[CONSUME_QUEUE_UNIT_SIZE];
    for (int64_t i = 0, next[2] = {0}; i < 1000; i++) {
        const bool is_a = i >= 700 && (!goes_on || i % 2 == 0);
        char properties[32];
        snprintf(properties, sizeof properties, "UNIQ_KEY\x01U%d", (int)i);
        append_to_log((struct spec){is_a ? "A" : "Y", 0, next[is_a]++, properties, 20, 0, 1});
    }
    dispatch_ok(0, fake.count);
    ck_assert_int_eq(message_store_sync(&store), 0);
    const int64_t end = message_store_max_offset(&store, SLICE_LITERAL("A"), 0), other_end = message_store_max_offset(&store, SLICE_LITERAL("Y"), 0);
    const struct consume_queue_unit none = {0}, late = {fake.at[998] + 5, 100, 0};
    message_store_close(&store);
    put_unit(end - 3, none); /* in the last page */
    consume_queue_encode(bytes, &late);
    for (int64_t at = goes_on ? 700 : 500; at < (goes_on ? 818 : 613) && _i < 2; at++) /* in front of it */
        sim_env_put(&sim, "/s/consumequeue/Y/0/00000000000000000000", (uint64_t)at * sizeof bytes, bytes, sizeof bytes);
    if (_i == 2)
        put_unit(end - 4, late);
    open_store();
    queues_before = sim_env_digest(&sim, "/s/consumequeue");
    told = fake.end;
    store.before_cut = tell;
    recover(fake.end);
    ck_assert_int_eq(store.recovered_position, told);
    ck_assert_int_lt(told, fake.end);
    dispatch_ok(first_at(told), fake.count);
    ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("A"), 0), end);
    ck_assert_int_eq(message_store_max_offset(&store, SLICE_LITERAL("Y"), 0), other_end);
    compare(0, fake.count);
    check_all();
}
END_TEST

/* SEED=N: other rounds. */
static int first_seed(void)
{
    const char *seed = getenv("SEED");
    return seed == NULL ? 1 : atoi(seed);
}

/* One kind of damage somewhere in the files. */
static void spoil_units(uint64_t bytes, struct damage_count *count)
{
    bool changed = false;
    uint64_t kind = sim_env_chance(&sim, 10), at = sim_env_chance(&sim, bytes), from = sim_env_chance(&sim, bytes);
    uint64_t length = kind < 5 ? 1 : 1 + sim_env_chance(&sim, kind == 9 ? 4096 : 512);
    for (uint64_t i = 0; i < length && at + i < bytes && from + i < bytes; i++) {
        char path[64], other[64];
        uint64_t size, file = (at + i) / (CQ_UNITS * 20), source = (from + i) / (CQ_UNITS * 20);
        snprintf(path, sizeof path, "/s/consumequeue/A/0/%020llu", (unsigned long long)(file * CQ_UNITS * 20));
        snprintf(other, sizeof other, "/s/consumequeue/A/0/%020llu", (unsigned long long)(source * CQ_UNITS * 20));
        uint8_t here = sim_env_bytes(&sim, path, &size)[(at + i) % (CQ_UNITS * 20)];
        uint8_t there = sim_env_bytes(&sim, other, &size)[(from + i) % (CQ_UNITS * 20)];
        uint8_t mask = (uint8_t)(here ^ there);
        if (kind < 5)
            mask = (uint8_t)(1u << sim_env_chance(&sim, 8));
        else if (kind < 7)
            mask = here;
        sim_env_corrupt(&sim, path, (at + i) % (CQ_UNITS * 20), mask);
        changed |= mask != 0;
    }
    if (changed)
        damage_count_add(count, kind < 5);
}

/* Whatever a pull answers is what was written, or it is damaged; nothing is passed over; and after the log was compared all is right. The newest units are left alone:
 * when all of them are gone nothing in the queue says so. */
START_TEST(seeded_damage_to_units)
{
    const char *mode = getenv("MODE");
    const uint64_t rounds = mode != NULL && strcmp(mode, "full") == 0 ? 8000 : 100;
    struct damage_count damage = {0};
    uint64_t found = 0, mended = 0;
    for (int64_t i = 0; i < 2 * CQ_UNITS + 700; i++) {
        char properties[64];
        snprintf(properties, sizeof properties, "UNIQ_KEY\x01U%d\x02TAGS\x01%s", (int)i, i % 3 == 0 ? "x" : "y");
        append_to_log((struct spec){"A", 0, i, properties, (uint32_t)(i % 50), 0, 1700000000000 + i});
    }
    dispatch_ok(0, fake.count);
    int64_t code = message_tags_code(SLICE_LITERAL("x"));
    const struct message_filter filter = {&code, wants, NULL, 0};
    for (uint64_t seed = first_seed(); seed < first_seed() + rounds; seed++) {
        ck_assert_int_eq(message_store_sync(&store), 0);
        note_sum(); /* as with each checkpoint */
        message_store_close(&store);
        sim.chance = sim.chance + seed * 0x9E3779B97F4A7C15u;
        for (uint64_t n = 1 + sim_env_chance(&sim, 3); n > 0; n--)
            spoil_units((uint64_t)fake.count * 20 - 2 * 4096, &damage);
        restart(fake.end);
        ck_assert_msg(message_store_max_offset(&store, SLICE_LITERAL("A"), 0) == fake.count, "seed %llu: the queue ends at %lld", (unsigned long long)seed,
                      (long long)message_store_max_offset(&store, SLICE_LITERAL("A"), 0));
        for (int filtered = 0; filtered < 2; filtered++) {
            int64_t matched = 0, expected = 0;
            for (int64_t at = 0; at < fake.count;) {
                enum get_message_status status = get("A", 0, at, 32, filtered ? &filter : NULL);
                if (status == GET_MESSAGE_DAMAGED) {
                    found++;
                    store.doubt.any = false; /* so that others are met too */
                    expected += filtered && at % 3 == 0;
                    matched += filtered && at % 3 == 0;
                    at++;
                    continue;
                }
                ck_assert_msg(status == GET_MESSAGE_FOUND || (filtered && status == GET_MESSAGE_NO_MATCHED_MESSAGE), "seed %llu: %s at %lld",
                              (unsigned long long)seed, get_message_status_name(status), (long long)at);
                for (uint32_t i = 0; i < result.count; i++)
                    must(result.items[i].physical_offset == fake.at[result.items[i].queue_offset]);
                for (int64_t k = at; k < result.next_begin_offset; k++)
                    expected += !filtered || k % 3 == 0;
                ck_assert_int_gt(result.next_begin_offset, at);
                matched += result.count;
                at = result.next_begin_offset;
            }
            ck_assert_msg(matched == expected, "seed %llu: %lld of %lld", (unsigned long long)seed, (long long)matched, (long long)expected);
        }
        mended += compare(0, fake.count);
        ck_assert_uint_eq(compare(0, fake.count), 0);
        check_all();
        ck_assert_int_eq(served(&filter), fake.count);
    }
    ck_assert_uint_gt(found, rounds);
    ck_assert_uint_gt(mended, rounds);
    damage_count_print(&damage, "consume queue");
}
END_TEST

/* ---- minimums ---- */

#define MIN_RECORDS 6000
#define MIN_QUEUES 3
static const char *const min_topics[MIN_QUEUES] = {"A", "A", "B"};
static const int32_t min_ids[MIN_QUEUES] = {0, 1, 0};

/* What an undamaged queue is. */
static struct {
    int record[MIN_RECORDS]; /* of each message */
    int64_t count;
} truth[MIN_QUEUES];

static uint64_t never_another(void *context, struct slice topic)
{
    (void)context, (void)topic;
    return 0;
}

static void fill_for_minimums(void)
{
    memset(truth, 0, sizeof truth);
    for (int n = 0; n < MIN_RECORDS; n++) {
        int q = n % 97 == 5 ? 2 : n % 2;
        char properties[64];
        snprintf(properties, sizeof properties, "UNIQ_KEY\x01U%d", n);
        append_to_log((struct spec){min_topics[q], min_ids[q], truth[q].count, properties, (uint32_t)(n % 50), 0, 1700000000000 + n * 10});
        truth[q].record[truth[q].count++] = n;
    }
}

static int64_t true_min(int q, int64_t position)
{
    int64_t min = 0;
    while (min < truth[q].count && fake.at[truth[q].record[min]] < position)
        min++;
    return min;
}

static uint8_t *bytes_of(int q, int64_t offset)
{
    char path[64];
    uint64_t size;
    snprintf(path, sizeof path, "/s/consumequeue/%s/%d/%020llu", min_topics[q], (int)min_ids[q], (unsigned long long)(offset / CQ_UNITS * CQ_UNITS * 20));
    uint8_t *bytes = sim_env_bytes(&sim, path, &size);
    return bytes == NULL ? NULL : bytes + offset % CQ_UNITS * 20;
}

static void put_bytes(int q, int64_t offset, const uint8_t *bytes)
{
    char path[64];
    snprintf(path, sizeof path, "/s/consumequeue/%s/%d/%020llu", min_topics[q], (int)min_ids[q], (unsigned long long)(offset / CQ_UNITS * CQ_UNITS * 20));
    sim_env_put(&sim, path, (uint64_t)(offset % CQ_UNITS * 20), bytes, 20);
}

/* Some units at or near `around` are flipped, zeroed, old ones, padding, or in each other's place. */
static void spoil_near(int q, int64_t around)
{
    static const uint64_t ranges[] = {1, 2, 4, 30, 900};
    uint64_t range = ranges[sim_env_chance(&sim, sizeof ranges / sizeof ranges[0])], kind = sim_env_chance(&sim, 6);
    int64_t end = truth[q].count - 2 * 4096 / 20; /* the very last ones are for the start */
    int64_t at = around - (int64_t)range + (int64_t)sim_env_chance(&sim, 2 * range), length = 1, from = 0;
    uint8_t here[20], there[20];
    if (kind >= 3 && sim_env_chance(&sim, 2) == 0)
        length = 1 + (int64_t)sim_env_chance(&sim, 4096 / 20);
    if (kind == 4 || kind == 5)
        from = sim_env_chance(&sim, 2) == 0 ? at + 1 - (int64_t)sim_env_chance(&sim, 3) : (int64_t)sim_env_chance(&sim, (uint64_t)(end < 1 ? 1 : end));
    for (int64_t i = 0; i < length; i++) {
        if (at + i < 0 || at + i >= end || from + i < 0 || from + i >= end)
            continue;
        memcpy(here, bytes_of(q, at + i), sizeof here);
        memcpy(there, bytes_of(q, from + i), sizeof there);
        if (kind < 2)
            here[sim_env_chance(&sim, kind == 0 ? 8 : 20)] ^= (uint8_t)(1u << sim_env_chance(&sim, 8));
        else if (kind < 4)
            memset(here, 0, sizeof here);
        if (kind == 5)
            put_bytes(q, from + i, here);
        put_bytes(q, at + i, kind >= 4 ? there : here);
    }
}

/* Nothing that stands before the minimum contradicts it: as if the queue had never had another one. */
static bool looks_right(int q, int64_t min, int64_t position)
{
    int64_t before = -1;
    for (int64_t at = min - 400 < 0 ? 0 : min - 400; at < min; at++) {
        struct consume_queue_unit unit;
        const uint8_t *bytes = bytes_of(q, at);
        if (bytes == NULL)
            continue;
        consume_queue_decode(bytes, &unit);
        if (unit.size <= 0 || unit.physical_offset < 0)
            continue;
        if (unit.physical_offset <= before)
            return false;
        before = unit.physical_offset;
    }
    return before < position;
}

static struct consume_queue *queue_number(int q)
{
    return message_store_queue(&store, slice_of_text(min_topics[q]), min_ids[q], false, NULL);
}

static void scrub(void)
{
    message_store_walk_begin(&store);
    compare(0, fake.count);
    message_store_walk_end(&store);
}

static int64_t true_offset_by_time(int q, int64_t min, int64_t time_ms)
{
    int64_t low = min;
    while (low < truth[q].count && 1700000000000 + truth[q].record[low] * 10 < time_ms)
        low++;
    if (low == min || low == truth[q].count)
        return low == min ? low : low - 1;
    int64_t right = 1700000000000 + truth[q].record[low] * 10, left = 1700000000000 + truth[q].record[low - 1] * 10;
    return right == time_ms || right - time_ms < time_ms - left ? low : low - 1;
}

/* Whatever was damaged: before the scrub no message is passed over and no file with one is removed, but for damage that looks like another queue without any; and
 * behind it each queue is what it would be without. */
START_TEST(seeded_damage_to_minimums)
{
    const char *mode = getenv("MODE");
    const int rounds = mode != NULL && strcmp(mode, "full") == 0 ? 20000 : 50;
    int too_far = 0, too_near = 0, settled = 0;
    config.index_enable = false;
    fill_for_minimums();
    for (int seed = first_seed(); seed < first_seed() + rounds; seed++) {
        int64_t trims[2], min[MIN_QUEUES] = {0}, expired = 0;
        message_store_close(&store);
        sim_env_close(&sim);
        sim_env_init(&sim, (uint64_t)seed, NULL);
        fake.min = 0;
        open_store();
        recover(0);
        dispatch_ok(0, fake.count);
        ck_assert_int_eq(message_store_sync(&store), 0);
        message_store_close(&store);
        for (int i = 0; i < 2; i++)
            trims[i] = fake.at[sim_env_chance(&sim, MIN_RECORDS - 1200)] - 48;
        if (sim_env_chance(&sim, 8) == 0)
            trims[1] = fake.end; /* all of it */
        if (trims[1] < trims[0]) {
            int64_t other = trims[0];
            trims[0] = trims[1];
            trims[1] = other;
        }
        if (sim_env_chance(&sim, 3) == 0)
            expired = fake.at[sim_env_chance(&sim, MIN_RECORDS)] - 48;
        for (uint64_t left = 1 + sim_env_chance(&sim, 4); left > 0; left--) {
            int q = (int)sim_env_chance(&sim, MIN_QUEUES);
            int64_t places[] = {true_min(q, trims[0]), true_min(q, trims[1]), true_min(q, expired), (int64_t)sim_env_chance(&sim, (uint64_t)truth[q].count)};
            spoil_near(q, places[sim_env_chance(&sim, 4)]);
        }
        /* A start with a trimmed log, some of which may have been compared, and then another trim. */
        bool starts = sim_env_chance(&sim, 2) == 0;
        fake.min = starts ? trims[0] : 0;
        open_store();
        store.topic_since = never_another;
        recover(fake.end);
        dispatch_ok(first_at(message_store_recovered_position(&store)), fake.count); /* where a file's first unit is damaged */
        if (starts && sim_env_chance(&sim, 3) == 0)
            compare(first_at(trims[0]), first_at(trims[0]) + (int)sim_env_chance(&sim, 3000));
        ck_assert_int_eq(message_store_trim(&store, trims[1]), 0);
        if (sim_env_chance(&sim, 2) == 0)
            fake.min = trims[1]; /* the segments are removed later on */
        bool emptied = false;
        ck_assert_int_eq(message_store_trim_topic(&store, SLICE_LITERAL("A"), expired, &emptied), 0);
        ck_assert_int_eq(message_store_trim(&store, trims[1]), 0);
        for (int q = 0; q < MIN_QUEUES; q++) {
            const struct consume_queue *queue = queue_number(q);
            int64_t position = q < 2 && expired > trims[1] ? expired : trims[1];
            min[q] = true_min(q, position);
            ck_assert_int_eq(queue->max_offset, truth[q].count);
            ck_assert_msg(min[q] == truth[q].count || mapped_file_queue_begin(&queue->files) <= (uint64_t)min[q] * 20, "seed %d: a file was removed", seed);
            if (queue->min_offset > min[q])
                ck_assert_msg(looks_right(q, queue->min_offset, position), "seed %d: queue %d begins at %lld instead of %lld", seed, q,
                              (long long)queue->min_offset, (long long)min[q]);
            too_far += queue->min_offset > min[q];
            too_near += queue->min_offset < min[q];
            for (int64_t at = min[q]; at < truth[q].count;) {
                if (at < queue->min_offset) {
                    at = queue->min_offset;
                    continue;
                }
                enum get_message_status status = get(min_topics[q], min_ids[q], at, 32, NULL);
                for (uint32_t i = 0; i < result.count; i++)
                    must(result.items[i].physical_offset == fake.at[truth[q].record[result.items[i].queue_offset]]);
                if (status == GET_MESSAGE_DAMAGED)
                    at++;
                else
                    ck_assert_msg(status == GET_MESSAGE_FOUND && result.next_begin_offset == at + result.count, "seed %d: queue %d has no message %lld, %s",
                                  seed, q, (long long)at, get_message_status_name(status));
                at = status == GET_MESSAGE_DAMAGED ? at : result.next_begin_offset;
            }
            for (int i = 0; i < 5 && queue->min_offset <= min[q]; i++) {
                int64_t time_ms = 1700000000000 + (int64_t)sim_env_chance(&sim, MIN_RECORDS * 10);
                int64_t found = message_store_offset_by_time(&store, slice_of_text(min_topics[q]), min_ids[q], time_ms);
                /* Nothing that was stored then or later is passed over. */
                ck_assert_msg(found <= min[q] || 1700000000000 + truth[q].record[found - 1] * 10 < time_ms, "seed %d: time %lld leads to %lld", seed, (long long)time_ms, (long long)found);
            }
        }
        scrub();
        settled += store.files_to_go;
        ck_assert_int_eq(message_store_trim(&store, trims[1]), 0);
        ck_assert(!store.doubt.any);
        int64_t first = MIN_RECORDS;
        for (int q = 0; q < MIN_QUEUES; q++) {
            const struct consume_queue *queue = queue_number(q);
            ck_assert_msg(queue->min_offset == min[q] && queue->max_offset == truth[q].count, "seed %d: queue %d goes from %lld to %lld, and not from %lld", seed, q,
                          (long long)queue->min_offset, (long long)queue->max_offset, (long long)min[q]);
            /* The last file stays. */
            int64_t file = (min[q] == truth[q].count ? min[q] - 1 : min[q]) / CQ_UNITS;
            ck_assert_int_eq((int64_t)mapped_file_queue_begin(&queue->files), file * CQ_UNITS * 20);
            for (int64_t at = min[q]; at < truth[q].count; at++) {
                struct consume_queue_unit unit;
                must(consume_queue_get(queue, at, &unit) && unit.physical_offset == fake.at[truth[q].record[at]]);
                must(unit.size == (int32_t)record_of(truth[q].record[at]).size);
            }
            for (int i = 0; i < 5 && min[q] < truth[q].count; i++) {
                int64_t time_ms = 1700000000000 + (int64_t)sim_env_chance(&sim, MIN_RECORDS * 10);
                ck_assert_int_eq(message_store_offset_by_time(&store, slice_of_text(min_topics[q]), min_ids[q], time_ms), true_offset_by_time(q, min[q], time_ms));
            }
            if (min[q] < truth[q].count && truth[q].record[min[q]] < first)
                first = truth[q].record[min[q]];
        }
        ck_assert_int_eq(message_store_earliest_time(&store), first == MIN_RECORDS ? -1 : 1700000000000 + first * 10);
    }
    ck_assert_int_lt(too_far, 1 + rounds / 50);
    ck_assert_int_gt(too_near, rounds / 20);
    ck_assert_int_gt(settled, rounds / 20);
}
END_TEST

static void damaged_start(int64_t min, const struct consume_queue_unit *unit, int64_t at)
{
    uint8_t bytes[20];
    config.index_enable = false;
    fill_for_minimums();
    dispatch_ok(0, fake.count);
    ck_assert_int_eq(message_store_sync(&store), 0);
    message_store_close(&store);
    consume_queue_encode(bytes, unit);
    put_bytes(0, at, bytes);
    fake.min = min;
    open_store();
    store.topic_since = never_another;
    recover(fake.end);
}

/* The last unit of a file says that its message is no longer retained, which nothing contradicts: the file stays, and the message comes back. */
START_TEST(a_file_stays_until_the_log_was_read)
{
    const int64_t min = CQ_UNITS - 1;
    fill_for_minimums();
    const int64_t position = fake.at[truth[0].record[min]] - 48;
    fake.count = 0;
    fake.end = 0;
    damaged_start(position, &(struct consume_queue_unit){position - 40, 30, 0}, min);
    const struct consume_queue *queue = queue_number(0);
    ck_assert_int_eq(queue->min_offset, min + 1);
    ck_assert_uint_eq(mapped_file_queue_begin(&queue->files), 0);
    scrub();
    ck_assert(!store.files_to_go);
    ck_assert_int_eq(queue->min_offset, min);
    ck_assert_int_eq(message_store_trim(&store, position), 0);
    ck_assert_int_eq(get("A", 0, min, 32, NULL), GET_MESSAGE_FOUND);
    ck_assert_int_eq(result.items[0].physical_offset, position + 48);
    /* Where the log was read it goes. */
    const int64_t further = fake.at[truth[0].record[min + 1]] - 48;
    ck_assert_int_eq(message_store_trim(&store, further), 0);
    ck_assert_int_eq(queue->min_offset, min + 1);
    ck_assert_uint_eq(mapped_file_queue_begin(&queue->files), CQ_UNITS * 20);
}
END_TEST

/* The minimum is a unit that nothing can mend, for its record is gone: the log's reading passes it, and nobody waits for it any more. */
START_TEST(the_minimum_is_no_unit_without_a_record)
{
    for (int part = 0; part < 3; part++) {
        fake.count = 0;
        fake.end = fake.min = 0;
        fill_for_minimums();
        const int64_t min = part == 2 ? truth[0].count : 300;
        const int64_t position = part == 2 ? fake.end : fake.at[truth[0].record[min]] - 48;
        fake.count = 0;
        fake.end = 0;
        message_store_close(&store);
        sim_env_close(&sim);
        sim_env_init(&sim, 3, NULL);
        open_store();
        recover(0);
        damaged_start(0, &(struct consume_queue_unit){fake.end + ((int64_t)1 << 40), 30, 0}, 0);
        fake.min = position;
        ck_assert_int_eq(message_store_trim(&store, position), 0);
        const struct consume_queue *queue = queue_number(0);
        ck_assert_int_eq(queue->min_offset, 0);
        ck_assert_int_eq(get("A", 0, 0, 32, NULL), GET_MESSAGE_DAMAGED);
        ck_assert(message_store_doubt_is_searched(&store.doubt) && store.doubt.everything);
        /* A walk that left something out proves nothing. */
        message_store_walk_begin(&store);
        message_store_walk_break(&store);
        compare(0, fake.count);
        message_store_walk_end(&store);
        ck_assert_int_eq(queue->min_offset, 0);
        if (part == 1)
            ck_assert_int_eq(message_store_trim(&store, position), 0); /* neither does another trim */
        ck_assert(store.doubt.any);
        scrub();
        ck_assert_int_eq(queue->min_offset, min);
        ck_assert(!store.doubt.any);
        if (part < 2)
            ck_assert_int_eq(get("A", 0, min, 32, NULL), GET_MESSAGE_FOUND);
        ck_assert_int_eq(get("A", 0, 0, 32, NULL), GET_MESSAGE_OFFSET_TOO_SMALL);
        ck_assert_int_eq(result.next_begin_offset, min);
    }
}
END_TEST

/* A doubt about a message goes with it. */
START_TEST(a_doubt_below_the_minimum_is_none)
{
    fill(3000);
    dispatch_ok(0, 3000);
    for (int kind = 0; kind < 3; kind++) {
        const int64_t min = message_store_min_offset(&store, SLICE_LITERAL("A"), 0);
        bool emptied = false;
        message_store_distrust(&store, SLICE_LITERAL("A"), 0, min + 10);
        ck_assert(store.doubt.any);
        struct consume_queue_unit unit = unit_at("A", 0, min + 10);
        if (kind == 0)
            ck_assert_int_eq(message_store_trim(&store, unit.physical_offset), 0);
        else if (kind == 1)
            ck_assert_int_eq(message_store_trim_topic(&store, SLICE_LITERAL("A"), unit.physical_offset, &emptied), 0);
        ck_assert(store.doubt.any); /* it is the first one */
        if (kind == 0)
            ck_assert_int_eq(message_store_trim(&store, unit.physical_offset + 1), 0);
        else if (kind == 1)
            ck_assert_int_eq(message_store_trim_topic(&store, SLICE_LITERAL("A"), unit.physical_offset + 1, &emptied), 0);
        else
            ck_assert_int_eq(message_store_delete_topic(&store, SLICE_LITERAL("A")), 0);
        ck_assert(!store.doubt.any);
    }
}
END_TEST

/* A first unit that points far ahead does not hide the queue that has the oldest message. */
START_TEST(earliest_time_of_a_damaged_first_unit)
{
    config.index_enable = false;
    for (int64_t i = 0; i < 1000; i++)
        append_to_log((struct spec){"A", 0, i, "TAGS\x01x", 1, 0, 1700000000000 + i});
    for (int64_t i = 0; i < 1000; i++)
        append_to_log((struct spec){"B", 0, i, "TAGS\x01x", 1, 0, 1700000001000 + i});
    dispatch_ok(0, fake.count);
    const struct consume_queue_unit right = unit_at("A", 0, 5);
    static const int64_t masks[] = {1ll << 40, 1ll << 18, 1};
    for (int i = 0; i < 4; i++) {
        struct consume_queue_unit unit = right;
        unit.physical_offset ^= i < 3 ? masks[i] : right.physical_offset;
        message_store_close(&store);
        put_unit(5, unit);
        fake.min = right.physical_offset - 48;
        open_store();
        recover(fake.end);
        ck_assert_msg(message_store_earliest_time(&store) == 1700000000006, "damage %d", i);
        ck_assert_uint_eq(compare(0, 100), 1);
        ck_assert_int_eq(message_store_earliest_time(&store), 1700000000005);
    }
}
END_TEST

/* What may go is judged by the first message's place, which a damaged unit does not tell: neither too far ahead, nor not at all for ever. */
START_TEST(first_physical_of_a_damaged_unit)
{
    config.index_enable = false;
    fill_for_minimums();
    dispatch_ok(0, fake.count);
    const int64_t position = fake.at[truth[0].record[300]] - 48;
    for (int i = 0; i < 3; i++) {
        struct consume_queue_unit unit = unit_at("A", 0, 300);
        unit.physical_offset += i * 4000; /* of the other queue, or within a record */
        message_store_close(&store);
        put_unit(300, unit);
        fake.min = position;
        open_store();
        store.topic_since = never_another;
        recover(fake.end);
        struct consume_queue *queue = queue_number(0);
        ck_assert_int_eq(queue->min_offset, 300);
        ck_assert_int_eq(message_store_first_physical(&store, queue, false), -1);
        ck_assert_int_eq(message_store_first_physical(&store, queue, true), i == 0 ? position + 48 : -1);
        ck_assert(store.doubt.any == (i > 0));
        scrub();
        ck_assert_int_eq(message_store_first_physical(&store, queue, true), position + 48);
        ck_assert_int_eq(message_store_first_physical(&store, queue, false), position + 48); /* remembered */
        message_store_distrust(&store, SLICE_LITERAL("A"), 0, 300);
        ck_assert_int_eq(message_store_first_physical(&store, queue, false), -1);
        ck_assert_int_eq(message_store_trim(&store, fake.end), 0);
        ck_assert_int_eq(message_store_first_physical(&store, queue, false), INT64_MAX);
    }
}
END_TEST

/* Where nobody knows the topic nothing tells whose messages those are that the log holds. */
START_TEST(unknown_topics_begin_where_they_say)
{
    uint64_t made_at[] = {UINT64_MAX, 1500, 3000};
    fill(3000);
    dispatch_ok(0, 3000);
    store.topic_since = since;
    for (int i = 0; i < 3; i++) { /* and what there is stays, also when it came before that */
        store.topic_since_context = &made_at[i];
        scrub();
        ck_assert_int_eq(message_store_min_offset(&store, SLICE_LITERAL("A"), 0), 0);
    }
    store.topic_since = NULL;
    scrub();
    ck_assert_int_eq(message_store_min_offset(&store, SLICE_LITERAL("A"), 0), 0);
    check_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("message_store");
    TCase *tcase = tcase_create("core");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, golden_record);
    tcase_add_test(tcase, mixed);
    tcase_add_test(tcase, delay_levels);
    tcase_add_test(tcase, transactions);
    tcase_add_test(tcase, never_skips_or_shifts);
    tcase_add_test(tcase, unsafe_topics);
    tcase_add_test(tcase, many_keys_in_a_small_index);
    tcase_add_test(tcase, get_message_rows);
    tcase_add_test(tcase, batch_limits);
    tcase_add_test(tcase, scan_limits);
    tcase_add_test(tcase, offset_by_time);
    tcase_add_test(tcase, everything_expired);
    tcase_add_test(tcase, single_records);
    tcase_add_test(tcase, query_by_key);
    tcase_add_test(tcase, query_over_many_files);
    tcase_add_test(tcase, recovery_everywhere);
    tcase_add_test(tcase, rebuilt_from_nothing);
    tcase_add_test(tcase, index_directory_lost);
    tcase_add_test(tcase, damaged_queue);
    tcase_add_test(tcase, repeats_from_earlier);
    tcase_add_test(tcase, delete_and_create_again);
    tcase_add_loop_test(tcase, killed_while_a_topic_is_deleted, 0, 8);
    tcase_add_loop_test(tcase, power_cut_behind_a_deletion, 0, 10);
    tcase_add_test(tcase, the_mark_of_a_deletion_is_durable);
    tcase_add_test(tcase, a_queue_that_a_start_fills_again_is_no_loss);
    tcase_add_test(tcase, full_disk);
    tcase_add_test(tcase, killed_in_any_call);
    tcase_add_test(tcase, power_cuts);
    tcase_add_test(tcase, names_of_a_killed_process);
    tcase_add_test(tcase, cut_after_lost_records_is_durable);
    tcase_add_test(tcase, sync_fails);
    tcase_add_test(tcase, sync_job_outlives_what_it_syncs);
    tcase_add_test(tcase, clean_stop_needs_no_rebuild);
    tcase_add_test(tcase, cold_queues);
    tcase_add_test(tcase, few_mappings);
    tcase_add_test(tcase, many_queues);
    tcase_add_loop_test(tcase, lost_ends_are_seen, 0, LOSSES * 4);
    tcase_add_loop_test(tcase, lost_ends_reach_back_before_the_log, 0, 2);
    tcase_add_test(tcase, damage_hides_no_lost_end);
    tcase_add_test(tcase, what_is_whole_is_not_made_anew);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("damage");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, damaged_units_are_not_served);
    tcase_add_test(tcase, tags_codes_are_believed_when_compared);
    tcase_add_test(tcase, lost_files_are_filled);
    tcase_add_test(tcase, nothing_is_compared_while_queues_are_ahead);
    tcase_add_test(tcase, earlier_topics_are_not_compared);
    tcase_add_loop_test(tcase, a_damaged_last_unit_stops_nobody, 0, 2);
    tcase_add_test(tcase, other_delay_levels_are_no_damage);
    tcase_add_test(tcase, units_ahead_of_a_start_are_no_damage);
    tcase_add_test(tcase, old_records_wait_for_who_reads_them_ahead);
    tcase_add_test(tcase, units_of_earlier_records_at_the_seeming_end);
    tcase_add_loop_test(tcase, damage_hides_no_place_to_cut, 0, 3);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("seeded damage");
    tcase_set_timeout(tcase, 3600);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, seeded_damage_to_units);
    tcase_add_test(tcase, seeded_damage_to_minimums);
    tcase_add_test(tcase, a_file_stays_until_the_log_was_read);
    tcase_add_test(tcase, the_minimum_is_no_unit_without_a_record);
    tcase_add_test(tcase, a_doubt_below_the_minimum_is_none);
    tcase_add_test(tcase, earliest_time_of_a_damaged_first_unit);
    tcase_add_test(tcase, first_physical_of_a_damaged_unit);
    tcase_add_test(tcase, unknown_topics_begin_where_they_say);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
