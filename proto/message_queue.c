#include "proto/message_queue.h"

#include "proto/json_body.h"

void message_queue_encode(const struct message_queue *queue, struct buffer *out)
{
    struct json_writer writer;
    json_writer_init(&writer, out);
    json_body_write_queue(&writer, queue);
}
