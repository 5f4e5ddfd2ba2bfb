"""What the machine is, how busy it is, how fast its disk syncs, and what a process has used: facts that stand beside every figure."""
import ctypes
import datetime
import os
import platform
import subprocess
import tempfile
import time

SYNC_BYTES = 65536
SYNC_WRITERS = 3
SYNC_FILE_BLOCKS = 512
LIBC = ctypes.CDLL(None)


def _sync_writer(path, seconds, out):
    """Child process: overwrites a file that is allocated and written already, as the nodes overwrite reserved room that is zeroed ahead."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for block in range(SYNC_FILE_BLOCKS):
        os.pwrite(descriptor, bytes(SYNC_BYTES), block * SYNC_BYTES)
    os.fdatasync(descriptor)
    time.sleep(0.3)  # until the other writers are as far
    data = os.urandom(SYNC_BYTES)
    total, calls, end = 0.0, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        os.pwrite(descriptor, data, calls % SYNC_FILE_BLOCKS * SYNC_BYTES)
        start = time.monotonic()
        os.fdatasync(descriptor)
        total += time.monotonic() - start
        calls += 1
    os.write(out, b"%.9f %d\n" % (total, calls))


def fdatasync_seconds(folder, seconds):
    """t: mean time of fdatasync after a write of 64 KiB, with three writers at a time, on the file system of the folder."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        read_end, write_end = os.pipe()
        children = []
        for i in range(SYNC_WRITERS):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    os.close(read_end)
                    _sync_writer(os.path.join(scratch, str(i)), seconds, write_end)
                    status = 0
                finally:
                    os._exit(status)
            children.append(child)
        os.close(write_end)
        with os.fdopen(read_end) as answers:
            rows = [line.split() for line in answers]
        for child in children:
            os.waitpid(child, 0)
    if len(rows) != SYNC_WRITERS:
        raise OSError(f"the disk of {folder} could not be measured")
    return sum(float(total) for total, _ in rows) / max(1, sum(int(calls) for _, calls in rows))


def _cpu_times():
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(word) for word in file.readline().split()[1:9]]
    return sum(fields) - fields[3] - fields[4], fields[7], sum(fields)


def busy(seconds=1.0):
    """Fractions of all cores that are in use, and that the host took away, while this program waits."""
    used, stolen, all_time = _cpu_times()
    time.sleep(seconds)
    used_then, stolen_then, all_then = _cpu_times()
    span = max(1, all_then - all_time)
    return (used_then - used) / span, (stolen_then - stolen) / span


def _first(path, key):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(key):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


def _version(top):
    try:
        done = subprocess.run(["git", "-C", top, "describe", "--always", "--dirty", "--abbrev=12"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, check=False)
    except OSError:  # there is no git
        return "unknown"
    return done.stdout.strip() or "unknown"


def file_system(folder):
    done = subprocess.run(["df", "--output=fstype", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.split()[-1] if done.stdout.strip() else "unknown"


def describe(top, folder):
    used, stolen = busy()
    memory = _first("/proc/meminfo", "MemTotal").split()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "version": _version(top),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _first("/proc/cpuinfo", "model name") or platform.machine(),
        "memory_gib": round(int(memory[0]) / 1048576, 1) if memory else 0,
        "kernel": platform.release(),
        "file_system": file_system(folder),
        "busy_before": round(used, 3),
        "stolen_before": round(stolen, 3),
    }


def cpu_seconds(pid):
    """User and system time of all threads, of those that have ended as well; stat counts ticks of 10 ms."""
    clock = ctypes.c_int()
    error = LIBC.clock_getcpuclockid(pid, ctypes.byref(clock))
    if error != 0:
        raise OSError(error, f"no processor time of process {pid}")
    return time.clock_gettime(clock.value)


def memory_mb(pid, key="RssAnon"):
    """MB (10^6 bytes), as the limits are given."""
    text = _first(f"/proc/{pid}/status", key)
    return int(text.split()[0]) * 1024 / 1e6 if text else 0.0
