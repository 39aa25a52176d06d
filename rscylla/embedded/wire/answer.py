"""Answers and events of the native protocol as bytes: results, errors, SUPPORTED, pushed events.

A page of rows leaves as two pieces, a small head and the joined rows, so that a large page is copied once only.
Source: CQL binary protocol v4 (sections 4.2 and 9), Scylla `docs/dev/protocol-extensions.md`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from ..errors import CqlError, short_string
from ..result import (
    ColumnSpec,
    Prepared,
    Result,
    RowsResult,
    SchemaChange,
    SetKeyspaceResult,
    VoidResult,
)
from .frame import HEADER, Flag, Opcode

__all__ = [
    "LWT_MARK",
    "ColumnsMetadata",
    "MetadataCache",
    "error_frame",
    "frame",
    "prepared_frame",
    "result_pieces",
    "schema_event",
    "status_event",
    "supported_frame",
    "topology_event",
    "void_frame",
]

_INT: Final = struct.Struct(">i")
_TWO_INTS: Final = struct.Struct(">Ii")  # flags and a count
_THREE_INTS: Final = struct.Struct(">Iii")

_VOID, _ROWS, _SET_KEYSPACE, _PREPARED, _SCHEMA_CHANGE = range(1, 6)
_VOID_BODY: Final = _INT.pack(_VOID)

_GLOBAL_SPEC: Final = 0x01
_MORE_PAGES: Final = 0x02
_NO_METADATA: Final = 0x04
_METADATA_CHANGED: Final = 0x08
LWT_MARK: Final = 0x8000_0000
"""In the flags of a prepared statement: it is conditional. Sent to clients that agreed on it."""

_EVENT_STREAM: Final = -1  # what the protocol keeps for frames that answer no request
_KNOWN_METADATA: Final = 512  # column lists kept, more than any test suite prepares at a time


def frame(version: int, stream: int, opcode: int, body: bytes = b"", flags: int = 0) -> bytes:
    """Return a whole answer frame."""
    return HEADER.pack(0x80 | version, flags, stream, opcode, len(body)) + body


def short_bytes(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def string_list(items: Sequence[str]) -> bytes:
    return struct.pack(">H", len(items)) + b"".join(map(short_string, items))


# ---------------------------------------------------------------- result metadata


@attrs.frozen
class ColumnsMetadata:
    """The column part of a result's metadata. ``id`` changes whenever a name, type or table in it changes."""

    count: int
    flags: int
    body: bytes
    id: bytes


class MetadataCache:
    """Encoded metadata by column tuple. Keyed by identity: a prepared statement hands out the same tuple each time.

    Bounded; the oldest entry leaves first. For the loop thread only.
    """

    def __init__(self) -> None:
        # The tuple is kept with its entry: an id is only unique as long as its object lives.
        self._entries: dict[int, tuple[tuple[ColumnSpec, ...], ColumnsMetadata]] = {}

    def get(self, columns: tuple[ColumnSpec, ...]) -> ColumnsMetadata:
        entry = self._entries.get(id(columns))
        if entry is not None:
            return entry[1]
        metadata = _encode_columns(columns)
        if len(self._entries) >= _KNOWN_METADATA:
            del self._entries[next(iter(self._entries))]
        self._entries[id(columns)] = (columns, metadata)
        return metadata


def _encode_columns(columns: tuple[ColumnSpec, ...]) -> ColumnsMetadata:
    tables = {(column.keyspace, column.table) for column in columns}
    flags = 0
    parts: list[bytes] = []
    # Columns of one table name it once, as Scylla sends them.
    if len(tables) == 1:
        flags = _GLOBAL_SPEC
        keyspace, table = next(iter(tables))
        parts += (short_string(keyspace), short_string(table))
    for column in columns:
        if not flags:
            parts += (short_string(column.keyspace), short_string(column.table))
        parts += (short_string(column.name), column.type.wire)
    body = b"".join(parts)
    # Only an identity: machines in FIPS mode refuse md5 unless told that no security rests on it.
    digest = hashlib.md5(_INT.pack(len(columns)) + body, usedforsecurity=False).digest()
    return ColumnsMetadata(len(columns), flags, body, digest)


# ---------------------------------------------------------------- results


def result_pieces(
    result: Result,
    version: int,
    stream: int,
    cache: MetadataCache,
    *,
    skip_metadata: bool = False,
    metadata_id: bytes | None = None,
) -> tuple[bytes, bytes]:
    """Return a RESULT frame as (head, rows); the second piece is empty for all but rows.

    Args:
        skip_metadata: The client says it knows the columns.
        metadata_id: Which columns it knows, when SCYLLA_USE_METADATA_ID was negotiated: metadata is then left out only
            if that is still right, and sent along with its new id otherwise.
    """
    if isinstance(result, RowsResult):
        return _rows_pieces(result, version, stream, cache, skip_metadata, metadata_id)
    if isinstance(result, VoidResult):
        if result.routing is not None:
            body = _routing(result.routing) + _VOID_BODY
            return frame(version, stream, Opcode.RESULT, body, Flag.CUSTOM_PAYLOAD), b""
        return void_frame(version, stream), b""
    if isinstance(result, SetKeyspaceResult):
        body = _INT.pack(_SET_KEYSPACE) + short_string(result.keyspace)
    else:
        assert isinstance(result, SchemaChange)
        body = _INT.pack(_SCHEMA_CHANGE) + _schema_change(result)
    return frame(version, stream, Opcode.RESULT, body), b""


def void_frame(version: int, stream: int) -> bytes:
    """Return the RESULT frame of a write that has nothing to tell."""
    return HEADER.pack(0x80 | version, 0, stream, Opcode.RESULT, 4) + _VOID_BODY


def _rows_pieces(
    result: RowsResult, version: int, stream: int, cache: MetadataCache, skip: bool, known_id: bytes | None
) -> tuple[bytes, bytes]:
    rows = b"".join(result.pieces)
    head = _metadata(cache.get(result.columns), result.paging_state, skip, known_id) + _INT.pack(result.count)
    flags, before = (0, b"") if result.routing is None else (Flag.CUSTOM_PAYLOAD, _routing(result.routing))
    size = len(before) + 4 + len(head) + len(rows)
    return HEADER.pack(0x80 | version, flags, stream, Opcode.RESULT, size) + before + _INT.pack(_ROWS) + head, rows


def _routing(payload: bytes) -> bytes:
    """Return the [bytes map] in front of a result that tells where its tablet is."""
    return struct.pack(">H", 1) + short_string("tablets-routing-v1") + _INT.pack(len(payload)) + payload


def _metadata(columns: ColumnsMetadata, paging_state: bytes | None, skip: bool, known_id: bytes | None) -> bytes:
    # Without an id from the client (the extension was not negotiated), its word that it knows the columns is taken.
    changed = known_id is not None and known_id != columns.id
    flags = columns.flags
    body = columns.body
    if skip and not changed:
        flags, body = _NO_METADATA, b""
    elif changed:
        flags |= _METADATA_CHANGED
        body = short_bytes(columns.id) + body
    # In front of what is there: on the wire the paging state comes first, then the new id, then the columns.
    if paging_state is not None:
        flags |= _MORE_PAGES
        body = _INT.pack(len(paging_state)) + paging_state + body
    return _TWO_INTS.pack(flags, columns.count) + body


def prepared_frame(
    prepared: Prepared,
    version: int,
    stream: int,
    cache: MetadataCache,
    *,
    with_metadata_id: bool,
    marks_lwt: bool = False,
) -> bytes:
    """Return the answer to PREPARE: id, bind variables with the partition key's places among them, result columns."""
    columns = cache.get(prepared.columns or ())
    variables = cache.get(prepared.variables)
    flags = variables.flags | (LWT_MARK if marks_lwt and prepared.is_conditional else 0)
    parts = [_INT.pack(_PREPARED), short_bytes(prepared.id)]
    if with_metadata_id:
        parts.append(short_bytes(columns.id))
    # v3 knows no positions of the partition key: its drivers work them out from the schema.
    if version >= 4:
        parts.append(_THREE_INTS.pack(flags, variables.count, len(prepared.pk_indexes)))
        parts += [struct.pack(">H", index) for index in prepared.pk_indexes]
    else:
        parts.append(_TWO_INTS.pack(flags, variables.count))
    parts.append(variables.body)
    # The statement returns no rows, so there is nothing to describe.
    if prepared.columns is None:
        parts.append(_TWO_INTS.pack(_NO_METADATA, 0))
    else:
        parts.append(_TWO_INTS.pack(columns.flags, columns.count) + columns.body)
    return frame(version, stream, Opcode.RESULT, b"".join(parts))


def supported_frame(version: int, stream: int, options: Mapping[str, Sequence[str]]) -> bytes:
    """Return SUPPORTED, a string multimap."""
    parts = [struct.pack(">H", len(options))]
    parts += [short_string(key) + string_list(values) for key, values in options.items()]
    return frame(version, stream, Opcode.SUPPORTED, b"".join(parts))


def error_frame(version: int, stream: int, error: CqlError) -> bytes:
    """Return ERROR with the extra fields that some codes carry."""
    body = _INT.pack(error.code) + short_string(_fit(error.message)) + error.extra
    return frame(version, stream, Opcode.ERROR, body)


def _fit(message: str) -> str:
    """Return the message cut to what a [string] can carry."""
    data = message.encode()
    # A cut in the middle of a character would not be UTF-8: what is left of that character goes too.
    return message if len(data) <= 0xFFFF else data[:0xFFFF].decode(errors="ignore")


# ---------------------------------------------------------------- events


def schema_event(version: int, change: SchemaChange) -> bytes:
    return _event(version, short_string("SCHEMA_CHANGE") + _schema_change(change))


def topology_event(version: int, change: str, address: str, port: int) -> bytes:
    """Return TOPOLOGY_CHANGE; ``change`` is NEW_NODE or REMOVED_NODE."""
    return _event(version, short_string("TOPOLOGY_CHANGE") + short_string(change) + _inet(address, port))


def status_event(version: int, change: str, address: str, port: int) -> bytes:
    """Return STATUS_CHANGE; ``change`` is UP or DOWN."""
    return _event(version, short_string("STATUS_CHANGE") + short_string(change) + _inet(address, port))


def _event(version: int, body: bytes) -> bytes:
    return frame(version, _EVENT_STREAM, Opcode.EVENT, body)


def _schema_change(change: SchemaChange) -> bytes:
    names: Iterable[str] = (change.change, change.target, change.keyspace)
    if change.target != "KEYSPACE":
        names = (*names, change.name)
    return b"".join(map(short_string, names))


def _inet(address: str, port: int) -> bytes:
    packed = ipaddress.ip_address(address).packed
    return bytes((len(packed),)) + packed + _INT.pack(port)
