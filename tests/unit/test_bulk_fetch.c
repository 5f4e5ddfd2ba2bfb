/* A member whose next entry is deleted in the group: it fetches the log from the leader's first entry on, whatever stops it on the way. */
#include <check.h>
#include <errno.h>
#include <stdio.h>

#include "dledger/replica_internal.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

#define SEGMENT (64u << 10)
#define FIRST 100   /* messages that everybody has */
#define SECOND 1500 /* and that one member lacks: several segments */

static int sent;

static void set_up(void)
{
    group_set_up();
    group.segment_size = SEGMENT;
    sent = 0;
}

static void send_many(int count)
{
    for (int i = 0; i < count; i++) {
        if (i % 50 == 49 || i + 1 == count)
            group_must_send(group_leader(), sent);
        else
            ck_assert_int_eq(group_send(group_leader(), NULL, sent), 0);
        sent++;
    }
}

/* The log begins at this position, though one member lacks what is before it. */
static void trim_to(uint64_t position, bool away)
{
    struct replica *leader = &group_leader()->replica;
    int held_by;
    if (away)
        ck_assert_uint_lt(replica_trim_limit(leader, &held_by), position); /* it is kept for the one that is away ... */
    leader->options.follower_lag_bytes_max = SEGMENT;
    ck_assert_uint_ge(replica_trim_limit(leader, &held_by), position); /* ... up to a limit */
    ck_assert_int_eq(replica_trim(leader, position), 0);
    for (int i = 0; i < 20000 && mapped_file_queue_begin(&leader->ledger.data) < position; i++)
        group_step();
    group_steps(5000);
    ck_assert_uint_eq(mapped_file_queue_begin(&leader->ledger.data), position);
}

/* ... the third segment from the end. */
static void trim(bool away)
{
    const struct ledger *ledger = &group_leader()->replica.ledger;
    trim_to(ledger->end_position - ledger->end_position % SEGMENT - 2 * SEGMENT, away);
    ck_assert_uint_gt(ledger->begin_index, FIRST + 10);
}

/* The member that lacks what is deleted, down. */
static struct group_node *leave_behind(void)
{
    group_all_up();
    group_wait_leader(2000);
    send_many(FIRST);
    group_steps(100);
    struct group_node *node = group_other(group_leader(), NULL);
    group_kill(node);
    send_many(SECOND);
    trim(true);
    return node;
}

static bool is_level(const struct group_node *node)
{
    return group_leader() != NULL && node->up && node->replica.phase == REPLICA_RUNNING && node->replica.applied == group_leader()->replica.applied &&
           node->replica.ledger.last_index == group_leader()->replica.ledger.last_index;
}

static void expect_level(struct group_node *node)
{
    for (int i = 0; i < 30000 && !is_level(node); i++)
        group_step();
    ck_assert_msg(is_level(node), "n%d is at entry %lld in phase %d, its fetch is %s", (int)node->id - 1, (long long)node->replica.ledger.last_index,
                  node->replica.phase, bulk_state_name(node->replica.fetch.state));
    struct group_node *leader = group_leader();
    ck_assert_uint_eq(node->replica.ledger.last_chain, leader->replica.ledger.last_chain);
    ck_assert_int_gt(node->replica.ledger.begin_index, 0);
    ck_assert_int_eq(group_messages(node), sent);
    ck_assert_int_eq(node->metadata_applied, leader->metadata_applied);
    for (uint64_t i = (uint64_t)node->replica.ledger.begin_index; (int64_t)i <= node->replica.ledger.last_index; i++) {
        struct ledger_entry a, b;
        const uint8_t *here = ledger_entry(&node->replica.ledger, i, &a), *there = ledger_entry(&leader->replica.ledger, i, &b);
        ck_assert_ptr_nonnull(here);
        if (there != NULL)
            ck_assert_int_eq(memcmp(here, there, ledger_entry_size(&a)), 0);
    }
    ck_assert_int_eq(ledger_verify(&node->replica.ledger, 0, (uint64_t)node->replica.ledger.last_index, UINT64_MAX), node->replica.ledger.last_index + 1);
    ck_assert_uint_eq(node->replica.ledger.hole_count, 0);
    /* It takes part: what is sent now is on its disk too, and with it alone beside the leader there is a quorum. */
    struct group_node *third = group_other(leader, node);
    bool third_was_up = third->up;
    if (third_was_up)
        group_kill(third);
    send_many(10);
    group_steps(50);
    ck_assert_int_eq(group_messages(node), sent);
    if (third_was_up)
        group_up(third);
}

static bool marked(const struct group_node *node)
{
    return sim_env_exists(&node->sim, group_file(node, "install/complete"));
}

START_TEST(test_behind)
{
    struct group_node *node = leave_behind();
    group_up(node);
    ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING); /* it forgot nothing: it votes all the time */
    expect_level(node);
    ck_assert_int_eq(node->restarts, 1);
}
END_TEST

/* It lacks the first entry of those that remain, and none before: nobody can tell it any more what stands in front of that one. */
START_TEST(test_ends_where_the_log_begins)
{
    group_all_up();
    group_wait_leader(2000);
    const struct ledger *ledger = &group_leader()->replica.ledger;
    uint64_t end, size;
    do {
        end = ledger->end_position;
        send_many(1);
        size = ledger->end_position - end;
    } while (end < SEGMENT || ledger->end_position % SEGMENT + size <= SEGMENT);
    group_steps(100);
    struct group_node *node = group_other(group_leader(), NULL);
    end = (node->replica.ledger.end_position + SEGMENT - 1) / SEGMENT * SEGMENT;
    group_kill(node);
    send_many(SECOND);
    trim_to(end, false);
    group_up(node);
    ck_assert_int_eq(node->replica.ledger.last_index + 1, group_leader()->replica.ledger.begin_index);
    expect_level(node);
    ck_assert_int_eq(node->restarts, 1);
}
END_TEST

START_TEST(test_wiped)
{
    struct group_node *node = leave_behind();
    group_wipe(node);
    group_up(node);
    expect_level(node);
    ck_assert_int_eq(node->restarts, 1);
    ck_assert(!node->replica.checkpoint.forgot);
}
END_TEST

/* A member that begins anew again and again does not make its leader write all tables down each time, and still gets there. */
START_TEST(test_asks_again)
{
    struct group_node *node = leave_behind();
    struct group_node *leader = group_wait_leader(3000);
    const struct peer_message ask = {.type = PEER_MANIFEST};
    uint64_t id = 0;
    int before = leader->snapshots;
    for (int i = 0; i < 8; i++) {
        replica_receive(&leader->replica, node->id, &ask, NULL);
        ck_assert_uint_eq(leader->replica.serve.to, node->id);
        ck_assert(i == 0 || leader->replica.serve.id == id);
        id = leader->replica.serve.id;
        send_many(1);
        group_steps(500);
    }
    ck_assert_int_eq(leader->snapshots, before + 1);
    group_steps(REPLICA_SERVE_FRESH_US / 1000 - 8 * 500);
    replica_receive(&leader->replica, node->id, &ask, NULL);
    ck_assert_uint_ne(leader->replica.serve.id, id);
    group_up(node);
    expect_level(node);
}
END_TEST

/* The leader cannot commit anything of its term, so it does not accept, before the member has fetched what it lacks. */
START_TEST(test_needed_for_the_majority)
{
    struct group_node *node = leave_behind(), *leader = group_leader();
    group_kill(group_other(leader, node));
    ck_assert_int_eq(group_send(leader, NULL, sent++), 0);
    group_steps(20);
    group_kill(leader);
    group_up(leader);
    group_up(node);
    for (int i = 0; i < 30000 && !is_level(node); i++)
        group_step();
    ck_assert(is_level(node));
    send_many(10);
}
END_TEST

/* Without its vote file, with and without the rest. */
START_TEST(test_lost_vote)
{
    struct group_node *node = leave_behind();
    sim_env_remove(&node->sim, group_file(node, "vote"));
    group_up(node);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    expect_level(node);
}
END_TEST

/* A kill or a power cut after each step of the way, of the member or of its leader: every start succeeds, and in the end it is level (V9). */
START_TEST(test_killed_on_the_way)
{
    struct group_node *node = leave_behind();
    int cuts = 0;
    if (_i % 2 == 1)
        group_wipe(node);
    group.fetch_bytes_per_second = 4u << 20;
    group_up(node);
    for (int i = 0; i < 60 && !(is_level(node) && node->restarts > 0); i++) {
        for (int step = 0; step < 1 + (i * 7 + _i * 3) % 23; step++)
            group_step();
        if (_i % 3 == 0)
            group_kill(node);
        else
            group_power_cut(node);
        group_up(node);
        cuts++;
    }
    ck_assert_int_gt(cuts, 0);
    expect_level(node);
}
END_TEST

static struct group_node *fetch_up_to_the_mark(void)
{
    struct group_node *node = leave_behind();
    node->no_restart = true;
    group_up(node);
    for (int i = 0; i < 20000 && node->replica.fetch.state != BULK_COMPLETE; i++)
        group_step();
    ck_assert_int_eq(node->replica.fetch.state, BULK_COMPLETE);
    group_kill(node);
    node->no_restart = false;
    return node;
}

/* The switch from the old log to the new one dies inside each of its calls, one after the other, with and without its machine (V9). */
START_TEST(test_killed_in_the_switch)
{
    struct group_node *node = fetch_up_to_the_mark();
    struct env *env = &node->sim.env;
    struct error error;
    bool installed = false, leftover;
    node->sim.names_in_any_order = _i > 3;
    for (uint64_t n = 1; !installed; n++) {
        sim_env_kill_at(&node->sim, SIM_CHANGES, _i < 2 ? n : 1 + sim_env_chance(&node->sim, 60));
        int rv = bulk_install(env, "/store", group_dir(node), &installed, &leftover, &error);
        bool died = node->sim.dead;
        ck_assert_msg(rv == 0 || died, "%s", error.message);
        if (died && _i % 2 == 1)
            sim_env_power_cut(&node->sim);
        sim_env_restart(&node->sim);
        if (died)
            installed = false;
        ck_assert_uint_lt(n, 400);
        if (died && !marked(node))
            break; /* inside the last call: all was done */
    }
    group_up(node);
    ck_assert_int_gt(node->replica.ledger.begin_index, 0);
    expect_level(node);
    ck_assert_int_eq(node->restarts, 0);
}
END_TEST

/* The switch is done but for one mark when it dies, the next start removes that one, and then the machine loses power, on a disk that keeps what was done to
 * one name and not what was done to another before. With the first mark alone a start would take the new files for the old ones. */
START_TEST(test_marks_go_in_order)
{
    struct group_node *node = fetch_up_to_the_mark();
    struct error error;
    bool installed, leftover;
    node->sim.names_in_any_order = true;
    struct sim_copy *copy = sim_env_copy(&node->sim);
    int between = 0;
    for (uint64_t n = 0; n < 4000; n++) {
        sim_env_put_back(&node->sim, copy);
        sim_env_kill_at(&node->sim, SIM_UNLINK, 1 + n / 10); /* which happens or not */
        bulk_install(&node->sim.env, "/store", group_dir(node), &installed, &leftover, &error);
        bool died = node->sim.dead;
        sim_env_restart(&node->sim);
        if (!died)
            break;
        if (marked(node) || !sim_env_exists(&node->sim, group_file(node, "install/cleared")))
            continue;
        ck_assert_int_eq(bulk_install(&node->sim.env, "/store", group_dir(node), &installed, &leftover, &error), 0);
        sim_env_power_cut(&node->sim);
        sim_env_restart(&node->sim);
        ck_assert(!marked(node) || sim_env_exists(&node->sim, group_file(node, "install/cleared")));
        between++;
    }
    sim_env_copy_free(copy);
    ck_assert_int_gt(between, 0);
    group_up(node);
    expect_level(node);
    ck_assert_int_eq(node->restarts, 0);
}
END_TEST

/* It dies when all entries are there and the mark is not, and nobody sends anything more. */
START_TEST(test_killed_before_the_mark)
{
    struct group_node *node = fetch_up_to_the_mark();
    sim_env_remove(&node->sim, group_file(node, "install/complete"));
    int64_t last = group_leader()->replica.ledger.last_index;
    group_up(node);
    for (int i = 0; i < 20000 && node->restarts == 0; i++)
        group_step();
    ck_assert_int_eq(node->restarts, 1);
    ck_assert_int_eq(group_leader()->replica.ledger.last_index, last);
    expect_level(node);
}
END_TEST

/* It falls behind again before it has gone on, and nobody sends anything more; and the switch died between its two marks: the next one clears what there
 * is all the same. */
START_TEST(test_behind_again)
{
    struct group_node *node = fetch_up_to_the_mark();
    struct env *env = &node->sim.env;
    struct error error;
    bool installed, leftover;
    ck_assert_int_eq(bulk_install(env, "/store", group_dir(node), &installed, &leftover, &error), 0);
    ck_assert(installed);
    if (_i == 1) {
        ck_assert_int_eq(env->ops->make_dir(env, group_file(node, "install")), 0);
        ck_assert_int_eq(bulk_install_mark(env, group_file(node, "install/cleared"), &error), 0);
    }
    group_steps(31000); /* the leader lets go what it served */
    send_many(SECOND);
    trim(false);
    struct group_node *leader = group_leader();
    uint64_t term = leader->replica.votes.term;
    group.fetch_bytes_per_second = 32u << 10;
    group_up(node);
    expect_level(node);
    ck_assert_int_eq(node->restarts, 1);
    ck_assert_ptr_eq(group_leader(), leader); /* what it answers meanwhile deposes nobody */
    ck_assert_uint_eq(leader->replica.votes.term, term);
}
END_TEST

/* The member that lacks what is deleted, up, with so many entries of what it fetches. */
static struct group_node *fetch_a_part(int count)
{
    struct group_node *node = leave_behind();
    const struct bulk_fetch *fetch = &node->replica.fetch;
    group.fetch_bytes_per_second = 1u << 20;
    group_up(node);
    for (int i = 0; i < 5000 && (fetch->state != BULK_ENTRIES || fetch->staging.last_index < fetch->staging.begin_index + count); i++)
        group_step();
    ck_assert_int_eq(fetch->state, BULK_ENTRIES);
    return node;
}

/* L9: who has a part only is not elected. */
START_TEST(test_leader_changes)
{
    struct group_node *node = fetch_a_part(50);
    int64_t had = node->replica.fetch.staging.last_index;
    struct group_node *leader = group_leader();
    group_kill(leader);
    /* The other one needs this member's vote: it forgot nothing, so it gives it, while it fetches (it is not elected itself). */
    struct group_node *next = group_wait_leader(5000);
    ck_assert_ptr_ne(next, node);
    group_up(leader);
    expect_level(node);
    ck_assert_int_gt(had, 0);
}
END_TEST

/* What was fetched and lies there is damaged before it counts. */
START_TEST(test_damaged_meanwhile)
{
    struct group_node *node = fetch_a_part(100);
    char path[160];
    snprintf(path, sizeof path, "%s/install/data/%020llu", group_dir(node), (unsigned long long)node->replica.fetch.first_position);
    group_kill(node);
    sim_env_corrupt(&node->sim, path, 100 + (uint64_t)_i * 1777, 0x10);
    group_up(node);
    expect_level(node);
}
END_TEST

static int pieces;

static bool loses_pieces(uint64_t from, uint64_t to, const struct peer_message *message)
{
    (void)from, (void)to;
    if (message->type != PEER_BULK_RESULT && message->type != PEER_MANIFEST_RESULT && message->type != PEER_BULK)
        return true;
    return ++pieces % 3 != 0;
}

START_TEST(test_lossy)
{
    struct group_node *node = leave_behind();
    pieces = 0;
    group.passes = loses_pieces;
    group_up(node);
    expect_level(node);
    ck_assert_int_gt(pieces, 10);
}
END_TEST

static bool spoiled_first;

static void spoils_pieces(const struct peer_message *message, uint8_t *body)
{
    if (message->type == PEER_BULK_RESULT && message->bulk_result.kind == PEER_BULK_ENTRIES && !spoiled_first) {
        spoiled_first = true;
        body[35] ^= LEDGER_ENTRY_RAW; /* the kind of the first entry, before which there is no chain */
    } else if (message->type == PEER_BULK_RESULT && ++pieces % 3 != 0)
        body[(uint64_t)pieces * 7919 % message->body_size] ^= (uint8_t)(1u << pieces % 8);
}

/* Pieces that are not what was sent: none gets into the log or the tables. */
START_TEST(test_spoiled_pieces)
{
    struct group_node *node = leave_behind();
    pieces = _i;
    spoiled_first = false;
    group.spoils = spoils_pieces;
    group_up(node);
    expect_level(node);
    ck_assert_int_gt(pieces, 3);
}
END_TEST

static uint32_t bits; /* of manifests that were spoiled, one more each time */

static void spoils_manifests(const struct peer_message *message, uint8_t *body)
{
    if (message->type != PEER_MANIFEST_RESULT || message->body_size == 0)
        return;
    ck_assert_int_eq(group.nodes[1].replica.restart_wanted || group.nodes[2].replica.restart_wanted || group.nodes[3].replica.restart_wanted, 0);
    if (bits < message->body_size * 8)
        body[bits / 8] ^= (uint8_t)(1u << bits % 8);
    bits += 5;
}

/* Who belongs to the group is what the leader said, to the bit: with another number in it this member would take itself for removed. */
START_TEST(test_spoiled_manifest)
{
    struct group_node *node = leave_behind();
    bits = (uint32_t)_i;
    group.spoils = spoils_manifests;
    group_up(node);
    for (int i = 0; i < 400000 && node->restarts == 0; i++) {
        group_step();
        ck_assert_int_ne(node->replica.phase, REPLICA_REMOVED);
    }
    ck_assert_uint_gt(bits, 300);
    expect_level(node);
}
END_TEST

/* No room for a second log: it waits, votes on, and goes on when there is some. */
START_TEST(test_full_disk)
{
    struct group_node *node = leave_behind();
    group_up(node);
    node->sim.disk_bytes = node->sim.used_bytes + (uint64_t)_i * 40000;
    group_steps(5000);
    ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING);
    ck_assert_int_eq(node->restarts, 0);
    ck_assert(!node->replica.fetch.frozen);
    node->sim.disk_bytes = 0;
    expect_level(node);
}
END_TEST

/* A call of the way fails once, each in turn. */
START_TEST(test_disk_error)
{
    struct group_node *node = leave_behind();
    group_up(node);
    for (int i = 0; i < 5000 && node->replica.fetch.state != BULK_ASKING; i++)
        group_step();
    node->may_fail = true;
    sim_env_fail_at(&node->sim, SIM_WRITE | SIM_SYNC | SIM_RENAME | SIM_SYNC_DIR | SIM_TRUNCATE | SIM_ALLOCATE, (uint64_t)_i + 1, EIO, false);
    group_steps(3000);
    if (node->replica.phase == REPLICA_FAILED) { /* it was one of its own log or vote file: final, as ever */
        group_kill(node);
        group_up(node);
    }
    expect_level(node);
}
END_TEST

/* The directory of a member is put back as it was some time ago: it voted and acknowledged since. */
START_TEST(test_old_copy)
{
    group_all_up();
    group_wait_leader(2000);
    send_many(FIRST);
    group_steps(1200);
    struct group_node *node = group_other(group_leader(), NULL);
    group_kill(node);
    struct sim_copy *copy = sim_env_copy(&node->sim);
    group_up(node);
    group_steps(100);
    send_many(_i == 0 ? 300 : SECOND);
    group_steps(100);
    ck_assert_int_eq(group_messages(node), sent);
    group_kill(node);
    if (_i == 1)
        trim(false);
    sim_env_put_back(&node->sim, copy);
    sim_env_copy_free(copy);
    group_up(node);
    ck_assert_int_eq(node->replica.phase, REPLICA_RUNNING); /* it does not know */
    for (int i = 0; i < 200 && node->restarts == 0; i++)
        group_step();
    ck_assert_int_ge(node->restarts, 1);
    for (int i = 0; i < 30000 && !is_level(node); i++)
        group_step();
    ck_assert(is_level(node));
    ck_assert_int_eq(group_messages(node), sent);
    ck_assert_uint_ge(node->replica.votes.term, group_leader()->replica.votes.term);
    ck_assert(!node->replica.checkpoint.forgot);
}
END_TEST

/* It hears that its directory is an old copy while a checkpoint is being written, so its vote cannot go at once; meanwhile all that it fetches has come. */
START_TEST(test_old_copy_at_the_end)
{
    struct group_node *node = fetch_a_part(50);
    struct peer_message forgot = {.type = PEER_FORGOT, .forgot = {.term = node->replica.votes.term + 1}};
    group.fetch_bytes_per_second = node->replica.options.fetch_bytes_per_second = 0;
    replica_start_save(&node->replica, false);
    ck_assert(node->replica.saving);
    replica_receive(&node->replica, group_leader()->id, &forgot, NULL);
    ck_assert(node->replica.begins_anew);
    for (int i = 0; i < 2000 && node->restarts == 0; i++)
        group_step();
    ck_assert_int_eq(node->restarts, 1);
    ck_assert_int_eq(node->replica.phase, REPLICA_MUTE);
    ck_assert_int_eq(node->replica.mute_reason, PEER_MUTE_EMPTY); /* what it voted it does not know */
    expect_level(node);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bulk_fetch");
    TCase *tcase = tcase_create("bulk_fetch");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, group_tear_down);
    tcase_add_test(tcase, test_behind);
    tcase_add_test(tcase, test_ends_where_the_log_begins);
    tcase_add_test(tcase, test_needed_for_the_majority);
    tcase_add_test(tcase, test_wiped);
    tcase_add_test(tcase, test_asks_again);
    tcase_add_test(tcase, test_lost_vote);
    tcase_add_loop_test(tcase, test_killed_on_the_way, 0, 12);
    tcase_add_loop_test(tcase, test_killed_in_the_switch, 0, 8);
    tcase_add_test(tcase, test_marks_go_in_order);
    tcase_add_test(tcase, test_killed_before_the_mark);
    tcase_add_loop_test(tcase, test_behind_again, 0, 2);
    tcase_add_test(tcase, test_leader_changes);
    tcase_add_test(tcase, test_old_copy_at_the_end);
    tcase_add_loop_test(tcase, test_damaged_meanwhile, 0, 6);
    tcase_add_test(tcase, test_lossy);
    tcase_add_loop_test(tcase, test_spoiled_manifest, 0, 5);
    tcase_add_loop_test(tcase, test_full_disk, 0, 3);
    tcase_add_loop_test(tcase, test_disk_error, 0, 30);
    tcase_add_loop_test(tcase, test_spoiled_pieces, 0, 6);
    tcase_add_loop_test(tcase, test_old_copy, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
