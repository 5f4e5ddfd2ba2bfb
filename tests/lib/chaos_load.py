"""chaos_load (tests/chaos/load.c), asked and answered line by line: sends as much as it is told, and reads all back from every node."""
import json
import os
import subprocess

from cluster import BIN, Failed, wait_for

QUEUES = 8  # of the topic "chaos", which is made by whoever begins a load


class ChaosLoad:
    def __init__(self, namesrv_addr, rate, seconds, size=200, connections=1, window=8192):
        command = [os.path.join(BIN, "chaos_load"), "--rate", str(rate), "--queues", str(QUEUES), "--size", str(size), "--max", str(int(rate * seconds)),
                   "--connections", str(connections), "--window", str(window)]
        self.problems = []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ, NAMESRV_ADDR=namesrv_addr))

    def line(self):
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise Failed(f"chaos_load ended with {self.process.wait()}")
            if not line.startswith("problem"):
                return json.loads(line)
            self.problems.append(line.strip())

    def ask(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return self.line()

    def acknowledged(self):
        return self.ask("count")["acknowledged"]

    def wait_for_more(self, count=200, seconds=20):
        before = self.acknowledged()
        wait_for("sends to go on", seconds, lambda: self.acknowledged() > before + count)

    def verify(self, addresses):
        """Of each time between two marks what the check counted: a list. It is to be stopped before. What is wrong is in problems."""
        answer = self.ask("verify " + ";".join(addresses))
        epochs = []
        while "problems" not in answer:
            epochs.append(answer)
            answer = self.line()
        if answer["problems"] > len(self.problems):
            self.problems.append(f"and {answer['problems'] - len(self.problems)} more")
        return epochs

    def end(self):
        if self.process.stdin.closed:
            return
        self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
