"""Nodes whose disk is not what it was: wiped, emptied, an old copy. None votes on what it forgot, and each comes back without a hand, with nothing sent
meanwhile."""
import os
import shutil
import time

import remoting
from cluster import Cluster, check, wait_for
from e2e import case


def store(cluster, node):
    return os.path.join(cluster.folder, f"n{node}", "store")


def send_some(cluster, count, size=1000):
    """To the queue 0 of topic T, as a client that tries again while it is answered "not now"; gives how many there are."""
    sent = 0
    address = None
    while sent < count:
        address = address or cluster.broker(cluster.leader())
        try:
            with remoting.Connection(address, 10.0) as connection:
                while sent < count:
                    answer = connection.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"m" * size)
                    if answer.code != 0:
                        check(answer.code == 14, f"a send is answered {answer}")
                        address = None
                        break
                    sent += 1
        except OSError:
            address = None


def position(cluster, node):
    try:
        return cluster.runtime_table(node)["raftCommittedPosition"]
    except OSError:
        return None


def wait_level(cluster, node, seconds=60):
    leader = cluster.leader(30)
    wait_for(f"node {node} to be level", seconds, lambda: position(cluster, node) is not None and position(cluster, node) == position(cluster, leader))


def check_votes(cluster, node):
    """With it alone beside one other node there is a quorum."""
    leader = cluster.leader(30)
    down = next(i for i in range(3) if i not in (node, leader))
    cluster.kill(down)
    send_some(cluster, 5)
    cluster.restart(down)


@case
def l24_l27_an_old_copy_is_recognised():
    """The directory of a node is put back as it was before it acknowledged more: recognised by what the others know of it, mute, caught up, a voter."""
    with Cluster(durability="B") as cluster:
        cluster.create_topic("T", 1)
        send_some(cluster, 50)
        leader = cluster.leader()
        node = (leader + 1) % 3
        cluster.kill(node)
        copy = os.path.join(cluster.folder, "copy")
        shutil.copytree(store(cluster, node), copy)
        cluster.restart(node)
        wait_level(cluster, node)
        send_some(cluster, 200)
        wait_level(cluster, node)
        cluster.kill(node)
        shutil.rmtree(store(cluster, node))
        shutil.copytree(copy, store(cluster, node))
        cluster.restart(node)
        wait_for("the node to be told", 30, lambda: "this directory is an old copy" in cluster.output(node))
        wait_for("it to vote again", 60, lambda: "votes again" in cluster.output(node))
        wait_level(cluster, node)
        check_votes(cluster, node)
        return f"node {node} is level and votes"


@case
def two_of_three_wiped_wait_for_the_third():
    """Two emptied directories never make a leader, however long the third is away; it brings back everything."""
    with Cluster(durability="B") as cluster:
        cluster.create_topic("T", 1)
        send_some(cluster, 100)
        keeper = cluster.leader()
        for node in range(3):
            cluster.kill(node)
        others = [node for node in range(3) if node != keeper]
        for node in others:
            shutil.rmtree(store(cluster, node))
            cluster.restart(node)
        for node in others:
            wait_for(f"node {node} to answer, connected to the other", 30, lambda: position(cluster, node) is not None and
                     sum(line.endswith("connected to member n%d" % next(other for other in others if other != node))
                         for line in cluster.output(node).splitlines()) >= 2)
        # Ten election time-outs and more: nobody leads.
        until = time.monotonic() + 3
        while time.monotonic() < until:
            for node in others:
                check(cluster.runtime_table(node)["raftRole"] != "LEADER", f"node {node} leads an empty group")
            time.sleep(0.1)
        cluster.restart(keeper)
        send_some(cluster, 1)
        for node in others:
            wait_level(cluster, node)
        answer = remoting.ask(cluster.broker(cluster.leader()), remoting.MAX_OFFSET, {"topic": "T", "queueId": 0})
        check(int(answer.ext["offset"]) >= 101, f"of 101 acknowledged messages there are {answer.ext['offset']}")
        return f"{answer.ext['offset']} messages"
