/* Half messages: which are settled and how, over snapshots and repeats; when one is checked back; what the trailer says. */
#include "../lib/broker_state.h"

#include <check.h>
#include <stdlib.h>

#include "broker/service/transaction.h"
#include "proto/topic_validator.h"
#include "tests/lib/run_suite.h"

static struct half_set set;
static struct half_set copy;

static void set_up(void)
{
    half_set_init(&set);
    half_set_init(&copy);
}

static void tear_down(void)
{
    half_set_close(&set);
    half_set_close(&copy);
}

static const struct slice no_immunity = {NULL, 0};

static void arrive(struct half_set *of, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        ck_assert_int_eq(half_set_arrived(of, of->next, 1000 + of->next, no_immunity), 0);
}

static void assert_like(const struct half_set *a, const struct half_set *b)
{
    struct half_set_snapshot left, right;
    ck_assert_int_eq(half_set_snapshot(a, &left), 0);
    ck_assert_int_eq(half_set_snapshot(b, &right), 0);
    size_t size = ledgermq__half_set__get_packed_size(&left.message);
    ck_assert_uint_eq(size, ledgermq__half_set__get_packed_size(&right.message));
    uint8_t *bytes = malloc(2 * size + 1);
    ck_assert_ptr_nonnull(bytes);
    ledgermq__half_set__pack(&left.message, bytes);
    ledgermq__half_set__pack(&right.message, bytes + size);
    ck_assert(memcmp(bytes, bytes + size, size) == 0);
    free(bytes);
    half_set_snapshot_free(&left);
    half_set_snapshot_free(&right);
}

/* Through the bytes of a snapshot, as a restart would. */
static int restore(struct half_set *to, const struct half_set *from)
{
    struct half_set_snapshot snapshot;
    ck_assert_int_eq(half_set_snapshot(from, &snapshot), 0);
    size_t size = ledgermq__half_set__get_packed_size(&snapshot.message);
    uint8_t *bytes = malloc(size + 1);
    ck_assert_ptr_nonnull(bytes);
    ledgermq__half_set__pack(&snapshot.message, bytes);
    half_set_snapshot_free(&snapshot);
    Ledgermq__HalfSet *message = ledgermq__half_set__unpack(NULL, size, bytes);
    ck_assert_ptr_nonnull(message);
    int rv = half_set_restore(to, message);
    ledgermq__half_set__free_unpacked(message, NULL);
    free(bytes);
    return rv;
}

START_TEST(states)
{
    ck_assert_int_eq(half_set_state(&set, 0), HALF_NOT_SEEN);
    ck_assert(!half_set_settle(&set, 0, false));
    arrive(&set, 3);
    ck_assert_int_eq(half_set_state(&set, -1), HALF_NOT_SEEN);
    ck_assert_int_eq(half_set_state(&set, 2), HALF_UNSETTLED);
    ck_assert_int_eq(half_set_state(&set, 3), HALF_NOT_SEEN);
    ck_assert(half_set_settle(&set, 1, true));
    ck_assert(half_set_settle(&set, 2, false));
    ck_assert_int_eq(half_set_state(&set, 0), HALF_UNSETTLED);
    ck_assert_int_eq(half_set_state(&set, 1), HALF_ROLLED_BACK);
    ck_assert_int_eq(half_set_state(&set, 2), HALF_COMMITTED);
    /* The first decision stands. */
    ck_assert(!half_set_settle(&set, 1, false));
    ck_assert(!half_set_settle(&set, 2, true));
    ck_assert_int_eq(half_set_state(&set, 1), HALF_ROLLED_BACK);
    ck_assert_int_eq(half_set_state(&set, 2), HALF_COMMITTED);
    ck_assert_uint_eq(set.unsettled, 1);
    /* Applied once more, as after a start: neither comes back. */
    ck_assert_int_eq(half_set_arrived(&set, 0, 5, no_immunity), 0);
    ck_assert_int_eq(half_set_arrived(&set, 1, 5, no_immunity), 0);
    ck_assert_uint_eq(set.unsettled, 1);
    ck_assert_int_eq(half_set_find(&set, 0)->store_ms, 1000);
}
END_TEST

START_TEST(walking)
{
    arrive(&set, 10);
    half_set_settle(&set, 0, false);
    half_set_settle(&set, 4, false);
    half_set_settle(&set, 9, false);
    ck_assert_int_eq(half_set_from(&set, 0)->offset, 1);
    ck_assert_int_eq(half_set_from(&set, 4)->offset, 5);
    ck_assert_ptr_null(half_set_from(&set, 9));
    half_set_find(&set, 5)->settling = true;
    half_set_forget_settling(&set);
    ck_assert(!half_set_find(&set, 5)->settling);
}
END_TEST

START_TEST(checks_and_immunity)
{
    static const struct {
        const char *text;
        int32_t seconds;
    } rows[] = {{"5", 5}, {"0", 0}, {"-1", -1}, {"-7", -1}, {"x", -1}, {"99999999999", INT32_MAX}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(half_set_arrived(&set, (int64_t)i, 1, slice_of_text(rows[i].text)), 0);
        ck_assert_int_eq(half_set_find(&set, (int64_t)i)->immunity_s, rows[i].seconds);
    }
    for (int i = 0; i < HALF_SET_CHECKS_MAX + 5; i++)
        half_set_checked(&set, 2);
    ck_assert_int_eq(half_set_find(&set, 2)->checks, HALF_SET_CHECKS_MAX);
    half_set_checked(&set, 77); /* never came */
    ck_assert_int_eq(restore(&copy, &set), 0);
    ck_assert_int_eq(half_set_find(&copy, 2)->checks, HALF_SET_CHECKS_MAX);
    ck_assert_int_eq(half_set_find(&copy, 0)->immunity_s, 5);
    half_set_resumed(&set, 77);
    half_set_resumed(&set, 2);
    ck_assert_uint_eq(half_set_find(&set, 2)->checks, 0);
    half_set_checked(&set, 2);
    ck_assert_uint_eq(half_set_find(&set, 2)->checks, 1);

    ck_assert(!transaction_check_due(7000, 1000, -1, 6000));
    ck_assert(transaction_check_due(7001, 1000, -1, 6000));
    ck_assert(!transaction_check_due(7001, 1000, 10, 6000));
    ck_assert(transaction_check_due(11001, 1000, 10, 6000));
    ck_assert(transaction_check_due(1001, 1000, 0, 6000));
    /* A new leader's clock lags a little: no reason to hurry. A lot: its time would never come. */
    ck_assert(!transaction_check_due(1000, 1200, -1, 6000));
    ck_assert(transaction_check_due(1000, 7001, -1, 6000));
}
END_TEST

/* Against a plain array, with restarts in between; memory stays that of what waits. */
START_TEST(like_a_plain_array)
{
    enum { COUNT = 20000 };
    static char model[COUNT]; /* 0 not seen, 1 unsettled, 2 committed, 3 rolled back */
    uint64_t random = 42;
    int64_t next = 0;
    memset(model, 0, sizeof model);
    for (int turn = 0; turn < 60000; turn++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t chance = (uint32_t)(random >> 33);
        if (chance % 3 == 0 && next < COUNT) {
            arrive(&set, 1);
            model[next++] = 1;
        } else if (next > 0) {
            int64_t offset = chance % 7 == 0 ? (int64_t)(chance / 7 % (uint32_t)next) : next - 1 - (int64_t)(chance / 7 % 50 % (uint32_t)next);
            bool rolled_back = chance % 2 == 0;
            ck_assert_int_eq(half_set_settle(&set, offset, rolled_back), model[offset] == 1);
            if (model[offset] == 1)
                model[offset] = rolled_back ? 3 : 2;
        }
        if (turn % 10000 == 9999) {
            ck_assert_int_eq(restore(&copy, &set), 0);
            assert_like(&copy, &set);
            struct half_set other = set;
            set = copy; /* goes on with what was restored */
            copy = other;
        }
    }
    uint32_t unsettled = 0;
    for (int64_t i = 0; i < next; i++) {
        enum half_state expected = model[i] == 1 ? HALF_UNSETTLED : model[i] == 2 ? HALF_COMMITTED : HALF_ROLLED_BACK;
        ck_assert_int_eq(half_set_state(&set, i), expected);
        unsettled += model[i] == 1;
    }
    ck_assert_uint_eq(set.unsettled, unsettled);
}
END_TEST

START_TEST(memory_of_one_that_waits_long)
{
    arrive(&set, 1);
    for (int i = 0; i < 3 * HALF_SET_REMEMBERED; i++) {
        arrive(&set, 1);
        half_set_settle(&set, set.next - 1, i % 2 == 0);
    }
    ck_assert_uint_eq(set.unsettled, 1);
    ck_assert_uint_le(set.capacity, 128);
    ck_assert_int_eq(half_set_state(&set, 0), HALF_UNSETTLED);
    ck_assert_int_eq(half_set_state(&set, 1), HALF_FORGOTTEN);
    ck_assert_int_eq(half_set_state(&set, set.next - 1), HALF_COMMITTED);
    ck_assert_int_eq(half_set_state(&set, set.next - 2), HALF_ROLLED_BACK);
    ck_assert_int_eq(half_set_state(&set, set.next - HALF_SET_REMEMBERED), HALF_ROLLED_BACK);
    ck_assert_int_eq(half_set_state(&set, set.next - HALF_SET_REMEMBERED - 1), HALF_FORGOTTEN);
    /* Settled so late that its bit belongs to a newer one, which keeps its own. */
    enum half_state newer = half_set_state(&set, 3 * (int64_t)HALF_SET_REMEMBERED);
    ck_assert(half_set_settle(&set, 0, newer == HALF_COMMITTED));
    ck_assert_int_eq(half_set_state(&set, 0), HALF_FORGOTTEN);
    ck_assert_int_eq(half_set_state(&set, 3 * (int64_t)HALF_SET_REMEMBERED), newer);
    ck_assert_int_eq(restore(&copy, &set), 0);
    assert_like(&copy, &set);
}
END_TEST

START_TEST(bad_snapshots)
{
    arrive(&set, 20);
    for (int64_t i = 0; i < 20; i += 2)
        half_set_settle(&set, i, true);
    arrive(&copy, 2);
    for (int fault = 0; fault < 8; fault++) {
        struct half_set_snapshot snapshot;
        ck_assert_int_eq(half_set_snapshot(&set, &snapshot), 0);
        Ledgermq__HalfSet *message = &snapshot.message;
        switch (fault) {
        case 0: message->next = -1; break;
        case 1: message->n_checks--; break;
        case 2: message->offset_deltas[3] = 0; break;
        case 3: message->offset_deltas[9] = 3; break;
        case 4: message->offset_deltas[0] = UINT64_MAX; break;
        case 5: message->rolled_back.len--; break;
        case 6: message->checks[0] = 65536; break;
        case 7: message->store_ms_deltas[1] = INT64_MAX; break;
        }
        ck_assert_msg(half_set_restore(&copy, message) == ERROR_MALFORMED, "fault %d was taken", fault);
        ck_assert_uint_eq(copy.unsettled, 2);
        half_set_snapshot_free(&snapshot);
    }
    /* A snapshot of before there were transactions. */
    ck_assert_int_eq(half_set_restore(&copy, NULL), 0);
    ck_assert_int_eq(copy.next, 0);
    ck_assert_int_eq(half_set_state(&copy, 0), HALF_NOT_SEEN);
}
END_TEST

/* ---- through metadata, as dledger calls it ---- */

static struct broker_state left, right;

static void open_two(void)
{
    broker_state_open(&left);
    broker_state_open(&right);
}

static void close_two(void)
{
    broker_state_close(&left);
    broker_state_close(&right);
}

static void apply_half(struct broker_state *on, int64_t offset, bool replay)
{
    struct message_dispatch dispatch = {.queue_offset = offset,
                                        .store_timestamp_ms = 1700000000000 + offset,
                                        .topic = SLICE_LITERAL(TOPIC_TRANS_HALF),
                                        .properties = SLICE_LITERAL("TRAN_MSG\1true\2CHECK_IMMUNITY_TIME_IN_SECONDS\1" "9")};
    metadata_apply_half(&on->broker, &dispatch, replay);
}

static void apply_end(struct broker_state *on, int64_t offset, bool rolled_back, bool replay)
{
    uint8_t trailer[TRANSACTION_TRAILER_MAX];
    size_t size = transaction_trailer(offset, rolled_back, trailer);
    metadata_apply_consumed(&on->broker, slice_of(trailer, size), replay);
}

START_TEST(applied_alike)
{
    struct broker_state *nodes[2] = {&left, &right};
    for (int i = 0; i < 2; i++) {
        struct broker_state *on = nodes[i];
        Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
        int64_t checked[2] = {1, 1}, dropped[1] = {2};
        on->leads = i == 0;
        for (int64_t offset = 0; offset < 5; offset++)
            apply_half(on, offset, false);
        if (i == 0) /* what a leader remembers of its own is no part of it */
            half_set_find(&on->broker.metadata->halves, 4)->settling = true;
        apply_end(on, 0, false, false);
        apply_end(on, 3, true, false);
        record.half_checks = checked;
        record.n_half_checks = 2;
        record.half_dropped = dropped;
        record.n_half_dropped = 1;
        broker_state_apply(on, 9, &record, false);
        const struct half_set *halves = &on->broker.metadata->halves;
        ck_assert_int_eq(half_set_state(halves, 0), HALF_COMMITTED);
        ck_assert_int_eq(half_set_state(halves, 2), HALF_ROLLED_BACK);
        ck_assert_int_eq(half_set_state(halves, 3), HALF_ROLLED_BACK);
        ck_assert_int_eq(half_set_find(halves, 1)->checks, 2);
        ck_assert_int_eq(half_set_find(halves, 1)->immunity_s, 9);
    }
    struct buffer a, b;
    buffer_init(&a, 0);
    buffer_init(&b, 0);
    ck_assert_int_eq(metadata_snapshot(&left.broker, 9, &a), 0);
    ck_assert_int_eq(metadata_snapshot(&right.broker, 9, &b), 0);
    ck_assert_uint_eq(a.size, b.size);
    ck_assert(memcmp(a.data, b.data, a.size) == 0);

    /* A node that starts from the snapshot and meets the older part of the log once more. */
    apply_half(&right, 5, false);
    ck_assert_int_eq(metadata_restore(&right.broker, buffer_slice(&a)), 0);
    ck_assert_int_eq(right.broker.metadata->halves.next, 5);
    apply_half(&right, 4, true);
    apply_end(&right, 4, false, true);
    ck_assert_int_eq(half_set_state(&right.broker.metadata->halves, 4), HALF_UNSETTLED);
    apply_end(&right, 4, false, false);
    ck_assert_int_eq(half_set_state(&right.broker.metadata->halves, 4), HALF_COMMITTED);
    buffer_close(&a);
    buffer_close(&b);
}
END_TEST

START_TEST(limit_of_halves)
{
    struct consume_queue queue = {.append_offset = 10, .max_offset = 10};
    ck_assert(transaction_takes_half(&left.broker, &queue));
    queue.append_offset = 10 + LIMIT_UNSETTLED_HALVES - 2;
    apply_half(&left, 0, false);
    ck_assert(transaction_takes_half(&left.broker, &queue));
    apply_half(&left, 1, false);
    ck_assert(!transaction_takes_half(&left.broker, &queue)); /* one waits for each that is on its way */
    apply_end(&left, 0, false, false);
    ck_assert(transaction_takes_half(&left.broker, &queue));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("transaction");
    TCase *halves = tcase_create("half_set");
    tcase_add_checked_fixture(halves, set_up, tear_down);
    tcase_set_timeout(halves, 60);
    tcase_add_test(halves, states);
    tcase_add_test(halves, walking);
    tcase_add_test(halves, checks_and_immunity);
    tcase_add_test(halves, like_a_plain_array);
    tcase_add_test(halves, memory_of_one_that_waits_long);
    tcase_add_test(halves, bad_snapshots);
    suite_add_tcase(suite, halves);
    TCase *applied = tcase_create("metadata");
    tcase_add_checked_fixture(applied, open_two, close_two);
    tcase_add_test(applied, applied_alike);
    tcase_add_test(applied, limit_of_halves);
    suite_add_tcase(suite, applied);
    return run_suite(suite);
}
