"""A majority is lost for good: one member is made the whole group by force, and the others come back."""
import json
import os
import subprocess

import remoting
from case_leadership import mqadmin
from case_membership import role_of
from cluster import BIN, Cluster, Load, begin_load, check, verify, wait_for
from e2e import case


def force(cluster, node):
    return subprocess.run([os.path.join(BIN, "mqbroker"), "-c", os.path.join(cluster.folder, f"n{node}", "broker.conf"), "--force-new-group"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)


def is_level(cluster, leader):
    last = {cluster.runtime_table(node)["raftLastIndex"] for node in range(3)}
    return len(last) == 1 and cluster.runtime_table(leader)["raftCommitIndex"] in last


@case
def a_majority_is_lost_for_good():
    with Cluster(durability="B") as cluster:
        load = begin_load(cluster, first=500)
        load.stop()
        leader = cluster.leader()
        left = (leader + 1) % 3
        lost = [node for node in range(3) if node != left]
        wait_for("all to have all of it", 20, lambda: is_level(cluster, leader))
        # As long as others answer nothing is done, and neither while the broker itself runs.
        done = force(cluster, left)
        check(done.returncode == 3 and "already started" in done.stdout, f"{done}")
        cluster.kill(left)
        done = force(cluster, left)
        check(done.returncode != 0 and "answers at" in done.stdout, f"{done}")
        for node in lost:
            cluster.kill(node)
        cluster.restart(left)
        # Without it nobody leads, and what is refused names it.
        answer = wait_for("a refusal", 20, lambda: ask_send(cluster, left))[0]
        check(answer.code == 14 and "--force-new-group" in answer.remark and "1 of its 3 voters up" in answer.remark, f"{answer}")
        cluster.kill(left)
        done = force(cluster, left)
        check(done.returncode == 0 and f"n{left} is its only member" in done.stdout and "Lost is" in done.stdout, f"{done}")
        cluster.restart(left)
        check(cluster.leader() == left, "another one leads")
        check(f"n{left} is its only member" in cluster.output(left) and "was made anew by force" in cluster.output(left), "no word of it in its log")
        table = mqadmin(cluster, "leader", must=False).stdout
        check("Made anew by force 1 time" in table, table)
        check(json.loads(mqadmin(cluster, "leader", "-j", must=False).stdout)[0]["forcedRecoveries"] == 1, "not in the JSON form")
        verify(cluster, load)
        term = cluster.runtime("raftTerm", left)
        # The lost ones come back, both of them, a majority of the old group.
        cluster.create_topic("U", 4)
        more = Load(cluster, "U", 4)
        more.start()
        for node in lost:
            cluster.restart(node)
        for node in lost:
            wait_for(f"n{node} to hear that it is no member any more", 30, lambda: role_of(cluster, node) == "REMOVED")  # pylint: disable=cell-var-from-loop
            check("was made anew by force, without this node" in cluster.output(node), "it does not say why")
        more.wait_for_more()
        check(cluster.leader() == left and cluster.runtime("raftTerm", left) == term, "they disturbed the leader")
        # With its directory moved away one of them is a member like a new one.
        back = lost[0]
        cluster.kill(back)
        store = os.path.join(cluster.folder, f"n{back}", "store")
        os.rename(os.path.join(store, f"dledger-n{back}"), os.path.join(cluster.folder, "old"))
        cluster.restart(back)
        mqadmin(cluster, "member", "add", "-i", f"n{back}", "-a", f"127.0.0.1:{cluster.peer_port(back)}", "-w", "60")
        wait_for("the added one to vote", 20, lambda: role_of(cluster, back) == "FOLLOWER")
        check(cluster.runtime("raftForcedRecoveries", back) == 1, "the mark is not in its log")
        more.stop()
        verify(cluster, load)
        return f"{len(load.acknowledged)} acknowledged before, {verify(cluster, more)} after"


def ask_send(cluster, node):
    try:
        return remoting.ask(cluster.broker(node), remoting.SEND_V2, remoting.send_fields("T", 0), b"x", timeout=5.0)
    except OSError:
        return None
