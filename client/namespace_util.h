/* The namespace of a client in front of topic and group names: brokers see NAMESPACE%name.
 *
 * Follows org.apache.rocketmq.common.protocol.NamespaceUtil 4.9.8: it goes behind %RETRY% and %DLQ%, and the
 * system's own topics and groups have none; nor, unlike there, have the topics that replies go to, which
 * belong to a cluster.
 */
#ifndef LEDGERMQ_CLIENT_NAMESPACE_UTIL_H
#define LEDGERMQ_CLIENT_NAMESPACE_UTIL_H

#include "proto/error.h"

#define NAMESPACE_MAX 64u
#define NAMESPACED_NAME_MAX (255u + NAMESPACE_MAX + 2) /* of any name with its namespace, and a NUL */

/* ERROR_INVALID when it is longer than NAMESPACE_MAX or has other characters than letters, digits, - and _.
 * NULL and
 * "" are legal: none. */
int namespace_validate(const char *name_space, struct error *error);
/* The name as brokers know it. A name that is too long for out is cut: whoever validates it afterwards finds
 * it too long. */
void namespace_wrap(const char *name_space, const char *name, char out[NAMESPACED_NAME_MAX]);
/* The name as the application knows it; as it is when it has another namespace, or none. */
void namespace_unwrap(const char *name_space, const char *name, char out[NAMESPACED_NAME_MAX]);

#endif
