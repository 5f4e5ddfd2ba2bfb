"""A small RocketMQ remoting client for tests: frames, records, and the requests that the end-to-end tests send.

Written from the wire format alone and shares nothing with the product, so that both cannot be wrong in the same way.
"""
import json
import os
import re
import select
import socket
import struct
import time
import zlib

# Deadlines are written for a machine that does nothing else. They are there to end a test that cannot pass, so they may be long.
PATIENCE = float(os.environ.get("E2E_PATIENCE", "4"))

SEND_V2, PULL, QUERY, MAX_OFFSET, MIN_OFFSET, CREATE_TOPIC = 310, 11, 12, 30, 31, 17
PUT_KV, GET_KV, REGISTER, UNREGISTER, ROUTE, CLUSTER_INFO, RUNTIME_INFO = 100, 101, 103, 104, 105, 106, 28


class Answer:
    def __init__(self, header, body):
        self.code = header.get("code", 0)
        self.remark = header.get("remark")
        self.ext = header.get("extFields") or {}
        self.opaque = header.get("opaque")
        self.flag = header.get("flag", 0)
        self.body = body

    def __repr__(self):
        return f"code {self.code}, remark {self.remark!r}, ext {self.ext}, body {self.body[:200]!r}"


def frame(header, body=b"", serialize_type=0):
    """header: a dict, or bytes that are put there as they are."""
    raw = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return struct.pack(">iI", 4 + len(raw) + len(body), (serialize_type << 24) | len(raw)) + raw + body


def request_frame(code, ext=None, body=b"", opaque=1, flag=0, language="JAVA", version=409):
    header = {"code": code, "flag": flag, "language": language, "opaque": opaque, "version": version}
    if ext is not None:
        header["extFields"] = {name: text(value) for name, value in ext.items() if value is not None}
    return frame(header, body)


def text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def split_address(address):
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)


class Connection:
    """One connection; answers are matched by opaque. Raises OSError (ConnectionError, TimeoutError) when it is gone or silent."""

    def __init__(self, address, timeout=3.0, language="JAVA", version=409):
        self.language, self.version = language, version
        self.socket = socket.create_connection(split_address(address), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout = timeout
        self.buffer = bytearray()
        self.answers = {}
        self.requests = []  # of the broker, not taken yet
        self.opaque = 0

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, code, ext=None, body=b"", oneway=False):
        self.opaque += 1
        self.send_raw(request_frame(code, ext, body, self.opaque, 2 if oneway else 0, self.language, self.version))
        return self.opaque

    def send_raw(self, data):
        self.socket.sendall(data)

    def receive_some(self, timeout):
        """Waits for bytes; False when none came. Raises ConnectionError at the end of the stream."""
        poll = select.poll()  # select() takes no descriptor above 1023
        poll.register(self.socket, select.POLLIN)
        if not poll.poll(max(timeout, 0) * 1000):
            return False
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("closed by the peer")
        self.buffer += data
        return True

    def frames(self):
        """Takes the whole frames that are there."""
        while len(self.buffer) >= 4:
            (length,) = struct.unpack_from(">i", self.buffer)
            if length < 4 or length > 1 << 24:
                raise ConnectionError(f"frame of length {length}")
            if len(self.buffer) < 4 + length:
                return
            (word,) = struct.unpack_from(">I", self.buffer, 4)
            size = word & 0xFFFFFF
            if word >> 24 != 0 or size > length - 4:
                raise ConnectionError(f"frame with header word {word:#x}")
            header = json.loads(bytes(self.buffer[8:8 + size]))
            body = bytes(self.buffer[8 + size:4 + length])
            del self.buffer[:4 + length]
            yield Answer(header, body)

    def answer(self, opaque, timeout=None):
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout) * PATIENCE
        while opaque not in self.answers:
            for answer in self.frames():
                if answer.flag & 1:
                    self.answers[answer.opaque] = answer
                else:
                    self.requests.append(answer)
            if opaque in self.answers:
                break
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no answer")
            self.receive_some(left)
        return self.answers.pop(opaque)

    def request(self, code, ext=None, body=b"", timeout=None):
        return self.answer(self.send(code, ext, body), timeout)

    def next_request(self, code, timeout=None):
        """The next request with that code that the broker sends us; others before it are dropped."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            for answer in self.frames():
                if answer.flag & 1:
                    self.answers[answer.opaque] = answer
                else:
                    self.requests.append(answer)
            while self.requests:
                request = self.requests.pop(0)
                if request.code == code:
                    return request
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no request {code}")
            self.receive_some(left)

    def respond(self, request, code=0, body=b"", remark=None):
        header = {"code": code, "flag": 1, "language": "JAVA", "opaque": request.opaque, "version": 409}
        if remark is not None:
            header["remark"] = remark
        self.send_raw(frame(header, body))

    def closed_by_peer(self, timeout=5.0):
        """True when the peer closes within the time, whatever it sends before."""
        deadline = time.monotonic() + timeout * PATIENCE
        while (left := deadline - time.monotonic()) > 0:
            try:
                self.receive_some(left)
            except OSError:
                return True
        return False


class NotNow(ValueError):
    """An answer that a client takes as a reason to ask again, somewhere else or later."""


def ask(address, code, ext=None, body=b"", timeout=3.0):
    with Connection(address, timeout) as connection:
        return connection.request(code, ext, body)


def send_fields(topic, queue, properties="", group="e2e-producer", default_topic="TBW102"):
    return {"a": group, "b": topic, "c": default_topic, "d": 4, "e": queue, "f": 0, "g": int(time.time() * 1000), "h": 0,
            "i": properties, "j": 0, "k": False, "m": False}


def topic_fields(topic, queues=1, perm=6):
    return {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": perm, "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0, "order": False}


def pull_fields(topic, queue, offset, group="e2e-consumer", hold_ms=0, count=32):
    return {"consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": count,
            "sysFlag": 4 | (2 if hold_ms else 0), "commitOffset": 0, "suspendTimeoutMillis": hold_ms, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG"}


def batch_body(members):
    """Body of a batch: members are (body, properties) or (body, properties, flag)."""
    parts = []
    for member in members:
        body, properties, flag = (*member, 0)[:3]
        properties = properties.encode() if isinstance(properties, str) else properties
        parts.append(struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body)) + body
                     + struct.pack(">h", len(properties)) + properties)
    return b"".join(parts)


def parse_properties(text):
    """As Java reads them: pieces that are no pair are nothing, and the last of a name counts."""
    pairs = (piece.split("\x01", 1) for piece in text.split("\x02"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and pair[0] and pair[1]}


class Record:
    """One stored message."""

    def __init__(self, data, at):
        (self.size, magic, crc, self.queue, self.flag, self.offset, self.position, self.sys_flag, self.born_ms) = \
            struct.unpack_from(">iIIiiqqiq", data, at)
        if magic != 0xDAA320A7:
            raise ValueError(f"record with magic {magic:#x} at {at}")
        end = at + self.size
        if end > len(data):
            raise ValueError(f"record of {self.size} bytes at {at} of {len(data)}")
        at += 48 + (20 if self.sys_flag & 0x10 else 8)
        (self.store_ms,) = struct.unpack_from(">q", data, at)
        at += 8 + (20 if self.sys_flag & 0x20 else 8)
        (self.store_port,) = struct.unpack_from(">i", data, at - 4)
        self.reconsume_times, self.prepared, size = struct.unpack_from(">iqi", data, at)
        at += 16
        self.body = data[at:at + size]
        at += size
        size = data[at]
        self.topic = data[at + 1:at + 1 + size].decode()
        at += 1 + size
        (size,) = struct.unpack_from(">h", data, at)
        self.properties = data[at + 2:at + 2 + size].decode()
        if at + 2 + size != end:
            raise ValueError("the lengths of a record do not add up")
        if crc != zlib.crc32(self.body) & 0x7FFFFFFF:
            raise ValueError(f"body of queue offset {self.offset} is damaged")


def records(body):
    at = 0
    while at < len(body):
        record = Record(body, at)
        yield record
        at += record.size


def max_offset(connection, topic, queue=0):
    answer = connection.request(MAX_OFFSET, {"topic": topic, "queueId": queue})
    if answer.code != 0:
        raise (NotNow if answer.code == 14 else ValueError)(f"max offset of {topic}/{queue}: {answer}")
    return int(answer.ext["offset"])


def read_queue(connection, topic, queue, start=0):
    """All records of a queue, from start to its maximum."""
    end = max_offset(connection, topic, queue)
    found = []
    offset = start
    while offset < end:
        answer = connection.request(PULL, pull_fields(topic, queue, offset))
        if answer.code != 0:
            raise (NotNow if answer.code == 14 else ValueError)(f"pull of {topic}/{queue} at {offset} of {end}: {answer}")
        found += records(answer.body)
        offset = int(answer.ext["nextBeginOffset"])
    return found


def leader_address(namesrv_addr, broker_name="broker-a"):
    """Address under id 0 at the first name server that knows one, None when nobody does."""
    for address in namesrv_addr.split(";"):
        try:
            answer = ask(address, CLUSTER_INFO, timeout=1.0)
        except OSError:
            continue
        # RocketMQ's own leaves the quotes of numeric keys out.
        broker = json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', answer.body))["brokerAddrTable"].get(broker_name)
        if answer.code == 0 and broker and "0" in broker["brokerAddrs"]:
            return broker["brokerAddrs"]["0"]
    return None
