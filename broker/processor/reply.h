/* Answers that many processors give alike: a bad header, "not now", and success after a metadata record. */
#ifndef LEDGERMQ_BROKER_PROCESSOR_REPLY_H
#define LEDGERMQ_BROKER_PROCESSOR_REPLY_H

#include "broker/processor/processor.h"
#include "proto/error.h"
#include "proto/metadata.pb-c.h"

/* 1 with the error's message. */
void reply_error(struct broker *broker, const struct reply_to *to, const struct error *error);
/* The same for a body that cannot be read, in the form of Java's exception texts ("SomeException: message"), which tools look for. */
void reply_body_error(struct broker *broker, const struct reply_to *to, const struct error *error);
/* A refusal that a client may retry: 14 with the cause. code: what metadata_submit or its callback gave. */
void reply_not_now(struct broker *broker, const struct reply_to *to, int code);
/* Success for 0, else reply_not_now. */
void reply_settled(struct broker *broker, const struct reply_to *to, int code);

/* Answers with a body: begin (false: the peer is gone), append the body to writer->out, reply_end. */
bool reply_body_begin(struct broker *broker, const struct reply_to *to, struct remoting_writer *writer);

/* Submits the record and answers 0 when it is applied, so that the next request of the same client sees it; else reply_not_now. settled (may be NULL)
 * is called before the answer, with the result and `name` (copied, NUL-terminated). */
void reply_after_record(struct broker *broker, const struct reply_to *to, Ledgermq__MetadataRecord *record,
                        void (*settled)(struct broker *broker, const char *name, int code), const char *name);

#endif
