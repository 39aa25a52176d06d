"""One client's socket: bytes in and whole frames out of them, answers back, and what holds them up.

Everything here runs on the loop's thread. A client that does not read its answers stops being read from, so memory
stays bounded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import attrs

from ..clock import Clock, SystemClock
from ..cluster.node import Node
from ..errors import CqlError, Overloaded, ProtocolError, ServerError
from ..faults.board import FaultBoard
from . import answer
from .alarms import Alarms
from .compression import Compressor
from .frame import HEADER, HEADER_SIZE, SUPPORTED_VERSIONS
from .interfaces import EngineLike, Ports, WireOptions
from .tracing import Tracing

__all__ = ["ClientSocket", "Listener", "Shared"]

log = logging.getLogger("rscylla.embedded")

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


@attrs.define(eq=False)
class Listener:
    """A node's listening sockets, its clients, and how many of them each shard has.

    ``held``: requests are taken and not answered. ``delay_s``: each takes so much longer. ``closed``: clients that were
    accepted before the sockets were closed, and come to be known only now, are cut.
    """

    node: Node
    sockets: list[asyncio.Server] = attrs.field(factory=list)
    ports: Ports = attrs.field(factory=lambda: Ports(0))
    connections: set[ClientSocket] = attrs.field(factory=set)
    shard_loads: list[int] = attrs.field(factory=list)
    held: bool = False
    closed: bool = False
    delay_s: float = 0.0


class Shared:
    """What all connections of a cluster share. On the loop's thread only."""

    def __init__(
        self, engine: EngineLike, options: WireOptions, faults: FaultBoard | None = None, clock: Clock | None = None
    ) -> None:
        self.engine = engine
        self.options = options
        self.alarms = Alarms(clock or SystemClock())
        self.faults = faults or FaultBoard(lambda _table: True)
        self.waiting = 0
        """Bytes that large requests, of which a part has come, will need."""
        frames = options.max_frame
        self.compressor = Compressor(frames) if options.compression else Compressor.if_installed(frames)
        self.metadata = answer.MetadataCache()
        self.greeting: dict[ClientSocket, bool] = {}
        """Clients that are not READY yet, by age, and whether the last look at them found them so already."""
        self.listeners: dict[int, Listener] = {}
        """The nodes that listen, by index."""

    @property
    def connection_count(self) -> int:
        return sum(len(listener.connections) for listener in self.listeners.values())

    def make_room(self) -> bool:
        """Cut the oldest client that has not logged in; return whether there was one."""
        oldest = next(iter(self.greeting), None)
        if oldest is not None:
            oldest.give_way()
        return oldest is not None


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


class ClientSocket(asyncio.Protocol):
    """One client. States: new (OPTIONS and STARTUP only), authenticating, ready, closing (input is thrown away)."""

    def __init__(self, server: Shared, listener: Listener, *, shard_by_port: bool = False) -> None:
        # Scylla, too, answers in v4 when the first frame has a version it does not know.
        self.version = SUPPORTED_VERSIONS[-1]
        self.event_kinds: set[str] = set()
        self._server = server
        self._listener = listener
        self._state = "new"
        self._shard: int | None = None
        self._shard_by_port = shard_by_port
        self._compressor: Compressor | None = None
        self._transport: asyncio.Transport | None = None
        self._pending = bytearray()
        self._out: list[bytes] = []
        self._paused = False
        self._deferred: deque[_Deferred] = deque()
        self._overdue = False
        self._waiting = 0
        self._user = "anonymous"
        self._startup_options: dict[str, str] = {}
        self._client = (listener.node.address, 0)
        self._tracing: Tracing | None = None

    def _handle(self, flags: int, stream: int, opcode: int, body: bytes) -> None:
        """Answer one request."""
        raise NotImplementedError

    def _time_limit_us(self, flags: int, opcode: int, body: bytes) -> int | None:
        """Return the USING TIMEOUT of a request in microseconds, None if it has none."""
        raise NotImplementedError

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
