"""libledgermq: its suite, the examples as an application's author builds them, and a second group of brokers that dies."""
import os
import re
import subprocess
import tempfile
import time

import remoting
from cluster import BIN, TOP, Cluster, Failed, check, sanitizers, wait_for
from e2e import Skipped, case, rounds
from remoting import PATIENCE

SUITE = os.path.join(BIN, "libledgermq_suite")
BUILD = os.path.dirname(BIN)
TRANSACTIONS = ["transactionTimeOut=1000", "transactionCheckInterval=1000"]


def environment(cluster, **more):
    return {**os.environ, "NAMESRV_ADDR": cluster.namesrv_addr, "SLOWNESS": str(int(PATIENCE) + 1), **more}


def run(command, cluster, seconds=60, **more):
    try:
        done = subprocess.run(command, env=environment(cluster, **more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              timeout=seconds * PATIENCE)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{' '.join(command)}: no end within {seconds * PATIENCE:.0f} s: {late.stdout}") from late
    check(done.returncode == 0, lambda: f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


@case
def libledgermq_suite():
    if not os.path.exists(SUITE):
        raise Skipped("libledgermq_suite is not built (LEDGERMQ_TESTS=OFF)")
    with Cluster(settings=TRANSACTIONS) as cluster:
        output = run([SUITE], cluster, 120)
        check(re.search(r"^\d+ passed, 0 failed, 0 skipped$", output, re.M), output)
        return output.splitlines()[-1]


def pkg_config(prefix, *arguments):
    folder = subprocess.run(["find", prefix, "-name", "ledgermq.pc"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    check(len(folder) == 1, f"ledgermq.pc is at {folder}")
    env = {**os.environ, "PKG_CONFIG_PATH": os.path.dirname(folder[0])}
    done = subprocess.run(["pkg-config", *arguments, "ledgermq"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    check(done.returncode == 0, f"pkg-config {' '.join(arguments)}: {done.stderr}")
    return done.stdout.split()


@case
def examples_built_from_an_installation():
    """Headers, pkg-config file and both libraries are all that an application needs, wherever they were put."""
    if not os.path.exists(os.path.join(BUILD, "lib", "libledgermq.a")):
        raise Skipped("the libraries are not built")
    examples = os.path.join(TOP, "client", "examples")
    with tempfile.TemporaryDirectory(prefix="ledgermq-install-") as folder, Cluster(nodes=1, settings=TRANSACTIONS) as cluster:
        prefix = os.path.join(folder, "moved")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", os.path.join(folder, "first")], stdout=subprocess.DEVNULL, check=True)
        os.rename(os.path.join(folder, "first"), prefix)
        sanitize = sanitizers()
        flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", *(f"-fsanitize={flag}" for flag in sanitize)]
        library = pkg_config(prefix, "--variable=libdir")[0]
        shared = pkg_config(prefix, "--cflags", "--libs")
        static = [os.path.join(library, "libledgermq.a") if flag == "-lledgermq" else flag for flag in pkg_config(prefix, "--static", "--cflags", "--libs")]
        for source in sorted(os.listdir(examples)):
            name = source[:-2]
            for kind, libraries in (("shared", shared), ("static", static)):
                program = os.path.join(folder, f"{name}-{kind}")
                done = subprocess.run(["cc", *flags, os.path.join(examples, source), "-o", program, *libraries, "-pthread"],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
                check(done.returncode == 0, lambda: f"{name}, {kind}: {done.stdout}")
            needed = subprocess.run(["ldd", os.path.join(folder, f"{name}-static")], stdout=subprocess.PIPE, text=True, check=True).stdout
            check("libledgermq" not in needed, f"the static program needs {needed}")
        for name, arguments, says in (("producer", ["5"], "5 of 5 asynchronous sends arrived"), ("ordered", [], "32 of 32 steps came in order"),
                                      ("batch", ["1000"], "1000 messages in 4 requests"), ("transaction", ["20"], "it was committed"),
                                      ("request_reply", [], "the reply: you said 'hello'")):
            for kind in ("shared", "static"):
                output = run([os.path.join(folder, f"{name}-{kind}"), f"{name}_{kind}", *arguments], cluster, LD_LIBRARY_PATH=library)
                check(says in output, lambda: f"{name}, {kind}: {output}")
        # What those sent, consumed.
        for name, topic, count, says in (("push_consumer", "batch_shared", "1000", "1000 messages consumed"),
                                         ("orderly_consumer", "ordered_shared", "32", "32 of 32 messages came in order"),
                                         ("lite_pull_consumer", "batch_static", "1000", "1000 of 1000 messages polled and committed")):
            output = run([os.path.join(folder, f"{name}-shared"), topic, count], cluster, LD_LIBRARY_PATH=library)
            check(says in output, lambda: f"{name}: {output[-2000:]}")
            check(name != "lite_pull_consumer" or re.search("and [1-9]", output), output)
        # Nothing but what ledgermq.h names is visible.
        names = subprocess.run(["nm", "-D", "--defined-only", os.path.join(library, "libledgermq.so")], stdout=subprocess.PIPE, text=True, check=True)
        others = [line.split()[-1] for line in names.stdout.splitlines() if not line.split()[-1].startswith("ledgermq_")]
        check(sanitize or not others, f"libledgermq.so shows {others[:5]}")


def brokers_of(cluster, topic):
    answer = remoting.ask(cluster.namesrv(0), remoting.ROUTE, {"topic": topic})
    return set(re.findall(rb'"brokerName":"(broker-[ab])"', answer.body)) if answer.code == 0 else set()


def holds_messages(cluster, topic):
    with remoting.Connection(cluster.broker(0)) as connection:
        return remoting.max_offset(connection, topic) > 0


@case
def a_second_group_of_brokers_dies():
    """A topic on broker-a and broker-b; all of broker-b is killed while threads send: no send fails."""
    if not os.path.exists(SUITE):
        raise Skipped("libledgermq_suite is not built (LEDGERMQ_TESTS=OFF)")
    seconds = rounds(4, 4, 12)
    with Cluster(nodes=1) as first, Cluster(group="broker-b", namesrv=first.namesrv_addr) as second:
        first.create_topic("T")
        second.create_topic("T")
        wait_for("both groups in the route", 10, lambda: len(brokers_of(first, "T")) == 2)
        with subprocess.Popen([SUITE, "steady", "T"], env=environment(first), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True) as sends:
            wait_for("sends to broker-b", 20, lambda: sends.poll() is not None or holds_messages(second, "T"))
            time.sleep(seconds / 2)
            for node in range(3):
                second.kill(node)
            time.sleep(seconds / 2)
            output = sends.communicate(timeout=30 * PATIENCE)[0]  # its input ends
        check(sends.returncode == 0, output)
        figures = dict(re.findall(r"(sent|failed|on broker-b|retried|longest) (\d+)", output))
        check(figures["failed"] == "0" and 0 < int(figures["on broker-b"]) < int(figures["sent"]), output)
        return output.strip()


@case
def libledgermq_transactions_across_leader_changes():
    """Half messages, decisions and questions go on while leaders are killed: each transaction ends as its producer said."""
    if not os.path.exists(SUITE):
        raise Skipped("libledgermq_suite is not built (LEDGERMQ_TESTS=OFF)")
    kills = rounds(1, 2, 8)
    with Cluster(settings=TRANSACTIONS) as cluster:
        cluster.create_topic("T")
        with subprocess.Popen([SUITE, "transact", "T", str(2 * kills + 2)], env=environment(cluster), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True) as transactions:
            for _ in range(kills):
                time.sleep(1)
                leader = cluster.leader()
                cluster.kill(leader)
                cluster.leader(but=leader)
                cluster.restart(leader)
            output = transactions.communicate(timeout=120 * PATIENCE)[0]
        check(transactions.returncode == 0, output)
        return output.strip()
