/* Tools' questions about how far groups are: 208, 317, 303, 308, 321, 43, 45, and 314, which copies offsets. Handlers of admin_broker_processor.c. */
#ifndef LEDGERMQ_BROKER_PROCESSOR_ADMIN_CONSUME_STATS_H
#define LEDGERMQ_BROKER_PROCESSOR_ADMIN_CONSUME_STATS_H

struct broker;
struct request;

void admin_get_consume_stats(struct broker *broker, struct request *request);        /* 208 */
void admin_get_broker_consume_stats(struct broker *broker, struct request *request); /* 317 */
void admin_view_broker_stats_data(struct broker *broker, struct request *request);   /* 315 */
void admin_query_consume_time_span(struct broker *broker, struct request *request);  /* 303 */
void admin_query_correction_offset(struct broker *broker, struct request *request);  /* 308 */
void admin_query_consume_queue(struct broker *broker, struct request *request);      /* 321 */
void admin_get_all_consumer_offset(struct broker *broker, struct request *request);  /* 43 */
void admin_get_all_delay_offset(struct broker *broker, struct request *request);     /* 45 */
void admin_clone_group_offset(struct broker *broker, struct request *request);       /* 314 */

#endif
