"""Three nodes under kill -9, restarts and leader changes: nothing acknowledged is lost, moved or doubled."""
import contextlib
import glob
import os
import random
import signal
import subprocess
import time

import remoting
from cluster import BIN, Cluster, Load, Ports, check, verify, wait_for
from e2e import case, rounds


@case
def round_trip():
    with Cluster() as cluster:
        cluster.create_topic("T", 2)
        for i in range(20):
            answer = cluster.send("T", i % 2, b"body %d" % i, "KEYS\x01k%d\x02TAGS\x01TagA" % i)
            check(answer.code == 0 and answer.ext["queueOffset"] == str(i // 2), f"send {i}: {answer}")
        with remoting.Connection(cluster.broker(cluster.leader())) as connection:
            for queue in range(2):
                found = remoting.read_queue(connection, "T", queue)
                check([r.body for r in found] == [b"body %d" % i for i in range(20) if i % 2 == queue], f"queue {queue}: {[r.body for r in found]}")
                check([r.offset for r in found] == list(range(10)), "queue offsets")
        # A follower forwards a send, and all name servers say the same.
        leader = cluster.leader()
        follower = (leader + 1) % 3
        answer = cluster.send("T", 0, b"forwarded", node=follower)
        check(answer.code == 0 and answer.ext["queueOffset"] == "10", f"send to a follower: {answer}")
        for node in range(3):
            wait_for(f"name server {node} to name the leader", 5, lambda node=node: remoting.leader_address(cluster.namesrv(node)) == cluster.broker(leader))


@case
def each_ok_shows_at_once():
    """A pull and a max-offset call right after an OK see the message."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        with remoting.Connection(cluster.broker(cluster.leader())) as connection:
            for i in range(200):
                answer = connection.request(remoting.SEND_V2, remoting.send_fields("T", 0), b"%d" % i)
                check(answer.code == 0, f"send: {answer}")
                answer = connection.request(remoting.MAX_OFFSET, {"topic": "T", "queueId": 0})
                check(answer.ext["offset"] == str(i + 1), f"max offset after {i + 1} acknowledgements: {answer}")
                answer = connection.request(remoting.PULL, remoting.pull_fields("T", 0, i))
                check(answer.code == 0 and [r.body for r in remoting.records(answer.body)] == [b"%d" % i], f"pull right after the OK: {answer}")


@case
def role_change_is_registered_everywhere():
    with Cluster() as cluster:
        old = cluster.leader()
        cluster.kill(old)
        rest = [node for node in range(3) if node != old]
        new = cluster.leader(but=old)
        # From the first name server that knows to the last.
        _, late = wait_for("every name server to know the new leader", 5,
                           lambda: all(remoting.leader_address(cluster.namesrv(node)) == cluster.broker(new) for node in rest))
        check(late < 0.5 * remoting.PATIENCE, f"the last name server knew {late:.2f} s after the first")
        cluster.restart(old)
        wait_for("the restarted name server to know the leader", 5, lambda: remoting.leader_address(cluster.namesrv(old)) == cluster.broker(new))


@case
def send_while_the_cluster_starts():
    """mqadmin sendMessage, typed before any broker leads, waits for one."""
    with Cluster(nodes=3) as cluster:
        for node in range(3):
            cluster.kill(node)
        cluster.restart(0)  # alone: its name server answers, nobody leads
        wait_for("the name server to answer", 5, lambda: not Ports.is_free(cluster.base))
        with subprocess.Popen([os.path.join(BIN, "mqadmin"), "sendMessage", "-n", cluster.namesrv(0), "-t", "early", "-p", "hello"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sender:
            check("waiting" in sender.stderr.readline(), "mqadmin does not say that it waits")
            cluster.restart(1)
            out, err = sender.communicate(timeout=20 * remoting.PATIENCE)
            check(sender.returncode == 0 and "SEND_OK" in out, f"mqadmin sendMessage: {out}{err}")


def pause(low, high):
    time.sleep(random.uniform(low, high))


@case
def kill_leader_under_load():
    count = rounds(5, 30)
    with Cluster() as cluster:
        cluster.create_topic("T", 4)
        load = Load(cluster, "T", 4)
        load.start()
        for _ in range(count):
            leader = cluster.leader()
            pause(0.2, 0.6)
            cluster.kill(leader)
            before = len(load.acknowledged)
            wait_for("acknowledgements after the leader's end", 15, lambda: len(load.acknowledged) > before)  # pylint: disable=cell-var-from-loop
            pause(0.0, 0.3)
            cluster.restart(leader)
        load.stop()
        return f"{count} rounds, {verify(cluster, load)} acknowledged, longest gap {load.longest_gap:.2f} s"


@case
def kill_any_node_under_load():
    count = rounds(3, 10)
    with Cluster(durability="B") as cluster:
        cluster.create_topic("T", 4)
        load = Load(cluster, "T", 4)
        load.start()
        for _ in range(count):
            node = random.randrange(3)
            pause(0.1, 0.5)
            cluster.kill(node)
            pause(0.0, 1.0)
            cluster.restart(node)
            cluster.leader()
        before = len(load.acknowledged)
        wait_for("acknowledgements at the end", 15, lambda: len(load.acknowledged) > before)
        load.stop()
        return f"{count} rounds, {verify(cluster, load)} acknowledged"


def kill_all_nodes(durability):
    count = rounds(2, 6)
    with Cluster(durability=durability) as cluster:
        cluster.create_topic("T", 4)
        load = Load(cluster, "T", 4)
        load.start()
        for _ in range(count):
            before = len(load.acknowledged)
            wait_for("acknowledgements", 20, lambda: len(load.acknowledged) > before + 100)  # pylint: disable=cell-var-from-loop
            pause(0.1, 0.5)
            for node in random.sample(range(3), 3):
                os.kill(cluster.pid(node), signal.SIGKILL)
            for node in random.sample(range(3), 3):
                cluster.restart(node)
            cluster.leader(30)
        before = len(load.acknowledged)
        wait_for("acknowledgements at the end", 15, lambda: len(load.acknowledged) > before)
        load.stop()
        return f"class {durability}, {count} rounds, {verify(cluster, load)} acknowledged"


@case
def kill_all_nodes_class_a():
    return kill_all_nodes("A")


@case
def kill_all_nodes_class_b():
    return kill_all_nodes("B")


@case
def clean_restart_goes_on():
    with Cluster() as cluster:
        cluster.create_topic("T", 4)
        loads = []
        for _ in range(2):
            load = Load(cluster, "T" if not loads else "U", 4)
            if loads:
                cluster.create_topic("U", 4)
            load.start()
            time.sleep(1)
            load.stop()
            loads.append(load)
            cluster.stop()
            for node in range(3):
                check(not cluster.alive(node), f"node {node} runs after stop")
            cluster.start()
        answer = cluster.send("T", 0, b"one more")
        count = verify(cluster, loads[1])
        with remoting.Connection(cluster.broker(cluster.leader())) as connection:
            last = remoting.read_queue(connection, "T", 0)[-1]
        check(answer.code == 0 and last.body == b"one more" and last.offset == int(answer.ext["queueOffset"]), f"send after restarts: {answer}")
        return f"{count} acknowledged"


@case
def rolling_files_and_rebuilt_queues():
    """Several segments and queue files; consume queues that were deleted come back byte for byte."""
    with Cluster(settings=["mappedFileSizeCommitLog=4194304"]) as cluster:
        cluster.create_topic("T", 2)
        load = Load(cluster, "T", 2, size=2000)
        load.start()
        wait_for("several segments", 60, lambda: len(load.acknowledged) > 8000)
        load.stop()
        verify(cluster, load)
        cluster.stop()
        follower = 1
        pattern = os.path.join(cluster.folder, f"n{follower}", "store", "consumequeue", "T", "*", "*")
        before = {}
        for path in glob.glob(pattern):
            with open(path, "rb") as file:
                before[path] = file.read()
        check(len(before) >= 4, f"consume queue files: {sorted(before)}")
        for path in before:
            os.unlink(path)
        subprocess.run(["rm", "-f", os.path.join(cluster.folder, f"n{follower}", "store", "checkpoint")], check=True)
        cluster.start()
        wait_for("the queues to be there again", 30, lambda: all(os.path.exists(path) for path in before))
        cluster.stop()
        for path, content in before.items():
            with open(path, "rb") as file:
                check(file.read() == content, f"{path} differs from what it was")
        cluster.start()
        return f"{verify(cluster, load)} acknowledged, {len(before)} files"


def conf_of(cluster, node, *changes, name=None):
    """A broker.conf like that of a node, with pairs of (old, new) text replaced, in a file of its own or (without a name) in its place."""
    path = os.path.join(cluster.folder, f"n{node}", "broker.conf")
    with open(path, encoding="ascii") as file:
        text = file.read()
    for old, new in changes:
        check(old in text, f"{old} is not in {path}")
        text = text.replace(old, new)
    if name is not None:
        path = os.path.join(cluster.folder, name)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    return path


def ended(conf):
    """Exit status and output of a broker that must end by itself."""
    done = subprocess.run([os.path.join(BIN, "mqbroker"), "-c", conf], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=20 * remoting.PATIENCE, check=False)
    return done.returncode, done.stdout


@contextlib.contextmanager
def another_broker(conf):
    process = subprocess.Popen([os.path.join(BIN, "mqbroker"), "-c", conf], stdout=subprocess.DEVNULL,  # pylint: disable=consider-using-with
                               stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@case
def second_process_refuses():
    with Cluster(nodes=1) as cluster:
        # Other ports: the directory alone must stop it.
        status, text = ended(conf_of(cluster, 0, (f"listenPort={cluster.base + 100}", f"listenPort={cluster.base + 150}"),
                                     (f"namesrvPort={cluster.base}", f"namesrvPort={cluster.base + 8}"), name="other.conf"))
        check(status not in (0, 139, 134), f"the second process ended with status {status}")
        check("another process" in text or "locked" in text, f"the second process said: {text}")
        check(cluster.alive(0) and cluster.leader() == 0, "the first process was disturbed")


@case
def ports_in_use_refuse():
    with Cluster(nodes=1) as cluster:
        status, text = ended(conf_of(cluster, 0, (os.path.join(cluster.folder, "n0"), os.path.join(cluster.folder, "n9")), name="other.conf"))
        check(status == 1, f"the second process ended with status {status}: {text}")
        check(any(str(port) in text for port in (cluster.base, cluster.base + 100, cluster.base + 98)), f"no port is named: {text}")


def refuses_peer(change, words):
    """Node 2 comes back with a changed configuration: it must not join, the others go on, and somebody says why."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        if cluster.leader() == 2:
            cluster.kill(2)
            cluster.leader(but=2)
        else:
            cluster.kill(2)
        with another_broker(conf_of(cluster, 2, change)):
            def said():
                text = "".join(cluster.output(node) for node in range(3))
                return any(word in text for word in words)
            wait_for(f"a message with one of {words}", 10, said)
            for i in range(20):
                answer = cluster.send("T", 0, b"%d" % i)
                check(answer.code == 0, f"the others are disturbed: {answer}")


@case
def peer_of_another_group_is_refused():
    refuses_peer(("dLegerGroup=broker-a", "dLegerGroup=broker-b"), ["broker-b"])


@case
def peer_of_another_cluster_is_refused():
    refuses_peer(("brokerClusterName=DefaultCluster", "brokerClusterName=OtherCluster"), ["OtherCluster"])


@case
def same_id_twice_is_refused():
    """A fourth process that calls itself n1 too, on a directory of its own."""
    with Cluster() as cluster:
        cluster.create_topic("T", 1)
        twin = conf_of(cluster, 1, (os.path.join(cluster.folder, "n1"), os.path.join(cluster.folder, "n8")),
                       (f"listenPort={cluster.base + 110}", f"listenPort={cluster.base + 180}"),
                       (f"namesrvPort={cluster.base + 1}", f"namesrvPort={cluster.base + 8}"),
                       (f"n1-127.0.0.1:{cluster.peer_port(1)}", f"n1-127.0.0.1:{cluster.peer_port(8)}"), name="twin.conf")
        with another_broker(twin):
            load = Load(cluster, "T", 1)
            load.start()
            time.sleep(3)
            wait_for("acknowledgements beside the twin", 10, lambda: len(load.acknowledged) > 100)
            load.stop()
            verify(cluster, load)
            text = "".join(cluster.output(node) for node in (0, 1, 2, 8))
            check("n1" in text and any(word in text for word in ("refused", "already", "twice", "same id", "another")), f"nobody complains: {text[-2000:]}")
