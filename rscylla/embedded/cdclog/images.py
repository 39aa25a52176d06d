"""Preimages and postimages: the state of the written rows before and after each record of a mutation.

The state is read once, before the write, and then follows the records as they are logged: write timestamps are not
looked at. Source: Scylla ``cdc/log.cc`` (transformer, process_change_visitor).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from ..schema.tables import CdcOptions, Column
from ..storage.mutation import Cell, CollectionCells, Key, PartitionMutation, PlainRow, columns_of
from ..storage.positions import Position, bound_end, bound_start
from ..types import TIMEUUID, CqlType, ListType, MapType, SetType, UdtType
from .split import Change, Record

__all__ = ["Encoder", "ImageReader", "ImageState", "element_encoder"]

# A non-frozen collection or UDT by encoded element key (a UDT's field position as 2 bytes), else the encoded value.
ImageValue = bytes | Mapping[bytes, bytes]


# Makes the log's form of a column from its elements.
Encoder = Callable[[Mapping[bytes, bytes]], bytes]


class ImageReader(Protocol):
    """Reads one base partition as it is before the write. Called while the log rows are made, in the same thread.

    A row comes as its non-null columns of that kind by name: encoded values, or for a non-frozen collection or UDT a
    mapping from encoded element key to encoded value (``b""`` for set elements).
    """

    def row(self, key: Key) -> Mapping[str, ImageValue] | None:
        """Return the regular columns of the row with this clustering key; None if there is no live row."""
        ...

    def static_row(self) -> Mapping[str, ImageValue] | None:
        """Return the static columns; None or empty if none has a value."""
        ...


_State = dict[str, Any]  # bytes, dict of elements, or None; what is not there is null


class ImageState:
    """What is known of the partition's rows while its records are logged. Made for one mutation, used once.

    ``encoders`` make the log's form of columns that are non-frozen collections or UDTs. ``shows_deleted``: the delete
    of a partition, which is one row, shows it.
    """

    def __init__(
        self,
        mutation: PartitionMutation,
        options: CdcOptions,
        reader: ImageReader,
        position: Callable[[Key], Position],
        encoders: Mapping[str, Encoder],
        *,
        shows_deleted: bool,
    ) -> None:
        self._encoders = encoders
        self._shows_deleted = shows_deleted
        self._table = mutation.table
        self._position = position
        self._options = options
        self._rows: dict[Key, _State] = {}
        self._static: _State = {}
        self._static_written = False
        self._load(mutation, reader)

    # -------------------------------------------------------- reading

    def _load(self, mutation: PartitionMutation, reader: ImageReader) -> None:
        options = self._options
        everything = options.postimage or options.preimage == "full"
        names: Iterable[str] | None
        if mutation.static_row is not None and mutation.static_row.cells:
            names = None if everything else mutation.static_row.cells
            self._static = _chosen(reader.static_row() or {}, names)
        keys: Iterable[Key] = mutation.rows
        # A row delete shows the whole row, and there is one read for all rows.
        everything = everything or any(row.tombstone is not None for row in mutation.rows.values())
        if mutation.partition_tombstone is not None and self._shows_deleted:
            keys, everything = ((),), True
        # The read names the columns of the first row only; what other rows touch beyond them then looks null.
        names = None
        if mutation.rows and not everything:
            names = columns_of(mutation.rows[min(mutation.rows, key=self._position)])
        for key in keys:
            found = reader.row(key)
            if found is not None:
                self._rows[key] = _chosen(found, names)

    # -------------------------------------------------------- images

    def preimages(self, record: Record) -> list[tuple[Key | None, dict[str, bytes | None]]]:
        """Return (clustering key, columns) for each preimage row, key None for the static row.

        A column that is None was null; it is to be marked as deleted.
        """
        full = self._options.preimage == "full"
        static, rows = self._touched(record)
        out: list[tuple[Key | None, dict[str, bytes | None]]] = []
        # After a record of this mutation has written them, later ones have a preimage even if nothing is set.
        if static and (self._static or self._static_written):
            names = None if full else static
            out.append((None, self._image(self._static, self._table.static_columns, names)))
        for key in self._sorted(rows):
            state = self._rows.get(key)
            if state is not None:
                names = None if full else rows[key]
                out.append((key, self._image(state, self._table.regular_columns, names)))
        return out

    def postimages(self, record: Record) -> list[tuple[Key | None, dict[str, bytes | None]]]:
        """Return (clustering key, columns) for each postimage row after ``follow``; a column that is None is null."""
        static, rows = self._touched(record)
        out: list[tuple[Key | None, dict[str, bytes | None]]] = []
        if static:
            out.append((None, self._image(self._static, self._table.static_columns, None)))
        for key in self._sorted(rows):
            state = self._rows.get(key)
            if state is not None:
                out.append((key, self._image(state, self._table.regular_columns, None)))
        return out

    def _sorted(self, keys: Collection[Key]) -> Iterable[Key]:
        return sorted(keys, key=self._position) if len(keys) > 1 else keys

    def _every(self) -> set[str]:
        return {column.name for column in self._table.regular_columns}

    def _touched(self, record: Record) -> tuple[set[str], dict[Key, set[str]]]:
        """Return the static columns written, and by clustering key the columns written (all, for a deleted row)."""
        static: set[str] = set()
        rows: dict[Key, set[str]] = {}
        for change in record.changes:
            if change.row is not None:
                names = static if change.kind == "static" else rows.setdefault(change.key, set())
                names.update(columns_of(change.row))
            elif change.kind == "row_delete":
                rows.setdefault(change.key, set()).update(self._every())
            elif change.kind == "partition_delete" and self._shows_deleted:
                rows[()] = self._every()
        return static, rows

    def _image(self, state: _State, columns: tuple[Column, ...], names: set[str] | None) -> dict[str, bytes | None]:
        out: dict[str, bytes | None] = {}
        for column in columns:
            if names is None or column.name in names:
                value = state.get(column.name)
                out[column.name] = self._encoders[column.name](value) if isinstance(value, dict) else value
        return out

    # -------------------------------------------------------- following the records

    def follow(self, change: Change) -> None:
        """Take in what a logged change did."""
        if change.row is not None:
            if change.kind == "static":
                self._static_written = True
                state = self._static
            else:
                # A row that was not there begins with this change.
                state = self._rows.setdefault(change.key, {})
            if isinstance(change.row, PlainRow) and change.row.shape is not None:
                state.update(zip(change.row.shape[1], change.row.values, strict=True))
                return
            for name, cell in change.row.cells.items():
                if isinstance(cell, Cell):
                    state[name] = cell.value
                elif cell.tombstone is not None or cell.cells:
                    state[name] = _merged(self._table.by_name[name].type, state.get(name), cell)
        elif change.kind == "row_delete":
            # It has no postimage then, and no preimage in later records.
            self._rows.pop(change.key, None)
        elif change.range is not None:
            start = bound_start(change.range.start, self._position)
            end = bound_end(change.range.end, self._position)
            self._rows = {k: s for k, s in self._rows.items() if not start <= self._position(k) < end}
        else:
            # Static columns are kept: Scylla forgets the clustering rows alone.
            self._rows.clear()


def _chosen(found: Mapping[str, ImageValue], names: Iterable[str] | None) -> _State:
    """Return a copy with the named columns (None is all); an empty collection is null."""
    wanted = found if names is None else {name: found[name] for name in names if name in found}
    return {name: value if isinstance(value, bytes) else dict(value) for name, value in wanted.items() if value != {}}


def _merged(cql_type: CqlType, before: dict[bytes, bytes] | None, edit: CollectionCells) -> dict[bytes, bytes] | None:
    """Return a collection after an edit: None for null, which is not the same as empty.

    Removing the last element leaves an empty value; clearing leaves null. A UDT that was touched is never null.
    """
    known = None if edit.tombstone is not None else before
    gone = {key for key, cell in edit.cells.items() if cell.value is None}
    added = {key: cell.value for key, cell in edit.cells.items() if cell.value is not None}
    if not added and not isinstance(cql_type, UdtType) and (known is None or not gone):
        return None
    return {key: value for key, value in {**(known or {}), **added}.items() if key not in gone}


def element_encoder(cql_type: CqlType) -> Encoder:
    """Return what makes the log's form of a non-frozen value: a frozen set, map (also for a list) or UDT."""
    if isinstance(cql_type, SetType):
        return cql_type.join
    if isinstance(cql_type, MapType | ListType):
        join = cql_type.join if isinstance(cql_type, MapType) else MapType(TIMEUUID, cql_type.element, frozen=True).join
        return lambda elements: join(elements.items())
    if isinstance(cql_type, UdtType):
        fields = [at.to_bytes(2, "big") for at in range(len(cql_type.field_types))]
        return lambda elements: cql_type.join([elements.get(field) for field in fields])
    raise TypeError(f"{cql_type.name} has no elements")
