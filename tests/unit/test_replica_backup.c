/* What a leader says a backup of its log would be. */
#include <check.h>

#include "dledger/replica_internal.h"
#include "tests/lib/replica_group.h"
#include "tests/lib/run_suite.h"

static struct dledger_backup backup;

static int begin_backup(struct group_node *node, struct error *error)
{
    replica_backup_close(&node->replica);
    buffer_close(&backup.members);
    buffer_close(&backup.checkpoint);
    return replica_backup_begin(&node->replica, &backup, error);
}

static void set_up(void)
{
    group_set_up();
    memset(&backup, 0, sizeof backup);
}

static void tear_down(void)
{
    buffer_close(&backup.members);
    buffer_close(&backup.checkpoint);
    group_tear_down();
}

/* A change of the group that is not committed is not in the log that is handed out: a fresh group would wait for a member that there is not. */
START_TEST(test_members_of_where_it_ends)
{
    struct append_entry_request request = {0};
    struct error error;
    group_all_up();
    struct group_node *leader = group_wait_leader(5000);
    struct group_node *other = group_other(leader, NULL);
    group_must_send(leader, 0);
    group_other(leader, other)->cut = other->cut = true;
    ck_assert_int_eq(replica_change_member(&leader->replica, DLEDGER_MEMBER_ADD, "n7", "127.0.0.1:7", &request, &error), 0);
    group_steps(20);
    ck_assert_int_eq(replica_group_size(&leader->replica), GROUP_NODES + 1);
    ck_assert_int_eq(begin_backup(leader, &error), 0);
    ck_assert_msg(slice_equal_text(buffer_slice(&backup.members), "n0;n1;n2"), "%.*s", (int)backup.members.size, (const char *)backup.members.data);
    ck_assert_int_eq(backup.last_index + 1, (int64_t)leader->replica.applied);
}
END_TEST

/* The first header is what the copy is held against, so it must be right itself. */
START_TEST(test_a_beginning_that_is_damaged)
{
    struct error error;
    uint64_t offset = (uint64_t[]){16, 24, 33, 36, 40}[_i]; /* term, position, what is uncommitted, chain, checksum of the body */
    group_all_up();
    struct group_node *leader = group_wait_leader(5000);
    group_must_send(leader, 0);
    group_steps(200);
    sim_env_corrupt(&leader->sim, group_file(leader, "data/00000000000000000000"), offset, 4);
    ck_assert_int_eq(begin_backup(leader, &error), ERROR_DAMAGED);
    for (int i = 0; i < 5000 && begin_backup(leader, &error) != 0; i++) { /* asked again, it is mended */
        group_step();
        leader = group_wait_leader(5000);
    }
    ck_assert_int_eq(begin_backup(leader, &error), 0);
    ck_assert_int_eq(backup.first_index, 0);
}
END_TEST

static void *no_memory(void *data, size_t count, size_t size)
{
    (void)data, (void)count, (void)size;
    return NULL;
}

static void *no_memory_again(void *data, void *was, size_t size)
{
    (void)data, (void)was, (void)size;
    return NULL;
}

static void *no_memory_at_all(void *data, size_t size)
{
    (void)data, (void)size;
    return NULL;
}

/* No restore takes a backup that names no member. */
START_TEST(test_no_memory_for_the_members)
{
    struct raft_heap heap = *raft_heap_get();
    struct error error;
    group_all_up();
    struct group_node *leader = group_wait_leader(5000);
    group_must_send(leader, 0);
    heap.malloc = no_memory_at_all;
    heap.calloc = no_memory;
    heap.realloc = no_memory_again;
    raft_heap_set(&heap);
    int rv = begin_backup(leader, &error);
    raft_heap_set_default();
    ck_assert_int_eq(rv, ERROR_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(error.message, "members"));
    ck_assert_uint_eq(leader->replica.backup.id, 0);
    ck_assert_int_eq(begin_backup(leader, &error), 0);
    ck_assert(slice_equal_text(buffer_slice(&backup.members), "n0;n1;n2"));
}
END_TEST

static Suite *suite(void)
{
    Suite *suite = suite_create("replica_backup");
    TCase *test = tcase_create("replica_backup");
    tcase_set_timeout(test, 120);
    tcase_add_checked_fixture(test, set_up, tear_down);
    tcase_add_test(test, test_members_of_where_it_ends);
    tcase_add_test(test, test_no_memory_for_the_members);
    tcase_add_loop_test(test, test_a_beginning_that_is_damaged, 0, 5);
    suite_add_tcase(suite, test);
    return suite;
}

int main(void)
{
    return run_suite(suite());
}
