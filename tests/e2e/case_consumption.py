"""Who consumes what and how late: 303, 300, 208 on line and off line; and the topic that clients trace into."""
import json
import re
import time

import remoting
from cluster import Cluster, check, wait_for
from e2e import case

UPDATE_OFFSET, HEART_BEAT, UNREGISTER, TIME_SPAN, BY_WHO, CONSUME_STATS, TOPIC_STATS = 15, 34, 35, 303, 300, 208, 202


def heart_beat(connection, client, group, *topics):
    subscriptions = [{"topic": topic, "subString": "*", "expressionType": "TAG", "subVersion": int(time.time() * 1000), "classFilterMode": False,
                      "tagsSet": [], "codeSet": []} for topic in topics]
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "unitMode": False, "subscriptionDataSet": subscriptions}
    answer = connection.request(HEART_BEAT, None, json.dumps({"clientID": client, "producerDataSet": [], "consumerDataSet": [consumer]}).encode())
    check(answer.code == 0, f"heart-beat: {answer}")


def commit(connection, group, topic, queue, offset):
    answer = connection.request(UPDATE_OFFSET, {"consumerGroup": group, "topic": topic, "queueId": queue, "commitOffset": offset})
    check(answer.code == 0, f"15: {answer}")


@case
def time_spans_of_a_group():
    """303: for each write queue the first, the last and the consumed message's time, and how long ago the next one came."""
    with Cluster() as cluster:
        leader = cluster.leader()
        cluster.create_topic("T", 3)
        with remoting.Connection(cluster.broker(leader)) as connection:
            for number in range(4):
                for queue in (0, 1):
                    check(connection.request(remoting.SEND_V2, remoting.send_fields("T", queue), b"%d" % number).code == 0, "send")
                time.sleep(0.02)
            times = {queue: [record.store_ms for record in remoting.read_queue(connection, "T", queue)] for queue in (0, 1)}
            commit(connection, "g", "T", 0, 2)
            commit(connection, "g", "T", 1, 4)
            for client in (connection, remoting.Connection(cluster.broker((leader + 1) % 3))):
                def spans(client=client, group="g"):
                    answer = client.request(TIME_SPAN, {"topic": "T", "group": group})
                    check(answer.code == 0, f"303: {answer}")
                    return {row["messageQueue"]["queueId"]: row for row in json.loads(answer.body)["consumeTimeSpanSet"]}
                wait_for("the offsets", 5, lambda: spans()[1]["consumeTimeStamp"] == times[1][3])  # a follower applies them a moment later
                now = time.time() * 1000
                found = spans()
                check(set(found) == {0, 1, 2} and all(row["messageQueue"]["brokerName"] == "broker-a" for row in found.values()), found)
                row = found[0]
                check((row["minTimeStamp"], row["maxTimeStamp"], row["consumeTimeStamp"]) == (times[0][0], times[0][3], times[0][1]), row)
                check(now - times[0][2] - 50 <= row["delayTime"] <= time.time() * 1000 - times[0][2] + 50, row)
                check(found[1]["consumeTimeStamp"] == times[1][3] and found[1]["delayTime"] == 0, found[1])
                check(found[2]["delayTime"] == 0, f"an empty queue: {found[2]}")
                row = spans(group="nobody")[0]
                check(row["consumeTimeStamp"] == times[0][0] and row["delayTime"] >= now - times[0][0] - 50, f"a group that has consumed nothing: {row}")
                answer = client.request(TIME_SPAN, {"topic": "none", "group": "g"})
                check(answer.code == 17 and answer.remark, f"{answer}")
                for field in ("topic", "group"):
                    answer = client.request(TIME_SPAN, {name: "x" for name in ("topic", "group") if name != field})
                    check(answer.code == 1 and field in answer.remark, f"{answer}")


@case
def who_consumes_a_topic():
    """300: groups that are on line with that topic, and those that have offsets of it, each once; 208 of each."""
    with Cluster(nodes=1) as cluster:
        for topic in ("T", "U"):
            cluster.create_topic(topic, 2)
        with remoting.Connection(cluster.broker(0)) as connection, remoting.Connection(cluster.broker(0)) as other:
            def who(topic):
                answer = connection.request(BY_WHO, {"topic": topic})
                check(answer.code == 0, f"300: {answer}")
                found = json.loads(answer.body)["groupList"]
                check(len(found) == len(set(found)), f"a group twice: {found}")
                return set(found)
            check(who("T") == set() and who("none") == set(), "nobody")
            for _ in range(3):
                check(connection.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"x").code == 0, "send")
            heart_beat(other, "c@1", "online", "T", "%RETRY%online")
            commit(connection, "offline", "T", 0, 2)
            commit(connection, "both", "T", 0, 1)
            commit(connection, "both", "T", 1, 0)
            heart_beat(other, "c@1", "both", "T", "U")
            check(who("T") == {"online", "offline", "both"} and who("U") == {"both"} and who("%RETRY%online") == {"online"}, f"{who('T')}, {who('U')}")
            for group, topic, expected in (("offline", "T", [(2, 3), (0, 0)]), ("both", "T", [(1, 3), (0, 0)])):
                answer = connection.request(CONSUME_STATS, {"consumerGroup": group, "topic": topic})
                rows = re.findall(rb'"queueId":(\d),"topic":"T"\}:\{"brokerOffset":(\d+),"consumerOffset":(\d+),"lastTimestamp":(\d+)', answer.body)
                check([(int(row[2]), int(row[1])) for row in sorted(rows)] == expected, f"{group}: {answer}")
                check(int(sorted(rows)[0][3]) > 0 and int(sorted(rows)[1][3]) == 0, f"{group}: {answer}")
            check(other.request(UNREGISTER, {"clientID": "c@1", "consumerGroup": "online"}).code == 0, "35")
            check(who("T") == {"offline", "both"}, "after it left")
            other.close()
            wait_for("the closed one to go", 5, lambda: who("U") == set())
            check(who("T") == {"offline", "both"}, "those with offsets stay")


@case
def the_trace_topic():
    """With traceTopicEnable it is there at the start, under its configured name; without, a client's first trace makes it. It is a topic like others."""
    trace = "Pub\x011700000000000\x01DefaultRegion\x01p\x01T\x01id\x01\x01\x01127.0.0.1:10911\x013\x010\x015\x010\x01true\x02"

    def sent(connection, topic, properties="KEYS\x01id"):
        return connection.request(remoting.SEND_V2, remoting.send_fields(topic, 0, properties), trace.encode())
    with Cluster(nodes=1) as cluster, remoting.Connection(cluster.broker(0)) as connection:
        check(connection.request(TOPIC_STATS, {"topic": "RMQ_SYS_TRACE_TOPIC"}).code == 17, "it is there though nobody asked for it")
        check(sent(connection, "RMQ_SYS_TRACE_TOPIC").code == 0, "a trace was refused")
        check([record.body for record in remoting.read_queue(connection, "RMQ_SYS_TRACE_TOPIC", 0)] == [trace.encode()], "the trace")
        query = {"topic": "RMQ_SYS_TRACE_TOPIC", "key": "id", "maxNum": 8, "beginTimestamp": 0, "endTimestamp": 1 << 62}
        check(connection.request(remoting.QUERY, query).code == 0, "found by the id of the message that it is about")
    with Cluster(nodes=1, settings=["traceTopicEnable=true", "msgTraceTopicName=OUR_TRACE", "autoCreateTopicEnable=false"]) as cluster:
        with remoting.Connection(cluster.broker(0)) as connection:
            answer = connection.request(TOPIC_STATS, {"topic": "OUR_TRACE"})
            check(answer.code == 0 and answer.body.count(b"maxOffset") == 1, f"one queue: {answer}")
            wait_for("its route", 5, lambda: remoting.ask(cluster.namesrv(0), remoting.ROUTE, {"topic": "OUR_TRACE"}).code == 0)
            check(sent(connection, "OUR_TRACE").code == 0 and sent(connection, "RMQ_SYS_TRACE_TOPIC").code == 17, "traces")
            # What tells a 5.x consumer to trace a message, and a producer to go on tracing.
            check(connection.request(remoting.SEND_V2, remoting.send_fields("OUR_TRACE", 0, "MSG_REGION\x01x\x02TRACE_ON\x01false"), b"x").ext["TRACE_ON"] == "true",
                  "TRACE_ON")
            properties = remoting.parse_properties(remoting.read_queue(connection, "OUR_TRACE", 0)[-1].properties)
            check(properties["MSG_REGION"] == "DefaultRegion" and properties["TRACE_ON"] == "true", f"{properties}")
