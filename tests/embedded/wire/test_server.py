"""The server on its sockets, spoken to with bare frames: states, refusals, paging of large answers, events, shards.

The engine is a small fake that answers by the text of the statement; it checks what it is given.
"""

from __future__ import annotations

import asyncio
import importlib.util
import random
import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence

import attrs
import pytest

from rscylla.embedded.errors import InvalidRequest, Unprepared
from rscylla.embedded.result import (
    BindValue,
    ColumnSpec,
    Prepared,
    QueryParams,
    Result,
    RowsResult,
    SchemaChange,
    SetKeyspaceResult,
    Trace,
    VoidResult,
)
from rscylla.embedded.types import INT, TEXT
from rscylla.embedded.wire import server as wire_server
from rscylla.embedded.wire.frame import HEADER, Flag, Opcode, Values
from rscylla.embedded.wire.interfaces import Ports, WireOptions
from rscylla.embedded.wire.server import Server

COLUMNS = (ColumnSpec("ks", "t", "pk", INT), ColumnSpec("ks", "t", "v", TEXT))
LARGE = b"\0\0\0\4\0\0\0\7" + struct.pack(">i", 1000) + b"x" * 1000


class FakeEngine:
    """Answers by statement text; remembers the parameters it got."""

    def __init__(self) -> None:
        self.schema_listeners: list[Callable[[SchemaChange], None]] = []
        self.seen: list[tuple[object, object, QueryParams]] = []
        self.served = 0
        self.traces: list[Trace] = []

    def begin_trace(self) -> uuid.UUID:
        return uuid.UUID(int=7)

    def end_trace(self, trace: Trace) -> None:
        self.traces.append(trace)

    def prepare(self, text: str, keyspace: str | None) -> Prepared:
        return Prepared(text.encode().ljust(16), text, keyspace, None, COLUMNS, (0,), COLUMNS)

    def get(self, statement_id: bytes) -> Prepared:
        text = statement_id.decode().strip()
        if text == "gone":
            raise Unprepared(statement_id)
        return self.prepare(text, None)

    def execute(self, prepared: Prepared, values: Values, params: QueryParams) -> Result:
        return self.query(prepared.text, values, params)

    def query(self, text: str, values: Values, params: QueryParams) -> Result:
        self.seen.append((text, values, params))
        self.served += 1
        match text:
            case "use":
                return SetKeyspaceResult("ks")
            case "large":
                return RowsResult(COLUMNS, [LARGE] * 2000)
            case "change":
                change = SchemaChange("CREATED", "TABLE", "ks", "t")
                for listener in self.schema_listeners:
                    listener(change)
                return change
            case "invalid":
                raise InvalidRequest("no such thing")
            case "crash":
                raise ZeroDivisionError("secret row value")
            case _:
                return VoidResult()

    def batch(self, kind: str, items: list[tuple[Prepared | str, Sequence[BindValue]]], params: QueryParams) -> Result:
        self.seen.append((kind, items, params))
        return VoidResult()


@attrs.frozen
class FakeNode:
    index: int = 0
    address: str = "127.0.0.1"
    host_id: uuid.UUID = attrs.field(default=uuid.UUID(int=5))
    shards: int = 2
    ignore_msb: int = 12


class Fixture:
    """A server with one fake node on a loop thread of its own."""

    def __init__(self, **options: object) -> None:
        self.engine = FakeEngine()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.server = Server(self.engine, WireOptions(**options))  # type: ignore[arg-type]
        self.node = FakeNode()
        self.ports = asyncio.run_coroutine_threadsafe(self.server.listen(self.node, Ports(0, 0)), self.loop).result()
        self.clients: list[Client] = []

    def client(self, *, started: bool = True) -> Client:
        return self.add(Client(self.ports.cql), started=started)

    def add(self, client: Client, *, started: bool) -> Client:
        self.clients.append(client)
        if started:
            assert client.ask(Opcode.STARTUP, startup())[0] == Opcode.READY
        return client

    def close(self) -> None:
        for client in self.clients:
            client.socket.close()
        self.loop.call_soon_threadsafe(self.server.close)
        self.loop.call_soon_threadsafe(self.loop.call_soon, self.loop.stop)
        self.thread.join()
        self.loop.close()


class Client:
    """Sends and receives single frames."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)

    def send(self, opcode: int, body: bytes = b"", *, stream: int = 1, version: int = 4, flags: int = 0) -> None:
        self.socket.sendall(HEADER.pack(version, flags, stream, opcode, len(body)) + body)

    def receive(self) -> tuple[int, int, int, bytes]:
        """Return opcode, stream, version and body of the next frame."""
        version, flags, stream, opcode, size = HEADER.unpack(self._exactly(HEADER.size))
        self.flags = flags
        return opcode, stream, version, self._exactly(size)

    def ask(self, opcode: int, body: bytes = b"", **options: int) -> tuple[int, bytes]:
        self.send(opcode, body, **options)
        answered, stream, _, answer = self.receive()
        assert stream == options.get("stream", 1)
        return answered, answer

    def query(self, text: str) -> tuple[int, bytes]:
        return self.ask(Opcode.QUERY, query(text))

    def ended(self) -> bool:
        return self.socket.recv(1) == b""

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError(f"{len(data)} of {size} bytes")
            data += more
        return data


@pytest.fixture
def make() -> Iterator[Callable[..., Fixture]]:
    made: list[Fixture] = []

    def build(**options: object) -> Fixture:
        made.append(Fixture(**options))
        return made[-1]

    yield build
    for fixture in made:
        fixture.close()


@pytest.fixture
def server(make: Callable[..., Fixture]) -> Fixture:
    return make()


def string(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def query(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode() + b"\0\1\0"


def startup(**options: str) -> bytes:
    options = {"CQL_VERSION": "3.0.0", **options}
    return struct.pack(">H", len(options)) + b"".join(string(k) + string(v) for k, v in options.items())


def error_of(answer: tuple[int, bytes]) -> tuple[int, str]:
    opcode, body = answer
    assert opcode == Opcode.ERROR
    code, size = struct.unpack_from(">iH", body)
    return code, body[6 : 6 + size].decode()


def multimap(body: bytes) -> dict[str, list[str]]:
    position = 2

    def text() -> str:
        nonlocal position
        (size,) = struct.unpack_from(">H", body, position)
        position += 2 + size
        return body[position - size : position].decode()

    result = {}
    for _ in range(struct.unpack_from(">H", body)[0]):
        key = text()
        (count,) = struct.unpack_from(">H", body, position)
        position += 2
        result[key] = [text() for _ in range(count)]
    return result


# ---------------------------------------------------------------- handshake


def test_options_are_answered_before_startup(server: Fixture) -> None:
    opcode, body = server.client(started=False).ask(Opcode.OPTIONS)
    assert opcode == Opcode.SUPPORTED
    supported = multimap(body)
    assert supported["CQL_VERSION"] == ["3.3.1"]
    assert supported["COMPRESSION"] == (["lz4"] if importlib.util.find_spec("lz4") else [])
    assert supported["SCYLLA_NR_SHARDS"] == ["2"]
    assert supported["SCYLLA_HOST_ID"] == [str(uuid.UUID(int=5))]


def test_without_shard_awareness_no_option_of_that_group_is_sent(make: Callable[..., Fixture]) -> None:
    supported = multimap(make(shard_aware=False).client(started=False).ask(Opcode.OPTIONS)[1])
    assert {key for key in supported if key.startswith("SCYLLA_SHARD") or key == "SCYLLA_NR_SHARDS"} == set()


def test_clients_are_spread_over_the_shards(server: Fixture) -> None:
    clients = [server.client(started=False) for _ in range(4)]
    shards = [multimap(client.ask(Opcode.OPTIONS)[1])["SCYLLA_SHARD"] for client in clients]
    assert sorted(shards) == [["0"], ["0"], ["1"], ["1"]]


def test_the_clients_own_port_chooses_the_shard_on_the_shard_aware_port(make: Callable[..., Fixture]) -> None:
    server = make()
    supported = multimap(server.client(started=False).ask(Opcode.OPTIONS)[1])
    assert supported["SCYLLA_SHARD_AWARE_PORT"] == [str(server.ports.shard_aware)]
    assert "SCYLLA_SHARD_AWARE_PORT_SSL" not in supported
    for _ in range(10):
        client = server.add(Client(server.ports.shard_aware), started=False)
        shard = client.socket.getsockname()[1] % server.node.shards
        assert multimap(client.ask(Opcode.OPTIONS)[1])["SCYLLA_SHARD"] == [str(shard)]


def test_a_shard_that_lost_its_client_gets_the_next_one(server: Fixture) -> None:
    first, second = server.client(), server.client()
    shard = multimap(first.ask(Opcode.OPTIONS)[1])["SCYLLA_SHARD"]
    first.socket.close()
    assert second.query("void")[0] == Opcode.RESULT
    third = server.client()
    assert multimap(third.ask(Opcode.OPTIONS)[1])["SCYLLA_SHARD"] == shard


def test_nothing_but_options_and_startup_works_first(server: Fixture) -> None:
    code, text = error_of(server.client(started=False).query("void"))
    assert code == 0x000A
    assert "expected STARTUP" in text
    assert server.engine.seen == []


def test_version_five_is_refused_on_a_v4_frame_on_stream_zero(server: Fixture) -> None:
    client = server.client(started=False)
    client.send(Opcode.OPTIONS, version=5, stream=3)
    opcode, stream, version, body = client.receive()
    assert (stream, version) == (0, 0x84)
    assert error_of((opcode, body)) == (0x000A, "Invalid or unsupported protocol version: 5")
    assert client.ended()


def test_version_three_is_answered_in_version_three(server: Fixture) -> None:
    client = server.client(started=False)
    client.send(Opcode.STARTUP, startup(), version=3)
    assert client.receive()[:3] == (Opcode.READY, 1, 0x83)


def test_startup_needs_a_cql_version(server: Fixture) -> None:
    assert error_of(server.client(started=False).ask(Opcode.STARTUP, b"\0\0"))[0] == 0x000A


def test_compression_that_is_not_offered_is_refused(server: Fixture) -> None:
    answer = server.client(started=False).ask(Opcode.STARTUP, startup(COMPRESSION="snappy"))
    assert error_of(answer) == (0x000A, "Unknown or disabled compression algorithm: snappy")


# ---------------------------------------------------------------- authentication


def token(name: str, password: str) -> bytes:
    data = f"\0{name}\0{password}".encode()
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize(
    "sent",
    [
        token("ann", "wrong"),
        token("bob", "right"),
        token("ann", ""),
        token("", ""),
        b"\xff\xff\xff\xff",
        b"\0\0\0\3abc",
        b"\0\0\0\3\0\xff\0",
    ],
)
def test_wrong_credentials_are_refused_and_leave_the_door_shut(make: Callable[..., Fixture], sent: bytes) -> None:
    fixture = make(users={"ann": "right"})
    client = fixture.client(started=False)
    opcode, body = client.ask(Opcode.STARTUP, startup())
    assert opcode == Opcode.AUTHENTICATE
    assert body == string("org.apache.cassandra.auth.PasswordAuthenticator")
    code, text = error_of(client.ask(Opcode.AUTH_RESPONSE, sent))
    assert code == 0x0100
    assert "right" not in text
    assert error_of(client.query("void"))[0] == 0x000A
    assert fixture.engine.seen == []


def test_right_credentials_open_the_door(make: Callable[..., Fixture]) -> None:
    client = make(users={"ann": "ri\N{GREEK SMALL LETTER ALPHA}ght"}).client(started=False)
    client.ask(Opcode.STARTUP, startup())
    assert client.ask(Opcode.AUTH_RESPONSE, token("ann", "ri\N{GREEK SMALL LETTER ALPHA}ght"))[0] == Opcode.AUTH_SUCCESS
    assert client.query("void")[0] == Opcode.RESULT


# ---------------------------------------------------------------- requests


def test_use_is_remembered_by_the_connection_only(server: Fixture) -> None:
    first, second = server.client(), server.client()
    first.query("use")
    first.query("a")
    second.query("b")
    assert [(text, params.keyspace) for text, _, params in server.engine.seen[1:]] == [("a", "ks"), ("b", None)]


def test_an_engine_error_is_answered_and_the_connection_lives_on(server: Fixture) -> None:
    client = server.client()
    assert error_of(client.query("invalid")) == (0x2200, "no such thing")
    assert client.query("void")[0] == Opcode.RESULT


def test_a_bug_in_the_engine_is_a_server_error_without_values(
    server: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    client = server.client()
    code, text = error_of(client.query("crash"))
    assert code == 0x0000
    assert "ZeroDivisionError" in text
    assert "secret" not in text
    assert "the embedded Scylla failed on a request" in caplog.text
    assert client.query("void")[0] == Opcode.RESULT


def test_an_unknown_prepared_statement_gives_its_id_back(server: Fixture) -> None:
    statement_id = b"gone".ljust(16)
    opcode, body = server.client().ask(Opcode.EXECUTE, struct.pack(">H", 16) + statement_id + b"\0\1\0")
    assert error_of((opcode, body))[0] == 0x2500
    assert body.endswith(struct.pack(">H", 16) + statement_id)


def test_a_batch_reaches_the_engine_with_its_prepared_statements(server: Fixture) -> None:
    body = b"\0" + b"\0\2" + b"\0\0\0\0\1a\0\0" + b"\1\0\x10" + b"b".ljust(16) + b"\0\1\0\0\0\1z" + b"\0\1\0"
    assert server.client().ask(Opcode.BATCH, body)[0] == Opcode.RESULT
    kind, items, _ = server.engine.seen[0]
    assert kind == "logged"
    assert items == [("a", []), (server.engine.get(b"b"), [b"z"])]


def test_custom_payload_is_stepped_over(server: Fixture) -> None:
    payload = b"\0\1\0\1k\0\0\0\1v"
    client = server.client()
    assert client.ask(Opcode.QUERY, payload + query("void"), flags=Flag.CUSTOM_PAYLOAD)[0] == Opcode.RESULT
    assert server.engine.seen[0][0] == "void"


@pytest.mark.parametrize(
    ("opcode", "body"),
    [
        (Opcode.QUERY, b"\0\0\0\x99x"),
        (Opcode.EXECUTE, b""),
        (Opcode.BATCH, b"\x09"),
        (Opcode.REGISTER, b"\0\1" + string("WEATHER_CHANGE")),
        (Opcode.STARTUP, startup()),
        (Opcode.AUTH_RESPONSE, token("ann", "right")),
        (Opcode.READY, b""),
        (0x77, b""),
    ],
)
def test_a_malformed_request_is_a_protocol_error_and_kills_nothing(server: Fixture, opcode: int, body: bytes) -> None:
    client = server.client()
    assert error_of(client.ask(opcode, body))[0] == 0x000A
    assert client.query("void")[0] == Opcode.RESULT


def test_a_compressed_frame_without_agreement_is_refused(server: Fixture) -> None:
    answer = server.client().ask(Opcode.QUERY, query("void"), flags=Flag.COMPRESSED)
    assert error_of(answer)[0] == 0x000A


@pytest.mark.parametrize("size", [1001, 2**31 - 1, -1])
def test_a_frame_over_the_limit_ends_the_connection_with_a_reason(make: Callable[..., Fixture], size: int) -> None:
    fixture = make(max_frame=1000)
    client = fixture.client()
    client.socket.sendall(HEADER.pack(4, 0, 6, Opcode.QUERY, size) + b"x" * 10)
    opcode, stream, _, body = client.receive()
    assert stream == 6
    code, text = error_of((opcode, body))
    assert code == 0x000A
    assert "limit 1000" in text
    assert client.ended()
    assert fixture.client().query("void")[0] == Opcode.RESULT


def test_clients_over_the_limit_are_turned_away_with_a_reason(make: Callable[..., Fixture]) -> None:
    fixture = make(max_connections=1)
    first = fixture.client()
    second = fixture.client(started=False)
    opcode, _, _, body = second.receive()
    assert "too many connections" in error_of((opcode, body))[1]
    assert second.ended()
    assert first.query("void")[0] == Opcode.RESULT


def test_clients_that_do_not_log_in_give_way(make: Callable[..., Fixture]) -> None:
    fixture = make(max_connections=2, users={"ann": "secret"})
    first, second = fixture.client(started=False), fixture.client(started=False)
    assert second.ask(Opcode.STARTUP, startup())[0] == Opcode.AUTHENTICATE
    third = fixture.client(started=False)
    assert first.ended()
    assert third.ask(Opcode.STARTUP, startup())[0] == Opcode.AUTHENTICATE
    assert third.ask(Opcode.AUTH_RESPONSE, token("ann", "secret"))[0] == Opcode.AUTH_SUCCESS
    fourth = fixture.client(started=False)
    assert second.ended()
    assert fourth.ask(Opcode.OPTIONS)[0] == Opcode.SUPPORTED
    assert third.query("void")[0] == Opcode.RESULT


def test_a_client_has_only_so_long_to_log_in(make: Callable[..., Fixture], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_server, "_GREETING_S", 0.05)
    fixture = make()
    assert fixture.client(started=False).ended()
    assert not fixture.server.greeting


def test_a_client_that_has_logged_in_is_not_looked_at(make: Callable[..., Fixture]) -> None:
    fixture = make()
    first, second = fixture.client(started=False), fixture.client()
    assert list(fixture.server.greeting.values()) == [False]
    for _ in range(2):
        fixture.loop.call_soon_threadsafe(fixture.server._look_at_greeting)
    assert first.ended()
    assert second.query("void")[0] == Opcode.RESULT


def test_a_node_that_hangs_cuts_nobody(make: Callable[..., Fixture]) -> None:
    fixture = make()
    fixture.server.pace(0, held=True)
    client = fixture.client(started=False)
    client.send(Opcode.STARTUP, startup())
    for _ in range(3):
        fixture.loop.call_soon_threadsafe(fixture.server._look_at_greeting)
    fixture.loop.call_soon_threadsafe(lambda: fixture.server.pace(0, held=False))
    assert client.receive()[0] == Opcode.READY
    assert not fixture.server.greeting


def test_frames_may_arrive_byte_by_byte_and_many_at_a_time(server: Fixture) -> None:
    client = server.client()
    frame = HEADER.pack(4, 0, 1, Opcode.QUERY, len(query("void"))) + query("void")
    for byte in frame:
        client.socket.sendall(bytes((byte,)))
    assert client.receive()[0] == Opcode.RESULT
    client.socket.sendall(frame * 50 + frame[:11])
    assert [client.receive()[0] for _ in range(50)] == [Opcode.RESULT] * 50
    client.socket.sendall(frame[11:])
    assert client.receive()[0] == Opcode.RESULT
    assert server.engine.served == 52


def test_garbage_never_stops_the_server(server: Fixture) -> None:
    """Random bytes, and random bodies behind a right header; the seed is in the failure."""
    for seed in range(150):
        noise = random.Random(seed)
        client = server.client(started=seed % 2 == 0)
        body = noise.randbytes(noise.randrange(40))
        opcode = noise.choice([Opcode.QUERY, Opcode.PREPARE, Opcode.EXECUTE, Opcode.BATCH, Opcode.STARTUP, 0x42])
        flags = noise.choice([0, Flag.COMPRESSED, Flag.CUSTOM_PAYLOAD, 0xFF])
        header = HEADER.pack(4, flags, 1, opcode, len(body)) if seed % 3 else noise.randbytes(HEADER.size)
        client.socket.sendall(header + body)
        client.socket.close()
        assert server.client().query("void")[0] == Opcode.RESULT, f"seed {seed}"


# ---------------------------------------------------------------- large answers


def test_a_large_page_arrives_whole(server: Fixture) -> None:
    opcode, body = server.client().query("large")
    assert opcode == Opcode.RESULT
    assert body.endswith(struct.pack(">i", 2000) + LARGE * 2000)


def test_a_client_that_does_not_read_is_not_served_without_end(server: Fixture) -> None:
    client, other = server.client(), server.client()
    for stream in range(200):
        client.send(Opcode.QUERY, query("large"), stream=stream)
    # Answered by the same loop after all that could be served of the first client's requests.
    assert other.query("void")[0] == Opcode.RESULT
    assert other.query("void")[0] == Opcode.RESULT
    assert server.engine.served < 60, "2 MB answers pile up in memory"
    for stream in range(200):
        assert client.receive()[1] == stream
    assert server.engine.served == 202


# ---------------------------------------------------------------- events


def test_only_clients_that_registered_get_events_and_the_answer_comes_first(server: Fixture) -> None:
    listener, deaf = server.client(), server.client()
    assert listener.ask(Opcode.REGISTER, b"\0\1" + string("SCHEMA_CHANGE"))[0] == Opcode.READY
    assert listener.query("change")[0] == Opcode.RESULT
    opcode, stream, _, body = listener.receive()
    assert (opcode, stream) == (Opcode.EVENT, -1)
    assert body == b"".join(map(string, ["SCHEMA_CHANGE", "CREATED", "TABLE", "ks", "t"]))
    deaf.send(Opcode.OPTIONS)
    assert deaf.receive()[0] == Opcode.SUPPORTED


def test_topology_and_status_events_carry_the_address(server: Fixture) -> None:
    client = server.client()
    client.ask(Opcode.REGISTER, b"\0\2" + string("TOPOLOGY_CHANGE") + string("STATUS_CHANGE"))
    server.loop.call_soon_threadsafe(server.server.announce_topology, "NEW_NODE", server.node, 9042)
    server.loop.call_soon_threadsafe(server.server.announce_status, "UP", server.node, 9042)
    address = b"\4\x7f\0\0\1" + struct.pack(">i", 9042)
    assert client.receive()[3] == string("TOPOLOGY_CHANGE") + string("NEW_NODE") + address
    assert client.receive()[3] == string("STATUS_CHANGE") + string("UP") + address


def test_hanging_up_a_node_cuts_its_clients(server: Fixture) -> None:
    client = server.client()
    server.loop.call_soon_threadsafe(server.server.hang_up, 0)
    with pytest.raises((EOFError, ConnectionResetError)):
        client.receive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.ports.cql), timeout=5)


# ---------------------------------------------------------------- compression


def test_lz4_travels_both_ways(make: Callable[..., Fixture]) -> None:
    block = pytest.importorskip("lz4.block")
    fixture = make(compression=True)
    client = fixture.client(started=False)
    assert multimap(client.ask(Opcode.OPTIONS)[1])["COMPRESSION"] == ["lz4"]
    assert client.ask(Opcode.STARTUP, startup(COMPRESSION="lz4"))[0] == Opcode.READY
    body = query("large")
    packed = struct.pack(">i", len(body)) + block.compress(body, store_size=False)
    opcode, answer = client.ask(Opcode.QUERY, packed, flags=Flag.COMPRESSED)
    assert (opcode, client.flags) == (Opcode.RESULT, Flag.COMPRESSED)
    (size,) = struct.unpack_from(">i", answer)
    assert block.decompress(answer[4:], uncompressed_size=size).endswith(LARGE)


def test_a_large_page_is_sent_uncompressed_unless_configured_otherwise(make: Callable[..., Fixture]) -> None:
    block = pytest.importorskip("lz4.block")
    client = make().client(started=False)
    assert client.ask(Opcode.STARTUP, startup(COMPRESSION="lz4"))[0] == Opcode.READY
    body = query("large")
    packed = struct.pack(">i", len(body)) + block.compress(body, store_size=False)
    opcode, answer = client.ask(Opcode.QUERY, packed, flags=Flag.COMPRESSED)
    assert (opcode, client.flags) == (Opcode.RESULT, 0)
    assert answer.endswith(LARGE)


@pytest.mark.parametrize("packed", [b"", b"\0\0\0\x10garbage", b"\x7f\xff\xff\xff\0", b"\xff\xff\xff\xff\0"])
def test_a_damaged_compressed_body_is_a_protocol_error(make: Callable[..., Fixture], packed: bytes) -> None:
    pytest.importorskip("lz4.block")
    client = make(compression=True).client(started=False)
    client.ask(Opcode.STARTUP, startup(COMPRESSION="lz4"))
    client.send(Opcode.QUERY, packed, flags=Flag.COMPRESSED)
    assert client.receive()[0] == Opcode.ERROR
    client.send(Opcode.QUERY, query("void"))
    assert client.receive()[0] == Opcode.RESULT
