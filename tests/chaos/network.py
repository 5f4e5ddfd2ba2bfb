"""A network of our own: each node in a name space with one cable to a bridge, at 10.99.0.(node + 1); the test is at 10.99.0.254.

What a node sends to another is lost when it believes in a wrong hardware address; so one direction can be cut, and no packet filter is needed. A relay
stands between two nodes by a rule of address translation, which needs iptables.
"""
import os
import random
import socket
import struct
import subprocess
import sys
import threading
import time

PREFIX = "10.99.0."
NOBODY = "02:00:00:00:00:99"
FOLDER = "/run/netns"
CALLED = "CHAOS_IN_NAMESPACE"
UNSHARE = ["unshare", "--net", "--mount"]


def ip(*arguments, must=True):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if must and done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.returncode == 0


def why_not():
    """None where networks can be made."""
    if os.geteuid() != 0:
        return "network name spaces need root"
    probe = subprocess.run([*UNSHARE, "ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"], capture_output=True, text=True, check=False)
    return None if probe.returncode == 0 else f"no network name spaces: {probe.stderr.strip()}"


def enter():
    """Starts this program again where networks can be made and are gone with it; returns None there, else why not."""
    if CALLED in os.environ:
        return None
    reason = why_not()
    if reason is not None:
        return reason
    os.environ[CALLED] = "1"
    os.execvp("unshare", [*UNSHARE, sys.executable, *sys.argv])


class Network:
    def __init__(self, nodes):
        self.nodes = nodes
        self.rules = []
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
        ip("link", "set", "lo", "up")
        ip("link", "add", "br0", "type", "bridge")
        ip("link", "set", "br0", "up")
        ip("addr", "add", PREFIX + "254/24", "dev", "br0")
        for i in range(nodes):
            ip("netns", "add", f"n{i}")
            ip("link", "add", f"v{i}", "type", "veth", "peer", "name", "eth0", "netns", f"n{i}")
            ip("link", "set", f"v{i}", "master", "br0", "up")
            ip("-n", f"n{i}", "addr", "add", f"{PREFIX}{i + 1}/24", "dev", "eth0")
            ip("-n", f"n{i}", "link", "set", "eth0", "up")
            ip("-n", f"n{i}", "link", "set", "lo", "up")

    def cut(self, sender, receiver):
        """What sender sends to receiver is lost; the other direction is not touched."""
        ip("-n", f"n{sender}", "neigh", "replace", f"{PREFIX}{receiver + 1}", "lladdr", NOBODY, "nud", "permanent", "dev", "eth0")

    def cut_both(self, a, b):
        self.cut(a, b)
        self.cut(b, a)

    def heal(self):
        for i in range(self.nodes):
            for k in range(self.nodes):
                ip("-n", f"n{i}", "neigh", "del", f"{PREFIX}{k + 1}", "dev", "eth0", must=False)

    @staticmethod
    def iptables(node, *arguments):
        done = subprocess.run(["ip", "netns", "exec", f"n{node}", "iptables", "-w", *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"iptables {' '.join(arguments)}: {done.stderr.strip()}")


class Relay:
    """Stands on the one connection between two nodes, which the one with the lower id makes. kind:

    delay      each piece takes 20 to 200 ms more, in order
    half_open  after a second the far side is closed; the near side sees nothing of it and is never answered
    reset      a piece is cut in the middle and both sides are reset, again and again
    """

    def __init__(self, dialer, other, port, kind, seed):
        self.dialer, self.kind, self.chance = dialer, kind, random.Random(seed)
        self.target = f"{PREFIX}{other + 1}", port
        self.listener = socket.create_server((PREFIX + "254", 0))
        self.sockets, self.ending = [], False
        self.match = ["-p", "tcp", "-d", self.target[0], "--dport", str(port)]
        to = f"{PREFIX}254:{self.listener.getsockname()[1]}"
        self.translate = ["-t", "nat", "OUTPUT", *self.match, "-j", "DNAT", "--to-destination", to]
        self.rule(self.translate, "-A")
        threading.Thread(target=self.accept, daemon=True).start()
        self.break_connection()

    def rule(self, rule, how):
        Network.iptables(self.dialer, *rule[:-len(rule) + 2], how, *rule[2:])

    def break_connection(self):
        """The connection that is there now is not translated: reset it."""
        refuse = ["-t", "filter", "OUTPUT", *self.match, "-j", "REJECT", "--reject-with", "tcp-reset"]
        self.rule(refuse, "-A")
        time.sleep(0.3)
        self.rule(refuse, "-D")

    def close(self):
        self.rule(self.translate, "-D")
        self.ending = True
        self.listener.close()
        for one in self.sockets:
            self.drop(one)

    @staticmethod
    def drop(one):
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, not an end
            one.close()
        except OSError:
            pass

    def accept(self):
        while not self.ending:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.target, timeout=2.0)
            except OSError:
                continue
            far.settimeout(None)
            self.sockets += [near, far]
            began = time.monotonic()
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self.pass_on, args=(source, sink, near, far, began), daemon=True).start()

    def pass_on(self, source, sink, near, far, began):
        left = self.chance.randrange(1 << 16, 1 << 20)  # bytes until the reset
        try:
            while data := source.recv(1 << 18):
                if self.kind == "delay":
                    time.sleep(self.chance.uniform(0.02, 0.2))
                elif self.kind == "half_open" and time.monotonic() - began > 1:
                    if source is far:
                        return
                    if sink.fileno() >= 0:
                        self.drop(sink)
                    while source.recv(1 << 18):
                        pass
                    return
                elif self.kind == "reset" and (left := left - len(data)) < 0:
                    sink.sendall(data[:len(data) // 2])
                    self.drop(source)
                    self.drop(sink)
                    return
                sink.sendall(data)
        except OSError:
            pass
        if self.kind != "half_open":
            self.drop(near)
            self.drop(far)
