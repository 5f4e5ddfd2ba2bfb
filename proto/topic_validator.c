#include "proto/topic_validator.h"

#include "proto/message.h"

static const char *const system_topics[] = {
    TOPIC_AUTO_CREATE,
    TOPIC_SCHEDULE,
    TOPIC_BENCHMARK,
    TOPIC_TRANS_HALF,
    TOPIC_TRACE,
    TOPIC_TRANS_OP_HALF,
    TOPIC_TRANS_CHECK_MAX_TIME,
    TOPIC_SELF_TEST,
    TOPIC_OFFSET_MOVED_EVENT,
    NULL,
};

static const char *const no_send_topics[] = {
    TOPIC_SCHEDULE,
    TOPIC_TRANS_HALF,
    TOPIC_TRANS_OP_HALF,
    TOPIC_TRANS_CHECK_MAX_TIME,
    TOPIC_SELF_TEST,
    TOPIC_OFFSET_MOVED_EVENT,
    NULL,
};

static bool is_one_of(struct slice name, const char *const *list)
{
    for (; *list != NULL; list++)
        if (slice_equal_text(name, *list))
            return true;
    return false;
}

static bool is_legal_char(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '%' || c == '|' ||
           c == '_' || c == '-';
}

/* As commons-lang's isBlank: nothing, or white space only. */
static bool is_blank(struct slice name)
{
    for (size_t i = 0; i < name.size; i++)
        if (name.data[i] != ' ' && (name.data[i] < '\t' || name.data[i] > '\r'))
            return false;
    return true;
}

bool topic_or_group_is_legal(struct slice name)
{
    for (size_t i = 0; i < name.size; i++)
        if (!is_legal_char(name.data[i]))
            return false;
    return true;
}

int topic_validate(struct slice topic, struct error *error)
{
    if (is_blank(topic))
        return error_set(error, ERROR_INVALID, "The specified topic is blank.");
    if (!topic_or_group_is_legal(topic))
        return error_set(error, ERROR_INVALID,
                         "The specified topic contains illegal characters, allowing only ^[%%|a-zA-Z0-9_-]+$");
    if (topic.size > MESSAGE_TOPIC_MAX)
        return error_set(error, ERROR_INVALID, "The specified topic is longer than topic max length.");
    return 0;
}

int group_validate(struct slice group, struct error *error)
{
    if (is_blank(group))
        return error_set(error, ERROR_INVALID, "the specified group is blank");
    if (!topic_or_group_is_legal(group))
        return error_set(error, ERROR_INVALID,
                         "the specified group contains illegal characters, allowing only ^[%%|a-zA-Z0-9_-]+$");
    if (group.size > GROUP_NAME_MAX)
        return error_set(error, ERROR_INVALID, "the specified group is longer than group max length %u",
                         GROUP_NAME_MAX);
    return 0;
}

_Static_assert(CONSUMER_GROUP_NAME_MAX == MESSAGE_TOPIC_MAX - (sizeof TOPIC_RETRY_PREFIX - 1), "%RETRY% and a group's name fill a topic's");

int consumer_group_validate(struct slice group, struct error *error)
{
    int rv = group_validate(group, error);
    if (rv == 0 && group.size > CONSUMER_GROUP_NAME_MAX)
        rv = error_set(error, ERROR_INVALID,
                       "the specified group is longer than %u, so that its retry topic would be longer than topic max length",
                       CONSUMER_GROUP_NAME_MAX);
    return rv;
}

bool topic_is_system(struct slice topic)
{
    return is_one_of(topic, system_topics) || slice_starts_with(topic, TOPIC_SYSTEM_PREFIX);
}

const char *const *topic_system_names(void)
{
    return system_topics;
}

bool topic_forbids_send(struct slice topic)
{
    return is_one_of(topic, no_send_topics);
}

bool topic_is_retry(struct slice topic)
{
    return slice_starts_with(topic, TOPIC_RETRY_PREFIX);
}

bool topic_is_dead_letter(struct slice topic)
{
    return slice_starts_with(topic, TOPIC_DLQ_PREFIX);
}

bool group_is_system(struct slice group)
{
    return slice_starts_with(group, GROUP_SYSTEM_PREFIX);
}
