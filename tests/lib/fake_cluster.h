/* A name server and some brokers on loopback for tests of the client: heart-beats are answered, the rest is
 * the test's script's. Every topic is known, with two queues on each broker. */
#ifndef LEDGERMQ_TESTS_LIB_FAKE_CLUSTER_H
#define LEDGERMQ_TESTS_LIB_FAKE_CLUSTER_H

#include "client/ledgermq.h"
#include "tests/lib/fake_server.h"

#define FAKE_BROKERS_MAX 3

struct fake_cluster;
/* A request to broker `index` (broker-0, ...), one at a time over all brokers. */
typedef enum fake_reaction (*fake_cluster_script)(struct fake_cluster *cluster, int index,
                                                  struct remoting_command *request, struct buffer *out);

struct fake_cluster {
    struct fake_server name_server, brokers[FAKE_BROKERS_MAX];
    int broker_count;
    char names[FAKE_BROKERS_MAX][64]; /* "broker-0=address", as the route says */
    fake_cluster_script script;
    pthread_mutex_t lock; /* held while the script runs */
    atomic_int heartbeats, unregisters;
};

/* Starts the servers; script NULL answers every send with OK. */
void fake_cluster_start(struct fake_cluster *cluster, int broker_count, fake_cluster_script script);
void fake_cluster_stop(struct fake_cluster *cluster);
struct ledgermq_client *fake_cluster_client(struct fake_cluster *cluster, const char *name_space);
/* Polls for five seconds. */
bool fake_cluster_wait(atomic_int *value, int wanted);
int64_t fake_cluster_now_ms(void);

#endif
