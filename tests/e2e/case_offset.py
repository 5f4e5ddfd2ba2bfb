"""Consumer offsets: who may move them, and what is asked for while nobody leads."""
import json
import threading
import time

import remoting
from case_clients import INVOKE_RESET, RESET
from case_leadership import TRANSFER_LEADERSHIP
from case_metadata import ALL_OFFSETS, DELETE_GROUP, QUERY_OFFSET, UPDATE_GROUP, UPDATE_OFFSET, alike, heart_beat, loads, offset_fields
from cluster import Cluster, check, wait_for
from e2e import case
from failover import bring_back, insist, kill_leader, leader_connection, standing_still


def stored(cluster, group, queue=0):
    return insist(cluster, QUERY_OFFSET, offset_fields(group, "T", queue)).ext.get("offset")


def lead_with(cluster, node):
    """Leadership is handed to it. Killing leaders until it leads would not do: of two that survive, the one with the lower number asks first, is refused by
    the other, which has not missed the leader yet, and loses to it nearly always."""
    def attempt():
        leader = cluster.leader()
        if leader == node:
            return True
        try:
            remoting.ask(cluster.broker(leader), TRANSFER_LEADERSHIP, {"transferee": f"n{node}"})
        except OSError:
            pass
        return False
    wait_for(f"node {node} to lead", 30, attempt)


@case
def offsets_of_a_node_that_was_away():
    """O2: a node that was stopped while the group went on has the newest offsets when it leads. O8: and nothing of a group that was deleted."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        away = cluster.leader()
        for group, value in (("g", 100), ("gone", 100)):
            check(insist(cluster, UPDATE_GROUP, None, b'{"groupName":"%s"}' % group.encode()).code == 0, "200")
            check(insist(cluster, UPDATE_OFFSET, offset_fields(group, "T", 0, value)).code == 0, "15")
        kill_leader(cluster, away)
        cluster.leader(but=away)
        check(insist(cluster, UPDATE_OFFSET, offset_fields("g", "T", 0, 5000)).code == 0, "15")
        check(insist(cluster, DELETE_GROUP, {"groupName": "gone", "removeOffset": True}).code == 0, "207")
        bring_back(cluster, away)
        lead_with(cluster, away)
        check(stored(cluster, "g") == "5000", f"O2: {stored(cluster, 'g')}")
        table = loads(insist(cluster, ALL_OFFSETS, {}).body)["offsetTable"]
        check("T@gone" not in table and table["T@g"] == {"0": 5000}, f"O8: {table}")
        check(stored(cluster, "gone") == "0", "O8: a deleted group begins anew")


@case
def offsets_after_a_partition():
    """O3: a leader that was cut off comes back and changes nothing that was committed meanwhile, nor does it answer what it knew before."""
    with Cluster() as cluster:
        cluster.create_topic("T", 2)
        old = cluster.leader()
        check(insist(cluster, UPDATE_OFFSET, offset_fields("g", "T", 0, 10)).code == 0, "15")
        with remoting.Connection(cluster.broker(old)) as client, remoting.Connection(cluster.broker(old)) as asking, \
                remoting.Connection(cluster.broker(old)) as looking:
            check(asking.request(QUERY_OFFSET, offset_fields("g", "T", 0)).ext["offset"] == "10", "14")
            check(looking.request(remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}).ext["offset"] == "0", "30")
            # Gathered by the old leader and never in the log.
            client.send(UPDATE_OFFSET, offset_fields("g", "T", 0, 11), oneway=True)
            client.send(UPDATE_OFFSET, offset_fields("g", "T", 1, 11), oneway=True)
            with standing_still(cluster, old):
                new = wait_for("another leader", 15, lambda: (lambda n: None if n in (old, None) else (n,))(others_leader(cluster, old)))[0][0]
                with remoting.Connection(cluster.broker(new)) as other:
                    check(other.request(UPDATE_OFFSET, offset_fields("g", "T", 0, 500)).code == 0, "15")
                    check(other.request(UPDATE_OFFSET, offset_fields("g", "T", 1, 500)).code == 0, "15")
                    check(other.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"x").code == 0, "send")
                # Wait in its sockets when it goes on, and it still believes to lead.
                questions = (asking, asking.send(QUERY_OFFSET, offset_fields("g", "T", 0)), "500"), \
                    (looking, looking.send(remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}), "1")
            for connection, opaque, expected in questions:
                try:
                    answer = connection.answer(opaque)
                    check(answer.code == 0 and answer.ext["offset"] == expected, f"O3: answered from before: {answer}, {expected} was expected")
                except ConnectionError:
                    pass
            time.sleep(0.5)
        found, _ = wait_for("equal tables", 10, lambda: alike(cluster))
        check(found["offsets"]["offsetTable"]["T@g"] == {"0": 500, "1": 500}, f"O3: {found['offsets']}")


def others_leader(cluster, but):
    """Who leads by the name servers of the nodes that run."""
    addresses = ";".join(cluster.namesrv(node) for node in range(cluster.nodes) if node != but)
    address = remoting.leader_address(addresses)
    if address is None or address == cluster.broker(but):
        return None
    node = (remoting.split_address(address)[1] - cluster.base - 100) // 10
    try:
        return node if remoting.ask(address, remoting.MAX_OFFSET, {"topic": "T", "queueId": 0}, timeout=0.5).code == 0 else None
    except OSError:
        return None


@case
def offsets_while_a_consumer_commits():
    """O4: a reset against commits on their way: the newest order counts, and holds when the client has applied it. O7: a commit below the stored value is
    taken, alike on all nodes."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader)) as client, remoting.Connection(cluster.broker(leader), version=479) as tool:
            for number in range(10):
                check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"%d" % number).code == 0, "send")
            for value in (100, 50):
                check(client.request(UPDATE_OFFSET, offset_fields("g", "T", 0, value)).code == 0, "15")
            found, _ = wait_for("equal tables", 5, lambda: alike(cluster))
            check(found["offsets"]["offsetTable"]["T@g"] == {"0": 50}, f"O7: {found['offsets']}")

            heart_beat(client, "1.1.1.1@1", "g")
            stop, applied = threading.Event(), threading.Event()
            told = []

            def consume():
                place, after, apply_at = 9, 0.0, None
                while not stop.is_set():
                    if apply_at is not None and time.monotonic() >= apply_at:
                        place, apply_at = 2, None
                        applied.set()
                    if time.monotonic() >= after:
                        client.send(UPDATE_OFFSET, offset_fields("g", "T", 0, place), oneway=True)
                        after = time.monotonic() + 0.1
                    client.receive_some(0.01)
                    for frame in client.frames():
                        if frame.code == RESET and not frame.flag & 1:
                            told.append(frame)
                            apply_at = time.monotonic() + 1.0  # as Java, which takes ten seconds; until then it commits as before
            consumer = threading.Thread(target=consume)
            consumer.start()
            try:
                time.sleep(0.5)
                answer = tool.request(INVOKE_RESET, {"topic": "T", "group": "g", "timestamp": -1, "isForce": True, "queueId": 0, "offset": 2})
                check(answer.code == 0, f"222: {answer}")
                before_applied = 0
                for _ in range(30):
                    check(stored(cluster, "g") == "2", "O4: the reset was undone")
                    before_applied += not applied.is_set()
                    time.sleep(0.05)
                check(applied.wait(5 * remoting.PATIENCE) and before_applied > 3, "the consumer was not told, or at once")
            finally:
                stop.set()
                consumer.join()
            check(len(told) == 1, f"O4: told {len(told)} times")


@case
def a_reset_outlives_the_leader():
    """The leader dies right after a reset, before the consumer has applied it: what the consumer still commits from before does not undo the reset at the next
    leader either, until it has; then all that it commits counts, also at a third one."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        with remoting.Connection(cluster.broker(leader)) as client, remoting.Connection(cluster.broker(leader), version=479) as tool:
            for number in range(10):
                check(client.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"%d" % number).code == 0, "send")
            check(client.request(UPDATE_OFFSET, offset_fields("g", "T", 0, 9)).code == 0, "15")
            heart_beat(client, "1.1.1.1@1", "g")
            answer = tool.request(INVOKE_RESET, {"topic": "T", "group": "g", "timestamp": -1, "isForce": True, "queueId": 0, "offset": 2})
            check(answer.code == 0, f"222: {answer}")
            kill_leader(cluster, leader)
        cluster.leader(but=leader)
        for value in (9, 10):
            check(insist(cluster, UPDATE_OFFSET, offset_fields("g", "T", 0, value)).code == 0, "15")
            with leader_connection(cluster) as client:
                client.send(UPDATE_OFFSET, offset_fields("g", "T", 0, value), oneway=True)
                time.sleep(0.3)  # longer than one-way commits are gathered
            check(stored(cluster, "g") == "2", f"the reset was undone: {stored(cluster, 'g')}")
        for value in (3, 10):  # applied
            check(insist(cluster, UPDATE_OFFSET, offset_fields("g", "T", 0, value)).code == 0, "15")
            check(stored(cluster, "g") == str(value), f"{stored(cluster, 'g')} instead of {value}")
        bring_back(cluster, leader)
        kill_leader(cluster, (second := cluster.leader()))
        cluster.leader(but=second)
        check(insist(cluster, UPDATE_OFFSET, offset_fields("g", "T", 0, 9)).code == 0, "15")
        check(stored(cluster, "g") == "9", "the hold is back")


@case
def pulls_at_the_end_while_leaders_change():
    """O9: a consumer at the very end of its queue is never told that its offset is wrong, whoever leads."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        for number in range(7):
            check(cluster.send("T", 0, b"%d" % number).code == 0, "send")
        for node in range(3):
            wait_for("all nodes to have them", 5,
                     lambda node=node: b'"maxOffset":7' in remoting.ask(cluster.broker(node), 202, {"topic": "T"}).body)
        stop = threading.Event()
        wrong, counts = [], {}

        def pull(node):
            while not stop.is_set():
                try:
                    with remoting.Connection(cluster.broker(node), timeout=1.0) as client:
                        while not stop.is_set():
                            answer = client.request(remoting.PULL, remoting.pull_fields("T", 0, 7, hold_ms=50))
                            counts[answer.code] = counts.get(answer.code, 0) + 1
                            if answer.code == 19 and answer.ext["nextBeginOffset"] != "7" or answer.code not in (14, 19, 1):
                                wrong.append((node, answer))
                                return
                            if answer.code == 1:
                                check("offset" not in (answer.remark or ""), f"{answer}")
                except OSError:
                    time.sleep(0.01)
        threads = [threading.Thread(target=pull, args=(node,)) for node in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                leader = cluster.leader()
                kill_leader(cluster, leader, 0.05)
                time.sleep(0.2)
                bring_back(cluster, leader)
            wait_for("pulls to be answered", 10, lambda: wrong or counts.get(19, 0) > 20)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        check(not wrong, f"O9: {wrong[:2]}")
        return json.dumps(counts)
