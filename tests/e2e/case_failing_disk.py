"""Disks that fail, hang, are slow, full or read-only: who leads then, what clients see of it. Rows of tests/cases.md: K1, K2, K3, K6, E10."""
import errno
import json
import os
import time

import remoting
from case_disk import MIB, SMALL_FILES, SmallDisk
from case_leadership import mqadmin
from case_membership import role_of
from cluster import Cluster, Load, begin_load, check, verify, wait_for
from e2e import MODE, case
from odd_cluster import OddCluster
from odd_machine import QUEUE_UNLINK_EIO, READ_MS, SYNC_EIO, SYNC_MS, WRITE_ERROR


def refuses(cluster, node, words):
    """It answers, with a code that clients retry, and says why."""
    answer = remoting.ask(cluster.broker(node), remoting.SEND_V2, remoting.send_fields("T", 0), b"x", timeout=5.0)
    check(answer.code == 14 and words in (answer.remark or ""), f"n{node}: {answer}")


def failed_leader(cluster, load, which, value, words):
    """The leader's disk fails: another one leads soon, and the failed one says why, also when its disk works again. Returns it and how long that took."""
    node = cluster.leader()
    begun = time.monotonic()
    cluster.odd(node, which, value)
    wait_for("another leader", 20, lambda: cluster.leader_now() not in (None, node))
    seconds = time.monotonic() - begun
    check(seconds < (1 if MODE == "full" else 10), f"another leader after {seconds:.1f} s")
    load.wait_for_more()
    table = cluster.runtime_table(node)
    check(table["raftFailed"] == "true" and table["raftRole"] != "LEADER", table)
    refuses(cluster, node, words)
    # What it holds it still serves.
    answer = remoting.ask(cluster.broker(node), remoting.PULL, remoting.pull_fields("T", 0, 0))
    check(answer.code == 0 and len(list(remoting.records(answer.body))) > 10, lambda: f"a pull from the failed node: {answer}")
    # Pages that a failed sync dropped look written to the next one: only a start from the disk may trust it again.
    cluster.odd(node, which, 0)
    load.wait_for_more()
    check(cluster.runtime_table(node)["raftFailed"] == "true", "it goes on as if nothing had happened")
    refuses(cluster, node, words)
    return node, seconds


@case
def k1_k6_a_sync_that_failed_is_final():
    with OddCluster() as cluster:
        load = begin_load(cluster)
        node, seconds = failed_leader(cluster, load, SYNC_EIO, 1, "log failed")
        cluster.restart(node)
        wait_for("the node to be a member again", 20, lambda: role_of(cluster, node) in ("FOLLOWER", "LEADER"))
        load.wait_for_more()
        load.stop()
        return f"another leader after {seconds * 1000:.0f} ms, longest gap {load.longest_gap * 1000:.0f} ms, {verify(cluster, load)} acknowledged"


@case
def k2_the_leaders_disk_turns_read_only():
    with OddCluster() as cluster:
        load = begin_load(cluster)
        node, seconds = failed_leader(cluster, load, WRITE_ERROR, errno.EROFS, "Read-only file system")
        check(cluster.alive(node), "it ended")
        load.stop()
        return f"another leader after {seconds * 1000:.0f} ms, longest gap {load.longest_gap * 1000:.0f} ms, {verify(cluster, load)} acknowledged"


@case
def k3_a_follower_on_a_read_only_disk():
    """Then one that is merely slow: neither is felt by clients, and nobody else leads for it."""
    with OddCluster() as cluster:
        load = begin_load(cluster)
        leader = cluster.leader()
        term = cluster.runtime("raftTerm", leader)
        slow, broken = (leader + 1) % 3, (leader + 2) % 3
        cluster.odd(slow, SYNC_MS, 500)
        load.longest_gap = 0.0
        load.wait_for_more(1000)
        slow_gap = load.longest_gap
        cluster.odd(slow, SYNC_MS, 0)
        load.wait_for_more(1000)
        cluster.odd(broken, WRITE_ERROR, errno.EROFS)
        load.longest_gap = 0.0
        load.wait_for_more(2000)
        check(cluster.leader() == leader and cluster.runtime("raftTerm", leader) == term, "another leader")
        wait_for("the follower to notice", 10, lambda: cluster.runtime_table(broken)["raftFailed"] == "true")
        load.stop()
        check(not load.refusals, f"{load.refusals}")
        return f"longest gap {slow_gap * 1000:.0f} ms beside the slow one, {load.longest_gap * 1000:.0f} ms beside the broken one, {verify(cluster, load)} acknowledged"


@case
def queue_files_that_cannot_be_removed():
    """A topic is deleted, and a node's disk refuses to remove its queues: that node stops, for it would serve them when there is a topic of that name again. The
    others go on, and it is one of them when its disk works and it was restarted."""
    def bodies(node):
        answer = remoting.ask(cluster.broker(node), remoting.PULL, remoting.pull_fields("T", 0, 0))
        return [record.body for record in remoting.records(answer.body)] if answer.code == 0 else answer

    with OddCluster() as cluster:
        cluster.create_topic("T", 1)
        for _ in range(20):
            check(cluster.send("T", 0, b"old").code == 0, "a send")
        leader = cluster.leader()
        node = (leader + 1) % 3
        wait_for("the follower to have them", 20, lambda: bodies(node) == [b"old"] * 20)
        cluster.odd(node, QUEUE_UNLINK_EIO, 1)
        check(remoting.ask(cluster.broker(leader), 215, {"topic": "T"}).code == 0, "the deletion")
        wait_for("the follower to stop", 20, lambda: cluster.runtime_table(node)["raftFailed"] == "true")
        refuses(cluster, node, "the queues of topic T, which is deleted, cannot be removed")
        cluster.create_topic("T", 1)
        for _ in range(5):
            check(cluster.send("T", 0, b"new").code == 0, "a send")
        check(not isinstance(bodies(node), list), lambda: f"it serves {bodies(node)}")
        check(cluster.leader() == leader, "another leader")
        cluster.odd(node, QUEUE_UNLINK_EIO, 0)
        cluster.restart(node)
        wait_for("the node to be level", 20, lambda: bodies(node) == [b"new"] * 5)
        check(role_of(cluster, node) in ("FOLLOWER", "LEADER"), "it is no member")


@case
def e10_disk_stalls_cost_no_leadership():
    """Syncs of the leader that stand still for two seconds, and old messages read from a slow disk meanwhile: its heart-beats go on."""
    with OddCluster(settings=["electionTimeoutMs=1000"]) as cluster:
        load = begin_load(cluster)
        leader = cluster.leader()
        term = cluster.runtime("raftTerm", leader)
        cluster.odd(leader, READ_MS, 300)
        cluster.odd(leader, SYNC_MS, 2000)
        time.sleep(1.0)
        load.wait_for_more()  # the others are a majority
        cluster.odd(leader, SYNC_MS, 0)  # for the next one: two of them are enough to hand over
        time.sleep(1.5)
        cluster.odd(leader, READ_MS, 0)
        load.wait_for_more()
        check(cluster.leader() == leader and cluster.runtime("raftTerm", leader) == term, "another leader")
        load.stop()
        check(not load.refusals, f"{load.refusals}")
        return f"longest gap {load.longest_gap * 1000:.0f} ms, {verify(cluster, load)} acknowledged"


@case
def slow_leader_hands_over():
    """Its syncs take far longer than the others': after some seconds another one leads, by a hand-over, and goes on leading."""
    with OddCluster() as cluster:
        load = begin_load(cluster)
        slow = cluster.leader()
        cluster.odd(slow, SYNC_MS, 400)
        _, seconds = wait_for("another leader", 30, lambda: cluster.leader_now() not in (None, slow))
        check("this disk is slow" in cluster.output(slow), "not for the sake of its disk")
        check(cluster.runtime_table(slow)["raftDiskSlow"] == "true", "it does not say so")
        load.wait_for_more(2000)
        check(cluster.leader() != slow, "it leads again")
        load.stop()
        return f"after {seconds:.1f} s, longest gap {load.longest_gap * 1000:.0f} ms, {verify(cluster, load)} acknowledged"


@case
def a_hung_disk_does_not_hang_its_node():
    """A sync of the leader does not come back: another one leads, the node answers all the time, and is a follower when the disk works again."""
    with OddCluster() as cluster:
        load = begin_load(cluster)
        hung = cluster.leader()
        cluster.odd(hung, SYNC_MS, 600000)
        slowest, others = 0.0, 0
        load.longest_gap = 0.0
        while others < 20:  # half a second and more behind the change
            begun = time.monotonic()
            table = cluster.runtime_table(hung, 10.0)
            slowest = max(slowest, time.monotonic() - begun)
            check(slowest < 5, f"the node did not answer for {slowest:.1f} s")
            check(int(table["pageCacheLockTimeMills"]) < 60000, "it leads for a minute")
            others += table["raftLeader"] not in ("", f"n{hung}")
            time.sleep(0.03)
        load.wait_for_more()
        cluster.odd(hung, SYNC_MS, 0)
        leader = cluster.leader(but=hung)
        wait_for("it to follow", 20, lambda: cluster.runtime("raftTerm", hung) == cluster.runtime("raftTerm", leader))
        load.wait_for_more()
        load.stop()
        return f"its slowest answer took {slowest * 1000:.0f} ms, longest gap {load.longest_gap * 1000:.0f} ms, {verify(cluster, load)} acknowledged"


def answers_while(cluster, node, condition, seconds=60):
    """It answers its clients, as broker and as name server, until that is so, and for a second more. Returns its slowest answer."""
    slowest, done, deadline = 0.0, None, time.monotonic() + seconds

    def timed(address, code, fields):
        nonlocal slowest
        begun = time.monotonic()
        answer = remoting.ask(address, code, fields, timeout=10.0)
        slowest = max(slowest, time.monotonic() - begun)
        check(answer.code == 0, f"{code}: {answer}")
        return answer

    while done is None or time.monotonic() < done + 1.0:
        check(time.monotonic() < deadline, f"it is not so after {seconds} s")
        table = json.loads(timed(cluster.broker(node), remoting.RUNTIME_INFO, {}).body)["table"]
        pulled = timed(cluster.broker(node), remoting.PULL, remoting.pull_fields("T", 0, 0))
        check(list(remoting.records(pulled.body)), "a pull brings nothing")
        timed(cluster.namesrv(node), remoting.ROUTE, {"topic": "T"})
        if done is None and condition(table):
            done = time.monotonic()
        time.sleep(0.03)
    check(slowest < 2.0 * remoting.PATIENCE, f"the node did not answer for {slowest:.1f} s")  # 0.2 s where nothing else runs
    return slowest


def follows_again(cluster, node):
    cluster.odd(node, SYNC_MS, 0)
    leader = cluster.leader()
    wait_for("it to follow", 20, lambda: role_of(cluster, node) in ("FOLLOWER", "LEADER") and cluster.runtime("raftTerm", node) == cluster.runtime("raftTerm", leader))
    wait_for("it to have all", 20, lambda: cluster.runtime("raftAppliedIndex", node) >= cluster.runtime("raftCommitIndex", leader))


@case
def a_vote_that_hangs_does_not_hang_its_node():
    """Nothing is sent, so no sync tells that a disk hangs before a vote is to be stored on it: of a follower whose leader is killed, then of an idle leader."""
    with OddCluster() as cluster:
        load = begin_load(cluster)
        load.wait_for_more()
        load.stop()
        time.sleep(4.0)  # what was sent last is durable, with queues and checkpoint
        leader = cluster.leader()
        hung, other = (leader + 1) % 3, (leader + 2) % 3
        cluster.odd(hung, SYNC_MS, 600000)
        cluster.kill(leader)
        answers = [answers_while(cluster, hung, lambda table: int(table["pageCacheLockTimeMills"]) > 500)]
        refuses(cluster, hung, "its vote cannot be stored")
        cluster.restart(leader)
        answers.append(answers_while(cluster, hung, lambda table: table["raftLeader"] in (f"n{leader}", f"n{other}")))
        check(cluster.leader() != hung, "it leads")
        follows_again(cluster, hung)

        time.sleep(4.0)
        hung = cluster.leader()
        cluster.odd(hung, SYNC_MS, 600000)
        answers.append(answers_while(cluster, hung, lambda table: table["raftRole"] == "LEADER"))  # heartbeats need no disk
        mqadmin(cluster, "transfer", "-i", f"n{(hung + 1) % 3}")
        answers.append(answers_while(cluster, hung, lambda table: table["raftLeader"] == f"n{(hung + 1) % 3}"))
        cluster.create_topic("U", 4)
        more = Load(cluster, "U", 4)
        more.start()
        more.wait_for_more()
        follows_again(cluster, hung)
        more.wait_for_more()
        more.stop()
        return f"its slowest answers took {', '.join(f'{answer * 1000:.0f}' for answer in answers)} ms, {verify(cluster, [load, more])} acknowledged"


@case
def a_full_disk_still_votes():
    """Nothing is free any more on the disk of a node whose vote is needed."""
    with SmallDisk(300) as disk, Cluster(durability="B", settings=SMALL_FILES, stores={0: disk.folder}) as cluster:
        load = begin_load(cluster, pause=0.001)
        wait_for("another leader than the node on the small disk", 30, lambda: cluster.leader() != 0 or cluster.restart(0))
        wait_for("the node on the small disk, which may have been restarted just now", 30, lambda: cluster.runtime("raftTerm", 0))
        ballast = os.path.join(disk.folder, "ballast")
        with open(ballast, "wb") as file:
            size, piece = 0, 64 * MIB
            while piece >= 4096:  # what is left goes in ever smaller pieces
                try:
                    os.posix_fallocate(file.fileno(), size, piece)
                    size += piece
                except OSError:
                    piece //= 2
        leader = cluster.leader(but=0)
        term = cluster.runtime("raftTerm", 0)
        cluster.kill(leader)
        # Whoever of the two leads has the other's vote.
        now = cluster.leader(but=leader)
        check(cluster.runtime("raftTerm", now) > term, "no election")
        wait_for("its vote to be on the disk", 10, lambda: cluster.runtime("raftTerm", 0) == cluster.runtime("raftTerm", now))
        load.wait_for_more()
        cluster.restart(leader)
        os.unlink(ballast)
        load.wait_for_more()
        check(cluster.alive(0) and cluster.runtime_table(0)["raftFailed"] == "false", "a full disk was final")
        load.stop()
        return f"n{now} leads, {verify(cluster, load)} acknowledged"
