/* broker/registrar against real name servers in the same loop: who is registered, how soon, and after what. The log is played by two functions of
 * this file, so nothing of dledger is linked. */
#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/broker.h"
#include "broker/metadata/order_topics.h"
#include "broker/metadata/topic_config.h"
#include "broker/namesrv/namesrv.h"
#include "broker/namesrv/registrar.h"
#include "broker/remoting/listener.h"
#include "tests/lib/fake_server.h"
#include "tests/lib/run_suite.h"

#define SERVERS 2

static struct dledger_state state;

void dledger_commit_log_state(const struct dledger_commit_log *log, struct dledger_state *out)
{
    (void)log;
    *out = state;
}

void order_topics_take(struct broker *unused, struct slice body)
{
    (void)unused;
    (void)body;
}
bool dledger_commit_log_accepting(const struct dledger_commit_log *log)
{
    (void)log;
    return state.accepting;
}

static uv_loop_t loop;
static struct broker broker;
static struct topic_config_table topics;
static struct topic_entry entries[3];
static struct namesrv *servers[SERVERS];
static int ports[SERVERS];
static char address_list[128];

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static void start_server(int i)
{
    struct namesrv_config config;
    struct error error;
    namesrv_config_init(&config);
    config.listen_port = ports[i];
    strcpy(config.bind_address, "127.0.0.1");
    ck_assert_msg(namesrv_start(&servers[i], &loop, &broker.env, &config, &error) == 0, "%s", error.message);
}

static void on_flag(void *argument)
{
    *(bool *)argument = true;
}

static void stop_server(int i)
{
    bool stopped = false;
    namesrv_stop(servers[i], on_flag, &stopped);
    while (!stopped)
        uv_run(&loop, UV_RUN_ONCE);
    servers[i] = NULL;
}

static void stop_registrar(void)
{
    bool stopped = false;
    registrar_stop(&broker, on_flag, &stopped);
    ck_assert_ptr_null(broker.registrar);
    while (!stopped)
        uv_run(&loop, UV_RUN_ONCE);
}

static void on_timer(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

#define PATIENCE_MS 10000 /* for what must happen, on a machine that does other things as well */

/* Runs the loop until the condition holds; how many milliseconds it took, -1 when it never did. */
static int64_t run_until(bool (*condition)(void *argument), void *argument, uint64_t limit_ms)
{
    bool over = false;
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    timer.data = &over;
    uv_timer_start(&timer, on_timer, limit_ms, 0);
    uint64_t start = uv_hrtime();
    while (!over && !condition(argument))
        uv_run(&loop, UV_RUN_ONCE);
    int64_t took = condition(argument) ? (int64_t)((uv_hrtime() - start) / 1000000) : -1;
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    return took;
}

/* What a server knows, as text; "T@id=address" of broker-a. */
static bool has(int server, const char *part)
{
    if (servers[server] == NULL)
        return false;
    struct buffer out;
    buffer_init(&out, 0);
    route_info_cluster(&servers[server]->routes, NULL, &out);
    buffer_append_u8(&out, 0);
    bool found = strstr((char *)out.data, part) != NULL;
    buffer_close(&out);
    return found;
}

static bool all_have(void *part)
{
    for (int i = 0; i < SERVERS; i++) {
        if (!has(i, part))
            return false;
    }
    return true;
}

static bool none_has(void *part)
{
    for (int i = 0; i < SERVERS; i++) {
        if (has(i, part))
            return false;
    }
    return true;
}

static bool first_has(void *part)
{
    return has(0, part);
}

static bool all_know_topic(void *name)
{
    for (int i = 0; i < SERVERS; i++) {
        if (route_info_find_topic(&servers[i]->routes, slice_of_text(name)) == NULL)
            return false;
    }
    return true;
}

static void add_topic(int i, const char *name)
{
    entries[i].name = (char *)(uintptr_t)name;
    topic_config_init(&entries[i].config, slice_of_text(name));
    HASH_ADD_KEYPTR(hh, topics.entries, entries[i].name, strlen(name), &entries[i]);
    topics.version.counter++;
}

static void set_up(void)
{
    memset(&broker, 0, sizeof broker);
    memset(&topics, 0, sizeof topics);
    memset(entries, 0, sizeof entries);
    memset(&state, 0, sizeof state);
    uv_loop_init(&loop);
    env_real_init(&broker.env);
    broker.loop = &loop;
    broker.topics = &topics;
    strcpy(broker.address, "127.0.0.1:10911");
    broker.config = (struct broker_config){
        .broker_name = "broker-a",
        .broker_cluster_name = "C",
        .broker_ip2 = "127.0.0.1",
        .listen_port = 10911,
        .broker_permission = PERM_READ | PERM_WRITE,
        .register_name_server_period = 30000,
        .register_broker_timeout_mills = 6000,
        .slave_id = 2,
        .advertised_listeners = "",
        .namesrv_addr = address_list,
        .dleger_peers = "",
    };
    for (int i = 0; i < SERVERS; i++)
        ports[i] = free_port();
    snprintf(address_list, sizeof address_list, "127.0.0.1:%d;%s:%d", ports[0], fake_server_host_name(), ports[1]);
    add_topic(0, "First");
    state = (struct dledger_state){.role = DLEDGER_FOLLOWER, .term = 3};
}

static void tear_down(void)
{
    for (int i = 0; i < SERVERS; i++) {
        if (servers[i] != NULL)
            stop_server(i);
    }
    HASH_CLEAR(hh, topics.entries);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(uv_loop_close(&loop), 0); /* nothing was left open */
}

static void start_all(void)
{
    struct error error;
    for (int i = 0; i < SERVERS; i++)
        start_server(i);
    ck_assert_msg(registrar_start(&broker, &error) == 0, "%s", error.message);
}

START_TEST(test_follower_then_leader_then_gone)
{
    start_all();
    ck_assert_int_ge(run_until(all_have, "{\"2\":\"127.0.0.1:10911\"}", PATIENCE_MS), 0);
    ck_assert(!all_know_topic("First")); /* a follower's table does not count */

    state.role = DLEDGER_LEADER;
    state.term = 4;
    registrar_role_changed(&broker);
    for (int i = 0; i < 20; i++) /* elected, but its barrier is not applied: still a follower for clients */
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert(all_have("{\"2\":\"127.0.0.1:10911\"}"));
    state.accepting = true;
    registrar_role_changed(&broker);
    ck_assert_int_ge(run_until(all_have, "{\"0\":\"127.0.0.1:10911\"}", PATIENCE_MS), 0);
    ck_assert(all_know_topic("First"));

    /* A full disk in between does not end leadership. */
    state.accepting = false;
    add_topic(1, "Second");
    registrar_topics_changed(&broker);
    ck_assert_int_ge(run_until(all_know_topic, "Second", PATIENCE_MS), 0);
    ck_assert(all_have("{\"0\":\"127.0.0.1:10911\"}"));

    state.role = DLEDGER_FOLLOWER;
    state.term = 5;
    registrar_role_changed(&broker);
    ck_assert_int_ge(run_until(all_have, "{\"2\":\"127.0.0.1:10911\"}", PATIENCE_MS), 0);

    stop_registrar();
    ck_assert(none_has("10911"));
}
END_TEST

/* What is promised takes no timer. A busy machine may take any time for a single change, so the quickest of several counts. */
START_TEST(test_changes_are_known_within_50_ms)
{
    int64_t up = INT64_MAX, down = INT64_MAX, stop = INT64_MAX;
    for (int i = 0; i < 10 && (up > 50 || down > 50 || stop > 300); i++) {
        struct error error;
        int64_t took;
        if (i == 0)
            start_all();
        else
            ck_assert_msg(registrar_start(&broker, &error) == 0, "%s", error.message);
        ck_assert_int_ge(run_until(all_have, "{\"2\":\"127.0.0.1:10911\"}", PATIENCE_MS), 0);
        state = (struct dledger_state){.role = DLEDGER_LEADER, .term = state.term + 1, .accepting = true};
        registrar_role_changed(&broker);
        took = run_until(all_have, "{\"0\":\"127.0.0.1:10911\"}", PATIENCE_MS);
        ck_assert_int_ge(took, 0);
        up = took < up ? took : up;
        state = (struct dledger_state){.role = DLEDGER_FOLLOWER, .term = state.term + 1};
        registrar_role_changed(&broker);
        took = run_until(all_have, "{\"2\":\"127.0.0.1:10911\"}", PATIENCE_MS);
        ck_assert_int_ge(took, 0);
        down = took < down ? took : down;
        uint64_t start = uv_hrtime();
        stop_registrar();
        took = (int64_t)(uv_hrtime() - start) / 1000000;
        stop = took < stop ? took : stop;
        ck_assert(none_has("10911"));
    }
    ck_assert_msg(up <= 50, "elected: %lld ms", (long long)up);
    ck_assert_msg(down <= 50, "no longer leader: %lld ms", (long long)down);
    ck_assert_msg(stop <= 300, "stopped: %lld ms", (long long)stop);
}
END_TEST

START_TEST(test_changes_of_one_turn_are_one_registration)
{
    start_all();
    state = (struct dledger_state){.role = DLEDGER_LEADER, .term = 4, .accepting = true};
    registrar_role_changed(&broker);
    ck_assert_int_ge(run_until(all_know_topic, "First", PATIENCE_MS), 0);
    add_topic(1, "Second");
    registrar_topics_changed(&broker);
    add_topic(2, "Third");
    registrar_topics_changed(&broker);
    registrar_role_changed(&broker);
    ck_assert_int_ge(run_until(all_know_topic, "Third", PATIENCE_MS), 0);
    ck_assert(all_know_topic("Second"));
    stop_registrar();
}
END_TEST

#define MANY 2000

static enum fake_reaction answer_registration(struct fake_server *server, struct remoting_command *request, struct buffer *out)
{
    (void)server;
    fake_answer(out, request, 0, NULL, slice_of(NULL, 0));
    return FAKE_ANSWER;
}

static bool has_counted(void *server)
{
    return atomic_load(&((struct fake_server *)server)->requests) > 0;
}

/* Topics that are made one after the other must not cost a registration of all of them each; a change of role waits for nothing. */
START_TEST(test_large_tables_gather_changes)
{
    static char names[MANY][32];
    struct topic_entry *many = calloc(MANY, sizeof *many);
    struct fake_server server;
    struct error error;
    fake_server_start(&server, 0, answer_registration, NULL);
    broker.config.namesrv_addr = server.address;
    ck_assert_ptr_nonnull(many);
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "topic-of-many-%05d", i);
        many[i].name = names[i];
        topic_config_init(&many[i].config, slice_of_text(names[i]));
        HASH_ADD_KEYPTR(hh, topics.entries, many[i].name, strlen(names[i]), &many[i]);
    }
    state = (struct dledger_state){.role = DLEDGER_LEADER, .term = 4, .accepting = true};
    ck_assert_msg(registrar_start(&broker, &error) == 0, "%s", error.message);
    ck_assert_int_ge(run_until(has_counted, &server, PATIENCE_MS), 0);
    int before = atomic_load(&server.requests);
    uint64_t start = uv_hrtime(), took_ms;
    for (int i = 0; i < 200; i++) {
        topics.version.counter++;
        registrar_topics_changed(&broker);
        uv_sleep(1);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    took_ms = (uv_hrtime() - start) / 1000000;
    int sent = atomic_load(&server.requests) - before;
    /* 2,000 topics are some 200 KB: one registration in 100 ms. */
    ck_assert_msg(sent <= (int)(took_ms / 50) + 2, "%d registrations in %llu ms", sent, (unsigned long long)took_ms);

    topics.version.counter++;
    registrar_topics_changed(&broker);
    before = atomic_load(&server.requests);
    registrar_role_changed(&broker);
    start = uv_hrtime();
    while (atomic_load(&server.requests) == before && uv_hrtime() - start < PATIENCE_MS * 1000000ull)
        uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_gt(atomic_load(&server.requests), before);
    stop_registrar();
    fake_server_stop(&server);
    HASH_CLEAR(hh, topics.entries);
    free(many);
}
END_TEST

static void pause_ms(uint64_t wait_ms)
{
    bool over = false;
    uv_timer_t timer;
    uv_timer_init(&loop, &timer);
    timer.data = &over;
    uv_timer_start(&timer, on_timer, wait_ms, 0);
    while (!over)
        uv_run(&loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
}

/* Within a second, however long it was away. As above, the quickest of several counts. */
START_TEST(test_name_server_that_comes_back)
{
    int64_t best = INT64_MAX;
    start_all();
    state = (struct dledger_state){.role = DLEDGER_LEADER, .term = 4, .accepting = true};
    registrar_role_changed(&broker);
    ck_assert_int_ge(run_until(all_have, "{\"0\"", PATIENCE_MS), 0);
    for (uint64_t i = 0; i < 4 && (i < 2 || best > 1000); i++) {
        stop_server(0);
        ck_assert(has(1, "{\"0\""));
        pause_ms(1300 + 100 * i); /* long enough for the back-off to reach its end */
        start_server(0);
        int64_t took = run_until(first_has, "{\"0\"", PATIENCE_MS);
        ck_assert_int_ge(took, 0);
        best = took < best ? took : best;
    }
    ck_assert_msg(best <= 1000, "%lld ms", (long long)best);
    stop_registrar();
}
END_TEST

/* A server that accepts and never answers. */
static int silent_accepted;
static void on_silent_closed(uv_handle_t *handle)
{
    free(handle);
}
static void on_silent(uv_stream_t *server, int status)
{
    (void)status;
    uv_tcp_t *client = malloc(sizeof *client);
    uv_tcp_init(&loop, client);
    ck_assert_int_eq(uv_accept(server, (uv_stream_t *)client), 0);
    silent_accepted++;
    uv_tcp_t **keep = server->data;
    keep[silent_accepted - 1] = client;
}
static bool accepted_twice(void *argument)
{
    (void)argument;
    return silent_accepted >= 2;
}

START_TEST(test_name_server_that_does_not_answer)
{
    uv_tcp_t server, *clients[16] = {NULL};
    struct sockaddr_in address;
    silent_accepted = 0;
    uv_tcp_init(&loop, &server);
    server.data = clients;
    uv_ip4_addr("127.0.0.1", ports[0], &address);
    ck_assert_int_eq(uv_tcp_bind(&server, (struct sockaddr *)&address, 0), 0);
    ck_assert_int_eq(uv_listen((uv_stream_t *)&server, 16, on_silent), 0);
    start_server(1);
    broker.config.register_broker_timeout_mills = 100;
    struct error error;
    ck_assert_int_eq(registrar_start(&broker, &error), 0);
    ck_assert_int_ge(run_until(accepted_twice, NULL, PATIENCE_MS), 0); /* given up and tried again */
    ck_assert(has(1, "{\"2\""));                                /* the other one was not disturbed */
    uint64_t start = uv_hrtime();
    stop_registrar();
    ck_assert_uint_lt(uv_hrtime() - start, 5000000000); /* less than the time-out of a registration */
    for (int i = 0; i < silent_accepted; i++)
        uv_close((uv_handle_t *)clients[i], on_silent_closed);
    uv_close((uv_handle_t *)&server, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
}
END_TEST

static bool yes_after_a_while(void *argument)
{
    return --*(int *)argument <= 0;
}

START_TEST(test_stop_at_any_moment)
{
    struct error error;
    if (_i % 2 == 0)
        start_server(0);
    if (_i % 3 == 0)
        strcpy(address_list, "no-such-host.invalid:9876");
    ck_assert_int_eq(registrar_start(&broker, &error), 0);
    int turns = _i / 2;
    for (int i = 0; i < turns; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    if (_i > 20) {
        int left = _i;
        run_until(yes_after_a_while, &left, 200);
    }
    stop_registrar();
}
END_TEST

START_TEST(test_listeners_and_permission)
{
    broker.config.advertised_listeners = "host:127.0.0.1:7777";
    broker.config.listener_count = 1;
    broker.config.broker_permission = PERM_READ;
    state = (struct dledger_state){.role = DLEDGER_LEADER, .term = 4, .accepting = true};
    start_all();
    ck_assert_int_ge(run_until(all_know_topic, "First", PATIENCE_MS), 0);
    struct buffer out;
    buffer_init(&out, 0);
    ck_assert(route_info_topic_route(&servers[0]->routes, SLICE_LITERAL("First"), "host", true, (struct slice){0}, &out));
    buffer_append_u8(&out, 0);
    ck_assert_ptr_nonnull(strstr((char *)out.data, "\"0\":\"127.0.0.1:7777\""));
    ck_assert_ptr_nonnull(strstr((char *)out.data, "\"perm\":4"));
    buffer_close(&out);
    stop_registrar();
}
END_TEST

/* N12: a client may do what both allow, the topic and its broker. N9: nobody is sent here for an unknown topic when auto-creation is off. */
START_TEST(test_permissions_and_the_model_topic)
{
    static const struct {
        int32_t broker, topic, both;
    } rows[] = {{6, 6, 6}, {6, 4, 4}, {6, 2, 2}, {4, 6, 4}, {4, 4, 4}, {4, 2, 0}, {2, 6, 2}, {2, 4, 0}, {0, 6, 0}, {6, 7, 7}, {4, 7, 5}};
    state = (struct dledger_state){.role = DLEDGER_LEADER, .term = 4, .accepting = true};
    broker.config.auto_create_topic_enable = true;
    add_topic(1, "TBW102");
    start_all();
    ck_assert_int_ge(run_until(all_know_topic, "TBW102", PATIENCE_MS), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static char names[sizeof rows / sizeof rows[0]][32];
        char *name = names[i], wanted[32];
        snprintf(name, sizeof names[i], "Row%zu", i);
        snprintf(wanted, sizeof wanted, "\"perm\":%d,", rows[i].both);
        broker.config.broker_permission = rows[i].broker;
        HASH_DEL(topics.entries, &entries[0]);
        add_topic(0, name);
        entries[0].config.perm = rows[i].topic;
        registrar_topics_changed(&broker);
        ck_assert_int_ge(run_until(all_know_topic, name, PATIENCE_MS), 0);
        struct buffer out;
        buffer_init(&out, 0);
        ck_assert(route_info_topic_route(&servers[1]->routes, slice_of_text(name), NULL, true, (struct slice){0}, &out));
        buffer_append_u8(&out, 0);
        ck_assert_msg(strstr((char *)out.data, wanted) != NULL, "row %zu: %s", i, (char *)out.data);
        buffer_close(&out);
    }
    broker.config.auto_create_topic_enable = false;
    HASH_DEL(topics.entries, &entries[0]);
    add_topic(0, "Last");
    registrar_topics_changed(&broker);
    ck_assert_int_ge(run_until(all_know_topic, "Last", PATIENCE_MS), 0);
    ck_assert(!all_know_topic("TBW102"));
    stop_registrar();
}
END_TEST

START_TEST(test_addresses)
{
    static const char *const wrong[] = {"host", "host:", ":1", "host:0", "host:99999", "host:x", "a:1;b"};
    struct error error;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        broker.config.namesrv_addr = wrong[i];
        ck_assert_msg(registrar_start(&broker, &error) == ERROR_INVALID, "%s was taken", wrong[i]);
        ck_assert_ptr_nonnull(strstr(error.message, "namesrvAddr"));
        ck_assert_ptr_null(broker.registrar);
    }
    /* All peers' hosts, each once, with the name servers' port. */
    broker.config.namesrv_addr = "";
    broker.config.namesrv_port = ports[0];
    broker.config.dleger_peers = "n0-127.0.0.1:20911;n1-127.0.0.1:20912;n2-[::1]:20913";
    start_server(0);
    ck_assert_int_eq(registrar_start(&broker, &error), 0);
    ck_assert_int_ge(run_until(first_has, "10911", PATIENCE_MS), 0);
    ck_assert_uint_eq(remoting_server_connection_count(servers[0]->server), 1);
    stop_registrar();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("registrar");
    TCase *tcase = tcase_create("registrar");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, test_follower_then_leader_then_gone);
    tcase_add_test(tcase, test_changes_are_known_within_50_ms);
    tcase_add_test(tcase, test_changes_of_one_turn_are_one_registration);
    tcase_add_test(tcase, test_large_tables_gather_changes);
    tcase_add_test(tcase, test_name_server_that_comes_back);
    tcase_add_test(tcase, test_name_server_that_does_not_answer);
    tcase_add_loop_test(tcase, test_stop_at_any_moment, 0, 40);
    tcase_add_test(tcase, test_listeners_and_permission);
    tcase_add_test(tcase, test_permissions_and_the_model_topic);
    tcase_add_test(tcase, test_addresses);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
