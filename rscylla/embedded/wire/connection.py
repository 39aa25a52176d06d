"""One client's connection: its state, and the requests it makes.

    bytes -> frames (transport.py) -> request values (frame.py) -> engine -> result -> bytes (answer.py) -> socket

A request is served to its end before the next one starts, except aggregates, which read many rows and pause.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from ..errors import BadCredentials, CqlError, ProtocolError, RateLimit, short_string
from ..faults.board import Asked, Fault, perform
from ..result import VOID, BindValue, Prepared, QueryParams, Result, SetKeyspaceResult, Unfinished
from . import answer
from .frame import BodyReader, ExecuteRequest, Flag, Opcode, QueryRequest, Values, read_batch, read_execute, read_query
from .tracing import TRACED, Tracing
from .transport import ClientSocket, Listener, Shared

__all__ = ["AUTHENTICATOR", "Connection"]

AUTHENTICATOR: Final = "org.apache.cassandra.auth.PasswordAuthenticator"
METADATA_ID_EXTENSION: Final = "SCYLLA_USE_METADATA_ID"
RATE_LIMIT_EXTENSION: Final = "SCYLLA_RATE_LIMIT_ERROR"
LWT_EXTENSION: Final = "SCYLLA_LWT_ADD_METADATA_MARK"
TABLETS_EXTENSION: Final = "TABLETS_ROUTING_V1"
CQL_VERSION: Final = "3.3.1"

_EVENT_KINDS: Final = ("TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE")


class Connection(ClientSocket):
    """The requests of one client."""

    def __init__(self, server: Shared, listener: Listener, *, shard_by_port: bool = False) -> None:
        super().__init__(server, listener, shard_by_port=shard_by_port)
        self._engine = server.engine
        self._node = listener.node.index
        self._keyspace: str | None = None
        self._with_metadata_id = False
        self._marks_lwt = False
        self._routed_shard: int | None = None
        self._knows_rate_limit = False
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

    def _dispatch(self, flags: int, stream: int, opcode: int, body: bytes) -> None:
        handler = self._handlers.get(opcode)
        if handler is None:
            raise ProtocolError(f"Unknown opcode {opcode}")
        if self._state != "ready":
            self._check_state(opcode)
        handler(stream, self._reader(flags, body) if flags else BodyReader(body, self.version))

    def _reader(self, flags: int, body: bytes) -> BodyReader:
        if flags & Flag.COMPRESSED:
            if self._compressor is None:
                raise ProtocolError("compressed frame on a connection that did not ask for compression in STARTUP")
            body = self._compressor.decompress(body)
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

    # ------------------------------------------------------------ requests

    def _options(self, stream: int, reader: BodyReader) -> None:
        node, options = self._listener.node, self._server.options
        supported: dict[str, list[str]] = {
            "CQL_VERSION": [CQL_VERSION],
            # An empty list still has to be there: scylla-driver fails without the key.
            "COMPRESSION": ["lz4"] if self._server.compressor else [],
        }
        if options.offers("CLIENT_OPTIONS"):
            supported["CLIENT_OPTIONS"] = [""]
        if options.offers("SCYLLA_HOST_ID"):
            supported["SCYLLA_HOST_ID"] = [str(node.host_id)]
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
        if options.metadata_id and options.offers(METADATA_ID_EXTENSION):
            supported[METADATA_ID_EXTENSION] = [""]
        # Scylla gives the code of this error in the offer; a client that does not accept it gets a plain error instead.
        supported[RATE_LIMIT_EXTENSION] = [f"ERROR_CODE={RateLimit.code}"]
        supported[LWT_EXTENSION] = [f"LWT_OPTIMIZATION_META_BIT_MASK={answer.LWT_MARK}"]
        if options.offers(TABLETS_EXTENSION):
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
            body = short_string(AUTHENTICATOR)
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
        self._run(stream, self._engine.query, request.text, request)

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
        self._run(stream, self._engine.execute, prepared, request, request.statement_id, request.metadata_id)

    def _run(
        self,
        stream: int,
        run: Callable[[Any, Values, QueryParams], Result],
        item: Prepared | str,
        request: QueryRequest | ExecuteRequest,
        statement_id: bytes | None = None,
        metadata_id: bytes | None = None,
    ) -> None:
        params, skip = request.params, request.skip_metadata
        self._note([item], params)
        if self._overdue:
            params = attrs.evolve(params, overdue=True)
        elif self._server.faults.concerns(params):
            asked = self._asked([item], params, statement_id=statement_id)
            work = functools.partial(run, item, request.values)
            limit_us = functools.partial(self._engine.time_limit_us, item, request.values, params)
            self._suffer(stream, asked, work, limit_us, skip_metadata=skip, metadata_id=metadata_id)
            return
        self._answer(stream, run(item, request.values, params), skip_metadata=skip, metadata_id=metadata_id)

    def _batch(self, stream: int, reader: BodyReader) -> None:
        request = read_batch(reader, self._keyspace, self._node)
        items: list[tuple[Prepared | str, Sequence[BindValue]]] = [
            (item if isinstance(item, str) else self._engine.get(item), values) for item, values in request.items
        ]
        statements = [item for item, _ in items]
        self._note(statements, request.params)
        run = functools.partial(self._engine.batch, request.kind, items)
        if self._server.faults.concerns(request.params):
            self._suffer(stream, self._asked(statements, request.params, kind="batch"), run)
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
