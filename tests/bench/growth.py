"""What many queues and groups cost: rate, latency, memory, files and start of a cluster with 1, 100 and 10,000 queues."""
import json
import os
import re
import statistics
import time

import machine
import nodes
import remoting
from cells import Result, Row
from cluster import check
from nodes import BenchCluster, Poller

QUEUES_OF_A_TOPIC = 10
UPDATE_GROUP, UPDATE_OFFSET = 200, 15
SETTLE_SECONDS = 40.0  # every 30 s queues are made durable, and their pages are let go of
LOADS = ((128, 64, "A"), (1024, 64, "B"))


def shape(queues):
    """Topics, and queues of each."""
    return max(1, queues // QUEUES_OF_A_TOPIC), min(queues, QUEUES_OF_A_TOPIC)


def load(context, cluster, queues, size, window, duration=None, count=None, existing=True):
    topics, each = shape(queues)
    options = ["--topics", topics, "-q", each] + (["--existing"] if existing else [])
    run = nodes.mqadmin_send(context, cluster, size, window, 0.0 if count else context.warmup, duration, count, options=options)
    check(run["status"] == 0 and nodes.is_measured(run), lambda: f"{queues} queues: {run}")
    return run


def prepare(context, cluster, queues):
    """Topics are there, and each queue has its files."""
    cluster.all_in_sync()
    started = time.monotonic()
    load(context, cluster, queues, 128, 64, count=max(queues, 1000), existing=False)
    cluster.all_in_sync()
    return time.monotonic() - started


def compare(context, size, window, durability, many, result):
    """One queue and many in turn, in clusters that stand side by side: what else the machine does meets both."""
    with BenchCluster(context, 3, durability) as few_cluster, BenchCluster(context, 3, durability) as many_cluster:
        prepare(context, few_cluster, 1)
        prepare(context, many_cluster, many)
        pairs = []
        for _ in range(context.runs):
            pair = [load(context, few_cluster, 1, size, window, context.duration), load(context, many_cluster, many, size, window, context.duration)]
            pairs.append(pair)
            context.say(f"{size} B, class {durability}: 1 queue {pair[0]['msg_s']:,.0f}/s, p99 {pair[0]['p99_us'] / 1e3:.3f} ms, CPU "
                        f"{pair[0]['cpu_s_per_million']:.2f} s; {many:,} queues {pair[1]['msg_s']:,.0f}/s, p99 {pair[1]['p99_us'] / 1e3:.3f} ms, CPU "
                        f"{pair[1]['cpu_s_per_million']:.2f} s per million")
    name = f"{size} B, window {window}, class {durability}: {many:,} queues next to one"

    def row(what, key, must, more):
        of_one, of_many = statistics.median(few[key] for few, _ in pairs), statistics.median(some[key] for _, some in pairs)
        factor, unit, digits = (1, "/s", 0) if key == "msg_s" else (1e-3, "ms", 3) if key == "p99_us" else (1, "s", 2)
        note = f"medians {of_one * factor:,.{digits}f} and {of_many * factor:,.{digits}f} {unit}"
        result.rows.append(Row("growth", f"{name}, {what}", "%", must, None, [some[key] / few[key] * 100 for few, some in pairs], more, note=note))

    row("rate", "msg_s", 80, True)
    row("p99", "p99_us", 125, False)
    row("CPU per million", "cpu_s_per_million", None, False)
    return pairs


def queue_files_mb(pid):
    """Pages of queue files that are mapped."""
    total, counts = 0, False
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                counts = "/consumequeue/" in line
            elif counts and line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
    return total / 1e6


def footprint(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        maps = sum(1 for _ in file)
    return {"anon_mb": machine.memory_mb(pid), "queue_files_mb": queue_files_mb(pid), "open_files": len(os.listdir(f"/proc/{pid}/fd")), "maps": maps,
            "page_tables_mb": machine.memory_mb(pid, "VmPTE")}


def ask_all(address, requests, window=64):
    """Requests (code, ext, body) over one connection, some at a time; every answer must be 0."""
    with remoting.Connection(address, 10.0) as connection:
        waiting = []
        for code, ext, body in requests:
            waiting.append(connection.send(code, ext, body))
            if len(waiting) == window:
                answer = connection.answer(waiting.pop(0))
                check(answer.code == 0, lambda found=answer: f"{found}")
        for opaque in waiting:
            answer = connection.answer(opaque)
            check(answer.code == 0, lambda found=answer: f"{found}")


def measure_groups(context, cluster, leader, result):
    count = context.growth_groups
    before = machine.memory_mb(cluster.pid(leader))

    def group(i):
        return json.dumps({"groupName": f"group-{i:05d}", "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True,
                           "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
                           "notifyConsumerIdsChangedEnable": True}).encode()

    topic = f"bench-{0:05d}"
    ask_all(cluster.broker(leader), ((UPDATE_GROUP, None, group(i)) for i in range(count)))
    ask_all(cluster.broker(leader), ((UPDATE_OFFSET, {"consumerGroup": f"group-{i:05d}", "topic": topic, "queueId": 0, "commitOffset": 0}, b"")
                                     for i in range(count)))
    time.sleep(0.5 if context.quick else 3.0)
    grown = machine.memory_mb(cluster.pid(leader)) - before
    result.rows.append(Row("growth", "memory of 1,000 groups with an offset each", "MB", None, None, [grown / count * 1000], note=f"{count:,} groups made"))


def measure_footprint(context, many, result):
    with BenchCluster(context, 3, "B") as few_cluster:
        prepare(context, few_cluster, 1)
        load(context, few_cluster, 1, 1024, 64, count=context.growth_messages)
        few = footprint(few_cluster.pid(few_cluster.all_in_sync()))
    with BenchCluster(context, 3, "B") as cluster:
        seconds = prepare(context, cluster, many)
        load(context, cluster, many, 1024, 64, count=context.growth_messages)
        leader = cluster.all_in_sync()
        at_once = queue_files_mb(cluster.pid(leader))
        for _ in range(1 if context.quick else int(SETTLE_SECONDS)):
            time.sleep(1.0)
            nodes.accepts(cluster.broker(leader), f"bench-{0:05d}")  # syncs follow traffic
        some = footprint(cluster.pid(leader))
        more = many - 1
        per_queue = (some["anon_mb"] + some["queue_files_mb"] - few["anon_mb"] - few["queue_files_mb"]) * 1e6 / 1024 / more
        result.rows.append(Row("growth", f"resident memory per queue, {many:,} queues, {SETTLE_SECONDS:.0f} s after they were written", "KB", 4, None, [per_queue],
                               note=f"anonymous {(some['anon_mb'] - few['anon_mb']) * 1e6 / 1024 / more:.2f} KB, mapped pages of its files "
                                    f"{(some['queue_files_mb'] - few['queue_files_mb']) * 1e6 / 1024 / more:.2f} KB (right after the messages "
                                    f"{(at_once - few['queue_files_mb']) * 1e6 / 1024 / more:.2f} KB); page tables besides "
                                    f"{(some['page_tables_mb'] - few['page_tables_mb']) * 1e6 / 1024 / more:.2f} KB; {some['maps']:,} mappings "
                                    f"(one queue: {few['maps']:,}); topics made and queues filled in {seconds:.1f} s"))
        result.rows.append(Row("growth", f"open files, {many:,} queues", "files", few["open_files"] + 16, None, [some["open_files"]],
                               note=f"one queue: {few['open_files']}; must is that and 16"))
        measure_groups(context, cluster, leader, result)
        for kill in (False, True):
            taken = []
            for _ in range(context.runs):
                load(context, cluster, many, 1024, 64, count=min(many * 2, context.growth_messages))
                leader = cluster.all_in_sync()
                node = (leader + 1) % 3
                if kill:
                    cluster.kill(node)
                else:
                    cluster.terminate(node)
                poller = Poller(lambda node=node, leader=leader: cluster.in_sync(node, leader), 60)
                cluster.restart(node)
                taken.append(poller.wait() - cluster.started_at())
                cluster.all_in_sync()
            how = "after kill -9" if kill else "clean"
            result.rows.append(Row("growth", f"restart {how} of a follower, exec to in sync, {many:,} queues", "s", 1.0, None, taken))
    return {"one": few, "many": some}


def growth(context):
    result = Result()
    for size, window, durability in LOADS:
        for many in context.growth_queues:
            result.raw[f"{size}-{durability}-{many}"] = compare(context, size, window, durability, many, result)
    result.raw["footprint"] = measure_footprint(context, context.growth_queues[-1], result)
    return result


CELLS = {"growth": growth}
