"""``RedisStreams`` on a Redis server that is killed, paused, full, and read-only."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from get_redis import MISSING
from maven import free_ports, tied_to_us
from outcomes import Outcome
from waiting import eventually

pytest.importorskip("redis")

import redis
import redis_streams
from redis_streams import RedisStreams

from rscylla.abc import Message, Publisher
from rscylla.errors import ConfigError, PublishFailed
from rscylla.testing.contracts import PublisherContract

LONG_S = 60.0


class RedisServer:
    """A server on loopback that keeps what it acknowledged: each write is on disk before the reply."""

    def __init__(self, home: Path) -> None:
        self.home = home
        [self.port] = free_ports(1)
        self.url = f"redis://127.0.0.1:{self.port}"
        self.client: Any = redis.Redis(port=self.port)
        self.client.set_response_callback("XRANGE", lambda found, **_: found)  # as it is: a field may come twice
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        settings = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.home), "--save", "")
        settings += ("--appendonly", "yes", "--appendfsync", "always")
        with (self.home / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(tied_to_us(["redis-server", *settings]), stdout=log)
        eventually(self._answers, LONG_S)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.exceptions.ConnectionError:  # BusyLoadingError, too
            return False

    def read(self, topic: str) -> Sequence[Message]:
        """Return the records of a stream, whose ``*`` ids the server has put in order."""
        return [message_of(topic, fields) for _, fields in self.client.xrange(topic)]


def message_of(topic: str, fields: Sequence[bytes]) -> Message:
    pairs = list(zip(fields[::2], fields[1::2], strict=True))
    known = dict(pairs)
    headers = []
    for name, value in pairs:
        kind, _, rest = name.decode().partition(":")
        if rest and kind in ("header", "null"):
            headers.append((rest, value if kind == "header" else None))
    return Message(topic, known.get(b"key"), known.get(b"value"), tuple(headers))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("redis")


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip(MISSING)
    server = RedisServer(home)
    try:
        server.start()
        yield server
    finally:
        server.kill()


class TestOnARedisServer(PublisherContract):
    @pytest.fixture(autouse=True)
    def make(self, server: RedisServer) -> Iterator[None]:
        self.server = server
        self.opened: list[RedisStreams] = []
        yield
        for publisher in self.opened:
            publisher.close()

    def open_publisher(self) -> Publisher:
        self.opened.append(RedisStreams(self.server.url, max_record_bytes=1000))
        return self.opened[-1]

    def read(self, topic: str) -> Sequence[Message]:
        return self.server.read(topic)

    def never(self, topic: str) -> Message:
        return Message(topic, b"k", b"x" * 1001)


def given(topic: str, *numbers: int) -> list[Message]:
    return [Message(topic, b"k", b"%d" % n) for n in numbers]


@pytest.fixture
def publisher(server: RedisServer) -> Iterator[RedisStreams]:
    with RedisStreams(server.url, timeout=timedelta(seconds=1)) as publisher:
        yield publisher


def in_order(found: Sequence[Message]) -> list[int]:
    """Return the numbers without repeats, after a check that a repeat begins where a transaction began."""
    numbers = [int(message.value or b"") for message in found]
    seen: list[int] = []
    for number in numbers:
        if number not in seen:
            assert not seen or number > seen[-1], numbers
            seen.append(number)
    assert not numbers or numbers[-1] == max(numbers), numbers  # a repeat does not come after what is newer
    return seen


def test_over_kills_of_the_server_nothing_is_lost_and_order_is_kept(
    server: RedisServer, publisher: RedisStreams
) -> None:
    outcome, count = Outcome(), 0
    for _ in range(5):
        for _ in range(200):
            publisher.publish(given("kills", count), outcome)
            count += 1
        server.kill()
        publisher.publish(given("kills", count), outcome)
        count += 1
        eventually(lambda: "Redis does not take records" in publisher.trouble(), LONG_S)
        server.start()
        assert publisher.flush(LONG_S)
    assert outcome.errors == [None] * count
    assert publisher.trouble() == ""
    assert in_order(server.read("kills")) == list(range(count))


class SlowNetwork:
    """Passes bytes between clients and a server. What the first client sends can be held back, and come late."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listening.getsockname()[1]}"
        self.open = threading.Event()
        self.open.set()
        self.first: threading.Thread | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                late = threading.Thread(target=self._pass, args=(client, server, self.first is None), daemon=True)
                self.first = self.first or late
                late.start()
                threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, is_late: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_late:
                    self.open.wait()
                to.sendall(data)
        to.close()

    def close(self) -> None:
        self.open.set()
        self._listening.close()


def test_what_comes_late_of_a_connection_that_was_given_up_is_not_carried_out(server: RedisServer) -> None:
    network, outcome = SlowNetwork(server.port), Outcome()
    with RedisStreams(network.url, timeout=timedelta(seconds=1)) as publisher:
        publisher.publish(given("late", 0), outcome)
        outcome.wait()
        network.open.clear()
        publisher.publish(given("late", 1), outcome)
        assert outcome.all(2) == [None] * 2  # by another connection
        publisher.publish(given("late", 2), outcome)
        assert outcome.all(3) == [None] * 3
        network.open.set()
        assert network.first is not None
        network.first.join(LONG_S)
    network.close()
    assert server.client.ping()  # after what it may have read of the first connection
    assert in_order(server.read("late")) == [0, 1, 2]


def test_a_paused_server_is_waited_for(server: RedisServer, publisher: RedisStreams) -> None:
    outcome = Outcome()
    publisher.publish(given("paused", 0), outcome)
    outcome.wait()
    server.signal(signal.SIGSTOP)
    try:
        publisher.publish(given("paused", 1), outcome)
        eventually(lambda: publisher.trouble() != "", LONG_S)
        publisher.publish(given("paused", 2), outcome)
    finally:
        server.signal(signal.SIGCONT)
    assert outcome.all(3) == [None] * 3
    assert publisher.trouble() == ""
    assert in_order(server.read("paused")) == [0, 1, 2]


def test_a_full_server_is_waited_for(server: RedisServer, publisher: RedisStreams) -> None:
    outcome = Outcome()
    server.client.config_set("maxmemory", 1)
    try:
        publisher.publish(given("full", 0, 1), outcome)
        eventually(lambda: "memory" in publisher.trouble(), LONG_S)
        assert not outcome.errors
    finally:
        server.client.config_set("maxmemory", 0)
    assert outcome.wait() is None
    assert in_order(server.read("full")) == [0, 1]


def test_a_refusal_fails_what_waits_and_shows_no_value(server: RedisServer, publisher: RedisStreams) -> None:
    server.client.set("text", "no stream")
    outcome = Outcome()
    publisher.publish([Message("text", b"k", b"swordfish")], outcome)
    error = outcome.wait()
    assert isinstance(error, PublishFailed)
    assert "wrong kind of value" in str(error)
    assert "swordfish" not in str(error)
    publisher.publish(given("after", 1), outcome)
    assert outcome.all(2)[1] is None


def test_what_is_abandoned_does_not_come(server: RedisServer, publisher: RedisStreams) -> None:
    outcome = Outcome()
    server.kill()
    try:
        publisher.publish(given("abandoned", 1), outcome)
        publisher.publish(given("abandoned", 2), outcome)
        eventually(lambda: publisher.trouble() != "", LONG_S)
        publisher.abandon()
        assert [type(error) for error in outcome.all(2)] == [PublishFailed] * 2
    finally:
        server.start()
    publisher.publish(given("abandoned", 3), outcome)
    assert publisher.flush(LONG_S)
    assert in_order(server.read("abandoned")) == [3]


def test_a_stream_keeps_about_as_many_entries_as_asked(server: RedisServer) -> None:
    with RedisStreams(server.url, maxlen=100) as publisher:
        publisher.publish(given("trimmed", *range(2000)), Outcome())
        assert publisher.flush(LONG_S)
    assert 100 <= server.client.xlen("trimmed") < 400
    assert server.read("trimmed")[-1].value == b"1999"


def test_what_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match="maxlen must be 1 or more"):
        RedisStreams("redis://localhost", maxlen=0)
    with pytest.raises(ConfigError, match="Redis URL must specify"):
        RedisStreams("localhost")


def test_the_program_publishes_the_changes_of_a_table(
    server: RedisServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["redis_streams.py", "--embedded", "--redis", server.url])
    redis_streams.main()
    [record] = server.read("orders")
    assert record.key == b'{"id":1}'
    assert "INSERT" in capsys.readouterr().out
