"""Transactions: every refusal of END_TRANSACTION, one settlement per half whatever is asked and whoever leads, and check-backs that end."""
import json
import os
import random
import time
import zlib

import remoting
from cluster import Cluster, check, wait_for
from e2e import case, rounds
from failover import bring_back, enough, kill_leader, kill_while, leader_connection

END, HEART_BEAT, CHECK, QUERY_CONSUME_QUEUE, VIEW = 37, 34, 39, 321, 33
UPDATE_CONFIG, DELETE_TOPIC = 25, 215
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
HALF_TOPIC, OP_TOPIC, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"


class Half:
    """Where a half message lies, as the answer to its send says."""

    def __init__(self, answer):
        check(answer.code == 0, f"half message: {answer}")
        self.offset = int(answer.ext["queueOffset"])
        self.position = int(answer.ext["msgId"][-16:], 16)


def half_properties(key, more=""):
    return f"TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01{key}{more}"


def half_fields(queue, key, more=""):
    return {**remoting.send_fields("T", queue, half_properties(key, more), group="p"), "f": 4}


def end_fields(half, decision, group="p", offset=None, position=None, check_answer=False):
    return {"producerGroup": group, "tranStateTableOffset": half.offset if offset is None else offset,
            "commitLogOffset": half.position if position is None else position, "commitOrRollback": decision,
            "fromTransactionCheck": check_answer, "msgId": "id", "transactionId": "id"}


def heart_beat(connection, client):
    body = json.dumps({"clientID": client, "consumerDataSet": [], "producerDataSet": [{"groupName": "p"}]}).encode()
    return connection.send(HEART_BEAT, {}, body)


def bodies(connection, topic="T", queues=2):
    found = []
    for queue in range(queues):
        found += remoting.read_queue(connection, topic, queue)
    return found


def marks(connection):
    """Bodies of the op messages, by way of their queue units: the topic itself is for no consumer."""
    answer = connection.request(QUERY_CONSUME_QUEUE, {"topic": OP_TOPIC, "queueId": 0, "index": 0, "count": 100})
    check(answer.code == 0, f"op queue: {answer}")
    found = []
    for unit in json.loads(answer.body)["queueData"]:
        view = connection.request(VIEW, {"offset": unit["physicOffset"]})
        check(view.code == 0, f"op message: {view}")
        record = next(remoting.records(view.body))
        check("TAGS\x01d" in record.properties and record.sys_flag & 12 == 0, record.properties)
        found.append(record.body)
    return found


@case
def transaction_refusals_and_repeats():
    with Cluster(settings=["transactionCheckInterval=60000"]) as cluster:
        cluster.create_topic("T", 2)
        with remoting.Connection(cluster.broker(cluster.leader()), 5.0) as connection:
            def half(queue, key, more=""):
                return Half(connection.request(remoting.SEND_V2, half_fields(queue, key, more), key.encode()))

            def end(*arguments, **named):
                return connection.request(END, end_fields(*arguments, **named))

            def refused(answer, remark, code=1):
                check(answer.code == code and remark in (answer.remark or ""), f"{remark!r} was expected: {answer}")

            plain = Half(connection.request(remoting.SEND_V2, remoting.send_fields("T", 0, "UNIQ_KEY\x01plain"), b"plain"))
            one = half(1, "one")
            check(one.offset == 0 and len(bodies(connection)) == 1, "a half message is visible or not the first of its queue")
            refused(end(one, COMMIT, position=1 << 40), "Find prepared transaction message failed")
            refused(end(one, COMMIT, position=one.position + 4), "Find prepared transaction message failed")
            refused(end(one, COMMIT, group="other"), "The producer group wrong")
            refused(end(one, COMMIT, offset=987654321), "The transaction state table offset wrong")
            refused(end(plain, COMMIT), "PGROUP")
            refused(end(one, 5), "commitOrRollback field wrong")
            refused(connection.request(END, {"producerGroup": "p"}), "tranStateTableOffset")
            opaque = connection.send(END, end_fields(one, UNKNOWN))
            check(end(one, COMMIT).code == 0, "the first commit was refused")
            check(opaque not in connection.answers, "an end that decides nothing was answered")
            check(end(one, COMMIT).code == 0, "the repeated commit was refused")
            refused(end(one, ROLLBACK), "committed already")
            found = bodies(connection)
            check([r.body for r in found] == [b"plain", b"one"], f"after repeats: {[r.body for r in found]}")
            committed = found[1]
            check(committed.sys_flag & 12 == 8 and committed.prepared == one.position and committed.queue == 1, "committed message")
            check("TRAN_MSG\x01true" in committed.properties and "REAL_TOPIC\x01T" in committed.properties, committed.properties)
            refused(end(Half.__new__(Half), COMMIT, offset=committed.offset, position=committed.position), "The commit log offset wrong")

            two = half(0, "two")
            check(end(two, ROLLBACK).code == 0 and end(two, ROLLBACK).code == 0, "a rollback was refused")
            refused(end(two, COMMIT), "rolled back already")

            # Under way at the same time: the second waits for the first and sees it.
            three, four = half(0, "three"), half(0, "four", "\x02DELAY\x013")
            asked = [connection.send(END, end_fields(h, d)) for h, d in
                     ((three, COMMIT), (three, ROLLBACK), (three, COMMIT), (four, ROLLBACK), (four, COMMIT), (four, ROLLBACK))]
            codes = [connection.answer(opaque).code for opaque in asked]
            check(codes == [0, 1, 0, 0, 1, 0], f"decisions in flight: {codes}")

            # By way of a follower, one-way.
            five = half(1, "five")
            follower = next(i for i in range(3) if cluster.broker(i) != cluster.broker(cluster.leader()))
            with remoting.Connection(cluster.broker(follower)) as other:
                other.send(END, end_fields(five, COMMIT), oneway=True)
                wait_for("a commit by way of a follower", 5, lambda: b"five" in [r.body for r in bodies(connection)])
            check(sorted(r.body for r in bodies(connection)) == [b"five", b"one", b"plain", b"three"], "delivered")
            check(marks(connection) == [b"0", b"1", b"2", b"3", b"4"], f"op messages: {marks(connection)}")
            refused(connection.request(remoting.SEND_V2, {**remoting.send_fields("T", 0), "f": 4}), "TRAN_MSG", code=13)
            check(connection.request(UPDATE_CONFIG, {}, b"rejectTransactionMessage=true").code == 0, "request 25")
            refused(connection.request(remoting.SEND_V2, half_fields(0, "six"), b"six"), "sending transaction message is forbidden", code=16)


def take_checks(connection, seconds, enough=lambda found: False):
    """(arrival, ext, record) of the check-backs that come within the time."""
    found = []
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not enough(found):
        connection.receive_some(left)
        for frame in connection.frames():
            if frame.code == CHECK and not frame.flag & 1:
                check(frame.flag & 2, "a check-back that wants an answer")
                found.append((time.monotonic(), frame.ext, next(remoting.records(frame.body))))
    return found


@case
def transaction_check_back_and_giving_up():
    """T5: rounds in which nobody could be asked, or inside a half's immunity time, are no checks."""
    settings = ["transactionTimeOut=500", "transactionCheckInterval=500", "transactionCheckMax=3"]
    with Cluster(settings=settings) as cluster:
        cluster.create_topic("T", 2)
        with remoting.Connection(cluster.broker(cluster.leader()), 5.0) as connection:
            def half(queue, key, more=""):
                return Half(connection.request(remoting.SEND_V2, half_fields(queue, key, more), key.encode()))

            never = half(1, "never")
            patient = half(0, "patient", "\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x014")
            started = time.monotonic()
            time.sleep(2.0)  # nobody of the group is connected: this does not count
            check(connection.answer(heart_beat(connection, "c@1")).code == 0, "heart-beat")
            # The other half has been checked out long before this one's immunity ends.
            found = take_checks(connection, 6, lambda found: any(c[1]["tranStateTableOffset"] == str(patient.offset) for c in found))
            mine = [c for c in found if c[1]["tranStateTableOffset"] == str(never.offset)]
            check(len(mine) == 3, f"{len(mine)} check-backs of a half that is never answered")
            for number, (_, ext, record) in enumerate(mine):
                check(ext["commitLogOffset"] == str(never.position) and ext["msgId"] == ext["transactionId"] == "never", f"{ext}")
                check(int(ext["offsetMsgId"][-16:], 16) == never.position, f"{ext}")
                check((record.topic, record.queue, record.offset, record.position, record.body) == ("T", 1, never.offset, never.position, b"never"),
                      "the record of a check-back")
                check(f"TRANSACTION_CHECK_TIMES\x01{number + 1}" in record.properties, record.properties)
            late = [c for c in found if c[1]["tranStateTableOffset"] == str(patient.offset)]
            check(late and late[0][0] - started >= 3.9, "a half was checked inside its immunity time")
            given_up = remoting.read_queue(connection, GIVEN_UP, 0)
            check([r.body for r in given_up] == [b"never"], f"given up: {given_up}")
            check(connection.request(END, end_fields(never, COMMIT)).code == 1, "a half was committed after it was given up")
            check(connection.request(END, end_fields(patient, COMMIT, check_answer=True)).code == 0, "answer to a check-back")
            check([r.body for r in bodies(connection)] == [b"patient"], "delivered")
            check(not take_checks(connection, 1.5), "a settled half was checked")


class Application:
    """A producer that decides about its halves: c commits, r rolls back, u commits and w rolls back when asked. Decisions go out twice, one-way."""

    def __init__(self, cluster, chance):
        self.cluster, self.chance = cluster, chance
        self.connection = None
        self.halves = {}        # opaque -> body, sent and not answered
        self.acknowledged = {}  # body -> when (Unix ms)
        self.decided = {}       # body -> when its decision was sent first (Unix ms)
        self.decisions = []     # (when, half, body)
        self.sent = 0
        self.checks = []        # when

    def connect(self):
        address = remoting.leader_address(self.cluster.namesrv_addr)
        if address is None:
            time.sleep(0.02)
            return
        try:
            self.connection = remoting.Connection(address, 3.0)
            heart_beat(self.connection, "app@1")
        except OSError:
            self.lost()

    def lost(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self.halves = {}
        time.sleep(0.02)

    @staticmethod
    def decision_of(body):
        return COMMIT if body[:1] in b"cu" else ROLLBACK

    def decide(self, half, body, checked=False):
        self.decided.setdefault(body, time.time() * 1000)
        for _ in range(2):
            self.connection.send(END, end_fields(half, self.decision_of(body), check_answer=checked), oneway=True)

    def turn(self, sending):
        if self.connection is None:
            self.connect()
            return
        try:
            if sending:
                body = b"%c%d" % (self.chance.choice(b"crcruw"), self.sent)
                self.sent += 1
                self.halves[self.connection.send(remoting.SEND_V2, half_fields(self.sent % 2, body.decode()), body)] = body
            now = time.monotonic()
            due = [d for d in self.decisions if d[0] <= now]
            self.decisions = [d for d in self.decisions if d[0] > now]
            for _, half, body in due:
                self.decide(half, body)
            self.connection.receive_some(0.005)
            for frame in self.connection.frames():
                if frame.flag & 1:
                    body = self.halves.pop(frame.opaque, None)
                    if body is not None and frame.code == 0:
                        self.acknowledged[body] = time.time() * 1000
                        if body[:1] in b"cr":
                            self.decisions.append((now + self.chance.choice((0, self.chance.random() * 0.4)), Half(frame), body))
                    elif body is not None:
                        check(frame.code == 14, f"half message: {frame}")
                elif frame.code == CHECK:
                    self.checks.append(now)
                    half = Half.__new__(Half)
                    half.offset, half.position = int(frame.ext["tranStateTableOffset"]), int(frame.ext["commitLogOffset"])
                    self.decide(half, next(remoting.records(frame.body)).body, checked=True)
        except OSError:
            self.lost()

    def run(self, seconds, sending=True):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn(sending)


def kill_under_load(cluster, application, node):
    """The producer goes on meanwhile. The followers stand still just before, so that decisions lie with the leader alone, or in the followers' sockets, when it
    dies."""
    chance = application.chance
    return kill_while(cluster, node, 0.3 + chance.random() * 0.2, chance.random() * 0.2, lambda: application.run(3.0))


@case
def transactions_settled_once_over_failover():
    """T10: whatever the leader was about when it died."""
    kills = rounds(2, 5, 20)
    settings = ["transactionTimeOut=600", "transactionCheckInterval=1000", "transactionCheckMax=1000"]
    with Cluster(settings=settings) as cluster:
        cluster.create_topic("T", 2)
        application = Application(cluster, random.Random(7))
        deaths = []
        for _ in range(kills):
            application.run(1.0)
            leader = cluster.leader()
            deaths.append(kill_under_load(cluster, application, leader))
            bring_back(cluster, leader)
        application.run(0.5, sending=False)
        wanted = {b for b in application.acknowledged if application.decision_of(b) == COMMIT}

        def delivered():
            application.run(0.3, sending=False)
            with remoting.Connection(cluster.broker(cluster.leader()), 5.0) as connection:
                found = bodies(connection)
            return found if {r.body for r in found} >= wanted else None
        wait_for("all commits to be delivered", 30, delivered)
        quiet_from = time.monotonic() + 4
        application.run(6.5, sending=False)
        check(not [c for c in application.checks if c > quiet_from], "check-backs do not end though all are settled")
        with remoting.Connection(cluster.broker(cluster.leader()), 5.0) as connection:
            found = [r.body for r in bodies(connection)]
            check(len(found) == len(set(found)), lambda: f"delivered twice: {sorted({b for b in found if found.count(b) > 1})[:5]}")
            check(all(b[:1] in b"cu" for b in found), "a message that was rolled back is delivered")
            queue = [r.offset for r in remoting.read_queue(connection, HALF_TOPIC, 0)]
            check(queue == list(range(len(queue))), "the half queue has holes")
        # What a kill found under way: acknowledged and not decided, decided and not delivered.
        undecided = sum(any(acknowledged < at < application.decided.get(body, at) for body, acknowledged in application.acknowledged.items())
                        for at in (death.died_ms for death in deaths))
        undelivered = sum(any(death.stopped_ms < when < death.died_ms and body in found for body, when in application.decided.items()) for death in deaths)
        firsts = [min((c - death.died for c in application.checks if c > death.died), default=99) for death in deaths]
        check(max(firsts) < 31, f"first check-backs after the kills: {firsts}")
        enough(undecided, kills, "between half and decision")
        enough(undelivered, kills, "between decision and delivery")
        return f"{kills} kills, {undecided} between half and decision, {undelivered} between decision and delivery; " \
               f"{len(application.acknowledged)} halves, {len(found)} delivered, check-backs within {max(firsts):.1f} s"


@case
def transaction_state_outlives_restarts():
    """Decisions are known and halves wait as before: all nodes killed at once, then stopped cleanly."""
    with Cluster(settings=["transactionCheckInterval=60000"]) as cluster:
        cluster.create_topic("T", 2)

        def end(half, decision):
            return remoting.ask(cluster.broker(cluster.leader()), END, end_fields(half, decision), timeout=5.0).code
        halves = []
        for i in range(9):
            answer = remoting.ask(cluster.broker(cluster.leader()), remoting.SEND_V2, half_fields(i % 2, f"m{i}"), b"m%d" % i)
            halves.append(Half(answer))
        for i in range(0, 3):
            check(end(halves[i], COMMIT) == 0 and end(halves[i + 3], ROLLBACK) == 0, "decision")
        for node in range(3):
            cluster.kill(node)
        for node in range(3):
            cluster.restart(node)
        check(end(halves[0], COMMIT) == 0 and end(halves[0], ROLLBACK) == 1, "a commit before the kill")
        check(end(halves[3], ROLLBACK) == 0 and end(halves[3], COMMIT) == 1, "a rollback before the kill")
        check(end(halves[6], COMMIT) == 0, "a half from before the kill")
        cluster.stop()
        cluster.start()
        check(end(halves[6], COMMIT) == 0 and end(halves[6], ROLLBACK) == 1 and end(halves[4], COMMIT) == 1, "decisions after a clean stop")
        check(end(halves[7], ROLLBACK) == 0 and end(halves[8], COMMIT) == 0, "halves after a clean stop")
        with remoting.Connection(cluster.broker(cluster.leader()), 5.0) as connection:
            check(sorted(r.body for r in bodies(connection)) == [b"m0", b"m1", b"m2", b"m6", b"m8"], "delivered")


@case
def transaction_of_an_old_half():
    """Its record lies further back than what counts as recent: the pool reads it for the check-back and for the commit."""
    with Cluster(nodes=1, settings=["transactionTimeOut=500", "transactionCheckInterval=1000"]) as cluster:
        cluster.create_topic("T", 2)
        cluster.create_topic("Other", 1)
        with remoting.Connection(cluster.broker(0), 5.0) as connection:
            half = Half(connection.request(remoting.SEND_V2, half_fields(1, "old"), b"old"))
            filler = os.urandom(60000)
            for _ in range(1300):
                check(connection.request(remoting.SEND_V2, remoting.send_fields("Other", 0), filler).code == 0, "send")
            check(connection.answer(heart_beat(connection, "c@1")).code == 0, "heart-beat")
            found = take_checks(connection, 5, lambda found: found)
            check(found and found[0][2].body == b"old" and found[0][2].topic == "T", "no check-back of an old half")
            asked = [connection.send(END, end_fields(half, decision)) for decision in (COMMIT, ROLLBACK, COMMIT)]
            codes = [connection.answer(opaque).code for opaque in asked]
            check(codes in ([0, 1, 0], [1, 0, 1]), f"decisions about an old half: {codes}")
            check([r.body for r in bodies(connection)] == ([b"old"] if codes[0] == 0 else []), "delivered")


@case
def transaction_of_a_topic_that_is_gone():
    """T1: a half that can never be delivered is given up, also when a topic of that name is made again; those behind it are checked as before."""
    settings = ["transactionTimeOut=500", "transactionCheckInterval=500"]
    with Cluster(settings=settings) as cluster:
        cluster.create_topic("T", 2)
        cluster.create_topic("Gone", 2)
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader), 5.0) as connection:
            def half(topic, key):
                fields = {**half_fields(0, key), "b": topic}
                return Half(connection.request(remoting.SEND_V2, fields, key.encode()))
            bad, good = half("Gone", "bad"), half("T", "good")
            check(connection.request(DELETE_TOPIC, {"topic": "Gone"}).code == 0, "215")
            answer = connection.request(END, end_fields(bad, COMMIT))
            check(answer.code == 1 and "Gone" in answer.remark, f"a commit for a deleted topic: {answer}")
            cluster.create_topic("Gone", 2)
            answer = connection.request(END, end_fields(bad, COMMIT))
            check(answer.code == 1 and "Gone" in answer.remark, f"a commit for a topic that was made anew: {answer}")
            check(connection.answer(heart_beat(connection, "c@1")).code == 0, "heart-beat")
            found = take_checks(connection, 6, lambda found: len(found) >= 2)
            check(len(found) >= 2 and all(ext["tranStateTableOffset"] == str(good.offset) for _, ext, _ in found), f"{[ext for _, ext, _ in found]}")
            check(connection.request(END, end_fields(bad, ROLLBACK)).code == 0, "a rollback of what was given up")
            check(connection.request(END, end_fields(good, COMMIT)).code == 0, "commit")
            check(not bodies(connection, "Gone") and [r.body for r in bodies(connection)] == [b"good"], "delivered")
        check("half message at offset 0 is given up: its topic is gone" in cluster.output(leader), "nothing in the log")


@case
def transaction_checks_go_by_store_time():
    """T2: a client whose clock is a day off. T6: the body of a check-back is compressed or not as its flag says. T9: a producer that is dead without our knowing
    keeps nobody from being asked. T4: what is decided is not checked."""
    settings = ["transactionTimeOut=1000", "transactionCheckInterval=400"]
    with Cluster(nodes=1, settings=settings) as cluster:
        cluster.create_topic("T", 2)
        with remoting.Connection(cluster.broker(0), 5.0) as dead, remoting.Connection(cluster.broker(0), 5.0) as connection:
            check(dead.answer(heart_beat(dead, "dead@1")).code == 0, "heart-beat")  # never reads again
            check(connection.answer(heart_beat(connection, "c@1")).code == 0, "heart-beat")
            compressed = zlib.compress(os.urandom(200) * 40)
            day = 24 * 3600 * 1000
            halves, began = {}, time.monotonic()
            for name, skew, flags, body in (("ahead", day, 0, b"ahead"), ("behind", -5 * day, 0, b"behind"), ("packed", 0, 1, compressed)):
                fields = {**half_fields(0, name), "g": int(time.time() * 1000) + skew, "f": 4 | flags}
                halves[name] = Half(connection.request(remoting.SEND_V2, fields, body))
            for number in range(100):  # T4
                half = Half(connection.request(remoting.SEND_V2, half_fields(1, f"done{number}"), b"done"))
                check(connection.request(END, end_fields(half, COMMIT if number % 2 else ROLLBACK)).code == 0, "end")
            found = take_checks(connection, 8, lambda found: {ext["msgId"] for _, ext, _ in found} >= set(halves))
            asked = {ext["msgId"] for _, ext, _ in found}
            check(asked == set(halves), f"asked about {sorted(asked)}")
            check(min(when for when, _, _ in found) - began >= 0.99, "T2: checked early")
            for _, ext, record in found:
                if ext["msgId"] == "packed":
                    check(record.body == compressed and record.sys_flag & 1 == 1, "T6")
                else:
                    check(record.sys_flag & 1 == 0 and record.body == ext["msgId"].encode(), f"T6: {record.body}")
            for half in halves.values():
                check(connection.request(END, end_fields(half, COMMIT, check_answer=True)).code == 0, "T2: commit")
            check(not take_checks(connection, 1.3), "T4: checked though it is settled")


@case
def transaction_state_over_cleaning_and_restart():
    """T7: cleaning of unused topics leaves the halves and the marks alone. T8: a restart inside the immunity time loses nothing. T10: many commits, a failover, and
    nobody is asked about them."""
    settings = ["transactionTimeOut=500", "transactionCheckInterval=500"]
    with Cluster(settings=settings) as cluster:
        cluster.create_topic("T", 2)
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader), 5.0) as connection:
            early = Half(connection.request(remoting.SEND_V2, half_fields(0, "early"), b"early"))
            check(connection.request(END, end_fields(early, COMMIT)).code == 0, "commit")
            cleaned = Half(connection.request(remoting.SEND_V2, half_fields(0, "cleaned"), b"cleaned"))
            for code in (306, 316):
                check(connection.request(code, {}).code == 0, f"{code}")
            check(connection.request(END, end_fields(cleaned, COMMIT)).code == 0, "T7: commit after the cleaning")
            check(marks(connection) == [b"0", b"1"], "T7: marks")
            sent = [connection.send(remoting.SEND_V2, half_fields(1, f"m{number}"), b"m%d" % number) for number in range(500)]
            halves = [Half(connection.answer(opaque)) for opaque in sent]
            ended = [connection.send(END, end_fields(half, COMMIT)) for half in halves]
            check(all(connection.answer(opaque).code == 0 for opaque in ended), "commits")
            window = Half(connection.request(remoting.SEND_V2, half_fields(0, "window", "\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x014"), b"window"))
            began = time.monotonic()
        kill_leader(cluster, leader)
        cluster.leader(but=leader)
        bring_back(cluster, leader)
        with leader_connection(cluster, 5.0) as connection:
            check(connection.answer(heart_beat(connection, "c@1")).code == 0, "heart-beat")
            found = take_checks(connection, 12, lambda found: found)
            check(found and found[0][1]["tranStateTableOffset"] == str(window.offset), f"T8, T10: {[ext for _, ext, _ in found]}")
            check(found[0][0] - began >= 3.9, "T8: checked inside its immunity time")
            check(connection.request(END, end_fields(window, ROLLBACK, check_answer=True)).code == 0, "T8: rollback")
            found = take_checks(connection, 1.5)
            check(not found, f"T10: {len(found)} check-backs of settled halves")
            check(len(bodies(connection)) == 502, "delivered")
