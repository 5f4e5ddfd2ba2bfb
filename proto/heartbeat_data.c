#include "proto/heartbeat_data.h"

#include "proto/json_body.h"

const char *const consume_type_names[CONSUME_TYPES] = {"CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"};
const char *const message_model_names[MESSAGE_MODELS] = {"BROADCASTING", "CLUSTERING"};
const char *const consume_from_where_names[CONSUME_FROM_WHERES] = {
    "CONSUME_FROM_LAST_OFFSET",  "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",   "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP",
};

/* Letters alone count: "Clustering", "CLUSTERING" and "clustering" are one. */
static bool is_spelling_of(struct slice text, const char *name)
{
    size_t at = 0;
    for (; *name != 0; name++) {
        if (*name == '_')
            continue;
        while (at < text.size && (text.data[at] == '_' || text.data[at] == '-'))
            at++;
        if (at == text.size || (text.data[at] | 0x20) != (*name | 0x20))
            return false;
        at++;
    }
    return at == text.size;
}

/* Clients in other languages spell these their own way, and newer ones have words that are not known here: that is no reason to refuse a heart-beat, the
 * broker only shows them to tools. What is not understood stays as it was. */
static int read_word(struct json_value object, const char *key, const char *const *names, int count, int *ordinal,
                     struct error *error)
{
    struct json_value value = json_get(object, key);
    struct slice text;
    if (json_is_null(value) || json_enum(value, names, count, ordinal))
        return 0;
    if (!json_text(value, &text))
        return error_set(error, ERROR_INVALID, "field %s is not a word", key);
    for (int i = 0; i < count; i++) {
        if (is_spelling_of(text, names[i]))
            *ordinal = i;
    }
    return 0;
}

static int read_consumer(struct consumer_data *consumer, struct arena *arena, struct json_value object,
                         struct error *error)
{
    int consume_type = CONSUME_PASSIVELY;
    int message_model = MESSAGE_MODEL_CLUSTERING;
    int from_where = CONSUME_FROM_LAST_OFFSET;
    struct json_iterator iterator;
    struct json_value element;

    int rv = json_body_required_text(arena, object, "groupName", &consumer->group_name, error);
    if (rv == 0)
        rv = read_word(object, "consumeType", consume_type_names, CONSUME_TYPES, &consume_type, error);
    if (rv == 0)
        rv = read_word(object, "messageModel", message_model_names, MESSAGE_MODELS, &message_model, error);
    if (rv == 0)
        rv = read_word(object, "consumeFromWhere", consume_from_where_names, CONSUME_FROM_WHERES, &from_where, error);
    if (rv == 0)
        rv = json_read_bool(object, "unitMode", &consumer->unit_mode, error);
    if (rv == 0)
        rv = json_body_array(arena, object, "subscriptionDataSet", sizeof *consumer->subscriptions,
                             &consumer->subscriptions, &iterator, error);
    while (rv == 0 && json_next_element(&iterator, &element))
        if (!json_is_null(element))
            rv =
                subscription_data_read(&consumer->subscriptions[consumer->subscription_count++], arena, element, error);
    consumer->consume_type = (enum consume_type)consume_type;
    consumer->message_model = (enum message_model)message_model;
    consumer->consume_from_where = (enum consume_from_where)from_where;
    return rv;
}

static int read_consumers(struct heartbeat_data *data, struct json_value root, struct error *error)
{
    struct json_iterator iterator;
    struct json_value element;
    int rv = json_body_array(&data->arena, root, "consumerDataSet", sizeof *data->consumers, &data->consumers,
                             &iterator, error);

    while (rv == 0 && json_next_element(&iterator, &element))
        if (!json_is_null(element))
            rv = read_consumer(&data->consumers[data->consumer_count++], &data->arena, element, error);
    if (rv != 0)
        error_wrap(error, "consumerDataSet");
    return rv;
}

static int read_producers(struct heartbeat_data *data, struct json_value root, struct error *error)
{
    struct json_iterator iterator;
    struct json_value element;
    int rv = json_body_array(&data->arena, root, "producerDataSet", sizeof *data->producers, &data->producers,
                             &iterator, error);

    while (rv == 0 && json_next_element(&iterator, &element))
        if (!json_is_null(element))
            rv = json_body_required_text(&data->arena, element, "groupName",
                                         &data->producers[data->producer_count++].group_name, error);
    if (rv != 0)
        error_wrap(error, "producerDataSet");
    return rv;
}

int heartbeat_data_decode(struct heartbeat_data *data, struct slice body, struct error *error)
{
    struct json_document document;

    *data = (struct heartbeat_data){0};
    int rv = json_body_open(&document, &data->arena, body, error);
    if (rv != 0)
        return rv;
    struct json_value root = json_root(&document);
    rv = json_body_required_text(&data->arena, root, "clientID", &data->client_id, error);
    if (rv == 0)
        rv = read_consumers(data, root, error);
    if (rv == 0)
        rv = read_producers(data, root, error);
    if (rv == 0)
        rv = json_read_i32(root, "heartbeatFingerprint", &data->heartbeat_fingerprint, error);
    if (rv == 0)
        rv = json_read_bool(root, "withoutSub", &data->without_sub, error);
    json_close(&document);
    if (rv != 0)
        heartbeat_data_close(data);
    return rv;
}

void heartbeat_data_close(struct heartbeat_data *data)
{
    arena_close(&data->arena);
    *data = (struct heartbeat_data){0};
}

static void write_consumer(struct json_writer *writer, const struct consumer_data *consumer)
{
    json_write_begin_object(writer);
    json_write_member_text(writer, "consumeFromWhere", consume_from_where_names[consumer->consume_from_where]);
    json_write_member_text(writer, "consumeType", consume_type_names[consumer->consume_type]);
    json_write_member_slice(writer, "groupName", consumer->group_name);
    json_write_member_text(writer, "messageModel", message_model_names[consumer->message_model]);
    json_write_key(writer, "subscriptionDataSet");
    json_write_begin_array(writer);
    for (size_t i = 0; i < consumer->subscription_count; i++)
        subscription_data_write(writer, &consumer->subscriptions[i]);
    json_write_end_array(writer);
    json_write_member_bool(writer, "unitMode", consumer->unit_mode);
    json_write_end_object(writer);
}

void heartbeat_data_encode(const struct heartbeat_data *data, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    json_write_member_slice(&writer, "clientID", data->client_id);
    json_write_key(&writer, "consumerDataSet");
    json_write_begin_array(&writer);
    for (size_t i = 0; i < data->consumer_count; i++)
        write_consumer(&writer, &data->consumers[i]);
    json_write_end_array(&writer);
    json_write_key(&writer, "producerDataSet");
    json_write_begin_array(&writer);
    for (size_t i = 0; i < data->producer_count; i++) {
        json_write_begin_object(&writer);
        json_write_member_slice(&writer, "groupName", data->producers[i].group_name);
        json_write_end_object(&writer);
    }
    json_write_end_array(&writer);
    json_write_end_object(&writer);
}
