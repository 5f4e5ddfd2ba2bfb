/* The text form of java.util.Properties: broker.conf, the bodies of 25, 26, 318, 319, DLedger's small state files.
 *
 * Bytes are taken as UTF-8 (RocketMQ writes them so); what is not ASCII is written as \uXXXX, since Properties.load
 * reads Latin-1.
 */
#ifndef LEDGERMQ_PROTO_JAVA_PROPERTIES_H
#define LEDGERMQ_PROTO_JAVA_PROPERTIES_H

#include "proto/buffer.h"
#include "proto/error.h"

struct java_properties_reader {
    struct slice text;
    size_t at;
    uint32_t line;      /* of the pair last given, from 1 */
    uint32_t next_line; /* where reading goes on */
    struct buffer pair; /* the pair last given, escapes undone */
};

/* text is borrowed until close. */
void java_properties_reader_init(struct java_properties_reader *reader, struct slice text);
/* Next pair in file order (Java keeps the last of equal keys). Slices live until the next call. True: a pair. False
 * with *rv = 0: end; with ERROR_MALFORMED (a broken \uXXXX, the line is named) or ERROR_NO_MEMORY: stop. */
bool java_properties_next(struct java_properties_reader *reader, struct slice *key, struct slice *value, int *rv,
                          struct error *error);
void java_properties_reader_close(struct java_properties_reader *reader);

/* Appends `key=value\n` so that Properties.load gives the same pair back. */
void java_properties_append(struct buffer *out, struct slice key, struct slice value);
void java_properties_append_text(struct buffer *out, const char *key, const char *value);

#endif
