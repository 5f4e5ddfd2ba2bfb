"""When delayed messages come, what moves their progress, and what they cost while they wait."""
import collections
import glob
import json
import os
import shutil
import signal
import time

import remoting
from case_offset import lead_with
from cluster import Cluster, check, wait_for
from e2e import MODE, Skipped, case
from failover import alone, bring_back, insist, kill_leader, leader_connection, read_back, send_until
from process import memory_kb


def send(connection, body, level, topic="T", queue=0):
    answer = connection.request(remoting.SEND_V2, remoting.send_fields(topic, queue, f"DELAY\x01{level}\x02LEVEL\x01{level}"), body)
    check(answer.code == 0, f"send: {answer}")


def count_of(cluster, topic="T", queue=0):
    return int(insist(cluster, remoting.MAX_OFFSET, {"topic": topic, "queueId": queue}).ext["offset"])


def bodies(cluster, but=()):
    return [record.body for record in read_back(cluster, "T") if record.body not in but]


def numbered(cluster, count, unknown, start=0, level=1):
    """So many acknowledged messages that wait, with numbers from start on."""
    return send_until(cluster, count, lambda number: b"%d" % (start + number), f"DELAY\x01{level}\x02LEVEL\x01{level}", unknown)


def flood(address, level, count, body=b"x" * 100):
    """Many alike, as fast as the socket takes them: the frame is made once, and of the answers only the number counts. Returns when the first was sent and
    when the last was answered (Unix ms)."""
    with remoting.Connection(address, 30.0) as connection:
        fields = {**remoting.send_fields("T", 0, f"DELAY\x01{level}"), "g": 0}
        frame = remoting.request_frame(remoting.SEND_V2, fields, body)
        begin, sent, answered = time.time() * 1000, 0, 0
        while answered < count:
            while sent < count and sent - answered < 2000:
                many = min(250, count - sent)
                connection.send_raw(frame * many)
                sent += many
            connection.receive_some(5.0)
            buffer, at = connection.buffer, 0
            while len(buffer) - at >= 4 and len(buffer) - at >= 4 + (length := int.from_bytes(buffer[at:at + 4], "big")):
                check(b'"code":0' in buffer[at:at + 4 + length], lambda: f"send: {bytes(buffer[at:at + 4 + length])}")  # pylint: disable=cell-var-from-loop
                answered += 1
                at += 4 + length
            del buffer[:at]
        return begin, time.time() * 1000


def due_times(connection, level):
    """Unix ms at which each message of a level is due, as its queue units say."""
    found = []
    while True:
        answer = connection.request(321, {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": level - 1, "index": len(found), "count": 64})
        units = json.loads(answer.body)["queueData"] if answer.code == 0 and answer.body else []
        if not units:
            return found
        found += [unit["tagsCode"] for unit in units]


@case
def delay_is_kept_when_idle():
    """Never early, and hardly late; levels beyond the last one mean the last; what is no level means none."""
    with Cluster(settings=["messageDelayLevel=1s 2s"]) as cluster:
        cluster.create_topic("T", 4)
        with leader_connection(cluster) as connection:
            for number in range(20):
                send(connection, b"%d" % number, 1 + number % 2, queue=number % 2)
                time.sleep(0.03)
            send(connection, b"beyond", 9, queue=2)
            for level in ("0", "-3", "x", "3abc"):
                send(connection, level.encode(), level, queue=3)
            check([r.body for r in remoting.read_queue(connection, "T", 3)] == [b"0", b"-3", b"x", b"3abc"], "no level was taken for one")
            wait_for("all", 10, lambda: count_of(cluster) + count_of(cluster, queue=1) + count_of(cluster, queue=2) == 21)
            late = []
            for queue in range(3):
                found = remoting.read_queue(connection, "T", queue)
                level = 1 if queue == 0 else 2
                due = due_times(connection, level)
                if queue == 1:
                    due = due[:len(found)]
                elif queue == 2:
                    due = due[-1:]
                late += [record.store_ms - when for record, when in zip(found, due)]
                check(len(due) == len(found), f"{len(due)} units, {len(found)} messages")
            check(min(late) >= 0, f"{-min(late)} ms early")
            late.sort()
            # One stop of the machine may hit several of them, and not half; what looks once a second is late by half a second.
            check(late[len(late) // 2] <= 200 and late[len(late) * 9 // 10] <= 200 * remoting.PATIENCE, f"late by {late} ms")
        return f"at most {late[-1]} ms late, half of them at most {late[len(late) // 2]} ms"


@case
def delay_levels_may_change():
    """Another configuration at the next start: what waits comes no later than the new delay of its level says, and nothing is lost."""
    with Cluster(nodes=1, settings=["messageDelayLevel=1s 30m"]) as cluster:
        cluster.create_topic("T", 1)
        with leader_connection(cluster) as connection:
            send(connection, b"waits", 2)
        cluster.stop()
        cluster.settings[-1] = "messageDelayLevel=1s 2s 3s"
        cluster.start()
        wait_for("the one that waited", 10, lambda: count_of(cluster) == 1)
        with leader_connection(cluster) as connection:
            begin = int(time.time() * 1000)  # as fine as the broker counts
            send(connection, b"third", 3)
            wait_for("level 3", 10, lambda: count_of(cluster) == 2)
            record = remoting.read_queue(connection, "T", 0)[1]
            check(record.body == b"third" and record.store_ms >= begin + 3000, f"{record.body} after {record.store_ms - begin:.0f} ms")
            begin = int(time.time() * 1000)  # as fine as the broker counts
            send(connection, b"of a level that goes", 3)
        cluster.stop()
        cluster.settings[-1] = "messageDelayLevel=1s"
        cluster.start()
        wait_for("what waits in a level that is gone", 10, lambda: count_of(cluster) == 3)
        with leader_connection(cluster) as connection:
            record = remoting.read_queue(connection, "T", 0)[2]
            check(record.store_ms >= begin + 3000, f"early: after {record.store_ms - begin:.0f} ms")


@case
def delay_progress_is_in_the_log_alone():
    """D2, D3: a delayOffset.json that is far ahead or behind moves nothing, nor does a change of roles. D4: starts that are killed half way lose no progress.
    D7, D9: nothing comes twice after a clean stop."""
    with Cluster(settings=["messageDelayLevel=1s"]) as cluster:
        cluster.create_topic("T", 1)
        expected, unknown = [], set()

        def deliver(count):
            expected.extend(numbered(cluster, count, unknown, start=len(expected) + len(unknown)))
            wait_for("the delivery", 15, lambda: count_of(cluster) >= len(expected) and set(expected) <= set(bodies(cluster)))

        def nothing_else(what):
            time.sleep(0.3)
            found = bodies(cluster)
            twice = [body for body, times in collections.Counter(found).items() if times > 1]
            check(not twice and [body for body in found if body not in unknown] == expected,
                  f"{what}: {len(found)} instead of {len(expected)}, {len(unknown)} of unknown outcome, twice {twice}")
        deliver(50)
        cluster.stop()  # D7, D9: right behind the delivery
        for number in range(3):
            path = os.path.join(cluster.folder, f"n{number}", "store", "config", "delayOffset.json")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="ascii") as file:
                file.write('{"offsetTable":{1:%d}}' % (1050, 0, -7)[number])
        cluster.start()
        nothing_else("D7, D9: after a clean stop")
        deliver(10)
        leader = cluster.leader()
        kill_leader(cluster, leader)
        deliver(10)
        nothing_else("D2, D3: after files that lied and a change of roles")
        bring_back(cluster, leader)
        for node in range(3):
            os.kill(cluster.pid(node), signal.SIGKILL)
        for wait in (0.0, 0.01, 0.03, 0.06):  # D4
            for node in range(3):
                cluster.restart(node)
            time.sleep(wait)
            for node in range(3):
                os.kill(cluster.pid(node), signal.SIGKILL)
        for node in range(3):
            cluster.restart(node)
        deliver(10)
        nothing_else("D4: after starts that were killed")


@case
def delay_with_a_follower_that_lost_its_tail():
    """D10: the follower's last entries are gone; when it leads, all that waits arrives, once."""
    with Cluster(settings=["messageDelayLevel=6s"]) as cluster:
        cluster.create_topic("T", 1)
        unknown = set()
        expected = numbered(cluster, 40, unknown)
        node = (cluster.leader() + 1) % 3
        os.kill(cluster.pid(node), signal.SIGKILL)
        for path in sorted(glob.glob(os.path.join(cluster.folder, f"n{node}", "store", f"dledger-n{node}", "data", "*")), reverse=True):
            with open(path, "r+b") as file:
                end = len(file.read().rstrip(b"\0"))
                if end != 0:
                    file.seek(end - 20)
                    file.write(b"\0" * 20)
                    break
        bring_back(cluster, node)
        lead_with(cluster, node)
        wait_for("all to arrive", 20, lambda: count_of(cluster) >= 40 and set(expected) <= set(bodies(cluster)))
        time.sleep(0.3)
        check(sorted(bodies(cluster, unknown)) == sorted(expected), "D10: not each once")


@case
def delay_while_nobody_can_store():
    """D6: due while the store takes nothing, for a while: no storm afterwards, each once, and few words in the log."""
    seconds = 60 if MODE == "full" else 3
    with Cluster(settings=["messageDelayLevel=1s"]) as cluster:
        cluster.create_topic("T", 1)
        unknown = set()
        expected = numbered(cluster, 200, unknown)
        leader = cluster.leader()
        before = len(cluster.output(leader))
        with alone(cluster, leader):
            time.sleep(1 + seconds)
        wait_for("all to arrive", 20, lambda: count_of(cluster) >= 200 and set(expected) <= set(bodies(cluster)))
        time.sleep(0.5)
        found = bodies(cluster, unknown)
        check(sorted(found) == sorted(expected), f"D6: {len(found)} arrived, {len(set(found))} different ones")
        said = len(cluster.output(leader)) - before
        check(said < 64 * 1024, f"D6: {said} bytes in the log")


@case
def idle_followers_cost_nothing():
    """D8."""
    def ticks(pid):
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        with leader_connection(cluster) as connection:
            send(connection, b"waits", 18)
        time.sleep(0.5)
        seconds, hertz = 3.0, os.sysconf("SC_CLK_TCK")
        pids = [cluster.pid(node) for node in range(3) if node != cluster.leader()]
        before = [ticks(pid) for pid in pids]
        time.sleep(seconds)
        used = [100 * (ticks(pid) - b) / hertz / seconds for pid, b in zip(pids, before)]
        check(max(used) < 5, f"D8: followers use {used} % of a core")
        return f"at most {max(used):.1f} % of a core"


@case
def a_deliver_time_is_kept_and_delivered_at_once():
    """D11: __STARTDELIVERTIME, which newer brokers wait for: here it is there at once, once, and said about once; a change of leader repeats nothing."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        when = int(time.time() * 1000) + 3600000
        with remoting.Connection(cluster.broker(leader)) as client:
            for number in range(3):
                answer = client.request(remoting.SEND_V2, remoting.send_fields("T", 0, f"__STARTDELIVERTIME\x01{when}\x02K\x01{number}"), b"%d" % number)
                check(answer.code == 0 and answer.ext["queueOffset"] == str(number), f"{answer}")
            found = remoting.read_queue(client, "T", 0)
            check([r.body for r in found] == [b"0", b"1", b"2"], "not delivered at once")
            check(all(f"__STARTDELIVERTIME\x01{when}" in r.properties for r in found), found[0].properties)
        kill_leader(cluster, leader)
        cluster.leader(but=leader)
        check(bodies(cluster) == [b"0", b"1", b"2"], "D11: after the failover")
        lines = [line for line in cluster.output(leader).splitlines() if "__STARTDELIVERTIME" in line]
        check(len(set(lines)) == 1 and "topic T" in lines[0], f"said {len(set(lines))} times: {lines[:2]}")


@case
def twenty_thousand_due_in_one_second():
    """Out within two seconds of the first one's time, and none early."""
    with Cluster(settings=["messageDelayLevel=12s 11s 10s 9s"]) as cluster:
        cluster.create_topic("T", 1)
        address = cluster.broker(cluster.leader())
        begin = time.time() * 1000
        for level in range(1, 5):  # each burst a second behind the one before, and due a second sooner
            time.sleep(max(0.0, begin / 1000 + level - 1 - time.time()))
            flood(address, level, 5000)
        with leader_connection(cluster, 10.0) as connection:
            due = sorted(time_ms for level in range(1, 5) for time_ms in due_times(connection, level))
        check(len(due) == 20000, f"{len(due)} wait")
        check(time.time() * 1000 < due[0], "sending took so long that the first are due")
        wait_for("all", 20, lambda: count_of(cluster) >= 20000)
        seen_ms = time.time() * 1000 - due[0]
        time.sleep(0.3)
        found = read_back(cluster, "T")
        check(len(found) == 20000, f"{len(found)} came")
        late = sorted(record.store_ms for record in found)[-1] - due[-1]
        check(min(record.store_ms for record in found) >= due[0], "early")
        check(seen_ms <= 2000 + max(0, due[-1] - due[0] - 1000) + (remoting.PATIENCE - 1) * 500, f"the last was there {seen_ms:.0f} ms after the first was due")
        return f"due within {due[-1] - due[0]} ms, there after {seen_ms:.0f} ms, the last {late} ms late"


@case
def a_million_waiting_messages():
    """At most 16 MiB of memory more on each node, the mapped pages of its files not counted: they are the page cache of whatever was written."""
    if MODE != "full":
        raise Skipped("takes a minute: --full")

    def memory(pid):
        return memory_kb(pid) / 1024, memory_kb(pid, "VmRSS") / 1024
    with Cluster(settings=["mappedFileSizeCommitLog=1073741824", "mappedFileSizeConsumeQueue=6000000", "messageDelayLevel=30m 40m"]) as cluster:
        cluster.create_topic("T", 1)
        address = cluster.broker(cluster.leader())
        flood(address, 2, 20000)
        time.sleep(1)
        before = [memory(cluster.pid(node)) for node in range(3)]
        begin, end = flood(address, 1, 1000000)
        time.sleep(5)
        after = [memory(cluster.pid(node)) for node in range(3)]
        check(count_of(cluster) == 0, "some were delivered")
        own = [a[0] - b[0] for a, b in zip(after, before)]
        whole = [a[1] - b[1] for a, b in zip(after, before)]
        check(max(own) <= 16, f"memory grew by {own} MiB")
        return f"{1e9 / (end - begin):.0f} sends/s; own memory grew by at most {max(own):.1f} MiB, with mapped files by {max(whole):.1f} MiB"


@case
def what_waits_comes_back_from_the_snapshot():
    """Delay progress and undecided halves of a node whose disk was emptied, when it leads: it has them from a snapshot of the others."""
    half = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01k"
    with Cluster(settings=["messageDelayLevel=1s 14s", "transactionCheckInterval=60000"]) as cluster:
        cluster.create_topic("T", 1)
        cluster.create_topic("Other", 1)
        with leader_connection(cluster, 10.0) as connection:
            for number in range(10):
                send(connection, b"%d" % number, 1 + number % 2)
            halves = [connection.request(remoting.SEND_V2, {**remoting.send_fields("T", 0, half), "f": 4}, b"half %d" % number) for number in range(3)]

            def end(number, decision):
                ext = halves[number].ext
                fields = {"producerGroup": "p", "tranStateTableOffset": ext["queueOffset"], "commitLogOffset": int(ext["msgId"][-16:], 16),
                          "commitOrRollback": decision, "msgId": "k"}
                return insist(cluster, 37, fields).code
            check(end(0, 8) == 0 and end(1, 12) == 0, "decisions")
            for number in range(1250):
                answer = connection.request(remoting.SEND_V2, remoting.send_fields("Other", 0), b"x" * 60000)
                check(answer.code == 0, f"send {number}: {answer}")
        wait_for("the first five", 10, lambda: count_of(cluster) == 6)
        wait_for("a snapshot on every node", 20, lambda: all(
            glob.glob(os.path.join(cluster.folder, f"n{node}", "store", f"dledger-n{node}", "metadata.?")) for node in range(3)))
        wiped = (cluster.leader() + 1) % 3
        cluster.kill(wiped)
        shutil.rmtree(os.path.join(cluster.folder, f"n{wiped}", "store"))
        cluster.restart(wiped)
        wait_for("the wiped node to have all", 60, lambda: queue_ends(cluster, wiped) == queue_ends(cluster, cluster.leader()))
        lead_with(cluster, wiped)
        check(end(0, 8) == 0 and end(0, 12) == 1 and end(1, 12) == 0 and end(1, 8) == 1, "decisions from before")
        check(end(2, 8) == 0, "the one that was open")
        wait_for("the rest", 30, lambda: count_of(cluster) >= 12)
        time.sleep(0.5)
        expected = sorted([b"%d" % number for number in range(10)] + [b"half 0", b"half 2"])
        check(sorted(bodies(cluster)) == expected, f"{sorted(bodies(cluster))}")


def queue_ends(cluster, node):
    try:
        return [remoting.ask(cluster.broker(node), 202, {"topic": topic}).body for topic in ("T", "Other", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC")]
    except OSError:
        return None
