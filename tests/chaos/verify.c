/* The check of tests/chaos: every node holds the same queues, without a hole, and every acknowledged message at its place, once.
 *
 * 1. Each queue is read from offset 0 to its maximum at each node. Place k must say that it is queue offset k, and hold a message that was sent to that
 *    queue, whole.
 * 2. The first node's contents are noted by message number; the others' must be the same, place for place.
 * 3. What was acknowledged, or seen by a consumer, must be where it was then; what was sent after an acknowledgement of
 *    its queue lies behind it.
 * 4. The group's offsets must be at least what a commit was answered for, and at most what was ever asked for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/remoting_client.h"
#include "proto/message.h"
#include "proto/request_code.h"
#include "proto/response_code.h"
#include "tests/chaos/load.h"

#define TIMEOUT_MS 10000
#define TRIES 5

struct check {
    struct load *load;
    struct remoting_client *client;
    int64_t *place; /* by message number: queue offset + 1 at the first node */
    char *body;
};

static bool ask(struct check *check, const char *address, int32_t code, const struct remoting_field *fields, struct remoting_response *response)
{
    struct error error = {0};
    for (int try = 0; try < TRIES; try++)
        if (remoting_client_invoke(check->client, address, code, fields, SLICE_LITERAL(""), TIMEOUT_MS, response, &error) == 0)
            return true;
    problem(check->load, "%s does not answer request %d: %s", address, code, error.message);
    return false;
}

static int64_t offset_answer(struct check *check, const char *address, int32_t code, const struct remoting_field *fields)
{
    struct remoting_response response;
    int64_t offset = -1;
    if (!ask(check, address, code, fields, &response))
        return -1;
    if (response.command.code != 0 || !slice_to_i64(remoting_ext(&response.command, "offset"), &offset)) {
        problem(check->load, "%s: request %d is answered with code %d", address, code, response.command.code);
        offset = -1;
    }
    remoting_response_close(&response);
    return offset;
}

static struct epoch *epoch_of(struct load *load, int64_t number)
{
    int i = load->epoch;
    while (i > 0 && load->epochs[i].first > number)
        i--;
    return &load->epochs[i];
}

/* One record, which ought to be place k of the queue. */
static void look(struct check *check, const char *address, bool first, int queue, int64_t k, const struct message_record *record)
{
    struct load *load = check->load;
    char head[17] = "", *end;
    if (record->queue_id != queue || record->queue_offset != k)
        problem(load, "%s: place %lld of queue %d says queue %d, offset %lld", address, (long long)k, queue, record->queue_id,
                (long long)record->queue_offset);
    if (record->body.size == (size_t)load->size)
        memcpy(head, record->body.data, 16);
    int64_t number = (int64_t)strtoull(head, &end, 16);
    if (head[0] == '\0' || *end != '\0' || number < 0 || number >= load->number || number % load->queues != queue) {
        problem(load, "%s: place %lld of queue %d holds what was never sent there", address, (long long)k, queue);
        return;
    }
    body_fill(check->body, load->size, number);
    if (memcmp(check->body, record->body.data, (size_t)load->size) != 0)
        problem(load, "%s: message %lld is damaged", address, (long long)number);
    if (!first) {
        if (check->place[number] != k + 1)
            problem(load, "%s: message %lld is at %lld, at the first node at %lld", address, (long long)number, (long long)k,
                    (long long)check->place[number] - 1);
        return;
    }
    if (check->place[number] != 0) {
        epoch_of(load, number)->twice++;
        problem(load, "%s: message %lld is there twice: at %lld and %lld of queue %d", address, (long long)number,
                (long long)check->place[number] - 1, (long long)k, queue);
    }
    check->place[number] = k + 1;
}

/* How many are there; -1: it cannot be read. */
static int64_t read_queue(struct check *check, const char *address, bool first, int queue)
{
    char queue_text[16], offset_text[24];
    snprintf(queue_text, sizeof queue_text, "%d", queue);
    const struct remoting_field max_fields[] = {{"topic", TOPIC}, {"queueId", queue_text}, {NULL, NULL}};
    int64_t at = 0, end = offset_answer(check, address, REQUEST_GET_MAX_OFFSET, max_fields);
    while (at < end) {
        struct remoting_response response;
        struct message_record record;
        snprintf(offset_text, sizeof offset_text, "%lld", (long long)at);
        const struct remoting_field fields[] = {{"consumerGroup", "chaos-check"}, {"topic", TOPIC}, {"queueId", queue_text}, {"queueOffset", offset_text},
                                                {"maxMsgNums", "64"}, {"sysFlag", "4"}, {"commitOffset", "0"}, {"suspendTimeoutMillis", "0"},
                                                {"subscription", "*"}, {"subVersion", "0"}, {"expressionType", "TAG"}, {NULL, NULL}};
        if (!ask(check, address, REQUEST_PULL_MESSAGE, fields, &response))
            return -1;
        int64_t before = at;
        struct slice rest = response.command.body;
        while (response.command.code == 0 && rest.size > 0) {
            if (message_record_decode(rest, true, &record) != 0) {
                problem(check->load, "%s: place %lld of queue %d is damaged", address, (long long)at, queue);
                break;
            }
            look(check, address, first, queue, at++, &record);
            rest = slice_of(rest.data + record.total_size, rest.size - record.total_size);
        }
        int32_t code = response.command.code;
        remoting_response_close(&response);
        if (at == before) {
            problem(check->load, "%s: place %lld of %lld of queue %d cannot be read: code %d", address, (long long)at, (long long)end, queue, code);
            return -1;
        }
    }
    return end;
}

static void check_places(struct check *check)
{
    struct load *load = check->load;
    for (int64_t number = 0; number < load->number; number++) {
        int64_t place = check->place[number], acknowledged = load->sent[number].acknowledged, consumed = load->sent[number].consumed;
        if (acknowledged != 0 && place == 0) {
            epoch_of(load, number)->lost++;
            problem(load, "message %lld is lost: acknowledged at %lld of queue %d", (long long)number, (long long)acknowledged - 1,
                    (int)(number % load->queues));
        } else if (acknowledged != 0 && place != acknowledged) {
            problem(load, "message %lld was acknowledged at %lld and is at %lld", (long long)number, (long long)acknowledged - 1, (long long)place - 1);
        }
        if (consumed != 0 && consumed != place)
            problem(load, "message %lld was consumed at %lld and is at %lld", (long long)number, (long long)consumed - 1, (long long)place - 1);
        if (acknowledged != 0 && acknowledged <= load->sent[number].floor)
            problem(load, "message %lld is at %lld, although %lld was acknowledged before it was sent", (long long)number, (long long)acknowledged - 1,
                    (long long)load->sent[number].floor - 1);
    }
}

static void check_offsets(struct check *check, const char *address)
{
    for (int i = 0; i < check->load->queues; i++) {
        char queue_text[16];
        snprintf(queue_text, sizeof queue_text, "%d", i);
        const struct remoting_field fields[] = {{"consumerGroup", GROUP}, {"topic", TOPIC}, {"queueId", queue_text}, {NULL, NULL}};
        if (check->load->committed[i] == 0)
            continue;
        int64_t offset = offset_answer(check, address, REQUEST_QUERY_CONSUMER_OFFSET, fields);
        if (offset < check->load->committed[i] || offset > check->load->commit_tried[i])
            problem(check->load, "%s: the group's offset of queue %d is %lld; %lld was committed, %lld asked for", address, i, (long long)offset,
                    (long long)check->load->committed[i], (long long)check->load->commit_tried[i]);
    }
}

void load_verify(struct load *load, const char *addresses)
{
    struct check check = {.load = load, .place = calloc((size_t)load->number + 1, sizeof(int64_t)), .body = malloc((size_t)load->size)};
    struct error error = {0};
    char *copy = strdup(addresses), *rest = copy, *address;
    if (check.place == NULL || check.body == NULL || copy == NULL || remoting_client_new(3000, &check.client, &error) != 0) {
        problem(load, "the check cannot begin: %s", error.message);
        goto free_check;
    }
    load->stop_consuming = true; /* so that no offset moves while it is compared */
    int64_t ends[QUEUES_MAX];
    for (bool first = true; (address = strsep(&rest, ";")) != NULL; first = false) {
        for (int i = 0; i < load->queues; i++) {
            int64_t end = read_queue(&check, address, first, i);
            if (!first && end != ends[i])
                problem(load, "%s: queue %d ends at %lld, at the first node at %lld", address, i, (long long)end, (long long)ends[i]);
            ends[i] = end;
        }
        if (first)
            check_offsets(&check, address);
    }
    check_places(&check);
    remoting_client_free(check.client);
free_check:
    free(check.place);
    free(check.body);
    free(copy);
}

void load_verify_offsets(struct load *load, const char *address)
{
    struct check check = {.load = load};
    struct error error = {0};
    if (remoting_client_new(3000, &check.client, &error) != 0) {
        problem(load, "the check cannot begin: %s", error.message);
        return;
    }
    check_offsets(&check, address);
    remoting_client_free(check.client);
}
