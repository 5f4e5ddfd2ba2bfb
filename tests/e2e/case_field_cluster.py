"""Leaders that are cut off, that die, or that have no majority, as clients meet them. Ids are those of the failures known from the field (tests/cases.md)."""
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import remoting
from case_metadata import QUERY_OFFSET, UPDATE_GROUP, UPDATE_OFFSET, offset_fields, tables
from cluster import TOP, Cluster, check, wait_for
from e2e import MODE, Skipped, case, rounds
from failover import alone, bring_back, insist, leader_connection, read_back

sys.path.insert(0, os.path.join(TOP, "tests", "chaos"))

import network  # noqa: E402  pylint: disable=wrong-import-position


def in_its_own_network(name):
    """Runs that case again, in name spaces in which the nodes can be cut off."""
    reason = network.why_not()
    if reason is not None:
        raise Skipped(reason)
    mode = [f"--{MODE}"] if MODE != "normal" else []
    done = subprocess.run([*network.UNSHARE, sys.executable, os.path.join(TOP, "tests", "e2e", "run"), *mode, name],
                          capture_output=True, text=True, check=False, env=dict(os.environ, **{network.CALLED: "1"}))
    lines = done.stdout.strip().splitlines()
    check(done.returncode == 0 and lines, lambda: "in its own network:\n" + done.stdout + done.stderr)
    return lines[0].partition(": ")[2]


class Questions(threading.Thread):
    """Asks one node for offsets again and again; remembers what it answered, and when it was asked."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address = address
        self.ending = threading.Event()
        self.asked = 0
        self.answers = []  # (asked at, which, offset)

    def run(self):
        while not self.ending.is_set():
            try:
                with remoting.Connection(self.address, 1.0 / remoting.PATIENCE) as connection:
                    while not self.ending.is_set():
                        for which, code, fields in (("max", remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}), ("stored", QUERY_OFFSET, offset_fields("g", "T", 0))):
                            at = time.monotonic()
                            self.asked += 1
                            answer = connection.request(code, fields)
                            if answer.code == 0:
                                self.answers.append((at, which, int(answer.ext["offset"])))
            except OSError:
                time.sleep(0.005)

    def stop(self):
        self.ending.set()
        self.join(20)


@case
def e7_a_leader_that_is_cut_off():
    """E7: it acknowledges nothing, is soon no master any more in the route of its own name server, and answers no question about offsets from what it knew."""
    if network.CALLED not in os.environ:
        return in_its_own_network("e7_a_leader_that_is_cut_off")
    lan = network.Network(3)
    os.environ.update(LEDGERMQ_WRAP=os.path.join(TOP, "tests", "chaos", "wrap"), CHAOS_NETWORKS=network.FOLDER)
    notes = []
    with Cluster(hosts=network.PREFIX, durability="B") as cluster:
        cluster.create_topic("T", 1)
        acknowledged = 0
        for turn in range(rounds(1, 1, 10)):
            old = cluster.leader()
            while insist(cluster, remoting.SEND_V2, remoting.send_fields("T", 0), b"before").code != 0:
                pass
            check(insist(cluster, UPDATE_OFFSET, offset_fields("g", "T", 0, 1000 * turn + 1)).code == 0, "15")
            acknowledged = int(insist(cluster, remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}).ext["offset"])
            questions = Questions(cluster.broker(old))
            with remoting.Connection(cluster.broker(old), 5.0) as client:
                questions.start()
                wait_for("answers", 5, lambda: len(questions.answers) > 20)
                for other in range(3):
                    if other != old:
                        lan.cut_both(old, other)
                cut = time.monotonic()
                sends = [client.send(remoting.SEND_V2, remoting.send_fields("T", 0), b"lost") for _ in range(20)]
                gone, seconds = wait_for("its own name server to name it no more", 5, lambda: remoting.leader_address(cluster.namesrv(old)) != cluster.broker(old))
                check(gone, "route")
                notes.append(f"no master after {(time.monotonic() - cut) * 1000:.0f} ms")
                others = ";".join(cluster.namesrv(node) for node in range(3) if node != old)
                known = [(0.0, acknowledged, 1000 * turn + 1)]  # since when the others have acknowledged how much

                def send_elsewhere():
                    address = remoting.leader_address(others)
                    if address in (None, cluster.broker(old)):
                        return False
                    with contextlib.suppress(OSError), remoting.Connection(address, 1.0) as connection:
                        if connection.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"after").code != 0:
                            return False
                        if connection.request(UPDATE_OFFSET, offset_fields("g", "T", 0, 1000 * turn + 500)).code != 0:
                            return False
                        known.append((time.monotonic(), known[-1][1] + 1, 1000 * turn + 500))
                        return True
                    return False
                wait_for("another leader", 15, send_elsewhere)
                for _ in range(5):
                    send_elsewhere()
                    time.sleep(0.05)
                for opaque in sends:
                    try:
                        answer = client.answer(opaque)
                        check(answer.code == 14, f"a leader without a majority answers a send with {answer}")
                    except ConnectionError:
                        break
                check(remoting.leader_address(cluster.namesrv(old)) != cluster.broker(old), "it is a master again")
                asked = questions.asked
                wait_for("questions after that", 5, lambda: questions.asked > asked + 1)
            questions.stop()
            lan.heal()
            for at, which, offset in questions.answers:
                maximum, stored = [entry[1:] for entry in known if entry[0] < at][-1]
                check(offset >= (maximum if which == "max" else stored),
                      f"asked {(at - cut) * 1000:.0f} ms after the cut it answers {which} offset {offset}; {maximum} and {stored} were acknowledged before")
            wait_for("it to follow", 20, lambda: remoting.leader_address(cluster.namesrv(old)) not in (None, cluster.broker(old)) or cluster.leader_now() == old)
        bodies = [record.body for record in read_back(cluster, "T")]
        check(b"lost" not in bodies or bodies.count(b"lost") <= 20 * len(notes), "messages that were never sent")
        check(bodies.count(b"after") >= len(notes), f"{bodies.count(b'after')} are left")
    return ", ".join(notes)


@case
def l4_requests_over_a_change_of_leader():
    """L4: a flood of requests while there is no majority, then another term: each of them is answered, and meanwhile so are others."""
    with Cluster(durability="A") as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        term = int(cluster.runtime_table(leader)["raftTerm"])
        codes, bodies = {}, {}
        with remoting.Connection(cluster.broker(leader), 20.0) as client:
            data = bytearray()
            for number in range(1, 4001):
                if number % 40 == 0:
                    data += remoting.request_frame(UPDATE_OFFSET, offset_fields("g", "T", 0, number), opaque=number)
                elif number % 100 == 1:
                    data += remoting.request_frame(remoting.CREATE_TOPIC, remoting.topic_fields(f"T{number}"), opaque=number)
                else:
                    bodies[number] = b"%d" % number
                    data += remoting.request_frame(remoting.SEND_V2, remoting.send_fields("T", 0), bodies[number], opaque=number)
            with alone(cluster, leader):
                sender = threading.Thread(target=client.send_raw, args=(bytes(data),))
                sender.start()
                for _ in range(3):
                    cluster.runtime_table(leader)
                # As long as it takes to be deposed, and for the others to stand for election at once.
                wait_for("that it gives up", 10, lambda: cluster.runtime_table(leader)["raftRole"] != "LEADER")
            for number in range(1, 4001):
                answer = client.answer(number)
                codes[answer.code] = codes.get(answer.code, 0) + 1
                if answer.code == 0:
                    bodies.pop(number, None)
                else:
                    check(answer.code == 14, f"request {number}: {answer}")
            sender.join()
        check(codes.get(14, 0) > 100, f"hardly any was refused: {codes}")
        cluster.leader()
        answer = insist(cluster, remoting.SEND_V2, remoting.send_fields("T", 0), b"last")
        check(answer.code == 0, f"{answer}")
        check(int(cluster.runtime_table(cluster.leader())["raftTerm"]) > term, "the term is the same")
        found = {record.body for record in read_back(cluster, "T")}
        missing = {b"%d" % number for number in range(1, 4001) if number % 40 and number % 100 != 1 and number not in bodies} - found
        check(not missing, f"{len(missing)} that were acknowledged are missing")
        return f"{codes}"


@case
def l19_made_on_a_leader_that_dies():
    """L19: a topic and a group that the leader has acknowledged before it was killed at once are known to the next one."""
    with Cluster() as cluster:
        for turn in range(rounds(2, 3, 10)):
            leader = cluster.leader()
            pid = cluster.pid(leader)
            with leader_connection(cluster) as client:
                topic = client.send(remoting.CREATE_TOPIC, remoting.topic_fields(f"made{turn}", 3))
                group = client.send(UPDATE_GROUP, None, b'{"groupName":"group%d","retryMaxTimes":%d}' % (turn, turn + 5))
                check(client.answer(topic).code == 0 and client.answer(group).code == 0, "it cannot be made")
                os.kill(pid, signal.SIGKILL)
            new = cluster.leader(but=leader)
            found = tables(cluster, new)
            check(found["topics"]["topicConfigTable"].get(f"made{turn}", {}).get("readQueueNums") == 3, f"L19: the topic is missing on node {new}")
            check(found["groups"]["subscriptionGroupTable"].get(f"group{turn}", {}).get("retryMaxTimes") == turn + 5, f"L19: the group is missing on node {new}")
            bring_back(cluster, leader)
