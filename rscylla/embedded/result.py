"""What the engine hands the wire: prepared statements, parameters of a request, and results with rows encoded."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final, Literal

import attrs

from .types import UNSET, CqlType, Unset

__all__ = [
    "UNSET",
    "VOID",
    "BindValue",
    "ColumnSpec",
    "Prepared",
    "QueryParams",
    "Result",
    "RowsResult",
    "SchemaChange",
    "SetKeyspaceResult",
    "Trace",
    "Unfinished",
    "Unset",
    "VoidResult",
]

_INT: Final = struct.Struct(">i")

BindValue = bytes | Unset | None


@attrs.frozen
class ColumnSpec:
    """Where a result column or bind variable comes from, its name and its type."""

    keyspace: str
    table: str
    name: str
    type: CqlType


@attrs.define
class QueryParams:
    """Per-request settings of QUERY, EXECUTE and BATCH. Not changed once it is made.

    ``default_timestamp`` is the client's timestamp in microseconds or None. ``node`` is the index of the node that
    coordinates the request (its clock stamps writes without a client timestamp, and it answers ``system.local``).
    ``shard`` is the shard of the connection if the client is to be told of tablets that are elsewhere, else None.
    ``overdue`` says that a fault has held the request back for longer than its USING TIMEOUT. ``may_pause``: a read of
    many rows may return `Unfinished`, so that other requests get their turn.
    """

    consistency: int = 1
    serial_consistency: int | None = None
    page_size: int | None = None
    paging_state: bytes | None = None
    default_timestamp: int | None = None
    keyspace: str | None = None
    node: int = 0
    shard: int | None = None
    overdue: bool = False
    may_pause: bool = False


@attrs.frozen
class Prepared:
    """A statement with its bind variables. ``pk_indexes``: positions of the partition key among the variables."""

    id: bytes
    text: str
    keyspace: str | None
    statement: Any
    variables: tuple[ColumnSpec, ...]
    pk_indexes: tuple[int, ...]
    columns: tuple[ColumnSpec, ...] | None
    is_conditional: bool = False


@attrs.frozen
class Trace:
    """A request that a client asked to be traced. ``coordinator`` is the address of the node."""

    id: uuid.UUID
    request: str
    parameters: dict[str, str]
    client: str
    user: str
    coordinator: str
    shard: int
    duration_us: int


@attrs.frozen
class VoidResult:
    """No rows. ``routing``: where the tablet is, for a client that asked another node or shard."""

    routing: bytes | None = None


VOID: Final = VoidResult()


@attrs.frozen
class SetKeyspaceResult:
    keyspace: str


@attrs.frozen
class SchemaChange:
    """``target``: KEYSPACE, TABLE or TYPE; ``name`` is empty for a keyspace."""

    change: Literal["CREATED", "UPDATED", "DROPPED"]
    target: Literal["KEYSPACE", "TABLE", "TYPE"]
    keyspace: str
    name: str = ""


@attrs.frozen
class RowsResult:
    """One page. ``pieces`` hold one or more rows each: every cell as int32 length (-1 for null) and content, joined.

    ``count`` is the number of rows; without it, each piece is one. ``routing`` as in `VoidResult`.
    """

    columns: tuple[ColumnSpec, ...]
    pieces: Sequence[bytes]
    paging_state: bytes | None = None
    routing: bytes | None = None
    count: int = attrs.field(default=attrs.Factory(lambda self: len(self.pieces), takes_self=True))

    @property
    def rows(self) -> Sequence[bytes]:
        """The rows, each by itself."""
        if len(self.pieces) == self.count:
            return self.pieces
        return [row for piece in self.pieces for row in _cut(piece, len(self.columns))]


def _cut(piece: bytes, width: int) -> Iterator[bytes]:
    """Yield the rows of a piece, which have *width* cells each."""
    start = 0
    while start < len(piece):
        end = start
        for _ in range(width):
            end += 4 + max(_INT.unpack_from(piece, end)[0], 0)
        yield piece[start:end]
        start = end


@attrs.frozen
class Unfinished:
    """The result of a read that takes long: what ``steps`` returns; it yields after each step."""

    steps: Generator[None, None, Result]


Result = VoidResult | SetKeyspaceResult | SchemaChange | RowsResult | Unfinished
