"""What a process takes of its machine, as the kernel counts it, and who goes first on it."""
import contextlib
import os


def memory_kb(pid, key="RssAnon"):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key + ":"))


def cpu_seconds(pid):
    """User and system time, in steps of the kernel's tick."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _set_order(pid, policy, priority):
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setscheduler(int(thread), policy, os.sched_param(priority))


@contextlib.contextmanager
def ahead_of_others(pids):
    """These processes and this thread have the processors before all other programs, as on a machine of their own; what they start has not. Yields whether that
    is allowed here."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(2))
        for pid in pids:
            _set_order(pid, os.SCHED_RR | os.SCHED_RESET_ON_FORK, 2)
        allowed = True
    except PermissionError:
        allowed = False
    try:
        yield allowed
    finally:
        if allowed:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            for pid in pids:
                with contextlib.suppress(OSError):  # it may have ended
                    _set_order(pid, os.SCHED_OTHER, 0)


def behind_them(pid, ahead):
    """What loads them: it has what they leave of the processors, as if it ran on another machine. ahead: what ahead_of_others() said."""
    if ahead:
        _set_order(pid, os.SCHED_RR, 1)
    else:
        os.setpriority(os.PRIO_PROCESS, pid, 5)
