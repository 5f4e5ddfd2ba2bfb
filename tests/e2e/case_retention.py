"""What happens when the log's beginning is deleted: to queues, to readers, to members that die meanwhile, and to what somebody still needs."""
import os
import shutil
import subprocess
import time

import remoting
from cluster import BIN, Cluster, check, wait_for
from e2e import case
from failover import send_all
from odd_machine import CLOCK_MS, PERCENT, UNLINK_EIO, UNLINK_MS, OddMachine

MIN_OFFSET, EARLIEST, SEARCH, DELETE_EXPIRED, UPDATE_OFFSET, UPDATE_CONFIG = 31, 32, 29, 329, 15, 25
SEGMENT = 1 << 20
SMALL = [f"mappedFileSizeCommitLog={SEGMENT}", "cleanResourceInterval=100", "mappedFileSizeConsumeQueue=2000"]


def info(cluster, node):
    """What a node says of itself; it may have been started a moment ago."""
    return wait_for(f"answer of n{node}", 30, lambda: cluster.runtime_table(node))[0]


def begins(cluster):
    return [int(info(cluster, node)["raftTrimPosition"]) for node in range(cluster.nodes)]


def first_file(cluster, node):
    return min(int(name) for name in os.listdir(os.path.join(cluster.folder, f"n{node}", "store", f"dledger-n{node}", "data")) if name.isdigit())


def fill(cluster, megabytes, topic="T", queue=0, start=0):
    """Messages of 16 KiB with their number in front; returns the number behind the last one."""
    end = start + int(megabytes * 64)
    send_all(cluster, end - start, lambda number: b"%08d" % (start + number) + b"x" * 16000, topic, queue, not_now=(14, 17))
    return end


def offset_of(cluster, node, code, queue=0, topic="T"):
    def look():
        answer = remoting.ask(cluster.broker(node), code, {"topic": topic, "queueId": queue}, timeout=10.0)
        check(answer.code in (0, 14), f"offset of {topic}/{queue} on n{node}: {answer}")
        return answer if answer.code == 0 else None
    return int(wait_for(f"offset of {topic}/{queue} on n{node}", 30, look)[0].ext["offset"])


def wait_trimmed(cluster, position, files=True):
    """All members say that the log begins there or later, and have no file before it."""
    wait_for("the trim on every node", 30, lambda: min(begins(cluster)) >= position and len(set(begins(cluster))) == 1)
    if files:
        wait_for("files deleted on every node", 60,
                 lambda: all(first_file(cluster, node) == begins(cluster)[node] for node in range(cluster.nodes)))


def check_queue(cluster, node, end):
    """Everything from the minimum on can be read, and nothing before it."""
    low = offset_of(cluster, node, MIN_OFFSET)
    with remoting.Connection(cluster.broker(node), 10.0) as connection:
        found = remoting.read_queue(connection, "T", 0, low)
        check(found[0].offset == low, f"n{node}: the first message is {found[0].offset}, not {low}")
        numbers = [int(record.body[:8]) for record in found]
        check(set(range(numbers[0], end)) <= set(numbers), f"n{node}: messages from {numbers[0]} to {end}")
        early = connection.request(remoting.PULL, remoting.pull_fields("T", 0, 0))
        moved = early.code == 21 and int(early.ext["nextBeginOffset"]) == low if node == cluster.leader() else early.code == 20
        check(low == 0 or (moved and int(early.ext["minOffset"]) == low), f"a pull at 0 of n{node}: {early}")
    return low, found


@case
def x1_a_log_of_bounded_size():
    """X1, A5: old segments go on every node, minimums, times and what a late reader is told are right; kills on the way, lost queue files and an
    emptied queue change nothing of that."""
    with Cluster(nodes=3, durability="B", settings=[*SMALL, f"logBytesMax={2 * SEGMENT}"]) as cluster:
        cluster.create_topic("T", 2)
        for _ in range(3):
            check(cluster.send("T", 1, b"early").code == 0, "send")
        leader = cluster.leader()
        remoting.ask(cluster.broker(leader), UPDATE_OFFSET, {"consumerGroup": "late", "topic": "T", "queueId": 0, "commitOffset": 1})
        end = fill(cluster, 6)
        wait_trimmed(cluster, 4 * SEGMENT)
        for node in range(3):
            low, found = check_queue(cluster, node, end)
            check(low > 200, f"minimum {low}")
            check(offset_of(cluster, node, MIN_OFFSET, 1) == 3, "a queue of which nothing is left ends where it began")
            wait_for("the time of the oldest message", 30, lambda n=node, at=found[0].store_ms: int(info(cluster, n)["earliestMessageTimeStamp"]) == at)
        answer = remoting.ask(cluster.broker(leader), EARLIEST, {"topic": "T", "queueId": 0})
        check(int(answer.ext["timestamp"]) == found[0].store_ms, f"{answer}")
        answer = remoting.ask(cluster.broker(leader), SEARCH, {"topic": "T", "queueId": 0, "timestamp": 0})
        check(int(answer.ext["offset"]) == low, f"offset by time: {answer}")
        unread = int(info(cluster, leader)["messagesDeletedUnread"])
        check(unread == low - 1, f"{unread} unread messages were counted, {low - 1} are gone")

        # Kills while more is deleted; one loses its queue files too.
        victim = (leader + 1) % 3
        for round_number in range(3):
            end = fill(cluster, 1, start=end)
            cluster.kill(victim)
            if round_number == 1:
                shutil.rmtree(os.path.join(cluster.folder, f"n{victim}", "store", "consumequeue"))
            cluster.restart(victim)
            wait_for("the leader sees it", 30, lambda: cluster.leader() is not None and len(set(begins(cluster))) == 1)
        for node in range(3):
            cluster.kill(node)
        for node in range(3):
            cluster.restart(node)
        cluster.leader()
        end = fill(cluster, 1, start=end)
        wait_trimmed(cluster, 8 * SEGMENT)
        for node in range(3):
            check_queue(cluster, node, end)
            check(offset_of(cluster, node, MIN_OFFSET, 1) == 3, f"n{node}: an emptied queue after a restart")
        answer = cluster.send("T", 1, b"later")
        check(answer.code == 0 and int(answer.ext["queueOffset"]) == 3, f"a queue offset is used again: {answer}")


@case
def retention_keeps_what_is_needed():
    """An undelivered delayed message, then a half message, then a member that is away keep the log from there on; who keeps it is named."""
    with Cluster(nodes=3, durability="B", settings=[*SMALL, f"logBytesMax={2 * SEGMENT}", "transactionTimeOut=600000"]) as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        end = fill(cluster, 2)
        check(cluster.send("T", 0, b"%08d" % end, properties="DELAY\x012\x02").code == 0, "a delayed message, 5 s")
        half = remoting.ask(cluster.broker(leader), remoting.SEND_V2, {**remoting.send_fields("T", 0, "TRAN_MSG\x01true\x02PGROUP\x01p\x02"), "f": 4}, b"half")
        check(half.code == 0, f"{half}")
        end = fill(cluster, 3, start=end)
        wait_for("a word on the delayed message", 30, lambda: "delayed" in info(cluster, leader)["retentionHeldBack"])
        check(max(begins(cluster)) <= 2 * SEGMENT, f"{begins(cluster)}")
        wait_for("a word on the half message", 30, lambda: "half" in info(cluster, leader)["retentionHeldBack"])
        check(max(begins(cluster)) <= 2 * SEGMENT, f"{begins(cluster)}")
        away = (leader + 1) % 3
        cluster.kill(away)
        settled = remoting.ask(cluster.broker(leader), 37, {"producerGroup": "p", "tranStateTableOffset": half.ext["queueOffset"], "commitLogOffset": int(
            half.ext["msgId"][16:], 16), "commitOrRollback": 12, "fromTransactionCheck": False, "msgId": "", "transactionId": half.ext.get("transactionId", "")})
        check(settled.code == 0, f"{settled}")
        end = fill(cluster, 4, start=end)
        wait_for("a word on the member", 30, lambda: f"member n{away}" in info(cluster, leader)["retentionHeldBack"])
        held = int(info(cluster, leader)["raftTrimPosition"])
        check(held <= 6 * SEGMENT, f"trimmed to {held} beyond what n{away} has")
        answer = remoting.ask(cluster.broker(leader), DELETE_EXPIRED, {})
        check(answer.code == 1 and f"member n{away}" in answer.remark, f"329: {answer}")
        cluster.restart(away)
        wait_trimmed(cluster, 7 * SEGMENT)


@case
def x1_expired_messages_go():
    """X1, X2: nothing is deleted before fileReservedTime; after it, when asked for, whole segments of it, while a reader holds on to some."""
    with OddMachine() as machine, Cluster(nodes=1, durability="A", settings=[*SMALL, "fileReservedTime=2"]) as cluster:
        cluster.create_topic("T", 1)
        end = fill(cluster, 4)
        check(remoting.ask(cluster.broker(0), DELETE_EXPIRED, {}).code == 0, "329")
        check(begins(cluster) == [0], "nothing is old enough")
        slow = remoting.Connection(cluster.broker(0), 20.0)
        opaques = [slow.send(remoting.PULL, remoting.pull_fields("T", 0, offset)) for offset in range(0, 128, 8)]
        machine.set(CLOCK_MS, 3 * 3600 * 1000)
        end = fill(cluster, 1, start=end)
        check(begins(cluster) == [0], "not at this hour")
        wait_for("329", 30, lambda: remoting.ask(cluster.broker(0), DELETE_EXPIRED, {}).code == 0)  # the log is synced once a second
        wait_trimmed(cluster, 3 * SEGMENT)
        for offset, opaque in zip(range(0, 128, 8), opaques):
            answer = slow.answer(opaque)
            check(answer.code == 0 and [int(record.body[:8]) for record in remoting.records(answer.body)][0] == offset, f"a slow reader: {answer}")
        slow.close()
        low, _ = check_queue(cluster, 0, end)
        check(low >= 180, f"minimum {low}")


def configure(cluster, line):
    for node in range(cluster.nodes):
        check(remoting.ask(cluster.broker(node), UPDATE_CONFIG, {}, f"{line}\n".encode()).code == 0, line)


def trimmed(cluster):
    return int(info(cluster, 0)["raftTrimPosition"]) // SEGMENT


def stays(cluster, segments):
    """More than ten looks later nothing more is gone."""
    before = cluster.runtime("retentionLooks", cluster.leader())
    wait_for("looks", 30, lambda: cluster.runtime("retentionLooks", cluster.leader()) > before + 10)
    check(trimmed(cluster) == segments, f"{trimmed(cluster)} segments are gone, not {segments}")


@case
def x4_x8_levels_of_the_disk():
    """X4, X8, K7: what each level of the disk does, the number that it is judged by, and what says so."""
    with OddMachine() as machine, Cluster(nodes=1, durability="A", settings=[*SMALL, "fileReservedTime=2"]) as cluster:
        cluster.create_topic("T", 1)
        df = subprocess.run(["df", "--output=pcent", os.path.join(cluster.folder, "n0", "store")], capture_output=True, text=True, check=True).stdout
        check(abs(float(info(cluster, 0)["commitLogDiskRatio"]) * 100 - int(df.split()[1].rstrip("%"))) <= 1, f"df says {df}")
        machine.set(PERCENT, 50)
        fill(cluster, 3)
        machine.set(CLOCK_MS, 3 * 3600 * 1000)
        end = fill(cluster, 5, start=192)
        machine.set(PERCENT, 75)
        stays(cluster, 0)
        machine.set(PERCENT, 76)
        wait_for("what is old goes", 30, lambda: trimmed(cluster) == 2)
        check(info(cluster, 0)["diskLevel"] == "diskMaxUsedSpaceRatio", "75")
        check(info(cluster, 0)["commitLogDiskRatio"] == "0.7600", f"{info(cluster, 0)['commitLogDiskRatio']}")
        stays(cluster, 2)
        machine.set(PERCENT, 86)
        wait_for("85 percent", 30, lambda: info(cluster, 0)["diskLevel"] == "diskSpaceCleanForciblyRatio")
        stays(cluster, 2)
        machine.set(PERCENT, 91)
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            send = remoting.SEND_V2, remoting.send_fields("T", 0), b"x"
            refused, _ = wait_for("a refusal", 30, lambda: (lambda answer: answer if answer.code == 14 else None)(connection.request(*send)))
            end = remoting.max_offset(connection, "T")
            check("diskSpaceWarningLevelRatio=90" in refused.remark and "91 %" in refused.remark, f"{refused}")
            check(cluster.runtime("limit_diskSpace") > 0 and info(cluster, 0)["diskLevel"] == "diskSpaceWarningLevelRatio", "90")
            check(connection.request(remoting.PULL, remoting.pull_fields("T", 0, end - 1)).code == 0, "reads go on")
            stays(cluster, 2)
            configure(cluster, "cleanFileForciblyEnable=true")
            wait_for("the oldest goes, whatever its age", 60, lambda: trimmed(cluster) >= 4)
            machine.set(PERCENT, 60)
            wait_for("sends are taken again", 30, lambda: connection.request(*send).code == 0)
            low = offset_of(cluster, 0, MIN_OFFSET)
            answer = connection.request(remoting.PULL, remoting.pull_fields("T", 0, low))
            check(0 < low < end and answer.code == 0, f"from {low} on: {answer}")


@case
def k5_slow_unlinks_and_x3_failing_ones():
    """K5: the disk is looked at while unlinks take their time, and so do sends. X3: what cannot be removed is behind the minimum, over a restart as well."""
    with OddMachine() as machine, Cluster(nodes=1, durability="A", settings=[*SMALL, f"logBytesMax={2 * SEGMENT}"]) as cluster:
        cluster.create_topic("T", 1)
        machine.set(PERCENT, 50)
        machine.set(UNLINK_EIO, 1)
        end = fill(cluster, 5)
        wait_for("a trim", 30, lambda: trimmed(cluster) >= 2)
        wait_for("a word on it", 30, lambda: "cannot be removed" in cluster.output(0))
        check(first_file(cluster, 0) == 0, "it is there still")
        check_queue(cluster, 0, end)
        low = offset_of(cluster, 0, MIN_OFFSET)
        cluster.kill(0)
        cluster.restart(0)
        cluster.leader()
        info(cluster, 0)
        check(offset_of(cluster, 0, MIN_OFFSET) == low, "the minimum went back")
        check_queue(cluster, 0, end)
        machine.set(UNLINK_MS, 10000)
        machine.set(UNLINK_EIO, 0)
        wait_for("an unlink that takes its time", 30, lambda: cluster.runtime("segmentsDeleted") == 0 and trimmed(cluster) >= 2)
        machine.set(PERCENT, 95)
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            send = remoting.SEND_V2, remoting.send_fields("T", 0), b"x"
            wait_for("a refusal", 8, lambda: connection.request(*send).code == 14)
            check(first_file(cluster, 0) == 0, "the unlink had ended")
            machine.set(PERCENT, 50)
            wait_for("sends", 8, lambda: connection.request(*send).code == 0)
            check(first_file(cluster, 0) == 0, "the unlink had ended")
        machine.set(UNLINK_MS, 0)
        wait_trimmed(cluster, 2 * SEGMENT)


@case
def x9_one_correction():
    """X9: a reader whose messages expired while it was away is corrected once, and what asks again and again at the old offset fills no log."""
    with Cluster(nodes=1, durability="A", settings=[*SMALL, f"logBytesMax={SEGMENT}"]) as cluster:
        cluster.create_topic("T", 1)
        end = fill(cluster, 4.5)  # ends in the middle of a segment: what the pulls below commit begins no other one, with which more would go
        wait_trimmed(cluster, 4 * SEGMENT)
        low = offset_of(cluster, 0, MIN_OFFSET)
        with remoting.Connection(cluster.broker(0), 10.0) as connection:
            lines = cluster.output(0).count("\n")
            for _ in range(300):
                answer = connection.request(remoting.PULL, remoting.pull_fields("T", 0, 3))
                check(answer.code == 21 and int(answer.ext["nextBeginOffset"]) == low, f"{answer}")
            found = remoting.read_queue(connection, "T", 0, low)
            check(int(found[0].body[:8]) == low and int(found[-1].body[:8]) == end - 1, "read from there on")
            told = cluster.output(0).count("\n") - lines
            check(told < 10, f"{told} lines in the log for 300 pulls")


@case
def x7_many_segments_at_once():
    """X7: 60 segments expire at once under load: one a second goes, and sends are as fast as before."""
    with OddMachine() as machine, Cluster(nodes=1, durability="B", settings=[*SMALL, "fileReservedTime=2"]) as cluster:
        cluster.create_topic("T", 1)
        end = fill(cluster, 60)
        machine.set(CLOCK_MS, 3 * 3600 * 1000)
        end = fill(cluster, 1, start=end)

        def slowest(seconds):
            times = []
            until = time.monotonic() + seconds
            with remoting.Connection(cluster.broker(0), 10.0) as connection:
                while time.monotonic() < until:
                    start = time.monotonic()
                    check(connection.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"x" * 100).code == 0, "send")
                    times.append(time.monotonic() - start)
            return sorted(times)[len(times) * 99 // 100]
        before = slowest(2)
        wait_for("329", 30, lambda: remoting.ask(cluster.broker(0), DELETE_EXPIRED, {}).code == 0)
        wait_for("the decision", 30, lambda: trimmed(cluster) >= 59)
        during = slowest(4)
        gone = cluster.runtime("segmentsDeleted")
        check(0 < gone < 30, f"{gone} segments were deleted within 4 s")
        check(during < before * 10 + 0.2, f"p99 {before * 1000:.1f} ms before, {during * 1000:.1f} ms meanwhile")
        return f"p99 {before * 1000:.1f} ms before, {during * 1000:.1f} ms meanwhile"


@case
def x6_a_segment_in_the_middle():
    """X6: only the head goes, whatever time a file in the middle has; one that is missing is told and fetched from the others."""
    with Cluster(nodes=3, durability="B", settings=[*SMALL, "fileReservedTime=1"]) as cluster:
        cluster.create_topic("T", 1)
        end = fill(cluster, 4)
        victim = (cluster.leader() + 1) % 3
        wait_for("the follower", 30, lambda: cluster.runtime("raftAppliedIndex", victim) >= end)
        cluster.kill(victim)
        data = os.path.join(cluster.folder, f"n{victim}", "store", f"dledger-n{victim}", "data")
        os.utime(os.path.join(data, f"{SEGMENT:020}"), (0, 0))
        os.unlink(os.path.join(data, f"{2 * SEGMENT:020}"))
        cluster.restart(victim)
        wait_for("repair", 60, lambda: info(cluster, victim)["raftDamagedRanges"] == "0" and cluster.runtime("raftRepairedEntries", victim) > 0)
        check(f"{2 * SEGMENT:020}" in cluster.output(victim), "the gap is told")
        check(remoting.ask(cluster.broker(cluster.leader()), DELETE_EXPIRED, {}).code == 0, "329")
        check(begins(cluster) == [0, 0, 0], f"{begins(cluster)}")
        for node in range(3):
            check_queue(cluster, node, end)


@case
def x1_topics_with_a_time_of_their_own():
    """X1: messages of a topic with a shorter time are gone on every node when they expire, over lost queue files too; segments go when nothing else is in them;
    a topic with a longer time keeps them."""
    hour = 3600 * 1000
    with OddMachine() as machine, Cluster(nodes=3, durability="B", settings=[*SMALL]) as cluster:
        def topic(name, attribute=None):
            arguments = ["updateTopic", "-n", cluster.namesrv_addr, "-c", "DefaultCluster", "-t", name, "-r", "1", "-w", "1"]
            wait_for(f"topic {name}", 30, lambda: subprocess.run([os.path.join(BIN, "mqadmin"), *arguments, *(["-a", attribute] if attribute else [])],
                                                                 capture_output=True, check=False).returncode == 0)

        def minimum(name, offset):
            """On every node."""
            wait_for(f"minimum {offset} of {name}", 30, lambda: [offset_of(cluster, node, MIN_OFFSET, topic=name) for node in range(3)] == [offset] * 3)

        def delete():
            return remoting.ask(cluster.broker(cluster.leader()), DELETE_EXPIRED, {})
        topic("T")
        topic("S", "+reserve.time=1")
        for wrong in ("+reserve.time=0", "reserve.time=24", "+x=1,reserve.time=24"):
            answer = remoting.ask(cluster.broker(0), 17, {**remoting.topic_fields("S"), "attributes": wrong})
            check(answer.code == 1 and "+reserve.time=HOURS" in answer.remark, f"{wrong}: {answer}")
        end = fill(cluster, 4, topic="S")
        stays(cluster, 0)
        minimum("S", 0)
        machine.set(CLOCK_MS, 2 * hour)
        end = fill(cluster, 1, topic="S", start=end)
        minimum("S", 256)
        check(cluster.runtime("topicExpiries", cluster.leader()) > 0, "runtime info")
        with remoting.Connection(cluster.broker(cluster.leader()), 10.0) as connection:
            answer = connection.request(remoting.PULL, remoting.pull_fields("S", 0, 255))
            check(answer.code == 21 and answer.ext["nextBeginOffset"] == "256", f"{answer}")
            check(int(remoting.read_queue(connection, "S", 0, 256)[0].body[:8]) == 256, "the first that is there")
        wait_trimmed(cluster, 3 * SEGMENT)
        why = "".join(cluster.output(node) for node in range(3))
        check("is to go (reserve.time)" in why and "is to go (fileReservedTime)" not in why, "why it went is told")

        # A topic without a time of its own keeps the segment in which it has a message, then one with a longer time does.
        check(cluster.send("T", 0, b"keep").code == 0, "send")
        at = trimmed(cluster)
        end = fill(cluster, 3, topic="S", start=end)
        machine.set(CLOCK_MS, 4 * hour)
        end = fill(cluster, 1, topic="S", start=end)
        minimum("S", 512)
        stays(cluster, trimmed(cluster))
        check(trimmed(cluster) - at <= 2, f"{at} segments were gone, then {trimmed(cluster)}")
        minimum("T", 0)
        topic("T", "+reserve.time=100")
        configure(cluster, "fileReservedTime=1")
        wait_for("329", 30, lambda: delete().code == 0)
        minimum("T", 0)

        # A follower makes its queues anew.
        victim = (cluster.leader() + 1) % 3
        cluster.kill(victim)
        shutil.rmtree(os.path.join(cluster.folder, f"n{victim}", "store", "consumequeue"))
        cluster.restart(victim)
        info(cluster, victim)
        minimum("S", 512)
        topic("T", "-reserve.time")
        wait_for("329", 30, lambda: delete().code == 0 and offset_of(cluster, 0, MIN_OFFSET) == 1)
        minimum("T", 1)
        wait_trimmed(cluster, 6 * SEGMENT)

        # One message has just expired, and the next one is far from that.
        topic("N", "+reserve.time=1")
        for minutes in (0, 51):
            machine.set(CLOCK_MS, 4 * hour + minutes * 60000)
            check(cluster.send("N", 0, b"%d" % minutes).code == 0, "send")
        machine.set(CLOCK_MS, 5 * hour + 60000)
        minimum("N", 1)
        with remoting.Connection(cluster.broker(cluster.leader()), 10.0) as connection:
            check(remoting.read_queue(connection, "N", 0, 1)[0].body == b"51", "it is there")


@case
def a_wiped_member_after_a_trim():
    """What it would begin with is deleted: it fetches the log from the leader's first entry on, is a voter again, and goes on trimming with the others."""
    with Cluster(nodes=3, durability="B", settings=[*SMALL, f"logBytesMax={2 * SEGMENT}"]) as cluster:
        cluster.create_topic("T", 1)
        end = fill(cluster, 5)
        wait_trimmed(cluster, 2 * SEGMENT)
        wiped = (cluster.leader() + 1) % 3
        cluster.kill(wiped)
        shutil.rmtree(os.path.join(cluster.folder, f"n{wiped}", "store"))
        os.mkdir(os.path.join(cluster.folder, f"n{wiped}", "store"))
        cluster.restart(wiped)
        wait_for("the node to vote again", 60, lambda: "votes again" in cluster.output(wiped))
        end = fill(cluster, 2, start=end)
        wait_trimmed(cluster, 4 * SEGMENT)
        for node in range(3):
            check_queue(cluster, node, end)
