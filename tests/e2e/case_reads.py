"""Pulls: every status with its code and offsets at the leader and at a follower, who is pointed where, and the limits of holding and of one answer."""
import json
import time

import remoting
from cluster import Cluster, check, wait_for
from e2e import case
from failover import alone

SEND_BATCH, UPDATE_GROUP, UPDATE_CONFIG, UPDATE_OFFSET, QUERY_OFFSET = 320, 200, 25, 15, 14
ANSWER_FIELDS = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"}


def send(connection, topic, body=b"x", properties="", queue=0):
    answer = connection.request(remoting.SEND_V2, remoting.send_fields(topic, queue, properties), body)
    check(answer.code == 0, f"send: {answer}")
    return answer


def fill(connection, topic, count, body=b"x", properties=""):
    answer = connection.request(SEND_BATCH, {**remoting.send_fields(topic, 0), "m": True}, remoting.batch_body([(body, properties)] * count))
    check(answer.code == 0, f"batch: {answer}")


def pull(connection, topic, offset, **changes):
    return connection.request(remoting.PULL, {**remoting.pull_fields(topic, 0, offset), **changes}, timeout=10)


def expect(answer, what, code, status, following, least, most):
    check(set(answer.ext) == ANSWER_FIELDS, f"{what}: clients unbox all four: {answer.ext}")
    found = (answer.code, answer.remark, *(int(answer.ext[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset")))
    check(found == (code, status, following, least, most), f"{what}: {(code, status, following, least, most)} was expected: {answer}")


def caught_up(cluster, node, topic, count):
    wait_for(f"node {node} to have {topic}", 10, lambda: remoting.ask(cluster.broker(node), remoting.PULL, remoting.pull_fields(topic, 0, count - 1)).code == 0)


@case
def every_status_of_a_pull():
    """Status, code and the offsets that go with it; a follower never corrects, and commits nothing of a pull that is held."""
    with Cluster() as cluster:
        leader = cluster.leader()
        follower = (leader + 1) % 3
        for topic in ("T", "EMPTY"):
            cluster.create_topic(topic, 1)
        with remoting.Connection(cluster.broker(leader)) as connection, remoting.Connection(cluster.broker(follower)) as other:
            fill(connection, "T", 20, properties="TAGS\x01A")
            caught_up(cluster, follower, "T", 20)
            for name, client, moved in (("leader", connection, 21), ("follower", other, 19)):
                expect(pull(client, "EMPTY", 0), name, 19, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)
                expect(pull(client, "EMPTY", 7), name, moved, "NO_MESSAGE_IN_QUEUE", 0 if moved == 21 else 7, 0, 0)
                expect(pull(client, "T", 0), name, 0, "FOUND", 20, 0, 20)
                expect(pull(client, "T", 15), name, 0, "FOUND", 20, 0, 20)
                expect(pull(client, "T", 3, maxMsgNums=2), name, 0, "FOUND", 5, 0, 20)
                expect(pull(client, "T", 3, maxMsgNums=0), name, 0, "FOUND", 4, 0, 20)
                expect(pull(client, "T", 3, maxMsgNums=-5), name, 0, "FOUND", 4, 0, 20)
                expect(pull(client, "T", 3, subscription="B"), name, 20, "NO_MATCHED_MESSAGE", 20, 0, 20)
                expect(pull(client, "T", 20), name, 19, "OFFSET_OVERFLOW_ONE", 20, 0, 20)
                expect(pull(client, "T", 25), name, moved, "OFFSET_OVERFLOW_BADLY", 20 if moved == 21 else 25, 0, 20)
                expect(pull(client, "T", -1), name, 21 if moved == 21 else 20, "OFFSET_TOO_SMALL", 0 if moved == 21 else -1, 0, 20)
            # Each correction of the leader is an event for those who watch; a follower's answers are none.
            events = wait_for("the events", 5, lambda: remoting.read_queue(connection, "OFFSET_MOVED_EVENT", 0) if len(
                remoting.read_queue(connection, "OFFSET_MOVED_EVENT", 0)) >= 3 else None)[0]
            check([(json.loads(event.body)["offsetRequest"], json.loads(event.body)["offsetNew"]) for event in events] == [(7, 0), (25, 20), (-1, 0)],
                  [event.body for event in events])
            check(json.loads(events[1].body) == {"consumerGroup": "e2e-consumer", "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
                                                 "offsetNew": 20, "offsetRequest": 25}, events[1].body)
            check(remoting.parse_properties(events[0].properties)["TAGS"] == "e2e-consumer", events[0].properties)

            # The offset that a pull brings counts whatever the pull finds, once, and may go back.
            def stored():
                answer = connection.request(QUERY_OFFSET, {"consumerGroup": "e2e-consumer", "topic": "T", "queueId": 0, "setZeroIfNotFound": False})
                return int(answer.ext["offset"]) if answer.code == 0 else None
            for offset, bit, committed, expected in ((0, 4, 5, None), (0, 5, 5, 5), (20, 5, 9, 9), (25, 5, 25, 25), (3, 5, 2, 2), (3, 4, 7, 2), (3, 5, -1, 2)):
                pull(connection, "T", offset, sysFlag=bit, commitOffset=committed)
                check(stored() == expected, f"after a pull with sysFlag {bit} and {committed}: {stored()}")
            opaque = connection.send(remoting.PULL, {**remoting.pull_fields("T", 0, 20, hold_ms=400), "sysFlag": 7, "commitOffset": 11})
            wait_for("the offset of a pull that waits", 2, lambda: remoting.ask(cluster.broker(leader), QUERY_OFFSET, {
                "consumerGroup": "e2e-consumer", "topic": "T", "queueId": 0}).ext.get("offset") == "11")
            check(remoting.ask(cluster.broker(leader), UPDATE_OFFSET, {"consumerGroup": "e2e-consumer", "topic": "T", "queueId": 0, "commitOffset": 12}).code == 0,
                  "15")
            check(connection.answer(opaque, 5).code == 19 and stored() == 12, f"a pull that ends commits again: {stored()}")


@case
def slow_readers_are_pointed_at_a_follower():
    """G8: slaveReadEnable off: 0 always. On: those who read far behind get the id that their group names if the route has it, else one that the route has;
    never the id of a node that is away; who is not behind is sent to the leader."""
    def suggested(cluster, node, topic, offset, group="e2e-consumer"):
        answer = remoting.ask(cluster.broker(node), remoting.PULL, remoting.pull_fields(topic, 0, offset, group=group))
        check(set(answer.ext) == ANSWER_FIELDS, f"{answer}")
        return int(answer.ext["suggestWhichBrokerId"])
    with Cluster(settings=["accessMessageInMemoryMaxRatio=0"]) as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader)) as connection:
            fill(connection, "T", 100)
        caught_up(cluster, (leader + 1) % 3, "T", 100)
        for node in range(3):
            if node in (leader, (leader + 1) % 3):
                check({suggested(cluster, node, "T", offset) for offset in (0, 99, 100, 101)} == {0}, "slaveReadEnable is off")
        # The key counts at once, each way.
        for value in ("true", "false"):
            check(remoting.ask(cluster.broker(leader), UPDATE_CONFIG, None, f"slaveReadEnable={value}\n".encode()).code == 0, "25")
            check((suggested(cluster, leader, "T", 0) != 0) == (value == "true"), f"slaveReadEnable={value}")
    with Cluster(settings=["accessMessageInMemoryMaxRatio=0", "slaveReadEnable=true"]) as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        ids = {node: node + 1 for node in range(3) if node != leader}
        with remoting.Connection(cluster.broker(leader)) as connection:
            fill(connection, "T", 100)
            for number in range(5):
                body = json.dumps({"groupName": f"slow{number}", "whichBrokerWhenConsumeSlowly": number, "brokerId": number}).encode()
                check(connection.request(UPDATE_GROUP, None, body).code == 0, "200")
        for node in ids:
            caught_up(cluster, node, "T", 100)
        in_route = json.loads(remoting.ask(cluster.namesrv(leader), remoting.ROUTE, {"topic": "T", "acceptStandardJsonOnly": True}).body)["brokerDatas"][0]
        check(set(in_route["brokerAddrs"]) == {"0", *map(str, ids.values())}, in_route)
        check(suggested(cluster, leader, "T", 0) in ids.values(), "the default 1 may be nobody; another follower is")
        check(suggested(cluster, leader, "T", 100) == 0 and suggested(cluster, leader, "T", 101) == 0, "at the end, nothing was read")
        for number in range(5):
            found = suggested(cluster, leader, "T", 0, f"slow{number}")
            check(found == number if number in (0, *ids.values()) else found in ids.values(), f"the group names {number}, suggested is {found}")
            found = suggested(cluster, leader, "T", 100, f"slow{number}")
            check(found == (number if number in ids.values() else 0), f"the group names {number} for those in time, suggested is {found}")
        for node, own in ids.items():
            check(suggested(cluster, node, "T", 0) == own and suggested(cluster, node, "T", 100) == 0, f"follower {node} keeps slow readers, sends others back")
            check(suggested(cluster, node, "T", 500) == 0 and suggested(cluster, node, "T", -1) == 0, "a follower that cannot say sends to the leader")
            check(remoting.ask(cluster.broker(node), remoting.PULL, remoting.pull_fields("T", 0, 0)).code == 0, "a follower serves")
        away, left = sorted(ids)
        cluster.kill(away)
        wait_for("the leader to notice", 15, lambda: {suggested(cluster, leader, "T", 0, f"slow{number}") for number in range(1, 5)} == {ids[left]})
        cluster.restart(away)
        wait_for("it to be named again", 30, lambda: suggested(cluster, leader, "T", 0, f"slow{ids[away]}") == ids[away])


@case
def limits_of_one_answer():
    """32 messages or 256 KiB, at least one whatever its size; 800 units of the queue that match nothing."""
    with Cluster(nodes=1) as cluster:
        for topic in ("SMALL", "BIG", "HUGE", "TAGGED"):
            cluster.create_topic(topic, 1)
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            fill(connection, "SMALL", 100)
            for _ in range(3):
                send(connection, "BIG", b"x" * 200 * 1024)
            send(connection, "HUGE", b"x" * (4 << 20))
            send(connection, "HUGE", b"x")
            for _ in range(5):
                fill(connection, "TAGGED", 500, properties="TAGS\x01A")

            def count(topic, offset, **changes):
                answer = pull(connection, topic, offset, **changes)
                return len(list(remoting.records(answer.body))), int(answer.ext["nextBeginOffset"])
            check(count("SMALL", 0, maxMsgNums=64) == (32, 32) and count("SMALL", 90, maxMsgNums=64) == (10, 100), "messages of one answer")
            check(count("SMALL", 0, maxMsgNums=2**31 - 1) == (32, 32), "any number may be asked for")
            check(count("BIG", 0) == (1, 1) and count("BIG", 2) == (1, 3), "bytes of one answer")
            check(count("HUGE", 0) == (1, 1) and count("HUGE", 1) == (1, 2), "one message of 4 MiB")
            check(count("TAGGED", 0, subscription="B") == (0, 800) and count("TAGGED", 1700, subscription="B") == (0, 2500), "units that match nothing")
            check(count("TAGGED", 0, subscription="B", maxMsgNums=1000) == (0, 1000), "more are looked at when more are asked for")


@case
def limits_of_holding():
    """longPollingEnable, the client's time and its limit, a bound on all that wait, and what ends a pull that waits."""
    with Cluster(nodes=1, settings=["heldPullsMax=10", "shortPollingTimeMills=200"]) as cluster:
        cluster.create_topic("T", 1)
        address = cluster.broker(0)

        def held(**changes):
            with remoting.Connection(address) as connection:
                begin = time.monotonic()
                answer = pull(connection, "T", 0, **changes)
                check(answer.code == 19 and set(answer.ext) == ANSWER_FIELDS, f"{answer}")
                return (time.monotonic() - begin) * 1000

        def waiting():
            return int(json.loads(remoting.ask(address, remoting.RUNTIME_INFO, {}).body)["table"]["heldPulls"])
        check(held(sysFlag=4, suspendTimeoutMillis=5000) < 300 * remoting.PATIENCE, "held without being asked to")
        for millis in (0, -1, -2**40):
            check(held(sysFlag=6, suspendTimeoutMillis=millis) < 300 * remoting.PATIENCE, f"held for {millis} ms")
        took = held(sysFlag=6, suspendTimeoutMillis=500)
        check(480 < took < 500 + 300 * remoting.PATIENCE, f"held for {took:.0f} of 500 ms")
        with remoting.Connection(address) as admin:
            check(admin.request(UPDATE_CONFIG, None, b"longPollingEnable=false\n").code == 0, "25")
            took = held(sysFlag=6, suspendTimeoutMillis=20000)
            check(180 < took < 200 + 300 * remoting.PATIENCE, f"short polling held for {took:.0f} of 200 ms")
            check(admin.request(UPDATE_CONFIG, None, b"longPollingEnable=true\n").code == 0, "25")
        with remoting.Connection(address) as one, remoting.Connection(address) as two:
            opaques = [one.send(remoting.PULL, remoting.pull_fields("T", 0, 0, hold_ms=30000)) for _ in range(10)]
            wait_for("ten pulls to wait", 5, lambda: waiting() == 10)
            begin = time.monotonic()
            check(pull(two, "T", 0, sysFlag=6, suspendTimeoutMillis=30000).code == 19 and time.monotonic() - begin < 1.0 * remoting.PATIENCE,
                  "the eleventh is answered at once")
            table = json.loads(remoting.ask(address, remoting.RUNTIME_INFO, {}).body)["table"]
            check(table["limit_heldPulls"] == "1", "the limit's counter")
            two.send(remoting.PULL, remoting.pull_fields("T", 0, 0, hold_ms=30000), oneway=True)
            send(two, "T", b"wake")
            for opaque in opaques:
                check([record.body for record in remoting.records(one.answer(opaque).body)] == [b"wake"], "woken")
            check(waiting() == 0, "some still wait")
            for _ in range(5):
                one.send(remoting.PULL, remoting.pull_fields("T", 0, 1, hold_ms=30000))
            wait_for("five pulls to wait", 5, lambda: waiting() == 5)
            one.close()
            wait_for("those of a closed connection to go", 5, lambda: waiting() == 0)


@case
def followers_answer_from_what_is_committed():
    """A follower serves pulls, 12, 33, 31 and 32 from its own files, wakes its own waiting pulls, and hands 14, 29 and 30 to the leader."""
    with Cluster() as cluster:
        leader = cluster.leader()
        follower = (leader + 1) % 3
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(leader)) as connection, remoting.Connection(cluster.broker(follower), 10.0) as other:
            message = send(connection, "T", b"one", "KEYS\x01k\x02UNIQ_KEY\x01u")
            caught_up(cluster, follower, "T", 1)
            opaque = other.send(remoting.PULL, remoting.pull_fields("T", 0, 1, hold_ms=15000))
            ahead = other.send(remoting.PULL, remoting.pull_fields("T", 0, 3, hold_ms=15000))  # beyond its maximum: it may be behind
            for body in (b"two", b"three", b"four"):
                send(connection, "T", body)
            check([record.body for record in remoting.records(other.answer(opaque).body)][:1] == [b"two"], "woken")
            check([record.body for record in remoting.records(other.answer(ahead).body)] == [b"four"], "woken by the message that was asked for")
            query = {"topic": "T", "key": "u", "maxNum": 8, "beginTimestamp": 0, "endTimestamp": 1 << 62, "_UNIQUE_KEY_QUERY": True}
            for request, ext in ((remoting.QUERY, query), (33, {"offset": int(message.ext["msgId"][-16:], 16)}), (remoting.MIN_OFFSET, {"topic": "T", "queueId": 0}),
                                 (32, {"topic": "T", "queueId": 0}), (29, {"topic": "T", "queueId": 0, "timestamp": 1 << 60}),
                                 (remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}), (QUERY_OFFSET, {"consumerGroup": "g", "topic": "T", "queueId": 0})):
                mine, leaders = other.request(request, ext), connection.request(request, ext)
                same = {name: value for name, value in mine.ext.items() if not name.startswith("index")} == {
                    name: value for name, value in leaders.ext.items() if not name.startswith("index")}
                check(mine.code == leaders.code == 0 and same and mine.body == leaders.body, f"{request}: {mine}, the leader says {leaders}")
            # It hears nobody and may be behind: nothing that it says is a correction.
            with alone(cluster, follower):
                expect(pull(other, "T", 4, sysFlag=6, suspendTimeoutMillis=300), "alone", 19, "OFFSET_OVERFLOW_ONE", 4, 0, 4)
                expect(pull(other, "T", 9, sysFlag=6, suspendTimeoutMillis=300), "alone", 19, "OFFSET_OVERFLOW_BADLY", 9, 0, 4)
                expect(pull(other, "T", 0), "alone", 0, "FOUND", 4, 0, 4)
