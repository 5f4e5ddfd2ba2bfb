"""Does a consumer of old messages slow the sends of others? The log is thrown out of the page cache, which mincore proves, and read from its begin."""
import ctypes
import glob
import mmap
import os
import statistics
import time

import machine
import nodes
from cells import GIB, Result, Row
from cluster import Failed, check
from e2e import Skipped
from nodes import BenchCluster
from process import memory_kb
from task import Task

RATE = 10000
QUEUES = 4
WARMUP = 1.0
MAY_STAY = 0.02  # of the old log, in memory
HOT_BYTES = 64 << 20  # what the broker reads through its mapping, and what a start verifies
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def resident(path, begin, end):
    """Pages of [begin, end) of a file that are in the page cache, and pages in all."""
    size = end - begin
    if size <= 0:
        return 0, 0
    pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    flags = ctypes.create_string_buffer(pages)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        address = LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, begin)
    finally:
        os.close(descriptor)
    check(address not in (None, ctypes.c_void_p(-1).value), f"mmap of {path}: errno {ctypes.get_errno()}")
    rv = LIBC.mincore(address, size, flags)
    LIBC.munmap(address, size)
    check(rv == 0, f"mincore of {path}: errno {ctypes.get_errno()}")
    return sum(byte & 1 for byte in flags.raw), pages


def segments(cluster, node):
    return sorted(glob.glob(os.path.join(cluster.folder, f"n{node}", "store", "dledger-*", "data", "[0-9]*")))


def queue_files(cluster, node):
    return sorted(glob.glob(os.path.join(cluster.folder, f"n{node}", "store", "consumequeue", "cold", "*", "[0-9]*")))


def evict(cluster):
    for node in range(cluster.nodes):
        for path in segments(cluster, node) + queue_files(cluster, node):
            descriptor = os.open(path, os.O_RDONLY)
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def resident_share(cluster, log_end, node):
    """Of the log but for its last HOT_BYTES."""
    have = of = 0
    for path in segments(cluster, node):
        start = int(os.path.basename(path))
        end = min(os.path.getsize(path), log_end - HOT_BYTES - start)
        found, pages = resident(path, 0, end // mmap.PAGESIZE * mmap.PAGESIZE)
        have, of = have + found, of + pages
    return have / max(1, of)


def make_cold(cluster, log_end):
    """The worst share of all nodes, below MAY_STAY. What a node has mapped stays, and what is being written to the disk goes a moment later."""
    for _ in range(20):
        evict(cluster)
        shares = [resident_share(cluster, log_end, node) for node in range(cluster.nodes)]
        if max(shares) < MAY_STAY:
            return max(shares)
        time.sleep(0.5)
    stays = ", ".join(f"{share * 100:.1f} % at node {node}, which has {memory_kb(cluster.pid(node), 'RssFile') >> 10} MiB of files mapped"
                      for node, share in enumerate(shares))
    raise Failed(f"the old log does not leave memory: {stays}")


def fill(context, cluster):
    while int(cluster.table(0)["raftCommittedPosition"]) < context.cold_bytes + HOT_BYTES:
        run = nodes.mqadmin_send(context, cluster, 1024, 1024, 0, count=min(400000, max(20000, context.cold_bytes // 1300 // 4)), topic="cold",
                                 options=["-q", QUEUES])
        check(run["status"] == 0, lambda: f"filling the log: {run}")


def send(context, cluster):
    run = nodes.mqadmin_send(context, cluster, 1024, 64, 0.5 if context.quick else WARMUP, context.duration, rate=RATE)
    check(run["status"] == 0 and nodes.is_measured(run), lambda: f"sends at {RATE}/s: {run}")
    return run


def cold_reads(context):
    if machine.file_system(context.folder) in ("tmpfs", "ramfs"):
        raise Skipped(f"{context.folder} is in memory and cannot leave it (--dir)")
    result = Result()
    rounds = result.raw["rounds"] = []
    with BenchCluster(context, 3, "B") as cluster:
        cluster.all_in_sync()
        fill(context, cluster)
        cluster.all_in_sync()
        log_end = int(cluster.table(0)["raftCommittedPosition"])
        # A process that has mapped a page keeps it in memory: those that filled the log go.
        for node in range(3):
            cluster.terminate(node)
        os.sync()
        evict(cluster)
        began = time.monotonic()
        for node in range(3):
            cluster.restart(node)
        cluster.all_in_sync()
        mapped = ", ".join(str(memory_kb(cluster.pid(node), "RssFile") >> 10) for node in range(3))
        context.say(f"started again on a cold log in {time.monotonic() - began:.1f} s; the nodes have {mapped} MiB of files mapped")
        for number in range(context.runs):
            share = make_cold(cluster, log_end)
            alone = send(context, cluster)
            reader = Task(lambda: nodes.mqadmin_consume(context, cluster, "cold", QUEUES, context.duration + 3))
            time.sleep(0.3)
            beside = send(context, cluster)
            read = reader.result(context.duration + 90)
            check(read["status"] == 0 and read["messages"] > 0, lambda: f"the reader: {read}")
            rounds.append({"alone": alone, "beside": beside, "read": read, "resident": share})
            context.say(f"round {number}: resident {share * 100:.2f} %; p99 alone {alone['p99_us'] / 1e3:.3f} ms, beside the reader "
                        f"{beside['p99_us'] / 1e3:.3f} ms (p50 {alone['p50_us'] / 1e3:.3f}, {beside['p50_us'] / 1e3:.3f}); reader "
                        f"{read['msg_s']:,.0f}/s, {read['mb_s']:.0f} MB/s, p99 {read['p99_us'] / 1e3:.1f} ms")
            if read["whole"]:
                text = f"the reader was at the end after {read['seconds']:.3f} s"
                context.say(text)
                if not context.quick and read["seconds"] < WARMUP + context.duration:
                    result.problems.append(f"{text}, before the sends beside it were: take more --cold-bytes")
        turn_us = max(int(cluster.table(i)["raftTurnMaxMicros"]) for i in range(3))
    ratios = [entry["beside"]["p99_us"] / entry["alone"]["p99_us"] for entry in rounds]
    result.rows.append(Row("cold-reads", f"send p99 beside a reader of a cold log, next to without, {RATE:,} sends/s, class B, log of {log_end / GIB:.2f} GiB", "%",
                           150, None, [ratio * 100 for ratio in ratios],
                           note=f"p99 alone {statistics.median(e['alone']['p99_us'] for e in rounds) / 1e3:.3f} ms, beside "
                                f"{statistics.median(e['beside']['p99_us'] for e in rounds) / 1e3:.3f} ms; of the old log at most "
                                f"{max(e['resident'] for e in rounds) * 100:.2f} % were in memory before; longest turn of a loop {turn_us / 1e3:.1f} ms"))
    result.rows.append(Row("cold-reads", "messages read from the disk meanwhile", "/s", None, None, [entry["read"]["msg_s"] for entry in rounds], True,
                           note=f"{statistics.median(e['read']['mb_s'] for e in rounds):.0f} MB/s, {QUEUES} queues, a pull of 32 under way for each"))
    return result


CELLS = {"cold-reads": cold_reads}
