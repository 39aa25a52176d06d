"""Frames of a seed corpus, damaged in every way, against a whole server: no crash, no hang, no memory without bound.

What a client may send is answered or ends the connection; an error inside the server, which would be logged, is a
failure.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from enginebox import EngineBox
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memorywire import STARTUP, MemoryTransport, answers, frame, long_string, string

from rscylla.embedded.engine.engine import Engine
from rscylla.embedded.wire.connection import Connection
from rscylla.embedded.wire.frame import HEADER, HEADER_SIZE, Opcode
from rscylla.embedded.wire.interfaces import WireOptions
from rscylla.embedded.wire.server import Server
from rscylla.embedded.wire.transport import Listener

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("RSCYLLA_FUZZ_EXAMPLES", "400"))
MAX_FRAME = 1 << 20

TEXTS = (
    "SELECT * FROM ks.t WHERE pk = 1",
    "SELECT key FROM system.local",
    "INSERT INTO ks.t (pk, ck, v, m) VALUES (?, ?, ?, {'a': 1})",
    "UPDATE ks.t USING TTL 10 SET v = 'x', m['k'] = 2 WHERE pk = 1 AND ck = 2 IF EXISTS",
    "DELETE FROM ks.t WHERE pk = 1 AND ck > 3",
    "BEGIN UNLOGGED BATCH INSERT INTO ks.t (pk, ck) VALUES (1, 1); DELETE FROM ks.t WHERE pk = 2; APPLY BATCH",
    'SELECT "cdc$time", v FROM ks.t_scylla_cdc_log WHERE token("cdc$stream_id") > 0 LIMIT 3',
    "SELECT count(*), max(ck) FROM ks.t GROUP BY pk",
    "CREATE TABLE IF NOT EXISTS ks.x (a int PRIMARY KEY, b frozen<map<text, tuple<int, uuid>>>)",
    "ALTER TABLE ks.x ADD c text",
    "DESCRIBE TABLE ks.t",
    "USE ks",
)


class Fuzzed:
    """A server with a small table that lives through all examples."""

    def __init__(self) -> None:
        box = EngineBox()
        box.run(
            "CREATE TABLE t (pk int, ck int, v text, m map<text, int>, PRIMARY KEY (pk, ck)) "
            "WITH cdc = {'enabled': true, 'preimage': true}"
        )
        self.engine: Engine = box.engine
        self.server = Server(self.engine, WireOptions(max_frame=MAX_FRAME))
        self.listener = Listener(box.cluster.nodes[0], shard_loads=[0, 0])
        self.loop = asyncio.new_event_loop()
        self.ids = [self.engine.prepare(text, "ks").id for text in TEXTS]

    def talk(self, chunks: list[bytes], *, started: bool) -> tuple[Connection, MemoryTransport]:
        """Send *chunks* by a connection of their own, on the loop, and return it with its transport."""
        transport = MemoryTransport()

        async def send() -> Connection:
            connection = Connection(self.server, self.listener)
            connection.connection_made(transport)
            if started:
                connection.data_received(frame(Opcode.STARTUP, STARTUP))
                transport.out.clear()
            for chunk in chunks:
                connection.data_received(chunk)
            return connection

        return self.loop.run_until_complete(send()), transport

    def close(self) -> None:
        pending = asyncio.all_tasks(self.loop)
        assert not pending
        self.loop.close()


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Fuzzed]:
    made = Fuzzed()
    yield made
    made.close()


TAIL = b"\0\1\0"
VALUES = b"\0\1\x01\0\3\0\0\0\4\0\0\0\1\0\0\0\4\0\0\0\2\0\0\0\1x"


def corpus(ids: list[bytes]) -> list[bytes]:
    """Return one well-formed frame of each kind and statement."""
    frames = [
        frame(Opcode.OPTIONS, b""),
        frame(Opcode.STARTUP, STARTUP),
        frame(Opcode.REGISTER, b"\0\1" + string("SCHEMA_CHANGE")),
        frame(Opcode.AUTH_RESPONSE, b"\0\0\0\4\0a\0b"),
        frame(Opcode.BATCH, b"\1\0\1\0" + long_string(TEXTS[4]) + b"\0\0" + b"\0\1\0"),
        frame(Opcode.BATCH, b"\0\0\1\1" + b"\0\x10" + ids[2] + VALUES[3:] + b"\0\1\0"),
        frame(Opcode.QUERY, long_string(TEXTS[0]) + b"\0\1\x0c\0\0\0\5\0\0\0\3abc"),
        frame(Opcode.QUERY, long_string(TEXTS[2]) + VALUES, flags=4),
        frame(Opcode.QUERY, long_string(TEXTS[0]) + TAIL, flags=2),
    ]
    frames += [frame(Opcode.QUERY, long_string(text) + TAIL) for text in TEXTS]
    frames += [frame(Opcode.PREPARE, long_string(text)) for text in TEXTS]
    frames += [frame(Opcode.EXECUTE, b"\0\x10" + one + (VALUES if at == 2 else TAIL)) for at, one in enumerate(ids)]
    return frames


@st.composite
def damaged(draw: st.DrawFn, frames: list[bytes]) -> bytes:
    """Return a frame of the corpus with bytes changed, taken out or put in; its length field right or wrong."""
    data = bytearray(draw(st.sampled_from(frames)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["flip", "set", "cut", "insert", "repeat", "number"])):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "set" if data:
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at : at + draw(st.integers(1, 8))]
            case "insert":
                data[at:at] = draw(st.binary(max_size=8))
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 40))] * draw(st.integers(1, 50))
            case "number":
                data[at : at + 4] = draw(st.sampled_from([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\xff\xff"]))
    if len(data) >= HEADER_SIZE and draw(st.integers(0, 3)):
        data[5:9] = struct.pack(">i", len(data) - HEADER_SIZE)
    return bytes(data)


@st.composite
def conversations(draw: st.DrawFn, frames: list[bytes]) -> list[bytes]:
    """Return several damaged frames as one stream of bytes, cut anywhere."""
    data = b"".join(draw(st.lists(damaged(frames), min_size=1, max_size=4)))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=3)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def check(fuzzed: Fuzzed, chunks: list[bytes], caplog: pytest.LogCaptureFixture, *, started: bool) -> None:
    caplog.clear()
    connection, transport = fuzzed.talk(chunks, started=started)
    for _, opcode, body in answers(bytes(transport.out)):
        assert opcode != Opcode.ERROR or not body.startswith(b"\0\0\0\0") or b"internal error" not in body, body
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    sent = sum(map(len, chunks))
    assert len(connection._pending) <= min(sent, MAX_FRAME + HEADER_SIZE)
    connection.connection_lost(None)
    assert fuzzed.server.waiting == 0
    # Others are served as before.
    other, transport = fuzzed.talk([frame(Opcode.QUERY, long_string(TEXTS[1]) + TAIL)], started=True)
    ((_, opcode, _),) = answers(bytes(transport.out))
    assert opcode == Opcode.RESULT
    other.connection_lost(None)
    assert not fuzzed.listener.connections


LIMITS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@LIMITS
@given(data=st.data(), started=st.sampled_from([True, True, True, False]))
def test_damaged_frames(fuzzed: Fuzzed, caplog: pytest.LogCaptureFixture, data: Any, started: bool) -> None:
    check(fuzzed, data.draw(conversations(corpus(fuzzed.ids))), caplog, started=started)


@LIMITS
@given(chunks=st.lists(st.binary(max_size=200), min_size=1, max_size=4), started=st.booleans())
def test_noise(fuzzed: Fuzzed, caplog: pytest.LogCaptureFixture, chunks: list[bytes], started: bool) -> None:
    check(fuzzed, chunks, caplog, started=started)


@LIMITS
@given(data=st.data())
def test_damaged_statements(fuzzed: Fuzzed, caplog: pytest.LogCaptureFixture, data: Any) -> None:
    """The frame is right; words of the statement are shuffled, repeated, cut and mixed with those of others."""
    words = [*"()[]{},.;'\"?\0\u20ac", "$$", ":a", "--", "/*", "0x", "1e400", "-1", "nan", "null", "token", "::"]
    pieces = st.sampled_from([word for text in TEXTS for word in text.split(" ")] + words)
    text = " ".join(data.draw(st.lists(pieces, max_size=25)))
    encoded = text.encode()
    query = struct.pack(">i", len(encoded)) + encoded
    check(fuzzed, [frame(Opcode.QUERY, query + TAIL) + frame(Opcode.PREPARE, query)], caplog, started=True)


def test_a_client_that_has_gone_gets_a_shard(fuzzed: Fuzzed) -> None:
    """Its socket has no address any more, so it has no port that could choose the shard."""
    connection = Connection(fuzzed.server, fuzzed.listener, shard_by_port=True)
    connection.connection_made(MemoryTransport())
    assert fuzzed.listener.shard_loads == [1, 0]
    connection.connection_lost(None)
    assert fuzzed.listener.shard_loads == [0, 0]


def test_every_prefix_of_the_corpus_waits_for_the_rest(fuzzed: Fuzzed, caplog: pytest.LogCaptureFixture) -> None:
    for one in corpus(fuzzed.ids):
        for size in range(len(one)):
            connection, transport = fuzzed.talk([one[:size]], started=True)
            assert not transport.out
            assert not transport.ended
            connection.connection_lost(None)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 50_000,
        "SELECT v FROM ks.t WHERE pk = " + "[" * 20_000 + "]" * 20_000,
        "CREATE TABLE ks.deep (a int PRIMARY KEY, b " + "frozen<list<" * 3_000 + "int" + ">>" * 3_000 + ")",
        "SELECT " + "cast(" * 5_000 + "v" + " as text)" * 5_000 + " FROM ks.t",
        "INSERT INTO ks.t (pk, ck, v) VALUES (1, 1, '" + "x" * 500_000 + "')",
        "BEGIN BATCH " + "DELETE FROM ks.t WHERE pk = 1; " * 10_000 + "APPLY BATCH",
        "SELECT " + ", ".join("v" for _ in range(30_000)) + " FROM ks.t",
        "/*" * 200_000,
        "'" * 300_001,
        "\0" * 300_000,
    ],
    ids=lambda text: text[:30].replace("\0", "nul"),
)
def test_statements_that_are_long_or_deep(fuzzed: Fuzzed, caplog: pytest.LogCaptureFixture, text: str) -> None:
    check(fuzzed, [frame(Opcode.QUERY, long_string(text) + TAIL)], caplog, started=True)


def test_announced_sizes_cost_nothing_before_the_bytes_come(fuzzed: Fuzzed) -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        held = [fuzzed.talk([HEADER.pack(4, 0, 1, Opcode.QUERY, MAX_FRAME)], started=True)[0] for _ in range(200)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 200 * 20_000
    assert fuzzed.server.waiting == 200 * MAX_FRAME
    for connection in held:
        connection.connection_lost(None)
    assert fuzzed.server.waiting == 0


def test_large_requests_on_their_way_in_share_a_bound() -> None:
    fuzzed = Fuzzed()
    fuzzed.server = Server(fuzzed.engine, WireOptions(max_frame=MAX_FRAME, max_waiting=3 * MAX_FRAME))
    announced = HEADER.pack(4, 0, 9, Opcode.QUERY, MAX_FRAME)
    held = [fuzzed.talk([announced], started=True)[0] for _ in range(3)]
    _, transport = fuzzed.talk([announced], started=True)
    ((stream, opcode, body),) = answers(bytes(transport.out))
    assert (stream, opcode, body[:4], transport.ended) == (9, Opcode.ERROR, b"\0\0\x10\x01", True)
    held[0].connection_lost(None)
    _, transport = fuzzed.talk([announced], started=True)
    assert not transport.ended
    fuzzed.loop.close()


def test_a_client_that_has_not_logged_in_may_send_little() -> None:
    fuzzed = Fuzzed()
    _, transport = fuzzed.talk([HEADER.pack(4, 0, 1, Opcode.STARTUP, 100_000)], started=False)
    ((_, opcode, body),) = answers(bytes(transport.out))
    assert opcode == Opcode.ERROR
    assert b"request size too large" in body
    assert transport.ended
    fuzzed.loop.close()


def test_a_small_body_cannot_claim_to_unpack_to_a_large_one(fuzzed: Fuzzed) -> None:
    pytest.importorskip("lz4")
    startup = b"\0\2" + string("CQL_VERSION") + string("3.0.0") + string("COMPRESSION") + string("lz4")
    bomb = frame(Opcode.QUERY, struct.pack(">i", MAX_FRAME) + b"\x1f\0" * 10, flags=1)
    tracemalloc.start()
    try:
        connection, transport = fuzzed.talk([frame(Opcode.STARTUP, startup), bomb], started=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    _, (_, opcode, body) = answers(bytes(transport.out))
    assert (opcode, body[:4]) == (Opcode.ERROR, b"\0\0\0\x0a")
    assert peak < MAX_FRAME // 2
    connection.connection_lost(None)


def test_prepared_statements_are_bounded_by_their_length() -> None:
    fuzzed = Fuzzed()
    for number in range(50):
        text = f"INSERT INTO ks.t (pk, ck, v) VALUES (1, {number}, '{'x' * 900_000}')"
        connection, transport = fuzzed.talk([frame(Opcode.PREPARE, long_string(text))], started=True)
        ((_, opcode, _),) = answers(bytes(transport.out))
        assert opcode == Opcode.RESULT
        connection.connection_lost(None)
    kept = [prepared.text for prepared in fuzzed.engine._prepared.values()]
    assert text in kept
    assert sum(map(len, kept)) <= 32_000_000
    assert not [key for key in fuzzed.engine._compiler._plans if len(key[1]) > 8192]
    fuzzed.loop.close()
