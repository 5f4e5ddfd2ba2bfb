/* What consumers are made of: who gets which queue, messages that wait, offsets and their file, the pool, rates. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/allocate_message_queue.h"
#include "client/consume_pool.h"
#include "client/consumer_stats.h"
#include "client/offset_store.h"
#include "client/process_queue.h"
#include "proto/md5.h"
#include "tests/lib/run_suite.h"

/* --- allocation ---- */

/* What RocketMQ 4.9.8's classes give: the member of each queue. The first half (rounded up) of the queues is broker-a's;
 * member i is "10.0.0.<i * 7 % 11 + 1>@<1000 + i * 13>" before sorting. */
static const struct {
    int strategy;
    int queues, members;
    const char *owners;
} allocations[] = {
    {0, 1, 1, "0"},
    {0, 4, 1, "0 0 0 0"},
    {0, 4, 2, "0 0 1 1"},
    {0, 4, 3, "0 0 1 2"},
    {0, 8, 3, "0 0 0 1 1 1 2 2"},
    {0, 3, 5, "0 1 2"},
    {0, 10, 4, "0 0 0 1 1 1 2 2 3 3"},
    {0, 16, 5, "0 0 0 0 1 1 1 2 2 2 3 3 3 4 4 4"},
    {0, 17, 16, "0 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"},
    {1, 1, 1, "0"},
    {1, 4, 1, "0 0 0 0"},
    {1, 4, 2, "0 1 0 1"},
    {1, 4, 3, "0 1 2 0"},
    {1, 8, 3, "0 1 2 0 1 2 0 1"},
    {1, 3, 5, "0 1 2"},
    {1, 10, 4, "0 1 2 3 0 1 2 3 0 1"},
    {1, 16, 5, "0 1 2 3 4 0 1 2 3 4 0 1 2 3 4 0"},
    {1, 17, 16, "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 0"},
    {2, 1, 1, "0"},
    {2, 4, 1, "0 0 0 0"},
    {2, 4, 2, "1 1 1 1"},
    {2, 4, 3, "1 1 2 2"},
    {2, 8, 3, "1 1 2 0 2 2 0 2"},
    {2, 3, 5, "0 0 4"},
    {2, 10, 4, "0 0 3 1 0 3 3 1 3 1"},
    {2, 16, 5, "0 0 4 1 0 1 0 4 4 4 1 4 1 2 1 0"},
    {2, 17, 16, "1 1 13 0 9 6 8 4 14 10 12 4 4 5 14 15 1"},
};

START_TEST(queues_are_shared_as_rocketmq_does)
{
    struct ledgermq_queue queues[20] = {0};
    char names[20][40], owners[200];
    const char *members[20];
    uint8_t mine[20];
    int owner[20], half = (allocations[_i].queues + 1) / 2;
    for (int i = 0; i < allocations[_i].queues; i++) {
        strcpy(queues[i].topic, "TopicTest");
        strcpy(queues[i].broker_name, i < half ? "broker-a" : "broker-b");
        queues[i].queue_id = i < half ? i : i - half;
        owner[i] = -1;
    }
    size_t count = (size_t)allocations[_i].members;
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "10.0.0.%zu@%zu", i * 7 % 11 + 1, 1000 + i * 13);
        members[i] = names[i];
    }
    allocate_sort_members(members, count);
    for (size_t self = 0; self < count; self++) {
        ck_assert_int_eq(allocate_message_queue((enum ledgermq_allocate)allocations[_i].strategy, queues,
                                                (size_t)allocations[_i].queues, members, count, self, mine),
                         0);
        for (int i = 0; i < allocations[_i].queues; i++) {
            ck_assert(!mine[i] || owner[i] < 0);
            owner[i] = mine[i] ? (int)self : owner[i];
        }
    }
    size_t at = 0;
    for (int i = 0; i < allocations[_i].queues; i++)
        at += (size_t)snprintf(owners + at, sizeof owners - at, "%s%d", i == 0 ? "" : " ", owner[i]);
    ck_assert_str_eq(owners, allocations[_i].owners);
}
END_TEST

START_TEST(md5_of_known_texts)
{
    static const struct {
        const char *text, *digest;
    } known[] = {
        {"", "d41d8cd98f00b204e9800998ecf8427e"},
        {"abc", "900150983cd24fb0d6963f7d28e17f72"},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
         "57edf4a22be3c955ac49da2e2107b67a"},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint8_t digest[MD5_SIZE];
        char text[33];
        md5(slice_of_text(known[i].text), digest);
        for (unsigned k = 0; k < MD5_SIZE; k++)
            snprintf(text + 2 * k, 3, "%02x", digest[k]);
        ck_assert_str_eq(text, known[i].digest);
    }
}
END_TEST

/* --- messages that wait ---- */

/* Offsets from first on, each so many bytes. */
static struct pulled *pulled_of(int64_t first, size_t count, size_t bytes)
{
    struct stored_messages *messages = stored_messages_new();
    messages->messages = calloc(count, sizeof *messages->messages);
    messages->capacity = count;
    for (size_t i = 0; i < count; i++)
        messages->messages[i] =
            (struct ledgermq_stored_message){.queue_offset = first + (int64_t)i, .body_size = bytes};
    messages->result.messages = messages->messages;
    messages->result.count = count;
    return pulled_new(messages);
}

static void put(struct process_queue *queue, int64_t first, size_t count, size_t bytes, int expected)
{
    struct pulled *pulled = pulled_of(first, count, bytes);
    ck_assert_int_eq(process_queue_put(queue, pulled), expected);
    pulled_release(pulled);
}

START_TEST(the_offset_moves_over_what_left_without_a_gap)
{
    struct process_queue queue;
    process_queue_init(&queue);
    ck_assert_int_eq(process_queue_commit_offset(&queue), -1);
    put(&queue, 100, 32, 10, 0);
    put(&queue, 140, 100, 10, 0); /* a filter left some out */
    ck_assert_uint_eq(queue.count, 132);
    ck_assert_uint_eq(queue.bytes, 1320);
    ck_assert_int_eq(process_queue_span(&queue), 139);
    ck_assert_int_eq(process_queue_commit_offset(&queue), 100);
    process_queue_remove(&queue, 101);
    process_queue_remove(&queue, 101);
    process_queue_remove(&queue, 135); /* not there */
    ck_assert_int_eq(process_queue_commit_offset(&queue), 100);
    ck_assert_uint_eq(queue.count, 131);
    ck_assert_ptr_null(process_queue_find(&queue, 101));
    process_queue_remove(&queue, 100);
    ck_assert_int_eq(process_queue_commit_offset(&queue), 102);
    for (int64_t offset = 239; offset >= 102; offset--)
        process_queue_remove(&queue, offset);
    ck_assert_int_eq(process_queue_commit_offset(&queue), 240);
    ck_assert_uint_eq(queue.count + queue.bytes + queue.size, 0);
    put(&queue, 239, 1, 1, ERROR_MALFORMED); /* was here before */
    ck_assert_uint_eq(queue.size, 0);
    put(&queue, 240, 1, 1, 0);
    process_queue_clear(&queue);
    ck_assert_int_eq(process_queue_commit_offset(&queue), -1);
}
END_TEST

START_TEST(messages_are_taken_in_order_and_may_come_again)
{
    struct process_queue queue;
    struct queued_message *message;
    process_queue_init(&queue);
    put(&queue, 0, 3, 1, 0);
    for (int64_t offset = 0; offset < 3; offset++) {
        message = process_queue_next(&queue);
        ck_assert_int_eq(message->message->queue_offset, offset);
        message->taken = true;
    }
    ck_assert_ptr_null(process_queue_next(&queue));
    ck_assert_ptr_null(process_queue_again(&queue));
    process_queue_find(&queue, 1)->again = true;
    ck_assert_int_eq(process_queue_again(&queue)->message->queue_offset, 1);
    process_queue_remove(&queue, 1);
    ck_assert_ptr_null(process_queue_again(&queue));
    process_queue_find(&queue, 2)->taken = false;
    ck_assert_int_eq(process_queue_next(&queue)->message->queue_offset, 2);
    process_queue_clear(&queue);
}
END_TEST

START_TEST(a_message_lives_as_long_as_somebody_uses_it)
{
    struct process_queue queue;
    process_queue_init(&queue);
    put(&queue, 0, 2, 1, 0);
    struct pulled *pulled = process_queue_next(&queue)->pulled;
    pulled->users++;
    process_queue_remove(&queue, 0);
    process_queue_remove(&queue, 1);
    ck_assert_uint_eq(pulled->users, 1);
    ck_assert_uint_eq(pulled->messages->result.count, 2);
    pulled_release(pulled);
    process_queue_clear(&queue);
}
END_TEST

/* RocketMQ pauses above 1000 messages, 100 MiB, a distance of 2000: the limits themselves still pass. */
START_TEST(reading_pauses_above_the_limits)
{
    const struct process_queue_limits limits = {1000, 100u << 20, 2000};
    struct process_queue queue;
    process_queue_init(&queue);
    ck_assert_ptr_null(process_queue_full(&queue, &limits));
    put(&queue, 0, 1000, 1, 0);
    ck_assert_ptr_null(process_queue_full(&queue, &limits));
    put(&queue, 1000, 1, 1, 0);
    ck_assert_str_eq(process_queue_full(&queue, &limits), "messages");
    process_queue_remove(&queue, 500);
    ck_assert_ptr_null(process_queue_full(&queue, &limits));
    process_queue_clear(&queue);

    put(&queue, 0, 100, 1u << 20, 0);
    ck_assert_ptr_null(process_queue_full(&queue, &limits));
    put(&queue, 100, 1, 1, 0);
    ck_assert_str_eq(process_queue_full(&queue, &limits), "bytes");
    process_queue_clear(&queue);

    put(&queue, 0, 1, 1, 0);
    put(&queue, 2000, 1, 1, 0);
    ck_assert_ptr_null(process_queue_full(&queue, &limits));
    put(&queue, 2001, 1, 1, 0);
    ck_assert_str_eq(process_queue_full(&queue, &limits), "span");
    const struct process_queue_limits in_order = {1000, 100u << 20, 0};
    ck_assert_ptr_null(process_queue_full(&queue, &in_order));
    process_queue_clear(&queue);
}
END_TEST

/* --- offsets ---- */

static const struct ledgermq_queue first = {.topic = "T", .broker_name = "broker-a", .queue_id = 1};
static const struct ledgermq_queue second = {.topic = "T", .broker_name = "broker-a", .queue_id = 11};

START_TEST(offsets_are_dirty_until_they_are_told)
{
    struct offset_store store;
    offset_store_init(&store);
    ck_assert_int_eq(offset_store_read(&store, &first), -1);
    ck_assert(offset_store_update(&store, &first, 5, true));
    ck_assert(offset_store_find(&store, &first)->dirty);
    offset_store_find(&store, &first)->dirty = false;
    offset_store_update(&store, &first, 4, true); /* never back by itself */
    offset_store_update(&store, &first, 5, false);
    ck_assert_int_eq(offset_store_read(&store, &first), 5);
    ck_assert(!offset_store_find(&store, &first)->dirty);
    offset_store_update(&store, &first, 4, false); /* but on demand */
    ck_assert_int_eq(offset_store_read(&store, &first), 4);
    ck_assert(offset_store_find(&store, &first)->dirty);
    ck_assert_int_eq(offset_store_read(&store, &second), -1);
    offset_store_remove(&store, &first);
    offset_store_remove(&store, &first);
    ck_assert_int_eq(offset_store_read(&store, &first), -1);
    offset_store_close(&store);
}
END_TEST

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

START_TEST(offsets_are_kept_in_a_file_of_rocketmq)
{
    struct offset_store store;
    struct error error = {0};
    char folder[] = "/tmp/ledgermq-offsets-XXXXXX", path[200], text[400];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    offset_store_init(&store);
    ck_assert_int_eq(offset_store_open_file(&store, folder, "1.2.3.4@x", "g", &error), 0);
    ck_assert_ptr_null(store.entries);
    offset_store_update(&store, &first, 5, false);
    offset_store_update(&store, &second, 1234567890123, false);
    ck_assert_int_eq(offset_store_save(&store, &error), 0);
    ck_assert(!offset_store_find(&store, &second)->dirty);
    offset_store_close(&store);
    snprintf(path, sizeof path, "%s/1.2.3.4@x/g/offsets.json", folder);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    ck_assert_str_eq(text, "{\"offsetTable\":{{\"brokerName\":\"broker-a\",\"queueId\":1,\"topic\":\"T\"}:5,"
                           "{\"brokerName\":\"broker-a\",\"queueId\":11,\"topic\":\"T\"}:1234567890123}}");

    offset_store_init(&store);
    ck_assert_int_eq(offset_store_open_file(&store, folder, "1.2.3.4@x", "g", &error), 0);
    ck_assert_int_eq(offset_store_read(&store, &first), 5);
    ck_assert_int_eq(offset_store_read(&store, &second), 1234567890123);
    ck_assert(!offset_store_find(&store, &first)->dirty);
    /* Nothing changed, so nothing is written. */
    unlink(path);
    ck_assert_int_eq(offset_store_save(&store, &error), 0);
    ck_assert_int_eq(access(path, F_OK), -1);
    offset_store_close(&store);

    /* As RocketMQ writes it, with white space. */
    write_file(path, "{\n\t\"offsetTable\":{{\n\t\t\t\"brokerName\":\"broker-a\",\n\t\t\t\"queueId\":1,\n\t\t\t\"topic\":\"T\"\n"
                     "\t\t}:7\n\t}\n}");
    offset_store_init(&store);
    ck_assert_int_eq(offset_store_open_file(&store, folder, "1.2.3.4@x", "g", &error), 0);
    ck_assert_int_eq(offset_store_read(&store, &first), 7);
    offset_store_close(&store);

    write_file(path, "{\"offsetTable\":");
    offset_store_init(&store);
    ck_assert_int_eq(offset_store_open_file(&store, folder, "1.2.3.4@x", "g", &error), ERROR_DAMAGED);
    ck_assert_ptr_nonnull(strstr(error.message, "offsets.json holds no offsets"));
    offset_store_close(&store);
    offset_store_init(&store);
    ck_assert_int_eq(offset_store_open_file(&store, path, "c", "g", &error), ERROR_IO); /* a file is no folder */
    ck_assert_ptr_nonnull(strstr(error.message, "cannot make the folder"));
    offset_store_close(&store);
    /* A folder that vanished: the offsets stay dirty. */
    unlink(path);
    offset_store_init(&store);
    ck_assert_int_eq(offset_store_open_file(&store, folder, "1.2.3.4@x", "g", &error), 0);
    offset_store_update(&store, &first, 8, false);
    snprintf(path, sizeof path, "%s/1.2.3.4@x/g", folder);
    rmdir(path);
    ck_assert_int_eq(offset_store_save(&store, &error), ERROR_IO);
    ck_assert(offset_store_find(&store, &first)->dirty);
    offset_store_close(&store);
    snprintf(path, sizeof path, "%s/1.2.3.4@x", folder);
    rmdir(path);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* --- the pool ---- */

struct counting_job {
    struct pool_job job;
    struct consume_pool *pool;
    atomic_int *side_by_side, *most, *ran;
};

static void counting_run(struct pool_job *base)
{
    struct counting_job *job = (struct counting_job *)base;
    int now = atomic_fetch_add(job->side_by_side, 1) + 1, most = atomic_load(job->most);
    while (now > most && !atomic_compare_exchange_weak(job->most, &most, now))
        ;
    ck_assert(consume_pool_on_thread(job->pool));
    usleep(2000);
    atomic_fetch_sub(job->side_by_side, 1);
    atomic_fetch_add(job->ran, 1);
}

START_TEST(a_pool_runs_as_many_jobs_as_it_has_threads)
{
    static const char idle[] = "0 jobs wait for 3 threads\nthread 0: idle\nthread 1: idle\nthread 2: idle\n";
    struct consume_pool *pool;
    struct error error;
    struct counting_job jobs[60];
    struct buffer text;
    atomic_int side_by_side = 0, most = 0, ran = 0;
    ck_assert_int_eq(consume_pool_new(3, &pool, &error), 0);
    ck_assert(!consume_pool_on_thread(pool));
    for (int i = 0; i < 60; i++) {
        jobs[i] = (struct counting_job){{counting_run, NULL}, pool, &side_by_side, &most, &ran};
        consume_pool_submit(pool, &jobs[i].job);
    }
    while (atomic_load(&ran) < 60)
        usleep(1000);
    ck_assert_int_eq(most, 3);
    buffer_init(&text, 0);
    for (int i = 0; i < 10000; i++) { /* a job counts itself before its thread is idle */
        text.size = 0;
        consume_pool_describe(pool, &text);
        buffer_append_u8(&text, 0);
        if (strcmp((char *)text.data, idle) == 0)
            break;
        usleep(1000);
    }
    ck_assert_str_eq((char *)text.data, idle);
    buffer_close(&text);
    consume_pool_free(pool);
}
END_TEST

START_TEST(rates_are_those_of_the_last_minute)
{
    struct consumer_stats stats = {0};
    struct consumer_status status;
    int64_t now = 1000000;
    for (int i = 0; i < 120; i++, now += 1000) {
        consumer_stats_pulled(&stats, now, 20, i < 60 ? 1000 : 30);
        consumer_stats_consumed(&stats, now, 5, i < 60 ? 1000 : 27, 3);
    }
    consumer_stats_read(&stats, now, &status);
    ck_assert_double_eq_tol(status.pull_tps, 30, 0.6);
    ck_assert_double_eq_tol(status.consume_ok_tps, 27, 0.6);
    ck_assert_double_eq_tol(status.consume_failed_tps, 3, 0.1);
    ck_assert_double_eq_tol(status.pull_rt_ms, 20, 0.001);
    ck_assert_double_eq_tol(status.consume_rt_ms, 5, 0.001);
    ck_assert_uint_eq(status.consume_failed_messages, 360);
    consumer_stats_read(&stats, now + 3700 * 1000, &status);
    ck_assert_uint_eq(status.consume_failed_messages, 0);
    ck_assert_double_eq_tol(status.pull_tps, 0, 1.1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_consumer");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 30);
    tcase_add_loop_test(tcase, queues_are_shared_as_rocketmq_does, 0,
                        (int)(sizeof allocations / sizeof allocations[0]));
    tcase_add_test(tcase, md5_of_known_texts);
    tcase_add_test(tcase, the_offset_moves_over_what_left_without_a_gap);
    tcase_add_test(tcase, messages_are_taken_in_order_and_may_come_again);
    tcase_add_test(tcase, a_message_lives_as_long_as_somebody_uses_it);
    tcase_add_test(tcase, reading_pauses_above_the_limits);
    tcase_add_test(tcase, offsets_are_dirty_until_they_are_told);
    tcase_add_test(tcase, offsets_are_kept_in_a_file_of_rocketmq);
    tcase_add_test(tcase, a_pool_runs_as_many_jobs_as_it_has_threads);
    tcase_add_test(tcase, rates_are_those_of_the_last_minute);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
