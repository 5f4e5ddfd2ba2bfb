"""A cluster on disks that take their time or fail when the test says so, each node's by itself (tests/e2e/odd_machine.c)."""
import os
import struct
import subprocess
import tempfile

from cluster import TOP, Cluster
from e2e import Skipped

SYNC_MS, READ_MS, _, WRITE_ERROR, _, SYNC_EIO = range(6)


class OddCluster(Cluster):
    def __init__(self, **more):
        self.built = tempfile.TemporaryDirectory()
        library = os.path.join(self.built.name, "odd.so")
        done = subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, os.path.join(TOP, "tests", "e2e", "odd_machine.c"), "-ldl"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Skipped(f"no compiler: {done.stderr[:100]}")
        super().__init__(durability="B", **more)
        self.environment = {"CHAOS_PRELOAD": library, "LEDGERMQ_WRAP": os.path.join(TOP, "tests", "chaos", "wrap")}
        for node in range(self.nodes):
            with open(self.settings_of(node), "wb") as file:
                file.write(bytes(64))

    def settings_of(self, node):
        return os.path.join(self.folder, f"odd.{node}")

    def run(self, *arguments, must=True):
        os.environ.update(self.environment)
        try:
            return super().run(*arguments, must=must)
        finally:
            for name in self.environment:
                os.environ.pop(name, None)

    def odd(self, node, which, value):
        with open(self.settings_of(node), "r+b") as file:  # the process has it mapped
            file.seek(8 * which)
            file.write(struct.pack("=q", value))

    def __exit__(self, *all_):
        try:
            for node in range(self.nodes):
                for which in range(6):
                    self.odd(node, which, 0)
            super().__exit__(*all_)
        finally:
            self.built.cleanup()
