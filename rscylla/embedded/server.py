"""The server on its sockets: one asyncio loop, one listener per node, one `Connection` per client socket.

    bytes -> frames -> request values (frame.py) -> engine -> result -> bytes (answer.py) -> socket

Everything here runs on the loop's thread, and so does the engine. A request is served to its end before the next one
starts; a client that does not read its answers stops being read from, so memory stays bounded.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import attrs

from . import answer
from .answer import MetadataCache
from .compression import Compressor
from .errors import BadCredentials, CqlError, ProtocolError, ServerError
from .frame import (
    HEADER,
    HEADER_SIZE,
    SUPPORTED_VERSIONS,
    Flag,
    Opcode,
    Reader,
    Values,
    read_batch,
    read_execute,
    read_query,
)
from .result import BindValue, Prepared, QueryParams, Result, SchemaChange, SetKeyspaceResult

__all__ = ["AUTHENTICATOR", "Connection", "EngineLike", "NodeLike", "Server", "ServerOptions"]

log = logging.getLogger("rscylla.embedded")

AUTHENTICATOR: Final = "org.apache.cassandra.auth.PasswordAuthenticator"
METADATA_ID_EXTENSION: Final = "SCYLLA_USE_METADATA_ID"
CQL_VERSION: Final = "3.3.1"

_EVENT_KINDS: Final = ("TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE")
_DIRECT_WRITE: Final = 32 * 1024  # bytes; a page from here on goes to the socket by itself instead of being copied
_WRITE_HIGH_WATER: Final = 4 * 1024 * 1024  # bytes waiting for one client before its requests have to wait
_LINGER_S: Final = 2.0  # how long a refused connection may drain before it is cut


class EngineLike(Protocol):
    """What the wire asks of the engine. Called on the loop's thread only; errors are `CqlError`."""

    schema_listeners: list[Callable[[SchemaChange], None]]

    def prepare(self, text: str, keyspace: str | None) -> Prepared: ...

    def get(self, statement_id: bytes) -> Prepared: ...

    def execute(self, prepared: Prepared, values: Values, params: QueryParams) -> Result: ...

    def query(self, text: str, values: Values, params: QueryParams) -> Result: ...

    def batch(
        self, kind: str, items: list[tuple[Prepared | str, Sequence[BindValue]]], params: QueryParams
    ) -> Result: ...


class NodeLike(Protocol):
    """What the wire shows of a node."""

    @property
    def index(self) -> int: ...

    @property
    def address(self) -> str: ...

    @property
    def host_id(self) -> uuid.UUID: ...

    @property
    def shards(self) -> int: ...

    @property
    def ignore_msb(self) -> int: ...


@attrs.frozen
class ServerOptions:
    """How the wire behaves.

    ``users``: name to password; None lets everyone in. ``max_frame``: bytes of a request body. ``shard_aware``: tell
    clients about shards, as Scylla does. ``metadata_id``: offer SCYLLA_USE_METADATA_ID. ``compression``: compress
    answers to clients that agreed on it. Their requests may be compressed either way, where lz4 is installed: drivers
    complain about a server that offers nothing.
    """

    users: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    max_frame: int = 256 * 1024 * 1024
    max_connections: int = 8192
    shard_aware: bool = True
    metadata_id: bool = True
    compression: bool = False


@attrs.define(eq=False)
class _Listener:
    """A node's listening socket, its clients, and how many of them each shard has."""

    node: NodeLike
    socket: asyncio.Server | None = None
    port: int = 0
    connections: set[Connection] = attrs.field(factory=set)
    shard_loads: list[int] = attrs.field(factory=list)


class Server:
    """All nodes of one cluster on one event loop. Every method must be called on that loop's thread."""

    def __init__(self, engine: EngineLike, options: ServerOptions) -> None:
        self.engine = engine
        self.options = options
        frames = options.max_frame
        self.compressor = Compressor(frames) if options.compression else Compressor.if_installed(frames)
        self.metadata = MetadataCache()
        self._listeners: dict[int, _Listener] = {}
        engine.schema_listeners.append(self._on_schema_change)

    @property
    def connection_count(self) -> int:
        return sum(len(listener.connections) for listener in self._listeners.values())

    async def listen(self, node: NodeLike, port: int) -> int:
        """Open a node's socket and return its port; 0 lets the system choose. Raises OSError if it is taken."""
        listener = _Listener(node, shard_loads=[0] * node.shards)
        loop = asyncio.get_running_loop()
        listener.socket = await loop.create_server(lambda: Connection(self, listener), node.address, port, backlog=512)
        listener.port = listener.socket.sockets[0].getsockname()[1]
        self._listeners[node.index] = listener
        return listener.port

    def hang_up(self, node_index: int) -> None:
        """Close a node's socket and cut its clients. A node that is not listening is left as it is."""
        listener = self._listeners.pop(node_index, None)
        if listener is None:
            return
        if listener.socket is not None:
            listener.socket.close()
        for connection in list(listener.connections):
            connection.abort()

    def close(self) -> None:
        """Hang up all nodes."""
        for index in list(self._listeners):
            self.hang_up(index)

    def announce_topology(self, change: str, node: NodeLike, port: int) -> None:
        """Push TOPOLOGY_CHANGE to every client that asked for it; ``change`` is NEW_NODE or REMOVED_NODE."""
        self._push("TOPOLOGY_CHANGE", lambda version: answer.topology_event(version, change, node.address, port))

    def announce_status(self, change: str, node: NodeLike, port: int) -> None:
        """Push STATUS_CHANGE to every client that asked for it; ``change`` is UP or DOWN."""
        self._push("STATUS_CHANGE", lambda version: answer.status_event(version, change, node.address, port))

    def _on_schema_change(self, change: SchemaChange) -> None:
        self._push("SCHEMA_CHANGE", lambda version: answer.schema_event(version, change))

    def _push(self, kind: str, encode: Callable[[int], bytes]) -> None:
        clients = [
            connection
            for listener in self._listeners.values()
            for connection in listener.connections
            if kind in connection.event_kinds
        ]
        if not clients:
            return
        frames = {version: encode(version) for version in SUPPORTED_VERSIONS}
        # Later, not now: the request that caused the event is answered first.
        asyncio.get_running_loop().call_soon(_deliver, clients, frames)


def _deliver(clients: Sequence[Connection], frames: Mapping[int, bytes]) -> None:
    for client in clients:
        client.push(frames[client.version])


class _Refused(Exception):
    """The frame cannot be skipped, so the connection ends after telling why."""

    def __init__(self, stream: int, error: CqlError) -> None:
        super().__init__(error.message)
        self.stream = stream
        self.error = error


class Connection(asyncio.Protocol):
    """One client. States: new (OPTIONS and STARTUP only), authenticating, ready, closing (input is thrown away)."""

    def __init__(self, server: Server, listener: _Listener) -> None:
        self.version = SUPPORTED_VERSIONS[-1]
        self.event_kinds: set[str] = set()
        self._server = server
        self._listener = listener
        self._engine = server.engine
        self._node = listener.node.index
        self._state = "new"
        self._shard: int | None = None
        self._keyspace: str | None = None
        self._with_metadata_id = False
        self._compressor: Compressor | None = None
        self._transport: asyncio.Transport | None = None
        self._pending = bytearray()
        self._out: list[bytes] = []
        self._paused = False
        self._handlers: dict[int, Callable[[int, Reader], None]] = {
            Opcode.STARTUP: self._startup,
            Opcode.OPTIONS: self._options,
            Opcode.AUTH_RESPONSE: self._auth_response,
            Opcode.QUERY: self._query,
            Opcode.PREPARE: self._prepare,
            Opcode.EXECUTE: self._execute,
            Opcode.BATCH: self._batch,
            Opcode.REGISTER: self._register,
        }

    # ------------------------------------------------------------ socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)
        full = self._server.connection_count >= self._server.options.max_connections
        self._listener.connections.add(self)
        loads = self._listener.shard_loads
        # Scylla gives a new client to the shard that has fewest; clients rely on meeting every shard.
        self._shard = loads.index(min(loads))
        loads[self._shard] += 1
        if full:
            self._refuse(0, ServerError("too many connections; close some, or start the server with a larger limit"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._state = "closing"
        self._listener.connections.discard(self)
        self._leave_shard()
        self._pending.clear()

    def _leave_shard(self) -> None:
        if self._shard is not None:
            self._listener.shard_loads[self._shard] -= 1
            self._shard = None

    def data_received(self, data: bytes) -> None:
        if self._state == "closing":
            return
        if self._pending or self._paused:
            self._pending += data
            self._serve_pending()
            return
        used = self._serve(data)
        if used < len(data) and self._state != "closing":
            self._pending += memoryview(data)[used:]

    def pause_writing(self) -> None:
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self._serve_pending()
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        """Cut the connection at once; what it still asked for is not served."""
        self._state = "closing"
        if self._transport is not None:
            self._transport.abort()

    def push(self, data: bytes) -> None:
        """Send an event, unless the connection is on its way out."""
        if self._transport is not None and self._state != "closing":
            self._transport.write(data)

    # ------------------------------------------------------------ frames

    def _serve_pending(self) -> None:
        used = self._serve(self._pending)
        del self._pending[:used]

    def _serve(self, data: bytes | bytearray) -> int:
        """Serve all whole frames in ``data`` while the client keeps reading; return how many bytes are done with."""
        position = 0
        try:
            while not self._paused and self._state != "closing":
                taken = self._next_frame(data, position)
                if not taken:
                    break
                position += taken
        except _Refused as refused:
            self._refuse(refused.stream, refused.error)
            return len(data)
        self._flush()
        return position

    def _next_frame(self, data: bytes | bytearray, position: int) -> int:
        """Serve the frame that starts at ``position``; return its size, 0 if it is not all there yet."""
        available = len(data) - position
        if available < 1:
            return 0
        if data[position] not in SUPPORTED_VERSIONS:
            version = data[position] & 0x7F
            raise _Refused(0, ProtocolError(f"Invalid or unsupported protocol version: {version}"))
        if available < HEADER_SIZE:
            return 0
        header: tuple[int, int, int, int, int] = HEADER.unpack_from(data, position)
        version, flags, stream, opcode, size = header
        limit = self._server.options.max_frame
        if not 0 <= size <= limit:
            raise _Refused(stream, ProtocolError(f"request size too large (frame body {size}; limit {limit})"))
        if available < HEADER_SIZE + size:
            return 0
        start = position + HEADER_SIZE
        self.version = version
        self._handle(flags, stream, opcode, bytes(memoryview(data)[start : start + size]))
        return HEADER_SIZE + size

    def _handle(self, flags: int, stream: int, opcode: int, body: bytes) -> None:
        """Answer one request. Whatever goes wrong inside becomes an ERROR frame: a bad request kills nothing."""
        try:
            handler = self._handlers.get(opcode)
            if handler is None:
                raise ProtocolError(f"Unknown opcode {opcode}")
            self._check_state(opcode)
            if flags & Flag.COMPRESSED:
                body = self._decompress(body)
            reader = Reader(body, self.version)
            if flags & Flag.CUSTOM_PAYLOAD:
                reader.skip_bytes_map()
            handler(stream, reader)
        except CqlError as error:
            self._send(answer.error_frame(self.version, stream, error))
        except Exception as error:
            log.exception("the embedded Scylla failed on a request (opcode %#04x)", opcode)
            message = f"internal error of the embedded server: {type(error).__name__}; its log has the traceback"
            self._send(answer.error_frame(self.version, stream, ServerError(message)))

    def _check_state(self, opcode: int) -> None:
        if self._state == "ready" or opcode == Opcode.OPTIONS:
            return
        if self._state == "new" and opcode != Opcode.STARTUP:
            raise ProtocolError(f"Unexpected message {opcode:#04x}, expected STARTUP or OPTIONS")
        if self._state == "authenticating" and opcode != Opcode.AUTH_RESPONSE:
            raise ProtocolError(f"Unexpected message {opcode:#04x}, expected AUTH_RESPONSE")

    def _decompress(self, body: bytes) -> bytes:
        if self._compressor is None:
            raise ProtocolError("compressed frame on a connection that did not ask for compression in STARTUP")
        return self._compressor.decompress(body)

    def _send(self, head: bytes, rows: bytes = b"") -> None:
        """Queue an answer. Small ones leave together; a large page goes to the socket by itself, without a copy."""
        if self._compressor is not None and self._server.options.compression:
            head, rows = self._compressor.compress_frame(head + rows), b""
        self._out.append(head)
        if len(rows) >= _DIRECT_WRITE:
            self._flush()
            if self._transport is not None:
                self._transport.write(rows)
        elif rows:
            self._out.append(rows)

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._transport.write(data)

    def _refuse(self, stream: int, error: CqlError) -> None:
        """Tell why, then end the connection. Input is still taken for a moment: a reset would eat the message."""
        transport = self._transport
        if transport is None:
            return
        self._state = "closing"
        # Now, not when the socket is gone: the driver's first try, with v5, must not cost the next one its shard.
        self._leave_shard()
        self._out.append(answer.error_frame(self.version, stream, error))
        self._flush()
        if transport.can_write_eof():
            transport.write_eof()
        asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)

    # ------------------------------------------------------------ requests

    def _options(self, stream: int, reader: Reader) -> None:
        node, options = self._listener.node, self._server.options
        supported = {
            "CQL_VERSION": [CQL_VERSION],
            "COMPRESSION": ["lz4"] if self._server.compressor else [],
            "CLIENT_OPTIONS": [""],
            "SCYLLA_HOST_ID": [str(node.host_id)],
        }
        if options.shard_aware:
            # All or nothing: drivers fail on a part of this group.
            supported |= {
                "SCYLLA_SHARD": [str(self._shard)],
                "SCYLLA_NR_SHARDS": [str(node.shards)],
                "SCYLLA_SHARDING_ALGORITHM": ["biased-token-round-robin"],
                "SCYLLA_SHARDING_IGNORE_MSB": [str(node.ignore_msb)],
                "SCYLLA_PARTITIONER": ["org.apache.cassandra.dht.Murmur3Partitioner"],
            }
        if options.metadata_id:
            supported[METADATA_ID_EXTENSION] = [""]
        self._send(answer.supported_frame(self.version, stream, supported))

    def _startup(self, stream: int, reader: Reader) -> None:
        if self._state != "new":
            raise ProtocolError("Unexpected message STARTUP, the connection has been started")
        startup = reader.string_map()
        if "CQL_VERSION" not in startup:
            raise ProtocolError("STARTUP must name the CQL_VERSION")
        compression = startup.get("COMPRESSION", "")
        if compression and not (compression.lower() == "lz4" and self._server.compressor):
            raise ProtocolError(f"Unknown or disabled compression algorithm: {compression}")
        self._with_metadata_id = self._server.options.metadata_id and METADATA_ID_EXTENSION in startup
        if self._server.options.users is None:
            self._state = "ready"
            self._send(answer.frame(self.version, stream, Opcode.READY))
        else:
            self._state = "authenticating"
            body = answer.string(AUTHENTICATOR)
            self._send(answer.frame(self.version, stream, Opcode.AUTHENTICATE, body))
        # From the next frame on: STARTUP and its answer travel uncompressed.
        self._compressor = self._server.compressor if compression else None

    def _auth_response(self, stream: int, reader: Reader) -> None:
        if self._state != "authenticating":
            raise ProtocolError("Unexpected message AUTH_RESPONSE, no authentication is going on")
        name, password = _read_plain(reader.bytes_())
        expected = (self._server.options.users or {}).get(name)
        if expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            raise BadCredentials("Username and/or password are incorrect")
        self._state = "ready"
        self._send(answer.frame(self.version, stream, Opcode.AUTH_SUCCESS, b"\xff\xff\xff\xff"))

    def _register(self, stream: int, reader: Reader) -> None:
        kinds = reader.string_list()
        for kind in kinds:
            if kind not in _EVENT_KINDS:
                raise ProtocolError(f"Invalid value '{kind}' for Event.Type")
        self.event_kinds.update(kinds)
        self._send(answer.frame(self.version, stream, Opcode.READY))

    def _query(self, stream: int, reader: Reader) -> None:
        request = read_query(reader, self._keyspace, self._node)
        result = self._engine.query(request.text, request.values, request.params)
        self._answer(stream, result, skip_metadata=request.skip_metadata)

    def _prepare(self, stream: int, reader: Reader) -> None:
        prepared = self._engine.prepare(reader.long_string(), self._keyspace)
        cache, with_id = self._server.metadata, self._with_metadata_id
        self._send(answer.prepared_frame(prepared, self.version, stream, cache, with_metadata_id=with_id))

    def _execute(self, stream: int, reader: Reader) -> None:
        request = read_execute(reader, self._keyspace, self._node, with_metadata_id=self._with_metadata_id)
        prepared = self._engine.get(request.statement_id)
        result = self._engine.execute(prepared, request.values, request.params)
        self._answer(stream, result, skip_metadata=request.skip_metadata, metadata_id=request.metadata_id)

    def _batch(self, stream: int, reader: Reader) -> None:
        request = read_batch(reader, self._keyspace, self._node)
        items: list[tuple[Prepared | str, Sequence[BindValue]]] = [
            (item if isinstance(item, str) else self._engine.get(item), values) for item, values in request.items
        ]
        self._answer(stream, self._engine.batch(request.kind, items, request.params))

    def _answer(self, stream: int, result: Result, **metadata: Any) -> None:
        if isinstance(result, SetKeyspaceResult):
            self._keyspace = result.keyspace
        self._send(*answer.result_pieces(result, self.version, stream, self._server.metadata, **metadata))


def _read_plain(token: bytes | None) -> tuple[str, str]:
    """Return name and password of a SASL PLAIN token: authorization id, name and password with NUL between."""
    parts = (token or b"").split(b"\0")
    if len(parts) != 3:
        raise BadCredentials("the authentication token must hold a name and a password (SASL PLAIN)")
    try:
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError as error:
        raise BadCredentials("name and password must be UTF-8") from error
