"""Schema changes of the simulated table, and the values that its columns must then have.

Columns of many types come, go and come again, their user-defined type gets fields and new names for them, columns of
the key are renamed. What a write puts into a column follows from its number, so each event can be compared value by
value. The oracle knows when a value may be gone: its column was dropped since. Nothing else may be missing, and nothing
may be there that was not written.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs

from rscylla.embedded import CqlError

__all__ = ["SCHEMA_KINDS", "Schema"]

SCHEMA_KINDS = (
    *("columns_added", "columns_dropped", "columns_again", "fields_added", "fields_renamed", "keys_renamed"),
    *("values_checked", "values_gone", "grown_values"),
)
"""What has to happen at least once over many seeds."""

DROP_AHEAD_US = 5_000_000
"""A log hides what was written until this long after a column was dropped."""

MOST_FIELDS = 6

TYPES = {
    "note": ("int", "text", "bigint"),
    "tags": ("list<int>", "int", "frozen<set<int>>"),
    "marks": ("set<int>", "frozen<list<int>>", "text"),
    "home": ("addr", "frozen<addr>", "set<int>"),
    "work": ("frozen<addr>", "addr"),
    "places": ("list<frozen<addr>>",),
    "people": ("map<text, frozen<addr>>",),
    "pair": ("frozen<tuple<int, frozen<addr>>>", "int"),
}
"""By column, the types that it has in turn: another one each time that it is added again."""


class Address(list[int | None]):
    """The fields of an address as they were written, by their places in the type."""


@attrs.define
class _Column:
    """A column by its name. ``drops``: how often it was dropped; ``dropped_us``: when that was last."""

    types: tuple[str, ...]
    is_there: bool = False
    drops: int = 0
    dropped_us: int = 0

    @property
    def type(self) -> str:
        return self.types[self.drops % len(self.types)]


@attrs.frozen
class _Wrote:
    """What one write put into one column, and the column's type then."""

    type: str
    value: Any
    time_us: int
    drops: int


@attrs.define
class Schema:
    """The columns beside ``n`` and ``s``, and the names of the key. ``counts`` is added to."""

    keyspace: str
    table: str
    execute: Callable[..., Any]
    now_us: Callable[[], int]
    dice: random.Random
    counts: Counter[str]
    pk: str = "pk"
    ck: str = "ck"
    fields: list[list[str]] = attrs.Factory(lambda: [["f0"]])  # by place in the type, all names it had
    columns: dict[str, _Column] = attrs.Factory(lambda: {name: _Column(types) for name, types in TYPES.items()})
    written: dict[int, dict[str, _Wrote]] = attrs.Factory(dict)
    fresh: int = 0

    def create(self) -> None:
        self.execute(f"CREATE TYPE {self.keyspace}.addr (f0 int)")
        self._create_table()

    def recreate(self) -> None:
        """Drop the table and create it again, without its columns of many types."""
        self.execute(f"DROP TABLE {self.table}")
        for column in self.columns.values():
            if column.is_there:
                column.is_there, column.drops, column.dropped_us = False, column.drops + 1, self.now_us()
        self._create_table()

    def _create_table(self) -> None:
        self.execute(
            f"CREATE TABLE {self.table} ({self.pk} int, {self.ck} int, n int, s text static, "
            f"PRIMARY KEY ({self.pk}, {self.ck})) WITH cdc = {{'enabled': true}}"
        )

    # ------------------------------------------------------------ changes

    def alter(self) -> None:
        """Change the columns, or the type of some of them."""
        there = [name for name, column in self.columns.items() if column.is_there]
        absent = [name for name in TYPES if name not in there]
        steps: list[Callable[[], None]] = []
        steps += [lambda: self._add(self.dice.choice(absent))] * (2 if absent else 0)
        steps += [lambda: self._drop(self.dice.choice(there))] * bool(there)
        steps += [self._add_field] * (2 if len(self.fields) < MOST_FIELDS else 0)
        steps += [self._rename_field]
        self.dice.choice(steps)()

    def _add(self, name: str) -> None:
        column = self.columns[name]
        try:
            self.execute(f"ALTER TABLE {self.table} ADD {name} {column.type}")
        except CqlError as e:
            if "dropped too recently" not in str(e):
                raise
            return
        column.is_there = True
        self._happened("columns_again" if column.drops else "columns_added")

    def _drop(self, name: str) -> None:
        self.execute(f"ALTER TABLE {self.table} DROP {name}")
        column = self.columns[name]
        column.is_there, column.drops, column.dropped_us = False, column.drops + 1, self.now_us()
        self._happened("columns_dropped")

    def _add_field(self) -> None:
        name = f"f{len(self.fields)}"
        self.execute(f"ALTER TYPE {self.keyspace}.addr ADD {name} int")
        self.fields.append([name])
        self._happened("fields_added")

    def _rename_field(self) -> None:
        place = self.dice.randrange(len(self.fields))
        names = self.fields[place]
        self.execute(f"ALTER TYPE {self.keyspace}.addr RENAME {names[-1]} TO f{place}r{len(names)}")
        names.append(f"f{place}r{len(names)}")
        self._happened("fields_renamed")

    def rename_key(self) -> None:
        """Rename a column of the key. What was not read before cannot be read any more."""
        self.fresh += 1
        if self.dice.random() < 0.5:
            old, self.pk = self.pk, f"pk{self.fresh}"
            new = self.pk
        else:
            old, self.ck = self.ck, f"ck{self.fresh}"
            new = self.ck
        self.execute(f"ALTER TABLE {self.table} RENAME {old} TO {new}")
        self._happened("keys_renamed")

    def _happened(self, kind: str) -> None:
        self.counts.update({kind: 1, "alters": 1})

    # ------------------------------------------------------------ writes

    def insert(self, n: int, time_us: int) -> tuple[str, str]:
        """Return names and values, each with a comma before it, for an insert of the number *n*."""
        found = {name: self._value(name, n) for name in self._some()}
        self._note(n, time_us, found)
        return "".join(f", {name}" for name in found), "".join(f", {self._text(value)}" for value in found.values())

    def update(self, n: int, time_us: int) -> str:
        """Return assignments, each with a comma before it, that edit parts of columns."""
        texts: list[str] = []
        found: dict[str, Any] = {}
        for name in self._some():
            if self.columns[name].type.startswith(("list<int", "set", "map")):
                found[name] = self._value(name, n)
                texts.append(f", {name} = {name} + {self._text(found[name])}")
            elif self.columns[name].type == "addr":
                place = self.dice.randrange(len(self.fields))
                found[name] = Address([None] * place + [n])
                texts.append(f", {name}.{self.fields[place][-1]} = {n}")
        self._note(n, time_us, found)
        return "".join(texts)

    def _some(self) -> list[str]:
        return [name for name, column in self.columns.items() if column.is_there and self.dice.random() < 0.7]

    def _note(self, n: int, time_us: int, found: dict[str, Any]) -> None:
        columns = self.columns
        self.written[n] = {
            name: _Wrote(columns[name].type, value, time_us, columns[name].drops) for name, value in found.items()
        }

    def _value(self, name: str, n: int) -> Any:
        address = Address([n + place for place in range(len(self.fields))])
        values: dict[str, Any] = {
            "int": n,
            "bigint": n,
            "text": str(n),
            "list<int>": [n, n + 1],
            "frozen<list<int>>": [n, n + 1],
            "set<int>": {n},
            "frozen<set<int>>": {n},
            "addr": address,
            "frozen<addr>": address,
            "list<frozen<addr>>": [address, Address([n])],
            "map<text, frozen<addr>>": {f"p{n}": address},
            "frozen<tuple<int, frozen<addr>>>": (n, address),
        }
        return values[self.columns[name].type]

    def _text(self, value: Any) -> str:
        if isinstance(value, Address):
            pairs = zip(self.fields, value, strict=False)
            return "{" + ", ".join(f"{names[-1]}: {self._text(v)}" for names, v in pairs) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(self._text, value)) + "]"
        if isinstance(value, tuple):
            return "(" + ", ".join(map(self._text, value)) + ")"
        if isinstance(value, set):
            return "{" + ", ".join(map(self._text, value)) + "}"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self._text(k)}: {self._text(v)}" for k, v in value.items()) + "}"
        return f"'{value}'" if isinstance(value, str) else str(value)

    # ------------------------------------------------------------ the oracle

    def check(self, change: Any, n: int | None) -> None:
        """Compare all that *change*, which wrote the number *n*, says of its columns."""
        wrote = self.written.get(n, {}) if n is not None else {}
        values = {name: value for name, value in change.values.items() if name not in ("n", "s")}
        assert values.keys() <= wrote.keys(), f"{n} did not write {values.keys() - wrote.keys()}"
        for name, what in wrote.items():
            column = self.columns[name]
            if name not in values:
                may_be_gone = column.drops > what.drops or what.time_us <= column.dropped_us + DROP_AHEAD_US
                assert may_be_gone, f"{n}: the value of {name} is missing"
                self.counts["values_gone"] += 1
                continue
            assert self._same(values[name], what.value), f"{n}: {name} is {values[name]} and was {what.value}"
            assert change.cql_types[name] == what.type, f"{n}: {name} is no {change.cql_types[name]}"
            self.counts["values_checked"] += 1

    def _same(self, value: Any, wrote: Any) -> bool:
        if isinstance(wrote, Address):
            return self._same_address(value, wrote)
        if isinstance(wrote, list | tuple):
            same_length = type(value) is type(wrote) and len(value) == len(wrote)
            return same_length and all(self._same(v, w) for v, w in zip(value, wrote, strict=True))
        if isinstance(wrote, dict):
            return value.keys() == wrote.keys() and all(self._same(value[k], w) for k, w in wrote.items())
        return bool(value == wrote)

    def _same_address(self, value: Any, wrote: Address) -> bool:
        if not isinstance(value, dict) or not len(wrote) <= len(value) <= len(self.fields):
            return False
        self.counts["grown_values"] += len(value) > len(wrote)
        fields = [*wrote, *[None] * (len(value) - len(wrote))]
        return list(value.values()) == fields and all(
            name in names for name, names in zip(value, self.fields, strict=False)
        )
