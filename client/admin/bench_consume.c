/* `mqadmin bench --consume`: how fast a broker gives out what a topic holds. Each queue has one pull under way, as at a
 * stock client, and asks again as soon as it is answered; nothing is committed. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "client/admin/bench.h"
#include "proto/headers.h"
#include "proto/request_code.h"
#include "proto/response_code.h"

#define OPAQUE_BASE (1u << 30)
#define WAIT_NS 20000000LL
#define SILENCE_NS 10000000000LL
#define PULL_COUNT 32
#define PULL_SUBSCRIPTION 4 /* the request brings its expression */

struct queue {
    int64_t offset, end, asked_ns;
};

struct consume {
    struct admin *admin;
    const struct bench_options *options;
    const char *address;
    struct bench_connection connection;
    struct queue *queues;
    int open; /* queues that are not read to their end */
    uint64_t messages, looked_at, bytes, pulls;
    int64_t begin_ns, end_ns, last_answer_ns;
    double cpu_start, cpu_end;
    struct bench_histogram latency;
    struct bench_codes errors;
};

static bool find_offset(struct consume *consume, int32_t code, int queue, int64_t *offset)
{
    char number[16];
    struct remoting_response response;
    struct offset_response_header header;
    struct error error;
    snprintf(number, sizeof number, "%d", queue);
    const struct remoting_field fields[] = {{"topic", consume->options->topic}, {"queueId", number}, {NULL, NULL}};
    if (!admin_call(consume->admin, consume->address, code, fields, slice_of(NULL, 0), &response))
        return false;
    bool ok = offset_response_header_decode(&response.command, &header, &error) == 0;
    *offset = ok ? header.offset : 0;
    remoting_response_close(&response);
    if (!ok)
        admin_fail(consume->admin, "%s: %s", consume->address, error.message);
    return ok;
}

static bool ask(struct consume *consume, int number, int64_t now)
{
    const struct bench_options *options = consume->options;
    struct queue *queue = &consume->queues[number];
    struct remoting_writer writer;
    struct pull_message_request_header header = {
        .consumer_group = slice_of_text(options->group),
        .topic = slice_of_text(options->topic),
        .queue_id = number,
        .queue_offset = queue->offset,
        .max_msg_nums = PULL_COUNT,
        .sys_flag = PULL_SUBSCRIPTION,
        .subscription = slice_of_text(options->expression),
        .expression_type = slice_of_text(options->expression_type),
    };
    remoting_writer_begin_request(&writer, &consume->connection.out, (uint8_t)options->serialize_type,
                                  REQUEST_PULL_MESSAGE, (int32_t)(OPAQUE_BASE | (uint32_t)number), 0);
    pull_message_request_header_encode(&header, &writer);
    remoting_writer_end(&writer, 0);
    queue->asked_ns = now;
    return !consume->connection.out.failed;
}

static uint64_t count_records(struct slice body)
{
    uint64_t count = 0;
    while (body.size >= 4) {
        uint32_t size = load_u32(body.data);
        if (size < 4 || size > body.size)
            break;
        body = slice_of(body.data + size, body.size - size);
        count++;
    }
    return count;
}

/* False: the run must end. */
static bool take(struct consume *consume, uint8_t *frame, size_t size, int64_t now)
{
    struct remoting_command command;
    struct pull_message_response_header header;
    struct error error;
    if (remoting_command_decode(frame, size, &command) != 0) {
        admin_fail(consume->admin, "%s sends what is no frame", consume->address);
        return false;
    }
    uint32_t number = (uint32_t)command.opaque & (OPAQUE_BASE - 1);
    if (!remoting_is_response(&command) || command.opaque < (int32_t)OPAQUE_BASE ||
        number >= (uint32_t)consume->options->queues)
        return true;
    struct queue *queue = &consume->queues[number];
    bool found = command.code == RESPONSE_SUCCESS;
    if (!found && command.code != RESPONSE_PULL_NOT_FOUND && command.code != RESPONSE_PULL_RETRY_IMMEDIATELY &&
        command.code != RESPONSE_PULL_OFFSET_MOVED) {
        bench_codes_add(&consume->errors, command.code);
        admin_fail(consume->admin, "pull of queue %u at %lld: code %d %.*s", number, (long long)queue->offset,
                   command.code, ADMIN_SLICE(command.remark));
        return false;
    }
    if (pull_message_response_header_decode(&command, &header, &error) != 0) {
        admin_fail(consume->admin, "pull of queue %u at %lld: %s", number, (long long)queue->offset, error.message);
        return false;
    }
    consume->last_answer_ns = now;
    consume->pulls++;
    bench_histogram_add(&consume->latency, now - queue->asked_ns);
    if (found) {
        consume->messages += count_records(command.body);
        consume->bytes += command.body.size;
    }
    if (header.next_begin_offset > queue->offset) {
        consume->looked_at += (uint64_t)(header.next_begin_offset - queue->offset);
        queue->offset = header.next_begin_offset;
    }
    if (queue->offset >= queue->end) {
        consume->open--;
        return true;
    }
    return ask(consume, (int)number, now);
}

static bool loop(struct consume *consume, int epoll)
{
    const struct bench_options *options = consume->options;
    int64_t now = bench_now_ns(), stop_ns = now + (int64_t)(options->duration_s * 1e9);
    consume->begin_ns = consume->last_answer_ns = now;
    for (int i = 0; i < options->queues; i++)
        if (consume->queues[i].offset < consume->queues[i].end) {
            consume->open++;
            if (!ask(consume, i, now))
                return false;
        }
    while (consume->open > 0 && now < stop_ns) {
        struct epoll_event event;
        uint8_t *frame;
        size_t size;
        int rv;
        if (!bench_flush(&consume->connection)) {
            admin_fail(consume->admin, "the connection to %s is lost", consume->address);
            return false;
        }
        if (epoll_pwait2(epoll, &event, 1, &(struct timespec){0, WAIT_NS}, NULL) > 0 &&
            (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && !bench_read(&consume->connection)) {
            admin_fail(consume->admin, "%s closed the connection", consume->address);
            return false;
        }
        now = bench_now_ns();
        while ((rv = bench_next(&consume->connection, &frame, &size)) > 0)
            if (!take(consume, frame, size, now))
                return false;
        if (rv < 0 || now - consume->last_answer_ns > SILENCE_NS) {
            admin_fail(consume->admin, rv < 0 ? "%s sends what is no frame" : "%s does not answer", consume->address);
            return false;
        }
    }
    consume->end_ns = now;
    return true;
}

static void report(const struct consume *consume)
{
    const struct bench_options *options = consume->options;
    double seconds = (double)(consume->end_ns - consume->begin_ns) / 1e9;
    double per_second = seconds > 0 ? 1 / seconds : 0, looked_at = (double)consume->looked_at;
    double cpu = bench_per_million(consume->cpu_start, consume->cpu_end, consume->looked_at);
    bool whole = consume->open == 0;
    if (options->json) {
        printf("{\"mode\":\"consume\",\"queues\":%d,\"seconds\":%.6f,\"messages\":%llu,\"looked_at\":%llu,\"msg_s\":%.1f,"
               "\"looked_at_s\":%.1f,\"mb_s\":%.3f,\"pulls\":%llu,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,"
               "\"cpu_s_per_million\":%.2f,\"whole\":%s}\n",
               options->queues, seconds, (unsigned long long)consume->messages, (unsigned long long)consume->looked_at,
               (double)consume->messages * per_second, looked_at * per_second, (double)consume->bytes / 1e6 * per_second,
               (unsigned long long)consume->pulls, bench_histogram_us(&consume->latency, 50),
               bench_histogram_us(&consume->latency, 99), (double)consume->latency.max_ns / 1e3, cpu,
               whole ? "true" : "false");
        return;
    }
    printf("%d queue%s: %.0f messages/s of %.0f looked at, %.1f MB/s in %.3f s%s\n", options->queues,
           options->queues > 1 ? "s" : "", (double)consume->messages * per_second, looked_at * per_second,
           (double)consume->bytes / 1e6 * per_second, seconds, whole ? "" : ", not read to the end");
    printf("pulls %llu, us: p50 %.0f  p99 %.0f  max %.0f\n", (unsigned long long)consume->pulls,
           bench_histogram_us(&consume->latency, 50), bench_histogram_us(&consume->latency, 99),
           (double)consume->latency.max_ns / 1e3);
    if (options->pid_count > 0)
        printf("CPU seconds per million looked at: watched processes %.2f\n", cpu);
}

int bench_consume(struct admin *admin, const struct bench_options *options, const char *address)
{
    struct consume *consume = calloc(1, sizeof *consume);
    int status = ADMIN_FAILED;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (consume == NULL || epoll < 0 || (consume->queues = calloc((size_t)options->queues, sizeof *consume->queues)) == NULL) {
        admin_fail(admin, "out of memory");
        goto free_all;
    }
    consume->admin = admin;
    consume->options = options;
    consume->address = address;
    consume->connection.descriptor = -1;
    for (int i = 0; i < options->queues; i++)
        if (!find_offset(consume, REQUEST_GET_MIN_OFFSET, i, &consume->queues[i].offset) ||
            !find_offset(consume, REQUEST_GET_MAX_OFFSET, i, &consume->queues[i].end))
            goto free_all;
    if (!bench_connect(&consume->connection, epoll, address, 0)) {
        admin_fail(admin, "no connection to %s", address);
        goto free_all;
    }
    consume->cpu_start = bench_cpu_of_watched(options);
    if (loop(consume, epoll)) {
        consume->cpu_end = bench_cpu_of_watched(options);
        report(consume);
        status = ADMIN_OK;
    }
    bench_connection_close(&consume->connection);
free_all:
    if (epoll >= 0)
        close(epoll);
    if (consume != NULL)
        free(consume->queues);
    free(consume);
    return status;
}
