"""What client libraries of every kind and age rely on, asked for field by field and byte by byte."""
import contextlib
import json
import re
import struct
import threading
import time

import remoting
from cluster import Cluster, check, wait_for
from e2e import case

HEART_BEAT, UNREGISTER_CLIENT, CONSUMER_LIST, CONSUMER_CONNECTION, PRODUCER_CONNECTION = 34, 35, 38, 203, 204
QUERY_OFFSET, UPDATE_OFFSET, SEARCH_OFFSET, EARLIEST_TIME, VIEW, SEND_BACK, END_TRANSACTION = 14, 15, 29, 32, 33, 36, 37
CHECK_TRANSACTION, IDS_CHANGED, LOCK, UNLOCK, TOPIC_STATS, CONSUME_STATS, VIEW_STATS, BROKER_CONSUME_STATS = 39, 40, 41, 42, 202, 208, 315, 317
ALL_TOPICS, CONSUMED_BY, ALL_PRODUCERS, RUNNING_INFO, SEND, SEND_BATCH, CHECK_CONFIG = 206, 300, 328, 307, 10, 320, 46


def subscription(topic="T", text="*", version=1, **more):
    tags = [] if text == "*" else [tag.strip() for tag in text.split("||")]
    return {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": text, "subVersion": version, "tagsSet": tags, "topic": topic, **more}


def consumer(group, *subscriptions, **more):
    return {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": list(subscriptions), "unitMode": False, **more}


def heart_beat(connection, client, *consumers, producers=()):
    body = {"clientID": client, "consumerDataSet": list(consumers), "producerDataSet": [{"groupName": name} for name in producers]}
    answer = connection.request(HEART_BEAT, None, json.dumps(body).encode())
    check(answer.code == 0, f"heart-beat of {client}: {answer}")


def members(connection, group):
    answer = connection.request(CONSUMER_LIST, {"consumerGroup": group})
    return sorted(json.loads(answer.body)["consumerIdList"]) if answer.code == 0 else []


def runtime(connection):
    return json.loads(connection.request(remoting.RUNTIME_INFO, {}).body)["table"]


@contextlib.contextmanager
def one_node(*settings, topic="T", queues=1):
    with Cluster(nodes=1, settings=settings) as cluster:
        if topic:
            cluster.create_topic(topic, queues)
        with remoting.Connection(cluster.broker(0)) as client:
            yield cluster, client


@case
def broker_ids_in_a_route():
    """Z1: bare integer keys for clients that know nothing else, quoted ones for those that ask for standard JSON or are new enough to read it."""
    with one_node() as (cluster, _):
        bare, quoted = b'"brokerAddrs":{0:"', b'"brokerAddrs":{"0":"'
        for version in (0, 3, 137, 317, 395, 400):
            for ext, wanted in (({}, bare), ({"acceptStandardJsonOnly": False}, bare), ({"acceptStandardJsonOnly": True}, quoted)):
                with remoting.Connection(cluster.namesrv(0), version=version) as client:
                    answer = client.request(remoting.ROUTE, {"topic": "T", **ext})
                check(answer.code == 0 and wanted in answer.body, f"version {version}, {ext}: {answer.body}")
        bodies = set()
        for version in (401, 409, 413, 475, 2000):
            for language in ("JAVA", "GO", "CPP"):
                with remoting.Connection(cluster.namesrv(0), language=language, version=version) as client:
                    bodies.add(client.request(remoting.ROUTE, {"topic": "T"}).body)
        check(len(bodies) == 1 and quoted in bodies.pop(), f"new versions: {bodies}")


@case
def statistics_have_objects_as_keys():
    """Z2: the tables of 202, 208 and 317 as fastjson writes them: a whole queue is the key, members in Java's order, no blank."""
    with one_node(queues=2) as (cluster, client):
        for queue in (0, 1, 1):
            check(cluster.send("T", queue, b"x").code == 0, "send")
        heart_beat(client, "c@1", consumer("g", subscription()))
        check(client.request(UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 1, "commitOffset": 1}).code == 0, "15")

        def key(queue):
            return rb'\{"brokerName":"broker-a","queueId":%d,"topic":"T"\}' % queue

        def entries(value, *values):
            return rb'\{' + b",".join(key(queue) + b":" + value % numbers for queue, numbers in enumerate(values)) + rb'\}'

        offsets = entries(rb'\{"brokerOffset":%d,"consumerOffset":%d,"lastTimestamp":\d+\}', (1, 0), (2, 1))
        tps = rb'\d+\.\d+(E-?\d+)?'
        for code, ext, form in (
                (TOPIC_STATS, {"topic": "T"}, rb'\{"offsetTable":' + entries(rb'\{"lastUpdateTimestamp":\d{13},"maxOffset":%d,"minOffset":0\}', (1,), (2,)) + rb'\}'),
                (CONSUME_STATS, {"consumerGroup": "g", "topic": "T"}, rb'\{"consumeTps":' + tps + rb',"offsetTable":' + offsets + rb'\}'),
                (BROKER_CONSUME_STATS, {"isOrder": False}, rb'.*"g":\[\{"consumeTps":' + tps + rb',"offsetTable":' + offsets + rb'\}\].*')):
            answer = client.request(code, ext)
            check(answer.code == 0 and re.fullmatch(form, answer.body), f"request {code}: {answer.body}")


@case
def heart_beats_of_other_languages():
    """Z4: as Go, C++ and Python send them, and with words that nobody knows: taken, and shown as OTHER where a tool shows them."""
    plain = '{"clientID":"%s","consumerDataSet":[{"groupName":"%s"%s,"subscriptionDataSet":[{"topic":"T","subString":"*","subVersion":%s}]}]}'
    rows = [  # language of the header, members, version; language, type and model that 203 shows
        ('"GO"', ',"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","unitMode":false', "17",
         "GO", "CONSUME_PASSIVELY", "CLUSTERING"),
        ('"CPP"', ',"consumeType":1,"messageModel":0,"consumeFromWhere":4', '"17"', "CPP", "CONSUME_PASSIVELY", "BROADCASTING"),
        ('"PYTHON"', ',"consumeType":0,"messageModel":1', "0", "PYTHON", "CONSUME_ACTIVELY", "CLUSTERING"),
        ('"RUST"', ',"consumeType":"Consume_Passively","messageModel":"Clustering","consumeFromWhere":"ConsumeFromFirstOffset"', "17",
         "RUST", "CONSUME_PASSIVELY", "CLUSTERING"),
        ('"NODE_JS"', ',"messageModel":"BroadCasting","newMember":[{"a":null}]', "17", "NODE_JS", "CONSUME_PASSIVELY", "BROADCASTING"),
        ('"ZIG"', ',"consumeType":"CONSUME_BY_MAGIC","messageModel":"SOMETIMES","consumeFromWhere":"NOWHERE"', "17", "OTHER", "CONSUME_PASSIVELY", "CLUSTERING"),
        ("77", ',"consumeType":77,"messageModel":-1', "17", "OTHER", "CONSUME_PASSIVELY", "CLUSTERING"),
        ('"go"', "", "17", "OTHER", "CONSUME_PASSIVELY", "CLUSTERING"),
    ]
    with one_node() as (cluster, client):
        with contextlib.ExitStack() as stack:
            for number, (language, more, version, shown, kind, model) in enumerate(rows):
                other = stack.enter_context(remoting.Connection(cluster.broker(0)))
                group = f"g{number}"
                body = (plain % (f"c@{number}", group, more, version)).encode()
                other.send_raw(remoting.frame(b'{"code":34,"flag":0,"language":%s,"opaque":1,"version":317}' % language.encode(), body))
                answer = other.answer(1)
                check(answer.code == 0, f"{language}: {answer}")
                found = json.loads(client.request(CONSUMER_CONNECTION, {"consumerGroup": group}).body)
                check(found["connectionSet"][0]["language"] == shown and found["consumeType"] == kind and found["messageModel"] == model,
                      f"{language} {more}: {found}")
                check(found["subscriptionTable"]["T"]["subString"] == "*" and members(client, group) == [f"c@{number}"], f"{language}: {found}")


@case
def statistics_of_a_fresh_broker():
    """Z5: an exporter's round on a broker without any traffic: every key in each spelling, zeros, and no `not exist` for what is there."""
    with one_node() as (cluster, client):
        table = runtime(client)
        for name in ("getTransferedTps", "getTransferredTps", "putTps", "getTotalTps", "getFoundTps", "getMissTps"):
            check(name in table, f"{name} is missing")
        numbers = ("msgPutTotalTodayNow", "msgGetTotalTodayNow", "msgPutTotalTodayMorning", "msgGetTotalTodayMorning", "msgPutTotalYesterdayMorning",
                   "msgGetTotalYesterdayMorning", "putMessageTimesTotal", "putMessageEntireTimeMax", "getMessageEntireTimeMax", "putMessageAverageSize",
                   "putMessageSizeTotal", "dispatchMaxBuffer", "dispatchBehindBytes", "sendThreadPoolQueueSize", "pullThreadPoolQueueSize",
                   "queryThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity", "queryThreadPoolQueueCapacity",
                   "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueHeadWaitTimeMills",
                   "pageCacheLockTimeMills", "earliestMessageTimeStamp", "startAcceptSendRequestTimeStamp", "bootTimestamp",
                   "remainTransientStoreBufferNumbs", "commitLogMinOffset", "commitLogMaxOffset", "commitLogDiskRatio", "consumeQueueDiskRatio")
        for name in numbers:
            check(re.fullmatch(r"-?\d+(\.\d+)?(E-?\d+)?", table.get(name, "")), f"{name} is {table.get(name)!r}, no number")
        check(table["msgPutTotalTodayNow"] == table["msgGetTotalTodayNow"] == "0", "messages were counted")
        for name in ("putMessageDistributeTime", "runtime", "commitLogDirCapacity", "remainHowManyDataToFlush", "brokerVersionDesc", "brokerVersion"):
            check(table.get(name), f"{name} is missing")

        def zero(name, key):
            answer = client.request(VIEW_STATS, {"statsName": name, "statsKey": key})
            nothing = {"avgpt": 0.0, "sum": 0, "tps": 0.0}
            check(answer.code == 0 and json.loads(answer.body) == {"statsDay": nothing, "statsHour": nothing, "statsMinute": nothing}, f"{name} {key}: {answer}")
        topics = json.loads(remoting.ask(cluster.namesrv(0), ALL_TOPICS, {}).body)["topicList"]
        check("T" in topics, topics)
        for topic in topics:
            check(client.request(TOPIC_STATS, {"topic": topic}).code == 0, f"202 {topic}")
            check(client.request(CONSUMED_BY, {"topic": topic}).code == 0, f"300 {topic}")
            zero("TOPIC_PUT_NUMS", topic)
            zero("TOPIC_PUT_SIZE", topic)
        for name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"):
            zero(name, "DefaultCluster")
        heart_beat(client, "c@1", consumer("g", subscription()))
        check(client.request(CONSUME_STATS, {"consumerGroup": "g"}).code == 0, "208")
        check(client.request(ALL_PRODUCERS, {}).code == 0, "328")
        for name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS"):
            zero(name, "T@g")
        zero("GROUP_GET_LATENCY", "0@T@g")
        for name, key in (("TOPIC_PUT_NUMS", "Unknown"), ("GROUP_GET_NUMS", "T@unknown"), ("NO_SUCH_NAME", "T"), ("BROKER_PUT_NUMS", "OtherCluster"),
                          ("GROUP_GET_NUMS", "T@"), ("GROUP_GET_NUMS", "@")):
            answer = client.request(VIEW_STATS, {"statsName": name, "statsKey": key})
            check((answer.code, answer.remark) == (1, f"The stats <{name}> <{key}> not exist"), f"{name} {key}: {answer}")


@case
def fields_of_a_transaction_check():
    """Z6: what 39 carries, by the names that the clients read, and that a decision made of nothing but these fields is taken."""
    with one_node("transactionTimeOut=200", "transactionCheckInterval=200") as (cluster, client):
        heart_beat(client, "p@1", producers=["p"])
        properties = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01UNIQ1\x02KEYS\x01k"
        fields = {**remoting.send_fields("T", 0, properties, group="p"), "f": 4}
        sent = client.request(remoting.SEND_V2, fields, b"half")
        check(sent.code == 0, f"half message: {sent}")
        asked = client.next_request(CHECK_TRANSACTION, 10)
        check(set(asked.ext) >= {"tranStateTableOffset", "commitLogOffset", "msgId", "transactionId", "offsetMsgId"}, f"fields: {asked.ext}")
        check(asked.flag & 2, "39 is one-way")
        check(asked.ext["msgId"] == asked.ext["transactionId"] == "UNIQ1", f"{asked.ext}")
        position = int(asked.ext["commitLogOffset"])
        address = f"7F000001{cluster.base + 100:08X}{position:016X}"
        check(asked.ext["offsetMsgId"] == address, f"offsetMsgId {asked.ext['offsetMsgId']}, expected {address}")
        record = remoting.Record(asked.body, 0)
        check((record.topic, record.queue, record.body) == ("T", 0, b"half"), f"body of 39: {record.topic}/{record.queue}")
        check(record.position == position and record.offset == int(asked.ext["tranStateTableOffset"]), "places in the body and in the header differ")
        answer = client.request(END_TRANSACTION, {"producerGroup": "p", "tranStateTableOffset": asked.ext["tranStateTableOffset"],
                                                  "commitLogOffset": asked.ext["commitLogOffset"], "commitOrRollback": 8, "fromTransactionCheck": True,
                                                  "msgId": asked.ext["msgId"], "transactionId": asked.ext["transactionId"]})
        check(answer.code == 0, f"37: {answer}")
        found = remoting.read_queue(client, "T", 0)
        check([record.body for record in found] == [b"half"], "the committed message")


@case
def pulls_end_at_a_record():
    """Z7: whatever the limits of an answer cut, it holds whole records only, and at least one: for sizes around the limit, in memory and cold."""
    with one_node("maxTransferBytesOnMessageInMemory=20000", "maxTransferCountOnMessageInMemory=7") as (_, client):
        sizes = [1, 19000, 19800, 19999, 20000, 20001, 30000, 5, 9999, 10001, 100000, 1, 1, 1, 1, 1, 1, 1, 1, 1, 300000, 400]
        for number, size in enumerate(sizes):
            answer = client.request(remoting.SEND_V2, remoting.send_fields("T", 0), bytes([number]) * size)
            check(answer.code == 0, f"send: {answer}")
        for count in (1, 3, 32):
            for start in range(len(sizes)):
                answer = client.request(remoting.PULL, remoting.pull_fields("T", 0, start, count=count))
                check(answer.code == 0, f"pull at {start}: {answer}")
                found = list(remoting.records(answer.body))  # raises when a record is cut
                check(1 <= len(found) <= min(count, 7), f"pull at {start} of {count}: {len(found)} records")
                check([record.offset for record in found] == list(range(start, start + len(found))), f"pull at {start}")
                check([len(record.body) for record in found] == sizes[start:start + len(found)], f"pull at {start}: bodies")
                check(len(found) == 1 or sum(record.size for record in found) <= 20000, f"pull at {start}: {sum(record.size for record in found)} bytes")
                check(int(answer.ext["nextBeginOffset"]) == start + len(found), f"pull at {start}: {answer.ext}")


def batch(*bodies):
    entries = b""
    for body in bodies:
        entries += struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + struct.pack(">h", 0)
    return entries


@case
def both_ports_serve():
    """Z8: what clients send to the port two below is answered there as on the main port."""
    with one_node() as (cluster, client):
        host, port = remoting.split_address(cluster.broker(0))
        long_names = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag", "properties")
        with remoting.Connection(f"{host}:{port - 2}") as vip:
            for connection in (client, vip):
                heart_beat(connection, f"c@{connection is vip}", consumer("g", subscription()), producers=["p"])
            short = remoting.send_fields("T", 0, "KEYS\x01k")
            first = {}
            for connection in (client, vip):
                sent = [connection.request(remoting.SEND_V2, short, b"x"), connection.request(SEND, dict(zip(long_names, short.values())), b"x"),
                        connection.request(SEND_BATCH, {**short, "m": True, "i": ""}, batch(b"x", b"y"))]
                check([answer.code for answer in sent] == [0, 0, 0], f"sends: {sent}")
                first[connection] = int(sent[0].ext["queueOffset"])
            check(first == {client: 0, vip: 4}, f"{first}")
            record = remoting.read_queue(client, "T", 0)[0]
            rows = [
                (QUERY_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0}, b""),
                (UPDATE_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1}, b""),
                (remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}, b""), (remoting.MIN_OFFSET, {"topic": "T", "queueId": 0}, b""),
                (SEARCH_OFFSET, {"topic": "T", "queueId": 0, "timestamp": 0}, b""), (EARLIEST_TIME, {"topic": "T", "queueId": 0}, b""),
                (VIEW, {"offset": record.position}, b""),
                (remoting.QUERY, {"topic": "T", "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}, b""),
                (CONSUMER_LIST, {"consumerGroup": "g"}, b""), (LOCK, None, json.dumps({"clientId": "c@1", "consumerGroup": "g", "mqSet": []}).encode()),
                (UNLOCK, None, json.dumps({"clientId": "c@1", "consumerGroup": "g", "mqSet": []}).encode()),
                (SEND_BACK, {"offset": record.position, "group": "g", "delayLevel": -1}, b""),
                (END_TRANSACTION, {"producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": record.position, "commitOrRollback": 8, "msgId": "x"}, b""),
                (CHECK_CONFIG, None, b""), (UNREGISTER_CLIENT, {"clientID": "x"}, b""), (remoting.RUNTIME_INFO, {}, b""),
            ]
            for code, ext, body in rows:
                answers = [connection.request(code, ext, body) for connection in (client, vip)]
                check(answers[0].code == answers[1].code, f"request {code}: {answers}")
                check(set(answers[0].ext) == set(answers[1].ext), f"request {code}: {answers}")


SEND_FIELDS = {"producerGroup": "p", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 0, "bornTimestamp": 1,
               "flag": 0}
PULL_FIELDS = {"consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0,
               "suspendTimeoutMillis": 0, "subVersion": 0}
QUEUE = {"topic": "T", "queueId": 0}
# Requests and the fields that they cannot do without (remoting.md 3 and 4).
BROKER_FIELDS = [
    (SEND, SEND_FIELDS), (324, SEND_FIELDS), (remoting.PULL, PULL_FIELDS), (361, PULL_FIELDS),
    (remoting.QUERY, {"topic": "T", "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 9}),
    (QUERY_OFFSET, {"consumerGroup": "g", **QUEUE}), (UPDATE_OFFSET, {"consumerGroup": "g", **QUEUE, "commitOffset": 0}),
    (SEARCH_OFFSET, {**QUEUE, "timestamp": 0}), (remoting.MAX_OFFSET, QUEUE), (remoting.MIN_OFFSET, QUEUE), (EARLIEST_TIME, QUEUE), (VIEW, {"offset": 0}),
    (UNREGISTER_CLIENT, {"clientID": "c"}), (SEND_BACK, {"offset": 0, "group": "g", "delayLevel": 0}),
    (END_TRANSACTION, {"producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 8, "msgId": "x"}),
    (CONSUMER_LIST, {"consumerGroup": "g"}), (CONSUMER_CONNECTION, {"consumerGroup": "g"}), (PRODUCER_CONNECTION, {"producerGroup": "p"}),
    (remoting.CREATE_TOPIC, {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
                             "order": False}),
    (215, {"topic": "None"}), (TOPIC_STATS, {"topic": "T"}), (351, {"topic": "T"}), (CONSUMED_BY, {"topic": "T"}), (207, {"groupName": "none"}),
    (CONSUME_STATS, {"consumerGroup": "g"}), (222, {"topic": "T", "group": "g", "timestamp": 0, "isForce": True}), (223, {"topic": "T", "group": "g"}),
    (303, {"topic": "T", "group": "g"}), (RUNNING_INFO, {"consumerGroup": "g", "clientId": "c"}), (308, {"compareGroup": "g", "topic": "T"}),
    (309, {"consumerGroup": "g"}), (314, {"srcGroup": "g", "destGroup": "h"}), (VIEW_STATS, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}),
    (BROKER_CONSUME_STATS, {"isOrder": False}), (321, {**QUEUE, "index": 0}),
]
NAMESRV_FIELDS = [
    (remoting.ROUTE, {"topic": "T"}), (100, {"namespace": "n", "key": "k", "value": "v"}), (101, {"namespace": "n", "key": "k"}),
    (102, {"namespace": "n", "key": "k"}), (219, {"namespace": "n"}), (224, {"cluster": "c"}), (205, {"brokerName": "b"}), (327, {"brokerName": "b"}),
    (216, {"topic": "None"}), (322, {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "brokerId": 0}),
    (remoting.UNREGISTER, {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "brokerId": 0}),
    (remoting.REGISTER, {"brokerName": "b", "brokerAddr": "a:1", "clusterName": "c", "haServerAddr": "h:1", "brokerId": 1}),
]


@case
def a_missing_field_is_named():
    """Z9: every request of broker and name server with each of its mandatory fields left out in turn; and with a text where a number must be."""
    with one_node() as (cluster, client), remoting.Connection(cluster.namesrv(0)) as server:
        tried = 0
        for connection, rows in ((client, BROKER_FIELDS), (server, NAMESRV_FIELDS)):
            for code, fields in rows:
                whole = connection.request(code, fields)
                check("is missing" not in (whole.remark or "") and whole.code != 3, f"request {code} with all its fields: {whole}")
                for name, value in fields.items():
                    answer = connection.request(code, {key: value for key, value in fields.items() if key != name})
                    check(answer.code == 1 and f"field {name} is missing" in (answer.remark or ""), f"request {code} without {name}: {answer}")
                    tried += 1
                    if isinstance(value, int) and not isinstance(value, bool):
                        answer = connection.request(code, {**fields, name: "many"})
                        check(answer.code == 1 and f"field {name} is not a number: many" in (answer.remark or ""), f"request {code}, {name} = many: {answer}")
        for name, letter in zip(SEND_FIELDS, "abcdefgh"):
            fields = {key: value for key, value in remoting.send_fields("T", 0).items() if key != letter}
            for code in (remoting.SEND_V2, SEND_BATCH, 325):
                answer = client.request(code, fields, b"x")
                check(answer.code == 1 and f"field {name} is missing" in (answer.remark or ""), f"request {code} without {letter}: {answer}")
        return f"{tried} fields"


@case
def a_pull_before_the_first_heart_beat():
    """Z10: served when it brings its own subscription, from the first frame of a connection on, whatever the expression; without one it is told why not."""
    with one_node("enablePropertyFilter=true") as (cluster, client):
        for tag in ("A", "B", "A"):
            check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0, f"TAGS\x01{tag}\x02n\x015"), tag.encode()).code == 0, "send")
        rows = [("*", "TAG", 3), ("", "TAG", 3), ("A", "TAG", 2), ("A || B", None, 3), ("C", "TAG", 0), ("n > 4 AND TAGS = 'B'", "SQL92", 1)]
        for number, (text, kind, count) in enumerate(rows):
            fields = {**remoting.pull_fields("T", 0, 0, group=f"new{number}"), "subscription": text, "expressionType": kind, "subVersion": 1700000000000}
            answer = remoting.ask(cluster.broker(0), remoting.PULL, fields)
            check(answer.code == (0 if count else 20), f"{text}: {answer}")
            check(len(list(remoting.records(answer.body))) == count, f"{text}: {answer}")
        answer = remoting.ask(cluster.broker(0), remoting.PULL, {**remoting.pull_fields("T", 0, 0, group="other"), "sysFlag": 0})
        check(answer.code == 24 and "group info not exist" in answer.remark, f"without a subscription: {answer}")


def pulled(connection, group, version, queue=0, start=0):
    fields = {**remoting.pull_fields("T", queue, start, group=group), "sysFlag": 0, "subVersion": version, "subscription": None}
    answer = connection.request(remoting.PULL, {name: value for name, value in fields.items() if value is not None})
    check(answer.code in (0, 20), f"pull of {group}: {answer}")
    return [record.body for record in remoting.records(answer.body)]


@case
def a_subscription_of_a_clock_that_was_set_back():
    """Z11: a client whose clock went back subscribes to other tags with a lower version: taken, on the same connection, on a new one, beside another member."""
    with one_node() as (cluster, client):
        for tag in ("A", "B", "C"):
            check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0, f"TAGS\x01{tag}"), tag.encode()).code == 0, "send")
        heart_beat(client, "c@1", consumer("g", subscription(text="A", version=1000)))
        check(pulled(client, "g", 1000) == [b"A"], "the first subscription")
        heart_beat(client, "c@1", consumer("g", subscription(text="B", version=900)))
        check(pulled(client, "g", 900) == [b"B"], "a lower version on the same connection")
        with remoting.Connection(cluster.broker(0)) as again:
            heart_beat(again, "c@1", consumer("g", subscription(text="C", version=500)))
            check(pulled(again, "g", 500) == [b"C"], "a lower version on a new connection while the old one is open")
            with remoting.Connection(cluster.broker(0)) as other:
                heart_beat(other, "c@2", consumer("g", subscription(text="C", version=400)))
                again.close()
                client.close()
                with remoting.Connection(cluster.broker(0)) as last:
                    wait_for("the old connections are gone", 3, lambda: members(other, "g") == ["c@2"])
                    heart_beat(last, "c@1", consumer("g", subscription(text="A || B", version=1)))
                    check(pulled(last, "g", 1) == [b"A", b"B"], "the lowest version, beside another member")


@case
def consumers_after_a_restart():
    """Z12: the broker is killed under two consumers; both are in the list as soon as they have said who they are, and each is told of the change."""
    with one_node() as (cluster, _):
        def come(client):
            connection = remoting.Connection(cluster.broker(0))
            heart_beat(connection, client, consumer("g", subscription()))
            return connection

        def settled(connection):
            try:
                while True:
                    connection.next_request(IDS_CHANGED, 0.3)
            except TimeoutError:
                pass
        first, second = come("c@1"), come("c@2")
        check(members(first, "g") == ["c@1", "c@2"], "before")
        for kill in (True, False):
            if kill:
                cluster.kill(0)
            cluster.restart(0)
            cluster.leader()
            first.close()
            second.close()
            first = come("c@1")
            since = time.monotonic()
            check(members(first, "g") == ["c@1"], "the first one alone")
            second = come("c@2")
            for connection in (first, second):
                check(members(connection, "g") == ["c@1", "c@2"], "the list right after the heart-beats")
                notice = connection.next_request(IDS_CHANGED, 2 * remoting.PATIENCE)
                check(notice.ext["consumerGroup"] == "g", f"{notice}")
            check(time.monotonic() - since < 1 * remoting.PATIENCE, "late")
            # A member that goes is out at once, and the other is told. What is told of its coming is over by then: this notice may be there before an
            # answer to first is.
            settled(first)
            second.close()
            wait_for("the list without it", 2, lambda: members(first, "g") == ["c@1"])  # pylint: disable=cell-var-from-loop
            first.next_request(IDS_CHANGED, 2 * remoting.PATIENCE)
            second = come("c@2")
        first.close()
        second.close()


@case
def fields_of_every_answer():
    """Z13: what clients take out of an answer without asking whether it is there, of each request that clients send, in good and in bad outcomes."""
    with one_node() as (cluster, client), remoting.Connection(cluster.namesrv(0)) as server:
        number, offset_id, text = r"-?\d+", r"[0-9A-F]{32}", r".+"
        send_ok = {"msgId": offset_id, "queueId": number, "queueOffset": number, "MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        trace = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        pull = {"suggestWhichBrokerId": "0", "nextBeginOffset": number, "minOffset": number, "maxOffset": number}
        query = {"indexLastUpdateTimestamp": number, "indexLastUpdatePhyoffset": number}
        heart_beat(client, "c@1", consumer("g", subscription()), producers=["p"])
        fields = remoting.send_fields("T", 0, "KEYS\x01k\x02UNIQ_KEY\x01U")
        half = {**remoting.send_fields("T", 0, "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01H", group="p"), "f": 4}
        locks = json.dumps({"clientId": "c@1", "consumerGroup": "g", "mqSet": [{"brokerName": "broker-a", "queueId": 0, "topic": "T"}]}).encode()
        position = int(client.request(remoting.SEND_V2, fields, b"x").ext["msgId"][16:], 16)

        def pull_at(offset, **changes):
            return {**remoting.pull_fields("T", 0, offset, group="g"), **changes}
        rows = [  # connection, request, fields, body; code, fields of the answer, form of its body
            (client, remoting.SEND_V2, fields, b"x", 0, send_ok, rb""), (client, remoting.SEND_V2, half, b"x", 0, send_ok, rb""),
            (client, SEND_BATCH, {**fields, "m": True, "i": ""}, batch(b"x", b"y"), 0, {**send_ok, "msgId": f"{offset_id},{offset_id}"}, rb""),
            (client, remoting.SEND_V2, {**fields, "b": "None", "c": "None"}, b"x", 17, trace, rb""),
            (client, remoting.SEND_V2, {**fields, "e": 99}, b"x", 1, trace, rb""), (client, remoting.SEND_V2, {**fields, "b": "a b"}, b"x", 1, trace, rb""),
            (client, remoting.SEND_V2, fields, b"x" * 4194305, 13, trace, rb""),
            (client, remoting.PULL, pull_at(0), b"", 0, pull, rb".+"), (client, remoting.PULL, pull_at(4), b"", 19, pull, rb""),
            (client, remoting.PULL, pull_at(0, subscription="None"), b"", 20, pull, rb""), (client, remoting.PULL, pull_at(99), b"", 21, pull, rb""),
            (client, remoting.PULL, pull_at(-1), b"", 21, pull, rb""), (client, remoting.PULL, pull_at(0, topic="None"), b"", 17, {}, rb""),
            (client, remoting.QUERY, {"topic": "T", "key": "k", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 1 << 60}, b"", 0, query, rb".+"),
            (client, remoting.QUERY, {"topic": "T", "key": "?", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 1 << 60}, b"", 22, query, rb""),
            (client, VIEW, {"offset": position}, b"", 0, {}, rb".+"), (client, VIEW, {"offset": 1 << 40}, b"", 1, {}, rb""),
            (client, QUERY_OFFSET, {"consumerGroup": "g", **QUEUE}, b"", 0, {"offset": "0"}, rb""),
            (client, UPDATE_OFFSET, {"consumerGroup": "g", **QUEUE, "commitOffset": 2}, b"", 0, {}, rb""),
            (client, QUERY_OFFSET, {"consumerGroup": "g", **QUEUE}, b"", 0, {"offset": "2"}, rb""),
            (client, SEARCH_OFFSET, {**QUEUE, "timestamp": 0}, b"", 0, {"offset": "0"}, rb""),
            (client, SEARCH_OFFSET, {"topic": "None", "queueId": 0, "timestamp": 0}, b"", 0, {"offset": "0"}, rb""),
            (client, remoting.MAX_OFFSET, QUEUE, b"", 0, {"offset": "4"}, rb""), (client, remoting.MIN_OFFSET, QUEUE, b"", 0, {"offset": "0"}, rb""),
            (client, remoting.MAX_OFFSET, {"topic": "None", "queueId": 0}, b"", 0, {"offset": "0"}, rb""),
            (client, EARLIEST_TIME, QUEUE, b"", 0, {"timestamp": r"\d{13}"}, rb""),
            (client, EARLIEST_TIME, {"topic": "None", "queueId": 0}, b"", 0, {"timestamp": "-1"}, rb""),
            (client, CONSUMER_LIST, {"consumerGroup": "g"}, b"", 0, {}, rb'\{"consumerIdList":\["c@1"\]\}'),
            (client, CONSUMER_LIST, {"consumerGroup": "none"}, b"", 1, {}, rb""),
            (client, LOCK, None, locks, 0, {}, rb'\{"lockOKMQSet":\[\{"brokerName":"broker-a","queueId":0,"topic":"T"\}\]\}'),
            (client, UNLOCK, None, locks, 0, {}, rb""), (client, SEND_BACK, {"offset": position, "group": "g", "delayLevel": 3}, b"", 0, {}, rb""),
            (client, HEART_BEAT, None, b'{"clientID":"c@1"}', 0, {}, rb""), (client, CHECK_CONFIG, None, b"", 0, {}, rb""),
            (client, UNREGISTER_CLIENT, {"clientID": "c@1", "producerGroup": "p"}, b"", 0, {}, rb""),
            (server, remoting.ROUTE, {"topic": "T"}, b"", 0, {}, rb'\{"brokerDatas":\[\{"brokerAddrs":\{"0":.+"filterServerTable":\{\},"queueDatas":\[\{.+'),
            (server, remoting.ROUTE, {"topic": "None"}, b"", 17, {}, rb""),
            (server, remoting.CLUSTER_INFO, None, b"", 0, {}, rb'\{"brokerAddrTable":\{"broker-a":\{.+\}\},"clusterAddrTable":\{"DefaultCluster":\["broker-a"\]\}\}'),
        ]
        wait_for("the name server is ready", 5, lambda: server.request(remoting.ROUTE, {"topic": "None"}).code == 17)
        for connection, code, ext, body, wanted, answered, form in rows:
            answer = connection.request(code, ext, body)
            name = f"request {code} {({key: value for key, value in (ext or {}).items() if key not in 'acdfghjkm'})}"
            check(answer.code == wanted, f"{name}: {answer}, expected {wanted}")
            for key, value in answered.items():
                check(re.fullmatch(value, answer.ext.get(key, "")), f"{name}: {key} is {answer.ext.get(key)!r}: {answer}")
            check(re.fullmatch(form, answer.body, re.DOTALL), f"{name}: {answer}")
            check(wanted == 0 or re.fullmatch(text, answer.remark or "", re.DOTALL), f"{name}: no remark: {answer}")


@case
def running_info_of_an_idle_consumer():
    """Z15: a client without any queue answers 307 with empty tables, each written in its own way: the tool gets these bytes as they are."""
    bodies = [b'{"jstack":"","mqTable":{},"properties":{},"statusTable":{},"subscriptionSet":[]}',
              b'{"mqTable":null,"properties":{"PROP_CLIENT_VERSION":"V4_9_8"},"statusTable":null,"subscriptionSet":null}',
              b'{"properties":{}}', b"{ }", b""]
    with one_node() as (cluster, client), remoting.Connection(cluster.broker(0)) as tool:
        heart_beat(client, "c@1", consumer("g", subscription()))
        for body in bodies:
            def answer(body=body):
                client.respond(client.next_request(RUNNING_INFO, 10), body=body)
            thread = threading.Thread(target=answer)
            thread.start()
            found = tool.request(RUNNING_INFO, {"consumerGroup": "g", "clientId": "c@1", "jstackEnable": False})
            thread.join()
            check(found.code == 0 and found.body == body, f"{body}: {found}")


@case
def members_with_different_tags():
    """Z16: two members of a group disagree: the newest word counts for all, also after many heart-beats; the log names both, and 28 counts it."""
    with one_node() as (cluster, client), remoting.Connection(cluster.broker(0)) as other:
        for tag in ("A", "B"):
            check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0, f"TAGS\x01{tag}"), tag.encode()).code == 0, "send")
        check(runtime(client)["subscriptionConflicts"] == "0", "conflicts already")
        heart_beat(client, "c@old", consumer("g", subscription(text="A", version=100)))
        heart_beat(other, "c@new", consumer("g", subscription(text="B", version=200)))
        for _ in range(3):
            heart_beat(client, "c@old", consumer("g", subscription(text="A", version=100)))
            check(pulled(client, "g", 100) == [b"B"] and pulled(other, "g", 200) == [b"B"], "the newest word counts")
            heart_beat(other, "c@new", consumer("g", subscription(text="B", version=200)))
            check(pulled(client, "g", 100) == [b"B"] and pulled(other, "g", 200) == [b"B"], "the newest word counts")
        check(int(runtime(client)["subscriptionConflicts"]) == 4, runtime(client)["subscriptionConflicts"])
        lines = sorted({line for line in cluster.output(0).splitlines() if "must subscribe alike" in line})  # it stands in two files
        check(len(lines) == 1 and all(word in lines[0] for word in ("group g,", "topic T", "c@old", "c@new")), f"the log says {lines}")
