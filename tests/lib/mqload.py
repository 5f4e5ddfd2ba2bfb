"""The judges' load generator and checker: a second opinion on what a broker acknowledged and holds."""
import os
import subprocess

from cluster import check


def build(judge, folder):
    """Its path, or None where there are no judges."""
    source = os.path.join(judge, "load") if judge else ""
    if not os.path.isdir(source):
        return None
    done = subprocess.run(["make", "-s", "-C", source, f"BUILD={folder}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    check(done.returncode == 0, lambda: f"mqload: {done.stdout.strip()[-500:]}")
    return os.path.join(folder, "mqload")
