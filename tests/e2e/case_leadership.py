"""Who leads: leadership handed over on request, and to preferred leaders."""
import os
import subprocess

import remoting
from cluster import BIN, Cluster, Load, begin_load, check, verify, wait_for
from e2e import case, rounds
from failover import standing_still

TRANSFER_LEADERSHIP = 980


def mqadmin(cluster, *arguments, must=True):
    done = subprocess.run([os.path.join(BIN, "mqadmin"), *arguments, "-n", cluster.namesrv_addr], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, timeout=120)
    check(done.returncode == 0 or not must, lambda: f"mqadmin {' '.join(arguments)}: {done.stderr.strip()}")
    return done


@case
def transfer_under_load():
    """Each transfer ends at the member that was named; what was acknowledged around it is there."""
    with Cluster() as cluster:
        load = begin_load(cluster)
        for _ in range(rounds(2, 4, 20)):
            leader = cluster.leader()
            target = (leader + 1) % 3
            said = mqadmin(cluster, "transfer", "-i", f"n{target}").stdout
            check(f"went from n{leader} to n{target}" in said, said)
            wait_for("the name servers to know it", 5, lambda target=target: cluster.leader() == target)
            load.wait_for_more(seconds=10)
        leader = cluster.leader()
        mqadmin(cluster, "transfer")
        wait_for("the name servers to know another one", 5, lambda leader=leader: cluster.leader() != leader)
        # Any member takes it, a follower hands it on.
        leader = cluster.leader()
        answer = remoting.ask(cluster.broker((leader + 1) % 3), TRANSFER_LEADERSHIP, {"transferee": f"n{(leader + 2) % 3}"})
        check(answer.code == 0, f"{answer}")
        wait_for("the one that a follower was told of", 10, lambda: cluster.leader_now() == (leader + 2) % 3)
        answer = remoting.ask(cluster.broker((leader + 2) % 3), TRANSFER_LEADERSHIP, {"transferee": "n8"})
        check(answer.code == 1 and "n8 is no member" in answer.remark, f"{answer}")
        load.stop()
        return f"{verify(cluster, load)} acknowledged, longest gap {load.longest_gap * 1000:.0f} ms"


@case
def e4_transfer_to_a_node_that_stands_still():
    """E4: the leader does not wait for it longer than an election time-out, and then takes sends as before."""
    with Cluster(settings=["electionTimeoutMs=1000"]) as cluster:
        load = begin_load(cluster, pause=0.001)
        leader = cluster.leader()
        target = max(node for node in range(3) if node != leader)  # the first name server of the list answers
        with standing_still(cluster, target):
            answer = remoting.ask(cluster.broker(leader), TRANSFER_LEADERSHIP, {"transferee": f"n{target}"}, timeout=5.0)
            check(answer.code in (0, 14), f"{answer}")  # 14: it is missed already
            seconds = load.wait_for_more(seconds=10)
            check(cluster.leader() != target, "who stands still leads")
        # Now it may take what it was handed, or not: somebody leads.
        load.wait_for_more()
        load.stop()
        return f"200 sends after {seconds * 1000:.0f} ms, {verify(cluster, load)} acknowledged"


@case
def preferred_leader_leads():
    """Killed and back again, it leads once it has kept up for five seconds."""
    with Cluster(settings=["preferredLeaderIds=n1"]) as cluster:
        cluster.create_topic("T", 4)
        load = Load(cluster, "T", 4, pause=0.001)
        load.start()
        wait_for("the preferred leader", 20, lambda: cluster.leader_now() == 1)
        cluster.kill(1)
        check(cluster.leader(but=1) != 1, "a dead node leads")
        cluster.restart(1)
        _, seconds = wait_for("the preferred leader", 20, lambda: cluster.leader_now() == 1)
        load.wait_for_more(seconds=10)
        load.stop()
        return f"{seconds:.1f} s after its start, {verify(cluster, load)} acknowledged"
