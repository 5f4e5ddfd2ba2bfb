#include "broker/metadata/group_queue_key.h"

#include "proto/topic_validator.h"

bool group_queue_name_is_legal(struct slice name)
{
    return name.size > 0 && name.size <= GROUP_QUEUE_NAME_MAX && topic_or_group_is_legal(name);
}

size_t group_queue_key(char out[GROUP_QUEUE_KEY_MAX], struct slice group, struct slice topic, int32_t queue_id)
{
    char *at = out;
    if (group.size == 0 || group.size > GROUP_QUEUE_NAME_MAX || topic.size == 0 || topic.size > GROUP_QUEUE_NAME_MAX)
        return 0;
    memcpy(at, group.data, group.size);
    at += group.size;
    *at++ = 0;
    memcpy(at, topic.data, topic.size);
    at += topic.size;
    *at++ = 0;
    memcpy(at, &queue_id, sizeof queue_id);
    return (size_t)(at - out) + sizeof queue_id;
}
