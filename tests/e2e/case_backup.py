"""mqadmin backup of a group under load, and a fresh group that starts with the copy."""
import os
import shutil
import subprocess

import mqload
import remoting
from cluster import BIN, Cluster, Load, check, sequence_of, wait_for
from e2e import Skipped, case, rounds


def mqadmin(cluster, *arguments):
    return subprocess.run([os.path.join(BIN, "mqadmin"), *arguments, "-n", cluster.namesrv_addr], capture_output=True, text=True, timeout=60 * remoting.PATIENCE,
                          check=False)


def restored(folder, durability):
    """A fresh group, not started yet, each of whose members has the copy as its log."""
    fresh = Cluster(durability=durability)
    for node in range(3):
        store = os.path.join(fresh.folder, f"n{node}", "store")
        os.makedirs(store)
        shutil.copytree(folder, os.path.join(store, f"dledger-n{node}"))
    return fresh


def commit_offset(cluster, offset):
    answer = remoting.ask(cluster.broker(cluster.leader()), 15, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": offset})
    check(answer.code == 0, f"commit: {answer}")


@case
def backup_of_a_running_group_and_restore():
    """Everything that was acknowledged before the backup began is in the restored group at its offset, the group's own position too, and it takes messages."""
    notes = []
    for durability in rounds("B", "AB"):
        with Cluster(durability=durability) as cluster:
            cluster.create_topic("T", 4)
            load = Load(cluster, "T", 4, window=64, size=3000)
            load.start()
            # More than one file of the log, which has 16 MiB here.
            wait_for("messages", 60, lambda load=load: len(load.acknowledged) > 8000)
            commit_offset(cluster, 77)
            before = dict(load.acknowledged)
            folder = os.path.join(cluster.folder, "copy")
            done = mqadmin(cluster, "backup", "-f", folder)
            check(done.returncode == 0 and "all checked" in done.stdout, f"{done.stdout}{done.stderr}")
            check(len(load.acknowledged) > len(before), "the load stood still meanwhile")
            load.stop()
            check(len(os.listdir(os.path.join(folder, "data"))) >= 2, "one file only")
            again = mqadmin(cluster, "backup", "-f", folder)
            check(again.returncode == 1 and "new folder" in again.stderr, f"over an old copy: {again.stderr}")
            fresh = restored(folder, durability)
        with fresh:
            leader = fresh.leader(30)
            seen = {}
            with remoting.Connection(fresh.broker(leader), 10.0) as connection:
                for queue in range(4):
                    for place, record in enumerate(remoting.read_queue(connection, "T", queue)):
                        check(record.offset == place, f"the record at place {place} of queue {queue} says {record.offset}")
                        seen[sequence_of(record.body, 3000)] = queue, place
                answer = connection.request(14, {"consumerGroup": "g", "topic": "T", "queueId": 0})
                check(answer.code == 0 and answer.ext["offset"] == "77", f"the group's position: {answer}")
            for sequence, where in before.items():
                check(seen.get(sequence) == where, f"message {sequence} was acknowledged at {where} and is at {seen.get(sequence)}")
            check(set(seen) <= set(load.acknowledged) | load.unknown, "messages that nobody sent")
            ends = max(place for queue, place in seen.values() if queue == 0)
            check(int(fresh.send("T", 0, b"new").ext["queueOffset"]) == ends + 1, "offsets do not go on")
            new = fresh.leader(but=None)
            fresh.kill(new)
            check(fresh.send("T", 0, b"after", node=fresh.leader(but=new)).code == 0, "a restored follower cannot lead")
            notes.append(f"class {durability}: {len(before)} acknowledged before, {len(seen)} in the copy")
    return "; ".join(notes)


@case
def a_restored_backup_is_what_was_acknowledged():
    """The judges' checker reads a restored group: what its generator had acknowledged before the backup began is there, where it was said to be. Another
    load goes on over the backup. The checker is not blind: the group holds a message more at its end, which it must find."""
    seconds = rounds(2, 2, 60)
    with Cluster(durability="B") as cluster:
        program = mqload.build(os.environ.get("JUDGE_DIR", ""), os.path.join(cluster.folder, "mqload"))
        if program is None:
            raise Skipped("JUDGE_DIR, with the load generator, is not there")
        acks, folder = os.path.join(cluster.folder, "acks"), os.path.join(cluster.folder, "copy")

        def run(*arguments):
            return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=(60 + seconds) * remoting.PATIENCE)
        cluster.create_topic("Beside", 2)
        load = Load(cluster, "Beside", 2)
        load.start()
        said = run("failover", "--namesrv", cluster.namesrv_addr, "--brokers", ",".join(cluster.broker(i) for i in range(3)), "--topic", "Judged",
                   "--queues", 4, "--window", 16, "--duration", seconds, "--acks", acks)
        check(said.returncode == 0, f"mqload failover: {said.stdout}{said.stderr}")
        done = mqadmin(cluster, "backup", "-f", folder)
        check(done.returncode == 0, f"{done.stdout}{done.stderr}")
        load.stop()
        with restored(folder, "B") as fresh:
            fresh.leader(30)

            def verify():
                return run("verify", "--namesrv", fresh.namesrv_addr, "--topic", "Judged", "--queues", 4, "--acks", acks)
            said = verify()
            check(said.returncode == 0, f"mqload verify: {said.stdout}{said.stderr}")
            check(fresh.send("Judged", 0, b"nobody acknowledged this").code == 0, "send")
            blind = verify()
            check(blind.returncode != 0, f"the checker passes a message that is none of its own: {blind.stdout}{blind.stderr}")
        return said.stdout.strip().replace("\n", "; ")[:200]
