"""The leader killed at the worst moment, over and over: what RocketMQ keeps outside its log is exact at the next leader.

A case counts its kills by where they fell and fails when fewer than half of them fell where it hurts.
"""
import collections
import json
import random
import threading
import time

import remoting
from case_metadata import ALL_GROUPS, ALL_TOPICS, LOCK, QUERY_OFFSET, TOPIC_STATS, UNLOCK, UPDATE_GROUP, UPDATE_OFFSET, heart_beat, loads, lock_body, \
    locked, offset_fields
from case_transaction import COMMIT, Application
from cluster import Cluster, Load, check, sequence_of, wait_for
from e2e import case, rounds
from failover import bring_back, enough, insist, kill_leader, kill_while, leader_connection, read_back

SEND_BACK = 36


# ---- delayed messages ----

def send_delayed_burst(connection, level, count, acknowledged):
    """Pipelined; body -> when it was acknowledged at the latest (Unix ms)."""
    pending = {}
    sent = 0
    while sent < count or pending:
        while sent < count and len(pending) < 200:
            body = b"%d|%d" % (level, sent)
            fields = remoting.send_fields("T", sent % 4, f"DELAY\x01{level}")
            pending[connection.send(remoting.SEND_V2, fields, body)] = body
            sent += 1
        connection.receive_some(1.0)
        for answer in connection.frames():
            check(answer.code == 0, f"delayed send: {answer}")
            acknowledged[pending.pop(answer.opaque)] = time.time() * 1000


@case
def delayed_messages_once_over_failover():
    """D1, D11: 10,000 wait, and the leader dies while some are due and not delivered."""
    kills = rounds(2, 5, 20)
    first_s, step_s, count = 6, 3, 10000 // kills  # a node is back before the next are due
    delays = [first_s + step_s * i for i in range(kills)]
    chance = random.Random(11)
    with Cluster(settings=["messageDelayLevel=" + " ".join(f"{s}s" for s in delays)]) as cluster:
        cluster.create_topic("T", 4)
        acknowledged = {}
        due = []
        with leader_connection(cluster) as connection:
            for level in range(1, kills + 1):
                begin = time.time() * 1000
                send_delayed_burst(connection, level, count, acknowledged)
                due.append((begin + delays[level - 1] * 1000, time.time() * 1000 + delays[level - 1] * 1000))
        check(time.time() * 1000 < due[0][0], "sending took so long that the first are due")
        deaths = []
        for number, (begin, end) in enumerate(due):
            leader = cluster.leader()
            frozen = chance.uniform(0.05, 0.15) if number % 5 < 4 else None
            aim = begin + chance.random() * min(end - begin, 400) - (0 if frozen is None else frozen * 500)
            time.sleep(max(0.0, aim / 1000 - time.time()))
            deaths.append(kill_leader(cluster, leader, frozen))
            bring_back(cluster, leader)
        wait_for("all to be delivered", 20, lambda: sum(
            int(insist(cluster, remoting.MAX_OFFSET, {"topic": "T", "queueId": queue}).ext["offset"]) for queue in range(4)) >= len(acknowledged))
        time.sleep(0.5)
        found = read_back(cluster, "T", 4)
        bodies = collections.Counter(record.body for record in found)
        twice = [body for body, times in bodies.items() if times > 1]
        check(not twice, f"delivered twice: {len(twice)}, such as {twice[:3]}")
        check(set(bodies) == set(acknowledged), f"{len(set(acknowledged) - set(bodies))} are lost, {len(set(bodies) - set(acknowledged))} are strange")
        late = []
        caught = [0] * kills
        for record in found:
            delay_ms = 1000 * delays[int(record.body.split(b"|")[0]) - 1]
            check(record.store_ms >= record.born_ms + delay_ms, f"{record.body} came {record.born_ms + delay_ms - record.store_ms} ms early")
            late.append(record.store_ms - (acknowledged[record.body] + delay_ms))
            for i, death in enumerate(deaths):
                caught[i] += death.caught(acknowledged[record.body] + delay_ms, record.store_ms)
        enough(sum(c > 0 for c in caught), kills, "between due and delivery")
        return f"{kills} kills, {sum(c > 0 for c in caught)} between due and delivery ({sum(caught)} messages); {len(found)} delivered once each, " \
               f"at most {max(late):.0f} ms late"


# ---- retries ----

class Retries:
    """A consumer that can handle nothing: each record that it meets goes back once, and what is refused or unanswered goes back again.

    A send-back without a clear answer may have been stored once or not at all, so a count per (body, times) has a lower and an upper bound.
    """

    def __init__(self, cluster, group):
        self.cluster, self.group = cluster, group
        self.connection = None
        self.places = {"T": 0, "%RETRY%" + group: 0}
        self.pending = {}   # opaque -> (kind, what)
        self.pulling = set()
        self.todo = []      # (not before, record)
        self.sent = 0
        self.acknowledged = set()
        self.seen = collections.Counter()     # (body, times)
        self.done = collections.Counter()
        self.unknown = collections.Counter()
        self.asked_ms, self.done_ms = {}, {}  # (body, times): last request, its answer
        self.stored_ms = {}                   # (body, times): when this record was stored

    def lost(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        for kind, what in self.pending.values():
            if kind == "back":
                self.unclear(what)
        self.pending = {}
        self.pulling = set()
        time.sleep(0.02)

    def unclear(self, record):
        self.unknown[record.body, record.reconsume_times] += 1
        self.todo.append((time.monotonic() + 0.05, record))

    def connect(self):
        address = remoting.leader_address(self.cluster.namesrv_addr)
        try:
            self.connection = None if address is None else remoting.Connection(address, 3.0)
        except OSError:
            self.lost()
        if self.connection is None:
            time.sleep(0.02)

    def ask(self):
        now = time.monotonic()
        ready = [record for when, record in self.todo if when <= now]
        self.todo = [entry for entry in self.todo if entry[0] > now]
        while ready:
            record = ready.pop()
            # Until it is on its way it belongs to the list: the connection may break here.
            fields = {"offset": record.position, "group": self.group, "delayLevel": 0, "originMsgId": "x", "originTopic": "T"}
            self.asked_ms[record.body, record.reconsume_times] = time.time() * 1000
            try:
                self.pending[self.connection.send(SEND_BACK, fields)] = "back", record
            except OSError:
                self.todo += [(0, left) for left in ready]
                self.unclear(record)
                raise
        for topic, place in self.places.items():
            if topic not in self.pulling:
                self.pulling.add(topic)
                self.pending[self.connection.send(remoting.PULL, remoting.pull_fields(topic, 0, place, group=self.group))] = "pull", topic

    def take(self, kind, what, answer):
        if kind == "send":
            if answer.code == 0:
                self.acknowledged.add(what)
        elif kind == "back":
            key = what.body, what.reconsume_times
            if answer.code == 0:
                self.done[key] += 1
                self.done_ms[key] = time.time() * 1000
            else:
                check(answer.code == 14, f"send-back: {answer}")
                self.unclear(what)
        else:
            self.pulling.discard(what)
            if answer.code == 0:
                for record in remoting.records(answer.body):
                    if record.offset < self.places[what]:
                        continue
                    self.places[what] = record.offset + 1
                    self.seen[record.body, record.reconsume_times] += 1
                    self.stored_ms[record.body, record.reconsume_times] = record.store_ms
                    self.todo.append((0, record))

    def turn(self, sending):
        if self.connection is None:
            self.connect()
            return
        try:
            if sending:
                body = b"%d" % self.sent
                self.sent += 1
                self.pending[self.connection.send(remoting.SEND_V2, remoting.send_fields("T", 0), body)] = "send", body
            self.ask()
            self.connection.receive_some(0.005)
            for answer in self.connection.frames():
                if answer.flag & 1 and answer.opaque in self.pending:
                    self.take(*self.pending.pop(answer.opaque), answer)
            time.sleep(0.005)
        except OSError:
            self.lost()

    def run(self, seconds, every=0.05):
        end = time.monotonic() + seconds
        after = 0.0
        while (now := time.monotonic()) < end:
            self.turn(every is not None and now >= after)
            if every is not None and now >= after:
                after = now + every


@case
def retries_once_over_failover():
    """D1: send-backs with growing delay up to the dead letters, each step exactly as often as it was asked for."""
    kills = rounds(2, 5, 20)
    times_max, delay_ms = 3, {0: 1000, 1: 2000, 2: 3000}  # level 3 + times
    chance = random.Random(36)
    with Cluster(settings=["messageDelayLevel=1s 1s 1s 2s 3s 4s"]) as cluster:
        cluster.create_topic("T", 1)
        answer = insist(cluster, UPDATE_GROUP, None, b'{"groupName":"g","retryMaxTimes":%d,"retryQueueNums":1}' % times_max)
        check(answer.code == 0, f"group: {answer}")
        cluster.create_topic("%RETRY%g", 1)
        retries = Retries(cluster, "g")
        deaths = []
        retries.run(2.0)
        for number in range(kills):
            leader = cluster.leader()
            frozen = chance.uniform(0.1, 0.2) if number % 4 < 3 else None
            deaths.append(kill_while(cluster, leader, 0.2 + chance.random() * 0.2, frozen, lambda: retries.run(1.2)))
            bring_back(cluster, leader)
            retries.run(0.3)
        retries.run(1.0, every=None)
        dead = []

        def finished():
            retries.run(0.3, every=None)
            if retries.todo or any(kind == "back" for kind, _ in retries.pending.values()):
                return False
            dead[:] = read_back(cluster, "%DLQ%g")
            # What was sent may be there without an acknowledgement, and what was sent back may come twice: neither counts for another message.
            return all(retries.done[body, times_max] for body in retries.acknowledged) and \
                all(retries.seen[body, times + 1] >= count for (body, times), count in retries.done.items() if times < times_max)
        wait_for("all to be dead letters", 30, finished)
        retries.run(0.5, every=None)
        wait_for("what came late to be dead letters", 30, finished)
        dead = read_back(cluster, "%DLQ%g")
        origins = {record.body: record for record in read_back(cluster, "T")}
        letters = collections.Counter(record.body for record in dead)
        exact = 0
        for body in origins:
            for times in range(times_max + 1):
                least, unknown = retries.done[body, times], retries.unknown[body, times]
                next_count = letters[body] if times == times_max else retries.seen[body, times + 1]
                check(retries.seen[body, times] == least, f"{body} after {times} retries was seen {retries.seen[body, times]} times, sent back {least} times")
                check(least <= next_count <= least + unknown, f"{body} was sent back {least} times (and {unknown} unclear ones) after {times} retries, "
                      f"and came again {next_count} times")
                exact += unknown == 0
                if times < times_max and unknown == 0 and least == 1:
                    waited = retries.stored_ms[body, times + 1] - retries.asked_ms[body, times]
                    check(waited >= delay_ms[times] - 1, f"{body}: retry {times + 1} came after {waited:.0f} ms")
        for record in dead:
            check("DELAY\x01" not in record.properties and "RETRY_TOPIC\x01T" in record.properties and record.reconsume_times == times_max + 1,
                  f"dead letter: {record.properties}")
            origin = remoting_id(cluster, origins[record.body])
            check(f"ORIGIN_MESSAGE_ID\x01{origin}" in record.properties, f"dead letter of {origin}: {record.properties}")
        caught = sum(any(death.caught(at + delay_ms[times], retries.stored_ms.get((body, times + 1), 0))
                         for (body, times), at in retries.done_ms.items() if times < times_max and not retries.unknown[body, times]) for death in deaths)
        enough(caught, kills, "between due and delivery")
        return f"{kills} kills, {caught} between due and delivery; {len(origins)} messages, {len(dead)} dead letters, {exact} steps exact, " \
               f"{sum(retries.unknown.values())} send-backs without a clear answer"


def remoting_id(cluster, record):
    """The message id's last 16 digits say where it lies; the first are the broker's address at that time."""
    for node in range(cluster.nodes):
        port = int(cluster.broker(node).split(":")[1])
        text = f"7F000001{port:08X}{record.position:016X}"
        if record.store_port == port:
            return text
    return None


# ---- ordered consumption ----

class OrderlyMember:
    """One client of a group that consumes in order: it pulls only what it has locked, commits before it gives a queue away, and goes on after a failover."""

    def __init__(self, cluster, client):
        self.cluster, self.client = cluster, client
        self.connection = None
        self.owned = set()
        self.places = {}

    def lost(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None

    def request(self, code, ext, body=b""):
        """None when there is no answer for now."""
        try:
            if self.connection is None:
                address = remoting.leader_address(self.cluster.namesrv_addr)
                if address is None:
                    return None
                self.connection = remoting.Connection(address, 2.0)
                heart_beat(self.connection, self.client, "g")
            answer = self.connection.request(code, ext, body, timeout=0.5)
        except OSError:
            self.lost()
            return None
        if answer.code in (14, 1):
            self.lost()
            return None
        return answer

    def lock(self, queues):
        """The queues of these that are this member's now; None when nobody answered."""
        answer = self.request(LOCK, None, lock_body(self.client, "g", sorted(queues)))
        return None if answer is None else set(locked(answer))

    def give(self, queue):
        """Commits, then unlocks; both were answered when it returns true."""
        if self.request(UPDATE_OFFSET, offset_fields("g", "T", queue, self.places[queue])) is None:
            return False
        self.owned.discard(queue)
        return self.request(UNLOCK, None, lock_body(self.client, "g", [queue])) is not None

    def take(self, queue):
        self.owned.add(queue)
        answer = None
        while answer is None:
            answer = self.request(QUERY_OFFSET, offset_fields("g", "T", queue))
        self.places[queue] = int(answer.ext["offset"])

    def consume(self, use):
        for queue in sorted(self.owned):
            answer = self.request(remoting.PULL, remoting.pull_fields("T", queue, self.places[queue], group="g"))
            if answer is not None and answer.code == 0:
                for record in remoting.records(answer.body):
                    use(queue, record)
                    self.places[queue] = record.offset + 1
                self.request(UPDATE_OFFSET, offset_fields("g", "T", queue, self.places[queue]))


@case
def ordered_consumption_over_failover():
    """G12: a new leader knows who owns each queue, nobody else gets it, and what is consumed stays in order without a long gap."""
    kills = rounds(2, 5, 20)
    chance = random.Random(41)
    with Cluster() as cluster:
        cluster.create_topic("T", 2)
        load = Load(cluster, "T", 2, window=4, pause=0.004)
        consumed = {0: [], 1: []}      # sequences
        last = {}                      # queue -> when something of it was consumed
        gaps, known = [0.0], []
        waiting = collections.Counter()  # kill -> messages that were stored before it and consumed after it
        deaths = []

        def use(queue, record):
            now = time.monotonic()
            if queue in last:
                gaps.append(now - last[queue])
            last[queue] = now
            consumed[queue].append((sequence_of(record.body, load.size), record.offset))
            for i, death in enumerate(deaths):
                waiting[i] += record.store_ms <= death.died_ms
        first, second = OrderlyMember(cluster, "1.1.1.1@1"), OrderlyMember(cluster, "2.2.2.2@2")
        check(first.lock({0, 1}) == {0, 1}, "the first lock")
        first.take(0)
        first.take(1)
        load.start()

        def consume(seconds):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                first.consume(use)
                second.consume(use)
                time.sleep(0.005)
        for number in range(kills):
            consume(0.6)
            leader = cluster.leader()
            moving = number % 2
            giver, taker = (first, second) if moving in first.owned else (second, first)
            load.wait_for_more(1)  # nobody consumes until the kill: these wait then
            wait_for("a queue to be given away", 5, lambda: giver.give(moving))  # pylint: disable=cell-var-from-loop
            kept = {0, 1} - {moving}
            owner = first if first.owned & kept else second
            other = second if owner is first else first
            deaths.append(kill_leader(cluster, leader, chance.uniform(0.01, 0.05) if chance.random() < 0.5 else None))
            # The owner's queue is nobody else's, from the first answer of the new leader on; what was given away is free.
            got, _ = wait_for("a lock at the new leader", 5, lambda: (lambda g: None if g is None else (g,))(other.lock(kept)))  # pylint: disable=cell-var-from-loop
            check(got[0] == set(), f"kill {number}: {other.client} got queue {kept} of {owner.client}")
            known.append(time.monotonic() - deaths[-1].died)
            got, _ = wait_for("the free queue", 5, lambda: (lambda g: None if g is None else (g,))(taker.lock({moving})))  # pylint: disable=cell-var-from-loop
            check(got[0] == {moving}, f"kill {number}: queue {moving} was given away before the kill and is not free")
            taker.take(moving)
            got, _ = wait_for("its own queue", 5, lambda: (lambda g: None if g is None else (g,))(owner.lock(kept)))  # pylint: disable=cell-var-from-loop
            check(got[0] == kept, f"kill {number}: {owner.client} lost queue {kept}")
            if giver.lock({moving}) not in (set(), None):
                check(False, f"kill {number}: queue {moving} has two owners")
            consume(0.3)
            bring_back(cluster, leader)
        load.stop()
        consume(0.5)
        for queue, entries in consumed.items():
            check(all(a[0] < b[0] for a, b in zip(entries, entries[1:])), f"queue {queue} was not consumed in order")
            check([offset for _, offset in entries] == list(range(len(entries))), f"queue {queue}: an offset is missing or came twice")
        everything = {sequence for entries in consumed.values() for sequence, _ in entries}
        lost = set(load.acknowledged) - everything
        check(not lost, f"{len(lost)} acknowledged messages were not consumed")
        check(max(gaps) < 2.0 * remoting.PATIENCE, f"the longest gap was {max(gaps):.2f} s")
        check(max(known) < 1.0 * remoting.PATIENCE, f"a new leader knew the owners {max(known):.2f} s after the kill")
        caught = sum(waiting[i] > 0 for i in range(kills))
        enough(caught, kills, "between store and consumption")
        return f"{kills} kills right behind a change of owners, {caught} between store and consumption; {len(everything)} consumed in order, longest gap " \
               f"{max(gaps):.2f} s, owners known after {max(known):.2f} s at most"


# ---- offsets ----

@case
def offsets_over_failover():
    """O2: a commit that was answered is never lost; one that nobody waits for is at most 300 ms old when it is."""
    kills = rounds(2, 5, 20)
    chance = random.Random(15)
    with Cluster() as cluster:
        cluster.create_topic("T", 2)
        behind, repeats, caught = [], [], 0
        value = 0
        for _ in range(kills):
            leader = cluster.leader()
            commits = []   # (when, value), one-way on queue 0
            answered = 0   # on queue 1
            with remoting.Connection(cluster.broker(leader)) as client:
                pid_end = time.monotonic() + chance.uniform(0.4, 0.9)
                waiting = None
                while time.monotonic() < pid_end:
                    value += 1
                    client.send(UPDATE_OFFSET, offset_fields("g", "T", 0, value), oneway=True)
                    commits.append((time.monotonic(), value))
                    # Such a commit takes along what was gathered: not too often.
                    if waiting is None and chance.random() < 0.02:
                        waiting = client.send(UPDATE_OFFSET, offset_fields("g", "T", 1, value)), value
                    client.receive_some(0.004)
                    for answer in client.frames():
                        check(answer.opaque == waiting[0] and answer.code == 0, f"commit: {answer}")
                        answered, waiting = waiting[1], None
                death = kill_leader(cluster, leader)
            found = int(insist(cluster, QUERY_OFFSET, offset_fields("g", "T", 0)).ext["offset"])
            sure = int(insist(cluster, QUERY_OFFSET, offset_fields("g", "T", 1)).ext["offset"])
            check(sure >= answered, f"{answered} was answered, {sure} is there")
            check(found <= value and sure <= value, "an offset that nobody committed")
            lost = [when for when, number in commits if number > found]
            behind.append(max((death.died - when for when in lost), default=0.0))
            repeats.append(value - found)
            caught += bool(lost)
            bring_back(cluster, leader)
        # A leader that the machine lets stand still for a moment is killed with more; most are not.
        check(sorted(behind)[(kills - 1) // 2] <= 0.3 and max(behind) <= 0.3 * remoting.PATIENCE, f"commits from {behind} s before the kills are lost")
        enough(caught, kills, "between a commit and its record")
        return f"{kills} kills, {caught} between a commit and its record; at most {max(behind) * 1000:.0f} ms and {max(repeats)} messages behind"


# ---- topics and groups ----

def body_of_table(cluster, code, key):
    return loads(insist(cluster, code, {}).body)[key]


@case
def topic_just_created_over_failover():
    """Made, answered, and the leader dies at once: it is there, as it was made, and takes sends."""
    kills = rounds(2, 5, 20)
    with Cluster() as cluster:
        took = []
        for number in range(kills):
            leader = cluster.leader()
            topic = f"T{number}"
            with remoting.Connection(cluster.broker(leader)) as client:
                answer = client.request(remoting.CREATE_TOPIC, {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 5,
                                                                "perm": 6, "topicFilterType": "MULTI_TAG", "topicSysFlag": 0, "order": False})
                death = kill_leader(cluster, leader)
            check(answer.code == 0, f"17: {answer}")
            answer = insist(cluster, remoting.SEND_V2, remoting.send_fields(topic, 4, default_topic="NONE"), b"first")
            check(answer.code == 0 and answer.ext["queueOffset"] == "0" and answer.ext["queueId"] == "4", f"send to a topic just made: {answer}")
            config = body_of_table(cluster, ALL_TOPICS, "topicConfigTable")[topic]
            check((config["readQueueNums"], config["writeQueueNums"], config["topicFilterType"]) == (3, 5, "MULTI_TAG"), f"{config}")
            living = next(node for node in range(3) if node != leader)

            def routed():
                route = remoting.ask(cluster.namesrv(living), remoting.ROUTE, {"topic": topic})  # pylint: disable=cell-var-from-loop
                return route.code == 0 and b'"writeQueueNums":5' in route.body
            wait_for("its route", 5, routed)
            took.append(time.monotonic() - death.died)
            bring_back(cluster, leader)
        answer = insist(cluster, TOPIC_STATS, {"topic": "T0"})
        check(answer.code == 0 and answer.body.count(b"maxOffset") == 5, f"202: {answer}")
        return f"{kills} kills between the answer and anything after it; used and routed after {max(took):.2f} s at most"


@case
def group_just_created_over_failover():
    """By an operator and by a heart-beat: answered, and the leader dies at once."""
    kills = rounds(2, 5, 20)
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        for number in range(kills):
            leader = cluster.leader()
            group = f"g{number}"
            with remoting.Connection(cluster.broker(leader)) as client:
                if number % 2 == 0:
                    answer = client.request(UPDATE_GROUP, None, b'{"groupName":"%s","retryMaxTimes":5,"retryQueueNums":2,"consumeBroadcastEnable":false}'
                                            % group.encode())
                    check(answer.code == 0, f"200: {answer}")
                else:
                    heart_beat(client, "1.1.1.1@1", group)
                kill_leader(cluster, leader)
            found = body_of_table(cluster, ALL_GROUPS, "subscriptionGroupTable").get(group)
            check(found is not None, f"group {group} is lost")
            if number % 2 == 0:
                check((found["retryMaxTimes"], found["retryQueueNums"], found["consumeBroadcastEnable"]) == (5, 2, False), f"{found}")
            else:
                check(found["retryMaxTimes"] == 16, f"{found}")
                check("%RETRY%" + group in body_of_table(cluster, ALL_TOPICS, "topicConfigTable"), "its retry topic is lost")
            check(insist(cluster, UPDATE_OFFSET, offset_fields(group, "T", 0, 7)).code == 0, "15")
            check(insist(cluster, QUERY_OFFSET, offset_fields(group, "T", 0)).ext["offset"] == "7", "14")
            bring_back(cluster, leader)
        check(json.dumps(body_of_table(cluster, ALL_GROUPS, "subscriptionGroupTable")).count('"g') >= kills, "groups of earlier rounds")
        return f"{kills} kills between the answer and anything after it"


# ---- clean stops ----

@case
def rolling_restarts_keep_what_waits():
    """Each node stopped cleanly and started again, the leader too, while delayed messages fall due and transactions are decided: each comes once."""
    turns = rounds(1, 2, 6)
    levels = [3 + i for i in range(4 * turns)]
    settings = ["messageDelayLevel=" + " ".join(f"{s}s" for s in levels), "transactionTimeOut=600", "transactionCheckInterval=1000",
                "transactionCheckMax=1000"]
    with Cluster(settings=settings) as cluster:
        cluster.create_topic("T", 4)
        acknowledged = {}
        with leader_connection(cluster) as connection:
            for level in range(1, len(levels) + 1):
                send_delayed_burst(connection, level, 300, acknowledged)
        application = Application(cluster, random.Random(5))
        for turn in range(3 * turns):
            node = turn % 3
            restarted = threading.Thread(target=bring_back, args=(cluster, node))  # a clean stop first
            restarted.start()
            while restarted.is_alive():
                application.run(0.1)
            application.run(0.3)
        application.run(0.5, sending=False)
        committed = {body for body in application.acknowledged if application.decision_of(body) == COMMIT}
        found = []

        def all_there():
            application.run(0.3, sending=False)
            found[:] = [record.body for record in read_back(cluster, "T", 4)]
            return set(found) >= committed | set(acknowledged)
        wait_for("all to be delivered", 30, all_there)
        time.sleep(0.5)
        all_there()
        twice = [body for body, times in collections.Counter(found).items() if times > 1]
        check(not twice, f"delivered twice: {twice[:5]}")
        check(not [body for body in found if body[:1] in b"rw"], "a message that was rolled back is delivered")
        return f"{3 * turns} restarts, {len(acknowledged)} delayed and {len(committed)} committed messages once each"
