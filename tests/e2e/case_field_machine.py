"""Cases of the field, areas memory and ops (tests/cases.md): what a node takes of its machine, and how it behaves as a process among others."""
import os
import shutil
import resource
import signal
import socket
import struct
import threading
import time

import odd_machine
import remoting
from case_cluster import another_broker, conf_of
from cluster import Cluster, Load, check, verify, wait_for
from e2e import case, rounds
from process import cpu_seconds, memory_kb


@case
def m4_many_senders_on_a_small_machine():
    """M4: 64 connections send messages of 256 KiB at once to a broker that may have 256 MiB of memory, held to it by the kernel."""
    with Cluster(nodes=1, durability="A") as cluster:
        cluster.create_topic("T", 4)
        pid = cluster.pid(0)
        if not os.environ.get("ASAN_OPTIONS"):
            resource.prlimit(pid, resource.RLIMIT_DATA, (256 << 20, 256 << 20))
        body, connections = os.urandom(256 << 10), [remoting.Connection(cluster.broker(0), 20.0) for _ in range(64)]
        retried = 0
        for _ in range(rounds(2, 4, 40)):
            waiting = [(c, c.send(remoting.SEND_V2, remoting.send_fields("T", i % 4), body)) for i, c in enumerate(connections)]
            while waiting:
                again = []
                for connection, opaque in waiting:
                    answer = connection.answer(opaque)
                    check(answer.code in (0, 14), f"{answer}")
                    if answer.code == 14:  # as a client does
                        again.append((connection, connection.send(remoting.SEND_V2, remoting.send_fields("T", 0), body)))
                        retried += 1
                waiting = again
        for connection in connections:
            connection.close()
        check(cluster.alive(0), "the broker ended")
        return f"{memory_kb(pid) // 1024} MiB, {retried} sends refused once"


@case
def m5_more_queues_than_mappings():
    """M5: a message in each of thousands of queues (in full 80,000, more than vm.max_map_count): files are mapped up to a bound of ours."""
    count = rounds(2, 4, 80)
    with open("/proc/sys/vm/max_map_count", encoding="ascii") as file:
        allowed = int(file.read())
    with Cluster(nodes=1, durability="A", settings=["mappedFileSizeConsumeQueue=2000"]) as cluster:
        with remoting.Connection(cluster.broker(0), 30.0) as connection:
            for topic in range(count):
                cluster.create_topic(f"T{topic}", 1000)
                opaques = [connection.send(remoting.SEND_V2, remoting.send_fields(f"T{topic}", queue), b"x") for queue in range(1000)]
                for opaque in opaques:
                    answer = connection.answer(opaque)
                    check(answer.code == 0, f"{answer}")
            with open(f"/proc/{cluster.pid(0)}/maps", encoding="ascii") as file:
                maps = sum(1 for _ in file)
            check(maps < min(allowed, 34000), f"{maps} mappings")
            for topic in (0, count // 2, count - 1):
                for queue in (0, 500, 999):
                    answer = connection.request(remoting.PULL, remoting.pull_fields(f"T{topic}", queue, 0))
                    check(answer.code == 0, f"T{topic}/{queue}: {answer}")
        return f"{count * 1000} queues, {maps} of {allowed} mappings"


@case
def m6_a_follower_flaps_under_waiting_sends():
    """M6: a follower is killed and comes back again and again under load: nothing is left waiting, nothing is lost."""
    with Cluster(durability="A") as cluster:
        cluster.create_topic("T", 4)
        leader = cluster.leader()
        load = Load(cluster, "T", 4, window=200)
        load.start()
        for turn in range(rounds(3, 6, 60)):
            follower = (leader + 1 + turn % 2) % 3
            cluster.kill(follower)
            cluster.restart(follower)
        load.stop()
        wait_for("all sends to be answered", 5, lambda: cluster.runtime("pendingSends", leader) == 0)
        return f"{verify(cluster, load)} acknowledged"


@case
def m7_parked_pulls_of_dead_clients():
    """M7: clients die with pulls parked, many times; their pulls go, those of the living are woken."""
    with Cluster(nodes=1, durability="A") as cluster:
        cluster.create_topic("T", 1)
        before = None
        with remoting.Connection(cluster.broker(0), 20.0) as alive:
            for turn in range(rounds(200, 600, 10000)):
                dying = socket.create_connection(remoting.split_address(cluster.broker(0)))
                dying.sendall(b"".join(remoting.request_frame(remoting.PULL, remoting.pull_fields("T", 0, 1000000 + i, hold_ms=30000, group=f"g{i}"), opaque=i)
                                       for i in range(5)))
                if turn % 10 == 0:
                    time.sleep(0.01)
                dying.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                dying.close()
                if turn % 50 == 0:
                    offset = turn // 50
                    opaque = alive.send(remoting.PULL, remoting.pull_fields("T", 0, offset, hold_ms=15000))
                    time.sleep(0.02)
                    check(cluster.send("T", 0, b"wake").code == 0, "send")
                    start = time.monotonic()
                    check(alive.answer(opaque).code == 0 and time.monotonic() - start < 2 * remoting.PATIENCE, "a living client's pull was not woken")
                    before = before or memory_kb(cluster.pid(0))
            wait_for("the pulls of the dead to go", 10, lambda: cluster.runtime("heldPulls") == 0)
        grown = memory_kb(cluster.pid(0)) - before
        check(grown < 8192, f"memory grew by {grown} kB")


@case
def q2_dashes_in_host_names_and_long_ids():
    """Q2: a peer list whose hosts have dashes and whose ids differ in length is cut at the first dash."""
    with Cluster(nodes=1) as cluster:
        cluster.run("stop")
        shutil.rmtree(os.path.join(cluster.folder, "n0", "store"))  # once there is a log it says who the members are
        path = conf_of(cluster, 0)
        with open(path, encoding="ascii") as file:
            lines = [line for line in file.read().splitlines() if not line.startswith(("dLegerPeers", "enableDLegerCommitLog", "dLegerSelfId"))]
        peers = f"n0-127.0.0.1:{cluster.base + 200};n10-my-own-host-1.invalid:{cluster.base + 201};n2-a--b.invalid:{cluster.base + 202}"
        with open(path, "w", encoding="ascii") as file:
            file.write("\n".join([*lines, "enableDLegerCommitLog=true", "dLegerSelfId=n0", f"dLegerPeers={peers}"]) + "\n")
        with another_broker(path):
            def members():
                try:
                    return {key: value for key, value in cluster.runtime_table().items() if key.startswith("raftMember_")}
                except (OSError, ValueError):
                    return None
            found = wait_for("the broker", 10, members)[0]
            places = {key: value.split(",")[0] for key, value in found.items()}
            check(places == {"raftMember_n0": f"127.0.0.1:{cluster.base + 200}", "raftMember_n10": f"my-own-host-1.invalid:{cluster.base + 201}",
                             "raftMember_n2": f"a--b.invalid:{cluster.base + 202}"}, f"{places}")


@case
def q3_a_peer_moves_to_another_address():
    """Q3: a member's name points elsewhere while its peers run: they reach it there, without a restart of theirs. It cannot reach them."""
    cluster = Cluster(durability="A")
    library, hosts = odd_machine.build(cluster.folder), os.path.join(cluster.folder, "hosts")

    def write(path, others, third):
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(f"host-0 {others}\nhost-1 {others}\nhost-2 {third}\n")
        os.replace(path + ".new", path)

    def move(address):
        write(hosts, "127.0.0.1", address)
    move("127.0.0.1")
    write(hosts + ".2", "255.255.255.255", "127.0.0.1")
    peers = ";".join(f"n{i}-host-{i}:{cluster.base + 200 + i}" for i in range(3))
    cluster.settings.append(f"dLegerPeers={peers}")
    os.environ["LEDGERMQ_WRAP"] = f"env LD_PRELOAD={odd_machine.preload(library)} ODD_HOSTS={hosts}"
    try:
        with cluster:
            cluster.create_topic("T", 1)
            move("255.255.255.255")  # of no machine: connecting to it fails at once, whatever stands behind the default route
            cluster.kill(2)
            os.environ["LEDGERMQ_WRAP"] = f"env LD_PRELOAD={odd_machine.preload(library)} ODD_HOSTS={hosts}.2"
            cluster.restart(2)
            leader = cluster.leader()
            check(leader != 2, "who cannot be reached leads")

            def connected():
                return cluster.runtime_table(leader)["raftMember_n2"].split(",")[4] == "true"
            time.sleep(1.5)
            check(not connected(), "the old address still serves")
            move("127.0.0.2")
            took = wait_for("the member at its new address", 5, connected)[1]
            check(cluster.send("T", 0, b"x").code == 0, "send")
            return f"{took * 1000:.0f} ms"
    finally:
        del os.environ["LEDGERMQ_WRAP"]


@case
def q4_an_idle_group_sleeps():
    """Q4: three nodes without clients, the leader too, use next to nothing."""
    with Cluster() as cluster:
        cluster.leader()
        time.sleep(0.5)
        seconds = rounds(2.0, 4.0, 60.0)
        before = [cpu_seconds(cluster.pid(node)) for node in range(3)]
        time.sleep(seconds)
        used = [100 * (cpu_seconds(cluster.pid(node)) - before[node]) / seconds for node in range(3)]
        check(max(used) < 4, f"{used} % of a core")
        return ", ".join(f"{each:.1f} %" for each in used)


def addresses(cluster, node):
    """Of each broker in a name server's cluster list: id -> address. None: it lists nothing, or a node that was just started does not listen yet."""
    try:
        answer = remoting.ask(cluster.namesrv(node), 106, {})
    except ConnectionRefusedError:
        return None
    text, name = answer.body.decode(), '"brokerAddrs":{'
    if answer.code != 0 or name not in text:
        return None  # nobody has registered with it since it was started
    start = text.index(name) + len(name)
    pairs = text[start:text.index("}", start)].split(",")
    return [(pair.split(":", 1)[0].strip('"'), pair.split(":", 1)[1].strip('"')) for pair in pairs if ":" in pair]


@case
def q6_each_address_once():
    """Q5, Q6: leaders are killed one after the other. Whoever follows, a follower since its start, takes a send at once; no node is listed twice."""
    with Cluster(durability="A") as cluster:
        cluster.create_topic("T", 1)
        leader = cluster.leader()
        for _ in range(rounds(2, 4, 30)):
            cluster.kill(leader)
            old, leader = leader, cluster.leader(but=leader)
            start = time.monotonic()
            answer = cluster.send("T", 0, b"x", node=leader)
            check(answer.code == 0, f"the new leader's first send: {answer}")
            check(time.monotonic() - start < 1 * remoting.PATIENCE, "the new leader's first send takes a second")
            cluster.restart(old)

            def listed():
                seen = [addresses(cluster, node) for node in range(3)]
                return seen if all(each is not None and len(each) == 3 for each in seen) else None
            for seen in wait_for("three nodes in each list", 15, listed)[0]:
                check(len({address for _, address in seen}) == 3, f"listed twice: {seen}")
                check(sum(number == "0" for number, _ in seen) == 1, f"leaders: {seen}")


@case
def q7_a_log_that_cannot_flood():
    """Q7: a peer that is away and clients that send rubbish cost a bounded number of lines; files of the log are rolled and the oldest removed."""
    with Cluster(durability="A", settings=["logFileSize=65536", "logFileCount=2"]) as cluster:
        leader = cluster.leader()
        away = (leader + 1) % 3
        cluster.kill(away)
        before = len(cluster.output(leader).splitlines())
        end = time.monotonic() + rounds(2, 4, 60)
        knocks = 0
        while time.monotonic() < end:
            with remoting.Connection(cluster.broker(leader)) as connection:
                connection.send_raw(b"\xff" * 64)
                check(connection.closed_by_peer(), "rubbish is not closed")
            knocks += 1
        lines = len(cluster.output(leader).splitlines()) - before
        check(lines < 60, f"{lines} lines about {knocks} bad clients and one peer")
        logs = os.path.join(cluster.folder, f"n{leader}", "logs")
        size = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(logs) for name in names)
        check(size < 4 * 65536, f"{size} bytes of logs")
        return f"{lines} lines, {knocks} bad clients"


@case
def q8_sigterm_under_load():
    """Q8: SIGTERM under load, in turn to each node: it ends by itself soon, with nothing lost and all it wrote in order."""
    with Cluster(durability="A") as cluster:
        cluster.create_topic("T", 4)
        load = Load(cluster, "T", 4, window=64)
        load.start()
        worst = 0.0
        for turn in range(rounds(3, 6, 50)):
            node = turn % 3
            time.sleep(0.2)
            stops = cluster.output(node).count("the broker has stopped")
            os.kill(cluster.pid(node), signal.SIGTERM)
            worst = max(worst, wait_for(f"node {node} to end", 10, lambda node=node: not cluster.alive(node))[1])
            check(cluster.output(node).count("the broker has stopped") > stops, "it did not stop cleanly")
            cluster.restart(node)
            cluster.leader()
        load.stop()
        threads = threading.active_count()
        return f"{verify(cluster, load)} acknowledged, longest stop {worst * 1000:.0f} ms, {threads} threads here"
