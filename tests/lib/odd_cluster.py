"""A cluster on disks that take their time or fail when the test says so, each node's by itself (tests/e2e/odd_machine.c)."""
import os
import tempfile

import odd_machine
from cluster import TOP, Cluster


class OddCluster(Cluster):
    def __init__(self, **more):
        self.built = tempfile.TemporaryDirectory()
        library = odd_machine.build(self.built.name)
        super().__init__(durability="B", **more)
        self.environment = {"CHAOS_PRELOAD": library, "LEDGERMQ_WRAP": os.path.join(TOP, "tests", "chaos", "wrap")}
        for node in range(self.nodes):
            odd_machine.write_all_off(self.settings_of(node))

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
        odd_machine.put(self.settings_of(node), which, value)

    def __exit__(self, *all_):
        try:
            for node in range(self.nodes):
                for which in range(odd_machine.SETTINGS):
                    self.odd(node, which, 0)
            super().__exit__(*all_)
        finally:
            self.built.cleanup()
