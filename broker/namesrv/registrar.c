/* A link per name server, each with this life:
 *
 *     WAITING --timer--> RESOLVING --> CONNECTING --> CONNECTED --answer 104--> CLOSED (clean stop only)
 *        ^                   |             |              |
 *        '----- back-off 100 .. 500 ms ----+--------------'   connection lost, no answer in time, no such host
 *
 * 1. At every connect, and 30 s after the last answer, the whole table goes out as one 103. It is small and nothing is ever skipped, so that a name
 *    server that restarted, missed something or was told by an older leader is right again after one frame.
 * 2. A change of role or topics sets `changed`; one timer gathers all changes of a loop turn, then all links send. That is at once, for a client that
 *    made a topic by its first send asks for its route next, and after a 17 not again for 30 s. Only large tables are not sent whenever a topic is made in
 *    a row of thousands: then a change waits until the last table is as long ago as its size says.
 * 3. A link has one frame under way at a time: a change meanwhile is sent when that frame has left. So a name server that does not read
 *    costs one frame of memory.
 * 4. A name server that is there again is registered at within a second: a refused connect is tried again within half a second, one that nobody
 *    answers after a second at once, and a machine that lost its memory of a connection is found out by a probe each second.
 * The timer of a link counts what its state waits for: back-off, connect, answer, or the next period.
 */
#include "broker/namesrv/registrar.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "broker/metadata/order_topics.h"
#include "broker/metadata/topic_config.h"
#include "proto/headers.h"
#include "proto/register_broker_body.h"
#include "proto/request_code.h"
#include "proto/topic_validator.h"
#include "store/log_sink.h"

#define LINKS_MAX 16
#define BACK_OFF_MIN_MS 100
#define BACK_OFF_MAX_MS 500
#define CONNECT_MS 1000
#define PROBE_SECONDS 1
#define GOODBYE_MS 500
/* A table of more than GATHER_FREE_BYTES (some 700 topics) is said again for a change of topics when the last one of so many bytes (some 8 us to write, send
 * and read at three name servers each KiB) is so long ago: 1,000 topics of 90 bytes wait 45 ms, and their registrations take a tenth of a core at most. */
#define GATHER_FREE_BYTES 65536u
#define GATHER_BYTES_PER_MS 2000u
#define GATHER_MS_MAX 1000u
#define INPUT_MAX (4u << 20) /* an answer holds the order table, 1 MiB at most (namesrv_kv_config_manager.h) */
#define READ_BYTES 16384u
#define TOPIC_PLAIN_BYTES 160u            /* of a topic in the plain form, beside its name twice */
#define BODY_PLAIN_MAX (12u * 1024 * 1024) /* of 16 MiB; what is larger is compressed */

enum link_state { LINK_WAITING, LINK_RESOLVING, LINK_CONNECTING, LINK_CONNECTED, LINK_CLOSED };

struct link {
    struct registrar *registrar;
    char host[256];
    char port[8];
    enum link_state state;
    bool tcp_open;
    bool timer_open;
    bool complained; /* that it cannot be reached: said once until it can */
    bool writing;
    bool dirty; /* something changed while writing */
    int32_t opaque;        /* of the request sent last */
    bool waiting_answer;   /* for it */
    bool goodbye;          /* it is the 104 of a clean stop */
    uint32_t back_off_ms;
    unsigned choice; /* which of a name's addresses is tried */
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_getaddrinfo_t resolve;
    uv_connect_t connect;
    uv_write_t write;
    struct buffer out;   /* under way while writing */
    struct buffer input; /* of an answer */
};

struct registrar {
    struct broker *broker;
    struct link links[LINKS_MAX];
    int link_count;
    uv_timer_t kick; /* after a change; the limit of a clean stop */
    bool changed;    /* the timer runs for it */
    uint64_t sent_ms; /* uv_now of the last time that all links sent */
    uint64_t leads_term; /* the last term in which we accepted sends, 0 = none */
    int open;            /* handles and look-ups that libuv still knows */
    bool stopping;
    int64_t goodbye_id; /* what we were registered as when the stop began: the log may be gone when the last 104 leaves */
    int32_t next_opaque;
    struct buffer body; /* of 103, kept between uses */
    bool compressed;    /* the body */
    void (*stopped)(void *argument);
    void *stopped_argument;
};

static void link_wait(struct link *link);
static void link_close(struct link *link);
static void on_link_timer(uv_timer_t *timer);
static void on_kick(uv_timer_t *timer);

/* ---- what is said ---- */

/* Under id 0 from the moment that sends are accepted until leadership ends; a full disk in between does not matter to consumers. */
static bool leads(struct registrar *registrar, uint64_t *term)
{
    struct broker *broker = registrar->broker;
    struct dledger_state state;
    dledger_commit_log_state(broker->log, &state);
    *term = state.term;
    if (state.role != DLEDGER_LEADER)
        return false;
    if (dledger_commit_log_accepting(broker->log))
        registrar->leads_term = state.term;
    return registrar->leads_term == state.term;
}

/* With auto-creation off at run time the model stays in the table, but nobody shall be sent here for an unknown topic. */
static bool is_announced(const struct broker *broker, const struct topic_entry *entry)
{
    return !entry->deleting && (broker->config.auto_create_topic_enable || !slice_equal_text(entry->config.name, TOPIC_AUTO_CREATE));
}

static struct topic_config announced(const struct broker *broker, const struct topic_entry *entry)
{
    struct topic_config config = entry->config;
    config.perm &= broker->config.broker_permission | ~(PERM_READ | PERM_WRITE); /* what both allow */
    return config;
}

/* The plain form says each name twice: some 40,000 long ones pass the limit of a frame. */
static void encode_compressed(struct registrar *registrar, const struct data_version *version)
{
    struct broker *broker = registrar->broker;
    struct register_broker_body body = {.version = *version, .topics = malloc((broker->topics->count + 1) * sizeof *body.topics)};
    if (body.topics == NULL) {
        registrar->body.failed = true;
        return;
    }
    for (const struct topic_entry *entry = broker->topics->entries; entry != NULL; entry = entry->hh.next) {
        if (is_announced(broker, entry))
            body.topics[body.topic_count++] = announced(broker, entry);
    }
    register_broker_body_encode(&body, true, &registrar->body);
    free(body.topics);
}

static void encode_topics(struct registrar *registrar)
{
    struct broker *broker = registrar->broker;
    const struct topic_config_table *topics = broker->topics;
    struct data_version version = {.timestamp_ms = topics->version.timestamp_ms, .counter = topics->version.counter};
    size_t plain_size = 0;
    for (const struct topic_entry *entry = topics->entries; entry != NULL; entry = entry->hh.next)
        plain_size += TOPIC_PLAIN_BYTES + 2 * entry->config.name.size;
    registrar->compressed = broker->config.compressed_register || plain_size > BODY_PLAIN_MAX;
    buffer_clear(&registrar->body);
    if (registrar->compressed) {
        encode_compressed(registrar, &version);
    } else {
        register_broker_body_begin(&registrar->body, &version);
        for (const struct topic_entry *entry = topics->entries; entry != NULL; entry = entry->hh.next) {
            if (!is_announced(broker, entry))
                continue;
            struct topic_config config = announced(broker, entry);
            register_broker_body_add(&registrar->body, &config);
        }
        register_broker_body_end(&registrar->body);
    }
}

static void encode_registration(struct registrar *registrar, struct link *link)
{
    struct broker *broker = registrar->broker;
    uint64_t term;
    bool leading = leads(registrar, &term);
    char ha_address[192];
    broker_config_address(broker->config.broker_ip2, broker->config.listen_port + 1, ha_address, sizeof ha_address);
    struct register_broker_request_header header = {
        .broker_name = slice_of_text(broker->config.broker_name),
        .broker_addr = slice_of_text(broker->address),
        .cluster_name = slice_of_text(broker->config.broker_cluster_name),
        .ha_server_addr = slice_of_text(ha_address),
        .broker_id = leading ? 0 : broker->config.slave_id,
        .has_broker_id = true,
        .body_crc32 = register_broker_body_crc(buffer_slice(&registrar->body)),
        .has_body_crc32 = true,
        .compressed = registrar->compressed,
        .has_compressed = registrar->compressed,
        .leader_term = (int64_t)term,
        .has_leader_term = leading,
    };
    if (broker->config.listener_count != 0)
        header.advertised_listeners = slice_of_text(broker->config.advertised_listeners);
    struct remoting_writer writer;
    link->opaque = registrar->next_opaque++;
    remoting_writer_begin_request(&writer, &link->out, REMOTING_JSON, REQUEST_REGISTER_BROKER, link->opaque, 0);
    register_broker_request_header_encode(&header, &writer);
    remoting_writer_body(&writer);
    buffer_append_slice(&link->out, buffer_slice(&registrar->body));
    remoting_writer_end(&writer, 0);
}

static void encode_goodbye(struct registrar *registrar, struct link *link)
{
    struct broker *broker = registrar->broker;
    struct unregister_broker_request_header header = {
        .broker_name = slice_of_text(broker->config.broker_name),
        .broker_addr = slice_of_text(broker->address),
        .cluster_name = slice_of_text(broker->config.broker_cluster_name),
        .broker_id = registrar->goodbye_id,
        .has_broker_id = true,
    };
    struct remoting_writer writer;
    link->opaque = registrar->next_opaque++;
    remoting_writer_begin_request(&writer, &link->out, REMOTING_JSON, REQUEST_UNREGISTER_BROKER, link->opaque, 0);
    unregister_broker_request_header_encode(&header, &writer);
    remoting_writer_end(&writer, 0);
}

/* ---- a link ---- */

static void complain(struct link *link, const char *what, const char *why)
{
    if (!link->complained && !link->registrar->stopping)
        LOG_WARN("name server %s:%s: %s: %s; trying again", link->host, link->port, what, why);
    link->complained = true;
}

static void on_written(uv_write_t *write, int status);

static void link_send(struct link *link)
{
    struct registrar *registrar = link->registrar;
    if (link->state != LINK_CONNECTED)
        return;
    if (link->writing) {
        link->dirty = true;
        return;
    }
    link->dirty = false;
    buffer_clear(&link->out);
    if (registrar->stopping) {
        encode_goodbye(registrar, link);
        link->goodbye = true;
    } else {
        encode_registration(registrar, link);
    }
    if (link->out.failed) {
        complain(link, "cannot register", "the topics do not fit a frame, or memory is short");
        link_close(link);
        return;
    }
    uv_buf_t part = uv_buf_init((char *)link->out.data, (unsigned)link->out.size);
    int rv = uv_write(&link->write, (uv_stream_t *)&link->tcp, &part, 1, on_written);
    if (rv != 0) {
        complain(link, "cannot write", uv_strerror(rv));
        link_close(link);
        return;
    }
    link->writing = true;
    link->waiting_answer = true;
    uv_timer_start(&link->timer, on_link_timer, (uint64_t)registrar->broker->config.register_broker_timeout_mills, 0);
}

/* The table is built once for all links that send in a turn. */
static void send_to_all(struct registrar *registrar)
{
    registrar->changed = false;
    registrar->sent_ms = uv_now(registrar->broker->loop);
    encode_topics(registrar);
    for (int i = 0; i < registrar->link_count; i++)
        link_send(&registrar->links[i]);
}

static void send_to_one(struct link *link)
{
    if (!link->registrar->stopping)
        encode_topics(link->registrar);
    link_send(link);
}

static void on_written(uv_write_t *write, int status)
{
    struct link *link = write->data;
    link->writing = false;
    if (status == UV_ECANCELED || link->state != LINK_CONNECTED)
        return; /* closed meanwhile */
    if (status != 0) {
        complain(link, "connection lost", uv_strerror(status));
        link_close(link);
    } else if (link->dirty) {
        send_to_one(link);
    }
}

static bool any_connected(const struct registrar *registrar)
{
    for (int i = 0; i < registrar->link_count; i++) {
        if (registrar->links[i].state == LINK_CONNECTED)
            return true;
    }
    return false;
}

static bool is_first_connected(const struct link *link)
{
    const struct link *first = link->registrar->links;
    while (first->state != LINK_CONNECTED && first != link)
        first++;
    return first == link;
}

static void on_answer(struct link *link, uint8_t *frame, size_t size)
{
    struct remoting_command command;
    if (remoting_command_decode(frame, size, &command) != 0) {
        complain(link, "connection closed", "what came is no answer");
        link_close(link);
        return;
    }
    if (!remoting_is_response(&command) || command.opaque != link->opaque)
        return; /* to a registration that a newer one has replaced */
    link->waiting_answer = false;
    if (link->goodbye) {
        link_close(link);
        if (!any_connected(link->registrar))
            uv_timer_start(&link->registrar->kick, on_kick, 0, 0);
        return;
    }
    if (command.code != 0) {
        complain(link, "registration refused", "see the next line");
        LOG_WARN("name server %s:%s: code %d %.*s", link->host, link->port, command.code, (int)(command.remark.size > 300 ? 300 : command.remark.size),
                 command.remark.data == NULL ? "" : (const char *)command.remark.data);
    } else {
        if (link->complained)
            LOG_INFO("name server %s:%s: registered", link->host, link->port);
        link->complained = false;
        link->back_off_ms = BACK_OFF_MIN_MS;
        if (is_first_connected(link)) /* tables of several name servers may differ; one counts */
            order_topics_take(link->registrar->broker, command.body);
    }
    uv_timer_start(&link->timer, on_link_timer, (uint64_t)link->registrar->broker->config.register_name_server_period, 0);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)suggested;
    struct link *link = handle->data;
    uint8_t *at = buffer_reserve(&link->input, READ_BYTES);
    *buffer = uv_buf_init((char *)at, at == NULL ? 0 : READ_BYTES); /* 0: on_read is told UV_ENOBUFS */
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    (void)buffer;
    struct link *link = stream->data;
    if (link->state != LINK_CONNECTED)
        return;
    if (count < 0) {
        complain(link, "connection lost", uv_strerror((int)count));
        link_close(link);
        return;
    }
    link->input.size += (size_t)count;
    size_t at = 0;
    while (link->state == LINK_CONNECTED && at < link->input.size) {
        int64_t size = remoting_frame_size(slice_of(link->input.data + at, link->input.size - at));
        if (size < 0) {
            complain(link, "connection closed", "what came is no frame");
            link_close(link);
            return;
        }
        if (size == 0 || (size_t)size > link->input.size - at)
            break;
        on_answer(link, link->input.data + at, (size_t)size);
        at += (size_t)size;
    }
    memmove(link->input.data, link->input.data + at, link->input.size - at);
    link->input.size -= at;
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct link *link = connect->data;
    if (status == UV_ECANCELED || link->state != LINK_CONNECTING)
        return;
    if (status != 0) {
        complain(link, "cannot connect", uv_strerror(status));
        link_close(link);
        return;
    }
    link->state = LINK_CONNECTED;
    buffer_clear(&link->input);
    uv_tcp_nodelay(&link->tcp, 1);
    uv_tcp_keepalive(&link->tcp, 1, PROBE_SECONDS);
    int rv = uv_read_start((uv_stream_t *)&link->tcp, on_alloc, on_read);
    if (rv != 0) {
        complain(link, "cannot read", uv_strerror(rv));
        link_close(link);
        return;
    }
    send_to_one(link);
}

static void link_connect(struct link *link, const struct sockaddr *address)
{
    struct registrar *registrar = link->registrar;
    int rv = uv_tcp_init(registrar->broker->loop, &link->tcp);
    if (rv == 0) {
        link->tcp.data = link;
        link->tcp_open = true;
        registrar->open++;
        link->state = LINK_CONNECTING;
        rv = uv_tcp_connect(&link->connect, &link->tcp, address, on_connected);
    }
    if (rv != 0) {
        complain(link, "cannot connect", uv_strerror(rv));
        link_close(link);
        return;
    }
    uv_timer_start(&link->timer, on_link_timer, CONNECT_MS, 0);
}

static void registrar_part_closed(struct registrar *registrar);

static void on_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *found)
{
    struct link *link = resolve->data;
    struct registrar *registrar = link->registrar;
    if (registrar->stopping || status != 0) {
        if (status != 0)
            complain(link, "no such host", uv_strerror(status));
        link_close(link);
    } else {
        /* A name may stand for addresses of which only some answer (localhost: ::1 and 127.0.0.1): after a failure the next is tried. */
        unsigned count = 0, place;
        for (struct addrinfo *one = found; one != NULL; one = one->ai_next)
            count++;
        struct addrinfo *chosen = found;
        for (place = link->choice % count; place != 0; place--)
            chosen = chosen->ai_next;
        link_connect(link, chosen->ai_addr);
    }
    uv_freeaddrinfo(found);
    registrar_part_closed(registrar);
}

/* Names are looked up at each connect: a container that comes back may have another address. */
static void link_resolve(struct link *link)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct registrar *registrar = link->registrar;
    struct sockaddr_storage address;
    int port = atoi(link->port);
    if (uv_ip4_addr(link->host, port, (struct sockaddr_in *)&address) == 0 || uv_ip6_addr(link->host, port, (struct sockaddr_in6 *)&address) == 0) {
        link_connect(link, (const struct sockaddr *)&address);
        return;
    }
    link->state = LINK_RESOLVING;
    int rv = uv_getaddrinfo(registrar->broker->loop, &link->resolve, on_resolved, link->host, link->port, &hints);
    if (rv != 0) {
        complain(link, "cannot look it up", uv_strerror(rv));
        link_wait(link);
        return;
    }
    registrar->open++;
}

static void on_link_timer(uv_timer_t *timer)
{
    struct link *link = timer->data;
    switch (link->state) {
    case LINK_WAITING:
        link_resolve(link);
        break;
    case LINK_CONNECTING:
        complain(link, "cannot connect", "no answer");
        link->back_off_ms = 0; /* the wait for the answer was pause enough */
        link_close(link);
        break;
    case LINK_CONNECTED:
        if (link->waiting_answer) {
            complain(link, "connection closed", "a registration was not answered");
            link_close(link);
        } else {
            send_to_one(link);
        }
        break;
    case LINK_RESOLVING:
    case LINK_CLOSED:
        break;
    }
}

static void link_wait(struct link *link)
{
    link->state = LINK_WAITING;
    uv_timer_start(&link->timer, on_link_timer, link->back_off_ms, 0);
    link->back_off_ms = link->back_off_ms < BACK_OFF_MIN_MS ? BACK_OFF_MIN_MS : link->back_off_ms * 2;
    if (link->back_off_ms > BACK_OFF_MAX_MS)
        link->back_off_ms = BACK_OFF_MAX_MS;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct link *link = handle->data;
    registrar_part_closed(link->registrar);
}

static void link_end(struct link *link)
{
    link->state = LINK_CLOSED;
    if (link->timer_open) {
        link->timer_open = false;
        uv_close((uv_handle_t *)&link->timer, on_timer_closed);
    }
}

static void on_tcp_closed(uv_handle_t *handle)
{
    struct link *link = handle->data;
    struct registrar *registrar = link->registrar;
    link->tcp_open = false;
    link->writing = link->dirty = link->waiting_answer = false;
    if (registrar->stopping)
        link_end(link);
    else
        link_wait(link);
    registrar_part_closed(registrar);
}

/* Ends what the link is doing; it then waits for its next try, or is at its end when all stops. */
static void link_close(struct link *link)
{
    uv_timer_stop(&link->timer);
    if (link->state == LINK_CONNECTING)
        link->choice++;
    link->state = LINK_CLOSED;
    if (link->tcp_open) {
        if (!uv_is_closing((uv_handle_t *)&link->tcp))
            uv_close((uv_handle_t *)&link->tcp, on_tcp_closed);
    } else if (link->registrar->stopping) {
        link_end(link);
    } else {
        link_wait(link);
    }
}

/* ---- all of them ---- */

static void registrar_part_closed(struct registrar *registrar)
{
    if (--registrar->open != 0)
        return;
    assert(registrar->stopping);
    void (*stopped)(void *) = registrar->stopped;
    void *argument = registrar->stopped_argument;
    for (int i = 0; i < registrar->link_count; i++) {
        buffer_close(&registrar->links[i].out);
        buffer_close(&registrar->links[i].input);
    }
    buffer_close(&registrar->body);
    free(registrar);
    if (stopped != NULL)
        stopped(argument);
}

static void on_kick_closed(uv_handle_t *handle)
{
    registrar_part_closed(handle->data);
}

static void on_kick(uv_timer_t *timer)
{
    struct registrar *registrar = timer->data;
    if (!registrar->stopping) {
        if (registrar->changed)
            send_to_all(registrar);
        return;
    }
    for (int i = 0; i < registrar->link_count; i++) {
        if (registrar->links[i].state == LINK_CONNECTED)
            link_close(&registrar->links[i]); /* no answer to its 104 */
    }
    uv_close((uv_handle_t *)timer, on_kick_closed);
}

void registrar_role_changed(struct broker *broker)
{
    struct registrar *registrar = broker->registrar;
    if (registrar == NULL || registrar->stopping)
        return;
    registrar->changed = true;
    uv_timer_start(&registrar->kick, on_kick, 0, 0);
}

void registrar_topics_changed(struct broker *broker)
{
    struct registrar *registrar = broker->registrar;
    if (registrar == NULL || registrar->stopping || registrar->changed)
        return;
    size_t size = registrar->body.size;
    uint64_t wait_ms = size <= GATHER_FREE_BYTES ? 0 : size / GATHER_BYTES_PER_MS;
    uint64_t since_ms = uv_now(registrar->broker->loop) - registrar->sent_ms;
    if (wait_ms > GATHER_MS_MAX)
        wait_ms = GATHER_MS_MAX;
    registrar->changed = true;
    uv_timer_start(&registrar->kick, on_kick, wait_ms > since_ms ? wait_ms - since_ms : 0, 0);
}

/* ---- addresses ---- */

static int add_link(struct registrar *registrar, struct slice host, struct slice port, struct error *error)
{
    int32_t number;
    if (host.size >= 2 && host.data[0] == '[' && host.data[host.size - 1] == ']')
        host = slice_of(host.data + 1, host.size - 2);
    if (host.size == 0 || host.size >= sizeof registrar->links[0].host || !slice_to_i32(port, &number) || number < 1 || number > 65535)
        return error_set(error, ERROR_INVALID, "namesrvAddr: `%.*s:%.*s` is not host:port", (int)host.size, (const char *)host.data, (int)port.size,
                         (const char *)port.data);
    for (int i = 0; i < registrar->link_count; i++) {
        if (slice_equal_text(host, registrar->links[i].host) && atoi(registrar->links[i].port) == number)
            return 0;
    }
    if (registrar->link_count == LINKS_MAX)
        return error_set(error, ERROR_INVALID, "namesrvAddr: more than %d name servers", LINKS_MAX);
    struct link *link = &registrar->links[registrar->link_count++];
    link->registrar = registrar;
    memcpy(link->host, host.data, host.size);
    snprintf(link->port, sizeof link->port, "%d", number);
    return 0;
}

/* Splits at the last colon, so that an IPv6 address may stand before it. */
static bool split(struct slice text, struct slice *host, struct slice *port)
{
    const uint8_t *colon = text.size == 0 ? NULL : memrchr(text.data, ':', text.size);
    if (colon == NULL)
        return false;
    *host = slice_of(text.data, (size_t)(colon - text.data));
    *port = slice_of(colon + 1, (size_t)(text.data + text.size - colon) - 1);
    return true;
}

/* Calls add for each part between semicolons. peers: parts are ID-HOST:PORT, and the port is ours to say. */
static int add_list(struct registrar *registrar, const char *list, bool peers, int peers_port, struct error *error)
{
    char port_text[8];
    snprintf(port_text, sizeof port_text, "%d", peers_port);
    for (const char *at = list; *at != 0;) {
        const char *end = strchrnul(at, ';');
        struct slice part = slice_of(at, (size_t)(end - at)), host, port;
        while (part.size != 0 && part.data[0] == ' ')
            part = slice_of(part.data + 1, part.size - 1);
        while (part.size != 0 && part.data[part.size - 1] == ' ')
            part.size--;
        at = *end == 0 ? end : end + 1;
        if (part.size == 0)
            continue;
        if (peers) {
            const uint8_t *dash = memchr(part.data, '-', part.size);
            if (dash != NULL)
                part = slice_of(dash + 1, (size_t)(part.data + part.size - dash) - 1);
        }
        if (!split(part, &host, &port))
            return error_set(error, ERROR_INVALID, "namesrvAddr: `%.*s` is not host:port", (int)part.size, (const char *)part.data);
        int rv = add_link(registrar, host, peers ? slice_of_text(port_text) : port, error);
        if (rv != 0)
            return rv;
    }
    return 0;
}

int registrar_start(struct broker *broker, struct error *error)
{
    const struct broker_config *config = &broker->config;
    struct registrar *registrar = calloc(1, sizeof *registrar);
    if (registrar == NULL)
        return error_set(error, ERROR_NO_MEMORY, "no memory for the registrar");
    registrar->broker = broker;
    int rv;
    if (config->namesrv_addr[0] != 0)
        rv = add_list(registrar, config->namesrv_addr, false, 0, error);
    else if (!config->group_of_one)
        rv = add_list(registrar, config->dleger_peers, true, config->namesrv_port, error);
    else {
        char own[300];
        snprintf(own, sizeof own, "127.0.0.1:%d", config->namesrv_port);
        rv = add_list(registrar, own, false, 0, error);
    }
    if (rv != 0) {
        free(registrar);
        return rv;
    }
    buffer_init(&registrar->body, REMOTING_FRAME_MAX);
    uv_timer_init(broker->loop, &registrar->kick);
    registrar->kick.data = registrar;
    registrar->open = 1;
    for (int i = 0; i < registrar->link_count; i++) {
        struct link *link = &registrar->links[i];
        buffer_init(&link->out, REMOTING_FRAME_MAX);
        buffer_init(&link->input, INPUT_MAX);
        link->connect.data = link->write.data = link->resolve.data = link->timer.data = link;
        uv_timer_init(broker->loop, &link->timer);
        link->timer.data = link;
        link->timer_open = true;
        registrar->open++;
        link->back_off_ms = BACK_OFF_MIN_MS;
        link->state = LINK_WAITING;
        uv_timer_start(&link->timer, on_link_timer, 0, 0);
    }
    broker->registrar = registrar;
    return 0;
}

void registrar_stop(struct broker *broker, void (*stopped)(void *argument), void *argument)
{
    struct registrar *registrar = broker->registrar;
    assert(registrar != NULL);
    broker->registrar = NULL;
    registrar->stopping = true;
    registrar->stopped = stopped;
    registrar->stopped_argument = argument;
    uint64_t term;
    registrar->goodbye_id = leads(registrar, &term) ? 0 : broker->config.slave_id;
    for (int i = 0; i < registrar->link_count; i++) {
        struct link *link = &registrar->links[i];
        if (link->state == LINK_CONNECTED)
            link_send(link);
        else if (link->state == LINK_RESOLVING)
            uv_cancel((uv_req_t *)&link->resolve); /* on_resolved ends the link, also when it cannot be cancelled any more */
        else
            link_close(link);
    }
    uv_timer_start(&registrar->kick, on_kick, any_connected(registrar) ? GOODBYE_MS : 0, 0);
}
