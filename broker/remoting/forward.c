/* The way of a request that a follower got:
 *  1. forward_request tries the leader: the place in `out` remembers who asked, dledger carries the frame.
 *  2. Without a leader it is parked, in order of arrival, until forward_role_changed (a leader is known, or it is us) or its deadline. So is a question at a
 *     leader that may lead no longer, until it is certain again.
 *  3. forward_answered copies the leader's whole answer to the client.
 * At the leader forward_received gives the frame to the same handlers; their reply_to leads to a place in `taken`.
 */
#include "broker/remoting/forward.h"

#include <assert.h>
#include <bsd/sys/queue.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/broker_stats.h"
#include "broker/limits.h"
#include "broker/processor/processor_table.h"
#include "broker/remoting/connection.h"
#include "broker/remoting/listener.h"
#include "proto/response_code.h"

#define PLACE_BITS 12u
static_assert(LIMIT_FORWARDED_REQUESTS == 1u << PLACE_BITS, "ids hold the place in their low bits");

#define DOUBT_RETRY_MS 10u

struct out_request {
    uint64_t id; /* 0 = free */
    struct reply_to reply_to;
    bool question;
};

struct taken_request {
    uint64_t id; /* 0 = free */
    uint64_t forward_id; /* dledger's */
};

struct parked_request {
    STAILQ_ENTRY(parked_request) next;
    uint64_t deadline_ms;
    struct reply_to reply_to;
    struct message_host peer;
    bool question;
    size_t size;
    uint8_t frame[];
};
STAILQ_HEAD(parked_list, parked_request);

struct places {
    uint16_t *free;
    uint32_t free_count;
    uint32_t used; /* were handed out at some time: [0, used) */
};

struct forward {
    struct broker *broker;
    uv_timer_t timer;
    struct out_request *out; /* room for LIMIT_FORWARDED_REQUESTS each; places behind those that were in use once are not touched */
    struct taken_request *taken;
    struct places out_places, taken_places;
    uint64_t next_serial;
    struct parked_list parked;
    uint32_t parked_count;
    size_t parked_bytes;
    struct buffer reply; /* answer to a taken request while its handler writes it */
    bool closed;
};

static bool place_is_left(const struct places *places)
{
    return places->free_count > 0 || places->used < LIMIT_FORWARDED_REQUESTS;
}

/* The one that place_take() hands out. */
static uint32_t place_next(const struct places *places)
{
    return places->free_count > 0 ? places->free[places->free_count - 1] : places->used;
}

static void place_take(struct places *places)
{
    if (places->free_count > 0)
        places->free_count--;
    else
        places->used++;
}

static void place_give(struct places *places, uint32_t place)
{
    places->free[places->free_count++] = (uint16_t)place;
}

struct forward *forward_new(struct broker *broker, struct error *error)
{
    struct forward *forward = calloc(1, sizeof *forward);
    if (forward == NULL)
        goto no_memory;
    forward->broker = broker;
    forward->next_serial = 1;
    buffer_init(&forward->reply, REMOTING_FRAME_MAX);
    STAILQ_INIT(&forward->parked);
    forward->out = malloc(LIMIT_FORWARDED_REQUESTS * sizeof *forward->out);
    forward->taken = malloc(LIMIT_FORWARDED_REQUESTS * sizeof *forward->taken);
    forward->out_places.free = malloc(LIMIT_FORWARDED_REQUESTS * sizeof *forward->out_places.free);
    forward->taken_places.free = malloc(LIMIT_FORWARDED_REQUESTS * sizeof *forward->taken_places.free);
    if (forward->out == NULL || forward->taken == NULL || forward->out_places.free == NULL || forward->taken_places.free == NULL)
        goto no_memory;
    uv_timer_init(broker->loop, &forward->timer);
    forward->timer.data = forward;
    uv_unref((uv_handle_t *)&forward->timer);
    return forward;

no_memory:
    error_set(error, ERROR_NO_MEMORY, "forwarding: %s", error_text(ERROR_NO_MEMORY));
    if (forward != NULL)
        forward->closed = true;
    forward_free(forward);
    return NULL;
}

/* The answer that this node gives itself. An error would make a consumer skip to the end of its queue (remoting.md 3.15), so a
 * question is not answered at all: the client connects again and asks again. */
static void answer_failure(struct forward *forward, const struct reply_to *to, bool question, const char *remark)
{
    if (question && !to->oneway) {
        struct connection *connection = remoting_server_find(forward->broker->server, to->connection_id);
        if (connection != NULL)
            connection_close(connection);
        return;
    }
    reply_simple(forward->broker, to, RESPONSE_SERVICE_NOT_AVAILABLE, "%s", remark);
}

/* 0: on its way. */
static int send_to_leader(struct forward *forward, const struct reply_to *to, bool question, const struct message_host *peer,
                          struct slice frame)
{
    if (!place_is_left(&forward->out_places))
        return ERROR_BUSY;
    uint32_t place = place_next(&forward->out_places);
    uint64_t id = forward->next_serial++ << PLACE_BITS | place;
    char address[64];
    message_host_format(peer, address, sizeof address);
    int rv = dledger_commit_log_forward(forward->broker->log, id, slice_of_text(address), frame, LIMIT_FORWARD_MS);
    if (rv != 0)
        return rv;
    place_take(&forward->out_places);
    forward->out[place] = (struct out_request){.id = id, .reply_to = *to, .question = question};
    return 0;
}

static void on_timer(uv_timer_t *timer);

static void set_timer(struct forward *forward)
{
    struct parked_request *first = STAILQ_FIRST(&forward->parked);
    if (first == NULL) {
        uv_timer_stop(&forward->timer);
        return;
    }
    uint64_t now_ms = uv_now(forward->broker->loop);
    uint64_t wait_ms = first->deadline_ms > now_ms ? first->deadline_ms - now_ms : 0;
    /* Nobody tells when a doubt is over. */
    if (wait_ms > DOUBT_RETRY_MS && dledger_commit_log_in_doubt(forward->broker->log))
        wait_ms = DOUBT_RETRY_MS;
    uv_timer_start(&forward->timer, on_timer, wait_ms, 0);
}

static struct parked_request *unpark(struct forward *forward)
{
    struct parked_request *parked = STAILQ_FIRST(&forward->parked);
    if (parked != NULL) {
        STAILQ_REMOVE_HEAD(&forward->parked, next);
        forward->parked_count--;
        forward->parked_bytes -= parked->size;
    }
    return parked;
}

static void on_timer(uv_timer_t *timer)
{
    struct forward *forward = timer->data;
    uint64_t now_ms = uv_now(forward->broker->loop);
    struct parked_request *parked;
    while ((parked = STAILQ_FIRST(&forward->parked)) != NULL && parked->deadline_ms <= now_ms) {
        unpark(forward);
        answer_failure(forward, &parked->reply_to, parked->question, dledger_commit_log_why_not(forward->broker->log));
        free(parked);
    }
    if (dledger_commit_log_accepting(forward->broker->log) && !dledger_commit_log_in_doubt(forward->broker->log))
        forward_role_changed(forward);
    else
        set_timer(forward);
}

static void park(struct forward *forward, const struct reply_to *to, bool question, const struct message_host *peer, struct slice frame)
{
    struct parked_request *parked = NULL;
    if (forward->parked_count < LIMIT_PARKED_REQUESTS && forward->parked_bytes + frame.size <= LIMIT_PARKED_BYTES && !forward->closed)
        parked = malloc(sizeof *parked + frame.size);
    if (parked == NULL) {
        answer_failure(forward, to, question, broker_stats_refuse(forward->broker->stats, LIMIT_HIT_PARKED));
        return;
    }
    parked->deadline_ms = uv_now(forward->broker->loop) + LIMIT_PARKED_MS;
    parked->reply_to = *to;
    parked->peer = *peer;
    parked->question = question;
    parked->size = frame.size;
    memcpy(parked->frame, frame.data, frame.size);
    bool first = STAILQ_EMPTY(&forward->parked);
    STAILQ_INSERT_TAIL(&forward->parked, parked, next);
    forward->parked_count++;
    forward->parked_bytes += parked->size;
    if (first)
        set_timer(forward);
}

/* We lead but do not take appends: because the disk does not (the handler answers so), or for a moment, until the barrier is applied. */
static bool leader_is_broken(struct forward *forward)
{
    struct dledger_state state;
    dledger_commit_log_state(forward->broker->log, &state);
    return state.role == DLEDGER_LEADER && (state.disk_full || state.failed);
}

bool forward_request(struct forward *forward, const struct request *request, const struct processor_row *row)
{
    bool question = (row->flags & PROCESSOR_QUESTION) != 0;
    /* While some are parked, later ones queue up behind them, so that one client's requests keep their order. */
    int rv = ERROR_NO_LEADER;
    if (STAILQ_EMPTY(&forward->parked))
        rv = send_to_leader(forward, &request->reply_to, question, &request->peer, request->raw_frame);
    switch (rv) {
    case 0:
        return true;
    case ERROR_NOT_LEADER:
        if (leader_is_broken(forward))
            return false;
        break;
    case ERROR_NO_LEADER:
        break;
    default:
        answer_failure(forward, &request->reply_to, question, broker_stats_refuse(forward->broker->stats, LIMIT_HIT_FORWARDED));
        return true;
    }
    park(forward, &request->reply_to, question, &request->peer, request->raw_frame);
    return true;
}

void forward_role_changed(struct forward *forward)
{
    struct broker *broker = forward->broker;
    /* Only those that are parked now: running one may park nothing, but close connections and so on. */
    uint32_t left = forward->parked_count;
    bool broken = left > 0 && leader_is_broken(forward);
    while (left-- > 0) {
        struct parked_request *parked = STAILQ_FIRST(&forward->parked);
        struct connection *connection = remoting_server_find(broker->server, parked->reply_to.connection_id);
        if (connection == NULL) {
            free(unpark(forward));
            continue;
        }
        if (parked->question && !broken && dledger_commit_log_in_doubt(broker->log))
            break;
        if (dledger_commit_log_accepting(broker->log) || broken) {
            unpark(forward);
            processor_run_parked(broker, connection, parked->frame, parked->size);
            free(parked);
            continue;
        }
        int rv = send_to_leader(forward, &parked->reply_to, parked->question, &parked->peer, slice_of(parked->frame, parked->size));
        if (rv == ERROR_NO_LEADER || rv == ERROR_NOT_LEADER)
            break;
        unpark(forward);
        if (rv != 0)
            answer_failure(forward, &parked->reply_to, parked->question, broker_stats_refuse(broker->stats, LIMIT_HIT_FORWARDED));
        free(parked);
    }
    set_timer(forward);
}

void forward_answered(struct forward *forward, uint64_t request_id, int code, struct slice frame)
{
    uint32_t place = request_id & (LIMIT_FORWARDED_REQUESTS - 1);
    struct out_request *out = &forward->out[place];
    if (place >= forward->out_places.used || out->id != request_id)
        return;
    struct out_request request = *out;
    out->id = 0;
    place_give(&forward->out_places, place);
    if (request.reply_to.oneway)
        return;
    if (code == 0 && frame.size > 0) {
        struct connection *connection = remoting_server_find(forward->broker->server, request.reply_to.connection_id);
        if (connection != NULL)
            connection_send(connection, frame);
    } else if (code == ERROR_TIMEOUT) {
        answer_failure(forward, &request.reply_to, request.question, "the leader did not answer in time, outcome unknown");
    } else {
        answer_failure(forward, &request.reply_to, request.question, "the link to the leader broke, outcome unknown");
    }
}

/* ---- at the leader ---- */

static struct taken_request *find_taken(struct forward *forward, uint64_t connection_id)
{
    uint64_t id = connection_id & ~REPLY_FORWARDED;
    uint32_t place = id & (LIMIT_FORWARDED_REQUESTS - 1);
    struct taken_request *taken = &forward->taken[place];
    return id != 0 && place < forward->taken_places.used && taken->id == id ? taken : NULL;
}

static void answer_taken(struct forward *forward, struct taken_request *taken, struct slice frame)
{
    uint64_t forward_id = taken->forward_id;
    taken->id = 0;
    place_give(&forward->taken_places, (uint32_t)(taken - forward->taken));
    dledger_commit_log_forward_answer(forward->broker->log, forward_id, frame);
}

uint64_t forward_take(struct forward *forward, uint64_t forward_id)
{
    if (!place_is_left(&forward->taken_places)) {
        (void)broker_stats_refuse(forward->broker->stats, LIMIT_HIT_FORWARDED);
        return 0;
    }
    uint32_t place = place_next(&forward->taken_places);
    place_take(&forward->taken_places);
    uint64_t id = (forward->next_serial++ << PLACE_BITS | place) & ~REPLY_FORWARDED;
    forward->taken[place] = (struct taken_request){.id = id, .forward_id = forward_id};
    return id | REPLY_FORWARDED;
}

void forward_received(struct forward *forward, uint64_t forward_id, struct slice client_address, uint8_t *frame, size_t size)
{
    struct message_host client;
    uint64_t id = message_host_parse(client_address, &client) ? forward_take(forward, forward_id) : 0;
    if (id == 0)
        dledger_commit_log_forward_answer(forward->broker->log, forward_id, slice_of(NULL, 0));
    else if (!processor_run_forwarded(forward->broker, id, &client, frame, size))
        forward_reply_none(forward, id);
}

struct buffer *forward_reply_buffer(struct forward *forward, uint64_t connection_id)
{
    if (find_taken(forward, connection_id) == NULL)
        return NULL;
    buffer_clear(&forward->reply);
    forward->reply.failed = false;
    return &forward->reply;
}

void forward_reply_done(struct forward *forward, uint64_t connection_id)
{
    struct taken_request *taken = find_taken(forward, connection_id);
    if (taken == NULL)
        return;
    answer_taken(forward, taken, forward->reply.failed ? slice_of(NULL, 0) : buffer_slice(&forward->reply));
    if (forward->reply.capacity > LIMIT_OUTPUT_BUSY_BYTES) {
        buffer_close(&forward->reply);
        buffer_init(&forward->reply, REMOTING_FRAME_MAX);
    }
}

void forward_reply_none(struct forward *forward, uint64_t connection_id)
{
    struct taken_request *taken = find_taken(forward, connection_id);
    if (taken != NULL)
        answer_taken(forward, taken, slice_of(NULL, 0));
}

size_t forward_parked_bytes(const struct forward *forward)
{
    return forward->parked_bytes;
}

uint32_t forward_parked(const struct forward *forward)
{
    return forward->parked_count;
}

void forward_close(struct forward *forward)
{
    struct parked_request *parked;
    if (forward->closed)
        return;
    forward->closed = true;
    while ((parked = unpark(forward)) != NULL) {
        answer_failure(forward, &parked->reply_to, parked->question, "this broker stops");
        free(parked);
    }
    uv_close((uv_handle_t *)&forward->timer, NULL);
}

void forward_free(struct forward *forward)
{
    if (forward == NULL)
        return;
    assert(forward->closed && STAILQ_EMPTY(&forward->parked));
    buffer_close(&forward->reply);
    free(forward->out);
    free(forward->taken);
    free(forward->out_places.free);
    free(forward->taken_places.free);
    free(forward);
}
