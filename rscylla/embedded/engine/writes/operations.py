"""What INSERT, UPDATE and DELETE do to one column of a row: set it, clear it, or edit a collection's elements."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import attrs

from ...cql import ast
from ...errors import InvalidRequest
from ...result import UNSET, BindValue
from ...schema.tables import Column, TableSchema
from ...storage.mutation import Cell, CollectionCells, Key, RowMutation
from ...storage.reconcile import live_value, put_cell, put_collection
from ...types import INT, TIMEUUID, UUID, CqlType, ListType, MapType, SetType, UdtType, has_spellings, term_text
from ...types.natives import COUNTER, NUMBERS
from ...types.timeuuid import EPOCH_TICKS
from ..binding import Getter, Request, Scope
from ..values.arithmetic import added, subtracted
from ..where.filtering import one_of

__all__ = ["ColumnEdit", "ListKeys", "PriorRow", "WriteContext", "assignment", "deletion", "setter", "setter_of"]

PriorRow = Callable[[TableSchema, Key, Key | None], RowMutation | None]
"""Gives a stored row, or the static row for None; dead and expired cells included."""

_MIRROR_US = 1262304000000000  # 2010-01-01; prepended list keys run backwards from here
_PREPEND_START = 1 << 17  # 14 bits fit the clock sequence; the other 3 are ticks, of which a microsecond has ten


class ListKeys:
    """Makes the time UUIDs that are the keys of list elements. One for each request: its counters keep the order.

    Source: Scylla ``utils/UUID_gen.hh`` get_time_UUID_bytes_from_micros_and_submicros.
    """

    def __init__(self, node: bytes) -> None:
        self._node = node
        self._up = 0
        self._down = _PREPEND_START

    def append(self, timestamp_us: int) -> bytes:
        key = self._key(timestamp_us, self._up)
        self._up += 1
        return key

    def prepend(self, timestamp_us: int, count: int) -> list[bytes]:
        """Return ``count`` keys in ascending order, all before any key that append gives."""
        if timestamp_us <= _MIRROR_US:
            raise InvalidRequest("List prepend custom timestamp must be greater than Jan 1 2010 00:00:00")
        self._down -= count
        if self._down < 0:
            raise InvalidRequest(f"A statement or batch can prepend at most {_PREPEND_START} list elements")
        return [self._key(2 * _MIRROR_US - timestamp_us, self._down + at) for at in range(count)]

    def _key(self, time_us: int, counter: int) -> bytes:
        if counter >= _PREPEND_START:
            raise InvalidRequest(f"A statement or batch can add at most {_PREPEND_START} list elements")
        ticks = time_us * 10 + EPOCH_TICKS + (counter >> 14)
        sequence = counter & 0x3FFF
        head = struct.pack(">IHH", ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF | 0x1000)
        # The low half is compared as signed bytes, so the low byte of the counter has its top bit flipped.
        return head + bytes([0x80 | sequence >> 8, sequence & 0xFF ^ 0x80]) + self._node


@attrs.define
class WriteContext:
    """What a statement writes with. ``timestamp`` us, ``ttl`` s (0 none), ``expiry`` s of the server's clock or None.

    ``place`` is the table and the partition, ``ck`` the row that is edited, None for the static row. ``prior`` gives a
    row before the request, for list operations by index or value.
    """

    request: Request
    timestamp: int
    ttl: int
    expiry: int | None
    list_keys: ListKeys
    prior: PriorRow
    place: tuple[TableSchema, Key]
    ck: Key | None = None

    def cell(self, value: bytes | None) -> Cell:
        if value is None:
            # A dead cell has no TTL: a tombstone does not expire.
            return Cell(None, self.timestamp)
        return Cell(value, self.timestamp, self.ttl, self.expiry)

    def live_value(self, name: str) -> bytes | None:
        """Return the live value of a column of one cell before the request."""
        row = self.prior(*self.place, self.ck)
        stored = None if row is None else row.cells.get(name)
        return live_value(stored, self.request.now_s) if isinstance(stored, Cell) else None

    def stored_key(self, name: str, cql_type: CqlType, key: bytes) -> bytes:
        """Return the key of an element as it was first written: 1.0 for 1.00. ``cql_type`` is that of the keys."""
        if not has_spellings(cql_type):
            return key
        row = self.prior(*self.place, self.ck)
        stored = None if row is None else row.cells.get(name)
        if not isinstance(stored, CollectionCells):
            return key
        is_it = one_of(cql_type, [key])
        return next(filter(is_it, stored.cells), key)

    def list_cells(self, name: str) -> list[tuple[bytes, bytes]]:
        """Return the live (key, value) pairs of a list before the request, in list order."""
        row = self.prior(*self.place, self.ck)
        stored = None if row is None else row.cells.get(name)
        if not isinstance(stored, CollectionCells):
            return []
        now_s = self.request.now_s
        live = [(key, value) for key, c in stored.cells.items() if (value := live_value(c, now_s)) is not None]
        return sorted(live, key=lambda pair: TIMEUUID.sort_key(pair[0]))


Apply = Callable[[WriteContext, RowMutation], None]


@attrs.frozen
class ColumnEdit:
    """One edit of a column; ``needs_read`` when it looks at the row before the write.

    ``value`` is what gives the cell's value, if the edit only sets one cell.
    """

    column: Column
    apply: Apply
    needs_read: bool = False
    value: Getter | None = None


def setter(scope: Scope, column: Column, term: Any) -> ColumnEdit:
    """Return ``column = term``, as INSERT and UPDATE SET write it."""
    return setter_of(column, scope.getter(term, column.type, column.name))


def setter_of(column: Column, get: Getter) -> ColumnEdit:
    """Return ``column = value`` for a value that a function gives: bytes, None for null, or UNSET."""
    name, cql_type = column.name, column.type
    if not cql_type.is_multicell:

        def set_cell(ctx: WriteContext, row: RowMutation) -> None:
            value = get(ctx.request)
            if value is UNSET:
                return
            cell = ctx.cell(value)  # type: ignore[arg-type]  # UNSET is excluded above
            if name in row.cells:
                put_cell(row, name, cell)
            else:
                row.cells[name] = cell

        return ColumnEdit(column, set_cell, value=get)

    def overwrite(ctx: WriteContext, row: RowMutation) -> None:
        value = get(ctx.request)
        if value is UNSET:
            return
        # Just before the new elements, so that the tombstone does not cover them.
        edit = CollectionCells(tombstone=ctx.timestamp - 1)
        if isinstance(value, bytes):
            edit.cells = _elements(ctx, cql_type, value)
        put_collection(row, name, edit)

    return ColumnEdit(column, overwrite)


def _elements(ctx: WriteContext, cql_type: CqlType, value: bytes) -> dict[bytes, Cell]:
    """Return element cells of a whole collection or UDT value."""
    if isinstance(cql_type, MapType):
        return {key: ctx.cell(item) for key, item in cql_type.split(value)}
    if isinstance(cql_type, SetType):
        return {key: ctx.cell(b"") for key in cql_type.split(value)}
    if isinstance(cql_type, ListType):
        return {ctx.list_keys.append(ctx.timestamp): ctx.cell(item) for item in cql_type.split(value)}
    if isinstance(cql_type, UdtType):
        parts = enumerate(cql_type.split(value))
        # A null field is no cell: the tombstone of the assignment has cleared it.
        return {at.to_bytes(2, "big"): ctx.cell(item) for at, item in parts if item is not None}
    raise TypeError(f"{cql_type.name} has no elements")


def assignment(scope: Scope, column: Column, item: ast.Assignment, *, is_conditional: bool) -> ColumnEdit:
    """Return one SET item of an UPDATE; ``is_conditional`` if that has an IF clause.

    Raises InvalidRequest when the type has no such operation.
    """
    if item.kind == "set":
        return setter(scope, column, item.value)
    if item.kind in ("add", "subtract", "prepend"):
        if is_conditional and item.kind != "prepend" and column.type in NUMBERS and column.type != COUNTER:
            return _number(scope, column, item)
        refused = _no_arithmetic(column.type, item.kind)
        if refused is not None:
            name, value = column.name, term_text(item.value)
            operation = f"{value} + {name}" if item.kind == "prepend" else f"{name} {_SIGNS[item.kind]} {value}"
            raise InvalidRequest(f"Invalid operation ({name} = {operation}) for {refused} column {name}")
        return _arithmetic(scope, column, item)
    if item.kind == "element":
        return _set_element(scope, column, item.key, item.value)
    return _set_field(scope, column, str(item.key), item.value)


_SIGNS = {"add": "+", "subtract": "-"}


def _no_arithmetic(cql_type: CqlType, kind: str) -> str | None:
    """Return the kind of column that has no such operation, None if this one has."""
    if kind == "prepend":
        return "non list" if not isinstance(cql_type, ListType) else None if cql_type.is_multicell else "frozen list"
    if not isinstance(cql_type, ListType | SetType | MapType):
        return "non counter"
    return None if cql_type.is_multicell else "frozen collection"


def _number(scope: Scope, column: Column, item: ast.Assignment) -> ColumnEdit:
    """Return ``r = r + term`` of a number: only where Paxos makes one step of the read and the write."""
    name, cql_type = column.name, column.type
    get = scope.getter(item.value, cql_type, name)
    operate = added if item.kind == "add" else subtracted

    def put(ctx: WriteContext, row: RowMutation) -> None:
        value = get(ctx.request)
        if value is not UNSET:
            # As in SQL, nothing comes of null: the column is, or becomes, null.
            result = operate(cql_type, name, ctx.live_value(name), value)  # type: ignore[arg-type]  # it is set
            put_cell(row, name, ctx.cell(result))

    return ColumnEdit(column, put, needs_read=True)


def _arithmetic(scope: Scope, column: Column, item: ast.Assignment) -> ColumnEdit:
    name, cql_type = column.name, column.type
    if item.kind == "subtract":
        return _subtract(scope, column, item.value)
    get = scope.getter(item.value, cql_type, name)
    prepend = item.kind == "prepend"

    def add(ctx: WriteContext, row: RowMutation) -> None:
        value = get(ctx.request)
        # Adding null, or nothing, changes nothing: not even a tombstone.
        if not isinstance(value, bytes):
            return
        if prepend and isinstance(cql_type, ListType):
            items = cql_type.split(value)
            keys = ctx.list_keys.prepend(ctx.timestamp, len(items))
            cells = {key: ctx.cell(part) for key, part in zip(keys, items, strict=True)}
        else:
            cells = _elements(ctx, cql_type, value)
            if isinstance(cql_type, SetType | MapType):
                key_type = cql_type.key if isinstance(cql_type, MapType) else cql_type.element
                cells = {ctx.stored_key(name, key_type, key): cell for key, cell in cells.items()}
        if cells:
            put_collection(row, name, CollectionCells(cells=cells))

    return ColumnEdit(column, add)


def _subtract(scope: Scope, column: Column, term: Any) -> ColumnEdit:
    name, cql_type = column.name, column.type
    if isinstance(cql_type, ListType):
        get_list = scope.getter(term, cql_type, name)

        def discard(ctx: WriteContext, row: RowMutation) -> None:
            value = get_list(ctx.request)
            is_gone = one_of(cql_type.element, cql_type.split(value) if isinstance(value, bytes) else [])
            cells = {key: ctx.cell(None) for key, item in ctx.list_cells(name) if is_gone(item)}
            if cells:
                put_collection(row, name, CollectionCells(cells=cells))

        return ColumnEdit(column, discard, needs_read=True)
    keys_type = SetType(cql_type.key if isinstance(cql_type, MapType) else cql_type.element, frozen=True)  # type: ignore[attr-defined]
    get = scope.getter(term, keys_type, name)

    def spelled(ctx: WriteContext, key: bytes) -> bytes:
        return ctx.stored_key(name, keys_type.element, key)

    def remove(ctx: WriteContext, row: RowMutation) -> None:
        value = get(ctx.request)
        # Without a read: the log names the keys whether or not they were there.
        if isinstance(value, bytes) and (keys := keys_type.split(value)):
            put_collection(row, name, CollectionCells(cells={spelled(ctx, key): ctx.cell(None) for key in keys}))

    return ColumnEdit(column, remove)


def _set_element(scope: Scope, column: Column, key_term: Any, term: Any | None) -> ColumnEdit:
    """Return ``column[key] = term``; ``term`` None deletes the element."""
    name, cql_type = column.name, column.type
    operation = (
        "deletion operation" if term is None else f"operation ({name}[{term_text(key_term)}] = {term_text(term)})"
    )
    if not isinstance(cql_type, ListType | SetType | MapType):
        raise InvalidRequest(f"Invalid {operation} for non collection column {name}")
    if not cql_type.is_multicell:
        raise InvalidRequest(f"Invalid {operation} for frozen collection column {name}")
    if isinstance(cql_type, ListType):
        return _list_element(scope, column, cql_type, key_term, term)
    if isinstance(cql_type, MapType):
        key_type = cql_type.key
        get_key = scope.getter(key_term, key_type, f"key({name})")
        get_value = None if term is None else scope.getter(term, cql_type.value, f"value({name})")
    elif isinstance(cql_type, SetType) and term is None:
        key_type = cql_type.element
        get_key, get_value = scope.getter(key_term, key_type, f"value({name})"), None
    else:
        raise InvalidRequest(f"Invalid {operation} for set column {name}")

    def put(ctx: WriteContext, row: RowMutation) -> None:
        key = get_key(ctx.request)
        if not isinstance(key, bytes):
            what = "map key" if isinstance(cql_type, MapType) else "set element"
            raise InvalidRequest(f"Invalid {_kind(key)} {what} for column {name}")
        value = None if get_value is None else get_value(ctx.request)
        if value is not UNSET:
            stored = ctx.stored_key(name, key_type, key)
            put_collection(row, name, CollectionCells(cells={stored: ctx.cell(value)}))  # type: ignore[arg-type]

    return ColumnEdit(column, put)


def _kind(value: BindValue) -> str:
    return "unset" if value is UNSET else "null"


def _list_element(scope: Scope, column: Column, cql_type: ListType, key_term: Any, term: Any | None) -> ColumnEdit:
    name = column.name
    if isinstance(key_term, ast.Call) and key_term.name == "scylla_timeuuid_list_index":
        return _list_cell(scope, column, cql_type, key_term.args[0], term)
    get_index = scope.getter(key_term, INT, f"idx({name})")
    get_value: Getter | None = None if term is None else scope.getter(term, cql_type.element, f"value({name})")

    def put(ctx: WriteContext, row: RowMutation) -> None:
        raw = get_index(ctx.request)
        if raw is UNSET and get_value is None:
            return
        if not isinstance(raw, bytes):
            raise InvalidRequest(f"Invalid {_kind(raw)} value for list index of column {name}")
        value = None if get_value is None else get_value(ctx.request)
        if value is UNSET:
            return
        # By index: which element that is depends on what is stored.
        known = ctx.list_cells(name)
        if not known:
            what = "set an element on" if get_value else "delete an element from"
            raise InvalidRequest(f"Attempted to {what} a list which is null")
        at = int.from_bytes(raw, "big", signed=True)
        if not 0 <= at < len(known):
            raise InvalidRequest(f"List index {at} out of bound, list has size {len(known)}")
        put_collection(row, name, CollectionCells(cells={known[at][0]: ctx.cell(value)}))  # type: ignore[arg-type]

    return ColumnEdit(column, put, needs_read=True)


def _list_cell(scope: Scope, column: Column, cql_type: ListType, key_term: Any, term: Any) -> ColumnEdit:
    """Return ``l[SCYLLA_TIMEUUID_LIST_INDEX(uuid)] = term``: a list element by its own key, with which logs replay."""
    name = column.name
    get_key = scope.getter(key_term, UUID, f"uuid_idx({name})")  # Scylla's own name and type of the marker
    get_value = scope.getter(term, cql_type.element, f"value({name})")

    def put(ctx: WriteContext, row: RowMutation) -> None:
        key, value = get_key(ctx.request), get_value(ctx.request)
        if not isinstance(key, bytes) or len(key) != 16:
            raise InvalidRequest(f"Invalid null or unset key of an element of the list {name}; give a timeuuid")
        if value is not UNSET:
            put_collection(row, name, CollectionCells(cells={key: ctx.cell(value)}))  # type: ignore[arg-type]

    return ColumnEdit(column, put)


def _set_field(scope: Scope, column: Column, field: str, term: Any | None) -> ColumnEdit:
    name, cql_type = column.name, column.type
    operation = "field deletion operation" if term is None else f"operation ({name}.{field} = {term_text(term)})"
    if not isinstance(cql_type, UdtType):
        raise InvalidRequest(f"Invalid {operation} for non-UDT column {name}")
    if not cql_type.is_multicell and term is None:
        raise InvalidRequest(f"Frozen UDT column {name} does not support field deletions")
    if not cql_type.is_multicell:
        raise InvalidRequest(f"Invalid {operation} for frozen UDT column {name}")
    if field not in cql_type.field_names:
        raise InvalidRequest(f"UDT column {name} does not have a field named {field}")
    at = cql_type.field_names.index(field)
    get = None if term is None else scope.getter(term, cql_type.field_types[at], f"{name}.{field}")

    def put(ctx: WriteContext, row: RowMutation) -> None:
        value = None if get is None else get(ctx.request)
        if value is not UNSET:
            cells = {at.to_bytes(2, "big"): ctx.cell(value)}  # type: ignore[arg-type]  # UNSET is excluded above
            put_collection(row, name, CollectionCells(cells=cells))

    return ColumnEdit(column, put)


def deletion(scope: Scope, column: Column, item: ast.Deletion) -> ColumnEdit:
    """Return one thing that DELETE names: a column, an element or a field."""
    if item.key is not None:
        return _set_element(scope, column, item.key, None)
    if item.field is not None:
        return _set_field(scope, column, item.field, None)
    name = column.name
    if column.type.is_multicell:

        def clear(ctx: WriteContext, row: RowMutation) -> None:
            # At T itself, not T - 1: there are no new elements to spare. The log therefore shows it at T + 1, see
            # split.py.
            put_collection(row, name, CollectionCells(tombstone=ctx.timestamp))

        return ColumnEdit(column, clear)

    def kill(ctx: WriteContext, row: RowMutation) -> None:
        put_cell(row, name, ctx.cell(None))

    return ColumnEdit(column, kill)
