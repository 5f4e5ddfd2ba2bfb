"""Every refusal of a request of clients, by its exact code and remark. What answers otherwise than Java's broker, on purpose, is listed in tests/cases.md."""
import json
import re
import time

import remoting
from cluster import Cluster, check, wait_for
from e2e import case

(UPDATE_CONFIG, UPDATE_GROUP, SEND_BATCH, SEND_BACK, SEND_REPLY, HEART_BEAT, UNREGISTER, CONSUMER_LIST, LOCK, UNLOCK, QUERY_OFFSET, UPDATE_OFFSET, VIEW,
 CHECK_CONFIG, DELETE_TOPIC, EARLIEST, SEARCH, SEND) = 25, 200, 320, 36, 325, 34, 35, 38, 41, 42, 14, 15, 33, 46, 215, 32, 29, 10
FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
ILLEGAL = ("the message is illegal, maybe msg body or properties length not matched. msg body length limit 4194304B, msg properties length limit 32KB.")
CHARS = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
LONG_KEYS = {"a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId", "f": "sysFlag", "g": "bornTimestamp",
             "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch"}


class Asker:
    """Sends a request and says what came instead of what was expected. `remark` is the text, or a pattern that matches all of it."""

    def __init__(self, cluster, node=0, **options):
        self.connection = remoting.Connection(cluster.broker(node), 5.0, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def refused(self, what, code, remark, request, ext, body=b"", region=False):
        answer = self.connection.request(request, ext, body)
        same = remark.fullmatch(answer.remark or "") if isinstance(remark, re.Pattern) else (answer.remark or "") == remark
        check(answer.code == code and same, f"{what}: {code} {remark!r} was expected: {answer}")
        if region:
            check(answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}, f"{what}: every answer to a send has these two: {answer.ext}")
        return answer

    def done(self, request, ext=None, body=b""):
        answer = self.connection.request(request, ext, body)
        check(answer.code == 0, f"{request}: {answer}")
        return answer

    def config(self, **keys):
        self.done(UPDATE_CONFIG, None, "".join(f"{key}={remoting.text(value)}\n" for key, value in keys.items()).encode())


def long_keys(fields):
    return {LONG_KEYS[key]: value for key, value in fields.items()}


@case
def refusals_of_sends():
    """spec of sends, checks 1 to 9 in their order, for each way to send (10, 310, 320, 325) at the leader and through a follower."""
    with Cluster(settings=["messageDelayLevel=1h"]) as cluster:
        cluster.create_topic("T", 4)
        leader = cluster.leader()
        for node in (leader, (leader + 1) % 3):
            with Asker(cluster, node) as asker, Asker(cluster, leader) as admin:
                def each(what, code, remark, changes, asker=asker, ways=(SEND, remoting.SEND_V2, SEND_BATCH, SEND_REPLY), body=b"x"):
                    for way in ways:
                        fields = {**remoting.send_fields("T", 0), "m": way == SEND_BATCH, **changes}
                        sent = remoting.batch_body([(body, "")]) if fields["m"] else body
                        asker.refused(f"{what} by {way}", code, remark, way, long_keys(fields) if way == SEND else fields, sent, region=True)
                later = int(time.time() * 1000) + 3600123
                text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(later // 1000)) + f",{later % 1000:03d}"
                admin.config(startAcceptSendRequestTimeStamp=later)
                each("before its time", 1, f"broker unable to service, until {text}", {"b": "a b"})
                admin.config(startAcceptSendRequestTimeStamp=0)
                each("blank topic", 1, "The specified topic is blank.", {"b": " "})
                each("empty topic", 1, "The specified topic is blank.", {"b": ""})
                each("bad letters", 1, CHARS, {"b": "a b"})
                each("bad letters", 1, CHARS, {"b": "中文"})
                each("a long topic", 1, "The specified topic is longer than topic max length.", {"b": "T" * 128})
                for topic in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
                              "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"):
                    each("a topic for nobody", 16, f"Sending message to topic[{topic}] is forbidden.", {"b": topic, "e": 99})
                unknown = f"topic[nobodys] not exist, apply first please!{FAQ}"
                each("an unknown model", 17, unknown, {"b": "nobodys", "c": "none", "e": 99})
                each("a model that may not be inherited", 17, unknown, {"b": "nobodys", "c": "T"})
                admin.config(autoCreateTopicEnable=False)
                each("auto-creation is off", 17, unknown, {"b": "nobodys"})
                admin.config(autoCreateTopicEnable=True)
                queue = re.compile(r"request queueId\[4\] is illegal, TopicConfig \[topicName=T, readQueueNums=4, writeQueueNums=4, perm=RW-, "
                                   r"topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false\] Producer: (/?)127\.0\.0\.1:\d+")
                each("a queue that is not there", 1, queue, {"e": 4})
                admin.config(autoCreateSubscriptionGroup=False)
                each("a retry of a group that is not there", 26, f"subscription group not exist, nobodys{FAQ}", {"b": "%RETRY%nobodys"},
                     ways=(SEND, remoting.SEND_V2))
                admin.config(autoCreateSubscriptionGroup=True, rejectTransactionMessage=True)
                each("a half message", 16, "the broker[127.0.0.1] sending transaction message is forbidden", {"i": "TRAN_MSG\x01true\x02PGROUP\x01p", "f": 4},
                     ways=(SEND, remoting.SEND_V2))
                admin.config(rejectTransactionMessage=False)
                stored = (SEND, remoting.SEND_V2, SEND_BATCH)  # what is wrong with storing a reply does not change its answer
                each("a body over 4 MiB", 13, ILLEGAL, {}, ways=stored, body=b"x" * ((4 << 20) + 1))
                each("properties over 32 KiB", 13, ILLEGAL, {"i": "k\x01" + "v" * 32766}, ways=(SEND, remoting.SEND_V2))
                each("properties over 32 KiB in UTF-8", 13, ILLEGAL, {"i": "k\x01" + "中" * 10923}, ways=(SEND, remoting.SEND_V2))
                each("a delayed batch", 13, ILLEGAL, {"i": "DELAY\x011"}, ways=(SEND_BATCH,))
                for flags in (4, 8, 12):
                    each("a batch in a transaction", 13, ILLEGAL, {"f": flags}, ways=(SEND_BATCH,))
                for key in ("a", "b", "c", "d", "e", "f", "g", "h"):
                    each("a missing field", 1, re.compile(f".*({key}|{LONG_KEYS[key]}).* is missing"), {key: None})
                for key in ("d", "e", "f", "g", "h", "j"):
                    each("a field that is no number", 1, re.compile(f"field ({key}|{LONG_KEYS[key]}) is not a number: many"), {key: "many"})
                stored = asker.done(remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}).ext["offset"]
                check(stored == "0" or node != leader, f"{stored} refused messages were stored")
                check(asker.done(remoting.SEND_V2, remoting.send_fields("T", -100)).ext["queueId"] in "0123", "a negative queue is any queue")
                asker.done(remoting.SEND_V2, remoting.send_fields("made", 0))


@case
def refusals_of_sends_to_an_order_topic():
    """A broker that may not be written to refuses sends to topics that the name server's table of order topics has, and takes others."""
    with Cluster() as cluster:
        for topic in ("T", "ORDERED"):
            cluster.create_topic(topic, 1)
        leader = cluster.leader()
        for node in range(3):
            answer = remoting.ask(cluster.namesrv(node), remoting.PUT_KV, {"namespace": "ORDER_TOPIC_CONFIG", "key": "ORDERED", "value": "broker-a:1"})
            check(answer.code == 0, f"100: {answer}")
        with Asker(cluster, leader) as asker:
            def is_ordered(node, topic):
                table = json.loads(remoting.ask(cluster.broker(node), 21, {}).body)["topicConfigTable"]
                return table[topic]["order"]
            cluster.create_topic("any", 1)  # registers, and the answer brings the table
            for node in range(3):
                wait_for(f"node {node} to know", 10, lambda node=node: is_ordered(node, "ORDERED") and not is_ordered(node, "T"))
            asker.config(brokerPermission=4)
            asker.refused("an order topic", 16, "the broker[127.0.0.1] sending message is forbidden", remoting.SEND_V2, remoting.send_fields("ORDERED", 0),
                          region=True)
            asker.done(remoting.SEND_V2, remoting.send_fields("T", 0))
            asker.config(brokerPermission=6)
            asker.done(remoting.SEND_V2, remoting.send_fields("ORDERED", 0))
            for node in range(3):
                check(remoting.ask(cluster.namesrv(node), 102, {"namespace": "ORDER_TOPIC_CONFIG", "key": "ORDERED"}).code == 0, "102")
                check(remoting.ask(cluster.namesrv(node), remoting.PUT_KV, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:1"}).code == 0, "100")
            cluster.create_topic("other", 1)
            wait_for("the table's change", 10, lambda: is_ordered(leader, "T") and not is_ordered(leader, "ORDERED"))


@case
def refusals_of_send_backs():
    """CONSUMER_SEND_MSG_BACK, its checks in their order."""
    with Cluster(nodes=1, settings=["messageDelayLevel=1h"]) as cluster, Asker(cluster) as asker:
        cluster.create_topic("T", 1)
        position = int(asker.done(remoting.SEND_V2, remoting.send_fields("T", 0), b"x").ext["msgId"][-16:], 16)
        good = {"offset": position, "group": "g", "delayLevel": 0, "originTopic": "T", "originMsgId": "x", "unitMode": False, "maxReconsumeTimes": 16}

        def refused(what, code, remark, **changes):
            asker.refused(what, code, remark, SEND_BACK, {**good, **changes})
        for field in ("offset", "group", "delayLevel"):
            refused(f"without {field}", 1, f"field {field} is missing", **{field: None})
        refused("a blank group", 1, "the specified group is blank", group="")
        asker.config(autoCreateSubscriptionGroup=False)
        refused("an unknown group", 26, f"subscription group not exist, g{FAQ}", offset=1 << 50)
        asker.config(autoCreateSubscriptionGroup=True)
        asker.done(UPDATE_GROUP, None, b'{"groupName":"g","retryMaxTimes":3}')
        asker.config(brokerPermission=4)
        refused("a broker that is read only", 16, "the broker[127.0.0.1] sending message is forbidden", offset=1 << 50)
        asker.config(brokerPermission=6)
        for offset in (1 << 50, position + 1, position - 48, 0, -1):
            refused("no such record", 1, f"look message by offset failed, {offset}", offset=offset)
        asker.done(remoting.CREATE_TOPIC, remoting.topic_fields("%RETRY%g", perm=4))
        refused("a retry topic that is read only", 16, "the topic[%RETRY%g] sending message is forbidden", offset=1 << 50)
        asker.done(remoting.CREATE_TOPIC, remoting.topic_fields("%RETRY%g"))
        asker.done(UPDATE_GROUP, None, b'{"groupName":"none","retryQueueNums":0}')
        asker.done(SEND_BACK, {**good, "group": "none", "offset": 1 << 50})  # dropped, as the group wants no retries
        asker.done(SEND_BACK, good)
        check(asker.done(remoting.MAX_OFFSET, {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": 0}).ext["offset"] == "1", "the good one")


def subscription(topic="T", expression="*", kind="TAG", version=5):
    return {"topic": topic, "subString": expression, "expressionType": kind, "subVersion": version, "classFilterMode": False, "tagsSet": [], "codeSet": []}


def heart_beat_body(group, subscriptions, model="CLUSTERING", client="c@1"):
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": model, "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "unitMode": False, "subscriptionDataSet": subscriptions}
    return json.dumps({"clientID": client, "producerDataSet": [], "consumerDataSet": [consumer]}).encode()


@case
def refusals_of_pulls():
    """PULL_MESSAGE and LITE_PULL_MESSAGE, their checks in their order."""
    with Cluster(nodes=1) as cluster, Asker(cluster) as asker:
        cluster.create_topic("T", 2)
        no_sql = "The broker does not support consumer to filter message by SQL92"

        def refused(what, code, remark, **changes):
            for way in (remoting.PULL, 361):
                asker.refused(what, code, remark, way, {**remoting.pull_fields("T", 0, 0, group="g"), **changes})
        plain = {"sysFlag": 0, "subscription": None}
        for field in ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion"):
            refused(f"without {field}", 1, f"field {field} is missing", **{field: None})
        asker.config(brokerPermission=2)
        refused("a broker that is write only", 16, "the broker[127.0.0.1] pulling message is forbidden", topic="none", consumerGroup="none")
        asker.config(brokerPermission=6, autoCreateSubscriptionGroup=False)
        refused("an unknown group", 26, f"subscription group [none] does not exist, {FAQ}", topic="none", consumerGroup="none")
        asker.config(autoCreateSubscriptionGroup=True)
        asker.done(UPDATE_GROUP, None, b'{"groupName":"off","consumeEnable":false}')
        refused("a group that is switched off", 16, "subscription group no permission, off", topic="none", consumerGroup="off")
        refused("an unknown topic", 17, f"topic[none] not exist, apply first please!{FAQ}", topic="none")
        asker.done(remoting.CREATE_TOPIC, remoting.topic_fields("W", perm=2))
        refused("a topic that is write only", 16, "the topic[W] pulling message is forbidden", topic="W", queueId=9)
        for queue in (2, -1, 2**31 - 1):
            illegal = rf"queueId\[{queue}\] is illegal, topic:\[T\] topicConfig.readQueueNums:\[2\] consumer:\[/?127.0.0.1:\d+\]"
            refused("a queue that is not there", 1, re.compile(illegal), queueId=queue, subscription="||")
        refused("an expression that is none", 23, "parse the consumer's subscription failed", subscription="||")
        refused("a group that is not there", 24, f"the consumer's group info not exist{FAQ}", **plain)
        asker.done(UPDATE_GROUP, None, b'{"groupName":"g","consumeBroadcastEnable":false}')
        asker.done(HEART_BEAT, None, heart_beat_body("g", [subscription()], "BROADCASTING"))
        refused("broadcast is off", 16, "the consumer group[g] can not consume by broadcast way", **plain)
        asker.done(HEART_BEAT, None, heart_beat_body("g", [subscription("other")]))
        refused("no subscription", 24, f"the consumer's subscription not exist{FAQ}", **plain)
        asker.done(HEART_BEAT, None, heart_beat_body("g", [subscription(), subscription("%RETRY%g")]))
        refused("a newer subscription", 25, "the consumer's subscription not latest", **{**plain, "subVersion": 6, "subscription": "A"})
        refused("SQL92 in the request while it is off", 1, no_sql, subscription="n = 1", expressionType="SQL92")
        asker.done(HEART_BEAT, None, heart_beat_body("g", [subscription(expression="n = 1", kind="SQL92", version=7)]))
        refused("SQL92 in the heart-beat while it is off", 1, no_sql, **{**plain, "subVersion": 7})
        asker.config(enablePropertyFilter=True)
        refused("an SQL92 expression that is none", 23, re.compile("parse the consumer's subscription failed.*", re.S), subscription="n =",
                expressionType="SQL92")
        refused("another kind of expression", 1, "The broker does not support consumer to filter message by GROOVY", subscription="n", expressionType="GROOVY")
        asker.done(HEART_BEAT, None, heart_beat_body("g", [subscription(expression="n >", kind="SQL92", version=8)]))
        refused("a compiled filter that is too old", 28, "the consumer's consumer filter data not latest", **{**plain, "subVersion": 8})
        asker.done(HEART_BEAT, None, heart_beat_body("h", [subscription(expression="n >", kind="SQL92", version=8)], client="c@2"))
        refused("no compiled filter", 27, f"The consumer's filter data not exist!{FAQ}", **{**plain, "subVersion": 8, "consumerGroup": "h"})
        check(asker.connection.request(remoting.PULL, remoting.pull_fields("T", 0, 0)).code == 19, "a good one")


@case
def refusals_of_questions_and_consumers():
    """What the other requests of clients refuse: 12, 33, 14, 15, 29 to 32, 34, 35, 38, 41, 42, 46 and codes that nobody knows."""
    with Cluster(nodes=1) as cluster, Asker(cluster) as asker:
        cluster.create_topic("T", 1)
        asker.done(remoting.SEND_V2, remoting.send_fields("T", 0))
        query = {"topic": "T", "key": "none", "maxNum": 8, "beginTimestamp": 0, "endTimestamp": 1 << 62}
        answer = asker.refused("no such key", 22, "can not find message, maybe time range not correct", remoting.QUERY, query)
        check(set(answer.ext) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}, f"{answer.ext}")
        for offset in (0, -1, 1 << 60):
            asker.refused("no such message", 1, f"can not find message by the offset, {offset}", VIEW, {"offset": offset})
        asker.refused("no offset", 22, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first", QUERY_OFFSET,
                      {"consumerGroup": "g", "topic": "T", "queueId": 0, "setZeroIfNotFound": False})
        asker.refused("nobody", 1, "no consumer for this group, g", CONSUMER_LIST, {"consumerGroup": "g"})
        for code in (HEART_BEAT, LOCK, UNLOCK, CHECK_CONFIG):
            answer = asker.connection.request(code, None, b"{nonsense")
            check(answer.code == 1 and answer.remark, f"{code} with nonsense: {answer}")
        sql = json.dumps({"clientId": "c", "group": "g", "subscriptionData": subscription(expression="n =", kind="SQL92")}).encode()
        asker.refused("SQL92 is off", 1, "The broker does not support consumer to filter message by SQL92", CHECK_CONFIG, None, sql)
        asker.config(enablePropertyFilter=True)
        answer = asker.connection.request(CHECK_CONFIG, None, sql)
        check(answer.code == 23 and answer.remark, f"{answer}")
        for request, good in ((remoting.QUERY, query), (VIEW, {"offset": 0}), (QUERY_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0}),
                              (UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 0}),
                              (SEARCH, {"topic": "T", "queueId": 0, "timestamp": 0}), (remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}),
                              (remoting.MIN_OFFSET, {"topic": "T", "queueId": 0}), (EARLIEST, {"topic": "T", "queueId": 0}), (UNREGISTER, {"clientID": "c"}),
                              (CONSUMER_LIST, {"consumerGroup": "g"})):
            for field in good:
                asker.refused(f"{request} without {field}", 1, f"field {field} is missing", request, {**good, field: None})
        for code in (0, 1, 9999, 123456):
            asker.refused("a code that nobody knows", 3, f" request type {code} not supported", code, {})
        # Unknown topics and queues are no error here.
        for topic, queue in (("none", 0), ("T", 7)):
            for request, field, expected in ((remoting.MAX_OFFSET, "offset", "0"), (remoting.MIN_OFFSET, "offset", "0"), (EARLIEST, "timestamp", "-1"),
                                             (QUERY_OFFSET, "offset", "0")):
                answer = asker.done(request, {"topic": topic, "queueId": queue, "consumerGroup": "g"})
                check(answer.ext[field] == expected, f"{request} of {topic}/{queue}: {answer}")
            check(asker.done(SEARCH, {"topic": topic, "queueId": queue, "timestamp": 0}).ext["offset"] == "0", "29")


@case
def no_leader_and_lost_quorum_are_refused_with_14():
    """What Java answers with 1, 2 or 11 where a retry helps is 14 here, with the cause: no leader, a quorum that is silent, leadership that is lost."""
    with Cluster(settings=["maxWaitMs=700"]) as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        position = int(cluster.send("T", 0, b"x").ext["msgId"][-16:], 16)
        for node in range(3):
            if node != leader:
                cluster.kill(node)
        back = {"offset": position, "group": "g", "delayLevel": 0, "originTopic": "T", "originMsgId": "x"}
        with Asker(cluster, leader) as asker:
            asker.connection.timeout = 10
            unknown = re.compile(r"(the quorum did not answer in time|leadership lost), outcome unknown|no leader.*|.*no leader.*")
            opaques = [asker.connection.send(remoting.SEND_V2, remoting.send_fields("T", 0), b"1") for _ in range(3)]
            for opaque in opaques:
                answer = asker.connection.answer(opaque)
                check(answer.code == 14 and unknown.fullmatch(answer.remark or ""), f"{answer}")
            wait_for("it to know that it leads no more", 20, lambda: json.loads(asker.connection.request(remoting.RUNTIME_INFO, {}).body)["table"]["raftAccepting"]
                     == "false")
            for request, ext, body in ((remoting.SEND_V2, remoting.send_fields("T", 0), b"2"), (SEND, long_keys(remoting.send_fields("T", 0)), b"2"),
                                       (SEND_BATCH, {**remoting.send_fields("T", 0), "m": True}, remoting.batch_body([(b"1", "")])), (SEND_BACK, back, b""),
                                       (remoting.CREATE_TOPIC, {"topic": "N", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
                                                                "topicFilterType": "SINGLE_TAG", "order": False}, b""),
                                       (UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1}, b""),
                                       (37, {"producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": position, "commitOrRollback": 8,
                                             "fromTransactionCheck": False, "msgId": "x", "transactionId": "x"}, b"")):
                answer = asker.connection.request(request, ext, body)
                check(answer.code == 14 and "no leader" in (answer.remark or ""), f"{request} without a leader: {answer}")
            # What is committed can still be read.
            answer = asker.connection.request(remoting.PULL, remoting.pull_fields("T", 0, 0))
            check(answer.code == 0 and len(list(remoting.records(answer.body))) == 1, f"{answer}")
