/* Threads and sockets around one replica: the loop's hooks, the flush thread, the pool's jobs, the peers, forwarding, DLedger's own requests. */
#include "dledger/dledger_commit_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "dledger/dledger_rpc_service.h"
#include "dledger/flush.h"
#include "dledger/loop_turn.h"
#include "dledger/peer.h"
#include "dledger/replica_internal.h"
#include "proto/remoting_command.h"
#include "store/log_sink.h"

#define FORWARDS_MAX 1024u
#define LONG_TURN_US 20000u /* worth a line in the log */
#define STOP_STEP_MS 5u
#define STOP_TRANSFER_MS 2000u

struct forward_out { /* follower: a request at the leader */
    uint64_t request_id;
    uint64_t deadline_us;
    uint64_t member;
    struct forward_out *next;
};

struct forward_in { /* leader: a request of a follower */
    uint64_t member;
    uint64_t remote_id;
    struct forward_in *next;
};

struct dledger_commit_log {
    uv_loop_t *loop;
    struct env *env;
    struct dledger_callbacks callbacks;
    struct replica replica;
    struct peer_network network;
    struct dledger_rpc_service rpc;
    struct flush flush;      /* the log */
    struct flush vote_flush; /* term and vote: a sync of the log may take long */
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle;
    bool idle_on;
    uv_timer_t timer;
    uint64_t armed_us; /* 0 = not armed */
    uv_work_t reserve_work;
    uv_work_t save_work;
    uv_work_t scrub_work;
    bool reserve_out, save_out;
    bool greet_wanted;
    uint64_t members_seen; /* replica.members_version */
    bool failure_told;
    bool restart_told;

    struct forward_out *forwards_out; /* oldest first */
    unsigned forwards_out_count;
    struct forward_in *forwards_in;   /* by id, index = id % FORWARDS_MAX */
    uint64_t forward_next_id;

    bool started;
    bool stopping;
    bool transferred;
    uint64_t stop_since_ms;
    void (*closed)(void *argument);
    void *closed_argument;
    unsigned open_handles;
    struct loop_turn loop_turn;
};

/* ---- replica's io ---- */

static void io_send(void *context, uint64_t to, struct peer_message *message, const uint8_t *run, size_t run_size)
{
    struct dledger_commit_log *log = context;
    peer_network_send(&log->network, to, message, run, run_size);
}

static void io_cut(void *context)
{
    struct dledger_commit_log *log = context;
    peer_network_cut(&log->network);
}

static void io_sync(void *context, struct ledger_sync *sync)
{
    struct dledger_commit_log *log = context;
    flush_submit(&log->flush, sync);
}

static void run_sync(void *job)
{
    ledger_sync_run(job);
}

static void on_flushed(struct flush *flush)
{
    struct dledger_commit_log *log = flush->context;
    replica_synced(&log->replica);
}

static bool io_save_vote(void *context, struct vote_save *save)
{
    struct dledger_commit_log *log = context;
    flush_submit(&log->vote_flush, save);
    return flush_wait(&log->vote_flush, REPLICA_VOTE_WAIT_MS);
}

static void run_vote_save(void *job)
{
    vote_save_run(job);
}

static void on_vote_saved(struct flush *flush)
{
    struct dledger_commit_log *log = flush->context;
    raft_driver_vote_saved(&log->replica.driver);
}

static void reserve_work(uv_work_t *work)
{
    struct dledger_commit_log *log = work->data;
    ledger_reservation_run(&log->replica.reservation);
}

static void reserve_done(uv_work_t *work, int status)
{
    struct dledger_commit_log *log = work->data;
    (void)status;
    log->reserve_out = false;
    replica_reserved(&log->replica);
}

static void io_reserve(void *context, struct ledger_reservation *job)
{
    struct dledger_commit_log *log = context;
    (void)job;
    log->reserve_work.data = log;
    log->reserve_out = true;
    if (uv_queue_work(log->loop, &log->reserve_work, reserve_work, reserve_done) != 0) {
        reserve_work(&log->reserve_work);
        reserve_done(&log->reserve_work, 0);
    }
}

static void save_work(uv_work_t *work)
{
    struct dledger_commit_log *log = work->data;
    replica_save_run(&log->replica.save);
}

static void save_done(uv_work_t *work, int status)
{
    struct dledger_commit_log *log = work->data;
    (void)status;
    log->save_out = false;
    replica_saved(&log->replica);
}

static void io_save(void *context, struct replica_save *save)
{
    struct dledger_commit_log *log = context;
    (void)save;
    log->save_work.data = log;
    log->save_out = true;
    if (uv_queue_work(log->loop, &log->save_work, save_work, save_done) != 0) {
        save_work(&log->save_work);
        save_done(&log->save_work, 0);
    }
}

static void scrub_work(uv_work_t *work)
{
    struct dledger_commit_log *log = work->data;
    replica_scrub_run(&log->replica.scrub);
}

static void scrub_done(uv_work_t *work, int status)
{
    struct dledger_commit_log *log = work->data;
    (void)status;
    replica_scrubbed(&log->replica);
}

static void io_scrub(void *context, struct replica_scrub *scrub)
{
    struct dledger_commit_log *log = context;
    (void)scrub;
    log->scrub_work.data = log;
    if (uv_queue_work(log->loop, &log->scrub_work, scrub_work, scrub_done) != 0) {
        scrub_work(&log->scrub_work);
        scrub_done(&log->scrub_work, 0);
    }
}

struct pool_job {
    uv_work_t work;
    struct replica_job *job;
};

static void pool_job_work(uv_work_t *work)
{
    struct pool_job *pool = work->data;
    pool->job->run(pool->job);
}

static void pool_job_done(uv_work_t *work, int status)
{
    struct pool_job *pool = work->data;
    struct replica_job *job = pool->job;
    (void)status;
    free(pool);
    job->out = false;
    job->done(job);
}

static void io_job(void *context, struct replica_job *job)
{
    struct dledger_commit_log *log = context;
    struct pool_job *pool = malloc(sizeof *pool);
    if (pool != NULL) {
        pool->job = job;
        pool->work.data = pool;
        if (uv_queue_work(log->loop, &pool->work, pool_job_work, pool_job_done) == 0)
            return;
        free(pool);
    }
    job->run(job);
    job->out = false;
    job->done(job);
}

static void io_hello_changed(void *context)
{
    struct dledger_commit_log *log = context;
    log->greet_wanted = true;
}

/* ---- turn ---- */

static void on_timer(uv_timer_t *timer);

static void arm(struct dledger_commit_log *log)
{
    uint64_t due = replica_deadline_us(&log->replica);
    uint64_t now = env_monotonic_us(log->env);
    uint64_t rpc_due = dledger_rpc_service_deadline_us(&log->rpc);

    if (rpc_due < due)
        due = rpc_due;
    if (log->forwards_out != NULL && log->forwards_out->deadline_us < due)
        due = log->forwards_out->deadline_us;
    if (due == UINT64_MAX || (log->armed_us != 0 && log->armed_us <= due))
        return;
    log->armed_us = due;
    uv_update_time(log->loop);
    uv_timer_start(&log->timer, on_timer, due > now ? (due - now + 999) / 1000 : 0, 0);
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

static void turn(struct dledger_commit_log *log)
{
    bool more;

    if (!log->started)
        return;
    more = replica_turn(&log->replica);
    if (more != log->idle_on) { /* an active idle handle keeps the loop from sleeping */
        log->idle_on = more;
        if (more)
            uv_idle_start(&log->idle, on_idle);
        else
            uv_idle_stop(&log->idle);
    }
    dledger_rpc_service_turn(&log->rpc);
    if (log->members_seen != log->replica.members_version) {
        log->members_seen = log->replica.members_version;
        peer_network_members_changed(&log->network);
    }
    if (log->greet_wanted) {
        log->greet_wanted = false;
        peer_network_greet(&log->network);
    }
    if (log->replica.phase == REPLICA_FAILED && !log->failure_told) {
        log->failure_told = true;
        log->callbacks.failed(log->callbacks.context, &log->replica.failure);
    }
    if (log->replica.restart_wanted && !log->restart_told) {
        log->restart_told = true;
        log->callbacks.restart(log->callbacks.context);
    }
    arm(log);
}

static void on_check(uv_check_t *check)
{
    struct dledger_commit_log *log = check->data;

    loop_turn_polled(&log->loop_turn, log->loop);
    turn(log);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct dledger_commit_log *log = prepare->data;
    uint64_t longest_us = log->loop_turn.longest_us;
    uint64_t turn_us;

    turn(log);
    turn_us = loop_turn_ends(&log->loop_turn);
    if (turn_us > longest_us && turn_us >= LONG_TURN_US)
        LOG_WARN("a turn of the loop took %llu ms, longer than any before", (unsigned long long)turn_us / 1000);
}

static void forwards_expire(struct dledger_commit_log *log, uint64_t now)
{
    while (log->forwards_out != NULL && log->forwards_out->deadline_us <= now) {
        struct forward_out *forward = log->forwards_out;
        log->forwards_out = forward->next;
        log->forwards_out_count--;
        log->callbacks.forward_answered(log->callbacks.context, forward->request_id, ERROR_TIMEOUT, slice_of(NULL, 0));
        free(forward);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct dledger_commit_log *log = timer->data;

    log->armed_us = 0;
    replica_tick(&log->replica);
    forwards_expire(log, env_monotonic_us(log->env));
}

/* ---- peers ---- */

static void receive_forward(struct dledger_commit_log *log, uint64_t from, const struct peer_message *message, const uint8_t *body)
{
    struct cursor cursor = cursor_of(slice_of(body, message->body_size));
    struct slice address = cursor_slice(&cursor, cursor_u16(&cursor));
    struct forward_in *forward = &log->forwards_in[log->forward_next_id % FORWARDS_MAX];

    if (cursor.failed || cursor_left(&cursor) < 8 || remoting_frame_size(slice_of(cursor.at, cursor_left(&cursor))) != (int64_t)cursor_left(&cursor))
        return;
    if (forward->member != 0)
        return; /* 1,024 wait already: the follower's deadline answers its client */
    forward->member = from;
    forward->remote_id = message->forward.id;
    log->callbacks.forwarded(log->callbacks.context, log->forward_next_id++, address, (uint8_t *)(uintptr_t)cursor.at, cursor_left(&cursor));
}

static void receive_forward_answer(struct dledger_commit_log *log, uint64_t from, const struct peer_message *message, const uint8_t *body)
{
    for (struct forward_out **at = &log->forwards_out; *at != NULL; at = &(*at)->next) {
        struct forward_out *forward = *at;
        if (forward->request_id == message->forward.id && forward->member == from) {
            *at = forward->next;
            log->forwards_out_count--;
            log->callbacks.forward_answered(log->callbacks.context, forward->request_id, 0, slice_of(body, message->body_size));
            free(forward);
            return;
        }
    }
}

static void on_peer_message(void *context, uint64_t from, const struct peer_message *message, const uint8_t *body)
{
    struct dledger_commit_log *log = context;

    if (message->type == PEER_FORWARD)
        receive_forward(log, from, message, body);
    else if (message->type == PEER_FORWARD_ANSWER)
        receive_forward_answer(log, from, message, body);
    else
        replica_receive(&log->replica, from, message, body);
}

static void on_peer_connected(void *context, uint64_t id)
{
    struct dledger_commit_log *log = context;
    LOG_INFO("connected to member %s", log->replica.members[id - 1].id);
}

static void on_peer_lost(void *context, uint64_t id)
{
    struct dledger_commit_log *log = context;
    struct forward_out **at = &log->forwards_out;

    LOG_INFO("connection to member %s is lost", log->replica.members[id - 1].id);
    for (uint64_t i = 0; i < FORWARDS_MAX; i++) {
        if (log->forwards_in[i].member == id)
            log->forwards_in[i].remote_id = UINT64_MAX; /* nobody waits for the answer any more */
    }
    while (*at != NULL) {
        struct forward_out *forward = *at;
        if (forward->member != id) {
            at = &forward->next;
            continue;
        }
        *at = forward->next;
        log->forwards_out_count--;
        log->callbacks.forward_answered(log->callbacks.context, forward->request_id, ERROR_CONNECTION, slice_of(NULL, 0));
        free(forward);
        at = &log->forwards_out; /* the callback may have changed the list */
    }
}

int dledger_commit_log_forward(struct dledger_commit_log *log, uint64_t request_id, struct slice client_address, struct slice frame,
                               uint32_t timeout_ms)
{
    uint64_t leader = raft_driver_leader(&log->replica.driver);
    struct peer_message message = {.type = PEER_FORWARD};
    struct forward_out *forward, **at;
    struct buffer body;
    bool sent;

    if (leader == 0)
        return ERROR_NO_LEADER;
    if (leader == log->replica.id)
        return ERROR_NOT_LEADER;
    if (log->forwards_out_count >= FORWARDS_MAX)
        return ERROR_BUSY;
    forward = malloc(sizeof *forward);
    buffer_init(&body, PEER_BODY_MAX);
    buffer_append_u16(&body, (uint16_t)client_address.size);
    buffer_append_slice(&body, client_address);
    buffer_append_slice(&body, frame);
    if (forward == NULL || body.failed) {
        free(forward);
        buffer_close(&body);
        return ERROR_NO_MEMORY;
    }
    message.forward.id = request_id;
    message.forward.timeout_ms = timeout_ms;
    sent = peer_network_send(&log->network, leader, &message, body.data, body.size);
    buffer_close(&body);
    if (!sent) {
        free(forward);
        return ERROR_NO_LEADER;
    }
    *forward = (struct forward_out){request_id, env_monotonic_us(log->env) + timeout_ms * 1000ull, leader, NULL};
    for (at = &log->forwards_out; *at != NULL && (*at)->deadline_us <= forward->deadline_us; at = &(*at)->next)
        ;
    forward->next = *at;
    *at = forward;
    log->forwards_out_count++;
    arm(log);
    return 0;
}

void dledger_commit_log_forward_answer(struct dledger_commit_log *log, uint64_t forward_id, struct slice frame)
{
    struct forward_in *forward = &log->forwards_in[forward_id % FORWARDS_MAX];
    struct peer_message message = {.type = PEER_FORWARD_ANSWER};
    uint64_t member = forward->member;

    forward->member = 0;
    if (member == 0 || forward->remote_id == UINT64_MAX)
        return;
    message.forward.id = forward->remote_id;
    peer_network_send(&log->network, member, &message, frame.data, frame.size);
}

/* ---- DLedger's own protocol ---- */

static bool on_dledger_frame(void *context, uint64_t connection, uint8_t *frame, size_t size, struct buffer *out)
{
    struct dledger_commit_log *log = context;
    return dledger_rpc_service_request(&log->rpc, connection, frame, size, out);
}

static void on_dledger_answer(void *context, uint64_t connection, struct slice frame)
{
    struct dledger_commit_log *log = context;
    peer_network_answer_dledger(&log->network, connection, frame);
}

/* ---- life ---- */

struct dledger_commit_log *dledger_commit_log_new(uv_loop_t *loop, struct env *env, const struct dledger_options *options,
                                                  const struct dledger_callbacks *callbacks, const char *broker_address,
                                                  struct log_view *view, struct error *error)
{
    struct dledger_commit_log *log = calloc(1, sizeof *log);
    struct replica_io io = {log, io_send, io_cut, io_sync, io_reserve, io_save, io_hello_changed, io_scrub, io_job, io_save_vote};

    if (log == NULL || (log->forwards_in = calloc(FORWARDS_MAX, sizeof *log->forwards_in)) == NULL) {
        free(log);
        error_set(error, ERROR_NO_MEMORY, "commit log");
        return NULL;
    }
    log->loop = loop;
    log->env = env;
    log->callbacks = *callbacks;
    dledger_rpc_service_init(&log->rpc, &log->replica, log, on_dledger_answer);
    if (replica_open(&log->replica, env, options, callbacks, &io, broker_address, view, error) != 0) {
        free(log->forwards_in);
        free(log);
        return NULL;
    }
    return log;
}

int dledger_commit_log_start(struct dledger_commit_log *log, struct message_store *store, struct error *error)
{
    struct peer_network_callbacks callbacks = {log, on_peer_message, on_peer_connected, on_peer_lost, on_dledger_frame};
    int rv;

    rv = flush_open(&log->flush, log->loop, run_sync, on_flushed, log);
    if (rv == 0)
        rv = flush_open(&log->vote_flush, log->loop, run_vote_save, on_vote_saved, log);
    if (rv != 0)
        return error_set(error, rv, "flush threads");
    uv_prepare_init(log->loop, &log->prepare);
    uv_check_init(log->loop, &log->check);
    uv_idle_init(log->loop, &log->idle);
    uv_timer_init(log->loop, &log->timer);
    log->prepare.data = log->check.data = log->idle.data = log->timer.data = log;
    uv_unref((uv_handle_t *)&log->prepare);
    uv_unref((uv_handle_t *)&log->check);
    rv = replica_start(&log->replica, store, error);
    if (rv != 0)
        return rv;
    log->members_seen = log->replica.members_version;
    rv = peer_network_open(&log->network, log->loop, &log->replica, &callbacks, error);
    if (rv != 0)
        return rv;
    log->started = true;
    uv_prepare_start(&log->prepare, on_prepare);
    uv_check_start(&log->check, on_check);
    arm(log);
    return 0;
}

static void handle_closed(struct dledger_commit_log *log)
{
    if (--log->open_handles == 0 && log->closed != NULL)
        log->closed(log->closed_argument);
}

static void on_handle_closed(uv_handle_t *handle)
{
    handle_closed(handle->data);
}

static void on_network_closed(void *argument)
{
    handle_closed(argument);
}

static void on_flush_closed(uv_handle_t *handle)
{
    struct flush *flush = handle->data;
    handle_closed(flush->context);
}

static void on_stop_step(uv_timer_t *timer)
{
    struct dledger_commit_log *log = timer->data;
    uint64_t waited = uv_now(log->loop) - log->stop_since_ms;

    replica_tick(&log->replica);
    if (!log->transferred) {
        /* Hand leadership over first, so that clients see a gap of one round trip instead of an election time-out. */
        if (raft_driver_leads(&log->replica.driver) && replica_group_size(&log->replica) > 1 && waited < STOP_TRANSFER_MS) {
            if (raft_transferee(&log->replica.driver.raft) == 0)
                replica_transfer(&log->replica, NULL, NULL);
            return;
        }
        log->transferred = true;
    }
    if (log->reserve_out || log->save_out || log->replica.syncing || log->replica.votes.saving)
        return;
    if (!log->replica.checkpoint.clean) {
        if (!replica_stop_step(&log->replica) || log->save_out)
            return;
    }
    uv_timer_stop(timer);
    log->started = false;
    log->open_handles = 7;
    uv_close((uv_handle_t *)&log->prepare, on_handle_closed);
    uv_close((uv_handle_t *)&log->check, on_handle_closed);
    uv_close((uv_handle_t *)&log->idle, on_handle_closed);
    uv_close((uv_handle_t *)&log->timer, on_handle_closed);
    flush_close(&log->flush, on_flush_closed);
    flush_close(&log->vote_flush, on_flush_closed);
    peer_network_close(&log->network, on_network_closed, log);
}

void dledger_commit_log_stop(struct dledger_commit_log *log, void (*closed)(void *argument), void *argument)
{
    log->closed = closed;
    log->closed_argument = argument;
    log->stopping = true;
    log->stop_since_ms = uv_now(log->loop);
    uv_timer_start(&log->timer, on_stop_step, 0, STOP_STEP_MS);
    log->armed_us = 1; /* the step timer runs the ticks from here on */
}

void dledger_commit_log_free(struct dledger_commit_log *log)
{
    if (log == NULL)
        return;
    dledger_rpc_service_close(&log->rpc);
    replica_close(&log->replica);
    while (log->forwards_out != NULL) {
        struct forward_out *next = log->forwards_out->next;
        free(log->forwards_out);
        log->forwards_out = next;
    }
    free(log->forwards_in);
    free(log);
}

/* ---- the public door ---- */

uint8_t *dledger_commit_log_reserve(struct dledger_commit_log *log, size_t body_size, int64_t *physical_offset, int *code)
{
    if (log->stopping) {
        *code = ERROR_STOPPED;
        return NULL;
    }
    return replica_reserve(&log->replica, body_size, physical_offset, code);
}

void dledger_commit_log_append(struct dledger_commit_log *log, enum ledger_entry_kind kind, struct append_entry_request *request)
{
    replica_append(&log->replica, kind, request);
}

int dledger_commit_log_append_copy(struct dledger_commit_log *log, enum ledger_entry_kind kind, struct slice body,
                                   struct append_entry_request *request)
{
    int64_t offset;
    int code;
    uint8_t *room = dledger_commit_log_reserve(log, body.size, &offset, &code);

    if (room == NULL)
        return code;
    memcpy(room, body.data, body.size);
    dledger_commit_log_append(log, kind, request);
    return 0;
}

void dledger_commit_log_give_up(struct dledger_commit_log *log, const struct error *error)
{
    replica_fail(&log->replica, error);
}

int dledger_commit_log_backup_begin(struct dledger_commit_log *log, struct dledger_backup *backup, struct error *error)
{
    return replica_backup_begin(&log->replica, backup, error);
}

int dledger_commit_log_backup_metadata(struct dledger_commit_log *log, uint64_t id, uint64_t offset, size_t size, struct slice *piece)
{
    return replica_backup_metadata(&log->replica, id, offset, size, piece);
}

void dledger_commit_log_backup_has_read(struct dledger_commit_log *log, uint64_t id, uint64_t position)
{
    replica_backup_has_read(&log->replica, id, position);
}

void dledger_commit_log_backup_give_up(struct dledger_commit_log *log, uint64_t id)
{
    replica_backup_give_up(&log->replica, id);
}

size_t dledger_commit_log_gathered(const struct dledger_commit_log *log)
{
    return log->replica.gather.size;
}

bool dledger_commit_log_accepting(const struct dledger_commit_log *log)
{
    return log->replica.accepting && !log->stopping;
}

bool dledger_commit_log_in_doubt(struct dledger_commit_log *log)
{
    return replica_in_doubt(&log->replica);
}

const char *dledger_commit_log_why_not(const struct dledger_commit_log *log)
{
    return replica_why_not(&log->replica);
}

void dledger_commit_log_state(const struct dledger_commit_log *log, struct dledger_state *state)
{
    replica_state(&log->replica, state);
    state->turn_us_max = log->loop_turn.longest_us;
}

int64_t dledger_commit_log_physical_offset(const struct dledger_commit_log *log, uint64_t index)
{
    uint64_t position, term;
    uint32_t size;
    return ledger_locate(&log->replica.ledger, index, &position, &size, &term) ? (int64_t)position + (int64_t)LEDGER_ENTRY_HEADER_SIZE : -1;
}

const uint8_t *dledger_commit_log_pin(struct dledger_commit_log *log, int64_t physical_offset, size_t size, struct mapped_file **pinned)
{
    return replica_pin(&log->replica, physical_offset, size, pinned);
}

bool dledger_commit_log_damaged(const struct dledger_commit_log *log, int64_t physical_offset, size_t size)
{
    return physical_offset >= 0 && ledger_is_damaged(&log->replica.ledger, (uint64_t)physical_offset, size);
}

void dledger_commit_log_note_damage(struct dledger_commit_log *log, int64_t physical_offset)
{
    if (physical_offset >= 0)
        replica_note_damage(&log->replica, (uint64_t)physical_offset);
}

void dledger_commit_log_unpin(struct dledger_commit_log *log, struct mapped_file *pinned)
{
    (void)log;
    mapped_file_unpin(pinned);
}

void dledger_commit_log_note_disk(struct dledger_commit_log *log, bool high)
{
    log->replica.driver.disk_high = high;
}

uint64_t dledger_commit_log_trim_limit(const struct dledger_commit_log *log, int *held_by)
{
    return replica_trim_limit(&log->replica, held_by);
}

int dledger_commit_log_trim(struct dledger_commit_log *log, uint64_t position)
{
    return replica_trim(&log->replica, position);
}

void dledger_commit_log_trim_queues(struct dledger_commit_log *log)
{
    log->replica.trim_queues = true;
    replica_trim_queues(&log->replica);
}

int64_t dledger_commit_log_first_message(const struct dledger_commit_log *log, uint64_t position)
{
    return replica_first_message(&log->replica, position);
}

int dledger_commit_log_transfer(struct dledger_commit_log *log, const char *to_id, struct error *error)
{
    return replica_transfer(&log->replica, to_id, error);
}

bool dledger_commit_log_is_member_host(const struct dledger_commit_log *log, const struct sockaddr_storage *address)
{
    return peer_network_is_member_host(&log->network, address);
}

int dledger_commit_log_change_member(struct dledger_commit_log *log, enum dledger_member_action action, const char *id, const char *address,
                                     struct append_entry_request *request, struct error *error)
{
    if (log->stopping)
        return error_set(error, ERROR_NOT_LEADER, "this broker is shutting down");
    return replica_change_member(&log->replica, action, id, address, request, error);
}
