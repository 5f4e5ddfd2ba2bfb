#include "proto/cluster_info.h"

#include "proto/json_body.h"

void cluster_info_encode(const struct cluster_info *info, bool quoted_ids, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_write_begin_object(&writer);
    json_write_key(&writer, "brokerAddrTable");
    json_write_begin_object(&writer);
    for (size_t i = 0; i < info->broker_count; i++) {
        json_write_key_slice(&writer, info->brokers[i].broker_name);
        broker_data_write(&writer, &info->brokers[i], quoted_ids);
    }
    json_write_end_object(&writer);
    json_write_key(&writer, "clusterAddrTable");
    json_write_begin_object(&writer);
    for (size_t i = 0; i < info->cluster_count; i++) {
        const struct cluster_data *cluster = &info->clusters[i];
        json_write_key_slice(&writer, cluster->name);
        json_write_begin_array(&writer);
        for (size_t j = 0; j < cluster->broker_name_count; j++)
            json_write_slice(&writer, cluster->broker_names[j]);
        json_write_end_array(&writer);
    }
    json_write_end_object(&writer);
    json_write_end_object(&writer);
}

static int read_cluster(struct cluster_data *cluster, struct arena *arena, struct json_value key,
                        struct json_value value, struct error *error)
{
    struct json_iterator iterator = json_iterate(value);
    struct json_value element;

    if (!json_is_array(value))
        return error_set(error, ERROR_INVALID, "a cluster of clusterAddrTable is no list");
    int rv = json_body_copy(arena, key, "clusterAddrTable", &cluster->name, error);
    if (rv == 0) {
        cluster->broker_names = arena_array(arena, json_size(value), sizeof *cluster->broker_names);
        rv = arena_error(arena, error);
    }
    while (rv == 0 && json_next_element(&iterator, &element))
        rv = json_body_copy(arena, element, "clusterAddrTable", &cluster->broker_names[cluster->broker_name_count++],
                            error);
    return rv;
}

static int read_members(struct cluster_info *info, struct json_value root, struct error *error)
{
    struct json_iterator iterator;
    struct json_value key;
    struct json_value value;

    int rv =
        json_body_map(&info->arena, root, "brokerAddrTable", sizeof *info->brokers, &info->brokers, &iterator, error);
    while (rv == 0 && json_next_member(&iterator, &key, &value))
        if (!json_is_null(value))
            rv = broker_data_read(&info->brokers[info->broker_count++], &info->arena, value, error);
    if (rv == 0)
        rv = json_body_map(&info->arena, root, "clusterAddrTable", sizeof *info->clusters, &info->clusters, &iterator,
                           error);
    while (rv == 0 && json_next_member(&iterator, &key, &value))
        if (!json_is_null(value))
            rv = read_cluster(&info->clusters[info->cluster_count++], &info->arena, key, value, error);
    return rv;
}

int cluster_info_decode(struct cluster_info *info, struct slice body, struct error *error)
{
    struct json_document document;

    *info = (struct cluster_info){0};
    int rv = json_body_open(&document, &info->arena, body, error);
    if (rv != 0)
        return rv;
    rv = read_members(info, json_root(&document), error);
    json_close(&document);
    if (rv != 0)
        cluster_info_close(info);
    return rv;
}

void cluster_info_close(struct cluster_info *info)
{
    arena_close(&info->arena);
    *info = (struct cluster_info){0};
}
