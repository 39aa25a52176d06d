"""One client's connection: its frames, its state, and the requests it makes.

    bytes -> frames -> request values (frame.py) -> engine -> result -> bytes (answer.py) -> socket

Everything here runs on the loop's thread. A request is served to its end before the next one starts, except aggregates,
which read many rows and pause; a client that does not read its answers stops being read from, so memory stays bounded.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..errors import BadCredentials, CqlError, Overloaded, ProtocolError, RateLimit, ServerError
from ..faults.board import Asked, Fault, perform
from ..result import VOID, BindValue, Prepared, QueryParams, Result, SetKeyspaceResult, Unfinished
from . import answer
from .compression import Compressor
from .frame import (
    HEADER,
    HEADER_SIZE,
    SUPPORTED_VERSIONS,
    BodyReader,
    Flag,
    Opcode,
    read_batch,
    read_execute,
    read_query,
)
from .tracing import TRACED, Tracing

if TYPE_CHECKING:
    from .server import Listener, Server

__all__ = ["AUTHENTICATOR", "Connection"]

log = logging.getLogger("rscylla.embedded")

AUTHENTICATOR: Final = "org.apache.cassandra.auth.PasswordAuthenticator"
METADATA_ID_EXTENSION: Final = "SCYLLA_USE_METADATA_ID"
RATE_LIMIT_EXTENSION: Final = "SCYLLA_RATE_LIMIT_ERROR"
LWT_EXTENSION: Final = "SCYLLA_LWT_ADD_METADATA_MARK"
TABLETS_EXTENSION: Final = "TABLETS_ROUTING_V1"
CQL_VERSION: Final = "3.3.1"

_EVENT_KINDS: Final = ("TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE")
_DIRECT_WRITE: Final = 32 * 1024  # bytes; larger pages are written by themselves, which saves a copy
_WRITE_HIGH_WATER: Final = 4 * 1024 * 1024  # bytes waiting for one client before its requests have to wait
_LINGER_S: Final = 2.0  # how long a refused connection may drain before it is cut
_GREETING_MOST: Final = 64 * 1024  # bytes of a request body before READY
_DEFERRED_MOST: Final = 1024  # requests of one client that a slow node has put off
_COUNTED_FROM: Final = 64 * 1024  # bytes; larger bodies count towards max_waiting until they are here


_STAGES: Final = {
    "new": "ESTABLISHED",
    "authenticating": "AUTHENTICATING",
    "ready": "READY",
    "closing": "READY",
}
"""What Scylla calls the states of a connection."""


class _Refused(Exception):
    """The frame cannot be skipped, so the connection ends after telling why."""

    def __init__(self, stream: int, error: CqlError) -> None:
        super().__init__(error.message)
        self.stream = stream
        self.error = error


@attrs.define(eq=False)
class _Deferred:
    """A request that a slow node puts off: its frame, what ends the timers, and whether it has waited long enough."""

    frame: tuple[int, int, int, bytes]
    timers: list[Callable[[], None]] = attrs.field(factory=list)
    is_due: bool = False

    def call_off(self) -> None:
        for cancel in self.timers:
            cancel()


class Connection(asyncio.Protocol):
    """One client. States: new (OPTIONS and STARTUP only), authenticating, ready, closing (input is thrown away)."""

    def __init__(self, server: Server, listener: Listener, *, shard_by_port: bool = False) -> None:
        # Scylla, too, answers in v4 when the first frame has a version it does not know.
        self.version = SUPPORTED_VERSIONS[-1]
        self.event_kinds: set[str] = set()
        self._server = server
        self._listener = listener
        self._engine = server.engine
        self._node = listener.node.index
        self._state = "new"
        self._shard: int | None = None
        self._shard_by_port = shard_by_port
        self._keyspace: str | None = None
        self._with_metadata_id = False
        self._marks_lwt = False
        self._routed_shard: int | None = None
        self._compressor: Compressor | None = None
        self._transport: asyncio.Transport | None = None
        self._pending = bytearray()
        self._out: list[bytes] = []
        self._paused = False
        self._deferred: deque[_Deferred] = deque()
        self._overdue = False
        self._waiting = 0
        self._knows_rate_limit = False
        self._user = "anonymous"
        self._startup_options: dict[str, str] = {}
        self._client = (listener.node.address, 0)
        self._tracing: Tracing | None = None
        self._handlers: dict[int, Callable[[int, BodyReader], None]] = {
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
        # A client that has gone already has no address.
        self._client = transport.get_extra_info("peername") or self._client
        # Accepted by the kernel before the node went down: it must look as if nobody had been there.
        if self._listener.closed:
            self.abort()
            return
        transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)
        # Counted before this one is added, so that the limit itself is still let in.
        full = self._server.connection_count >= self._server.options.max_connections
        if full:
            full = not self._server.make_room()
        self._server.greeting[self] = False
        self._listener.connections.add(self)
        loads = self._listener.shard_loads
        if self._shard_by_port:
            self._shard = self._client[1] % len(loads)
        else:
            # Scylla gives a new client to the shard that has fewest; clients rely on meeting every shard.
            self._shard = loads.index(min(loads))
        loads[self._shard] += 1
        if full:
            self._refuse(0, ServerError("too many connections; close some, or start the server with a larger limit"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._state = "closing"
        self._leave()
        self._pending.clear()
        self._wait_for(0)
        while self._deferred:
            self._deferred.popleft().call_off()

    def as_row(self) -> dict[str, Any]:
        """Return the client's row of ``system.clients``. Source: Scylla ``client_data.hh``, ``transport/server.cc``."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        cipher = None if tls is None else tls.cipher()
        return {
            "address": self._client[0],
            "port": self._client[1],
            "client_type": "cql",
            "client_options": self._startup_options,
            "connection_stage": _STAGES[self._state],
            "driver_name": self._startup_options.get("DRIVER_NAME"),
            "driver_version": self._startup_options.get("DRIVER_VERSION"),
            "protocol_version": self.version,
            "scheduling_group": "sl:default",
            "shard_id": self._shard,
            "ssl_cipher_suite": None if cipher is None else cipher[0],
            "ssl_enabled": tls is not None,
            "ssl_protocol": None if tls is None else tls.version(),
            "username": self._user if self._state == "ready" else None,
        }

    @property
    def is_held_up(self) -> bool:
        """Whether the node owes the client an answer, because it hangs or is slow."""
        return self._listener.held or bool(self._deferred)

    def _greeted(self) -> None:
        """The client needs not hurry any more, or is gone. Safe to repeat."""
        self._server.greeting.pop(self, None)

    def give_way(self) -> None:
        """Cut the connection, and make its place free at once."""
        self.abort()
        self._leave()

    def _leave(self) -> None:
        self._greeted()
        self._listener.connections.discard(self)
        self._leave_shard()

    def _leave_shard(self) -> None:
        if self._shard is not None:
            self._listener.shard_loads[self._shard] -= 1
            self._shard = None

    def data_received(self, data: bytes) -> None:
        if self._state == "closing":
            return
        # What came before has to be served first; only then may the new bytes be read in place, without a copy.
        if self._pending or self._blocked:
            self._pending += data
            self._serve_pending()
        else:
            used = self._serve(data)
            if used < len(data) and self._state != "closing":
                self._pending += memoryview(data)[used:]
        # Left unread, the bytes fill the socket's buffers, and the client notices that the server does not keep up.
        if self._blocked and self._transport is not None:
            self._transport.pause_reading()

    @property
    def _blocked(self) -> bool:
        """Whether nothing more is served for now: the client does not read, or the node hangs or is slow."""
        return self._paused or self._listener.held or len(self._deferred) >= _DEFERRED_MOST

    def pause_writing(self) -> None:
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self.go_on()

    def go_on(self) -> None:
        """Serve what waits, and read again, unless something else still is in the way."""
        if self._state == "closing":
            return
        # What was put off came before the frames that wait, and goes first: all of it if the node is fast again.
        if not self._listener.held:
            while self._deferred and (self._deferred[0].is_due or not self._listener.delay_s):
                self._handle_deferred(self._deferred.popleft())
        self._serve_pending()
        if not self._blocked and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        """Cut the connection at once; what it still asked for is not served."""
        # First the state: the loop calls connection_lost only later, and nothing in the buffer may run until then.
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
        end = len(data)
        try:
            while position < end and not self._blocked and self._state != "closing":
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
        """Serve the frame whose first byte is at ``position``; return its size, 0 if it is not all there yet."""
        available = len(data) - position
        # The version decides how the rest of the header reads, so it is looked at alone, as soon as its byte is there.
        if data[position] not in SUPPORTED_VERSIONS:
            version = data[position] & 0x7F
            raise _Refused(0, ProtocolError(f"Invalid or unsupported protocol version: {version}"))
        if available < HEADER_SIZE:
            return 0
        header: tuple[int, int, int, int, int] = HEADER.unpack_from(data, position)
        version, flags, stream, opcode, size = header
        limit = self._server.options.max_frame
        # Nothing that comes before READY is long; a stranger must not make the server buffer a quarter of a gigabyte.
        if self._state != "ready":
            limit = min(limit, _GREETING_MOST)
        if not 0 <= size <= limit:
            raise _Refused(stream, ProtocolError(f"request size too large (frame body {size}; limit {limit})"))
        if available < HEADER_SIZE + size:
            self._wait_for(size, stream)
            return 0
        if self._waiting:
            self._wait_for(0)
        start = position + HEADER_SIZE
        self.version = version
        if type(data) is bytes:
            body = data[start : start + size]
        else:
            # Through a view, so that the body is copied once: a slice of a bytearray is a copy by itself.
            body = bytes(memoryview(data)[start : start + size])
        if self._listener.delay_s:
            self._guarded(stream, opcode, self._defer, flags, stream, opcode, body)
        else:
            self._handle(flags, stream, opcode, body)
        return HEADER_SIZE + size

    def _wait_for(self, size: int, stream: int = 0) -> None:
        """Set aside room for a large request that is on its way in, or give it back with size 0."""
        size = 0 if size < _COUNTED_FROM else size
        if size == self._waiting:
            return
        # The limit is for all clients together: each alone may send a frame as large as max_frame.
        if self._server.waiting - self._waiting + size > self._server.options.max_waiting:
            raise _Refused(stream, Overloaded("too many large requests at once; send fewer, or smaller ones"))
        self._server.waiting += size - self._waiting
        self._waiting = size

    def _defer(self, flags: int, stream: int, opcode: int, body: bytes) -> None:
        """Put a request off by the node's delay, or until its USING TIMEOUT is over."""
        # First what may fail: a request that is put off is answered later, and must not be answered now as well.
        limit_us = self._time_limit_us(flags, opcode, body)
        deferred = _Deferred((flags, stream, opcode, body))
        self._deferred.append(deferred)
        timer = asyncio.get_running_loop().call_later(self._listener.delay_s, self._handle_late, deferred)
        deferred.timers.append(timer.cancel)
        if limit_us is not None:
            deferred.timers.append(self._server.alarms.after(limit_us, lambda: self._handle_overdue(deferred)))

    def _time_limit_us(self, flags: int, opcode: int, body: bytes) -> int | None:
        if self._state != "ready":
            return None
        try:
            reader = self._reader(flags, body)
            if opcode == Opcode.QUERY:
                query = read_query(reader, self._keyspace, self._node)
                return self._engine.time_limit_us(query.text, query.values, query.params)
            if opcode == Opcode.EXECUTE:
                execute = read_execute(reader, self._keyspace, self._node, with_metadata_id=self._with_metadata_id)
                prepared = self._engine.get(execute.statement_id)
                return self._engine.time_limit_us(prepared, execute.values, execute.params)
        except CqlError:
            pass  # it is told when the request is handled
        return None

    def _handle_late(self, deferred: _Deferred) -> None:
        # With those before it: they may be due only later, if the node was slower then.
        for each in self._deferred:
            each.is_due = True
            if each is deferred:
                break
        self.go_on()

    def _handle_overdue(self, deferred: _Deferred) -> None:
        if self._listener.held:
            return
        self._deferred.remove(deferred)
        self._overdue = True
        try:
            self._handle_deferred(deferred)
        finally:
            self._overdue = False
        self.go_on()

    def _handle_deferred(self, deferred: _Deferred) -> None:
        deferred.call_off()
        if self._state != "closing":
            self._handle(*deferred.frame)
            self._flush()

    def _handle(self, flags: int, stream: int, opcode: int, body: bytes) -> None:
        """Answer one request."""
        if flags & Flag.TRACING and opcode in TRACED and self._state == "ready":
            self._answer_traced(flags, stream, opcode, body)
        else:
            self._guarded(stream, opcode, self._dispatch, flags, stream, opcode, body)

    def _answer_traced(self, flags: int, stream: int, opcode: int, body: bytes) -> None:
        place = (self._listener.node.address, self._shard or 0)
        self._tracing = Tracing(self._engine.begin_trace(), TRACED[opcode], self._client[0], self._user, *place)
        try:
            self._guarded(stream, opcode, self._dispatch, flags, stream, opcode, body)
            self._engine.end_trace(self._tracing.finished())
        finally:
            # An answer that a fault puts off comes without the id.
            self._tracing = None

    def _note(self, items: Sequence[Prepared | str], params: QueryParams | None) -> None:
        if self._tracing is not None:
            self._tracing.describe(items, params)

    def _guarded(self, stream: int, opcode: int, work: Callable[..., None], *arguments: Any) -> None:
        """Call *work*. Whatever goes wrong inside becomes an ERROR frame: a bad request kills nothing."""
        try:
            work(*arguments)
        except CqlError as error:
            self._send(answer.error_frame(self.version, stream, error))
        except Exception as error:
            log.exception("the embedded Scylla failed on a request (opcode %#04x)", opcode)
            message = f"internal error of the embedded server: {type(error).__name__}; its log has the traceback"
            self._send(answer.error_frame(self.version, stream, ServerError(message)))

    def _dispatch(self, flags: int, stream: int, opcode: int, body: bytes) -> None:
        handler = self._handlers.get(opcode)
        if handler is None:
            raise ProtocolError(f"Unknown opcode {opcode}")
        if self._state != "ready":
            self._check_state(opcode)
        handler(stream, self._reader(flags, body) if flags else BodyReader(body, self.version))

    def _reader(self, flags: int, body: bytes) -> BodyReader:
        if flags & Flag.COMPRESSED:
            body = self._decompress(body)
        reader = BodyReader(body, self.version)
        if flags & Flag.CUSTOM_PAYLOAD:
            reader.skip_bytes_map()
        return reader

    def _check_state(self, opcode: int) -> None:
        if opcode == Opcode.OPTIONS:
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
        if self._tracing is not None:
            head = self._tracing.marked(head)
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
        self._greeted()
        # Now, not when the socket is gone: the driver's first try, with v5, must not cost the next one its shard.
        self._leave_shard()
        self._out.append(answer.error_frame(self.version, stream, error))
        self._flush()
        if transport.can_write_eof():
            transport.write_eof()
        asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)

    # ------------------------------------------------------------ requests

    def _options(self, stream: int, reader: BodyReader) -> None:
        node, options = self._listener.node, self._server.options
        supported = {
            "CQL_VERSION": [CQL_VERSION],
            # An empty list still has to be there: scylla-driver fails without the key.
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
            port = self._listener.ports.shard_aware
            if port is not None:
                supported["SCYLLA_SHARD_AWARE_PORT" + ("" if options.tls is None else "_SSL")] = [str(port)]
        if options.metadata_id:
            supported[METADATA_ID_EXTENSION] = [""]
        # Scylla gives the code of this error in the offer; a client that does not accept it gets a plain error instead.
        supported[RATE_LIMIT_EXTENSION] = [f"ERROR_CODE={RateLimit.code}"]
        supported[LWT_EXTENSION] = [f"LWT_OPTIMIZATION_META_BIT_MASK={answer.LWT_MARK}"]
        supported[TABLETS_EXTENSION] = [""]
        self._send(answer.supported_frame(self.version, stream, supported))

    def _startup(self, stream: int, reader: BodyReader) -> None:
        if self._state != "new":
            raise ProtocolError("Unexpected message STARTUP, the connection has been started")
        startup = reader.string_map()
        if "CQL_VERSION" not in startup:
            raise ProtocolError("STARTUP must name the CQL_VERSION")
        self._startup_options = startup
        compression = startup.get("COMPRESSION", "")
        if compression and not (compression.lower() == "lz4" and self._server.compressor):
            raise ProtocolError(f"Unknown or disabled compression algorithm: {compression}")
        # It changes the layout of PREPARED and EXECUTE, so both sides have to have named it.
        self._with_metadata_id = self._server.options.metadata_id and METADATA_ID_EXTENSION in startup
        self._knows_rate_limit = RATE_LIMIT_EXTENSION in startup
        self._marks_lwt = LWT_EXTENSION in startup
        self._routed_shard = self._shard if TABLETS_EXTENSION in startup else None
        if self._server.options.users is None:
            self._become_ready()
            self._send(answer.frame(self.version, stream, Opcode.READY))
        else:
            self._state = "authenticating"
            body = answer.string(AUTHENTICATOR)
            self._send(answer.frame(self.version, stream, Opcode.AUTHENTICATE, body))
        # From the next frame on: STARTUP and its answer travel uncompressed.
        self._compressor = self._server.compressor if compression else None

    def _auth_response(self, stream: int, reader: BodyReader) -> None:
        if self._state != "authenticating":
            raise ProtocolError("Unexpected message AUTH_RESPONSE, no authentication is going on")
        name, password = _read_plain(reader.bytes_())
        expected = (self._server.options.users or {}).get(name)
        if expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            raise BadCredentials("Username and/or password are incorrect")
        self._user = name
        self._become_ready()
        # A null token: PLAIN has nothing to say after the password.
        self._send(answer.frame(self.version, stream, Opcode.AUTH_SUCCESS, b"\xff\xff\xff\xff"))

    def _become_ready(self) -> None:
        self._state = "ready"
        self._greeted()

    def _register(self, stream: int, reader: BodyReader) -> None:
        kinds = reader.string_list()
        for kind in kinds:
            if kind not in _EVENT_KINDS:
                raise ProtocolError(f"Invalid value '{kind}' for Event.Type")
        self.event_kinds.update(kinds)
        self._send(answer.frame(self.version, stream, Opcode.READY))

    def _query(self, stream: int, reader: BodyReader) -> None:
        request = read_query(reader, self._keyspace, self._node, self._routed_shard)
        self._note([request.text], request.params)

        def run(params: QueryParams) -> Result:
            return self._engine.query(request.text, request.values, params)

        if self._overdue:
            self._answer(stream, run(attrs.evolve(request.params, overdue=True)), skip_metadata=request.skip_metadata)
        elif self._server.faults.concerns(request.params):
            asked = self._asked([request.text], request.params)

            def limit_us() -> int | None:
                return self._engine.time_limit_us(request.text, request.values, request.params)

            self._suffer(stream, asked, run, limit_us, skip_metadata=request.skip_metadata)
        else:
            self._answer(stream, run(request.params), skip_metadata=request.skip_metadata)

    def _prepare(self, stream: int, reader: BodyReader) -> None:
        text = reader.long_string()
        self._note([text], None)
        # Nothing is applied by PREPARE, so of the faults only those count that keep the answer from the client.
        if self._server.faults.rules:
            asked = self._asked([text], QueryParams(keyspace=self._keyspace, node=self._node), kind="prepare")
            fault = self._server.faults.meet(asked)
            if fault.error is not None:
                raise fault.error
            if fault.drop:
                self.abort()
            if fault.drop or fault.silent:
                return
        prepared = self._engine.prepare(text, self._keyspace)
        cache, with_id, marks = self._server.metadata, self._with_metadata_id, self._marks_lwt
        self._send(
            answer.prepared_frame(prepared, self.version, stream, cache, with_metadata_id=with_id, marks_lwt=marks)
        )

    def _execute(self, stream: int, reader: BodyReader) -> None:
        request = read_execute(
            reader, self._keyspace, self._node, self._routed_shard, with_metadata_id=self._with_metadata_id
        )
        prepared = self._engine.get(request.statement_id)
        self._note([prepared], request.params)
        skip, known_id = request.skip_metadata, request.metadata_id
        if self._overdue:
            result = self._engine.execute(prepared, request.values, attrs.evolve(request.params, overdue=True))
            self._answer(stream, result, skip_metadata=skip, metadata_id=known_id)
            return
        if self._server.faults.concerns(request.params):
            asked = self._asked([prepared], request.params, statement_id=request.statement_id)

            def run(params: QueryParams) -> Result:
                return self._engine.execute(prepared, request.values, params)

            def limit_us() -> int | None:
                return self._engine.time_limit_us(prepared, request.values, request.params)

            self._suffer(stream, asked, run, limit_us, skip_metadata=skip, metadata_id=known_id)
            return
        result = self._engine.execute(prepared, request.values, request.params)
        self._answer(stream, result, skip_metadata=skip, metadata_id=known_id)

    def _batch(self, stream: int, reader: BodyReader) -> None:
        request = read_batch(reader, self._keyspace, self._node)
        items: list[tuple[Prepared | str, Sequence[BindValue]]] = [
            (item if isinstance(item, str) else self._engine.get(item), values) for item, values in request.items
        ]
        self._note([item for item, _ in items], request.params)

        def run(params: QueryParams) -> Result:
            return self._engine.batch(request.kind, items, params)

        if self._server.faults.concerns(request.params):
            asked = self._asked([item for item, _ in items], request.params, kind="batch")
            self._suffer(stream, asked, run)
        else:
            self._answer(stream, run(request.params))

    # ------------------------------------------------------------ faults

    def _asked(self, items: Sequence[Prepared | str], params: QueryParams, **more: Any) -> Asked:
        address = self._listener.node.address
        params = attrs.evolve(params, may_pause=False)  # faults change whole results
        return Asked.about(address, items, params, knows_rate_limit=self._knows_rate_limit, **more)

    def _suffer(
        self,
        stream: int,
        asked: Asked,
        run: Callable[[QueryParams], Result],
        limit_us: Callable[[], int | None] = lambda: None,
        **metadata: Any,
    ) -> None:
        """Answer a request in the way that the rules for faults say. *limit_us* is its USING TIMEOUT, or None."""
        fault = self._server.faults.meet(asked)

        def work(params: QueryParams) -> None:
            if self._state != "closing":
                self._fail_or_answer(stream, fault, params, run, **metadata)

        if not fault.delay_s:
            work(asked.params)
            return

        def late(params: QueryParams) -> None:
            for cancel in timers:
                cancel()
            # The loop calls this, not _handle: an error raised here would reach nobody. The opcode is for the log only.
            self._guarded(stream, Opcode.QUERY, lambda: work(params))
            self._flush()

        timers = [asyncio.get_running_loop().call_later(fault.delay_s, late, asked.params).cancel]
        limit = limit_us()
        if limit is not None:
            overdue = attrs.evolve(asked.params, overdue=True)
            timers.append(self._server.alarms.after(limit, lambda: late(overdue)))

    def _fail_or_answer(
        self, stream: int, fault: Fault, params: QueryParams, run: Callable[[QueryParams], Result], **metadata: Any
    ) -> None:
        if fault.silent:
            # The write is there, and the client never hears of it: the case in which only an idempotent retry is right.
            if fault.applied:
                run(params)
            return
        if fault.drop and not fault.partway:
            self.abort()
            return
        result = perform(fault, params, run)
        if not fault.drop or self._transport is None:
            self._answer(stream, result, **metadata)
            return
        whole = b"".join(answer.result_pieces(result, self.version, stream, self._server.metadata, **metadata))
        self._flush()
        self._transport.write(whole[: len(whole) // 2])
        # A reset, as when a machine comes back and knows of no connection: drivers have trouble with half an answer
        # that is followed by an orderly end.
        raw = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    def _answer(self, stream: int, result: Result, **metadata: Any) -> None:
        # Most writes end so, and are told in a frame that is soon made.
        if result is VOID:
            self._send(answer.void_frame(self.version, stream))
            return
        if isinstance(result, Unfinished):
            self._take_step(stream, result, metadata)
            return
        if isinstance(result, SetKeyspaceResult):
            self._keyspace = result.keyspace
        self._send(*answer.result_pieces(result, self.version, stream, self._server.metadata, **metadata))

    def _take_step(self, stream: int, result: Unfinished, metadata: dict[str, Any]) -> None:
        """Take a step of *result*, and the next one when other requests had their turn; answer after the last one."""
        while True:
            try:
                next(result.steps)
            except StopIteration as end:
                self._answer(stream, end.value, **metadata)
                return
            if self._tracing is None:  # a trace is of one turn
                asyncio.get_running_loop().call_soon(self._take_later_step, stream, result, metadata)
                return

    def _take_later_step(self, stream: int, result: Unfinished, metadata: dict[str, Any]) -> None:
        if self._state != "closing":
            self._guarded(stream, Opcode.QUERY, self._take_step, stream, result, metadata)
            self._flush()


def _read_plain(token: bytes | None) -> tuple[str, str]:
    """Return name and password of a SASL PLAIN token: authorization id, name and password with NUL between."""
    parts = (token or b"").split(b"\0")
    if len(parts) != 3:
        raise BadCredentials("the authentication token must hold a name and a password (SASL PLAIN)")
    try:
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError as error:
        raise BadCredentials("name and password must be UTF-8") from error
