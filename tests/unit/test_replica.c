/* Three replicas in one thread over real files in a temporary directory, with messages passed by hand: the path from reserve to answer, a lost
 * leader, a follower that lags, a restart. Faults in numbers are the simulator's business (tests/sim). */
#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "dledger/replica.h"
#include "tests/lib/run_suite.h"

#define NODES 3
#define SEGMENT (1u << 20)

struct wire { /* one message on its way */
    uint64_t from, to;
    struct peer_message message;
    uint8_t *body;
    struct wire *next;
};

struct node {
    struct env env;
    struct replica replica;
    struct message_store store;
    struct log_view view;
    char dir[128];
    uint64_t id;
    bool up;
    bool cut;     /* nobody hears it and it hears nobody */
    bool no_turn; /* takes messages, its loop turn does not end */
    bool broken;  /* its disk opens no segment any more */
    bool no_sync; /* its sync takes long */
    int metadata_applied;
    int messages_applied;
    bool sync_wanted, reserve_wanted, save_wanted;
};

static struct node nodes[NODES + 1];
static struct wire *wires, **wires_end = &wires;
static char root[] = "/tmp/ledgermq-replica-XXXXXX";
static uint64_t virtual_us;
static enum durability_class durability;
static struct env_ops test_ops;

static uint64_t virtual_monotonic(struct env *env)
{
    (void)env;
    return virtual_us;
}

static int maybe_broken_open(struct env *env, const char *path, unsigned flags, struct env_file **file)
{
    static struct env real;
    for (int i = 1; i <= NODES; i++) {
        if (&nodes[i].env == env && nodes[i].broken && strstr(path, "/data/") != NULL)
            return -EIO;
    }
    env_real_init(&real);
    return real.ops->open(env, path, flags, file);
}

static void io_send(void *context, uint64_t to, struct peer_message *message, const uint8_t *run, size_t size)
{
    struct node *node = context;
    if (!nodes[to].up || nodes[to].cut || node->cut)
        return;
    struct wire *wire = malloc(sizeof *wire);
    *wire = (struct wire){node->id, to, *message, malloc(size + 1), NULL};
    wire->message.body_size = (uint32_t)size;
    if (size > 0)
        memcpy(wire->body, run, size);
    *wires_end = wire;
    wires_end = &wire->next;
}

static void io_cut(void *context)
{
    (void)context;
}
static void io_sync(void *context, struct ledger_sync *sync)
{
    (void)sync;
    ((struct node *)context)->sync_wanted = true;
}
static void io_reserve(void *context, struct ledger_reservation *job)
{
    (void)job;
    ((struct node *)context)->reserve_wanted = true;
}
static void io_save(void *context, struct replica_save *save)
{
    (void)save;
    ((struct node *)context)->save_wanted = true;
}
static void io_hello_changed(void *context)
{
    (void)context;
}
static void cb_metadata(void *context, uint64_t index, struct slice record, bool replay)
{
    (void)index;
    (void)record;
    if (!replay)
        ((struct node *)context)->metadata_applied++;
}
static void cb_message(void *context, uint64_t index, const struct message_dispatch *dispatch, struct slice trailer, bool replay)
{
    (void)index;
    (void)dispatch;
    (void)trailer;
    (void)replay;
    ((struct node *)context)->messages_applied++;
}
static void cb_nothing(void *context)
{
    (void)context;
}
static int cb_snapshot(void *context, uint64_t index, struct buffer *out)
{
    (void)index;
    buffer_append_u32(out, (uint32_t)((struct node *)context)->metadata_applied);
    return 0;
}
static int cb_restore(void *context, struct slice snapshot)
{
    ck_assert_uint_eq(snapshot.size, 4);
    ((struct node *)context)->metadata_applied = (int)load_u32(snapshot.data);
    return 0;
}
static void cb_failed(void *context, const struct error *error)
{
    (void)context;
    ck_abort_msg("failed: %s", error->message);
}

static void node_up(struct node *node)
{
    static const char peers[] = "n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3";
    static char ids[NODES][3] = {"n0", "n1", "n2"};
    struct dledger_options options = {
        .cluster = "C", .group = "g", .self_id = ids[node->id - 1], .peers = peers, .dir = node->dir, .segment_size = SEGMENT,
        .index_file_size = 1u << 20, .durability = durability, .election_timeout_ms = 300, .heartbeat_ms = 50, .max_wait_ms = 2500,
    };
    struct dledger_callbacks callbacks = {node, cb_metadata, cb_message, cb_nothing, cb_snapshot, cb_restore, cb_nothing, NULL, NULL, cb_failed};
    struct replica_io io = {node, io_send, io_cut, io_sync, io_reserve, io_save, io_hello_changed};
    struct message_store_config config = {.root = node->dir, .consume_queue_file_size = 20 * 1000, .index_slots = 1000, .index_entries = 4000,
                                          .index_enable = true, .transfer_bytes_max = 262144, .transfer_count_max = 32};
    struct error error = {0};

    env_real_init(&node->env);
    test_ops = *node->env.ops;
    test_ops.monotonic_us = virtual_monotonic;
    test_ops.open = maybe_broken_open;
    node->env.ops = &test_ops;
    node->metadata_applied = node->messages_applied = 0;
    node->sync_wanted = node->reserve_wanted = node->save_wanted = false;
    ck_assert_msg(replica_open(&node->replica, &node->env, &options, &callbacks, &io, "127.0.0.1:10911", &node->view, &error) == 0, "%s",
                  error.message);
    ck_assert_msg(message_store_open(&node->store, &node->env, &config, &node->view, &error) == 0, "%s", error.message);
    ck_assert_msg(replica_start(&node->replica, &node->store, &error) == 0, "%s", error.message);
    node->up = true;
    for (int i = 1; i <= NODES; i++) {
        struct peer_hello hello;
        if (!nodes[i].up || &nodes[i] == node)
            continue;
        replica_hello(&nodes[i].replica, node->id, &hello);
        ck_assert_ptr_null(replica_check_hello(&node->replica, &hello));
        replica_peer_connected(&node->replica, nodes[i].id, &hello);
        replica_hello(&node->replica, nodes[i].id, &hello);
        replica_peer_connected(&nodes[i].replica, node->id, &hello);
    }
}

static void node_work(struct node *node)
{
    if (node->sync_wanted && !node->no_sync) {
        node->sync_wanted = false;
        ledger_sync_run(&node->replica.sync);
        replica_synced(&node->replica);
    }
    if (node->reserve_wanted) {
        node->reserve_wanted = false;
        ledger_reservation_run(&node->replica.reservation);
        replica_reserved(&node->replica);
    }
    if (node->save_wanted) {
        node->save_wanted = false;
        replica_save_run(&node->replica.save);
        replica_saved(&node->replica);
    }
}

/* As after kill -9: nothing is said to anybody, files stay as they are. */
static void node_kill(struct node *node)
{
    node->up = false;
    node->no_sync = false;
    node_work(node);
    node_work(node);
    replica_close(&node->replica);
    message_store_close(&node->store);
    for (int i = 1; i <= NODES; i++) {
        if (nodes[i].up) {
            replica_peer_lost(&nodes[i].replica, node->id);
            replica_peer_gone(&nodes[i].replica, node->id);
        }
    }
}

static void step(void)
{
    for (int i = 1; i <= NODES; i++) {
        if (!nodes[i].up)
            continue;
        replica_tick(&nodes[i].replica);
        node_work(&nodes[i]);
        while (!nodes[i].no_turn && replica_turn(&nodes[i].replica))
            ;
    }
    while (wires != NULL) {
        struct wire *wire = wires;
        wires = wire->next;
        if (wires == NULL)
            wires_end = &wires;
        if (nodes[wire->to].up && !nodes[wire->to].cut)
            replica_receive(&nodes[wire->to].replica, wire->from, &wire->message, wire->body);
        free(wire->body);
        free(wire);
        for (int i = 1; i <= NODES; i++) {
            if (nodes[i].up) {
                node_work(&nodes[i]);
                if (!nodes[i].no_turn)
                    replica_turn(&nodes[i].replica);
            }
        }
    }
    virtual_us += 1000;
}

static struct node *leader(void)
{
    for (int i = 1; i <= NODES; i++) {
        if (nodes[i].up && nodes[i].replica.accepting)
            return &nodes[i];
    }
    return NULL;
}

static struct node *wait_leader(int steps)
{
    for (int i = 0; i < steps && leader() == NULL; i++)
        step();
    ck_assert_ptr_nonnull(leader());
    return leader();
}

struct send {
    struct append_entry_request request;
    bool done;
    int64_t queue_offset;
};

static void send_done(struct append_entry_request *request)
{
    struct send *send = (struct send *)request;
    ck_assert(!send->done);
    send->done = true;
}

static int send_message(struct node *node, struct send *send, int n)
{
    char text[64];
    struct error error;
    struct consume_queue *queue = message_store_queue(&node->store, SLICE_LITERAL("T"), n % 4, true, &error);
    struct message_record record = {.queue_id = n % 4, .topic = SLICE_LITERAL("T"), .store_timestamp_ms = 1700000000000 + n};
    int64_t offset;
    int code;

    snprintf(text, sizeof text, "message %d", n);
    record.body = slice_of_text(text);
    message_host_parse(SLICE_LITERAL("127.0.0.1:1"), &record.born_host);
    message_host_parse(SLICE_LITERAL("127.0.0.1:2"), &record.store_host);
    uint8_t *room = replica_reserve(&node->replica, message_record_size(&record), &offset, &code);
    if (room == NULL)
        return code;
    record.physical_offset = offset;
    record.queue_offset = send->queue_offset = queue->append_offset++;
    message_record_encode(&record, slice_of(NULL, 0), room);
    send->done = false;
    send->request.done = send_done;
    replica_append(&node->replica, LEDGER_ENTRY_MESSAGE, &send->request);
    return 0;
}

static int remove_one(const char *path, const struct stat *stat, int flag, struct FTW *ftw)
{
    (void)stat;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void setup(void)
{
    strcpy(root + sizeof root - 7, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    virtual_us = 1000000;
    for (int i = 1; i <= NODES; i++) {
        memset(&nodes[i], 0, sizeof nodes[i]);
        nodes[i].id = (uint64_t)i;
        snprintf(nodes[i].dir, sizeof nodes[i].dir, "%s/%d", root, i);
    }
}

static void teardown(void)
{
    for (int i = 1; i <= NODES; i++) {
        if (nodes[i].up)
            node_kill(&nodes[i]);
    }
    while (wires != NULL) {
        struct wire *next = wires->next;
        free(wires->body);
        free(wires);
        wires = next;
    }
    wires_end = &wires;
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void expect_all_queues(int total)
{
    for (int i = 1; i <= NODES; i++) {
        int64_t sum = 0;
        for (int q = 0; q < 4; q++)
            sum += message_store_max_offset(&nodes[i].store, SLICE_LITERAL("T"), q);
        ck_assert_int_eq(sum, total);
    }
}

START_TEST(test_send_and_restart)
{
    enum { COUNT = 3000 };
    struct send *sends = calloc(COUNT, sizeof *sends);
    struct node *node;
    struct node *old;

    durability = _i == 0 ? DURABILITY_A : DURABILITY_B;
    for (int i = 1; i <= NODES; i++)
        node_up(&nodes[i]);
    node = wait_leader(2000);
    for (int i = 0; i < COUNT; i++) {
        if (i == 1000 || i == 2000) { /* the leader dies with everything acknowledged */
            for (int k = 0; k < 20; k++)
                step();
            ck_assert(sends[i - 1].done);
            old = node;
            node_kill(old);
            node = wait_leader(2000);
            ck_assert_ptr_ne(node, old);
            node_up(old);
        }
        ck_assert_int_eq(send_message(node, &sends[i], i), 0);
        if (i % 37 == 0)
            step();
    }
    for (int k = 0; k < 300; k++)
        step();
    for (int i = 0; i < COUNT; i++) {
        ck_assert(sends[i].done);
        ck_assert_int_eq(sends[i].request.code, 0);
        ck_assert_int_eq(sends[i].queue_offset, i / 4); /* queues go on without a gap over every leader */
    }
    expect_all_queues(COUNT);
    for (int i = 2; i <= NODES; i++) {
        ck_assert_uint_eq(nodes[i].replica.ledger.last_chain, nodes[1].replica.ledger.last_chain);
        ck_assert_uint_eq(nodes[i].replica.ledger.end_position, nodes[1].replica.ledger.end_position);
    }
    /* All at once, then from disk. */
    for (int i = 1; i <= NODES; i++)
        node_kill(&nodes[i]);
    for (int i = 1; i <= NODES; i++)
        node_up(&nodes[i]);
    node = wait_leader(3000);
    for (int k = 0; k < 300; k++)
        step();
    expect_all_queues(COUNT);
    ck_assert_int_eq(send_message(node, &sends[0], 0), 0);
    for (int k = 0; k < 20; k++)
        step();
    ck_assert(sends[0].done);
    ck_assert_int_eq(sends[0].queue_offset, COUNT / 4);
    free(sends);
}
END_TEST

START_TEST(test_no_quorum)
{
    struct send send = {0};
    struct node *node;

    durability = DURABILITY_A;
    for (int i = 1; i <= NODES; i++)
        node_up(&nodes[i]);
    node = wait_leader(2000);
    for (int i = 1; i <= NODES; i++) {
        if (&nodes[i] != node)
            node_kill(&nodes[i]);
    }
    ck_assert_int_eq(send_message(node, &send, 1), 0);
    for (int k = 0; k < 3000 && !send.done; k++)
        step();
    ck_assert(send.done);
    ck_assert(send.request.code == ERROR_LEADERSHIP_LOST || send.request.code == ERROR_QUORUM_TIMEOUT);
    ck_assert_int_eq(message_store_max_offset(&node->store, SLICE_LITERAL("T"), 1), 0);
    for (int k = 0; k < 1000; k++)
        step();
    ck_assert_ptr_null(leader()); /* a leader without a majority steps down */
    ck_assert_int_ne(send_message(node, &send, 2), 0);
}
END_TEST

START_TEST(test_lagging_follower)
{
    enum { COUNT = 20000 };
    struct send *sends = calloc(COUNT, sizeof *sends);
    struct node *node;
    struct node *lagging = NULL;

    durability = DURABILITY_A;
    for (int i = 1; i <= NODES; i++)
        node_up(&nodes[i]);
    node = wait_leader(2000);
    for (int i = 1; i <= NODES; i++) {
        if (&nodes[i] != node)
            lagging = &nodes[i];
    }
    node_kill(lagging);
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_eq(send_message(node, &sends[i], i), 0);
        if (i % 100 == 0)
            step();
    }
    for (int k = 0; k < 100; k++)
        step();
    ck_assert(sends[COUNT - 1].done);
    node_up(lagging);
    for (int k = 0; k < 1000; k++)
        step();
    expect_all_queues(COUNT);
    ck_assert_uint_eq(lagging->replica.ledger.last_chain, node->replica.ledger.last_chain);
    free(sends);
}
END_TEST

/* An emptied directory never helps to elect; it fetches, and votes again afterwards. */
START_TEST(test_wiped_member)
{
    struct send send = {0};
    struct node *node;
    struct node *wiped = NULL;

    durability = DURABILITY_B;
    for (int i = 1; i <= NODES; i++)
        node_up(&nodes[i]);
    node = wait_leader(2000);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(send_message(node, &send, 0), 0);
        for (int k = 0; k < 5; k++)
            step();
        ck_assert(send.done);
    }
    for (int i = 1; i <= NODES; i++) {
        if (&nodes[i] != node)
            wiped = &nodes[i];
    }
    node_kill(wiped);
    nftw(wiped->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    node_up(wiped);
    ck_assert_int_eq(wiped->replica.phase, REPLICA_MUTE);
    for (int k = 0; k < 2000; k++)
        step();
    ck_assert_int_eq(wiped->replica.phase, REPLICA_RUNNING);
    expect_all_queues(50);

    /* Two of three wiped: nobody leads, whatever time passes. */
    for (int i = 1; i <= NODES; i++)
        node_kill(&nodes[i]);
    nftw(nodes[1].dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    nftw(nodes[2].dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    for (int i = 1; i <= NODES; i++)
        node_up(&nodes[i]);
    for (int k = 0; k < 5000; k++) {
        step();
        ck_assert_ptr_null(leader());
    }
}
END_TEST

static struct node *other_leader(const struct node *old)
{
    for (int i = 1; i <= NODES; i++) {
        if (nodes[i].up && &nodes[i] != old && nodes[i].replica.accepting)
            return &nodes[i];
    }
    return NULL;
}

/* A leader that is cut off with entries that nobody else has; *old: that one. Returns its successor, which has committed `count` entries. */
static struct node *deposed(struct node **old, struct send *lost, struct send *sends, int count)
{
    struct node *node = NULL;
    durability = DURABILITY_A;
    for (int i = 1; i <= NODES; i++)
        node_up(&nodes[i]);
    *old = wait_leader(2000);
    for (int k = 0; k < 20; k++)
        step();
    (*old)->cut = true;
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(send_message(*old, &lost[i], i), 0);
    (*old)->no_turn = false;
    for (int k = 0; k < 10; k++)
        step();
    (*old)->no_turn = true;
    for (int k = 0; k < 3000 && node == NULL; k++) {
        step();
        node = other_leader(*old);
    }
    ck_assert_ptr_nonnull(node);
    for (int i = 0; i < count; i++) {
        ck_assert_int_eq(send_message(node, &sends[i], i), 0);
        for (int k = 0; k < 10; k++)
            step();
        ck_assert(sends[i].done);
        ck_assert_int_eq(sends[i].request.code, 0);
    }
    return node;
}

/* Other entries come to stand, and to be committed, where its own stood, all before its loop turn ends: nobody is told that he succeeded. */
START_TEST(test_deposed_leader_answers)
{
    struct send lost[3] = {0};
    struct send sends[10] = {0};
    struct node *old;
    deposed(&old, lost, sends, 10);
    for (int i = 0; i < 3; i++)
        lost[i].request.deadline_us = UINT64_MAX;
    old->cut = false;
    for (int k = 0; k < 200; k++)
        step();
    ck_assert_uint_gt(old->replica.driver.commit, lost[2].request.index + 1);
    ck_assert_uint_eq(old->replica.ledger.last_chain, other_leader(old)->replica.ledger.last_chain);
    old->no_turn = false;
    for (int k = 0; k < 5; k++)
        step();
    for (int i = 0; i < 3; i++) {
        ck_assert(lost[i].done);
        ck_assert_int_eq(lost[i].request.code, ERROR_LEADERSHIP_LOST);
    }
    expect_all_queues(10);
}
END_TEST

/* A member that has cut its log counts again, without a restart. */
START_TEST(test_counts_after_cut)
{
    struct send lost[3] = {0};
    struct send sends[10] = {0};
    struct send send = {0};
    struct node *old;
    struct node *node = deposed(&old, lost, sends, 10);
    old->no_turn = old->cut = false;
    for (int k = 0; k < 500; k++)
        step();
    for (int i = 1; i <= NODES; i++) {
        if (&nodes[i] != node && &nodes[i] != old)
            node_kill(&nodes[i]);
    }
    ck_assert_int_eq(send_message(node, &send, 10), 0);
    for (int k = 0; k < 100 && !send.done; k++)
        step();
    ck_assert(send.done);
    ck_assert_int_eq(send.request.code, 0);
}
END_TEST

/* A disk that fails while room is made for what comes next proves nothing durable any more. */
START_TEST(test_failed_ledger)
{
    enum { COUNT = 20000 };
    struct send *sends = calloc(COUNT, sizeof *sends);
    struct node *node;

    durability = DURABILITY_B;
    for (int i = 1; i <= NODES; i++)
        node_up(&nodes[i]);
    node = wait_leader(2000);
    for (int k = 0; k < 20; k++)
        step();
    node->broken = true;
    for (int i = 0; i < COUNT && node->replica.phase == REPLICA_RUNNING; i++) {
        /* Entries must wait for a sync when it happens. */
        node->no_sync = node->replica.ledger.end_position > SEGMENT - 50000 && !node->replica.ledger.failed;
        if (node->replica.accepting && !node->replica.ledger.failed)
            send_message(node, &sends[i], 0);
        if (i % 50 == 0)
            step();
        ck_assert_uint_le(node->replica.driver.raft.last_stored, (uint64_t)(node->replica.ledger.synced_index + 1));
    }
    ck_assert_int_eq(node->replica.phase, REPLICA_FAILED);
    ck_assert_ptr_nonnull(strstr(node->replica.failure.message, node->dir));
    node_kill(node);
    free(sends);
}
END_TEST

/* A first start that was interrupted between the first entry and the vote file goes on. */
START_TEST(test_interrupted_first_start)
{
    char path[256];
    durability = DURABILITY_B;
    for (int i = 1; i <= NODES; i++)
        node_up(&nodes[i]);
    for (int i = 1; i <= NODES; i++)
        node_kill(&nodes[i]);
    for (int i = 2; i <= NODES; i++) {
        snprintf(path, sizeof path, "%s/dledger-n%d/vote", nodes[i].dir, i - 1);
        ck_assert_int_eq(unlink(path), 0);
    }
    for (int i = 1; i <= NODES; i++)
        node_up(&nodes[i]);
    wait_leader(3000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replica");
    TCase *tcase = tcase_create("replica");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_send_and_restart, 0, 2);
    tcase_add_test(tcase, test_no_quorum);
    tcase_add_test(tcase, test_lagging_follower);
    tcase_add_test(tcase, test_wiped_member);
    tcase_add_test(tcase, test_deposed_leader_answers);
    tcase_add_test(tcase, test_counts_after_cut);
    tcase_add_test(tcase, test_failed_ledger);
    tcase_add_test(tcase, test_interrupted_first_start);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
