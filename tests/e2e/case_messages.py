"""Messages of every kind: what is stored and pulled is what was sent, byte for byte, with the flags and properties that RocketMQ would store."""
import json
import random
import time
import zlib

import remoting
from cluster import Cluster, check, wait_for
from e2e import case

SEND, SEND_BATCH, VIEW, HEART_BEAT, QUERY_CONSUME_QUEUE, END = 10, 320, 33, 34, 321, 37
COMPRESSED, MULTI_TAGS = 1, 2
LZ4_FRAME, ZSTD_FRAME = b"\x04\x22\x4d\x18" + bytes(60), b"\x28\xb5\x2f\xfd" + bytes(60)


def put(connection, topic, body=b"x", properties="", queue=0, code=remoting.SEND_V2, **fields):
    answer = connection.request(code, {**remoting.send_fields(topic, queue, properties), **fields}, body)
    check(answer.code == 0, f"send: {answer}")
    return answer


def java_hash(text):
    value = 0
    units = text.encode("utf-16-be")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def make_topic(connection, name, queues=1, filter_type="SINGLE_TAG"):
    answer = connection.request(remoting.CREATE_TOPIC, {**remoting.topic_fields(name, queues), "topicFilterType": filter_type})
    check(answer.code == 0, f"topic: {answer}")


@case
def flags_and_compressed_bodies_come_back_as_they_were():
    """Every combination of compression and other sysFlag bits, flags of all sizes, bodies compressed with zlib, lz4 and zstd, by single messages, batches, over
    a delay, a retry and a transaction."""
    chance = random.Random(5)
    text = b"compress me " * 500
    bodies = {0x0: text, COMPRESSED: zlib.compress(text), COMPRESSED | 0x300: zlib.compress(text, 9), COMPRESSED | 0x100: LZ4_FRAME,
              COMPRESSED | 0x200: ZSTD_FRAME, 0x700: b"bits without the flag"}
    flags = (0, 1, -1, 7, 2**31 - 1, -2**31)
    with Cluster(settings=["messageDelayLevel=1s"]) as cluster:
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader), 10.0) as connection:
            make_topic(connection, "SINGLE")
            make_topic(connection, "MULTI", filter_type="MULTI_TAG")
            for topic, added in (("SINGLE", 0), ("MULTI", MULTI_TAGS)):
                sent = []
                for sys_flag, body in bodies.items():
                    for more in (0x0, 0x2, 0x40, 0x80, 0x8, 0x10, 0x20, 0x30, 0x4, 0xC):
                        flag = chance.choice(flags)
                        answer = connection.request(remoting.SEND_V2, {**remoting.send_fields(topic, 0), "f": sys_flag | more, "h": flag}, body)
                        check(answer.code == (13 if more & 4 else 0), f"sysFlag {sys_flag | more:#x}: {answer}")
                        if not more & 4:  # the addresses of a record say of which kind they are, whatever the client claims
                            sent.append(((sys_flag | more | added) & ~0x30, flag, body))
                for sys_flag in (0x0, COMPRESSED, COMPRESSED | 0x200):
                    members = [(bodies[sys_flag], "", flag) for flag in flags]
                    answer = connection.request(SEND_BATCH, {**remoting.send_fields(topic, 0), "m": True, "f": sys_flag}, remoting.batch_body(members))
                    check(answer.code == 0, f"batch: {answer}")
                    sent += [(sys_flag | added, flag, body) for body, _, flag in members]
                found = [(record.sys_flag, record.flag, record.body) for record in remoting.read_queue(connection, topic, 0)]
                for mine, theirs in zip(sent, found):
                    check(mine == theirs, f"{topic}: sent with sysFlag {mine[0]:#x}, flag {mine[1]}; found {theirs[0]:#x}, {theirs[1]}, {theirs[2][:20]!r}")
                check(len(sent) == len(found), f"{len(found)} of {len(sent)}")
            # Through the schedule topic, a retry and a transaction the body stays compressed, and says so.
            make_topic(connection, "AGAIN")
            answer = put(connection, "AGAIN", bodies[COMPRESSED], f=COMPRESSED, h=-7)
            back = {"offset": int(answer.ext["msgId"][-16:], 16), "group": "g", "delayLevel": 1, "originTopic": "AGAIN", "originMsgId": "x"}
            check(connection.request(36, back).code == 0, "36")
            put(connection, "AGAIN", LZ4_FRAME, "DELAY\x011", f=COMPRESSED | 0x100, h=-8)
            half = put(connection, "AGAIN", ZSTD_FRAME, "TRAN_MSG\x01true\x02PGROUP\x01p", f=COMPRESSED | 0x200 | 4, h=-9)
            end = {"producerGroup": "p", "tranStateTableOffset": half.ext["queueOffset"], "commitLogOffset": int(half.ext["msgId"][-16:], 16),
                   "commitOrRollback": 8, "fromTransactionCheck": False, "msgId": "x", "transactionId": "x"}
            check(connection.request(END, end).code == 0, "37")
            wait_for("the delayed one", 5, lambda: len(remoting.read_queue(connection, "AGAIN", 0)) == 3)
            found = {(record.sys_flag, record.flag, record.body) for record in remoting.read_queue(connection, "AGAIN", 0)}
            check(found == {(COMPRESSED, -7, bodies[COMPRESSED]), (COMPRESSED | 0x100, -8, LZ4_FRAME), (COMPRESSED | 0x208, -9, ZSTD_FRAME)}, f"{found}")
            wait_for("the retry", 5, lambda: len(remoting.read_queue(connection, "%RETRY%g", 0)) == 1)
            retried = remoting.read_queue(connection, "%RETRY%g", 0)[0]
            check((retried.sys_flag, retried.flag, retried.body, retried.reconsume_times) == (COMPRESSED, -7, bodies[COMPRESSED], 1), "the retry")
            # The same record from a follower and by its place.
            with remoting.Connection(cluster.broker((leader + 1) % 3)) as other:
                view = wait_for("the follower", 5, lambda: (lambda answer: answer if answer.code == 0 else None)(other.request(VIEW, {"offset": retried.position})))
                check(next(remoting.records(view[0].body)).body == bodies[COMPRESSED], "by its place at a follower")


@case
def what_decides_that_it_is_a_batch():
    """The header's flag decides, not the code; "1" is true; inner batches of 5.x are one message."""
    with Cluster(nodes=1) as cluster, remoting.Connection(cluster.broker(0)) as connection:
        make_topic(connection, "T")
        members = remoting.batch_body([(b"A", "UNIQ_KEY\x01K1", 0), (b"BC", "", 9)])
        expected = 0
        for code, key, value, batch in ((SEND_BATCH, "m", True, True), (SEND_BATCH, "m", "1", True), (remoting.SEND_V2, "m", True, True),
                                        (remoting.SEND_V2, "m", "1", True), (remoting.SEND_V2, "m", "TRUE", True), (SEND, "batch", "1", True),
                                        (SEND, "batch", True, True), (remoting.SEND_V2, "m", "0", False), (remoting.SEND_V2, "m", False, False),
                                        (remoting.SEND_V2, "m", None, False), (SEND_BATCH, "m", False, False)):
            fields = remoting.send_fields("T", 0)
            if code == SEND:
                fields = {"producerGroup": "p", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 0,
                          "bornTimestamp": 1, "flag": 0, "properties": "", "reconsumeTimes": 0, "unitMode": False}
            answer = connection.request(code, {**fields, key: value}, members)
            check(answer.code == 0 and answer.ext["queueOffset"] == str(expected), f"{code} {key}={value}: {answer}")
            check(answer.ext["msgId"].count(",") == batch and len(answer.ext["msgId"]) == (65 if batch else 32), f"{answer}")
            found = remoting.read_queue(connection, "T", 0, expected)
            check([(record.body, record.flag) for record in found] == ([(b"A", 0), (b"BC", 9)] if batch else [(members, 0)]), f"{code} {key}={value}: {found}")
            if batch:
                check(found[0].properties == "UNIQ_KEY\x01K1" and found[1].properties == "", "on DLedger members keep their own properties alone")
                check([record.prepared for record in found] == [0, 0], "members are no transactions")
            expected += len(found)
        # An inner batch: the client packed them and says so; nobody here looks inside.
        put(connection, "T", members, "INNER_NUM\x012", f=0x80 | 0x40)
        record = remoting.read_queue(connection, "T", 0, expected)[0]
        check((record.body, record.sys_flag) == (members, 0xC0), "an inner batch")
        # 1,000 empty members, and the largest batch.
        answer = connection.request(SEND_BATCH, {**remoting.send_fields("T", 0), "m": True}, remoting.batch_body([(b"", "")] * 1000))
        check(answer.code == 0 and answer.ext["msgId"].count(",") == 999, f"{answer.code}")
        size = (4 << 20) // 4 - 22
        answer = connection.request(SEND_BATCH, {**remoting.send_fields("T", 0), "m": True}, remoting.batch_body([(b"x" * size, "")] * 4))
        check(answer.code == 0, f"4 MiB of batch: {answer}")
        answer = connection.request(SEND_BATCH, {**remoting.send_fields("T", 0), "m": True}, remoting.batch_body([(b"x" * size, "")] * 3 + [(b"x" * (size + 1), "")]))
        check(answer.code == 13, f"over 4 MiB of batch: {answer}")


@case
def fields_of_a_stored_message():
    """Each field of the record: born and stored where and when, region and trace, WAIT gone, property text as RocketMQ keeps it."""
    with Cluster(settings=["regionId=south", "traceOn=false"]) as cluster:
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader)) as connection, remoting.Connection(cluster.broker((leader + 1) % 3)) as follower:
            make_topic(connection, "T", 2)
            for client in (connection, follower):
                before = int(time.time() * 1000)
                place = len(remoting.read_queue(connection, "T", 1))
                answer = put(client, "T", "中文".encode(), "KEYS\x01k1 k2\x02WAIT\x01true\x02TAGS\x01标签\x02UNIQ_KEY\x01U1\x02MSG_REGION\x01x\x02a\x01b\x01c\x02", queue=1, g=-5, h=77,
                             j=3)
                check(answer.ext["MSG_REGION"] == "south" and answer.ext["TRACE_ON"] == "false", f"{answer}")
                record = remoting.read_queue(connection, "T", 1)[place]
                properties = remoting.parse_properties(record.properties)
                check(properties == {"KEYS": "k1 k2", "TAGS": "标签", "UNIQ_KEY": "U1", "a": "b\x01c", "CLUSTER": "DefaultCluster", "MSG_REGION": "south",
                                     "TRACE_ON": "false"}, f"{properties}")
                check(not record.properties.endswith("\x02"), "a separator at the end")
                check((record.body, record.topic, record.queue, record.flag, record.born_ms, record.reconsume_times, record.offset) ==
                      ("中文".encode(), "T", 1, 77, -5, 3, place), "fields")
                check(before <= record.store_ms <= int(time.time() * 1000) and record.prepared == 0, "store time")
                # Where it was born is the client's address, also by way of a follower.
                view = connection.request(VIEW, {"offset": record.position})
                host, port = view.body[56 - 8 + 0:56][:4], int.from_bytes(view.body[52:56], "big")
                check(host == b"\x7f\x00\x00\x01" and port == client.socket.getsockname()[1], f"born at {host}:{port}")
                store_host, store_port = view.body[64:68], int.from_bytes(view.body[68:72], "big")
                check(store_host == b"\x7f\x00\x00\x01" and cluster.broker(leader).endswith(f":{store_port}"), f"stored at {store_host}:{store_port}")
                check(answer.ext["msgId"] == f"7F000001{store_port:08X}{record.position:016X}", f"{answer.ext['msgId']}")


@case
def filters_of_many_tags():
    """Expressions of several tags by request and by heart-beat, of both filter types of a topic; queue units hold Java's hash of the tag."""
    tags = ["A", "B", "C", "Aa", "BB", "标签", "polygenelubricants", "A || B", None]
    with Cluster(nodes=1) as cluster, remoting.Connection(cluster.broker(0)) as connection:
        for topic, filter_type in (("SINGLE", "SINGLE_TAG"), ("MULTI", "MULTI_TAG")):
            make_topic(connection, topic, filter_type=filter_type)
            for tag in tags:
                put(connection, topic, str(tag).encode(), "" if tag is None else f"TAGS\x01{tag}")
            units = json.loads(connection.request(QUERY_CONSUME_QUEUE, {"topic": topic, "queueId": 0, "index": 0, "count": 20}).body)["queueData"]
            check([unit["tagsCode"] for unit in units] == [0 if tag is None else java_hash(tag) for tag in tags], f"{units}")
            every = [str(tag).encode() for tag in tags]
            for number, (expression, expected) in enumerate((("*", every), ("", every), ("A", [b"A"]), ("A||B", [b"A", b"B"]), (" A || C ", [b"A", b"C"]),
                                                             ("||A||", [b"A"]), ("A || || B", [b"A", b"B"]), ("Aa", [b"Aa", b"BB"]), ("标签 || C", [b"C", "标签".encode()]),
                                                             ("polygenelubricants", [b"polygenelubricants"]), ("none", []), (" ", []), ("A,B", []))):
                answer = connection.request(remoting.PULL, {**remoting.pull_fields(topic, 0, 0), "subscription": expression})
                found = [record.body for record in remoting.records(answer.body)] if answer.code == 0 else []
                check(found == expected and answer.code in (0, 20) and answer.ext["nextBeginOffset"] == str(len(tags)), f"{expression!r}: {found}, {answer}")
                if not expression.strip():
                    continue
                # The same by heart-beat, as Java fills it and as C++ does: with sets or without.
                names = [] if expression == "*" else [part.strip() for part in expression.split("||") if part.strip()]
                for bare in (False, True):
                    group = f"g{number}{bare}{topic}"
                    subscription = {"topic": topic, "subString": expression, "subVersion": 1}
                    if not bare:
                        subscription.update(expressionType="TAG", classFilterMode=False, tagsSet=names, codeSet=[java_hash(name) for name in names])
                    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False, "subscriptionDataSet": [subscription]}
                    body = json.dumps({"clientID": f"c@{group}", "producerDataSet": [], "consumerDataSet": [consumer]}).encode()
                    check(connection.request(HEART_BEAT, None, body).code == 0, "34")
                    answer = connection.request(remoting.PULL, {**remoting.pull_fields(topic, 0, 0, group=group), "sysFlag": 0, "subscription": None})
                    found = [record.body for record in remoting.records(answer.body)] if answer.code == 0 else []
                    check(found == expected, f"{expression!r} by heart-beat: {found}")
            # A pull that waits is woken by one of its tags, by no other.
            opaque = connection.send(remoting.PULL, {**remoting.pull_fields(topic, 0, len(tags), hold_ms=15000), "subscription": "X || Y"})
            with remoting.Connection(cluster.broker(0)) as producer:
                put(producer, topic, b"z", "TAGS\x01Z")
                put(producer, topic, b"no tag")
                check(connection.request(remoting.MAX_OFFSET, {"topic": topic, "queueId": 0}).code == 0 and opaque not in connection.answers,
                      "woken by another tag")
                put(producer, topic, b"y", "TAGS\x01Y")
            check([record.body for record in remoting.records(connection.answer(opaque).body)] == [b"y"], "woken")
