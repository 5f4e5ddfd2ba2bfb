"""A machine whose disk and clock are odd when the test says so (tests/e2e/odd_machine.c): the library, the names of its settings, and one machine for all nodes."""
import os
import shutil
import struct
import subprocess
import tempfile

from cluster import TOP, check
from e2e import Skipped

# In the order of odd_machine.c, which says what each does.
SYNC_MS, READ_MS, CLOCK_MS, WRITE_ERROR, WRITE_SHORT, SYNC_EIO, PERCENT, UNLINK_MS, UNLINK_EIO, QUEUE_UNLINK_EIO = range(SETTINGS := 10)


def build(folder):
    """The path of the library, to be preloaded."""
    if shutil.which("cc") is None:
        raise Skipped("no compiler")
    library = os.path.join(folder, "odd.so")
    done = subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, os.path.join(TOP, "tests", "e2e", "odd_machine.c"), "-ldl"],
                          capture_output=True, text=True, check=False)
    check(done.returncode == 0, lambda: f"odd_machine.c: {done.stderr}")
    return library


def write_all_off(path):
    """The file of the settings, before any process maps it."""
    with open(path, "wb") as file:
        file.write(bytes(8 * SETTINGS))


def put(path, which, value):
    """One setting, in a file that processes may have mapped."""
    with open(path, "r+b") as file:
        file.seek(8 * which)
        file.write(struct.pack("=q", value))


def preload(library):
    """LD_PRELOAD with that library before what is in it already."""
    return ":".join(filter(None, (library, os.environ.get("LD_PRELOAD"))))


class OddMachine:
    """Brokers started meanwhile have one machine, with one disk and one clock."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        library, self.path = build(self.folder.name), os.path.join(self.folder.name, "settings")
        write_all_off(self.path)
        os.environ["LEDGERMQ_WRAP"] = f"env LD_PRELOAD={preload(library)} ODD_MACHINE={self.path}"
        return self

    def set(self, which, value):
        put(self.path, which, value)

    def __exit__(self, *_):
        del os.environ["LEDGERMQ_WRAP"]
        self.folder.cleanup()
