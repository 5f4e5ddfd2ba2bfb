"""The cells of the benchmark: what each one measures, how, and what it must reach. Limits in the units of their rows: messages/s, ms, s, MB, %."""
import os
import signal
import statistics
import time

import machine
import nodes
from cluster import check, wait_for
from nodes import BenchCluster, JavaCluster, Poller
from task import Task

AGREE = 0.10        # how far apart the two generators may be
DISK_SECONDS = 2.0
GIB = 1 << 30


class Context:
    """Options of a run, and what cells share."""

    def __init__(self):
        self.quick = False
        self.runs = 3
        self.warmup, self.duration = 2.0, 5.0
        self.failovers = 20
        self.log_bytes = GIB
        self.idle_seconds = 20.0
        self.java_warmup = 60.0
        self.growth_queues = (100, 10000)
        self.growth_messages, self.growth_groups = 300000, 10000
        self.cold_bytes = 4 * GIB
        self.kind_messages = 100000
        self.folder = None      # where clusters keep their data
        self.settings = ()
        self.nice, self.nice_text = [], ""
        self.judge = ""
        self.mqload = None
        self.load_runs = {}
        self.idle_runs = None
        self.disk_seconds = []  # every t that was measured

    def say(self, text):
        print(f"   {text}", flush=True)


class Row:
    """One line of the table. `runs` are all values, `value` is what counts: the median, or the worst where the limit says so."""

    def __init__(self, cell, what, unit, must, aim, runs, more_is_better=False, worst=False, mqload=(), compare=False, note=""):
        self.cell, self.what, self.unit, self.must, self.aim = cell, what, unit, must, aim
        self.more_is_better, self.worst, self.compare, self.note = more_is_better, worst, compare, note
        self.runs, self.mqload, self.java = list(runs), list(mqload), []
        self.value = self.pick(self.runs)

    def pick(self, runs):
        if not runs:
            return None
        if self.worst:
            return min(runs) if self.more_is_better else max(runs)
        return statistics.median(runs)

    def spread(self):
        """(max - min) / median of the runs."""
        middle = statistics.median(self.runs) if self.runs else 0
        return (max(self.runs) - min(self.runs)) / middle if middle else 0.0

    def reaches(self, limit):
        if limit is None or self.value is None:
            return limit is None
        return self.value >= limit if self.more_is_better else self.value <= limit

    def verdict(self):
        if not self.reaches(self.must):
            return "missed"
        if self.must is None and self.aim is None:
            return "-"
        return "aim" if self.aim is not None and self.reaches(self.aim) else "must"

    def disagreement(self):
        """How far the generators are apart, None where there is nothing to compare."""
        if not self.compare or not self.mqload or not self.value:
            return None
        return abs(self.pick(self.mqload) / self.value - 1)

    def as_dict(self):
        return {"cell": self.cell, "what": self.what, "unit": self.unit, "must": self.must, "aim": self.aim, "measured": self.value,
                "spread": round(self.spread(), 4), "verdict": self.verdict(), "runs": self.runs, "mqload": self.mqload, "java": self.java,
                "more_is_better": self.more_is_better, "worst": self.worst, "compare": self.compare, "note": self.note}

    @staticmethod
    def from_dict(fields):
        row = Row(fields["cell"], fields["what"], fields["unit"], fields["must"], fields["aim"], fields["runs"], fields["more_is_better"],
                  fields["worst"], fields["mqload"], fields["compare"], fields["note"])
        row.java = fields["java"]
        return row


class Result:
    def __init__(self):
        self.rows, self.problems, self.raw = [], [], {}


# ---- sending ----

METRICS = {  # name -> (key of the generators, factor, unit, more is better)
    "rate": ("msg_s", 1, "/s", True),
    "p50": ("p50_us", 1e-3, "ms", False),
    "p99": ("p99_us", 1e-3, "ms", False),
    "CPU": ("cpu_s_per_million", 1, "s per million", False),
}


def values(runs, metric):
    key, factor, _, _ = METRICS[metric]
    return [run[key] * factor for run in runs]


def _faults(run, generator, result):
    text = run["stderr"].splitlines()
    if run["status"] != 0 or run["errors"] or run["unanswered"]:
        result.problems.append(f"{generator}: status {run['status']}, errors {run['errors']}, unanswered {run['unanswered']} {text[-1] if text else ''}")
    if run["msg_s"] <= 0 or run["messages"] <= 0:
        result.problems.append(f"{generator}: nothing was acknowledged")


def _one_run(context, size, window, durability, generator, result):
    """A cluster of its own for each run: no run has the files, dirty pages and queues of another one on its back."""
    os.sync()
    with BenchCluster(context, 3, durability) as cluster:
        cluster.all_in_sync()
        if generator == "mqload":
            run = nodes.mqload_send(context, cluster, size, window, context.warmup, context.duration)
        else:
            before = cluster.fdatasyncs()
            run = nodes.mqadmin_send(context, cluster, size, window, context.warmup, context.duration)
            run["fdatasync_nodes"] = [after - at_first for after, at_first in zip(cluster.fdatasyncs(), before)]
    _faults(run, generator, result)
    context.say(f"{generator}: {run['msg_s']:,.0f}/s, p50 {run['p50_us'] / 1e3:.3f} ms, p99 {run['p99_us'] / 1e3:.3f} ms, "
                f"CPU {run['cpu_s_per_million']:.2f} s per million")
    return run


def measure_load(context, size, window, durability, result):
    key = size, window, durability
    if key not in context.load_runs:
        runs = {"mqadmin": [], "mqload": [], "disk_seconds": []}
        for _ in range(context.runs):
            if durability == "B":
                runs["disk_seconds"].append(machine.fdatasync_seconds(context.folder, 0.5 if context.quick else DISK_SECONDS))
                context.disk_seconds.append(runs["disk_seconds"][-1])
                context.say(f"disk: fdatasync of 64 KiB, three writers: {runs['disk_seconds'][-1] * 1e3:.3f} ms")
            runs["mqadmin"].append(_one_run(context, size, window, durability, "mqadmin bench", result))
            if context.mqload:
                runs["mqload"].append(_one_run(context, size, window, durability, "mqload", result))
        context.load_runs[key] = runs
    return context.load_runs[key]


def _sync_note(runs, window, result):
    """An acknowledgement needs the entry on the disks of two nodes of three, and one fdatasync covers at most the window: so at least 2/window calls
    each. Fewer would mean that acknowledgements did not wait for the disk."""
    least = 2 / window
    per_ack = []
    for run in runs["mqadmin"]:
        calls = sum(run["fdatasync_nodes"])
        per_ack.append(calls / max(1, run["acknowledged"]))
        if calls <= 0 or per_ack[-1] < least * 0.999:
            result.problems.append(f"{calls} fdatasync calls for {run['acknowledged']} acknowledgements of class B; at least {least:.4f} each are needed")
    return f"fdatasync calls of the three nodes per acknowledgement {statistics.median(per_ack):.3f} (at least {least:.3f})"


def load_cell(name, title, size, window, durability, limits, disk_rule=False):
    def measure(context):
        result = Result()
        runs = measure_load(context, size, window, durability, result)
        result.raw = runs
        for i, (metric, must, aim) in enumerate(limits):
            note = ""
            if disk_rule and metric == "rate":
                t = statistics.median(runs["disk_seconds"])
                must = min(must, 0.3 * window / t)
                note = f"t = {t * 1e3:.3f} ms; must is the lesser of 40,000 and 0.3 x {window} / t"
            if durability == "B" and i == 0:
                note = "; ".join(filter(None, [note, _sync_note(runs, window, result)]))
            _, _, unit, more = METRICS[metric]
            result.rows.append(Row(name, f"{title}, {metric}", unit, must, aim, values(runs["mqadmin"], metric), more,
                                   mqload=values(runs["mqload"], metric), compare=i == 0, note=note))
        return result
    measure.load = (size, window, durability)
    measure.metrics = [metric for metric, _, _ in limits]
    return name, measure


# ---- idle nodes ----

def measure_idle(context):
    if context.idle_runs is None:
        context.idle_runs = []
        for _ in range(context.runs):
            with BenchCluster(context) as cluster:
                cluster.all_in_sync()
                time.sleep(1.0 if context.quick else 5.0)
                before, start = [machine.cpu_seconds(pid) for pid in cluster.pids], time.monotonic()
                time.sleep(context.idle_seconds)
                span = time.monotonic() - start
                used = [(machine.cpu_seconds(pid) - at_first) / span * 100 for pid, at_first in zip(cluster.pids, before)]
                memory = [machine.memory_mb(pid) for pid in cluster.pids]
                nodes.mqadmin_send(context, cluster, 1024, 64, 0, context.duration)
                time.sleep(1.0)
                loaded = [machine.memory_mb(pid) for pid in cluster.pids]
            context.idle_runs.append({"cpu_percent": used, "rss_anon_mb": memory, "rss_anon_after_load_mb": loaded})
            context.say(f"idle: CPU {', '.join(f'{x:.2f}' for x in used)} %, RssAnon {', '.join(f'{x:.1f}' for x in memory)} MB, "
                        f"after a load {', '.join(f'{x:.1f}' for x in loaded)} MB")
    return context.idle_runs


def idle_memory(context):
    result = Result()
    runs = result.raw = measure_idle(context)
    after = statistics.median(max(run["rss_anon_after_load_mb"]) for run in runs)
    result.rows.append(Row("memory", "RssAnon of an idle node (largest of three)", "MB", 25, 12, [max(run["rss_anon_mb"]) for run in runs],
                           note=f"after a load at 1 KiB, window 64: {after:.1f} MB"))
    if min(min(run["rss_anon_mb"]) for run in runs) <= 0:
        result.problems.append("the memory of a node could not be read")
    return result


def idle_cpu(context):
    result = Result()
    runs = result.raw = measure_idle(context)
    result.rows.append(Row("idle-cpu", "CPU of an idle node (largest of three)", "%", 1, 0.3, [max(run["cpu_percent"]) for run in runs]))
    return result


def cpu_per_million(context):
    result = Result()
    runs = result.raw = measure_load(context, 128, 64, "A", result)
    result.rows.append(Row("cpu", "CPU seconds of the three nodes per million, 128 B, window 64, class A", "s", 8, 4, values(runs["mqadmin"], "CPU"),
                           mqload=values(runs["mqload"], "CPU")))
    if min(result.rows[0].runs) <= 0:
        result.problems.append("the CPU time of the nodes could not be read")
    return result


# ---- failover ----

def _failover_round(context, cluster, number, leader_of, kill, bring_back):
    """One kill -9 of the leader under load. The longest time without an acknowledgement in the whole run counts, wherever it was."""
    topic = f"failover-{number}"
    java = isinstance(cluster, JavaCluster)
    duration = 30.0 if java else 4.0
    use_mqload = context.mqload is not None and (number % 2 == 1 or java)
    acks = os.path.join(cluster.folder, f"{topic}.acks")

    def generate():
        if use_mqload:
            return nodes.mqload_failover(context, cluster, duration, topic, acks)
        return nodes.mqadmin_failover(context, cluster, duration, topic)

    before = None if java else cluster.committed()
    worker = Task(generate)
    if java:
        time.sleep(3.0)
    else:
        wait_for("a load that flows", 30, lambda: worker.error is not None or cluster.committed() > before + 200)
        time.sleep(0.5)
    leader = leader_of()
    check(leader is not None, f"round {number}: there is no leader to kill")
    how = kill(leader)
    outcome = worker.result(duration + 70)
    # A client that sends to a follower, which forwards, need not change over when the leader dies.
    successor = leader_of()
    check(successor not in (None, leader), f"round {number}: n{leader} was killed, now n{successor} leads: {outcome}")
    bring_back(leader, how)
    check(outcome["recovered"], f"round {number}: not recovered: {outcome}")
    if use_mqload and not java:
        status, text = nodes.mqload_verify(context, cluster, topic, acks)
        check(status == 0, lambda: f"round {number}: {text[-500:]}")
    return {"generator": "mqload" if use_mqload else "mqadmin bench", "gap_s": outcome["gap_s"], "change_gap_s": outcome["change_gap_s"],
            "leader": leader}


def failover(context):
    result = Result()
    rounds = result.raw = []
    with BenchCluster(context) as cluster:
        cluster.all_in_sync()

        def bring_back(node, _):
            cluster.restart(node)
            cluster.all_in_sync()

        for number in range(context.failovers):
            rounds.append(_failover_round(context, cluster, number, cluster.accepting, cluster.kill, bring_back))
            context.say(f"kill -9 of n{rounds[-1]['leader']}: {rounds[-1]['gap_s']:.3f} s ({rounds[-1]['generator']})")
    gaps = [entry["gap_s"] for entry in rounds]
    by_mqload = [entry["gap_s"] for entry in rounds if entry["generator"] == "mqload"]
    row = Row("failover", f"leader kill -9 to next acknowledgement, worst of {len(gaps)}", "s", 0.6, 0.3, gaps, worst=True,
              note=f"class B; median {statistics.median(gaps):.3f} s")
    row.mqload = by_mqload
    result.rows.append(row)
    return result


# ---- restart ----

def _fill(context, cluster, log_bytes):
    while int(cluster.table(0)["raftCommittedPosition"]) < log_bytes:
        run = nodes.mqadmin_send(context, cluster, 1024, 1024, 0, count=max(2000, log_bytes // 16 // 1300))
        check(run["status"] == 0, lambda: f"filling the log: {run}")


def _restart_rounds(context, count, kill, target, ready):
    """target: node to restart; ready(node): the question that is asked until it is answered with yes. Returns seconds from exec."""
    with BenchCluster(context, count) as cluster:
        leader = cluster.all_in_sync() if count > 1 else 0
        _fill(context, cluster, context.log_bytes)
        taken = []
        for _ in range(context.runs):
            # The tail that no checkpoint covers is what a kill leaves behind; a clean stop gets the same load.
            run = nodes.mqadmin_send(context, cluster, 1024, 64, 0, duration=0.5 if context.quick else 3.0, rate=10000)
            check(run["status"] == 0, lambda: f"the load before the restart: {run}")
            leader = cluster.all_in_sync() if count > 1 and not kill else leader
            node = target(cluster, leader)
            if kill:
                cluster.kill(node)
            else:
                cluster.terminate(node)
            poller = Poller(lambda: ready(cluster, node, leader), 60)
            cluster.restart(node)
            taken.append(poller.wait() - cluster.started_at())
            if count > 1:
                leader = cluster.all_in_sync()
        size = int(cluster.table(0)["raftCommittedPosition"])
    context.say(f"{'group of one' if count == 1 else 'node of three'}, {'kill -9' if kill else 'clean stop'}, log of {size / GIB:.2f} GiB: "
                f"{', '.join(f'{x:.3f}' for x in taken)} s")
    return taken, size


def restart(context):
    result = Result()
    for count, kill in ((1, False), (1, True), (3, False), (3, True)):
        if count == 1:
            taken, size = _restart_rounds(context, 1, kill, lambda *_: 0, lambda cluster, node, _: nodes.accepts(cluster.broker(node), "bench"))
            what = "a group of one, exec to the first acknowledged send"
        else:
            taken, size = _restart_rounds(context, 3, kill, lambda _, leader: (leader + 1) % 3, lambda cluster, node, leader: cluster.in_sync(node, leader))
            what = "a follower of three, exec to in sync"
        how = "after kill -9" if kill else "clean"
        result.rows.append(Row("restart", f"restart {how} of {what}, log of {size / GIB:.2f} GiB", "s", 0.5, 0.2, taken))
        result.raw[f"{count}-{'kill' if kill else 'clean'}"] = taken
    return result


# ---- RocketMQ ----

def measure_java(context, wanted):
    """Values by (cell, place of the row). Class A only: DLedger acknowledges before it syncs, whatever flushDiskType says, so it has no class B."""
    found = {}
    loads = [(name, measure) for name, measure in CELLS.items() if name in wanted and getattr(measure, "load", (0, 0, "B"))[2] == "A"]
    with JavaCluster(context, 3) as cluster:
        context.say("RocketMQ runs")
        if "memory" in wanted or "idle-cpu" in wanted:
            time.sleep(1.0 if context.quick else 10.0)
            before, start = [machine.cpu_seconds(pid) for pid in cluster.pids], time.monotonic()
            time.sleep(context.idle_seconds)
            used = [(machine.cpu_seconds(pid) - at_first) / (time.monotonic() - start) * 100 for pid, at_first in zip(cluster.pids, before)]
            found["idle-cpu", 0] = [max(used)]
            found["memory", 0] = [max(machine.memory_mb(pid) for pid in cluster.pids)]
            context.say(f"RocketMQ idle: CPU {max(used):.1f} %, RssAnon {found['memory', 0][0]:.0f} MB")
        if loads or "cpu" in wanted:
            nodes.mqload_send(context, cluster, 1024, 64, 0, context.java_warmup)
        cached = {}
        for name, measure in loads + ([("cpu", None)] if "cpu" in wanted else []):
            load = measure.load if measure else (128, 64, "A")
            if load not in cached:
                cached[load] = [nodes.mqload_send(context, cluster, load[0], load[1], context.warmup, context.duration) for _ in range(context.runs)]
                for run in cached[load]:
                    context.say(f"RocketMQ {load[0]} B, window {load[1]}: {run['msg_s']:,.0f}/s, p50 {run['p50_us'] / 1e3:.3f} ms, "
                                f"p99 {run['p99_us'] / 1e3:.3f} ms, CPU {run['cpu_s_per_million']:.1f} s per million, errors {run['errors']}")
            for i, metric in enumerate(measure.metrics if measure else ["CPU"]):
                found[name, i] = values(cached[load], metric)
        if "failover" in wanted:
            def known_leader():
                return wait_for("a leader of RocketMQ", 60, lambda: None if cluster.leader() is None else (cluster.leader(),))[0][0]

            def bring_back(node, how):
                cluster.restart(node, how)
                time.sleep(10)

            found["failover", 0] = []
            for number in range(1 if context.quick else 3):
                entry = _failover_round(context, cluster, number, known_leader, cluster.kill, bring_back)
                found["failover", 0].append(entry["gap_s"])
                context.say(f"RocketMQ, kill -9 of n{entry['leader']}: {entry['gap_s']:.3f} s")
    if "restart" in wanted:
        for place, number in ((0, signal.SIGTERM), (1, signal.SIGKILL)):
            with JavaCluster(context, 1) as cluster:
                sent = 0
                while sent < context.log_bytes:
                    run = nodes.mqload_send(context, cluster, 1024, 256, 0, 2.0 if context.quick else 10.0)
                    sent += int(run["messages"]) * 1300
                how = cluster.kill(0, number)
                poller = Poller(lambda: nodes.accepts(cluster.broker(0), "bench"), 300)
                start = time.time()
                cluster.restart(0, how)
                found["restart", place] = [poller.wait() - start]
                context.say(f"RocketMQ, group of one, restart after {signal.Signals(number).name}: {found['restart', place][0]:.2f} s")
    return found


CELLS = dict([
    load_cell("128-w64-a", "128 B, window 64, class A", 128, 64, "A", [("rate", 120000, 250000)]),
    load_cell("1k-w64-a", "1 KiB, window 64, class A", 1024, 64, "A", [("rate", 80000, 150000), ("p99", 3, None)]),
    load_cell("1k-w64-b", "1 KiB, window 64, class B", 1024, 64, "B", [("rate", 40000, 100000), ("p99", 5, None)], disk_rule=True),
    load_cell("1k-w1024-a", "1 KiB, window 1024, class A", 1024, 1024, "A", [("rate", 150000, 300000), ("p99", 15, None)]),
    load_cell("1k-w1024-b", "1 KiB, window 1024, class B", 1024, 1024, "B", [("rate", 90000, 180000), ("p99", 25, None)]),
    load_cell("128-w1-a", "128 B, window 1, class A", 128, 1, "A", [("p50", 0.12, 0.08)]),
    load_cell("128-w1-b", "128 B, window 1, class B", 128, 1, "B", [("p50", 0.45, 0.30)]),
    ("cpu", cpu_per_million),
    ("memory", idle_memory),
    ("failover", failover),
    ("restart", restart),
    ("idle-cpu", idle_cpu),
])
