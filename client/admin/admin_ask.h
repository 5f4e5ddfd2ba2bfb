/* What several commands ask brokers and name servers, with the answer decoded.
 *
 * All return false when it failed, which has then been told unless `silent`; else the caller closes what was filled.
 */
#ifndef LEDGERMQ_CLIENT_ADMIN_ADMIN_ASK_H
#define LEDGERMQ_CLIENT_ADMIN_ADMIN_ASK_H

#include "client/admin/admin.h"
#include "proto/broker_stats_data.h"
#include "proto/cluster_info.h"
#include "proto/consume_stats.h"
#include "proto/consumer_connection.h"
#include "proto/group_list.h"
#include "proto/json.h"
#include "proto/kv_table.h"
#include "proto/producer_connection.h"
#include "proto/subscription_group_wrapper.h"
#include "proto/topic_config_serialize_wrapper.h"
#include "proto/topic_list.h"
#include "proto/topic_route_data.h"
#include "proto/topic_stats_table.h"

/* --- name servers ---- */

bool admin_clusters(struct admin *admin, struct cluster_info *info);
bool admin_route(struct admin *admin, const char *topic, struct topic_route_data *route, bool silent);
bool admin_topic_list(struct admin *admin, struct topic_list *list);

/* --- one broker ---- */

bool admin_system_topics(struct admin *admin, const char *address, struct topic_list *list);
bool admin_topic_configs(struct admin *admin, const char *address, struct topic_config_serialize_wrapper *topics);
bool admin_group_configs(struct admin *admin, const char *address, struct subscription_group_wrapper *groups);
bool admin_topic_stats(struct admin *admin, const char *address, const char *topic, struct topic_stats_table *table);
/* Who reads it. */
bool admin_topic_groups(struct admin *admin, const char *address, const char *topic, struct group_list *groups,
                        bool silent);
bool admin_runtime_table(struct admin *admin, const char *address, struct kv_table *table);
/* Silent: an item that is not there is no traffic. */
bool admin_stats(struct admin *admin, const char *address, const char *name, const char *key,
                 struct broker_stats_data *data);
/* The longest window that shows anything (StatsAllSubCommand#compute24HourSum). */
int64_t admin_stats_day(const struct broker_stats_data *data);
/* topic may be NULL. */
bool admin_consume_stats(struct admin *admin, const char *address, const char *group, const char *topic,
                         struct consume_stats *stats, bool silent);
bool admin_consumer_connection(struct admin *admin, const char *address, const char *group,
                               struct consumer_connection *connection, bool silent);
bool admin_producer_connection(struct admin *admin, const char *address, const char *group,
                               struct producer_connection *connection);

/* --- answers that are walked over ---- */

struct admin_json {
    struct remoting_response response;
    struct json_document document;
};
bool admin_json(struct admin *admin, const char *address, int32_t code, const struct remoting_field *fields,
                struct admin_json *answer);
/* What one client does: ConsumerRunningInfo. */
bool admin_running_info(struct admin *admin, const char *address, const char *group, const char *client_id, bool jstack,
                        struct admin_json *info, bool silent);
/* Has one client consume one message: ConsumeMessageDirectlyResult. */
bool admin_consume_directly(struct admin *admin, const char *address, const char *group, const char *client_id,
                            const char *offset_message_id, struct admin_json *result);
void admin_json_close(struct admin_json *answer);
struct slice admin_json_text(struct json_value object, const char *name); /* "null" when it is not there */
long long admin_json_count(struct json_value object, const char *name);

#endif
