"""Cases of the field, area put (tests/cases.md): properties that are odd, batches in a Raft group, limits, and who may send where."""
import collections
import random
import threading
import time

import remoting
from cluster import Cluster, check, wait_for
from e2e import case, rounds
from failover import alone

DELETE_TOPIC, UPDATE_GROUP, UPDATE_CONFIG, SEND_BACK, SEND_BATCH, HEART_BEAT, VIEW = 215, 200, 25, 36, 320, 34, 33
NO_SEND = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC",
           "OFFSET_MOVED_EVENT")
BODY_MAX, PROPERTIES_MAX, TOPIC_MAX = 4 << 20, 32767, 127


def send(connection, topic, queue=0, body=b"x", properties="", **fields):
    return connection.request(remoting.SEND_V2, {**remoting.send_fields(topic, queue, properties), **fields}, body)


def put(connection, *arguments, **named):
    answer = send(connection, *arguments, **named)
    check(answer.code == 0, f"send: {answer}")
    return answer


def batch_fields(topic, queue, properties=""):
    return {**remoting.send_fields(topic, queue, properties), "m": True}


def pulled(connection, topic, subscription, queue=0):
    answer = connection.request(remoting.PULL, {**remoting.pull_fields(topic, queue, 0), "subscription": subscription})
    return [record.body for record in remoting.records(answer.body)] if answer.code == 0 else []


@case
def p2_batch_members_end_with_a_tag():
    """P2: members whose property string has no separator at its end keep their tag, whatever the broker or the batch adds."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0)) as connection:
            members = [(b"%d" % i, f"KEYS\x01k{i}\x02TAGS\x01A" + end) for i, end in enumerate(("", "\x02", ""))]
            for number, properties in enumerate(("", "WAIT\x01true", "WAIT\x01true\x02")):
                answer = connection.request(SEND_BATCH, batch_fields("T", 0, properties), remoting.batch_body(members))
                check(answer.code == 0, f"{answer}")
                check(pulled(connection, "T", "A") == [b"0", b"1", b"2"] * (number + 1), f"the tag filter after {number + 1} batches")
            # A single message: CLUSTER, MSG_REGION and TRACE_ON are added behind the tag.
            put(connection, "T", 0, b"one", "KEYS\x01k\x02TAGS\x01A")
            check(pulled(connection, "T", "A")[-1:] == [b"one"], "a single message")
            for record in remoting.read_queue(connection, "T", 0):
                check(remoting.parse_properties(record.properties)["TAGS"] == "A", record.properties)


@case
def p3_delay_levels_that_are_no_numbers():
    """P3: with and without the last separator, and a level that reads as no number: stored as if it had none."""
    with Cluster(nodes=1, settings=["messageDelayLevel=1h 2h"]) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0)) as connection:
            stored = 0
            for properties in ("DELAY\x013abc", "DELAY\x01 3", "DELAY\x013TAGS\x01A", "DELAY\x01", "DELAY\x01\x02TAGS\x01A", "DELAY\x01-1", "DELAY\x010",
                               "DELAY\x0199999999999", "DELAY\x011.0", "DELAY", "\x01", "\x02", "\x02\x02\x01\x02", "TAGS\x01A\x02DELAY\x01x\x02"):
                put(connection, "T", 0, properties.encode(), properties)
                stored += 1
                check(remoting.max_offset(connection, "T") == stored, f"{properties!r} was delayed")
            for number, properties in enumerate(("DELAY\x011", "DELAY\x011\x02", "TAGS\x01A\x02DELAY\x011\x02KEYS\x01k", "DELAY\x01x\x02DELAY\x011")):
                put(connection, "T", 0, b"late", properties)
                check(remoting.max_offset(connection, "SCHEDULE_TOPIC_XXXX", 0) == number + 1, f"{properties!r} was not delayed")
            put(connection, "T", 0, b"late", "DELAY\x0199\x02")  # beyond the last level: the last
            check(remoting.max_offset(connection, "SCHEDULE_TOPIC_XXXX", 1) == 1 and remoting.max_offset(connection, "T") == stored, "a level beyond the last")
            for record in remoting.read_queue(connection, "T", 0):
                check(remoting.parse_properties(record.properties)["CLUSTER"] == "DefaultCluster", record.properties)


@case
def p4_separators_inside_of_values():
    """P4: user text with 0x01 and 0x02 in it cannot forge or hide what the broker itself adds, at once, delayed or in a half message."""
    forged = "a\x01b\x01c\x02\x02x\x01\x02TAGS\x01A\x02UNIQ_KEY\x01U\x02CLUSTER\x01evil\x02MSG_REGION\x01evil\x02TRACE_ON\x01evil\x02REAL_TOPIC\x01SYS\x02REAL_QID\x0177\x02y"
    with Cluster(nodes=1, settings=["messageDelayLevel=1s"]) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0)) as connection:
            put(connection, "T", 0, b"now", forged)
            put(connection, "T", 0, b"late", "DELAY\x011\x02" + forged)
            half = put(connection, "T", 0, b"half", "TRAN_MSG\x01true\x02PGROUP\x01p\x02" + forged, f=4)
            answer = connection.request(37, {"producerGroup": "p", "tranStateTableOffset": half.ext["queueOffset"],
                                             "commitLogOffset": int(half.ext["msgId"][-16:], 16), "commitOrRollback": 8, "fromTransactionCheck": False,
                                             "msgId": "U", "transactionId": "U"})
            check(answer.code == 0, f"commit: {answer}")
            wait_for("the delayed one", 5, lambda: remoting.max_offset(connection, "T") == 3)
            found = {record.body: remoting.parse_properties(record.properties) for record in remoting.read_queue(connection, "T", 0)}
            check(set(found) == {b"now", b"late", b"half"}, f"{set(found)}")
            for body, properties in found.items():
                check(properties["CLUSTER"] == "DefaultCluster" and properties["MSG_REGION"] == "DefaultRegion" and properties["TRACE_ON"] == "true",
                      f"{body}: {properties}")
                check(properties["TAGS"] == "A" and properties["UNIQ_KEY"] == "U" and properties["a"] == "b\x01c", f"{body}: {properties}")
                check(body == b"now" or (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "0"), f"{body}: {properties}")
            check(sorted(pulled(connection, "T", "A")) == [b"half", b"late", b"now"], "the tag")


@case
def p5_plain_sends_to_a_retry_topic():
    """P5: the limit of tries is the request's, or the group's when the request names none."""
    with Cluster(nodes=1, settings=["messageDelayLevel=1h"]) as cluster:
        address = cluster.broker(0)
        with remoting.Connection(address) as connection, remoting.Connection(address, version=120) as old:
            check(connection.request(UPDATE_GROUP, None, b'{"groupName":"g","retryMaxTimes":5}').code == 0, "200")
            dead = 0
            for client, fields, dies in ((connection, {"j": 0}, False), (connection, {"j": None}, False), (connection, {"j": 4}, False),
                                         (connection, {"j": 5}, True), (connection, {"j": 2, "l": 2}, True), (connection, {"j": 7, "l": 8}, False),
                                         (connection, {"j": 0, "l": 0}, True), (old, {"j": 2, "l": 2}, False), (old, {"j": 5, "l": 99}, True)):
                before = remoting.max_offset(connection, "%RETRY%g")
                put(client, "%RETRY%g", 0, b"again", "DELAY\x011" if dies else "", **fields)
                dead += dies
                check(remoting.max_offset(connection, "%RETRY%g") == before + (not dies) and remoting.max_offset(connection, "%DLQ%g") == dead, f"{fields}")
            check(remoting.max_offset(connection, "SCHEDULE_TOPIC_XXXX") == 0, "a dead letter is delayed")
            put(connection, "%RETRY%fresh", 0, j=1)
            answer = send(connection, "%RETRY%g", 0, m=True)
            check(answer.code == 13 and "retry group" in answer.remark, f"{answer}")
            check(connection.request(UPDATE_CONFIG, None, b"autoCreateSubscriptionGroup=false\n").code == 0, "25")
            for fields in ({}, {"l": 3}):
                answer = send(connection, "%RETRY%nobody", 0, **fields)
                check(answer.code == 26 and answer.remark.startswith("subscription group not exist, nobody"), f"{answer}")
            put(connection, "%RETRY%g", 0)


@case
def p6_system_topics_are_left_alone():
    """P6: no sends into the broker's own topics, none of them created over or deleted; what lies in them comes out."""
    with Cluster(settings=["messageDelayLevel=1s"]) as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader)) as connection, remoting.Connection(cluster.broker((leader + 1) % 3)) as follower:
            put(connection, "T", 0, b"late", "DELAY\x011")
            half = put(connection, "T", 0, b"half", "TRAN_MSG\x01true\x02PGROUP\x01p", f=4)
            for client in (connection, follower):
                for topic in NO_SEND:
                    for fields in ({}, {"m": True}):
                        answer = send(client, topic, 0, **fields)
                        check(answer.code == 16 and answer.remark == f"Sending message to topic[{topic}] is forbidden.", f"{answer}")
                for topic in (*NO_SEND, "TBW102", "DefaultCluster", "broker-a", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_any"):
                    for code, fields in ((remoting.CREATE_TOPIC, remoting.topic_fields(topic)), (DELETE_TOPIC, {"topic": topic})):
                        answer = client.request(code, fields)
                        check(answer.code == 1 and answer.remark == f"The topic[{topic}] is conflict with system topic.", f"{code}: {answer}")
            answer = connection.request(37, {"producerGroup": "p", "tranStateTableOffset": half.ext["queueOffset"],
                                             "commitLogOffset": int(half.ext["msgId"][-16:], 16), "commitOrRollback": 8, "fromTransactionCheck": False,
                                             "msgId": "U", "transactionId": "U"})
            check(answer.code == 0, f"commit: {answer}")
            wait_for("both", 5, lambda: remoting.max_offset(connection, "T") == 2)
            check(sorted(record.body for record in remoting.read_queue(connection, "T", 0)) == [b"half", b"late"], "both are delivered")


@case
def p8_batches_of_many_connections():
    """P8, P13: 16 connections send batches of 32 into one queue of a Raft group: offsets unique and without a gap, all is consumable."""
    each = rounds(5, 12, 200)
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        address, places, errors = cluster.broker(cluster.leader()), {}, []

        def produce(index):
            try:
                with remoting.Connection(address, 20.0) as connection:
                    opaques = [connection.send(SEND_BATCH, batch_fields("T", 0), remoting.batch_body([(b"%d-%d-%d" % (index, turn, i), "") for i in range(32)]))
                               for turn in range(each)]
                    for turn, opaque in enumerate(opaques):
                        answer = connection.answer(opaque)
                        check(answer.code == 0 and answer.ext["msgId"].count(",") == 31, f"{answer}")
                        places[index, turn] = int(answer.ext["queueOffset"])
            except Exception as error:  # pylint: disable=broad-except
                errors.append(error)
        threads = [threading.Thread(target=produce, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(not errors, lambda: f"{errors[0]!r}")
        with remoting.Connection(address) as connection:
            found = remoting.read_queue(connection, "T", 0)
        check([record.offset for record in found] == list(range(16 * each * 32)), "offsets are not those of a queue")
        for (index, turn), place in places.items():
            check([record.body for record in found[place:place + 32]] == [b"%d-%d-%d" % (index, turn, i) for i in range(32)],
                  f"batch {turn} of connection {index} is not at {place}")


@case
def p9_each_batch_member_has_its_own_key():
    """P9: ten members, ten unique keys, each of them found by a query, and each id of the answer is that of its member."""
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0)) as connection:
            members = [(b"%d" % i, f"UNIQ_KEY\x01UNIQ{i}\x02KEYS\x01k{i} all", i) for i in range(10)]
            answer = connection.request(SEND_BATCH, batch_fields("T", 0, "UNIQ_KEY\x01BATCH"), remoting.batch_body(members))
            check(answer.code == 0, f"{answer}")
            found = remoting.read_queue(connection, "T", 0)
            check([remoting.parse_properties(record.properties)["UNIQ_KEY"] for record in found] == [f"UNIQ{i}" for i in range(10)], "keys")
            check([(record.body, record.flag) for record in found] == [(b"%d" % i, i) for i in range(10)], "bodies and flags")

            def query(key, unique):
                fields = {"topic": "T", "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 62, "_UNIQUE_KEY_QUERY": unique}
                answer = connection.request(remoting.QUERY, fields)
                return sorted(record.body for record in remoting.records(answer.body)) if answer.code == 0 else answer.code
            for i, message_id in enumerate(answer.ext["msgId"].split(",")):
                check(query(f"UNIQ{i}", True) == [b"%d" % i] and query(f"k{i}", False) == [b"%d" % i], f"query of member {i}")
                view = connection.request(VIEW, {"offset": int(message_id[-16:], 16)})
                check(view.code == 0 and next(remoting.records(view.body)).body == b"%d" % i, f"id of member {i}: {view}")
            check(query("all", False) == [b"%d" % i for i in range(10)], "a key that all have")
            check(query("BATCH", True) == 22, "the key of the batch is nobody's")


@case
def p10_a_send_does_not_wait_for_other_topics():
    """P10: heavy traffic on one topic, single sends to another: each is answered, and soon."""
    with Cluster(durability="B") as cluster:
        cluster.create_topic("A", 4)
        cluster.create_topic("B", 1)
        address, stop, errors = cluster.broker(cluster.leader()), threading.Event(), []

        def flood():
            try:
                with remoting.Connection(address, 30.0) as connection:
                    while not stop.is_set():
                        for opaque in [connection.send(remoting.SEND_V2, remoting.send_fields("A", i % 4), b"x" * 1000) for i in range(200)]:
                            check(connection.answer(opaque).code == 0, "flood")
            except Exception as error:  # pylint: disable=broad-except
                errors.append(error)
        threads = [threading.Thread(target=flood) for _ in range(2)]
        for thread in threads:
            thread.start()
        worst = 0
        try:
            with remoting.Connection(address, 5.0) as connection:
                for number in range(rounds(30, 60, 500)):
                    begin = time.monotonic()
                    answer = put(connection, "B", 0, b"%d" % number)
                    worst = max(worst, time.monotonic() - begin)
                    check(answer.ext["queueOffset"] == str(number), f"{answer}")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        check(not errors, lambda: f"{errors[0]!r}")
        return f"worst {worst * 1000:.0f} ms"


@case
def p11_busy_is_a_code_that_clients_retry():
    """P11: the quorum does not answer, and too much waits for it: 14 with the cause, never 2; afterwards sends go on."""
    with Cluster(settings=["maxWaitMs=400", "electionTimeoutMs=3000", "heartbeatMs=100"]) as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        codes = collections.Counter()
        with remoting.Connection(cluster.broker(leader), 30.0) as connection:
            with alone(cluster, leader):
                answer = send(connection, "T", 0, b"nobody answers")
                check(answer.code == 14 and "outcome unknown" in answer.remark, f"{answer}")
                check(answer.ext["MSG_REGION"] == "DefaultRegion" and answer.ext["TRACE_ON"] == "true", answer.ext)
                opaques = [connection.send(remoting.SEND_V2, remoting.send_fields("T", 0), b"x" * 200000) for _ in range(rounds(100, 200, 2000))]
                for opaque in opaques:
                    answer = connection.answer(opaque)
                    codes[answer.code] += 1
                    check(answer.code == 14 and answer.remark, f"{answer}")
        wait_for("sends to go on", 30, lambda: cluster.send("T", 0, b"again").code == 0)
        return f"{dict(codes)}"


@case
def p12_one_bad_message_fails_alone():
    """P12: each kind of message that is refused, a hundred good ones behind it in the same segment of bytes."""
    bad = [("a topic of 255", {"b": "T" * 255}, b"x"), ("no topic", {"b": ""}, b"x"), ("strange letters", {"b": "T\x00\x01"}, b"x"),
           ("properties too long", {"i": "k\x01" + "v" * 40000}, b"x"), ("multi-byte properties too long", {"i": "k\x01" + "中" * 11000}, b"x"),
           ("a body too long", {}, b"x" * (BODY_MAX + 1)), ("a queue that is not there", {"e": 4096}, b"x"), ("a queue number", {"e": 2**31 - 1}, b"x"),
           ("no batch", {"m": True}, b"x"), ("a batch that lies", {"m": True}, remoting.batch_body([(b"1", "")]) + b"\0\0\0\x7f"),
           ("a batch with a long member", {"m": True}, (1 << 30).to_bytes(4, "big") + bytes(30)), ("an empty batch", {"m": True}, b""),
           ("a delayed batch", {"m": True, "i": "DELAY\x011"}, remoting.batch_body([(b"1", "")])),
           ("a batch in a transaction", {"m": True, "f": 4}, remoting.batch_body([(b"1", "")])), ("half, and yet not", {"f": 4}, b"x"),
           ("a field that is no number", {"g": "soon"}, b"x"), ("a missing field", {"h": None}, b"x")]
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            good = remoting.send_fields("T", 0)
            expected = 0
            for name, fields, body in bad:
                frames = [remoting.request_frame(remoting.SEND_V2, {**good, **fields}, body, opaque=1)]
                frames += [remoting.request_frame(remoting.SEND_V2, good, b"good", opaque=2 + i) for i in range(100)]
                connection.send_raw(b"".join(frames))
                answer = connection.answer(1)
                check(answer.code in (1, 13) and answer.remark, f"{name}: {answer}")
                offsets = [int(connection.answer(2 + i).ext["queueOffset"]) for i in range(100)]
                check(offsets == list(range(expected, expected + 100)), f"behind {name}: {offsets}")
                expected += 100
            check(len(remoting.read_queue(connection, "T", 0)) == expected, "consumable")


@case
def p13_batches_over_a_killed_leader():
    """P13: acknowledged batches are whole and where they were said to be; what a dying leader left of others never shares an offset."""
    size = 16
    with Cluster() as cluster:
        cluster.create_topic("T", 2)
        acknowledged, stop, errors = {}, threading.Event(), []

        def produce():
            number, connection = 0, None
            while not stop.is_set():
                try:
                    if connection is None:
                        address = remoting.leader_address(cluster.namesrv_addr)
                        if address is None:
                            continue
                        connection = remoting.Connection(address, 3.0)
                    opaques = []
                    for _ in range(8):
                        body = remoting.batch_body([(b"%d-%d" % (number, i), "") for i in range(size)])
                        opaques.append((connection.send(SEND_BATCH, batch_fields("T", number % 2), body), number))
                        number += 1
                    for opaque, which in opaques:
                        answer = connection.answer(opaque)
                        if answer.code == 0:
                            acknowledged[which] = int(answer.ext["queueOffset"])
                        elif answer.code != 14:
                            errors.append(answer)
                except OSError:
                    if connection is not None:
                        connection.close()
                    connection = None
            if connection is not None:
                connection.close()
        thread = threading.Thread(target=produce)
        thread.start()
        try:
            for _ in range(rounds(1, 2, 20)):
                before = len(acknowledged)
                wait_for("batches", 20, lambda before=before: len(acknowledged) > before + 30)
                leader = cluster.leader()
                cluster.kill(leader)
                cluster.leader(but=leader)
                cluster.restart(leader)
            before = len(acknowledged)
            wait_for("batches", 20, lambda: len(acknowledged) > before + 30)
        finally:
            stop.set()
            thread.join()
        check(not errors, lambda: f"refused with {errors[0]}")
        queues = {}
        with remoting.Connection(cluster.broker(cluster.leader()), 10.0) as connection:
            for queue in (0, 1):
                queues[queue] = remoting.read_queue(connection, "T", queue)
                check([record.offset for record in queues[queue]] == list(range(len(queues[queue]))), f"queue {queue} is no row of offsets")
        bodies = [record.body for found in queues.values() for record in found]
        check(len(bodies) == len(set(bodies)), "a member is there twice")
        for number, place in acknowledged.items():
            found = [record.body for record in queues[number % 2][place:place + size]]
            check(found == [b"%d-%d" % (number, i) for i in range(size)], f"batch {number} at {place}: {found}")
        return f"{len(acknowledged)} batches acknowledged"


@case
def p14_limits_of_names_are_the_same_everywhere():
    """P14: a topic or group that can be made works to the end; one that could not is refused when it is made."""
    with Cluster(nodes=1, settings=["messageDelayLevel=1h"]) as cluster:
        with remoting.Connection(cluster.broker(0)) as connection:
            for size in (1, 127, 128, 255, 256):
                name = "T" * size
                for what, answer in (("created", connection.request(remoting.CREATE_TOPIC, remoting.topic_fields(name))), ("sent to", send(connection, name)),
                                     ("sent to as a batch", send(connection, name, 0, remoting.batch_body([(b"1", "")]), m=True))):
                    if size <= TOPIC_MAX:
                        check(answer.code == 0, f"a topic of {size} is not {what}: {answer}")
                    else:
                        check(answer.code == 1 and answer.remark == "The specified topic is longer than topic max length.", f"{what}: {answer}")
            message = put(connection, "T" * TOPIC_MAX)
            position = int(message.ext["msgId"][-16:], 16)
            for size in (1, 120, 121, 255, 256):
                group = "g" * size
                fields = {"offset": position, "group": group, "delayLevel": -1, "originTopic": "T", "originMsgId": "x", "maxReconsumeTimes": 16}
                created = connection.request(UPDATE_GROUP, None, b'{"groupName":"%s"}' % group.encode())
                if size > TOPIC_MAX - len("%RETRY%"):
                    check(created.code == 1 and "longer" in created.remark, f"a group of {size}: {created}")
                    answer = connection.request(SEND_BACK, fields)
                    check(answer.code in (1, 26) and answer.remark, f"a send-back of a group of {size}: {answer}")
                    answer = connection.request(remoting.PULL, remoting.pull_fields("T" * TOPIC_MAX, 0, 0, group=group))
                    check(answer.code == 26, f"a pull of a group of {size}: {answer}")
                    continue
                check(created.code == 0, f"a group of {size}: {created}")
                check(connection.request(SEND_BACK, {**fields, "delayLevel": 0}).code == 0, f"a retry of a group of {size}")
                check(connection.request(SEND_BACK, fields).code == 0, f"a dead letter of a group of {size}")
                check([record.body for record in remoting.read_queue(connection, f"%DLQ%{group}", 0)] == [b"x"], f"dead letters of a group of {size}")


@case
def p15_offsets_go_on_at_a_new_leader():
    """P15: thousands of messages per queue, the leader dies, the next send goes on where the old one stopped."""
    count, queues = 8000, 4
    with Cluster() as cluster:
        cluster.create_topic("T", queues)
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader), 20.0) as connection:
            for queue in range(queues):
                opaques = [connection.send(SEND_BATCH, batch_fields("T", queue), remoting.batch_body([(b"x", "")] * 500)) for _ in range(count // 500)]
                for opaque in opaques:
                    check(connection.answer(opaque).code == 0, "batch")
        cluster.kill(leader)

        def first():
            for node in range(3):
                try:
                    answer = remoting.ask(cluster.broker(node), remoting.SEND_V2, remoting.send_fields("T", 0), b"first")
                except OSError:
                    continue
                if answer.code == 0:
                    return answer
            return None
        answer, took = wait_for("a send to the new leader", 15, first)
        check(int(answer.ext["queueOffset"]) >= count, f"an offset of long ago: {answer}")
        with remoting.Connection(cluster.broker(cluster.leader())) as connection:
            for queue in range(1, queues):
                check(put(connection, "T", queue).ext["queueOffset"] == str(count), f"queue {queue}")
        return f"after {took * 1000:.0f} ms"


@case
def p16_messages_of_limit_size_survive_a_restart():
    """P16: whatever the broker adds to a message of limit size has room, and recovery takes every record again (there is no property checksum here;
    the checksums of the log's entries are what recovery looks at)."""
    with Cluster(nodes=1, durability="B") as cluster:
        topic = "T" * TOPIC_MAX
        cluster.create_topic(topic, 1)
        rest = "CLUSTER\x01DefaultCluster"
        sizes, bodies = [PROPERTIES_MAX, PROPERTIES_MAX - 1, PROPERTIES_MAX - len(rest) - 1, PROPERTIES_MAX - len(rest) - 2, 1000], []
        with remoting.Connection(cluster.broker(0), 20.0) as connection:
            for number, size in enumerate(sizes):
                properties = "k\x01" + "v" * (size - 2)
                for more in ({}, {"m": True}):
                    body = b"%d" % number + random.Random(number).randbytes(BODY_MAX - 40000 - 1)
                    sent = remoting.batch_body([(body, properties[:32000])]) if more else body + b"x" * (BODY_MAX - len(body))
                    answer = send(connection, topic, 0, sent, "" if more else properties, **more)
                    check(answer.code in (0, 13), f"properties of {size}: {answer}")
                    if answer.code == 0:
                        bodies.append(body if more else sent)
        check(len(bodies) >= 7, f"only {len(bodies)} were taken")
        for kill in (False, True):
            cluster.kill(0) if kill else cluster.stop()
            cluster.restart(0)
            cluster.leader(30)
            with remoting.Connection(cluster.broker(0), 20.0) as connection:
                check([record.body for record in remoting.read_queue(connection, topic, 0)] == bodies, "after a restart")
