"""A database of cursor tables in memory, with honest rules: timestamps, ties, tombstones, row markers, replicas.

It knows the few statements of the cursor store and fails on any other, and on values of a wrong type.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.query import dict_factory, named_tuple_factory, tuple_factory

COLUMNS = {
    "consumer": str,
    "epoch": int,
    "position": str,
    "updated": str,
    "start": str,
    "stamp": int,
    "opened": str,
    "reason": str,
    "lease": str,
    "fence": int,
}
KEYS = ("consumer", "epoch")

UPDATE = re.compile(r"UPDATE (\S+) USING TIMESTAMP \? AND TTL 0 SET (.+) WHERE consumer = \? AND epoch = \?")
INSERT = re.compile(r"INSERT INTO (\S+) \((.+)\) VALUES \((.+)\) IF NOT EXISTS")
SELECT = re.compile(
    r"SELECT (.+) FROM (\S+)( WHERE consumer = \?)?( AND epoch = \?)?( PER PARTITION LIMIT 1)?( LIMIT 1)?"
)
DELETE = re.compile(r"DELETE FROM (\S+) USING TIMESTAMP \? WHERE consumer = \? AND epoch < \?")
SCHEMA = re.compile(r"SELECT (\S+) FROM system_schema\.(columns|keyspaces) WHERE (.+)")
CREATE = re.compile(r"CREATE TABLE IF NOT EXISTS (\S+) \(\n(.*)\n\)\nWITH (.*)", re.DOTALL)

MARKER = "row marker"


@attrs.frozen
class Mutation:
    """Cells of one row, each written at *timestamp*; or, without an epoch, the deletion of a partition.

    ``below`` limits a deletion to the epochs under it.
    """

    consumer: str
    epoch: int | None
    timestamp: int
    cells: dict[str, Any]
    below: int | None = None


class Replica:
    """Rows as one node has them. Mutations may arrive in any order and repeatedly."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, int], dict[str, tuple[int, bytes, Any]]] = {}
        self._tombstones: dict[str, list[Mutation]] = {}

    def apply(self, mutation: Mutation) -> None:
        if mutation.epoch is None:
            self._tombstones.setdefault(mutation.consumer, []).append(mutation)
            return
        row = self._cells.setdefault((mutation.consumer, mutation.epoch), {})
        for column, value in mutation.cells.items():
            cell = mutation.timestamp, _bytes(value), value
            if column not in row or cell[:2] > row[column][:2]:  # equal timestamps: the larger bytes
                row[column] = cell

    def rows(self, consumer: str | None = None) -> list[dict[str, Any]]:
        """Return live rows, partition by partition, the highest epoch first."""
        found = []
        known = [key for key in self._cells if consumer in (None, key[0])]
        for name, epoch in sorted(known, key=lambda key: (hash(key[0]), -key[1])):
            covering = [d for d in self._tombstones.get(name, []) if d.below is None or epoch < d.below]
            deleted_at = max((d.timestamp for d in covering), default=-1)
            live = {c: v for c, (t, _, v) in self._cells[name, epoch].items() if t > deleted_at}
            if live:
                found.append({**dict.fromkeys(COLUMNS), **live, "consumer": name, "epoch": epoch})
        return found


class FakeScylla:
    """A database that sessions share. ``mutations`` is all that was ever written, in order."""

    def __init__(self, keyspaces: Iterable[str] = ("shop",)) -> None:
        self.keyspaces = set(keyspaces)
        self.tables: dict[str, Replica] = {}
        self.mutations: list[Mutation] = []
        self.statements: list[str] = []
        self.levels: set[tuple[str, int, int | None]] = set()
        self.lock = threading.RLock()
        self.clock = itertools.count(1_795_255_200_000_000)
        self.faults: list[tuple[str, str, Exception]] = []
        self.before: Callable[[str], None] = lambda text: None

    def session(self, row_factory: Callable[..., Any] = named_tuple_factory) -> FakeSession:
        return FakeSession(self, row_factory)

    def fail(self, word: str, error: Exception, *, when: str = "before") -> None:
        """Raise *error* once, before or after the next statement that starts with *word* takes effect."""
        self.faults.append((word, when, error))

    def delete_partition(self, consumer: str) -> None:
        """Do what ``DELETE FROM t WHERE consumer = ...`` of an operator does."""
        for table in self.tables:
            self._write(table, Mutation(consumer, None, next(self.clock), {}))

    def count(self, word: str) -> int:
        return sum(text.startswith(word) for text in self.statements)

    def run(self, text: str, values: Sequence[Any], level: int, serial: int | None) -> tuple[list[str], list[Any]]:
        self.before(text)
        with self.lock:
            self.statements.append(text)
            self.levels.add((text.split()[0], level, serial))
            self._maybe_fail(text, "before")
            answer = self._execute(text, values)
            self._maybe_fail(text, "after")
            return answer

    def _maybe_fail(self, text: str, when: str) -> None:
        for fault in self.faults:
            if text.startswith(fault[0]) and fault[1] == when:
                self.faults.remove(fault)
                raise fault[2]

    def _execute(self, text: str, values: Sequence[Any]) -> tuple[list[str], list[Any]]:
        if match := UPDATE.fullmatch(text):
            return self._update(match, values)
        if match := INSERT.fullmatch(text):
            return self._insert(match, values)
        if match := DELETE.fullmatch(text):
            stamp, consumer, below = values
            _check(["stamp", *KEYS], values)
            self._write(match[1], Mutation(consumer, None, stamp, {}, below))
            return [], []
        if match := SCHEMA.fullmatch(text):
            return self._schema(match, values)
        if match := SELECT.fullmatch(text):
            return self._select(match, values)
        if match := CREATE.fullmatch(text):
            return self._create(match)
        raise AssertionError(f"the store sent a statement that the fake does not know: {text}")

    def table(self, name: str) -> Replica:
        if name not in self.tables:
            raise InvalidRequest(f'Error from server: code=2200 [Invalid query] message="unconfigured table {name}"')
        return self.tables[name]

    def _update(self, match: re.Match[str], values: Sequence[Any]) -> tuple[list[str], list[Any]]:
        columns = [part.removesuffix(" = ?") for part in match[2].split(", ")]
        stamp, *new, consumer, epoch = values
        _check([*columns, *KEYS], [*new, consumer, epoch])
        assert type(stamp) is int
        self._write(match[1], Mutation(consumer, epoch, stamp, dict(zip(columns, new, strict=True))))
        return [], []

    def _insert(self, match: re.Match[str], values: Sequence[Any]) -> tuple[list[str], list[Any]]:
        columns = match[2].split(", ")
        assert match[3] == ", ".join("?" * len(columns))
        _check(columns, values)
        new = {column: value for column, value in zip(columns, values, strict=True) if value is not None}
        consumer, epoch = new.pop("consumer"), new.pop("epoch")
        for row in self.table(match[1]).rows(consumer):
            if row["epoch"] == epoch:
                return ["[applied]", *row], [(False, *row.values())]
        self._write(match[1], Mutation(consumer, epoch, next(self.clock), {**new, MARKER: ""}))
        return ["[applied]"], [(True,)]

    def _select(self, match: re.Match[str], values: Sequence[Any]) -> tuple[list[str], list[Any]]:
        columns = match[1].split(", ")
        _check(columns, [None] * len(columns))
        rows = self.table(match[2]).rows(values[0] if match[3] else None)
        if match[4]:
            rows = [row for row in rows if row["epoch"] == values[1]]
        if match[5]:
            rows = [next(group) for _, group in itertools.groupby(rows, key=lambda row: row["consumer"])]
        if match[6]:
            rows = rows[:1]
        return columns, [tuple(row[column] for column in columns) for row in rows]

    def _schema(self, match: re.Match[str], values: Sequence[Any]) -> tuple[list[str], list[Any]]:
        if match[2] == "keyspaces":
            found = {values[0]} & self.keyspaces
        else:
            found = set(COLUMNS) if '"{}"."{}"'.format(*values) in self.tables else set()
        return [match[1]], [(name,) for name in found]

    def _create(self, match: re.Match[str]) -> tuple[list[str], list[Any]]:
        keyspace = match[1].split(".")[0].strip('"')
        assert keyspace in self.keyspaces
        assert "PRIMARY KEY ((consumer), epoch)" in match[2]
        assert "CLUSTERING ORDER BY (epoch DESC)" in match[3]
        self.tables.setdefault(match[1], Replica())
        return [], []

    def _write(self, table: str, mutation: Mutation) -> None:
        self.table(table).apply(mutation)
        self.mutations.append(mutation)


@attrs.define
class FakeBound:
    text: str
    values: tuple[Any, ...]
    consistency_level: int
    serial_consistency_level: int | None


@attrs.define
class FakePrepared:
    text: str
    consistency_level: int = ConsistencyLevel.ONE
    serial_consistency_level: int | None = None
    is_idempotent: bool = False

    def bind(self, values: tuple[Any, ...]) -> FakeBound:
        assert len(values) == self.text.count("?")
        assert self.is_idempotent == ("IF NOT EXISTS" not in self.text)
        return FakeBound(self.text, values, self.consistency_level, self.serial_consistency_level)


class FakeSession:
    """What the store uses of the driver's session."""

    def __init__(self, database: FakeScylla, row_factory: Callable[..., Any]) -> None:
        self._database = database
        self._row_factory = row_factory

    def prepare(self, text: str) -> FakePrepared:
        for match in (UPDATE.fullmatch(text), INSERT.fullmatch(text), DELETE.fullmatch(text)):
            if match:
                self._database.table(match[1])
        return FakePrepared(text)

    def execute(self, statement: str | FakeBound, values: tuple[Any, ...] = ()) -> Any:
        if isinstance(statement, str):
            columns, rows = self._database.run(statement, values, ConsistencyLevel.LOCAL_ONE, None)
        else:
            level, serial = statement.consistency_level, statement.serial_consistency_level
            columns, rows = self._database.run(statement.text, statement.values, level, serial)
        return iter(self._row_factory(columns, rows))


ROW_FACTORIES = (named_tuple_factory, tuple_factory, dict_factory)


def _check(columns: Sequence[str], values: Sequence[Any]) -> None:
    for column, value in zip(columns, values, strict=True):
        assert value is None or type(value) is COLUMNS[column], f"{column} got a {type(value).__name__}"


def _bytes(value: Any) -> bytes:
    return value.to_bytes(8, "big", signed=True) if isinstance(value, int) else value.encode()
