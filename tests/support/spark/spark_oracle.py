"""What Spark must show, made of what the library's own stream, or the driver, gives."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from draining import changes_of

import rscylla
from rscylla.cdc.log.query import scan_cql
from rscylla.driver.session import ReadSession
from rscylla.types import Type


def log_types(session: rscylla.Session, keyspace: str, table: str) -> dict[str, Type]:
    """Return the types of a log's columns by name."""
    statement = ReadSession(session, consistency=1).prepare(scan_cql(keyspace, table), page_size=10, doing="a test")
    return {c.name: c.type for c in statement.columns}


def events_of(stream: rscylla.Stream, after: str = "") -> list[rscylla.ChangeEvent]:
    """Return all events after a cursor up to now."""
    client = stream(after, rscylla.StreamLag(seconds=0), rscylla.StreamUntil(datetime.now(UTC)))
    try:
        return changes_of(client)
    finally:
        client.close()


def plain(value: Any, type_: Type) -> Any:
    """Return a value of the library or the driver as the data source is to show it, sets and maps sorted."""
    kind, args = type_.kind, type_.args
    if value is None:
        return None
    if kind in ("list", "vector"):
        return [plain(v, args[0]) for v in value]
    if kind == "set":
        return sorted((plain(v, args[0]) for v in value), key=repr)
    if kind == "map":
        return sorted(((plain(k, args[0]), plain(v, args[1])) for k, v in value.items()), key=repr)
    if kind == "tuple":
        return {f"_{i}": plain(v, t) for i, (v, t) in enumerate(zip(value, args, strict=True), 1)}
    if kind == "udt":
        of = value if isinstance(value, dict) else value._asdict()
        return {name: plain(of[name], t) for name, t in zip(type_.fields, args, strict=True)}
    if kind in ("varint", "decimal", "inet", "uuid", "timeuuid"):
        assert isinstance(value, int | Decimal | str | UUID)
        return str(value)
    if kind == "timestamp":
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if kind == "date":
        return value.date()
    if kind == "time":
        return value.nanosecond_time
    if kind == "duration":
        return {"months": value.months, "days": value.days, "nanoseconds": value.nanoseconds}
    return value


def sorted_parts(value: Any, type_: Type) -> Any:
    """Return a value that Arrow gave, with sets and maps sorted as ``plain`` does."""
    kind, args = type_.kind, type_.args
    if value is None:
        return None
    if kind in ("list", "vector"):
        return [sorted_parts(v, args[0]) for v in value]
    if kind == "set":
        return sorted((sorted_parts(v, args[0]) for v in value), key=repr)
    if kind == "map":
        return sorted(((sorted_parts(k, args[0]), sorted_parts(v, args[1])) for k, v in value), key=repr)
    if kind in ("tuple", "udt"):
        return {name: sorted_parts(v, t) for (name, v), t in zip(value.items(), args, strict=True)}
    return value


def list_type(type_: Type) -> Type:
    """Return the type that a non-frozen list has as a whole; the log keeps it as a map."""
    return Type("list", type_.args[1:])


class ChangeOracle:
    """Makes the rows of mode ``changes`` of the library's events."""

    def __init__(self, types: dict[str, Type], keys: tuple[str, ...], lists: tuple[str, ...]) -> None:
        self._types = types
        self._keys = keys
        self._lists = lists
        self._values = tuple(n for n in types if f"cdc$deleted_{n}" in types)
        self._loose = tuple(n for n in types if f"cdc$deleted_elements_{n}" in types)

    def whole(self, name: str) -> Type:
        return list_type(self._types[name]) if name in self._lists else self._types[name]

    def expected(self, event: rscylla.ChangeEvent) -> dict[str, Any]:
        change = event.change
        cursor = rscylla.EventID.parse(event.id)
        row: dict[str, Any] = {
            "cdc_stream_id": cursor.stream_id,
            "cdc_time": str(UUID(bytes=cursor.stream_time)),
            "cdc_batch_seq_no": cursor.seq,
            "cdc_timestamp": event.timestamp,
            "cdc_sequence": cursor.position,
            "cdc_operation": change.operation.name.lower(),
            "cdc_ttl": change.ttl,
        }
        row |= {name: plain(change.key.get(name), self._types[name]) for name in self._keys}
        row["cdc_values"] = self._struct(change.values)
        row["cdc_touched"] = change.as_dict()["changed"]
        row["cdc_deleted"] = sorted(change.deleted)
        columns = change.columns
        row["cdc_added"] = {n: self._added(columns.get(n), n) for n in self._lists}
        row["cdc_removed"] = {n: self._removed(columns.get(n), n) for n in self._loose}
        row["cdc_before"] = None if change.before is None else self._struct(change.before)
        has_image = event.raw_rows()[2] is not None
        row["cdc_after"] = self._struct(change.after) if has_image and change.after is not None else None
        row["cdc_range"] = None if change.range is None else self._range(change.range)
        return row

    def _struct(self, values: Any) -> dict[str, Any]:
        return {n: plain(values.get(n), self.whole(n)) for n in self._values}

    def _added(self, column: rscylla.cdc.rows.ColumnChange | None, name: str) -> Any:
        return None if column is None or column.added is None else plain(column.added, self._types[name])

    def _removed(self, column: rscylla.cdc.rows.ColumnChange | None, name: str) -> Any:
        if column is None or column.removed is None:
            return None
        if self._types[name].kind == "udt":
            return sorted(map(str, column.removed), key=repr)
        return plain(column.removed, self._types[f"cdc$deleted_elements_{name}"])

    def _range(self, bounds: rscylla.cdc.rows.KeyRange) -> dict[str, Any]:
        clustering = [n for n in self._keys if n in ("ck", "cu")]
        found = {}
        for name, bound in (("start", bounds.start), ("end", bounds.end)):
            if bound is None:
                found[name] = None
                continue
            key = {n: plain(bound.key.get(n), self._types[n]) for n in clustering}
            found[name] = {**key, "inclusive": bound.inclusive}
        return found

    def seen(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row of Spark's with sets and maps sorted."""
        out = dict(row)
        for name in ("cdc_values", "cdc_before", "cdc_after"):
            if row[name] is not None:
                out[name] = {n: sorted_parts(v, self.whole(n)) for n, v in row[name].items()}
        out["cdc_added"] = {n: sorted_parts(v, self._types[n]) for n, v in row["cdc_added"].items()}
        out["cdc_removed"] = {n: None if v is None else sorted(v, key=repr) for n, v in row["cdc_removed"].items()}
        return out


def shown(value: Any) -> Any:
    """Return *value* as text that is equal for equal values: moments in UTC, whatever their zone is called."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [shown(v) for v in value]
    return repr(value)
