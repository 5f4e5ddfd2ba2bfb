"""What a process takes of its machine, as the kernel counts it."""
import os


def memory_kb(pid, key="RssAnon"):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key + ":"))


def cpu_seconds(pid):
    """User and system time, in steps of the kernel's tick."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
