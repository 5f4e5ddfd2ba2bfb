"""Rates of messages that are more than sent and pulled: delayed, transactional, filtered by tag and by SQL92. RocketMQ is measured by the same
generator; acknowledgements are of class A, since it has no other."""
import statistics
import time

import nodes
import remoting
from cells import Result, Row
from cluster import check
from nodes import BenchCluster, JavaCluster

SIZE, WINDOW = 128, 64
LEVEL, LEVEL_SECONDS = 1, 1.0  # "1s" in both brokers
VARIANTS = 10
PASSES = 5  # over the same messages
FILTERS = {"tag": ("TAG", "T3"), "sql": ("SQL92", "a = 3")}


def leader_of(cluster):
    leader = cluster.leader()
    check(leader is not None, "no leader")
    return cluster.broker(leader)


def max_offset(address, topic):
    answer = remoting.ask(address, remoting.MAX_OFFSET, {"topic": topic, "queueId": 0}, timeout=10.0)
    return int(answer.ext["offset"]) if answer.code == 0 else 0


def wait_delivered(address, topic, count, seconds):
    deadline = time.monotonic() + seconds
    while max_offset(address, topic) < count:
        check(time.monotonic() < deadline, lambda: f"{max_offset(address, topic)} of {count} messages were delivered within {seconds} s")
        time.sleep(0.01)
    return time.monotonic()


def measure_delayed(context, cluster, number, count):
    """Sent as fast as they are acknowledged. Deliveries are counted from when the first was due until the last was there."""
    topic = f"delayed-{number}"
    start = time.monotonic()
    run = nodes.mqadmin_send(context, cluster, SIZE, WINDOW, 0, count=count, topic=topic, options=["--delay", LEVEL])
    check(run["status"] == 0, lambda: f"delayed: {run}")
    done = wait_delivered(leader_of(cluster), topic, count, 600)
    check(max_offset(leader_of(cluster), topic) == count, f"more than {count} messages were delivered")
    return {"delayed": [run["msg_s"], count / max(0.001, done - start - LEVEL_SECONDS)]}


def measure_transactional(context, cluster, number, count):
    topic = f"transactional-{number}"
    run = nodes.mqadmin_send(context, cluster, SIZE, WINDOW, 0, count=count, topic=topic, options=["--transaction"])
    check(run["status"] == 0, lambda: f"transactional: {run}")
    wait_delivered(leader_of(cluster), topic, count, 60)
    return {"transactional": [run["msg_s"]]}


def measure_filtered(context, cluster, number, count):
    topic = f"filtered-{number}"
    run = nodes.mqadmin_send(context, cluster, SIZE, 1024, 0, count=count, topic=topic, options=["--variants", VARIANTS])
    check(run["status"] == 0, lambda: f"filtered: {run}")
    wait_delivered(leader_of(cluster), topic, count, 60)
    found = {}
    for name, (kind, expression) in FILTERS.items():
        looked_at = seconds = cpu = 0
        for _ in range(PASSES):
            read = nodes.mqadmin_consume(context, cluster, topic, 1, 300, ["--expression", expression, "--expressionType", kind])
            check(read["status"] == 0 and read["whole"], lambda outcome=read: f"{name}: {outcome}")
            check(read["messages"] == count // VARIANTS, lambda outcome=read: f"{name}: {outcome['messages']} messages where {count // VARIANTS} match")
            check(read["seconds"] > 0 and read["cpu_s_per_million"] >= 0, lambda outcome=read: f"{name}: that took no time, or a node ended: {outcome}")
            looked_at, seconds = looked_at + read["looked_at"], seconds + read["seconds"]
            cpu += read["cpu_s_per_million"] / PASSES
        found[name] = [looked_at / seconds, cpu]
    return found


MEASURES = {"delayed": measure_delayed, "transactional": measure_transactional, "filtered": measure_filtered}
ROWS = {
    "delayed": [("delayed", 0, "delayed messages, 128 B, window 64, class A, acknowledged"), ("delayed", 1, "delayed messages, delivered")],
    "transactional": [("transactional", 0, "transactions (half message and commit), 128 B, window 64, class A")],
    "filtered": [("tag", 0, "messages looked at by a pull loop whose tag is that of one in 10"),
                 ("tag", 1, "CPU of the nodes per million of them"),
                 ("sql", 0, "messages looked at by a pull loop whose SQL92 expression is true for one in 10"),
                 ("sql", 1, "CPU of the nodes per million of those")],
}


def cell(name):
    def measure(context):
        result = Result()
        nodes_of_it = BenchCluster(context, 3, "A")
        nodes_of_it.settings.append("enablePropertyFilter=true")
        with nodes_of_it as cluster:
            cluster.all_in_sync()
            runs = result.raw = [MEASURES[name](context, cluster, number, context.kind_messages) for number in range(context.runs)]
        for key, place, what in ROWS[name]:
            unit = "s" if what.startswith("CPU") else "/s"
            result.rows.append(Row(name, what, unit, None, None, [run[key][place] for run in runs], unit == "/s"))
            context.say(f"{what}: {statistics.median(run[key][place] for run in runs):,.2f} {unit}")
        return result
    return name, measure


def measure_java(context, wanted):
    """Values by (cell, place of the row)."""
    found = {}
    names = [name for name in MEASURES if name in wanted]
    if not names:
        return found
    with JavaCluster(context, 3) as cluster:
        nodes.mqadmin_send(context, cluster, SIZE, WINDOW, 0, context.java_warmup)
        for name in names:
            # It delivers some 700 delayed messages a second. A first round warms up what the sends did not.
            count = context.kind_messages // (10 if name == "delayed" else 1)
            MEASURES[name](context, cluster, 100, count // 2)
            runs = [MEASURES[name](context, cluster, number, count) for number in range(1 if context.quick else context.runs)]
            for place, (key, column, what) in enumerate(ROWS[name]):
                found[name, place] = [run[key][column] for run in runs]
                context.say(f"RocketMQ: {what}: {statistics.median(found[name, place]):,.2f}")
    return found


CELLS = dict(cell(name) for name in MEASURES)
