"""Members that come and go under load, what a removed one does, and what is said of it."""
import json
import os
import random
import subprocess
import time

import remoting
from chaos_load import QUEUES, ChaosLoad
from cluster import Cluster, Failed, Load, begin_load, check, verify, wait_for
from case_leadership import mqadmin
from e2e import case, rounds
from failover import standing_still
from task import Task


CHANGE_MEMBER = 981
CHANGE_SECONDS = 120 + 60 * remoting.PATIENCE  # one call of mqadmin, and those before it that met no name server


class Grown(Cluster):
    """Begins with one node that has a peer port. The list of name servers that a load uses names all nodes there will ever be."""

    def __init__(self, nodes=1, **more):
        super().__init__(nodes=nodes, **more)

    def start(self):
        os.environ["LEDGERMQ_GROW"] = "1"
        try:
            super().start()
        finally:
            del os.environ["LEDGERMQ_GROW"]

    def add_node(self):
        node = int(self.run("add-node").stdout)
        self.nodes = node + 1
        return node

    def peer(self, node):
        return f"127.0.0.1:{self.peer_port(node)}"

    def add(self, node):
        mqadmin(self, "member", "add", "-i", f"n{node}", "-a", self.peer(node), "-w", "60")

    def remove(self, node):
        mqadmin(self, "member", "remove", "-i", f"n{node}", "-w", "60")

    def members(self):
        """As the leader says: id -> role."""
        table = dict(item for item in self.runtime_table(self.leader(), 3.0).items() if item[0].startswith("raftMember_"))
        return {key[len("raftMember_"):]: value.split(",")[1] for key, value in table.items()}


def role_of(cluster, node):
    try:
        return cluster.runtime_table(node, 1.0)["raftRole"]
    except OSError:
        return None


@case
def one_three_five_three_under_load():
    with Grown(durability="B") as cluster:
        load = begin_load(cluster)
        for _ in range(4):
            cluster.add(cluster.add_node())
        check(sorted(cluster.members()) == ["n0", "n1", "n2", "n3", "n4"], cluster.members())
        for node in (0, 1):
            cluster.remove(node)
        check(sorted(cluster.members()) == ["n2", "n3", "n4"], cluster.members())
        load.wait_for_more(seconds=10)
        # Those that are left can do without any of them, and those that went do not disturb.
        for node in (0, 1):
            wait_for(f"n{node} to know that it was removed", 10, lambda: role_of(cluster, node) == "REMOVED")
            check("was removed from group" in cluster.output(node) and "member add" in cluster.output(node), "it does not say so")
        cluster.restart(0)
        wait_for("n0 to know that it was removed after its restart", 15, lambda: role_of(cluster, 0) == "REMOVED")
        cluster.kill(cluster.leader())
        load.wait_for_more(seconds=10)
        load.stop()
        return f"{verify(cluster, load)} acknowledged, longest gap {load.longest_gap * 1000:.0f} ms"


@case
def members_change_while_nodes_die():
    """L14: 1 -> 3 -> 5 -> 3 nodes under full load, at a random moment of each step one of them is killed or stands still; an interrupted command is given again.
    All that was acknowledged is there at each member, once and in order."""
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    chance = random.Random(seed)
    notes = []
    for number in range(rounds(1, 2, 50)):
        with Grown(durability="B", settings=["messageIndexEnable=false"]) as cluster:
            load = full_load(cluster)
            members, steps = {0}, 0
            for _ in range(4):
                node = cluster.add_node()
                members.add(node)
                with_a_kill(cluster, chance, members, lambda: cluster.add(node))  # pylint: disable=cell-var-from-loop
                steps += 1
            for node in chance.sample(sorted(members), 2):
                with_a_kill(cluster, chance, members, lambda: cluster.remove(node))  # pylint: disable=cell-var-from-loop
                members.discard(node)
                steps += 1
            have = wait_for("the members that were asked for", 10, lambda: (sorted(cluster.members()) == [f"n{i}" for i in sorted(members)],))[0]
            check(have[0], f"seed {seed}, round {number}: {cluster.members()} instead of {members}")
            load.wait_for_more(seconds=15)
            notes.append(verify_full_load(cluster, load, sorted(members)))
    return f"seed {seed}; {'; '.join(notes)}"


def full_load(cluster):
    """As much as the nodes take: four connections that always have 64 sends each on their way."""
    cluster.create_topic("chaos", QUEUES)
    load = ChaosLoad(";".join(cluster.namesrv(node) for node in range(5)), rate=200000, seconds=300, connections=4, window=4 * 64)
    cluster.loads.append(load)  # which ends it
    load.wait_for_more()
    return load


def verify_full_load(cluster, load, members):
    load.ask("stop")

    def all_alike():
        tables = [cluster.runtime_table(node) for node in members]
        committed = max(int(table["raftCommitIndex"]) for table in tables)
        return all(int(table["raftAppliedIndex"]) >= committed for table in tables)
    wait_for("all members to hold the same", 60, all_alike)
    count = load.ask("count")
    load.verify([cluster.broker(node) for node in members])
    check(not load.problems, lambda: f"{load.problems[0]}, {len(load.problems)} problems in all")
    check(count["offered"] > count["sent"], "the load was never full")
    return f"{count['acknowledged']} acknowledged in {count['seconds']:.0f} s"


def change_is_asked(change):
    try:
        change()
    except Failed as error:
        if "name server" in str(error):
            return False
        raise
    return True


def with_a_kill(cluster, chance, members, change):
    """One of those given, members or about to be, is killed at a random moment of the change and comes back; or nobody hears it for a while."""
    victim = chance.choice(sorted(members))
    # mqadmin ends when no name server answers, as while one of two nodes is down and the other one just starts: then it is given again.
    changed = Task(lambda: wait_for("a name server for mqadmin", 60, lambda: change_is_asked(change)))
    time.sleep(chance.uniform(0, 0.3))
    if chance.random() < 0.3:
        with standing_still(cluster, victim):
            time.sleep(chance.uniform(0.1, 1.5))
    else:
        cluster.kill(victim)
        time.sleep(chance.uniform(0, 0.2))
        cluster.restart(victim)
    changed.result(CHANGE_SECONDS)


@case
def a_node_dies_while_it_joins():
    """Killed with half a log it is still the node that was added, not one that was removed: that log ends before the entry that added it."""
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    chance = random.Random(seed)
    with Grown(durability="B") as cluster:
        cluster.create_topic("T", 4)
        load = Load(cluster, "T", 4)
        load.start()
        wait_for("a log that takes a while to fetch", 30, lambda: len(load.acknowledged) > 12000)
        for _ in range(4):
            node = cluster.add_node()
            with_a_kill(cluster, chance, {node}, lambda: cluster.add(node))  # pylint: disable=cell-var-from-loop
        check(sorted(cluster.members()) == ["n0", "n1", "n2", "n3", "n4"], cluster.members())
        load.stop()
        return f"seed {seed}, {verify(cluster, load)} acknowledged"


@case
def a_node_joins_while_a_member_stands_still():
    """The member knows less of the group than the node was told already, and says so in the midst of its fetch: it is no less a member for that."""
    with Grown(durability="B") as cluster:
        cluster.create_topic("T", 4)
        load = Load(cluster, "T", 4)
        load.start()
        wait_for("a log that takes a while to fetch", 60, lambda: len(load.acknowledged) > 12000)
        for _ in range(2):
            cluster.add(cluster.add_node())
        node = cluster.add_node()
        wait_for("the node to be told that it is none yet", 20, lambda: "this node is none yet" in cluster.output(node))
        leader = cluster.leader()
        with standing_still(cluster, (leader + 1) % 3):
            time.sleep(1)  # the node knocks there meanwhile
            added = Task(lambda: cluster.add(node))
            wait_for("the node to be told that it is a member", 30, lambda: "this node is a member" in cluster.output(node))
        added.result(CHANGE_SECONDS)
        check(sorted(cluster.members()) == ["n0", "n1", "n2", "n3"], cluster.members())
        load.stop()
        return f"{verify(cluster, load)} acknowledged"


@case
def l15_the_leader_is_removed():
    """L15: it answers, then hands over, then goes; it neither ends nor leads nor disturbs."""
    with Grown(nodes=3, durability="B") as cluster:
        load = begin_load(cluster)
        leader = cluster.leader()
        # Asked by itself for what only another leader can do, it says so at once.
        begun = time.monotonic()
        answer = remoting.ask(cluster.broker(leader), CHANGE_MEMBER, {"action": "demote", "memberId": f"n{leader}"}, timeout=10.0)
        took = time.monotonic() - begun
        check(answer.code == 14 and took < 5, f"{answer} after {took:.1f} s")
        leader = cluster.leader()
        cluster.remove(leader)
        wait_for("the name servers to know another one", 5, lambda leader=leader: cluster.leader() != leader)
        check(f"n{leader}" not in cluster.members(), cluster.members())
        wait_for("it to know that it was removed", 15, lambda: role_of(cluster, leader) == "REMOVED")
        check(cluster.alive(leader), "it ended")
        answer = remoting.ask(cluster.broker(leader), remoting.SEND_V2, remoting.send_fields("T", 0), b"x", timeout=5.0)
        check(answer.code == 14 and "removed from group" in (answer.remark or ""), f"{answer}")
        term = cluster.runtime("raftTerm", cluster.leader())
        cluster.kill(leader)
        cluster.restart(leader)
        wait_for("it to know that after a restart", 15, lambda: role_of(cluster, leader) == "REMOVED")
        load.wait_for_more(seconds=10)
        check(cluster.runtime("raftTerm", cluster.leader()) == term, "it disturbed the others")
        load.stop()
        return f"{verify(cluster, load)} acknowledged, longest gap {load.longest_gap * 1000:.0f} ms"


@case
def dead_member_is_replaced():
    """n2's disk is gone for good; n3 takes its place while n2 stays away. Then n3 restarts with the old list, and n0 comes back empty with its own."""
    with Grown(nodes=3, durability="B") as cluster:
        load = begin_load(cluster)
        cluster.kill(2)
        node = cluster.add_node()
        mqadmin(cluster, "member", "replace", "-o", "n2", "-i", f"n{node}", "-a", cluster.peer(node), "-w", "60")
        check(sorted(cluster.members()) == ["n0", "n1", "n3"], cluster.members())
        again = mqadmin(cluster, "member", "replace", "-o", "n2", "-i", f"n{node}", "-a", cluster.peer(node), "-w", "20")
        check("n2 is removed" in again.stdout, again.stdout)
        # n0's list does not name n3, yet it finds it: also when its directory is empty.
        for wipe in (False, True):
            cluster.kill(0)
            if wipe:
                subprocess.run(["rm", "-rf", os.path.join(cluster.folder, "n0", "store")], check=True)
            cluster.restart(0)
            wait_for("n0 to be back", 20, lambda: role_of(cluster, 0) in ("FOLLOWER", "LEADER"))
        # A majority of n0, n1, n3 without n1: n0 and n3 must know each other.
        wait_for("n0 to be level", 20, lambda: "FOLLOWER" in cluster.members().values() and in_sync(cluster) == 3)
        cluster.kill(1)
        load.wait_for_more(seconds=15)
        # The dead one comes back: it says why it takes no part.
        cluster.restart(2)
        wait_for("n2 to know that it was removed", 15, lambda: role_of(cluster, 2) == "REMOVED")
        answer = remoting.ask(cluster.broker(2), remoting.SEND_V2, remoting.send_fields("T", 0), b"x", timeout=5.0)
        check(answer.code == 14 and "removed from group" in (answer.remark or ""), f"{answer}")
        load.stop()
        return f"{verify(cluster, load)} acknowledged, longest gap {load.longest_gap * 1000:.0f} ms"


def in_sync(cluster):
    return json.loads(mqadmin(cluster, "leader", "-j", must=False).stdout)[0]["inSync"]


@case
def member_changes_that_are_refused():
    with Grown(nodes=3) as cluster:
        cluster.create_topic("T", 1)

        def refused(words, *arguments):
            done = mqadmin(cluster, "member", *arguments, "-w", "1", must=False)
            check(done.returncode == 1 and words in done.stderr, f"member {' '.join(arguments)}: {done}")
        leader = cluster.leader()
        other, third = (leader + 1) % 3, (leader + 2) % 3
        refused("is no member", "promote", "-i", "n7")
        refused("is the address of", "add", "-i", "n7", "-a", cluster.peer(other))
        refused("is not HOST:PORT", "add", "-i", "n7", "-a", "nowhere")
        refused("is a member already", "add", "-i", f"n{other}", "-a", "127.0.0.1:1")
        # One of three is down: a change that would leave one voter of two is refused, and so is a second one beside it.
        cluster.kill(third)
        wait_for("the leader to miss it", 10, lambda: cluster.members().get(f"n{third}") == "UNKNOWN")
        refused("too few of the voters", "remove", "-i", f"n{other}")
        check(cluster.send("T", 0, b"x").code == 0, "the group stands still")
        # A learner that never comes counts for nothing, and goes again.
        mqadmin(cluster, "member", "add", "-l", "-i", "n8", "-a", cluster.peer(8))
        check(cluster.members()["n8"] == "LEARNER", cluster.members())
        refused("is not connected", "promote", "-i", "n8")
        mqadmin(cluster, "member", "remove", "-i", "n8")
        check("n8" not in cluster.members(), cluster.members())
        # A node that nobody added says what to do.
        node = cluster.add_node()
        wait_for("it to say what it waits for", 15, lambda: f"mqadmin member add -i n{node}" in cluster.output(node))
