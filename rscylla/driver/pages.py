"""Undecoded pages: the protocol handler that keeps them raw, and the functions that split them into cells.

The result metadata is parsed once and then recognized by comparing bytes. No row is decoded here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import attrs
from cassandra.cqltypes import UserType, VectorType
from cassandra.protocol import ProtocolHandler, ResultMessage

from .._decoder import twin
from ..errors import MalformedData
from ..types import Type

__all__ = ["Column", "Page", "raw_handler", "split_rows", "type_of"]

_INT = struct.Struct(">i")
_HEADER = struct.Struct(">ii")
_GLOBAL_TABLE_SPEC = 0x0001
_HAS_MORE_PAGES = 0x0002
_KNOWN_FLAGS = _GLOBAL_TABLE_SPEC | _HAS_MORE_PAGES


@attrs.frozen
class Column:
    """A column of a log page."""

    name: str
    type: Type


def type_of(cql_type: Any, *, frozen: bool = False) -> Type:
    """Return the type that a class of the driver represents. Types inside another type are frozen."""
    args = tuple(type_of(t, frozen=True) for t in cql_type.subtypes or ())
    if issubclass(cql_type, UserType):
        return Type("udt", args, tuple(cql_type.fieldnames), name=cql_type.typename, frozen=frozen)
    if issubclass(cql_type, VectorType):
        return Type("vector", (type_of(cql_type.subtype, frozen=True),), size=cql_type.vector_size)
    if cql_type.typename == "frozen":  # the driver has this class only for elements of vectors
        return args[0]
    kind = "text" if cql_type.typename == "varchar" else cql_type.typename.strip("'")
    return Type(kind, args, frozen=frozen and kind in ("list", "set", "map"))


@attrs.frozen(eq=False)
class Page:
    """One raw page: at ``offset``, ``body`` has the row count (int32), then the rows. ``state`` requests the next page.

    ``columns`` is the same tuple object as long as the server's metadata stays the same.
    """

    columns: tuple[Column, ...]
    body: bytes = attrs.field(repr=False)
    offset: int
    state: bytes | None

    @property
    def row_count(self) -> int:
        return cast("int", _INT.unpack_from(self.body, self.offset)[0])

    @property
    def size(self) -> int:
        """Bytes of the rows, without the description of the columns, which every page has, even an empty one."""
        return len(self.body) - self.offset - _INT.size

    def cells(self, table: str, *, is_log: bool = False) -> list[tuple[bytes | None, ...]]:
        """Return the rows as tuples of undecoded cells, None for null.

        Args:
            table: keyspace and name of the table, for an error.
            is_log: the page is of the log of *table*.

        Raises:
            MalformedData: the page ends within a row.
        """
        try:
            return _splitter()(self.body, self.offset, len(self.columns))
        except ValueError as e:
            raise MalformedData.of_page(table, str(e), is_log=is_log) from e


@cache
def _splitter() -> Callable[[bytes, int, int], list[tuple[bytes | None, ...]]]:
    """Return what splits pages, chosen at the first one: the compiled rows import this module."""
    return twin("cdc.rows.split_rows", split_rows)


def split_rows(body: bytes, offset: int, columns: int) -> list[tuple[bytes | None, ...]]:
    """Return the rows of a page, split in Python; the compiled decoder gives the same.

    Raises:
        ValueError: the page ends within a row.
    """
    end = len(body)
    if offset + 4 > end:
        raise ValueError(_CUT_SHORT)
    (count,) = _INT.unpack_from(body, offset)
    offset += 4
    if count < 0:
        raise ValueError(_CUT_SHORT)
    unpack = _INT.unpack_from
    rows = []
    for _ in range(count):
        row: list[bytes | None] = []
        for _ in range(columns):
            if offset + 4 > end:
                raise ValueError(_CUT_SHORT)
            (size,) = unpack(body, offset)
            offset += 4
            if size < 0:
                row.append(None)
                continue
            if offset + size > end:
                raise ValueError(_CUT_SHORT)
            row.append(body[offset : offset + size])
            offset += size
        rows.append(tuple(row))
    return rows


_CUT_SHORT = "the page ends within a row"


class _RawResult(ResultMessage):  # type: ignore[misc]
    """A RESULT message whose rows stay bytes. Each handler has its own subclass, with its own cache of metadata."""

    cache: tuple[bytes, int, tuple[Column, ...]] | None = None

    def recv_results_rows(self, f: Any, protocol_version: int, user_type_map: Any, *_: Any) -> None:
        body, start = f.getvalue(), f.tell()
        flags, count, state, at = _head_of(body, start)
        is_known = not flags & ~_KNOWN_FLAGS
        cache = self.cache
        if cache is not None and is_known and cache[1] == count and body.startswith(cache[0], at):
            page = Page(cache[2], body, at + len(cache[0]), state)
        else:
            self.recv_results_metadata(f, user_type_map)
            columns = tuple(Column(m[2], type_of(m[3])) for m in self.column_metadata)
            if is_known:
                type(self).cache = (body[at : f.tell()], count, columns)
            page = Page(columns, body, f.tell(), state)
        self.paging_state = page.state
        self.column_names = [column.name for column in page.columns]
        self.parsed_rows = page


def _head_of(body: bytes, start: int) -> tuple[int, int, bytes | None, int]:
    """Return the flags of the metadata at *start*, the number of columns, the paging state, and what follows it."""
    flags, count = _HEADER.unpack_from(body, start)
    at = start + _HEADER.size
    if not flags & _HAS_MORE_PAGES:
        return flags, count, None, at
    (size,) = _INT.unpack_from(body, at)
    return flags, count, body[at + 4 : at + 4 + size], at + 4 + size


class _RawProtocolHandler(ProtocolHandler):  # type: ignore[misc]
    @classmethod
    def encode_message(cls, msg: Any, stream_id: Any, protocol_version: Any, compressor: Any, **other: Any) -> bytes:
        """Return the frame of a request, never compressed: most of it are stream ids, which are random."""
        return cast("bytes", super().encode_message(msg, stream_id, protocol_version, None, **other))


def raw_handler() -> type:
    """Return a new protocol handler class whose results are ``Page``s."""
    result = type("RawResult", (_RawResult,), {})
    known = {**ProtocolHandler.message_types_by_opcode, ResultMessage.opcode: result}
    return type("RawProtocolHandler", (_RawProtocolHandler,), {"message_types_by_opcode": known})
