#include "proto/message.h"

#include <arpa/inet.h>
#include <isa-l/crc.h>
#include <stdio.h>

#define BODY_CRC_MASK 0x7FFFFFFFu
#define PORT_MAX 65535

/* Bytes of a record with IPv4 hosts and without body, topic and properties (version 1). */
#define RECORD_OVERHEAD 91u
/* What an IPv6 host needs more than an IPv4 one. */
#define HOST_V6_EXTRA 12u
#define BATCH_MEMBER_OVERHEAD 22u

enum record_place {
    AT_TOTAL_SIZE = 0,
    AT_MAGIC = 4,
    AT_BODY_CRC = 8,
    AT_QUEUE_ID = 12,
    AT_FLAG = 16,
    AT_QUEUE_OFFSET = 20,
    AT_PHYSICAL_OFFSET = 28,
    AT_SYS_FLAG = 36,
    AT_BORN_TIMESTAMP = 40,
    AT_BORN_HOST = 48,
    /* Those behind a host move by its size; given here for IPv4. */
    AT_STORE_TIMESTAMP = 56,
    AT_STORE_HOST = 64,
    AT_RECONSUME_TIMES = 72,
    AT_PREPARED_TRANSACTION_OFFSET = 76,
    AT_BODY_SIZE = 84,
    AT_BODY = 88,
};

/* Where the parts of one record lie, all checked to be inside it. */
struct layout {
    uint32_t total_size;
    int32_t sys_flag;
    uint32_t born_extra;  /* bytes that the born host adds to the places behind it */
    uint32_t hosts_extra; /* both hosts */
    uint32_t body_size;
    struct slice topic;
    struct slice properties;
};

/* Reads sizes only: neither body nor topic nor properties are touched. */
static int layout_read(struct slice bytes, struct layout *layout)
{
    const uint8_t *data = bytes.data;

    if (bytes.size < RECORD_OVERHEAD)
        return ERROR_MALFORMED;
    uint32_t total = load_u32(data + AT_TOTAL_SIZE);
    uint32_t magic = load_u32(data + AT_MAGIC);
    if (total < RECORD_OVERHEAD || total > bytes.size || (magic != MESSAGE_MAGIC_V1 && magic != MESSAGE_MAGIC_V2))
        return ERROR_MALFORMED;
    layout->total_size = total;
    layout->sys_flag = (int32_t)load_u32(data + AT_SYS_FLAG);
    layout->born_extra = (layout->sys_flag & MESSAGE_BORN_HOST_V6) != 0 ? HOST_V6_EXTRA : 0;
    layout->hosts_extra = layout->born_extra + ((layout->sys_flag & MESSAGE_STORE_HOST_V6) != 0 ? HOST_V6_EXTRA : 0);

    uint32_t topic_width = magic == MESSAGE_MAGIC_V1 ? 1 : 2;
    uint32_t overhead = RECORD_OVERHEAD - 1 + topic_width + layout->hosts_extra;
    if (total < overhead)
        return ERROR_MALFORMED;
    /* `left` is what body, topic and properties share: each takes its part, and nothing may be over. */
    uint32_t left = total - overhead;
    uint32_t body_size = load_u32(data + AT_BODY_SIZE + layout->hosts_extra);
    if (body_size > left)
        return ERROR_MALFORMED;
    left -= body_size;
    layout->body_size = body_size;

    const uint8_t *at = data + AT_BODY + layout->hosts_extra + body_size;
    uint32_t topic_size = topic_width == 1 ? *at : load_u16(at);
    /* Java's length is signed: what it reads as negative is not a length. */
    if (topic_size > left || topic_size > (topic_width == 1 ? (uint32_t)INT8_MAX : (uint32_t)INT16_MAX))
        return ERROR_MALFORMED;
    left -= topic_size;
    at += topic_width;
    layout->topic = slice_of(at, topic_size);
    at += topic_size;
    uint32_t properties_size = load_u16(at);
    if (properties_size != left || properties_size > MESSAGE_PROPERTIES_MAX)
        return ERROR_MALFORMED;
    layout->properties = slice_of(at + 2, properties_size);
    return 0;
}

static void host_read(const uint8_t *at, bool is_v6, struct message_host *host)
{
    *host = (struct message_host){.address_size = is_v6 ? 16 : 4};
    memcpy(host->address, at, host->address_size);
    host->port = (int32_t)load_u32(at + host->address_size);
}

static uint8_t *host_write(uint8_t *at, const struct message_host *host)
{
    uint8_t size = host->address_size == 16 ? 16 : 4;
    memcpy(at, host->address, size);
    store_u32(at + size, (uint32_t)host->port);
    return at + size + 4;
}

bool message_host_parse(struct slice text, struct message_host *host)
{
    char copy[INET6_ADDRSTRLEN + 2]; /* brackets */
    const uint8_t *colon = text.size == 0 ? NULL : memrchr(text.data, ':', text.size);
    int32_t port;

    if (colon == NULL)
        return false;
    size_t size = (size_t)(colon - text.data);
    struct slice port_text = slice_of(colon + 1, text.size - size - 1);
    if (size == 0 || size >= sizeof copy || port_text.size == 0 || port_text.data[0] == '+' ||
        !slice_to_i32(port_text, &port) || port < 0 || port > PORT_MAX)
        return false;
    memcpy(copy, text.data, size);
    copy[size] = '\0';

    struct message_host result = {.port = port};
    if (copy[0] == '[') {
        static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF};
        if (copy[size - 1] != ']')
            return false;
        copy[size - 1] = '\0';
        if (strlen(copy) != size - 1 || inet_pton(AF_INET6, copy + 1, result.address) != 1)
            return false;
        result.address_size = 16;
        /* A dual-stack listener reports IPv4 peers so; Java turns them into IPv4 addresses. */
        if (memcmp(result.address, mapped, sizeof mapped) == 0) {
            memcpy(result.address, result.address + sizeof mapped, 4);
            memset(result.address + 4, 0, sizeof result.address - 4);
            result.address_size = 4;
        }
    } else {
        if (strlen(copy) != size || inet_pton(AF_INET, copy, result.address) != 1)
            return false;
        result.address_size = 4;
    }
    *host = result;
    return true;
}

void message_host_format(const struct message_host *host, char *out, size_t size)
{
    char address[INET6_ADDRSTRLEN];
    bool is_v6 = host->address_size == 16;

    if (inet_ntop(is_v6 ? AF_INET6 : AF_INET, host->address, address, sizeof address) == NULL)
        address[0] = '\0';
    snprintf(out, size, is_v6 ? "[%s]:%d" : "%s:%d", address, host->port);
}

size_t message_record_size(const struct message_record *record)
{
    return RECORD_OVERHEAD + (record->born_host.address_size == 16 ? HOST_V6_EXTRA : 0u) +
           (record->store_host.address_size == 16 ? HOST_V6_EXTRA : 0u) + record->body.size + record->topic.size +
           record->properties.size;
}

static uint8_t *put_u32(uint8_t *at, uint32_t value)
{
    store_u32(at, value);
    return at + 4;
}

static uint8_t *put_u64(uint8_t *at, uint64_t value)
{
    store_u64(at, value);
    return at + 8;
}

static uint8_t *put_slice(uint8_t *at, struct slice slice)
{
    if (slice.size > 0)
        memcpy(at, slice.data, slice.size);
    return at + slice.size;
}

size_t message_record_encode(struct message_record *record, struct slice properties_tail, uint8_t *out)
{
    size_t size = message_record_size(record) + properties_tail.size;
    int32_t sys_flag = record->sys_flag & ~(MESSAGE_BORN_HOST_V6 | MESSAGE_STORE_HOST_V6);

    if (record->born_host.address_size == 16)
        sys_flag |= MESSAGE_BORN_HOST_V6;
    if (record->store_host.address_size == 16)
        sys_flag |= MESSAGE_STORE_HOST_V6;
    record->total_size = (uint32_t)size;
    record->magic = MESSAGE_MAGIC_V1;
    record->body_crc = message_body_crc(record->body);
    record->sys_flag = sys_flag;

    uint8_t *at = put_u32(out, record->total_size);
    at = put_u32(at, record->magic);
    at = put_u32(at, record->body_crc);
    at = put_u32(at, (uint32_t)record->queue_id);
    at = put_u32(at, (uint32_t)record->flag);
    at = put_u64(at, (uint64_t)record->queue_offset);
    at = put_u64(at, (uint64_t)record->physical_offset);
    at = put_u32(at, (uint32_t)sys_flag);
    at = put_u64(at, (uint64_t)record->born_timestamp_ms);
    at = host_write(at, &record->born_host);
    at = put_u64(at, (uint64_t)record->store_timestamp_ms);
    at = host_write(at, &record->store_host);
    at = put_u32(at, (uint32_t)record->reconsume_times);
    at = put_u64(at, (uint64_t)record->prepared_transaction_offset);
    at = put_u32(at, (uint32_t)record->body.size);
    at = put_slice(at, record->body);
    *at++ = (uint8_t)record->topic.size;
    at = put_slice(at, record->topic);
    store_u16(at, (uint16_t)(record->properties.size + properties_tail.size));
    at = put_slice(at + 2, record->properties);
    put_slice(at, properties_tail);
    return size;
}

int message_record_decode(struct slice bytes, bool check_body_crc, struct message_record *record)
{
    struct layout layout;
    const uint8_t *data = bytes.data;
    int rv = layout_read(bytes, &layout);
    if (rv != 0)
        return rv;

    const uint8_t *behind_born = data + layout.born_extra;
    const uint8_t *behind_hosts = data + layout.hosts_extra;
    *record = (struct message_record){
        .total_size = layout.total_size,
        .magic = load_u32(data + AT_MAGIC),
        .body_crc = load_u32(data + AT_BODY_CRC),
        .queue_id = (int32_t)load_u32(data + AT_QUEUE_ID),
        .flag = (int32_t)load_u32(data + AT_FLAG),
        .queue_offset = (int64_t)load_u64(data + AT_QUEUE_OFFSET),
        .physical_offset = (int64_t)load_u64(data + AT_PHYSICAL_OFFSET),
        .sys_flag = layout.sys_flag,
        .born_timestamp_ms = (int64_t)load_u64(data + AT_BORN_TIMESTAMP),
        .store_timestamp_ms = (int64_t)load_u64(behind_born + AT_STORE_TIMESTAMP),
        .reconsume_times = (int32_t)load_u32(behind_hosts + AT_RECONSUME_TIMES),
        .prepared_transaction_offset = (int64_t)load_u64(behind_hosts + AT_PREPARED_TRANSACTION_OFFSET),
        .body = slice_of(behind_hosts + AT_BODY, layout.body_size),
        .topic = layout.topic,
        .properties = layout.properties,
    };
    host_read(data + AT_BORN_HOST, (layout.sys_flag & MESSAGE_BORN_HOST_V6) != 0, &record->born_host);
    host_read(behind_born + AT_STORE_HOST, (layout.sys_flag & MESSAGE_STORE_HOST_V6) != 0, &record->store_host);
    if (check_body_crc && message_body_crc(record->body) != record->body_crc)
        return ERROR_DAMAGED;
    return 0;
}

static inline bool name_is(const uint8_t *name, size_t size, const char *text, size_t text_size)
{
    return size == text_size && memcmp(name, text, text_size) == 0;
}

/* Reput's hot path. The pieces are cut by memchr, which looks at 32 bytes a time, and the four names differ in length
 * (KEYS and TAGS by their first byte), so that a pair of no interest costs one comparison. */
static void dispatch_properties(struct slice properties, struct message_dispatch *dispatch)
{
    const uint8_t *at = properties.data;
    const uint8_t *end = at + properties.size;

    while (at < end) {
        size_t left = (size_t)(end - at);
        const uint8_t *stop = memchr(at, MESSAGE_PROPERTY_SEPARATOR, left);
        if (stop == NULL)
            stop = end;
        const uint8_t *split = memchr(at, MESSAGE_PROPERTY_NAME_SEPARATOR, (size_t)(stop - at));
        if (split != NULL && split + 1 < stop) {
            size_t size = (size_t)(split - at);
            struct slice value = slice_of(split + 1, (size_t)(stop - split - 1));
            if (size == 4 && at[0] == 'K' && name_is(at, size, "KEYS", 4))
                dispatch->keys = value;
            else if (size == 4 && at[0] == 'T' && name_is(at, size, "TAGS", 4))
                dispatch->tags = value;
            else if (size == 8 && name_is(at, size, "UNIQ_KEY", 8))
                dispatch->uniq_key = value;
            else if (size == 5 && name_is(at, size, "DELAY", 5))
                dispatch->delay = value;
        }
        at = stop + 1;
    }
}

int message_dispatch_decode(struct slice bytes, struct message_dispatch *dispatch)
{
    struct layout layout;
    const uint8_t *data = bytes.data;
    int rv = layout_read(bytes, &layout);
    if (rv != 0)
        return rv;

    *dispatch = (struct message_dispatch){
        .physical_offset = (int64_t)load_u64(data + AT_PHYSICAL_OFFSET),
        .size = layout.total_size,
        .queue_id = (int32_t)load_u32(data + AT_QUEUE_ID),
        .queue_offset = (int64_t)load_u64(data + AT_QUEUE_OFFSET),
        .store_timestamp_ms = (int64_t)load_u64(data + layout.born_extra + AT_STORE_TIMESTAMP),
        .sys_flag = layout.sys_flag,
        .topic = layout.topic,
        .properties = layout.properties,
    };
    if (layout.properties.size > 0)
        dispatch_properties(layout.properties, dispatch);
    return 0;
}

bool message_record_is(struct slice bytes, struct slice topic, int32_t queue_id, int64_t queue_offset, int64_t physical_offset)
{
    struct layout layout;

    if (layout_read(bytes, &layout) != 0 || layout.total_size != bytes.size || (int32_t)load_u32(bytes.data + AT_QUEUE_ID) != queue_id ||
        (int64_t)load_u64(bytes.data + AT_QUEUE_OFFSET) != queue_offset || (int64_t)load_u64(bytes.data + AT_PHYSICAL_OFFSET) != physical_offset)
        return false;
    int transaction = layout.sys_flag & MESSAGE_TRANSACTION_MASK;
    return (transaction == 0 || transaction == MESSAGE_TRANSACTION_COMMIT) && slice_equal(layout.topic, topic);
}

uint32_t message_body_crc(struct slice body)
{
    return body.size == 0 ? 0 : crc32_gzip_refl(0, body.data, body.size) & BODY_CRC_MASK;
}

bool message_property_next(struct slice properties, size_t *at, struct slice *name, struct slice *value)
{
    while (*at < properties.size) {
        const uint8_t *from = properties.data + *at;
        size_t left = properties.size - *at;
        const uint8_t *stop = memchr(from, MESSAGE_PROPERTY_SEPARATOR, left);
        size_t size = stop == NULL ? left : (size_t)(stop - from);
        const uint8_t *split = memchr(from, MESSAGE_PROPERTY_NAME_SEPARATOR, size);
        *at += stop == NULL ? size : size + 1;
        if (split == NULL || split == from || split + 1 == from + size)
            continue;
        *name = slice_of(from, (size_t)(split - from));
        *value = slice_of(split + 1, size - name->size - 1);
        return true;
    }
    return false;
}

struct slice message_property(struct slice properties, const char *wanted)
{
    struct slice found = {0};
    struct slice name;
    struct slice value;
    size_t wanted_size = strlen(wanted);
    size_t at = 0;

    while (message_property_next(properties, &at, &name, &value))
        if (name_is(name.data, name.size, wanted, wanted_size))
            found = value;
    return found;
}

void message_property_append(struct buffer *out, size_t out_start, struct slice name, struct slice value)
{
    /* Clients before 4.9.1 end their string with a separator: one is enough. */
    if (!out->failed && out->size > out_start && out->data[out->size - 1] != MESSAGE_PROPERTY_SEPARATOR)
        buffer_append_u8(out, MESSAGE_PROPERTY_SEPARATOR);
    buffer_append_slice(out, name);
    buffer_append_u8(out, MESSAGE_PROPERTY_NAME_SEPARATOR);
    buffer_append_slice(out, value);
}

void message_properties_copy(struct buffer *out, size_t out_start, struct slice properties, const char *const *without)
{
    struct slice name;
    struct slice value;
    size_t at = 0;

    while (message_property_next(properties, &at, &name, &value)) {
        bool skip = false;
        for (const char *const *one = without; one != NULL && *one != NULL && !skip; one++)
            skip = slice_equal_text(name, *one);
        if (!skip)
            message_property_append(out, out_start, name, value);
    }
}

size_t message_id_format(const struct message_host *store_host, int64_t physical_offset, char out[MESSAGE_ID_TEXT_MAX])
{
    static const char digits[] = "0123456789ABCDEF";
    uint8_t bytes[16 + 4 + 8];
    uint8_t *end = put_u64(host_write(bytes, store_host), (uint64_t)physical_offset);
    char *to = out;

    for (const uint8_t *at = bytes; at < end; at++) {
        *to++ = digits[*at >> 4];
        *to++ = digits[*at & 0xF];
    }
    *to = '\0';
    return (size_t)(to - out);
}

static int hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool message_id_parse(struct slice text, struct message_host *store_host, int64_t *physical_offset)
{
    uint8_t bytes[16 + 4 + 8];
    bool is_v6 = text.size == 2 * sizeof bytes;

    if (!is_v6 && text.size != 2 * (4 + 4 + 8))
        return false;
    for (size_t i = 0; i < text.size / 2; i++) {
        int high = hex_digit(text.data[2 * i]);
        int low = hex_digit(text.data[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    host_read(bytes, is_v6, store_host);
    *physical_offset = (int64_t)load_u64(bytes + store_host->address_size + 4);
    return true;
}

int message_batch_next(struct cursor *cursor, struct message_batch_member *member)
{
    size_t left = cursor_left(cursor);
    if (cursor->failed)
        return -1;
    if (left == 0)
        return 0;

    uint32_t total = cursor_u32(cursor);
    cursor_u32(cursor); /* magic and CRC: clients write 0, nobody looks */
    cursor_u32(cursor);
    member->flag = (int32_t)cursor_u32(cursor);
    member->body = cursor_slice(cursor, cursor_u32(cursor));
    member->properties = cursor_slice(cursor, cursor_u16(cursor));
    if (cursor->failed || total != BATCH_MEMBER_OVERHEAD + member->body.size + member->properties.size ||
        member->properties.size > MESSAGE_PROPERTIES_MAX) {
        cursor->failed = true;
        return -1;
    }
    return 1;
}

void message_batch_append(struct buffer *out, const struct message_batch_member *member)
{
    buffer_append_u32(out, (uint32_t)(BATCH_MEMBER_OVERHEAD + member->body.size + member->properties.size));
    buffer_append_u32(out, 0);
    buffer_append_u32(out, 0);
    buffer_append_u32(out, (uint32_t)member->flag);
    buffer_append_u32(out, (uint32_t)member->body.size);
    buffer_append_slice(out, member->body);
    buffer_append_u16(out, (uint16_t)member->properties.size);
    buffer_append_slice(out, member->properties);
}
