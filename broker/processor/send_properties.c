#include "broker/processor/send_properties.h"

#include <stdio.h>

#include "proto/message.h"

#define DELIVER_TIME "__STARTDELIVERTIME"

void send_properties_make(struct buffer *scratch, struct slice properties, struct slice cluster_tail, struct slice region_tail, bool drop_delay,
                          struct send_properties *out)
{
    struct slice name, value;
    size_t at = 0;
    memset(out, 0, sizeof *out);
    buffer_clear(scratch);
    if (properties.size > MESSAGE_PROPERTIES_MAX) {
        out->too_long = true;
        return;
    }
    while (message_property_next(properties, &at, &name, &value)) {
        bool keep = true;
        switch (name.size) {
        case 4:
            keep = memcmp(name.data, "WAIT", 4) != 0;
            break;
        case 5:
            if (memcmp(name.data, "DELAY", 5) == 0) {
                out->delay = value;
                keep = !drop_delay;
            }
            break;
        case 7:
            keep = memcmp(name.data, "CLUSTER", 7) != 0;
            break;
        case 8:
            if (memcmp(name.data, "TRAN_MSG", 8) == 0)
                (void)slice_to_bool(value, &out->half_message);
            keep = memcmp(name.data, "TRACE_ON", 8) != 0;
            break;
        case 10:
            keep = memcmp(name.data, "MSG_REGION", 10) != 0;
            break;
        case sizeof DELIVER_TIME - 1:
            if (memcmp(name.data, DELIVER_TIME, sizeof DELIVER_TIME - 1) == 0)
                out->deliver_time = true;
            break;
        }
        if (keep)
            message_property_append(scratch, 0, name, value);
    }
    const struct slice tails[2] = {cluster_tail, region_tail};
    for (int i = 0; i < 2; i++) {
        if (tails[i].size == 0)
            continue;
        if (scratch->size + 1 + tails[i].size > MESSAGE_PROPERTIES_MAX) {
            out->too_long = i == 0 && scratch->size > MESSAGE_PROPERTIES_MAX;
            break;
        }
        if (scratch->size > 0)
            buffer_append_u8(scratch, MESSAGE_PROPERTY_SEPARATOR);
        buffer_append_slice(scratch, tails[i]);
    }
    out->text = buffer_slice(scratch);
}

void send_properties_add_destination(struct buffer *properties, size_t start, struct slice topic, int32_t queue_id)
{
    char text[16];
    int size = snprintf(text, sizeof text, "%d", queue_id);
    message_property_append(properties, start, SLICE_LITERAL("REAL_TOPIC"), topic);
    message_property_append(properties, start, SLICE_LITERAL("REAL_QID"), slice_of(text, (size_t)size));
}
