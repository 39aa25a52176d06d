"""The read models of orders in Scylla: one row an order, its orders of a customer, and those in a state.

Each write carries the version of its event as its timestamp. So a row that was written late, by a request that timed
out or by a process that was thought dead, never replaces a newer one: in a partition of Scylla the higher timestamp
wins, whoever comes last. The row of the order is written last; what has it, has the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from typing import Any
from zlib import crc32

import attrs
import cassandra
from cassandra.cluster import NoHostAvailable

import rscylla
from rscylla.eventsourcing import AggregateID, Envelope

from .domain.orders import NAME, OrderEvent, OrderItem, OrderStatus
from .views import OrderView, advance

__all__ = ["OrderProjection", "OrderTables", "is_outage"]

BUCKETS = 4
"""Partitions of each state. A single one would take the writes of all orders; the readers ask all of them."""

_COLUMNS = tuple(field.name for field in attrs.fields(OrderView))
_TYPES = {
    "items": "text",
    "total": "bigint",
    "paid": "bigint",
    "version": "bigint",
    **dict.fromkeys(("placed_at", "updated_at", "payment_due_at"), "timestamp"),
}

_KINDS = {
    "order_views": "PRIMARY KEY (order_id)",
    "orders_by_customer": (
        "PRIMARY KEY ((customer_id), placed_at, order_id)) WITH CLUSTERING ORDER BY (placed_at DESC, order_id ASC"
    ),
    "orders_by_status": (
        "PRIMARY KEY ((status, bucket), placed_at, order_id)) WITH CLUSTERING ORDER BY (placed_at DESC, order_id ASC"
    ),
}
"""The tables of a build: the row of an order, and the same row under the keys by which people look for it."""


def is_outage(error: Exception) -> bool:
    """Return whether *error* says that the cluster is down or slow, so that the next event would fail as well."""
    return isinstance(
        error,
        NoHostAvailable
        | cassandra.OperationTimedOut
        | cassandra.Unavailable
        | cassandra.Timeout
        | rscylla.ConnectionFailed
        | rscylla.QueryTimeout,
    )


class OrderProjection:
    """The read model of orders in all of its builds; a ``Projection``. Thread-safe.

    Queries read the active build. While it is made again, both builds have tables of their own.
    """

    name = "orders"

    def __init__(self, session: rscylla.Session, keyspace: str) -> None:
        self._session = session
        self._keyspace = keyspace
        self._builds: dict[int, OrderTables] = {}

    def tables(self, build: int) -> OrderTables:
        """Return the tables of *build*."""
        return self._builds.setdefault(build, OrderTables(self._session, self._keyspace, build))

    def prepare(self, build: int, /) -> None:
        self.tables(build).create()

    def version(self, build: int, aggregate: AggregateID, /) -> int:
        view = self.tables(build).find(aggregate.id) if aggregate.type == NAME else None
        return 0 if view is None else view.version

    def apply(self, build: int, envelope: Envelope[Any], /) -> None:
        if envelope.aggregate.type == NAME:  # a scan comes to customers, too
            self.tables(build).apply(envelope)

    def drop(self, build: int, /) -> None:
        self.tables(build).drop()
        self._builds.pop(build, None)


class OrderTables:
    """The tables of one build of the read model. Thread-safe."""

    def __init__(self, session: rscylla.Session, keyspace: str, build: int) -> None:
        self._session = session
        self._names = {kind: f'"{keyspace}"."{kind}_{build}"' for kind in _KINDS}
        self._statements: dict[str, Any] = {}

    def create(self) -> None:
        """Create the tables where they do not exist."""
        columns = ", ".join(f"{name} {_TYPES.get(name, 'text')}" for name in _COLUMNS)
        for kind, keys in _KINDS.items():
            extra = "bucket int, " if kind == "orders_by_status" else ""
            self._session.execute(f"CREATE TABLE IF NOT EXISTS {self._names[kind]} ({extra}{columns}, {keys})")

    def drop(self) -> None:
        """Drop the tables, once nobody reads them."""
        for name in self._names.values():
            self._session.execute(f"DROP TABLE IF EXISTS {name}")

    def apply(self, envelope: Envelope[OrderEvent]) -> None:
        """Bring the tables to the event, which is the next one of its order; the same event again changes nothing."""
        before = self.find(envelope.aggregate.id)
        if before is not None and before.version >= envelope.version:
            return
        after = advance(before, envelope)
        writes = [self._upsert("orders_by_customer", after), self._upsert("orders_by_status", after)]
        if before is not None and before.status is not after.status:
            writes.append(
                self._session.execute_async(
                    self._statement(
                        f"DELETE FROM {self._names['orders_by_status']} USING TIMESTAMP ? "
                        "WHERE status = ? AND bucket = ? AND placed_at = ? AND order_id = ?"
                    ),
                    (after.version, before.status, _bucket(after.order_id), before.placed_at, after.order_id),
                )
            )
        for write in writes:
            write.result()
        self._upsert("order_views", after).result()

    def _upsert(self, kind: str, view: OrderView) -> Any:
        names, values = _COLUMNS, _values(view)
        if kind == "orders_by_status":
            names, values = ("bucket", *names), (_bucket(view.order_id), *values)
        marks = ", ".join("?" * len(names))
        text = f"INSERT INTO {self._names[kind]} ({', '.join(names)}) VALUES ({marks}) USING TIMESTAMP ?"
        return self._session.execute_async(self._statement(text), (*values, view.version))

    # ------------------------------------------------------------ queries

    def find(self, order_id: str) -> OrderView | None:
        """Return the order; None if the read model has none of this id."""
        text = f"SELECT {', '.join(_COLUMNS)} FROM {self._names['order_views']} WHERE order_id = ?"
        for row in self._session.execute(self._statement(text), (order_id,)):
            return _view(row)
        return None

    def of_customer(self, customer_id: str, limit: int) -> Sequence[OrderView]:
        """Return the newest orders of a customer."""
        text = f"SELECT {', '.join(_COLUMNS)} FROM {self._names['orders_by_customer']} WHERE customer_id = ? LIMIT ?"
        return [_view(row) for row in self._session.execute(self._statement(text), (customer_id, limit))]

    def in_states(self, states: Iterable[OrderStatus], limit: int) -> Sequence[OrderView]:
        """Return the newest orders that are in one of *states*."""
        text = (
            f"SELECT {', '.join(_COLUMNS)} FROM {self._names['orders_by_status']} "
            "WHERE status = ? AND bucket = ? LIMIT ?"
        )
        statement = self._statement(text)
        asked = [
            self._session.execute_async(statement, (status, bucket, limit))
            for status in states
            for bucket in range(BUCKETS)
        ]
        parts: list[Iterator[OrderView]] = [map(_view, one.result()) for one in asked]
        # A move between two states is two writes, and a reader may come between them: the later version is true.
        newest: dict[str, OrderView] = {}
        for view in merge(*parts, key=lambda view: view.placed_at, reverse=True):
            known = newest.get(view.order_id)
            if known is None or known.version < view.version:
                newest[view.order_id] = view
        return list(islice(newest.values(), limit))

    def _statement(self, text: str) -> Any:
        statement = self._statements.get(text)
        if statement is None:
            statement = self._statements[text] = self._session.prepare(text)
            statement.consistency_level = cassandra.ConsistencyLevel.LOCAL_QUORUM
            statement.is_idempotent = True
        return statement


def _bucket(order_id: str) -> int:
    return crc32(order_id.encode()) % BUCKETS


def _values(view: OrderView) -> tuple[Any, ...]:
    found = attrs.asdict(view, recurse=False)
    items = json.dumps([attrs.asdict(item) for item in view.items])
    return tuple(items if name == "items" else found[name] for name in _COLUMNS)


def _view(row: Any) -> OrderView:
    values = {name: getattr(row, name) for name in _COLUMNS}
    for name in ("placed_at", "updated_at", "payment_due_at"):
        values[name] = _utc(values[name])
    values["status"] = OrderStatus(values["status"])
    values["items"] = tuple(OrderItem(**item) for item in json.loads(values["items"]))
    return OrderView(**values)


def _utc(found: datetime | None) -> datetime | None:
    return None if found is None else found.replace(tzinfo=UTC)
