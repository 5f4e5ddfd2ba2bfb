#include "tests/lib/fake_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "proto/request_code.h"

static enum fake_reaction route_script(struct fake_server *server, struct remoting_command *request,
                                       struct buffer *out)
{
    struct fake_cluster *cluster = server->context;
    const char *brokers[FAKE_BROKERS_MAX + 1] = {NULL};
    for (int i = 0; i < cluster->broker_count; i++)
        brokers[i] = cluster->names[i];
    fake_answer_route(out, request, brokers, 2, 6);
    return FAKE_ANSWER;
}

static enum fake_reaction broker_script(struct fake_server *server, struct remoting_command *request,
                                        struct buffer *out)
{
    struct fake_cluster *cluster = server->context;
    enum fake_reaction reaction = FAKE_ANSWER;
    pthread_mutex_lock(&cluster->lock);
    if (request->code == REQUEST_UNREGISTER_CLIENT) {
        cluster->unregisters++;
        fake_answer(out, request, 0, NULL, slice_of(NULL, 0));
    } else if (request->code == REQUEST_HEART_BEAT) {
        cluster->heartbeats++;
        fake_answer(out, request, 0, NULL, slice_of(NULL, 0));
    } else if (cluster->script != NULL) {
        reaction = cluster->script(cluster, (int)(server - cluster->brokers), request, out);
    } else {
        fake_answer_send(out, request, 0, 1);
    }
    pthread_mutex_unlock(&cluster->lock);
    return reaction;
}

void fake_cluster_start(struct fake_cluster *cluster, int broker_count, fake_cluster_script script)
{
    *cluster = (struct fake_cluster){.broker_count = broker_count, .script = script};
    pthread_mutex_init(&cluster->lock, NULL);
    fake_server_start(&cluster->name_server, 0, route_script, cluster);
    for (int i = 0; i < broker_count; i++) {
        fake_server_start(&cluster->brokers[i], 0, broker_script, cluster);
        snprintf(cluster->names[i], sizeof cluster->names[i], "broker-%d=%s", i, cluster->brokers[i].address);
    }
}

void fake_cluster_stop(struct fake_cluster *cluster)
{
    fake_server_stop(&cluster->name_server);
    for (int i = 0; i < cluster->broker_count; i++)
        fake_server_stop(&cluster->brokers[i]);
    pthread_mutex_destroy(&cluster->lock);
}

struct ledgermq_client *fake_cluster_client(struct fake_cluster *cluster, const char *name_space)
{
    struct ledgermq_client *client;
    struct ledgermq_client_options options;
    struct ledgermq_error error;
    ledgermq_client_options_init(&options);
    options.name_servers = cluster->name_server.address;
    options.name_space = name_space;
    if (ledgermq_client_new(&options, &client, &error) != LEDGERMQ_OK) {
        fprintf(stderr, "%s\n", error.message);
        abort();
    }
    return client;
}

int64_t fake_cluster_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool fake_cluster_wait(atomic_int *value, int wanted)
{
    for (int64_t end = fake_cluster_now_ms() + 5000; fake_cluster_now_ms() < end; usleep(1000))
        if (*value >= wanted)
            return true;
    return false;
}
