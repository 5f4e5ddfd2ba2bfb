"""Something that goes on beside a test."""
import threading

from cluster import check


class Task(threading.Thread):
    """A call that runs beside this thread; its result or its exception comes back by result()."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.call = call
        self.value = self.error = None
        self.start()

    def run(self):
        try:
            self.value = self.call()
        except Exception as error:  # pylint: disable=broad-except
            self.error = error

    def result(self, seconds):
        self.join(seconds)
        check(not self.is_alive(), f"no result within {seconds} s")
        if self.error is not None:
            raise self.error
        return self.value
