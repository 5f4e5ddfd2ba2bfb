#include "tests/lib/replica_group.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "dledger/replica_internal.h"
#include "store/log_sink.h"

#define ROOT "/store"
#define END_OF_STREAM 0 /* as a type of message: behind all that a process sent that has ended */

struct wire { /* one message on its way */
    uint64_t from, to;
    uint64_t due_us;
    struct peer_message message;
    uint8_t *body;
    struct wire *next;
};

struct group group;
static struct wire *wires; /* as they were sent */

/* ---- what the replica calls ---- */

static struct group_node *node_of(struct env *env)
{
    return (struct group_node *)(void *)((char *)env - offsetof(struct group_node, sim) - offsetof(struct sim_env, env));
}

static int open_or_break(struct env *env, const char *path, unsigned flags, struct env_file **file)
{
    struct group_node *node = node_of(env);
    if (node->broken && strstr(path, "/data/") != NULL)
        return -EIO;
    return node->sim_ops->open(env, path, flags, file);
}

static void put_on_wire(uint64_t from, uint64_t to, const struct peer_message *message, const uint8_t *run, size_t size)
{
    struct wire *wire = malloc(sizeof *wire);
    uint64_t due = group.nodes[from].clock.monotonic_us + (group.latency_us == NULL ? 0 : group.latency_us(from, to));
    struct wire **at = &wires;
    for (; *at != NULL; at = &(*at)->next) {
        if ((*at)->from == from && (*at)->to == to && (*at)->due_us > due)
            due = (*at)->due_us;
    }
    *wire = (struct wire){from, to, due, *message, malloc(size + 1), NULL};
    wire->message.body_size = (uint32_t)size;
    if (size > 0)
        memcpy(wire->body, run, size);
    if (size > 0 && group.spoils != NULL)
        group.spoils(&wire->message, wire->body);
    *at = wire;
}

static void io_send(void *context, uint64_t to, struct peer_message *message, const uint8_t *run, size_t size)
{
    struct group_node *node = context;
    ck_assert_msg(message->type != PEER_APPEND_ENTRIES || (uint32_t)message->append.stamp != 0, "an answer to it would promise more than was asked");
    if (group.nodes[to].up && !group.nodes[to].cut && !node->cut && !group.parted[node->id][to] && (group.passes == NULL || group.passes(node->id, to, message)))
        put_on_wire(node->id, to, message, run, size);
}

static void deliver(struct wire *wire)
{
    struct group_node *to = &group.nodes[wire->to];
    if (to->up && wire->message.type == END_OF_STREAM) {
        replica_peer_lost(&to->replica, wire->from);
        replica_peer_gone(&to->replica, wire->from);
    } else if (to->up && !to->cut) {
        replica_receive(&to->replica, wire->from, &wire->message, wire->body);
    }
    free(wire->body);
    free(wire);
}

static void io_cut(void *context)
{
    (void)context;
}
static void io_sync(void *context, struct ledger_sync *sync)
{
    (void)sync;
    ((struct group_node *)context)->sync_wanted = true;
}
static void io_reserve(void *context, struct ledger_reservation *job)
{
    (void)job;
    ((struct group_node *)context)->reserve_wanted = true;
}
static void io_save(void *context, struct replica_save *save)
{
    (void)save;
    ((struct group_node *)context)->save_wanted = true;
}
static void io_scrub(void *context, struct replica_scrub *scrub)
{
    (void)scrub;
    ((struct group_node *)context)->scrub_wanted = true;
}
static bool io_save_vote(void *context, struct vote_save *save)
{
    struct group_node *node = context;
    uint64_t wait = REPLICA_VOTE_WAIT_MS * 1000;
    node->vote_started_us = node->clock.monotonic_us;
    node->vote_wanted = node->vote_sync_us > wait;
    node->clock.monotonic_us += node->vote_wanted ? wait : node->vote_sync_us;
    if (!node->vote_wanted)
        vote_save_run(save);
    return !node->vote_wanted;
}
static void io_hello_changed(void *context)
{
    ((struct group_node *)context)->greet_wanted = true;
}
static void cb_metadata(void *context, uint64_t index, struct slice record, bool replay)
{
    (void)index;
    (void)record;
    if (!replay)
        ((struct group_node *)context)->metadata_applied++;
}
static void cb_message(void *context, uint64_t index, const struct message_dispatch *dispatch, struct slice trailer, bool replay)
{
    (void)index;
    (void)dispatch;
    (void)trailer;
    (void)replay;
    ((struct group_node *)context)->messages_applied++;
}
static void cb_nothing(void *context)
{
    (void)context;
}
static int cb_snapshot(void *context, uint64_t index, struct buffer *out)
{
    (void)index;
    ((struct group_node *)context)->snapshots++;
    buffer_append_u32(out, (uint32_t)((struct group_node *)context)->metadata_applied);
    return 0;
}
static int cb_restore(void *context, struct slice snapshot)
{
    ck_assert_uint_eq(snapshot.size, 4);
    ((struct group_node *)context)->metadata_applied = (int)load_u32(snapshot.data);
    return 0;
}
static void cb_failed(void *context, const struct error *error)
{
    (void)context;
    ck_abort_msg("failed: %s", error->message);
}

/* ---- life ---- */

static void hear(struct group_node *from, struct group_node *to)
{
    struct peer_hello hello;
    if (group.parted[from->id][to->id])
        return;
    replica_hello(&from->replica, to->id, &hello);
    replica_hear_configuration(&to->replica, &hello);
    ck_assert_ptr_null(replica_check_hello(&to->replica, &hello));
    replica_peer_connected(&to->replica, from->id, &hello);
}

void group_part(const struct group_node *a, const struct group_node *b)
{
    group.parted[a->id][b->id] = group.parted[b->id][a->id] = true;
}

void group_join(struct group_node *a, struct group_node *b)
{
    group.parted[a->id][b->id] = group.parted[b->id][a->id] = false;
    hear(a, b);
    hear(b, a);
}

static struct dledger_options options_of(const struct group_node *node)
{
    static const char three[] = "n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3";
    static const char five[] = "n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3;n3-127.0.0.1:4;n4-127.0.0.1:5";
    static char ids[GROUP_NODES_MAX][3] = {"n0", "n1", "n2", "n3", "n4"};
    return (struct dledger_options){
        .cluster = "C", .group = "g", .self_id = ids[node->id - 1], .peers = group.alone ? NULL : group.peers != NULL ? group.peers : group.size == GROUP_NODES ? three : five, .dir = ROOT, .segment_size = group.segment_size,
        .index_file_size = 1u << 20, .durability = group.durability, .election_timeout_ms = 300, .heartbeat_ms = 50, .max_wait_ms = 2500,
        .scrub_bytes_per_second = group.scrub_bytes_per_second, .scrub_interval_s = 1,
        .fetch_bytes_per_second = group.fetch_bytes_per_second,
        .preferred_leaders = group.preferred_leaders,
    };
}

/* Opens and starts what the disk has. *opened: how many of the two have to be closed. */
static int begin(struct group_node *node, int *opened, struct error *error)
{
    struct dledger_options options = options_of(node);
    struct dledger_callbacks callbacks = {node, cb_metadata, cb_message, cb_nothing, cb_snapshot, cb_restore, cb_nothing, NULL, NULL, cb_failed, NULL};
    struct replica_io io = {node, io_send, io_cut, io_sync, io_reserve, io_save, io_hello_changed, io_scrub, NULL, io_save_vote};
    struct message_store_config config = {.root = ROOT, .consume_queue_file_size = 20 * 1000, .index_slots = 1000, .index_entries = 4000,
                                          .index_enable = true, .transfer_bytes_max = 262144, .transfer_count_max = 32};
    struct env *env = &node->sim.env;

    ck_assert(!node->up);
    *opened = 0;
    for (struct wire **at = &wires; *at != NULL;) { /* nothing of the process before this one arrives behind its greeting */
        struct wire *wire = *at;
        if (wire->from == node->id || wire->to == node->id) {
            *at = wire->next;
            deliver(wire);
        } else {
            at = &wire->next;
        }
    }
    node->metadata_applied = node->messages_applied = 0;
    node->vote_wanted = node->sync_wanted = node->reserve_wanted = node->save_wanted = node->greet_wanted = node->scrub_wanted = false;
    int rv = replica_open(&node->replica, env, &options, &callbacks, &io, "127.0.0.1:10911", &node->view, error);
    *opened += rv == 0;
    if (rv == 0)
        rv = message_store_open(&node->store, env, &config, &node->view, error);
    *opened += rv == 0;
    return rv == 0 ? replica_start(&node->replica, &node->store, error) : rv;
}

static void greet_all(struct group_node *node)
{
    node->up = true;
    for (int i = 1; i <= group.size; i++) {
        if (group.nodes[i].up && &group.nodes[i] != node) {
            hear(&group.nodes[i], node);
            hear(node, &group.nodes[i]);
        }
    }
}

void group_up(struct group_node *node)
{
    struct error error = {0};
    int opened;
    ck_assert_msg(begin(node, &opened, &error) == 0, "%s", error.message);
    greet_all(node);
}

void group_all_up(void)
{
    for (int i = 1; i <= group.size; i++)
        group_up(&group.nodes[i]);
}

static void work(struct group_node *node)
{
    if (node->vote_wanted && node->clock.monotonic_us >= node->vote_started_us + node->vote_sync_us) {
        node->vote_wanted = false;
        vote_save_run(&node->replica.driver.vote_save);
        raft_driver_vote_saved(&node->replica.driver);
    }
    if (node->sync_wanted && !node->no_sync && (node->sync_us == 0 || node->clock.monotonic_us >= node->replica.sync_started_us + node->sync_us)) {
        node->sync_wanted = false;
        ledger_sync_run(&node->replica.sync);
        replica_synced(&node->replica);
    }
    if (node->reserve_wanted) {
        node->reserve_wanted = false;
        ledger_reservation_run(&node->replica.reservation);
        replica_reserved(&node->replica);
    }
    if (node->scrub_wanted) {
        node->scrub_wanted = false;
        replica_scrub_run(&node->replica.scrub);
        replica_scrubbed(&node->replica);
    }
    if (node->save_wanted) {
        node->save_wanted = false;
        replica_save_run(&node->replica.save);
        replica_saved(&node->replica);
    }
}

static void end_process(struct group_node *node)
{
    node->up = false;
    node->no_sync = false;
    uint64_t vote_sync_us = node->vote_sync_us;
    node->sync_us = node->vote_sync_us = 0;
    work(node);
    work(node);
    node->vote_sync_us = vote_sync_us;
    replica_close(&node->replica);
    message_store_close(&node->store);
    ck_assert_uint_eq(sim_env_unreserved_pages(&node->sim), 0);
    ck_assert_uint_eq(node->sim.open_files, 0);
    ck_assert_uint_eq(node->sim.open_maps, 0);
    sim_env_restart(&node->sim);
    for (int i = 1; i <= group.size; i++) {
        const struct peer_message end = {.type = END_OF_STREAM};
        if (group.nodes[i].up)
            put_on_wire(node->id, (uint64_t)i, &end, NULL, 0);
    }
}

bool group_dies_at_start(struct group_node *node, unsigned calls, uint64_t n, bool power)
{
    struct error error = {0};
    int opened;
    sim_env_kill_at(&node->sim, calls, n);
    int rv = begin(node, &opened, &error);
    if (!node->sim.dead) {
        ck_assert_msg(rv == 0, "%s", error.message);
        node->sim.fault.calls = 0;
        greet_all(node);
        return false;
    }
    if (power)
        sim_env_power_cut(&node->sim);
    if (opened > 0)
        replica_close(&node->replica);
    if (opened > 1)
        message_store_close(&node->store);
    ck_assert_uint_eq(node->sim.open_files, 0);
    ck_assert_uint_eq(node->sim.open_maps, 0);
    sim_env_restart(&node->sim);
    return true;
}

void group_kill(struct group_node *node)
{
    end_process(node);
}

void group_power_cut(struct group_node *node)
{
    sim_env_power_cut(&node->sim);
    end_process(node);
}

static void fresh_disk(struct group_node *node)
{
    node->clock = group.clock;
    sim_env_init(&node->sim, node->id, &node->clock);
    node->sim_ops = node->sim.env.ops;
    node->ops = *node->sim_ops;
    node->ops.open = open_or_break;
    node->sim.env.ops = &node->ops;
}

void group_wipe(struct group_node *node)
{
    ck_assert(!node->up);
    sim_env_close(&node->sim);
    fresh_disk(node);
}

bool group_without_fetched(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)from, (void)to;
    return message->type != PEER_FETCH_RESULT;
}

static void be_quiet(void *context, enum log_level level, const char *text)
{
    (void)context, (void)level, (void)text;
}

void group_set_up(void)
{
    log_sink_set(be_quiet, NULL);
    memset(&group, 0, sizeof group);
    group.clock = (struct sim_clock){1700000000000, 1000000};
    group.durability = DURABILITY_B;
    group.segment_size = GROUP_SEGMENT;
    group.size = GROUP_NODES;
    for (int i = 1; i <= GROUP_NODES_MAX; i++) {
        group.nodes[i].id = (uint64_t)i;
        fresh_disk(&group.nodes[i]);
    }
}

void group_tear_down(void)
{
    for (int i = 1; i <= GROUP_NODES_MAX; i++) {
        if (group.nodes[i].up)
            end_process(&group.nodes[i]);
        sim_env_close(&group.nodes[i].sim);
    }
    while (wires != NULL) {
        struct wire *next = wires->next;
        free(wires->body);
        free(wires);
        wires = next;
    }
}

/* ---- steps ---- */

static void greet(struct group_node *node)
{
    if (!node->greet_wanted || node->cut)
        return;
    node->greet_wanted = false;
    for (int i = 1; i <= group.size; i++) {
        if (group.nodes[i].up && !group.nodes[i].cut && &group.nodes[i] != node)
            hear(node, &group.nodes[i]);
    }
}

static bool runs(const struct group_node *node)
{
    return node->up && node->stall_until_us <= group.clock.monotonic_us && node->clock.monotonic_us <= group.clock.monotonic_us;
}

/* The first that may arrive now. */
static struct wire *take_wire(void)
{
    for (struct wire **at = &wires; *at != NULL; at = &(*at)->next) {
        struct wire *wire = *at;
        const struct group_node *to = &group.nodes[wire->to];
        if (wire->due_us > group.clock.monotonic_us || (to->up && !runs(to)))
            continue;
        *at = wire->next;
        return wire;
    }
    return NULL;
}

void group_step(void)
{
    for (int i = 1; i <= group.size; i++) {
        struct group_node *node = &group.nodes[i];
        if (!runs(node))
            continue;
        replica_tick(&node->replica);
        work(node);
        while (!node->no_turn && replica_turn(&node->replica))
            ;
        greet(node);
    }
    for (struct wire *wire; (wire = take_wire()) != NULL;) {
        deliver(wire);
        for (int i = 1; i <= group.size; i++) {
            if (runs(&group.nodes[i])) {
                work(&group.nodes[i]);
                if (!group.nodes[i].no_turn)
                    replica_turn(&group.nodes[i].replica);
            }
        }
    }
    for (int i = 1; i <= group.size; i++) {
        if (group.nodes[i].up && group.nodes[i].replica.restart_wanted && !group.nodes[i].no_restart) {
            end_process(&group.nodes[i]);
            group.nodes[i].restarts++;
            group_up(&group.nodes[i]);
        }
    }
    for (int i = 1; i <= group.size; i++) {
        if (group.nodes[i].up && !group.nodes[i].may_fail)
            ck_assert_msg(group.nodes[i].replica.phase != REPLICA_FAILED, "n%d: %s", i - 1, group.nodes[i].replica.failure.message);
    }
    group.clock.monotonic_us += 1000;
    group.clock.wall_ms++;
    for (int i = 1; i <= group.size; i++) {
        group.nodes[i].clock.wall_ms = group.clock.wall_ms;
        if (group.nodes[i].clock.monotonic_us < group.clock.monotonic_us)
            group.nodes[i].clock.monotonic_us = group.clock.monotonic_us;
    }
}

void group_steps(int count)
{
    for (int i = 0; i < count; i++)
        group_step();
}

struct group_node *group_leader(void)
{
    for (int i = 1; i <= group.size; i++) {
        if (group.nodes[i].up && group.nodes[i].replica.accepting)
            return &group.nodes[i];
    }
    return NULL;
}

struct group_node *group_wait_leader(int steps)
{
    for (int i = 0; i < steps && group_leader() == NULL; i++)
        group_step();
    ck_assert_ptr_nonnull(group_leader());
    return group_leader();
}

struct group_node *group_other(const struct group_node *a, const struct group_node *b)
{
    for (int i = 1; i <= group.size; i++) {
        if (group.nodes[i].up && &group.nodes[i] != a && &group.nodes[i] != b)
            return &group.nodes[i];
    }
    return NULL;
}

/* ---- sends ---- */

static void send_done(struct append_entry_request *request)
{
    struct group_send *send = (struct group_send *)request;
    ck_assert(!send->done);
    send->done = true;
}

int group_send(struct group_node *node, struct group_send *send, int n)
{
    char text[64], key[24];
    struct error error;
    struct consume_queue *queue = message_store_queue(&node->store, SLICE_LITERAL("T"), n % 4, true, &error);
    struct message_record record = {.queue_id = n % 4, .topic = SLICE_LITERAL("T"), .store_timestamp_ms = 1700000000000 + n};
    int64_t offset;
    int code;

    snprintf(text, sizeof text, "message %d", n);
    record.body = slice_of_text(text);
    snprintf(key, sizeof key, "KEYS\x01%d", n);
    if (group.keyed)
        record.properties = slice_of_text(key);
    message_host_parse(SLICE_LITERAL("127.0.0.1:1"), &record.born_host);
    message_host_parse(SLICE_LITERAL("127.0.0.1:2"), &record.store_host);
    uint8_t *room = replica_reserve(&node->replica, message_record_size(&record), &offset, &code);
    if (room == NULL)
        return code;
    record.physical_offset = offset;
    record.queue_offset = queue->append_offset++;
    message_record_encode(&record, slice_of(NULL, 0), room);
    if (send == NULL) {
        replica_append(&node->replica, LEDGER_ENTRY_MESSAGE, NULL);
        return 0;
    }
    send->queue_offset = record.queue_offset;
    send->done = false;
    send->request.done = send_done;
    replica_append(&node->replica, LEDGER_ENTRY_MESSAGE, &send->request);
    return 0;
}

void group_must_send(struct group_node *node, int n)
{
    struct group_send send = {0};
    ck_assert_int_eq(group_send(node, &send, n), 0);
    for (int i = 0; i < 3000 && !send.done; i++)
        group_step();
    ck_assert(send.done);
    ck_assert_int_eq(send.request.code, 0);
}

struct group_node *group_was_alone(int count)
{
    struct group_node *node = &group.nodes[1];

    group.alone = true;
    group_up(node);
    for (int i = 0; i < count; i++)
        group_must_send(group_wait_leader(3000), i);
    group_steps(1500);
    group_kill(node);
    return node;
}

void group_open_unstarted(struct group_node *node, struct replica *replica)
{
    static const struct dledger_callbacks no_callbacks;
    static const struct replica_io no_io;
    const struct dledger_options options = options_of(node);
    struct log_view view;
    struct error error;

    ck_assert_int_eq(replica_open(replica, &node->sim.env, &options, &no_callbacks, &no_io, "", &view, &error), 0);
    ck_assert_int_eq(replica_find_configuration(replica, 1, &error), 0);
}

static void ignore_done(struct append_entry_request *request)
{
    (void)request;
}

void group_take_vote(struct group_node *leader, const struct group_node *node)
{
    static struct append_entry_request requests[GROUP_NODES_MAX + 1];
    struct append_entry_request *request = &requests[node->id];
    struct error error;
    int rv = ERROR_BUSY;

    *request = (struct append_entry_request){.done = ignore_done};
    for (int i = 0; i < 500 && rv == ERROR_BUSY; i++) {
        rv = replica_change_member(&leader->replica, DLEDGER_MEMBER_DEMOTE, node->replica.options.self_id, "", request, &error);
        group_step();
    }
    ck_assert_int_eq(rv, 0);
    group_steps(20);
}

const char *group_dir(const struct group_node *node)
{
    static const char *const dirs[GROUP_NODES] = {ROOT "/dledger-n0", ROOT "/dledger-n1", ROOT "/dledger-n2"};
    return dirs[node->id - 1];
}

const char *group_file(const struct group_node *node, const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", group_dir(node), name);
    return path;
}

void group_save_vote(struct group_node *node, uint64_t term, uint64_t voted_for)
{
    struct vote_file votes;
    struct error error;

    ck_assert(!node->up);
    ck_assert_int_eq(vote_file_open(&votes, &node->sim.env, group_file(node, "vote"), &error), 0);
    ck_assert_int_eq(vote_file_save(&votes, term, voted_for, &error), 0);
    vote_file_close(&votes);
}

int64_t group_messages(struct group_node *node)
{
    int64_t sum = 0;
    for (int q = 0; q < 4; q++)
        sum += message_store_max_offset(&node->store, SLICE_LITERAL("T"), q);
    return sum;
}
