/* What push and lite pull consumers are made of: subscriptions, the queues this member has, and the calls under way for
 * them. One file for each of its jobs:
 *
 *     consumer.c          life: making, subscribing, starting, stopping
 *     rebalance.c         which queues are ours (38), and their coming and going
 *     pull_queue.c        where to begin in a queue (14, 30, 29), and reading it (11)
 *     consumer_offset.c   telling brokers or a file how far we are (15)
 *     consumer_lock.c     locks of queues that are read in order (41, 42)
 *     send_back.c         messages to be delivered again (36)
 *     consume_message.c   handing messages to the application's function and taking what it says
 *     consumer_request.c  what brokers ask of consumers (40, 220, 221, 307, 309)
 *
 * Follows org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl, RebalanceImpl, ConsumeMessage*Service and
 * DefaultLitePullConsumerImpl 4.9.8. Everything is the loop thread's unless it says otherwise.
 */
#ifndef LEDGERMQ_CLIENT_CONSUMER_H
#define LEDGERMQ_CLIENT_CONSUMER_H

#include <stdatomic.h>

#include "client/client.h"
#include "client/consume_pool.h"
#include "client/consumer_stats.h"
#include "client/namespace_util.h"
#include "client/offset_store.h"
#include "client/process_queue.h"

struct json_writer;

#define CONSUMER_REBALANCE_MS 20000
#define CONSUMER_REBALANCE_SOON_MS 500 /* after something was missing */
#define CONSUMER_PERSIST_MS 5000
#define CONSUMER_LOCK_MS 20000
#define CONSUMER_LOCK_EXPIRE_MS 30000   /* so long a lock is trusted (ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME) */
#define CONSUMER_PULL_HOLD_MS 15000     /* long polling */
#define CONSUMER_PULL_TIMEOUT_MS 30000
#define CONSUMER_PULL_REFUSED_MS 3000   /* pause after a refusal that time may cure */
#define CONSUMER_RETRY_MS_MIN 50        /* pauses after failures, doubling */
#define CONSUMER_RETRY_MS_MAX 1000
#define CONSUMER_RECONSUME_MS 5000      /* after a message could not be sent back */
#define CONSUMER_SEND_BACK_TRIES 4
#define CONSUMER_RECONSUME_TIMES_MAX 16 /* of a concurrent consumer that sets none */

enum consumer_kind { CONSUMER_CONCURRENT, CONSUMER_ORDERLY, CONSUMER_LITE };

struct consumer_topic {
    struct consumer_topic *next;
    struct consumer *consumer;
    char *expression; /* of tags or SQL92, without "sql:" */
    bool sql;
    bool all;                   /* no filter */
    int64_t version_ms;
    uint32_t queue_count;       /* of the route at the last rebalance */
    uint32_t turn;              /* whose turn it is to be asked for the members */
    bool asking, routing, again; /* call or waiter under way; to be repeated after it */
    struct remoting_call call;
    struct route_waiter waiter;
    struct consumer_stats stats;
    char name[];
};

enum assigned_state {
    ASSIGNED_IDLE,    /* nothing to do: not locked, suspended, paused, or enough is read ahead */
    ASSIGNED_ASKING,  /* where to begin */
    ASSIGNED_PULLING,
    ASSIGNED_ROUTING, /* looks for a broker */
    ASSIGNED_DELAYED,
};

/* A queue that this member reads. */
struct assigned {
    struct consumer *consumer;
    struct assigned *next_leaving;
    struct ledgermq_queue queue;      /* as brokers know it, with the namespace; never changes, nor does the next */
    struct ledgermq_queue shown;      /* as the application knows it */
    struct process_queue messages;
    atomic_bool dropped;              /* not ours any more */
    atomic_uint generation;           /* another one after each jump to another offset, and no other queue's: older
                                         jobs and results do not count */
    _Atomic int64_t last_lock_ms;     /* orderly; monotonic */
    bool locked;
    bool asked_for;                   /* scratch of consumer_lock_queues() */
    bool consuming;                   /* orderly: a job is with the pool, or its messages are on their way back */
    bool paused;                      /* lite */
    bool finished;                    /* dropped, and its offset is on its way */
    uint32_t jobs;                    /* with the pool, or being sent back */
    size_t ready_count, ready_bytes;  /* lite: not yet polled */
    int64_t polled_offset;            /* lite: behind what was polled last, -1 nothing was */
    enum assigned_state state;
    int32_t asking_code;
    int64_t next_offset;              /* -1: to be asked for */
    int64_t suggested_id;             /* broker id to read from */
    bool from_leader;                 /* the request under way */
    int64_t last_pull_ms, last_consume_ms; /* wall clock */
    uint32_t failures;                /* in a row */
    struct remoting_call call;
    struct route_waiter waiter;
    struct remoting_delay delay;
    struct remoting_delay pause;      /* orderly: after LATER */
    int pause_ms;                     /* orderly: the pause to come, 0 none */
    uint32_t dying;                   /* orderly: messages on their way to the dead letter topic */
    char address[REMOTING_ADDRESS_MAX]; /* of the call */
    UT_hash_handle hh;
    char key[QUEUE_KEY_MAX];
};

struct consumer {
    /* set at the beginning */
    struct ledgermq_client *client;
    enum consumer_kind kind;
    bool broadcast;
    struct ledgermq_push_consumer_options options; /* texts are ours */
    char *retry_topic;
    size_t messages_all_max; /* lite, and the next two */
    bool auto_commit;
    int auto_commit_ms;
    int64_t start_ms;        /* wall clock */
    struct consume_pool *pool;

    /* any thread */
    atomic_bool stopping;
    struct consumer *next_made; /* list of the client, under its lock */
    bool started;               /* under the client's lock, and the next */
    int mode;                   /* lite: how it gets its queues */

    /* loop thread */
    struct consumer *next; /* of the client, while started */
    struct consumer_topic *topics;
    uint32_t topic_count;
    struct assigned *assigned; /* uthash by key */
    struct assigned *leaving;
    struct offset_store offsets;
    bool suspended, active, finishing;
    unsigned last_generation;
    uint32_t jobs;    /* with the pool */
    uint32_t pending; /* calls that must end before the consumer may */
    struct consume_job *job_list;
    struct remoting_delay rebalance, persist, lock, expire, reconsume;
    int64_t last_lock_all_ms;
    uint32_t lock_refusals; /* answers in a row with one */
    uv_sem_t *stopped; /* somebody waits for the end */

    /* lite: between the loop thread and polls, under ready_lock */
    uv_mutex_t ready_lock;
    uv_cond_t ready_some;
    struct ready_batch *ready, **ready_end;
    size_t ready_total; /* loop thread */
    int64_t next_commit_ms;
};

/* --- consumer.c: any thread but the loop's, except where it says loop thread ---- */

/* Names are the application's, without the namespace; what is kept has it. options: complete and checked; texts are
 * copied. */
int consumer_new(struct ledgermq_client *client, enum consumer_kind kind,
                 const struct ledgermq_push_consumer_options *options, struct consumer **consumer,
                 struct ledgermq_error *error);
/* Numbers within their bounds? */
int consumer_options_check(const struct ledgermq_push_consumer_options *options, struct ledgermq_error *error);
int consumer_start(struct consumer *consumer, struct ledgermq_error *error);
int consumer_subscribe(struct consumer *consumer, const char *topic, const char *expression,
                       struct ledgermq_error *error);
int consumer_unsubscribe(struct consumer *consumer, const char *topic, struct ledgermq_error *error);
int consumer_queues(struct consumer *consumer, struct ledgermq_queue **queues, size_t *count,
                    struct ledgermq_error *error);
void consumer_free(struct consumer *consumer);
/* LEDGERMQ_INVALID on the loop thread, which may not wait for itself. */
int consumer_may_wait(const struct consumer *consumer, struct ledgermq_error *error);
/* Runs on the loop thread, waits for its return. */
void consumer_run(struct consumer *consumer, void (*run)(struct consumer *consumer, void *argument), void *argument);
/* Loop thread: a call or job has ended; the last one of a consumer that is being stopped ends it. */
void consumer_ended(struct consumer *consumer);
struct consumer_topic *consumer_topic_find(const struct consumer *consumer, const char *topic);
/* Loop thread: the address of a queue's broker, NULL while none is known. id 0: the leader, if there is one. */
const char *consumer_broker_address(const struct consumer *consumer, const struct ledgermq_queue *queue, int64_t id);
/* The pause after so many failures in a row. */
int consumer_retry_ms(uint32_t failures);

/* --- rebalance.c ---- */

void consumer_rebalance(struct consumer *consumer);
void consumer_rebalance_soon(struct consumer *consumer, int wait_ms);
void consumer_rebalance_run(struct remoting_delay *delay);
/* A route changed: brokers that moved, queues that came. */
void consumer_route_changed(struct consumer *consumer);
/* The queues of one topic (NULL: of all) are to be exactly these. */
void consumer_apply(struct consumer *consumer, const char *topic, const struct ledgermq_queue *queues, size_t count);
struct assigned *consumer_assigned(const struct consumer *consumer, const struct ledgermq_queue *queue);
/* Orderly: dropped, but not yet free for others. */
bool consumer_leaving(const struct consumer *consumer, const struct ledgermq_queue *queue);
void consumer_topic_cancel(struct consumer_topic *topic);
/* A queue is not ours any more: its offset is stored, its lock freed, once nothing of it runs. */
void assigned_drop(struct assigned *assigned);
/* The end of a dropped one when its last job has ended. */
void assigned_left(struct assigned *assigned);

/* --- pull_queue.c ---- */

/* Does what is to be done next for the queue, if anything is. */
void assigned_go(struct assigned *assigned);
void assigned_go_later(struct assigned *assigned, int wait_ms);
/* Stops what is under way. */
void assigned_halt(struct assigned *assigned);
/* Goes on at another offset; what is read ahead is dropped. offset -1: where the group's is. */
void assigned_jump(struct assigned *assigned, int64_t offset);
/* A message of this queue was consumed: moves the offset, reads on. */
void assigned_advance(struct assigned *assigned);

/* --- consumer_offset.c ---- */

struct commit_wait {
    uint32_t pending;
    int code; /* of the first failure */
    struct ledgermq_error *error;
    uv_sem_t done;
};
/* Sends what is dirty (to the file, of a broadcast consumer). wait may be NULL; then it counts the calls. */
void consumer_commit_all(struct consumer *consumer, struct commit_wait *wait);
/* Of a queue that was dropped: its offset is stored, then, when the answer is there, its lock is freed. Counts as a job
 * of the queue until then. */
void consumer_commit_last(struct assigned *assigned);
void consumer_persist_run(struct remoting_delay *delay);

/* --- consumer_lock.c ---- */

/* Asks for locks: of all queues, or of those that have none. */
void consumer_lock_queues(struct consumer *consumer, bool all);
void consumer_lock_run(struct remoting_delay *delay);
void consumer_unlock(struct consumer *consumer, const struct ledgermq_queue *queue);
bool assigned_lock_valid(const struct assigned *assigned);

/* --- send_back.c ---- */

/* done: sent 0 or not. Runs later, once, also when the queue was dropped meanwhile. pulled is used until then. */
typedef void (*send_back_done)(struct assigned *assigned, const struct ledgermq_stored_message *message,
                               unsigned generation, void *context, bool sent);
void consumer_send_back(struct assigned *assigned, const struct ledgermq_stored_message *message,
                        struct pulled *pulled, int delay_level, int max_reconsume_times, send_back_done done,
                        void *context);

/* --- consume_message.c ---- */

/* Messages that were just added to the queue. */
void consume_added(struct assigned *assigned, const struct pulled *pulled);
/* Orderly: the next messages, if it is their time. */
void consume_next(struct assigned *assigned);
void consume_expire_run(struct remoting_delay *delay);
void consume_reconsume_run(struct remoting_delay *delay);
/* Loop thread; a message that a tool wants to be consumed: answers origin when it was. Takes messages. */
void consume_directly(struct consumer *consumer, struct stored_messages *messages,
                      const struct remoting_origin *origin);

/* --- lite_pull_consumer.c ---- */

/* Messages for polls; takes them, on failure too. next_offset: where the queue is read on. ERROR_NO_MEMORY. */
int lite_ready(struct assigned *assigned, struct stored_messages *messages, int64_t next_offset);
/* There was nothing for polls up to next_offset. */
void lite_skipped(struct assigned *assigned, int64_t next_offset);
/* What waits for polls is not wanted any more. */
void lite_forget(struct assigned *assigned);
/* What was polled last is consumed. */
void lite_stop(struct consumer *consumer);
/* Enough waits. */
bool lite_full(const struct assigned *assigned);

/* --- consumer_request.c ---- */

void consumer_requests_handle(struct ledgermq_client *client);
/* An answer whose body is one JSON object, to which the caller adds what is in it. False: nobody waits, see
 * remoting_client_answer_begin(). */
bool consumer_answer_begin(struct ledgermq_client *client, const struct remoting_origin *origin,
                           struct remoting_writer *writer, struct json_writer *json);
void consumer_answer_end(struct ledgermq_client *client, struct remoting_writer *writer, struct json_writer *json);

#endif
