"""Nodes that are slow, hang, and go on, on an event loop whose time is driven."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from enginebox import EngineBox
from memorywire import STARTUP, MemoryTransport, answers, frame, long_string

from rscylla.embedded.wire.connection import Connection
from rscylla.embedded.wire.frame import Opcode
from rscylla.embedded.wire.interfaces import WireOptions
from rscylla.embedded.wire.server import Server
from rscylla.embedded.wire.transport import Listener


class DrivenLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is driven."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        # The first turn finds the timers that are due, the second one carries them out.
        for _ in range(2):
            self.run_until_complete(asyncio.sleep(0))


class Conversation:
    """A client of one node, on a loop whose time is driven."""

    def __init__(self) -> None:
        self.loop = DrivenLoop()
        self.box = box = EngineBox()
        self._server = Server(box.engine, WireOptions())
        listener = Listener(box.cluster.nodes[0], shard_loads=[0])
        self._server.listeners[0] = listener
        self._transport = MemoryTransport()
        self._connection = Connection(self._server, listener)
        self._connection.connection_made(self._transport)
        self.send(0, Opcode.STARTUP, STARTUP)
        assert self.answered() == [0]

    def send(self, stream: int, opcode: int = Opcode.OPTIONS, body: bytes = b"") -> None:
        async def receive() -> None:
            self._connection.data_received(frame(opcode, body, stream=stream))

        self.loop.run_until_complete(receive())

    def pace(self, *, held: bool = False, delay_s: float = 0.0) -> None:
        async def pace() -> None:
            self._server.pace(0, held=held, delay_s=delay_s)

        self.loop.run_until_complete(pace())

    def answers(self) -> list[tuple[int, int, bytes]]:
        """Return stream, opcode and body of the answers since the last call."""
        out = bytes(self._transport.out)
        self._transport.out.clear()
        return answers(out)

    def answered(self) -> list[int]:
        """Return the streams of the answers since the last call."""
        return [stream for stream, _, _ in self.answers()]


@pytest.fixture
def conversation() -> Iterator[Conversation]:
    conversation = Conversation()
    yield conversation
    conversation.loop.close()


def test_a_node_that_is_less_slow_than_before_answers_all_in_order(conversation: Conversation) -> None:
    conversation.pace(delay_s=600)
    conversation.send(1)
    conversation.pace(delay_s=1)
    conversation.send(2)
    conversation.send(3)
    assert conversation.answered() == []
    conversation.loop.pass_time(1)
    assert conversation.answered() == [1, 2, 3]
    conversation.loop.pass_time(600)
    assert conversation.answered() == []


@pytest.mark.parametrize("later_s", [0, 600])
def test_a_slow_node_that_hangs_answers_when_it_goes_on(conversation: Conversation, later_s: float) -> None:
    conversation.pace(delay_s=1)
    conversation.send(1)
    conversation.pace(held=True)
    conversation.send(2)
    conversation.loop.pass_time(1)
    assert conversation.answered() == []
    conversation.pace(delay_s=later_s)
    assert conversation.answered() == ([1] if later_s else [1, 2])
    conversation.loop.pass_time(later_s)
    assert conversation.answered() == ([2] if later_s else [])


def test_a_slow_node_that_hangs_does_not_tell_that_a_timeout_is_over(conversation: Conversation) -> None:
    request = long_string("SELECT key FROM system.local USING TIMEOUT 10ms") + b"\0\1\0"
    conversation.pace(delay_s=1)
    conversation.send(1, Opcode.QUERY, request)
    conversation.loop.pass_time(0.01)
    assert conversation.answered() == [1]
    conversation.send(2, Opcode.QUERY, request)
    conversation.pace(held=True)
    conversation.loop.pass_time(1)
    assert conversation.answered() == []
    conversation.pace()
    assert conversation.answered() == [2]


def test_a_truncate_that_a_slow_node_holds_for_longer_than_its_timeout_fails(conversation: Conversation) -> None:
    conversation.box.run("CREATE TABLE k (pk int PRIMARY KEY)")
    conversation.box.run("INSERT INTO k (pk) VALUES (1)")
    conversation.pace(delay_s=1)
    conversation.send(1, Opcode.QUERY, long_string("TRUNCATE ks.k USING TIMEOUT 10ms") + b"\0\1\0")
    conversation.send(2, Opcode.QUERY, long_string("TRUNCATE ks.k USING TIMEOUT 2s") + b"\0\1\0")
    conversation.loop.pass_time(0.01)
    ((stream, opcode, body),) = conversation.answers()
    assert (stream, opcode) == (1, Opcode.ERROR)
    assert b"Timeout during truncate of ks.k" in body
    assert conversation.box.rows("SELECT * FROM k") == [{"pk": 1}]
    conversation.loop.pass_time(1)
    assert conversation.answered() == [2]
    assert conversation.box.rows("SELECT * FROM k") == []


def test_a_slow_node_answers_once_when_it_fails_to_put_a_request_off(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(conversation.box.engine, "time_limit_us", broken)
    conversation.pace(delay_s=1)
    conversation.send(1, Opcode.QUERY, long_string("SELECT key FROM system.local") + b"\0\1\0")
    conversation.send(2)
    ((stream, opcode, body),) = conversation.answers()
    assert (stream, opcode) == (1, Opcode.ERROR)
    assert b"internal error" in body
    assert "broken on purpose" in caplog.text
    conversation.loop.pass_time(1)
    assert conversation.answered() == [2]
