"""What the columns of a page mean: examined once, so that each row costs almost nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from ..._decoder import twin
from ..._timeuuid import datetime_of, ticks_of, ticks_to_us
from ...driver import Column, Page
from ...errors import MalformedData, MetadataError
from ...types import Decoder, Digits, Type, decoder_for, log_list, with_digits
from ..log import FIXED_COLUMNS, BaseColumn, LoggedTable, deleted_elements_of, deleted_of, logged_type

__all__ = ["PARTITION_DELETES", "Cells", "ColumnKind", "Layout", "Layouts", "ValueColumn", "larger", "moved", "united"]

Cells = tuple[bytes | None, ...]

PARTITION_DELETES = frozenset((b"\x04", b"\xfc"))
"""Operations that delete a whole partition."""

_plan_of: Callable[[Any], Any] = twin("cdc.rows.Plan", lambda _: None)

ColumnKind = Literal["value", "list", "set", "map", "udt"]
"""How a column can be written: a "value" as a whole; the others, which are not frozen, also part by part."""


@attrs.frozen
class ValueColumn:
    """A base column in the log: the indexes of its value and deletion marks in a row (-1: none), and their decoders.

    ``type`` is the type of the values that are read from the log; ``cql_type`` is the text of the type in the base
    table.
    """

    name: str
    index: int
    type: Type
    decode: Decoder
    cql_type: str
    deleted: int = -1
    elements: int = -1
    decode_elements: Decoder | None = None
    static: bool = False
    kind: ColumnKind = "value"
    decode_cells: Decoder | None = None  # of a non-frozen list: its elements by their timeuuids
    fields: tuple[str, ...] = ()

    def marked_in(self, cells: Cells) -> bool:
        """Whether the row marks the column as null or deleted."""
        return self.deleted >= 0 and cells[self.deleted] == b"\x01"

    def touched_in(self, cells: Cells) -> bool:
        """Whether the delta row changes the column."""
        if cells[self.index] is not None or self.marked_in(cells):
            return True
        return self.elements >= 0 and cells[self.elements] is not None

    def value_in(self, cells: Cells) -> Any:
        """Return the decoded value, or None.

        A non-frozen UDT without any field is null; the log has it as a UDT with only null fields.
        """
        raw = cells[self.index]
        if raw is None:
            return None
        value = self.decode(raw)
        if self.kind == "udt" and all(field is None for field in value.values()):
            return None
        return value


@attrs.frozen(eq=False)
class Layout:
    """The meaning of the columns of a page. Created once for each result metadata."""

    columns: tuple[Column, ...] = attrs.field(repr=False)
    table: LoggedTable
    stream_id: int
    time: int
    seq: int
    operation: int
    ttl: int
    end_of_batch: int
    keys: tuple[ValueColumn, ...]
    values: tuple[ValueColumn, ...]
    plan: Any = attrs.field(init=False, repr=False)
    """The same for the compiled decoder; None if it does not run."""

    @plan.default
    def _plan(self) -> Any:
        return _plan_of(self)

    @classmethod
    def of(cls, columns: tuple[Column, ...], table: LoggedTable, former: Iterable[LoggedTable] = ()) -> Layout:
        """Return the layout of a ``SELECT *`` from the log of *table*.

        The log alone is not enough: it stores a list as a map, and does not mark key columns and static columns. The
        base table supplies this, and *former* does for columns that the base table lacks or has with another type.

        Args:
            former: the table as it was known before, newest first.

        Raises:
            MetadataError: a column that every log has, or a key column, is missing.
        """
        index = {c.name: i for i, c in enumerate(columns)}
        types = {c.name: c.type for c in columns}
        tables = sorted((table, *former), key=lambda t: not _fits(columns, t))  # a table of just these columns first
        of_keys = next((t for t in tables if all(c.name in index for c in t.key)), table)
        key_names = [c.name for c in of_keys.key]
        missing = [n for n in (*FIXED_COLUMNS, *key_names) if n not in index]
        if missing:
            raise MetadataError(
                f"the log of {table.full_name} has no column {missing[0]!r}; probably because a key column was "
                "renamed; open the stream again"
            )

        def column(name: str) -> ValueColumn:
            type_, elements = types[name], deleted_elements_of(name)
            multicell = elements in types
            known = _base_column(name, type_, tables, multicell=multicell)
            is_list = multicell and known.type.kind == "list"
            value_type = log_list(type_) if is_list else type_
            return ValueColumn(
                name,
                index[name],
                value_type,
                decoder_for(value_type),
                known.type_text,
                deleted=index.get(deleted_of(name), -1),
                elements=index.get(elements, -1),
                decode_elements=decoder_for(types[elements]) if multicell else None,
                static=known.kind == "static",
                kind=known.type.kind if multicell else "value",  # type: ignore[arg-type]
                decode_cells=decoder_for(type_) if is_list else None,
                fields=type_.fields,
            )

        return cls(  # type: ignore[misc]
            columns,
            of_keys,
            *(index[n] for n in FIXED_COLUMNS),  # type: ignore[arg-type]
            keys=tuple(column(n) for n in key_names),
            values=tuple(column(n) for n in _value_names(columns, key_names)),
        )

    def with_digits(self, digits: Mapping[str, Digits]) -> Layout:
        """Return the layout whose columns have the types that Arrow shows as numbers; see ``types.with_digits``.

        In the partition key, only decimals of exactly their scale fit.
        """
        if not digits:
            return self
        names = {c.name for c in self.table.partition_key}

        def evolved(column: Any) -> Any:
            return attrs.evolve(column, type=with_digits(column.type, digits, exact=column.name in names))

        return attrs.evolve(
            self,
            columns=tuple(map(evolved, self.columns)),
            keys=tuple(map(evolved, self.keys)),
            values=tuple(map(evolved, self.values)),
        )

    def key_of(self, cells: Cells) -> Mapping[str, Any]:
        """Return the primary key's typed values by name; parts that are null in the log row are absent.

        Raises:
            MalformedData: a cell has no value of its type.
        """
        key = {}
        try:
            for column in self.keys:
                raw = cells[column.index]
                if raw is not None:
                    key[column.name] = column.decode(raw)
        except ValueError as e:
            raise self.malformed([cells]) from e
        return key

    def malformed(self, rows: Iterable[Cells | None]) -> MalformedData:
        """Return the error of *rows* of which a cell could not be decoded."""
        name = next((n for cells in rows if cells is not None for n in self._undecodable(cells)), "")
        return MalformedData.of_cell(self.table.full_name, name, is_log=True)

    def _undecodable(self, cells: Cells) -> Iterator[str]:
        """Yield the names of the columns that cannot be decoded."""
        for column in (*self.keys, *self.values):
            for index, decode in (
                (column.index, column.decode),
                (column.index, column.decode_cells),
                (column.elements, column.decode_elements),
            ):
                if index < 0 or decode is None or (raw := cells[index]) is None:
                    continue
                try:
                    decode(raw)
                except ValueError:
                    yield column.name

    def is_static(self, cells: Cells) -> bool:
        """Whether an image or a write concerns the static row of its partition: its clustering key is null."""
        clustering = self.keys[len(self.table.partition_key) :]
        return bool(clustering) and all(cells[c.index] is None for c in clustering)

    def lacking_values(self, cells: Cells) -> str:
        """Return the warning about an insert that may lack its values, as its row alone does not tell; empty if none.

        It has only its key, and is from before the table was last altered: the log may have had only keys then.
        """
        altered_us = self.table.altered_us
        if not altered_us or ticks_to_us(ticks_of(cells[self.time])) > altered_us:  # type: ignore[arg-type]
            return ""
        values = [c for c in self.values if not c.static]
        if not values or any(c.touched_in(cells) for c in values):
            return ""
        return (
            f"an insert of {self.table.full_name} has only its key, and is from before the table was altered at "
            f"{datetime_of(altered_us):%Y-%m-%d %H:%M:%S} UTC: if its log had only keys ('delta': 'keys') then, values "
            "of such inserts are missing"
        )

    def raw_key(self, cells: Cells) -> Cells:
        """Return the undecoded primary key, which is equal for all log rows of one base row."""
        return tuple([cells[c.index] for c in self.keys])

    def raw_partition_key(self, cells: Cells) -> Cells:
        """Return the undecoded partition key."""
        return tuple([cells[c.index] for c in self.keys[: len(self.table.partition_key)]])

    def lost_key(self, cells: Cells, renamed_us: int) -> bool:
        """Whether the row had a part of its key in a column that has been renamed since.

        The log has the key of rows written before *renamed_us* under the old name, where it can no longer be read.
        """
        partition = len(self.table.partition_key)
        if any(cells[c.index] is None for c in self.keys[:partition]):
            return True
        operation = cells[self.operation]
        if operation in PARTITION_DELETES or all(cells[c.index] is not None for c in self.keys[partition:]):
            return False
        if operation in _OF_WHOLE_KEYS:
            return True
        if ticks_to_us(ticks_of(cells[self.time])) >= renamed_us:  # type: ignore[arg-type]
            return False  # an open end of a range, or the static row
        return not any(c.static and c.touched_in(cells) for c in self.values)


_OF_WHOLE_KEYS = frozenset((b"\x02", b"\x03", b"\xfd"))
"""Operations whose rows have a whole primary key: inserts and row deletes."""


def _value_names(columns: Iterable[Column], keys: Sequence[str]) -> list[str]:
    """Return the columns of the base table that are not in its key.

    The name of a base column may itself start with cdc$; a column is a value if it has a deletion mark.
    """
    names = {c.name: None for c in columns}
    return [n for n in names if n not in FIXED_COLUMNS and n not in keys and deleted_of(n) in names]


def _base_column(name: str, type_: Type, tables: Sequence[LoggedTable], *, multicell: bool) -> BaseColumn:
    """Return the base column of a column of the log, from the first of *tables* that has it with this type.

    Args:
        multicell: the log has a column for its removed elements, so it is not frozen.
    """
    known = [c for table in tables for c in table.columns if c.name == name]
    known += [BaseColumn(name, "regular", -1, text) for table in tables for of, text in table.dropped if of == name]
    for column in known:
        if _is_logged_as(column, type_, multicell=multicell):
            return column
    # The column was dropped before the table was first read. The log does not distinguish a list from a map with
    # timeuuid keys, which is rare, so a list is assumed.
    is_list = multicell and _outline(type_)[:2] == ("map", "timeuuid")
    guess = Type("list", type_.args[1:]) if is_list else type_
    guess = attrs.evolve(guess, frozen=guess.is_multicell and not multicell)
    return BaseColumn(name, "regular", -1, str(guess), type=guess)


def _is_logged_as(column: BaseColumn, type_: Type, *, multicell: bool) -> bool:
    """Whether a base column has the type *type_* in the log."""
    return column.is_multicell == multicell and _outline(logged_type(column)) == _outline(type_)


def _outline(type_: Type) -> tuple[str, ...]:
    """Return the part of a type that stays the same when fields are added to UDTs."""
    return (type_.kind, *(t.kind for t in type_.args if type_.kind != "udt"))


class Layouts:
    """The layouts of a log's pages: each from the columns of the page, and the base table at about the same time.

    Args:
        reread: reads the base table again. Called for a page that does not fit the known table.
    """

    def __init__(self, reread: Callable[[], LoggedTable]) -> None:
        self._reread = reread
        self._known: dict[tuple[tuple[Column, ...], tuple[BaseColumn, ...], str], Layout] = {}
        self._tables: deque[LoggedTable] = deque(maxlen=_TABLES_KEPT)  # newest first
        self._last: tuple[tuple[Column, ...], LoggedTable, Layout] | None = None

    def of(self, page: Page, table: LoggedTable) -> Layout:
        """Return the layout of *page*. *table* is the table as it was last read; may read it again.

        Raises:
            MetadataError: a column that every log has, or a key column of the table, is missing.
        """
        return self.of_columns(page.columns, table)

    def of_columns(self, columns: tuple[Column, ...], table: LoggedTable) -> Layout:
        """Return the layout of a page with *columns*; as ``of``."""
        # Nearly all pages have the same objects: to compare them costs nothing, to hash them 0.1 ms.
        last = self._last
        if last is not None and last[0] is columns and last[1] is table:
            return last[2]
        given, key = table, (columns, table.columns, table.delta)
        layout = self._known.get(key)
        if layout is None:
            self._remember(table)
            if not _fits(columns, table):
                table = self._reread()
                self._remember(table)
            layout = self._known.get((columns, table.columns, table.delta))
            if layout is None:
                layout = Layout.of(columns, table, [t for t in self._tables if t.columns != table.columns])
            self._known[key] = self._known[columns, table.columns, table.delta] = layout
        self._last = columns, given, layout
        return layout

    def _remember(self, table: LoggedTable) -> None:
        if all(t.columns != table.columns for t in self._tables):
            self._tables.appendleft(table)


_TABLES_KEPT = 16
"""How many versions of the table are kept, for pages from before it was changed."""


def _fits(columns: Sequence[Column], table: LoggedTable) -> bool:
    """Return whether the log of *table*, in this version, has *columns*."""
    types = {c.name: c.type for c in columns}
    names = {c.name for c in table.columns}
    if not names <= types.keys() or not names >= set(_value_names(columns, [c.name for c in table.key])):
        return False
    return all(
        c.in_key or _is_logged_as(c, types[c.name], multicell=deleted_elements_of(c.name) in types)
        for c in table.columns
    )


def united(rows: Sequence[tuple[Layout, Cells]]) -> Layout:
    """Return a layout with the columns of all rows of a record, so that each value can be read.

    If a UDT got more fields in between, the layout has the larger type, which reads both. A column that was dropped and
    added again with an incompatible type keeps the values from before or from after that, not both.
    """
    columns: dict[str, Column] = {}
    for layout, cells in rows:
        for column, cell in zip(layout.columns, cells, strict=True):
            known = columns.setdefault(column.name, column)
            if known.type != column.type:
                both = larger(known.type, column.type)
                if both is not None:
                    columns[column.name] = attrs.evolve(known, type=both)
                elif cell is not None:
                    columns[column.name] = column
    tables = list({id(layout.table): layout.table for layout, _ in rows}.values())
    return Layout.of(tuple(columns.values()), tables[0], tables[1:])


def larger(one: Type, other: Type) -> Type | None:
    """Return the type that reads values of both, if one has the same UDTs with more fields; otherwise None."""
    if one == other:
        return one
    if one.kind != other.kind or not one.args or (one.kind != "udt" and len(one.args) != len(other.args)):
        return None
    pairs = zip(one.args, other.args, strict=False)
    args = tuple(found for a, b in pairs if (found := larger(a, b)) is not None)
    if len(args) < min(len(one.args), len(other.args)):
        return None
    longer = max(one, other, key=lambda t: len(t.args))
    return attrs.evolve(longer, args=args + longer.args[len(args) :])


def moved(row: Cells, layout: Layout, target: Layout) -> Cells:
    """Return *row* with its cells in the columns of *target*; columns that *layout* lacks are null."""
    of = {c.name: (c.type, cell) for c, cell in zip(layout.columns, row, strict=True)}

    def cell(column: Column) -> bytes | None:
        type_, raw = of.get(column.name, (column.type, None))
        return raw if raw is not None and larger(column.type, type_) == column.type else None

    return tuple([cell(c) for c in target.columns])
