"""Files that are damaged while a node is down, or while it runs: found, named, mended from the other members, never served."""
import glob
import os

import remoting
from cluster import Cluster, Load, check, verify, wait_for
from e2e import case

SMALL = ["mappedFileSizeCommitLog=4194304"]


def segments(cluster, node):
    return sorted(glob.glob(os.path.join(cluster.folder, f"n{node}", "store", f"dledger-n{node}", "data", "?" * 20)))


def used(path):
    with open(path, "rb") as file:
        return len(file.read().rstrip(b"\0"))


def overwrite(path, place, data):
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(data)


def flip(paths, third):
    size = used(paths[0])
    place = size * (2 * third + 1) // 6
    with open(paths[0], "rb") as file:
        file.seek(place)
        byte = file.read(1)
    overwrite(paths[0], place, bytes([byte[0] ^ 4]))


def zero(paths, third):
    overwrite(paths[0], used(paths[0]) * (2 * third + 1) // 6 // 4096 * 4096, b"\0" * 8192)


def stale(paths, third):
    """A block that holds what stands in another place."""
    with open(paths[0], "rb") as file:
        block = file.read(4096)
    overwrite(paths[0], used(paths[0]) * (2 * third + 1) // 6 // 4096 * 4096, block)


def truncate(paths, _):
    os.truncate(paths[0], os.path.getsize(paths[0]) // 3 + 77)


def missing(paths, _):
    os.unlink(paths[0])


def same_logs(cluster):
    """The committed part of all logs, byte by byte: the shortest common length of used bytes."""
    logs = []
    for node in range(3):
        data = b""
        for path in segments(cluster, node):
            with open(path, "rb") as file:
                data += file.read()
        logs.append(data)
    end = min(len(log.rstrip(b"\0")) for log in logs)
    return all(log[:end] == logs[0][:end] for log in logs), end


def max_offset(cluster, node):
    try:
        return remoting.ask(cluster.broker(node), remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}).ext.get("offset")
    except OSError:
        return None


def mended(cluster, nodes):
    return all("whole again" in cluster.output(node) for node in nodes)


def damage_and_restart(damages, durability="B"):
    """damages: by node, what is done to it while all are down. Everything acknowledged must be read from any two of the nodes afterwards."""
    with Cluster(settings=SMALL, durability=durability) as cluster:
        cluster.create_topic("T", 4)
        load = Load(cluster, "T", 4, size=2000)
        load.start()
        wait_for("acknowledgements", 30, lambda: len(load.acknowledged) > 3000)
        load.stop()
        for node in range(3):
            cluster.kill(node)
        for node, work in damages.items():
            work(segments(cluster, node), node)
        for node in range(3):
            cluster.restart(node)
        cluster.leader()
        wait_for("the logs to be whole", 20, lambda: mended(cluster, damages))
        for node in damages:
            check(f"dledger-n{node}/data/" in cluster.output(node) and "at offset" in cluster.output(node), "the file is not named")
        wait_for("equal ends", 20, lambda: len({max_offset(cluster, node) for node in range(3)}) == 1)
        count = verify(cluster, load)
        cluster.stop()
        same, end = same_logs(cluster)
        check(same, "the logs differ")
        return f"{count} acknowledged, {end} bytes equal"


@case
def a_flipped_bit_on_one_node_is_mended():
    """L22: nothing is lost or deleted, the entry comes from the others."""
    return damage_and_restart({1: flip})


@case
def zeros_and_a_stale_block_on_two_nodes_are_mended():
    return damage_and_restart({0: zero, 2: stale})


@case
def a_short_and_a_missing_segment_are_mended():
    return f"{damage_and_restart({0: truncate, 1: flip})}; {damage_and_restart({2: missing})}"


@case
def damage_at_other_places_of_every_node_is_mended():
    return damage_and_restart({0: flip, 1: zero, 2: stale}, durability="A")


@case
def a_lost_vote_file_costs_no_hand():
    """A node without its vote file is heard of, mute, caught up and a voter again, with nothing sent meanwhile."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        check(cluster.send("T", 0, b"before").code == 0, "send")
        node = (cluster.leader() + 1) % 3
        cluster.kill(node)
        vote = os.path.join(cluster.folder, f"n{node}", "store", f"dledger-n{node}", "vote")
        overwrite(vote, 20, b"\xff\xff")
        overwrite(vote, 4116, b"\xff\xff")
        cluster.restart(node)
        wait_for("the node to vote again", 10, lambda: "votes again" in cluster.output(node))
        check("no valid slot" in cluster.output(node) and os.path.exists(vote + ".damaged"), "the file is not named")
        cluster.kill((node + 1) % 3)
        cluster.leader()
        check(cluster.send("T", 0, b"after").code == 0, "send")


@case
def damage_while_it_runs_is_found_by_the_scrub():
    """Nobody reads what is damaged, on the leader and on a follower; the scrub finds it, and the progress of both is seen."""
    settings = SMALL + ["logScrubIntervalSeconds=1", "logScrubBytesPerSecond=67108864"]
    with Cluster(settings=settings) as cluster:
        cluster.create_topic("T", 4)
        load = Load(cluster, "T", 4, size=2000)
        load.start()
        wait_for("acknowledgements", 30, lambda: len(load.acknowledged) > 2500)
        load.stop()
        leader = cluster.leader()
        follower = (leader + 1) % 3
        flip(segments(cluster, leader), 0)
        zero(segments(cluster, follower), 1)
        for node in (leader, follower):
            wait_for("the scrub", 15, lambda node=node: "are repaired" in cluster.output(node))

            def is_seen(node=node):
                """What was damaged may be repaired before the pass that found it has ended."""
                table = cluster.runtime_table(node)
                return table["raftDamagedRanges"] == "0" and table["raftRepairedEntries"] != "0" and table["raftScrubPasses"] != "0"
            wait_for("the progress to be seen", 15, is_seen)
        count = verify(cluster, load)
        cluster.stop()
        check(same_logs(cluster)[0], "the logs differ")
        return f"{count} acknowledged"
