"""Native protocol v3 and v4 as bytes: the frame header, a reader of request bodies, and the requests as values.

Nothing here knows a schema or a socket. Every malformed body ends in `ProtocolError`, never in another exception.
Source: CQL binary protocol v4 (sections 2 to 4) and Scylla `transport/server.cc`, `transport/request.hh`.
"""

from __future__ import annotations

import struct
from typing import Final

import attrs

from ..errors import SERIAL_LEVELS, ProtocolError
from ..result import UNSET, BindValue, QueryParams

__all__ = [
    "HEADER",
    "HEADER_SIZE",
    "SUPPORTED_VERSIONS",
    "BatchRequest",
    "BodyReader",
    "ExecuteRequest",
    "Flag",
    "Opcode",
    "QueryRequest",
    "Values",
    "read_batch",
    "read_execute",
    "read_query",
]

# The stream is signed: clients use positive numbers, the server's events have -1.
HEADER: Final = struct.Struct(">BBhBi")
"""Version (0x80 set on answers), flags, stream, opcode, body length."""
HEADER_SIZE: Final = HEADER.size
SUPPORTED_VERSIONS: Final = (3, 4)

Values = list[BindValue] | dict[str, BindValue]

_SHORT: Final = struct.Struct(">H")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_read_int: Final = _INT.unpack_from
_read_short: Final = _SHORT.unpack_from
_read_parameters_head: Final = struct.Struct(">HB").unpack_from


class Opcode:
    """Opcodes of the frame header."""

    ERROR: Final = 0x00
    STARTUP: Final = 0x01
    READY: Final = 0x02
    AUTHENTICATE: Final = 0x03
    OPTIONS: Final = 0x05
    SUPPORTED: Final = 0x06
    QUERY: Final = 0x07
    RESULT: Final = 0x08
    PREPARE: Final = 0x09
    EXECUTE: Final = 0x0A
    REGISTER: Final = 0x0B
    EVENT: Final = 0x0C
    BATCH: Final = 0x0D
    AUTH_RESPONSE: Final = 0x0F
    AUTH_SUCCESS: Final = 0x10


class Flag:
    """Flags of the frame header."""

    COMPRESSED: Final = 0x01
    TRACING: Final = 0x02
    CUSTOM_PAYLOAD: Final = 0x04
    WARNING: Final = 0x08


_VALUES: Final = 0x01
_SKIP_METADATA: Final = 0x02
_PAGE_SIZE: Final = 0x04
_PAGING_STATE: Final = 0x08
_SERIAL_CONSISTENCY: Final = 0x10
_TIMESTAMP: Final = 0x20
_NAMES: Final = 0x40

_LAST_CONSISTENCY: Final = 10  # LOCAL_ONE


# Requests are not frozen, nor is QueryParams: one of them is made for each, and to freeze it takes most of that time.


@attrs.define
class QueryRequest:
    """QUERY: text with its bind values."""

    text: str
    values: Values
    params: QueryParams
    skip_metadata: bool


@attrs.define
class ExecuteRequest:
    """EXECUTE. ``metadata_id`` is what the client thinks the result columns are, None if that was not negotiated."""

    statement_id: bytes
    metadata_id: bytes | None
    values: Values
    params: QueryParams
    skip_metadata: bool


@attrs.define
class BatchRequest:
    """BATCH. An item is (text, values) for a query string and (statement id, values) for a prepared statement."""

    kind: str
    items: list[tuple[str | bytes, list[BindValue]]]
    params: QueryParams


class BodyReader:
    """Reads one request body from front to back. Not thread-safe. Every method raises `ProtocolError` past the end."""

    __slots__ = ("_data", "_end", "_pos", "_version")

    def __init__(self, data: bytes, version: int = 4) -> None:
        self._data = data
        self._end = len(data)
        self._pos = 0
        self._version = version

    def _take(self, size: int) -> int:
        start = self._pos
        stop = start + size
        if size < 0 or stop > self._end:
            raise ProtocolError(f"truncated frame: {size} bytes expected at offset {start} of a body of {self._end}")
        self._pos = stop
        return start

    def byte(self) -> int:
        return self._data[self._take(1)]

    # The next two do not go through _take: a request of a write is read mostly by them.
    def short(self) -> int:
        """Return an unsigned 16-bit integer."""
        start = self._pos
        if start + 2 > self._end:
            self._take(2)
        self._pos = start + 2
        value: int = _read_short(self._data, start)[0]
        return value

    def int32(self) -> int:
        value: int = _INT.unpack_from(self._data, self._take(4))[0]
        return value

    def long(self) -> int:
        value: int = _LONG.unpack_from(self._data, self._take(8))[0]
        return value

    def raw(self, size: int) -> bytes:
        start = self._pos
        stop = start + size
        if size < 0 or stop > self._end:
            self._take(size)
        self._pos = stop
        return self._data[start:stop]

    def string(self) -> str:
        return self._text(self.short())

    def long_string(self) -> str:
        return self._text(self.int32())

    def _text(self, size: int) -> str:
        try:
            return self.raw(size).decode()
        except UnicodeDecodeError as error:
            raise ProtocolError("Cannot decode string as UTF8") from error

    def short_bytes(self) -> bytes:
        return self.raw(self.short())

    def bytes_(self) -> bytes | None:
        """Return [bytes]: an int32 length, negative for null, then the content."""
        size = self.int32()
        return None if size < 0 else self.raw(size)

    def value(self) -> BindValue:
        """Return a bind [value]; "not set" (length -2) exists from protocol v4 on, in v3 it reads as null."""
        size = self.int32()
        if size >= 0:
            return self.raw(size)
        if size == -1 or self._version < 4:
            return None
        if size == -2:
            return UNSET
        raise ProtocolError(f"invalid value length: {size}")

    def values(self) -> list[BindValue]:
        """Return a counted list of bind values."""
        out: list[BindValue] = []
        data, end = self._data, self._end
        count = self.short()
        at = self._pos
        # In place, for this is most of what a write's request holds; what is no plain value takes the long way.
        for _ in range(count):
            start = at + 4
            if start <= end:
                size = _read_int(data, at)[0]
                stop = start + size
                if size >= 0 and stop <= end:
                    out.append(data[start:stop])
                    at = stop
                    continue
            self._pos = at
            out.append(self.value())
            at = self._pos
        self._pos = at
        return out

    def string_list(self) -> list[str]:
        return [self.string() for _ in range(self.short())]

    def string_map(self) -> dict[str, str]:
        return {self.string(): self.string() for _ in range(self.short())}

    def skip_bytes_map(self) -> None:
        """Step over a [bytes map], the custom payload: the server has no use for it."""
        for _ in range(self.short()):
            self.string()
            self.bytes_()

    def consistency(self) -> int:
        level = self.short()
        if level > _LAST_CONSISTENCY:
            raise ProtocolError(f"Unknown code {level} for a consistency level")
        return level

    def consistency_and_flags(self) -> tuple[int, int]:
        """Return the two numbers that the parameters of a request begin with."""
        level, flags = _read_parameters_head(self._data, self._take(3))
        if level > _LAST_CONSISTENCY:
            raise ProtocolError(f"Unknown code {level} for a consistency level")
        return level, flags

    def serial_consistency(self) -> int:
        level = self.consistency()
        if level not in SERIAL_LEVELS:
            raise ProtocolError("Invalid serial consistency: must be one of SERIAL or LOCAL_SERIAL")
        return level


def read_query(reader: BodyReader, keyspace: str | None, node: int, shard: int | None = None) -> QueryRequest:
    """Return a QUERY. ``keyspace`` is the one in use on the connection, ``node`` the index of the coordinator.

    ``shard`` as in `QueryParams`.
    """
    text = reader.long_string()
    return QueryRequest(text, *_read_parameters(reader, keyspace, node, shard))


def read_execute(
    reader: BodyReader, keyspace: str | None, node: int, shard: int | None = None, *, with_metadata_id: bool
) -> ExecuteRequest:
    """Return an EXECUTE. ``with_metadata_id``: SCYLLA_USE_METADATA_ID was negotiated, which adds a field."""
    statement_id = reader.short_bytes()
    metadata_id = reader.short_bytes() if with_metadata_id else None
    return ExecuteRequest(statement_id, metadata_id, *_read_parameters(reader, keyspace, node, shard))


def _read_parameters(
    reader: BodyReader, keyspace: str | None, node: int, shard: int | None
) -> tuple[Values, QueryParams, bool]:
    consistency, flags = reader.consistency_and_flags()
    # v4 gives this bit no meaning; a field that came with it would be read as another one.
    if flags & 0x80:
        raise ProtocolError(f"Unknown query flags: {flags:#04x}")
    values: Values = []
    if flags & _VALUES:
        if flags & _NAMES:
            values = {reader.string(): reader.value() for _ in range(reader.short())}
        else:
            values = reader.values()
    elif flags & _NAMES:
        raise ProtocolError("the flag for named values is set, but the flag for values is not")
    page_size = reader.int32() if flags & _PAGE_SIZE else 0
    paging_state = reader.bytes_() if flags & _PAGING_STATE else None
    serial, timestamp = _read_tail(reader, flags)
    # Scylla, too, takes 0 and negative sizes for no paging.
    most = page_size if page_size > 0 else None
    # By place: keywords take as long again.
    params = QueryParams(consistency, serial, most, paging_state, timestamp, keyspace, node, shard, may_pause=True)
    return values, params, bool(flags & _SKIP_METADATA)


def _read_tail(reader: BodyReader, flags: int) -> tuple[int | None, int | None]:
    """Return the serial consistency and the client's timestamp in microseconds, each None when not sent."""
    serial = reader.serial_consistency() if flags & _SERIAL_CONSISTENCY else None
    timestamp = reader.long() if flags & _TIMESTAMP else None
    if timestamp == -(2**63):
        # Scylla reserves this value for "no timestamp".
        raise ProtocolError("Out of bound timestamp, must be in [-9223372036854775807, 9223372036854775807]")
    return serial, timestamp


_BATCH_KINDS: Final = ("logged", "unlogged", "counter")


def read_batch(reader: BodyReader, keyspace: str | None, node: int) -> BatchRequest:
    """Return a BATCH. Named values are refused: the protocol says they cannot be read there."""
    code = reader.byte()
    if code >= len(_BATCH_KINDS):
        raise ProtocolError(f"Invalid batch type: {code}")
    items = [_read_batch_item(reader) for _ in range(reader.short())]
    consistency, flags = reader.consistency_and_flags()
    if flags & ~(_SERIAL_CONSISTENCY | _TIMESTAMP):
        raise ProtocolError(f"Unsupported batch flags: {flags:#04x}; named values do not work in a BATCH")
    serial, timestamp = _read_tail(reader, flags)
    params = QueryParams(
        consistency=consistency,
        serial_consistency=serial,
        default_timestamp=timestamp,
        keyspace=keyspace,
        node=node,
    )
    return BatchRequest(_BATCH_KINDS[code], items, params)


def _read_batch_item(reader: BodyReader) -> tuple[str | bytes, list[BindValue]]:
    kind = reader.byte()
    if kind == 0:
        return reader.long_string(), reader.values()
    if kind == 1:
        return reader.short_bytes(), reader.values()
    raise ProtocolError(f"Invalid query kind in BATCH messages. Must be 0 or 1 but got {kind}")
