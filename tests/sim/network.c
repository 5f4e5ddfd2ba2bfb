/* A message's way: queued behind the ones before it on its connection -> arrives, unless its way is cut: then it waits there -> taken by the
 * receiver's loop. The end of a connection travels the same way, so that what was in flight comes first. */
#include "tests/sim/network.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/checker.h"
#include "tests/sim/machine.h"

#define HELLO_DEADLINE (5 * SECOND)
#define BACKOFF_MIN (20 * MS)
#define BACKOFF_MAX (500 * MS)
#define KNOCK (1 * SECOND) /* without a connection: then those with lower numbers are dialled too */
#define YOUNG (200 * MS)
#define KEEPALIVE_MIN (5 * SECOND) /* an end that sends nothing learns so late that the other machine is gone */
#define KEEPALIVE_MAX (15 * SECOND)

struct wire {
    struct wire *next;
    uint64_t arrives;
    bool end; /* of the connection */
    bool flipped; /* a bit of the body */
    uint32_t size;
    uint8_t header[PEER_HEADER_SIZE];
    uint8_t body[];
};

struct queue {
    struct wire *head, *tail;
    uint64_t bytes;
};

/* Two ends: 0 is who dialled. */
struct connection {
    struct connection *next;
    int side[2];
    uint32_t life[2];
    bool open[2];
    bool greeted[2];
    uint64_t member[2];   /* Raft id by which that end knows the other one, 0 = not yet */
    uint64_t born;
    bool silent[2];       /* the other end vanished without a word */
    struct queue flying[2]; /* towards that end */
    struct queue arrived[2];
    uint64_t last_arrival[2];
    bool planned[2];
    bool broken; /* its ends learn of it, one late perhaps */
};

static struct connection *connections;
static struct connection *closed; /* at both ends; events may still know them */

static struct machine *at_end(const struct connection *connection, int end)
{
    return world.machines[connection->side[end]];
}

static void put(struct queue *queue, struct wire *wire)
{
    wire->next = NULL;
    if (queue->tail == NULL)
        queue->head = wire;
    else
        queue->tail->next = wire;
    queue->tail = wire;
    queue->bytes += wire->size;
}

static struct wire *take(struct queue *queue)
{
    struct wire *wire = queue->head;
    queue->head = wire->next;
    if (queue->head == NULL)
        queue->tail = NULL;
    queue->bytes -= wire->size;
    return wire;
}

static uint64_t drop_behind(struct queue *queue, uint64_t keep)
{
    uint64_t dropped = 0;
    struct queue kept = {0};
    while (queue->head != NULL) {
        struct wire *wire = take(queue);
        if (keep > 0) {
            keep--;
            put(&kept, wire);
        } else {
            dropped += wire->end ? 0 : 1;
            free(wire);
        }
    }
    *queue = kept;
    return dropped;
}

static uint64_t count_of(const struct queue *queue)
{
    uint64_t count = 0;
    for (const struct wire *wire = queue->head; wire != NULL; wire = wire->next)
        count++;
    return count;
}

/* What waits to be taken by a machine's loop is counted: most turns find nothing. */
static void arrive(struct connection *connection, int end, struct wire *wire)
{
    put(&connection->arrived[end], wire);
    at_end(connection, end)->arrived++;
}

/* ---- travelling ---- */

static void on_arrival(const struct world_event *event);

static void plan_arrival(struct connection *connection, int end)
{
    if (connection->planned[end] || connection->flying[end].head == NULL)
        return;
    connection->planned[end] = true;
    world_at(connection->flying[end].head->arrives, on_arrival, 0, 0, connection, (uint64_t)end);
}

static void on_arrival(const struct world_event *event)
{
    struct connection *connection = event->pointer;
    int end = (int)event->value;
    connection->planned[end] = false;
    struct queue *flying = &connection->flying[end];
    if (flying->head == NULL)
        return;
    if (flying->head->arrives > world.now) { /* was made later meanwhile */
        plan_arrival(connection, end);
        return;
    }
    if (world.cut[connection->side[1 - end]][connection->side[end]])
        return;
    struct wire *wire = take(flying);
    if (!connection->open[end]) {
        free(wire);
    } else {
        arrive(connection, end, wire);
        machine_wake(at_end(connection, end), world.now + chance(50));
    }
    plan_arrival(connection, end);
}

static uint64_t travel_time(void)
{
    uint64_t time = 20 + chance(world.latency_us);
    if (!world.calm && chance(1000000) < world.late_per_million)
        time += chance_skewed(3 * SECOND);
    return time;
}

static void fly(struct connection *connection, int to_end, struct wire *wire)
{
    wire->arrives = world.now + travel_time();
    if (wire->arrives < connection->last_arrival[to_end])
        wire->arrives = connection->last_arrival[to_end];
    connection->last_arrival[to_end] = wire->arrives;
    put(&connection->flying[to_end], wire);
    plan_arrival(connection, to_end);
}

static struct wire *new_wire(uint32_t size)
{
    struct wire *wire = malloc(sizeof *wire + size); /* the body is whose it is to fill */
    assert(wire != NULL);
    *wire = (struct wire){.size = size};
    return wire;
}

/* That end learns that it is over, after what is in flight to it. */
static void fly_end(struct connection *connection, int to_end)
{
    if (!connection->open[to_end])
        return;
    struct wire *wire = new_wire(0);
    wire->end = true;
    fly(connection, to_end, wire);
}

static void send_on(struct connection *connection, int from_end, const struct peer_message *message, const uint8_t *body, uint32_t size)
{
    int to_end = 1 - from_end;
    if (!connection->open[to_end]) {
        /* Nobody is there. Its machine says so, once it has power again; else only time tells. */
        if (connection->silent[from_end] && at_end(connection, to_end)->powered && connection->flying[from_end].head == NULL)
            fly_end(connection, from_end);
        return;
    }
    struct wire *wire = new_wire(size);
    struct peer_message copy = *message;
    copy.body_size = size;
    peer_message_encode(&copy, wire->header);
    if (size > 0)
        memcpy(wire->body, body, size);
    if (size > 0 && message->count > 0 && !world.calm && chance(1000000) < world.flip_per_million) {
        wire->body[chance(size)] ^= (uint8_t)(1u << chance(8));
        wire->flipped = true;
        world.stats->bits_flipped++;
    }
    world.stats->messages++;
    fly(connection, to_end, wire);
}

void network_send(struct machine *machine, uint64_t to, const struct peer_message *message, const uint8_t *body, uint32_t size)
{
    assert(to >= 1 && to <= DLEDGER_MEMBERS_MAX);
    struct connection *connection = machine->numbers[to] == 0 ? NULL : machine->links[machine->numbers[to]].connection;
    if (connection == NULL) {
        world.stats->messages_lost++;
        return;
    }
    int from_end = connection->side[0] == machine->id ? 0 : 1;
    if (size > 0 && connection->flying[1 - from_end].bytes > world.unsent_max) {
        world.stats->messages_lost++;
        return;
    }
    send_on(connection, from_end, message, body, size);
}

static void send_hello(struct connection *connection, int from_end)
{
    struct peer_hello hello;
    struct peer_message message;
    struct buffer body;

    replica_hello(&at_end(connection, from_end)->replica, connection->member[from_end], &hello);
    buffer_init(&body, 0);
    peer_hello_encode(&hello, &message, &body);
    assert(!body.failed);
    send_on(connection, from_end, &message, body.data, (uint32_t)body.size);
    buffer_close(&body);
}

/* ---- ends ---- */

static void plan_dial(struct machine *machine, int to, uint64_t at);

static void on_gone(const struct world_event *event)
{
    struct machine *machine = world.machines[event->node];
    if (!machine_alive(machine) || machine->life != event->life)
        return;
    if (machine->paused) {
        world_at(world.now + 20 * MS, on_gone, event->node, event->life, NULL, event->value);
        return;
    }
    uint64_t number = machine_number_of(machine, (int)event->value);
    if (number == 0)
        return;
    machine_clock(machine);
    replica_peer_gone(&machine->replica, number);
    machine_after(machine);
}

static bool reachable(int from, int to)
{
    return !world.cut[from][to] && !world.cut[to][from];
}

/* The kernel of a machine without the process refuses. */
static bool refuses(int from, int to)
{
    return reachable(from, to) && world.machines[to]->powered && !world.machines[to]->up;
}

/* The end is closed by its process (or with it). lost_in_flight: the last part of what it had sent does not arrive. */
static void close_end(struct connection *connection, int end, bool lost_in_flight, bool silent)
{
    struct queue *sent = &connection->flying[1 - end];
    if (!connection->open[end])
        return;
    connection->open[end] = false;
    at_end(connection, end)->arrived -= count_of(&connection->arrived[end]);
    drop_behind(&connection->arrived[end], 0);
    drop_behind(&connection->flying[end], 0);
    if (lost_in_flight)
        world.stats->messages_lost += drop_behind(sent, chance(count_of(sent) + 1));
    if (silent)
        connection->silent[1 - end] = true;
    else
        fly_end(connection, 1 - end);
}

static void on_keepalive(const struct world_event *event)
{
    struct connection *connection = event->pointer;
    int end = (int)event->value;
    if (connection->open[end] && !connection->open[1 - end])
        fly_end(connection, end);
}

/* Closes one end of a connection on the process's own decision, or because the network says so. */
static void machine_loses(struct machine *machine, struct connection *connection, bool replaced)
{
    int end = connection->side[0] == machine->id ? 0 : 1;
    int other = connection->side[1 - end];
    struct network_link *link = &machine->links[other];
    bool was = connection->greeted[end] && link->connection == connection && !replaced;

    close_end(connection, end, true, false);
    if (link->dialing == connection)
        link->dialing = NULL;
    if (link->connection == connection)
        link->connection = NULL;
    if (!was) {
        if (end == 0 && link->connection == NULL)
            plan_dial(machine, other, world.now + link->backoff_us);
        return;
    }
    replica_peer_lost(&machine->replica, connection->member[end]);
    link->backoff_us = BACKOFF_MIN;
    link->seen_at = world.now;
    plan_dial(machine, other, world.now + (world.now - connection->born < YOUNG ? BACKOFF_MIN : 100));
    if (machine->replica.id < connection->member[end])
        return;
    if (world.now - connection->born < YOUNG)
        return; /* the other end may not want us yet */
    if (refuses(machine->id, other))
        world_at(world.now + 100 + chance(world.latency_us), on_gone, machine->id, machine->life, NULL, (uint64_t)other);
}

void network_end(struct machine *machine, bool silent)
{
    for (struct connection *connection = connections; connection != NULL; connection = connection->next) {
        for (int end = 0; end < 2; end++) {
            if (connection->side[end] != machine->id || !connection->open[end])
                continue;
            close_end(connection, end, true, silent);
            if (silent)
                world_at(world.now + chance_between(KEEPALIVE_MIN, KEEPALIVE_MAX), on_keepalive, 0, 0, connection, (uint64_t)(1 - end));
        }
    }
    memset(machine->links, 0, sizeof machine->links);
}

void network_cut_unsent(struct machine *machine)
{
    for (int i = 1; i <= world.nodes; i++) {
        struct connection *connection = machine->links[i].connection;
        if (connection == NULL)
            continue;
        int end = connection->side[0] == machine->id ? 0 : 1;
        /* What flies has mostly left the process; a late one may still be in it. */
        if (connection->flying[1 - end].head != NULL && (world.cut[machine->id][i] || chance_of(500)))
            machine_loses(machine, connection, false);
    }
}

/* On all that have heard us, also where the other end has not answered yet. */
void network_greet(struct machine *machine)
{
    for (struct connection *connection = connections; connection != NULL; connection = connection->next) {
        for (int end = 0; end < 2; end++) {
            if (connection->side[end] == machine->id && connection->open[end] && connection->life[end] == machine->life && (end == 0 || connection->greeted[end]))
                send_hello(connection, end);
        }
    }
}

/* ---- dialling ---- */

static void on_hello_deadline(const struct world_event *event)
{
    struct connection *connection = event->pointer;
    for (int end = 0; end < 2; end++) {
        struct machine *machine = at_end(connection, end);
        if (!connection->open[end] || connection->greeted[end] || machine->life != connection->life[end])
            continue;
        machine_clock(machine);
        machine_loses(machine, connection, false);
    }
}

static void bury_closed(void)
{
    for (struct connection **at = &connections; *at != NULL;) {
        struct connection *connection = *at;
        if (connection->open[0] || connection->open[1]) {
            at = &connection->next;
            continue;
        }
        *at = connection->next;
        connection->next = closed;
        closed = connection;
    }
}

static void on_dial(const struct world_event *event)
{
    struct machine *machine = world.machines[event->node];
    int to = (int)event->value;
    struct network_link *link = &machine->links[to];
    if (!machine_alive(machine) || machine->life != event->life)
        return;
    uint64_t number = machine_number_of(machine, to);
    if (world.now != link->dial_at)
        return; /* planned anew meanwhile */
    link->dial_at = UINT64_MAX;
    link->packet_lost = false;
    if (link->connection != NULL || link->dialing != NULL || number == 0 || machine->replica.phase == REPLICA_REMOVED)
        return;
    if (number < machine->replica.id && world.now < link->seen_at + KNOCK) { /* it dials us */
        plan_dial(machine, to, link->seen_at + KNOCK);
        return;
    }
    if (machine->paused) {
        plan_dial(machine, to, world.now + 20 * MS);
        return;
    }
    struct machine *other = world.machines[to];
    if (!reachable(machine->id, to) || !other->powered) {
        plan_dial(machine, to, world.now + NETWORK_RETRANSMIT_US);
        link->packet_lost = true;
        return;
    }
    if (!other->up) {
        plan_dial(machine, to, world.now + link->backoff_us);
        link->backoff_us = link->backoff_us * 2 > BACKOFF_MAX ? BACKOFF_MAX : link->backoff_us * 2;
        machine_clock(machine);
        replica_peer_gone(&machine->replica, number);
        machine_after(machine);
        return;
    }
    bury_closed();
    struct connection *connection = calloc(1, sizeof *connection);
    assert(connection != NULL);
    connection->side[0] = machine->id;
    connection->side[1] = to;
    connection->life[0] = machine->life;
    connection->life[1] = other->life;
    connection->open[0] = connection->open[1] = true;
    connection->member[0] = number;
    connection->born = world.now;
    connection->next = connections;
    connections = connection;
    link->dialing = connection;
    world.stats->connections++;
    machine_clock(machine);
    send_hello(connection, 0);
    world_at(world.now + HELLO_DEADLINE, on_hello_deadline, 0, 0, connection, 0);
}

static void plan_dial(struct machine *machine, int to, uint64_t at)
{
    struct network_link *link = &machine->links[to];
    if (at < world.now)
        at = world.now;
    if (at >= link->dial_at || !machine_alive(machine))
        return;
    link->dial_at = at;
    world_at(at, on_dial, machine->id, machine->life, NULL, (uint64_t)to);
}

void network_begin(struct machine *machine)
{
    memset(machine->links, 0, sizeof machine->links);
    memset(machine->numbers, 0, sizeof machine->numbers);
    for (int i = 1; i <= world.nodes; i++)
        machine->links[i] = (struct network_link){.backoff_us = BACKOFF_MIN, .dial_at = UINT64_MAX, .seen_at = world.now};
    machine->members_seen = machine->replica.members_version;
    network_members_changed(machine);
}

/* Whoever has this number now is not the one that these connections are with. */
static void forget_number(struct machine *machine, uint64_t number)
{
    for (struct connection *connection = connections; connection != NULL; connection = connection->next) {
        for (int end = 0; end < 2; end++) {
            if (connection->side[end] == machine->id && connection->open[end] && connection->life[end] == machine->life && connection->member[end] == number)
                machine_loses(machine, connection, true);
        }
    }
}

void network_members_changed(struct machine *machine)
{
    for (uint64_t number = 1; number <= DLEDGER_MEMBERS_MAX; number++) {
        const struct dledger_member *member = &machine->replica.members[number - 1];
        int is = member->raft_id == 0 || member->self ? 0 : machine_named(member->id);
        if (is == machine->numbers[number])
            continue;
        if (machine->numbers[number] != 0)
            forget_number(machine, number);
        machine->numbers[number] = is;
        if (is == 0)
            continue;
        struct network_link *link = &machine->links[is];
        link->backoff_us = BACKOFF_MIN;
        link->seen_at = world.now;
        plan_dial(machine, is, world.now + chance(20 * MS));
    }
}

/* ---- receiving ---- */

static void receive_hello(struct machine *machine, struct connection *connection, int end, const struct peer_message *message, const struct wire *wire)
{
    struct peer_hello hello;
    int other = connection->side[1 - end];
    struct network_link *link = &machine->links[other];

    if (peer_hello_decode(&hello, message, slice_of(wire->body, wire->size)) != 0) {
        if (!wire->flipped)
            violation(machine->id, "a hello is undecodable");
        link->backoff_us = BACKOFF_MAX;
        machine_loses(machine, connection, false);
        return;
    }
    if (wire->flipped)
        violation(machine->id, "a hello with a wrong bit is believed");
    replica_hear_configuration(&machine->replica, &hello);
    network_members_changed(machine);
    if (!connection->open[end])
        return;
    const char *why = replica_check_hello(&machine->replica, &hello);
    if (why != NULL && !connection->greeted[end] && end == 1)
        send_hello(connection, end); /* who is no member hears it from us */
    if (why == NULL && connection->member[end] != 0 && connection->member[end] != hello.from)
        why = "another member answers at this address";
    if (why != NULL) {
        if (!world.changes_members)
            violation(machine->id, "a hello is refused: %s", why);
        TRACE(2, machine->id, "refuses n%d: %s", other - 1, why);
        world.stats->greetings_refused++;
        link->backoff_us = BACKOFF_MAX;
        machine_loses(machine, connection, false);
        return;
    }
    if (!connection->greeted[end]) {
        connection->greeted[end] = true;
        connection->member[end] = hello.from;
        machine->numbers[hello.from] = other;
        struct connection *old = link->connection;
        link->connection = connection;
        if (old != NULL && old != connection)
            machine_loses(machine, old, true);
        link->connection = connection;
        if (link->dialing == connection)
            link->dialing = NULL;
        link->backoff_us = BACKOFF_MIN;
        if (end == 1)
            send_hello(connection, end);
    }
    replica_peer_connected(&machine->replica, hello.from, &hello);
}

static void receive(struct machine *machine, struct connection *connection, int end, const struct wire *wire)
{
    struct peer_message message;

    if (wire->end) {
        machine_loses(machine, connection, false);
        return;
    }
    if (peer_message_decode(&message, wire->header) != 0)
        violation(machine->id, "a message is undecodable");
    if (message.type == PEER_HELLO)
        receive_hello(machine, connection, end, &message, wire);
    else
        replica_receive(&machine->replica, connection->member[end], &message, wire->body);
}

bool network_handle_one(struct machine *machine)
{
    struct connection *with[2 * WORLD_NODES_MAX + 8];
    size_t count = 0;

    if (machine->arrived == 0)
        return false;
    for (struct connection *connection = connections; connection != NULL; connection = connection->next) {
        for (int end = 0; end < 2; end++) {
            if (connection->side[end] == machine->id && connection->open[end] && connection->arrived[end].head != NULL &&
                connection->life[end] == machine->life && count < sizeof with / sizeof with[0])
                with[count++] = connection;
        }
    }
    if (count == 0)
        return false;
    struct connection *connection = with[chance(count)];
    int end = connection->side[0] == machine->id ? 0 : 1;
    struct wire *wire = take(&connection->arrived[end]);
    machine->arrived--;
    receive(machine, connection, end, wire);
    free(wire);
    return true;
}

/* ---- chaos ---- */

static void on_broken(const struct world_event *event)
{
    struct connection *connection = event->pointer;
    int end = (int)event->value;
    if (!connection->open[end])
        return;
    struct wire *wire = new_wire(0);
    wire->end = true;
    wire->arrives = world.now;
    arrive(connection, end, wire);
    machine_wake(at_end(connection, end), world.now);
}

void network_break(int a, int b)
{
    for (struct connection *connection = connections; connection != NULL; connection = connection->next) {
        bool it = (connection->side[0] == a && connection->side[1] == b) || (connection->side[0] == b && connection->side[1] == a);
        if (!it || !connection->open[0] || !connection->open[1])
            continue;
        for (int end = 0; end < 2; end++) {
            struct queue *flying = &connection->flying[end];
            world.stats->messages_lost += drop_behind(flying, chance(count_of(flying) + 1));
            connection->broken = true;
            world_at(world.now + chance_skewed(2 * SECOND), on_broken, 0, 0, connection, (uint64_t)end);
        }
    }
}

void network_delay(int a, int b, uint64_t us)
{
    for (struct connection *connection = connections; connection != NULL; connection = connection->next) {
        bool it = (connection->side[0] == a && connection->side[1] == b) || (connection->side[0] == b && connection->side[1] == a);
        if (!it)
            continue;
        int end = (int)chance(2);
        for (struct wire *wire = connection->flying[end].head; wire != NULL; wire = wire->next)
            wire->arrives += us;
        if (connection->last_arrival[end] < world.now)
            connection->last_arrival[end] = world.now;
        connection->last_arrival[end] += us; /* what follows comes behind it */
    }
}

void network_cuts_changed(void)
{
    for (struct connection *connection = connections; connection != NULL; connection = connection->next) {
        for (int end = 0; end < 2; end++) {
            struct wire *head = connection->flying[end].head;
            if (head == NULL || connection->planned[end] || world.cut[connection->side[1 - end]][connection->side[end]])
                continue;
            if (head->arrives < world.now) /* sent again by the kernel, some time later */
                head->arrives = world.now + chance_skewed(400 * MS);
            plan_arrival(connection, end);
        }
    }
}

void network_calm(void)
{
    for (struct connection *connection = connections; connection != NULL; connection = connection->next) {
        for (int end = 0; end < 2; end++) {
            uint64_t at = world.now + 20 + chance(world.latency_us);
            if (connection->broken)
                world_at(at, on_broken, 0, 0, connection, (uint64_t)end);
            /* Whose other end went with its machine: an answer to a dial is waited for, or silence borne, for longer than an election takes. */
            if (connection->silent[end])
                world_at(at, on_keepalive, 0, 0, connection, (uint64_t)end);
            if (connection->last_arrival[end] <= at)
                continue;
            for (struct wire *wire = connection->flying[end].head; wire != NULL; wire = wire->next) {
                if (wire->arrives > at)
                    wire->arrives = at;
            }
            connection->last_arrival[end] = at;
            connection->planned[end] = false; /* the old plan finds nothing left, or another one */
            plan_arrival(connection, end);
        }
    }
    /* A first packet that was lost is sent again after as long as two elections take. */
    for (int i = 1; i <= world.nodes; i++) {
        for (int to = 1; to <= world.nodes; to++) {
            if (world.machines[i]->links[to].packet_lost)
                plan_dial(world.machines[i], to, world.now + world.latency_us);
        }
    }
}

static void free_list(struct connection *list)
{
    while (list != NULL) {
        struct connection *next = list->next;
        for (int end = 0; end < 2; end++) {
            drop_behind(&list->flying[end], 0);
            drop_behind(&list->arrived[end], 0);
        }
        free(list);
        list = next;
    }
}

void network_close(void)
{
    free_list(connections);
    free_list(closed);
    connections = closed = NULL;
}
