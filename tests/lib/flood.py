#!/usr/bin/env python3
"""Connections that send the same frame as fast as it is taken and read what comes back: flood.py ADDRESS CONNECTIONS < FRAME. Says "up" when all are open,
and at SIGTERM how many bytes came back. A process of its own, so that who measures beside it does not share an interpreter with it."""
import os
import select
import signal
import socket
import sys

REPEAT = 500  # frames in one write: this costs far less here than at the broker


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    data = memoryview(sys.stdin.buffer.read() * REPEAT)
    received = 0

    def tell(*_):
        print(received, flush=True)
        os._exit(0)
    signal.signal(signal.SIGTERM, tell)
    epoll, connections = select.epoll(), {}
    for _ in range(int(sys.argv[2])):
        connection = socket.create_connection((host, int(port)), timeout=10)
        connection.setblocking(False)
        connections[connection.fileno()] = [connection, 0]
        epoll.register(connection, select.EPOLLIN | select.EPOLLOUT)
    print("up", flush=True)
    while True:
        for descriptor, event in epoll.poll():
            entry = connections[descriptor]
            try:
                if event & ~select.EPOLLOUT:
                    received += len(entry[0].recv(1 << 18))
                if event & select.EPOLLOUT:
                    entry[1] = (entry[1] + entry[0].send(data[entry[1]:])) % len(data)
            except BlockingIOError:
                pass


if __name__ == "__main__":
    main()
