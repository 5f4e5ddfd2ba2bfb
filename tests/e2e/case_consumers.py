"""libledgermq's consumers as processes that come, go and die: against LedgerMQ, and the same against RocketMQ's own broker."""
import collections
import json
import os
import re
import tempfile
import threading
import time

import e2e
import remoting
from cluster import Cluster, check, wait_for
from e2e import Skipped, case
from members import JavaBroker, Members

RESET, QUERY_OFFSET, CONSUMER_LIST, RUNNING_INFO, CONSUME_DIRECTLY, GET_STATUS = 222, 14, 38, 307, 309, 223
SETTINGS = ["messageDelayLevel=1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s", "enablePropertyFilter=true"]


class Sender(threading.Thread):
    """Numbers in turn into the queues of a topic, each acknowledged before the next, until it is stopped."""

    def __init__(self, cluster, topic, queues, pause=0.002):
        super().__init__(daemon=True)
        self.cluster, self.topic, self.queues, self.pause = cluster, topic, queues, pause
        self.sent = []
        self.ending = threading.Event()

    def run(self):
        connection, number = None, 0
        while not self.ending.is_set():
            try:
                connection = connection or remoting.Connection(remoting.leader_address(self.cluster.namesrv_addr), 3)
                answer = connection.request(remoting.SEND_V2, remoting.send_fields(self.topic, number % self.queues), b"%06d" % number)
                if answer.code != 0:
                    raise OSError(str(answer))
                self.sent.append("%06d" % number)
                number += 1
                time.sleep(self.pause)
            except (OSError, AttributeError, TypeError):
                if connection is not None:
                    connection.close()
                connection = None
                number += self.queues  # what is not acknowledged may be stored
                time.sleep(0.02)

    def stop(self):
        self.ending.set()
        self.join(30)
        return self.sent


def got_all(members, sent, seconds=20):
    wait_for("all messages", seconds, lambda: set(sent) <= {message.body for message in members.all()})


def shares(members, sizes):
    """The members' queues are so many each."""
    wait_for(f"queues {sizes}", 10, lambda: [len(member.now_has()) for member in members] == sizes)


def more_of(sender, group, count=80):
    """The group goes on for so many messages."""
    target = len(group.all()) + count
    wait_for("the group goes on", 20, lambda: len(group.all()) >= target and len(sender.sent) > 0)


def shared(cluster, topic="Shared"):
    cluster.create_topic(topic, 8)
    with Members(cluster.namesrv_addr) as group:
        sender = Sender(cluster, topic, 8)
        one = group.start("sharers", topic)
        shares([one], [8])
        sender.start()
        more_of(sender, group)
        two = group.start("sharers", topic)
        shares([one, two], [4, 4])
        more_of(sender, group)
        three = group.start("sharers", topic)
        wait_for("three shares", 10, lambda: sorted(len(member.now_has()) for member in (one, two, three)) == [2, 3, 3])
        more_of(sender, group)
        two.end()
        shares([one, three], [4, 4])
        more_of(sender, group)
        one.kill()
        shares([three], [8])
        four = group.start("sharers", topic)
        shares([three, four], [4, 4])
        more_of(sender, group)
        sent = sender.stop()
        got_all(group, sent)
        check(len(sent) > 200, f"only {len(sent)} messages")
        overlap = group.overlap_ms()
        check(overlap < 2000 * remoting.PATIENCE, f"two members had one queue for {overlap} ms")
        times = collections.Counter(message.body for message in group.all())
        twice = sum(1 for body in sent if times[body] > 1)
        check(twice < len(sent) / 3, f"{twice} of {len(sent)} messages came twice")
        return f"{len(sent)} messages, {twice} twice, one queue at two members for {overlap} ms"


def in_order(messages, queues):
    """Per queue the messages begin in their order; what was begun by a member that died comes again from one place on. Returns the longest gap."""
    longest = 0
    for queue in range(queues):
        last_ms, highest = None, -1
        mine = [message for message in messages if message.queue == queue]
        for message, following in zip(mine, mine[1:] + [None]):
            check(message.offset <= highest + 1, f"queue {queue}: offset {message.offset} after {highest}")
            highest = max(highest, message.offset)
            if last_ms is not None:
                longest = max(longest, message.ms - last_ms)
            last_ms = message.ms
            del following
    return longest


def one_at_a_time(members, queues):
    """No message of a queue begins at one member while another one is not done with one of it."""
    for queue in range(queues):
        events = []
        for number, member in enumerate(members):
            ends = {(q, offset): ms for ms, q, offset, _ in member.done}
            for message in member.messages:
                if message.queue == queue and (queue, message.offset) in ends:
                    events.append((message.ms, ends[queue, message.offset], number, message.offset))
        events.sort()
        for first, second in zip(events, events[1:]):
            check(second[0] >= first[1] or first[2] == second[2], f"queue {queue}: {first} and {second} side by side")


def ordered(cluster, topic="Ordered"):
    cluster.create_topic(topic, 4)
    with Members(cluster.namesrv_addr) as group:
        sender = Sender(cluster, topic, 4, 0.001)
        one = group.start("orderers", topic, "--orderly", "--sleep", 3)
        shares([one], [4])
        sender.start()
        wait_for("a beginning", 20, lambda: len(one.messages) > 40)
        two = group.start("orderers", topic, "--orderly", "--sleep", 3)
        shares([one, two], [2, 2])
        wait_for("the second's part", 20, lambda: len(two.messages) > 40)
        one.end()
        shares([two], [4])
        three = group.start("orderers", topic, "--orderly", "--sleep", 3)
        shares([two, three], [2, 2])
        wait_for("the third's part", 20, lambda: len(three.messages) > 40)
        sent = sender.stop()
        got_all(group, sent)
        messages = group.all()
        gap = in_order(messages, 4)
        one_at_a_time(group.members, 4)
        check(gap < 2000 * remoting.PATIENCE, f"a queue stood still for {gap} ms")
        twice = len(messages) - len(set(messages_key(messages)))
        check(twice == 0, f"{twice} messages came twice although every member ended cleanly")
        return f"{len(sent)} messages, longest gap {gap} ms"


def messages_key(messages):
    return [(message.queue, message.offset) for message in messages]


def broadcast(cluster, topic="Broadcast"):
    cluster.create_topic(topic, 4)
    with Members(cluster.namesrv_addr) as group, tempfile.TemporaryDirectory() as folder:
        def start(name):
            return group.start("hearers", topic, "--broadcast", "--instance", name, "--directory", folder)
        members = [start("one"), start("two")]
        shares(members, [4, 4])
        for number in range(40):
            check(cluster.send(topic, number % 4, b"%06d" % number).code == 0, "send")
        for member in members:
            wait_for("all of a broadcast", 15, lambda member=member: sorted(member.bodies()) == ["%06d" % number for number in range(40)])
        members[0].end()
        for number in range(40, 60):
            check(cluster.send(topic, number % 4, b"%06d" % number).code == 0, "send")
        again = start("one")
        wait_for("what came meanwhile", 15, lambda: len(again.messages) >= 20)
        check(sorted(again.bodies()) == ["%06d" % number for number in range(40, 60)], f"a broadcast member began at {sorted(again.bodies())[:3]}")
        members[1].end()
        files = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]
        check(len(files) == 2 and all(name.endswith("/hearers/offsets.json") for name in files), files)
    return "each got all; offsets kept in files"


def retried(cluster, topic="Retried"):
    cluster.create_topic(topic, 2)
    with Members(cluster.namesrv_addr) as group:
        member = group.start("retriers", topic, "--later", 99, "--max", 2)
        shares([member], [2])
        for body in (b"good", b"bad!", b"fine"):
            check(cluster.send(topic, 0, body).code == 0, "send")
        wait_for("three tries", 25, lambda: member.bodies().count("bad!") == 3)
        tries = [message for message in member.messages if message.body == "bad!"]
        check([message.reconsumed for message in tries] == [0, 1, 2] and all(message.topic == topic for message in tries), tries)

        def dead_letters():
            with remoting.Connection(cluster.broker(cluster.leader())) as connection:
                try:
                    return remoting.read_queue(connection, "%DLQ%retriers", 0)
                except ValueError:
                    return []
        dead, _ = wait_for("a dead letter", 15, dead_letters)
        check([record.body for record in dead] == [b"bad!"] and f"RETRY_TOPIC\x01{topic}" in dead[0].properties, dead)
        check(member.bodies().count("good") == 1 and member.bodies().count("fine") == 1, member.bodies())
    with Members(cluster.namesrv_addr) as group:
        # In order: the queue waits until the message is given up.
        member = group.start("patient", topic, "--later", 99, "--max", 2, "--orderly", "--suspend", 100)
        wait_for("the last one", 20, lambda: "fine" in member.bodies())
        check([message.body for message in member.messages if message.queue == 0] == ["good", "bad!", "bad!", "bad!", "fine"], member.bodies())
    return "three tries, then the dead letter topic; in order as well"


def reset(cluster, topic="Reset"):
    cluster.create_topic(topic, 2)
    for number in range(20):
        check(cluster.send(topic, number % 2, b"%06d" % number).code == 0, "send")
    with Members(cluster.namesrv_addr) as group:
        members = [group.start("resetters", topic, *options) for options in ([], [])]
        got_all(group, ["%06d" % number for number in range(20)])
        shares(members, [1, 1])

        def stored():
            offsets = [remoting.ask(cluster.broker(cluster.leader()), QUERY_OFFSET, {"consumerGroup": "resetters", "topic": topic, "queueId": queue})
                       for queue in range(2)]
            return [int(answer.ext.get("offset", -1)) for answer in offsets] == [10, 10]
        wait_for("offsets", 20, stored)
        # To before the first message: all come again.
        before = collections.Counter(group.all_bodies())
        answer = remoting.ask(cluster.broker(cluster.leader()), RESET, {"topic": topic, "group": "resetters", "timestamp": 1000, "isForce": True})
        check(answer.code == 0, f"reset: {answer}")
        once_more = before + collections.Counter(list(before))
        _, took = wait_for("all of it again", 15, lambda: collections.Counter(group.all_bodies()) == once_more)
    return f"all came again within {took:.1f} s"


def lite(cluster, topic="Lite"):
    cluster.create_topic(topic, 4)
    with Members(cluster.namesrv_addr) as group:
        for number in range(60):
            check(cluster.send(topic, number % 4, b"%06d" % number, "TAGS\x01%s" % ("A" if number % 3 else "B")).code == 0, "send")
        one = group.start("pollers", topic, "--mode", "lite", "--expression", "A || C")
        wanted = ["%06d" % number for number in range(60) if number % 3]
        got_all(group, wanted)
        two = group.start("pollers", topic, "--mode", "lite", "--expression", "A || C")
        shares([one, two], [2, 2])
        one.end()
        two.end()
        check(sorted(one.bodies()) == wanted and set(two.bodies()) <= set(wanted), f"{one.bodies()}, then {two.bodies()}")
        check(cluster.send(topic, 0, b"later", "TAGS\x01A").code == 0, "send")
        three = group.start("pollers", topic, "--mode", "lite", "--expression", "A || C")
        wait_for("the new one", 15, lambda: three.messages)
        check(three.bodies() == ["later"], three.bodies())
    return "polled, committed, shared"


def filtered(cluster, topic="Filtered"):
    cluster.create_topic(topic, 2)
    for number in range(20):
        properties = "TAGS\x01%s\x02a\x01%d" % ("AB"[number % 2], number)
        check(cluster.send(topic, number % 2, b"%06d" % number, properties).code == 0, "send")
    with Members(cluster.namesrv_addr) as group:
        tags = group.start("by-tag", topic, "--expression", "B")
        sql = group.start("by-sql", topic, "--expression", "sql:a > 14 AND TAGS IN ('A')")
        wait_for("both", 15, lambda: len(tags.messages) >= 10 and len(sql.messages) >= 2)
        check(sorted(tags.bodies()) == ["%06d" % number for number in range(1, 20, 2)], tags.bodies())
        check(sorted(sql.bodies()) == ["000016", "000018"], sql.bodies())
        bad = group.start("bad-sql", topic, "--expression", "sql:a >")
        wait_for("a refusal", 10, lambda: bad.errors)
        check("refuses" in bad.errors[0], bad.errors)
        group.members.remove(bad)
        bad.process.wait(10)
    return "tags and SQL92"


def timed_out(cluster, topic="TimedOut"):
    """A call that takes too long does not hold the queue's offset."""
    cluster.create_topic(topic, 1)
    for number in range(5):
        check(cluster.send(topic, 0, b"%06d" % number).code == 0, "send")
    with Members(cluster.namesrv_addr) as group:
        member = group.start("slow", topic, "--slow-once", 3000, "--timeout", 500)
        # The slow one is the first that any of the threads prints, which need not be the queue's first; on a slow machine others may take that long, too.
        wait_for("a message", 20, lambda: member.messages)
        slow = member.messages[0].body
        wait_for(f"the slow one ({slow}) again", 20, lambda: [m for m in member.messages if m.body == slow and m.reconsumed == 1])
        check(sorted({m.body for m in member.messages}) == [f"{n:06d}" for n in range(5)], member.messages)
    return "sent back while it was consumed"


def named(cluster, topic="Named"):
    """A namespace stands before topics and groups, and the application does not see it."""
    cluster.create_topic("Space%" + topic, 2)
    with Members(cluster.namesrv_addr) as group:
        member = group.start("namers", topic, "--namespace", "Space", "--later", 1)
        shares([member], [2])
        check(cluster.send("Space%" + topic, 1, b"again!").code == 0, "send")
        wait_for("the message and its retry", 20, lambda: len(member.messages) == 2)
        check([(message.topic, message.reconsumed) for message in member.messages] == [(topic, 0), (topic, 1)], member.messages)
        poller = group.start("pollers2", topic, "--namespace", "Space", "--mode", "lite")
        wait_for("the lite one's", 20, lambda: poller.messages)
        check(poller.messages[0].topic == topic and poller.messages[0].body == "again!", poller.messages)
    return "namespaces"


def asked(cluster, topic="Asked"):
    """What tools ask a member through the broker: where it is, what it does, and to take one message now."""
    cluster.create_topic(topic, 2)
    ids = [cluster.send(topic, number % 2, b"%06d" % number).ext["msgId"] for number in range(10)]
    broker = cluster.broker(cluster.leader())
    with Members(cluster.namesrv_addr) as group:
        member = group.start("asked", topic, "--sleep", 5, "--expression", "*")
        got_all(group, ["%06d" % number for number in range(10)])
        wait_for("the last one done", 10, lambda: len(member.done) == 10)
        answer = remoting.ask(broker, CONSUMER_LIST, {"consumerGroup": "asked"})
        client = json.loads(answer.body)["consumerIdList"][0]
        who = {"consumerGroup": "asked", "clientId": client}

        def info():
            answer = remoting.ask(broker, RUNNING_INFO, {**who, "jstackEnable": True}, timeout=10)
            check(answer.code == 0, f"running info: {answer}")
            return answer.body.decode()
        # A map whose keys are objects is fastjson's; the parts are looked at one by one.
        text, _ = wait_for("offsets", 10, lambda: info() if '"commitOffset":5' in info() else None)
        queues = dict(re.findall(r'"queueId":(\d+),"topic":"%s"\}:(\{[^}]*\})' % topic, text))
        check(set(queues) == {"0", "1"}, text)
        for queue in queues.values():
            place = json.loads(queue)
            check(place["commitOffset"] == 5 and place["cachedMsgCount"] == 0 and not place["droped"] and place["lastPullTimestamp"] > 0, queue)
        status = json.loads(re.search(r'"statusTable":(\{.*?\}\}),', text).group(1))[topic]
        check(status["consumeOKTPS"] > 0 and status["pullTPS"] > 0 and 4 < status["consumeRT"] < 1000 * remoting.PATIENCE, status)
        properties = json.loads(re.search(r'"properties":(\{.*?\})', text).group(1))
        check(properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY" and properties["PROP_THREADPOOL_CORE_SIZE"] == "4", properties)
        check('"jstack":"0 jobs wait for 4 threads\\nthread 0: idle' in text and '"subString":"*","subVersion"' in text, text)

        answer = remoting.ask(broker, CONSUME_DIRECTLY, {**who, "msgId": ids[3], "topic": topic}, timeout=10)
        result = json.loads(answer.body or b"{}")
        check(answer.code == 0 and result["consumeResult"] == "CR_SUCCESS" and not result["order"] and result["spentTimeMills"] >= 5, f"{answer}")
        check(member.bodies().count("000003") == 2, member.bodies())

        answer = remoting.ask(broker, GET_STATUS, {"topic": topic, "group": "asked", "clientAddr": client}, timeout=10)
        check(answer.code == 0 and answer.body.count(b"}:5") == 2 and client.encode() in answer.body, f"{answer}")
    return "running info, one message at once, offsets"


SCENARIOS = [shared, ordered, broadcast, retried, reset, lite, filtered, named, asked, timed_out]


@case
def consumers_share_a_topic():
    with Cluster(nodes=1, settings=SETTINGS) as cluster:
        return shared(cluster)


@case
def consumers_in_order():
    with Cluster(nodes=1, settings=SETTINGS) as cluster:
        return ordered(cluster)


@case
def consumers_of_all_kinds():
    with Cluster(nodes=1, settings=SETTINGS) as cluster:
        notes = [scenario(cluster) for scenario in SCENARIOS if scenario not in (shared, ordered)]
    return "; ".join(notes)


@case
def consumers_of_rocketmq():
    if e2e.MODE == "quick":
        raise Skipped("not with --quick: starts a RocketMQ")
    extra = "\\n".join([*SETTINGS, "longPollingEnable=true"])
    with JavaBroker(extra=extra) as broker:
        notes = []
        for scenario in SCENARIOS:
            start = time.monotonic()
            scenario(broker)
            notes.append(f"{scenario.__name__} {time.monotonic() - start:.0f} s")
    return ", ".join(notes)


@case
def order_is_kept_when_the_leader_dies():
    with Cluster(nodes=3) as cluster:
        cluster.create_topic("Kept", 4)
        with Members(cluster.namesrv_addr) as group:
            sender = Sender(cluster, "Kept", 4, 0.001)
            members = [group.start("keepers", "Kept", "--orderly") for _ in range(2)]
            shares(members, [2, 2])
            sender.start()
            wait_for("a beginning", 20, lambda: all(len(member.messages) > 100 for member in members))
            kills = e2e.rounds(1, 3, 20)
            for _ in range(kills):
                before = {queue: max(message.offset for message in group.all() if message.queue == queue) for queue in range(4)}
                leader = cluster.leader()
                cluster.kill(leader)
                killed_ms = time.monotonic_ns() // 1000000

                def goes_on(queue, before=before, killed_ms=killed_ms):
                    return any(message.queue == queue and message.ms > killed_ms and message.offset > before[queue] + 30 for message in group.all())
                wait_for("all queues go on", 30, lambda goes_on=goes_on: all(goes_on(queue) for queue in range(4)))
                cluster.restart(leader)
                wait_for("three nodes", 20, lambda: all(cluster.alive(node) for node in range(3)))
            sent = sender.stop()
            got_all(group, sent)
            messages = group.all()
            gap = in_order(messages, 4)
            one_at_a_time(group.members, 4)
            check(gap < 2000 * remoting.PATIENCE, f"a queue stood still for {gap} ms")
            return f"{kills} leaders killed, {len(sent)} messages, longest gap {gap} ms"


@case
def order_is_kept_when_a_member_dies():
    """Its locks end 30 s after their last renewal."""
    if e2e.MODE != "full":
        raise Skipped("only with --full: locks of the dead live 30 s")
    with Cluster(nodes=1) as cluster:
        cluster.create_topic("Dying", 4)
        with Members(cluster.namesrv_addr) as group:
            sender = Sender(cluster, "Dying", 4)
            members = [group.start("mourners", "Dying", "--orderly", "--sleep", 3) for _ in range(2)]
            shares(members, [2, 2])
            sender.start()
            wait_for("a beginning", 20, lambda: all(len(member.messages) > 40 for member in members))
            members[0].kill()
            shares([members[1]], [4])
            sent = sender.stop()
            got_all(group, sent, 45)
            in_order(group.all(), 4)
            one_at_a_time(group.members, 4)
            return f"{len(sent)} messages"
