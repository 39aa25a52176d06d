"""A proxy before a Kafka broker, which a test tells what happens to requests: late, lost, without an answer, refused.

What is done to a request is what a network and a broker can do to it: a client whose connection ends does not know
whether its request was carried out, and it may still be, at any later time.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Self

import attrs

__all__ = ["ADD_PARTITIONS", "END_TXN", "INIT_PRODUCER", "PRODUCE", "Fault", "KafkaProxy", "Request", "seeded"]

PRODUCE, INIT_PRODUCER, ADD_PARTITIONS, END_TXN = 0, 22, 24, 26
NOT_LEADER: Final = 6
ANSWER_S: Final = 10.0


@attrs.frozen
class Request:
    """A request of a client. ``frame`` has all of its bytes, with the four of its length."""

    frame: bytes
    api: int
    version: int
    number: int

    @classmethod
    def of(cls, frame: bytes) -> Self:
        return cls(frame, *struct.unpack_from(">hhi", frame, 4))

    def partitions(self) -> list[tuple[str, int]]:
        """Return the topics and partitions that a request of ``PRODUCE`` is for."""
        return [(topic, partition) for topic, partitions in self._topics() for partition in partitions]

    def refused(self) -> bytes:
        """Return the answer that the broker does not lead the partitions of a request of ``PRODUCE``."""
        body = struct.pack(">i", self.number) + b"\0"
        topics = self._topics()
        body += _number(len(topics) + 1)
        for topic, partitions in topics:
            body += _number(len(topic) + 1) + topic.encode() + _number(len(partitions) + 1)
            for partition in partitions:
                body += struct.pack(">ihqqq", partition, NOT_LEADER, -1, -1, -1) + b"\1\0\0"
            body += b"\0"
        body += struct.pack(">i", 0) + b"\0"
        return struct.pack(">i", len(body)) + body

    def _topics(self) -> list[tuple[str, list[int]]]:
        assert self.api == PRODUCE
        assert 9 <= self.version <= 12, f"no test has asked for version {self.version}"
        at = _Reader(self.frame, 12)
        at.skip(max(0, at.int16()) + 1)  # the client, and no tags
        at.skip(max(0, at.number() - 1) + 6)  # the transactional id, acks, and the time-out
        found = []
        for _ in range(at.number() - 1):
            topic = at.take(at.number() - 1).decode()
            partitions = []
            for _ in range(at.number() - 1):
                partitions.append(at.int32())
                at.skip(at.number() - 1 + 1)
            at.skip(1)
            found.append((topic, partitions))
        return found


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def skip(self, size: int) -> None:
        self._at += size

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def number(self) -> int:
        value = shift = 0
        while True:
            [byte] = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


def _number(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


@attrs.frozen
class Fault:
    """What happens to a request, after *seconds*.

    ``pass``: it goes on. ``lose``: the connection ends, and it is lost. ``mute``: it is carried out, and the connection
    ends instead of an answer. ``late``: the connection ends at once, and it is carried out after *seconds* all the
    same. ``twice``: it is carried out twice, one after the other, and answered once. ``refuse``: the proxy answers
    that the broker does not lead the partitions, once the next request for them has come, or after *seconds*.
    """

    what: str = "pass"
    seconds: float = 0.0


Faults = Callable[[Request], Fault]


def seeded(seed: int, often: Mapping[int, float]) -> Faults:
    """Return faults by chance, *often* as it has for an API, always the same for a seed and an order of requests."""
    dice, lock = random.Random(seed), threading.Lock()

    def fault(request: Request) -> Fault:
        with lock:
            if dice.random() >= often.get(request.api, 0.0):
                return Fault()
            what = dice.choice(("pass", "lose", "mute", "late", "late", "late", "twice"))
            return Fault(what, dice.choice((0.05, 0.15, 0.3, 0.6)) if what in ("pass", "late") else 0.0)

    return fault


class KafkaProxy:
    """Listens on *port* of loopback, and passes what comes to *behind*, as ``faults`` says. A context manager.

    ``counts``: how many requests had each fault.
    """

    def __init__(self, port: int, behind: int, faults: Faults = lambda request: Fault()) -> None:
        self.faults = faults
        self.counts: Counter[str] = Counter()
        self._behind = behind
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for each in self._open:
                _end(each)
        for thread in self._threads:
            thread.join()

    def _start(self, run: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=run, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._behind), timeout=ANSWER_S)
            except OSError:  # ended; or the broker is down, and the client is told so
                continue
            broker.settimeout(None)
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, broker}
            link = _Link(client, broker)
            self._start(self._requests, link)
            self._start(self._answers, link)

    def _requests(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            for frame in _frames(link.client):
                request = Request.of(frame)
                fault = self.faults(request)
                self.counts[fault.what] += 1
                if not self._carry(link, request, fault):
                    break
        _end(link.client)
        if link.late is None:
            _end(link.broker)

    def _carry(self, link: _Link, request: Request, fault: Fault) -> bool:
        """Do to a request what *fault* says; return whether the connection goes on."""
        if fault.what == "late":
            link.late = request.number
            _end(link.client)
        if fault.what == "refuse":
            link.refused.append(request)
            timer = threading.Timer(fault.seconds, link.refuse)
            timer.daemon = True
            timer.start()
            return True
        if link.refused and request.api == PRODUCE and request.partitions() == link.refused[0].partitions():
            link.refuse()
        if fault.seconds:
            self._ended.wait(fault.seconds)
        if fault.what == "lose":
            return False
        if fault.what == "mute":
            link.mute = request.number
        link.broker.sendall(request.frame)
        if fault.what == "twice":
            link.unasked.append(request.number)
            link.broker.sendall(request.frame)
        return fault.what != "late"

    def _answers(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            told: set[int] = set()
            for frame in _frames(link.broker):
                number = int.from_bytes(frame[4:8], "big", signed=True)
                if number in (link.mute, link.late):
                    break
                if number in told and number in link.unasked:
                    continue
                told.add(number)
                if link.late is None:
                    link.tell(frame)
        _end(link.client)
        _end(link.broker)


@attrs.define(eq=False)
class _Link:
    client: socket.socket
    broker: socket.socket
    late: int | None = None  # the number of the request that is carried out after the connection ended
    mute: int | None = None
    unasked: list[int] = attrs.field(factory=list)
    refused: list[Request] = attrs.field(factory=list)
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    def refuse(self) -> None:
        """Answer the requests that are refused, if any are left."""
        with contextlib.suppress(IndexError, OSError):
            while True:
                self.tell(self.refused.pop(0).refused())

    def tell(self, frame: bytes) -> None:
        with self.lock:
            self.client.sendall(frame)


def _frames(source: socket.socket) -> Iterator[bytes]:
    """Yield what comes, each with its length, until the connection ends."""
    reader = source.makefile("rb")
    while len(head := reader.read(4)) == 4:
        size = int.from_bytes(head, "big")
        body = reader.read(size)
        if len(body) < size:
            return
        yield head + body


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
