"""A change as the CQL statements that do the same once more, with its own write time and what is left of its TTL.

Pure: from a row of a DataFrame of changes, as Python values, to statements and their values. To repeat a change
twice, or changes in another order, gives the same table, because write times decide.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs

from ...cdc.pages import Type
from ...cdc.query import quote_name
from ...errors import ConfigError
from ..shape import ColumnShape, Shape

__all__ = ["Replay", "Statement", "binder_for"]

Statement = tuple[str, tuple[Any, ...]]
"""CQL with question marks, and the values for them."""

_ROW = ("row_delete", "service_row_delete")
_PARTITION = ("partition_delete", "service_partition_delete")


@attrs.frozen
class Replay:
    """Makes statements for the table *keyspace*.*table*, which has the columns of *shape*."""

    keyspace: str
    table: str
    shape: Shape

    @property
    def _name(self) -> str:
        return f"{quote_name(self.keyspace)}.{quote_name(self.table)}"

    def statements(self, change: Mapping[str, Any], now_s: int) -> list[Statement]:
        """Return what repeats *change*; nothing for images of rows.

        Args:
            change: a row of the DataFrame by column; ``cdc_timestamp`` in microseconds since the epoch.
            now_s: seconds since the epoch, from which the TTL that is left is counted; at least one second is.

        Raises:
            ConfigError: the change does not say what it did (``delta = 'keys'``), or its kind is not known.
        """
        operation = change["cdc_operation"]
        time_us = change["cdc_timestamp"]
        if operation in ("insert", "update"):
            ttl = change["cdc_ttl"] or None
            left = None if ttl is None else max(1, time_us // 1_000_000 + ttl - now_s)
            return self._write(change, time_us, left)
        if operation in _ROW and self.shape.clustering:
            return [self._delete(change, time_us, self.shape.keys)]
        if operation in _ROW or operation in _PARTITION:
            return [self._delete(change, time_us, self.shape.partition)]
        if operation.startswith("range_"):
            return [self._delete_range(change, time_us)]
        if operation in ("preimage", "postimage"):
            return []
        raise ConfigError(f"a change of {self._name} is a {operation!r}, which this rscylla cannot repeat; upgrade")

    # ------------------------------------------------------------ writes

    def _write(self, change: Mapping[str, Any], time_us: int, ttl: int | None) -> list[Statement]:
        touched, deleted = set(change["cdc_touched"] or ()), set(change["cdc_deleted"] or ())
        columns = [c for c in self.shape.values if c.name in touched]
        whole = [c for c in columns if c.form == "value"]
        values = change.get("cdc_values") or {}
        found: list[Statement] = []
        if change["cdc_operation"] == "insert":
            found.append(self._insert(change, whole, values, time_us, ttl))
        elif not touched:
            raise ConfigError(f"an update of {self._name} names no column; is the table's log one of delta = 'keys'?")
        elif whole:
            assigned = [(f"{quote_name(c.name)} = ?", (values[c.name],)) for c in whole]
            found.append(self._update(change, assigned, time_us, ttl))
        for column in columns:
            if column.form != "value":
                edits = _edits(column, change, marked=column.name in deleted)
                found += [self._update(change, [each], time_us, ttl) for each in edits]
        return found

    def _insert(
        self,
        change: Mapping[str, Any],
        whole: Sequence[ColumnShape],
        values: Mapping[str, Any],
        time_us: int,
        ttl: int | None,
    ) -> Statement:
        columns = [*self.shape.keys, *whole]
        names = ", ".join(quote_name(c.name) for c in columns)
        marks = ", ".join("?" for _ in columns)
        using, bound = _using(time_us, ttl)
        given = [change[c.name] for c in self.shape.keys] + [values[c.name] for c in whole]
        return f"INSERT INTO {self._name} ({names}) VALUES ({marks}) USING {using}", (*given, *bound)

    def _update(
        self, change: Mapping[str, Any], assigned: Sequence[tuple[str, tuple[Any, ...]]], time_us: int, ttl: int | None
    ) -> Statement:
        using, bound = _using(time_us, ttl)
        static = self.shape.clustering and all(change[c.name] is None for c in self.shape.clustering)
        where, key = self._where(change, self.shape.partition if static else self.shape.keys)
        sets = ", ".join(text for text, _ in assigned)
        given = [value for _, values in assigned for value in values]
        return f"UPDATE {self._name} USING {using} SET {sets} WHERE {where}", (*bound, *given, *key)

    # ------------------------------------------------------------ deletes

    def _delete(self, change: Mapping[str, Any], time_us: int, columns: Sequence[ColumnShape]) -> Statement:
        where, key = self._where(change, columns)
        return f"DELETE FROM {self._name} USING TIMESTAMP ? WHERE {where}", (time_us, *key)

    def _delete_range(self, change: Mapping[str, Any], time_us: int) -> Statement:
        ends = change["cdc_range"]
        if ends["start"] is None or ends["end"] is None:
            raise ConfigError(f"a range delete of {self._name} has lost one end, because its record was expiring")
        where, bound = self._where(change, self.shape.partition)
        given = list(bound)
        for end, signs in ((ends["start"], (">=", ">")), (ends["end"], ("<=", "<"))):
            named = [c for c in self.shape.clustering if end[c.name] is not None]
            if named:
                names = ", ".join(quote_name(c.name) for c in named)
                sign = signs[0] if end["inclusive"] else signs[1]
                marks = ", ".join("?" for _ in named)
                # Compared in the order of the clustering key, whatever of it is descending.
                where += f" AND ({names}) {sign} SCYLLA_CLUSTERING_BOUND ({marks})"
                given += [end[c.name] for c in named]
        return f"DELETE FROM {self._name} USING TIMESTAMP ? WHERE {where}", (time_us, *given)

    def _where(self, change: Mapping[str, Any], columns: Sequence[ColumnShape]) -> tuple[str, list[Any]]:
        return " AND ".join(f"{quote_name(c.name)} = ?" for c in columns), [change[c.name] for c in columns]


def _using(time_us: int, ttl: int | None) -> tuple[str, tuple[int, ...]]:
    return ("TIMESTAMP ?", (time_us,)) if ttl is None else ("TIMESTAMP ? AND TTL ?", (time_us, ttl))


def _edits(column: ColumnShape, change: Mapping[str, Any], *, marked: bool) -> list[tuple[str, tuple[Any, ...]]]:
    """Return what was done to a column that is not frozen, as assignments that each go into a statement of its own."""
    name = quote_name(column.name)
    written = (change.get("cdc_values") or {}).get(column.name)
    removed = (change.get("cdc_removed") or {}).get(column.name)
    if column.form == "list":
        cell = f"{name}[SCYLLA_TIMEUUID_LIST_INDEX(?)] = ?"
        added = (change.get("cdc_added") or {}).get(column.name)
        found: list[tuple[str, tuple[Any, ...]]] = [(f"{name} = ?", (None,))] if marked else []
        found += [(cell, (uuid.UUID(key), value)) for key, value in added or ()]
        return found + [(cell, (uuid.UUID(key), None)) for key in removed or ()]
    if marked:
        found = [(f"{name} = ?", (written,))]
    elif column.form == "udt":
        found = [(f"{name}.{quote_name(f)} = ?", (v,)) for f, v in (written or {}).items() if v is not None]
    else:
        found = [(f"{name} = {name} + ?", (written,))] if written else []
    if column.form == "udt":
        return found + [(f"{name}.{quote_name(field)} = ?", (None,)) for field in removed or ()]
    return found + ([(f"{name} = {name} - ?", (removed,))] if removed else [])


# ---------------------------------------------------------------- values


@attrs.frozen
class _Duration:
    """A duration in the form that the driver takes."""

    months: int
    days: int
    nanoseconds: int


def binder_for(type_: Type) -> Callable[[Any], Any]:
    """Return the function from a value as Arrow gives it to one that the driver takes for the CQL type."""
    convert = _converter(type_)
    return lambda value: None if value is None else convert(value)


def _converter(type_: Type) -> Callable[[Any], Any]:
    parts = [binder_for(t) for t in type_.args]
    match type_.kind:
        case "uuid" | "timeuuid":
            return lambda value: value if isinstance(value, uuid.UUID) else uuid.UUID(value)
        case "varint":
            return int
        case "decimal":
            return Decimal
        case "duration":
            return lambda value: _Duration(**value)
        case "list" | "vector":
            return lambda value: [parts[0](v) for v in value]
        case "set":
            return lambda value: _set(map(parts[0], value))
        case "map":
            return lambda value: {_hashable(parts[0](k)): parts[1](v) for k, v in value}
        case "tuple" | "udt":
            return lambda value: tuple(p(v) for p, v in zip(parts, value.values(), strict=True))
    return lambda value: value


def _set(elements: Any) -> Any:
    return {_hashable(e) for e in elements}


def _hashable(value: Any) -> Any:
    """Return lists and sets as what can be an element or key; the driver takes any sequence for them."""
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return frozenset(value) if isinstance(value, set) else value
