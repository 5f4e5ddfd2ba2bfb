/* Queue locks: one owner, renewals without a record, expiry by the leader's clock, a new leader's patience, releases, races on their way. */
#include "../lib/broker_state.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <stdlib.h>

#define G SLICE_LITERAL("g")
#define A SLICE_LITERAL("1.1.1.1@10")
#define B SLICE_LITERAL("2.2.2.2@20")

static struct broker_state state;
static struct broker *broker;
static int done_calls;
static int done_code;

static void set_up(void)
{
    broker_state_open(&state);
    broker = &state.broker;
    done_calls = 0;
    done_code = -1;
}

static void tear_down(void)
{
    broker_state_close(&state);
}

static void on_done(struct broker *given, void *context, int code)
{
    (void)context;
    ck_assert_ptr_eq(given, broker);
    done_calls++;
    done_code = code;
}

static bool granted;

/* queue_lock_try's answer for queue 0 of T. */
static int try_lock(struct slice client)
{
    struct queue_lock_item item = {SLICE_LITERAL("T"), 0, false};
    int rv = queue_lock_try(broker, G, client, &item, 1, on_done, NULL);
    granted = item.granted;
    return rv;
}

static void lock(struct slice client)
{
    ck_assert_int_eq(try_lock(client), 1);
    ck_assert(granted);
    broker_state_commit(&state);
    ck_assert_int_eq(done_code, 0);
}

static void beat(struct slice client, uint64_t connection_id)
{
    struct consumer_data consumer = {.group_name = G};
    struct heartbeat_data data = {.client_id = client, .consumers = &consumer, .consumer_count = 1};
    struct remoting_command command = {.version = 409};
    struct request request = {.command = &command, .reply_to = {.connection_id = connection_id}};
    ck_assert_int_eq(client_registry_heart_beat(broker, &request, &data), 0);
}

START_TEST(one_owner_at_a_time)
{
    lock(A);
    ck_assert_int_eq(try_lock(B), 0);
    ck_assert(!granted);
    ck_assert_int_eq(try_lock(A), 0); /* a renewal within 10 s needs no record */
    ck_assert(granted);
    ck_assert_uint_eq(state.appended, 1);
}
END_TEST

START_TEST(several_queues_share_a_record)
{
    lock(A);
    struct queue_lock_item items[3] = {{SLICE_LITERAL("T"), 0, false}, {SLICE_LITERAL("T"), 1, false}, {SLICE_LITERAL("U"), 0, false}};
    ck_assert_int_eq(queue_lock_try(broker, G, B, items, 3, on_done, NULL), 1);
    ck_assert(!items[0].granted && items[1].granted && items[2].granted);
    ck_assert_uint_eq(state.appended, 2);
    broker_state_commit(&state);
    ck_assert_uint_eq(broker->locks->count, 3);
    /* Groups do not see each other. */
    struct queue_lock_item other = {SLICE_LITERAL("T"), 0, false};
    ck_assert_int_eq(queue_lock_try(broker, SLICE_LITERAL("h"), B, &other, 1, on_done, NULL), 1);
    ck_assert(other.granted);
}
END_TEST

START_TEST(what_is_on_its_way_counts)
{
    ck_assert_int_eq(try_lock(A), 1);
    ck_assert_int_eq(try_lock(B), 0);
    ck_assert(!granted);
    ck_assert_int_eq(try_lock(A), 1); /* waits for the same */
    broker_state_fail(&state, ERROR_LEADERSHIP_LOST);
    ck_assert_int_eq(done_calls, 2);
    ck_assert_int_eq(done_code, ERROR_LEADERSHIP_LOST);
    ck_assert_uint_eq(broker->locks->count, 0);
    lock(B);
}
END_TEST

/* Release and lock by another one stand in the log when nobody waits for them any more: the owner's renewal must come behind them. */
START_TEST(what_may_still_come_counts)
{
    struct queue_lock_item item = {SLICE_LITERAL("T"), 0, false};

    lock(A);
    ck_assert_int_eq(queue_lock_release(broker, G, A, &item, 1, on_done, NULL), 1);
    ck_assert_int_eq(try_lock(B), 1);
    ck_assert(granted);
    broker_state_fail(&state, ERROR_QUORUM_TIMEOUT);
    ck_assert_int_eq(done_code, ERROR_QUORUM_TIMEOUT);
    ck_assert_int_eq(try_lock(A), 1);
    ck_assert(granted);
    broker_state_commit(&state);
    ck_assert_int_eq(try_lock(A), 0); /* what had been open is settled by what came behind it */
    ck_assert(granted);
}
END_TEST

START_TEST(renewals_are_recorded_every_ten_seconds)
{
    lock(A);
    int64_t recorded = broker->locks->entries->renewed_ms;
    broker_state_pass(&state, QUEUE_LOCK_RENEW_RECORD_MS - 1);
    ck_assert_int_eq(try_lock(A), 0);
    broker_state_pass(&state, 1);
    ck_assert_int_eq(try_lock(A), 1);
    broker_state_commit(&state);
    ck_assert_int_eq(broker->locks->entries->renewed_ms, recorded + QUEUE_LOCK_RENEW_RECORD_MS);
}
END_TEST

START_TEST(a_connected_owner_keeps_it_for_a_minute)
{
    beat(A, 1);
    lock(A);
    broker_state_pass(&state, 9000);
    ck_assert_int_eq(try_lock(A), 0); /* renewed, not recorded */
    broker_state_pass(&state, QUEUE_LOCK_EXPIRE_MS);
    ck_assert_int_eq(try_lock(B), 0);
    ck_assert(!granted);
    broker_state_pass(&state, 1);
    lock(B);
    ck_assert_int_eq(try_lock(A), 0);
    ck_assert(!granted);
}
END_TEST

START_TEST(an_owner_that_is_gone_keeps_it_for_half_a_minute)
{
    beat(A, 1);
    lock(A);
    client_registry_connection_closed(broker, 1);
    broker_state_pass(&state, QUEUE_LOCK_EXPIRE_OFFLINE_MS);
    ck_assert_int_eq(try_lock(B), 0);
    ck_assert(!granted);
    broker_state_pass(&state, 1);
    lock(B);
}
END_TEST

START_TEST(a_new_leader_allows_for_renewals_that_it_has_not_seen)
{
    struct queue_lock_table *table = broker->locks;
    /* As applied on a follower: nothing seen live. */
    ck_assert_int_eq(queue_lock_put(table, G, SLICE_LITERAL("T"), 0, A, env_now_ms(&broker->env), env_monotonic_us(&broker->env)), 0);
    broker_state_pass(&state, QUEUE_LOCK_EXPIRE_OFFLINE_MS + QUEUE_LOCK_RENEW_RECORD_MS);
    ck_assert_int_eq(try_lock(B), 0);
    ck_assert(!granted);
    broker_state_pass(&state, 1);
    lock(B);
}
END_TEST

START_TEST(a_clock_that_was_set_back_does_not_hold_locks_for_ever)
{
    ck_assert_int_eq(queue_lock_put(broker->locks, G, SLICE_LITERAL("T"), 0, A, env_now_ms(&broker->env) + 3600000, env_monotonic_us(&broker->env)), 0);
    ck_assert_int_eq(try_lock(B), 0); /* counts from now on */
    broker_state_pass(&state, QUEUE_LOCK_EXPIRE_OFFLINE_MS + 1);
    lock(B);
}
END_TEST

START_TEST(a_clock_that_is_ahead_of_the_earlier_leaders_ends_no_lock)
{
    ck_assert_int_eq(queue_lock_put(broker->locks, G, SLICE_LITERAL("T"), 0, A, env_now_ms(&broker->env) - 3600000, env_monotonic_us(&broker->env)), 0);
    ck_assert_int_eq(try_lock(B), 0);
    ck_assert(!granted);
    broker_state_pass(&state, QUEUE_LOCK_EXPIRE_OFFLINE_MS + 1);
    lock(B);
}
END_TEST

/* It leads, another one leads and sees a renewal that it does not record, and it leads again. */
START_TEST(renewals_of_an_earlier_term_are_not_the_last_ones)
{
    queue_lock_role_changed(broker->locks, 3);
    lock(A);
    queue_lock_role_changed(broker->locks, 4);
    broker_state_pass(&state, QUEUE_LOCK_RENEW_RECORD_MS - 1);
    queue_lock_role_changed(broker->locks, 5);
    broker_state_pass(&state, QUEUE_LOCK_EXPIRE_OFFLINE_MS);
    ck_assert_int_eq(try_lock(B), 0);
    ck_assert(!granted);
    broker_state_pass(&state, 2);
    lock(B);
}
END_TEST

START_TEST(expired_locks_make_room_in_a_full_table)
{
    for (int32_t queue_id = 1; queue_id <= (int32_t)QUEUE_LOCK_TABLE_MAX; queue_id++)
        ck_assert_int_eq(queue_lock_put(broker->locks, G, SLICE_LITERAL("T"), queue_id, A, env_now_ms(&broker->env), env_monotonic_us(&broker->env)), 0);
    ck_assert_int_eq(try_lock(B), -ERROR_BUSY);
    ck_assert_uint_eq(state.count, 0);
    broker_state_pass(&state, QUEUE_LOCK_EXPIRE_OFFLINE_MS + QUEUE_LOCK_RENEW_RECORD_MS + 1);
    ck_assert_int_eq(try_lock(B), -ERROR_BUSY);
    ck_assert_uint_eq(state.count, 1);
    broker_state_commit(&state);
    ck_assert_uint_lt(broker->locks->count, QUEUE_LOCK_TABLE_MAX);
    lock(B);
}
END_TEST

START_TEST(a_deleted_group_holds_no_locks)
{
    Ledgermq__MetadataRecord record = LEDGERMQ__METADATA_RECORD__INIT;
    char *groups[1] = {"g"};
    lock(A);
    record.n_delete_groups = 1;
    record.delete_groups = groups;
    broker_state_apply(&state, 60, &record, false);
    ck_assert_uint_eq(broker->locks->count, 0);
}
END_TEST

START_TEST(releases)
{
    struct queue_lock_item item = {SLICE_LITERAL("T"), 0, false};
    lock(A);
    ck_assert_int_eq(queue_lock_release(broker, G, B, &item, 1, on_done, NULL), 0); /* not the owner */
    ck_assert_int_eq(queue_lock_release(broker, G, A, &item, 1, on_done, NULL), 1);
    ck_assert_int_eq(try_lock(B), 1); /* behind the release */
    ck_assert(granted);
    broker_state_commit(&state);
    ck_assert_int_eq(try_lock(A), 0);
    ck_assert(!granted);
    queue_lock_release_client(broker, G, A);
    ck_assert_uint_eq(state.count, 0);
    queue_lock_release_client(broker, G, B);
    broker_state_commit(&state);
    ck_assert_uint_eq(broker->locks->count, 0);
}
END_TEST

START_TEST(refusals)
{
    state.leads = false;
    ck_assert_int_eq(try_lock(A), -ERROR_NOT_LEADER);
    state.leads = true;
    state.append_code = ERROR_BUSY;
    ck_assert_int_eq(try_lock(A), -ERROR_BUSY);
    ck_assert_uint_eq(broker->locks->count, 0);
    state.append_code = 0;
    ck_assert_int_eq(try_lock(SLICE_LITERAL("")), -ERROR_INVALID);
    lock(A);
    broker_state_delete_topic(&state, 50, "T", false);
    ck_assert_uint_eq(broker->locks->count, 0);
}
END_TEST

START_TEST(a_topic_deleted_while_a_record_is_on_its_way)
{
    ck_assert_int_eq(try_lock(A), 1);
    broker_state_delete_topic(&state, 50, "T", false);
    ck_assert_uint_eq(broker->locks->count, 0);
    broker_state_fail(&state, ERROR_LEADERSHIP_LOST);
    ck_assert_uint_eq(broker->locks->count, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("queue_lock");
    TCase *test = tcase_create("locks");
    tcase_set_timeout(test, 60); /* a full table, under sanitizers, on a busy machine */
    tcase_add_checked_fixture(test, set_up, tear_down);
    tcase_add_test(test, one_owner_at_a_time);
    tcase_add_test(test, several_queues_share_a_record);
    tcase_add_test(test, what_is_on_its_way_counts);
    tcase_add_test(test, what_may_still_come_counts);
    tcase_add_test(test, renewals_are_recorded_every_ten_seconds);
    tcase_add_test(test, a_connected_owner_keeps_it_for_a_minute);
    tcase_add_test(test, an_owner_that_is_gone_keeps_it_for_half_a_minute);
    tcase_add_test(test, a_new_leader_allows_for_renewals_that_it_has_not_seen);
    tcase_add_test(test, a_clock_that_was_set_back_does_not_hold_locks_for_ever);
    tcase_add_test(test, a_clock_that_is_ahead_of_the_earlier_leaders_ends_no_lock);
    tcase_add_test(test, renewals_of_an_earlier_term_are_not_the_last_ones);
    tcase_add_test(test, expired_locks_make_room_in_a_full_table);
    tcase_add_test(test, a_deleted_group_holds_no_locks);
    tcase_add_test(test, releases);
    tcase_add_test(test, refusals);
    tcase_add_test(test, a_topic_deleted_while_a_record_is_on_its_way);
    suite_add_tcase(suite, test);
    return run_suite(suite);
}
