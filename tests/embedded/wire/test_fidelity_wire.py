"""Schema changes of CDC tables on the wire: what a request is answered, which events are pushed, in which order."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import attrs
import pytest

from rscylla.embedded import EmbeddedScylla

ERROR, STARTUP, READY, QUERY, RESULT, REGISTER, EVENT = 0x00, 0x01, 0x02, 0x07, 0x08, 0x0B, 0x0C
SCHEMA_CHANGE = 5
ONE = 1


def string(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def strings(body: bytes) -> list[str]:
    out: list[str] = []
    while body:
        (size,) = struct.unpack_from(">H", body)
        out.append(body[2 : 2 + size].decode())
        body = body[2 + size :]
    return out


@attrs.define
class Client:
    """A bare connection of protocol version 4."""

    socket: socket.socket

    def ask(self, opcode: int, body: bytes) -> tuple[int, bytes]:
        self.socket.sendall(struct.pack(">BBhBi", 4, 0, 1, opcode, len(body)) + body)
        return self.receive()

    def receive(self) -> tuple[int, bytes]:
        head = self._exactly(9)
        _, _, _, opcode, size = struct.unpack(">BBhBi", head)
        return opcode, self._exactly(size)

    def query(self, text: str) -> tuple[int, bytes]:
        return self.ask(QUERY, struct.pack(">i", len(text)) + text.encode() + struct.pack(">HB", ONE, 0))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            assert part, "the server hung up"
            data += part
        return data


@pytest.fixture(scope="module")
def scylla() -> Iterator[EmbeddedScylla]:
    with EmbeddedScylla() as server:
        yield server


def connected(scylla: EmbeddedScylla) -> Client:
    client = Client(socket.create_connection((scylla.contact_points[0], scylla.port), timeout=10))
    assert client.ask(STARTUP, struct.pack(">H", 1) + string("CQL_VERSION") + string("3.3.1"))[0] == READY
    return client


STEPS: list[tuple[str, str, list[str]]] = [
    (
        "CREATE TABLE ev.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}",
        "CREATED t",
        ["CREATED t", "CREATED log"],
    ),
    ("ALTER TABLE ev.t ADD w int", "UPDATED t", ["UPDATED t", "UPDATED log"]),
    ("ALTER TABLE ev.t DROP v", "UPDATED t", ["UPDATED t", "UPDATED log"]),
    ("ALTER TABLE ev.t WITH comment = 'x'", "UPDATED t", ["UPDATED t"]),
    ("ALTER TABLE ev.t_scylla_cdc_log WITH comment = 'x'", "UPDATED log", ["UPDATED log"]),
    ("ALTER TABLE ev.t WITH cdc = {'enabled': false}", "UPDATED t", ["UPDATED t"]),
    ("ALTER TABLE ev.t ADD x int", "UPDATED t", ["UPDATED t"]),
    ("ALTER TABLE ev.t WITH cdc = {'enabled': true}", "UPDATED t", ["UPDATED t", "UPDATED log"]),
    ("ALTER TABLE ev.t WITH cdc = {'enabled': false}", "UPDATED t", ["UPDATED t"]),
    ("DROP TABLE ev.t_scylla_cdc_log", "DROPPED log", ["DROPPED log"]),
    ("ALTER TABLE ev.t WITH cdc = {'enabled': true}", "UPDATED t", ["UPDATED t", "CREATED log"]),
    ("DROP TABLE ev.t", "DROPPED t", ["DROPPED t", "DROPPED log"]),
]


def told(body: bytes) -> str:
    change, target, keyspace, name = strings(body)
    assert (target, keyspace) == ("TABLE", "ev")
    return f"{change} {'log' if name == 't_scylla_cdc_log' else name}"


def test_the_answer_describes_the_statement_and_events_describe_base_and_log(scylla: EmbeddedScylla) -> None:
    scylla.execute("CREATE KEYSPACE ev WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    actor, listener = connected(scylla), connected(scylla)
    assert listener.ask(REGISTER, b"\0\1" + string("SCHEMA_CHANGE"))[0] == READY
    for statement, answer, events in STEPS:
        opcode, body = actor.query(statement)
        assert opcode == RESULT, statement
        assert struct.unpack_from(">i", body) == (SCHEMA_CHANGE,)
        assert told(body[4:]) == answer, statement
        pushed: list[str] = []
        for _ in events:
            opcode, body = listener.receive()
            assert opcode == EVENT
            assert body.startswith(string("SCHEMA_CHANGE"))
            pushed.append(told(body[2 + len("SCHEMA_CHANGE") :]))
        assert pushed == events, statement
    # Nothing else was pushed: the next frame is the answer to the next request.
    assert listener.query("SELECT key FROM system.local")[0] == RESULT
    for client in (actor, listener):
        client.socket.close()


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("CREATE TABLE er.t (pk int PRIMARY KEY) WITH cdc = 'x'", 0x0000),
        ("CREATE TABLE er.t (pk int PRIMARY KEY) WITH cdc = {'ttl': 'x'}", 0x2300),
        ("DROP TABLE er.base_scylla_cdc_log", 0x2100),
        ("ALTER TABLE er.base WITH cdc = {'ttl': 5}", 0x2200),
        ("CREATE TABLE er.t (pk int PRIMARY KEY) WITH cdc = ", 0x2000),
        ("CREATE TABLE er.base (pk int PRIMARY KEY)", 0x2400),
        ("INSERT INTO er.base (pk) VALUES (1) USING TIMESTAMP 123", 0x2200),
        ("DROP TABLE system_distributed.cdc_generation_timestamps", 0x2100),
    ],
)
def test_error_codes(scylla: EmbeddedScylla, statement: str, code: int) -> None:
    scylla.execute(
        "CREATE KEYSPACE IF NOT EXISTS er WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    scylla.execute("CREATE TABLE IF NOT EXISTS er.base (pk int PRIMARY KEY) WITH cdc = {'enabled': true}")
    client = connected(scylla)
    opcode, body = client.query(statement)
    assert (opcode, struct.unpack_from(">i", body)[0]) == (ERROR, code)
    client.socket.close()
