/* What the JSON bodies share: opening a text, copying strings into the body's arena, message queues as values and as
 * keys.
 *
 * Errors of a decoder: ERROR_MALFORMED (not JSON), ERROR_INVALID (a member of the wrong kind, named), ERROR_TOO_LARGE
 * (more memory than its size allows), ERROR_NO_MEMORY. Only the body files include this.
 */
#ifndef LEDGERMQ_PROTO_JSON_BODY_H
#define LEDGERMQ_PROTO_JSON_BODY_H

#include "proto/arena.h"
#include "proto/json.h"
#include "proto/message_queue.h"

/* Parses body, whose root must be an object, and starts arena (may be NULL) with a limit that fits body's size. After
 * an error there is nothing to close. */
int json_body_open(struct json_document *document, struct arena *arena, struct slice body, struct error *error);

/* A string member, copied to arena. Absent and null leave *out alone. */
int json_body_text(struct arena *arena, struct json_value object, const char *name, struct slice *out,
                   struct error *error);
/* The same; ERROR_MISSING when it is absent, null or empty. */
int json_body_required_text(struct arena *arena, struct json_value object, const char *name, struct slice *out,
                            struct error *error);
/* Any string, number or boolean, copied. `name` is for the message. */
int json_body_copy(struct arena *arena, struct json_value value, const char *name, struct slice *out,
                   struct error *error);
/* An array of strings. Absent and null are an empty one. */
int json_body_names(struct arena *arena, struct json_value object, const char *name, struct slice **names,
                    size_t *count, struct error *error);

/* Prepares a walk over a member that is an array, or an object used as map; ERROR_INVALID when it is something else.
 * Nothing to walk when it is absent or null. *items: room in arena for all of it, each item_size bytes and zeroed. */
int json_body_array(struct arena *arena, struct json_value object, const char *name, size_t item_size, void *items,
                    struct json_iterator *iterator, struct error *error);
int json_body_map(struct arena *arena, struct json_value object, const char *name, size_t item_size, void *items,
                  struct json_iterator *iterator, struct error *error);

/* {"brokerName":"b","queueId":0,"topic":"t"} as a value; */
int json_body_queue(struct arena *arena, struct json_value object, struct message_queue *queue, struct error *error);
/* and as a key: the object itself, or a string that holds it. */
int json_body_queue_key(struct arena *arena, struct json_value key, struct message_queue *queue, struct error *error);
/* A key that is an integer, quoted or bare. */
int json_body_integer_key(struct json_value key, const char *name, int64_t *out, struct error *error);

/* A writer that goes on where an earlier one stopped: the last byte says whether a comma is due. */
struct json_writer json_body_resume(struct buffer *out);
void json_body_write_queue(struct json_writer *writer, const struct message_queue *queue);
void json_body_write_queue_key(struct json_writer *writer, const struct message_queue *queue);
void json_body_write_names(struct json_writer *writer, const char *key, const struct slice *names, size_t count);

#endif
